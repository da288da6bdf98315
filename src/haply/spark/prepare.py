"""Rows made ready for a join: their interval, and whether they are null, hopeless or bad; and ``hp.check``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Model, OneDimensional, Uniform
from haply.models.columns import read_column
from haply.numerics.normal import normal_quantile
from haply.probability.region import Region
from haply.pruning.intervals import POSITION_SLACK, Intervals, interval_ends, row_intervals
from haply.pruning.threshold import Pairing, Threshold
from haply.spark.columns import arrow_function, find_column, model_of_spark_type, quoted

USABLE, NULL, HOPELESS, BAD = 0, 1, 2, 3
"""What a row is to a join."""


@dataclass(frozen=True)
class PlaceRows:
    """Row intervals of one side of a difference."""

    is_left: bool
    region: Region
    threshold: Threshold
    exact: bool
    pairing: Pairing

    def __call__(self, model: Model) -> Intervals:
        """See ``row_intervals``."""
        assert isinstance(model, OneDimensional)
        return row_intervals(model, self.is_left, self.region, self.threshold, self.exact, self.pairing)


def interval_column(
    column: str,
    model: type[Model],
    is_left: bool,
    region: Region,
    threshold: Threshold,
    exact: bool,
    pairing: Pairing,
    raise_as: str | None,
) -> Column:
    """A struct ``start, end, state`` for each row of a column of models.

    ``raise_as`` names the column in the error for a bad row; without it bad rows are only marked. Kinds whose quantiles
    are plain arithmetic are computed by Spark itself; the others by haply's models in an Arrow function.
    """
    if model in _NATIVE:
        return F.expr(_native_intervals(column, model, is_left, region, threshold, exact, pairing, raise_as))

    return interval_function(PlaceRows(is_left, region, threshold, exact, pairing), raise_as)(F.col(column))


def interval_function(find: Callable[[Model], Intervals], raise_as: str | None) -> Any:
    """``interval_column`` for any way to find the intervals of good rows."""

    def intervals(values: pa.Array) -> pa.Array:
        read = read_column(values)
        if len(read.bad_rows) and raise_as is not None:
            raise bad_row(raise_as, read.example)
        found = find(read.model)
        state = np.full(len(values), NULL, dtype=np.int8)
        state[read.bad_rows] = BAD
        state[read.rows] = np.where(found.hopeless, HOPELESS, USABLE)
        start, end = np.zeros(len(values)), np.zeros(len(values))
        start[read.rows], end[read.rows] = found.start, found.end
        return pa.StructArray.from_arrays([pa.array(start), pa.array(end), pa.array(state)], ["start", "end", "state"])

    # Declared not deterministic, or Spark would copy the call into every later filter and projection and run it again.
    return arrow_function(intervals, _INTERVAL_TYPE).asNondeterministic()


def middle_column(column: str, model: type[Model]) -> Column:
    """About the median of each value, to sort by; null where there is none."""
    if model in _NATIVE:
        return F.expr(_NATIVE[model](_fields_of(column, model), 0.5, 1.0))

    def middles(values: pa.Array) -> pa.Array:
        read = read_column(values)
        assert isinstance(read.model, OneDimensional)
        middle = np.full(len(values), np.nan)
        middle[read.rows] = read.model.quantile_low(0.5)
        return pa.array(middle, from_pandas=True)

    return arrow_function(middles, "double")(F.col(column))


def _fields_of(column: str, model: type[Model]) -> dict[str, str]:
    return {
        parameter.name: f"CAST({column}{'' if model is Certain else '.' + parameter.name} AS DOUBLE)"
        for parameter in model.parameters
    }


def state_function(raise_as: str | None) -> Any:
    """Whether each row of a column is usable, null or bad."""

    def states(values: pa.Array) -> pa.Array:
        read = read_column(values)
        if len(read.bad_rows) and raise_as is not None:
            raise bad_row(raise_as, read.example)
        state = np.full(len(values), NULL, dtype=np.int8)
        state[read.bad_rows] = BAD
        state[read.rows] = USABLE
        return pa.array(state)

    return arrow_function(states, "tinyint").asNondeterministic()


_INTERVAL_TYPE = "start double, end double, state tinyint"


def bad_row(where: str, example: str) -> HaplyError:
    """The error for a row that is not a distribution."""
    return HaplyError(
        f"{where} has a row that is not a distribution",
        found=example,
        hint='see all of them with hp.check(df, column), or leave them out with invalid="drop"',
    )


def _native_intervals(
    column: str,
    model: type[Model],
    is_left: bool,
    region: Region,
    threshold: Threshold,
    exact: bool,
    pairing: Pairing,
    raise_as: str | None,
) -> str:
    """``row_intervals`` as Spark SQL: the same ends up to rounding, which both allow for."""
    fields = _fields_of(column, model)
    ends = interval_ends(is_left, region, threshold, exact, pairing)
    low, high = _NATIVE[model](fields, ends.low_level, 1.0), _NATIVE[model](fields, ends.high_level, -1.0)

    def moved(position: str, shift: float, slack: float) -> str:
        return f"{position} - {_double(shift)} + {_double(slack)} * (abs({position}) + {_double(abs(shift))})"

    start, end = moved(low, ends.low_shift, -POSITION_SLACK), moved(high, ends.high_shift, POSITION_SLACK)
    hopeless = _native_hopeless(model, fields, region, threshold)

    def struct(state: str, start: str = "0D", end: str = "0D") -> str:
        return f"struct({start} AS start, {end} AS `end`, CAST({state} AS TINYINT) AS state)"

    good = struct(f"IF({hopeless}, {HOPELESS}, {USABLE})", start, end)
    reason = _native_reason(model, fields)
    bad = struct(str(BAD))
    if raise_as is not None:
        text = str(bad_row(raise_as, "%s in %s")).replace("\\", "\\\\").replace("'", "\\'")
        row = "to_json(struct(" + ", ".join(f"{field} AS {name}" for name, field in fields.items()) + "))"
        bad = f"IF(raise_error(printf('{text}', {reason}, {row})) IS NULL, {bad}, NULL)"
    unknown = " OR ".join([f"{column} IS NULL", *(f"{field} IS NULL" for field in fields.values())])
    return f"CASE WHEN {unknown} THEN {struct(str(NULL))} WHEN {reason} IS NOT NULL THEN {bad} ELSE {good} END"


def _double(number: float) -> str:
    return f"({float(number)!r}D)"


def _native_reason(model: type[Model], fields: dict[str, str]) -> str:
    """SQL for why a row is bad, or null: the declared domains of the model's parameters."""
    cases = []
    for parameter in model.parameters:
        field = fields[parameter.name]
        infinite = f"isnan({field}) OR abs({field}) = CAST('Infinity' AS DOUBLE)"
        cases.append(f"WHEN {infinite} THEN '{parameter.name} is NaN or infinite'")
        if parameter.least is not None:
            least = f"{parameter.name} < {parameter.least:g}"
            cases.append(f"WHEN {field} < {_double(parameter.least)} THEN '{least}'")
    if model is Uniform:
        cases.append(f"WHEN {fields['lo']} > {fields['hi']} THEN 'lo > hi'")
    return f"(CASE {' '.join(cases)} END)"


def _native_hopeless(model: type[Model], fields: dict[str, str], region: Region, threshold: Threshold) -> str:
    """SQL for whether a row's concentration on the region's width stays below the threshold."""
    share = threshold.reject_below - 1e-14
    if region.outside or region.one_sided or share <= 0.0 or model is Certain:
        return "false"
    if model is Uniform:
        length = f"({fields['hi']} - {fields['lo']})"
        return f"{length} > 0 AND {length} * {_double(share)} >= {_double(region.width)}"
    widest = 0.5 * region.width / normal_quantile(0.5 * (1.0 + share))
    return f"{fields['sd']} > {_double(widest * (1.0 + 1e-9))}"


_NATIVE: dict[type[Model], Callable[[dict[str, str], float, float], str]] = {
    Certain: lambda fields, level, sign: fields["values"],
    Uniform: lambda fields, level, sign: (
        f"({fields['lo' if sign > 0 else 'hi']} + {_double(sign * level)} * ({fields['hi']} - {fields['lo']}))"
    ),
    Gaussian: lambda fields, level, sign: (
        f"({fields['mean']} + {_double(sign * normal_quantile(level))} * {fields['sd']})"
    ),
}
"""SQL for the point that cuts a tail of the given level from below (sign 1) or above (-1), where it is arithmetic."""


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
