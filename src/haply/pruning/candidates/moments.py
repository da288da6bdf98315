"""Moment indexes: an R-tree over the mean and standard deviation of each row, and probability bounds of its nodes.

A probe with mean ``m`` and deviation ``s`` meets a node whose rows have means in ``[x1, x2]`` and deviations in
``[y1, y2]``: the difference has a mean in ``[m - x2, m - x1]`` and a deviation from ``hypot(s, y1)`` to
``hypot(s, y2)``. (The paper keeps variances. Their order is the same, but they leave the range of doubles much sooner.)
These alone give a lower and an upper bound of the probability of a condition, for every row of the node at once. A node
whose upper bound is too small is skipped; one whose lower bound is enough is accepted whole; otherwise its children are
tested. A row is a node too, as small as the error of its moments.

Bounds by moments alone hold for any law (GMJ: Peng, Diao and Liu 2011, 4.1), and are the best possible for all laws
with these moments. For Gaussians they are the extremes themselves (GJ: 4.2), so that a row's bound is its probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, OneDimensional
from haply.numerics.jit import bare, kernel
from haply.numerics.normal import normal_cdf, root_sum
from haply.probability.kernels import normal_region
from haply.probability.region import Region
from haply.pruning.bounds.region import cantelli, chebyshev, selberg
from haply.pruning.candidates.curve import best_inside, worst_inside
from haply.pruning.candidates.gaussian import mass_from_centre
from haply.pruning.candidates.intervals import POSITION_SLACK
from haply.pruning.threshold import Threshold

ANY_LAW, GAUSSIAN, CHEBYSHEV, XBOUND = 0, 1, 2, 3
"""How nodes are tested: by moments alone, by the extremes of Gaussians, by moments with the paper's weaker bound for
values far apart, or by x-bounds. Each attribute has one of these tests."""

CANDIDATE, EVALUATED, WHOLESALE = 0, 1, 2
"""The state of a pair that leaves the index: undecided, with its value, or with a node that was accepted whole."""

FANOUT = 16
_SLACK = 1e-14  # the error of a bound
_BLUR = 1e-12  # the error of a mean, relative to mean and standard deviation
_SPREAD_BLUR = 1e-9  # the relative error of a deviation
_ENOUGH = 1 << 16


# -- bounds of a node --------------------------------------------------------------------------------------------------


@kernel
def _beyond(away, sd, is_least):
    """Return ``P(D <= end)`` of a Gaussian whose mean is ``away`` beyond the end; at an atom on it the safe answer."""
    if sd == 0.0:
        return 1.0 if away < 0.0 or (away == 0.0 and not is_least) else 0.0
    return normal_cdf(-away / sd)


@kernel
def _one_sided(law, away1, away2, s1, s2):
    """Return the least and largest ``P(D <= end)`` over means that are ``away1`` to ``away2`` beyond the end."""
    if law == GAUSSIAN:
        least = _beyond(away2, s1 if away2 > 0.0 else s2, True)
        return least, _beyond(away1, s2 if away1 > 0.0 else s1, False)
    return 1.0 - cantelli(s2, -away2), cantelli(s2, away1)


@kernel
def _two_sided(law, m1, m2, s1, s2, half):
    """Return the least and largest ``P(|D - centre| <= half)`` over means that are ``m1`` to ``m2`` from the centre.

    Both fall with that distance. Any law: Cantelli's bound is largest at ``s2``, and so is Selberg's bound of the
    outside. Gaussians: the extremes over the standard deviation are those of ``best_inside`` and ``worst_inside``.
    """
    if law == GAUSSIAN:
        least = 0.0 if half == 0.0 else worst_inside(m2, s1, s2, half)
        return least, best_inside(m1, s1, s2, half)
    most = cantelli(s2, m1 - half)
    if law == CHEBYSHEV:
        return 1.0 - chebyshev(s2, half - m2, math.inf), most
    return 1.0 - selberg(s2, half - m2, half + m2), most


@kernel
def node_bounds(law, mu1, mu2, s1, s2, low, high, outside):
    """Bound ``P(D in region)`` below and above for all ``D`` with a mean in ``[mu1, mu2]`` and an sd in ``[s1, s2]``.

    Certified: the means are widened by the rounding of a difference. NaN if deviations overflow, which decides nothing.
    Law ``CHEBYSHEV`` differs only for the outside of a band, where it requires
    ``delta <= |mu| + sigma / sqrt(threshold)``: the paper's Theorem 3 with its sign corrected.
    """
    blur = 1e-15 * (abs(mu1) + abs(mu2))
    if low == -math.inf and high == math.inf:
        return 1.0, 1.0
    if low == -math.inf:
        blur += 1e-15 * abs(high)
        least, most = _one_sided(law, mu1 - high - blur, mu2 - high + blur, s1, s2)
    elif high == math.inf:
        blur += 1e-15 * abs(low)
        least, most = _one_sided(law, low - mu2 - blur, low - mu1 + blur, s1, s2)
    else:
        blur += 1e-15 * (abs(low) + abs(high))
        centre, half = 0.5 * (low + high), 0.5 * (high - low)
        m1 = max(0.0, max(mu1 - centre, centre - mu2) - blur)
        m2 = max(abs(mu1 - centre), abs(mu2 - centre)) + blur
        least, most = _two_sided(law, m1, m2, s1, s2, half)
    if outside:
        return 1.0 - most, 1.0 - least
    return least, most


# -- the tree ----------------------------------------------------------------------------------------------------------


class MomentTree(NamedTuple):
    """An R-tree in flat arrays: its entries are the rows in the tree's order, then the nodes by level, the root last.

    ``box`` has ``x1, x2, y1, y2`` of every attribute for each entry; a node's children are the entries
    ``first:last``, and the rows below it are ``begin:end`` in the tree's ``order``.
    """

    box: np.ndarray
    first: np.ndarray
    last: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    order: np.ndarray


def build_tree(boxes: np.ndarray, fanout: int = FANOUT) -> MomentTree:
    """Bulk-load by sort-tile: slices along the first key, within each along the next, and so on; then pages in turn.

    Keys are the middles of the ranges, means before deviations. ``boxes`` has a row of four numbers for each attribute.
    """
    if fanout < 2:
        raise HaplyError("An index node has too few children", expected="2 or more", found=str(fanout))
    rows = len(boxes)
    order = _sort_tile(boxes, fanout)
    levels, first, last, begin, end = [boxes[order]], [], [], [], []
    first.append(np.zeros(rows, np.int64))
    last.append(np.zeros(rows, np.int64))
    begin.append(np.arange(rows))
    end.append(np.arange(rows) + 1)
    offset, below, count = 0, 1, rows
    while count > 1 or (below == 1 and rows):
        nodes, below = -(-count // fanout), below * fanout
        starts = np.arange(nodes) * fanout
        box = np.empty((nodes, boxes.shape[1]))
        for column in range(boxes.shape[1]):
            reduce = np.maximum if column % 2 else np.minimum
            box[:, column] = reduce.reduceat(levels[-1][:, column], starts)
        first.append(offset + starts)
        last.append(offset + np.minimum(starts + fanout, count))
        begin.append(np.arange(nodes) * below)
        end.append(np.minimum((np.arange(nodes) + 1) * below, rows))
        levels.append(box)
        offset, count = offset + count, nodes
    whole = [np.concatenate(part) for part in (levels, first, last, begin, end)]
    return MomentTree(whole[0], whole[1], whole[2], whole[3], whole[4], order)


def _sort_tile(boxes: np.ndarray, fanout: int) -> np.ndarray:
    rows, attributes = len(boxes), boxes.shape[1] // 4
    columns = [*range(0, 4 * attributes, 4), *range(2, 4 * attributes, 4)]
    order, slices, size = np.arange(rows), np.zeros(rows, np.int64), max(rows, 1)
    for k, column in enumerate(columns):
        with np.errstate(invalid="ignore"):
            keys = boxes[order, column] + boxes[order, column + 1]  # NaN, the sum of two infinities, sorts last
        order = order[np.lexsort((keys, slices))]
        pages = -(-size // fanout)
        size = fanout * -(-pages // math.ceil(pages ** (1.0 / (len(columns) - k))))
        slices = _cut(slices, size)
    return order


def _cut(slices: np.ndarray, size: int) -> np.ndarray:
    """Return the numbers of the slices that result when each of ascending slices is cut into parts of a size."""
    starts = np.flatnonzero(np.diff(slices, prepend=-1))
    within = np.arange(len(slices)) - np.repeat(starts, np.diff(starts, append=len(slices)))
    return np.cumsum(within % size == 0) - 1


def moment_boxes(models: Sequence[OneDimensional]) -> np.ndarray:
    """Return ranges of mean and deviation of every row and attribute, as wide as their error; points for Gaussians."""
    boxes = np.empty((len(models[0]), 4 * len(models)))
    for k, model in enumerate(models):
        if len(model) != len(boxes):
            raise HaplyError("The columns of a side differ in length", expected=str(len(boxes)), found=str(len(model)))
        box = boxes[:, 4 * k : 4 * k + 4]
        if isinstance(model, Certain):
            box[:, 0] = box[:, 1] = model.values["values"]
            box[:, 2:] = 0.0
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            mean, spread = model.mean(), model.deviation()
            if isinstance(model, Gaussian):
                box[:, 0], box[:, 1], box[:, 2], box[:, 3] = mean, mean, spread, spread
                continue
            blur = _BLUR * (np.abs(mean) + spread)
            if model.bounded:  # the mean of a cut Gaussian is computed from an end, which may be far away
                blur += 1e-15 * np.maximum(*(np.abs(end) for end in model.support()))
            box[:, 0], box[:, 1] = mean - blur, mean + blur
            box[:, 2], box[:, 3] = spread * (1.0 - _SPREAD_BLUR), spread * (1.0 + _SPREAD_BLUR)
        box[~np.isfinite(box).all(axis=1)] = -np.inf, np.inf, 0.0, np.inf  # moments beyond doubles
    return boxes


# -- x-bounds ----------------------------------------------------------------------------------------------------------

_FAR = 5.0
_CUT = 1e-5


def _domain(model: OneDimensional) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the range of a probe's values, and their mass beyond either end."""
    if isinstance(model, Gaussian):
        mean = model.mean()
        return mean - _FAR * model.sd, mean + _FAR * model.sd, float(normal_cdf(-_FAR))
    if model.bounded:
        return *model.support(), 0.0
    return model.quantile_low(_CUT), model.quantile_high(_CUT), _CUT


def xbound_boxes(
    models: Sequence[OneDimensional], probes: Sequence[OneDimensional], threshold: Threshold
) -> np.ndarray:
    """Return the baseline's keys: at most the threshold of a row lies below ``l``, and as much above ``u``.

    A probe's domain is cut to where almost all of it lies; the keys are taken at a threshold that is lower by the cut
    mass, so that no pair is lost.
    """
    boxes = np.empty((len(models[0]), 4 * len(models)))
    for k, (model, probe) in enumerate(zip(models, probes, strict=True)):
        level = threshold.reject_below - _domain(probe)[2] - _SLACK
        low = model.quantile_low(level) if level > 0.0 else -np.inf  # the cut may be as large as the threshold
        high = model.quantile_high(level) if level > 0.0 else np.inf
        boxes[:, 4 * k] = boxes[:, 4 * k + 1] = low
        boxes[:, 4 * k + 2] = boxes[:, 4 * k + 3] = high
    return boxes


def xbound_probes(models: Sequence[OneDimensional], regions: Sequence[Region]) -> np.ndarray:
    """Return for each probe the largest ``l`` and the least ``u`` that it can meet: its domain, moved by a region."""
    boxes = np.zeros((len(models[0]), 4 * len(models)))
    for k, (model, region) in enumerate(zip(models, regions, strict=True)):
        low, high, _ = _domain(model)
        for column, end, shift, sign in ((0, high, region.low, 1.0), (1, low, region.high, -1.0)):
            boxes[:, 4 * k + column] = end - shift + sign * POSITION_SLACK * (np.abs(end) + abs(shift))
    return boxes


# -- the probe ---------------------------------------------------------------------------------------------------------


class MomentCondition(NamedTuple):
    """The conditions (one for each attribute), the tests of nodes, and the threshold, as numbers."""

    law: np.ndarray
    low: np.ndarray
    high: np.ndarray
    low_closed: np.ndarray
    high_closed: np.ndarray
    outside: np.ndarray
    reject_to: float
    accept_from: float
    keep_from: float
    values: bool
    """Whether the probability of pairs of accepted nodes is wanted."""


def question_of(laws: Sequence[int], regions: Sequence[Region], threshold: Threshold, exact: bool) -> MomentCondition:
    """Return the condition; nodes may be accepted whole if that saves a validation, or if no value is asked for."""
    gaussian = all(law == GAUSSIAN for law in laws)
    may_accept = threshold.attainable and XBOUND not in laws and (gaussian or not exact)
    return MomentCondition(
        np.array(laws, np.int64),
        np.array([region.low for region in regions], np.float64),
        np.array([region.high for region in regions], np.float64),
        np.array([region.low_closed for region in regions]),
        np.array([region.high_closed for region in regions]),
        np.array([region.outside for region in regions]),
        threshold.reject_below - _SLACK,
        threshold.accept_from + _SLACK if may_accept else math.inf,
        threshold.keeps_from(),
        exact,
    )


@bare
def _entry_bounds(probe, box, question):
    """Bound the probability of all conditions together from below and above, over the rows of an entry.

    The attributes are independent, so their bounds multiply.
    """
    least, most = 1.0, 1.0
    for k in range(len(question.law)):
        law, at = question.law[k], 4 * k
        if law == XBOUND:
            if not (box[at] <= probe[at] and box[at + 3] >= probe[at + 1]):
                return 0.0, -1.0
            continue
        one_least, one_most = node_bounds(
            law, probe[at] - box[at + 1], probe[at + 1] - box[at], root_sum(probe[at + 2], box[at + 2]),
            root_sum(probe[at + 3], box[at + 3]), question.low[k], question.high[k], question.outside[k],
        )  # fmt: skip
        least, most = least * max(0.0, one_least), most * one_most
    return least, most


@bare
def _value(probe, box, question):
    """Return the probability of all conditions for a row and a probe that are Gaussian in every attribute."""
    p = 1.0
    for k in range(len(question.law)):
        low, high, outside = question.low[k], question.high[k], question.outside[k]
        mean, sd = probe[4 * k] - box[4 * k], root_sum(probe[4 * k + 2], box[4 * k + 2])
        if not outside and mean - low > 0.5 * sd and high - mean > 0.5 * sd:
            # a mean well inside, as for most pairs here: a sum of two masses loses no digits
            p *= mass_from_centre((high - mean) / sd) - mass_from_centre((low - mean) / sd) if sd > 0.0 else 1.0
        else:
            p *= normal_region(mean, sd, low, high, question.low_closed[k], question.high_closed[k], outside)
    return p


@bare
def _ask(tree, probes, question, i, settled, stack, out_probe, out_row, out_value, out_state, counts):
    """Search the tree for probes from ``i`` on, until all is done or the output may overflow.

    Returns how many pairs the output has, and where it stopped. With ``settled`` rows are decided here, by their value.
    ``counts`` gets the nodes and rows that were tested, and pairs whose node was accepted.
    """
    n, rows, root = 0, len(tree.order), len(tree.first) - 1
    while i < len(probes) and n + rows <= len(out_row):
        probe = probes[i]
        stack[0, 0], stack[0, 1] = root, root + 1
        top = 1
        while top > 0:
            top -= 1
            begin, end = stack[top, 0], stack[top, 1]
            for entry in range(begin, end):
                box = tree.box[entry]
                if entry < rows and settled:
                    counts[1] += 1
                    p = _value(probe, box, question)
                    if p >= question.keep_from:
                        out_probe[n], out_row[n], out_value[n], out_state[n] = i, tree.order[entry], p, EVALUATED
                        n += 1
                    continue
                counts[int(entry < rows)] += 1
                least, most = _entry_bounds(probe, box, question)
                if most <= question.reject_to:
                    continue
                if least >= question.accept_from:
                    counts[2] += tree.end[entry] - tree.begin[entry]
                    for row in range(tree.begin[entry], tree.end[entry]):
                        p = _value(probe, tree.box[row], question) if settled and question.values else math.nan
                        out_probe[n], out_row[n], out_value[n], out_state[n] = i, tree.order[row], p, WHOLESALE
                        n += 1
                elif entry < rows:
                    out_probe[n], out_row[n], out_value[n], out_state[n] = i, tree.order[entry], math.nan, CANDIDATE
                    n += 1
                else:
                    stack[top, 0], stack[top, 1] = tree.first[entry], tree.last[entry]
                    top += 1
        i += 1
    return n, i


class Answers(NamedTuple):
    """Pairs that leave the index: numbers of probes and rows, values (NaN if unknown), and states."""

    probe: np.ndarray
    row: np.ndarray
    value: np.ndarray
    state: np.ndarray


class Looks(NamedTuple):
    """How many nodes and rows were tested for some answers."""

    nodes: int
    rows: int
    accepted_whole: int


class Asking:
    """Searches a tree for all probes, block by block: candidates of many rows may be too many to hold at once."""

    def __init__(self, tree: MomentTree, probes: np.ndarray, question: MomentCondition) -> None:
        self.tree, self.probes, self.question = tree, np.ascontiguousarray(probes), question
        self.settled = bool((question.law == GAUSSIAN).all())
        """Whether the returned pairs are the matches themselves, not candidates."""
        self._next = 0 if len(tree.order) else len(probes)

    def block(self) -> tuple[Answers, Looks] | None:
        """Return the next pairs, or None after the last probe."""
        if self._next >= len(self.probes):
            return None
        rows = len(self.tree.order)
        room = max(rows, min(rows * (len(self.probes) - self._next), rows + _ENOUGH))
        answers = Answers(np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room), np.empty(room, np.int8))
        stack = np.empty((len(self.tree.first) - rows + 1, 2), np.int64)
        counts = np.zeros(3, np.int64)
        n, self._next = _ask(self.tree, self.probes, self.question, self._next, self.settled, stack, *answers, counts)
        return Answers(*(column[:n] for column in answers)), Looks(*(int(count) for count in counts))
