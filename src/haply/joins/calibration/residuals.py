"""Measure how far the two values of pairs are apart, in units of their stated errors.

If errors are right, the place of a difference within its distribution (the probability integral transform, PIT) is
uniform between 0 and 1 for pairs of the same thing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.errors import HaplyError
from haply.joins.cells.rows import bad_row
from haply.joins.dimensions import dimensions, dimensions_differ
from haply.joins.ranks import Centres
from haply.models import Gaussian, Model, OneDimensional, Samples, Sky
from haply.models.columns import read_column, view_column
from haply.probability.density import no_density
from haply.probability.exact import difference_cdf
from haply.probability.multivariate import parts

TENTHS = 10
"""Bins of the transform."""


# -- centres and variances ---------------------------------------------------------------------------------------------


def centres(column: pa.Array, called: str) -> pa.Array:
    """Return the mean of each row as a list of coordinates; on the sky as a point in space, in arcseconds."""
    read = read_column(column)
    if len(read.bad_rows):
        raise bad_row(called, read.example)
    dims = dimensions(read.model).astype(np.int64)
    mean = Centres.of(read.model).mean if len(read.model) else np.zeros((0, 1))
    values = mean[np.arange(mean.shape[1]) < dims[:, None]]
    lengths = np.zeros(len(column), np.int64)
    lengths[read.rows] = dims
    unknown = np.ones(len(column), bool)
    unknown[read.rows] = False
    ends = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    return pa.ListArray.from_arrays(ends, pa.array(values), mask=pa.array(unknown))


def axis_variances(column: pa.Array) -> pa.Array:
    """Return the variance of each row on one axis: the mean over its axes. The sky has two."""
    read = read_column(column)
    spread = Centres.of(read.model).variance if len(read.model) else np.zeros(0)
    axes = np.full(len(read.model), 2) if isinstance(read.model, Sky) else dimensions(read.model)
    values, unknown = np.zeros(len(column)), np.ones(len(column), bool)
    values[read.rows], unknown[read.rows] = spread / np.maximum(axes, 1), False
    return pa.array(values, mask=unknown)


def on_the_sky(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return how far others are to the east and north of points on a sphere, as chords."""
    return np.einsum("nij,nj->ni", directions(points), others - points)


def directions(points: np.ndarray) -> np.ndarray:
    """Return unit vectors to the east and north of points on a sphere: an array (n, 2, 3)."""
    x, y, z = points.T
    around = np.hypot(x, y)
    # on the axis itself any right ascension would do: take 0
    cos_ra, sin_ra = np.where(around > 0.0, x, 1.0), np.where(around > 0.0, y, 0.0)
    cos_ra, sin_ra = cos_ra / np.hypot(cos_ra, sin_ra), sin_ra / np.hypot(cos_ra, sin_ra)
    radius = np.hypot(around, z)
    cos_dec, sin_dec = around / radius, z / radius
    east = np.column_stack([-sin_ra, cos_ra, np.zeros(len(x))])
    north = np.column_stack([-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec])
    return np.stack([east, north], axis=1)


# -- the transform -----------------------------------------------------------------------------------------------------


def transform_problem(left: type[Model] | None, right: type[Model] | None) -> str | None:
    """Tell why pairs of two models have no transform; None if they have one."""
    if left is None or right is None:
        return "they are no measurements"
    lines = [issubclass(one, OneDimensional) and one is not Samples for one in (left, right)]
    if all(lines):
        return no_density(left, right)
    if issubclass(left, Sky) != issubclass(right, Sky):
        return "one is on the sky, the other is not"
    if any(one.kind in ("mixture_nd", "samples") for one in (left, right)):
        return "positions need Gaussian errors"
    return None if not any(lines) else "one is a number, the other a position"


def transformed(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Compute the transform of pairs; NaN where nothing is uncertain.

    For numbers it is ``P(X - Y <= 0)``; for positions, the share of the error ellipse's law that is nearer:
    ``1 - exp(-z**2 / 2)`` in two dimensions.
    """
    one, other = view_column(left), view_column(right)
    if isinstance(one, OneDimensional) and isinstance(other, OneDimensional):
        return difference_cdf(one, other, 0.0)
    squares, dim = squared_distances(one, other)
    return nearer(squares, dim)


def squared_distances(left: Model, right: Model) -> tuple[np.ndarray, int]:
    """Compute the squared distances of pairs of positions in units of their errors, and tell the dimension."""
    if not len(left):
        return np.zeros(0), 2
    known = sorted({int(dim) for side in (left, right) for dim in np.unique(dimensions(side))})
    if len(known) > 1:
        raise dimensions_differ(known[0], known[-1])
    one, other = parts(left), parts(right)
    assert one is not None
    assert other is not None
    difference, cov = other.mean - one.mean, one.cov + other.cov
    if isinstance(left, Sky):
        plane = directions(one.mean)
        difference = np.einsum("nij,nj->ni", plane, difference)
        cov = np.einsum("nij,njk,nlk->nil", plane, cov, plane)
    with np.errstate(all="ignore"):
        solid = np.linalg.det(cov) > 0.0
        safe = np.where(solid[:, None, None], cov, np.eye(difference.shape[1]))
        squares = np.einsum("ni,ni->n", difference, np.linalg.solve(safe, difference[:, :, None])[:, :, 0])
    return np.where(solid, squares, np.nan), difference.shape[1]


def place_of(differences: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Compute the transform of differences (pairs, dimension) whose errors are the same on every axis."""
    if differences.shape[1] > 1:
        return nearer((differences**2).sum(axis=1) / variances, differences.shape[1])
    return Gaussian(np.zeros(len(variances)), np.ones(len(variances))).cdf(differences[:, 0] / np.sqrt(variances))


def nearer(squares: np.ndarray, dim: int) -> np.ndarray:
    """Compute ``P(|Z|**2 <= squares)`` of a standard normal in ``dim`` dimensions: the law of chi squared."""
    half = 0.5 * np.asarray(squares, np.float64)
    if dim % 2 == 0:
        law, done = -np.expm1(-half), 2
    else:
        law, done = 2.0 * Gaussian(np.zeros(len(half)), np.ones(len(half))).cdf(np.sqrt(2.0 * half)) - 1.0, 1
    while done < dim:
        law = law - half ** (0.5 * done) * np.exp(-half) / math.gamma(0.5 * done + 1.0)
        done += 2
    return law


def sums_of(u: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Add up weights by tenths of the transform, then all weights, their squares, and the sums for two means."""
    place = np.minimum((u * TENTHS).astype(np.int64), TENTHS - 1)
    folded = np.abs(2.0 * u - 1.0)
    sums = [weight.sum(), (weight**2).sum(), (weight * u).sum(), (weight * folded).sum()]
    return np.concatenate([np.bincount(place, weight, TENTHS), sums])


@dataclass(frozen=True)
class Transforming:
    """Adds up the transform of pairs in tenths, each pair with a weight: its label, or its probability."""

    left: str
    right: str
    weight: str

    @property
    def columns(self) -> list[str]:
        """Return the columns that must be in the table."""
        return [self.left, self.right, self.weight]

    def __call__(self, table: pa.Table) -> np.ndarray:
        """Return the sums of some rows."""
        known = pc.and_(table[self.left].is_valid(), table[self.right].is_valid())
        rows = table.filter(pc.and_(known, table[self.weight].is_valid()))
        weight = rows[self.weight].cast(pa.float64()).to_numpy() if rows.num_rows else np.zeros(0)
        if not rows.num_rows:
            return np.zeros(TENTHS + 4)
        u = transformed(rows[self.left].combine_chunks(), rows[self.right].combine_chunks())
        if np.isnan(u).any():
            raise HaplyError(
                f"Pairs of '{self.left}' and '{self.right}' have no error", hint="leave out rows where both are certain"
            )
        return sums_of(u, weight)


@dataclass(frozen=True)
class Transforms:
    """The transform of all pairs: shares by tenths, and what they tell about the errors."""

    totals: np.ndarray
    on_a_line: bool
    labelled: bool

    @property
    def weight(self) -> float:
        """Return the sum of the weights of pairs."""
        return float(self.totals[TENTHS])

    @property
    def shares(self) -> np.ndarray:
        """Return the share of pairs in each tenth: 0.1 if errors are right."""
        return self.totals[:TENTHS] / self.weight

    @property
    def effective(self) -> float:
        """Return how many pairs of equal weight would give the same precision."""
        return self.weight**2 / float(self.totals[TENTHS + 1])

    @property
    def standard_error(self) -> float:
        """Return the standard error of a share, if errors are right."""
        return math.sqrt(0.1 * 0.9 / self.effective)

    @property
    def spread(self) -> float:
        """By how many standard errors differences are larger than stated errors imply; below 0, smaller."""
        at = TENTHS + (3 if self.on_a_line else 2)
        return (float(self.totals[at]) / self.weight - 0.5) * math.sqrt(12.0 * self.effective)

    @property
    def lean(self) -> float:
        """By how many standard errors differences lie to one side; for numbers only."""
        mean = float(self.totals[TENTHS + 2]) / self.weight
        return (mean - 0.5) * math.sqrt(12.0 * self.effective) if self.on_a_line else 0.0
