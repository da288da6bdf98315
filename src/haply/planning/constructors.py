"""The constructors of uncertain columns: their names and parameters, the same on every engine and in SQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from haply.errors import HaplyError
from haply.planning.frames import Frame, Text, field_of, find_column, names_of, quoted
from haply.query import Column, Expression, Literal, columns_of, to_sql, with_columns
from haply.query.expressions import Call, Negative, rewritten

PARAMETERS: dict[str, tuple[str, ...]] = {
    "uniform": ("lo", "hi"),
    "gaussian": ("mean", "sd"),
    "truncated_gaussian": ("mean", "sd", "lo", "hi"),
    "mixture": ("weights", "means", "sds"),
    "histogram": ("edges", "probs"),
    "samples": ("points", "probs", "dim"),
    "gaussian_nd": ("mean", "sd", "corr", "cov"),
    "mixture_nd": ("weights", "means", "covs"),
    "latency": ("detected_at", "edges", "probs"),
}
"""By the names that they have in SQL, in lower case."""


def bound_constructors(expression: Expression, frames: dict[str | None, Frame]) -> Expression:
    """Make columns of the constructors in a condition: ``gaussian(left.kg, left.err)`` is one of the left table.

    ``frames`` has the tables by the names that columns carry; those that get a column are replaced in it.
    """
    made: dict[tuple[str | None, str], str] = {}

    def change(node: Expression) -> Expression | None:
        if not isinstance(node, Call) or node.name not in PARAMETERS:
            return None
        columns = columns_of(node)
        tables = list(dict.fromkeys(column.table for column in columns))
        if len(tables) > 1:
            raise HaplyError(
                f"`{node}` is made of columns of two tables",
                expected="columns of one table",
                hint="a value belongs to a row of one table",
            )
        table = tables[0] if tables else next(iter(frames))
        if table not in frames:
            return None  # the column is refused where all are looked up
        frame = frames[table]
        named = {column.name: find_column(frame, column.name, str(table or "given")) for column in columns}
        for column in columns:
            if field_of(frame, named[column.name]).uncertain_model is not None:
                raise HaplyError(f"`{node}` is made of `{column}`, which is uncertain", expected="certain columns")
        text = str(with_columns(node, lambda column: replace(column, table=None)))
        if (table, text) not in made:
            name = free_name(text, names_of(frame))
            arguments = [argument_of(one, lambda column: quoted(named[column.name])) for one in node.args]
            frames[table] = frame.with_model(name, node.name, arguments)
            made[table, text] = name
        return Column(table, made[table, text])

    return rewritten(expression, change)


def free_name(stem: str, taken: Sequence[str]) -> str:
    """Find a name that no column has: the stem itself, which plans and errors then show, or one with a number."""
    lowered = {name.lower() for name in taken}
    names = itertools.chain([stem], (f"{stem}_{k}" for k in itertools.count(2)))
    return next(name for name in names if name.lower() not in lowered)


def argument_of(expression: Expression, rename: Callable[[Column], str]) -> Any:
    """Return an argument of a constructor: a number, None, a list, or SQL."""
    match expression:
        case Literal(None):
            return None
        case Literal(int() | float() as number) if not isinstance(number, bool):
            return number
        case Negative(Literal(int() | float() as number)):
            return -number
        case Call("array", arguments):
            return [argument_of(one, rename) for one in arguments]
    return Text(to_sql(expression, rename))
