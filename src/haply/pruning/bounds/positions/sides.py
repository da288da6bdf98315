"""The rows of one side: their centres and spreads, packed for the walk over pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from haply.models import Sky, SkyEllipse
from haply.numerics.jit import bare, bare_inner, solid
from haply.numerics.multivariate.disc import widest
from haply.numerics.multivariate.sphere import lifted, variances
from haply.probability.multivariate import Parts, parts
from haply.pruning.bounds.positions.rules import Limits
from haply.pruning.ownership import Places

_COARSER = 4.0
"""Rows whose reach differs by more than this factor are not sorted into the same cells."""
_SAMPLED = 1 << 10
FIRST_ROOM = 1 << 12


class PositionRows(NamedTuple):
    """One side, in some order.

    A row that is one normal has a line in ``near``: mean, upper triangle of the covariance, reach. With mixtures that
    line is centre and reach, and the ``many`` parts from ``first`` on have lines in ``packed``. ``label`` is the number
    of a row in the result.
    """

    near: np.ndarray
    first: np.ndarray
    many: np.ndarray
    weight: np.ndarray
    packed: np.ndarray
    begins: np.ndarray
    begins_here: np.ndarray
    group: np.ndarray
    label: np.ndarray


class PositionPairs(NamedTuple):
    """Room for pairs: row numbers, probabilities (NaN if not computed), and the deciding rule."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    code: np.ndarray


@bare_inner
def _largest_variance(cov):
    """Upper bound on the largest eigenvalue of a covariance: exact in two dimensions, and in three for rank two."""
    dim = len(cov)
    if dim == 2:
        return widest(cov[0, 0], 0.5 * (cov[0, 1] + cov[1, 0]), cov[1, 1]) * (1.0 + 1e-9)
    norm = 0.0
    for c in range(dim):
        for d in range(dim):
            norm += cov[c, d] * cov[c, d]
    norm = math.sqrt(norm)
    if dim == 3:
        a, b, c = cov[0, 0], cov[1, 1], cov[2, 2]
        d, e, f = cov[0, 1], cov[0, 2], cov[1, 2]
        trace = a + b + c
        p, q, r = b * c - f * f, a * c - e * e, a * b - d * d
        det = a * p + d * (e * f - c * d) + e * (d * f - b * e)
        # the largest times the rest of the trace is the sum of minors minus the product of the two others, which is
        # at most three determinants over the trace
        inside = 0.25 * trace * trace - (p + q + r) + 3.0 * max(0.0, det) / trace + 1e-12 * trace * trace
        if inside >= 0.0:
            norm = min(norm, 0.5 * trace + math.sqrt(inside))
    return norm * (1.0 + 1e-9)


@bare
def _outline(start, weight, mean, cov, limit, mixed, near, packed, usable):
    """Fill the lines of ``PositionRows``, and flag the rows that may match; return the largest reach of these.

    The reach of a part is ``limit.out`` times a bound on its largest standard deviation. Of several parts, some pair
    must have the wanted probability by itself, so a row reaches as far as the farthest of its parts.
    """
    dim = mean.shape[1]
    each = 1 if len(cov) > 1 else 0
    out, farthest, last = max(0.0, limit.out), 0.0, near.shape[1] - 1
    for i in range(len(start) - 1):
        begin, end = start[i], start[i + 1]
        if mixed:
            for c in range(dim):
                least = most = mean[begin, c]
                for k in range(begin + 1, end):
                    least, most = min(least, mean[k, c]), max(most, mean[k, c])
                near[i, c] = least if least == most else least + 0.5 * (most - least)
        own, chance = 0.0, 0.0
        for k in range(begin, end):
            _fill(mean[k], cov[each * k], packed[k] if mixed else near[i])
            if not weight[k] > 0.0:
                continue
            variance = 0.0
            for c in range(dim):
                variance = max(variance, cov[each * k, c, c])
            if variance <= limit.width:
                chance += weight[k]
            away = 0.0
            if mixed:
                for c in range(dim):
                    away += (mean[k, c] - near[i, c]) ** 2
                away = math.sqrt(away)
            if out > 0.0 and variance > 0.0:
                away += out * math.sqrt(_largest_variance(cov[each * k]))
            own = max(own, away)
        # parts that are too wide count too if another is not: some part must have the wanted probability by itself
        near[i, last], usable[i] = own, chance > 0.0
        if usable[i]:
            farthest = max(farthest, own)
    return farthest


@bare
def _outline_sky(ra, dec, one, other, third, is_ellipse, limit, near, usable):
    """Do as ``_outline`` for positions on the sky; no covariance is stored except the one in the line."""
    out, farthest = max(0.0, limit.out), 0.0
    for i in range(len(ra)):
        a, d = math.radians(ra[i]), math.radians(dec[i])
        east, both, north = variances(one[i], other[i], third[i], is_ellipse)
        line = near[i]
        line[0], line[1], line[2], line[3], line[4], line[5], line[6], line[7], line[8] = lifted(
            math.cos(a), math.sin(a), math.cos(d), math.sin(d), east, both, north
        )
        line[9] = out * math.sqrt(widest(east, both, north) * (1.0 + 1e-9)) if out > 0.0 else 0.0
        usable[i] = max(line[3], line[6], line[8]) <= limit.width
        if usable[i]:
            farthest = max(farthest, line[9])
    return farthest


@bare_inner
def _fill(mean, cov, line):
    """Write the mean and the upper triangle of the covariance one after another."""
    at = len(mean)
    for c in range(len(mean)):
        line[c] = mean[c]
        for d in range(c, len(mean)):
            line[at] = 0.5 * (cov[c, d] + cov[d, c])
            at += 1


class PositionSide:
    """One side before it is sorted: lines are in the order of the rows, since lines are gathered faster than parts."""

    def __init__(self, rows: Parts | Sky, limit: Limits, mixed: bool, places: Places | None = None) -> None:
        self.places, self.mixed = places, mixed
        if isinstance(rows, Sky) and not mixed:
            self.dim, self.start, self.weight = 3, np.empty(0, np.int64), np.empty(0)
            self._make_room(len(rows), 0)
            ra, dec, one, other, third = (solid(column) for column in rows.columns)
            is_ellipse = isinstance(rows, SkyEllipse)
            self.farthest = _outline_sky(ra, dec, one, other, third, is_ellipse, limit, self.near, self.usable)
            return
        made = parts(rows) if isinstance(rows, Sky) else rows
        assert made is not None
        self.dim = made.mean.shape[1]
        self.start, self.weight = np.require(made.start, np.int64, ["C", "W"]), solid(made.weight)
        self._make_room(len(made.start) - 1, len(self.weight))
        mean, cov = solid(made.mean), solid(made.cov)
        self.farthest = _outline(self.start, self.weight, mean, cov, limit, mixed, self.near, self.packed, self.usable)

    def _make_room(self, rows: int, normals: int) -> None:
        own = self.dim * (self.dim + 1) // 2
        self.near = np.empty((rows, self.dim + 1 + (0 if self.mixed else own)))
        self.packed = np.empty((normals if self.mixed else 0, self.dim + own))
        self.usable = np.empty(rows, np.bool_)

    def classes(self, radius: float) -> Iterator[np.ndarray]:
        """Yield usable rows in classes of their reach: up to the usual reach, then up to multiples of it."""
        rows = np.arange(len(self.usable)) if self.usable.all() else np.flatnonzero(self.usable)
        if not len(rows):
            return
        some = rows[:: max(1, len(rows) // _SAMPLED)]
        usual = float(np.median(self.near[some, -1])) if self.farthest > radius else 0.0
        level, least = max(radius, usual), -1.0
        if self.farthest <= _COARSER * level:
            yield rows
            return
        reach = self.near[rows, -1]
        while least < self.farthest:
            level = self.farthest if _COARSER * level >= self.farthest else level
            chosen = rows[(reach > least) & (reach <= level)]
            if len(chosen):
                yield chosen
            least, level = level, _COARSER * level if level > 0.0 else self.farthest

    def take(self, chosen: np.ndarray, room: np.ndarray | None = None) -> PositionRows:
        """Return the chosen rows in this order, with their lines in ``room``, if it is given."""
        near = np.empty((len(chosen), self.near.shape[1])) if room is None else room[: len(chosen)]
        np.take(self.near, chosen, axis=0, out=near, mode="clip")  # all exist; unchecked, take copies line by line
        first = self.start[chosen] if self.mixed else np.zeros(0, np.int64)
        count = self.start[chosen + 1] - first if self.mixed else first
        begins, begins_here, group = np.zeros(0), np.zeros(0, np.bool_), np.zeros(0)
        if self.places is not None:
            begins, begins_here = solid(self.places.begins[chosen]), self.places.begins_here[chosen]
            group = group if self.places.group is None else solid(self.places.group[chosen])
        return PositionRows(near, first, count, self.weight, self.packed, begins, begins_here, group, chosen)
