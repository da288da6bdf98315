"""The probability that two shapes are close, as a function of their shift, and tables of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare, bare_inner, inner, kernel
from haply.pruning.bounds.timing.shapes import Shapes

NO_TABLE = -1
_BINS = 2
"""Bins of equal width in a table, for each of its cells: few, so that many tables stay in the cache."""
SURELY_POSITIVE = 1e-12
"""A look-up below this may be zero up to rounding; where that matters the exact formula is used."""
_EDGE = 1e-9
"""Shifts this close to the end of an interval (as a share of the table's width) are decided by the exact value."""


@bare_inner  # inlined, so that the compiler knows `closed`: a flag in this loop takes a quarter of the time
def mass_below(x, u, y, v, shift, closed):
    """Return ``P(X <= Y + shift)`` (``<`` if not closed) for shapes ``u`` and ``v``, by one walk along both.

    Only positive terms are added: nothing cancels.
    """
    total, held = 0.0, 0.0
    i, end = x.start[u], x.start[u + 1]
    for j in range(y.start[v], y.start[v + 1]):
        low, high = y.low[j] + shift, y.high[j] + shift
        while i < end and (x.high[i] < low or (x.high[i] == low and (closed or x.low[i] < x.high[i]))):
            held += x.mass[i]
            i += 1
        if not high > low:
            inside = held
            if i < end and x.low[i] < low:
                inside += x.mass[i] * (low - x.low[i]) / (x.high[i] - x.low[i])
            total += y.mass[j] * inside
            continue
        area, place, below, k = 0.0, low, held, i
        while place < high:
            if k == end:
                area += (high - place) * below
                break
            if x.low[k] > place:
                stop = min(high, x.low[k])
                area += (stop - place) * below
                place = stop
                continue
            if not x.high[k] > x.low[k]:
                below += x.mass[k]
                k += 1
                continue
            stop = min(high, x.high[k])
            middle = 0.5 * ((place - x.low[k]) + (stop - x.low[k])) / (x.high[k] - x.low[k])
            area += (stop - place) * (below + x.mass[k] * middle)
            place = stop
            if x.high[k] <= stop:
                below += x.mass[k]
                k += 1
        total += y.mass[j] * (area / (high - low))
    return total


@bare
def _density(x, u, y, v, shift):
    """Return the density of ``X - Y`` at ``shift``, for shapes without points of positive mass."""
    total = 0.0
    i, j, end, last = x.start[u], y.start[v], x.start[u + 1], y.start[v + 1]
    while i < end and j < last:
        low, high = y.low[j] + shift, y.high[j] + shift
        shared = min(x.high[i], high) - max(x.low[i], low)
        if shared > 0.0:
            total += shared / (x.high[i] - x.low[i]) * (x.mass[i] * y.mass[j] / (y.high[j] - y.low[j]))
        if x.high[i] < high:
            i += 1
        else:
            j += 1
    return total


@bare
def near(x, u, y, v, shift, window):
    """Return ``J(shift)``: the probability that two values differ by at most the window if ``v`` is shifted."""
    return max(0.0, mass_below(x, u, y, v, shift + window, True) - mass_below(x, u, y, v, shift - window, False))


@kernel
def _distinct(values):
    values.sort()
    kept = min(1, len(values))
    for k in range(1, len(values)):
        if values[k] > values[kept - 1]:
            values[kept] = values[k]
            kept += 1
    return values[:kept]


@kernel
def _ends_of(x, u):
    """Return all ends of a shape, each once: mostly a bucket begins where the one before ends."""
    found = np.empty(2 * (x.start[u + 1] - x.start[u]))
    n = 0
    for k in range(x.start[u], x.start[u + 1]):
        for end in (x.low[k], x.high[k]):
            if n == 0 or end > found[n - 1]:
                found[n] = end
                n += 1
    return found[:n]


@kernel
def _differences(x, u, y, v):
    """Return the differences of all ends of ``u`` and of ``v``, ascending and distinct."""
    mine, theirs = _ends_of(x, u), _ends_of(y, v)
    found = np.empty(len(mine) * len(theirs))
    for i in range(len(mine)):
        for j in range(len(theirs)):
            found[i * len(theirs) + j] = mine[i] - theirs[j]
    return _distinct(found)


@kernel
def _merged(values, shift):
    """Return ``values - shift`` and ``values + shift``, ascending and distinct."""
    found = np.empty(2 * len(values))
    n = low = high = 0
    while high < len(values):
        if low < len(values) and values[low] - shift <= values[high] + shift:
            place = values[low] - shift
            low += 1
        else:
            place = values[high] + shift
            high += 1
        if n == 0 or place > found[n - 1]:
            found[n] = place
            n += 1
    return found[:n]


@inner
def _through(one, two, three):
    """Return ``a, b, c`` of the quadratic ``a t^2 + b t + c`` with these values at 1/4, 1/2 and 3/4."""
    a = 8.0 * (one + three - 2.0 * two)
    b = 2.0 * (three - one) - a
    return a, b, two - 0.25 * a - 0.5 * b


@inner
def _moved(ends, pieces, k, shift, begin, width, found, sign):
    """Add (or subtract) the function at ``place + shift`` to the quadratic in ``t``, for places ``begin + width t``.

    Piece ``k`` lies between ends ``k - 1`` and ``k``: the function is 0 below the first end, and 1 above the last.
    """
    if k == 0:
        return
    if k == len(ends):
        found[2] += sign
        return
    length = ends[k] - ends[k - 1]
    first, scale = (begin + shift - ends[k - 1]) / length, width / length
    a, b, c = pieces[k - 1, 0], pieces[k - 1, 1], pieces[k - 1, 2]
    found[0] += sign * a * scale * scale
    found[1] += sign * (2.0 * a * first + b) * scale
    found[2] += sign * ((a * first + b) * first + c)


@kernel
def _quadratics(x, u, y, v, window):
    """Return ``(ends, quadratics)`` of ``J``: where it may change, ascending, and its coefficients between them.

    If points meet points ``J`` jumps at the ends, so it is sampled between them. If not, it is the difference of two
    values of the distribution function of ``X - Y``, which has far fewer pieces. Without points the density of
    ``X - Y`` is continuous and linear on each piece, so its values at the ends are enough.
    """
    differences = _differences(x, u, y, v)
    m = len(differences)
    ends = _merged(differences, window)
    jumps = x.points[u] and y.points[v]
    pieces = np.empty((max(0, m - 1), 3))
    if not (x.points[u] or y.points[v]):
        total, density = 0.0, 0.0
        for k in range(m - 1):
            width = differences[k + 1] - differences[k]
            following = _density(x, u, y, v, differences[k + 1]) if k + 2 < m else 0.0
            pieces[k, 0], pieces[k, 1], pieces[k, 2] = 0.5 * width * (following - density), width * density, total
            total += 0.5 * width * (density + following)
            density = following
    elif not jumps:
        for k in range(m - 1):
            begin, width = differences[k], differences[k + 1] - differences[k]
            pieces[k, 0], pieces[k, 1], pieces[k, 2] = _through(
                mass_below(x, u, y, v, begin + 0.25 * width, True),
                mass_below(x, u, y, v, begin + 0.5 * width, True),
                mass_below(x, u, y, v, begin + 0.75 * width, True),
            )
    found = np.zeros((len(ends) - 1, 3))
    above = below = 0
    for k in range(len(ends) - 1):
        begin, width = ends[k], ends[k + 1] - ends[k]
        if jumps:
            found[k, 0], found[k, 1], found[k, 2] = _through(
                near(x, u, y, v, begin + 0.25 * width, window),
                near(x, u, y, v, begin + 0.5 * width, window),
                near(x, u, y, v, begin + 0.75 * width, window),
            )
            continue
        middle = begin + 0.5 * width
        while above < m and differences[above] <= middle + window:
            above += 1
        while below < m and differences[below] <= middle - window:
            below += 1
        _moved(differences, pieces, above, window, begin, width, found[k], 1.0)
        _moved(differences, pieces, below, -window, begin, width, found[k], -1.0)
    return ends, found


@bare
def _roots(a, b, c):
    """Return where ``a t^2 + b t + c`` crosses zero inside (0, 1), ascending; 2 stands for none."""
    first, second = 2.0, 2.0
    square = b * b - 4.0 * a * c
    if square >= 0.0 and not (a == 0.0 and b == 0.0):
        q = -0.5 * (b + math.copysign(math.sqrt(square), b))
        if a != 0.0 and 0.0 < q / a < 1.0:
            first = q / a
        if q != 0.0 and 0.0 < c / q < 1.0:
            second = c / q
    return (first, second) if first <= second else (second, first)


@kernel
def _level_set(x, u, y, v, window, ends, quadratics, level, alone):
    """Return the intervals with ``J >= level``; if ``alone``, also single ends where ``J`` only touches it or jumps."""
    found = np.empty(6 * len(ends) + 2)
    n = 0
    for k in range(len(ends)):
        if alone:
            n = _add(found, n, ends[k], ends[k], near(x, u, y, v, ends[k], window) >= level)
        if k + 1 == len(ends):
            break
        begin, end = ends[k], ends[k + 1]
        a, b, c = quadratics[k, 0], quadratics[k, 1], quadratics[k, 2]
        # between its ends a quadratic is above or below their values by at most a quarter of a
        if max(c, a + b + c) + 0.25 * max(0.0, -a) < level:
            continue
        if min(c, a + b + c) - 0.25 * max(0.0, a) >= level:
            n = _add(found, n, begin, end, True)
            continue
        one, two = _roots(a, b, c - level)
        cuts = (0.0, min(one, 1.0), min(two, 1.0), 1.0)
        for part in range(3):
            t0, t1 = cuts[part], cuts[part + 1]
            if t1 > t0:
                middle = 0.5 * (t0 + t1)
                inside = (a * middle + b) * middle + c >= level
                stop = end if t1 == 1.0 else begin + t1 * (end - begin)
                n = _add(found, n, begin + t0 * (end - begin), stop, inside)
    return found[:n]


@bare
def _add(ends, n, begin, end, inside):
    """Append an interval, or extend the last one; return the new count."""
    if not inside:
        return n
    if n and ends[n - 1] >= begin:
        ends[n - 1] = max(ends[n - 1], end)
        return n
    ends[n], ends[n + 1] = begin, end
    return n + 2


@kernel
def super_level(x, u, y, v, window, level):
    """Return the closed intervals of shifts with ``J(shift) >= level`` (> 0), one after the other: start, end, ...

    ``J`` may jump where points meet points, but upwards at the place itself, so the intervals are still closed.
    """
    ends, quadratics = _quadratics(x, u, y, v, window)
    return _level_set(x, u, y, v, window, ends, quadratics, level, True)


class Tables(NamedTuple):
    """Tables of pairs of shapes. ``table_of[u, v]`` is the number of a table, or -1; table ``r`` has

    * ``hull[r]``: the least and largest shift that may be kept, and between them a range of shifts that are sure to be
      kept (empty if there is none), as ``least, largest, sure from, sure to``; then the ends of its longest cell, and
      bins per unit of shift;
    * cells ``first[r]`` to ``first[r + 1]``: each with its end, and ``a, b, c`` of its quadratic in the shift minus
      this end (which is not positive);
    * bins ``first_bin[r]`` to ``first_bin[r + 1]`` of equal width over the hull without its longest cell (mostly a wide
      range in which all shifts are sure): each with the first cell it meets.
    """

    table_of: np.ndarray
    hull: np.ndarray
    first: np.ndarray
    cells: np.ndarray
    first_bin: np.ndarray
    bins: np.ndarray

    @classmethod
    def none(cls) -> Tables:
        """Return no tables, for no shapes."""
        return cls(
            np.full((0, 0), NO_TABLE, np.int64), np.empty((0, 7)), np.zeros(1, np.int64), np.empty((0, 4)),
            np.zeros(1, np.int64), np.empty(0, np.int32),
        )  # fmt: skip

    def with_more(self, x: Shapes, us: np.ndarray, y: Shapes, vs: np.ndarray, *limits: float) -> Tables:
        """Return these tables, and those for further pairs of shapes: see ``tabulate`` for the limits."""
        self.table_of[us, vs] = len(self.hull) + np.arange(len(us))
        hulls, ends, cells, last_bins, bins = tabulate_all(x, us, y, vs, *limits)
        return Tables(
            self.table_of,
            np.concatenate([self.hull, hulls]),
            np.concatenate([self.first, self.first[-1] + ends]),
            np.concatenate([self.cells, cells]),
            np.concatenate([self.first_bin, self.first_bin[-1] + last_bins]),
            np.concatenate([self.bins, bins]),
        )


@kernel
def tabulate(x, u, y, v, window, least, sure):
    """Make one table, ``(hull, cells, bins)``: shifts with ``J >= least`` are kept, those with ``J >= sure`` are sure.

    It is not for two shapes that both have points, as ``J`` jumps.
    """
    ends, quadratics = _quadratics(x, u, y, v, window)
    hull = np.array([math.inf, -math.inf, math.inf, -math.inf, 0.0, 0.0, 0.0])
    possible = _level_set(x, u, y, v, window, ends, quadratics, least, False)
    if not len(possible):
        return hull, np.zeros((1, 4)), np.zeros(1, np.int32)
    margin = _EDGE * (ends[-1] - ends[0])
    hull[0], hull[1] = possible[0] - margin, possible[-1] + margin
    safe = _level_set(x, u, y, v, window, ends, quadratics, sure, False)
    for k in range(0, len(safe), 2):  # keep the longest of them
        begin, end = safe[k] + margin, safe[k + 1] - margin
        if end >= begin and (hull[3] < hull[2] or end - begin > hull[3] - hull[2]):
            hull[2], hull[3] = begin, end
    cells = np.zeros((len(ends) + 1, 4))
    n = 0
    if hull[0] < ends[0]:  # the margin may lie beyond the ends, where J is 0
        cells[0, 0], n = ends[0], 1
    for k in range(len(ends) - 1):
        if ends[k + 1] >= hull[0] and ends[k] <= hull[1]:
            a, b, c, width = quadratics[k, 0], quadratics[k, 1], quadratics[k, 2], ends[k + 1] - ends[k]
            cells[n, 0], cells[n, 1], cells[n, 2], cells[n, 3] = (
                ends[k + 1], a / (width * width), (2.0 * a + b) / width, a + b + c,
            )  # fmt: skip
            n += 1
    if n == 0 or hull[1] > cells[n - 1, 0]:
        cells[n, 0] = hull[1] + margin
        n += 1
    hull[4] = hull[5] = hull[0]
    begin = hull[0]
    for k in range(n):
        end = min(cells[k, 0], hull[1])
        if end - begin > hull[5] - hull[4]:
            hull[4], hull[5] = begin, end
        begin = end
    count = _BINS * n
    bins = np.empty(count, np.int32)
    width, at = hull[4] - hull[0] + hull[1] - hull[5], 0
    hull[6] = count / width if width > 0.0 else 0.0
    for k in range(count):
        place = hull[0] + width * k / count
        if place > hull[4]:
            place += hull[5] - hull[4]
        while at + 1 < n and cells[at, 0] < place - margin:  # the margin is for the rounding of the bin's number
            at += 1
        bins[k] = at
    return hull, cells[:n], bins


@kernel
def tabulate_all(x, us, y, vs, window, least, sure):
    """Make tables of many pairs of shapes: hulls, where the cells of each end, cells, where its bins end, bins."""
    count, room = len(us), 0
    hulls, ends, last_bins = np.empty((count, 7)), np.empty(count, np.int64), np.empty(count, np.int64)
    for k in range(count):
        u, v = us[k], vs[k]
        room += 8 * (x.start[u + 1] - x.start[u]) * (y.start[v + 1] - y.start[v]) + 2
    cells, bins = np.empty((room, 4)), np.empty(_BINS * room, np.int32)
    n = n_bins = 0
    for k in range(count):
        hull, made, own_bins = tabulate(x, us[k], y, vs[k], window, least, sure)
        # entry by entry: numba takes seconds to compile the copy of an array into a slice, for its error message
        for column in range(7):
            hulls[k, column] = hull[column]
        for cell in range(len(made)):
            for column in range(4):
                cells[n + cell, column] = made[cell, column]
        for own_bin in range(len(own_bins)):
            bins[n_bins + own_bin] = own_bins[own_bin]
        n += len(made)
        n_bins += len(own_bins)
        ends[k], last_bins[k] = n, n_bins
    return hulls, ends, cells[:n].copy(), last_bins, bins[:n_bins].copy()


@inner
def look_up(tables, r, shift):
    """Return ``J(shift)`` by table ``r``, for a shift in its hull."""
    hull, first, cells, first_bin = tables.hull, tables.first, tables.cells, tables.first_bin
    begin = first_bin[r]
    place = min(shift, hull[r, 4]) - hull[r, 0] + max(shift - hull[r, 5], 0.0)
    share = min(max(place * hull[r, 6], 0.0), first_bin[r + 1] - begin - 1.0)
    cell, last = first[r] + tables.bins[begin + int(share)], first[r + 1] - 1
    while cell < last and cells[cell, 0] < shift:
        cell += 1
    t = shift - cells[cell, 0]
    return max(0.0, (cells[cell, 1] * t + cells[cell, 2]) * t + cells[cell, 3])
