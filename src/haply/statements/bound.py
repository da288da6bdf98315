"""A query whose names are known: its tables with their columns, its conditions, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from haply.planning.answers.options import Answer
from haply.planning.frames import Frame, names_of
from haply.query import Column, Expression, columns_of, to_sql
from haply.statements.syntax import Select, Statement

PROBABILITY = "probability"
"""The column of the result, and of the wide rows."""


@dataclass
class Table:
    """A table of the query, with the columns that conditions add to it behind its own."""

    alias: str
    frame: Frame
    shown: tuple[str, ...]
    made: dict[str, str] = field(default_factory=dict)
    places: tuple[int, ...] | None = None
    """Where its columns were before those that the query does not need were left out."""
    origin: Any = None
    """What tells whether two tables of the query are the same one."""

    def find(self, name: str) -> str | None:
        """The column's name as the table spells it."""
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


@dataclass
class Bound:
    """A query whose names are all known. Columns of conditions carry the aliases of their tables."""

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
    with_probability: bool = False
    used: set[tuple[str, str]] = field(default_factory=set)
    """Tables and columns whose place in the wide rows somebody has asked for."""
    filters: list[str] = field(default_factory=list)
    """What is asked of the result of an outer join, over the wide rows."""
    answer: Answer = field(default_factory=Answer)
    lean: bool = False
    """Whether the wide rows have those columns only."""

    def wide_names(self) -> list[str]:
        """The columns of the wide rows: those of all tables in order."""
        return [
            f"t{n}_{at if table.places is None else table.places[at]}"
            for n, table in enumerate(self.tables)
            for at, name in enumerate(names_of(table.frame))
            if not self.lean or (table.alias, name) in self.used
        ]

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
        """The same over tables that have only the columns it needs: a join takes all that it is given to Python."""
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

    def finished(self, wide: Frame) -> Frame:
        """The result, from the wide rows of a plan."""
        names = [*self.wide_names(), *([PROBABILITY] if self.with_probability else [])]
        frame = wide.renamed(names)
        for condition in self.filters:
            frame = frame.where(condition)
        for name, constructor, arguments in self.made:
            frame = frame.with_model(name, constructor, arguments)
        if self.order:
            frame = frame.ordered(self.order)
        frame = frame.project({output.name: output.sql for output in self.outputs})
        return frame if self.select.limit is None else frame.limit(self.select.limit)
