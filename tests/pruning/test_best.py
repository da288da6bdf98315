"""The best pairs of each row against sorting."""

from __future__ import annotations

import numpy as np
import pytest

from haply.numerics.multivariate.disc import disc_chance
from haply.pruning.best import best_pairs, hold, score
from haply.pruning.bounds.discs import along_at_most, disc_at_most


@pytest.mark.parametrize("seed", range(40))
def test_best_pairs_are_the_first_of_a_sort(seed):
    rng = np.random.default_rng(seed)
    count, most, pairs = int(rng.integers(1, 9)), int(rng.integers(1, 5)), int(rng.integers(0, 60))
    rows = rng.integers(0, count, pairs)
    scores, spreads = score(rng.integers(0, 4, pairs) / 4), rng.integers(0, 3, pairs).astype(float)
    ranks = rng.integers(0, 3, pairs)
    first, tied = set(), set()
    for row in range(count):
        own = [k for k in range(pairs) if rows[k] == row]
        ordered = sorted(own, key=lambda k: (-scores[k], spreads[k], ranks[k], k))[:most]
        first |= set(ordered)
        tied |= (
            {k for k in own if (scores[k], spreads[k]) == (scores[ordered[-1]], spreads[ordered[-1]])} if own else set()
        )
    assert set(np.flatnonzero(best_pairs(rows, scores, spreads, ranks, count, most, False))) == first
    assert set(np.flatnonzero(best_pairs(rows, scores, spreads, ranks, count, most, True))) == first | tied


def test_probabilities_that_only_rounding_tells_apart_tie():
    assert len(set(score(np.array([0.3, 0.1 + 0.2, 0.3 + 1e-14])))) == 1
    assert score(np.array([0.3]))[0] < score(np.array([0.3 + 2e-12]))[0]


def test_bounds_of_discs_hold_for_every_normal():
    rng = np.random.default_rng(5)
    for _ in range(4000):
        size = 10.0 ** rng.uniform(-2, 2)
        root = rng.normal(size=(2, 2)) * 10.0 ** rng.uniform(-2, 1, (1, 2))
        (xx, xy), (_, yy) = root @ root.T
        x, y = rng.normal(size=2) * rng.choice([0.0, 0.1, 1.0, 3.0]) * size
        exact = disc_chance(x, y, xx, xy, yy, size * size, np.empty(2), np.empty(2))
        assert exact <= disc_at_most(x, y, xx, xy, yy, size * size)
        along = x * x * xx + 2 * x * y * xy + y * y * yy
        assert exact <= along_at_most(x * x + y * y, along, size)


def test_the_largest_values_are_held():
    rng = np.random.default_rng(6)
    for most in (1, 2, 5):
        held, count, values = np.empty(most), 0, rng.integers(0, 9, 12).astype(float)
        for n, value in enumerate(values, 1):
            count = hold(value, held, count)
            assert held[:count].tolist() == sorted(values[:n].tolist(), reverse=True)[:most]
