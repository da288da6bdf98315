"""The Gaussian curve: for one region and threshold, the means of a difference that qualify at a standard deviation.

``g(m, s) = P(|D - centre| <= half)`` for ``D`` normal falls with the distance ``m`` of its mean from the centre, so for
each ``s`` there is a distance up to which a pair qualifies. A table of that curve, with certified inner and outer
values per cell of ``s``, decides a pair by one look-up; only pairs in the thin band between the two are evaluated.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from haply.numerics.jit import kernel
from haply.numerics.normal import normal_between, normal_quantile, root_sum
from haply.probability.region import Region
from haply.pruning.bounds.one_dimensional import CURVE

_CELLS = 256
_SLACK = 1e-14
_SLACK_SHARE = 1e-3
"""Limits far below the slack have a slack of this share of themselves: masses in the tails are relatively exact."""
_LEAST_SHARE = 1e-6
_FAR = 64.0
"""Tables of low limits have a reach of this many half widths: few rows have such a spread."""
_NO_END = 1024
"""The power of two that is above any s."""
_FINE = 1e-7  # ends of a cell are found up to this share of the half width; pairs between them are evaluated exactly


@kernel
def _inside(m, s, half):
    if s == 0.0:
        return 1.0 if m <= half else 0.0
    return normal_between((-half - m) / s, (half - m) / s)


@kernel
def best_inside(m, s1, s2, half):
    """Return the largest ``g(m, s)`` over ``s`` in ``[s1, s2]``: at ``s1`` if ``m`` is inside, else at a known point.

    Outside, with ``A = m - half`` and ``B = m + half``, the maximum over all s is at ``sqrt((B^2-A^2) / (2 ln(B/A)))``.
    """
    if m <= half:
        return _inside(m, s1, half)
    if half == 0.0:
        return 0.0
    # B^2 - A^2 and B/A written so that neither a far mean nor a narrow region loses the digits of the difference, and
    # no product of two lengths leaves the range
    best = math.sqrt(m) * math.sqrt(half / (0.5 * math.log1p(half / (0.5 * (m - half)))))
    return _inside(m, min(max(best, s1), s2), half)


@kernel
def worst_inside(m, s1, s2, half):
    """Return the smallest ``g(m, s)`` over ``s`` in ``[s1, s2]``, at one of the ends: it has no inner minimum."""
    return min(_inside(m, s1, half), _inside(m, s2, half))


@kernel
def _slack(limit):
    return min(_SLACK, _SLACK_SHARE * limit) if limit > 0.0 else _SLACK


@kernel
def _tabulate(half, reach, reject_below, accept_from):
    """Tabulate by cell of s: beyond ``outer`` P is at most ``reject_below``, up to ``inner`` at least ``accept_from``.

    A distance is negative if there is none. Both are certified, not exact: halving stops when it no longer pays.
    """
    inner, outer = np.empty(_CELLS + 1), np.empty(_CELLS + 1)
    reject_from, accept_above = reject_below - _slack(reject_below), accept_from + _slack(accept_from)
    for cell in range(_CELLS):
        # cells a little wider than the look-up's rounding
        s1, s2 = max(0.0, cell - 1e-9) * reach / _CELLS, (cell + 1 + 1e-9) * reach / _CELLS
        outer[cell] = -1.0
        if best_inside(0.0, s1, s2, half) > reject_from:
            yes, no = 0.0, half + 40.0 * s2
            while no - yes > _FINE * half:
                middle = 0.5 * (yes + no)
                if best_inside(middle, s1, s2, half) > reject_from:
                    yes = middle
                else:
                    no = middle
            outer[cell] = no if best_inside(no, s1, s2, half) <= reject_from else np.inf
        inner[cell] = -1.0
        if worst_inside(0.0, s1, s2, half) >= accept_above:
            # below the edge itself, where a difference without spread depends on open or closed ends
            yes, no = 0.0, half * (1.0 - _FINE) if cell == 0 else half + 40.0 * s2
            while no - yes > _FINE * half:
                middle = 0.5 * (yes + no)
                if worst_inside(middle, s1, s2, half) >= accept_above:
                    yes = middle
                else:
                    no = middle
            inner[cell] = yes
    return inner, outer


def curve_table(
    half: float, reject_below: float, accept_from: float, widest: float = math.inf
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the table for ``|D - centre| <= half``: a reach, and inner and outer distance by cell of s up to it.

    One more cell stands for all s beyond the reach. Nothing there can qualify, unless the limit is so low that the
    table ends before. In that case it ends at about the ``widest`` s that there is, and its cells are narrow. The table
    is made for a half width between 1/2 and 1 and scaled by a power of two, so that no square in it leaves the range.
    ``fits_table`` tells for which half widths the scaled table stays in range too.
    """
    ratio = widest / half
    half, power = math.frexp(half)
    reach, inner, outer = unit_table(
        half, reject_below, accept_from, math.frexp(ratio)[1] if ratio < math.inf else _NO_END
    )
    return math.ldexp(reach, power), np.ldexp(inner, power), np.ldexp(outer, power)


def fits_table(half: float) -> bool:
    """Tell whether a table's numbers, and 1 over them, are well within the range of doubles."""
    return 1e-290 < half < 1e290


@lru_cache(maxsize=64)
def unit_table(
    half: float, reject_below: float, accept_from: float, widest: int = _NO_END
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return ``curve_table`` for a half width between 1/2 and 1, and s below ``2**widest`` half widths."""
    share = max(reject_below, _LEAST_SHARE)
    reach = half / normal_quantile(0.5 * (1.0 + min(share, 1.0 - 1e-15))) * (1.0 + 1e-6)
    ends_before = reject_below <= _LEAST_SHARE
    if reach > _FAR * half and widest < math.log2(reach / half):
        reach, ends_before = math.ldexp(half, max(widest, 0)), True
    inner, outer = _tabulate(half, reach, reject_below, accept_from)
    inner[-1], outer[-1] = -1.0, np.inf if ends_before else -1.0
    return reach, inner, outer


@kernel
def curve_verdicts(a_mean, a_sd, b_mean, b_sd, left, right, centre, reach, inner, outer, flip, may_accept):
    """Decide Gaussian pairs by the table; with ``flip`` for the outside of the region."""
    verdicts = np.zeros(len(left), dtype=np.int8)
    beyond = float(len(inner) - 1)
    scale = beyond / reach
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        distance = abs(a_mean[i] - b_mean[j] - centre)
        s = root_sum(a_sd[i], b_sd[j])
        place = s * scale
        cell = int(place if place < beyond else beyond)  # compare floats: an integer might overflow
        slack = 1e-15 * (abs(a_mean[i]) + abs(b_mean[j]))
        outcome = 0
        if distance - slack > outer[cell]:
            outcome = -1
        elif distance + slack <= inner[cell]:
            outcome = 1
        if flip:
            outcome = -outcome
        if outcome < 0 or (outcome > 0 and may_accept):
            verdicts[pair] = outcome * CURVE
    return verdicts


@kernel
def line_verdicts(a_mean, a_sd, b_mean, b_sd, left, right, t, sign, z_reject, z_accept, may_accept):
    """Decide ``sign * (D - t) >= 0`` for Gaussian pairs: a straight line in mean and standard deviation."""
    verdicts = np.zeros(len(left), dtype=np.int8)
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        s = root_sum(a_sd[i], b_sd[j])
        if s == 0.0:
            continue
        margin = sign * (a_mean[i] - b_mean[j] - t)
        slack = 1e-15 * (abs(a_mean[i]) + abs(b_mean[j]) + abs(t))
        if margin + slack < z_reject * s:
            verdicts[pair] = -CURVE
        elif may_accept and margin - slack > z_accept * s:
            verdicts[pair] = CURVE
    return verdicts


def gaussian_verdicts(
    parameters: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    left: np.ndarray,
    right: np.ndarray,
    region: Region,
    reject_below: float,
    accept_from: float,
    may_accept: bool,
) -> np.ndarray:
    """Return verdicts for Gaussian pairs (``a_mean, a_sd, b_mean, b_sd`` and row numbers) under any region."""
    if region.one_sided:
        sign, t = (1.0, region.low) if math.isinf(region.high) else (-1.0, region.high)
        z_reject = normal_quantile(reject_below) - 1e-13 if reject_below > 0.0 else -math.inf
        z_accept = normal_quantile(accept_from) + 1e-13 if accept_from < 1.0 else math.inf
        if math.isinf(t):
            return np.zeros(len(left), dtype=np.int8)
        return line_verdicts(*parameters, left, right, t, sign, z_reject, z_accept, may_accept)
    half, centre = 0.5 * region.width, 0.5 * (region.low + region.high)
    widest = math.hypot(*(float(parameters[k].max(initial=0.0)) for k in (1, 3)))
    if not fits_table(half):
        return np.zeros(len(left), dtype=np.int8)
    if region.outside:  # P(outside) >= x is P(inside) <= 1 - x
        table = curve_table(half, 1.0 - accept_from, 1.0 - reject_below, widest)
    else:
        table = curve_table(half, reject_below, accept_from, widest)
    return curve_verdicts(*parameters, left, right, centre, *table, region.outside, may_accept)
