"""The plan of a join of two streams on a distance: parcels of rows into cells that remember, pairs out of them."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.listener import StreamingQueryListener

from haply.errors import HaplyError
from haply.spark.distance import DistancePlan, PlaceOnLine
from haply.spark.parcels import (
    CELL,
    COUNTS,
    GROUP,
    LEFT_OUT,
    NEWEST,
    PARCEL,
    PARCEL_TYPE,
    ROW_COUNTS,
    SIDE,
    STANDING,
    TAKES_PART,
    WITHOUT_KEY,
    Clock,
    Pack,
    unpack,
)
from haply.spark.partition import TIME, CellSettings
from haply.spark.plan import Observing, Side
from haply.spark.stream_worker import CellProcessor, Query, counter_names
from haply.spark.worker import COUNTERS

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_BLOCKS_PER_DISTANCE = 16.0
_CELLS = 16
"""Unless ``spark.haply.cells`` says otherwise. Not a setting of the session: a restart must deal out rows as before."""


def check_session(spark: Any) -> None:
    """Streams need the RocksDB state store: only it knows the kinds of state that are used."""
    found = spark.conf.get(_PROVIDER, "")
    if "RocksDB" not in found:
        raise HaplyError(
            "A join of streams needs Spark's RocksDB state store",
            expected=f"{_PROVIDER} = {_ROCKSDB}",
            found=found or "nothing set",
            hint=f'spark.conf.set("{_PROVIDER}", "{_ROCKSDB}"), or start with hp.local_session()',
        )


class StreamPlan(DistancePlan):
    """A join of two streams on a distance, in a window of time."""

    def run(self) -> DataFrame:
        """The pairs, as a streaming DataFrame."""
        assert self.window is not None
        self._warm()
        observing = StreamObserving(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
        cells = CellSettings.of(self._left.frame.sparkSession).cells or _CELLS
        clock = Clock.of(self.window.stamps, self.window.length + self.window.max_delay)
        parcels = [self._parcels(side, cells, clock, observing) for side in (self._left, self._right)]
        schema = T.StructType()
        for side in (self._left, self._right):
            for name, field in zip(side.inner, side.frame.schema.fields, strict=True):
                schema.add(name, field.dataType)
        schema.add("probability", T.DoubleType()).add(COUNTERS, T.ArrayType(T.LongType()))
        # Without the column of times: Spark would drop late parcels unseen, and here late rows are to be counted.
        together = parcels[0].unionByName(parcels[1]).drop(NEWEST)
        found = together.groupBy(CELL).transformWithStateInPandas(
            CellProcessor(self._query(clock, schema, cells)), f"{PARCEL} binary", "Append", "EventTime"
        )
        joined = found.mapInArrow(unpack, schema)
        metrics = {name: F.sum(F.get(COUNTERS, F.lit(k))) for k, name in enumerate(counter_names()) if name != "kept"}
        pairs = observing.watch(joined, metrics).where(F.col(COUNTERS).isNull()).drop(COUNTERS)
        for one, other in self.condition.equalities:
            pairs = pairs.where(F.expr(f"({self._sql(one)}) = ({self._sql(other)})"))
        return self._finish([pairs], observing)

    def _query(self, clock: Clock, schema: T.StructType, cells: int) -> Query:
        assert self.window is not None
        left, right = self._left, self._right
        identity = (
            ("spark.haply.cells", cells), ("distance", self._distance.limit), ("threshold", self.threshold.value),
            ("window", self.window.length), ("max_delay", self.window.max_delay),
        )  # fmt: skip
        return Query(
            self._distance, self.threshold, self.exact, self.invalid == "raise", self.window.length, clock,
            (left.inner_name(left.column), right.inner_name(right.column)), (tuple(left.inner), tuple(right.inner)),
            _arrow_schema(schema), uuid.uuid4().hex, identity,
        )  # fmt: skip

    def _parcels(self, side: Side, cells: int, clock: Clock, observing: Observing) -> DataFrame:
        """Rows of a side in parcels. Conditions only mark rows: those that are left out move the clock, too."""
        assert self.window is not None
        own = self.condition.left_only if side.name == "left" else self.condition.right_only
        mine = " AND ".join(f"({self._sql(expression)})" for expression in own) or "true"
        keys = [self._sql(pair[0 if side.name == "left" else 1]) for pair in self.condition.equalities]
        keyed = " AND ".join([str(self.threshold.attainable), *(f"({key}) IS NOT NULL" for key in keys)])
        grouped = ", ".join(keys[position] for position in self._grouped_keys)  # a hash depends on the type
        time = self.window.number(side.inner_name(self.window.left if side.name == "left" else self.window.right))
        rows = side.frame.toDF(*side.inner).selectExpr(
            *side.inner,
            f"CAST(CASE WHEN NOT coalesce({mine}, false) THEN {LEFT_OUT} WHEN {keyed} THEN {TAKES_PART} "
            f"ELSE {WITHOUT_KEY} END AS TINYINT) AS {STANDING}",
            f"{time} AS {TIME}",
            f"{f'CAST(xxhash64({grouped}) AS DOUBLE)' if grouped else '0D'} AS {GROUP}",
        )
        raise_as = f"Column '{side.column}' of the {side.name} table" if self.invalid == "raise" else None
        pack = Pack(
            0 if side.name == "left" else 1, cells, self._block_width, clock, side.inner_name(side.column),
            PlaceOnLine(self._distance, self.threshold), raise_as,
        )  # fmt: skip
        packed = rows.mapInArrow(lambda batches: pack(batches), PARCEL_TYPE)
        counts = {f"{name}_{side.name}": F.sum(F.get(COUNTS, F.lit(k))) for k, name in enumerate(ROW_COUNTS)}
        marked = observing.watch(packed, counts).withWatermark(
            NEWEST, f"{clock.delay(self.window.max_delay)} milliseconds"
        )
        return marked.select(CELL, SIDE, NEWEST, PARCEL)

    @property
    def _block_width(self) -> float:
        """Blocks much wider than the distance, so that few rows are seen in more than one."""
        return _BLOCKS_PER_DISTANCE * self._distance.limit or 1.0

    def explain(self) -> str:
        """How the join will run, in words."""
        assert self.window is not None
        unit = " microseconds" if self.window.stamps else ""
        return "\n".join(
            [
                "Threshold join of streams",
                f"  condition     {self._explain_condition()}, {self._explain_threshold()}",
                f"  window        |time - time| <= {self.window.length:g}{unit}, "
                f"rows up to {self.window.max_delay:g}{unit} late",
                f"  candidates    {self._explain_candidates()}",
                f"  cascade       {self._explain_cascade()}",
                f"  partitioning  blocks of width {self._block_width:g} on that line, dealt out to cells; what a cell "
                "remembers is kept in panes as long as the window",
            ]
        )


def _arrow_schema(schema: T.StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


class StreamObserving(Observing):
    """Counters of a stream: summed over the progress reports of its query."""

    def watch(self, frame: DataFrame, metrics: dict[str, Any]) -> DataFrame:
        """The frame with these aggregates reported to the funnel, if there is one."""
        if self.funnel is None:
            return frame
        name = f"haply-{uuid.uuid4().hex}"
        totals = Totals(name)
        frame.sparkSession.streams.addListener(totals)
        self.funnel.follow(totals.read, live=True)
        return frame.observe(name, *(F.coalesce(value, F.lit(0)).alias(name) for name, value in metrics.items()))


class Totals(StreamingQueryListener):
    """Adds up what is observed under one name."""

    def __init__(self, name: str) -> None:
        self.name, self._totals = name, Counter[str]()

    def read(self) -> dict[str, int]:
        """What there is so far; nothing before the first report."""
        return dict(self._totals)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to add."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Add the counters of one batch."""
        row = event.progress.observedMetrics.get(self.name)
        if row is not None:
            self._totals.update({name: int(value or 0) for name, value in row.asDict().items()})

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to add."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing to add."""
