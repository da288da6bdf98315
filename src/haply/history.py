"""History: which values are one variable wherever they come from, and which uncertain conditions rows have passed.

A column of a result carries a mark, as JSON in the metadata of its table. It has an id; conditions of earlier queries
are texts over such ids. A further query asks for these conditions as well, so that its probability is the joint one.

A table with a key marks its columns with the table that they belong to. Where rows of such a table meet, in one row of
a join or of a result, they are one variable if their keys are equal. So a condition is split by which keys are equal:
its parts exclude one another, and in each part columns of equal rows are written as one.
"""

from __future__ import annotations

import json
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from haply.errors import HaplyError
from haply.inputs import frame_of
from haply.planning.constructors import PARAMETERS
from haply.planning.explain import Description
from haply.planning.frames import Engine, Field, Frame, Tabular, find_column, names_of
from haply.planning.plans import PlannedQuery
from haply.query import Column, Expression, columns_of, with_columns
from haply.query.expressions import And, Call, Comparison, Opaque, Or
from haply.query.text import parse

PROBABILITY = "probability"
MOST_PARTS = 52
"""Parts of a condition: five rows of one table meet in 52 ways."""
_Name = tuple[str | None, str]
"""A table of a query, and a column of it."""


@dataclass(frozen=True)
class Mark:
    """What is known of a column."""

    id: str
    conditions: tuple[str, ...] = ()
    """Conditions that the row has passed, over ids."""
    row: str | None = None
    """The row of a table with a key that the value belongs to: columns of one row have this in common."""
    table: str | None = None
    """The table with a key."""
    column: str | None = None
    """What the column is called there."""
    key: int | None = None
    """The place of the column among those of the key."""
    keys: int = 0
    """How many columns the key has."""
    probability: bool = False
    """Whether it is the probability of the conditions."""
    cut: str | None = None
    """Why earlier conditions are not known."""

    @classmethod
    def of(cls, text: str) -> Mark:
        """Read a mark; one of another version of haply says that history is cut."""
        found = json.loads(text)
        if not isinstance(found, dict) or not set(found) <= set(cls.__dataclass_fields__) or "id" not in found:
            return cls(_new_id(), cut="it was made by another version of haply")
        return cls(**{**found, "conditions": tuple(found.get("conditions", ()))})

    @property
    def text(self) -> str:
        """The mark as text."""
        plain = asdict(Mark(""))
        return json.dumps({name: value for name, value in asdict(self).items() if value != plain[name]})


@dataclass(frozen=True)
class Row:
    """A row of a table with a key, as a table of a query holds it."""

    table: str
    keys: tuple[Column, ...]
    columns: Mapping[str, Column]
    """The columns that are there, by their names in the table with the key."""


@dataclass
class History:
    """What the columns of one table of a query tell; columns carry the name that the query has for the table."""

    conditions: list[Expression] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    same: dict[str, str] = field(default_factory=dict)
    """Columns that hold the same values as another, and that other."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, fields: Sequence[Field], name: str | None) -> History:
        """Read the marks of a table's columns."""
        found = cls()
        marks = {one.name: Mark.of(one.mark) for one in fields if one.mark is not None}
        columns: dict[str, str] = {}
        for column, mark in marks.items():
            first = columns.setdefault(mark.id, column)
            if first != column:
                found.same[column] = first
        missing = []
        for text in dict.fromkeys(text for mark in marks.values() for text in mark.conditions):
            condition = parse(text)
            if all(column.name in columns for column in columns_of(condition)):
                found.conditions.append(with_columns(condition, lambda one: Column(name, columns[one.name], one.index)))
            else:
                missing.append(text)
        where = "" if name is None else f" of {name}"
        if missing:
            found.notes.append(f"cut: columns{where} are gone that {_count(missing, 'earlier condition')} used")
        found.notes += dict.fromkeys(f"cut{where}: {mark.cut}" for mark in marks.values() if mark.cut)
        for row in dict.fromkeys(mark.row for mark in marks.values() if mark.row is not None):
            parts = {column: mark for column, mark in marks.items() if mark.row == row}
            own = {str(mark.column): Column(name, found.same.get(column, column)) for column, mark in parts.items()}
            keys = {mark.key: own[str(mark.column)] for mark in parts.values() if mark.key is not None}
            one = next(iter(parts.values()))
            if len(keys) < one.keys:
                found.notes.append(f"cut{where}: the key is gone that tells which rows are one")
                continue
            found.rows.append(Row(str(one.table), tuple(keys[place] for place in sorted(keys)), own))
        return found


def _count(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}{'s' if len(things) > 1 else ''}"


def _new_id() -> str:
    return f"h{uuid.uuid4().hex[:12]}"


# -- what is asked, with what was asked before -------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A condition together with those of earlier queries."""

    parts: tuple[Expression, ...]
    """Of which one holds at most; just one if no two rows of a table with a key can meet."""
    uncertain: tuple[Expression, ...]
    """The uncertain conditions that rows of the result have passed, those of earlier queries too."""
    lines: tuple[tuple[str, str], ...]
    """What ``explain`` says of it."""
    changed: bool
    """Whether it is another condition than the one that was asked."""

    @property
    def condition(self) -> Expression:
        """All parts as one condition."""
        return Or(self.parts) if len(self.parts) > 1 else self.parts[0]

    @property
    def exclusive(self) -> bool:
        """Whether the condition is an OR of parts of which one holds at most."""
        return len(self.parts) > 1

    def remembered(
        self,
        query: PlannedQuery,
        frames: Mapping[str | None, Frame],
        shown: Mapping[str, _Name],
        cut: str | None = None,
    ) -> PlannedQuery:
        """Return the query with a result that is marked; see ``marks_for``."""
        marks = marks_for(frames, shown, self.uncertain, cut)
        return Remembered(query, marks, self.lines) if marks or self.lines else query


def asked_of(frames: Mapping[str | None, Frame], conditions: Sequence[Expression], keys: bool = True) -> Asked:
    """Add what earlier queries asked of these tables, and write values as one that are one.

    Parameters
    ----------
    frames
        The tables by the names that columns carry.
    conditions
        What is asked now: all of them must hold.
    keys
        Whether rows with equal keys are one.
    """
    known = {name: History.of(frame.fields, name) for name, frame in frames.items()}
    fields = {(name, one.name): one for name, frame in frames.items() for one in frame.fields}
    spelled = {(name, column.lower()): column for name, column in fields}

    def first(column: Column) -> Column:
        """Spell a column as its table does. Unknown ones are refused where the query is planned."""
        if _name(column) not in fields:
            column = replace(column, name=spelled.get((column.table, column.name.lower()), column.name))
        same = known[column.table].same if column.table in known else {}
        return replace(column, name=same.get(column.name, column.name))

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
    lines = [("history", f"{one}, asked by an earlier query: part of this probability") for one in before]
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
            hint="leave out columns of rows that need not be told apart, or hp.table(frame) to forget the keys",
        )
    for blocks in ways if every else ():
        one = _as_one(blocks)
        part = [*_told_apart(blocks, every), *(with_columns(each, one) for each in every)]
        parts.append(And(tuple(part)) if len(part) > 1 else part[0])
    if len(ways) > 1:
        lines.append(("same rows", f"{len(ways)} parts that exclude one another, by which keys are equal"))
    changed = len(ways) > 1 or bool(before) or any(history.same for history in known.values())
    return Asked(tuple(parts), tuple(uncertain), tuple(lines), changed and bool(every))


def _all_of(condition: Expression) -> tuple[Expression, ...]:
    return condition.conditions if isinstance(condition, And) else (condition,)


def _variables(condition: Expression, is_certain: Callable[[Expression], bool]) -> Iterator[_Name]:
    """The columns that are uncertain, or that uncertain values are made of."""
    if isinstance(condition, Column) and not is_certain(condition):
        yield _name(condition)
    if isinstance(condition, Call) and condition.name in PARAMETERS:
        yield from map(_name, columns_of(condition))
    for child in condition.children:
        yield from _variables(child, is_certain)


_Blocks = Sequence[Sequence[Row]]
"""Rows, those that are one together."""


def _ways(rows: Sequence[Row], conditions: Sequence[Expression]) -> Iterator[_Blocks]:
    """All ways in which rows can be one, as far as the conditions do not exclude them."""
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
    """Whether one condition compares the keys of two rows so; of several columns, all must be equal, or one differ."""

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


def _name(column: Column) -> _Name:
    return column.table, column.name


def _as_one(blocks: _Blocks) -> Callable[[Column], Column]:
    """What writes columns of rows that are one as those of the first row that has them."""
    found: dict[_Name, Column] = {}
    for block in blocks:
        first: dict[str, Column] = {}
        for row in block:
            keys = {_name(key) for key in row.keys}
            for name, column in row.columns.items():
                if _name(column) not in keys:
                    found[_name(column)] = first.setdefault(name, column)
    return lambda column: replace(found.get(_name(column), column), index=column.index)


def _told_apart(blocks: _Blocks, conditions: Sequence[Expression]) -> list[Expression]:
    """Conditions on keys that tell these rows to be one, and no others; what is asked anyway is left out."""
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


# -- results -----------------------------------------------------------------------------------------------------------


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


def marks_for(
    frames: Mapping[str | None, Frame],
    shown: Mapping[str, _Name],
    conditions: Sequence[Expression],
    cut: str | None = None,
) -> dict[str, str]:
    """Make the marks of a result's columns.

    Parameters
    ----------
    frames
        The tables by the names that columns carry.
    shown
        The table and the column there that each column of the result comes from.
    conditions
        The uncertain conditions that its rows have passed.
    cut
        Why these are not known to hold for each row, if they are not.
    """
    given = {(name, one.name): Mark.of(one.mark) for name, frame in frames.items() for one in frame.fields if one.mark}
    new_ids: dict[_Name, str] = {}

    def id_of(table: str | None, column: str) -> str:
        """Columns with one id in one table keep that in common; two tables may be one, of different rows."""
        mark = given.get((table, column))
        if mark is not None and len(frames) == 1:
            return mark.id
        return new_ids.setdefault((table, mark.id if mark is not None else f"`{column}"), _new_id())

    rows: dict[_Name, str] = {}
    used = {(column.table, column.name) for one in conditions for column in columns_of(one)}
    texts = tuple(
        str(with_columns(one, lambda column: Column(None, id_of(column.table, column.name), column.index)))
        for one in conditions
    )
    found: dict[str, str] = {}
    for name, source in shown.items():
        old = given.get(source)
        if old is None and source not in used:
            continue
        mark = Mark(id_of(*source)) if old is None else replace(old, id=id_of(*source), conditions=())
        if mark.row is not None and len(frames) > 1:
            mark = replace(mark, row=rows.setdefault((source[0], mark.row), _new_id()))
        found[name] = replace(mark, conditions=() if cut else texts, cut=cut or mark.cut).text
    if conditions and not cut:
        found[PROBABILITY] = Mark(_new_id(), texts, probability=True).text
    return found


def without_earlier_probability(frame: Frame) -> Frame:
    """Leave out the probability of earlier conditions, where that of all conditions takes its place."""
    if History.of(frame.fields, None).notes:  # not all of them are known any more
        return frame
    made = [one.name for one in frame.fields if one.mark is not None and Mark.of(one.mark).probability]
    names = [name for name in names_of(frame) if name not in made or name != PROBABILITY]
    return frame if len(names) == len(frame.fields) else frame.select(names)


# -- tables with a key -------------------------------------------------------------------------------------------------

_TABLES: dict[int, tuple[Any, str]] = {}
"""The names of tables that have been given a key: by the object, as long as that lives."""


def table(frame: Tabular, key: str | Sequence[str] | None = None) -> Any:
    """Say which rows of a table are one and the same: those with equal keys.

    Where rows with equal keys meet, in a join of the table with itself or with what was made from it, their uncertain
    values are the same variables. Without it, rows of two tables are taken as independent.

    Parameters
    ----------
    frame
        A table.
    key
        The column that tells rows apart, or several of them. None forgets the history of the table: its rows are then
        taken as they are, whatever conditions they have passed.

    Returns
    -------
    table
        The same table, of the same kind; Arrow for a path. What is made from it, by haply, by Spark or by Arrow,
        remembers the key.

    Raises
    ------
    HaplyError
        If the key is no certain column of the table, or the table is a stream.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> readings = hp.table(pa.table({"id": [1, 2], "kg": [2.0, 2.1]}), key="id")
    >>> near = "abs(gaussian(left.kg, 0.1) - gaussian(right.kg, 0.1)) <= 0.05"
    >>> found = hp.join(readings, readings, on=near, columns=["id_left", "id_right"], threshold=0.2)
    >>> [(row["id_left"], row["id_right"], round(row["probability"], 3)) for row in found.to_pylist()]
    [(1, 1, 1.0), (2, 2, 1.0), (1, 2, 0.217), (2, 1, 0.217)]
    """
    given = frame_of(frame, "The table")
    if given.streaming:
        raise HaplyError("The table is a stream", expected="a table", hint="streams are joined within one query")
    return keyed(given, key, name_of(frame)).give()


def keyed(frame: Frame, key: str | Sequence[str] | None, name: str) -> Frame:
    """Mark the columns of a table with its key; ``name`` tells it from others."""
    if key is None:
        return frame.marked({})
    names = [key] if isinstance(key, str) else list(key)
    if not names:
        raise HaplyError("The key has no column", expected="a column, or several")
    columns = [find_column(frame, one, "given") for one in names]
    fields = {one.name: one for one in frame.fields}
    for column in columns:
        if fields[column].uncertain_model is not None or fields[column].is_list:
            raise HaplyError(
                f"Column '{column}' cannot be a key", expected="a certain column, such as a number or a text",
                found=fields[column].text,
            )  # fmt: skip
    row, marks = _new_id(), {}
    for column, one in fields.items():
        mark = Mark(_new_id()) if one.mark is None else Mark.of(one.mark)
        place = columns.index(column) if column in columns else None
        whole = f"{name}({','.join(columns)})"
        marks[column] = replace(mark, row=row, table=whole, column=column, key=place, keys=len(columns)).text
    return frame.marked(marks)


def name_of(value: Any) -> str:
    """A name for a table that is the same as long as it is the same object, or the same file."""
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return f"file:{value}"
    known = _TABLES.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    name = _new_id()
    try:
        place = id(value)
        _TABLES[place] = weakref.ref(value, lambda _: _TABLES.pop(place, None)), name
    except TypeError:  # what cannot be referred to weakly is another table each time
        pass
    return name
