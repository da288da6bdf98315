"""``bench band``: which of two lists of Gaussian values lie within ``c`` of each other with probability 0.7 or more.

Every engine runs on one thread in this process. It starts from the same arrays in memory and ends with arrays of left
ids, right ids and probabilities. For a threshold ``p`` above one half, a difference with mean ``d`` and standard
deviation ``s`` needs

    ``|d| + z(p) * s <= c``  and  ``s <= c / z((1 + p) / 2)``,  with ``z`` the normal quantile:

Two tails must be short: the nearer one alone gives the first condition, and the best case ``d = 0`` the second. Both
hold for a single row with its own ``sd`` in place of ``s``, which gives a row's reach along the axis of the means.

``duckdb`` and ``numpy`` are what an expert writes: a range of means, the first formula as a filter, the exact
probability of the remaining pairs. The engines called *same bound* also use what haply uses: hopeless rows are left
out, and each row has its own reach.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Answer, Engines, Report, Tell, circumstances, compare, needs
from haply.errors import HaplyError
from haply.joins.match import match_all
from haply.models import Gaussian
from haply.probability.region import Region
from haply.pruning.candidates.curve import unit_table
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.threshold import TOLERANCE, Pairing, Threshold

SLACK = 1e-9
"""Added to every filter on the safe side: the exact probability decides."""


@dataclass(frozen=True)
class Settings:
    """The workload; the target job is the default."""

    rows: int = 100_000
    rows_per_unit: float = 26.3
    least_sd: float = 0.1
    most_sd: float = 1.0
    within: float = 1.0
    threshold: float = 0.7
    repetitions: int = 9
    seed: int = 7


QUICK = Settings(rows=5_000, repetitions=3)


@dataclass(frozen=True)
class Side:
    """One list: ids in no particular order, means and standard deviations."""

    id: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True)
class Filter:
    """The limits of the peers' filter (see the module's text)."""

    within: float
    threshold: float
    z: float
    most_sd: float

    @classmethod
    def of(cls, within: float, threshold: float) -> Filter:
        """Make the limits for ``|a - b| <= within`` with a probability of at least the threshold."""
        if not 0.5 < threshold < 1.0:
            raise HaplyError("The peers' filter needs a threshold between 0.5 and 1", found=f"{threshold:g}")
        quantile = needs("scipy.special").ndtri
        most_sd = within / float(quantile(0.5 * (1.0 + threshold))) * (1.0 + SLACK)
        return cls(within, threshold, float(quantile(threshold)), most_sd)


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Time all engines on one workload, with the probability and without it."""
    left, right = make_sides(settings)
    results = []
    for wanted, exact in (("exact", True), ("none", False)):
        job = f"P >= {settings.threshold:g}, probability {wanted}"
        results += compare(job, engines(left, right, settings, exact), settings.repetitions, tell)
    candidates = len(_numpy_candidates(left, right, Filter.of(settings.within, settings.threshold), True)[0])
    title = f"Gaussian band join, {settings.rows:,} x {settings.rows:,} rows, one thread"
    return Report("band", title, config(settings, candidates), results)


def config(settings: Settings, candidates: int) -> dict[str, Any]:
    """Return what was measured, for the JSON."""
    return {
        **settings.__dict__,
        "condition": f"|a - b| <= {settings.within:g}",
        "candidates": candidates,
        "polars_threads": needs("polars").thread_pool_size(),
        "formulations": {
            "haply": "row intervals, sweep, Gaussian curve, exact value; the curve's table is built in every run",
            "duckdb": "range join on the reach of the right rows, z-filter in SQL; Arrow batches out, scipy erf on "
            "each (faster than an Arrow UDF and than erfc as SQL polynomial)",
            "duckdb same bound": "hash join on buckets of the mean, right rows repeated over their reach, hopeless "
            "rows left out, z-filter in SQL, scipy erf as above",
            "polars same bound": "the same buckets and filter with lazy frames (faster than join_where), scipy erf",
            "numpy": "sort, searchsorted window of +- c, z-filter, scipy erf",
            "numpy same bound": "hopeless rows left out, sort, searchsorted window of each left row's reach, z-filter, "
            "scipy erf",
        },
        "targets": {"duckdb": 6.0, "numpy": 5.0},
        "notes": [
            f"{candidates:,} candidates pass the filter and need the exact probability; "
            f"best of {settings.repetitions} runs"
        ],
        **circumstances("duckdb", "polars", "scipy"),
    }


def make_sides(settings: Settings) -> tuple[Side, Side]:
    """Make two lists: means and standard deviations are spread evenly, ids are shuffled."""
    random = np.random.default_rng(settings.seed)
    sides = []
    for _ in range(2):
        mean = random.uniform(0.0, settings.rows / settings.rows_per_unit, settings.rows)
        sd = random.uniform(settings.least_sd, settings.most_sd, settings.rows)
        sides.append(Side(random.permutation(settings.rows).astype(np.int64), mean, sd))
    return sides[0], sides[1]


def engines(left: Side, right: Side, settings: Settings, exact: bool) -> Engines:
    """Return every engine as a function from the shared arrays to its answer."""
    limits = Filter.of(settings.within, settings.threshold)
    duckdb, polars = DuckBand(left, right, limits), PolarsBand(left, right, limits)
    return {
        "haply": lambda: haply_band(left, right, settings, exact),
        "duckdb": lambda: duckdb.run(duckdb.range_query, exact),
        "duckdb same bound": lambda: duckdb.run(duckdb.bucket_query, exact),
        "polars same bound": lambda: polars.run(exact),
        "numpy": lambda: numpy_band(left, right, limits, exact, same_bound=False),
        "numpy same bound": lambda: numpy_band(left, right, limits, exact, same_bound=True),
    }


def haply_band(left: Side, right: Side, settings: Settings, exact: bool) -> Answer:
    """Join with haply, without Spark: from parameters to result arrays."""
    # The table of the threshold's curve is kept between queries; a first query has to build it.
    unit_table.cache_clear()
    region, threshold = Region(-settings.within, settings.within), Threshold(settings.threshold)
    mine, theirs = (Gaussian.view([pa.array(side.mean), pa.array(side.sd)]) for side in (left, right))
    found = match_all(
        mine,
        theirs,
        row_intervals(mine, True, region, threshold, exact, Pairing.GAUSSIAN),
        row_intervals(theirs, False, region, threshold, exact, Pairing.GAUSSIAN),
        region, threshold, exact, labels=(left.id, right.id),
    )  # fmt: skip
    return Answer(found.left, found.right, found.probability if exact else None)


def numpy_band(left: Side, right: Side, limits: Filter, exact: bool, *, same_bound: bool) -> Answer:
    """Join whole arrays with NumPy: blocks that fit the caches were not faster."""
    i, j, difference, sd = _numpy_candidates(left, right, limits, same_bound)
    probability = straddling_probability(difference, sd, limits.within)
    passed = probability >= limits.threshold - TOLERANCE
    return Answer(i[passed], j[passed], probability[passed] if exact else None)


def _numpy_candidates(left: Side, right: Side, limits: Filter, same_bound: bool) -> tuple[np.ndarray, ...]:
    """Return ids of the pairs that pass the filter, and mean and standard deviation of their differences."""
    c, z = limits.within, limits.z
    sides = []
    for side in (left, right):
        usable = np.flatnonzero(side.sd <= limits.most_sd) if same_bound else np.arange(len(side.id))
        rows = usable[np.argsort(side.mean[usable])]
        sides.append((side.id[rows], side.mean[rows], side.sd[rows] ** 2))
    (a_id, a_mean, a_variance), (b_id, b_mean, b_variance) = sides
    if not len(a_id) or not len(b_id):
        return a_id[:0], b_id[:0], a_mean[:0], b_mean[:0]
    reach = c - z * np.sqrt(a_variance + b_variance.min()) + SLACK if same_bound else c + SLACK
    first = np.searchsorted(b_mean, a_mean - reach, "left")
    counts = np.maximum(np.searchsorted(b_mean, a_mean + reach, "right") - first, 0)
    i = np.repeat(np.arange(len(a_id)), counts)
    j = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    difference, sd = a_mean[i] - b_mean[j], np.sqrt(a_variance[i] + b_variance[j])
    kept = np.flatnonzero((np.abs(difference) + z * sd <= c + SLACK) & (sd <= limits.most_sd))
    return a_id[i[kept]], b_id[j[kept]], difference[kept], sd[kept]


def straddling_probability(difference: np.ndarray, sd: np.ndarray, within: float) -> np.ndarray:
    """Compute ``P(|D| <= within)`` for normal differences by scipy's error function."""
    erf = needs("scipy.special").erf
    scaled = sd * np.sqrt(2.0)
    return np.asarray(0.5 * (erf((within - difference) / scaled) + erf((within + difference) / scaled)))


class DuckBand:
    """Joins with DuckDB, on the same arrays through Arrow, without a copy."""

    def __init__(self, left: Side, right: Side, limits: Filter) -> None:
        self.limits = limits
        self.connection = needs("duckdb").connect()
        self.connection.execute("SET threads = 1; SET enable_progress_bar = false")
        for name, side in (("l", left), ("r", right)):
            self.connection.register(name, pa.table(side.__dict__))

    @property
    def range_query(self) -> str:
        """Return a query of pairs that pass the filter, by an inequality join: ids, mean and sd of the difference."""
        limits = self.limits
        reach = f"({limits.within!r} - {limits.z!r} * r.sd + {SLACK!r})"
        return f"""
            WITH pairs AS (
                SELECT l.id AS i, r.id AS j, l.mean - r.mean AS difference, sqrt(l.sd * l.sd + r.sd * r.sd) AS sd
                FROM l JOIN r ON l.mean BETWEEN r.mean - {reach} AND r.mean + {reach}
            )
            SELECT i, j, difference, sd FROM pairs
            WHERE abs(difference) + {limits.z!r} * sd <= {limits.within + SLACK!r}
        """

    @property
    def bucket_query(self) -> str:
        """Return a query of the same pairs, by an equality join on buckets."""
        limits, width = self.limits, 0.5 * self.limits.within
        reach = f"({limits.within!r} - {limits.z!r} * sd + {SLACK!r})"
        buckets = [f"CAST(floor((mean {sign} {reach}) / {width!r}) AS INTEGER)" for sign in "-+"]
        return f"""
            WITH a AS (
                SELECT id, mean, sd * sd AS variance, CAST(floor(mean / {width!r}) AS INTEGER) AS bucket
                FROM l WHERE sd <= {limits.most_sd!r}
            ), b AS (
                SELECT id, mean, sd * sd AS variance,
                       CAST(unnest(range({buckets[0]}, {buckets[1]} + 1)) AS INTEGER) AS bucket
                FROM r WHERE sd <= {limits.most_sd!r}
            ), pairs AS (
                SELECT a.id AS i, b.id AS j, a.mean - b.mean AS difference, sqrt(a.variance + b.variance) AS sd
                FROM a JOIN b ON a.bucket = b.bucket
            )
            SELECT i, j, difference, sd FROM pairs
            WHERE abs(difference) + {limits.z!r} * sd <= {limits.within + SLACK!r} AND sd <= {limits.most_sd!r}
        """

    def run(self, query: str, exact: bool) -> Answer:
        """Run the join in DuckDB, and the error function on each Arrow batch of its result."""
        parts = []
        for batch in self.connection.sql(query).to_arrow_reader(1 << 17):
            i, j, difference, sd = (column.to_numpy() for column in batch.columns)
            probability = straddling_probability(difference, sd, self.limits.within)
            kept = np.flatnonzero(probability >= self.limits.threshold - TOLERANCE)
            parts.append((i[kept], j[kept], probability[kept]))
        empty = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        i, j, probability = (np.concatenate(column) for column in zip(*(parts or [empty]), strict=True))
        return Answer(i, j, probability if exact else None)


class PolarsBand:
    """Joins with Polars, on the same arrays."""

    def __init__(self, left: Side, right: Side, limits: Filter) -> None:
        # Polars reads this at its first import; the configuration shows how many threads it really has.
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        self.pl = needs("polars")
        self.limits = limits
        self.left, self.right = (self.pl.DataFrame(side.__dict__) for side in (left, right))

    def run(self, exact: bool) -> Answer:
        """Join on buckets, filter, and compute the error function."""
        pl, limits, width = self.pl, self.limits, 0.5 * self.limits.within

        def bucket(position: Any) -> Any:
            return (position / width).floor().cast(pl.Int32)

        mean, sd = pl.col("mean"), pl.col("sd")
        reach = limits.within - limits.z * sd + SLACK
        usable = [side.lazy().filter(sd <= limits.most_sd) for side in (self.left, self.right)]
        a = usable[0].select("id", "mean", variance=sd * sd, bucket=bucket(mean))
        buckets = pl.int_ranges(bucket(mean - reach), bucket(mean + reach) + 1, dtype=pl.Int32)
        b = usable[1].select("id", "mean", variance=sd * sd, bucket=buckets).explode("bucket")
        found = (
            a.join(b, on="bucket", suffix="_b")
            .select(
                i="id",
                j="id_b",
                difference=mean - pl.col("mean_b"),
                sd=(pl.col("variance") + pl.col("variance_b")).sqrt(),
            )
            .filter((pl.col("difference").abs() + limits.z * sd <= limits.within + SLACK) & (sd <= limits.most_sd))
            .collect()
        )
        i, j, difference, spread = (found[name].to_numpy() for name in ("i", "j", "difference", "sd"))
        probability = straddling_probability(difference, spread, limits.within)
        kept = np.flatnonzero(probability >= limits.threshold - TOLERANCE)
        return Answer(i[kept], j[kept], probability[kept] if exact else None)
