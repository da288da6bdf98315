"""Find pairs of uncertain positions that are likely near: Gaussians, mixtures of them, and points, in any dimension.

A ball is convex, so a Gaussian has at least half of its mass outside unless its mean is inside; and a share below one
half only reaches as far out as that share's quantile, times its largest standard deviation. This limits how far apart
the centres of a pair may be. Rows are sorted by cells of that width. The neighbours of a cell are then a few runs of
the other side's sorted rows, and in a walk through one side every run only moves forward: this needs no table and no
search.

Pairs near enough are tested by bounds of constant cost, and computed if these leave them open.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from haply.models import Sky, SkyEllipse
from haply.numerics.jit import bare, bare_inner, solid
from haply.numerics.multivariate.disc import (
    FLAT_ENOUGH,
    ball_chance,
    disc_chance,
    open_disc,
    plane_of,
    room_for,
    widest,
)
from haply.numerics.multivariate.sphere import ARCSECONDS, lifted, variances
from haply.numerics.normal import normal_cdf, normal_quantile
from haply.numerics.order import ordered
from haply.probability.multivariate import Parts, parts
from haply.pruning.best import MARGIN, Best, hold
from haply.pruning.bounds.discs import along_at_most, disc_at_most, half_space_at_most
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cascade import BEATEN, Counters
from haply.pruning.ownership import Places, owns
from haply.pruning.threshold import Negligible, Threshold

REACH, SLAB, SPREAD, INSIDE = 1, 2, 3, 4
POSITION_RULES = {REACH: "reach", SLAB: "slab", SPREAD: "spread", INSIDE: "inside"}
"""Names of the rules, by their code: 0 is the exact value."""
REJECTING = tuple(POSITION_RULES[rule] for rule in (REACH, SLAB, SPREAD))
ACCEPTING = (POSITION_RULES[INSIDE],)

SLACK = 1e-13
"""Rounding, as a share of the lengths that are compared."""
_NEGLIGIBLE = 8.4
"""The probability beyond this many standard deviations is below 1e-16."""
_MOST_AXES, _CELLS_OF_AXIS, _KEYS = 3, 1 << 20, 1 << 62
_COARSER = 4.0
"""Rows whose reach differs by more than this factor are not sorted into the same cells."""
_CANDIDATES, _EVALUATED, _BEATEN, _COUNTS = 5, 6, 7, 8
_NEEDLESS = 8
"""If both sides are ranked, up to this many candidates for each wanted pair of a row are computed without bounds."""
_FIRST_ROOM, _SAMPLED, _LINES = 1 << 12, 1 << 10, 1 << 13


def no_counts() -> Counters:
    """Return counters of these rules."""
    return Counters(REJECTING, ACCEPTING)


class Limits(NamedTuple):
    """The condition in numbers: see ``limits``."""

    radius: float
    square: float
    out: float
    """How many standard deviations beyond the radius a mean may be; negative if it must be this far inside."""
    width: float
    """The largest variance along any line with which a pair may match."""
    area: float
    """The largest determinant in two dimensions with which a pair may match."""
    inside: float
    """Squared standard deviations to the edge that accept a pair; if probabilities are wanted, that make it sure."""
    reject_below: float
    accept_from: float
    keep_from: float
    exact: bool
    all_near: bool = False
    """Whether all pairs whose means are near enough are kept, without a probability."""


def limits_of_deviations(deviations: float) -> Limits:
    """Return limits that keep all pairs whose means are at most ``deviations`` standard deviations apart."""
    return Limits(0.0, 0.0, deviations, math.inf, math.inf, math.inf, 0.0, 1.0, 0.0, False, True)


def limits(within: float, threshold: Threshold, exact: bool, dim: int) -> Limits:
    """Return the limits that a threshold sets for positions of a dimension."""
    # negligible pairs may be kept or not
    share = threshold.reject_below - (0.0 if isinstance(threshold, Negligible) else 1e-14)
    accept = threshold.accept_from
    out = width = area = math.inf
    if share > 0.0:
        out = -float(normal_quantile(share)) + 1e-12
    if share > 1e-15:  # below this no variance is too large
        width = (within / float(normal_quantile(0.5 * (1.0 + share)))) ** 2 * (1.0 + 1e-9)
        area = (0.5 * within * within / -math.log1p(-share)) ** 2 * (1.0 + 1e-9)
    sure = _chi_square_above(37.0, dim)
    asked = sure if exact or accept + 1e-14 >= 1.0 else min(sure, _chi_square_above(-math.log1p(-accept - 1e-14), dim))
    return Limits(
        within,
        within * within,
        out,
        width,
        area,
        asked,
        threshold.reject_below,
        accept,
        threshold.keeps_from(),
        exact,
    )


def _chi_square_above(minus_log: float, dim: int) -> float:
    """Return a number that a chi-square exceeds with probability ``exp(-minus_log)`` at most: exact in two dimensions.

    In more dimensions it is that of Laurent and Massart (2000), lemma 1.
    """
    if dim <= 2:
        return 2.0 * minus_log
    return dim + 2.0 * math.sqrt(dim * minus_log) + 2.0 * minus_log


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


@bare
def _on_line(start, weight, mean, cov, direction, limit, low, high, hopeless):
    """Write where each row may match on a line: around its parts' means, as far out as the threshold allows.

    A ball lies between two planes, so along any line the same holds as in one dimension.
    """
    dim = mean.shape[1]
    each = 1 if len(cov) > 1 else 0
    out = max(0.0, limit.out)
    for i in range(len(start) - 1):
        low[i], high[i], chance = math.inf, -math.inf, 0.0
        for k in range(start[i], start[i + 1]):
            if not weight[k] > 0.0:
                continue
            at, along, variance, size = 0.0, 0.0, 0.0, 0.0
            for c in range(dim):
                at += direction[c] * mean[k, c]
                size += abs(mean[k, c])
                for d in range(dim):
                    along += direction[c] * direction[d] * cov[each * k, c, d]
                variance = max(variance, cov[each * k, c, c])
            # rounding may hide a share of the largest variance
            reach = out * math.sqrt(max(0.0, along) + 1e-12 * variance) * (1.0 + 1e-9) if variance > 0.0 else 0.0
            reach += 0.5 * limit.radius * (1.0 + 1e-12) + 1e-12 * size
            low[i], high[i] = min(low[i], at - reach), max(high[i], at + reach)
            if variance <= limit.width:
                chance += weight[k]
        hopeless[i] = not chance > 0.0


@bare
def _sky_on_line(ra, dec, one, other, third, is_ellipse, direction, limit, low, high, hopeless):
    """Do as ``_on_line`` for positions on the sky."""
    out, size = max(0.0, limit.out), 2.0 * ARCSECONDS
    u, v, w = direction[0], direction[1], direction[2]
    for i in range(len(ra)):
        a, d = math.radians(ra[i]), math.radians(dec[i])
        east, both, north = variances(one[i], other[i], third[i], is_ellipse)
        x, y, z, xx, xy, xz, yy, yz, zz = lifted(math.cos(a), math.sin(a), math.cos(d), math.sin(d), east, both, north)
        at, variance = u * x + v * y + w * z, max(xx, yy, zz)
        along = u * u * xx + v * v * yy + w * w * zz + 2.0 * (u * v * xy + u * w * xz + v * w * yz)
        reach = out * math.sqrt(max(0.0, along) + 1e-12 * variance) * (1.0 + 1e-9) if variance > 0.0 else 0.0
        reach += 0.5 * limit.radius * (1.0 + 1e-12) + 1e-12 * size
        low[i], high[i], hopeless[i] = at - reach, at + reach, not variance <= limit.width


def line_direction(dim: int) -> np.ndarray:
    """Return the direction of a line in general position."""
    direction = 0.75 ** np.arange(dim)
    return direction / np.sqrt((direction * direction).sum())


def intervals_on_line(rows: Parts | Sky, limit: Limits) -> Intervals:
    """Return intervals of rows: rows with disjoint intervals cannot match, and hopeless rows match nothing."""
    count = len(rows) if isinstance(rows, Sky) else len(rows.start) - 1
    found = Intervals(np.empty(count), np.empty(count), np.empty(count, dtype=bool))
    if isinstance(rows, Sky):
        ra, dec, one, other, third = (solid(column) for column in rows.columns)
        _sky_on_line(
            ra, dec, one, other, third, isinstance(rows, SkyEllipse), line_direction(3), limit, found.start, found.end,
            found.hopeless,
        )  # fmt: skip
        return found
    start, weight, mean, cov = np.require(rows.start, np.int64, ["C", "W"]), rows.weight, rows.mean, rows.cov
    _on_line(
        start, solid(weight), solid(mean), solid(cov), line_direction(mean.shape[1]), limit, found.start, found.end,
        found.hopeless,
    )  # fmt: skip
    return found


# -- one pair ----------------------------------------------------------------------------------------------------------


@bare_inner
def _slab(away_square, along, limit):
    """Tell whether a half-space that holds the ball has a probability that is too small.

    ``along`` is the variance along the mean, times the square of the mean's length.
    """
    if away_square <= limit.square and limit.out >= 0.0:
        return False
    away = math.sqrt(away_square)
    sd = math.sqrt(max(0.0, along)) / away if away > 0.0 else 0.0
    return away - limit.radius > limit.out * sd + SLACK * (limit.radius + away)


@bare_inner
def _disc_verdict(x, y, xx, xy, yy, square, limit, room):
    """Return the rule (negative if it rejects) and the probability of a pair in the plane."""
    det, rounding = xx * yy - xy * xy, 1e-15 * xx * yy
    if max(xx, yy) > limit.width or det - rounding > limit.area:
        return -SPREAD, 0.0
    most = widest(xx, xy, yy)
    enough = limit.inside * most
    if enough < square:
        inside = math.sqrt(square) - math.sqrt(x * x + y * y)
        if inside > 0.0 and inside * inside * (1.0 - 1e-12) > enough:
            return INSIDE, 1.0
    return 0, open_disc(x, y, xx, xy, yy, square, most, room.lines[0][:2], room.lines[1][:2])


@bare
def _plane_verdict(one, other, limit, room):
    """Return the rule (negative if it rejects) and the probability of two normals in the plane."""
    x, y = one[0] - other[0], one[1] - other[1]
    xx, xy, yy = one[2] + other[2], one[3] + other[3], one[4] + other[4]
    if _slab(x * x + y * y, x * x * xx + 2.0 * x * y * xy + y * y * yy, limit):
        return -SLAB, 0.0
    return _disc_verdict(x, y, xx, xy, yy, limit.square, limit, room)


@bare
def _space_verdict(one, other, limit, room):
    """Do as ``_plane_verdict`` in three dimensions: in the plane, if both normals hardly leave one."""
    x, y, z = one[0] - other[0], one[1] - other[1], one[2] - other[2]
    xx, xy, xz = one[3] + other[3], one[4] + other[4], one[5] + other[5]
    yy, yz, zz = one[6] + other[6], one[7] + other[7], one[8] + other[8]
    along = x * (x * xx + 2.0 * (y * xy + z * xz)) + y * (y * yy + 2.0 * z * yz) + z * z * zz
    if _slab(x * x + y * y + z * z, along, limit):
        return -SLAB, 0.0
    u, v, uu, uv, vv, off, change = plane_of(x, y, z, xx, xy, xz, yy, yz, zz)
    if change <= FLAT_ENOUGH and off <= limit.square:
        return _disc_verdict(u, v, uu, uv, vv, limit.square - off, limit, room)
    return _general_verdict(3, one, other, limit, room)


@bare
def _general_verdict(dim, one, other, limit, room):
    """Do as ``_plane_verdict`` in any dimension."""
    away = _difference(dim, one, other, room)
    along, widest_axis, norm = 0.0, 0.0, 0.0
    for c in range(dim):
        line = 0.0
        for d in range(dim):
            line += room.cov[c, d] * room.mean[d]
            norm += room.cov[c, d] * room.cov[c, d]
        along += line * room.mean[c]
        widest_axis = max(widest_axis, room.cov[c, c])
    if _slab(away, along, limit):
        return -SLAB, 0.0
    if widest_axis > limit.width:
        return -SPREAD, 0.0
    inside = limit.radius - math.sqrt(away)
    if inside > 0.0 and inside * inside * (1.0 - 1e-12) > limit.inside * math.sqrt(norm):
        return INSIDE, 1.0
    return 0, ball_chance(room.mean, room.cov, limit.square, room)


@bare_inner
def _pair_verdict(dim, one, other, limit, room):
    if dim == 2:
        return _plane_verdict(one, other, limit, room)
    if dim == 3:
        return _space_verdict(one, other, limit, room)
    return _general_verdict(dim, one, other, limit, room)


@bare_inner
def _difference(dim, one, other, room):
    """Write mean and covariance of the difference, unpacked; return the square of the mean's length."""
    at, away = dim, 0.0
    for c in range(dim):
        apart = one[c] - other[c]
        room.mean[c] = apart
        away += apart * apart
        for d in range(c, dim):
            room.cov[c, d] = room.cov[d, c] = one[at] + other[at]
            at += 1
    return away


@bare
def _mixed_verdict(dim, left, i, right, j, limit, room):
    """Do as ``_plane_verdict`` for two mixtures: first by slabs of all pairs of parts, then by their probabilities."""
    most = 0.0
    for k in range(left.first[i], left.first[i] + left.many[i]):
        for m in range(right.first[j], right.first[j] + right.many[j]):
            most += left.weight[k] * right.weight[m] * _half_space(dim, left.packed[k], right.packed[m], limit, room)
    if most < limit.reject_below - 1e-14:
        return -SLAB, 0.0
    sum_, open_ = 0.0, 1.0
    for k in range(left.first[i], left.first[i] + left.many[i]):
        for m in range(right.first[j], right.first[j] + right.many[j]):
            share = left.weight[k] * right.weight[m]
            open_ -= share
            if _half_space(dim, left.packed[k], right.packed[m], limit, room) > 0.0:
                if dim == 2:
                    one, other = left.packed[k], right.packed[m]
                    sum_ += share * disc_chance(
                        one[0] - other[0], one[1] - other[1], one[2] + other[2], one[3] + other[3],
                        one[4] + other[4], limit.square, room.lines[0][:2], room.lines[1][:2],
                    )  # fmt: skip
                else:
                    _difference(dim, left.packed[k], right.packed[m], room)
                    sum_ += share * ball_chance(room.mean, room.cov, limit.square, room)
            if sum_ + max(0.0, open_) < limit.reject_below - 1e-13:
                return 0, 0.0
            if not limit.exact and sum_ > limit.accept_from + 1e-13:
                return 0, sum_
    return 0, min(1.0, sum_)


@bare
def _half_space(dim, one, other, limit, room):
    """Upper bound on the probability of two normals: that of the half-space which holds the ball; 0 if negligible."""
    away = math.sqrt(_difference(dim, one, other, room))
    along = 0.0
    for c in range(dim):
        for d in range(dim):
            along += room.mean[c] * room.cov[c, d] * room.mean[d]
    beyond = away - limit.radius * (1.0 + SLACK) - SLACK * away
    if beyond <= 0.0:
        return 1.0
    sd = math.sqrt(max(0.0, along)) / away
    return 0.0 if beyond >= _NEGLIGIBLE * sd else normal_cdf(-beyond / sd)


# -- all pairs ---------------------------------------------------------------------------------------------------------


@bare_inner
def _first_of_run(key, right_key, cursor, k):
    """Move cursor ``k`` to the first right row whose cell is next to a cell; return it, and the first such cell."""
    j, low = cursor[k], key - 1
    while j < len(right_key) and right_key[j] < low:
        j += 1
    cursor[k] = j
    return j, low


@bare_inner
def _apart(dim, left, i, right, j, mixed, placed, limit, counts):
    """Return the squared distance of the centres of a pair if this cell owns it and they are near enough, else -1.

    Such a pair is counted as a candidate.
    """
    if placed:
        if not owns(left.begins[i], left.begins_here[i], right.begins[j], right.begins_here[j]):
            return -1.0
        if len(left.group) > 0 and left.group[i] != right.group[j]:
            return -1.0
    away, last = 0.0, left.near.shape[1] - 1
    for c in range(dim):
        apart = left.near[i, c] - right.near[j, c]
        away += apart * apart
    counts[_CANDIDATES] += 1
    if _too_far(away, left.near[i, last], right.near[j, last], mixed, limit):
        counts[REACH] += 1
        return -1.0
    return away


@bare
def _walk(dim, left, left_key, begin, right, right_key, offset, cursor, mixed, placed, limit, room, out, found, counts):
    """Write the pairs of the left rows from ``begin`` on; return the row to go on with, and how many pairs there are.

    ``cursor[k]`` is the begin of the run of right rows whose cells are ``offset[k]`` away, one before to one after.
    """
    total = len(right_key)
    for i in range(begin, len(left_key)):
        mark = found
        for c in range(_COUNTS):
            counts[_COUNTS + c] = counts[c]
        for k in range(len(offset)):
            j, low = _first_of_run(left_key[i] + offset[k], right_key, cursor, k)
            while j < total and right_key[j] <= low + 2:
                if _apart(dim, left, i, right, j, mixed, placed, limit, counts) >= 0.0:
                    if limit.all_near:
                        rule, chance = INSIDE, math.nan
                    elif mixed:
                        rule, chance = _mixed_verdict(dim, left, i, right, j, limit, room)
                    else:
                        rule, chance = _pair_verdict(dim, left.near[i], right.near[j], limit, room)
                    if rule < 0:
                        counts[-rule] += 1
                    else:
                        counts[rule if rule > 0 else _EVALUATED] += 1
                        if rule > 0 or chance >= limit.keep_from:
                            if found == len(out.left):  # repeat this row when there is room
                                for c in range(_COUNTS):
                                    counts[c] = counts[_COUNTS + c]
                                return i, mark
                            out.left[found], out.right[found] = left.label[i], right.label[j]
                            out.probability[found] = chance if limit.exact else math.nan
                            out.code[found] = rule
                            found += 1
                j += 1
    return len(left_key), found


@bare_inner
def _too_far(away_square, one, other, mixed, limit):
    """Tell whether centres are too far apart for the reach of two rows: the variances of two normals add up."""
    if away_square <= limit.square:
        return False
    beyond = math.sqrt(away_square) - limit.radius
    reach = one + other
    if mixed:
        return beyond > reach + SLACK * (limit.radius + reach)
    return beyond * beyond > (one * one + other * other) * (1.0 + 1e-12) + SLACK * limit.square


class BestRows(NamedTuple):
    """Probabilities that the best pairs of rows reach, and room for the candidates of one row.

    ``left`` and ``right`` have for each row a probability that as many of its pairs reach as are wanted; ``right`` is
    empty if only the best pairs of left rows matter. ``upper`` are bounds of the candidates at ``at``, as a heap.
    """

    left: np.ndarray
    right: np.ndarray
    held: np.ndarray
    at: np.ndarray
    upper: np.ndarray
    swapped: bool
    """Whether the left rows are those of the right side."""

    @classmethod
    def of(cls, best: Best, left: int, right: int, swapped: bool) -> BestRows:
        """Make it for rows of both sides before any pair is known."""
        others = np.full(right if 1 in best.sides else 0, -np.inf)
        size = _FIRST_ROOM
        return cls(np.full(left, -np.inf), others, np.empty(best.k), np.empty(size, np.int64), np.empty(size), swapped)

    def grown(self) -> BestRows:
        """Return the same with twice the room."""
        size = 2 * len(self.at)
        return self._replace(at=np.empty(size, np.int64), upper=np.empty(size))


@bare_inner
def _push(heap, at, upper, count):
    """Add a candidate to a heap with the largest bound first."""
    place = count
    while place > 0:
        above = (place - 1) >> 1
        if heap.upper[above] >= upper:
            break
        heap.upper[place], heap.at[place] = heap.upper[above], heap.at[above]
        place = above
    heap.upper[place], heap.at[place] = upper, at


@bare_inner
def _pop(heap, last):
    """Remove the first candidate of a heap: the last one, at ``last``, takes its place and sinks."""
    upper, at, place = heap.upper[last], heap.at[last], 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        if below + 1 < last and heap.upper[below + 1] > heap.upper[below]:
            below += 1
        if heap.upper[below] <= upper:
            break
        heap.upper[place], heap.at[place] = heap.upper[below], heap.at[below]
        place = below
    heap.upper[place], heap.at[place] = upper, at


@bare_inner
def _outside(away, along, limit, least):
    """Do as ``_bound`` by the half-space alone that holds the ball.

    Where ``least`` is above the threshold it decides both, whether a pair is kept and whether it is beaten: two tests
    would be two branches that a processor cannot predict.
    """
    if least >= limit.reject_below:
        return 0, half_space_at_most(away, along, limit.radius)
    return (-SLAB, 0.0) if _slab(away, along, limit) else (0, 1.0)


@bare_inner
def _bound(dim, left, i, right, j, mixed, limit, room, least):
    """Return the rule that rejects a pair (negative) or 0, and an upper bound on its probability.

    A bound below ``least`` need not be a close one: most often the half-space that holds the ball is enough.
    """
    if mixed:
        most = 0.0
        for k in range(left.first[i], left.first[i] + left.many[i]):
            for m in range(right.first[j], right.first[j] + right.many[j]):
                share = left.weight[k] * right.weight[m]
                most += share * _half_space(dim, left.packed[k], right.packed[m], limit, room)
        return (-SLAB if most < limit.reject_below - 1e-14 else 0), most
    one, other = left.near[i], right.near[j]
    if dim == 2:
        x, y = one[0] - other[0], one[1] - other[1]
        xx, xy, yy = one[2] + other[2], one[3] + other[3], one[4] + other[4]
        away, along = x * x + y * y, x * x * xx + 2.0 * x * y * xy + y * y * yy
        rule, most = _outside(away, along, limit, least)
        if rule < 0 or most < least:
            return rule, most
        return 0, disc_at_most(x, y, xx, xy, yy, limit.square)
    if dim == 3:
        x, y, z = one[0] - other[0], one[1] - other[1], one[2] - other[2]
        xx, xy, xz = one[3] + other[3], one[4] + other[4], one[5] + other[5]
        yy, yz, zz = one[6] + other[6], one[7] + other[7], one[8] + other[8]
        along = x * (x * xx + 2.0 * (y * xy + z * xz)) + y * (y * yy + 2.0 * z * yz) + z * z * zz
        away = x * x + y * y + z * z
        rule, most = _outside(away, along, limit, least)
        if rule < 0 or most < least:
            return rule, most
        u, v, uu, uv, vv, off, change = plane_of(x, y, z, xx, xy, xz, yy, yz, zz)
        if change <= FLAT_ENOUGH and off <= limit.square:
            return 0, disc_at_most(u, v, uu, uv, vv, limit.square - off)
        return 0, along_at_most(away, along, limit.radius)
    away, along = _difference(dim, one, other, room), 0.0
    for c in range(dim):
        for d in range(dim):
            along += room.mean[c] * room.cov[c, d] * room.mean[d]
    rule, most = _outside(away, along, limit, least)
    return (rule, most) if rule < 0 or most < least else (0, along_at_most(away, along, limit.radius))


@bare_inner
def _bounded(dim, left, i, right, begin, count, mixed, limit, room, counts, best):
    """Make a heap of a row's candidates from ``begin`` on that bounds do not reject; return how many there are.

    If there are no more candidates than wanted pairs, none can be beaten, and bounds are not computed. If a pair must
    be beaten on both sides, few are, and bounds of few candidates cost more than they save.
    """
    mine_best, kept = best.left[left.label[i]], 0
    needless = len(best.held) if len(best.right) == 0 else _NEEDLESS * len(best.held)
    for n in range(begin, count):
        j = best.at[n]
        theirs = best.right[right.label[j]] if len(best.right) > 0 else math.inf
        rule, upper, least = 0, 1.0, min(mine_best, theirs) - MARGIN
        if count > needless:
            rule, upper = _bound(dim, left, i, right, j, mixed, limit, room, least)
        if rule < 0:
            counts[-rule] += 1
        elif upper < least:
            counts[_BEATEN] += 1
        else:
            _push(best, j, upper, kept)
            kept += 1
    return kept


@bare
def _walk_best(
    dim, left, left_key, begin, right, right_key, offset, cursor, mixed, placed, limit, room, out, found, counts, best
):
    """Do as ``_walk`` if only the best pairs of a row are wanted: its candidates are computed by falling bounds.

    The nearest candidate comes first, without a bound: most often no other is better. A pair is skipped if its bound is
    below the probability that enough pairs of its row reach; with two sides, of both rows.
    """
    total, both = len(right_key), len(best.right) > 0
    for i in range(begin, len(left_key)):
        mark, count, nearest, least = found, 0, 0, math.inf
        for c in range(_COUNTS):
            counts[_COUNTS + c] = counts[c]
        for k in range(len(offset)):
            j, low = _first_of_run(left_key[i] + offset[k], right_key, cursor, k)
            while j < total and right_key[j] <= low + 2:
                away = _apart(dim, left, i, right, j, mixed, placed, limit, counts)
                if away >= 0.0:
                    if count == len(best.at):  # repeat this row when there is room
                        for c in range(_COUNTS):
                            counts[c] = counts[_COUNTS + c]
                        return i, mark
                    best.at[count] = j
                    if away < least:
                        least, nearest = away, count
                    count += 1
                j += 1
        if count == 0:  # no candidates: the row's probability stays as it is
            continue
        held, kept, rest = 0, 0, 0
        if best.left[left.label[i]] == -math.inf:
            j = best.at[nearest]
            best.at[nearest] = best.at[0]
            best.at[0], best.upper[0], kept, rest = j, 1.0, 1, 1
        while kept > 0 or rest < count:
            if kept == 0:
                kept = _bounded(dim, left, i, right, rest, count, mixed, limit, room, counts, best)
                rest = count
                continue
            j, upper, mine_best = best.at[0], best.upper[0], best.left[left.label[i]]
            theirs = best.right[right.label[j]] if both else math.inf
            if upper < min(mine_best, theirs) - MARGIN:
                if not both:  # all others are beaten, too
                    counts[_BEATEN] += kept
                    break
                counts[_BEATEN] += 1
            else:
                if mixed and best.swapped:  # in the order that is not swapped, for equal bits
                    rule, chance = _mixed_verdict(dim, right, j, left, i, limit, room)
                elif mixed:
                    rule, chance = _mixed_verdict(dim, left, i, right, j, limit, room)
                else:  # one call, not two: the compiler then inlines it
                    one, other = left.near[i], right.near[j]
                    if best.swapped:
                        one, other = other, one
                    rule, chance = _pair_verdict(dim, one, other, limit, room)
                counts[-rule if rule < 0 else rule if rule > 0 else _EVALUATED] += 1
                if rule > 0 or (rule == 0 and chance >= limit.keep_from):
                    if found == len(out.left):
                        for c in range(_COUNTS):
                            counts[c] = counts[_COUNTS + c]
                        return i, mark
                    out.left[found], out.right[found] = left.label[i], right.label[j]
                    out.probability[found], out.code[found] = chance, rule
                    found += 1
                    held = hold(chance, best.held, held)
                    if held == len(best.held):
                        best.left[left.label[i]] = max(mine_best, best.held[held - 1])
                    if both:
                        best.right[right.label[j]] = max(theirs, chance)
            kept -= 1
            if kept > 0:
                _pop(best, kept)
        if found > mark + 1:
            found = _without_beaten(out, mark, found, best.left[left.label[i]], best)
    return len(left_key), found


@bare_inner
def _without_beaten(out, begin, end, mine_best, best):
    """Leave out pairs of one row that others have beaten since they were computed; return how many are left."""
    kept = begin
    for k in range(begin, end):
        wanted = out.probability[k] >= mine_best - MARGIN
        if len(best.right) > 0:
            wanted = wanted or out.probability[k] >= best.right[out.right[k]] - MARGIN
        if wanted:
            out.left[kept], out.right[kept] = out.left[k], out.right[k]
            out.probability[kept], out.code[kept] = out.probability[k], out.code[k]
            kept += 1
    return kept


@bare
def _extent(near, rows, low, high):
    """Extend the range ``low`` to ``high`` to the centres of some rows; return the largest reach of these rows."""
    farthest, last = 0.0, near.shape[1] - 1
    for at in range(len(rows)):
        line = near[rows[at]]
        farthest = max(farthest, line[last])
        for c in range(len(low)):
            low[c], high[c] = min(low[c], line[c]), max(high[c], line[c])
    return farthest


@bare
def _keys(near, rows, axes, low, edge, step, keys):
    for at in range(len(rows)):
        key = 0
        for a in range(len(axes)):
            key += (np.int64((near[rows[at], axes[a]] - low[axes[a]]) / edge) + 1) * step[a]
        keys[at] = key


def _cells(
    left: PositionSide, mine: np.ndarray, right: PositionSide, theirs: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return keys of cells such that rows that may match are in neighbouring cells, and differences of keys.

    Cells are as wide as the centres of a pair may be apart. Neighbours along the last axis have consecutive keys; the
    differences are those between a cell and its neighbours in the other axes. Numbered groups have cells of their own,
    if there are enough keys: otherwise rows of other groups would be skipped one by one.
    """
    low, high = np.full(left.dim, np.inf), np.full(left.dim, -np.inf)
    reach = []
    for side, rows in ((left, mine), (right, theirs)):
        reach.append(float(_extent(side.near, rows, low, high)))
    edge = radius + (sum(reach) if left.mixed else math.hypot(*reach))
    span = high / 2 - low / 2  # halves, so that no difference is infinite
    axes = np.sort(np.argsort(-span)[:_MOST_AXES])
    edge = max(edge * (1.0 + 1e-9), 2.0 * float(span.max()) / (_CELLS_OF_AXIS - 4), 1e-300)
    cells = (np.floor(2.0 * (span[axes] / edge)) + 4.0).astype(np.int64)  # one to spare on each side
    step = np.concatenate([np.cumprod(cells[:0:-1])[::-1], [1]]).astype(np.int64)
    keys = np.empty(len(mine), np.int64), np.empty(len(theirs), np.int64)
    _keys(left.near, mine, axes, low, edge, step, keys[0])
    _keys(right.near, theirs, axes, low, edge, step, keys[1])
    groups = [None if side.places is None else side.places.group for side in (left, right)]
    numbers = [each for each in groups if each is not None and each.dtype.kind == "i" and each.min(initial=0) >= 0]
    of_group = math.prod(cells.tolist())
    if len(numbers) == 2 and of_group * (1 + max(int(each.max(initial=0)) for each in numbers)) < _KEYS:
        for key, number, rows in zip(keys, numbers, (mine, theirs), strict=True):
            key += of_group * number[rows]
    offsets = np.array([np.dot(step[:-1], shift) for shift in product((-1, 0, 1), repeat=len(axes) - 1)], np.int64)
    return keys[0], keys[1], offsets


class FoundPositions(NamedTuple):
    """Pairs, and counters of the candidates."""

    pairs: PositionPairs
    counters: Counters


def near_pairs(
    left: Parts | Sky,
    right: Parts | Sky,
    limit: Limits,
    places: tuple[Places, Places] | None = None,
    best: Best | None = None,
) -> FoundPositions:
    """Return all kept pairs, each once, with the counts of every rule; with ``best`` at least the best of them."""
    counters = no_counts()
    # the best pairs of a row are found when the walk is at this row, so the walk goes through the ranked side
    swapped = best is not None and best.sides == (1,)
    if swapped:
        left, right, places = right, left, None if places is None else (places[1], places[0])
    mixed = any(_has_mixtures(side) for side in (left, right))
    one, other = (
        PositionSide(rows, limit, mixed, None if places is None else places[k]) for k, rows in enumerate((left, right))
    )
    pairs = _Pairs(len(one.usable))
    if best is not None:
        pairs.best = BestRows.of(best, len(one.usable), 0 if swapped else len(other.usable), swapped)
    for mine, theirs in product(one.classes(limit.radius), other.classes(limit.radius)):
        _match(one, mine, other, theirs, limit, pairs, counters)
    counters.kept += pairs.found
    done = pairs.done()
    return FoundPositions(done._replace(left=done.right, right=done.left) if swapped else done, counters)


def _has_mixtures(rows: Parts | Sky) -> bool:
    if isinstance(rows, Sky):
        return False
    return len(rows.weight) != len(rows.start) - 1 or bool((np.diff(rows.start) != 1).any())


class _Pairs:
    """Pairs found so far, with room for more."""

    def __init__(self, rows: int) -> None:
        self.room, self.found = _no_room(max(_FIRST_ROOM, rows + rows // 4)), 0
        self.best: BestRows | None = None

    def grow(self) -> None:
        """Double the room."""
        larger = _no_room(2 * len(self.room.left))
        for old, new in zip(self.room, larger, strict=True):
            new[: self.found] = old[: self.found]
        self.room = larger
        if self.best is not None:
            self.best = self.best.grown()

    def done(self) -> PositionPairs:
        """Return the pairs found, in little more memory than they need."""
        full = self.found >= len(self.room.left) // 2
        return PositionPairs(*(column[: self.found] if full else column[: self.found].copy() for column in self.room))


def _no_room(size: int) -> PositionPairs:
    return PositionPairs(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), np.empty(size, np.int8))


def _match(
    left: PositionSide,
    mine: np.ndarray,
    right: PositionSide,
    theirs: np.ndarray,
    limit: Limits,
    pairs: _Pairs,
    counters: Counters,
) -> None:
    """Find the pairs of two classes of rows."""
    left_key, right_key, offsets = _cells(left, mine, right, theirs, limit.radius)
    (order, left_key), (other_order, right_key) = ordered(left_key), ordered(right_key)
    mine = order if len(mine) == len(left.usable) else mine[order]
    theirs = other_order if len(theirs) == len(right.usable) else theirs[other_order]
    others, space = right.take(theirs), np.empty((_LINES, left.near.shape[1]))
    cursor, counts, room = np.zeros(len(offsets), np.int64), np.zeros(2 * _COUNTS, np.int64), room_for(left.dim)
    for begin in range(0, len(mine), _LINES):  # some lines at a time, which stay in the cache
        ours = left.take(mine[begin : begin + _LINES], space)
        keys, done = left_key[begin : begin + _LINES], 0
        while True:
            rest = others, right_key, offsets, cursor, left.mixed, left.places is not None, limit, room, pairs.room
            if pairs.best is None:
                done, pairs.found = _walk(left.dim, ours, keys, done, *rest, pairs.found, counts)
            else:
                done, pairs.found = _walk_best(left.dim, ours, keys, done, *rest, pairs.found, counts, pairs.best)
            if done == len(keys):
                break
            pairs.grow()
    _count(counts, counters)


def _count(counts: np.ndarray, counters: Counters) -> None:
    counters.candidates += int(counts[_CANDIDATES])
    counters.evaluated += int(counts[_EVALUATED])
    for rule in (REACH, SLAB, SPREAD):
        counters.rejected[POSITION_RULES[rule]] += int(counts[rule])
    counters.rejected[BEATEN] += int(counts[_BEATEN])
    counters.accepted[POSITION_RULES[INSIDE]] += int(counts[INSIDE])
