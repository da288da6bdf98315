"""Find pairs whose difference lies in a region, for one-dimensional values of any models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from haply.joins.cells.method import Match, Setting
from haply.joins.cells.rows import CellRows
from haply.joins.match import Matches, match_all, match_in_parts, match_overlapping
from haply.joins.moments import index_name, match_moments
from haply.joins.paged import OF_STRATEGY, PagedJoin
from haply.models import Model, OneDimensional
from haply.probability.region import Region
from haply.pruning.best import Best
from haply.pruning.bounds.one_dimensional import RULES
from haply.pruning.candidates.intervals import Intervals, accepts_above, accepts_below, pairing, row_intervals
from haply.pruning.candidates.one_pass import Labels, Places, Run
from haply.pruning.cascade import Counters
from haply.pruning.ownership import owned
from haply.pruning.threshold import Pairing, Threshold

_INDEXES = {
    "pages": "pages of rows with x-bounds",
    "pti": "PTI, a tree of rows with x-bounds",
    "moments": "an index of means and variances",
}
"""The index in which a strategy finds candidates; all other strategies sweep."""


@dataclass(frozen=True)
class DifferenceMethod:
    """Finds candidates by core regions, and decides by bounds and exact values: see ``match_overlapping``."""

    region: Region
    threshold: Threshold
    exact: bool
    """Whether the result has probabilities."""
    models: tuple[type[Model], type[Model]]
    strategy: str = "auto"

    @property
    def has_sure_pairs(self) -> bool:
        """Return whether rows that are far apart match: these pairs are joined without a test."""
        return accepts_above(self.region) or accepts_below(self.region)

    @property
    def holds_for_itself(self) -> bool:
        """Return whether two equal certain values match."""
        return self.region.contains(0.0)

    @property
    def pairing(self) -> Pairing:
        """Return which facts hold for the two models together."""
        return pairing(*self.models)

    def place(self, is_left: bool) -> PlaceDifferences:
        """Return a callable that gives the rows of a side their intervals."""
        return PlaceDifferences(is_left, self.region, self.threshold, self.exact, self.pairing)

    def match(self, setting: Setting) -> Match:
        """Return a callable that decides the pairs of a cell."""
        return MatchDifferences(self.region, self.threshold, setting.needs_values, self.strategy, setting.best)

    def counters(self) -> Counters:
        """Return counters with the names of all rules."""
        return Counters()

    def warm(self, setting: Setting) -> None:
        """Compile the kernels, or load them, before workers need them."""
        from haply.joins.warm import warm_moments, warm_pair  # this module imports all operators, which few joins need

        pair: Any = (*self.models, self.region, self.threshold, setting.needs_values)
        warm_pair(*pair, self.strategy, keyed=setting.keyed)
        if self.strategy == "moments":
            warm_moments(*pair)

    # -- words ---------------------------------------------------------------------------------------------------------

    def condition_text(self, left: str, right: str) -> str:
        """Describe the condition between two columns."""
        return f"{left} - {right}: {self.region.describe()}"

    @property
    def index_text(self) -> str | None:
        """Describe the index that finds candidates; None if they are found by a sweep."""
        found = _INDEXES.get(self.strategy)
        return f"{index_name(*self.models)}, {found}" if self.strategy == "moments" else found

    def candidates_text(self) -> str:
        """Describe how candidates are found."""
        threshold, region = self.threshold, self.region
        level = threshold.core_level(self.pairing)
        index = self.index_text
        if region.outside or region.one_sided:
            sure = threshold.sure_level(self.exact, self.pairing)
            return (
                f"pairs apart by their quantiles at {sure:.3g} are sure and joined natively by ranges; "
                f"the rest by {index or 'a sweep'}"
            )
        how = f"{index}, within" if index else "core sweep, a sweep over"
        text = f"{how} core regions: quantiles at {level:.6g} and {1 - level:.6g} (of {self.pairing.value})"
        if threshold.value is not None:
            text += f"; rows whose mass in every interval of length {region.width:g} is below the threshold are dropped"
        return text

    def cascade_text(self) -> str:
        """Describe how candidates are decided."""
        verb = "reject" if self.exact else "reject and accept"
        end = "exact probability of what is left" if self.exact else "exact probability of undecided pairs only"
        return f"{' -> '.join(self._rules())} ({verb}) -> {end}"

    def _rules(self) -> list[str]:
        names = list(RULES.values())
        if self.models[0] is self.models[1] and self.models[0].kind == "gaussian":
            return [names[4]]
        if self.region.one_sided:
            return [names[2], f"{names[3]} (where one value has many parts)"]
        rules = [names[0], names[1]] if not self.exact else [names[1] if self.region.outside else names[0]]
        return [*rules, f"{names[3]} (where one value has many parts)"]


@dataclass(frozen=True)
class PlaceDifferences:
    """Gives the rows of one side of a difference their intervals."""

    is_left: bool
    region: Region
    threshold: Threshold
    exact: bool
    pairing: Pairing

    def __call__(self, model: Model) -> Intervals:
        """See ``row_intervals``."""
        assert isinstance(model, OneDimensional)
        return row_intervals(model, self.is_left, self.region, self.threshold, self.exact, self.pairing)


@dataclass(frozen=True)
class MatchDifferences:
    """Decides the pairs of a cell: see ``match_overlapping``, ``PagedJoin`` and ``match_moments``."""

    region: Region
    threshold: Threshold
    exact: bool
    strategy: str = "auto"
    best: Best | None = None

    def __call__(self, left: CellRows, right: CellRows) -> Matches:
        """Return the kept pairs that this cell owns."""
        mine, theirs = _one_dimensional(left, right)
        admitted = partial(_admitted, left, right)
        if self.strategy == "moments":
            return match_moments([mine], [theirs], [self.region], self.threshold, self.exact, admits=admitted)
        if self.strategy in OF_STRATEGY:
            join = PagedJoin(theirs, self.region, self.threshold, self.exact, OF_STRATEGY[self.strategy])
            return join.match(mine, owned=admitted)
        return match_overlapping(
            mine, theirs, left.intervals, right.intervals, self.region, self.threshold, self.exact,
            from_position=min(left.first_beginning, right.first_beginning),
            left_groups=left.groups, right_groups=right.groups, best=self.best,
        )  # fmt: skip

    def in_parts(
        self, models: tuple[Model, Model], placed: tuple[Intervals, Intervals], labels: Labels, parts: int, run: Run,
        finish: Callable[[Matches, Places | None], Matches],
    ) -> Iterator[Matches] | None:  # fmt: skip
        """Return the kept pairs of sides that are not cut into cells; None if one pass cannot find them."""
        left, right = models
        if self.strategy in _INDEXES:
            return None
        assert isinstance(left, OneDimensional)
        assert isinstance(right, OneDimensional)
        return match_in_parts(
            left, right, *placed, self.region, self.threshold, self.exact,
            labels=labels, parts=parts, run=run, best=self.best, finish=finish,
        )  # fmt: skip


@dataclass(frozen=True)
class MatchPage:
    """Decides all pairs of two sides that are not cut into cells: see ``match_all``."""

    region: Region
    threshold: Threshold
    exact: bool

    def __call__(self, left: CellRows, right: CellRows) -> Matches:
        """Return the kept pairs."""
        mine, theirs = _one_dimensional(left, right)
        return match_all(mine, theirs, left.intervals, right.intervals, self.region, self.threshold, self.exact)


def _one_dimensional(left: CellRows, right: CellRows) -> tuple[OneDimensional, OneDimensional]:
    assert isinstance(left.model, OneDimensional)
    assert isinstance(right.model, OneDimensional)
    return left.model, right.model


def _admitted(left: CellRows, right: CellRows, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Tell which pairs the sweep would find here: intervals overlap, groups are equal, and this cell is the owner."""
    meet = (left.start[i] <= right.end[j]) & (right.start[j] <= left.end[i])
    places = left.places(i), right.places(j)
    if places[0].group is not None and places[1].group is not None:
        meet &= places[0].group == places[1].group
    return meet & owned(places)
