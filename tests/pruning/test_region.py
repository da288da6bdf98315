"""Filters for regions: golden values, and no row that passes is ever rejected or one that fails accepted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mpf
from scipy import special

import goldens
import oracle_region
from amounts import fewer
from haply.errors import HaplyError
from haply.models import GaussianND, MixtureND, Samples
from haply.probability import box, box_probability, form_probability, quadratic
from haply.probability.multivariate import canonical_forms, form_estimate
from haply.pruning.bounds.region import (
    CANTELLI,
    CHERNOFF,
    DISTANCE,
    MARGINALS,
    MARKOV,
    SLAB,
    STRIPS,
    Box,
    Quadratic,
    box_bounds,
    box_distance,
    cantelli_form,
    chebyshev,
    chi_square_above,
    decide_regions,
    distance_bounds,
    form_bounds,
    form_distance,
    interval_bounds,
    markov,
    selberg,
    slab_bound,
    slab_bounds,
)
from haply.pruning.threshold import Threshold

S8 = np.array([[1, 0.9], [0.9, 2.25]])


def golden(name):
    return [float(mpf(each)) for each in goldens.REGION_BOUNDS[name]]


def forms(rng, count, dim):
    """Random forms of every kind: all signs, flat directions, tiny and huge curves, far and central limits."""
    curve = rng.normal(size=(count, dim)) * np.exp(rng.uniform(-4, 4, (count, dim)))
    slope = rng.normal(size=(count, dim)) * np.exp(rng.uniform(-3, 3, (count, dim)))
    kind = rng.integers(0, 6, count)[:, None]
    curve = np.where(kind == 0, np.abs(curve), np.where(kind == 1, -np.abs(curve), curve))
    curve = np.where(kind == 2, np.abs(rng.normal(size=(count, 1))), curve)
    curve[:, 0] = np.where(kind[:, 0] == 3, 0.0, curve[:, 0])
    slope = np.where(kind == 4, 0.0, slope)
    spread = np.sqrt((2 * curve**2 + 4 * slope**2).sum(axis=1))
    limit = curve.sum(axis=1) + spread * rng.normal(size=count) * rng.choice([0.3, 1.0, 3.0], count)
    return curve, slope, limit


# ---------------------------------------------------------------------------------------------------------------------
# Golden values and formulas


def test_cantelli_on_a_form_p14():
    curve, slope, constant = canonical_forms([1, 2], S8, [[2, 0.5], [0.5, 1]])
    mean, variance, bound = golden("P14")
    assert abs(constant[0] + curve.sum() - mean) < 1e-12
    assert abs((2 * curve**2 + 4 * slope**2).sum() - variance) < 1e-10
    assert abs(cantelli_form(curve[0], slope[0], 4 - constant[0])[1] - bound) < 1e-14


def test_two_sides_p15_p16():
    paper, sharp = golden("P15")
    assert abs(chebyshev(1.0, 1.5, 2.0) - paper) < 1e-15
    assert abs(selberg(1.0, 1.5, 2.0) - sharp) < 1e-15
    lower, upper = interval_bounds(0.5, 1.0, -1.0, 2.5, outside=True)
    assert (lower[0], upper[0]) == (0.0, pytest.approx(sharp, abs=1e-15))
    for mean, wanted in zip((1.0, 0.2), golden("P16"), strict=True):
        assert abs(interval_bounds(mean, 1.0, -3.0, 3.0, outside=True)[1][0] - wanted) < 1e-15


def test_slab_p19():
    curve, slope, constant = canonical_forms([1, 2], S8, np.eye(2))
    slab = slab_bound(curve[0], slope[0], 4 - constant[0], 1.0)
    assert abs(slab - golden("P19")[0]) < 1e-14
    assert slab_bounds(curve[0], slope[0], 4 - constant[0])[1] <= slab


def test_distances_p20_p21():
    curve, slope, constant = canonical_forms([1, 2], S8, np.eye(2))
    square, bound = golden("P20")
    distance = form_distance(curve[0], slope[0], 1.0, 4 - constant[0])
    assert abs(distance**2 - square) < 1e-12
    assert abs(distance_bounds(distance, 0.0, 2, True, False, True)[1] - bound) < 1e-12
    curve, slope, constant = canonical_forms([0.3, 0.1], S8, np.eye(2))
    square, bound = golden("P21")
    depth = form_distance(curve[0], slope[0], -1.0, -(4 - constant[0]))
    assert abs(depth**2 - square) < 1e-12
    assert abs(distance_bounds(0.0, depth, 2, True, False, True)[0] - bound) < 1e-12


def test_chi_square_tails():
    for dim in range(1, 9):
        for square in (0.0, 1e-6, 0.5, 3.0, 20.0, 400.0):
            wanted = special.gammaincc(0.5 * dim, 0.5 * square)
            assert chi_square_above(square, dim) == pytest.approx(wanted, rel=1e-12)


def test_distances_are_the_oracles_and_never_more():
    rng = np.random.default_rng(1)
    tight = 0
    for case in range(fewer(90)):
        dim = 2 + case % 3
        root = rng.normal(size=(dim, dim))
        cov = root @ root.T + 1e-3 * np.eye(dim)
        mean, low = rng.normal(size=dim) * 3, rng.normal(size=dim)
        high = low + rng.uniform(0.1, 2, dim)
        found = box_distance(mean, cov, low, high, np.empty(dim), np.empty((dim, dim + 1)))
        wanted = oracle_region.box_distance(mean, cov, low, high)
        assert found <= wanted * (1 + 1e-7) + 1e-7
        tight += found >= wanted * (1 - 1e-6) - 1e-6
        radius = rng.uniform(0.5, 4)
        curve, slope, constant = canonical_forms(mean[:2], cov[:2, :2], np.eye(2))
        inside = np.hypot(*mean[:2]) < radius
        sign = -1.0 if inside else 1.0
        found = form_distance(curve[0], slope[0], sign, sign * (radius**2 - constant[0]))
        assert found == pytest.approx(oracle_region.circle_distance(mean[:2], cov[:2, :2], radius), rel=1e-7, abs=1e-7)
    assert tight > 0.9 * fewer(90)
    # a half-space, the hard case of the secular equation, an empty region, and a point
    assert form_distance(np.zeros(1), np.array([1.0]), 1.0, -6.0) == pytest.approx(3.0)
    assert form_distance(np.array([4.0, 1.0]), np.zeros(2), -1.0, -8.0) == pytest.approx(math.sqrt(2.0))
    assert form_distance(np.array([1.0, 2.0]), np.zeros(2), 1.0, -1e-9) == math.inf
    assert (
        box_distance(np.zeros(2), np.zeros((2, 2)), np.ones(2), 2 * np.ones(2), np.empty(2), np.empty((2, 3)))
        == math.inf
    )


# ---------------------------------------------------------------------------------------------------------------------
# Soundness


@pytest.mark.parametrize("rule", [CANTELLI, DISTANCE, SLAB, CHERNOFF, STRIPS, MARKOV])
def test_bounds_on_forms_hold(rule):
    rng = np.random.default_rng(rule)
    said = 0
    for dim in (1, 2, 3, 5):
        curve, slope, limit = forms(rng, 700, dim)
        estimate = form_estimate(type(canonical_forms([0], [[1]], [[1]]))(curve, slope, np.zeros(700)), limit)
        assert estimate.error.max() < 1e-12
        for row in range(700):
            lower, upper = form_bounds(rule, curve[row], slope[row], limit[row], rule != MARKOV)
            assert lower <= estimate.value[row] + 1e-13
            assert upper >= estimate.value[row] - 1e-13
            said += lower > 0.0 or upper < 1.0
    assert said > 300


@pytest.mark.parametrize(
    ("rule", "gaussian"), [(MARGINALS, True), (DISTANCE, True), (CANTELLI, False), (DISTANCE, False)]
)
def test_bounds_on_boxes_hold(rule, gaussian):
    rng = np.random.default_rng(20 + rule)
    for dim, count in ((1, 300), (2, 1200), (3, 60)):
        root = rng.normal(size=(count, dim, dim)) * np.exp(rng.uniform(-3, 3, (count, 1, dim)))
        cov = root @ root.transpose(0, 2, 1)
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        mean, middle = rng.normal(size=(count, dim)) * sd, rng.normal(size=(count, dim)) * sd * 2
        half = np.exp(rng.uniform(-2, 2, (count, dim))) * sd
        low, high = middle - half, middle + half
        low[::9] = -math.inf
        exact, room = box_probability(mean, cov, low, high), (np.empty(dim), np.empty((dim, dim + 1)))
        for row in range(count):
            lower, upper = box_bounds(rule, mean[row], cov[row], low[row], high[row], gaussian, *room)
            assert lower - 1e-13 <= exact[row] <= upper + 1e-13


def test_bounds_for_any_law_hold_for_the_worst_laws():
    """Two- and three-point laws, which are where moment bounds are sharp."""
    rng = np.random.default_rng(3)
    for _ in range(fewer(3000)):
        points, weight = rng.normal(size=3), rng.dirichlet(np.ones(3) * 0.5)
        mean = weight @ points
        sd = math.sqrt(weight @ (points - mean) ** 2)
        low, high = np.sort(rng.choice([*points, *rng.normal(size=2)], 2, replace=False))
        closed, opened = (points >= low) & (points <= high), (points > low) & (points < high)
        lower, upper = interval_bounds(mean, sd, low, high)
        assert lower[0] <= weight[closed].sum() + 1e-12
        assert upper[0] >= weight[opened].sum() - 1e-12
        nearest = abs(rng.normal())
        assert markov(weight @ np.abs(points), nearest) >= weight[np.abs(points) >= nearest].sum() - 1e-12
        assert selberg(sd, mean - low, high - mean) <= chebyshev(sd, mean - low, high - mean) + 1e-15


def verdicts_are_right(decisions, exact, threshold):
    passes = exact >= threshold
    assert not (passes & (decisions.verdict < 0)).any()
    assert not (~passes & (decisions.verdict > 0)).any()
    assert sum(decisions.rejected.values()) + sum(decisions.accepted.values()) == np.count_nonzero(decisions.verdict)
    assert len(decisions.open) == np.count_nonzero(decisions.code == 0)


@pytest.mark.parametrize("level", [0.05, 0.3, 0.7, 0.95])
def test_cascade_never_decides_wrongly(level):
    rng = np.random.default_rng(int(level * 100))
    for dim in (2, 3):
        count = 1500
        root = rng.normal(size=(count, dim, dim)) * np.exp(rng.uniform(-2, 2, (count, 1, dim)))
        cov, mean = root @ root.transpose(0, 2, 1), rng.normal(size=(count, dim)) * 3
        matrix = rng.normal(size=(count, dim, dim))
        matrix = matrix + matrix.transpose(0, 2, 1)
        matrix[::2] = np.eye(dim)
        limit = rng.uniform(0, 30, count)
        exact = form_probability(mean, cov, matrix, limit)
        found = decide_regions((mean, cov), Quadratic(matrix, limit), Threshold(level))
        verdicts_are_right(found, exact, level)
        assert np.count_nonzero(found.verdict) > 0.5 * count
        verdicts_are_right(
            decide_regions((mean, cov), Quadratic(matrix, limit), Threshold(level), law="any"), exact, level
        )
        count = 1500 if dim == 2 else 100
        low, high = -rng.uniform(0, 6, (count, dim)), rng.uniform(0, 6, (count, dim))
        exact = box_probability(mean[:count], cov[:count], low, high)
        for law in ("gaussian", "any"):
            found = decide_regions((mean[:count], cov[:count]), Box(low, high), Threshold(level), law=law)
            verdicts_are_right(found, exact, level)
            assert np.count_nonzero(found.verdict) > 0.15 * count
        rejecting = decide_regions((mean[:count], cov[:count]), Box(low, high), Threshold(level), may_accept=False)
        assert not (rejecting.verdict > 0).any()


def test_cascade_on_mixtures_adds_up_components():
    rng = np.random.default_rng(4)
    count = 500
    root = rng.normal(size=(2 * count, 2, 2))
    cov, mean, weight = root @ root.transpose(0, 2, 1), rng.normal(size=(2 * count, 2)) * 3, rng.uniform(size=count)
    rows = MixtureND(np.stack([weight, 1 - weight], axis=1), mean.reshape(count, 4), cov.reshape(count, 8))
    for level in (0.2, 0.5, 0.8):
        found = decide_regions(rows, Quadratic(np.eye(2), 9.0), Threshold(level))
        verdicts_are_right(found, quadratic(rows, np.eye(2), 9.0), level)
        assert np.count_nonzero(found.verdict) > 0.8 * count
        found = decide_regions(rows, Box([-2, -2], [2, 2]), Threshold(level))
        verdicts_are_right(found, box(rows, [-2, -2], [2, 2]), level)


def test_certain_rows_and_ties():
    """Without spread the answer is yes or no; a tie between < and <= is left to the exact value."""
    rows = GaussianND([[3, 4], [3, 4], [3, 4]], np.zeros((3, 4)))
    found = decide_regions(rows, Quadratic(np.eye(2), [26.0, 24.0, 25.0]), Threshold(0.5))
    assert found.verdict.tolist() == [1, -1, 0]
    assert decide_regions(rows, Box([3, 3], [4, 4]), Threshold(1.0)).verdict.tolist() != [-1, -1, -1]
    assert decide_regions(rows, Box([3.1, 3], [4, 4]), Threshold(0.5)).verdict.tolist() == [-1, -1, -1]


def test_bad_arguments_are_named():
    with pytest.raises(HaplyError, match="need a law with a covariance"):
        decide_regions(Samples([[1.0, 2.0]]), Box([0], [1]), Threshold(0.5))
    with pytest.raises(HaplyError, match="need moments"):
        decide_regions(GaussianND([[0, 0]], [np.eye(2)]), Box([0, 0], [1, 1]), Threshold(0.5), law="any")
