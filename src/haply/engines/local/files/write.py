"""Write results of this process into files, or return rows to show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from haply.engines.local import sql
from haply.outputs import check_output, value_text


def write_tables(schema: pa.Schema, tables: Iterable[pa.Table], path: str) -> int:
    """Write tables as they come into one new file; returns the number of their rows.

    A table is written on a thread of its own while the next one is made.
    """
    kind, place = check_output(path, stream=False), Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with TemporaryDirectory(dir=place.parent, prefix=".haply-") as folder:
        whole = os.path.join(folder, "whole")
        with _writer(kind, schema, whole, path) as write, ThreadPoolExecutor(1) as pool:
            before: Future[Any] | None = None
            for table in tables:
                if before is not None:
                    before.result()
                before = pool.submit(write, table)
                rows += table.num_rows
            if before is not None:
                before.result()
        os.rename(whole, place)
    return rows


def write_csv(schema: pa.Schema, tables: Iterable[pa.Table], out: IO[bytes]) -> int:
    """Write tables as they come as CSV; returns the number of their rows."""
    rows = 0
    empty = pa.Table.from_arrays([pa.nulls(0, field.type) for field in _flat(schema)], schema=_flat(schema))
    csv.write_csv(empty, out)
    for table in tables:
        csv.write_csv(_as_text(table), out, csv.WriteOptions(include_header=False))
        rows += table.num_rows
    return rows


@contextmanager
def _writer(kind: str, schema: pa.Schema, target: str, path: str) -> Iterator[Callable[[pa.Table], Any]]:
    """Yield a function that writes a table into the target; errors name the ``path``."""
    if kind == "csv":
        with csv.CSVWriter(target, _flat(schema)) as writer:
            yield lambda table: writer.write_table(_as_text(table))
    elif kind == "json":
        with open(target, "w", encoding="utf-8") as lines:
            yield lambda table: lines.writelines(f"{line}\n" for line in _json_lines(table))
    elif kind == "arrow":
        with pa.ipc.new_file(target, schema) as writer:
            yield writer.write_table
    elif kind == "parquet":
        # A dictionary of numbers that are mostly different costs time and saves nothing.
        texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)]
        with pq.ParquetWriter(target, schema, use_dictionary=texts) as writer:
            yield writer.write_table
    else:  # astropy writes whole tables
        from haply.engines.local.files.astro import write_astro

        held: list[pa.Table] = []
        yield lambda table: held.append(_as_text(table))
        flat = _flat(schema)
        empty = pa.Table.from_arrays([pa.nulls(0, field.type) for field in flat], schema=flat)
        write_astro(pa.concat_tables([empty, *held]), path, kind, target)


def _is_nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type))


def _flat(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(pa.string()) if _is_nested(field) else field for field in schema])


def _as_text(table: pa.Table) -> pa.Table:
    """Write structs and lists as JSON; other columns are unchanged."""
    nested = [field.name for field in table.schema if _is_nested(field)]
    if not nested:
        return table
    texts = ", ".join(f"CAST(to_json({name}) AS VARCHAR) AS {name}" for name in map(sql.quoted, nested))
    found = sql.run(f"SELECT {texts} FROM answer", answer=table.select(nested))
    columns = [found[name] if name in nested else table[name] for name in table.column_names]
    return pa.Table.from_arrays(columns, schema=_flat(table.schema))


def _json_lines(table: pa.Table) -> list[str]:
    return sql.run("SELECT CAST(to_json(answer) AS VARCHAR) AS line FROM answer", answer=table)["line"].to_pylist()


def first_rows(table: pa.Table, count: int) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the first rows, as texts."""
    rows = table.slice(0, count).to_pylist()
    return table.column_names, [[value_text(value) for value in row.values()] for row in rows]
