"""``hp.join`` and ``hp.plan_join``: a join is checked before any data is read, and becomes a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.errors import HaplyError, advise, unknown_name
from haply.models import Certain, Model, OneDimensional
from haply.probability.region import Difference, Region
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, respelled, split_join
from haply.query.checks import all_certain, meets_itself, refuse_equalities, taken_as_independent
from haply.query.conditions import JoinCondition, UnfitError
from haply.query.text import parse
from haply.spark.columns import HOW_UNCERTAIN, find_column, model_of_spark_type, quoted
from haply.spark.distance import DistancePlan
from haply.spark.failures import translate_failures
from haply.spark.index import index_of
from haply.spark.indexed import IndexedPlan, fits_index
from haply.spark.mixed import MixedPlan
from haply.spark.plan import InvalidMode, JoinPlan, ProbabilityMode
from haply.spark.positions import NORMALS, PositionPlan, position_model
from haply.spark.result import Shown, SideName, result_columns
from haply.spark.stream import DifferenceStream, DistanceStream, PositionStream, TimingStream, check_session
from haply.spark.window import TimeWindow, time_window

FITTING = {
    "difference": ("auto", "sweep", "pages", "pti", "moments"),
    "distance": ("auto", "grid"),
    "uncertain times": ("auto", "sweep"),
}
TIME_NUMBER = "__haply_time"
"""A column of certain times as numbers, for the join alone."""

ALL_STRATEGIES = ("auto", "sweep", "pages", "pti", "moments", "grid")
_BY_INDEX = (None, None, "auto")
"""What is asked for, of self_key, broadcast and strategy, where an index may be used."""


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
    columns: Sequence[str] | None = None,
    broadcast: SideName | None = None,
    funnel: Any = None,
) -> JoinPlan | MixedPlan:
    """Check and plan a join without running it; the arguments are those of ``hp.join``."""
    translate_failures()
    in_time = time_window(left, right, time, window, max_delay)
    if on is None and in_time is None:
        raise HaplyError(
            "A join has no condition",
            expected="on=..., an expression or text, or time and window",
            hint='"abs(left.x - right.x) <= 1"',
        )
    _one_of("probability", probability, ("exact", "none"))
    _one_of("invalid", invalid, ("raise", "drop"))
    _one_of("strategy", strategy, ALL_STRATEGIES)
    limit = Threshold(threshold, strict)
    expression = parse(on) if isinstance(on, str) else on
    if expression is not None and not isinstance(expression, Expression):
        raise HaplyError("The condition cannot be read", expected="an expression or text", found=type(on).__name__)
    if broadcast is not None:
        _one_of("table to broadcast", broadcast, ("left", "right"))
    result = result_columns(left.columns, right.columns, suffixes, probability == "exact", columns)
    frames = {"left": left, "right": right}

    def type_of(column: Column) -> T.DataType:
        if column.table not in frames:
            raise HaplyError(
                f"Column '{column}' names no table", expected="left.<column> or right.<column>", found=f"'{column}'"
            )
        frame = frames[column.table]
        return frame.schema[find_column(frame, column.name, column.table)].dataType

    def model_of(column: Column) -> type[Model] | None:
        model = model_of_spark_type(type_of(column))
        return None if model is Certain else model

    def is_certain(column: Column) -> bool:
        return model_of(column) is None

    def can_sweep(column: Column) -> bool:
        return isinstance(type_of(column), (T.DoubleType, T.FloatType, T.IntegerType, T.ShortType, T.ByteType))

    condition = JoinCondition()
    if expression is not None:
        for column in columns_of(expression):
            type_of(column)
        expression = respelled(
            expression, lambda column: find_column(frames[str(column.table)], column.name, str(column.table))
        )
        refuse_equalities(expression, model_of)
    certain_times = in_time is None or not any(in_time.uncertain)
    plain = all_certain(expression, is_certain, threshold is not None) if expression is not None else None
    if plain is not None and certain_times:
        advise(plain, HOW_UNCERTAIN)
    if left is right and self_key is None and not left.isStreaming:
        in_both = not certain_times and in_time is not None and in_time.left == in_time.right
        if in_both or (expression is not None and meets_itself(expression, "left", "right", is_certain)):
            advise(*taken_as_independent("left", "right"))
    if columns is not None:
        frames = _narrowed(frames, result, expression, in_time, self_key)
        left, right = frames["left"], frames["right"]
    if expression is not None:
        try:
            condition = split_join(expression, is_certain, can_sweep)
        except UnfitError:
            _check_mixed(left, right, strategy, self_key, in_time)
            return MixedPlan(
                left, right, expression, limit, probability == "exact", invalid, result, funnel, broadcast
            )  # fmt: skip
    streaming = left.isStreaming or right.isStreaming
    kind = "distance" if condition.distance is not None else "difference"
    if streaming and kind == "difference" and (condition.difference is None or not certain_times):
        kind = "uncertain times"
    fitting = FITTING[kind]
    if strategy not in fitting:
        raise HaplyError(
            f"Strategy '{strategy}' does not fit this join",
            expected="one of " + ", ".join(fitting),
            found=f"'{strategy}'",
        )
    if condition.difference is not None:
        condition = _check_difference(condition, frames, limit)
    if condition.distance is not None:
        condition = _check_distance(condition, frames, limit)
    if self_key is not None:
        for name, frame in frames.items():
            find_column(frame, self_key, name)
        self_key = find_column(left, self_key, "left")
    if in_time is not None and any(in_time.uncertain):
        _check_uncertain_time(condition, in_time, frames, limit)
    called: dict[tuple[str, str], str] = {}
    indexes = {name: index_of(frame) for name, frame in frames.items()}
    if streaming:
        _check_streams(left, right, in_time, self_key, broadcast)
        plan: type[JoinPlan] = TimingStream
        if certain_times and condition.distance is not None:
            plan = PositionStream if _has_normals(condition, frames) else DistanceStream
        elif certain_times and condition.difference is not None:
            plan = DifferenceStream
    else:
        if in_time is not None and (expression is None or any(in_time.uncertain)):
            called = {("left", TIME_NUMBER): in_time.left, ("right", TIME_NUMBER): in_time.right}
            left, right, condition, in_time = _joined_in_time(left, right, condition, in_time, self_key is not None)
            _check_itself(condition, self_key)
        plan = JoinPlan
        if condition.distance is not None:
            plan = PositionPlan if _has_normals(condition, frames) else DistancePlan
        elif condition.difference is not None and in_time is None and (self_key, broadcast, strategy) == _BY_INDEX:
            for name, compared in (("right", condition.difference.right), ("left", condition.difference.left)):
                index = indexes[name]
                if index is not None and index.column == compared and fits_index(condition):
                    plan = partial(IndexedPlan, index=index, indexed=name)  # type: ignore[assignment]
                    break
    return plan(
        left, right, condition, limit,
        exact=probability == "exact", self_key=self_key, invalid=invalid, result=result, funnel=funnel,
        window=in_time, strategy=strategy, broadcast=broadcast, called=called,
    )  # fmt: skip


def _narrowed(
    frames: dict[str, DataFrame],
    result: Sequence[Shown],
    expression: Expression | None,
    window: TimeWindow | None,
    self_key: str | None,
) -> dict[str, DataFrame]:
    """The tables with what the result and conditions need. One with an index stays: what is made from it has none."""
    needed: set[tuple[str, str]] = {(one.side, one.column) for one in result}
    if expression is not None:
        needed |= {(str(column.table), column.name) for column in columns_of(expression)}
    if window is not None:
        needed |= {("left", window.left), ("right", window.right)}
    if self_key is not None:
        needed |= {(side, find_column(frame, self_key, side)) for side, frame in frames.items()}
    narrowed = {}
    for side, frame in frames.items():
        kept = [name for name in frame.columns if (side, name) in needed] or frame.columns[:1]
        whole = len(kept) == len(frame.columns) or index_of(frame) is not None
        narrowed[side] = frame if whole else frame.select(*(quoted(name) for name in kept))
    return narrowed


def _check_mixed(
    left: DataFrame, right: DataFrame, strategy: str, self_key: str | None, window: TimeWindow | None
) -> None:
    """What a join whose conditions are not about one difference or distance cannot do."""
    for trouble, what in (
        (left.isStreaming or right.isStreaming, "streams"),
        (strategy != "auto", f"strategy='{strategy}'"),
        (self_key is not None, "self_key"),
        (window is not None, "a window"),
    ):
        if trouble:
            raise HaplyError(
                f"A join with several uncertain conditions, or one on several columns, does not go with {what}",
                expected="two tables, or one condition on the difference or distance of a column of each",
                hint="join by one condition, then hp.where on the result" if what == "streams" else "",
            )


def _check_uncertain_time(
    condition: JoinCondition, window: TimeWindow, frames: dict[str, DataFrame], threshold: Threshold
) -> None:
    """Refuse a time that is part of the condition, and a time without end if there is no threshold."""
    used = condition.difference or condition.distance
    for side, name, uncertain, other in (
        ("left", window.left, window.uncertain[0], used.left if used else None),
        ("right", window.right, window.uncertain[1], used.right if used else None),
    ):
        if uncertain and name == other:
            raise HaplyError(
                f"Column '{name}' of the {side} table is the time and part of another uncertain condition",
                expected="conditions on different columns: their probabilities multiply",
                found=f"'{name}' in both",
            )
        model = model_of_spark_type(frames[side].schema[name].dataType)
        assert model is not None or not uncertain
        if uncertain and threshold.value is None and not model.bounded:  # type: ignore[union-attr]
            raise _without_threshold(name, side, model)  # type: ignore[arg-type]


def _joined_in_time(
    left: DataFrame, right: DataFrame, condition: JoinCondition, window: TimeWindow, sees_itself: bool
) -> tuple[DataFrame, DataFrame, JoinCondition, TimeWindow | None]:
    """The window as a condition on the difference of two times; certain times as numbers in a column of their own."""
    names = []
    frames = []
    for frame, name, uncertain in zip((left, right), (window.left, window.right), window.uncertain, strict=True):
        frames.append(frame if uncertain else frame.withColumn(TIME_NUMBER, F.expr(window.number(name, name))))
        names.append(name if uncertain else TIME_NUMBER)
    near = Difference(names[0], names[1], Region(-window.length, window.length))
    value = condition.difference
    if value is not None and (value.region.outside or value.region.one_sided):
        # of two conditions the first is one that holds in a band only: it tells which rows may meet
        condition = replace(condition, difference=near, further=(value,))
    elif value is not None or condition.distance is not None:
        condition = replace(condition, further=(near,))
    else:
        condition = replace(condition, difference=near)
    if sees_itself and not any(window.uncertain):
        # what is one variable is taken to be in one place, but its rows may be of other times, and these are known
        together = parse(f"abs(left.{TIME_NUMBER} - right.{TIME_NUMBER}) <= {window.length!r}")
        condition = replace(condition, residual=(*condition.residual, together))
    return frames[0], frames[1], condition, None


def _check_itself(condition: JoinCondition, self_key: str | None) -> None:
    """Refuse a row that would be one variable with itself in one condition, and two in another."""
    conditions = [one for one in (condition.difference, condition.distance, *condition.further) if one is not None]
    same = [one.left == one.right for one in conditions]
    if self_key is not None and any(same) and not all(same):
        two = conditions[same.index(False)]
        raise HaplyError(
            "self_key does not go with conditions on one column and on two different ones",
            expected="conditions that each compare a column with itself",
            found=f"'{two.left}' with '{two.right}'",
        )


def _without_threshold(name: str, side: str, model: type[Model]) -> HaplyError:
    return HaplyError(
        "Without a threshold every pair is possible",
        expected="values with a bounded support, or a threshold",
        found=f"column '{name}' of the {side} table, a {model.kind}, whose values are unbounded",
        hint="give threshold=0.01 or another limit: the answer would be the cross product",
    )


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
            raise _without_threshold(name, side, model)
        names[side] = name
    return replace(condition, difference=Difference(names["left"], names["right"], difference.region))


def _has_normals(condition: JoinCondition, frames: dict[str, DataFrame]) -> bool:
    """Whether the points of a side are Gaussians or mixtures."""
    assert condition.distance is not None
    columns = {"left": condition.distance.left, "right": condition.distance.right}
    return any(position_model(frames[side].schema[name].dataType) in NORMALS for side, name in columns.items())


def _check_distance(condition: JoinCondition, frames: dict[str, DataFrame], threshold: Threshold) -> JoinCondition:
    """Spell the columns as the tables do, and refuse what are no points."""
    distance = condition.distance
    assert distance is not None
    names = {}
    for side, wanted in (("left", distance.left), ("right", distance.right)):
        names[side] = find_column(frames[side], wanted, side)
        kind = frames[side].schema[names[side]].dataType
        model = position_model(kind)
        if model is None:
            raise HaplyError(
                f"Column '{names[side]}' of the {side} table holds no points",
                expected="hp.gaussian_nd, hp.mixture_nd, hp.samples, hp.sky, an array of numbers, or a number",
                found=kind.simpleString(),
            )
        if threshold.value is None and model in NORMALS:
            raise _without_threshold(names[side], side, model)
    return replace(condition, distance=replace(distance, left=names["left"], right=names["right"]))


def _check_streams(
    left: DataFrame, right: DataFrame, window: TimeWindow | None, self_key: str | None, broadcast: str | None
) -> None:
    """What a join of streams needs, and what it cannot do yet."""
    if not (left.isStreaming and right.isStreaming):
        raise HaplyError(
            "One side of the join is a stream and the other a table",
            expected="two streams or two tables",
            hint="read the table as a stream as well",
        )
    if window is None:
        raise HaplyError(
            "A join of streams has no window", expected="time and window", hint='time="t", window="10 minutes"'
        )
    if self_key is not None:
        raise HaplyError("A join of streams takes no self_key in this version")
    if broadcast is not None:
        raise HaplyError("A stream cannot be broadcast", expected="two tables", hint="leave out broadcast")
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
    columns: Sequence[str] | None = None,
    broadcast: SideName | None = None,
    funnel: Any = None,
) -> DataFrame:
    """Pairs of rows for which a condition on uncertain values holds with at least the threshold's probability.

    Parameters
    ----------
    left, right
        Two tables, or two streams.
    on
        A condition between a column of each side, as an expression or as text, with any certain conditions. Without it
        the window alone is the condition.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict); ``None`` keeps every pair with positive probability.
    time, window, max_delay
        ``|left time - right time| <= window``. Uncertain times count into the probability, as a condition of their own.
        In a stream a row may come ``max_delay`` after newer ones of its side.
    probability
        ``"exact"`` adds a ``probability`` column; ``"none"`` returns only the pairs, which is faster.
    strategy
        How the pairs of a cell are found: ``"auto"`` is the fastest we know. On a difference, ``"sweep"`` goes along
        the rows' core regions, ``"pages"`` and ``"pti"`` take pages and the tree of Cheng et al. 2005, ``"moments"``
        looks candidates up by mean and variance (Peng and Diao 2011).
    self_key
        When a table is joined with itself: rows with equal keys are one variable.
    invalid
        ``"raise"`` fails on a row that is not a distribution; ``"drop"`` leaves it out and counts it.
    suffixes
        Added to names that both sides have.
    columns
        Which columns the result has besides ``probability``, by their names in it (``"id_left"`` where both tables have
        an ``id``); all by default. What only a condition needs then does not come out, and what nothing needs is not
        read.
    broadcast
        ``"left"`` or ``"right"``: this table goes whole to every task, and the other stays where it is. Faster for a
        table that fits into the memory of the driver and of every worker; by default both are sent to their cells.
    funnel
        An ``hp.Funnel()`` to fill.
    """
    return plan_join(
        left, right, on, threshold,
        strict=strict, time=time, window=window, max_delay=max_delay, probability=probability, strategy=strategy,
        self_key=self_key, invalid=invalid, suffixes=suffixes, columns=columns, broadcast=broadcast, funnel=funnel,
    ).run()  # fmt: skip
