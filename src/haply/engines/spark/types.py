"""Spark's types as planning and workers see them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from haply.planning.frames import Field


def field_from(name: str, kind: T.DataType) -> Field:
    """Describe a column by its Spark type."""
    try:
        (arrow,) = to_arrow_schema(T.StructType([T.StructField(name, kind)]), timezone="UTC").types
    except (PySparkException, TypeError):
        arrow = None
    return Field(name, arrow, kind.simpleString())


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the same schema for Arrow, with times in UTC."""
    return to_arrow_schema(schema, timezone="UTC")
