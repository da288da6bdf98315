"""Prepare rows for a join: their interval, and whether they are null, hopeless or bad; and ``hp.check``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from haply.engines.spark.versions import arrow_function
from haply.joins.cells.rows import HOPELESS, row_states
from haply.models import Model, OneDimensional
from haply.models.columns import bad_reasons, read_column
from haply.planning.frames import quoted
from haply.pruning.candidates.intervals import Intervals


def interval_function(find: Callable[[Model], Intervals], raise_as: str | None) -> Any:
    """Return a function that gives a struct ``start, end, state`` for each row; ``find`` gives those of good rows.

    ``raise_as`` names the column in the error for a bad row; without it bad rows are only marked.
    """

    def intervals(values: pa.Array) -> pa.Array:
        state, read = row_states(values, raise_as)
        found = find(read.model)
        state[read.rows[found.hopeless]] = HOPELESS
        start, end = np.zeros(len(values)), np.zeros(len(values))
        start[read.rows], end[read.rows] = found.start, found.end
        return pa.StructArray.from_arrays([pa.array(start), pa.array(end), pa.array(state)], ["start", "end", "state"])

    # Declared not deterministic, or Spark would copy the call into every later filter and projection and run it again.
    return arrow_function(intervals, _INTERVAL_TYPE).asNondeterministic()


def middle_column(column: str) -> Column:
    """Return about the median of each value, to sort by; null where there is none."""

    def middles(values: pa.Array) -> pa.Array:
        read = read_column(values)
        assert isinstance(read.model, OneDimensional)
        middle = np.full(len(values), np.nan)
        middle[read.rows] = read.model.quantile_low(0.5)
        return pa.array(middle, from_pandas=True)

    return arrow_function(middles, "double")(F.col(column))


def state_function(raise_as: str | None) -> Any:
    """Return whether each row of a column is usable, null or bad."""

    def states(values: pa.Array) -> pa.Array:
        return pa.array(row_states(values, raise_as)[0])

    return arrow_function(states, "tinyint").asNondeterministic()


_INTERVAL_TYPE = "start double, end double, state tinyint"


def bad_rows(frame: DataFrame, name: str) -> DataFrame:
    """Return the bad rows of an uncertain column, with a ``reason``."""

    def reasons(column: pa.Array) -> pa.Array:
        return bad_reasons(column)

    reason = arrow_function(reasons, "string")(F.col(quoted(name)))
    return frame.withColumn("reason", reason).where(F.col("reason").isNotNull())
