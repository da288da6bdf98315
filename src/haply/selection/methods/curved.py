"""Several conditions on normals that share columns, some of them with squares, products or distances.

Each becomes a polynomial of the same independent standard normals, relative to the means or to its own centre.
``numerics.curved`` then computes how likely all are in their ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.numerics.jit import solid
from haply.numerics.multivariate.curved import curved_rows
from haply.numerics.multivariate.quadratic import root_rows
from haply.numerics.multivariate.star import star_rows
from haply.probability.multivariate import MOST_POINTS, TOLERANCE, squared_limits
from haply.pruning.bounds.region import Bounds
from haply.selection.conditions import Apart, Condition, Polynomial, Prepared, RowValues, ends_of, solved
from haply.selection.normals import Coordinates, fewer_dimensions
from haply.selection.ranges import Ends, disjoint, reachable

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
    """Polynomials and distances of normals, each in a union of ranges, all together.

    Bounds look at each condition by itself; what all together take is made only for rows whose value is asked for.
    """

    def __init__(
        self,
        conditions: Sequence[Condition],
        names: Sequence[str],
        alone: Sequence[Callable[[RowValues], Prepared]],
        batch: RowValues,
    ) -> None:
        self.conditions, self.names, self.alone, self.batch = conditions, names, alone, batch

    def take(self, rows: np.ndarray) -> Curved:
        """Return some of the rows."""
        return Curved(self.conditions, self.names, self.alone, self.batch.take(rows))

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        """Bound by single conditions: above by the least likely, below by what is left if no two fail together."""
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

    def exact(self) -> tuple[np.ndarray, bool]:
        """Compute the probabilities, which are never counts."""
        normals = Coordinates(self.names, self.batch)
        chance, _ = self.of_parts(normals)
        if len(chance) == self.batch.rows:
            return chance, False
        return np.minimum(np.bincount(normals.owner, normals.weight * chance, self.batch.rows), 1.0), False

    def of_parts(self, normals: Coordinates) -> tuple[np.ndarray, np.ndarray]:
        """Compute the probability of each part of the mixtures, and its error."""
        count, size = normals.means.shape
        roots = np.zeros((count, size, size))
        for at, cov in normals.covs:
            here = slice(at, at + cov.shape[-1])
            roots[:, here, here] = root_rows(solid(cov))
        asked = [_asked(condition, normals, self.batch) for condition in self.conditions]
        middle = middle_of(self.conditions)
        chance, miss = np.empty(count), np.full(count, math.inf)
        if middle is not None and 2 <= normals.sizes[middle] <= 3:
            chance, miss = _around(middle, self.conditions, normals, roots, self.batch)
        left = np.flatnonzero(~(miss <= TOLERANCE))
        if len(left):
            chance[left], miss[left] = _by_directions(asked, normals, roots, left)
        return chance, miss


def _by_directions(
    asked: Sequence[_Asked], normals: Coordinates, roots: np.ndarray, parts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the probability of some of the parts by ``curved_rows``."""
    owner, means, roots = normals.owner[parts], normals.means[parts], roots[parts]
    count, size = means.shape
    bent, slant = np.empty((count, len(asked), size, size)), np.empty((count, len(asked), size))
    first = np.cumsum([0, *(len(one.ends) for one in asked)])
    lows, highs = np.empty((2, count, first[-1]))
    for k, one in enumerate(asked):
        matrix = one.matrix[owner] if one.matrix.ndim == 3 else one.matrix
        line = one.line[owner] if one.line.ndim == 2 else one.line
        place = (means - one.centre) @ one.directions.T
        along = one.directions @ roots
        half = (matrix @ place[:, :, None])[:, :, 0]
        constant = (place * (half + line)).sum(axis=1)
        turned = np.swapaxes(along, 1, 2)
        bent[:, k] = turned @ matrix @ along
        slant[:, k] = (turned @ (2.0 * half + line)[:, :, None])[:, :, 0]
        varies = (along != 0.0).any(axis=(1, 2))
        for e, ends in enumerate(one.ends, first[k]):
            low, high = (end if len(end) == 1 else end[owner] for end in ends)
            # what varies is 0 with no probability; squares that cancel would say otherwise
            if one.never_negative:
                high = np.where(varies & (high <= 0.0), -math.inf, high)
            if one.never_positive:
                low = np.where(varies & (low >= 0.0), math.inf, low)
            lows[:, e], highs[:, e] = low - constant, high - constant
    return curved_rows(solid(bent), solid(slant), solid(lows), solid(highs), first, TOLERANCE, MOST_POINTS)


def middle_of(conditions: Sequence[Condition]) -> str | None:
    """Return the column from which all conditions are distances to different columns; None if they are not."""
    ends = [{one.one, one.other} for one in conditions if isinstance(one, Apart)]
    if len(ends) < 2 or len(ends) < len(conditions):
        return None
    shared = sorted(set.intersection(*ends))
    if len(shared) != 1 or len(set.union(*ends)) != len(ends) + 1:
        return None
    return shared[0]


def _around(
    middle: str, conditions: Sequence[Condition], normals: Coordinates, roots: np.ndarray, batch: RowValues
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the probabilities of distances from one column, and their errors: see ``star_rows``."""
    rows, dim = len(normals.means), normals.sizes[middle]
    places = {name: slice(at, at + dim) for name, at in normals.at.items()}
    covs = {at: np.broadcast_to(cov, (rows, dim, dim)) for at, cov in normals.covs}
    apart = [one for one in conditions if isinstance(one, Apart)]
    others = [one.other if one.one == middle else one.one for one in apart]
    limits = np.stack([np.broadcast_to(batch.array(one.limit), (batch.rows,)) for one in apart], axis=1)[normals.owner]
    return star_rows(
        normals.means[:, places[middle]],
        roots[:, places[middle], places[middle]],
        np.stack([normals.means[:, places[other]] for other in others], axis=1),
        np.stack([covs[normals.at[other]] for other in others], axis=1),
        np.where(limits < 0.0, -1.0, limits * limits),
        np.array([one.beyond for one in apart]),
    )


def _asked(condition: Condition, normals: Coordinates, batch: RowValues) -> _Asked:
    if isinstance(condition, Apart):
        return _distance(condition, normals, batch)
    return _polynomial(condition, normals, batch)


def _polynomial(condition: Polynomial, normals: Coordinates, batch: RowValues) -> _Asked:
    """Write a polynomial in the directions in which it changes; in its coordinates, where columns are factors."""
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
        ends = solved(condition, bent[0], slanted, batch)
        return _Asked(directions, np.zeros((1, 1)), np.ones(1), centre, ends)
    if slanted.any():
        return _Asked(directions, bent, slanted, centre, ends)
    curves = np.linalg.eigvalsh(bent)
    ends = [reachable(*each, curves) for each in ends]
    return _Asked(directions, bent, slanted, centre, ends, bool((curves >= 0.0).all()), bool((curves <= 0.0).all()))


def _distance(condition: Apart, normals: Coordinates, batch: RowValues) -> _Asked:
    """Write a distance as its square, below the square of its limit or not."""
    dim, other = normals.sizes[condition.one], normals.sizes[condition.other]
    if dim != other:
        raise HaplyError(
            f"The condition `{condition.text}` compares points that differ in dimension",
            expected=f"dim = {dim}",
            found=f"{other}",
        )
    whole = np.eye(normals.size)
    one, two = (whole[normals.at[name] : normals.at[name] + dim] for name in (condition.one, condition.other))
    limit = batch.array(condition.limit)
    limit = limit if condition.closed else np.nextafter(limit, -math.inf)
    if dim == 1:  # a difference without its sign
        beside = np.where(limit < 0.0, -math.inf, np.nextafter(limit, math.inf))
        never = np.full(1, math.inf)
        inside: Ends = [(np.where(limit < 0.0, math.inf, -limit), limit)]
        outside: Ends = disjoint([(-never, -beside), (beside, never)])
        return _Asked(
            one - two, np.zeros((1, 1)), np.ones(1), np.zeros(normals.size), outside if condition.beyond else inside
        )
    square = np.where(limit < 0.0, -math.inf, squared_limits(np.abs(limit)))
    never = np.full(1, math.inf)
    far = np.where(limit < 0.0, -math.inf, np.nextafter(square, math.inf))
    ends: Ends = [(far, never)] if condition.beyond else [(-never, square)]
    return _Asked(one - two, np.eye(dim), np.zeros(dim), np.zeros(normals.size), ends, never_negative=True)
