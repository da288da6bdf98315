"""Certified bounds on ``P(low <= A - B <= high)`` for a pair of rows, from their cdfs alone.

``support`` here is the rest of a row after tails of 1e-17 are cut, so that every model has a finite support; the lost
mass is far below the slack of the threshold. Upper bounds use closed windows, lower bounds open ones, and both move
their ends by the rounding of a position, so that they hold for atoms and ties as well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.models import OneDimensional
from haply.numerics.jit import inner, kernel
from haply.numerics.rows import Components, row_cdf
from haply.pruning.threshold import CERTAIN_LEVEL

CONCENTRATION, CONTAINMENT, TAILS, SANDWICH, CURVE = 1, 2, 3, 4, 5
RULES = {
    CONCENTRATION: "concentration",
    CONTAINMENT: "containment",
    TAILS: "tails",
    SANDWICH: "sandwich",
    CURVE: "gaussian curve",
}
"""Names of the pair rules, by their code in a verdict (negative: rejected, positive: accepted, 0: undecided)."""

_CUTS = np.array([-4.0, -2.0, -1.0, -0.4, 0.0, 0.4, 1.0, 2.0, 4.0])
_SLACK = 1e-15


class Facts(NamedTuple):
    """The facts about the rows of one side that the bounds use."""

    low: np.ndarray
    high: np.ndarray
    concentration: np.ndarray
    cuts: np.ndarray
    masses: np.ndarray


@kernel
def _cut_rows(rows, low, high, mean, sd, steps):
    """Cut each row's support at its mean and some standard deviations around; return cuts and the mass between."""
    n, parts = len(low), len(steps) + 1
    cuts, masses = np.empty((n, parts + 1)), np.empty((n, parts))
    for i in range(n):
        cuts[i, 0], cuts[i, parts] = low[i], high[i]
        for k in range(len(steps)):
            cuts[i, k + 1] = min(max(mean[i] + steps[k] * sd[i], low[i]), high[i])
        before = 0.0
        for k in range(parts):
            upto = 1.0 if k == parts - 1 else row_cdf(rows, i, cuts[i, k + 1], True)
            masses[i, k] = upto - before
            before = upto
    return cuts, masses


def facts(model: OneDimensional, width: float, with_cuts: bool) -> Facts:
    """Collect the facts that the bounds need; cuts only if the sandwich bound pays."""
    low, high = model.quantile_low(CERTAIN_LEVEL), model.quantile_high(CERTAIN_LEVEL)
    held = model.concentration(width) if math.isfinite(width) else np.ones(len(model))
    cuts, masses = np.empty((0, 0)), np.empty((0, 0))
    if with_cuts:
        cuts, masses = _cut_rows(model.components, low, high, model.mean(), model.deviation(), _CUTS)
    return Facts(np.array(low), np.array(high), held, cuts, masses)


@inner
def _closed_mass(rows, i, left, right):
    """Upper bound on the mass of row ``i`` in the closed ``[left, right]``."""
    slack = _SLACK * (abs(left) + abs(right))
    if right < left - slack:
        return 0.0
    return row_cdf(rows, i, right + slack, True) - row_cdf(rows, i, left - slack, False)


@inner
def _open_mass(rows, i, left, right):
    """Lower bound on the mass of row ``i`` in the open ``(left, right)``."""
    slack = _SLACK * (abs(left) + abs(right))
    if not (left + slack < right - slack):
        return 0.0
    return max(0.0, row_cdf(rows, i, right - slack, False) - row_cdf(rows, i, left + slack, True))


@inner
def concentration_bound(a, a_facts, i, b, b_facts, j, low, high):
    """Upper bound: the mass of ``A`` within reach of ``B``'s support, times the most of ``B`` that one value can meet.

    ``P <= min(M_a * conc_b(high - low), M_b * conc_a(high - low))``, ``M_a = P(A in [b.low + low, b.high + high])``:
    in ``P = E_A P(B in [A - high, A - low])`` the inner probability is at most the concentration. (Cheng et al. 2005,
    Theorem 1, times the concentration.)
    """
    reach_a = _closed_mass(a, i, b_facts.low[j] + low, b_facts.high[j] + high)
    bound = reach_a * b_facts.concentration[j]
    reach_b = _closed_mass(b, j, a_facts.low[i] - high, a_facts.high[i] - low)
    return min(bound, reach_b * a_facts.concentration[i])


@inner
def containment_bound(a, a_facts, i, b, b_facts, j, low, high):
    """Lower bound: the mass of ``A`` for which every value of ``B``'s support fulfils the condition, or vice versa."""
    by_a = _open_mass(a, i, b_facts.high[j] + low, b_facts.low[j] + high)
    by_b = _open_mass(b, j, a_facts.high[i] - high, a_facts.low[i] - low)
    return max(by_a, by_b)


@inner
def tail_bounds(a, a_facts, i, b, b_facts, j, t):
    """Lower and upper bound on ``P(A - B >= t)`` (and on ``>``) as products of independent tails.

    ``1 - (1 - L1)(1 - L2) <= P <= U1 * U2`` with ``L1 = P(A > b.high + t)``, ``L2 = P(B < a.low - t)``,
    ``U1 = P(A >= b.low + t)``, ``U2 = P(B <= a.high - t)``. (Cheng et al. 2005, Theorem 3, in product form.)
    """
    slack = _SLACK * (abs(t) + abs(a_facts.low[i]) + abs(a_facts.high[i]) + abs(b_facts.low[j]) + abs(b_facts.high[j]))
    misses1 = row_cdf(a, i, b_facts.high[j] + t + slack, True)
    misses2 = 1.0 - row_cdf(b, j, a_facts.low[i] - t - slack, False)
    reaches1 = 1.0 - row_cdf(a, i, b_facts.low[j] + t - slack, False)
    reaches2 = row_cdf(b, j, a_facts.high[i] - t + slack, True)
    return 1.0 - misses1 * misses2, reaches1 * reaches2


@inner
def sandwich_bounds(cuts, masses, i, b, j, low, high):
    """Lower and upper bound on ``P(low <= A - B <= high)`` from ``A``'s mass between cuts and ``B``'s cdf at the cuts.

    For ``A`` in ``[x, y]`` the partners lie within ``[x - high, y - low]`` and all of ``[y - high, x - low]`` are
    partners; infinite ends make the one-sided case. (Stieltjes sums.)
    """
    below, above = 0.0, 0.0
    for k in range(masses.shape[1]):
        mass = masses[i, k]
        if mass <= 0.0:
            continue
        x, y = cuts[i, k], cuts[i, k + 1]
        slack = _SLACK * (abs(x) + abs(y))
        if math.isinf(low):
            widest, surest = 1.0, 1.0
        else:
            step = slack + _SLACK * abs(low)
            widest, surest = row_cdf(b, j, y - low + step, True), row_cdf(b, j, x - low - step, False)
        if not math.isinf(high):
            step = slack + _SLACK * abs(high)
            widest -= row_cdf(b, j, x - high - step, False)
            surest -= row_cdf(b, j, y - high + step, True)
        above += mass * min(1.0, widest)
        below += mass * max(0.0, surest)
    return below, above


@kernel
def bound_verdicts(
    a, a_facts, b, b_facts, left, right, low, high, outside, reject_below, accept_from, may_accept, with_cuts
):
    """Decide pairs by the bounds, the cheapest first; 0 if none of them decides."""
    verdicts = np.zeros(len(left), dtype=np.int8)
    one_sided = math.isinf(low) or math.isinf(high)
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        below, above = 0.0, 1.0
        for rule in range(CONCENTRATION, SANDWICH + 1):
            if rule == CONCENTRATION:
                if one_sided or (outside and not may_accept):
                    continue
                above = concentration_bound(a, a_facts, i, b, b_facts, j, low, high)
            elif rule == CONTAINMENT:
                if one_sided or (not outside and not may_accept):
                    continue
                below = containment_bound(a, a_facts, i, b, b_facts, j, low, high)
            elif rule == TAILS:
                if not one_sided:
                    continue
                if math.isinf(high):
                    below, above = tail_bounds(a, a_facts, i, b, b_facts, j, low)
                else:
                    below, above = tail_bounds(b, b_facts, j, a, a_facts, i, -high)
            else:
                if not with_cuts:
                    continue
                below, above = sandwich_bounds(a_facts.cuts, a_facts.masses, i, b, j, low, high)
            least, most = (1.0 - above, 1.0 - below) if outside else (below, above)
            if most <= reject_below - _SLACK:
                verdicts[pair] = -rule
                break
            if may_accept and least >= accept_from:
                verdicts[pair] = rule
                break
    return verdicts


def pays_for_sandwich(a: Components, b: Components) -> bool:
    """Tell whether an exact value costs more than the sandwich's two dozen cdf look-ups: many parts, or cut normals."""
    n, m = max(1, len(a.start) - 1), max(1, len(b.start) - 1)
    cut = bool(np.isfinite(a.low[a.sd > 0.0]).any() and (b.sd > 0.0).any())
    cut = cut or bool(np.isfinite(b.low[b.sd > 0.0]).any() and (a.sd > 0.0).any())
    return cut or len(a.low) / n * (len(b.low) / m) > 24.0 * len(b.low) / m
