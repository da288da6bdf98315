"""Find tables and functions of Spark by name, for queries in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from haply.engines.spark.frame import SparkFrame
from haply.errors import HaplyError, unknown_name
from haply.planning.frames import quoted


def session_for(spark: SparkSession | None, frames: Iterable[DataFrame]) -> SparkSession:
    """Return the given session, that of a table, or the running one."""
    for frame in frames:
        spark = spark or frame.sparkSession
    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise HaplyError(
            "There is no Spark session for the query",
            expected="spark=..., tables as arguments, or a running session",
            hint="spark = hp.local_session() starts one on this machine",
        )
    return found


class SparkCatalog:
    """The tables and functions of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def table(self, parts: Sequence[str]) -> SparkFrame | None:
        """Find a table or view by its name; none if there is no such table."""
        try:
            df = self.spark.table(".".join(map(quoted, parts)))
            df.schema  # noqa: B018 (over Connect the name is looked up here)
        except PySparkException:
            return None
        return SparkFrame(df)

    def names(self) -> list[str]:
        """List the tables and views of the current schema, for hints."""
        try:
            return [table.name for table in self.spark.catalog.listTables()]
        except PySparkException:
            return []

    def check_function(self, name: str, also: Sequence[str]) -> None:
        """Refuse a function that Spark does not know; ``also`` are functions of haply."""
        try:
            known = self.spark.catalog.functionExists(name)
        except PySparkException:
            known = False
        if not known:
            there = [*also, *_function_names(self.spark)]
            nearest = str(unknown_name("function", name, there)).partition("Hint: ")[2]
            raise HaplyError(
                f"There is no function {name}()", hint=nearest or "Spark's functions and haply's are known"
            )


@lru_cache(maxsize=1)
def _function_names(spark: SparkSession) -> tuple[str, ...]:
    """Return the names of Spark's functions, cached because listing takes a second; they are only for hints."""
    return tuple(function.name for function in spark.catalog.listFunctions())
