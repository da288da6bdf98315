"""Find pairs of points that are near each other, where points are samples or certain."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from haply.joins.cells.method import Match, Setting
from haply.joins.cells.rows import LEFT, RIGHT, CellRows
from haply.joins.dimensions import dimensions, shared_dimensions
from haply.joins.match import Matches
from haply.joins.operators.similarity import SimilarityJoin
from haply.models import Certain, Model, Samples
from haply.probability.distance import clouds
from haply.probability.region import Distance
from haply.pruning.bounds.cloud_rules import RULES
from haply.pruning.bounds.clouds import core_share, extents
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cascade import Counters
from haply.pruning.naming import known_as
from haply.pruning.threshold import Threshold

_RULES = tuple(RULES.values())


@dataclass(frozen=True)
class SamplesMethod:
    """Finds candidates by cores on a line and a grid, and decides by counts of near samples: see ``SimilarityJoin``."""

    distance: Distance
    threshold: Threshold
    exact: bool
    """Whether the result has probabilities."""
    models: tuple[type[Model], type[Model]]

    has_sure_pairs = False
    holds_for_itself = True

    def place(self, is_left: bool) -> PlaceSamples:
        """Return a callable that gives the rows of a side their intervals."""
        return PlaceSamples(self.distance, self.threshold)

    def match(self, setting: Setting) -> Match:
        """Return a callable that decides the pairs of a cell."""
        return MatchSamples(self.distance, self.threshold, setting.needs_values, setting.raises, setting.window)

    def counters(self) -> Counters:
        """Return counters with the names of all rules."""
        return Counters(_RULES, _RULES)

    def warm(self, setting: Setting) -> None:
        """Compile the kernels, or load them, before workers need them."""
        _warm(*self.models, self.threshold, setting.needs_values)  # type: ignore[arg-type]

    def condition_text(self, left: str, right: str) -> str:
        """Describe the condition between two columns."""
        return f"distance({left}, {right}) {'<=' if self.distance.closed else '<'} {self.distance.within:g}"

    def candidates_text(self) -> str:
        """Describe how candidates are found."""
        share = core_share(self.threshold)
        return (
            f"cores that hold {min(share, 1.0):.4g} of each object, by their place on a line; in each cell a look at "
            "all centres, or a grid of them"
        )

    def cascade_text(self) -> str:
        """Describe how candidates are decided."""
        verb = "reject" if self.exact else "reject and accept"
        rules = " -> ".join(known_as(name) for name in _RULES if name != "spheres")
        return f"{rules} ({verb}) -> exact count of near samples"


@dataclass(frozen=True)
class PlaceSamples:
    """Gives rows their intervals: where they may meet others on a line, half of the distance added on each side."""

    distance: Distance
    threshold: Threshold

    def __call__(self, model: Model) -> Intervals:
        """Return the intervals of all rows; rows of each dimension are placed on a line of their own."""
        dims = dimensions(model)
        start, end = np.empty(len(model)), np.empty(len(model))
        for dim in np.unique(dims):
            rows = np.flatnonzero(dims == dim)
            these = clouds(model.take(rows))
            place, core = extents(these, core_share(self.threshold))
            slack = 1e-12 * max(1.0, self.distance.limit, float(np.abs(these.points).max(initial=0.0)))
            reach = core + 0.5 * self.distance.limit + slack
            start[rows], end[rows] = place - reach, place + reach
        return Intervals(start, end, np.zeros(len(model), dtype=bool))


@dataclass(frozen=True)
class MatchSamples:
    """Decides the pairs of a cell by the distance of their samples: see ``SimilarityJoin``."""

    distance: Distance
    threshold: Threshold
    exact: bool
    raises: bool
    window: float | None = None

    def __call__(self, left: CellRows, right: CellRows) -> Matches:
        """Return the kept pairs that this cell owns."""
        begun = time.perf_counter()
        dims = [dimensions(side.model) for side in (left, right)]
        parts, counters = [], Counters(_RULES, _RULES)
        for dim in shared_dimensions(dims, self.raises):
            rows = [np.flatnonzero(own == dim) for own in dims]
            found = self._same_dimension(dim, left, right, rows[0], rows[1])
            parts.append(found[:-1])
            counters.add(found[-1])
        i, j, probability, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
        seconds = {"prepare": 0.0, "sweep": 0.0, "decide": time.perf_counter() - begun}
        return Matches(i, j, probability, codes, counters, seconds)

    def _same_dimension(self, dim: int, left: CellRows, right: CellRows, mine: np.ndarray, theirs: np.ndarray) -> Any:
        join = SimilarityJoin(
            self.distance.limit, self.threshold.value, dim=dim, strict=self.threshold.strict, window=self.window,
            probability="exact" if self.exact else "none",
        )  # fmt: skip
        join.arrive(RIGHT, right.batch(theirs))
        found = join.arrive(LEFT, left.batch(mine))
        return found.left, found.right, found.probability, np.zeros(len(found.left), np.int8), join.funnel


@lru_cache(maxsize=64)
def _warm(left: type[Model], right: type[Model], threshold: Threshold, exact: bool) -> None:
    """Run a small join with the layout that rows coming from Arrow have."""
    match = MatchSamples(Distance("", "", 1.0), threshold, exact, True)
    place = PlaceSamples(match.distance, threshold)
    sides = []
    for kind in (left, right):
        model = kind.from_arrow((Samples([[0.0, 1.0]]) if kind is Samples else Certain([1.0])).to_arrow())
        found = place(model)
        sides.append(CellRows(model, found.start, found.end, np.ones(1, dtype=bool)))
    match(sides[0], sides[1])
