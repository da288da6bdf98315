"""Rows of tables in parcels: the rows of a batch that go to one cell travel as one piece of Arrow bytes.

Spark's own way, an interval for each row, a row for each cell, and all rows sorted by cell, takes it longer than the
join itself where intervals are more than arithmetic. Here Python finds intervals and cells for many rows at once, and
what Spark moves and sorts are parcels, some hundred times fewer than rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from haply.models import Model
from haply.models.columns import read_column, view_column
from haply.pruning.cells import lay_out
from haply.pruning.intervals import Intervals
from haply.spark.columns import arrow_function
from haply.spark.parcels import to_bytes
from haply.spark.partition import (
    CELL,
    END,
    LEFT,
    NATIVE,
    RIGHT,
    SIDE,
    SLICE_BITS,
    START,
    CellSettings,
    read_profile,
    slices_of,
)
from haply.spark.prepare import bad_row

FITS, PARCEL, COUNTS = "__fits", "__parcel", "__counts"
PARCEL_TYPE = f"{CELL} bigint, {SIDE} tinyint, {PARCEL} binary, {COUNTS} array<bigint>"
_LAYOUT, _SALT = "__layout", "__salt"
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 18, 1 << 26


def edges_frame(profile: DataFrame, settings: CellSettings) -> DataFrame:
    """One row ``layout``, made from that of ``profiles`` when the query runs: see ``CellEdges``."""

    def compute(left_profile: pa.Array, right_profile: pa.Array) -> pa.Array:
        rows = []
        for one, other in zip(left_profile.to_pylist(), right_profile.to_pylist(), strict=True):
            found = lay_out(
                read_profile(one), read_profile(other), rows_per_cell=settings.rows_per_cell, cells=settings.cells
            )
            slices = slices_of(found)
            packed = np.array(slices, np.int64).tobytes() + found.edges.astype(np.float64).tobytes()
            rows.append({"packed": packed, "sliced": bool(slices)})
        return pa.array(rows, pa.struct([("packed", pa.binary()), ("sliced", pa.bool_())]))

    # In bytes: where a column of lists is mostly null, Spark takes long to tell how large a batch has become.
    layout = arrow_function(compute, "packed binary, sliced boolean")
    return profile.select(layout("left", "right").alias("layout"))


class CellEdges(NamedTuple):
    """Where cells begin, but for the first, and the slices of each, if any is sliced."""

    edges: np.ndarray
    slices: np.ndarray

    @classmethod
    def unpacked(cls, packed: bytes, sliced: bool) -> CellEdges:
        """From the bytes of a layout: slices, one more than edges, come first."""
        cells = (len(packed) // 8 + 1) // 2 if sliced else 0
        slices = np.frombuffer(packed, np.int64, cells)
        return cls(np.frombuffer(packed, np.float64, offset=8 * cells), slices)


def with_layout(stacked: DataFrame, layout: DataFrame, salt: list[str]) -> DataFrame:
    """The rows of both sides; the first of every partition has the layout with it, and all a hash if it has slices."""
    kept = stacked.columns
    begins = "monotonically_increasing_id() % 8589934592 = 0"
    return stacked.withColumn("layout", layout.scalar()).selectExpr(
        *kept,
        f"IF({begins}, layout.packed, NULL) AS {_LAYOUT}",
        f"IF(layout.sliced, xxhash64({', '.join(salt) or '0'}), NULL) AS {_SALT}",
    )


@dataclass(frozen=True)
class PackedSide:
    """What is to know of one side: its columns, how rows are placed, and how to name columns that have bad rows."""

    value: str
    payload: tuple[str, ...]
    further: tuple[tuple[str, str], ...]
    """Other uncertain columns, which must be neither bad nor null, and what their owner calls them."""
    place: Callable[[Model], Intervals]
    called: str
    raise_as: str | None


@dataclass(frozen=True)
class Pack:
    """Rows of both sides into parcels by cell, as a function for ``mapInArrow``."""

    sides: tuple[PackedSide, PackedSide]
    more: tuple[str, ...]
    """Columns that both sides have besides: keys and times."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parcels, and a row of counts for each batch of them."""
        layout: CellEdges | None = None
        held: list[pa.RecordBatch] = []
        for batch in batches:
            if not batch.num_rows:
                continue
            if layout is None:
                layout = CellEdges.unpacked(batch.column(_LAYOUT)[0].as_py(), batch.column(_SALT)[0].is_valid)
            held.append(batch.drop_columns([_LAYOUT]))
            enough = sum(part.num_rows for part in held) >= _ROWS_AT_ONCE
            if enough or sum(part.nbytes for part in held) >= _BYTES_AT_ONCE:
                yield from self._packed(held, layout)
                held = []
        if layout is not None and held:
            yield from self._packed(held, layout)

    def _packed(self, batches: list[pa.RecordBatch], layout: CellEdges) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        of = table[SIDE].to_numpy()
        for side in (LEFT, RIGHT):
            mine = of == side
            if mine.any():
                yield self._side(table if mine.all() else table.filter(pa.array(mine)), side, layout)

    def _side(self, table: pa.Table, side: int, layout: CellEdges) -> pa.RecordBatch:
        table, intervals, counts = usable_rows(table, self.sides[side], (*self.more, _SALT))
        rows, native, cell = _cells_of(table, intervals, side, layout)
        return parcels_of(table.drop_columns([_SALT]), intervals, rows, native, cell, side, counts)


def usable_rows(table: pa.Table, side: PackedSide, more: tuple[str, ...]) -> tuple[pa.Table, Intervals, list[int]]:
    """The rows that take part, with their intervals, and what was counted."""
    good, bad = np.ones(table.num_rows, dtype=bool), np.zeros(table.num_rows, dtype=bool)
    whole = None
    for name, called in ((side.value, side.called), *side.further):
        read = read_column(table[name])
        if len(read.bad_rows) and side.raise_as is not None:
            raise bad_row(side.raise_as.format(called), read.example)
        if name == side.value and len(read.rows) == table.num_rows:
            whole = read.model
        bad[read.bad_rows] = True
        here = np.zeros(table.num_rows, dtype=bool)
        here[read.rows] = True
        good &= here
    nulls = int((~good & ~bad).sum())
    kept = table.select([*dict.fromkeys((side.value, *side.payload)), *more])
    usable = good & table[FITS].to_numpy(zero_copy_only=False)
    if whole is None or not usable.all():
        kept = kept.filter(pa.array(usable))
        whole = view_column(kept[side.value])
    found = side.place(whole)
    hopeless = int(found.hopeless.sum())
    if hopeless:
        rows = np.flatnonzero(~found.hopeless)
        kept, found = kept.take(pa.array(rows)), found.take(rows)
    return kept, found, [table.num_rows, nulls, hopeless, int(bad.sum())]


def parcels_of(
    table: pa.Table,
    intervals: Intervals,
    rows: np.ndarray,
    native: np.ndarray,
    cell: np.ndarray,
    side: int,
    counts: list[int],
) -> pa.RecordBatch:
    """A parcel for each cell, of the rows that go there, and a row for what was counted (as ``ROW_COUNTS``)."""
    order = np.argsort(cell, kind="stable")
    rows, native, cell = rows[order], native[order], cell[order]
    sent = table.combine_chunks().take(pa.array(rows))
    sent = (
        sent.append_column(START, pa.array(intervals.start[rows]))
        .append_column(END, pa.array(intervals.end[rows]))
        .append_column(NATIVE, pa.array(native))
    )
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(cell)) + 1, [len(cell)]]).tolist() if len(cell) else [0]
    parts = [sent.slice(begin, end - begin) for begin, end in itertools.pairwise(cuts)]
    columns = [
        pa.array([*cell[cuts[:-1]].tolist(), None], pa.int64()),
        pa.array(np.full(len(parts) + 1, side, np.int8)),
        pa.array([*map(to_bytes, parts), None], pa.binary()),
        pa.array([*[None] * len(parts), counts], pa.list_(pa.int64())),
    ]
    return pa.RecordBatch.from_arrays(columns, [CELL, SIDE, PARCEL, COUNTS])


def _cells_of(
    table: pa.Table, intervals: Intervals, side: int, layout: CellEdges
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, once for each cell (and slice) they go to, whether they are native there, and the cell.

    They are native in the cell of their lower end: see ``place`` for the same in SQL.
    """
    first = np.searchsorted(layout.edges, np.minimum(intervals.start, intervals.end), "right")
    last = np.maximum(first, np.searchsorted(layout.edges, intervals.end, "right"))
    rows, at = _spread(last - first + 1)
    at += first[rows]
    native = at == first[rows]
    cell = at << (2 * SLICE_BITS)
    if len(layout.slices):
        size = 1 << SLICE_BITS
        counts = layout.slices[at]
        own, other = (counts // size, counts % size) if side == LEFT else (counts % size, counts // size)
        mine = np.mod(table[_SALT].to_numpy()[rows], own)
        again, theirs = _spread(other)
        rows, native, cell, mine = rows[again], native[again], cell[again], mine[again]
        cell = cell + (mine * size + theirs if side == LEFT else theirs * size + mine)
    return rows, native, cell


def _spread(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each number as often as its count says, and which of its repetitions it is."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
