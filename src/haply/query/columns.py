"""The columns of an expression: list and rename them, and write certain expressions as SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from haply.query.expressions import Call, Column, Expression, rewritten, sql_text

_REMEMBERED = "_columns_inside"


def columns_of(expression: Expression) -> tuple[Column, ...]:
    """List the columns of an expression, each once, in the order they are written.

    An expression never changes, so the list is cached: rewrites need that of the same parts many times.
    """
    known: tuple[Column, ...] | None = expression.__dict__.get(_REMEMBERED)
    if known is None:
        found: dict[tuple[str | None, str, int | None], Column] = {}
        own = (expression,) if isinstance(expression, Column) else ()
        for column in (*own, *(column for child in expression.children for column in columns_of(child))):
            found.setdefault((column.table, column.name, column.index), column)
        known = tuple(found.values())
        object.__setattr__(expression, _REMEMBERED, known)
    return known


def tables_of(expression: Expression) -> set[str | None]:
    """Name the tables whose columns are in an expression."""
    return {column.table for column in columns_of(expression)}


def owner_of(column: Column) -> str:
    """Return the column as a whole, as text: components of one point belong together."""
    return str(column if column.index is None else replace(column, index=None))


def points_of(expression: Expression) -> tuple[Column, ...]:
    """List the columns in distances: a plain number is a point there."""
    if isinstance(expression, Call) and expression.name == "distance":
        return tuple(column for column in expression.args if isinstance(column, Column))
    return tuple(column for child in expression.children for column in points_of(child))


def with_columns(expression: Expression, change: Callable[[Column], Expression]) -> Expression:
    """Replace each column."""
    return rewritten(expression, lambda node: change(node) if isinstance(node, Column) else None)


def respelled(expression: Expression, spell: Callable[[Column], str]) -> Expression:
    """Spell columns as their tables do: two spellings of one column are one variable."""

    def change(column: Column) -> Column:
        name = spell(column)
        return column if name == column.name else replace(column, name=name)

    return with_columns(expression, change)


def to_sql(expression: Expression, rename: Callable[[Column], str]) -> str:
    """Write a certain expression in Spark SQL. ``rename`` gives the quoted text of a column, without its component."""

    def column_text(column: Column) -> str:
        index = "" if column.index is None else f"[{column.index}]"
        return rename(replace(column, index=None)) + index

    return sql_text(expression, column_text, for_spark=True)
