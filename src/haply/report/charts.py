"""Charts: each is a list of records and a declarative Vega-Lite specification over them.

Titles state what the records show, so they are computed from them. Colours are those of Okabe and Ito, which people
with any kind of colour vision can distinguish.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from haply.drawing.library import alt
from haply.drawing.style import BLUE, GREEN, GREY, INK, ORANGE, RED, WIDTH, Record, data_of, need, styled

# -- the probabilities -------------------------------------------------------------------------------------------------


def histogram_records(
    probabilities: Iterable[float], kinds: Iterable[str] | None = None, *, bins: int = 20
) -> list[dict[str, Any]]:
    """Counts of probabilities in equal bins of [0, 1], by kind: what :func:`probability_histogram` shows."""
    values = [float(p) for p in probabilities]
    names = list(kinds) if kinds is not None else ["pairs"] * len(values)
    counts: dict[tuple[str, int], int] = {}
    for value, name in zip(values, names, strict=True):
        place = (name, min(bins - 1, int(value * bins)))
        counts[place] = counts.get(place, 0) + 1
    return [
        {"low": k / bins, "high": (k + 1) / bins, "kind": name, "pairs": counts.get((name, k), 0)}
        for name in dict.fromkeys(names)
        for k in range(bins)
    ]


def probability_histogram(
    records: Sequence[Record], *, threshold: float | None = None, about: str = "probability of the pair"
) -> alt.LayerChart:
    """Return how sure the pairs are: records ``low, high, kind, pairs``; one colour for each kind, at most four."""
    need(records, "histogram", ("low", "high", "kind", "pairs"))
    kinds = list(dict.fromkeys(record["kind"] for record in records))
    bars = (
        alt.Chart(data_of(records))
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=alt.X(
                "low:Q",
                bin="binned",
                scale=alt.Scale(domain=[0, 1]),
                title=about,
                axis=alt.Axis(grid=False, values=[k / 10 for k in range(11)], format=".1f"),
            ),
            x2="high:Q",
            y=alt.Y("pairs:Q", title="pairs", stack="zero", axis=alt.Axis(format=",d", tickCount=5)),
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(domain=kinds, range=[BLUE, ORANGE, GREEN, RED][: len(kinds)]),
                legend=None if len(kinds) < 2 else alt.Legend(title=None, orient="bottom", symbolStrokeWidth=0),
            ),
            order=alt.Order("kind:N", sort="descending"),
        )
    )
    layers = [bars]
    if threshold is not None:
        layers += _threshold_line(threshold)
    total = sum(record["pairs"] for record in records)
    sure = sum(record["pairs"] for record in records if record["low"] >= 0.5 - 1e-12)
    title = f"{sure / total:.0%} of the pairs are more likely than not" if total else "No pairs"
    return styled(alt.layer(*layers).properties(width=WIDTH, height=240), title)


def _threshold_line(threshold: float) -> list[alt.Chart]:
    """Return a vertical line at the threshold on an axis of probabilities, with its name at the top."""
    base = alt.Chart(data_of([{"threshold": threshold, "label": f"threshold {threshold:g}"}]))
    line = base.mark_rule(color=INK, strokeDash=[5, 3], strokeWidth=1.5).encode(x="threshold:Q")
    right = threshold < 0.6
    name = base.mark_text(align="left" if right else "right", dx=0, fontSize=12, color=INK).encode(
        x="threshold:Q", y=alt.value(-9), text="label:N"
    )
    return [line, name]


# -- threshold against precision and recall ----------------------------------------------------------------------------


def threshold_curves(records: Sequence[Record]) -> alt.HConcatChart:
    """Precision, recall and F1: against the threshold, and against each other together with other methods.

    Records ``method, setting, threshold, precision, recall, f1, marked``: those with a threshold are the curve, those
    without (plain join, fixed tolerances) appear on the right; marked ones are named there.
    """
    fields = ("method", "setting", "threshold", "precision", "recall", "f1", "marked")
    need(records, "threshold curves", fields)
    ours = [record for record in records if record["threshold"] is not None]
    others = [record for record in records if record["threshold"] is None]
    return styled(
        alt.hconcat(_measures(ours), _plane(ours, others), spacing=40).resolve_scale(color="independent"),
        _curves_title(ours, others),
    )


def precision_recall(records: Sequence[Record]) -> Any:
    """Precision against recall alone, for thresholds that lie close together; records as in ``threshold_curves``."""
    need(records, "precision and recall", ("method", "setting", "threshold", "precision", "recall", "f1", "marked"))
    ours = [record for record in records if record["threshold"] is not None]
    others = [record for record in records if record["threshold"] is None]
    return styled(_plane(ours, others).properties(width=420), _curves_title(ours, others))


def _measures(ours: Sequence[Record]) -> Any:
    names = {"precision": BLUE, "recall": RED, "f1": GREEN}
    long = [
        {"threshold": record["threshold"], "measure": "F1" if name == "f1" else name, "value": record[name]}
        for record in ours
        for name in names
    ]
    color = alt.Color(
        "measure:N",
        scale=alt.Scale(domain=["precision", "recall", "F1"], range=list(names.values())),
        legend=alt.Legend(title=None, orient="bottom", direction="horizontal"),
    )
    dash = alt.StrokeDash(
        "measure:N", scale=alt.Scale(domain=["precision", "recall", "F1"], range=[[1, 0], [7, 3], [2, 2]]), legend=None
    )
    line = (
        alt.Chart(data_of(long))
        .mark_line(strokeWidth=2.5)
        .encode(
            x=alt.X("threshold:Q", scale=alt.Scale(domain=[0, 1]), title="threshold", axis=alt.Axis(tickCount=5)),
            y=alt.Y(
                "value:Q", scale=alt.Scale(domain=[0, 1]), title="precision, recall, F1", axis=alt.Axis(tickCount=5)
            ),
            color=color,
            strokeDash=dash,
        )
    )
    return alt.layer(line).properties(width=250, height=280)


def _plane(ours: Sequence[Record], others: Sequence[Record]) -> Any:
    both = [*ours, *others]
    methods = list(dict.fromkeys(record["method"] for record in both))
    colours = dict(zip(methods, (BLUE, RED, GREY, GREEN), strict=False))
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    legend = alt.Legend(title=None, orient="bottom", direction="horizontal")
    lowest = min((record["precision"] for record in both), default=0.0)
    floor = min(0.9, max(0.0, math.floor(10 * (lowest - 0.02)) / 10))
    base = alt.Chart(data_of(both)).encode(
        x=alt.X("recall:Q", scale=alt.Scale(domain=[0, 1]), title="recall", axis=alt.Axis(tickCount=5)),
        y=alt.Y("precision:Q", scale=alt.Scale(domain=[floor, 1]), title="precision", axis=alt.Axis(tickCount=5)),
        color=alt.Color("method:N", scale=scale, legend=legend),
    )
    line = base.mark_line(strokeWidth=2.5).encode(order="recall:Q")
    marked = base.transform_filter("datum.marked")
    points = marked.mark_point(filled=True, size=70, opacity=1).encode(
        shape=alt.Shape(
            "method:N",
            scale=alt.Scale(domain=methods, range=["circle", "square", "triangle-up", "diamond"]),
            legend=None,
        )
    )
    names = [
        alt.Chart(data_of([record]))
        .mark_text(fontSize=11, color=_in_words(colours[record["method"]]), **look)
        .encode(x="recall:Q", y="precision:Q", text="setting:N")
        for record, look in _named([record for record in both if record["marked"]], floor)
    ]
    return alt.layer(line, points, *names).properties(width=310, height=_PLANE_HEIGHT)


def _named(records: Sequence[Record], floor: float) -> list[tuple[Record, dict[str, Any]]]:
    """Choose places for the names of points, so that they do not overlap; a name without a place is left out.

    The better curve lies above and to the right, and its names go there if they can; the others' go below.
    """
    placed: list[tuple[float, float, float, float, float, float]] = []
    found = []
    for record in records:
        x, y = record["recall"], _PLANE_HEIGHT * (1.0 - record["precision"]) / (1.0 - floor)
        wide = 7.5 * len(record["setting"])  # in a wide font of 11 px
        places = ((1, -1), (1, 1), (-1, -1), (-1, 1)) if record["method"] == "haply" else ((-1, 1), (1, 1), (-1, -1))
        for side, down in (*places, *((side, 2.6 * down) for side, down in places)):
            left, top = (6 if side > 0 else -6 - wide), y + 10 * down - 7
            box = (x, left, left + wide, top, top + 14, y)
            inside = all(x * width + left > -20 and x * width + left + wide < width + 25 for width in _PLANE_WIDTHS)
            if inside and 0 < top < _PLANE_HEIGHT - 14 and all(_apart(box, other) for other in placed):
                placed.append(box)
                look = {"align": "left" if side > 0 else "right", "baseline": "middle", "dx": 6 * side, "dy": 10 * down}
                found.append((record, look))
                break
    return found


def _apart(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether two names have room: at every width that the chart may be drawn with."""
    if one[4] <= other[3] or other[4] <= one[3]:
        return True
    return all(
        one[0] * width + one[2] <= other[0] * width + other[1] or other[0] * width + other[2] <= one[0] * width + one[1]
        for width in _PLANE_WIDTHS
    )


def _in_words(colour: str) -> str:
    """Return a darker colour for text, if one is too pale for it."""
    return {RED: "#b34a00", GREEN: "#007a59"}.get(colour, colour)


_PLANE_HEIGHT, _PLANE_WIDTHS = 280, (230, 270, 310, 420)


def _curves_title(ours: Sequence[Record], others: Sequence[Record]) -> str:
    if not ours or not others:
        return "The threshold trades precision for recall"
    best, rival = (max(side, key=lambda record: record["f1"]) for side in (ours, others))
    if best["f1"] > rival["f1"]:
        return f"Best F1: {best['f1']:.2f} by probability, {rival['f1']:.2f} by {rival['method']}"
    return f"Best F1: {rival['f1']:.2f} by {rival['method']}, {best['f1']:.2f} by probability"


# -- one pair ----------------------------------------------------------------------------------------------------------


def waterfall_chart(records: Sequence[Record], *, threshold: float | None = None, title: str = "") -> alt.LayerChart:
    """Return one pair explained: what is proved of its probability after each rule, down to the exact value.

    Records ``rule, least, most, verdict, used`` as from ``Step.record()``; the last is the exact value, drawn as a dot.
    """
    need(records, "waterfall", ("rule", "least", "most", "verdict", "used"))
    return styled(waterfall_panel(records, threshold), title or waterfall_title(records))


def waterfall_panel(records: Sequence[Record], threshold: float | None) -> Any:
    """Draw only the bounds, as one of several panels."""
    rows = [
        {
            **{name: record[name] for name in ("rule", "least", "most", "verdict")},
            "asked": _ASKED[bool(record["used"])],
            "bounds": _span(record["least"], record["most"]),
            "says": _VERDICTS[record["verdict"]],
        }
        for record in records
    ]
    exact = rows[-1]
    exact["says"] = "kept" if exact["verdict"] == "accept" else "not kept"
    order = [row["rule"] for row in rows]
    x = alt.X("least:Q", scale=alt.Scale(domain=[0, 1]), title="probability of the pair", axis=alt.Axis(tickCount=5))
    y = alt.Y("rule:N", sort=order, title=None, axis=None)
    names = alt.Y("rule:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False))
    # An axis has enough space for its labels in the reader's font; text at fixed positions has not.
    found = json.dumps({row["rule"]: [row["bounds"], row["says"]] for row in rows})
    right = alt.Axis(
        orient="right",
        ticks=False,
        domain=False,
        labelExpr=f"{found}[datum.value]",
        labelLineHeight=14,
        labelOffset=-7,
        labelPadding=12,
    )
    findings = alt.Y("rule:N", sort=order, title=None, axis=right)
    shade = alt.Color(
        "asked:N",
        scale=alt.Scale(domain=[_ASKED[True], _ASKED[False]], range=[BLUE, "#9fc9e3"]),
        legend=alt.Legend(title=None, orient="bottom", symbolStrokeWidth=0, symbolType="square", symbolOpacity=1),
    )
    bars = (
        alt.Chart(data_of(rows[:-1])).mark_bar(height=16, cornerRadius=2).encode(x=x, x2="most:Q", y=names, color=shade)
    )
    # A bar that has shrunk to nothing would vanish: ticks mark both ends.
    ends = [
        alt.Chart(data_of(rows[:-1])).mark_tick(thickness=2, size=16).encode(x=field, y=y, color=shade)
        for field in ("least:Q", "most:Q")
    ]
    dot = (
        alt.Chart(data_of([exact]))
        .mark_point(filled=True, size=110, color=RED, opacity=1)
        .encode(x="most:Q", y=findings)
    )
    layers = [bars, *ends, dot]
    if threshold is not None:
        layers += _threshold_line(threshold)
    return alt.layer(*layers).resolve_axis(y="independent").properties(width=WIDTH - 120, height=36 * len(rows))


_ASKED = {True: "used by this join", False: "not used by this join"}
_VERDICTS = {"reject": "rejects", "accept": "accepts", "undecided": "cannot tell"}


def short(probability: float) -> str:
    """Three digits, without rounding a near certainty to one or a tiny chance to zero."""
    if 0.0 < probability < 0.001:
        return "<0.001"
    if 0.999 < probability < 1.0:
        return ">0.999"
    return f"{probability:.3g}"


def _span(least: float, most: float) -> str:
    low, high = short(least), short(most)
    return high if low == high or most < 0.001 else f"{low} to {high}"


def waterfall_title(records: Sequence[Record]) -> str:
    """Say how the pair is decided."""
    asked = [record for record in records if record["used"]]
    last = asked[-1] if asked else records[-1]
    if last is not records[-1]:
        outcome = "Rejected" if last["verdict"] == "reject" else "Accepted"
        return f"{outcome} by the rule '{last['rule']}': the exact value is never computed"
    kept = "kept" if last["verdict"] == "accept" else "not kept"
    return f"Rule by rule the bounds close in on {short(last['most'])}: {kept}"


def pair_densities(
    records: Sequence[Record], *, unit: str = "", within: tuple[float, float] | None = None, title: str = ""
) -> alt.LayerChart:
    """Return where the two values of a pair may lie: records ``reading, value, density``, and the tolerance as a band.

    ``within`` is the band's two ends: the values of the second that would agree with the middle of the first.
    """
    need(records, "densities", ("reading", "value", "density"))
    return styled(density_panel(records, unit=unit, within=within), title or "Where the two values may lie")


def density_panel(
    records: Sequence[Record], *, unit: str = "", within: tuple[float, float] | None = None, band: str = "tolerance"
) -> Any:
    """Draw only the densities, as one of several panels; ``band`` is the name of the band."""
    names = list(dict.fromkeys(record["reading"] for record in records))
    # A sharp density would hide a wide one: each is drawn relative to its own peak.
    peaks = {name: max(record["density"] for record in records if record["reading"] == name) or 1.0 for name in names}
    rows = [{**record, "height": record["density"] / peaks[record["reading"]]} for record in records]
    values = [record["value"] for record in records]
    scale = alt.Scale(domain=[min(values), max(values)], nice=False, zero=False)
    area = (
        alt.Chart(data_of(rows))
        .mark_area(opacity=0.35, line={"strokeWidth": 2})
        .encode(
            x=alt.X(
                "value:Q",
                scale=scale,
                title=f"value ({unit})" if unit else "value",
                axis=alt.Axis(grid=False, tickCount=7),
            ),
            y=alt.Y(
                "height:Q",
                stack=None,
                scale=alt.Scale(domain=[0, 1.06]),
                title="density (relative)",
                axis=alt.Axis(labels=False, ticks=False, grid=False),
            ),
            color=alt.Color(
                "reading:N",
                scale=alt.Scale(domain=names, range=[BLUE, RED][: len(names)]),
                legend=alt.Legend(title=None, orient="bottom", labelLimit=400, columns=1),
            ),
        )
    )
    layers: list[Any] = []
    if within is not None:
        low, high = (min(max(end, min(values)), max(values)) for end in within)  # not beyond the chart
        held = alt.Chart(data_of([{"low": low, "high": high, "label": band}]))
        layers.append(held.mark_rect(color=ORANGE, opacity=0.25).encode(x=alt.X("low:Q", scale=scale), x2="high:Q"))
        align: Literal["left", "right"] = "left" if 2.0 * low < min(values) + max(values) else "right"
        name = held.mark_text(align=align, fontSize=12, color="#7a5600")
        layers.append(
            name.encode(x=alt.X("low:Q" if align == "left" else "high:Q", scale=scale), y=alt.value(-8), text="label:N")
        )
    layers.append(area)
    return alt.layer(*layers).properties(width=WIDTH, height=170)


# -- positions on a map ------------------------------------------------------------------------------------------------

BLOCK, ROUTE, USUAL, TODAY, OUTLIER, ALARM, OTHER_ALARM = (
    "tall building",
    "usual route",
    "usual position",
    "today, with a usual partner",
    "today, an outlier",
    "alarm",
    "alarm of the nearest centre",
)
_DASHES = "M-1.1,-.15H-.2V.15H-1.1ZM.2,-.15H1.1V.15H.2Z"
_MARKS = {
    ROUTE: (INK, _DASHES),
    TODAY: (BLUE, "circle"),
    ALARM: (RED, "triangle-down"),
    USUAL: (GREY, "circle"),
    OUTLIER: (RED, "circle"),
    OTHER_ALARM: ("#000000", "cross"),
    BLOCK: ("#d8d3cb", "square"),
}
"""Colour and shape of each kind, in the order of the legend."""

_MAP_WIDTH = 660

Line = Sequence[tuple[float, float]]


def position_map(
    records: Sequence[Record],
    *,
    route: Line,
    streets: Sequence[Line] = (),
    blocks: Sequence[tuple[float, float, float, float]] = (),
    names: Sequence[tuple[float, float, str]] = (),
) -> alt.LayerChart:
    """Uncertain positions on a map: both axes have the same scale, and circles are true to scale.

    Records ``kind, x, y, radius``: the kinds are those named above this function, and the radius is that of the circle
    that shows the uncertainty, 0 for a mark of fixed size. ``blocks`` are buildings (left, bottom, right, top), and
    ``names`` words at places.
    """
    need(records, "map", ("kind", "x", "y", "radius"))
    span = _map_span([*records, *_corners([route, *streets])], blocks)
    scale = _MAP_WIDTH / (span[2] - span[0])
    axes = {
        "x": alt.X("x:Q", scale=alt.Scale(domain=[span[0], span[2]], nice=False, zero=False), title="metres east"),
        "y": alt.Y("y:Q", scale=alt.Scale(domain=[span[1], span[3]], nice=False, zero=False), title="metres north"),
    }
    for axis in axes.values():
        axis.axis = alt.Axis(grid=False, tickMinStep=100)
    drawn = {ROUTE, *([BLOCK] if blocks else []), *(record["kind"] for record in records)}
    kinds = [kind for kind in _MARKS if kind in drawn]
    looks = _looks(kinds, _MARKS)

    def path(lines: Sequence[Line], **style: Any) -> Any:
        return alt.Chart(data_of(_corners(lines))).mark_line(**style).encode(**axes, detail="line:N", order="step:Q")

    def marks(*of: str, **style: Any) -> Any:
        rows = [record for record in records if record["kind"] in of]
        return alt.Chart(data_of(rows)).mark_point(filled=True, **style).encode(**axes, **looks)

    # Vega's size is the area of the square about the circle; a page may draw the map narrower.
    pixels = f"2 * datum.radius * width / {span[2] - span[0]}"
    circles = (
        marks(TODAY, OUTLIER, fillOpacity=0.05, strokeOpacity=0.5, strokeWidth=1)
        .transform_calculate(size=f"pow({pixels}, 2)")
        .encode(
            size=alt.Size("size:Q", scale=None),
            stroke=alt.Stroke(
                "kind:N", scale=alt.Scale(domain=kinds, range=[_MARKS[kind][0] for kind in kinds]), legend=None
            ),
        )
    )
    corners = [dict(zip(("x", "y", "x2", "y2"), block, strict=True)) for block in blocks]
    words = [{"x": x, "y": y, "name": name} for x, y, name in names]
    layers = [
        path(streets, color="#f0f0ec", strokeWidth=10, strokeCap="round"),
        alt.Chart(data_of(corners)).mark_rect(color=_MARKS[BLOCK][0]).encode(**axes, x2="x2:Q", y2="y2:Q"),
        marks(USUAL, size=7, opacity=0.7),
        circles,
        path([route], color=INK, strokeWidth=1.5, strokeDash=[5, 4]),
        marks(OTHER_ALARM, size=80, opacity=1, stroke="white", strokeWidth=1),
        marks(ALARM, size=170, opacity=1, stroke="white", strokeWidth=1, yOffset=-8),
        alt.Chart(data_of(words)).mark_text(fontSize=12, color=INK).encode(**axes, text="name:N"),
    ]
    chart = alt.layer(*layers).properties(width=_MAP_WIDTH, height=scale * (span[3] - span[1]))
    chart = chart.properties(usermeta={"equalScales": True})
    return styled(chart, _map_title(records))


def _corners(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [
        {"line": k, "step": step, "x": x, "y": y} for k, line in enumerate(lines) for step, (x, y) in enumerate(line)
    ]


def _map_span(
    points: Sequence[Record], blocks: Sequence[tuple[float, float, float, float]]
) -> tuple[float, float, float, float]:
    """Return what must be on the map, circles included, to full tens of metres."""
    boxes = [
        (point["x"] - reach, point["y"] - reach, point["x"] + reach, point["y"] + reach)
        for point in points
        for reach in [point.get("radius", 0.0) + 10.0]
    ]
    low = [min(box[k] for box in (*boxes, *blocks)) for k in (0, 1)]
    high = [max(box[k] for box in (*boxes, *blocks)) for k in (2, 3)]
    left, bottom = (10.0 * math.floor(value / 10.0) for value in low)
    right, top = (10.0 * math.ceil(value / 10.0) for value in high)
    return left, bottom, right, top


def _map_title(records: Sequence[Record]) -> str:
    count = {kind: sum(record["kind"] == kind for record in records) for kind in _MARKS}
    return (
        f"{count[OUTLIER]} of today's {count[TODAY] + count[OUTLIER]} positions are outliers: "
        f"{_alarms(count[ALARM])}; by the nearest centre, {_alarms(count[OTHER_ALARM])}"
    )


def _alarms(number: int) -> str:
    return f"{number or 'no'} alarm{'' if number == 1 else 's'}"


# -- timelines ---------------------------------------------------------------------------------------------------------

BOTH_WAYS, NEITHER_WAY, BY_OCCURRENCE, BY_DETECTION, DETECTION, MAY_HAVE, FALSE_ALARM = (
    "matched both ways",
    "true, matched neither way",
    "matched only by when it happened",
    "matched only by detection times",
    "detected",
    "may have happened",
    "false alarm",
)
_LINE = "M-1.2,-.15H1.2V.15H-1.2Z"
_DOTS = "M-1,-.15H-.7V.15H-1ZM-.15,-.15H.15V.15H-.15ZM.7,-.15H1V.15H.7Z"
_EVENT_MARKS = {
    MAY_HAVE: (BLUE, "square"),
    DETECTION: (INK, "triangle-down"),
    FALSE_ALARM: (INK, "M-.7,-.5L-.5,-.7L0,-.2L.5,-.7L.7,-.5L.2,0L.7,.5L.5,.7L0,.2L-.5,.7L-.7,.5L-.2,0Z"),
    BOTH_WAYS: (GREY, _LINE),
    BY_OCCURRENCE: (RED, _LINE),
    BY_DETECTION: (INK, _DASHES),
    NEITHER_WAY: (GREY, _DOTS),
}
"""Colour and shape of each kind, in the order of the legend."""

_ROW_HEIGHT, _BAR, _STEP = 170, 14, 26


def alarm_timeline(events: Sequence[Record], links: Sequence[Record]) -> alt.LayerChart:
    """Events of two rows whose times are uncertain, and which of them were matched, in two ways.

    Events ``event, row, detected, edges, probs``: a name, one of two rows, the first of which is drawn below, the time
    of detection, and the histogram of when the event happened. Links ``kind, left, right, true``: how the events of
    these names were matched, and whether rightly.
    """
    need(events, "timeline", ("event", "row", "detected", "edges", "probs"))
    if links:
        need(links, "timeline", ("kind", "left", "right", "true"))
    heights, labels, height = _stacked(events)
    low, high = min(event["edges"][0] for event in events), max(event["detected"] for event in events)
    room = 0.02 * (high - low)
    axes: dict[str, Any] = {
        "x": alt.X(
            "x:Q", scale=alt.Scale(domain=[low - room, high + room], nice=False, zero=False), title="seconds",
            axis=alt.Axis(grid=False),
        ),
        "y": alt.Y("y:Q", scale=alt.Scale(domain=[0, height], nice=False), axis=None),
    }  # fmt: skip
    densest = max(density for event in events for density in _densities(event))
    bars = [
        {
            "x": begin, "x2": end, "y": heights[event["event"]] - _BAR / 2, "y2": heights[event["event"]] + _BAR / 2,
            "kind": MAY_HAVE, "shade": round(0.2 + 0.8 * density / densest, 3),
        }
        for event in events
        for (begin, end), density in zip(pairwise(event["edges"]), _densities(event), strict=True)
    ]  # fmt: skip
    # A thin line from the last moment the event may have happened to its detection.
    seen = [
        {"x": event["detected"], "x2": event["edges"][-1], "y": heights[event["event"]], "kind": DETECTION}
        for event in events
    ]
    ends, crosses = _ends(events, links, heights)
    kinds = [
        kind for kind in _EVENT_MARKS
        if kind in (MAY_HAVE, DETECTION, *(link["kind"] for link in links)) or (kind == FALSE_ALARM and crosses)
    ]  # fmt: skip
    looks = _looks(kinds, _EVENT_MARKS)

    def lines(kind: str, **style: Any) -> Any:
        rows = [row for row in ends if row["kind"] == kind]
        return alt.Chart(data_of(rows)).mark_rule(**style).encode(**axes, x2="x2:Q", y2="y2:Q", color=looks["color"])

    layers = [
        alt.Chart(data_of(bars))
        .mark_rect()
        .encode(**axes, x2="x2:Q", y2="y2:Q", color=looks["color"], opacity=alt.Opacity("shade:Q", scale=None)),
        alt.Chart(data_of(seen)).mark_rule(color=GREY, strokeWidth=1).encode(**axes, x2="x2:Q"),
        lines(NEITHER_WAY, strokeWidth=2, strokeDash=[2, 4]),
        lines(BOTH_WAYS, strokeWidth=2.5),
        lines(BY_OCCURRENCE, strokeWidth=3),
        lines(BY_DETECTION, strokeWidth=1.5, strokeDash=[5, 4]),
        alt.Chart(data_of(seen)).mark_point(filled=True, size=55, opacity=1).encode(**axes, **looks),
        alt.Chart(data_of(crosses))
        .mark_point(filled=True, size=220, opacity=1, stroke="white", strokeWidth=1)
        .encode(**axes, **looks, fill=alt.Fill("colour:N", scale=None)),
        alt.Chart(data_of(labels))
        .mark_text(align="right", fontSize=12, fontWeight="bold", color=INK)
        .encode(x=alt.value(-12), y=axes["y"], text="label:N"),
    ]
    return styled(alt.layer(*layers).properties(width=_MAP_WIDTH - 70, height=height), _alarm_title(links))


def _looks(kinds: Sequence[str], marks: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Colour and shape of the kinds, named in one legend below the chart."""
    colours, shapes = ([marks[kind][k] for kind in kinds] for k in (0, 1))
    legend = alt.Legend(
        title=None, orient="bottom", columns=3, symbolSize=110, symbolStrokeWidth=0, symbolOpacity=1, labelLimit=300,
        columnPadding=20, rowPadding=6, offset=16,
    )  # fmt: skip
    return {
        "color": alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=colours), legend=legend),
        "shape": alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=shapes), legend=legend),
    }


def _densities(event: Record) -> list[float]:
    edges, probs = event["edges"], event["probs"]
    return [p / max(end - begin, 1e-12) for p, (begin, end) in zip(probs, pairwise(edges), strict=True)]


def _stacked(events: Sequence[Record]) -> tuple[dict[str, float], list[dict[str, Any]], float]:
    """Find the height of each event, so that none lies on another; the labels of the rows; and the height of all."""
    rows = list(dict.fromkeys(event["row"] for event in events))
    steps: dict[str, int] = {}
    counts = []
    for row in rows:
        free: list[float] = []  # the time from which each step is free again
        for event in sorted((event for event in events if event["row"] == row), key=lambda event: event["edges"][0]):
            step = next((k for k, time in enumerate(free) if time <= event["edges"][0]), len(free))
            free[step : step + 1] = [event["detected"] + 1e-9]
            steps[event["event"]] = step
        counts.append(len(free))
    height = _STEP * (counts[0] + counts[-1]) + _ROW_HEIGHT - 2 * _STEP
    # Both rows grow away from the space between them, where the links are.
    base = {rows[0]: (_STEP * counts[0] - _STEP / 2, -_STEP)}
    if len(rows) > 1:
        base[rows[1]] = (height - _STEP * counts[1] + _STEP / 2, _STEP)
    heights = {
        event["event"]: base[event["row"]][0] + base[event["row"]][1] * steps[event["event"]] for event in events
    }
    labels = [
        {"label": row, "y": base[row][0] + base[row][1] * (count - 1) / 2}
        for row, count in zip(rows, counts, strict=True)
    ]
    return heights, labels, height


def _ends(
    events: Sequence[Record], links: Sequence[Record], heights: Mapping[str, float]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Both ends of each link, and a cross in the middle of each that is false."""
    by_name = {event["event"]: event for event in events}
    ends, crosses = [], []
    for link in links:
        x, x2 = (
            event["detected"] if link["kind"] == BY_DETECTION else _mean(event)
            for event in (by_name[link["left"]], by_name[link["right"]])
        )
        y, y2 = heights[link["left"]], heights[link["right"]]
        reach = math.copysign(_BAR / 2, y2 - y)  # from bar to bar, not across them
        ends.append({"kind": link["kind"], "x": x, "x2": x2, "y": y + reach, "y2": y2 - reach})
        if not link["true"]:
            # in the colour of its link: where links are close, it shows which one is false
            colour = _EVENT_MARKS[link["kind"]][0]
            crosses.append({"kind": FALSE_ALARM, "x": (x + x2) / 2, "y": (y + y2) / 2, "colour": colour})
    return ends, crosses


def _mean(event: Record) -> float:
    return sum(
        p * (begin + end) / 2.0 for p, (begin, end) in zip(event["probs"], pairwise(event["edges"]), strict=True)
    )


def _alarm_title(links: Sequence[Record]) -> str:
    right = [link["kind"] for link in links if link["true"]]
    lost = right.count(NEITHER_WAY)
    return (
        f"Of {len(right)} true pairs here, matching by detection misses {lost + right.count(BY_OCCURRENCE)}, by when "
        f"they happened {lost + right.count(BY_DETECTION)}"
    )


_RING = "M-1,0A1,1,0,1,1,1,0A1,1,0,1,1,-1,0ZM-.7,0A.7,.7,0,1,0,.7,0A.7,.7,0,1,0,-.7,0Z"
FOLLOWED, TRACK, STRAY = "the one followed most often", "a drive along all cameras", "no part of a drive"
_TRACK_MARKS = {FOLLOWED: (RED, "circle"), TRACK: (BLUE, "circle"), STRAY: (GREY, _RING)}


def track_timeline(records: Sequence[Record], *, lanes: Sequence[str]) -> alt.LayerChart:
    """Sightings by place and time, and which of them are one track.

    Records ``lane, minute, name, track``: the track is a number, or ``None`` for a sighting that belongs to none. The
    name with the most tracks is highlighted and written next to them.
    """
    need(records, "timeline", ("lane", "minute", "name", "track"))
    tracked = [record for record in records if record["track"] is not None]
    names = {record["track"]: record["name"] for record in tracked}
    often = list(names.values())
    chosen = max(often, key=often.count, default=None)
    rows = [
        {
            **record,
            "minute": round(record["minute"], 3),
            "kind": STRAY if record["track"] is None else FOLLOWED if record["name"] == chosen else TRACK,
        }
        for record in records
    ]
    high = max(row["minute"] for row in rows)
    axes: dict[str, Any] = {
        "x": alt.X(
            "minute:Q", scale=alt.Scale(domain=[-0.02 * high, 1.02 * high], nice=False), title="minutes",
            axis=alt.Axis(grid=False),
        ),
        "y": alt.Y(
            "lane:N", sort=list(lanes), scale=alt.Scale(domain=list(lanes), padding=0.5), title=None,
            axis=alt.Axis(grid=True, ticks=False, domain=False),
        ),
    }  # fmt: skip
    kinds = [kind for kind in _TRACK_MARKS if any(row["kind"] == kind for row in rows)]
    looks = _looks(kinds, _TRACK_MARKS)

    def of(kind: str) -> Any:
        return alt.Chart(data_of([row for row in rows if row["kind"] == kind])).encode(**axes)

    def lines(kind: str, width: float) -> Any:
        return of(kind).mark_line(strokeWidth=width).encode(detail="track:N", order="minute:Q", color=looks["color"])

    def points(kind: str, **style: Any) -> Any:
        return of(kind).mark_point(**style).encode(**looks)

    starts: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: row["minute"]):
        # drives that begin soon after each other have one name, so that it can be read
        room = not starts or row["minute"] - starts[-1]["minute"] > 0.25 * high
        if row["kind"] == FOLLOWED and row["lane"] == lanes[0] and room:
            starts.append(row)
    layers = [
        points(STRAY, filled=True, size=45, opacity=0.6),
        lines(TRACK, 1.8),
        points(TRACK, filled=True, size=35, opacity=1),
        lines(FOLLOWED, 3),
        points(FOLLOWED, filled=True, size=70, opacity=1),
        alt.Chart(data_of(starts)).mark_text(fontSize=12, dy=-14, color=INK).encode(**axes, text="name:N"),
    ]
    chart = alt.layer(*layers).properties(width=_MAP_WIDTH - 50, height=70 * len(lanes))
    strays = sum(row["kind"] == STRAY for row in rows)
    belong = f"{_many(strays, 'sighting')} {'belongs' if strays == 1 else 'belong'} to none"
    return styled(chart, f"{_many(len(names), 'drive')} in {_many(len(rows), 'sighting')}; {belong}")


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# -- experiments -------------------------------------------------------------------------------------------------------

_SERIES = (BLUE, ORANGE, GREEN, RED, GREY, "#56B4E9", "#CC79A7", "#000000")
_PANELS = 4
"""Panels in a row."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")


def sweep_chart(
    records: Sequence[Record],
    *,
    x: str,
    lines: Sequence[str],
    title: str,
    y_title: str,
    panel: str | None = None,
    log_x: bool = False,
    log_y: bool = True,
    y_format: str = "~g",
) -> alt.ConcatChart:
    """Draw how quantities change with one parameter: a line for each of ``lines``, a panel for each ``panel``.

    Panels share the vertical axis. Where ``x`` is a name and not a number there are points without lines. On a
    logarithmic axis values of zero cannot be shown and are left out.
    """
    need(records, "sweep", (x, *lines, *([panel] if panel else [])))
    long = [
        {"at": record[x], "series": name, "value": record[name], "panel": record[panel] if panel else ""}
        for record in records
        for name in lines
        if record[name] is not None and (record[name] > 0.0 or not log_y)
    ]
    need(long, "sweep", ())
    values = [row["value"] for row in long]
    # a tenth of the range stays free above and below, so that no point lies on the border
    if log_y:
        room = max(max(values) / min(values), 2.0) ** 0.1
        domain = [min(values) / room, max(values) * room]
        powers = range(math.floor(math.log10(domain[0])), math.ceil(math.log10(domain[1])) + 1)
        steps = (1, 2, 5) if domain[1] < 100.0 * domain[0] else (1,)
        ticks: Any = [float(f"{step}e{power}") for power in powers for step in steps]
    else:
        domain, ticks = [min(0.0, *values), 1.1 * max(*values, 1e-9)], alt.Undefined
    numeric = all(isinstance(row["at"], int | float) for row in long)
    places = list(dict.fromkeys(row["at"] for row in long))
    panels = list(dict.fromkeys(row["panel"] for row in long))
    width = max(150 if numeric else 24 * len(places), WIDTH // min(len(panels), _PANELS) - 40)
    if numeric:
        scale = alt.Scale(type="log" if log_x else "linear", nice=False, padding=14, zero=False)
        style = "~s" if max(places) >= 1e4 else "~g"
        at = alt.X("at:Q", title=x, scale=scale, axis=alt.Axis(values=places, format=style, grid=False))
    else:
        at = alt.X("at:N", title=None, sort=places, axis=alt.Axis(labelAngle=-40))
    legend = alt.Legend(title=None, orient="bottom", direction="horizontal", labelLimit=300)
    drawn = []
    for number, name in enumerate(panels):
        base = alt.Chart(title=str(name)).encode(
            x=at,
            y=alt.Y(
                "value:Q",
                title=y_title if number % _PANELS == 0 else None,
                scale=alt.Scale(type="log" if log_y else "linear", domain=domain, nice=False),
                axis=alt.Axis(format=y_format, values=ticks, tickCount=5, labels=number % _PANELS == 0),
            ),
            color=alt.Color(
                "series:N",
                scale=alt.Scale(domain=list(lines), range=list(_SERIES[: len(lines)])),
                legend=None if len(lines) < 2 else legend,
            ),
            shape=alt.Shape(
                "series:N", scale=alt.Scale(domain=list(lines), range=list(_SHAPES[: len(lines)])), legend=None
            ),
        )
        points: dict[str, Any] = {"filled": True, "size": 60, "opacity": 1}
        marked = (
            base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(**points)) if numeric else base.mark_point(**points)
        )
        here = marked.transform_filter(f"datum.panel === {json.dumps(name)}")
        drawn.append(here.properties(width=width, height=240))
    chart = styled(alt.concat(*drawn, columns=_PANELS, spacing=24), title)
    chart.data = data_of(long)  # last: every step before it copies the chart
    return chart
