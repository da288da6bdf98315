"""Reading queries: what is understood, and that everything else is an error that tells its place."""

from __future__ import annotations

import random
import re
import time

import pytest

from haply.errors import HaplyError
from haply.query.text import parse
from haply.statements.syntax import read, spelled
from mutations import WORDS, mutated

QUERIES = [
    "SELECT * FROM seismic A, acoustic B WHERE WINDOW(A, B) = 2000 WITH THRESHOLD 0.6",
    "SELECT * FROM Galaxy G WHERE G.r < 22 AND G.q_r**2 + G.u_r**2 > 0.25;",
    "SELECT a.id AS i, b.*, PROB() p FROM (SELECT id, GAUSSIAN(m, s) AS x FROM t WHERE m > 0) a\n"
    "JOIN shop.b AS b ON a.id = b.id AND |a.x - b.x| < .5\nWHERE upper(b.name) = 'X' ORDER BY p DESC NULLS LAST, 1\n"
    "LIMIT 10 WITH THRESHOLD 0.5 STRICT",
    "SELECT g.obj FROM gas g, gas h, gas i WHERE WINDOW(g, h) = '10 seconds' AND WINDOW(h, i) <= INTERVAL 5 MINUTES",
    "select `a b`.`c``d`, cast(x AS double) y from `a b` cross join u where x between 1 and 2 or x in (3, 4)",
    "SELECT *, P_MATCH(), P_ANY() FROM a LEFT JOIN b ON SAME(a.pos, b.pos) AND SAME(a.m, b.m, 0.1)\n"
    "WITH DENSITY .02 COMPLETENESS .6 THRESHOLD .5 EXCLUSIVE KEEP BEST PER a",
    "SELECT a.id, EXPECTED_MATCHES() AS n FROM a LEFT JOIN b ON abs(a.x - b.x) <= 1 WHERE a.id > 1 GROUP BY a",
    "SELECT * FROM a u ASOF LEFT JOIN b ON u.key = b.key AND b.time <= u.time WITH LOOKBACK INTERVAL 10 SECONDS",
]  # fmt: skip


def test_a_query_is_read_clause_by_clause() -> None:
    statement = read(QUERIES[2])
    select = statement.select
    assert [(item.name, item.table) for item in select.items] == [("i", None), (None, "b"), ("p", None)]
    assert select.items[1].expression is None
    first, second = select.sources
    assert (first.alias, first.name, second.alias, second.name) == ("a", (), "b", ("shop", "b"))
    assert first.query is not None
    assert [item.name for item in first.query.items] == [None, "x"]
    assert [str(condition) for condition in first.query.conditions] == ["m > 0"]
    assert [str(condition) for condition in select.conditions] == [
        "a.id = b.id",
        "abs(a.x - b.x) < 0.5",
        "upper(b.name) = 'X'",
    ]
    assert (select.threshold, select.strict, select.limit) == (0.5, True, 10)
    assert [(key.descending, key.nulls_first) for key in select.order] == [(True, False), (False, None)]


def test_the_paper_of_timing_joins_is_read_as_printed() -> None:
    select = read("select * from SEISMIC A, ACOUSTIC B\nwhere WINDOW(A, B) = 2000 with THRESHOLD 0.6").select
    assert [(source.name, source.alias) for source in select.sources] == [(("SEISMIC",), "A"), (("ACOUSTIC",), "B")]
    assert [str(condition) for condition in select.conditions] == ["window(A, B) = 2000"]
    assert select.threshold == 0.6


def test_what_a_query_says_after_with() -> None:
    select = read(QUERIES[5]).select
    assert [(option.name, str(option.value)) for option in select.options] == [
        ("DENSITY", "0.02"), ("COMPLETENESS", "0.6"), ("EXCLUSIVE", "TRUE"),
    ]  # fmt: skip
    assert (select.threshold, select.strict) == (0.5, False)
    assert QUERIES[5][select.with_start :].startswith("WITH DENSITY")
    for text, expected in (
        ("DENSITY a.rho WITHIN 2", [("DENSITY", "a.rho"), ("WITHIN", "2")]),
        ("DENSITY density", [("DENSITY", "density")]),
        ("DENSITY area", [("DENSITY", "area")]),
        ("DENSITY AREA 400 COMPLETENESS .5", [("AREA", "400"), ("COMPLETENESS", "0.5")]),
        ("LOOKBACK '10 seconds'", [("LOOKBACK", "'10 seconds'")]),
    ):
        options = read(f"SELECT * FROM t WITH {text}").select.options
        assert [(option.name, str(option.value)) for option in options] == expected


def test_groups_and_kinds_of_joins() -> None:
    select = read(QUERIES[6]).select
    assert [str(one) for one in select.groups] == ["a"]
    assert [str(one) for one in select.on] == ["abs(a.x - b.x) <= 1"]
    assert [str(one) for one in select.filters] == ["a.id > 1"]
    assert [str(one) for one in read("SELECT * FROM a, b WHERE x < 1 GROUP BY a.k, l").select.groups] == ["a.k", "l"]
    select = read(QUERIES[7]).select
    assert [(source.alias, source.name) for source in select.sources] == [("u", ("a",)), ("b", ("b",))]
    assert select.asof_start == QUERIES[7].index("ASOF")
    assert select.outer is not None
    assert (select.outer.how, select.outer.words) == ("left", "an ASOF LEFT JOIN")
    for kind, how in (("ASOF", None), ("ASOF INNER", None), ("ASOF LEFT OUTER", "left"), ("ASOF ANTI", "anti")):
        select = read(f"SELECT * FROM a {kind} JOIN b ON a.t >= b.t").select
        assert (select.outer and select.outer.how, select.asof_start) == (how, 16)
    assert read("SELECT asof.x FROM a asof").select.sources[0].alias == "asof"


@pytest.mark.parametrize("query", QUERIES)
def test_comments_and_lines_change_nothing(query: str) -> None:
    one = read(query).select
    other = read("-- a query\n  " + query.replace(" FROM ", " /* tables */\n\tFROM ")).select
    assert [str(a) for a in one.conditions] == [str(b) for b in other.conditions]
    assert [source.alias for source in one.sources] == [source.alias for source in other.sources]


@pytest.mark.parametrize(
    ("query", "place", "text"),
    [
        ("", "line 1, column 1", "the query is empty"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "line 1, column 1", "begins with SELECT"),
        ("SELECT", "line 1, column 7", "an operand is missing"),
        ("SELECT FROM t", "line 1, column 8", "an operand is missing"),
        ("SELECT a, FROM t", "line 1, column 11", "an operand is missing"),
        ("SELECT a b c FROM t", "line 1, column 12", "Expected FROM, or a comma"),
        ("SELECT *", "line 1, column 9", "not followed by FROM"),
        ("SELECT * FROM", "line 1, column 14", "a table is missing"),
        ("SELECT * FROM t,", "line 1, column 17", "a table is missing"),
        ("SELECT * FROM 3", "line 1, column 15", "a table is missing"),
        ("SELECT * FROM t\nWHERE", "line 2, column 6", "an operand is missing"),
        ("SELECT * FROM t WHERE a < 1 b", "line 1, column 29", "put AND between conditions"),
        ("SELECT * FROM t WHERE a < 1 WHERE b < 2", "line 1, column 29", "one WHERE"),
        ("SELECT * FROM t WHERE a < 1\nGROUP BY a", "line 2, column 1", "df.groupBy"),
        ("SELECT * FROM t GROUP BY a", "line 1, column 17", "do it on the DataFrame that comes out"),
        ("SELECT * FROM t HAVING a > 1", "line 1, column 17", "HAVING is not part of a query"),
        ("SELECT * FROM t UNION SELECT * FROM u", "line 1, column 17", "df.union(other)"),
        ("SELECT DISTINCT a FROM t", "line 1, column 8", "df.distinct()"),
        ("SELECT * FROM t LIMIT 1 OFFSET 2", "line 1, column 25", "df.offset(n)"),
        ("SELECT count(*) FROM t", "line 1, column 8", "count() is over many rows"),
        ("SELECT a, sum(b) FROM t", "line 1, column 11", "aggregate the DataFrame"),
        ("SELECT f(a) OVER (ORDER BY a) FROM t", "line 1, column 13", "a window function"),
        ("SELECT * FROM a NATURAL JOIN b ON a.x = b.x", "line 1, column 17", "a NATURAL JOIN is not part"),
        ("SELECT * FROM a NATURAL JOIN b", "line 1, column 17", "a NATURAL JOIN is not part"),
        ("SELECT * FROM a JOIN b USING (id)", "line 1, column 24", "write ON a.id = b.id"),
        ("SELECT * FROM a JOIN b WHERE a.x = b.x", "line 1, column 24", "a JOIN has no ON"),
        ("SELECT * FROM (SELECT * FROM t) WHERE a < 1", "line 1, column 33", "has no name"),
        ("SELECT * FROM (SELECT * FROM t a WHERE a < 1", "line 1, column 45", "not closed"),
        ("SELECT * FROM explode(x)", "line 1, column 22", "a function, not a table"),
        ("SELECT * FROM t WITH", "line 1, column 21", "something else than THRESHOLD"),
        ("SELECT * FROM t WITH SPEED 3", "line 1, column 22", "Expected one of THRESHOLD, DENSITY, COMPLETENESS"),
        ("SELECT * FROM t WITH DENSITY", "line 1, column 29", "DENSITY has no value"),
        ("SELECT * FROM t WITH DENSITY COMPLETENESS .5", "line 1, column 30", "DENSITY has no value"),
        ("SELECT * FROM t WITH DENSITY 1 DENSITY 2", "line 1, column 32", "is written twice"),
        ("SELECT * FROM a ASOF CROSS JOIN b", "line 1, column 17", "an ASOF CROSS JOIN is not part of a query"),
        ("SELECT * FROM a ASOF JOIN b WHERE a.x = b.x", "line 1, column 29", "a JOIN has no ON"),
        ("SELECT * FROM a, b WHERE a.x < 1 GROUP a", "line 1, column 40", "GROUP is not followed by BY"),
        ("SELECT * FROM a, b WHERE a.x < 1 GROUP BY", "line 1, column 42", "an operand is missing"),
        ("SELECT * FROM t WITH THRESHOLD", "line 1, column 31", "not a probability"),
        ("SELECT * FROM t WITH THRESHOLD 0", "line 1, column 32", "not a probability"),
        ("SELECT * FROM t WITH THRESHOLD 1.01", "line 1, column 32", "up to 1"),
        ("SELECT * FROM t WITH THRESHOLD -0.5", "line 1, column 32", "not a probability"),
        ("SELECT * FROM t WITH THRESHOLD 'a'", "line 1, column 32", "not a probability"),
        ("SELECT * FROM t WITH THRESHOLD .5 WITH THRESHOLD .6", "line 1, column 35", "is written twice"),
        ("SELECT * FROM t ORDER a", "line 1, column 23", "BY"),
        ("SELECT * FROM t ORDER BY a NULLS", "line 1, column 33", "FIRST or LAST"),
        ("SELECT * FROM t LIMIT 1.5", "line 1, column 23", "a whole number"),
        ("SELECT * FROM t LIMIT 99999999999", "line 1, column 23", "a whole number"),
        ("SELECT * FROM t WHERE a = 'x", "line 1, column 27", "never closed"),
        ("SELECT * FROM t; SELECT 1", "line 1, column 18", "does not continue"),
        ("SELECT * FROM t WHERE (a < 1", "line 1, column 23", "not closed"),
        ("SELECT * FROM t WHERE a < 1 AND (SELECT 1)", "line 1, column 34", "subqueries"),
        ("SELECT a AS FROM t", "line 1, column 13", "not followed by a name"),
    ],
)
def test_errors_tell_place_line_and_mend(query: str, place: str, text: str) -> None:
    with pytest.raises(HaplyError) as caught:
        read(query)
    said = str(caught.value)
    assert said.startswith(place), said
    assert text in said
    line, column = map(int, re.findall(r"\d+", place))
    shown, caret = said.splitlines()[1:3]
    assert shown.strip() == query.splitlines()[line - 1].strip() if query else not shown.strip()
    assert caret.index("^") == column + 3  # the line stands four places in


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(HaplyError, match="A query is of type int"):
        read(3)  # type: ignore[arg-type]


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(HaplyError, match="nested too deeply"):
        read("SELECT * FROM " + "(SELECT * FROM " * 500 + "t" + ") a" * 500)
    with pytest.raises(HaplyError, match="nested too deeply"):
        read("SELECT * FROM t WHERE " + "(" * 5000 + "a < 1" + ")" * 5000)


def test_names_of_computed_columns_leave_out_the_tables() -> None:
    assert spelled(parse("a.x + upper(`b c`.y)[0]")) == "x + (upper(y)[0])"
    assert spelled(parse("a.x[2]")) == "x[2]"


def test_nothing_but_errors_of_ours_comes_out() -> None:
    chance = random.Random(20261115)
    read_well, begun = 0, time.perf_counter()
    for number in range(4000):
        if number % 4:
            text = mutated(chance.choice(QUERIES), chance)
        else:
            text = " ".join(chance.choices(WORDS, k=chance.randint(1, 25)))
        try:
            read(text)
            read_well += 1
        except HaplyError as error:
            if not str(error).startswith("line "):
                raise AssertionError(text) from error
    assert read_well > 300  # the mutations are not all hopeless
    assert time.perf_counter() - begun < 60
