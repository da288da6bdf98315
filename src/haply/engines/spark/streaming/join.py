"""The plan of a join of two streams: parcels of rows go into stateful cells, and pairs come out."""

from __future__ import annotations

import atexit
import contextlib
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.listener import StreamingQueryListener

from haply.engines.spark.batch.join import BatchJoin, df_of
from haply.engines.spark.exchange.parcels import COUNTS, PARCEL, CellSettings
from haply.engines.spark.exchange.stack import CELL, SIDE
from haply.engines.spark.exchange.worker import COUNTERS
from haply.engines.spark.observing import OBSERVED, Observing
from haply.engines.spark.streaming.parcels import (
    GROUP,
    NEWEST,
    OWN,
    REACH,
    STREAM_PARCEL_TYPE,
    UNTIL,
    Clock,
    StreamPack,
    group_of,
    unpack,
)
from haply.engines.spark.streaming.session import STREAM_CELLS
from haply.engines.spark.streaming.stateful import CellProcessor
from haply.engines.spark.streaming.worker import KIND, CellQuery, CellResult, stream_counter_names
from haply.engines.spark.times import HAS_TIME, time_number
from haply.engines.spark.versions import arrow_schema
from haply.joins.cells.difference import DifferenceMethod
from haply.joins.cells.exchange import Blocks
from haply.joins.cells.positions import PositionsMethod
from haply.joins.cells.rows import FITS, LEFT, RIGHT, ROW_COUNTS, TIME, RowSpec
from haply.joins.cells.samples import SamplesMethod
from haply.joins.operators.by_dimension import PointJoin
from haply.joins.operators.operator import ANY_DELAY, JoinOperator
from haply.joins.operators.pair import SWEEPS, PairJoin
from haply.joins.operators.position import PositionJoin
from haply.joins.operators.similarity import SimilarityJoin
from haply.joins.operators.timing import TimingJoin, last_times, reach_back
from haply.joins.warm import warm_times
from haply.models import Model, OneDimensional
from haply.planning.answers.join import ROW_IDS
from haply.planning.answers.options import Answer
from haply.planning.explain import Description
from haply.planning.pairs import PairPlan, Side, in_words
from haply.planning.times import TimeWindow
from haply.probability.region import Difference, Distance, Identity, Region
from haply.pruning.candidates.intervals import Intervals, row_intervals
from haply.pruning.threshold import Threshold

BLOCKS_PER_REACH = 16.0


class StreamJoin(ABC):
    """Runs a join of two streams in a window of time: the part that is common to all kinds of conditions."""

    def __init__(self, join: PairPlan, funnel: Any, answer: Answer | None = None) -> None:
        assert join.window is not None
        self.join, self.funnel, self.window = join, funnel, join.window
        self.answer = answer or Answer()

    def run(self) -> DataFrame:
        """Return the pairs, as a streaming DataFrame."""
        observing = self._observing()
        pairs = self._found(observing)
        for condition in self._equal_keys:
            pairs = pairs.where(F.expr(condition))
        return BatchJoin(self.join, self.funnel).finished([pairs], observing)

    def pairs_and_rows(self) -> tuple[DataFrame, StreamObserving]:
        """Return the pairs, and among them each row that the answer needs, once no further pair of it can come.

        The columns of the result are followed by ``KIND`` and the ids of rows, and by ``GROUP`` if both rows of a pair
        decide whether it is kept.
        """
        observing, batch = self._observing(), BatchJoin(self.join, self.funnel)
        found = self._found(observing)
        conditions = [*self._equal_keys, *batch.asked_at_the_end()]
        if conditions:
            holds = " AND ".join(f"({condition})" for condition in conditions)
            found = found.where(F.expr(f"{KIND} IS NOT NULL OR ({holds})"))
        found = observing.watch(found, {"kept": f"count_if({KIND} IS NULL)"})
        group = [GROUP] if self.answer.entangled else []
        return batch.shown(found, KIND, *self._told.values(), *group), observing

    @property
    def _told(self) -> dict[int, str]:
        """Return the names of row ids, by the number of their side, where final rows are reported."""
        numbers = {LEFT: self.join.left.name, RIGHT: self.join.right.name}
        return {number: ROW_IDS[name] for number, name in numbers.items() if name in self.answer.identified}

    def _observing(self) -> StreamObserving:
        if self.funnel is not None:
            self.funnel.start_over()
        return StreamObserving(self.funnel)

    @property
    def _equal_keys(self) -> list[str]:
        join = self.join
        return [f"({join.sql(one)}) = ({join.sql(other)})" for one, other in join.condition.equalities]

    def _found(self, observing: Observing) -> DataFrame:
        """Return what cells find, under the inner names."""
        join = self.join
        self._warm()
        cells = CellSettings.of(df_of(join.left).sparkSession).cells or STREAM_CELLS
        clock = Clock.of(self._stamps, self.window.length + self.window.max_delay)
        parcels = [self._parcels(side, cells, clock, observing) for side in join.sides]
        schema = T.StructType()
        for side in join.sides:
            for name, field in zip(side.inner, df_of(side).schema.fields, strict=True):
                schema.add(name, field.dataType)
        schema.add("probability", T.DoubleType()).add(COUNTERS, T.ArrayType(T.LongType()))
        if self._told:
            schema.add(KIND, T.ByteType())
        for name in self._told.values():
            schema.add(name, T.BinaryType())
        if self.answer.entangled:
            schema.add(GROUP, T.DoubleType())
        joined = joined_cells(parcels, self._query(clock, schema, cells), schema)
        names = stream_counter_names(self._operator()())
        metrics = {name: f"sum(get({COUNTERS}, {k}))" for k, name in enumerate(names) if name != "kept"}
        return observing.watch(joined, metrics).where(F.col(COUNTERS).isNull()).drop(COUNTERS)

    # -- differs between joins -------------------------------------------------------------------------------------

    @abstractmethod
    def _operator(self) -> Callable[[], JoinOperator]:
        """Return the function that makes the operator of a cell."""

    def _row_spec(self, side: Side) -> RowSpec:
        """Describe the rows of a side: their value decides whether they take part, and to which cells they go."""
        spec = self.join.row_spec(side, side.inner_name, self.join.invalid == "raise")
        return replace(spec, payload=tuple(side.inner))

    @property
    def _sent_by_time(self) -> float | None:
        """Return how far apart certain times may be, if rows go to cells by their times, and not by their values."""
        return None

    @property
    @abstractmethod
    def _block_width(self) -> float:
        """Return the width of blocks: much wider than the reach of a row, so that few rows are in more than one."""

    def _warm(self) -> None:
        """Compile the kernels, or load them, before workers need them."""
        assert self.join.method is not None
        self.join.method.warm(self.join.setting)

    @property
    def _multiplied(self) -> tuple[Difference | Distance, ...]:
        """Conditions whose probabilities are multiplied with that of the operator."""
        return ()

    def _condition_text(self) -> str:
        return self.join.condition_text()

    def _candidates_text(self) -> str:
        assert self.join.method is not None
        return self.join.method.candidates_text()

    def _cascade_text(self) -> str:
        assert self.join.method is not None
        return self.join.method.cascade_text()

    # -- common to all ------------------------------------------------------------------------------------------------

    @property
    def _stamps(self) -> bool:
        """Return whether times are counted in microseconds since 1970."""
        return self.window.stamps and not any(self.window.uncertain)

    def _time_of(self, side: Side) -> tuple[str, bool]:
        """Return the column of times of a side, and whether it is uncertain."""
        return self.window.column(side.is_left), self.window.uncertain[0 if side.is_left else 1]

    def _query(self, clock: Clock, schema: T.StructType, cells: int) -> CellQuery:
        join, window = self.join, self.window
        identity: tuple[tuple[str, Any], ...] = (
            ("spark.haply.cells", cells), ("condition", self._condition_text()),
            ("threshold", join.threshold.value), ("time", (window.left, window.right)),
            ("window", window.length),
            ("max_delay", window.max_delay),
            ("columns", tuple(df_of(side).schema.simpleString() for side in join.sides)),
        )  # fmt: skip
        if not self.answer.plain:
            identity += (("answer", str(self.answer)),)
        ends = {number: UNTIL if self.window.uncertain[number] else TIME for number in self._told}
        together = join.together(self._multiplied, join.left.inner_name, join.right.inner_name)
        payloads = (tuple(join.left.inner), tuple(join.right.inner))
        return CellQuery(
            self._operator(), tuple(self._row_spec(side).value for side in join.sides),
            CellResult(together, payloads, arrow_schema(schema), self._told), window.length, clock, uuid.uuid4().hex,
            identity, ends,
        )  # fmt: skip

    def _parcels(self, side: Side, cells: int, clock: Clock, observing: Observing) -> DataFrame:
        """Pack the rows of a side in parcels. Conditions only mark rows: those left out advance the clock, too."""
        join = self.join
        own = " AND ".join(f"({join.sql(expression)})" for expression in join.own_conditions(side)) or "true"
        keys = join.key_sql(side)
        grouped = [keys[position] for position in join.grouped_keys]  # a hash depends on the type
        time, uncertain = self._time_of(side)
        told = side.name in self.answer.identified
        rows = df_of(side).toDF(*side.inner)
        if not uncertain:
            rows = rows.withColumn(TIME, F.expr(time_number(self.window, side.inner_name(time), time)))
        fits = [str(join.threshold.attainable), *(f"({key}) IS NOT NULL" for key in keys)]
        rows = rows.selectExpr(
            "*", f"coalesce({own}, false) AS {OWN}", f"{group_of(grouped)} AS {GROUP}",
            f"{' AND '.join([*fits, *([] if uncertain else [HAS_TIME])])} AS {FITS}",
        )  # fmt: skip
        pack = StreamPack(
            LEFT if side.is_left else RIGHT, self._row_spec(side), Blocks(cells, self._block_width), clock,
            self._sent_by_time, side.inner_name(time) if uncertain else None,
            partial(reach_back, threshold=join.threshold) if uncertain else None,
            told, side.name in self.answer.preserved,
            partial(last_times, threshold=join.threshold) if uncertain and told else None,
        )  # fmt: skip
        packed = packed_rows(rows, pack, side.name, observing)
        return packed.withWatermark(NEWEST, f"{clock.delay(self.window.max_delay)} milliseconds")

    def describe(self) -> Description:
        """Describe how the join will run."""
        window = self.window
        unit = " microseconds" if self._stamps else ""
        return Description(
            "Threshold join of streams",
            f"Only rows within {window.length:g}{unit} of each other are looked at.",
            (
                ("condition", f"{self._condition_text()}, {self.join.threshold.describe()}"),
                ("window", f"|time - time| <= {window.length:g}{unit}, rows up to {window.max_delay:g}{unit} late"),
                ("candidates", self._candidates_text()),
            ),
            (
                ("cascade", self._cascade_text()),
                (
                    "partitioning",
                    f"blocks of width {self._block_width:g} on that line, distributed over cells; the state of a cell "
                    "is kept in pieces as long as the window",
                ),
            ),
        )


class DistanceStream(StreamJoin):
    """Near points, or positions, in a window of certain times."""

    def _operator(self) -> Callable[[], JoinOperator]:
        join, method = self.join, self.join.method
        assert isinstance(method, (SamplesMethod, PositionsMethod))
        settings = {
            "within": method.distance.limit, "threshold": join.threshold.value, "strict": join.threshold.strict,
            "window": self.window.length, "probability": "exact" if join.exact else "none",
        }  # fmt: skip
        kind = PositionJoin if isinstance(method, PositionsMethod) else SimilarityJoin
        return partial(PointJoin, kind, settings, join.invalid == "raise")

    @property
    def _block_width(self) -> float:
        assert isinstance(self.join.method, (SamplesMethod, PositionsMethod))
        return BLOCKS_PER_REACH * self.join.method.distance.limit or 1.0


class TimingStream(StreamJoin):
    """Rows near in time, whose times may be uncertain; other uncertain conditions are multiplied."""

    @property
    def _multiplied(self) -> tuple[Difference | Distance, ...]:
        compared = self.join.compared
        return () if compared is None or isinstance(compared, Identity) else (compared,)

    def _warm(self) -> None:
        warm_times()

    def _row_spec(self, side: Side) -> RowSpec:
        name, uncertain = self._time_of(side)
        region = Region(-self.window.length, self.window.length)
        place = partial(_in_time, is_left=side.is_left, region=region, threshold=self.join.threshold)
        further = [one.left if side.is_left else one.right for one in self._multiplied]
        return RowSpec(
            side.inner_name(name) if uncertain else TIME, tuple(side.inner),
            tuple((side.inner_name(column), column) for column in further), place, name,
            f"Column '{{}}' of the {side.name} table" if self.join.invalid == "raise" else None,
        )  # fmt: skip

    @property
    def _block_width(self) -> float:
        return _width_in_time(self.window)

    def _operator(self) -> Callable[[], JoinOperator]:
        threshold = self.join.threshold
        return partial(
            TimingJoin, self.window.length, threshold.value, strict=threshold.strict, max_delay=ANY_DELAY
        )  # fmt: skip

    def _condition_text(self) -> str:
        times = [f"{side.name}.{self._time_of(side)[0]}" for side in self.join.sides]
        return " and ".join([f"|{times[0]} - {times[1]}| <= {self.window.length:g}", *map(in_words, self._multiplied)])

    def _candidates_text(self) -> str:
        return "rows whose times overlap, each with half of its tails cut, by their place in time"

    def _cascade_text(self) -> str:
        return "core -> shift of two shapes, by a table -> exact probability; times those of the other conditions"


class DifferenceStream(StreamJoin):
    """Rows whose values differ as wanted, in a window of certain times."""

    def __init__(self, join: PairPlan, funnel: Any, answer: Answer | None = None) -> None:
        super().__init__(join, funnel, answer)
        assert isinstance(join.method, DifferenceMethod)
        self.method = join.method

    @property
    def _sent_by_time(self) -> float | None:
        return self.window.length

    @property
    def _block_width(self) -> float:
        return _width_in_time(self.window)

    def _operator(self) -> Callable[[], JoinOperator]:
        threshold = self.join.threshold
        settings: dict[str, Any] = {
            "condition": self.join.condition.difference, "threshold": threshold.value, "window": self.window.length,
            "strategy": self.method.strategy, "strict": threshold.strict, "exact": self.join.exact,
        }  # fmt: skip
        return partial(PairJoin, **settings)

    def _candidates_text(self) -> str:
        strategy, region = self.method.strategy, self.method.region
        if strategy not in SWEEPS:
            return f"{self.method.index_text} for each key and slot of time as long as the window"
        if region.outside or region.one_sided:
            return "a sweep along the times: rows that are near"
        return "core sweep, a sweep over core regions, for each key and slot of time as long as the window"


def stream_join(join: PairPlan, funnel: Any, answer: Answer | None = None) -> StreamJoin:
    """Choose what runs a join of streams; ``answer`` says which rows matter besides pairs."""
    if join.method is None:
        return TimingStream(join, funnel, answer)
    return (DifferenceStream if isinstance(join.method, DifferenceMethod) else DistanceStream)(join, funnel, answer)


def packed_rows(rows: DataFrame, pack: StreamPack, name: str, observing: Observing) -> DataFrame:
    """Return the rows of a side in parcels, and observe what is counted of them under the name of the side."""
    packed = rows.mapInArrow(lambda batches: pack(batches), STREAM_PARCEL_TYPE)
    counts = {f"{what}_{name}": f"sum(get({COUNTS}, {k}))" for k, what in enumerate(ROW_COUNTS)}
    return observing.watch(packed, counts).select(CELL, SIDE, NEWEST, PARCEL, REACH)


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames, which have the same columns."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def joined_cells(parcels: Sequence[DataFrame], query: CellQuery, schema: T.StructType) -> DataFrame:
    """Return what cells find in the parcels of all streams, rows of counters among it."""
    # Without the column of times: Spark would drop late parcels, but late rows must be counted.
    together = united(parcels).drop(NEWEST)
    found = together.groupBy(CELL).transformWithStateInPandas(
        CellProcessor(query), f"{PARCEL} binary", "Append", "EventTime"
    )
    return found.mapInArrow(unpack, schema)


def _width_in_time(window: TimeWindow) -> float:
    """Blocks of time much longer than a window, so that few rows are in more than one."""
    return BLOCKS_PER_REACH * (window.length + window.max_delay) or 1.0


def _in_time(model: Model, is_left: bool, region: Region, threshold: Threshold) -> Intervals:
    assert isinstance(model, OneDimensional)
    return row_intervals(model, is_left, region, threshold, True)


class StreamObserving(Observing):
    """Counters of a stream: summed over the progress reports of its query."""

    def watch(self, frame: DataFrame, metrics: dict[str, str]) -> DataFrame:
        """Return the frame with these aggregates, in SQL, reported to the funnel, if there is one."""
        if self.funnel is None:
            return frame
        name, totals = f"{OBSERVED}{uuid.uuid4().hex}", Totals()
        _listener_of(frame.sparkSession).observed[name] = totals
        self.funnel.follow(totals.read, live=True)
        return frame.observe(name, *(F.expr(f"coalesce({value}, 0)").alias(name) for name, value in metrics.items()))


class Totals:
    """Adds up what is observed under one name."""

    def __init__(self) -> None:
        self._totals = Counter[str]()

    def read(self) -> dict[str, int]:
        """Return the sums so far; nothing before the first report."""
        return dict(self._totals)

    def add(self, row: Any) -> None:
        """Add the counters of one batch."""
        self._totals.update({name: int(value or 0) for name, value in row.asDict().items()})


_LAST_CALL = 0.3
"""Seconds to wait for a running call to end."""

_listeners: WeakKeyDictionary[Any, Listener] = WeakKeyDictionary()


def _listener_of(session: Any) -> Listener:
    """Return the one listener of a session: each would be called for every report of every query."""
    if session not in _listeners:
        _listeners[session] = listener = Listener()
        session.streams.addListener(listener)
        atexit.register(_stop_listening, weakref.ref(session), listener)
    return _listeners[session]


def _stop_listening(session: weakref.ref[Any], listener: Listener) -> None:
    """Remove the listener before the program ends: Spark would still call it, and print errors."""
    with contextlib.suppress(Exception):  # the session may have been stopped
        session().streams.removeListener(listener)  # type: ignore[union-attr]
        time.sleep(_LAST_CALL)


class Listener(StreamingQueryListener):
    """Passes on observed counters, by name, to funnels that still exist."""

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
