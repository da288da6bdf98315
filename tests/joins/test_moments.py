"""Joins by moment indexes against brute force: the same pairs, whatever the laws; for Gaussians without validation."""

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
from haply.joins import PairJoin, TumblingJoin
from haply.joins.moments import MomentCounters, match_moments
from haply.models import Certain, Gaussian, Mixture, Samples, Uniform
from haply.probability import Difference, Region, region_probability
from haply.pruning.threshold import Threshold

PAIRS = list(product(oracle.KINDS, oracle.KINDS))
NORMAL = {"point", "normal"}
CONDITIONS = {
    "equal within": Region(-0.8, 0.8),
    "equal": Region(0.0, 0.0),
    "band": Region(-0.5, 1.25, low_closed=False),
    "shifted": Region(2.0, 3.0),
    "far apart": Region(-2.0, 2.0, outside=True),
    "outside a band": Region(-0.5, 1.25, high_closed=False, outside=True),
    "less": Region(-math.inf, 0.0, high_closed=False),
    "greater": Region(0.25, math.inf),
}


def arguments(region: Region) -> tuple:
    return region.low, region.high, region.low_closed, region.high_closed, region.outside


def pairs_of(found) -> list[tuple[int, int]]:
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "a pair was doubled"
    return pairs


def check(sides, region: Region, level: float | None, strict: bool = False) -> None:
    """Every index that the kinds allow, either side indexed, with values and without, against brute force."""
    left, right = model_of(sides[0]), model_of(sides[1])
    probabilities = oracle.brute_force_probabilities(*sides, *arguments(region))
    hairline = set(oracle.borderline_pairs(probabilities, level))
    wanted = set(oracle.kept_pairs(probabilities, level, strict)) - hairline
    for index, indexed, exact in product(("auto", "gmj", "chebyshev", "xbound"), ("right", "left"), (True, False)):
        if index == "xbound" and region.outside:
            continue
        found = match_moments([left], [right], [region], Threshold(level, strict), exact, index=index, indexed=indexed)
        pairs = pairs_of(found)
        assert set(pairs) - hairline == wanted, (index, indexed, exact)
        for pair, p in zip(pairs, found.probability, strict=True):
            slack = oracle.float_slack(sides[0][pair[0]], sides[1][pair[1]], region.low, region.high)
            assert math.isnan(p) if exact is False and math.isnan(p) else abs(p - probabilities[pair]) <= 1e-10 + slack
        assert not (exact and np.isnan(found.probability).any())
        counters = found.counters
        decided = sum(counters.rejected.values()) + sum(counters.accepted.values())
        assert counters.candidates == decided + counters.evaluated
        assert counters.kept == len(pairs)
        settled = index == "auto" and {type(left), type(right)} in ({Gaussian}, {Gaussian, Certain})
        if settled:
            assert counters.returned == len(pairs)
            assert counters.validated == 0
        else:
            assert counters.validated == counters.returned - counters.wholesale
        assert not (counters.wholesale and exact and not settled)


@pytest.mark.long(keep=5)
@pytest.mark.parametrize(("left", "right"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_all_models_and_conditions(left, right):
    for number, region in enumerate(CONDITIONS.values()):
        rng = np.random.default_rng(100 * PAIRS.index((left, right)) + number)
        nasty, scale = bool(number % 2), float(2.0 ** rng.integers(-3, 2))
        sides = [
            [oracle.random_value(rng, kind, scale=scale, center_range=(-2, 2), nasty=nasty) for _ in range(7)]
            for kind in (left, right)
        ]
        check(sides, region, *((0.3, False), (0.8, True))[number % 2])


@settings(max_examples=fewer(60), deadline=None)
@given(
    st.sampled_from(PAIRS),
    st.sampled_from(list(CONDITIONS.values())),
    st.sampled_from([1e-9, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0 - 1e-9, 1.0]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_random_joins(kinds, region, level, strict, seed):
    rng = np.random.default_rng(seed)
    nasty = bool(rng.integers(2))
    sides = [
        [oracle.random_value(rng, kind, center_range=(-2, 2), nasty=nasty) for _ in range(int(rng.integers(1, 7)))]
        for kind in kinds
    ]
    check(sides, region, level, strict)


def test_without_a_threshold():
    rng = np.random.default_rng(5)
    for kinds in (("uniform", "hist"), ("point", "point"), ("discrete", "truncated")):
        sides = [[oracle.random_value(rng, kind, center_range=(-2, 2)) for _ in range(6)] for kind in kinds]
        check(sides, Region(-0.8, 0.8), None)


# -- many rows: Gaussians against all pairs at once --------------------------------------------------------------------


def gaussians(rng: np.random.Generator, n: int, shape: str) -> Gaussian:
    mean, sd = rng.uniform(-10.0, 10.0, n), rng.exponential(1.0, n)
    if shape == "certain":
        sd[:] = 0.0
        mean = np.round(4 * mean) / 4
    elif shape == "equal":
        mean[:], sd[:] = 1.0, 0.5
    elif shape == "huge":
        sd *= rng.choice([1.0, 1e3, 1e160, 1e300], n)
    elif shape == "mixed":
        sd *= rng.choice([0.0, 1e-12, 1.0, 20.0], n)
        mean = np.where(rng.random(n) < 0.5, np.round(mean), mean)
    return Gaussian(mean, sd)


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("shape", ["plain", "certain", "equal", "huge", "mixed"])
@pytest.mark.parametrize(
    ("level", "strict"), [(1e-7, False), (0.3, True), (0.7, False), (1.0 - 1e-7, False), (1.0, False)]
)
def test_gaussian_index_returns_the_matches_themselves(shape, level, strict):
    """GJ: every pair that leaves the index is a match and no match is missing, without one validation."""
    rng = np.random.default_rng(11)
    left, right = gaussians(rng, 150, shape), gaussians(rng, 400, shape)
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(150), np.arange(400), indexing="ij"))
    threshold = Threshold(level, strict)
    for region in (Region(-1.0, 1.0), Region(-1.0, 1.0, False, False), Region(-3.0, 3.0, outside=True), Region(0, 0)):
        p = region_probability(left.take(i), right.take(j), region)
        kept = threshold.keep(p, False)
        wanted = set(zip(i[kept].tolist(), j[kept].tolist(), strict=True))
        for exact in (True, False):
            found = match_moments([left], [right], [region], threshold, exact, index="gj")
            assert set(pairs_of(found)) == wanted
            counters = found.counters
            assert isinstance(counters, MomentCounters)
            assert counters.validated == 0
            assert counters.returned == counters.kept == len(wanted)
            if exact:
                value = p.reshape(150, 400)[found.left, found.right]
                assert np.abs(found.probability - value).max(initial=0.0) < 1e-12
        for index in ("gmj", "chebyshev"):
            assert set(pairs_of(match_moments([left], [right], [region], threshold, True, index=index))) == wanted


def test_whole_nodes_are_accepted():
    """Rows that are all near: most pairs need no look at a row."""
    rng = np.random.default_rng(2)
    left, right = (Gaussian(rng.uniform(0.0, 10.0, 2000), rng.uniform(0.1, 0.2, 2000)) for _ in range(2))
    for region in (Region(-5.0, 5.0), Region(-1.0, 1.0, outside=True), Region(0.0, math.inf)):
        counters = match_moments([left], [right], [region], Threshold(0.7), False).counters
        assert isinstance(counters, MomentCounters)
        assert counters.wholesale > 0.8 * counters.kept
        assert counters.rows + counters.nodes < 0.25 * 2000 * 2000
        assert counters.accepted["sure range"] == counters.wholesale


def test_empty_and_single_rows():
    none, one = Gaussian([], []), Gaussian([0.0], [1.0])
    assert len(match_moments([none], [one], [Region(-1.0, 1.0)], Threshold(0.5), True).left) == 0
    assert len(match_moments([one], [none], [Region(-1.0, 1.0)], Threshold(0.5), True).left) == 0
    assert len(match_moments([none], [none], [Region(-1.0, 1.0)], Threshold(0.5), False, index="xbound").left) == 0
    assert len(match_moments([one], [one], [Region(-1.0, 1.0)], Threshold(0.5), True).left) == 1
    assert len(match_moments([one], [one], [Region(-9.0, 9.0)], Threshold(1.0, strict=True), True).left) == 0


def test_x_bounds_find_more_candidates_than_gmj_on_gaussians():
    """The baseline returns what both other indexes return, and more."""
    rng = np.random.default_rng(3)
    left, right = (Gaussian(rng.uniform(0, 100, 500), np.sqrt(rng.uniform(0, 10, 500))) for _ in range(2))
    found = {
        index: match_moments([left], [right], [Region(-5.0, 5.0)], Threshold(0.7), True, index=index).counters
        for index in ("gj", "gmj", "xbound")
    }
    assert found["gj"].kept == found["gj"].returned < found["gmj"].returned < found["xbound"].returned
    assert found["gj"].kept == found["gmj"].kept == found["xbound"].kept


# -- several attributes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("kinds", [("gaussian", "gaussian"), ("gaussian", "mixture"), ("uniform", "mixture")])
def test_several_attributes_at_once(kinds, level):
    """One tree over all of them; attributes are independent, so probabilities multiply."""
    rng = np.random.default_rng(7)

    def column(kind: str, n: int):
        centre, size = rng.uniform(0, 6, n), rng.uniform(0.1, 1, n)
        if kind == "gaussian":
            return Gaussian(centre, size)
        if kind == "uniform":
            return Uniform(centre - size, centre + size)
        return Mixture(np.full((n, 2), 0.5), np.stack([centre, centre + size], 1), np.stack([size, size], 1))

    lefts, rights = ([column(kind, n) for kind in kinds] for n in (60, 90))
    regions = [Region(-1.5, 1.5), Region(-1.0, 2.0, outside=kinds[0] == "uniform")]
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(60), np.arange(90), indexing="ij"))
    p = np.prod(
        [region_probability(a.take(i), b.take(j), r) for a, b, r in zip(lefts, rights, regions, strict=True)], axis=0
    )
    wanted = set(zip(i[p >= level].tolist(), j[p >= level].tolist(), strict=True))
    for index, indexed, exact in product(("auto", "gmj", "xbound"), ("right", "left"), (True, False)):
        if index == "xbound" and regions[1].outside:
            continue
        found = match_moments(lefts, rights, regions, Threshold(level), exact, index=index, indexed=indexed)
        assert set(pairs_of(found)) == wanted
        assert (found.counters.validated == 0) == (index == "auto" and set(kinds) == {"gaussian"})
        if exact:
            assert np.abs(found.probability - p.reshape(60, 90)[found.left, found.right]).max(initial=0.0) < 1e-12
        one = match_moments(lefts[:1], rights[:1], regions[:1], Threshold(level), exact, index=index)
        assert found.counters.returned <= one.counters.returned


def test_errors():
    one, two = Gaussian([0.0], [1.0]), Uniform([0.0], [1.0])
    region, threshold = Region(-1.0, 1.0), Threshold(0.5)
    with pytest.raises(HaplyError, match=r"Gaussian index is asked of other laws.*gmj"):
        match_moments([one], [two], [region], threshold, True, index="gj")
    with pytest.raises(HaplyError, match="cannot find values far apart"):
        match_moments([one], [two], [Region(-1.0, 1.0, outside=True)], threshold, True, index="xbound")
    with pytest.raises(HaplyError, match="did you mean 'gmj'"):
        match_moments([one], [two], [region], threshold, True, index="gmi")  # type: ignore[arg-type]
    with pytest.raises(HaplyError, match="not one condition for each attribute"):
        match_moments([one], [two], [region, region], threshold, True)


# -- the operators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
def test_pair_join_by_moments(exact):
    """In batches from both sides, across a snapshot, it finds what the sweep finds."""
    rng = np.random.default_rng(9)
    sides = {side: gaussians(rng, 120, "mixed") for side in ("left", "right")}
    for region in (Region(-1.0, 1.0), Region(-4.0, 4.0, outside=True)):
        found = {}
        for strategy in ("sweep", "moments"):
            join = PairJoin(Difference("x", "x", region), 0.6, strategy=strategy, exact=exact)
            pairs = []
            for number, rows in enumerate(np.split(np.arange(120), 6)):
                if number == 3:
                    join = PairJoin.restore(join.snapshot())
                    assert join.strategy == strategy
                for side in ("left", "right"):
                    result = join.push(side, {"id": rows, "x": sides[side].take(rows)})
                    pairs += zip(result.left.tolist(), result.right.tolist(), strict=True)
            assert len(pairs) == len(set(pairs)) == join.funnel.kept
            found[strategy] = set(pairs)
            if strategy == "moments":
                assert isinstance(join.funnel, MomentCounters)
                assert join.funnel.nodes > 0
                assert join.funnel.validated == 0
        assert found["sweep"] == found["moments"]


def test_tumbling_windows_join_like_with_like():
    """Windows of so many rows a side in order of arrival, whatever the batches; the last may be short."""
    rng = np.random.default_rng(13)
    weights = rng.random(230)
    left = Mixture(np.stack([weights, 1 - weights], 1), rng.uniform(0, 9, (230, 2)), rng.uniform(0, 2, (230, 2)))
    right = Gaussian(rng.uniform(0, 9, 190), rng.uniform(0, 2, 190))
    region, threshold, rows = Region(-2.0, 2.0), 0.5, 50
    wanted = set()
    for begin in range(0, 190, rows):
        i, j = np.arange(begin, min(begin + rows, 230)), np.arange(begin, min(begin + rows, 190))
        found = match_moments([left.take(i)], [right.take(j)], [region], Threshold(threshold), True)
        wanted |= set(zip((1000 + i[found.left]).tolist(), j[found.right].tolist(), strict=True))
    for sizes in ([50] * 5, [1, 99, 130], [230], [7] * 33):
        join = TumblingJoin([Difference("u", "v", region)], threshold, rows=rows)
        parts = []
        for side, model, name, base in (("left", left, "u", 1000), ("right", right, "v", 0)):
            begin = 0
            for size in sizes:
                chosen = np.arange(begin, min(begin + size, len(model)))
                parts.append(join.push(side, {"id": base + chosen, name: model.take(chosen)}))
                begin += size
        early = sum(len(part.left) for part in parts)
        parts.append(join.close())
        pairs = [pair for part in parts for pair in zip(part.left.tolist(), part.right.tolist(), strict=True)]
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == wanted
        assert early < len(wanted)  # those of the last, short window come with the close
        assert join.windows == 4
        assert join.funnel.kept == len(wanted)


def test_tumbling_windows_of_several_columns():
    rng = np.random.default_rng(1)
    columns = {name: Gaussian(rng.uniform(0, 3, 40), rng.uniform(0, 1, 40)) for name in "ab"}
    near = [Difference(name, name, Region(-1.0, 1.0)) for name in "ab"]
    join = TumblingJoin(near, 0.4, rows=40, exact=False)
    join.push("left", {"id": np.arange(40), **columns})
    found = join.push("right", {"id": np.arange(40), **columns})
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(40), np.arange(40), indexing="ij"))
    p = np.prod([region_probability(c.take(i), c.take(j), Region(-1.0, 1.0)) for c in columns.values()], axis=0)
    assert len(found.left) == (p >= 0.4).sum()
    assert len(join.close().left) == 0


def test_tumbling_errors():
    near = Difference("u", "u", Region(-1.0, 1.0))
    with pytest.raises(HaplyError, match="window has no rows"):
        TumblingJoin([near], 0.5, rows=0)
    join = TumblingJoin([near], 0.5, rows=2)
    with pytest.raises(HaplyError, match="no side 'lefft'"):
        join.push("lefft", {"id": [1], "u": [1.0]})  # type: ignore[arg-type]
    with pytest.raises(HaplyError, match="no column 'u'"):
        join.push("left", {"id": [1], "v": [1.0]})
    with pytest.raises(HaplyError, match="disagrees in length"):
        join.push("left", {"id": [1], "u": [1.0, 2.0]})
    join.push("left", {"id": [1], "u": [1.0]})
    join.push("left", {"id": [2], "u": Samples([[1.0]])})
    with pytest.raises(HaplyError, match=r"changes its kind.*certain throughout"):
        join.push("right", {"id": [1, 2], "u": [1.0, 1.0]})
    join = TumblingJoin([near], 0.5, rows=2)
    join.close()
    with pytest.raises(HaplyError, match="closed"):
        join.push("left", {"id": [1], "u": [1.0]})
