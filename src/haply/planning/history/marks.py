"""Marks of columns: what is known of their history, as text in the metadata of their tables."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from haply.planning.frames import Field, Frame, names_of
from haply.query import Column, Expression, columns_of, with_columns
from haply.query.text import parse

PROBABILITY = "probability"
Name = tuple[str | None, str]
"""A table of a query, and a column of it."""


@dataclass(frozen=True)
class Mark:
    """What is known of a column."""

    id: str
    conditions: tuple[str, ...] = ()
    """Conditions that the row has passed, over ids."""
    row: str | None = None
    """The id of the row of a table with a key that the value belongs to: columns of one row share it."""
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
        """Read a mark; a mark of another version of haply means that history is cut."""
        found = json.loads(text)
        if not isinstance(found, dict) or not set(found) <= set(cls.__dataclass_fields__) or "id" not in found:
            return cls(new_id(), cut="it was made by another version of haply")
        return cls(**{**found, "conditions": tuple(found.get("conditions", ()))})

    @property
    def text(self) -> str:
        """Return the mark as text."""
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
    """The history of one table of a query, by its columns; columns carry the table's name in the query."""

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
            found.notes.append(f"cut: columns{where} that {count_of(missing, 'earlier condition')} used are missing")
        found.notes += dict.fromkeys(f"cut{where}: {mark.cut}" for mark in marks.values() if mark.cut)
        for row in dict.fromkeys(mark.row for mark in marks.values() if mark.row is not None):
            parts = {column: mark for column, mark in marks.items() if mark.row == row}
            own = {str(mark.column): Column(name, found.same.get(column, column)) for column, mark in parts.items()}
            keys = {mark.key: own[str(mark.column)] for mark in parts.values() if mark.key is not None}
            one = next(iter(parts.values()))
            if len(keys) < one.keys:
                found.notes.append(f"cut{where}: the key that identifies rows is gone")
                continue
            found.rows.append(Row(str(one.table), tuple(keys[place] for place in sorted(keys)), own))
        return found


def count_of(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}{'s' if len(things) > 1 else ''}"


def new_id() -> str:
    return f"h{uuid.uuid4().hex[:12]}"


def marks_for(
    frames: Mapping[str | None, Frame],
    shown: Mapping[str, Name],
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
        Why these do not hold for each row, if they do not.
    """
    given = {(name, one.name): Mark.of(one.mark) for name, frame in frames.items() for one in frame.fields if one.mark}
    new_ids: dict[Name, str] = {}

    def id_of(table: str | None, column: str) -> str:
        """Return the new id of a column: columns that share an id in one table still share one afterwards."""
        mark = given.get((table, column))
        if mark is not None and len(frames) == 1:
            return mark.id
        return new_ids.setdefault((table, mark.id if mark is not None else f"`{column}"), new_id())

    rows: dict[Name, str] = {}
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
            mark = replace(mark, row=rows.setdefault((source[0], mark.row), new_id()))
        found[name] = replace(mark, conditions=() if cut else texts, cut=cut or mark.cut).text
    if conditions and not cut:
        found[PROBABILITY] = Mark(new_id(), texts, probability=True).text
    return found


def without_earlier_probability(frame: Frame) -> Frame:
    """Leave out the probability of earlier conditions if that of all conditions replaces it."""
    if History.of(frame.fields, None).notes:  # some of them are no longer known
        return frame
    made = [one.name for one in frame.fields if one.mark is not None and Mark.of(one.mark).probability]
    names = [name for name in names_of(frame) if name not in made or name != PROBABILITY]
    return frame if len(names) == len(frame.fields) else frame.select(names)
