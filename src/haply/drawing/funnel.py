"""The funnel: a bar for each stage, from all possible pairs to those that are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from haply.drawing.library import alt
from haply.drawing.style import BLUE, WIDTH, Record, data_of, need, styled


def in_words(count: float) -> str:
    """Write a count for people: exact while short, then rounded to three digits.

    >>> in_words(24_940), in_words(903_993_016)
    ('24,940', '904 million')
    """
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:,.0f}"


def funnel_chart(records: Sequence[Record]) -> alt.LayerChart:
    """Return how few pairs had to be looked at: records ``stage, pairs`` as from ``Funnel.stages()``, widest first."""
    need(records, "funnel", ("stage", "pairs"))
    return styled(funnel_bars(records), _funnel_title(records))


def funnel_bars(records: Sequence[Record]) -> Any:
    """Draw only the bars of a funnel, as one of several panels."""
    counts = [max(0, round(record["pairs"])) for record in records]
    # A logarithmic axis has no zero: bars begin at a half, so that one pair is a short bar and zero pairs are no bar.
    rows = [
        {"stage": record["stage"], "pairs": pairs, "end": max(pairs, 0.5), "start": 0.5, "label": f"{pairs:,}"}
        for record, pairs in zip(records, counts, strict=True)
    ]
    top = max(*counts, 10)
    step = 3 if top > 10_000 else 1
    ticks = [10 ** (step * k) for k in range(5) if 10 ** (step * k) <= 2 * top]
    named = {1_000: "1 thousand", 1_000_000: "1 million", 1_000_000_000: "1 billion", 1_000_000_000_000: "1 trillion"}
    words = {str(tick): named.get(tick, str(tick)) for tick in ticks}
    order = [row["stage"] for row in rows]
    counted = json.dumps({row["stage"]: row["label"] for row in rows})
    scale = alt.Scale(type="log", domain=[0.5, 2.0 * top], nice=False)
    axis = alt.Axis(values=ticks, labelExpr=f"{json.dumps(words)}[toString(datum.value)]")
    plain = alt.Axis(ticks=False, domain=False)
    bars = (
        alt.Chart(data_of(rows))
        .mark_bar(color=BLUE, height=22)
        .encode(
            x=alt.X("start:Q", scale=scale, title="pairs (logarithmic)", axis=axis),
            x2="end:Q",
            y=alt.Y("stage:N", sort=order, title=None, axis=plain),
        )
    )
    # The counts are a second axis: it has enough space for them, whatever the width of the chart.
    right = alt.Axis(orient="right", ticks=False, domain=False, labelExpr=f"{counted}[datum.value]")
    labels = (
        alt.Chart(data_of(rows)).mark_tick(opacity=0).encode(y=alt.Y("stage:N", sort=order, title=None, axis=right))
    )
    return (bars + labels).resolve_axis(y="independent").properties(width=WIDTH - 60, height=38 * len(rows))


def _funnel_title(records: Sequence[Record]) -> str:
    counts = {record["stage"]: int(record["pairs"]) for record in records}
    possible = counts.get("pairs possible", int(records[0]["pairs"]))
    evaluated = counts.get("evaluated exactly", int(records[-1]["pairs"]))
    if not possible:
        return "No pairs: the join has not run, or a side is empty"
    if not evaluated:
        return f"Of {in_words(possible)} possible pairs, none needed its exact probability"
    return (
        f"Of {in_words(possible)} possible pairs, one in {in_words(possible / evaluated)} needed its exact probability"
    )
