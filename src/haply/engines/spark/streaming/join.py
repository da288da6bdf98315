"""The plan of a join of two streams: parcels of rows into cells that remember, pairs out of them."""

from __future__ import annotations

import atexit
import contextlib
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.listener import StreamingQueryListener

from haply.engines.spark.batch.join import BatchJoin, df_of
from haply.engines.spark.exchange.parcels import CellSettings
from haply.engines.spark.exchange.worker import COUNTERS
from haply.engines.spark.observing import Observing
from haply.engines.spark.streaming.parcels import (
    CELL,
    COUNTS,
    GROUP,
    LEFT_OUT,
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
    group_of,
    unpack,
)
from haply.engines.spark.streaming.stateful import CellProcessor
from haply.engines.spark.streaming.worker import (
    CellQuery,
    DifferenceOperator,
    DistanceOperator,
    Operator,
    PositionOperator,
    TimingOperator,
    counter_names,
)
from haply.engines.spark.times import time_number
from haply.engines.spark.types import arrow_schema
from haply.errors import HaplyError, advise
from haply.joins.cells.difference import DifferenceMethod
from haply.joins.cells.positions import PositionsMethod
from haply.joins.cells.rows import ROW_COUNTS, TIME
from haply.joins.cells.samples import SamplesMethod
from haply.joins.operators.pair import SWEEPS
from haply.joins.operators.timing import reach_back
from haply.joins.warm import warm_times
from haply.models import Model, OneDimensional
from haply.planning.pairs import PairPlan, Side, in_words
from haply.probability.region import Difference, Distance, Region
from haply.pruning.candidates.intervals import Intervals, row_intervals
from haply.pruning.threshold import Threshold

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
BLOCKS_PER_REACH = 16.0
_PARTITIONS_PER_CELL = 2
STREAM_CELLS = 16
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
    cells = CellSettings.of(spark).cells or STREAM_CELLS
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
    if partitions > _PARTITIONS_PER_CELL * max(cells, STREAM_CELLS):
        advise(
            f"Each micro-batch of this stream will wait for {partitions} tasks, of which at most {cells} have rows to "
            f"join: spark.sql.shuffle.partitions is {partitions}, and rows are dealt out to {cells} cells "
            "(spark.haply.cells). The checkpoint keeps the number of the first start for good.",
            f'before it, spark.conf.set("spark.sql.shuffle.partitions", n) with the number of cores, at most {cells}',
        )


class StreamJoin(ABC):
    """Runs a join of two streams in a window of time: what does not depend on how the rows of a cell are joined."""

    def __init__(self, join: PairPlan, funnel: Any) -> None:
        assert join.window is not None
        self.join, self.funnel, self.window = join, funnel, join.window

    def run(self) -> DataFrame:
        """Return the pairs, as a streaming DataFrame."""
        join = self.join
        self._warm()
        observing = StreamObserving(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
        cells = CellSettings.of(df_of(join.left).sparkSession).cells or STREAM_CELLS
        clock = Clock.of(self._stamps, self.window.length + self.window.max_delay)
        parcels = [self._parcels(side, cells, clock, observing) for side in join.sides]
        schema = T.StructType()
        for side in join.sides:
            for name, field in zip(side.inner, df_of(side).schema.fields, strict=True):
                schema.add(name, field.dataType)
        schema.add("probability", T.DoubleType()).add(COUNTERS, T.ArrayType(T.LongType()))
        # Without the column of times: Spark would drop late parcels unseen, and here late rows are to be counted.
        together = parcels[0].unionByName(parcels[1]).drop(NEWEST)
        found = together.groupBy(CELL).transformWithStateInPandas(
            CellProcessor(self._query(clock, schema, cells)), f"{PARCEL} binary", "Append", "EventTime"
        )
        joined = found.mapInArrow(unpack, schema)
        names = counter_names(self._operator()())
        metrics = {name: f"sum(get({COUNTERS}, {k}))" for k, name in enumerate(names) if name != "kept"}
        pairs = observing.watch(joined, metrics).where(F.col(COUNTERS).isNull()).drop(COUNTERS)
        for one, other in join.condition.equalities:
            pairs = pairs.where(F.expr(f"({join.sql(one)}) = ({join.sql(other)})"))
        return BatchJoin(join, self.funnel).finished([pairs], observing)

    # -- what depends on the join -------------------------------------------------------------------------------------

    @abstractmethod
    def _operator(self) -> Callable[[], Operator]:
        """What makes the operator of a cell."""

    @abstractmethod
    def _placed(self, side: Side) -> str | None:
        """The column whose value tells the place of a row; none if it is the time."""

    @abstractmethod
    def _place(self, side: Side) -> Callable[[Model], Intervals]:
        """The place of rows on a line."""

    @property
    @abstractmethod
    def _block_width(self) -> float:
        """Blocks of that line much wider than the reach of a row, so that few are seen in more than one."""

    def _warm(self) -> None:
        """Compile the kernels, or load them, before workers need them."""
        assert self.join.method is not None
        self.join.method.warm(self.join.setting)

    @property
    def _multiplied(self) -> tuple[Difference | Distance, ...]:
        """Conditions whose probabilities are multiplied with that of the operator."""
        return ()

    @property
    def _checked(self) -> tuple[Difference | Distance, ...]:
        """Conditions whose columns are to be looked through for bad rows, beside the one that tells the place."""
        return self._multiplied

    def _condition_text(self) -> str:
        return self.join.condition_text()

    def _candidates_text(self) -> str:
        assert self.join.method is not None
        return self.join.method.candidates_text()

    def _cascade_text(self) -> str:
        assert self.join.method is not None
        return self.join.method.cascade_text()

    # -- what does not ------------------------------------------------------------------------------------------------

    @property
    def _columns(self) -> tuple[str, str]:
        """The compared columns."""
        left, right = (side.inner_name(side.column) for side in self.join.sides)
        return left, right

    @property
    def _stamps(self) -> bool:
        """Whether times are counted in microseconds since 1970."""
        return self.window.stamps and not any(self.window.uncertain)

    def _time_of(self, side: Side) -> tuple[str, bool]:
        """The column of times of a side, and whether it is uncertain."""
        return self.window.column(side.is_left), self.window.uncertain[0 if side.is_left else 1]

    def _query(self, clock: Clock, schema: T.StructType, cells: int) -> CellQuery:
        join, window = self.join, self.window
        identity = (
            ("spark.haply.cells", cells), ("condition", self._condition_text()),
            ("threshold", join.threshold.value), ("time", (window.left, window.right)),
            ("window", window.length),
            ("max_delay", window.max_delay),
            ("columns", tuple(df_of(side).schema.simpleString() for side in join.sides)),
        )  # fmt: skip
        together = join.together(self._multiplied, join.left.inner_name, join.right.inner_name)
        return CellQuery(
            self._operator(), together, window.length, clock,
            (tuple(join.left.inner), tuple(join.right.inner)), arrow_schema(schema), uuid.uuid4().hex, identity,
        )  # fmt: skip

    def _parcels(self, side: Side, cells: int, clock: Clock, observing: Observing) -> DataFrame:
        """Rows of a side in parcels. Conditions only mark rows: those that are left out move the clock, too."""
        join, is_left = self.join, side.is_left
        mine = " AND ".join(f"({join.sql(expression)})" for expression in join.own_conditions(side)) or "true"
        keys = join.key_sql(side)
        keyed = " AND ".join([str(join.threshold.attainable), *(f"({key}) IS NOT NULL" for key in keys)])
        grouped = [keys[position] for position in join.grouped_keys]  # a hash depends on the type
        time, uncertain = self._time_of(side)
        rows = (
            df_of(side)
            .toDF(*side.inner)
            .selectExpr(
                *side.inner,
                f"CAST(CASE WHEN NOT coalesce({mine}, false) THEN {LEFT_OUT} WHEN {keyed} THEN {TAKES_PART} "
                f"ELSE {WITHOUT_KEY} END AS TINYINT) AS {STANDING}",
                *([] if uncertain else [f"{time_number(self.window, side.inner_name(time), time)} AS {TIME}"]),
                f"{group_of(grouped)} AS {GROUP}",
            )
        )
        further = tuple(side.inner_name(one.left if is_left else one.right) for one in self._checked)
        pack = StreamPack(
            0 if is_left else 1, cells, self._block_width, clock, self._placed(side), self._place(side),
            f"Column '{{}}' of the {side.name} table" if join.invalid == "raise" else None,
            dict(zip(side.inner, side.original, strict=True)), side.inner_name(time) if uncertain else None, further,
            partial(reach_back, threshold=join.threshold) if uncertain else None,
        )  # fmt: skip
        packed = rows.mapInArrow(lambda batches: pack(batches), PARCEL_TYPE)
        counts = {f"{name}_{side.name}": f"sum(get({COUNTS}, {k}))" for k, name in enumerate(ROW_COUNTS)}
        marked = observing.watch(packed, counts).withWatermark(
            NEWEST, f"{clock.delay(self.window.max_delay)} milliseconds"
        )
        return marked.select(CELL, SIDE, NEWEST, PARCEL, REACH)

    def explain(self) -> str:
        """Describe how the join will run."""
        window = self.window
        unit = " microseconds" if self._stamps else ""
        lines = [
            "Threshold join of streams",
            f"  condition     {self._condition_text()}, {self.join.threshold.describe()}",
            f"  window        |time - time| <= {window.length:g}{unit}, rows up to {window.max_delay:g}{unit} late",
            f"  candidates    {self._candidates_text()}",
            f"  cascade       {self._cascade_text()}",
            f"  partitioning  blocks of width {self._block_width:g} on that line, dealt out to cells; what a cell "
            "remembers is kept in panes as long as the window",
        ]
        return "\n".join(lines)


class DistanceStream(StreamJoin):
    """Near points, or positions, in a window of certain times."""

    def __init__(self, join: PairPlan, funnel: Any) -> None:
        super().__init__(join, funnel)
        assert isinstance(join.method, (SamplesMethod, PositionsMethod))
        self.method = join.method

    def _operator(self) -> Callable[[], Operator]:
        kind = PositionOperator if isinstance(self.method, PositionsMethod) else DistanceOperator
        return partial(
            kind, self.method.distance, self.join.threshold, self.join.exact, self.join.invalid == "raise",
            self.window.length, self._columns,
        )  # fmt: skip

    def _placed(self, side: Side) -> str | None:
        return side.inner_name(side.column)

    def _place(self, side: Side) -> Callable[[Model], Intervals]:
        return self.method.place(side.is_left)

    @property
    def _block_width(self) -> float:
        return BLOCKS_PER_REACH * self.method.distance.limit or 1.0


class PlacedInTime(StreamJoin):
    """A join whose rows are dealt out by their times."""

    def _placed(self, side: Side) -> str | None:
        name, uncertain = self._time_of(side)
        return side.inner_name(name) if uncertain else None

    def _place(self, side: Side) -> Callable[[Model], Intervals]:
        region = Region(-self.window.length, self.window.length)
        return partial(_in_time, is_left=side.is_left, region=region, threshold=self.join.threshold)

    @property
    def _block_width(self) -> float:
        return BLOCKS_PER_REACH * (self.window.length + self.window.max_delay) or 1.0


class TimingStream(PlacedInTime):
    """Rows near in time, whose times may be uncertain; other uncertain conditions are multiplied."""

    @property
    def _multiplied(self) -> tuple[Difference | Distance, ...]:
        compared = self.join.compared
        return () if compared is None else (compared,)

    def _warm(self) -> None:
        warm_times()

    def _operator(self) -> Callable[[], Operator]:
        left, right = (self._placed(side) for side in self.join.sides)
        return partial(TimingOperator, self.window.length, self.join.threshold, (left, right))

    def _condition_text(self) -> str:
        times = [f"{side.name}.{self._time_of(side)[0]}" for side in self.join.sides]
        return " and ".join([f"|{times[0]} - {times[1]}| <= {self.window.length:g}", *map(in_words, self._multiplied)])

    def _candidates_text(self) -> str:
        return "rows whose times overlap, each with half of its tails cut, by their place in time"

    def _cascade_text(self) -> str:
        return "core -> shift of two shapes, by a table -> exact probability; times those of the other conditions"


class DifferenceStream(PlacedInTime):
    """Rows whose values differ as wanted, in a window of certain times."""

    def __init__(self, join: PairPlan, funnel: Any) -> None:
        super().__init__(join, funnel)
        assert isinstance(join.method, DifferenceMethod)
        assert join.condition.difference is not None
        self.method, self.difference = join.method, join.condition.difference

    @property
    def _checked(self) -> tuple[Difference | Distance, ...]:
        return (self.difference,)

    def _operator(self) -> Callable[[], Operator]:
        return partial(
            DifferenceOperator, self.difference, self.join.threshold, self.join.exact, self.window.length,
            self.method.strategy, self._columns,
        )  # fmt: skip

    def _candidates_text(self) -> str:
        strategy, region = self.method.strategy, self.method.region
        if strategy not in SWEEPS:
            indexes = {"pages": "pages with x-bounds", "pti": "a tree of x-bounds"}
            index = indexes.get(strategy, "an index of means and variances")
            return f"{index} for each key and stretch of time as long as the window"
        if region.outside or region.one_sided:
            return "a sweep along the times: rows that are near"
        return "a sweep over core regions, for each key and stretch of time as long as the window"


def stream_join(join: PairPlan, funnel: Any) -> StreamJoin:
    """Choose what runs a join of streams."""
    if join.method is None:
        return TimingStream(join, funnel)
    return (DifferenceStream if isinstance(join.method, DifferenceMethod) else DistanceStream)(join, funnel)


def _in_time(model: Model, is_left: bool, region: Region, threshold: Threshold) -> Intervals:
    assert isinstance(model, OneDimensional)
    return row_intervals(model, is_left, region, threshold, True)


class StreamObserving(Observing):
    """Counters of a stream: summed over the progress reports of its query."""

    def watch(self, frame: DataFrame, metrics: dict[str, str]) -> DataFrame:
        """The frame with these aggregates, in SQL, reported to the funnel, if there is one."""
        if self.funnel is None:
            return frame
        name, totals = f"haply-{uuid.uuid4().hex}", Totals()
        _listener_of(frame.sparkSession).observed[name] = totals
        self.funnel.follow(totals.read, live=True)
        return frame.observe(name, *(F.expr(f"coalesce({value}, 0)").alias(name) for name, value in metrics.items()))


class Totals:
    """Adds up what is observed under one name."""

    def __init__(self) -> None:
        self._totals = Counter[str]()

    def read(self) -> dict[str, int]:
        """What there is so far; nothing before the first report."""
        return dict(self._totals)

    def add(self, row: Any) -> None:
        """Add the counters of one batch."""
        self._totals.update({name: int(value or 0) for name, value in row.asDict().items()})


_LAST_CALL = 0.3
"""Seconds in which a call that is under way should end."""

_listeners: WeakKeyDictionary[Any, Listener] = WeakKeyDictionary()


def _listener_of(session: Any) -> Listener:
    """The one listener of a session: each would be called for every report of every query."""
    if session not in _listeners:
        _listeners[session] = listener = Listener()
        session.streams.addListener(listener)
        atexit.register(_stop_listening, weakref.ref(session), listener)
    return _listeners[session]


def _stop_listening(session: weakref.ref[Any], listener: Listener) -> None:
    """Before the program ends: Spark would go on calling it, and print what happens then."""
    with contextlib.suppress(Exception):  # the session may have been stopped
        session().streams.removeListener(listener)  # type: ignore[union-attr]
        time.sleep(_LAST_CALL)


class Listener(StreamingQueryListener):
    """Hands on what is observed, by name, to those who still want it."""

    def __init__(self) -> None:
        self.observed: WeakValueDictionary[str, Totals] = WeakValueDictionary()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to add."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Add the counters of one batch."""
        for name, row in event.progress.observedMetrics.items():
            totals = self.observed.get(name)
            if totals is not None:
                totals.add(row)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to add."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing to add."""
