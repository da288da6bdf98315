"""Models of points in several dimensions: stored, validated, carried through Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from haply.models.base import Model, Parameter
from haply.models.plane import NormalParts, one_dimension
from haply.models.ragged import NumberLists, Ragged
from haply.numerics.multivariate.covariance import indefinite

_SYMMETRY_SLACK = 1e-9
"""Tolerance for rounding: a covariance may miss symmetry, or an eigenvalue 0, by this share of the largest entry."""


class GaussianND(Model):
    """Represents multivariate normal points.

    Parameters
    ----------
    mean
        The mean of each point: d numbers.
    cov
        The covariance of each point: a symmetric positive semidefinite matrix of d x d numbers, nested, or flat row by
        row.

    Examples
    --------
    >>> from haply.models import GaussianND
    >>> GaussianND([[0.0, 0.0], [5.0, 0.0]], [[[0.04, 0.01], [0.01, 0.09]]] * 2)
    <GaussianND: 2 rows>
    """

    kind: ClassVar[str] = "gaussian_nd"
    has_constructor: ClassVar[bool] = False
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("mean", "list", moves=True),
        Parameter("cov", "list", degree=2),
    )

    def __init__(self, mean: NumberLists, cov: NumberLists) -> None:
        super().__init__(mean=mean, cov=cov)

    def mean(self) -> Ragged:
        """Return the mean of each row."""
        return self.values["mean"]

    def normal_parts(self) -> NormalParts:
        means, dim = self.values["mean"], one_dimension(self.values["mean"].lengths)
        covs = self.cov.values.reshape(-1, dim, dim)
        return NormalParts(np.arange(len(self) + 1), np.ones(len(self)), means.values.reshape(-1, dim), covs)

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        dims = self.values["mean"].lengths
        agree = self.cov.lengths == dims * dims
        yield "lengths disagree", ~agree
        yield from super().reasons()
        bad = np.zeros(len(self), dtype=bool)
        rows = np.flatnonzero(agree & (dims > 0))
        bad[rows] = indefinite(self.cov.values, dims[rows], self.cov.start[:-1][rows], _SYMMETRY_SLACK)
        yield "cov not symmetric positive semidefinite", bad


class MixtureND(Model):
    """Represents points whose distribution is a mixture of multivariate normals.

    Parameters
    ----------
    weights
        The probability of each component. They sum to 1.
    means
        The means of the components one after another: d numbers for each component.
    covs
        The covariances of the components one after another: d x d numbers for each component, row by row.

    Examples
    --------
    >>> from haply.models import MixtureND
    >>> MixtureND([[0.5, 0.5]], [[0, 0, 4, 0]], [[1, 0, 0, 1, 1, 0, 0, 1]]).show(0)
    {'weights': [0.5, 0.5], 'means': [0.0, 0.0, 4.0, 0.0], 'covs': [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]}
    """

    kind: ClassVar[str] = "mixture_nd"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("weights", "list", least=0.0, sums_to_one=True, degree=0),
        Parameter("means", "list", moves=True),
        Parameter("covs", "list", degree=2),
    )

    def __init__(self, weights: NumberLists, means: NumberLists, covs: NumberLists) -> None:
        super().__init__(weights=weights, means=means, covs=covs)

    def normal_parts(self) -> NormalParts:
        weights = self.weights
        dim = one_dimension(self.means.lengths // np.maximum(weights.lengths, 1))
        shares = weights.values / weights.sums()[weights.owner()]
        return NormalParts(
            weights.start, shares, self.means.values.reshape(-1, dim), self.covs.values.reshape(-1, dim, dim)
        )

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        count = self.weights.lengths
        parts = np.maximum(count, 1)
        dims = self.means.lengths // parts
        agree = (self.means.lengths == dims * parts) & (self.covs.lengths == dims * dims * parts) & (dims > 0)
        yield "lengths disagree", ~agree
        yield from super().reasons()
        rows = np.flatnonzero(agree & (count > 0))
        owner = np.repeat(rows, count[rows])
        within = np.arange(len(owner)) - np.repeat(np.cumsum(count[rows]) - count[rows], count[rows])
        start = self.covs.start[:-1][owner] + within * dims[owner] ** 2
        bad = np.zeros(len(self), dtype=bool)
        bad[owner[indefinite(self.covs.values, dims[owner], start, _SYMMETRY_SLACK)]] = True
        yield "covs not symmetric positive semidefinite", bad
