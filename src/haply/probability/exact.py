"""Compute exact probabilities of conditions between two one-dimensional models, by row or for lists of row pairs.

All follow from the difference cdf ``H(t) = P(A - B <= t)``: a sum over pairs of components, each in closed form (cut
normals among themselves by quadrature with an error below 1e-14). Gaussian, uniform and sample pairs have kernels of
their own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, OneDimensional, Samples, Uniform
from haply.numerics.jit import solid
from haply.probability import kernels
from haply.probability.region import Region


class PairProbability:
    """Computes the probability that ``left[i] - right[j]`` lies in a region, for lists of pairs ``(i, j)``."""

    def __init__(self, left: OneDimensional, right: OneDimensional, region: Region) -> None:
        self.left, self.right, self.region = left, right, region
        self.counts = left.equal_weight_samples() and right.equal_weight_samples()
        """Whether every probability is a count of equally likely cases, rounded once."""
        points = (Certain, Samples)
        if isinstance(left, Gaussian) and isinstance(right, Gaussian):
            self.family = "gaussian"
            self.parameters = (solid(left.values["mean"]), solid(left.sd), solid(right.values["mean"]), solid(right.sd))
        elif isinstance(left, points) and isinstance(right, points):
            self.family = "samples"
            before = np.cumsum(right.components.weight) - right.components.weight
            first = right.components.start[:-1]
            sizes = np.diff(right.components.start)
            self._weight_before = before - np.repeat(before[first] if len(before) else before, sizes)
        elif (
            isinstance(left, Uniform)
            and isinstance(right, Uniform)
            and (left.lo < left.hi).all()
            and (right.lo < right.hi).all()
        ):
            self.family = "uniform"
            self.parameters = (solid(left.lo), solid(left.hi), solid(right.lo), solid(right.hi))
        else:
            self.family = "components"

    def evaluate(
        self, left_rows: np.ndarray, right_rows: np.ndarray, ends: tuple[np.ndarray, np.ndarray] | None = None
    ) -> np.ndarray:
        """Return the probabilities of the given pairs; ``ends`` replaces the region's ends by others for each pair."""
        region = self.region
        lows, highs = map(solid, ends or ([region.low], [region.high]))
        closed = (region.low_closed, region.high_closed, region.outside)
        left, right = self.left, self.right
        if self.family == "gaussian":
            return kernels.gaussian_pairs(*self.parameters, left_rows, right_rows, lows, highs, *closed)
        if self.family == "uniform":
            return kernels.uniform_pairs(*self.parameters, left_rows, right_rows, lows, highs, region.outside)
        if self.family == "samples":
            sides = (left.components, right.components, self._weight_before, self.counts)
            return kernels.samples_pairs(*sides, left_rows, right_rows, lows, highs, *closed)
        return kernels.components_pairs(left.components, right.components, left_rows, right_rows, lows, highs, *closed)


def _row_by_row(a: OneDimensional, b: OneDimensional, region: Region, lows: Any, highs: Any) -> np.ndarray:
    """Return ``P(a - b in region)`` with the region's ends for each row; an argument of one row serves for all."""
    for name, side in (("first", a), ("second", b)):
        if not isinstance(side, OneDimensional):
            raise HaplyError(
                f"The {name} argument is not a one-dimensional model",
                expected="a model such as Gaussian(mean, sd)",
                found=type(side).__name__,
                hint="wrap plain numbers in Certain(...)",
            )
    ends = np.atleast_1d(np.asarray(lows, np.float64)), np.atleast_1d(np.asarray(highs, np.float64))
    lengths = {len(a), len(b), len(ends[0]), len(ends[1])}
    if len(lengths - {1}) > 1:
        raise HaplyError(
            "The arguments differ in length", expected="equal lengths, or one row", found=str(sorted(lengths))
        )
    rows = min(lengths) if 0 in lengths else max(lengths)
    index, one = np.arange(rows, dtype=np.int32), np.zeros(rows, dtype=np.int32)
    wide = tuple(np.ascontiguousarray(np.broadcast_to(end, (rows,))) if len(lengths) > 1 else end for end in ends)
    pairs = PairProbability(a, b, region)
    return pairs.evaluate(index if len(a) == rows else one, index if len(b) == rows else one, (wide[0], wide[1]))


def region_probability(a: OneDimensional, b: OneDimensional, region: Region) -> np.ndarray:
    """Compute the probability that ``a - b`` lies in a region, for each row.

    Parameters
    ----------
    a, b
        One-dimensional models with the same number of rows. A model with one row is used for all rows of the other.
    region
        The differences for which the condition holds.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Examples
    --------
    >>> from haply.models import Uniform
    >>> from haply.probability import Region
    >>> region_probability(Uniform(0, 4), Uniform(0, 4), Region(-1, 1))
    array([0.4375])
    """
    return _row_by_row(a, b, region, region.low, region.high)


def interval_probability(a: OneDimensional, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Compute ``P(low <= a <= high)`` for each row; the ends may differ from row to row."""
    return _row_by_row(a, Certain([0.0]), Region(0.0, 0.0), low, high)


def difference_cdf(a: OneDimensional, b: OneDimensional, t: ArrayLike) -> np.ndarray:
    """Compute ``P(a - b <= t)`` for each row.

    Parameters
    ----------
    a, b
        One-dimensional models with the same number of rows. A model with one row is used for all rows of the other.
    t
        One number, or one for each row.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Examples
    --------
    >>> from haply.models import Uniform
    >>> difference_cdf(Uniform(0, 1), Uniform(0, 1), 0.0)
    array([0.5])
    """
    return _row_by_row(a, b, Region(-math.inf, 0.0), np.full_like(t, -math.inf, dtype=np.float64), t)


def equal_within(a: OneDimensional, b: OneDimensional, within: ArrayLike) -> np.ndarray:
    """Compute ``P(|a - b| <= within)`` for each row.

    Parameters
    ----------
    a, b
        One-dimensional models with the same number of rows. A model with one row is used for all rows of the other.
    within
        The largest difference that counts as equal, 0 or more: one number, or one for each row.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Raises
    ------
    HaplyError
        If ``within`` is negative or NaN.

    Examples
    --------
    >>> from haply.models import Uniform
    >>> equal_within(Uniform(0, 5), Uniform(3, 13), 1.0)
    array([0.08])
    """
    tolerance = np.asarray(within, dtype=np.float64)
    if not (tolerance >= 0).all():
        raise HaplyError("A tolerance is negative or NaN", expected="within >= 0", found=str(np.min(tolerance)))
    return _row_by_row(a, b, Region(0.0, 0.0), -tolerance, tolerance)


def greater(a: OneDimensional, b: OneDimensional) -> np.ndarray:
    """Compute ``P(a > b)`` for each row; equal values do not count.

    Parameters
    ----------
    a, b
        One-dimensional models with the same number of rows. A model with one row is used for all rows of the other.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Examples
    --------
    >>> from haply.models import Certain, Uniform
    >>> greater(Uniform(0, 4), Certain([1, 3]))
    array([0.75, 0.25])
    """
    return region_probability(a, b, Region(0.0, math.inf, low_closed=False))


def less(a: OneDimensional, b: OneDimensional) -> np.ndarray:
    """Compute ``P(a < b)`` for each row; equal values do not count.

    Parameters
    ----------
    a, b
        One-dimensional models with the same number of rows. A model with one row is used for all rows of the other.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Examples
    --------
    >>> from haply.models import Certain, Uniform
    >>> less(Uniform(0, 4), Certain([1, 3]))
    array([0.25, 0.75])
    """
    return region_probability(a, b, Region(-math.inf, 0.0, high_closed=False))
