"""``bench spark``: a Gaussian band join of a million by a million rows on local Spark, and how its cost grows.

Both contenders read the same Parquet files in the same session and write left id, right id and probability to a sink
that drops them. The plain formulation is what Spark offers without haply: an equality join on buckets of the mean, one
side repeated over the buckets within its reach, the sharpest sound filter (see ``band``) in native code, and the exact
probability with scipy on Arrow batches, since Spark SQL has no error function.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.band import SLACK, Filter, straddling_probability
from benchmarks.measure import (
    OURS,
    PROBABILITY_TOLERANCE,
    Answer,
    Growth,
    Report,
    Tell,
    check_same,
    circumstances,
    needs,
    on_spark,
    ranked,
    take_turns,
)
from haply.errors import HaplyError
from haply.pruning.threshold import TOLERANCE

# The layers' test allows pyspark inside functions only, so Spark's types are not spelled out here.
DataFrame: TypeAlias = Any
SparkSession: TypeAlias = Any

PLAIN = "plain pyspark"
FILES = 8
"""Parquet files of a side."""

SAMPLED_ROWS = 5_000
"""How many left rows have their pairs compared one by one."""


@dataclass(frozen=True)
class Settings:
    """The workload; the target job is the default."""

    rows: int = 1_000_000
    rows_per_unit: float = 26.3  # the density of the band bench: some twenty pairs a row
    least_sd: float = 0.1
    most_sd: float = 1.0
    within: float = 1.0
    threshold: float = 0.7
    growth_rows: tuple[int, ...] = (100_000, 300_000, 1_000_000, 3_000_000)
    bucket_width: float = 1.0
    repetitions: int = 3
    cores: str = "2"
    memory: str = "4g"
    shuffle_partitions: int = 16
    seed: int = 7


QUICK = Settings(rows=50_000, growth_rows=(20_000, 50_000), repetitions=1)


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does, in a new Spark session if none is running."""
    return on_spark(QUICK if quick else Settings(), measure, tell)


def measure(session: SparkSession, settings: Settings, tell: Tell) -> Report:
    """Compare both contenders on one size, then follow haply through the others."""
    limits = Filter.of(settings.within, settings.threshold)
    job = f"{settings.rows:,} x {settings.rows:,} rows"
    memory: dict[str, dict[str, float]] = {}
    growth = []
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        left, right = write_sides(session, Path(folder) / "compared", settings.rows, settings, tell)
        queries: dict[str, Callable[[], DataFrame]] = {
            OURS: lambda: haply_join(left, right, settings),
            PLAIN: lambda: plain_join(left, right, limits, settings.bucket_width),
        }
        pairs = check_equal(job, queries, 1 + settings.rows // SAMPLED_ROWS, tell)
        engines = {name: watched(name, query, memory) for name, query in queries.items()}
        results = ranked(job, take_turns(job, engines, settings.repetitions, tell), dict.fromkeys(queries, pairs))
        for rows in settings.growth_rows:
            sides = write_sides(session, Path(folder) / str(rows), rows, settings, tell)
            growth.append(_grow(rows, sides, settings, memory, tell))
    title = f"Gaussian band join on local Spark, {settings.cores} cores"
    return Report("spark", title, _config(settings, memory), results, growth)


def _config(settings: Settings, memory: dict[str, dict[str, float]]) -> dict[str, Any]:
    ours, plain = memory[OURS], memory[PLAIN]
    return {
        **settings.__dict__,
        "condition": f"|a - b| <= {settings.within:g}",
        "peak_memory_mib": memory,
        "formulations": {
            OURS: "hp.join, with left id, right id and probability as its columns",
            PLAIN: "bucketed shuffled hash join, native filter, scipy erf in mapInArrow (faster than an Arrow UDF "
            "column, than a sort-merge join, and than erfc as a native polynomial)",
        },
        "targets": {PLAIN: 5.0},
        "notes": [
            f"peak memory of JVM and Python workers: {OURS} {ours['jvm']:,.0f} and {ours['python_workers']:,.0f} MiB, "
            f"{PLAIN} {plain['jvm']:,.0f} and {plain['python_workers']:,.0f} MiB "
            "(one JVM serves both and returns no memory in between)"
        ],
        **circumstances("pyspark", "pyarrow", "scipy"),
    }


def _grow(
    rows: int,
    sides: tuple[DataFrame, DataFrame],
    settings: Settings,
    memory: dict[str, dict[str, float]],
    tell: Tell,
) -> Growth:
    job = f"growth: {rows:,} rows a side"
    tell(job)
    pairs: list[int] = []
    run = watched(f"{OURS}, {rows} rows", lambda: haply_join(*sides, settings), memory)
    seconds = take_turns(job, {OURS: lambda: pairs.append(run())}, settings.repetitions, tell)[OURS]
    return Growth(rows, seconds, 2 * rows / seconds, pairs[0])


def write_sides(
    session: SparkSession, folder: Path, rows: int, settings: Settings, tell: Tell
) -> tuple[DataFrame, DataFrame]:
    """Write two tables of ids, means and standard deviations as Parquet, with the same density for all sizes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tell(f"writing 2 x {rows:,} rows")
    random = np.random.default_rng(settings.seed)
    frames = []
    for name in ("left", "right"):
        path = folder / name
        path.mkdir(parents=True)
        for part in range(FILES):
            ids = np.arange(rows * part // FILES, rows * (part + 1) // FILES)
            mean = random.uniform(0.0, rows / settings.rows_per_unit, len(ids))
            sd = random.uniform(settings.least_sd, settings.most_sd, len(ids))
            pq.write_table(pa.table({"id": ids, "mean": mean, "sd": sd}), path / f"part-{part}.parquet")
        frames.append(session.read.parquet(str(path)))
    return frames[0], frames[1]


def haply_join(left: DataFrame, right: DataFrame, settings: Settings) -> DataFrame:
    """Join with haply: columns ``i, j, probability``."""
    from haply import gaussian
    from haply.api import join

    ours, theirs = (side.select("id", gaussian("mean", "sd").alias("value")) for side in (left, right))
    condition = f"abs(left.value - right.value) <= {settings.within!r}"
    pairs = join(ours, theirs, on=condition, threshold=settings.threshold, columns=["id_left", "id_right"])
    return pairs.selectExpr("id_left AS i", "id_right AS j", "probability")


def plain_join(left: DataFrame, right: DataFrame, limits: Filter, bucket_width: float) -> DataFrame:
    """Join without haply: columns ``i, j, probability``."""
    from pyspark.sql import functions as F

    mean, sd = F.col("mean"), F.col("sd")
    reach = F.lit(limits.within + SLACK) - limits.z * sd

    def bucket(position: Any) -> Any:
        return F.floor(position / bucket_width).cast("int")

    a, b = (side.where(sd <= limits.most_sd) for side in (left, right))
    a = a.select(F.col("id").alias("i"), mean.alias("a_mean"), (sd * sd).alias("a_variance"), bucket(mean).alias("k"))
    buckets = F.explode(F.sequence(bucket(mean - reach), bucket(mean + reach)))
    b = b.select(F.col("id").alias("j"), mean.alias("b_mean"), (sd * sd).alias("b_variance"), buckets.alias("k"))
    difference, variance = F.col("a_mean") - F.col("b_mean"), F.col("a_variance") + F.col("b_variance")
    candidates = (
        a.join(b.hint("shuffle_hash"), "k")
        .where(F.abs(difference) + limits.z * F.sqrt(variance) <= limits.within + SLACK)
        .where(variance <= limits.most_sd**2)
        .select("i", "j", difference.alias("difference"), F.sqrt(variance).alias("sd"))
    )

    def finish(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            i, j, apart, spread = batch.columns
            values = straddling_probability(apart.to_numpy(), spread.to_numpy(), limits.within)
            kept = pa.array(np.flatnonzero(values >= limits.threshold - TOLERANCE))
            columns = [i.take(kept), j.take(kept), pa.array(values).take(kept)]
            yield pa.RecordBatch.from_arrays(columns, ["i", "j", "probability"])

    return candidates.mapInArrow(finish, "i long, j long, probability double")


def check_equal(job: str, queries: dict[str, Callable[[], DataFrame]], step: int, tell: Tell) -> int:
    """Raise unless all queries give the same pairs and probabilities; return the number of pairs.

    All pairs are compared by their number and a sum of hashes, all probabilities by their sum, and the pairs of every
    ``step``-th left row one by one.
    """
    from pyspark.sql import functions as F

    sums, samples = {}, {}
    for name, query in queries.items():
        tell(f"{job}: checking {name}")
        # Python workers and the JVM's compiler warm up on these runs, which are not timed.
        row = query().agg(
            F.count(F.lit(1)).alias("pairs"),
            F.coalesce(F.sum(F.xxhash64("i", "j").cast("decimal(38, 0)")), F.lit(0)).alias("hashed"),
            F.coalesce(F.sum("probability"), F.lit(0.0)).alias("total"),
            F.expr(f"collect_list(struct(i, j, probability)) FILTER (WHERE i % {step} = 0)").alias("sample"),
        )
        found = row.toArrow()
        sums[name] = tuple(found[column][0].as_py() for column in ("pairs", "hashed", "total"))
        samples[name] = Answer(*(part.to_numpy() for part in found["sample"].combine_chunks().flatten().flatten()))
    check_same(job, samples)
    pairs, hashed, total = sums[OURS]
    for name, theirs in sums.items():
        if theirs[:2] != (pairs, hashed) or abs(theirs[2] - total) >= PROBABILITY_TOLERANCE * max(1, pairs):
            raise HaplyError(
                f"Benchmark job '{job}': {name} and {OURS} differ",
                expected=f"{pairs} pairs, hash {hashed}, probabilities adding up to {total}",
                found=f"{theirs[0]} pairs, hash {theirs[1]}, sum {theirs[2]}",
            )
    return pairs


def watched(name: str, query: Callable[[], DataFrame], memory: dict[str, dict[str, float]]) -> Callable[[], int]:
    """Return a run of the query from planning to the last row, which returns its pairs and stores its peak memory."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    def run() -> int:
        counted = Observation()
        with peak_memory() as peak:
            query().observe(counted, F.count(F.lit(1)).alias("pairs")).write.format("noop").mode("overwrite").save()
        seen = memory.setdefault(name, peak)
        memory[name] = {part: max(seen[part], peak[part]) for part in peak}
        return int(counted.get["pairs"])

    return run


def unwatched(query: Callable[[], DataFrame]) -> Callable[[], None]:
    """Return a run of the query from planning to the last row only: measuring memory takes time from it."""

    def run() -> None:
        query().write.format("noop").mode("overwrite").save()

    return run


@contextlib.contextmanager
def peak_memory(every_seconds: float = 0.2) -> Iterator[dict[str, float]]:
    """Measure peak resident memory, in MiB, of this process's JVM and of all its Python workers together.

    Workers are forked from one another: pages they share count for each.
    """
    psutil = needs("psutil")
    me = psutil.Process()
    peak = {"jvm": 0.0, "python_workers": 0.0}
    done = threading.Event()

    def look() -> None:
        now = dict.fromkeys(peak, 0.0)
        for process in me.children(recursive=True):
            try:
                part = "jvm" if "java" in process.name() else "python_workers" if "python" in process.name() else ""
                if part:
                    now[part] += process.memory_info().rss / 2**20
            except psutil.Error:  # it ended meanwhile
                continue
        for part, size in now.items():
            peak[part] = max(peak[part], size)

    def watch() -> None:
        while not done.wait(every_seconds):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
        look()
