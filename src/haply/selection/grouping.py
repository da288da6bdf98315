"""Choose how each group of conditions is computed.

A group holds all conditions that share uncertain columns. What can be computed depends on the conditions and
the laws: one value of any law in intervals; sums of normals in boxes; one quadratic form of normals; one distance; any
of these together, of normals (see ``methods.curved``); trees of differences of any laws; a few values of any laws (see
``methods.nested``); and any combination of these, case by case (see ``selection.cases``). ``group_of`` picks one, and
refuses what none can do, before any data is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from haply.errors import HaplyError
from haply.models import Certain, GaussianND, MixtureND, Model, OneDimensional, Samples
from haply.numerics.nested.rows import MOST_INTEGRALS
from haply.probability.joint import POINTS, Joint, independent_groups
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
    too_many_cases,
    without_odd,
)
from haply.selection.conditions import NORMALS, Apart, Condition, Polynomial, RowValues, Value
from haply.selection.group import (
    BOX,
    CASES,
    CURVED,
    DISTANCE,
    FORM,
    INTERVAL,
    LATTICE,
    NESTED,
    PARTS,
    SUM,
    TREE,
    CaseOfGroups,
    Group,
)
from haply.selection.methods.cases import CaseRows, PartRows
from haply.selection.methods.curved import Curved
from haply.selection.methods.nested import MOST_VALUES, Nested, can_nest, integrals_of
from haply.selection.methods.normals import BoxRows, FormRows
from haply.selection.methods.values import DistanceRows, IntervalRows, TreeRows, scaled_tree

_CLOSED_BOX = 3
"""Dimensions up to which the probability of a box of normals is a formula."""
MOST_BOXES = 64
"""Boxes that a union of ranges may be cut into."""


def group_of(conditions: Sequence[Condition | Either], kinds: Mapping[str, type[Model]]) -> Group:
    """Choose how conditions that share uncertain columns are computed; refuse what cannot be."""
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
    at_once = _at_once(given, of) if _needs_integrals(given, of) else None
    if at_once:
        return at_once
    if computable(given, kinds) != [(1.0, given)]:
        return _case_group(Either(AllOf(given), " AND ".join(condition.text for condition in given)), kinds)
    polynomials = [condition for condition in given if isinstance(condition, Polynomial)]
    if len(polynomials) < len(given):
        if len(given) == 1:
            return Group(given, of, DISTANCE, 1)
        counted = all(issubclass(kind, (Certain, Samples)) for _, kind in of)
        if not counted and all(issubclass(kind, POINTS) for _, kind in of):
            return _curved_group(given, of)
        tree = scaled_tree(given)
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
    tree = scaled_tree(given)
    if tree is None:
        raise _tied(
            given,
            "sums of two columns compared with numbers, Gaussians and mixtures, or "
            f"{MOST_VALUES} values of other laws at most",
        )
    Joint.of(tree.conditions, dict(of))
    return Group(given, of, TREE, len(given))


def _needs_integrals(given: tuple[Condition, ...], of: tuple[tuple[str, type[Model]], ...]) -> bool:
    """Return whether only integrals give the probability: there is no closed form, nor a tree of differences."""
    apart = any(isinstance(condition, Apart) for condition in given)
    if len(of) == 1 or all(issubclass(kind, POINTS if apart else NORMALS) for _, kind in of):
        return False
    one_range = [replace(one, ranges=one.ranges[:1]) if isinstance(one, Polynomial) else one for one in given]
    tree = scaled_tree(one_range)
    return tree is None or Joint.problem(tree.conditions, dict(of)) is not None


_FEW_CASES, _FEW_CURVED, _MANY_CURVED = 4, 16, 64
"""Cases that may be integrated one by one: by nested integrals or lattices; as regions in three dimensions, where one
integral is as exact, and where it is a mean over a lattice."""


def _at_once(
    leaves: tuple[Condition, ...], of: tuple[tuple[str, type[Model]], ...], either: Either | None = None
) -> Group | None:
    """Plan conditions on values of any laws: by one integral or, for many values, by convolution of one sum, or by a
    mean over a lattice."""
    many = SUM if either is None and len(leaves) == 1 and _is_sum(leaves[0]) else LATTICE
    for method, integrals in ((NESTED, MOST_INTEGRALS), (many, MOST_VALUES - 1)):
        if can_nest(leaves, of, integrals):
            return Group(leaves, of, method, integrals_of(leaves, of) + 1, either)
    return None


def _is_sum(condition: Condition) -> bool:
    return isinstance(condition, Polynomial) and not condition.squares


def _case_group(either: Either, kinds: Mapping[str, type[Model]]) -> Group:
    """Plan a combination of conditions: by independent parts, or by the groups of its cases."""
    parts = _independent_parts(either, kinds)
    if parts:
        return parts
    of = tuple((name, kinds[name]) for name in dict.fromkeys(name for name, _ in either.values))
    leaves = tuple(leaf for leaf in leaves_of(either.tree) if not isinstance(leaf, Sure))
    whole = _at_once(leaves, of, either)
    numbers: dict[tuple[Condition, ...], int] = {}
    inner: list[Group] = []
    cases: list[CaseOfGroups] = []
    dear: Counter[str] = Counter()
    found = either.cases(kinds)
    for case in () if found is None else found:
        for conditions in case.groups:
            if conditions not in numbers:
                numbers[conditions] = len(inner)
                inner.append(group_of(conditions, kinds))
                dear[_dearness(inner[-1])] += 1
        cases.append(CaseOfGroups(case.sign, case.sure, tuple(numbers[conditions] for conditions in case.groups)))
        if whole and _are_many(dear, len(cases), whole):
            return whole  # one integral for all cases
    if found is None or len(cases) > MOST_CASES:
        if whole:
            return whole
        raise too_many_cases(either.text)
    return Group((), of, CASES, len(cases), either, tuple(inner), tuple(cases))


def _dearness(group: Group) -> str:
    """Return the kind under which an expensive group is counted; an empty text for others."""
    if group.is_lattice:
        return LATTICE
    return group.method if group.method == NESTED or (group.method == CURVED and group.size > 2) else ""


def _are_many(dear: Mapping[str, int], cases: int, whole: Group) -> bool:
    """Return whether one integral over all cases takes less time than one for each."""
    few = _FEW_CURVED if whole.method == NESTED else _MANY_CURVED
    return (
        cases > MOST_CASES
        or dear[LATTICE] > _FEW_CASES
        or dear[CURVED] > few
        or (whole.method == NESTED and dear[NESTED] > 0 and cases > _FEW_CASES)
    )


def _independent_parts(either: Either, kinds: Mapping[str, type[Model]]) -> Group | None:
    """Plan a combination with an XOR whose parts share no uncertain column: their probabilities give its own."""

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
    """Plan conditions on normals together. Their size is the greatest number of directions that they depend on;
    positions have two, unless the conditions name more."""
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
    """Check the laws of a distance: on a line any two; in more dimensions points and normals."""
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


# -- what computes them ------------------------------------------------------------------------------------------------


def _nested(group: Group, batch: RowValues) -> Nested:
    either = group.either or Either(AllOf(group.conditions))
    return Nested(without_odd(either.tree, either.text), group.kinds, batch, group.method)


def _curved(group: Group, batch: RowValues) -> Curved:
    """Return the method for all conditions, with the method of each one alone, for the bounds."""
    kinds = dict(group.kinds)
    alone = [group_of([condition], kinds).prepare for condition in group.conditions]
    return Curved(group.conditions, list(kinds), alone, batch)


Group.methods = {
    INTERVAL: IntervalRows, BOX: BoxRows, FORM: FormRows, DISTANCE: DistanceRows, CURVED: _curved, TREE: TreeRows,
    CASES: CaseRows, NESTED: _nested, SUM: _nested, LATTICE: _nested, PARTS: PartRows,
}  # fmt: skip
