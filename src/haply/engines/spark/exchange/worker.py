"""The work of a Spark worker: parcels of a partition come sorted by cell; each cell returns its pairs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from haply.engines.spark.exchange.parcels import PARCEL, from_bytes
from haply.engines.spark.exchange.stack import CELL, SIDE
from haply.joins.cells.join import CellJoin
from haply.joins.cells.rows import LEFT
from haply.pruning.cascade import Counters

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

COUNTERS = "__counters"
"""The column that holds a cell's counters in a separate row, and null in the rows of pairs."""

_STAGES = ("prepare", "sweep", "decide", "assemble")
_PAIRS_PER_BATCH = 1 << 16


def counter_names(counters: Counters) -> list[str]:
    """Name what a cell counts. Kept pairs are counted at the end of the plan, after certain conditions on pairs."""
    return [*counters.flat(), *(f"nanoseconds:{stage}" for stage in _STAGES)]


@dataclass(frozen=True)
class SideColumns:
    """Where a side's columns are in the stacked rows: its value, and all that goes into the result."""

    value: str
    payload: tuple[str, ...]
    value_in_parts: bool

    def taken(self, rows: pa.Table, chosen: np.ndarray) -> list[pa.ChunkedArray]:
        """Return the payload of chosen rows; the fields of the value one by one if so wanted."""
        columns = []
        for name in self.payload:
            parts = rows[name].flatten() if name == self.value and self.value_in_parts else [rows[name]]
            columns += [part.take(pa.array(chosen)) for part in parts]
        return columns


@dataclass(frozen=True)
class CellWorker:
    """The join of all cells of a partition, as a function for ``mapInArrow``."""

    left: SideColumns
    right: SideColumns
    schema: pa.Schema
    cell: CellJoin
    counters: int
    """How many there are."""
    found: Accumulator[int] | None = None
    """Counts pairs while the join runs, for a progress bar."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of every cell, each cell's counters before them."""
        for cell in cells_of(batches):
            # sorted by side within the cell
            lefts = int(np.count_nonzero(cell[SIDE].to_numpy() == LEFT))
            if 0 < lefts < cell.num_rows:
                yield from self.decided(opened(cell[PARCEL][:lefts]), opened(cell[PARCEL][lefts:]))

    def decided(self, left: pa.Table, right: pa.Table, more: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the kept pairs of two tables, their counters before them, and behind these what else was counted."""
        yield from self._decide(left, right, more).to_batches(max_chunksize=_PAIRS_PER_BATCH)

    def nothing(self, more: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the counters if one side has no rows."""
        if self._counts:
            yield from counter_row(self.schema, [*[0] * self.counters, *more]).to_batches()

    @property
    def _counts(self) -> bool:
        """Return whether counters are needed."""
        return COUNTERS in self.schema.names

    def _decide(self, left: pa.Table, right: pa.Table, more: Sequence[int]) -> pa.Table:
        found = self.cell.pairs(left, right)
        if found is None:
            return pa.Table.from_batches(list(self.nothing(more)), self.schema)
        if self.found is not None:
            self.found.add(len(found.left))
        begun = time.perf_counter()
        taken = [*self.left.taken(left, found.left), *self.right.taken(right, found.right)]
        if not self._counts:
            return pa.table([*taken, pa.array(found.probability)], names=self.schema.names)
        seconds = {**found.seconds, "assemble": time.perf_counter() - begun}
        counts = [*found.counters.flat().values(), *(int(1e9 * seconds[stage]) for stage in _STAGES)]
        none = pa.nulls(len(found.left), pa.list_(pa.int64()))
        pairs = pa.table([*taken, pa.array(found.probability), none], names=self.schema.names)
        return pa.concat_tables([counter_row(pairs.schema, [*counts, *more]), pairs])


def counter_row(schema: pa.Schema, counts: Sequence[int]) -> pa.Table:
    """Return the row of a cell's counters.

    It comes before the pairs: an action that stops early, as show() does, then still counts the cells it has seen.
    """
    columns = [pa.array([counts if field.name == COUNTERS else None], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def opened(parcels: pa.ChunkedArray) -> pa.Table:
    """Return all rows of some parcels, in one piece."""
    return pa.concat_tables([from_bytes(parcel.as_buffer()) for parcel in parcels]).combine_chunks()


def cells_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the parcels of one cell after the other, holding one cell at a time. Rows of no cell are left out."""
    held: list[pa.RecordBatch] = []
    current: int | None = None
    for batch in batches:
        if batch.column(CELL).null_count:
            batch = batch.filter(batch.column(CELL).is_valid())
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
