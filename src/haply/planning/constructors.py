"""The constructors of uncertain columns: their names and parameters, the same on every engine and in SQL."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from haply.errors import HaplyError
from haply.models import Model
from haply.models.columns import MODELS
from haply.models.measurements import RECIPES, arguments_of
from haply.planning.frames import Frame, Text, field_of, find_column, names_of, quoted
from haply.query import Column, Expression, Literal, columns_of, to_sql, with_columns
from haply.query.expressions import Call, MadeColumn, Negative, Opaque, as_expression, rewritten
from haply.query.text import parse

PLAIN: dict[str, type[Model]] = {model.kind: model for model in MODELS if model.has_constructor}
"""Models whose constructors take just their parameters."""

PARAMETERS: dict[str, tuple[str, ...]] = {
    **{
        name: model.arguments or tuple(parameter.name for parameter in model.parameters)
        for name, model in PLAIN.items()
    },
    "samples": ("points", "probs", "dim"),
    "gaussian_nd": ("mean", "sd", "corr", "cov"),
    "latency": ("detected_at", "edges", "probs"),
    **{name: arguments_of(name)[0] for name in RECIPES},
}
"""The arguments of all constructors, by the names that these have in SQL, in lower case."""


NEEDED = {
    **{"samples": 1, "gaussian_nd": 1, "sky": 4, "sky_ellipse": 4},
    **{name: arguments_of(name)[1] for name in RECIPES},
}
"""How many arguments a constructor needs at least, where it does not need all."""
_LAST = {"sky": 0.0, "sky_ellipse": 0.0}
"""The last argument of a plain constructor, where it may be left out."""


def fields_of(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Name the arguments of a plain constructor as the parameters of its model."""
    names = (parameter.name for parameter in PLAIN[name].parameters)
    return dict(zip(names, (arguments.get(given, _LAST.get(name)) for given in PARAMETERS[name]), strict=True))


def bound_constructors(expression: Expression, frames: dict[str | None, Frame]) -> Expression:
    """Make columns of the constructors in a condition: ``gaussian(left.kg, left.err)`` is one of the left table.

    ``frames`` has the tables by their names in the condition; tables that get a column are replaced in it.
    """
    made: dict[tuple[str | None, str], str] = {}

    def change(node: Expression) -> Expression | None:
        part = component_of(node)
        if part is not None:
            column = change(part[0])
            return column[part[1]] if isinstance(column, Column) else None
        if has_fixed_point(node):
            return with_points(node, make, change)
        return make(node, None) if isinstance(node, Call) and node.name in PARAMETERS else None

    def make(node: Call, owner: str | None) -> Expression | None:
        """Return a column of the table whose columns it is made of, or of the owner."""
        columns = columns_of(node)
        tables = list(dict.fromkeys(column.table for column in columns))
        if len(tables) > 1:
            raise HaplyError(
                f"`{node}` is made of columns of two tables",
                expected="columns of one table",
                hint="a value belongs to a row of one table",
            )
        table = tables[0] if tables else owner if owner in frames else next(iter(frames))
        if table not in frames:
            return None  # an unknown column is refused later, where all are looked up
        frame = frames[table]
        named = {column.name: find_column(frame, column.name, str(table or "given"), frames) for column in columns}
        for column in columns:
            if field_of(frame, named[column.name]).uncertain_model is not None:
                raise HaplyError(f"`{node}` is made of `{column}`, which is uncertain", expected="certain columns")
        text = str(with_columns(node, lambda column: replace(column, table=None) if column.table else column))
        if (table, text) not in made:
            name = free_name(text, names_of(frame))
            frames[table] = with_made(frame, name, node, lambda column: quoted(named[column.name]))
            made[table, text] = name
        return MadeColumn(table, made[table, text], written=str(node))

    return rewritten(expression, change)


def has_fixed_point(node: Expression) -> bool:
    """Return whether it is the distance from a point that is written as an array: ``distance(pos, array(1, 2))``."""
    return isinstance(node, Call) and node.name == "distance" and any(map(_is_point, node.args))


def _is_point(node: Expression) -> bool:
    return isinstance(node, Call) and node.name == "array"


def with_points(
    node: Expression,
    make: Callable[[Call, str | None], Expression | None],
    change: Callable[[Expression], Expression | None],
) -> Expression:
    """Return a distance with columns in place of arrays: ``make`` makes them; ``change`` changes the other side."""
    assert isinstance(node, Call)
    owner = next((column.table for one in node.args for column in columns_of(one) if not _is_point(one)), None)
    found: list[Expression] = []
    for one in node.args:
        column = make(one, owner) if isinstance(one, Call) and _is_point(one) else None
        found.append(rewritten(one, change) if column is None else column)
    return Call("distance", tuple(found))


def with_made(frame: Frame, name: str, node: Call, rename: Callable[[Column], str]) -> Frame:
    """Add the column that a constructor makes, or that holds a fixed point."""
    if _is_point(node):
        uncertain = [one for one in node.args if isinstance(one, Call) and one.name in PARAMETERS]
        if uncertain:
            raise HaplyError(
                f"`{node}` is made of `{uncertain[0]}`, which is uncertain",
                expected="numbers and certain columns",
                hint="gaussian_nd(array(x, y), array(sd, sd)) is an uncertain point",
            )
        numbers = ", ".join(f"CAST({to_sql(one, rename)} AS DOUBLE)" for one in node.args)
        return frame.with_columns({name: f"array({numbers})"})
    return frame.with_model(name, *plain_call(node, rename))


def with_named_models(frame: Frame, models: Mapping[str, str], table: str) -> Frame:
    """Add uncertain columns that are written as text: ``{"kg": "gaussian(kg, err)"}``.

    A column of the same name is replaced. ``table`` says in errors which table it is.
    """
    for name, text in models.items():
        node = parse(text)
        if not isinstance(node, Call) or node.name not in PARAMETERS:
            raise HaplyError(
                f"`{text}` makes no uncertain column",
                expected="one of " + ", ".join(PARAMETERS),
                hint=f"{name}=gaussian({name}, error), if the column error holds standard deviations",
            )
        refuse_numbers(node)
        named = {column.name: find_column(frame, column.name, table) for column in columns_of(node)}
        for column in columns_of(node):
            if field_of(frame, named[column.name]).uncertain_model is not None:
                raise HaplyError(f"`{text}` is made of '{column.name}', which is uncertain", expected="certain columns")
        constructor, arguments = plain_call(node, lambda column: quoted(named[column.name]))  # noqa: B023 (used at once)
        frame = frame.with_model(name, constructor, arguments)
    return frame


def component_of(node: Expression) -> tuple[Call, int] | None:
    """Return the constructor and the number of a coordinate of its value: ``gaussian_nd(array(x, y), ...)[1]``."""
    match node:
        case Opaque((Call() as call, "[", Literal(int() as index), "]")) if call.name in PARAMETERS:
            return call, index
    return None


def free_name(stem: str, taken: Sequence[str]) -> str:
    """Find a name that no column has: the stem itself, which plans and errors then show, or one with a number."""
    lowered = {name.lower() for name in taken}
    names = itertools.chain([stem], (f"{stem}_{k}" for k in itertools.count(2)))
    return next(name for name in names if name.lower() not in lowered)


def plain_call(node: Call, rename: Callable[[Column], str]) -> tuple[str, list[Any]]:
    """Return the constructor that a call means and its arguments, as ``Frame.with_model`` takes them."""
    made = without_recipe(node)
    return made.name, [_argument_of(one, rename) for one in map(_known_value, made.args)]


def without_recipe(node: Call) -> Call:
    """Return the constructor of a model for one that is made of it: ``gaussian`` for ``measured``."""
    if node.name not in RECIPES:
        return node
    given = checked_arguments(node.name, [_known_value(one) for one in node.args])
    name, arguments = RECIPES[node.name](_function, *given)
    return Call(name, tuple(map(lifted, arguments)))


def refuse_numbers(node: Call) -> None:
    """Refuse constants that are wrong for every row: a negative sd, a level above 1."""
    made = without_recipe(node)
    if made.name in PLAIN:
        known = dict(zip(PARAMETERS[made.name], map(_known_value, made.args), strict=False))
        fields = {name: value for name, value in fields_of(made.name, known).items() if _is_constant(value)}
        if fields:
            PLAIN[made.name].refuse_constants(f"{node.name}()", fields)


def refuse_type(name: str, kind: str) -> None:
    """Refuse an argument of a constructor whose type, as Spark writes it, is not a number."""
    innermost = re.sub(r"array<|>", "", kind)
    if not re.fullmatch(r"(tinyint|smallint|int|bigint|float|double|decimal\(.*\)|timestamp|void)", innermost):
        raise HaplyError(
            f"{name}() is made of something that is not a number",
            expected="numbers, or arrays of them",
            found=kind,
            hint="double(column) makes numbers of texts; hp.parse reads texts such as 12.3 ± 0.4"
            if kind == "string"
            else "",
        )


def _is_constant(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_constant, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _function(name: str, *arguments: Any) -> Expression:
    return Call(name, tuple(map(as_expression, arguments)))


def lifted(value: Any) -> Expression:
    """Return an argument of a constructor as an expression."""
    if isinstance(value, (list, tuple)):
        return Call("array", tuple(map(lifted, value)))
    return as_expression(value)


def _known_value(expression: Expression) -> Any:
    """Return a number, None, or a list, where an argument is one; else the expression itself."""
    match expression:
        case Literal(None):
            return None
        case Literal(int() | float() as number) if not isinstance(number, bool):
            return number
        case Negative(Literal(int() | float() as number)):
            return -number
        case Call("array", arguments):
            return [_known_value(one) for one in arguments]
    return expression


def _argument_of(value: Any, rename: Callable[[Column], str]) -> Any:
    """Return an argument with SQL in the place of expressions."""
    if isinstance(value, list):
        return [_argument_of(one, rename) for one in value]
    return Text(to_sql(value, rename)) if isinstance(value, Expression) else value


def checked_arguments(name: str, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of a constructor in their places; a wrong number of them is refused."""
    if name == "samples" and len(arguments) == 2 and isinstance(arguments[1], (int, float)):
        arguments = [arguments[0], None, arguments[1]]  # one number is the dimension: probabilities are an array
    known = PARAMETERS[name]
    if not NEEDED.get(name, len(known)) <= len(arguments) <= len(known):
        raise HaplyError(
            f"{name}() takes other arguments",
            expected=f"{name}({', '.join(known)})",
            found=f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}",
        )
    for given, argument in zip(known, arguments, strict=False):
        if given == "dim" and argument is not None and type(argument) is not int:
            raise HaplyError("The dimension of samples is not a whole number", found=str(argument))
    return tuple(arguments)


def flattened(points: Sequence[Any], nested: Sequence[Any], dim: int | None) -> tuple[Sequence[Any], int | None]:
    """Return the coordinates of nested points one after the other, and their dimension; flat ones are unchanged."""
    if not nested:
        return points, dim
    lengths = {len(point) for point in nested}
    if len(nested) != len(points) or len(lengths) != 1 or (dim is not None and lengths != {dim}):
        raise HaplyError(
            "The points of samples differ in dimension",
            expected=f"points of {dim} numbers" if dim is not None else "points of one length",
            found=f"points of {', '.join(str(n) for n in sorted(lengths))} numbers",
        )
    return [number for point in nested for number in point], lengths.pop()
