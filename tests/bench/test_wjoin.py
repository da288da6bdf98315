"""The bench of the window join: its contenders agree, and a small run reports what it should."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("duckdb")
pytest.importorskip("polars")

from benchmarks import wjoin
from benchmarks import wjoin_figures as figures
from benchmarks.measure import check_same

SCALE = replace(
    figures.QUICK, minute=0.02, ten_seconds=0.01, timed=0.01, hash_streams=(2, 3), scan_streams=(2,), trials=2,
    shares=(0.1, 1.2), response_events=200, items=500, sales=600, faster=(1, 4), policy_streams=(3,), policy_events=600,
    stalls=(0, 10), stall_windows=25,
)  # fmt: skip
SMALL = replace(wjoin.QUICK, streams=(3, 4), events=600, keys=50, repetitions=1, scale=SCALE)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_contenders_agree_with_all_combinations_tried(count):
    settings = replace(SMALL, events=80 // count, keys=5)
    streams = wjoin.make_streams(settings, count)
    window = 2.0
    duckdb, polars = wjoin.DuckWindows(streams, window), wjoin.PolarsWindows(streams, window)
    answers = {
        "haply": wjoin.haply_windows(streams, window), "duckdb": duckdb.keyed(), "duckdb buckets": duckdb.buckets(),
        "polars buckets": polars.buckets(),
    }  # fmt: skip
    check_same("small", {name: wjoin.packed(wjoin.columns_of(found)) for name, found in answers.items()})
    times, keys = (np.meshgrid(*(getattr(s, name) for s in streams), indexing="ij") for name in ("time", "key"))
    wanted = (np.max(times, axis=0) - np.min(times, axis=0) <= window) & (np.ptp(keys, axis=0) == 0)
    found = np.stack(wjoin.columns_of(answers["haply"]))
    assert sorted(map(tuple, found.T)) == [tuple(place) for place in np.argwhere(wanted)]
    assert wanted.sum() > 20


def test_packed_tells_combinations_apart():
    ids = [np.array([0, 1, 0]), np.array([1, 0, 0]), np.array([0, 0, 1]), np.array([5, 5, 5])]
    answer = wjoin.packed(ids)
    assert len(set(zip(answer.left.tolist(), answer.right.tolist(), strict=True))) == 3
    assert answer.right.tolist() == [5, 5, 5]


def test_a_stall_holds_back_one_stream_and_loses_nothing():
    arrivals = figures.poisson([5.0, 5.0], 20.0, 3, seed=1)
    held = figures.stalled(arrivals, 1, 5.0, 10.0)
    assert sorted(zip(held.stream, held.id, strict=True)) == sorted(zip(arrivals.stream, arrivals.id, strict=True))
    other = held.stream == 0
    before = held.time[: np.flatnonzero(other & (held.time < 15.0))[-1]]
    assert not ((before >= 5.0) & (held.stream[: len(before)] == 1)).any()
    for stream in (0, 1):
        assert (np.diff(held.time[held.stream == stream]) >= 0).all()


def test_the_highest_rate_is_between_what_is_kept_up_with_and_what_is_not(monkeypatch):
    load = figures.Load("BEW", (0.5, 0.5), 1.0, replace(SCALE, trials=12))
    monkeypatch.setattr(figures.Load, "taken", lambda self, total: (total / 50_000.0) ** 2)
    assert 0.95 * 50_000.0 <= load.highest_rate() <= 50_000.0


def test_sales_come_in_baskets():
    arrivals = figures.sales(SCALE)
    assert len(arrivals) == 3 * SCALE.sales
    assert (np.diff(arrivals.time) >= 0).all()
    assert len(np.unique(arrivals.time)) < 0.3 * len(arrivals)


@pytest.mark.long
def test_report_has_its_shape():
    said: list[str] = []
    report = wjoin.measure(SMALL, said.append)
    engines = ["haply", "haply one by one", "duckdb", "duckdb buckets", "polars buckets"]
    assert [(result.job, result.engine) for result in report.results] == [
        (job, engine) for job in ("3 streams", "4 streams") for engine in engines
    ]
    drawn = {figure.name: figure for figure in report.figures}
    assert list(drawn) == ["B1", "B2", "B3", "B4", "B5", "B6", "B7"]
    assert all(figure.claims for figure in drawn.values())
    # what does not depend on the clock
    assert drawn["B6"].claims[0].holds
    assert all(claim.holds for claim in drawn["B7"].claims)
    for row in drawn["B6"].rows:
        assert row["GCA"] >= row["LCA"] >= row["exact"] == row["combinations"] > 0
    assert drawn["B4"].rows[-1]["combinations"] > 50
    assert json.loads(json.dumps(report.to_dict()))["bench"] == "wjoin"
