"""Rows that several groups decide together, against the same said row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from haply.pruning.groups import choose, residual, settle


def some_rows(seed, groups=3, count=400):
    rng = np.random.default_rng(seed)
    bounds = np.sort(rng.choice([0.0, 0.2, 0.5, 0.9, 1.0], (2, groups, count)), axis=0)
    lower, upper = np.ascontiguousarray(bounds[0]), np.ascontiguousarray(bounds[1])
    computed = rng.random((groups, count)) < 0.5
    upper[computed] = lower[computed]
    rows = np.flatnonzero(rng.random(count) < 0.7)
    return rng, lower, upper, computed, rows


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("accept_from", [0.3, math.inf])
def test_settle(seed, accept_from):
    rng, lower, upper, computed, rows = some_rows(seed)
    rule = rng.integers(1, 9, lower.shape[1]).astype(np.int8)
    code, accepted = np.zeros_like(rule), np.zeros(len(rule), bool)
    left = set(settle(rows, lower, upper, computed, rule, 0.25, accept_from, code, accepted).tolist())
    seen = set()
    for row in range(len(rule)):
        full = all(computed[:, row])
        rejected = math.prod(upper[:, row]) <= 0.25 and not full
        sure = math.prod(lower[:, row]) >= accept_from and not full and not rejected
        if row not in rows:
            full, rejected, sure = True, False, False
        assert (row in left) == (not full and not rejected and not sure)
        assert accepted[row] == sure
        assert code[row] == (-rule[row] if rejected else rule[row] if sure else 0)
        seen.add((full, rejected, sure))
    assert len(seen) == (4 if accept_from < 1.0 else 3)


@pytest.mark.parametrize("seed", range(5))
def test_residual(seed):
    _, _, upper, _, rows = some_rows(seed)
    for but in range(len(upper)):
        found = residual(0.4, rows, upper, but)
        for row, share in zip(rows, found, strict=True):
            others = math.prod(upper[g, row] for g in range(len(upper)) if g != but)
            assert share == pytest.approx(0.4 / others if others else math.inf)
    assert residual(0.0, rows, np.zeros_like(upper), 0).tolist() == [math.inf] * len(rows)


@pytest.mark.parametrize("seed", range(5))
def test_choose(seed):
    rng, lower, upper, computed, rows = some_rows(seed)
    costs, expected, groups = rng.uniform(1.0, 3.0, 3), rng.random(3), np.array([2, 0])
    for row, g in zip(rows, choose(rows, lower, upper, computed, expected, groups, costs), strict=True):
        ranks = {}
        for h in groups:
            low, high = lower[h, row], upper[h, row]
            chance = expected[h] if (low, high) == (0.0, 1.0) else (low + high) / 2.0
            if not computed[h, row]:
                ranks[int(h)] = (1.0 - chance) / costs[h]
        assert g == (max(ranks, key=ranks.__getitem__) if ranks else -1)


def test_a_row_whose_bounds_are_no_numbers_has_a_group_chosen():
    """Planning goes on until every group of an open row is computed, and would do so for ever."""
    nothing, none_yet = np.full((2, 3), math.nan), np.zeros((2, 3), bool)
    none_yet[0, 1] = True
    chosen = choose(np.arange(3), nothing, nothing, none_yet, np.full(2, 0.5), np.array([0, 1]), np.ones(2))
    assert chosen.tolist() == [0, 1, 0]
