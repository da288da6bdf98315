"""``bench events``: a Spark stream of events joined with an indexed table, each micro-batch without state.

The events of a batch come from a part of the line, like events of one field or one day. Whole micro-batches are
measured, as Spark reports them: reading the events, finding their partners, writing, and the checkpoint. The first
batches, in which workers start and load kernels, are left out.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import FULL_SIZE
from benchmarks.measure import OURS, Claim, Figure, Report, Result, Tell, circumstances, on_spark
from haply.errors import HaplyError

SparkSession: TypeAlias = Any

_PATIENCE = 60.0
"""Seconds to wait for Spark's report of the last batch."""
_START = 1_600_000_000
"""The time at which the first file of events was written: Spark reads the oldest file first."""


@dataclass(frozen=True)
class Settings:
    """The workload; rows lie one unit apart on average."""

    rows: int = 2_000_000
    page_rows: int = 4096
    events: int = 10_000
    """Events of a batch."""
    part: float = 0.005
    """The share of the line that the events of a batch come from."""
    batches: int = 12
    warm_up: int = 3
    within: float = 0.1
    threshold: float = 0.5
    cores: str = "2"
    memory: str = "4g"
    shuffle_partitions: int = 2
    seed: int = 29


QUICK = Settings(rows=50_000, page_rows=256, events=300, batches=3, warm_up=1)
FULL = replace(Settings(), rows=20_000_000)


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does, in a new Spark session if none is running."""
    settings = QUICK if quick else FULL if os.environ.get(FULL_SIZE) else Settings()
    return on_spark(settings, measure, tell)


def measure(session: SparkSession, settings: Settings, tell: Tell) -> Report:
    """Build the index, then join a stream of files with it."""
    from haply.api import build_index, join, read_index
    from haply.report.funnel import Funnel

    random = np.random.default_rng(settings.seed)
    on = f"abs(left.x - right.x) <= {settings.within!r}"

    def values(count: int, low: float, high: float) -> pa.Table:
        fields = [pa.array(random.uniform(low, high, count)), pa.array(random.uniform(0.005, 0.02, count))]
        return pa.table({"id": np.arange(count), "x": pa.StructArray.from_arrays(fields, ["mean", "sd"])})

    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        index, files = str(Path(folder) / "index"), Path(folder) / "events"
        tell(f"indexing {settings.rows:,} rows")
        build_index(values(settings.rows, 0.0, float(settings.rows)), "x", index, page_rows=settings.page_rows)
        files.mkdir()
        wanted = 0
        for number in range(settings.batches):
            begin = random.uniform(0.0, (1.0 - settings.part) * settings.rows)
            batch = values(settings.events, begin, begin + settings.part * settings.rows)
            path = files / f"{number:04d}.parquet"
            pq.write_table(batch, path)
            os.utime(path, (_START + number, _START + number))
            wanted += join(batch, read_index(index, engine="local"), on, settings.threshold).num_rows
        tell(f"{settings.batches} batches of {settings.events:,} events")
        stream = (
            session.readStream.schema("id long, x struct<mean:double,sd:double>")
            .option("maxFilesPerTrigger", 1).parquet(str(files))
        )  # fmt: skip
        funnel = Funnel()
        found = join(stream, read_index(index, session), on, settings.threshold, funnel=funnel)
        running = (
            found.writeStream.format("noop").option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        running.awaitTermination()
        told = [batch for batch in running.recentProgress if batch["numInputRows"]]
        counts = _told(funnel, settings.batches * settings.events)
    if counts["kept"] != wanted:
        raise HaplyError("The stream's pairs are not those of the tables", expected=str(wanted), found=counts["kept"])
    return _report(settings, [batch["durationMs"]["triggerExecution"] / 1000.0 for batch in told], counts)


def _told(funnel: Any, events: int) -> dict[str, Any]:
    """Return the counters, once Spark has reported all events."""
    patience = time.monotonic() + _PATIENCE
    while funnel.to_dict()["rows_left"] < events and time.monotonic() < patience:
        time.sleep(0.1)
    counts: dict[str, Any] = funnel.to_dict()
    return counts


def _report(settings: Settings, seconds: list[float], counts: dict[str, Any]) -> Report:
    warm = seconds[settings.warm_up :]
    job = f"batches of {settings.events:,} events beside {settings.rows:,} indexed rows"
    rate, pages = settings.events * len(warm) / sum(warm), counts["pages_read"] / max(1, counts["pages_total"])
    rows = [{"batch": number, "seconds": each} for number, each in enumerate(seconds, 1)]
    notes = [
        f"{job}, through Spark: {rate:,.0f} events a second after {settings.warm_up} batches; {pages:.2%} of the pages "
        f"read for {counts['kept'] / settings.batches / settings.rows:.4%} of the rows",
    ]
    claims = [
        Claim("at least 5,000 events a second", f"{rate:,.0f}", rate >= 5000.0),
        Claim("at most 1% of the pages are read", f"{pages:.2%}", pages <= 0.01),
    ]
    figure = Figure(
        "events", "seconds of each micro-batch", rows, "batch", ("seconds",), "seconds", log_y=False,
        seconds=("seconds",), claims=claims, notes=notes,
    )  # fmt: skip
    config = {**settings.__dict__, **circumstances("pyspark", "pyarrow")}
    results = [Result(job, OURS, sum(warm), counts["kept"], 1.0)]
    return Report("events", "A Spark stream beside an indexed table", config, results, figures=[figure])
