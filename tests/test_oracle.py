"""The referee is refereed here: golden values, identities, more digits, simulation, one engine against the other."""

from __future__ import annotations

import ast
import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from mpmath import mp, mpf

import goldens
import oracle
from oracle import (
    KINDS,
    Discrete,
    Hist,
    Normal,
    NormalMixture,
    Point,
    Truncated,
    Uniform,
    as_decimal,
    as_decimals,
    probability_float,
    probability_in,
    rational_probability_in,
)

INF = math.inf
WINDOWS = [
    (-0.5, 0.75, True, True, False),
    (-INF, 0.25, True, True, False),
    (0.0, INF, False, True, False),
    (-1.0, 1.0, True, True, True),
]


def agrees(value: mpf, golden: Fraction | str) -> bool:
    """A fraction must be met to 30 digits; a printed number to half a unit of its 18th significant digit."""
    with mp.workdps(50):
        if isinstance(golden, Fraction):
            return abs(value - mpf(golden.numerator) / golden.denominator) < mpf(10) ** -30
        target = mpf(golden)
        half_unit = mpf(10) ** (mp.floor(mp.log10(abs(target))) - 17) / 2
        return abs(value - target) <= half_unit * mpf("1.000001")


def pair_goldens() -> list[tuple]:
    """Every golden that is a probability of a difference, as arguments of `probability_in`."""
    rows = []
    for name, a, b, c, value in goldens.EQUAL_WITHIN:
        rows.append((f"{name} equal", a, b, (-c, c, True, True, False), value))
    for name, a, b, value in goldens.GREATER:
        rows.append((f"{name} greater", a, b, (0, INF, False, True, False), value))
    for name, a, b, value in goldens.GREATER_EQUAL:
        rows.append((f"{name} greater or equal", a, b, (0, INF, True, True, False), value))
    for name, a, b, value in goldens.LESS:
        rows.append((f"{name} less", a, b, (-INF, 0, True, False, False), value))
    for name, a, b, low, high, value in goldens.BAND:
        rows.append((f"{name} band", a, b, (low, high, False, False, False), value))
    for name, a, b, c, value in goldens.OUTSIDE:
        rows.append((f"{name} outside", a, b, (-c, c, True, True, True), value))
    return rows


@pytest.mark.parametrize(("a", "b", "window", "value"), [pytest.param(*r[1:], id=r[0]) for r in pair_goldens()])
def test_pair_goldens(a, b, window, value):
    low, high, *flags = window
    exact = probability_in(as_decimals(a), as_decimals(b), as_decimal(low), as_decimal(high), *flags)
    assert agrees(exact, value), (mp.nstr(exact, 25), value)
    assert abs(probability_float(a, b, low, high, *flags) - float(mpf(exact))) < 1e-15
    if isinstance(value, Fraction):
        a, b, low, high = as_decimals(a), as_decimals(b), as_decimal(low), as_decimal(high)
        assert rational_probability_in(a, b, low, high, *flags) == value


@pytest.mark.parametrize(("name", "a", "x", "value"), goldens.CDF)
def test_cdf_goldens(name, a, x, value):
    assert agrees(oracle.cdf(a, as_decimal(x)), value)


@pytest.mark.parametrize(("name", "a", "q", "value"), goldens.QUANTILE)
def test_quantile_goldens(name, a, q, value):
    level = as_decimal(q)
    for found in (oracle.quantile(a, level), oracle.quantile_low(a, level), oracle.quantile_high(a, 1 - level)):
        assert agrees(found, value)


def test_bound_goldens():
    for _, a, b, c, m_a, m_b, plain, tight in goldens.EQUAL_UPPER_BOUNDS:
        with mp.workdps(50):
            assert agrees(oracle.cdf(a, b.hi + c) - oracle.cdf(a, b.lo - c), m_a)
            assert agrees(oracle.cdf(b, a.hi + c) - oracle.cdf(b, a.lo - c), m_b)
        assert min(m_a, m_b) == plain
        conc_a, conc_b = (Fraction(str(oracle.concentration(v, 2 * c))) for v in (a, b))
        assert min(m_a * conc_b, m_b * conc_a) == tight
    for _, a, b, first, second, product in goldens.GREATER_LOWER_BOUNDS:
        with mp.workdps(50):
            assert agrees(1 - oracle.cdf(as_decimals(a), as_decimal(b.hi)), first)
            assert agrees(oracle.cdf(as_decimals(b), as_decimal(a.lo)), second)
        assert 1 - (1 - first) * (1 - second) == product


def test_gaussian_formula_goldens():
    rows = {name: (inputs, outputs) for name, inputs, outputs in goldens.GAUSSIAN_FORMULAS}

    def inputs_of(name):
        return {k: mpf(str(v)) for k, v in rows[name][0].items()}

    def normal_quantile(q):
        return oracle.quantile(Normal(0, 1), oracle._end(q))

    with mp.workdps(40):
        at = inputs_of("P3")
        near, far = at["a"] - at["mu"], at["b"] - at["mu"]

        def mass(sd):
            return mp.ncdf(far / sd) - mp.ncdf(near / sd)

        best = mp.findroot(lambda sd: mp.diff(mass, sd), mpf("1.9"))  # the maximum, found rather than given
        assert agrees(best, rows["P3"][1]["sigma_star"])
        assert agrees(mass(best), rows["P3"][1]["g"])
        for name in ("P4 .5", "P4 .7", "P4 .9"):
            at = inputs_of(name)
            widest = (at["b"] - at["a"]) / (2 * normal_quantile((1 + at["threshold"]) / 2))
            assert agrees(widest, rows[name][1]["sigma_max"])
        at = inputs_of("P5")
        assert agrees(mp.sqrt((1 - at["threshold"]) / at["threshold"]), rows["P5"][1]["kappa"])
        at = inputs_of("P6")
        low, high = normal_quantile(at["alpha"]), normal_quantile(at["alpha"] + at["threshold"])
        sigma = (at["b"] - at["a"]) / (high - low)
        assert agrees(sigma, rows["P6"][1]["sigma"])
        assert agrees(at["a"] - low * sigma, rows["P6"][1]["mu"])
        at = inputs_of("P7")
        spread = mp.quad(lambda x: abs(x) * mp.npdf(x, at["mean"], at["sd"]), [-8, -3, -1, 0, 1, 2, 3, 5, 11])
        assert agrees(spread, rows["P7"][1]["mean_absolute"])


@pytest.mark.long
@pytest.mark.parametrize("nasty", [False, True])
def test_fast_engine_agrees_with_exact_engine(nasty):
    rng = np.random.default_rng(20240501)
    windows = itertools.cycle(WINDOWS)
    for left, right in itertools.combinations_with_replacement(KINDS, 2):
        a, b = oracle.random_value(rng, left, nasty=nasty), oracle.random_value(rng, right, nasty=nasty)
        if rng.random() < 0.5:
            a, b = b, a
        low, high, *flags = next(windows)
        # where something happens, and at its scale; then on the grid of the atoms, where ties are
        centre = float(oracle.mean(a) - oracle.mean(b))
        spread = math.sqrt(float(min(oracle.variance(a) or 1, oracle.variance(b) or 1)))
        for c, s in ((centre, spread), (round(4 * centre) / 4, 1.0))[: 1 + nasty]:
            exact = probability_in(a, b, c + s * low, c + s * high, *flags)
            assert abs(exact - probability_float(a, b, c + s * low, c + s * high, *flags)) < 1e-13, (a, b, c, s, flags)


@pytest.mark.long
@pytest.mark.parametrize(
    ("a", "b", "low", "high"),
    [
        (Uniform(1000.0, 1000.0 + 1e-12), Normal(0.3, 1e3), 999.7, INF),
        (Uniform(-500.0, 500.0), Truncated(3.0, 1e-12, 2.0, 4.0), -1e-12, 100.0),
        (Truncated(0.0, 1.0, 30.0, 31.0), Truncated(0.0, 1e3, 29.5, 30.5), -0.2, 0.4),
        (Hist((0.0, 1e-12, 1e3), (0.5, 0.5)), Truncated(0.0, 1e-12, -1.0, 1.0), -INF, 1e-12),
        (Truncated(1.0, 0.3, -5.0, 9.0), Normal(6.0, 0.5), 0.0, INF),
    ],
)
def test_more_digits_do_not_change_the_value(a, b, low, high):
    once, twice = (probability_in(a, b, low, high, digits=digits) for digits in (50, 70))
    assert once > 0
    assert abs(once - twice) <= abs(twice) * mpf(10) ** -28
    assert abs(probability_float(a, b, low, high) - float(twice)) < 1e-15


def test_normal_pairs_are_relatively_exact_in_the_far_tail():
    with mp.workdps(60):
        reference = mp.erfc(mpf(25) / mp.sqrt(2)) / 2
        tail = oracle.difference_cdf(Normal(25, Fraction(3, 5)), Normal(0, Fraction(4, 5)), 0)
        assert abs(tail / reference - 1) < mpf(10) ** -30
        above = probability_in(Normal(0, 3), Normal(0, 4), 125, 130)
        assert abs(above / (mp.erfc(25 / mp.sqrt(2)) / 2 - mp.erfc(26 / mp.sqrt(2)) / 2) - 1) < mpf(10) ** -30
    assert probability_float(Normal(25.0, 0.6), Normal(0.0, 0.8), -INF, 0.0) == pytest.approx(float(tail), rel=1e-12)


def test_uniform_against_normal_equals_the_integrated_cdf():
    """A closed form the oracle does not use: the mean of Phi over an interval by its antiderivative z Phi + phi."""
    with mp.workdps(50):

        def antiderivative(x):
            z = (x - 3) / mpf(2)
            return 2 * (z * mp.ncdf(z) + mp.npdf(z))

        closed = (antiderivative(mpf(4)) - antiderivative(mpf(0))) / 4
        assert abs(probability_in(Uniform(0, 4), Normal(3, 2), 0, INF) - closed) < mpf(10) ** -30


def test_identities():
    rng = np.random.default_rng(7)
    for left, right in [
        ("hist", "truncated"),
        ("mixture", "discrete"),
        ("uniform", "normal"),
        ("discrete", "discrete"),
    ]:
        nasty = left == right
        a, b = oracle.random_value(rng, left, nasty=nasty), oracle.random_value(rng, right, nasty=nasty)
        for t in (-0.25, 0.0, 0.7):
            forward = oracle.difference_cdf(a, b, t)
            backward = oracle.difference_cdf_left(b, a, -t)
            assert abs(forward + backward - 1) < mpf(10) ** -30
        inside = probability_in(a, b, -0.5, 0.5)
        assert abs(inside - probability_in(b, a, -0.5, 0.5)) < mpf(10) ** -30
        assert abs(inside + probability_in(a, b, -0.5, 0.5, outside=True) - 1) < mpf(10) ** -30


def test_simulation():
    rng = np.random.default_rng(11)
    n = 400_000

    def draw(a):
        if isinstance(a, Uniform):
            return rng.uniform(a.lo, a.hi, n)
        if isinstance(a, Truncated):
            x = rng.normal(a.mean, a.sd, 3 * n)
            return x[(x >= a.lo) & (x <= a.hi)][:n]
        if isinstance(a, Hist):
            k = rng.choice(len(a.probs), n, p=a.probs)
            edges = np.array(a.edges)
            return rng.uniform(edges[k], edges[k + 1])
        if isinstance(a, NormalMixture):
            k = rng.choice(len(a.weights), n, p=a.weights)
            return rng.normal(np.array(a.means)[k], np.array(a.sds)[k])
        return rng.choice(np.array(a.points), n, p=a.probs)

    values = [
        Uniform(-1.0, 2.0),
        Truncated(0.5, 1.0, -0.5, 2.5),
        Hist((-2.0, 0.0, 0.5, 3.0), (0.2, 0.5, 0.3)),
        NormalMixture((0.4, 0.6), (-1.0, 1.0), (0.0, 0.7)),
        Discrete((-1.0, 0.0, 1.0), (0.2, 0.3, 0.5)),
    ]
    for a, b in itertools.combinations(values, 2):
        gaps = draw(a) - draw(b)
        for low, high, low_closed, high_closed, outside in WINDOWS:
            inside = (gaps >= low if low_closed else gaps > low) & (gaps <= high if high_closed else gaps < high)
            p = probability_float(a, b, low, high, low_closed, high_closed, outside)
            assert abs(np.mean(inside != outside) - p) < 5 * math.sqrt(0.25 / n)


def test_atoms_ties_and_degenerate_values():
    assert probability_in(Uniform(2, 2), Normal(2, 0), 0, 0) == 1
    assert probability_in(Truncated(9, 0, 0, 5), Point(5), 0, 0) == 1
    assert probability_in(Hist((1, 1, 2), (1, 3)), Point(1), 0, 0) == mpf(1) / 4
    assert probability_in(Point(0.3), Point(0.1), -INF, 0.2) == 1  # 0.19999999999999998
    assert probability_in(Point(1.1), Point(1.0), -INF, 0.1) == 0  # 0.10000000000000009
    # a tie that only rounding makes: 1e16 + 1 is lost in the float subtraction
    assert probability_in(Point(1e16), Point(-1.0), -INF, 1e16) == 1
    assert probability_in(Point(1e16), Point(-1.0), -INF, 1e16, ties="exact") == 0
    assert probability_float(Point(1e16), Point(-1.0), -INF, 1e16) == 1
    assert probability_in(Uniform(0, 1), Uniform(1, 2), 0, INF) == 0
    assert probability_float(Uniform(0, 1), Uniform(1, 2), 0, INF) == 0
    assert probability_in(Uniform(0, 1), Uniform(0, 1), 0.5, -0.5) == 0
    assert probability_in(Uniform(0, 1), Uniform(0, 1), 0.5, -0.5, outside=True) == 1


def test_quantiles_at_plateaus_and_ends():
    gap = Hist((0, 1, 3, 4), (0.5, 0, 0.5))
    assert oracle.quantile_low(gap, 0.5) == 3
    assert oracle.quantile_high(gap, 0.5) == 1
    assert oracle.quantile(gap, 0.5) == 1
    assert oracle.quantile_low(gap, 0) == 0
    assert oracle.quantile_high(gap, 0) == 4
    assert oracle.quantile_low(gap, 1) == INF
    assert oracle.quantile_high(gap, 1) == -INF
    assert oracle.quantile_low(gap, 0.25) == mpf("0.5")
    samples = Discrete((1, 2, 5))
    assert oracle.quantile_low(samples, Fraction(1, 3)) == 2
    assert oracle.quantile_high(samples, Fraction(2, 3)) == 1
    mixed = NormalMixture((0.5, 0.5), (0.0, 3.0), (1.0, 0.0))
    assert oracle.quantile_low(mixed, 0.6) == 3
    assert oracle.support(mixed) == (-mp.inf, mp.inf)
    assert oracle.support(Hist((0, 1, 2), (0, 1))) == (1, 2)


def test_moments():
    a = Truncated(0.0, 1.0, 12.0, 40.0)
    with mp.workdps(40):
        whole = mp.ncdf(-12) - mp.ncdf(-40)
        points = [12 + mpf(k) / 4 for k in range(40)]
        first = mp.quad(lambda x: x * mp.npdf(x) / whole, points)
        second = mp.quad(lambda x: (x - first) ** 2 * mp.npdf(x) / whole, points)
    assert abs(oracle.mean(a) - first) < 1e-25
    assert abs(oracle.variance(a) / second - 1) < 1e-25
    assert oracle.mean(goldens.HIST_A) == mpf("1.625")
    assert abs(oracle.variance(goldens.DISCRETE_A) - mpf("2.25")) < 1e-30


def test_concentration():
    assert oracle.concentration(Uniform(0, 4), 1) == 0.25
    assert oracle.concentration(Discrete((0, 0.25, 0.5, 3)), 0.25) == 0.5
    assert oracle.concentration(Hist((0, 1, 3, 4), (0.5, 0, 0.5)), 2) == 0.5
    assert oracle.concentration(Normal(3, 2), 1) == pytest.approx(math.erf(0.25 / math.sqrt(2)), abs=1e-14)
    assert oracle.concentration(Truncated(0, 1, 2, 9), 0.5) == pytest.approx(
        float(oracle.cdf(Truncated(0, 1, 2, 9), 2.5)), abs=1e-14
    )
    mixture = NormalMixture((0.5, 0.3, 0.2), (0.0, 0.4, 5.0), (0.2, 1e-4, 0.0))
    starts = np.linspace(-0.21, -0.19, 40_001)
    scan = oracle._window_masses(oracle._fast_split(mixture), starts, starts + 0.6).max()
    assert scan - 1e-14 <= oracle.concentration(mixture, 0.6) <= scan + 1e-7


def test_decisions():
    assert oracle.keeps(0.3, None)
    assert not oracle.keeps(0.0, None)
    assert not oracle.keeps(Fraction(0), 0.1, equal_weights=True)
    assert oracle.keeps(Fraction(3, 10), 0.3, equal_weights=True)
    assert not oracle.keeps(Fraction(3, 10), 0.3, strict=True, equal_weights=True)
    assert not oracle.keeps(Fraction(1, 3), 0.3333333333333334, equal_weights=True)
    assert oracle.keeps(0.7 - 5e-13, 0.7)
    assert not oracle.keeps(0.7 + 5e-13, 0.7, strict=True)
    assert not oracle.keeps(0.7 - 2e-12, 0.7)
    assert oracle.borderline(0.7 + 1e-10, 0.7)
    assert not oracle.borderline(Fraction(7, 10), 0.7)
    assert not oracle.borderline(0.5, 0.7)


def test_brute_force_join():
    lefts = [Point(0.0), Discrete((0.0, 1.0)), None, Uniform(0.0, 1.0)]
    rights = [Point(0.0), None, Discrete((0.0, 1.0)), Uniform(0.5, 1.5)]
    kept = oracle.brute_force_join(lefts, rights, -0.5, 0.5, threshold=0.5)
    assert kept == {
        (0, 0): 1.0,
        (0, 2): 0.5,
        (1, 0): 0.5,
        (1, 2): 0.5,
        (1, 3): 0.5,
        (3, 0): 0.5,
        (3, 2): 0.5,
        (3, 3): 0.5,
    }
    strict = oracle.brute_force_join(lefts, rights, -0.5, 0.5, threshold=0.5, strict=True)
    assert strict == {(0, 0): 1.0}
    same = oracle.brute_force_join(lefts, rights, -0.1, 0.1, threshold=1.0, same=lambda i, j: i == j)
    assert same == {(0, 0): 1.0, (3, 3): 1.0}
    far = oracle.brute_force_join(lefts, rights, -0.1, 0.1, outside=True, threshold=0.9, same=lambda i, j: i == j)
    assert (3, 3) not in far
    every = oracle.brute_force_probabilities(lefts, rights, -0.5, 0.5)
    assert oracle.borderline_pairs(every, 0.5) == {(1, 3), (3, 0), (3, 2), (3, 3)}
    assert oracle.kept_pairs(every, 0.5) == kept
    touching = oracle.brute_force_probabilities([Uniform(0.0, 1.0)], [Uniform(1.5, 2.0), Normal(90.0, 1.0)], -0.5, 0.5)
    assert isinstance(touching[0, 0], Fraction)
    assert oracle.borderline_pairs(touching, None) == {(0, 1)}
    assert oracle.kept_pairs(touching, None) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_random_values_are_sound(kind):
    rng = np.random.default_rng(3)
    for nasty in (False, True):
        for _ in range(50):
            a = oracle.random_value(rng, kind, nasty=nasty)
            if isinstance(a, Hist):
                assert all(u < v for u, v in itertools.pairwise(a.edges))
            weights = getattr(a, "probs", None) or getattr(a, "weights", None)
            assert weights is None or abs(sum(weights) - 1) < 1e-9
    with pytest.raises(ValueError, match="unknown kind"):
        oracle.random_value(rng, "triangular")


def test_oracle_is_independent():
    """An oracle that imports the package it judges proves nothing."""
    for name in ("oracle.py", "goldens.py"):
        tree = ast.parse((Path(__file__).parent / name).read_text())
        imported = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        imported |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        assert not imported & {"haply", "scipy"}
