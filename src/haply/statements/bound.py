"""A query whose names are resolved: its tables with their columns, its conditions, and its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

from haply.errors import HaplyError
from haply.planning.answers.options import Answer
from haply.planning.frames import Frame, InvalidMode, field_of, names_of
from haply.planning.history.asked import WholeCondition
from haply.planning.history.marks import marks_for
from haply.planning.nodes import TablesNode
from haply.planning.plans import PlannedQuery
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, Literal, columns_of, to_sql, with_columns
from haply.query.expressions import Opaque
from haply.statements.syntax import Select, Statement

PROBABILITY = "probability"
"""The column of the result, and of the wide rows."""


@dataclass
class Table:
    """A table of the query, followed by the columns that conditions add to it."""

    alias: str
    frame: Frame
    shown: tuple[str, ...]
    made: dict[str, str] = field(default_factory=dict)
    calls: dict[str, Expression] = field(default_factory=dict)
    """The constructors that made columns, over columns of the table."""
    places: tuple[int, ...] | None = None
    """The positions of its columns before unused ones were left out."""
    origin: Any = None
    """A value that is equal for two uses of the same table."""
    given: Frame | None = None
    """The table as it was given; None if it is a query."""

    def find(self, name: str) -> str | None:
        """Return the column's name as the table spells it."""
        alike = [column for column in self.shown if column.lower() == name.lower()]
        return name if name in self.shown else alike[0] if len(alike) == 1 else None


@dataclass(frozen=True)
class Window:
    """``WINDOW(one, other) = length``."""

    one: str
    other: str
    length: Any


@dataclass(frozen=True)
class ResultItem:
    """A column of the result: Spark SQL over the wide rows."""

    name: str
    sql: str


@dataclass(frozen=True)
class Question(ABC):
    """A query on two tables that does not ask for pairs: one of the classes in ``asked``."""

    numbers: tuple[str, ...]
    """The columns of the result after those of the tables."""
    conditions: tuple[Expression, ...]
    """The conditions on pairs, as they are written."""
    filters: tuple[Expression, ...]
    """The conditions of WHERE, as they are written."""

    @abstractmethod
    def plan(self, bound: Bound, invalid: InvalidMode) -> PlannedQuery:
        """Plan it as the function of Python does."""


@dataclass(frozen=True)
class CountQuestion(Question):
    """``GROUP BY a`` or ``GROUP BY a.kind``: how many partners rows have, or groups of rows."""

    by: tuple[str, ...]
    """The columns of groups; empty for a count of each row."""


@dataclass
class Bound:
    """A query whose names are all resolved. Columns of conditions carry the aliases of their tables."""

    statement: Statement
    select: Select
    tables: list[Table]
    certain: list[Expression] = field(default_factory=list)
    uncertain: list[Expression] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    """Certain and uncertain ones in the order they are written."""
    windows: list[Window] = field(default_factory=list)
    times: dict[str, str] = field(default_factory=dict)
    outputs: list[ResultItem] = field(default_factory=list)
    made: list[tuple[str, str, list[Any]]] = field(default_factory=list)
    """Columns that the select list makes of the wide rows: name, constructor and arguments."""
    order: list[tuple[str, bool, bool | None]] = field(default_factory=list)
    numbers: tuple[str, ...] = ()
    """The columns of the wide rows that no table has, such as the probability."""
    used: set[tuple[str, str]] = field(default_factory=set)
    """Tables and columns that something uses in the wide rows."""
    filters: list[str] = field(default_factory=list)
    """Conditions on the result of an outer join, over the wide rows."""
    answer: Answer = field(default_factory=Answer)
    question: Question | None = None
    lean: bool = False
    """Whether the wide rows have those columns only."""
    asked: WholeCondition | None = None
    """The conditions with those of earlier queries; None for queries that do not ask for pairs."""

    @property
    def known_numbers(self) -> tuple[str, ...]:
        """Return the numbers that the select list may name."""
        return (PROBABILITY,) if self.question is None else self.question.numbers

    def all_columns(self) -> list[Column]:
        """Return the columns that ``*`` means."""
        asked = self.question
        if isinstance(asked, CountQuestion) and asked.by:
            return [Column(self.tables[0].alias, name) for name in asked.by]
        left_only = self.answer.left_only or isinstance(asked, CountQuestion)
        return [
            Column(table.alias, name)
            for table in (self.tables[:1] if left_only else self.tables)
            for name in table.shown
        ]  # fmt: skip

    def wide_names(self) -> list[str]:
        """Return the columns of the wide rows: those of all tables in order."""
        return [
            f"t{n}_{at if table.places is None else table.places[at]}"
            for n, table in enumerate(self.tables)
            for at, name in enumerate(names_of(table.frame))
            if not self.lean or (table.alias, name) in self.used
        ]

    @property
    def frames(self) -> dict[str | None, Frame]:
        """Return the tables by their aliases."""
        return {table.alias: table.frame for table in self.tables}

    def written(self, condition: Expression) -> Expression:
        """Return a condition with the constructors that its columns were made by."""
        calls = {(table.alias, name): call for table in self.tables for name, call in table.calls.items()}

        def original(column: Column) -> Expression:
            call = calls.get((str(column.table), column.name))
            if call is None:
                return column
            return call if column.index is None else Opaque((call, "[", Literal(column.index), "]"))

        return with_columns(condition, original)

    def _with_marks(self, frame: Frame) -> Frame:
        """Mark the wide rows with their history, which the columns of the result then have."""
        if self.asked is None or frame.streaming:
            return frame
        cut = None
        if self.answer.how != "inner":
            cut = f"it was joined with how='{self.answer.how}'"
        elif any(field_of(self.frames[alias], name).uncertain_model is not None for alias, name in self.times.items()):
            cut = "it was joined in a window of uncertain times"
        names = [(table.alias, name) for table in self.tables for name in names_of(table.frame)]
        kept = [one for one in names if not self.lean or one in self.used]
        marks = marks_for(self.frames, dict(zip(self.wide_names(), kept, strict=True)), self.asked.uncertain, cut)
        return frame.marked(marks) if marks else frame

    def wide_column(self, column: Column) -> str:
        """SQL for a column of the wide rows, which is then one that the query needs."""
        if column.table is None:
            return column.name
        self.used.add((column.table, column.name))
        (place,) = (n for n, table in enumerate(self.tables) if table.alias == column.table)
        table = self.tables[place]
        at = names_of(table.frame).index(column.name)
        return f"t{place}_{at if table.places is None else table.places[at]}"

    def wide_sql(self, expression: Expression) -> str:
        """SQL for an expression over the wide rows."""
        return to_sql(expression, self.wide_column)

    def narrowed(self) -> Bound:
        """Return the same over tables of the needed columns only: a join takes all its columns to Python."""
        if self.question is not None or self.answer.ranked:
            return self  # columns that the query does not name may order rows that tie: the plan chooses among all
        needed = {*self.used, *self.times.items()}
        needed |= {(str(column.table), column.name) for one in self.conditions for column in columns_of(one)}
        tables = []
        for table in self.tables:
            if table.frame.index is not None:  # which what is made from the table has not
                tables.append(table)
                continue
            names = names_of(table.frame)
            places = tuple(k for k, name in enumerate(names) if (table.alias, name) in needed) or (0,)
            frame = table.frame.select([names[k] for k in places])
            tables.append(replace(table, frame=frame, places=places) if len(places) < len(names) else table)
        return replace(self, tables=tables)

    def node(self, max_delay: Any, invalid: InvalidMode) -> TablesNode:
        """Make the logical node of several tables; the wide rows then have the columns that are used, and no others."""
        self.lean = True
        broadcast = None
        if self.select.broadcast is not None:
            named = self.select.broadcast.table.lower()
            broadcast = next(table.alias for table in self.tables if table.alias.lower() == named)
        return TablesNode(
            {table.alias: table.frame for table in self.tables}, tuple(self.conditions), self.shortest_windows(),
            self.times, Threshold(self.select.threshold, self.select.strict), PROBABILITY in self.numbers, max_delay,
            invalid, broadcast, frozenset(self.used), self.answer, self.asked is not None and self.asked.exclusive,
        )  # fmt: skip

    def shortest_windows(self) -> dict[tuple[str, str], Any]:
        """Return the window of each pair of tables that has one, the shortest of those that are written."""
        found: dict[tuple[str, str], Any] = {}
        places = [table.alias for table in self.tables]
        for window in self.windows:
            one, other = sorted((window.one, window.other), key=places.index)
            known = found.get((one, other), window.length)
            if isinstance(known, str) != isinstance(window.length, str) or (
                isinstance(known, str) and known != window.length
            ):
                raise HaplyError(
                    f"{one} and {other} have two windows", expected="one", found=f"{known} and {window.length}"
                )
            found[one, other] = min(known, window.length)
        return found

    def finished(self, wide: Frame) -> Frame:
        """Return the result, from the wide rows of a plan."""
        frame = self._with_marks(wide.renamed([*self.wide_names(), *self.numbers]))
        for condition in self.filters:
            frame = frame.where(condition)
        for name, constructor, arguments in self.made:
            frame = frame.with_model(name, constructor, arguments)
        if self.order:
            frame = frame.ordered(self.order)
        frame = frame.project({output.name: output.sql for output in self.outputs})
        return frame if self.select.limit is None else frame.limit(self.select.limit)
