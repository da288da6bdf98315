"""Event times and windows: certain times as timestamps or numbers, lengths as durations or numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from haply.errors import HaplyError
from haply.joins.times import LARGEST_TIME, too_large
from haply.models import Certain, OneDimensional
from haply.spark.columns import find_column, model_of_spark_type, quoted
from haply.spark.failures import MARK

_MICROSECONDS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
_MOST_MICROSECONDS = ("1684-07-28 00:12:25.259008", "2255-06-05 23:47:34.740992")
"""``LARGEST_TIME`` microseconds before and after 1970."""
_VALUE = "\0"
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class TimeWindow:
    """``|left time - right time| <= length``, in microseconds where times are timestamps.

    If a side's times are uncertain, both are in seconds, or what the numbers count. A row may come ``max_delay`` after
    newer ones of its own side.
    """

    left: str
    right: str
    length: float
    max_delay: float
    stamps: bool
    local: bool = False
    """Timestamps without a time zone, which are not to be read in that of the session."""
    uncertain: tuple[bool, bool] = (False, False)
    """Which side's times are uncertain values."""

    def slot(self, time: str) -> str:
        """SQL for the stretch of time, a little longer than the window, that a number of ``number`` is in.

        Partners are in one or in neighbours: their quotients differ by less than 1, and by at most 1 when they are
        rounded, as 1 is a multiple of whatever doubles are apart there (or times as near as that are equal).
        """
        length = 1.001 * self.length or 1.0
        return f"CAST(floor(greatest(-1e18D, least(1e18D, {time} / {length!r}D))) AS BIGINT)"

    def number(self, column: str, known_as: str) -> str:
        """SQL for a time as a double: whole microseconds, or the number itself. One that may be rounded is refused.

        ``known_as`` is the column's name in the error. NULL, NaN and infinite times stay what they are: they meet none.
        """
        name = quoted(column)
        if self.stamps:
            kind, zone = ("TIMESTAMP_NTZ", "") if self.local else ("TIMESTAMP", " UTC")
            low, high = (f"{kind}'{end}{zone}'" for end in _MOST_MICROSECONDS)
            # whole seconds are doubles in microseconds, too, in any year that Spark knows
            exact = f"{name} BETWEEN {low} AND {high} OR {name} IS NULL OR extract(SECOND FROM {name}) % 1 = 0"
        else:
            others = "double('NaN'), double('Infinity'), double('-Infinity')"
            exact = f"{name} BETWEEN -{LARGEST_TIME} AND {LARGEST_TIME} OR {name} IS NULL OR {name} IN ({others})"
        return f"IF({exact}, {self._double(name)}, {_refused(name, known_as)})"

    def _double(self, name: str) -> str:
        if any(self.uncertain) and self.stamps:
            return f"CAST(unix_micros(CAST({name} AS TIMESTAMP)) AS DOUBLE) / 1e6"
        if self.local:
            since = f"CAST({name} - TIMESTAMP_NTZ'1970-01-01 00:00:00' AS INTERVAL SECOND)"
            return f"CAST(CAST({since} AS DECIMAL(24, 6)) * 1000000 AS DOUBLE)"
        return f"CAST(unix_micros({name}) AS DOUBLE)" if self.stamps else f"CAST({name} AS DOUBLE)"


def time_window(left: DataFrame, right: DataFrame, time: Any, window: Any, max_delay: Any) -> TimeWindow | None:
    """Read the arguments of a join; ``None`` without any."""
    if time is None and window is None:
        if max_delay:
            raise HaplyError("A join has max_delay without a window", hint="give time and window as well")
        return None
    if time is None or window is None:
        raise HaplyError(
            "A join has half a window", expected="time and window", found="time" if window is None else "window"
        )
    names = (time, time) if isinstance(time, str) else tuple(time) if isinstance(time, (tuple, list)) else ()
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise HaplyError("A join needs one time column for each side", expected="a name or two", found=repr(time))
    kinds = set()
    uncertain = _is_uncertain(left, names[0], "left"), _is_uncertain(right, names[1], "right")
    for frame, name, side in ((left, names[0], "left"), (right, names[1], "right")):
        kind = frame.schema[find_column(frame, name, side)].dataType
        if uncertain[0 if side == "left" else 1]:
            continue
        if not isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.NumericType)):
            raise HaplyError(
                f"Column '{name}' of the {side} table is no time",
                expected="a timestamp, a number, or an uncertain value",
                found=kind.simpleString(),
            )
        kinds.add("a number" if isinstance(kind, T.NumericType) else kind.simpleString())
    if len(kinds) > 1:
        raise HaplyError(
            "The two time columns differ in kind",
            expected="two timestamps of one kind or two numbers",
            found=" and ".join(sorted(kinds)),
        )
    is_stamp, in_seconds = bool(kinds) and "a number" not in kinds, any(uncertain)
    lengths = [
        length_of(what, value, is_stamp, in_seconds) for what, value in (("window", window), ("max_delay", max_delay))
    ]
    return TimeWindow(
        find_column(left, names[0], "left"), find_column(right, names[1], "right"), lengths[0], lengths[1], is_stamp,
        kinds == {"timestamp_ntz"}, uncertain,
    )  # fmt: skip


def certain_times(columns: Mapping[str, tuple[DataFrame, str]]) -> TimeWindow:
    """How certain times of one kind, of any number of tables, become numbers."""
    kinds = {name: frame.schema[column].dataType for name, (frame, column) in columns.items()}
    for name, kind in kinds.items():
        if not isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.NumericType)):
            raise HaplyError(
                f"Column '{columns[name][1]}' of stream '{name}' is no certain time",
                expected="a timestamp or a number",
                found=kind.simpleString(),
            )
    known = {"a number" if isinstance(kind, T.NumericType) else kind.simpleString() for kind in kinds.values()}
    if len(known) > 1:
        raise HaplyError(
            "The columns of times differ in kind",
            expected="timestamps of one kind, or numbers",
            found=" and ".join(sorted(known)),
        )
    return TimeWindow("", "", 0.0, 0.0, known != {"a number"}, known == {"timestamp_ntz"})


def _is_uncertain(frame: DataFrame, name: str, side: str) -> bool:
    model = model_of_spark_type(frame.schema[find_column(frame, name, side)].dataType)
    return model is not None and model is not Certain and issubclass(model, OneDimensional)


def _refused(name: str, known_as: str) -> str:
    """SQL that raises the error for a time that is too large."""
    before, after = (
        part.replace("\\", "\\\\").replace("'", "\\'")
        for part in (MARK + str(too_large(known_as, _VALUE))).split(_VALUE)
    )
    return f"raise_error(concat('{before}', CAST({name} AS STRING), '{after}'))"


def length_of(what: str, value: Any, stamps: bool, in_seconds: bool = False) -> float:
    """A length of time: microseconds for timestamps, where plain numbers are seconds; or always in seconds."""
    if isinstance(value, timedelta):
        value = f"{value // timedelta(microseconds=1)} microseconds"
    if isinstance(value, str):
        found = _DURATION.fullmatch(value)
        unit = found and _MICROSECONDS.get(found[2].lower())
        if not found or not unit:
            raise HaplyError(
                f"'{value}' is no {what}", expected="a number, or a duration", hint='as in "10 seconds" or "5 minutes"'
            )
        if not stamps and not in_seconds:
            raise HaplyError(
                f"The {what} is a duration, and the times are numbers", expected="a number", found=f"'{value}'"
            )
        return float(found[1]) * unit / 1e6 if in_seconds else int(Decimal(found[1]) * unit)
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not value >= 0 or math.isinf(value):
        raise HaplyError(f"The {what} is no length of time", expected="a number >= 0, or a duration", found=repr(value))
    # timestamps are whole microseconds: they hold a length if and only if they hold its whole ones
    return int(Decimal(str(value)) * 1_000_000) if stamps and not in_seconds else float(value)
