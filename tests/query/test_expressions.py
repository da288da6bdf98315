"""The operators people type, and the trees they build."""

from __future__ import annotations

import copy
import datetime
import decimal
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from haply.errors import HaplyError
from haply.probability.region import Difference, Region
from haply.query.expressions import (
    MAX_DEPTH,
    And,
    Arithmetic,
    Between,
    Call,
    Column,
    Comparison,
    Expression,
    Literal,
    Negative,
    Not,
    Opaque,
    Or,
    TableColumns,
    between,
    col,
    distance,
    left,
    right,
)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (left.temp, Column("left", "temp")),
        (left["temp"], Column("left", "temp")),
        (right["a.b"], Column("right", "a.b")),
        (col("left.x"), Column("left", "x")),
        (col("LEFT.x"), Column("left", "x")),
        (col("x"), Column(None, "x")),
        (col("left"), Column(None, "left")),
        (col("left.`a.b`"), Column("left", "a.b")),
        (col("`a``b`"), Column(None, "a`b")),
        (col("two words"), Column(None, "two words")),
        (col("pos")[0], Column(None, "pos", 0)),
        (col("left.pos[2]"), Column("left", "pos", 2)),
        (left.pos[np.int64(1)], Column("left", "pos", 1)),
    ],
)
def test_columns(column: Column, expected: Column) -> None:
    assert column.same_as(expected)


@pytest.mark.parametrize("name", ["index", "count", "name", "table", "same_as", "keys", "mro", "_x", "__x", "class"])
def test_every_attribute_of_a_side_is_a_column(name: str) -> None:
    assert getattr(left, name).same_as(Column("left", name))


def test_a_side_has_no_public_attributes_of_its_own() -> None:
    assert [name for name in dir(TableColumns) if not name.startswith("_")] == []


def test_a_side_survives_copying_and_pickling() -> None:
    for twin in (copy.copy(left), copy.deepcopy(left), pickle.loads(pickle.dumps(left))):
        assert twin.x.same_as(left.x)
    assert repr(left) == "<columns of left>"
    assert not hasattr(left, "__array__")


@pytest.mark.parametrize(
    ("expression", "text", "tree"),
    [
        (left.a + 1, "left.a + 1", Arithmetic("+", left.a, Literal(1))),
        (1 - left.a, "1 - left.a", Arithmetic("-", Literal(1), left.a)),
        (2 * left.a / 4, "2 * left.a / 4", Arithmetic("/", Arithmetic("*", Literal(2), left.a), Literal(4))),
        (2 / left.a, "2 / left.a", Arithmetic("/", Literal(2), left.a)),
        (left.a**2, "left.a ** 2", Arithmetic("**", left.a, Literal(2))),
        (2**left.a, "2 ** left.a", Arithmetic("**", Literal(2), left.a)),
        (-(left.a**2), "-left.a ** 2", Negative(Arithmetic("**", left.a, Literal(2)))),
        ((-left.a) ** 2, "(-left.a) ** 2", Arithmetic("**", Negative(left.a), Literal(2))),
        (-Negative(left.a), "-(-left.a)", Negative(Negative(left.a))),
        (+left.a, "left.a", left.a),
        (left.a - (left.b - 1), "left.a - (left.b - 1)", left.a - Arithmetic("-", left.b, Literal(1))),
        (left.a - -1, "left.a - -1", Arithmetic("-", left.a, Literal(-1))),
        (abs(left.a - right.a), "abs(left.a - right.a)", Call("abs", (left.a - right.a,))),
        (distance(left.p, right.p) < 3, "distance(left.p, right.p) < 3", Call("distance", (left.p, right.p)) < 3),
        (left.a < 1, "left.a < 1", Comparison("<", left.a, Literal(1))),
        (left.a <= 1, "left.a <= 1", Comparison("<=", left.a, Literal(1))),
        (left.a > 1.5, "left.a > 1.5", Comparison(">", left.a, Literal(1.5))),
        (left.a >= 1, "left.a >= 1", Comparison(">=", left.a, Literal(1))),
        (left.a == "it's", "left.a = 'it\\'s'", Comparison("=", left.a, Literal("it's"))),
        (left.a != None, "left.a != NULL", Comparison("!=", left.a, Literal(None))),  # noqa: E711
        (1 < left.a, "left.a > 1", Comparison("<", Literal(1), left.a)),  # noqa: SIM300
        (1 == left.a, "left.a = 1", Comparison("=", Literal(1), left.a)),  # noqa: SIM300
        (np.float64(0.5) >= abs(left.a), "abs(left.a) <= 0.5", Comparison("<=", abs(left.a), Literal(0.5))),
        (np.int64(3) - left.a, "3 - left.a", Arithmetic("-", Literal(3), left.a)),
        (between(left.a, 1, right.b), "left.a BETWEEN 1 AND right.b", Between(left.a, Literal(1), right.b)),
        ((left.a < 1) & left.flag, "left.a < 1 AND left.flag", And((left.a < 1, left.flag))),
        (True & left.flag, "TRUE AND left.flag", And((Literal(True), left.flag))),
        (False | left.flag, "FALSE OR left.flag", Or((Literal(False), left.flag))),
        ((left.f | left.g) & ~left.h, "(left.f OR left.g) AND NOT left.h", And((Or((left.f, left.g)), Not(left.h)))),
        (left.f & (left.g & left.h), "left.f AND left.g AND left.h", And((left.f, left.g, left.h))),
        (~(left.a < 1), "NOT left.a < 1", Not(left.a < 1)),
        ((left.a < 1) == (left.b < 2), "(left.a < 1) = (left.b < 2)", Comparison("=", left.a < 1, left.b < 2)),
    ],
)
def test_operators_build_trees_that_print_as_sql(expression: Expression, text: str, tree: Expression) -> None:
    assert expression.same_as(tree)
    assert str(expression) == text
    assert text in repr(expression)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column("left", "select"), "left.`select`"),
        (Column("left", "a.b"), "left.`a.b`"),
        (Column(None, "x`y"), "`x``y`"),
        (Column("my table", "2mass"), "`my table`.`2mass`"),
        (Column(None, "left"), "left"),
        (Column("left", "pos", 0), "left.pos[0]"),
    ],
)
def test_unusual_names_print_in_backquotes(column: Column, text: str) -> None:
    assert str(column) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (left.a, right.a),
        (left.a, left.a[0]),
        (Literal(1), Literal(1.0)),
        (Literal(1), Literal(True)),
        (left.a < 1, left.a <= 1),
        (left.f & left.g, left.f | left.g),
        (left.f & left.g, left.g & left.f),
        (Call("f", (left.a,)), Call("f", (left.a, left.a))),
        (Opaque((left.a, " IS NULL")), Opaque((left.b, " IS NULL"))),
    ],
)
def test_same_as_tells_trees_apart(one: Expression, other: Expression) -> None:
    assert one.same_as(copy.deepcopy(one))
    assert other.same_as(pickle.loads(pickle.dumps(other)))
    assert not one.same_as(other)
    assert not other.same_as(one)
    assert not one.same_as("left.a")


def test_opaque_joins_neighbouring_text() -> None:
    assert Opaque((left.a, " IS", " NOT", "", " NULL")).parts[1:] == (" IS NOT NULL",)
    assert [str(child) for child in Opaque(("f(", left.a, ", ", right.b, ")")).children] == ["left.a", "right.b"]


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (lambda: 0 < left.a < 1, r"combine conditions with & \| ~"),
        (lambda: (left.a < 1) and (left.b < 1), "not with and, or, not"),
        (lambda: not left.flag, "neither true nor false"),
        (lambda: (left.a < 1) & 2, "AND is applied to a value.*Found 2.*parentheses around each comparison"),
        (lambda: left.a < 1 & left.b, "AND is applied to a value"),
        (lambda: ~(left.a + 1), "NOT is applied to a value"),
        (lambda: (left.a < 1) < 2, "A condition is compared with a value"),
        (lambda: left.a < float("nan"), "not finite"),
        (lambda: left.a < float("inf"), "not finite"),
        (lambda: left.a + 10**400, "not finite"),
        (lambda: left.a < decimal.Decimal("sNaN"), "not finite"),
        (lambda: left.a < datetime.datetime(2026, 1, 1), "of type datetime.*TIMESTAMP '2026-01-31 12:00:00'"),
        (lambda: left.a < left, "of type TableColumns"),
        (lambda: left.a < [1, 2], "of type list"),
        (lambda: left.pos[-1], "a whole number from 0"),
        (lambda: left.pos[True], "a whole number from 0"),
        (lambda: left.pos["x"], "a whole number from 0"),
        (lambda: left.pos[0][1], "a single component already"),
        (lambda: left[0], r"left\[0\] is not a column"),
        (lambda: left[""], "has no name"),
        (lambda: col(""), "not a column name"),
        (lambda: col("a.b.c"), "backquotes"),
        (lambda: col(3), "not a column name"),  # type: ignore[arg-type]
        (lambda: Call("abs", (left.a, left.b)), "takes 1 argument. Found 2 arguments"),
        (lambda: Call("distance", (left.a,)), "takes 2 arguments"),
        (lambda: Call("a b", ()), "not the name of a function"),
        (lambda: Call("select", ()), "not the name of a function"),
        (lambda: Comparison("~", left.a, left.b), "no operator '~'"),
        (lambda: Arithmetic("%", left.a, left.b), r"no operator '%'"),
        (lambda: And((left.f,)), "two or more"),
    ],
)
def test_slips_are_refused_with_a_hint(slip: Callable[[], object], message: str) -> None:
    with pytest.raises(HaplyError, match=message):
        slip()


@pytest.mark.parametrize("misuse", [lambda: list(left.x), lambda: 3 in left.x, lambda: list(left), lambda: {left.x}])
def test_expressions_are_neither_sequences_nor_keys(misuse: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        misuse()


def test_decimals_are_numbers() -> None:
    assert (left.a < decimal.Decimal("0.25")).same_as(left.a < 0.25)
    assert type((left.a < np.float64(0.25)).right.value) is float  # type: ignore[attr-defined]


def test_long_chains_stay_flat_and_deep_trees_are_refused() -> None:
    chain = left.f & left.g
    for _ in range(2000):
        chain = chain & left.h
    assert str(chain).count("AND") == 2001

    deep: Expression = left.a
    for _ in range(MAX_DEPTH - 1):
        deep = deep + 1
    assert str(deep).count("+") == MAX_DEPTH - 1
    with pytest.raises(HaplyError, match="nested more than 100 levels deep"):
        deep + 1


def test_as_difference() -> None:
    assert (abs(left.t - right.u) <= 0.5).as_difference() == Difference("t", "u", Region(-0.5, 0.5))
    assert (left.t > right.t).as_difference() == Difference("t", "t", Region(0, float("inf"), low_closed=False))
    for other in (left.t > 3, left.flag, (left.t > right.t) & (left.u > right.u), Literal(True), left.t - right.t):
        with pytest.raises(HaplyError):
            other.as_difference()
