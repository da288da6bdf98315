"""What a query in SQL asks of Spark: tables by name, the types of expressions, columns made of text, and sorting."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.errors import HaplyError, unknown_name
from haply.models import Certain, Model, OneDimensional
from haply.spark.columns import CONSTRUCTORS, model_of_spark_type, quoted


@dataclass(frozen=True)
class Text:
    """Spark SQL, where a plain string would be the name of a column."""

    sql: str


def is_table(value: Any) -> bool:
    """Whether a value is a DataFrame, of classic Spark or of Connect."""
    return isinstance(value, DataFrame)


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


def catalog_table(spark: SparkSession, parts: Sequence[str]) -> DataFrame | None:
    """A table or view of Spark's catalog; none if it has no such table."""
    try:
        frame = spark.table(".".join(map(quoted, parts)))
        frame.schema  # noqa: B018 (over Connect the name is looked up here)
    except PySparkException:
        return None
    return frame


def catalog_names(spark: SparkSession) -> list[str]:
    """The tables and views of the current schema, for hints."""
    try:
        return [table.name for table in spark.catalog.listTables()]
    except PySparkException:
        return []


def check_function(spark: SparkSession, name: str, also: Iterable[str]) -> None:
    """Refuse a function that Spark does not know."""
    try:
        known = spark.catalog.functionExists(name)
    except PySparkException:
        known = False
    if not known:
        there = [*also, *_function_names(spark)]
        nearest = str(unknown_name("function", name, there)).partition("Hint: ")[2]
        raise HaplyError(f"There is no function {name}()", hint=nearest or "Spark's functions and haply's are known")


@lru_cache(maxsize=1)
def _function_names(spark: SparkSession) -> tuple[str, ...]:
    """Kept, because to list them takes a second; a name that came later is only missing among the hints."""
    return tuple(function.name for function in spark.catalog.listFunctions())


def type_of(frame: DataFrame, sql: str) -> T.DataType:
    """The type of an expression over a table; Spark's own refusal becomes ours."""
    try:
        return frame.select(F.expr(sql).alias("value")).schema["value"].dataType
    except PySparkException as refusal:
        raise HaplyError(f"Spark refuses it: {short(refusal)}") from None


def is_boolean(kind: T.DataType) -> bool:
    """Whether a type is that of a condition; the type of NULL is that of anything."""
    return isinstance(kind, (T.BooleanType, T.NullType))


def short(refusal: BaseException) -> str:
    """The message of Spark without its class, its plan and its query context."""
    text = re.split(r"SQLSTATE|;\s*line \d|\n== |\nJVM stacktrace|\n\n", str(refusal))[0]
    return re.sub(r"^\[[\w.]+\]\s*", "", re.sub(r"\s+", " ", text)).strip()


def with_constructed(frame: DataFrame, column: str, name: str, arguments: Sequence[Any]) -> DataFrame:
    """The table with one more column, made by a constructor from numbers, ``Text``, None and lists of them."""
    if name == "samples" and len(arguments) == 2 and isinstance(arguments[1], (int, float)):
        arguments = [arguments[0], None, arguments[1]]  # one number is the dimension: probabilities are an array
    build = CONSTRUCTORS[name]
    names = list(inspect.signature(build).parameters)
    try:
        inspect.signature(build).bind(*arguments)
    except TypeError:
        raise HaplyError(
            f"{name}() takes other arguments",
            expected=f"{name}({', '.join(names)})",
            found=f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}",
        ) from None
    for given, argument in zip(names, arguments, strict=False):
        if given == "dim" and argument is not None and type(argument) is not int:
            raise HaplyError("The dimension of samples is not a whole number", found=str(argument))
    _check_numbers(frame, name, arguments)
    try:
        made = frame.withColumn(column, build(*map(_column, arguments)))
        kind = made.schema[column].dataType
    except PySparkException as refusal:
        raise HaplyError(f"Spark refuses {name}(): {short(refusal)}") from None
    except (TypeError, ValueError) as refusal:
        if isinstance(refusal, HaplyError):
            raise
        hint = f"arrays are written array(1, 2); the arguments are {', '.join(names)}"
        raise HaplyError(f"{name}() cannot take these arguments", hint=hint) from None
    assert model_of_spark_type(kind) is not None
    return made


def _check_numbers(frame: DataFrame, name: str, arguments: Sequence[Any]) -> None:
    """Refuse what Spark would try to read as numbers, row by row."""
    for argument in arguments:
        if isinstance(argument, list):
            _check_numbers(frame, name, argument)
        if not isinstance(argument, Text):
            continue
        kind = innermost = type_of(frame, argument.sql)
        while isinstance(innermost, T.ArrayType):
            innermost = innermost.elementType
        if not isinstance(innermost, (T.NumericType, T.TimestampType, T.NullType)):
            raise HaplyError(
                f"{name}() is made of something that is no number", expected="numbers, or arrays of them",
                found=kind.simpleString(),
            )  # fmt: skip


def is_number(kind: T.DataType) -> bool:
    """Whether a type is that of numbers."""
    return isinstance(kind, (T.NumericType, T.NullType))


def _column(argument: Any) -> Any:
    if isinstance(argument, Text):
        return F.expr(argument.sql)
    return [_column(each) for each in argument] if isinstance(argument, list) else argument


def with_expression(frame: DataFrame, column: str, sql: str) -> DataFrame:
    """The table with one more column, from Spark SQL."""
    try:
        made = frame.withColumn(column, F.expr(sql))
        made.schema  # noqa: B018 (over Connect the expression is checked here)
    except PySparkException as refusal:
        raise HaplyError(f"Spark refuses it: {short(refusal)}") from None
    return made


def uncertain_model(frame: DataFrame, column: str) -> type[Model] | None:
    """The model of a column's values; none if they are certain."""
    model = model_of_spark_type(frame.schema[column].dataType)
    return None if model is Certain else model


def is_one_dimensional(model: type[Model]) -> bool:
    """Whether a model's values are numbers."""
    return issubclass(model, OneDimensional)


def side_by_side(frames: Iterable[DataFrame], names: Sequence[str]) -> DataFrame:
    """All columns of all tables under these names, to ask Spark what an expression over them is; not to be run."""
    whole: DataFrame | None = None
    position = 0
    for frame in frames:
        count = len(frame.columns)
        renamed = frame.toDF(*names[position : position + count])
        whole = renamed if whole is None else whole.crossJoin(renamed)
        position += count
    assert whole is not None
    return whole


def with_sure(frame: DataFrame, column: str) -> DataFrame:
    """The table with a column of ones."""
    return frame.withColumn(column, F.lit(1.0))


def without_probability(frame: DataFrame) -> tuple[DataFrame, str]:
    """The table with another name for a column that is called as that of the result, and that name."""
    taken = {name.lower() for name in frame.columns}
    spare = next(name for name in ("probability_" + "_" * k for k in range(len(taken) + 1)) if name not in taken)
    names = [spare if name.lower() == "probability" else name for name in frame.columns]
    return (frame, spare) if names == frame.columns else (frame.toDF(*names), spare)


def ordered(frame: DataFrame, keys: Sequence[tuple[str, bool, bool | None]]) -> DataFrame:
    """The rows sorted by expressions, each descending or not, and nulls first or last if that is asked for."""
    columns: list[Column] = []
    for sql, descending, nulls_first in keys:
        column = F.expr(sql)
        if nulls_first is None:
            columns.append(column.desc() if descending else column.asc())
        elif nulls_first:
            columns.append(column.desc_nulls_first() if descending else column.asc_nulls_first())
        else:
            columns.append(column.desc_nulls_last() if descending else column.asc_nulls_last())
    return frame.orderBy(*columns)
