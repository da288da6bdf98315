"""Joins of two tables or streams: checked before any data is read, and planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import pyarrow as pa

from haply.errors import HaplyError, advise
from haply.joins.cells.positions import NORMALS
from haply.models import OneDimensional
from haply.planning.constructors import bound_constructors
from haply.planning.frames import (
    HOW_UNCERTAIN,
    Field,
    Frame,
    InvalidMode,
    ProbabilityMode,
    SideName,
    field_of,
    find_column,
    names_of,
    without_threshold,
)
from haply.planning.methods import check_broadcast, method_for, position_model
from haply.planning.mixed import MixedJoin
from haply.planning.pairs import PairPlan, Side
from haply.planning.result import one_of, result_columns
from haply.planning.times import TimeWindow, time_window
from haply.probability.region import Difference, Region
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, respelled, split_join
from haply.query.checks import all_certain, meets_itself, refuse_equalities, taken_as_independent
from haply.query.conditions import JoinCondition, Misfit
from haply.query.text import parse

FITTING = {
    "difference": ("auto", "sweep", "pages", "pti", "moments"),
    "distance": ("auto", "grid"),
    "uncertain times": ("auto", "sweep"),
}
ALL_STRATEGIES = ("auto", "sweep", "pages", "pti", "moments", "grid")
TIME_NUMBER = "__haply_time"
"""A column of certain times as numbers, for the join alone."""


@dataclass(frozen=True)
class JoinOptions:
    """What ``hp.join`` is asked for besides its tables and its condition."""

    threshold: float | None = None
    strict: bool = False
    time: Any = None
    window: Any = None
    max_delay: Any = 0
    probability: ProbabilityMode = "exact"
    strategy: str = "auto"
    self_key: str | None = None
    invalid: InvalidMode = "raise"
    suffixes: tuple[str, str] = ("_left", "_right")
    columns: Sequence[str] | None = None
    broadcast: SideName | None = None

    def check(self) -> None:
        """Refuse what is not one of the choices."""
        one_of("probability", self.probability, get_args(ProbabilityMode))
        one_of("invalid", self.invalid, get_args(InvalidMode))
        one_of("strategy", self.strategy, ALL_STRATEGIES)
        if self.broadcast is not None:
            one_of("table to broadcast", self.broadcast, get_args(SideName))


def plan_pairs(left: Frame, right: Frame, on: Expression | str | None, options: JoinOptions) -> PairPlan | MixedJoin:
    """Check and plan a join; the arguments are those of ``hp.join``."""
    window = time_window(left, right, options.time, options.window, options.max_delay)
    if on is None and window is None:
        raise HaplyError(
            "A join has no condition",
            expected="on=..., an expression or text, or time and window",
            hint='"abs(left.x - right.x) <= 1"',
        )
    options.check()
    expression = parse(on) if isinstance(on, str) else on
    if expression is not None and not isinstance(expression, Expression):
        raise HaplyError("The condition cannot be read", expected="an expression or text", found=type(on).__name__)
    return _Planner(left, right, expression, window, options).plan()


class _Planner:
    """Plans one join."""

    def __init__(
        self, left: Frame, right: Frame, expression: Expression | None, window: TimeWindow | None, options: JoinOptions
    ) -> None:
        self.frames: dict[str, Frame] = {"left": left, "right": right}
        self._same_table = left.identity == right.identity and not left.streaming
        self.options, self.window = options, window
        self.threshold = Threshold(options.threshold, options.strict)
        exact = options.probability == "exact"
        self.result = result_columns(names_of(left), names_of(right), options.suffixes, exact, options.columns)
        if expression is not None:
            tables: dict[str | None, Frame] = dict(self.frames.items())
            expression = bound_constructors(expression, tables)
            self.frames = {str(side): frame for side, frame in tables.items()}
        self.expression = None if expression is None else self._spelled(expression)
        self.self_key = options.self_key
        self._advise()

    # -- columns -------------------------------------------------------------------------------------------------------

    def _field(self, column: Column) -> Field:
        if column.table not in self.frames:
            raise HaplyError(
                f"Column '{column}' names no table", expected="left.<column> or right.<column>", found=f"'{column}'"
            )
        frame = self.frames[column.table]
        return field_of(frame, find_column(frame, column.name, column.table))

    def _is_certain(self, column: Column) -> bool:
        return self._field(column).uncertain_model is None

    def _can_sweep(self, column: Column) -> bool:
        kind = self._field(column).arrow
        return kind is not None and (pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind.bit_width < 64))

    def _spelled(self, expression: Expression) -> Expression:
        """Name columns as their tables do, and refuse unknown ones and what never holds."""
        for column in columns_of(expression):
            self._field(column)
        spelled = respelled(expression, lambda column: self._field(column).name)
        refuse_equalities(spelled, lambda column: self._field(column).uncertain_model)
        return spelled

    @property
    def _certain_times(self) -> bool:
        return self.window is None or not any(self.window.uncertain)

    @property
    def _streaming(self) -> bool:
        return any(frame.streaming for frame in self.frames.values())

    def _advise(self) -> None:
        """Warn of what is answered, but probably not as it is meant."""
        expression, window = self.expression, self.window
        plain = None
        if expression is not None:
            plain = all_certain(expression, self._is_certain, self.options.threshold is not None)
        if plain is not None and self._certain_times:
            advise(plain, HOW_UNCERTAIN)
        if self._same_table and self.self_key is None:
            in_both = not self._certain_times and window is not None and window.left == window.right
            if in_both or (expression is not None and meets_itself(expression, "left", "right", self._is_certain)):
                advise(*taken_as_independent("left", "right"))

    # -- planning ------------------------------------------------------------------------------------------------------

    def plan(self) -> PairPlan | MixedJoin:
        """Return the plan of the join."""
        options = self.options
        if options.columns is not None:
            self._narrow()
        condition = JoinCondition()
        if self.expression is not None:
            found = split_join(self.expression, self._is_certain, self._can_sweep)
            if isinstance(found, Misfit):
                return self._mixed()
            condition = found
        self._check_strategy(condition)
        if condition.difference is not None:
            condition = self._check_difference(condition)
        if condition.distance is not None:
            condition = self._check_distance(condition)
        if self.self_key is not None:
            for side, frame in self.frames.items():
                find_column(frame, self.self_key, side)
        if self.window is not None and not self._certain_times:
            self._check_uncertain_time(condition, self.window)
        called: dict[tuple[str, str], str] = {}
        indexed: SideName | None = None
        window = self.window
        if self._streaming:
            self._check_streams()
        elif window is not None and (self.expression is None or not self._certain_times):
            called = {("left", TIME_NUMBER): window.left, ("right", TIME_NUMBER): window.right}
            condition = self._joined_in_time(condition, window)
            window = None
            self._check_itself(condition)
        elif condition.difference is not None and window is None:
            indexed = self._by_index(condition.difference)
        return self._pairs(condition, window, called, indexed)

    def _pairs(
        self,
        condition: JoinCondition,
        window: TimeWindow | None,
        called: dict[tuple[str, str], str],
        indexed: SideName | None,
    ) -> PairPlan:
        options, exact = self.options, self.options.probability == "exact"
        timing = self._streaming and (not self._certain_times or condition.compared is None)
        method, left, right = None, Side("left", self.frames["left"]), Side("right", self.frames["right"])
        if not timing:
            method, left, right = method_for(
                condition, left.frame, right.frame, self.threshold, exact, options.strategy
            )
        join = PairPlan(
            left, right, condition, self.threshold, method, exact, tuple(self.result), window=window,
            self_key=self.self_key, invalid=options.invalid, broadcast=options.broadcast, called=called,
            indexed=indexed,
        )  # fmt: skip
        check_broadcast(join)
        return join

    def _narrow(self) -> None:
        """Leave out columns that neither the result nor conditions need. A table with an index stays as it is."""
        needed: set[tuple[str, str]] = {(one.side, one.column) for one in self.result}
        if self.expression is not None:
            needed |= {(str(column.table), column.name) for column in columns_of(self.expression)}
        if self.window is not None:
            needed |= {("left", self.window.left), ("right", self.window.right)}
        if self.self_key is not None:
            needed |= {(side, find_column(frame, self.self_key, side)) for side, frame in self.frames.items()}
        for side, frame in self.frames.items():
            names = names_of(frame)
            kept = [name for name in names if (side, name) in needed] or names[:1]
            if len(kept) < len(names) and frame.index is None:
                self.frames[side] = frame.select(kept)

    def _mixed(self) -> MixedJoin:
        options = self.options
        for trouble, what in (
            (self._streaming, "streams"),
            (options.strategy != "auto", f"strategy='{options.strategy}'"),
            (self.self_key is not None, "self_key"),
            (self.window is not None, "a window"),
        ):
            if trouble:
                raise HaplyError(
                    f"A join with several uncertain conditions, or one on several columns, does not go with {what}",
                    expected="two tables, or one condition on the difference or distance of a column of each",
                    hint="join by one condition, then hp.where on the result" if what == "streams" else "",
                )
        assert self.expression is not None
        return MixedJoin(
            self.frames["left"], self.frames["right"], self.expression, self.threshold,
            options.probability == "exact", options.invalid, tuple(self.result), options.broadcast,
        )  # fmt: skip

    def _by_index(self, difference: Difference) -> SideName | None:
        """Name the side whose index finds the candidates, if one does: for a difference within an interval."""
        asked = self.self_key, self.options.broadcast, self.options.strategy
        region = difference.region
        if asked != (None, None, "auto") or region.outside or region.one_sided:
            return None
        sides: tuple[tuple[SideName, str], ...] = ("right", difference.right), ("left", difference.left)
        for side, compared in sides:
            index = self.frames[side].index
            if index is not None and index.column == compared:
                return side
        return None

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check_strategy(self, condition: JoinCondition) -> None:
        kind = "distance" if condition.distance is not None else "difference"
        if self._streaming and kind == "difference" and (condition.difference is None or not self._certain_times):
            kind = "uncertain times"
        if self.options.strategy not in FITTING[kind]:
            raise HaplyError(
                f"Strategy '{self.options.strategy}' does not fit this join",
                expected="one of " + ", ".join(FITTING[kind]),
                found=f"'{self.options.strategy}'",
            )

    def _check_difference(self, condition: JoinCondition) -> JoinCondition:
        """Refuse what a one-dimensional join cannot answer."""
        difference = condition.difference
        assert difference is not None
        names = {}
        for side, wanted in (("left", difference.left), ("right", difference.right)):
            field = field_of(self.frames[side], find_column(self.frames[side], wanted, side))
            model = field.model
            if model is None or not issubclass(model, OneDimensional):
                raise HaplyError(
                    f"Column '{field.name}' of the {side} table is not a number that may be uncertain",
                    expected="a one-dimensional model or a number",
                    found=field.text,
                )
            if self.threshold.value is None and not model.bounded:
                raise without_threshold(f"'{field.name}' of the {side} table", model.kind)
            names[side] = field.name
        return replace(condition, difference=Difference(names["left"], names["right"], difference.region))

    def _check_distance(self, condition: JoinCondition) -> JoinCondition:
        """Refuse what are no points."""
        distance = condition.distance
        assert distance is not None
        names = {}
        for side, wanted in (("left", distance.left), ("right", distance.right)):
            field = field_of(self.frames[side], find_column(self.frames[side], wanted, side))
            model = position_model(field)
            if model is None:
                raise HaplyError(
                    f"Column '{field.name}' of the {side} table holds no points",
                    expected="hp.gaussian_nd, hp.mixture_nd, hp.samples, hp.sky, an array of numbers, or a number",
                    found=field.text,
                )
            if self.threshold.value is None and model in NORMALS:
                raise without_threshold(f"'{field.name}' of the {side} table", model.kind)
            names[side] = field.name
        return replace(condition, distance=replace(distance, left=names["left"], right=names["right"]))

    def _check_uncertain_time(self, condition: JoinCondition, window: TimeWindow) -> None:
        """Refuse a time that is part of the condition, and a time without end if there is no threshold."""
        used = condition.difference or condition.distance
        for side, name, uncertain, other in (
            ("left", window.left, window.uncertain[0], used.left if used else None),
            ("right", window.right, window.uncertain[1], used.right if used else None),
        ):
            if not uncertain:
                continue
            if name == other:
                raise HaplyError(
                    f"Column '{name}' of the {side} table is the time and part of another uncertain condition",
                    expected="conditions on different columns: their probabilities multiply",
                    found=f"'{name}' in both",
                )
            model = field_of(self.frames[side], name).model
            assert model is not None
            if self.threshold.value is None and not getattr(model, "bounded", False):
                raise without_threshold(f"'{name}' of the {side} table", model.kind)

    def _check_streams(self) -> None:
        """Refuse what a join of streams cannot do yet."""
        if not all(frame.streaming for frame in self.frames.values()):
            raise HaplyError(
                "One side of the join is a stream and the other a table",
                expected="two streams or two tables",
                hint="read the table as a stream as well",
            )
        if self.window is None:
            raise HaplyError(
                "A join of streams has no window", expected="time and window", hint='time="t", window="10 minutes"'
            )
        if self.self_key is not None:
            raise HaplyError("A join of streams takes no self_key in this version")
        if self.options.broadcast is not None:
            raise HaplyError("A stream cannot be broadcast", expected="two tables", hint="leave out broadcast")
        self.frames["left"].engine.check_streams(self.frames["left"])

    def _check_itself(self, condition: JoinCondition) -> None:
        """Refuse a row that would be one variable with itself in one condition, and two in another."""
        conditions = [one for one in (condition.difference, condition.distance, *condition.further) if one is not None]
        same = [one.left == one.right for one in conditions]
        if self.self_key is not None and any(same) and not all(same):
            two = conditions[same.index(False)]
            raise HaplyError(
                "self_key does not go with conditions on one column and on two different ones",
                expected="conditions that each compare a column with itself",
                found=f"'{two.left}' with '{two.right}'",
            )

    def _joined_in_time(self, condition: JoinCondition, window: TimeWindow) -> JoinCondition:
        """Make the window a condition on the difference of two times, certain ones as numbers in their own column."""
        names = []
        for side, name, uncertain in zip(("left", "right"), (window.left, window.right), window.uncertain, strict=True):
            if not uncertain:
                self.frames[side] = self.frames[side].with_time(TIME_NUMBER, window, name, name)
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
        if self.self_key is not None and not any(window.uncertain):
            # what is one variable is taken to be in one place, but its rows may be of other times, and these are known
            together = parse(f"abs(left.{TIME_NUMBER} - right.{TIME_NUMBER}) <= {window.length!r}")
            condition = replace(condition, residual=(*condition.residual, together))
        return condition
