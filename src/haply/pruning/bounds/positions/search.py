"""All pairs of two sides that are likely near, by cells and a walk."""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np

from haply.models import Sky
from haply.numerics.jit import bare
from haply.numerics.multivariate.disc import room_for
from haply.numerics.order import ordered
from haply.probability.multivariate import Parts
from haply.pruning.best import Best
from haply.pruning.bounds.positions.ranked import BestRows, walk_best
from haply.pruning.bounds.positions.rules import (
    CANDIDATES,
    COUNTS,
    EVALUATED,
    INSIDE,
    LEFT_OUT,
    POSITION_RULES,
    REACH,
    SLAB,
    SPREAD,
    Limits,
    no_counts,
)
from haply.pruning.bounds.positions.sides import FIRST_ROOM, PositionPairs, PositionSide
from haply.pruning.bounds.positions.walk import walk
from haply.pruning.cascade import BEATEN, Counters
from haply.pruning.ownership import Places

_MOST_AXES, _CELLS_OF_AXIS, _KEYS = 3, 1 << 20, 1 << 62
_LINES = 1 << 13


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
        self.room, self.found = _no_room(max(FIRST_ROOM, rows + rows // 4)), 0
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
    cursor, counts, room = np.zeros(len(offsets), np.int64), np.zeros(2 * COUNTS, np.int64), room_for(left.dim)
    for begin in range(0, len(mine), _LINES):  # some lines at a time, which stay in the cache
        ours = left.take(mine[begin : begin + _LINES], space)
        keys, done = left_key[begin : begin + _LINES], 0
        while True:
            rest = others, right_key, offsets, cursor, left.mixed, left.places is not None, limit, room, pairs.room
            if pairs.best is None:
                done, pairs.found = walk(left.dim, ours, keys, done, *rest, pairs.found, counts)
            else:
                done, pairs.found = walk_best(left.dim, ours, keys, done, *rest, pairs.found, counts, pairs.best)
            if done == len(keys):
                break
            pairs.grow()
    _count(counts, counters)


def _count(counts: np.ndarray, counters: Counters) -> None:
    counters.candidates += int(counts[CANDIDATES])
    counters.evaluated += int(counts[EVALUATED])
    for rule in (REACH, SLAB, SPREAD):
        counters.rejected[POSITION_RULES[rule]] += int(counts[rule])
    counters.rejected[BEATEN] += int(counts[LEFT_OUT])
    counters.accepted[POSITION_RULES[INSIDE]] += int(counts[INSIDE])
