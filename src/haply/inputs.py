"""From what people have to what planning reads: frames of every kind, and the engine that belongs to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from haply.errors import HaplyError
from haply.planning.frames import Catalog, Frame


def is_spark(value: Any) -> bool:
    """Whether a value is a DataFrame of Spark, classic or Connect; does not import Spark to find out."""
    bases = type(value).__mro__
    return any(base.__module__.startswith("pyspark.sql") and base.__name__ == "DataFrame" for base in bases)


def frame_of(value: Any, where: str) -> Frame:
    """Return a table as planning sees it; ``where`` says in errors what it is."""
    if is_spark(value):
        from haply.spark.frame import SparkFrame

        return SparkFrame(value)
    raise HaplyError(f"{where} is of type {type(value).__name__}", expected="a DataFrame of Spark")


def frames_of(tables: Mapping[str, Any], hint: str) -> dict[str, Frame]:
    """Return the tables of a query in SQL."""
    for name, table in tables.items():
        if not is_spark(table):
            raise HaplyError(
                f"The table '{name}' is of type {type(table).__name__}",
                expected="a DataFrame for each table",
                hint=hint,
            )
    return {name: frame_of(table, f"The table '{name}'") for name, table in tables.items()}


def catalog_for(spark: Any, frames: Iterable[Frame]) -> Catalog:
    """Return what a query in SQL can name besides its tables."""
    from haply.spark.tables import SparkCatalog, session_for

    return SparkCatalog(session_for(spark, [frame.give() for frame in frames]))
