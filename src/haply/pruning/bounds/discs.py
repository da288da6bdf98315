"""Upper bounds on the probability that a normal point lies in a disc or a ball, cheaper than the exact value."""

from __future__ import annotations

import math

from haply.numerics.jit import bare
from haply.pruning.candidates.gaussian import mass_from_centre

_ROUNDING = 4e-13
"""The error that bound and exact value may have."""


@bare
def _within(half, mean, sd):
    """Return ``P(|X| <= half)`` for a normal in one dimension."""
    if not sd > 0.0:
        return 1.0
    return mass_from_centre((half - mean) / sd) + mass_from_centre((half + mean) / sd)


@bare
def disc_at_most(x, y, xx, xy, yy, square):
    """Upper bound on ``P(|X|**2 <= square)`` for normal ``X`` in the plane with mean ``(x, y)``: that of a square.

    Two sides of the square are across the direction of the mean. Given the place along it, the point across is normal,
    with a mean that moves with the place; its probability to lie within the square is at most that of the nearest mean.
    """
    away, radius = math.sqrt(x * x + y * y), math.sqrt(max(0.0, square))
    u, v = (x / away, y / away) if away > 0.0 else (1.0, 0.0)
    along = u * u * xx + 2.0 * u * v * xy + v * v * yy
    if not along > 0.0:
        return 1.0
    most, across = _within(radius, away, math.sqrt(along)), (xx * yy - xy * xy) / along
    if across > 1e-12 * (xx + yy):  # otherwise it is only rounding
        lean = abs((u * v * (yy - xx) + (u * u - v * v) * xy) / along) * max(0.0, away - radius)
        most *= min(1.0, _within(radius, lean, math.sqrt(across)))
    return min(1.0, most + _ROUNDING)


@bare
def along_at_most(away, along, radius):
    """Upper bound in any dimension: the ball lies between two planes across the direction of the mean.

    ``away`` is the square of the mean's length, ``along`` is ``away`` times the variance along the mean.
    """
    if not away > 0.0 or not along > 0.0:
        return 1.0
    away = math.sqrt(away)
    return min(1.0, _within(radius, away, math.sqrt(along) / away) + _ROUNDING)


@bare
def half_space_at_most(away, along, radius):
    """Upper bound in any dimension, with the arguments of ``along_at_most``: the half-space that holds the ball."""
    if not along > 0.0:
        return 1.0
    away = math.sqrt(away)
    return 0.5 + mass_from_centre((radius - away) * away / math.sqrt(along)) + _ROUNDING
