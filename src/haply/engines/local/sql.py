"""DuckDB, embedded: expressions over Arrow tables, joins of row numbers, and files."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Mapping, Sequence
from functools import cache
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
    text = sql.strip()
    name = text[1:-1].replace("``", "`")
    return name if list(names).count(name) == 1 and text == "`" + name.replace("`", "``") + "`" else None


def column_alone(table: pa.Table, sql: str) -> pa.ChunkedArray | None:
    """Return the column if an expression is just its name."""
    name = name_alone(table.column_names, sql)
    return None if name is None else table[name]


_ARITHMETIC = re.compile(r"(?:`[^`]+`|\d{1,8}(?:\.\d{1,8})?(?![\d.])|[-+*/() ])+")
_NO_OPERATORS = re.compile(r"\*\*|//|--|/\*|\*/|``")
"""What Python reads otherwise than SQL, in which some of it begins a comment; and names with quotes."""
_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Name, ast.Load, ast.Constant)
_MOST_NUMBERS = 4


def is_plain_arithmetic(table: pa.Table, sql: str) -> bool:
    """Return whether an expression only adds, subtracts, multiplies and divides columns of doubles and a few numbers.

    It is a double then, and nothing has to be asked of DuckDB. The numbers are few and short, so that they make no
    decimals of too many digits.
    """
    names = re.findall(r"`([^`]+)`", sql)
    if not names or not _ARITHMETIC.fullmatch(sql) or _NO_OPERATORS.search(sql):
        return False
    known = dict(zip(table.schema.names, table.schema.types, strict=True))
    if any(known.get(name) != pa.float64() for name in names):
        return False
    try:
        nodes = list(ast.walk(ast.parse(re.sub(r"`[^`]+`", "x", sql).strip(), mode="eval")))
    except SyntaxError:
        return False
    return all(isinstance(node, _NODES) for node in nodes) and (
        sum(isinstance(node, ast.Constant) for node in nodes) <= _MOST_NUMBERS
    )


_POINT = re.compile(r"array\((?:CAST\(-?\d{1,15}(?:\.\d{1,15})? AS DOUBLE\)(?:, )?)+\)")


def is_point_of_numbers(sql: str) -> bool:
    """Return whether an expression is an array of plain numbers as doubles."""
    return _POINT.fullmatch(sql) is not None


@cache
def type_of_points() -> pa.DataType:
    """Return the type that DuckDB gives arrays of doubles."""
    return evaluated(pa.table({"": pa.nulls(0)}), {"value": "array(CAST(0 AS DOUBLE))"})["value"].type


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
