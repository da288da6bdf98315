"""Charts inside of HTML, as notebooks show them."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from haply.drawing.dark import chart_colours
from haply.errors import HaplyError


def drawn(chart: Callable[[], Any], words: str) -> str:
    """Draw what a function makes into HTML; the chart brings its own ground, and is dark where the notebook is.

    A notebook shows objects by themselves, so what cannot be drawn is a sentence there and no error.
    """
    try:
        from haply.drawing.library import svg_of

        svg = svg_of(chart())
    except HaplyError as problem:
        return f"<p>{escape(str(problem))}</p>"
    style = f"<style>{chart_colours('.haply-chart')}</style>"
    picture = f'<div class="haply-chart" role="img" aria-label="{escape(words)}" style="overflow-x:auto">{svg}</div>'
    return style + picture
