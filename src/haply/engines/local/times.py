"""Certain times as numbers, as Spark computes them (see ``engines.spark.times``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.errors import HaplyError
from haply.joins.operators.times import LARGEST_TIME, too_large
from haply.planning.times import TimeWindow

_TO_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def time_numbers(column: pa.ChunkedArray, window: TimeWindow, known_as: str) -> np.ndarray:
    """Return times as doubles: whole microseconds, or the numbers themselves; NaN where there is none.

    A time that a double does not hold is refused.
    """
    if not window.stamps:
        return _numbers(column, known_as)
    whole = _microseconds(column, known_as)
    known = np.asarray(whole.fill_null(0))
    # whole seconds are exact doubles in microseconds, in any year
    lost = (np.abs(known) > LARGEST_TIME) & (known % 1_000_000 != 0)
    if lost.any():
        raise too_large(known_as, str(column[int(np.flatnonzero(lost)[0])].as_py()))
    times = np.where(np.asarray(whole.is_null()), np.nan, known.astype(np.float64))
    return times / 1e6 if any(window.uncertain) else times


def _numbers(column: pa.ChunkedArray, known_as: str) -> np.ndarray:
    if pa.types.is_integer(column.type):
        known = np.asarray(column.fill_null(0))
        lost = np.abs(known.astype(np.float64)) > LARGEST_TIME
        if lost.any():
            raise too_large(known_as, str(known[lost][0]))
    times = np.asarray(column.cast(pa.float64()).fill_null(np.nan))
    finite = times[np.isfinite(times)]
    if len(finite) and np.abs(finite).max() > LARGEST_TIME:
        raise too_large(known_as, f"{finite[np.abs(finite) > LARGEST_TIME][0]:.17g}")
    return times


def _microseconds(column: pa.ChunkedArray, known_as: str) -> pa.ChunkedArray:
    unit = column.type.unit
    ticks = column.cast(pa.int64())
    if unit != "ns":
        return pc.multiply(ticks, _TO_MICROSECONDS[unit])
    known = np.asarray(ticks.fill_null(0))
    if (known % 1000).any():
        raise HaplyError(
            f"A time in '{known_as}' has nanoseconds",
            expected="whole microseconds, as timestamps have them on every engine",
            found=str(column[int(np.flatnonzero(known % 1000)[0])]),
            hint="round the times, or give them as numbers",
        )
    return pc.divide(ticks, 1000)
