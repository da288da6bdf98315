"""Counters of a query, which Spark's observations bring into a funnel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from haply.engines.spark.exchange.parcels import COUNTS, PARCEL

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

OBSERVED = "haply-"
"""The prefix of the names under which a stream reports haply's counters."""

_pairs: ContextVar[Accumulator[int] | None] = ContextVar("pairs", default=None)


@contextmanager
def counted_pairs(spark: SparkSession) -> Iterator[Accumulator[int]]:
    """Count the pairs that workers find for joins planned in the ``with`` block, task by task; classic sessions only.

    Observations have no values before an action ends. An accumulator grows with every task, but a repeated task
    counts again: it is good for a progress bar, and not for a funnel.
    """
    counter = spark.sparkContext.accumulator(0)
    token = _pairs.set(counter)
    try:
        yield counter
    finally:
        _pairs.reset(token)


def pair_counter() -> Accumulator[int] | None:
    """Return the accumulator for the pairs of a join that is planned now; None if no progress is shown."""
    return _pairs.get()


class Observing:
    """Reports aggregates of a table's rows to a funnel, if there is one."""

    def __init__(self, funnel: Any) -> None:
        self.funnel = funnel

    def watch(self, frame: DataFrame, metrics: dict[str, str]) -> DataFrame:
        """Return the frame with these aggregates, in SQL, reported to the funnel."""
        if self.funnel is None:
            return frame
        observation = Observation()
        observed = frame.observe(
            observation, *(F.expr(f"coalesce({value}, 0)").alias(name) for name, value in metrics.items())
        )
        self.funnel.follow(lambda: observation.get)
        return observed

    def parcels(self, frame: DataFrame, metrics: dict[str, str]) -> DataFrame:
        """Do the same for parcels mixed with rows that hold only counters.

        With a funnel these rows stay: otherwise Spark would drop the empty part of its plan, and its counters.
        """
        if self.funnel is None:
            return frame.where(f"{PARCEL} IS NOT NULL").drop(COUNTS)
        return self.watch(frame, metrics).drop(COUNTS)
