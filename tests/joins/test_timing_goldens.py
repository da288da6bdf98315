"""The goldens of the note on PTJoin that are about single pairs and templates, on the package; others are elsewhere.

6, 8, 12 and 14 are in ``test_timing.py``, 9 and 11 in ``pruning/test_timing.py``; 5, 7, 10, 13 and 15 as plain
probabilities in ``probability/test_goldens.py``.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from haply.joins import TimingJoin
from haply.models import Certain, Histogram
from haply.probability import difference_cdf, equal_within
from haply.pruning.bounds.timing.shapes import ShapeList
from haply.pruning.bounds.timing.shifts import super_level

EDGES = {1: (0, 20, 30, 40), 2: (0, 10, 20, 30, 40)}
PROBS = {1: (0.1, 0.3, 0.6), 2: (0.15, 0.3, 0.4, 0.15)}


def phi(number, shift=0.0):
    return Histogram([[edge + shift for edge in EDGES[number]]], [PROBS[number]])


H1, H2, H3 = phi(1, 20), phi(2, 70), phi(1, 170)


def ge(one, other):
    """P(one >= other)."""
    return float(difference_cdf(other, one, 0.0)[0])


def shapes(model):
    found = ShapeList()
    found.number(model, 1)
    return found.shapes


def stimes(u, v, delta, width=40.0, d=1000.0):
    """From the table of two templates with a long window: the last shift that keeps the level ``delta`` to the right is
    stime+ at ``delta``, the first one to the left is stime- at ``1 - delta`` (section 6).
    """
    first, last = super_level(shapes(u), 0, shapes(v), 0, d, delta)
    return first + width + d, last + width - d


def joins(one, other, d, delta):
    """Whether the operator takes the pair, and with which probability."""
    join = TimingJoin(d, delta)
    join.push("left", {"id": [0], "time": one})
    found = join.push("right", {"id": [0], "time": other})
    return float(found.probability[0]) if len(found) else None


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (60, 1), (70, Fraction(797, 800)), (80, Fraction(783, 800)), (85, Fraction(3067, 3200)), (90, Fraction(37, 40)),
        (95, Fraction(2771, 3200)), (98, Fraction("0.8122")), (99, Fraction("0.7912375")), (100, Fraction(123, 160)),
        (105, Fraction(1023, 1600)), (110, Fraction(387, 800)), (120, Fraction(81, 400)), (130, Fraction(9, 200)),
        (140, 0),
    ],
)  # fmt: skip
def test_golden_1_shifted_comparison(x, wanted):
    assert ge(phi(1, 170 - x), H2) == pytest.approx(float(wanted), abs=1e-13)
    # the same by the operator: with a window d far longer than both, only P(H3 - d >= H2 - (d - x)) is open
    d = 200.0
    found = joins(phi(2, 70), phi(1, 170 - x - d), d, 1e-9)
    assert (found or 0.0) == pytest.approx(float(wanted), abs=1e-12)


def test_golden_2_satisfaction_time_and_its_quadratic():
    shift = 170.0
    assert stimes(phi(1), phi(2), 0.8)[1] + shift == pytest.approx(208.5907854728, abs=1e-8)
    y = 168.5907854728
    assert -0.0007625 * y * y + 0.236 * y - 17.315 == pytest.approx(0.8, abs=1e-10)
    for x in (90, 92.5, 97, 99.9):  # one quadratic for 90 <= x < 100, in y = T - 40 with T = x + max(H2)
        y = x + 110 - 40
        assert ge(phi(1, 170 - x), H2) == pytest.approx(-0.0007625 * y * y + 0.236 * y - 17.315, abs=1e-12)


@pytest.mark.parametrize(
    ("delta", "wanted"),
    [
        (0.1, 235.4449945129), (0.2, 230.1114839714), (0.5, 219.5148573096), (0.9, 202.5198159228), (0.925, 200.0),
        (0.95, 196.4649578357),
    ],
)  # fmt: skip
def test_golden_3_satisfaction_times(delta, wanted):
    assert stimes(phi(1), phi(2), delta)[1] + 170.0 == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize(
    ("u", "v", "at_02", "at_08"),
    [
        (1, 1, 48.7695793116, 31.2304206884), (1, 2, 60.1114839714, 38.5907854728),
        (2, 1, 41.4092145272, 19.8885160286), (2, 2, 51.8711424162, 28.1288575838),
    ],
)  # fmt: skip
def test_golden_4_templates(u, v, at_02, at_08):
    left_at_02, right_at_08 = stimes(phi(u), phi(v), 0.8)
    assert left_at_02 == pytest.approx(at_02, abs=1e-8)
    assert right_at_08 == pytest.approx(at_08, abs=1e-8)
    assert right_at_08 - 40 == pytest.approx(-(stimes(phi(v), phi(u), 0.8)[0] - 40), abs=1e-8), "the symmetry"


def test_golden_5_order():
    assert ge(phi(1), phi(2)) == pytest.approx(123 / 160, abs=1e-14)
    assert ge(phi(2), phi(1)) == pytest.approx(37 / 160, abs=1e-14)
    assert (ge(H1, H2), ge(H2, H1)) == (0.0, 1.0)
    for model in (phi(1), phi(2), Histogram([[0, 1, 9, 10]], [[0.5, 0, 0.5]])):
        assert ge(model, model) == pytest.approx(0.5, abs=1e-14)


@pytest.mark.parametrize(
    ("d", "wanted"), [(0, 0), (5, Fraction(29, 128)), (10, Fraction(353, 800)), (20, Fraction(621, 800)), (40, 1)]
)
def test_golden_7_bands(d, wanted):
    assert equal_within(phi(1), phi(2), float(d))[0] == pytest.approx(float(wanted), abs=1e-13)
    assert (joins(phi(1), phi(2), d, 1e-9) or 0.0) == pytest.approx(float(wanted), abs=1e-13)


def test_golden_10_a_plateau():
    """H_i + x >= H_j stays at 1/2 for a while, so that the level 1/2 is kept up to 10 and undercut after 2."""
    gap, one = Histogram([[0, 1, 10, 11]], [[0.5, 0, 0.5]]), Histogram([[3, 4]], [[1.0]])
    for x, wanted in ((-7, 0.25), (-6, 0.5), (-2, 0.5), (2, 0.5), (3, 0.75), (4, 1.0)):
        moved = Histogram([[0 + x, 1 + x, 10 + x, 11 + x]], [[0.5, 0, 0.5]])
        assert ge(moved, one) == pytest.approx(wanted, abs=1e-14)
    # T = max(H_j) - x: on the plateau T goes from 2 to 10; a hair above or below the level is on one of its ends
    below, above = (stimes(gap, one, level, width=11.0)[1] for level in (0.5 - 1e-9, 0.5 + 1e-9))
    assert (below, above) == pytest.approx((10.0, 2.0), abs=1e-3)
    for shift, taken in ((10.0, True), (10.1, False), (2.0, True)):  # of H_j's latest time, with a window of 100
        d = 100.0
        moved = Histogram([[shift - 1.0 + d, shift + d]], [[1.0]])
        assert (joins(gap, moved, d, 0.5) is not None) == taken, shift


def test_golden_13_points():
    five, ten = Certain([5.0]), Histogram([[0, 10]], [[1.0]])
    assert (ge(five, five), ge(five, ten)) == (1.0, 0.5)
    assert joins(five, Certain([5.0]), 0, 0.5) == 1.0
    assert joins(five, ten, 2, 0.1) == pytest.approx(0.4, abs=1e-14)
    assert joins(five, ten, 2, 0.4) == pytest.approx(0.4, abs=1e-14)
    assert joins(five, ten, 2, math.nextafter(0.4, 1) + 1e-9) is None


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [((0, 2), (1, 3), 1 / 8), ((0, 4), (1, 3), 1 / 2), ((1, 3), (0, 2), 7 / 8), ((1, 2), (0, 4), 3 / 8)],
)
def test_golden_15_cases_of_two_buckets(one, other, wanted):
    i, j = Histogram([one], [[1.0]]), Histogram([other], [[1.0]])
    assert ge(i, j) == pytest.approx(wanted, abs=1e-15)
    # as a pair whose other side of the window is sure
    d = 50.0
    found = joins(Histogram([[one[0] - d, one[1] - d]], [[1.0]]), j, d, 1e-9)
    assert found == pytest.approx(wanted, abs=1e-14)
