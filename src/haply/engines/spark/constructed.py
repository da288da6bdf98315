"""Columns made by constructors, for conditions and SQL, and the types of expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.engines.spark.columns import CONSTRUCTORS
from haply.engines.spark.runtime.failures import refused_by_spark
from haply.engines.spark.types import field_from
from haply.errors import HaplyError
from haply.planning.constructors import PARAMETERS, checked_arguments, refuse_type
from haply.planning.frames import Field, Text


def type_of(df: DataFrame, sql: str) -> Field:
    """Return the type of an expression over the columns; an error of Spark becomes a ``HaplyError``."""
    try:
        return field_from("value", df.select(F.expr(sql).alias("value")).schema["value"].dataType)
    except PySparkException as refusal:
        raise HaplyError(f"Spark refuses it: {refused_by_spark(refusal)}") from None


def with_constructed(frame: DataFrame, column: str, name: str, arguments: Sequence[Any]) -> DataFrame:
    """Return the table with one more column, made by a constructor from numbers, ``Text``, None and lists of them."""
    build, names, arguments = CONSTRUCTORS[name], PARAMETERS[name], checked_arguments(name, arguments)
    _check_numbers(frame, name, arguments)
    try:
        made = frame.withColumn(column, build(*map(_column, arguments)))
        kind = made.schema[column].dataType
    except PySparkException as refusal:
        raise HaplyError(f"Spark refuses {name}(): {refused_by_spark(refusal)}") from None
    except (TypeError, ValueError) as refusal:
        if isinstance(refusal, HaplyError):
            raise
        hint = f"arrays are written array(1, 2); the arguments are {', '.join(names)}"
        raise HaplyError(f"{name}() cannot take these arguments", hint=hint) from None
    assert field_from(column, kind).model is not None
    return made


def _check_numbers(frame: DataFrame, name: str, arguments: Sequence[Any]) -> None:
    """Refuse what Spark would try to read as numbers, row by row."""
    for argument in arguments:
        if isinstance(argument, list):
            _check_numbers(frame, name, argument)
        if not isinstance(argument, Text):
            continue
        refuse_type(name, type_of(frame, argument.sql).text)


def _column(argument: Any) -> Any:
    if isinstance(argument, Text):
        return F.expr(argument.sql)
    return [_column(each) for each in argument] if isinstance(argument, list) else argument
