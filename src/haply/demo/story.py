"""``haply demo``: two networks of thermometers, what three kinds of join make of them, and three smaller stories.

The story. A dairy measures its vessels with two networks of thermometers: probes built into the vessels, and loggers
that came later. Half of the loggers sit in a pocket of the pipe and are good; half are clipped to its outside and are
about ten times worse. The logger's list of vessels is lost, so that each hour its readings must be matched with the
probes' by temperature alone. The data are made up, so the truth (which readings are of one vessel and hour) is known
and every answer can be scored; no join sees it. The smaller stories are in ``route``, ``timing`` and
``sky``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from haply._version import __version__
from haply.demo import counterparts, route, sky, timing, unconfirmed
from haply.demo.kernels import CompilingAhead
from haply.demo.sky import SkyResult
from haply.errors import HaplyError
from haply.numerics.jit import cache_folder

if TYPE_CHECKING:
    from rich.console import Console

ROWS = 30_000
"""Readings of each network."""

WITHIN, THRESHOLD = 0.5, 0.05
CONDITION = f"abs(left.temp - right.temp) <= {WITHIN} AND left.hour = right.hour"
TOLERANCES = (0.2, 0.5, 1.0, 2.0, 4.0)
_FAINTEST = 0.01  # the curves need the pairs below the threshold as well
_SEED = 20050614

_VESSELS, _SEEN = 8, 0.75
_PROBE_ERRORS, _FITTED_ERRORS, _CLIPPED_ERRORS = (0.05, 0.2), (0.1, 0.4), (1.5, 3.0)
_DEVICES = 240

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


# -- the planted world -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """The readings of both networks, and how many pairs of them are truly of one vessel and hour."""

    probes: pa.Table
    loggers: pa.Table
    true_pairs: int


def plant(rows: int = ROWS, seed: int = _SEED) -> World:
    """Make up readings: about ``rows`` for each network, of hours in which eight vessels are between 2 and 90 °C.

    Each network misses a quarter of the readings, so that many have no partner. A reading is the true temperature plus
    a normal error of the size that its device states.
    """
    random = np.random.default_rng(seed)
    hours = max(1, round(rows / (_VESSELS * _SEEN)))
    truth = random.uniform(2.0, 90.0, (hours, _VESSELS))

    def errors(sizes: tuple[float, float]) -> np.ndarray:
        return np.exp(random.uniform(np.log(sizes[0]), np.log(sizes[1]), _DEVICES // 2))

    def network(letter: str, device_errors: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        device = random.integers(0, len(device_errors), truth.shape)
        seen = random.random(truth.shape) < _SEEN
        error = device_errors[device]
        reading = truth + error * random.normal(size=truth.shape)
        hour, vessel = np.nonzero(seen)
        table = pa.table(
            {
                "hour": hour.astype(np.int32),
                "device": [f"{letter}{number:03}" for number in device[seen]],
                "reading": reading[seen],
                "error": error[seen],
                "truth": hour * _VESSELS + vessel,
            }
        )
        return table, seen

    probes, probe_sees = network("P", errors(_PROBE_ERRORS))
    loggers, logger_sees = network("L", np.concatenate([errors(_FITTED_ERRORS), errors(_CLIPPED_ERRORS)]))
    return World(probes, loggers, int((probe_sees & logger_sees).sum()))


# -- scoring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """How one method did against the planted truth."""

    method: str
    setting: str
    pairs: int
    precision: float
    recall: float
    threshold: float | None = None
    seconds: float | None = None

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2.0 * self.precision * self.recall / both if both else 0.0

    def record(self, marked: bool) -> dict[str, Any]:
        """The score as a record for the charts."""
        names = ("method", "setting", "threshold", "precision", "recall", "f1")
        return {name: getattr(self, name) for name in names} | {"marked": marked}


def _score(right: np.ndarray, true_pairs: int, method: str, setting: str, **more: Any) -> Score:
    """Score an answer from one flag a pair: whether it is true."""
    found = int(right.sum())
    precision = found / len(right) if len(right) else 0.0
    return Score(method, setting, len(right), precision, found / true_pairs if true_pairs else 0.0, **more)


@dataclass
class DemoResult:
    """What the demo found."""

    report: Path
    plain: Score
    tolerances: list[Score]
    best_tolerance: Score
    haply: Score
    stricter: list[Score]
    curve: list[Score] = field(repr=False)
    walk: route.RouteResult
    alarms: timing.AlarmResult
    unconfirmed: unconfirmed.UnconfirmedResult
    tracks: timing.TrackResult
    sky: SkyResult
    counterparts: counterparts.CounterpartResult
    seconds: float = 0.0


# -- the run -----------------------------------------------------------------------------------------------------------

_T = TypeVar("_T")


class _Steps:
    """Progress: a spinner and a tick on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total, self.done = console, total, 0
        self.ahead: CompilingAhead | None = None

    def run(self, what: str, work: Callable[[], _T], kernels: str | None = None) -> tuple[_T, float]:
        """Do one step, when the kernels of its part are compiled; returns its result and its seconds."""
        self.done += 1
        begun = time.perf_counter()
        with self._shown(f"({self.done}/{self.total}) {what}"):
            if self.ahead is not None and kernels is not None:
                self.ahead.wait_for(kernels)
            result = work()
        seconds = time.perf_counter() - begun
        if self.console.is_terminal:
            self.console.print(f"[green]✓[/] {what} [dim]{seconds:.1f} s[/]")
        else:
            self.console.print(f"{seconds:.1f} s")
        return result, seconds

    @contextmanager
    def _shown(self, line: str) -> Iterator[None]:
        if self.console.is_terminal:
            with self.console.status(line):
                yield
        else:
            self.console.print(f"{line} ... ", end="", markup=False)
            yield


def run_demo(
    out: str | Path = "out/demo", rows: int = ROWS, spark: Any = None, console: Console | None = None
) -> DemoResult:
    """Run the demo and write ``report.html`` into ``out``; starts and stops a Spark session unless one is given."""
    from rich.console import Console

    if rows < 300:
        raise HaplyError(
            "The demo has too few rows to tell a story", expected="--rows of at least 300", found=str(rows)
        )
    console = console or Console(highlight=False)
    begun = time.perf_counter()
    _introduce(console)
    steps = _Steps(console, total=13 if spark is None else 12)
    if spark is not None:
        return _tell(Path(out), rows, spark, console, steps, begun)
    cores = os.cpu_count() or 2
    with CompilingAhead() as steps.ahead:
        if steps.ahead.busy:
            console.print(f"Kernels are compiled meanwhile; later runs load them from {cache_folder()}", soft_wrap=True)
        own, _ = steps.run(
            f"Starting Spark on this machine ({cores} cores)",
            lambda: _start_spark(Path(out), cores),
        )
        try:
            return _tell(Path(out), rows, own, console, steps, begun)
        finally:
            own.stop()


def _start_spark(out: Path, cores: int) -> Any:
    """Start Spark, and let its own messages go to a file: those of streams would cover what the demo prints."""
    from haply.engines.spark.runtime.session import SHORT_RUN, local_session

    out.mkdir(parents=True, exist_ok=True)
    kept = [os.dup(number) for number in (1, 2)]
    with open(out / "spark.log", "wb") as log:
        try:
            for number in (1, 2):  # the JVM inherits where these point when it starts
                os.dup2(log.fileno(), number)
            return local_session("haply demo", shuffle_partitions=max(2, min(cores, 16)), extra_conf=SHORT_RUN)
        finally:
            for number, before in zip((1, 2), kept, strict=True):
                os.dup2(before, number)
                os.close(before)


def _introduce(console: Console) -> None:
    console.print(f"[bold]haply {__version__}[/]: which rows belong together when their values are uncertain?\n")
    console.print(
        "A dairy measures its vessels with two networks of thermometers: built-in probes (errors of 0.05 to 0.2 °C) "
        "and loggers, half of them well fitted (0.1 to 0.4 °C), half clipped to the outside of a pipe (1.5 to 3 °C). "
        "Every device states its own error. Which vessel a logger belonged to is lost: hour by hour, its readings must "
        "be matched with the probes' by temperature. The data are made up, so we know the truth; the joins do not.\n"
    )


def _tell(out: Path, rows: int, spark: Any, console: Console, steps: _Steps, begun: float) -> DemoResult:
    from haply.api import join
    from haply.constructors import CONSTRUCTORS
    from haply.report.funnel import Funnel

    def load() -> tuple[World, Any, Any]:
        world = plant(rows)
        tables = [
            spark.createDataFrame(table).withColumn("temp", CONSTRUCTORS["gaussian"]("reading", "error")).cache()
            for table in (world.probes, world.loggers)
        ]
        for table in tables:
            table.count()
        return world, *tables

    (world, probes, loggers), _ = steps.run(f"Planting two networks of about {rows:,} readings", load)

    def certain(condition: str) -> pa.Table:
        text = f"""SELECT p.device AS probe, p.reading AS probe_reading, p.error AS probe_error,
                          l.device AS logger, l.reading AS logger_reading, l.error AS logger_error,
                          p.hour AS hour, p.truth = l.truth AS right
                   FROM {{probes}} p JOIN {{loggers}} l ON p.hour = l.hour AND {condition}"""
        return spark.sql(text, probes=probes, loggers=loggers).toArrow()

    plain_pairs, seconds = steps.run(
        "Plain join: equal when rounded to 0.1 °C", lambda: certain("round(p.reading, 1) = round(l.reading, 1)")
    )
    plain = _score(_flags(plain_pairs), world.true_pairs, "plain join", "equal to 0.1 °C", seconds=seconds)

    widest, seconds = steps.run(
        f"Fixed tolerance: within {TOLERANCES[-1]:g} °C, and from it all narrower ones",
        lambda: certain(f"abs(p.reading - l.reading) <= {TOLERANCES[-1]}"),
    )
    swept = _sweep_tolerances(widest, world.true_pairs, seconds)
    tolerances = [score for score in swept if score.setting in {_tolerance_name(t) for t in TOLERANCES}]
    best_tolerance = replace(max(swept, key=lambda score: score.f1), seconds=None)

    def uncertain(threshold: float, funnel: Funnel | None) -> pa.Table:
        pairs = join(probes, loggers, on=CONDITION, threshold=threshold, funnel=funnel)
        return pairs.selectExpr("truth_left = truth_right AS right", "probability").toArrow()

    every, _ = steps.run(
        f"haply: every pair with P ≥ {_FAINTEST:g}, for the curves", lambda: uncertain(_FAINTEST, None), "readings"
    )
    funnel = Funnel()
    kept, seconds = steps.run(
        f"haply: within {WITHIN:g} °C with P ≥ {THRESHOLD:g}", lambda: uncertain(THRESHOLD, funnel)
    )
    ours = _score(_flags(kept), world.true_pairs, "haply", f"P ≥ {THRESHOLD:g}", threshold=THRESHOLD, seconds=seconds)
    for table in (probes, loggers):
        table.unpersist()
    curve = _sweep_thresholds(every, world.true_pairs)
    stricter = [score for score in curve if score.threshold in (0.5, 0.9)]

    walk, _ = steps.run(
        f"A walk: within {route.WITHIN:g} m of its usual route with P ≥ {route.THRESHOLD:g}",
        lambda: route.follow_route(spark),
        "walk",
    )
    alarms, _ = steps.run(
        f"Alarms: two sensors within {timing.WINDOW:g} s with P ≥ {timing.THRESHOLD:g}",
        lambda: timing.raise_alarms(spark),
        "alarms",
    )
    alone, _ = steps.run(
        "Two streams: alarms that nobody confirmed",
        lambda: unconfirmed.find_unconfirmed(spark, alarms.night, alarms.probability > 0.0, alarms.detected),
        "alarms",
    )
    tracks, _ = steps.run(
        f"Cameras: drives past {len(timing.CAMERAS)} of them, by a window for each leg",
        lambda: timing.follow_vehicles(spark),
        "cameras",
    )
    found_sky, _ = steps.run(
        f"The sky: two catalogues at one place, within {sky.WITHIN:g}″ with P ≥ {sky.THRESHOLD:g}",
        lambda: sky.match_catalogues(spark),
        "sky",
    )
    partners, _ = steps.run(
        "The sky: which source is the counterpart, if any?", counterparts.find_counterparts, "counterparts"
    )
    result = DemoResult(
        out / "report.html", plain, tolerances, best_tolerance, ours, stricter, curve, walk, alarms, alone, tracks,
        found_sky, partners,
    )  # fmt: skip
    steps.run("Writing the report", lambda: _write_report(result, world, every, swept, widest, funnel))
    result.seconds = time.perf_counter() - begun
    _conclude(console, result, world, funnel)
    return result


def _flags(pairs: pa.Table) -> np.ndarray:
    return pairs["right"].to_numpy(zero_copy_only=False).astype(bool)


def _tolerance_name(tolerance: float) -> str:
    return f"±{tolerance:.3g} °C"


def _sweep_tolerances(widest: pa.Table, true_pairs: int, seconds: float) -> list[Score]:
    """Every tolerance up to the widest, scored from the answer to that one, which took so many seconds."""
    gap = np.abs(widest["probe_reading"].to_numpy() - widest["logger_reading"].to_numpy())
    right = _flags(widest)
    steps = np.round(np.arange(0.05, TOLERANCES[-1] + 0.01, 0.05), 2)
    scores = [
        _score(right[gap <= tolerance], true_pairs, "fixed tolerance", _tolerance_name(tolerance))
        for tolerance in steps
    ]
    return [*scores[:-1], replace(scores[-1], seconds=seconds)]


def _sweep_thresholds(every: pa.Table, true_pairs: int) -> list[Score]:
    """Every threshold from the faintest, scored from one answer: each pair carries its probability."""
    probability, right = every["probability"].to_numpy(), _flags(every)
    steps = sorted(
        {round(float(t), 3) for t in np.concatenate([np.arange(0.01, 0.3, 0.01), np.arange(0.3, 1.0, 0.02)])}
    )
    return [_score(right[probability >= t - 1e-12], true_pairs, "haply", f"P ≥ {t:g}", threshold=t) for t in steps]


# -- telling it --------------------------------------------------------------------------------------------------------


def _ahead(result: DemoResult) -> tuple[float, float] | None:
    """The thresholds around the demo's own between which haply's F1 beats that of the best tolerance."""
    below, above = THRESHOLD, THRESHOLD
    if result.haply.f1 <= result.best_tolerance.f1:
        return None
    wins = {score.threshold: score.f1 > result.best_tolerance.f1 for score in result.curve}
    tried = sorted(threshold for threshold in wins if threshold is not None)
    for threshold in (t for t in reversed(tried) if t < THRESHOLD):
        if not wins[threshold]:
            break
        below = threshold
    for threshold in (t for t in tried if t > THRESHOLD):
        if not wins[threshold]:
            break
        above = threshold
    return below, above


def _precision_at(curve: list[Score], recall: float) -> float:
    """The precision at which a curve of scores passes a recall."""
    points = sorted((score.recall, score.precision) for score in curve)
    return float(np.interp(recall, [point[0] for point in points], [point[1] for point in points]))


def _why() -> str:
    return (
        "A tolerance is one number for all readings: wide enough for the clipped loggers, it lets strangers in among "
        "the fitted ones; the probability weighs every reading by its own error."
    )


def _rows(result: DemoResult) -> list[tuple[Score, str]]:
    """The lines of the comparison with the name of each."""
    best = result.best_tolerance
    return [
        (result.plain, f"plain join, {result.plain.setting}"),
        *((score, f"fixed tolerance, {score.setting}") for score in result.tolerances),
        (best, f"best tolerance, {best.setting} (tuned on the truth)"),
        (result.haply, f"haply, {result.haply.setting}"),
        *((score, f"haply, {score.setting}") for score in result.stricter),
    ]


def _cells(score: Score, name: str) -> list[str]:
    seconds = "" if score.seconds is None else f"{score.seconds:.1f}"
    return [name, f"{score.pairs:,}", f"{score.precision:.3f}", f"{score.recall:.3f}", f"{score.f1:.3f}", seconds]


_ON_SECONDS = (
    "Lines without seconds are read off another line's answer; haply's are those of its second join, as the first also "
    "starts Python."
)
_HEADER = ("method", "pairs", "precision", "recall", "F1", "seconds")


def _verdict(result: DemoResult) -> str:
    best, ours = result.best_tolerance, result.haply
    text = (
        f"haply at {ours.setting} finds {ours.recall:.0%} of the true pairs, and {ours.precision:.0%} of its answer "
        f"is right; the best tolerance, {best.setting}, finds {best.recall:.0%}, and {best.precision:.0%} is right."
    )
    ahead = _ahead(result)
    if ahead:
        text += f" Its F1 is above that of every tolerance at any threshold from {ahead[0]:g} to {ahead[1]:g}."
    return text


def _conclude(console: Console, result: DemoResult, world: World, funnel: Any) -> None:
    from rich.table import Table

    table = Table(
        title=f"Against the {world.true_pairs:,} planted pairs", title_justify="left", title_style="bold", box=None
    )
    for position, name in enumerate(_HEADER):
        table.add_column(name, justify="left" if position == 0 else "right", overflow="fold")
    for score, name in _rows(result):
        table.add_row(*_cells(score, name), style="bold" if score is result.haply else "")
    console.print()
    console.print(table)
    console.print(
        f"precision: how much of the answer is right; recall: how much of the truth is found; F1: both in one number. "
        f"{_ON_SECONDS}\n",
        style="dim",
    )
    console.print(f"{_verdict(result)} {_why()}\n")
    console.print("How few pairs were looked at, at " + result.haply.setting + ":")
    console.print(str(funnel), markup=False, soft_wrap=True)
    route.tell(console, result.walk)
    timing.tell_alarms(console, result.alarms)
    unconfirmed.tell(console, result.unconfirmed)
    timing.tell_tracks(console, result.tracks)
    sky.tell(console, result.sky)
    counterparts.tell(console, result.counterparts)
    console.print(
        f"\nThe report is at [bold]{result.report}[/]: the same with pictures (how sure the pairs are, the funnel, the "
        "threshold against precision and recall, two pairs explained rule by rule, a map of the walk, timelines of "
        "alarms and cameras, two catalogues of the sky, and whether probabilities are right). It opens without a "
        "network."
    )
    console.print(f"All of it took {result.seconds:.0f} seconds.\n")
    console.print("[bold]What to try next[/]")
    console.print("  haply demo --rows 200000 --out out/larger     the same with more readings")
    console.print("  python -m benchmarks --quick                  haply beside other engines")
    console.print("  and in Python, where one side has whole degrees only, so its values are intervals:\n")
    console.print("\n".join(f"    {line}" for line in SNIPPET.splitlines()), markup=False, soft_wrap=True)


# -- the report --------------------------------------------------------------------------------------------------------


def _write_report(
    result: DemoResult, world: World, every: pa.Table, swept: list[Score], widest: pa.Table, funnel: Any
) -> None:
    from haply.drawing.funnel import in_words
    from haply.report import charts
    from haply.report.page import Page

    page = Page(
        "Two networks of thermometers, a walk, alarms, cameras and the sky",
        "Which readings of two networks belong together, when each reading has its own error, and how sure are we? "
        f"{len(world.probes):,} probe readings, {len(world.loggers):,} logger readings, "
        f"{world.true_pairs:,} planted pairs.",
    )
    page.prose(
        "A dairy measures its vessels with built-in probes (errors of 0.05 to 0.2 °C) and with loggers: half of them "
        "well fitted (0.1 to 0.4 °C), half clipped to the outside of a pipe (1.5 to 3 °C). Which vessel a logger "
        "belonged to is lost, so its readings are matched with the probes' of the same hour by temperature. The data "
        "are made up, so every answer can be held against the truth.",
    )
    page.code(f'pairs = hp.join(probes, loggers, threshold={THRESHOLD:g},\n    on="{CONDITION}")')
    page.table(
        _HEADER,
        [_cells(score, name) for score, name in _rows(result)],
        caption="Precision is how much of the answer is right, recall how much of the truth is found, F1 their "
        f"harmonic mean. {_ON_SECONDS}",
        strong=[k for k, (score, _) in enumerate(_rows(result)) if score is result.haply],
    )
    page.prose(_verdict(result), _why())

    page.section("How sure the pairs are")
    page.prose(
        f"Every pair carries the probability that its two true temperatures lie within {WITHIN:g} °C of each other. "
        "Fitted loggers give pairs near 1. A clipped logger can never be that sure: with an error of 2 °C, even equal "
        "readings agree with a probability of 0.2 only. So the threshold is low here: one in twenty."
    )
    kinds = np.where(_flags(every), "one vessel", "two vessels").tolist()
    records = charts.histogram_records(every["probability"].to_pylist(), kinds)
    page.chart(
        charts.probability_histogram(
            sorted(records, key=lambda record: record["kind"]),
            threshold=THRESHOLD,
            about=f"probability that the two temperatures lie within {WITHIN:g} °C",
        ),
        f"Histogram of the probabilities of {every.num_rows:,} pairs, true and false ones in two colours.",
        caption=f"All pairs with a probability of at least {_FAINTEST:g}. Colours show the planted truth.",
    )

    page.section("The funnel")
    counts = funnel.to_dict()
    page.prose(
        f"{in_words(counts['pairs_possible'])} pairs are possible. Intervals around each reading, cut so that "
        f"pairs apart cannot reach the threshold, and the equal hour leave {counts['candidates']:,} candidates; sound "
        f"bounds reject {sum(counts['rejected'].values()):,} of these, and {counts['evaluated']:,} are evaluated. No "
        "pair above the threshold is ever lost."
    )
    page.chart(funnel.chart(), "Bar chart of the pairs left after each stage, on a logarithmic axis.")

    page.section("Threshold against precision and recall")
    recall = result.best_tolerance.recall
    page.prose(
        "Raising the threshold trades recall for precision. A tolerance has such a dial too. Where the clipped loggers "
        f"matter it is the worse one: at the best tolerance's recall of {recall:.2f}, its precision is "
        f"{result.best_tolerance.precision:.2f}, and haply's {_precision_at(result.curve, recall):.2f}. Towards the "
        "left only fitted loggers are left; there the errors hardly differ, and a tolerance does about as well."
    )
    marked_tolerances = {score.setting for score in result.tolerances}
    records = [score.record(score.threshold in (THRESHOLD, 0.15, 0.5, 0.9)) for score in result.curve]
    records += [score.record(False) for score in swept if score.setting not in marked_tolerances]
    records += [score.record(True) for score in (*result.tolerances, result.plain)]
    page.chart(
        charts.threshold_curves(records),
        "Two line charts: precision, recall and F1 against the threshold; and precision against recall for haply, "
        "fixed tolerances and the plain join.",
    )

    page.section("One pair explained, and another")
    _explain_pairs(page, widest)
    route.add_section(page, result.walk)
    timing.add_alarms(page, result.alarms)
    unconfirmed.add_section(page, result.unconfirmed)
    timing.add_tracks(page, result.tracks)
    sky.add_section(page, result.sky)
    counterparts.add_section(page, result.counterparts)
    page.write(result.report)


def _explain_pairs(page: Any, widest: pa.Table) -> None:
    """A true pair with a poor logger, and a false pair with a good one and about the same gap."""
    columns = {name: widest[name].to_numpy(zero_copy_only=False) for name in widest.column_names}
    gap = np.abs(columns["probe_reading"] - columns["logger_reading"])
    right, poor = columns["right"].astype(bool), columns["logger_error"] > 1.0
    wanted = 1.5
    chosen = []
    for these in (right & poor & (columns["logger_error"] < 2.2), ~right & ~poor):
        place = np.flatnonzero(these)
        if len(place):
            chosen.append(place[np.abs(gap[place] - wanted).argmin()])
            wanted = gap[chosen[0]]
    page.prose(
        "Both pairs below are about equally far apart, so a tolerance keeps both or neither. Their errors tell them "
        "apart. Each rule proves that the probability lies between two ends; the join asks the rules in the order of "
        "their price and stops as soon as one of them decides."
    )
    for row in chosen:
        _explain_one(page, {name: values[row] for name, values in columns.items()}, bool(right[row]))


def _explain_one(page: Any, row: dict[str, Any], right: bool) -> None:
    from haply.models import Gaussian
    from haply.probability.region import Region
    from haply.pruning.threshold import Threshold
    from haply.report import charts
    from haply.report.explain import deciding_step, density_records, explain_pair

    probe, logger = (
        Gaussian(float(row[f"{side}_reading"]), float(row[f"{side}_error"])) for side in ("probe", "logger")
    )
    names = tuple(
        f"{side} {row[side]}: {row[f'{side}_reading']:.2f} ± {row[f'{side}_error']:.2f} °C"
        for side in ("probe", "logger")
    )
    gap = abs(float(row["probe_reading"]) - float(row["logger_reading"]))
    truth = "of one vessel" if right else "of two different vessels"
    steps = explain_pair(probe, logger, Region(-WITHIN, WITHIN), Threshold(THRESHOLD))
    page.subsection(f"{row['probe']} and {row['logger']} in hour {row['hour']}: {gap:.2f} °C apart, in truth {truth}")
    centre = float(row["probe_reading"])
    page.chart(
        charts.pair_densities(
            density_records(probe, logger, (names[0], names[1])),
            unit="°C",
            within=(centre - WITHIN, centre + WITHIN),
            title=f"Readings {gap:.2f} °C apart: where the true temperatures may be",
        ),
        f"Densities of {names[0]} and {names[1]}, with the tolerance as a band.",
    )
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
