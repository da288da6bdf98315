"""Tables from files, and answers into files, for the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from haply.engines.local import sql
from haply.outputs import check_output, kind_of, value_text


def read_table(path: str) -> str:
    """Check a table: a file or a folder of files, Parquet, CSV with a header, or a JSON object in each line."""
    kind_of(path)
    return path


def write_tables(schema: pa.Schema, tables: Iterable[pa.Table], path: str) -> int:
    """Write tables as they come into one new Parquet or CSV file; returns the number of their rows."""
    kind, place = check_output(path, stream=False), Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with TemporaryDirectory(dir=place.parent, prefix=".haply-") as folder:
        whole = os.path.join(folder, "whole")
        with _writer(kind, schema, whole) as writer:
            for table in tables:
                writer.write_table(_as_text(table) if kind == "csv" else table)
                rows += table.num_rows
        os.rename(whole, place)
    return rows


def _writer(kind: str, schema: pa.Schema, path: str) -> Any:
    if kind == "csv":
        flat = pa.schema([field.with_type(pa.string()) if _is_nested(field) else field for field in schema])
        return csv.CSVWriter(path, flat)
    # A dictionary of numbers that are mostly different costs time and saves nothing.
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)]
    return pq.ParquetWriter(path, schema, use_dictionary=texts)


def _is_nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type))


def _as_text(table: pa.Table) -> pa.Table:
    """Structs and lists as JSON."""
    columns = [
        f"CAST(to_json({sql.quoted(field.name)}) AS VARCHAR) AS {sql.quoted(field.name)}"
        if _is_nested(field)
        else sql.quoted(field.name)
        for field in table.schema
    ]
    return sql.run(f"SELECT {', '.join(columns)} FROM answer", answer=table)


def first_rows(table: pa.Table, count: int) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the first rows, as texts."""
    rows = table.slice(0, count).to_pylist()
    return table.column_names, [[value_text(value) for value in row.values()] for row in rows]
