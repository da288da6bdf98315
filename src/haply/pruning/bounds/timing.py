"""Values that are shifts of few shapes: the probability that two of them are close depends only on their shift.

A *shape* is a row of buckets and points whose last end is at 0. For two shapes and a window ``d`` the probability
``J(s)`` that the values differ by at most ``d``, where the right one is shifted by ``s`` against the left one, is
piecewise quadratic in ``s``. It is tabulated once. Then each pair of events takes one look-up, and if only the verdict
matters, two comparisons: the shifts with ``J(s) >= p`` are a few intervals.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.models import Histogram, OneDimensional
from haply.numerics.components import NORMAL
from haply.numerics.jit import bare, bare_inner, inner, kernel, solid
from haply.numerics.rows import Components
from haply.numerics.scale import LEAST, MOST
from haply.pruning.cascade import Counters

CORE, SHIFT, EXACT, WINDOW = 1, 2, 3, 0
RULES = {CORE: "core", SHIFT: "shift"}
DECIDED_BY = {EXACT: "exact value", **RULES}
"""What decided a kept pair, by its code."""

NO_SHAPE = -1
GROUP, AT, CORE_START, CORE_END, LATEST = range(5)
"""The rows of the facts of events; see ``Events``."""
_NO_TABLE = -1
_BINS = 2
"""Bins of equal width in a table, for each of its cells: few, so that many tables stay in the cache."""

_SURELY_POSITIVE = 1e-12
"""A look-up below this may be zero up to rounding; where that matters the exact formula is used."""

_EDGE = 1e-9
"""Shifts this close to the end of an interval (as a share of the table's width) are decided by the exact value."""


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


class ShapeRows(NamedTuple):
    """Buckets of many rows: bucket ``k`` of row ``i`` reaches from ``low[k + step * i]`` to ``high[k + step * i]``."""

    start: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mass: np.ndarray
    kind: np.ndarray
    """The kind of each bucket; empty if all are buckets with a width."""
    ordered: bool
    step: int

    @classmethod
    def of_histogram(cls, model: Histogram) -> ShapeRows:
        """Return the rows of histograms: a bucket ends where the next one begins."""
        edges, probs = solid(model.edges.values), solid(model.probs.values)
        return cls(model.probs.start, edges, edges[1:], probs, np.empty(0, np.int8), True, 1)

    @classmethod
    def of_components(cls, rows: Components) -> ShapeRows:
        """Return the rows of any other model."""
        low, high, weight = map(solid, (rows.low, rows.high, rows.weight))
        return cls(rows.start, low, high, weight, rows.kind, rows.ordered, 0)


# -- finding the shapes ------------------------------------------------------------------------------------------------


class ShapeList:
    """Gives numbers to shapes: rows that are shifts of each other get the same number.

    Shifts are recognised by the differences of a row's ends, as doubles. Times far from zero all have the same few bits
    after the point, and so the same differences. When all numbers are taken, further shapes can be kept *unshared*:
    each has a number for its row only, above all shared ones, and is forgotten with the row.
    """

    def __init__(self) -> None:
        self.count, self.unshared = 0, 0
        self.longest = 0.0
        """The length of the longest shape."""
        self._table = np.full(64, -1, np.int64)
        self._hash = np.empty(32, np.uint64)
        self._cores = np.empty((3, 32))
        self.shapes = Shapes(np.zeros(33, np.int64), *(np.empty(64) for _ in range(4)), np.empty(32, np.bool_))  # type: ignore[call-arg]

    def number(self, model: OneDimensional, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return for each row the number of its shape and the place of its last end, with at most ``most`` new shapes.

        Rows with normal parts, and rows for which there is no room, have ``NO_SHAPE``.
        """
        numbers, facts = self.describe(model, most, 0.0)
        return numbers, facts[AT]

    def describe(
        self, model: OneDimensional, most: int, level: float, *, keep_unshared: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each row's shape and its facts: ``AT`` its last end, its core, and its latest time.

        The core is that at ``level``; its ends are differences to the place. ``GROUP`` is left open.
        """
        rows = (
            ShapeRows.of_histogram(model) if isinstance(model, Histogram) else ShapeRows.of_components(model.components)
        )
        count = len(rows.start) - 1
        numbers, facts = np.empty(count, np.int64), np.empty((LATEST + 1, count))
        self._grow(min(count, most), count if keep_unshared and count > most else 0, len(rows.mass))
        self.count, self.unshared, self.longest = _number(
            rows, self.shapes, self._cores, self._table, self._hash, self.count, self.unshared, self.longest, most,
            level, keep_unshared, numbers, facts,
        )  # fmt: skip
        return numbers, facts

    def keep_unshared(self, used: np.ndarray) -> None:
        """Forget all unshared shapes except these, which ascend and get new numbers in their order."""
        shapes, first, kept = self.shapes, self.count, len(used)
        begin, lengths = shapes.start[used], shapes.start[used + 1] - shapes.start[used]
        ends = np.cumsum(lengths)
        buckets = np.arange(ends[-1] if kept else 0) + np.repeat(begin - ends + lengths, lengths)
        to = slice(shapes.start[first], shapes.start[first] + len(buckets))
        for column in (shapes.low, shapes.high, shapes.mass, shapes.given):
            column[to] = column[buckets]
        shapes.points[first : first + kept], self._cores[:, first : first + kept] = (
            shapes.points[used], self._cores[:, used],
        )  # fmt: skip
        shapes.start[first + 1 : first + kept + 1] = shapes.start[first] + ends
        self.unshared = kept

    def _grow(self, shared: int, unshared: int, buckets: int) -> None:
        """Make room for this many more, and a hash table that is at most half full."""
        there = self.count + self.unshared
        wanted, used = there + shared + unshared, int(self.shapes.start[there])
        if wanted > len(self.shapes.points):
            capacity = 2 * wanted
            start, points, cores = (
                np.zeros(capacity + 1, np.int64),
                np.empty(capacity, np.bool_),
                np.empty((3, capacity)),
            )
            start[: there + 1], points[:there] = self.shapes.start[: there + 1], self.shapes.points[:there]
            cores[:, :there] = self._cores[:, :there]
            self.shapes, self._cores = self.shapes._replace(start=start, points=points), cores
        if self.count + shared > len(self._hash):
            capacity = 2 * (self.count + shared)
            hashes = np.empty(capacity, np.uint64)
            hashes[: self.count] = self._hash[: self.count]
            self._hash, self._table = hashes, np.full(1 << (2 * capacity - 1).bit_length(), -1, np.int64)
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
def _number(
    rows, shapes, cores, table, hashes, count, unshared, longest, most, level, keep_unshared, numbers, facts
):  # fmt: skip
    limit = 0 if unshared else min(count + most, len(hashes))
    mask = np.uint64(len(table) - 1)
    prime = np.uint64(0x9E3779B97F4A7C15)
    scratch = np.empty(2)
    bits = scratch.view(np.uint64)
    for i in range(len(rows.start) - 1):
        first, last, shift = rows.start[i], rows.start[i + 1], rows.step * i
        end = rows.high[last - 1 + shift]
        facts[AT, i] = end
        numbers[i] = NO_SHAPE
        plain = rows.ordered or last - first == 1
        if len(rows.kind):
            for k in range(first, last):
                plain &= rows.kind[k] != NORMAL
        if not plain:
            continue
        # length, first and last mass distinguish most shapes; the others are compared
        scratch[0], scratch[1] = rows.low[first + shift] - end, rows.mass[first]
        code = (np.uint64(2 * (last - first) + rows.step) ^ bits[0]) * prime  # histograms match histograms only
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
        if numbers[i] == NO_SHAPE and (count < limit or keep_unshared):
            made = count + unshared
            begin, whole, points = shapes.start[made], 0.0, False
            fits = end - rows.low[first + shift] < MOST
            for k in range(first, last):
                whole += rows.mass[k]
                length = rows.high[k + shift] - rows.low[k + shift]
                fits &= length == 0.0 or length > LEAST
            if not fits:  # a table has densities and their slopes, which are one over squares of lengths
                continue
            for k in range(first, last):
                points |= rows.mass[k] > 0.0 and rows.high[k + shift] == rows.low[k + shift]
                shapes.low[begin + k - first] = rows.low[k + shift] - end
                shapes.high[begin + k - first] = rows.high[k + shift] - end
                shapes.given[begin + k - first] = rows.mass[k]
                shapes.mass[begin + k - first] = rows.mass[k] / whole
            shapes.start[made + 1] = begin + last - first
            shapes.points[made] = points
            _describe_shape(shapes, made, level, cores)
            numbers[i] = made
            if count < limit:
                hashes[count], table[slot] = code, count
                count += 1
                longest = max(longest, -shapes.low[begin])
            else:
                unshared += 1
        shape = numbers[i]
        if shape >= 0:
            facts[CORE_START, i], facts[CORE_END, i] = cores[0, shape], cores[1, shape]
            facts[LATEST, i] = end + cores[2, shape]
    return count, unshared, longest


@inner
def _describe_shape(shapes, shape, level, cores):
    """Return start and end of a shape's core, which cuts at most ``level`` from each side, and its latest value."""
    begin, end = shapes.start[shape], shapes.start[shape + 1]
    for sign in (1, -1):
        passed, edge = 0.0, -math.inf
        for step in range(end - begin):
            k = begin + step if sign > 0 else end - 1 - step
            low, high = (shapes.low[k], shapes.high[k]) if sign > 0 else (-shapes.high[k], -shapes.low[k])
            mass = shapes.mass[k]
            if not mass > 0.0:
                continue
            if sign < 0 and passed == 0.0:
                cores[2, shape] = shapes.high[k]
            if passed + mass > level:
                edge = min(high, low + max(0.0, level - passed) / mass * (high - low))
                break
            passed += mass
            edge = high
        cores[0 if sign > 0 else 1, shape] = sign * edge


@inner
def _same(rows, first, last, shift, end, shapes, shape):
    begin = shapes.start[shape]
    if shapes.start[shape + 1] - begin != last - first:
        return False
    for k in range(last - first):
        mine, theirs = begin + k, first + k
        if shapes.low[mine] != rows.low[theirs + shift] - end or shapes.given[mine] != rows.mass[theirs]:
            return False
        # in histograms a bucket ends where the next one begins, and the last at the end
        if not rows.step and shapes.high[mine] != rows.high[theirs + shift] - end:
            return False
    return True


# -- the probability as a function of the shift ------------------------------------------------------------------------


@bare_inner  # inlined, so that the compiler knows `closed`: a flag in this loop takes a quarter of the time
def _below(x, u, y, v, shift, closed):
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
                _below(x, u, y, v, begin + 0.25 * width, True),
                _below(x, u, y, v, begin + 0.5 * width, True),
                _below(x, u, y, v, begin + 0.75 * width, True),
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
            np.full((0, 0), _NO_TABLE, np.int64), np.empty((0, 7)), np.zeros(1, np.int64), np.empty((0, 4)),
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
def _look_up(tables, r, shift):
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


# -- matching ----------------------------------------------------------------------------------------------------------


class Events(NamedTuple):
    """Events in the order of group (only equal ones meet) and of ``at``, the end of their shape.

    The ends of their core are differences to ``at``.
    """

    group: np.ndarray
    at: np.ndarray
    core_start: np.ndarray
    core_end: np.ndarray
    shape: np.ndarray


class TimingOutput(NamedTuple):
    """Kept pairs: ids, probability, deciding rule. Pairs with code 0 are still to be decided by the exact value.

    For these pairs it also has their places in the output and their rows. If probabilities are not wanted, there is
    room for only one.
    """

    new: np.ndarray
    old: np.ndarray
    probability: np.ndarray
    code: np.ndarray
    open_at: np.ndarray
    open_new: np.ndarray
    open_old: np.ndarray


class Ranges(NamedTuple):
    """For each shape of the new side: shifts outside ``[least, largest]`` match nothing, those in the sure range do.

    ``whole`` tells whether a shape has tables with all shapes that it may meet.
    """

    least: np.ndarray
    largest: np.ndarray
    sure_from: np.ndarray
    sure_to: np.ndarray
    whole: np.ndarray


NO_RANGES = Ranges(*(np.array([end]) for end in (-np.inf, np.inf, np.inf, -np.inf)), np.zeros(1, np.bool_))  # type: ignore[call-arg]
"""Ranges without information: only the cores of the events tell which pairs may match."""


@kernel
def insert(facts, codes, count, new_facts, new_codes):
    """Insert new events among ``count`` others, both in the order of group and place; arrays must have room.

    The first rows of ``facts`` and ``new_facts`` are those of events without ``LATEST``.
    """
    to, i, j = count + new_facts.shape[1] - 1, count - 1, new_facts.shape[1] - 1
    while j >= 0:
        group, place = new_facts[GROUP, j], new_facts[AT, j]
        if i >= 0 and (facts[GROUP, i] > group or (facts[GROUP, i] == group and facts[AT, i] > place)):
            for k in range(len(facts)):
                facts[k, to] = facts[k, i]
            for k in range(len(codes)):
                codes[k, to] = codes[k, i]
            i -= 1
        else:
            for k in range(len(facts)):
                facts[k, to] = new_facts[k, j]
            for k in range(len(codes)):
                codes[k, to] = new_codes[k, j]
            j -= 1
        to -= 1


@kernel
def drop_before(facts, codes, count, place):
    """Forget events before a place; return how many are left, and the last place that was forgotten."""
    kept, forgotten = 0, -math.inf
    for i in range(count):
        if facts[AT, i] < place:
            forgotten = max(forgotten, facts[AT, i])
            continue
        if kept < i:
            for k in range(len(facts)):
                facts[k, kept] = facts[k, i]
            for k in range(len(codes)):
                codes[k, kept] = codes[k, i]
        kept += 1
    return kept, forgotten


@inner
def _is_before(groups, places, k, group, place):
    return groups[k] < group or (groups[k] == group and places[k] < place)


@inner
def _first(groups, places, group, place, hint):
    """Return the first event of a group at a place or after it, searched for from ``hint`` on in growing steps."""
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


@inner
def _tabled_run(
    tables, own, shape, at, old, old_id, j, stop, limit, new_is_left, keep_from, exact, out, n, beyond, sure
):
    """Write pairs of a new event with old ones from ``j`` on, up to a place, by look-ups.

    If only the verdict is wanted, the sure range of shifts decides without a look-up. Returns where it ended, how many
    pairs there are now, and how many more were outside of their table, or in its sure range.
    """
    table_of, hulls = tables.table_of, tables.hull
    old_at, old_shape = old.at, old.shape
    out_new, out_old, out_probability, out_code = out.new, out.old, out.probability, out.code
    while j < stop and old_at[j] <= limit:
        if new_is_left:
            r, shift = table_of[shape, old_shape[j]], old_at[j] - at
        else:
            r, shift = table_of[old_shape[j], shape], at - old_at[j]
        here = j
        j += 1
        if not hulls[r, 0] <= shift <= hulls[r, 1]:
            beyond += 1
            continue
        out_new[n], out_old[n] = own, old_id[here]
        if not exact and hulls[r, 2] <= shift <= hulls[r, 3]:
            out_probability[n if exact else 0], out_code[n] = math.nan, SHIFT
            n += 1
            sure += 1
            continue
        probability = _look_up(tables, r, shift)
        if probability >= keep_from:  # mostly true within the hull
            out_probability[n if exact else 0], out_code[n] = min(1.0, probability), EXACT
            n += 1
    return j, n, beyond, sure


@bare
def match_times(
    new, new_id, begin, end, old, old_id, new_is_left, x, y, tables, ranges, window, slack, keep_from, sure_value, hits,
    out, n, left_open, counts,
):  # fmt: skip
    """Write pairs of new events, ``begin`` to ``end``, with old ones of the other side that are near in time.

    ``x`` and ``y`` are the shapes of left and right, ``ranges`` those of the new side. The output has ``n`` pairs
    already, ``left_open`` of them undecided. Stops when it may overflow; returns the next event, how many pairs there
    are, how many are undecided, and the maximum of ``hits``, which counts how often a pair of shapes has met without a
    table. ``counts`` gets the pairs that each rule rejected and accepted, the pairs tested, and those accepted without
    a test. ``sure_value`` is the probability of sure pairs, NaN if it is not wanted.
    """
    size = len(old.at)
    old_group, old_at, old_start, old_end, old_shape = old.group, old.at, old.core_start, old.core_end, old.shape
    table_of, hulls = tables.table_of, tables.hull
    out_new, out_old, out_probability, out_code = out.new, out.old, out.probability, out.code
    longest_before, longest_after = 0.0, -math.inf
    for j in range(size):
        longest_before = min(longest_before, old_start[j])
        longest_after = max(longest_after, old_end[j])
    exact = not math.isnan(sure_value)
    hint = stop = 0
    current = math.nan
    i, hottest, looked_at, untested = begin, 0, 0, 0
    rejected, accepted, computed, dismissed, apart = 0, 0, 0, 0, 0
    while i < end and n + size <= len(out_new):
        group, at, shape, own = new.group[i], new.at[i], new.shape[i], new_id[i]
        known = shape if shape < len(ranges.least) - 1 else NO_SHAPE
        from_here, to_here = at + new.core_start[i] - window - slack, at + new.core_end[i] + window + slack
        lowest, highest = from_here - longest_after, to_here - longest_before
        sure_from, sure_to = math.inf, -math.inf
        if known >= 0:
            lowest = max(lowest, at + ranges.least[known] - slack)
            highest = min(highest, at + ranges.largest[known] + slack)
            sure_from, sure_to = at + ranges.sure_from[known] + slack, at + ranges.sure_to[known] - slack
        if group != current:
            current, stop = group, _first(old_group, old_at, group, math.inf, hint)
            while stop < size and old_group[stop] == group:  # events at infinity
                stop += 1
        j = hint = _first(old_group, old_at, group, lowest, hint)
        if known >= 0 and ranges.whole[known] and keep_from >= _SURELY_POSITIVE:
            before, taken, beyond, sure = n, j, 0, 0
            if sure_from <= sure_to:
                j, n, beyond, sure = _tabled_run(
                    tables, own, shape, at, old, old_id, j, stop, sure_from, new_is_left, keep_from, exact, out, n, 0, 0
                )
                taken = j
                while j < stop and old_at[j] <= sure_to:  # pairs in this range are accepted without a test
                    out_new[n], out_old[n], out_probability[n if exact else 0], out_code[n] = (
                        own,
                        old_id[j],
                        sure_value,
                        SHIFT,
                    )
                    n += 1
                    j += 1
            taken = j - taken
            j, n, beyond, sure = _tabled_run(
                tables,
                own,
                shape,
                at,
                old,
                old_id,
                j,
                stop,
                highest,
                new_is_left,
                keep_from,
                exact,
                out,
                n,
                beyond,
                sure,
            )
            seen, found = j - hint - taken, n - before - taken
            looked_at, untested = looked_at + seen, untested + taken
            rejected, accepted, computed = rejected + beyond, accepted + sure, computed + found - sure
            dismissed += seen - found - beyond
            i += 1
            continue
        while j < stop:
            place, other, here = old_at[j], old_shape[j], j
            if place > highest:
                break
            j += 1
            out_new[n], out_old[n], out_probability[n if exact else 0], out_code[n] = (
                own,
                old_id[here],
                sure_value,
                SHIFT,
            )
            if sure_from <= place <= sure_to:
                untested += 1
                n += 1
                continue
            looked_at += 1
            if place + old_end[here] < from_here or place + old_start[here] > to_here:
                apart += 1
                continue
            undecided, probability = shape < 0 or other < 0, 0.0
            if not undecided:
                u, v = (shape, other) if new_is_left else (other, shape)
                shift = place - at if new_is_left else at - place
                shared = u < table_of.shape[0] and v < table_of.shape[1]
                r = table_of[u, v] if shared else _NO_TABLE
                if r < 0:
                    if shared:
                        hits[u, v] += 1
                        hottest = max(hottest, hits[u, v])
                    undecided = x.points[u] and y.points[v]  # ties are decided by exact values
                    if shift - x.low[x.start[u]] <= window and -shift - y.low[y.start[v]] <= window:
                        probability = 1.0  # even if they are farthest apart
                    elif not undecided:
                        probability = near(x, u, y, v, shift, window)
                elif shift < hulls[r, 0] or shift > hulls[r, 1]:
                    rejected += 1
                    continue
                elif hulls[r, 2] <= shift <= hulls[r, 3] and not exact:
                    accepted += 1
                    n += 1
                    continue
                else:
                    probability = _look_up(tables, r, shift)
                undecided |= keep_from < _SURELY_POSITIVE and probability < _SURELY_POSITIVE
            if undecided:
                out_probability[n if exact else 0], out_code[n] = math.nan, 0
                out.open_at[left_open], out.open_new[left_open], out.open_old[left_open] = n, i, here
                left_open += 1
                n += 1
            elif probability >= keep_from:
                computed += 1
                out_probability[n if exact else 0], out_code[n] = min(1.0, probability), EXACT
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
    return i, n, left_open, hottest


def counters_of(counts: np.ndarray, kept: int) -> Counters:
    """Return counts as counters, by names."""
    names = tuple(RULES.values())
    counters = Counters(names, names)
    for code, name in RULES.items():
        counters.rejected[name], counters.accepted[name] = (int(count) for count in counts[code])
    counters.candidates, counters.evaluated, counters.kept = int(counts[WINDOW, 0]), int(counts[EXACT].sum()), kept
    return counters
