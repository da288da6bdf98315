"""What the names in the expressions of a query mean: columns, fields, functions, constructors and windows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from haply.errors import unknown_name
from haply.planning.constructors import (
    PARAMETERS,
    component_of,
    free_name,
    has_fixed_point,
    plain_call,
    with_made,
    with_points,
)
from haply.planning.frames import Catalog, field_of, names_of, quoted
from haply.query import Column, Expression, Literal, columns_of, to_sql
from haply.query.expressions import Call, Comparison, Opaque, quote_name, rewritten
from haply.statements.bound import Bound, Table, Window
from haply.statements.numbers import NUMBER_FUNCTIONS, NUMBERS, has_no_number, number_column
from haply.statements.syntax import spelled

OURS = ("abs", "distance", "nearest", "same", "window", *NUMBER_FUNCTIONS, *PARAMETERS)
"""Functions of haply."""

_INTERVAL = re.compile(r"INTERVAL\s+'?\s*([^']*?)\s*'?\s*(\w*)", re.IGNORECASE)


class Scope:
    """The names that expressions of one SELECT may use."""

    def __init__(self, found: Bound, catalog: Catalog, time: Any) -> None:
        self.found, self.catalog, self.times = found, catalog, time
        self.statement, self.error = found.statement, found.statement.error
        self.functions: set[str] = set(OURS)
        self.in_condition = True
        self.counted = 0

    # -- names ---------------------------------------------------------------------------------------------------------

    def table(self, name: str, place: Expression | int) -> Table:
        for table in self.found.tables:
            if table.alias.lower() == name.lower():
                return table
        for source in self.found.select.sources:
            if source.name and source.name[-1].lower() == name.lower():
                raise self.error(
                    place, f"table '{name}' is called '{source.alias}' in this query", hint=f"write {source.alias}"
                )
        with self.statement.at(place):
            raise unknown_name("table", name, [table.alias for table in self.found.tables])

    def column(self, node: Column) -> Expression:
        """Return the column that a name means, or a field of one."""
        tables = self.found.tables
        if node.table is None:
            having = [table for table in tables if table.find(node.name)]
            if len(having) > 1:
                each = " or ".join(f"{table.alias}.{node.name}" for table in having)
                raise self.error(node, f"column '{node.name}' is in more than one table", hint=f"write {each}")
            if not having:
                functions = [name for name, column in NUMBERS.items() if column == node.name.lower()]
                if not self.in_condition and functions:
                    raise self.error(
                        node, f"there is no column '{node.name.lower()}'", hint=f"write {functions[0].upper()}()"
                    )
                names = [column for table in tables for column in table.shown]
                with self.statement.at(node):
                    raise unknown_name("column", node.name, dict.fromkeys(names))
            name = having[0].find(node.name)
            assert name is not None
            return replace(node, table=having[0].alias, name=name)
        aliases = [table.alias.lower() for table in tables]
        if node.table.lower() not in aliases:
            owners = [table for table in tables if table.find(node.table)]
            if len(owners) == 1:  # a field of a column
                owner = replace(node, table=owners[0].alias, name=owners[0].find(node.table) or "", index=None)
                index = "" if node.index is None else f"[{node.index}]"
                return self.field(Opaque((owner, f".{quote_name(node.name)}{index}")), node)
        table = self.table(node.table, node)
        name = table.find(node.name)
        if name is None:
            with self.statement.at(node):
                raise unknown_name(f"column in {table.alias} called", node.name, table.shown)
        return replace(node, table=table.alias, name=name)

    def model(self, column: Column) -> Any:
        """Return the model of a column; none if it is certain."""
        (table,) = (table for table in self.found.tables if table.alias == column.table)
        return field_of(table.frame, column.name).uncertain_model

    def is_certain(self, column: Column) -> bool:
        """Return whether a column's values are known."""
        return column.table is None or self.model(column) is None

    # -- expressions ---------------------------------------------------------------------------------------------------

    def condition(self, original: Expression) -> Expression | None:
        """Return the condition over columns of the tables; none if it is a window, which is noted."""
        window = _window_call(original)
        if window is not None:
            self.window(original, *window)
            return None
        return self.value(original)

    def value(self, original: Expression) -> Expression:
        """Return an expression that is part of a condition, over columns of the tables."""
        self.in_condition = True
        return rewritten(original, self.changed)

    def selected(self, original: Expression) -> Expression:
        """Return an expression of the select list, over columns of the tables."""
        self.in_condition = False
        return rewritten(original, self.changed)

    def changed(self, node: Expression) -> Expression | None:
        part = component_of(node)
        if part is not None and self.in_condition:
            made = self.constructed(part[0], part[0].name, part[0].args)
            return made[part[1]] if isinstance(made, Column) else None
        match node:
            case Column():
                return self.column(node)
            case Opaque((Column() as column, str(text))) if is_field(node):
                return self.field(Opaque((self.column(column), text)), node)
            case Call(name) if name in NUMBER_FUNCTIONS:
                return self.number(node)
            case Call("same"):
                raise self.error(
                    node,
                    "SAME cannot be part of another condition",
                    expected="ON SAME(a.x, b.x) of two tables, AND-ed with others like it",
                )
            case Call("nearest"):
                raise self.error(
                    node, "NEAREST is only for an ASOF JOIN", expected="ASOF JOIN b ON NEAREST(a.time, b.time)"
                )
            case Call("window"):
                raise self.error(
                    node,
                    "WINDOW cannot be part of another condition",
                    expected="WINDOW(A, B) = a number or duration, AND-ed with the rest",
                )
            case Call(name, arguments) if name in PARAMETERS:
                return self.constructed(node, name, arguments)
            case Call("distance") if self.in_condition and has_fixed_point(node):
                return with_points(
                    node, lambda call, owner: self.constructed(call, "array", call.args, owner), self.changed
                )
            case Call("distance") if not self.in_condition:
                raise self.error(node, "DISTANCE is part of a condition only", hint="compare it, after WHERE")
            case Call(name) if name not in self.functions:
                with self.statement.at(node):
                    self.catalog.check_function(name, OURS)
                self.functions.add(name)
        return None

    def number(self, node: Call) -> Expression:
        """Return the column of the answer that a function such as PROB() means."""
        if self.in_condition:
            raise self.error(
                node, f"{node.name.upper()}() is a condition's result, not part of one",
                hint="write WITH THRESHOLD p at the end",
            )  # fmt: skip
        with self.statement.at(node):
            column = number_column(node)
            if column not in self.found.known_numbers:
                raise has_no_number(node, self.found)
        return Column(None, column)

    def field(self, node: Opaque, place: Expression) -> Expression:
        """Return a column for a field of a column, or for whether it is null: these are always certain."""
        column = node.parts[0]
        if not isinstance(column, Column) or self.is_certain(column):
            return node
        (table,) = (table for table in self.found.tables if table.alias == column.table)
        sql = to_sql(node, lambda of: quoted(of.name))
        if not self.in_condition:
            return node
        if sql not in table.made:
            name = free_name(spelled(node), names_of(table.frame))
            with self.statement.at(place):
                table.frame = table.frame.with_columns({name: sql})
            table.made[sql] = name
        return Column(table.alias, table.made[sql])

    def constructed(
        self, node: Call, name: str, arguments: Sequence[Expression], beside: str | None = None
    ) -> Expression:
        """Make a column of a constructor: of a table in conditions, where equal calls are one value; else of the
        result.

        One that names no column belongs to the table of the columns ``beside`` it, or to the first table.
        """
        bound = [rewritten(argument, self.changed) for argument in arguments]
        columns = [column for argument in bound for column in columns_of(argument)]
        for column in columns:
            if not self.is_certain(column):
                raise self.error(
                    node, f"{name}() is made of `{column}`, which is uncertain", expected="certain columns"
                )
        owners = list(dict.fromkeys(column.table for column in columns))
        if self.in_condition and len(owners) > 1:
            raise self.error(
                node, f"{name}() is made of columns of two tables", expected="columns of one table",
                hint="a value belongs to a row of one table",
            )  # fmt: skip
        if not self.in_condition:
            new = free_name(f"{name}_1", [made for made, *_ in self.found.made])
            with self.statement.at(node):
                self.found.made.append((new, *plain_call(Call(name, tuple(bound)), self.found.wide_column)))
            return Column(None, new)
        near = [table.alias for table in self.found.tables if beside is not None and table.alias == beside]
        owner = owners[0] if owners else near[0] if near else self.found.tables[0].alias
        (table,) = (table for table in self.found.tables if table.alias == owner)
        made = Call(name, tuple(bound))
        text = str(made)
        if text not in table.made:
            new = free_name(spelled(made), names_of(table.frame))
            with self.statement.at(node):
                table.frame = with_made(table.frame, new, made, lambda column: quoted(column.name))
            table.made[text], table.calls[new] = new, made
        return Column(table.alias, table.made[text])

    def bound_again(self, condition: Expression) -> Expression:
        """Return a condition over columns of the tables whose constructors are not bound yet."""
        self.in_condition = True

        def change(node: Expression) -> Expression | None:
            is_made = component_of(node) is not None or (isinstance(node, Call) and node.name in PARAMETERS)
            is_made = is_made or has_fixed_point(node)
            return self.changed(node) if is_made else None

        return rewritten(condition, change)

    def new_columns(self) -> list[tuple[str, str, list[Any]]]:
        """Return the columns that the select list has made since the last call."""
        new = self.found.made[self.counted :]
        self.counted = len(self.found.made)
        return new

    # -- windows -------------------------------------------------------------------------------------------------------

    def window(self, original: Expression, op: str, call: Call, length: Expression) -> None:
        if op not in ("=", "<="):
            raise self.error(
                original, "a window limits only the largest difference in time",
                expected="WINDOW(A, B) = d, or <= d", found=f"`{original}`",
            )  # fmt: skip
        names = [one for one in call.args if isinstance(one, Column) and one.table is None and one.index is None]
        if len(names) != len(call.args) or len(names) < 2:
            raise self.error(call, "WINDOW is between tables", expected="WINDOW(A, B) with names of tables")
        tables = [self.table(one.name, one) for one in names]
        if len({table.alias for table in tables}) < len(tables):
            raise self.error(call, "WINDOW names a table twice", expected="different tables")
        value = length_of_time(length)
        if value is None:
            raise self.error(
                original, "the window is no length of time", expected="a number, or a duration",
                found=f"`{length}`", hint="write WINDOW(A, B) = 10, '10 seconds' or INTERVAL 10 SECONDS",
            )  # fmt: skip
        for table in tables:
            self.found.times[table.alias] = self.time_of(table, call)
        for one, other in itertools.combinations(tables, 2):
            self.found.windows.append(Window(one.alias, other.alias, value))

    def time_of(self, table: Table, place: Expression) -> str:
        wanted = self.times
        if isinstance(wanted, Mapping):
            (source,) = (one for one in self.found.select.sources if one.alias == table.alias)
            names = [source.alias, *([source.name[-1]] if source.name else [])]
            given = [wanted[key] for key in wanted for name in names if str(key).lower() == name.lower()]
            wanted = given[0] if given else "time"
        name = table.find(wanted) if isinstance(wanted, str) else None
        if name is None:
            raise self.error(
                place, f"WINDOW needs the times of {table.alias}, which has no column '{wanted}'",
                expected="one of " + ", ".join(table.shown),
                hint='name the column of times with time=..., as in hp.sql(..., time="t")',
            )  # fmt: skip
        return name


def _window_call(condition: Expression) -> tuple[str, Call, Expression] | None:
    if not isinstance(condition, Comparison):
        return None
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    match condition.left, condition.right:
        case Call("window") as call, length:
            return condition.op, call, length
        case length, Call("window") as call:
            return turned.get(condition.op, condition.op), call, length
    return None


def length_of_time(length: Expression) -> Any:
    """Return a number, or a duration as text; none if it is neither."""
    match length:
        case Literal(bool() | None):
            return None
        case Literal(value):
            return value
        case Opaque((str(text),)) if found := _INTERVAL.fullmatch(text):
            return f"{found[1]} {found[2]}".strip()
    return None


def is_field(node: Expression) -> bool:
    """Return whether it is a field of a column, or whether the column is null: nothing of it is uncertain."""
    match node:
        case Opaque((Column(), str(text))):
            return re.match(r"\.| IS (NOT )?NULL$", text) is not None
    return False
