"""Spark's types as planning and workers see them."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import types as T

from haply.engines.spark.versions import arrow_schema
from haply.planning.frames import Field, quoted


def field_from(name: str, kind: T.DataType) -> Field:
    """Describe a column by its Spark type."""
    try:
        (arrow,) = arrow_schema(T.StructType([T.StructField(name, kind)])).types
    except (PySparkException, TypeError):
        arrow = None
    return Field(name, arrow, kind.simpleString())


def may_be_null(kind: T.DataType) -> T.DataType:
    """Return a type whose fields and elements may all be null."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, may_be_null(field.dataType)) for field in kind])
    return T.ArrayType(may_be_null(kind.elementType)) if isinstance(kind, T.ArrayType) else kind


def hashed_parts(value: str, kind: T.DataType) -> list[str]:
    """Write SQL for the parts of a value that a hash needs to distinguish values: Spark's hash ignores nulls."""
    if isinstance(kind, T.StructType):
        fields = [part for field in kind for part in hashed_parts(f"{value}.{quoted(field.name)}", field.dataType)]
        return [f"{value} IS NULL", *fields]
    if isinstance(kind, T.ArrayType) and not _is_nested(kind.elementType):
        nulls = [f"transform({value}, one -> one IS NULL)"] if kind.containsNull else []
        return [f"coalesce(size({value}), -1)", value, *nulls]
    return [f"to_json(struct({value} AS value))"] if _is_nested(kind) else [f"{value} IS NULL", value]


def _is_nested(kind: T.DataType) -> bool:
    return isinstance(kind, (T.StructType, T.ArrayType, T.MapType, T.VariantType))
