"""Joins of many tables or streams on Spark (see ``planning.windows``).

Rows go to cells in parcels, as in a join of two streams (see ``parcels``): the axis of time is cut into blocks, blocks
and keys are assigned to cells, and a row goes to the cells of all blocks from its time to the end of its longest
window.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.exchange.parcels import PARCEL, CellSettings
from haply.engines.spark.exchange.stack import CELL, SIDE
from haply.engines.spark.exchange.worker import COUNTERS, cells_of, opened
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.observing import Observing
from haply.engines.spark.streaming.join import (
    BLOCKS_PER_REACH,
    STREAM_CELLS,
    StreamObserving,
    joined_cells,
    packed_rows,
    united,
)
from haply.engines.spark.streaming.parcels import CONTROL, GROUP, NEWEST, Clock, StreamPack, group_of
from haply.engines.spark.streaming.worker import CellQuery, CellResult, row_batch, stream_counter_names
from haply.engines.spark.times import HAS_TIME, time_number
from haply.engines.spark.versions import arrow_schema
from haply.joins.cells.exchange import Blocks
from haply.joins.cells.rows import FITS, TIME
from haply.joins.operators.operator import ANY_DELAY
from haply.joins.operators.window import Algorithm, WindowJoin, combine_tables
from haply.joins.warm import warm_windows
from haply.planning.frames import quoted
from haply.planning.windows import WindowPlan
from haply.pruning.candidates.windows import Policy


def combinations(plan: WindowPlan, funnel: Any) -> DataFrame:
    """Return the combinations, as a lazy DataFrame."""
    warm_windows(_algorithm(plan))
    observing: Observing = StreamObserving(funnel) if plan.streaming else Observing(funnel)
    if funnel is not None:
        funnel.start_over()
    session = _df(plan, plan.names[0]).sparkSession
    chosen = CellSettings.of(session).cells
    cells = chosen or (STREAM_CELLS if plan.streaming else int(str(session.conf.get("spark.sql.shuffle.partitions"))))
    clock = Clock.of(plan.clock_times.stamps, plan.reach + max(plan.delays.values()))
    parcels = [_parcels(plan, name, cells, clock, observing) for name in plan.names]
    schema = _schema(plan)
    result = CellResult(plan.together, tuple(tuple(plan.inners[name]) for name in plan.names), arrow_schema(schema))
    if plan.streaming:
        query = _query(plan, result, clock, cells)
        names, joined = stream_counter_names(query.make(), plan.names), joined_cells(parcels, query, schema)
    else:
        names = ["candidates", "kept"]
        cell_join = TableCells(plan.windows, plan.names, plan.algorithm, plan.policy, result)
        together = united(parcels).where(F.col(CELL) != CONTROL)
        in_order = together.repartition(CELL).sortWithinPartitions(CELL)
        joined = in_order.mapInArrow(lambda batches: cell_join(batches), schema)
    metrics = {name: f"sum(get({COUNTERS}, {k}))" for k, name in enumerate(names) if name != "kept"}
    rows = observing.watch(joined, metrics).where(F.col(COUNTERS).isNull()).drop(COUNTERS)
    for sql in plan.certain_sql:
        rows = rows.where(F.expr(sql))
    for one, other in itertools.pairwise(plan.keys):  # cells go by a hash of the key
        first, second = (plan.inner(name, plan.keys[name]) for name in (one, other))
        rows = rows.where(F.col(first) == F.col(second))
    rows = observing.watch(rows, {"kept": "count(1)"})
    shown = [
        F.col(inner).alias(f"{name}_{field.name}")
        for name in plan.names
        for inner, field in zip(plan.inners[name], plan.frames[name].fields, strict=True)
    ]
    return rows.select(*shown, "probability")


def _df(plan: WindowPlan, name: str) -> DataFrame:
    frame = plan.frames[name]
    assert isinstance(frame, SparkFrame)
    return frame.df


def _schema(plan: WindowPlan) -> T.StructType:
    schema = T.StructType()
    for name in plan.names:
        for inner, field in zip(plan.inners[name], _df(plan, name).schema.fields, strict=True):
            schema.add(inner, field.dataType)
    return schema.add("probability", T.DoubleType()).add(COUNTERS, T.ArrayType(T.LongType()))


def _algorithm(plan: WindowPlan) -> Algorithm | None:
    """Return by which algorithm rows are combined as they come; none where whole tables are combined at the end."""
    if plan.streaming:
        return "backward"  # forward evaluation would wait for watermarks to give what backward evaluation has at once
    return plan.algorithm if plan.algorithm != "auto" else None


def _query(plan: WindowPlan, result: CellResult, clock: Clock, cells: int) -> CellQuery:
    identity = (
        ("spark.haply.cells", cells), ("windows", sorted(plan.windows.items())),
        ("keys", sorted(plan.keys.items())), ("max_delay", sorted(plan.delays.items())),
        ("condition", str([str(one) for one in plan.conditions.uncertain])), ("threshold", plan.threshold.value),
        ("columns", tuple(_df(plan, name).schema.simpleString() for name in plan.names)),
    )  # fmt: skip
    # Forward evaluation would wait for watermarks to give what backward evaluation has at once.
    make = partial(
        WindowJoin, plan.windows, algorithm="backward", windows_policy=plan.policy, max_delay=ANY_DELAY,
        streams=plan.names,
    )  # fmt: skip
    return CellQuery(make, (TIME,) * len(plan.names), result, plan.reach, clock, uuid.uuid4().hex, identity)


def _parcels(plan: WindowPlan, name: str, cells: int, clock: Clock, observing: Observing) -> DataFrame:
    inners, time = plan.inners[name], plan.times[name]
    key = quoted(plan.inner(name, plan.keys[name])) if plan.keys else None
    rows = (
        _df(plan, name)
        .toDF(*inners)
        .withColumn(TIME, F.expr(time_number(plan.clock_times, plan.inner(name, time), time)))
        .selectExpr(
            "*", f"{group_of([key] if key else [])} AS {GROUP}",
            f"{' AND '.join([HAS_TIME, *([f'{key} IS NOT NULL'] if key else [])])} AS {FITS}",
        )
    )  # fmt: skip
    blocks = Blocks(cells, BLOCKS_PER_REACH * plan.reach or 1.0)
    packed = packed_rows(rows, StreamPack(plan.names.index(name), plan.row_spec(name), blocks, clock), name, observing)
    if plan.streaming:
        packed = packed.withWatermark(NEWEST, f"{clock.delay(plan.delays[name])} milliseconds")
    return packed


@dataclass(frozen=True)
class TableCells:
    """The join of all cells of a partition of tables, as a function for ``mapInArrow``: parcels come sorted by cell."""

    windows: dict[tuple[str, str], float]
    names: tuple[str, ...]
    algorithm: Algorithm
    policy: Policy
    result: CellResult

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Counters and combinations of every cell."""
        for cell in cells_of(batches):
            side = cell[SIDE].to_numpy()
            if len(np.unique(side)) == len(self.names):
                tables = [opened(cell[PARCEL].filter(pa.array(side == number))) for number in range(len(self.names))]
                yield from self._joined(tables).to_batches()

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        batches = {
            name: row_batch(table, TIME, np.arange(table.num_rows))
            for name, table in zip(self.names, tables, strict=True)
        }
        found = combine_tables(self.windows, batches, self.algorithm, self.policy)
        pairs = self.result.pairs(
            found, lambda side, ids, names: [tables[side][name].take(pa.array(ids)) for name in names]
        )
        return self.result.table(pairs, [len(found), sum(table.num_rows for table in pairs)])
