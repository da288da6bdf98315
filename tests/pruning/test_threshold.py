"""The threshold's edge: one number says which probabilities are kept, and no bound decides against it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from haply.joins import PairJoin, SimilarityJoin, TimingJoin, join_positions
from haply.models import Gaussian, GaussianND, Samples, Uniform
from haply.probability import Difference, Region, equal_within, within_distance
from haply.pruning.threshold import TOLERANCE, Pairing, Threshold

LEVELS = (None, 1e-300, 1e-13, 1e-12, 1.5e-12, 0.1, 0.3, 0.5, 2 / 3, 0.9, 1.0 - 1e-13, 1.0)
EVERY = [Threshold(level, strict) for level in LEVELS for strict in (False, True)]


def around(level: float) -> np.ndarray:
    """Probabilities at the edge, one double beside it, some tolerances away, and anywhere."""
    steps = np.array([level, level - TOLERANCE, level + TOLERANCE, level - 3 * TOLERANCE, level + 3 * TOLERANCE])
    near = np.concatenate([steps, np.nextafter(steps, -1.0), np.nextafter(steps, 2.0), [0.0, 5e-324, 1.0]])
    rng = np.random.default_rng(1)
    return np.clip(np.concatenate([near, level + rng.normal(0.0, 2e-12, 200), rng.uniform(0.0, 1.0, 200)]), 0.0, 1.0)


def is_kept(threshold: Threshold, probability: float, counts: bool) -> bool:
    """The rule in exact arithmetic, but for the sum of threshold and tolerance, which is a double."""
    if threshold.value is None:
        return probability > 0.0
    slack = 0.0 if counts else TOLERANCE
    if threshold.strict:
        return Fraction(probability) > Fraction(threshold.value + slack)
    return probability > 0.0 and Fraction(probability) >= Fraction(threshold.value - slack)


@pytest.mark.parametrize("threshold", EVERY, ids=str)
@pytest.mark.parametrize("counts", [False, True])
def test_the_edge_is_one_number(threshold: Threshold, counts: bool) -> None:
    values = around(threshold.value or 0.0)
    kept = threshold.keep(values, counts)
    assert kept.tolist() == [is_kept(threshold, value, counts) for value in values.tolist()]
    edge = threshold.keeps_from(counts)
    assert kept.tolist() == (values >= edge).tolist()
    assert edge > 0.0
    assert is_kept(threshold, edge, counts)
    assert not is_kept(threshold, math.nextafter(edge, -1.0), counts)


@pytest.mark.parametrize("threshold", EVERY, ids=str)
def test_bounds_that_are_a_tolerance_off_decide_as_values_do(threshold: Threshold) -> None:
    """Whatever rounding makes of a bound and of a value, by up to half a tolerance each."""
    for value in around(threshold.value or 0.0).tolist():
        for off in (-0.5 * TOLERANCE, 0.0, 0.5 * TOLERANCE):
            if value + off <= threshold.reject_below and threshold.reject_below > 0.0:  # no bound is below 0
                assert not is_kept(threshold, value, False)
            if value + off >= threshold.accept_from and threshold.attainable and value > 0.0:
                assert is_kept(threshold, value, False)
    assert threshold.reject_below <= threshold.keeps_from()
    assert threshold.attainable == (threshold.keeps_from() <= 1.0)
    for pairing in Pairing:
        assert 0.0 <= threshold.core_level(pairing) < 1.0
        assert 0.0 < threshold.sure_level(False, pairing) < 1.0


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_all_operators_have_the_same_edge(strict: bool, exact: bool) -> None:
    """The threshold is the probability of a pair itself, or beside it: each operator keeps it as ``keep`` says."""
    rng = np.random.default_rng(7)
    probability = "exact" if exact else "none"
    for _ in range(12):
        ends, sd = np.sort(rng.uniform(0.0, 3.0, 4)), rng.uniform(0.3, 1.0, 2)
        uniform = Uniform([ends[0]], [ends[2]]), Uniform([ends[1]], [ends[3]])
        normal = Gaussian([ends[0]], [sd[0]]), Gaussian([ends[1]], [sd[1]])
        solid = [GaussianND([[float(one.values["mean"][0]), 0.0]], [[one.sd[0] ** 2, 0.0, 0.0, 0.2]]) for one in normal]
        clouds = [Samples([rng.integers(0, 4, 5).tolist()]) for _ in range(2)]
        near = float(equal_within(*clouds, 1.0)[0])
        for off in (-3.0, -0.9, 0.0, 0.9, 3.0):

            def level(value: float, off: float = off) -> float:
                return min(1.0, max(1e-6, value + off * TOLERANCE))

            def check(kept: int, value: float, level: float, counts: bool = False) -> None:
                rounding = 1e-13  # operators and references round differently
                threshold = Threshold(level, strict)
                if abs(value - threshold.keeps_from(counts)) > (0.0 if counts else rounding):
                    assert kept == threshold.keep(np.array([value]), counts)[0]

            for one, other in (uniform, normal):
                value = float(equal_within(one, other, 0.75)[0])
                pair = PairJoin(Difference("x", "x", Region(-0.75, 0.75)), level(value), strict=strict, exact=exact)
                pair.push("left", {"id": [1], "x": one})
                check(len(pair.push("right", {"id": [2], "x": other}).left), value, level(value))
                timing = TimingJoin(0.75, level(value), strict=strict, probability=probability, max_delay=9.0)
                timing.push("left", {"id": [1], "time": one})
                check(len(timing.push("right", {"id": [2], "time": other})), value, level(value))
            value = float(within_distance(*solid, 1.0)[0])
            found = join_positions(*solid, 1.0, level(value), strict=strict, probability=probability)
            check(len(found.left), value, level(value))
            if near > 0.0:
                cloud = SimilarityJoin(1.0, level(near), dim=1, strict=strict, probability=probability)
                cloud.push("left", {"id": [1], "pos": clouds[0]})
                check(len(cloud.push("right", {"id": [2], "pos": clouds[1]})), near, level(near), counts=True)
