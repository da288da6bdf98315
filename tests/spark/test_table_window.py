"""Joins of tables in a window of certain times: the same pairs as without it, less those whose times are far apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyspark.sql import functions as F

import haply as hp
from haply.engines.spark.times import time_slot
from haply.planning.times import TimeWindow
from join_kit import REGIONS, answer, collect, frame, settings, values

BAND, GREATER, APART = "abs(left.x - right.x) <= 0.8", "left.x > right.x", "abs(left.x - right.x) >= 3"
WINDOW = 4.0


def test_slots_of_time_in_sql(spark):
    """Times within the window are in one slot or in neighbours, at any scale and however far from 0."""
    rng, asked, names = np.random.default_rng(20), [], []
    for window in (0.0, 1e-9, 0.3, 7.0, 2e4, 3e9):
        for origin in (0.0, -2.5, 1.7e9, 1.7e15, -1e25):
            times = origin + window * rng.choice([0.0, 0.1, 0.5, 1.0, 2.0], 60) * rng.integers(-3, 4, 60)
            asked += [(len(names), float(t)) for t in times]
            names.append(TimeWindow("t", "t", window, 0.0, stamps=False))
    cases = " ".join(f"WHEN {k} THEN {time_slot(each, 't')}" for k, each in enumerate(names))
    table = spark.createDataFrame(asked, "k int, t double")
    found = table.select("k", "t", F.expr(f"CASE k {cases} END").alias("slot")).toPandas()
    for k, rows in found.groupby("k"):
        times, slots = rows["t"].to_numpy(), rows["slot"].to_numpy()
        near = np.abs(times[:, None] - times) <= names[k].length
        assert (np.abs(slots[:, None] - slots) <= 1)[near].all(), names[k]
        assert near.sum() > len(times)
    for k in (10, 15):  # windows of 0.3 and 7 around 0: and far ones are not
        assert found[found["k"] == k]["slot"].nunique() > 3


def timed(spark, these, seed, span=40):
    """Values with times, the first of which is unknown; the time is there as a number and as a timestamp."""
    times = [None, *np.random.default_rng(seed).integers(0, span, len(these) - 1).astype(float).tolist()]
    table = spark.createDataFrame(list(enumerate(times)), "id long, t double")
    table = frame(spark, these).join(table, "id")
    return times, table.select("*", F.timestamp_seconds("t").alias("at"), (F.col("id") % 2).alias("key"))


def near(lefts, rights, window=WINDOW):
    return {
        (i, j)
        for i, one in enumerate(lefts)
        for j, other in enumerate(rights)
        if one is not None and other is not None and abs(one - other) <= window
    }


@pytest.mark.parametrize(
    ("on", "options"),
    [
        (BAND, {}),
        (BAND, {"broadcast": "left", "time": "at", "window": "4 seconds"}),
        (BAND, {"strategy": "pti"}),
        (GREATER, {"keys": True}),
        (GREATER, {"probability": "none"}),
        (APART, {"time": "at", "window": "4 seconds"}),
        (APART, {"invalid": "drop", "keys": True, "strategy": "moments"}),
    ],
    ids=str,
)
def test_uncertain_values(spark, on, options):
    lefts, rights = values("normal", 40, 1), values("hist", 30, 2)
    (mine, left), (theirs, right) = timed(spark, lefts, 3), timed(spark, rights, 4)
    probabilities, wanted, hairline = answer(lefts, rights, on, 0.3)
    wanted &= near(mine, theirs)
    options = {"time": "t", "window": WINDOW, **options}
    keys = ""
    if options.pop("keys", False):
        wanted, keys = {(i, j) for i, j in wanted if (i - j) % 2 == 0}, " AND left.key = right.key"
    found = collect(hp.join(left, right, on + keys, 0.3, **options))
    assert len(wanted) > 5
    assert set(found) - hairline == wanted - hairline
    if "probability" not in options:
        assert all(abs(p - float(probabilities[pair])) < 1e-9 for pair, p in found.items())


@pytest.mark.parametrize("shape", [{"cells": 7}, {"rowsPerCell": 6}], ids=str)
@pytest.mark.parametrize(("span", "window", "told"), [(40, 4.0, "times"), (4, 3.0, "intervals")])
def test_cells_by_times_and_by_values(spark, span, window, told, shape):
    """Each pair once, however many cells and slices there are, and whichever tells rows apart."""
    lefts, rights = values("normal", 60, 15), values("uniform", 50, 16)
    (mine, left), (theirs, right) = timed(spark, lefts, 17, span), timed(spark, rights, 18, span)
    wanted, hairline = answer(lefts, rights, BAND, 0.2)[1:]
    wanted &= near(mine, theirs, window)
    assert len(wanted) > 10
    with settings(spark, **shape):
        plan = hp.plan_join(left, right, BAND, 0.2, time="t", window=window)
        assert f"cells by quantiles of the {told}" in plan.explain(verbose=True)
        assert set(collect(plan.run())) - hairline == wanted - hairline
        funnel = hp.Funnel()
        hp.join(left, right, BAND, 0.2, time="t", window=window, funnel=funnel).collect()
    counts = funnel.to_dict()
    together = sum(one is not None and other is not None for one in mine for other in theirs)
    assert counts["kept"] <= counts["evaluated"] <= counts["candidates"] <= together


def test_explain(spark):
    (_, left), (_, right) = timed(spark, values("normal", 9, 5), 6), timed(spark, values("normal", 9, 7), 8)
    told = hp.plan_join(left, right, BAND, 0.3, time="at", window="4 seconds").explain(verbose=True)
    assert "  window        |time - time| <= 4e+06 microseconds; in each cell rows meet those of their own" in told
    told = hp.plan_join(left, right, GREATER, 0.3, time="t", window=4).explain(verbose=True)
    assert "  window        |time - time| <= 4; " in told
    told = hp.plan_join(left, right, None, time="t", window=4).explain(verbose=True)
    assert "left.t (certain) - right.t (certain): |difference| <= 4" in told


def test_far_apart_or_nobody(spark):
    (_, left), (_, right) = timed(spark, values("normal", 9, 5), 6), timed(spark, values("normal", 9, 7), 8)
    later = right.withColumn("t", F.col("t") + 1000)
    for on in (BAND, GREATER, "left.id < right.id"):
        for other in (later, right.where("id < 0")):
            assert collect(hp.join(left, other, on, 0.01, time="t", window=WINDOW)) == {}


@pytest.mark.parametrize("counted", [False, True])
def test_places_at_other_times(spark, counted):
    table = spark.createDataFrame([(k, float(k), k / 9) for k in range(20)], "id long, t double, x double")
    clouds, normals = (
        hp.samples(F.array(F.array("x", "x")), dim=2),
        hp.gaussian_nd(["x", "x"], cov=[0.1, 0.0, 0.0, 0.1]),
    )
    left = table.select("id", "t", clouds.alias("cloud"), normals.alias("normal"))
    right = left.withColumn("t", F.col("t") + 1000)
    for name in ("cloud", "normal"):
        for options in ({}, {"broadcast": "left"}):
            funnel = hp.Funnel() if counted else None
            on = f"distance(left.{name}, right.{name}) <= 1"
            assert collect(hp.join(left, right, on, 0.5, time="t", window=3, funnel=funnel, **options)) == {}
            if funnel is not None:
                assert [funnel.to_dict()[count] for count in ("rows_left", "rows_right", "kept")] == [20, 20, 0]


def test_points_and_clouds(spark):
    random = np.random.default_rng(9)
    tables, times, places = [], [], []
    for count in (40, 50):
        place, when = random.uniform(0.0, 5.0, (count, 2)), random.integers(0, 40, count)
        rows = [(k, float(when[k]), float(place[k, 0]), float(place[k, 1])) for k in range(count)]
        table = spark.createDataFrame(rows, "id long, t double, x double, y double")
        clouds = hp.samples(F.array(F.array("x", "y"), F.array("x", "y")), dim=2)
        normals = hp.gaussian_nd(["x", "y"], cov=[0.01, 0.0, 0.0, 0.01])
        tables.append(table.select("id", "t", clouds.alias("cloud"), normals.alias("normal")))
        times.append(when.tolist())
        places.append(place)
    apart = np.linalg.norm(places[0][:, None] - places[1], axis=2)
    wanted = near(*times) & set(map(tuple, np.argwhere(apart <= 1.0).tolist()))
    found = collect(hp.join(*tables, "distance(left.cloud, right.cloud) <= 1", 0.5, time="t", window=WINDOW))
    assert set(found) == wanted
    assert len(wanted) > 20
    # two errors of a tenth each: far from the edge, all is as without them
    clear = {pair for pair in near(*times) if abs(apart[pair] - 1.0) > 0.05}
    for options in ({}, {"broadcast": "right"}):
        join = hp.join(*tables, "distance(left.normal, right.normal) <= 1", 0.5, time="t", window=WINDOW, **options)
        assert set(collect(join)) & clear == wanted & clear


def test_certain_conditions_alone(spark):
    """Spark's own join, of rows that are near in time."""
    rows = values("point", 30, 10)
    (times, left), (others, right) = timed(spark, rows, 11), timed(spark, rows, 12)
    for on, holds in (
        ("left.key = right.key", lambda i, j: (i - j) % 2 == 0),
        ("left.id < right.id", lambda i, j: i < j),
    ):
        for window, how in ((WINDOW, {"time": "t", "window": WINDOW}), (0.0, {"time": "at", "window": 0})):
            found = collect(hp.join(left, right, on, **how))
            assert found == dict.fromkeys((pair for pair in near(times, others, window) if holds(*pair)), 1.0)
            assert found


@pytest.mark.parametrize("on", [None, BAND, "left.x >= right.x", GREATER])
def test_a_row_and_itself(spark, on):
    """One variable: what is not greater than itself has no chance, and what is near itself is so for sure; at times
    that are near each other."""
    these = values("normal", 20, 13)
    times, table = timed(spark, these, 14)
    table = table.withColumn("later", F.col("t") + 2 * (F.col("id") % 4))
    found = collect(hp.join(table, table, on, 0.4, time=("t", "later"), window=WINDOW, self_key="id"))
    itself = {k for k, when in enumerate(times) if when is not None and 2 * (k % 4) <= WINDOW}
    assert len(itself) > 10
    assert {(i, j): p for (i, j), p in found.items() if i == j} == {
        (k, k): 1.0 for k in itself if on is None or REGIONS[on].contains(0.0)
    }
    known = {} if on is None else answer(these, these, on, 0.4)[0]
    assert any(i != j for i, j in found)
    for (i, j), p in found.items():
        if i != j:
            assert abs(times[i] - times[j] - 2 * (j % 4)) <= WINDOW
            assert math.isclose(p, float(known.get((i, j), 1.0)), abs_tol=1e-9)


@pytest.mark.parametrize("on", [None, BAND, "left.x >= right.x", "left.id <= right.id"])
def test_rows_of_one_variable_at_other_times(spark, on):
    """Equal keys tell that values are one, not that rows are of one time."""
    rows = [(1, "a", 0.0, 1.0), (2, "a", 100.0, 1.0), (3, "b", 1.0, 3.0), (4, "c", math.nan, 3.0)]
    table = spark.createDataFrame(rows, "id long, s string, t double, m double")
    table = table.select("id", "s", "t", hp.gaussian("m", 0.5).alias("x"))
    table = table.where("NOT isnan(t)" if on is None else "true")
    found = collect(hp.join(table, table, on, 0.3, time="t", window=2, self_key="s"))
    wanted = {(1, 1), (2, 2), (3, 3)} | {None: {(1, 3), (3, 1)}, "left.id <= right.id": {(1, 3)}, BAND: set()}.get(
        on, {(3, 1)}
    )
    assert set(found) == wanted


def test_one_row_beside_another_column_of_itself(spark):
    rows = [(1, 0.0, 1.0, 1.5), (2, 1.0, 2.0, 0.5)]
    table = spark.createDataFrame(rows, "id long, t double, m double, n double")
    table = table.select("id", "t", hp.gaussian("m", 0.5).alias("x"), hp.gaussian("n", 0.5).alias("y"))
    found = collect(hp.join(table, table, "left.x >= right.y", 0.3, self_key="id", time="t", window=2))
    assert {pair: round(p, 4) for pair, p in found.items()} == {(1, 2): 0.7602, (2, 1): 0.7602, (2, 2): 0.9831}
