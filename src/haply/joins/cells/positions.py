"""Find pairs of positions that are near each other: Gaussians, mixtures, positions on the sky, and points."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from haply.joins.cells.method import Match, Setting
from haply.joins.cells.rows import CellRows
from haply.joins.dimensions import dimensions, known_dimensions, of_dimension, shared_dimensions
from haply.joins.match import Matches
from haply.joins.operators.position import match_positions
from haply.models import Certain, Gaussian, GaussianND, Mixture, MixtureND, Model, Samples, Sky, SkyEllipse
from haply.probability.multivariate import parts
from haply.probability.region import Distance
from haply.pruning.best import Best
from haply.pruning.bounds.positions import REJECTING, intervals_on_line, limits, no_counts
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cascade import Counters
from haply.pruning.threshold import Threshold

NORMALS: tuple[type[Model], ...] = (GaussianND, MixtureND, Sky, SkyEllipse, Gaussian, Mixture)
"""Models of positions that are normal, or made of normal parts."""
_EXAMPLES: dict[type[Model], Model] = {
    Certain: Certain([1.0]),
    Sky: Sky(0.0, 0.0, 1.0, 1.0),
    SkyEllipse: SkyEllipse(0.0, 0.0, 1.0, 1.0),
    Gaussian: Gaussian([1.0], [1.0]),
    Mixture: Mixture([[0.5, 0.5]], [[1.0, 2.0]], [[1.0, 1.0]]),
}


@dataclass(frozen=True)
class PositionsMethod:
    """Finds candidates by sorted small cells, and decides by bounds of the mass in a ball: see ``match_positions``."""

    distance: Distance
    threshold: Threshold
    exact: bool
    """Whether the result has probabilities."""
    models: tuple[type[Model], type[Model]]

    has_sure_pairs = False
    holds_for_itself = True

    def place(self, is_left: bool) -> PlacePositions:
        """Return a callable that gives the rows of a side their intervals."""
        return PlacePositions(self.distance, self.threshold)

    def match(self, setting: Setting) -> Match:
        """Return a callable that decides the pairs of a cell."""
        return MatchPositions(self.distance, self.threshold, setting.needs_values, setting.raises, setting.best)

    def counters(self) -> Counters:
        """Return counters with the names of all rules."""
        return no_counts()

    def warm(self, setting: Setting) -> None:
        """Compile the kernels, or load them, before workers need them."""
        _warm(*self.models, self.threshold, setting.needs_values, setting.whole, setting.best)  # type: ignore[arg-type]

    def condition_text(self, left: str, right: str) -> str:
        """Describe the condition between two columns."""
        return f"distance({left}, {right}) {'<=' if self.distance.closed else '<'} {self.distance.within:g}"

    def candidates_text(self) -> str:
        """Describe how candidates are found."""
        out = max(0.0, limits(self.distance.limit, self.threshold, True, 2).out)
        more = f" and {out:.4g} standard deviations" if out > 1e-6 else ""
        return (
            f"means at most {self.distance.within:g}{more} apart, by place on a line; "
            "in each cell of it, sorted small cells as wide as that"
        )

    def cascade_text(self) -> str:
        """Describe how candidates are decided."""
        verb = "" if self.exact else ", inside (accept)"
        return f"{' -> '.join(REJECTING)} (reject){verb} -> exact mass of the disc, or of the ball"


@dataclass(frozen=True)
class PlacePositions:
    """Gives rows their intervals: where they may meet others on a line, half of the distance added on each side."""

    distance: Distance
    threshold: Threshold

    def __call__(self, model: Model) -> Intervals:
        """Return the intervals of all rows; rows of each dimension are placed on a line of their own."""
        dims = dimensions(model)
        known = known_dimensions(dims)
        found = Intervals(np.empty(len(model)), np.empty(len(model)), np.zeros(len(model), dtype=bool))
        for dim in known:
            these, rows = of_dimension(model, dims, dim)
            normals = these if isinstance(these, Sky) else parts(these)
            assert normals is not None
            placed = intervals_on_line(normals, limits(self.distance.limit, self.threshold, True, dim))
            if len(known) == 1:
                return placed
            found.start[rows], found.end[rows], found.hopeless[rows] = placed.start, placed.end, placed.hopeless
        return found


@dataclass(frozen=True)
class MatchPositions:
    """Decides the pairs of a cell by the distance of positions: see ``match_positions``."""

    distance: Distance
    threshold: Threshold
    exact: bool
    raises: bool
    best: Best | None = None

    def __call__(self, left: CellRows, right: CellRows) -> Matches:
        """Return the kept pairs that this cell owns."""
        begun = time.perf_counter()
        sides = left, right
        dims = [dimensions(side.model) for side in sides]
        columns, counters = [], no_counts()
        for dim in shared_dimensions(dims, self.raises):
            (mine, rows), (theirs, others) = (
                of_dimension(side.model, own, dim) for side, own in zip(sides, dims, strict=True)
            )
            places = None
            if left.begins_here is not None or right.begins_here is not None or left.groups is not None:
                places = left.places(rows), right.places(others)
            found = match_positions(mine, theirs, self.distance, self.threshold, self.exact, places, self.best)
            columns.append((rows[found.left], others[found.right], found.probability, found.code))
            counters.add(found.funnel)
        i, j, probability, code = (np.concatenate(column) for column in zip(*columns, strict=True))
        seconds = {"prepare": 0.0, "sweep": 0.0, "decide": time.perf_counter() - begun}
        return Matches(i, j, probability, code, counters, seconds)


def _example(kind: type[Model], dim: int) -> Model:
    mean, cov = [0.0] * dim, np.eye(dim).ravel().tolist()
    if kind is GaussianND:
        return GaussianND([mean], [cov])
    if kind is MixtureND:
        return MixtureND([[0.5, 0.5]], [mean * 2], [cov * 2])
    return Samples([mean], dim=dim) if kind is Samples else _EXAMPLES[kind]


@lru_cache(maxsize=64)
def _warm(
    left: type[Model], right: type[Model], threshold: Threshold, exact: bool, whole: bool, best: Best | None
) -> None:
    """Run a small join with the layout that rows coming from Arrow have, in a cell or whole."""
    match = MatchPositions(Distance("", "", 1.0), threshold, exact, True, best)
    place = PlacePositions(match.distance, threshold)
    kinds = left, right
    dim = 3 if any(issubclass(kind, Sky) for kind in kinds) else 2 if GaussianND in kinds or MixtureND in kinds else 1
    sides = []
    for kind in kinds:
        example = _example(kind, dim)
        model = type(example).from_arrow(example.to_arrow())
        found = place(model)
        sides.append(CellRows(model, found.start, found.end, None if whole else np.ones(len(model), dtype=bool)))
    if dimensions(sides[0].model)[0] == dimensions(sides[1].model)[0]:
        match(sides[0], sides[1])
