"""Certain expressions for DuckDB, with the meaning that Spark gives them.

Conditions are written in Spark's SQL. Most of it has the same meaning in DuckDB, and sqlglot translates the spelling.
The differences are rewritten here: division by zero is an error, casts to whole numbers cut, ``get`` counts from
zero. Functions that are not in ``FUNCTIONS`` are refused: it is not tested that both engines agree on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import sqlglot
from sqlglot import exp

from haply.errors import HaplyError, unknown_name
from haply.models.measurements import PATTERNS
from haply.planning.frames import Frame

FUNCTIONS = (
    "abs", "array", "cast", "ceil", "ceiling", "char_length", "coalesce", "concat", "contains", "cos", "date_add",
    "date_diff", "date_sub", "datediff", "day", "dayofmonth", "endswith", "exp", "floor", "get", "greatest", "hour",
    "if", "ifnull", "instr", "isnan", "isnotnull", "isnull", "lcase", "least", "length", "ln", "log10", "lower",
    "ltrim", "minute", "month", "named_struct", "nullif", "nvl", "pow", "power", "radians", "replace", "round", "rtrim",
    "second", "sign", "signum", "sin", "size", "sqrt", "startswith", "struct", "substr", "substring", "to_date", "trim",
    "ucase", "upper", "year",
)  # fmt: skip
"""Functions of Spark that mean the same here."""

_KNOWN = {
    *FUNCTIONS, "and", "or", "xor", "case", "try_cast", "str_position", "array_size", "struct", "log", "day_of_month",
    "ts_or_ds_to_date", "ts_or_ds_add", "starts_with", "ends_with", "is_nan", "logical_and", "extract", "array_length",
}  # fmt: skip
"""The same and others, by the names that sqlglot has for them."""

MACROS = """
CREATE OR REPLACE TEMP MACRO haply_whole(x BOOLEAN) AS CAST(x AS BIGINT),
    (x BIGINT) AS x,
    (x DOUBLE) AS CAST(trunc(x) AS BIGINT),
    (x VARCHAR) AS CASE WHEN regexp_full_match(trim(x), '[+-]?[0-9]+') THEN CAST(x AS BIGINT)
        ELSE error(concat('haply: ', x, ' is not a whole number')) END
"""
"""Macros that translated expressions need in DuckDB: casts to whole numbers, by the type of the value."""

_WHOLE = (exp.DataType.Type.TINYINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.INT, exp.DataType.Type.BIGINT)


@lru_cache(maxsize=4096)
def to_duckdb(sql: str) -> str:
    """Translate an expression of Spark SQL."""
    tree = sqlglot.parse_one(sql, read="spark")
    for call in tree.find_all(exp.Func):
        if isinstance(call, exp.RegexpExtract) and call.expression.name in PATTERNS:
            continue  # other patterns may mean something else to Spark
        if not isinstance(call, exp.Anonymous) and not {name.lower() for name in call.sql_names()} & _KNOWN:
            check_function(call.sql_name())
    return tree.transform(_translated).sql(dialect="duckdb")


@lru_cache(maxsize=4096)
def _names_in(sql: str) -> tuple[str, ...]:
    """Return all names of columns and fields in an expression, in lower case."""
    tree = sqlglot.parse_one(sql, read="spark")
    found = [part.name.lower() for column in tree.find_all(exp.Column) for part in column.parts]
    return tuple(dict.fromkeys(found))


def columns_in(sql: str, names: Sequence[str]) -> list[str]:
    """Return those of a table's columns that an expression may use."""
    used = set(_names_in(sql))
    return [name for name in names if name.lower() in used]


def check_function(name: str, also: tuple[str, ...] = ()) -> None:
    """Refuse a function that is not known to mean the same on both engines."""
    if name.lower() not in (*FUNCTIONS, *also):
        nearest = str(unknown_name("function", name, (*also, *FUNCTIONS))).partition("Hint: ")[2]
        raise HaplyError(
            f"The local engine does not know the function {name}()",
            hint=nearest or "Spark knows more functions: give Spark DataFrames, or compute the column before",
        )


def _translated(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Div():
            return _unless_zero(
                node.right, exp.Div(this=_double(node.left), expression=_double(node.right), typed=False)
            )
        case exp.IntDiv() | exp.Mod():
            return _unless_zero(node.right, node.copy())
        case exp.TryCast() | exp.Cast() if node.to.this in _WHOLE:
            return exp.Cast(this=exp.Anonymous(this="haply_whole", expressions=[node.this]), to=node.to)
        case exp.TryCast():
            return exp.Cast(this=node.this, to=node.to)
        case exp.IsNan():
            return exp.Coalesce(this=node.copy(), expressions=[exp.false()])
        case exp.TsOrDsAdd() | exp.DateAdd() | exp.DateSub():
            return exp.Cast(this=node.copy(), to=exp.DataType.build("date"))
        case exp.Bracket(expressions=[at]) if not (isinstance(at, exp.Literal) and at.is_string):
            return _element(node.this, at, refuses=True)
        case exp.Anonymous():
            return _named(node)
    return node


def _named(node: exp.Anonymous) -> exp.Expr:
    name, given = node.name.lower(), node.expressions
    match name, given:
        case "get", [array, at]:
            return _element(array, at, refuses=False)
        case "isnull", [value]:
            return exp.Is(this=exp.paren(value), expression=exp.Null())
        case "isnotnull", [value]:
            return exp.Not(this=exp.Is(this=exp.paren(value), expression=exp.Null()))
    check_function(name, ("haply_whole", "list_extract", "len", "error"))
    return node


def _element(array: exp.Expr, at: exp.Expr, refuses: bool) -> exp.Expr:
    """Take an element of an array, counted from zero; a missing one is an error, or else NULL."""
    position = exp.Add(this=exp.paren(at.copy()), expression=exp.Literal.number(1))
    taken = exp.Anonymous(this="list_extract", expressions=[array.copy(), position])
    length = exp.Anonymous(this="len", expressions=[array.copy()])
    below = exp.LT(this=exp.paren(at.copy()), expression=exp.Literal.number(0))
    above = exp.GTE(this=exp.paren(at.copy()), expression=length)
    text = exp.Literal.string("haply: an element is taken from beyond the ends of an array")
    other = exp.Anonymous(this="error", expressions=[text]) if refuses else exp.Null()
    return exp.paren(exp.Case(ifs=[exp.If(this=exp.or_(below, above), true=other)], default=taken))


def _unless_zero(divisor: exp.Expr, quotient: exp.Expr) -> exp.Expr:
    zero = exp.EQ(this=exp.paren(divisor.copy()), expression=exp.Literal.number(0))
    refusal = exp.Anonymous(this="error", expressions=[exp.Literal.string("haply: division by zero")])
    return exp.paren(exp.Case(ifs=[exp.If(this=zero, true=refusal)], default=quotient))


def _double(value: exp.Expr) -> exp.Expr:
    return exp.Cast(this=exp.paren(value.copy()), to=exp.DataType.build("double"))


class LocalCatalog:
    """The functions of the local engine."""

    def table(self, parts: Sequence[str]) -> Frame | None:
        """Find a table by its name: there are no others than those given."""
        return None

    def names(self) -> list[str]:
        """List the tables, for hints."""
        return []

    def check_function(self, name: str, also: Sequence[str]) -> None:
        """Refuse a function that is not known to mean the same on both engines."""
        check_function(name, tuple(also))
