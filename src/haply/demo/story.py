"""``haply demo``: two networks of thermometers, matched by three kinds of join, and six smaller examples.

The readings are made up and scored in ``readings``; the smaller examples are in ``route``, ``timing``, ``unconfirmed``,
``sky`` and ``counterparts``. ``telling`` has the words and the report.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from haply.demo import counterparts, route, sky, timing, unconfirmed
from haply.demo.kernels import CompilingAhead
from haply.demo.readings import (
    CONDITION,
    FAINTEST,
    ROWS,
    THRESHOLD,
    TOLERANCES,
    WITHIN,
    ReadingsResult,
    World,
    flags,
    plant,
    score,
    sweep_thresholds,
    sweep_tolerances,
)
from haply.demo.telling import DemoResult, conclude, introduce, make_page
from haply.errors import HaplyError
from haply.numerics.jit import cache_folder, compile_silently

if TYPE_CHECKING:
    from rich.console import Console

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
        raise HaplyError("The demo has too few rows", expected="--rows of at least 300", found=str(rows))
    console = console or Console(highlight=False)
    _check_packages()
    begun = time.perf_counter()
    introduce(console)
    steps = _Steps(console, total=14 if spark is None else 13)
    if spark is not None:
        return _tell(Path(out), rows, spark, console, steps, begun)
    cores = os.cpu_count() or 2
    with CompilingAhead() as steps.ahead:
        if steps.ahead.busy:
            console.print(f"Kernels are compiled meanwhile; later runs load them from {cache_folder()}", soft_wrap=True)
            compile_silently()
        own, _ = steps.run(
            f"Starting Spark on this machine ({cores} cores)",
            lambda: _start_spark(Path(out), cores),
        )
        try:
            return _tell(Path(out), rows, own, console, steps, begun)
        finally:
            own.stop()


def _check_packages() -> None:
    """Refuse at once where Spark or charts are missing, and not after a minute."""
    importlib.import_module("haply.engines.spark")
    importlib.import_module("haply.drawing.library").chart_converter()


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


def _tell(out: Path, rows: int, spark: Any, console: Console, steps: _Steps, begun: float) -> DemoResult:
    from haply.engines.spark.runtime.session import INTERPRETED

    readings = _match_readings(rows, spark, steps)
    if steps.ahead is not None:  # a separate session: what follows is small, and not timed
        for name, value in INTERPRETED.items():
            spark.conf.set(name, str(value).lower() if isinstance(value, bool) else value)
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
    # last, when nothing is compiled at the same time: Spark gives the process for a stream's state ten seconds
    alone, _ = steps.run(
        "Two streams: alarms that nobody confirmed",
        lambda: unconfirmed.find_unconfirmed(spark, alarms.night, alarms.probability > 0.0, alarms.detected),
        "alarms",
    )
    result = DemoResult(out / "report.html", readings, walk, alarms, alone, tracks, found_sky, partners)
    steps.run("Writing the report", lambda: make_page(result).write(result.report))
    result.seconds = time.perf_counter() - begun
    conclude(console, result)
    return result


def _match_readings(rows: int, spark: Any, steps: _Steps) -> ReadingsResult:
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

    def certain(condition: str, columns: str) -> pa.Table:
        text = f"""SELECT p.truth = l.truth AS right {columns}
                   FROM {{probes}} p JOIN {{loggers}} l ON p.hour = l.hour AND {condition}"""
        return spark.sql(text, probes=probes, loggers=loggers).toArrow()

    plain_pairs, _ = steps.run(
        "Plain join: equal when rounded to 0.1 °C", lambda: certain("round(p.reading, 1) = round(l.reading, 1)", "")
    )
    plain = score(flags(plain_pairs), world.true_pairs, "plain join", "equal to 0.1 °C")
    shown = """, p.device AS probe, p.reading AS probe_reading, p.error AS probe_error, l.device AS logger,
               l.reading AS logger_reading, l.error AS logger_error, p.hour AS hour"""
    widest, _ = steps.run(
        f"Fixed tolerance: within {TOLERANCES[-1]:g} °C, and from it all narrower ones",
        lambda: certain(f"abs(p.reading - l.reading) <= {TOLERANCES[-1]}", shown),
    )
    swept = sweep_tolerances(widest, world.true_pairs)
    best = max(swept, key=lambda each: each.f1)
    _, seconds = steps.run(
        f"The best of them, {best.setting}, timed",
        lambda: certain(f"abs(p.reading - l.reading) <= {best.tolerance}", ""),
    )
    best = replace(best, seconds=seconds)

    def uncertain(threshold: float, funnel: Funnel | None) -> pa.Table:
        pairs = join(probes, loggers, on=CONDITION, threshold=threshold, funnel=funnel)
        return pairs.selectExpr("truth_left = truth_right AS right", "probability").toArrow()

    every, _ = steps.run(
        f"haply: every pair with P ≥ {FAINTEST:g}, for the curves", lambda: uncertain(FAINTEST, None), "readings"
    )
    funnel = Funnel()
    kept, seconds = steps.run(
        f"haply: within {WITHIN:g} °C with P ≥ {THRESHOLD:g}, timed", lambda: uncertain(THRESHOLD, funnel)
    )
    ours = score(flags(kept), world.true_pairs, "haply", f"P ≥ {THRESHOLD:g}", threshold=THRESHOLD, seconds=seconds)
    for table in (probes, loggers):
        table.unpersist()
    curve = sweep_thresholds(every, world.true_pairs)
    busy = steps.ahead is not None and steps.ahead.busy
    return ReadingsResult(world, plain, swept, best, ours, curve, widest, every, funnel, busy)
