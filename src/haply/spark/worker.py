"""What a worker does: the stacked rows of a partition come sorted by cell; each cell is decided, its pairs go out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.joins.match import Matches, match_overlapping
from haply.models import Model, OneDimensional
from haply.models.columns import view_column
from haply.probability.distance import within_distance
from haply.probability.exact import region_probability
from haply.probability.region import Difference, Distance, Region
from haply.pruning.cascade import Counters
from haply.pruning.intervals import Intervals
from haply.pruning.threshold import Threshold
from haply.spark.partition import CELL, END, LEFT, NATIVE, SIDE, START, TIME

COUNTERS = "__counters"
"""The column that holds a cell's counters in one row of its own, and null in the rows of pairs."""

_STAGES = ("prepare", "sweep", "decide", "assemble")
_PAIRS_PER_BATCH = 1 << 16


def counter_names(counters: Counters) -> list[str]:
    """What a cell counts. Kept pairs are counted at the end of the plan, after certain conditions over both sides."""
    return [*counters.flat(), *(f"nanoseconds:{stage}" for stage in _STAGES)]


@dataclass(frozen=True)
class SideColumns:
    """Where a side's columns are in the stacked rows: its value, and all that goes into the result."""

    value: str
    payload: tuple[str, ...]
    value_in_parts: bool

    def taken(self, rows: pa.Table, chosen: np.ndarray) -> list[pa.ChunkedArray]:
        """The payload of chosen rows; the fields of the value one by one if so wanted."""
        columns = []
        for name in self.payload:
            parts = rows[name].flatten() if name == self.value and self.value_in_parts else [rows[name]]
            columns += [part.take(pa.array(chosen)) for part in parts]
        return columns


@dataclass(frozen=True)
class Rows:
    """One side of a cell: values, intervals, which rows are native here, numbers for equal keys, and times."""

    model: Model
    start: np.ndarray
    end: np.ndarray
    native: np.ndarray
    groups: np.ndarray | None = None
    times: np.ndarray | None = None


@dataclass(frozen=True)
class Further:
    """A further uncertain condition on columns of their own, independent of the first: probabilities multiply."""

    left: str
    right: str
    condition: Difference | Distance

    def row_by_row(self, left: pa.Table, right: pa.Table) -> np.ndarray:
        """Its probability for each row of two tables."""
        models = view_column(left[self.left]), view_column(right[self.right])
        if isinstance(self.condition, Distance):
            return within_distance(*models, self.condition.limit)
        assert isinstance(models[0], OneDimensional)
        assert isinstance(models[1], OneDimensional)
        return region_probability(models[0], models[1], self.condition.region)


class Match(Protocol):
    """How the pairs of a cell are decided."""

    def __call__(self, left: Rows, right: Rows) -> Matches:
        """The kept pairs, each of which belongs to this cell."""


@dataclass(frozen=True)
class MatchDifferences:
    """By a set of differences: see ``match_overlapping``."""

    region: Region
    threshold: Threshold
    exact: bool

    def __call__(self, left: Rows, right: Rows) -> Matches:
        """The kept pairs whose later beginning is in this cell."""
        assert isinstance(left.model, OneDimensional)
        assert isinstance(right.model, OneDimensional)
        from_position = min(
            np.minimum(side.start, side.end).min(initial=np.inf, where=side.native) for side in (left, right)
        )
        intervals = [Intervals(side.start, side.end, np.zeros(len(side.start), bool)) for side in (left, right)]
        return match_overlapping(
            left.model, right.model, intervals[0], intervals[1], self.region, self.threshold, self.exact,
            from_position=from_position, left_groups=left.groups, right_groups=right.groups,
        )  # fmt: skip


@dataclass(frozen=True)
class CellJoin:
    """The join of all cells of a partition, as a function for ``mapInArrow``."""

    left: SideColumns
    right: SideColumns
    names: tuple[str, ...]
    keys: tuple[str, ...]
    match: Match
    further: tuple[Further, ...] = ()
    threshold: Threshold | None = None
    """That of all conditions together, where there are further ones."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pairs of every cell, each cell's counters before them."""
        for cell in _cells(batches):
            # sorted by side within the cell
            lefts = int(np.count_nonzero(cell[SIDE].to_numpy() == LEFT))
            left, right = cell.slice(0, lefts), cell.slice(lefts)
            if left.num_rows and right.num_rows:
                yield from self._decide(left, right).to_batches(max_chunksize=_PAIRS_PER_BATCH)

    def _decide(self, left_rows: pa.Table, right_rows: pa.Table) -> pa.Table:
        groups = _shared_codes([(left_rows[key], right_rows[key]) for key in self.keys]) if self.keys else (None, None)
        sides = [
            Rows(
                view_column(rows[columns.value]),
                rows[START].to_numpy(),
                rows[END].to_numpy(),
                rows[NATIVE].to_numpy(zero_copy_only=False),
                group,
                rows[TIME].to_numpy() if TIME in rows.column_names else None,
            )
            for rows, columns, group in zip((left_rows, right_rows), (self.left, self.right), groups, strict=True)
        ]
        begun = time.perf_counter()
        found = self.match(sides[0], sides[1])
        if self.further:
            found = self._with_further(left_rows, right_rows, found)
        matched = time.perf_counter()
        taken = [
            *self.left.taken(left_rows, found.left),
            *self.right.taken(right_rows, found.right),
        ]
        seconds = {**found.seconds, "assemble": time.perf_counter() - matched}
        seconds["prepare"] += matched - begun - sum(found.seconds.values())
        counts = [*found.counters.flat().values(), *(int(1e9 * seconds[stage]) for stage in _STAGES)]
        counters = pa.list_(pa.int64())
        names = list(self.names)
        pairs = pa.table([*taken, pa.array(found.probability), pa.nulls(len(found.left), counters)], names=names)
        first = [
            *(pa.nulls(1, column.type) for column in taken),
            pa.nulls(1, pa.float64()),
            pa.array([counts], counters),
        ]
        # the counters come first: an action that stops early, as show() does, then still counts the cells it has seen
        return pa.concat_tables([pa.table(first, names=names), pairs])

    def _with_further(self, left: pa.Table, right: pa.Table, found: Matches) -> Matches:
        assert self.threshold is not None
        probability = found.probability
        for further in self.further:
            pairs = left.select([further.left]).take(found.left), right.select([further.right]).take(found.right)
            probability = probability * further.row_by_row(*pairs)
        kept = self.threshold.keep(probability, counts=False)
        return Matches(
            found.left[kept], found.right[kept], probability[kept], found.decided_by[kept], found.counters,
            found.seconds,
        )  # fmt: skip


def _cells(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of one cell after the other; only one cell is held at a time."""
    held: list[pa.RecordBatch] = []
    current: int | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        cells = batch.column(CELL).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(cells)]
        for begin, end in itertools.pairwise(cuts):
            if held and cells[begin] != current:
                yield pa.Table.from_batches(held)
                held = []
            current = cells[begin]
            held.append(batch.slice(begin, end - begin))
    if held:
        yield pa.Table.from_batches(held)


def _shared_codes(keys: list[tuple[pa.ChunkedArray, pa.ChunkedArray]]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that are equal for rows of either side whose keys are all equal."""
    codes: np.ndarray | None = None
    for left, right in keys:
        both = pa.chunked_array([*left.chunks, *right.chunks], left.type).combine_chunks()
        index = pc.dictionary_encode(both).indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = index if codes is None else np.unique(codes * (int(index.max()) + 1) + index, return_inverse=True)[1]
    assert codes is not None
    return codes[: len(keys[0][0])], codes[len(keys[0][0]) :]
