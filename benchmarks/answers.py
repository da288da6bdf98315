"""``bench answers``: the cost of answers about rows beside the join of the same tables, all in one process.

* The best pair of each row beside all pairs: the time, and how many pairs are evaluated.
* The best pair of each position without a threshold, beside the join with one.
* ``hp.match`` of two catalogues beside a cross-match within a radius, and beside NWAY, if a Python is given for it.
* ``hp.count_matches`` beside the join that has the same candidates.
* Batches of events joined with an indexed table, as a worker of a stream does.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import NWAY_PYTHON
from benchmarks.measure import OURS, Claim, Figure, Report, Result, Tell, circumstances, take_turns
from haply.api import build_index, join, read_index
from haply.engines.local.threads import cores
from haply.errors import HaplyError
from haply.questions import count_matches, match
from haply.report.funnel import Funnel

_WRITER = Path(__file__).with_name("nway_program.py")


@dataclass(frozen=True)
class Settings:
    """The workload; lengths on the sky are arcseconds."""

    rows: int = 1_000_000
    band_densities: tuple[float, ...] = (22.4, 1.12)
    """Rows of a side for each unit of the line: about 17 and about 0.85 pairs a row."""
    star_densities: tuple[float, ...] = (2.0, 0.2)
    """Sources for each square arcsecond: about 19 and about 2 pairs a row."""
    dense_rows: int = 200_000
    within: float = 2.0
    threshold: float = 0.7
    match_radius: float = 5.0
    completeness: float = 0.7
    nway_rows: int = 100_000
    indexed_rows: int = 20_000_000
    page_rows: int = 4096
    events: int = 2_000
    """Events of a batch. They come from a part of the line, like events of one field or one day."""
    batches: int = 20
    repetitions: int = 3
    seed: int = 23


QUICK = Settings(
    rows=3_000, dense_rows=1_000, nway_rows=300, indexed_rows=20_000, page_rows=128, events=100, batches=2,
    repetitions=1,
)  # fmt: skip


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Measure every answer beside its join."""
    bench = _Bench(settings, tell)
    bench.best_pairs()
    bench.without_threshold()
    bench.same_things()
    bench.nway()
    bench.counts()
    bench.events()
    figure = Figure(
        "answers", "answers beside joins of the same tables", bench.rows, "job", ("ratio",), "times as long",
        seconds=("seconds", "beside"), claims=bench.claims, notes=bench.notes,
    )  # fmt: skip
    config: dict[str, Any] = {**settings.__dict__, "threads": cores(), **circumstances("pyarrow")}
    return Report("answers", f"Answers about rows, {cores()} threads", config, bench.results, figures=[figure])


class _Bench:
    """Collects the measurements."""

    def __init__(self, settings: Settings, tell: Tell) -> None:
        self.settings, self.tell = settings, tell
        self.random = np.random.default_rng(settings.seed)
        self.rows: list[dict[str, Any]] = []
        self.results: list[Result] = []
        self.claims: list[Claim] = []
        self.notes: list[str] = []

    def compare(self, job: str, ours: Callable[[], Any], other: str, theirs: Callable[[], Any], most: float) -> None:
        """Time an answer beside another, and claim that it takes at most ``most`` times as long."""
        seconds = take_turns(job, {OURS: ours, other: theirs}, self.settings.repetitions, self.tell)
        ratio = seconds[OURS] / seconds[other]
        self.add(job, other, seconds[OURS], seconds[other])
        self.claims.append(Claim(f"{job}: at most {most:g} times as long as {other}", f"{ratio:.2f}", ratio <= most))

    def add(self, job: str, other: str, seconds: float, beside: float, **more: Any) -> None:
        """Store both times."""
        self.rows.append(
            {"job": job, "seconds": seconds, "beside": beside, "what": other, "ratio": seconds / beside, **more}
        )
        self.results += [
            Result(job, OURS, seconds, 0, 1.0), Result(job, other, beside, 0, beside / seconds),
        ]  # fmt: skip

    # -- tables --------------------------------------------------------------------------------------------------------

    def band(self, rows: int, density: float) -> tuple[pa.Table, pa.Table]:
        """Make two tables of Gaussian values, spread evenly."""

        def side() -> pa.Table:
            mean, sd = self.random.uniform(0.0, rows / density, rows), self.random.uniform(0.1, 1.0, rows)
            return _table({"mean": mean, "sd": sd})

        return side(), side()

    def sky(self, rows: int, density: float, share: float = 0.0) -> tuple[pa.Table, pa.Table]:
        """Make two catalogues with circular errors; a share of the sources of the first is in the second as well."""
        size = math.sqrt(rows / density) / 3600.0
        errors = [self.random.uniform(0.05, 0.5, rows) for _ in range(2)]
        east, north = (self.random.uniform(0.0, size, (2, rows)) for _ in range(2))
        same = self.random.random(rows) < share
        apart = np.hypot(*errors) * self.random.normal(size=(2, rows)) / 3600.0
        east[1], north[1] = (
            np.where(same, mine[0] + off, mine[1]) for mine, off in zip((east, north), apart, strict=True)
        )

        def side(k: int) -> pa.Table:
            dec = 30.0 + north[k]
            ra = 120.0 + east[k] / np.cos(np.radians(dec))
            return _table({"ra": ra, "dec": dec, "ra_error": errors[k], "dec_error": errors[k], "corr": np.zeros(rows)})

        return side(0), side(1)

    # -- answers -------------------------------------------------------------------------------------------------------

    def best_pairs(self) -> None:
        """Time the best pair of each left row beside all pairs."""
        settings = self.settings
        line, sky = "abs(left.x - right.x) <= 1.0", f"distance(left.x, right.x) <= {settings.within!r}"
        jobs = [
            (f"best, values, {density:g} a unit", self.band(settings.rows, density), line)
            for density in settings.band_densities
        ]
        for density in settings.star_densities:
            rows = settings.dense_rows if density == max(settings.star_densities) else settings.rows
            jobs.append((f'best, sky, {density:g} a square"', self.sky(rows, density), sky))
        for job, (left, right), on in jobs:
            funnels = {keep: Funnel() for keep in ("all", "best_left")}
            found = {
                keep: join(left, right, on, settings.threshold, keep=keep, funnel=funnel)  # type: ignore[arg-type]
                for keep, funnel in funnels.items()
            }
            _check_best(job, found["all"], found["best_left"])
            evaluated = {keep: funnel.to_dict()["evaluated"] for keep, funnel in funnels.items()}
            del found
            self.compare(
                job,
                lambda: join(left, right, on, settings.threshold, keep="best_left"),  # noqa: B023
                "keep='all'",
                lambda: join(left, right, on, settings.threshold),  # noqa: B023
                1.0,
            )
            share = evaluated["best_left"] / max(1, evaluated["all"])
            self.notes.append(
                f"{job}: {evaluated['best_left']:,} pairs evaluated, {evaluated['all']:,} with keep='all' ({share:.2f})"
            )
            self.claims.append(
                Claim(f"{job}: less than a third of the pairs are evaluated", f"{share:.2f}", share < 1 / 3)
            )

    def without_threshold(self) -> None:
        """Time the best pair of each position, however unlikely, beside the join with a threshold."""
        settings = self.settings
        left, right = self.sky(settings.rows, min(settings.star_densities))
        on = f"distance(left.x, right.x) <= {settings.within!r}"
        found = join(left, right, on, keep="best_left", k=1)
        if found.num_rows != settings.rows:
            raise HaplyError("Without a threshold a row has no best", found=f"{found.num_rows:,} of {settings.rows:,}")
        _check_best("without a threshold", join(left, right, on, settings.threshold), found, settings.threshold)
        self.compare(
            f"top 1 without a threshold, {settings.rows:,} positions",
            lambda: join(left, right, on, keep="best_left", k=1),
            "the join with a threshold",
            lambda: join(left, right, on, settings.threshold),
            3.0,
        )

    def same_things(self) -> None:
        """Time ``hp.match`` beside a cross-match with the same number of candidates."""
        settings = self.settings
        density = min(settings.star_densities)
        left, right = self.sky(settings.rows, density, settings.completeness)

        def matched(funnel: Funnel | None = None) -> Any:
            return match(left, right, "x", density=density, completeness=settings.completeness, funnel=funnel)

        def crossed(funnel: Funnel | None = None) -> Any:
            return join(left, right, f"distance(left.x, right.x) <= {settings.within!r}", 1e-4, funnel=funnel)

        counts = []
        for answer in (matched, crossed):
            funnel = Funnel()
            answer(funnel)
            counts.append(funnel.to_dict()["evaluated"])
        job = f"hp.match, {settings.rows:,} sources"
        self.compare(job, matched, "the cross-match", crossed, 1.5)
        self.notes.append(f"{job}: {counts[0]:,} pairs weighed; the cross-match evaluates {counts[1]:,}")

    def nway(self) -> None:
        """Time ``hp.match`` beside NWAY, which computes the same in its own terms."""
        settings, python = self.settings, os.environ.get(NWAY_PYTHON)
        if python is None:
            self.notes.append("NWAY is left out: give a Python that has it, with --nway (pip install nway)")
            return
        density = min(settings.star_densities)
        left, right = self.sky(settings.nway_rows, density, settings.completeness)
        area = settings.nway_rows / density / 3600.0**2
        with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
            for name, table in (("left", left), ("right", right)):
                fields = table["x"].combine_chunks()
                columns = {key: fields.field(key).to_numpy() for key in ("ra", "dec", "ra_error")}
                np.savez(Path(folder) / f"{name}.npz", **columns)
            words = [python, str(_WRITER), folder, repr(area), repr(settings.match_radius), repr(settings.completeness)]
            self.tell(f"NWAY on {settings.nway_rows:,} sources")
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                self.notes.append(f"NWAY failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
                return
            theirs = dict(np.load(Path(folder) / "found.npz"))

        def matched() -> Any:
            # NWAY's density counts one row more, and its prior odds are its completeness (answers, erratum 1)
            share = settings.completeness / (1.0 + settings.completeness)
            per_area = (settings.nway_rows + 1) / (area * 3600.0**2)
            return match(left, right, "x", density=per_area, completeness=share, how="left")

        found = matched()
        ours = np.zeros(settings.nway_rows)
        ours[found["id_left"].to_numpy()] = found["p_any"].to_numpy()
        apart = float(np.abs(ours[theirs["id"]] - theirs["p_any"]).max(initial=0.0))
        seconds = take_turns("nway", {OURS: matched}, settings.repetitions, self.tell)[OURS]
        job = f"hp.match, {settings.nway_rows:,} sources"
        self.add(job, "nway", seconds, float(theirs["seconds"]))
        self.claims.append(Claim(f"{job}: p_any is NWAY's, but for 1e-6", f"{apart:.2g}", apart < 1e-6))

    def counts(self) -> None:
        """Time ``hp.count_matches`` beside the join with the same candidates."""
        settings = self.settings
        left, right = self.band(settings.rows, min(settings.band_densities))
        # count_matches leaves out pairs below this, and so does a join with the strict threshold
        on, least = "abs(left.x - right.x) <= 1.0", 1e-9 / settings.rows
        counted, joined = Funnel(), Funnel()
        found = count_matches(left, right, on, tolerance=1e-9, funnel=counted)
        pairs = join(left, right, on, least, strict=True, funnel=joined)
        candidates = [funnel.to_dict()["candidates"] for funnel in (counted, joined)]
        if candidates[0] != candidates[1]:
            raise HaplyError("Counting and the join have other candidates", found=f"{candidates}")
        sums = np.bincount(pairs["id_left"].to_numpy(), pairs["probability"].to_numpy(), settings.rows)
        apart = float(np.abs(sums[found["id"].to_numpy()] - found["expected_matches"].to_numpy()).max())
        if not apart < 1e-8:
            raise HaplyError("Expected matches are not the sums of probabilities", found=f"{apart:g} apart")
        del found, pairs
        self.compare(
            f"hp.count_matches, {settings.rows:,} values",
            lambda: count_matches(left, right, on),
            "the join",
            lambda: join(left, right, on, least, strict=True),
            3.0,
        )

    def events(self) -> None:
        """Time batches of events beside an indexed table: how many a second, and how many pages they read."""
        settings, rows = self.settings, self.settings.indexed_rows
        on = "abs(left.x - right.x) <= 0.1"
        job = f"batches of {settings.events:,} events beside {rows:,} indexed rows"

        def values(count: int, low: float, high: float) -> pa.Table:
            return _table(
                {"mean": self.random.uniform(low, high, count), "sd": self.random.uniform(0.005, 0.02, count)}
            )

        with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
            self.tell(f"indexing {rows:,} rows")
            build_index(values(rows, 0.0, float(rows)), "x", f"{folder}/index", page_rows=settings.page_rows)
            table = read_index(f"{folder}/index", engine="local")
            spent, read, total, kept = 0.0, 0, 0, 0
            for number in range(settings.batches + 1):
                begin = self.random.uniform(0.0, 0.99 * rows)
                batch, funnel = values(settings.events, begin, begin + 0.005 * rows), Funnel()
                begun = time.perf_counter()
                found = join(batch, table, on, 0.5, funnel=funnel)
                if number:  # the first one compiles kernels and opens files
                    counts = funnel.to_dict()
                    spent += time.perf_counter() - begun
                    read, total = read + counts["pages_read"], total + counts["pages_total"]
                    kept += found.num_rows
        events = settings.events * settings.batches
        rate, pages = events / spent, read / max(1, total)
        self.results.append(Result(job, OURS, spent, kept, 1.0))
        self.notes.append(
            f"{job}: {rate:,.0f} events a second; {pages:.2%} of the pages read for "
            f"{kept / settings.batches / rows:.4%} of the rows"
        )
        self.claims.append(Claim("at least 5,000 events a second", f"{rate:,.0f}", rate >= 5000.0))
        self.claims.append(Claim("at most 1% of the pages are read", f"{pages:.2%}", pages <= 0.01))


def _table(fields: dict[str, np.ndarray]) -> pa.Table:
    """Make a table of ids and uncertain values."""
    values = pa.StructArray.from_arrays(list(map(pa.array, fields.values())), list(fields))
    return pa.table({"id": np.arange(len(values)), "x": values})


def _check_best(job: str, pairs: pa.Table, best: pa.Table, least: float = 0.0) -> None:
    """Raise unless the best pairs have, for each left row that has pairs, the largest probability of these."""
    count = 1 + max(int(table["id_left"].to_numpy().max(initial=0)) for table in (pairs, best))
    most = []
    for table in (pairs, best):
        most.append(np.zeros(count))
        np.maximum.at(most[-1], table["id_left"].to_numpy(), table["probability"].to_numpy())
    differ = np.abs(most[0] - most[1]) * (most[1] >= least) > 1e-12
    if differ.any() or len(np.unique(best["id_left"].to_numpy())) != best.num_rows:
        raise HaplyError(f"Benchmark job '{job}': best pairs are missed", found=f"{int(differ.sum())} rows")
