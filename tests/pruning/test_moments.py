"""Node tests of the moment indexes against grids over their nodes: up to 100,000 random nodes, none decided wrongly."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

from amounts import fewer
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Histogram, Mixture, Samples, TruncatedGaussian, Uniform
from haply.probability import Region
from haply.pruning.candidates.curve import best_inside
from haply.pruning.candidates.moments import (
    ANY_LAW,
    CHEBYSHEV,
    GAUSSIAN,
    Asking,
    build_tree,
    moment_boxes,
    question_of,
    xbound_boxes,
    xbound_probes,
)
from haply.pruning.candidates.moments import node_bounds as bounds_by_deviation
from haply.pruning.threshold import Threshold

NODES = fewer(100_000)


@numba.njit
def node_bounds(law, mu1, mu2, v1, v2, low, high, outside):
    """By variances, as the paper has them."""
    return bounds_by_deviation(law, mu1, mu2, math.sqrt(v1), math.sqrt(v2), low, high, outside)


# -- the referee: written again, with nothing of the library ---------------------------------------------------------


@numba.njit
def tail(z):
    return 0.5 * math.erfc(z / math.sqrt(2.0))


@numba.njit
def gaussian_in(mu, sigma, low, high):
    """``P(low <= D <= high)``; an atom counts if it is inside."""
    if sigma == 0.0:
        return 1.0 if low <= mu <= high else 0.0
    if low > mu:
        return tail((low - mu) / sigma) - tail((high - mu) / sigma)
    return tail((mu - high) / sigma) - tail((mu - low) / sigma)


@numba.njit
def candidate(mu, sigma, low, high, level):
    """Theorem 1."""
    kappa = math.sqrt((1.0 - level) / level)
    return mu + kappa * sigma >= low and mu - kappa * sigma <= high


@numba.njit
def far_candidate(mu, sigma, delta, level):
    """Theorem 3 with its sign mended."""
    return delta <= abs(mu) + sigma / math.sqrt(level)


@numba.njit
def selberg_far(mu, sigma, delta):
    """The sharp bound on ``P(|D| >= delta)``, as the note writes it."""
    m, v = abs(mu), sigma * sigma
    if m >= delta:
        return 1.0
    if m * (delta - m) >= v:
        return v / (v + (delta - m) ** 2)
    return min(1.0, (v + m * m) / delta**2)


@numba.njit
def grid_point(k, n, first, last):
    return first if n == 1 else first + (last - first) * k / (n - 1)


@numba.njit
def extremes(mu1, mu2, v1, v2, low, high, kind, n_mu, n_v):
    """Least and most over a grid: of Gaussians inside (kind 0) or outside (1), and of Selberg's bound (2)."""
    least, most = 2.0, -1.0
    for a in range(n_mu):
        mu = grid_point(a, n_mu, mu1, mu2)
        for b in range(n_v):
            sigma = math.sqrt(grid_point(b, n_v, v1, v2))
            if kind == 2:
                p = selberg_far(mu - 0.5 * (low + high), sigma, 0.5 * (high - low))
            else:
                p = gaussian_in(mu, sigma, low, high)
                if kind == 1:
                    p = 1.0 - p
            least, most = min(least, p), max(most, p)
    return least, most


def random_nodes(seed: int, n: int = NODES) -> tuple[np.ndarray, ...]:
    """Means and variances of differences over nodes: points, lines, small and huge ones; bands and thresholds."""
    rng = np.random.default_rng(seed)
    mu1 = rng.normal(0.0, 5.0, n)
    mu2 = mu1 + rng.choice([0.0, 0.1, 1.0, 10.0], n) * rng.random(n)
    v1 = rng.choice([0.0, 0.01, 1.0, 30.0], n) * rng.random(n)
    v2 = v1 + rng.choice([0.0, 0.1, 3.0, 1e4], n, p=[0.2, 0.3, 0.4, 0.1]) * rng.random(n)
    low = rng.normal(0.0, 4.0, n)
    high = low + rng.choice([0.05, 1.0, 8.0], n) * rng.random(n)
    level = np.where(rng.random(n) < 0.1, rng.choice([1e-6, 1e-3, 0.999, 1.0 - 1e-6], n), rng.uniform(0.01, 0.99, n))
    return mu1, mu2, v1, v2, low, high, level


# -- Gaussians ---------------------------------------------------------------------------------------------------------


@numba.njit
def check_gaussian(mu1, mu2, v1, v2, low, high, level, outside):
    """False dismissals and false inclusions, the most that a grid exceeds the bounds, and how many nodes decide."""
    missed = wrong = rejected = accepted = loose = 0
    over = 0.0
    for k in range(len(mu1)):
        least, most = node_bounds(GAUSSIAN, mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], outside)
        grid_least, grid_most = extremes(mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], int(outside), 21, 21)
        over = max(over, grid_most - most, least - grid_least)
        rejected += most < level[k]
        accepted += least >= level[k]
        missed += most < level[k] and grid_most >= level[k] + 1e-14
        wrong += least >= level[k] and grid_least < level[k] - 1e-14
        loose += abs(least - grid_least) > 1e-9
    return missed, wrong, over, rejected, accepted, loose


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("outside", [False, True])
def test_gaussian_node_test_is_exact(outside):
    """GJ: no false dismissal of a node, no false inclusion of one that is accepted whole; the least is at a corner."""
    missed, wrong, over, rejected, accepted, loose = check_gaussian(*random_nodes(1), outside)
    assert missed == wrong == 0
    assert over < 1e-14
    assert rejected > fewer(5_000)
    assert accepted > fewer(3_000)
    if not outside:  # the grid has the corners, where a band's least is: the bound is no looser
        assert loose < 0.001 * NODES


@numba.njit
def check_decided(mu1, mu2, v1, v2, low, high, level):
    """How the one-sigma shortcut of high thresholds, and the paper's edges without inner maxima, compare."""
    shortcut = edges = clipped = overlapping = high_levels = 0
    for k in range(len(mu1)):
        centre = 0.5 * (low[k] + high[k])
        _, most = node_bounds(GAUSSIAN, mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], False)
        overlaps = most >= level[k]
        overlapping += overlaps
        mu = min(max(centre, mu1[k]), mu2[k])
        if level[k] >= 0.5:
            high_levels += 1
            shortcut += (gaussian_in(mu, math.sqrt(v1[k]), low[k], high[k]) >= level[k]) != overlaps
        s1, s2 = math.sqrt(v1[k]), math.sqrt(v2[k])
        ends = max(gaussian_in(mu, s1, low[k], high[k]), gaussian_in(mu, s2, low[k], high[k]))
        edges += overlaps and ends < level[k]
        # the box around all that qualifies: means in [a, b] holds for thresholds of a half and more only
        clipped += overlaps and (mu2[k] < low[k] or mu1[k] > high[k]) and level[k] < 0.5
    return shortcut, edges, clipped, overlapping, high_levels


def test_shortcuts_of_the_paper_hold_where_they_should():
    """From a half on the least variance decides alone; below, ends of edges and the mean's box dismiss wrongly."""
    shortcut, edges, clipped, overlapping, high_levels = check_decided(*random_nodes(2))
    assert high_levels > fewer(40_000)
    assert overlapping > fewer(10_000)
    assert shortcut == 0
    assert edges > 0
    assert clipped > fewer(500)


def test_golden_values():
    """P1 to P3 and P16 of the notes."""
    assert node_bounds(GAUSSIAN, 0.0, 0.0, 1.0, 1.0, -1.0, 1.0, False) == pytest.approx((0.682689492137085897,) * 2)
    assert node_bounds(GAUSSIAN, 0.3, 0.3, 0.64, 0.64, -0.5, 1.2, False)[1] == pytest.approx(0.711050228931734094)
    assert node_bounds(GAUSSIAN, -1.0, -1.0, 0.0, 1e4, 0.0, 2.0, False)[1] == pytest.approx(0.242163998265849716)
    assert best_inside(2.0, 1.9081291640000028, 1.9081291640000028, 1.0) == pytest.approx(0.242163998265849716)
    assert node_bounds(ANY_LAW, 1.0, 1.0, 1.0, 1.0, -3.0, 3.0, True)[1] == pytest.approx(0.2)
    assert node_bounds(ANY_LAW, 0.2, 0.2, 1.0, 1.0, -3.0, 3.0, True)[1] == pytest.approx(0.115555555555555556)


# -- any law -----------------------------------------------------------------------------------------------------------


@numba.njit
def check_band(mu1, mu2, v1, v2, low, high, level):
    missed = extra = rejected = 0
    for k in range(len(mu1)):
        _, most = node_bounds(ANY_LAW, mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], False)
        on_grid = False
        for a in range(41):
            mu = grid_point(a, 41, mu1[k], mu2[k])
            for b in range(5):
                on_grid |= candidate(mu, math.sqrt(grid_point(b, 5, v1[k], v2[k])), low[k], high[k], level[k])
        # a narrow band may lie between two points of the grid: the point of the node nearest to it tells
        mu = min(max(0.5 * (low[k] + high[k]), mu1[k]), mu2[k])
        attained = candidate(mu, math.sqrt(v2[k]), low[k] - 1e-9, high[k] + 1e-9, level[k] * (1.0 - 1e-9))
        missed += on_grid and most < level[k] - 1e-12
        extra += most >= level[k] and not attained
        rejected += most < level[k]
    return missed, extra, rejected


def test_band_node_test_is_exact_for_moments():
    """GMJ: a node is passed over if and only if none of its points fulfils Theorem 1."""
    missed, extra, rejected = check_band(*random_nodes(3))
    assert missed == extra == 0
    assert rejected > fewer(10_000)


@numba.njit
def check_laws(mu1, mu2, v1, v2, low, high, level, draws, laws):
    """A law in each node (a mixture of two Gaussians with its moments), asked inside and outside the band."""
    missed = wrong = likely = sure = over = 0
    for k in range(len(mu1)):
        mu = mu1[k] + draws[k, 0] * (mu2[k] - mu1[k])
        v = v1[k] + draws[k, 1] * (v2[k] - v1[k])
        # two means around mu, at distances that take a share of the variance; the rest is spread inside
        w = 0.01 + 0.98 * draws[k, 2] if laws == 2 else 1.0
        apart = math.sqrt(draws[k, 3] * v / (w * (1.0 - w))) if laws == 2 else 0.0
        sigma = math.sqrt((1.0 - draws[k, 3]) * v) if laws == 2 else math.sqrt(v)
        first, second = mu - (1.0 - w) * apart, mu + w * apart
        inside = w * gaussian_in(first, sigma, low[k], high[k])
        if laws == 2:
            inside += (1.0 - w) * gaussian_in(second, sigma, low[k], high[k])
        for outside in (False, True):
            p = 1.0 - inside if outside else inside
            least, most = node_bounds(ANY_LAW, mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], outside)
            loosest = node_bounds(CHEBYSHEV, mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], outside)
            likely += p >= level[k]
            sure += least >= level[k]
            missed += p >= level[k] and most < level[k] - 1e-12
            missed += p >= level[k] and loosest[1] < level[k] - 1e-12
            wrong += least >= level[k] and p < level[k] - 1e-12
            over += loosest[0] > least + 1e-12 or loosest[1] < most - 1e-12
    return missed, wrong, likely, sure, over


@pytest.mark.parametrize("laws", [1, 2])
def test_moment_bounds_hold_for_laws(laws):
    """Gaussians, and mixtures of two: neither Theorem 1 nor the mended Theorem 3 nor Selberg's bound is ever wrong."""
    draws = np.random.default_rng(laws).random((NODES, 4))
    missed, wrong, likely, sure, over = check_laws(*random_nodes(3 + laws), draws, laws)
    assert missed == wrong == over == 0
    assert likely > fewer(50_000)
    assert sure > fewer(10_000)


@numba.njit
def check_far(mu1, mu2, v1, v2, low, high, level):
    missed = extra = missed_paper = extra_paper = rejected = by_paper = 0
    for k in range(len(mu1)):
        centre, delta = 0.5 * (low[k] + high[k]), 0.5 * (high[k] - low[k])
        _, most = node_bounds(ANY_LAW, mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], True)
        _, paper = node_bounds(CHEBYSHEV, mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], True)
        _, sharp = extremes(mu1[k], mu2[k], v1[k], v2[k], low[k], high[k], 2, 21, 5)
        on_grid = False
        for a in range(21):
            mu = grid_point(a, 21, mu1[k], mu2[k]) - centre
            for b in range(5):
                on_grid |= far_candidate(mu, math.sqrt(grid_point(b, 5, v1[k], v2[k])), delta, level[k])
        missed += sharp >= level[k] + 1e-12 and most < level[k]
        extra += sharp < level[k] - 1e-12 and most >= level[k]
        missed_paper += on_grid and paper < level[k] - 1e-9
        extra_paper += not on_grid and paper >= level[k] + 1e-9
        rejected += most < level[k]
        by_paper += paper < level[k]
    return missed, extra, missed_paper, extra_paper, rejected, by_paper


def test_far_apart_node_tests_are_exact_for_moments():
    """Selberg's bound and the mended Theorem 3 are both decided at one corner, and the first rejects more."""
    *errors, rejected, by_paper = check_far(*random_nodes(6))
    assert errors == [0, 0, 0, 0]
    assert rejected > by_paper > fewer(1_000)


def test_theorem_3_as_printed_dismisses_matches():
    rng = np.random.default_rng(7)
    mu, sigma, delta = rng.normal(0.0, 3.0, NODES), rng.uniform(0.1, 3.0, NODES), rng.uniform(0.1, 6.0, NODES)
    level = rng.uniform(0.05, 0.95, NODES)
    p = np.array([1.0 - gaussian_in(*row) for row in zip(mu, sigma, -delta, delta, strict=True)])
    true = p >= level
    printed = delta <= np.abs(mu) - sigma / np.sqrt(level)
    mended = delta <= np.abs(mu) + sigma / np.sqrt(level)
    assert (true & ~printed).sum() > 0.4 * true.sum()
    assert (true & ~mended).sum() == 0
    # equations 7 and 8 with their sign and their "or"
    mu_r, mu_s = mu, np.zeros(NODES)
    v_r = v_s = 0.5 * sigma**2
    y = mu_s**2 - v_s / level
    seven = (mu_s <= mu_r - delta) | (y - 2 * (mu_r - delta) * mu_s <= -((mu_r - delta) ** 2) + v_r / level)
    eight = (mu_s >= mu_r + delta) | (y - 2 * (mu_r + delta) * mu_s <= -((mu_r + delta) ** 2) + v_r / level)
    assert ((seven | eight) == mended).all()


@numba.njit
def check_one_sided(mu1, mu2, v1, v2, end, level, law):
    missed = wrong = rejected = accepted = 0
    for k in range(len(mu1)):
        for above in (False, True):
            low, high = (end[k], math.inf) if above else (-math.inf, end[k])
            least, most = node_bounds(law, mu1[k], mu2[k], v1[k], v2[k], low, high, False)
            grid_least, grid_most = extremes(mu1[k], mu2[k], v1[k], v2[k], low, high, 0, 9, 9)
            missed += most < level[k] and grid_most >= level[k] + 1e-12
            wrong += least >= level[k] and grid_least < level[k] - 1e-12
            rejected += most < level[k]
            accepted += least >= level[k]
    return missed, wrong, rejected, accepted


@pytest.mark.parametrize("law", [ANY_LAW, GAUSSIAN])
def test_one_sided_node_tests(law):
    mu1, mu2, v1, v2, low, _, level = random_nodes(8)
    missed, wrong, rejected, accepted = check_one_sided(mu1, mu2, v1, v2, low, level, law)
    assert missed == wrong == 0
    assert rejected > fewer(10_000)
    assert accepted > fewer(10_000)


def test_extreme_nodes_decide_nothing_wrongly():
    """Variances and means that overflow: the bounds may say nothing, but nothing wrong."""
    huge = 1e200
    for law in (ANY_LAW, GAUSSIAN, CHEBYSHEV):
        for outside in (False, True):
            least, most = node_bounds(law, -math.inf, math.inf, 0.0, math.inf, -1.0, 1.0, outside)
            assert not least > 0.0
            assert not most < 1.0
            least, most = node_bounds(law, 0.0, 0.0, huge * huge, huge * huge, -1.0, 1.0, outside)
            assert not least > (1.0 if outside else 0.0)
        assert node_bounds(law, 0.0, 9.0, 0.0, 1.0, -math.inf, math.inf, False) == (1.0, 1.0)
    # a region that is one point holds atoms alone
    assert node_bounds(GAUSSIAN, -1.0, 1.0, 0.0, 1.0, 0.0, 0.0, False) == (0.0, 1.0)
    assert node_bounds(GAUSSIAN, -1.0, 1.0, 0.5, 1.0, 0.0, 0.0, False) == (0.0, 0.0)
    assert node_bounds(GAUSSIAN, 1.0, 2.0, 0.0, 1.0, 0.0, 0.0, False) == (0.0, 0.0)


# -- the tree ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 2, 15, 16, 17, 255, 257, 1000, 5000])
@pytest.mark.parametrize("attributes", [1, 2])
def test_tree_holds_every_row_once_and_boxes_hold_their_rows(rows, attributes):
    rng = np.random.default_rng(rows)
    boxes = np.sort(rng.choice([0.0, 1.0, 1e300, np.inf], (rows, 4 * attributes)) * rng.random((rows, 1)), axis=1)
    boxes = np.nan_to_num(boxes, nan=0.0, posinf=np.inf)
    tree = build_tree(boxes)
    assert sorted(tree.order.tolist()) == list(range(rows))
    assert np.array_equal(tree.box[:rows], boxes[tree.order])
    seen = np.zeros(len(tree.first), int)
    for node in range(rows, len(tree.first)):
        children = slice(tree.first[node], tree.last[node])
        seen[children] += 1
        covered = tree.box[tree.begin[node] : tree.end[node]]
        assert np.array_equal(tree.box[node, 0::2], covered[:, 0::2].min(axis=0))
        assert np.array_equal(tree.box[node, 1::2], covered[:, 1::2].max(axis=0))
        assert tree.begin[node] == tree.begin[children][0]
        assert tree.end[node] == tree.end[children][-1]
    assert (seen[:-1] == 1).all()
    if rows:
        assert (tree.begin[-1], tree.end[-1]) == (0, rows)


def test_tiles_are_small():
    """Leaves of random rows are about square: a slice of the means, and within it of the variances."""
    boxes = np.repeat(np.random.default_rng(1).random((4096, 2)), 2, axis=1)
    tree = build_tree(boxes)
    leaves = tree.box[4096 : 4096 + 256]
    assert (leaves[:, 1] - leaves[:, 0]).mean() < 2 / 16
    assert (leaves[:, 3] - leaves[:, 2]).mean() < 2 / 16


def test_a_node_needs_two_children():
    with pytest.raises(HaplyError, match="too few children"):
        build_tree(np.zeros((3, 4)), fanout=1)


def test_boxes_hold_the_moments():
    """Of every model, with room for the rounding where moments are sums; infinite where no double holds them."""
    for model in (
        Certain([3.0]), Uniform([1.0], [4.0]), Gaussian([3.0], [2.0]), TruncatedGaussian([0.0], [1.0], [-1.0], [1e9]),
        Mixture([[0.3, 0.7]], [[1.0, 2.0]], [[1.0, 0.0]]), Histogram([[0.0, 1.0, 3.0]], [[0.5, 0.5]]),
        Samples([[1.0, 2.0, 9.0]]),
    ):  # fmt: skip
        (x1, x2, y1, y2) = moment_boxes([model])[0]
        assert x1 <= model.mean()[0] <= x2
        assert y1 <= math.sqrt(model.variance()[0]) <= y2
        assert x2 - x1 <= 1e-5
    assert moment_boxes([Uniform([-1.7e308], [1.7e308])])[0].tolist() == [-np.inf, np.inf, 0.0, np.inf]
    with pytest.raises(HaplyError, match="differ in length"):
        moment_boxes([Certain([1.0]), Certain([1.0, 2.0])])


def test_answers_come_in_blocks(monkeypatch):
    """More candidates than a block holds: each once, and as many as without blocks."""
    rng = np.random.default_rng(4)
    left, right = (Gaussian(rng.uniform(0, 10, 300), rng.uniform(0, 1, 300)) for _ in range(2))
    found = []
    for room in (1, 1 << 16):
        monkeypatch.setattr("haply.pruning.candidates.moments._ENOUGH", room)
        question = question_of([GAUSSIAN], [Region(-1.0, 1.0)], Threshold(0.3), True)
        asking, pairs, blocks = Asking(build_tree(moment_boxes([right])), moment_boxes([left]), question), [], 0
        while (block := asking.block()) is not None:
            pairs += zip(block[0].probe.tolist(), block[0].row.tolist(), strict=True)
            blocks += 1
        found.append((sorted(pairs), blocks))
    assert found[0][0] == found[1][0]
    assert len(set(found[0][0])) == len(found[0][0]) > 1000
    assert found[0][1] > found[1][1]


# -- x-bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1e-6, 0.1, 0.7, 0.95])
def test_xbound_nodes_dismiss_no_match(level):
    """Gaussian pairs against x-bounds taken at a threshold less the mass beyond five deviations on one side."""
    rng = np.random.default_rng(int(1e6 * level))
    left, right = (Gaussian(rng.normal(0.0, 6.0, NODES), rng.exponential(2.0, NODES)) for _ in range(2))
    region = Region(-2.0, 3.0)
    boxes, probes = xbound_boxes([right], [left], Threshold(level)), xbound_probes([left], [region])
    kept = (boxes[:, 0] <= probes[:, 0]) & (boxes[:, 3] >= probes[:, 1])
    mu, sigma = left.mean() - right.mean(), np.hypot(left.sd, right.sd)
    p = np.array([gaussian_in(m, s, region.low, region.high) for m, s in zip(mu, sigma, strict=True)])
    assert not (~kept & (p >= level)).any()
    assert (p >= level).any()
    if level > 1e-3:
        assert (~kept).sum() > fewer(10_000)
