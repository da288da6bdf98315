"""Frames of other libraries, and files, as tables of this process; and back."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from haply.engines.local import sql
from haply.engines.local.frame import LocalFrame, no_rows
from haply.errors import HaplyError

_READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv", ".json": "read_json",
            ".ndjson": "read_json", ".jsonl": "read_json"}  # fmt: skip
_ARROW = (".arrow", ".feather", ".ipc")
KINDS = "a frame of pandas, Polars, Arrow, DuckDB or Spark, or the path of a Parquet, CSV, JSON or Arrow file"


def local_frame(value: Any, where: str, hint: str = "") -> LocalFrame:
    """Return a table as planning sees it; ``where`` says in errors what it is, ``hint`` what it might be."""
    if isinstance(value, LocalFrame):
        return value
    library = type(value).__module__.partition(".")[0]
    if isinstance(value, (str, os.PathLike)):
        return _file(Path(value), where)
    if library == "pandas" and type(value).__name__ == "DataFrame":
        return _held(pa.Table.from_pandas(value, preserve_index=False), value, lambda table: table.to_pandas())
    if library == "polars" and type(value).__name__ in ("DataFrame", "LazyFrame"):
        frame = value.collect() if type(value).__name__ == "LazyFrame" else value
        return _held(frame.to_arrow(), value, _to_polars)
    if library in ("duckdb", "_duckdb"):
        return _held(value.to_arrow_table(), value, _to_duckdb)
    if isinstance(value, (pa.Table, pa.RecordBatch)) or hasattr(value, "__arrow_c_stream__"):
        return _held(pa.table(value), value, lambda table: table)
    raise HaplyError(f"{where} is of type {type(value).__name__}", expected=KINDS, hint=hint)


def _held(table: pa.Table, value: Any, give: Any) -> LocalFrame:
    table = _usual_types(table)
    return LocalFrame(table.schema, table.select, give, id(value))


def _to_polars(table: pa.Table) -> Any:
    import polars

    return polars.from_arrow(table)


def _to_duckdb(table: pa.Table) -> Any:
    import duckdb

    return duckdb.from_arrow(table)


def _usual_types(table: pa.Table) -> pa.Table:
    """Lists and texts with 32-bit offsets, and no dictionaries: so kernels and engines read them."""
    schema = pa.schema([field.with_type(_usual(field.type)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _usual(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_list(kind) or pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_usual(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_usual(part.type)) for part in kind])
    if pa.types.is_dictionary(kind):  # those of two tables differ, and keys are compared between them
        return _usual(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


# -- files -------------------------------------------------------------------------------------------------------------


def _file(path: Path, where: str) -> LocalFrame:
    text = str(path)
    found = sorted(glob.glob(text)) if glob.has_magic(text) else [text] if path.exists() else []
    if path.is_dir():
        found = sorted(
            str(one) for one in path.iterdir() if one.suffix in _READERS and not one.name.startswith(("_", "."))
        )
    if not found:
        raise HaplyError(
            f"{where}: there is no file '{text}'", expected="a path, a folder or a pattern like 'out/*.parquet'"
        )
    suffix = Path(found[0]).suffix.lower()

    def give(table: pa.Table) -> pa.Table:
        return table

    if suffix in _ARROW:
        with pa.memory_map(found[0]) as source:
            held = _usual_types(pa.ipc.open_file(source).read_all())
        return LocalFrame(held.schema, held.select, give, text)
    if suffix not in _READERS:
        raise HaplyError(
            f"{where}: the kind of '{text}' is not known",
            expected=", ".join((*_READERS, *_ARROW)),
            found=suffix or "none",
        )
    if suffix == ".parquet":
        schema = _usual_types(no_rows(pq.read_schema(found[0]))).schema

        def load(names: Sequence[str]) -> pa.Table:
            return _usual_types(pq.read_table(found, columns=list(names))).replace_schema_metadata(None)

        return LocalFrame(schema.remove_metadata(), load, give, text)
    files = ", ".join("'" + one.replace("'", "''") + "'" for one in found)
    reader = f"{_READERS[suffix]}([{files}])"
    schema = sql.run(f"SELECT * FROM {reader} LIMIT 0").schema

    def load_text(names: Sequence[str]) -> pa.Table:
        return sql.run(f"SELECT {', '.join(map(sql.quoted, names))} FROM {reader}")

    return LocalFrame(schema, load_text, give, text)
