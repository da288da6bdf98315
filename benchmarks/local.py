"""``bench local``: joins of Parquet files into a Parquet file, in one process on all cores.

Three kinds of tables of a million rows each are joined with probability 0.7 or more:

* Gaussian values within ``c``, once with about 17 pairs a row, where writing the answer takes most of the time, and
  once with 0.85;
* event times that are known to lie in intervals, within a second;
* positions on the sky with their errors, within two arcseconds.

DuckDB gets an expert's query with the same bound and as many threads: buckets of the value, rows of one side repeated
over their reach, a filter, then the probability. The error function and the noncentral chi-squared distribution, which
DuckDB does not have, are scipy's, on each Arrow batch that comes out; the probability of two intervals is a formula in
SQL. haply on Spark runs the same query on ``local[*]``. All begin with the same files and end with a file.
``files alone`` reads both tables and writes the finished answer, and joins nothing: no engine that does so can be
faster.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from haply.pruning.threshold import TOLERANCE, Pairing, Threshold


@dataclass(frozen=True)
class Settings:
    """The workload; the target job is the default."""

    rows: int = 1_000_000
    densities: tuple[float, ...] = (22.4, 1.12)
    """Rows of a side for each unit of the line: about 17 and about 0.85 pairs a row."""
    grown: tuple[int, ...] = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
    least_sd: float = 0.1
    most_sd: float = 1.0
    within: float = 1.0
    threshold: float = 0.7
    stars: float = 0.2
    """Sources of a catalogue for each square arcsecond."""
    sky_within: float = 2.0
    repetitions: int = 3
    spark: bool = True
    seed: int = 7


QUICK = Settings(rows=20_000, grown=(10_000, 20_000), repetitions=1, spark=False)
TARGETS = {"duckdb same bound": 5.0}


@dataclass(frozen=True)
class Job:
    """Two tables in files, the condition, and DuckDB's candidates: ids, and the columns for their probability."""

    name: str
    folder: Path
    condition: str
    threshold: float
    candidates: str
    value: Callable[..., np.ndarray] | None
    """Computes the probabilities of the candidates; None if DuckDB computes them itself."""

    def path(self, name: str) -> str:
        """Return a file of one of the tables, or of an answer, which is removed if it exists."""
        path = self.folder / f"{name}.parquet"
        if name not in ("left", "right"):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        return str(path)

    def answer(self, name: str) -> Answer:
        """Read the answer that an engine has written."""
        table = pq.read_table(self.folder / f"{name}.parquet")
        return Answer(*(table[column].to_numpy() for column in ("id_left", "id_right", "probability")))


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Time all engines on all jobs, then haply alone on growing tables."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        place = Path(folder)
        jobs = [band_job(place / f"d{density:g}", settings, settings.rows, density) for density in settings.densities]
        for job in (*jobs, interval_job(place / "times", settings), sky_job(place / "sky", settings)):
            results += _compare(job, settings, tell)
        growth = [_grown(place / f"g{rows}", settings, rows, tell) for rows in settings.grown]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    title = f"Joins of Parquet files, {settings.rows:,} x {settings.rows:,} rows, {cores()} threads"
    notes = [f"best of {settings.repetitions} runs; this process held at most {peak:,.0f} MB"]
    if settings.spark:
        notes.append("haply on spark: at least 10 times as long with 0.85 pairs a row, 3 times with 17")
    config: dict[str, Any] = {**settings.__dict__, "threads": cores(), "peak_megabytes": peak, "notes": notes}
    config |= {"targets": TARGETS, **circumstances("duckdb", "scipy")}
    return Report("local", title, config, results, growth)


def _written(
    folder: Path, columns: Callable[[np.random.Generator], tuple[str, pa.Array]], rows: int, seed: int
) -> None:
    """Write both tables, with shuffled ids."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    for side in ("left", "right"):
        name, values = columns(random)
        pq.write_table(pa.table({"id": random.permutation(rows), name: values}), folder / f"{side}.parquet")


def band_job(folder: Path, settings: Settings, rows: int, density: float) -> Job:
    """Make Gaussian values, with means and standard deviations spread evenly."""

    def columns(random: np.random.Generator) -> tuple[str, pa.Array]:
        mean = random.uniform(0.0, rows / density, rows)
        sd = random.uniform(settings.least_sd, settings.most_sd, rows)
        return "x", pa.StructArray.from_arrays([pa.array(mean), pa.array(sd)], ["mean", "sd"])

    _written(folder, columns, rows, settings.seed)
    limits = Filter.of(settings.within, settings.threshold)
    width = 0.5 * limits.within
    reach = f"({limits.within!r} - {limits.z!r} * x.sd + {SLACK!r})"
    buckets = [f"CAST(floor((x.mean {sign} {reach}) / {width!r}) AS INTEGER)" for sign in "-+"]
    query = f"""
        WITH a AS (
            SELECT id, x.mean AS mean, x.sd * x.sd AS variance, CAST(floor(x.mean / {width!r}) AS INTEGER) AS bucket
            FROM read_parquet('{folder}/left.parquet') WHERE x.sd <= {limits.most_sd!r}
        ), b AS (
            SELECT id, x.mean AS mean, x.sd * x.sd AS variance,
                   CAST(unnest(range({buckets[0]}, {buckets[1]} + 1)) AS INTEGER) AS bucket
            FROM read_parquet('{folder}/right.parquet') WHERE x.sd <= {limits.most_sd!r}
        ), pairs AS (
            SELECT a.id AS i, b.id AS j, a.mean - b.mean AS difference, sqrt(a.variance + b.variance) AS sd
            FROM a JOIN b ON a.bucket = b.bucket
        )
        SELECT i, j, difference, sd FROM pairs
        WHERE abs(difference) + {limits.z!r} * sd <= {limits.within + SLACK!r} AND sd <= {limits.most_sd!r}
    """
    return Job(
        "", folder, f"abs(left.x - right.x) <= {settings.within!r}", settings.threshold, query,
        lambda difference, sd: straddling_probability(difference, sd, limits.within),
    )  # fmt: skip


def interval_job(folder: Path, settings: Settings) -> Job:
    """Make times that lie in intervals; their probability is a difference of squares, which SQL can compute."""

    def columns(random: np.random.Generator) -> tuple[str, pa.Array]:
        begin = random.uniform(0.0, settings.rows / settings.densities[-1], settings.rows)
        end = begin + random.uniform(settings.least_sd, settings.most_sd, settings.rows)
        return "t", pa.StructArray.from_arrays([pa.array(begin), pa.array(end)], ["lo", "hi"])

    _written(folder, columns, settings.rows, settings.seed)
    c = settings.within
    share = Threshold(settings.threshold).core_level(Pairing.UNIFORM) - 0.5  # by this share of its length
    width = 0.5 * c
    middle, reach = "(0.5 * (t.lo + t.hi))", f"({c!r} - {share!r} * (t.hi - t.lo) + {SLACK!r})"
    buckets = [f"CAST(floor(({middle} {sign} {reach}) / {width!r}) AS INTEGER)" for sign in "-+"]

    def below(t: float) -> str:
        terms = (("+", "a.lo - b.hi"), ("-", "a.lo - b.lo"), ("-", "a.hi - b.hi"), ("+", "a.hi - b.lo"))
        return " ".join(f"{sign} power(greatest(0.0, {t!r} - ({end})), 2)" for sign, end in terms)

    query = f"""
        WITH a AS (
            SELECT id, t.lo AS lo, t.hi AS hi, {middle} AS middle,
                   CAST(floor({middle} / {width!r}) AS INTEGER) AS bucket
            FROM read_parquet('{folder}/left.parquet')
        ), b AS (
            SELECT id, t.lo AS lo, t.hi AS hi, {middle} AS middle,
                   CAST(unnest(range({buckets[0]}, {buckets[1]} + 1)) AS INTEGER) AS bucket
            FROM read_parquet('{folder}/right.parquet')
        ), pairs AS (
            SELECT a.id AS id_left, b.id AS id_right,
                   (({below(c)}) - ({below(-c)})) / (2.0 * (a.hi - a.lo) * (b.hi - b.lo)) AS probability
            FROM a JOIN b ON a.bucket = b.bucket
            WHERE abs(a.middle - b.middle) + {share!r} * (a.hi - a.lo + b.hi - b.lo) <= {c + SLACK!r}
        )
        SELECT * FROM pairs WHERE probability >= {settings.threshold - TOLERANCE!r}
    """
    condition = f"abs(left.t - right.t) <= {c!r}"
    return Job("times in intervals", folder, condition, settings.threshold, query, None)


def sky_job(folder: Path, settings: Settings) -> Job:
    """Make catalogues of a part of the sky, with circular errors in arcseconds."""
    side = (settings.rows / settings.stars) ** 0.5 / 3600.0  # in degrees

    def columns(random: np.random.Generator) -> tuple[str, pa.Array]:
        dec = 30.0 + side * random.random(settings.rows)
        ra = 120.0 + side * random.random(settings.rows) / np.cos(np.radians(dec))
        error = 0.5 * random.uniform(settings.least_sd, settings.most_sd, settings.rows)
        fields = {"ra": ra, "dec": dec, "ra_error": error, "dec_error": error, "corr": np.zeros(settings.rows)}
        return "pos", pa.StructArray.from_arrays(list(map(pa.array, fields.values())), list(fields))

    _written(folder, columns, settings.rows, settings.seed)
    limits = Filter.of(settings.sky_within, settings.threshold)
    degrees = limits.within / 3600.0
    zone = f"CAST(floor(pos.dec / {degrees!r}) AS INTEGER)"
    # a bucket is as wide as its zone, so that partners are in the same or in neighbouring buckets
    bucket = f"CAST(floor(pos.ra * cos(radians({{}} * {degrees!r})) / {1.01 * degrees!r}) AS INTEGER)"
    point = (
        "pos.ra_error AS error, cos(radians(pos.dec)) * cos(radians(pos.ra)) AS x, "
        "cos(radians(pos.dec)) * sin(radians(pos.ra)) AS y, sin(radians(pos.dec)) AS z"
    )
    query = f"""
        WITH a AS (
            SELECT id, {point}, {zone} AS zone, {bucket.format(zone)} AS bucket
            FROM read_parquet('{folder}/left.parquet') WHERE pos.ra_error <= {limits.most_sd!r}
        ), spread AS (
            SELECT id, pos, {zone} + unnest([-1, 0, 1]) AS zone
            FROM read_parquet('{folder}/right.parquet') WHERE pos.ra_error <= {limits.most_sd!r}
        ), b AS (SELECT id, {point}, zone, {bucket.format("zone")} + unnest([-1, 0, 1]) AS bucket FROM spread
        ), pairs AS (
            SELECT a.id AS i, b.id AS j, sqrt(a.error * a.error + b.error * b.error) AS sd,
                   degrees(2.0 * asin(0.5 * sqrt((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)
                                                 + (a.z - b.z) * (a.z - b.z)))) * 3600.0 AS apart
            FROM a JOIN b ON a.zone = b.zone AND a.bucket = b.bucket
        )
        SELECT i, j, apart, sd FROM pairs WHERE apart + {limits.z!r} * sd <= {limits.within + SLACK!r}
    """
    condition = f"distance(left.pos, right.pos) <= {settings.sky_within!r}"

    def value(apart: np.ndarray, sd: np.ndarray) -> np.ndarray:
        return np.asarray(needs("scipy.special").chndtr((limits.within / sd) ** 2, 2.0, (apart / sd) ** 2))

    return Job("positions on the sky", folder, condition, settings.threshold, query, value)


def _compare(job: Job, settings: Settings, tell: Tell) -> list[Result]:
    engines: dict[str, Callable[[], Any]] = {
        "haply": lambda: haply_join(job),
        "duckdb same bound": lambda: duckdb_join(job),
        "files alone": lambda: files_alone(job, finished),
    }
    if settings.spark:
        engines["haply on spark"] = lambda: spark_join(job)
    haply_join(job)
    finished = pq.read_table(job.folder / "haply.parquet")
    for name, engine in engines.items():
        tell(f"first run of {name}")
        engine()
    answers = {name: job.answer(name) for name in engines}
    a_row = f"{len(answers['haply'].left) / settings.rows:.2g} pairs a row"
    named = f"{job.name}, {a_row}" if job.name else a_row
    check_same(named, answers)
    pairs = {name: len(answer.left) for name, answer in answers.items()}
    del answers
    seconds = take_turns(named, engines, settings.repetitions, tell)
    return [Result(named, name, spent, pairs[name], spent / seconds["haply"]) for name, spent in seconds.items()]


def haply_join(job: Job) -> int:
    """Join with haply, from files to a file."""
    plan = plan_join(
        job.path("left"), job.path("right"), job.condition, job.threshold, columns=["id_left", "id_right"]
    )  # fmt: skip
    return plan.write(job.path("haply"))


def spark_join(job: Job) -> int:
    """Run the same query with haply on Spark."""
    from haply.engines.spark.runtime.session import local_session

    spark = local_session("haply bench")
    left, right = (spark.read.parquet(job.path(name)) for name in ("left", "right"))
    plan = plan_join(left, right, job.condition, job.threshold, columns=["id_left", "id_right"])
    return plan.write(job.path("haply on spark"))


def duckdb_join(job: Job) -> None:
    """Run DuckDB's query; scipy computes what DuckDB cannot."""
    connection = needs("duckdb").connect()
    connection.execute(
        f"SET threads = {cores()}; SET enable_progress_bar = false; SET preserve_insertion_order = false"
    )
    path = job.path("duckdb same bound")
    if job.value is None:
        connection.execute(f"COPY ({job.candidates}) TO '{path}' (FORMAT parquet)")
        return
    schema = pa.schema({"id_left": pa.int64(), "id_right": pa.int64(), "probability": pa.float64()})
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for batch in connection.sql(job.candidates).to_arrow_reader(1 << 20):
            i, j, *rest = (column.to_numpy() for column in batch.columns)
            probability = job.value(*rest)
            kept = np.flatnonzero(probability >= job.threshold - TOLERANCE)
            columns = [pa.array(column[kept]) for column in (i, j, probability)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def files_alone(job: Job, finished: pa.Table) -> None:
    """Read both tables, one with each thread, and write the answer as haply does."""
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(pq.read_table, [job.path("left"), job.path("right")]))
    pq.write_table(finished, job.path("files alone"), use_dictionary=False)


def _grown(folder: Path, settings: Settings, rows: int, tell: Tell) -> Growth:
    tell(f"{rows:,} x {rows:,} rows")
    job = band_job(folder, settings, rows, settings.densities[-1])
    pairs = haply_join(job)
    seconds = take_turns(f"{rows:,} rows", {"haply": lambda: haply_join(job)}, 1, tell)["haply"]
    shutil.rmtree(folder)
    return Growth(rows, seconds, rows / seconds, pairs)
