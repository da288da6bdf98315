"""Joins of many tables or streams under a graph of time windows: checked before any data is read, and planned."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from haply.errors import HaplyError, advise, unknown_name
from haply.joins.cells.asked import Together, on_side
from haply.joins.cells.rows import TIME, RowSpec, window_ahead
from haply.joins.operators.window import ALGORITHMS, WindowJoin
from haply.models import Certain, Model
from haply.planning.frames import HOW_UNCERTAIN, Frame, field_of, find_column, names_of, quoted
from haply.planning.times import certain_times, length_of
from haply.probability.joint import ZERO
from haply.pruning.candidates.windows import POLICIES
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, respelled, to_sql
from haply.query.checks import all_certain, refuse_equalities
from haply.query.rewrites import ManyCondition, split_many
from haply.query.text import parse


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
        self.frames, self.algorithm, self.policy = dict(streams), algorithm, windows_policy
        self.names = tuple(self.frames)
        for pair in windows:
            for name in pair if isinstance(pair, tuple) else (pair,):
                if name not in self.frames:
                    raise unknown_name("stream", str(name), self.names)
        times = self._by_stream("time", time)
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
        keys = {} if key is None else self._by_stream("key", key)
        self.keys = {name: find_column(self.frames[name], column, name) for name, column in keys.items()}
        self._on = parse(on) if isinstance(on, str) else on
        self.conditions = self._split(self._on)
        self.together = self._joint()
        self.streaming = any(frame.streaming for frame in self.frames.values())
        if self.streaming:
            if not all(frame.streaming for frame in self.frames.values()):
                raise HaplyError("Some of the streams are tables", expected="all streams, or all tables")
            self.first.engine.check_streams(self.first)

    @property
    def first(self) -> Frame:
        """The first table or stream."""
        return next(iter(self.frames.values()))

    def row_spec(self, name: str) -> RowSpec:
        """What to know of a stream's rows, by the inner names of its columns."""
        called = dict(zip(self.inners[name], (field.name for field in self.frames[name].fields), strict=True))
        uncertain = self.together.columns(self.names.index(name)) if self.together else ()
        further = tuple((column, called[column]) for column in uncertain)
        place, raise_as = partial(window_ahead, reach=self.reach), f"Column '{{}}' of stream '{name}'"
        return RowSpec(TIME, tuple(self.inners[name]), further, place, self.times[name], raise_as)

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
        return field_of(self.frames[column.table], column.name).uncertain_model

    def _joint(self) -> Together | None:
        """What is uncertain, over the columns as they are named inside."""
        inner, kinds = {ZERO: ZERO}, {}
        for text, column in self.conditions.columns.items():
            if column.index is not None:
                raise HaplyError(f"`{text}` is a component of a column", expected="whole columns in a join of many")
            assert column.table is not None
            inner[text] = on_side(self.names.index(column.table), self.inner_name(column))
            kinds[inner[text]] = self._kind(column) or Certain
        return Together.of([one.renamed(inner.__getitem__) for one in self.conditions.uncertain], kinds, self.threshold)

    def run(self, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        return self.first.engine.combinations(self, funnel)

    # -- what engines ask ----------------------------------------------------------------------------------------------

    @property
    def certain_sql(self) -> list[str]:
        """SQL for certain conditions on combinations, over inner names."""
        return [to_sql(condition, self.inner_column) for condition in self.conditions.certain]

    @cached_property
    def inners(self) -> dict[str, list[str]]:
        """What the columns of each stream are called inside of the plan."""
        return {name: [f"s{n}_{k}" for k in range(len(self.frames[name].fields))] for n, name in enumerate(self.names)}

    def inner(self, name: str, column: str) -> str:
        """What a column of a stream is called inside of the plan."""
        return self.inners[name][names_of(self.frames[name]).index(column)]

    def inner_name(self, column: Column) -> str:
        """What a column of a condition is called inside of the plan."""
        assert column.table is not None
        return self.inner(column.table, find_column(self.frames[column.table], column.name, column.table))

    def inner_column(self, column: Column) -> str:
        """The same as SQL text."""
        return quoted(self.inner_name(column))

    def explain(self) -> str:
        """How the join will run, in words."""
        kind = "streams" if self.streaming else "tables"
        unit = " microseconds" if self.clock_times.stamps else ""
        windows = ", ".join(f"{one}-{other} {length:g}{unit}" for (one, other), length in self.windows.items())
        lines = [
            "Window join",
            f"  {kind:<14}{', '.join(f'{name} by {self.times[name]}' for name in self.names)}",
            f"  windows       {windows}; all rows of a combination within {self.reach:g}{unit}",
        ]
        if self.keys:
            lines.append(f"  key           {' = '.join(f'{name}.{column}' for name, column in self.keys.items())}")
        if self._on is not None:
            lines.append(f"  condition     {self._on}")
            lines += [f"  {name:<13} {made}" for name, made in self.conditions.steps]
        if self.conditions.uncertain:
            needed = "P > 0" if self.threshold.value is None else f"P >= {self.threshold.value:g}"
            lines.append(f"  probability   that of all uncertain conditions together, {needed}")
        else:
            lines.append("  probability   every condition is certain: 1.0")
        lines.append(f"  algorithm     {self.algorithm}, windows {self.policy}")
        return "\n".join(lines)
