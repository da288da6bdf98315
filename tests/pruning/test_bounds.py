"""Every rule that skips work is checked against the oracle: no bound may ever be on the wrong side."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from amounts import fewer
from engine import model_of
from haply.models import Gaussian, Uniform
from haply.probability import Region, region_probability
from haply.pruning.bounds import one_dimensional as bounds
from haply.pruning.candidates.curve import best_inside, curve_table, gaussian_verdicts, worst_inside
from haply.pruning.candidates.intervals import accepts_above, accepts_below, pairing, row_intervals
from haply.pruning.threshold import Pairing, Threshold

PAIRS = list(product(oracle.KINDS, oracle.KINDS))
THRESHOLDS = st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.7, 0.75, 0.9, 0.99, 1.0])
seeds = st.integers(0, 2**32 - 1)


def random_region(rng: np.random.Generator) -> Region:
    low, high = np.sort(rng.normal(0, 3, 2)) if rng.integers(3) else np.sort(rng.integers(-4, 5, 2) / 4.0)
    closed = bool(rng.integers(2)), bool(rng.integers(2))
    shape = rng.integers(4)
    if shape == 0:
        return Region(float(low), math.inf, low_closed=closed[0])
    if shape == 1:
        return Region(-math.inf, float(high), high_closed=closed[1])
    return Region(float(low), float(high), *closed, outside=bool(shape == 2))


def random_pair(rng: np.random.Generator, kinds: tuple[str, str]) -> tuple[object, object]:
    nasty = bool(rng.integers(2))
    return tuple(oracle.random_value(rng, kind, scale=float(2.0 ** rng.integers(-4, 3)), nasty=nasty) for kind in kinds)


def probability(a: object, b: object, region: Region) -> float:
    return oracle.probability_float(
        a, b, region.low, region.high, region.low_closed, region.high_closed, region.outside
    )


@settings(max_examples=fewer(400), deadline=None)
@given(st.sampled_from(PAIRS), seeds, THRESHOLDS, st.booleans(), st.booleans(), st.booleans())
def test_row_intervals_decide_rightly(kinds, seed, level, strict, exact, sharp):
    """A pair whose intervals are disjoint is rejected or accepted by that alone."""
    rng = np.random.default_rng(seed)
    (a, b), region, threshold = random_pair(rng, kinds), random_region(rng), Threshold(level, strict)
    left, right = model_of([a]), model_of([b])
    together = pairing(type(left), type(right)) if sharp else Pairing.ANY
    mine = row_intervals(left, True, region, threshold, exact, together)
    theirs = row_intervals(right, False, region, threshold, exact, together)
    p = probability(a, b, region)
    kept = oracle.keeps(p, level, strict, oracle.is_equal_weight(a) and oracle.is_equal_weight(b))
    if oracle.borderline(p, level):
        return
    if mine.hopeless[0] or theirs.hopeless[0]:
        assert not kept, (a, b, region)
    above, below = mine.start[0] > theirs.end[0], mine.end[0] < theirs.start[0]
    for decided, accepts in ((above, accepts_above(region)), (below, accepts_below(region))):
        if decided and accepts and threshold.attainable:
            assert kept, (a, b, region, p)
            if exact:
                assert p >= 1.0 - 1e-14
        if decided and not accepts:
            assert not kept, (a, b, region, p)


@pytest.mark.parametrize("kind", oracle.KINDS)
def test_a_row_has_one_interval_whatever_rows_come_with_it(kind):
    """To the last digit: parts of a plan that see rows in other batches must agree on where they lie."""
    rng = np.random.default_rng(8)
    values = [oracle.random_value(rng, kind, nasty=bool(k % 2)) for k in range(67)]
    whole, few = model_of(values), np.sort(rng.permutation(67)[:21])
    alone = [model_of([value]) for value in values]
    for _ in range(fewer(20)):
        threshold = Threshold(float(rng.choice([0.01, 0.3, 0.8])), bool(rng.integers(2)))
        asked = bool(rng.integers(2)), random_region(rng), threshold, bool(rng.integers(2))
        found = row_intervals(whole, *asked)
        part = row_intervals(model_of([values[k] for k in few]), *asked)
        for name in ("start", "end", "hopeless"):
            np.testing.assert_array_equal(getattr(part, name), getattr(found, name)[few])
            singly = [getattr(row_intervals(each, *asked), name)[0] for each in alone]
            np.testing.assert_array_equal(singly, getattr(found, name))


@settings(max_examples=fewer(300), deadline=None)
@given(st.sampled_from(PAIRS), seeds)
def test_bounds_enclose_the_probability(kinds, seed):
    rng = np.random.default_rng(seed)
    a, b = random_pair(rng, kinds)
    left, right = model_of([a]), model_of([b])
    low, high = np.sort(rng.normal(0, 3, 2))
    rows = (
        left.components,
        bounds.facts(left, high - low, True),
        0,
        right.components,
        bounds.facts(right, high - low, False),
        0,
    )
    inside = probability(a, b, Region(low, high))
    strictly = probability(a, b, Region(low, high, low_closed=False, high_closed=False))
    slack = 1e-11
    assert bounds.concentration_bound(*rows, low, high) >= inside - slack
    assert bounds.containment_bound(*rows, low, high) <= strictly + slack
    cuts = rows[1].cuts, rows[1].masses, 0, right.components, 0
    for ends in ((low, high), (low, math.inf), (-math.inf, high)):
        below, above = bounds.sandwich_bounds(*cuts, *ends)
        assert below <= probability(a, b, Region(*ends, low_closed=False, high_closed=False)) + slack
        assert above >= probability(a, b, Region(*ends)) - slack
    below, above = bounds.tail_bounds(*rows, low)
    assert below <= probability(a, b, Region(low, math.inf, low_closed=False)) + slack
    assert above >= probability(a, b, Region(low, math.inf)) - slack


@settings(max_examples=fewer(300), deadline=None)
@given(st.sampled_from(PAIRS), seeds, THRESHOLDS, st.booleans())
def test_bound_verdicts_agree_with_the_exact_value(kinds, seed, level, strict):
    rng = np.random.default_rng(seed)
    (a, b), region, threshold = random_pair(rng, kinds), random_region(rng), Threshold(level, strict)
    left, right = model_of([a]), model_of([b])
    row = np.zeros(1, dtype=np.int32)
    verdict = bounds.bound_verdicts(
        left.components, bounds.facts(left, region.width, True),
        right.components, bounds.facts(right, region.width, False), row, row,
        region.low, region.high, region.outside, threshold.reject_below, threshold.accept_from, True, True,
    )[0]  # fmt: skip
    p = probability(a, b, region)
    if verdict and not oracle.borderline(p, level):
        kept = oracle.keeps(p, level, strict, oracle.is_equal_weight(a) and oracle.is_equal_weight(b))
        assert kept == (verdict > 0), (a, b, region, p, bounds.RULES[abs(int(verdict))])


@settings(max_examples=60, deadline=None)
@given(seeds, THRESHOLDS, st.booleans())
def test_gaussian_curve_agrees_with_the_exact_value(seed, level, strict):
    """Thousands of pairs on both sides of the curve, and never a wrong verdict."""
    rng = np.random.default_rng(seed)
    region, threshold = random_region(rng), Threshold(level, strict)
    n = 4000
    means, sds = rng.normal(0, 4, 2 * n), rng.choice([0.0, 0.1, 1.0, 3.0], 2 * n) * rng.uniform(0, 1, 2 * n)
    left, right = Gaussian(means[:n], sds[:n]), Gaussian(means[n:], sds[n:])
    rows = np.arange(n, dtype=np.int32)
    parameters = (means[:n], sds[:n], means[n:], sds[n:])
    verdicts = gaussian_verdicts(parameters, rows, rows, region, threshold.reject_below, threshold.accept_from, True)
    kept = threshold.keep(region_probability(left, right, region), False)
    assert (kept[verdicts > 0]).all()
    assert not (kept[verdicts < 0]).any()
    if region.width > 0 and 0.05 < level < 0.95:
        assert (verdicts != 0).mean() > 0.9


def test_curve_cells_hold_their_extremes():
    """No s of a cell beats the claimed best, or falls below the claimed worst."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        m, half = abs(rng.normal(0, 3)), rng.uniform(0.1, 3)
        s1, s2 = np.sort(rng.uniform(0.01, 5, 2))
        grid = Gaussian(np.full(200, m), np.linspace(s1, s2, 200))
        inside = region_probability(grid, Gaussian(0, 0), Region(-half, half))
        assert inside.max() <= best_inside(m, s1, s2, half) + 1e-12
        assert inside.min() >= worst_inside(m, s1, s2, half) - 1e-12


def test_curve_is_thin():
    """The band between inner and outer curve is where pairs must be evaluated: it is a small part of the whole."""
    _, inner, outer = curve_table(1.0, 0.7 - 2e-12, 0.7 + 2e-12)
    assert (outer >= inner).all()
    assert np.mean(outer - np.maximum(inner, 0.0)) < 0.01


@pytest.mark.parametrize("level", [1e-2, 1e-7, 1e-11, 1e-15, 1e-30])
def test_low_limits_are_decided_by_the_curve(level):
    """Rows are narrow beside the reach of a low limit: the table is as wide as they are, and decides nearly all."""
    rng = np.random.default_rng(5)
    n = 4000
    mean, sd = rng.uniform(-12.0, 12.0, (2, n)), rng.uniform(0.1, 1.0, (2, n))
    rows = np.arange(n)
    parameters = (mean[0], sd[0], mean[1], sd[1])
    verdicts = gaussian_verdicts(parameters, rows, rows, Region(-1.0, 1.0), level, level, True)
    spread = np.hypot(*sd)
    for away, width, verdict in zip(np.abs(mean[0] - mean[1]), spread, verdicts, strict=True):
        exact = 0.5 * (
            math.erfc((away - 1.0) / width / math.sqrt(2.0)) - math.erfc((away + 1.0) / width / math.sqrt(2.0))
        )
        assert verdict >= 0 or exact <= level
        assert verdict <= 0 or exact >= level
    assert (verdicts == 0).mean() < 0.03
    assert (verdicts < 0).sum() > 100 < (verdicts > 0).sum()


@pytest.mark.parametrize("level", [0.3, 0.7, 0.75, 0.9])
def test_core_regions_find_fewer_candidates_than_moments(level):
    """The claim of the design: fewer candidates than the moment test at every threshold, and no pair missed."""
    rng = np.random.default_rng(3)
    n = 1000
    left, right = (Gaussian(rng.uniform(0, 300, n), rng.uniform(0.1, 3, n)) for _ in range(2))
    region, threshold = Region(-2.0, 2.0), Threshold(level)
    mine, theirs = (
        row_intervals(left, True, region, threshold, True),
        row_intervals(right, False, region, threshold, True),
    )
    by_core = (mine.start[:, None] <= theirs.end) & (theirs.start <= mine.end[:, None])
    distance = np.abs(left.mean()[:, None] - right.mean())
    sd = np.sqrt(left.sd[:, None] ** 2 + right.sd**2)
    by_moments = distance - math.sqrt((1 - level) / level) * sd <= 2.0
    i, j = np.divmod(np.arange(n * n, dtype=np.int32), n)
    p = region_probability(left.take(i), right.take(j), region).reshape(n, n)
    assert by_core[p >= level].all()
    assert by_core.sum() < by_moments.sum()


def trapezoid_below(t, left, right):
    """``P(left - right <= t)`` by second differences of squares: simple, and good to ten digits here."""
    corners = (left.lo - right.hi, left.lo - right.lo, left.hi - right.hi, left.hi - right.lo)
    squares = [np.maximum(0.0, t - corner) ** 2 for corner in corners]
    area = 2 * (left.hi - left.lo) * (right.hi - right.lo)
    return (squares[0] - squares[1] - squares[2] + squares[3]) / area


@pytest.mark.parametrize("level", [0.01, 0.3, 0.5, 0.500001, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("exact", [True, False])
def test_uniform_pairs_may_be_cut_deeper(level, exact):
    """The sharper levels of two uniforms, on pairs so many that some lie at the very edge of the cut."""
    rng = np.random.default_rng(int(level * 1e6))
    n = 200_000
    lengths = rng.choice([1e-3, 0.3, 1.0], (2, n)) + rng.choice([0.0, 1.0], (2, n)) * rng.random((2, n))
    lo = np.stack([rng.uniform(-3, 3, n), np.zeros(n)])
    left, right = (Uniform(low, low + length) for low, length in zip(lo, lengths, strict=True))
    threshold = Threshold(level)
    for region in (Region(-0.5, 0.5), Region(0.25, math.inf), Region(-math.inf, 0.25), Region(-0.5, 0.5, outside=True)):
        mine = row_intervals(left, True, region, threshold, exact, Pairing.UNIFORM)
        theirs = row_intervals(right, False, region, threshold, exact, Pairing.UNIFORM)
        ends = [end for end in (region.low, region.high) if math.isfinite(end)]
        below = [trapezoid_below(end, left, right) for end in ends]
        p = below[-1] - below[0] if len(ends) == 2 else below[0] if math.isinf(region.low) else 1.0 - below[0]
        kept = (1.0 - p if region.outside else p) >= level
        clear = np.abs((1.0 - p if region.outside else p) - level) > 1e-8
        above, under = mine.start > theirs.end, mine.end < theirs.start
        for decided, accepts in ((above, accepts_above(region)), (under, accepts_below(region))):
            assert decided.any()
            assert (kept == accepts)[decided & clear].all()
