"""Turn tables of every kind into frames that planning reads, and find the engine that runs them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from haply.errors import HaplyError
from haply.planning.frames import Catalog, Engine, Frame, field_of, find_column


def is_spark(value: Any) -> bool:
    """Return whether a value is a DataFrame of Spark, classic or Connect, without importing Spark."""
    bases = type(value).__mro__
    return any(base.__module__.startswith("pyspark.sql") and base.__name__ == "DataFrame" for base in bases)


def spark_runs() -> bool:
    """Return whether this process has a Spark session, without importing Spark."""
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and sql.SparkSession.getActiveSession() is not None


def frame_of(value: Any, where: str, hint: str = "") -> Frame:
    """Return a table as planning sees it; errors name it by ``where``, and ``hint`` says how to fix it."""
    if is_spark(value):
        from haply.engines.spark.frame import SparkFrame

        return SparkFrame(value)
    from haply.engines.local.inputs import local_frame

    return local_frame(value, where, hint)


def table_of(value: Any, where: str) -> Frame:
    """Return a table as planning sees it; refuses a stream."""
    frame = frame_of(value, where)
    if frame.streaming:
        raise HaplyError(f"{where} is a stream", expected="a table")
    return frame


def number_column(frame: Frame, name: str) -> str:
    """Return the name of a column of numbers as its table spells it."""
    column = find_column(frame, name, "given")
    if not field_of(frame, column).is_number:
        raise HaplyError(f"Column '{column}' is not a column of numbers", found=field_of(frame, column).text)
    return column


def engine_of(frame: Frame) -> Engine:
    """Return the engine that runs queries over a table."""
    if frame.engine_name == "local":
        from haply.engines.local.engine import ENGINE as LOCAL

        return LOCAL
    from haply.engines.spark.engine import ENGINE as SPARK

    return SPARK


def together(frames: Mapping[str, Frame]) -> None:
    """Refuse tables of two engines in one query."""
    engines = {frame.engine_name: where for where, frame in frames.items()}
    if len(engines) > 1:
        local, spark = engines["local"], engines["spark"]
        raise HaplyError(
            "A query mixes a Spark DataFrame with a table of this process",
            expected="tables of one engine",
            found=f"{spark} on Spark, {local} not",
            hint="spark.createDataFrame(...) takes a table to Spark, .toArrow() brings one back",
        )


def frames_of(tables: Mapping[str, Any], hint: str) -> dict[str, Frame]:
    """Return the tables of a query in SQL."""
    found = {}
    for name, table in tables.items():
        found[name] = frame_of(table, f"The table '{name}'", hint)
    together({f"'{name}'": frame for name, frame in found.items()})
    return found


def catalog_for(spark: Any, frames: Iterable[Frame]) -> Catalog:
    """Return what a query in SQL can name besides its tables."""
    given = list(frames)
    if given and given[0].engine_name == "local":
        from haply.engines.local.dialect import LocalCatalog

        return LocalCatalog()
    from haply.engines.spark.tables import SparkCatalog, session_for

    return SparkCatalog(session_for(spark, [frame.give() for frame in given]))
