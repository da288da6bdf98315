"""Certain times as numbers, in Spark SQL."""

from __future__ import annotations

from haply.engines.spark.runtime.failures import MARK
from haply.joins.cells.rows import TIME
from haply.joins.operators.times import LARGEST_TIME, too_large
from haply.joins.slots import sql_slot_length
from haply.planning.frames import quoted
from haply.planning.times import TimeWindow

_MOST_MICROSECONDS = ("1684-07-28 00:12:25.259008", "2255-06-05 23:47:34.740992")
"""``LARGEST_TIME`` microseconds before and after 1970."""
_VALUE = "\0"

HAS_TIME = f"coalesce(abs({TIME}) < CAST('Infinity' AS DOUBLE), false)"
"""SQL for whether the time of a row is neither null nor NaN, nor infinite."""


def time_slot(window: TimeWindow, time: str) -> str:
    """SQL for the slot of time that a number is in (see ``haply.joins.slots``)."""
    return f"CAST(floor(greatest(-1e18D, least(1e18D, {time} / {sql_slot_length(window.length)!r}D))) AS BIGINT)"


def time_number(window: TimeWindow, column: str, known_as: str) -> str:
    """SQL for a time as a double: whole microseconds, or the number itself. One that may be rounded is refused.

    ``known_as`` is the column's name in the error. NULL, NaN and infinite times are unchanged: they match nothing.
    """
    name = quoted(column)
    if window.stamps:
        kind, zone = ("TIMESTAMP_NTZ", "") if window.local else ("TIMESTAMP", " UTC")
        low, high = (f"{kind}'{end}{zone}'" for end in _MOST_MICROSECONDS)
        # whole seconds are exact doubles in microseconds, in any year of Spark
        exact = f"{name} BETWEEN {low} AND {high} OR {name} IS NULL OR extract(SECOND FROM {name}) % 1 = 0"
    else:
        others = "double('NaN'), double('Infinity'), double('-Infinity')"
        exact = f"{name} BETWEEN -{LARGEST_TIME} AND {LARGEST_TIME} OR {name} IS NULL OR {name} IN ({others})"
    return f"IF({exact}, {_double(window, name)}, {_refused(name, known_as)})"


def _double(window: TimeWindow, name: str) -> str:
    if any(window.uncertain) and window.stamps:
        return f"CAST(unix_micros(CAST({name} AS TIMESTAMP)) AS DOUBLE) / 1e6"
    if window.local:
        since = f"CAST({name} - TIMESTAMP_NTZ'1970-01-01 00:00:00' AS INTERVAL SECOND)"
        return f"CAST(CAST({since} AS DECIMAL(24, 6)) * 1000000 AS DOUBLE)"
    return f"CAST(unix_micros({name}) AS DOUBLE)" if window.stamps else f"CAST({name} AS DOUBLE)"


def _refused(name: str, known_as: str) -> str:
    """SQL that raises the error for a time that is too large."""
    before, after = (
        part.replace("\\", "\\\\").replace("'", "\\'")
        for part in (MARK + str(too_large(known_as, _VALUE))).split(_VALUE)
    )
    return f"raise_error(concat('{before}', CAST({name} AS STRING), '{after}'))"
