"""Matches on the sky against random points on the sphere: at the poles, across right ascension 0, and in between."""

from __future__ import annotations

import numpy as np
import pytest

import oracle_position as oracle
from haply.errors import HaplyError
from haply.joins import join_positions
from haply.models import sky_ellipses, sky_positions
from haply.models.sky import chord
from haply.probability import within_distance
from haply.probability.multivariate import parts
from haply.pruning.bounds.positions import intervals_on_line, limits
from haply.pruning.threshold import Threshold

PLACES = [(0.0, 0.0), (0.0001, 30.0), (123.4, -60.0), (45.0, 89.9999), (300.0, -90.0), (10.0, 90.0), (359.99999, -5.0)]
ERRORS = ((0.3, 0.2, 0.6), (0.5, 0.1, -0.3))
DRAWN = 400_000


def covariance(east, north, rho):
    return np.array([[east * east, rho * east * north], [rho * east * north, north * north]])


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(("ra", "dec"), PLACES)
def test_probabilities_are_those_of_points_drawn_on_the_sphere(ra, dec):
    """The partner lies 0.4 arcseconds away, in the directions of the compass, wherever its own coordinates are."""
    for k, (east, north) in enumerate(((0.4, 0.0), (0.0, -0.4), (-0.3, 0.25))):
        there = oracle.on_sphere(ra, dec, np.array([east]), np.array([north]))[0]
        other = float(np.degrees(np.arctan2(there[1], there[0]))) % 360.0, float(np.degrees(np.arcsin(there[2])))
        one, two = sky_positions(ra, dec, *ERRORS[0]), sky_positions(*other, *ERRORS[1])
        found = join_positions(one, two, 0.6, 1e-6)
        share, error = oracle.drawn_chance(
            (ra, dec), covariance(*ERRORS[0]), other, covariance(*ERRORS[1]), 0.6, DRAWN, 7 + k
        )
        # arcsin has few digits at the poles: the partner itself is known to 3e-9 of its place there
        assert abs(found.probability[0] - share) < 4.5 * error
        assert found.probability == pytest.approx(within_distance(one, two, 0.6), abs=1e-12)


def test_every_pair_of_a_crowd_around_the_pole_and_across_zero():
    """All pairs that brute force on the sphere finds within reach, none twice; errors as points to tell exactly."""
    rng = np.random.default_rng(9)
    for centre in ((0.0, 90.0), (200.0, -90.0), (0.0, 40.0), (359.9999, 0.0)):
        moved = rng.uniform(-6.0, 6.0, (2, 60))
        points = oracle.on_sphere(*centre, moved[0], moved[1])
        ra = np.degrees(np.arctan2(points[:, 1], points[:, 0])) % 360.0
        dec = np.degrees(np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1])))
        still = sky_positions(ra, dec, 0.0, 0.0)
        found = join_positions(still, still, 2.0, 0.9)
        apart = oracle.separation(points[:, None], points[None])
        pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
        assert len(pairs) == len(set(pairs))
        clear = np.abs(apart - 2.0) > 1e-6
        got = np.zeros(apart.shape, bool)
        got[found.left, found.right] = True
        assert np.array_equal(got[clear], (apart <= 2.0)[clear])
        assert got.sum() > 200


def test_an_ellipse_is_its_errors():
    along = np.array([np.sin(np.radians(30.0)), np.cos(np.radians(30.0))])  # east, north
    across = np.array([along[1], -along[0]])
    cov = 0.25 * np.outer(along, along) + 0.04 * np.outer(across, across)
    errors = np.sqrt(np.diag(cov))
    for ra, dec in ((10.0, 20.0), (200.0, -89.999), (0.0, 90.0)):
        turned = sky_ellipses(ra, dec, 0.5, 0.2, 30.0)
        same = sky_positions(ra, dec, *errors, cov[0, 1] / errors.prod())
        for one, other in zip(turned.lifted(), same.lifted(), strict=True):
            assert one == pytest.approx(other, rel=1e-13, abs=1e-15)
        found = [join_positions(each, same, 0.3, 0.01).probability for each in (turned, same)]
        assert found[0] == pytest.approx(found[1], abs=1e-12)
    assert sky_ellipses(10.0, 20.0, 0.0, 0.0).lifted()[1].max() == 0.0
    assert sky_ellipses(0.0, 0.0, 500.0, 200.0, errors_in="mas").major.tolist() == [0.5]


def test_places_on_a_line_are_those_of_normals_in_space():
    rng = np.random.default_rng(2)
    ra, dec, error = rng.uniform(0, 360, 40), rng.uniform(-90, 90, 40), rng.choice([0.0, 0.1, 30.0], 40)
    for sources in (sky_positions(ra, dec, error, 0.2, 0.9), sky_ellipses(ra, dec, error, 0.2, 10.0 * ra)):
        for within, threshold in ((1.0, 0.9), (1.0, 1e-6), (300.0, 0.01)):
            limit = limits(within, Threshold(threshold), True, 3)
            found, wanted = intervals_on_line(sources, limit), intervals_on_line(parts(sources), limit)
            assert found.start == pytest.approx(wanted.start, rel=1e-12, abs=1e-6)
            assert found.end == pytest.approx(wanted.end, rel=1e-12, abs=1e-6)
            assert np.array_equal(found.hopeless, wanted.hopeless)


def test_a_lifted_covariance_lies_in_the_touching_plane():
    mean, cov = sky_positions([123.0, 5.0], [45.0, 90.0], 0.3, 0.1, 0.5).lifted()
    for m, s in zip(mean, cov, strict=True):
        assert np.abs(s @ m).max() < 1e-10 * np.linalg.norm(m)
        assert np.linalg.eigvalsh(s)[1:] == pytest.approx(np.linalg.eigvalsh(covariance(0.3, 0.1, 0.5)), rel=1e-12)


def test_chords():
    assert chord(1.0) == pytest.approx(1.0, rel=1e-11)
    assert chord(180.0 * 3600.0) == pytest.approx(2.0 * 180.0 * 3600.0 / np.pi)
    far = sky_positions([0.0, 10.0], [0.0, 0.0], 0.0, 0.0)
    assert len(join_positions(far, far, chord(36_000.001), 1.0).left) == 4
    assert len(join_positions(far, far, chord(35_999.999), 1.0).left) == 2


def test_refusals():
    with pytest.raises(HaplyError, match="dec beyond the poles"):
        sky_positions(0.0, 91.0, 0.1, 0.1)
    with pytest.raises(HaplyError, match="ra_error < 0"):
        sky_positions(0.0, 0.0, -0.1, 0.1)
    with pytest.raises(HaplyError, match="corr beyond"):
        sky_positions(0.0, 0.0, 0.1, 0.1, 1.1)
    with pytest.raises(HaplyError, match="major < 0"):
        sky_ellipses(0.0, 0.0, -0.1, 0.1)
    with pytest.raises(HaplyError, match="unit of errors"):
        sky_positions(0.0, 0.0, 0.1, 0.1, errors_in="parsec")
