"""Pairs of uncertain positions that are likely near: Gaussians, mixtures of them, and points, in any dimension.

A ball is convex, so a Gaussian has at least half of its mass outside unless its mean is inside; and a share below one
half only reaches as far out as that share's quantile, times its largest standard deviation. That tells how far apart
the centres of a pair may be. Rows are sorted by cells as wide as that; the neighbours of a cell are then a few runs of
the other side's sorted rows, and as one walks through one side, every run only moves forward: no table, no search.

What is that near goes through bounds of constant cost, and what they leave open is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from haply.numerics.disc import (
    FLAT_ENOUGH,
    SURE,
    Room,
    ball_chance,
    disc_chance,
    plane_of,
    room_for,
)
from haply.numerics.jit import bare, bare_inner, solid
from haply.numerics.normal import normal_cdf, normal_quantile
from haply.probability.multivariate import Parts
from haply.pruning.cascade import Counters
from haply.pruning.threshold import TOLERANCE, Threshold

REACH, SLAB, SPREAD, INSIDE = 1, 2, 3, 4
POSITION_RULES = {REACH: "reach", SLAB: "slab", SPREAD: "spread", INSIDE: "inside"}
"""Names of the rules, by their code: 0 is the exact value."""
REJECTING = tuple(POSITION_RULES[rule] for rule in (REACH, SLAB, SPREAD))
ACCEPTING = (POSITION_RULES[INSIDE],)

SLACK = 1e-13
"""Rounding, as a share of the lengths that are compared."""
_NEGLIGIBLE = 8.4
"""What lies farther out than this many standard deviations has a probability below 1e-16."""
_MOST_AXES, _CELLS_OF_AXIS = 3, 1 << 20
_COARSER = 4.0
"""Rows whose reach differs by more than this factor are not sorted into the same cells."""
_CANDIDATES, _EVALUATED, _COUNTS = 5, 6, 7
_FIRST_ROOM = 1 << 12


def no_counts() -> Counters:
    """Counters of these rules."""
    return Counters(REJECTING, ACCEPTING)


class Limits(NamedTuple):
    """The condition in numbers: see ``limits``."""

    radius: float
    square: float
    out: float
    """How many standard deviations beyond the radius a mean may be; negative if it must be inside by as much."""
    width: float
    """The largest variance along any line that leaves a chance."""
    area: float
    """The largest determinant in two dimensions that leaves a chance."""
    inside: float
    """Squared standard deviations to the edge that accept; with probabilities asked for, those that make it sure."""
    reject_below: float
    accept_from: float
    keep_from: float
    exact: bool


def limits(within: float, threshold: Threshold, exact: bool, dim: int) -> Limits:
    """What a threshold means for positions of some dimension."""
    share = threshold.reject_below - 1e-14
    accept = threshold.accept_from
    if share <= 0.0:
        out, width, area = math.inf, math.inf, math.inf
    else:
        out = -float(normal_quantile(share)) + 1e-12
        width = (within / float(normal_quantile(0.5 * (1.0 + share)))) ** 2 * (1.0 + 1e-9)
        area = (0.5 * within * within / -math.log1p(-share)) ** 2 * (1.0 + 1e-9)
    sure = _chi_square_above(37.0, dim)
    asked = sure if exact or accept + 1e-14 >= 1.0 else min(sure, _chi_square_above(-math.log1p(-accept - 1e-14), dim))
    assert threshold.value is not None
    keep = np.nextafter(threshold.value + TOLERANCE, 2.0) if threshold.strict else threshold.value - TOLERANCE
    return Limits(
        within, within * within, out, width, area, asked, threshold.reject_below, accept, max(float(keep), 1e-300), exact
    )


def _chi_square_above(minus_log: float, dim: int) -> float:
    """A number that a chi-square is above with at most ``exp(-minus_log)``: exact in two dimensions.

    From Laurent and Massart (2000), lemma 1, in more.
    """
    if dim <= 2:
        return 2.0 * minus_log
    return dim + 2.0 * math.sqrt(dim * minus_log) + 2.0 * minus_log


class Rows(NamedTuple):
    """One side: each row's centre and how far it reaches, and its parts, packed."""

    near: np.ndarray
    """Centre and reach of a row: (rows, dim + 1)."""
    first: np.ndarray
    count: np.ndarray
    weight: np.ndarray
    packed: np.ndarray
    """Mean and upper triangle of the covariance of a part."""
    order: np.ndarray
    home: np.ndarray
    group: np.ndarray


@dataclass(frozen=True)
class Where:
    """Which pairs are one's own to find, where space is cut into cells and rows are seen in several.

    Of a pair, the row whose ``order`` is larger must be at ``home``; and both must have one ``group``.
    """

    order: np.ndarray
    home: np.ndarray
    group: np.ndarray | None = None


class Output(NamedTuple):
    """Room for pairs: row numbers, probabilities (NaN if not computed), and what decided."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    code: np.ndarray


@bare
def _describe(start, weight, mean, cov, limit, near, packed, usable):
    """Pack the parts, find each row's centre and reach, and which rows have any chance.

    The reach of a part is ``limit.out`` times a bound on its largest standard deviation: of several parts, some pair
    must have the wanted chance by itself, so a row reaches as far as the farthest of its parts.
    """
    dim = mean.shape[1]
    each = 1 if len(cov) > 1 else 0
    out = max(0.0, limit.out)
    for i in range(len(start) - 1):
        begin, end = start[i], start[i + 1]
        for c in range(dim):
            least = most = mean[begin, c]
            for k in range(begin + 1, end):
                least, most = min(least, mean[k, c]), max(most, mean[k, c])
            near[i, c] = least if least == most else least + 0.5 * (most - least)
        reach, chance = 0.0, 0.0
        for k in range(begin, end):
            at, away, norm, widest = dim, 0.0, 0.0, 0.0
            for c in range(dim):
                packed[k, c] = mean[k, c]
                away += (mean[k, c] - near[i, c]) ** 2
                for d in range(c, dim):
                    entry = 0.5 * (cov[each * k, c, d] + cov[each * k, d, c])
                    packed[k, at] = entry
                    at += 1
                    norm += entry * entry if c == d else 2.0 * entry * entry
                widest = max(widest, cov[each * k, c, c])
            if dim == 2:
                xx, xy, yy = packed[k, 2], packed[k, 3], packed[k, 4]
                spread = 0.5 * (xx + yy) + math.sqrt(0.25 * (xx - yy) * (xx - yy) + xy * xy)
            else:
                spread = math.sqrt(norm)
            if weight[k] > 0.0:
                if spread > 0.0 and out > 0.0:
                    away = math.sqrt(away) + out * math.sqrt(spread) * (1.0 + SLACK)
                else:
                    away = math.sqrt(away)
                reach = max(reach, away)
                if widest <= limit.width:
                    chance += weight[k]
        near[i, dim] = reach
        usable[i] = chance >= limit.reject_below


def describe(parts: Parts, limit: Limits, where: Where | None = None) -> tuple[Rows, np.ndarray]:
    """A side's rows, and which of them can match anything."""
    count, dim = len(parts.start) - 1, parts.mean.shape[1]
    near, usable = np.empty((count, dim + 1)), np.empty(count, np.bool_)
    packed = np.empty((len(parts.weight), dim + dim * (dim + 1) // 2))
    start = np.require(parts.start, np.int64, ["C", "W"])
    _describe(start, solid(parts.weight), solid(parts.mean), solid(parts.cov), limit, near, packed, usable)
    nothing = np.zeros(0)
    order, home, group = nothing, nothing, nothing
    if where is not None:
        order, home = solid(where.order), solid(where.home)
        group = nothing if where.group is None else solid(where.group)
    rows = Rows(near, start[:-1].copy(), np.diff(start), solid(parts.weight), packed, order, home, group)
    return rows, usable


def _take(rows: Rows, chosen: np.ndarray) -> Rows:
    """Some rows in some order; parts come along where each row has one, so that neighbours lie side by side."""
    order, home, group = (each[chosen] if len(each) else each for each in (rows.order, rows.home, rows.group))
    first, count = rows.first[chosen], rows.count[chosen]
    weight, packed = rows.weight, rows.packed
    if len(weight) == len(rows.near) and (count == 1).all():
        weight, packed, first = weight[first], packed[first], np.arange(len(chosen))
    return Rows(rows.near[chosen], first, count, weight, packed, order, home, group)


# -- one pair ----------------------------------------------------------------------------------------------------------


@bare_inner
def _slab(away_square, along, limit):
    """Whether a half-plane that holds the ball tells that the chance is too small, with the sign that a root has.

    ``along`` is the variance along the mean, times the square of its length.
    """
    away = math.sqrt(away_square)
    sd = math.sqrt(max(0.0, along)) / away if away > 0.0 else 0.0
    return away - limit.radius > limit.out * sd + SLACK * (limit.radius + away)


@bare_inner
def _disc_verdict(x, y, xx, xy, yy, square, limit, room):
    """Rule (negative if it rejects) and chance of a pair in the plane."""
    if max(xx, yy) > limit.width:
        return -SPREAD, 0.0
    det, rounding = xx * yy - xy * xy, 1e-15 * xx * yy
    if det - rounding > limit.area:
        return -SPREAD, 0.0
    inside = math.sqrt(square) - math.sqrt(x * x + y * y)
    most = 0.5 * (xx + yy) + math.sqrt(0.25 * (xx - yy) * (xx - yy) + xy * xy)
    if inside > 0.0 and inside * inside * (1.0 - 1e-12) > limit.inside * most:
        return INSIDE, 1.0
    return 0, disc_chance(x, y, xx, xy, yy, square, room.lines[0][:2], room.lines[1][:2])


@bare
def _pair_verdict(dim, one, other, limit, room):
    """Rule (negative if it rejects) and chance of two normals."""
    if dim == 2:
        x, y = one[0] - other[0], one[1] - other[1]
        xx, xy, yy = one[2] + other[2], one[3] + other[3], one[4] + other[4]
        if _slab(x * x + y * y, x * x * xx + 2.0 * x * y * xy + y * y * yy, limit):
            return -SLAB, 0.0
        return _disc_verdict(x, y, xx, xy, yy, limit.square, limit, room)
    away = _difference(dim, one, other, room)
    along, widest, norm = 0.0, 0.0, 0.0
    for c in range(dim):
        line = 0.0
        for d in range(dim):
            line += room.cov[c, d] * room.mean[d]
            norm += room.cov[c, d] * room.cov[c, d]
        along += line * room.mean[c]
        widest = max(widest, room.cov[c, c])
    if _slab(away, along, limit):
        return -SLAB, 0.0
    if widest > limit.width:
        return -SPREAD, 0.0
    if dim == 3:
        flat = room.lines[2]
        if plane_of(room.mean, room.cov, flat) <= FLAT_ENOUGH and flat[5] <= limit.square:
            x, y, xx, xy, yy = flat[0], flat[1], flat[2], flat[3], flat[4]
            return _disc_verdict(x, y, xx, xy, yy, limit.square - flat[5], limit, room)
    inside = limit.radius - math.sqrt(away)
    if inside > 0.0 and inside * inside * (1.0 - 1e-12) > limit.inside * math.sqrt(norm):
        return INSIDE, 1.0
    return 0, ball_chance(room.mean, room.cov, limit.square, room)


@bare_inner
def _difference(dim, one, other, room):
    """Mean and covariance of the difference, unpacked; returns the square of the mean's length."""
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
    """The same for two mixtures: first the slabs of all pairs of parts, then their chances until it is decided."""
    most = 0.0
    for k in range(left.first[i], left.first[i] + left.count[i]):
        for m in range(right.first[j], right.first[j] + right.count[j]):
            most += left.weight[k] * right.weight[m] * _half_space(dim, left.packed[k], right.packed[m], limit, room)
    if most < limit.reject_below - 1e-14:
        return -SLAB, 0.0
    sum_, open_ = 0.0, 1.0
    for k in range(left.first[i], left.first[i] + left.count[i]):
        for m in range(right.first[j], right.first[j] + right.count[j]):
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
    """An upper bound on the chance of two normals: that of the half-space which holds the ball; 0 where negligible."""
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


@bare
def _walk(dim, left, left_key, right, right_key, offset, cursor, begin, mixed, placed, limit, room, out, counts):
    """Go through the left rows from ``begin``; returns the row to go on with, and how many pairs were found.

    ``cursor[k]`` is where the run of right rows begins whose cells are ``offset[k]`` away, one before to one after.
    """
    found, total = 0, len(right_key)
    grouped = len(left.group) > 0
    for i in range(begin, len(left_key)):
        mark = found
        for c in range(_COUNTS):
            counts[_COUNTS + c] = counts[c]
        for k in range(len(offset)):
            low = left_key[i] + offset[k] - 1
            j = cursor[k]
            while j < total and right_key[j] < low:
                j += 1
            cursor[k] = j
            while j < total and right_key[j] <= low + 2:
                away = 0.0
                for c in range(dim):
                    apart = left.near[i, c] - right.near[j, c]
                    away += apart * apart
                reach = limit.radius + left.near[i, dim] + right.near[j, dim]
                mine = True
                if placed:
                    mine = left.home[i] > 0.0 if left.order[i] >= right.order[j] else right.home[j] > 0.0
                    if grouped:
                        mine = mine and left.group[i] == right.group[j]
                if mine:
                    counts[_CANDIDATES] += 1
                    if away > reach * reach * (1.0 + 4.0 * SLACK):
                        counts[REACH] += 1
                    else:
                        if mixed:
                            rule, chance = _mixed_verdict(dim, left, i, right, j, limit, room)
                        else:
                            rule, chance = _pair_verdict(dim, left.packed[i], right.packed[j], limit, room)
                        if rule < 0:
                            counts[-rule] += 1
                        elif rule > 0 or chance >= limit.keep_from:
                            if found == len(out.left):  # this row once more, when there is room
                                for c in range(_COUNTS):
                                    counts[c] = counts[_COUNTS + c]
                                return i, mark
                            out.left[found], out.right[found], out.code[found] = i, j, rule
                            out.probability[found] = chance if limit.exact else math.nan
                            found += 1
                        if rule > 0:
                            counts[rule] += 1
                        elif rule == 0:
                            counts[_EVALUATED] += 1
                j += 1
    return len(left_key), found


@bare
def _keys(near, axes, low, edge, step, keys):
    for i in range(len(near)):
        key = 0
        for a in range(len(axes)):
            key += (np.int64((near[i, axes[a]] - low[a]) / edge) + 1) * step[a]
        keys[i] = key


def _cells(left: np.ndarray, right: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys of cells that are ``edge`` wide, such that neighbours along the last axis follow each other; and offsets."""
    dim = left.shape[1] - 1
    low = np.minimum(left[:, :dim].min(axis=0), right[:, :dim].min(axis=0))
    high = np.maximum(left[:, :dim].max(axis=0), right[:, :dim].max(axis=0))
    span = high / 2 - low / 2  # halves, so that no difference is infinite
    axes = np.sort(np.argsort(-span)[:_MOST_AXES])
    edge = max(edge * (1.0 + 1e-9), 2.0 * float(span.max()) / (_CELLS_OF_AXIS - 4), 1e-300)
    cells = (np.floor(2.0 * (span[axes] / edge)) + 4.0).astype(np.int64)  # one to spare on each side
    step = np.concatenate([np.cumprod(cells[:0:-1])[::-1], [1]]).astype(np.int64)
    keys = []
    for near in (left, right):
        keys.append(np.empty(len(near), np.int64))
        _keys(near, axes, low[axes], edge, step, keys[-1])
    offsets = np.array([np.dot(step[:-1], shift) for shift in product((-1, 0, 1), repeat=len(axes) - 1)], np.int64)
    return keys[0], keys[1], np.sort(offsets)


def _classes(reach: np.ndarray, radius: float) -> Iterator[np.ndarray]:
    """Rows by how far they reach: all that is up to the usual, then by factors."""
    if not len(reach):
        return
    level = max(radius, float(np.median(reach)))
    least, most = -1.0, float(reach.max())
    while least < most:
        if level >= most / _COARSER:
            level = most
        rows = np.flatnonzero((reach > least) & (reach <= level))
        if len(rows):
            yield rows
        least, level = level, level * _COARSER if level > 0.0 else most


def near_pairs(left: Parts, right: Parts, limit: Limits, places: tuple[Where, Where] | None = None) -> Found:
    """All pairs that are kept, each once, with the counts of every rule."""
    dim = left.mean.shape[1]
    counters = no_counts()
    sides = []
    for position, parts in enumerate((left, right)):
        rows, usable = describe(parts, limit, None if places is None else places[position])
        chosen = np.flatnonzero(usable)
        classes = [chosen[each] for each in _classes(rows.near[chosen, dim], limit.radius)]
        sides.append((rows, classes))
    mixed = bool((np.diff(left.start) != 1).any() or (np.diff(right.start) != 1).any())
    found: list[Output] = []
    room = room_for(dim)
    for mine, theirs in product(sides[0][1], sides[1][1]):
        found += _matched(sides[0][0], mine, sides[1][0], theirs, limit, mixed, places is not None, room, counters)
    pairs = Output(*(np.concatenate(column) for column in zip(_no_room(0), *found, strict=True)))
    counters.kept += len(pairs.left)
    return Found(pairs, counters)


class Found(NamedTuple):
    """Pairs, and what became of the candidates."""

    pairs: Output
    counters: Counters


def _no_room(size: int) -> Output:
    return Output(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), np.empty(size, np.int8))


def _matched(
    left: Rows, mine: np.ndarray, right: Rows, theirs: np.ndarray, limit: Limits, mixed: bool, placed: bool,
    room: Room, counters: Counters,
) -> Iterator[Output]:  # fmt: skip
    """The pairs of two classes of rows."""
    dim = left.near.shape[1] - 1
    edge = limit.radius + left.near[mine, dim].max() + right.near[theirs, dim].max()
    one, other = left.near[mine], right.near[theirs]
    left_key, right_key, offsets = _cells(one, other, float(edge))
    orders = np.argsort(left_key), np.argsort(right_key)
    mine, theirs = mine[orders[0]], theirs[orders[1]]
    left_key, right_key = left_key[orders[0]], right_key[orders[1]]
    ours, others = _take(left, mine), _take(right, theirs)
    cursor, begin = np.zeros(len(offsets), np.int64), 0
    out = _no_room(max(_FIRST_ROOM, len(mine) + len(mine) // 2))
    while True:
        counts = np.zeros(2 * _COUNTS, np.int64)
        before = begin
        begin, kept = _walk(
            dim, ours, left_key, others, right_key, offsets, cursor, begin, mixed, placed, limit, room, out, counts
        )
        _count(counts, counters)
        yield Output(mine[out.left[:kept]], theirs[out.right[:kept]], out.probability[:kept].copy(), out.code[:kept].copy())
        if begin == len(left_key):
            return
        if begin == before:  # one row has more partners than there is room for
            out = _no_room(2 * len(out.left))


def _count(counts: np.ndarray, counters: Counters) -> None:
    counters.candidates += int(counts[_CANDIDATES])
    counters.evaluated += int(counts[_EVALUATED])
    for rule in (REACH, SLAB, SPREAD):
        counters.rejected[POSITION_RULES[rule]] += int(counts[rule])
    counters.accepted[POSITION_RULES[INSIDE]] += int(counts[INSIDE])
