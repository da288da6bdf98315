"""The best pairs of each row against sorting."""

from __future__ import annotations

import numpy as np
import pytest

from haply.pruning.best import best_pairs, score


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
