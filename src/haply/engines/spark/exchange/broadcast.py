"""Broadcast joins: one whole table is sent to every task of the other, without cells and without a shuffle.

Its rows are collected in one value, a subquery of the plan, so the join stays lazy. Python gets the value with
the first row of every partition of the other table, which stays where it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from haply.engines.spark.exchange.parcels import BYTES_AT_ONCE, PARCEL, ROWS_AT_ONCE, folded, in_blocks, to_buffer
from haply.engines.spark.exchange.worker import CellWorker
from haply.errors import HaplyError
from haply.joins.cells.rows import END, LEFT, ROW_COUNTS, START, RowSpec, good_rows, usable_rows

_SENT, _COUNTED, _REFUSED = "__sent", b"counted", b"refused"


@dataclass(frozen=True)
class Ready:
    """Rows of one side, as they come from Spark, made ready for ``CellWorker.decided``."""

    side: RowSpec
    fields: Mapping[str, tuple[str, ...]]
    more: tuple[str, ...]
    ends: bool
    """Whether the pairs of a row are found by its interval."""
    counted: bool
    """Whether hopeless rows are counted."""

    def __call__(self, batches: list[pa.RecordBatch]) -> tuple[pa.Table, list[int]]:
        """Return the rows that take part, and what was counted (as ``ROW_COUNTS``)."""
        table = folded(batches, self.fields)
        if not (self.ends or self.counted):
            return good_rows(table, self.side, self.more).table, []
        table, intervals, counts = usable_rows(table, self.side, self.more)
        if self.ends:
            table = table.append_column(START, pa.array(intervals.start)).append_column(END, pa.array(intervals.end))
        return table, counts


def sent_frame(rows: DataFrame, ready: Ready) -> DataFrame:
    """Make one row with a whole table: its rows in parcels, one after the other, each with its counts."""

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for held in in_blocks(batches):
            try:
                table, counts = ready(held)
                told = {_COUNTED: np.array(counts, np.int64).tobytes()}
            except HaplyError as refusal:  # raised where the rows are used: Spark garbles errors of a subquery
                table, told = pa.table({}), {_REFUSED: str(refusal).encode()}
            data = to_buffer(table.replace_schema_metadata(told))
            ends = pa.py_buffer(np.array([0, data.size], np.int32))
            # pa.array would copy the bytes
            parcel = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
            yield pa.RecordBatch.from_arrays([parcel], [PARCEL])

    return rows.mapInArrow(send, f"{PARCEL} binary").selectExpr(f"listagg({PARCEL})")


def beside(rows: DataFrame, sent: DataFrame) -> DataFrame:
    """Return the rows of the other table; the first row of every partition carries the sent table."""
    # A subquery, which is computed once; joined to the rows, the table would be copied for each of them.
    return rows.withColumn(_SENT, sent.scalar()).selectExpr(
        *rows.columns, f"IF(monotonically_increasing_id() % 8589934592 = 0, {_SENT}, NULL) AS {_SENT}"
    )


@dataclass(frozen=True)
class Meet:
    """The join of rows with the table that was sent, as a function for ``mapInArrow``."""

    ready: Ready
    cells: CellWorker
    sent: int
    """The side that was sent."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of every block of rows, its counters first: of a cell, then rows here, then rows sent."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        there, counts = _opened(first.column(_SENT)[0])
        rest = (batch.drop_columns([_SENT]) for batch in itertools.chain([first], filled))
        # The sent rows are searched for every block, so blocks are at least as large.
        rows, size = (0, 0) if there is None else (there.num_rows, there.nbytes)
        for held in in_blocks(rest, max(ROWS_AT_ONCE, rows), max(BYTES_AT_ONCE, size)):
            here, own = self.ready(held)
            if there is None or not here.num_rows or not rows:
                yield from self.cells.nothing([*own, *counts])
            else:
                sides = (there, here) if self.sent == LEFT else (here, there)
                yield from self.cells.decided(*sides, [*own, *counts])


def _opened(sent: Any) -> tuple[pa.Table | None, list[int]]:
    """Return all rows of parcels that follow one another, in one piece, and what was counted of all."""
    if not sent.is_valid:
        return None, [0] * len(ROW_COUNTS)
    source, tables = pa.BufferReader(sent.as_buffer()), []
    while source.tell() < source.size():
        tables.append(pa.ipc.open_stream(source).read_all())
    refusals = [table.schema.metadata[_REFUSED] for table in tables if _REFUSED in table.schema.metadata]
    if refusals:
        raise HaplyError(refusals[0].decode())
    counts = sum(np.frombuffer(table.schema.metadata[_COUNTED], np.int64) for table in tables)
    return pa.concat_tables(tables).combine_chunks(), np.asarray(counts).tolist()
