"""The functions of every one-dimensional model against the oracle."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp, mpf

import amounts
import oracle
from engine import model_of
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Histogram, Mixture, Samples, TruncatedGaussian, Uniform
from haply.numerics.normal import normal_quantile


def values(kind: str, n: int, nasty: bool, seed: int = 0) -> list:
    rng = np.random.default_rng([oracle.KINDS.index(kind), int(nasty), seed])
    return [oracle.random_value(rng, kind, nasty=nasty) for _ in range(n)]


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("nasty", [False, True], ids=["plain", "nasty"])
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_functions(kind, nasty):
    rows = values(kind, amounts.fewer(2 if kind in ("mixture", "truncated") else 5), nasty)
    model = model_of(rows)
    rng = np.random.default_rng(5)
    scale = 1e-12
    for i, value in enumerate(rows):
        one = model_of([value])
        mean, variance = float(oracle.mean(value)), float(oracle.variance(value))
        spread = max(np.sqrt(variance), 1e-3)
        size = max(1.0, abs(mean), variance)
        assert abs(model.mean()[i] - mean) <= scale * size
        assert abs(model.variance()[i] - variance) <= 1e-11 * size
        low, high = (float(end) for end in oracle.support(value))
        assert (model.support()[0][i], model.support()[1][i]) == (low, high)
        for x in [mean, *rng.normal(mean, 2 * spread, 4), low, high]:
            if not np.isfinite(x):
                continue
            slack = scale + oracle.float_slack(value, oracle.Point(0.0), float(x), float(x))
            assert abs(one.cdf(x)[0] - float(oracle.cdf(value, float(x)))) <= slack
            assert abs(one.cdf_left(x)[0] - float(oracle.cdf_left(value, float(x)))) <= slack
        for level in (1e-6, 0.1, 0.3, 0.5, 0.77, 1 - 1e-6)[:: 1 if amounts.all_cases else 2]:
            width = max(1e-9, float(np.sqrt(variance)))
            for found, wanted in (
                (one.quantile(level)[0], oracle.quantile(value, level)),
                (one.quantile_low(level)[0], oracle.quantile_low(value, level)),
                (one.quantile_high(level)[0], oracle.quantile_high(value, level)),
            ):
                if abs(found - float(wanted)) > 1e-9 * max(1.0, abs(mean), width):
                    # a plateau or an atom at just this level: either side of it is right within rounding
                    assert abs(float(oracle.cdf(value, found)) - level) < 1e-9 or _brackets(value, found, level, wanted)


def _brackets(value: object, found: float, level: float, wanted: object) -> bool:
    """Whether the level falls in the jump of an atom at the found place, from either tail."""
    tails = (level, 1 - level)
    below, upto = float(oracle.cdf_left(value, found)), float(oracle.cdf(value, found))
    return any(below - 1e-9 <= tail <= upto + 1e-9 for tail in tails)


@pytest.mark.parametrize("kind", oracle.KINDS)
def test_tail_quantiles_leave_what_they_promise(kind):
    """At most the level lies below quantile_low and above quantile_high: this is what pruning stands on."""
    rows = values(kind, 20, True, seed=3)
    model = model_of(rows)
    for level in (0.0, 1e-17, 1e-9, 0.05, 0.4, 0.8, 0.999):
        low, high = model.quantile_low(level), model.quantile_high(level)
        for i, value in enumerate(rows):
            step = 8 * np.finfo(float).eps  # the rounding of a position, which row intervals allow for
            if np.isfinite(low[i]):
                place = float(low[i] - step * abs(low[i]))
                assert float(oracle.cdf_left(value, place)) <= level + 1e-13
            if np.isfinite(high[i]):
                place = float(high[i] + step * abs(high[i]))
                assert float(1 - oracle.cdf(value, place)) <= level + 1e-13


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("nasty", [False, True], ids=["plain", "nasty"])
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_concentration_is_an_upper_bound(kind, nasty):
    for value in values(kind, 6, nasty, seed=7):
        for width in (0.0, 0.1, 1.0, 5.0):
            found, least = model_of([value]).concentration(width)[0], oracle.concentration(value, width)
            assert found >= float(least) - 1e-12
            if kind != "mixture" and not nasty:
                assert found <= float(least) + 1e-9  # exact but for mixtures


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_integrated_cdf(kind):
    """E max(x - X, 0) by quadrature of the oracle's cdf."""
    for value in values(kind, 2, False, seed=11):
        mean, sd = float(oracle.mean(value)), float(oracle.variance(value)) ** 0.5
        low = float(oracle.support(value)[0])
        start = low if np.isfinite(low) else mean - 12 * max(sd, 1e-3) - 30
        for x in (mean - sd, mean, mean + 2 * sd + 1.0):
            if x <= start:
                continue
            grid = np.unique(np.clip(np.concatenate([[start, x], _kinks(value)]), start, x))
            area = mpf(0)
            with mp.workdps(30):
                for a, b in pairwise(grid):
                    pieces = list(np.linspace(a, b, 5))
                    area += mp.quad(lambda y: oracle.cdf(value, y), pieces)  # noqa: B023
            assert abs(model_of([value]).integrated_cdf(x)[0] - float(area)) <= 1e-10 * max(1.0, abs(x))


def _kinks(value: object) -> list[float]:
    if isinstance(value, oracle.Hist):
        return [float(edge) for edge in value.edges]
    if isinstance(value, oracle.Discrete):
        return [float(point) for point in value.points]
    if isinstance(value, (oracle.Uniform, oracle.Truncated)):
        return [float(value.lo), float(value.hi)]
    if isinstance(value, oracle.Point):
        return [float(value.v)]
    return []


def test_normal_quantile_is_accurate():
    with mp.workdps(30):
        for p in (1e-300, 1e-17, 1e-5, 0.02, 0.3, 0.5, 0.8, 0.999):
            wanted = mp.findroot(lambda z: mp.log(mp.ncdf(z)) - mp.log(mpf(p)), normal_quantile(p), tol=1e-25)  # noqa: B023
            assert abs(normal_quantile(p) - float(wanted)) <= 2e-15 * max(1.0, abs(float(wanted)))
    assert normal_quantile(0.0) == -np.inf
    assert normal_quantile(1.0) == np.inf


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Uniform(5, 3), "lo > hi"),
        (lambda: Uniform(float("nan"), 3), "lo is NaN or infinite"),
        (lambda: Gaussian(0, -1), "sd < 0"),
        (lambda: Gaussian(float("inf"), 1), "mean is NaN or infinite"),
        (lambda: TruncatedGaussian(0, 1, 2, 1), "lo > hi"),
        (lambda: Mixture([[0.5, 0.4]], [[0, 1]], [[1, 1]]), "weights not summing to 1"),
        (lambda: Mixture([[1.5, -0.5]], [[0, 1]], [[1, 1]]), "weights negative"),
        (lambda: Mixture([[0.5, 0.5]], [[0, 1]], [[1]]), "lengths disagree"),
        (lambda: Mixture([[1.0]], [[0]], [[-1]]), "sds negative"),
        (lambda: Histogram([[0, 1, 1]], [[0.5, 0.5]]), "edges not increasing"),
        (lambda: Histogram([[0, 1]], [[0.5, 0.5]]), "lengths disagree"),
        (lambda: Histogram([[0, 1, 2]], [[0.5, 0.6]]), "probs not summing to 1"),
        (lambda: Samples([[]]), "points is empty"),
        (lambda: Samples([[1, 2, 3]], dim=2), "lengths disagree"),
        (lambda: Samples([[1, 2]], [[0.5, 0.25, 0.25]]), "lengths disagree"),
        (lambda: Certain([1.0, float("nan")]), "values is NaN or infinite"),
    ],
)
def test_bad_rows_are_refused_with_the_reason(make, reason):
    with pytest.raises(HaplyError, match=reason):
        make()


def test_weights_may_miss_one_by_a_millionth():
    model = Mixture([[0.5, 0.5 + 5e-7]], [[0, 0]], [[1, 1]])
    assert abs(model.cdf(100.0)[0] - 1.0) < 1e-15


def test_functions_of_one_dimension_refuse_more():
    with pytest.raises(HaplyError, match="dim = 2"):
        Samples([[1, 2, 3, 4]], dim=2).cdf(0.0)
