"""Certain times through all operators: compared exactly, or refused by all of them alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from haply.errors import HaplyError
from haply.joins import PairJoin, PositionJoin, SimilarityJoin, TimingJoin, WindowJoin, join_windows
from haply.joins.operators.times import LARGEST_TIME
from haply.models import Certain, Histogram, Samples
from haply.probability import Difference, Region

NANOSECONDS = 1_700_000_000_000_000_000


def pair(window: float, left: Any, right: Any) -> int:
    join = PairJoin(Difference("x", "x", Region(-1.0, 1.0)), 0.5, window=window)
    return pushed(join, left, right, x=[0.0])


def position(window: float, left: Any, right: Any) -> int:
    return pushed(PositionJoin(1.0, 0.5, window=window), left, right, pos=[[0.0, 0.0]])


def similarity(window: float, left: Any, right: Any) -> int:
    return pushed(SimilarityJoin(1.0, 0.5, window=window, dim=1), left, right, pos=Samples([[0.0]]))


def timing(window: float, left: Any, right: Any) -> int:
    return pushed(TimingJoin(window, 0.5), left, right)


def window_join(window: float, left: Any, right: Any) -> int:
    return pushed(WindowJoin({("left", "right"): window}), left, right, key=[0])


def window_join_of_both(window: float, left: Any, right: Any) -> int:
    join = WindowJoin({("left", "right"): window})
    return sum(
        len(join.push_many({"stream": [name], "id": [0], "time": time, "key": [0]}))
        for name, time in (("left", left), ("right", right))
    )


def whole_streams(window: float, left: Any, right: Any) -> int:
    rows = {name: {"id": [0], "time": time, "key": [0]} for name, time in (("left", left), ("right", right))}
    return len(join_windows({("left", "right"): window}, rows))


def pushed(join: Any, left: Any, right: Any, **columns: Any) -> int:
    return sum(
        len(join.push(side, {"id": [0], "time": time, **columns}).probability)
        for side, time in (("left", left), ("right", right))
    )


OPERATORS = [pair, position, similarity, timing, window_join, window_join_of_both, whole_streams]
every_operator = pytest.mark.parametrize("matches", OPERATORS)


@every_operator
@pytest.mark.parametrize(
    ("left", "right", "apart"),
    [
        (np.array([LARGEST_TIME]), np.array([LARGEST_TIME - 1]), 1),
        (np.array([-LARGEST_TIME]), np.array([1 - LARGEST_TIME]), 1),
        (np.array([LARGEST_TIME], np.uint64), np.array([LARGEST_TIME - 3], np.uint64), 3),
        (np.array([-7], np.int8), np.array([5], np.int32), 12),
        (np.array([float(LARGEST_TIME)]), [LARGEST_TIME - 2], 2),
        ([1_700_000_000_000_000], [1_700_000_000_000_010], 10),  # microseconds of today
    ],
)
def test_times_up_to_the_limit_are_compared_exactly(
    matches: Callable[..., int], left: Any, right: Any, apart: int
) -> None:
    assert matches(apart, left, right) == matches(apart, right, left) == 1
    assert matches(apart - 1, left, right) == matches(apart - 1, right, left) == 0


@every_operator
@pytest.mark.parametrize(
    "time",
    [
        [NANOSECONDS],
        [NANOSECONDS + 100],
        np.array([LARGEST_TIME + 1]),
        np.array([-LARGEST_TIME - 1]),
        np.array([np.iinfo(np.int64).min]),
        np.array([2**64 - 1], np.uint64),
        [2.0**53 + 2.0],
        [-1e300],
        np.array([1e30], np.float32),
    ],
)
def test_larger_times_are_refused_by_all(matches: Callable[..., int], time: Any) -> None:
    with pytest.raises(
        HaplyError, match=r"'time' is too large.*2\*\*53.*Found .*subtract an epoch.*timestamp"
    ) as error:
        matches(1, time, time)
    assert f"Found {np.asarray(time)[0]!s}." in str(error.value)
    with pytest.raises(HaplyError, match="too large"):
        matches(1, [0], time)


@every_operator
@pytest.mark.parametrize(
    ("time", "text"),
    [
        ([math.nan], "is NaN or infinite"),
        ([-math.inf], "is NaN or infinite"),
        (["noon"], "not numbers.*<U4"),
        (np.array(["2026-01-01"], "datetime64[ns]"), "not numbers.*datetime64.*Hint: count from an epoch"),
        ([10**30], "not numbers.*object"),
    ],
)
def test_what_is_no_time_is_refused_by_all(matches: Callable[..., int], time: Any, text: str) -> None:
    with pytest.raises(HaplyError, match=text):
        matches(1, time, time)


@pytest.mark.parametrize(
    "model", [Certain([NANOSECONDS]), Samples([[0.0, NANOSECONDS]]), Histogram([[0.0, NANOSECONDS]], [[1.0]])]
)
def test_uncertain_times_end_at_the_limit_too(model: Any) -> None:
    with pytest.raises(HaplyError, match="too large"):
        timing(1, model, [0.0])
