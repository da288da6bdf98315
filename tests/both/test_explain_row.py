"""``plan.explain_row``: the order of filters for one row, what each proves, and which decides; and rule names."""

from __future__ import annotations

import math
import re
from statistics import NormalDist

import numpy as np
import pytest

import both_kit as hp
import oracle
import oracle_select as referee
from haply.errors import HaplyError
from haply.planning.explain import RowExplanation
from haply.selection.costs import Costs
from oracle_select import Ask

TYPES = """id long, site string, c double, r struct<mean:double,sd:double>, x struct<mean:double,sd:double>,
y struct<mean:double,sd:double>"""
CONDITION = "x * x + y * y > 0.16 AND r < 20 + c AND site = 'a'"
INF = math.inf


def rows(count: int = 24, seed: int = 3) -> list[dict]:
    rng = np.random.default_rng(seed)

    def value(low: float, high: float, most: float) -> dict[str, float]:
        return {"mean": float(rng.uniform(low, high)), "sd": float(rng.uniform(0.02, most))}

    return [
        {"id": k, "site": "b" if k % 8 == 7 else "a", "c": float(rng.uniform(0, 3)), "r": value(20, 23, 0.6),
         "x": value(-1, 1, 0.3), "y": value(-1, 1, 0.3)}
        for k in range(count)
    ]  # fmt: skip


ROWS = rows()


@pytest.fixture(scope="module")
def table(engine):
    return engine.createDataFrame([tuple(row.values()) for row in ROWS], TYPES)


def wanted(row: dict) -> float:
    """The probability, without the library."""
    if row["site"] != "a":
        return 0.0
    law = {name: oracle.Normal(**row[name]) for name in "rxy"}
    squares = Ask((), tuple(((name, None), (name, None), 1.0) for name in "xy"), ((0.16, INF, False, True),))
    (form,) = referee.normals({name: [law[name]] for name in "xy"}, [squares])
    return float(form) * NormalDist(law["r"].mean, law["r"].sd).cdf(20 + row["c"])


def test_every_row_is_explained_as_it_is_decided(table):
    """The verdict is that of the selection; bounds hold, close in, and only the last step decides."""
    for exact in ("exact", "none"):
        plan = hp.plan_where(table, CONDITION, 0.6, probability=exact)
        kept = {row["id"] for row in plan.run().collect()}
        assert 0 < len(kept) < 15
        filters = set()
        for row in ROWS[:: 1 if table.engine.name == "local" else 6]:
            told = plan.explain_row(row)
            assert isinstance(told, RowExplanation)
            assert told.kept == (row["id"] in kept)
            assert told.probability == pytest.approx(wanted(row), abs=1e-9)
            if row["site"] == "b":
                assert (told.failed, told.decided_by, told.steps) == ("site = 'a'", "certain condition", ())
                continue
            assert math.prod(chance for _, chance in told.groups) == pytest.approx(told.probability, abs=1e-12)
            exactly = dict(told.groups)
            for step in told.steps:
                assert step.lower - 1e-12 <= exactly[step.group] <= step.upper + 1e-12
                assert step.least - 1e-12 <= told.probability <= step.most + 1e-12
                assert step.rank == pytest.approx((1.0 - step.selectivity) / step.cost)
            *before, last = told.steps
            assert {step.verdict for step in before} <= {"leaves it open"}
            assert last.verdict == ("accepts" if told.kept else "rejects")
            assert told.decided_by == last.filter
            filters |= {step.filter for step in told.steps}
        assert {"exact value", "Cantelli"} <= filters


def test_the_order_is_by_rank_and_said_in_words(table):
    """One value first, then bounds, then the exact value; the table of steps shows ranks and bounds."""
    near = next(row for row in ROWS if row["site"] == "a" and 0.1 < wanted(row) < 0.9)
    told = hp.plan_where(table, CONDITION, 0.05).explain_row(near)
    assert told.steps[0].group == told.groups[0][0] == "r < 20 + c"
    assert told.steps[0].selectivity == 0.5
    assert told.steps[1].filter == "Cantelli"
    assert told.order[0] == "exact value: r < 20 + c"
    second = told.steps[2]
    assert second.selectivity == pytest.approx(0.5 * (told.steps[1].lower + told.steps[1].upper))
    text = str(told)
    assert text.startswith(f"Kept: the probability of `{CONDITION}` is {told.probability:.4g}, at least the threshold")
    assert f"'{told.decided_by}' of group 2 decided, in step {len(told.steps)}." in text
    assert re.search(
        r"^  1 +exact value +group 1 +\S+ µs +0\.5 +\S+ per µs +\S+ +0 to \S+ +leaves it open$", text, re.M
    )
    page = told._repr_html_()
    assert "<th>rank</th>" in page
    assert "<td>Cantelli</td>" in page
    assert "x * x + y * y &gt; 0.16" in page


def test_of_two_dear_groups_the_likelier_to_reject_is_computed_first(engine):
    """Ranks depend on the row: bounds tell which group is unlikely, and costs are alike."""
    kinds = "id long, a struct<mean:double,sd:double>, b struct<mean:double,sd:double>, " \
            "c struct<mean:double,sd:double>, d struct<mean:double,sd:double>"  # fmt: skip
    wide, narrow = {"mean": 0.7, "sd": 0.5}, {"mean": 0.1, "sd": 0.5}
    given = [(0, wide, wide, narrow, narrow), (1, narrow, narrow, wide, wide)]
    table = engine.createDataFrame([tuple(row) for row in given], kinds)
    plan = hp.plan_where(table, "a * a + b * b < 1 AND c * c + d * d < 1", 0.3)
    firsts = []
    for row in given:
        told = plan.explain_row(dict(zip(("id", *"abcd"), row, strict=True)))
        values = [step for step in told.steps if step.filter == "exact value"]
        firsts.append(values[0].group)
        assert values[0].selectivity == min(step.selectivity for step in values)
    assert firsts == ["a * a + b * b < 1", "c * c + d * d < 1"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"x": None}, r"The row has no value in 'x'.*Found null.*Hint: hp.where leaves such a row out"),
        ({"x": {"mean": 1.0, "sd": None}}, r"The row has no value in 'x'"),
        ({"c": None}, r"The row has no value in '20 \+ c'"),
        ({"x": {"mean": 1.0, "sd": -1.0}}, r"Column 'x' has a row that is not a distribution.*sd < 0.*Hint"),
        (
            {"x": 3.0},
            r"The row's 'x' is not a value of its column.*Found 3.0.*Hint: give a dict .\"mean\": ..., \"sd\"",
        ),
        ({"c": "many"}, r"The row's 'c' is not a value of its column. Expected double. Found 'many'. Hint"),
    ],
)
def test_bad_rows_are_refused(table, change, problem):
    with pytest.raises(HaplyError, match=problem) as refusal:
        hp.plan_where(table, CONDITION, 0.5).explain_row(ROWS[0] | change)
    assert refusal.value.hint


def test_rows_of_every_kind(table):
    """A dict with no more than is needed, rows and tables of one row."""
    plan, row = hp.plan_where(table, CONDITION, 0.5), ROWS[1]
    told = plan.explain_row(row)
    one = table.arrow.slice(1, 1)
    for given in (
        {name: row[name] for name in ("site", "c", "r", "x", "y")}, {name.upper(): row[name] for name in row},
        one, one.to_pandas(), one.to_pandas().iloc[0], table.collect()[1],
    ):  # fmt: skip
        assert plan.explain_row(given).probability == told.probability
    for given, problem in (
        (7, "The row is of type int"), (table.arrow, "Expected a table of one row. Found more"),
        (table.arrow.slice(0, 0), "Found no row"), ({"site": "a"}, "The row has no column 'x'"),
    ):  # fmt: skip
        with pytest.raises(HaplyError, match=problem):
            plan.explain_row(given)


def test_constructors_nulls_in_cases_and_certain_conditions(engine):
    engines = engine.createDataFrame(
        [("A", 84.0, 3.1, False), ("C", 78.0, None, True), ("D", 78.0, None, False)],
        "engine string, heat double, noise double, old boolean",
    )
    plan = hp.plan_where(engines, "gaussian(heat, 4) > 90 OR gaussian(noise, 0.5) > 3.5 OR old", 0.2)
    told = [plan.explain_row(row) for row in engines.collect()]
    assert [(one.kept, round(one.probability, 4)) for one in told] == [(True, 0.2645), (True, 1.0), (False, 0.0013)]
    with pytest.warns(hp.HaplyWarning, match="No column of the condition"):
        certain = hp.plan_where(engines, "heat > 80", None)
    assert str(certain.explain_row({"heat": 84.0})) == "Kept: every condition is certain, and all hold."
    assert str(certain.explain_row({"heat": 8.0})) == "Not kept: the certain condition `heat > 80` does not hold."


def test_a_selection_in_sql_explains_rows_as_well(table):
    """The answer is that of the same selection in Python; the row needs the columns of conditions alone."""
    query = f"SELECT id, PROB() AS p FROM t WHERE {CONDITION} WITH THRESHOLD 0.6"
    mine = hp.plan_sql(query, t=table)
    row = {name: value for name, value in ROWS[2].items() if name != "id"}
    told, wanted = mine.explain_row(row), hp.plan_where(table, CONDITION, 0.6).explain_row(row)
    assert (told.probability, told.kept, told.order) == (wanted.probability, wanted.kept, wanted.order)
    made = hp.plan_sql("SELECT id FROM t AS s WHERE GAUSSIAN(s.c, 0.5) > 1 WITH THRESHOLD 0.5", t=table)
    assert made.explain_row({"c": 1.0}).probability == pytest.approx(0.5)
    with pytest.raises(HaplyError, match="The row has no column 'c'"):
        made.explain_row({"site": "a"})
    inner = hp.plan_sql("SELECT c FROM (SELECT c FROM t) s WHERE GAUSSIAN(c, 0.5) > 1 WITH THRESHOLD 0.5", t=table)
    with pytest.raises(HaplyError, match="selects from another query"):
        inner.explain_row(row)


def test_other_plans_explain_no_rows(table):
    pairs = hp.plan_join(table, table.drop("site"), "abs(left.x - right.x) < 1", 0.5)
    with pytest.raises(HaplyError, match=r"plans of selections.*explain_pair\(left_row, right_row\) of a plan"):
        pairs.explain_row(ROWS[0])
    with pytest.raises(HaplyError, match=r"per-row planning.*'static'"):
        hp.plan_where(table, CONDITION, 0.5, planning="static").explain_row(ROWS[0])


def test_explain_shows_filters_with_their_ranks(table):
    """In the order in which rows are asked, by the names that the literature has."""
    lines = hp.plan_where(table, CONDITION, 0.5).explain().splitlines()
    filters = [line.strip() for line in lines if line.startswith("  filter ")]
    costs = Costs.of_this_machine()
    plan = hp.plan_where(table, CONDITION, 0.5).plan.query.query.selection
    ranks = [0.5e-6 / cost for cost in sorted(costs.of(group) for group in plan.groups)]
    rules = "Cantelli, distance (that of Chebyshev's inequality, with the Gaussian tail), slab, Chernoff, strips"
    assert filters == [
        f"filter 1      exact value of group 1 (rank {ranks[0]:.2g} per µs at s = 0.5)",
        f"filter 2      bounds of group 2 by {rules}",
        f"filter 3      exact value of group 2 (rank {ranks[1]:.2g} per µs at s = 0.5)",
    ]
    static = hp.plan_where(table, CONDITION, 0.5, planning="static").explain()
    assert "filter 1" not in static


def test_the_funnel_names_rules_as_the_literature_does(table):
    funnel = hp.Funnel()
    hp.where(table, "x * x + y * y > 4", 0.5, funnel=funnel).count()
    counts = funnel.to_dict()
    assert counts["rejected"]["Cantelli"] > 0
    assert "rejected by Cantelli" in str(funnel)


@pytest.mark.parametrize(("right", "name"), [("x", "GJ"), ("uniform(right.c, right.c + 1)", "GMJ"), ("right.c", "GJ")])
def test_moment_indexes_have_their_names(table, right, name):
    """GJ is for Gaussians, also beside certain values; GMJ for any law."""
    on = f"abs(left.x - {right if 'right' in right else 'right.x'}) < 1"
    told = hp.plan_join(table, table.drop("site"), on, 0.5, strategy="moments").explain()
    assert f"  candidates    {name}, an index of means and variances" in told


def test_a_plan_of_a_join_explains_pairs_as_it_decides_them(engine):
    """By the window, another certain condition, a rule or the exact value; the verdict is that of the join."""
    rng = np.random.default_rng(12)
    sides = [
        [{"id": k, "t": float(rng.uniform(0, 10)), "k": int(rng.integers(0, 2)), "x": float(rng.uniform(0, 8))}
         for k in range(8)]
        for _ in range(2)
    ]  # fmt: skip
    tables = [
        engine.createDataFrame([tuple(row.values()) for row in rows], "id long, t double, k int, x double")
        for rows in sides
    ]
    on = "left.k = right.k AND abs(gaussian(left.x, 0.5) - gaussian(right.x, 0.3)) < 1"
    plan = hp.plan_join(*tables, on, 0.4, time="t", window=4)
    kept = {(row["id_left"], row["id_right"]): row["probability"] for row in plan.run().collect()}
    law, decided = NormalDist(0, math.hypot(0.5, 0.3)), set()
    for one in sides[0]:
        for other in sides[1]:
            told = plan.explain_pair(one, other)
            assert told.kept == ((one["id"], other["id"]) in kept)
            decided.add(told.decided_by)
            if abs(one["t"] - other["t"]) > 4:
                assert told.failed == "abs(left.t - right.t) <= 4"
            elif one["k"] != other["k"]:
                assert told.failed == "left.k = right.k"
            else:
                gap = one["x"] - other["x"]
                assert told.probability == pytest.approx(law.cdf(1 - gap) - law.cdf(-1 - gap), abs=1e-12)
    assert decided == {"certain condition", "core regions", "gaussian curve", "exact value"}
    assert 3 < len(kept) < 40


def test_a_window_of_uncertain_times_is_a_condition_of_a_pair(engine):
    table = engine.createDataFrame([(0.0, 1.0)], "t double, x double")
    on, options = "abs(gaussian(left.x, 0.5) - right.x) < 0.5", {"time": ("g", "t"), "window": 1}
    timed = hp.sql("SELECT GAUSSIAN(t, 0.5) AS g, x FROM r", r=table)
    (pair,) = hp.join(timed, table, on, 0.1, **options).collect()
    row = {"g": {"mean": 0.0, "sd": 0.5}, "x": 1.0}
    told = hp.plan_join(timed, table, on, 0.1, **options).explain_pair(row, {"t": 0.0, "x": 1.0})
    assert told.kept
    assert told.probability == pytest.approx(pair["probability"], abs=1e-12)
    near, within = math.erf(1 / math.sqrt(2)), math.erf(2 / math.sqrt(2))
    assert [step.upper for step in told.steps] == pytest.approx([within, near, near * within], abs=1e-10)
    with pytest.raises(HaplyError, match=r"plans of joins of two tables.*needs no plan"):
        hp.plan_where(table, "gaussian(x, 1.0) > 0", 0.1).explain_pair(row, row)
