"""Cells: how the axis of the row intervals is cut so that every piece of a join fits one worker and few rows repeat.

A row belongs to every cell its interval touches; a pair to the one cell that holds its reference point (see ``Sweep``).
Edges are quantiles of the data, so cells hold about equally many rows, but a cell is never narrower than a typical
interval: there, and where one value is very frequent, cells are *sliced* instead. The left rows of a cell fall into
``left_slices`` parts and the right rows into ``right_slices``; every part of one side meets every part of the other,
so a side that is small is the one that is repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

QUANTILES = 512
"""The data are summarised by this many quantiles a side; cells are runs of them."""

ROWS_PER_CELL = 16_384
"""Rows of a side that a cell should hold: some megabytes, and a kernel call of some milliseconds."""

MOST_SLICES = 256


@dataclass(frozen=True)
class Layout:
    """Cell ``k`` is ``edges[k - 1] <= position < edges[k]``, the first and the last unbounded."""

    edges: np.ndarray
    left_slices: np.ndarray
    right_slices: np.ndarray

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.edges) + 1


@dataclass(frozen=True)
class Profile:
    """What is known of one side before it is laid out: rows, quantiles of the lower ends, a typical interval width."""

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
    """Choose edges and slices; ``cells`` forces their number where the data have enough different values."""
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


BINS = 256
_MOST_PARTS = 1024


@dataclass(frozen=True)
class Grid:
    """Edges as two look-ups: a position falls into a bin of equal width, and in it into a part of the bin.

    The map to cells is that of the edges up to the width of a part, and never descends: that alone is what joins need.
    Bins without an edge have one part; the more edges, the more parts, so that data in clumps are told apart as well.
    Both look-ups are SQL's ``width_bucket``: 0 is below the range, 1 to n are within, n + 1 is above.
    """

    low: float
    high: float
    bin_low: np.ndarray
    bin_high: np.ndarray
    parts: np.ndarray
    offset: np.ndarray
    cells: np.ndarray

    @classmethod
    def of(cls, edges: np.ndarray) -> Grid:
        """The grid for ascending edges."""
        # within limits whose differences stay finite: a bin without finite ends would lose the rows in it
        low, high = (np.clip(edges[[0, -1]], -1e300, 1e300).tolist()) if len(edges) else (0.0, 0.0)
        least = 4.0 * BINS * float(np.spacing(max(abs(low), abs(high), 1e-300)))
        if high - low < least:  # all in one place, as far as numbers tell: bins must have a width
            low, high = low - least, high + least
        ends = np.linspace(low, high, BINS + 1)
        step = ends[1] - ends[0]
        bin_low, bin_high = np.concatenate([[low - step], ends]), np.concatenate([ends, [high + step]])
        held = np.bincount(width_bucket(edges, low, high, BINS), minlength=BINS + 2)
        held[[0, -1]] = 0
        parts = np.where(held > 0, np.minimum(_MOST_PARTS, 32 * held), 1)
        offset = np.cumsum(parts + 2) - (parts + 2)
        # where each part begins; what is outside of its bin by rounding counts as the bin's own end
        part = np.arange((parts + 2).sum()) - np.repeat(offset, parts + 2)
        inside = np.clip(part - 1, 0, np.repeat(parts, parts + 2))
        begins = np.repeat(bin_low, parts + 2) + inside * np.repeat((bin_high - bin_low) / parts, parts + 2)
        begins[: parts[0] + 2] = -np.inf
        # a running maximum, so that rounding cannot make the map descend
        cells = np.maximum.accumulate(np.searchsorted(edges, begins, "right"))
        return cls(low, high, bin_low, bin_high, parts, offset, cells)

    def cell_of(self, position: np.ndarray) -> np.ndarray:
        """The cell of each position."""
        at = width_bucket(position, self.low, self.high, BINS)
        part = width_bucket(position, self.bin_low[at], self.bin_high[at], self.parts[at])
        return self.cells[self.offset[at] + part]


def width_bucket(position: np.ndarray, low: Any, high: Any, buckets: Any) -> np.ndarray:
    """As in SQL."""
    inside = (position >= low) & (position < high)
    within = np.where(inside, (np.where(inside, position, low) - low) * buckets / (high - low), 0.0)
    return np.where(position < low, 0, np.where(inside, within.astype(np.int64) + 1, buckets + 1))


def expected_candidates(left: Profile, right: Profile) -> float:
    """A rough number of overlapping pairs: right rows that begin within a left row's reach, by the quantiles."""
    if not (len(left.quantiles) and len(right.quantiles)):
        return 0.0
    centre = left.quantiles
    inside = _rows_below(right, centre + left.width) - _rows_below(right, centre - right.width)
    return float(left.rows * np.mean(np.maximum(inside, 0.0)))
