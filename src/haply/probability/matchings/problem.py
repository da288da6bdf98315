"""The pairs of some components: solved where that can be exact, otherwise bounded."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from haply.numerics.jit import kernel
from haply.probability.matchings.assignment import assign
from haply.probability.matchings.bounds import arriving, tighten_all, tighten_nodes, widths, without_others
from haply.probability.matchings.exact import BRACKET, solve_exactly
from haply.probability.matchings.links import Brackets, connected, link_pairs

_PLAIN = 500.0
"""If the weight of all worlds is at most ``exp`` of this, weights are not scaled."""
_STAGES = (range(0), range(3, 5), range(5, 10_000))
"""Depths of the search before weak pairs are left out, after the first time, and after the second. The first two steps
need no search."""
_DROPPED = 0.2
"""The share of the tolerance for the pairs that are left out each time."""
_CUTOFF = 1e-3
"""Branches whose share of the answer is below this part of the tolerance are not followed."""


class Problem:
    """Holds the pairs of some components with positive weights: solved where that can be exact, otherwise bounded."""

    def __init__(self, left: np.ndarray, right: np.ndarray, weight: np.ndarray, shape: tuple[int, int]) -> None:
        self.left, self.right, self.weight, self.shape = left, right, weight, shape
        self.links = link_pairs(left, right, weight, *shape)
        self.islands = connected(self.links)
        self.label = self.islands.label[left]
        """The component of each pair."""
        self.pair = Brackets(np.zeros(len(left)), np.ones(len(left)))
        self.alone = Brackets(np.zeros(sum(shape)), np.ones(sum(shape)))
        """Bounds of every node to have no partner; left rows, then right rows."""
        self.decided = np.zeros(len(self.islands.start) - 1, np.int8)

    def take(self, kept: np.ndarray) -> Problem:
        """Return the same rows with some of the pairs."""
        return Problem(self.left[kept], self.right[kept], self.weight[kept], self.shape)

    def solve(self) -> np.ndarray:
        """Compute exactly what can be; return which components cannot."""
        scaled, spare = self._scaled()
        likely, alone = np.zeros(len(self.left)), np.ones(len(self.islands.label))
        solve_exactly(self.links, self.islands, scaled, spare, likely, alone, self.decided)
        hard = self.decided == BRACKET
        for bounds, values, labels in ((self.pair, likely, self.label), (self.alone, alone, self.islands.label)):
            exact = ~(hard[labels] & (labels >= 0)) if len(hard) else np.ones(len(labels), bool)
            bounds.low[exact] = bounds.high[exact] = np.minimum(1.0, values[exact])
        return hard

    def _scaled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights of pairs, and of nodes without a partner, for which the weights of worlds are in range.

        They are scaled by the prices of the best world: it has the weight 1 then, and no pair or node has more. Weights
        that underflow are negligible beside that world.
        """
        label, n_left = self.islands.label, self.shape[0]
        size, linked = np.log1p(_sums(self.links)), self.islands.label >= 0
        side = np.arange(len(label)) < n_left
        count = len(self.decided)
        wholes = [np.bincount(label[linked & one], size[linked & one], count) for one in (side, ~side)]
        large = np.minimum(*wholes) > _PLAIN
        if not large.any():
            return self.weight, np.ones(len(label))
        logs = np.log(self.weight)
        value = assign(link_pairs(self.left, self.right, logs, *self.shape))[1]
        value[~(linked & large[label])] = 0.0
        return np.exp(logs - value[self.left] - value[n_left + self.right]), np.exp(-value)

    @cached_property
    def least(self) -> np.ndarray:
        """Bound ``x`` of the node of every place from below, in the graph without the other end of the place."""
        return without_others(self.links, self.links.weight)

    def bound(self) -> None:
        """Bound everything by the first steps of the recursion, in one pass over all pairs each.

        At this depth no path meets itself: without ``v``, the lower bounds of the other neighbours of ``x_u`` give an
        upper bound of it, and upper bounds found in this way give a lower bound.
        """
        most = without_others(self.links, arriving(self.links, self.least))
        least = without_others(self.links, arriving(self.links, most))
        messages = arriving(self.links, least), arriving(self.links, most)
        tighten_all(self.links, *messages, *self.pair, *self.alone)

    def deepen(self, hard: np.ndarray, left_over: np.ndarray, depths: range, tolerance: float) -> None:
        """Follow the recursion to increasing depths for the nodes of some components, within the rest of a budget."""
        label = self.islands.label
        unfinished, steps = (label >= 0) & hard[label], np.zeros(len(label), np.int64)
        for depth in depths:
            wide = widths(self.links, *self.pair, *self.alone) > tolerance
            roots = np.flatnonzero(unfinished & wide)
            if not len(roots):
                return
            allowance = (left_over // np.maximum(1, np.bincount(label[roots], minlength=len(hard))))[label[roots]]
            taken = tighten_nodes(
                self.links, self.least, roots, depth, tolerance * _CUTOFF, allowance, *self.pair, *self.alone
            )  # fmt: skip
            # a node without steps left, or with the same number of steps as before, is finished
            unfinished[roots[(taken > allowance) | (taken == steps[roots])]] = False
            steps[roots] = taken
            left_over -= np.bincount(label[roots], np.minimum(taken, allowance), len(hard)).astype(np.int64)


@kernel
def _sums(links):
    out = np.zeros(len(links.start) - 1)
    for v in range(len(out)):
        for at in range(links.start[v], links.start[v + 1]):
            out[v] += links.weight[at]
    return out


def _weak(problem: Problem, hard: np.ndarray, allowed: float) -> tuple[np.ndarray, np.ndarray]:
    """Flag pairs of hard components that are so unlikely that all of them together are below what is allowed.

    Returns also, for each component, a bound of the probability that a world has one of them.
    """
    order = np.lexsort((problem.pair.high, problem.label))
    high, label = problem.pair.high[order], problem.label[order]
    first = np.searchsorted(label, np.arange(len(hard)))
    upto = np.cumsum(high)
    upto -= (upto - high)[first][label]
    upto *= 1.0 + 1e-9
    dropped = np.zeros(len(order), bool)
    dropped[order] = weak = hard[label] & (upto + 1e-15 * len(high) <= allowed)
    return dropped, np.bincount(label, weak * high, len(hard)) * (1.0 + 1e-9)


def _narrow(bounds: Brackets, inner: Brackets, at: np.ndarray, missing: np.ndarray) -> None:
    """Take over bounds that hold in all worlds except a share of at most ``missing``."""
    low, high = inner.low * (1.0 - missing), inner.high + missing * (1.0 - inner.high)
    bounds.low[at] = np.maximum(bounds.low[at], low)
    bounds.high[at] = np.maximum(bounds.low[at], np.minimum(bounds.high[at], high))


def bracket(problem: Problem, hard: np.ndarray, tolerance: float, left_over: np.ndarray, stage: int = 0) -> None:
    """Bound what cannot be exact: by the recursion, then without weak pairs, which may split components, and so on.

    A world has one of the omitted pairs with probability ``missing`` at most, and is otherwise a world of the others.
    So each probability is at least ``(1 - missing)`` times that among the others, and at most ``missing`` more.
    """
    problem.bound()
    now = left_over if stage == len(_STAGES) - 1 else left_over // 2
    later = left_over - now
    problem.deepen(hard, now, _STAGES[stage], 0.5 * tolerance)
    if stage == len(_STAGES) - 1:
        return
    label = problem.islands.label
    dropped, missing = _weak(problem, hard, _DROPPED * tolerance)
    kept = np.flatnonzero(hard[problem.label] & ~dropped)
    rest = problem.take(kept)
    still_hard = rest.solve()
    if still_hard.any():
        # the rest of a component's budget is divided among the components into which it split, by their sizes
        whole, size = label[rest.islands.nodes[rest.islands.start[:-1]]], np.diff(rest.islands.start) * still_hard
        share = size / np.maximum(1, np.bincount(whole, size, len(hard)))[whole]
        bracket(rest, still_hard, tolerance, ((now + later)[whole] * share).astype(np.int64), stage + 1)
    _narrow(problem.pair, rest.pair, kept, missing[problem.label[kept]])
    nodes = np.flatnonzero((label >= 0) & hard[label])
    inner = Brackets(rest.alone.low[nodes], rest.alone.high[nodes])
    _narrow(problem.alone, inner, nodes, missing[label[nodes]])
