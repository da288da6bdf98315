"""Several conditions on normals that share columns, some of them with squares, products or distances.

Each becomes a polynomial of the same independent standard normals, seen from the means, or from its own centre where it
has one; how likely all lie in their ranges together is then a matter of ``numerics.curved``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.joins.conditions import Apart, Batch, Condition, Polynomial, Prepared, ends_of, is_smooth
from haply.joins.normals import Coordinates, fewer_dimensions, take_parts
from haply.joins.ranges import Ends, disjoint, reachable, roots
from haply.numerics.curved import curved_rows
from haply.numerics.jit import solid
from haply.numerics.quadratic import root_rows
from haply.numerics.star import star_rows
from haply.probability.multivariate import MOST_POINTS, TOLERANCE
from haply.pruning.region import Bounds

SINGLY = 100
"""The code of the bound by single conditions: all together are no likelier than the least likely one."""


class _Asked(NamedTuple):
    """A condition as ``y' matrix y + line y`` in ranges, with ``y = directions (x - centre)``.

    The matrix and the line may have one for each row.
    """

    directions: np.ndarray
    matrix: np.ndarray
    line: np.ndarray
    centre: np.ndarray
    ends: Ends
    never_negative: bool = False
    never_positive: bool = False


class Curved:
    """Polynomials and distances of normals, each in a union of ranges, all together."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        names: Sequence[str],
        alone: Sequence[Callable[[Batch], Prepared]],
        batch: Batch,
    ) -> None:
        normals = Coordinates(names, batch)
        count, size = normals.means.shape
        factors = np.zeros((count, size, size))
        for at, cov in normals.covs:
            here = slice(at, at + cov.shape[-1])
            factors[:, here, here] = root_rows(solid(cov))
        asked = [_asked(condition, normals, batch) for condition in conditions]
        self.batch, self.alone = batch, tuple(alone)
        self.star = _Star.of(conditions, normals, factors, batch)
        self.start, self.weight = normals.start, normals.weight
        self.bent = np.empty((count, len(asked), size, size))
        self.slant = np.empty((count, len(asked), size))
        self.first = np.cumsum([0, *(len(one.ends) for one in asked)])
        self.low, self.high = np.empty((2, count, self.first[-1]))
        for k, one in enumerate(asked):
            matrix = one.matrix[normals.owner] if one.matrix.ndim == 3 else one.matrix
            line = one.line[normals.owner] if one.line.ndim == 2 else one.line
            place = (normals.means - one.centre) @ one.directions.T
            along = one.directions @ factors
            half = (matrix @ place[:, :, None])[:, :, 0]
            constant = (place * (half + line)).sum(axis=1)
            turned = np.swapaxes(along, 1, 2)
            self.bent[:, k] = turned @ matrix @ along
            self.slant[:, k] = (turned @ (2.0 * half + line)[:, :, None])[:, :, 0]
            varies = (along != 0.0).any(axis=(1, 2))
            for e, (low, high) in enumerate(one.ends, self.first[k]):
                low, high = (np.broadcast_to(end, (batch.rows,))[normals.owner] for end in (low, high))
                # what varies is 0 with no probability; squares that cancel would say otherwise
                if one.never_negative:
                    high = np.where(varies & (high <= 0.0), -math.inf, high)
                if one.never_positive:
                    low = np.where(varies & (low >= 0.0), math.inf, low)
                self.low[:, e], self.high[:, e] = low - constant, high - constant

    def take(self, rows: np.ndarray) -> Curved:
        """Some of the rows."""
        taken = object.__new__(Curved)
        taken.batch, taken.alone, taken.first = self.batch.take(rows), self.alone, self.first
        taken.start, chosen = take_parts(self.start, rows)
        taken.weight, taken.bent, taken.slant = self.weight[chosen], self.bent[chosen], self.slant[chosen]
        taken.low, taken.high = self.low[chosen], self.high[chosen]
        taken.star = None if self.star is None else self.star.take(chosen)
        return taken

    def bounds(self, enough_below: Any, enough_from: Any) -> Bounds | None:
        """By single conditions: no likelier than the least likely, nor unlikelier than what is left when each takes
        away all that it may."""
        lower, upper = np.ones(self.batch.rows), np.ones(self.batch.rows)
        each_from = 1.0 - (1.0 - np.asarray(enough_from, np.float64)) / len(self.alone)
        for prepare in self.alone:
            one = prepare(self.batch)
            found = one.bounds(enough_below, each_from)
            if found is None:
                value, _ = one.exact()
                found = Bounds(value, value, np.zeros(self.batch.rows, np.int8))
            lower -= 1.0 - np.clip(found.lower, 0.0, 1.0)
            upper = np.minimum(upper, found.upper)
        return Bounds(np.maximum(lower, 0.0), upper, np.full(self.batch.rows, SINGLY, np.int8))

    def _by_directions(self, rows: Any) -> np.ndarray:
        low, high = solid(self.low[rows]), solid(self.high[rows])
        return curved_rows(
            solid(self.bent[rows]), solid(self.slant[rows]), low, high, self.first, TOLERANCE, MOST_POINTS
        )[0]

    def exact(self) -> tuple[np.ndarray, bool]:
        """The probabilities, which are never counts."""
        rows = len(self.start) - 1
        if self.star is None:
            chance = self._by_directions(slice(None))
        else:
            chance, miss = self.star.chances()
            left = np.flatnonzero(~(miss <= TOLERANCE))
            if len(left):
                chance[left] = self._by_directions(left)
        if len(chance) == rows:
            return chance, False
        owner = np.repeat(np.arange(rows), np.diff(self.start))
        return np.minimum(np.bincount(owner, self.weight * chance, rows), 1.0), False


def middle_of(conditions: Sequence[Condition]) -> str | None:
    """The column from which all are distances, to others that are different, if that is what is asked."""
    ends = [{one.one, one.other} for one in conditions if isinstance(one, Apart)]
    if len(ends) < 2 or len(ends) < len(conditions):
        return None
    shared = sorted(set.intersection(*ends))
    if len(shared) != 1 or len(set.union(*ends)) != len(ends) + 1:
        return None
    return shared[0]


class _Star(NamedTuple):
    """Points that are to be near one in the middle, or not: see ``star_rows``."""

    middle: np.ndarray
    root: np.ndarray
    means: np.ndarray
    covs: np.ndarray
    squares: np.ndarray
    beyond: np.ndarray

    @classmethod
    def of(
        cls, conditions: Sequence[Condition], normals: Coordinates, factors: np.ndarray, batch: Batch
    ) -> _Star | None:
        """None if the conditions are something else, or not about a plane or the sky."""
        name = middle_of(conditions)
        if name is None or not 2 <= normals.sizes[name] <= 3 or len(set(normals.sizes.values())) > 1:
            return None
        rows, dim = len(normals.means), normals.sizes[name]
        covs = {at: np.broadcast_to(cov, (rows, dim, dim)) for at, cov in normals.covs}
        places = {other: slice(at, at + dim) for other, at in normals.at.items()}
        apart = [one for one in conditions if isinstance(one, Apart)]
        others = [one.other if one.one == name else one.one for one in apart]
        limits = [np.broadcast_to(batch.number(one.limit), (batch.rows,))[normals.owner] for one in apart]
        here = places[name]
        return cls(
            normals.means[:, here],
            factors[:, here, here],
            np.stack([normals.means[:, places[other]] for other in others], axis=1),
            np.stack([covs[normals.at[other]] for other in others], axis=1),
            np.stack([np.where(limit < 0.0, -1.0, limit * limit) for limit in limits], axis=1),
            np.array([one.beyond for one in apart]),
        )

    def take(self, rows: np.ndarray) -> _Star:
        of_rows = {name: getattr(self, name)[rows] for name in self._fields if name != "beyond"}
        return self._replace(**of_rows)

    def chances(self) -> tuple[np.ndarray, np.ndarray]:
        return star_rows(*self)


def _asked(condition: Condition, normals: Coordinates, batch: Batch) -> _Asked:
    if isinstance(condition, Apart):
        return _distance(condition, normals, batch)
    return _polynomial(condition, normals, batch)


def _polynomial(condition: Polynomial, normals: Coordinates, batch: Batch) -> _Asked:
    """A polynomial in as few directions as it changes in; in its coordinates, where columns are factors."""
    size = normals.size
    centre = np.zeros(size)
    for value, place in condition.centre:
        centre[normals.place(condition, value)] = place
    matrix, line = normals.form(condition, batch)
    ends = ends_of(condition, batch)
    if matrix.ndim == 3:
        used = sorted({normals.place(condition, value) for value in condition.values})
        return _Asked(np.eye(size)[used], matrix[:, used][:, :, used], line[:, used], centre, ends)
    if not matrix.any():
        return _Asked(line[None], np.zeros((1, 1)), np.ones(1), centre, ends)
    directions, bent, slanted = fewer_dimensions(matrix, line)
    if len(directions) == 1:  # its roots say the same, and say it with all digits
        smooth = is_smooth(condition, batch)
        pieces: Ends = []
        for each in condition.ranges:
            low, high = (np.atleast_1d(np.asarray(batch.number(end), np.float64)) for end in (each.low, each.high))
            pieces += roots(bent[0], slanted, low, high, each.low_closed | smooth, each.high_closed | smooth)
        return _Asked(directions, np.zeros((1, 1)), np.ones(1), centre, disjoint(pieces, smooth))
    if slanted.any():
        return _Asked(directions, bent, slanted, centre, ends)
    curves = np.linalg.eigvalsh(bent)
    ends = [reachable(*each, curves) for each in ends]
    return _Asked(directions, bent, slanted, centre, ends, bool((curves >= 0.0).all()), bool((curves <= 0.0).all()))


def _distance(condition: Apart, normals: Coordinates, batch: Batch) -> _Asked:
    """The square of a distance, below that of its limit or not."""
    dim, other = normals.sizes[condition.one], normals.sizes[condition.other]
    if dim != other:
        raise HaplyError(
            f"The condition `{condition.text}` compares points that differ in dimension",
            expected=f"dim = {dim}",
            found=f"{other}",
        )
    whole = np.eye(normals.size)
    one, two = (whole[normals.at[name] : normals.at[name] + dim] for name in (condition.one, condition.other))
    limit = np.atleast_1d(np.asarray(batch.number(condition.limit), np.float64))
    limit = limit if condition.closed else np.nextafter(limit, -math.inf)
    if dim == 1:  # a difference without its sign
        beside = np.where(limit < 0.0, -math.inf, np.nextafter(limit, math.inf))
        never = np.full(1, math.inf)
        inside: Ends = [(np.where(limit < 0.0, math.inf, -limit), limit)]
        outside: Ends = disjoint([(-never, -beside), (beside, never)])
        return _Asked(
            one - two, np.zeros((1, 1)), np.ones(1), np.zeros(normals.size), outside if condition.beyond else inside
        )
    square = np.where(limit < 0.0, -math.inf, limit * limit)
    never = np.full(1, math.inf)
    far = np.where(limit < 0.0, -math.inf, np.nextafter(square, math.inf))
    ends: Ends = [(far, never)] if condition.beyond else [(-never, square)]
    return _Asked(one - two, np.eye(dim), np.zeros(dim), np.zeros(normals.size), ends, never_negative=True)
