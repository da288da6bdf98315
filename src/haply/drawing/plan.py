"""Charts of plans: the tree, and how few of the possible pairs will be looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from haply.drawing.funnel import funnel_bars
from haply.drawing.library import alt
from haply.drawing.style import BLUE, GREY, INK, WIDTH, Record, data_of, need, styled

_LINE, _GAP, _INDENT, _NAMES = 17, 5, 22, 104
"""Pixels: of a line, between entries, of an indent, and of the names before the text."""
_LETTER = 6.6
"""Pixels of a letter in a wide font, so that lines are broken early enough."""


def plan_chart(records: Sequence[Record], estimate: tuple[float, float] | None, title: str) -> alt.VConcatChart:
    """Draw a plan: records ``depth, name, said``, where those without a name begin a part of the tree.

    ``estimate`` is how many pairs are possible, and how many will be looked at.
    """
    need(records, "plan", ("depth", "name", "said"))
    parts: list[Any] = [_tree(records)]
    if estimate is not None and estimate[0] > 0:
        stages = [
            {"stage": "pairs possible", "pairs": estimate[0]},
            {"stage": "looked at (estimate)", "pairs": min(estimate)},
        ]
        parts.append(funnel_bars(stages))
    return styled(alt.vconcat(*parts, spacing=18), title)


def _tree(records: Sequence[Record]) -> Any:
    """Lay out texts line by line: Vega has no tables."""
    top, titles, names, said, bars = 0.0, [], [], [], []
    for record in records:
        begin = top
        left = _INDENT * record["depth"] + 8
        if not record["name"]:
            top += _GAP if top else 0.0
            titles.append({"x": left, "y": top, "text": record["said"]})
            height = _LINE
        else:
            lines = textwrap.wrap(record["said"], int((WIDTH - left - _NAMES) / _LETTER)) or [""]
            names.append({"x": left, "y": top, "text": record["name"]})
            said += [{"x": left + _NAMES, "y": top + _LINE * k, "text": line} for k, line in enumerate(lines)]
            height = _LINE * len(lines)
        own = record["depth"] if not record["name"] else -1  # the line of a part begins at its title
        bars += [
            {"x": _INDENT * depth, "y": top if depth == own else begin, "y2": top + height + _GAP}
            for depth in range(record["depth"] + 1)
        ]
        top += height + _GAP
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, WIDTH], nice=False), axis=None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[top, 0], nice=False), axis=None)

    def words(rows: list[dict[str, Any]], **look: Any) -> Any:
        mark = alt.Chart(data_of(rows)).mark_text(align="left", baseline="top", fontSize=12, **look)
        return mark.encode(x=x, y=y, text="text:N")

    layers = [
        alt.Chart(data_of(bars)).mark_rule(color=BLUE, strokeWidth=2).encode(x=x, y=y, y2="y2:Q"),
        words(titles, fontWeight="bold", color=INK),
        words(names, color=GREY),
        words(said, color=INK),
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=top)
