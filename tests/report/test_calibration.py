"""Reports of calibration: what they draw, and that everything in them can be read."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

import haply as hp
from haply.errors import HaplyError
from haply.report.calibration_charts import fakes_panel, probability_panel, reliability_panel, transform_panel


def texts(chart: Any) -> list[str]:
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    return [unescape(text) for text in re.findall(r"<(?:text|tspan)[^>]*>([^<]+)</(?:text|tspan)>", svg)]


def pairs(count: int = 500, wrong: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    p = rng.random(count)
    left = [{"mean": float(x), "sd": 1.0} for x in rng.normal(size=count) * wrong]
    right = [{"mean": 0.0, "sd": 0.0}] * count
    some = p + (1.0 - p) * 0.5
    odds = 0.6 / 0.4
    return pd.DataFrame(
        {
            "p_match": p, "p_any": some, "bayes_factor": p / (1.0 - some) / odds, "truth": rng.random(count) < p,
            "x_left": left, "x_right": right,
        }
    )  # fmt: skip


def test_a_report_with_labels_has_three_panels() -> None:
    report = hp.calibration(pairs(), label="truth", same="x")
    shown = texts(report.chart())
    assert "The probabilities are right as far as 500 pairs show" in shown
    for words in (
        "Said and happened, with 95% intervals", "what was said: mean probability", "what happened: share true",
        "How sure the pairs are", "Differences within their errors", "share of pairs",
    ):  # fmt: skip
        assert words in shown
    assert len(report.chart().to_dict()["hconcat"]) == 3


@pytest.mark.parametrize(
    ("truth", "words"),
    [
        (lambda p: p**1.08, "a little too high"),
        (lambda p: p**0.92, "a little too low"),
        (lambda p: 0.5 + 0.82 * (p - 0.5), "a little too sure"),
        (lambda p: 0.5 + 1.18 * (p - 0.5), "a little too cautious"),
        (lambda p: p, "right as far as"),
    ],
)
def test_small_deviations_in_all_bins_are_told(truth: Any, words: str) -> None:
    # Labels without noise: among rows next to each other, the share that is true is as near to the truth as it can be.
    p = np.linspace(0.2, 0.8, 6_000)
    label = (np.arange(len(p)) * 0.6180339887498949) % 1.0 < truth(p)
    report = hp.calibration(pd.DataFrame({"p_match": p, "truth": label}), label="truth", bins=20)
    assert words in report.sentences()[0]


def test_a_report_with_fakes_names_both_ways_to_count() -> None:
    given = pairs()
    report = hp.calibration(given, fakes=[given.iloc[:200], given.iloc[200:350]])
    assert report.completeness == pytest.approx(0.6)
    shown = texts(report.chart())
    for words in ("as probabilities say", "as shifted rows say, ±2 sd", "False pairs of rows without a partner"):
        assert words in shown


def test_a_page_of_a_notebook_needs_no_network_and_is_readable_when_dark() -> None:
    report = hp.calibration(pairs(wrong=2.0), label="truth", same="x")
    html = report._repr_html_()
    assert "The errors are too small" in html
    assert "<svg" in html
    assert not re.search(r'(?:src|href)="http', html)
    assert 'fill="white"' in html  # a drawing brings its own background; words have the colours of the page
    assert "color:" not in re.sub(r"<style>.*?</style>|<svg.*</svg>", "", html, flags=re.DOTALL)


def test_an_empty_report_has_words_and_no_chart() -> None:
    report = hp.calibration(pairs().iloc[:0].astype({"truth": bool}), label="truth")
    assert "There are no pairs" in str(report)
    assert "<svg" not in report._repr_html_()
    with pytest.raises(HaplyError, match="There are no pairs to draw"):
        report.chart()


def test_learned_errors_are_drawn_beside_the_stated_ones() -> None:
    rng = np.random.default_rng(7)
    true = np.arange(300) * 10.0

    def measured(error: float) -> pd.DataFrame:
        return pd.DataFrame({"x": [{"mean": x + error * rng.normal(), "sd": 0.5} for x in true]})

    fit = hp.calibrate(measured(1.0), measured(0.5), "x", radius=5, density=0.1)
    shown = texts(fit.chart())
    assert "With the stated errors" in shown
    assert "With the learned errors" in shown
    assert any(re.match(r"Errors are \d.* times as large as stated", text) for text in shown)
    assert "<table>" in fit._repr_html_()
    assert "scale" in repr(fit)
    # with learned errors the shares are even
    assert np.abs(fit.after.shares - 0.1).max() < np.abs(fit.before.shares - 0.1).max()


def test_panels_refuse_records_they_cannot_show() -> None:
    for draw in (reliability_panel, probability_panel, fakes_panel, lambda rows: transform_panel(rows, "", True)):
        with pytest.raises(HaplyError, match="nothing to show"):
            draw([])
        with pytest.raises(HaplyError, match="lack"):
            draw([{"low": 0.0}])


@pytest.mark.parametrize("counts", [(5, 8), (1, 100_000)])
def test_counts_far_apart_have_a_logarithmic_axis(counts: tuple[int, int]) -> None:
    panel = probability_panel([{"low": k / 10, "high": k / 10 + 0.1, "n": n} for k, n in enumerate(counts)])
    assert ("pairs (logarithmic)" in texts(panel)) == (counts[1] > 100)
