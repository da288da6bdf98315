"""The demo's report in a real browser, from a small world: nothing overlaps, overflows, fails or is fetched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
from browser_kit import View, ask, faults
from haply.demo.readings import (
    CONDITION,
    FAINTEST,
    THRESHOLD,
    TOLERANCES,
    ReadingsResult,
    World,
    flags,
    plant,
    score,
    sweep_thresholds,
    sweep_tolerances,
)
from haply.demo.telling import headline, page_of_readings, told_apart
from haply.models import Gaussian

DESK, PHONE = 1280, 390
STORIES = [
    ("Which source is the counterpart, if any?", "93.1% right", "86.0% right (nearest within the best radius)"),
    ("Alarms that nobody confirmed", "133 reported, 24 wrongly, as a stream", "190 reported, 81 wrongly"),
]


def within(world: World, tolerance: float) -> pa.Table:
    """The pairs of one hour with readings within a tolerance, as the demo's join in SQL returns them."""
    tables = (world.probes, world.loggers)
    probes, loggers = ({name: table[name].to_numpy() for name in table.column_names} for table in tables)
    near = (probes["hour"][:, None] == loggers["hour"]) & (
        np.abs(probes["reading"][:, None] - loggers["reading"]) <= tolerance
    )
    one, other = np.nonzero(near)
    columns = {"right": probes["truth"][one] == loggers["truth"][other], "hour": probes["hour"][one]}
    for kind, rows, chosen in (("probe", probes, one), ("logger", loggers, other)):
        columns[kind] = rows["device"][chosen]
        columns |= {f"{kind}_{name}": rows[name][chosen] for name in ("reading", "error")}
    return pa.table(columns)


@pytest.fixture(scope="module")
def found() -> ReadingsResult:
    world, funnel = plant(900), hp.Funnel()
    sides = [
        table.append_column("temp", Gaussian(table["reading"].to_numpy(), table["error"].to_numpy()).to_arrow())
        for table in (world.probes, world.loggers)
    ]

    def likely(threshold: float) -> pa.Table:
        pairs = hp.join(*sides, on=CONDITION, threshold=threshold, funnel=funnel)
        right = pa.array(pairs["truth_left"].to_numpy() == pairs["truth_right"].to_numpy())
        return pa.table({"right": right, "probability": pairs["probability"]})

    widest, every, kept = within(world, TOLERANCES[-1]), likely(FAINTEST), likely(THRESHOLD)
    swept, true = sweep_tolerances(widest, world.true_pairs), world.true_pairs
    return ReadingsResult(
        world, score(flags(within(world, 0.05)), true, "plain join", "equal to 0.1 °C"), swept,
        max(swept, key=lambda each: each.f1), score(flags(kept), true, "haply", "P ≥ 0.05", threshold=THRESHOLD),
        sweep_thresholds(every, true), widest, every, funnel,
    )  # fmt: skip


@pytest.fixture(scope="module")
def html(found: ReadingsResult) -> str:
    return page_of_readings(found, STORIES).html()


def test_the_story_is_the_answer_that_no_tolerance_gives(found: ReadingsResult) -> None:
    true, false = found.example()
    assert (true.right, false.right) == (True, False)
    assert abs(true.gap - false.gap) < 0.05
    assert true.probability() >= THRESHOLD > false.probability()
    assert f"both {true.gap:.1f} °C apart" in headline([true, false])
    assert f"{true.probability():.2g} for the pair of one vessel" in told_apart([true, false])


def test_the_report_begins_with_a_picture(html: str) -> None:
    body = html[html.index("<main>") :]
    assert body.index('class="chart"') < body.index("<h2>") < body.index("<table>")


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_text_is_hidden_and_nothing_overflows(html: str, dark: bool, tmp_path: Path) -> None:
    views = [View(f"{width} px", html, width) for width in (DESK, PHONE)]
    found = faults(views, tmp_path, least_size=9.0, dark=dark, contrast=4.5)
    assert found == {view.name: [] for view in views}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_fails_and_nothing_is_fetched(html: str, dark: bool, tmp_path: Path) -> None:
    script = """
    const colours = getComputedStyle(document.body);
    return {
      charts: document.querySelectorAll("div.chart svg").length,
      requests: performance.getEntriesByType("resource").map((each) => each.name),
      ink: colours.color, paper: colours.backgroundColor,
    };"""
    answer = ask(html, script, tmp_path, dark=dark)
    assert answer.console == []
    assert answer.found["requests"] == []
    assert answer.found["ink"] != answer.found["paper"]
    assert answer.dom.count('class="chart') >= 7
