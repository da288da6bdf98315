"""Rows of components: the functions every one-dimensional model offers, one result per row."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.components import (
    POINT,
    component_cdf,
    component_cdf_left,
    component_concentration,
    component_integrated_cdf,
    component_mean,
    component_peak,
    component_quantile,
    component_variance,
)
from haply.numerics.jit import inner, kernel
from haply.numerics.normal import LEAST_SQUARE, SCALE_DOWN, SCALE_UP


class Components(NamedTuple):
    """Flat components of many rows; those of row ``i`` stand at ``start[i]:start[i + 1]`` and their weights sum to 1.

    In an ``ordered`` set the components of a row ascend and do not overlap (histograms, sorted samples), so quantiles
    are found by walking along them.
    """

    start: np.ndarray
    weight: np.ndarray
    kind: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    ordered: bool


@inner
def row_cdf(rows, i, x, closed):
    """Return ``P(X <= x)`` of row ``i``, or ``P(X < x)`` when not closed."""
    total = 0.0
    for k in range(rows.start[i], rows.start[i + 1]):
        kind, low, high, mean, sd = rows.kind[k], rows.low[k], rows.high[k], rows.mean[k], rows.sd[k]
        if closed:
            total += rows.weight[k] * component_cdf(kind, low, high, mean, sd, x)
        else:
            total += rows.weight[k] * component_cdf_left(kind, low, high, mean, sd, x)
    return min(total, 1.0)


@kernel
def _mirrored_cdf(rows, i, x, closed, sign):
    """Return the cdf of ``X`` (sign 1) or of ``-X`` (sign -1), each relatively accurate in its own lower tail."""
    if sign > 0:
        return row_cdf(rows, i, x, closed)
    total = 0.0
    for k in range(rows.start[i], rows.start[i + 1]):
        low, high, mean = -rows.high[k], -rows.low[k], -rows.mean[k]
        if closed:
            total += rows.weight[k] * component_cdf(rows.kind[k], low, high, mean, rows.sd[k], x)
        else:
            total += rows.weight[k] * component_cdf_left(rows.kind[k], low, high, mean, rows.sd[k], x)
    return min(total, 1.0)


@kernel
def _walk_quantile(rows, i, p, last, sign):
    """Return a quantile of ordered components: pass whole components until the one that holds level ``p``."""
    begin, end = rows.start[i], rows.start[i + 1]
    passed = 0.0
    edge = -math.inf
    for step in range(end - begin):
        k = begin + step if sign > 0 else end - 1 - step
        low, high = (rows.low[k], rows.high[k]) if sign > 0 else (-rows.high[k], -rows.low[k])
        weight = rows.weight[k]
        reached = passed + weight
        if reached > p or (not last and reached >= p):
            if not last and p <= passed and step > 0:
                return edge
            share = max(0.0, p - passed) / weight
            return low if rows.kind[k] == POINT else min(high, low + share * (high - low))
        passed = reached
        edge = high
    return edge


@kernel
def row_quantile(rows, i, p, last, sign):
    """Return a point at level ``p`` of the lower tail of ``X`` (sign 1) or of ``-X`` (sign -1).

    With ``last`` it is the largest y with ``P(X < y) <= p``, approached from below, so that it errs on the low side;
    otherwise the smallest y with ``P(X <= y) >= p``.
    """
    begin, end = rows.start[i], rows.start[i + 1]
    if rows.ordered:
        return _walk_quantile(rows, i, p, last, sign)
    left, right = math.inf, -math.inf
    for k in range(begin, end):
        low, high, mean = rows.low[k], rows.high[k], rows.mean[k]
        if sign < 0:
            low, high, mean = -high, -low, -mean
        q = component_quantile(rows.kind[k], low, high, mean, rows.sd[k], p)
        left, right = min(left, q), max(right, q)
    if end - begin == 1 or not (left < right) or math.isinf(left) or math.isinf(right):
        return left if last else right
    if (_mirrored_cdf(rows, i, right, False, sign) <= p) if last else (_mirrored_cdf(rows, i, left, True, sign) >= p):
        return right if last else left
    while True:  # halving keeps the invariant at both ends, also for atoms and plateaus
        middle = left + 0.5 * (right - left)
        if not (left < middle < right):
            break
        if last:
            inside = _mirrored_cdf(rows, i, middle, False, sign) <= p
        else:
            inside = _mirrored_cdf(rows, i, middle, True, sign) < p
        if inside:
            left = middle
        else:
            right = middle
        if right - left <= 1e-15 * max(abs(left), abs(right)):
            break
    return left if last else right


@kernel
def row_mean_variance(rows, i, scale):
    """Return mean and variance of row ``i`` times a scale, the variance as a sum of non-negative parts."""
    mean = 0.0
    for k in range(rows.start[i], rows.start[i + 1]):
        low, high, centre, sd = scale * rows.low[k], scale * rows.high[k], scale * rows.mean[k], scale * rows.sd[k]
        mean += rows.weight[k] * component_mean(rows.kind[k], low, high, centre, sd)
    variance = 0.0
    for k in range(rows.start[i], rows.start[i + 1]):
        low, high, centre, sd = scale * rows.low[k], scale * rows.high[k], scale * rows.mean[k], scale * rows.sd[k]
        kind = rows.kind[k]
        away = component_mean(kind, low, high, centre, sd) - mean
        variance += rows.weight[k] * (component_variance(kind, low, high, centre, sd) + away * away)
    return mean, variance


@kernel
def _ordered_concentration(rows, i, width):
    """Return the mass of the best window over ordered components: it begins at a start or ends at an end of one."""
    begin, end = rows.start[i], rows.start[i + 1]
    best = 0.0
    slack = 1e-15 * (abs(rows.low[begin]) + abs(rows.high[end - 1]) + width)  # a tie in floats stays inside the window
    for side in range(2):
        first = begin
        for k in range(begin, end):
            left = rows.low[k] if side == 0 else rows.high[k] - width
            right = left + width
            left, right = left - slack, right + slack
            while first < end and rows.high[first] < left:
                first += 1
            held = 0.0
            for j in range(first, end):
                if rows.low[j] > right:
                    break
                if rows.kind[j] == POINT:
                    held += rows.weight[j]
                else:
                    cover = min(rows.high[j], right) - max(rows.low[j], left)
                    held += rows.weight[j] * min(1.0, max(0.0, cover / (rows.high[j] - rows.low[j])))
            best = max(best, held)
    return min(1.0, best)


@kernel
def row_concentration(rows, i, width):
    """Return an upper bound of the mass of row ``i`` in any closed interval of this width.

    It is exact up to rounding for one component and for ordered components. For other mixtures it is the weighted sum
    of the components' concentrations, which is an upper bound because one window cannot be best for all of them.
    """
    if rows.ordered:
        return _ordered_concentration(rows, i, width)
    total = 0.0
    for k in range(rows.start[i], rows.start[i + 1]):
        total += rows.weight[k] * component_concentration(
            rows.kind[k], rows.low[k], rows.high[k], rows.mean[k], rows.sd[k], width
        )
    return min(1.0, total)


@kernel
def rows_cdf(rows, x, closed):
    """Return ``row_cdf`` for every row."""
    out = np.empty(len(x))
    for i in range(len(x)):
        out[i] = row_cdf(rows, i, x[i], closed)
    return out


@kernel
def rows_integrated_cdf(rows, x):
    """Return ``E max(x - X, 0)`` for every row."""
    out = np.empty(len(x))
    for i in range(len(x)):
        total = 0.0
        for k in range(rows.start[i], rows.start[i + 1]):
            total += rows.weight[k] * component_integrated_cdf(
                rows.kind[k], rows.low[k], rows.high[k], rows.mean[k], rows.sd[k], x[i]
            )
        out[i] = total
    return out


@kernel
def rows_quantile(rows, p, last, sign):
    """Return ``row_quantile`` for every row, on the original axis; ``p`` is one level, or one for each row."""
    n, each = len(rows.start) - 1, 1 if len(p) > 1 else 0
    out = np.empty(n)
    for i in range(n):
        out[i] = sign * row_quantile(rows, i, p[each * i], last, sign)
    return out


@kernel
def rows_moments(rows):
    """Return mean and variance of every row."""
    n = len(rows.start) - 1
    mean, variance = np.empty(n), np.empty(n)
    for i in range(n):
        mean[i], variance[i] = row_mean_variance(rows, i, 1.0)
    return mean, variance


@kernel
def rows_deviation(rows, variance):
    """Return the standard deviation of every row: the root of its variance, computed on a scale that is in range."""
    out = np.empty(len(variance))
    for i in range(len(variance)):
        if LEAST_SQUARE < variance[i] < math.inf:
            out[i] = math.sqrt(variance[i])
        else:
            scale = SCALE_UP if variance[i] < 1.0 else SCALE_DOWN
            out[i] = math.sqrt(row_mean_variance(rows, i, scale)[1]) / scale
            if not out[i] < math.inf and variance[i] < 1.0:  # the scaled positions leave the range
                out[i] = math.sqrt(variance[i])
    return out


@kernel
def rows_support(rows):
    """Return the least and greatest value of every row (ends of components of positive weight)."""
    n = len(rows.start) - 1
    low, high = np.empty(n), np.empty(n)
    for i in range(n):
        low[i], high[i] = math.inf, -math.inf
        for k in range(rows.start[i], rows.start[i + 1]):
            low[i], high[i] = min(low[i], rows.low[k]), max(high[i], rows.high[k])
    return low, high


@kernel
def rows_concentration(rows, width):
    """Return ``row_concentration`` for every row."""
    n = len(rows.start) - 1
    out = np.empty(n)
    for i in range(n):
        out[i] = row_concentration(rows, i, width)
    return out


@kernel
def rows_peak(rows):
    """Return an upper bound of the density of every row: exact for ordered components, else the sum of their maxima."""
    n = len(rows.start) - 1
    out = np.zeros(n)
    for i in range(n):
        for k in range(rows.start[i], rows.start[i + 1]):
            one = rows.weight[k] * component_peak(rows.kind[k], rows.low[k], rows.high[k], rows.mean[k], rows.sd[k])
            out[i] = max(out[i], one) if rows.ordered else out[i] + one
    return out


@kernel
def too_long(low, high, width, share):
    """Tell whether a share of each interval is at least as long as the width."""
    out = np.empty(len(low), np.bool_)
    for i in range(len(low)):
        length = high[i] - low[i]
        out[i] = length > 0.0 and length * share >= width
    return out


@kernel
def moved(positions, shift, slack):
    """Return positions minus a shift plus a slack relative to both, to move them outwards and cover rounding."""
    out = np.empty(len(positions))
    for i in range(len(positions)):
        out[i] = positions[i] - shift + slack * (abs(positions[i]) + abs(shift))
    return out


class Line(NamedTuple):
    """Two quantiles of every row as straight lines: ``low + up * scale`` and ``high - down * scale``."""

    low: np.ndarray
    high: np.ndarray
    scale: np.ndarray
    up: float
    down: float


def moved_line(line: Line, low_shift: float, high_shift: float, slack: float) -> tuple[np.ndarray, np.ndarray]:
    """Return both quantiles of a line, moved outwards as by ``moved``, in one loop: memory costs more than sums."""
    start, end = np.empty(len(line.low)), np.empty(len(line.low))  # NumPy's memory is faster than that of a kernel
    _move_line(line, low_shift, high_shift, slack, start, end)
    return start, end


@kernel
def _move_line(line, low_shift, high_shift, slack, start, end):
    for i in range(len(line.low)):
        low, high = line.low[i] + line.up * line.scale[i], line.high[i] - line.down * line.scale[i]
        start[i] = low - low_shift - slack * (abs(low) + abs(low_shift))
        end[i] = high - high_shift + slack * (abs(high) + abs(high_shift))
