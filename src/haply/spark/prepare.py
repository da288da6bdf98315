"""Rows made ready for a join: their interval, and whether they are null, hopeless or bad; and ``hp.check``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from haply.errors import HaplyError
from haply.models import OneDimensional
from haply.models.columns import read_column
from haply.probability.region import Region
from haply.pruning.intervals import row_intervals
from haply.pruning.threshold import Threshold
from haply.spark.columns import find_column, model_of_spark_type, quoted

USABLE, NULL, HOPELESS, BAD = 0, 1, 2, 3
"""What a row is to a join."""


def interval_column(
    values: Column, is_left: bool, region: Region, threshold: Threshold, exact: bool, raise_as: str | None
) -> Column:
    """A struct ``start, end, state`` for each row of a column of models.

    ``raise_as`` names the column in the error for a bad row; without it bad rows are only marked.
    """

    def intervals(column: pa.Array) -> pa.Array:
        read = read_column(column)
        if len(read.bad_rows) and raise_as is not None:
            raise HaplyError(
                f"{raise_as} has a row that is not a distribution",
                found=read.example,
                hint='see all of them with hp.check(df, column), or leave them out with invalid="drop"',
            )
        assert isinstance(read.model, OneDimensional)
        found = row_intervals(read.model, is_left, region, threshold, exact)
        state = np.full(len(column), NULL, dtype=np.int8)
        state[read.bad_rows] = BAD
        state[read.rows] = np.where(found.hopeless, HOPELESS, USABLE)
        start, end = np.zeros(len(column)), np.zeros(len(column))
        start[read.rows], end[read.rows] = found.start, found.end
        return pa.StructArray.from_arrays([pa.array(start), pa.array(end), pa.array(state)], ["start", "end", "state"])

    # Declared not deterministic, or Spark would copy the call into every later filter and projection and run it again.
    udf = F.arrow_udf(_annotated(intervals), "start double, end double, state tinyint").asNondeterministic()
    return udf(values)


def _annotated(function: Any) -> Any:
    """Spark chooses how to call an Arrow function by its annotations, which must be types rather than text."""
    function.__annotations__ = {"column": pa.Array, "return": pa.Array}
    return function


def check(frame: DataFrame, column: str) -> DataFrame:
    """The bad rows of an uncertain column, with a ``reason``; null rows are not bad.

    >>> hp.check(readings, "temp").show()                                                            # doctest: +SKIP
    """
    name = find_column(frame, column, "given")
    if model_of_spark_type(frame.schema[name].dataType) is None:
        raise HaplyError(
            f"Column '{name}' holds no uncertain values",
            expected="a struct made by hp.gaussian, hp.uniform, ... or a number",
            found=frame.schema[name].dataType.simpleString(),
        )

    def reasons(column: pa.Array) -> pa.Array:
        read = read_column(column)
        out: list[str | None] = [None] * len(column)
        for row, reason in zip(read.bad_rows, read.bad_reasons, strict=True):
            out[row] = reason
        return pa.array(out, pa.string())

    reason = F.arrow_udf(_annotated(reasons), "string")(F.col(quoted(name)))
    return frame.withColumn("reason", reason).where(F.col("reason").isNotNull())
