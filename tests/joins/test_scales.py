"""Joins and selections do not depend on the unit: the same pairs and rows from 1e-300 to 1e300."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from haply.errors import HaplyError
from haply.joins.operators.pair import STRATEGIES, PairJoin
from haply.joins.operators.position import PositionJoin, join_positions
from haply.joins.operators.similarity import SimilarityJoin
from haply.joins.operators.timing import TimingJoin
from haply.models import (
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.probability import Difference, Region
from haply.probability.exact import PairProbability
from haply.pruning.bounds.one_dimensional import CURVE
from haply.pruning.candidates.curve import gaussian_verdicts
from haply.pruning.threshold import Threshold
from haply.selection.conditions import Apart, Polynomial, Range, RowValues
from haply.selection.select import Selection

SCALES = [2.0**power for power in (-990, -540, -480, 480, 512, 990)]
N = 40


def _columns(seed):
    rng = np.random.default_rng(seed)
    mean, sd, low, width = rng.normal(0, 3, N), rng.uniform(0.05, 1.5, N), rng.normal(0, 3, N), rng.uniform(0.1, 3, N)
    weights, means, sds = rng.dirichlet(np.ones(2), N), rng.normal(0, 3, (N, 2)), rng.uniform(0.05, 1, (N, 2))
    edges, probs = np.cumsum(rng.uniform(0.1, 1, (N, 4)), axis=1) + low[:, None], rng.dirichlet(np.ones(3), N)
    points = rng.normal(0, 2, (N, 6))
    return {
        "gaussian": lambda s: Gaussian(mean * s, sd * s),
        "uniform": lambda s: Uniform(low * s, (low + width) * s),
        "mixture": lambda s: Mixture(weights, means * np.reshape(s, (-1, 1)), sds * np.reshape(s, (-1, 1))),
        "histogram": lambda s: Histogram(edges * np.reshape(s, (-1, 1)), probs),
        "samples": lambda s: Samples(points * np.reshape(s, (-1, 1))),
        "truncated": lambda s: TruncatedGaussian(mean * s, sd * s, (mean - sd) * s, (mean + 2 * sd) * s),
        "certain": lambda s: Certain(mean * s),
    }


LEFT, RIGHT = _columns(1), _columns(2)
KINDS = [
    ("gaussian", "gaussian"), ("uniform", "uniform"), ("gaussian", "mixture"), ("histogram", "truncated"),
    ("samples", "samples"), ("certain", "gaussian"),
]  # fmt: skip
REGIONS = [
    lambda s: Region(-0.8 * s, 0.8 * s),
    lambda s: Region(0.3 * s, math.inf, low_closed=False),
    lambda s: Region(-1.2 * s, 1.2 * s, outside=True),
]


def _sorted(left, right, probability):
    order = np.lexsort((right, left))
    return left[order], right[order], probability[order]


def _joined(left, right, region, strategy, exact):
    join = PairJoin(Difference("x", "x", region), 0.4, strategy=strategy, exact=exact)
    join.push("left", {"id": np.arange(len(left)), "x": left})
    found = join.push("right", {"id": np.arange(len(right)), "x": right})
    return _sorted(found.left, found.right, found.probability)


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kinds", KINDS)
def test_difference_joins_find_the_same_pairs_at_every_scale(kinds, strategy):
    left, right = LEFT[kinds[0]], RIGHT[kinds[1]]
    for region, exact in product(REGIONS, (True, False)):
        wanted = _joined(left(1.0), right(1.0), region(1.0), strategy, exact)
        assert len(wanted[0])
        for s in SCALES:
            found = _joined(left(s), right(s), region(s), strategy, exact)
            assert np.array_equal(found[0], wanted[0])
            assert np.array_equal(found[1], wanted[1])
            if exact:
                assert found[2] == pytest.approx(wanted[2], abs=1e-12)


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kinds", [("gaussian", "gaussian"), ("uniform", "uniform"), ("gaussian", "mixture")])
def test_rows_of_all_scales_in_one_join(kinds, strategy):
    """Against the exact value of every pair, which ``tests/probability/test_scales.py`` is about."""
    s = np.array([2.0**power for power in (-990, -540, 0, 540, 990)])[np.arange(N) % 5]
    left, right = LEFT[kinds[0]](s), RIGHT[kinds[1]](s)
    for unit, exact in product((2.0**-990, 1.0, 2.0**540), (True, False)):
        for make in REGIONS:
            region = make(unit)
            found = _joined(left, right, region, strategy, exact)
            i, j = (grid.ravel().astype(np.int32) for grid in np.meshgrid(np.arange(N), np.arange(N), indexing="ij"))
            kept = Threshold(0.4).keep(PairProbability(left, right, region).evaluate(i, j), counts=False)
            assert np.array_equal(found[0], i[kept])
            assert np.array_equal(found[1], j[kept])


def test_a_wide_row_beside_a_narrow_region_is_not_looked_up_outside_the_table():
    """An sd of more table cells than an integer counts made a negative place, and whatever was there decided."""
    one, none = np.zeros(1, np.int32), np.zeros(1)
    for sd in (1e12, 1e300):
        parameters = (none, np.array([sd]), none, np.array([1e-12]))
        assert gaussian_verdicts(parameters, one, one, Region(-1e-11, 1e-11), 0.4, 0.41, True).tolist() == [-CURVE]


def _positions(dim, seed):
    rng = np.random.default_rng(seed)
    mean, root = rng.normal(0, 2, (N, dim)), 0.5 * rng.normal(size=(N, dim, dim))
    cov = root @ root.transpose(0, 2, 1)
    points = rng.normal(0, 2, (N, 5, dim))
    return (lambda s: GaussianND(mean * s, cov * s * s)), (lambda s: Samples(points * s, dim=dim))


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("probability", ["exact", "none"])
def test_position_joins_find_the_same_pairs_at_every_scale(dim, probability):
    (gaussian, points), (other, clouds) = _positions(dim, 1), _positions(dim, 2)
    cases = [(gaussian, other, (-500, -300, 300, 505)), (gaussian, clouds, (-500, 505)), (points, clouds, (-990, 990))]
    if dim == 1:
        cases.append((LEFT["gaussian"], RIGHT["mixture"], (-990, -540, 540, 990)))
    for left, right, powers in cases:
        base = join_positions(left(1.0), right(1.0), 1.3 * dim, 0.3, probability=probability)
        wanted = _sorted(base.left, base.right, base.probability)
        assert len(wanted[0])
        for s in (2.0**power for power in powers):
            again = join_positions(left(s), right(s), 1.3 * dim * s, 0.3, probability=probability)
            found = _sorted(again.left, again.right, again.probability)
            assert np.array_equal(found[0], wanted[0])
            assert np.array_equal(found[1], wanted[1])
            assert found[2] == pytest.approx(wanted[2], abs=1e-12, nan_ok=True)
            join = PositionJoin(1.3 * dim * s, 0.3, probability=probability)
            join.push("left", {"id": np.arange(N), "pos": left(s)})
            pushed = join.push("right", {"id": np.arange(N), "pos": right(s)})
            assert np.array_equal(_sorted(pushed.left, pushed.right, pushed.probability)[0], wanted[0])


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("rules", ["auto", "grid", "moments", "core"])
def test_similarity_joins_find_the_same_pairs_at_every_scale(dim, rules):
    (_, points), (_, others) = _positions(dim, 3), _positions(dim, 4)

    def pairs(s):
        join = SimilarityJoin(1.3 * dim * s, 0.3, dim=dim, rules=rules if rules == "auto" else [rules])
        join.push("left", {"id": np.arange(N), "pos": points(s)})
        join = SimilarityJoin.restore(join.snapshot())
        found = join.push("right", {"id": np.arange(N), "pos": others(s)})
        return _sorted(found.left, found.right, found.probability)

    wanted = pairs(1.0)
    assert len(wanted[0])
    for s in SCALES:
        found = pairs(s)
        assert all(np.array_equal(one, other) for one, other in zip(found[:2], wanted[:2], strict=True))
        assert found[2] == pytest.approx(wanted[2], abs=0.0, nan_ok=True)


@pytest.mark.parametrize("rules", ["auto", "shell", "moments"])
def test_an_infinite_distance_keeps_every_pair(rules):
    """The slack was infinite as well, and what is infinite less infinite was the place in a table."""
    (_, points), (_, others) = _positions(3, 3), _positions(3, 4)
    for threshold in (0.3, 1.0, None):
        join = SimilarityJoin(math.inf, threshold, dim=3, rules=rules if rules == "auto" else [rules])
        join.push("left", {"id": np.arange(N), "pos": points(1.0)})
        assert len(join.push("right", {"id": np.arange(N), "pos": others(1.0)})) == N * N


def test_positions_that_no_distance_compares_are_refused():
    far = Samples([[[1e300, 0.0]]], dim=2)
    with pytest.raises(HaplyError, match="cannot be compared"):
        SimilarityJoin(1e-300, 0.5, dim=2).push("left", {"id": [1], "pos": far})
    with pytest.raises(HaplyError, match="cannot be compared"):
        SimilarityJoin(0.0, 0.5, dim=1).push("left", {"id": [1], "pos": Certain(1e-200)})
    with pytest.raises(HaplyError, match="too large for the distance"):
        join_positions(far, far, 1e-300, 0.5)


def test_timing_joins_find_the_same_pairs_at_every_scale():
    rng = np.random.default_rng(5)
    at, edges, probs = rng.uniform(0, 40, (2, N)), np.array([0.0, 1.0, 2.5, 4.0]), np.array([0.2, 0.5, 0.3])

    def pairs(s):
        join = TimingJoin(window=2.0 * s, threshold=0.3)
        for side, times in zip(("left", "right"), at, strict=True):
            time = Histogram((np.round(times)[:, None] + edges) * s, np.tile(probs, (N, 1)))
            found = join.push(side, {"id": np.arange(N), "time": time})
        return _sorted(found.left, found.right, found.probability)

    wanted = pairs(1.0)
    assert len(wanted[0])
    for s in SCALES:
        if s > 2.0**53:  # beyond which no operator takes times
            with pytest.raises(HaplyError, match="too large to be exact"):
                pairs(s)
            continue
        found = pairs(s)
        assert np.array_equal(found[0], wanted[0])
        assert np.array_equal(found[1], wanted[1])
        assert found[2] == pytest.approx(wanted[2], abs=1e-9)


X, Y = ("x", None), ("y", None)


def _selected(conditions, values, numbers, kinds, planning="per_row", exact=True):
    selection = Selection.of([conditions], kinds, Threshold(0.2), planning, exact)
    found = selection.select(RowValues(values, numbers, N))
    return found.rows, found.probability


SELECTIONS = {
    "sum": [Polynomial(((X, 1.0), (Y, -2.0)), (), (Range("low", "high"),))],
    "two sums": [
        Polynomial(((X, 1.0), (Y, 1.0)), (), (Range(-math.inf, "high"),)),
        Polynomial(((X, 1.0), (Y, -1.0)), (), (Range("low", math.inf),)),
    ],
    "squares": [Polynomial((), ((X, X, 1.0), (Y, Y, 0.5)), (Range(-math.inf, "square"),))],
    "product": [Polynomial((), ((X, Y, 1.0),), (Range(0.0, math.inf),))],
    "one value": [Polynomial((), ((X, X, 1.0),), (Range(-math.inf, "square"),))],
    "with a slope": [
        Polynomial(((X, "length"),), ((X, X, 1.0),), (Range(-math.inf, "square"),))
    ],
    "tied": [
        Polynomial((), ((X, X, 1.0), (Y, Y, 1.0)), (Range(-math.inf, "square"),)),
        Polynomial(((X, 1.0), (Y, 1.0)), (), (Range("low", math.inf),)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_selections_keep_the_same_rows_at_every_scale(name, kind):
    """Each row has a scale of its own; squares are given as far as doubles hold them."""
    squares = any(condition.squares for condition in SELECTIONS[name])
    every = [2.0**power for power in ((-530, -505, 0, 300, 505) if squares else (-990, -540, 0, 540, 990))]
    kinds = dict.fromkeys(("x", "y"), {"gaussian": Gaussian, "mixture": Mixture}[kind])
    exact = name != "two sums"

    def rows(s):
        numbers = {"low": -1.0 * s, "high": 2.0 * s, "length": 0.5 * s, "square": 6.0 * s * s if squares else s}
        return _selected(SELECTIONS[name], {"x": LEFT[kind](s), "y": RIGHT[kind](s)}, numbers, kinds, exact=exact)

    wanted = rows(np.ones(N))
    assert 0 < len(wanted[0]) < N
    for s in (*(np.full(N, one) for one in every), np.array(every)[np.arange(N) % len(every)]):
        found = rows(s)
        assert np.array_equal(found[0], wanted[0])
        assert found[1] == pytest.approx(wanted[1], abs=1e-9, nan_ok=True)


def test_selections_by_distance_keep_the_same_rows_at_every_scale():
    (gaussian, _), (other, _) = _positions(2, 6), _positions(2, 7)
    kinds = {"x": GaussianND, "y": GaussianND}
    asked = [Apart("x", "y", "reach")]

    def rows(s):
        return _selected(asked, {"x": gaussian(s), "y": other(s)}, {"reach": np.full(N, 2.0 * s)}, kinds, exact=False)

    wanted = rows(1.0)
    for s in (2.0**power for power in (-500, -300, 300, 505)):
        assert np.array_equal(rows(s)[0], wanted[0])


def test_columns_that_no_row_holds_together_are_refused():
    asked = [Polynomial(((X, 1.0), (Y, 1.0)), (), (Range(-math.inf, 0.0),))]
    values = {"x": Gaussian(np.ones(N), 1e150), "y": Gaussian(np.full(N, 1e-150), 1e-150)}
    with pytest.raises(HaplyError, match="orders of magnitude"):
        _selected(asked, values, {}, {"x": Gaussian, "y": Gaussian})
