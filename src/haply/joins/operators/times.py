"""Check that times are numbers that operators can compare without rounding; other times are refused, also on Spark."""

from __future__ import annotations

from typing import Any

import numpy as np

from haply.errors import HaplyError

LARGEST_TIME = 2**53
"""Times are compared as doubles: these hold every whole number up to here, and may round larger ones."""


def exact_times(times: Any) -> np.ndarray:
    """Return times as doubles, none of them rounded; refuse times that are not finite numbers up to ``LARGEST_TIME``.

    The limit applies to floats as well: beyond it they have no digits for single units, so they were probably rounded
    before they came here.
    """
    given = np.atleast_1d(np.asarray(times))
    if given.dtype.kind not in "iuf":
        raise HaplyError(
            "Times are not numbers",
            expected="integers or floats",
            found=str(given.dtype),
            hint="count from an epoch, as (times - epoch) / np.timedelta64(1, 'us')" if given.dtype.kind == "M" else "",
        )
    known = (given >= -LARGEST_TIME) & (given <= LARGEST_TIME)
    if not known.all():
        wrong = given[~known][0]
        if np.isfinite(wrong):
            raise too_large("time", str(wrong))
        raise HaplyError("A time in 'time' is NaN or infinite", expected="finite numbers", found=str(wrong))
    return given.astype(np.float64)


def too_large(column: str, found: str) -> HaplyError:
    """Make the error for a time that doubles may not hold exactly."""
    return HaplyError(
        f"A time in '{column}' is too large to be exact",
        expected=f"times from -{LARGEST_TIME} to {LARGEST_TIME} (2**53), where doubles hold every whole number",
        found=found,
        hint="subtract an epoch, divide nanoseconds to microseconds, or on Spark use a timestamp column",
    )
