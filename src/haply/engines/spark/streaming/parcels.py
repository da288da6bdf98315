"""Rows of a stream in parcels: Arrow bytes for each cell, and the clock that Spark's watermark keeps for them.

Spark hands rows to a stateful function one by one, at a price. So rows travel in parcels: the rows of a batch that go
to one cell are one piece of Arrow bytes, and so are the pairs that come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.joins.cells.rows import TIME, bad_row
from haply.joins.operators.timing import latest_times
from haply.models import Certain, Model, OneDimensional
from haply.models.columns import read_column, view_column
from haply.pruning.candidates.intervals import Intervals

CELL, SIDE, NEWEST, PARCEL, COUNTS, REACH = "cell", "side", "newest", "parcel", "counts", "reach"
PARCEL_TYPE = f"{CELL} int, {SIDE} int, {NEWEST} timestamp, {PARCEL} binary, {COUNTS} array<bigint>, {REACH} double"
_ARROW_TYPES = (pa.int32(), pa.int32(), pa.timestamp("us", "UTC"), pa.binary(), pa.list_(pa.int64()), pa.float64())

CONTROL = -1
"""The number of a cell that has no rows: every batch tells it what the query is, so that another one is noticed."""

GROUP, STANDING, ORDER, HOME = "__group", "__standing", "__order", "__home"
LEFT_OUT, WITHOUT_KEY, TAKES_PART = 0, 1, 2
"""The standing of a row: its side's own conditions fail, a key is null, or neither."""

_COUNTABLE = 2.0**52


@dataclass(frozen=True)
class Clock:
    """Times of rows as Spark's watermark knows them, in milliseconds since 1970, and back.

    Spark's clock starts at 1970 and counts milliseconds. Numbers are scaled so that window and delay together are a
    tenth of a second, and moved far above zero; what is lost in that is allowed for. So the clock runs from a million
    million times that span before zero to ninety times as many after it. For timestamps it does not run before 1970:
    nothing is lost there, but nothing is forgotten either.
    """

    stamps: bool
    scale: float

    _MOVED = 1e11
    _BEGINS = 1.0

    @classmethod
    def of(cls, stamps: bool, span: float) -> Clock:
        """For times whose window and delay add up to ``span``."""
        return cls(stamps, 1e-6 if stamps else (0.1 / span if span > 0.0 else 1.0))

    def seconds(self, times: np.ndarray) -> np.ndarray:
        """Seconds since 1970, never falling where times rise."""
        moved = times * self.scale + (0.0 if self.stamps else self._MOVED)
        return np.clip(moved, 0.0 if self.stamps else self._BEGINS, 9e12)

    def time(self, milliseconds: float) -> float:
        """The time of a row that the clock shows, rounded down; minus infinity while it has not begun."""
        if milliseconds <= (0.0 if self.stamps else 1000.0 * self._BEGINS):
            return -np.inf
        slack = 0.0 if self.stamps else 0.002
        return (milliseconds / 1000.0 - slack - (0.0 if self.stamps else self._MOVED)) / self.scale

    def delay(self, length: float) -> int:
        """A length of time in milliseconds, rounded up."""
        return int(np.ceil(length * self.scale * 1000.0)) + 1


@dataclass(frozen=True)
class StreamPack:
    """Rows of one side into parcels by cell, as a function for ``mapInArrow``.

    Each row has an interval on a line; rows whose intervals are disjoint never match. The line is cut into blocks of
    equal width, which are dealt out to the cells in turn. A row goes to the cells of all blocks it touches; it is at
    home in that of its first. All rows move the clock, also those that take no part.
    """

    side: int
    cells: int
    width: float
    clock: Clock
    placed: str | None
    """The column that has the place of a row; the time has it if there is none."""
    place: Callable[[Model], Intervals]
    raise_as: str | None
    """How to name this side's columns in the error for a bad row, with a gap for the column; bad rows are left out if
    there is none."""
    names: Mapping[str, str]
    """What columns are called by their owner."""
    timed: str | None = None
    """A column of uncertain times; else rows have a certain one."""
    further: tuple[str, ...] = ()
    """Other columns of uncertain values, which must be neither bad nor null."""
    reach: Callable[[OneDimensional], float] | None = None
    """How far back uncertain times reach. All cells are told, also those that get no rows: what may come to them from
    this side is not longer than what has come elsewhere, as far as anybody knows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row per cell and batch, and one for the control cell."""
        for batch in batches:
            if batch.num_rows:
                yield self._parcels(pa.Table.from_batches([batch]))

    def _parcels(self, table: pa.Table) -> pa.RecordBatch:
        if self.timed is not None:
            table = table.append_column(TIME, pa.array(self._latest(table[self.timed])))
        known = np.asarray(table[TIME].fill_null(np.nan))
        known = known[np.isfinite(known)]
        newest = int(self.clock.seconds(known.max(keepdims=True))[0] * 1e6) if len(known) else None
        table, intervals, counts = self._usable(table)
        parts = dict(self._by_cell(table, intervals))
        told, reach = list(parts), None
        if self.reach is not None and table.num_rows:
            model = view_column(table[self.timed])
            assert isinstance(model, OneDimensional)
            told, reach = list(range(self.cells)), self.reach(model)
        rows: list[tuple[Any, ...]] = [(CONTROL, self.side, newest, None, counts, None)]
        rows += [
            (cell, self.side, newest, to_bytes(parts[cell]) if cell in parts else None, None, reach) for cell in told
        ]
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), _ARROW_TYPES, strict=True)]
        return pa.RecordBatch.from_arrays(columns, [CELL, SIDE, NEWEST, PARCEL, COUNTS, REACH])

    @staticmethod
    def _latest(column: pa.ChunkedArray) -> np.ndarray:
        read = read_column(column)
        assert isinstance(read.model, OneDimensional)
        latest = np.full(len(column), np.nan)
        latest[read.rows] = latest_times(read.model)
        return latest

    def _usable(self, table: pa.Table) -> tuple[pa.Table, Intervals, list[int]]:
        """The rows that take part, with their intervals, and what was counted."""
        table = table.filter(pc.not_equal(table[STANDING], LEFT_OUT))
        good, bad = np.ones(table.num_rows, dtype=bool), np.zeros(table.num_rows, dtype=bool)
        for name in (self.placed, *self.further):
            if name is not None:
                read = read_column(table[name])
                if len(read.bad_rows) and self.raise_as is not None:
                    raise bad_row(self.raise_as.format(self.names[name]), read.example)
                bad[read.bad_rows] = True
                here = np.zeros(table.num_rows, dtype=bool)
                here[read.rows] = True
                good &= here
        nulls = int((~good & ~bad).sum())
        usable = good & (np.asarray(table[STANDING]) == TAKES_PART)
        usable &= np.isfinite(np.asarray(table[TIME].fill_null(np.nan)))
        kept = table.filter(pa.array(usable))
        found = self.place(Certain(kept[TIME].to_numpy()) if self.placed is None else view_column(kept[self.placed]))
        counts = [table.num_rows, nulls, int(found.hopeless.sum()), int(bad.sum())]
        rows = np.flatnonzero(~found.hopeless)
        return kept.take(pa.array(rows)).drop_columns([STANDING]), found.take(rows), counts

    def _by_cell(self, table: pa.Table, intervals: Intervals) -> Iterator[tuple[int, pa.Table]]:
        first, last = np.floor(intervals.start / self.width), np.floor(intervals.end / self.width)
        seen = np.clip(last - first + 1.0, 1.0, self.cells).astype(np.int64)
        beyond = ~(np.maximum(np.abs(first), np.abs(last)) < _COUNTABLE)
        seen[beyond] = self.cells  # blocks whose numbers have no neighbours: to be safe, everywhere
        rows = np.repeat(np.arange(len(first)), seen)
        first = np.where(np.isfinite(first), first, -_COUNTABLE)  # rows that begin nowhere are at home somewhere, too
        block = first[rows] + (np.arange(len(rows)) - np.repeat(np.cumsum(seen) - seen, seen))
        shift = np.mod(np.asarray(table[GROUP]), self.cells)  # rows of different groups never meet: deal them out
        cell = np.mod(block + shift[rows], self.cells).astype(np.int64)
        cell[beyond[rows]] = np.tile(np.arange(self.cells), int(beyond.sum()))
        home = cell == np.mod(first + shift, self.cells)[rows]
        order = np.argsort(cell, kind="stable")
        for chosen in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1) if len(order) else []:
            part = table.take(pa.array(rows[chosen]))
            part = part.append_column(ORDER, pa.array(first[rows[chosen]]))
            yield int(cell[chosen[0]]), part.append_column(HOME, pa.array(home[chosen].astype(np.float64)))


def group_of(keys: list[str]) -> str:
    """SQL for a number that is equal for equal keys. It has no more digits than a double: its last ones deal out."""
    return f"CAST(xxhash64({', '.join(keys)}) % {2**52} AS DOUBLE)" if keys else "0D"


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pairs out of their parcels."""
    for batch in batches:
        for parcel in batch.column(0):
            yield from from_bytes(parcel.as_buffer()).to_batches()


def to_bytes(table: pa.Table) -> bytes:
    """A table as Arrow bytes."""
    return bytes(to_buffer(table))


def to_buffer(table: pa.Table) -> pa.Buffer:
    """The same without a copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_bytes(data: Any) -> pa.Table:
    """The table that was made into these bytes."""
    return pa.ipc.open_stream(pa.py_buffer(data) if isinstance(data, bytes) else data).read_all()
