"""The benches of the selections: small runs report what they should, and all plans agree."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import peng_data, peng_joins, peng_planning, peng_select
from haply.probability.multivariate import box_probability, disc_probability


@pytest.fixture(autouse=True)
def costs(tmp_path, monkeypatch):
    monkeypatch.setenv("HAPLY_COSTS", str(tmp_path / "costs.json"))


@pytest.mark.long
def test_select_report_has_its_shape():
    report = peng_select.measure(replace(peng_select.QUICK, rows=1_500, integrated=3), lambda text: None)
    assert [(result.job, result.engine) for result in report.results] == [
        (job, engine) for job in ("filter box", "filter disc", "disc") for engine in ("haply", "scipy")
    ]
    figures = {figure.name: figure for figure in report.figures}
    assert list(figures) == ["Expt 1", "Expt 2 intervals", "Expt 2 discs"]
    kept = [row["kept %"] for row in figures["Expt 1"].rows]
    assert kept == sorted(kept)
    assert kept[0] < 5.0
    assert kept[-1] > 80.0
    assert all(row["computed %"] < 5.0 for row in figures["Expt 1"].rows)
    for row in figures["Expt 2 discs"].rows:
        assert row["exact"] <= row["gaussian"] <= row["any law"] <= row["paper"]
        assert row["exact"] == pytest.approx(np.pi * row["d"] ** 2 / 40_000, abs=0.03)
    assert json.loads(json.dumps(report.to_dict()))["bench"] == "peng-select"


def test_integrals_are_those_of_scipy():
    mean, cov = np.array([1.0, 2.0]), np.array([[1.0, 0.9], [0.9, 2.25]])
    disc = peng_select.integrate(mean, cov, -2.0, 2.0, peng_select._disc_ends(2.0))
    assert disc == pytest.approx(disc_probability(mean, cov, 2.0)[0], abs=1e-7)
    box = peng_select.integrate(mean, cov, 0.0, 1.0, lambda x: (0.0, 3.0))
    assert box == pytest.approx(box_probability(mean, cov, [0.0, 0.0], [1.0, 3.0])[0], abs=1e-7)


def test_planning_report_has_its_shape():
    report = peng_planning.measure(replace(peng_planning.QUICK, rows=600, window=12), None, lambda text: None)
    figures = {figure.name: figure for figure in report.figures}
    assert list(figures) == ["Table 2", "Table 3"]
    assert [len(figure.rows) for figure in report.figures] == [9, 9]
    for cell, theirs in zip(figures["Table 2"].rows, peng_data.TABLE_2, strict=True):
        assert cell["their gain %"] == pytest.approx(100.0 * (1.0 - theirs[4] / theirs[3]), abs=1.0)
        assert cell["static"] > 0.0
    assert len(report.results) == 3 * 18
    assert all(0.5 < target <= 1.0 for target in report.config["targets"].values())
    assert json.loads(json.dumps(report.to_dict()))["bench"] == "peng-planning"


def test_generated_selectivities_are_near_table_5():
    stars = peng_data.generated(20_000, 5)
    for limit, share in peng_data.TABLE_5["d1"].items():
        assert 100.0 * (stars.mean["r"] < limit).mean() == pytest.approx(share, abs=1.5)
    amplitude = np.hypot(stars.mean["q_r"], stars.mean["u_r"])
    for limit, share in peng_data.TABLE_5["d2"].items():
        assert 100.0 * (amplitude > limit).mean() == pytest.approx(share, abs=1.5)


@pytest.mark.long
def test_joins_report_has_its_shape():
    settings = replace(peng_joins.QUICK, window=40, indexed=500, probes=4)
    report = peng_joins.measure(settings, None, lambda text: None)
    engines = ("haply", "moments", "x-bounds")
    assert [result.engine for result in report.results] == [*engines] * 4
    assert len({result.pairs for result in report.results[:3]}) == 1
    figures = {figure.name: figure for figure in report.figures}
    assert list(figures) == [
        "Expt 3 candidates", "Expt 3 time", "Expt 3 large", "Expt 4 candidates", "Expt 4 time", "far apart",
    ]  # fmt: skip
    for row in figures["Expt 3 candidates"].rows:
        assert row["matches"] == row["GJ"] <= row["GMJ"] <= row["x-bounds"]
        assert row["GJ validated"] == 0
    for row in figures["Expt 4 candidates"].rows:
        assert row["matches"] <= row["both"] <= min(row["GMJ"], row["x-bounds"])
        assert row["matches"] <= row["core regions"]
    for row in figures["far apart"].rows:
        assert row["matches"] == row["GJ"] <= row["Selberg"] <= row["Theorem 3 mended"]
    assert all(figure.claims for figure in report.figures)
    assert json.loads(json.dumps(report.to_dict()))["bench"] == "peng-joins"


def test_mixtures_have_the_moments_they_are_drawn_with():
    for coefficients in ("u and 1 - u", "two uniforms, scaled"):
        data = peng_joins.mixtures(replace(peng_joins.QUICK, window=2_000, windows=1), coefficients)
        weights = data.left.weights.values.reshape(-1, 2)
        assert np.allclose(weights.sum(axis=1), 1.0)
        assert data.left.mean().mean() == pytest.approx(50.0, abs=2.0)
        assert data.left.sds.values.max() <= np.sqrt(10.0)
