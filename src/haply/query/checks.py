"""Checks of a condition as it was written: conditions that never hold, and those that are probably a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from haply.errors import HaplyError
from haply.models import Model, OneDimensional
from haply.query.columns import columns_of
from haply.query.expressions import (
    And,
    Arithmetic,
    Between,
    Call,
    Column,
    Comparison,
    Expression,
    Literal,
    Negative,
    Opaque,
)
from haply.query.forms import Form, Near, form_or_reason
from haply.query.spelling import is_exclusive, spelled_out

ModelOf = Callable[[Column], type[Model] | None]
"""The model of an uncertain column; None for a certain one."""


def refuse_equalities(condition: Expression, model_of: ModelOf) -> None:
    """Refuse ``=`` and ``!=`` with a continuous value anywhere in a condition: they never hold, or always do.

    Values with atoms, such as samples, can be equal.
    """
    if not _may_ask_for_equality(condition):
        return
    for comparison in _equalities(spelled_out(condition, lambda column: model_of(column) is None)):
        column = _continuous_column(comparison, model_of)
        if column is None:
            continue
        model = model_of(column)
        assert model is not None
        raise HaplyError(
            f"The condition `{comparison}` {'never' if comparison.op == '=' else 'always'} holds: "
            f"`{column}` is continuous ({model.kind}), and equals any other value with probability 0",
            expected="a tolerance",
            hint=f"write {_with_tolerance(comparison, column.index is None and not issubclass(model, OneDimensional))}"
            + ("; whether two rows are the same thing is a question for hp.match" if comparison.op == "=" else ""),
        )


def _may_ask_for_equality(node: Expression) -> bool:
    """Return whether there is an equality in it, or something that may be one in disguise, as IN."""
    if isinstance(node, Comparison):
        found = node.op in ("=", "!=") and not is_exclusive(node)
    else:
        first = node.parts[0] if isinstance(node, Opaque) else "CASE WHEN "
        found = not (isinstance(first, str) and first == "CASE WHEN ")
    return found or any(map(_may_ask_for_equality, node.children))


def _equalities(node: Expression) -> Iterator[Comparison]:
    if isinstance(node, Comparison) and node.op in ("=", "!=") and _is_number(node.right):
        yield node
    for child in node.children:
        yield from _equalities(child)


def _continuous_column(comparison: Comparison, model_of: ModelOf) -> Column | None:
    """Return a continuous column that keeps both sides from being equal; None if there is none."""
    if all(model_of(column) is None for column in columns_of(comparison)):
        return None
    part = form_or_reason(comparison, lambda column: model_of(column) is None)
    if isinstance(part, (Near, str)):
        return None  # conditions that are not understood are refused by the plan

    def continuous(name: str) -> bool:
        model = model_of(part.form.columns[name])
        return model is not None and model.continuous

    return next(
        (part.form.columns[name] for name in part.form.variables if _decides(part.form, name, continuous)), None
    )


def _decides(form: Form, name: str, continuous: Callable[[str], bool]) -> bool:
    """Return whether a column makes the form continuous: none of its factors, certain or atoms, may be 0."""
    squares = [(pair, factor) for pair, factor in form.squares.items() if name in pair]
    factors = [form.linear[name]] if name in form.linear else []
    factors += [factor for _, factor in squares]
    others = {one for pair, _ in squares for one in pair}
    return all(isinstance(factor, Fraction) for factor in factors) and all(map(continuous, {name, *others}))


def _with_tolerance(comparison: Comparison, points: bool) -> str:
    """Return the comparison with a tolerance ``c``, as text."""
    left, right, c = comparison.left, comparison.right, Column(None, "c")
    if any(isinstance(side, Call) and side.name == "abs" for side in (left, right)):
        side, other = (left, right) if isinstance(left, Call) else (right, left)
        within = Between(side, other - c, other + c)
        return f"{within} with a tolerance c" if comparison.op == "=" else "a range instead, or leave it out"
    apart: Expression = abs(left if isinstance(right, Literal) and not right.value else Arithmetic("-", left, right))
    if points:
        apart = Call("distance", (left, right))
    if comparison.op == "=":
        return f"{apart <= c} with a tolerance c"
    return f"{apart > c} with a tolerance c, or leave it out"


def _is_number(node: Expression) -> bool:
    """Return whether it may be a number: literals are on the right of a comparison."""
    return not isinstance(node, Literal) or type(node.value) in (int, float)


def all_certain(condition: Expression, is_certain: Callable[[Column], bool], claims: bool) -> str | None:
    """Return the warning for a condition in which nothing is uncertain; None if that is intended.

    It is intended if the condition only compares keys or an order (``left.id < right.id``), unless the query has a
    threshold.
    """
    columns = columns_of(condition)
    if not columns or not all(map(is_certain, columns)) or not (claims or _compares_values(condition)):
        return None
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(map(str, columns)))
    return f"No column of the condition `{condition}` is uncertain, so every result has probability 1: {names} " + (
        "holds a plain value." if len(columns) == 1 else "hold plain values."
    )


def _compares_values(node: Expression) -> bool:
    """Return whether it compares more than equal keys, or the order of two columns, such as times."""
    match node:
        case Comparison("=" | "!=") | Comparison(_, Column(), Column()):
            return False
    return isinstance(node, (Comparison, Between)) or any(map(_compares_values, node.children))


_ERROR_WORDS = ("err", "error", "sigma", "sd", "std", "stddev", "unc", "uncertainty")


def ignored_errors(
    condition: Expression, is_certain: Callable[[Column], bool], columns_beside: Callable[[Column], Sequence[str]]
) -> list[str]:
    """Return what to write for certain columns that are compared although their table has an error column for them.

    A column is taken for the error of ``kg`` if it is called ``kg_err``, ``e_kg``, ``sigma_kg`` and the like, or
    ``err``, ``sigma`` and the like if that is the only such column.
    """
    found = []
    for column in columns_of(condition):
        if column.index is None and is_certain(column) and _is_measured(condition, column):
            error = _error_of(column.name, columns_beside(column))
            if error is not None:
                prefix = "" if column.table is None else f"{column.table}."
                found.append(f"gaussian({prefix}{column.name}, {prefix}{error})")
    return found


def error_left_out(written: str) -> tuple[str, str]:
    """Return the warning for a condition that ignores a column that looks like an error, and its hint."""
    value, error = (part.strip(" )") for part in written.partition("(")[2].split(","))
    return (
        f"`{value}` is compared as a certain value, but `{error}` looks like its error.",
        f"write {written} in the condition",
    )


def _error_of(name: str, columns: Sequence[str]) -> str | None:
    lowered = {column.lower(): column for column in columns}
    stem = name.lower()
    for word in _ERROR_WORDS:
        for spelled in (f"{stem}_{word}", f"{word}_{stem}", f"{stem}{word}", f"e_{stem}"):
            if spelled in lowered:
                return lowered[spelled]
    alone = [lowered[word] for word in _ERROR_WORDS if word in lowered]
    return alone[0] if len(alone) == 1 else None


def _is_measured(node: Expression, column: Column) -> bool:
    """Return whether a column is part of a difference or distance, as measured values are; keys and times are not."""
    if isinstance(node, Arithmetic) or (isinstance(node, Call) and node.name == "distance"):
        return any(one.same_as(column) for one in columns_of(node)) and len(columns_of(node)) > 1
    return any(_is_measured(child, column) for child in node.children)


def refuse_units(condition: Expression, unit_of: Callable[[Column], str | None]) -> None:
    """Refuse a comparison, sum or difference of values whose units are known and differ."""

    def unit_in(node: Expression) -> tuple[str, Expression] | None:
        if isinstance(node, Column):
            unit = unit_of(node)
            return None if unit is None else (unit, node)
        units = [unit_in(child) for child in node.children]
        adds = isinstance(node, (Comparison, Between)) or (isinstance(node, Arithmetic) and node.op in "+-")
        known = [one for one in units if one is not None]
        if adds or (isinstance(node, Call) and node.name == "distance"):
            for unit, where in known[1:]:
                if unit != known[0][0]:
                    raise HaplyError(
                        f"`{node}` mixes units: `{known[0][1]}` is in {known[0][0]}, `{where}` in {unit}",
                        expected="one unit",
                        hint="convert one of the columns first, and its error with it",
                    )
        keeps = adds or isinstance(node, (Negative, Call))
        return known[0] if known and keeps and not isinstance(node, (Comparison, Between)) else None

    unit_in(condition)


def meets_itself(condition: Expression, one: str, other: str, is_certain: Callable[[Column], bool]) -> bool:
    """Return whether a row may be compared with itself, if a query has its table twice, under two names.

    A certain condition may prevent that, as in ``left.id < right.id``.
    """
    uncertain = [column for column in columns_of(condition) if not is_certain(column)]
    names = [{column.name for column in uncertain if column.table == table} for table in (one, other)]
    parts = condition.conditions if isinstance(condition, And) else (condition,)
    return bool(names[0] & names[1]) and not any(_keeps_apart(part, {one, other}, is_certain) for part in parts)


def _keeps_apart(part: Expression, tables: set[str], is_certain: Callable[[Column], bool]) -> bool:
    match part:
        case Comparison("<" | ">" | "!=", Column() as left, Column() as right):
            return is_certain(left) and {left.table, right.table} == tables and left.name == right.name
    return False


def taken_as_independent(one: str, other: str) -> tuple[str, str]:
    """Return the warning for a query that has a table twice, and its hint."""
    return (
        f"A table is joined with itself, and {one} and {other} are taken as independent: "
        "also a row and itself, which are one and the same value.",
        f'hp.table(frame, key="id"), or FROM t KEY id in SQL, takes rows with the same id as one value; '
        f"{one}.id < {other}.id leaves them out",
    )
