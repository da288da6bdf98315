"""The normal form of join conditions, checked against plain evaluation of the conditions on numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import fewer
from haply.errors import HaplyError
from haply.probability.region import Difference, Distance, Region
from haply.query.columns import columns_of, to_sql
from haply.query.conditions import JoinCondition, Misfit, split_join
from haply.query.expressions import (
    Arithmetic,
    Between,
    Call,
    Column,
    Comparison,
    Expression,
    Literal,
    Negative,
    Not,
    between,
    left,
    right,
)
from haply.query.text import parse

UNCERTAIN = {"temp", "pos", "u", "g"}  # every other column is certain; those that start with s cannot be swept


def split(text: str) -> JoinCondition:
    found = split_join(
        parse(text), lambda column: column.name not in UNCERTAIN, lambda column: not column.name.startswith("s")
    )
    if isinstance(found, Misfit):
        raise found.error
    return found


def shown(condition: JoinCondition) -> dict[str, list[str]]:
    parts = {
        "left_only": [str(part) for part in condition.left_only],
        "right_only": [str(part) for part in condition.right_only],
        "equalities": [f"{one} ~ {other}" for one, other in condition.equalities],
        "residual": [str(part) for part in condition.residual],
    }
    return {name: texts for name, texts in parts.items() if texts}


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("abs(left.temp - right.temp) <= 0.5", Region(-0.5, 0.5)),
        ("abs(left.temp - right.temp) < 0.5", Region(-0.5, 0.5, False, False)),
        ("0.5 >= abs(right.temp - left.temp)", Region(-0.5, 0.5)),
        ("abs(left.temp - right.temp) > 3", Region(-3, 3, outside=True)),
        ("abs(left.temp - right.temp) >= 3", Region(-3, 3, False, False, outside=True)),
        ("abs(left.temp - right.temp - 1) <= 2", Region(-1, 3)),
        ("abs(right.temp - left.temp - 1) <= 2", Region(-3, 1)),
        ("abs(left.temp - right.temp) - 0.5 <= 0", Region(-0.5, 0.5)),
        ("2 * abs(left.temp - right.temp) <= 1", Region(-0.5, 0.5)),
        ("-abs(left.temp - right.temp) > -1", Region(-1, 1, False, False)),
        ("abs(left.temp - right.temp) = 0", Region(0, 0)),
        ("abs(left.temp - right.temp) > 0", Region(0, 0, outside=True)),
        ("left.temp > right.temp", Region(0, math.inf, low_closed=False)),
        ("left.temp >= right.temp", Region(0, math.inf)),
        ("right.temp > left.temp", Region(-math.inf, 0, high_closed=False)),
        ("right.temp - left.temp < 3", Region(-3, math.inf, low_closed=False)),
        ("3 > right.temp - left.temp", Region(-3, math.inf, low_closed=False)),
        ("left.temp + 1 <= right.temp + 3", Region(-math.inf, 2)),
        ("left.temp - right.temp <= 0.1 + 0.2", Region(-math.inf, 0.3)),
        ("left.temp - right.temp <= 2**-2 * 4", Region(-math.inf, 1)),
        ("left.temp = right.temp", Region(0, 0)),
        ("left.temp = right.temp + 2", Region(2, 2)),
        ("left.temp != right.temp", Region(0, 0, outside=True)),
        ("left.temp - right.temp BETWEEN -1 AND 2", Region(-1, 2)),
        ("right.temp - left.temp BETWEEN -1 AND 2", Region(-2, 1)),
        ("left.temp BETWEEN right.temp - 1 AND right.temp + 2", Region(-1, 2)),
        ("left.temp - right.temp NOT BETWEEN -1 AND 2", Region(-1, 2, outside=True)),
        ("abs(left.temp - right.temp) BETWEEN 0 AND 2", Region(-2, 2)),
        ("abs(left.temp - right.temp) BETWEEN -1 AND 2", Region(-2, 2)),
        ("abs(left.temp - right.temp) NOT BETWEEN 0 AND 2", Region(-2, 2, outside=True)),
        ("NOT abs(left.temp - right.temp) > 3", Region(-3, 3)),
        ("left.temp < right.temp OR left.temp > right.temp + 3", Region(0, 3, outside=True)),
        ("left.temp + left.g - left.g > right.temp", Region(0, math.inf, low_closed=False)),
        ("NOT NOT left.temp > right.temp", Region(0, math.inf, low_closed=False)),
        ("(left.temp - right.temp) / 2 <= 1", Region(-math.inf, 2)),
        ("2 * left.temp - 2 * right.temp <= 1", Region(-math.inf, 0.5)),
        # several on the same pair are one band
        ("left.temp > right.temp - 1 AND left.temp <= right.temp + 2", Region(-1, 2, low_closed=False)),
        ("abs(left.temp - right.temp) < 3 AND right.temp < left.temp", Region(0, 3, False, False)),
        ("abs(left.temp - right.temp) > 1 AND abs(left.temp - right.temp) >= 2", Region(-2, 2, False, False, True)),
        ("abs(left.temp - right.temp) BETWEEN 1 AND 2 AND left.temp > right.temp", Region(1, 2)),
    ],
)
def test_uncertain_conditions_become_a_region(text: str, region: Region) -> None:
    condition = split(text)
    assert condition.difference == Difference("temp", "temp", region)
    assert shown(condition) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 * left.temp - right.temp < 3", r"does not understand.*`2 \* left.temp - right.temp < 3`.*scaled columns"),
        ("left.temp + right.temp < 3", "a sum over both tables"),
        ("abs((left.u - left.g) - (right.u - right.g)) < 0.05", "several columns of one table"),
        ("left.temp - left.bias < right.temp", "several columns of one table"),
        ("left.temp > 20", r"Expected abs\(left.a - right.b\) compared with a number.*one table only \(left.temp\)"),
        ("left.temp - left.temp < 3 AND left.a = right.a", "cancel out"),
        ("left.temp - left.temp > right.a - right.a", "cancel out"),
        ("left.temp - right.temp < left.temp - right.temp + 1", "cancel out"),
        ("left.temp * right.temp < 3", r"squares or products \(left.temp, right.temp\)"),
        ("left.temp**2 + right.temp**2 < 3", "squares or products"),
        ("left.temp / 0 < right.temp", "a division by zero"),
        ("left.temp - right.temp < 0**-1", "where a number is expected"),
        ("left.temp - right.temp < 10**10**10", "where a number is expected"),
        ("sqrt(left.temp) < right.temp", r"the function sqrt\(\)"),
        ("abs(left.temp - right.temp) < left.tolerance", r"abs\(...\) together with further uncertain terms"),
        ("left.temp < right.temp OR left.a = 3", "an OR of conditions on different columns"),
        ("NOT (left.temp < right.temp AND left.a = 3)", "not a comparison"),
        ("left.temp IN (right.temp, 3)", "not a comparison"),
        ("left.temp IS NOT NULL AND left.temp > right.temp", "not a comparison"),
        ("CAST(left.temp AS int) > right.temp", r"Found `CAST\(left.temp AS int\)`"),
        ("left.temp > right.temp + 'a'", "'a'.* where a number is expected"),
        ("left.temp > right.temp + NULL", "NULL.* where a number is expected"),
        ("(left.temp > 1) = (right.temp > 1)", r"Found `left.temp > 1`"),
        ("left.pos[0] > right.pos[0]", r"a component of a column \(left.pos\[0\], right.pos\[0\]\)"),
        ("left.temp BETWEEN right.temp AND right.u", "uncertain ends of BETWEEN"),
        ("left.temp", "not a comparison"),
        ("abs(left.temp - right.temp) <= -1", "negative tolerance.*Found -1.*check the sign"),
        ("abs(left.temp - right.temp) > -1", "negative tolerance"),
        ("abs(left.temp - right.temp) BETWEEN -2 AND -1", "negative tolerance"),
        ("abs(left.temp - right.temp) < 0", "can never hold"),
        ("left.temp - right.temp BETWEEN 2 AND 1", "can never hold"),
        ("abs(left.temp - right.temp) >= 0", "always holds"),
        (
            "left.temp > right.temp AND left.temp < right.temp",
            "`left.temp > right.temp` AND `left.temp < right.temp` can",
        ),
        ("abs(left.temp - right.temp) = 3", "several separate ranges"),
        ("abs(left.temp - right.temp) BETWEEN 1 AND 2", "several separate ranges"),
        ("abs(left.temp - right.temp) > 1 AND abs(left.temp - right.temp) < 3", "several separate ranges"),
        ("left.temp > right.temp AND left.u > right.u", "one uncertain condition per join.*`left.u > right.u`"),
        ("left.temp > right.temp AND left.temp > right.u", "one uncertain condition per join"),
        ("left.temp - right.temp < 1e300 * 1e300", "too large"),
        ("temp > 3", "`temp` names no table.*write left.temp or right.temp"),
        ("A.temp > left.temp", "The table 'A' of `A.temp` is not part of the join"),
        ("left.a - right.a", "is a value.*Expected a condition"),
        ("3", "is a value"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_text(text: str, message: str) -> None:
    with pytest.raises(HaplyError, match=message):
        split(text)


def test_the_parts_are_sorted() -> None:
    condition = split(
        "left.id < right.id AND left.kind = 'a' AND abs(left.temp - right.u) <= 1 AND upper(right.b) = left.b || 'x' "
        "AND right.flag AND left.c = right.c AND left.c + right.c = 3 AND 1 = 1 AND NOT (left.a = 1 OR left.b = 2) "
        "AND left.v <=> right.v AND left.w = 3"
    )
    assert condition.difference == Difference("temp", "u", Region(-1, 1))
    assert shown(condition) == {
        "left_only": ["left.kind = 'a'", "NOT (left.a = 1 OR left.b = 2)", "left.w = 3"],
        "right_only": ["right.flag"],
        "equalities": ["left.b || 'x' ~ upper(right.b)", "left.c ~ right.c"],
        "residual": ["left.id < right.id", "left.c + right.c = 3", "1 = 1", "left.v <=> right.v"],
    }


@pytest.mark.parametrize(
    ("text", "difference", "rest"),
    [
        ("abs(left.t - right.t) <= 5", Difference("t", "t", Region(-5, 5)), {}),
        (
            "left.t >= right.t - 5 AND left.k = right.k AND left.t < right.t + 5",
            Difference("t", "t", Region(-5, 5, high_closed=False)),
            {"equalities": ["left.k ~ right.k"]},
        ),
        (
            "left.a < right.a AND abs(left.t - right.t) <= 5 AND abs(left.v - right.v) <= 1",
            Difference("t", "t", Region(-5, 5)),
            {"residual": ["left.a < right.a", "abs(left.v - right.v) <= 1"]},
        ),
        ("left.t > right.t", None, {"residual": ["left.t > right.t"]}),
        ("left.t = right.t", None, {"equalities": ["left.t ~ right.t"]}),
        (
            "left.t = right.t AND left.t <= right.t + 5",
            None,
            {"equalities": ["left.t ~ right.t"], "residual": ["left.t <= right.t + 5"]},
        ),
        ("abs(left.t - right.t) > 5", None, {"residual": ["abs(left.t - right.t) > 5"]}),
        ("abs(left.s - right.s) <= 5", None, {"residual": ["abs(left.s - right.s) <= 5"]}),
        ("abs(left.t - right.s) <= 5", None, {"residual": ["abs(left.t - right.s) <= 5"]}),
        ("abs(left.t[0] - right.t[0]) <= 5", None, {"residual": ["abs(left.t[0] - right.t[0]) <= 5"]}),
        ("abs(left.t - right.t) <= -5", None, {"residual": ["abs(left.t - right.t) <= -5"]}),
        ("left.t - right.t BETWEEN 2 AND 1", None, {"residual": ["left.t - right.t BETWEEN 2 AND 1"]}),
        (
            "left.t > right.t + 1 AND left.t < right.t",
            None,
            {"residual": ["left.t > right.t + 1", "left.t < right.t"]},
        ),
        (
            "abs(left.t - right.t) <= 5 AND left.temp > right.temp",
            Difference("temp", "temp", Region(0, math.inf, low_closed=False)),
            {"residual": ["abs(left.t - right.t) <= 5"]},
        ),
        ("left.a = 1", None, {"left_only": ["left.a = 1"]}),
    ],
)
def test_a_certain_band_is_swept(text: str, difference: Difference | None, rest: dict[str, list[str]]) -> None:
    condition = split(text)
    assert condition.difference == difference
    assert shown(condition) == rest


@pytest.mark.parametrize(
    ("text", "distance", "rest"),
    [
        ("distance(left.pos, right.pos) <= 30", Distance("pos", "pos", 30.0), {}),
        ("distance(left.pos, right.pos) < 30", Distance("pos", "pos", 30.0, closed=False), {}),
        ("30 >= distance(left.pos, right.pos)", Distance("pos", "pos", 30.0), {}),
        ("30 > DISTANCE(right.u, left.pos)", Distance("pos", "u", 30.0, closed=False), {}),
        ("distance(left.pos, right.pos) <= 0", Distance("pos", "pos", 0.0), {}),
        ("distance(left.pos, right.pos) <= 2 * (0.1 + 0.2)", Distance("pos", "pos", 0.6), {}),
        # of certain points as well, or of a certain and an uncertain one
        ("distance(left.p, right.p) < 3", Distance("p", "p", 3.0, closed=False), {}),
        ("distance(left.p, right.pos) <= 3", Distance("p", "pos", 3.0), {}),
        (
            "left.id < right.id AND distance(left.pos, right.pos) <= 3 AND left.k = right.k AND left.a = 1 "
            "AND right.flag AND abs(left.t - right.t) <= 5",
            Distance("pos", "pos", 3.0),
            {
                "left_only": ["left.a = 1"],
                "right_only": ["right.flag"],
                "equalities": ["left.k ~ right.k"],
                "residual": ["left.id < right.id", "abs(left.t - right.t) <= 5"],
            },
        ),
        (
            "distance(left.p, right.p) <= 3 AND distance(left.p, right.q) <= 4",
            Distance("p", "p", 3.0),
            {"residual": ["distance(left.p, right.q) <= 4"]},
        ),
    ],
)
def test_a_distance_is_a_condition_of_its_own(text: str, distance: Distance, rest: dict[str, list[str]]) -> None:
    condition = split(text)
    assert condition.distance == distance
    assert condition.difference is None
    assert shown(condition) == rest


def test_the_largest_distance_that_counts() -> None:
    assert Distance("p", "p", 3.0).limit == 3.0
    assert Distance("p", "p", 3.0, closed=False).limit == math.nextafter(3.0, 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "distance(left.pos, right.pos) > 30",
            r"does not understand.*Expected distance\(left.a, right.b\) <= a number",
        ),
        ("distance(left.pos, right.pos) >= 30", "an upper limit"),
        ("30 <= distance(left.pos, right.pos)", "an upper limit"),
        ("distance(left.pos, right.pos) = 30", "Found a distance"),
        ("NOT distance(left.pos, right.pos) <= 30", "does not understand"),
        ("distance(left.pos, right.pos) BETWEEN 1 AND 2", "inside a sum"),
        ("distance(left.pos, right.pos) + 1 <= 30", "inside a sum"),
        ("distance(left.pos, left.u) <= 30", "points of one column of each table"),
        ("distance(right.pos, right.pos) <= 30", "points of one column of each table"),
        ("distance(left.pos[0], right.pos) <= 30", "points of one column of each table"),
        ("distance(left.pos + 1, right.pos) <= 30", "points of one column of each table"),
        ("distance(left.pos, right.pos) <= left.a", "does not understand"),
        ("distance(left.pos, right.pos) <= 'a'", "'a' where a number is expected"),
        (
            "distance(left.pos, right.pos) <= 30 AND left.temp > right.temp",
            "combines a distance with another uncertain condition.*`left.temp > right.temp`",
        ),
        (
            "left.temp > right.temp AND distance(left.pos, right.pos) <= 30",
            "a distance with another uncertain condition",
        ),
        (
            "distance(left.pos, right.pos) <= 30 AND distance(left.u, right.u) <= 3",
            r"a distance with another uncertain condition.*`distance\(left.u, right.u\) <= 3`",
        ),
        ("distance(left.pos, right.pos) <= -1", "never be that small.*Found distance <= -1.*check the sign"),
        ("distance(left.pos, right.pos) < 0", "never be that small.*Found distance < 0"),
        ("-2 >= distance(left.pos, right.pos)", "never be that small"),
        ("distance(left.pos, pos) <= 3", "`pos` names no table"),
        ("distance(left.pos, right.pos) <= 1e300 * 1e300", "too large"),
    ],
)
def test_what_a_distance_cannot_be(text: str, message: str) -> None:
    with pytest.raises(HaplyError, match=message):
        split(text)


def test_callers_refuse_unknown_columns_themselves() -> None:
    def refuse(column: Column) -> bool:
        raise HaplyError(f"There is no column '{column.name}'")

    with pytest.raises(HaplyError, match="no column 'x'"):
        split_join(left.x == right.x, refuse, refuse)


def test_columns_of() -> None:
    tree = parse("left.b + abs(right.a) > left.b AND CASE WHEN left.pos[0] > 1 THEN left.pos END IN (right.c)")
    assert [str(column) for column in columns_of(tree)] == ["left.b", "right.a", "left.pos[0]", "left.pos", "right.c"]
    assert columns_of(Literal(1)) == ()


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("left.a = right.`b c`", "`left_a` = `right_b c`"),
        ("left.a**2 ** right.b > 1", "power(`left_a`, power(2, `right_b`)) > 1"),
        ("-left.a**2 < 1", "-power(`left_a`, 2) < 1"),
        ("left.pos[0] < 1", "`left_pos`[0] < 1"),
        ("left.a IN (1, right.b)", "`left_a` IN (1, `right_b`)"),
        ("CAST(left.a AS int) = 1", "CAST(`left_a` AS int) = 1"),
        ("left.a.city = 'x'", "(`left_a`.city) = 'x'"),
        ("left.f OR NOT (left.g AND TRUE)", "`left_f` OR NOT (`left_g` AND TRUE)"),
        (
            "distance(left.p, right.p) < 3",
            "sqrt(aggregate(zip_with(`left_p`, `right_p`, (x, y) -> (x - y) * (x - y)), 0D, "
            "(total, square) -> total + square)) < 3",
        ),
    ],
)
def test_to_sql(text: str, sql: str) -> None:
    assert to_sql(parse(text), lambda column: f"`{column.table}_{column.name}`") == sql


# Random rewritings of difference conditions mean the same as plain evaluation


def evaluate(node: Expression, x: Fraction, y: Fraction) -> Fraction | bool:
    """The value of a tree over left.x and right.y, for numbers in their places."""

    def number(child: Expression) -> Fraction:
        return Fraction(evaluate(child, x, y))

    compare: dict[str, Callable[[Fraction, Fraction], bool]] = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "=": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
    }
    match node:
        case Column("left", "x"):
            return x
        case Column("right", "y"):
            return y
        case Literal(value):
            return Fraction(value)  # type: ignore[arg-type]
        case Negative(operand):
            return -number(operand)
        case Arithmetic("+", a, b):
            return number(a) + number(b)
        case Arithmetic("-", a, b):
            return number(a) - number(b)
        case Arithmetic("*", a, b):
            return number(a) * number(b)
        case Arithmetic("/", a, b):
            return number(a) / number(b)
        case Call("abs", (inner,)):
            return abs(number(inner))
        case Comparison(op, a, b):
            return compare[op](number(a), number(b))
        case Between(value, low, high):
            return number(low) <= number(value) <= number(high)
        case Not(condition):
            return not evaluate(condition, x, y)
    raise AssertionError(node)


_numbers = st.integers(-24, 24).map(lambda n: n / 4)
_constants = st.builds(Literal, _numbers)
_factors = st.sampled_from([2, -1, 0.5, -2, 4])


def _rewritings(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Sums of the inner forms, and their multiples: linear whatever the inner forms are."""
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from(["+", "-"]), inner, inner),
        st.builds(lambda factor, form: factor * form, _factors, inner),
        st.builds(lambda factor, form: form / factor, _factors, inner),
        st.builds(Negative, inner),
    )


_difference_forms = st.sampled_from([left.x - right.y, right.y - left.x, -right.y + left.x])
_forms = st.recursive(_difference_forms | _constants, _rewritings, max_leaves=5)
_loose_forms = st.recursive(st.sampled_from([left.x, right.y]) | _constants, _rewritings, max_leaves=5)
_operators = st.sampled_from(["<", "<=", ">", ">=", "=", "!="])


def _conditions(forms: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    plain = st.one_of(
        st.builds(Comparison, _operators, forms, forms),
        st.builds(Comparison, _operators, forms.map(abs), _constants),
        st.builds(Comparison, _operators, _constants, forms.map(abs)),
        st.builds(
            lambda op, form, k, factor: Comparison(op, factor * abs(form) + 1, k),
            _operators,
            forms,
            _constants,
            _factors,
        ),
        st.builds(between, forms, _numbers, _numbers),
        st.builds(between, forms, forms, forms),
        st.builds(between, forms.map(abs), _numbers, _numbers),
    )
    return plain | st.builds(Not, plain)


def _grid(condition: Expression) -> list[bool]:
    """Whether the condition holds, for differences in steps fine enough for every bound the strategies can make."""
    return [bool(evaluate(condition, Fraction(d, 64), Fraction(0))) for d in range(-64 * 60, 64 * 60, 16)]


def _runs(truths: list[bool]) -> int:
    return 1 + sum(one != other for one, other in itertools.pairwise(truths))


@settings(max_examples=fewer(300), deadline=None)
@given(_conditions(_forms), st.lists(_numbers, min_size=1, max_size=5))
def test_rewritten_differences_keep_their_meaning(condition: Expression, places: list[float]) -> None:
    try:
        region = condition.as_difference().region
    except HaplyError as refusal:
        message = str(refusal)
    else:
        # a scale of 3, say, puts an end where a float cannot stand
        ends = [end for end in (region.low, region.high) if math.isfinite(end) and (end * 4096).is_integer()]
        steps = [end + step for end in ends for step in (-0.125, 0, 0.125)]
        for y in places:
            for d in [*places, *steps]:
                x = Fraction(y) + Fraction(d)
                assert region.contains(d) == evaluate(condition, x, Fraction(y)), (str(condition), d)
        return
    if "can never hold" in message or "negative tolerance" in message or "always holds" in message:
        assert _runs(_grid(condition)) == 1
    elif "several separate ranges" not in message:  # such ranges can be points that the grid misses
        assert any(reason in message for reason in ("cancel out", "beside further terms", "without columns"))


@settings(max_examples=fewer(300), deadline=None)
@given(_operators, _loose_forms, _loose_forms)
def test_only_differences_are_understood(op: str, one: Expression, other: Expression) -> None:
    def slope(x: int, y: int) -> Fraction:
        at, origin = (Fraction(evaluate(one - other, Fraction(a), Fraction(b))) for a, b in ((x, y), (0, 0)))
        return at - origin

    condition = Comparison(op, one, other)
    if slope(1, 0) == -slope(0, 1) != 0:
        region = condition.as_difference().region
        for d in range(-40, 40):
            assert region.contains(d / 4) == evaluate(condition, Fraction(d, 4) + 3, Fraction(3))
    else:
        with pytest.raises(HaplyError, match="does not understand"):
            condition.as_difference()
