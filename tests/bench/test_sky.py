"""The bench of the sky: its contenders agree, and a small run reports what it should."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import sky
from benchmarks.measure import check_same

pytest.importorskip("scipy")

SMALL = replace(sky.QUICK, rows=1_500)


def test_contenders_agree_and_find_the_planted_partners():
    left, right, partner = sky.make_catalogues(SMALL)
    for within, threshold in (SMALL.same_place, SMALL.near, (0.5, 0.05)):
        ours = sky.haply_match(left, right, within, threshold)
        check_same("small", {"haply": ours, "tree": sky.tree_match(left, right, within, threshold)})
        assert sky.scores(ours, partner)["recall"] > 0.8
    assert ((left.ra < 1.0) | (left.ra > 359.0)).all()
    assert (left.ra < 1.0).any()
    assert (left.ra > 359.0).any()


def test_scores():
    partner = np.array([2, 0, 1])
    found = sky.Answer(np.array([0, 1, 2, 2]), np.array([2, 0, 0, 2]))
    assert sky.scores(found, partner) == {"precision": 0.5, "recall": 2 / 3, "F1": pytest.approx(4 / 7)}


def test_pairs_at_a_recall():
    partner = np.array([0, 1, 2, 3])
    found = sky.Answer(np.array([3, 0, 1, 2, 0]), np.array([3, 0, 0, 2, 1]), np.array([0.2, 0.9, 0.8, 0.5, 0.1]))
    for recall, pairs in ((0.25, 1), (0.5, 3), (0.75, 4)):
        kept = sky.at_recall(found, partner, recall)
        assert len(kept.left) == pairs
        assert sky.scores(kept, partner)["recall"] == recall


@pytest.mark.long
def test_report_has_its_shape(spark, monkeypatch):
    for variable in (sky.STILTS, sky.NWAY):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    said: list[str] = []
    report = sky.measure(spark, SMALL, said.append)
    assert [result.engine for result in report.results] == [*[sky.OURS, sky.TREE] * 3, sky.BY_CELLS]
    assert len({result.pairs for result in report.results[-3:]}) == 1
    (truth,) = report.figures
    assert len(truth.rows) == len(SMALL.fixed_radii) + 2
    assert all(0.0 < row["precision"] <= 1.0 for row in truth.rows)
    notes = " ".join(report.config["notes"])
    assert "STILTS is absent" in notes
    assert "NWAY is absent" in notes
    assert json.loads(json.dumps(report.to_dict()))["bench"] == "sky"
