"""The plan of a join on a distance: rows are sent to cells by their place on a line, and decided as clouds there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from pyspark.sql import types as T

from haply.errors import HaplyError
from haply.joins.match import Matches
from haply.joins.similarity import SimilarityJoin
from haply.models import Certain, GaussianND, MixtureND, Model, Samples, Sky
from haply.probability.distance import clouds
from haply.probability.region import Distance
from haply.pruning.cascade import Counters
from haply.pruning.cloud_rules import RULES
from haply.pruning.clouds import Places, core_share, extents
from haply.pruning.intervals import Intervals
from haply.pruning.threshold import Threshold
from haply.spark.columns import model_of_spark_type
from haply.spark.plan import JoinPlan, Side
from haply.spark.worker import Match, Rows

_RULES = tuple(RULES.values())


def point_model(data_type: T.DataType) -> type[Model] | None:
    """The model of a Spark column of points: samples, certain points as arrays, or certain numbers."""
    if isinstance(data_type, T.ArrayType):
        return Samples if isinstance(data_type.elementType, T.NumericType) else None
    model = model_of_spark_type(data_type)
    return model if model in (Certain, Samples) else None


def dimensions(model: Model) -> np.ndarray:
    """How many coordinates each row has."""
    if isinstance(model, GaussianND):
        return model.mean().lengths
    if isinstance(model, MixtureND):
        return model.means.lengths // np.maximum(model.weights.lengths, 1)
    if isinstance(model, Sky):
        return np.full(len(model), 3)
    return np.asarray(model.dim) if isinstance(model, Samples) else np.ones(len(model), np.int64)


@dataclass(frozen=True)
class PlaceOnLine:
    """The row interval of a cloud: where it may be met on a line, half of the distance added on each side."""

    distance: Distance
    threshold: Threshold

    def __call__(self, model: Model) -> Intervals:
        """Intervals of all rows; rows of different dimensions are placed each by their own line."""
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
class MatchClouds:
    """By the distance of clouds: see ``SimilarityJoin``."""

    distance: Distance
    threshold: Threshold
    exact: bool
    raises: bool
    window: float | None = None

    def __call__(self, left: Rows, right: Rows) -> Matches:
        """The kept pairs whose later beginning is in this cell."""
        begun = time.perf_counter()
        dims = [dimensions(side.model) for side in (left, right)]
        known = np.unique(np.concatenate(dims))
        if len(known) > 1 and self.raises:
            raise HaplyError(
                "Points differ in dimension",
                expected=f"{known[0]:g} coordinates, as other rows have",
                found=f"{known[-1]:g}",
                hint='leave out what fits nothing with invalid="drop"',
            )
        parts, counters = [], Counters(_RULES, _RULES)
        for dim in known:
            rows = [np.flatnonzero(own == dim) for own in dims]
            found = self._same_dimension(int(dim), left, right, rows[0], rows[1])
            parts.append(found[:-1])
            counters.add(found[-1])
        i, j, probability, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
        seconds = {"prepare": 0.0, "sweep": 0.0, "decide": time.perf_counter() - begun}
        return Matches(i, j, probability, codes, counters, seconds)

    def _same_dimension(self, dim: int, left: Rows, right: Rows, mine: np.ndarray, theirs: np.ndarray) -> Any:
        join = SimilarityJoin(
            self.distance.limit, self.threshold.value, dim=dim, strict=self.threshold.strict, window=self.window,
            probability="exact" if self.exact else "none",
        )  # fmt: skip
        found = None
        for side, rows, chosen in (("right", right, theirs), ("left", left, mine)):
            times = np.zeros(len(chosen)) if rows.times is None else rows.times[chosen]
            group = 0.0 if rows.groups is None else rows.groups[chosen]
            places = Places(*rows.placed(chosen), group)
            found = join.arrive(side, chosen, rows.model.take(chosen), times, places)  # type: ignore[arg-type]
        assert found is not None
        return found.left, found.right, found.probability, np.zeros(len(found.left), np.int8), join.funnel


@lru_cache(maxsize=64)
def _warm(left: type[Model], right: type[Model], threshold: Threshold, exact: bool) -> None:
    """Run a small join with the layout that rows coming from Arrow have."""
    match = MatchClouds(Distance("", "", 1.0), threshold, exact, True)
    place = PlaceOnLine(match.distance, threshold)
    sides = []
    for kind in (left, right):
        model = kind.from_arrow((Samples([[0.0, 1.0]]) if kind is Samples else Certain([1.0])).to_arrow())
        found = place(model)
        sides.append(Rows(model, found.start, found.end, np.ones(1, dtype=bool)))
    match(sides[0], sides[1])


class DistancePlan(JoinPlan):
    """A join on the distance of points (see ``JoinPlan``)."""

    @staticmethod
    def _side(name: str, frame: Any, column: str) -> Side:
        return Side(name, frame, column, point_model(frame.schema[column].dataType), tuple(frame.columns))

    @property
    def _distance(self) -> Distance:
        assert self.condition.distance is not None
        return self.condition.distance

    def _warm(self) -> None:
        assert self._left.model is not None
        assert self._right.model is not None
        _warm(self._left.model, self._right.model, self.threshold, self._needs_values)  # type: ignore[arg-type]

    @property
    def _has_sure_pairs(self) -> bool:
        return False

    @property
    def _holds_for_itself(self) -> bool:
        return True

    def _placing(self, side: Side) -> Callable[[Model], Intervals]:
        return PlaceOnLine(self._distance, self.threshold)

    def _match(self) -> Match:
        window = None if self.window is None else self.window.length
        return MatchClouds(self._distance, self.threshold, self._needs_values, self.invalid == "raise", window)

    def _counters(self) -> Counters:
        return Counters(_RULES, _RULES)

    def _explain_condition(self) -> str:
        sign = "<=" if self._distance.closed else "<"
        left, right = (f"{side.name}.{side.column} ({side.model.kind})" for side in (self._left, self._right))  # type: ignore[union-attr]
        return f"distance({left}, {right}) {sign} {self._distance.within:g}"

    def _explain_candidates(self) -> str:
        share = core_share(self.threshold)
        return (
            f"cores that hold {min(share, 1.0):.4g} of each object, by their place on a line; in each cell a look at "
            "all centres, or a grid of them"
        )

    def _explain_cascade(self) -> str:
        verb = "reject" if self.exact else "reject and accept"
        return f"{' -> '.join(name for name in _RULES if name != 'spheres')} ({verb}) -> exact count of near samples"
