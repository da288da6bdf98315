"""Sums of many values of any laws: against fractions, and against Fourier series."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from haply.errors import HaplyError
from haply.models import (
    Asymmetric,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.selection.conditions import Polynomial, Range, RowValues
from haply.selection.grouping import group_of

INF = float("inf")


def chance(models, factors, low, high, **closed):
    """The probability that the sum lies in a range, and how it was computed; a component is a name and an index."""
    linear = tuple((name if isinstance(name, tuple) else (name, None), factor) for name, factor in factors.items())
    condition = Polynomial(linear, (), (Range(low, high, **closed),), "the sum")
    group = group_of((condition,), {name: type(model) for name, model in models.items()})
    found, _ = group.prepare(RowValues(models, {}, 1)).exact()
    return float(found[0]), group.method


# -- uniform values: the exact formula, in fractions -------------------------------------------------------------------


def corners(widths, x):
    """``P(u_1 + ... + u_n <= x)`` of uniform values from 0 to some widths, by inclusion and exclusion."""
    total = Fraction(0)
    for count in range(len(widths) + 1):
        for chosen in itertools.combinations(widths, count):
            rest = x - sum(chosen, Fraction(0))
            total += (-1) ** count * max(rest, Fraction(0)) ** len(widths)
    return total / math.factorial(len(widths)) / math.prod(widths)


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("seed", range(60))
def test_sums_of_uniform_values_are_those_of_fractions(seed):
    """Also where their widths differ by orders of magnitude."""
    random = np.random.default_rng(seed)
    count = int(random.integers(4, 10))
    lows = random.integers(-8, 9, count) / 4
    widths = random.choice([2.0**-20, 0.125, 0.75, 1.0, 1.0, 3.0, 40.0], count)
    factors = random.choice([-1.0, 1.0, 0.5, 2.0], count)
    names = [f"u{k}" for k in range(count)]
    models = {name: Uniform([low], [low + width]) for name, low, width in zip(names, lows, widths, strict=True)}
    scaled = [abs(Fraction(f)) * Fraction(w) for f, w in zip(factors, widths, strict=True)]
    least = sum(
        min(Fraction(f) * Fraction(low), Fraction(f) * (Fraction(low) + Fraction(w)))
        for f, low, w in zip(factors, lows, widths, strict=True)
    )
    for share in (0.02, 0.3, 0.5, 0.9):
        limit = float(least + Fraction(share) * sum(scaled))
        found, method = chance(models, dict(zip(names, factors, strict=True)), -INF, limit)
        assert method == "sum"
        assert found == pytest.approx(float(corners(scaled, Fraction(limit) - least)), abs=1e-12)


# -- any laws: densities as Fourier series -----------------------------------------------------------------------------

NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
REACH = 9.5


def pieces(kind, random):
    """A model, and its pieces: weight, from, to, and the mean and deviation of a normal cut to that, or None."""
    place, width = random.normal(0, 0.7), random.uniform(0.3, 1.2)
    if kind == "uniform":
        return Uniform([place - width], [place + width]), [(1.0, place - width, place + width, None)]
    if kind == "samples":
        points = np.round(random.normal(0, 1, 3), 2)
        return Samples(points[None]), [(1 / 3, point, point, None) for point in points]
    if kind == "histogram":
        edges, shares = np.sort(random.normal(0, 1, 4)), [0.2, 0.5, 0.3]
        return Histogram([edges], [shares]), list(zip(shares, edges[:-1], edges[1:], [None] * 3, strict=True))
    if kind == "truncated":
        low, high = place - width, place + 0.5 * width
        return TruncatedGaussian([place], [width], [low], [high]), [(1.0, low, high, (place, width))]
    if kind == "gaussian":
        return Gaussian([place], [width]), [(1.0, place - REACH * width, place + REACH * width, (place, width))]
    if kind == "mixture":
        both = [(0.3, place, width), (0.7, place + 1, width / 3)]
        model = Mixture([[0.3, 0.7]], [[place, place + 1]], [[width, width / 3]])
        return model, [(w, m - REACH * s, m + REACH * s, (m, s)) for w, m, s in both]
    below, above = (1 / 3, place - REACH * width, place, (place, width)), 2 * width
    return Asymmetric([place], [width], [above]), [below, (2 / 3, place, place + REACH * above, (place, above))]


def waves(parts, factor, speeds, length):
    """``E exp(i speed factor X)`` for each speed."""
    total = np.zeros(len(speeds), complex)
    for weight, low, high, normal in parts:
        if low == high:
            total += weight * np.exp(1j * speeds * factor * low)
            continue
        count = int(len(speeds) * abs(factor) * (high - low) / length / 5) + 8
        edges = np.linspace(low, high, count + 1)
        half = 0.5 * (high - low) / count
        x = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * NODES).ravel()
        density = np.full(len(x), 1 / (high - low))
        if normal is not None:
            mean, sd = normal
            inside = 0.5 * sum(s * math.erf((end - mean) / sd / math.sqrt(2)) for s, end in ((1, high), (-1, low)))
            density = np.exp(-0.5 * ((x - mean) / sd) ** 2) / sd / math.sqrt(2 * math.pi) / inside
        mass = weight * density * np.tile(WEIGHTS * half, count)
        for k in range(0, len(speeds), 500):
            total[k : k + 500] += np.exp(1j * np.outer(speeds[k : k + 500], factor * x)) @ mass
    return total


def series(laws, factors, limits, count=1200):
    """``P(sum <= limit)``: what goes nowhere beyond a length is periodic, and its coefficients are known."""
    ends = [
        (min(f * p[k] for p in parts for k in (1, 2)), max(f * p[k] for p in parts for k in (1, 2)))
        for parts, f in zip(laws, factors, strict=True)
    ]
    low, high = sum(end[0] for end in ends), sum(end[1] for end in ends)
    length = 1.01 * (high - low)
    speeds, begin = 2 * np.pi * np.arange(1, count + 1) / length, low - 0.005 * (high - low)
    product = np.prod([waves(parts, f, speeds, length) for parts, f in zip(laws, factors, strict=True)], axis=0)

    def up_to(x):
        away = (np.exp(-1j * speeds * x) - np.exp(-1j * speeds * begin)) / (-1j * speeds)
        return (x - begin) / length + 2 / length * float((product * away).sum().real)

    return [up_to(x) for x in limits]


SMOOTH = ("uniform", "histogram", "truncated", "gaussian", "mixture", "asymmetric")


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("seed", range(60))
def test_sums_of_any_laws_are_those_of_fourier_series(seed):
    random = np.random.default_rng(seed)
    kinds = [*random.choice(SMOOTH, int(random.integers(4, 6))), *(["samples"] * int(random.integers(0, 3)))]
    kinds[0] = "uniform"  # normals and mixtures of them alone are boxes
    names = [f"x{k}" for k in range(len(kinds))]
    models, laws = zip(*(pieces(kind, random) for kind in kinds), strict=True)
    factors = random.choice([-1.0, 1.0, 0.5, 2.0], len(kinds)).tolist()
    low, high = sorted(random.normal(0, 2, 2))
    found, method = chance(dict(zip(names, models, strict=True)), dict(zip(names, factors, strict=True)), low, high)
    below, up_to = series(laws, factors, (low, high))
    assert method == "sum"
    assert found == pytest.approx(up_to - below, abs=1e-10)


def test_components_of_points_are_normal_values():
    """Two of one point are not independent of each other."""
    point = GaussianND([[0.5, -0.2]], [[[0.64, 0.24], [0.24, 0.25]]])
    models = {"p": point, "u": Uniform([0.0], [1.0]), "v": Uniform([0.0], [2.0]), "w": Uniform([-1.0], [0.0])}
    factors = {("p", 0): 1.0, ("p", 1): 2.0, "u": 1.0, "v": -1.0, "w": 1.0}
    alone = {"n": Gaussian([0.1], [math.sqrt(0.64 + 4 * 0.25 + 4 * 0.24)])} | models
    found, method = chance(models, factors, -INF, 0.3)
    wanted, _ = chance(alone, {"n": 1.0, "u": 1.0, "v": -1.0, "w": 1.0}, -INF, 0.3)
    assert method == "sum"
    assert found == pytest.approx(wanted, abs=1e-13)


def test_ends_count_where_values_are_points():
    """Uniform values of no width are numbers: their sum is 3 for certain."""
    models = {name: Uniform([value], [value]) for name, value in zip("abcd", (0.5, 1.0, 1.25, 0.25), strict=True)}
    factors = dict.fromkeys("abcd", 1.0)
    assert chance(models, factors, -INF, 3.0) == (1.0, "sum")
    assert chance(models, factors, -INF, 3.0, high_closed=False)[0] == 0.0
    assert chance(models, factors, 3.0, INF)[0] == 1.0
    assert chance(models, factors, 3.0, INF, low_closed=False)[0] == 0.0


def test_sums_of_too_many_pieces_are_refused():
    wide = Histogram([np.linspace(0, 1, 200) ** 1.7], [np.full(199, 1 / 199)])
    with pytest.raises(HaplyError, match=r"too many pieces.*8,192 at most"):
        chance(dict.fromkeys("abcdef", wide), dict.fromkeys("abcdef", 1.0), -INF, 3.0)


# -- combinations of many values ---------------------------------------------------------------------------------------


def test_means_over_lattices_are_near_the_value():
    """``(u - a) (v - b) < 0 and (w - c) (t - d) < 0``, in a sum that never matters: a product of four corners."""
    names = "uvwt"
    models = {name: Uniform([-1.0], [1.0]) for name in names}

    def corner(one, other, a, b):
        squares = (((one, None), (other, None), 1.0),)
        return Polynomial((((one, None), -b), ((other, None), -a)), squares, (Range(-INF, -a * b),), "corners")

    whole = Polynomial(tuple(((name, None), 1.0) for name in names), (), (Range(-5.0, INF),), "always")
    asked = (corner("u", "v", 0.5, 0.0), corner("w", "t", -0.2, 0.4), whole)
    group = group_of(asked, dict.fromkeys(names, Uniform))
    assert group.method == "lattice"
    assert group.error == 1e-3
    found, counted = group.prepare(RowValues(models, {}, 1)).exact()
    opposite = 0.5, 0.4 * 0.3 + 0.6 * 0.7
    assert not counted
    assert found[0] == pytest.approx(opposite[0] * opposite[1], abs=group.error / 10)
