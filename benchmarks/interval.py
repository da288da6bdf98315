"""``bench interval``: the uniform intervals of Cheng et al. 2005 (section 5), joined where ``P(|a - b| <= 1) >= 0.3``.

Every engine runs on one thread in this process, from the same arrays to arrays of ids and probabilities. DuckDB gets
the closed form in SQL (the trapezoid, by cases) and an equality join on buckets, which beats its inequality join here:

* ``duckdb`` tests all pairs whose intervals come within ``c`` of each other;
* ``duckdb same bound`` gets haply's row intervals and hopeless rows as formulas, so that it tests no more pairs than
  haply does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Answer, Engines, Report, Tell, circumstances, compare, needs
from haply.joins.match import match_all
from haply.models import Uniform
from haply.probability.region import Region
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.threshold import TOLERANCE, Pairing, Threshold


@dataclass(frozen=True)
class Settings:
    """The workload: lower ends uniform on a stretch of the axis, lengths normal."""

    rows: int = 100_000
    left_from: float = 0.0
    right_from: float = 5_000.0
    stretch: float = 10_000.0
    left_length: float = 5.0
    left_length_sd: float = 1.0
    right_length: float = 10.0
    right_length_sd: float = 2.0
    least_length: float = 0.01
    within: float = 1.0
    threshold: float = 0.3
    repetitions: int = 9
    seed: int = 7


QUICK = Settings(rows=10_000, repetitions=3)


@dataclass(frozen=True)
class Side:
    """One table of intervals."""

    id: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Compute the closed form over the candidates; only pairs that reach the threshold leave DuckDB."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Time all engines on one workload."""
    left, right = make_sides(settings)
    duckdb = DuckInterval(left, right, settings)
    job = f"|a - b| <= {settings.within:g}, P >= {settings.threshold:g}"
    engines: Engines = {
        "haply": lambda: haply_interval(left, right, settings),
        "duckdb": lambda: duckdb.run(duckdb.touching()),
        "duckdb same bound": lambda: duckdb.run(duckdb.same_bound()),
    }
    results = compare(job, engines, settings.repetitions, tell)
    title = f"Uniform intervals, {settings.rows:,} x {settings.rows:,} rows, one thread"
    return Report("interval", title, _config(settings, duckdb), results)


def _config(settings: Settings, duckdb: DuckInterval) -> dict[str, Any]:
    touching, bounded = duckdb.count(duckdb.touching()), duckdb.count(duckdb.same_bound())
    return {
        **settings.__dict__,
        "strict": False,
        "candidates": {"duckdb": touching, "duckdb same bound": bounded},
        "formulations": {
            "haply": "row intervals and hopeless rows, sweep, bounds, closed form",
            "duckdb": "hash join on buckets: right rows by their lower end, left rows in every bucket where a partner "
            "may begin; closed form by cases in SQL (the inequality join took twice as long)",
            "duckdb same bound": "the same over haply's row intervals without its hopeless rows, given as formulas",
        },
        "targets": {"duckdb": 25.0, "duckdb same bound": 10.0},
        "notes": [
            f"{touching:,} pairs come within {settings.within:g} of each other, {bounded:,} pass haply's bound; "
            f"best of {settings.repetitions} runs"
        ],
        **circumstances("duckdb"),
    }


def make_sides(settings: Settings) -> tuple[Side, Side]:
    """Make the two tables, with shuffled ids."""
    random = np.random.default_rng(settings.seed)
    sides = []
    for start, length, length_sd in (
        (settings.left_from, settings.left_length, settings.left_length_sd),
        (settings.right_from, settings.right_length, settings.right_length_sd),
    ):
        lo = random.uniform(start, start + settings.stretch, settings.rows)
        lengths = np.maximum(random.normal(length, length_sd, settings.rows), settings.least_length)
        sides.append(Side(random.permutation(settings.rows).astype(np.int64), lo, lo + lengths))
    return sides[0], sides[1]


def haply_interval(left: Side, right: Side, settings: Settings) -> Answer:
    """Join with haply, without Spark: from parameters to result arrays."""
    region, threshold = Region(-settings.within, settings.within), Threshold(settings.threshold)
    mine, theirs = (Uniform.view([pa.array(side.lo), pa.array(side.hi)]) for side in (left, right))
    found = match_all(
        mine,
        theirs,
        row_intervals(mine, True, region, threshold, True, Pairing.UNIFORM),
        row_intervals(theirs, False, region, threshold, True, Pairing.UNIFORM),
        region, threshold, True, labels=(left.id, right.id),
    )  # fmt: skip
    return Answer(found.left, found.right, found.probability)


class DuckInterval:
    """Joins with DuckDB, on the same arrays through Arrow, without a copy."""

    def __init__(self, left: Side, right: Side, settings: Settings) -> None:
        self.settings = settings
        self.connection = needs("duckdb").connect()
        self.connection.execute("SET threads = 1; SET enable_progress_bar = false")
        for name, side in (("l", left), ("r", right)):
            self.connection.register(name, pa.table(side.__dict__))

    def touching(self) -> str:
        """Return a query of pairs that come within ``c`` of each other."""
        c = self.settings.within
        return self._bucketed(("lo", "hi"), (f"lo - {c!r}", f"hi + {c!r}"), "true")

    def same_bound(self) -> str:
        """Return a query of pairs whose row intervals overlap, of rows that are not hopeless."""
        c, threshold = self.settings.within, Threshold(self.settings.threshold)
        cut = threshold.core_level(Pairing.UNIFORM)
        low, high = f"lo + {cut!r} * (hi - lo)", f"hi - {cut!r} * (hi - lo)"
        slack = 1e-9  # the closed form decides
        hopeful = f"(hi - lo) * {threshold.reject_below!r} <= {2 * c + slack!r}"
        return self._bucketed((low, high), (f"{low} - {c + slack!r}", f"{high} + {c + slack!r}"), hopeful)

    def _bucketed(self, right: tuple[str, str], left: tuple[str, str], usable: str) -> str:
        """Return a query of overlapping pairs: a right row is in the bucket where it begins.

        A left row is in all buckets where a partner may begin.
        """
        width = 0.4 * self.settings.right_length
        ((longest,),) = self.connection.sql(
            f"SELECT coalesce(max(({right[1]}) - ({right[0]})), 0e0) FROM r WHERE {usable}"
        ).fetchall()
        buckets = [
            f"CAST(floor(({position}) / {width!r}) AS INTEGER)" for position in (f"{left[0]} - {longest!r}", left[1])
        ]
        return f"""
            WITH a AS (
                SELECT id, lo, hi, {left[0]} AS first, {left[1]} AS last,
                       CAST(unnest(range({buckets[0]}, {buckets[1]} + 1)) AS INTEGER) AS bucket
                FROM l WHERE {usable}
            ), b AS (
                SELECT id, lo, hi, {right[0]} AS first, {right[1]} AS last,
                       CAST(floor(({right[0]}) / {width!r}) AS INTEGER) AS bucket
                FROM r WHERE {usable}
            )
            SELECT a.id AS i, b.id AS j, a.lo AS a_lo, a.hi AS a_hi, b.lo AS b_lo, b.hi AS b_hi
            FROM a JOIN b ON a.bucket = b.bucket
            WHERE a.first <= b.last AND b.first <= a.last
        """

    def count(self, candidates: str) -> int:
        """Return how many pairs a query of candidates gives."""
        ((pairs,),) = self.connection.sql(f"SELECT count(*) FROM ({candidates})").fetchall()
        return int(pairs)

    def run(self, candidates: str) -> Answer:
        """Compute the closed form over the candidates; only pairs that reach the threshold leave DuckDB."""
        c, threshold = self.settings.within, self.settings.threshold
        found = self.connection.sql(f"""
            WITH corners AS (
                SELECT i, j, least(a_hi - a_lo, b_hi - b_lo) AS short, greatest(a_hi - a_lo, b_hi - b_lo) AS long,
                       a_lo - b_hi AS s1, a_hi - b_lo AS s4
                FROM ({candidates})
            ), slopes AS (SELECT *, s1 + short AS s2, s4 - short AS s3 FROM corners),
            valued AS (SELECT i, j, ({_trapezoid(c)}) - ({_trapezoid(-c)}) AS probability FROM slopes)
            SELECT i, j, probability FROM valued WHERE probability >= {threshold - TOLERANCE!r}
        """).to_arrow_table()
        return Answer(*(found[name].to_numpy() for name in ("i", "j", "probability")))


def _trapezoid(t: float) -> str:
    """Return ``P(a - b <= t)`` for uniform values in SQL, by cases."""
    at = f"({t!r})"
    return (
        f"CASE WHEN {at} <= s1 THEN 0e0 "
        f"WHEN {at} < s2 THEN ({at} - s1) * ({at} - s1) / (2 * short * long) "
        f"WHEN {at} <= s3 THEN (short / 2 + {at} - s2) / long "
        f"WHEN {at} < s4 THEN 1 - (s4 - {at}) * (s4 - {at}) / (2 * short * long) ELSE 1e0 END"
    )
