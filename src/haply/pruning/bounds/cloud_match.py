"""Find near pairs of clouds: a coarse test of many objects, then the rules for the pairs that pass it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare, bare_fused, inner, kernel
from haply.probability.distance import narrow_room
from haply.pruning.bounds.cloud_rules import (
    BALLS,
    BINS,
    CORE,
    EXACT,
    MOMENTS,
    SPHERES,
    WINDOW,
    RuleScratch,
    decide,
    least_kept,
    moments_verdict,
    spheres_bound,
)
from haply.pruning.bounds.clouds import EQUAL, RADIUS, WHOLE
from haply.pruning.candidates.grid import Grid, empty_grid, objects_near
from haply.pruning.ownership import owns

_WORTH_A_TABLE = 16
"""From this many new objects in a batch on, a test in single precision pays."""


class Search(NamedTuple):
    """How candidates are found: by the grid for a group of new objects (from ``begin`` on) at a time, or among all."""

    by_grid: bool
    grid: Grid
    widest: float
    begin: int
    ends: np.ndarray
    centres: np.ndarray
    radii: np.ndarray


LOOK_AT_ALL = Search(False, empty_grid(1, 1.0), 0.0, 0, np.empty(0, np.int64), np.empty((0, 1)), np.empty(0))
"""The search without a grid."""


class CloudPairs(NamedTuple):
    """Kept pairs: numbers of the new and of the stored object, probability (NaN if not computed), deciding rule."""

    new: np.ndarray
    old: np.ndarray
    probability: np.ndarray
    code: np.ndarray


class CloudScratch(NamedTuple):
    """Arrays for one new object: a number and a byte for each stored object, and lists of some of these."""

    squares: np.ndarray
    close: np.ndarray
    candidates: np.ndarray
    slots: np.ndarray
    centres: np.ndarray
    corners: np.ndarray
    span: np.ndarray
    table: np.ndarray
    work: RuleScratch


@bare_fused
def _close_in_space(near, i, others, first, touching, level, slope, close):
    """Flag centres of stored objects within the reach of two cores, and not beyond the limit from variances.

    The second test is negated, as that limit may be NaN if a variance is infinite.
    """
    last = first + len(close)
    a, b, c = near[0, i], near[1, i], near[2, i]
    xs, ys, zs = others[0, first:last], others[1, first:last], others[2, first:last]
    radii, variances = others[3, first:last], others[4, first:last]
    for m in range(len(close)):
        u, v, w, reach = a - xs[m], b - ys[m], c - zs[m], touching + radii[m]
        square = u * u + v * v + w * w
        close[m] = (square <= reach * reach) & (not square > level + slope * variances[m])


@bare_fused
def _close_anywhere(near, i, others, first, touching, level, slope, close, squares):
    """Do as ``_close_in_space`` in any number of dimensions, coordinate by coordinate."""
    dim, last = len(near) - 6, first + len(close)
    squares[:] = 0.0
    for c in range(dim):
        a, ys = near[c, i], others[c, first:last]
        for m in range(len(squares)):
            u = a - ys[m]
            squares[m] += u * u
    radii, variances = others[dim, first:last], others[dim + 1, first:last]
    for m in range(len(close)):
        reach = touching + radii[m]
        close[m] = (squares[m] <= reach * reach) & (not squares[m] > level + slope * variances[m])


@bare_fused
def _close_in_singles(table, a, b, c, touching, level, slope, close):
    """Do as ``_close_in_space`` by a table in single precision."""
    xs, ys, zs, radii, variances = table[0], table[1], table[2], table[3], table[4]
    for m in range(len(close)):
        u, v, w, reach = a - xs[m], b - ys[m], c - zs[m], touching + radii[m]
        square = u * u + v * v + w * w
        close[m] = (square <= reach * reach) & (not square > level + slope * variances[m])


@bare
def _tabulate(near, first, last, table):
    """Write centres relative to the first one, cores and variances as singles; return the largest length among them."""
    largest = 0.0
    for r in range(5):
        origin = near[r, first] if r < 3 else 0.0
        for m in range(first, last):
            value = near[r, m] - origin
            table[r, m - first] = np.float32(value)
            largest = max(largest, abs(value) if r < 4 else math.sqrt(value))
    return largest


@bare
def _first_look(near, i, others, first, touching, level, slope, table, largest, close):
    """Do as ``_close_in_space`` in singles, with room for their errors; return False if numbers are out of range.

    Coordinates of up to R are rounded by R 2^-24 at most, twice, as is their difference; so a distance d is computed as
    less than d + e, with e = R 2^-20, and its square as less than (1 + 1e-4) d^2 + 2e4 e^2. The other errors are
    relative. The caller tests the remaining objects in doubles.
    """
    a, b, c = near[0, i] - others[0, first], near[1, i] - others[1, first], near[2, i] - others[2, first]
    extent = max(largest, abs(a), abs(b), abs(c), near[3, i])
    error = extent * 2.0**-20
    if not (extent < 1e15 and touching < 1e15 and (level < 1e30 or level == math.inf) and slope < 1e15):
        return False
    _close_in_singles(
        table, np.float32(a), np.float32(b), np.float32(c), np.float32((touching + error) * (1.0 + 1e-4) + error),
        np.float32((level + 2e4 * error * error) * (1.0 + 1e-3)), np.float32(slope * (1.0 + 1e-3)), close,
    )  # fmt: skip
    return True


@bare
def _in_time(times, time, window, close):
    """Unflag objects that are not in the window; return how many are in it."""
    inside = 0
    for m in range(len(times)):
        here = 1 if abs(time - times[m]) <= window else 0
        inside += here
        close[m] &= here
    return inside


@bare
def _all_near(question, new, i, stored, first, last, span, table, window, slack, squares, close, candidates):
    """Find candidates of a new object among all stored ones, in loops that the compiler vectorises.

    ``close`` is room for a byte per object and seven more: eight are read as one number, which is mostly 0. ``span``
    has the first and last time of the stored objects, their largest core, and the largest length in ``table``. The
    table, if it is not empty, is for tests in single precision.
    """
    near, others = new.near, stored.near
    dim, size = len(near) - 6, last - first
    variance, time = near[dim + 1, i], near[dim + 2, i]
    base, stretch = question.within + slack, 1.0 + 1e-12
    touching, slope, level = base + near[dim, i], 0.0, math.inf
    if question.core:
        # (base + k sqrt(V))^2 without the root: sqrt(V) <= (V / q + q) / 2 for any q; here q is that of V = 2 variance
        if question.spread < 1e150 and base < 1e150:
            root = math.sqrt(2.0 * variance) + 1e-150
            slope = stretch * question.spread * (question.spread + base / root)
            level = stretch * base * (base + question.spread * root) + slope * variance
    elif not question.balls:
        touching = math.inf
    touching += 1e-12 * (touching + span[2])
    in_singles = len(table) > 0 and _first_look(
        near, i, others, first, touching, level, slope, table, span[3], close[:size]
    )
    if dim != 3:
        _close_anywhere(near, i, others, first, touching, level, slope, close[:size], squares)
    elif not in_singles:
        _close_in_space(near, i, others, first, touching, level, slope, close[:size])
    inside = size
    if not (abs(time - span[0]) <= window and abs(time - span[1]) <= window):
        inside = _in_time(others[dim + 2, first:last], time, window, close[:size])
    found = 0
    for block, flags in enumerate(close.view(np.uint64)):
        if flags:
            for m in range(8 * block, min(8 * block + 8, size)):
                candidates[found] = m
                found += close[m]
    kept = 0
    for k in range(found):
        m, square = candidates[k], 0.0
        for c in range(dim):
            u = near[c, i] - others[c, first + m]
            square += u * u
        squares[m] = square
        reach = touching + others[dim, first + m]
        candidates[kept] = m
        if not in_singles or (square <= reach * reach and not square > level + slope * others[dim + 1, first + m]):
            kept += 1
    return kept, inside


@bare
def _span(times, cores, span):
    """Write the first and the last of some times, and the largest core."""
    span[0], span[1], span[2] = math.inf, -math.inf, 0.0
    for m in range(len(times)):
        span[0], span[1], span[2] = min(span[0], times[m]), max(span[1], times[m]), max(span[2], cores[m])


@bare
def _some_near(question, new, i, stored, first, window, slack, slots, count, squares, candidates):
    """Find candidates of a new object among given stored ones."""
    dim = len(new.near) - 6
    radius, variance, time = new.near[dim, i], new.near[dim + 1, i], new.near[dim + 2, i]
    found = 0
    for k in range(count):
        j = slots[k]
        square = 0.0
        for c in range(dim):
            u = new.near[c, i] - stored.near[c, j]
            square += u * u
        reach = radius + stored.near[dim, j]
        if question.core:
            reach = min(reach, question.spread * math.sqrt(variance + stored.near[dim + 1, j]))
        reach += question.within + slack
        near = square <= reach * reach * (1.0 + 1e-12) or not (question.core or question.balls)
        squares[j - first] = square
        candidates[found] = j - first
        found += 1 if near and abs(time - stored.near[dim + 2, j]) <= window else 0
    return found


@inner
def _is_ours(near, i, others, j, dim):
    """Tell whether two objects are of one group, and this cell owns their pair."""
    if near[dim + 5, i] != others[dim + 5, j]:
        return False
    return owns(near[dim + 3, i], near[dim + 4, i] > 0.0, others[dim + 3, j], others[dim + 4, j] > 0.0)


@kernel
def match_clouds(question, new, begin, end, stored, first, last, window, slack, most, search, out, counts):
    """Find kept pairs of new objects, ``begin`` to ``end``, and stored ones of the other side, ``first`` to ``last``.

    Stops when the output may overflow; returns the next object, and how many pairs there are. ``most`` is the largest
    number of samples of an object. ``counts`` gets, for each rule, the pairs it rejected and accepted, and the pairs in
    the window.
    """
    dim = len(new.near) - 6
    size = last - first
    scratch = CloudScratch(
        np.empty(size), np.zeros(8 * ((size + 7) // 8), np.uint8), np.empty(size + 1, np.int64),
        np.empty(size if search.by_grid else 0, np.int64), np.empty((2, dim)), np.empty((3, dim)), np.empty(4),
        np.empty((5 if dim == 3 and not search.by_grid and end - begin >= _WORTH_A_TABLE else 0, size), np.float32),
        RuleScratch(
            np.empty(most), np.empty(most), np.empty(most), np.empty((2, most), np.int32), np.empty(BINS + 1),
            np.empty(dim), narrow_room(dim, most, most), np.zeros(1, np.bool_),
        ),
    )  # fmt: skip
    return _match(question, new, begin, end, stored, first, last, window, slack, search, scratch, out, counts)


@bare
def _match(question, new, begin, end, stored, first, last, window, slack, search, scratch, out, counts):
    dim = len(new.near) - 6
    size = last - first
    squares, close, candidates, slots = scratch.squares, scratch.close, scratch.candidates, scratch.slots
    centres, work = scratch.centres, scratch.work
    n, i, group, listed = 0, begin, -1, -1
    asked, need = -1.0, 0.0  # objects mostly have the same number of samples
    first_rule = CORE if question.core else BALLS
    base = question.within + slack
    _span(stored.near[dim + 2, first:last], stored.near[dim, first:last], scratch.span)
    if len(scratch.table):
        scratch.span[3] = _tabulate(stored.near, first, last, scratch.table)
    while i < end and n + size <= len(out.new):
        if search.by_grid:
            while group < 0 or search.ends[group] <= i - search.begin:
                group += 1
                if search.ends[group] > i - search.begin:
                    listed = objects_near(
                        search.grid, stored.near, dim, first, last, search.centres[group], base + search.radii[group],
                        search.widest, scratch.corners, slots,
                    )  # fmt: skip
        if listed >= 0:
            found, inside = _some_near(
                question, new, i, stored, first, window, slack, slots, listed, squares, candidates
            ), size  # fmt: skip
        else:
            found, inside = _all_near(
                question,
                new,
                i,
                stored,
                first,
                last,
                scratch.span,
                scratch.table,
                window,
                slack,
                squares,
                close,
                candidates,
            )
        work.has_x[0] = False
        counts[WINDOW, 0] += inside
        counts[first_rule, 0] += inside - found
        for candidate in range(found):
            square = squares[candidates[candidate]]
            j = first + candidates[candidate]
            if not _is_ours(new.near, i, stored.near, j, dim):
                counts[WINDOW, 0] -= 1
                continue
            x, y = new.facts[i], stored.facts[j]
            counted = x[EQUAL] > 0.0 and y[EQUAL] > 0.0
            whole = x[WHOLE] * y[WHOLE]
            verdict, weight, code = 0, math.nan, BALLS
            if question.balls:
                room = question.within - slack - x[RADIUS] - y[RADIUS]
                if room >= 0.0 and square <= room * room * (1.0 - 1e-12) and square < math.inf:
                    # a sure pair, which is kept if any pair can be
                    verdict, weight = (1 if whole >= least_kept(question, whole, counted) else -1), whole
            if verdict == 0 and question.moments:
                code = MOMENTS
                verdict = moments_verdict(question, x, y, new.near, i, stored.near, j, dim, slack)
                if verdict > 0 and question.exact:
                    verdict = 0
            if verdict == 0:
                if not counted or whole != asked:
                    need, asked = least_kept(question, whole, counted), whole if counted else -1.0
                reject = need if counted else question.reject_below * whole
                sure = need if counted else question.accept_from * whole
                if question.spheres:
                    code = SPHERES
                    if spheres_bound(new.pool, x, stored.pool, y, dim, math.sqrt(square), base) < reject:
                        verdict = -1
                if verdict == 0:
                    for c in range(dim):
                        centres[0, c], centres[1, c] = new.near[c, i], stored.near[c, j]
                    verdict, weight, code = decide(
                        question, new.pool, x, stored.pool, y, centres, dim, slack, reject, sure, work
                    )
                    if code == EXACT and not (weight >= need and weight > 0.0):
                        verdict = -1
            counts[code, 1 if verdict > 0 else 0] += 1
            if verdict > 0:
                out.new[n], out.old[n], out.code[n] = i, j, code
                out.probability[n] = 1.0 if weight > whole else weight / whole
                n += 1
        i += 1
    return i, n
