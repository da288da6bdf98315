"""The chart library, which is imported only where something is drawn."""

from __future__ import annotations

from typing import Any

from haply.errors import HaplyError


def _missing(problem: ImportError) -> HaplyError:
    return HaplyError(
        "A chart needs the libraries altair and vl-convert-python",
        found=f"no module '{problem.name}'",
        hint='pip install "haply[viz]"',
    )


try:
    import altair as alt
except ImportError as problem:
    raise _missing(problem) from problem

__all__ = ["alt", "svg_of"]


def svg_of(chart: Any) -> str:
    """Draw a chart as SVG, without a browser and without a network."""
    try:
        import vl_convert
    except ImportError as problem:
        raise _missing(problem) from problem
    return vl_convert.vegalite_to_svg(chart.to_dict())
