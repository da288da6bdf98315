"""Joins of many tables or streams under a graph of time windows: checked before any data is read, and planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from haply.errors import HaplyError, advise, unknown_name
from haply.joins.cells.asked import Together, on_side
from haply.joins.cells.rows import TIME, RowSpec, window_ahead
from haply.joins.operators.window import ALGORITHMS, WindowJoin
from haply.models import Certain, Model
from haply.planning.constructors import bound_constructors
from haply.planning.explain import Description
from haply.planning.frames import HOW_UNCERTAIN, Engine, Frame, field_of, find_column, names_of, quoted
from haply.planning.nodes import by_table, condition_of, refuse_no_numbers, unit_in
from haply.planning.selection import RowSelection, plan_selection
from haply.planning.times import certain_times, length_of
from haply.probability.joint import ZERO, Joint
from haply.pruning.candidates.windows import POLICIES
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, respelled, to_sql, with_columns
from haply.query.checks import all_certain, refuse_equalities, refuse_units
from haply.query.conditions import Misfit
from haply.query.expressions import And
from haply.query.rewrites import ManyCondition, split_many


class WindowPlan:
    """A window join that has been checked and planned but not run."""

    def __init__(
        self,
        streams: Mapping[str, Frame],
        windows: Mapping[tuple[str, str], Any],
        *,
        key: str | Mapping[str, str] | None,
        on: Expression | str | None,
        threshold: float | None,
        time: str | Mapping[str, str],
        max_delay: Any,
        algorithm: str,
        windows_policy: str,
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise unknown_name("algorithm", algorithm, ALGORITHMS)
        if windows_policy not in POLICIES:
            raise unknown_name("policy of windows", windows_policy, POLICIES)
        self.threshold = Threshold(threshold)
        self.algorithm, self.policy = algorithm, windows_policy
        self.names = tuple(streams)
        self.shown = {name: names_of(frame) for name, frame in streams.items()}
        self.frames, self._on = conditions_over(streams, on)
        for pair in windows:
            for name in pair if isinstance(pair, tuple) else (pair,):
                if name not in self.frames:
                    raise unknown_name("stream", str(name), self.names)
        times = by_table("time", time, self.names)
        self.times = {name: find_column(self.frames[name], times[name], name) for name in self.names}
        self.clock_times = certain_times({name: (self.frames[name], self.times[name]) for name in self.names})
        stamps = self.clock_times.stamps
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
        keys = {} if key is None else by_table("key", key, self.names)
        self.keys = {name: find_column(self.frames[name], column, name) for name, column in keys.items()}
        found = uncertain_conditions(self.frames, self._on)
        if isinstance(found, Misfit):
            raise found.error
        self.conditions = found
        self._advise()
        inner, kinds = self._inner_kinds()
        self.together = Together.of([one.renamed(inner.__getitem__) for one in found.uncertain], kinds, self.threshold)
        self.streaming = any(frame.streaming for frame in self.frames.values())
        if self.streaming:
            if not all(frame.streaming for frame in self.frames.values()):
                raise HaplyError("Some of the streams are tables", expected="all streams, or all tables")
            self.first.check_streams()

    @property
    def first(self) -> Frame:
        """Return the first table or stream."""
        return next(iter(self.frames.values()))

    def row_spec(self, name: str) -> RowSpec:
        """Return the description of a stream's rows, by the inner names of its columns."""
        called = dict(zip(self.inners[name], (field.name for field in self.frames[name].fields), strict=True))
        uncertain = self.together.columns(self.names.index(name)) if self.together else ()
        further = tuple((column, called[column]) for column in uncertain)
        place, raise_as = partial(window_ahead, reach=self.reach), f"Column '{{}}' of stream '{name}'"
        return RowSpec(TIME, tuple(self.inners[name]), further, place, self.times[name], raise_as)

    def _check_names(self, what: str, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self.frames:
                raise unknown_name(f"stream with a {what}", str(name), self.names)

    def _advise(self) -> None:
        """Warn of a query that is answered, but probably not as intended."""
        if self._on is None:
            return
        plain = all_certain(
            self._on, lambda column: _kind(self.frames, column) is None, self.threshold.value is not None
        )
        if plain is not None:
            advise(plain, HOW_UNCERTAIN)

    def _inner_kinds(self) -> tuple[dict[str, str], dict[str, type[Model]]]:
        """Return the names inside of the plan of what is uncertain, and the models by these names."""
        inner, kinds = {ZERO: ZERO}, {}
        for text, column in self.conditions.columns.items():
            inner[text] = on_side(self.names.index(str(column.table)), self.inner_name(column))
            kinds[inner[text]] = _kind(self.frames, column) or Certain
        return inner, kinds

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        found = engine.combinations(self, funnel)
        shown = [f"{name}_{column}" for name, columns in self.shown.items() for column in columns]
        wanted = [*shown, "probability"]
        return found if names_of(found) == wanted else found.select(wanted)

    # -- for engines ----------------------------------------------------------------------------------------------

    @property
    def certain_sql(self) -> list[str]:
        """SQL for certain conditions on combinations, over inner names."""
        return [to_sql(condition, self.inner_column) for condition in self.conditions.certain]

    @cached_property
    def inners(self) -> dict[str, list[str]]:
        """Return what the columns of each stream are called inside of the plan."""
        return {name: [f"s{n}_{k}" for k in range(len(self.frames[name].fields))] for n, name in enumerate(self.names)}

    def inner(self, name: str, column: str) -> str:
        """Return what a column of a stream is called inside of the plan."""
        return self.inners[name][names_of(self.frames[name]).index(column)]

    def inner_name(self, column: Column) -> str:
        """Return what a column of a condition is called inside of the plan."""
        assert column.table is not None
        return self.inner(column.table, find_column(self.frames[column.table], column.name, column.table))

    def inner_column(self, column: Column) -> str:
        """Return the same as SQL text."""
        return quoted(self.inner_name(column))

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run."""
        kind = "streams" if self.streaming else "tables"
        unit = " microseconds" if self.clock_times.stamps else ""
        windows = ", ".join(f"{one}-{other} {length:g}{unit}" for (one, other), length in self.windows.items())
        reach = f"{self.reach:g}{unit}"
        lines = [
            (kind, ", ".join(f"{name} by {self.times[name]}" for name in self.names)),
            ("windows", f"{windows}; all rows of a combination within {reach}"),
        ]
        if self.keys:
            lines.append(("key", " = ".join(f"{name}.{column}" for name, column in self.keys.items())))
        if self._on is not None:
            lines.append(("condition", str(self._on)))
        if self.conditions.uncertain:
            lines.append(("probability", f"that of all uncertain conditions together, {self.threshold.describe()}"))
        else:
            lines.append(("probability", "every condition is certain: 1.0"))
        lines.append(("algorithm", f"{self.algorithm}, windows {self.policy}"))
        verdict = f"Only rows within {reach} of each other{' and with equal keys' if self.keys else ''} are combined."
        return Description("Window join", verdict, tuple(lines), tuple(self.conditions.steps))


class SelectedWindows:
    """A window join by what is certain, and a selection among its combinations by all that is uncertain.

    It answers any condition, also those whose probability the join itself cannot compute; it looks at all combinations
    in the windows.
    """

    def __init__(self, plan: WindowPlan, uncertain: Expression, threshold: Threshold) -> None:
        self.plan, self.threshold = plan, threshold
        self.first = plan.first
        self._condition = with_columns(uncertain, lambda one: replace(one, table=None, name=f"{one.table}_{one.name}"))
        whole, *others = (
            frame.select(plan.shown[name]).renamed([f"{name}_{column}" for column in plan.shown[name]])
            for name, frame in plan.frames.items()
        )
        for other in others:
            whole = whole.beside(other)
        self._described = self._selection(whole)  # refuses conditions that it cannot compute, before any data is read

    def _selection(self, combinations: Frame) -> RowSelection:
        return plan_selection(combinations, self._condition, self.threshold)

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        found = self.plan.run(engine, funnel)
        names = [name for name in names_of(found) if name != "probability"]
        return self._selection(found.select(names)).run(engine, None)

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run."""
        found = self.plan.describe(engine)
        return replace(found, title=f"{found.title}, then a selection", parts=(self._described.describe(engine),))


def plan_windows(
    streams: Mapping[str, Frame],
    windows: Mapping[tuple[str, str], Any],
    *,
    on: Expression | str | None,
    threshold: float | None,
    **options: Any,
) -> WindowPlan | SelectedWindows:
    """Check and plan a window join; the arguments are those of ``hp.window_join``."""
    given = None if on is None else condition_of(on)
    frames, condition = conditions_over(streams, given)
    misfit = uncertain_conditions(frames, condition)
    if given is None or not isinstance(misfit, Misfit):
        return WindowPlan(streams, windows, on=on, threshold=threshold, **options)
    certain: list[Expression] = []
    uncertain: list[Expression] = []
    for part in given.conditions if isinstance(given, And) else (given,):
        bound, spelled = conditions_over(streams, part)
        assert spelled is not None
        is_certain = all(_kind(bound, column) is None for column in columns_of(spelled))
        (certain if is_certain else uncertain).append(part)
    base = WindowPlan(streams, windows, on=_both(certain), threshold=None, **options)
    whole = _both(uncertain)
    assert whole is not None
    return SelectedWindows(base, whole, Threshold(threshold))


def _both(conditions: Sequence[Expression]) -> Expression | None:
    """Return all conditions as one; none if there are none."""
    return And(tuple(conditions)) if len(conditions) > 1 else conditions[0] if conditions else None


def conditions_over(
    streams: Mapping[str, Frame], on: Expression | str | None
) -> tuple[dict[str, Frame], Expression | None]:
    """Return the tables with the columns that constructors make, and the condition with their spelling of names."""
    tables: dict[str | None, Frame] = dict(streams.items())
    if on is None:
        return dict(streams), None
    condition = condition_of(on)
    refuse_units(condition, lambda column: unit_in(tables, column))
    condition = bound_constructors(condition, tables)
    frames = {name: tables[name] for name in streams}

    def spelled(column: Column) -> str:
        if column.table not in frames:
            raise unknown_name("stream", str(column.table), list(frames))
        return find_column(frames[column.table], column.name, column.table)

    condition = respelled(condition, spelled)
    refuse_no_numbers(condition, lambda column: field_of(frames[str(column.table)], column.name))
    refuse_equalities(condition, lambda column: _kind(frames, column))
    return frames, condition


def uncertain_conditions(frames: Mapping[str, Frame], condition: Expression | None) -> ManyCondition | Misfit:
    """Sort a condition between many tables, or return why its probability cannot be computed."""
    if condition is None:
        return ManyCondition((), (), {})
    found = split_many(condition, lambda column: _kind(frames, column) is None)
    if isinstance(found, Misfit):
        return found
    for text, column in found.columns.items():
        if column.index is not None:
            expected = "whole columns in a join of many"
            return Misfit(HaplyError(f"`{text}` is a component of a column", expected=expected))
    kinds = {text: _kind(frames, column) or Certain for text, column in found.columns.items()}
    problem = Joint.problem(found.uncertain, kinds)
    return found if problem is None else Misfit(problem)


def _kind(frames: Mapping[str, Frame], column: Column) -> type[Model] | None:
    """Return the model of an uncertain column; none if it is certain."""
    return field_of(frames[str(column.table)], column.name).uncertain_model
