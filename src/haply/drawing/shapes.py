"""Where values and positions may lie: densities on a line, ellipses on a plane."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from haply.drawing.library import alt
from haply.drawing.style import BLUE, GREEN, GREY, INK, ORANGE, RED, WIDTH, Record, data_of, need, styled

_COLOURS = (BLUE, RED, GREEN, ORANGE, "#56B4E9", "#CC79A7", GREY, "#000000")
_FAR_APART = 20.0
"""Peaks that differ by a larger factor are each scaled to their own height, so that both can be seen."""
_LEGEND_LETTERS = 60
"""Longer legends have one entry per line."""
_MAP = 460


def density_chart(records: Sequence[Record], title: str) -> alt.LayerChart:
    """Draw where values may lie: records ``reading, value, density``, a colour for each reading."""
    need(records, "densities", ("reading", "value", "density"))
    names = list(dict.fromkeys(record["reading"] for record in records))
    peaks = {name: max(record["density"] for record in records if record["reading"] == name) or 1.0 for name in names}
    own = max(peaks.values()) > _FAR_APART * min(peaks.values())
    rows = [{**record, "height": record["density"] / peaks[record["reading"]] if own else record["density"]}
            for record in records]  # fmt: skip
    values = [record["value"] for record in records]
    colour = _colour("reading", names)
    area = (
        alt.Chart(data_of(rows))
        .mark_area(opacity=0.3, line={"strokeWidth": 2})
        .encode(
            x=alt.X(
                "value:Q",
                scale=alt.Scale(domain=[min(values), max(values)], nice=False, zero=False),
                title="value",
                axis=alt.Axis(grid=False, tickCount=8),
            ),
            y=alt.Y(
                "height:Q",
                stack=None,
                scale=alt.Scale(domain=[0, 1.06 * max(row["height"] for row in rows)]),
                title="density (each by its own peak)" if own else "density",
                axis=alt.Axis(grid=False, tickCount=4, labels=not own, ticks=not own),
            ),
            color=colour,
        )
    )
    return styled(alt.layer(area).properties(width=WIDTH, height=200), title)


def position_chart(
    shapes: Sequence[Record], titles: tuple[str, str], *, title: str, subtitle: str = "", east_left: bool = False
) -> alt.LayerChart:
    """Draw positions on a plane under a title: see ``position_panel``."""
    # pages that draw a map narrower also make it lower
    panel = position_panel(shapes, titles, east_left=east_left).properties(usermeta={"equalScales": True})
    return styled(panel, title, subtitle)


def position_panel(shapes: Sequence[Record], titles: tuple[str, str], *, east_left: bool = False) -> Any:
    """Draw positions on a plane, with the same scale on both axes.

    Shapes ``kind, points, closed``: one point is a dot, two are a line between partners if the shape is not closed,
    more are an outline. On the sky east is on the left.
    """
    need(shapes, "map", ("kind", "points", "closed"))
    span = _span([point for shape in shapes for point in shape["points"]])
    wide, high = span["x"][1] - span["x"][0], span["y"][1] - span["y"][0]
    pixels = _MAP / max(wide, high)
    axes = {
        name: kind(
            f"{name}:Q",
            scale=alt.Scale(domain=span[name], nice=False, zero=False, reverse=east_left and name == "x"),
            title=words,
            axis=alt.Axis(grid=False, tickCount=5),
        )
        for name, kind, words in (("x", alt.X, titles[0]), ("y", alt.Y, titles[1]))
    }
    kinds = list(dict.fromkeys(shape["kind"] for shape in shapes if shape["closed"]))
    colour = _colour("kind", kinds)
    dots = [{"kind": one["kind"], **_at(one["points"][0])} for one in shapes if len(one["points"]) == 1]
    outlines = [
        {"kind": one["kind"], "shape": number, "step": step, **_at(point)}
        for number, one in enumerate(shapes)
        for step, point in enumerate(one["points"] if one["closed"] and len(one["points"]) > 1 else ())
    ]
    links = [
        {**_at(one["points"][0]), "x2": one["points"][1][0], "y2": one["points"][1][1]}
        for one in shapes
        if not one["closed"]
    ]
    layers = [
        alt.Chart(data_of(links)).mark_rule(color=INK, opacity=0.6, strokeWidth=1).encode(**axes, x2="x2:Q", y2="y2:Q"),
        alt.Chart(data_of(outlines))
        .mark_line(strokeWidth=1.5, filled=False)
        .encode(**axes, color=colour, detail="shape:N", order="step:Q"),
        alt.Chart(data_of(dots)).mark_point(filled=True, size=30, opacity=0.9).encode(**axes, color=colour),
    ]
    drawn = [layer for layer, rows in zip(layers, (links, outlines, dots), strict=True) if rows]
    return alt.layer(*drawn).properties(width=pixels * wide, height=pixels * high)


def _colour(field: str, names: Sequence[str]) -> alt.Color:
    """Return a colour for each name, and a legend below where there are several."""
    upright = sum(map(len, names)) > _LEGEND_LETTERS
    direction: Any = "vertical" if upright else "horizontal"
    return alt.Color(
        f"{field}:N",
        scale=alt.Scale(domain=list(names), range=[_COLOURS[k % len(_COLOURS)] for k in range(len(names))]),
        legend=alt.Legend(
            title=None, orient="bottom", labelLimit=420, direction=direction, symbolType="circle", symbolStrokeWidth=0,
            symbolOpacity=1, columns=1 if upright else 4,
        ),
    )  # fmt: skip


def _at(point: Sequence[float]) -> Mapping[str, float]:
    return {"x": float(point[0]), "y": float(point[1])}


def _span(points: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """Return the range that must be on the map, with some space around it."""
    low = [min(float(point[k]) for point in points) for k in (0, 1)]
    high = [max(float(point[k]) for point in points) for k in (0, 1)]
    room = 0.06 * max(high[0] - low[0], high[1] - low[1]) or 1.0
    # a narrow strip has no space for its axis: no side is less than a third of the other
    longest = max(high[k] - low[k] for k in (0, 1)) + 2.0 * room
    found = {}
    for k, name in enumerate(("x", "y")):
        missing = max(0.0, longest / 3.0 - (high[k] - low[k]) - 2.0 * room)
        found[name] = [low[k] - room - missing / 2.0, high[k] + room + missing / 2.0]
    assert all(math.isfinite(end) for ends in found.values() for end in ends)
    return found
