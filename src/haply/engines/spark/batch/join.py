"""Joins of two tables on Spark (see ``planning.pairs`` for the parts of a plan)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.exchange.broadcast import Meet, Ready, beside, sent_frame
from haply.engines.spark.exchange.parcels import (
    COUNTS,
    PARCEL_TYPE,
    CellSettings,
    Pack,
    Sketch,
    edges_frame,
    profiles_of,
    sketch_frame,
    warm_parcels,
    with_layout,
)
from haply.engines.spark.exchange.prepare import interval_function, state_function
from haply.engines.spark.exchange.stack import CELL, SIDE, Stack
from haply.engines.spark.exchange.worker import COUNTERS, CellWorker, SideColumns, counter_names
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.observing import Observing, pair_counter
from haply.engines.spark.times import HAS_TIME, time_number, time_slot
from haply.engines.spark.versions import arrow_schema
from haply.errors import count_of
from haply.joins.cells.difference import DifferenceMethod
from haply.joins.cells.join import CellJoin
from haply.joins.cells.method import Match
from haply.joins.cells.rows import FITS, HOPELESS, LEFT, RIGHT, ROW_COUNTS, TIME, USABLE, RowSpec
from haply.joins.warm import warm_selection
from haply.planning.explain import Description
from haply.planning.frames import SideName, field_of, quoted
from haply.planning.pairs import PairPlan, Side
from haply.pruning.candidates.intervals import accepts_above, accepts_below
from haply.pruning.cells import lay_out

_MOST_RANGES = 256


def df_of(side: Side) -> DataFrame:
    """Return the DataFrame of a side."""
    assert isinstance(side.frame, SparkFrame)
    return side.frame.df


class BatchJoin:
    """Runs a join of two tables."""

    def __init__(self, join: PairPlan, funnel: Any) -> None:
        self.join, self.funnel = join, funnel

    def run(self) -> DataFrame:
        """Return the pairs, as a lazy DataFrame."""
        join = self.join
        if join.method is None:
            return self.finished([self._certain_join()], Observing(None))
        # Compile (or load) this join's kernels here, so that workers on this machine only load them.
        join.method.warm(join.setting)
        if join.selection is not None:
            warm_selection(join.selection.selection)
        observing = Observing(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
        if join.broadcast is not None:
            parts = [self._overlapping_whole(join.broadcast, observing)]
        elif join.found_by_position and self.funnel is None:  # a funnel counts what the kernels decide
            parts = [self._possible()]
        else:
            parts = [self._overlapping(observing)]
            if join.method.has_sure_pairs:
                parts.append(self._sure(observing))
        if join.matches_itself:
            parts.append(self._same(observing))
        return self.finished(parts, observing)

    @cached_property
    def settings(self) -> CellSettings:
        """Return the session's settings of cells."""
        return CellSettings.of(df_of(self.join.left).sparkSession)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def own_rows(self, side: Side) -> DataFrame:
        """Return the side's rows that pass its own certain conditions, with keys and time."""
        join = self.join
        frame = df_of(side).toDF(*side.inner)
        for expression in join.own_conditions(side):
            frame = frame.where(F.expr(join.sql(expression)))
        for position, sql in enumerate(join.key_sql(side)):
            frame = frame.withColumn(f"__key{position}", F.expr(sql))
        if join.window is not None:
            own_time = join.window.column(side.is_left)
            frame = frame.withColumn(TIME, F.expr(time_number(join.window, side.inner_name(own_time), own_time)))
        return frame

    def _prepared(self, side: Side, lenient: bool = False) -> DataFrame:
        """Return the same with their interval and state."""
        join = self.join
        assert join.method is not None

        def raise_as(name: str) -> str | None:
            return None if lenient else join.name_in_errors(side, name)

        place = join.method.place(side.is_left)
        interval = interval_function(place, raise_as(side.column))(F.col(side.inner_name(side.column)))
        frame = self.own_rows(side).withColumn("__interval", interval)
        for position, name in enumerate(join.checked_columns(side)):
            state = state_function(raise_as(name))(F.col(side.inner_name(name)))
            frame = frame.withColumn(f"__state{position}", state)
        return frame

    @cached_property
    def _rows(self) -> tuple[DataFrame, DataFrame]:
        """Both sides with their intervals and states."""
        return self._prepared(self.join.left), self._prepared(self.join.right)

    def _takes_part(self, side: Side) -> str:
        known = [f"__key{position} IS NOT NULL" for position in range(len(self.join.condition.equalities))]
        if self.join.window is not None:
            known.append(HAS_TIME)
        known += [f"__state{position} = {USABLE}" for position in range(len(self.join.checked_columns(side)))]
        return " AND ".join([f"__interval.state = {USABLE}", str(self.join.threshold.attainable), *known])

    # -- overlapping pairs ---------------------------------------------------------------------------------------------

    def _overlapping(self, observing: Observing) -> DataFrame:
        """Return pairs of rows whose intervals overlap: rows go to their cells in parcels."""
        warm_parcels()
        join = self.join
        both, share = self._stacked[0].unionByName(self._stacked[1]), self.settings.sampled
        layout = edges_frame(self._sketches(share), share, self.settings, join.length)
        pack = Pack(self._row_specs(join.invalid == "raise"), self._fields, tuple(self._sent_along), join.length)
        placed = with_layout(both, layout, self.stack.hashable(self._fields))
        parcels = placed.mapInArrow(lambda batches: pack(batches), PARCEL_TYPE)
        metrics = {
            f"{name}_{side.name}": f"sum(IF({SIDE} = {number}, get({COUNTS}, {k}), 0L))"
            for side, number in ((join.left, LEFT), (join.right, RIGHT))
            for k, name in enumerate(ROW_COUNTS)
        }
        cells = observing.parcels(parcels, metrics).repartition(CELL).sortWithinPartitions(CELL, SIDE)
        return self.joined(cells, observing, self._match())

    def _match(self) -> Match:
        assert self.join.method is not None
        return self.join.method.match(self.join.setting)

    def _overlapping_whole(self, sent: SideName, observing: Observing) -> DataFrame:
        """Return the same if one whole side is sent to every task of the other."""
        join = self.join
        along, counted = tuple(self._sent_along), self.funnel is not None
        by_interval = join.condition.difference is not None
        specs = self._row_specs(join.invalid == "raise")
        ready = {
            side.name: Ready(spec, self._fields, along, by_interval, counted)
            for side, spec in zip(join.sides, specs, strict=True)
        }
        goes, stays = join.sides if sent == "left" else (join.right, join.left)
        rows = beside(self._in_places(stays, named=False), sent_frame(self._in_places(goes, named=False), ready[sent]))

        def worker(cells: CellWorker) -> Any:
            meet = Meet(ready[stays.name], cells, LEFT if sent == "left" else RIGHT)
            return lambda batches: meet(batches)

        counts = {f"{name}_{stays.name}": "sum" for name in ROW_COUNTS}
        counts |= {f"{name}_{sent}": "max" for name in ROW_COUNTS}  # as every task has them
        return self.joined(rows, observing, self._match(), worker, counts)

    @cached_property
    def stack(self) -> Stack:
        """Both sides in one frame."""
        return Stack(df_of(self.join.left).schema.fields, df_of(self.join.right).schema.fields)

    def place_of(self, side: Side) -> Callable[[str], str]:
        """Return the names of a side's columns in the stack."""
        at = self.stack.left if side.is_left else self.stack.right
        return lambda name: self.stack.columns[at[side.original.index(name)]]

    @cached_property
    def _fields(self) -> dict[str, tuple[str, ...]]:
        """Uncertain columns that are structs of doubles, where both sides have one in that place, and their fields.

        A row in which such a column is null takes no part, so that null fields may stand for it.
        """
        uncertain = []
        for side in self.join.sides:
            names = side.column, *self.join.checked_columns(side)
            place = self.place_of(side)
            uncertain.append({place(name): field_of(side.frame, name) for name in names})
        shared = sorted(uncertain[0].keys() & uncertain[1].keys())
        flat = {place: uncertain[0][place] for place in shared if uncertain[0][place].is_flat}
        return {place: tuple(part.name for part in field.arrow) for place, field in flat.items()}  # type: ignore[union-attr]

    @property
    def _sent_along(self) -> list[str]:
        """Return columns that both sides have besides their own: keys and times."""
        return [*self._keys, *([TIME] if self.join.window is not None else [])]

    @property
    def _keys(self) -> list[str]:
        return [f"__key{position}" for position in self.join.grouped_keys]

    @property
    def _marks(self) -> list[str]:
        """SQL for whether a row has all that certain conditions need; nothing if they need nothing."""
        known = [f"__key{position} IS NOT NULL" for position in range(len(self.join.condition.equalities))]
        if not self.join.threshold.attainable:
            known.append("false")
        if self.join.window is not None:
            known.append(HAS_TIME)
        return [f"{' AND '.join(known)} AS {FITS}"] if known else []

    @cached_property
    def _stacked(self) -> list[DataFrame]:
        """Return the rows of both sides in their places."""
        return [self._in_places(side) for side in self.join.sides]

    def _in_places(self, side: Side, named: bool = True) -> DataFrame:
        """Return the rows of a side, its columns in their places, and their marks."""
        number, more = LEFT if side.is_left else RIGHT, [*self._sent_along, *self._marks]
        return self.stack.spread(self.own_rows(side), side.inner, number, more, self._fields, named=named)

    def _sketches(self, share: float) -> DataFrame:
        """Return where the rows are, from a share of them."""
        sketch = Sketch(self._row_specs(raising=False), self._fields, bool(self._marks), self.join.length)
        return sketch_frame(self._stacked, sketch, share)

    def _row_specs(self, raising: bool) -> tuple[RowSpec, RowSpec]:
        left, right = (self.join.row_spec(side, self.place_of(side), raising) for side in self.join.sides)
        return left, right

    def joined(
        self,
        cells: DataFrame,
        observing: Observing,
        match: Match,
        worker: Callable[[CellWorker], Any] = lambda kernel: lambda batches: kernel(batches),
        more: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Return the kept pairs of parcels that come sorted by cell, or of what else the worker makes pairs of.

        ``worker`` makes the function that runs in Python; it must be a function, because Spark accepts no other
        callable, and a closure is sent to the workers with its variables. ``more`` are what it counts besides, and how
        that adds up.
        """
        join, keys = self.join, self._keys
        assert join.method is not None
        columns, schema, whole = [], T.StructType(), []
        for side in join.sides:
            place = self.place_of(side)
            in_parts = field_of(side.frame, side.column).is_flat
            sent = [
                (name, inner) for name, inner in zip(side.original, side.inner, strict=True) if inner in join.payload
            ]
            columns.append(SideColumns(place(side.column), tuple(place(name) for name, _ in sent), in_parts))
            for name, inner in sent:
                kind = df_of(side).schema[name].dataType
                parts = kind.names if in_parts and name == side.column else []  # type: ignore[attr-defined]
                for part in parts:
                    schema.add(f"{inner}_{part}", T.DoubleType())
                if parts:
                    fields = ", ".join(f"{quoted(f'{inner}_{part}')} AS {quoted(part)}" for part in parts)
                    whole.append(f"struct({fields}) AS {inner}")
                else:
                    schema.add(inner, kind)
                    whole.append(inner)
        schema.add("probability", T.DoubleType())
        if self.funnel is not None:
            schema.add(COUNTERS, T.ArrayType(T.LongType()))
        counters = join.method.counters()
        if join.selection is not None:
            counters = join.selection.counters(counters)
        counts = dict.fromkeys(counter_names(counters), "sum")
        asked = join.asked(self.place_of(join.left), self.place_of(join.right))
        values = columns[0].value, columns[1].value
        cell = CellJoin(values, tuple(keys), match, asked, join.length, join.setting.best)
        kernel = CellWorker(columns[0], columns[1], arrow_schema(schema), cell, len(counts), pair_counter())
        pairs = cells.mapInArrow(worker(kernel), schema)
        if self.funnel is not None:
            pairs = self._counted(pairs, counts | dict(more or {}), observing)
        if self.funnel is not None or whole != schema.names[: len(whole)]:
            pairs = pairs.selectExpr(*whole, "probability")
        for position, (one, other) in enumerate(join.condition.equalities):
            if f"__key{position}" not in keys:
                pairs = pairs.where(F.expr(f"({join.sql(one)}) = ({join.sql(other)})"))
        return self._without_same(pairs)

    @staticmethod
    def _counted(joined: DataFrame, counts: Mapping[str, str], observing: Observing) -> DataFrame:
        """Return the pairs without the rows of counters, which are observed; with them, how each counter adds up."""
        metrics = {
            name: f"{adds_up}(get({COUNTERS}, {k}))"
            for k, (name, adds_up) in enumerate(counts.items())
            if name != "kept"
        }
        return observing.watch(joined, metrics).where(f"{COUNTERS} IS NULL")

    # -- pairs found by their positions --------------------------------------------------------------------------------

    def _sure(self, observing: Observing) -> DataFrame:
        """Return pairs decided by their position alone, joined by Spark cell by cell: work in proportion to the answer.

        Intervals are those of the overlapping pairs to the last digit, so that every pair is in one of the parts.
        """
        assert isinstance(self.join.method, DifferenceMethod)
        region, found = self.join.method.region, []
        if accepts_above(region):
            found.append(self._beyond("above", "__l0", "__r1", "__l0 > __r1"))
        if accepts_below(region):
            found.append(self._beyond("below", "__l1", "__r0", "__l1 < __r0"))
        pairs = found[0] if len(found) == 1 else found[0].unionByName(found[1])
        return observing.watch(pairs, {"sure": "count(1)"})

    def _possible(self) -> DataFrame:
        """Return sure and overlapping pairs, found in one join: a later selection decides them all."""
        assert isinstance(self.join.method, DifferenceMethod)
        (least_left, least_right), (most_left, most_right) = (
            [f"{end}(__{side.prefix}0, __{side.prefix}1)" for side in self.join.sides] for end in ("least", "greatest")
        )
        if accepts_above(self.join.method.region):
            return self._beyond("above", most_left, least_right, f"{most_left} >= {least_right}")
        return self._beyond("below", least_left, most_right, f"{least_left} <= {most_right}")

    def _beyond(self, direction: Literal["above", "below"], mine: str, theirs: str, condition: str) -> DataFrame:
        """Return the pairs whose left position is above or below the right one, joined cell by cell."""
        (left, right), window = self._in_ranges, self.join.window

        def cell_of(position: str) -> str:
            place = f"floor(({position} - span.origin) / nullif(span.width, 0D) * span.ranges)"
            return f"CAST(greatest(0, least(span.ranges - 1, coalesce({place}, 0))) AS INT)"

        own = cell_of(mine)
        cells = f"sequence(0, {own})" if direction == "above" else f"sequence({own}, CAST(span.ranges - 1 AS INT))"
        ours = left.selectExpr("*", f"explode({cells}) AS __lcell").drop("span")
        others = right.selectExpr("*", f"{cell_of(theirs)} AS __rcell").drop("span")
        together = ["__l2 = __r2"] if window is not None else []
        pairs = ours.join(others, F.expr(" AND ".join(["__lcell = __rcell", condition, *self._equal_keys, *together])))
        return self._without_same(pairs).selectExpr(*self.join.payload, "1D AS probability")

    @cached_property
    def _in_ranges(self) -> tuple[DataFrame, DataFrame]:
        """Both sides with the ends of their intervals, their slots of time, and the span of all positions.

        The ranges of the span are equally wide, between the least and the largest position: unlike quantiles these do
        not depend on the order of the rows, so that both sides see the same cells even if Spark computes them twice.
        """
        join = self.join
        ends, keys = ("__interval.start", "__interval.`end`"), range(len(join.condition.equalities))
        alike = [*(f"__key{k}" for k in keys), *([time_slot(join.window, TIME)] if join.window is not None else [])]
        low, high = f"least({', '.join(ends)}) AS low", f"{ends[1]} AS high"
        seen, rows = [], []
        for number, side in enumerate(join.sides):
            # bad rows are skipped here: they are reported where pairs are made
            usable = self._prepared(side, lenient=True).where(self._takes_part(side))
            hashed = [f"xxhash64({', '.join(alike)}) AS hash"] if alike else []
            seen.append(usable.selectExpr(low, high, f"{number} AS side", *hashed))
            of_side = f"count_if(side = {number})"
            if alike:  # if few rows have equal keys and times, all of them meet: many cells would cost more
                of_side += f" DIV greatest(1, approx_count_distinct(IF(side = {number}, hash, NULL)))"
            rows.append(of_side)
        few = f"least({_MOST_RANGES}, 1 + greatest({', '.join(rows)}) DIV {self.settings.rows_per_cell})"
        width, ranges = "max(high) - min(low) AS width", f"{self.settings.cells or few} AS ranges"
        # one value, not a row to join with: Spark would compute each field of a row separately
        span = seen[0].unionByName(seen[1]).selectExpr(f"struct(min(low) AS origin, {width}, {ranges}) AS span")
        left, right = (
            self._joinable(rows.where(self._takes_part(side)), side, *ends, *self._slots(side, TIME)).withColumn(
                "span", span.scalar()
            )
            for side, rows in zip(join.sides, self._rows, strict=True)
        )
        return left, right

    def _joinable(self, rows: DataFrame, side: Side, *numbers: str) -> DataFrame:
        """Return what pairs need of a side's rows, for Spark's own join; no name is one of the other side's."""
        keys = [f"__key{k} AS __{side.prefix}key{k}" for k in range(len(self.join.condition.equalities))]
        more = [f"{number} AS __{side.prefix}{k}" for k, number in enumerate(numbers)]
        return rows.selectExpr(*(name for name in side.inner if name in self.join.payload), *keys, *more)

    def _slots(self, side: Side, time: str) -> list[str]:
        """SQL for the slot of time that a row is in, if there is a window; left rows are in its neighbours as well.

        A pair within the window then meets once, in the slot of its right row.
        """
        if self.join.window is None:
            return []
        slot = time_slot(self.join.window, time)
        return [f"explode(array({slot} - 1, {slot}, {slot} + 1))" if side.is_left else slot]

    @property
    def _equal_keys(self) -> list[str]:
        return [f"__lkey{k} = __rkey{k}" for k in range(len(self.join.condition.equalities))]

    # -- a row and itself ----------------------------------------------------------------------------------------------

    def _same(self, observing: Observing) -> DataFrame:
        """Return a row and itself: the difference is certainly 0."""
        join, good = self.join, []
        for side, rows in zip(join.sides, self._rows, strict=True):
            known = [f"__state{k} = {USABLE}" for k in range(len(join.checked_columns(side)))]
            known.append(f"__interval.state IN ({USABLE}, {HOPELESS})")
            good.append(self._joinable(rows.where(" AND ".join(known)), side))
        on = [f"{join.key_of(join.left)} = {join.key_of(join.right)}", *self._equal_keys]
        pairs = good[0].join(good[1], F.expr(" AND ".join(on))).selectExpr(*join.payload, "1D AS probability")
        return observing.watch(pairs, {"same": "count(1)"})

    def _without_same(self, pairs: DataFrame) -> DataFrame:
        if not self.join.sees_itself:
            return pairs
        mine, theirs = (self.join.key_of(side) for side in self.join.sides)
        return pairs.where(~F.coalesce(F.col(mine) == F.col(theirs), F.lit(False)))

    # -- certain joins, and the end of all -----------------------------------------------------------------------------

    def _certain_join(self) -> DataFrame:
        """Nothing is uncertain: Spark's own join, every pair sure."""
        join, frames = self.join, []
        for side in join.sides:
            rows = df_of(side).toDF(*side.inner)
            if join.window is not None:
                name = join.window.column(side.is_left)
                (slot,) = self._slots(side, time_number(join.window, side.inner_name(name), name))
                rows = rows.selectExpr("*", f"{slot} AS __{side.prefix}slot")
            frames.append(F.broadcast(rows) if join.broadcast == side.name else rows)
        conditions = [*join.condition.left_only, *join.condition.right_only, *join.condition.residual]
        texts = [join.sql(expression) for expression in conditions]
        texts += [f"({join.sql(one)}) = ({join.sql(other)})" for one, other in join.condition.equalities]
        texts += ["__lslot = __rslot"] if join.window is not None else []
        on = F.expr(" AND ".join(f"({text})" for text in texts)) if texts else F.lit(True)
        pairs = frames[0].join(frames[1], on).select(*join.payload, F.lit(1.0).alias("probability"))
        return pairs if join.threshold.attainable else pairs.where(F.lit(False))

    def finished(self, parts: list[DataFrame], observing: Observing) -> DataFrame:
        """Return all pairs that fulfil certain conditions and the window, with the columns of the result."""
        pairs = parts[0]
        for more in parts[1:]:
            pairs = pairs.unionByName(more)
        for condition in self.asked_at_the_end():
            pairs = pairs.where(F.expr(condition))
        return self.shown(observing.watch(pairs, {"kept": "count(1)"}))

    def asked_at_the_end(self) -> list[str]:
        """SQL for the conditions on pairs that have been found: certain conditions on both rows, and the window."""
        join, window = self.join, self.join.window
        conditions = []
        if join.method is not None or join.streaming:
            conditions += [join.sql(expression) for expression in join.condition.residual]
        if window is not None and not any(window.uncertain):
            times = [
                time_number(window, side.inner_name(name), name)
                for side, name in ((join.left, window.left), (join.right, window.right))
            ]
            conditions.append(f"abs({times[0]} - {times[1]}) <= {window.length!r}D")
        return conditions

    def shown(self, pairs: DataFrame, *more: str) -> DataFrame:
        """Return the columns of the result under their names, and other columns unchanged."""
        join = self.join
        shown = [join.side(one.side).inner_name(one.column) for one in join.result]
        kept = [*(["probability"] if join.exact else []), *more]
        return pairs.select(*shown, *kept).toDF(*(one.name for one in join.result), *kept)

    # -- explaining it -------------------------------------------------------------------------------------------------

    def describe(self) -> Description:
        """Describe where rows go, and how many pairs are expected: reads all rows, as a sample might be empty."""
        join = self.join
        one, other, in_time = profiles_of(self._sketches(1.0).collect(), 1.0, join.length)
        layout = lay_out(one, other, rows_per_cell=self.settings.rows_per_cell, cells=self.settings.cells)
        sliced = int(((layout.left_slices > 1) | (layout.right_slices > 1)).sum())
        cells = count_of(layout.cells, "cell")
        how = f"{cells} by quantiles of the {'times' if in_time else 'intervals'}, {sliced} of them sliced"
        if join.broadcast is not None:
            how = f"none: the {join.broadcast} table is sent to every task of the other"
        elif join.found_by_position:
            how = "ranges of equal width, from the least position to the largest"
        return join.describe_cells(one, other, how)
