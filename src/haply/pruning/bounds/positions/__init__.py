"""Find pairs of uncertain positions that are likely near: Gaussians, mixtures of them, and points, in any dimension.

A ball is convex, so a Gaussian has at least half of its mass outside unless its mean is inside; and a share below one
half only reaches as far out as that share's quantile, times its largest standard deviation. This limits how far apart
the centres of a pair may be. Rows are sorted by cells of that width. The neighbours of a cell are then a few runs of
the other side's sorted rows, and in a walk through one side every run only moves forward: this needs no table and no
search.

Pairs near enough are tested by bounds of constant cost, and computed if these leave them open.
"""

from __future__ import annotations

from haply.pruning.bounds.positions.line import intervals_on_line
from haply.pruning.bounds.positions.rules import (
    INSIDE,
    POSITION_RULES,
    REJECTING,
    SLAB,
    SPREAD,
    limits,
    limits_of_deviations,
    no_counts,
)
from haply.pruning.bounds.positions.search import near_pairs
from haply.pruning.bounds.positions.sides import PositionSide

__all__ = [
    "INSIDE",
    "POSITION_RULES",
    "REJECTING",
    "SLAB",
    "SPREAD",
    "PositionSide",
    "intervals_on_line",
    "limits",
    "limits_of_deviations",
    "near_pairs",
    "no_counts",
]
