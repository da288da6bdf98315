"""Joins of several tables against brute force: the joint probability of conditions that share values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import both_kit as hp
from haply.errors import HaplyError
from haply.inputs import engine_of, frame_of
from haply.planning.nodes import TablesNode
from haply.planning.plans import Plan
from haply.planning.several import Chain, DoesNotFit
from haply.pruning.threshold import Threshold
from haply.query.text import parse

Row = tuple[int, list[float], int]


def frames(engine: Any, rows: dict[str, list[Row]]) -> dict[str, Any]:
    """Tables with an id, equally likely values and a group."""
    return {
        name: engine.createDataFrame(of, "id int, points array<double>, part int").select(
            "id", hp.samples("points").alias("x"), "part"
        )
        for name, of in rows.items()
    }


def rows_of(names: str, count: int, seed: int) -> dict[str, list[Row]]:
    chance = np.random.default_rng(seed)
    return {
        name: [(k, (chance.integers(0, 6) + chance.integers(0, 3, 3) + 0.0).tolist(), int(k % 2)) for k in range(count)]
        for name in names
    }


def brute_force(
    rows: dict[str, list[Row]], holds: Callable[..., bool], certain: Callable[..., bool], threshold: float
) -> dict[tuple[int, ...], float]:
    """Every combination of rows, and every combination of their values."""
    found = {}
    for combination in itertools.product(*rows.values()):
        if not certain(*(row[2] for row in combination)):
            continue
        worlds = [holds(*values) for values in itertools.product(*(row[1] for row in combination))]
        p = sum(worlds) / len(worlds)
        if p > 0 and p >= threshold - 1e-12:
            found[tuple(row[0] for row in combination)] = p
    return found


def planned(tables: Any, conditions: Any, threshold: float | None = None, **options: Any) -> hp.Planned:
    wrapped = {name: frame_of(table.asked, name) for name, table in tables.items()}
    engine = next(iter(tables.values())).engine
    asked = {"windows": {}, "times": {}, "exact": True} | options
    found = Chain().fits(TablesNode(wrapped, tuple(conditions), threshold=Threshold(threshold), **asked))
    if isinstance(found, DoesNotFit):
        raise found.error
    return hp.Planned(engine, Plan(found.plan(), engine_of(next(iter(wrapped.values())))))


def answer(plan: hp.Planned, tables: str) -> dict[tuple[int, ...], float]:
    rows = plan.run().collect()
    found = {tuple(row[f"{name}_id"] for name in tables): row["probability"] for row in rows}
    assert len(found) == len(rows), "a combination was doubled"
    return found


def check(engine: Any, names: str, on: str, holds: Any, certain: Any, threshold: float, seed: int = 1) -> str:
    rows = rows_of(names, 7 if len(names) < 4 else 4, seed)
    conditions = [parse(part) for part in on.split(" AND ")]
    plan = planned(frames(engine, rows), conditions, threshold)
    wanted = brute_force(rows, holds, certain, threshold)
    found = answer(plan, names)
    assert found.keys() == wanted.keys()
    assert all(abs(found[key] - wanted[key]) < 1e-9 for key in wanted)
    assert wanted, "the test has no answer to find"
    return plan.explain(verbose=True)


def test_a_chain_of_conditions_without_probabilities(engine: Any) -> None:
    """Two conditions share a value. Their joint probability decides, and is not told."""
    rows = rows_of("abc", 7, 1)
    conditions = [parse("abs(a.x - b.x) <= 1"), parse("abs(b.x - c.x) <= 1")]
    plan = planned(frames(engine, rows), conditions, 0.5, exact=False)
    said = plan.explain(verbose=True)
    assert "join  b       abs(a.x - b.x) <= 1 (uncertain)" in said
    assert "join  c       abs(b.x - c.x) <= 1 (uncertain)" in said
    without = plan.run()
    assert without.columns == ["a_id", "a_x", "a_part", "b_id", "b_x", "b_part", "c_id", "c_x", "c_part"]
    found = [(row.a_id, row.b_id, row.c_id) for row in without.collect()]
    wanted = brute_force(rows, lambda a, b, c: abs(a - b) <= 1 and abs(b - c) <= 1, lambda *_: True, 0.5)
    assert sorted(found) == sorted(wanted)
    assert wanted


def test_connected_tables_come_first_and_equalities_are_used(engine: Any) -> None:
    said = check(
        engine, "abc", "a.part = c.part AND abs(c.x - b.x) <= 1 AND a.x < 4",
        lambda a, b, c: abs(c - b) <= 1 and a < 4, lambda a, b, c: a == c, 0.4,
    )  # fmt: skip
    assert said.index("join  c       a.part = c.part") < said.index("join  b ")
    assert "table a       a.x < 4" in said


def test_a_table_that_nothing_connects_meets_all(engine: Any) -> None:
    said = check(
        engine, "abc", "abs(a.x - b.x) <= 1 AND c.x < 3",
        lambda a, b, c: abs(a - b) <= 1 and c < 3, lambda *_: True, 0.3,
    )  # fmt: skip
    assert "join  c       with every row so far" in said


def test_four_tables_in_a_star(engine: Any) -> None:
    check(
        engine, "abcd", "abs(a.x - b.x) <= 1 AND a.x <= c.x AND abs(a.x - d.x) <= 2 AND b.part <> d.part",
        lambda a, b, c, d: abs(a - b) <= 1 and a <= c and abs(a - d) <= 2, lambda a, b, c, d: b != d, 0.3,
    )  # fmt: skip


def gaussians(engine: Any, seed: int, count: int = 25) -> Any:
    chance = np.random.default_rng(seed)
    rows = [(k, *chance.uniform(-3, 3, 2).tolist(), *chance.uniform(0.1, 1, 2).tolist()) for k in range(count)]
    columns = "id int, m double, n double, s double, t double"
    return rows, engine.createDataFrame(rows, columns).select(
        "id", hp.gaussian("m", "s").alias("u"), hp.gaussian("n", "t").alias("v")
    )


def test_sums_of_gaussians_find_their_partners_by_a_join(engine: Any) -> None:
    (one, a), (two, b) = gaussians(engine, 1), gaussians(engine, 2)
    plan = planned({"a": a, "b": b}, [parse("abs((a.u - 2 * a.v) - (b.u + b.v)) < 0.7")], 0.3)
    wanted = {}
    for i, m, n, s, t in one:
        for j, o, p, r, q in two:
            law = stats.norm(m - 2 * n - o - p, np.sqrt(s * s + 4 * t * t + r * r + q * q))
            wanted[i, j] = law.cdf(0.7) - law.cdf(-0.7)
    wanted = {pair: p for pair, p in wanted.items() if p >= 0.3}
    found = answer(plan, "ab")
    assert found.keys() == wanted.keys()
    assert all(abs(found[pair] - wanted[pair]) < 1e-9 for pair in wanted)


def test_a_circle_is_inside_a_band(engine: Any) -> None:
    (one, a), (two, b) = gaussians(engine, 3), gaussians(engine, 4)
    plan = planned({"a": a, "b": b}, [parse("power(a.u - b.u, 2) + power(a.v - b.v, 2) < 1")], 0.2)
    chance = np.random.default_rng(0)
    z = chance.standard_normal((2, 100_000))
    found = answer(plan, "ab")
    for (i, m, n, s, t), (j, o, p, r, q) in itertools.product(one, two):
        inside = (m - o + np.hypot(s, r) * z[0]) ** 2 + (n - p + np.hypot(t, q) * z[1]) ** 2 < 1
        if (i, j) in found:
            assert abs(found[i, j] - inside.mean()) < 0.01
        else:
            assert inside.mean() < 0.21


def test_windows_of_certain_and_of_uncertain_times(engine: Any) -> None:
    a = engine.createDataFrame([(1, 0.0), (2, 5.0)], "id int, t double")
    b = engine.createDataFrame([(1, 1.0), (2, 7.0)], "id int, t double")
    c = engine.createDataFrame([(1, 1.0, 3.0), (2, 4.0, 9.0)], "id int, lo double, hi double").select(
        "id", hp.uniform("lo", "hi").alias("t")
    )
    times = {"a": "t", "b": "t", "c": "t"}
    plan = planned({"a": a, "b": b, "c": c}, [], 0.1, windows={("a", "b"): 2, ("b", "c"): 1}, times=times)
    assert answer(plan, "abc") == {(1, 1, 1): pytest.approx(0.5), (2, 2, 2): pytest.approx(0.4)}


def test_bad_rows_are_reported_and_dropped(engine: Any) -> None:
    a = engine.createDataFrame([(1, 0.0, 1.0), (2, 0.0, -1.0)], "id int, m double, s double").select(
        "id", hp.gaussian("m", "s").alias("u"), hp.gaussian("m", "s").alias("v")
    )
    condition = parse("abs((a.u + a.v) - (b.u + b.v)) < 3")
    with pytest.raises(engine.failure, match="is not a distribution"):
        planned({"a": a, "b": a}, [condition], 0.1).run().collect()
    kept = planned({"a": a, "b": a}, [condition], 0.1, invalid="drop").run().collect()
    assert [(row["a_id"], row["b_id"]) for row in kept] == [(1, 1)]


def test_without_a_threshold_a_cross_product_is_refused(engine: Any) -> None:
    _, a = gaussians(engine, 5, 3)
    with pytest.raises(HaplyError, match="Without a threshold every pair is possible"):
        planned({"a": a, "b": a, "c": a}, [parse("a.u < b.u"), parse("b.u < c.u")])
