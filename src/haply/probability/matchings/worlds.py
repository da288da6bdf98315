"""What is asked of one-to-one worlds: the best one, the probabilities of pairs, and the components."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.numerics.jit import kernel
from haply.probability.matchings.assignment import assign
from haply.probability.matchings.exact import TREE
from haply.probability.matchings.links import Brackets, PairGroups, connected, link_pairs
from haply.probability.matchings.problem import Problem, bracket

TOLERANCE = 1e-6
BUDGET = 10_000
"""Steps of bounds for each row of either side: they take some tenths of a millisecond."""
MOST_WEIGHT = 1e300
"""The largest weight: sums of weights are then in the range of doubles."""


@kernel
def shares_of_rows(odds, factor, rows, count):
    """Compute how likely pairs are, each against all others of its left row and none, and how likely any is, by row.

    A pair weighs ``odds * factor``. A factor is infinite where two certain values are equal: such pairs share the
    whole probability. ``rows`` are numbers below ``count``.
    """
    total, endless = np.zeros(count), np.zeros(count)
    shares, some = np.empty(len(rows)), np.empty(count)
    for pair in range(len(rows)):
        shares[pair] = odds * factor[pair]
        if shares[pair] == np.inf:
            endless[rows[pair]] += 1.0
        else:
            total[rows[pair]] += shares[pair]
    for pair in range(len(rows)):
        row = rows[pair]
        if endless[row] == 0.0:
            shares[pair] /= 1.0 + total[row]
        else:
            shares[pair] = 1.0 / endless[row] if shares[pair] == np.inf else 0.0
    for row in range(count):
        some[row] = total[row] / (1.0 + total[row]) if endless[row] == 0.0 else 1.0
    return shares, some


class Marginals(NamedTuple):
    """Bounds of the probability of pairs, and of rows without a partner; and what decided it, as in ``DECIDED_BY``."""

    pairs: Brackets
    unmatched_left: Brackets
    unmatched_right: Brackets
    decided_by: np.ndarray
    left_decided_by: np.ndarray
    right_decided_by: np.ndarray


def _checked(left: np.ndarray, right: np.ndarray, n_left: int, n_right: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row numbers of pairs as the kernels take them; refuse those that do not fit."""
    sides = []
    for name, rows, count in (("left", left, n_left), ("right", right, n_right)):
        numbers = np.ascontiguousarray(rows, np.int64)
        missing = numbers[(numbers < 0) | (numbers >= count)]
        if len(missing):
            raise HaplyError(
                f"A pair has a {name} row that does not exist", expected=f"0 to {count - 1}", found=str(missing[0])
            )
        sides.append(numbers)
    if len(sides[0]) != len(sides[1]):
        raise HaplyError("Pairs need two rows", expected=f"{len(sides[0])} right rows", found=str(len(sides[1])))
    return sides[0], sides[1]


def _by_rows(left: np.ndarray, right: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the numbers of chosen pairs by left row, then right row: the order of pairs then does not matter."""
    pairs = np.flatnonzero(chosen)
    one, other = left[pairs], right[pairs]
    step = np.diff(one)
    if ((step > 0) | ((step == 0) & (np.diff(other) >= 0))).all():
        return pairs
    return pairs[np.lexsort((other, one))]


def _firsts(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return where new pairs begin among sorted pairs."""
    new = np.ones(len(left), bool)
    new[1:] = (np.diff(left) != 0) | (np.diff(right) != 0)
    return np.flatnonzero(new)


def components(left: np.ndarray, right: np.ndarray, n_left: int, n_right: int) -> PairGroups:
    """Find which rows are connected by pairs, directly or through others.

    Parameters
    ----------
    left, right
        The rows of each pair.
    n_left, n_right
        How many rows there are.

    Returns
    -------
    PairGroups
        The number of the component of every left and every right row, -1 for rows without a pair, and their count.

    Examples
    --------
    >>> components(np.array([0, 1, 3]), np.array([0, 0, 2]), 4, 3)
    PairGroups(left=array([ 0,  0, -1,  1]), right=array([ 0, -1,  1]), groups=2)
    """
    pairs = _checked(left, right, n_left, n_right)
    islands = connected(link_pairs(*pairs, np.ones(len(pairs[0])), n_left, n_right))
    return PairGroups(islands.label[:n_left], islands.label[n_left:], len(islands.start) - 1)


def best_world(left: np.ndarray, right: np.ndarray, log_weight: np.ndarray, n_left: int, n_right: int) -> np.ndarray:
    """Find the pairs of the heaviest world: no row is in two of them, and their ``log_weight`` add up to the most.

    A pair is taken only for a positive ``log_weight``. Among worlds of equal weight the order of rows decides: earlier
    left rows keep what they have. For the most pairs that hold, on average, give probabilities as ``log_weight``.

    Parameters
    ----------
    left, right
        The rows of each pair.
    log_weight
        What each pair adds: the logarithm of its weight, or its probability. It may be minus infinity.
    n_left, n_right
        How many rows there are.

    Returns
    -------
    numpy.ndarray
        For each pair whether it is in that world.

    Examples
    --------
    >>> best_world(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0.9, 0.8, 0.8, 0.3]), 2, 2)
    array([False,  True,  True, False])
    """
    pairs = _checked(left, right, n_left, n_right)
    gain = np.ascontiguousarray(log_weight, np.float64)
    if not (gain < np.inf).all():
        raise HaplyError("A weight is infinite or NaN", expected="log weights below infinity", found=f"{gain.max()}")
    useful = _by_rows(*pairs, gain > 0.0)
    links = link_pairs(pairs[0][useful], pairs[1][useful], gain[useful], n_left, n_right)
    chosen = assign(links)[0]
    inside = np.zeros(len(gain), bool)
    inside[useful[links.pair[chosen[chosen >= 0]]]] = True
    return inside


def marginals(
    left: np.ndarray,
    right: np.ndarray,
    weight: np.ndarray,
    n_left: int,
    n_right: int,
    tolerance: float = TOLERANCE,
    budget: int = BUDGET,
) -> Marginals:
    """Compute how likely each pair is in a one-to-one world, and each row without a partner.

    Parameters
    ----------
    left, right
        The rows of each pair.
    weight
        The weight of each pair, from 0 to 1e300, where no partner has the weight 1: its posterior odds.
    n_left, n_right
        How many rows there are.
    tolerance
        How wide bounds may be where a value cannot be exact.
    budget
        How many steps of bounds a component may take for each of its rows; when they are spent, wider bounds are
        returned.

    Returns
    -------
    Marginals
        Bounds of the probability of every pair, of every left and right row without a partner, and what decided them.

    Examples
    --------
    >>> from haply.probability.matchings import DECIDED_BY
    >>> found = marginals(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([8, 6, 6, 0.5]), 2, 2)
    >>> (41 * found.pairs.low).round(12)
    array([ 8., 28., 28.,  3.])
    >>> DECIDED_BY[found.decided_by[0]]
    'subsets'
    """
    pairs = _checked(left, right, n_left, n_right)
    weights = np.ascontiguousarray(weight, np.float64)
    if not ((weights >= 0.0) & (weights <= MOST_WEIGHT)).all():
        worst = weights[~((weights >= 0.0) & (weights <= MOST_WEIGHT))][0]
        raise HaplyError("A weight is out of range", expected=f"0 to {MOST_WEIGHT:g}", found=f"{worst:g}")
    used = _by_rows(*pairs, weights > 0.0)
    first = _firsts(pairs[0][used], pairs[1][used])  # the same pair twice is one pair of both weights
    once, of_both = used[first], np.add.reduceat(weights[used], first) if len(first) else weights[used]
    problem = Problem(pairs[0][once], pairs[1][once], of_both, (n_left, n_right))
    hard = problem.solve()
    if hard.any():
        bracket(problem, hard, tolerance, np.diff(problem.islands.start) * budget)
    low, high, decided = np.zeros(len(weights)), np.zeros(len(weights)), np.zeros(len(weights), np.int8)
    which = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(used))))
    share = weights[used] / of_both[which]
    low[used], high[used] = problem.pair.low[which] * share, problem.pair.high[which] * share
    decided[used] = problem.decided[problem.label[which]]
    label = problem.islands.label
    by_node = np.where(label >= 0, problem.decided[label], TREE) if len(hard) else np.zeros(len(label), np.int8)
    alone = problem.alone
    return Marginals(
        Brackets(low, high),
        Brackets(alone.low[:n_left], alone.high[:n_left]),
        Brackets(alone.low[n_left:], alone.high[n_left:]),
        decided,
        by_node[:n_left],
        by_node[n_left:],
    )
