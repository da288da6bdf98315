"""Shared code of all benchmarks: time engines in turn, compare answers, and show results as table, JSON and chart."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haply.errors import HaplyError

if TYPE_CHECKING:
    from rich.table import Table

OURS = "haply"
PROBABILITY_TOLERANCE = 1e-9
"""Two engines that both call their probabilities exact may differ by less than this."""

Tell = Callable[[str], None]
"""A function that a benchmark calls to report its progress."""


@dataclass(frozen=True)
class Answer:
    """The pairs that an engine found, in any order; without probabilities if the job does not ask for them."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray | None = None


Engines = Mapping[str, Callable[[], Answer]]
"""For each engine's name a function that does the whole job, from the shared inputs to arrays."""


@dataclass(frozen=True)
class Result:
    """One engine on one job; ``ratio`` is its seconds over haply's."""

    job: str
    engine: str
    seconds: float
    pairs: int
    ratio: float


@dataclass(frozen=True)
class Growth:
    """How the cost grows with the rows of a side, for the line chart."""

    rows: int
    seconds: float
    rows_per_second: float
    pairs: int


@dataclass(frozen=True)
class Claim:
    """What a paper (or our own notes) says, what was measured, and whether the measurement confirms it.

    ``holds`` is None if sizes are too small to tell. ``any_size`` is for claims that small sizes can confirm: about
    counts, not times.
    """

    claim: str
    measured: str
    holds: bool | None
    any_size: bool = False


@dataclass(frozen=True)
class Figure:
    """One experiment: a table of rows with the same fields, a chart of some of them, and claims checked with them.

    The chart has a line for each of the fields ``lines`` over the field ``x``, and a panel for each value of ``panel``.
    Fields named in ``seconds`` are durations.
    """

    name: str
    title: str
    rows: list[dict[str, Any]]
    x: str
    lines: tuple[str, ...]
    y_title: str
    panel: str | None = None
    log_x: bool = False
    log_y: bool = True
    seconds: tuple[str, ...] = ()
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: the results, not how they are drawn."""
        return {
            "name": self.name,
            "title": self.title,
            "rows": self.rows,
            "claims": [asdict(claim) for claim in self.claims],
            "notes": self.notes,
        }


@dataclass(frozen=True)
class Report:
    """All results of one benchmark."""

    bench: str
    title: str
    config: dict[str, Any]
    results: list[Result]
    growth: list[Growth] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    judged: bool = True
    """Whether sizes are large enough to judge the targets."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        config = self.config | ({"growth": [asdict(point) for point in self.growth]} if self.growth else {})
        config |= {"figures": [figure.to_dict() for figure in self.figures]} if self.figures else {}
        return {"bench": self.bench, "config": config, "results": [asdict(result) for result in self.results]}


def needs(module: str) -> Any:
    """Import a package that only the benchmarks use."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise HaplyError(
            f"The benchmarks need the package '{module.partition('.')[0]}'", hint='pip install "haply[bench]"'
        ) from error


def circumstances(*packages: str) -> dict[str, Any]:
    """Return the machine and the versions of packages."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in ("numpy", "numba", *packages)},
    }


TURN = 0.3
"""For how many seconds an engine is called repeatedly in its turn (see ``take_turns``)."""


def compare(job: str, engines: Engines, repetitions: int, tell: Tell, turn: float = TURN) -> list[Result]:
    """Check that all engines give one answer, then time them.

    The first call of each is not timed: it compiles and fills caches, and its answer is compared. ``turn`` is 0 if
    calls must not be repeated because each continues the one before.
    """
    answers = {}
    for name, run in engines.items():
        tell(f"{job}: first run of {name}")
        answers[name] = run()
    check_same(job, answers)
    pairs = {name: len(answer.left) for name, answer in answers.items()}
    del answers
    return ranked(job, take_turns(job, engines, repetitions, tell, turn), pairs)


def take_turns(
    job: str, engines: Mapping[str, Callable[[], Any]], repetitions: int, tell: Tell, turn: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:  # fmt: skip
    """Return the best seconds of each engine's calls.

    Engines run in turn, and each round begins with another one, so that noise affects all of them equally. In its turn
    an engine is called until ``turn`` seconds have passed, at least once: a single call of a few milliseconds, just
    after another engine has filled the caches, says little. If all engines run in this thread, ``time.thread_time``
    leaves out the time of other programs.
    """
    best = dict.fromkeys(engines, math.inf)
    names = list(engines)
    for round_ in range(repetitions):
        tell(f"{job}: round {round_ + 1} of {repetitions}")
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            gc.collect()
            spent = 0.0
            while spent <= turn:
                begun = clock()
                answer = engines[name]()
                seconds = clock() - begun
                best[name], spent = min(best[name], seconds), spent + seconds
                del answer
    return best


def ranked(job: str, seconds: Mapping[str, float], pairs: Mapping[str, int]) -> list[Result]:
    """Return results in the order of the engines, with their ratio to ours."""
    return [Result(job, name, spent, pairs[name], spent / seconds[OURS]) for name, spent in seconds.items()]


def check_same(job: str, answers: Mapping[str, Answer]) -> None:
    """Raise unless all engines found the same pairs with the same probabilities: other times cannot be compared."""
    ours = _in_order(answers[OURS])
    for name, answer in answers.items():
        theirs = _in_order(answer)
        if not (np.array_equal(ours.left, theirs.left) and np.array_equal(ours.right, theirs.right)):
            raise HaplyError(
                f"Benchmark job '{job}': {name} and {OURS} found different pairs",
                expected=f"{len(ours.left)} pairs",
                found=f"{len(theirs.left)} pairs, {_unshared(ours, theirs)} of them on one side only",
            )
        if ours.probability is not None and theirs.probability is not None and len(ours.left):
            apart = float(np.abs(ours.probability - theirs.probability).max())
            if not apart < PROBABILITY_TOLERANCE:
                raise HaplyError(
                    f"Benchmark job '{job}': {name} and {OURS} differ in a probability",
                    expected=f"less than {PROBABILITY_TOLERANCE:g}",
                    found=f"{apart:g}",
                )


def _in_order(answer: Answer) -> Answer:
    order = np.lexsort((answer.right, answer.left))
    probability = None if answer.probability is None else answer.probability[order]
    return Answer(answer.left[order], answer.right[order], probability)


def _unshared(one: Answer, other: Answer) -> int:
    sets = [set(zip(answer.left.tolist(), answer.right.tolist(), strict=True)) for answer in (one, other)]
    return len(sets[0] ^ sets[1])


# -- output ------------------------------------------------------------------------------------------------------------


def table(report: Report) -> Table:
    """Return the results as a table for the terminal."""
    from rich.table import Table

    shown = Table(title=report.title, title_justify="left")
    for name in ("job", "engine"):
        shown.add_column(name)
    for name in ("time", "pairs", f"x {OURS}"):
        shown.add_column(name, justify="right")
    before = ""
    for result in report.results:
        if before and result.job != before:
            shown.add_section()
        name = result.job if result.job != before else ""
        cells = (name, result.engine, in_seconds(result.seconds), f"{result.pairs:,}", f"{result.ratio:.2f}")
        shown.add_row(*cells, style="bold" if result.engine == OURS else None)
        before = result.job
    return shown


TOO_SMALL = "too small for a verdict"


def without_verdicts(report: Report) -> Report:
    """Return the report of a quick run: the same figures, in which only claims for any size are checked."""

    def unjudged(claim: Claim) -> Claim:
        return claim if claim.any_size else replace(claim, holds=None)

    figures = [replace(one, claims=[unjudged(claim) for claim in one.claims]) for one in report.figures]
    return replace(report, figures=figures, judged=False)


def targets(report: Report) -> list[str]:
    """Tell for each peer with a target whether haply reached it in its worst job, or in each job with a target."""
    lines = []
    for engine, wanted in report.config.get("targets", {}).items():
        for job, target in wanted.items() if isinstance(wanted, Mapping) else [(None, wanted)]:
            compared = [result for result in report.results if result.engine == engine and job in (None, result.job)]
            worst = min(result.ratio for result in compared)
            outcome = f"{'reached' if worst >= target else 'missed'} with {worst:.2f}"
            if not report.judged:
                outcome = f"measured {worst:.2f}, {TOO_SMALL}"
            where = "" if job is None else f" in '{job}'"
            lines.append(f"target: {target:g} times as fast as {engine}{where}; {outcome}")
    return lines


def growth_table(report: Report) -> Table:
    """Return a table of how the cost grows, for the terminal."""
    from rich.table import Table

    shown = Table(title=f"{OURS} as the tables grow", title_justify="left")
    for name in ("rows a side", "time", "rows per second", "pairs"):
        shown.add_column(name, justify="right")
    for point in report.growth:
        shown.add_row(f"{point.rows:,}", in_seconds(point.seconds), f"{point.rows_per_second:,.0f}", f"{point.pairs:,}")
    return shown


def figure_table(figure: Figure) -> Table:
    """Return the rows of one experiment as a table for the terminal."""
    from rich.table import Table

    shown = Table(title=f"{figure.name}: {figure.title}", title_justify="left")
    for name, value in figure.rows[0].items():
        shown.add_column(name, justify="left" if isinstance(value, str) else "right", overflow="fold")
    for row in figure.rows:
        shown.add_row(*(_cell(value, name in figure.seconds) for name, value in row.items()))
    return shown


def _cell(value: Any, is_seconds: bool) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if is_seconds:
        return in_seconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def verdicts(figure: Figure) -> list[str]:
    """Return a line for each claim, with its outcome."""
    words = {True: "holds", False: "does not hold", None: TOO_SMALL}
    return [f"claim: {one.claim}; measured: {one.measured}; {words[one.holds]}" for one in figure.claims]


def in_seconds(seconds: float) -> str:
    """Return a duration as text with three digits.

    >>> in_seconds(0.00001234), in_seconds(0.01234), in_seconds(2.5), in_seconds(61.5)
    ('12.3 µs', '12.3 ms', '2.50 s', '61.5 s')
    """
    value, unit = (
        (seconds, "s") if seconds >= 1.0 else (1e3 * seconds, "ms") if seconds >= 1e-3 else (1e6 * seconds, "µs")
    )
    digits = max(0, 2 - max(0, math.floor(math.log10(value)))) if value > 0.0 else 0
    return f"{value:.{digits}f} {unit}"


def write_chart(report: Report, folder: str | Path) -> Path:
    """Write the chart as SVG, PNG and a page that needs no network; return the path of the SVG."""
    base = Path(folder)
    base.mkdir(parents=True, exist_ok=True)
    drawn = chart(report)
    path = base / f"{report.bench}.svg"
    drawn.save(path)
    drawn.save(path.with_suffix(".png"), scale_factor=2.0)
    drawn.save(path.with_suffix(".html"), inline=True)
    return path


def write_figures(report: Report, folder: str | Path) -> list[Path]:
    """Write the charts of the experiments, as SVG, into a folder of their own; return their paths."""
    from haply.report.charts import sweep_chart

    base = Path(folder) / report.bench
    base.mkdir(parents=True, exist_ok=True)
    paths = []
    for figure in report.figures:
        drawn = sweep_chart(
            figure.rows,
            x=figure.x,
            lines=figure.lines,
            title=f"{figure.name}: {figure.title}",
            y_title=figure.y_title,
            panel=figure.panel,
            log_x=figure.log_x,
            log_y=figure.log_y,
            y_format="~s" if figure.lines[0] in figure.seconds else "~g",  # 10µ, 1m
        )
        paths.append(base / f"{figure.name}.svg")
        drawn.save(paths[-1])
    return paths


def chart(report: Report) -> Any:
    """Draw bars of seconds on a logarithmic scale, a panel for each job, and the line of growth if there is one."""
    import altair as alt

    bars = [
        _bars(job, [result for result in report.results if result.job == job], report.results)
        for job in dict.fromkeys(result.job for result in report.results)
    ]
    panels = [*bars, *([_line(report.growth)] if report.growth else [])]
    return (
        alt.vconcat(*panels, spacing=24)
        .properties(title=alt.TitleParams(report.title, anchor="start", fontSize=15, offset=14))
        .configure(background="white")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor="#e4e4e4")
        .configure_title(fontSize=13, anchor="start")
    )


_WIDTH = 560


def _bars(job: str, results: Sequence[Result], on_the_axis: Sequence[Result]) -> Any:
    import altair as alt

    from haply.report.charts import BLUE, GREY

    least, most = (pick(result.seconds for result in on_the_axis) for pick in (min, max))
    # Bars on a logarithmic scale cannot begin at 0: all begin well to the left of the fastest.
    floor = 10.0 ** math.floor(math.log10(least / 2.0))
    records = [
        asdict(result)
        | {
            "floor": floor,
            "label": in_seconds(result.seconds) + ("" if result.engine == OURS else f", {result.ratio:.1f}x"),
        }
        for result in results
    ]
    # room for the label to the right of the longest bar
    scale = alt.Scale(type="log", domain=[floor, floor * (most / floor) ** 1.35], nice=False)
    base = alt.Chart(alt.Data(values=records), title=job).encode(
        y=alt.Y("engine:N", sort=[result.engine for result in results], title=None)
    )
    bars = base.mark_bar(height={"band": 0.7}).encode(
        x=alt.X(
            "floor:Q",
            scale=scale,
            title="seconds (logarithmic)",
            axis=alt.Axis(format="~g", values=_ticks(floor, most)),
        ),
        x2="seconds:Q",
        color=alt.condition(alt.datum.engine == OURS, alt.value(BLUE), alt.value(GREY)),
    )
    labels = base.mark_text(align="left", dx=6, fontSize=12).encode(x=alt.X("seconds:Q", scale=scale), text="label:N")
    return (bars + labels).properties(width=_WIDTH, height=34 * len(results))


def _ticks(least: float, most: float) -> list[float]:
    steps = (1.0, 2.0, 5.0) if most < 1e3 * least else (1.0,)
    last = math.ceil(math.log10(most)) + 1
    return [step * 10.0**power for power in range(math.floor(math.log10(least)), last) for step in steps]


def _line(growth: Sequence[Growth]) -> Any:
    import altair as alt

    from haply.report.charts import BLUE

    records = [asdict(point) | {"label": in_seconds(point.seconds)} for point in growth]
    most = max(point.rows_per_second for point in growth)
    rows = [point.rows for point in growth]
    base = alt.Chart(alt.Data(values=records), title=f"{OURS} as the tables grow").encode(
        x=alt.X(
            "rows:Q",
            title="rows of each side (logarithmic)",
            scale=alt.Scale(type="log", domain=[min(rows) / 1.5, max(rows) * 1.9], nice=False),
            axis=alt.Axis(values=rows, format="~s", grid=False),
        ),
        y=alt.Y("rows_per_second:Q", title="rows per second", scale=alt.Scale(domain=[0, 1.15 * most])),
    )
    line = base.mark_line(color=BLUE, point=alt.OverlayMarkDef(color=BLUE, size=60))
    return (line + base.mark_text(dy=-14, fontSize=11).encode(text="label:N")).properties(width=_WIDTH, height=220)


def on_spark(settings: Any, measure: Callable[[Any, Any, Tell], Report], tell: Tell) -> Report:
    """Measure in the running Spark session, or in a new one."""
    from pyspark.sql import SparkSession

    from haply.engines.spark.runtime.session import local_session

    running = SparkSession.getActiveSession()
    tell("starting Spark")
    session = running or local_session(
        "haply bench", cores=settings.cores, memory=settings.memory, shuffle_partitions=settings.shuffle_partitions
    )
    try:
        return measure(session, settings, tell)
    finally:
        if running is None:
            session.stop()
