"""The bench of a stream beside an indexed table, on a small size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import events


@pytest.mark.long
def test_batches_are_timed_and_pages_are_counted(spark):
    settings = replace(events.QUICK, rows=20_000, events=100, batches=2)
    report = events.measure(spark, settings, lambda text: None)
    (figure,) = report.figures
    assert [row["batch"] for row in figure.rows] == [1, 2]
    assert report.results[0].seconds == figure.rows[1]["seconds"] > 0.0  # without the first batch
    assert report.results[0].pairs > 0
    assert "events a second after 1 batches" in figure.notes[0]
