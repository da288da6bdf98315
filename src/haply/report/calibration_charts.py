"""Charts of calibration: probabilities against the share of true pairs, and differences within their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from haply.drawing.library import alt
from haply.drawing.style import BLUE, GREY, ORANGE, Record, data_of, need, styled

_WIDTH, _HEIGHT = 250, 240
_BAND = "#dfe9f1"
"""The range in which a share may lie by chance."""
_FAR_APART = 50
"""Counts that differ by a larger factor are drawn on a logarithmic axis."""
_TENTHS = [k / 5 for k in range(6)]


def calibration_chart(panels: Sequence[Any], title: str, subtitle: str = "") -> alt.HConcatChart:
    """Put panels side by side, under a title."""
    return styled(alt.hconcat(*panels, spacing=36).resolve_scale(color="independent"), title, subtitle)


def reliability_panel(records: Sequence[Record]) -> Any:
    """Draw probabilities and true shares: records ``mean_probability, share_true, n, share_low, share_high``."""
    need(records, "reliability diagram", ("mean_probability", "share_true", "n", "share_low", "share_high"))
    unit = alt.Scale(domain=[0, 1])
    x = alt.X("mean_probability:Q", scale=unit, title="what was said: mean probability", axis=_ticks())
    diagonal = (
        alt.Chart(data_of([{"x": 0, "y": 0}, {"x": 1, "y": 1}]))
        .mark_line(color=GREY, strokeDash=[5, 4], strokeWidth=1.5)
        .encode(x="x:Q", y="y:Q")
    )
    base = alt.Chart(data_of(records)).encode(x=x)
    intervals = base.mark_rule(color=BLUE, strokeWidth=2).encode(
        y=alt.Y("share_low:Q", scale=unit, title="what happened: share true", axis=_ticks()), y2="share_high:Q"
    )
    points = base.mark_point(color=BLUE, filled=True, size=55, opacity=1).encode(
        y="share_true:Q",
        tooltip=[
            alt.Tooltip("mean_probability:Q", format=".3f", title="mean probability"),
            alt.Tooltip("share_true:Q", format=".3f", title="share true"),
            alt.Tooltip("n:Q", format=",d", title="pairs"),
        ],
    )
    return _named(alt.layer(diagonal, intervals, points), "Said and happened, with 95% intervals")


def probability_panel(records: Sequence[Record]) -> Any:
    """Return how sure pairs are: records ``low, high, n``."""
    need(records, "histogram of probabilities", ("low", "high", "n"))
    most, least = max(record["n"] for record in records), min(record["n"] for record in records)
    wide = most > _FAR_APART * least
    # A logarithmic axis has no zero: bars begin at a half, so that one pair is a short bar.
    rows = [{**record, "start": 0.5 if wide else 0} for record in records]
    scale = alt.Scale(type="log", domain=[0.5, 2 * most], nice=False) if wide else alt.Scale(domain=[0, 1.05 * most])
    ticks = alt.Axis(values=[10**k for k in range(13) if 10**k <= 2 * most]) if wide else alt.Axis(tickCount=5)
    ticks.format = "~s"
    bars = (
        alt.Chart(data_of(rows))
        .mark_bar(color=BLUE, stroke="white", strokeWidth=1)
        .encode(
            x=alt.X("low:Q", bin="binned", scale=alt.Scale(domain=[0, 1]), title="probability", axis=_ticks(False)),
            x2="high:Q",
            y=alt.Y("start:Q", scale=scale, title="pairs (logarithmic)" if wide else "pairs", axis=ticks),
            y2="n:Q",
        )
    )
    return _named(alt.layer(bars), "How sure the pairs are")


def transform_panel(records: Sequence[Record], name: str, on_a_line: bool, highest: float = 0.0) -> Any:
    """Draw where differences lie within their errors: records ``low, high, share, standard_error``.

    Shares are equal if the errors are right.

    ``highest`` is a share that the axis must reach, so that panels can be compared.
    """
    need(records, "histogram of residuals", ("low", "high", "share", "standard_error"))
    top, band = max(0.2, 1.1 * max(highest, *(one["share"] for one in records))), records[0]["standard_error"]
    scale = alt.Scale(domain=[0, top])
    range_ = (
        alt.Chart(data_of([{"from": max(0.0, 0.1 - 2 * band), "to": 0.1 + 2 * band, "x": 0, "x2": 1}]))
        .mark_rect(color=_BAND)
        .encode(x="x:Q", x2="x2:Q", y=alt.Y("from:Q", scale=scale), y2="to:Q")
    )
    about = "place within its error" if on_a_line else "distance by its error: near to far"
    bars = (
        alt.Chart(data_of(records))
        .mark_bar(color=BLUE, stroke="white", strokeWidth=1, opacity=0.85)
        .encode(
            x=alt.X("low:Q", bin="binned", scale=alt.Scale(domain=[0, 1]), title=about, axis=_ticks(False)),
            x2="high:Q",
            y=alt.Y("share:Q", scale=scale, title="share of pairs", axis=alt.Axis(format=".0%", tickCount=5)),
        )
    )
    even = alt.Chart(data_of([{"even": 0.1}])).mark_rule(color=GREY, strokeDash=[5, 4], strokeWidth=1.5)
    return _named(alt.layer(range_, bars, even.encode(y="even:Q")), name)


def fakes_panel(records: Sequence[Record]) -> Any:
    """False pairs of rows without a partner, by two ways to count them.

    Records ``threshold, without_partner, by_fakes, standard_error``.
    """
    need(records, "chart of fakes", ("threshold", "without_partner", "by_fakes", "standard_error"))
    said, seen = "as probabilities say", "as shifted rows say, ±2 sd"
    rows = []
    for record in records:
        low, high = (record["by_fakes"] + sign * 2 * record["standard_error"] for sign in (-1, 1))
        rows += [
            {"threshold": record["threshold"], "false": record["without_partner"], "by": said},
            {"threshold": record["threshold"], "false": record["by_fakes"], "by": seen, "low": low, "high": high},
        ]
    shown = [{**row, "low": max(row.get("low", 1.0), 0.5)} for row in rows if row["false"] >= 0.5]
    color = alt.Color(
        "by:N",
        scale=alt.Scale(domain=[said, seen], range=[BLUE, ORANGE]),
        legend=alt.Legend(title=None, orient="bottom", direction="vertical", labelLimit=240),
    )
    x = alt.X("threshold:Q", scale=alt.Scale(domain=[0, 1]), title="pairs at least this likely", axis=_ticks())
    most = max((row["false"] for row in shown), default=1.0)
    tens = alt.Axis(values=[10**k for k in range(13) if 10**k <= 10 * most], format=",d")
    y = alt.Y("false:Q", scale=alt.Scale(type="log"), title="false pairs (logarithmic)", axis=tens)
    base = alt.Chart(data_of(shown))
    line = base.transform_filter(alt.datum.by == said).mark_line(strokeWidth=2.5).encode(x=x, y=y, color=color)
    of_fakes = base.transform_filter(alt.datum.by == seen)
    bars = of_fakes.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color)
    points = of_fakes.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=color)
    return _named(alt.layer(line, bars, points), "False pairs of rows without a partner")


def _ticks(grid: bool = True) -> alt.Axis:
    return alt.Axis(values=_TENTHS, format=".1f", grid=grid)


def _named(layers: Any, name: str) -> Any:
    """Return a panel with its name above it."""
    title = alt.TitleParams(
        name, anchor="start", frame="group", fontSize=12, fontWeight="normal", color="#555555", offset=10
    )
    return layers.properties(width=_WIDTH, height=_HEIGHT, title=title)
