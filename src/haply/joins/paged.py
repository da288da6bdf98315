"""Join page by page: x-bound pages or the tree over them give candidates, and the cascade decides these.

The four algorithms of Cheng et al. 2005 are one loop over the pages of the outer side. ``BNLJ`` compares each with all
pages of the inner side and ``INLJ`` with an index, by bounding boxes alone; ``U-BNLJ`` and ``U-INLJ`` use x-bounds as
well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from haply.errors import unknown_name
from haply.joins.match import SURE_CODE, Matches
from haply.models import OneDimensional
from haply.probability.region import Region
from haply.pruning.bounds.one_dimensional import facts
from haply.pruning.candidates.one_pass import Labels
from haply.pruning.candidates.pti import ThresholdTree
from haply.pruning.candidates.sweep import BLOCK_PAIRS
from haply.pruning.candidates.xbounds import (
    PageCondition,
    Pages,
    PageScratch,
    Tests,
    checked_levels,
    levels_for,
    mirrored,
    question,
)
from haply.pruning.cascade import Cascade
from haply.pruning.threshold import Threshold

Algorithm = Literal["BNLJ", "U-BNLJ", "INLJ", "U-INLJ"]
ALGORITHMS: tuple[Algorithm, ...] = ("BNLJ", "U-BNLJ", "INLJ", "U-INLJ")
OF_STRATEGY: dict[str, Algorithm] = {"pages": "U-BNLJ", "pti": "U-INLJ"}
"""The algorithm of each strategy of a pair join."""

ITEM_RULES = ("cascade", "theorem 1")

Owned = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Tells which pairs of left and right rows this join decides."""


@dataclass(frozen=True)
class PageSettings:
    """How rows are laid out and tested.

    ``levels`` None chooses levels that suit the threshold. ``tests`` are used by the algorithms with U. ``item``
    decides single pairs: the engine's cascade, or Theorem 1 alone (for ``<`` and ``>`` Theorems 3 and 4).
    """

    tests: Tests = "strong"
    item: Literal["cascade", "theorem 1"] = "cascade"
    levels: tuple[float, ...] | None = None
    rows_per_page: int = 50
    fan_out: int = 50
    in_order: bool = True
    """Whether pages are filled in sorted order, or in the order in which rows are given. The index is always sorted."""

    def __post_init__(self) -> None:
        if self.item not in ITEM_RULES:
            raise unknown_name("rule for items", self.item, ITEM_RULES)


@dataclass
class PagedWork:
    """Counts the work of a join by pages."""

    pairs: int = 0
    """Pairs that reach the item level (the paper's N_pair)."""
    evaluated: int = 0
    """Pairs whose exact probability was computed (the paper's N_prob)."""
    included: int = 0
    """Pairs accepted by whole pages, subtrees or entries."""
    reads: int = 0
    """Pages and leaves whose rows were needed; tables of x-bounds are kept in memory."""
    visited: int = 0
    """Pages, nodes and entries of the inner side that were tested by their bounds."""


@dataclass(frozen=True)
class PagedMatches(Matches):
    """Kept pairs, and the work of finding them."""

    work: PagedWork = field(default_factory=PagedWork)


class TheoremOne(Cascade):
    """Decides pairs by Theorem 1 (and 3, 4) of Cheng et al. 2005 or by their exact value, whatever the models.

    ``P(low <= A - B <= high)`` is at most the mass that either value has within reach of the other's support: the
    concentration rule with concentrations of 1. This decides every pair that a page or node test of the paper decides.
    """

    def __init__(
        self, left: OneDimensional, right: OneDimensional, region: Region, threshold: Threshold, exact: bool
    ) -> None:
        super().__init__(left, right, region, threshold, exact)
        self._gaussian = self._cuts = False
        self._left_facts, self._right_facts = facts(left, np.inf, False), facts(right, np.inf, False)


class PagedJoin:
    """Lays out one side in pages or as a tree, to join it with other rows as often as needed."""

    def __init__(
        self,
        inner: OneDimensional,
        region: Region,
        threshold: Threshold,
        exact: bool,
        algorithm: Algorithm = "U-BNLJ",
        settings: PageSettings | None = None,
        *,
        inner_is_left: bool = False,
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise unknown_name("algorithm", algorithm, ALGORITHMS)
        self.inner, self.region, self.threshold, self.exact = inner, region, threshold, exact
        self.algorithm, self.settings = algorithm, settings or PageSettings()
        self.inner_is_left = inner_is_left
        given = self.settings.levels
        self.levels = levels_for(threshold, exact) if given is None else checked_levels(given)
        tests = {"BNLJ": "none", "INLJ": "box"}.get(algorithm, self.settings.tests)
        asked = question(region, threshold, exact, self.levels, tests)
        self._asked: PageCondition = mirrored(asked) if inner_is_left else asked

    @cached_property
    def index(self) -> Pages | ThresholdTree:
        """Return the layout of the inner side that the algorithm needs."""
        if self.algorithm in ("INLJ", "U-INLJ"):
            return ThresholdTree(self.inner, self.levels, self.settings.fan_out)
        return self._pages(self.inner)

    def _pages(self, model: OneDimensional) -> Pages:
        return Pages(model, self.levels, self.settings.rows_per_page, self.settings.in_order)

    def count(self, outer: OneDimensional) -> PagedWork:
        """Return the work up to the item level without listing pairs: joins with a billion answers can be counted."""
        work = PagedWork()
        pages, room = self._pages(outer), PageScratch.of(0)
        for page in range(len(pages) if self.threshold.attainable else 0):
            met = self.index.meet(pages.bounds, page, self._asked, room)
            self._note(work, len(pages.rows(page)), met.checked, met.included, met.reads, met.visited)
        return work

    def match(
        self, outer: OneDimensional, *, labels: Labels = (None, None), owned: Owned | None = None
    ) -> PagedMatches:
        """Return the kept pairs of the inner side with the given outer rows."""
        started = time.perf_counter()
        left, right = (self.inner, outer) if self.inner_is_left else (outer, self.inner)
        make = TheoremOne if self.settings.item == "theorem 1" else Cascade
        cascade = make(left, right, self.region, self.threshold, self.exact)
        work, deciding = PagedWork(), 0.0
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int8))]
        pages = self._pages(outer)
        _ = self.index
        prepared = time.perf_counter()
        for i, j, sure in self._blocks(pages, work):
            if owned is not None:
                mine = owned(i, j)
                i, j = i[mine], j[mine]
            begun = time.perf_counter()
            if sure:
                cascade.counters.add_sure(len(i))
                parts.append(
                    (i, j, np.full(len(i), 1.0 if self.exact else np.nan), np.full(len(i), SURE_CODE, np.int8))
                )
            else:
                kept, probability, decided_by = cascade.decide(i, j)
                parts.append((i[kept], j[kept], probability, decided_by))
            deciding += time.perf_counter() - begun
        work.evaluated = cascade.counters.evaluated
        i, j, probability, decided_by = (np.concatenate(column) for column in zip(*parts, strict=True))
        i = i if labels[0] is None else labels[0].take(i)
        j = j if labels[1] is None else labels[1].take(j)
        spent = time.perf_counter() - prepared - deciding
        seconds = {"prepare": prepared - started, "sweep": spent, "decide": deciding}
        return PagedMatches(i, j, probability, decided_by, cascade.counters, seconds, work)

    def _blocks(self, pages: Pages, work: PagedWork) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
        """Yield left and right rows of pairs, in blocks of bounded size, and whether all are kept without a test."""
        waiting: dict[bool, list[tuple[np.ndarray, np.ndarray]]] = {False: [], True: []}
        held = {False: 0, True: 0}
        room = PageScratch.of(len(self.inner))
        for page in range(len(pages) if self.threshold.attainable and len(self.inner) else 0):
            rows = pages.rows(page).astype(np.int32)
            met = self.index.meet(pages.bounds, page, self._asked, room)
            self._note(work, len(rows), met.checked, met.included, met.reads, met.visited)
            at_once = max(1, BLOCK_PAIRS // len(rows))
            for sure, others in ((False, met.check), (True, met.include)):
                for begin in range(0, len(others), at_once):
                    some = others[begin : begin + at_once].astype(np.int32)
                    waiting[sure].append((np.repeat(rows, len(some)), np.tile(some, len(rows))))
                    held[sure] += len(rows) * len(some)
                    if held[sure] >= BLOCK_PAIRS:
                        yield self._sides(waiting[sure], sure)
                        waiting[sure], held[sure] = [], 0
        for sure, parts in waiting.items():
            if parts:
                yield self._sides(parts, sure)

    def _sides(self, parts: list[tuple[np.ndarray, np.ndarray]], sure: bool) -> tuple[np.ndarray, np.ndarray, bool]:
        outer, inner = (np.concatenate(column) for column in zip(*parts, strict=True))
        return (inner, outer, sure) if self.inner_is_left else (outer, inner, sure)

    @staticmethod
    def _note(work: PagedWork, rows: int, checked: int, included: int, reads: int, visited: int) -> None:
        work.pairs += rows * checked
        work.included += rows * included
        work.reads += 1 + reads
        work.visited += visited


def match_paged(
    left: OneDimensional,
    right: OneDimensional,
    region: Region,
    threshold: Threshold,
    exact: bool,
    algorithm: Algorithm = "U-BNLJ",
    settings: PageSettings | None = None,
) -> PagedMatches:
    """Join two sets of rows once; the right one is the inner side.

    >>> from haply.models import Uniform
    >>> left, right = Uniform([0, 90], [5, 95]), Uniform([3], [13])
    >>> found = match_paged(left, right, Region(-1, 1), Threshold(0.05), True, "U-INLJ")
    >>> found.left, found.right, found.probability, found.work.pairs
    (array([0]), array([0]), array([0.08]), 2)
    """
    return PagedJoin(right, region, threshold, exact, algorithm, settings).match(left)
