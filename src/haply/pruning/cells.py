"""Cut the axis of the row intervals into cells so that every part of a join fits one worker and few rows are copied.

A row belongs to every cell its interval touches; a pair to the one cell that holds its reference point (see ``Sweep``).
Edges are quantiles of the data, so cells hold about equally many rows. But a cell is never narrower than a typical
interval: cells that would be, and cells with one very frequent value, are *sliced* instead. The left rows of a cell are
divided into ``left_slices`` parts and the right rows into ``right_slices``; every part of one side meets every part of
the other, so the small side is the one that is copied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from haply.numerics.jit import inner, kernel

QUANTILES = 512
"""The data are summarised by this many quantiles a side; cells are runs of them."""

ROWS_PER_CELL = 16_384
"""How many rows of a side a cell should hold: some megabytes, and a kernel call of some milliseconds."""

MOST_SLICES = 256

_STEPS = 512
"""Equal steps of the range of all edges: few have more than one edge, so most rows find their cell at once."""


@dataclass(frozen=True)
class Layout:
    """Cell ``k`` is ``edges[k - 1] <= position < edges[k]``; the first and the last cell are unbounded."""

    edges: np.ndarray
    left_slices: np.ndarray
    right_slices: np.ndarray

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.edges) + 1


@dataclass(frozen=True)
class Profile:
    """Statistics of one side before the layout: rows, quantiles of the lower ends, a typical interval width."""

    rows: int
    quantiles: np.ndarray
    width: float


def _rows_below(profile: Profile, position: np.ndarray) -> np.ndarray:
    share = np.searchsorted(profile.quantiles, position, "left") / max(1, len(profile.quantiles))
    return profile.rows * share


def _edges_for(profile: Profile, cells: int) -> np.ndarray:
    if cells <= 1 or not len(profile.quantiles):
        return np.empty(0)
    picks = (np.arange(1, cells) * len(profile.quantiles)) // cells
    return profile.quantiles[np.unique(picks)]


def lay_out(left: Profile, right: Profile, *, rows_per_cell: int = ROWS_PER_CELL, cells: int | None = None) -> Layout:
    """Choose edges and slices; ``cells`` sets the number of cells if the data have enough different values."""
    if cells is not None:
        both = np.unique(np.concatenate([_edges_for(left, cells), _edges_for(right, cells)]))
        if len(both) >= cells:
            both = both[(np.arange(1, cells) * len(both)) // cells]
        edges, narrowest = both, 0.0
    else:
        edges = np.unique(
            np.concatenate([_edges_for(side, math.ceil(side.rows / rows_per_cell)) for side in (left, right)])
        )
        narrowest = max(left.width, right.width)
    kept: list[float] = []
    before = min((float(side.quantiles[0]) for side in (left, right) if len(side.quantiles)), default=-math.inf)
    for edge in edges:
        if math.isfinite(edge) and edge - before >= narrowest:
            kept.append(float(edge))
            before = kept[-1]
    final = np.array(kept)
    slices = []
    for side in (left, right):
        below = np.concatenate([[0.0], _rows_below(side, final), [float(side.rows)]])
        heavy = np.ceil(np.diff(below) / (2 * rows_per_cell))
        slices.append(np.clip(heavy, 1, MOST_SLICES).astype(np.int32))
    return Layout(final, slices[0], slices[1])


def expected_candidates(left: Profile, right: Profile) -> float:
    """Estimate the number of overlapping pairs: right rows that begin within a left row's reach, by the quantiles."""
    if not (len(left.quantiles) and len(right.quantiles)):
        return 0.0
    centre = left.quantiles
    inside = _rows_below(right, centre + left.width) - _rows_below(right, centre - right.width)
    return float(left.rows * np.mean(np.maximum(inside, 0.0)))


@inner
def _step(value, low, scale):
    """Return the step that a value is in. It never falls as the value rises, whatever is rounded."""
    place = (value - low) * scale
    return int(min(place, _STEPS - 1.0)) if place > 0.0 else 0


@kernel
def touched_cells(start, end, edges):
    """Return the rows that touch each cell, cell by cell: their numbers, whether they begin there, and the cell.

    A row begins at its lower end, and touches all cells up to the one of its upper end. Edges in an earlier step are
    below a row, and those in a later one above it: a search among all edges would take a processor six times as long.
    """
    size, cells = len(start), len(edges) + 1
    low = edges[0] if cells > 1 else 0.0
    span = edges[-1] - low if cells > 1 else 0.0
    scale, before = _STEPS / span if 0.0 < span < math.inf else 0.0, np.zeros(_STEPS + 1, np.int64)
    for edge in edges:
        before[_step(edge, low, scale) + 1] += 1
    for step in range(_STEPS):
        before[step + 1] += before[step]
    first, last, starts = np.empty(size, np.int32), np.empty(size, np.int32), np.zeros(cells + 1, np.int64)
    for row in range(size):
        begin = min(start[row], end[row])
        step = _step(begin, low, scale)
        at, above = before[step], before[step + 1]
        while at < above:
            middle = (at + above) // 2
            if edges[middle] <= begin:
                at = middle + 1
            else:
                above = middle
        first[row] = at
        while at < cells - 1 and end[row] >= edges[at]:
            starts[at + 1] += 1
            at += 1
        starts[at + 1] += 1
        last[row] = at
    for k in range(1, cells + 1):
        starts[k] += starts[k - 1]
    rows, begins_here, cell = (
        np.empty(starts[-1], np.int64),
        np.empty(starts[-1], np.bool_),
        np.empty(starts[-1], np.int64),
    )
    for row in range(size):
        for k in range(first[row], last[row] + 1):
            at = starts[k]
            rows[at], begins_here[at], cell[at] = row, k == first[row], k
            starts[k] = at + 1
    return rows, begins_here, cell
