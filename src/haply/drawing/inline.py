"""Charts inside HTML, as notebooks show them."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from haply.drawing.dark import chart_colours
from haply.errors import HaplyError


def drawn(chart: Callable[[], Any], words: str) -> str:
    """Draw the chart that a function makes as HTML; it has its own background, and is dark if the notebook is.

    A notebook shows objects automatically, so a chart that cannot be drawn becomes a sentence, not an error.
    """
    try:
        from haply.drawing.library import svg_of

        svg = svg_of(chart())
    except HaplyError as problem:
        return f"<p>{escape(str(problem))}</p>"
    style = f"<style>{chart_colours('.haply-chart')}</style>"
    picture = f'<div class="haply-chart" role="img" aria-label="{escape(words)}" style="overflow-x:auto">{svg}</div>'
    return style + picture
