"""Row intervals: one interval per row, such that two rows with disjoint intervals are decided without a test.

For a condition on ``left - right`` each row gets ``[start, end]`` on the axis of the right values. If a left interval
lies wholly above a right one, or wholly below it, this alone rejects or accepts the pair; only pairs that overlap are
candidates. The ends are quantiles: if the verdict is a rejection they cut the *core level* from the value, if it is an
acceptance the *sure level* (see ``Threshold``).

=================== ============== ==============
condition           left is above  left is below
=================== ============== ==============
inside an interval  reject         reject
``>``               accept         reject
``<``               reject         accept
outside             accept         accept
=================== ============== ==============

A core interval may have ``start > end`` (high thresholds): this is correct, and candidates are still the pairs with
``left.start <= right.end`` and ``right.start <= left.end``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from haply.models import Certain, Gaussian, Model, OneDimensional, Uniform
from haply.numerics.rows import moved, moved_line
from haply.probability.region import Region
from haply.pruning.threshold import Pairing, Threshold

POSITION_SLACK = 8 * float(np.finfo(np.float64).eps)
"""Relative widening of the ends, so that rounding of a shifted position never loses a tie."""


@dataclass(frozen=True)
class Intervals:
    """``start`` and ``end`` of each row's interval, and which rows are hopeless: they match nothing."""

    start: np.ndarray
    end: np.ndarray
    hopeless: np.ndarray

    def take(self, rows: np.ndarray) -> Intervals:
        """Return the given rows, in the given order."""
        return Intervals(self.start[rows], self.end[rows], self.hopeless[rows])

    @property
    def begins(self) -> np.ndarray:
        """Return where rows begin: at the lower end, which may be ``end`` for a core interval."""
        return np.minimum(self.start, self.end)


def accepts_above(region: Region) -> bool:
    """Tell whether pairs are accepted whose left interval lies above the right one."""
    return region.outside or math.isinf(region.high)


def accepts_below(region: Region) -> bool:
    """Tell whether pairs are accepted whose left interval lies below the right one."""
    return region.outside or math.isinf(region.low)


@dataclass(frozen=True)
class Ends:
    """How one side's interval is cut: the tails taken off below and above, and the shifts onto the right axis."""

    low_level: float
    high_level: float
    low_shift: float
    high_shift: float


def pairing(left: type[Model] | None, right: type[Model] | None) -> Pairing:
    """Return how much two kinds of values allow to cut."""
    kinds = {left, right}
    if Certain in kinds:
        return Pairing.ONE_CERTAIN
    if kinds == {Gaussian}:
        return Pairing.GAUSSIAN
    return Pairing.UNIFORM if kinds == {Uniform} else Pairing.ANY


def interval_ends(
    is_left: bool, region: Region, threshold: Threshold, exact: bool, pairing: Pairing = Pairing.ANY
) -> Ends:
    """Return how intervals are cut, by the verdicts above and below.

    A left row is above others by its lower end and below them by its upper end, a right row the other way round.
    """
    core, sure = threshold.core_level(pairing), threshold.sure_level(exact, pairing)
    if region.outside:
        sure = min(sure, 0.49)  # less than half from each end keeps start <= end: no pair is both above and below
    above, below = (sure if accepts_above(region) else core), (sure if accepts_below(region) else core)
    if not is_left:
        return Ends(below, above, 0.0, 0.0)
    low_shift = region.high if math.isfinite(region.high) else region.low
    high_shift = region.low if math.isfinite(region.low) else region.high
    return Ends(above, below, low_shift, high_shift)


def row_intervals(
    model: OneDimensional,
    is_left: bool,
    region: Region,
    threshold: Threshold,
    exact: bool,
    pairing: Pairing = Pairing.ANY,
) -> Intervals:
    """Return the intervals of one side's rows; both sides must be made with the same ``pairing``."""
    ends = interval_ends(is_left, region, threshold, exact, pairing)
    line = model.line(ends.low_level, ends.high_level)
    if line is not None:
        start, end = moved_line(line, ends.low_shift, ends.high_shift, POSITION_SLACK)
    else:
        start = moved(model.quantile_low(ends.low_level), ends.low_shift, -POSITION_SLACK)
        end = moved(model.quantile_high(ends.high_level), ends.high_shift, POSITION_SLACK)
    if region.outside or region.one_sided or threshold.reject_below <= 0.0:
        hopeless = np.zeros(len(model), dtype=bool)
    else:
        hopeless = model.spread_out(region.width, threshold.reject_below - 1e-14)
    return Intervals(start, end, hopeless)
