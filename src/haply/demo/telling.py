"""The texts of the demo: a minute of reading in a terminal, and a report with charts.

Both begin with the answer that no tolerance gives: two pairs of readings that are equally far apart, of which one
belongs together and one does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haply._version import __version__
from haply.demo import counterparts, route, sky, timing, unconfirmed
from haply.demo.readings import (
    CONDITION,
    FAINTEST,
    THRESHOLD,
    WITHIN,
    PairOfReadings,
    ReadingsResult,
    Score,
    flags,
    precision_at,
)

if TYPE_CHECKING:
    from rich.console import Console

    from haply.report.page import Page

SNIPPET = """\
import haply as hp
spark = hp.local_session()
probes = spark.createDataFrame([(1, 20.1, 0.1), (2, 64.0, 0.1)], "id int, t double, sd double")
labels = spark.createDataFrame([(7, 20), (8, 63)], "id int, whole_degrees int")
hp.join(probes.withColumn("temp", hp.gaussian("t", "sd")),
        labels.selectExpr("id", "whole_degrees - 0.5 lo", "whole_degrees + 0.5 hi")
              .withColumn("temp", hp.uniform("lo", "hi")),
        on=abs(hp.left.temp - hp.right.temp) <= 0.5, threshold=0.5).show()
"""


@dataclass
class DemoResult:
    """What the demo found."""

    report: Path
    readings: ReadingsResult
    walk: route.RouteResult
    alarms: timing.AlarmResult
    unconfirmed: unconfirmed.UnconfirmedResult
    tracks: timing.TrackResult
    sky: sky.SkyResult
    counterparts: counterparts.CounterpartResult
    seconds: float = 0.0


# -- words -------------------------------------------------------------------------------------------------------------

_SCENE = (
    "A dairy measures its vessels with built-in probes (errors of 0.05 to 0.2 °C) and with loggers: half of them well "
    "fitted (0.1 to 0.4 °C), half clipped to the outside of a pipe (1.5 to 3 °C). Which vessel a logger belonged to is "
    "lost, so its readings are matched with the probes' of the same hour by temperature. The data are made up, so we "
    "know the truth; the joins do not."
)
_HEADER = ("method", "pairs", "precision", "recall", "F1", "seconds")
_MORE = ("question", "haply", "a fixed rule")
_WHY = (
    "A tolerance is one number for all readings: wide enough for the clipped loggers, it also keeps wrong pairs of "
    "the fitted ones. The probability weighs every reading by its own error."
)


def headline(example: list[PairOfReadings]) -> str:
    """Return the headline."""
    gap = max((pair.gap for pair in example), default=0.0)
    return f"Two pairs of readings, both {gap:.1f} °C apart: one is of one vessel, the other is not"


def told_apart(example: list[PairOfReadings]) -> str:
    """Say how haply distinguishes the two pairs."""
    found = " and ".join(f"{_plain(pair.probability())} for the pair of {pair.truth}" for pair in example)
    return (
        "A tolerance keeps both or neither. haply knows the error of each device, and says how likely the two true "
        f"temperatures are within {WITHIN:g} °C: {found}. With a threshold of {THRESHOLD:g} it keeps the right one."
    )


def _plain(probability: float) -> str:
    """Return a probability in two digits, without an exponent."""
    return np.format_float_positional(float(f"{probability:.2g}"), trim="-")


def verdict(result: ReadingsResult) -> str:
    """Say what the scores say."""
    best, ours = result.best_tolerance, result.haply
    text = (
        f"Of all {result.world.true_pairs:,} true pairs haply finds {ours.recall:.0%}, and {ours.precision:.0%} of its "
        f"answer is right. The best of all tolerances, {best.setting}, finds {best.recall:.0%}, and "
        f"{best.precision:.0%} is right."
    )
    ahead = result.ahead()
    if ahead:
        text += f" No tolerance reaches haply's F1 at any threshold from {ahead[0]:g} to {ahead[1]:g}."
    return text


def timed(result: ReadingsResult) -> str:
    """Say what the answer costs, compared with the join that was timed in the same way."""
    ours, best = result.haply.seconds or 0.0, result.best_tolerance.seconds or 0.0
    noise = " Kernels were compiled at the same time: a second run is quicker." if result.beside_compilers else ""
    return (
        f"haply took {ours:.1f} s, the join by the best tolerance {best:.1f} s: both on the same Spark, on the same "
        f"tables, and each the second join of its kind.{noise}"
    )


def _rows(result: ReadingsResult) -> list[tuple[Score, str]]:
    """Return the lines of the comparison with the name of each."""
    best = result.best_tolerance
    return [
        (result.haply, f"haply, {result.haply.setting}"),
        (best, f"best tolerance, {best.setting} (tuned on the truth)"),
        (result.plain, f"plain join, {result.plain.setting}"),
    ]


def _more_rows(result: ReadingsResult) -> list[tuple[Score, str]]:
    return [(score, f"{score.method}, {score.setting}") for score in (*result.tolerances, *result.stricter)]


def _cells(score: Score, name: str) -> list[str]:
    seconds = "" if score.seconds is None else f"{score.seconds:.1f}"
    return [name, f"{score.pairs:,}", f"{score.precision:.3f}", f"{score.recall:.3f}", f"{score.f1:.3f}", seconds]


def others(result: DemoResult) -> list[tuple[str, str, str]]:
    """Return a line for each of the smaller examples: its question, haply's answer, and that of a fixed rule."""
    return [
        (route.HEADING, *route.in_short(result.walk)),
        (timing.ALARM_HEADING, *timing.alarms_in_short(result.alarms)),
        (unconfirmed.HEADING, *unconfirmed.in_short(result.unconfirmed)),
        (timing.TRACK_HEADING, *timing.tracks_in_short(result.tracks)),
        (sky.HEADING, *sky.in_short(result.sky)),
        (counterparts.HEADING, *counterparts.in_short(result.counterparts)),
    ]


# -- the terminal ------------------------------------------------------------------------------------------------------


def introduce(console: Console) -> None:
    """Say what is going to happen."""
    console.print(f"[bold]haply {__version__}[/]: which rows belong together when their values are uncertain?\n")
    console.print(f"{_SCENE}\n")


def conclude(console: Console, result: DemoResult) -> None:
    """Print the answer, in a minute of reading."""
    found = result.readings
    example = found.example()
    console.print(f"\n[bold]{headline(example)}.[/]\n")
    console.print(
        _table(
            ("reading", "and reading", "in truth", "probability", f"P ≥ {THRESHOLD:g}"),
            [
                [*pair.titles, pair.truth, f"{_plain(pair.probability())}", "kept" if _kept(pair) else "not kept"]
                for pair in example
            ],
        )
    )
    console.print(f"\n{told_apart(example)}\n")
    console.print(_table(_HEADER, [_cells(score, name) for score, name in _rows(found)]))
    console.print(f"\n{verdict(found)} {timed(found)}")
    counts = found.funnel.to_dict()
    console.print(
        f"It looked at {counts['candidates']:,} of {counts['pairs_possible']:,} possible pairs, and lost none.\n"
    )
    console.print("[bold]Six more questions[/]\n")
    console.print(_table(_MORE, others(result)))
    console.print(f"\nThe report is [bold]{result.report}[/]: pictures of all of it. It opens without a network.")
    console.print(f"All of it took {result.seconds:.0f} seconds.\n")
    console.print("[bold]What to try next[/]")
    console.print("  haply demo --rows 200000 --out out/larger     the same with more readings")
    console.print("  python -m benchmarks --quick                  haply compared with other engines")
    console.print("  and in Python, where one side has whole degrees only, so its values are intervals:\n")
    console.print("\n".join(f"    {line}" for line in SNIPPET.splitlines()), markup=False, soft_wrap=True)


def _kept(pair: PairOfReadings) -> bool:
    return pair.probability() >= THRESHOLD


def _table(header: tuple[str, ...], lines: Any) -> Any:
    """Return a table for the terminal: the first line is haply's, and bold; numbers are on the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for position, name in enumerate(header):
        numbers = position > 0 and header is _HEADER
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for position, line in enumerate(lines):
        table.add_row(*line, style="" if position or header is not _HEADER else "bold")
    return table


# -- the report --------------------------------------------------------------------------------------------------------


def make_page(result: DemoResult) -> Page:
    """Make the report."""
    page = page_of_readings(result.readings, others(result))
    route.add_section(page, result.walk)
    timing.add_alarms(page, result.alarms)
    unconfirmed.add_section(page, result.unconfirmed)
    timing.add_tracks(page, result.tracks)
    sky.add_section(page, result.sky)
    counterparts.add_section(page, result.counterparts)
    return page


def page_of_readings(found: ReadingsResult, more: Sequence[tuple[str, str, str]]) -> Page:
    """Make the report's beginning, with a line for each of the other examples."""
    from haply.report.page import Page

    example = found.example()
    page = Page(headline(example), told_apart(example))
    for pair in example:
        _draw_pair(page, pair)
    _add_scores(page, found)
    page.section("Six more questions")
    page.table(_MORE, more, caption="Each has a section below.")
    _add_probabilities(page, found)
    _add_funnel(page, found)
    page.section("The two pairs, rule by rule")
    page.prose(
        "Each rule proves that the probability lies between two bounds. The join applies the cheapest rule first "
        "and stops as soon as one of them decides."
    )
    for pair in example:
        _explain(page, pair)
    return page


def _draw_pair(page: Page, pair: PairOfReadings) -> None:
    from haply.report import charts
    from haply.report.explain import density_records

    centre, kept = pair.readings[0], "keeps" if _kept(pair) else "does not keep"
    page.chart(
        charts.pair_densities(
            density_records(*pair.models(), pair.titles),
            unit="°C",
            within=(centre - WITHIN, centre + WITHIN),
            title=f"{pair.gap:.2f} °C apart, in truth {pair.truth}: haply {kept} it, P = {_plain(pair.probability())}",
        ),
        f"Densities of {pair.titles[0]} and {pair.titles[1]}, with the tolerance as a band.",
    )


def _add_scores(page: Page, found: ReadingsResult) -> None:
    from haply.report import charts

    page.section(f"All {found.world.true_pairs:,} pairs")
    page.prose(verdict(found), _WHY, timed(found))
    page.table(
        _HEADER,
        [_cells(score, name) for score, name in _rows(found)],
        caption="Precision is how much of the answer is right, recall how much of the truth is found, F1 their "
        "harmonic mean.",
        strong=[0],
    )
    marked_tolerances = {score.setting for score in found.tolerances}
    records = [score.record(score.threshold in (THRESHOLD, 0.15, 0.5, 0.9)) for score in found.curve]
    records += [score.record(False) for score in found.swept if score.setting not in marked_tolerances]
    records += [score.record(True) for score in (*found.tolerances, found.plain)]
    page.chart(
        charts.threshold_curves(records),
        "Two line charts: precision, recall and F1 against the threshold; and precision against recall for haply, "
        "fixed tolerances and the plain join.",
    )
    recall = found.best_tolerance.recall
    page.prose(
        "Raising the threshold trades recall for precision. A tolerance has such a dial too. Where the clipped loggers "
        f"matter it is the worse one: at the best tolerance's recall of {recall:.2f}, its precision is "
        f"{found.best_tolerance.precision:.2f}, and haply's {precision_at(found.curve, recall):.2f}. Towards the left "
        "only fitted loggers are left; there the errors hardly differ, and a tolerance does about as well."
    )
    page.table(
        _HEADER[:-1],
        [_cells(score, name)[:-1] for score, name in _more_rows(found)],
        caption="Other tolerances and thresholds, read off the answers to the widest and the lowest.",
    )
    page.subsection("The query")
    page.prose(
        f"{_SCENE} There are {len(found.world.probes):,} readings of probes and {len(found.world.loggers):,} of "
        "loggers."
    )
    page.code(f'pairs = hp.join(probes, loggers, threshold={THRESHOLD:g},\n    on="{CONDITION}")')


def _add_probabilities(page: Page, found: ReadingsResult) -> None:
    from haply.report import charts

    page.section("How sure the pairs are")
    page.prose(
        f"Every pair carries the probability that its two true temperatures lie within {WITHIN:g} °C of each other. "
        "Fitted loggers give pairs near 1. A clipped logger can never be that sure: with an error of 2 °C, even equal "
        "readings agree with a probability of 0.2 only. So the threshold is low here: one in twenty."
    )
    kinds = np.where(flags(found.every), "one vessel", "two vessels").tolist()
    records = charts.histogram_records(found.every["probability"].to_pylist(), kinds)
    page.chart(
        charts.probability_histogram(
            sorted(records, key=lambda record: record["kind"]),
            threshold=THRESHOLD,
            about=f"probability that the two temperatures lie within {WITHIN:g} °C",
        ),
        f"Histogram of the probabilities of {found.every.num_rows:,} pairs, true and false ones in two colours.",
        caption=f"All pairs with a probability of at least {FAINTEST:g}. Colours show the planted truth.",
    )


def _add_funnel(page: Page, found: ReadingsResult) -> None:
    from haply.drawing.funnel import in_words

    page.section("The funnel")
    counts = found.funnel.to_dict()
    page.prose(
        f"{in_words(counts['pairs_possible'])} pairs are possible. Intervals around each reading, cut so that "
        f"pairs apart cannot reach the threshold, and the equal hour leave {counts['candidates']:,} candidates; sound "
        f"bounds reject {sum(counts['rejected'].values()):,} of these, and {counts['evaluated']:,} are evaluated. No "
        "pair above the threshold is ever lost."
    )
    page.chart(found.funnel.chart(), "Bar chart of the pairs left after each stage, on a logarithmic axis.")


def _explain(page: Page, pair: PairOfReadings) -> None:
    from haply.probability.region import Region
    from haply.pruning.threshold import Threshold
    from haply.report import charts
    from haply.report.explain import deciding_step, explain_pair

    steps = explain_pair(*pair.models(), Region(-WITHIN, WITHIN), Threshold(THRESHOLD))
    page.subsection(f"{pair.names[0]} and {pair.names[1]} in hour {pair.hour}: in truth {pair.truth}")
    page.chart(
        charts.waterfall_chart([step.record() for step in steps], threshold=THRESHOLD),
        f"Bounds on the probability after each rule, ending at {steps[-1].most:.3g}.",
        caption=f"Bars span what is proved so far. Decided by: {deciding_step(steps).rule}.",
    )
    page.table(
        ("rule", "what it looks at", "proves at least", "at most"),
        [(step.rule, step.says, f"{step.lower:.4f}", f"{step.upper:.4f}") for step in steps],
        caption="What each rule proves by itself.",
    )
