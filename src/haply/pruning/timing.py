"""Values that are shifts of few shapes: how likely two of them are close is a function of their shift alone.

A *shape* is a row of buckets and points whose last end is at 0. For two shapes and a window ``d`` the probability
``J(s)`` that the values differ by at most ``d``, where the right one is shifted by ``s`` against the left one, is
piecewise quadratic in ``s``. It is tabulated once; then each pair of events takes one look-up, and where only the
verdict matters two comparisons: the shifts with ``J(s) >= p`` are a few intervals.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.models import Histogram, OneDimensional
from haply.numerics.components import NORMAL
from haply.numerics.jit import bare, inner, kernel
from haply.numerics.rows import Components
from haply.pruning.cascade import Counters

CORE, SHIFT, EXACT, WINDOW = 1, 2, 3, 0
RULES = {CORE: "core", SHIFT: "shift"}
DECIDED_BY = {EXACT: "exact value", **RULES}
"""What decided a kept pair, by its code."""

NO_SHAPE = -1
_NO_TABLE = -1
BINS = 256
"""Bins of equal width over a table, each with the first cell that it meets."""

_SURELY_POSITIVE = 1e-12
"""A look-up below this may be zero but for rounding; where that matters the exact formula is asked."""

_EDGE = 1e-9
"""Shifts this close to the end of an interval (as a share of the table's width) are decided by the value."""


class Shapes(NamedTuple):
    """Buckets of many shapes, ascending in each: ``low < high``, or ``low = high`` for a point; the last high is 0."""

    start: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mass: np.ndarray
    given: np.ndarray
    """The mass as it was given, not yet divided by its sum."""
    points: np.ndarray
    """Whether a shape has points of positive mass."""


class Rows(NamedTuple):
    """Buckets of many rows: bucket ``k`` of row ``i`` reaches from ``low[k + step * i]`` to ``high[k + step * i]``."""

    start: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mass: np.ndarray
    kind: np.ndarray
    """Of each bucket; empty if all are buckets with a width."""
    ordered: bool
    step: int

    @classmethod
    def of_histogram(cls, model: Histogram) -> Rows:
        """Histograms as they are: a bucket ends where the next one begins."""
        edges, probs = model.edges, model.probs
        return cls(probs.start, edges.values, edges.values[1:], probs.values, np.empty(0, np.int8), True, 1)

    @classmethod
    def of_components(cls, rows: Components) -> Rows:
        """Any other model."""
        return cls(rows.start, rows.low, rows.high, rows.weight, rows.kind, rows.ordered, 0)


# -- finding the shapes ------------------------------------------------------------------------------------------------


class ShapeList:
    """Numbers for shapes: rows that are shifts of each other get the same one.

    Shifts are told by the differences of a row's ends, as doubles. Of times far from zero all have the same few bits
    after the point, and so the same differences.
    """

    def __init__(self) -> None:
        self.count = 0
        self._table = np.full(64, -1, np.int64)
        self._hash = np.empty(32, np.uint64)
        self.shapes = Shapes(np.zeros(33, np.int64), *(np.empty(64) for _ in range(4)), np.empty(32, np.bool_))  # type: ignore[call-arg]

    def number(self, model: OneDimensional, most: int) -> tuple[np.ndarray, np.ndarray]:
        """For each row the number of its shape and the place of its last end; no more than ``most`` new shapes.

        Rows with normal parts, and those for which there is no room, have ``NO_SHAPE``.
        """
        rows = Rows.of_histogram(model) if isinstance(model, Histogram) else Rows.of_components(model.components)
        count = len(rows.start) - 1
        numbers, at = np.empty(count, np.int64), np.empty(count)
        self._grow(min(count, most), len(rows.mass))
        self.count = _number(rows, self.shapes, self._table, self._hash, self.count, most, numbers, at)
        return numbers, at

    def _grow(self, shapes: int, buckets: int) -> None:
        """Room for so many more, and a hash table at most half full."""
        wanted, used = self.count + shapes, int(self.shapes.start[self.count])
        if wanted > len(self._hash):
            capacity = 2 * wanted
            start, points = np.zeros(capacity + 1, np.int64), np.empty(capacity, np.bool_)
            hashes = np.empty(capacity, np.uint64)
            start[: self.count + 1] = self.shapes.start[: self.count + 1]
            points[: self.count], hashes[: self.count] = self.shapes.points[: self.count], self._hash[: self.count]
            self.shapes, self._hash = self.shapes._replace(start=start, points=points), hashes
            self._table = np.full(1 << (2 * capacity - 1).bit_length(), -1, np.int64)
            _rehash(self._table, hashes, self.count)
        if used + buckets > len(self.shapes.low):
            for name in ("low", "high", "mass", "given"):
                wider = np.empty(2 * (used + buckets))
                wider[:used] = getattr(self.shapes, name)[:used]
                self.shapes = self.shapes._replace(**{name: wider})


@kernel
def _rehash(table, hashes, count):
    mask = np.uint64(len(table) - 1)
    for shape in range(count):
        slot = hashes[shape] & mask
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = shape


@kernel
def _number(rows, shapes, table, hashes, count, most, numbers, at):
    limit = min(count + most, len(hashes))
    mask = np.uint64(len(table) - 1)
    prime = np.uint64(0x9E3779B97F4A7C15)
    scratch = np.empty(2)
    bits = scratch.view(np.uint64)
    for i in range(len(rows.start) - 1):
        first, last, shift = rows.start[i], rows.start[i + 1], rows.step * i
        end = rows.high[last - 1 + shift]
        at[i] = end
        numbers[i] = NO_SHAPE
        plain = rows.ordered or last - first == 1
        if len(rows.kind):
            for k in range(first, last):
                plain &= rows.kind[k] != NORMAL
        if not plain:
            continue
        # length, first and last mass tell most shapes apart; the others are compared
        scratch[0], scratch[1] = rows.low[first + shift] - end, rows.mass[first]
        code = (np.uint64(last - first) ^ bits[0]) * prime
        code ^= code >> np.uint64(29)
        scratch[0] = rows.mass[last - 1]
        code = (code ^ bits[1] ^ (bits[0] << np.uint64(1))) * prime
        code ^= code >> np.uint64(29)
        slot = code & mask
        while table[slot] >= 0:
            shape = table[slot]
            if hashes[shape] == code and _same(rows, first, last, shift, end, shapes, shape):
                numbers[i] = shape
                break
            slot = (slot + np.uint64(1)) & mask
        if numbers[i] == NO_SHAPE and count < limit:
            begin, whole, points = shapes.start[count], 0.0, False
            for k in range(first, last):
                whole += rows.mass[k]
            for k in range(first, last):
                points |= rows.mass[k] > 0.0 and rows.high[k + shift] == rows.low[k + shift]
                shapes.low[begin + k - first] = rows.low[k + shift] - end
                shapes.high[begin + k - first] = rows.high[k + shift] - end
                shapes.given[begin + k - first] = rows.mass[k]
                shapes.mass[begin + k - first] = rows.mass[k] / whole
            shapes.start[count + 1] = begin + last - first
            shapes.points[count] = points
            hashes[count], table[slot], numbers[i] = code, count, count
            count += 1
    return count


@inner
def _same(rows, first, last, shift, end, shapes, shape):
    begin = shapes.start[shape]
    if shapes.start[shape + 1] - begin != last - first:
        return False
    for k in range(last - first):
        mine, theirs = begin + k, first + k
        if shapes.low[mine] != rows.low[theirs + shift] - end or shapes.high[mine] != rows.high[theirs + shift] - end:
            return False
        if shapes.given[mine] != rows.mass[theirs]:
            return False
    return True


# -- the probability as a function of the shift ------------------------------------------------------------------------


@bare
def _below(x, u, y, v, shift, closed):
    """``P(X <= Y + shift)`` (``<`` if not closed) for shapes ``u`` and ``v``, by walking along both once.

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
def near(x, u, y, v, shift, window):
    """``J(shift)``: how likely the two differ by at most the window when ``v`` is shifted against ``u``."""
    return max(0.0, _below(x, u, y, v, shift + window, True) - _below(x, u, y, v, shift - window, False))


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
    """All ends of a shape, each once: mostly a bucket begins where the one before ends."""
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
    """The differences of all ends of ``u`` and of ``v``, ascending and distinct."""
    mine, theirs = _ends_of(x, u), _ends_of(y, v)
    found = np.empty(len(mine) * len(theirs))
    for i in range(len(mine)):
        for j in range(len(theirs)):
            found[i * len(theirs) + j] = mine[i] - theirs[j]
    return _distinct(found)


@kernel
def _merged(values, shift):
    """``values - shift`` and ``values + shift``, ascending and distinct."""
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
    """``a, b, c`` of the quadratic ``a t^2 + b t + c`` with these values at 1/4, 1/2 and 3/4."""
    a = 8.0 * (one + three - 2.0 * two)
    b = 2.0 * (three - one) - a
    return a, b, two - 0.25 * a - 0.5 * b


@inner
def _moved(ends, pieces, k, shift, begin, width, found, sign):
    """Add (or subtract) what lies at ``place + shift`` to the quadratic in ``t``, for places ``begin + width t``.

    Piece ``k`` holds between ends ``k - 1`` and ``k``: nothing below the first end, everything above the last.
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
    """``(ends, quadratics)`` of ``J``: where it may change, ascending, and its coefficients between them.

    If points meet points ``J`` jumps at the ends, so it is sampled between them. If not, it is the difference of two
    values of the distribution function of ``X - Y``, which has far fewer pieces to be computed.
    """
    differences = _differences(x, u, y, v)
    m = len(differences)
    ends = _merged(differences, window)
    jumps = x.points[u] and y.points[v]
    pieces = np.empty((max(0, m - 1), 3))
    if not jumps:
        for k in range(m - 1):
            begin, width = differences[k], differences[k + 1] - differences[k]
            pieces[k] = _through(
                _below(x, u, y, v, begin + 0.25 * width, True),
                _below(x, u, y, v, begin + 0.5 * width, True),
                _below(x, u, y, v, begin + 0.75 * width, True),
            )
    found = np.zeros((len(ends) - 1, 3))
    above = below = 0
    for k in range(len(ends) - 1):
        begin, width = ends[k], ends[k + 1] - ends[k]
        if jumps:
            found[k] = _through(
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
    """Where ``a t^2 + b t + c`` crosses zero inside (0, 1), ascending; 2 stands for none."""
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
    """``alone``: also an end by itself, where ``J`` only touches the level or jumps."""
    found = np.empty(6 * len(ends) + 2)
    n = 0
    for k in range(len(ends)):
        if alone:
            n = _add(found, n, ends[k], ends[k], near(x, u, y, v, ends[k], window) >= level)
        if k + 1 == len(ends):
            break
        begin, end = ends[k], ends[k + 1]
        a, b, c = quadratics[k, 0], quadratics[k, 1], quadratics[k, 2]
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
    """Put an interval behind the others, or make the last one longer."""
    if not inside:
        return n
    if n and ends[n - 1] >= begin:
        ends[n - 1] = max(ends[n - 1], end)
        return n
    ends[n], ends[n + 1] = begin, end
    return n + 2


@kernel
def super_level(x, u, y, v, window, level):
    """The closed intervals of shifts with ``J(shift) >= level`` (> 0), one after the other: start, end, start, ...

    ``J`` may jump where points meet points, but upwards at the place itself: the intervals are closed all the same.
    """
    ends, quadratics = _quadratics(x, u, y, v, window)
    return _level_set(x, u, y, v, window, ends, quadratics, level, True)


class Tables(NamedTuple):
    """Tables of pairs of shapes. ``table_of[u, v]`` is the number of a table, or none; table ``r`` has

    * ``hull[r]``: the least and largest shift that may be kept, and within them a range that is sure to be (an empty
      one if there is none), as ``least, largest, sure from, sure to``;
    * cells ``first[r]`` to ``first[r + 1]``: each with its end, start, 1 / width and quadratic;
    * ``bins[r]``: the first cell of each bin over the hull.
    """

    table_of: np.ndarray
    hull: np.ndarray
    first: np.ndarray
    cells: np.ndarray
    bins: np.ndarray


@kernel
def tabulate(x, u, y, v, window, least, sure):
    """One table: ``(hull, cells, bins)``. Kept are shifts with ``J >= least``; from ``sure`` on they are sure to be.

    Not for two shapes that both have points: ``J`` jumps.
    """
    ends, quadratics = _quadratics(x, u, y, v, window)
    hull = np.array([math.inf, -math.inf, math.inf, -math.inf])
    possible = _level_set(x, u, y, v, window, ends, quadratics, least, False)
    if not len(possible):
        return hull, np.empty((0, 6)), np.zeros(BINS, np.int32)
    margin = _EDGE * (ends[-1] - ends[0])
    hull[0], hull[1] = possible[0] - margin, possible[-1] + margin
    safe = _level_set(x, u, y, v, window, ends, quadratics, sure, False)
    for k in range(0, len(safe), 2):  # the longest of them
        begin, end = safe[k] + margin, safe[k + 1] - margin
        if end >= begin and (hull[3] < hull[2] or end - begin > hull[3] - hull[2]):
            hull[2], hull[3] = begin, end
    cells = np.empty((len(ends), 6))
    n = 0
    for k in range(len(ends) - 1):
        if ends[k + 1] >= hull[0] and ends[k] <= hull[1]:
            cells[n, 0], cells[n, 1], cells[n, 2] = ends[k + 1], ends[k], 1.0 / (ends[k + 1] - ends[k])
            cells[n, 3:] = quadratics[k]
            n += 1
    if n == 0 or hull[1] > cells[n - 1, 0]:  # the margin may lie beyond all cells, where nothing is
        cells[n] = 0.0
        cells[n, 0] = math.inf
        n += 1
    bins = np.empty(BINS, np.int32)
    at = 0
    for b in range(BINS):
        place = hull[0] + (hull[1] - hull[0]) * b / BINS
        while at + 1 < n and cells[at, 0] < place:
            at += 1
        bins[b] = max(0, at - 1)  # one less, for the rounding of the bin's number
    return hull, cells[:n].copy(), bins


@kernel
def tabulate_all(x, us, y, vs, window, least, sure):
    """Tables of many pairs of shapes: hulls, where the cells of each end, cells, bins."""
    count, room = len(us), 0
    hulls, ends, bins = np.empty((count, 4)), np.empty(count, np.int64), np.empty((count, BINS), np.int32)
    for k in range(count):
        u, v = us[k], vs[k]
        room += 8 * (x.start[u + 1] - x.start[u]) * (y.start[v + 1] - y.start[v]) + 1
    cells, n = np.empty((room, 6)), 0
    for k in range(count):
        hulls[k], made, bins[k] = tabulate(x, us[k], y, vs[k], window, least, sure)
        cells[n : n + len(made)] = made
        n += len(made)
        ends[k] = n
    return hulls, ends, cells[:n].copy(), bins


@inner
def _look_up(hulls, first, cells, bins, r, shift):
    low, width = hulls[r, 0], hulls[r, 1] - hulls[r, 0]
    share = (shift - low) / width if width > 0.0 else 0.0
    cell = first[r] + bins[r, int(min(max(share, 0.0) * BINS, BINS - 1.0))]
    last = first[r + 1] - 1
    while cell < last and cells[cell, 0] < shift:
        cell += 1
    t = (shift - cells[cell, 1]) * cells[cell, 2]
    return max(0.0, (cells[cell, 3] * t + cells[cell, 4]) * t + cells[cell, 5]) if t >= 0.0 else 0.0


# -- matching ----------------------------------------------------------------------------------------------------------


class Events(NamedTuple):
    """Events in the order of group (only equal ones meet) and of ``at``, the end of their shape.

    The ends of their core are differences to it.
    """

    group: np.ndarray
    at: np.ndarray
    core_start: np.ndarray
    core_end: np.ndarray
    shape: np.ndarray


class TimingOutput(NamedTuple):
    """Kept pairs (new, old, probability or NaN, deciding rule; code 0 if still to be decided by the exact value)."""

    new: np.ndarray
    old: np.ndarray
    probability: np.ndarray
    code: np.ndarray


class Ranges(NamedTuple):
    """For each shape of the new side: shifts outside ``[least, largest]`` match nothing; all of ``sure`` do.

    ``whole``: there are tables with all that may be met.
    """

    least: np.ndarray
    largest: np.ndarray
    sure_from: np.ndarray
    sure_to: np.ndarray
    whole: np.ndarray


@inner
def _is_before(groups, places, k, group, place):
    return groups[k] < group or (groups[k] == group and places[k] < place)


@inner
def _first(groups, places, group, place, hint):
    """The first event of a group at a place or after it, searched for from ``hint`` on in growing steps."""
    low, high, step = 0, len(groups), 1
    if hint < high and _is_before(groups, places, hint, group, place):
        low = hint + 1
        while low + step <= high and _is_before(groups, places, low + step - 1, group, place):
            low += step
            step *= 2
        high = min(high, low + step - 1)
    else:
        high = hint
        while high - step >= 0 and not _is_before(groups, places, high - step, group, place):
            high -= step
            step *= 2
        low = max(low, high - step + 1)
    while low < high:
        middle = (low + high) // 2
        if _is_before(groups, places, middle, group, place):
            low = middle + 1
        else:
            high = middle
    return low


@bare
def _look_up_all(tables, shape, i, at, old_at, old_shape, begin, end, new_is_left, keep_from, out, n):
    """Pairs of a new event with all old ones of a slice, each by a look-up: no verdict is branched on.

    Returns how many pairs there are now, and how many were outside of what their table covers.
    """
    table_of, hulls, first, cells, bins = tables.table_of, tables.hull, tables.first, tables.cells, tables.bins
    beyond = 0
    for j in range(begin, end):
        if new_is_left:
            r, shift = table_of[shape, old_shape[j]], old_at[j] - at
        else:
            r, shift = table_of[old_shape[j], shape], at - old_at[j]
        inside = hulls[r, 0] <= shift <= hulls[r, 1]
        probability = _look_up(hulls, first, cells, bins, r, shift) if inside else 0.0
        out.new[n], out.old[n], out.probability[n], out.code[n] = i, j, min(1.0, probability), EXACT
        n += 1 if probability >= keep_from else 0
        beyond += 0 if inside else 1
    return n, beyond


@bare
def match_times(
    new, begin, end, old, new_is_left, x, y, tables, ranges, window, slack, keep_from, sure_value, hits, out, n, counts
):
    """Pairs of new events, ``begin`` to ``end``, with old ones of the other side that are near in time.

    ``x`` and ``y`` are the shapes of left and right, ``ranges`` those of the new side. The output has ``n`` pairs
    already. Stops when it may overflow; returns where, how many pairs there are, and the most of ``hits``, which counts
    how often a pair of shapes has met without a table. ``counts`` gets what each rule rejected and accepted, the pairs
    looked at, and those taken unseen. ``sure_value`` is the probability of sure pairs, NaN if it is not wanted.
    """
    size = len(old.at)
    old_group, old_at, old_start, old_end, old_shape = old.group, old.at, old.core_start, old.core_end, old.shape
    table_of, hulls, first, cells, bins = tables.table_of, tables.hull, tables.first, tables.cells, tables.bins
    out_new, out_old, out_probability, out_code = out.new, out.old, out.probability, out.code
    longest_before, longest_after = 0.0, -math.inf
    for j in range(size):
        longest_before = min(longest_before, old_start[j])
        longest_after = max(longest_after, old_end[j])
    hint = sure_hint = 0
    plain = keep_from > 0.0 and not math.isnan(sure_value)
    i, hottest, looked_at, untested = begin, 0, 0, 0
    rejected, accepted, computed, dismissed, apart = 0, 0, 0, 0, 0
    while i < end and n + size <= len(out_new):
        group, at, shape = new.group[i], new.at[i], new.shape[i]
        from_here, to_here = at + new.core_start[i] - window - slack, at + new.core_end[i] + window + slack
        lowest, highest = from_here - longest_after, to_here - longest_before
        sure_begin = sure_end = -1
        if shape >= 0:
            lowest = max(lowest, at + ranges.least[shape] - slack)
            highest = min(highest, at + ranges.largest[shape] + slack)
            sure_from, sure_to = at + ranges.sure_from[shape] + slack, at + ranges.sure_to[shape] - slack
            if sure_from <= sure_to:  # what lies there is taken without a look at it
                j = _first(old_group, old_at, group, sure_from, sure_hint)
                sure_begin = sure_hint = j
                while j < size and old_at[j] <= sure_to and old_group[j] == group:
                    out_new[n], out_old[n], out_probability[n], out_code[n] = i, j, sure_value, SHIFT
                    n += 1
                    j += 1
                sure_end = j
                untested += sure_end - sure_begin
        j = hint = _first(old_group, old_at, group, lowest, hint)
        if shape >= 0 and ranges.whole[shape] and plain:
            if sure_end <= sure_begin:
                sure_begin = sure_end = size
            last = max(j, sure_end)
            while last < size and old_at[last] <= highest and old_group[last] == group:
                last += 1
            if sure_begin == size:
                sure_begin = sure_end = last
            before = n
            n, beyond = _look_up_all(
                tables, shape, i, at, old_at, old_shape, j, sure_begin, new_is_left, keep_from, out, n
            )
            n, more = _look_up_all(
                tables, shape, i, at, old_at, old_shape, max(j, sure_end), last, new_is_left, keep_from, out, n
            )
            seen = max(0, sure_begin - j) + last - max(j, sure_end)
            looked_at += seen
            rejected += beyond + more
            computed += n - before
            dismissed += seen - (n - before) - beyond - more
            i += 1
            continue
        while j < size:
            if sure_end > j >= sure_begin:
                j = sure_end
                continue
            place, other = old_at[j], old_shape[j]
            if place > highest or old_group[j] != group:
                break
            here = j
            j += 1
            looked_at += 1
            if place + old_end[here] < from_here or place + old_start[here] > to_here:
                apart += 1
                continue
            out_new[n], out_old[n], out_probability[n], out_code[n] = i, here, math.nan, 0
            if shape < 0 or other < 0:
                n += 1
                continue
            u, v = (shape, other) if new_is_left else (other, shape)
            shift = place - at if new_is_left else at - place
            r = table_of[u, v]
            if r < 0:
                hits[u, v] += 1
                hottest = max(hottest, hits[u, v])
                if x.points[u] and y.points[v]:  # ties are decided by the values themselves
                    n += 1
                    continue
                probability = near(x, u, y, v, shift, window)
            else:
                if shift < hulls[r, 0] or shift > hulls[r, 1]:
                    rejected += 1
                    continue
                if hulls[r, 2] <= shift <= hulls[r, 3] and math.isnan(sure_value):
                    accepted += 1
                    out_code[n] = SHIFT
                    n += 1
                    continue
                probability = _look_up(hulls, first, cells, bins, r, shift)
            if keep_from <= 0.0 and probability < _SURELY_POSITIVE:
                n += 1
            elif probability >= keep_from:
                computed += 1
                out_probability[n], out_code[n] = min(1.0, probability), EXACT
                n += 1
            else:
                dismissed += 1
        i += 1
    counts[WINDOW, 0] += looked_at + untested
    counts[WINDOW, 1] += untested
    counts[CORE, 0] += apart
    counts[SHIFT, 0] += rejected
    counts[SHIFT, 1] += accepted + untested
    counts[EXACT, 0] += dismissed
    counts[EXACT, 1] += computed
    return i, n, hottest


def counters_of(counts: np.ndarray, kept: int) -> Counters:
    """What was counted, by names."""
    names = tuple(RULES.values())
    counters = Counters(names, names)
    for code, name in RULES.items():
        counters.rejected[name], counters.accepted[name] = (int(count) for count in counts[code])
    counters.candidates, counters.evaluated, counters.kept = int(counts[WINDOW, 0]), int(counts[EXACT].sum()), kept
    return counters
