"""``bench usj_stream``: two streams of uncertain points joined on local Spark Structured Streaming.

Both contenders read the same Parquet files, a fixed number per micro-batch, and must find the same pairs. The peer is
what Spark offers without haply: its own stream-stream join on grid cells as wide as two objects can reach (left objects
in the cell of their centre, right ones repeated to the neighbours), a native filter on centres and radii, and the exact
count of near samples in an Arrow function. It gets centres and radii as separate columns, which haply does not use, and
the largest radius, which haply does not know.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.measure import OURS, Figure, Report, Result, Tell, circumstances, on_spark
from haply.errors import HaplyError

# The layers' test allows pyspark inside functions only, so Spark's types are not spelled out here.
DataFrame: TypeAlias = Any
SparkSession: TypeAlias = Any

PEER = "stream-stream join"
_FIRST_SECOND = 86_400
"""The time at which the streams begin: Spark's own join takes an event at the very start of 1970 for a late one."""


@dataclass(frozen=True)
class Settings:
    """The workload: windows in objects a side (one object per side and time unit), and how each run is cut."""

    windows: tuple[int, ...] = (1_000, 100_000)
    windows_per_run: tuple[int, ...] = (20, 2)
    cells: tuple[int, ...] = (1, 16, 256)
    compared_window: int = 1_000
    compared_objects: int = 40_000
    compared_cells: int = 16
    batches: int = 4
    samples: int = 20
    dim: int = 2
    widest: float = 1.0
    within: float = 1.0
    threshold: float = 0.5
    partners: float = 4.0  # centres of the other side's window within the reach of two average objects
    cores: str = "2"
    memory: str = "4g"
    shuffle_partitions: int = 4
    seed: int = 11


QUICK = Settings(
    windows=(200,), windows_per_run=(5,), cells=(1, 4), compared_window=200, compared_objects=600, compared_cells=4,
    batches=2, shuffle_partitions=2,
)  # fmt: skip


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does, in a new Spark session if none is running."""
    return on_spark(QUICK if quick else Settings(), measure, tell)


def measure(session: SparkSession, settings: Settings, tell: Tell) -> Report:
    """Compare both contenders on one window, then follow haply over windows and cells."""
    before = session.conf.get("spark.haply.cells", None)
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        try:
            results = compare(session, settings, Path(folder), tell)
            rows = follow(session, settings, Path(folder), tell)
        finally:
            session.conf.set("spark.haply.cells", before) if before else session.conf.unset("spark.haply.cells")
    figure = Figure(
        "cells",
        f"events per second, {settings.samples} samples, {settings.dim} dimensions, {settings.batches} micro-batches",
        rows,
        x="cells",
        lines=("events per second",),
        y_title="events per second",
        panel="window",
        log_x=True,
        seconds=("whole run", "kernel", "state", "transfer"),
    )
    title = f"Similarity join of two streams on local Spark, {settings.cores} cores"
    config = {
        **settings.__dict__,
        "condition": f"|x - y| <= {settings.within:g}",
        "formulations": {
            OURS: "hp.join of two streams: parcels, cells that remember, compiled rules",
            PEER: "stream-stream join on grid cells and times, native filter on centres and radii, Arrow function",
        },
        "targets": {PEER: 3.0},
        "notes": ["kernel, state and transfer: time inside the stateful function, added over all cells and cores"],
        **circumstances("pyspark", "pyarrow"),
    }
    return Report("usj_stream", title, config, results, figures=[figure])


def compare(session: SparkSession, settings: Settings, folder: Path, tell: Tell) -> list[Result]:
    """Compare both contenders on the same files: check pairs first, then time."""
    job = f"{settings.compared_objects:,} objects a side, window {settings.compared_window:,}"
    session.conf.set("spark.haply.cells", str(settings.compared_cells))
    files = write_streams(folder / "compared", settings.compared_window, settings.compared_objects, settings)
    queries: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
        OURS: lambda left, right: haply_join(left, right, settings.compared_window, settings),
        PEER: lambda left, right: plain_join(left, right, settings.compared_window, settings),
    }
    pairs: dict[str, set[tuple[int, ...]]] = {}
    for name, query in queries.items():
        tell(f"{job}: checking {name}")
        pairs[name] = collect(session, query, files, folder / f"check-{len(pairs)}")
    if pairs[OURS] != pairs[PEER]:
        raise HaplyError(
            f"Benchmark job '{job}': {PEER} and {OURS} differ",
            expected=f"{len(pairs[OURS])} pairs",
            found=f"{len(pairs[PEER])}, {len(pairs[OURS] ^ pairs[PEER])} of them different",
        )
    seconds: dict[str, float] = {}
    for name, query in queries.items():
        tell(f"{job}: {name}")
        seconds[name] = timed(session, query, files, folder / f"time-{len(seconds)}")[0]
    return [Result(job, name, taken, len(pairs[OURS]), taken / seconds[OURS]) for name, taken in seconds.items()]


def follow(session: SparkSession, settings: Settings, folder: Path, tell: Tell) -> list[dict[str, Any]]:
    """Measure haply alone over windows and cells: its speed, and where the time goes."""
    from haply.report.funnel import Funnel

    rows = []
    for window, times in zip(settings.windows, settings.windows_per_run, strict=True):
        files = write_streams(folder / f"window-{window}", window, window * times, settings)
        for cells in settings.cells:
            tell(f"window {window:,}, {cells} cells")
            session.conf.set("spark.haply.cells", str(cells))
            funnel = Funnel()

            def query(left: DataFrame, right: DataFrame, window: int = window, funnel: Funnel = funnel) -> DataFrame:
                return haply_join(left, right, window, settings, funnel)

            seconds, state = timed(session, query, files, folder / f"run-{window}-{cells}")
            counts = _settled(funnel, 2 * window * times)
            spent = counts["seconds"]
            rows.append(
                {
                    "window": f"{window:,}", "cells": cells, "events": 2 * window * times, "whole run": seconds,
                    "events per second": round(2 * window * times / seconds), "kernel": spent.get("decide", 0.0),
                    "state": spent.get("state", 0.0), "transfer": spent.get("transfer", 0.0),
                    "most pieces in state": state, "pairs": counts["kept"],
                }
            )  # fmt: skip
    return rows


def _settled(funnel: Any, events: int, patience: float = 60.0) -> dict[str, Any]:
    """Return the counters after all progress reports, which come a moment after their batches."""
    until = time.monotonic() + patience
    while (counts := funnel.to_dict())["rows_left"] + counts["rows_right"] < events:
        if time.monotonic() > until:
            raise HaplyError("The counters of a stream are not complete", expected=f"{events} rows", found=str(counts))
        time.sleep(0.2)
    return dict(counts)


def write_streams(folder: Path, window: int, objects: int, settings: Settings) -> tuple[Path, Path]:
    """Write both streams as files in the order of time: id, time, samples, and centre and radius for the peer."""
    import pyarrow as pa

    from haply.models import Samples

    random = np.random.default_rng(settings.seed)
    dim, count = settings.dim, settings.samples
    reach = settings.within + settings.widest  # of two average objects
    box = reach * (window * np.pi / settings.partners) ** (1.0 / dim)
    paths = []
    for name in ("left", "right"):
        path = folder / name
        path.mkdir(parents=True)
        for part, ids in enumerate(np.array_split(np.arange(objects), settings.batches)):
            directions = random.normal(size=(len(ids), count, dim))
            directions /= np.linalg.norm(directions, axis=2, keepdims=True)
            radii = random.uniform(0.0, settings.widest, (len(ids), 1, 1))
            points = directions * radii * random.random((len(ids), count, 1)) ** (1.0 / dim)
            points += random.uniform(0.0, box, (len(ids), 1, dim))
            centre = points.mean(axis=1)
            columns = {
                "id": ids,
                "t": pa.array(1_000_000 * (_FIRST_SECOND + ids), pa.timestamp("us", "UTC")),
                "pos": Samples(points).to_arrow(),
                **{f"c{axis}": centre[:, axis] for axis in range(dim)},
                "r": np.linalg.norm(points - centre[:, None], axis=2).max(axis=1),
            }
            write_part(path, part, pa.table(columns))
        paths.append(path)
    return paths[0], paths[1]


def write_part(folder: Path, part: int, table: Any) -> None:
    """Write one file of a stream, and set its time: Spark reads files by age, and these may be equally old."""
    import pyarrow.parquet as pq

    target = folder / f"part-{part:03}.parquet"
    pq.write_table(table, target)
    os.utime(target, (_FIRST_SECOND + part, _FIRST_SECOND + part))


def haply_join(left: DataFrame, right: DataFrame, window: int, settings: Settings, funnel: Any = None) -> DataFrame:
    """Join with haply: columns ``i, j``."""
    from haply.api import join

    pairs = join(
        left.select("id", "t", "pos"), right.select("id", "t", "pos"),
        on=f"distance(left.pos, right.pos) <= {settings.within!r}", threshold=settings.threshold,
        time="t", window=float(window - 1), probability="none", funnel=funnel,
    )  # fmt: skip
    return pairs.selectExpr("id_left AS i", "id_right AS j")


def plain_join(left: DataFrame, right: DataFrame, window: int, settings: Settings) -> DataFrame:
    """Join without haply: columns ``i, j``."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    from haply.engines.spark.versions import arrow_function

    dim, count, within = settings.dim, settings.samples, settings.within
    width = within + 2.0 * settings.widest * 1.1  # a centroid may differ from the middle of its ball
    axes = range(dim)

    def cell(axis: int) -> Any:
        return F.floor(F.col(f"c{axis}") / width).cast("int")

    a = left.select(
        F.col("id").alias("i"), F.col("t").alias("a_time"), F.col("pos.points").alias("a"),
        F.col("r").alias("a_radius"),
        *(F.col(f"c{axis}").alias(f"a{axis}") for axis in axes), *(cell(axis).alias(f"k{axis}") for axis in axes),
    ).withWatermark("a_time", "0 seconds")  # fmt: skip
    b = right.select(
        F.col("id").alias("j"), F.col("t").alias("b_time"), F.col("pos.points").alias("b"),
        F.col("r").alias("b_radius"),
        *(F.col(f"c{axis}").alias(f"b{axis}") for axis in axes),
        *(cell(axis).alias(f"m{axis}") for axis in axes),
    ).withWatermark("b_time", "0 seconds")  # fmt: skip
    for axis in axes:
        steps = F.explode(F.array(*(F.col(f"m{axis}") + step for step in (-1, 0, 1))))
        b = b.withColumn(f"l{axis}", steps).drop(f"m{axis}")
    length = F.expr(f"INTERVAL {window - 1} SECONDS")
    on = (F.col("a_time") >= F.col("b_time") - length) & (F.col("a_time") <= F.col("b_time") + length)
    for axis in axes:
        on = on & (F.col(f"k{axis}") == F.col(f"l{axis}"))
    square = sum(((F.col(f"a{axis}") - F.col(f"b{axis}")) ** 2 for axis in axes), F.lit(0.0))
    reach = F.col("a_radius") + F.col("b_radius") + within + 1e-9
    limit, need = within * within, int(np.ceil(settings.threshold * count * count - 1e-9))

    def near(x: pa.Array, y: pa.Array) -> pa.Array:
        ours, theirs = (side.flatten().to_numpy().reshape(-1, count, dim) for side in (x, y))
        counts = np.zeros(len(ours), np.int64)
        for begin in range(0, len(ours), 512):  # blocks that fit the cache
            block = slice(begin, begin + 512)
            apart = ours[block, :, None, :] - theirs[block, None, :, :]
            counts[block] = (np.einsum("nxyd,nxyd->nxy", apart, apart) <= limit).sum(axis=(1, 2))
        return pa.array(counts >= need)

    candidates = a.join(b, on).where(square <= reach * reach)
    return candidates.where(arrow_function(near, "boolean")("a", "b")).select("i", "j")


def _streams(session: SparkSession, files: tuple[Path, ...]) -> list[DataFrame]:
    sides = []
    for path in files:
        schema = session.read.parquet(str(path)).schema
        sides.append(session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(path)))
    return sides


def collect(
    session: SparkSession, query: Callable[..., DataFrame], files: tuple[Path, ...], folder: Path
) -> set[tuple[int, ...]]:
    """Return all pairs (or longer combinations) of a run; raise if one comes twice."""
    pairs = query(*_streams(session, files))
    running = pairs.writeStream.format("parquet").option("path", str(folder / "pairs"))
    running.option("checkpointLocation", str(folder / "state")).trigger(availableNow=True).start().awaitTermination()
    found = session.read.parquet(str(folder / "pairs")).toArrow()
    together = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    if len(set(together)) != len(together):
        raise HaplyError("A stream has given a pair or combination twice")
    return set(together)


def timed(
    session: SparkSession, query: Callable[..., DataFrame], files: tuple[Path, ...], folder: Path
) -> tuple[float, int]:
    """Return the seconds of a run from start to end, and the most entries that were in its state."""
    pairs = query(*_streams(session, files))
    begun = time.perf_counter()
    running = pairs.writeStream.format("noop").option("checkpointLocation", str(folder)).trigger(availableNow=True)
    running = running.start()
    running.awaitTermination()
    seconds = time.perf_counter() - begun
    entries = [
        report["stateOperators"][0]["numRowsTotal"] for report in running.recentProgress if report["stateOperators"]
    ]
    return seconds, max(entries, default=0)
