"""The bench of answers on a small size: what it reports is what it measured."""

from __future__ import annotations

from dataclasses import replace

from benchmarks import NWAY_PYTHON, answers


def test_every_answer_is_measured_beside_its_join(monkeypatch):
    monkeypatch.delenv(NWAY_PYTHON, raising=False)
    settings = replace(answers.QUICK, rows=400, dense_rows=200, indexed_rows=4_000, page_rows=64, events=40)
    report = answers.measure(settings, lambda text: None)
    (figure,) = report.figures
    jobs = [row["job"].split(",")[0] for row in figure.rows]
    assert jobs == ["best"] * 4 + ["top 1 without a threshold", "hp.match", "hp.count_matches"]
    for row in figure.rows:
        assert row["ratio"] == row["seconds"] / row["beside"] > 0
    assert any("NWAY is left out" in note for note in figure.notes)
    assert sum("pairs evaluated" in note for note in figure.notes) == 4
    assert sum("events a second" in claim.claim for claim in figure.claims) == 1
