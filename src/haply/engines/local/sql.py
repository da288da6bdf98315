"""DuckDB, embedded: expressions over Arrow tables, joins of row numbers, and files."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from haply.errors import HaplyError

if TYPE_CHECKING:
    import duckdb

_local = threading.local()


def connection() -> duckdb.DuckDBPyConnection:
    """Return this thread's connection to a database in memory, which is empty."""
    import duckdb  # here: many joins do not need it, and its import takes as long as a small join

    from haply.engines.local.dialect import MACROS

    if not hasattr(_local, "connection"):
        _local.connection = duckdb.connect(":memory:")
        _local.connection.execute("SET TimeZone = 'UTC'")
        _local.connection.execute(MACROS)
    found: duckdb.DuckDBPyConnection = _local.connection
    return found


def run(query: str, **tables: pa.Table) -> pa.Table:
    """Run a query over Arrow tables."""
    import duckdb

    database = connection()
    for name, table in tables.items():
        database.register(name, table)
    try:
        return database.sql(query).to_arrow_table()
    except duckdb.Error as refusal:
        raise HaplyError(f"DuckDB refuses it: {_short(refusal)}") from None
    finally:
        for name in tables:
            database.unregister(name)


def name_alone(names: Sequence[str], sql: str) -> str | None:
    """Return the name of the column if an expression is just that, in backticks: it needs no DuckDB."""
    found = [name for name in names if sql.strip() == "`" + name.replace("`", "``") + "`"]
    return found[0] if len(found) == 1 else None


def column_alone(table: pa.Table, sql: str) -> pa.ChunkedArray | None:
    """Return the column if an expression is just its name."""
    name = name_alone(table.column_names, sql)
    return None if name is None else table[name]


def evaluated(table: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    """Compute expressions of Spark SQL over the rows of a table, in their order."""
    from haply.engines.local.dialect import to_duckdb  # here: many joins need neither it nor sqlglot

    shown = ", ".join(f"{to_duckdb(sql)} AS {quoted(name)}" for name, sql in columns.items())
    return run(f"SELECT {shown} FROM given", given=table)


def quoted(name: str) -> str:
    """Write a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def _short(refusal: Exception) -> str:
    return str(refusal).split("\n")[0].partition("Error: ")[2].removeprefix("haply: ")
