"""Combine bounds of several independent groups of conditions: which rows are decided, and which group is next.

Groups have bounds of their probability for each row, ``lower`` and ``upper`` (groups, rows); the probability of a row
is the product.
"""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.jit import bare


@bare
def _others(bounds, row, but):
    found = 1.0
    for g in range(len(bounds)):
        if g != but:
            found *= bounds[g, row]
    return found


@bare
def _residual_rows(needed, rows, bounds, but, found):
    for k in range(len(rows)):
        share = needed / _others(bounds, rows[k], but)
        found[k] = math.inf if math.isnan(share) else share


def residual(needed: float, rows: np.ndarray, bounds: np.ndarray, but: int) -> np.ndarray:
    """Return the bound that one group must have for the product to be ``needed``, given the bounds of the others."""
    found = np.empty(len(rows))
    _residual_rows(float(needed), rows, bounds, but, found)
    return found


@bare
def _settle_rows(rows, lower, upper, computed, rule, reject_below, accept_from, code, accepted, left):
    count = 0
    for row in rows:
        full = True
        for g in range(len(computed)):
            full = full and computed[g, row]
        if full:
            continue
        if _others(upper, row, -1) <= reject_below:
            code[row] = -rule[row]
        elif _others(lower, row, -1) >= accept_from:
            code[row] = rule[row]
            accepted[row] = True
        else:
            left[count] = row
            count += 1
    return count


def settle(
    rows: np.ndarray, lower: np.ndarray, upper: np.ndarray, computed: np.ndarray, rule: np.ndarray,
    reject_below: float, accept_from: float, code: np.ndarray, accepted: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Return the rows that are still open; write the deciding code of the others, and mark them if accepted.

    Rows whose groups are all computed are decided by their value, at the end. With an infinite ``accept_from`` no row
    is accepted.
    """
    left = np.empty_like(rows)
    args = rule, float(reject_below), float(accept_from), code, accepted, left
    return left[: _settle_rows(rows, lower, upper, computed, *args)]


@bare
def likely(low, high, expected):
    """Return the selectivity of a group for a row: the middle of its bounds, or ``expected`` if they say nothing."""
    return expected if low <= 0.0 and high >= 1.0 else 0.5 * (low + high)


@bare
def _choose_rows(rows, lower, upper, computed, expected, groups, costs, chosen):
    for k in range(len(rows)):
        row, highest = rows[k], -math.inf
        for g in groups:
            if not computed[g, row]:
                rank = (1.0 - likely(lower[g, row], upper[g, row], expected[g])) / costs[g]
                if chosen[k] < 0 or rank > highest:  # choose one in any case, also if bounds are NaN
                    chosen[k], highest = g, rank


def choose(
    rows: np.ndarray, lower: np.ndarray, upper: np.ndarray, computed: np.ndarray, expected: np.ndarray,
    groups: np.ndarray, costs: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Choose for each row the group, of those not computed, that is most likely to reject it for its price.

    If bounds say nothing, the group's expected probability is used instead.
    """
    chosen = np.full(len(rows), -1)
    _choose_rows(rows, lower, upper, computed, expected, groups, costs, chosen)
    return chosen
