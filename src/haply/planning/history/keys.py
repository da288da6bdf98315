"""Tables with a key: rows with equal keys are the same."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haply.errors import HaplyError
from haply.planning.frames import Frame, find_column
from haply.planning.history.marks import Mark, new_id

_TABLES: dict[int, tuple[Any, str]] = {}
"""The names of tables that have been given a key: by the object, as long as that lives."""


def keyed(frame: Frame, key: str | Sequence[str] | None, name: str) -> Frame:
    """Mark the columns of a table with its key; ``name`` identifies the table."""
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
    row, marks = new_id(), {}
    for column, one in fields.items():
        mark = Mark(new_id()) if one.mark is None else Mark.of(one.mark)
        place = columns.index(column) if column in columns else None
        whole = f"{name}({','.join(columns)})"
        marks[column] = replace(mark, row=row, table=whole, column=column, key=place, keys=len(columns)).text
    return frame.marked(marks)


def name_of(value: Any) -> str:
    """Return a name for a table that is the same as long as it is the same object, or the same file."""
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return f"file:{value}"
    known = _TABLES.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    name = new_id()
    try:
        place = id(value)
        _TABLES[place] = weakref.ref(value, lambda _: _TABLES.pop(place, None)), name
    except TypeError:  # an object without weak references gets a new name each time
        pass
    return name
