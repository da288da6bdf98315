"""Reading conditions from text: the trees, the errors, and that nothing else than these two ever comes out."""

from __future__ import annotations

import re

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import fewer
from haply.errors import HaplyError
from haply.query.columns import columns_of, to_sql
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
    Opaque,
    Or,
    between,
    col,
    distance,
    left,
    right,
)
from haply.query.text import as_condition, parse, plain_tokens, tokens_of_sql


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("abs(left.temp - right.temp) <= 0.5", abs(left.temp - right.temp) <= 0.5),
        ("ABS(LEFT.temp-Right.temp)<=.5", abs(left.temp - right.temp) <= 0.5),
        ("0.5 >= abs(left.temp - right.temp)", 0.5 >= abs(left.temp - right.temp)),  # noqa: SIM300
        ("|left.temp - right.temp| <= .5", abs(left.temp - right.temp) <= 0.5),
        ("|left.temp|>=1 and |right.temp|>2", (abs(left.temp) >= 1) & (abs(right.temp) > 2)),
        ("left.temp > right.temp", left.temp > right.temp),
        ("left.u - right.u BETWEEN -1 AND 2", between(left.u - right.u, -1, 2)),
        ("left.u - right.u between - 1 and 2", between(left.u - right.u, -1, 2)),
        ("between(left.u - right.u, -1, 2)", between(left.u - right.u, -1, 2)),
        ("left.u NOT BETWEEN 1 AND 2 and left.f", ~between(left.u, 1, 2) & left.f),
        ("Distance(left.pos, right.pos) <= 30", distance(left.pos, right.pos) <= 30),
        ("q_r**2 + u_r ** 2 > 0.25 AND r < 22", (col("q_r") ** 2 + col("u_r") ** 2 > 0.25) & (col("r") < 22)),
        ("power(x, 2) = pow(x, 2)", col("x") ** 2 == col("x") ** 2),
        ("x*x", col("x") * col("x")),
        ("-x**2", -(col("x") ** 2)),
        ("(-x)**2", (-col("x")) ** 2),
        ("-2**x", -(2 ** col("x"))),
        ("x ** -y ** z", col("x") ** (-(col("y") ** col("z")))),
        ("x ** y ** z", col("x") ** col("y") ** col("z")),
        ("a - b - c", col("a") - col("b") - col("c")),
        ("a - (b - c)", col("a") - (col("b") - col("c"))),
        ("a + b * c / d", col("a") + col("b") * col("c") / col("d")),
        ("a--1\n-2", col("a") - 2),  # two dashes start a comment
        ("a - -1", col("a") - -1),
        ("+a", col("a")),
        ("x = 1", col("x") == 1),
        ("x == 1", col("x") == 1),
        ("x <> 1", col("x") != 1),
        ("x != 1", col("x") != 1),
        ("NOT x = 1", ~(col("x") == 1)),
        ("! x", ~col("x")),
        ("not a or b and c", ~col("a") | (col("b") & col("c"))),
        ("(a or b) and c", (col("a") | col("b")) & col("c")),
        ("left.index = right.count", left.index == right.count),
        ("left.select > left.left", left["select"] > left["left"]),
        ("`left`.`a b` < right.`c``d`", left["a b"] < right["c`d"]),
        ("left . x", left.x),
        ("left.2mass", left["2mass"]),
        ("show > 1", col("show") > 1),  # some tokenizers take it for a command
        ("left.pos[0] < pos[1]", left.pos[0] < col("pos")[1]),
        ("x = 'it''s'", col("x") == "it's"),
        (r"x = 'it\'s \\ \n'", col("x") == "it's \\ \n"),
        ("x = 'a' \"b\"", col("x") == "ab"),
        ("x = 'a ** b -- `c`'", col("x") == "a ** b -- `c`"),
        ("`a ** b` = 1", col("a ** b") == 1),
        ("x = TRUE or x = false or x = Null", (col("x") == True) | (col("x") == False) | (col("x") == None)),  # noqa: E711, E712
        ("x < 10L or x < 1.5d", (col("x") < 10) | (col("x") < 1.5)),
        ("x < 2BD or x < 5. or x < 1E3", (col("x") < 2) | (col("x") < 5.0) | (col("x") < 1000.0)),
        ("left.a = right.b -- the key\n /* and */ AND left.c", (left.a == right.b) & left.c),
        ("left(x, 2) = Upper(y)", Call("left", (col("x"), Literal(2))) == Call("upper", (col("y"),))),
        ("current_date() > x", Call("current_date", ()) > col("x")),
    ],
)
def test_text_and_python_build_the_same_tree(text: str, expression: Expression) -> None:
    assert parse(text).same_as(expression), str(parse(text))
    assert as_condition(text).same_as(as_condition(expression))


@pytest.mark.parametrize(
    ("text", "printed", "columns"),
    [
        ("left.a <=> right.a", "left.a <=> right.a", "left.a right.a"),
        ("left.a is not null", "left.a IS NOT NULL", "left.a"),
        ("left.a is distinct from 3", "left.a IS DISTINCT FROM 3", "left.a"),
        ("left.a not in (1, right.b+1)", "left.a NOT IN (1, (right.b + 1))", "left.a right.b"),
        ("left.a not like 'x%' escape '!'", "left.a NOT LIKE 'x%' ESCAPE '!'", "left.a"),
        ("left.a rlike any ('x', 'y')", "left.a RLIKE ANY ('x', 'y')", "left.a"),
        ("case when left.a**2 > 1 then 2 end", "CASE WHEN (left.a ** 2 > 1) THEN 2 END", "left.a"),
        ("case when left.f then 'x' else right.b end", "CASE WHEN left.f THEN 'x' ELSE right.b END", "left.f right.b"),
        ("case left.a when 1 then 2 end", "CASE left.a WHEN 1 THEN 2 END", "left.a"),
        ("cast(left.a as decimal(3, 1))", "CAST(left.a AS decimal(3, 1))", "left.a"),
        ("Try_Cast(left.a AS map<string, array<int>>)", "TRY_CAST(left.a AS map<string, array<int>>)", "left.a"),
        ("left.a::int < 3", "(left.a::int) < 3", "left.a"),
        ("left.a % 2 DIV 3 || right.b", "((left.a % 2) DIV 3) || right.b", "left.a right.b"),
        ("2 | ~left.a & 3", "2 | ((~left.a) & 3)", "left.a"),
        ("left.a.city", "left.a.city", "left.a"),
        ("left.m['k']", "left.m['k']", "left.m"),
        ("left.pos[left.i]", "left.pos[left.i]", "left.pos left.i"),
        ("left.t - interval '10' second", "left.t - interval '10' second", "left.t"),
        ("left.t - interval -1 hour 30 minutes", "left.t - interval -1 hour 30 minutes", "left.t"),
        ("left.t > timestamp '2026-01-31'", "left.t > TIMESTAMP '2026-01-31'", "left.t"),
        ("left.t > current_date", "left.t > CURRENT_DATE", "left.t"),
        ("extract(year from left.t)", "extract(YEAR FROM left.t)", "left.t"),
        ("timestampdiff(second, left.t, right.t)", "timestampdiff(SECOND, left.t, right.t)", "left.t right.t"),
        ("left.x = 0.1F", "left.x = 0.1F", "left.x"),
        ("left.x = x'1F'", "left.x = x'1F'", "left.x"),
    ],
)
def test_what_haply_does_not_interpret_is_kept_as_written(text: str, printed: str, columns: str) -> None:
    tree = parse(text)
    assert str(tree) == printed
    assert parse(printed).same_as(tree)

    def opaque(node: Expression) -> bool:
        return isinstance(node, Opaque) or any(opaque(child) for child in node.children)

    assert opaque(tree)
    assert " ".join(map(str, columns_of(tree))) == columns


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "line 1, column 1", "the condition is empty.*Hint: write one such as"),
        (" \n -- nothing", "line 2, column 12", "the condition is empty"),
        ("left.a >", "line 1, column 9", "an operand is missing.*the end of the text"),
        ("left.a\n  AND *", "line 2, column 7", r"an operand is missing.*Found '\*'"),
        ("left.a AND\r\nright.b OR OR", "line 2, column 12", "backquotes"),
        ("left.a right.b", "line 1, column 8", "does not continue.*put AND or OR between"),
        ("left.a; right.b", "line 1, column 7", "one condition, without a semicolon"),
        ("SELECT * FROM t", "line 1, column 1", "hp.sql runs whole queries"),
        ("left.a IN (SELECT 1)", "line 1, column 12", "no subqueries"),
        ("exists (SELECT 1)", "line 1, column 1", "no subqueries"),
        ("DROP TABLE x", "line 1, column 6", "does not continue"),
        ("left.a AS b", "line 1, column 8", "no aliases"),
        ("left.*", "line 1, column 6", "a name is missing after the dot"),
        ("(left.a", "line 1, column 1", "this parenthesis is not closed"),
        ("(left.a, left.b) = 3", "line 1, column 8", "there is a list where one value"),
        ("left.a)", "line 1, column 7", r"there is no \( for this \)"),
        ("abs(left.a", "line 1, column 11", r"the call of abs\(\) is not closed"),
        ("abs(left.a, left.b)", "line 1, column 1", "takes 1 argument"),
        ("DISTANCE(left.a)", "line 1, column 1", "takes 2 arguments"),
        ("filter(left.a, x -> x > 1)", "line 1, column 18", "lambda"),
        ("left.x(3)", "line 1, column 7", "is a column, not a function"),
        ("0 < left.a < 1", "line 1, column 12", "cannot be chained.*x AND x"),
        ("left.a = right.a = 3", "line 1, column 18", "cannot be chained"),
        ("left.a IS NULL + 1", "line 1, column 16", "cannot be chained"),
        ("left.a && left.b", "line 1, column 8", "write AND"),
        ("left.a => 3", "line 1, column 8", "write >="),
        ("left.a =< 3", "line 1, column 9", "comparisons are written"),
        ("left.a AND 3", "line 1, column 8", "AND is applied to a value"),
        ("left.a = NOT left.b", "line 1, column 10", "parentheses around the NOT"),
        ("left.a = 'abc", "line 1, column 10", "never closed.*a closing quote"),
        ("left.a = 'x' AND\n left.`b = 'x'", "line 2, column 7", "never closed"),
        ("left.a /* b", "line 1, column 8", r"never closed.*\*/"),
        ("left.a < 1e999", "line 1, column 10", "not finite"),
        ("left.a BETWEEN 1", "line 1, column 17", "BETWEEN has no upper end"),
        ("left.a IN 3", "line 1, column 11", "list in parentheses"),
        ("left.a IS 3", "line 1, column 11", "IS is followed by"),
        ("CASE left.a END", "line 1, column 13", "CASE has no WHEN"),
        ("CAST(left.a AS )", "line 1, column 16", "name of a type is missing"),
        ("CAST(left.a AS array<int", "line 1, column 25", "the type is not closed"),
        ("left.a ? 3", "line 1, column 8", "does not continue"),
        ("$x = 3", "line 1, column 1", "an operand is missing"),
        ("left.``", "line 1, column 6", "a name is missing"),
        ("(" * 500 + "x" + ")" * 500, "line 1, column", "nested too deeply"),
        ("NOT " * 500 + "x", "line 1, column", "nested too deeply"),
        ("- " * 500 + "x", "line 1, column", "nested too deeply"),
        ("+".join("x" * 500), "line 1, column", "nested more than 100 levels"),
        ("f(" * 5_000, "line 1, column", "nested too deeply"),
    ],
)
def test_errors_say_where_what_and_how_to_mend_it(text: str, place: str, message: str) -> None:
    with pytest.raises(HaplyError, match=f"(?s){place}.*{message}"):
        parse(text)


def test_errors_show_the_line_with_a_caret() -> None:
    with pytest.raises(HaplyError) as error:
        parse("left.a = 1\n\tAND left.b ? 2\nAND left.c")
    assert str(error.value) == (
        "line 2, column 13:\n     AND left.b ? 2\n                ^\nthis does not continue the condition. Found '?'."
    )
    with pytest.raises(HaplyError) as error:
        parse("left.a = 1 AND " * 100 + "left.b ? 2")
    shown, caret = str(error.value).splitlines()[1:3]
    assert len(shown) < 110
    assert shown[caret.index("^")] == "?"


def test_a_span_reads_part_of_a_text_and_errors_speak_of_the_whole() -> None:
    query = "SELECT *\nFROM a WHERE left.x > right.x LIMIT 3"
    start = query.index("left")
    assert parse(query, span=(start, query.index(" LIMIT"))).same_as(left.x > right.x)
    with pytest.raises(HaplyError, match=r"line 2, column 31:\n    FROM a WHERE left.x > right.x LIMIT 3\n {34}\^"):
        parse(query, span=(start, len(query)))


@pytest.mark.parametrize("thing", [None, 3, ["left.x"], b"left.x"])
def test_only_text_and_expressions_are_conditions(thing: object) -> None:
    with pytest.raises(HaplyError, match="text or an expression"):
        as_condition(thing)  # type: ignore[arg-type]


def test_long_conjunctions_are_read() -> None:
    tree = parse(" AND ".join(f"left.c{i} = right.c{i}" for i in range(1000)))
    assert isinstance(tree, And)
    assert len(tree.conditions) == 1000


# Random trees print and read back

_any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_names = st.one_of(
    st.sampled_from(["x", "temp", "left", "select", "and", "date", "interval", "a b", "x`y", "2mass", "é", "\\", "--"]),
    _any_text.filter(bool),
)
_columns = st.builds(
    Column, st.none() | st.sampled_from(["left", "right"]) | _names, _names, st.none() | st.integers(0, 9)
)
_literals = st.builds(
    Literal,
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _any_text,
)


def _values(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from(["+", "-", "*", "/", "**"]), inner, inner),
        st.builds(Negative, inner),
        st.builds(lambda arg: Call("abs", (arg,)), inner),
        st.builds(lambda a, b: Call("distance", (a, b)), inner, inner),
        st.builds(Call, st.sampled_from(["f", "my_function"]), st.lists(inner, max_size=3).map(tuple)),
        st.builds(lambda a, op, b: Opaque((a, op, b)), inner, st.sampled_from([" % ", " DIV ", " || ", " & "]), inner),
        st.builds(lambda a: Opaque(("~", a)), inner),
        st.builds(lambda a: Opaque((a, "::int")), inner),
        st.builds(lambda a: Opaque(("CAST(", a, " AS array<int>)")), inner),
        st.builds(lambda a, b, c: Opaque(("CASE WHEN ", a, " THEN ", b, " ELSE ", c, " END")), inner, inner, inner),
    )


_value_trees = st.recursive(_columns | _literals, _values, max_leaves=12)
_atoms = st.one_of(
    _columns,
    st.builds(Literal, st.booleans() | st.none()),
    st.builds(Comparison, st.sampled_from(["<", "<=", ">", ">=", "=", "!="]), _value_trees, _value_trees),
    st.builds(Between, _value_trees, _value_trees, _value_trees),
    st.builds(lambda a: Opaque((a, " IS NOT NULL")), _value_trees),
    st.builds(lambda a, b, c: Opaque((a, " NOT IN (", b, ", ", c, ")")), _value_trees, _value_trees, _value_trees),
    st.builds(lambda a, b: Opaque((a, " LIKE ", b)), _value_trees, _value_trees),
    st.builds(lambda a, b: Opaque((a, " <=> ", b)), _value_trees, _value_trees),
)


def _conditions(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    equal = st.builds(Comparison, st.sampled_from(["=", "!="]), inner, inner)
    return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, inner), equal)


_trees = _value_trees | st.recursive(_atoms, _conditions, max_leaves=8)


@settings(max_examples=fewer(200), deadline=None)
@given(_trees)
def test_trees_print_and_read_back(tree: Expression) -> None:
    assert parse(str(tree)).same_as(tree)


@settings(max_examples=fewer(200), deadline=None)
@given(_trees)
def test_sql_for_spark_is_read_by_an_independent_parser(tree: Expression) -> None:
    sql = to_sql(tree, lambda column: "`" + column.name.replace("`", "``") + "`")
    assert sqlglot.parse_one(f"SELECT {sql} AS x FROM t", read="spark") is not None


# Whatever the text, an expression or a HaplyError comes out

_FRAGMENT_TEXT = (
    "left right . x ` 'a' \" ' ( ) [ ] , ; + - * ** / % | || & ^ ~ ! = == != <> < <= > >= <=> => -> :: : ? $ @ # { } "
    "{{ {% %} \\ -- /* */ /*+ 0 1 .5 5. 1e 1e9 1e999 10L 1.5F x'1F' r'a' N'a' AND OR NOT BETWEEN IN LIKE IS NULL TRUE "
    "CASE WHEN THEN ELSE END CAST AS INT array<int> INTERVAL DAY TO DATE abs( distance( between( extract( FROM SELECT "
    "EXISTS group by timestampdiff( second DISTINCT ANY ESCAPE OVER user-defined é ² \x00 \n \t 😀"
)
_FRAGMENTS = _FRAGMENT_TEXT.split(" ")


def _check(text: str) -> None:
    try:
        tree = parse(text)
    except HaplyError as refusal:
        message = str(refusal)
    else:
        message = "line 1, column 1"
        assert parse(str(tree)).same_as(tree)
    assert re.match(r"line \d+, column \d+", message)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    _check(text)


@settings(max_examples=fewer(600), deadline=None)
@given(st.lists(st.sampled_from(_FRAGMENTS), max_size=14), st.sampled_from(["", " "]))
def test_any_row_of_fragments(fragments: list[str], between_them: str) -> None:
    _check(between_them.join(fragments))


@settings(max_examples=fewer(200), deadline=None)
@given(_trees, st.data())
def test_any_damaged_condition(tree: Expression, data: st.DataObject) -> None:
    text = str(tree)
    place = data.draw(st.integers(0, len(text)))
    removed = data.draw(st.integers(0, 3))
    _check(text[:place] + data.draw(st.sampled_from(_FRAGMENTS)) + text[place + removed :])


_SQL_WORDS = sorted({word for word in sqlglot.Dialect.get_or_raise("spark").tokenizer_class.KEYWORDS if len(word) < 30})
_PLAIN_FRAGMENTS = [
    *"()<>=,.+-*/!x_e1705",
    "<=",
    ">=",
    "!=",
    "==",
    " ",
    "  ",
    "\n",
    "1.5",
    "1e5",
    "0.5",
    "left.x",
    "left",
    "b",
]


@settings(max_examples=fewer(3000), deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(_PLAIN_FRAGMENTS), st.sampled_from(_SQL_WORDS)), max_size=12),
    st.sampled_from(["", " "]),
)
def test_plain_tokens_are_those_of_sqlglot(fragments, between_them):
    text = "x " + between_them.join(fragments)
    found = plain_tokens(text, 0, len(text))
    assert found is None or found == tokens_of_sql(text, 0, len(text))


@pytest.mark.parametrize(
    "text",
    [
        "abs(left.temp - right.temp) <= 0.5",
        "left.a=right.b and P(left.x>3)>=0.7",
        "distance(left.pos, right.pos) <= 2",
        "-x < 3 or not y != 4 and z between 1 and 2",
        "SELECT left.id, probability FROM a AS left JOIN b AS right ON x*y/2 > 1",
    ],
)
def test_common_conditions_have_plain_tokens(text):
    assert plain_tokens(text, 0, len(text)) == tokens_of_sql(text, 0, len(text))
