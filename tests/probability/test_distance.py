"""``within_distance`` against the oracle of clouds: counts are equal to the last bit, weights to 1e-12."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Samples, Uniform
from haply.probability import within_distance
from haply.probability.distance import clouds, squared_limit
from oracle_distance import KINDS, Cloud, cloud, distances, probability, random_cloud, random_eps, random_weights

SQUARE = [(0, 0), (2, 0), (0, 2), (2, 2)]
SQUARE_MOVED = [(4, 0), (6, 0), (4, 2), (6, 2)]
COMB = [-3, -1, 1, 3]
COMB_MOVED = [7, 9, 11, 13]


def samples(these: Sequence[Cloud]) -> Samples:
    """Clouds as rows, nested; equal weights are left out if all have them."""
    weights = [list(map(float, each.exact_weights)) for each in these]
    return Samples([each.points for each in these], None if all(each.weights is None for each in these) else weights)


def counted(a: Cloud, b: Cloud, eps: float) -> float:
    """The count of the near pairs over all, rounded once."""
    return int(np.count_nonzero(distances(a.points, b.points) <= eps)) / (len(a) * len(b))


# ---------------------------------------------------------------------------------------------------------------------
# Golden values of the specification


@pytest.mark.parametrize(
    ("eps", "expected"), [(1.9, 0), (2, 1 / 8), (3, 1 / 4), (4, 1 / 2), (4.5, 3 / 4), (5, 3 / 4), (6, 7 / 8), (7, 1)]
)
def test_golden_01_two_squares(eps: float, expected: float) -> None:
    assert within_distance(Samples([SQUARE]), Samples([SQUARE_MOVED]), eps).tolist() == [expected]


@pytest.mark.parametrize(("eps", "expected"), [(3, 0), (5, 1 / 16), (6, 3 / 16), (7, 3 / 16), (8, 3 / 8)])
def test_golden_04_two_combs(eps: float, expected: float) -> None:
    assert within_distance(Samples([COMB]), Samples([COMB_MOVED]), eps).tolist() == [expected]


@pytest.mark.parametrize(("eps", "expected"), [(2, 0.01), (5, 0.06), (12, 0.31), (20, 0.64)])
def test_golden_07_weighted_samples(eps: float, expected: float) -> None:
    left = Samples([[0, 1, 2, 10]], [[0.4, 0.3, 0.2, 0.1]])
    right = Samples([[12, 13, 14, 30]], [[0.1, 0.2, 0.3, 0.4]])
    assert within_distance(left, right, eps) == pytest.approx([expected], abs=1e-15)


def test_golden_14_counts_do_not_drift() -> None:
    left, right = Samples([[0.0] * 100]), Samples([[0.0] * 30 + [9.0] * 70])
    assert within_distance(left, right, 1.0).tolist() == [0.3]


# ---------------------------------------------------------------------------------------------------------------------
# Random clouds


@pytest.mark.parametrize("dim", range(1, 11))
def test_equal_weights_are_a_count(dim: int) -> None:
    """Every pair of kinds, up to 24 samples, every second limit a distance that occurs."""
    rng = np.random.default_rng(dim)
    lefts, rights, limits = [], [], []
    for one, other in itertools.product(KINDS, KINDS):
        a, b = (random_cloud(rng, dim, int(rng.integers(1, 25)), kind, spread=1.0) for kind in (one, other))
        lefts.append(a)
        rights.append(b)
        limits.append(random_eps(rng, a, b))
    found = within_distance(samples(lefts), samples(rights), limits)
    assert found.tolist() == [counted(*case) for case in zip(lefts, rights, limits, strict=True)]
    assert sum(0 < p < 1 for p in found) > 15
    below = within_distance(samples(lefts), samples(rights), np.nextafter(limits, -1.0).clip(0.0))
    assert (below <= found).all()
    assert (below < found).any(), "no limit was a tie"


@pytest.mark.parametrize("dim", range(1, 11))
def test_weighted_samples(dim: int) -> None:
    """Weighted against weighted and against equal ones, with weights of zero among them."""
    rng = np.random.default_rng(100 + dim)
    lefts, rights, limits = [], [], []
    for number, (one, other) in enumerate(itertools.product(KINDS, KINDS)):
        a, b = (
            random_cloud(rng, dim, int(rng.integers(1, 13)), kind, spread=1.0, weighted=weighted, smallest=number % 2)
            for kind, weighted in ((one, True), (other, number % 3 > 0))
        )
        lefts.append(a)
        rights.append(b)
        limits.append(random_eps(rng, a, b))
    found = within_distance(samples(lefts), samples(rights), limits)
    wanted = [float(probability(*case)) for case in zip(lefts, rights, limits, strict=True)]
    assert np.abs(found - wanted).max() <= 1e-12
    assert sum(0 < p < 1 for p in wanted) > 15
    assert found.min() >= 0.0
    assert found.max() <= 1.0


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_equal_weights_written_out_count_too(dim: int) -> None:
    """Ten times 0.1 is not 1 in doubles, and still a count over the pairs."""
    rng = np.random.default_rng(7)
    points, others = rng.integers(-2, 3, (20, 10, dim)), rng.integers(-2, 3, (20, 7, dim))
    plain = within_distance(Samples(points), Samples(others), 2.0)
    written = within_distance(
        Samples(points, np.full((20, 10), 0.1)), Samples(others, np.full((20, 7), 1 / 7)), np.full(20, 2.0)
    )
    assert written.tolist() == plain.tolist()
    assert {count / 70 for count in range(71)} >= set(plain.tolist())


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1.0, 1e6, 1e18])
def test_counts_by_singles_are_those_by_doubles(dim: int, scale: float) -> None:
    """Objects of many samples are counted in single precision where that is sure: ties and samples next to the limit
    are not, far objects and tiny or huge ones lose all their digits."""
    rng = np.random.default_rng(dim)
    for trial in range(60):
        lx, ly = rng.integers(16, 50, 2)
        whole = trial % 2 == 1
        a, b = rng.normal(size=(3, lx, dim)), rng.normal(size=(3, ly, dim))
        if whole:
            a, b = np.round(4 * a), np.round(4 * b)
        away = rng.normal() * 10.0 ** rng.integers(-3, 9)
        a, b = (a + away) * scale, (b + away) * scale
        within = scale * (rng.integers(0, 8) if whole else rng.uniform(0, 3))
        if trial % 5 == 4:  # one pair of samples is at the limit to the last digit
            within = math.sqrt(sum((a[0, 0, c] - b[0, 0, c]) ** 2 for c in range(dim)))
            within = math.nextafter(within, 0.0) if trial % 2 else within
        squares = sum((a[:, :, None, c] - b[:, None, :, c]) ** 2 for c in range(dim))
        expected = (np.sqrt(squares) <= within).sum((1, 2)) / (lx * ly)
        assert np.array_equal(within_distance(Samples(a), Samples(b), within), expected)


def test_far_from_the_origin_and_very_small() -> None:
    """Distances are made of differences: they keep their last bit wherever the clouds are."""
    rng = np.random.default_rng(8)
    for offset, size in ((1e6, 1.0), (-1e12, 1e-3), (0.0, 1e-9)):
        a, b = (cloud(offset + size * rng.integers(-2, 3, (9, 2))) for _ in range(2))
        for eps in np.unique(distances(a.points, b.points)):
            assert within_distance(samples([a]), samples([b]), eps).tolist() == [counted(a, b, eps)]


def test_where_squares_leave_the_range_of_doubles() -> None:
    """The referee's squares do, too: it counts the same clouds on a scale of 1, which a power of two does not round."""
    rng = np.random.default_rng(8)
    for size in (2.0**-565, 2.0**531):
        a, b = (cloud(1.0 * rng.integers(-2, 3, (9, 2))) for _ in range(2))
        small, others = (Samples([size * each.points]) for each in (a, b))
        for eps in np.unique(distances(a.points, b.points)):
            assert within_distance(small, others, size * eps).tolist() == [counted(a, b, eps)]


def test_weights_that_do_not_quite_add_up() -> None:
    """Within the 1e-6 that are allowed, weights are shares of their sum, and a sure pair has probability 1."""
    left, right = Samples([[0.0, 5.0]], [[0.5, 0.5 + 8e-7]]), Samples([[0.0]], [[1 - 7e-7]])
    assert within_distance(left, right, 9.0).tolist() == [1.0]
    assert within_distance(left, right, 1.0) == pytest.approx([0.5 / (1 + 8e-7)], abs=1e-15)


# ---------------------------------------------------------------------------------------------------------------------
# Shapes


def test_one_row_serves_for_all() -> None:
    rng = np.random.default_rng(9)
    lefts = [random_cloud(rng, 2, int(rng.integers(1, 9)), kind, spread=1.0) for kind in KINDS]
    one, limits = random_cloud(rng, 2, 5, "ball", spread=1.0), rng.uniform(0, 3, len(lefts))
    wanted = [counted(a, one, 1.5) for a in lefts]
    assert within_distance(samples(lefts), samples([one]), 1.5).tolist() == wanted
    assert within_distance(samples([one]), samples(lefts), [1.5]).tolist() == wanted
    wanted = [counted(lefts[0], one, limit) for limit in limits]
    assert within_distance(samples(lefts[:1]), samples([one]), limits).tolist() == wanted
    wanted = [counted(a, one, limit) for a, limit in zip(lefts, limits, strict=True)]
    assert within_distance(samples(lefts), samples([one]), limits).tolist() == wanted
    assert len(set(wanted)) > 3


def test_no_rows() -> None:
    some, nobody = Samples([SQUARE]), Samples([SQUARE]).take(np.arange(0))
    for a, b in ((some, nobody), (nobody, some), (nobody, nobody)):
        assert within_distance(a, b, 1.0).shape == (0,)


def test_nested_and_flat_points_are_one() -> None:
    rng = np.random.default_rng(10)
    for dim in (1, 2, 3, 5):
        points, others = rng.integers(0, 4, (6, 4, dim)).astype(float), rng.integers(0, 4, (6, 3, dim)).astype(float)
        nested = within_distance(Samples(points), Samples(others), 2.0)
        flat = within_distance(
            Samples(points.reshape(6, -1), dim=dim), Samples([row.ravel().tolist() for row in others], dim=dim), 2.0
        )
        assert nested.tolist() == flat.tolist()
        assert nested.tolist() == [counted(cloud(a), cloud(b), 2.0) for a, b in zip(points, others, strict=True)]


def test_certain_numbers_are_single_samples() -> None:
    numbers, comb = Certain([0.0, 4.0, 5.0]), Samples([COMB])
    assert within_distance(numbers, comb, 3.0).tolist() == [1.0, 0.5, 0.25]
    assert within_distance(comb, numbers, [3.0, 7.0, 1.0]).tolist() == [1.0, 1.0, 0.0]
    assert within_distance(numbers, Certain([1.0]), 3.0).tolist() == [1.0, 1.0, 0.0]


def test_clouds_lie_coordinate_by_coordinate() -> None:
    these = clouds(Samples([[(1, 2), (3, 4), (5, 6)], [(7, 8)]], [[0.5, 0.25, 0.25], [1.0]]))
    assert these.dim == 2
    assert these.start.tolist() == [0, 3, 4]
    assert these.points.tolist() == [1, 3, 5, 2, 4, 6, 7, 8]
    assert these.weight.tolist() == [0.5, 0.25, 0.25, 1]
    assert these.whole.tolist() == [1, 1]
    assert these.equal.tolist() == [False, True]
    equal = clouds(Samples([[1.0, 2.0, 4.0]]))
    assert (equal.weight.tolist(), equal.whole.tolist()) == ([1, 1, 1], [3])


def test_errors() -> None:
    flat, plane, space = Samples([[1.0, 2.0]]), Samples([SQUARE]), Samples([[(1, 2, 3)]])
    for limit in (-1.0, -1e-300, math.nan, [1.0, -2.0]):
        with pytest.raises(HaplyError, match="distance is negative or NaN"):
            within_distance(flat, flat, limit)
    for a, b in ((flat, plane), (space, plane), (plane, Certain([1.0]))):
        with pytest.raises(HaplyError, match="Points differ in dimension"):
            within_distance(a, b, 1.0)
    with pytest.raises(HaplyError, match="Points differ in dimension"):
        within_distance(Samples([[1, 2, 3, 4], [1, 2, 3, 4]], dim=[1, 2]), flat, 1.0)
    two, three = Samples([[1.0], [2.0]]), Samples([[1.0], [2.0], [3.0]])
    for a, b, limit in ((two, three, 1.0), (two, flat, [1.0, 2.0, 3.0]), (flat, three, [1.0, 2.0])):
        with pytest.raises(HaplyError, match="differ in length"):
            within_distance(a, b, limit)
    with pytest.raises(HaplyError, match=r"A distance needs Gaussians.*Found Uniform"):
        within_distance(Uniform(0, 1), plane, 1.0)
    with pytest.raises(HaplyError, match="Points differ in dimension"):
        within_distance(Gaussian(0, 1), plane, 1.0)
    with pytest.raises(HaplyError, match="lengths disagree"):
        Samples([[1.0, 2.0]], [[1.0]])


# ---------------------------------------------------------------------------------------------------------------------
# The limit of squared distances


def test_squared_limit_is_the_last_whose_root_is_within() -> None:
    rng = np.random.default_rng(11)
    tried = [*rng.uniform(0, 10, 500), *(10.0 ** rng.uniform(-153, 153, 500)), *np.arange(1, 50) / 10, 1e-154, 1e154]
    for within in map(float, tried):
        limit = squared_limit(within)
        assert math.sqrt(limit) <= within < math.sqrt(math.nextafter(limit, math.inf)), within


def test_squared_limit_at_the_ends_of_doubles() -> None:
    assert squared_limit(0.0) == 0.0
    assert squared_limit(math.inf) == math.inf
    # the square vanishes, or would be infinite: then the least and the largest double are the last to count
    assert squared_limit(5e-324) == squared_limit(1e-200) == 0.0
    assert squared_limit(1e200) == squared_limit(1.7e308) == np.finfo(float).max
    for within in (1e-161, 2e-161, 1e-155):
        limit = squared_limit(within)
        assert math.sqrt(limit) <= within < math.sqrt(math.nextafter(limit, math.inf))


def test_the_root_decides_ties() -> None:
    """Where a square rounds to one side and its root to the other, the root is right, as NumPy would have it."""
    rng = np.random.default_rng(12)
    surprises = 0
    for _ in range(300):
        n = int(rng.integers(1, 9))
        a, b = (cloud(rng.random((n, 3)), random_weights(rng, n) if n > 5 else None) for _ in range(2))
        eps = float(rng.choice(distances(a.points, b.points).ravel()))
        found, wanted = within_distance(samples([a]), samples([b]), eps)[0], float(probability(a, b, eps))
        assert abs(found - wanted) <= 1e-12
        squares = ((a.points[:, None] - b.points[None]) ** 2).sum(axis=-1)
        surprises += bool(((squares <= eps * eps) != (np.sqrt(squares) <= eps)).any())
    assert surprises > 20
