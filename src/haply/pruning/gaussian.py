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
_HELD = 1 << 12  # pairs between the two steps: they stay in the nearest cache
_CAPACITY = 1 << 22


def _half_masses() -> tuple[np.ndarray, np.ndarray]:
    grid = np.arange(int(_FARTHEST / _STEP) + 2) * _STEP
    mass = np.array([0.5 * math.erf(z / math.sqrt(2.0)) for z in grid])
    return mass, np.exp(-0.5 * grid * grid) / SQRT_2PI


_MASS, _DENSITY = _half_masses()


@kernel
def mass_from_centre(z):
    """``P(0 < Z < z)``, negative for negative z: five terms of Taylor's series from the nearest grid point.

    The sixth is below 2e-17, so the result is as exact as the error function, at a part of its price.
    """
    size = abs(z)
    size = size if size < _FARTHEST else _FARTHEST
    k = int(size * 128.0 + 0.5)
    z0 = k * _STEP
    d = size - z0
    square = z0 * z0
    series = (square * (square - 6.0) + 3.0) * d * (1.0 / 120.0) - z0 * (square - 3.0) * (1.0 / 24.0)
    series = series * d + (square - 1.0) * (1.0 / 6.0)
    series = (series * d - 0.5 * z0) * d + 1.0
    return math.copysign(_MASS[k] + _DENSITY[k] * d * series, z)


class SortedRows(NamedTuple):
    """One side in the order of its intervals' lower ends, and after them infinity; ``row`` tells which rows they are."""

    begin: np.ndarray
    end: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    row: np.ndarray


def sorted_rows(mean: np.ndarray, sd: np.ndarray, intervals: Intervals) -> SortedRows:
    """Put one side in order, without its hopeless rows."""
    low = np.minimum(intervals.start, intervals.end)
    order = np.argsort(low)
    if intervals.hopeless.any():
        order = order[~intervals.hopeless.take(order)]
    begin = np.append(low.take(order), np.inf)
    spread = sd.take(order)
    return SortedRows(begin, intervals.end.take(order), mean.take(order), spread * spread, order.astype(np.int32))


class Question(NamedTuple):
    """The condition, the threshold and the curve, as numbers."""

    low: float
    high: float
    low_closed: bool
    high_closed: bool
    centre: float
    scale: float
    keep_from: float
    strict: bool
    may_accept: bool
    slack: float


class Held(NamedTuple):
    """Pairs that no bound has rejected: places of the rows, mean and deviation of the difference, probability."""

    own: np.ndarray
    other: np.ndarray
    difference: np.ndarray
    sd: np.ndarray
    p: np.ndarray


_U = np.uint64  # An index that may be negative is checked at every use: here that would be half of the work.
_0, _1 = _U(0), _U(1)


@kernel
def _reject(own, other, sign, from_position, i, j, first, question, outer, held):
    """Go on at own row ``i`` and other row ``j`` (0: its first) until ``held`` is full or all is done.

    ``sign`` is 1 when own rows are the left ones: they then take other rows that begin where they do, too. Returns how
    many pairs are held, where it stopped, and how many were candidates: those that begin within an own row's interval.

    No branch here depends on a verdict: every pair is written down and the place moves on only if the pair stays. A
    processor that guesses verdicts is wrong for one pair in three, and would spend most of its time on that.
    """
    n, candidates, room, beyond = _0, _0, _U(len(held.own)), float(len(outer) - 1)
    centre, slack, scale = question.centre, question.slack, question.scale
    while i < _U(len(own.row)) and n < room:
        begin = max(own.begin[i], from_position)
        while other.begin[first] < begin or (sign < 0.0 and other.begin[first] <= own.begin[i]):
            first += _1
        j = max(j, first)
        mean, variance, end = own.mean[i], own.variance[i], own.end[i]
        stop = j + (room - n)
        candidates -= j
        while other.begin[j] <= end and j < stop:
            difference = sign * (mean - other.mean[j])
            sd = math.sqrt(variance + other.variance[j])
            place = sd * scale
            place = place if place < beyond else beyond  # of floats, which is an instruction and no branch
            held.own[n], held.other[n], held.difference[n], held.sd[n] = i, j, difference, sd
            n += _U(abs(difference - centre) - slack <= outer[_U(np.int64(place))])
            j += _1
        candidates += j
        if other.begin[j] > end:
            i, j = i + _1, _0
    return n, i, j, first, candidates


@kernel
def _straddling(count, question, held):
    """The probability of each held pair, good where the region lies on both sides of the difference's mean."""
    for k in range(count):
        finer = 1.0 / held.sd[k]
        below, above = (question.low - held.difference[k]) * finer, (question.high - held.difference[k]) * finer
        held.p[k] = mass_from_centre(above) - mass_from_centre(below)


@kernel
def _decide(own_row, other_row, count, question, inner, held, n, out_own, out_other, out_p):
    """Accept or evaluate the held pairs; returns how full the output then is and how many were evaluated."""
    evaluated, beyond = _0, float(len(inner) - 1)
    if not question.may_accept:
        _straddling(count, question, held)
    for k in range(count):
        difference, sd = held.difference[k], held.sd[k]
        if question.may_accept:
            place = min(sd * question.scale, beyond)
            if abs(difference - question.centre) + question.slack <= inner[_U(np.int64(place))]:
                out_own[n], out_other[n], out_p[n] = own_row[held.own[k]], other_row[held.other[k]], math.nan
                n += _1
                continue
        evaluated += _1
        p, half = held.p[k], 0.5 * sd
        if question.may_accept or difference - question.low <= half or question.high - difference <= half:
            # one of the two tails is most of it, and a sum of two masses would lose digits
            p = normal_region(
                difference, sd, question.low, question.high, question.low_closed, question.high_closed, False
            )
        if p > question.keep_from if question.strict else (p >= question.keep_from and p > 0.0):
            out_own[n], out_other[n], out_p[n] = own_row[held.own[k]], other_row[held.other[k]], p
            n += _1
    return n, evaluated


@kernel
def _scan(own, other, sign, from_position, i, j, first, question, inner, outer, held, n, out_own, out_other, out_p):
    """Reject and decide by turns, from own row ``i`` and other row ``j`` on, until done or the output may overflow.

    Returns how full the output is, where it stopped, and how many pairs were candidates, rejected and evaluated.
    """
    candidates, rejected, evaluated = _0, _0, _0
    while i < _U(len(own.row)) and n + _U(len(held.own)) <= _U(len(out_own)):
        count, i, j, first, seen = _reject(own, other, sign, from_position, i, j, first, question, outer, held)
        n, computed = _decide(own.row, other.row, count, question, inner, held, n, out_own, out_other, out_p)
        candidates += seen
        rejected += seen - count
        evaluated += computed
    return n, i, j, first, candidates, rejected, evaluated


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
        0.5 * (region.low + region.high), (len(inner) - 1) / reach,
        threshold.value + TOLERANCE if threshold.strict else threshold.value - TOLERANCE, threshold.strict, not exact,
        1e-15 * (_largest(left.mean) + _largest(right.mean)),
    )  # fmt: skip
    counts = np.zeros(3, dtype=np.int64)
    held = Held(*(np.empty(_HELD, kind) for kind in (np.uint32, np.uint32, float, float, float)))
    parts: list[tuple[np.ndarray, ...]] = []
    output, n = _room(), 0
    for own, other, sign in ((left, right, 1.0), (right, left, -1.0)):
        i = j = first = 0
        while i < len(own.row):
            if n + _HELD > _CAPACITY:
                parts.append(tuple(column[:n] for column in output))
                output, n = _room(), 0
            mine, theirs = (output[0], output[1]) if sign > 0 else (output[1], output[0])
            n, i, j, first, *done = _scan(
                own, other, sign, from_position, _U(i), _U(j), _U(first), question, inner, outer, held,
                _U(n), mine, theirs, output[2],
            )  # fmt: skip
            counts += done
    parts.append(tuple(column[:n] for column in output))
    found = parts[0] if len(parts) == 1 else tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    candidates, rejected, evaluated = (int(count) for count in counts)
    return GaussianMatches(*found, candidates, rejected, candidates - rejected - evaluated, evaluated)


def _room() -> tuple[np.ndarray, ...]:
    return np.empty(_CAPACITY, np.int32), np.empty(_CAPACITY, np.int32), np.empty(_CAPACITY)


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))
