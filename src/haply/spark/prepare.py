"""Rows made ready for a join: their interval, and whether they are null, hopeless or bad; and ``hp.check``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Model, OneDimensional, Uniform
from haply.models.columns import read_column
from haply.numerics.normal import normal_quantile
from haply.probability.region import Region
from haply.pruning.intervals import POSITION_SLACK, interval_ends, row_intervals
from haply.pruning.threshold import Threshold
from haply.spark.columns import arrow_function, find_column, model_of_spark_type, quoted

USABLE, NULL, HOPELESS, BAD = 0, 1, 2, 3
"""What a row is to a join."""


def interval_column(
    values: Column,
    model: type[Model],
    is_left: bool,
    region: Region,
    threshold: Threshold,
    exact: bool,
    raise_as: str | None,
) -> Column:
    """A struct ``start, end, state`` for each row of a column of models.

    ``raise_as`` names the column in the error for a bad row; without it bad rows are only marked. Kinds whose quantiles
    are plain arithmetic are computed by Spark itself; the others by haply's models in an Arrow function.
    """
    if model in _NATIVE:
        return _native_intervals(values, model, is_left, region, threshold, exact, raise_as)

    def intervals(column: pa.Array) -> pa.Array:
        read = read_column(column)
        if len(read.bad_rows) and raise_as is not None:
            raise _bad_row(raise_as, read.example)
        assert isinstance(read.model, OneDimensional)
        found = row_intervals(read.model, is_left, region, threshold, exact)
        state = np.full(len(column), NULL, dtype=np.int8)
        state[read.bad_rows] = BAD
        state[read.rows] = np.where(found.hopeless, HOPELESS, USABLE)
        start, end = np.zeros(len(column)), np.zeros(len(column))
        start[read.rows], end[read.rows] = found.start, found.end
        return pa.StructArray.from_arrays([pa.array(start), pa.array(end), pa.array(state)], ["start", "end", "state"])

    # Declared not deterministic, or Spark would copy the call into every later filter and projection and run it again.
    return arrow_function(intervals, _INTERVAL_TYPE).asNondeterministic()(values)


_INTERVAL_TYPE = "start double, end double, state tinyint"


def _bad_row(where: str, example: str) -> HaplyError:
    return HaplyError(
        f"{where} has a row that is not a distribution",
        found=example,
        hint='see all of them with hp.check(df, column), or leave them out with invalid="drop"',
    )


def _native_intervals(
    values: Column,
    model: type[Model],
    is_left: bool,
    region: Region,
    threshold: Threshold,
    exact: bool,
    raise_as: str | None,
) -> Column:
    """``row_intervals`` written as Spark expressions: the same ends up to rounding, which both allow for."""
    fields = {
        parameter.name: (values if model is Certain else values[parameter.name]).cast("double")
        for parameter in model.parameters
    }
    unknown = values.isNull()
    for field in fields.values():
        unknown = unknown | field.isNull()
    reason = _native_reason(model, fields)
    ends = interval_ends(is_left, region, threshold, exact)
    low = _NATIVE[model](fields, ends.low_level, 1.0)
    high = _NATIVE[model](fields, ends.high_level, -1.0)
    start = low - F.lit(ends.low_shift) - F.lit(POSITION_SLACK) * (F.abs(low) + F.lit(abs(ends.low_shift)))
    end = high - F.lit(ends.high_shift) + F.lit(POSITION_SLACK) * (F.abs(high) + F.lit(abs(ends.high_shift)))
    state = F.when(_native_hopeless(model, fields, region, threshold), F.lit(HOPELESS)).otherwise(F.lit(USABLE))

    def struct(state: Column, start: Column, end: Column) -> Column:
        return F.struct(start.alias("start"), end.alias("end"), state.cast("tinyint").alias("state"))

    nothing = F.lit(0.0)
    good = struct(state, start, end)
    bad = struct(F.lit(BAD), nothing, nothing)
    if raise_as is not None:
        text = str(_bad_row(raise_as, "%s in %s"))
        row = F.to_json(F.struct(*(field.alias(name) for name, field in fields.items())))
        bad = F.when(F.raise_error(F.format_string(text, reason, row)).isNull(), bad)
    return F.when(unknown, struct(F.lit(NULL), nothing, nothing)).when(reason.isNotNull(), bad).otherwise(good)


def _native_reason(model: type[Model], fields: dict[str, Column]) -> Column:
    """Why a row is bad, or null: the declared domains of the model's parameters."""
    reason = F.when(F.lit(False), F.lit(""))
    for parameter in model.parameters:
        field = fields[parameter.name]
        infinite = F.isnan(field) | (F.abs(field) == F.lit(float("inf")))
        reason = reason.when(infinite, F.lit(f"{parameter.name} is NaN or infinite"))
        if parameter.least is not None:
            reason = reason.when(field < F.lit(parameter.least), F.lit(f"{parameter.name} < {parameter.least:g}"))
    return reason.when(fields["lo"] > fields["hi"], F.lit("lo > hi")) if model is Uniform else reason


def _native_hopeless(model: type[Model], fields: dict[str, Column], region: Region, threshold: Threshold) -> Column:
    """Whether a row's concentration on the region's width stays below the threshold."""
    if region.outside or region.one_sided or threshold.reject_below <= 0.0 or model is Certain:
        return F.lit(False)
    if model is Uniform:
        held = fields["hi"] - fields["lo"]
        return (held > 0.0) & (held * F.lit(threshold.reject_below - 1e-14) >= F.lit(region.width))
    widest = 0.5 * region.width / normal_quantile(0.5 * (1.0 + threshold.reject_below))
    return fields["sd"] > F.lit(widest * (1.0 + 1e-9))


_NATIVE: dict[type[Model], Callable[[dict[str, Column], float, float], Column]] = {
    Certain: lambda fields, level, sign: fields["values"],
    Uniform: lambda fields, level, sign: (
        fields["lo" if sign > 0 else "hi"] + F.lit(sign * level) * (fields["hi"] - fields["lo"])
    ),
    Gaussian: lambda fields, level, sign: fields["mean"] + F.lit(sign * normal_quantile(level)) * fields["sd"],
}
"""The point that cuts a tail of the given level from below (sign 1) or above (-1), where it is plain arithmetic."""


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

    reason = arrow_function(reasons, "string")(F.col(quoted(name)))
    return frame.withColumn("reason", reason).where(F.col("reason").isNotNull())
