"""``hp.where``: the right rows from text and expressions, and on difficult tables."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp
import oracle
import oracle_select as referee
from haply.errors import HaplyError
from oracle_select import Ask, NormalND

SCHEMA = """id long, site string, c double, x struct<mean:double,sd:double>, y struct<mean:double,sd:double>,
h struct<edges:array<double>,probs:array<double>>, s struct<points:array<double>,probs:array<double>,dim:int>,
p struct<mean:array<double>,cov:array<double>>, q struct<mean:array<double>,cov:array<double>>, at array<double>"""
INF = math.inf


def table_rows(count=60, seed=1):
    """Rows of every kind of column."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(count):
        edges = np.sort(rng.uniform(-2, 2, 4)).tolist()
        spots = [(rng.uniform(-1, 1, 2).tolist(), [0.5, r, r, 0.4]) for r in rng.uniform(-0.3, 0.3, 2).tolist()]
        rows.append(
            (
                k, "ab"[k % 2], float(rng.uniform(-1, 2)), (float(rng.uniform(-2, 2)), float(rng.uniform(0, 1.5))),
                (float(rng.uniform(-2, 2)), float(rng.uniform(0, 1.5))), (edges, [0.25, 0.5, 0.25]),
                ((rng.integers(-4, 5, 4) / 4).tolist(), None, 1), *spots, rng.uniform(-1, 1, 2).tolist(),
            )
        )  # fmt: skip
    return rows


ROWS = table_rows()


@pytest.fixture(scope="module")
def table(engine):
    return engine.createDataFrame(ROWS, SCHEMA)


def chance(asks_of_row):
    return {row[0]: float(asks_of_row(row)) for row in ROWS}


def normal(pair):
    return oracle.Normal(*pair)


def kept(result):
    """Ids with probabilities; no row twice."""
    rows = [(row["id"], row["probability"]) for row in result.select("id", "probability").collect()]
    assert len(dict(rows)) == len(rows), "a row was doubled"
    return dict(rows)


def assert_kept(found, wanted, threshold, strict=False):
    hairline = {k for k, p in wanted.items() if oracle.borderline(p, threshold)}
    expected = {k for k, p in wanted.items() if oracle.keeps(p, threshold, strict)}
    assert set(found) - hairline == expected - hairline
    for k, p in found.items():
        assert abs(p - wanted[k]) < 1e-10


def sums(row, asks):
    """The referee's probability of conditions on normals of one row."""
    columns = {"x": normal(row[3]), "y": normal(row[4]), "p": _spot(row[7]), "q": _spot(row[8])}
    named = {name: [value] for name, value in columns.items()}
    return referee.normals(named, asks)[0]


def _spot(value):
    return NormalND(value[0], np.reshape(value[1], (2, 2)))


X, Y = ("x", None), ("y", None)
CASES = {
    "x < 1": (
        lambda: hp.col("x") < 1,
        lambda r: oracle.cdf(normal(r[3]), 1.0),
    ),
    "x BETWEEN -1 AND c": (
        lambda: hp.between(hp.col("x"), -1, hp.col("c")),
        lambda r: referee.one_value(normal(r[3]), [Ask(((X, 1.0),), (), ((-1.0, r[2], True, True),))]),
    ),
    "s >= 0.25 AND site = 'a'": (
        lambda: (hp.col("s") >= 0.25) & (hp.col("site") == "a"),
        lambda r: (r[1] == "a") * np.mean(np.array(r[6][0]) >= 0.25),
    ),
    "c * x + y > 0.5 AND h < 1": (
        lambda: (hp.col("c") * hp.col("x") + hp.col("y") > 0.5) & (hp.col("h") < 1),
        lambda r: sums(r, [Ask(((X, r[2]), (Y, 1.0)), (), ((0.5, INF, False, True),))])
        * float(oracle.cdf(oracle.Hist(*map(tuple, r[5])), 1.0)),
    ),
    "x * x + power(y, 2) <= 2": (
        lambda: hp.col("x") ** 2 + hp.col("y") * hp.col("y") <= 2,
        lambda r: sums(r, [Ask((), ((X, X, 1.0), (Y, Y, 1.0)), ((-INF, 2.0, True, True),))]),
    ),
    "abs(x - y) < 1 AND x + y >= 0": (
        lambda: (abs(hp.col("x") - hp.col("y")) < 1) & (hp.col("x") + hp.col("y") >= 0),
        lambda r: sums(r, [Ask(((X, 1.0), (Y, -1.0)), (), ((-1.0, 1.0, False, False),)),
                           Ask(((X, 1.0), (Y, 1.0)), (), ((0.0, INF, True, True),))]),
    ),
    "p[0] > 0 AND p[1] - p[0] < at[0]": (
        lambda: (hp.col("p")[0] > 0) & (hp.col("p")[1] - hp.col("p")[0] < hp.col("at")[0]),
        lambda r: sums(r, [Ask(((("p", 0), 1.0),), (), ((0.0, INF, False, True),)),
                           Ask(((("p", 1), 1.0), (("p", 0), -1.0)), (), ((-INF, r[9][0], True, False),))]),
    ),
    "x * x + y * y <= 3 AND x - y > c - 1": (
        lambda: (hp.col("x") ** 2 + hp.col("y") ** 2 <= 3) & (hp.col("x") - hp.col("y") > hp.col("c") - 1),
        lambda r: sums(r, [Ask((), ((X, X, 1.0), (Y, Y, 1.0)), ((-INF, 3.0, True, True),)),
                           Ask(((X, 1.0), (Y, -1.0)), (), ((r[2] - 1.0, INF, False, True),))]),
    ),
    "distance(p, at) <= 1 AND p[0] > 0": (
        lambda: (hp.distance(hp.col("p"), hp.col("at")) <= 1) & (hp.col("p")[0] > 0),
        lambda r: referee.normals(
            {"p": [_spot(r[7])]},
            [Ask(tuple((("p", k), -2.0 * r[9][k]) for k in (0, 1)), tuple((("p", k), ("p", k), 1.0) for k in (0, 1)),
                 ((-INF, 1.0 - r[9][0] ** 2 - r[9][1] ** 2, True, True),)),
             Ask(((("p", 0), 1.0),), (), ((0.0, INF, False, True),))],
        )[0],
    ),
    "distance(p, q) <= 2": (
        lambda: hp.distance(hp.col("p"), hp.col("q")) <= 2,
        lambda r: referee.distances({"p": [_spot(r[7])], "q": [_spot(r[8])]}, referee.Near("p", "q", 2.0))[0],
    ),
    "DISTANCE(p, at) > c": (
        lambda: hp.distance(hp.col("p"), hp.col("at")) > hp.col("c"),
        lambda r: referee.distances({"p": [_spot(r[7])], "at": [referee.Cloud([r[9]])]},
                                    referee.Near("p", "at", r[2], True, True))[0],
    ),
    "h - x < 0.5 AND s - x > -1": (
        lambda: (hp.col("h") - hp.col("x") < 0.5) & (hp.col("s") - hp.col("x") > -1),
        lambda r: referee.star(normal(r[3]), ((-INF, INF, True, True),),
                               [(oracle.Hist(*map(tuple, r[5])), ((-0.5, INF, False, True),)),
                                (oracle.Discrete(tuple(r[6][0])), ((-INF, 1.0, True, False),))]),
    ),
}  # fmt: skip


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("text", CASES)
def test_text_and_expression_against_brute_force(table, text):
    expression, probability = CASES[text]
    by_text = kept(hp.where(table, text, 0.4))
    assert_kept(by_text, chance(probability), 0.4)
    assert 0 < len(by_text) < len(ROWS)
    assert kept(hp.where(table, expression(), 0.4)) == by_text


def test_strict_and_missing_thresholds(table):
    """Half of four samples is 0.5, and not more."""
    wanted = chance(lambda row: np.mean(np.array(row[6][0]) >= 0.25))
    assert 0.5 in wanted.values()
    for threshold, strict in ((0.5, False), (0.5, True), (None, False)):
        found = kept(hp.where(table, "s >= 0.25", threshold, strict=strict))
        assert set(found) == {k for k, p in wanted.items() if oracle.keeps(p, threshold, strict, equal_weights=True)}


def test_every_planning_and_no_probability(table):
    text = "abs(x - y) < 1 AND x + y >= 0 AND distance(p, q) <= 1.5 AND h > -1"
    found = {
        planning: kept(hp.where(table, text, 0.2, planning=planning)) for planning in ("per_row", "static", "optimal")
    }
    assert found["per_row"].keys() == found["static"].keys() == found["optimal"].keys()
    assert found["per_row"]
    for planning in ("static", "optimal"):
        assert found[planning] == pytest.approx(found["per_row"], abs=1e-11)
    for planning in found:
        rows = hp.where(table, text, 0.2, planning=planning, probability="none")
        assert rows.columns == table.columns
        assert {row["id"] for row in rows.select("id").collect()} == set(found["per_row"])


def test_output_is_the_table_and_a_probability(table):
    result = hp.where(table, "x < 1", 0.5)
    assert result.columns == [*table.columns, "probability"]
    assert result.arrow.schema.field("probability").type == pa.float64()
    given = {row[0]: row for row in ROWS}
    for row in result.collect():
        assert row["site"] == given[row["id"]][1]
        assert tuple(row["x"]) == given[row["id"]][3]
        assert row["at"] == given[row["id"]][9]


@pytest.mark.filterwarnings("ignore:No column of the condition")
def test_all_conditions_certain(table):
    result = hp.where(table, "site = 'a' AND c > 0")
    assert kept(result) == {row[0]: 1.0 for row in ROWS if row[1] == "a" and row[2] > 0}
    assert result.columns == [*table.columns, "probability"]
    assert kept(hp.where(table, "site = 'a'", 1.0, strict=True)) == {}
    assert "every condition is certain" in hp.plan_where(table, "site = 'a'").explain(verbose=True)
    assert hp.where(table, "site = 'a'", probability="none").columns == table.columns


def test_nulls_never_match(engine):
    struct = "struct<mean:double,sd:double>"
    rows = [
        (0, (0.0, 1.0), (0.0, 1.0), 1.0), (1, None, (0.0, 1.0), 1.0), (2, (0.0, None), (0.0, 1.0), 1.0),
        (3, (0.0, 1.0), (0.0, 1.0), None), (4, (0.0, 1.0), None, 1.0), (5, (0.0, 1.0), (0.0, 1.0), 1.0),
    ]  # fmt: skip
    table = engine.createDataFrame(rows, f"id long, x {struct}, y {struct}, c double")
    funnel = hp.Funnel()
    assert set(kept(hp.where(table, "x < c AND x + y < 5", funnel=funnel))) == {0, 5}
    counts = funnel.to_dict()
    assert (counts["null_left"], counts["candidates"], counts["invalid_left"]) == (4, 2, 0)
    assert set(kept(hp.where(table, "x > -9", 0.5))) == {0, 3, 4, 5}


def test_bad_rows(engine):
    struct = "struct<mean:double,sd:double>"
    rows = [
        (0, (0.0, 1.0), (0.0, 1.0)),
        (1, (0.0, -1.0), (0.0, 1.0)),
        (2, (0.0, 1.0), (math.nan, 1.0)),
        (3, None, (0.0, -1.0)),
    ]
    table = engine.createDataFrame(rows, f"id long, x {struct}, y {struct}")
    with pytest.raises(engine.failure) as caught:
        hp.where(table, "x < 9", 0.1).collect()
    assert "Column 'x'" in str(caught.value)
    assert "sd < 0" in str(caught.value)
    funnel = hp.Funnel()
    assert set(kept(hp.where(table, "x < 9", 0.1, invalid="drop", funnel=funnel))) == {0, 2}
    assert funnel.to_dict()["invalid_left"] == 1
    assert funnel.to_dict()["null_left"] == 1
    funnel = hp.Funnel()
    assert set(kept(hp.where(table, "x + y < 9 AND x > -9", 0.1, invalid="drop", funnel=funnel))) == {0}
    counts = funnel.to_dict()
    assert (counts["invalid_left"], counts["null_left"], counts["candidates"]) == (3, 0, 1)
    # a bad row that a certain condition leaves out is not looked at
    assert set(kept(hp.where(table, "x < 9 AND id = 0", 0.1))) == {0}


@pytest.mark.parametrize(("planning", "probability"), [("per_row", "exact"), ("per_row", "none"), ("static", "exact")])
def test_funnel_adds_up(table, planning, probability):
    funnel = hp.Funnel()
    text = "x * x + y * y <= 2 AND distance(p, q) <= 1 AND h < 1"
    result = hp.where(table, text, 0.3, planning=planning, probability=probability, funnel=funnel)
    assert ("empty" in str(funnel)) == table.engine.lazy
    count = result.count()
    counts = funnel.to_dict()
    assert counts["kept"] == count
    assert counts["pairs_possible"] == counts["rows_left"] == counts["candidates"] == len(ROWS)
    decided = sum(counts["rejected"].values()) + sum(counts["accepted"].values())
    assert counts["candidates"] == counts["evaluated"] + decided
    assert sum(counts["accepted"].values()) <= count
    if planning == "per_row":
        assert sum(counts["rejected"].values()) > 0
    if probability == "exact":
        assert sum(counts["accepted"].values()) == 0


def test_names_in_any_case_are_one_variable(table):
    """X and x are one column: P(0 < x < 1), not a product of two."""
    exact = kept(hp.where(table, "x > 0 AND x < 1"))
    assert kept(hp.where(table, "X > 0 AND x < 1")) == exact
    assert kept(hp.where(table, (hp.col("X") > 0) & (hp.col("x") < 1))) == exact
    assert kept(hp.where(table, "P[0] > 0 AND p[1] > 0 AND C > 0")) == kept(
        hp.where(table, "p[0] > 0 AND p[1] > 0 AND c > 0")
    )
    with pytest.raises(HaplyError, match="can never hold"):
        hp.where(table, "X - x > 1", 0.5)


def test_a_column_called_probability(table):
    named = table.withColumn("Probability", "0.25D")
    with pytest.raises(HaplyError, match=r"'probability'.*probability=\"none\""):
        hp.where(named, "x < 1", 0.5)
    rows = hp.where(named, "x < 1 AND Probability > 0.2", 0.5, probability="none")
    assert rows.columns == named.columns
    assert {row["id"] for row in rows.select("id").collect()} == set(kept(hp.where(table, "x < 1", 0.5)))


def test_an_empty_table(table):
    nobody = table.where("id < 0")
    for text in ("x < 1", "x * x + y * y < 1 AND distance(p, q) < 1", "h - x < 1 AND s - x < 1"):
        funnel = hp.Funnel()
        assert kept(hp.where(nobody, text, 0.5, funnel=funnel)) == {}
        assert funnel.to_dict()["candidates"] == funnel.to_dict()["kept"] == 0


def test_columns_with_difficult_names(engine):
    table = engine.createDataFrame(
        [(1, (0.0, 1.0), 2.0)], "id long, `the x` struct<mean:double,sd:double>, `a.b` double"
    )
    assert set(kept(hp.where(table, "`the x` < `a.b`", 0.9))) == {1}
    assert set(kept(hp.where(table, hp.col("`the x`") * hp.col("`a.b`") < 1, 0.6))) == {1}


@pytest.mark.filterwarnings("ignore:No column of the condition")
def test_points_as_arrays(engine):
    rows = [(0, [0.0, 0.0], [3.0, 4.0]), (1, [0.0, 0.0], [0.0, 1.0]), (2, None, [0.0, 1.0])]
    table = engine.createDataFrame(rows, "id long, a array<double>, b array<double>")
    assert kept(hp.where(table, "distance(a, b) <= 5")) == {0: 1.0, 1: 1.0}
    assert kept(hp.where(table, "distance(a, b) < 5")) == {1: 1.0}
    assert kept(hp.where(table, "distance(a, b) >= 5", 1.0)) == {0: 1.0}
    assert kept(hp.where(table, "b[0] > 1 AND distance(a, b) < 9")) == {0: 1.0}


def test_plans_explain_themselves(table):
    condition = "x * x + y * y <= 2 AND distance(p, q) <= c AND h < 1 AND site = 'a'"
    plan = hp.plan_where(table, condition, 0.3)
    text = plan.explain(verbose=True)
    for words in (
        "Threshold selection", "P >= 0.3", "pushed down", "site = 'a'", "group 1", "group 3", "per row", "multiply",
        "distribution function of h", "quadratic form of x, y", "distance of p, q",
    ):  # fmt: skip
        assert words in text, text
    assert "numbers       c" in text
    assert "P > 0.5" in hp.plan_where(table, "x < 1", 0.5, strict=True).explain(verbose=True)
    assert "P > 0" in hp.plan_where(table, "x < 1").explain(verbose=True)
    assert "one order for all rows" in hp.plan_where(table, "x < 1", 0.5, planning="static").explain(verbose=True)
    assert "box in 2 dimensions of x, y" in hp.plan_where(table, "x < 1 AND x + y < 1", 0.5).explain(verbose=True)
    assert "tree of differences of" in hp.plan_where(table, "x - h < 1 AND h < 1", 0.5).explain(verbose=True)
    assert kept(plan.run()) == kept(hp.where(table, condition, 0.3))


def test_a_limit_that_is_text_is_refused(table):
    with pytest.raises(HaplyError, match="site"):
        hp.where(table, "x < site", 0.5)


def test_a_component_that_is_not_there(engine, table):
    with pytest.raises(engine.failure, match=r"p\[0\] to p\[1\]"):
        hp.where(table, "p[2] > 0 AND p[0] > 0", 0.5).collect()


def test_certain_points_tie_nothing(table):
    """Two distances from one certain point are independent of each other: their probabilities multiply."""
    both = kept(hp.where(table, "distance(p, at) <= 1.5 AND distance(q, at) <= 1.5", 0.1))
    alone = [kept(hp.where(table, f"distance({name}, at) <= 1.5")) for name in "pq"]
    assert both
    for k, p in both.items():
        assert p == pytest.approx(alone[0][k] * alone[1][k], abs=1e-11)
