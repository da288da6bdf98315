"""How many pairs each threshold keeps, and how many of those are expected to be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError

if TYPE_CHECKING:
    import altair

STEPS = 100
"""Thresholds are in steps of one hundredth."""


@dataclass(frozen=True)
class AddingUp:
    """Adds up pairs by the highest threshold that keeps them: their number, and their probabilities."""

    column: str

    def __call__(self, table: pa.Table) -> np.ndarray:
        """Return the sums of some rows; rows without a probability are left out."""
        p = table[self.column].drop_null().cast(pa.float64()).to_numpy()
        if len(p) and not ((p >= 0.0) & (p <= 1.0)).all():
            raise HaplyError(f"Column '{self.column}' holds no probabilities", expected="numbers from 0 to 1")
        place = np.searchsorted(thresholds(), p, side="right") - 1
        return np.concatenate([np.bincount(place, minlength=STEPS + 1), np.bincount(place, p, STEPS + 1)])


def thresholds() -> np.ndarray:
    """Return all thresholds, in ascending order; as people write them, so that 0.07 is kept at 0.07."""
    return np.array([float(f"{k / STEPS:.2f}") for k in range(STEPS + 1)])


def threshold_records(totals: np.ndarray) -> list[dict[str, Any]]:
    """Return records ``threshold, pairs, share``: the pairs kept at a threshold, and the mean of their probability."""
    counts, sums = (half[::-1].cumsum()[::-1] for half in np.split(totals, 2))
    return [
        {
            "threshold": float(threshold),
            "pairs": int(count),
            "share": min(float(sum_ / count), 1.0) if count else None,
        }
        for threshold, count, sum_ in zip(thresholds(), counts, sums, strict=True)
    ]


def threshold_chart(records: Sequence[dict[str, Any]]) -> altair.VConcatChart:
    """Draw both numbers against the threshold: records as of ``threshold_records``."""
    from haply.drawing.library import alt
    from haply.drawing.style import BLUE, GREEN, WIDTH, data_of, need, panels

    need(records, "chart of thresholds", ("threshold", "pairs", "share"))
    x = alt.X("threshold:Q", scale=alt.Scale(domain=[0, 1]), title="threshold", axis=alt.Axis(tickCount=10))
    base = alt.Chart(data_of(records)).encode(x=x)
    counts = alt.Y("pairs:Q", title="pairs kept", axis=alt.Axis(format=",d", tickCount=5), scale=alt.Scale(zero=True))
    shares = alt.Y(
        "share:Q",
        title="expected share of right ones",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format=".0%", tickCount=5),
    )
    tips = [
        alt.Tooltip("threshold:Q", format=".2f"),
        alt.Tooltip("pairs:Q", format=",d"),
        alt.Tooltip("share:Q", format=".1%", title="expected share of right ones"),
    ]
    kept = base.mark_area(color=BLUE, opacity=0.35, line={"color": BLUE}, interpolate="step").encode(
        y=counts, tooltip=tips
    )
    right = (
        base.transform_filter("datum.pairs > 0").mark_line(color=GREEN, strokeWidth=2.5).encode(y=shares, tooltip=tips)
    )
    drawn = [
        (kept.properties(width=WIDTH, height=160), "How many pairs are kept"),
        (right.properties(width=WIDTH, height=160), "How many of those are expected to be right"),
    ]
    return panels(drawn, _title(records))


def _title(records: Sequence[dict[str, Any]]) -> str:
    if not records[0]["pairs"]:
        return "There are no pairs"
    half = next(record for record in records if record["threshold"] == 0.5)
    if half["share"] is None:
        return f"No pair has a probability of 0.5 or more; {records[0]['pairs']:,} have less"
    return f"At 0.5, {half['pairs']:,} of {records[0]['pairs']:,} pairs are kept; {half['share']:.0%} should be right"
