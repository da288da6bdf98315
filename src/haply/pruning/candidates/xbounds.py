"""x-bounds: bounds on all values of a page at once, and the page pairs that they decide (Cheng et al. 2005, 4).

The *left x-bound* of a set of values at level ``x`` is a position with at most ``x`` of each of them below it, the
*right x-bound* one with at most ``x`` of each above it. Tight ones are the least and the greatest quantile of the set,
so a node takes them from its children by minimum and maximum. A table holds them at ascending levels, the first of
which is 0: the ends of the supports, the node's box.

For nodes ``R`` (left) and ``S`` (right) and the condition ``low <= A - B <= high``:

* *parted*: if ``R.left(x) > S.right(y) + high`` then outside an event of probability ``x + y - x y`` every pair has
  ``A - B > high``, and the mirror image. The paper's tests have ``x = 0`` or ``y = 0``; the strong ones take any two.
* *dense*: if at most ``x`` of every ``A`` is within reach of the box of ``S``, then
  ``P <= x * min(1, (high - low) * peak of S)``, as in Theorem 1 times the concentration. Strong tests only.
* *contained*: if ``R.right(j) - S.left(k) <= high`` and ``R.left(i) - S.right(l) >= low`` then every pair has
  ``P >= (1 - x_i - x_j)(1 - x_k - x_l)``. Strong tests only.

Upper bounds on ``P`` prune; upper bounds on ``1 - P`` include; for the outside of an interval they are exchanged. All
are for independent values, and positions are compared with a slack that covers their rounding, so that they also hold
for atoms and ties, and for open and closed conditions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.models import OneDimensional
from haply.numerics.jit import bare_inner, kernel
from haply.probability.region import Region
from haply.pruning.threshold import CERTAIN_LEVEL, Pairing, Threshold

PRUNE, CHECK, INCLUDE = -1, 0, 1
"""The result of a test for all pairs of two nodes: none is kept, they must be tested, all are kept."""

Tests = Literal["none", "box", "paper", "strong"]
TESTS = ("none", "box", "paper", "strong")
"""Which tests are made: none; on the ends of the supports; the paper's on x-bounds; the strong ones as well."""

PAPER_LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The levels that benches of the paper declare (it prints none)."""

_GRID = (0.0, CERTAIN_LEVEL, 0.01, 0.05, *PAPER_LEVELS[1:])
_POSITION_SLACK = 8 * float(np.finfo(np.float64).eps)
_SURE = 5 * CERTAIN_LEVEL
"""The probability of four tails together that vanish in rounding."""


class XBounds(NamedTuple):
    """x-bounds of nodes (pages, nodes of a tree, single values): a row for each node and a column for each level."""

    left: np.ndarray
    right: np.ndarray
    peak: np.ndarray


class PageCondition(NamedTuple):
    """The condition of a node test, flat for the kernels; the first ``used`` levels of the tables are used."""

    levels: np.ndarray
    used: int
    strong: bool
    low: float
    high: float
    outside: bool
    reject: float
    may_miss: float


def levels_for(threshold: Threshold, exact: bool) -> np.ndarray:
    """Return levels for one threshold: a grid, and the levels at which the tests of this threshold are sharpest.

    Two tails of the *core level* make exactly the threshold, and so does one tail of the threshold itself; likewise for
    including. Unbounded values have infinite ends, so a tail lost in rounding is used instead.
    """
    core = threshold.core_level(Pairing.ANY)
    found = {*_GRID, core, threshold.reject_below, threshold.sure_level(exact, Pairing.ANY)}
    return checked_levels(sorted(level for level in found if level < 1.0))


def checked_levels(levels: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return levels as an array; refuse them unless they ascend from 0 and stay below 1."""
    array = np.array(levels, dtype=np.float64)
    if array.ndim != 1 or not len(array) or array[0] != 0.0 or not (np.diff(array) > 0.0).all() or array[-1] >= 1.0:
        raise HaplyError(
            "The levels of x-bounds are not in order",
            expected="ascending numbers, the first 0 and the last below 1",
            found=str(levels),
        )
    return array


def question(region: Region, threshold: Threshold, exact: bool, levels: np.ndarray, tests: str) -> PageCondition:
    """Return the condition of node tests; with ``exact`` only pairs of probability 1.0 may be included untested."""
    if tests not in TESTS:
        raise unknown_name("choice of tests", tests, TESTS)
    used = {"none": 0, "box": 1}.get(tests, len(levels))
    may_miss = max(_SURE, 0.0 if exact else 1.0 - threshold.accept_from) if threshold.attainable else -1.0
    ends = float(region.low), float(region.high)
    return PageCondition(levels, used, tests == "strong", *ends, region.outside, threshold.reject_below, may_miss)


def mirrored(asked: PageCondition) -> PageCondition:
    """Return the same condition with right values on the left."""
    return asked._replace(low=-asked.high, high=-asked.low)


def value_bounds(model: OneDimensional, levels: np.ndarray) -> XBounds:
    """Return the x-bounds of single values: their quantiles."""
    left, right = np.empty((len(model), len(levels))), np.empty((len(model), len(levels)))
    for k, level in enumerate(levels.tolist()):
        left[:, k], right[:, k] = model.quantile_low(level), model.quantile_high(level)
    return XBounds(left, right, np.ascontiguousarray(model.peak_density()))


def group_bounds(values: XBounds, start: np.ndarray) -> XBounds:
    """Return tight x-bounds of consecutive groups that begin at ``start``; ``start[0]`` is 0 and no group is empty."""
    if len(start) < 2:
        return XBounds(values.left[:0], values.right[:0], values.peak[:0])
    first = start[:-1]
    return XBounds(
        np.minimum.reduceat(values.left, first),
        np.maximum.reduceat(values.right, first),
        np.maximum.reduceat(values.peak, first),
    )


@bare_inner
def _beyond(above, below, by):
    """Tell whether one position is more than ``by`` above another, whatever their rounding."""
    return above > below + by + _POSITION_SLACK * (abs(above) + abs(below) + abs(by))


@bare_inner
def _parted(up, i, down, j, levels, used, by):
    """Upper bound on the probability that ``X - Y > by`` fails, for values of ``up``'s node i and ``down``'s node j.

    It uses a tail of ``up`` alone (the paper's CheckLeft), of ``down`` alone (its CheckRight), and of both. Both tables
    are walked once: as the bound of ``up`` rises, that of ``down`` may rise as well.
    """
    of_up, of_down, of_both = 1.0, 1.0, 1.0
    b = used - 1
    for a in range(used):
        while b >= 0 and _beyond(up.left[i, a], down.right[j, b], by):
            b -= 1
        if b + 1 < used:
            x, y = levels[a], levels[b + 1]
            of_both = min(of_both, x + y - x * y)
            if a == 0:
                of_down = y
            if b < 0:
                of_up = x
                break
    return of_up, of_down, of_both


@bare_inner
def _escaping(left, i, right, j, levels, used, low, high):
    """Upper bound on the probability that a difference of values of nodes i and j is outside ``(low, high)``."""
    best = 1.0
    b = used - 1
    for k in range(used):
        while b >= 0 and _beyond(right.left[j, k], left.right[i, b], -high):
            b -= 1
        if b + 1 >= used:
            continue
        d = used - 1
        for m in range(used):
            while d >= 0 and _beyond(left.left[i, m], right.right[j, d], low):
                d -= 1
            if d + 1 < used:
                of_left, of_right = levels[m] + levels[b + 1], levels[k] + levels[d + 1]
                if of_left < 1.0 and of_right < 1.0:
                    best = min(best, of_left + of_right - of_left * of_right)
            if d < 0:
                break
        if b < 0:
            break
    return best


@bare_inner
def node_verdict(left, i, right, j, asked):
    """Return whether to PRUNE, CHECK or INCLUDE all pairs of left's node i and right's node j."""
    used, levels = asked.used, asked.levels
    if used == 0:
        return CHECK
    low, high = asked.low, asked.high
    holds, fails = 1.0, 1.0  # upper bounds for every pair
    if math.isinf(low) and math.isinf(high):
        fails = 0.0
    elif math.isinf(high):
        up, down, both = _parted(left, i, right, j, levels, used, low)
        fails = both if asked.strong else min(up, down)
        up, down, both = _parted(right, j, left, i, levels, used, -low)
        holds = both if asked.strong else min(up, down)
    elif math.isinf(low):
        up, down, both = _parted(left, i, right, j, levels, used, high)
        holds = both if asked.strong else min(up, down)
        up, down, both = _parted(right, j, left, i, levels, used, -high)
        fails = both if asked.strong else min(up, down)
    else:
        of_left, of_right, holds = _parted(left, i, right, j, levels, used, high)
        if holds > 0.0:
            up, down, both = _parted(right, j, left, i, levels, used, -low)
            of_right, of_left, holds = min(of_right, up), min(of_left, down), min(holds, both)
        if not asked.strong:
            holds = min(of_left, of_right)
        elif holds > 0.0:
            if right.peak[j] < math.inf:
                holds = min(holds, of_left * min(1.0, (high - low) * right.peak[j]))
            if left.peak[i] < math.inf:
                holds = min(holds, of_right * min(1.0, (high - low) * left.peak[i]))
            fails = _escaping(left, i, right, j, levels, used, low, high)
    if asked.outside:
        holds, fails = fails, holds
    if holds <= asked.reject:
        return PRUNE
    return INCLUDE if fails <= asked.may_miss else CHECK


@kernel
def node_verdicts(left, right, asked):
    """Return ``node_verdict`` for two lists of nodes of one length, node by node."""
    out = np.empty(len(left.peak), np.int8)
    for i in range(len(out)):
        out[i] = node_verdict(left, i, right, i, asked)
    return out


@kernel
def _meet_pages(outer, page, inner, start, asked, check, include):
    """Sort rows of the inner pages by the verdict on their page and an outer page; without room only count them."""
    checked, included, read = 0, 0, 0
    for other in range(len(start) - 1):
        verdict = node_verdict(outer, page, inner, other, asked)
        if verdict == PRUNE:
            continue
        read += 1
        begin, end = start[other], start[other + 1]
        if len(check):
            for row in range(begin, end):
                if verdict == CHECK:
                    check[checked + row - begin] = row
                else:
                    include[included + row - begin] = row
        if verdict == CHECK:
            checked += end - begin
        else:
            included += end - begin
    return checked, included, read, len(start) - 1 if asked.used else 0


class Pages:
    """Lays values out in pages: rows in the order of the pages, where each page begins, and its x-bounds."""

    def __init__(self, model: OneDimensional, levels: np.ndarray, rows_per_page: int, in_order: bool) -> None:
        if rows_per_page < 1:
            raise HaplyError("A page holds no rows", expected="rows_per_page of 1 or more", found=str(rows_per_page))
        values = value_bounds(model, levels)
        self.order = packing_order(values) if in_order else np.arange(len(model))
        self.start = np.minimum(np.arange(0, len(model) + rows_per_page, rows_per_page), len(model))
        if not len(model):
            self.start = np.zeros(1, np.int64)
        ordered = XBounds(*(np.ascontiguousarray(column[self.order]) for column in values)) if in_order else values
        self.bounds = group_bounds(ordered, self.start)

    def __len__(self) -> int:
        return len(self.start) - 1

    def rows(self, page: int) -> np.ndarray:
        """Return the rows of a page."""
        return self.order[self.start[page] : self.start[page + 1]]

    def meet(self, outer: XBounds, page: int, asked: PageCondition, room: PageScratch) -> Met:
        """Decide the rows of all pages against one page of the other side."""
        counts = _meet_pages(outer, page, self.bounds, self.start, asked, room.check, room.include)
        if not len(room.check):
            return Met(room.check, room.include, *counts)
        return Met(self.order[room.check[: counts[0]]], self.order[room.include[: counts[1]]], *counts)


class PageScratch(NamedTuple):
    """Arrays where a search writes rows: as long as the searched side, or empty to only count rows."""

    check: np.ndarray
    include: np.ndarray

    @classmethod
    def of(cls, rows: int) -> PageScratch:
        """Make arrays for this many rows."""
        return cls(np.empty(rows, np.int64), np.empty(rows, np.int64))


class Met(NamedTuple):
    """The result of a search for a page of the other side: rows to check and to include, their counts, and the work."""

    check: np.ndarray
    include: np.ndarray
    checked: int
    included: int
    reads: int
    """Pages (or leaves) whose rows are needed: tables of x-bounds are kept in memory."""
    visited: int
    """Pages, nodes and entries that were tested by their bounds."""


def packing_order(values: XBounds) -> np.ndarray:
    """Return rows in the order in which pages and leaves are filled: by the middle of values without their tails."""
    k = packing_level(values)
    return np.argsort(values.left[:, k] + values.right[:, k], kind="stable")


def packing_level(values: XBounds) -> int:
    """Return the first column in which all bounds are finite, or the last."""
    finite = np.isfinite(values.left).all(axis=0) & np.isfinite(values.right).all(axis=0)
    return int(np.argmax(finite)) if finite.any() else len(finite) - 1
