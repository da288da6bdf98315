"""What a query in SQL asks of Spark: tables and functions by name, and columns made by constructors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from haply.engines.spark.columns import CONSTRUCTORS
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.runtime.failures import refused_by_spark
from haply.engines.spark.types import field_from
from haply.errors import HaplyError, unknown_name
from haply.planning.constructors import NEEDED, PARAMETERS
from haply.planning.frames import Text, quoted


def session_for(spark: SparkSession | None, frames: Iterable[DataFrame]) -> SparkSession:
    """The session that is given, that of a table, or the one that runs."""
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
        """Refuse a function that Spark does not know; ``also`` are haply's own."""
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
    """Kept, because to list them takes a second; a name that came later is only missing among the hints."""
    return tuple(function.name for function in spark.catalog.listFunctions())


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
        field = SparkFrame(frame).type_of(argument.sql)
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
