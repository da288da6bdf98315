"""Tables from files, and answers into files, for the command line."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from haply.local import sql
from haply.outputs import check_output, kind_of, value_text


def read_table(path: str) -> str:
    """Check a table: a file or a folder of files, Parquet, CSV with a header, or a JSON object in each line."""
    kind_of(path)
    return path


def write_table(table: pa.Table, path: str) -> int:
    """Write an answer as one Parquet or CSV file; returns the number of its rows."""
    kind, place = check_output(path, stream=False), Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place.parent, prefix=".haply-") as folder:
        whole = os.path.join(folder, "whole")
        if kind == "parquet":
            pq.write_table(table, whole)
        else:
            _write_csv(table, whole)
        os.rename(whole, place)
    return int(table.num_rows)


def _write_csv(table: pa.Table, path: str) -> None:
    """Structs and lists become JSON."""
    columns = [
        f"to_json({sql.quoted(field.name)}) AS {sql.quoted(field.name)}"
        if pa.types.is_nested(field.type)
        else sql.quoted(field.name)
        for field in table.schema
    ]
    target = path.replace("'", "''")
    sql.run(f"COPY (SELECT {', '.join(columns)} FROM answer) TO '{target}' (FORMAT csv, HEADER true)", answer=table)


def first_rows(table: pa.Table, count: int) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the first rows, as texts."""
    rows = table.slice(0, count).to_pylist()
    return table.column_names, [[value_text(value) for value in row.values()] for row in rows]
