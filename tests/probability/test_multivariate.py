"""Regions in several dimensions: the note's golden values, and random cases against the oracle of regions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mpf

import goldens
import oracle_region
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, GaussianND, Mixture, MixtureND, Samples
from haply.numerics.multivariate.multinormal import standard_box3
from haply.probability import (
    box,
    box_estimate,
    box_probability,
    disc_probability,
    form_probability,
    quadratic,
    quadratic_probability,
    within_distance,
)
from haply.probability.multivariate import Forms, canonical_forms, form_estimate


def number(value: object) -> float:
    return float(mpf(str(value)))


def covariance(sds, correlation):
    (a, b), r = sds, correlation
    return [[a * a, r * a * b], [r * a * b, b * b]]


def random_covariances(rng, count, dim, spread):
    """Covariances whose axes differ by up to ``exp(2 spread)``."""
    root = rng.normal(size=(count, dim, dim)) * np.exp(rng.uniform(-spread, spread, (count, 1, dim)))
    return root @ root.transpose(0, 2, 1)


# ---------------------------------------------------------------------------------------------------------------------
# Golden values


@pytest.mark.parametrize("row", goldens.DISCS, ids=[row[0] for row in goldens.DISCS])
def test_discs(row):
    _, radius, mean, sds, correlation, wanted = row
    cov = covariance(sds, correlation)
    assert abs(disc_probability(mean, cov, radius)[0] - number(wanted)) < 1e-14
    assert abs(quadratic(GaussianND([mean], [cov]), np.eye(2), radius**2)[0] - number(wanted)) < 1e-14
    assert abs(disc_probability([0, 0], cov, radius, centre=mean)[0] - number(wanted)) < 1e-14


@pytest.mark.parametrize("row", goldens.BOXES, ids=[row[0] for row in goldens.BOXES])
def test_boxes(row):
    _, low, high, mean, cov, wanted = row
    assert abs(box_probability(mean, cov, low, high)[0] - number(wanted)) < 1e-14
    assert abs(box(GaussianND([mean], [cov]), low, high)[0] - number(wanted)) < 1e-14


def test_table_1_p11_p12():
    """The paper's example, whose second numbers are sds: two one-dimensional values, and a form of two."""
    assert abs(box(Gaussian(27.0, 2.2), -math.inf, 24.0)[0] - 0.0863410207093742061) < 1e-14
    far = form_estimate(canonical_forms([1.2, 0.1], np.diag([2.2, 1.1]) ** 2, np.eye(2)), 0.25, above=True)
    assert abs(far.value[0] - 0.956974204162672754) < 1e-14
    near = form_estimate(canonical_forms([0.1, -0.1], np.diag([0.1, 0.1]) ** 2, np.eye(2)), 0.25, above=True)
    assert near.value[0] == pytest.approx(0.000329517361275301893, rel=1e-12)


def test_canonical_form_p17():
    forms = canonical_forms([1, 2], covariance((1, 1.5), 0.6), np.eye(2))
    order = np.argsort(forms.curve[0])
    curve, slope = forms.curve[0][order], forms.slope[0][order]
    wanted = [number(each) for each in goldens.REGION_BOUNDS["P17"]]
    assert np.allclose([*curve, *(slope / curve) ** 2], wanted, rtol=1e-12, atol=0)


def test_equal_weights_are_noncentral_chi_square_p18():
    wanted = [number(each) for each in goldens.REGION_BOUNDS["P18"]]
    lam, square = [number(each) for each in goldens.REGION_BOUNDS["P17"][:2]], 1.8402777777777777
    for weight, value in zip((max(lam), min(lam)), wanted, strict=True):
        found = quadratic_probability([1, 1], [math.sqrt(square), 0], 4 / weight)
        assert abs(found[0] - value) < 1e-12


def test_mixed_signs_p22():
    found = quadratic_probability([1.5, 0.4, -0.8], [0.3, -1, 0.5], 0.7)
    assert abs(found[0] - number(goldens.REGION_BOUNDS["P22"][0])) < 1e-13


def test_linear_map_p23():
    variance = np.diag(np.array([0.05, 0.02, 0.02, 0.04, 0.03, 0.01]) ** 2)
    matrix = np.array([[1, -1, 0, -1, 1, 0], [0, 1, -1, 0, -1, 1]])
    found = matrix @ variance @ matrix.T
    assert np.allclose(found[[0, 0, 1], [0, 1, 1]], [number(each) for each in goldens.REGION_BOUNDS["P23"]], atol=1e-17)


def test_distance_p25():
    r, s = GaussianND([[0, 0]], [np.eye(2)]), GaussianND([[2, 1]], [[[0.5, 0.2], [0.2, 0.8]]])
    wanted = [number(each) for each in goldens.REGION_BOUNDS["P25"]]
    assert abs(within_distance(r, s, 2)[0] - wanted[0]) < 1e-14
    bands = [box_probability([mean], [[variance]], -2, 2)[0] for mean, variance in ((2, 1.5), (1, 1.8))]
    assert np.allclose(bands, wanted[1:], rtol=0, atol=1e-14)


def test_mixture_p26_and_tails_p27():
    assert abs(1.0 - box(Mixture([[0.4, 0.6]], [[-1, 2]], [[1, 0.5]]), -1.5, 1.5)[0] - 0.630705729262598869) < 1e-14
    for variance, wanted in zip((4, 2), goldens.REGION_BOUNDS["P27"], strict=True):
        assert abs(box(GaussianND([[0]], [[variance]]), 1.9, math.inf)[0] - number(wanted)) < 1e-15


# ---------------------------------------------------------------------------------------------------------------------
# Boxes


@pytest.mark.long
def test_boxes_in_two_dimensions_against_the_oracle():
    """Correlations up to 1 - 1e-13, sds that differ by e^8, corners on one line, and far corners, where it is relative.

    Beside a correlation close to 1 the limits' own rounding counts, as that over the conditional sd.
    """
    rng = np.random.default_rng(1)
    for case in range(20):
        sd = np.exp(rng.uniform(-4, 4, 2))
        r = rng.uniform(-1, 1) if case % 5 < 3 else (1 - 10 ** rng.uniform(-13, -2)) * rng.choice([-1, 1])
        mean, cov = rng.normal(size=2) * sd, covariance(sd, r)
        middle, half = mean + rng.normal(size=2) * sd * (6 if case % 5 == 2 else 1), np.exp(rng.uniform(-3, 2, 2)) * sd
        low, high = middle - half, middle + half
        if case % 7 == 0:
            low[0] = -math.inf
        if case % 11 == 0:
            high[1] = math.inf
        if case % 15 == 4:
            high[1] = mean[1] + np.sign(r) * sd[1] * (high[0] - mean[0]) / sd[0]
            low[1] = min(low[1], high[1] - sd[1])
        found = box_probability(mean, cov, low, high)[0]
        wanted = oracle_region.box2(mean, cov, low, high, max(found, 1e-300))
        loose = 1e-15 / math.sqrt(1 - r * r)
        assert abs(found - wanted) < 1e-14
        assert abs(found - wanted) <= max(2e-11, 50 * loose) * wanted + 1e-280


def test_boxes_in_two_dimensions_far_out():
    found = box_probability([0, 0], [[1, -0.5], [-0.5, 1]], [8, 8], [math.inf, math.inf])[0]
    assert 0 < found < 1e-50
    assert found == pytest.approx(
        oracle_region.box2([0, 0], [[1, -0.5], [-0.5, 1]], [8, 8], [30, 30], found), rel=1e-11
    )


def test_quadrants_have_closed_forms():
    r = np.concatenate([np.linspace(-0.999999, 0.999999, 201), [1 - 1e-12, -1 + 1e-12, 0.0]])
    covs = np.array([[[1, c], [c, 1]] for c in r])
    found = box_probability(np.zeros((len(r), 2)), covs, 0.0, math.inf)
    exact = np.arctan2(1 + r, np.sqrt((1 - r) * (1 + r))) / math.pi  # = 1/4 + asin(r) / 2 pi, without cancelling
    assert np.abs(found - exact).max() < 2e-14


def test_octants_have_closed_forms():
    rng = np.random.default_rng(2)
    covs = random_covariances(rng, 60, 3, 1.0)
    sd = np.sqrt(np.diagonal(covs, axis1=1, axis2=2))
    r = covs / sd[:, :, None] / sd[:, None, :]
    exact = 0.125 + (np.arcsin(r[:, 0, 1]) + np.arcsin(r[:, 0, 2]) + np.arcsin(r[:, 1, 2])) / (4 * math.pi)
    assert np.abs(box_probability(np.zeros((60, 3)), covs, 0.0, math.inf) - exact).max() < 2e-13


def test_boxes_in_three_dimensions_do_not_depend_on_the_order():
    """Each coordinate once outermost: three different integrals of one number, ill-conditioned ones included."""
    rng = np.random.default_rng(3)
    covs = np.concatenate([random_covariances(rng, 25, 3, spread) for spread in (0.3, 2.0, 5.0)])
    sd = np.sqrt(np.diagonal(covs, axis1=1, axis2=2))
    r = covs / sd[:, :, None] / sd[:, None, :]
    middle, half = rng.normal(size=sd.shape), np.exp(rng.uniform(-1, 2, sd.shape))
    found = box_probability(np.zeros_like(sd), covs, (middle - half) * sd, (middle + half) * sd)
    for order in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        i, j, k = order
        for row in range(len(covs)):
            low, high = (middle - half)[row, order], (middle + half)[row, order]
            assert abs(standard_box3(low, high, r[row, i, j], r[row, i, k], r[row, j, k]) - found[row]) < 2e-13
    whole = box_probability(np.zeros_like(sd), covs, -math.inf, [math.inf, math.inf, 0.0])
    assert np.abs(whole - 0.5).max() < 1e-15


def test_three_dimensions_against_two_times_one():
    rng = np.random.default_rng(4)
    covs = np.zeros((40, 3, 3))
    covs[:, :2, :2], covs[:, 2, 2] = random_covariances(rng, 40, 2, 1.0), 2.0
    shear = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    low, high = -rng.uniform(0, 3, (40, 3)), rng.uniform(0, 3, (40, 3))
    apart = box_probability(np.zeros((40, 3)), covs @ shear, low, high)
    plane = box_probability(np.zeros((40, 2)), covs[:, :2, :2], low[:, :2], high[:, :2])
    line = box_probability(np.zeros((40, 1)), covs[:, 2:, 2:], low[:, 2:], high[:, 2:])
    assert np.abs(apart - plane * line).max() < 1e-15


def test_singular_boxes():
    """A plane in space, a line in space, a point: the same numbers as in fewer dimensions."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        a, b = rng.normal(size=3), rng.normal(size=3)
        low, high = -rng.uniform(0.2, 2, 3), rng.uniform(0.2, 2, 3)
        line = box_probability(np.zeros(3), np.outer(a, a), low, high)[0]
        ends = np.sort(np.stack([low / a, high / a]), axis=0)
        wanted = box_probability([0.0], [[1.0]], ends[0].max(), ends[1].min())[0]
        assert abs(line - wanted) < 1e-14
        plane = box_estimate(np.zeros(3), np.outer(a, a) + np.outer(b, b), low, high)
        smooth = box_estimate(np.zeros(3), np.outer(a, a) + np.outer(b, b) + 1e-11 * np.eye(3), low, high)
        assert abs(plane.value[0] - smooth.value[0]) < 1e-5
    assert box_probability([1, 2], np.zeros((2, 2)), [1, 0], [3, 2]).tolist() == [1.0]
    assert box_probability([1, 2], np.zeros((2, 2)), [1.5, 0], [3, 2]).tolist() == [0.0]
    half = box_probability([0, 2], [[1, 0], [0, 0]], [0, 0], [math.inf, 2])[0]
    assert half == pytest.approx(0.5, abs=1e-15)
    assert box_probability([0, 0], [[1, 0], [0, 1]], [1, 0], [0, 1]).tolist() == [0.0]


def test_more_dimensions_by_lattice_within_its_error():
    rng = np.random.default_rng(6)
    # equal correlations r: one common factor, so that a single integral gives the answer
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    for dim, r in ((4, 0.5), (6, 0.3)):
        cov = np.full((dim, dim), r) + (1 - r) * np.eye(dim)
        found = box_estimate(np.zeros(dim), cov, -1.5, 1.0, tolerance=1e-5)
        inner = [box_probability([0.0], [[1.0]], (-1.5 - r**0.5 * z) / (1 - r) ** 0.5,
                                 (1.0 - r**0.5 * z) / (1 - r) ** 0.5)[0] ** dim for z in nodes]  # fmt: skip
        wanted = np.dot(weights, inner) / math.sqrt(2 * math.pi)
        assert abs(found.value[0] - wanted) < found.error[0] < 5e-5
    low = rng.normal(size=(6, 2))
    cov = low @ low.T  # rank two in six dimensions
    found = box_estimate(np.zeros(6), cov, -1.5, 1.5, tolerance=1e-4)
    counted = (np.abs(oracle_region.draws(np.zeros(6), cov, 400_000, rng)) <= 1.5).all(axis=1).mean()
    assert abs(found.value[0] - counted) < 0.004
    again = box_estimate(np.zeros(6), cov, -1.5, 1.5, tolerance=1e-4)
    assert again.value[0] == found.value[0]
    blocks = np.kron(np.eye(3), [[2.0, 1.0], [1.0, 3.0]])
    pair = box_probability([0, 0], blocks[:2, :2], -1.0, 1.0)[0]
    assert box_probability(np.zeros(6), blocks, -1.0, 1.0)[0] == pytest.approx(pair**3, rel=1e-14)


# ---------------------------------------------------------------------------------------------------------------------
# Quadratic forms


@pytest.mark.long
def test_forms_of_any_sign_against_the_oracle():
    rng = np.random.default_rng(7)
    for case in range(12):
        curve = rng.normal(size=2) * np.exp(rng.uniform(-5, 5, 2))
        slope = rng.normal(size=2) * np.exp(rng.uniform(-4, 3, 2))
        if case % 4 == 1:
            curve = np.abs(curve)
        if case % 4 == 2:
            curve[0] = 0.0
        limit = curve.sum() + rng.normal() * 1.5 * math.sqrt((2 * curve**2 + 4 * slope**2).sum())
        limit = 0.0 if case % 10 == 3 else limit
        forms = Forms(curve[None], slope[None], np.zeros(1))
        found = form_estimate(forms, limit)
        wanted = oracle_region.form2(curve, slope, limit)
        assert abs(found.value[0] - wanted) < 2e-14
        assert found.error[0] < 1e-13
        assert abs(form_estimate(forms, limit, above=True).value[0] - (1 - wanted)) < 2e-14


def test_positive_forms_against_rubens_series():
    rng = np.random.default_rng(8)
    for _ in range(30):
        dim = int(rng.integers(2, 7))
        weights, shifts = np.exp(rng.uniform(-2, 2, dim)), rng.normal(size=dim) * 1.5
        limit = (weights * (1 + shifts**2)).sum() * math.exp(rng.normal())
        low, high = oracle_region.ruben(weights, shifts, limit)
        found = quadratic_probability(weights, shifts, limit)[0]
        assert low - 1e-12 <= found <= high + 1e-12
        assert high - low < 1e-6


def test_form_tails_are_relative():
    """Two equal weights without shift: exponential, in both tails."""
    for limit in (1e-12, 1e-6, 1.0, 50.0, 900.0):
        forms = canonical_forms([0, 0], np.eye(2), np.eye(2))
        assert form_estimate(forms, limit, above=True).value[0] == pytest.approx(math.exp(-limit / 2), rel=1e-12)
        assert form_estimate(forms, limit).value[0] == pytest.approx(-math.expm1(-limit / 2), rel=1e-12)


def test_narrow_and_far_discs():
    """One sd next to nothing, or nothing: the disc's chord; and the note's case that broke a recurrence."""
    chord = math.sqrt(4 - 0.25)
    wanted = box_probability([0.3], [[1.0]], -chord, chord)[0]
    for sd in (0.0, 1e-12, 1e-9):
        found = disc_probability([0.5, 0.3], [[sd * sd, 0], [0, 1]], 2)[0]
        assert abs(found - wanted) < 1e-14
    assert abs(disc_probability([0.01, 0.95], [[4e-4, 0], [0, 0.01]], 1)[0] - 0.690580377769) < 1e-12
    assert disc_probability([3, 4], np.zeros((2, 2)), [5, 4.999, -1]).tolist() == [1.0, 0.0, 0.0]
    assert form_probability([3, 4], np.zeros((2, 2)), np.eye(2), 25.0).tolist() == [0.0]  # strict
    # a million sds from the origin the form is all but a plain normal
    found = disc_probability([1e6, 0], np.eye(2), 1e6 + 1)[0]
    assert found == pytest.approx(box_probability([0.0], [[1.0]], -math.inf, 1 - 5e-7)[0], abs=1e-9)


def test_thousands_of_balls_against_draws():
    rng = np.random.default_rng(9)
    for dim in (2, 3, 5):
        covs = random_covariances(rng, 12, dim, 2.0)
        means = rng.normal(size=(12, dim)) * np.sqrt(np.trace(covs, axis1=1, axis2=2))[:, None]
        radius = np.sqrt((means**2).sum(axis=1) + np.trace(covs, axis1=1, axis2=2)) * rng.uniform(0.5, 1.5, 12)
        found = disc_probability(means, covs, radius)
        for row in range(12):
            points = oracle_region.draws(means[row], covs[row], 40_000, rng)
            counted = (np.linalg.norm(points, axis=1) <= radius[row]).mean()
            assert abs(found[row] - counted) < 5 * math.sqrt(max(found[row] * (1 - found[row]), 1e-4) / 40_000)


def test_mixtures_and_mixed_distances_are_sums():
    rng = np.random.default_rng(10)
    covs = random_covariances(rng, 4, 2, 0.5)
    means, weight = rng.normal(size=(4, 2)), np.array([0.2, 0.8])
    mixture = MixtureND([weight, weight], means.reshape(2, 4), covs.reshape(2, 8))
    parts = disc_probability(means, covs, 1.7).reshape(2, 2) @ weight
    assert np.allclose(quadratic(mixture, np.eye(2), 1.7**2), parts, rtol=1e-13)
    boxes = box_probability(means, covs, [-1, -2], [1, 1]).reshape(2, 2) @ weight
    assert np.allclose(box(mixture, [-1, -2], [1, 1]), boxes, rtol=1e-13)
    points = Samples([[[0.0, 1.0], [2.0, 0.5], [1.0, 1.0]], [[3.0, 0.0], [0.0, 0.0], [1.0, 2.0]]])
    gaussian = GaussianND(means[:2], covs[:2])
    near = [disc_probability(means[i], covs[i], 1.5, centre=points.points.row(i).reshape(3, 2)) for i in range(2)]
    wanted = [each.mean() for each in near]
    assert np.allclose(within_distance(gaussian, points, 1.5), wanted, rtol=1e-13)
    assert np.allclose(within_distance(points, gaussian, 1.5), wanted, rtol=1e-13)
    both = within_distance(mixture, gaussian, [1.0, 2.0])
    wanted = [
        sum(weight[k] * disc_probability(means[2 * i + k] - means[i], covs[2 * i + k] + covs[i], 1.0 + i)[0]
            for k in range(2))
        for i in range(2)
    ]  # fmt: skip
    assert np.allclose(both, wanted, rtol=1e-13)
    line = GaussianND([[1.0], [2.0]], [[4.0], [0.0]])
    assert np.allclose(within_distance(line, Certain([0.0, 2.0]), 1.0), [box(line, -1, 1)[0], 1.0], rtol=1e-14)
    wider = box_probability([[1.0], [2.0]], [[[5.0]], [[1.0]]], -1, 1)
    assert np.allclose(within_distance(line, Gaussian(0, 1), 1.0), wider, rtol=1e-13)


def test_bad_arguments_are_named():
    with pytest.raises(HaplyError, match="do not fit"):
        box_probability([0, 0], np.eye(3), 0, 1)
    with pytest.raises(HaplyError, match="symmetric matrix"):
        form_probability([0, 0], np.eye(2), [[1, 1], [0, 1]], 1)
    with pytest.raises(HaplyError, match="'low' does not fit"):
        box_probability([[0, 0], [0, 0]], np.eye(2), [0, 0, 0], 1)
