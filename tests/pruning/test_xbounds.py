"""x-bounds are tight, and no test of a page or node ever decides wrongly: up to 100,000 random pairs of nodes each."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import oracle
from amounts import fewer
from engine import model_of
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Histogram, OneDimensional, Samples, TruncatedGaussian, Uniform
from haply.probability import Region, region_probability
from haply.pruning.candidates.xbounds import (
    INCLUDE,
    PAPER_LEVELS,
    PRUNE,
    Pages,
    PageScratch,
    XBounds,
    checked_levels,
    group_bounds,
    levels_for,
    mirrored,
    node_verdicts,
    question,
    value_bounds,
)
from haply.pruning.threshold import Threshold

NODES, SIZE = fewer(100_000), 2
CONDITIONS = {
    "=": Region(-1.0, 1.0),
    "!=": Region(-1.0, 1.0, outside=True),
    ">": Region(0.0, math.inf, low_closed=False),
    "<": Region(-math.inf, 0.0, high_closed=False),
    "band": Region(-0.5, 1.5, high_closed=False),
}
LEVELS = np.array([0.0, 1e-17, 0.01, 0.05, *PAPER_LEVELS[1:]])


def random_rows(kind: str, rng: np.random.Generator, centre: np.ndarray) -> OneDimensional:
    """Values of many widths, some of them on a grid so that ends tie, some without any width."""
    n = len(centre)
    on_grid = rng.random(n) < 0.2
    centre = np.where(on_grid, np.round(2.0 * centre) / 2.0, centre)
    width = np.where(on_grid, rng.integers(0, 4, n) / 2.0, 2.0 ** rng.uniform(-4.0, 3.0, n))
    if kind == "uniform":
        return Uniform(centre, centre + width)
    if kind == "gaussian":
        return Gaussian(centre, 0.3 * width)
    if kind == "certain":
        return Certain(centre)
    if kind == "truncated":
        return TruncatedGaussian(centre + width * rng.normal(size=n), width, centre - width, centre + width)
    steps = np.maximum(rng.uniform(0.05, 1.0, (n, 4)) * np.maximum(width, 0.25)[:, None], 1e-3)
    if kind == "histogram":
        masses = rng.random((n, 4)) * (rng.random((n, 4)) < 0.6) + np.array([0.0, 1e-3, 0.0, 0.0])
        edges = centre[:, None] + np.concatenate([np.zeros((n, 1)), np.cumsum(steps, axis=1)], axis=1)
        return Histogram(edges, masses / masses.sum(axis=1, keepdims=True))
    points = np.where(on_grid[:, None], np.round(2.0 * steps) / 2.0, steps) + centre[:, None]
    return Samples(points)


@cache
def node_pairs(kind: str) -> tuple[OneDimensional, OneDimensional, XBounds, XBounds]:
    rng = np.random.default_rng(len(kind))
    apart = np.repeat(rng.normal(0.0, 4.0, NODES), SIZE)
    spread = np.repeat(2.0 ** rng.uniform(-6.0, 1.0, NODES), SIZE)
    left = random_rows(kind, rng, spread * rng.normal(size=NODES * SIZE))
    right = random_rows(kind, rng, apart + spread * rng.normal(size=NODES * SIZE))
    start = np.arange(0, NODES * SIZE + 1, SIZE)
    return left, right, *(group_bounds(value_bounds(side, LEVELS), start) for side in (left, right))


def extremes(left: OneDimensional, right: OneDimensional, region: Region) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest probability of each node pair."""
    first = SIZE * np.arange(NODES)
    every = [
        region_probability(left.take(first + i), right.take(first + j), region)
        for i in range(SIZE)
        for j in range(SIZE)
    ]
    return np.min(every, axis=0), np.max(every, axis=0)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", ["uniform", "gaussian", "histogram", "samples"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_no_false_dismissal_and_no_false_inclusion(kind, condition):
    left, right, mine, theirs = node_pairs(kind)
    region = CONDITIONS[condition]
    least, most = extremes(left, right, region)
    counts = left.equal_weight_samples() and right.equal_weight_samples()
    pruned = included = by_density = 0
    for level, strict in ((0.1, True), (0.1, False), (0.35, False), (0.6, True), (0.85, False)):
        threshold = Threshold(level, strict)
        verdicts = {}
        for tests in ("box", "paper", "strong"):
            asked = question(region, threshold, False, LEVELS, tests)
            verdicts[tests] = node_verdicts(mine, theirs, asked)
            assert not threshold.keep(most[verdicts[tests] == PRUNE], counts).any()
            assert threshold.keep(least[verdicts[tests] == INCLUDE], counts).all()
        assert (node_verdicts(theirs, mine, mirrored(asked)) == verdicts["strong"]).all()
        for weak, sharp in (("box", "paper"), ("paper", "strong")):
            assert (verdicts[sharp][verdicts[weak] != 0] == verdicts[weak][verdicts[weak] != 0]).all()
        decided = {tests: int((verdict != 0).sum()) for tests, verdict in verdicts.items()}
        assert decided["strong"] > decided["paper"]
        assert (decided["paper"] > fewer(1_000)) == (kind != "gaussian")  # whose ends are infinite
        pruned, included = (
            pruned + (verdicts["strong"] == PRUNE).sum(),
            included + (verdicts["strong"] == INCLUDE).sum(),
        )
        if condition == "=":
            asked = question(region, threshold, False, LEVELS, "strong")
            blunt = [side._replace(peak=np.full_like(side.peak, np.inf)) for side in (mine, theirs)]
            by_density += ((verdicts["strong"] == PRUNE) & (node_verdicts(*blunt, asked) != PRUNE)).sum()
        exact = node_verdicts(mine, theirs, question(region, threshold, True, LEVELS, "strong"))
        assert (least[exact == INCLUDE] >= 1.0 - 1e-14).all()
    assert pruned > fewer(1_000)
    assert included > fewer(1_000)
    if condition == "=" and kind != "samples":  # which have atoms, and no density
        assert by_density > fewer(1_000)


@pytest.mark.parametrize("kind", ["certain", "uniform", "gaussian", "truncated", "histogram", "samples"])
def test_x_bounds_are_x_bounds(kind):
    """At most x of each value lies beyond them, and for some value of the page that is all there is room for."""
    rng = np.random.default_rng(5)
    model = random_rows(kind, rng, rng.normal(0.0, 3.0, 4_000))
    levels = levels_for(Threshold(0.4), False)
    pages = Pages(model, levels, 10, True)
    assert len(pages) == 400
    for k, level in enumerate(levels):
        left, right = np.repeat(pages.bounds.left[:, k], 10), np.repeat(pages.bounds.right[:, k], 10)
        ordered = model.take(pages.order)
        finite = np.isfinite(left)
        assert (ordered.cdf_left(np.where(finite, left, -1e300)) <= level + 1e-12).all()
        assert (1.0 - ordered.cdf(np.where(finite, right, 1e300)) <= level + 1e-12).all()
        if level > 0.0 or kind != "gaussian":
            beyond = np.where(finite, left, 0.0) + 1e-9 * (1.0 + np.abs(np.where(finite, left, 0.0)))
            tight = (ordered.cdf(beyond) > level - 1e-12).reshape(400, 10).any(axis=1)
            assert tight[finite.reshape(400, 10)[:, 0]].all()
    assert (np.diff(pages.bounds.left, axis=1) >= 0.0).all()
    assert (np.diff(pages.bounds.right, axis=1) <= 0.0).all()


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_peak_density_bounds_the_concentration(kind):
    rng = np.random.default_rng(6)
    values = [oracle.random_value(rng, kind, nasty=bool(k % 2)) for k in range(16)]
    peak = model_of(values).peak_density()
    for value, most in zip(values, peak, strict=True):
        for width in (1e-9, 1e-3, 0.3):
            assert oracle.concentration(value, width) <= width * most * (1.0 + 1e-6) + 1e-12


def test_unbounded_values_are_pruned_by_their_cores():
    """The ends of Gaussians are infinite: boxes decide nothing, x-bounds of both sides do."""
    far = Gaussian([0.0, 1.0], 1.0), Gaussian([30.0, 31.0], 1.0)
    start = np.array([0, 2])
    for tests, level, wanted in (("box", 0.3, 0), ("paper", 0.3, 0), ("strong", 0.3, PRUNE)):
        mine, theirs = (group_bounds(value_bounds(side, LEVELS), start) for side in far)
        asked = question(Region(-1.0, 1.0), Threshold(level), True, LEVELS, tests)
        assert node_verdicts(mine, theirs, asked).tolist() == [wanted]


def test_levels_suit_the_threshold():
    """Two tails of one level make the threshold, so a page of one value is decided as its core region is."""
    for level in (0.05, 0.3, 0.9, 1.0):
        levels = levels_for(Threshold(level), False)
        made = levels + levels - levels * levels
        assert (np.abs(made - level) < 1e-11).any()
    for bad in ([0.1, 0.2], [0.0, 0.2, 0.2], [0.0, 1.0], [[0.0]], []):
        with pytest.raises(HaplyError, match="levels of x-bounds"):
            checked_levels(bad)
    with pytest.raises(HaplyError, match="did you mean 'strong'"):
        question(Region(-1.0, 1.0), Threshold(0.5), True, LEVELS, "stron")


def test_pages_hold_every_row_once():
    rng = np.random.default_rng(7)
    for n in (0, 1, 49, 50, 51, 100):
        model = Uniform(rng.random(n), 1.0 + rng.random(n)) if n else Uniform(np.empty(0), np.empty(0))
        for in_order in (True, False):
            pages = Pages(model, LEVELS, 50, in_order)
            assert len(pages) == -(-n // 50)
            rows = np.concatenate([pages.rows(page) for page in range(len(pages))]) if n else np.empty(0)
            assert sorted(rows) == list(range(n))
            if n:
                nothing = question(Region(-1.0, 1.0), Threshold(0.5), True, LEVELS, "none")
                met = pages.meet(pages.bounds, 0, nothing, PageScratch.of(n))
                assert sorted(met.check) == list(range(n))
                assert (met.checked, met.included, met.reads, met.visited) == (n, 0, len(pages), 0)
    with pytest.raises(HaplyError, match="page holds no rows"):
        Pages(Uniform(0, 1), LEVELS, 0, True)
