"""Binds a query to its tables: names become columns, constructors become columns of their own, and all is checked.

Every error says where in the query it is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from haply.errors import HaplyError, unknown_name
from haply.query import Column, Expression, Literal, columns_of, to_sql
from haply.query.expressions import Call, Comparison, Opaque, is_value, quote_name, rewritten
from haply.query.forms import Near, Part, split
from haply.spark.columns import CONSTRUCTORS, quoted
from haply.spark.tables import (
    Text,
    catalog_names,
    catalog_table,
    check_function,
    is_boolean,
    is_number,
    is_one_dimensional,
    ordered,
    session_for,
    side_by_side,
    type_of,
    uncertain_model,
    with_constructed,
    with_expression,
    with_sure,
)
from haply.statements.syntax import Item, Select, Source, Statement, spelled

PROBABILITY = "probability"
OURS = ("abs", "distance", "prob", "window", *CONSTRUCTORS)
"""Functions that are haply's own."""

_INTERVAL = re.compile(r"INTERVAL\s+'?\s*([^']*?)\s*'?\s*(\w*)", re.IGNORECASE)


@dataclass
class Table:
    """A table of the query, with the columns that conditions add to it behind its own."""

    alias: str
    frame: Any
    shown: tuple[str, ...]
    made: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        """The column's name as the table spells it."""
        alike = [column for column in self.shown if column.lower() == name.lower()]
        return name if name in self.shown else alike[0] if len(alike) == 1 else None


@dataclass(frozen=True)
class Window:
    """``WINDOW(one, other) = length``."""

    one: str
    other: str
    length: Any


@dataclass(frozen=True)
class Output:
    """A column of the result: Spark SQL over the wide rows."""

    name: str
    sql: str


@dataclass
class Bound:
    """A query whose names are all known. Columns of conditions carry the aliases of their tables."""

    statement: Statement
    select: Select
    tables: list[Table]
    certain: list[Expression] = field(default_factory=list)
    uncertain: list[Expression] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    """Certain and uncertain ones in the order they are written."""
    windows: list[Window] = field(default_factory=list)
    times: dict[str, str] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    made: list[tuple[str, str, list[Any]]] = field(default_factory=list)
    """Columns that the select list makes of the wide rows: name, constructor and arguments."""
    order: list[tuple[str, bool, bool | None]] = field(default_factory=list)
    with_probability: bool = False

    def wide_names(self) -> list[str]:
        """The columns of the wide rows: those of all tables in order."""
        return [f"t{n}_{k}" for n, table in enumerate(self.tables) for k in range(len(table.frame.columns))]

    def finished(self, wide: Any) -> Any:
        """The result, from the wide rows of a plan."""
        names = [*self.wide_names(), *([PROBABILITY] if self.with_probability else [])]
        frame = wide.toDF(*names)
        for name, constructor, arguments in self.made:
            frame = with_constructed(frame, name, constructor, arguments)
        if self.order:
            frame = ordered(frame, self.order)
        frame = frame.selectExpr(*(f"{output.sql} AS {quoted(output.name)}" for output in self.outputs))
        return frame if self.select.limit is None else frame.limit(self.select.limit)


def bind(statement: Statement, spark: Any, time: Any, frames: Mapping[str, Any]) -> Bound:
    """The query over these tables, or those of the Spark catalog."""
    return _Binder(statement, session_for(spark, frames.values()), time, frames).bound(statement.select)


class _Binder:
    def __init__(self, statement: Statement, spark: Any, time: Any, frames: Mapping[str, Any]) -> None:
        self.statement, self.spark, self.time, self.frames = statement, spark, time, frames
        self.functions: set[str] = set(OURS)

    @contextmanager
    def at(self, place: Expression | int) -> Iterator[None]:
        """What is refused inside is reported at this place."""
        try:
            yield
        except HaplyError as refusal:
            if str(refusal).startswith("line "):
                raise
            raise self.statement.error(place, str(refusal)) from None

    def bound(self, select: Select, inside: bool = False) -> Bound:
        tables: list[Table] = []
        for source in select.sources:
            if any(table.alias.lower() == source.alias.lower() for table in tables):
                raise self.statement.error(
                    source.start, f"two tables are called '{source.alias}'",
                    hint=f"give each a name of its own: {source.alias} a, {source.alias} b",
                )  # fmt: skip
            frame = self.frame(source)
            tables.append(Table(source.alias, frame, tuple(frame.columns)))
        found = Bound(self.statement, select, tables)
        scope = _Scope(self, found)
        written = [(original, scope.condition(original)) for original in select.conditions]
        wide = with_sure(side_by_side((table.frame for table in tables), found.wide_names()), PROBABILITY)
        for original, condition in written:
            if condition is not None:
                self.sort(found, scope, original, condition, wide)
        self.choose(found, scope, wide, inside)
        return found

    # -- tables --------------------------------------------------------------------------------------------------------

    def frame(self, source: Source) -> Any:
        if source.query is not None:
            return self.inner(source.query)
        name = ".".join(source.name)
        given = [key for key in self.frames if key.lower() == name.lower()]
        found = self.frames[name] if name in self.frames else self.frames[given[0]] if len(given) == 1 else None
        if found is None:
            found = catalog_table(self.spark, source.name)
        if found is None:
            with self.at(source.start):
                raise unknown_name("table", name, [*self.frames, *catalog_names(self.spark)])
        lowered = [column.lower() for column in found.columns]
        twice = sorted({column for column in lowered if lowered.count(column) > 1})
        if twice:
            raise self.statement.error(
                source.start, f"table '{name}' has two columns called '{twice[0]}'", hint="rename one of them"
            )
        return found

    def inner(self, select: Select) -> Any:
        """A query in parentheses: columns and certain conditions of one table."""
        error = self.statement.error
        if select.threshold_start is not None:
            raise error(
                select.threshold_start, "a query in parentheses has a threshold", expected="one, at the end of all",
                hint="move it behind the outer query",
            )  # fmt: skip
        if len(select.sources) > 1:
            raise error(
                select.sources[1].start, "a query in parentheses has two tables", expected="one",
                hint="name all tables after the outer FROM: haply sees all conditions at once there",
            )  # fmt: skip
        for expression, start in _written(select):
            if _mentions_prob(expression):
                raise error(start, "PROB() is that of the whole query", hint="move it to the outer SELECT")
        found = self.bound(select, inside=True)
        if found.uncertain:
            raise error(
                select.conditions[0], "a query in parentheses has an uncertain condition", expected="certain ones",
                found=f"`{found.uncertain[0]}`", hint="move it to the outer WHERE: it counts into the probability",
            )  # fmt: skip
        wide = found.tables[0].frame.toDF(*found.wide_names())
        for condition in found.certain:
            wide = wide.where(_wide_sql(found, condition))
        return found.finished(wide)

    # -- conditions ----------------------------------------------------------------------------------------------------

    def sort(self, found: Bound, scope: _Scope, original: Expression, condition: Expression, wide: Any) -> None:
        """Put a condition among the certain or the uncertain ones, if it is one at all."""
        error = self.statement.error
        if is_value(condition) or isinstance(condition, Literal):
            raise error(original, f"`{original}` is a value", expected="a condition", hint="compare it with something")
        if all(map(scope.is_certain, columns_of(condition))):
            with self.at(original):
                kind = type_of(wide, _wide_sql(found, condition))
            if not is_boolean(kind):
                raise error(
                    original, f"`{original}` is no condition", expected="something that is true or false",
                    found=kind.simpleString(), hint="compare it with something",
                )  # fmt: skip
            found.certain.append(condition)
        else:
            with self.at(original):
                self.understood(found, scope, condition, wide)
            found.uncertain.append(condition)
        found.conditions.append(condition)

    def understood(self, found: Bound, scope: _Scope, condition: Expression, wide: Any) -> None:
        """Refuse an uncertain condition that has no normal form, or compares what cannot be compared."""
        for part in (part for group in split(condition, scope.is_certain).groups for part in group):
            for value in _certain_parts(part):
                kind = type_of(wide, _wide_sql(found, value))
                if not is_number(kind):
                    raise HaplyError(
                        f"`{condition}` compares a number with something else", expected="a number",
                        found=f"`{value}`, of type {kind.simpleString()}",
                    )  # fmt: skip
            if isinstance(part, Near):
                for column in (part.one, part.other):
                    if is_number(type_of(wide, scope.wide(column))):
                        raise HaplyError(
                            f"`{column}` is a number, not a point",
                            hint=f"write abs({part.one} - {part.other}), or SAMPLES(array({column})) as a point",
                        )
                continue
            for column in part.form.columns.values():
                model = scope.model(column)
                assert model is not None
                if column.index is None and not is_one_dimensional(model):
                    raise HaplyError(
                        f"`{column}` is a point of several dimensions", expected="a number",
                        hint=f"write {column}[0] for its first component, or DISTANCE(...)",
                    )  # fmt: skip

    # -- the select list -----------------------------------------------------------------------------------------------

    def choose(self, found: Bound, scope: _Scope, wide: Any, inside: bool) -> None:
        """The columns of the result, and its order."""
        asked = any(_mentions_prob(expression) for expression, _ in _written(found.select))
        starred = not inside and any(item.expression is None for item in found.select.items)
        found.with_probability = asked or starred
        entries: list[tuple[str, str, str, Item]] = []  # name, the name if that is taken, SQL, where it is written
        for item in found.select.items:
            entries.extend(self.columns(found, scope, item, wide))
        if starred and not any(sql == PROBABILITY for _, _, sql, _ in entries):
            entries.append((PROBABILITY, PROBABILITY, PROBABILITY, found.select.items[-1]))
        lowered = [name.lower() for name, *_ in entries]
        seen: dict[str, str] = {}
        for name, longer, sql, item in entries:
            chosen = longer if lowered.count(name.lower()) > 1 else name
            if chosen.lower() in seen:
                raise self.statement.error(
                    item.start, f"two columns of the result are called '{chosen}'", expected="different names",
                    hint="name one of them with AS",
                )  # fmt: skip
            seen[chosen.lower()] = sql
            found.outputs.append(Output(chosen, sql))
        self.sorting(found, scope, seen, wide)

    def columns(self, found: Bound, scope: _Scope, item: Item, wide: Any) -> list[tuple[str, str, str, Item]]:
        if item.expression is None:
            tables = found.tables if item.table is None else [scope.table(item.table, item.start)]
            return [
                (name, f"{table.alias}_{name}", scope.wide(Column(table.alias, name)), item)
                for table in tables
                for name in table.shown
            ]
        expression = scope.selected(item.expression)
        sql = _wide_sql(found, expression)
        for name, constructor, arguments in scope.new_columns():
            with self.at(item.expression):
                wide = with_constructed(wide, name, constructor, arguments)
        if not isinstance(expression, Column) or expression.index is not None:
            with self.at(item.expression):
                self.certain_value(scope, expression)
                type_of(wide, sql)
        if item.name is not None:
            return [(item.name, item.name, sql, item)]
        if isinstance(item.expression, Call) and item.expression.name == "prob":
            return [(PROBABILITY, PROBABILITY, sql, item)]
        if isinstance(expression, Column) and expression.index is None and isinstance(item.expression, Column):
            return [(expression.name, f"{expression.table}_{expression.name}", sql, item)]
        name = spelled(item.expression)
        return [(name, name, sql, item)]

    def certain_value(self, scope: _Scope, expression: Expression) -> None:
        for column in columns_of(rewritten(expression, lambda node: Literal(None) if _is_field(node) else None)):
            if column.table is not None and not scope.is_certain(column):
                raise HaplyError(
                    f"`{expression}` is computed from `{column}`, which is uncertain",
                    expected="expressions of certain columns",
                    hint=f"select `{replace(column, index=None)}` itself, or one of its parameters, "
                    f"as in {replace(column, index=None)}.mean",
                )

    def sorting(self, found: Bound, scope: _Scope, outputs: Mapping[str, str], wide: Any) -> None:
        for key in found.select.order:
            written = key.expression
            if isinstance(written, Literal) and type(written.value) is int:
                if not 1 <= written.value <= len(found.outputs):
                    raise self.statement.error(
                        key.start, f"there is no column number {written.value}", expected=f"1 to {len(found.outputs)}"
                    )
                sql = found.outputs[written.value - 1].sql
            elif isinstance(written, Column) and written.table is None and written.name.lower() in outputs:
                sql = outputs[written.name.lower()] + ("" if written.index is None else f"[{written.index}]")
            else:
                expression = scope.selected(written)
                sql = _wide_sql(found, expression)
            if any(frame.isStreaming for frame in (table.frame for table in found.tables)):
                raise self.statement.error(key.start, "a stream has no order", hint="leave out ORDER BY")
            found.order.append((sql, key.descending, key.nulls_first))
            for name, constructor, arguments in found.made:
                if name not in wide.columns:
                    wide = with_constructed(wide, name, constructor, arguments)
            with self.at(key.start):
                type_of(wide, sql)


class _Scope:
    """The names that expressions of one SELECT may use."""

    def __init__(self, binder: _Binder, found: Bound) -> None:
        self.binder, self.found, self.error = binder, found, binder.statement.error
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
        with self.binder.at(place):
            raise unknown_name("table", name, [table.alias for table in self.found.tables])

    def column(self, node: Column) -> Expression:
        """The column that a name means, or a field of one."""
        tables = self.found.tables
        if node.table is None:
            having = [table for table in tables if table.find(node.name)]
            if len(having) > 1:
                each = " or ".join(f"{table.alias}.{node.name}" for table in having)
                raise self.error(node, f"column '{node.name}' is in more than one table", hint=f"write {each}")
            if not having:
                if not self.in_condition and node.name.lower() == PROBABILITY:
                    raise self.error(node, "there is no column 'probability'", hint="write PROB()")
                names = [column for table in tables for column in table.shown]
                with self.binder.at(node):
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
            with self.binder.at(node):
                raise unknown_name(f"column in {table.alias} called", node.name, table.shown)
        return replace(node, table=table.alias, name=name)

    def model(self, column: Column) -> Any:
        """The model of a column; none if it is certain."""
        (table,) = (table for table in self.found.tables if table.alias == column.table)
        return uncertain_model(table.frame, column.name)

    def is_certain(self, column: Column) -> bool:
        """Whether a column's values are known."""
        return column.table is None or self.model(column) is None

    def wide(self, column: Column) -> str:
        """SQL for a column of the wide rows."""
        return _wide_column(self.found, column)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def condition(self, original: Expression) -> Expression | None:
        """The condition over columns of the tables; none if it is a window, which is noted."""
        window = _window_call(original)
        if window is not None:
            self.window(original, *window)
            return None
        self.in_condition = True
        return rewritten(original, self.changed)

    def selected(self, original: Expression) -> Expression:
        """An expression of the select list, over columns of the tables."""
        self.in_condition = False
        return rewritten(original, self.changed)

    def changed(self, node: Expression) -> Expression | None:
        match node:
            case Column():
                return self.column(node)
            case Opaque((Column() as column, str(text))) if _is_field(node):
                return self.field(Opaque((self.column(column), text)), node)
            case Call("prob", arguments):
                if self.in_condition:
                    raise self.error(node, "PROB() is a condition's result, not part of one",
                                     hint="write WITH THRESHOLD p at the end")  # fmt: skip
                if arguments:
                    raise self.error(node, "PROB() takes no arguments")
                return Column(None, PROBABILITY)
            case Call("window"):
                raise self.error(
                    node, "WINDOW stands alone", expected="WINDOW(A, B) = a number or duration, AND-ed with the rest"
                )
            case Call(name, arguments) if name in CONSTRUCTORS:
                return self.constructed(node, name, arguments)
            case Call("distance") if not self.in_condition:
                raise self.error(node, "DISTANCE is part of a condition only", hint="compare it, after WHERE")
            case Call(name) if name not in self.binder.functions:
                with self.binder.at(node):
                    check_function(self.binder.spark, name, OURS)
                self.binder.functions.add(name)
        return None

    def field(self, node: Opaque, place: Expression) -> Expression:
        """A field of a column, or whether it is null: certain also where the column is not, so it gets its own."""
        column = node.parts[0]
        if not isinstance(column, Column) or self.is_certain(column):
            return node
        (table,) = (table for table in self.found.tables if table.alias == column.table)
        sql = to_sql(node, lambda of: quoted(of.name))
        if not self.in_condition:
            return node
        if sql not in table.made:
            name = _free_name(spelled(node), table.frame.columns)
            with self.binder.at(place):
                table.frame = with_expression(table.frame, name, sql)
            table.made[sql] = name
        return Column(table.alias, table.made[sql])

    def constructed(self, node: Call, name: str, arguments: Sequence[Expression]) -> Expression:
        """A constructor as a column: of a table in conditions, where equal calls are one value; else of the result."""
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
            new = _free_name(f"{name}_1", [made for made, *_ in self.found.made])
            self.found.made.append((new, name, [_argument(one, self.wide) for one in bound]))
            return Column(None, new)
        owner = owners[0] if owners else self.found.tables[0].alias
        (table,) = (table for table in self.found.tables if table.alias == owner)
        text = str(Call(name, tuple(bound)))
        if text not in table.made:
            new = _free_name(spelled(Call(name, tuple(bound))), table.frame.columns)
            given = [_argument(one, lambda column: quoted(column.name)) for one in bound]
            with self.binder.at(node):
                table.frame = with_constructed(table.frame, new, name, given)
            table.made[text] = new
        return Column(table.alias, table.made[text])

    def new_columns(self) -> list[tuple[str, str, list[Any]]]:
        """Columns that the select list has made since the last time."""
        new = self.found.made[self.counted :]
        self.counted = len(self.found.made)
        return new

    # -- windows -------------------------------------------------------------------------------------------------------

    def window(self, original: Expression, op: str, call: Call, length: Expression) -> None:
        if op not in ("=", "<="):
            raise self.error(
                original, "a window is no other limit than the largest difference in time",
                expected="WINDOW(A, B) = d, or <= d", found=f"`{original}`",
            )  # fmt: skip
        names = [one for one in call.args if isinstance(one, Column) and one.table is None and one.index is None]
        if len(names) != len(call.args) or len(names) < 2:
            raise self.error(call, "WINDOW is between tables", expected="WINDOW(A, B) with names of tables")
        tables = [self.table(one.name, one) for one in names]
        if len({table.alias for table in tables}) < len(tables):
            raise self.error(call, "WINDOW names a table twice", expected="different tables")
        value = _length(length)
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
        wanted = self.binder.time
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


def _free_name(stem: str, taken: Sequence[str]) -> str:
    """A name that no column has: the stem itself, which plans and errors then show, or one with a number."""
    lowered = {name.lower() for name in taken}
    names = itertools.chain([stem], (f"{stem}_{k}" for k in itertools.count(2)))
    return next(name for name in names if name.lower() not in lowered)


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


def _length(length: Expression) -> Any:
    """A number, or a duration as text; none if it is neither."""
    match length:
        case Literal(bool() | None):
            return None
        case Literal(value):
            return value
        case Opaque((str(text),)) if found := _INTERVAL.fullmatch(text):
            return f"{found[1]} {found[2]}".strip()
    return None


def _certain_parts(part: Part | Near) -> Iterator[Expression]:
    """The certain expressions in an uncertain condition, which are numbers to it."""
    if isinstance(part, Near):
        values = [part.limit]
    else:
        ends = [end for interval in part.intervals for end in (interval.low, interval.high) if end is not None]
        values = [*ends, *part.form.linear.values(), *part.form.squares.values()]
    yield from (value for value in values if isinstance(value, Expression))


def _is_field(node: Expression) -> bool:
    """Whether it is a field of a column, or whether the column is null: nothing of it is uncertain."""
    match node:
        case Opaque((Column(), str(text))):
            return re.match(r"\.| IS (NOT )?NULL$", text) is not None
    return False


def _argument(expression: Expression, rename: Callable[[Column], str]) -> Any:
    """An argument of a constructor: a number, None, a list, or SQL."""
    match expression:
        case Literal(None):
            return None
        case Literal(int() | float() as number) if not isinstance(number, bool):
            return number
        case Call("array", arguments):
            return [_argument(one, rename) for one in arguments]
    return Text(to_sql(expression, rename))


def _written(select: Select) -> Iterator[tuple[Expression, int]]:
    """The expressions after SELECT and ORDER BY, and where they begin."""
    for item in select.items:
        if item.expression is not None:
            yield item.expression, item.start
    for key in select.order:
        yield key.expression, key.start


def _mentions_prob(expression: Expression) -> bool:
    named = isinstance(expression, Call) and expression.name == "prob"
    return named or any(map(_mentions_prob, expression.children))


def _wide_column(found: Bound, column: Column) -> str:
    if column.table is None:
        return column.name
    for n, table in enumerate(found.tables):
        if table.alias == column.table:
            return f"t{n}_{table.frame.columns.index(column.name)}"
    raise AssertionError(column)


def _wide_sql(found: Bound, expression: Expression) -> str:
    return to_sql(expression, lambda column: _wide_column(found, column))
