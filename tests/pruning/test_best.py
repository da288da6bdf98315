"""The best pairs of each row against sorting."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import oracle_position
from haply.joins import ranks as ranks_module
from haply.joins.match import Matches
from haply.joins.ranks import RankedPairs, best_of_cell
from haply.models import Gaussian
from haply.numerics.multivariate.disc import disc_chance
from haply.probability.multivariate import Parts
from haply.pruning.best import Best, best_pairs, crowded_pairs, hold, likeliest_pairs, score
from haply.pruning.bounds.discs import along_at_most, disc_at_most, half_space_at_most
from haply.pruning.bounds.positions import limits, near_pairs, ranked, search
from haply.pruning.cascade import Counters
from haply.pruning.threshold import Threshold


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


@pytest.mark.parametrize("seed", range(30))
def test_pairs_of_rows_that_have_a_choice(seed):
    rng = np.random.default_rng(seed)
    count, most, pairs = int(rng.integers(1, 9)), int(rng.integers(1, 4)), int(rng.integers(0, 30))
    rows = rng.integers(0, count, pairs)
    wanted = [pair for pair in range(pairs) if (rows == rows[pair]).sum() > most]
    assert crowded_pairs(rows, count, most).tolist() == wanted


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("cached", [0, 1 << 17])
def test_spreads_and_ranks_are_asked_for_where_pairs_tie_alone(seed, cached, monkeypatch):
    """With more rows than the cache holds, only pairs of rows that have a choice are ranked."""
    monkeypatch.setattr(ranks_module, "_CACHED", cached)
    rng = np.random.default_rng(seed)
    count, most, pairs = int(rng.integers(1, 9)), int(rng.integers(1, 4)), int(rng.integers(0, 60))
    rows, probability = rng.integers(0, count, pairs), rng.integers(0, 5, pairs) / 4
    spreads, ranks = rng.integers(0, 3, pairs).astype(float), rng.permutation(pairs)
    asked = []

    def spread_of(tied):
        asked.extend(tied.tolist())
        return spreads[tied]

    ranked = RankedPairs(rows, count, probability, spread_of)
    first, tied = set(), set()
    for row in range(count):
        own = sorted(np.flatnonzero(rows == row), key=lambda k: (-probability[k], spreads[k], ranks[k]))
        first |= set(own[:most])
        last = own[:most][-1:]
        tied |= {k for k in own for end in last if (probability[k], spreads[k]) == (probability[end], spreads[end])}
    assert set(np.flatnonzero(ranked.best(most, None))) == first | tied
    assert set(np.flatnonzero(ranked.best(most, lambda those: ranks[those]))) == first
    alone = {k for k in range(pairs) if (probability[rows == rows[k]] == probability[k]).sum() == 1}
    if most == 1:
        assert not alone & set(asked)


def test_the_likeliest_pairs_are_the_best_ones():
    rng = np.random.default_rng(7)
    for _ in range(40):
        rows, probability = rng.integers(0, 6, 30), rng.integers(0, 9, 30) / 8
        none = np.zeros(30, np.int64)
        kept, tied = likeliest_pairs(rows, probability, 6)
        assert kept.tolist() == best_pairs(rows, score(probability), np.zeros(30), none, 6, 1, True).tolist()
        assert tied.tolist() == [k for k in np.flatnonzero(kept) if (rows[kept] == rows[k]).sum() > 1]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
def test_a_cell_keeps_all_pairs_that_are_the_best_of_a_row(seed, sides):
    """Of pairs that are not, it may leave out any: those of two sides are carried along where there are few."""
    rng = np.random.default_rng(seed)
    counts, pairs = rng.integers(1, 7, 2), int(rng.integers(0, 30))
    models = tuple(Gaussian(rng.integers(0, 3, count) * 1.0, np.ones(count)) for count in counts)
    rows = tuple(rng.integers(0, count, pairs) for count in counts)
    probability, nothing = rng.integers(0, 5, pairs) / 4, np.zeros(pairs, np.int8)
    found = best_of_cell(Matches(*rows, probability, nothing, Counters(), {}), models, Best(sides))
    got = set(zip(found.left.tolist(), found.right.tolist(), found.probability.tolist(), strict=True))
    apart = (models[0].mean()[rows[0]] - models[1].mean()[rows[1]]) ** 2
    wanted = set()
    for side in sides:
        for row in range(counts[side]):
            own = np.flatnonzero(rows[side] == row)
            if len(own):
                first = min((-probability[k], apart[k]) for k in own)
                wanted |= {k for k in own.tolist() if (-probability[k], apart[k]) == first}
    keys = [(int(rows[0][k]), int(rows[1][k]), float(probability[k])) for k in range(pairs)]
    assert {keys[k] for k in wanted} <= got <= set(keys)
    if len(sides) == 1:
        assert got == {keys[k] for k in wanted}


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
        assert exact <= half_space_at_most(x * x + y * y, along, size)


def test_the_largest_values_are_held():
    rng = np.random.default_rng(6)
    for most in (1, 2, 5):
        held, count, values = np.empty(most), 0, rng.integers(0, 9, 12).astype(float)
        for n, value in enumerate(values, 1):
            count = hold(value, held, count)
            assert held[:count].tolist() == sorted(values[:n].tolist(), reverse=True)[:most]


def _spread_positions(rng, dim, parts):
    """A row with one covariance or several; reaches differ by far more than a class of rows has.

    In four dimensions they do not: the oracle has few nodes on each axis.
    """
    sizes, least = 10.0 ** rng.uniform(-2.0, 0.3, parts), 1e-4 if dim < 4 else 0.1
    roots = rng.normal(size=(parts, dim, dim)) * sizes[:, None, None]
    weight = np.ones(1) if parts == 1 else np.array([0.35, 0.65])
    return weight, rng.uniform(-1.2, 1.2, (parts, dim)), roots @ roots.swapaxes(1, 2) + least * np.eye(dim)


@cache
def _sides_and_chances(dim, parts):
    """Two sides, and the probability of each pair by the oracle, which takes long in four dimensions."""
    rng = np.random.default_rng([dim, parts])
    sides = [[_spread_positions(rng, dim, parts) for _ in range(count)] for count in (20, 24)]
    return sides, oracle_position.near(*sides, 0.9)


@pytest.mark.long(keep=12)
@pytest.mark.parametrize("room", [2, 4096])
@pytest.mark.parametrize("threshold", [0.02, 0.3, 0.7])
@pytest.mark.parametrize(("dim", "parts"), [(1, 1), (2, 1), (2, 2), (3, 1), (4, 1)])
def test_positions_that_may_be_the_best_are_found(dim, parts, threshold, room, monkeypatch):
    """With little room for pairs, rows are walked through again and again."""
    for module in (ranked, search):
        monkeypatch.setattr(module, "FIRST_ROOM", room)
    sides, chance = _sides_and_chances(dim, parts)
    apart = 1e-10 if dim < 4 else 1e-6
    assert (np.abs(chance - threshold) > apart).all()
    chance = np.where(chance > threshold, chance, -1.0)
    models = [
        Parts(np.arange(len(side) + 1) * parts, *(np.concatenate(column) for column in zip(*side, strict=True)))
        for side in sides
    ]
    asked = limits(0.9, Threshold(threshold, False), True, dim)
    for best in (Best((0,)), Best((1,)), Best((0,), 3), Best((1,), 3), Best((0, 1))):
        found = near_pairs(*models, asked, best=best)
        got = dict(zip(zip(*(each.tolist() for each in found.pairs[:2]), strict=True), found.pairs[2], strict=True))
        assert len(got) == len(found.pairs.left)  # each pair once
        assert all(p == pytest.approx(chance[pair], abs=apart) for pair, p in got.items())
        for side in best.sides:
            for row, own in enumerate(chance.T if side else chance):
                for other in np.argsort(-own)[: best.k]:
                    assert own[other] < 0.0 or ((other, row) if side else (row, other)) in got
        counts = found.counters.flat()
        decided = sum(count for name, count in counts.items() if name.startswith(("rejected:", "accepted:")))
        assert counts["candidates"] == decided + counts["evaluated"]
