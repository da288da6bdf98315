"""Compute with components: every one-dimensional model is a mixture of points, uniforms and (cut) normals.

Components lie in flat arrays, those of row ``i`` at ``start[i]:start[i + 1]``:

========== ====================== ============
kind       interval               shape
========== ====================== ============
``POINT``   ``low = high``         unused
``UNIFORM`` ``[low, high]``        unused
``NORMAL``  ``[low, high]``        ``mean, sd`` (infinite ends: the plain normal)
========== ====================== ============
"""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.jit import kernel
from haply.numerics.normal import (
    NODE_WEIGHTS,
    NODES,
    SQRT_2PI,
    cut_anchor,
    cut_cdf,
    cut_mass,
    cut_pdf,
    cut_quantile,
    cut_shortfall,
    normal_between,
    normal_cdf,
    root_sum,
)

POINT, UNIFORM, NORMAL = np.int8(0), np.int8(1), np.int8(2)


@kernel
def component_cdf(kind, low, high, mean, sd, x):
    """Return ``P(X <= x)`` for one component."""
    if kind == NORMAL:
        return cut_cdf(mean, sd, low, high, x)
    if x >= high:
        return 1.0
    if x < low or kind == POINT:
        return 0.0
    return (x - low) / (high - low)


@kernel
def component_cdf_left(kind, low, high, mean, sd, x):
    """Return ``P(X < x)`` for one component."""
    if kind == POINT:
        return 1.0 if low < x else 0.0
    return component_cdf(kind, low, high, mean, sd, x)


@kernel
def component_integrated_cdf(kind, low, high, mean, sd, x):
    """Return ``E max(x - X, 0)``, the integral of the cdf up to ``x``, for one component."""
    if kind == NORMAL:
        if x <= low:
            return 0.0
        inside = min(x, high)
        if high == math.inf and low == -math.inf and x > mean:  # reflection keeps it accurate above the mean
            return (x - mean) + cut_shortfall(-mean, sd, -high, -low, -x)
        return cut_shortfall(mean, sd, low, high, inside) + (x - inside)
    if x <= low:
        return 0.0
    if x >= high:
        return x - 0.5 * (low + high)
    return 0.5 * (x - low) * ((x - low) / (high - low))


@kernel
def component_mean(kind, low, high, mean, sd):
    """Return the mean of one component."""
    if kind != NORMAL:
        return low + 0.5 * (high - low)
    if low == -math.inf and high == math.inf:
        return mean
    return high - cut_shortfall(mean, sd, low, high, high)


@kernel
def component_variance(kind, low, high, mean, sd):
    """Return the variance of one component."""
    if kind != NORMAL:
        return (high - low) * (high - low) / 12.0
    if low == -math.inf and high == math.inf:
        return sd * sd
    centre = component_mean(kind, low, high, mean, sd)
    mode = min(max(mean, low), high)
    z0 = abs(cut_anchor(mean, sd, low, high))
    reach = sd * (9.0 if z0 < 4.0 else 40.0 / z0)
    left, right = max(low, mode - reach), min(high, mode + reach)
    panels = 1 + int((right - left) * max(1.0, z0) / (2.0 * sd))
    half, total = 0.5 * (right - left) / panels, 0.0
    for panel in range(panels):
        for k in range(len(NODES)):
            x = left + half * (2 * panel + 1.0 + NODES[k])
            total += NODE_WEIGHTS[k] * (x - centre) ** 2 * cut_pdf(mean, sd, low, high, x)
    return total * half


@kernel
def component_quantile(kind, low, high, mean, sd, p):
    """Return the point below which one component lies with probability ``p``."""
    if kind == NORMAL:
        return cut_quantile(mean, sd, low, high, p)
    return low + min(max(p, 0.0), 1.0) * (high - low)


@kernel
def component_concentration(kind, low, high, mean, sd, width):
    """Return the largest mass of one component in a closed interval of this width."""
    if kind == POINT or width >= high - low:
        return 1.0
    if kind == UNIFORM:
        return width / (high - low)
    left = min(max(mean - 0.5 * width, low), high - width)
    if low == -math.inf and high == math.inf:
        return normal_between(-0.5 * width / sd, 0.5 * width / sd)
    return cut_cdf(mean, sd, low, high, left + width) - cut_cdf(mean, sd, low, high, left)


@kernel
def component_peak(kind, low, high, mean, sd):
    """Return the greatest density of one component, or slightly more, never less; infinite for an atom."""
    if kind == POINT:
        return math.inf
    if kind == UNIFORM:
        return (1.0 + 1e-12) / (high - low)
    if low == -math.inf and high == math.inf:
        return (1.0 + 1e-12) / (SQRT_2PI * sd)
    return (1.0 + 1e-9) * cut_pdf(mean, sd, low, high, min(max(mean, low), high))


@kernel
def gap(a, b, t):
    """Return ``a - b - t`` with the rounding of ``a - b`` put back: widths of 1e-12 survive beside positions of 1e3."""
    if math.isinf(a):
        return a
    difference = a - b
    b_seen = a - difference
    a_seen = difference + b_seen
    lost = (a - a_seen) + (b_seen - b)
    return (difference - t) + lost


@kernel
def uniform_difference_cdf(a_low, a_high, b_low, b_high, t):
    """Return ``P(A - B <= t)`` for two uniforms of positive width: the trapezoid, written so that nothing cancels.

    The four-square form is algebraically equal, but wrong by 7e-5 when the widths are 1e-12 and 1.
    """
    rising = -gap(a_low, b_high, t)  # the distance of t above the smallest difference
    falling = gap(a_high, b_low, t)  # the distance of t below the largest difference
    if rising <= 0.0:
        return 0.0
    if falling <= 0.0:
        return 1.0
    a_width, b_width = a_high - a_low, b_high - b_low
    narrow, wide = min(a_width, b_width), max(a_width, b_width)
    if rising <= narrow:
        return 0.5 * (rising / narrow) * (rising / wide)
    if falling <= narrow:
        return 1.0 - 0.5 * (falling / narrow) * (falling / wide)
    return (rising - 0.5 * narrow) / wide


@kernel
def _average_cdf(mean, sd, low, high, width):
    """Return the mean of the cdf of a (cut) normal over ``[0, width]``."""
    left, right = 0.0, width
    beyond = max(0.0, right - max(high, left))  # the part above the support, where the cdf is 1
    inner_left, inner_right = max(left, low), min(right, high)
    if not (inner_left < inner_right):
        return min(1.0, beyond / width)
    scale = sd / max(1.0, abs(cut_anchor(mean, sd, low, high)))
    inner = inner_right - inner_left
    if inner <= scale:
        half, total = 0.5 * inner, 0.0
        for k in range(len(NODES)):
            total += NODE_WEIGHTS[k] * cut_cdf(mean, sd, low, high, inner_left + half * (1.0 + NODES[k]))
        area = total * half
    elif inner_right <= mean:
        area = cut_shortfall(mean, sd, low, high, inner_right) - cut_shortfall(mean, sd, low, high, inner_left)
    elif inner_left >= mean:  # the area above the cdf is the smaller one
        area = inner - (
            cut_shortfall(-mean, sd, -high, -low, -inner_left) - cut_shortfall(-mean, sd, -high, -low, -inner_right)
        )
    else:
        below = cut_shortfall(mean, sd, low, high, mean) - cut_shortfall(mean, sd, low, high, inner_left)
        missing = cut_shortfall(-mean, sd, -high, -low, -mean) - cut_shortfall(-mean, sd, -high, -low, -inner_right)
        area = below + (inner_right - mean) - missing
    return min(1.0, max(0.0, (area + beyond) / width))


@kernel
def smooth_window(mean, sd, low, high):
    """Return how far down and up from its mode a (cut) normal has all but 1e-17 of its mass, and its scale."""
    z0 = abs(cut_anchor(mean, sd, low, high))
    mode = min(max(mean, low), high)
    reach = sd * (9.0 if z0 < 4.0 else 40.0 / z0)
    return max(low - mode, -reach), min(high - mode, reach), sd / max(1.0, z0)


@kernel
def _smooth_expectation(mean, sd, low, high, other_mean, other_sd, other_low, other_high):
    """Return ``E F(X)`` for a (cut) normal ``X`` and the cdf ``F`` of another, in coordinates centred on X's mode.

    It uses Gauss-Legendre panels over X, split where ``F`` has a kink.
    """
    left, right, scale = smooth_window(mean, sd, low, high)
    mode = min(max(mean, low), high)
    z_mode, z0 = (mode - mean) / sd, cut_anchor(mean, sd, low, high)
    mass = cut_mass(mean, sd, low, high, z0)
    cut1, cut2 = min(max(other_low, left), right), min(max(other_high, left), right)
    total = 0.0
    for piece in range(3):
        start = left if piece == 0 else (cut1 if piece == 1 else cut2)
        end = cut1 if piece == 0 else (cut2 if piece == 1 else right)
        if not (start < end):
            continue
        panels = 1 + int((end - start) / (1.5 * scale))
        half = 0.5 * (end - start) / panels
        for panel in range(panels):
            for k in range(len(NODES)):
                offset = start + half * (2 * panel + 1.0 + NODES[k])
                z = z_mode + offset / sd
                density = math.exp(-0.5 * (z - z0) * (z + z0))
                total += NODE_WEIGHTS[k] * half * density * cut_cdf(other_mean, other_sd, other_low, other_high, offset)
    return min(1.0, total / (SQRT_2PI * sd * mass))


@kernel
def _smooth_difference_cdf(a_mean, a_sd, a_low, a_high, b_mean, b_sd, b_low, b_high, t):
    """Return ``P(A - B <= t)`` for two (cut) normals, at least one of them cut: an expectation over the finer one.

    The error is below 1e-14, even where the closed form over the bivariate normal loses its digits (it divides by both
    masses).
    """
    a_scale = a_sd / max(1.0, abs(cut_anchor(a_mean, a_sd, a_low, a_high)))
    b_scale = b_sd / max(1.0, abs(cut_anchor(b_mean, b_sd, b_low, b_high)))
    if b_scale <= a_scale:  # E_B F_A(B + t), with A seen from B's mode
        mode = min(max(b_mean, b_low), b_high)
        return _smooth_expectation(
            b_mean, b_sd, b_low, b_high, gap(a_mean, mode, t), a_sd, gap(a_low, mode, t), gap(a_high, mode, t)
        )
    # E_A P(B >= A - t): the mirror image, with -B seen from -A's mode
    mode = min(max(a_mean, a_low), a_high)
    return _smooth_expectation(
        -a_mean, a_sd, -a_high, -a_low, gap(-b_mean, -mode, t), b_sd, gap(-b_high, -mode, t), gap(-b_low, -mode, t)
    )


@kernel
def component_difference_cdf(a_kind, a_low, a_high, a_mean, a_sd, b_kind, b_low, b_high, b_mean, b_sd, t, closed):
    """Return ``P(A - B <= t)``, or ``P(A - B < t)`` when not closed, for two independent components.

    Positions enter only through ``gap``, as distances from a point of one of the two, so that narrow values far from 0
    keep their digits.
    """
    if a_kind == POINT and b_kind == POINT:
        difference = a_low - b_low
        return 1.0 if difference < t or (closed and difference == t) else 0.0
    if t == math.inf:
        return 1.0
    if t == -math.inf:
        return 0.0
    if b_kind == POINT:
        if a_kind == UNIFORM:  # not b + t, whose rounding would matter in a narrow interval
            return min(1.0, max(0.0, -gap(a_low, b_low, t) / (a_high - a_low)))
        return cut_cdf(gap(a_mean, b_low, t), a_sd, gap(a_low, b_low, t), gap(a_high, b_low, t), 0.0)
    if a_kind == POINT:
        if b_kind == UNIFORM:
            return min(1.0, max(0.0, -gap(a_low, b_high, t) / (b_high - b_low)))
        return cut_cdf(gap(-b_mean, -a_low, t), b_sd, gap(-b_high, -a_low, t), gap(-b_low, -a_low, t), 0.0)
    if a_kind == UNIFORM:
        if b_kind == UNIFORM:
            return uniform_difference_cdf(a_low, a_high, b_low, b_high, t)
        low, high = gap(-b_high, -a_high, t), gap(-b_low, -a_high, t)
        return _average_cdf(gap(-b_mean, -a_high, t), b_sd, low, high, a_high - a_low)
    if b_kind == UNIFORM:
        low, high = gap(a_low, b_low, t), gap(a_high, b_low, t)
        return _average_cdf(gap(a_mean, b_low, t), a_sd, low, high, b_high - b_low)
    if a_low == -math.inf and a_high == math.inf and b_low == -math.inf and b_high == math.inf:
        return normal_cdf(-gap(a_mean, b_mean, t) / root_sum(a_sd, b_sd))
    return _smooth_difference_cdf(a_mean, a_sd, a_low, a_high, b_mean, b_sd, b_low, b_high, t)
