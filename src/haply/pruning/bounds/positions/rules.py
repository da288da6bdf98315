"""The condition on a distance in numbers, and the rules that decide pairs by bounds."""

from __future__ import annotations

import math
from typing import NamedTuple

from haply.numerics.normal import normal_quantile
from haply.pruning.cascade import Counters
from haply.pruning.threshold import Negligible, Threshold

REACH, SLAB, SPREAD, INSIDE = 1, 2, 3, 4
POSITION_RULES = {REACH: "reach", SLAB: "slab", SPREAD: "spread", INSIDE: "inside"}
"""Names of the rules, by their code: 0 is the exact value."""
REJECTING = tuple(POSITION_RULES[rule] for rule in (REACH, SLAB, SPREAD))
ACCEPTING = (POSITION_RULES[INSIDE],)
SLACK = 1e-13
"""Rounding, as a share of the lengths that are compared."""
CANDIDATES, EVALUATED, LEFT_OUT, COUNTS = 5, 6, 7, 8
"""Places of the counts behind those of the rules, and how many places there are."""


def no_counts() -> Counters:
    """Return counters of these rules."""
    return Counters(REJECTING, ACCEPTING)


class Limits(NamedTuple):
    """The condition in numbers: see ``limits``."""

    radius: float
    square: float
    out: float
    """How many standard deviations beyond the radius a mean may be; negative if it must be this far inside."""
    width: float
    """The largest variance along any line with which a pair may match."""
    area: float
    """The largest determinant in two dimensions with which a pair may match."""
    inside: float
    """Squared standard deviations to the edge that accept a pair; if probabilities are wanted, that make it sure."""
    reject_below: float
    accept_from: float
    keep_from: float
    exact: bool
    all_near: bool = False
    """Whether all pairs whose means are near enough are kept, without a probability."""


def limits_of_deviations(deviations: float) -> Limits:
    """Return limits that keep all pairs whose means are at most ``deviations`` standard deviations apart."""
    return Limits(0.0, 0.0, deviations, math.inf, math.inf, math.inf, 0.0, 1.0, 0.0, False, True)


def limits(within: float, threshold: Threshold, exact: bool, dim: int) -> Limits:
    """Return the limits that a threshold sets for positions of a dimension."""
    # negligible pairs may be kept or not
    share = threshold.reject_below - (0.0 if isinstance(threshold, Negligible) else 1e-14)
    accept = threshold.accept_from
    out = width = area = math.inf
    if share > 0.0:
        out = -float(normal_quantile(share)) + 1e-12
    if share > 1e-15:  # below this no variance is too large
        width = (within / float(normal_quantile(0.5 * (1.0 + share)))) ** 2 * (1.0 + 1e-9)
        area = (0.5 * within * within / -math.log1p(-share)) ** 2 * (1.0 + 1e-9)
    sure = _chi_square_above(37.0, dim)
    asked = sure if exact or accept + 1e-14 >= 1.0 else min(sure, _chi_square_above(-math.log1p(-accept - 1e-14), dim))
    return Limits(
        within,
        within * within,
        out,
        width,
        area,
        asked,
        threshold.reject_below,
        accept,
        threshold.keeps_from(),
        exact,
    )


def _chi_square_above(minus_log: float, dim: int) -> float:
    """Return a number that a chi-square exceeds with probability ``exp(-minus_log)`` at most: exact in two dimensions.

    In more dimensions it is that of Laurent and Massart (2000), lemma 1.
    """
    if dim <= 2:
        return 2.0 * minus_log
    return dim + 2.0 * math.sqrt(dim * minus_log) + 2.0 * minus_log
