"""Rows of tables in parcels: the rows of a batch that go to one cell travel as one piece of Arrow bytes.

In plain Spark, an interval for each row, a row for each cell, and sorting all rows by cell would take longer than the
join itself. Here Python finds intervals and cells for many rows at once, and Spark shuffles and sorts parcels, some
hundred times fewer than rows.

Nothing here runs a separate job: the layout of the cells is a subquery of the plan, so a join stays lazy. It must
be used once: two uses might be computed twice, from rows in another order, and different layouts would lose pairs. So
the two sides of a join are stacked into one frame before they meet it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from haply.engines.spark.exchange.stack import CELL, SIDE, field_names
from haply.engines.spark.versions import arrow_function
from haply.joins.cells.exchange import LEVELS, TYPICAL_WIDTH, CellEdges, Sent, to_cells, warm_exchange
from haply.joins.cells.rows import (
    BEGINS_HERE,
    END,
    FITS,
    LEFT,
    RIGHT,
    START,
    TIME,
    TIME_BEGINS_HERE,
    RowSpec,
    in_window,
    usable_rows,
)
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cells import ROWS_PER_CELL, Profile, expected_candidates, lay_out

PARCEL, COUNTS = "parcel", "counts"
PARCEL_TYPE = f"{CELL} bigint, {SIDE} tinyint, {PARCEL} binary, {COUNTS} array<bigint>"
SKETCH_TYPE = f"{SIDE} tinyint, rows bigint, places binary, widths binary, times binary"
_LAYOUT, _SALT = "__layout", "__salt"
_PLACES, _WIDTHS = 4096, 256
_SAMPLED_PER_CELL = 1024
ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 18, 1 << 26
"""How much of a partition is held in Python before it is worked on."""


@dataclass(frozen=True)
class CellSettings:
    """What a user may set in the Spark session: ``spark.haply.rowsPerCell`` and ``spark.haply.cells``."""

    rows_per_cell: int = ROWS_PER_CELL
    cells: int | None = None

    @classmethod
    def of(cls, spark: Any) -> CellSettings:
        """Return the settings of a session."""
        rows, cells = spark.conf.get("spark.haply.rowsPerCell", None), spark.conf.get("spark.haply.cells", None)
        return cls(int(rows) if rows else ROWS_PER_CELL, int(cells) if cells else None)

    @property
    def sampled(self) -> float:
        """Return the share of rows that the quantiles of a layout are made from."""
        return 1.0 if self.cells else min(1.0, _SAMPLED_PER_CELL / self.rows_per_cell)


def sketch_frame(stacked: Sequence[DataFrame], sketch: Sketch, share: float) -> DataFrame:
    """Return sketches of a share of the rows of both sides, one for each task: see ``Sketch``."""
    # Chosen before the union: Spark then computes the columns of chosen rows only.
    left, right = (side if share >= 1.0 else side.where(f"rand(0) < {share}D") for side in stacked)
    return left.unionByName(right).select(*sketch.columns).mapInArrow(lambda batches: sketch(batches), SKETCH_TYPE)


def edges_frame(sketches: DataFrame, share: float, settings: CellSettings, window: float | None) -> DataFrame:
    """Return one row ``layout``, made from sketches when the query runs: see ``exchange.CellEdges``."""

    def compute(all_sketches: pa.Array) -> pa.Array:
        rows = []
        for sketches in all_sketches.to_pylist():
            left, right, in_time = profiles_of(sketches, share, window)
            found = lay_out(left, right, rows_per_cell=settings.rows_per_cell, cells=settings.cells)
            edges = CellEdges.of(found, in_time)
            rows.append({"packed": _packed(edges), "sliced": bool(len(edges.slices))})
        return pa.array(rows, pa.struct([("packed", pa.binary()), ("sliced", pa.bool_())]))

    # In bytes: where a column of lists is mostly null, Spark takes long to measure the size of a batch.
    layout = arrow_function(compute, "packed binary, sliced boolean")
    return sketches.selectExpr("collect_list(struct(*)) AS sketches").select(layout("sketches").alias("layout"))


def profiles_of(sketches: Sequence[Any], share: float, window: float | None = None) -> tuple[Profile, Profile, bool]:
    """Sketch both sides from a share of their rows: by their intervals, or by their times.

    Rows in a window of certain times may go to cells by either; by that, in which they meet fewer others.
    """
    values, times = [], []
    for side in (LEFT, RIGHT):
        mine = [sketch for sketch in sketches if sketch[SIDE] == side]
        rows = [sketch["rows"] for sketch in mine]
        places, widths, begins = (
            _merged([np.frombuffer(sketch[name]) for sketch in mine], rows, levels)
            for name, levels in (("places", LEVELS), ("widths", np.array([TYPICAL_WIDTH])), ("times", LEVELS))
        )
        count = int(sum(rows) / share)
        values.append(Profile(count, places, float(widths[0]) if len(widths) else 0.0))
        times.append(Profile(count, begins, window or 0.0))
    in_time = window is not None and expected_candidates(times[0], times[1]) < expected_candidates(values[0], values[1])
    left, right = times if in_time else values
    return left, right, in_time


def _merged(parts: list[np.ndarray], rows: list[int], levels: np.ndarray) -> np.ndarray:
    """Merge quantiles of several parts, each evenly spaced in its order."""
    if not any(map(len, parts)):
        return np.empty(0)
    values = np.concatenate(parts)
    weights = np.concatenate([np.full(len(part), count / len(part)) for part, count in zip(parts, rows, strict=True)])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return values[order][np.minimum(np.searchsorted(reached, levels * reached[-1]), len(values) - 1)]


def _packed(edges: CellEdges) -> bytes:
    """Return a layout as bytes: slices, if there are any, one more than edges, come before these."""
    return np.array([edges.in_time, *edges.slices], np.int64).tobytes() + edges.edges.tobytes()


def _unpacked(packed: bytes, sliced: bool) -> CellEdges:
    """Return the layout that was packed."""
    cells = len(packed) // 16 if sliced else 0
    in_time, *slices = np.frombuffer(packed, np.int64, 1 + cells)
    return CellEdges(np.frombuffer(packed, np.float64, offset=8 + 8 * cells), np.array(slices, np.int64), bool(in_time))


def with_layout(stacked: DataFrame, layout: DataFrame, salt: list[str]) -> DataFrame:
    """Return the rows of both sides; the first row of every partition carries the layout, and all a hash for slices."""
    kept = stacked.columns
    begins = "monotonically_increasing_id() % 8589934592 = 0"
    return stacked.withColumn("layout", layout.scalar()).selectExpr(
        *kept,
        f"IF({begins}, layout.packed, NULL) AS {_LAYOUT}",
        f"IF(layout.sliced, xxhash64({', '.join(salt) or '0'}), NULL) AS {_SALT}",
    )


@cache
def warm_parcels() -> None:
    """Compile here what makes parcels in workers."""
    warm_exchange()


@dataclass(frozen=True)
class Sketch:
    """Where the rows of both sides are, as a function for ``mapInArrow``: a row for each side and task.

    It has some thousand of the places, evenly spaced in their order, and some widths, however many rows there are.
    """

    sides: tuple[RowSpec, RowSpec]
    """It raises no errors: bad rows are skipped here and reported where pairs are made."""
    fields: Mapping[str, tuple[str, ...]]
    """Structs whose fields come one by one: Spark takes a third of the time to hand these to Python."""
    marked: bool
    """Whether rows say if they fit certain conditions."""
    window: float | None = None
    """How far apart times may be, if rows have certain ones."""

    @property
    def columns(self) -> list[str]:
        """Return what it looks at."""
        found: list[str] = []
        for side in self.sides:
            for name in (side.value, *(name for name, _ in side.further)):
                found += field_names(name, self.fields[name]) if name in self.fields else [name]
        return [*dict.fromkeys(found), *([FITS] if self.marked else []), *self._more, SIDE]

    @property
    def _more(self) -> tuple[str, ...]:
        return () if self.window is None else (TIME,)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sketches of the rows that take part."""
        seen: tuple[list[Intervals], list[Intervals]] = ([], [])
        begun: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for batch in batches:
            for side, rows in _by_side(folded([batch], self.fields)):
                spec = replace(self.sides[side], payload=())
                table, intervals, _ = usable_rows(rows, spec, self._more)
                seen[side].append(intervals)
                if self.window is not None:
                    begun[side].append(in_window(table[TIME].to_numpy(), self.window).start)
        for side, found in enumerate(seen):
            start, end = (
                np.concatenate([getattr(each, name) for each in found] or [np.empty(0)]) for name in ("start", "end")
            )
            if len(start):
                low = np.minimum(start, end)
                columns = [
                    pa.array([side], pa.int8()), pa.array([len(low)], pa.int64()),
                    pa.array([_evenly(low, _PLACES).tobytes()]), pa.array([_evenly(end - low, _WIDTHS).tobytes()]),
                    pa.array([_evenly(np.concatenate(begun[side] or [np.empty(0)]), _PLACES).tobytes()]),
                ]  # fmt: skip
                yield pa.RecordBatch.from_arrays(columns, [SIDE, "rows", "places", "widths", "times"])


def _evenly(values: np.ndarray, most: int) -> np.ndarray:
    """Some of the values, evenly spaced in their order; all if they are few."""
    ordered = np.sort(values)
    count = len(ordered)
    return ordered if count <= most else ordered[((np.arange(most) + 0.5) * count / most).astype(np.int64)]


def in_blocks(
    batches: Iterator[pa.RecordBatch], rows: int = ROWS_AT_ONCE, size: int = BYTES_AT_ONCE
) -> Iterator[list[pa.RecordBatch]]:
    """Merge batches until they have that many rows or bytes; empty ones are left out."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        held_rows, held_bytes = held_rows + batch.num_rows, held_bytes + batch.nbytes
        if held_rows >= rows or held_bytes >= size:
            yield held
            held, held_rows, held_bytes = [], 0, 0
    if held:
        yield held


def folded(batches: list[pa.RecordBatch], fields: Mapping[str, tuple[str, ...]]) -> pa.Table:
    """Rebuild structs from their fields: a null struct has come as null fields, which mean the same."""
    table = pa.Table.from_batches(batches).combine_chunks()
    for column, names in fields.items():
        at = field_names(column, names)
        if at[0] in table.column_names:
            parts = [table[name].combine_chunks() for name in at]
            whole = pa.StructArray.from_arrays(parts, list(names))
            table = table.drop_columns(at).append_column(column, whole)
    return table


def _by_side(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each side that has any."""
    of = table[SIDE].to_numpy()
    for side in (LEFT, RIGHT):
        mine = of == side
        if mine.any():
            yield side, table if mine.all() else table.filter(pa.array(mine))


@dataclass(frozen=True)
class Pack:
    """Rows of both sides into parcels by cell, as a function for ``mapInArrow``."""

    sides: tuple[RowSpec, RowSpec]
    fields: Mapping[str, tuple[str, ...]]
    """Structs whose fields come one by one: Spark takes a third of the time to hand these to Python."""
    more: tuple[str, ...]
    """Columns that both sides have besides: keys and times."""
    window: float | None = None
    """How far apart times may be, if rows have certain ones."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parcels, and a row of counts for each batch of them."""
        layout: CellEdges | None = None
        for held in in_blocks(batches):
            if layout is None:
                packed, salt = (held[0].column(name)[0] for name in (_LAYOUT, _SALT))
                layout = _unpacked(packed.as_py(), salt.is_valid)
            parts = [batch.drop_columns([_LAYOUT]) for batch in held]
            for side, rows in _by_side(folded(parts, self.fields)):
                yield self._side(rows, side, layout)

    def _side(self, table: pa.Table, side: int, layout: CellEdges) -> pa.RecordBatch:
        table, intervals, counts = usable_rows(table, self.sides[side], (*self.more, _SALT))
        placed, name = intervals, BEGINS_HERE
        if layout.in_time:
            assert self.window is not None
            placed, name = in_window(table[TIME].to_numpy(), self.window), TIME_BEGINS_HERE
        salt = table[_SALT].to_numpy() if len(layout.slices) else None
        sent = to_cells(placed, side, layout, salt)
        return parcels_of(table.drop_columns([_SALT]), intervals, sent, side, counts, name)


def parcels_of(
    table: pa.Table, intervals: Intervals, sent: Sent, side: int, counts: list[int], called: str = BEGINS_HERE
) -> pa.RecordBatch:
    """Return a parcel for each cell, of the rows that go there, and a row for what was counted (as ``ROW_COUNTS``)."""
    table = table.append_column(START, pa.array(intervals.start)).append_column(END, pa.array(intervals.end))
    parts = in_parcels(table, sent, called)
    columns = [
        pa.array([*parts, None], pa.int64()),
        pa.array(np.full(len(parts) + 1, side, np.int8)),
        pa.array([*parts.values(), None], pa.binary()),
        pa.array([*[None] * len(parts), counts], pa.list_(pa.int64())),
    ]
    return pa.RecordBatch.from_arrays(columns, [CELL, SIDE, PARCEL, COUNTS])


def in_parcels(table: pa.Table, sent: Sent, called: str = BEGINS_HERE) -> dict[int, bytes]:
    """Put the rows that go to a cell into its parcel, with a column for whether they begin there."""
    sent, slices = sent.by_cell()
    rows = table.combine_chunks().take(pa.array(sent.rows)).append_column(called, pa.array(sent.begins_here))
    return {cell: to_bytes(rows.slice(begin, end - begin)) for cell, (begin, end) in slices.items()}


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as Arrow bytes."""
    return bytes(to_buffer(table))


def to_buffer(table: pa.Table) -> pa.Buffer:
    """Return the same without a copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_bytes(data: Any) -> pa.Table:
    """Return the table that was made into these bytes."""
    return pa.ipc.open_stream(pa.py_buffer(data) if isinstance(data, bytes) else data).read_all()
