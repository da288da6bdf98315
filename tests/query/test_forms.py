"""The normal form of uncertain conditions: what it looks like, and that it says the same of plain numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from haply.errors import HaplyError
from haply.probability import Difference, Distance, Region
from haply.probability.region import Linear
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
    Not,
    Or,
)
from haply.query.forms import Near, Part, split, split_many
from haply.query.text import parse

UNCERTAIN = {"x", "y", "z", "u", "g", "r", "pos"}


def split_text(text):
    return split(parse(text), lambda column: column.name not in UNCERTAIN)


BEFORE_AND_AFTER = [
    ("x < 3 AND id = 7", ["id = 7"], [["x in (-inf, 3)"]]),
    ("3 >= -x", [], [["x in [-3, inf)"]]),
    ("-2 * x + 1 > 5", [], [["x in (-inf, -2)"]]),
    ("x BETWEEN 1 AND 2 OR x > 5", [], [["x in [1, 2] or (5, inf)"]]),
    ("NOT (x BETWEEN 1 AND 2)", [], [["x in (-inf, 1) or (2, inf)"]]),
    ("abs(x) > 3", [], [["x in (-inf, -3) or (3, inf)"]]),
    ("2 * abs(x - 1) <= 4", [], [["x in [-1, 3]"]]),
    ("abs(3 - 2 * x) < 1", [], [["x in (1, 2)"]]),
    ("5 > abs(x)", [], [["x in (-5, 5)"]]),
    ("x != 3", [], [["x in (-inf, 3) or (3, inf)"]]),
    ("abs((u - g) - 2 * t) < tol", [], [["g - u in (-tol + -(2 * t), tol + -(2 * t))"]]),
    ("x / 4 + y < c", [], [["x + 4*y in (-inf, c * 4)"]]),
    ("x * x + y * y < 4 AND z > 1", [], [["x^2 + y^2 in (-inf, 4)"], ["z in (1, inf)"]]),
    ("(x - 1) ** 2 + power(y, 2) <= 9", [], [["-2*x + x^2 + y^2 in (-inf, 8]"]]),
    ("0.1 * x + 0.2 * x < 0.3", [], [["x in (-inf, 1)"]]),
    # what shares a column is one group, also over a third
    (
        "x < 1 AND y > 2 AND u < 0 AND x + y < 4",
        [],
        [["x in (-inf, 1)", "y in (2, inf)", "x + y in (-inf, 4)"], ["u in (-inf, 0)"]],
    ),
    ("pos[0] < 1 AND pos[1] > 2", [], [["pos[0] in (-inf, 1)", "pos[1] in (2, inf)"]]),
    ("distance(a.pos, b.pos) <= 3 AND a.k = b.k", ["a.k = b.k"], [["distance(a.pos, b.pos) <= 3"]]),
    ("2 < distance(a.pos, b.pos)", [], [["distance(a.pos, b.pos) > 2"]]),
    (
        "abs((left.u - left.g) - (right.u - right.g)) < 0.05 AND abs((left.g - left.r) - (right.g - right.r)) < 0.05",
        [],
        [[f"left.g - left.{a} - right.g + right.{a} in (-0.05, 0.05)" for a in "ur"]],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "certain", "groups"), BEFORE_AND_AFTER)
def test_before_and_after(text, certain, groups):
    found = split_text(text)
    assert [str(part) for part in found.certain] == certain
    assert [[str(part) for part in group] for group in found.groups] == groups


def value_of(node: Expression, row):
    """What an expression is for plain numbers."""
    match node:
        case Column():
            return row[str(node)]
        case Literal(value):
            return Fraction(repr(value))
        case Negative(operand):
            return -value_of(operand, row)
        case Arithmetic(op, left, right):
            a, b = value_of(left, row), value_of(right, row)
            return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "**": lambda: a**b}[
                op
            ]()
        case Call("abs", (inner,)):
            return abs(value_of(inner, row))
        case Call("power", (base, exponent)):
            return value_of(base, row) ** value_of(exponent, row)
        case Comparison(op, left, right):
            a, b = value_of(left, row), value_of(right, row)
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "=": a == b, "!=": a != b}[op]
        case Between(value, low, high):
            return value_of(low, row) <= value_of(value, row) <= value_of(high, row)
        case Not(inner):
            return not value_of(inner, row)
        case And(conditions):
            return all(value_of(each, row) for each in conditions)
        case Or(conditions):
            return any(value_of(each, row) for each in conditions)
    raise AssertionError(node)


def scalar(value, row):
    return value_of(value, row) if isinstance(value, Expression) else value


def holds(part: Part, row) -> bool:
    form = part.form
    value = scalar(form.constant, row)
    value += sum(scalar(c, row) * row[name] for name, c in form.linear.items())
    value += sum(scalar(c, row) * row[one] * row[two] for (one, two), c in form.squares.items())
    for interval in part.intervals:
        low = -math.inf if interval.low is None else scalar(interval.low, row)
        high = math.inf if interval.high is None else scalar(interval.high, row)
        above = value > low or (interval.low_closed and value == low)
        if above and (value < high or (interval.high_closed and value == high)):
            return True
    return False


def random_term(rng):
    name = str(rng.choice(["x", "y", "t"]))
    factor = str(rng.choice(["", "2 * ", "0.5 * ", "-1 * ", "c * "]))
    return f"{factor}{name}"


def random_condition(rng):
    """Of the kinds that are understood, in whole and half numbers, so that ties are common."""
    body = " + ".join(["x", *(random_term(rng) for _ in range(rng.integers(0, 3)))])
    if rng.random() < 0.3:
        body = f"{body} - {random_term(rng)}"
    if rng.random() < 0.25:
        body = f"({body}) ** 2 + y * y - x * 3"
    shape = rng.integers(0, 6)
    a, b = sorted(int(n) for n in rng.integers(-4, 5, 2))
    op = str(rng.choice(["<", "<=", ">", ">=", "=", "!="]))
    if shape == 0:
        return f"abs({body}) {op} {abs(a)}"
    if shape == 1:
        return f"{body} BETWEEN {a} AND {b}"
    if shape == 2:
        return f"NOT ({body} {op} {a})"
    if shape == 3:
        return f"{body} < {a} OR {body} >= {b}"
    if shape == 4:
        return f"-3 * abs({body}) {op} t * 0 - {abs(b)}"
    return f"{a} {op} {body}"


def test_the_normal_form_says_the_same():
    rng = np.random.default_rng(1)
    told, refused = {True: 0, False: 0}, 0
    for _ in range(400):
        text = random_condition(rng)
        condition = parse(text)
        try:
            (group,) = split(condition, lambda column: column.name not in UNCERTAIN).groups
        except HaplyError:  # x and -x cancel out
            refused += 1
            continue
        (part,) = group
        for _ in range(12):
            row = {name: Fraction(int(rng.integers(-8, 9)), 2) for name in ("x", "y", "t", "c")}
            wanted = value_of(condition, row)
            assert holds(part, row) == wanted, (text, row, str(part))
            told[wanted] += 1
    assert min(told.values()) > 500
    assert refused < 40


def test_near_is_told_from_beyond():
    near = split_text("distance(a.pos, b.pos) < r2").groups[0][0]
    assert isinstance(near, Near)
    assert (near.closed, near.beyond, str(near.limit)) == (False, False, "r2")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x < 1 OR y < 2", "OR of conditions on different columns"),
        ("abs(x) < y", "beside further uncertain terms"),
        ("x / y < 1", "division by"),
        ("x / 0 < 1", "division by zero"),
        ("x * y * z < 1", "more than two"),
        ("x - x < 1", "cancel out"),
        ("sin(x) < 1", r"function sin\(\)"),
        ("x ** 3 < 1", "only squares"),
        ("abs(x) + abs(y) < 1", "inside a sum"),
        ("abs(x) < -1", "negative tolerance"),
        ("x", "not a comparison"),
        ("x + 1", "is a value"),
        ("x BETWEEN y AND 3", "uncertain ends of BETWEEN"),
        ("distance(a.pos, b.pos) < x", "distance"),
    ],
)
def test_what_is_not_understood(text, reason):
    with pytest.raises(HaplyError, match=reason):
        split_text(text)


def many(text):
    return split_many(parse(text), lambda column: column.name not in UNCERTAIN)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("abs(a.x - b.x) <= 1", [Difference("a.x", "b.x", Region(-1, 1))]),
        ("b.x - a.x BETWEEN -1 AND 2", [Difference("a.x", "b.x", Region(-2, 1))]),
        (
            "a.x < b.x AND b.x <= 3 + a.x",
            [Difference("a.x", "b.x", Region(-3, 0, high_closed=False))],
        ),
        ("abs(a.x - b.x) > 2", [Difference("a.x", "b.x", Region(-2, 2, outside=True))]),
        ("a.x > 3", [Difference("a.x", "0", Region(3, math.inf, low_closed=False))]),
        (
            "a.x + b.x < 2 * c.x AND a.k = 1",
            [Linear((("a.x", 1.0), ("b.x", 1.0), ("c.x", -2.0)), Region(-math.inf, 0, high_closed=False))],
        ),
        ("distance(b.pos, a.pos) < 3", [Distance("b.pos", "a.pos", 3.0, closed=False)]),
    ],
)
def test_conditions_of_many_tables(text, wanted):
    assert list(many(text).uncertain) == wanted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("distance(a.pos, b.pos) > 3", "upper limit"),
        ("a.x * b.x < 1", "sums and differences"),
        ("a.x < b.x + c.k", "numbers instead of"),
        ("a.x < b.x AND a.x > b.x + 1", "can never hold"),
        ("abs(a.x - b.x) > 2 AND a.x < b.x", "one range"),
        ("a.x < 1 OR a.x BETWEEN 2 AND 3 OR a.x > 9", "one range"),
    ],
)
def test_what_cannot_be_part_of_a_join_of_many(text, reason):
    with pytest.raises(HaplyError, match=reason):
        many(text)
