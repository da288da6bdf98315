"""The common style of haply's charts, and checks of the records that they are drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from haply.drawing.library import alt
from haply.errors import HaplyError

Record = Mapping[str, Any]

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#767676"
INK, PALE = "#222222", "#e4e4e4"
FONT = "Helvetica Neue, Helvetica, Arial, sans-serif"
WIDTH = 560


def styled(chart: Any, title: str, subtitle: str = "") -> Any:
    """Apply the common style to a chart, with a title above it."""
    heading = alt.TitleParams(
        title,
        subtitle=subtitle or alt.Undefined,
        anchor="start",
        frame="group",
        fontSize=15,
        fontWeight=600,
        color=INK,
        subtitleFontSize=12,
        subtitleColor="#555555",
        offset=14,
    )
    axes = alt.AxisConfig(
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        titlePadding=8,
        labelColor=INK,
        titleColor=INK,
        gridColor=PALE,
        domainColor="#999999",
        tickColor="#999999",
        labelLimit=260,
        labelPadding=6,
        labelFlush=False,
    )
    return chart.properties(
        title=heading,
        config=alt.Config(
            font=FONT,
            background="white",
            axis=axes,
            legend=alt.LegendConfig(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", symbolStrokeWidth=3),
            header=alt.HeaderConfig(labelFontSize=12, labelFontWeight="bold"),
            view=alt.ViewConfig(stroke=None),
        ),
    )


def data_of(records: Iterable[Record]) -> alt.Data:
    """Records as data of a chart: in a tuple, since Altair copies lists each time that a chart is changed."""
    return alt.Data(values=tuple(dict(record) for record in records))


def need(records: Sequence[Record], chart: str, fields: tuple[str, ...]) -> None:
    """Refuse records that the chart cannot show."""
    if not records:
        raise HaplyError(f"The {chart} has nothing to show", expected="at least one record", found="none")
    missing = [field for field in fields if field not in records[0]]
    if missing:
        raise HaplyError(
            f"The records of the {chart} lack {', '.join(missing)}",
            expected=", ".join(fields),
            found=", ".join(records[0]),
        )


def panels(drawn: Sequence[tuple[Any, str]], title: str) -> alt.VConcatChart:
    """Stack panels, each with its own name, under a title."""
    named = [
        panel.properties(
            title=alt.TitleParams(
                name, anchor="start", frame="group", fontSize=12, fontWeight="normal", color="#555555", offset=16
            )
        )
        for panel, name in drawn
    ]
    chart = alt.vconcat(*named, spacing=30).resolve_scale(color="independent", x="independent", y="independent")
    # An SVG has fixed positions, but the font is the reader's: a wider one needs space at the sides.
    return styled(chart.properties(padding={"left": 24, "right": 24, "top": 8, "bottom": 8}), title)
