"""Join by moment indexes: one side is put into an R-tree by mean and variance, the other is looked up in it.

For Gaussians the tree returns the matches themselves (GJ), for other laws candidates that are validated (GMJ).
Conditions on several attributes, taken to be independent, are looked up in one tree at once. (Peng, Diao and Liu 2011,
section 4.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.joins.match import EXACT_VALUE, SURE_CODE, Matches
from haply.joins.operators.operator import SideName
from haply.models import Certain, Gaussian, Model, OneDimensional
from haply.probability.exact import PairProbability
from haply.probability.region import Region
from haply.pruning.candidates.moments import (
    ANY_LAW,
    CHEBYSHEV,
    GAUSSIAN,
    WHOLESALE,
    XBOUND,
    Answers,
    Asking,
    Looks,
    MomentTree,
    build_tree,
    moment_boxes,
    question_of,
    xbound_boxes,
    xbound_probes,
)
from haply.pruning.cascade import SURE_RANGE, Cascade, Counters
from haply.pruning.threshold import Threshold

IndexName = Literal["auto", "gj", "gmj", "chebyshev", "xbound"]
"""``gj`` is for Gaussians and returns matches; ``gmj`` is for any law; ``chebyshev`` is ``gmj`` with the paper's bound
for values far apart, its sign corrected; ``xbound`` is the baseline by quantiles; ``auto`` is ``gj`` where it fits."""

Models = Sequence[OneDimensional]
"""The attributes of one side, in the order of the conditions."""


class MomentCounters(Counters):
    """Counts the funnel, and the work of the index."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = 0
        """Nodes that were tested."""
        self.rows = 0
        """Rows that were tested one by one."""
        self.returned = 0
        """Pairs that left the index: candidates, or the matches themselves."""
        self.wholesale = 0
        """Returned pairs whose node was accepted as a whole."""
        self.validated = 0
        """Returned pairs whose probability had to be computed."""

    def add_looks(self, looks: Looks, returned: int, wholesale: int) -> None:
        """Count the nodes and rows that were tested for some pairs that left the index."""
        self.nodes += looks.nodes
        self.rows += looks.rows
        self.returned += returned
        self.wholesale += wholesale

    def add(self, more: Counters) -> None:
        """Add other counts to these."""
        super().add(more)
        if isinstance(more, MomentCounters):
            for name in ("nodes", "rows", "returned", "wholesale", "validated"):
                setattr(self, name, getattr(self, name) + getattr(more, name))


def index_moments(models: Models) -> MomentTree:
    """Return the R-tree of one side, by mean and variance of each attribute, for all conditions and thresholds."""
    return build_tree(moment_boxes(models))


def index_xbounds(models: Models, probes: Models, threshold: Threshold) -> MomentTree:
    """Return the baseline's R-tree of one side, by two quantiles of each attribute.

    It serves one threshold and one kind of probes.
    """
    return build_tree(xbound_boxes(models, probes, threshold))


def match_moments(
    left: Models,
    right: Models,
    regions: Sequence[Region],
    threshold: Threshold,
    exact: bool,
    *,
    index: IndexName = "auto",
    tree: MomentTree | None = None,
    indexed: SideName = "right",
    admits: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> Matches:
    """Return every pair that satisfies all conditions with a sufficient probability, by the index of one side.

    Each condition is about the attribute at the same place, left minus right. ``tree`` is the tree of the indexed side,
    if it was made before. ``admits`` tells which pairs of row numbers can be answers. ``counters`` are
    ``MomentCounters``.
    """
    begun = time.perf_counter()
    rows, probes = (right, left) if indexed == "right" else (left, right)
    asked = list(regions) if indexed == "right" else [_mirrored(region) for region in regions]
    laws = _laws(probes, rows, asked, index)
    if index == "xbound":
        tree, boxes = tree or index_xbounds(rows, probes, threshold), xbound_probes(probes, asked)
    else:
        tree, boxes = tree or index_moments(rows), moment_boxes(probes)
    if not threshold.attainable:
        boxes = boxes[:0]
    asking = Asking(tree, boxes, question_of(laws, asked, threshold, exact))
    settle: _Settled | _Validated
    if asking.settled:
        settle = _Settled(exact)
    elif len(regions) == 1:
        settle = _Validated(Cascade(left[0], right[0], regions[0], threshold, exact))
    else:
        settle = _Validated(_Together(left, right, regions, threshold))
    prepared = time.perf_counter()
    deciding, parts = 0.0, []
    while (block := asking.block()) is not None:
        answers, looks = block
        i, j = (answers.probe, answers.row) if indexed == "right" else (answers.row, answers.probe)
        if admits is not None:
            kept = admits(i, j)
            i, j, answers = i[kept], j[kept], Answers(*(column[kept] for column in answers))
        at = time.perf_counter()
        parts.append(settle(i, j, answers, looks))
        deciding += time.perf_counter() - at
    counters = settle.counters
    if parts:
        i, j, probability, decided_by = (np.concatenate(column) for column in zip(*parts, strict=True))
    else:
        i = j = np.empty(0, np.int64)
        probability, decided_by = np.empty(0), np.empty(0, np.int8)
    counters.kept = len(i)
    searched = time.perf_counter() - prepared - deciding
    seconds = {"prepare": prepared - begun, "sweep": searched, "decide": deciding}
    return Matches(i, j, probability, decided_by, counters, seconds)


def _mirrored(region: Region) -> Region:
    """Return the same condition on the opposite difference."""
    return Region(-region.high, -region.low, region.high_closed, region.low_closed, region.outside)


def _laws(probes: Models, rows: Models, regions: Sequence[Region], index: IndexName) -> list[int]:
    """Return the code of the test for each attribute."""
    if index not in get_args(IndexName):
        raise unknown_name("index", index, get_args(IndexName))
    if not len(probes) == len(rows) == len(regions) or not regions:
        raise HaplyError(
            "A join by moments has not one condition for each attribute",
            expected="as many conditions as columns of either side, at least one",
            found=f"{len(regions)} conditions, {len(probes)} and {len(rows)} columns",
        )
    laws = []
    for probe, row, region in zip(probes, rows, regions, strict=True):
        gaussian = index_name(type(probe), type(row)) == "GJ"
        if index == "gj" and not gaussian:
            raise HaplyError(
                "The Gaussian index is asked of other laws",
                expected="Gaussians, or one side certain",
                found=" and ".join(sorted({probe.kind, row.kind})),
                hint="index='gmj' is for any law",
            )
        if index == "xbound" and region.outside:
            raise HaplyError(
                "X-bounds cannot find values far apart",
                expected="a condition that holds in a band",
                found=region.describe(),
                hint="index='gmj'",
            )
        by_name = {"xbound": XBOUND, "gmj": ANY_LAW, "chebyshev": CHEBYSHEV}
        laws.append(by_name.get(index, GAUSSIAN if gaussian else ANY_LAW))
    return laws


def index_name(left: type[Model], right: type[Model]) -> Literal["GJ", "GMJ"]:
    """Return what Peng, Diao and Liu call the index of two models: GJ for Gaussians, GMJ for any law."""
    kinds = {left, right}
    return "GJ" if Gaussian in kinds and kinds <= {Gaussian, Certain} else "GMJ"


Decided = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Kept pairs, their probabilities, and the codes of what decided them."""


class _Settled:
    """Takes the answers of an index that decides pairs itself: they are the matches, and need no validation."""

    def __init__(self, exact: bool) -> None:
        self.counters, self._exact = MomentCounters(), exact

    def __call__(self, i: np.ndarray, j: np.ndarray, answers: Answers, looks: Looks) -> Decided:
        whole = answers.state == WHOLESALE
        unseen = whole & (not self._exact)
        self.counters.add_looks(looks, len(i), int(whole.sum()))
        self.counters.evaluated += looks.rows + int(whole.sum() - unseen.sum())
        self.counters.accepted[SURE_RANGE] += int(unseen.sum())
        self.counters.candidates += looks.rows + int(whole.sum())
        return i, j, answers.value, np.where(unseen, SURE_CODE, EXACT_VALUE).astype(np.int8)


class _Together:
    """Decides pairs of several attributes as the cascade does those of one: probabilities multiply.

    Each attribute is evaluated only for pairs that may still be kept after the attributes before it.
    """

    def __init__(self, left: Models, right: Models, regions: Sequence[Region], threshold: Threshold) -> None:
        self._each = [PairProbability(*one) for one in zip(left, right, regions, strict=True)]
        self._threshold = threshold
        self.counters = Counters()

    def decide(self, left_rows: np.ndarray, right_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the positions of kept pairs in the list, their probabilities, and the codes of exact values."""
        self.counters.candidates += len(left_rows)
        self.counters.evaluated += len(left_rows)
        kept, probability = np.arange(len(left_rows)), np.ones(len(left_rows))
        for each in self._each:
            probability = probability * each.evaluate(left_rows[kept], right_rows[kept])
            likely = probability > self._threshold.reject_below
            kept, probability = kept[likely], probability[likely]
        passed = self._threshold.keep(probability, counts=False)
        return kept[passed], probability[passed], np.full(int(passed.sum()), EXACT_VALUE, np.int8)


class _Validated:
    """Decides the candidates of an index pair by pair; those of nodes that were accepted as a whole are matches."""

    def __init__(self, by: Cascade | _Together) -> None:
        self.counters = by.counters = MomentCounters()
        self._by = by

    def __call__(self, i: np.ndarray, j: np.ndarray, answers: Answers, looks: Looks) -> Decided:
        is_whole = answers.state == WHOLESALE
        candidates, whole = np.flatnonzero(~is_whole), np.flatnonzero(is_whole)
        self.counters.add_looks(looks, len(i), len(whole))
        self.counters.validated += len(candidates)
        self.counters.add_sure(len(whole))
        kept, probability, codes = self._by.decide(i[candidates].astype(np.int32), j[candidates].astype(np.int32))
        if not len(whole):
            return i[candidates[kept]], j[candidates[kept]], probability, codes
        chosen = np.concatenate([candidates[kept], whole])
        probability = np.concatenate([probability, np.full(len(whole), np.nan)])
        return i[chosen], j[chosen], probability, np.concatenate([codes, np.full(len(whole), SURE_CODE, np.int8)])
