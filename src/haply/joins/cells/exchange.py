"""Send each row to all cells that its interval touches, so that any two rows that may match meet in a cell."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from haply.joins.cells.rows import LEFT
from haply.numerics.order import ordered
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cells import QUANTILES, Layout, Profile, touched_cells

SLICE_BITS = 9
LEVELS = np.arange(1, QUANTILES) / QUANTILES
"""The levels of the quantiles that a layout is made from."""
TYPICAL_WIDTH = 0.9
"""A cell is at least as wide as this quantile of the widths of intervals."""

_LOOKED_AT = 1 << 16
"""Rows of a side from which a layout is made: it need not be exact."""
_COUNTABLE = 2.0**52
"""Doubles represent every whole number up to here."""


class CellEdges(NamedTuple):
    """Where cells begin, except the first, and the slices of each cell, if any is sliced."""

    edges: np.ndarray
    slices: np.ndarray
    in_time: bool = False
    """Whether rows are placed by their times."""

    @classmethod
    def of(cls, layout: Layout, in_time: bool) -> CellEdges:
        """Make it from a layout: slices of both sides become one number for each cell, or none if no cell is sliced."""
        slices = layout.left_slices.astype(np.int64) * (1 << SLICE_BITS) + layout.right_slices
        sliced = bool((slices != (1 << SLICE_BITS) + 1).any())
        return cls(layout.edges.astype(np.float64), slices if sliced else np.empty(0, np.int64), in_time)


class Blocks(NamedTuple):
    """A line cut into blocks of equal width, assigned to cells in turn: for streams, whose rows are not yet known."""

    cells: int
    width: float


class Sent(NamedTuple):
    """Row numbers, once for each cell and slice they go to, whether rows begin there, and the number of the cell."""

    rows: np.ndarray
    begins_here: np.ndarray
    cell: np.ndarray

    def by_cell(self) -> tuple[Sent, dict[int, tuple[int, int]]]:
        """Sort by cell; return also where each cell begins and ends in that order."""
        sent = self
        steps = np.diff(self.cell)
        if (steps < 0).any():
            order, cell = ordered(self.cell)
            sent, steps = Sent(self.rows[order], self.begins_here[order], cell), np.diff(cell)
        cuts = [0, *(np.flatnonzero(steps) + 1).tolist(), len(sent.cell)] if len(sent.cell) else [0]
        return sent, {int(sent.cell[begin]): (begin, end) for begin, end in itertools.pairwise(cuts)}


def to_cells(intervals: Intervals, side: int, edges: CellEdges, salt: np.ndarray | None) -> Sent:
    """Send rows to their cells; ``salt`` has a number for each row, which chooses its slice in sliced cells."""
    rows, begins_here, at = touched_cells(intervals.start, intervals.end, edges.edges)
    cell = at << (2 * SLICE_BITS)
    if len(edges.slices):
        assert salt is not None
        size = 1 << SLICE_BITS
        counts = edges.slices[at]
        own, other = (counts // size, counts % size) if side == LEFT else (counts % size, counts // size)
        mine = np.mod(salt[rows], own)
        again, theirs = _spread(other)
        rows, begins_here, cell, mine = rows[again], begins_here[again], cell[again], mine[again]
        cell = cell + (mine * size + theirs if side == LEFT else theirs * size + mine)
    return Sent(rows, begins_here, cell)


def warm_exchange() -> None:
    """Compile the kernels that send rows to their cells."""
    ordered(np.zeros(1 << 12, np.int64))
    ends = np.zeros(1)
    to_cells(Intervals(ends, ends, np.zeros(1, bool)), LEFT, CellEdges(np.zeros(1), np.empty(0, np.int64)), None)


def to_blocks(intervals: Intervals, group: np.ndarray, blocks: Blocks) -> Sent:
    """Send rows to the cells of all blocks that they touch; groups are spread over cells, as their rows never meet.

    A row goes to a cell once, even if it touches several blocks of the cell.
    """
    with np.errstate(over="ignore"):
        first, last = np.floor(intervals.begins / blocks.width), np.floor(intervals.end / blocks.width)
    counts = np.clip(last - first + 1.0, 1.0, blocks.cells).astype(np.int64)
    beyond = ~(np.maximum(np.abs(first), np.abs(last)) < _COUNTABLE)
    counts[beyond] = blocks.cells  # block numbers too large to be exact: send the row to all cells
    first = np.where(np.isfinite(first), first, -_COUNTABLE)  # rows with infinite begin begin in one cell, too
    rows, nth = _spread(counts)
    shift = np.mod(group, blocks.cells)
    cell = np.mod(first[rows] + nth + shift[rows], blocks.cells).astype(np.int64)
    cell[beyond[rows]] = nth[beyond[rows]]
    return Sent(rows, cell == np.mod(first + shift, blocks.cells)[rows], cell)


def _spread(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Repeat each row number as often as its count says; return the row numbers, and which repetition each is."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)


def profile_of(intervals: Intervals) -> Profile:
    """Summarise where the rows of a side are, from a sample if they are many."""
    count = len(intervals.start)
    if not count:
        return Profile(0, np.empty(0), 0.0)
    step = -(-count // _LOOKED_AT)
    start, end = intervals.start[::step], intervals.end[::step]
    low = np.minimum(start, end)
    ordered, widths = np.sort(low), np.sort(end - low)
    places = ordered[np.minimum((LEVELS * len(low)).astype(np.int64), len(low) - 1)]
    return Profile(count, places, float(widths[min(int(TYPICAL_WIDTH * len(low)), len(low) - 1)]))
