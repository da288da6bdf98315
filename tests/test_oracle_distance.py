"""The distance referee is refereed here: golden values, other ways to count, every bound against the probability."""

from __future__ import annotations

import ast
import itertools
import math
import sys
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import oracle_distance
from oracle_distance import (
    KINDS,
    TOLERANCE,
    Cloud,
    all_pairs,
    answers_at,
    as_decimal,
    axis_bound,
    ball_union,
    batch_groups,
    borderline,
    cantelli,
    cantelli_bounds,
    centre,
    centre_distance,
    cloud,
    distances,
    keeps,
    line_bound,
    live_span,
    mbr_accepts,
    mbr_prunes,
    op_accepts,
    op_prunes,
    probability,
    radial_accept_bound,
    radial_profile,
    radius,
    radius_maxima,
    random_cloud,
    random_eps,
    random_weights,
    rowwise_bound,
    safe_slack,
    shell_bounds,
    sp_prunes,
    squared_distance_moments,
    staircase_bound,
    two_sided_bound,
    window_pairs,
    with_float_weights,
    within,
)

F = Fraction
SQUARE = cloud([(0, 0), (2, 0), (0, 2), (2, 2)])
SQUARE_MOVED = cloud([(4, 0), (6, 0), (4, 2), (6, 2)])
COMB = cloud([-3, -1, 1, 3])
COMB_MOVED = cloud([7, 9, 11, 13])
UNEVEN = cloud([0, 1, 2, 10], ["0.4", "0.3", "0.2", "0.1"])
UNEVEN_FAR = cloud([12, 13, 14, 30], ["0.1", "0.2", "0.3", "0.4"])


# ---------------------------------------------------------------------------------------------------------------
# Golden values, worked out by hand


@pytest.mark.parametrize(
    ("eps", "expected"),
    [(1.9, F(0)), (2, F(1, 8)), (3, F(1, 4)), (4, F(1, 2)), (4.5, F(3, 4)), (5, F(3, 4)), (6, F(7, 8)), (7, F(1))],
)
def test_golden_01_two_squares(eps: float, expected: Fraction) -> None:
    assert probability(SQUARE, SQUARE_MOVED, eps) == expected
    assert centre_distance(SQUARE, SQUARE_MOVED) == 4
    assert radius(SQUARE) == radius(SQUARE_MOVED) == math.sqrt(2)


def test_golden_02_object_level_limits_of_two_squares() -> None:
    prune_below, accept_from, step = 4 - 2 * math.sqrt(2), 4 + 2 * math.sqrt(2), 1e-10
    assert [f"{prune_below:.10f}", f"{accept_from:.10f}"] == ["1.1715728753", "6.8284271247"]
    assert op_prunes(SQUARE, SQUARE_MOVED, prune_below - step)
    assert not op_prunes(SQUARE, SQUARE_MOVED, prune_below + step)
    assert op_accepts(SQUARE, SQUARE_MOVED, accept_from + step)
    assert not op_accepts(SQUARE, SQUARE_MOVED, accept_from - step)


@pytest.mark.parametrize(
    ("eps", "expected"), [(1.9, F(0)), (2, F(1, 4)), (3, F(1, 4)), (4, F(3, 4)), (5, F(3, 4)), (6, F(1))]
)
def test_golden_03_line_bound_of_two_squares(eps: float, expected: Fraction) -> None:
    assert line_bound(SQUARE, SQUARE_MOVED, eps) == expected


@pytest.mark.parametrize(("eps", "expected"), [(5, (F(1, 2), F(1))), (1.9, (F(0), F(1, 2)))])
def test_golden_03_shell_bounds_of_two_squares(eps: float, expected: tuple[Fraction, Fraction]) -> None:
    assert shell_bounds(SQUARE, SQUARE_MOVED, eps) == expected
    assert shell_bounds(SQUARE_MOVED, SQUARE, eps) == expected


@pytest.mark.parametrize(("eps", "expected"), [(3, F(0)), (5, F(1, 16)), (6, F(3, 16)), (7, F(3, 16)), (8, F(3, 8))])
def test_golden_04_two_combs(eps: float, expected: Fraction) -> None:
    assert probability(COMB, COMB_MOVED, eps) == expected
    assert radial_profile(COMB) == ([1, 1, 3, 3], [F(1, 4), F(1, 2), F(3, 4), F(1)])


def test_golden_05_sample_level_rules_of_two_combs() -> None:
    assert staircase_bound(COMB, COMB_MOVED, 5) == F(1, 4)
    assert {gamma: sp_prunes(COMB, COMB_MOVED, 5, gamma) for gamma in (0.6, 0.5, 0.3)} == {
        0.6: True,
        0.5: False,  # the inner spheres hold exactly 1/2, which is not more than 1/2
        0.3: False,
    }
    assert shell_bounds(COMB, COMB_MOVED, 5)[1] == shell_bounds(COMB_MOVED, COMB, 5)[1] == F(1, 8)
    assert line_bound(COMB, COMB_MOVED, 5) == F(1, 16)


def test_golden_06_sample_level_and_object_level_of_two_combs() -> None:
    assert staircase_bound(COMB, COMB_MOVED, 6) == F(3, 4)
    assert sp_prunes(COMB, COMB_MOVED, 6, 0.9)
    assert not sp_prunes(COMB, COMB_MOVED, 6, 0.75)
    assert op_prunes(COMB, COMB_MOVED, 3)
    assert not op_prunes(COMB, COMB_MOVED, 4)


@pytest.mark.parametrize(("eps", "expected"), [(2, F(1, 100)), (5, F(3, 50)), (12, F(31, 100)), (20, F(16, 25))])
def test_golden_07_weighted_samples(eps: float, expected: Fraction) -> None:
    assert probability(UNEVEN, UNEVEN_FAR, eps) == expected
    assert [centre(UNEVEN).item(), centre(UNEVEN_FAR).item()] == [3.25, 17.25]


def test_golden_08_bounds_of_weighted_samples() -> None:
    assert radial_profile(UNEVEN) == ([1.25, 2.25, 3.25, 6.75], [F(1, 5), F(1, 2), F(9, 10), F(1)])
    assert radial_profile(UNEVEN_FAR) == ([3.25, 4.25, 5.25, 12.75], [F(3, 10), F(1, 2), F(3, 5), F(1)])
    assert staircase_bound(UNEVEN, UNEVEN_FAR, 2) == F(41, 100)
    assert staircase_bound(UNEVEN, UNEVEN_FAR, 5) == F(23, 50)
    assert radial_accept_bound(UNEVEN, UNEVEN_FAR, 20) == F(19, 100)
    assert shell_bounds(UNEVEN_FAR, UNEVEN, 20) == (F(3, 5), F(16, 25))


def test_golden_09_sample_level_rule_of_weighted_samples() -> None:
    assert sp_prunes(UNEVEN, UNEVEN_FAR, 2, 0.5)
    assert not sp_prunes(UNEVEN, UNEVEN_FAR, 2, 0.4)


def test_golden_10_radius_maxima() -> None:
    assert radius_maxima([3, 1, 2, 2, 5, 4, 4, 1, 1, 1], 3) == [3, 3, 3, 2, 5, 5, 5, 4, 4, 1]


def test_golden_11_ball_unions() -> None:
    middle, reach = ball_union((0, 0), 1, (4, 0), 2)
    assert (middle.tolist(), reach) == ([2.5, 0], 3.5)
    middle, reach = ball_union((0, 0), 5, (1, 0), 1)
    assert (middle.tolist(), reach) == ([0, 0], 5)
    middle, reach = ball_union((1, 0), 1, (0, 0), 5)
    assert (middle.tolist(), reach) == ([0, 0], 5)


def test_golden_12_the_largest_radius_counts_the_newest_object() -> None:
    x, y, eps = cloud([0, 100]), cloud([0, -100]), 1
    assert probability(x, y, eps) == F(1, 4)
    assert (centre_distance(x, y), radius(x), radius(y)) == (100, 50, 50)
    assert not op_prunes(x, y, eps)
    before, after = radius_maxima([0, 0, 0, radius(y)], 3)[-2:]
    assert eps + radius(x) + before == 51 < centre_distance(x, y) <= eps + radius(x) + after
    assert keeps(x, y, eps, 0.25)
    assert not keeps(x, y, eps, 0.26)


def test_golden_13_batch_groups() -> None:
    groups = batch_groups([(0, 0), (1, 0), (2, 0), (9, 0), (9.5, 0)], [0.5] * 5, eps=1, r_max=1)
    assert [(group.members, group.centre.tolist(), group.radius) for group in groups] == [
        ((0, 1, 2), [1, 0], 1.5),
        ((3, 4), [9.25, 0], 0.75),
    ]


def test_golden_14_float_trap_of_the_sample_level_rule() -> None:
    assert (7 / 100) * (100 / 100) > 1 - 0.93  # both sides are 7/100
    # Seven samples in the middle, the others in balance about them: only the seven are surely out of reach.
    x = cloud([0] * 7 + [10] * 62 + [-20] * 31)
    y = cloud([50] * 100)
    assert radial_profile(x)[1][6] * radial_profile(y)[1][99] == F(7, 100)
    assert not sp_prunes(x, y, 45, 0.93)
    assert sp_prunes(x, y, 45, 0.94)


def test_golden_14_float_trap_that_would_lose_an_answer() -> None:
    assert (66 / 100) * (100 / 100) > 1 - 0.34  # both sides are 66/100
    x, y, eps = cloud([-34] * 66 + [66] * 34), cloud([1000] * 100), 1000 - 66
    assert probability(x, y, eps) == F(34, 100)
    assert keeps(x, y, eps, 0.34)
    assert not sp_prunes(x, y, eps, 0.34)
    assert sp_prunes(x, y, eps, 0.35)


def test_golden_14_float_trap_of_the_probability() -> None:
    naive = 0.0
    for _ in range(3000):
        naive += 0.01 * 0.01
    assert naive == 0.2999999999999833 < 0.3
    x, y = cloud([0] * 100), cloud([0] * 30 + [9] * 70)
    assert probability(x, y, 1) == F(3, 10)
    assert keeps(x, y, 1, 0.3)
    assert not keeps(x, y, 1, 0.3, strict=True)
    assert not keeps(x, y, 1, 0.3000000000000001)


def test_golden_15_liveness() -> None:
    window = 3 - 1
    assert live_span(5, 7, window) == live_span(7, 5, window) == (7, 7)
    assert live_span(5, 8, window) is None
    assert live_span(5, 5, window) == (5, 7)
    point = cloud([0])

    def live(i: int, j: int) -> list[int]:
        found = {t: answers_at(t, [point], [point], [i], [j], window=window, eps=0, threshold=1) for t in range(1, 12)}
        return [t for t, pairs in found.items() if pairs]

    assert [live(5, 7), live(7, 5), live(5, 8), live(5, 5)] == [[7], [7], [], [5, 6, 7]]


# ---------------------------------------------------------------------------------------------------------------
# Independence


def test_the_referee_imports_only_numpy_and_the_standard_library() -> None:
    tree = ast.parse(Path(oracle_distance.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in imported}
    assert "numpy" in roots
    assert roots - {"numpy"} <= sys.stdlib_module_names


# ---------------------------------------------------------------------------------------------------------------
# Random pairs of clouds


def random_pairs(seed: int, count: int) -> Iterator[tuple[np.random.Generator, Cloud, Cloud, float]]:
    """Every pair of kinds in turn, in one to four dimensions, with equal, weighted, zero-weighted and float weights."""
    rng = np.random.default_rng(seed)
    kinds = itertools.cycle(itertools.product(KINDS, KINDS))
    for _, (kind_a, kind_b) in zip(range(count), kinds, strict=False):
        d = int(rng.integers(1, 5))
        spread = float(rng.choice([0.0, 1.0, 3.0]))
        a, b = (
            random_cloud(
                rng,
                d,
                int(rng.integers(1, 9)),
                kind,
                weighted=bool(rng.integers(2)),
                size=float(rng.choice([0.3, 1.0, 2.0])),
                spread=spread,
                smallest=int(rng.integers(2)),
            )
            for kind in (kind_a, kind_b)
        )
        if rng.random() < 0.25:
            a, b = with_float_weights(a), with_float_weights(b)
        yield rng, a, b, random_eps(rng, a, b)


def test_random_pairs_are_worth_testing() -> None:
    """Without this, all the enclosures below could hold on trivial cases only."""
    cases = [(a, b, eps, probability(a, b, eps)) for _, a, b, eps in random_pairs(1, 600)]
    assert sum(0 < p < 1 for *_, p in cases) > 200
    assert sum(p == 0 for *_, p in cases) > 30
    assert sum(p >= 1 for *_, p in cases) > 30
    assert sum(bool((distances(a.points, b.points) == eps).any()) for a, b, eps, _ in cases) > 200
    assert sum(a.mass != 1 for a, *_ in cases) > 10
    assert sum(op_prunes(a, b, eps) for a, b, eps, _ in cases) > 5
    assert sum(op_accepts(a, b, eps) for a, b, eps, _ in cases) > 5
    assert sum(0 < line_bound(a, b, eps) < 1 for a, b, eps, _ in cases) > 100
    assert sum(shell_bounds(a, b, eps)[0] > 0 for a, b, eps, _ in cases) > 100
    assert sum(shell_bounds(a, b, eps)[1] < 1 for a, b, eps, _ in cases) > 100
    assert sum(0 < staircase_bound(a, b, eps) < 1 for a, b, eps, _ in cases) > 50


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("weighted_centre", [False, True])
def test_every_bound_encloses_the_probability(weighted_centre: bool) -> None:
    for _, a, b, eps in random_pairs(2 + weighted_centre, 600):
        p = probability(a, b, eps)
        slack = safe_slack(a, b, eps)
        how = {"weighted_centre": weighted_centre, "slack": slack}
        uppers = {
            "staircase": staircase_bound(a, b, eps, **how),
            "two-sided": two_sided_bound(a, b, eps, **how),
            "shell": shell_bounds(a, b, eps, **how)[1],
            "shell swapped": shell_bounds(b, a, eps, **how)[1],
            "axis": axis_bound(a, b, eps, slack=slack),
            "line": line_bound(a, b, eps, **how),
            "row-wise": rowwise_bound(a, b, eps, **how),
            "row-wise swapped": rowwise_bound(b, a, eps, **how),
            "moments": cantelli_bounds(a, b, eps, slack=slack)[1],
        }
        lowers = {
            "radial": radial_accept_bound(a, b, eps, **how),
            "shell": shell_bounds(a, b, eps, **how)[0],
            "shell swapped": shell_bounds(b, a, eps, **how)[0],
            "moments": cantelli_bounds(a, b, eps, slack=slack)[0],
        }
        assert {name: value for name, value in uppers.items() if value < p} == {}
        assert {name: value for name, value in lowers.items() if value > p} == {}


@pytest.mark.parametrize("weighted_centre", [False, True])
def test_object_level_rules_are_sound(weighted_centre: bool) -> None:
    pruned = accepted = 0
    for _, a, b, eps in random_pairs(4, 800):
        slack = safe_slack(a, b, eps)
        p = probability(a, b, eps)
        rules = {"weighted_centre": weighted_centre, "slack": slack}
        if op_prunes(a, b, eps, **rules) or mbr_prunes(a, b, eps, slack=slack):
            pruned += 1
            assert p == 0
        if op_accepts(a, b, eps, **rules) or mbr_accepts(a, b, eps, slack=slack):
            accepted += 1
            assert p == a.mass * b.mass
    assert min(pruned, accepted) > 10


def linear_sp_prunes(a: Cloud, b: Cloud, eps: float, gamma: float, slack: float) -> tuple[bool, int]:
    """The same rule with one pointer into each list, as an algorithm would run it; also counts its steps."""
    (rho_a, mass_a), (rho_b, mass_b) = radial_profile(a), radial_profile(b)
    apart, needed, last, steps = centre_distance(a, b), a.mass * b.mass - as_decimal(gamma), len(b) - 1, 0
    for k in range(len(a)):
        steps += 1
        if mass_a[k] * mass_b[last] <= needed:
            continue
        while last > 0 and mass_a[k] * mass_b[last - 1] > needed:
            last, steps = last - 1, steps + 1
        if apart - rho_a[k] - rho_b[last] > eps + slack:
            return True, steps
    return False, steps


@pytest.mark.long
def test_sample_level_rule() -> None:
    """Sound; contains the object-level rule; contained in the staircase; equal to the linear search."""
    pruned = more_than_objects = fewer_than_staircase = 0
    for (_, a, b, eps), k in itertools.product(random_pairs(5, 500), range(2, 21, 3)):
        gamma = k / 20
        slack = safe_slack(a, b, eps)
        by_samples = sp_prunes(a, b, eps, gamma, slack=slack)
        by_objects = op_prunes(a, b, eps, slack=slack)
        by_staircase = staircase_bound(a, b, eps, slack=slack) < as_decimal(gamma)
        decided, steps = linear_sp_prunes(a, b, eps, gamma, slack)
        assert decided == by_samples
        assert steps <= len(a) + len(b)
        assert not by_samples or probability(a, b, eps) < as_decimal(gamma)
        assert by_samples >= by_objects
        assert by_staircase >= by_samples
        pruned += by_samples
        more_than_objects += by_samples > by_objects
        fewer_than_staircase += by_staircase > by_samples
    assert pruned > 100
    assert more_than_objects > 50
    assert fewer_than_staircase > 10


def test_an_equality_in_the_sample_level_rule_can_be_an_answer() -> None:
    """Why its `>` is strict: here the inner spheres hold exactly 1 - gamma, and P is gamma."""
    x, y = cloud([-1, -1, -1, 3]), cloud([10])
    assert radial_profile(x) == ([1, 1, 1, 3], [F(1, 4), F(1, 2), F(3, 4), F(1)])
    assert probability(x, y, 7) == staircase_bound(x, y, 7) == F(1, 4)
    assert keeps(x, y, 7, 0.25)
    assert not sp_prunes(x, y, 7, 0.25)
    assert sp_prunes(x, y, 7, "0.2500001")
    heavier = cloud([-1, -1, -1, 3], ["0.25", "0.25", "0.25", "0.26"])  # not normalised: P is 0.26 of 1.01
    assert not sp_prunes(heavier, y, 7, 0.26)
    assert sp_prunes(heavier, y, 7, "0.2600001")


@pytest.mark.long
def test_bounds_that_promise_to_be_tighter_are() -> None:
    for _, a, b, eps in random_pairs(6, 600):
        slack = safe_slack(a, b, eps)
        looser = 4 * slack  # the tighter bound measures other distances: leave room for their rounding
        for x, y in ((a, b), (b, a)):
            lower, upper = shell_bounds(x, y, eps, slack=slack)
            assert upper <= two_sided_bound(a, b, eps, slack=looser) <= staircase_bound(a, b, eps, slack=looser)
            assert lower >= radial_accept_bound(a, b, eps, slack=looser)
            assert rowwise_bound(x, y, eps, slack=slack) <= min(upper, line_bound(a, b, eps, slack=looser))


def test_two_sided_bound_sees_a_small_cloud_inside_a_large_shell() -> None:
    shell, core = cloud([-10, 10]), cloud([-1, 1])
    assert staircase_bound(shell, core, 3) == 1
    assert two_sided_bound(shell, core, 3) == two_sided_bound(core, shell, 3) == 0


def test_box_rules_on_two_squares() -> None:
    assert mbr_prunes(SQUARE, SQUARE_MOVED, 1.9)
    assert not mbr_prunes(SQUARE, SQUARE_MOVED, 2)
    assert not mbr_prunes(SQUARE_MOVED, SQUARE, 2)
    assert mbr_accepts(SQUARE, SQUARE_MOVED, math.sqrt(40))
    assert not mbr_accepts(SQUARE, SQUARE_MOVED, 6.32)


def test_axis_bound_takes_the_best_coordinate() -> None:
    assert axis_bound(SQUARE, SQUARE_MOVED, 1.9) == 0
    assert axis_bound(SQUARE, SQUARE_MOVED, 2) == F(1, 4)
    assert axis_bound(SQUARE, SQUARE_MOVED, 3) == F(1, 4)
    turned, turned_moved = cloud(SQUARE.points[:, ::-1]), cloud(SQUARE_MOVED.points[:, ::-1])
    assert axis_bound(turned, turned_moved, 3) == F(1, 4)


def test_concentric_clouds_have_no_line() -> None:
    assert line_bound(COMB, COMB, 0) == 1
    tiny = cloud([(1e-200, 0), (1e-200, 0)])
    assert line_bound(cloud([(-9, 0), (9, 0)]), tiny, 8) == 0
    assert line_bound(cloud([(-9, 0), (9, 0)]), tiny, 10) == 1


# ---------------------------------------------------------------------------------------------------------------
# Probability, counted another way


def test_close_pairs_one_by_one() -> None:
    """In plain Python floats: the same squares, the same order, the same correctly rounded root."""
    for _, a, b, eps in random_pairs(7, 200):
        one_by_one = []
        for x in a.points.tolist():
            for y in b.points.tolist():
                squared = 0.0
                for p, q in zip(x, y, strict=True):
                    squared += (p - q) * (p - q)
                one_by_one.append(math.sqrt(squared) <= eps)
        assert within(a.points, b.points, eps).ravel().tolist() == one_by_one


def test_the_coordinates_are_added_in_order() -> None:
    """Three coordinates whose squares add to different doubles forwards and backwards."""
    rng = np.random.default_rng(8)
    for point in rng.uniform(0, 1, size=(1000, 3)).tolist():
        forwards = math.sqrt((point[0] ** 2 + point[1] ** 2) + point[2] ** 2)
        backwards = math.sqrt((point[2] ** 2 + point[1] ** 2) + point[0] ** 2)
        if forwards < backwards:
            break
    assert forwards < backwards
    assert probability(cloud([point]), cloud([(0, 0, 0)]), forwards) == 1
    assert probability(cloud([point[::-1]]), cloud([(0, 0, 0)]), forwards) == 0


def test_distances_are_compared_not_their_squares() -> None:
    eps = math.sqrt(3)
    assert eps * eps < 3
    assert probability(cloud([(1, 1, 1)]), cloud([(0, 0, 0)]), eps) == 1
    assert probability(cloud([(1, 1, 1)]), cloud([(0, 0, 0)]), math.nextafter(eps, 0)) == 0


def test_lattice_clouds_in_integers() -> None:
    rng = np.random.default_rng(9)
    ties = 0
    for _ in range(200):
        a, b = (random_cloud(rng, 2, 6, "lattice", weighted=True, size=3) for _ in range(2))
        assert np.array_equal(a.points, np.rint(a.points))
        eps, expected = int(rng.integers(0, 8)), F(0)
        for (x, weight_x), (y, weight_y) in itertools.product(
            zip(a.points, a.exact_weights, strict=True), zip(b.points, b.exact_weights, strict=True)
        ):
            squared = sum((int(p) - int(q)) ** 2 for p, q in zip(x, y, strict=True))
            ties += squared == eps**2
            expected += weight_x * weight_y if squared <= eps**2 else 0
        assert probability(a, b, eps) == expected
    assert ties > 100


def test_probability_is_symmetric_monotone_and_blind_to_order_and_splitting() -> None:
    for rng, a, b, eps in random_pairs(10, 200):
        p = probability(a, b, eps)
        assert 0 <= p <= a.mass * b.mass
        assert probability(b, a, eps) == p
        assert probability(a, b, eps / 2) <= p <= probability(a, b, 2 * eps)
        order = rng.permutation(len(a))
        shuffled = cloud(a.points[order], [a.exact_weights[k] for k in order])
        halves = cloud(np.repeat(a.points, 2, axis=0), [w / 2 for w in a.exact_weights for _ in range(2)])
        assert probability(shuffled, b, eps) == probability(halves, b, eps) == p


def test_float_weights_are_taken_as_they_are() -> None:
    thirds = with_float_weights(cloud([0, 1, 2], [F(1, 3)] * 3))
    assert thirds.mass == 3 * Fraction(1 / 3) < 1
    assert probability(thirds, cloud([0]), 9) == thirds.mass
    assert cloud([0, 1], [0.1, 0.9]).weights == (Fraction(0.1), Fraction(0.9))
    assert cloud([0, 1], [0.1, 0.9]).mass != 1


@pytest.mark.parametrize(
    ("points", "weights"),
    [([], None), ([math.nan], None), ([0, 1], [1]), ([0, 1], [-1, 2]), ([0, 1], [0, 0]), ([[[0]]], None)],
)
def test_bad_clouds_are_refused(points: list, weights: list | None) -> None:
    with pytest.raises(ValueError):
        cloud(points, weights)


# ---------------------------------------------------------------------------------------------------------------
# Decisions


def pair_with(p: Fraction, weighted: bool) -> tuple[Cloud, Cloud]:
    """Two clouds that are within 1 with probability p."""
    if weighted:
        return cloud([0, 9], [p, 1 - p]), cloud([0])
    hits, samples = p.numerator, p.denominator
    return cloud([0] * hits + [9] * (samples - hits)), cloud([0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", range(1, 101))
def test_a_tie_is_kept_unless_strict(k: int, weighted: bool) -> None:
    a, b = pair_with(F(k, 100), weighted)
    assert keeps(a, b, 1, k / 100)
    assert not keeps(a, b, 1, k / 100, strict=True)
    assert keeps(*pair_with(F(k, 100), weighted), 1, k / 100 - 0.001, strict=True)
    assert not keeps(*pair_with(F(k, 100), weighted), 1, k / 100 + 0.001)


def test_only_weighted_pairs_have_a_tolerance() -> None:
    above, below = "0.666666666666667", "0.666666666666666"  # 2/3 is 3.3e-16 below the one, 6.7e-16 above the other
    exact, tolerant = pair_with(F(2, 3), False), pair_with(F(2, 3), True)
    assert [keeps(*exact, 1, above), keeps(*tolerant, 1, above)] == [False, True]
    assert [keeps(*exact, 1, below, strict=True), keeps(*tolerant, 1, below, strict=True)] == [True, False]
    assert keeps(*reversed(tolerant), 1, above)  # one weighted side is enough


@pytest.mark.parametrize(("strict", "edge"), [(False, F(1, 2) - TOLERANCE), (True, F(1, 2) + TOLERANCE)])
def test_the_edge_of_the_tolerance(strict: bool, edge: Fraction) -> None:
    tiny = F(1, 10**14)
    assert keeps(*pair_with(edge, True), 1, 0.5, strict) == (not strict)
    assert keeps(*pair_with(edge + tiny, True), 1, 0.5, strict)
    assert not keeps(*pair_with(edge - tiny, True), 1, 0.5, strict)
    assert borderline(*pair_with(edge + F(1, 10**11), True), 1, 0.5, strict)
    assert borderline(*pair_with(edge - F(99, 10**13), True), 1, 0.5, strict)
    assert not borderline(*pair_with(edge + F(101, 10**13), True), 1, 0.5, strict)
    assert not borderline(*pair_with(edge - F(101, 10**13), True), 1, 0.5, strict)
    assert borderline(*pair_with(F(1, 2), True), 1, 0.5, strict)
    assert not borderline(*pair_with(F(1, 2), True), 1, 0.5, strict, margin=1e-13)


def test_what_is_never_borderline() -> None:
    assert not borderline(*pair_with(F(1, 2), False), 1, 0.5)
    assert not borderline(*pair_with(F(1, 2), True), 1, None)
    assert not borderline(*pair_with(F(0), True), 1, 1e-12)


def test_impossible_pairs_are_never_kept() -> None:
    for weighted in (False, True):
        assert not keeps(*pair_with(F(0), weighted), 1, None)
        assert not keeps(*pair_with(F(0), weighted), 1, 1e-13)
    assert keeps(*pair_with(F(1, 10**15), True), 1, None)
    assert keeps(*pair_with(F(1, 10**15), True), 1, 1e-13)


def test_rounding_a_weight_changes_no_decision_but_a_borderline_one() -> None:
    """What a library is given and what the referee decides: floats and fractions of the same weights."""
    ties = 0
    for rng, a, b, eps in random_pairs(11, 400):
        threshold, strict = int(rng.integers(1, 21)) / 20, bool(rng.integers(2))
        if borderline(a, b, eps, threshold, strict, margin=1e-13):
            continue
        ties += probability(a, b, eps) == as_decimal(threshold)
        rounded = with_float_weights(a), with_float_weights(b)
        assert keeps(*rounded, eps, threshold, strict) == keeps(a, b, eps, threshold, strict)
    assert ties > 5


# ---------------------------------------------------------------------------------------------------------------
# Windows and streams


def random_stream(rng: np.random.Generator, length: int, weighted: bool = False) -> list[Cloud]:
    return [
        random_cloud(rng, 2, int(rng.integers(1, 5)), str(rng.choice(KINDS)), weighted=weighted) for _ in range(length)
    ]


def test_window_pairs_are_those_with_a_span() -> None:
    rng = np.random.default_rng(12)
    for _ in range(50):
        lefts, rights = (rng.integers(0, 12, size=6).tolist() for _ in range(2))
        window = int(rng.integers(0, 6))
        spans = {(i, j): live_span(lefts[i], rights[j], window) for i, j in itertools.product(range(6), repeat=2)}
        assert window_pairs(lefts, rights, window) == [pair for pair, span in spans.items() if span is not None]
        assert all(first <= last for first, last in filter(None, spans.values()))


def test_without_a_window_all_pairs_stay() -> None:
    assert window_pairs([0, 100], [-100], None) == [(0, 0), (1, 0)]
    assert live_span(0, 100, None) == (100, math.inf)


@pytest.mark.parametrize("strict", [False, True])
def test_answers_over_time_are_all_pairs_in_their_spans(strict: bool) -> None:
    rng = np.random.default_rng(13)
    several = 0
    for trial in range(10):
        lefts, rights = random_stream(rng, 8, weighted=trial % 2 == 1), random_stream(rng, 8)
        left_times, right_times = (sorted(rng.integers(0, 15, size=8).tolist()) for _ in range(2))
        query = {"window": 3, "eps": 2.0, "threshold": 0.25, "strict": strict}
        found = all_pairs(lefts, rights, left_times, right_times, **query)
        several += len(found) > 2
        assert all(p == probability(lefts[i], rights[j], 2.0) for (i, j), p in found.items())
        for t in range(-1, 20):
            expected = set()
            for i, j in found:
                first, last = live_span(left_times[i], right_times[j], 3)
                if first <= t <= last:
                    expected.add((i, j))
            assert answers_at(t, lefts, rights, left_times, right_times, **query) == expected
    assert several > 4


def test_an_incremental_join_gives_the_answers_from_scratch() -> None:
    """Evict, then compare only the two new objects with the other window."""
    rng = np.random.default_rng(14)
    total = 0
    for w in (1, 2, 4):
        length, eps, threshold = 10, 2.0, 0.3
        lefts, rights = random_stream(rng, length), random_stream(rng, length, weighted=True)
        times, answers = list(range(length)), set()
        for t in times:
            window = range(max(0, t - w + 1), t + 1)
            answers = {(i, j) for i, j in answers if i in window and j in window}
            fresh = {(t, j) for j in window} | {(i, t) for i in window}
            answers |= {(i, j) for i, j in fresh if keeps(lefts[i], rights[j], eps, threshold)}
            scratch = answers_at(t, lefts, rights, times, times, window=w - 1, eps=eps, threshold=threshold)
            assert answers == scratch
            total += len(answers)
    assert total > 20


def test_radius_maxima_match_a_decreasing_list() -> None:
    """Equal radii must replace or follow each other in such a list; dropping the later one goes wrong."""
    rng = np.random.default_rng(15)
    dropped_is_wrong = False
    for _ in range(200):
        w, values = int(rng.integers(1, 6)), rng.integers(0, 5, size=20).tolist()

        def front(values: list[int], w: int, drop_ties: bool) -> list[int]:
            kept: deque[tuple[int, int]] = deque()
            maxima = []
            for t, r in enumerate(values):
                while kept and kept[-1][0] < r:
                    kept.pop()
                if not (drop_ties and kept and kept[-1][0] == r):
                    kept.append((r, t))
                while kept and kept[0][1] <= t - w:
                    kept.popleft()
                maxima.append(kept[0][0] if kept else 0)
            return maxima

        assert front(values, w, drop_ties=False) == radius_maxima(values, w)
        dropped_is_wrong |= front(values, w, drop_ties=True) != radius_maxima(values, w)
    assert dropped_is_wrong


def test_ball_union_is_the_smallest_ball_around_both() -> None:
    rng = np.random.default_rng(16)
    for _ in range(300):
        d = int(rng.integers(1, 5))
        c1, c2 = rng.uniform(-2, 2, size=(2, d))
        r1, r2 = rng.uniform(0, 2, size=2).tolist()
        middle, reach = ball_union(c1, r1, c2, r2)
        apart = float(np.linalg.norm(c1 - c2))
        for c, r in ((c1, r1), (c2, r2)):
            assert float(np.linalg.norm(middle - c)) + r <= reach + 1e-12
        assert reach <= max(r1, r2, (apart + r1 + r2) / 2) + 1e-12


def test_batch_groups_lose_no_pair() -> None:
    """Every pair that the object-level rule leaves lies within the search of its group."""
    rng = np.random.default_rng(17)
    left = shared = 0
    for _ in range(40):
        d, eps = int(rng.integers(1, 4)), float(rng.uniform(0.1, 2))
        walk = np.cumsum(rng.normal(0, 0.5, size=(12, d)), axis=0)
        lefts, rights = (
            [cloud(walk[k] + random_cloud(rng, d, 5, "ball", spread=0).points) for k in range(12)] for _ in range(2)
        )
        r_max = max(radius(y) for y in rights)
        groups = batch_groups([centre(x) for x in lefts], [radius(x) for x in lefts], eps, r_max)
        assert [k for group in groups for k in group.members] == list(range(12))
        shared += len(groups) < 12
        for group in groups:
            for k, y in itertools.product(group.members, rights):
                if not op_prunes(lefts[k], y, eps):
                    left += 1
                    assert np.linalg.norm(group.centre - centre(y)) <= eps + group.radius + r_max + 1e-12
    assert min(left, shared) > 10


def test_batch_groups_that_would_not_pay_stay_apart() -> None:
    groups = batch_groups([(0,), (100,), (0,)], [1, 1, 1], eps=1, r_max=1)
    assert [group.members for group in groups] == [(0,), (1,), (2,)]
    # Reach 2 for one, 4 for two: in one dimension that is the same length per object, in two it is not.
    assert [group.members for group in batch_groups([(0,), (4,)], [0, 0], eps=1, r_max=1)] == [(0, 1)]
    assert [group.members for group in batch_groups([(0, 0), (4, 0)], [0, 0], eps=1, r_max=1)] == [(0,), (1,)]


# ---------------------------------------------------------------------------------------------------------------
# Moments


def test_moments_of_two_combs() -> None:
    """(x - y)^2 for x, y in a comb: 0 four times, 4 six times, 16 four times, 36 twice."""
    assert squared_distance_moments(COMB, COMB) == (F(10), F(6 * 16 + 4 * 256 + 2 * 1296, 16) - 100)


def test_moments_follow_from_those_of_the_clouds() -> None:
    """E|x - y|^2 is the squared distance of the weighted means and both spreads; the variance is numpy's, in floats."""
    rng = np.random.default_rng(18)
    for _ in range(40):
        a, b = (random_cloud(rng, 3, 5, "gaussian", weighted=True) for _ in range(2))
        mean, variance = squared_distance_moments(a, b)
        step = centre(b, weighted_centre=True) - centre(a, weighted_centre=True)
        spreads = [
            np.average(((c.points - centre(c, weighted_centre=True)) ** 2).sum(axis=1), weights=c.float_weights)
            for c in (a, b)
        ]
        assert float(mean) == pytest.approx(float(step @ step) + sum(spreads), rel=1e-12)
        weights = np.outer(a.float_weights, b.float_weights)
        squares = distances(a.points, b.points) ** 2
        assert float(variance) == pytest.approx(
            np.average((squares - float(mean)) ** 2, weights=weights), rel=1e-9, abs=1e-12
        )


def test_cantelli_is_met_by_two_values() -> None:
    """The inequality is sharp: S = 0 or 5 with probabilities 4/5 and 1/5 has mean 1 and variance 4."""
    assert cantelli(F(1), F(4), F(0)) == (F(0), F(4, 5))
    assert cantelli(F(1), F(4), F(5)) == (F(4, 5), F(1))
    assert cantelli(F(1), F(4), F(1)) == (F(0), F(1))
    assert cantelli(F(1), F(0), F(0)) == (F(0), F(0))
    assert cantelli(F(1), F(0), F(2)) == (F(1), F(1))


def test_a_slack_larger_than_eps_leaves_no_lower_bound() -> None:
    assert cantelli_bounds(cloud([0]), cloud([1e-13]), 0, slack=1e-12) == (F(0), F(1))


def test_cantelli_bounds_decide_something() -> None:
    cases = [cantelli_bounds(a, b, eps, slack=safe_slack(a, b, eps)) for _, a, b, eps in random_pairs(19, 200)]
    assert sum(lower > 0 for lower, _ in cases) > 40
    assert sum(upper < 1 for _, upper in cases) > 40


# ---------------------------------------------------------------------------------------------------------------
# Generators


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_generators_make_what_they_say(kind: str, weighted: bool) -> None:
    rng = np.random.default_rng(20)
    made = random_cloud(rng, 3, 40, kind, weighted=weighted, size=2.0)
    rho = radial_profile(made)[0]
    spread = np.linalg.svd(made.points - made.points.mean(axis=0), compute_uv=False)
    assert made.dim == 3
    assert len(made) == (1 if kind == "one" else 40)
    assert (made.weights is None) == (not weighted)
    assert made.mass == 1
    match kind:
        case "ball":
            assert 1 < rho[-1] <= 3
        case "gaussian":
            assert 0.5 < made.points.std() < 4
            assert rho[-1] > 2
        case "lattice":
            assert np.array_equal(made.points, np.rint(made.points))
            assert len(np.unique(made.points, axis=0)) < 40
        case "one" | "same":
            assert rho[-1] < 1e-12
        case "line":
            assert spread[1] < 0.1 * spread[0]
            assert rho[-1] > 1
        case "two_clusters":
            assert rho[0] > 1
    if weighted:
        assert made.float_weights == [float(w) for w in made.weights]


def test_random_weights_are_integers_over_their_sum() -> None:
    rng = np.random.default_rng(21)
    assert any(0 in random_weights(rng, 10, smallest=0) for _ in range(20))
    for n in (1, 2, 7):
        weights = random_weights(rng, n)
        assert sum(weights) == 1
        assert min(weights) > 0
    assert random_weights(rng, 2, smallest=0, largest=0) == (F(1), F(0))


def test_the_same_seed_makes_the_same_cloud() -> None:
    first, second = (random_cloud(np.random.default_rng(22), 2, 5, "ball", weighted=True) for _ in range(2))
    assert np.array_equal(first.points, second.points)
    assert first.weights == second.weights
