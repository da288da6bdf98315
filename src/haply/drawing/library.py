"""The chart library, which is imported only where something is drawn."""

from __future__ import annotations

from typing import Any

from haply.errors import missing_package

try:
    import altair as alt
except ImportError as missing:
    raise missing_package("Charts", missing, "haply[viz]") from None

__all__ = ["alt", "chart_converter", "svg_of"]


def chart_converter() -> Any:
    """Return the package that draws charts without a browser, and has the scripts for browsers."""
    try:
        import vl_convert
    except ImportError as missing:
        raise missing_package("Charts", missing, "haply[viz]") from None
    return vl_convert


def svg_of(chart: Any) -> str:
    """Draw a chart as SVG, without a browser and without a network."""
    # Altair has checked the parts when they were made: checking the whole again takes longer than drawing it.
    svg: str = chart_converter().vegalite_to_svg(chart.to_dict(validate=False))
    return svg
