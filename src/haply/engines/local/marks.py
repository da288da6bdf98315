"""Marks of columns of pandas, Polars and DuckDB tables, which cannot hold them: kept as long as the table lives.

Arrow tables and Parquet files carry their marks themselves.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_MARK = b"haply"
_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
_KNOWN: dict[int, tuple[Any, dict[str, str], dict[str, int]]] = {}
"""By the table's id: a weak reference to it, the marks of its columns, and the addresses of their values."""


def remember(value: Any, schema: pa.Schema) -> Any:
    """Keep the marks of a table that is returned to the user; returns the table."""
    marks = {field.name: field.metadata[_MARK].decode() for field in schema if _MARK in (field.metadata or {})}
    if marks and not isinstance(value, pa.Table):
        place = id(value)
        try:
            reference = weakref.ref(value, lambda _: _KNOWN.pop(place, None))
        except TypeError:  # it has no weak references: its history ends here
            return value
        _KNOWN[place] = reference, marks, {name: _lies_at(value, name) for name in marks}
    return value


def recall(value: Any) -> dict[str, str]:
    """Return the marks of a table that was returned before; those of columns that were replaced since are gone."""
    known = _KNOWN.get(id(value))
    if known is None or known[0]() is not value:
        return {}
    _, marks, places = known
    return {name: mark for name, mark in marks.items() if _lies_at(value, name) == places[name]}


def _lies_at(value: Any, name: str) -> int:
    """Return where the values of a column of pandas are in memory; other tables do not change in place."""
    if type(value).__module__.partition(".")[0] != "pandas":
        return 0
    if name not in value.columns:
        return -1
    return int(value[name].to_numpy().__array_interface__["data"][0])


def marks_in(schema: pa.Schema) -> Mapping[str, str]:
    """Return the marks that Spark has written into a Parquet file, next to its own names of types."""
    written = (schema.metadata or {}).get(_SPARK)
    if written is None:
        return {}
    fields = json.loads(written).get("fields", [])
    found = {field["name"]: field.get("metadata", {}).get("haply") for field in fields}
    return {name: mark for name, mark in found.items() if isinstance(mark, str)}
