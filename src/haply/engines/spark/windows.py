"""Joins of many tables or streams on Spark (see ``planning.windows``).

Rows travel in parcels to cells, as in a join of two streams (see ``parcels``): the line of time is cut into blocks,
blocks and keys are dealt out to cells, and a row goes wherever the blocks from its time to the end of its longest
window are. A cell joins what it gets with ``WindowJoin``; the owner of a combination is the cell where its latest row
is at home.
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

from haply.engines.spark.exchange.parcels import CellSettings
from haply.engines.spark.exchange.worker import COUNTERS
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.observing import Observing
from haply.engines.spark.streaming.join import BLOCKS_PER_REACH, STREAM_CELLS, StreamObserving
from haply.engines.spark.streaming.parcels import (
    CELL,
    CONTROL,
    COUNTS,
    GROUP,
    NEWEST,
    PARCEL,
    PARCEL_TYPE,
    REACH,
    SIDE,
    STANDING,
    TAKES_PART,
    WITHOUT_KEY,
    Clock,
    StreamPack,
    from_bytes,
    group_of,
    unpack,
)
from haply.engines.spark.streaming.stateful import CellProcessor
from haply.engines.spark.streaming.worker import CellQuery, Memory, WholeWindows, WindowOperator, counter_names
from haply.engines.spark.times import time_number
from haply.engines.spark.types import arrow_schema
from haply.joins.cells.rows import ROW_COUNTS, TIME
from haply.joins.operators.window import Algorithm
from haply.joins.warm import warm_windows
from haply.models import Certain, Model
from haply.planning.frames import quoted
from haply.planning.windows import WindowPlan
from haply.pruning.candidates.intervals import Intervals


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
    together = parcels[0]
    for more in parcels[1:]:
        together = together.unionByName(more)
    schema = _schema(plan)
    query = _query(plan, clock, cells, schema)
    if plan.streaming:
        # without the column of times: Spark would drop late parcels unseen, and late rows are to be counted
        found = (
            together.drop(NEWEST)
            .groupBy(CELL)
            .transformWithStateInPandas(CellProcessor(query), f"{PARCEL} binary", "Append", "EventTime")
        )
        joined = found.mapInArrow(unpack, schema)
    else:
        cell_join = WholeCells(query)
        sorted_parcels = together.where(F.col(CELL) != CONTROL).repartition(CELL).sortWithinPartitions(CELL)
        joined = sorted_parcels.mapInArrow(lambda batches: cell_join(batches), schema)
    names = counter_names(query.make(), plan.names)
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


def _query(plan: WindowPlan, clock: Clock, cells: int, schema: T.StructType) -> CellQuery:
    identity = (
        ("spark.haply.cells", cells), ("windows", sorted(plan.windows.items())),
        ("keys", sorted(plan.keys.items())), ("max_delay", sorted(plan.delays.items())),
        ("condition", str([str(one) for one in plan.conditions.uncertain])), ("threshold", plan.threshold.value),
        ("columns", tuple(_df(plan, name).schema.simpleString() for name in plan.names)),
    )  # fmt: skip
    make: Any = partial(WholeWindows, plan.windows, plan.names)
    algorithm = _algorithm(plan)
    if algorithm is not None:
        make = partial(WindowOperator, plan.windows, plan.names, algorithm=algorithm, windows_policy=plan.policy)
    payloads = tuple(tuple(plan.inners[name]) for name in plan.names)
    return CellQuery(
        make, plan.together, plan.reach, clock, payloads, arrow_schema(schema), uuid.uuid4().hex, identity
    )  # fmt: skip


def _parcels(plan: WindowPlan, name: str, cells: int, clock: Clock, observing: Observing) -> DataFrame:
    inners, df = plan.inners[name], _df(plan, name)
    key = quoted(plan.inner(name, plan.keys[name])) if plan.keys else None
    standing = f"IF({key} IS NULL, {WITHOUT_KEY}, {TAKES_PART})" if key else str(TAKES_PART)
    time = plan.times[name]
    rows = df.toDF(*inners).selectExpr(
        *inners,
        f"CAST({standing} AS TINYINT) AS {STANDING}",
        f"{time_number(plan.clock_times, plan.inner(name, time), time)} AS {TIME}",
        f"{group_of([key] if key else [])} AS {GROUP}",
    )
    width = BLOCKS_PER_REACH * plan.reach or 1.0
    at = plan.names.index(name)
    uncertain = plan.together.columns(at) if plan.together else ()
    pack = StreamPack(
        at, cells, width, clock, None, partial(_until, reach=plan.reach), f"Column '{{}}' of stream '{name}'",
        dict(zip(inners, df.columns, strict=True)), None, uncertain,
    )  # fmt: skip
    packed = rows.mapInArrow(lambda batches: pack(batches), PARCEL_TYPE)
    counts = {f"{what}_{name}": f"sum(get({COUNTS}, {k}))" for k, what in enumerate(ROW_COUNTS)}
    marked = observing.watch(packed, counts)
    if plan.streaming:
        marked = marked.withWatermark(NEWEST, f"{clock.delay(plan.delays[name])} milliseconds")
    return marked.select(CELL, SIDE, NEWEST, PARCEL, REACH)


def _until(model: Model, reach: float) -> Intervals:
    """From the time of a row to the last that it may be combined with."""
    assert isinstance(model, Certain)
    times = model.mean()
    slack = 1e-12 * (np.abs(times) + reach)
    return Intervals(times, times + reach + slack, np.zeros(len(times), dtype=bool))


@dataclass(frozen=True)
class WholeCells:
    """The join of all cells of a partition of tables, as a function for ``mapInArrow``: parcels come sorted by cell."""

    query: CellQuery

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Counters and combinations of every cell."""
        parcels = (
            (cell, side, parcel)
            for batch in batches
            for cell, side, parcel in zip(
                batch.column(CELL).to_pylist(), batch.column(SIDE).to_pylist(), batch.column(PARCEL), strict=True
            )
        )
        for _, of_cell in itertools.groupby(parcels, key=lambda parcel: parcel[0]):
            yield from self._joined(list(of_cell)).to_batches()

    def _joined(self, parcels: list[tuple[int, int, Any]]) -> pa.Table:
        operator = self.query.make()
        memory = Memory(self.query, operator)
        tables = []
        for side in range(len(self.query.payloads)):
            mine = [from_bytes(parcel.as_buffer()) for _, of, parcel in parcels if of == side]
            if mine:
                tables += memory.add(side, pa.concat_tables(mine).combine_chunks())[1]
        assert isinstance(operator, WindowOperator)
        last = memory.table_of(operator.finish())
        counts = [*operator.counts.values()]
        counts += [0] * (len(counter_names(operator, self.query.payloads)) - len(counts))  # all else is of streams
        return memory.result(tables if last is None else [*tables, last], counts)
