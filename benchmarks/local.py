"""``bench local``: joins of Parquet files into a Parquet file, in one process on all cores.

Two lists of a million Gaussian values are joined within ``c`` with probability 0.7 or more, once with about 17 pairs a
row, where writing the answer is most of the time, and once with 0.85. DuckDB gets an expert's query with the same bound
(see ``band``) and as many threads; the error function is scipy's, on each Arrow batch that comes out. haply on Spark
runs the same query on ``local[*]``. All begin with the same files and end with a file.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.band import SLACK, Filter, straddling_probability
from benchmarks.measure import Answer, Growth, Report, Result, Tell, check_same, circumstances, needs, take_turns
from haply.api import plan_join
from haply.engines.local.threads import cores
from haply.pruning.threshold import TOLERANCE


@dataclass(frozen=True)
class Settings:
    """The workload; the target job is the default."""

    rows: int = 1_000_000
    densities: tuple[float, ...] = (22.4, 1.12)
    """Rows of a side for each unit of the line: about 17 pairs a row, and 0.85."""
    grown: tuple[int, ...] = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
    least_sd: float = 0.1
    most_sd: float = 1.0
    within: float = 1.0
    threshold: float = 0.7
    repetitions: int = 3
    spark: bool = True
    seed: int = 7


QUICK = Settings(rows=20_000, grown=(10_000, 20_000), repetitions=1, spark=False)
TARGETS = {"duckdb same bound": 5.0}


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """The benchmark as the command line runs it."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Time all engines on both densities, then haply alone on growing tables."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        for density in settings.densities:
            files = Files.written(Path(folder) / f"d{density:g}", settings, settings.rows, density)
            results += _compare(files, settings, tell)
        growth = [_grown(Path(folder) / f"g{rows}", settings, rows, tell) for rows in settings.grown]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    title = f"Gaussian band join of Parquet files, {settings.rows:,} x {settings.rows:,} rows, {cores()} threads"
    notes = [f"best of {settings.repetitions} runs; this process held at most {peak:,.0f} MB"]
    if settings.spark:
        notes.append("haply on spark: at least 10 times as long with 0.85 pairs a row, 3 times with 17")
    config: dict[str, Any] = {**settings.__dict__, "threads": cores(), "peak_megabytes": peak, "notes": notes}
    config |= {"targets": TARGETS, **circumstances("duckdb", "scipy")}
    return Report("local", title, config, results, growth)


@dataclass(frozen=True)
class Files:
    """Two tables in files, and where answers go."""

    folder: Path
    settings: Settings

    @classmethod
    def written(cls, folder: Path, settings: Settings, rows: int, density: float) -> Files:
        """Write both tables: means spread evenly, standard deviations too."""
        folder.mkdir(parents=True)
        random = np.random.default_rng(settings.seed)
        for name in ("left", "right"):
            mean = random.uniform(0.0, rows / density, rows)
            sd = random.uniform(settings.least_sd, settings.most_sd, rows)
            values = pa.StructArray.from_arrays([pa.array(mean), pa.array(sd)], ["mean", "sd"])
            pq.write_table(pa.table({"id": random.permutation(rows), "x": values}), folder / f"{name}.parquet")
        return cls(folder, settings)

    def path(self, name: str) -> str:
        """A file of one of the tables, or of an answer, which is removed if it is there."""
        path = self.folder / f"{name}.parquet"
        if name not in ("left", "right"):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        return str(path)

    def answer(self, name: str) -> Answer:
        """What an engine has written."""
        table = pq.read_table(self.folder / f"{name}.parquet")
        return Answer(*(table[column].to_numpy() for column in ("id_left", "id_right", "probability")))

    @property
    def condition(self) -> str:
        """The condition of the join."""
        return f"abs(left.x - right.x) <= {self.settings.within!r}"


def _compare(files: Files, settings: Settings, tell: Tell) -> list[Result]:
    limits = Filter.of(settings.within, settings.threshold)
    engines: dict[str, Callable[[], Any]] = {
        "haply": lambda: haply_join(files),
        "duckdb same bound": lambda: duckdb_join(files, limits),
    }
    if settings.spark:
        engines["haply on spark"] = lambda: spark_join(files)
    for name, engine in engines.items():
        tell(f"first run of {name}")
        engine()
    answers = {name: files.answer(name) for name in engines}
    job = f"{len(answers['haply'].left) / settings.rows:.2g} pairs a row"
    check_same(job, answers)
    pairs = {name: len(answer.left) for name, answer in answers.items()}
    del answers
    seconds = take_turns(job, engines, settings.repetitions, tell)
    return [Result(job, name, spent, pairs[name], spent / seconds["haply"]) for name, spent in seconds.items()]


def haply_join(files: Files) -> int:
    """Ours: from files to a file."""
    plan = plan_join(
        files.path("left"), files.path("right"), files.condition, files.settings.threshold,
        columns=["id_left", "id_right"],
    )  # fmt: skip
    return plan.write(files.path("haply"))


def spark_join(files: Files) -> int:
    """The same query on Spark."""
    from haply.engines.spark.runtime.session import local_session

    spark = local_session("haply bench")
    left, right = (spark.read.parquet(files.path(name)) for name in ("left", "right"))
    plan = plan_join(left, right, files.condition, files.settings.threshold, columns=["id_left", "id_right"])
    return plan.write(files.path("haply on spark"))


def duckdb_join(files: Files, limits: Filter) -> None:
    """Buckets of the mean, right rows repeated over their reach, hopeless rows left out, a filter, then the value."""
    width = 0.5 * limits.within
    reach = f"({limits.within!r} - {limits.z!r} * x.sd + {SLACK!r})"
    buckets = [f"CAST(floor((x.mean {sign} {reach}) / {width!r}) AS INTEGER)" for sign in "-+"]
    query = f"""
        WITH a AS (
            SELECT id, x.mean AS mean, x.sd * x.sd AS variance, CAST(floor(x.mean / {width!r}) AS INTEGER) AS bucket
            FROM read_parquet('{files.path("left")}') WHERE x.sd <= {limits.most_sd!r}
        ), b AS (
            SELECT id, x.mean AS mean, x.sd * x.sd AS variance,
                   CAST(unnest(range({buckets[0]}, {buckets[1]} + 1)) AS INTEGER) AS bucket
            FROM read_parquet('{files.path("right")}') WHERE x.sd <= {limits.most_sd!r}
        ), pairs AS (
            SELECT a.id AS i, b.id AS j, a.mean - b.mean AS difference, sqrt(a.variance + b.variance) AS sd
            FROM a JOIN b ON a.bucket = b.bucket
        )
        SELECT i, j, difference, sd FROM pairs
        WHERE abs(difference) + {limits.z!r} * sd <= {limits.within + SLACK!r} AND sd <= {limits.most_sd!r}
    """
    connection = needs("duckdb").connect()
    connection.execute(
        f"SET threads = {cores()}; SET enable_progress_bar = false; SET preserve_insertion_order = false"
    )
    schema = pa.schema({"id_left": pa.int64(), "id_right": pa.int64(), "probability": pa.float64()})
    with pq.ParquetWriter(files.path("duckdb same bound"), schema, use_dictionary=False) as writer:
        for batch in connection.sql(query).to_arrow_reader(1 << 20):
            i, j, difference, sd = (column.to_numpy() for column in batch.columns)
            probability = straddling_probability(difference, sd, limits.within)
            kept = np.flatnonzero(probability >= limits.threshold - TOLERANCE)
            columns = [pa.array(column[kept]) for column in (i, j, probability)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _grown(folder: Path, settings: Settings, rows: int, tell: Tell) -> Growth:
    tell(f"{rows:,} x {rows:,} rows")
    files = Files.written(folder, settings, rows, settings.densities[-1])
    pairs = haply_join(files)
    seconds = take_turns(f"{rows:,} rows", {"haply": lambda: haply_join(files)}, 1, tell)["haply"]
    shutil.rmtree(folder)
    return Growth(rows, seconds, rows / seconds, pairs)
