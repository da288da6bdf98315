"""The bench of Cheng et al. on small sizes: figures have their shape, and counts that must agree do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks import cheng, measure
from haply.joins.paged import ALGORITHMS

TINY = replace(cheng.QUICK, rows=300, dense_rows=4_000, rows_per_page=20, fan_out=10)


@pytest.fixture(scope="module")
def report() -> measure.Report:
    return cheng.measure(TINY, lambda text: None)


def test_engines_and_figures(report):
    assert [result.engine for result in report.results] == ["haply", *ALGORITHMS]
    assert len({result.pairs for result in report.results}) == 1
    assert [figure.name for figure in report.figures] == [f"Figure {number}" for number in range(11, 18)]
    assert all(figure.claims for figure in report.figures)
    written = json.loads(json.dumps(report.to_dict()))
    assert written["bench"] == "cheng"
    assert written["config"]["levels"][0] == 0.0
    for figure in report.figures:
        assert measure.figure_table(figure).row_count == len(figure.rows)


def test_exact_values_are_equal_for_all_algorithms(report):
    for row in report.figures[2].rows:
        assert len({row[name] for name in ALGORITHMS}) == 1
        assert row["answers"] <= row["cascade"] <= row["BNLJ"]


def test_random_pages_spare_nothing_and_sorted_ones_do(report):
    claims = {claim.claim: claim.holds for claim in report.figures[0].claims}
    assert claims["U-BNLJ is far below BNLJ (sorted, 300 rows)"]
    assert not claims["U-BNLJ is far below BNLJ (random, 300 rows)"]
    for row in report.figures[0].rows:
        assert row["BNLJ"] >= row["boxes only"] >= row["U-BNLJ"] >= row["U-BNLJ, our tests"]


def test_claims_that_do_not_hold_are_told(report):
    answers = {claim.claim: claim.holds for claim in report.figures[4].claims}
    assert answers == {"the answers increase with c": True, "they saturate for c > 3": False}
    dense = [row for row in report.figures[1].rows if row["pages"] == "sorted, 4,000 rows"]
    assert dense[0]["U-INLJ"] > dense[-1]["U-INLJ"]
    assert len({row["INLJ"] for row in dense}) == 1


@pytest.mark.long
def test_charts_are_drawn(report, tmp_path):
    assert measure.write_chart(report, tmp_path).exists()
    assert len(measure.write_figures(report, tmp_path)) == 7
