"""The site's pictures, drawn by the docs build from haply itself: every number in them is one the library computed.

Most are drawn here. Some are drawn by the pages that show them, from the data of the page: a block of a page that
saves ``name.svg`` draws ``_pictures/name.svg``. Each picture is drawn for a light and for a dark page.

``python docs/pictures.py FOLDER`` draws all of them; ``conf.py`` does so before each build.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import altair as alt
import front
import numpy as np
import pandas as pd
from markdown_it import MarkdownIt

from haply.drawing.dark import DARK
from haply.joins import PairJoin
from haply.models import (
    Certain,
    Gaussian,
    Histogram,
    Mixture,
    OneDimensional,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.probability import Difference, Region, difference_cdf, equal_within, region_probability
from haply.pruning.bounds.one_dimensional import concentration_bound, containment_bound, facts
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.cascade import Cascade
from haply.pruning.threshold import Pairing, Threshold

# Colours that people with colour-blindness can tell apart (Okabe and Ito).
LEFT, RIGHT, YES, NO, OPEN, QUIET, INK = "#0072B2", "#D55E00", "#009E73", "#B9BEC4", "#E69F00", "#8A9097", "#22262B"
WIDTH = 620
HERE = Path(__file__).parent

PICTURES: dict[str, Callable[[], alt.TopLevelMixin]] = {}


def picture(draw: Callable[[], alt.TopLevelMixin]) -> Callable[[], alt.TopLevelMixin]:
    """Register a drawing under its function's name."""
    PICTURES[draw.__name__] = draw
    return draw


def styled(chart: alt.TopLevelMixin) -> alt.TopLevelMixin:
    """One look for all pictures."""
    return (
        chart.configure(background="white", padding=24, font="Helvetica, Arial, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(
            grid=False, labelFontSize=12, titleFontSize=12.5, titleFontWeight="normal", titleColor=INK, labelColor=INK,
            tickColor=QUIET, domainColor=QUIET,
        )
        .configure_title(fontSize=13.5, fontWeight="bold", anchor="start", color=INK, offset=8)
        .configure_legend(labelFontSize=12, titleFontSize=12.5, symbolSize=140, labelColor=INK, labelLimit=400)
        .configure_text(fontSize=12.5)
        .configure_concat(spacing=18)
    )  # fmt: skip


def names() -> set[str]:
    """Return the names of all pictures."""
    return {"front", *PICTURES, *pages_that_draw()}


def draw_all(folder: Path, wanted: Collection[str] | None = None) -> list[Path]:
    """Draw pictures into the folder, by default all, with a dark one beside each; returns the light ones."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = names() if wanted is None else wanted
    drawn = {name: readable(svg_of(styled(draw()))) for name, draw in PICTURES.items() if name in wanted}
    for page in sorted({page for name, page in pages_that_draw().items() if name in wanted}):
        drawn |= drawn_by(page)
    dark = {name: darkened(svg) for name, svg in drawn.items()}
    if "front" in wanted:
        drawn["front"], dark["front"] = front.drawing("light"), front.drawing("dark")
    for name, svg in drawn.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{name}-dark.svg").write_text(dark[name], encoding="utf-8")
    return [folder / f"{name}.svg" for name in drawn]


def shown_on(page: Path) -> set[str]:
    """Return the names of the pictures that a page shows."""
    return set(re.findall(r"_pictures/(\w+)\.svg", page.read_text(encoding="utf-8")))


def svg_of(chart: alt.TopLevelMixin) -> str:
    text = io.StringIO()
    chart.save(text, format="svg")
    return text.getvalue()


IN_WORDS = {YES: "#007a59", RIGHT: "#b34a00", QUIET: "#666e76", OPEN: "#7a5600"}
"""Darker colours for words than for shapes, so that they can be read."""


def readable(svg: str) -> str:
    """Return the picture with darker words."""

    def word(found: re.Match[str]) -> str:
        return found[1] + IN_WORDS.get(found[2], found[2]) + found[3]

    return re.sub(r'(<text [^>]*fill=")([^"]+)(")', word, svg)


DARK_COLOURS = DARK | {
    **dict.fromkeys(("white", "#fff", "#ffffff"), "#131416"),  # the ground of the site in the dark
    INK.lower(): "#e6edf3",
    "#e4e8ec": "#2c3138",
    "#f1f3f5": "#1c1f24",
    "#dde1e5": "#343a41",
    NO.lower(): "#565d66",
    IN_WORDS[QUIET]: "#a9b1ba",
}
"""What becomes of the colours of a light picture in a dark one. All others are readable on both grounds."""


def darkened(svg: str) -> str:
    """Return the picture for a dark page."""

    def colour(found: re.Match[str]) -> str:
        return f'{found[1]}"{DARK_COLOURS.get(found[2].lower(), found[2])}"'

    return re.sub(r'((?:fill|stroke)=)"([^"]+)"', colour, svg)


# -- pictures that pages draw -----------------------------------------------------------------------------------------


def pages_that_draw() -> dict[str, Path]:
    """Return the pages that save a picture that they show, by the picture's name."""
    found = {}
    for page in sorted(HERE.rglob("*.md")):
        saved = re.findall(r'\.save\("(\w+)\.svg"\)', page.read_text(encoding="utf-8"))
        found |= dict.fromkeys(set(saved) & shown_on(page) - set(PICTURES), page)
    return found


def drawn_by(page: Path) -> dict[str, str]:
    """Run the Python of a page in an empty folder; returns the pictures that it saves and shows."""
    names: dict[str, Any] = {"__name__": "__page__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
            if token.type == "fence" and token.info.strip() == "python":
                exec(compile(token.content, str(page), "exec"), names)
        shown = [name for name, place in pages_that_draw().items() if place == page]
        return {name: Path(f"{name}.svg").read_text(encoding="utf-8") for name in shown}


# -- pieces that several pictures share ------------------------------------------------------------------------------


def density(model: OneDimensional, x: np.ndarray) -> np.ndarray:
    """Slope of the first row's cdf."""
    step = 1e-4
    row = np.zeros(len(x), dtype=np.int64)
    many = model.take(row)
    return (many.cdf(x + step) - many.cdf(x - step)) / (2 * step)


def difference_density(a: OneDimensional, b: OneDimensional, t: np.ndarray) -> np.ndarray:
    """Slope of the cdf of the difference of two single values."""
    step = 1e-3
    return (difference_cdf(a, b, t + step) - difference_cdf(a, b, t - step)) / (2 * step)


def curve(x: np.ndarray, y: np.ndarray, **more: object) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "y": y, **more})


def rule_at(value: float, colour: str = INK, dash: tuple[int, ...] = (4, 3)) -> alt.Chart:
    return alt.Chart(pd.DataFrame({"x": [value]})).mark_rule(color=colour, strokeDash=list(dash)).encode(x=alt.X("x:Q"))


def note(x: float, y: float, text: str, **style: object) -> alt.Chart:
    """Words at a place."""
    data = pd.DataFrame({"x": [x], "y": [y], "text": [text]})
    look = {"align": "left", "baseline": "middle", "color": INK, "lineBreak": "\n"} | style
    return alt.Chart(data).mark_text(**look).encode(x="x:Q", y="y:Q", text="text:N")


# -- concepts ---------------------------------------------------------------------------------------------------------


@picture
def models() -> alt.TopLevelMixin:
    """The one-dimensional models: a density, or atoms with their probability."""
    shown: list[tuple[str, OneDimensional]] = [
        ("a plain number", Certain(4.0)),
        ("hp.uniform(2, 6)", Uniform(2.0, 6.0)),
        ("hp.gaussian(4, 1)", Gaussian(4.0, 1.0)),
        ("hp.truncated_gaussian(4, 2, 3, 7)", TruncatedGaussian(4.0, 2.0, 3.0, 7.0)),
        ("hp.mixture([.3, .7], [2, 5], [.5, .8])", Mixture([[0.3, 0.7]], [[2.0, 5.0]], [[0.5, 0.8]])),
        ("hp.histogram([1, 2, 4, 5, 7], [.1, .5, .1, .3])", Histogram([[1, 2, 4, 5, 7]], [[0.1, 0.5, 0.1, 0.3]])),
        ("hp.samples([2, 3, 3.5, 6])", Samples([[2.0, 3.0, 3.5, 6.0]])),
        ("hp.samples([2, 4, 7], [.6, .3, .1])", Samples([[2.0, 4.0, 7.0]], [[0.6, 0.3, 0.1]])),
    ]
    x = np.linspace(0, 8, 801)
    panels = []
    for title, model in shown:
        axis = alt.X("x:Q", scale=alt.Scale(domain=[0, 8]), title=None)
        parts = model.components
        if (parts.low == parts.high).all():
            atoms = pd.DataFrame({"x": parts.low, "y": parts.weight})
            base = alt.Chart(atoms).encode(
                x=axis, y=alt.Y("y:Q", title="probability", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=3))
            )
            stems = base.mark_rule(strokeWidth=2.5, color=LEFT).encode(y2=alt.datum(0))
            panel = stems + base.mark_point(filled=True, size=70, color=LEFT, opacity=1)
        else:
            y_axis = alt.Y("y:Q", title="density", axis=alt.Axis(tickCount=3))
            panel = (
                alt.Chart(curve(x, density(model, x)))
                .mark_area(color=LEFT, opacity=0.35, line={"color": LEFT}, interpolate="linear")
                .encode(x=axis, y=y_axis)
            )
        panels.append(panel.properties(width=275, height=90, title=alt.TitleParams(title, fontSize=12.5)))
    return alt.concat(*panels, columns=2, spacing=26)


@picture
def condition_area() -> alt.TopLevelMixin:
    """Two values, their difference, and the probability of the condition as an area."""
    a, b, within = Gaussian(20.0, 0.3), Gaussian(20.4, 0.4), 0.5
    x = np.linspace(18.8, 21.9, 400)
    both = pd.concat([curve(x, density(a, x), side="left.temp"), curve(x, density(b, x), side="right.temp")])
    colour = alt.Color(
        "side:N",
        scale=alt.Scale(domain=["left.temp", "right.temp"], range=[LEFT, RIGHT]),
        legend=alt.Legend(title=None, orient="top-right"),
    )
    top = (
        alt.Chart(both)
        .mark_area(opacity=0.35, line=True, interpolate="linear")
        .encode(
            x=alt.X("x:Q", title="temperature", axis=alt.Axis(tickCount=7), scale=alt.Scale(domain=[18.8, 21.9])),
            y=alt.Y("y:Q", stack=None, title="density", axis=alt.Axis(tickCount=3)),
            color=colour,
        )
        .properties(width=WIDTH, height=150, title="Two uncertain values")
    )
    t = np.linspace(-2.1, 1.5, 721)
    y = difference_density(a, b, t)
    probability = equal_within(a, b, within)[0]
    inside = (t >= -within) & (t <= within)
    x_axis = alt.X("x:Q", title="left.temp - right.temp", scale=alt.Scale(domain=[-2.1, 1.5], nice=False))
    y_axis = alt.Y("y:Q", title="density", axis=alt.Axis(tickCount=3))
    line = alt.Chart(curve(t, y)).mark_line(color=INK).encode(x=x_axis, y=y_axis)
    area = alt.Chart(curve(t[inside], y[inside])).mark_area(color=YES, opacity=0.55).encode(x=x_axis, y=y_axis)
    bottom = (
        area
        + line
        + rule_at(-within)
        + rule_at(within)
        + note(0.56, 0.5, f"the green area\nis P = {probability:.3f}", color=YES, fontWeight="bold")
        + note(-0.53, 0.84, "-0.5", align="right")
        + note(0.53, 0.84, "0.5")
    ).properties(width=WIDTH, height=170, title="abs(left.temp - right.temp) <= 0.5")
    return alt.vconcat(top, bottom)


@picture
def conditions() -> alt.TopLevelMixin:
    """Four conditions as sets of differences."""
    a, b = Gaussian(1.0, 1.0), Gaussian(0.0, 1.2)
    t = np.linspace(-5, 7, 1201)
    y = difference_density(a, b, t)
    shown = [
        ("equality within", "abs(left.x - right.x) <= 1.5", Region(-1.5, 1.5)),
        ("comparison", "left.x > right.x", Region(0, math.inf, low_closed=False)),
        ("band", "left.x - right.x BETWEEN 1 AND 3", Region(1, 3)),
        ("far apart", "abs(left.x - right.x) > 3", Region(-3, 3, outside=True)),
    ]
    panels = []
    for name, text, region in shown:
        holds = np.array([region.contains(float(value)) for value in t])
        pieces = np.cumsum(np.concatenate([[0], np.diff(holds.astype(int)) != 0]))
        area = (
            alt.Chart(curve(t[holds], y[holds], piece=pieces[holds]))
            .mark_area(color=YES, opacity=0.55)
            .encode(x="x:Q", y=alt.Y("y:Q", axis=None, stack=None), detail="piece:N")
        )
        line = (
            alt.Chart(curve(t, y))
            .mark_line(color=INK, strokeWidth=1.5)
            .encode(
                x=alt.X("x:Q", title="left.x - right.x", scale=alt.Scale(domain=[-5, 7])),
                y=alt.Y("y:Q", title=None, axis=None),
            )
        )
        ends = [rule_at(end) for end in (region.low, region.high) if math.isfinite(end)]
        probability = region_probability(a, b, region)[0]
        words = note(3.4, 0.2, f"P = {probability:.3f}", color=YES, fontWeight="bold")
        title = alt.TitleParams(name, subtitle=text, subtitleFontSize=12, subtitleColor=INK, fontSize=13)
        panels.append(alt.layer(area, line, *ends, words).properties(width=290, height=110, title=title))
    return alt.vconcat(alt.hconcat(*panels[:2], spacing=30), alt.hconcat(*panels[2:], spacing=30))


@picture
def threshold() -> alt.TopLevelMixin:
    """How near two values must be for a threshold, at three spreads."""
    gap, limit = np.linspace(0, 3, 301), 0.7
    parts = []
    for sd in (0.2, 0.5, 0.9):
        p = equal_within(Gaussian(gap, sd), Gaussian(0.0, sd), 1.0)
        parts.append(curve(gap, p, sd=f"sd {sd} on both sides"))
    data = pd.concat(parts)
    lines = (
        alt.Chart(data)
        .mark_line(strokeWidth=2.5)
        .encode(
            x=alt.X("x:Q", title="distance between the two means"),
            y=alt.Y("y:Q", title="P(|left - right| <= 1)", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "sd:N",
                scale=alt.Scale(range=[LEFT, OPEN, RIGHT]),
                legend=alt.Legend(title=None, orient="none", legendX=390, legendY=10),
            ),
        )
    )
    ground = (
        alt.Chart(pd.DataFrame({"low": [limit], "high": [1.0], "x": [0], "x2": [3]}))
        .mark_rect(color=YES, opacity=0.13)
        .encode(x="x:Q", x2="x2:Q", y="low:Q", y2="high:Q")
    )
    rule = (
        alt.Chart(pd.DataFrame({"y": [limit]})).mark_rule(color=YES, strokeWidth=2, strokeDash=[6, 4]).encode(y="y:Q")
    )
    words = note(1.62, 0.74, "kept: P >= 0.7", color=YES, fontWeight="bold") + note(
        1.62, 0.655, "left out", color=QUIET, fontWeight="bold"
    )
    return (ground + rule + lines + words).properties(width=WIDTH, height=270)


def _core(mean: float, sd: float, level: float) -> tuple[float, float]:
    value = Gaussian(mean, sd)
    return float(value.quantile_low(level)[0]), float(value.quantile_high(level)[0])


@picture
def core() -> alt.TopLevelMixin:
    """Core regions of two values at thresholds .5 and .9, and whether the pair is a candidate."""
    within = 1.0
    sides = [("left", 0.0, 1.0, LEFT, 0.62), ("right", 1.2, 0.7, RIGHT, 0.38)]
    panels = []
    x = np.linspace(-3.4, 4.6, 500)
    span = alt.Scale(domain=[-3.4, 4.6], nice=False)
    for limit in (0.5, 0.9):
        level = Threshold(limit).core_level(Pairing.ANY)
        top = alt.layer(
            *(
                alt.Chart(curve(x, density(Gaussian(mean, sd), x)))
                .mark_area(color=colour, opacity=0.25, line={"color": colour})
                .encode(x=alt.X("x:Q", scale=span, title=None, axis=alt.Axis(labels=False)), y=alt.Y("y:Q", axis=None))
                for _, mean, sd, colour, _ in sides
            ),
            note(-3.3, 0.5, "left: mean 0, sd 1", color=LEFT),
            note(2.3, 0.5, "right: mean 1.2, sd 0.7", color=RIGHT),
        ).properties(
            width=WIDTH, height=80,
            title=f"threshold {limit:g}: a tail of {level:.3f} is cut from each side of each value",
        )  # fmt: skip
        layers: list[alt.Chart] = []
        halves = []
        for name, mean, sd, colour, y in sides:
            start, end = _core(mean, sd, level)
            halves.append((end - start) / 2)
            turned = start > end
            bar = pd.DataFrame({"x": [min(start, end)], "x2": [max(start, end)], "y": [y]})
            layers.append(
                alt.Chart(bar)
                .mark_bar(
                    height=13, color="white" if turned else colour, stroke=colour, strokeWidth=1.6,
                    strokeDash=[4, 3] if turned else [1, 0],
                )
                .encode(x=alt.X("x:Q", scale=span, title="value"), x2="x2:Q", y="y:Q")
            )  # fmt: skip
            centre = pd.DataFrame({"x": [mean], "y": [y]})
            layers.append(
                alt.Chart(centre).mark_point(filled=True, color=INK, size=45, opacity=1).encode(x="x:Q", y="y:Q")
            )
            words = f"{name} core{' (turned over)' if turned else ''}: h = {halves[-1]:.2f}"
            layers.append(note(-3.3 if name == "left" else 1.75, y, words, color=colour))
        reach = within + sum(halves)
        candidate = abs(sides[0][1] - sides[1][1]) <= reach
        tint = YES if candidate else INK
        stretch = pd.DataFrame({"x": [-reach], "x2": [reach], "y": [0.13]})
        layers.append(alt.Chart(stretch).mark_rule(color=tint, strokeWidth=3).encode(x="x:Q", x2="x2:Q", y="y:Q"))
        ends = pd.DataFrame({"x": [-reach, reach], "y": [0.13, 0.13]})
        layers.append(
            alt.Chart(ends).mark_tick(color=tint, thickness=3, size=15, orient="vertical").encode(x="x:Q", y="y:Q")
        )
        verdict = "a candidate" if candidate else "rejected"
        layers.append(note(2.1, 0.13, f"reach {reach:.2f}: {verdict}", color=tint, fontWeight="bold"))
        sum_of = f"1 + ({halves[0]:.2f}) + ({halves[1]:.2f}) = {reach:.2f}"
        layers.append(note(-3.3, 0.9, f"reach = tolerance + h + h = {sum_of}; the means are 1.2 apart", color=tint))
        line = pd.DataFrame({"x": [1.2], "y": [0.13], "y2": [0.38]})
        layers.append(alt.Chart(line).mark_rule(color=RIGHT, strokeDash=[2, 2]).encode(x="x:Q", y="y:Q", y2="y2:Q"))
        bottom = (
            alt.layer(*layers)
            .encode(y=alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[0, 1])))
            .properties(width=WIDTH, height=135)
        )
        panels.append(alt.vconcat(top, bottom, spacing=0))
    return alt.vconcat(*panels, spacing=26)


@picture
def hopeless() -> alt.TopLevelMixin:
    """The most that a window of length 2c can hold of a value."""
    within, limit = 0.5, 0.5
    x = np.linspace(-3, 3, 601)
    panels = []
    for sd in (0.4, 1.0):
        value = Gaussian(0.0, sd)
        y = density(value, x)
        held = float(value.concentration(2 * within)[0])
        window = (x >= -within) & (x <= within)
        lost = held < limit
        area = (
            alt.Chart(curve(x[window], y[window]))
            .mark_area(color=RIGHT if lost else YES, opacity=0.55)
            .encode(x="x:Q", y=alt.Y("y:Q", axis=None))
        )
        line = (
            alt.Chart(curve(x, y))
            .mark_line(color=INK)
            .encode(
                x=alt.X("x:Q", title="value", scale=alt.Scale(domain=[-3, 3])),
                y=alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[0, 1.05])),
            )
        )
        verdict = "hopeless: no\npartner can\nbring it to 0.5" if lost else "it may match"
        words = note(0.6, 0.72, f"at most {held:.3f}\n{verdict}", color=RIGHT if lost else YES, fontWeight="bold")
        panels.append(
            (area + line + rule_at(-within) + rule_at(within) + words).properties(
                width=290, height=150, title=f"sd {sd:g}"
            )
        )
    return alt.hconcat(*panels, spacing=30)


@picture
def gaussian_curve() -> alt.TopLevelMixin:
    """Where Gaussian pairs qualify: mean and spread of the difference, the curve, and pairs around it."""
    within, limit = 1.0, 0.6
    rng = np.random.default_rng(7)
    n = 60
    a = Gaussian(rng.uniform(0, 12, n), rng.uniform(0.05, 1.2, n))
    b = Gaussian(rng.uniform(0, 12, n), rng.uniform(0.05, 1.2, n))
    region, wanted = Region(-within, within), Threshold(limit)
    left, right = (row_intervals(m, k == 0, region, wanted, False) for k, m in enumerate((a, b)))
    i, j = np.divmod(np.arange(n * n), n)
    good = ~left.hopeless[i] & ~right.hopeless[j]
    candidate = good & (left.start[i] <= right.end[j]) & (right.start[j] <= left.end[i])
    m = np.abs(a.mean()[i] - b.mean()[j])
    s = np.hypot(a.sd[i], b.sd[j])
    near = (m < 2.4) & good
    cascade = Cascade(a, b, region, wanted, False)
    verdicts = cascade.verdicts(i.astype(np.int32), j.astype(np.int32))
    kind = np.where(verdicts > 0, "accepted by the curve", np.where(verdicts < 0, "rejected by the curve", "evaluated"))
    kind = np.where(candidate, kind, "rejected by the core")
    points = pd.DataFrame({"m": m[near], "s": s[near], "kind": kind[near]})
    names = ["accepted by the curve", "rejected by the curve", "rejected by the core"]
    points = points[points.kind.isin(names)]
    # the curve itself, by halving the distance at which the probability falls to the threshold
    spread = np.linspace(1e-3, 1.186, 300)
    low, high = np.zeros(len(spread)), np.full(len(spread), 3.0)
    for _ in range(60):
        middle = (low + high) / 2
        enough = equal_within(Gaussian(middle, spread), Certain(0.0), within) >= limit
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    edge = pd.DataFrame({"m": low, "s": spread})
    edge = edge[edge.m > 1e-6]
    x_axis = alt.X("m:Q", title="distance between the means", scale=alt.Scale(domain=[0, 2.4], nice=False))
    y_axis = alt.Y("s:Q", title="sd of the difference", scale=alt.Scale(domain=[0, 1.7], nice=False))
    inside = alt.Chart(edge).mark_area(color=YES, opacity=0.15, orient="horizontal").encode(x=x_axis, y=y_axis)
    line = alt.Chart(edge).mark_line(color=YES, strokeWidth=2.5, order=False).encode(x=x_axis, y=y_axis, order="s:Q")
    dots = (
        alt.Chart(points)
        .mark_point(filled=True, size=32, opacity=0.85)
        .encode(
            x=x_axis,
            y=y_axis,
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(domain=names, range=[YES, RIGHT, NO]),
                legend=alt.Legend(title=None, orient="top"),
            ),
        )
    )
    words = note(1.03, 0.045, "\u2190 inside the curve P >= 0.6", color=YES, fontWeight="bold")
    return (inside + dots + line + words).resolve_scale(color="independent").properties(width=WIDTH, height=300)


@picture
def cascade() -> alt.TopLevelMixin:
    """Certified bounds of some pairs against the threshold: rejected, accepted, or evaluated."""
    limit, within = 0.6, 1.0
    rng = np.random.default_rng(5)
    n = 400
    a = Uniform(lo := rng.uniform(0, 4, n), lo + rng.uniform(0.1, 3, n))
    edges = rng.uniform(0, 4, (n, 1)) + np.cumsum(
        np.concatenate([np.zeros((n, 1)), rng.uniform(0.1, 0.8, (n, 3))], 1), 1
    )
    masses = rng.dirichlet([1, 1, 1], n)
    b = Histogram(edges.tolist(), masses.tolist())
    facts_a, facts_b = facts(a, 2 * within, False), facts(b, 2 * within, False)
    exact = equal_within(a, b, within)
    sides = (a.components, facts_a), (b.components, facts_b)
    rows = []
    for k in range(n):
        arguments = (*sides[0], k, *sides[1], k, -within, within)
        low, high = containment_bound(*arguments), concentration_bound(*arguments)
        verdict = "rejected: upper bound below 0.6" if high < limit else "accepted: lower bound above 0.6"
        if low < limit <= high:
            verdict = "evaluated: the exact value decides"
        if high > 0.02 and low < 0.98 and high - low > 0.04:
            rows.append({"low": low, "high": min(high, 1.0), "exact": exact[k], "verdict": verdict})
    data = pd.DataFrame(rows)
    names = ["rejected: upper bound below 0.6", "evaluated: the exact value decides", "accepted: lower bound above 0.6"]
    data = pd.concat([data[data.verdict == name].head(6) for name in names])
    data = data.sort_values("exact").assign(pair=[f"{k + 1}" for k in range(len(data))])
    order = data.pair.tolist()[::-1]
    y = alt.Y("pair:N", sort=order, title="pair", axis=alt.Axis(labels=False, ticks=False, domain=False))
    colour = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=names, range=[RIGHT, OPEN, YES]),
        legend=alt.Legend(title=None, orient="top", columns=1),
    )
    x = alt.X("low:Q", title="probability of the condition", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    bars = alt.Chart(data).mark_bar(height=7, opacity=0.75).encode(x=x, x2="high:Q", y=y, color=colour)
    dots = alt.Chart(data).mark_point(filled=True, color=INK, size=36, opacity=1).encode(x="exact:Q", y=y)
    rule = (
        alt.Chart(pd.DataFrame({"x": [limit]})).mark_rule(color=INK, strokeDash=[6, 4], strokeWidth=1.6).encode(x="x:Q")
    )
    return (bars + dots + rule).properties(width=WIDTH, height=300)


@picture
def funnel() -> alt.TopLevelMixin:
    """A real join of 3,000 by 3,000 rows, stage by stage."""
    n = 3_000
    rng = np.random.default_rng(1)
    join = PairJoin(Difference("temp", "temp", Region(-0.5, 0.5)), 0.7)
    join.push("left", {"id": np.arange(n), "temp": Gaussian(rng.uniform(0, 400, n), rng.uniform(0.1, 0.6, n))})
    join.push("right", {"id": np.arange(n), "temp": Gaussian(rng.uniform(0, 400, n), rng.uniform(0.1, 0.6, n))})
    counts = join.funnel
    stages = [
        ("pairs possible", n * n, "all rows with all"),
        ("candidates", counts.candidates, "cores in reach"),
        ("evaluated exactly", counts.evaluated, "not rejected by a bound"),
        ("kept", counts.kept, "P >= 0.7"),
    ]
    data = pd.DataFrame(stages, columns=["stage", "pairs", "why"])
    data["words"] = [f"{pairs:,}: {why}" for _, pairs, why in stages]
    data["floor"] = 1
    base = alt.Chart(data).encode(
        y=alt.Y(
            "stage:N",
            sort=[s[0] for s in stages],
            title=None,
            axis=alt.Axis(domain=False, ticks=False, labelLimit=200, labelFontSize=13),
        )
    )
    bars = base.mark_bar(height=30).encode(
        x=alt.X(
            "floor:Q",
            scale=alt.Scale(type="log", domain=[1, 2e11]),
            axis=alt.Axis(
                title="pairs (each step of the axis is ten times the one before)",
                values=[10.0**k for k in range(8)],
                format="~s",
                domain=False,
            ),
        ),
        x2="pairs:Q",
        color=alt.Color(
            "stage:N",
            sort=[s[0] for s in stages],
            scale=alt.Scale(domain=[s[0] for s in stages], range=[NO, LEFT, OPEN, YES]),
            legend=None,
        ),
    )
    words = base.mark_text(align="left", dx=8, color=INK).encode(x="pairs:Q", text="words:N")
    return (bars + words).properties(width=WIDTH - 60, height=190)


@picture
def cells() -> alt.TopLevelMixin:
    """Intervals over three cells: where a row lives, where it is copied, and where its pairs are found."""
    edges = [4.0, 8.0]
    rows = [
        ("L1", 0.8, 3.2, 6), ("L2", 3.0, 5.4, 5), ("L3", 6.6, 9.4, 4),
        ("R1", 1.7, 3.5, 3), ("R2", 4.6, 7.2, 2), ("R3", 8.8, 10.6, 1),
    ]  # fmt: skip
    span = alt.Scale(domain=[0, 12])
    frame = pd.DataFrame(rows, columns=["row", "x", "x2", "y"])
    frame["colour"] = [LEFT] * 3 + [RIGHT] * 3
    bounds = [0.0, *edges, 12.0]
    copies = []
    for name, low, high, y in rows:
        for k in range(3):
            if bounds[k] < high and low < bounds[k + 1]:
                native = bounds[k] <= low < bounds[k + 1]
                copies.append(
                    {"row": name, "x": max(low, bounds[k]), "x2": min(high, bounds[k + 1]), "y": y,
                     "kind": "in its own cell" if native else "copied", "side": name[0]}
                )  # fmt: skip
    parts = pd.DataFrame(copies)
    y_scale = alt.Scale(domain=[-0.6, 7.6])
    layers: list[alt.Chart] = []
    band = pd.DataFrame({"x": bounds[:-1], "x2": bounds[1:], "y": [7.6] * 3, "y2": [-0.6] * 3, "k": ["a", "b", "c"]})
    layers.append(
        alt.Chart(band)
        .mark_rect(opacity=0.5)
        .encode(
            x=alt.X("x:Q", scale=span, title="position of the intervals"),
            x2="x2:Q",
            y=alt.Y("y:Q", scale=y_scale, axis=None),
            y2="y2:Q",
            color=alt.Color(
                "k:N", scale=alt.Scale(domain=["a", "b", "c"], range=["#F1F3F5", "#E4E8EC", "#F1F3F5"]), legend=None
            ),
        )
    )
    for side, colour in (("L", LEFT), ("R", RIGHT)):
        for kind, filled in (("in its own cell", True), ("copied", False)):
            chosen = parts[(parts.side == side) & (parts.kind == kind)]
            layers.append(
                alt.Chart(chosen)
                .mark_bar(
                    height=14, color=colour if filled else "white", stroke=colour, strokeWidth=1.6,
                    strokeDash=[1, 0] if filled else [4, 3],
                )
                .encode(x="x:Q", x2="x2:Q", y="y:Q")
            )  # fmt: skip
    layers.append(
        alt.Chart(frame)
        .mark_text(align="right", dx=-6, fontWeight="bold", color=INK)
        .encode(x="x:Q", y="y:Q", text="row:N")
    )
    pairs = []
    for name, low, high, y in rows[:3]:
        for other, other_low, other_high, other_y in rows[3:]:
            if low <= other_high and other_low <= high:
                pairs.append(
                    {"x": max(low, other_low), "y": 0.0, "pair": f"{name}-{other}", "top": y, "bottom": other_y}
                )
    meet = pd.DataFrame(pairs)
    meet["zero"] = 0.0
    layers.append(
        alt.Chart(meet).mark_rule(color=INK, strokeDash=[2, 3], opacity=0.7).encode(x="x:Q", y="zero:Q", y2="top:Q")
    )
    layers.append(
        alt.Chart(meet)
        .mark_point(shape="diamond", filled=True, size=110, color=INK, opacity=1)
        .encode(x="x:Q", y="zero:Q")
    )
    layers.append(alt.Chart(meet).mark_text(dy=17, color=INK, fontSize=12).encode(x="x:Q", y="zero:Q", text="pair:N"))
    for k, name in enumerate(("cell 0", "cell 1", "cell 2")):
        layers.append(note((bounds[k] + bounds[k + 1]) / 2, 7.2, name, align="center", fontWeight="bold"))
    return alt.layer(*layers).resolve_scale(color="independent").properties(width=WIDTH, height=300)


@picture
def slices() -> alt.TopLevelMixin:
    """One crowded cell: parts of one side meet every part of the other."""
    data = pd.DataFrame(
        [
            {"left": f"left part {i}", "right": f"right part {j}", "task": f"task {3 * j + i}"}
            for i in range(3)
            for j in range(2)
        ]
    )
    base = alt.Chart(data).encode(
        x=alt.X(
            "left:N", title=None, axis=alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False, labelColor=LEFT)
        ),
        y=alt.Y("right:N", title=None, axis=alt.Axis(domain=False, ticks=False, labelColor=RIGHT)),
    )
    tiles = base.mark_rect(color="#E4E8EC", stroke="white", strokeWidth=4)
    words = base.mark_text(color=INK).encode(text="task:N")
    return (tiles + words).properties(width=420, height=110, title="cell 1 with left_slices = 3 and right_slices = 2")


@picture
def sure_ranges() -> alt.TopLevelMixin:
    """All pairs of two small tables under left.x > right.x: most are decided by position."""
    n = 26
    rng = np.random.default_rng(3)
    a = Uniform(lo := np.sort(rng.uniform(0, 20, n)), lo + rng.uniform(1, 4, n))
    b = Uniform(lo := np.sort(rng.uniform(0, 20, n)), lo + rng.uniform(1, 4, n))
    region, wanted = Region(0, math.inf, low_closed=False), Threshold(0.5)
    left, right = (row_intervals(m, k == 0, region, wanted, True) for k, m in enumerate((a, b)))
    i, j = np.divmod(np.arange(n * n), n)
    above, below = left.start[i] > right.end[j], left.end[i] < right.start[j]
    names = ["accepted by position (sure range)", "candidate: the cascade decides", "rejected by position"]
    kind = np.where(above, names[0], np.where(below, names[2], names[1]))
    data = pd.DataFrame({"i": i, "j": j, "kind": kind})
    axis = alt.Axis(labels=False, ticks=False, domain=False)
    return (
        alt.Chart(data)
        .mark_rect(stroke="white", strokeWidth=0.8)
        .encode(
            x=alt.X("j:O", title="right rows, in order of their values", axis=axis),
            y=alt.Y("i:O", title="left rows, in order of their values", axis=axis, sort="descending"),
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(domain=names, range=[YES, OPEN, "#DDE1E5"]),
                legend=alt.Legend(title=None, orient="bottom", columns=1),
            ),
        )
        .properties(width=300, height=300)
    )


# -- how-tos ----------------------------------------------------------------------------------------------------------


@picture
def latency() -> alt.TopLevelMixin:
    """A latency distribution, and the event time it gives."""
    edges, probs, detected = [0.0, 1.0, 3.0, 6.0], [0.6, 0.3, 0.1], 100.0
    delay = Histogram([edges], [probs])
    happened = Histogram([[detected - edge for edge in reversed(edges)]], [probs[::-1]])
    panels = []
    for model, x, title, axis in (
        (
            delay,
            np.linspace(-1, 8, 901),
            "the latency: most events are seen within a second",
            "seconds from event to detection",
        ),
        (happened, np.linspace(92.5, 101.5, 901), "detected at 100: when it happened", "time of the event"),
    ):
        shape = (
            alt.Chart(curve(x, density(model, x)))
            .mark_area(color=LEFT, opacity=0.35, line={"color": LEFT})
            .encode(
                x=alt.X(
                    "x:Q",
                    title=axis,
                    scale=alt.Scale(domain=[float(x[0]), float(x[-1])], nice=False),
                    axis=alt.Axis(tickCount=6),
                ),
                y=alt.Y(
                    "y:Q", title="density", axis=alt.Axis(tickCount=3), scale=alt.Scale(domain=[0, 0.75], nice=False)
                ),
            )
        )
        layers = [shape]
        if model is happened:
            layers += [rule_at(detected, RIGHT), note(99.8, 0.68, "detected", color=RIGHT, align="right")]
        panels.append(alt.layer(*layers).properties(width=285, height=120, title=alt.TitleParams(title, fontSize=12.5)))
    return alt.hconcat(*panels, spacing=34)


@picture
def choosing() -> alt.TopLevelMixin:
    """Two measurements of the same things: right and wrong pairs kept at each threshold."""
    rng = np.random.default_rng(11)
    n = 400
    truth = rng.uniform(0, 2000, n)
    sds = rng.uniform(0.1, 0.5, n), rng.uniform(0.1, 0.5, n)
    join = PairJoin(Difference("x", "x", Region(-1.0, 1.0)), 0.01)
    join.push("left", {"id": np.arange(n), "x": Gaussian(truth + sds[0] * rng.standard_normal(n), sds[0])})
    found = join.push("right", {"id": np.arange(n), "x": Gaussian(truth + sds[1] * rng.standard_normal(n), sds[1])})
    same = found.left == found.right
    rows = []
    for limit in np.linspace(0.01, 1.0, 100):
        kept = found.probability >= limit
        rows.append({"threshold": limit, "pairs": int((kept & same).sum()), "kind": f"right (there are {n})"})
        rows.append({"threshold": limit, "pairs": int((kept & ~same).sum()), "kind": "wrong"})
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=2.5)
        .encode(
            x=alt.X("threshold:Q", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("pairs:Q", title="pairs kept"),
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(domain=[f"right (there are {n})", "wrong"], range=[YES, RIGHT]),
                legend=alt.Legend(title=None, orient="top"),
            ),
        )
        .properties(width=WIDTH, height=240)
    )


if __name__ == "__main__":
    for path in draw_all(Path(sys.argv[1])):
        print(path)
