"""Conditions on values of any laws: sums, products and squares, by integrals over all values but one, or means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, GaussianND, Histogram, Mixture, MixtureND, Model, OneDimensional, Samples
from haply.numerics.integration.lattices import make_lattice
from haply.numerics.jit import solid
from haply.numerics.multivariate.quadratic import root_rows
from haply.numerics.nested.problem import ALL, ANY, Laws, Polynomials, Written
from haply.numerics.nested.rows import MOST_INTEGRALS, lattice_rows, nested_rows
from haply.numerics.sums import MOST_PANELS, sum_rows
from haply.probability.multivariate import MOST_POINTS, TOLERANCE, squared_limits
from haply.selection.cases import AllOf, AnyOf, Sure, Tree, leaves_of
from haply.selection.conditions import Apart, Condition, Polynomial, Range, RowValues, Value
from haply.selection.group import LATTICE, NESTED, SUM
from haply.selection.normals import Coordinates

MOST_VALUES = 32
"""Values that a mean over a lattice may be about."""
MOST_WORLDS = 10_000_000
"""Combinations of points that are counted for one row."""
_COUNTED = (Samples, Certain)
"""Laws that are points only."""
_ROUNDING = 1e-13
"""What rounding may change a form by, beside the size of its terms, when these are added in another order."""
_LAST = (Mixture, Histogram)
"""Laws of many components: one of them is best integrated in closed form."""


_WIDE = (GaussianND, MixtureND)
"""Laws of several components, which are sums of independent normals."""


def integrals_of(conditions: Sequence[Condition | Sure], kinds: Sequence[tuple[str, type[Model]]]) -> int:
    """Count the integrals that conditions on these laws take, for points in the plane; one value takes none."""
    asked = [condition for condition in conditions if not isinstance(condition, Sure)]
    ends = {name for one in asked if isinstance(one, Apart) for name in (one.one, one.other)}
    values = {value for one in asked if isinstance(one, Polynomial) for value in one.values if value[0] not in ends}
    values |= {(name, index) for name in ends for index in range(2)}
    of = dict(kinds)
    return max(0, sum(not issubclass(of[name], _COUNTED) for name, _ in values) - 1)


def can_nest(conditions: Sequence[Condition], kinds: Sequence[tuple[str, type[Model]]], integrals: int) -> bool:
    """Return whether ``Nested`` computes these conditions on these laws with at most so many integrals."""
    ends = {name for one in conditions if isinstance(one, Apart) for name in (one.one, one.other)}
    alone = {name for one in conditions if isinstance(one, Polynomial) for name, index in one.values if index is None}
    of = dict(kinds)
    return (
        not ends & alone
        and all(issubclass(of[name], (*_WIDE, Samples)) for name in ends)
        and all(issubclass(kind, (OneDimensional, *_WIDE)) for _, kind in kinds)
        and integrals_of(conditions, kinds) <= integrals
    )


class Nested:
    """Values of any laws. All but one are enumerated, integrated or, by ``method``, averaged over a lattice; or one sum
    of them is asked for."""

    def __init__(
        self, tree: Tree, kinds: Sequence[tuple[str, type[Model]]], batch: RowValues, method: str = NESTED
    ) -> None:
        self.tree, self.kinds, self.batch, self.method = tree, kinds, batch, method
        leaves = list(leaves_of(tree))
        self.conditions = [leaf for leaf in leaves if not isinstance(leaf, Sure)]
        self.sure = [leaf for leaf in leaves if isinstance(leaf, Sure)]

    def take(self, rows: np.ndarray) -> Nested:
        """Return some of the rows."""
        return Nested(self.tree, self.kinds, self.batch.take(rows), self.method)

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> None:
        """Return no bounds: none are cheaper than the value."""

    def exact(self) -> tuple[np.ndarray, bool]:
        """Compute the probabilities; they are counts of equal cases if all values are points of equal weight."""
        values = _independent(self.kinds, self.conditions, self.batch)
        found = np.empty(values.batch.rows)
        if self.method == SUM:
            found = self._of_sum(values)
        elif self.method == LATTICE:
            lattice = make_lattice(len(values.laws.start) - 1, TOLERANCE, MOST_POINTS)
            asked, errors = self._polynomials(values), np.empty(len(found))
            lattice_rows(values.laws, asked, lattice, found, errors)
        else:
            self._refuse_many(values)
            nested_rows(values.laws, self._polynomials(values), values.integrals, found)
        if values.weight is not None:
            return np.minimum(np.bincount(values.owner, values.weight * found, self.batch.rows), 1.0), False
        counted = all(issubclass(kind, _COUNTED) for _, kind in self.kinds)
        models = [self.batch.values[name] for name, _ in self.kinds]
        return found, counted and all(isinstance(m, OneDimensional) and m.equal_weight_samples() for m in models)

    def _of_sum(self, values: _Values) -> np.ndarray:
        """Compute the probabilities of the only condition, which is about a sum."""
        (condition,) = self.conditions
        assert isinstance(condition, Polynomial)
        factors, _, constant = values.form(condition)
        low, high = (
            np.stack([np.asarray(values.batch.array(end) - constant, np.float64) for end in ends])
            for ends in ([each.low for each in condition.ranges], [each.high for each in condition.ranges])
        )
        low_closed, high_closed = (
            np.array(closed)
            for closed in (
                [each.low_closed for each in condition.ranges],
                [each.high_closed for each in condition.ranges],
            )
        )
        found = sum_rows(values.laws, solid(factors), solid(low), solid(high), low_closed, high_closed)
        if np.isnan(found).any():
            raise HaplyError(
                f"The density of the sum in `{condition.text}` has too many pieces for a row",
                expected=f"{MOST_PANELS:,} at most for each half of the values",
                hint="give histograms fewer bins, thin the samples out, or add up fewer values",
            )
        return found

    def _refuse_many(self, values: _Values) -> None:
        text = " AND ".join(condition.text for condition in self.conditions)
        if values.integrals > MOST_INTEGRALS:
            raise HaplyError(
                f"The condition `{text}` is about {values.integrals + 1} values of any laws",
                expected=f"{MOST_INTEGRALS + 1} at most, or Gaussians and mixtures of them",
            )
        counts = np.ones(values.batch.rows)
        for start in values.laws.start[: len(values.laws.start) - 1 - values.integrals]:
            counts = counts * np.diff(start)
        if values.batch.rows and counts.max() > MOST_WORLDS:
            raise HaplyError(
                f"The points of a row in `{text}` have {counts.max():.2g} combinations",
                expected=f"{MOST_WORLDS:,} at most",
                hint="thin the samples out, or ask for fewer columns at once",
            )

    def _polynomials(self, values: _Values) -> Polynomials:
        """Write the conditions over independent values, each once; conditions about the same form share it."""
        batch, n = values.batch, len(values.laws.start)
        most = max(1 if isinstance(condition, Apart) else len(condition.ranges) for condition in self.conditions)
        forms: dict[bytes, int] = {}
        linear: list[np.ndarray] = []
        squares: list[np.ndarray] = []
        borders: dict[tuple[int, bytes], np.ndarray] = {}
        leaves: dict[tuple[int, bytes], int] = {}
        asked: list[tuple[int, np.ndarray, np.ndarray]] = []
        places: dict[int, int] = {}
        written: list[_Terms | None] = []
        given: list[np.ndarray] = []
        for condition in self.conditions:
            polynomial = values.polynomial(condition)
            factors, bent, constant = values.form(polynomial)
            terms = values.as_written(condition, polynomial)
            if terms and not (values.all_counted and terms.one):
                # its value is set when all points are known
                factors, bent, constant = np.zeros_like(factors), np.zeros_like(bent), terms.constant
            flat = np.concatenate([factors, bent.reshape(n * n, -1)])[:, 0]
            sign = -1.0 if flat.any() and flat[np.flatnonzero(flat)[0]] < 0.0 else 1.0
            factors, bent = sign * factors + 0.0, sign * bent + 0.0  # no negative zeros
            if terms:
                terms = terms.times(sign)
            f = forms.setdefault(factors.tobytes() + bent.tobytes() + (terms.key if terms else b""), len(forms))
            if f == len(linear):
                linear.append(factors)
                squares.append(bent)
                written.append(terms)
            ends = np.repeat(np.array([math.inf, -math.inf])[:, None, None], most, 1).repeat(batch.rows, 2)
            as_given, closed = ends.copy(), np.zeros((2, most), bool)
            for k, each in enumerate(polynomial.ranges):
                limits = [batch.array(end) for end in (each.low, each.high)]
                if isinstance(condition, Apart):
                    limits = [_square(limit, condition.closed) for limit in limits]
                ends[:, k] = [limit - constant for limit in limits]
                as_given[0, k], as_given[1, k] = limits
                closed[:, k] = each.low_closed, each.high_closed
                if sign < 0.0:
                    ends[:, k], closed[:, k] = -ends[::-1, k], closed[::-1, k].copy()
                    as_given[:, k] = -as_given[::-1, k]
                if factors.any() or bent.any():
                    borders |= {(f, end.tobytes()): end + 0.0 for end in ends[:, k] if np.isfinite(end).any()}
            number = leaves.setdefault((f, ends.tobytes() + closed.tobytes()), len(asked))
            if number == len(asked):
                asked.append((f, ends, closed))
                given.append(as_given)
            places[id(condition)] = number
        known = np.zeros((len(self.sure) + 2, batch.rows), bool)  # the last two: what always holds, and what never does
        known[-2] = True
        sure: dict[tuple[str, tuple[float, ...]], int] = {}
        for leaf in self.sure:
            number = sure.setdefault((leaf.number, leaf.values), len(sure))
            known[number] = np.isin(batch.numbers[leaf.number], leaf.values)
            places[id(leaf)] = len(asked) + number
        border_form = np.array([f for f, _ in borders], np.int64)
        border = np.array(list(borders.values())).reshape(len(borders), batch.rows)
        low, high = (np.stack([ends[side] for _, ends, _ in asked]) for side in (0, 1))
        low_closed, high_closed = (np.stack([closed[side] for _, _, closed in asked]) for side in (0, 1))
        return Polynomials(
            np.stack(linear), np.stack(squares), border_form, border, np.array([f for f, _, _ in asked], np.int64),
            low, high, low_closed, high_closed, known, values.written(written, given),
            self._program(places, len(asked) + len(known)),
        )  # fmt: skip

    def _program(self, places: dict[int, int], count: int) -> np.ndarray:
        """Write how conditions are combined, as the kernel reads it; what stands twice in the tree is computed once.

        ``places`` has the numbers of conditions by their ids, ``count`` is that of all.
        """
        rows: dict[tuple[int, int, int], int] = {}
        always, never = count - 2, count - 1

        def combined(op: int, one: int, other: int) -> int:
            return rows.setdefault((op, min(one, other), max(one, other)), count + len(rows))

        def place(tree: Tree) -> int:
            if not isinstance(tree, (AllOf, AnyOf)):
                return places[id(tree)]
            if not tree.parts:
                return always if isinstance(tree, AllOf) else never
            first, *others = sorted({place(part) for part in tree.parts})
            for other in others:
                first = combined(ALL if isinstance(tree, AllOf) else ANY, first, other)
            return first

        whole = place(self.tree)
        if whole < count + len(rows) - 1 or not rows:  # the whole is the last
            rows[ALL, whole, whole] = count + len(rows)
        return np.array(list(rows), np.int64)


class _Terms(NamedTuple):
    """A form about points only, as it is written (see ``Written``), and its constant: what needs no value."""

    one: tuple[int, ...]
    other: tuple[int, ...]
    far: tuple[tuple[float, float], ...]
    factor: tuple[np.ndarray, ...]
    constant: np.ndarray

    @property
    def key(self) -> bytes:
        """Return what tells it from others."""
        return repr((self.one, self.other, self.far)).encode() + b"".join(each.tobytes() for each in self.factor)

    def times(self, sign: float) -> _Terms:
        """Return it with another sign."""
        return self._replace(factor=tuple(sign * each for each in self.factor))


class _Values(NamedTuple):
    """The values of all columns as ``centre + turn u`` of independent values ``u``.

    Rows are those of the batch or, where columns of several components are mixtures, one for each part of them.
    """

    batch: RowValues
    owner: np.ndarray
    weight: np.ndarray | None
    """What each part counts; None if rows are those that were given."""
    place: dict[Value, int]
    centre: np.ndarray
    turn: np.ndarray | None
    """By value, by ``u`` and by row; None if each value is one ``u``."""
    laws: Laws
    """Those of ``u``."""
    integrals: int
    counted: int
    """How many are points; they come first."""

    @property
    def all_counted(self) -> bool:
        """Return whether all values are points."""
        return self.counted == len(self.laws.start)

    def as_written(self, condition: Condition, polynomial: Polynomial) -> _Terms | None:
        """Return the terms of a condition if it is about points only, or about positions of parts."""
        rows = self.batch.rows
        turn = self.turn
        fixed = turn is not None and not any(turn[self.place[value]].any() for value in polynomial.values)
        if isinstance(condition, Apart) and fixed:
            ends = [
                [self.centre[v] for (name, _), v in self.place.items() if name == each]
                for each in (condition.one, condition.other)
            ]
            square = np.zeros(rows)
            for one, other in zip(*ends, strict=True):
                square = square + (one - other) ** 2
            return _Terms((), (), (), (), square)
        if any(self.place[value] >= self.counted for value in polynomial.values):
            return None
        far = dict(polynomial.centre)
        found = [(one, None, factor) for one, factor in polynomial.linear] + list(polynomial.squares)
        return _Terms(
            tuple(self.place[one] for one, _, _ in found),
            tuple(-1 if other is None else self.place[other] for _, other, _ in found),
            tuple((far.get(one, 0.0), 0.0 if other is None else far.get(other, 0.0)) for one, other, _ in found),
            tuple(np.ones(rows) * self.batch.array(factor) for _, _, factor in found),
            np.zeros(rows),
        )

    def written(self, forms: Sequence[_Terms | None], ends: Sequence[np.ndarray]) -> Written:
        """Collect the terms of all forms, and the ends of conditions as they are given."""
        rows, laws = self.batch.rows, self.laws
        start, columns = [0], []
        slack = np.zeros((len(forms), rows))
        for f, terms in enumerate(forms):
            found = [] if terms is None else list(zip(terms.one, terms.other, terms.far, terms.factor, strict=True))
            columns += found
            start.append(len(columns))
            if found and not self.all_counted:
                slack[f] = -1.0
            for one, other, far, factor in found if self.all_counted else []:
                size = np.abs(factor)
                for v, away in ((one, far[0]), (other, far[1])):
                    if v >= 0:
                        first, last = laws.start[v, :-1], laws.start[v, 1:]
                        size = size * (_most(np.abs(laws.given), first, last) + abs(away))
                slack[f] += _ROUNDING * size
        low, high = (np.stack([each[side] for each in ends]) for side in (0, 1))
        factors = np.stack([factor for *_, factor in columns]) if columns else np.zeros((0, rows))
        return Written(
            np.array(start, np.int64), np.array([one for one, *_ in columns], np.int64),
            np.array([other for _, other, *_ in columns], np.int64),
            np.array([far for _, _, far, _ in columns], np.float64).reshape(-1, 2),
            factors, slack, low, high, self.counted,
        )  # fmt: skip

    def polynomial(self, condition: Condition) -> Polynomial:
        """Return a condition as a polynomial; a distance as its square, with the range of the distance."""
        if isinstance(condition, Polynomial):
            return condition
        one, other = ([value for value in self.place if value[0] == name] for name in (condition.one, condition.other))
        if len(one) != len(other):
            raise HaplyError(
                f"The condition `{condition.text}` compares points that differ in dimension",
                expected=f"dim = {len(one)}",
                found=f"{len(other)}",
            )
        squares = [term for a, b in zip(one, other, strict=True) for term in ((a, a, 1.0), (a, b, -2.0), (b, b, 1.0))]
        limit, within = condition.limit, not condition.beyond
        return Polynomial((), tuple(squares), (Range(-math.inf, limit) if within else Range(limit, math.inf, False),))

    def form(self, condition: Polynomial) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a condition's factors of ``u``, its factors of products, and its constant."""
        batch, n = self.batch, len(self.centre)
        centre = self.centre.copy()
        for value, far in condition.centre:
            centre[self.place[value]] -= far
        linear, squares = np.zeros((n, batch.rows)), np.zeros((n, n, batch.rows))
        exact = centre.astype(np.longdouble)
        constant = np.zeros(batch.rows, np.longdouble)
        for value, factor in condition.linear:
            v, number = self.place[value], batch.array(factor)
            linear[v] += number
            constant += number * exact[v]
        for one, two, factor in condition.squares:
            v, w = sorted((self.place[one], self.place[two]))
            number = batch.array(factor)
            squares[v, w] += number
            linear[v] += number * centre[w]
            linear[w] += number * centre[v]
            constant += number * exact[v] * exact[w]
        if self.turn is not None:
            linear = np.einsum("vr,vur->ur", linear, self.turn)
            squares = np.einsum("vwr,vur,wtr->utr", squares, self.turn, self.turn)
            squares = np.triu(np.moveaxis(squares, 2, 0)) + np.triu(np.moveaxis(squares, 2, 0).swapaxes(1, 2), 1)
            squares = np.ascontiguousarray(np.moveaxis(squares, 0, 2))
        return linear, squares, constant


def _independent(
    kinds: Sequence[tuple[str, type[Model]]], conditions: Sequence[Condition], batch: RowValues
) -> _Values:
    """Write the values of columns as sums of independent ones, points first and laws of many components last."""
    ends = {name for one in conditions if isinstance(one, Apart) for name in (one.one, one.other)}
    wide = [name for name, kind in kinds if name in ends or issubclass(kind, _WIDE)]
    flat = sorted((name for name, _ in kinds if name not in wide), key=lambda name: _rank(dict(kinds)[name]))
    owner, weight, normals = np.arange(batch.rows), None, None
    if wide:
        normals = Coordinates(wide, batch)
        owner, weight = normals.owner, normals.weight
        own = {name: batch.values[name] for name in flat}
        batch = RowValues(own, batch.numbers, batch.rows).take(owner)
    models: dict[str, Any] = {
        name: model if len(model) == batch.rows else model.take(np.zeros(batch.rows, np.int64))
        for name, model in ((name, batch.values[name]) for name in flat)
    }
    counted = sum(issubclass(dict(kinds)[name], _COUNTED) for name in flat)
    plain = all(issubclass(kind, _COUNTED) for _, kind in kinds)
    centres = [_centre(models[name], v < counted, plain) for v, name in enumerate(flat)]
    place: dict[Value, int] = {(name, None): v for v, name in enumerate(flat)}
    roots: list[tuple[int, np.ndarray]] = []
    if normals is not None:
        asked = {value for one in conditions if isinstance(one, Polynomial) for value in one.values}
        for name, (at, cov) in zip(wide, normals.covs, strict=True):
            used = [k for k in range(normals.sizes[name]) if name in ends or (name, k) in asked]
            normals.place(conditions[0], (name, max((i or 0 for n, i in asked if n == name), default=0)))
            here = len(place)
            place |= {(name, k): here + v for v, k in enumerate(used)}
            centres += [normals.means[:, at + k] for k in used]
            if issubclass(dict(kinds)[name], _WIDE):
                mine = np.broadcast_to(cov[:, used][:, :, used], (batch.rows, len(used), len(used)))
                roots.append((here, root_rows(solid(mine))))
    count = len(flat) + sum(root.shape[1] for _, root in roots)
    turn = None if normals is None else np.zeros((len(place), count, batch.rows))
    if turn is not None:
        # points, normals, and the laws that are left
        u = counted
        for at, root in roots:
            size = root.shape[1]
            turn[at : at + size, u : u + size] = np.moveaxis(root, 0, 2)
            u += size
        for v in range(len(flat)):
            turn[v, v if v < counted else u + v - counted] = 1.0
    laws = _laws([models[name] for name in flat], centres[: len(flat)], counted, count - len(flat), batch.rows)
    return _Values(batch, owner, weight, place, np.stack(centres), turn, laws, max(0, count - counted - 1), counted)


def _centre(model: Any, counted: bool, plain: bool) -> np.ndarray:
    """Choose a centre near the middle of a value, from which sums of large numbers lose no digits.

    Points are seen as they are, or from the first of them: their differences are as exact as they are.
    """
    if not counted:
        return np.asarray(model.mean())
    parts = model.components
    return np.zeros(len(model)) if plain else parts.low[parts.start[:-1]]


def _square(limit: np.ndarray, closed: bool) -> np.ndarray:
    """Return the largest square of a distance whose root is at most a limit, or below it; none is below 0."""
    limit = limit if closed else np.nextafter(limit, -math.inf)
    return np.where(limit < 0.0, -math.inf, squared_limits(np.abs(limit)))


def _most(sizes: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return the largest of the sizes from ``first`` to ``last``, for each row; all of these are next to each other."""
    return np.maximum.reduceat(sizes[: last[-1]], first) if len(first) else np.zeros(0)


def _rank(kind: type[Model]) -> int:
    """Rank laws: points come first, laws of many components last."""
    return 0 if issubclass(kind, _COUNTED) else 2 if issubclass(kind, _LAST) else 1


def _laws(models: list[Any], centres: Sequence[np.ndarray], counted: int, normals: int, rows: int) -> Laws:
    """Collect the components of all values relative to the centres; standard normals follow the enumerated points."""
    starts, columns = [], []
    begun = 0
    standard = [Gaussian(np.zeros(rows), np.ones(rows))] * normals
    order = [*models[:counted], *standard, *models[counted:]]
    middles = [*centres[:counted], *([np.zeros(rows)] * normals), *centres[counted:]]
    for centre, model in zip(middles, order, strict=True):
        parts = model.components
        away = np.repeat(centre, np.diff(parts.start))
        starts.append(parts.start + begun)
        columns.append(
            (parts.weight, parts.kind, parts.low - away, parts.high - away, parts.mean - away, parts.sd, parts.low)
        )
        begun += len(parts.weight)
    merged = [np.ascontiguousarray(np.concatenate(column)) for column in zip(*columns, strict=True)]
    return Laws(np.stack(starts).astype(np.int64), *merged)
