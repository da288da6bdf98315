"""Row intervals: one interval per row, such that two rows whose intervals are disjoint are decided unseen.

For a condition on ``left - right`` each row gets ``[start, end]`` on the axis of the right values. If a left interval
lies wholly above a right one, or wholly below it, the pair is rejected or accepted by that alone; only pairs that
overlap are candidates. The ends are quantiles: where the verdict is a rejection they cut the *core level* from the
value, where it is an acceptance the *sure level* (see ``Threshold``).

=================== ============== ==============
condition           left is above  left is below
=================== ============== ==============
inside an interval  reject         reject
``>``               accept         reject
``<``               reject         accept
outside             accept         accept
=================== ============== ==============

A core interval may have ``start > end`` (thresholds above 3/4): that is right, and candidates are those pairs with
``left.start <= right.end`` and ``right.start <= left.end`` all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from haply.models import OneDimensional
from haply.probability.region import Region
from haply.pruning.threshold import Threshold

_POSITION_SLACK = 8 * np.finfo(np.float64).eps
"""Relative widening of the ends, so that rounding of a shifted position never loses a tie."""


@dataclass(frozen=True)
class Intervals:
    """``start`` and ``end`` per row, and the rows that can match nothing."""

    start: np.ndarray
    end: np.ndarray
    hopeless: np.ndarray


def accepts_above(region: Region) -> bool:
    """Whether pairs are accepted whose left interval lies above the right one."""
    return region.outside or math.isinf(region.high)


def accepts_below(region: Region) -> bool:
    """Whether pairs are accepted whose left interval lies below the right one."""
    return region.outside or math.isinf(region.low)


def row_intervals(model: OneDimensional, is_left: bool, region: Region, threshold: Threshold, exact: bool) -> Intervals:
    """The intervals of one side's rows."""
    core, sure = threshold.core_level, threshold.sure_level(exact)
    above, below = (sure if accepts_above(region) else core), (sure if accepts_below(region) else core)
    # A left row is above others through its lower end and below them through its upper end; a right row the other way.
    low = model.quantile_low(above if is_left else below)
    high = model.quantile_high(below if is_left else above)
    if is_left:
        low_shift = region.high if math.isfinite(region.high) else region.low
        high_shift = region.low if math.isfinite(region.low) else region.high
        start, end = low - low_shift, high - high_shift
        start = start - _POSITION_SLACK * (np.abs(low) + abs(low_shift))
        end = end + _POSITION_SLACK * (np.abs(high) + abs(high_shift))
    else:
        start, end = low - _POSITION_SLACK * np.abs(low), high + _POSITION_SLACK * np.abs(high)
    if region.outside or region.one_sided:
        hopeless = np.zeros(len(model), dtype=bool)
    else:
        hopeless = model.concentration(region.width) <= threshold.reject_below - 1e-14
    return Intervals(start, end, hopeless)
