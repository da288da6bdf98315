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
import pyarrow as pa

from haply.errors import HaplyError
from haply.planning.frames import Field, Frame, Wording, field_of, find_column, is_one_dimensional

_MICROSECONDS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
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
    """Whether timestamps have no time zone: they must not be read in that of the session."""
    uncertain: tuple[bool, bool] = (False, False)
    """Which side's times are uncertain values."""

    def column(self, is_left: bool) -> str:
        """Return the column of times of a side."""
        return self.left if is_left else self.right


def time_window(
    left: Frame, right: Frame, time: Any, window: Any, max_delay: Any, wording: Wording | None = None
) -> TimeWindow | None:
    """Read the arguments of a join; ``None`` without any."""
    if time is None and window is None:
        if max_delay:
            raise HaplyError("A join has max_delay without a window", hint="give time and window as well")
        return None
    if time is None or window is None:
        raise HaplyError(
            "A join has only one of time and window",
            expected="time and window",
            found="time" if window is None else "window",
        )
    names = (time, time) if isinstance(time, str) else tuple(time) if isinstance(time, (tuple, list)) else ()
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise HaplyError("A join needs one time column for each side", expected="a name or two", found=repr(time))
    sides = (left, find_column(left, names[0], "left"), "left"), (right, find_column(right, names[1], "right"), "right")
    wording = wording or Wording()
    uncertain = [is_one_dimensional(field_of(frame, name).uncertain_model) for frame, name, _ in sides]
    certain = {
        wording.table(side): field_of(frame, name)
        for (frame, name, side), is_uncertain in zip(sides, uncertain, strict=True)
        if not is_uncertain
    }
    kinds = _kinds_of_times(certain, "a timestamp, a number, or an uncertain value")
    is_stamp, in_seconds = bool(kinds) and "a number" not in kinds, any(uncertain)
    lengths = [
        length_of(what, value, is_stamp, in_seconds) for what, value in (("window", window), ("max_delay", max_delay))
    ]
    return TimeWindow(
        sides[0][1], sides[1][1], lengths[0], lengths[1], is_stamp, kinds == {"timestamp_ntz"},
        (uncertain[0], uncertain[1]),
    )  # fmt: skip


def certain_times(columns: Mapping[str, tuple[Frame, str]]) -> TimeWindow:
    """Return how certain times of one kind, of any number of tables, become numbers."""
    fields = {f"stream '{name}'": field_of(frame, column) for name, (frame, column) in columns.items()}
    kinds = _kinds_of_times(fields, "a timestamp or a number")
    return TimeWindow("", "", 0.0, 0.0, kinds != {"a number"}, kinds == {"timestamp_ntz"})


def _kinds_of_times(fields: Mapping[str, Field], expected: str) -> set[str]:
    """Return the kinds of certain times, by where they are from; refuse values that are not times, and mixed kinds."""
    kinds = set()
    for table, field in fields.items():
        kind = _kind_of_time(field)
        if kind is None:
            raise HaplyError(f"Column '{field.name}' of {table} is not a time", expected=expected, found=field.text)
        kinds.add(kind)
    if len(kinds) > 1:
        raise HaplyError(
            "The columns of times differ in kind",
            expected="timestamps of one kind, or numbers",
            found=" and ".join(sorted(kinds)),
        )
    return kinds


def _kind_of_time(field: Field) -> str | None:
    """Return what a column of times holds; None if it holds no certain times."""
    if field.is_number:
        return "a number"
    if field.arrow is not None and pa.types.is_timestamp(field.arrow):
        return "timestamp_ntz" if field.arrow.tz is None else "timestamp"
    return None


def length_of(what: str, value: Any, stamps: bool, in_seconds: bool = False) -> float:
    """Read a length of time: microseconds for timestamps, where plain numbers are seconds; or always in seconds."""
    if isinstance(value, timedelta):
        value = f"{value // timedelta(microseconds=1)} microseconds"
    if isinstance(value, str):
        found = _DURATION.fullmatch(value)
        unit = found and _MICROSECONDS.get(found[2].lower())
        if not found or not unit:
            raise HaplyError(
                f"'{value}' is not a {what}",
                expected="a number, or a duration",
                hint='as in "10 seconds" or "5 minutes"',
            )
        if not stamps and not in_seconds:
            raise HaplyError(
                f"The {what} is a duration, and the times are numbers", expected="a number", found=f"'{value}'"
            )
        return float(found[1]) * unit / 1e6 if in_seconds else int(Decimal(found[1]) * unit)
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not value >= 0 or math.isinf(value):
        raise HaplyError(f"The {what} is no length of time", expected="a number >= 0, or a duration", found=repr(value))
    # timestamps are whole microseconds, so a fraction of a microsecond makes no difference
    return int(Decimal(str(value)) * 1_000_000) if stamps and not in_seconds else float(value)
