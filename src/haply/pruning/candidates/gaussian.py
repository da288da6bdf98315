"""Match Gaussian pairs in one pass: the sweep, the table of ``curve.py`` and the exact value together."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from haply.models import Gaussian
from haply.numerics.jit import kernel
from haply.numerics.normal import SQRT_2PI, normal_quantile
from haply.probability.kernels import normal_region
from haply.probability.region import Region
from haply.pruning.best import MARGIN, Best, hold
from haply.pruning.candidates import one_pass
from haply.pruning.candidates.curve import curve_table
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.candidates.one_pass import U0, U1, Labels, OnePass, Order, U, largest
from haply.pruning.threshold import Threshold

_STEP = 1.0 / 128.0
_FARTHEST = 8.5  # the mass from 0 to here is 0.5 to the last digit
_CUTS_PER_UNIT = 64.0
_FEW = 1.5
"""Up to this many pairs per row, in one direction of the sweep, all are computed: finding beaten ones takes longer."""


def _half_masses() -> tuple[np.ndarray, np.ndarray]:
    grid = np.arange(int(_FARTHEST / _STEP) + 2) * _STEP
    mass = np.array([0.5 * math.erf(z / math.sqrt(2.0)) for z in grid])
    return mass, np.exp(-0.5 * grid * grid) / SQRT_2PI


_MASS, _DENSITY = _half_masses()


@kernel
def mass_from_centre(z):
    """Return ``P(0 < Z < z)``, negative for negative z, by five terms of Taylor's series from the nearest grid point.

    The sixth term is below 2e-17, so the result is as exact as the error function, and faster.
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


class GaussianRows(NamedTuple):
    """One side in order (see ``Order``)."""

    begin: np.ndarray
    end: np.ndarray
    label: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


def _rows(order: Order) -> GaussianRows:
    mean, sd = order.columns
    return GaussianRows(order.begin, order.end, order.label, mean, np.square(sd, out=sd))


class GaussianCondition(NamedTuple):
    """The condition, the threshold and the curve, as numbers."""

    low: float
    high: float
    low_closed: bool
    high_closed: bool
    centre: float
    scale: float
    inner: np.ndarray
    outer: np.ndarray
    keep_from: float
    may_accept: bool
    slack: float
    half: float
    cut: np.ndarray
    left_best: np.ndarray
    right_best: np.ndarray
    """How far inside, in deviations, the best pairs of each row are; see ``_leave_beaten``. Empty if all are wanted."""


class HeldGaussians(NamedTuple):
    """Pairs that no bound has rejected: mean and deviation of the difference, and probability."""

    difference: np.ndarray
    sd: np.ndarray
    p: np.ndarray


@kernel
def _reject(own, other, sign, from_position, i, j, first, question, held, out_own, out_other):
    """Reject pairs from own row ``i`` and other row ``j`` (0: its first) on, until ``held`` is full or all is done.

    Returns how many pairs stay, where it stopped, and how many were candidates: those that begin within an own row's
    interval.
    """
    outer = question.outer
    n, candidates, room, beyond = U0, U0, U(len(held.sd)), float(len(outer) - 1)
    centre, slack, scale = question.centre, question.slack, question.scale
    while i < U(len(own.label)) and n < room:
        begin = max(own.begin[i], from_position)
        while other.begin[first] < begin or (sign < 0.0 and other.begin[first] <= own.begin[i]):
            first += U1
        j = max(j, first)
        mean, variance, end, label = own.mean[i], own.variance[i], own.end[i], own.label[i]
        stop = j + (room - n)
        candidates -= j
        while other.begin[j] <= end and j < stop:
            difference = sign * (mean - other.mean[j])
            sd = math.sqrt(variance + other.variance[j])
            place = sd * scale
            place = place if place < beyond else beyond  # for floats this is an instruction without a branch
            out_own[n], out_other[n], held.difference[n], held.sd[n] = label, other.label[j], difference, sd
            n += U(abs(difference - centre) - slack <= outer[U(np.int64(place))])
            j += U1
        candidates += j
        if other.begin[j] > end:
            i, j = i + U1, U0
    return n, i, j, first, candidates


@kernel
def _reached(best, row, cut):
    """Return how far inside a pair of this row must be, in deviations, unless enough others are certainly better."""
    z = best[row, best.shape[1] - 1]
    return -math.inf if z < 0.0 else cut[int(min(z * _CUTS_PER_UNIT, len(cut) - 1.0))]


@kernel
def _leave_beaten(count, sign, question, held, out_own, out_other):
    """Leave out pairs whose rows have enough better pairs; return how many are left.

    With ``z`` deviations from the mean of a difference to the nearer end of the region, and ``Q`` the tail of a normal,
    ``1 - 2 Q(z) <= P <= 1 - Q(z)``: so one of two pairs is better if its ``2 Q(z)`` is below the other's ``Q(z)``.
    """
    left, right = (out_own, out_other) if sign > 0.0 else (out_other, out_own)
    for k in range(count):
        inside = question.half - abs(held.difference[k] - question.centre)
        held.p[k] = math.inf
        if held.sd[k] > 0.0:
            finer = 1.0 / held.sd[k]
            held.p[k], least = (inside + question.slack) * finer, (inside - question.slack) * finer
            if len(question.left_best):
                hold(least, question.left_best[left[k]], question.left_best.shape[1])
            if len(question.right_best):
                hold(least, question.right_best[right[k]], question.right_best.shape[1])
    n = U0
    for k in range(count):
        reached = math.inf
        if len(question.left_best):
            reached = _reached(question.left_best, left[k], question.cut)
        if len(question.right_best):
            reached = min(reached, _reached(question.right_best, right[k], question.cut))
        out_own[n], out_other[n], held.difference[n] = out_own[k], out_other[k], held.difference[k]
        held.sd[n] = held.sd[k]
        n += U(not held.p[k] < reached)
    return n


@kernel
def _straddling(count, question, held):
    """Compute the probability of each held pair, accurate if the region is on both sides of the difference's mean."""
    for k in range(count):
        finer = 1.0 / held.sd[k]
        below, above = (question.low - held.difference[k]) * finer, (question.high - held.difference[k]) * finer
        held.p[k] = mass_from_centre(above) - mass_from_centre(below)


@kernel
def _decide(count, question, held, out_own, out_other, out_p):
    """Accept or evaluate the first ``count`` pairs of the output, and close the gaps where one is not kept.

    Returns how many are kept and how many were evaluated.
    """
    n, evaluated, inner = U0, U0, question.inner
    beyond = float(len(inner) - 1)
    if not question.may_accept:
        _straddling(count, question, held)
    for k in range(count):
        difference, sd = held.difference[k], held.sd[k]
        accepted = False
        if question.may_accept:
            place = min(sd * question.scale, beyond)
            accepted = abs(difference - question.centre) + question.slack <= inner[U(np.int64(place))]
        if accepted:
            p, kept = math.nan, True
        else:
            evaluated += U1
            p, half = held.p[k], 0.5 * sd
            if question.may_accept or difference - question.low <= half or question.high - difference <= half:
                # the probability is mostly one of two tails, and a sum of two masses would lose digits
                p = normal_region(
                    difference, sd, question.low, question.high, question.low_closed, question.high_closed, False
                )
            kept = p >= question.keep_from
        if kept:
            if n < k:
                out_own[n], out_other[n] = out_own[k], out_other[k]
            out_p[n] = p
            n += U1
    return n, evaluated


@kernel
def _scan(own, other, sign, from_position, i, j, first, question, held, n, out_own, out_other, out_p):
    """Reject and decide pairs in turn (see ``one_pass``)."""
    candidates, rejected, evaluated = U0, U0, U0
    while i < U(len(own.label)) and n + U(len(held.sd)) <= U(len(out_own)):
        room, begun = (out_own[n:], out_other[n:]), i
        count, i, j, first, seen = _reject(own, other, sign, from_position, i, j, first, question, held, *room)
        candidates += seen
        rejected += seen - count
        if len(question.cut) and float(count) > _FEW * float(i - begun):  # rows with few pairs have few beaten ones
            count = _leave_beaten(count, sign, question, held, *room)
        kept, computed = _decide(count, question, held, *room, out_p[n:])
        n += kept
        evaluated += computed
    return n, i, j, first, candidates, rejected, evaluated


@lru_cache(maxsize=16)
def _cuts(threshold: Threshold) -> np.ndarray:
    """Return for each ``z`` how far inside a pair must be so that pairs ``z`` deviations inside do not beat it."""
    tail = np.array([math.erfc(k / _CUTS_PER_UNIT / math.sqrt(2.0)) for k in range(int(_FARTHEST * _CUTS_PER_UNIT))])
    cuts = np.array([-math.inf if each >= 1.0 - MARGIN else -normal_quantile(each + MARGIN) - 1e-9 for each in tail])
    return np.where(1.0 - tail >= threshold.keeps_from() + MARGIN, cuts, -np.inf)  # a better pair must itself be kept


def gaussian_pass(
    left: Gaussian,
    right: Gaussian,
    left_intervals: Intervals,
    right_intervals: Intervals,
    from_position: float,
    region: Region,
    threshold: Threshold,
    exact: bool,
    labels: Labels = (None, None),
    best: Best | None = None,
) -> OnePass:
    """Prepare to find all kept pairs whose reference point is at or above ``from_position``.

    With ``best``, pairs that are not wanted may be left out.
    """
    widest = math.hypot(*(float(side.sd.max(initial=0.0)) for side in (left, right)))
    reach, inner, outer = curve_table(0.5 * region.width, threshold.reject_below, threshold.accept_from, widest)
    farthest = sum(largest(side.values["mean"]) for side in (left, right))
    question = GaussianCondition(
        float(region.low), float(region.high), region.low_closed, region.high_closed,
        0.5 * (region.low + region.high), (len(inner) - 1) / reach, inner, outer,
        threshold.keeps_from(), not exact, 1e-15 * farthest, 0.5 * region.width,
        np.empty(0) if best is None else _cuts(threshold), np.empty((0, 1)), np.empty((0, 1)),
    )  # fmt: skip
    return OnePass(
        _scan, (left_intervals, right_intervals), ((left.values["mean"], left.sd), (right.values["mean"], right.sd)),
        _rows, labels, from_position, question,
        lambda: HeldGaussians(*(np.empty(one_pass.HELD) for _ in HeldGaussians._fields)), best,
    )  # fmt: skip
