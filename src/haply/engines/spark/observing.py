"""Counters of a query, carried out of it by Spark's observations into a funnel."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from haply.engines.spark.exchange.parcels import COUNTS, PARCEL


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
        """Do the same for parcels among which rows stand that only count.

        With a funnel these rows go on: if nothing did, Spark would drop the empty part of its plan, and what it saw.
        """
        if self.funnel is None:
            return frame.where(f"{PARCEL} IS NOT NULL").drop(COUNTS)
        return self.watch(frame, metrics).drop(COUNTS)
