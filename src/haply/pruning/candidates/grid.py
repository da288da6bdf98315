"""A grid over the centres of the objects in a window: it finds those that may be near a ball without testing all.

Objects are numbered in the order of their arrival and leave in that order. Each cell is a chain that begins with the
newest object, so nothing has to be removed: a search leaves a chain at the first object that is gone. Cells are in a
hash table by their coordinates in three dimensions at most (objects near in all dimensions are near in three).
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare, inner, kernel

MOST_DIMENSIONS = 3
_COUNTABLE = 2.0**52
"""Cells further out than this have no neighbours: adding 1 to their number does not change it."""

EMPTY = -1


class Grid(NamedTuple):
    """``newest`` object and ``widest`` radius of each chain, the object ``before`` each object, and the cells' edge."""

    newest: np.ndarray
    widest: np.ndarray
    before: np.ndarray
    edge: float


def empty_grid(capacity: int, edge: float) -> Grid:
    """Return a grid with room for this many objects, in cells of this edge."""
    chains = 1 << max(4, int(2 * capacity - 1).bit_length())
    return Grid(
        np.full(chains, EMPTY, np.int64), np.zeros(chains), np.full(capacity, EMPTY, np.int64), max(edge, 1e-300)
    )


@inner
def _chain(cell, dims, chains):
    code = np.uint64(1469598103934665603)
    for c in range(dims):
        code = (code ^ np.uint64(np.int64(cell[c]))) * np.uint64(1099511628211)
        code ^= code >> np.uint64(29)
    return np.int64(code & np.uint64(chains - 1))


@kernel
def insert(grid, near, dim, first, last):
    """Insert the objects ``first`` to ``last``, which are newer than all others."""
    dims = min(dim, MOST_DIMENSIONS)
    cell = np.empty(dims)
    for slot in range(first, last):
        for c in range(dims):
            cell[c] = math.floor(near[c, slot] / grid.edge)
        chain = _chain(cell, dims, len(grid.newest))
        grid.before[slot] = grid.newest[chain]
        grid.newest[chain] = slot
        grid.widest[chain] = max(grid.widest[chain], near[dim, slot])


@bare
def objects_near(grid, near, dim, first, last, centre, radius, widest, corners, out):
    """Find objects from ``first`` to ``last`` that may be within ``radius`` plus their own radius of ``centre``.

    ``widest`` is the largest radius among them. Writes their numbers and returns how many there are, or -1 if the ball
    spans more cells than there are objects. ``corners`` is room for three points.
    """
    dims = min(dim, MOST_DIMENSIONS)
    low, high, cell = corners[0], corners[1], corners[2]
    reach, cells = radius + widest, 1.0
    for c in range(dims):
        low[c], high[c] = math.floor((centre[c] - reach) / grid.edge), math.floor((centre[c] + reach) / grid.edge)
        cells *= high[c] - low[c] + 1.0
        cell[c] = low[c]
        if not max(abs(low[c]), abs(high[c])) < _COUNTABLE:
            return -1
    if not cells <= last - first:
        return -1
    found = 0
    while True:
        chain = _chain(cell, dims, len(grid.newest))
        slot = grid.newest[chain]
        if slot >= first:
            apart = 0.0
            for c in range(dims):
                off = max(0.0, cell[c] * grid.edge - centre[c], centre[c] - (cell[c] + 1.0) * grid.edge)
                apart += off * off
            enough = radius + grid.widest[chain]
            if apart * (1.0 - 1e-9) <= enough * enough:
                while slot >= first:
                    here = True
                    for c in range(dims):  # other cells may share the chain
                        here &= math.floor(near[c, slot] / grid.edge) == cell[c]
                    if here:
                        out[found] = slot
                        found += 1
                    slot = grid.before[slot]
        c = 0
        while c < dims:
            cell[c] += 1.0
            if cell[c] <= high[c]:
                break
            cell[c] = low[c]
            c += 1
        if c == dims:
            return found


class RadiusList:
    """The largest radius in a window, in constant time: a list of radii that none newer has reached.

    >>> radii = RadiusList()
    >>> for time, radius in enumerate([3, 1, 2, 2]):
    ...     radii.add(radius, time)
    ...     radii.expire(time - 2)
    >>> radii.largest
    2
    """

    def __init__(self) -> None:
        self._radii: deque[tuple[float, float]] = deque()
        self._latest = -math.inf

    def add(self, radius: float, time: float) -> None:
        """Add a new object; one that comes late counts as long as the one before it."""
        self._latest = time = max(time, self._latest)
        while self._radii and self._radii[-1][0] <= radius:
            self._radii.pop()
        self._radii.append((radius, time))

    def expire(self, time: float) -> None:
        """Forget objects older than ``time``."""
        while self._radii and self._radii[0][1] < time:
            self._radii.popleft()

    @property
    def largest(self) -> float:
        """Return the largest radius; 0 without objects."""
        return self._radii[0][0] if self._radii else 0.0


@bare
def _copy(source, target):
    """Copy an array into another; numba takes seconds to compile ``target[:] = source``, for its error message."""
    for c in range(len(target)):
        target[c] = source[c]


@kernel
def union_of_balls(centre, radius, other, other_radius):
    """Write the centre of the smallest ball around two balls into ``centre``; return its radius."""
    apart = 0.0
    for c in range(len(centre)):
        apart += (other[c] - centre[c]) ** 2
    apart = math.sqrt(apart)
    if apart + other_radius <= radius:
        return radius
    if apart + radius <= other_radius:
        _copy(other, centre)
        return other_radius
    whole = 0.5 * (apart + radius + other_radius)
    for c in range(len(centre)):
        centre[c] += (other[c] - centre[c]) * (whole - radius) / apart
    return whole * (1.0 + 1e-15)


@kernel
def group_batch(near, dim, base, widest):
    """Group neighbours in a batch where one larger ball costs less than two; return ends, centres, radii of groups.

    An object joins the last group if the searched volume per object does not grow.
    """
    count = near.shape[1]
    ends, centres, radii = np.empty(count, np.int64), np.empty((count, dim)), np.empty(count)
    groups, members = 0, 0
    trial, own = np.empty(dim), np.empty(dim)
    for i in range(count):
        for c in range(dim):
            own[c] = near[c, i]
        if groups:
            _copy(centres[groups - 1], trial)
            radius = union_of_balls(trial, radii[groups - 1], own, near[dim, i])
            grown = (base + radius + widest) / (base + radii[groups - 1] + widest)
            if grown**dim * members <= members + 1:
                _copy(trial, centres[groups - 1])
                radii[groups - 1], ends[groups - 1] = radius, i + 1
                members += 1
                continue
        _copy(own, centres[groups])
        radii[groups], ends[groups] = near[dim, i], i + 1
        groups, members = groups + 1, 1
    return ends[:groups], centres[:groups], radii[:groups]
