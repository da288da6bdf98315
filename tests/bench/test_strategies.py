"""The benches of strategies and of the index on small sizes: what they report is what they measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import index, strategies
from haply.joins.strategies import estimated_seconds
from haply.models import Gaussian, Histogram


def test_every_strategy_is_measured_and_agrees():
    settings = replace(strategies.QUICK, rows=60, laws=("gaussian", "histogram"), partners=(4.0,))
    report = strategies.measure(settings, lambda text: None)
    (table,) = report.figures
    assert [row["law"] for row in table.rows] == ["gaussian", "histogram"]
    for row in table.rows:
        times = {name: row[f"{name} ms"] for name in strategies.OTHERS}
        assert row["best"] == min(times, key=times.get)
        assert row["auto / best"] == pytest.approx(row["auto ms"] / min(times.values()))
        assert 0 < row["pairs"] == row["selectivity"] * 60**2
    worst = max(row["auto / best"] for row in table.rows)
    assert table.claims[0].holds == (worst <= settings.most)
    assert {result.engine for result in report.results} == {"haply", *strategies.OTHERS}


def test_estimates_grow_with_the_work_and_come_least_first():
    for kinds in ((Gaussian, Gaussian), (Gaussian, Histogram)):
        few, many = (estimated_seconds(*kinds, rows, 10.0 * rows) for rows in (1_000, 100_000))
        assert set(few) == set(strategies.OTHERS)
        assert list(few.values()) == sorted(few.values())
        assert all(many[name] > 50 * few[name] for name in few)
    assert next(iter(estimated_seconds(Gaussian, Gaussian, 1_000, 1e6))) == "sweep"


@pytest.mark.long
def test_an_index_reads_few_pages(spark):
    settings = replace(index.QUICK, rows=6_000, probes=60, page_rows=64)
    report = index.measure(spark, settings, lambda text: None)
    assert {result.engine for result in report.results} == {"haply", index.WITHOUT}
    assert len({result.pairs for result in report.results}) == 1
    assert report.results[0].pairs > 0
    assert 0 < report.config["pages_read"] < 0.1 * report.config["pages_total"]
