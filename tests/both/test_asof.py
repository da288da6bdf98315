"""``hp.asof`` against the oracle, and against pandas and DuckDB where times are certain."""

from __future__ import annotations

from datetime import datetime, timedelta

import duckdb
import numpy as np
import pandas as pd
import pytest

import both_kit as hp
import oracle_answers as referee
from answers_kit import bag
from haply.errors import HaplyError
from join_kit import frame, values

UNIFORM = "name string, t struct<lo:double,hi:double>"


def golden(engine):
    left = engine.createDataFrame([("t", (4.0, 6.0))], UNIFORM)
    right = engine.createDataFrame([("a", (0.0, 3.0)), ("b", (2.0, 5.0)), ("c", (5.0, 7.0))], UNIFORM)
    return left, right


def test_golden_g1_and_g2(engine):
    left, right = golden(engine)
    found = hp.asof(left, right, "t", keep="all", columns=["name_right"]).collect()
    assert {row["name_right"]: row["probability"] for row in found} == pytest.approx(
        {"a": 19 / 144, "b": 107 / 144, "c": 1 / 8}, rel=1e-14
    )
    assert [row["p_any"] for row in found] == pytest.approx([1.0] * 3)
    near = hp.asof(left, right, "t", lookback=2.0, keep="all", columns=["name_right"]).collect()
    assert {row["name_right"]: row["probability"] for row in near} == pytest.approx(
        {"a": 1 / 27, "b": 14 / 27, "c": 1 / 8}, rel=1e-14
    )
    assert near[0]["p_any"] == pytest.approx(1 - 23 / 72, rel=1e-14)
    (best,) = hp.asof(left, right, "t").collect()
    assert best["name_right"] == "b"


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("kinds", [("normal", "normal"), ("hist", "uniform"), ("discrete", "discrete")])
def test_every_pair_against_the_oracle(engine, kinds):
    if engine.name == "spark" and kinds[0] != "hist":
        pytest.skip("one pair of kinds is enough to see that engines agree")
    rows, others = (3, 4) if kinds[0] == "normal" else (5, 6)  # the oracle integrates normal times for seconds
    asked, events = values(kinds[0], rows, 3, (-2, 2)), values(kinds[1], others, 4, (-2, 2))
    asked[1] = events[2] = None
    for lookback in (None, 1.5):
        found = hp.asof(frame(engine, asked), frame(engine, events), "x", keep="all", lookback=lookback).collect()
        got = {(row["id_left"], row["id_right"]): row["probability"] for row in found if row["id_right"] is not None}
        some = {row["id_left"]: row["p_any"] for row in found}
        assert set(some) == set(range(rows))
        known = [j for j, event in enumerate(events) if event is not None]
        for i, t in enumerate(asked):
            if t is None:
                assert some[i] == 0.0
                continue
            wanted = referee.asof_float(t, [events[j] for j in known], lookback, known)
            assert some[i] == pytest.approx(1 - float(wanted.none), abs=3e-9)
            for j, p in zip(known, wanted.p, strict=True):
                assert got.get((i, j), 0.0) == pytest.approx(float(p), abs=3e-9)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_certain_times_are_an_ordinary_asof_join(engine, direction):
    rng = np.random.default_rng(1)
    left = [(k, str(rng.choice(["p", "q"])), int(t)) for k, t in enumerate(rng.integers(0, 60, 40))]
    right = [(k, str(rng.choice(["p", "q"])), int(t)) for k, t in enumerate(rng.permutation(60)[:30])]
    types = "id long, key string, t long"
    tables = [engine.createDataFrame(rows, types) for rows in (left, right)]
    for lookback in (None, 7):
        found = hp.asof(*tables, "t", by="key", direction=direction, lookback=lookback).collect()
        frames = [pd.DataFrame(rows, columns=["id", "key", "t"]).sort_values("t") for rows in (left, right)]
        wanted = pd.merge_asof(
            frames[0], frames[1].rename(columns={"id": "other"}), on="t", by="key", direction=direction,
            tolerance=lookback,
        )  # fmt: skip
        pairs = {int(row.id): None if np.isnan(row.other) else int(row.other) for row in wanted.itertuples()}
        assert {row["id_left"]: row["id_right"] for row in found} == pairs
        assert {row["probability"] for row in found} <= {1.0, None}
    if direction == "backward":
        a, b = (pd.DataFrame(rows, columns=["id", "key", "t"]) for rows in (left, right))
        rows = duckdb.sql("SELECT a.id, b.id FROM a ASOF LEFT JOIN b ON a.key = b.key AND a.t >= b.t").fetchall()
        found = hp.asof(*tables, "t", by="key").collect()
        assert {row["id_left"]: row["id_right"] for row in found} == dict(rows)
        assert len(a) + len(b) == 70


@pytest.mark.parametrize(
    "kinds",
    [pytest.param(("uniform", "normal"), marks=pytest.mark.long), ("hist", "uniform"), ("discrete", "discrete")],
)  # the oracle integrates normal events for a minute; tests/probability/test_nearest.py always does for a few
def test_the_nearest_event_against_the_oracle(engine, kinds):
    if engine.name == "spark" and kinds[0] != "discrete":
        pytest.skip("one pair of kinds is enough to see that engines agree")
    asked, events = values(kinds[0], 4, 3, (-2, 2)), values(kinds[1], 5, 4, (-2, 2))
    asked[1] = events[2] = None
    known = [j for j, event in enumerate(events) if event is not None]
    for lookback in (None, 1.5):
        found = hp.asof(
            frame(engine, asked), frame(engine, events), "x", direction="nearest", keep="all", lookback=lookback
        ).collect()
        got = {(row["id_left"], row["id_right"]): row["probability"] for row in found if row["id_right"] is not None}
        some = {row["id_left"]: row["p_any"] for row in found}
        for i, t in enumerate(asked):
            if t is None:
                assert some[i] == 0.0
                continue
            others = [events[j] for j in known]
            if kinds[0] == "discrete":
                wanted = referee.nearest_by_worlds(t, others, lookback, known)
            else:
                wanted = referee.nearest_float(t, others, lookback)
            assert some[i] == pytest.approx(1 - float(wanted.none), abs=3e-9)
            for j, p in zip(known, wanted.p, strict=True):
                assert got.get((i, j), 0.0) == pytest.approx(float(p), abs=3e-9)


def test_timestamps_and_durations(engine):
    start = datetime(2026, 1, 1)
    types = "id long, t timestamp_ntz"
    left = engine.createDataFrame([(0, start + timedelta(seconds=10)), (1, start + timedelta(hours=1))], types)
    right = engine.createDataFrame([(0, start), (1, start + timedelta(seconds=9))], types)
    found = hp.asof(left, right, "t").collect()
    assert {row["id_left"]: row["id_right"] for row in found} == {0: 1, 1: 1}
    near = hp.asof(left, right, "t", lookback="5 seconds").collect()
    assert {row["id_left"]: row["id_right"] for row in near} == {0: 1, 1: None}


def test_how_threshold_and_keep(engine):
    left, right = golden(engine)
    early = left.union(engine.createDataFrame([("early", (-9.0, -8.0))], UNIFORM))
    whole = hp.asof(early, right, "t", columns=["name_left", "name_right"]).collect()
    assert {(row["name_left"], row["name_right"]) for row in whole} == {("t", "b"), ("early", None)}
    assert next(row["p_any"] for row in whole if row["name_left"] == "early") == 0.0
    assert hp.asof(early, right, "t", how="inner").count() == 1
    unlikely = hp.asof(early, right, "t", threshold=0.9, columns=["name_left", "name_right"]).collect()
    assert {row["name_left"]: (row["name_right"], row["p_any"]) for row in unlikely} == {
        "t": (None, pytest.approx(1.0)),
        "early": (None, 0.0),
    }
    assert {row["name"] for row in hp.asof(early, right, "t", how="anti").collect()} == {"early"}
    two = hp.asof(left, right, "t", keep="best_left", k=2, columns=["name_right"])
    assert {row["name_right"] for row in two.collect()} == {"a", "b"}
    assert bag(hp.asof(left, right, ("t", "t"))) == bag(hp.asof(left, right, "t"))


def test_words_of_errors(engine):
    left, right = golden(engine)
    for time, options, words in (
        ("s", {}, "no column in the left table called 's'"),
        ("name", {}, "Column 'name' of the left table is not a time"),
        ("t", {"direction": "near"}, "no choice of direction 'near'"),
        ("t", {"by": "key"}, "no column in the left table called 'key'"),
        ("t", {"lookback": -1}, "The lookback is no length of time"),
    ):
        with pytest.raises(HaplyError) as caught:
            hp.asof(left, right, time, **options)
        assert words in str(caught.value)
