"""Frames of other libraries, and files, as tables of this process; and back."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

from haply.engines.local.files.read import file_frame
from haply.engines.local.frame import LocalFrame, usual_types
from haply.engines.local.marks import recall
from haply.errors import HaplyError

_EXPECTED = (
    "a frame of pandas, Polars, Arrow, DuckDB or Spark, or the path of a file of Parquet, CSV, JSON, Arrow, FITS or "
    "VOTable"
)


def local_frame(value: Any, where: str, hint: str = "") -> LocalFrame:
    """Return a table as planning sees it; errors name it by ``where``, and ``hint`` says how to fix it."""
    if isinstance(value, LocalFrame):
        return value
    library = type(value).__module__.partition(".")[0]
    if isinstance(value, (str, os.PathLike)):
        return file_frame(str(value), where)
    if library == "pandas" and type(value).__name__ == "DataFrame":
        return _held(pa.Table.from_pandas(value, preserve_index=False), value, lambda table: table.to_pandas())
    if library == "polars" and type(value).__name__ in ("DataFrame", "LazyFrame"):
        frame = value.collect() if type(value).__name__ == "LazyFrame" else value
        return _held(frame.to_arrow(), value, _to_polars)
    if library in ("duckdb", "_duckdb"):
        return _held(value.to_arrow_table(), value, _to_duckdb)
    if isinstance(value, (pa.Table, pa.RecordBatch)) or hasattr(value, "__arrow_c_stream__"):
        return _held(pa.table(value), value, lambda table: table)
    raise HaplyError(f"{where} is of type {type(value).__name__}", expected=_EXPECTED, hint=hint)


def _held(table: pa.Table, value: Any, give: Any) -> LocalFrame:
    table = usual_types(table)
    frame = LocalFrame(table.schema, table.select, give, id(value))
    marks = recall(value)
    return frame.marked(marks) if marks else frame


def _to_polars(table: pa.Table) -> Any:
    import polars

    return polars.from_arrow(table)


def _to_duckdb(table: pa.Table) -> Any:
    import duckdb

    return duckdb.from_arrow(table)
