"""The bench of the timing join: its contenders agree, and a small run reports what it should."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import ptjoin
from benchmarks.measure import check_same
from haply.probability import equal_within

SMALL = replace(
    ptjoin.QUICK, events=400, many_templates=(1, 3), windows=(0.0, 300.0), delays=(0.0,), ranges_templates=12,
    ranges_drawn=2, operator_events=80, single_pairs=300, one_row_stored=50, one_row_pushes=30, repetitions=1,
)  # fmt: skip


def test_contenders_agree_with_the_exact_formula():
    small = replace(SMALL, events=200)
    left, right = ptjoin.make_sides(small)
    ours = ptjoin.haply_times(left, right, (left.column(), right.column()), small.window, small.threshold)
    duck = ptjoin.DuckTimes(left, right, small)
    check_same("small", {"haply": ours, "duckdb": duck.run()})
    i, j = (grid.ravel() for grid in np.meshgrid(left.id, right.id, indexing="ij"))
    p = equal_within(left.model().take(i), right.model().take(j), small.window)
    assert len(ours.left) == (p >= small.threshold).sum() > 1000
    possible = duck.buckets()
    assert len(possible.left) >= (p > 0.0).sum() > len(ours.left)


@pytest.mark.long
def test_report_has_its_shape():
    said: list[str] = []
    report = ptjoin.measure(SMALL, said.append)
    assert [result.engine for result in report.results] == [
        "haply",
        "duckdb range",
        "duckdb buckets",
        "duckdb buckets+numpy",
        "haply",  # pairs only
        "duckdb range",
        "duckdb buckets",
    ]
    figures = {figure.name: figure for figure in report.figures}
    assert list(figures) == ["templates", "windows", "P1", "P2", "P3", "P4", "P5", "one row"]
    assert [row["join"].split(",")[0] for row in figures["one row"].rows] == ["SimilarityJoin", *["TimingJoin"] * 2]
    assert all(row["microseconds"] <= row["median"] for row in figures["one row"].rows)
    assert all(claim.holds for name in ("P1", "P4", "P5") for claim in figures[name].claims)
    assert all(0.0 < row["least"] <= row["mean"] <= row["most"] < 1.0 for row in figures["P1"].rows)
    for row in figures["P3"].rows:
        assert row["kept"] <= row["looked at"] <= row["pairs in a loop"]
        assert 0 < row["tested"] < row["looked at"]
    assert sum(row["pairs of events"] for row in figures["P4"].rows) > 100
    assert any(row["several"] for row in figures["P4"].rows)
    assert figures["templates"].rows[0]["events per second"] == pytest.approx(
        800 / figures["templates"].rows[0]["time"], rel=0.01
    )
    assert json.loads(json.dumps(report.to_dict()))["bench"] == "ptjoin"
