"""Sets of numbers for many rows at once: unions of closed intervals, with an end for all rows or for each.

An open end is the next double inside: closed intervals of doubles say the same, and need no cases of their own. Only
where what lies in them has no atoms is an end taken as closed, since the next double may be a good part of an error
away: a time of this century in seconds, by 2e-7.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from haply.numerics.scale import powers_of

Ends = list[tuple[np.ndarray, np.ndarray]]
"""Closed intervals that do not overlap, each with an end for all rows or for each; empty where low > high."""


def above(end: np.ndarray, closed: Any) -> np.ndarray:
    """Return a lower end as a closed one."""
    return np.where(closed | np.isinf(end), end, np.nextafter(end, math.inf))


def below(end: np.ndarray, closed: Any) -> np.ndarray:
    """Return an upper end as a closed one."""
    return np.where(closed | np.isinf(end), end, np.nextafter(end, -math.inf))


def disjoint(intervals: Ends, smooth: Any = False) -> Ends:
    """Return the same set in intervals that do not overlap; without atoms they may share ends."""
    if len(intervals) < 2:
        return intervals
    shape = np.broadcast_shapes(*(end.shape for interval in intervals for end in interval))
    lows = np.array([np.broadcast_to(low, shape) for low, _ in intervals])
    highs = np.array([np.broadcast_to(high, shape) for _, high in intervals])
    empty = lows > highs
    lows, highs = np.where(empty, math.inf, lows), np.where(empty, -math.inf, highs)
    order = np.argsort(lows, axis=0, kind="stable")
    lows, highs = np.take_along_axis(lows, order, 0), np.take_along_axis(highs, order, 0)
    reached = np.maximum.accumulate(highs, axis=0)
    beside = np.where(smooth | np.isinf(reached[:-1]), reached[:-1], np.nextafter(reached[:-1], math.inf))
    lows[1:] = np.maximum(lows[1:], beside)
    highs = np.where(lows == math.inf, -math.inf, highs)  # after one without end there is nothing
    return list(zip(lows, highs, strict=True))


def both(one: Ends, other: Ends) -> Ends:
    """Return the intersection of two sets."""
    return [(np.maximum(a, c), np.minimum(b, d)) for a, b in one for c, d in other]


def reachable(low: np.ndarray, high: np.ndarray, curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move an end that a sum of squares never passes to infinity: no tail is then computed for it."""
    if (curves >= 0.0).all():
        return np.where(low <= 0.0, -math.inf, low), high
    if (curves <= 0.0).all():
        return low, np.where(high >= 0.0, math.inf, high)
    return low, high


def divided(
    slope: np.ndarray, low: np.ndarray, high: np.ndarray, low_closed: Any, high_closed: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Solve ``low <= slope x <= high`` for x."""
    rising = slope > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = low / slope, high / slope
    first = above(np.where(rising, ends[0], ends[1]), np.where(rising, low_closed, high_closed))
    last = below(np.where(rising, ends[1], ends[0]), np.where(rising, high_closed, low_closed))
    holds = (above(low, low_closed) <= 0.0) & (below(high, high_closed) >= 0.0)
    flat = slope == 0.0  # all or nothing
    return (
        np.where(flat, np.where(holds, -math.inf, math.inf), first),
        np.where(flat, np.where(holds, math.inf, -math.inf), last),
    )


def roots(
    curve: np.ndarray, slope: np.ndarray, low: np.ndarray, high: np.ndarray, low_closed: Any, high_closed: Any,
    centre: float = 0.0,
) -> Ends:  # fmt: skip
    """Solve ``low <= curve x^2 + slope x <= high`` for x: an interval minus a smaller one around the same middle.

    The ends are those of ``x + centre``: an open end is the next double only after the centre is added.
    """
    up = curve > 0.0
    size = np.where(curve == 0.0, 1.0, np.abs(curve))
    # turned where the parabola opens downwards; for each end the half width of where it is below, or -1
    bottom, top = np.where(up, low, -high) / size, np.where(up, high, -low) / size
    middle = -0.5 * np.where(up, slope, -slope) / size
    bottom_closed, top_closed = np.where(up, low_closed, high_closed), np.where(up, high_closed, low_closed)

    power = powers_of(np.abs(middle))

    def half(level: np.ndarray) -> np.ndarray:
        if power is None:
            inside = level + middle * middle
            return np.where(inside >= 0.0, np.sqrt(np.maximum(inside, 0.0)), -1.0)
        with np.errstate(over="ignore", under="ignore"):
            inside = np.ldexp(level, -2 * power) + np.ldexp(middle, -power) ** 2
            return np.where(inside >= 0.0, np.ldexp(np.sqrt(np.maximum(inside, 0.0)), power), -1.0)

    outer, inner = half(top), half(bottom)
    nothing = outer < 0.0
    all_in = (inner < 0.0) | (bottom == -math.inf)  # never too low
    middle = middle + centre
    outer_low, outer_high = above(middle - outer, top_closed), below(middle + outer, top_closed)
    inner_low, inner_high = below(middle - inner, bottom_closed), above(middle + inner, bottom_closed)
    left = (
        np.where(nothing, math.inf, outer_low),
        np.where(nothing, -math.inf, np.where(all_in, outer_high, inner_low)),
    )
    right = (np.where(nothing | all_in, math.inf, inner_high), np.where(nothing | all_in, -math.inf, outer_high))
    if not (curve == 0.0).any():
        return [left, right]
    flat = tuple(end + centre for end in divided(slope, low, high, low_closed, high_closed))
    return [
        tuple(np.where(curve == 0.0, one, other) for one, other in zip(flat, left, strict=True)),  # type: ignore[list-item]
        (np.where(curve == 0.0, math.inf, right[0]), np.where(curve == 0.0, -math.inf, right[1])),
    ]
