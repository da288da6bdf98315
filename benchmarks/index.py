"""``bench index``: a join of few rows with a large indexed table, beside the same join without the index.

Rows lie evenly on a long line, each with its own error. The rows that look for partners come from one part of it, like
today's readings or the sources in one field. Both joins are haply's: the difference is what the index saves.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.measure import OURS, Answer, Report, Tell, check_same, circumstances, on_spark, ranked, take_turns
from benchmarks.spark import watched

DataFrame: TypeAlias = Any
SparkSession: TypeAlias = Any

WITHOUT = "haply without index"


@dataclass(frozen=True)
class Settings:
    """The workload; rows lie one unit apart on average."""

    rows: int = 20_000_000
    probes: int = 10_000
    part: float = 0.01
    """The share of the line that the probes come from."""
    least_sd: float = 0.005
    most_sd: float = 0.02
    within: float = 0.1
    threshold: float = 0.5
    page_rows: int = 4096
    repetitions: int = 3
    cores: str = "2"
    memory: str = "4g"
    shuffle_partitions: int = 16
    seed: int = 17


QUICK = Settings(rows=100_000, probes=1_000, page_rows=512, repetitions=1)


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does, in a new Spark session if none is running."""
    return on_spark(QUICK if quick else Settings(), measure, tell)


def tables(session: SparkSession, settings: Settings) -> tuple[DataFrame, DataFrame]:
    """Return the probes, and the table before it is indexed: its order does not depend on its values."""
    from pyspark.sql import functions as F

    from haply import gaussian

    def rows(count: int, low: float, high: float, seed: int) -> DataFrame:
        sd = settings.least_sd + F.rand(seed + 1) * (settings.most_sd - settings.least_sd)
        return session.range(count).select("id", gaussian(low + F.rand(seed) * (high - low), sd).alias("x"))

    whole = float(settings.rows)
    middle = 0.37 * whole
    probes = rows(settings.probes, middle, middle + settings.part * whole, settings.seed + 10)
    return probes, rows(settings.rows, 0.0, whole, settings.seed)


def measure(session: SparkSession, settings: Settings, tell: Tell) -> Report:
    """Build the index, then join with it and without it in turn."""
    from haply.api import build_index, join, read_index
    from haply.engines.spark.index import index_of
    from haply.report.funnel import Funnel

    on = f"abs(left.x - right.x) <= {settings.within!r}"
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        probes, table = tables(session, settings)
        places = str(Path(folder) / "index"), str(Path(folder) / "probes")
        tell(f"indexing {settings.rows:,} rows")
        begun = time.perf_counter()
        build_index(table, "x", places[0], page_rows=settings.page_rows)
        built = time.perf_counter() - begun
        probes.write.parquet(places[1])

        def pairs(frame: DataFrame, funnel: Any = None) -> DataFrame:
            found = join(session.read.parquet(places[1]), frame, on, settings.threshold, funnel=funnel)
            return found.selectExpr("id_left AS i", "id_right AS j", "probability")

        def indexed() -> DataFrame:
            return read_index(places[0], session)

        def plain() -> DataFrame:
            frame = indexed().select("*")  # the same files, read without the index
            assert index_of(frame) is None
            return frame

        job = f"{settings.probes:,} rows with {settings.rows:,}"
        answers, funnel = {}, Funnel()
        for name, query in ((OURS, lambda: pairs(indexed(), funnel)), (WITHOUT, lambda: pairs(plain()))):
            tell(f"{job}: first run of {name}")
            found = query().toArrow()
            answers[name] = Answer(*(found[column].to_numpy() for column in ("i", "j", "probability")))
        check_same(job, answers)
        counts = funnel.to_dict()
        memory: dict[str, dict[str, float]] = {}
        engines = {
            OURS: watched(OURS, lambda: pairs(indexed()), memory),
            WITHOUT: watched(WITHOUT, lambda: pairs(plain()), memory),
        }
        seconds = take_turns(job, engines, settings.repetitions, tell)
    kept = len(answers[OURS].left)
    share = counts["pages_read"] / max(1, counts["pages_total"])
    rows_found = len(np.unique(answers[OURS].right))
    config = {
        **settings.__dict__,
        "targets": {WITHOUT: {job: 20.0}},
        "pages_read": counts["pages_read"],
        "pages_total": counts["pages_total"],
        "notes": [
            f"{kept:,} pairs: {rows_found / settings.rows:.4%} of the table's rows have a partner",
            f"pages read: {counts['pages_read']:,} of {counts['pages_total']:,} ({share:.2%}; the target is below 5%)",
            f"the index was written in {built:,.0f} s, once",
        ],
        **circumstances("pyspark", "pyarrow"),
    }
    title = f"A join with an indexed table of {settings.rows:,} rows"
    return Report("index", title, config, ranked(job, seconds, dict.fromkeys(engines, kept)))
