"""The joins in one pass: their normal masses are exact, and they find what the general path finds."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from amounts import fewer
from haply.joins.match import match_overlapping
from haply.models import Gaussian, Uniform
from haply.probability import Region
from haply.probability.exact import PairProbability
from haply.pruning.best import Best
from haply.pruning.candidates import gaussian, one_pass
from haply.pruning.candidates.gaussian import gaussian_pass
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.candidates.uniform import uniform_pass
from haply.pruning.threshold import Pairing, Threshold


def test_mass_from_centre_is_half_the_error_function():
    for z in np.concatenate([np.linspace(-9, 9, 5001), [0.0, 8.4999, 8.5, 40.0, 1e300]]):
        assert abs(gaussian.mass_from_centre(z) - 0.5 * math.erf(z / math.sqrt(2))) < 2.5e-16


def gaussians(rng, n):
    return Gaussian(rng.uniform(0, 10, n), rng.choice([0.0, 0.2, 1.0], n) * rng.uniform(0.5, 1, n))


def uniforms(rng, n):
    """Lengths from tiny to wide, some with ends on a grid, so that ends meet."""
    low = np.where(rng.random(n) < 0.5, rng.uniform(0, 10, n), rng.integers(0, 10, n))
    length = np.where(rng.random(n) < 0.5, rng.choice([1e-9, 0.1, 1.0, 4.0], n) * rng.uniform(0.5, 1, n), 0.5)
    return Uniform(low, low + length)


@settings(max_examples=fewer(400), deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.05, 0.3, 0.5, 0.7, 0.9, 1.0]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(1, 1), (3, 5), (7, 50), (1 << 12, 1 << 12)]),
    st.sampled_from(
        [
            (gaussians, gaussian_pass, Pairing.ANY),
            (gaussians, gaussian_pass, Pairing.GAUSSIAN),
            (uniforms, uniform_pass, Pairing.ANY),
            (uniforms, uniform_pass, Pairing.UNIFORM),
        ]
    ),
)
def test_finds_every_pair_once(seed, level, strict, exact, room, kind):
    make, prepared, together = kind
    rng = np.random.default_rng(seed)
    n, m = rng.integers(0, 60, 2)
    sides = make(rng, n), make(rng, m)
    low, high = np.sort(rng.normal(0, 1.5, 2)) if rng.random() < 0.5 else (-1.0, 1.0)
    region = Region(low, high, bool(rng.integers(2)), bool(rng.integers(2)))
    threshold = Threshold(level, strict)
    intervals = [
        row_intervals(side, left, region, threshold, exact, together)
        for side, left in zip(sides, (True, False), strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_pass, "HELD", room[0])
        patch.setattr(one_pass, "_LEAST_CAPACITY", room[1])
        patch.setattr(one_pass, "_CAPACITY", room[1])
        found = prepared(*sides, *intervals, -np.inf, region, threshold, exact).whole()
    i, j = (index.astype(np.int32) for index in np.divmod(np.arange(n * m), max(1, m)))
    p = PairProbability(*sides, region).evaluate(i, j)
    kept = threshold.keep(p, False)
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert sorted(pairs) == sorted(zip(i[kept].tolist(), j[kept].tolist(), strict=True))
    assert found.candidates == found.rejected + found.accepted + found.evaluated
    wanted = p.reshape(n, m)[found.left, found.right] if len(pairs) else np.empty(0)
    if exact:
        assert np.abs(found.probability - wanted).max(initial=0.0) < 1e-14
        assert found.accepted == 0
    labels = np.arange(100, 100 + n), np.arange(200, 200 + m)
    named = prepared(*sides, *intervals, -np.inf, region, threshold, exact, labels).whole()
    assert sorted(zip(named.left - 100, named.right - 200, strict=True)) == sorted(pairs)


@settings(max_examples=fewer(150), deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.05, 0.3, 0.5, 0.7, 0.9]),
    st.booleans(),
    st.sampled_from([1, 2, 3, 7, 40]),
    st.sampled_from([(gaussians, gaussian_pass, Pairing.GAUSSIAN), (uniforms, uniform_pass, Pairing.UNIFORM)]),
)
def test_parts_find_the_pairs_of_the_oracle_once(seed, level, exact, count, kind):
    """However the sorted rows are shared, on threads too; and parts together have the candidates of the whole."""
    make, prepared, together = kind
    rng = np.random.default_rng(seed)
    sides = [make(rng, n) for n in rng.integers(0, 12, 2)]
    wide = rng.random() < 0.5  # some of such rows meet those of all other parts
    region, threshold = Region(-4.0, 4.0) if wide else Region(-1.0, 1.0), Threshold(level)
    intervals = [
        row_intervals(side, left, region, threshold, exact, together)
        for side, left in zip(sides, (True, False), strict=True)
    ]
    labels = tuple(rng.permutation(len(side)) for side in sides)
    one_pass_of = prepared(*sides, *intervals, -np.inf, region, threshold, exact, labels)
    with ThreadPoolExecutor(2) as pool:
        parts = list(one_pass_of.parts(count, pool.map))
    found = [(int(i), int(j)) for part in parts for i, j in zip(part.left, part.right, strict=True)]
    assert len(set(found)) == len(found)
    for i, j in itertools.product(range(len(sides[0])), range(len(sides[1]))):
        p = oracle.probability_float(as_oracle(sides[0], i), as_oracle(sides[1], j), region.low, region.high)
        if not oracle.borderline(p, level):
            assert ((labels[0][i], labels[1][j]) in found) == oracle.keeps(p, level)
    whole = one_pass_of.whole()
    assert sorted(found) == sorted(zip(whole.left.tolist(), whole.right.tolist(), strict=True))
    for name in ("candidates", "rejected", "accepted", "evaluated"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name)


@settings(max_examples=fewer(150), deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.05, 0.3, 0.7]),
    st.sampled_from([1, 2, 7]),
    st.sampled_from([Best((0,)), Best((1,)), Best((0, 1)), Best((0,), 2), Best((0, 1), 3)]),
)
def test_parts_leave_out_only_pairs_that_are_not_among_the_best(seed, level, count, best):
    rng = np.random.default_rng(seed)
    sides = [gaussians(rng, n) for n in rng.integers(0, 30, 2)]
    region, threshold = Region(-3.0, 3.0), Threshold(level)
    intervals = [
        row_intervals(side, left, region, threshold, True, Pairing.GAUSSIAN)
        for side, left in zip(sides, (True, False), strict=True)
    ]
    labels = tuple(100 * rng.permutation(len(side)) for side in sides)
    one_pass_of = gaussian_pass(*sides, *intervals, -np.inf, region, threshold, True, labels, best)
    with ThreadPoolExecutor(2) as pool:
        parts = list(one_pass_of.parts(count, pool.map))
    found = [(int(i), int(j)) for part in parts for i, j in zip(part.left, part.right, strict=True)]
    assert len(set(found)) == len(found)
    chance = {
        (i, j): oracle.probability_float(as_oracle(sides[0], i), as_oracle(sides[1], j), region.low, region.high)
        for i, j in itertools.product(range(len(sides[0])), range(len(sides[1])))
    }
    for (i, j), p in chance.items():
        kept = (labels[0][i], labels[1][j]) in found
        if kept:
            assert p >= level - 1e-12
        rivals = [[q for pair, q in chance.items() if pair[side] == (i, j)[side]] for side in best.sides]
        is_best = any(sum(q > p - 1e-11 for q in each) <= best.k for each in rivals)
        if is_best and oracle.keeps(p, level) and not oracle.borderline(p, level):
            assert kept


def as_oracle(model, row):
    if isinstance(model, Gaussian):
        return oracle.Normal(float(model.values["mean"][row]), float(model.sd[row]))
    return oracle.Uniform(float(model.lo[row]), float(model.hi[row]))


def test_thresholds_that_rounding_hides_are_not_for_the_one_pass():
    """Rows reach without end then; and what is less than 1e-12 below the threshold is kept, so that every pair is."""
    region = Region(-1.0, 1.0)
    assert one_pass.fits(region, Threshold(1e-11))
    assert not one_pass.fits(region, Threshold(1e-13))
    model = Gaussian(np.array([0.0, 3.0, 40.0]), np.array([1.0, 0.5, 1.0]))
    found = [row_intervals(model, is_left, region, Threshold(1e-13), True) for is_left in (True, False)]
    matches = match_overlapping(model, model, *found, region, Threshold(1e-13), True)
    assert len(matches.left) == 9
    assert matches.counters.candidates == 9
