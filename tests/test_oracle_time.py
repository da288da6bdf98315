"""The referee of joins in time is refereed here: golden values, other ways to compute, and mistakes that must show."""

from __future__ import annotations

import ast
import itertools
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import oracle
import oracle_time
from amounts import fewer
from oracle import Discrete, Hist, Normal, Point, shifted
from oracle_time import (
    DifferenceLaw,
    Heartbeat,
    Row,
    WindowRun,
    arrivals,
    band,
    band_at,
    band_float,
    bew,
    borderline,
    closure,
    configuration,
    detected,
    disorder,
    few,
    first,
    ge,
    histogram,
    interleave,
    joint_gaussians,
    joint_samples,
    keeps,
    last,
    length,
    local_windows,
    low_bounds,
    pair_bounds,
    point,
    probability_between,
    random_events,
    random_streams,
    random_template,
    random_windows,
    replay,
    rows,
    satisfaction,
    stime_minus,
    stime_plus,
    super_level,
    sure_and_possible,
    template,
    threshold_free_ranges,
    tight_ranges,
    timed_arrivals,
    timing_operator,
    timing_pairs,
    window_combinations,
)

F = Fraction
PHI1 = histogram((0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6"))
PHI2 = histogram((0, 10, "0.15"), (10, 20, "0.3"), (20, 30, "0.4"), (30, 40, "0.15"))
H1, H2, H3 = shifted(PHI1, 20), shifted(PHI2, 70), shifted(PHI1, 170)
PLATEAU_I = histogram((0, 1, "0.5"), (1, 10, 0), (10, 11, "0.5"))
PLATEAU_J = histogram((3, 4, 1))
TWO_HUMPS = histogram((0, 1, "0.5"), (1, 9, 0), (9, 10, "0.5"))
UNIT = histogram((0, 1, 1))


def near(x: Any) -> Any:
    """Goldens have ten decimals."""
    return pytest.approx(x, rel=0, abs=6e-11)


# ---------------------------------------------------------------------------------------------------------------
# Timing join: golden values


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (60, F(1)),
        (70, F(797, 800)),
        (80, F(783, 800)),
        (85, F(3067, 3200)),
        (90, F(37, 40)),
        (95, F(2771, 3200)),
        (98, F("0.8122")),
        (99, F("0.7912375")),
        (100, F(123, 160)),
        (105, F(1023, 1600)),
        (110, F(387, 800)),
        (120, F(81, 400)),
        (130, F(9, 200)),
        (140, F(0)),
    ],
)
def test_timing_golden_01_shifted_histograms(x: int, expected: Fraction) -> None:
    assert ge(shifted(H3, -x), H2) == expected
    assert DifferenceLaw(H3, H2).at_least(x) == expected


def test_timing_golden_02_satisfaction_time_and_its_quadratic() -> None:
    assert stime_plus(H3, H2, 0.8) == stime_minus(H3, H2, 0.8) == near(208.5907854728)
    assert stime_plus(H3, H2, 0.8) - 40 == near(168.5907854728)
    assert {configuration(H3, H2, x) for x in (90, F("92.5"), F("99.999"))} == {(0, 1, 1, 2, 3)}
    assert configuration(H3, H2, F("89.999")) != (0, 1, 1, 2, 3) != configuration(H3, H2, 100)
    # the golden is in y = x + 70; the cell holds the cdf of the difference, the golden its complement
    c0, c1, c2 = DifferenceLaw(H3, H2).cell(95)
    at = [1 - (c0 + c1 * (y - 70) + c2 * (y - 70) ** 2) for y in (0, 1, 2)]
    curve = (at[2] - 2 * at[1] + at[0]) / 2
    assert (curve, at[1] - at[0] - curve, at[0]) == (F("-0.0007625"), F("0.236"), F("-17.315"))


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (0.1, 235.4449945129),
        (0.2, 230.1114839714),
        (0.5, 219.5148573096),
        (0.9, 202.5198159228),
        (0.925, 200),
        (0.95, 196.4649578357),
    ],
)
def test_timing_golden_03_satisfaction_times(delta: float, expected: float) -> None:
    assert stime_plus(H3, H2, delta) == stime_minus(H3, H2, delta) == near(expected)
    if delta == 0.925:
        assert stime_plus(H3, H2, delta) == 200


def test_timing_golden_04_satisfaction_times_of_templates() -> None:
    pairs = [(u, v) for u in (PHI1, PHI2) for v in (PHI1, PHI2)]
    assert [stime_plus(u, v, 0.2) for u, v in pairs] == near(
        [48.7695793116, 60.1114839714, 41.4092145272, 51.8711424162]
    )
    assert [stime_minus(u, v, 0.8) for u, v in pairs] == near(
        [31.2304206884, 38.5907854728, 19.8885160286, 28.1288575838]
    )
    for (u, v), delta in itertools.product(pairs, (0.2, 0.3, 0.8)):
        swapped = stime_minus(v, u, 1 - F(str(delta))) - 40
        assert stime_plus(u, v, delta) - 40 == pytest.approx(-swapped, abs=1e-12)


def test_timing_golden_05_order_probabilities() -> None:
    assert (ge(PHI1, PHI2), ge(PHI2, PHI1)) == (F(123, 160), F(37, 160))
    assert (ge(H1, H2), ge(H2, H1)) == (0, 1)
    assert {ge(h, h) for h in (PHI1, PHI2, PLATEAU_I, TWO_HUMPS, UNIT)} == {F(1, 2)}


@pytest.mark.parametrize(
    ("hi", "hj", "d", "expected"),
    [
        (H1, H2, 40, F(387, 800)),
        (H1, H2, 50, F(123, 160)),
        (H2, H3, 100, F(37, 160)),
        (H2, H3, 98, F(939, 5000)),
    ],
)
def test_timing_golden_06_bands(hi: Hist, hj: Hist, d: int, expected: Fraction) -> None:
    assert band(hi, hj, d) == band(hj, hi, d) == expected


@pytest.mark.parametrize(
    ("d", "expected"), [(0, F(0)), (5, F(29, 128)), (10, F(353, 800)), (20, F(621, 800)), (40, F(1))]
)
def test_timing_golden_07_bands_shorter_than_the_templates(d: int, expected: Fraction) -> None:
    assert band(PHI1, PHI2, d) == expected


def test_timing_golden_08_ranges() -> None:
    tight = tight_ranges(PHI1, [PHI1, PHI2], 210, 50, 0.8)
    assert tight.lpr == near((168.7695793116, 180.1114839714))
    assert tight.rpr == near((251.2304206884, 258.5907854728))
    assert tight.sr == (tight.lpr[1], tight.rpr[0])
    free = threshold_free_ranges(detected(PHI1, 210), 40, 50)
    assert free == ((120, 200), (200, 220), (220, 300))
    assert [free.place(t) for t in (119.9, 120, 199.9, 200, 220, 220.1, 300, 300.1)] == [
        *["VR", "LPR", "LPR", "SR", "SR", "RPR", "RPR", "VR"]
    ]


@pytest.mark.parametrize(
    ("d", "delta", "expected"),
    [
        (5, 0.2, (-1.9900525497, 21.7646212198)),
        (10, 0.5, (2.6402516841, 17.1242996869)),
        (10, 0.3, (-5.8321855065, 25.7566948593)),
        (20, 0.8, (1.2803458278, 18.5456012055)),
        (50, 0.8, (-29.8885160286, 48.5907854728)),
    ],
)
def test_timing_golden_09_super_level_sets(d: int, delta: float, expected: tuple[float, float]) -> None:
    assert [near(part) for part in [expected]] == super_level(PHI1, PHI2, d, delta)


def test_timing_golden_10_plateau() -> None:
    values = {x: ge(shifted(PLATEAU_I, x), PLATEAU_J) for x in (-7, -6, -2, 0, 2, 3, 4)}
    half = F(1, 2)
    assert values == {-7: F(1, 4), -6: half, -2: half, 0: half, 2: half, 3: F(3, 4), 4: 1}
    assert (stime_minus(PLATEAU_I, PLATEAU_J, 0.5), stime_plus(PLATEAU_I, PLATEAU_J, 0.5)) == (2, 10)


def test_timing_golden_11_two_pieces() -> None:
    root = math.sqrt(0.4)
    assert super_level(TWO_HUMPS, UNIT, 1, 0.4) == [near((-9 - root, -9 + root)), near((-root, root))]
    assert super_level(TWO_HUMPS, UNIT, 1, 0.4) == [
        *[near((-9.6324555320, -8.3675444680)), near((-0.6324555320, 0.6324555320))]
    ]
    assert super_level(TWO_HUMPS, UNIT, 9, 0.4) == [near((-17.6324555320, 8.6324555320))]
    assert super_level(TWO_HUMPS, UNIT, 1, 0.6) == []


def test_timing_golden_12_invalidation_bounds() -> None:
    low_a, low_b = low_bounds([PHI1, PHI2], [PHI1, PHI2], 50, 0.8)
    assert (low_a, low_b) == (near(-48.5907854728), near(1.4092145272 - 50))
    assert low_bounds([TWO_HUMPS], [UNIT], 1, 0.6) is None
    assert low_bounds([TWO_HUMPS], [UNIT], 1, 0.4) == (near(-9 - math.sqrt(0.4)), near(-math.sqrt(0.4)))


def test_timing_golden_13_points() -> None:
    five, wide = point(5), histogram((0, 10, 1))
    assert (ge(five, five), band(five, five, 0)) == (1, 1)
    assert (ge(five, wide), ge(wide, five), band(five, wide, 2), band(wide, five, 2)) == (
        F(1, 2),
        F(1, 2),
        *[F(2, 5)] * 2,
    )
    assert band(Point(5), wide, 2) == F(2, 5)


def test_timing_golden_14_occurrence_times_join_where_detection_times_do_not() -> None:
    seen = [("a", 60, 20), ("b", 110, 40)]
    occurred = [[(name, point(at - latency))] for name, at, latency in seen]
    noticed = [[(name, point(at))] for name, at, _ in seen]
    assert timing_pairs(*occurred, 40, 0.5) == {("a", "b"): 1}
    assert timing_pairs(*noticed, 40, 0.5) == {}
    assert timing_pairs(*noticed, 50, 0.5) == {("a", "b"): 1}


@pytest.mark.parametrize(
    ("i", "j", "expected"),
    [((0, 2), (1, 3), F(1, 8)), ((0, 4), (1, 3), F(1, 2)), ((1, 3), (0, 2), F(7, 8)), ((1, 2), (0, 4), F(3, 8))],
)
def test_timing_golden_15_two_buckets(i: tuple[int, int], j: tuple[int, int], expected: Fraction) -> None:
    assert ge(histogram((*i, 1)), histogram((*j, 1))) == expected


def test_a_latency_is_mirrored_into_a_template() -> None:
    assert template(histogram((0, 10, "0.6"), (10, 20, "0.3"), (20, 40, "0.1"))) == PHI1
    assert (first(H1), last(H1), length(H1), last(detected(PHI1, 210))) == (20, 60, 40, 210)


# ---------------------------------------------------------------------------------------------------------------
# Timing join: independence, and random cases worth testing


def test_the_referee_imports_nothing_of_the_package() -> None:
    tree = ast.parse(Path(oracle_time.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in imported}
    assert "numpy" in roots
    assert roots - {"numpy", "scipy", "oracle"} <= sys.stdlib_module_names


def template_pairs(seed: int, count: int, longest: int = 12, **options: Any) -> Iterator[tuple[Hist, Hist, Any]]:
    rng = np.random.default_rng(seed)
    how = {"inner_atoms": options.get("atoms", True), **options}
    for _ in range(fewer(count)):
        yield random_template(rng, longest, **how), random_template(rng, longest, **how), rng


def is_smooth(h: Hist) -> bool:
    """No atoms."""
    return all(u < v for u, v in itertools.pairwise(h.edges))


def test_random_templates_are_worth_testing() -> None:
    found = [u for u, _, _ in template_pairs(1, 400)]
    assert sum(length(h) == 0 for h in found) > fewer(10)
    assert sum(not is_smooth(h) and length(h) > 0 for h in found) > fewer(10)
    assert sum(0 in h.probs for h in found) > fewer(20)
    assert sum(is_smooth(h) for h in found) > fewer(100)
    assert {first(h) for h in found} == {0}
    assert all(sum(h.probs) == 1 for h in found)
    assert all(is_smooth(h) or length(h) == 0 for h in (random_template(np.random.default_rng(k)) for k in range(100)))


# ---------------------------------------------------------------------------------------------------------------
# Timing join: the probabilities against the formulas of the notes


def lemma_1(hi: Hist, hj: Hist) -> Fraction:
    """P(X_i >= X_j) by the six cases, atoms first."""
    total = F(0)
    for (i1, i2), p in zip(itertools.pairwise(hi.edges), hi.probs, strict=True):
        for (j1, j2), q in zip(itertools.pairwise(hj.edges), hj.probs, strict=True):
            i1, i2, j1, j2 = (F(x) for x in (i1, i2, j1, j2))
            if i1 == i2 and j1 == j2:
                share = F(i1 >= j1)
            elif i1 == i2:
                share = min(max((i1 - j1) / (j2 - j1), F(0)), F(1))
            elif j1 == j2:
                share = min(max((i2 - j1) / (i2 - i1), F(0)), F(1))
            elif i2 <= j1:
                share = F(0)
            elif i1 >= j2:
                share = F(1)
            elif i1 < j1 and i2 <= j2:
                share = (i2 - j1) ** 2 / (2 * (i2 - i1) * (j2 - j1))
            elif i1 < j1:
                share = (2 * i2 - j1 - j2) / (2 * (i2 - i1))
            elif i2 > j2:
                share = 1 - (j2 - i1) ** 2 / (2 * (i2 - i1) * (j2 - j1))
            else:
                share = (i1 + i2 - 2 * j1) / (2 * (j2 - j1))
            total += p * q * share
    return total


def test_areas_give_the_six_cases() -> None:
    inner = 0
    for u, v, rng in template_pairs(2, 400):
        h = shifted(u, int(rng.integers(-12, 13)))
        assert ge(h, v) == lemma_1(h, v)
        inner += 0 < ge(h, v) < 1
    assert inner > fewer(150)


def theorem_1(hi: Hist, hj: Hist) -> float:
    """The float recipe on the merged grid, without atoms."""
    t = np.unique([float(x) for x in (*hi.edges, *hj.edges)])

    def cdf(h: Hist) -> np.ndarray:
        return np.interp(t, [float(x) for x in h.edges], np.cumsum([0.0, *(float(p) for p in h.probs)]))

    ci, cj = cdf(hi), cdf(hj)
    return float(np.sum(np.diff(ci) * (cj[:-1] + cj[1:]) / 2))


def test_areas_give_the_merged_grid() -> None:
    for u, v, rng in template_pairs(3, 300, atoms=False):
        h = shifted(u, int(rng.integers(-12, 13)))
        assert float(ge(h, v)) == pytest.approx(theorem_1(h, v), abs=1e-14)


@pytest.mark.long
def test_the_band_is_two_order_probabilities_less_one() -> None:
    inner = 0
    for u, v, rng in template_pairs(4, 400):
        h, d = shifted(u, int(rng.integers(-12, 13))), F(int(rng.integers(0, 60)), 4)
        p = band(h, v, d)
        assert p == ge(shifted(h, d), v) + ge(shifted(v, d), h) - 1
        assert p == DifferenceLaw(h, v).between(-d, d)
        assert p == oracle.rational_probability_in(h, v, -d, d, ties="exact")
        assert float(p) == pytest.approx(band_float(h, v, float(d)), abs=1e-13)
        inner += 0 < p < 1
    assert inner > 150


def test_the_law_of_a_difference_is_the_law_of_a_difference() -> None:
    for u, v, rng in template_pairs(5, 80):
        law = DifferenceLaw(u, v)
        for x in (*law.knots, F(int(rng.integers(-50, 50)), 4)):
            assert law.at_most(x) == probability_between(u, v, None, x)
            assert law.at_least(x) == probability_between(u, v, x, None)
            assert law.above(x) == 1 - law.at_most(x)
            assert law.below(x) == 1 - law.at_least(x)
        assert law.above(law.knots[-1]) == law.below(law.knots[0]) == 0


def test_the_order_probabilities_add_up_to_one_only_without_ties() -> None:
    """Erratum T11."""
    assert ge(point(5), point(5)) + ge(point(5), point(5)) == 2
    mixed = histogram((0, 0, "0.5"), (0, 1, "0.5"))
    assert ge(mixed, mixed) + ge(mixed, mixed) == F(5, 4)
    for u, v, _ in template_pairs(6, 100, atoms=False):
        assert ge(u, v) + ge(v, u) == 1


def sample(h: Hist, rng: np.random.Generator, count: int) -> np.ndarray:
    edges, weights = np.array([float(x) for x in h.edges]), np.array([float(p) for p in h.probs])
    bucket = rng.choice(len(weights), size=count, p=weights / weights.sum())
    return edges[bucket] + rng.random(count) * np.diff(edges)[bucket]


def test_probabilities_by_drawing() -> None:
    count = 40_000
    for u, v, rng in template_pairs(7, 40):
        h, d = shifted(u, int(rng.integers(-6, 7))), int(rng.integers(0, 10))
        x, y = sample(h, rng, count), sample(v, rng, count)
        for p, share in ((ge(h, v), np.mean(x >= y)), (band(h, v, d), np.mean(np.abs(x - y) <= d))):
            assert abs(float(p) - share) < 5 * math.sqrt(0.25 / count)


def test_atoms_can_be_compared_as_doubles() -> None:
    a, b = point(0.3), point(0.1)  # 0.3 - 0.1 is 0.19999999999999998 as a double, and exactly, less than 0.2
    assert band(a, b, 0.2) == band(a, b, 0.2, ties="float") == 1
    c, d = point(1.1), point(1.0)  # as doubles 0.10000000000000009
    assert band(c, d, 0.1) == band(c, d, 0.1, ties="float") == 0
    e, f = point(0.1), point(-0.2)  # the exact sum exceeds the double 0.3, and rounds to 0.30000000000000004
    assert band(e, f, 0.1 + 0.2, ties="float") == 1
    assert band(e, f, 0.1 + 0.2) == (F(0.1) + F(0.2) <= F(0.1 + 0.2))
    big, small = point(2.0**53), point(-1.0)  # the exact gap 2**53 + 1 is not a double
    assert (band(big, small, 2.0**53), band(big, small, 2.0**53, ties="float")) == (0, 1)


def test_probabilities_that_do_not_add_up_are_normalised() -> None:
    assert band(Hist((0, 10, 20), (3, 1)), point(0), 10) == F(3, 4)


@pytest.mark.parametrize("d", [-1, F(-1, 10**9)])
def test_a_negative_distance_is_refused(d: Any) -> None:
    with pytest.raises(ValueError, match="negative"):
        band(PHI1, PHI2, d)
    with pytest.raises(ValueError, match="negative"):
        timing_pairs([(1, PHI1)], [(1, PHI2)], d, 0.5)


def test_a_long_distance_needs_one_order_probability() -> None:
    """Lemma 2 with its sharper premise, and the premise is needed."""
    needed = False
    for u, v, rng in template_pairs(8, 400):
        hi, hj = u, detected(v, last(u) + int(rng.integers(0, 15)))  # max(H_j) >= max(H_i)
        d = int(rng.integers(0, 15))
        if d >= length(hj):
            assert band(hi, hj, d) == ge(shifted(hi, d), hj)
        else:
            needed |= band(hi, hj, d) != ge(shifted(hi, d), hj)
    assert needed


# ---------------------------------------------------------------------------------------------------------------
# Timing join: satisfaction times


def random_level(rng: np.random.Generator) -> Fraction:
    """Twentieths and quarters: the values that histograms of small weights reach exactly, too."""
    return F(int(rng.integers(1, 20)), 20) if rng.random() < 0.7 else F(int(rng.integers(1, 4)), 4)


def met_level(rng: np.random.Generator, u: Hist, v: Hist) -> Fraction:
    """A level that the probability has at a breakpoint, where it may stay for a while; sometimes any other."""
    law = DifferenceLaw(u, v)
    met = [p for p in map(law.at_least, law.knots) if 0 < p < 1]
    return met[int(rng.integers(len(met)))] if met and rng.random() < 0.7 else random_level(rng)


def test_satisfaction_times_are_the_two_inverses() -> None:
    apart = 0
    step = F(1, 10**9)
    for u, v, rng in template_pairs(9, 200):
        level = met_level(rng, u, v)
        plus, minus = F(stime_plus(u, v, level)), F(stime_minus(u, v, level))
        assert satisfaction(u, v, plus - step) >= level > satisfaction(u, v, plus + step)
        assert satisfaction(u, v, minus + step) <= level < satisfaction(u, v, minus - step)
        assert minus <= plus
        apart += minus < plus
    assert apart > fewer(10)


def test_the_supremum_is_attained() -> None:
    exact = 0
    for u, v, rng in template_pairs(10, 200):
        level = random_level(rng)
        at = oracle_time._stime_plus(u, v, level)
        # an irrational root is 90 digits short of itself, either way
        assert satisfaction(u, v, at) >= level - F(1, 10**60)
        exact += satisfaction(u, v, at) == level
    assert exact > 20


@pytest.mark.long
def test_with_atoms_the_strict_probability_has_the_same_infimum() -> None:
    """The notes replace stime- by one with `>`. The number is the same; only that form also attains it."""
    attained = unattained = 0
    for u, v, rng in template_pairs(11, 300):
        level = met_level(rng, u, v)
        at = oracle_time._stime_minus(u, v, level)
        assert at == oracle_time._stime_minus(u, v, level, strict=True)
        assert satisfaction(u, v, at, strict=True) <= level + F(1, 10**60)
        attained += satisfaction(u, v, at) <= level
        unattained += satisfaction(u, v, at) > level + F(1, 10**6)
    assert min(attained, unattained) > 10


def notes_stime(hi: Hist, hj: Hist, delta: float) -> float:
    """The recommended algorithm: search the cell, take its quadratic from three samples, solve in a stable form."""
    xs = sorted({a - b for a in hi.edges for b in hj.edges})
    k = max(n for n, x in enumerate(xs) if ge(shifted(hi, -x), hj) >= F(str(delta)))
    if k + 1 == len(xs):
        return float(xs[k] + last(hj))
    x0, x1 = xs[k], xs[k + 1]
    y0, ym, y1 = (float(ge(shifted(hi, -x), hj)) for x in (x0, (x0 + x1) / 2, x1))
    a = 2 * (y0 + y1 - 2 * ym)
    b, c = y1 - y0 - a, y0 - delta
    if abs(a) < 1e-15:
        t = -c / b
    else:
        q = -(b + math.copysign(math.sqrt(b * b - 4 * a * c), b)) / 2
        t = next(r for r in (q / a, c / q if q else math.inf) if -1e-12 <= r <= 1 + 1e-12)
    return float(x0) + t * float(x1 - x0) + float(last(hj))


def test_satisfaction_times_by_the_algorithm_of_the_notes() -> None:
    checked = 0
    for u, v, rng in template_pairs(12, 60, atoms=False, empty=False):
        delta = float(random_level(rng))
        assert stime_plus(u, v, delta) == pytest.approx(notes_stime(u, v, delta), abs=1e-7)
        assert stime_plus(u, v, delta) == pytest.approx(stime_minus(u, v, delta), abs=1e-12)
        checked += 1
    assert checked == fewer(60)


def test_satisfaction_times_lie_between_the_delimiters() -> None:
    for u, v, rng in template_pairs(13, 150, atoms=False, empty=False):
        level = random_level(rng)
        x = stime_plus(u, v, level) - float(last(v))
        ti, tj = (float(oracle.quantile(h, p)) for h, p in ((u, 1 - level), (v, level)))
        assert x >= max(float(first(u)) - tj, ti - float(last(v))) - 1e-9
        assert x <= min(float(last(u)) - tj, ti - float(first(v))) + 1e-9


def test_satisfaction_times_move_with_the_left_side_only() -> None:
    for u, v, rng in template_pairs(14, 60):
        level, x = random_level(rng), F(int(rng.integers(-40, 40)), 4)
        for stime in (stime_plus, stime_minus):
            assert stime(shifted(u, x), v, level) == pytest.approx(stime(u, v, level) + float(x), abs=1e-12)
            assert stime(u, shifted(v, x), level) == pytest.approx(stime(u, v, level), abs=1e-12)


@pytest.mark.parametrize(
    ("stime", "level"), [(stime_plus, 0), (stime_minus, 1), (stime_plus, 1.1), (stime_minus, -0.1)]
)
def test_levels_without_a_finite_time_are_refused(stime: Any, level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        stime(PHI1, PHI2, level)


def test_levels_at_the_ends() -> None:
    """The last T with G = 1 and the first with G = 0, for supports 0..40 and 0..40."""
    assert (stime_plus(PHI1, PHI2, 1), stime_minus(PHI1, PHI2, 0)) == (0, 80)
    assert (stime_plus(point(3), point(1), 1), stime_minus(point(3), point(1), 0)) == (3, 3)


def test_erratum_t3_one_printed_configuration_has_two_quadratics() -> None:
    two, one = histogram((0, 2, 1)), histogram((0, 1, 1))
    x, y = F(1, 2), F(5, 4)
    assert configuration(two, one, x, as_printed=True) == configuration(two, one, y, as_printed=True) == (1, 1)
    assert (ge(shifted(two, -x), one), ge(shifted(two, -y), one)) == (F(1, 2), F(9, 64))
    law = DifferenceLaw(two, one)
    assert law.cell(x) != law.cell(y)
    assert (configuration(two, one, x), configuration(two, one, y)) == ((1, 1), (1, 2))


def test_configurations_with_n_plus_one_have_one_quadratic_each() -> None:
    printed_confuses = 0
    for u, v, rng in template_pairs(15, 100, atoms=False):
        law = DifferenceLaw(u, v)
        cells: dict[tuple[int, ...], set[Any]] = {}
        printed: dict[tuple[int, ...], set[Any]] = {}
        for x in (F(int(k), 8) for k in rng.integers(-110, 110, 40)):
            cells.setdefault(configuration(u, v, x), set()).add(law.cell(x))
            printed.setdefault(configuration(u, v, x, as_printed=True), set()).add(law.cell(x))
        assert all(len(found) == 1 for found in cells.values())
        printed_confuses += any(len(found) > 1 for found in printed.values())
    assert printed_confuses > 20


def test_erratum_t4_the_probability_need_not_fall_strictly() -> None:
    """Lemma 3 says it does wherever it is neither 0 nor 1; an empty bucket inside keeps it at 1/2 for 8 units."""
    values = [satisfaction(PLATEAU_I, PLATEAU_J, t) for t in range(2, 11)]
    assert values == [F(1, 2)] * 9
    assert satisfaction(PLATEAU_I, PLATEAU_J, F("1.9")) > F(1, 2) > satisfaction(PLATEAU_I, PLATEAU_J, F("10.1"))


# ---------------------------------------------------------------------------------------------------------------
# Timing join: ranges, super-level sets, bounds


def long_cases(seed: int, count: int) -> Iterator[tuple[Hist, list[Hist], int, Fraction, Any]]:
    """A template, those of the other stream, a distance of at least every length, a threshold."""
    rng = np.random.default_rng(seed)
    for _ in range(fewer(count)):
        u, *vs = (random_template(rng, 12, inner_atoms=True) for _ in range(1 + int(rng.integers(1, 4))))
        d = max(length(h) for h in (u, *vs)) + int(rng.integers(0, 4))
        yield u, vs, int(d), random_level(rng), rng


def test_the_constant_time_test_decides_like_the_band() -> None:
    joined = skipped = 0
    for u, vs, d, level, rng in long_cases(16, 80):
        for v, s in itertools.product(vs, rng.integers(-30, 31, 8).tolist()):
            hi, hj = detected(u, 100), detected(v, 100 + s)
            if s >= 0:
                gap = oracle_time._stime_plus(u, v, level) + 100 - last(u) + d - last(hj)
            else:
                gap = last(hj) - (oracle_time._stime_minus(u, v, 1 - level) + 100 - last(u) - d)
            if 0 < abs(gap) < F(1, 10**60):  # an irrational time, rounded
                skipped += 1
                continue
            assert (gap >= 0) == (band(hi, hj, d) >= level)
            joined += gap >= 0
    assert joined > fewer(300)
    assert skipped == 0


@pytest.mark.parametrize("ranges", ["tight", "threshold-free"])
def test_ranges_tell_what_joins(ranges: str) -> None:
    seen = dict.fromkeys(["LPR", "SR", "RPR", "VR"], 0)
    for u, vs, d, level, rng in long_cases(17, 100):
        hi = detected(u, 100)
        if ranges == "tight":
            found = tight_ranges(u, vs, 100, d, level)
        else:
            found = threshold_free_ranges(hi, max(length(v) for v in vs), d)
        assert found.lpr[1] <= 100 <= found.rpr[0] or ranges == "threshold-free"
        for v, s in itertools.product(vs, (rng.integers(-120, 121, 8) / 4).tolist()):
            place = found.place(100 + s)
            seen[place] += 1
            p = band(hi, detected(v, 100 + s), d)
            if place == "SR":
                assert p >= level
            if place == "VR":
                assert p < level
    assert min(seen.values()) > fewer(30)


def test_tight_ranges_lie_inside_the_threshold_free_ones() -> None:
    shorter = 0
    for u, vs, d, level, _ in long_cases(18, 100):
        tight = tight_ranges(u, vs, 100, d, level)
        free = threshold_free_ranges(detected(u, 100), max(length(v) for v in vs), d)
        assert free.lpr[0] <= tight.lpr[0] <= tight.lpr[1] <= free.lpr[1]
        assert free.rpr[0] <= tight.rpr[0] <= tight.rpr[1] <= free.rpr[1]
        shorter += tight.rpr[1] - tight.rpr[0] < free.rpr[1] - free.rpr[0]
    assert shorter > fewer(80)


def test_erratum_t1_the_right_range_with_the_misprinted_shift_is_wrong() -> None:
    wrong = {"plus": 0, "minus": 0}
    probes = 0
    for u, vs, d, level, rng in long_cases(19, 60):
        found = {shift: tight_ranges(u, vs, 100, d, level, right_shift=shift) for shift in ("plus", "minus")}
        for v, s in itertools.product(vs, (rng.integers(0, 121, 6) / 4).tolist()):  # right side
            p = band(detected(u, 100), detected(v, 100 + s), d)
            probes += 1
            for shift, ranges in found.items():
                wrong[shift] += (ranges.place(100 + s) == "SR" and p < level) or (
                    ranges.place(100 + s) == "VR" and p >= level
                )
    assert wrong["plus"] == 0
    assert wrong["minus"] > probes // 10
    golden = tight_ranges(PHI1, [PHI1, PHI2], 210, 50, 0.8, right_shift="minus")
    assert golden.place(240) == "VR"
    # and yet both templates join there
    assert [band(detected(PHI1, 210), detected(v, 240), 50) for v in (PHI1, PHI2)] == [F(379, 400), F(783, 800)]


@pytest.mark.long
def test_super_level_sets_hold_what_joins() -> None:
    empty = several = inside = 0
    for u, v, rng in template_pairs(20, 160):
        d, level = F(int(rng.integers(0, 40)), 4), random_level(rng)
        found = oracle_time._super_level(u, v, d, level)
        empty += not found
        several += len(found) > 1
        probes = [F(int(k), 8) for k in rng.integers(-200, 200, 8)]
        probes += [end for part in found for end in part]
        for s in probes:
            p = band_at(u, v, d, s)
            assert p == band(detected(u, 0), detected(v, s), d)
            if any(0 < abs(s - end) < F(1, 10**30) for part in found for end in part):
                continue
            holds = any(lo <= s <= hi for lo, hi in found)
            inside += holds
            # an end that is an irrational root meets the level to within its rounding only
            assert holds == (p >= level) or (holds and abs(p - level) < F(1, 10**60))
    assert min(empty, inside) > 30
    assert several > 5


def notes_super_level(u: Hist, v: Hist, d: Fraction, delta: float) -> list[list[float]]:
    """Section 6 of the notes in doubles: interior samples at 1/4, 1/2, 3/4 of each cell, breakpoints apart."""
    tu, tv = ([x - last(h) for x in h.edges] for h in (u, v))
    marks = sorted({a - b + sign * d for a in tu for b in tv for sign in (-1, 1)})
    parts = [(float(m), float(m)) for m in marks if band_at(u, v, d, m) >= F(str(delta))]
    for x0, x1 in itertools.pairwise(marks):
        q1, q2, q3 = (float(band_at(u, v, d, x0 + (x1 - x0) * F(k, 4))) for k in (1, 2, 3))
        a = 8 * (q1 + q3 - 2 * q2)
        b = 2 * (q3 - q1) - a
        c = q2 - a / 4 - b / 2 - delta
        roots = [r.real for r in np.roots([a, b, c]) if abs(r.imag) < 1e-9] if abs(a) + abs(b) > 1e-12 else []
        cuts = [0.0, *sorted(r for r in roots if 0 < r < 1), 1.0]
        for t0, t1 in itertools.pairwise(cuts):
            t = (t0 + t1) / 2
            if a * t * t + b * t + c >= -1e-13:
                parts.append((float(x0) + t0 * float(x1 - x0), float(x0) + t1 * float(x1 - x0)))
    merged: list[list[float]] = []
    for lo, hi in sorted(parts):
        if merged and lo <= merged[-1][1] + 1e-9:
            merged[-1][1] = max(merged[-1][1], hi)
        else:
            merged.append([lo, hi])
    return merged


def test_super_level_sets_by_the_algorithm_of_the_notes() -> None:
    compared = 0
    for u, v, rng in template_pairs(21, 80):
        d, delta = F(int(rng.integers(0, 40)), 4), float(rng.choice([0.13, 0.31, 0.57, 0.83]))
        mine, theirs = super_level(u, v, d, delta), notes_super_level(u, v, d, delta)
        assert len(mine) == len(theirs)
        for part, other in zip(mine, theirs, strict=True):
            assert part == pytest.approx(other, abs=1e-7)
            compared += 1
    assert compared > fewer(30)


def test_a_super_level_set_can_be_a_point_and_can_touch() -> None:
    assert super_level(point(0), point(0), 0, 0.5) == [(0, 0)]
    assert super_level(UNIT, UNIT, 0, 0.5) == []
    assert super_level(UNIT, UNIT, 1, 1) == [(0, 0)]  # P = 1 at one place only
    assert super_level(UNIT, point(0), F(1, 2), 1) == [(-0.5, -0.5)]
    # the cells meet where the level is met exactly: one interval, not two
    assert super_level(PHI1, PHI1, 40, F(1, 2)) == [(-40, 40)]


def test_for_long_distances_the_ends_are_satisfaction_times() -> None:
    for u, vs, d, level, _ in long_cases(22, 100):
        for v in vs:
            ends = (stime_minus(u, v, 1 - level) - last(u) - d, stime_plus(u, v, level) - last(u) + d)
            assert super_level(u, v, d, level) == [pytest.approx(tuple(float(x) for x in ends), abs=1e-12)]


@pytest.mark.long
def test_partitions_for_any_distance() -> None:
    seen = {"sure": 0, "possible": 0, "never": 0}
    for u, v, rng in template_pairs(23, 120):
        vs = [v, random_template(rng, 12)]
        d, level = F(int(rng.integers(0, 60)), 4), F(1, 3) + random_level(rng) / 3
        sure, possible = sure_and_possible(u, vs, d, level)
        for s in (F(int(k), 8) for k in rng.integers(-120, 120, 10)):
            joins = [band_at(u, w, d, s) >= level for w in vs]
            if min((abs(float(s) - end) for part in sure + possible for end in part), default=1) < 1e-9:
                continue
            assert any(lo <= s <= hi for lo, hi in sure) == all(joins)
            assert any(lo <= s <= hi for lo, hi in possible) == any(joins)
            seen["sure" if all(joins) else "possible" if any(joins) else "never"] += 1
    assert min(seen.values()) > 50


@pytest.mark.long
def test_invalidation_bounds_are_the_extremes_of_what_joins() -> None:
    for u, v, rng in template_pairs(24, 60):
        us, vs = [u, random_template(rng, 12)], [v, random_template(rng, 12)]
        d, level = F(int(rng.integers(0, 40)), 4), random_level(rng)
        lows = low_bounds(us, vs, d, level)
        gaps = [F(int(k), 8) for k in rng.integers(-200, 200, 20)]
        joins = [s for s in gaps if any(band_at(a, b, d, s) >= level for a in us for b in vs)]
        if lows is None:
            assert joins == []
            continue
        assert all(s >= lows[0] - 1e-9 and -s >= lows[1] - 1e-9 for s in joins)
        assert lows == tuple(reversed(low_bounds(vs, us, d, level)))
        at_low = [band_at(a, b, d, F(lows[0])) for a in us for b in vs]
        assert max(at_low) >= level - F(1, 10**9) or not all(is_smooth(h) for h in us + vs)


# ---------------------------------------------------------------------------------------------------------------
# Timing join: decisions and runs


@pytest.mark.parametrize(
    ("p", "delta", "strict", "expected"),
    [
        (F(4, 5), 0.8, False, True),
        (F(4, 5), 0.8, True, False),
        (F(4, 5) - F(1, 10**12), 0.8, False, True),
        (F(4, 5) - F(11, 10**13), 0.8, False, False),
        (F(4, 5) + F(1, 10**12), 0.8, True, False),
        (F(4, 5) + F(11, 10**13), 0.8, True, True),
        (F(1, 10**30), None, False, True),
        (F(0), None, False, False),
        (F(0), 1e-13, False, False),
        (F(1, 10**30), 1e-13, False, True),
    ],
)
def test_decisions(p: Fraction, delta: float | None, strict: bool, expected: bool) -> None:
    assert keeps(p, delta, strict) is expected


def test_what_is_borderline() -> None:
    edge = F(4, 5) - F(1, 10**12)
    assert [borderline(edge + F(k, 10**14), 0.8) for k in (-11, -10, 0, 10, 11)] == [False, True, True, True, False]
    assert not borderline(F(4, 5), 0.8)
    assert not borderline(F(0), 1e-12)
    assert borderline(F(4, 5) + F(1, 10**12), 0.8, strict=True)
    assert borderline(F(1, 10**14), None)
    assert not borderline(F(1, 10**3), None)


def test_timing_pairs_of_the_goldens() -> None:
    lefts, rights = [("1", H1), ("3", H3)], [("2", H2)]
    assert timing_pairs(lefts, rights, 100, None) == {("1", "2"): 1, ("3", "2"): F(37, 160)}
    assert timing_pairs(lefts, rights, 50, None) == {("1", "2"): F(123, 160)}
    assert timing_pairs(lefts, rights, 50, F(123, 160)) == {("1", "2"): F(123, 160)}
    assert timing_pairs(lefts, rights, 50, F(123, 160), strict=True) == {}
    assert timing_pairs(lefts, rights, 50, 0.77) == {}
    fast = timing_pairs(lefts, rights, 100, None, exact=False)
    assert fast == {("1", "2"): pytest.approx(1), ("3", "2"): pytest.approx(37 / 160, abs=1e-14)}
    with pytest.raises(ValueError, match="ids"):
        timing_pairs([("1", H1), ("1", H3)], rights, 50, 0.5)


@pytest.mark.long
def test_timing_pairs_look_at_every_pair() -> None:
    rng = np.random.default_rng(25)
    lefts, rights = ([(k, shifted(random_template(rng), int(rng.integers(100)))) for k in range(25)] for _ in range(2))
    for d, delta, strict in ((1, None, False), (7, 0.3, False), (20, 0.5, True), (45, 0.9, False)):
        every = {(i, j): band(a, b, d) for i, a in lefts for j, b in rights}
        kept = timing_pairs(lefts, rights, d, delta, strict)
        assert kept == {pair: p for pair, p in every.items() if keeps(p, delta, strict)}
        assert set(timing_pairs(lefts, rights, d, delta, strict, exact=False)) == set(kept)
        assert 0 < len(kept) < len(every)


def test_arrivals_are_late_but_never_too_late() -> None:
    rng = np.random.default_rng(26)
    templates = [random_template(rng) for _ in range(4)]
    allowed, late, full = {"A": F(15, 2), "B": 30}, 0, 0
    for stall in (0, 50):
        events = random_events(rng, "A", templates, 60) + random_events(rng, "B", templates, 60)
        timed = timed_arrivals(rng, events, allowed, stall=stall)
        assert sorted((side, key) for _, (side, key, _) in timed) == sorted((side, key) for side, key, _ in events)
        newest: dict[str, Fraction] = {}
        for clock, (side, _, h) in timed:
            behind = newest.get(side, last(h)) - last(h)
            assert behind <= allowed[side]
            late += behind > 0
            full += behind > F(3, 4) * allowed[side]
            newest[side] = max(newest.get(side, last(h)), last(h))
            assert clock >= last(h)
            assert stall or clock <= last(h) + allowed[side]
        assert [clock for clock, _ in timed] == sorted(clock for clock, _ in timed)
    assert late > 60
    assert full > 5
    again = [arrivals(np.random.default_rng(1), events, 10) for _ in range(2)]
    assert again[0] == again[1]


def timing_runs(seed: int, count: int, stall: int) -> Iterator[dict[str, tuple[bool, list[int]]]]:
    """For each way to bound the buffers: whether pairs were lost, and how many events were held over time."""
    rng = np.random.default_rng(seed)
    for _ in range(fewer(count)):
        us, vs = ([random_template(rng, 20) for _ in range(2)] for _ in range(2))
        d, delta = int(rng.choice([2, 5, 10, 20, 30])), float(rng.choice([0.2, 0.5, 0.8]))
        delays = {"A": int(rng.integers(1, 30)), "B": int(rng.integers(1, 30))}
        left, right = random_events(rng, "A", us, 22), random_events(rng, "B", vs, 22)
        want = timing_pairs([e[1:] for e in left], [e[1:] for e in right], d, delta)
        lows = low_bounds(us, vs, d, delta)
        if lows is None:
            assert want == {}
            continue
        timed = timed_arrivals(rng, left + right, delays, stall=stall)
        runs = {
            bound: timing_operator(timed, lambda *pair: pair in want, lows, delays, bound=bound)  # noqa: B023
            for bound in ("newest", "clock", "raw", "without delay")
        }
        for run in runs.values():
            assert len(run.pairs) == len(set(run.pairs))
            assert set(run.pairs) <= set(want)
        yield {bound: (set(run.pairs) != set(want), run.held) for bound, run in runs.items()}


@pytest.mark.long
def test_erratum_t10_the_bound_must_allow_for_the_delay() -> None:
    lost = dict.fromkeys(["newest", "clock", "raw", "without delay"], 0)
    runs = list(timing_runs(27, 16, stall=0))
    for run in runs:
        for bound, (bad, _) in run.items():
            lost[bound] += bad
    assert lost == {"newest": 0, "clock": 0, "raw": 0, "without delay": lost["without delay"]}
    assert lost["without delay"] > len(runs) // 2


def test_erratum_t10_on_one_pair() -> None:
    """B at 60, then A at 100, then the late A at 80 that belongs to B."""
    lows = low_bounds([point(0)], [point(0)], 25, 0.5)
    assert lows == (-25, -25)
    timed = [(100, ("B", 1, point(60))), (100, ("A", 1, point(100))), (101, ("A", 2, point(80)))]
    # B may go after A at 100 only if no A could be late: 60 < 100 - 25, but 60 >= 100 - 21 - 25
    want = {(2, 1)}
    for bound, found in (("newest", want), ("clock", want), ("without delay", set())):
        run = timing_operator(timed, lambda i, j: (i, j) in want, lows, {"A": 21, "B": 40}, bound=bound)
        assert set(run.pairs) == found


def test_erratum_t13_a_running_maximum_never_holds_more() -> None:
    """The raw value of a late event loses nothing: it is only a weaker bound."""
    for run in timing_runs(28, 8, stall=40):
        assert not run["newest"][0]
        assert not run["raw"][0]
        assert all(a <= b for a, b in zip(run["newest"][1], run["raw"][1], strict=True))
    late_b = [(0, ("A", 1, point(100))), (1, ("B", 1, point(40))), (2, ("A", 2, point(90)))]
    delays = {"A": 10, "B": 100}
    held = {
        bound: timing_operator(late_b, lambda *_: False, (-45, -45), delays, bound=bound).held
        for bound in ("newest", "raw")
    }
    # the limit is 100 - 10 - 45 = 45 with the running maximum, and 90 - 10 - 45 = 35 with the late event's own
    assert held == {"newest": [1, 2, 2], "raw": [1, 2, 3]}


def test_the_clock_drops_earlier_but_needs_the_promise() -> None:
    for run in timing_runs(29, 6, stall=0):
        assert not run["clock"][0]
        assert all(a <= b for a, b in zip(run["clock"][1], run["newest"][1], strict=True))
    lost = [run["clock"][0] for run in timing_runs(30, 10, stall=60)]
    assert sum(lost) > fewer(3)


# ---------------------------------------------------------------------------------------------------------------
# Window join: golden values


def named(windows: dict[tuple[int, int], Any]) -> dict[tuple[str, str], Any]:
    return {("ABCDEF"[i], "ABCDEF"[j]): w for (i, j), w in windows.items()}


def uniform(n: int, w: Any) -> dict[tuple[str, str], Any]:
    return named(dict.fromkeys(itertools.combinations(range(n), 2), w))


def streams_of(*times: list[Any]) -> dict[str, list[Row]]:
    return {name: rows(*found, prefix=name) for name, found in zip("ABCDEF", times, strict=False)}


RING = named({(0, 1): 2, (1, 2): 2, (2, 3): 1, (0, 3): 3})
PATH_6 = named({(0, 1): 1, (1, 2): 10})
PATH_7 = named({(0, 1): 1, (1, 2): 1})
CLIQUE_13 = named({(0, 1): 4, (0, 2): 2, (1, 2): 2})

# number: streams, windows, order of arrival (None: any), results as times
GOLDENS: dict[int, tuple[dict[str, list[Row]], dict, list[int] | None, list[tuple]]] = {
    1: (streams_of([0, 5], [5, 10]), uniform(2, 5), [0, 1, 0, 1], [(0, 5), (5, 5), (5, 10)]),
    2: (
        streams_of([0, 4], [2, 7], [3, 9]),
        uniform(3, 4),
        [0, 1, 2, 0, 1, 2],
        [(0, 2, 3), (4, 2, 3), (4, 7, 3)],
    ),
    3: (streams_of([0], [3], [6]), uniform(3, 5), None, []),
    4: (streams_of([0, 20], [1, 21], [2]), uniform(3, 5), [0, 1, 0, 1, 2], [(0, 1, 2)]),
    5: (streams_of([0, 12], [5]), uniform(2, 10), [0, 1, 0], [(0, 5), (12, 5)]),
    6: (streams_of([0], [0.5, 2], [5]), PATH_6, [0, 1, 1, 2], [(0, 0.5, 5)]),
    7: (streams_of([0], [1], [2]), PATH_7, None, [(0, 1, 2)]),
    8: (streams_of([0], [1], [2, 3]), PATH_7 | named({(0, 2): 50}), None, [(0, 1, 2)]),
    9: (streams_of([1, 1], [1], [1, 1]), uniform(3, 0), None, [(1, 1, 1)] * 4),
    10: (streams_of([0], [1, 9], [3]), uniform(3, 4), [0, 1, 1, 2], [(0, 1, 3)]),
    11: (
        streams_of([(0, "x"), (1, "y")], [(1, "y"), (2, "x")]),
        uniform(2, 2),
        [0, 1, 0, 1],
        [(0, 2), (1, 1)],
    ),
    12: (streams_of([0], [2], [4], [3]), RING, None, [(0, 2, 4, 3)]),
    13: (streams_of([1], [4, 5], [2, 3]), CLIQUE_13, [0, 2, 2, 1, 1], [(1, 4, 2), (1, 4, 3), (1, 5, 3)]),
    15: (streams_of([5], [2]), uniform(2, 5), [0, 1], [(5, 2)]),
}

RIGHT: dict[str, Any] = {
    **{
        f"BEW {method} {drop}": partial(bew, method=method, drop=drop)
        for method in ("exact", "lca", "gca")
        for drop in ("all", "tight", "none")
    },
    **{
        f"FEW {method} {discard}": partial(few, method=method, discard=discard)
        for method in ("lca", "gca")
        for discard in ("bound", "closure")
    },
}


def orders(streams: dict[str, list[Row]], order: list[int] | None) -> list[tuple[int, ...]]:
    if order is not None:
        return [tuple(order)]
    return sorted(set(itertools.permutations(k for k, found in enumerate(streams.values()) for _ in found)))


def times_of(streams: dict[str, list[Row]], combinations: list[tuple]) -> list[tuple]:
    """Combinations of ids as combinations of times, in the same order."""
    when = {row[0]: row[1] for found in streams.values() for row in found}
    return [tuple(when[key] for key in ids) for ids in combinations]


@pytest.mark.parametrize("number", GOLDENS)
def test_window_goldens_by_brute_force(number: int) -> None:
    streams, windows, _, expected = GOLDENS[number]
    found = window_combinations(streams, windows)
    assert sorted(times_of(streams, found)) == sorted(expected)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("algorithm", RIGHT)
@pytest.mark.parametrize("number", GOLDENS)
def test_window_goldens_by_the_algorithms(number: int, algorithm: str) -> None:
    streams, windows, order, expected = GOLDENS[number]
    for one in orders(streams, order):
        run = RIGHT[algorithm](replay(streams, one), windows, list(streams))
        assert sorted(times_of(streams, run.emitted)) == sorted(expected)
        assert len(set(run.emitted)) == len(run.emitted)


def golden_run(number: int, algorithm: Any, **options: Any) -> list[tuple]:
    """What an algorithm emits, as times, in the order of emission; only for goldens with one order of arrival."""
    streams, windows, order, _ = GOLDENS[number]
    found = {
        tuple(times_of(streams, algorithm(replay(streams, one), windows, list(streams), **options).emitted))
        for one in orders(streams, order)
    }
    assert len(found) == 1
    return list(found.pop())


def test_window_golden_01_order_of_emission() -> None:
    assert golden_run(1, bew) == [(0, 5), (5, 5), (5, 10)]


@pytest.mark.parametrize(("number", "expected"), [(2, [(0, 2, 3), (4, 2, 3)]), (5, [(0, 5)])])
def test_window_goldens_02_and_05_without_flush(number: int, expected: list[tuple]) -> None:
    assert golden_run(number, few, flush=False) == expected
    assert golden_run(number, few, flush=False, method="gca") == expected
    assert set(golden_run(number, few)) > set(expected)


@pytest.mark.parametrize("number", [4, 10])
@pytest.mark.parametrize("method", ["exact", "lca", "gca"])
def test_window_goldens_04_and_10_need_every_stream_to_have_gone_on(number: int, method: str) -> None:
    assert golden_run(number, bew, drop="any", method=method) == []


def test_window_golden_06_needs_streams_that_are_not_adjacent() -> None:
    assert golden_run(6, bew, drop="adjacent") == []
    star = closure(PATH_6)
    assert star["A", "C"] == star["C", "A"] == 11
    assert local_windows(star) == {"A": 11, "B": 10, "C": 11}


@pytest.mark.parametrize("algorithm", [bew, few])
@pytest.mark.parametrize("method", ["gca", "lca"])
def test_window_golden_07_needs_the_closure(algorithm: Any, method: str) -> None:
    assert golden_run(7, algorithm, method=method, source="given") == []
    assert set(pair_bounds(PATH_7, "ABC", "gca").values()) == {2}
    assert set(pair_bounds(PATH_7, "ABC", "gca", "given").values()) == {1}


def test_window_golden_08_a_given_window_may_shrink() -> None:
    star = closure(GOLDENS[8][1])
    assert star["A", "C"] == 2
    assert local_windows(star) == {"A": 2, "B": 1, "C": 2}


def test_window_golden_11_order_of_emission() -> None:
    assert golden_run(11, bew) == [(1, 1), (0, 2)]


def test_window_golden_12_closure_of_a_ring() -> None:
    star = closure(RING)
    assert (star["A", "C"], star["B", "D"]) == (4, 3)
    assert local_windows(star) == {"A": 4, "B": 3, "C": 4, "D": 3}
    streams, windows, _, _ = GOLDENS[12]
    found = {
        "".join("ABCD"[k] for k in order): bew(replay(streams, order), windows, "ABCD", period="backward").emitted != []
        for order in orders(streams, None)
    }
    # only if C, the row with the largest time, is the last to arrive, are all partners behind it
    assert found == {order: order.endswith("C") for order in found}


def test_window_golden_13_the_oldest_front_is_the_wrong_one() -> None:
    assert local_windows(closure(CLIQUE_13)) == {"A": 4, "B": 4, "C": 2}
    assert sorted(golden_run(13, few, drop="oldest")) == [(1, 4, 2), (1, 4, 3)]
    assert sorted(golden_run(13, few, drop="oldest", method="gca")) == [(1, 4, 2), (1, 4, 3), (1, 5, 3)]


def test_window_golden_14_closure_of_a_path() -> None:
    path = named({(0, 1): 3, (1, 2): 1, (2, 3): 2})
    star = closure(path)
    assert star["A", "D"] == max(star.values()) == 6
    assert local_windows(star) == {"A": 6, "B": 3, "C": 4, "D": 6}


@pytest.mark.parametrize("method", ["exact", "lca", "gca"])
def test_window_golden_15_needs_the_forward_half(method: str) -> None:
    assert golden_run(15, bew, period="backward", method=method) == []


# ---------------------------------------------------------------------------------------------------------------
# Window join: brute force and closure against other ways


def window_cases(
    seed: int,
    count: int,
    *,
    least: int = 2,
    most: int = 4,
    shapes: tuple[str, ...] = ("uniform", "clique", "path", "graph"),
) -> Iterator[tuple[list[str], dict, dict[str, list[Row]], str, Any]]:
    """Streams and windows; a third of the arrivals is to be by time."""
    rng = np.random.default_rng(seed)
    for k in range(fewer(count)):
        names = list("ABCDEF")[: int(rng.integers(least, most + 1))]
        windows = random_windows(rng, names, shapes[k % len(shapes)])
        streams = random_streams(rng, names, until=int(rng.choice([6, 10, 20])), keys=int(rng.integers(1, 3)))
        yield names, windows, streams, ("time", "any", "bursts")[k // len(shapes) % 3], rng


def test_brute_force_is_the_filtered_product() -> None:
    total = 0
    for names, windows, streams, _, _ in window_cases(31, 60, most=3):
        found = window_combinations(streams, windows)
        slow = []
        for combination in itertools.product(*streams.values()):
            row = dict(zip(names, combination, strict=True))
            near_enough = all(abs(row[a][1] - row[b][1]) <= w for (a, b), w in windows.items())
            if near_enough and len({r[2] for r in combination}) == 1:
                slow.append(tuple(r[0] for r in combination))
        assert found == slow
        total += len(found)
    assert total > fewer(500)


def test_a_predicate_takes_the_place_of_equal_keys() -> None:
    streams = streams_of([(0, 1), (1, 5)], [(1, 2), (2, 4)], [(2, 3)])
    windows = uniform(3, 2)

    def rising(row: dict[str, Row]) -> bool:
        return row["A"][2] < row["B"][2] < row["C"][2]

    assert window_combinations(streams, windows) == []
    assert window_combinations(streams, windows, rising) == [("A0", "B0", "C0")]
    assert len(window_combinations(streams, windows, lambda _: True)) == 4
    for order, run in itertools.product(orders(streams, None), RIGHT.values()):
        assert run(replay(streams, order), windows, "ABC", predicate=rising).emitted == [("A0", "B0", "C0")]


def test_windows_may_be_missing_reversed_or_exact() -> None:
    streams = streams_of([F(1, 10)], [F(4, 10)], [9])
    assert window_combinations(streams, {("B", "A"): F(3, 10)}) == [("A0", "B0", "C0")]
    assert window_combinations(streams, {("B", "A"): F(29, 100)}) == []
    assert window_combinations(streams, {("B", "A"): 1, ("A", "B"): F(29, 100)}) == []
    assert window_combinations({**streams, "C": []}, {}) == []
    with pytest.raises(ValueError, match="unknown"):
        window_combinations(streams, {("A", "X"): 1})


def test_a_uniform_clique_is_a_spread() -> None:
    for _, windows, streams, _, _ in window_cases(32, 30, shapes=("uniform",)):
        w = next(iter(windows.values()))
        found = window_combinations(streams, windows)
        spread = window_combinations(
            streams,
            {},
            lambda row, w=w: (
                max(r[1] for r in row.values()) - min(r[1] for r in row.values()) <= w
                and len({r[2] for r in row.values()}) == 1
            ),
        )
        assert found == spread


def floyd_warshall(windows: dict, names: list[str]) -> dict:
    w = {(a, b): 0 if a == b else math.inf for a in names for b in names}
    for (a, b), size in windows.items():
        w[a, b] = w[b, a] = min(w[a, b], size)
    for k, a, b in itertools.product(names, repeat=3):
        w[a, b] = min(w[a, b], w[a, k] + w[k, b])
    return {(a, b): size for (a, b), size in w.items() if a != b}


def test_the_closure_is_that_of_floyd_and_warshall() -> None:
    shrunk = 0
    rng = np.random.default_rng(33)
    for k in range(120):
        names = list("ABCDEF")[: int(rng.integers(2, 7))]
        windows = random_windows(rng, names, ("clique", "path", "graph")[k % 3], sizes=(0, 1, 2, 4, 7, 11))
        star = closure(windows, names)
        assert star == floyd_warshall(windows, names)
        shrunk += any(star[pair] < w for pair, w in windows.items())
    assert shrunk > 20
    assert closure({("A", "B"): 1}, ["A", "B", "C"])["A", "C"] == math.inf


def test_erratum_e7_the_closure_changes_no_result() -> None:
    bigger = 0
    for names, windows, streams, _, _ in window_cases(34, 40, least=3, shapes=("clique", "path", "graph")):
        star = closure(windows, names)
        assert window_combinations(streams, star) == window_combinations(streams, windows)
        bigger += any(star[pair] < w for pair, w in windows.items())
    assert bigger > fewer(5)


def test_erratum_e6_a_pair_takes_the_smaller_of_two_local_windows() -> None:
    lca = pair_bounds(PATH_6, "ABC", "lca")
    assert (lca["A", "B"], lca["B", "C"], lca["A", "C"]) == (10, 10, 11)
    lca = pair_bounds(CLIQUE_13, "ABC", "lca")
    assert (lca["A", "B"], lca["B", "C"], lca["A", "C"]) == (4, 2, 2)


def test_bounds_of_the_methods_are_ordered() -> None:
    for names, windows, _, _, _ in window_cases(35, 40, least=3):
        exact, lca, gca = (pair_bounds(windows, names, method) for method in ("exact", "lca", "gca"))
        assert all(exact[pair] <= lca[pair] <= gca[pair] for pair in exact)
    with pytest.raises(ValueError, match="bound every pair"):
        pair_bounds(PATH_7, "ABC", "exact", "given")


# ---------------------------------------------------------------------------------------------------------------
# Window join: the algorithms, right and wrong


@pytest.mark.long
def test_all_right_algorithms_give_the_brute_force_result() -> None:
    results = 0
    for names, windows, streams, how, rng in window_cases(36, 240):
        order = interleave(rng, streams, how)
        want = sorted(window_combinations(streams, windows))
        results += len(want)
        runs = {algorithm: run(order, windows, names) for algorithm, run in RIGHT.items()}
        assert {algorithm for algorithm, run in runs.items() if sorted(run.emitted) != want} == set()
        for drop in ("all", "tight", "none"):
            exact, lca, gca = (runs[f"BEW {method} {drop}"] for method in ("exact", "lca", "gca"))
            assert len(want) == exact.candidates <= lca.candidates <= gca.candidates
        for method in ("exact", "lca", "gca"):
            tight, plain, keep = (runs[f"BEW {method} {drop}"] for drop in ("tight", "all", "none"))
            assert all(a <= b <= c for a, b, c in zip(tight.held, plain.held, keep.held, strict=True))
            assert tight.comparisons <= plain.comparisons <= keep.comparisons
    assert results > 3000


def failures(cases: Iterator, algorithm: Any, **options: Any) -> int:
    """In how many cases the output is not that of brute force; never may it hold something wrong or twice."""
    count = 0
    for names, windows, streams, how, rng in cases:
        want = window_combinations(streams, windows)
        found = algorithm(interleave(rng, streams, how), windows, names, **options).emitted
        assert set(found) <= set(want)
        assert len(set(found)) == len(found)
        count += len(found) < len(want)
    return count


GRAPHS = ("clique", "path", "graph")


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(
    ("algorithm", "wrong", "options", "cases"),
    [
        pytest.param(bew, {"drop": "any"}, {}, {"least": 3}, id="E2 any stream"),
        pytest.param(bew, {"drop": "any", "method": "gca"}, {}, {"least": 3, "shapes": ("uniform",)}, id="E2 uniform"),
        pytest.param(bew, {"strict_drop": False}, {}, {}, id="E2 ties"),
        pytest.param(
            bew, {"source": "given"}, {"method": "gca"}, {"least": 3, "shapes": ("path", "graph")}, id="E3 BEW"
        ),
        pytest.param(
            few, {"source": "given"}, {"method": "gca"}, {"least": 3, "shapes": ("path", "graph")}, id="E3 FEW"
        ),
        pytest.param(bew, {"drop": "adjacent"}, {}, {"least": 3, "shapes": ("path", "graph")}, id="E4 adjacent"),
        pytest.param(few, {"drop": "oldest"}, {"method": "lca"}, {"least": 3, "shapes": GRAPHS}, id="E5 oldest"),
        pytest.param(
            bew, {"source": "given"}, {"method": "lca"}, {"least": 3, "shapes": ("path", "graph")}, id="E6 BEW"
        ),
        pytest.param(
            few, {"source": "given"}, {"method": "lca"}, {"least": 3, "shapes": ("path", "graph")}, id="E6 FEW"
        ),
        pytest.param(few, {"flush": False}, {"method": "lca"}, {}, id="E8 LCA"),
        pytest.param(few, {"flush": False}, {"method": "gca"}, {}, id="E8 GCA"),
        pytest.param(bew, {"period": "backward"}, {}, {}, id="E9 backward"),
        pytest.param(
            few,
            {"admission": "pairwise"},
            {"discard": "closure"},
            {"least": 4, "shapes": GRAPHS},
            id="pairwise admission",
        ),
    ],
)
def test_errata_of_the_window_join(algorithm: Any, wrong: dict, options: dict, cases: dict) -> None:
    """The right rule never fails and the wrong one does, on the same cases."""
    assert failures(window_cases(37, 150, **cases), algorithm, **options) == 0
    assert failures(window_cases(37, 150, **cases), algorithm, **options, **wrong) > 0


def test_erratum_e4_also_with_arrivals_by_time() -> None:
    cases = [
        (names, windows, streams, "time", rng)
        for names, windows, streams, _, rng in window_cases(38, 240, least=3, shapes=("path", "graph"))
    ]
    assert failures(iter(cases), bew) == 0
    assert failures(iter(cases), bew, drop="adjacent") > 0


def test_erratum_e5_the_oldest_front_is_right_for_uniform_windows() -> None:
    assert failures(window_cases(39, 100, shapes=("uniform",)), few, drop="oldest") == 0


def test_erratum_e10_disorder_needs_slack() -> None:
    wrong = backwards = 0
    for names, windows, streams, how, rng in window_cases(40, 150):
        slack = {name: int(rng.integers(0, 8)) for name in names}
        mixed = {name: disorder(rng, streams[name], slack[name]) for name in names}
        for name in names:
            seen = itertools.accumulate((row[1] for row in mixed[name]), max)
            late = [newest - row[1] for newest, row in zip(seen, mixed[name], strict=True)]
            assert max(late, default=0) <= slack[name]
            backwards += max(late, default=0) > 0
        order = interleave(rng, mixed, "bursts" if how == "time" else how)
        want = sorted(window_combinations(streams, windows))
        for method, drop in itertools.product(("exact", "lca", "gca"), ("all", "tight")):
            assert sorted(bew(order, windows, names, method=method, drop=drop, slack=slack).emitted) == want
        wrong += sorted(bew(order, windows, names).emitted) != want
    assert backwards > 50
    assert wrong > 0


DEADLOCK = named({(0, 1): 1, (0, 2): 1, (1, 3): 1, (2, 3): 1, (0, 3): 0, (1, 2): 0})


def test_a_limit_for_each_pair_can_wait_for_ever() -> None:
    """The example of the notes, with a combination at time 50 that is never reached."""
    streams = streams_of([0, 1, 50], [0, 1, 50], [0, 50], [0, 50])
    order = replay(streams, [0, 1, 2, 3] * 2 + [0, 1])
    want = [("A0", "B0", "C0", "D0"), ("A2", "B2", "C1", "D1")]
    assert window_combinations(streams, DEADLOCK) == want
    assert few(order, DEADLOCK, "ABCD").emitted == want
    assert few(order, DEADLOCK, "ABCD", admission="pairwise", discard="closure").emitted == want[:1]


def test_a_limit_for_each_pair_is_enough_for_three_streams() -> None:
    cases = window_cases(41, 150, least=3, most=3, shapes=GRAPHS)
    assert failures(cases, few, admission="pairwise", discard="closure") == 0


def test_forward_evaluation_goes_on_at_a_heartbeat() -> None:
    streams = streams_of([0, 12], [5])
    order = replay(streams, [0, 1, 0])
    silent = few(order, uniform(2, 10), "AB", flush=False)
    assert silent.emitted == [("A0", "B0")]
    # "not before 10" may still mean 10, which meets the front at 0
    assert few([*order, ("B", Heartbeat(10))], uniform(2, 10), "AB", flush=False).emitted == [("A0", "B0")]
    both = [("A0", "B0"), ("A1", "B0")]
    assert few([*order, ("B", Heartbeat(10.5))], uniform(2, 10), "AB", flush=False).emitted == both
    with pytest.raises(ValueError, match="heartbeats"):
        bew([("A", Heartbeat(1))], uniform(2, 1), "AB")


def test_heartbeats_in_between_change_no_result() -> None:
    earlier = 0
    for names, windows, streams, how, rng in window_cases(42, 150):
        order = interleave(rng, streams, how)
        want = sorted(window_combinations(streams, windows))
        beats: list = []
        for k, (name, row) in enumerate(order):
            beats.append((name, row))
            other = str(rng.choice(names))
            later = [r[1] for n, r in order[k + 1 :] if n == other]
            beats.append((other, Heartbeat(min(later, default=math.inf))))
        plain = few(order, windows, names, flush=False).emitted
        found = few(beats, windows, names, flush=False).emitted
        assert len(set(found)) == len(found)
        assert set(plain) <= set(found) <= set(want)
        earlier += len(found) > len(plain)
        assert sorted(few(beats, windows, names).emitted) == want
    assert earlier > fewer(5)


def test_the_tight_rule_drops_what_a_silent_stream_cannot_join() -> None:
    """B has gone on past A0 and has nothing near it; C stalls, so the plain rule must keep it."""
    streams = streams_of([10], [0, 30], [9])
    order = replay(streams, [0, 1, 2, 1])
    plain, tight = (bew(order, uniform(3, 5), "ABC", drop=drop) for drop in ("all", "tight"))
    assert plain.held == [1, 2, 2, 3]  # B0 goes once A and C are past it
    assert tight.held == [1, 1, 2, 1]  # and here at once, and so do A0 and C0 when B is past them
    assert plain.emitted == tight.emitted == []


def test_a_row_at_the_very_end_of_a_window_is_kept() -> None:
    """B at 5 has not passed A at 0 with a window of 5: another B at 5 may come."""
    streams = streams_of([0], [5, 5])
    order = replay(streams, [0, 1, 1])
    assert len(bew(order, uniform(2, 5), "AB").emitted) == 2
    assert len(bew(order, uniform(2, 5), "AB", strict_drop=False).emitted) == 1


def test_interleavings_keep_each_stream_in_order() -> None:
    rng = np.random.default_rng(43)
    streams = random_streams(rng, "ABC", most=9)
    for how in ("time", "any", "bursts"):
        order = interleave(rng, streams, how)
        assert {name: [row for n, row in order if n == name] for name in streams} == streams
        times = [row[1] for _, row in order]
        assert (times == sorted(times)) == (how == "time")


def test_a_run_counts_what_it_does() -> None:
    run = bew(replay(streams_of([0, 1], [1]), [0, 0, 1]), uniform(2, 1), "AB")
    assert isinstance(run, WindowRun)
    assert (run.emitted, run.candidates, run.comparisons) == ([("A0", "B0"), ("A1", "B0")], 2, 2)
    assert (run.held, run.peak) == ([1, 2, 3], 3)


# ---------------------------------------------------------------------------------------------------------------
# Conditions that share a value


def test_two_conditions_on_one_coin() -> None:
    coin = Discrete((0, 1))
    both = [("x", "y", 0, 0), ("x", "z", 0, 0)]
    ring = [*both, ("y", "z", 0, 0)]
    values = {"x": coin, "y": coin, "z": coin}
    assert joint_samples(values, both) == F(1, 4)
    assert joint_samples(values, ring) == F(1, 4)  # the third follows; a product would say 1/8
    assert joint_samples(values, [("x", "x", 0, 0)]) == 1
    assert joint_samples(values, [("x", "x", 1, 2)]) == 0
    assert joint_samples(values, []) == 1


def test_samples_have_weights_and_order() -> None:
    values = {"x": Discrete((0, 10), (F(1, 4), F(3, 4))), "y": Discrete((1, 1, 11)), "z": Point(8)}
    assert joint_samples(values, [("x", "y", -1, 0)]) == F(1, 4) * F(2, 3) + F(3, 4) * F(1, 3)
    assert joint_samples(values, [("y", "x", -1, 0)]) == 0
    assert joint_samples(values, [("x", "y", -1, 0), ("x", "z", 0, math.inf)]) == F(3, 4) * F(1, 3)


def test_samples_by_conditioning_on_the_shared_value() -> None:
    rng = np.random.default_rng(44)
    apart = 0
    for _ in range(60):
        values = {
            name: oracle.random_value(rng, "discrete", center_range=(-1, 1), nasty=bool(rng.integers(2)))
            for name in "xyz"
        }
        conditions = [("x", "y", -1.0, 1.5), ("z", "x", -0.5, 2.0)]
        expected = F(0)
        x = values["x"]
        weights = [F(p) for p in x.probs] if x.probs is not None else [F(1)] * len(x.points)
        for at, weight in zip(x.points, weights, strict=True):
            p = oracle.rational_probability_in(Point(at), values["y"], -1.0, 1.5)
            p *= oracle.rational_probability_in(values["z"], Point(at), -0.5, 2.0)
            expected += p * weight / sum(weights)
        assert joint_samples(values, conditions) == expected
        product = math.prod(oracle.rational_probability_in(values[a], values[b], lo, hi) for a, b, lo, hi in conditions)
        apart += product != expected
    assert apart > 20


def test_samples_are_compared_as_doubles_unless_told_otherwise() -> None:
    values = {"x": Point(2.0**53), "y": Point(-1.0)}
    assert joint_samples(values, [("x", "y", 0, 2.0**53)]) == 1
    assert joint_samples(values, [("x", "y", 0, 2.0**53)], ties="exact") == 0


def test_too_much_to_enumerate_is_refused() -> None:
    values = {name: Discrete(tuple(range(200))) for name in "wxyz"}
    with pytest.raises(ValueError, match="enumerate"):
        joint_samples(values, [("w", "x", 0, 1), ("y", "z", 0, 1)])
    with pytest.raises(ValueError, match="not samples"):
        joint_samples({"x": Normal(0, 1), "y": Point(0)}, [("x", "y", 0, 1)])


def test_one_gaussian_condition() -> None:
    rng = np.random.default_rng(45)
    for _ in range(20):
        a, b = (Normal(float(rng.normal()), float(rng.uniform(0.1, 3))) for _ in range(2))
        lo, hi = sorted(rng.normal(size=2) * 2)
        expected = float(oracle.probability_in(a, b, lo, hi))
        for method in ("cover", "differences"):
            assert joint_gaussians({"a": a, "b": b}, [("a", "b", lo, hi)], method=method) == pytest.approx(
                expected, abs=1e-12
            )
        assert joint_gaussians({"a": a, "b": b}, [("b", "a", -hi, -lo)]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("method", ["auto", "cover", "differences"])
def test_the_order_of_equal_gaussians(n: int, method: str) -> None:
    """Each order has the probability 1 / n!."""
    values = {name: Normal(3, 2) for name in "abcd"[:n]}
    rising = [(a, b, -math.inf, 0) for a, b in itertools.pairwise("abcd"[:n])]
    assert joint_gaussians(values, rising, method=method) == pytest.approx(1 / math.factorial(n), abs=1e-12)


def test_a_star_of_gaussians_is_one_integral() -> None:
    values = {"x": Normal(0.4, 1.3), "a": Normal(0, 0.5), "b": Normal(1, 2), "c": Normal(-1, 0.8)}
    conditions = [("x", "a", -1, 1), ("b", "x", -0.5, 2), ("x", "c", -2, 3)]

    def given(x: float) -> float:
        a = norm.cdf(x + 1, 0, 0.5) - norm.cdf(x - 1, 0, 0.5)
        b = norm.cdf(x + 2, 1, 2) - norm.cdf(x - 0.5, 1, 2)
        c = norm.cdf(x + 2, -1, 0.8) - norm.cdf(x - 3, -1, 0.8)
        return a * b * c * norm.pdf(x, 0.4, 1.3)

    expected = quad(given, -10, 10, epsabs=1e-13, epsrel=1e-13, limit=400, points=[-1, 0, 1])[0]
    for method in ("auto", "cover", "differences"):
        assert joint_gaussians(values, conditions, method=method) == pytest.approx(expected, abs=1e-11)
    product = math.prod(joint_gaussians(values, [condition]) for condition in conditions)
    assert abs(product - expected) > 0.02


GAUSSIAN_GRAPHS = {
    "star": [("x", "a"), ("x", "b")],
    "triangle": [("a", "b"), ("b", "x"), ("x", "a")],
    "path": [("a", "b"), ("b", "x"), ("x", "y")],
    "ring": [("a", "b"), ("b", "x"), ("x", "y"), ("y", "a")],
    "clique": list(itertools.combinations("abxy", 2)),
}


@pytest.mark.long
@pytest.mark.parametrize("graph", GAUSSIAN_GRAPHS)
def test_gaussians_two_ways_and_by_drawing(graph: str) -> None:
    rng = np.random.default_rng(46)
    count, useful = 100_000, 0
    for _ in range(2):
        values = {name: Normal(float(rng.normal()), float(rng.uniform(0.3, 2))) for name in "abxy"}
        conditions = [
            (p, q, float(-rng.uniform(0.5, 3)), float(rng.uniform(0.5, 3))) for p, q in GAUSSIAN_GRAPHS[graph]
        ]
        found = joint_gaussians(values, conditions, method="differences")
        assert joint_gaussians(values, conditions) == pytest.approx(found, abs=1e-11)
        if graph != "clique":  # there it takes three nested integrals
            assert joint_gaussians(values, conditions, method="cover") == pytest.approx(found, abs=1e-11)
        drawn = {name: rng.normal(v.mean, v.sd, count) for name, v in values.items()}
        share = np.mean(
            np.all([(drawn[p] - drawn[q] >= lo) & (drawn[p] - drawn[q] <= hi) for p, q, lo, hi in conditions], axis=0)
        )
        assert abs(found - share) < 5 * math.sqrt(0.25 / count)
        useful += found > 0.02
    assert useful > 0


def test_narrow_gaussians_are_not_missed() -> None:
    """The integrand over the broad value is a spike a thousandth of a panel wide."""
    values = {"a": Normal(0, 10), "b": Normal(0, 0.001), "c": Normal(0.001, 0.001)}
    conditions = [("a", "b", -0.005, 0.005), ("a", "c", -0.005, 0.005)]
    # over so little, the density of a is flat: its height times the mean length of where both windows meet
    gap = Normal(0.001, 0.001 * math.sqrt(2))
    length_of_both = quad(lambda g: max(0, 0.01 - abs(g)) * norm.pdf(g, gap.mean, gap.sd), -0.01, 0.01, points=[0])[0]
    expected = length_of_both * norm.pdf(0, 0, 10)
    for method in ("cover", "differences"):
        found = joint_gaussians(values, conditions, method=method)
        assert found == pytest.approx(expected, rel=1e-6)


def test_certain_values_and_empty_windows() -> None:
    values = {"a": Normal(0, 1), "b": Point(0.5), "c": Normal(2, 0), "d": Normal(0, 1)}
    band_ab = joint_gaussians(values, [("a", "b", -1, 1)])
    assert band_ab == pytest.approx(norm.cdf(1.5) - norm.cdf(-0.5), abs=1e-13)
    assert joint_gaussians(values, [("b", "a", -1, 1)]) == pytest.approx(band_ab, abs=1e-13)
    both = joint_gaussians(values, [("a", "b", -1, 1), ("a", "c", -1, 1)])  # -0.5..1.5 and 1..3
    assert both == pytest.approx(norm.cdf(1.5) - norm.cdf(1), abs=1e-13)
    assert joint_gaussians(values, [("c", "b", 1.5, 1.5)]) == 1
    assert joint_gaussians(values, [("c", "b", 1.6, 2)]) == 0
    assert joint_gaussians(values, [("a", "d", 0, 1), ("d", "a", 0, 1)]) == pytest.approx(0, abs=1e-13)
    assert joint_gaussians(values, [("a", "a", 0, 0)]) == 1
    assert joint_gaussians(values, [("a", "a", 0.1, 1)]) == 0
    triangle = joint_gaussians(values, [("a", "d", -1, 1), ("a", "b", -1, 1), ("d", "b", -1, 1)])
    inside = quad(
        lambda x: norm.pdf(x) * (norm.cdf(min(1.5, x + 1)) - norm.cdf(max(-0.5, x - 1))), -0.5, 1.5, points=[0.5]
    )[0]
    assert triangle == pytest.approx(inside, abs=1e-12)


def test_separate_conditions_multiply() -> None:
    values = {name: Normal(0, k + 1) for k, name in enumerate("abcd")}
    first_pair, second_pair = ("a", "b", -1, 2), ("c", "d", 0, 3)
    assert joint_gaussians(values, [first_pair, second_pair]) == pytest.approx(
        joint_gaussians(values, [first_pair]) * joint_gaussians(values, [second_pair]), abs=1e-13
    )


def test_many_samples_come_near_gaussians() -> None:
    """The two functions mean the same by a condition."""
    spread = norm.ppf((np.arange(40) + 0.5) / 40)
    parameters = {"x": (0.0, 1.0), "y": (0.5, 0.7), "z": (-0.2, 1.5)}
    conditions = [("x", "y", -1.013, 0.517), ("x", "z", -0.311, 2.003), ("y", "z", -1.007, 3.001)]
    gaussians = {name: Normal(m, s) for name, (m, s) in parameters.items()}
    samples = {name: Discrete(tuple((m + s * spread).tolist())) for name, (m, s) in parameters.items()}
    assert float(joint_samples(samples, conditions)) == pytest.approx(joint_gaussians(gaussians, conditions), abs=0.01)


def test_a_shared_history_changes_the_variance() -> None:
    """Two values that are each other's negative: their difference has an sd of 2, not of the square root of 2."""
    dependent = joint_gaussians({"z": Normal(0, 2), "o": Point(0)}, [("z", "o", 1.9, math.inf)])
    independent = joint_gaussians({"r": Normal(0, 1), "s": Normal(0, 1)}, [("r", "s", 1.9, math.inf)])
    assert (round(dependent, 4), round(independent, 4)) == (0.1711, 0.0896)
