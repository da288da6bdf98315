"""Conditions together with those of earlier queries, and on rows that may be the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haply.errors import HaplyError
from haply.planning.constructors import PARAMETERS
from haply.planning.explain import Description, RowExplanation
from haply.planning.frames import Engine, Frame, TableRow
from haply.planning.history.marks import History, Name, Row, marks_for
from haply.planning.plans import ExplainsRows, PlannedQuery
from haply.query import Column, Expression, columns_of, with_columns
from haply.query.expressions import And, Call, Comparison, Opaque, Or

MOST_PARTS = 52
"""The largest number of parts of a condition: five rows of one table meet in 52 ways."""


@dataclass(frozen=True)
class Remembered:
    """A query whose result is marked with its history."""

    query: PlannedQuery
    marks: Mapping[str, str]
    lines: tuple[tuple[str, str], ...] = ()

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        return self.query.run(engine, funnel).marked(self.marks)

    def describe(self, engine: Engine) -> Description:
        """Describe how it will run."""
        found = self.query.describe(engine)
        return replace(found, lines=found.lines + self.lines)


@dataclass(frozen=True)
class RememberedRows(Remembered):
    """The same for a selection, which can explain a row."""

    def explain_row(self, row: TableRow) -> RowExplanation:
        """Explain a row: the order of the filters, what each proves, and which decides."""
        assert isinstance(self.query, ExplainsRows)
        return self.query.explain_row(row)


@dataclass(frozen=True)
class WholeCondition:
    """A condition together with those of earlier queries."""

    parts: tuple[Expression, ...]
    """Parts of which at most one holds; a single part if no two rows of a table with a key can meet."""
    uncertain: tuple[Expression, ...]
    """The uncertain conditions that rows of the result have passed, those of earlier queries too."""
    lines: tuple[tuple[str, str], ...]
    """What ``explain`` says of it."""
    changed: bool
    """Whether it differs from the condition of the query."""

    @property
    def condition(self) -> Expression:
        """Return all parts as one condition."""
        return Or(self.parts) if len(self.parts) > 1 else self.parts[0]

    @property
    def exclusive(self) -> bool:
        """Return whether the condition is an OR of parts of which one holds at most."""
        return len(self.parts) > 1

    def remembered(
        self,
        query: PlannedQuery,
        frames: Mapping[str | None, Frame],
        shown: Mapping[str, Name],
        cut: str | None = None,
    ) -> PlannedQuery:
        """Return the query with a result that is marked; see ``marks_for``."""
        marks = marks_for(frames, shown, self.uncertain, cut)
        if not marks and not self.lines:
            return query
        return (RememberedRows if isinstance(query, ExplainsRows) else Remembered)(query, marks, self.lines)


def asked_of(frames: Mapping[str | None, Frame], conditions: Sequence[Expression], keys: bool = True) -> WholeCondition:
    """Add the conditions of earlier queries on these tables, and make values that are the same one variable.

    Parameters
    ----------
    frames
        The tables by the names that columns carry.
    conditions
        The conditions of this query: all of them must hold.
    keys
        Whether rows with equal keys are the same row.
    """
    known = {name: History.of(frame.fields, name) for name, frame in frames.items()}
    fields = {(name, one.name): one for name, frame in frames.items() for one in frame.fields}
    spelled = {(name, column.lower()): column for name, column in fields}

    def first(column: Column) -> Column:
        """Spell a column as its table does. Unknown ones are refused where the query is planned."""
        if _name(column) not in fields:
            column = replace(column, name=spelled.get((column.table, column.name.lower()), column.name))
        same = known[column.table].same if column.table in known else {}
        name = same.get(column.name, column.name)
        return column if name == column.name else replace(column, name=name)

    def is_certain(condition: Expression) -> bool:
        if isinstance(condition, Call) and condition.name in PARAMETERS:
            return False
        if isinstance(condition, Column):
            return _name(condition) not in fields or fields[_name(condition)].uncertain_model is None
        return all(map(is_certain, condition.children))

    before = [condition for history in known.values() for condition in history.conditions]
    asked = [
        with_columns(each, first) for one in conditions for each in (one.conditions if isinstance(one, And) else (one,))
    ]
    new = {str(one) for one in asked}
    every = [*asked, *(one for one in before if str(one) not in new)]
    uncertain = [one for one in every if not is_certain(one)]
    lines = [("history", f"{one}, a condition of an earlier query: part of this probability") for one in before]
    lines += [("history", note) for history in known.values() for note in history.notes]
    variables = {name for one in uncertain for name in _variables(one, is_certain)}
    rows = [
        row
        for history in known.values()
        for row in (history.rows if keys else ())
        if any(_name(column) in variables for column in row.columns.values())
    ]
    parts, ways = [], list(_ways(rows, every))
    if len(ways) > MOST_PARTS:
        raise HaplyError(
            f"Rows of tables with keys meet in {len(ways)} ways",
            expected=f"{MOST_PARTS} at most",
            hint="leave out columns of rows that need not be distinguished, or hp.table(frame) to forget the keys",
        )
    for blocks in ways if every else ():
        one = _as_one(blocks)
        part = [*_told_apart(blocks, every), *(with_columns(each, one) for each in every)]
        parts.append(And(tuple(part)) if len(part) > 1 else part[0])
    if len(ways) > 1:
        lines.append(("same rows", f"{len(ways)} parts that exclude one another, by which keys are equal"))
    changed = len(ways) > 1 or bool(before) or any(history.same for history in known.values())
    return WholeCondition(tuple(parts), tuple(uncertain), tuple(lines), changed and bool(every))


def notes_on(*frames: Frame) -> tuple[str, ...]:
    """Return the notes of ``explain`` on earlier conditions, for queries that do not include them."""
    before = [str(one) for frame in frames for one in History.of(frame.fields, None).conditions]
    if not before:
        return ()
    asked = "; ".join(dict.fromkeys(before))
    return (f"These numbers ignore that the rows have passed `{asked}`.",)


def _variables(condition: Expression, is_certain: Callable[[Expression], bool]) -> Iterator[Name]:
    """Yield the columns that are uncertain, or that uncertain values are made of."""
    if isinstance(condition, Column) and not is_certain(condition):
        yield _name(condition)
    if isinstance(condition, Call) and condition.name in PARAMETERS:
        yield from map(_name, columns_of(condition))
    for child in condition.children:
        yield from _variables(child, is_certain)


_Blocks = Sequence[Sequence[Row]]
"""Groups of rows that are the same."""


def _ways(rows: Sequence[Row], conditions: Sequence[Expression]) -> Iterator[_Blocks]:
    """Yield all ways in which rows can be the same, except those that the conditions exclude."""
    if not rows:
        yield []
        return
    *others, last = rows
    for blocks in _ways(others, conditions):
        alike = [row for block in blocks for row in block if row.table == last.table]
        if not any(_compared(last, row, "=", conditions) for row in alike):
            yield [*blocks, [last]]
        for k, block in enumerate(blocks):
            if last.table != block[0].table or any(_kept_apart(last, row, conditions) for row in block):
                continue
            yield [*blocks[:k], [*block, last], *blocks[k + 1 :]]


def _kept_apart(one: Row, other: Row, conditions: Sequence[Expression]) -> bool:
    return any(_compared(one, other, op, conditions) for op in ("<", ">", "!="))


def _compared(one: Row, other: Row, op: str, conditions: Sequence[Expression]) -> bool:
    """Return whether one condition compares the keys of two rows so: all columns must be equal, or one must differ."""

    def compares(condition: Expression, mine: Column, theirs: Column) -> bool:
        match condition:
            case Comparison(found, Column() as left, Column() as right) if found == op:
                return {_name(left), _name(right)} == {_name(mine), _name(theirs)}
        return False

    found = [
        any(compares(condition, mine, theirs) for condition in conditions)
        for mine, theirs in zip(one.keys, other.keys, strict=True)
    ]
    return all(found) if op == "=" else any(found)


def _name(column: Column) -> Name:
    return column.table, column.name


def _as_one(blocks: _Blocks) -> Callable[[Column], Column]:
    """Return a function that replaces columns of rows that are the same by those of the first such row."""
    found: dict[Name, Column] = {}
    for block in blocks:
        first: dict[str, Column] = {}
        for row in block:
            keys = {_name(key) for key in row.keys}
            for name, column in row.columns.items():
                if _name(column) not in keys:
                    found[_name(column)] = first.setdefault(name, column)
    return lambda column: replace(found.get(_name(column), column), index=column.index)


def _told_apart(blocks: _Blocks, conditions: Sequence[Expression]) -> list[Expression]:
    """Make conditions on keys under which just these rows are the same, without those that the query has anyway."""
    found: list[Expression] = []
    for k, block in enumerate(blocks):
        for row in block[1:]:
            if not _compared(row, block[0], "=", conditions):
                found += [Comparison("=", one, other) for one, other in zip(block[0].keys, row.keys, strict=True)]
        for others in blocks[:k]:
            if others[0].table == block[0].table and not _kept_apart(block[0], others[0], conditions):
                keys = list(zip(others[0].keys, block[0].keys, strict=True))
                differ: list[Expression] = [Comparison("!=", one, other) for one, other in keys]
                nulls = [Opaque((column, " IS NULL")) for pair in keys for column in pair]  # unknown keys are not equal
                found.append(Or((*differ, *nulls)))
    return found
