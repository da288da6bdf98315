"""All pairs of two sets of uncertain positions that are likely near each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.models import Certain, Model, Sky
from haply.probability.multivariate import Parts, parts
from haply.probability.region import Distance
from haply.pruning.cascade import Counters
from haply.pruning.positions import POSITION_RULES, Where, limits, near_pairs, no_counts
from haply.pruning.threshold import Threshold

DECIDED_BY = np.array(["exact value", *POSITION_RULES.values()])
"""What decided a kept pair, by the code in ``PositionResult.code``."""


@dataclass(frozen=True)
class PositionResult:
    """The kept pairs by row numbers, their probabilities (NaN if not asked for), and what became of the candidates."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    code: np.ndarray
    funnel: Counters

    @property
    def decided_by(self) -> np.ndarray:
        """What decided each pair."""
        return DECIDED_BY[self.code]


def join_positions(
    left: Any,
    right: Any,
    within: float,
    threshold: float,
    *,
    strict: bool = False,
    probability: Literal["exact", "none"] = "exact",
) -> PositionResult:
    """Pairs with ``P(|left - right| <= within) >= threshold``, in no particular order.

    Each side is a ``GaussianND`` or ``MixtureND``, or certain points as an array of n x d numbers; ``Gaussian``,
    ``Mixture``, ``Certain`` and ``Samples`` will do as well. With ``probability="none"`` bounds may accept a pair, and
    its probability is not computed. The error of a probability is below 1e-12.

    >>> from haply.models import GaussianND
    >>> stars = GaussianND([[0.0, 0.0], [5.0, 0.0]], [[[0.04, 0.01], [0.01, 0.09]]] * 2)
    >>> found = join_positions(stars, [[0.3, 0.1], [2.5, 0.0]], within=1.0, threshold=0.5)
    >>> found.left, found.right, found.probability.round(6)
    (array([0]), array([0]), array([0.993239]))
    """
    if probability not in ("exact", "none"):
        raise unknown_name("choice of probability", probability, ("exact", "none"))
    near = Distance("left", "right", within)
    return match_positions(left, right, near, Threshold(threshold, strict), probability == "exact")


def match_positions(
    left: Any,
    right: Any,
    distance: Distance,
    threshold: Threshold,
    exact: bool,
    places: tuple[Where, Where] | None = None,
) -> PositionResult:
    """``join_positions`` for a condition as plans have it, and for rows that are seen in several cells."""
    if threshold.value is None:
        raise HaplyError(
            "Without a threshold every pair is possible",
            expected="a threshold",
            found="positions whose values are unbounded",
            hint="give threshold=0.01 or another limit: the answer would be the cross product",
        )
    sides = _parts_of(left, "left"), _parts_of(right, "right")
    dims = [3 if isinstance(side, Sky) else side.mean.shape[1] for side in sides]
    empty = any((len(side) if isinstance(side, Sky) else len(side.start) - 1) == 0 for side in sides)
    if dims[0] != dims[1] and not empty:
        raise HaplyError("Points differ in dimension", expected=f"dim = {dims[0]}", found=f"{dims[1]}")
    if empty or not threshold.attainable:
        nothing = np.empty(0, np.int64)
        return PositionResult(nothing, nothing, np.empty(0), np.empty(0, np.int8), no_counts())
    found = near_pairs(*sides, limits(distance.limit, threshold, exact, dims[0]), places)
    return PositionResult(*found.pairs, found.counters)


def _parts_of(side: Any, name: str) -> Parts | Sky:
    if isinstance(side, Sky):
        return side
    if not isinstance(side, Model):
        points = np.asarray(side, np.float64)
        if points.ndim == 1:
            return _parts_of(Certain(points), name)
        if points.ndim != 2 or not np.isfinite(points).all():
            raise HaplyError(
                f"The {name} side holds no points",
                expected="a model, or finite numbers of shape (n, d)",
                found=f"shape {points.shape}" if points.ndim != 2 else "NaN or infinite numbers",
            )
        count, dim = points.shape
        return Parts(np.arange(count + 1), np.ones(count), points, np.zeros((1, dim, dim)))
    found = parts(side)
    if found is None:
        raise HaplyError(
            f"The {name} side has no normal positions",
            expected="GaussianND, MixtureND, or points",
            found=type(side).__name__,
        )
    return found
