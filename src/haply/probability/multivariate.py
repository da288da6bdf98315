"""Gaussians and mixtures in several dimensions: the probability of a box, a disc, a quadratic region, a distance.

Plain functions take arrays, one row per element; ``box`` and ``quadratic`` take models. A mixture is summed over its
components, a distance over the pairs of components of its two sides. Samples are components without spread.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, GaussianND, Mixture, MixtureND, Model, Samples, Sky
from haply.models.ragged import Ragged
from haply.numerics.jit import solid
from haply.numerics.multivariate.multinormal import box_rows
from haply.numerics.multivariate.quadratic import canonical_rows, form_rows
from haply.numerics.scale import powers_of

TOLERANCE = 1e-5
"""The default tolerance of the lattice for boxes in more than three correlated dimensions."""
MOST_POINTS = 120_000
_BLOCK = 200_000
"""Pairs of parts that are computed at once, to limit memory for long lists of rows."""


class Estimate(NamedTuple):
    """Probabilities, and the error of each.

    It is rounding for closed forms. For lattices it is three standard errors or, if that is more, what points may have
    missed.
    """

    value: np.ndarray
    error: np.ndarray


class Forms(NamedTuple):
    """Quadratic forms as ``constant + sum(curve Z**2 + 2 slope Z)`` with independent standard normal ``Z``."""

    curve: np.ndarray
    slope: np.ndarray
    constant: np.ndarray


def _rows(name: str, given: Any, shape: tuple[int, ...], count: int) -> np.ndarray:
    """Return an argument as ``count`` rows of a shape: one row may serve for all, and one number for a whole shape."""
    array = np.asarray(given, dtype=np.float64)
    try:
        return solid(np.broadcast_to(array, (count, *shape)))
    except ValueError:
        raise HaplyError(
            f"Argument '{name}' does not fit", expected=f"shape {(count, *shape)}", found=f"shape {array.shape}"
        ) from None


def normal_rows(mean: Any, cov: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return means (n, d) and covariances (n, d, d) of one length."""
    means, covs = np.asarray(mean, np.float64), np.asarray(cov, np.float64)
    if means.ndim == 1:
        means = means[None]
    dim = means.shape[-1]
    if covs.shape[-1] == dim * dim and covs.ndim < 3 and dim > 1:
        covs = covs.reshape(-1, dim, dim)
    if means.ndim != 2 or covs.ndim not in (2, 3) or covs.shape[-2:] != (dim, dim):
        raise HaplyError(
            "Mean and covariance do not fit", expected="shapes (n, d) and (n, d, d)",
            found=f"{means.shape} and {covs.shape}",
        )  # fmt: skip
    count = max(len(means), len(covs) if covs.ndim == 3 else 1)
    return _rows("mean", means, (dim,), count), _rows("cov", covs, (dim, dim), count)


def _widen(means: np.ndarray, covs: np.ndarray, *others: Any) -> tuple[np.ndarray, np.ndarray]:
    """Repeat one distribution for many regions, as often as there are regions."""
    count = max([len(means), *(len(other) for other in others)])
    return _rows("mean", means, means.shape[1:], count), _rows("cov", covs, covs.shape[1:], count)


def box_estimate(
    mean: ArrayLike,
    cov: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    tolerance: float = TOLERANCE,
    points: int = MOST_POINTS,
) -> Estimate:
    """Compute the probability that a normal ``X`` lies in a box, and the error of that probability.

    The result is exact to rounding for up to three coordinates that correlate. Groups of coordinates that do not
    correlate with each other are computed apart. Larger groups are integrated numerically on a lattice of points.

    Parameters
    ----------
    mean
        The mean of ``X``: d numbers, or n rows of them.
    cov
        The covariance of ``X``: d x d numbers, or n rows of them.
    low, high
        The ends of the box in each coordinate: d numbers, or n rows of them.
    tolerance
        The error at which the numerical integration ends.
    points
        How many points the numerical integration uses at most.

    Returns
    -------
    Estimate
        ``value``, a probability for each row, and ``error``, the error of each.

    Examples
    --------
    >>> found = box_estimate([0, 0], [[1, 0.5], [0.5, 1]], [0, 0], [10, 10])
    >>> found.value.round(6)
    array([0.333333])
    """
    means, covs = normal_rows(mean, cov)
    lows, highs = np.atleast_2d(np.asarray(low, np.float64)), np.atleast_2d(np.asarray(high, np.float64))
    means, covs = _widen(means, covs, lows, highs)
    shape = means.shape[1:]
    ends = _rows("low", lows, shape, len(means)), _rows("high", highs, shape, len(means))
    return Estimate(*box_rows(means, covs, *ends, tolerance, points))


def box_probability(mean: ArrayLike, cov: ArrayLike, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Compute the probability that a normal ``X`` lies in a box; ``box_estimate`` gives its error as well.

    Parameters
    ----------
    mean
        The mean of ``X``: d numbers, or n rows of them.
    cov
        The covariance of ``X``: d x d numbers, or n rows of them.
    low, high
        The ends of the box in each coordinate: d numbers, or n rows of them.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Examples
    --------
    >>> box_probability([[0, 0]], [[1, 0], [0, 1]], [-1, -1], [1, 1]).round(6)
    array([0.466065])
    """
    return box_estimate(mean, cov, low, high).value


def _in_range(means: np.ndarray, covs: np.ndarray, *lengths: np.ndarray) -> np.ndarray | None:
    """Return the power of two to divide each row by, so that squares of its lengths are in the range of doubles.

    None if no row needs it.
    """
    spread = np.sqrt(np.abs(np.diagonal(covs, axis1=-2, axis2=-1)).max(axis=-1, initial=0.0))
    size = np.maximum(np.abs(means).max(axis=-1, initial=0.0), spread)
    for length in lengths:
        size = np.maximum(size, np.where(np.isfinite(length), np.abs(length), 0.0))
    return powers_of(size)


def _divided(power: np.ndarray, means: np.ndarray, covs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(under="ignore"):
        return np.ldexp(means, -power[:, None]), np.ldexp(covs, -2 * power[:, None, None])


def canonical_forms(mean: Any, cov: Any, matrix: Any, centre: Any = 0.0) -> Forms:
    """Return ``(X - centre)' matrix (X - centre)`` of normal ``X``; the matrix is symmetric, of any signs."""
    means, covs = normal_rows(mean, cov)
    dim = means.shape[1]
    matrices = np.asarray(matrix, np.float64)
    matrices = matrices[None] if matrices.ndim == 2 else matrices
    if matrices.shape[-2:] != (dim, dim) or not np.allclose(matrices, matrices.swapaxes(-1, -2), rtol=1e-9, atol=0.0):
        raise HaplyError(
            "A quadratic form needs a symmetric matrix", expected=f"{dim} x {dim}", found=f"shape {matrices.shape}"
        )
    means, covs = _widen(means, covs, matrices, np.atleast_2d(centre))
    means = means - _rows("centre", centre, (dim,), len(means))
    if len(matrices) > 1:
        matrices = _rows("matrix", matrices, (dim, dim), len(means))
    return Forms(*canonical_rows(solid(means), solid(covs), solid(matrices)))


def form_estimate(forms: Forms, limit: Any, *, closed: bool = False, above: bool = False) -> Estimate:
    """Return ``P(form < limit)``, or ``P(form > limit)`` if ``above``, each relatively accurate where it is small."""
    limits = np.atleast_1d(np.asarray(limit, np.float64))
    count = max(len(limits), len(forms.constant))
    curve, slope = (_rows("form", part, part.shape[1:], count) for part in (forms.curve, forms.slope))
    return Estimate(*form_rows(curve, slope, _rows("limit", limits, (), count) - forms.constant, closed, above))


def form_probability(
    mean: ArrayLike, cov: ArrayLike, matrix: ArrayLike, limit: ArrayLike, *, centre: ArrayLike = 0.0
) -> np.ndarray:
    """Compute ``P((X - centre)' matrix (X - centre) < limit)`` for normal ``X``.

    The region is an ellipse, or another conic, in any dimension.

    Parameters
    ----------
    mean
        The mean of ``X``: d numbers, or n rows of them.
    cov
        The covariance of ``X``: d x d numbers, or n rows of them.
    matrix
        A symmetric matrix of d x d numbers, whose eigenvalues may have any sign.
    limit
        The limit of the form: one number, or one for each row.
    centre
        The centre of the region: one number for all coordinates, d numbers, or n rows of them.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Raises
    ------
    HaplyError
        If the matrix is not symmetric, or if shapes do not fit.

    Examples
    --------
    >>> form_probability([0, 0], [[1, 0], [0, 1]], [[1, 0], [0, 4]], 1.0).round(4)
    array([0.2153])
    """
    means, covs = normal_rows(mean, cov)
    means, covs = _widen(means, covs, np.atleast_2d(centre), np.atleast_1d(limit))
    means = means - _rows("centre", centre, means.shape[1:], len(means))
    return _form_chance(means, covs, np.asarray(matrix, np.float64), np.asarray(limit, np.float64))


def _form_chance(means: np.ndarray, covs: np.ndarray, matrices: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return ``P(x' matrix x < limit)`` at any scale of ``x`` and of the matrix: both are divided by powers of two."""
    power = _in_range(means, covs)
    largest = powers_of(np.atleast_1d(np.abs(matrices).max(axis=(-2, -1), initial=0.0)))
    with np.errstate(over="ignore", under="ignore"):
        if largest is not None:
            matrices = np.ldexp(matrices, -largest[:, None, None] if matrices.ndim == 3 else -largest[0])
            limits = np.ldexp(limits, -largest if len(largest) > 1 else -largest[0])
        if power is not None:
            means, covs = _divided(power, means, covs)
            limits = np.ldexp(limits, -2 * power)
    return form_estimate(canonical_forms(means, covs, matrices), limits).value


def disc_probability(mean: ArrayLike, cov: ArrayLike, radius: ArrayLike, *, centre: ArrayLike = 0.0) -> np.ndarray:
    """Compute ``P(|X - centre| <= radius)`` for normal ``X``: a disc in two dimensions, a ball in more.

    Parameters
    ----------
    mean
        The mean of ``X``: d numbers, or n rows of them.
    cov
        The covariance of ``X``: d x d numbers, or n rows of them.
    radius
        The radius: one number, or one for each row.
    centre
        The centre of the disc: one number for all coordinates, d numbers, or n rows of them.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Examples
    --------
    >>> disc_probability([1, 2], [[1, 0.9], [0.9, 2.25]], 2).round(6)
    array([0.400951])
    """
    means, covs = normal_rows(mean, cov)
    reach = np.atleast_1d(np.asarray(radius, np.float64))
    means, covs = _widen(means, covs, np.atleast_2d(centre), reach)
    means = means - _rows("centre", centre, means.shape[1:], len(means))
    power = _in_range(means, covs, reach)
    if power is not None:
        means, covs = _divided(power, means, covs)
        reach = np.ldexp(reach, -power)
    forms = canonical_forms(means, covs, np.eye(means.shape[1]))
    return np.where(reach < 0.0, 0.0, form_estimate(forms, reach * reach, closed=True).value)


def quadratic_probability(weights: ArrayLike, shifts: ArrayLike, limit: ArrayLike) -> np.ndarray:
    """Compute ``P(sum(weights * (Z + shifts)**2) < limit)`` with independent standard normal ``Z``.

    Parameters
    ----------
    weights
        The factors of the squares, of any sign: d numbers, or n rows of them.
    shifts
        The numbers added before squaring: d numbers, or n rows of them.
    limit
        The limit of the sum: one number, or one for each row.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Examples
    --------
    >>> quadratic_probability([1.5, 0.4, -0.8], [0.3, -1, 0.5], 0.7).round(6)
    array([0.444442])
    """
    weight, shift = np.broadcast_arrays(
        np.atleast_2d(np.asarray(weights, np.float64)), np.atleast_2d(np.asarray(shifts, np.float64))
    )
    slope = weight * shift
    return form_estimate(Forms(np.ascontiguousarray(weight), slope, (slope * shift).sum(axis=1)), limit).value


# -- models -----------------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Rows as mixtures of normals: those of row ``i`` stand at ``start[i]:start[i + 1]``, their weights sum to 1."""

    start: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    """If every part is a point, one covariance of zeros serves for all."""


def _scaled(weights: Ragged) -> np.ndarray:
    return weights.values / np.repeat(weights.sums(), weights.lengths)


def parts(model: Any) -> Parts | None:
    """Return the rows as mixtures of normals (points have no spread), or None for models that are not mixtures."""
    rows = np.arange(len(model) + 1)
    if isinstance(model, GaussianND):
        dim = _one_dimension(model.mean().lengths)
        means, covs = model.mean().values.reshape(-1, dim), model.cov.values.reshape(-1, dim, dim)
        return Parts(rows, np.ones(len(model)), means, covs)
    if isinstance(model, Sky):
        return Parts(rows, np.ones(len(model)), *model.lifted())
    if isinstance(model, MixtureND):
        weights = model.weights
        dim = _one_dimension(model.means.lengths // weights.lengths)
        return Parts(
            weights.start,
            _scaled(weights),
            model.means.values.reshape(-1, dim),
            model.covs.values.reshape(-1, dim, dim),
        )
    if isinstance(model, Gaussian):
        means, variances = np.asarray(model.mean()), squared(model.sd)
        return Parts(rows, np.ones(len(model)), means[:, None].copy(), variances[:, None, None].copy())
    if isinstance(model, Mixture):
        weights = model.weights
        variances = squared(model.sds.values)
        return Parts(weights.start, _scaled(weights), model.means.values[:, None].copy(), variances[:, None, None])
    if isinstance(model, Certain):
        return Parts(rows, np.ones(len(model)), np.array(model.mean())[:, None], np.zeros((1, 1, 1)))
    if isinstance(model, Samples):
        dim = _one_dimension(model.dim)
        means, start = model.points.values.reshape(-1, dim), model.points.start // dim
        count = np.diff(start)
        weight = _scaled(model.probs) if model.probs is not None else np.repeat(1.0 / np.maximum(count, 1), count)
        return Parts(start, weight, means, np.zeros((1, dim, dim)))
    return None


def squared(sds: np.ndarray) -> np.ndarray:
    """Return variances; refuse standard deviations whose squares leave the range of doubles."""
    with np.errstate(over="ignore", under="ignore"):
        variances = np.asarray(sds) ** 2
    lost = ~np.isfinite(variances) | ((variances == 0.0) & (sds > 0.0))
    if lost.any():
        raise HaplyError(
            "A standard deviation cannot be squared: no double holds its variance",
            expected="one from 1e-160 to 1e150",
            found=f"{np.asarray(sds)[lost][0]:g}",
            hint="give values in another unit",
        )
    return variances


def _one_dimension(dims: np.ndarray) -> int:
    found = dims[:1] if len(dims) and (dims == dims[0]).all() else np.unique(dims)
    if len(found) > 1:
        raise HaplyError("Points differ in dimension", expected="one dimension", found=", ".join(map(str, found)))
    return int(found[0]) if len(found) else 1


def _needed(model: Any, what: str) -> Parts:
    found = parts(model)
    if found is None:
        raise HaplyError(
            f"{what} needs Gaussians, their mixtures, or points",
            expected="GaussianND, MixtureND, Gaussian, Mixture, Samples or Certain",
            found=type(model).__name__,
        )
    return found


def _summed(found: Parts, values: np.ndarray) -> np.ndarray:
    """Return weighted sums over the parts of each row."""
    sums = Ragged(found.weight * values, found.start).sums()
    return np.minimum(1.0, np.maximum(0.0, sums))


def box(model: Model, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Compute the probability that each row of a model lies in a box, its border included.

    Parameters
    ----------
    model
        Gaussians, mixtures, samples or certain values, in any dimension.
    low, high
        The ends of the box in each coordinate: d numbers, or n rows of them.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Raises
    ------
    HaplyError
        If the model is of another class, or if shapes do not fit.

    Examples
    --------
    >>> from haply.models import GaussianND
    >>> box(GaussianND([[0.2, -0.1]], [[[0.25, 0.06], [0.06, 0.16]]]), [-0.2, -0.2], [0.2, 0.2]).round(6)
    array([0.107599])
    """
    power = powers_of(model.sizes()) if isinstance(model, Model) else None
    if power is not None:
        low, high = (np.ldexp(np.asarray(end, np.float64), -power[:, None]) for end in (low, high))
        model = model.scaled(power)
    found = _needed(model, "A box")
    dim = found.mean.shape[1]
    owner = np.repeat(np.arange(len(model)), np.diff(found.start))
    lows, highs = _rows("low", low, (dim,), len(model))[owner], _rows("high", high, (dim,), len(model))[owner]
    if len(owner) == 0:
        return np.zeros(len(model))
    covs = solid(np.broadcast_to(found.cov, (len(owner), dim, dim)))
    return _summed(found, box_rows(solid(found.mean), covs, lows, highs, TOLERANCE, MOST_POINTS)[0])


def quadratic(model: Model, matrix: ArrayLike, limit: ArrayLike) -> np.ndarray:
    """Compute ``P(x' matrix x < limit)`` for each row of a model.

    Parameters
    ----------
    model
        Gaussians, mixtures, samples or certain values, in any dimension.
    matrix
        A symmetric matrix of d x d numbers, whose eigenvalues may have any sign.
    limit
        The limit of the form: one number, or one for each row.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Raises
    ------
    HaplyError
        If the model is of another class, or if the matrix is not symmetric.

    Examples
    --------
    >>> from haply.models import GaussianND
    >>> quadratic(GaussianND([[1, 2]], [[[1, 0.9], [0.9, 2.25]]]), [[1, 0], [0, 1]], 4).round(6)
    array([0.400951])
    """
    power = powers_of(model.sizes()) if isinstance(model, Model) else None
    if power is not None:
        with np.errstate(over="ignore", under="ignore"):
            model, limit = model.scaled(power), np.ldexp(np.asarray(limit, np.float64), -2 * power)
    found = _needed(model, "A quadratic form")
    dim = found.mean.shape[1]
    owner = np.repeat(np.arange(len(model)), np.diff(found.start))
    if len(owner) == 0:
        return np.zeros(len(model))
    matrices = np.asarray(matrix, np.float64)
    if matrices.ndim == 3 and len(matrices) > 1:
        matrices = _rows("matrix", matrices, (dim, dim), len(model))[owner]
    covs = np.broadcast_to(found.cov, (len(owner), dim, dim))
    limits = _rows("limit", limit, (), len(model))[owner]
    return _summed(found, _form_chance(found.mean, covs, matrices, limits))


# -- distances --------------------------------------------------------------------------------------------------------


def squared_limits(within: np.ndarray) -> np.ndarray:
    """Return the largest doubles whose roots are at most these: squared distances are compared with them."""
    with np.errstate(over="ignore", under="ignore"):
        limits = within * within
        for _ in range(3):
            limits = np.where(np.sqrt(limits) > within, np.nextafter(limits, 0.0), limits)
        for _ in range(3):
            above = np.nextafter(limits, math.inf)
            limits = np.where(np.sqrt(above) <= within, above, limits)
    return limits


def near_normals(a: Any, b: Any, left: np.ndarray, right: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Return ``P(|a[i] - b[j]| <= reach)`` for lists of rows: a sum over pairs of parts, whose difference is normal."""
    one, other = _needed(a, "A distance"), _needed(b, "A distance")
    dim = one.mean.shape[1]
    if other.mean.shape[1] != dim:
        raise HaplyError("Points differ in dimension", expected=f"dim = {dim}", found=f"{other.mean.shape[1]}")
    counts, others = np.diff(one.start)[left], np.diff(other.start)[right]
    ends = np.cumsum(counts * others)
    found = np.zeros(len(left))
    cuts = np.unique([0, *np.searchsorted(ends, np.arange(_BLOCK, ends[-1] if len(ends) else 0, _BLOCK)), len(left)])
    for first, last in pairwise(cuts):
        pair = np.repeat(np.arange(first, last), (counts * others)[first:last])
        within = np.arange(len(pair)) - np.repeat((ends - counts * others)[first:last], (counts * others)[first:last])
        within += ends[first] - counts[first] * others[first]
        k = one.start[left[pair]] + within // others[pair]
        m = other.start[right[pair]] + within % others[pair]
        means = one.mean[k] - other.mean[m]
        covs = one.cov[k if len(one.cov) > 1 else np.zeros_like(k)] + other.cov[m if len(other.cov) > 1 else 0]
        limit = reach[pair] if len(reach) > 1 else reach
        same = limit == 0.0
        power = _in_range(means, covs, limit)
        if power is not None:
            means, covs = _divided(power, means, covs)
            limit = np.ldexp(limit, -power)
        curve, slope, constant = canonical_rows(solid(means), solid(covs), np.eye(dim)[None])
        chance = form_rows(curve, slope, squared_limits(limit) - constant, True, False)[0]
        # values with any spread are never equal; squares that cancel would suggest they are
        if same.any():
            chance = np.where(same, (means == 0.0).all(axis=1) & (covs == 0.0).all(axis=(1, 2)), chance)
        found[first:last] = np.bincount(pair - first, one.weight[k] * other.weight[m] * chance, last - first)
    return np.minimum(1.0, found)
