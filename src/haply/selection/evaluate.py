"""Groups of conditions on the uncertain values of a row: bounds that cost little, and the exact probability.

A group holds all conditions that share uncertain columns. What can be computed depends on what they ask and of which
laws: one value of any law in intervals; sums of normals in boxes; one quadratic form of normals; one distance; any of
these together, of normals (see ``selection.curved``); trees of differences of any laws; and any combination of these,
case by case (see ``selection.cases``). ``group_of`` picks one, and refuses what none can do, before any data is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.models import Certain, GaussianND, MixtureND, Model, OneDimensional, Samples, Sky
from haply.numerics.jit import solid
from haply.numerics.multivariate.multinormal import box_rows
from haply.numerics.multivariate.quadratic import canonical_rows, form_rows
from haply.numerics.scale import powers_of
from haply.probability.distance import within_distance
from haply.probability.exact import interval_probability
from haply.probability.joint import POINTS, ZERO, Joint, independent_groups
from haply.probability.multivariate import MOST_POINTS, TOLERANCE, Parts, parts
from haply.probability.region import Difference, Distance, Linear
from haply.pruning.bounds.region import (
    BOX_RULES,
    FORM_RULES,
    REGION_RULES,
    Bounds,
    Box,
    bound_forms,
    bound_regions,
)
from haply.selection.cases import (
    MOST_CASES,
    AllOf,
    AnyOf,
    Either,
    OddOf,
    Sure,
    Tree,
    computable,
    leaves_of,
    numbers_of,
    too_many_cases,
    without_odd,
)
from haply.selection.conditions import (
    NORMALS,
    Apart,
    Condition,
    Number,
    Polynomial,
    Prepared,
    RowValues,
    Value,
    ends_of,
    in_range,
    one_region,
    solved,
)
from haply.selection.curved import SINGLY, Curved, middle_of
from haply.selection.nested import Nested, can_nest, integrals_of
from haply.selection.normals import Coordinates, fewer_dimensions, take_parts
from haply.selection.ranges import Ends, both, reachable

_CLOSED_BOX = 3
"""Dimensions up to which the probability of a box of normals is a formula."""
MOST_BOXES = 64
"""Boxes that a union of ranges may be cut into."""


@dataclass(frozen=True)
class Group:
    """Conditions that share uncertain columns, and how their probability is computed."""

    conditions: tuple[Condition, ...]
    kinds: tuple[tuple[str, type[Model]], ...]
    method: str
    """What its unit cost is known by."""
    size: int
    """How many conditions or dimensions it is about."""
    either: Either | None = None
    """A combination of conditions, instead of conditions that all hold."""
    inner: tuple[Group, ...] = ()
    """The groups that its cases are made of, each once."""
    cases: tuple[CaseOfGroups, ...] = ()
    """Its cases, whose probabilities add up."""

    @property
    def text(self) -> str:
        """For people."""
        return self.either.text if self.either else " AND ".join(condition.text for condition in self.conditions)

    @property
    def has_bounds(self) -> bool:
        """Whether there are bounds that may cost less than the value."""
        return bool(self.rules)

    @property
    def rules(self) -> tuple[int, ...]:
        """The codes of the rules that may bound its probability, cheapest first."""
        match self.method:
            case "box":  # in two dimensions the second rule costs as much as the value
                return BOX_RULES if self.size > 2 else BOX_RULES[: self.size - 1]
            case "form":
                return FORM_RULES
            case "distance":
                return FORM_RULES if all(issubclass(kind, GaussianND) for _, kind in self.kinds) else ()
            case "curved" | "tree":
                return (SINGLY,)
            case "cases":
                return (CASE_BY_CASE,) if any(group.rules for group in self.inner) else ()
        return ()

    @property
    def is_nearly_free(self) -> bool:
        """Whether it is one value in intervals, or one sum of normals: the value costs no more than a bound."""
        return self.method == INTERVAL or (self.method == BOX and self.size == 1)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of certain numbers that it needs."""
        return tuple(dict.fromkeys(number for leaf in self._leaves for number in numbers_of(leaf)))

    @property
    def _leaves(self) -> list[Condition | Sure]:
        """All conditions, also those of a combination."""
        return list(leaves_of(self.either.tree)) if self.either else list(self.conditions)

    @property
    def shapes(self) -> list[tuple[str, type[Model], int]]:
        """Its columns, their kinds, and a number of dimensions that they may have: what is asked for, or two.

        Those of a distance have the same.
        """
        leaves = self._leaves
        asked = [value for leaf in leaves if not isinstance(leaf, Sure) for value in leaf.values]
        on_a_line = all(issubclass(kind, OneDimensional) for _, kind in self.kinds)
        most = {name: max((i or 0) + 1 for n, i in asked if n == name) for name, _ in self.kinds}
        least = 1 if on_a_line else 3 if any(issubclass(kind, Sky) for _, kind in self.kinds) else 2
        dims = {name: max(least, most[name]) for name, _ in self.kinds}
        apart = [(one.one, one.other) for one in leaves if isinstance(one, Apart)]
        flat = {name for name, kind in self.kinds if issubclass(kind, OneDimensional) and kind is not Samples}
        for ends in apart * len(apart):
            dims |= dict.fromkeys(ends, 1 if flat & set(ends) else max(dims[name] for name in ends))
        return [(name, kind, dims[name]) for name, kind in self.kinds]

    @property
    def cost_name(self) -> str:
        """The name of its cost for one row."""
        if self.method == CURVED and middle_of(self.conditions) is not None:
            return STAR
        return f"{self.method} {self.size}" if self.method in (BOX, FORM, CURVED, TREE, NESTED) else self.method

    def prepare(self, batch: RowValues, rows: np.ndarray | None = None) -> Prepared:
        """Rows ready to be computed; all, if none are given."""
        if rows is not None and len(rows) < batch.rows:
            mine = {name: batch.values[name] for name, _ in self.kinds}
            batch = RowValues(mine, {name: batch.numbers[name] for name in self.numbers}, batch.rows).take(rows)
        if self.method in (BOX, FORM, CURVED):
            conditions, batch = in_range(self.conditions, batch)
            return _METHODS[self.method](replace(self, conditions=conditions), batch)
        return _METHODS[self.method](self, batch)

    def missed(self, batch: RowValues, rows: np.ndarray) -> np.ndarray | None:
        """Which rows miss a condition with their means; None if that takes more than arithmetic.

        It proves nothing, but tells where bounds are likely to reject.
        """
        if self.either:
            return None
        found = np.zeros(len(rows), bool)
        everything = len(rows) == batch.rows

        def of_rows(numbers: Any) -> Any:
            return numbers if everything or np.size(numbers) == 1 else numbers[rows]

        for condition in self.conditions:
            if not isinstance(condition, Polynomial):
                return None
            means: dict[Value, Any] = {}
            for value in condition.values:
                mean = _mean_of(batch.values[value[0]], value[1])
                if mean is None:
                    return None
                means[value] = of_rows(mean) - dict(condition.centre).get(value, 0.0)
            total: Any = 0.0
            for value, factor in condition.linear:
                total = total + of_rows(batch.number(factor)) * means[value]
            for one, two, factor in condition.squares:
                total = total + of_rows(batch.number(factor)) * means[one] * means[two]
            hit = np.zeros(len(rows), bool)
            for each in condition.ranges:
                hit |= (total >= of_rows(batch.number(each.low))) & (total <= of_rows(batch.number(each.high)))
            found |= ~hit
        return found


class CaseOfGroups(NamedTuple):
    """One case: its sign, the certain conditions, and the numbers of the groups whose probabilities multiply."""

    sign: float
    sure: tuple[Sure, ...]
    groups: tuple[int, ...]


INTERVAL, BOX, FORM, DISTANCE, CURVED, TREE = "interval", "box", "form", "distance", "curved", "tree"
CASES, NESTED, PARTS = "cases", "nested", "parts"
STAR = "star"
"""The cost of distances from one column to several others, which are curved but have a way of their own."""


def group_of(conditions: Sequence[Condition | Either], kinds: Mapping[str, type[Model]]) -> Group:
    """How conditions that share uncertain columns are computed; whatever cannot be is refused here."""
    given = tuple(condition for condition in conditions if not isinstance(condition, Either))
    if len(given) < len(conditions):
        (either,) = conditions
        assert isinstance(either, Either)
        return _case_group(either, kinds)
    named = tuple(dict.fromkeys(name for condition in given for name, _ in condition.values))
    unknown = [name for name in named if name not in kinds]
    if unknown:
        raise HaplyError(f"'{unknown[0]}' in `{given[0].text}` has no model", expected="uncertain values, or Certain")
    of = tuple((name, kinds[name]) for name in named)
    for condition in given:
        for name, index in condition.values:
            _check_value(condition, name, index, kinds[name])
    for condition in given:
        if isinstance(condition, Apart):
            _check_points(condition, kinds)
    if _needs_integrals(given, of):
        return Group(given, of, NESTED, integrals_of(given, of) + 1)
    if computable(given, kinds) != [(1.0, given)]:
        return _case_group(Either(AllOf(given), " AND ".join(condition.text for condition in given)), kinds)
    polynomials = [condition for condition in given if isinstance(condition, Polynomial)]
    if len(polynomials) < len(given):
        if len(given) == 1:
            return Group(given, of, DISTANCE, 1)
        counted = all(issubclass(kind, (Certain, Samples)) for _, kind in of)
        if not counted and all(issubclass(kind, POINTS) for _, kind in of):
            return _curved_group(given, of)
        tree = _scaled_tree(given)
        if tree is not None:
            Joint.of(tree.conditions, dict(of))  # refuses what it cannot do
            return Group(given, of, TREE, len(given))
        raise _tied(given, "a distance by itself, with differences of samples, or Gaussians and mixtures throughout")
    if len(named) == 1 and issubclass(of[0][1], OneDimensional):
        return Group(given, of, INTERVAL, 1)
    normal = all(issubclass(kind, NORMALS) for _, kind in of)
    curved = [condition for condition in polynomials if condition.squares]
    if curved:
        if not normal:
            other = next((name, kind) for name, kind in of if not issubclass(kind, NORMALS))
            raise HaplyError(
                f"The condition `{curved[0].text}` squares several uncertain columns"
                if len(given) == 1
                else f"The condition `{curved[0].text}` has squares and shares uncertain columns with others",
                expected="Gaussians or mixtures of them",
                found=f"'{other[0]}', which is {other[1].kind}",
            )
        return Group(given, of, FORM, len(curved[0].values)) if len(given) == 1 else _curved_group(given, of)
    if normal:
        forms = {condition.linear for condition in polynomials}
        if len(forms) > _CLOSED_BOX >= len({value for condition in polynomials for value in condition.values}):
            return _curved_group(given, of)  # exact, while boxes of many dimensions are sampled
        boxes = math.prod(len(condition.ranges) for condition in polynomials)
        if boxes > MOST_BOXES:
            raise _tied(given, f"at most {MOST_BOXES} combinations of ranges")
        return Group(given, of, BOX, len(forms))
    tree = _scaled_tree(given)
    if tree is None:
        raise _tied(
            given,
            "sums of two columns compared with numbers, three values of other laws at most, or Gaussians and mixtures",
        )
    Joint.of(tree.conditions, dict(of))
    return Group(given, of, TREE, len(given))


def _needs_integrals(given: tuple[Condition, ...], of: tuple[tuple[str, type[Model]], ...]) -> bool:
    """Whether only integrals give the probability: there is no closed form, nor a tree of differences."""
    apart = any(isinstance(condition, Apart) for condition in given)
    if len(of) == 1 or all(issubclass(kind, POINTS if apart else NORMALS) for _, kind in of):
        return False
    if not can_nest(given, of):
        return False
    one_range = [replace(one, ranges=one.ranges[:1]) if isinstance(one, Polynomial) else one for one in given]
    tree = _scaled_tree(one_range)
    return tree is None or Joint.problem(tree.conditions, dict(of)) is not None


_FEW_CASES, _FEW_CURVED = 4, 16
"""Cases that may be integrated one by one: by nested integrals, and as regions in three dimensions."""


def _case_group(either: Either, kinds: Mapping[str, type[Model]]) -> Group:
    """A combination of conditions: by parts that are independent of each other, or by the groups of its cases."""
    parts = _independent_parts(either, kinds)
    if parts:
        return parts
    of = tuple((name, kinds[name]) for name in dict.fromkeys(name for name, _ in either.values))
    leaves = tuple(leaf for leaf in leaves_of(either.tree) if not isinstance(leaf, Sure))
    whole = Group(leaves, of, NESTED, integrals_of(leaves, of) + 1, either) if can_nest(leaves, of) else None
    numbers: dict[tuple[Condition, ...], int] = {}
    inner: list[Group] = []
    cases: list[CaseOfGroups] = []
    found = either.cases(kinds)
    for case in () if found is None else found:
        for conditions in case.groups:
            if conditions not in numbers:
                numbers[conditions] = len(inner)
                inner.append(group_of(conditions, kinds))
        cases.append(CaseOfGroups(case.sign, case.sure, tuple(numbers[conditions] for conditions in case.groups)))
        if whole and _are_many(inner, len(cases)):
            return whole  # one integral for all cases
    if found is None or len(cases) > MOST_CASES:
        if whole:
            return whole
        raise too_many_cases(either.text)
    return Group((), of, CASES, len(cases), either, tuple(inner), tuple(cases))


def _are_many(inner: Sequence[Group], cases: int) -> bool:
    """Whether one integral over all cases takes less than those of each."""
    if cases > MOST_CASES:
        return True
    integrals = any(group.method == NESTED for group in inner)
    return (integrals and cases > _FEW_CASES) or (
        len(inner) > _FEW_CURVED and sum(group.method == CURVED and group.size > 2 for group in inner) > _FEW_CURVED
    )


def _independent_parts(either: Either, kinds: Mapping[str, type[Model]]) -> Group | None:
    """A combination with an XOR in it whose parts share no uncertain column: their probabilities make its own."""

    def columns(part: Tree) -> list[str]:
        values = Either(part).values
        return [name for name, _ in values if kinds[name] is not Certain] or [repr(part)]

    tree = either.tree
    if isinstance(tree, OddOf):
        parts: list[Tree] = [part for pair in tree.pairs for part in pair]
    elif isinstance(tree, (AllOf, AnyOf)) and _has_odd(tree):
        shared = independent_groups(tree.parts, columns)
        if len(shared) == 1:
            return None
        parts = [each[0] if len(each) == 1 else replace(tree, parts=each) for each in shared]
        either = replace(either, tree=replace(tree, parts=tuple(parts)))
    else:
        return None
    inner = tuple(
        group_of([part if isinstance(part, Condition) else Either(part, either.text)], kinds) for part in parts
    )
    of = tuple((name, kinds[name]) for name in dict.fromkeys(name for name, _ in either.values))
    return Group((), of, PARTS, len(inner), either, inner)


def _has_odd(tree: Tree) -> bool:
    return isinstance(tree, OddOf) or (isinstance(tree, (AllOf, AnyOf)) and any(map(_has_odd, tree.parts)))


def _curved_group(given: tuple[Condition, ...], of: tuple[tuple[str, type[Model]], ...]) -> Group:
    """Its size is the number of directions that it depends on at most; points have two, unless more are asked for."""
    for condition in given:
        group_of([condition], dict(of))  # what cannot be computed by itself is refused
    ranges = sum(1 if isinstance(condition, Apart) else len(condition.ranges) for condition in given)
    if ranges > MOST_BOXES:
        raise _tied(given, f"at most {MOST_BOXES} ranges")
    group = Group(given, of, CURVED, 0)
    dims = {name: dim for name, _, dim in group.shapes}
    coordinates: set[Value] = set()
    directions = 0
    for condition in given:
        if isinstance(condition, Apart):
            coordinates |= {(name, k) for name in (condition.one, condition.other) for k in range(dims[name])}
            directions += dims[condition.one]
            continue
        coordinates |= {(name, index or 0) for name, index in condition.values}
        squared = {value for one, two, _ in condition.squares for value in (one, two)}
        directions += len(squared) + any(value not in squared for value, _ in condition.linear)
    return replace(group, size=min(directions, len(coordinates)))


def _mean_of(model: Model, index: int | None) -> np.ndarray | None:
    """Of one value of each row."""
    if isinstance(model, OneDimensional):
        return model.mean()
    if isinstance(model, GaussianND) and index is not None and index < model.mean().lengths.min(initial=1 << 30):
        return np.asarray(model.mean().values[model.mean().start[:-1] + index])
    return None


def _check_value(condition: Condition, name: str, index: int | None, kind: type[Model]) -> None:
    if isinstance(condition, Apart):
        if not issubclass(kind, (*POINTS, OneDimensional)):
            raise HaplyError(
                f"The condition `{condition.text}` asks for a distance of '{name}'",
                expected="points, samples, Gaussians or mixtures of them",
                found=kind.kind,
            )
        return
    several = issubclass(kind, (GaussianND, MixtureND))
    if several and index is None:
        raise HaplyError(
            f"The condition `{condition.text}` uses '{name}', which has several components",
            expected=f"one of them, {name}[0], {name}[1], ..., or a distance",
        )
    if not several and index is not None:
        raise HaplyError(
            f"The condition `{condition.text}` asks for a component of '{name}'",
            expected="a column made by hp.gaussian_nd or hp.mixture_nd",
            found=kind.kind,
        )


def _check_points(condition: Apart, kinds: Mapping[str, type[Model]]) -> None:
    """On a line any two laws; in more dimensions points and normals."""
    ends = [kinds[name] for name in (condition.one, condition.other)]
    for name, kind, other in zip((condition.one, condition.other), ends, reversed(ends), strict=True):
        if not issubclass(kind, POINTS) and not issubclass(other, OneDimensional):
            raise HaplyError(
                f"The condition `{condition.text}` asks for a distance of '{name}' in several dimensions",
                expected="points, samples, Gaussians or mixtures of them",
                found=kind.kind,
            )


def _tied(conditions: Sequence[Condition], expected: str) -> HaplyError:
    return HaplyError(
        "These conditions share uncertain columns and cannot be computed together: "
        + "; ".join(f"`{condition.text}`" for condition in conditions),
        expected=expected,
    )


class ScaledTree(NamedTuple):
    """Conditions as ``Joint`` takes them, on values that are multiplied by a number for each column."""

    conditions: list[Difference | Distance | Linear]
    scales: dict[str, float]


def _scaled_tree(conditions: Sequence[Condition]) -> ScaledTree | None:
    """Sums of two columns as differences: of ``2 x + y`` those of ``2 x`` and ``-y``. None if they are no such sums."""
    scales = _scales(conditions)
    if scales is None:
        return None
    found: list[Difference | Distance | Linear] = []
    for condition in conditions:
        if isinstance(condition, Apart):
            if condition.beyond or isinstance(condition.limit, str):
                return None
            found.append(Distance(condition.one, condition.other, condition.limit, condition.closed))
            continue
        region = one_region(condition.ranges)
        if region is None:
            return None
        (first, factor), *rest = ((name, float(factor) / scales[name]) for (name, _), factor in condition.linear)
        if factor > 0.0 or not rest:
            found.append(Difference(first, rest[0][0] if rest else ZERO, region.over(factor)))
        else:
            found.append(Difference(rest[0][0], first, region.over(-factor)))
    return ScaledTree(found, scales)


def _scales(conditions: Sequence[Condition]) -> dict[str, float] | None:
    """What each column is multiplied by, so that each sum of two is a multiple of a difference.

    Columns that are tied by a sum have a fixed ratio. None if a condition is no sum of one or two columns, or a circle
    of them asks for two ratios.
    """
    ties: list[tuple[str, str, float]] = []
    scales: dict[str, float] = {}
    if any(index is not None for condition in conditions for _, index in condition.values):
        return None
    for condition in conditions:
        if isinstance(condition, Apart):
            ties.append((condition.one, condition.other, 1.0))
            continue
        factors = [factor for _, factor in condition.linear]
        if condition.squares or any(isinstance(factor, str) or not factor for factor in factors) or len(factors) > 2:
            return None
        if len(factors) == 2:
            (one, _), (other, _) = (value for value, _ in condition.linear)
            ties.append((one, other, -float(factors[1]) / float(factors[0])))
    for start in dict.fromkeys(name for condition in conditions for name, _ in condition.values):
        scales.setdefault(start, 1.0)
        reached = [start]
        while reached:
            name = reached.pop()
            for one, other, ratio in ties:
                for here, there, times in ((one, other, ratio), (other, one, 1.0 / ratio)):
                    if here == name and there not in scales:
                        scales[there] = scales[name] * times
                        reached.append(there)
    if any(not math.isclose(scales[other], scales[one] * ratio, rel_tol=1e-15) for one, other, ratio in ties):
        return None
    apart = {name for one in conditions if isinstance(one, Apart) for name in (one.one, one.other)}
    return None if any(scales[name] != 1.0 for name in apart) else scales


# -- one value of any law ----------------------------------------------------------------------------------------------


class _Interval:
    """One value, of any law, in a union of intervals: its distribution function says all."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        ((name, _),) = group.kinds
        model = batch.values[name]
        assert isinstance(model, OneDimensional)
        self.model, self.rows = model, batch.rows
        ends: Ends | None = None
        for condition in group.conditions:
            assert isinstance(condition, Polynomial)
            slope = batch.array(condition.linear[0][1] if condition.linear else 0.0)
            curve = batch.array(condition.squares[0][2] if condition.squares else 0.0)
            mine = solved(condition, curve, slope, batch)
            for _, centre in condition.centre:
                mine = [(low + centre, high + centre) for low, high in mine]
            ends = mine if ends is None else both(ends, mine)
        assert ends is not None
        self.ends = [(low, high) for low, high in ends if (low <= high).any()]

    def take(self, rows: np.ndarray) -> _Interval:
        taken = object.__new__(_Interval)
        taken.model = self.model.take(rows) if len(self.model) > 1 else self.model
        taken.ends = [tuple(end[rows] if len(end) > 1 else end for end in each) for each in self.ends]  # type: ignore[misc]
        taken.rows = len(rows)
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> None:
        return None

    def exact(self) -> tuple[np.ndarray, bool]:
        found = np.zeros(self.rows)
        for low, high in self.ends:
            found = found + np.where(low <= high, interval_probability(self.model, low, np.maximum(low, high)), 0.0)
        counts = self.model.equal_weight_samples() and len(self.ends) <= 1
        return found if counts else np.minimum(found, 1.0), counts


# -- normals -----------------------------------------------------------------------------------------------------------


class _Box:
    """Sums of normals, each in a union of ranges: boxes that do not overlap, whose probabilities add up."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        self.rules = group.rules
        normals = Coordinates([name for name, _ in group.kinds], batch)
        sums: dict[tuple[tuple[Value, Number], ...], Ends] = {}
        asked: dict[tuple[tuple[Value, Number], ...], Condition] = {}
        for condition in group.conditions:
            assert isinstance(condition, Polynomial)
            ends = ends_of(condition, batch)
            asked[condition.linear] = condition
            known = sums.get(condition.linear)
            sums[condition.linear] = ends if known is None else both(known, ends)
        by_row = any(isinstance(factor, str) for linear in sums for _, factor in linear)
        rows = np.zeros((*((batch.rows,) if by_row else ()), len(sums), normals.size))
        for at, linear in enumerate(sums):
            for value, factor in linear:
                rows[..., at, normals.place(asked[linear], value)] += batch.number(factor)
        means, covs = normals.transformed(rows)
        self.parts = Parts(normals.start, normals.weight, solid(means), solid(covs))
        boxes: list[list[tuple[np.ndarray, np.ndarray]]] = [[]]
        for ends in sums.values():
            boxes = [[*box, each] for box in boxes for each in ends if (each[0] <= each[1]).any()]
        shape = (batch.rows, len(sums))
        self.boxes = [
            tuple(
                np.stack([np.broadcast_to(each[side], (batch.rows,)) for each in box], axis=1).reshape(shape)
                for side in (0, 1)
            )
            for box in boxes
        ]

    def take(self, rows: np.ndarray) -> _Box:
        taken = object.__new__(_Box)
        taken.rules = self.rules
        start, chosen = take_parts(self.parts.start, rows)
        taken.parts = Parts(start, self.parts.weight[chosen], self.parts.mean[chosen], self.parts.cov[chosen])
        taken.boxes = [(low[rows], high[rows]) for low, high in self.boxes]
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        if not self.rules:
            return None
        lower, upper = np.zeros(len(self.parts.start) - 1), np.zeros(len(self.parts.start) - 1)
        code = np.zeros(len(lower), np.int8)
        alone = len(self.boxes) == 1
        for low, high in self.boxes:
            empty, low, high = _without_empty(low, high)
            one = bound_regions(
                self.parts, Box(low, high), enough_below if alone else 0.0,
                enough_from if alone else math.inf, rules=self.rules[:most],
            )  # fmt: skip
            lower += np.where(empty, 0.0, one.lower)
            upper += np.where(empty, 0.0, one.upper)
            code = np.maximum(code, one.code)
        return Bounds(lower, upper, code)

    def exact(self) -> tuple[np.ndarray, bool]:
        found = np.zeros(len(self.parts.start) - 1)
        owner = np.repeat(np.arange(len(found)), np.diff(self.parts.start))
        for low, high in self.boxes:
            empty, low, high = _without_empty(low, high)
            chance, _ = box_rows(
                solid(self.parts.mean), solid(self.parts.cov), solid(low[owner]), solid(high[owner]), TOLERANCE,
                MOST_POINTS,
            )  # fmt: skip
            whole = chance if len(owner) == len(found) else np.bincount(owner, self.parts.weight * chance, len(found))
            found += np.where(empty, 0.0, whole)
        return np.minimum(found, 1.0), False


def _without_empty(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which rows' boxes are empty, and boxes with something harmless in the place of these."""
    empty = ((low > high) | (low == math.inf) | (high == -math.inf)).any(axis=1)
    if not empty.any():
        return empty, low, high
    return empty, np.where(empty[:, None], 0.0, low), np.where(empty[:, None], 0.0, high)


class _Form:
    """One quadratic form of normals in a union of ranges."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        (condition,) = group.conditions
        assert isinstance(condition, Polynomial)
        normals = Coordinates([name for name, _ in group.kinds], batch)
        matrix, line = normals.form(condition, batch)
        by_row = matrix.ndim == 3
        for value, centre in condition.centre:
            normals.means[:, normals.place(condition, value)] -= centre
        if by_row:
            lower, bent, slanted = np.eye(normals.size), matrix[normals.owner], line[normals.owner]
        else:
            lower, bent, slanted = fewer_dimensions(matrix, line)
        means, covs = normals.transformed(lower)
        if slanted.any():
            means, covs, bent = _with_a_constant(means, covs, bent, slanted)
        bent = bent if bent.ndim == 3 else bent[None]
        self.start, self.weight, self.owner = normals.start, normals.weight, normals.owner
        self.curve, self.slope, self.constant = canonical_rows(solid(means), solid(covs), solid(bent))
        self.ends = ends_of(condition, batch)
        if not by_row and not line.any():
            self.ends = [reachable(*each, np.linalg.eigvalsh(matrix)) for each in self.ends]

    def take(self, rows: np.ndarray) -> _Form:
        taken = object.__new__(_Form)
        taken.start, chosen = take_parts(self.start, rows)
        taken.owner = np.repeat(np.arange(len(rows)), np.diff(taken.start))
        taken.weight, taken.curve = self.weight[chosen], self.curve[chosen]
        taken.slope, taken.constant = self.slope[chosen], self.constant[chosen]
        taken.ends = [tuple(end[rows] if len(end) > 1 else end for end in each) for each in self.ends]  # type: ignore[misc]
        return taken

    def _limits(self, end: np.ndarray) -> np.ndarray:
        return solid(np.broadcast_to(end, (len(self.start) - 1,)))

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        n = len(self.start) - 1
        lower, upper, code = np.zeros(n), np.zeros(n), np.zeros(n, np.int8)
        levels = [np.broadcast_to(np.asarray(level, np.float64), (n,)) for level in (enough_below, enough_from)]
        alone = len(self.ends) == 1

        def below(end: np.ndarray, reject: Any, accept: Any) -> Bounds:
            return bound_forms(
                self.start, self.weight, self.curve, self.slope, self.constant, self._limits(end), reject, accept,
                FORM_RULES[:most],
            )  # fmt: skip

        for low, high in self.ends:
            empty = low > high
            if np.isneginf(low).all():
                one = below(high, *(levels if alone else (0.0, math.inf)))
            elif np.isposinf(high).all():  # the other side of the same question
                other = below(low, *((1.0 - levels[1], 1.0 - levels[0]) if alone else (0.0, math.inf)))
                one = Bounds(1.0 - other.upper, 1.0 - other.lower, other.code)
            else:
                first, second = below(high, 0.0, math.inf), below(low, 0.0, math.inf)
                one = Bounds(first.lower - second.upper, first.upper - second.lower, first.code)
            lower += np.where(empty, 0.0, np.maximum(one.lower, 0.0))
            upper += np.where(empty, 0.0, one.upper)
            code = np.maximum(code, one.code)
        return Bounds(lower, upper, code)

    def exact(self) -> tuple[np.ndarray, bool]:
        n = len(self.start) - 1
        found = np.zeros(n)
        for low, high in self.ends:
            within = _between(self._chance, self._limits(low), self._limits(high))
            found += np.where(low <= high, within, 0.0)
        return np.clip(found, 0.0, 1.0), False

    def _chance(self, end: np.ndarray, above: bool, closed: bool) -> np.ndarray:
        chance = form_rows(self.curve, self.slope, end[self.owner] - self.constant, closed, above)[0]
        if len(self.owner) == len(end):
            return chance
        return np.bincount(self.owner, self.weight * chance, len(end))


def _between(chance: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """``P(low <= X <= high)`` from tails; by those on the side where they are small.

    ``chance`` takes an end, whether the tail is above it, and whether the end belongs to it.
    """
    if np.isneginf(low).all():
        return chance(high, False, True)
    if np.isposinf(high).all():
        return chance(low, True, True)
    below = chance(low, False, False)
    return np.where(below < 0.5, chance(high, False, True) - below, chance(low, True, True) - chance(high, True, False))


def _with_a_constant(
    means: np.ndarray, covs: np.ndarray, matrix: np.ndarray, line: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A form with linear terms as one without, of one more variable that is always 1."""
    n, k = means.shape
    wide = np.zeros((n, k + 1, k + 1))
    wide[:, :k, :k] = covs
    form = np.zeros((*matrix.shape[:-2], k + 1, k + 1))
    form[..., :k, :k] = matrix
    form[..., :k, k] = form[..., k, :k] = 0.5 * line
    return np.hstack([means, np.ones((n, 1))]), wide, form


# -- distances and trees -----------------------------------------------------------------------------------------------


class _Distance:
    """One distance: by the difference of normals, with the bounds of forms, or by counting samples."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        (condition,) = group.conditions
        assert isinstance(condition, Apart)
        self.condition = condition
        self.one, self.other = batch.values[condition.one], batch.values[condition.other]
        limit = np.atleast_1d(np.asarray(batch.number(condition.limit), np.float64))
        self.limit = limit if condition.closed else np.nextafter(limit, -math.inf)
        self.rows = batch.rows

    def take(self, rows: np.ndarray) -> _Distance:
        taken = object.__new__(_Distance)
        taken.condition, taken.rows = self.condition, len(rows)
        taken.one, taken.other = (model.take(rows) if len(model) > 1 else model for model in (self.one, self.other))
        taken.limit = self.limit[rows] if len(self.limit) > 1 else self.limit
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        if not (isinstance(self.one, GaussianND) and isinstance(self.other, GaussianND)):
            return None
        if any(powers_of(sizes) is not None for sizes in (self.one.sizes(), self.other.sizes(), np.abs(self.limit))):
            return None  # the value is found on scales on which squares are in range
        one, other = parts(self.one), parts(self.other)
        assert one is not None
        assert other is not None
        if self.condition.beyond:
            enough_below, enough_from = np.subtract(1.0, enough_from), np.subtract(1.0, enough_below)
        means, covs = solid(one.mean - other.mean), solid(one.cov + other.cov)
        curve, slope, constant = canonical_rows(means, covs, np.eye(means.shape[1])[None])
        square = np.where(self.limit < 0.0, -math.inf, self.limit * self.limit)
        limits = solid(np.broadcast_to(square, (self.rows,)))
        found = bound_forms(
            np.arange(self.rows + 1), np.ones(self.rows), curve, slope, constant, limits, enough_below, enough_from,
            FORM_RULES[:most],
        )  # fmt: skip
        if self.condition.beyond:
            return Bounds(1.0 - found.upper, 1.0 - found.lower, found.code)
        return found

    def exact(self) -> tuple[np.ndarray, bool]:
        never = self.limit < 0.0
        found = np.where(never, 0.0, within_distance(self.one, self.other, np.where(never, 0.0, self.limit)))
        counts = all(
            isinstance(model, (Certain, Samples)) and model.equal_weight_samples() for model in (self.one, self.other)
        )
        found = np.broadcast_to(found, (self.rows,))
        return (1.0 - found, False) if self.condition.beyond else (found, counts)


class _GroupTree:
    """Differences that tie values as the branches of a tree do."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        tree = _scaled_tree(group.conditions)
        assert tree is not None
        self.joint, self.rows = Joint.of(tree.conditions, dict(group.kinds)), batch.rows
        self.values = {
            name: model.times(scale) if (scale := tree.scales.get(name, 1.0)) != 1.0 else model
            for name, model in batch.values.items()
        }

    def take(self, rows: np.ndarray) -> _GroupTree:
        taken = object.__new__(_GroupTree)
        taken.joint, taken.rows = self.joint, len(rows)
        taken.values = {name: m if len(m) == 1 else m.take(rows) for name, m in self.values.items()}
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        if all(len(group) == 1 for group in self.joint.groups):
            return None
        lower, upper = self.joint.bounds(self.values)
        shape = (self.rows,)
        return Bounds(np.broadcast_to(lower, shape), np.broadcast_to(upper, shape), np.full(shape, SINGLY, np.int8))

    def exact(self) -> tuple[np.ndarray, bool]:
        found, counts = self.joint.probability(self.values)
        return np.broadcast_to(found, (self.rows,)), counts


class _Cases:
    """Cases that exclude one another: the probabilities of their groups multiply, and those of cases add up."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        self.group, self.rows = group, batch.rows
        self.inner = [each.prepare(batch) for each in group.inner]
        self.sure = {number: batch.numbers[number] for case in group.cases for number in _numbers(case)}

    def take(self, rows: np.ndarray) -> _Cases:
        taken = object.__new__(_Cases)
        taken.group, taken.rows = self.group, len(rows)
        taken.inner = [each.take(rows) for each in self.inner]
        taken.sure = {number: of[rows] for number, of in self.sure.items()}
        return taken

    def _factor(self, case: CaseOfGroups) -> np.ndarray:
        """The sign of a case, or 0 where something certain excludes it."""
        found = np.full(self.rows, case.sign)
        for sure in case.sure:
            found = np.where(np.isin(self.sure[sure.number], sure.values), found, 0.0)
        return found

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        known = []
        for group, prepared in zip(self.group.inner, self.inner, strict=True):
            found = prepared.bounds(0.0, math.inf) if group.has_bounds else None
            if found is not None:
                known.append((np.clip(found.lower, 0.0, 1.0), np.clip(found.upper, 0.0, 1.0)))
            elif group.is_nearly_free:
                known.append((prepared.exact()[0],) * 2)
            else:
                known.append((np.zeros(self.rows), np.ones(self.rows)))
        lower, upper = np.zeros(self.rows), np.zeros(self.rows)
        for case in self.group.cases:
            factor = self._factor(case)
            least = factor * np.prod([known[number][0] for number in case.groups], axis=0)
            most = factor * np.prod([known[number][1] for number in case.groups], axis=0)
            lower, upper = lower + np.minimum(least, most), upper + np.maximum(least, most)
        slack = _ROUNDING * len(self.group.cases)
        code = np.full(self.rows, CASE_BY_CASE, np.int8)
        return Bounds(np.clip(lower - slack, 0.0, 1.0), np.clip(upper + slack, 0.0, 1.0), code)

    def exact(self) -> tuple[np.ndarray, bool]:
        known: dict[int, np.ndarray] = {}
        found = np.zeros(self.rows)
        for case in self.group.cases:
            chance = self._factor(case)
            for number in case.groups:
                if not chance.any():
                    break
                if number not in known:
                    known[number] = self.inner[number].exact()[0]
                chance = chance * known[number]
            found = found + chance
        return np.clip(found, 0.0, 1.0), False


class _Parts:
    """Parts that are independent of each other, all of which hold, or any, or an odd number."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        assert group.either is not None
        self.tree, self.rows = group.either.tree, batch.rows
        self.inner = [each.prepare(batch) for each in group.inner]

    def take(self, rows: np.ndarray) -> _Parts:
        taken = object.__new__(_Parts)
        taken.tree, taken.rows = self.tree, len(rows)
        taken.inner = [each.take(rows) for each in self.inner]
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> None:
        return None

    def exact(self) -> tuple[np.ndarray, bool]:
        chances = [each.exact()[0] for each in self.inner]
        if isinstance(self.tree, AllOf):
            return np.prod(chances, axis=0), False
        if isinstance(self.tree, AnyOf):
            return 1.0 - np.prod([1.0 - chance for chance in chances], axis=0), False
        odd, even = np.zeros(self.rows), np.ones(self.rows)
        for holds, fails in zip(chances[::2], chances[1::2], strict=True):
            odd, even = odd * fails + even * holds, odd * holds + even * fails
        return odd, False


_ROUNDING = 1e-15
"""How far the bounds of a case may be off."""


def _numbers(case: CaseOfGroups) -> list[str]:
    return [sure.number for sure in case.sure]


def _nested(group: Group, batch: RowValues) -> Nested:
    either = group.either or Either(AllOf(group.conditions))
    return Nested(without_odd(either.tree, either.text), group.kinds, batch)


def _curved(group: Group, batch: RowValues) -> Curved:
    """With what each condition is by itself, for the bounds."""
    kinds = dict(group.kinds)
    alone = [group_of([condition], kinds).prepare for condition in group.conditions]
    return Curved(group.conditions, list(kinds), alone, batch)


CASE_BY_CASE = 102
"""The code of the rule that adds up the bounds of cases; 101 is that of ``selection.select``."""
RULE_NAMES = {**REGION_RULES, SINGLY: "one by one", CASE_BY_CASE: "case by case"}

_METHODS: dict[str, Any] = {
    INTERVAL: _Interval, BOX: _Box, FORM: _Form, DISTANCE: _Distance, CURVED: _curved, TREE: _GroupTree,
    CASES: _Cases, NESTED: _nested, PARTS: _Parts,
}  # fmt: skip
