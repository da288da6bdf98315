"""Texts as a browser shows them: none lies on another, is cut off or is too small, on a desk and on a phone."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
from browser_kit import View, ask, faults
from haply.drawing.funnel import funnel_chart
from haply.drawing.style import FONT
from haply.models import Gaussian
from haply.probability.region import Region
from haply.pruning.threshold import Threshold
from haply.report import charts
from haply.report.explain import density_records, explain_pair
from haply.report.page import Page

DESK, PHONE = 1280, 390
DOCS = Path(__file__).parents[2] / "docs"
READABLE = 4.5
"""The least contrast of texts, as WCAG asks for it."""
WIDE_FONT = "DejaVu Sans, Verdana, sans-serif"


def assert_none(found: dict[str, list[str]]) -> None:
    lines = [f"{view}: {fault}" for view, each in found.items() for fault in each]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


# -- the book's pictures -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Faults by picture and view."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        module = importlib.import_module("pictures")
    drawn = {path.stem: path.read_text() for path in module.draw_all(tmp_path_factory.mktemp("drawn"))}
    # Places in an SVG file are fixed, fonts are the reader's: texts also have to fit in one that is a fifth wider.
    styles = {"as drawn": "", "wide font": "text { letter-spacing: .1em; }"}
    views = [
        View(
            f"{name}, {width} px, {style}",
            f'<!doctype html><meta charset="utf-8"><style>svg {{ max-width: 100%; height: auto; }} {rule}</style>'
            f"<body>{svg}</body>",
            width,
        )
        for width in (DESK, PHONE)
        for style, rule in styles.items()
        for name, svg in drawn.items()
    ]
    return faults(views, tmp_path_factory.mktemp("views"))


@pytest.mark.long
def test_no_text_of_the_books_pictures_is_hidden(pictures: dict[str, list[str]]) -> None:
    assert_none(pictures)


# -- the report --------------------------------------------------------------------------------------------------------


def score(method: str, setting: str, threshold: float | None, precision: float, recall: float) -> dict[str, Any]:
    f1 = 2 * precision * recall / (precision + recall)
    return {
        "method": method, "setting": setting, "threshold": threshold,
        "precision": precision, "recall": recall, "f1": f1, "marked": threshold is None or threshold in MARKED,
    }  # fmt: skip


MARKED = (0.05, 0.15, 0.5, 0.9)


def scores() -> list[dict[str, Any]]:
    """Two curves that cross, as those of the demo do, with marked points at both ends."""
    levels = sorted({*np.linspace(0.01, 0.98, 40).round(3).tolist(), *MARKED})
    ours = [score("haply", f"P ≥ {p:g}", p, 0.55 + 0.4 * p**0.2, 1.0 - p**1.3) for p in levels if p < 0.97]
    others = [
        score("fixed tolerance", f"±{width:g} °C", None, 0.95 - 0.09 * width, 0.34 * width**0.75)
        for width in (0.2, 0.5, 1.0, 2.0, 4.0)
    ]
    return [*ours, *others, score("plain join", "equal to 0.1 °C", None, 0.909, 0.094)]


def add_pair(page: Page, left: Gaussian, right: Gaussian, threshold: float) -> None:
    region, centre = Region(-0.5, 0.5), float(left.mean()[0])
    names = ("probe P009: 44.13 ± 0.12 °C", "logger L138: 42.63 ± 2.19 °C")
    steps = explain_pair(left, right, region, Threshold(threshold))
    page.chart(
        charts.pair_densities(density_records(left, right, names), unit="°C", within=(centre - 0.5, centre + 0.5)),
        "densities",
    )
    page.chart(charts.waterfall_chart([step.record() for step in steps], threshold=threshold), "bounds", caption="c")
    page.table(
        ("rule", "what it looks at", "proves at least", "at most"),
        [(step.rule, step.says, f"{step.lower:.4f}", f"{step.upper:.4f}") for step in steps],
        caption="What each rule proves by itself.",
    )


def add_map(page: Page, random: np.random.Generator) -> None:
    route = [(0.0, 0.0), (400.0, 0.0), (400.0, 300.0), (800.0, 300.0)]
    marks = [
        {"kind": kind, "x": float(x), "y": float(y), "radius": radius}
        for kind, radius in (
            (charts.USUAL, 0.0), (charts.TODAY, 40.0), (charts.OUTLIER, 9.0), (charts.ALARM, 0.0),
            (charts.OTHER_ALARM, 0.0),
        )
        for x, y in random.uniform((0, 0), (800, 300), (6, 2))
    ]  # fmt: skip
    names = [(0.0, -30.0, "start"), (800.0, 270.0, "end")]
    page.chart(
        charts.position_map(marks, route=route, streets=[route], blocks=[(80, 20, 220, 160)], names=names), "a map"
    )


def add_timelines(page: Page, random: np.random.Generator) -> None:
    events, links = [], []
    kinds = (charts.BOTH_WAYS, charts.NEITHER_WAY, charts.BY_OCCURRENCE, charts.BY_DETECTION)
    for k, time in enumerate(np.sort(random.uniform(0, 120, 12))):
        for row, delay in (("seismic", 2.0), ("acoustic", 7.0)):
            edges = [float(time) - delay, float(time) - delay / 2, float(time)]
            events.append(
                {"event": f"{row} {k}", "row": row, "detected": edges[-1] + 0.5, "edges": edges, "probs": [0.4, 0.6]}
            )
        links.append(
            {"kind": kinds[k % 4], "left": f"seismic {k}", "right": f"acoustic {k}", "true": bool(k % 3)},
        )
    page.chart(charts.alarm_timeline(events, links), "alarms")
    lanes = ("gate", "bridge", "tunnel", "exit")
    # one vehicle twice in a few minutes, so that its names are close
    drives = [("LR 510", 20.0), ("LR 510", 23.0), ("LR 510", 57.0), ("AB 123", 40.0)]
    sightings = [
        {"lane": lane, "minute": start + 2.0 * k, "name": name, "track": track}
        for track, (name, start) in enumerate(drives)
        for k, lane in enumerate(lanes)
    ]
    sightings.append({"lane": "exit", "minute": 5.0, "name": "CD 2", "track": None})
    page.chart(charts.track_timeline(sightings, lanes=lanes), "tracks", caption="Sightings.")


def report() -> str:
    """A page with every kind of chart, a long line of code and a wide table."""
    random = np.random.default_rng(7)
    page = Page("Two networks of thermometers, a walk, alarms, cameras and the sky", "Which readings belong together?")
    page.code('pairs = hp.join(probes, loggers, threshold=0.05, on="abs(left.temp - right.temp) <= 0.5")')
    header = ("method", "pairs", "precision", "recall", "F1", "seconds", "rows of the left", "rows of the right")
    page.table(header, [("best tolerance, ±2.3 °C (tuned on the truth)", *["27,475,123"] * 7)], caption="A wide table.")
    page.section("Kinds of charts").prose("A paragraph. " * 20)
    for limit in (0.05, 0.75, 0.95):
        kinds = np.where(random.random(400) < 0.7, "one vessel", "two vessels").tolist()
        records = charts.histogram_records(random.beta(0.5, 0.5, 400), kinds)
        page.chart(
            charts.probability_histogram(
                records, threshold=limit, about="probability that the two temperatures lie within 0.5 °C"
            ),
            "a histogram",
        )
    stages = ("pairs possible", "candidates", "not rejected by a bound", "evaluated exactly", "kept")
    for counts in ((897_806_220, 31_413, 29_216, 29_216, 29_140), (12, 1, 0, 0, 0)):
        rows = [{"stage": stage, "pairs": count} for stage, count in zip(stages, counts, strict=True)]
        page.chart(funnel_chart(rows), "a funnel")
    page.chart(charts.threshold_curves(scores()), "curves")
    page.chart(charts.precision_recall(scores()), "one curve")
    add_pair(page, Gaussian(44.13, 0.12), Gaussian(42.63, 2.19), 0.05)
    add_pair(page, Gaussian(44.51, 0.13), Gaussian(43.01, 0.31), 0.05)  # rejected: tiny bounds
    add_pair(page, Gaussian(43.01, 0.31), Gaussian(44.51, 0.13), 0.05)  # the tolerance on the left
    add_pair(page, Gaussian(43.0, 0.05), Gaussian(43.01, 0.06), 0.95)  # sure: bounds near one
    add_map(page, random)
    add_timelines(page, random)
    return page.html()


@pytest.fixture(scope="module")
def html() -> str:
    return report()


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_text_of_a_report_is_hidden(html: str, dark: bool, tmp_path: Path) -> None:
    fonts = {"": html, ", wide font": html.replace(FONT, WIDE_FONT)}
    assert len(set(fonts.values())) == 2
    views = [View(f"{width} px{font}", page, width) for width in (DESK, PHONE) for font, page in fonts.items()]
    # texts of a chart that shrinks with its page become too small to read
    assert_none(faults(views, tmp_path, least_size=9.0, dark=dark, contrast=READABLE))


# -- notebooks ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown() -> list[str]:
    """What notebooks show: a funnel, a plan, an explained pair, and a calibration."""
    rows, funnel = pa.table({"id": [1, 2], "x": [1.0, 2.0], "sd": [0.1, 0.3]}), hp.Funnel()
    asked: dict[str, Any] = {"on": "abs(gaussian(left.x, left.sd) - gaussian(right.x, right.sd)) <= 0.5"}
    hp.join(rows, rows.slice(1), threshold=0.5, funnel=funnel, **asked)
    judged = hp.calibration(
        pa.table({"p": [0.1, 0.9, 0.4], "true": [False, True, False]}), probability="p", label="true"
    )
    explained = hp.explain_pair(*rows.to_pylist(), threshold=0.5, **asked)
    return [
        made._repr_html_() for made in (funnel, hp.plan_join(rows, rows, threshold=0.5, **asked), explained, judged)
    ]


THEMES = {
    "none": ("", "#ffffff", "#14181c"),
    "JupyterLab light": ('data-jp-theme-light="true"', "#ffffff", "#ffffff"),
    "JupyterLab dark": ('data-jp-theme-light="false"', "#111111", "#111111"),
    "VS Code light": ('class="vscode-light"', "#ffffff", "#ffffff"),
    "VS Code dark": ('class="vscode-dark"', "#1e1e1e", "#1e1e1e"),
}
"""How notebooks mark their pages, and the ground of these in a light and in a dark system."""


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_charts_in_notebooks_are_dark_where_the_notebook_is(shown: list[str], dark: bool, tmp_path: Path) -> None:
    views = []
    for theme, (mark, *grounds) in THEMES.items():
        ground = grounds[dark]
        ink = "#222" if ground == "#ffffff" else "#eee"
        page = (
            f'<!doctype html><body {mark} style="background: {ground}; color: {ink}; margin: 0">{"".join(shown)}</body>'
        )
        views.append(View(theme, page.replace("<pre>", '<pre style="overflow-x: auto">'), DESK))
    assert_none(faults(views, tmp_path, dark=dark, contrast=READABLE))
    script = """return [...document.querySelectorAll(".haply-chart svg")].map((svg) =>
      getComputedStyle(svg).backgroundColor);"""
    for view, (mark, *_) in zip(views, THEMES.values(), strict=True):
        expected = "dark" in view.name or (dark and not mark)
        found = ask(view.html, script, tmp_path, dark=dark).found
        assert found == ["rgb(20, 24, 28)" if expected else "rgb(255, 255, 255)"] * len(shown), view.name


# -- the check itself --------------------------------------------------------------------------------------------------


def test_the_check_sees_each_kind_of_fault(tmp_path: Path) -> None:
    text = '<text x="{x}" y="50" font-size="{size}">{words}</text>'

    def view(name: str, body: str) -> View:
        return View(name, f"<!doctype html><style>body {{ margin: 0 }}</style><body>{body}</body>", PHONE)

    def drawing(*texts: dict[str, Any]) -> str:
        inside = "".join(text.format(**{"size": 12, "words": "words"} | each) for each in texts)
        return f'<svg width="300" height="100">{inside}</svg>'

    wide = '<div style="width:500px">wide</div>'
    found = faults(
        [
            view("fine", drawing({"x": 10}, {"x": 100})),
            view("overlap", drawing({"x": 10}, {"x": 20})),
            view("outside", drawing({"x": 290})),
            view("small", drawing({"x": 10, "size": 5})),
            view("cut", drawing({"x": 10, "words": "wor…"})),
            view("faint", '<p style="color: #999">words</p><p style="background: #000; color: #999">words</p>'),
            view("faint picture", drawing({"x": 10}).replace("<text", '<text fill="#bbb"')),
            view("wide", wide),
            view("scrolls", f'<div class="scroll" style="overflow-x:auto">{wide}</div>'),
            view(
                "does not scroll", '<div class="scroll"><p style="white-space:nowrap">' + "words " * 90 + "</p></div>"
            ),
        ],
        tmp_path,
        least_size=9.0,
        contrast=READABLE,
    )
    kinds = {name: [fault.partition(":")[0].split(" by ")[0] for fault in each] for name, each in found.items()}
    assert kinds == {
        "fine": [],
        "overlap": ["overlap"],
        "outside": ["leaves its picture"],
        "small": ["too small (5.0 px)"],
        "cut": ["cut short"],
        "faint": ["faint (contrast 2.8)"],
        "faint picture": ["faint (contrast 1.9)"],
        "wide": ["the page is 110 px wider than its window"],
        "scrolls": [],
        "does not scroll": ["leaves the page", *kinds["does not scroll"][1:]],
    }
