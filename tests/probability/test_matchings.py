"""One-to-one worlds against all matchings, and in large against closed forms, subsets and assignment solvers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from amounts import fewer
from haply.errors import HaplyError
from haply.probability.matchings import DECIDED_BY, best_world, components, marginals, shares_of_rows
from haply.probability.matchings.assignment import assign
from haply.probability.matchings.links import link_pairs
from haply.probability.matchings.problem import Problem, bracket

# -- the referees -----------------------------------------------------------------------------------------------------


def flat(matrix):
    """The pairs of positive weight, as the functions take them: rows, columns, weights, and how many of each."""
    matrix = np.asarray(matrix, float)
    left, right = np.nonzero(matrix)
    return left, right, matrix[left, right], *matrix.shape


def all_worlds(matrix, row=0, taken=frozenset()):
    """Every partial matching as its pairs; those of weight 0 are left out."""
    if row == len(matrix):
        yield ()
        return
    for rest in all_worlds(matrix, row + 1, taken):
        yield rest
    for column, weight in enumerate(matrix[row]):
        if weight > 0 and column not in taken:
            for rest in all_worlds(matrix, row + 1, taken | {column}):
                yield ((row, column), *rest)


def enumerated(matrix):
    """Probabilities of pairs, of rows alone and of columns alone, in rational arithmetic."""
    exact = [[Fraction(float(weight)) for weight in row] for row in matrix]
    n, m = len(exact), len(exact[0])
    pair, lone_rows, lone_columns = np.zeros((n, m), object), np.zeros(n, object), np.zeros(m, object)
    whole = Fraction(0)
    for world in all_worlds(matrix):
        weight = math.prod((exact[i][j] for i, j in world), start=Fraction(1))
        whole += weight
        for i, j in world:
            pair[i, j] += weight
        rows, columns = {i for i, _ in world}, {j for _, j in world}
        lone_rows[[i for i in range(n) if i not in rows]] += weight
        lone_columns[[j for j in range(m) if j not in columns]] += weight
    return [np.array(found / whole, float) for found in (pair, lone_rows, lone_columns)]


def heaviest(matrix, gain):
    """The largest sum of gains over all matchings."""
    return max(math.fsum(gain[i][j] for i, j in world) for world in all_worlds(matrix))


def whole_weight(matrix):
    """The weight of all worlds, by subsets of columns; whole arrays at a time."""
    n, m = matrix.shape
    table = np.zeros(1 << m)
    table[0] = 1.0
    for row in range(n):
        following = table.copy()
        for column in range(m):
            if matrix[row, column]:
                shaped, into = table.reshape(-1, 2, 1 << column), following.reshape(-1, 2, 1 << column)
                into[:, 1] += matrix[row, column] * shaped[:, 0]
        table = following
    return table.sum()


def random_matrix(rng, n, m, low=-12.0, high=12.0, share=0.8):
    matrix = 10.0 ** rng.uniform(low, high, (n, m))
    return np.where(rng.random((n, m)) < share, matrix, 0.0)


def assert_exact(matrix, rel=1e-12):
    """Compare with the enumeration; weights down to 1e-300 keep their digits."""
    left, right, weight, *shape = flat(matrix)
    found = marginals(left, right, weight, *shape)
    pair, rows, columns = enumerated(matrix)
    for bounds, wanted in (
        (found.pairs, pair[left, right]),
        (found.unmatched_left, rows),
        (found.unmatched_right, columns),
    ):
        assert (bounds.low == bounds.high).all()
        assert bounds.low == pytest.approx(wanted, rel=rel, abs=1e-300)
    assert set(found.decided_by) <= {0, 1}


def random_tree(rng, count):
    """A tree over ``count`` nodes as pairs of left and right rows: the two colours of its nodes."""
    parent = np.array([rng.integers(max(0, node - 50), node) for node in range(1, count)])
    colour = np.zeros(count, bool)
    for node in range(1, count):
        colour[node] = not colour[parent[node - 1]]
    number = np.where(colour, np.cumsum(colour) - 1, np.cumsum(~colour) - 1)
    one, other = np.arange(1, count), parent
    left = np.where(colour[one], number[other], number[one])
    right = np.where(colour[one], number[one], number[other])
    return left, right, int((~colour).sum()), int(colour.sum())


def tree_weight(left, right, weight, without):
    """The weight of all worlds of a forest without some nodes, in 30 digits: leaves first."""
    edges = {}
    for i, j, w in zip(left.tolist(), right.tolist(), weight.tolist(), strict=True):
        one, other = ("l", i), ("r", j)
        if one not in without and other not in without:
            edges.setdefault(one, []).append((other, w))
            edges.setdefault(other, []).append((one, w))
    seen, whole = set(), mpf(1)
    for root in edges:
        if root in seen:
            continue
        order, parent = [root], {root: None}
        for node in order:
            for other, _ in edges[node]:
                if other != parent[node]:
                    parent[other] = node
                    order.append(other)
        seen.update(order)
        alone, total = {}, {}  # the weight of the worlds below a node that leave it alone, and of all
        for node in reversed(order):
            children = [(other, w) for other, w in edges[node] if other != parent[node]]
            alone[node] = mp.fprod(total[other] for other, _ in children)
            total[node] = alone[node] * (1 + mp.fsum(w * alone[other] / total[other] for other, w in children))
        whole *= total[root]
    return whole


# -- golden values ----------------------------------------------------------------------------------------------------

B1 = [[8, 6], [6, 0.5]]
B2 = [[3, 1, 0], [2, 4, 0.5], [0, 1, 2]]


def test_golden_worlds():
    left, right, weight, *shape = flat(B1)
    found = marginals(left, right, weight, *shape)
    assert found.pairs.low == pytest.approx([8 / 41, 28 / 41, 28 / 41, 3 / 41], rel=1e-15)
    assert found.unmatched_left.low == pytest.approx([5 / 41, 10 / 41], rel=1e-15)
    assert best_world(left, right, np.log(weight), *shape).tolist() == [False, True, True, False]
    left, right, weight, *shape = flat(B2)
    found = marginals(left, right, weight, *shape)
    wanted = [34 / 57, 1 / 9, 28 / 171, 32 / 57, 1 / 19, 16 / 171, 100 / 171]
    assert found.pairs.low == pytest.approx(wanted, rel=1e-15)
    assert best_world(left, right, np.log(weight), *shape).tolist() == [
        (i == j) for i, j in zip(left, right, strict=True)
    ]
    for matrix, whole in ((B1, 123 / 2), (B2, 171 / 2)):
        assert whole_weight(np.array(matrix, float)) == whole


def test_golden_sum_of_probabilities():
    """B3: the most pairs that hold on average, not the best pair."""
    left, right, weight, *shape = flat([[0.9, 0.8], [0.8, 0.3]])
    assert best_world(left, right, weight, *shape).tolist() == [False, True, True, False]


# -- exact marginals --------------------------------------------------------------------------------------------------


@settings(max_examples=fewer(150), deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_marginals_against_all_worlds(n, m, seed):
    rng = np.random.default_rng(seed)
    assert_exact(random_matrix(rng, n, m, share=rng.uniform(0.3, 1.0)))


def test_weights_whose_products_are_no_doubles():
    rng = np.random.default_rng(3)
    for share in (1.0, 0.7, 0.5):
        assert_exact(random_matrix(rng, 5, 5, 150.0, 300.0, share))
        assert_exact(random_matrix(rng, 4, 6, -300.0, 300.0, share))
    found = marginals(*flat(np.full((4, 4), 1e300)))
    assert found.pairs.low == pytest.approx(np.full(16, 0.25), rel=1e-13)


@pytest.mark.parametrize(("n", "m"), [(16, 16), (12, 40), (40, 12), (14, 200), (200, 14)])
def test_more_rows_against_subsets(n, m):
    """Weights of 1e11 as well; probabilities from weights of all worlds without the two rows.

    Of 200 rows not all tables are kept at a time.
    """
    rng = np.random.default_rng(n)
    for low, high in ((-3.0, 3.0), (4.0, 11.0)):
        matrix = random_matrix(rng, n, m, low, high, 0.4)
        left, right, weight, *shape = flat(matrix)
        found = marginals(left, right, weight, *shape)
        assert (found.decided_by == 1).all()
        assert (found.pairs.low == found.pairs.high).all()
        turned = matrix if n >= m else matrix.T
        whole = whole_weight(turned)
        for k in rng.choice(len(left), 4, replace=False):
            rows = np.delete(np.delete(matrix, left[k], 0), right[k], 1)
            wanted = weight[k] * whole_weight(rows if n >= m else rows.T) / whole
            assert found.pairs.low[k] == pytest.approx(wanted, rel=1e-12)
        rows = np.delete(matrix, 0, 0)
        wanted = whole_weight(rows if n >= m else rows.T) / whole
        assert found.unmatched_left.low[0] == pytest.approx(wanted, rel=1e-12)


def test_long_bands_are_exact():
    """A ladder of thousands of rows, each beside three columns: few are open at once."""
    count = 3000
    rng = np.random.default_rng(8)
    left = np.repeat(np.arange(count), 3)
    right = (left + np.tile([0, 1, 2], count)) % (count + 2)
    weight = 10.0 ** rng.uniform(-4, 8, len(left))
    shuffled = rng.permutation(count)
    found = marginals(shuffled[left], right, weight, count, count + 2)
    assert (found.decided_by == 1).all()
    assert np.bincount(shuffled[left], found.pairs.low) + found.unmatched_left.low == pytest.approx(1.0, abs=1e-12)
    assert np.bincount(right, found.pairs.low) + found.unmatched_right.low == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("count", [2, 3, 60, 4000])
def test_trees(count):
    rng = np.random.default_rng(count)
    left, right, *shape = random_tree(rng, count)
    weight = 10.0 ** rng.uniform(-12, 12, len(left))
    found = marginals(left, right, weight, *shape)
    assert (found.decided_by == 0).all()
    assert (found.left_decided_by == 0).all()
    with mp.workdps(30):
        whole = tree_weight(left, right, weight, set())
        for k in rng.choice(len(left), min(len(left), 6), replace=False):
            rest = tree_weight(left, right, weight, {("l", int(left[k])), ("r", int(right[k]))})
            assert found.pairs.low[k] == pytest.approx(float(mpf(weight[k]) * rest / whole), rel=1e-11)
        alone = float(tree_weight(left, right, weight, {("l", 0)}) / whole)
        assert found.unmatched_left.low[0] == pytest.approx(alone, rel=1e-11)


def test_a_star_of_many_rows():
    count = 100_000
    weight = np.where(np.arange(count) == 7, 1e11, 1.0)
    found = marginals(np.arange(count), np.zeros(count, int), weight, count, 1)
    assert found.pairs.low == pytest.approx(weight / (1 + weight.sum()), rel=1e-12)
    assert found.unmatched_left.low[7] == pytest.approx(count / (1 + weight.sum()), rel=1e-11)
    assert found.unmatched_right.low[0] == pytest.approx(1 / (1 + weight.sum()), rel=1e-12)


def test_the_same_pair_twice_is_two_ways():
    found = marginals(np.array([0, 0, 0]), np.array([0, 0, 1]), np.array([2.0, 3.0, 4.0]), 1, 2)
    assert found.pairs.low == pytest.approx([0.2, 0.3, 0.4], rel=1e-15)
    assert found.decided_by.tolist() == [0, 0, 0]


def test_rows_without_pairs_and_pairs_without_weight():
    found = marginals(np.array([0, 2]), np.array([1, 1]), np.array([1.0, 0.0]), 4, 2)
    assert found.pairs.low.tolist() == found.pairs.high.tolist() == [0.5, 0.0]
    assert found.unmatched_left.low.tolist() == [0.5, 1.0, 1.0, 1.0]
    assert found.unmatched_right.high.tolist() == [1.0, 0.5]
    nothing = marginals(np.zeros(0, int), np.zeros(0, int), np.zeros(0), 2, 0)
    assert nothing.unmatched_left.low.tolist() == [1.0, 1.0]
    assert DECIDED_BY[nothing.left_decided_by[0]] == "tree"


# -- bounds -----------------------------------------------------------------------------------------------------------


def assert_contained(problem, pairs, alone):
    for bounds, wanted in ((problem.pair, pairs), (problem.alone, alone)):
        assert (bounds.low <= wanted * (1 + 1e-12)).all()
        assert (bounds.high >= wanted * (1 - 1e-12)).all()


@settings(max_examples=fewer(60), deadline=None)
@given(st.integers(2, 4), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_bounds_contain_the_exact_value_at_every_depth(n, m, seed):
    """Without the exact ways, for all depths, with and without pairs left out."""
    rng = np.random.default_rng(seed)
    matrix = random_matrix(rng, n, m, *((-2.0, 1.0) if seed % 2 else (-9.0, 9.0)))
    left, right, weight, *shape = flat(matrix)
    pair, rows, columns = enumerated(matrix)
    wanted, alone = pair[left, right], np.concatenate([rows, columns])
    problem = Problem(left, right, weight, tuple(shape))
    problem.bound()
    assert_contained(problem, wanted, alone)
    for depth in range(1, 8):
        problem = Problem(left, right, weight, tuple(shape))
        hard = np.ones(len(problem.decided), bool)
        problem.deepen(hard, np.full(len(hard), 10**6), range(depth, depth + 1), 0.0)
        assert_contained(problem, wanted, alone)
    # no path is longer than this
    assert problem.pair.high == pytest.approx(problem.pair.low, rel=1e-11, abs=1e-300)
    for tolerance in (0.5, 1e-3, 1e-6):
        problem = Problem(left, right, weight, tuple(shape))
        bracket(problem, np.ones(len(problem.decided), bool), tolerance, np.full(len(problem.decided), 10**6))
        assert_contained(problem, wanted, alone)
        assert (problem.pair.high - problem.pair.low <= tolerance).all()


def complete_weight(n, weight):
    """The weight of all worlds of n rows beside n columns with equal weights."""
    return sum(math.comb(n, k) ** 2 * math.factorial(k) * Fraction(weight) ** k for k in range(n + 1))


@pytest.mark.parametrize("weight", [2.0**-20, 2.0**-6, 0.25, 8.0])
def test_components_that_are_too_dense(weight):
    """18 rows beside 18 columns: more columns than subsets are made of."""
    exact = Fraction(weight) * complete_weight(17, weight) / complete_weight(18, weight)
    found = marginals(*flat(np.full((18, 18), weight)), budget=50_000)
    assert (found.decided_by == 2).all()
    assert (found.left_decided_by == 2).all()
    assert (found.pairs.low <= float(exact)).all()
    assert (found.pairs.high >= float(exact)).all()
    if weight < 0.001:
        assert (found.pairs.high - found.pairs.low).max() < 1e-6
        assert (found.unmatched_left.high - found.unmatched_left.low).max() < 1e-6


def test_strong_pairs_take_a_dense_component_apart():
    """A true partner for every row, and many faint ones for all: what is left without the faint ones is exact."""
    rng = np.random.default_rng(2)
    matrix = 10.0 ** rng.uniform(-5, 1, (100, 100))
    matrix[np.arange(100), np.arange(100)] = 10.0 ** rng.uniform(9, 12, 100)
    left, right, weight, *shape = flat(matrix)
    found = marginals(left, right, weight, *shape)
    assert (found.decided_by == 2).all()
    assert (found.pairs.high - found.pairs.low).max() <= 1e-6
    assert (found.unmatched_left.high - found.unmatched_left.low).max() <= 1e-6
    assert found.pairs.high[left == right] == pytest.approx(1.0, abs=1e-6)


def crowded(rng, rows, side, error=0.25):
    """Left rows and their partners on a torus, and some others: pairs within 5 errors, weighted as sources are."""
    first = rng.uniform(0, side, (rows, 2))
    second = np.concatenate([first + rng.normal(0, error, first.shape), rng.uniform(0, side, (rows // 3, 2))])
    apart = np.abs(first[:, None] - second[None] % side)
    square = (np.minimum(apart, side - apart) ** 2).sum(axis=2)
    weight = 8.0 * np.exp(-square / (4 * error**2)) / (4 * math.pi * error**2)
    return np.where(square < (5 * error) ** 2, weight, 0.0)


def test_a_crowded_field():
    """More than fits into subsets: bounds hold against those of a larger budget, and probabilities add up to 1."""
    matrix = crowded(np.random.default_rng(1), 150, 9.0)
    left, right, weight, *shape = flat(matrix)
    coarse = marginals(left, right, weight, *shape, budget=300)
    fine = marginals(left, right, weight, *shape, budget=10_000)
    assert (fine.decided_by == 2).any()
    for one, other in zip(coarse[:3], fine[:3], strict=True):
        assert (one.low <= other.high * (1 + 1e-12)).all()
        assert (other.low <= one.high * (1 + 1e-12)).all()
        assert (other.high - other.low).mean() <= (one.high - one.low).mean()
    assert (np.bincount(left, fine.pairs.low, shape[0]) + fine.unmatched_left.low <= 1 + 1e-9).all()
    assert (np.bincount(left, fine.pairs.high, shape[0]) + fine.unmatched_left.high >= 1 - 1e-9).all()


def test_nothing_depends_on_the_order_of_pairs():
    rng = np.random.default_rng(4)
    left, right, weight, *shape = flat(crowded(rng, 60, 9.0))
    order = rng.permutation(len(left))
    one, other = marginals(left, right, weight, *shape), marginals(left[order], right[order], weight[order], *shape)
    assert (one.pairs.low[order] == other.pairs.low).all()
    assert (one.unmatched_left.high == other.unmatched_left.high).all()
    tied = np.round(np.log(weight))
    inside = best_world(left, right, tied, *shape)
    assert (inside[order] == best_world(left[order], right[order], tied[order], *shape)).all()


# -- the best world ---------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_best_world_against_all_worlds(n, m, seed, tied):
    rng = np.random.default_rng(seed)
    matrix = random_matrix(rng, n, m, share=rng.uniform(0.3, 1.0))
    gain = np.where(
        matrix > 0, np.round(rng.normal(0, 2, (n, m)) if tied else rng.normal(0, 10, (n, m)), 0 if tied else 9), 0
    )
    left, right, _, *shape = flat(matrix)
    inside = best_world(left, right, gain[left, right], *shape)
    assert len(set(left[inside])) == len(set(right[inside])) == inside.sum()
    assert (gain[left, right][inside] > 0).all()
    assert gain[left, right][inside].sum() == pytest.approx(heaviest(matrix, gain), abs=1e-9)


@pytest.mark.parametrize(("n", "m", "share"), [(40, 60, 1.0), (80, 50, 0.1), (200, 200, 0.03), (300, 300, 0.01)])
def test_best_world_against_an_assignment_solver(n, m, share):
    rng = np.random.default_rng(n)
    gain = np.where(rng.random((n, m)) < share, rng.normal(3, 8, (n, m)), 0.0)
    left, right, values, *shape = flat(gain)
    inside = best_world(left, right, values, *shape)
    square = np.zeros((n, m + n))
    square[:, :m] = np.where(gain == 0.0, -1e9, gain)
    rows, columns = linear_sum_assignment(square, maximize=True)
    assert values[inside].sum() == pytest.approx(square[rows, columns].sum(), rel=1e-12)
    assert len(set(left[inside])) == len(set(right[inside])) == inside.sum()


def test_prices_prove_the_best_world():
    """No price is negative, none is too low for a pair, and together they are worth what the world is."""
    rng = np.random.default_rng(7)
    left, right, values, *shape = flat(np.where(rng.random((500, 400)) < 0.02, rng.normal(0, 30, (500, 400)), 0.0))
    chosen, value = assign(link_pairs(left, right, values, *shape))
    inside = best_world(left, right, values, *shape)
    assert (value >= 0.0).all()
    assert (value[left] + value[500 + right] >= values - 1e-9).all()
    assert value.sum() == pytest.approx(values[inside].sum(), rel=1e-12)
    assert (chosen >= 0).sum() == inside.sum()


def test_earlier_rows_keep_what_they_have():
    pairs = np.array([0, 1, 2]), np.array([0, 0, 0])
    assert best_world(*pairs, np.array([1.0, 1.0, 1.0]), 3, 1).tolist() == [True, False, False]
    assert best_world(*pairs, np.array([1.0, 2.0, 2.0]), 3, 1).tolist() == [False, True, False]
    assert best_world(*pairs, np.array([0.0, -1.0, -np.inf]), 3, 1).tolist() == [False, False, False]


# -- components -------------------------------------------------------------------------------------------------------


def test_components_against_scipy():
    rng = np.random.default_rng(9)
    n, m, count = 300, 250, 280
    left, right = rng.integers(0, n, count), rng.integers(0, m, count)
    found = components(left, right, n, m)
    graph = coo_array((np.ones(count), (left, n + right)), shape=(n + m, n + m))
    _, wanted = connected_components(graph, directed=False)
    labels = np.concatenate([found.left, found.right])
    met = np.bincount(np.concatenate([left, n + right]), minlength=n + m) > 0
    assert ((labels >= 0) == met).all()
    assert len(set(zip(labels[met], wanted[met], strict=True))) == found.groups == len(set(wanted[met]))
    firsts = [np.flatnonzero(found.left == group)[0] for group in range(found.groups)]
    assert firsts == sorted(firsts)


def test_errors_tell_what_is_wrong():
    one = np.array([0])
    with pytest.raises(HaplyError, match="right row that does not exist"):
        components(one, np.array([3]), 1, 3)
    with pytest.raises(HaplyError, match=r"left row that does not exist.*(?s:.*)-1"):
        components(np.array([0, -1]), np.array([0, 1]), 1, 3)
    with pytest.raises(HaplyError, match="out of range"):
        marginals(one, one, np.array([math.inf]), 1, 1)
    with pytest.raises(HaplyError, match="out of range"):
        marginals(one, one, np.array([-1.0]), 1, 1)
    with pytest.raises(HaplyError, match="infinite or NaN"):
        best_world(one, one, np.array([math.nan]), 1, 1)
    with pytest.raises(HaplyError, match="two rows"):
        components(one, np.array([0, 0]), 1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_shares_of_rows_by_themselves(seed):
    """A pair's weight beside all weights of its row and 1; infinite ones share all of it."""
    rng = np.random.default_rng(seed)
    count, pairs = int(rng.integers(1, 8)), int(rng.integers(0, 25))
    rows, factor = rng.integers(0, count, pairs), rng.integers(0, 40, pairs) / 8.0
    factor[rng.random(pairs) < 0.2 * (seed % 2)] = math.inf
    shares, some = shares_of_rows(0.75, factor, rows, count)
    for row in range(count):
        own = np.flatnonzero(rows == row)
        if np.isinf(factor[own]).any():
            wanted = [Fraction(int(np.isinf(one)), int(np.isinf(factor[own]).sum())) for one in factor[own]]
        else:
            weights = [Fraction(3, 4) * Fraction(one) for one in factor[own].tolist()]
            wanted = [weight / (1 + sum(weights)) for weight in weights]
        assert shares[own] == pytest.approx(list(map(float, wanted)), rel=1e-14)
        assert some[row] == pytest.approx(float(sum(wanted)), rel=1e-14)
