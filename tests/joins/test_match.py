"""Whole joins without Spark against brute force: no pair missed, none doubled, probabilities exact."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from amounts import fewer
from engine import model_of
from haply.errors import HaplyError
from haply.joins import PairJoin
from haply.joins.match import match_all
from haply.models import Gaussian, Samples, Uniform
from haply.probability import Difference, Region
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.threshold import Threshold

PAIRS = list(product(oracle.KINDS, oracle.KINDS))
UNBOUNDED = {"normal", "mixture"}
CONDITIONS = {
    "equal within": Region(-0.8, 0.8),
    "not equal within": Region(-0.8, 0.8, outside=True),
    "less": Region(-math.inf, 0.0, high_closed=False),
    "greater": Region(0.0, math.inf, low_closed=False),
    "at least": Region(0.25, math.inf),
    "band": Region(-0.5, 1.25, low_closed=False),
    "far apart": Region(-2.0, 2.0, low_closed=False, high_closed=False, outside=True),
    "equal": Region(0.0, 0.0),
}


def arguments(region: Region) -> tuple:
    return region.low, region.high, region.low_closed, region.high_closed, region.outside


def check_join(
    kinds: tuple[str, str], region: Region, level: float | None, strict: bool, exact: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    nasty = bool(rng.integers(2))
    sides = [
        [
            oracle.random_value(rng, kind, scale=float(2.0 ** rng.integers(-3, 2)), center_range=(-2, 2), nasty=nasty)
            for _ in range(8)
        ]
        for kind in kinds
    ]
    left, right = model_of(sides[0]), model_of(sides[1])
    threshold = Threshold(level, strict)
    found = match_all(
        left, right,
        row_intervals(left, True, region, threshold, exact), row_intervals(right, False, region, threshold, exact),
        region, threshold, exact,
    )  # fmt: skip
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "a pair was doubled"
    probabilities = oracle.brute_force_probabilities(*sides, *arguments(region))
    wanted = set(oracle.kept_pairs(probabilities, level, strict))
    hairline = set(oracle.borderline_pairs(probabilities, level))
    assert set(pairs) - hairline == wanted - hairline
    if exact:
        for pair, p in zip(pairs, found.probability, strict=True):
            assert abs(p - float(probabilities[pair])) <= 1e-10 + oracle.float_slack(
                sides[0][pair[0]], sides[1][pair[1]], region.low, region.high
            )
    counters = found.counters
    decided = sum(counters.rejected.values()) + sum(counters.accepted.values())
    assert counters.candidates == decided + counters.evaluated
    assert counters.kept == len(pairs)
    if exact:
        assert {name for name, count in counters.accepted.items() if count} <= {"sure range"}


@pytest.mark.long(keep=20)
@pytest.mark.parametrize(("left", "right"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_all_models_and_conditions(condition, left, right):
    seed = PAIRS.index((left, right))
    for number, (level, strict, exact) in enumerate([(0.3, False, True), (0.8, True, False), (None, False, True)]):
        if level is None and UNBOUNDED & {left, right}:
            continue
        check_join((left, right), CONDITIONS[condition], level, strict, exact, 100 * seed + number)


@settings(max_examples=fewer(150), deadline=None)
@given(
    st.sampled_from(PAIRS),
    st.sampled_from(list(CONDITIONS.values())),
    st.sampled_from([0.01, 0.25, 0.5, 0.75, 0.9, 1.0]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_random_joins(kinds, region, level, strict, exact, seed):
    check_join(kinds, region, level, strict, exact, seed)


def test_equal_weight_samples_are_decided_exactly():
    """Three of ten is 0.3 and not a hair less; 0.1 + 0.2 in floats would be one more."""
    left = Samples([[1.0] * 3 + [9.0] * 7])
    right = Samples([[1.0]])
    for level, strict, kept in ((0.3, False, 1), (0.3, True, 0), (0.30000000000000004, False, 0), (0.29, True, 1)):
        region, threshold = Region(-0.5, 0.5), Threshold(level, strict)
        intervals = (
            row_intervals(left, True, region, threshold, True),
            row_intervals(right, False, region, threshold, True),
        )
        assert len(match_all(left, right, *intervals, region, threshold, True).left) == kept


def test_no_exact_evaluation_where_a_bound_decides():
    """Intervals far inside and far outside the tolerance: nothing is left to evaluate."""
    left, right = Uniform([0, 100], [1, 101]), Uniform([0.2, 107], [0.4, 107.5])
    region, threshold = Region(-5.0, 5.0), Threshold(0.5)
    intervals = (
        row_intervals(left, True, region, threshold, False),
        row_intervals(right, False, region, threshold, False),
    )
    found = match_all(left, right, *intervals, region, threshold, False)
    assert list(zip(found.left, found.right, strict=True)) == [(0, 0)]
    assert found.counters.evaluated == 0
    assert found.counters.accepted["containment"] == 1
    assert np.isnan(found.probability).all()


def test_batches_find_what_one_push_finds():
    rng = np.random.default_rng(0)
    n = 300
    left, right = (Gaussian(rng.uniform(0, 30, n), rng.uniform(0.1, 1, n)) for _ in range(2))
    condition = Difference("x", "x", Region(-1.0, 1.0))
    whole = PairJoin(condition, 0.5)
    whole.push("left", {"id": np.arange(n), "x": left})
    wanted = whole.push("right", {"id": np.arange(n), "x": right})
    parts = PairJoin(condition, 0.5)
    found: dict[tuple[int, int], float] = {}
    for k in range(0, n, 50):
        rows = np.arange(k, k + 50)
        for side, model in (("left", left), ("right", right)):
            result = parts.push(side, {"id": rows, "x": model.take(rows)})
            for i, j, p in zip(result.left, result.right, result.probability, strict=True):
                assert (i, j) not in found
                found[i, j] = p
            parts = PairJoin.restore(parts.snapshot())
    assert found == dict(zip(zip(wanted.left, wanted.right, strict=True), wanted.probability, strict=True))
    assert set(wanted.decided_by) == {"exact value"}
    assert parts.funnel.kept == whole.funnel.kept == len(found)


def test_pair_join_takes_expressions_and_numbers():
    import haply as hp

    join = PairJoin(hp.left.x > hp.right.y, 0.9)
    join.push("left", {"id": [1, 2], "x": [5.0, 1.0]})
    result = join.push("right", {"id": [7], "y": Uniform([2.0], [3.0])})
    assert result.left.tolist() == [1]
    assert result.decided_by.tolist() == ["sure range"]
    join.close("right")
    assert join.push("left", {"id": [3], "x": [9.0]}).left.tolist() == [3]


def test_pair_join_errors():
    condition = Difference("x", "x", Region(-1.0, 1.0))
    with pytest.raises(HaplyError, match="threshold is not a probability"):
        PairJoin(condition, 1.5)
    with pytest.raises(HaplyError, match="did you mean 'sweep'"):
        PairJoin(condition, 0.5, strategy="swep")
    join = PairJoin(condition, None)
    with pytest.raises(HaplyError, match="no column 'x'"):
        join.push("left", {"id": [1], "y": Gaussian(0, 1)})
    with pytest.raises(HaplyError, match="give a threshold"):
        join.push("left", {"id": [1], "x": Gaussian(0, 1)})
    with pytest.raises(HaplyError, match="no side 'lefft'"):
        join.push("lefft", {"id": [1], "x": [1.0]})  # type: ignore[arg-type]
