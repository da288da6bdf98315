"""Probabilities do not depend on the unit: the same question from 1e-300 to 1e300, all scales in one call."""

from __future__ import annotations

import numpy as np
import pytest

import oracle
from engine import model_of
from haply.errors import HaplyError
from haply.models import (
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    MixtureND,
    Samples,
    Sky,
    TruncatedGaussian,
    Uniform,
)
from haply.probability import (
    box,
    difference_cdf,
    disc_probability,
    equal_within,
    form_probability,
    greater,
    less,
    quadratic,
    within_distance,
)
from haply.probability.joint import joint_probability
from haply.probability.region import Difference, Region

POWERS = (-990, -700, -542, -530, -480, -300, 300, 480, 509, 530, 700, 990)
SCALES = [2.0**power for power in POWERS]
TENS = [1e-300, 1e-163, 1e-155, 1.4e154, 1e200, 1e300]
LINE = {
    "certain": lambda s: Certain(0.3 * s),
    "uniform": lambda s: Uniform(-0.4 * s, 1.1 * s),
    "gaussian": lambda s: Gaussian(0.7 * s, 0.9 * s),
    "truncated": lambda s: TruncatedGaussian(0.2 * s, 0.8 * s, -0.5 * s, 1.6 * s),
    "mixture": lambda s: Mixture(np.tile([0.3, 0.7], (len(s), 1)), np.outer(s, [-0.2, 0.9]), np.outer(s, [0.5, 0.25])),
    "histogram": lambda s: Histogram(np.outer(s, [-0.3, 0.1, 0.5, 1.2]), np.tile([0.2, 0.5, 0.3], (len(s), 1))),
    "samples": lambda s: Samples(np.outer(s, [-0.1, 0.3, 0.35, 1.5]), np.tile([0.1, 0.4, 0.3, 0.2], (len(s), 1))),
}
ASKED = {
    "cdf": lambda a, b, s: difference_cdf(a, b, 0.4 * s),
    "equal": lambda a, b, s: equal_within(a, b, 0.6 * s),
    "narrow": lambda a, b, s: equal_within(a, b, 0.001 * s),
    "greater": lambda a, b, s: greater(a, b),
    "less": lambda a, b, s: less(a, b),
    "distance": lambda a, b, s: within_distance(a, b, 0.5 * s),
}


def test_the_defect_as_it_was_found():
    for s in (1e-300, 1e-163, 1.0, 1.3e154, 1e300):
        assert less(Gaussian(s, s), Gaussian(0, s))[0] == pytest.approx(0.23975006109347674, abs=1e-14)
        assert equal_within(Gaussian(s, s), Gaussian(0, s), s)[0] == pytest.approx(0.42135, abs=1e-5)


@pytest.mark.parametrize("right", LINE)
@pytest.mark.parametrize("left", LINE)
def test_differences_at_every_scale_in_one_call(left, right):
    scales = np.array([1.0, *SCALES, *TENS])
    for name, ask in ASKED.items():
        found = ask(LINE[left](scales), LINE[right](scales), scales)
        assert np.abs(found - found[0]).max() < 1e-13, name


def test_extreme_gaussians_against_the_referee():
    for s in (1e-300, 1e-160, 1e155, 1e300):
        a, b = oracle.Normal(1.25 * s, 0.5 * s), oracle.Normal(-0.5 * s, 2.0 * s)
        wanted = float(oracle.difference_cdf(a, b, s))
        assert difference_cdf(model_of([a]), model_of([b]), s)[0] == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize("name", LINE)
def test_deviation_where_no_double_holds_the_variance(name):
    scales = np.array([1.0, *SCALES])
    found = LINE[name](scales).deviation() / scales
    assert found == pytest.approx(np.full(len(scales), found[0]), rel=1e-13, abs=0.0)
    assert found[0] == pytest.approx(np.sqrt(LINE[name](np.ones(1)).variance()[0]), rel=1e-14)


def test_a_normal_cut_farther_out_than_doubles_count_is_at_the_near_end():
    model = TruncatedGaussian([0.0, 0.0], [1e-300, 1e-300], [1e10, -2e10], [2e10, -1e10])
    assert model.mean().tolist() == [1e10, -1e10]
    assert model.cdf(1.5e10).tolist() == [1.0, 1.0]


def test_samples_count_equal_points_at_distance_zero():
    tiny = Samples([[[0.0, 1e-200], [1e-200, 0.0]]])
    assert within_distance(tiny, tiny, 0.0).tolist() == [0.5]
    assert within_distance(Certain(1e300), Certain(1e300), 1e-300).tolist() == [1.0]


MEAN, OTHER = np.array([0.4, -0.3, 0.2]), np.array([-0.2, 0.5, 0.1])
COV = np.array([[0.8, 0.2, 0.1], [0.2, 0.5, -0.1], [0.1, -0.1, 0.6]])
FORM = np.array([[1.0, 0.3, 0.0], [0.3, -0.7, 0.1], [0.0, 0.1, 0.4]])


def _space(dim):
    def gaussian(s):
        return GaussianND(np.outer(s, MEAN[:dim]), s[:, None, None] ** 2 * COV[:dim, :dim])

    def mixture(s):
        means = np.outer(s, np.concatenate([MEAN[:dim], OTHER[:dim]]))
        covs = np.outer(s**2, np.concatenate([COV[:dim, :dim].ravel(), 0.5 * COV[:dim, :dim].ravel()]))
        return MixtureND(np.tile([0.4, 0.6], (len(s), 1)), means, covs)

    def samples(s):
        points = np.stack([MEAN[:dim], OTHER[:dim], MEAN[:dim] + OTHER[:dim]])
        return Samples(s[:, None, None] * points, dim=dim)

    return gaussian, mixture, samples


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_space_at_every_scale_in_one_call(dim):
    """Covariances are squares: as far as doubles hold them."""
    gaussian, mixture, samples = _space(dim)
    s = np.array([1.0, *(2.0**power for power in (-500, -450, -300, -180, -100, 100, 180, 300, 450, 505))])
    asked = {
        "near": within_distance(gaussian(s), mixture(s), 0.7 * s),
        "near samples": within_distance(mixture(s), samples(s), 0.7 * s),
        "box": box(mixture(s), np.outer(s, np.full(dim, -0.5)), np.outer(s, np.full(dim, 0.8))),
        "form": quadratic(mixture(s), FORM[:dim, :dim], 0.3 * s * s),
        "sign of a form": quadratic(gaussian(s), FORM[:dim, :dim] - 0.9 * np.eye(dim), 0.0),
        "matrix": quadratic(gaussian(np.ones(len(s))), s[:, None, None] ** 2 * FORM[:dim, :dim], 0.3 * s * s),
        "disc": disc_probability(np.outer(s, MEAN[:dim]), s[:, None, None] ** 2 * COV[:dim, :dim], 0.9 * s),
        "conic": form_probability(
            np.outer(s, MEAN[:dim]), s[:, None, None] ** 2 * COV[:dim, :dim], FORM[:dim, :dim], 0.3 * s * s,
            centre=np.outer(s, OTHER[:dim]),
        ),
    }  # fmt: skip
    for name, found in asked.items():
        assert np.abs(found - found[0]).max() < 1e-12, name


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_sample_distances_at_every_scale_in_one_call(dim, weighted):
    rng = np.random.default_rng(dim)
    points, others = rng.normal(size=(2, 20, dim))
    probs = rng.dirichlet(np.ones(20)) if weighted else None
    s = np.array([1.0, *SCALES])
    rows = None if probs is None else np.tile(probs, (len(s), 1))
    near = within_distance(
        Samples(s[:, None, None] * points, rows, dim=dim), Samples(s[:, None, None] * others, rows, dim=dim), 1.1 * s
    )
    assert 0.0 < near[0] < 1.0
    assert (near == near[0]).all()


def test_normals_on_a_line_at_every_scale_in_one_call():
    s = np.array([1.0, *SCALES])
    pair = Gaussian(0.7 * s, 0.9 * s)
    inside = box(pair, -0.5 * s[:, None], 0.8 * s[:, None])
    assert inside == pytest.approx(np.full(len(s), inside[0]), abs=1e-14)
    together = [Difference("a", "b", Region(-np.inf, 0.0)), Difference("b", "c", Region(-np.inf, 0.0))]
    values = {"a": pair, "b": Gaussian(0.9 * s, 0.4 * s), "c": Gaussian(s, 0.6 * s)}
    found = joint_probability(values, together)
    assert found == pytest.approx(np.full(len(s), found[0]), abs=1e-12)


def test_what_has_no_square_is_refused_by_name():
    one = GaussianND([[0.0]], [[1.0]])
    with pytest.raises(HaplyError, match="cannot be squared"):
        within_distance(one, Gaussian(0.0, 1e200), 1.0)
    with pytest.raises(HaplyError, match="cannot be squared"):
        within_distance(one, Gaussian(0.0, 1e-200), 1.0)
    with pytest.raises(HaplyError, match="too large to be squared"):
        Sky(10.0, 20.0, 1e200, 0.1)
