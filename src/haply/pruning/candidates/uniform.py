"""Match uniform pairs in one pass: the sweep, bounds by lengths of overlaps, and the trapezoid together."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.models import Uniform
from haply.numerics.components import uniform_difference_cdf
from haply.numerics.jit import kernel
from haply.probability.region import Region
from haply.pruning.candidates import one_pass
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.candidates.one_pass import U0, U1, Labels, OnePass, Order, U, largest
from haply.pruning.threshold import Threshold


class UniformRows(NamedTuple):
    """One side in order (see ``Order``): ends, 1 over the length, and the largest mass that the region spans."""

    begin: np.ndarray
    end: np.ndarray
    label: np.ndarray
    low: np.ndarray
    high: np.ndarray
    inverse: np.ndarray
    most: np.ndarray


def _rows(order: Order, width: float) -> UniformRows:
    low, high = order.columns
    inverse = 1.0 / (high - low)
    return UniformRows(order.begin, order.end, order.label, low, high, inverse, np.minimum(1.0, width * inverse))


class UniformCondition(NamedTuple):
    """The condition and the threshold, as numbers."""

    low: float
    high: float
    reject_below: float
    accept_from: float
    keep_from: float
    may_accept: bool
    slack: float


class HeldUniforms(NamedTuple):
    """The places of pairs that no bound has rejected."""

    own: np.ndarray
    other: np.ndarray


@kernel
def _reject(own, other, sign, from_position, i, j, first, question, held):
    """Reject pairs from own row ``i`` and other row ``j`` (0: its first) on, until ``held`` is full or all is done.

    The bound is that of ``bounds.concentration_bound``: the part of one within reach of the other, times the most of
    the other that one value can meet. Returns how many pairs stay, where it stopped, and how many were candidates.
    """
    n, candidates, room, slack, limit = U0, U0, U(len(held.own)), question.slack, question.reject_below
    # how far an own value may be above the other value, and below it
    above, below = (question.high, -question.low) if sign > 0.0 else (-question.low, question.high)
    while i < U(len(own.label)) and n < room:
        begin = max(own.begin[i], from_position)
        while other.begin[first] < begin or (sign < 0.0 and other.begin[first] <= own.begin[i]):
            first += U1
        j = max(j, first)
        low, high, inverse, most, end = own.low[i], own.high[i], own.inverse[i], own.most[i], own.end[i]
        stop = j + (room - n)
        candidates -= j
        while other.begin[j] <= end and j < stop:
            # in floats, so without branches: the length of the part of each within reach of the other
            from_own, to_own = other.low[j] - below, other.high[j] + above
            from_own = from_own if from_own > low else low
            to_own = to_own if to_own < high else high
            from_other, to_other = low - above, high + below
            from_other = from_other if from_other > other.low[j] else other.low[j]
            to_other = to_other if to_other < other.high[j] else other.high[j]
            by_own = (to_own - from_own + slack) * inverse * other.most[j]
            by_other = (to_other - from_other + slack) * other.inverse[j] * most
            held.own[n], held.other[n] = i, j
            n += U((by_own > limit) & (by_other > limit))
            j += U1
        candidates += j
        if other.begin[j] > end:
            i, j = i + U1, U0
    return n, i, j, first, candidates


@kernel
def _sure(a_low, a_high, a_inverse, b_low, b_high, b_inverse, low, high, slack):
    """Lower bound: the part of one for which every value of the other fulfils the condition (``containment_bound``)."""
    by_a = (min(a_high, b_low + high) - max(a_low, b_high + low) - slack) * a_inverse
    by_b = (min(b_high, a_low - low) - max(b_low, a_high - high) - slack) * b_inverse
    return max(by_a, by_b)


@kernel
def _decide(own, other, sign, count, question, held, n, out_own, out_other, out_p):
    """Accept or evaluate the held pairs; return how many pairs the output has, and how many were evaluated."""
    evaluated, low, high = U0, question.low, question.high
    for k in range(count):
        i, j = held.own[k], held.other[k]
        a_low, a_high, a_inverse = own.low[i], own.high[i], own.inverse[i]
        b_low, b_high, b_inverse = other.low[j], other.high[j], other.inverse[j]
        if sign < 0.0:
            a_low, a_high, a_inverse, b_low, b_high, b_inverse = b_low, b_high, b_inverse, a_low, a_high, a_inverse
        if (
            question.may_accept
            and _sure(a_low, a_high, a_inverse, b_low, b_high, b_inverse, low, high, question.slack)
            >= question.accept_from
        ):
            p, kept = math.nan, True
        else:
            evaluated += U1
            p = uniform_difference_cdf(a_low, a_high, b_low, b_high, high)
            p -= uniform_difference_cdf(a_low, a_high, b_low, b_high, low)
            kept = p >= question.keep_from
        if kept:
            out_own[n], out_other[n], out_p[n] = own.label[i], other.label[j], p
            n += U1
    return n, evaluated


@kernel
def _scan(own, other, sign, from_position, i, j, first, question, held, n, out_own, out_other, out_p):
    """Reject and decide pairs in turn (see ``one_pass``)."""
    candidates, rejected, evaluated = U0, U0, U0
    while i < U(len(own.label)) and n + U(len(held.own)) <= U(len(out_own)):
        count, i, j, first, seen = _reject(own, other, sign, from_position, i, j, first, question, held)
        n, computed = _decide(own, other, sign, count, question, held, n, out_own, out_other, out_p)
        candidates += seen
        rejected += seen - count
        evaluated += computed
    return n, i, j, first, candidates, rejected, evaluated


def uniform_pass(
    left: Uniform,
    right: Uniform,
    left_intervals: Intervals,
    right_intervals: Intervals,
    from_position: float,
    region: Region,
    threshold: Threshold,
    exact: bool,
    labels: Labels = (None, None),
) -> OnePass:
    """Prepare to find all kept pairs of uniforms of positive length, from the reference point ``from_position`` on."""
    farthest = sum(largest(ends) for side in (left, right) for ends in (side.lo, side.hi))
    farthest += abs(region.low) + abs(region.high)
    question = UniformCondition(
        float(region.low), float(region.high), threshold.reject_below - 1e-14, threshold.accept_from + 1e-14,
        threshold.keeps_from(), not exact, 1e-15 * farthest,
    )  # fmt: skip
    width = region.width * (1.0 + 1e-15)
    return OnePass(
        _scan, (left_intervals, right_intervals), ((left.lo, left.hi), (right.lo, right.hi)),
        lambda order: _rows(order, width), labels, from_position, question,
        lambda: HeldUniforms(*(np.empty(one_pass.HELD, np.uint32) for _ in HeldUniforms._fields)),
    )  # fmt: skip
