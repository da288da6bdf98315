"""``hp.sql`` with SAME, GROUP BY and ASOF JOIN: the answers of ``hp.match``, ``hp.count_matches`` and ``hp.asof``."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

import both_kit as hp
import haply
from amounts import fewer
from haply.errors import HaplyError
from mutations import mutated

NEAR = "abs(a.x - b.x) <= 1"
FIELD = "WITH DENSITY 0.5 COMPLETENESS 0.8"


@pytest.fixture(scope="module")
def tables(engine: Any) -> dict[str, Any]:
    """Two tables of Gaussians with categories, times and a column of densities; a row of each has no value."""
    left = [
        (1, "u", 5.0, (0.0, 0.3), 0.5), (2, "u", 6.0, (5.0, 0.3), 0.4), (3, "v", 1.0, (9.0, 0.2), 0.3),
        (4, "v", 7.0, (0.5, 0.4), 0.6), (5, None, 2.0, None, 0.5),
    ]  # fmt: skip
    right = [
        (7, "u", 1.0, (0.2, 0.2), 0.1), (8, "v", 4.0, (0.9, 0.2), 0.2), (9, "v", 5.5, (5.1, 0.4), 0.3),
        (6, "v", 5.5, (4.6, 0.3), 0.2), (5, "u", 3.0, None, 0.2),
    ]  # fmt: skip
    types = "id long, kind string, t double, x struct<mean:double,sd:double>, rho double"
    return {"a": engine.createDataFrame(left, types), "b": engine.createDataFrame(right, types)}


def bag(frame: Any) -> list[str]:
    """The rows in any order, numbers to nine digits."""

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [round(number, 9) for number in value]
        return round(value, 9) if isinstance(value, float) else value

    return sorted(repr(tuple(map(rounded, row))) for row in frame.collect())


def same_rows(found: Any, wanted: Any, least: int = 1) -> None:
    rows = bag(found)
    assert rows == bag(wanted)
    assert len(rows) >= least


# -- the same thing ----------------------------------------------------------------------------------------------------


def test_same_is_a_match(tables: dict[str, Any]) -> None:
    query = "SELECT * FROM a LEFT JOIN b ON SAME(a.x, b.x) WITH DENSITY .5 COMPLETENESS .8 THRESHOLD .2"
    options: dict[str, Any] = {"density": 0.5, "completeness": 0.8, "threshold": 0.2, "how": "left"}
    wanted = hp.plan_match(tables["a"], tables["b"], "x", **options)
    plan = hp.plan_sql(query, **tables)
    assert plan.explain(verbose=True) == wanted.explain(verbose=True)
    found = plan.run()
    both = ("id", "kind", "t", "x", "rho")
    numbers = ["bayes_factor", "p_match", "p_any"]
    assert found.columns == [*(f"a_{name}" for name in both), *(f"b_{name}" for name in both), *numbers]
    same_rows(found, wanted.run(), 5)


def test_numbers_that_are_named_stand_where_they_are_written(tables: dict[str, Any]) -> None:
    query = f"SELECT a.id, P_ANY(), b.id AS other, round(P_MATCH(), 3) AS p FROM a JOIN b ON SAME(a.x, b.x) {FIELD}"
    found = hp.sql(query + " ORDER BY P_MATCH() DESC LIMIT 3", **tables)
    assert found.columns == ["id", "p_any", "other", "p"]
    wanted = hp.match(tables["a"], tables["b"], "x", density=0.5, completeness=0.8).collect()
    wanted = sorted(wanted, key=lambda row: -row["p_match"])[:3]
    assert [(row["id"], row["other"]) for row in found.collect()] == [(r["id_left"], r["id_right"]) for r in wanted]
    assert [row["p_any"] for row in found.collect()] == pytest.approx([row["p_any"] for row in wanted], abs=1e-9)
    starred = hp.sql(f"SELECT *, P_MATCH(), P_ANY() FROM a JOIN b ON SAME(a.x, b.x) {FIELD}", **tables)
    assert starred.columns[-3:] == ["b_rho", "p_match", "p_any"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("WITH DENSITY a.rho COMPLETENESS .6", {"density": "rho"}),
        ("WITH COMPLETENESS .6 DENSITY AREA 20", {"density": hp.density(area=20)}),
        ("WITH DENSITY .5 COMPLETENESS .6 EXCLUSIVE", {"density": 0.5, "exclusive": True}),
        ("WITH DENSITY .5 COMPLETENESS .6 KEEP BEST PER a", {"density": 0.5, "keep": "best_left"}),
        ("WITH DENSITY .5 COMPLETENESS .6 KEEP ONE TO ONE", {"density": 0.5, "keep": "one_to_one"}),
    ],
)
def test_options_of_same(tables: dict[str, Any], text: str, options: dict[str, Any]) -> None:
    found = hp.sql(f"SELECT * FROM a JOIN b ON SAME(a.x, b.x) {text}", **tables)
    same_rows(found, hp.match(tables["a"], tables["b"], "x", completeness=0.6, **options), 2)


@pytest.mark.parametrize(
    ("words", "how"), [("JOIN", "inner"), ("RIGHT JOIN", "right"), ("SEMI JOIN", "semi"), ("ANTI JOIN", "anti")]
)
def test_joins_of_same(tables: dict[str, Any], words: str, how: str) -> None:
    found = hp.sql(f"SELECT * FROM a {words} b ON SAME(a.x, b.x) {FIELD} THRESHOLD .3", **tables)
    same_rows(found, hp.match(tables["a"], tables["b"], "x", density=0.5, completeness=0.8, threshold=0.3, how=how))


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("how", ["inner", "left", "anti"])
@pytest.mark.parametrize(
    ("certain", "holds"),
    [
        ("a.kind = b.kind", lambda one, other: one[1] == other[1]),
        ("a.t < b.t + 3", lambda one, other: one[2] < other[2] + 3),
        ("b.id > 6 AND a.kind <> b.kind", lambda one, other: other[0] > 6 and one[1] != other[1]),
        ("a.id <> 1", lambda one, other: one[0] != 1),
    ],
)
def test_certain_conditions_beside_same(tables: dict[str, Any], certain: str, holds: Any, how: str) -> None:
    """A pair that does not fulfil them is no candidate: it has no weight, and its left row stays in outer joins."""
    words = {"inner": "JOIN", "left": "LEFT JOIN", "anti": "ANTI JOIN"}[how]
    query = f"SELECT * FROM a {words} b ON {{}} {FIELD} THRESHOLD .3"
    found = hp.sql(query.format(f"SAME(a.x, b.x) AND {certain}"), **tables)
    options = {"density": 0.5, "completeness": 0.8, "threshold": 0.3, "how": how}
    asked = certain.replace("a.", "left.").replace("b.", "right.").replace("<>", "!=")
    same_rows(found, hp.match(tables["a"], tables["b"], "x", on=asked, **options))
    same_rows(found, hp.sql(query.format(f"{certain} AND SAME(a.x, b.x)"), **tables))
    left, right = ([tuple(row) for row in tables[name].collect()] for name in ("a", "b"))
    weights = {
        (one[0], other[0]): 4.0 * normal(one[3]["mean"] - other[3]["mean"], one[3]["sd"], other[3]["sd"]) / 0.5
        for one in left
        for other in right
        if one[3] is not None and other[3] is not None and None not in (one[1], other[1]) and holds(one, other)
    }
    total = {one[0]: sum(w for (i, _), w in weights.items() if i == one[0]) for one in left}
    kept = {pair: w / (1 + total[pair[0]]) for pair, w in weights.items() if w / (1 + total[pair[0]]) >= 0.3}
    if how == "anti":
        assert {row["id"] for row in found.collect()} == {one[0] for one in left} - {i for i, _ in kept}
        return
    rows = found.collect()
    assert {(row["a_id"], row["b_id"]): row["p_match"] for row in rows if row["b_id"] is not None} == pytest.approx(
        kept, abs=1e-8
    )
    if how == "left":
        alone = {row["a_id"]: row["p_any"] for row in rows if row["b_id"] is None}
        wanted = {i: w / (1 + w) for i, w in total.items() if i not in {one for one, _ in kept}}
        assert alone == pytest.approx(wanted, abs=1e-8)


def normal(x: float, one: float, other: float) -> float:
    variance = one**2 + other**2
    return math.exp(-0.5 * x * x / variance) / math.sqrt(2 * math.pi * variance)


def test_several_attributes_categories_and_constructors(tables: dict[str, Any]) -> None:
    query = f"""SELECT * FROM a JOIN b
                ON SAME(b.x, a.x) AND SAME(GAUSSIAN(a.t, 2), b.t, 0.1) AND SAME(a.kind, b.kind, 0.9, 0.4) {FIELD}"""
    left = tables["a"].withColumn("time", "GAUSSIAN(t, 2)")
    wanted = hp.match(
        left, tables["b"], ["x", ("time", "t", 0.1)], density=0.5, completeness=0.8, by_category={"kind": (0.9, 0.4)}
    )
    found = hp.sql(query.replace("SELECT *", "SELECT a.id, b.id, BAYES_FACTOR(), P_MATCH(), P_ANY()"), **tables)
    chosen = ("id_left", "id_right", "bayes_factor", "p_match", "p_any")
    assert bag(found) == sorted(
        repr(tuple(round(row[name], 9) if isinstance(row[name], float) else row[name] for name in chosen))
        for row in wanted.collect()
    )
    assert len(hp.sql(query, **tables).columns) == 13
    by_column = hp.sql(query.replace("0.1)", "b.rho)"), **tables)
    same = ["x", ("time", "t", "rho")]
    wanted = hp.match(left, tables["b"], same, density=0.5, completeness=0.8, by_category={"kind": (0.9, 0.4)})
    wanted_p = sorted(row["p_match"] for row in wanted.collect())
    assert sorted(row["p_match"] for row in by_column.collect()) == pytest.approx(wanted_p, abs=1e-9)


def test_values_without_a_density_need_within(engine: Any) -> None:
    table = engine.createDataFrame([(1, 0.0), (2, 3.0)], "id long, y double")
    query = "SELECT * FROM a JOIN b ON SAME(a.y, b.y) WITH DENSITY 0.1 COMPLETENESS 0.6"
    with pytest.raises(HaplyError, match="have no density at which they are equal"):
        hp.sql(query, a=table, b=table)
    found = hp.sql(query + " WITHIN 0.5", a=table, b=table)
    same_rows(found, hp.match(table, table, "y", density=0.1, completeness=0.6, within=0.5), 2)


def test_where_chooses_pairs_after_the_match(tables: dict[str, Any]) -> None:
    wanted = hp.match(tables["a"], tables["b"], "x", density=0.5, completeness=0.8)
    for source in ("a JOIN b ON SAME(a.x, b.x) WHERE b.kind = 'v'", "a, b WHERE b.kind = 'v' AND SAME(a.x, b.x)"):
        same_rows(hp.sql(f"SELECT * FROM {source} {FIELD}", **tables), wanted.where("kind_right = 'v'"), 2)


# -- how many partners -------------------------------------------------------------------------------------------------


def test_group_by_a_table_counts_the_partners_of_its_rows(tables: dict[str, Any]) -> None:
    on = "abs(left.x - right.x) <= 1"
    query = f"SELECT * FROM a LEFT JOIN b ON {NEAR} AND a.id <> b.id GROUP BY a"
    found = hp.sql(query, **tables)
    assert found.columns == ["id", "kind", "t", "x", "rho", "expected_matches", "sd_matches", "p_any"]
    same_rows(found, hp.count_matches(tables["a"], tables["b"], f"{on} AND left.id <> right.id"), 5)
    some = hp.sql(f"SELECT a.id, EXPECTED_MATCHES(), P_ANY(), SD_MATCHES() FROM a LEFT JOIN b ON {NEAR} GROUP BY a "
                  "WITH THRESHOLD 0.5 ORDER BY P_ANY() DESC", **tables)  # fmt: skip
    assert some.columns == ["id", "expected_matches", "p_any", "sd_matches"]
    wanted = {row["id"]: row for row in hp.count_matches(tables["a"], tables["b"], on, threshold=0.5).collect()}
    assert [row["id"] for row in some.collect()] == sorted(wanted, key=lambda key: -wanted[key]["p_any"])
    for row in some.collect():
        assert tuple(row)[1:] == pytest.approx([wanted[row["id"]][name] for name in some.columns[1:]], abs=1e-9)


def test_group_by_columns_counts_for_groups(tables: dict[str, Any]) -> None:
    query = f"SELECT * FROM a LEFT JOIN b ON {NEAR} GROUP BY kind".replace("BY kind", "BY a.kind")
    found = hp.sql(query, **tables)
    assert found.columns == ["kind", "expected_matches", "sd_matches"]
    same_rows(found, hp.count_matches(tables["a"], tables["b"], "abs(left.x - right.x) <= 1", by="kind"), 2)
    query = f"SELECT round(EXPECTED_MATCHES(), 6) AS n, a.t FROM a LEFT JOIN b ON {NEAR} GROUP BY a.t, a.kind"
    wanted = hp.count_matches(tables["a"], tables["b"], "abs(left.x - right.x) <= 1", by=["kind", "t"])
    assert bag(hp.sql(query, **tables)) == sorted(
        repr((round(row["expected_matches"], 6), row["t"])) for row in wanted.collect()
    )


def test_quantiles_distributions_windows_and_rows_of_counts(tables: dict[str, Any]) -> None:
    query = f"""SELECT a.id, EXPECTED_MATCHES(), SD_MATCHES(), P_ANY(), MATCHES_QUANTILE(0.05), MATCHES_QUANTILE(0.95),
                       MATCHES_DISTRIBUTION()
                FROM a LEFT JOIN b ON {NEAR} AND WINDOW(a, b) = 3 WHERE a.kind = 'u' OR a.id = 4 GROUP BY a"""
    found = hp.sql(query, time="t", **tables)
    wanted = hp.count_matches(
        tables["a"].where("kind = 'u' OR id = 4"), tables["b"], "abs(left.x - right.x) <= 1", time="t", window=3,
        columns=["id"], quantiles=[0.05, 0.95], distribution=True,
    )  # fmt: skip
    assert found.columns == wanted.columns
    same_rows(found, wanted, 3)
    only = hp.sql(f"SELECT P_ANY() FROM a LEFT JOIN b ON {NEAR} GROUP BY a", **tables)
    assert (only.columns, only.count()) == (["p_any"], 5)


# -- the last event ----------------------------------------------------------------------------------------------------


def test_asof_joins(tables: dict[str, Any]) -> None:
    query = "SELECT * FROM a ASOF LEFT JOIN b ON a.kind = b.kind AND b.t <= a.t WITH LOOKBACK 3"
    wanted = hp.plan_asof(tables["a"], tables["b"], "t", by="kind", lookback=3)
    plan = hp.plan_sql(query, **tables)
    assert plan.explain(verbose=True) == wanted.explain(verbose=True)
    found = plan.run()
    assert found.columns[-2:] == ["probability", "p_any"]
    same_rows(found, wanted.run(), 5)
    inner = hp.sql("SELECT * FROM a ASOF JOIN b ON a.t >= b.t", **tables)
    same_rows(inner, hp.asof(tables["a"], tables["b"], "t", how="inner"), 4)
    ahead = hp.sql("SELECT * FROM a ASOF JOIN b ON b.t >= a.t WITH THRESHOLD 0.5", **tables)
    same_rows(ahead, hp.asof(tables["a"], tables["b"], "t", how="inner", direction="forward", threshold=0.5), 3)
    near = hp.sql("SELECT * FROM a ASOF LEFT JOIN b ON NEAREST(b.t, a.t) AND a.kind = b.kind WITH LOOKBACK 4", **tables)
    same_rows(near, hp.asof(tables["a"], tables["b"], "t", by="kind", direction="nearest", lookback=4), 5)


def test_events_at_one_time_are_ordered_by_columns_that_nobody_names(tables: dict[str, Any]) -> None:
    found = hp.sql("SELECT a.id, b.rho FROM a ASOF JOIN b ON b.t <= a.t", **tables)
    wanted = hp.asof(tables["a"], tables["b"], "t", how="inner")
    assert bag(found) == sorted(repr((row["id_left"], row["rho_right"])) for row in wanted.collect())


def test_uncertain_times_of_asof_joins(tables: dict[str, Any]) -> None:
    left = tables["a"].withColumn("g", "GAUSSIAN(t, 1)")
    right = tables["b"].withColumn("g", "GAUSSIAN(t, 2)")
    query = "SELECT a.id, b.id, PROB(), P_ANY() FROM a ASOF LEFT JOIN b ON GAUSSIAN(b.t, 2) <= GAUSSIAN(a.t, 1) KEEP {}"
    columns = ["id_left", "id_right"]
    for kept, options in (("ALL", {"keep": "all"}), ("BEST 2 PER a", {"keep": "best_left", "k": 2})):
        wanted = hp.asof(left, right, "g", columns=columns, **options)
        same_rows(hp.sql(query.format(kept), **tables), wanted, 8)


def test_durations_of_asof_joins(engine: Any) -> None:
    one = engine.createDataFrame([(1, 10_000_000)], "id int, time timestamp")
    other = engine.createDataFrame([(1, 2_000_000), (2, 12_000_000)], "id int, time timestamp")
    query = "SELECT b.id FROM a ASOF JOIN b ON b.time <= a.time WITH LOOKBACK {}"
    for length, found in (("'8 seconds'", 1), ("INTERVAL 8 SECONDS", 1), ("INTERVAL 7 SECONDS", 0), ("9", 1)):
        assert hp.sql(query.format(length), a=one, b=other).count() == found


# -- errors ------------------------------------------------------------------------------------------------------------

SAME = "SELECT * FROM a JOIN b ON SAME(a.x, b.x)"
MISTAKES = [
    (SAME, 27, "hp.match needs a density: right rows per unit area that are unrelated to a left row"),
    (f"{SAME} WITH DENSITY .5", 27, "SAME needs a completeness: the share of rows of a that have a counterpart in b"),
    (f"{SAME} WITH DENSITY 0 COMPLETENESS .5", 42, "The density is not a positive number"),
    (f"{SAME} WITH DENSITY 1 COMPLETENESS 1", 42, "completeness is 1. Expected a number between 0 and 1"),
    (f"{SAME} WITH DENSITY b.rho COMPLETENESS .5", 55, "the density is not a column of a"),
    (f"{SAME} WITH DENSITY 'x' COMPLETENESS .5", 55, "DENSITY is not a number"),
    (f"{SAME} {FIELD} STRICT", 76, "this does not continue the query"),
    (f"{SAME} {FIELD} THRESHOLD .5 STRICT", 42, "SAME has no STRICT threshold"),
    (f"{SAME} AND abs(a.x - b.x) < 1 {FIELD}", 46, "An uncertain condition cannot be used together with SAME"),
    (f"{SAME} WHERE b.x > 3 {FIELD}", 48, "cannot be used together with SAME"),
    (f"{SAME} AND WINDOW(a, b) = 3 {FIELD}", 46, "WINDOW cannot be used together with SAME"),
    (f"{SAME} AND SAME(a.t, b.t) {FIELD}", 46, "Expected SAME(a.t, b.t, 0.1)"),
    (f"{SAME} AND SAME(a.t, b.t, a.rho) {FIELD}", 46, "`a.rho` is not a density of unrelated rows"),
    ("SELECT * FROM a JOIN b ON SAME(a.kind, b.kind, .9, .1) WITH DENSITY 1", 27, "SAME compares categories only"),
    (SAME.replace("b.x", "a.x") + FIELD, 27, "SAME compares a column of each table"),
    (SAME.replace(", b.x", "") + FIELD, 27, "SAME compares a column of each table"),
    (SAME.replace("a.x", "a.x + 1") + FIELD, 27, "SAME compares a column of each table"),
    (SAME.replace("a.x, b.x", "a.kind, b.kind") + " " + FIELD, 27, "is not a measurement"),
    (f"{SAME} OR a.id = 1 {FIELD}", 27, "SAME cannot be part of another condition"),
    (f"SELECT * FROM a LEFT JOIN b ON a.id = b.id WHERE SAME(a.x, b.x) {FIELD}", 50, "move SAME into ON"),
    ("SELECT * FROM a WHERE SAME(a.x, a.x)", 23, "SAME is for two tables"),
    ("SELECT /*+ BROADCAST(b) */ * FROM a JOIN b ON SAME(a.x, b.x)", 22, "BROADCAST is not for SAME"),
    (f"SELECT b.id FROM a SEMI JOIN b ON SAME(a.x, b.x) {FIELD}", 20, "returns columns of a only. Found b.id"),
    (f"SELECT P_MATCH() FROM a JOIN b ON {NEAR} WITH THRESHOLD .5", 8, "Hint: write FROM a JOIN b ON SAME(a.x, b.x)"),
    (f"SELECT BAYES_FACTOR() FROM a JOIN b ON {NEAR}", 8, "BAYES_FACTOR() is about rows that are the same thing"),
    (f"SELECT P_ANY() FROM a JOIN b ON {NEAR}", 8, "Expected GROUP BY a, ON SAME(a.x, b.x), or an ASOF JOIN"),
    (f"SELECT SD_MATCHES() FROM a JOIN b ON {NEAR}", 8, "Hint: write FROM a LEFT JOIN b ON ... GROUP BY a"),
    (SAME.replace("*", "PROB()") + " " + FIELD, 8, "PROB() is about pairs that fulfil a condition. Hint: here, write"),
    (SAME.replace("*", "P_LOW()") + " " + FIELD, 8, "Hint: write WITH EXCLUSIVE, or P_MATCH()"),
    (SAME.replace("*", "P_ANY(a.id)") + " " + FIELD, 8, "P_ANY() takes no arguments"),
    (SAME.replace("*", "p_match") + " " + FIELD, 8, "there is no column 'p_match'. Hint: write P_MATCH()"),
    (f"{SAME} WHERE P_ANY() > .5 {FIELD}", 48, "P_ANY() is a condition's result, not part of one"),
    ("SELECT * FROM (SELECT P_ANY() FROM a) q", 23, "P_ANY() is that of the whole query"),
    (f"SELECT * FROM a JOIN b ON {NEAR} GROUP BY a", 56, "Expected a LEFT JOIN. Hint: write FROM a LEFT JOIN b"),
    (f"SELECT * FROM a RIGHT JOIN b ON {NEAR} GROUP BY a", 17, "GROUP BY counts the partners of every row of a"),
    (f"SELECT a.id, b.id FROM a LEFT JOIN b ON {NEAR} GROUP BY a", 70, "after GROUP BY, b.id has no single value"),
    (f"SELECT a.id FROM a LEFT JOIN b ON {NEAR} GROUP BY a.kind", 64, "Hint: leave out a.id, or add it to GROUP BY"),
    (f"SELECT P_ANY() FROM a LEFT JOIN b ON {NEAR} GROUP BY a.kind", 8, "P_ANY() is about one row"),
    (f"SELECT * FROM a LEFT JOIN b ON {NEAR} GROUP BY b", 61, "Hint: to count for rows of b, write FROM b LEFT JOIN a"),
    (f"SELECT * FROM a LEFT JOIN b ON {NEAR} GROUP BY b.id", 61, "GROUP BY is about rows of a. Expected a, or columns"),
    (f"SELECT * FROM a LEFT JOIN b ON {NEAR} GROUP BY a.t + 1", 61, "GROUP BY is about rows of a"),
    (f"SELECT * FROM a LEFT JOIN b ON {NEAR} WHERE b.id > 1 GROUP BY a", 58, "move `b.id > 1` into ON"),
    (f"SELECT * FROM a LEFT JOIN b ON {NEAR} GROUP BY a.kind WITH THRESHOLD .5", 68, "THRESHOLD is about rows"),
    (f"SELECT * FROM a LEFT JOIN b ON {NEAR} GROUP BY a KEEP MUTUAL", 63, "KEEP chooses pairs"),
    (f"SELECT MATCHES_QUANTILE(2) FROM a LEFT JOIN b ON {NEAR} GROUP BY a", 50, "A quantile is not a probability"),
    (f"SELECT MATCHES_QUANTILE() FROM a LEFT JOIN b ON {NEAR} GROUP BY a", 8, "as in MATCHES_QUANTILE(0.95)"),
    (f"SELECT * FROM a LEFT JOIN b ON SAME(a.x, b.x) GROUP BY a {FIELD}", 56, "GROUP BY counts the pairs of a"),
    ("SELECT * FROM a ASOF JOIN b ON b.t < a.t", 32, "takes events at the same time as well"),
    ("SELECT * FROM a ASOF JOIN b ON a.kind = b.kind", 17, "Expected ON b.time <= a.time. Found 0 comparisons"),
    ("SELECT * FROM a ASOF JOIN b ON b.t <= a.t AND b.t >= a.t - 3", 47, "WITH LOOKBACK 10 limits how far back"),
    ("SELECT * FROM a ASOF JOIN b ON b.t <= a.t AND a.x = b.x", 47, "Expected equal certain columns, and one"),
    ("SELECT * FROM a ASOF JOIN b ON b.kind <= a.t", 32, "Column 'kind' of the right table is not a time"),
    ("SELECT * FROM a ASOF JOIN b ON b.t <= a.t WITH LOOKBACK a.t", 57, "the lookback is no length of time"),
    ("SELECT * FROM a ASOF JOIN b ON b.t <= a.t WITH DENSITY 3", 48, "DENSITY is an option of SAME"),
    (f"SELECT * FROM a JOIN b ON {NEAR} WITH LOOKBACK 3", 52, "Hint: leave out LOOKBACK, or write a ASOF JOIN b"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "column", "text"), MISTAKES)
def test_mistakes_are_told_with_their_place(tables: dict[str, Any], query: str, column: int, text: str) -> None:
    with pytest.raises(HaplyError) as caught:
        hp.plan_sql(query, time="t", **tables)
    said = str(caught.value)
    assert text in said, said
    assert said.startswith(f"line 1, column {column}:\n"), said


def test_nothing_but_errors_of_ours_comes_out() -> None:
    value = [{"mean": 0.0, "sd": 1.0}]
    table, other = (pa.table({"id": [1], "kind": ["u"], "t": [1.0], "x": value, "rho": [0.5]}) for _ in range(2))
    queries = [
        f"SELECT a.id, P_MATCH() FROM a LEFT JOIN b ON SAME(a.x, b.x) AND SAME(a.t, b.x, 0.1) {FIELD} EXCLUSIVE",
        f"SELECT a.kind, SD_MATCHES() AS n FROM a LEFT JOIN b ON {NEAR} WHERE a.id > 0 GROUP BY a.kind ORDER BY n",
        f"SELECT *, MATCHES_QUANTILE(0.9) FROM a LEFT JOIN b ON {NEAR} AND a.id = b.id GROUP BY a WITH THRESHOLD 0.5",
        "SELECT * FROM a ASOF LEFT JOIN b ON a.kind = b.kind AND b.t <= a.t WITH LOOKBACK 10 KEEP ALL",
    ]  # fmt: skip
    for query in queries:
        haply.plan_sql(query, a=table, b=other)
    chance = random.Random(11)
    planned = 0
    for _ in range(fewer(400)):
        text = mutated(chance.choice(queries), chance)
        try:
            haply.plan_sql(text, a=table, b=other)
            planned += 1
        except HaplyError as error:
            if not str(error).startswith("line "):
                raise AssertionError(text) from error
    assert planned > fewer(400) / 40
