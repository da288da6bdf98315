"""Joins by pages and by the tree against brute force, and what the paper says of their counters."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

import oracle
from engine import model_of
from haply.errors import HaplyError
from haply.joins import PairJoin
from haply.joins.match import match_all
from haply.joins.paged import ALGORITHMS, PagedJoin, PageSettings, match_paged
from haply.models import Gaussian, Histogram, OneDimensional, Samples, Uniform
from haply.probability import Difference, Region
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.candidates.xbounds import PAPER_LEVELS
from haply.pruning.threshold import Threshold

PAIRS = list(product(oracle.KINDS, oracle.KINDS))
UNBOUNDED = {"normal", "mixture"}
CONDITIONS = (
    Region(-0.8, 0.8),
    Region(-0.8, 0.8, outside=True),
    Region(-math.inf, 0.0, high_closed=False),
    Region(0.0, math.inf, low_closed=False),
    Region(0.25, math.inf),
    Region(-0.5, 1.25, low_closed=False),
    Region(-2.0, 2.0, low_closed=False, high_closed=False, outside=True),
    Region(0.0, 0.0),
)
LIMITS = ((0.3, False), (0.3, True), (0.8, True), (0.75, False), (1.0, False), (1.0, True), (None, False))
LAYOUTS = (
    PageSettings(rows_per_page=3, fan_out=2),
    PageSettings(rows_per_page=2, fan_out=3, tests="paper", levels=PAPER_LEVELS, in_order=False),
    PageSettings(item="theorem 1", rows_per_page=4, fan_out=2, levels=(0.0, 0.01, 0.05, 0.1, 0.25, 0.5)),
    PageSettings(item="theorem 1", tests="paper"),
)


ROWS = 300


def arguments(region: Region) -> tuple:
    return region.low, region.high, region.low_closed, region.high_closed, region.outside


def check_pairs(sides, models, probabilities, region, level, strict, exact, found, counted) -> None:
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "a pair was doubled"
    wanted = set(oracle.kept_pairs(probabilities, level, strict))
    hairline = set(oracle.borderline_pairs(probabilities, level))
    assert set(pairs) - hairline == wanted - hairline
    if exact:
        for pair, p in zip(pairs, found.probability, strict=True):
            assert abs(p - float(probabilities[pair])) <= 1e-10 + oracle.float_slack(
                sides[0][pair[0]], sides[1][pair[1]], region.low, region.high
            )
    counters, work = found.counters, found.work
    decided = sum(counters.rejected.values()) + sum(counters.accepted.values())
    assert counters.candidates == decided + counters.evaluated == work.pairs + work.included
    assert counters.kept == len(pairs)
    assert counters.evaluated == work.evaluated
    assert (counted.pairs, counted.included) == (work.pairs, work.included)
    if exact:
        assert {name for name, count in counters.accepted.items() if count} <= {"sure range"}


def check_all(sides, kinds, region, limits, layouts) -> None:
    """All algorithms in all layouts, either side inside, against one table of probabilities."""
    probabilities = oracle.brute_force_probabilities(*sides, *arguments(region))
    models = [model_of(side) for side in sides]
    runs = 0
    for (level, strict), settings, algorithm in product(limits, layouts, ALGORITHMS):
        if level is None and UNBOUNDED & set(kinds):
            continue
        runs += 1
        exact, inner_is_left = bool(runs % 2), bool(runs % 3)
        inner, outer = (models[0], models[1]) if inner_is_left else (models[1], models[0])
        join = PagedJoin(
            inner, region, Threshold(level, strict), exact, algorithm, settings, inner_is_left=inner_is_left
        )
        found = join.match(outer)
        check_pairs(sides, models, probabilities, region, level, strict, exact, found, join.count(outer))


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_all_models_and_conditions(kinds):
    """Every pair of models; the conditions take turns, so that each is asked of many pairs."""
    number = PAIRS.index(kinds)
    for turn in range(3):
        rng = np.random.default_rng(100 * number + turn)
        region = CONDITIONS[(3 * number + turn) % len(CONDITIONS)]
        sides = [
            [
                oracle.random_value(
                    rng, kind, scale=float(2.0 ** rng.integers(-3, 2)), center_range=(-2, 2), nasty=turn != 1
                )
                for _ in range(8)
            ]
            for kind in kinds
        ]
        limits = [LIMITS[(number + turn) % 7], LIMITS[(number + turn + 3) % 7]]
        check_all(sides, kinds, region, limits, [LAYOUTS[turn], LAYOUTS[3 - turn]])


def adversarial() -> dict[str, tuple[list, list]]:
    """Oracle values that have troubled joins before."""
    points = [oracle.Uniform(k / 4, k / 4) for k in range(9)]
    gaps = [oracle.Hist((0.0, 1.0, 2.0, 3.0), (0.5, 0.0, 0.5)), oracle.Hist((0.0, 1.0, 5.0, 6.0), (0.0, 1.0, 0.0))]
    heap = [oracle.Uniform(-1.0 - 0.01 * k, 1.0 + 0.01 * k) for k in range(9)]
    one = [oracle.Uniform(0.0, 1.0)]
    return {
        "zero width": (points, points),
        "zero width beside a width": (points, heap),
        "zero mass": (gaps, gaps),
        "heavy overlap": (heap, heap),
        "one row": (one, one),
        "one row and many": (one, heap),
        "ends that touch": ([oracle.Uniform(0.0, 1.0)] * 4, [oracle.Uniform(1.8, 2.0), oracle.Uniform(1.0, 1.8)]),
        "far and near": ([oracle.Uniform(1e6, 1e6 + 1e-6)] * 3, [oracle.Uniform(1e6, 1e6 + 1e-6), *one]),
    }


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("name", adversarial())
@pytest.mark.parametrize("region", CONDITIONS, ids=Region.describe)
def test_adversarial_data(name, region):
    check_all(adversarial()[name], ("uniform", "uniform"), region, LIMITS, LAYOUTS[:2])


def test_an_empty_side():
    some, none = Uniform([0.0, 1.0], [1.0, 2.0]), Uniform(np.empty(0), np.empty(0))
    for algorithm, (left, right) in product(ALGORITHMS, ((some, none), (none, some), (none, none))):
        for region in CONDITIONS:
            found = match_paged(left, right, region, Threshold(0.5), False, algorithm)
            assert len(found.left) == len(found.right) == len(found.probability) == 0
            assert found.work.pairs == found.work.included == 0


def sides_of_the_paper(n: int, seed: int, stretch: float) -> tuple[Uniform, Uniform]:
    rng = np.random.default_rng(seed)
    left, right = rng.uniform(0.0, stretch, n), rng.uniform(0.5 * stretch, 1.5 * stretch, n)
    return (
        Uniform(left, left + np.maximum(rng.normal(5.0, 1.0, n), 0.1)),
        Uniform(right, right + np.maximum(rng.normal(10.0, 2.0, n), 0.1)),
    )


def sides_of(kind: str, seed: int) -> tuple[OneDimensional, OneDimensional]:
    left, right = sides_of_the_paper(ROWS, seed, 0.5 * ROWS)
    if kind == "uniform":
        return left, right
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        return tuple(Gaussian(side.lo, 0.2 * (side.hi - side.lo)) for side in (left, right))
    parts = [np.sort(rng.uniform(side.lo, side.hi, (4, ROWS)), axis=0).T for side in (left, right)]
    if kind == "samples":
        return tuple(Samples(part) for part in parts)
    return tuple(Histogram(part, rng.dirichlet(np.ones(3), ROWS)) for part in parts)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", ["uniform", "gaussian", "histogram", "samples"])
@pytest.mark.parametrize("region", [CONDITIONS[k] for k in (0, 1, 2, 3, 5)], ids=Region.describe)
def test_exact_evaluations_do_not_depend_on_the_algorithm(kind, region):
    """Items that Theorem 1 leaves are the same for all four (Figure 13): a page's verdict implies the item's."""
    left, right = sides_of(kind, 11)
    for level, strict, in_order in ((0.1, True, True), (0.3, False, True), (0.55, True, False), (0.9, False, True)):
        threshold = Threshold(level, strict)
        settings = PageSettings(
            tests="paper", item="theorem 1", levels=PAPER_LEVELS, rows_per_page=20, fan_out=5, in_order=in_order
        )
        found = {name: match_paged(left, right, region, threshold, False, name, settings) for name in ALGORITHMS}
        assert len({match.work.evaluated for match in found.values()}) == 1
        assert len({match.counters.kept for match in found.values()}) == 1
        pairs = {name: match.work.pairs for name, match in found.items()}
        assert pairs["BNLJ"] == len(left) * len(right)
        assert pairs["U-INLJ"] <= pairs["U-BNLJ"] <= pairs["BNLJ"]
        assert pairs["U-INLJ"] <= pairs["INLJ"]
        if not (region.outside or region.one_sided):  # nothing is included: so too where probabilities are wanted
            found = {name: match_paged(left, right, region, threshold, True, name, settings) for name in ALGORITHMS}
            assert len({match.work.evaluated for match in found.values()}) == 1
            assert {name: match.work.pairs for name, match in found.items()} == pairs


def test_strong_tests_leave_less():
    left, right = sides_of_the_paper(2_000, 12, 1_000.0)
    for region in CONDITIONS[:4]:
        work = {}
        for tests, levels in (("paper", PAPER_LEVELS), ("strong", PAPER_LEVELS), ("strong", None)):
            settings = PageSettings(tests=tests, levels=levels)
            work[tests, levels is None] = PagedJoin(right, region, Threshold(0.35), False, "U-INLJ", settings).count(
                left
            )
        paper, strong, finer = work.values()
        assert paper.pairs > strong.pairs >= finer.pairs
        assert paper.included <= strong.included <= finer.included


def test_wide_values_in_narrow_windows_are_pruned_by_their_density():
    """Values eight wide hold at most a quarter of themselves within 1: whole pages in one place are given up."""
    rng = np.random.default_rng(13)
    left, right = (Uniform(lo, lo + 8.0) for lo in rng.uniform(0.0, 1.0, (2, 200)))
    work = PagedJoin(right, Region(-1.0, 1.0), Threshold(0.3), True, "U-INLJ").count(left)
    assert work.pairs == 0
    assert work.visited == 4
    settings = PageSettings(tests="paper", levels=PAPER_LEVELS)
    assert PagedJoin(right, Region(-1.0, 1.0), Threshold(0.3), True, "U-INLJ", settings).count(left).pairs == 40_000


def test_whole_subtrees_are_included():
    left, right = Uniform(np.arange(1e3, 2e3), np.arange(1e3, 2e3) + 1), Uniform(np.arange(0.0, 500.0), 501.0)
    for region, swapped in ((Region(0.0, math.inf), False), (Region(-math.inf, 0.0), True)):
        sides = (right, left) if swapped else (left, right)
        join = PagedJoin(sides[1], region, Threshold(0.9), False, "U-INLJ")
        assert join.count(sides[0]).visited == -(-len(sides[0]) // 50)  # the root alone, once for each page
        found = join.match(sides[0])
        assert found.work.included == found.counters.accepted["sure range"] == len(found.left) == 500_000
        assert found.work.pairs == found.work.evaluated == 0


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("strategy", ["pages", "pti"])
@pytest.mark.parametrize("region", CONDITIONS[:4], ids=Region.describe)
def test_pair_join(strategy, region):
    """Batches of both sides, through snapshots, find what the sweep finds in one go."""
    left, right = sides_of("gaussian", 14)
    threshold = Threshold(0.4)
    intervals = [row_intervals(side, side is left, region, threshold, True) for side in (left, right)]
    wanted = match_all(left, right, *intervals, region, threshold, True)
    join = PairJoin(Difference("x", "x", region), 0.4, strategy=strategy)
    found: dict[tuple[int, int], float] = {}
    for k in range(0, ROWS, 100):
        rows = np.arange(k, k + 100)
        for side, model in (("left", left), ("right", right)):
            result = join.push(side, {"id": rows, "x": model.take(rows)})
            for i, j, p in zip(result.left.tolist(), result.right.tolist(), result.probability, strict=True):
                assert (i, j) not in found
                found[i, j] = p
        join = PairJoin.restore(join.snapshot())
        assert join.strategy == strategy
    pairs = list(zip(wanted.left.tolist(), wanted.right.tolist(), strict=True))
    assert set(found) == set(pairs)
    assert [found[pair] for pair in pairs] == pytest.approx(wanted.probability.tolist(), abs=1e-15)
    assert join.funnel.kept == len(pairs)


def test_pair_join_with_names_for_ids():
    join = PairJoin(Difference("x", "x", Region(-1.0, 1.0)), 0.5, strategy="pti", exact=False)
    join.push("right", {"id": ["a", "b"], "x": Uniform([0.0, 9.0], [0.5, 9.5])})
    result = join.push("left", {"id": ["u", "v"], "x": [9.2, 0.3]})
    assert sorted(zip(result.left.tolist(), result.right.tolist(), strict=True)) == [("u", "b"), ("v", "a")]
    assert set(result.decided_by) <= {"sure range", "containment"}


def test_errors():
    one = Uniform(0.0, 1.0)
    with pytest.raises(HaplyError, match=r"no algorithm 'UBNLJ'.*did you mean"):
        match_paged(one, one, Region(-1.0, 1.0), Threshold(0.5), True, "UBNLJ")  # type: ignore[arg-type]
    with pytest.raises(HaplyError, match="did you mean 'theorem 1'"):
        PageSettings(item="theorem1")  # type: ignore[arg-type]
    with pytest.raises(HaplyError, match="levels of x-bounds"):
        match_paged(one, one, Region(-1.0, 1.0), Threshold(0.5), True, settings=PageSettings(levels=(0.5, 0.1)))
    with pytest.raises(HaplyError, match="did you mean 'pages'"):
        PairJoin(Difference("x", "x", Region(-1.0, 1.0)), 0.5, strategy="page")
