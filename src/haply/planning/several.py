"""Strategies for joins of any number of tables, as SQL asks for them.

The most general is a chain of joins of two, and one selection at the end over the wide rows.

Each join of the chain keeps what can still be in the result: all conditions together are at most as likely as some
of them. The selection at the end sees all uncertain conditions at once and gives their joint probability, because
conditions that share a value are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haply.errors import HaplyError, without_advice
from haply.planning.answers.join import plan_pairs
from haply.planning.explain import Description
from haply.planning.frames import Engine, Frame, ProbabilityMode, SideName, Wording, field_of, names_of, quoted
from haply.planning.join import JOINS
from haply.planning.nodes import JoinNode, JoinOptions, TablesNode, result_columns
from haply.planning.pairs import PairPlan
from haply.planning.plans import Chosen, DoesNotFit, Fits, Registry
from haply.planning.selection import RowSelection, plan_selection
from haply.planning.times import time_window
from haply.planning.windows import WindowPlan, conditions_over, uncertain_conditions
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, Literal, columns_of, to_sql, with_columns
from haply.query.conditions import Misfit
from haply.query.expressions import And, Comparison, Or
from haply.query.forms import never

SLACK = 1e-9
"""By how much the joins before the last selection lower the threshold: they round differently."""
SUFFIXES = ("__haply_left", "__haply_right")
"""For names that both tables have: columns of the result are taken by their position."""
_WINDOWS, _CHAIN = 1.0, 20.0
"""Microseconds for a candidate, about."""


@dataclass(frozen=True)
class Step:
    """One join of the chain: a table, and the conditions that connect it with those before."""

    table: str
    certain: tuple[Expression, ...]
    uncertain: tuple[Expression, ...]
    partners: float | None = None
    """About how many of its rows a row of the tables before meets, if an index knows."""


class ChainedJoin:
    """A join of several tables that has been checked and planned but not run.

    The result has the requested columns of all tables, in order, under new names, then
    ``probability``.
    """

    def __init__(self, node: TablesNode) -> None:
        self.node, self.threshold = node, node.threshold
        self._tables = node.names
        self._inner = _inner_names(node.frames)
        self._frames = {
            table: frame.renamed([self._inner[table, column] for column in names_of(frame)])
            for table, frame in node.frames.items()
        }
        inner = [with_columns(condition, self._renamed) for condition in node.conditions]
        inner += self._window_conditions()
        self._uncertain = [one for one in inner if not all(map(self._is_certain, columns_of(one)))]
        self._certain = [one for one in inner if all(map(self._is_certain, columns_of(one)))]
        self._selection(self._product(self._tables))  # refuses here what it cannot compute
        self._steps: list[Step] = []
        self.problem = self._chain()

    # -- names ---------------------------------------------------------------------------------------------------------

    def _renamed(self, column: Column) -> Column:
        assert column.table is not None
        return replace(column, name=self._inner[column.table, column.name])

    def _is_certain(self, column: Column) -> bool:
        assert column.table is not None
        return field_of(self._frames[column.table], column.name).uncertain_model is None

    def _window_conditions(self) -> Iterator[Expression]:
        """Make conditions on the difference of two times of windows; certain times are columns of numbers."""
        frames, times = self.node.frames, self.node.times
        for (one, other), length in self.node.windows.items():
            wording = Wording(one, other)
            window = time_window(frames[one], frames[other], (times[one], times[other]), length, 0, wording)
            assert window is not None
            ends: list[Expression] = []
            sides = zip((one, other), (window.left, window.right), window.uncertain, strict=True)
            for table, name, uncertain in sides:
                inner = self._inner[table, name]
                if not uncertain:
                    number = f"__haply_{inner}_{'seconds' if any(window.uncertain) else 'number'}"
                    self._frames[table] = self._frames[table].with_time(number, window, inner, name)
                    inner = number
                ends.append(Column(table, inner))
            yield abs(ends[0] - ends[1]) <= window.length

    # -- planning ------------------------------------------------------------------------------------------------------

    def _chain(self) -> HaplyError | None:
        """Order the tables: those that a condition connects with those before come first, equalities before all else.

        Of several that uncertain conditions connect, the one whose index promises the fewest partners.
        Returns why a table cannot be joined, if one cannot.
        """
        joined = [self._tables[0]]
        while len(joined) < len(self._tables):
            rest = [table for table in self._tables if table not in joined]
            steps: dict[str, Step | DoesNotFit] = {
                table: self._step(joined, table)
                for table in rest
                if self._frames[table].index is not None and self._rank(joined, table) == 2
            }
            fewest = {
                table: step.partners
                for table, step in steps.items()
                if isinstance(step, Step) and step.partners is not None
            }
            best = max(rest, key=lambda table: (self._rank(joined, table), -fewest.get(table, math.inf)))
            step = steps.get(best) or self._step(joined, best)
            if isinstance(step, DoesNotFit):
                return step.error
            self._steps.append(step)
            joined.append(best)
        return None

    @staticmethod
    def _between(conditions: Iterable[Expression], joined: Sequence[str], table: str) -> list[Expression]:
        """Conditions on a table and on tables that are joined already."""
        tables = [(one, {column.table for column in columns_of(one)}) for one in conditions]
        return [one for one, named in tables if table in named and len(named) > 1 and named <= {*joined, table}]

    @staticmethod
    def _own(conditions: Iterable[Expression], table: str) -> list[Expression]:
        return [one for one in conditions if {column.table for column in columns_of(one)} == {table}]

    def _rank(self, joined: Sequence[str], table: str) -> int:
        certain = self._between(self._certain, joined, table)
        if any(isinstance(one, Comparison) and one.op == "=" for one in certain):
            return 3
        return 2 if self._between(self._uncertain, joined, table) else 1 if certain else 0

    def _step(self, joined: list[str], table: str) -> Step | DoesNotFit:
        """Take all conditions that connect a table with those before, if a join of two fits; else the certain ones."""
        certain = tuple(self._between(self._certain, joined, table))
        uncertain = tuple(self._between(self._uncertain, joined, table))
        whole = Step(table, certain, uncertain)
        chosen = self._join(self._product(joined), self._frames[table], whole)
        if isinstance(chosen, DoesNotFit):
            if not uncertain or (self.threshold.value is None and not certain):
                return chosen
            return Step(table, certain, ())  # the last selection decides
        if isinstance(chosen.query, PairPlan):
            return replace(whole, partners=chosen.query.partners)
        return whole

    # -- running it ----------------------------------------------------------------------------------------------------

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Return the combinations."""
        wide = self._first(engine, self._tables[0])
        for step in self._steps:
            chosen = self._join(wide, self._first(engine, step.table), step)
            assert isinstance(chosen, Chosen)
            wide = chosen.run(engine, None)
        selected = self._selection(wide)
        if selected is not None:
            wide = selected.run(engine, funnel)
        elif self.node.exact:
            wide = wide.with_columns({"probability": "1D"})
        used = self.node.used
        names = [name for key, name in self._inner.items() if used is None or key in used]
        return wide.select([*names, *(["probability"] if self.node.exact else [])])

    def _selection(self, wide: Frame) -> RowSelection | None:
        """Plan the selection by all uncertain conditions; none if there are none."""
        if not self._uncertain:
            return None
        mode: ProbabilityMode = "exact" if self.node.exact else "none"
        return plan_selection(
            wide, _alone(self._uncertain), self.threshold, probability=mode, invalid=self.node.invalid
        )  # fmt: skip

    def _product(self, tables: Sequence[str]) -> Frame:
        """Make the product of tables, to find its types; it is never run."""
        whole = self._frames[tables[0]]
        for table in tables[1:]:
            whole = whole.beside(self._frames[table])
        return whole

    def _first(self, engine: Engine, table: str) -> Frame:
        """Keep the rows of a table that pass its own conditions."""
        frame = self._frames[table]
        for condition in self._own(self._certain, table):
            frame = frame.where(to_sql(condition, lambda column: quoted(column.name)))
        own = self._own(self._uncertain, table)
        if not own:
            return frame
        selection = plan_selection(
            frame, _alone(own), self._lenient, probability="none", invalid=self.node.invalid
        )  # fmt: skip
        return selection.run(engine, None)

    @property
    def _lenient(self) -> Threshold:
        """Return the threshold of the joins before the last selection, which round differently."""
        value = self.threshold.value
        return Threshold(None if value is None else max(value - SLACK, value / 2))

    def _join(self, left: Frame, right: Frame, step: Step) -> Chosen | DoesNotFit:
        def on_side(column: Column) -> Column:
            return replace(column, table="right" if column.table == step.table else "left")

        on = _all([with_columns(part, on_side) for part in (*step.certain, *step.uncertain)])
        options = JoinOptions(
            threshold=self._lenient.value, probability="none", invalid=self.node.invalid,
            only_candidates=bool(self._uncertain),
        )  # fmt: skip
        with without_advice():
            return JOINS.choose(JoinNode.of(left, right, on, options))

    # -- explaining it -------------------------------------------------------------------------------------------------

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run."""
        lines = []
        for table in self._tables:
            own = [*self._own(self._certain, table), *self._own(self._uncertain, table)]
            lines.append((f"table {table}", "; ".join(map(self._text, own)) if own else "all rows"))
        for step in self._steps:
            by = [self._text(one) for one in step.certain]
            by += [f"{self._text(one)} (uncertain)" for one in step.uncertain]
            if step.partners is not None:
                by.append(f"by its index, about {step.partners:.2g} partners a row")
            lines.append((f"join  {step.table}", "; ".join(by) if by else "with every row so far"))
        verdict = f"The tables are joined one after the other: {', '.join(self._order)}."
        selected = self._selection(self._product(self._tables))
        if selected is None:
            lines.append(("selection", "none: every condition is certain, probability 1.0"))
            return Description("Join of several tables", verdict, tuple(lines))
        joint = " AND ".join(map(self._text, self._uncertain))
        lines.append(("selection", f"{joint}: one joint probability"))
        return Description("Join of several tables", verdict, tuple(lines), parts=(selected.describe(engine),))

    @property
    def _order(self) -> list[str]:
        return [self._tables[0], *(step.table for step in self._steps)]

    def _text(self, condition: Expression) -> str:
        """Return a condition as it was written."""
        outer = {inner: Column(*key) for key, inner in self._inner.items()}

        def original(column: Column) -> Column:
            return replace(outer[column.name], index=column.index) if column.name in outer else column

        return str(with_columns(condition, original))


def as_join(node: TablesNode) -> tuple[Expression | None, JoinOptions]:
    """Return the condition and the options with which ``hp.join`` is asked for the same join of two tables."""
    left, right = node.names
    sides: dict[str, SideName] = {left: "left", right: "right"}
    on: Expression | None = None
    if node.conditions or not node.windows:  # without any it is the cross product, as it is written
        on = _all([with_columns(one, lambda c: replace(c, table=sides[str(c.table)])) for one in node.conditions])
    timed: dict[str, Any] = {}
    if node.windows:
        (length,) = node.windows.values()
        timed = {"time": (node.times[left], node.times[right]), "window": length, "max_delay": node.max_delay}
    return on, JoinOptions(
        threshold=node.threshold.value, strict=node.threshold.strict, probability="exact" if node.exact else "none",
        invalid=node.invalid, suffixes=SUFFIXES, columns=used_columns(node, ("probability",) if node.exact else ()),
        broadcast=None if node.broadcast is None else sides[node.broadcast], answer=node.answer,
        exclusive=node.exclusive,
        wording=Wording(left, right, "write WITH THRESHOLD 0.01"), **timed,
    )  # fmt: skip


def used_columns(node: TablesNode, added: Sequence[str]) -> list[str]:
    """Name the columns that a join of two tables returns with ``SUFFIXES``, before those that it adds."""
    tables = dict(zip(("left", "right"), node.names, strict=True))
    names = [names_of(frame) for frame in node.frames.values()]
    shown = result_columns(names[0], [] if node.answer.left_only else names[1], SUFFIXES, added)
    return [one.name for one in shown if node.used is None or (tables[one.side], one.column) in node.used]


class TwoTables:
    """A join of two tables, as ``hp.join`` makes it."""

    name = "join of two"
    cheapest = 0.0

    def fits(self, node: TablesNode) -> Fits | DoesNotFit:
        """Fit two tables or streams."""
        if len(node.frames) != 2:
            return DoesNotFit(HaplyError("there are more than two tables"))
        left, right = node.frames.values()
        on, options = as_join(node)
        join = JoinNode.of(left, right, on, options)
        if not node.answer.plain:  # no other strategy can answer these
            answered = plan_pairs(join)
            return Fits(0.0, lambda: answered)
        chosen = JOINS.choose(join)
        if isinstance(chosen, DoesNotFit):
            meant = chosen.meant or node.streaming or node.broadcast is not None
            return replace(chosen, meant=meant)
        return Fits(chosen.cost, lambda: chosen)


class WindowedTables:
    """A join of many tables in windows of certain times, as ``hp.window_join`` makes it."""

    name = "window join"
    cheapest = _WINDOWS

    def fits(self, node: TablesNode) -> Fits | DoesNotFit:
        """Fit tables or streams that windows connect, with conditions whose joint probability has a formula."""
        reason = self._misses(node)
        if reason:
            return DoesNotFit(HaplyError(reason))
        key, rest = _key(node)
        on = _all(rest) if rest else None
        frames, condition = conditions_over(node.frames, on)
        found = uncertain_conditions(frames, condition)
        if isinstance(found, Misfit):
            return DoesNotFit(found.error, meant=node.streaming)
        plan = WindowPlan(
            node.frames, node.windows, key=key, on=on, threshold=node.threshold.value, time=node.times,
            max_delay=node.max_delay, algorithm="auto", windows_policy="exact",
        )  # fmt: skip
        return Fits(_WINDOWS, lambda: _Narrowed(plan, node))

    @staticmethod
    def _misses(node: TablesNode) -> str:
        """Return why a window join does not fit."""
        if len(node.frames) < 3:
            return "there are only two tables"
        if node.broadcast is not None:
            return "a table is to be broadcast"
        if set(node.times) != set(node.frames) or not _connected(node):
            return "windows do not connect all tables"
        if node.threshold.strict and node.uncertain:
            return "a join in windows knows no strict threshold"
        if any(not node.is_certain(Column(name, time)) for name, time in node.times.items()):
            return "a time is uncertain"
        return ""


class Chain:
    """Joins of two, one after the other, and one selection by all uncertain conditions at the end."""

    name = "chain"
    cheapest = _CHAIN

    def fits(self, node: TablesNode) -> Fits | DoesNotFit:
        """Fit any tables."""
        if node.streaming:
            return DoesNotFit(
                HaplyError(
                    "Streams need windows that connect them all",
                    expected="WINDOW(A, B) = d for certain times",
                    hint="join tables otherwise, or two streams",
                )
            )
        if node.broadcast is not None:
            return DoesNotFit(HaplyError("BROADCAST is for a join of two tables"))
        join = ChainedJoin(node)
        return Fits(_CHAIN, lambda: join) if join.problem is None else DoesNotFit(join.problem)


class TablesStrategies(Registry[TablesNode]):
    """The strategies for any number of tables; a condition whose parts exclude one another is joined part by part."""

    def choose(self, node: TablesNode) -> Chosen | DoesNotFit:
        """Take the cheapest strategy that fits, for each part of the condition if it has parts."""
        if not node.exclusive or len(node.frames) == 2:
            return super().choose(node)
        (condition,) = node.conditions
        assert isinstance(condition, Or)
        parts = [part for part in condition.conditions if not never(part, node.is_certain)]
        return self.by_parts(
            [
                replace(node, conditions=part.conditions if isinstance(part, And) else (part,), exclusive=False)
                for part in parts or condition.conditions[:1]
            ]
        )


TABLES = TablesStrategies((TwoTables(), WindowedTables(), Chain()))
"""All strategies for joins of any number of tables."""


@dataclass(frozen=True)
class _Narrowed:
    """A window join that returns only the columns that are used."""

    plan: WindowPlan
    node: TablesNode

    def run(self, engine: Engine, funnel: Any) -> Frame:
        found = self.plan.run(engine, funnel)
        keys = [(table, column) for table, frame in self.node.frames.items() for column in names_of(frame)]
        shown = names_of(found)
        names = [
            name for key, name in zip(keys, shown, strict=False) if self.node.used is None or key in self.node.used
        ]
        return found.select([*names, *(shown[-1:] if self.node.exact else [])])

    def describe(self, engine: Engine) -> Description:
        return self.plan.describe(engine)


def _connected(node: TablesNode) -> bool:
    """Return whether windows connect all tables."""
    reached = {node.names[0]}
    for _ in node.frames:
        for pair in node.windows:
            if reached & set(pair):
                reached |= set(pair)
    return len(reached) == len(node.frames)


def _key(node: TablesNode) -> tuple[dict[str, str] | None, list[Expression]]:
    """Find a column of each table that must all be equal; returns them, if there are any, and other conditions."""
    equal: list[tuple[Expression, Column, Column]] = []
    for condition in node.certain:
        match condition:
            case Comparison("=", Column(_, _, None) as one, Column(_, _, None) as other) if one.table != other.table:
                equal.append((condition, one, other))
    types = {table: {field.name: field.text for field in frame.fields} for table, frame in node.frames.items()}
    for _, start, _ in equal:
        key = {str(start.table): start.name}
        for _ in node.frames:
            for _, one, other in equal:
                for here, there in ((one, other), (other, one)):
                    if key.get(str(here.table)) == here.name and str(there.table) not in key:
                        key[str(there.table)] = there.name
        used = [
            condition
            for condition, one, other in equal
            if key.get(str(one.table)) == one.name and key.get(str(other.table)) == other.name
        ]
        kinds = {types[table][name] for table, name in key.items()}  # cells go by a hash, which differs between types
        if len(key) == len(node.frames) and len(kinds) == 1:
            ordered = {table: key[table] for table in node.frames}
            return ordered, [one for one in node.conditions if not any(one is each for each in used)]
    return None, list(node.conditions)


def _all(conditions: Sequence[Expression]) -> Expression:
    """Return all conditions as one; without any it always holds."""
    if not conditions:
        return Literal(True)
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _alone(conditions: Sequence[Expression]) -> Expression:
    """Conditions on the columns of one table, all as one."""
    return _all([with_columns(one, lambda column: replace(column, table=None)) for one in conditions])


def _inner_names(frames: Mapping[str, Frame]) -> dict[tuple[str, str], str]:
    """Names that differ even if case is ignored."""
    found: dict[tuple[str, str], str] = {}
    taken = {"probability"}
    for table, frame in frames.items():
        for column in names_of(frame):
            name, number = f"{table}_{column}", 1
            while name.lower() in taken:
                number += 1
                name = f"{table}_{column}_{number}"
            taken.add(name.lower())
            found[table, column] = name
    return found
