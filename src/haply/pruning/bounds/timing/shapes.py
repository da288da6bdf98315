"""Shapes of values: finding those of which others are shifts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.models import Histogram, OneDimensional
from haply.numerics.components import NORMAL
from haply.numerics.jit import inner, kernel, solid
from haply.numerics.rows import Components
from haply.numerics.scale import LEAST, MOST

NO_SHAPE = -1
GROUP, AT, CORE_START, CORE_END, LATEST = range(5)
"""The rows of the facts of events; see ``Events``."""


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
