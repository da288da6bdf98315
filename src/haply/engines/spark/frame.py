"""Spark's DataFrames as planning sees them (see ``planning.frames.Frame``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from haply.engines.spark.constructed import type_of, with_constructed
from haply.engines.spark.files import write_table
from haply.engines.spark.index import index_of, renamed
from haply.engines.spark.runtime.failures import refused_by_spark, translate_failures
from haply.engines.spark.streaming.session import check_session
from haply.engines.spark.times import time_number
from haply.engines.spark.types import field_from, hashed_parts, may_be_null
from haply.engines.spark.versions import arrow_function
from haply.errors import HaplyError
from haply.planning.frames import Field, quoted
from haply.planning.times import TimeWindow

_SEED = 8191
"""The seed of samples of rows."""


class SparkFrame:
    """A DataFrame of Spark, classic or Connect; batch or streaming."""

    def __init__(self, df: DataFrame) -> None:
        self.df = df

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Return the columns in their order."""
        return tuple(
            replace(
                field_from(field.name, field.dataType),
                unit=(field.metadata or {}).get("unit"),
                mark=(field.metadata or {}).get("haply"),
            )
            for field in self.df.schema.fields
        )

    @property
    def streaming(self) -> bool:
        """Return whether it is a stream."""
        return self.df.isStreaming

    @property
    def engine_name(self) -> str:
        """Return the name of the engine that holds it."""
        return "spark"

    @property
    def index(self) -> Any:
        """Return the index it was read from; None if it is not an indexed table."""
        return index_of(self.df)

    @property
    def identity(self) -> Any:
        """Return a value that is equal for two frames of the same DataFrame of the user."""
        return id(self.df)

    def renamed(self, names: Sequence[str]) -> SparkFrame:
        """Give all columns other names."""
        return SparkFrame(renamed(self.df, list(names)))

    def select(self, names: Sequence[str]) -> SparkFrame:
        """Choose columns."""
        return SparkFrame(self.df.select(*map(quoted, names)))

    def where(self, sql: str) -> SparkFrame:
        """Keep the rows for which a condition holds."""
        return SparkFrame(self.df.where(F.expr(sql)))

    def with_columns(self, columns: Mapping[str, str]) -> SparkFrame:
        """Add columns, computed by SQL."""
        df = self.df
        try:
            for name, sql in columns.items():
                df = df.withColumn(name, F.expr(sql))
            df.schema  # noqa: B018 (over Connect the expression is checked here)
        except PySparkException as refusal:
            raise HaplyError(f"Spark refuses it: {refused_by_spark(refusal)}") from None
        return SparkFrame(df)

    def with_time(self, name: str, window: TimeWindow, column: str, known_as: str) -> SparkFrame:
        """Add a column of certain times as numbers; ``known_as`` names the column in errors."""
        return SparkFrame(self.df.withColumn(name, F.expr(time_number(window, column, known_as))))

    def with_model(self, name: str, constructor: str, arguments: Sequence[Any]) -> SparkFrame:
        """Add an uncertain column: what a constructor makes of ``Text``, numbers and lists of them."""
        return SparkFrame(with_constructed(self.df, name, constructor, arguments))

    def with_function(self, name: str, columns: Sequence[str], function: Callable[..., pa.Array]) -> SparkFrame:
        """Add a column, or replace one: what a function makes of the Arrow arrays of columns, row by row."""
        kinds = {field.name: field.arrow for field in self.fields}
        made = function(*(pa.nulls(0, kinds[column]) for column in columns)).type  # an empty table gives the type
        compute = arrow_function(_of_arrays(function, len(columns)), from_arrow_type(made).simpleString())
        return SparkFrame(self.df.withColumn(name, compute(*(F.col(quoted(column)) for column in columns))))

    def sampled(self, share: float) -> SparkFrame:
        """Keep about this share of the rows, drawn by a fixed seed."""
        return SparkFrame(self.df.sample(fraction=share, seed=_SEED))

    def totals(self, columns: Sequence[str], function: Callable[[pa.Table], np.ndarray]) -> np.ndarray:
        """Add up the numbers that a function makes of some rows at a time: a list of sums leaves each partition."""
        translate_failures()
        names = list(dict.fromkeys(columns))
        schema = pa.schema([(field.name, field.arrow) for field in self.fields if field.name in names])

        def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            total: Any = None
            for batch in batches:
                found = function(pa.Table.from_batches([batch]))
                total = found if total is None else total + found
            if total is not None:
                yield pa.RecordBatch.from_pydict({"totals": [total.tolist()]})

        parts = self.df.select(*map(quoted, names)).mapInArrow(add, "totals array<double>").collect()
        nothing = function(pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema))
        return np.sum([nothing, *(np.asarray(part["totals"]) for part in parts)], axis=0)

    def listed(self, key: str, name: str) -> SparkFrame:
        """Make one row of all rows with one key: a list of structs of the other columns."""
        others = [quoted(field.name) for field in self.fields if field.name != key]
        return SparkFrame(self.df.groupBy(quoted(key)).agg(F.collect_list(F.struct(*others)).alias(name)))

    @contextmanager
    def held(self) -> Iterator[SparkFrame]:
        """Let Spark cache the rows, once they are computed, until the ``with`` block ends."""
        kept = self.df.persist()
        try:
            yield SparkFrame(kept)
        finally:
            kept.unpersist()

    def gathered(self, columns: Sequence[str], most: int) -> pa.Table:
        """Bring columns of all rows into this process, or of at most ``most``."""
        translate_failures()
        kinds = {field.name: field.dataType for field in self.df.schema.fields}
        # Arrow refuses a null struct whose fields are never null
        wanted = {name: may_be_null(kinds[name]) for name in columns}
        chosen = [
            F.col(quoted(name)) if wanted[name] == kinds[name] else F.col(quoted(name)).cast(wanted[name]).alias(name)
            for name in columns
        ]
        return self.df.select(*chosen).limit(most).toArrow()

    def of_rows(self, table: pa.Table) -> SparkFrame:
        """Hold other rows, in the same session."""
        kinds = T.StructType([self.df.schema[name] for name in table.column_names])
        return SparkFrame(self.df.sparkSession.createDataFrame(table.to_pylist(), schema=kinds))

    def with_row_id(self, name: str) -> SparkFrame:
        """Add a column of row ids: two fingerprints of the row, and a number within one computation."""
        values = [text for field in self.df.schema.fields for text in hashed_parts(quoted(field.name), field.dataType)]
        listed = ", ".join(values)
        parts = f"xxhash64({listed}) AS first, xxhash64('again', {listed}) AS second"
        return SparkFrame(self.df.selectExpr("*", f"struct({parts}, monotonically_increasing_id() AS row) AS {name}"))

    def count_rows(self) -> int:
        """Count the rows, by a job of Spark."""
        return self.df.count()

    def least(self, column: str) -> float:
        """Return the least number of a column, NaN if one is null, by a job of Spark."""
        name = quoted(column)
        row = self.df.selectExpr(
            f"IF(count({name}) = count(1), CAST(min({name}) AS DOUBLE), CAST('NaN' AS DOUBLE))"
        ).first()
        return float(row[0]) if row is not None and row[0] is not None else float("inf")

    def marked(self, marks: Mapping[str, str]) -> SparkFrame:
        """Write these marks of its columns into its metadata, and no others."""
        columns = []
        for field in self.df.schema.fields:
            kept = {name: value for name, value in (field.metadata or {}).items() if name != "haply"}
            mark = {"haply": marks[field.name]} if field.name in marks else {}
            columns.append(F.col(quoted(field.name)).alias(field.name, metadata=kept | mark))
        return SparkFrame(self.df.select(*columns))

    def each_once(self, names: Sequence[str]) -> SparkFrame:
        """Keep one row for each combination of values in some columns."""
        return SparkFrame(self.df.dropDuplicates(list(names)))

    def stacked(self, others: Sequence[Any]) -> SparkFrame:
        """Add the rows of other tables with the same columns."""
        df = self.df
        for other in others:
            df = df.unionAll(other.df)
        return SparkFrame(df)

    def beside(self, other: Any) -> SparkFrame:
        """Make the product with another table."""
        return SparkFrame(self.df.crossJoin(other.df))

    def type_of(self, sql: str) -> Field:
        """Return the type of an expression over the columns."""
        return type_of(self.df, sql)

    def ordered(self, keys: Sequence[tuple[str, bool, bool | None]]) -> SparkFrame:
        """Sort by expressions, each descending or not, and nulls first or last if that is asked for."""
        columns: list[Column] = []
        for sql, descending, nulls_first in keys:
            column = F.expr(sql)
            if nulls_first is None:
                columns.append(column.desc() if descending else column.asc())
            elif nulls_first:
                columns.append(column.desc_nulls_first() if descending else column.asc_nulls_first())
            else:
                columns.append(column.desc_nulls_last() if descending else column.asc_nulls_last())
        return SparkFrame(self.df.orderBy(*columns))

    def project(self, columns: Mapping[str, str]) -> SparkFrame:
        """Make the columns of a result, computed by SQL."""
        return SparkFrame(self.df.selectExpr(*(f"{sql} AS {quoted(name)}" for name, sql in columns.items())))

    def limit(self, rows: int) -> SparkFrame:
        """Keep some rows."""
        return SparkFrame(self.df.limit(rows))

    def check_streams(self) -> None:
        """Refuse a session that cannot run joins of streams."""
        check_session(self.df.sparkSession)

    def give(self) -> DataFrame:
        """Return the DataFrame."""
        return self.df

    def write(self, path: str) -> int:
        """Write the rows into a new folder of Parquet files, or a CSV file; returns how many there are."""
        return write_table(self.df, path)


def _of_arrays(function: Callable[..., pa.Array], count: int) -> Callable[..., pa.Array]:
    """Return the same function with as many named parameters: Spark inspects them."""

    def of_one(first: pa.Array) -> pa.Array:
        return function(first)

    def of_two(first: pa.Array, second: pa.Array) -> pa.Array:
        return function(first, second)

    return (of_one, of_two)[count - 1]
