"""The plan of a join on the distance of Gaussian positions, mixtures of them, and points: as that of clouds.

Rows are sent to cells by their place on a line, and decided there by ``match_positions``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from pyspark.sql import types as T

from haply.errors import HaplyError
from haply.joins.match import Matches
from haply.joins.position import match_positions
from haply.models import Certain, Gaussian, GaussianND, Mixture, MixtureND, Model, Samples, Sky, SkyEllipse
from haply.probability.multivariate import parts
from haply.probability.region import Distance
from haply.pruning.cascade import Counters
from haply.pruning.intervals import Intervals
from haply.pruning.positions import Where, intervals_on_line, limits, no_counts
from haply.pruning.threshold import Threshold
from haply.spark.columns import model_of_spark_type
from haply.spark.distance import DistancePlan, dimensions, point_model
from haply.spark.plan import Side
from haply.spark.worker import Match, Rows

NORMALS: tuple[type[Model], ...] = (GaussianND, MixtureND, Sky, SkyEllipse, Gaussian, Mixture)
_EXAMPLES: dict[type[Model], Model] = {
    Certain: Certain([1.0]),
    Sky: Sky(0.0, 0.0, 1.0, 1.0),
    SkyEllipse: SkyEllipse(0.0, 0.0, 1.0, 1.0),
    Gaussian: Gaussian([1.0], [1.0]),
    Mixture: Mixture([[0.5, 0.5]], [[1.0, 2.0]], [[1.0, 1.0]]),
}


def position_model(data_type: T.DataType) -> type[Model] | None:
    """The model of a Spark column of positions: normals and their mixtures, samples, certain points and numbers."""
    model = model_of_spark_type(data_type)
    return model if model in NORMALS else point_model(data_type)


def _different(dims: np.ndarray) -> list[int]:
    """The dimensions that there are; mostly it is one."""
    if len(dims) and (dims == dims[0]).all():
        return [int(dims[0])]
    return [int(dim) for dim in np.unique(dims)]


def _of_dimension(model: Model, dims: np.ndarray, dim: int) -> tuple[Model, np.ndarray]:
    """The rows of one dimension, and where they are; nothing is copied if all are."""
    rows = np.flatnonzero(dims == dim)
    return (model if len(rows) == len(dims) else model.take(rows)), rows


@dataclass(frozen=True)
class PlaceNormals:
    """The row interval of a position: where it may be met on a line, half of the distance added on each side."""

    distance: Distance
    threshold: Threshold

    def __call__(self, model: Model) -> Intervals:
        """Intervals of all rows; rows of different dimensions are placed each by their own line."""
        dims = dimensions(model)
        known = _different(dims)
        found = Intervals(np.empty(len(model)), np.empty(len(model)), np.zeros(len(model), dtype=bool))
        for dim in known:
            these, rows = _of_dimension(model, dims, dim)
            normals = these if isinstance(these, Sky) else parts(these)
            assert normals is not None
            placed = intervals_on_line(normals, limits(self.distance.limit, self.threshold, True, dim))
            if len(known) == 1:
                return placed
            found.start[rows], found.end[rows], found.hopeless[rows] = placed.start, placed.end, placed.hopeless
        return found


@dataclass(frozen=True)
class MatchPositions:
    """By the distance of positions: see ``match_positions``."""

    distance: Distance
    threshold: Threshold
    exact: bool
    raises: bool

    def __call__(self, left: Rows, right: Rows) -> Matches:
        """The kept pairs whose later beginning is in this cell."""
        begun = time.perf_counter()
        sides = left, right
        dims = [dimensions(side.model) for side in sides]
        known = sorted({dim for each in dims for dim in _different(each)})
        if len(known) > 1 and self.raises:
            raise HaplyError(
                "Points differ in dimension",
                expected=f"{known[0]} coordinates, as other rows have",
                found=f"{known[-1]}",
                hint='leave out what fits nothing with invalid="drop"',
            )
        columns, counters = [], no_counts()
        for dim in known:
            (mine, rows), (theirs, others) = (
                _of_dimension(side.model, own, dim) for side, own in zip(sides, dims, strict=True)
            )
            places = _where(left, right, rows, others)
            found = match_positions(mine, theirs, self.distance, self.threshold, self.exact, places)
            columns.append((rows[found.left], others[found.right], found.probability, found.code))
            counters.add(found.funnel)
        i, j, probability, code = (np.concatenate(column) for column in zip(*columns, strict=True))
        seconds = {"prepare": 0.0, "sweep": 0.0, "decide": time.perf_counter() - begun}
        return Matches(i, j, probability, code, counters, seconds)


def _where(left: Rows, right: Rows, mine: np.ndarray, theirs: np.ndarray) -> tuple[Where, Where] | None:
    """Which pairs belong to this cell; nothing where all do."""
    if left.native is None and right.native is None and left.groups is None:
        return None
    found = []
    for rows, chosen in ((left, mine), (right, theirs)):
        group = None if rows.groups is None else rows.groups[chosen]
        found.append(Where(*rows.placed(chosen), group))
    return found[0], found[1]


def _example(kind: type[Model], dim: int) -> Model:
    mean, cov = [0.0] * dim, np.eye(dim).ravel().tolist()
    if kind is GaussianND:
        return GaussianND([mean], [cov])
    if kind is MixtureND:
        return MixtureND([[0.5, 0.5]], [mean * 2], [cov * 2])
    return Samples([mean], dim=dim) if kind is Samples else _EXAMPLES[kind]


@lru_cache(maxsize=64)
def _warm(left: type[Model], right: type[Model], threshold: Threshold, exact: bool, whole: bool) -> None:
    """Run a small join with the layout that rows coming from Arrow have, in a cell or whole."""
    match = MatchPositions(Distance("", "", 1.0), threshold, exact, True)
    place = PlaceNormals(match.distance, threshold)
    kinds = left, right
    dim = 3 if any(issubclass(kind, Sky) for kind in kinds) else 2 if GaussianND in kinds or MixtureND in kinds else 1
    sides = []
    for kind in kinds:
        example = _example(kind, dim)
        model = type(example).from_arrow(example.to_arrow())
        found = place(model)
        sides.append(Rows(model, found.start, found.end, None if whole else np.ones(len(model), dtype=bool)))
    if dimensions(sides[0].model)[0] == dimensions(sides[1].model)[0]:
        match(sides[0], sides[1])


class PositionPlan(DistancePlan):
    """A join on the distance of positions (see ``JoinPlan``)."""

    @staticmethod
    def _side(name: str, frame: Any, column: str) -> Side:
        return Side(name, frame, column, position_model(frame.schema[column].dataType), tuple(frame.columns))

    def _warm(self) -> None:
        assert self._left.model is not None
        assert self._right.model is not None
        _warm(self._left.model, self._right.model, self.threshold, self._needs_values, self._broadcast is not None)  # type: ignore[arg-type]

    def _placing(self, side: Side) -> PlaceNormals:
        return PlaceNormals(self._distance, self.threshold)

    def _match(self) -> Match:
        return MatchPositions(self._distance, self.threshold, self._needs_values, self.invalid == "raise")

    def _counters(self) -> Counters:
        return no_counts()

    def _explain_candidates(self) -> str:
        out = max(0.0, limits(self._distance.limit, self.threshold, True, 2).out)
        return (
            f"means at most {self._distance.within:g} and {out:.4g} standard deviations apart, by place on a line; "
            "in each cell of it, sorted small cells as wide as that"
        )

    def _explain_cascade(self) -> str:
        names = self._counters().rejected
        verb = "" if self.exact else ", inside (accept)"
        return f"{' -> '.join(names)} (reject){verb} -> exact mass of the disc, or of the ball"
