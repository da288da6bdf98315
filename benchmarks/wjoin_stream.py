"""``bench wjoin_stream``: three keyed streams joined by a window on local Spark Structured Streaming.

Both contenders read the same Parquet files, a fixed number per micro-batch, and must find the same combinations. The
peer is what Spark offers without haply: a chain of its own stream-stream joins on the key, with watermarks and the
windows of all pairs as conditions on times, which let it drop old events. Its settings were chosen for its benefit: see
``PEER_CONF``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.measure import OURS, Figure, Report, Result, Tell, circumstances, on_spark, ranked, take_turns
from benchmarks.usj_stream import collect, timed, write_part
from haply.errors import HaplyError

# The layers' test allows pyspark inside functions only, so Spark's types are not spelled out here.
DataFrame: TypeAlias = Any
SparkSession: TypeAlias = Any

PEER = "stream-stream joins"
NAMES = ("a", "b", "c")
PEER_CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}
"""State in memory, which was faster for the peer than RocksDB (tried with state format 3 and a changelog)."""
_FIRST_SECOND = 86_400
"""The time at which the streams begin: Spark's own join takes an event at the very start of 1970 for a late one."""


@dataclass(frozen=True)
class Settings:
    """The workload: events at random times, and how each run is cut into micro-batches."""

    events: int = 120_000  # of each stream
    rate: float = 10.0  # events per second of each stream
    keys: int = 400
    window: int = 60
    batches: tuple[int, ...] = (2, 8)
    cells: int = 2
    repetitions: int = 1
    cores: str = "2"
    memory: str = "4g"
    shuffle_partitions: int = 2
    seed: int = 17


QUICK = Settings(events=5_000, batches=(2,))


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does, in a new Spark session if none is running."""
    return on_spark(QUICK if quick else Settings(), measure, tell)


def measure(session: SparkSession, settings: Settings, tell: Tell) -> Report:
    """Compare both contenders, in few micro-batches and in many."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        for batches in settings.batches:
            results += compare(session, settings, batches, Path(folder) / str(batches), tell)
    rows = [
        {
            "contender": result.engine, "batches": batches, "whole run": result.seconds,
            "events per second": round(len(NAMES) * settings.events / result.seconds),
        }
        for batches, result in zip(np.repeat(settings.batches, 2).tolist(), results, strict=True)
    ]  # fmt: skip
    figure = Figure(
        "batches", f"events per second over the number of micro-batches, {settings.events:,} events of each stream",
        rows, x="batches", lines=("events per second",), y_title="events per second", panel="contender", log_x=True,
        log_y=False, seconds=("whole run",),
    )  # fmt: skip
    title = f"Window join of three streams on local Spark, {settings.cores} cores"
    config = {
        **settings.__dict__,
        "condition": f"one key, all within {settings.window} s",
        "formulations": {
            OURS: "hp.window_join of three streams",
            PEER: "inner joins of streams on key and times, one after the other, with watermarks",
        },
        "peer_settings": PEER_CONF,
        "targets": {PEER: {result.job: 3.0 for result in results if result.engine == PEER}},
        "notes": [
            "pairs: combinations of one event of each stream",
            "each micro-batch has a price that Spark asks of both, whatever is in it",
        ],
        **circumstances("pyspark", "pyarrow"),
    }
    return Report("wjoin_stream", title, config, results, figures=[figure])


def compare(session: SparkSession, settings: Settings, batches: int, folder: Path, tell: Tell) -> list[Result]:
    """Compare both contenders on the same files: check combinations first, then time."""
    job = f"{settings.events:,} events a stream, {batches} micro-batches"
    files = write_streams(folder / "events", batches, settings)
    queries: dict[str, Callable[..., DataFrame]] = {
        OURS: partial(haply_join, settings=settings),
        PEER: partial(plain_join, settings=settings),
    }
    conf = {OURS: {"spark.haply.cells": str(settings.cells)}, PEER: PEER_CONF}
    found: dict[str, set[tuple[int, ...]]] = {}
    for name, query in queries.items():
        tell(f"{job}: checking {name}")
        with settled(session, conf[name]):
            found[name] = collect(session, query, files, folder / f"check-{len(found)}")
    if found[OURS] != found[PEER]:
        raise HaplyError(
            f"Benchmark job '{job}': {PEER} and {OURS} differ",
            expected=f"{len(found[OURS])} combinations",
            found=f"{len(found[PEER])}, {len(found[OURS] ^ found[PEER])} of them different",
        )

    def once(name: str) -> None:
        with settled(session, conf[name]):
            timed(session, queries[name], files, Path(tempfile.mkdtemp(dir=folder)))

    runs = {name: partial(once, name) for name in queries}
    counts = {name: len(combinations) for name, combinations in found.items()}
    return ranked(job, take_turns(job, runs, settings.repetitions, tell), counts)


@contextmanager
def settled(session: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    """Apply settings to the queries that are started in this context."""
    before = {name: session.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            session.conf.unset(name) if old is None else session.conf.set(name, old)


def write_streams(folder: Path, batches: int, settings: Settings) -> tuple[Path, ...]:
    """Write the streams as files in the order of time, each file for the same length of time: id, time, key."""
    import pyarrow as pa

    random = np.random.default_rng(settings.seed)
    paths = []
    for name in NAMES:
        path = folder / name
        path.mkdir(parents=True)
        gaps = random.exponential(1e6 / settings.rate, settings.events)
        times = 1_000_000 * _FIRST_SECOND + np.cumsum(gaps).astype(np.int64)
        keys = random.integers(0, settings.keys, settings.events)
        span = 1e6 * settings.events / settings.rate
        file = np.clip((times - 1e6 * _FIRST_SECOND) / span * batches, 0, batches - 1).astype(int)
        for part in range(batches):
            ids = np.flatnonzero(file == part)
            columns = {"id": ids, "t": pa.array(times[ids], pa.timestamp("us", "UTC")), "k": keys[ids]}
            write_part(path, part, pa.table(columns))
        paths.append(path)
    return tuple(paths)


def haply_join(*streams: DataFrame, settings: Settings) -> DataFrame:
    """Join with haply: columns ``a, b, c`` of ids."""
    from haply.api import window_join
    from haply.joins.operators.window import uniform_windows

    found = window_join(
        dict(zip(NAMES, streams, strict=True)), uniform_windows(NAMES, settings.window), key="k", time="t"
    )
    return found.selectExpr(*(f"{name}_id AS {name}" for name in NAMES))


def plain_join(*streams: DataFrame, settings: Settings) -> DataFrame:
    """Join without haply: the same columns."""
    from pyspark.sql import functions as F

    a, b, c = (
        stream.selectExpr(f"id AS {name}", f"t AS {name}_time", f"k AS {name}_key").withWatermark(
            f"{name}_time", "0 seconds"
        )
        for name, stream in zip(NAMES, streams, strict=True)
    )
    length = F.expr(f"INTERVAL {settings.window} SECONDS")

    def within(one: str, other: str) -> Any:
        return (F.col(one) >= F.col(other) - length) & (F.col(one) <= F.col(other) + length)

    # A stream may have only one time with a watermark: that of b becomes a plain column.
    first = a.join(b, (F.col("a_key") == F.col("b_key")) & within("b_time", "a_time"))
    first = first.select("a", "b", "a_time", "a_key", F.expr("b_time + INTERVAL 0 SECONDS AS b_plain"))
    on = (F.col("a_key") == F.col("c_key")) & within("c_time", "a_time") & within("c_time", "b_plain")
    return first.join(c, on).select(*NAMES)
