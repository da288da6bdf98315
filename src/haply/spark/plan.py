"""The plan of a threshold join on static DataFrames (see ``join`` for how it is made).

The plan has up to three parts, united at the end:

* *overlapping* pairs: rows are sent to the cells their intervals touch, and a compiled kernel decides each cell;
* *sure* pairs, for conditions that hold between rows far apart (``<``, ``>``, far apart): a native Spark join over
  whole ranges, without the kernel;
* *same* pairs, with ``self_key``: a row and itself, a native equality join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.errors import HaplyError
from haply.joins.strategies import estimated_seconds
from haply.joins.warm import warm_moments, warm_pair, warm_selection
from haply.models import Model, Samples
from haply.probability.region import Difference, Distance, Region
from haply.pruning.bounds import RULES
from haply.pruning.cascade import Counters
from haply.pruning.cells import expected_candidates, lay_out
from haply.pruning.intervals import Intervals, accepts_above, accepts_below, pairing
from haply.pruning.threshold import Pairing, Threshold
from haply.query import Column, Expression, columns_of, to_sql
from haply.query.conditions import JoinCondition
from haply.spark.columns import arrow_schema, find_column, model_of_spark_type, quoted
from haply.spark.packing import (
    COUNTS,
    FITS,
    PARCEL,
    PARCEL_TYPE,
    CellSettings,
    Pack,
    PackedSide,
    Sketch,
    edges_frame,
    profiles_of,
    sketch_frame,
    warm_parcels,
    with_layout,
)
from haply.spark.parcels import ROW_COUNTS
from haply.spark.prepare import HOPELESS, USABLE, PlaceRows, interval_function, state_function
from haply.spark.result import Shown, SideName
from haply.spark.stack import (
    CELL,
    LEFT,
    RIGHT,
    SIDE,
    TIME,
    Stack,
    is_flat,
)
from haply.spark.whole import Meet, Ready, beside, sent_frame
from haply.spark.window import TimeWindow
from haply.spark.worker import (
    COUNTERS,
    CellJoin,
    Match,
    MatchDifferences,
    PairQuestion,
    SideColumns,
    Together,
    counter_names,
    on_side,
)

ProbabilityMode = Literal["exact", "none"]
"""``exact``: a ``probability`` column; ``none``: only the pairs, so that bounds may accept without computing."""

InvalidMode = Literal["raise", "drop"]
"""What happens to rows that are not a distribution."""

_MOST_RANGES = 256
_INDEXES = {
    "pages": "pages of rows with x-bounds",
    "pti": "a tree of rows with x-bounds",
    "moments": "an index of means and variances",
}
"""How plans call what each strategy finds candidates with; all others sweep."""
_COLUMN_OF = "Column '{}' of the {} table"
_BINARY = T.StringType().collation


@dataclass(frozen=True)
class Side:
    """One input with its columns renamed by position, so that no two columns of a plan share a name."""

    name: str
    frame: DataFrame
    column: str
    model: type[Model] | None
    original: tuple[str, ...]

    @property
    def prefix(self) -> str:
        return self.name[0]

    @property
    def inner(self) -> list[str]:
        return [f"{self.prefix}{k}" for k in range(len(self.original))]

    def inner_name(self, column: str) -> str:
        return self.inner[self.original.index(column)]


class JoinPlan:
    """A join that has been checked and planned but not run: ``explain()`` tells how, ``run()`` gives the DataFrame."""

    def __init__(
        self,
        left: DataFrame,
        right: DataFrame,
        condition: JoinCondition,
        threshold: Threshold,
        *,
        exact: bool,
        self_key: str | None,
        invalid: InvalidMode,
        result: Sequence[Shown],
        funnel: Any,
        window: TimeWindow | None = None,
        question: PairQuestion | None = None,
        strategy: str = "auto",
        broadcast: SideName | None = None,
        called: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        self.condition, self.threshold, self.exact, self.strategy = condition, threshold, exact, strategy
        self.self_key, self.invalid, self.funnel, self.window = self_key, invalid, funnel, window
        self._result, self._broadcast = tuple(result), broadcast
        self._question = question
        """All conditions on a pair, if the one that is planned only finds the candidates; it must hold in a band."""
        self._called = called or {}
        """What messages about bad rows call columns, by side and name, that have another name here."""
        compared = condition.difference or condition.distance
        self._left = self._side("left", left, compared.left if compared else "")
        self._right = self._side("right", right, compared.right if compared else "")
        if broadcast is not None and self._uncertain and self._has_sure_pairs:
            raise HaplyError(
                "A table is broadcast for conditions that hold for values near each other",
                expected="a distance, or a difference within a band",
                found=self._explain_condition(),
                hint="leave out broadcast",
            )

    @staticmethod
    def _side(name: str, frame: DataFrame, column: str) -> Side:
        model = model_of_spark_type(frame.schema[column].dataType) if column else None
        return Side(name, frame, column, model, tuple(frame.columns))

    # -- building the DataFrame ---------------------------------------------------------------------------------------

    def run(self) -> DataFrame:
        """The pairs, as a lazy DataFrame."""
        if not self._uncertain:
            return self._finish([self._certain_join()], Observing.nothing())
        # Compile (or load) this join's kernels here, so that workers on this machine only load them.
        self._warm()
        if self._question is not None:
            warm_selection(self._question.selection)
        observing = Observing(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
        if self._broadcast is not None:
            parts = [self._overlapping_whole(self._broadcast, observing)]
        else:
            parts = [self._overlapping(observing)]
            if self._has_sure_pairs:
                parts.append(self._sure(observing))
        itself = self._sees_itself and self._holds_for_itself and all(map(_holds_at_0, self.condition.further))
        if itself and self.threshold.attainable:
            parts.append(self._same(observing))
        return self._finish(parts, observing)

    # -- what depends on the condition: here a set of differences ------------------------------------------------------

    def _warm(self) -> None:
        pair: Any = (self._left.model, self._right.model, self.region, self.threshold, self._needs_values)
        warm_pair(*pair, self.strategy, keyed=bool(self._grouped_keys) or self.window is not None)
        if self.strategy == "moments":
            warm_moments(*pair)

    @property
    def _has_sure_pairs(self) -> bool:
        return accepts_above(self.region) or accepts_below(self.region)

    @property
    def _holds_for_itself(self) -> bool:
        return self.region.contains(0.0)

    def _match(self) -> Match:
        return MatchDifferences(self.region, self.threshold, self._needs_values, self.strategy)

    def _counters(self) -> Counters:
        return Counters()

    def _placing(self, side: Side) -> Callable[[Model], Intervals]:
        """How the rows of a side are given their intervals."""
        return PlaceRows(side.name == "left", self.region, self.threshold, self.exact, self._pairing)

    # -- what is common to all -----------------------------------------------------------------------------------------

    @property
    def asks_all(self) -> bool:
        """Whether pairs are asked all conditions where they are found."""
        return self._question is not None

    @property
    def _needs_values(self) -> bool:
        """Whether the probability of the planned condition itself is needed."""
        return self._question is None and (self.exact or bool(self.condition.further))

    @property
    def _uncertain(self) -> bool:
        return self.condition.difference is not None or self.condition.distance is not None

    @property
    def _compared(self) -> Difference | Distance:
        compared = self.condition.difference or self.condition.distance
        assert compared is not None
        return compared

    @property
    def region(self) -> Region:
        """The differences the join looks for."""
        return self._difference.region

    @property
    def _pairing(self) -> Pairing:
        return pairing(self._left.model, self._right.model)

    @property
    def _difference(self) -> Difference:
        assert self.condition.difference is not None
        return self.condition.difference

    @property
    def _sees_itself(self) -> bool:
        """Whether a row of the left and the same row of the right are one variable in this condition."""
        return self._uncertain and self.self_key is not None and self._compared.left == self._compared.right

    @property
    def _length(self) -> float | None:
        """How far apart certain times may be."""
        return None if self.window is None else self.window.length

    def _key_of(self, side: Side) -> str:
        """The key that tells which rows are one variable; tables may spell it in letters of another case."""
        key = str(self.self_key)
        return side.inner_name(key if key in side.original else next(n for n in side.original if _alike(n, key)))

    @cached_property
    def _settings(self) -> CellSettings:
        return CellSettings.of(self._left.frame.sparkSession)

    def _sql(self, expression: Expression) -> str:
        """A certain condition over the inner column names."""

        def rename(column: Column) -> str:
            side = self._left if column.table == "left" else self._right
            return quoted(side.inner_name(find_column(side.frame, column.name, side.name)))

        return to_sql(expression, rename)

    def _prepared(self, side: Side, lenient: bool = False) -> DataFrame:
        """The side's rows that pass its own certain conditions, with their interval and state."""
        frame = self._own_rows(side)
        raising = self.invalid == "raise" and not lenient

        def raise_as(name: str) -> str | None:
            return _COLUMN_OF.format(self._called.get((side.name, name), name), side.name) if raising else None

        interval = interval_function(self._placing(side), raise_as(side.column))(F.col(side.inner_name(side.column)))
        frame = frame.withColumn("__interval", interval)
        for position, name in enumerate(self._checked_columns(side)):
            state = state_function(raise_as(name))(F.col(side.inner_name(name)))
            frame = frame.withColumn(f"__state{position}", state)
        return frame

    def _own_rows(self, side: Side) -> DataFrame:
        """The side's rows that pass its own certain conditions, with keys and time."""
        frame = side.frame.toDF(*side.inner)
        for expression in self.condition.left_only if side.name == "left" else self.condition.right_only:
            frame = frame.where(F.expr(self._sql(expression)))
        for position, equality in enumerate(self.condition.equalities):
            expression = equality[0] if side.name == "left" else equality[1]
            frame = frame.withColumn(f"__key{position}", F.expr(self._sql(expression)))
        if self.window is not None:
            own_time = self.window.left if side.name == "left" else self.window.right
            frame = frame.withColumn(TIME, F.expr(self.window.number(side.inner_name(own_time), own_time)))
        return frame

    def _checked_columns(self, side: Side) -> list[str]:
        """Uncertain columns besides the one that is planned: their rows must be good as well."""
        if self._question is not None:
            at = int(side.name == "right")
            return list(dict.fromkeys(column for _, of, column in self._question.uncertain if of == at))
        return [one.left if side.name == "left" else one.right for one in self.condition.further]

    def _together(
        self, conditions: tuple[Difference | Distance, ...], left: Callable[[str], str], right: Callable[[str], str]
    ) -> Together | None:
        """Conditions that multiply, on columns as they are named where they are computed."""
        renamed, kinds = [], {}
        for one in conditions:
            ends = on_side(0, left(one.left)), on_side(1, right(one.right))
            for name, side, column in zip(ends, (self._left, self._right), (one.left, one.right), strict=True):
                # of what has been checked, only arrays of coordinates have no model: they are samples, one each
                kinds[name] = model_of_spark_type(side.frame.schema[column].dataType) or Samples
            renamed.append(replace(one, left=ends[0], right=ends[1]))
        return Together.of(renamed, kinds, self.threshold)

    def _asked(self, left: Callable[[str], str], right: Callable[[str], str]) -> Together | PairQuestion | None:
        """What is asked of pairs besides the planned condition, on columns as they are named where it is computed."""
        if self._question is not None:
            return self._question.renamed((left, right))
        return self._together(self.condition.further, left, right)

    def _takes_part(self, side: Side) -> str:
        known = [f"__key{position} IS NOT NULL" for position in range(len(self.condition.equalities))]
        if self.window is not None:
            known.append(f"abs({TIME}) < CAST('Infinity' AS DOUBLE)")  # neither null nor NaN
        known += [f"__state{position} = {USABLE}" for position in range(len(self._checked_columns(side)))]
        return " AND ".join([f"__interval.state = {USABLE}", str(self.threshold.attainable), *known])

    def _of(self, side: SideName) -> Side:
        return self._left if side == "left" else self._right

    @cached_property
    def _payload(self) -> list[str]:
        """The columns that pairs have: those of the result, and what certain conditions on pairs need."""
        used: list[tuple[str, str]] = [(one.side, one.column) for one in self._result]
        for expression in self._asked_of_pairs:
            used += [(str(column.table), column.name) for column in columns_of(expression)]
        if self.window is not None:
            used += [("left", self.window.left), ("right", self.window.right)]
        keys = [self._key_of(side) for side in (self._left, self._right)] if self._sees_itself else []
        return [
            inner
            for side in (self._left, self._right)
            for inner, name in zip(side.inner, side.original, strict=True)
            if (side.name, name) in used or inner in keys
        ]

    @property
    def _asked_of_pairs(self) -> list[Expression]:
        """Certain conditions, or parts of them, that pairs are asked once they are found."""
        ungrouped = [pair for k, pair in enumerate(self.condition.equalities) if k not in self._grouped_keys]
        return [*self.condition.residual, *(one for pair in ungrouped for one in pair)]

    @cached_property
    def _rows(self) -> tuple[DataFrame, DataFrame]:
        """Both sides with their intervals and states."""
        return self._prepared(self._left), self._prepared(self._right)

    def _overlapping(self, observing: Observing) -> DataFrame:
        """Pairs of rows whose intervals overlap: rows go to their cells in parcels."""
        warm_parcels()
        both, share = self._stacked[0].unionByName(self._stacked[1]), self._settings.sampled
        layout = edges_frame(self._sketches(share), share, self._settings, self._length)
        raising, along = self.invalid == "raise", tuple(self._sent_along)
        pack = Pack(self._packed_sides(raising), self._fields, along, self._length)
        placed = with_layout(both, layout, self._stack.hashable(self._fields))
        parcels = placed.mapInArrow(lambda batches: pack(batches), PARCEL_TYPE)
        metrics = {
            f"{name}_{side.name}": f"sum(IF({SIDE} = {number}, get({COUNTS}, {k}), 0L))"
            for side, number in ((self._left, LEFT), (self._right, RIGHT))
            for k, name in enumerate(ROW_COUNTS)
        }
        cells = observing.parcels(parcels, metrics).repartition(CELL).sortWithinPartitions(CELL, SIDE)
        return self._joined(cells, observing, self._match())

    def _overlapping_whole(self, sent: SideName, observing: Observing) -> DataFrame:
        """The same where one side goes whole to every task of the other."""
        along, counted = tuple(self._sent_along), self.funnel is not None
        ready = {
            side.name: Ready(packed, self._fields, along, self.condition.difference is not None, counted)
            for side, packed in zip((self._left, self._right), self._packed_sides(self.invalid == "raise"), strict=True)
        }
        goes, stays = (self._left, self._right) if sent == "left" else (self._right, self._left)
        rows = beside(self._in_places(stays, named=False), sent_frame(self._in_places(goes, named=False), ready[sent]))

        def join(cells: CellJoin) -> Any:
            meet = Meet(ready[stays.name], cells, LEFT if sent == "left" else RIGHT)
            return lambda batches: meet(batches)

        counts = {f"{name}_{stays.name}": "sum" for name in ROW_COUNTS}
        counts |= {f"{name}_{sent}": "max" for name in ROW_COUNTS}  # as every task has them
        return self._joined(rows, observing, self._match(), join, counts)

    @cached_property
    def _stack(self) -> Stack:
        return Stack(self._left.frame.schema.fields, self._right.frame.schema.fields)

    @cached_property
    def _fields(self) -> dict[str, tuple[str, ...]]:
        """Uncertain columns that are structs of doubles, where both sides have one in that place, and their fields.

        A row in which such a column is null takes no part, so that null fields may stand for it.
        """
        stack, uncertain = self._stack, []
        for side, at in ((self._left, stack.left), (self._right, stack.right)):
            names = side.column, *self._checked_columns(side)
            uncertain.append({at[side.original.index(name)] for name in names})
        return {
            stack.columns[place]: tuple(stack.types[place].names)  # type: ignore[attr-defined]
            for place in sorted(uncertain[0] & uncertain[1])
            if is_flat(stack.types[place])
        }

    @property
    def _sent_along(self) -> list[str]:
        """Columns that both sides have besides their own: keys and times."""
        return [*self._keys, *([TIME] if self.window is not None else [])]

    @property
    def _keys(self) -> list[str]:
        return [f"__key{position}" for position in self._grouped_keys]

    @property
    def _marks(self) -> list[str]:
        """SQL for whether a row has all that certain conditions need; nothing if they need nothing."""
        known = [f"__key{position} IS NOT NULL" for position in range(len(self.condition.equalities))]
        if not self.threshold.attainable:
            known.append("false")
        if self.window is not None:
            known.append(f"coalesce(abs({TIME}) < CAST('Infinity' AS DOUBLE), false)")
        return [f"{' AND '.join(known)} AS {FITS}"] if known else []

    @cached_property
    def _stacked(self) -> list[DataFrame]:
        """The rows of both sides in their places."""
        return [self._in_places(self._left), self._in_places(self._right)]

    def _in_places(self, side: Side, named: bool = True) -> DataFrame:
        """The rows of a side, its columns in their places, and their marks."""
        number, more = LEFT if side.name == "left" else RIGHT, [*self._sent_along, *self._marks]
        return self._stack.spread(self._own_rows(side), side.inner, number, more, self._fields, named=named)

    def _sketches(self, share: float) -> DataFrame:
        """Where the rows are, from a share of them."""
        sketch = Sketch(self._packed_sides(raising=False), self._fields, bool(self._marks), self._length)
        return sketch_frame(self._stacked, sketch, share)

    def _packed_sides(self, raising: bool) -> tuple[PackedSide, PackedSide]:
        return self._packed_side(self._left, raising), self._packed_side(self._right, raising)

    def _packed_side(self, side: Side, raising: bool) -> PackedSide:
        """What a worker wants to know to make parcels of a side's stacked rows."""
        at = self._stack.left if side.name == "left" else self._stack.right
        places = dict(zip(side.original, (self._stack.columns[column] for column in at), strict=True))
        checked = self._checked_columns(side)
        asked = checked if self._question is None else self._question.columns(int(side.name == "right"))
        payload = tuple(
            place for name, place in places.items() if name in asked or side.inner_name(name) in self._payload
        )
        where = {name: places[name] for name in (side.column, *checked)}
        raise_as = _COLUMN_OF.format("{}", side.name) if raising else None
        called = {name: self._called.get((side.name, name), name) for name in where}
        further = tuple((where[name], called[name]) for name in checked)
        return PackedSide(where[side.column], payload, further, self._placing(side), called[side.column], raise_as)

    def _joined(
        self,
        cells: DataFrame,
        observing: Observing,
        match: Match,
        worker: Callable[[CellJoin], Any] = lambda kernel: lambda batches: kernel(batches),
        more: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """The kept pairs of parcels that come sorted by cell, or of what else the worker makes pairs of.

        ``worker`` makes the function that runs in Python; a function, because Spark does not take another callable: it
        travels to the workers by what it closes over. ``more`` are what it counts besides, and how that adds up.
        """
        stack, keys = self._stack, self._keys
        columns, schema, whole = [], T.StructType(), []
        for side, at in ((self._left, stack.left), (self._right, stack.right)):
            assert side.model is not None
            places = [stack.columns[column] for column in at]
            value = side.original.index(side.column)
            in_parts = is_flat(side.frame.schema[side.column].dataType)
            sent = [position for position, name in enumerate(side.inner) if name in self._payload]
            columns.append(SideColumns(places[value], tuple(places[position] for position in sent), in_parts))
            for position in sent:
                name, field = side.inner[position], side.frame.schema.fields[position]
                parts = [part.name for part in field.dataType] if in_parts and position == value else []  # type: ignore[attr-defined]
                for part in parts:
                    schema.add(f"{name}_{part}", T.DoubleType())
                if parts:
                    fields = ", ".join(f"{quoted(f'{name}_{part}')} AS {quoted(part)}" for part in parts)
                    whole.append(f"struct({fields}) AS {name}")
                else:
                    schema.add(name, field.dataType)
                    whole.append(name)
        schema.add("probability", T.DoubleType())
        if self.funnel is not None:
            schema.add(COUNTERS, T.ArrayType(T.LongType()))
        together = self._asked(
            lambda name: stack.columns[stack.left[self._left.original.index(name)]],
            lambda name: stack.columns[stack.right[self._right.original.index(name)]],
        )
        counters = self._counters() if self._question is None else self._question.counters(self._counters())
        counts = dict.fromkeys(counter_names(counters), "sum")
        kernel = CellJoin(
            columns[0], columns[1], arrow_schema(schema), tuple(keys), match, len(counts), together, self._length
        )
        joined = cells.mapInArrow(worker(kernel), schema)
        pairs = joined if self.funnel is None else self._counted(joined, counts | dict(more or {}), observing)
        if self.funnel is not None or whole != schema.names[: len(whole)]:
            pairs = pairs.selectExpr(*whole, "probability")
        for position, (one, other) in enumerate(self.condition.equalities):
            if f"__key{position}" not in keys:
                pairs = pairs.where(F.expr(f"({self._sql(one)}) = ({self._sql(other)})"))
        return self._without_same(pairs)

    @staticmethod
    def _counted(joined: DataFrame, counts: Mapping[str, str], observing: Observing) -> DataFrame:
        """The pairs without the rows of counters, which are observed; with them, how each counter adds up."""
        metrics = {
            name: f"{adds_up}(get({COUNTERS}, {k}))"
            for k, (name, adds_up) in enumerate(counts.items())
            if name != "kept"
        }
        return observing.watch(joined, metrics).where(f"{COUNTERS} IS NULL")

    @cached_property
    def _grouped_keys(self) -> list[int]:
        """The equalities the kernel itself groups by: keys of one plain type on both sides."""
        if not self.condition.equalities:
            return []
        frames = [side.frame.toDF(*side.inner) for side in (self._left, self._right)]
        grouped = []
        for position, pair in enumerate(self.condition.equalities):
            types = [
                frame.select(F.expr(self._sql(expression))).schema.fields[0].dataType
                for frame, expression in zip(frames, pair, strict=True)
            ]
            plain = (T.StringType, T.IntegralType, T.DateType, T.TimestampType, T.BooleanType, T.BinaryType)
            # of collated strings, Spark alone knows which are equal
            binary = getattr(types[0], "collation", _BINARY) == _BINARY
            if types[0] == types[1] and isinstance(types[0], plain) and binary:
                grouped.append(position)
        return grouped

    def _sure(self, observing: Observing) -> DataFrame:
        """Pairs decided by their position alone, joined by Spark cell by cell: work in proportion to the answer.

        Intervals are those of the overlapping pairs to the last digit, so that every pair is in one of the parts. The
        cells here are equally wide, between the least and the largest position: unlike quantiles these do not depend
        on the order of the rows, so that both sides see the same cells even if Spark computes them twice.
        """
        ends, keys = ("__interval.start", "__interval.`end`"), range(len(self.condition.equalities))
        alike = [*(f"__key{k}" for k in keys), *([self.window.slot(TIME)] if self.window is not None else [])]
        hashed = f"xxhash64({', '.join(alike)})" if alike else "CAST(NULL AS BIGINT)"
        low, high = f"least({', '.join(ends)}) AS low", f"{ends[1]} AS high"
        seen, rows = [], []
        for number, side in enumerate((self._left, self._right)):
            # bad rows are passed over here: they are reported where pairs are made
            usable = self._prepared(side, lenient=True).where(self._takes_part(side))
            seen.append(usable.selectExpr(low, high, f"{hashed} AS hash", f"{number} AS side"))
            # where rows with equal keys and times are few, all of them meet: to be in many cells would cost more
            different = f"greatest(1, approx_count_distinct(IF(side = {number}, hash, NULL)))"
            rows.append(f"count_if(side = {number}) DIV {different}")
        few = f"least({_MOST_RANGES}, 1 + greatest({', '.join(rows)}) DIV {self._settings.rows_per_cell})"
        width, ranges = "max(high) - min(low) AS width", f"{self._settings.cells or few} AS ranges"
        # one value, not a row to join with: of that, Spark would compute every field by itself
        span = seen[0].unionByName(seen[1]).selectExpr(f"struct(min(low) AS origin, {width}, {ranges}) AS span")
        left, right = (
            self._joinable(rows.where(self._takes_part(side)), side, *ends, *self._slots(side, TIME)).withColumn(
                "span", span.scalar()
            )
            for side, rows in zip((self._left, self._right), self._rows, strict=True)
        )

        def cell_of(position: str) -> str:
            place = f"floor(({position} - span.origin) / nullif(span.width, 0D) * span.ranges)"
            return f"CAST(greatest(0, least(span.ranges - 1, coalesce({place}, 0))) AS INT)"

        def apart(mine: str, theirs: str, condition: str) -> DataFrame:
            """Pairs of rows that are in some cells and in one cell."""
            ours = left.selectExpr("*", f"explode({mine}) AS __lcell").drop("span")
            others = right.selectExpr("*", f"{theirs} AS __rcell").drop("span")
            together = ["__l2 = __r2"] if self.window is not None else []
            on = ["__lcell = __rcell", condition, *self._equal_keys, *together]
            return ours.join(others, F.expr(" AND ".join(on)))

        found = []
        if accepts_above(self.region):
            found.append(apart(f"sequence(0, {cell_of('__l0')})", cell_of("__r1"), "__l0 > __r1"))
        if accepts_below(self.region):
            above = f"sequence({cell_of('__l1')}, CAST(span.ranges - 1 AS INT))"
            found.append(apart(above, cell_of("__r0"), "__l1 < __r0"))
        pairs = found[0] if len(found) == 1 else found[0].unionByName(found[1])
        pairs = self._without_same(pairs).selectExpr(*self._payload, "1D AS probability")
        return observing.watch(pairs, {"sure": "count(1)"})

    def _same(self, observing: Observing) -> DataFrame:
        """A row and itself: the difference is certainly 0."""
        good = []
        for side, rows in zip((self._left, self._right), self._rows, strict=True):
            known = [f"__state{k} = {USABLE}" for k in range(len(self._checked_columns(side)))]
            known.append(f"__interval.state IN ({USABLE}, {HOPELESS})")
            good.append(self._joinable(rows.where(" AND ".join(known)), side))
        on = [f"{self._key_of(self._left)} = {self._key_of(self._right)}", *self._equal_keys]
        pairs = good[0].join(good[1], F.expr(" AND ".join(on))).selectExpr(*self._payload, "1D AS probability")
        return observing.watch(pairs, {"same": "count(1)"})

    def _joinable(self, rows: DataFrame, side: Side, *numbers: str) -> DataFrame:
        """What pairs need of a side's rows, for Spark's own join; no name is one of the other side's."""
        keys = [f"__key{k} AS __{side.prefix}key{k}" for k in range(len(self.condition.equalities))]
        more = [f"{number} AS __{side.prefix}{k}" for k, number in enumerate(numbers)]
        return rows.selectExpr(*(name for name in side.inner if name in self._payload), *keys, *more)

    def _slots(self, side: Side, time: str) -> list[str]:
        """SQL for the stretch of time that a row is in, if there is a window; left rows are in its neighbours as well.

        A pair within the window then meets once, in the stretch of its right row.
        """
        if self.window is None:
            return []
        slot = self.window.slot(time)
        return [slot if side.name == "right" else f"explode(array({slot} - 1, {slot}, {slot} + 1))"]

    @property
    def _equal_keys(self) -> list[str]:
        return [f"__lkey{k} = __rkey{k}" for k in range(len(self.condition.equalities))]

    def _without_same(self, pairs: DataFrame) -> DataFrame:
        if not self._sees_itself:
            return pairs
        mine, theirs = (self._key_of(side) for side in (self._left, self._right))
        return pairs.where(~F.coalesce(F.col(mine) == F.col(theirs), F.lit(False)))

    def _certain_join(self) -> DataFrame:
        """Nothing is uncertain: Spark's own join, every pair sure."""
        frames = []
        for side in (self._left, self._right):
            rows = side.frame.toDF(*side.inner)
            if self.window is not None:
                name = self.window.left if side.name == "left" else self.window.right
                time = self.window.number(side.inner_name(name), name)
                (slot,) = self._slots(side, time)
                rows = rows.selectExpr("*", f"{slot} AS __{side.prefix}slot")
            frames.append(rows)
        conditions = [*self.condition.left_only, *self.condition.right_only, *self.condition.residual]
        texts = [self._sql(expression) for expression in conditions]
        texts += [f"({self._sql(one)}) = ({self._sql(other)})" for one, other in self.condition.equalities]
        texts += ["__lslot = __rslot"] if self.window is not None else []
        on = F.expr(" AND ".join(f"({text})" for text in texts)) if texts else F.lit(True)
        if self._broadcast is not None:
            frames = [
                F.broadcast(frame) if name == self._broadcast else frame
                for name, frame in zip(("left", "right"), frames, strict=True)
            ]
        pairs = frames[0].join(frames[1], on).select(*self._payload, F.lit(1.0).alias("probability"))
        return pairs if self.threshold.attainable else pairs.where(F.lit(False))

    def _finish(self, parts: list[DataFrame], observing: Observing) -> DataFrame:
        pairs = parts[0]
        for more in parts[1:]:
            pairs = pairs.unionByName(more)
        if self._uncertain:
            for expression in self.condition.residual:
                pairs = pairs.where(F.expr(self._sql(expression)))
        if self.window is not None and not any(self.window.uncertain):
            times = [
                self.window.number(side.inner_name(name), name)
                for side, name in ((self._left, self.window.left), (self._right, self.window.right))
            ]
            pairs = pairs.where(F.expr(f"abs({times[0]} - {times[1]}) <= {self.window.length!r}D"))
        pairs = observing.watch(pairs, {"kept": "count(1)"})
        shown = [self._of(one.side).inner_name(one.column) for one in self._result]
        names = [one.name for one in self._result]
        probability = ["probability"] if self.exact else []
        return pairs.select(*shown, *probability).toDF(*names, *probability)

    # -- explaining it ------------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """How the join will run, in words. Reads the two inputs once to estimate sizes."""
        if not self._uncertain:
            return "Certain join\n  every condition is certain: Spark's own join, probability 1.0"
        certain = [*self.condition.left_only, *self.condition.right_only, *self.condition.residual]
        further = [f"{one.left} and {one.right}: {in_words(one)}" for one in self.condition.further]
        equal = [f"{one} = {other}" for one, other in self.condition.equalities]
        lines = [
            "Threshold join",
            f"  condition     {self._explain_condition()}, {self._explain_threshold()}",
        ]
        if further:
            lines.append(f"  multiplied    {'; '.join(further)}")
        if certain or equal:
            lines.append(f"  pushed down   {'; '.join([*equal, *(str(expression) for expression in certain)])}")
        if self.window is not None:
            unit = " microseconds" if self.window.stamps else ""
            near = f"|time - time| <= {self.window.length:g}{unit}"
            lines.append(
                f"  window        {near}; in each cell rows meet those of their own and the next stretch of time"
            )
        lines.append(f"  candidates    {self._explain_candidates()}")
        lines.append(f"  cascade       {self._explain_cascade()}")
        lines.extend(self._explain_partitioning())
        return "\n".join(lines)

    def _explain_threshold(self) -> str:
        threshold = self.threshold
        return "P > 0" if threshold.value is None else f"P {'>' if threshold.strict else '>='} {threshold.value:g}"

    def _explain_condition(self) -> str:
        left, right = (
            f"{side.name}.{self._called.get((side.name, side.column), side.column)} ({_kind(side)})"
            for side in (self._left, self._right)
        )
        return f"{left} - {right}: {self.region.describe()}"

    def _explain_candidates(self) -> str:
        threshold, region = self.threshold, self.region
        level = threshold.core_level(self._pairing)
        index = _INDEXES.get(self.strategy)
        how = f"{index} within" if index else "sweep over"
        text = f"{how} core regions: quantiles at {level:.6g} and {1 - level:.6g} (of {self._pairing.value})"
        if not (region.outside or region.one_sided):
            if threshold.value is not None:
                text += (
                    f"; rows whose mass in every interval of length {region.width:g} is below the threshold are dropped"
                )
        else:
            sure = threshold.sure_level(self.exact, self._pairing)
            text = (
                f"pairs apart by their quantiles at {sure:.3g} are sure and joined natively by ranges; "
                f"the rest by {index or 'a sweep'}"
            )
        return text

    def _explain_cascade(self) -> str:
        rules = _rules_used(self._left.model, self._right.model, self.region, self.exact)
        verb = "reject" if self.exact else "reject and accept"
        end = "exact probability of what is left" if self.exact else "exact probability of undecided pairs only"
        return f"{' -> '.join(rules)} ({verb}) -> {end}"

    def _explain_partitioning(self) -> list[str]:
        # all rows, as small tables would leave a sample empty
        one, other, in_time = profiles_of(self._sketches(1.0).collect(), 1.0, self._length)
        layout = lay_out(one, other, rows_per_cell=self._settings.rows_per_cell, cells=self._settings.cells)
        sliced = int(((layout.left_slices > 1) | (layout.right_slices > 1)).sum())
        candidates = expected_candidates(one, other)
        how = f"{layout.cells} cells by quantiles of the {'times' if in_time else 'intervals'}, {sliced} of them sliced"
        if self._broadcast is not None:
            how = f"none: the {self._broadcast} table goes whole to every task of the other"
        lines = [
            f"  partitioning  {how}",
            f"  estimates     {one.rows:,} x {other.rows:,} usable rows, "
            f"about {candidates:,.0f} candidate pairs of {one.rows * other.rows:,}",
        ]
        if self.condition.difference is not None and self.window is None and self._question is None:
            lines.append(f"  strategy      {self._explain_strategy(one.rows + other.rows, candidates)}")
        return lines

    def _explain_strategy(self, rows: int, candidates: float) -> str:
        """Which way pairs are found, and what the others would take."""
        seconds = estimated_seconds(self._left.model, self._right.model, rows, candidates)
        chosen = next(iter(seconds)) if self.strategy == "auto" else self.strategy
        others = ", ".join(f"{name} {_in_time(value)}" for name, value in seconds.items() if name != chosen)
        why = "auto: " if self.strategy == "auto" else ""
        return f"{why}{chosen}, about {_in_time(seconds[chosen])} of one core; by estimate {others}"


class Observing:
    """Carries counters out of the query through Spark's observations into a funnel."""

    def __init__(self, funnel: Any) -> None:
        self.funnel = funnel

    @classmethod
    def nothing(cls) -> Observing:
        """For joins that have nothing to count."""
        return cls(None)

    def watch(self, frame: DataFrame, metrics: dict[str, str]) -> DataFrame:
        """The frame with these aggregates, in SQL, reported to the funnel, if there is one."""
        if self.funnel is None:
            return frame
        observation = Observation()
        observed = frame.observe(
            observation, *(F.expr(f"coalesce({value}, 0)").alias(name) for name, value in metrics.items())
        )
        self.funnel.follow(lambda: observation.get)
        return observed

    def parcels(self, frame: DataFrame, metrics: dict[str, str]) -> DataFrame:
        """The same for parcels among which rows stand that only count.

        Where somebody asks, these go on: if nothing did, Spark would drop the empty part of its plan, and what it saw.
        """
        if self.funnel is None:
            return frame.where(f"{PARCEL} IS NOT NULL").drop(COUNTS)
        return self.watch(frame, metrics).drop(COUNTS)


def _holds_at_0(condition: Difference | Distance) -> bool:
    """Whether a condition holds for one value and itself."""
    return isinstance(condition, Distance) or condition.region.contains(0.0)


def _alike(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _in_time(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


def in_words(condition: Difference | Distance) -> str:
    """A condition for plans and messages."""
    if isinstance(condition, Distance):
        return f"distance <{'=' if condition.closed else ''} {condition.within:g}"
    return condition.region.describe()


def _kind(side: Side) -> str:
    return side.model.kind if side.model is not None else "certain"


def _rules_used(left: type[Model] | None, right: type[Model] | None, region: Region, exact: bool) -> list[str]:
    names = list(RULES.values())
    if left is not None and left is right and left.kind == "gaussian":
        return [names[4]]
    if region.one_sided:
        return [names[2], f"{names[3]} (where one value has many parts)"]
    rules = [names[0], names[1]] if not exact else [names[1] if region.outside else names[0]]
    return [*rules, f"{names[3]} (where one value has many parts)"]
