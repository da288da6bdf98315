"""Gaussian pairs in one pass: sweep, curve and exact value together, for conditions of a bounded interval.

This is the sweep of ``sweep.py``, the table of ``curve.py`` and the kernel of ``probability`` in one loop, because with
Gaussians the time between the three would be most of the time spent. Rows come sorted by the lower ends of their
intervals; a pair is found from the row that begins first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import kernel
from haply.numerics.normal import SQRT_2PI
from haply.probability.kernels import normal_region
from haply.probability.region import Region
from haply.pruning.curve import curve_table
from haply.pruning.intervals import Intervals
from haply.pruning.threshold import TOLERANCE, Threshold

_STEP = 1.0 / 128.0
_FARTHEST = 8.5  # beyond it half a normal is 0.5 to the last digit
_CAPACITY = 1 << 22


def _half_masses() -> tuple[np.ndarray, np.ndarray]:
    grid = np.arange(int(_FARTHEST / _STEP) + 2) * _STEP
    mass = np.array([0.5 * math.erf(z / math.sqrt(2.0)) for z in grid])
    return mass, np.exp(-0.5 * grid * grid) / SQRT_2PI


_MASS, _DENSITY = _half_masses()


@kernel
def mass_from_centre(z):
    """``P(0 < Z < z)``, negative for negative z: five terms of Taylor's series from the nearest grid point.

    The sixth is below 2e-17, so the result is as exact as the error function, at a quarter of its price.
    """
    size = abs(z)
    if size >= _FARTHEST:
        value = 0.5
    else:
        k = int(size * 128.0 + 0.5)
        z0 = k * _STEP
        d = size - z0
        square = z0 * z0
        series = (square * (square - 6.0) + 3.0) * d * (1.0 / 120.0) - z0 * (square - 3.0) * (1.0 / 24.0)
        series = series * d + (square - 1.0) * (1.0 / 6.0)
        series = (series * d - 0.5 * z0) * d + 1.0
        value = _MASS[k] + _DENSITY[k] * d * series
    return value if z >= 0.0 else -value


class SortedRows(NamedTuple):
    """One side in the order of its intervals' lower ends."""

    begin: np.ndarray
    until: np.ndarray
    start: np.ndarray
    end: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    row: np.ndarray


def sorted_rows(mean: np.ndarray, sd: np.ndarray, intervals: Intervals) -> SortedRows:
    """Put one side in order."""
    begin = np.minimum(intervals.start, intervals.end)
    order = np.argsort(begin)
    until = np.maximum(intervals.start, intervals.end)
    spread = sd[order]
    return SortedRows(
        begin[order],
        until[order],
        intervals.start[order],
        intervals.end[order],
        mean[order],
        spread * spread,
        order.astype(np.int32),
    )


class Question(NamedTuple):
    """The condition, the threshold and the curve, as numbers."""

    low: float
    high: float
    low_closed: bool
    high_closed: bool
    centre: float
    reach: float
    beyond: bool
    keep_from: float
    strict: bool
    may_accept: bool
    slack: float


@kernel
def _scan(own, other, sign, from_position, i, j, first, question, inner, outer, n, out_own, out_other, out_p):
    """Go on at own row ``i`` and other row ``j`` until all is done or the output is full.

    ``sign`` is 1 when own rows are the left ones: they then take other rows that begin where they do, too. Returns how
    full the output is, where it stopped, and how many pairs were candidates, rejected, accepted and evaluated.
    """
    capacity = len(out_own)
    scale = len(inner) / question.reach
    widest = question.reach * (1.0 + 1e-9) if question.beyond else math.inf
    candidates, rejected, accepted, evaluated = 0, 0, 0, 0
    while i < len(own.begin):
        if j < 0:  # a new own row: the first other row that begins at (or, for right rows, after) it
            begin = max(own.begin[i], from_position)
            while first < len(other.begin) and (
                other.begin[first] < begin or (sign < 0 and other.begin[first] <= own.begin[i])
            ):
                first += 1
            j = first
        mean, variance, row = own.mean[i], own.variance[i], own.row[i]
        start, end, until = own.start[i], own.end[i], own.until[i]
        while j < len(other.begin) and other.begin[j] <= until:
            if start <= other.end[j] and other.start[j] <= end:
                if n == capacity:
                    return n, i, j, first, candidates, rejected, accepted, evaluated
                candidates += 1
                difference = sign * (mean - other.mean[j])
                distance = abs(difference - question.centre)
                sd = math.sqrt(variance + other.variance[j])
                cell = int(sd * scale)
                if cell < len(inner):
                    reject = distance - question.slack > outer[cell] and sd > 0.0
                    accept = question.may_accept and distance + question.slack <= inner[cell] and sd > 0.0
                else:
                    reject, accept = sd > widest, False
                if reject:
                    rejected += 1
                elif accept:
                    accepted += 1
                    out_own[n], out_other[n], out_p[n] = row, other.row[j], math.nan
                    n += 1
                else:
                    evaluated += 1
                    p = -1.0
                    if sd > 0.0:
                        finer = 1.0 / sd
                        below, above = (question.low - difference) * finer, (question.high - difference) * finer
                        if below < -0.5 and above > 0.5:
                            p = mass_from_centre(above) - mass_from_centre(below)
                    if p < 0.0:
                        p = normal_region(
                            difference, sd, question.low, question.high,
                            question.low_closed, question.high_closed, False,
                        )  # fmt: skip
                    if p > question.keep_from if question.strict else (p >= question.keep_from and p > 0.0):
                        out_own[n], out_other[n], out_p[n] = row, other.row[j], p
                        n += 1
            j += 1
        i += 1
        j = -1
    return n, i, j, first, candidates, rejected, accepted, evaluated


class GaussianMatches(NamedTuple):
    """Kept pairs as row numbers, their probabilities, and what became of the candidates."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    candidates: int
    rejected: int
    accepted: int
    evaluated: int


def fits(region: Region, threshold: Threshold) -> bool:
    """Whether the one pass answers this condition: an interval of positive length, with a threshold."""
    return not (region.outside or region.one_sided) and region.width > 0.0 and threshold.value is not None


def match_gaussians(
    left: SortedRows, right: SortedRows, from_position: float, region: Region, threshold: Threshold, exact: bool
) -> GaussianMatches:
    """All kept pairs of two sorted sides whose reference point is at or above ``from_position``."""
    assert threshold.value is not None
    reach, inner, outer = curve_table(0.5 * region.width, threshold.reject_below, threshold.accept_from)
    question = Question(
        float(region.low), float(region.high), region.low_closed, region.high_closed,
        0.5 * (region.low + region.high), reach, threshold.reject_below > 1e-6,
        threshold.value + TOLERANCE if threshold.strict else threshold.value - TOLERANCE, threshold.strict, not exact,
        1e-15 * (_largest(left.mean) + _largest(right.mean)),
    )  # fmt: skip
    counts = np.zeros(4, dtype=np.int64)
    parts: list[tuple[np.ndarray, ...]] = []
    output, n = _room(), 0
    for own, other, sign in ((left, right, 1.0), (right, left, -1.0)):
        i, j, first = 0, -1, 0
        while i < len(own.begin):
            if n == _CAPACITY:
                parts.append(output)
                output, n = _room(), 0
            mine, theirs = (output[0], output[1]) if sign > 0 else (output[1], output[0])
            n, i, j, first, *done = _scan(
                own, other, sign, from_position, i, j, first, question, inner, outer, n, mine, theirs, output[2]
            )
            counts += done
    parts.append(tuple(column[:n] for column in output))
    found = parts[0] if len(parts) == 1 else tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return GaussianMatches(found[0], found[1], found[2], *(int(count) for count in counts))


def _room() -> tuple[np.ndarray, ...]:
    return np.empty(_CAPACITY, np.int32), np.empty(_CAPACITY, np.int32), np.empty(_CAPACITY)


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))
