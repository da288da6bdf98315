"""``hp.window_join``: combinations of one row from each of many tables or streams, under a graph of time windows.

Rows travel in parcels to cells, as in a join of two streams (see ``parcels``): the line of time is cut into blocks,
blocks and keys are dealt out to cells, and a row goes wherever the blocks from its time to the end of its longest
window are. A cell joins what it gets with ``WindowJoin``; a combination is that cell's where its latest row is at home.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.errors import HaplyError, advise, unknown_name
from haply.joins.warm import warm_windows
from haply.joins.window import ALGORITHMS, WindowJoin
from haply.models import Certain, Model
from haply.probability.joint import ZERO
from haply.pruning.intervals import Intervals
from haply.pruning.threshold import Threshold
from haply.pruning.windows import POLICIES
from haply.query import Column, Expression, respelled, to_sql
from haply.query.checks import all_certain, refuse_equalities
from haply.query.rewrites import ManyCondition, split_many
from haply.query.text import parse
from haply.spark.columns import HOW_UNCERTAIN, arrow_schema, find_column, model_of_spark_type, quoted
from haply.spark.failures import translate_failures
from haply.spark.packing import CellSettings
from haply.spark.parcels import (
    CELL,
    CONTROL,
    COUNTS,
    GROUP,
    NEWEST,
    PARCEL,
    PARCEL_TYPE,
    REACH,
    ROW_COUNTS,
    SIDE,
    STANDING,
    TAKES_PART,
    WITHOUT_KEY,
    Clock,
    Pack,
    from_bytes,
    group_of,
    unpack,
)
from haply.spark.plan import Observing
from haply.spark.stack import TIME
from haply.spark.stateful import CellProcessor
from haply.spark.stream import BLOCKS_PER_REACH, STREAM_CELLS, StreamObserving, check_session
from haply.spark.stream_worker import Memory, Query, WholeWindows, WindowOperator, counter_names
from haply.spark.window import certain_times, length_of
from haply.spark.worker import COUNTERS, Together, on_side


def window_join(
    streams: Mapping[str, DataFrame],
    windows: Mapping[tuple[str, str], Any],
    *,
    key: str | Mapping[str, str] | None = None,
    on: Expression | str | None = None,
    threshold: float | None = None,
    time: str | Mapping[str, str] = "time",
    max_delay: Any = 0,
    algorithm: str = "auto",
    windows_policy: str = "exact",
    funnel: Any = None,
) -> DataFrame:
    """Combinations of one row of each table (or stream), in which every given window holds.

    Parameters
    ----------
    streams
        Tables by name, or streams: all of one kind.
    windows
        ``{("a", "b"): 10, ("b", "c"): 20}``: times of ``a`` and ``b`` are at most 10 apart, and so on. The pairs must
        connect all streams.
    key
        A column that must be equal in all rows of a combination, or a column for each stream.
    on
        Further conditions, with the names of the streams as those of tables. Uncertain ones that share a column are
        taken together: they must tie columns as the branches of a tree do.
    threshold
        The least probability of a combination that is kept; by default all that are possible. Without effect where all
        conditions are certain.
    time, max_delay
        The column of times (or one for each stream), and how late a row of a stream may come after newer ones of it.
    algorithm, windows_policy
        How combinations are found; the answer depends on neither.
    funnel
        An ``hp.Funnel()`` to fill.

    Columns are named ``<stream>_<column>``; then comes ``probability``, that of all uncertain conditions together.
    """
    return WindowPlan(
        streams, windows, key=key, on=on, threshold=threshold, time=time, max_delay=max_delay, algorithm=algorithm,
        windows_policy=windows_policy, funnel=funnel,
    ).run()  # fmt: skip


class WindowPlan:
    """A window join that has been checked and planned but not run."""

    def __init__(
        self,
        streams: Mapping[str, DataFrame],
        windows: Mapping[tuple[str, str], Any],
        *,
        key: str | Mapping[str, str] | None,
        on: Expression | str | None,
        threshold: float | None,
        time: str | Mapping[str, str],
        max_delay: Any,
        algorithm: str,
        windows_policy: str,
        funnel: Any,
    ) -> None:
        translate_failures()
        if algorithm not in ALGORITHMS:
            raise unknown_name("algorithm", algorithm, ALGORITHMS)
        if windows_policy not in POLICIES:
            raise unknown_name("policy of windows", windows_policy, POLICIES)
        self.threshold = Threshold(threshold)
        self.frames, self.funnel, self.algorithm, self.policy = dict(streams), funnel, algorithm, windows_policy
        self.names = tuple(self.frames)
        for pair in windows:
            for name in pair if isinstance(pair, tuple) else (pair,):
                if name not in self.frames:
                    raise unknown_name("stream", str(name), self.names)
        times = self._by_stream("time", time)
        self._times = {name: find_column(self.frames[name], times[name], name) for name in self.names}
        self._clock_of = certain_times({name: (self.frames[name], self._times[name]) for name in self.names})
        stamps = self._clock_of.stamps
        self.windows = {pair: length_of("window", value, stamps) for pair, value in windows.items()}
        delays = max_delay if isinstance(max_delay, Mapping) else dict.fromkeys(self.names, max_delay)
        self._check_names("max_delay", delays)
        self.delays = {name: length_of("max_delay", delays.get(name, 0), stamps) for name in self.names}
        join = WindowJoin(self.windows, windows_policy=windows_policy)
        alone = [name for name in self.names if name not in join.streams]
        if alone:
            raise HaplyError(
                f"The windows do not connect stream '{alone[0]}' with the others",
                expected="windows over which every stream can be reached from every other",
                found=", ".join(f"{one}-{other}" for one, other in self.windows),
            )
        self.reach = max(join.closure.values())
        keys = {} if key is None else self._by_stream("key", key)
        self._keys = {name: find_column(self.frames[name], column, name) for name, column in keys.items()}
        self._on = parse(on) if isinstance(on, str) else on
        self._conditions = self._split(self._on)
        self._together = self._joint()
        self.streaming = any(frame.isStreaming for frame in self.frames.values())
        if self.streaming:
            if not all(frame.isStreaming for frame in self.frames.values()):
                raise HaplyError("Some of the streams are tables", expected="all streams, or all tables")
            check_session(self._session)

    @property
    def _session(self) -> Any:
        return next(iter(self.frames.values())).sparkSession

    def _by_stream(self, what: str, given: str | Mapping[str, str]) -> dict[str, str]:
        if isinstance(given, str):
            return dict.fromkeys(self.names, given)
        if not isinstance(given, Mapping) or set(given) != set(self.names):
            raise HaplyError(
                f"The {what} is given for other streams than there are",
                expected=f"a column, or one for each of {', '.join(self.names)}",
                found=repr(given),
            )
        return dict(given)

    def _check_names(self, what: str, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self.frames:
                raise unknown_name(f"stream with a {what}", str(name), self.names)

    def _split(self, on: Expression | None) -> ManyCondition:
        if on is None:
            return ManyCondition((), (), {})
        condition = respelled(on, self._spelled)
        refuse_equalities(condition, self._kind)
        plain = all_certain(condition, lambda column: self._kind(column) is None, self.threshold.value is not None)
        if plain is not None:
            advise(plain, HOW_UNCERTAIN)
        return split_many(condition, lambda column: self._kind(column) is None)

    def _spelled(self, column: Column) -> str:
        """The column's name as its stream has it."""
        if column.table not in self.frames:
            raise unknown_name("stream", str(column.table), self.names)
        return find_column(self.frames[column.table], column.name, column.table)

    def _kind(self, column: Column) -> type[Model] | None:
        """The model of an uncertain column; none if it is certain."""
        assert column.table is not None
        kind = model_of_spark_type(self.frames[column.table].schema[column.name].dataType)
        return None if kind is Certain else kind

    def _joint(self) -> Together | None:
        """What is uncertain, over the columns as they are named inside."""
        inner, kinds = {ZERO: ZERO}, {}
        for text, column in self._conditions.columns.items():
            if column.index is not None:
                raise HaplyError(f"`{text}` is a component of a column", expected="whole columns in a join of many")
            assert column.table is not None
            inner[text] = on_side(self.names.index(column.table), self._inner_name(column))
            kinds[inner[text]] = self._kind(column) or Certain
        return Together.of(
            [one.renamed(inner.__getitem__) for one in self._conditions.uncertain], kinds, self.threshold
        )

    # -- building the DataFrame ---------------------------------------------------------------------------------------

    def run(self) -> DataFrame:
        """The combinations, as a lazy DataFrame."""
        warm_windows()
        observing: Observing = StreamObserving(self.funnel) if self.streaming else Observing(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
        chosen = CellSettings.of(self._session).cells
        cells = chosen or (
            STREAM_CELLS if self.streaming else int(self._session.conf.get("spark.sql.shuffle.partitions"))
        )
        clock = Clock.of(self._clock_of.stamps, self.reach + max(self.delays.values()))
        parcels = [self._parcels(name, cells, clock, observing) for name in self.names]
        together = parcels[0]
        for more in parcels[1:]:
            together = together.unionByName(more)
        query = self._query(clock, cells)
        schema = self._schema
        if self.streaming:
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
        names = counter_names(query.make(), self.names)
        metrics = {name: f"sum(get({COUNTERS}, {k}))" for k, name in enumerate(names) if name != "kept"}
        combinations = observing.watch(joined, metrics).where(F.col(COUNTERS).isNull()).drop(COUNTERS)
        for condition in self._conditions.certain:
            combinations = combinations.where(F.expr(to_sql(condition, self._inner_column)))
        for one, other in itertools.pairwise(self._keys):  # cells go by a hash of the key
            first, second = (self._inner(name, self._keys[name]) for name in (one, other))
            combinations = combinations.where(F.col(first) == F.col(second))
        combinations = observing.watch(combinations, {"kept": "count(1)"})
        shown = [
            F.col(inner).alias(f"{name}_{column}")
            for name in self.names
            for inner, column in zip(self._inners[name], self.frames[name].columns, strict=True)
        ]
        return combinations.select(*shown, "probability")

    def explain(self) -> str:
        """How the join will run, in words."""
        kind = "streams" if self.streaming else "tables"
        unit = " microseconds" if self._clock_of.stamps else ""
        windows = ", ".join(f"{one}-{other} {length:g}{unit}" for (one, other), length in self.windows.items())
        lines = [
            "Window join",
            f"  {kind:<14}{', '.join(f'{name} by {self._times[name]}' for name in self.names)}",
            f"  windows       {windows}; all rows of a combination within {self.reach:g}{unit}",
        ]
        if self._keys:
            lines.append(f"  key           {' = '.join(f'{name}.{column}' for name, column in self._keys.items())}")
        if self._on is not None:
            lines.append(f"  condition     {self._on}")
            lines += [f"  {name:<13} {made}" for name, made in self._conditions.steps]
        if self._conditions.uncertain:
            needed = "P > 0" if self.threshold.value is None else f"P >= {self.threshold.value:g}"
            lines.append(f"  probability   that of all uncertain conditions together, {needed}")
        else:
            lines.append("  probability   every condition is certain: 1.0")
        lines.append(f"  algorithm     {self.algorithm}, windows {self.policy}")
        return "\n".join(lines)

    @cached_property
    def _inners(self) -> dict[str, list[str]]:
        return {name: [f"s{n}_{k}" for k in range(len(self.frames[name].columns))] for n, name in enumerate(self.names)}

    def _inner(self, name: str, column: str) -> str:
        return self._inners[name][self.frames[name].columns.index(column)]

    def _inner_name(self, column: Column) -> str:
        assert column.table is not None
        return self._inner(column.table, find_column(self.frames[column.table], column.name, column.table))

    def _inner_column(self, column: Column) -> str:
        return quoted(self._inner_name(column))

    @property
    def _schema(self) -> T.StructType:
        schema = T.StructType()
        for name in self.names:
            for inner, field in zip(self._inners[name], self.frames[name].schema.fields, strict=True):
                schema.add(inner, field.dataType)
        return schema.add("probability", T.DoubleType()).add(COUNTERS, T.ArrayType(T.LongType()))

    def _query(self, clock: Clock, cells: int) -> Query:
        identity = (
            ("spark.haply.cells", cells), ("windows", sorted(self.windows.items())),
            ("keys", sorted(self._keys.items())), ("max_delay", sorted(self.delays.items())),
            ("condition", str([str(one) for one in self._conditions.uncertain])), ("threshold", self.threshold.value),
            ("columns", tuple(self.frames[name].schema.simpleString() for name in self.names)),
        )  # fmt: skip
        make: Any = partial(WholeWindows, self.windows, self.names)
        if self.streaming or self.algorithm != "auto":
            # In a stream, forward evaluation would wait for watermarks to give what backward evaluation has at once.
            algorithm = "backward" if self.streaming else self.algorithm
            make = partial(WindowOperator, self.windows, self.names, algorithm=algorithm, windows_policy=self.policy)
        payloads = tuple(tuple(self._inners[name]) for name in self.names)
        return Query(
            make,
            self._together,
            self.reach,
            clock,
            payloads,
            arrow_schema(self._schema),
            uuid.uuid4().hex,
            identity,
        )

    def _parcels(self, name: str, cells: int, clock: Clock, observing: Observing) -> DataFrame:
        inners, frame = self._inners[name], self.frames[name]
        key = quoted(self._inner(name, self._keys[name])) if self._keys else None
        standing = f"IF({key} IS NULL, {WITHOUT_KEY}, {TAKES_PART})" if key else str(TAKES_PART)
        rows = frame.toDF(*inners).selectExpr(
            *inners,
            f"CAST({standing} AS TINYINT) AS {STANDING}",
            f"{self._clock_of.number(self._inner(name, self._times[name]), self._times[name])} AS {TIME}",
            f"{group_of([key] if key else [])} AS {GROUP}",
        )
        width = BLOCKS_PER_REACH * self.reach or 1.0
        at = self.names.index(name)
        uncertain = self._together.columns(at) if self._together else ()
        pack = Pack(
            at, cells, width, clock, None, partial(_until, reach=self.reach), f"Column '{{}}' of stream '{name}'",
            dict(zip(inners, frame.columns, strict=True)), None, uncertain,
        )  # fmt: skip
        packed = rows.mapInArrow(lambda batches: pack(batches), PARCEL_TYPE)
        counts = {f"{what}_{name}": f"sum(get({COUNTS}, {k}))" for k, what in enumerate(ROW_COUNTS)}
        marked = observing.watch(packed, counts)
        if self.streaming:
            marked = marked.withWatermark(NEWEST, f"{clock.delay(self.delays[name])} milliseconds")
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

    query: Query

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
