"""Every golden value of the design notes, to 1e-12."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mpf

import goldens
from engine import model_of
from haply.numerics.normal import normal_quantile
from haply.probability import Region, difference_cdf, equal_within, greater, less, region_probability
from haply.pruning.bounds import one_dimensional as bounds
from haply.pruning.candidates.curve import best_inside


def number(value: object) -> float:
    return float(mpf(str(value))) if isinstance(value, str) else float(value)  # type: ignore[arg-type]


def close(found: np.ndarray, wanted: object) -> bool:
    return abs(float(found[0]) - number(wanted)) <= 1e-12


def ids(table: list[tuple]) -> list[str]:
    return [row[0] for row in table]


@pytest.mark.parametrize("row", goldens.EQUAL_WITHIN, ids=ids(goldens.EQUAL_WITHIN))
def test_equal_within(row):
    _, a, b, within, wanted = row
    assert close(equal_within(model_of([a]), model_of([b]), float(within)), wanted)
    assert close(equal_within(model_of([b]), model_of([a]), float(within)), wanted)


@pytest.mark.parametrize("row", goldens.GREATER, ids=ids(goldens.GREATER))
def test_greater(row):
    _, a, b, wanted = row
    assert close(greater(model_of([a]), model_of([b])), wanted)
    assert close(less(model_of([b]), model_of([a])), wanted)


@pytest.mark.parametrize("row", goldens.LESS, ids=ids(goldens.LESS))
def test_less(row):
    _, a, b, wanted = row
    assert close(less(model_of([a]), model_of([b])), wanted)


@pytest.mark.parametrize("row", goldens.GREATER_EQUAL, ids=ids(goldens.GREATER_EQUAL))
def test_greater_or_equal(row):
    _, a, b, wanted = row
    assert close(difference_cdf(model_of([b]), model_of([a]), 0.0), wanted)


@pytest.mark.parametrize("row", goldens.BAND, ids=ids(goldens.BAND))
def test_band(row):
    _, a, b, low, high, wanted = row
    assert close(region_probability(model_of([a]), model_of([b]), Region(float(low), float(high))), wanted)


@pytest.mark.parametrize("row", goldens.OUTSIDE, ids=ids(goldens.OUTSIDE))
def test_outside(row):
    _, a, b, beyond, wanted = row
    region = Region(-float(beyond), float(beyond), outside=True)
    assert close(region_probability(model_of([a]), model_of([b]), region), wanted)


@pytest.mark.parametrize("row", goldens.CDF, ids=ids(goldens.CDF))
def test_cdf(row):
    _, a, x, wanted = row
    assert close(model_of([a]).cdf(float(x)), wanted)


@pytest.mark.parametrize("row", goldens.QUANTILE, ids=ids(goldens.QUANTILE))
def test_quantile(row):
    _, a, level, wanted = row
    assert close(model_of([a]).quantile(float(level)), wanted)


def test_equality_bounds_g17():
    """T1' of the uniform pair, and the masses it is made of."""
    from haply.models import Uniform

    a, b = Uniform(0, 5), Uniform(3, 13)
    sides = bounds.facts(a, 2.0, False), bounds.facts(b, 2.0, False)
    assert abs(a.cdf(14.0)[0] - a.cdf(2.0)[0] - 0.6) < 1e-12
    assert abs(b.cdf(6.0)[0] - b.cdf(-1.0)[0] - 0.3) < 1e-12
    found = bounds.concentration_bound(a.components, sides[0], 0, b.components, sides[1], 0, -1.0, 1.0)
    assert abs(found - 0.12) < 1e-12


def test_comparison_bounds_g18():
    """The product form of the lower bound."""
    from haply.models import Uniform

    a, b = Uniform(2, 4), Uniform(1.5, 2.7)
    sides = bounds.facts(a, math.inf, False), bounds.facts(b, math.inf, False)
    lower, upper = bounds.tail_bounds(a.components, sides[0], 0, b.components, sides[1], 0, 0.0)
    assert abs(lower - 0.795833333333333333) < 1e-12
    assert lower <= greater(a, b)[0] <= upper


def test_gaussian_formulas_p3_to_p7():
    from haply.models import Gaussian

    table = goldens.GAUSSIAN_FORMULAS
    assert table  # the checks below use the notes' own numbers, listed there
    # P3: the best sd for a mean outside the interval, and the probability there
    best = best_inside(2.0, 0.0, 100.0, 1.0)
    assert abs(best - 0.242163998265849716) < 1e-12
    # P4: the largest sd that can reach the threshold
    for level, wanted in ((0.5, 1.48260221850560186), (0.7, 0.964847341022480738), (0.9, 0.607956831911768946)):
        assert abs(1.0 / normal_quantile(0.5 * (1 + level)) - wanted) < 1e-12
    # P5: Cantelli's factor
    assert abs(math.sqrt(0.3 / 0.7) - 0.654653670707977144) < 1e-12
    # P6: a point of the qualifying region's boundary has exactly the threshold's probability
    mu, sigma = 0.810806307537385275, 1.41297966950543725
    inside = region_probability(Gaussian(mu, sigma), Gaussian(0, 0), Region(-1.0, 2.0))
    assert abs(inside[0] - 0.7) < 1e-12
    # P7: E|X| from the integrated cdf: 2 E max(0 - X, 0) + E X
    x = Gaussian(1.3, 0.7)
    assert abs(2 * x.integrated_cdf(0.0)[0] + 1.3 - 1.31728577203738196) < 1e-12
