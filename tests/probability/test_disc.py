"""The disc of the inner loop, against 25 digits and against the general formula."""

from __future__ import annotations

import numpy as np
import pytest

import oracle_region
from haply.numerics.multivariate.disc import MOST_RATIO, ball_chance, disc_chance, room_for
from haply.probability import disc_probability


def turned(sds, angle):
    c, s = np.cos(angle), np.sin(angle)
    basis = np.array([[c, -s], [s, c]])
    return basis @ np.diag(np.square(sds)) @ basis.T


def chance(mean, cov, radius):
    room = np.zeros(2), np.zeros(2)
    return disc_chance(mean[0], mean[1], cov[0, 0], cov[0, 1], cov[1, 1], radius * radius, *room)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("ratio", [0.05, 1.0, 2.4, 17.0, 127.0, 500.0])
@pytest.mark.parametrize("aspect", [1.0, 9.0])
def test_25_digits(ratio, aspect):
    """Radius 1; the mean at the centre, within, on the edge, and some sds outside."""
    least = 1.0 / ratio
    for angle, away in ((0.3, 0.0), (0.4, 0.6), (1.1, 1.0), (2.0, 1.0 - 0.7 * least), (2.9, 1.0 + 2.0 * least)):
        mean = away * np.array([np.cos(3.0 * angle), np.sin(3.0 * angle)])
        cov = turned((least * aspect, least), angle)
        c, s = np.cos(angle), np.sin(angle)
        along = np.array([c * mean[0] + s * mean[1], c * mean[1] - s * mean[0]])
        sds = np.array([least * aspect, least])
        wanted = oracle_region.form2(sds**2, sds * along, 1.0 - mean @ mean)
        assert abs(chance(mean, cov, 1.0) - wanted) < 1e-12


def test_random_discs_agree_with_the_general_formula():
    rng = np.random.default_rng(4)
    count = 3000
    least = np.exp(rng.uniform(np.log(1.0 / (2.0 * MOST_RATIO)), np.log(20.0), count))
    aspect = np.exp(rng.uniform(0.0, 5.0, count))
    covs = np.array([turned((s * a, s), t) for s, a, t in zip(least, aspect, rng.uniform(0, 3, count), strict=True)])
    means = rng.normal(size=(count, 2)) * (1.0 + rng.choice([0.0, 1.0], (count, 1)) * least[:, None])
    found = [chance(mean, cov, 1.0) for mean, cov in zip(means, covs, strict=True)]
    assert np.abs(found - disc_probability(means, covs, 1.0)).max() < 1e-12


def test_edges():
    nothing, flat = np.zeros((2, 2)), np.array([[1.0, 0.0], [0.0, 0.0]])
    assert chance([3.0, 4.0], nothing, 5.0) == 1.0
    assert chance([3.0, 4.0], nothing, 4.9) == 0.0
    assert chance([0.0, 0.0], np.eye(2), 0.0) == 0.0
    assert chance([0.0, 0.6], flat, 1.0) == pytest.approx(2.0 * 0.2881446014166034, abs=1e-12)  # Phi(0.8) - 1/2
    assert chance([0.0, 1.1], flat, 1.0) == 0.0
    assert chance([0.0, 0.0], 1e-6 * np.eye(2), 1.0) == 1.0
    for far in (1e10, 1e80, 1e160):
        assert chance([far, -far], np.eye(2), 1.0) < 1e-12
        assert chance([far, 0.0], 1e-4 * np.eye(2), 1.0) < 1e-12


def test_a_plane_in_space_is_a_disc_and_what_is_none_is_not():
    rng = np.random.default_rng(8)
    room = room_for(3)
    for thickness in (0.0, 1e-9, 1e-6, 1e-4, 1e-2, 1.0):
        for _ in range(40):
            basis = np.linalg.qr(rng.normal(size=(3, 3)))[0]
            sds = np.array([*np.exp(rng.normal(size=2)), 0.0])
            sds[2] = thickness * sds[1]
            cov = basis @ np.diag(sds**2) @ basis.T
            cov = 0.5 * (cov + cov.T)
            mean = basis @ (rng.normal(size=3) * np.array([1.0, 1.0, thickness]))
            wanted = disc_probability(mean, cov, 1.0)[0]
            assert abs(ball_chance(mean, cov, 1.0, room) - wanted) < 1e-12
