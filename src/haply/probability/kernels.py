"""Compute the exact probability that a difference lies in a region, for lists of row pairs; ``exact`` validates.

``lows`` and ``highs`` hold the ends of the region: one for all pairs, or one for each.
"""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.components import NORMAL, POINT, component_difference_cdf, uniform_difference_cdf
from haply.numerics.jit import kernel
from haply.numerics.normal import SQRT_HALF, normal_cdf, normal_window, root_sum


@kernel
def _point_in(difference, low, high, low_closed, high_closed):
    above = difference > low or (low_closed and difference == low)
    below = difference < high or (high_closed and difference == high)
    return above and below


@kernel
def normal_region(mean, sd, low, high, low_closed, high_closed, outside):
    """Return ``P(D in region)`` for a normal difference, relatively accurate in the tails; an atom when sd is 0."""
    if sd == 0.0:
        return 1.0 if _point_in(mean, low, high, low_closed, high_closed) != outside else 0.0
    if outside:
        return normal_cdf((low - mean) / sd) + normal_cdf((mean - high) / sd)
    if low == -math.inf:
        return normal_cdf((high - mean) / sd)
    if high == math.inf:
        return normal_cdf((mean - low) / sd)
    return normal_window((0.5 * (low + high) - mean) / sd, 0.5 * (high - low) / sd)


@kernel
def _below(a, i, b, j, t, closed):
    """Return ``P(A_i - B_j <= t)`` (``<`` when not closed) for one component of each side."""
    return component_difference_cdf(
        a.kind[i], a.low[i], a.high[i], a.mean[i], a.sd[i],
        b.kind[j], b.low[j], b.high[j], b.mean[j], b.sd[j], t, closed,
    )  # fmt: skip


@kernel
def _above(a, i, b, j, t, closed):
    """Return ``P(A_i - B_j >= t)`` (``>`` when not closed), accurately: the lower tail of the opposite difference."""
    return _below(b, j, a, i, -t, closed)


@kernel
def component_region(a, i, b, j, low, high, low_closed, high_closed, outside):
    """Return ``P(A_i - B_j in region)`` for one component of each side."""
    if a.kind[i] == POINT and b.kind[j] == POINT:
        return 1.0 if _point_in(a.low[i] - b.low[j], low, high, low_closed, high_closed) != outside else 0.0
    if outside:
        return _below(a, i, b, j, low, not low_closed) + _above(a, i, b, j, high, not high_closed)
    if low == -math.inf:
        return _below(a, i, b, j, high, high_closed)
    if high == math.inf:
        return _above(a, i, b, j, low, low_closed)
    if a.kind[i] == NORMAL and b.kind[j] == NORMAL and a.low[i] == -math.inf and b.low[j] == -math.inf:
        sd = root_sum(a.sd[i], b.sd[j])
        return normal_region(a.mean[i] - b.mean[j], sd, low, high, low_closed, high_closed, False)
    short_of_low = _below(a, i, b, j, low, not low_closed)
    if short_of_low <= 0.5:
        return max(0.0, _below(a, i, b, j, high, high_closed) - short_of_low)
    return max(0.0, _above(a, i, b, j, low, low_closed) - _above(a, i, b, j, high, not high_closed))


@kernel
def components_pairs(a, b, left, right, lows, highs, low_closed, high_closed, outside):
    """Compute the probabilities of pairs of any models: the sum over pairs of components."""
    out = np.empty(len(left))
    each = 1 if len(lows) > 1 else 0
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        low, high = lows[each * pair], highs[each * pair]
        total = 0.0
        for k in range(a.start[i], a.start[i + 1]):
            part = 0.0
            for m in range(b.start[j], b.start[j + 1]):
                part += b.weight[m] * component_region(a, k, b, m, low, high, low_closed, high_closed, outside)
            total += a.weight[k] * part
        out[pair] = min(1.0, total)
    return out


@kernel
def gaussian_pairs(a_mean, a_sd, b_mean, b_sd, left, right, lows, highs, low_closed, high_closed, outside):
    """Compute the probabilities of pairs of Gaussians."""
    out = np.empty(len(left))
    each = 1 if len(lows) > 1 else 0
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        low, high = lows[each * pair], highs[each * pair]
        sd = root_sum(a_sd[i], b_sd[j])
        mean = a_mean[i] - b_mean[j]
        if not outside and sd > 0.0:
            # most pairs that get here straddle the region: two error functions, no case distinction
            below, above = (low - mean) / sd, (high - mean) / sd
            if below < -0.5 and above > 0.5:
                out[pair] = 0.5 * (math.erf(above * SQRT_HALF) - math.erf(below * SQRT_HALF))
                continue
        out[pair] = normal_region(mean, sd, low, high, low_closed, high_closed, outside)
    return out


@kernel
def uniform_pairs(a_low, a_high, b_low, b_high, left, right, lows, highs, outside):
    """Compute the probabilities of pairs of uniforms of positive width."""
    out = np.empty(len(left))
    each = 1 if len(lows) > 1 else 0
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        low, high = lows[each * pair], highs[each * pair]
        inside_from = 0.0 if low == -math.inf else uniform_difference_cdf(a_low[i], a_high[i], b_low[j], b_high[j], low)
        inside_to = 1.0 if high == math.inf else uniform_difference_cdf(a_low[i], a_high[i], b_low[j], b_high[j], high)
        out[pair] = inside_from + (1.0 - inside_to) if outside else inside_to - inside_from
    return out


@kernel
def samples_pairs(a, b, b_before, equal, left, right, lows, highs, low_closed, high_closed, outside):
    """Compute the probabilities of pairs of samples, each row sorted, in one pass along both rows.

    ``b_before`` holds for each point the weight of its row before it. With equal weights the answer is a count over the
    number of combinations, rounded once, so that comparing it with a decimal threshold is exact.
    """
    out = np.empty(len(left))
    each = 1 if len(lows) > 1 else 0
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        low, high = lows[each * pair], highs[each * pair]
        begin, end = b.start[j], b.start[j + 1]
        first, last, count, inside, around = begin, begin, 0, 0.0, 0.0
        for k in range(a.start[i], a.start[i + 1]):
            value = a.low[k]
            while first < end and (value - b.low[first] > high or (not high_closed and value - b.low[first] == high)):
                first += 1
            while last < end and (value - b.low[last] > low or (low_closed and value - b.low[last] == low)):
                last += 1
            # a pair that cannot match must get 0.0: so neither part is computed by subtracting the other from 1
            below = b_before[first] if first < end else 1.0
            above = 1.0 - b_before[last] if last < end else 0.0
            if last > first:
                count += last - first
                inside += a.weight[k] * (1.0 - above - below)
                around += a.weight[k] * (below + above)
            else:
                around += a.weight[k]
        if equal:
            combinations = (a.start[i + 1] - a.start[i]) * (end - begin)
            out[pair] = ((combinations - count) if outside else count) / combinations
        else:
            out[pair] = min(1.0, max(0.0, around if outside else inside))
    return out


@kernel
def normal_windows(mean, sd, low, high, low_closed, high_closed):
    """Return the probabilities that normal values lie between two ends, each between its own; all of one length."""
    out = np.empty(len(mean))
    for k in range(len(mean)):
        out[k] = normal_region(mean[k], sd[k], low[k], high[k], low_closed, high_closed, False)
    return out
