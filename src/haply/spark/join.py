"""The threshold join on static DataFrames: ``hp.join``, ``hp.plan_join`` and the plan they build.

The plan has up to three parts, united at the end:

* *overlapping* pairs: rows are sent to the cells their intervals touch, and a compiled kernel decides each cell;
* *sure* pairs, for conditions that hold between rows far apart (``<``, ``>``, far apart): a native Spark join over
  whole ranges, without the kernel;
* *same* pairs, with ``self_key``: a row and itself, a native equality join.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.errors import HaplyError, unknown_name
from haply.joins.match import match_overlapping
from haply.joins.warm import warm_pair
from haply.models import Certain, Model, OneDimensional
from haply.models.columns import BY_KIND
from haply.probability.region import Difference, Region
from haply.pruning.bounds import RULES
from haply.pruning.cascade import Counters
from haply.pruning.cells import expected_candidates, lay_out
from haply.pruning.intervals import Intervals, accepts_above, accepts_below, pairing
from haply.pruning.threshold import Pairing, Threshold
from haply.query import Column, Expression, columns_of, parse, split_join, to_sql
from haply.query.conditions import JoinCondition
from haply.spark.columns import find_column, model_of_spark_type, quoted
from haply.spark.partition import (
    CELL,
    END,
    HIGH,
    LOW,
    NATIVE,
    START,
    CellSettings,
    cell_of,
    layout_frame,
    place,
    profiles,
    read_profile,
)
from haply.spark.prepare import BAD, HOPELESS, NULL, USABLE, interval_column

ProbabilityMode = Literal["exact", "none"]
"""``exact``: a ``probability`` column; ``none``: only the pairs, so that bounds may accept without computing."""

InvalidMode = Literal["raise", "drop"]
"""What happens to rows that are not a distribution."""

FITTING = ("auto", "sweep")
ALL_STRATEGIES = (*FITTING, "pages", "pti", "moments", "grid")

_COUNTERS = "__counters"
_ROW_COUNTS = {
    "rows": "count(1)",
    "null": f"count_if(__interval.state = {NULL})",
    "hopeless": f"count_if(__interval.state = {HOPELESS})",
    "invalid": f"count_if(__interval.state = {BAD})",
}
_STAGES = ("prepare", "sweep", "decide", "assemble")


@dataclass(frozen=True)
class _Side:
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
        suffixes: tuple[str, str],
        funnel: Any,
    ) -> None:
        self.condition, self.threshold, self.exact = condition, threshold, exact
        self.self_key, self.invalid, self.funnel = self_key, invalid, funnel
        self._left = self._side("left", left, condition.difference.left if condition.difference else "")
        self._right = self._side("right", right, condition.difference.right if condition.difference else "")
        self._names = _output_names(left.columns, right.columns, suffixes, with_probability=exact)

    @staticmethod
    def _side(name: str, frame: DataFrame, column: str) -> _Side:
        model = model_of_spark_type(frame.schema[column].dataType) if column else None
        return _Side(name, frame, column, model, tuple(frame.columns))

    # -- building the DataFrame ---------------------------------------------------------------------------------------

    def run(self) -> DataFrame:
        """The pairs, as a lazy DataFrame."""
        if self.condition.difference is None:
            return self._finish([self._certain_join()], Observing.nothing())
        # Compile (or load) this join's kernels here, so that workers on this machine only load them.
        warm_pair(self._left.model, self._right.model, self.region, self.threshold, self.exact)  # type: ignore[arg-type]
        observing = Observing(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
        left, right = self._prepared(self._left), self._prepared(self._right)
        # Counted where the layout is made: over Connect, nothing observed below the right of a cogroup is delivered.
        counts = {f"{name}_{side}": F.max(f"{side}.{name}") for side in ("left", "right") for name in _ROW_COUNTS}
        layout = layout_frame(observing.watch(self._profiles(), counts), self._settings)
        parts = [self._overlapping(self._usable(left), self._usable(right), layout, observing)]
        if accepts_above(self.region) or accepts_below(self.region):
            parts.append(self._sure(self._usable(left), self._usable(right), layout, observing))
        if self._sees_itself and self.region.contains(0.0) and self.threshold.attainable:
            parts.append(self._same(left, right, observing))
        return self._finish(parts, observing)

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
        return self.self_key is not None and self._difference.left == self._difference.right

    @cached_property
    def _settings(self) -> CellSettings:
        return CellSettings.of(self._left.frame.sparkSession)

    def _sql(self, expression: Expression) -> str:
        """A certain condition over the inner column names."""

        def rename(column: Column) -> str:
            side = self._left if column.table == "left" else self._right
            return quoted(side.inner_name(find_column(side.frame, column.name, side.name)))

        return to_sql(expression, rename)

    def _profiles(self) -> DataFrame:
        """One row about both sides. Bad rows are only counted here: they are reported where pairs are made."""
        left, right = (
            self._with_ends(self._prepared(side, lenient=True), lambda end: f"IF({self._takes_part}, {end}, NULL)")
            for side in (self._left, self._right)
        )
        return profiles(left, right, _ROW_COUNTS)

    def _prepared(self, side: _Side, lenient: bool = False) -> DataFrame:
        """The side's rows that pass its own certain conditions, with their interval and state."""
        frame = side.frame.toDF(*side.inner)
        own = self.condition.left_only if side.name == "left" else self.condition.right_only
        for expression in own:
            frame = frame.where(F.expr(self._sql(expression)))
        raising = self.invalid == "raise" and not lenient
        raise_as = f"Column '{side.column}' of the {side.name} table" if raising else None
        assert side.model is not None
        found = interval_column(
            side.inner_name(side.column), side.model, side.name == "left",
            self.region, self.threshold, self.exact, self._pairing, raise_as,
        )  # fmt: skip
        frame = frame.withColumn("__interval", found)
        for position, equality in enumerate(self.condition.equalities):
            expression = equality[0] if side.name == "left" else equality[1]
            frame = frame.withColumn(f"__key{position}", F.expr(self._sql(expression)))
        return frame

    @property
    def _takes_part(self) -> str:
        known = [f"__key{position} IS NOT NULL" for position in range(len(self.condition.equalities))]
        return " AND ".join([f"__interval.state = {USABLE}", str(self.threshold.attainable), *known])

    def _usable(self, frame: DataFrame) -> DataFrame:
        return self._with_ends(frame.where(self._takes_part), str).drop("__interval")

    @staticmethod
    def _with_ends(frame: DataFrame, spell: Callable[[str], str]) -> DataFrame:
        start, end = spell("__interval.start"), spell("__interval.`end`")
        return frame.selectExpr(
            "*", f"{start} AS {START}", f"{end} AS {END}",
            f"least({start}, {end}) AS {LOW}", f"{end} AS {HIGH}",  # as in Sweep: where others are met from this row
        )  # fmt: skip

    @property
    def _payload(self) -> list[str]:
        return self._left.inner + self._right.inner

    def _overlapping(self, left: DataFrame, right: DataFrame, layout: DataFrame, observing: Observing) -> DataFrame:
        placed = []
        for side, frame in ((self._left, left), (self._right, right)):
            salt = [
                name
                for name, field in zip(side.inner, side.frame.schema.fields, strict=True)
                if not isinstance(field.dataType, (T.MapType, T.VariantType))
            ]
            placed.append(place(frame, layout, side.name, salt).groupBy(CELL))
        fields = [
            T.StructField(name, field.dataType, True)
            for side in (self._left, self._right)
            for name, field in zip(side.inner, side.frame.schema.fields, strict=True)
        ]
        schema = T.StructType(
            [
                *fields,
                T.StructField("probability", T.DoubleType(), True),
                T.StructField(_COUNTERS, T.ArrayType(T.LongType()), True),
            ]
        )
        kernel = self._cell_function()
        joined = placed[0].cogroup(placed[1]).applyInArrow(kernel, schema)
        metrics = {name: F.sum(F.get(_COUNTERS, F.lit(k))) for k, name in enumerate(_counter_names()) if name != "kept"}
        pairs = observing.watch(joined, metrics).where(F.col(_COUNTERS).isNull()).drop(_COUNTERS)
        for position, (one, other) in enumerate(self.condition.equalities):
            if position not in self._grouped_keys:
                pairs = pairs.where(F.expr(f"({self._sql(one)}) = ({self._sql(other)})"))
        return self._without_same(pairs)

    @cached_property
    def _grouped_keys(self) -> list[int]:
        """The equalities the kernel itself groups by: keys of one plain type on both sides."""
        frames = [side.frame.toDF(*side.inner) for side in (self._left, self._right)]
        grouped = []
        for position, pair in enumerate(self.condition.equalities):
            types = [
                frame.select(F.expr(self._sql(expression))).schema.fields[0].dataType
                for frame, expression in zip(frames, pair, strict=True)
            ]
            plain = (T.StringType, T.IntegralType, T.DateType, T.TimestampType, T.BooleanType, T.BinaryType)
            if types[0] == types[1] and isinstance(types[0], plain):
                grouped.append(position)
        return grouped

    def _cell_function(self) -> Callable[[pa.Table, pa.Table], pa.Table]:
        left, right = self._left, self._right
        columns = (left.inner_name(left.column), right.inner_name(right.column))
        kinds = (left.model.kind, right.model.kind)  # type: ignore[union-attr]
        region, threshold, exact = self.region, self.threshold, self.exact
        keys = [f"__key{position}" for position in self._grouped_keys]
        payloads = (left.inner, right.inner)

        def decide_cell(left_rows: pa.Table, right_rows: pa.Table) -> pa.Table:
            return _decide_cell(left_rows, right_rows, columns, kinds, region, threshold, exact, keys, payloads)

        return decide_cell

    def _sure(self, left: DataFrame, right: DataFrame, layout: DataFrame, observing: Observing) -> DataFrame:
        """Pairs decided by their position alone, joined by Spark cell by cell: work in proportion to the answer."""
        left, right = left.crossJoin(layout), right.crossJoin(layout)
        parts = []
        if accepts_above(self.region):
            ours = left.selectExpr("*", f"explode(sequence(0, {cell_of(START)})) AS {CELL}")
            theirs = right.selectExpr("*", f"{cell_of(END)} AS {CELL}")
            parts.append((ours, theirs, F.col(START) > F.col("__their_end")))
        if accepts_below(self.region):
            ours = left.selectExpr("*", f"explode(sequence({cell_of(END)}, size(layout.edges))) AS {CELL}")
            theirs = right.selectExpr("*", f"{cell_of(START)} AS {CELL}")
            parts.append((ours, theirs, F.col(END) < F.col("__their_start")))
        found = []
        for ours, theirs, beyond in parts:
            theirs = theirs.withColumnsRenamed({START: "__their_start", END: "__their_end", CELL: "__their_cell"})
            on = (F.col(CELL) == F.col("__their_cell")) & beyond
            for position in range(len(self.condition.equalities)):
                theirs = theirs.withColumnRenamed(f"__key{position}", f"__their_key{position}")
                on = on & (F.col(f"__key{position}") == F.col(f"__their_key{position}"))
            found.append(ours.drop("layout", LOW, HIGH).join(theirs.drop("layout", LOW, HIGH), on))
        pairs = found[0] if len(found) == 1 else found[0].unionByName(found[1])
        pairs = self._without_same(pairs).select(*self._payload, F.lit(1.0).alias("probability"))
        return observing.watch(pairs, {"sure": F.count(F.lit(1))})

    def _same(self, left: DataFrame, right: DataFrame, observing: Observing) -> DataFrame:
        """A row and itself: the difference is certainly 0."""
        assert self.self_key is not None
        mine, theirs = (side.inner_name(self.self_key) for side in (self._left, self._right))
        good = [
            frame.where(F.col("__interval.state").isin(USABLE, HOPELESS)).drop("__interval") for frame in (left, right)
        ]
        on = F.col(mine) == F.col(theirs)
        for position in range(len(self.condition.equalities)):
            good[1] = good[1].withColumnRenamed(f"__key{position}", f"__their_key{position}")
            on = on & (F.col(f"__key{position}") == F.col(f"__their_key{position}"))
        pairs = good[0].join(good[1], on).select(*self._payload, F.lit(1.0).alias("probability"))
        return observing.watch(pairs, {"same": F.count(F.lit(1))})

    def _without_same(self, pairs: DataFrame) -> DataFrame:
        if not self._sees_itself:
            return pairs
        assert self.self_key is not None
        mine, theirs = (side.inner_name(self.self_key) for side in (self._left, self._right))
        return pairs.where(~F.coalesce(F.col(mine) == F.col(theirs), F.lit(False)))

    def _certain_join(self) -> DataFrame:
        """Nothing is uncertain: Spark's own join, every pair sure."""
        frames = [side.frame.toDF(*side.inner) for side in (self._left, self._right)]
        conditions = [*self.condition.left_only, *self.condition.right_only, *self.condition.residual]
        texts = [self._sql(expression) for expression in conditions]
        texts += [f"({self._sql(one)}) = ({self._sql(other)})" for one, other in self.condition.equalities]
        on = F.expr(" AND ".join(f"({text})" for text in texts)) if texts else F.lit(True)
        return frames[0].join(frames[1], on).select(*self._payload, F.lit(1.0).alias("probability"))

    def _finish(self, parts: list[DataFrame], observing: Observing) -> DataFrame:
        pairs = parts[0]
        for more in parts[1:]:
            pairs = pairs.unionByName(more)
        if self.condition.difference is not None:
            for expression in self.condition.residual:
                pairs = pairs.where(F.expr(self._sql(expression)))
        pairs = observing.watch(pairs, {"kept": F.count(F.lit(1))})
        renamed = [F.col(inner).alias(name) for inner, name in zip(self._payload, self._names, strict=True)]
        return pairs.select(*renamed, *(["probability"] if self.exact else []))

    # -- explaining it ------------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """How the join will run, in words. Reads the two inputs once to estimate sizes."""
        if self.condition.difference is None:
            return "Certain join\n  every condition is certain: Spark's own join, probability 1.0"
        left, right, region, threshold = self._left, self._right, self.region, self.threshold
        wanted = "P > 0" if threshold.value is None else f"P {'>' if threshold.strict else '>='} {threshold.value:g}"
        certain = [*self.condition.left_only, *self.condition.right_only, *self.condition.residual]
        equal = [f"{one} = {other}" for one, other in self.condition.equalities]
        lines = [
            "Threshold join",
            f"  condition     left.{left.column} ({left.model.kind}) - right.{right.column} ({right.model.kind}): "  # type: ignore[union-attr]
            f"{region.describe()}, {wanted}",
        ]
        if certain or equal:
            lines.append(f"  pushed down   {'; '.join([*equal, *(str(expression) for expression in certain)])}")
        lines.append(f"  candidates    {self._explain_candidates()}")
        lines.append(f"  cascade       {self._explain_cascade()}")
        lines.extend(self._explain_partitioning())
        return "\n".join(lines)

    def _explain_candidates(self) -> str:
        threshold, region = self.threshold, self.region
        level = threshold.core_level(self._pairing)
        text = f"sweep over core regions: quantiles at {level:.6g} and {1 - level:.6g} (of {self._pairing.value})"
        if not (region.outside or region.one_sided):
            if threshold.value is not None:
                text += (
                    f"; rows whose mass in every interval of length {region.width:g} is below the threshold are dropped"
                )
        else:
            text = (
                f"pairs apart by their quantiles at {threshold.sure_level(self.exact, self._pairing):.3g} are sure and joined "
                "natively by ranges; the rest by a sweep"
            )
        return text

    def _explain_cascade(self) -> str:
        rules = _rules_used(self._left.model, self._right.model, self.region, self.exact)
        verb = "reject" if self.exact else "reject and accept"
        end = "exact probability of what is left" if self.exact else "exact probability of undecided pairs only"
        return f"{' -> '.join(rules)} ({verb}) -> {end}"

    def _explain_partitioning(self) -> list[str]:
        row = self._profiles().first()
        assert row is not None
        one, other = read_profile(row["left"]), read_profile(row["right"])
        layout = lay_out(one, other, rows_per_cell=self._settings.rows_per_cell, cells=self._settings.cells)
        sliced = int(((layout.left_slices > 1) | (layout.right_slices > 1)).sum())
        return [
            f"  partitioning  {layout.cells} cells by quantiles of the intervals, {sliced} of them sliced",
            f"  estimates     {one.rows:,} x {other.rows:,} usable rows, "
            f"about {expected_candidates(one, other):,.0f} candidate pairs of {one.rows * other.rows:,}",
        ]


class Observing:
    """Carries counters out of the query through Spark's observations into a funnel."""

    def __init__(self, funnel: Any) -> None:
        self.funnel = funnel

    @classmethod
    def nothing(cls) -> Observing:
        """For joins that have nothing to count."""
        return cls(None)

    def watch(self, frame: DataFrame, metrics: dict[str, Any]) -> DataFrame:
        """The frame with these aggregates reported to the funnel, if there is one."""
        if self.funnel is None:
            return frame
        observation = Observation()
        observed = frame.observe(
            observation, *(F.coalesce(value, F.lit(0)).alias(name) for name, value in metrics.items())
        )
        self.funnel.follow(lambda: observation.get)
        return observed


def _counter_names() -> list[str]:
    """What a cell counts. Kept pairs are counted at the end of the plan, after certain conditions over both sides."""
    return [*Counters().flat(), *(f"nanoseconds:{stage}" for stage in _STAGES)]


def _decide_cell(
    left_rows: pa.Table,
    right_rows: pa.Table,
    columns: tuple[str, str],
    kinds: tuple[str, str],
    region: Region,
    threshold: Threshold,
    exact: bool,
    keys: list[str],
    payloads: tuple[list[str], list[str]],
) -> pa.Table:
    """One row that holds the cell's counters, then all kept pairs of the cell."""
    fields = [
        rows.schema.field(name) for rows, names in zip((left_rows, right_rows), payloads, strict=True) for name in names
    ]
    schema = pa.schema([*fields, pa.field("probability", pa.float64()), pa.field(_COUNTERS, pa.list_(pa.int64()))])
    if not left_rows.num_rows or not right_rows.num_rows:
        return schema.empty_table()
    sides = []
    for rows, column, kind in ((left_rows, columns[0], kinds[0]), (right_rows, columns[1], kinds[1])):
        values = rows[column].combine_chunks()
        model_class = BY_KIND[kind]
        start, end = rows[START].to_numpy(), rows[END].to_numpy()
        native = rows[NATIVE].to_numpy(zero_copy_only=False)
        lows = np.minimum(start, end)[native]
        model = model_class.view(model_class.fields(values))
        assert isinstance(model, OneDimensional)
        sides.append((model, Intervals(start, end, np.zeros(len(start), bool)), lows.min() if len(lows) else np.inf))
    groups = _shared_codes([(left_rows[key], right_rows[key]) for key in keys]) if keys else (None, None)
    begun = time.perf_counter()
    found = match_overlapping(
        sides[0][0], sides[1][0], sides[0][1], sides[1][1], region, threshold, exact,
        from_position=min(sides[0][2], sides[1][2]), left_groups=groups[0], right_groups=groups[1],
    )  # fmt: skip
    matched = time.perf_counter()
    left_index, right_index = pa.array(found.left), pa.array(found.right)
    taken = [
        *left_rows.select(payloads[0]).take(left_index).columns,
        *right_rows.select(payloads[1]).take(right_index).columns,
    ]
    assembled = time.perf_counter()
    seconds = {**found.seconds, "assemble": assembled - matched}
    seconds["prepare"] += matched - begun - sum(found.seconds.values())
    counts = [*found.counters.flat().values(), *(int(1e9 * seconds[stage]) for stage in _STAGES)]
    n = len(found.left)
    pairs = pa.Table.from_arrays(
        [*taken, pa.array(found.probability), pa.nulls(n, pa.list_(pa.int64()))], schema=schema
    )
    first = [
        *(pa.nulls(1, field.type) for field in fields),
        pa.nulls(1, pa.float64()),
        pa.array([counts], pa.list_(pa.int64())),
    ]
    # the counters come first: an action that stops early, as show() does, then still counts the cells it has seen
    return pa.concat_tables([pa.Table.from_arrays(first, schema=schema), pairs])


def _shared_codes(keys: list[tuple[pa.ChunkedArray, pa.ChunkedArray]]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that are equal for rows of either side whose keys are all equal."""
    codes: np.ndarray | None = None
    for left, right in keys:
        both = pa.chunked_array([*left.chunks, *right.chunks], left.type).combine_chunks()
        index = pc.dictionary_encode(both).indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = index if codes is None else np.unique(codes * (int(index.max()) + 1) + index, return_inverse=True)[1]
    assert codes is not None
    return codes[: len(keys[0][0])], codes[len(keys[0][0]) :]


def _rules_used(left: type[Model] | None, right: type[Model] | None, region: Region, exact: bool) -> list[str]:
    names = list(RULES.values())
    if left is not None and left is right and left.kind == "gaussian":
        return [names[4]]
    if region.one_sided:
        return [names[2], f"{names[3]} (where one value has many parts)"]
    rules = [names[0], names[1]] if not exact else [names[1] if region.outside else names[0]]
    return [*rules, f"{names[3]} (where one value has many parts)"]


def _output_names(left: list[str], right: list[str], suffixes: tuple[str, str], with_probability: bool) -> list[str]:
    """Names of the result's columns: those that clash get the suffixes."""
    taken = {"probability"} if with_probability else set()
    clashes = {name.lower() for name in left} & {name.lower() for name in right}
    clashes |= {name for name in taken if name in {column.lower() for column in (*left, *right)}}
    out = [name + suffixes[0] if name.lower() in clashes else name for name in left]
    out += [name + suffixes[1] if name.lower() in clashes else name for name in right]
    lowered = [name.lower() for name in (*out, *taken)]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise HaplyError(
            "Two columns of the result would have one name",
            expected="different names",
            found=", ".join(twice),
            hint="rename a column, or choose other suffixes",
        )
    return out


def plan_join(
    left: DataFrame,
    right: DataFrame,
    on: Expression | str | None = None,
    threshold: float | None = None,
    *,
    strict: bool = False,
    time: Any = None,
    window: Any = None,
    max_delay: Any = 0,
    probability: ProbabilityMode = "exact",
    strategy: str = "auto",
    self_key: str | None = None,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    funnel: Any = None,
) -> JoinPlan:
    """Check and plan a join without running it; the arguments are those of ``hp.join``."""
    if time is not None or window is not None or max_delay:
        raise HaplyError("This version joins tables without windows", hint="leave out time, window and max_delay")
    if on is None:
        raise HaplyError(
            "A join has no condition", expected="on=..., an expression or text", hint='"abs(left.x - right.x) <= 1"'
        )
    for name, frame in (("left", left), ("right", right)):
        if frame.isStreaming:
            raise HaplyError(f"The {name} table is a stream", expected="static tables in this version")
    _one_of("probability", probability, ("exact", "none"))
    _one_of("invalid", invalid, ("raise", "drop"))
    _one_of("strategy", strategy, ALL_STRATEGIES)
    if strategy not in FITTING:
        raise HaplyError(
            f"Strategy '{strategy}' does not fit this join",
            expected="one of " + ", ".join(FITTING),
            found=f"'{strategy}'",
        )
    limit = Threshold(threshold, strict)
    expression = parse(on) if isinstance(on, str) else on
    if not isinstance(expression, Expression):
        raise HaplyError("The condition cannot be read", expected="an expression or text", found=type(on).__name__)
    frames = {"left": left, "right": right}

    def type_of(column: Column) -> T.DataType:
        if column.table not in frames:
            raise HaplyError(
                f"Column '{column}' names no table", expected="left.<column> or right.<column>", found=f"'{column}'"
            )
        frame = frames[column.table]
        return frame.schema[find_column(frame, column.name, column.table)].dataType

    def is_certain(column: Column) -> bool:
        model = model_of_spark_type(type_of(column))
        return model is None or model is Certain

    def can_sweep(column: Column) -> bool:
        return isinstance(type_of(column), (T.DoubleType, T.FloatType, T.IntegerType, T.ShortType, T.ByteType))

    for column in columns_of(expression):
        type_of(column)
    condition = split_join(expression, is_certain, can_sweep)
    if condition.difference is not None:
        condition = _check_difference(condition, frames, limit)
    if self_key is not None:
        for name, frame in frames.items():
            find_column(frame, self_key, name)
        self_key = find_column(left, self_key, "left")
    return JoinPlan(
        left, right, condition, limit,
        exact=probability == "exact", self_key=self_key, invalid=invalid, suffixes=suffixes, funnel=funnel,
    )  # fmt: skip


def _check_difference(condition: JoinCondition, frames: dict[str, DataFrame], threshold: Threshold) -> JoinCondition:
    """Spell the columns as the tables do, and refuse what a one-dimensional join cannot answer."""
    difference = condition.difference
    assert difference is not None
    names = {}
    for side, wanted in (("left", difference.left), ("right", difference.right)):
        name = find_column(frames[side], wanted, side)
        model = model_of_spark_type(frames[side].schema[name].dataType)
        if model is None or not issubclass(model, OneDimensional):
            raise HaplyError(
                f"Column '{name}' of the {side} table is not a number that may be uncertain",
                expected="a one-dimensional model or a number",
                found=frames[side].schema[name].dataType.simpleString(),
            )
        if threshold.value is None and not model.bounded:
            raise HaplyError(
                "Without a threshold every pair is possible",
                expected="values with a bounded support, or a threshold",
                found=f"column '{name}' of the {side} table, a {model.kind}, whose values are unbounded",
                hint="give threshold=0.01 or another limit: the answer would be the cross product",
            )
        names[side] = name
    return replace(condition, difference=Difference(names["left"], names["right"], difference.region))


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise unknown_name(f"choice of {what}", value, known)


def join(
    left: DataFrame,
    right: DataFrame,
    on: Expression | str | None = None,
    threshold: float | None = None,
    *,
    strict: bool = False,
    time: Any = None,
    window: Any = None,
    max_delay: Any = 0,
    probability: ProbabilityMode = "exact",
    strategy: str = "auto",
    self_key: str | None = None,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    funnel: Any = None,
) -> DataFrame:
    """Pairs of rows for which a condition on uncertain values holds with at least the threshold's probability.

    Parameters
    ----------
    left, right
        Static DataFrames.
    on
        A condition between a column of each side, as an expression or as text, with any certain conditions.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict); ``None`` keeps every pair with positive probability.
    probability
        ``"exact"`` adds a ``probability`` column; ``"none"`` returns only the pairs, which is faster.
    self_key
        When a table is joined with itself: rows with equal keys are one variable.
    invalid
        ``"raise"`` fails on a row that is not a distribution; ``"drop"`` leaves it out and counts it.
    suffixes
        Added to names that both sides have.
    funnel
        An ``hp.Funnel()`` to fill.
    """
    return plan_join(
        left, right, on, threshold,
        strict=strict, time=time, window=window, max_delay=max_delay, probability=probability, strategy=strategy,
        self_key=self_key, invalid=invalid, suffixes=suffixes, funnel=funnel,
    ).run()  # fmt: skip
