"""``hp.join`` and ``hp.plan_join``: a join is checked before any data is read, and becomes a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from haply.errors import HaplyError, unknown_name
from haply.models import Certain, OneDimensional
from haply.probability.region import Difference
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, parse, split_join
from haply.query.conditions import JoinCondition
from haply.spark.columns import find_column, model_of_spark_type
from haply.spark.distance import DistancePlan, point_model
from haply.spark.plan import InvalidMode, JoinPlan, ProbabilityMode
from haply.spark.stream import StreamPlan, check_session
from haply.spark.window import TimeWindow, time_window

FITTING = {"difference": ("auto", "sweep"), "distance": ("auto", "grid")}
ALL_STRATEGIES = ("auto", "sweep", "pages", "pti", "moments", "grid")


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
    in_time = time_window(left, right, time, window, max_delay)
    if on is None:
        raise HaplyError(
            "A join has no condition", expected="on=..., an expression or text", hint='"abs(left.x - right.x) <= 1"'
        )
    _one_of("probability", probability, ("exact", "none"))
    _one_of("invalid", invalid, ("raise", "drop"))
    _one_of("strategy", strategy, ALL_STRATEGIES)
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
    fitting = FITTING["distance" if condition.distance is not None else "difference"]
    if strategy not in fitting:
        raise HaplyError(
            f"Strategy '{strategy}' does not fit this join",
            expected="one of " + ", ".join(fitting),
            found=f"'{strategy}'",
        )
    if condition.difference is not None:
        condition = _check_difference(condition, frames, limit)
    if condition.distance is not None:
        condition = _check_distance(condition, frames)
    if self_key is not None:
        for name, frame in frames.items():
            find_column(frame, self_key, name)
        self_key = find_column(left, self_key, "left")
    plan: type[JoinPlan] = JoinPlan if condition.distance is None else DistancePlan
    if left.isStreaming or right.isStreaming:
        _check_streams(left, right, condition, in_time, self_key)
        plan = StreamPlan
    return plan(
        left, right, condition, limit,
        exact=probability == "exact", self_key=self_key, invalid=invalid, suffixes=suffixes, funnel=funnel,
        window=in_time,
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


def _check_distance(condition: JoinCondition, frames: dict[str, DataFrame]) -> JoinCondition:
    """Spell the columns as the tables do, and refuse what are no points."""
    distance = condition.distance
    assert distance is not None
    names = {}
    for side, wanted in (("left", distance.left), ("right", distance.right)):
        names[side] = find_column(frames[side], wanted, side)
        kind = frames[side].schema[names[side]].dataType
        if point_model(kind) is None:
            raise HaplyError(
                f"Column '{names[side]}' of the {side} table holds no points",
                expected="samples made by hp.samples, an array of numbers, or a number",
                found=kind.simpleString(),
            )
    return replace(condition, distance=replace(distance, left=names["left"], right=names["right"]))


def _check_streams(
    left: DataFrame, right: DataFrame, condition: JoinCondition, window: TimeWindow | None, self_key: str | None
) -> None:
    """What a join of streams needs, and what it cannot do yet."""
    if not (left.isStreaming and right.isStreaming):
        raise HaplyError(
            "One side of the join is a stream and the other a table",
            expected="two streams or two tables",
            hint="read the table as a stream as well",
        )
    if condition.distance is None:
        raise HaplyError(
            "Streams can be joined on a distance only in this version", expected="hp.distance(left.a, right.b) <= ..."
        )
    if window is None:
        raise HaplyError(
            "A join of streams has no window", expected="time and window", hint='time="t", window="10 minutes"'
        )
    if self_key is not None:
        raise HaplyError("A join of streams takes no self_key in this version")
    check_session(left.sparkSession)


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
