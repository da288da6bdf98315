"""Joins of tables in a window of certain times: the same pairs as without it, less those whose times are far apart."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp
from join_kit import REGIONS, answer, collect, frame, values

BAND, GREATER, APART = "abs(left.x - right.x) <= 0.8", "left.x > right.x", "abs(left.x - right.x) >= 3"
WINDOW = 4.0


def timed(engine, these, seed, span=40):
    """Values with times, the first of which is unknown; the time is there as a number and as a timestamp."""
    times = [None, *np.random.default_rng(seed).integers(0, span, len(these) - 1).astype(float).tolist()]
    stamps = [None if t is None else round(1e6 * t) for t in times]
    table = frame(engine, these).arrow.append_column("t", pa.array(times, pa.float64()))
    table = table.append_column("at", pa.array(stamps, pa.timestamp("us", "UTC")))
    return times, hp.Table(engine, table).withColumn("key", "id % 2")


def near(lefts, rights, window=WINDOW):
    return {
        (i, j)
        for i, one in enumerate(lefts)
        for j, other in enumerate(rights)
        if one is not None and other is not None and abs(one - other) <= window
    }


@pytest.mark.long(keep=4)
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
def test_uncertain_values(engine, on, options):
    lefts, rights = values("normal", 40, 1), values("hist", 30, 2)
    (mine, left), (theirs, right) = timed(engine, lefts, 3), timed(engine, rights, 4)
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


def test_explain(engine):
    (_, left), (_, right) = timed(engine, values("normal", 9, 5), 6), timed(engine, values("normal", 9, 7), 8)
    told = hp.plan_join(left, right, BAND, 0.3, time="at", window="4 seconds").explain(verbose=True)
    assert "  window        |time - time| <= 4e+06 microseconds; in each cell rows meet those of their own" in told
    told = hp.plan_join(left, right, GREATER, 0.3, time="t", window=4).explain(verbose=True)
    assert "  window        |time - time| <= 4; " in told
    told = hp.plan_join(left, right, None, time="t", window=4).explain(verbose=True)
    assert "left.t (certain) - right.t (certain): |difference| <= 4" in told


def test_far_apart_or_nobody(engine):
    (_, left), (_, right) = timed(engine, values("normal", 9, 5), 6), timed(engine, values("normal", 9, 7), 8)
    later = right.withColumn("t", "t + 1000")
    for on in (BAND, GREATER, "left.id < right.id"):
        for other in (later, right.where("id < 0")):
            assert collect(hp.join(left, other, on, 0.01, time="t", window=WINDOW)) == {}


@pytest.mark.parametrize("counted", [False, True])
def test_places_at_other_times(engine, counted):
    table = engine.createDataFrame([(k, float(k), k / 9) for k in range(20)], "id long, t double, x double")
    clouds, normals = (
        hp.samples([["x", "x"]], dim=2),
        hp.gaussian_nd(["x", "x"], cov=[0.1, 0.0, 0.0, 0.1]),
    )
    left = table.select("id", "t", clouds.alias("cloud"), normals.alias("normal"))
    right = left.withColumn("t", "t + 1000")
    for name in ("cloud", "normal"):
        for options in ({}, {"broadcast": "left"}):
            funnel = hp.Funnel() if counted else None
            on = f"distance(left.{name}, right.{name}) <= 1"
            assert collect(hp.join(left, right, on, 0.5, time="t", window=3, funnel=funnel, **options)) == {}
            if funnel is not None:
                assert [funnel.to_dict()[count] for count in ("rows_left", "rows_right", "kept")] == [20, 20, 0]


def test_points_and_clouds(engine):
    random = np.random.default_rng(9)
    tables, times, places = [], [], []
    for count in (40, 50):
        place, when = random.uniform(0.0, 5.0, (count, 2)), random.integers(0, 40, count)
        rows = [(k, float(when[k]), float(place[k, 0]), float(place[k, 1])) for k in range(count)]
        table = engine.createDataFrame(rows, "id long, t double, x double, y double")
        clouds = hp.samples([["x", "y"], ["x", "y"]], dim=2)
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


def test_certain_conditions_alone(engine):
    """Spark's own join, of rows that are near in time."""
    rows = values("point", 30, 10)
    (times, left), (others, right) = timed(engine, rows, 11), timed(engine, rows, 12)
    for on, holds in (
        ("left.key = right.key", lambda i, j: (i - j) % 2 == 0),
        ("left.id < right.id", lambda i, j: i < j),
    ):
        for window, how in ((WINDOW, {"time": "t", "window": WINDOW}), (0.0, {"time": "at", "window": 0})):
            found = collect(hp.join(left, right, on, **how))
            assert found == dict.fromkeys((pair for pair in near(times, others, window) if holds(*pair)), 1.0)
            assert found


@pytest.mark.parametrize("on", [None, BAND, "left.x >= right.x", GREATER])
def test_a_row_and_itself(engine, on):
    """One variable: what is not greater than itself has no chance, and what is near itself is so for sure; at times
    that are near each other."""
    these = values("normal", 20, 13)
    times, table = timed(engine, these, 14)
    table = table.withColumn("later", "t + 2 * (id % 4)")
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
def test_rows_of_one_variable_at_other_times(engine, on):
    """Equal keys tell that values are one, not that rows are of one time."""
    rows = [(1, "a", 0.0, 1.0), (2, "a", 100.0, 1.0), (3, "b", 1.0, 3.0), (4, "c", math.nan, 3.0)]
    table = engine.createDataFrame(rows, "id long, s string, t double, m double")
    table = table.select("id", "s", "t", hp.gaussian("m", 0.5).alias("x"))
    table = table.where("id < 4" if on is None else "id > 0")
    found = collect(hp.join(table, table, on, 0.3, time="t", window=2, self_key="s"))
    wanted = {(1, 1), (2, 2), (3, 3)} | {None: {(1, 3), (3, 1)}, "left.id <= right.id": {(1, 3)}, BAND: set()}.get(
        on, {(3, 1)}
    )
    assert set(found) == wanted


def test_one_row_beside_another_column_of_itself(engine):
    rows = [(1, 0.0, 1.0, 1.5), (2, 1.0, 2.0, 0.5)]
    table = engine.createDataFrame(rows, "id long, t double, m double, n double")
    table = table.select("id", "t", hp.gaussian("m", 0.5).alias("x"), hp.gaussian("n", 0.5).alias("y"))
    found = collect(hp.join(table, table, "left.x >= right.y", 0.3, self_key="id", time="t", window=2))
    assert {pair: round(p, 4) for pair, p in found.items()} == {(1, 2): 0.7602, (2, 1): 0.7602, (2, 2): 0.9831}
