"""Columns made by constructors, for conditions and SQL, and the types of expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.engines.spark.columns import CONSTRUCTORS
from haply.engines.spark.runtime.failures import refused_by_spark
from haply.engines.spark.types import field_from
from haply.errors import HaplyError
from haply.planning.constructors import NEEDED, PARAMETERS
from haply.planning.frames import Field, Text


def type_of(df: DataFrame, sql: str) -> Field:
    """Tell the type of an expression over the columns; Spark's own refusal becomes ours."""
    try:
        return field_from("value", df.select(F.expr(sql).alias("value")).schema["value"].dataType)
    except PySparkException as refusal:
        raise HaplyError(f"Spark refuses it: {refused_by_spark(refusal)}") from None


def with_constructed(frame: DataFrame, column: str, name: str, arguments: Sequence[Any]) -> DataFrame:
    """The table with one more column, made by a constructor from numbers, ``Text``, None and lists of them."""
    if name == "samples" and len(arguments) == 2 and isinstance(arguments[1], (int, float)):
        arguments = [arguments[0], None, arguments[1]]  # one number is the dimension: probabilities are an array
    build, names = CONSTRUCTORS[name], PARAMETERS[name]
    if not NEEDED.get(name, len(names)) <= len(arguments) <= len(names):
        raise HaplyError(
            f"{name}() takes other arguments",
            expected=f"{name}({', '.join(names)})",
            found=f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}",
        )
    for given, argument in zip(names, arguments, strict=False):
        if given == "dim" and argument is not None and type(argument) is not int:
            raise HaplyError("The dimension of samples is not a whole number", found=str(argument))
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
        field = type_of(frame, argument.sql)
        innermost = re.sub(r"array<|>", "", field.text)
        if not re.fullmatch(r"(tinyint|smallint|int|bigint|float|double|decimal\(.*\)|timestamp|void)", innermost):
            raise HaplyError(
                f"{name}() is made of something that is no number", expected="numbers, or arrays of them",
                found=field.text,
            )  # fmt: skip


def _column(argument: Any) -> Any:
    if isinstance(argument, Text):
        return F.expr(argument.sql)
    return [_column(each) for each in argument] if isinstance(argument, list) else argument
