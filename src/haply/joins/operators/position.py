"""Find all pairs of uncertain positions that are likely near each other: of two sets, or of two sides in batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from haply.errors import HaplyError
from haply.joins.operators.batches import Stored, TwoSidedJoin
from haply.joins.operators.meeting import TimedRows, can_meet
from haply.joins.operators.operator import SIDES, Columns, PairBatch, ProbabilityMode, RowBatch, SideName, is_exact
from haply.joins.slots import in_slots
from haply.models import Certain, Model, Samples, Sky
from haply.numerics.scale import power_of
from haply.probability.multivariate import Parts, parts
from haply.probability.region import Distance
from haply.pruning.best import Best
from haply.pruning.bounds.positions import POSITION_RULES, intervals_on_line, limits, near_pairs, no_counts
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cascade import Counters
from haply.pruning.ownership import Places
from haply.pruning.threshold import Threshold

DECIDED_BY = np.array(["exact value", *POSITION_RULES.values()])
"""What decided a kept pair, by the code in ``PositionResult.code``."""


@dataclass(frozen=True)
class PositionResult(PairBatch):
    """Represents pairs of near positions.

    Attributes
    ----------
    rows
        The left rows and the right rows, also as ``left`` and ``right``.
    left, right
        The rows of each pair: ids if rows were pushed, row numbers from ``join_positions``.
    probability
        The probability of each pair; NaN where it was not computed.
    code
        What decided each pair, as a number.
    decided_by
        What decided each pair, as a name.
    funnel
        What became of the candidates.
    """

    code: np.ndarray
    funnel: Counters

    @property
    def decided_by(self) -> np.ndarray:
        """Return what decided each pair."""
        return DECIDED_BY[self.code]


def join_positions(
    left: Model | ArrayLike,
    right: Model | ArrayLike,
    within: float,
    threshold: float,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
) -> PositionResult:
    """Find the pairs of positions that are within a distance of each other with at least the threshold's probability.

    Parameters
    ----------
    left, right
        ``GaussianND``, ``MixtureND``, ``Sky``, ``Gaussian``, ``Mixture``, ``Certain`` or ``Samples``, or certain points
        as an array of n x d numbers.
    within
        The distance.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict).
    probability
        ``"exact"`` computes the probability of every pair that is kept, with an error below 1e-12. With ``"none"``
        bounds may accept a pair without it.

    Returns
    -------
    PositionResult
        The pairs by row numbers, in no particular order.

    Raises
    ------
    HaplyError
        If there is no threshold, or if the sides differ in dimension.

    Examples
    --------
    >>> from haply.models import GaussianND
    >>> stars = GaussianND([[0.0, 0.0], [5.0, 0.0]], [[[0.04, 0.01], [0.01, 0.09]]] * 2)
    >>> found = join_positions(stars, [[0.3, 0.1], [2.5, 0.0]], within=1.0, threshold=0.5)
    >>> found.left, found.right, found.probability.round(6)
    (array([0]), array([0]), array([0.993239]))
    """
    near = Distance("left", "right", within)
    return match_positions(left, right, near, Threshold(threshold, strict), is_exact(probability))


def match_positions(
    left: Any,
    right: Any,
    distance: Distance,
    threshold: Threshold,
    exact: bool,
    places: tuple[Places, Places] | None = None,
    best: Best | None = None,
) -> PositionResult:
    """Find pairs as ``join_positions`` does, for a condition as plans have it, and for rows that are in several cells.

    With ``best``, pairs that are not wanted may be left out; probabilities are then computed in any case.
    """
    _check_threshold(threshold)
    power = power_of(distance.limit)
    sides = _parts_of(left, "left", power), _parts_of(right, "right", power)
    dims = [3 if isinstance(side, Sky) else side.mean.shape[1] for side in sides]
    empty = any((len(side) if isinstance(side, Sky) else len(side.start) - 1) == 0 for side in sides)
    if dims[0] != dims[1] and not empty:
        raise HaplyError("Points differ in dimension", expected=f"dim = {dims[0]}", found=f"{dims[1]}")
    if empty or not threshold.attainable:
        return _no_pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    found = near_pairs(*sides, limits(math.ldexp(distance.limit, -power), threshold, exact, dims[0]), places, best)
    left_rows, right_rows, probability, code = found.pairs
    return PositionResult((left_rows, right_rows), probability, code, found.counters)


PlacedRows = TimedRows[Model]
"""Rows with their intervals on a line."""


class PositionJoin(TwoSidedJoin[PlacedRows, PositionResult]):
    """Joins batches of positions of two sides that are likely within a distance of each other.

    Each pair is returned once, when its later row is pushed. Rows whose spread is too large for any match are not kept.
    With a window, batches have a column ``time``, and pushes may come in any order of time.

    Parameters
    ----------
    within
        The distance.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict).
    window
        Pairs are those with ``|left time - right time| <= window``, in the unit of the times. None means that all rows
        may meet.
    probability
        ``"exact"`` computes the probability of every pair that is kept. With ``"none"`` bounds may accept a pair
        without it.
    dim
        How many coordinates a position has; by default as many as the first.

    Raises
    ------
    HaplyError
        If there is no threshold.

    Examples
    --------
    >>> from haply.models import GaussianND
    >>> join = PositionJoin(1.0, 0.5, window=10)
    >>> fix = GaussianND([[0.0, 0.0]], [[[0.04, 0.01], [0.01, 0.09]]])
    >>> join.push("left", {"id": [1], "time": [0], "pos": fix}).left
    array([], dtype=int64)
    >>> found = join.push("right", {"id": [7, 8], "time": [3, 30], "pos": [[0.3, 0.1], [0.3, 0.1]]})
    >>> found.left, found.right, found.probability.round(6)
    (array([1]), array([7]), array([0.993239]))
    """

    def __init__(
        self,
        within: float,
        threshold: float,
        *,
        window: float | None = None,
        strict: bool = False,
        probability: ProbabilityMode = "exact",
        dim: int | None = None,
    ) -> None:
        super().__init__(window)
        self.distance, self.threshold = Distance("left", "right", within), Threshold(threshold, strict)
        _check_threshold(self.threshold)
        self.exact, self.dim = is_exact(probability), dim
        self._funnel = no_counts()

    def push(self, side: SideName, batch: Columns) -> PositionResult:
        """Add rows of one side, and return the pairs that they complete.

        Parameters
        ----------
        side
            ``"left"`` or ``"right"``.
        batch
            Columns by name: ``id``, ``pos`` as a model or as points, and ``time`` if there is a window.

        Returns
        -------
        PositionResult
            The pairs of these rows with rows that were pushed before.

        Raises
        ------
        HaplyError
            If a column is missing, if columns differ in length, or if the side is closed.
        """
        rows = self._read(side, batch, "pos", lambda given: _model_of(given, side))
        return self.arrive(SIDES.index(side), rows)

    def arrive(self, side: int, rows: RowBatch[Model], *, match: bool = True) -> PositionResult:
        """Push rows that the caller has checked; return the pairs that this cell owns."""
        found = []
        if len(rows):
            placed = TimedRows.placed(rows, self._placed(rows.model, SIDES[side]))
            found = self._arrive(SIDES[side], placed, match)
        if not found:
            return _no_pairs(rows.ids[:0], rows.ids[:0])
        left, right, probability, code = (
            np.concatenate([getattr(part, name) for part in found]) for name in ("left", "right", "probability", "code")
        )
        counters = no_counts()
        for part in found:
            counters.add(part.funnel)
        self._funnel.add(counters)
        return PositionResult((left, right), probability, code, counters)

    def _placed(self, model: Model, side: SideName) -> Intervals:
        power = power_of(self.distance.limit)
        normals = _parts_of(model, side, power)
        dim = 3 if isinstance(normals, Sky) else normals.mean.shape[1]
        if self.dim not in (None, dim):
            raise HaplyError("Points differ in dimension", expected=f"dim = {self.dim}", found=f"{dim}")
        self.dim = dim
        return intervals_on_line(normals, limits(math.ldexp(self.distance.limit, -power), self.threshold, True, dim))

    def _match(self, added: PlacedRows, stored: Stored[PlacedRows], side: SideName) -> PositionResult:
        """Match rows by place within slots of time: rows without a common slot are not compared."""
        window = math.inf if self.window is None else self.window
        added = _near(added, stored.rows, window)
        there = _near(stored.rows, added, window)
        left, right = (added, there) if side == "left" else (there, added)
        if not len(left) or not len(right):
            return _no_pairs(left.ids[:0], right.ids[:0])
        copies, numbers = in_slots(left, right, window)
        if numbers[1] is not None:
            right = right.take(copies)
        places = left.places._replace(group=numbers[0]), right.places._replace(group=numbers[1])
        found = match_positions(left.model, right.model, self.distance, self.threshold, self.exact, places)
        kept = np.flatnonzero(can_meet(left, right, found.left, found.right, window))
        found.funnel.kept = len(kept)
        i, j = found.left[kept], found.right[kept]
        return PositionResult((left.ids[i], right.ids[j]), found.probability[kept], found.code[kept], found.funnel)

    def _settings(self) -> dict[str, Any]:
        return {
            "within": self.distance.within, "threshold": self.threshold.value, "window": self.window,
            "strict": self.threshold.strict, "probability": "exact" if self.exact else "none", "dim": self.dim,
        }  # fmt: skip


def _near(rows: PlacedRows, others: PlacedRows, window: float) -> PlacedRows:
    """Return the rows that may meet one of the others, by their times and by their places on the line."""
    near, ends = rows.facing(others, window), others.intervals
    here = near.intervals.start <= ends.end.max(initial=-np.inf)
    here &= near.intervals.end >= ends.start.min(initial=np.inf)
    return near if here.all() else near.take(np.flatnonzero(here))


def _no_pairs(left: np.ndarray, right: np.ndarray) -> PositionResult:
    """Return a result without pairs, with ids of these types."""
    return PositionResult((left, right), np.empty(0), np.empty(0, np.int8), no_counts())


def _check_threshold(threshold: Threshold) -> None:
    if threshold.value is None:
        raise HaplyError(
            "Without a threshold every pair is possible",
            expected="a threshold",
            found="positions whose values are unbounded",
            hint="give threshold=0.01 or another limit: the answer would be the cross product",
        )


def _points(given: Any, name: str) -> np.ndarray:
    points = np.asarray(given, np.float64)
    if points.ndim not in (1, 2) or not np.isfinite(points).all():
        raise HaplyError(
            f"The {name} side holds no points",
            expected="a model, or finite numbers of shape (n, d)",
            found="NaN or infinite numbers" if points.ndim in (1, 2) else f"shape {points.shape}",
        )
    return points


def _model_of(given: Any, name: str) -> Model:
    """Return a model as it is, or points as a model: certain numbers, or one sample for each point."""
    if isinstance(given, Model):
        return given
    points = _points(given, name)
    return Certain(points) if points.ndim == 1 else Samples(points, dim=points.shape[1])


def _parts_of(side: Any, name: str, power: int) -> Parts | Sky:
    """Return one side divided by ``2**power``, so that squares of relevant distances are in the range of doubles.

    The sky is not scaled: its radius is fixed.
    """
    if isinstance(side, Sky):
        return side
    if not isinstance(side, Model):
        points = np.ldexp(_points(side, name), -power)
        _check_range(points, name)
        count, dim = len(points), 1 if points.ndim == 1 else points.shape[1]
        return Parts(np.arange(count + 1), np.ones(count), points.reshape(count, dim), np.zeros((1, dim, dim)))
    found = parts(side.scaled(power) if power else side)
    if found is not None and power:
        _check_range(found.mean, name)
    if found is None:
        raise HaplyError(
            f"The {name} side has no normal positions",
            expected="GaussianND, MixtureND, or points",
            found=type(side).__name__,
        )
    return found


def _check_range(positions: np.ndarray, name: str) -> None:
    """Refuse positions that are too large to compare with the distance in doubles."""
    if not np.isfinite(positions).all():
        raise HaplyError(
            f"The {name} side has positions too large for the distance asked for",
            expected="positions below 1e300 times the distance",
            hint="ask for equal values if that is what is meant",
        )
