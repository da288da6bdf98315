"""Exact probabilities against the independent oracle, for every pair of models."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from engine import model_of
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Samples, TruncatedGaussian, Uniform
from haply.probability import Region, difference_cdf, equal_within, greater, less, region_probability

PAIRS = list(product(oracle.KINDS, oracle.KINDS))


def regions(rng: np.random.Generator) -> list[Region]:
    low, high = np.sort(rng.normal(0, 3, 2))
    c = abs(rng.normal(0, 2))
    return [
        Region(-c, c),
        Region(low, high, low_closed=False, high_closed=False),
        Region(0.0, math.inf, low_closed=False),
        Region(-math.inf, float(low), high_closed=False),
        Region(-c, c, outside=True),
    ]


@pytest.mark.parametrize(("left", "right"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_against_high_precision(left, right):
    """A few pairs of each kind against 50-digit quadrature."""
    rng = np.random.default_rng([oracle.KINDS.index(left), oracle.KINDS.index(right), 1])
    costly = {left, right} & {"truncated", "mixture", "hist"}
    for _ in range(1 if costly else 4):
        a, b = oracle.random_value(rng, left), oracle.random_value(rng, right)
        region = regions(rng)[int(rng.integers(5))]
        wanted = oracle.probability_in(
            a, b, region.low, region.high, region.low_closed, region.high_closed, region.outside, digits=30
        )
        found = region_probability(model_of([a]), model_of([b]), region)[0]
        assert abs(found - float(wanted)) <= 1e-12, (a, b, region)


@pytest.mark.long(keep=20)
@pytest.mark.parametrize(("left", "right"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
@pytest.mark.parametrize("nasty", [False, True], ids=["plain", "nasty"])
def test_against_fast_oracle(left, right, nasty):
    """Many pairs of each kind, tiny widths, ties, zero buckets and outliers included."""
    rng = np.random.default_rng([oracle.KINDS.index(left), oracle.KINDS.index(right), int(nasty)])
    for _ in range(25):
        a = oracle.random_value(rng, left, scale=float(10.0 ** rng.integers(-3, 4)), nasty=nasty)
        b = oracle.random_value(rng, right, scale=float(10.0 ** rng.integers(-3, 4)), nasty=nasty)
        for region in regions(rng):
            arguments = (region.low, region.high, region.low_closed, region.high_closed, region.outside)
            wanted = oracle.probability_float(a, b, *arguments)
            found = region_probability(model_of([a]), model_of([b]), region)[0]
            slack = 1e-10 + oracle.float_slack(a, b, region.low, region.high)
            assert abs(found - wanted) <= slack, (a, b, region)
            assert 0.0 <= found <= 1.0


@pytest.mark.long
def test_extreme_widths():
    """1e-12 beside 1e3, for every pair of continuous kinds."""
    narrow = [
        oracle.Uniform(500.0, 500.0 + 1e-12),
        oracle.Normal(500.0, 1e-12),
        oracle.Truncated(500.0, 1e-12, 499.0, 501.0),
    ]
    wide = [oracle.Uniform(-1e3, 1e3), oracle.Normal(0.0, 1e3), oracle.Truncated(0.0, 1e3, -2e3, 2e3)]
    limits = (0.0, 1e-13, 1e-12, 1.0, 600.0)
    for pairs, within in (
        (product(narrow, wide), limits),
        (product(wide, narrow), limits[2::2]),  # the same turned round
        (product(narrow, narrow), limits[:4]),
    ):
        for (a, b), c in product(pairs, within):
            wanted = float(oracle.probability_in(a, b, -c, c, digits=40))
            found = equal_within(model_of([a]), model_of([b]), c)[0]
            assert abs(found - wanted) <= 1e-12 + oracle.float_slack(a, b, -c, c), (a, b, c)


def test_gaussian_tails_are_relatively_exact():
    for z in (5.0, 10.0, 20.0, 30.0):
        a, b = oracle.Normal(0.0, 0.6), oracle.Normal(z, 0.8)
        wanted = oracle.probability_in(a, b, 0.0, math.inf, low_closed=False)
        assert abs(greater(model_of([a]), model_of([b]))[0] / float(wanted) - 1) < 1e-10
        for c in (1e-6, 0.1, 1.0):
            wanted = oracle.probability_in(a, b, -c, c)
            assert abs(equal_within(model_of([a]), model_of([b]), c)[0] / float(wanted) - 1) < 1e-10


def test_truncated_far_from_its_mean():
    """A normal cut forty standard deviations out is still a distribution, and as exact as any."""
    a, b = oracle.Truncated(0.0, 1.0, 40.0, 42.0), oracle.Truncated(100.0, 1.0, 40.0, 41.0)
    for c in (0.01, 0.3, 0.9):
        wanted = float(oracle.probability_in(a, b, -c, c, digits=40))
        assert abs(equal_within(model_of([a]), model_of([b]), c)[0] - wanted) < 1e-12


def test_atoms_and_ties():
    assert equal_within(Certain(5), Certain(5), 0)[0] == 1.0
    assert greater(Certain(5), Certain(5))[0] == 0.0
    assert less(Certain(5), Certain(5))[0] == 0.0
    assert difference_cdf(Certain(5), Certain(5), 0.0)[0] == 1.0
    assert equal_within(Gaussian(5, 0), Certain(5), 0)[0] == 1.0
    assert equal_within(Uniform(5, 5), TruncatedGaussian(7, 0, 4, 5), 0)[0] == 1.0
    open_region = Region(-1.0, 1.0, low_closed=False, high_closed=False)
    assert region_probability(Certain(1), Certain(0), open_region)[0] == 0.0
    assert region_probability(Samples([[1, 2]]), Certain(0), Region(-1.0, 1.0))[0] == 0.5


def test_single_rows_serve_all():
    found = equal_within(Gaussian([0.0, 1.0, 2.0], [1.0, 1.0, 1.0]), Gaussian(1.0, 1.0), [0.5, 1.0, 1.5])
    assert found.shape == (3,)
    assert found[1] > found[0]
    assert len(equal_within(Gaussian([], []), Gaussian(0, 1), 1.0)) == 0


def test_errors_tell_what_to_do():
    with pytest.raises(HaplyError, match="wrap plain numbers in Certain"):
        equal_within(3.0, Gaussian(0, 1), 1.0)  # type: ignore[arg-type]
    with pytest.raises(HaplyError, match="negative"):
        equal_within(Gaussian(0, 1), Gaussian(0, 1), -1.0)
    with pytest.raises(HaplyError, match="differ in length"):
        greater(Gaussian([0, 1], [1, 1]), Gaussian([0, 1, 2], [1, 1, 1]))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PAIRS), st.integers(0, 2**32 - 1))
def test_complement_and_symmetry(kinds, seed):
    """P(inside) + P(outside) = 1, and swapping the sides mirrors the region."""
    rng = np.random.default_rng(seed)
    a, b = (oracle.random_value(rng, kind, nasty=bool(rng.integers(2))) for kind in kinds)
    one, other = model_of([a]), model_of([b])
    for region in regions(rng):
        mirrored = Region(-region.high, -region.low, region.high_closed, region.low_closed, region.outside)
        found = region_probability(one, other, region)[0]
        assert abs(found - region_probability(other, one, mirrored)[0]) < 1e-12
        if not region.one_sided:
            flipped = Region(region.low, region.high, region.low_closed, region.high_closed, not region.outside)
            assert abs(found + region_probability(one, other, flipped)[0] - 1) < 1e-12
