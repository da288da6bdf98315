"""Rows of a stream in parcels (see ``exchange.parcels``), and the clock that Spark's watermark keeps for them.

Spark passes rows to a stateful function one by one, which is slow. So the rows of a batch that go to one cell are one
piece of Arrow bytes, and so are the pairs that come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from haply.engines.spark.exchange.parcels import COUNTS, PARCEL, from_bytes, in_parcels, to_bytes
from haply.engines.spark.exchange.stack import CELL, SIDE
from haply.errors import HaplyError
from haply.joins.cells.exchange import Blocks, to_blocks
from haply.joins.cells.rows import BAD, TIME, RowSpec, in_window, row_states, usable_rows
from haply.joins.operators.timing import latest_times
from haply.models import OneDimensional
from haply.models.columns import read_column, view_column

NEWEST, REACH = "newest", "reach"
STREAM_PARCEL_TYPE = (
    f"{CELL} int, {SIDE} int, {NEWEST} timestamp, {PARCEL} binary, {COUNTS} array<bigint>, {REACH} double"
)
_ARROW_TYPES = (pa.int32(), pa.int32(), pa.timestamp("us", "UTC"), pa.binary(), pa.list_(pa.int64()), pa.float64())

CONTROL = -1
"""The number of a cell without rows: every batch sends it the query, so that a changed query is noticed."""

GROUP, BEGINS = "__group", "__begins"
"""The number of a row's keys, and where it begins on the axis that is cut into cells."""
OWN = "__own"
"""Whether the conditions of its own side hold for a row; not there if there are none. Rows for which they do not hold
are not counted, but advance the clock."""
ROW, UNTIL = "__row", "__until"
"""The id of a row, and the time at which it ends where that is not its time: if rows without a pair matter, or the best
pairs of a row."""
ROW_TYPE = pa.binary(16)
_PLACE = "__place"
_PARTITION_BITS = 24


@dataclass(frozen=True)
class Clock:
    """Times of rows as Spark's watermark knows them, in milliseconds since 1970, and back.

    Spark's clock starts at 1970 and counts milliseconds. Numbers are scaled so that window and delay together are a
    tenth of a second, and moved far above zero; the rounding is allowed for. So the clock runs from a million
    million times that span before zero to ninety times as many after it. For timestamps it does not run before 1970:
    nothing is lost before that, but nothing is forgotten either.
    """

    stamps: bool
    scale: float

    _MOVED = 1e11
    _BEGINS = 1.0

    @classmethod
    def of(cls, stamps: bool, span: float) -> Clock:
        """Make those for times whose window and delay add up to ``span``."""
        return cls(stamps, 1e-6 if stamps else (0.1 / span if span > 0.0 else 1.0))

    def seconds(self, times: np.ndarray) -> np.ndarray:
        """Seconds since 1970, never falling where times rise."""
        moved = times * self.scale + (0.0 if self.stamps else self._MOVED)
        return np.clip(moved, 0.0 if self.stamps else self._BEGINS, 9e12)

    def time(self, milliseconds: float) -> float:
        """Return the time of a row that the clock shows, rounded down; minus infinity while it has not begun."""
        if milliseconds <= (0.0 if self.stamps else 1000.0 * self._BEGINS):
            return -np.inf
        slack = 0.0 if self.stamps else 0.002
        return (milliseconds / 1000.0 - slack - (0.0 if self.stamps else self._MOVED)) / self.scale

    def delay(self, length: float) -> int:
        """Return a length of time in milliseconds, rounded up."""
        return int(np.ceil(length * self.scale * 1000.0)) + 1


@dataclass
class RowNumbers:
    """Ids for the rows that a task reads: the micro-batch, the partition, and the place there.

    No two rows of a query ever share one. They are the same when Spark repeats the batch, or a task that reads its rows
    in the same order again, as from files or Kafka; behind a shuffle the order of a repeated task may differ. A row has
    its id before it is copied to cells, so that all copies have the same.
    """

    batch: int
    partition: int
    following: int = 0

    @classmethod
    def of_task(cls) -> RowNumbers:
        """Return those of the task that runs in this process."""
        task = TaskContext.get()
        batch = None if task is None else task.getLocalProperty("streaming.sql.batchId")
        if task is None or batch is None:
            raise HaplyError("Spark does not say which micro-batch this is", expected="a task of a streaming query")
        return cls(int(batch), task.partitionId())

    def numbered(self, table: pa.Table) -> pa.Table:
        """Return the table with the ids of its rows, 16 bytes each."""
        parts = np.empty((table.num_rows, 2), np.int64)
        parts[:, 0] = (self.batch << _PARTITION_BITS) | self.partition
        parts[:, 1] = np.arange(self.following, self.following + table.num_rows)
        self.following += table.num_rows
        ids = pa.Array.from_buffers(ROW_TYPE, table.num_rows, [None, pa.py_buffer(parts)])
        return table.append_column(ROW, ids)


@dataclass(frozen=True)
class StreamPack:
    """Puts rows of one side into parcels by cell, as a function for ``mapInArrow``.

    All rows advance the clock, also those that take no part.
    """

    side: int
    spec: RowSpec
    blocks: Blocks
    clock: Clock
    window: float | None = None
    """How far apart certain times may be, if rows go to cells by these; else they go by their intervals."""
    timed: str | None = None
    """A column of uncertain times; else rows have a certain one."""
    reach: Callable[[OneDimensional], float] | None = None
    """How far back uncertain times reach. It is sent to all cells, also those that get no rows: the longest time so
    far is the best estimate for all of them."""
    numbered: bool = False
    """Whether rows get ids."""
    alone: bool = False
    """Whether rows that take no part are passed on, with ``~side`` as their side: to one cell, any."""
    lasting: Callable[[OneDimensional], np.ndarray] | None = None
    """When uncertain times end, if that matters."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per cell and batch, and one for the control cell."""
        numbers = RowNumbers.of_task() if self.numbered else None
        for batch in batches:
            if batch.num_rows:
                table = pa.Table.from_batches([batch])
                yield self._parcels(table if numbers is None else numbers.numbered(table))

    def _parcels(self, table: pa.Table) -> pa.RecordBatch:
        if self.timed is not None:
            table = table.append_column(TIME, pa.array(self._latest(table[self.timed])))
        if self.alone:
            table = table.append_column(_PLACE, pa.array(np.arange(table.num_rows)))
        known = np.asarray(table[TIME].fill_null(np.nan))
        known = known[np.isfinite(known)]
        newest = int(self.clock.seconds(known.max(keepdims=True))[0] * 1e6) if len(known) else None
        whole = table
        if OWN in table.column_names:
            table = table.filter(table[OWN])
        more = [name for name in (TIME, GROUP, ROW, _PLACE) if name in table.column_names]
        table, intervals, counts = usable_rows(table, self.spec, tuple(more))
        others = None
        if self.alone:
            others = self._others(whole, table[_PLACE].to_numpy())
            table = table.drop_columns([_PLACE])
        if self.lasting is not None:
            table = table.append_column(UNTIL, pa.array(self.lasting(view_column(table[self.timed]))))  # type: ignore[arg-type]
        if self.window is not None:
            intervals = in_window(table[TIME].to_numpy(), self.window)
        sent = to_blocks(intervals, table[GROUP].to_numpy(), self.blocks)
        parts = in_parcels(table.append_column(BEGINS, pa.array(intervals.begins)), sent)
        told, reach = list(parts), None
        if self.reach is not None and table.num_rows:
            model = view_column(table[self.timed])
            assert isinstance(model, OneDimensional)
            told, reach = list(range(self.blocks.cells)), self.reach(model)
        rows: list[tuple[Any, ...]] = [(CONTROL, self.side, newest, None, counts, None)]
        rows += [(cell, self.side, newest, parts.get(cell), None, reach) for cell in told]
        if others is not None and others.num_rows:
            rows.append((len(whole) % self.blocks.cells, ~self.side, newest, to_bytes(others), None, None))
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), _ARROW_TYPES, strict=True)]
        return pa.RecordBatch.from_arrays(columns, [CELL, SIDE, NEWEST, PARCEL, COUNTS, REACH])

    def _others(self, whole: pa.Table, taken: np.ndarray) -> pa.Table:
        """Return the rows that take no part, except bad ones: it is not known whether these have a partner."""
        out = np.ones(whole.num_rows, bool)
        out[taken] = False
        rest = whole.filter(pa.array(out))
        good = np.ones(rest.num_rows, bool)
        for name in (self.spec.value, *(name for name, _ in self.spec.further)):
            if name != TIME and rest.num_rows:
                good &= row_states(rest[name], None)[0] != BAD
        return rest.select([*self.spec.payload, TIME, GROUP, ROW]).filter(pa.array(good)).combine_chunks()

    @staticmethod
    def _latest(column: pa.ChunkedArray) -> np.ndarray:
        read = read_column(column)
        assert isinstance(read.model, OneDimensional)
        latest = np.full(len(column), np.nan)
        latest[read.rows] = latest_times(read.model)
        return latest


def group_of(keys: list[str]) -> str:
    """SQL for a number that is equal for equal keys. A double holds it exactly, as its last digits choose the cell."""
    return f"CAST(xxhash64({', '.join(keys)}) % {2**52} AS DOUBLE)" if keys else "0D"


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unpack pairs from their parcels."""
    for batch in batches:
        for parcel in batch.column(0):
            yield from from_bytes(parcel.as_buffer()).to_batches()
