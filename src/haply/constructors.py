"""The constructors of uncertain columns that people type.

Of names, numbers and Spark columns they make a Spark column; of expressions (``hp.left.kg``) an expression, which is
part of a condition on any engine.
"""

from __future__ import annotations

from typing import Any

from haply.planning.constructors import PARAMETERS
from haply.query import Expression, Literal
from haply.query.expressions import Call


def uniform(lo: Any, hi: Any) -> Any:
    """Uniform on ``[lo, hi]``."""
    return _made("uniform", lo=lo, hi=hi)


def gaussian(mean: Any, sd: Any) -> Any:
    """Normal with a mean and a standard deviation."""
    return _made("gaussian", mean=mean, sd=sd)


def truncated_gaussian(mean: Any, sd: Any, lo: Any, hi: Any) -> Any:
    """Normal with this mean and standard deviation, cut to ``[lo, hi]``."""
    return _made("truncated_gaussian", mean=mean, sd=sd, lo=lo, hi=hi)


def mixture(weights: Any, means: Any, sds: Any) -> Any:
    """Mixture of normals: three arrays of one length."""
    return _made("mixture", weights=weights, means=means, sds=sds)


def histogram(edges: Any, probs: Any) -> Any:
    """Uniform inside each bucket: n + 1 strictly increasing edges and n probabilities."""
    return _made("histogram", edges=edges, probs=probs)


def samples(points: Any, probs: Any = None, dim: int | None = None) -> Any:
    """Discrete samples, equally likely without ``probs``.

    ``points`` is a flat array with ``dim`` numbers a point (1 if not given), or an array of points, which tells its
    dimension itself.
    """
    return _made("samples", points=points, probs=probs, dim=dim)


def gaussian_nd(mean: Any, sd: Any = None, corr: Any = None, cov: Any = None) -> Any:
    """Multivariate normal: from columns and their sds with an optional correlation (2-D), or from a covariance.

    ``cov`` is a flat array of d * d numbers, an array of d arrays, or a list of d lists.
    """
    return _made("gaussian_nd", mean=mean, sd=sd, corr=corr, cov=cov)


def mixture_nd(weights: Any, means: Any, covs: Any) -> Any:
    """Multivariate mixture: weights, and flat arrays of the means and of the covariances one after another."""
    return _made("mixture_nd", weights=weights, means=means, covs=covs)


def latency(detected_at: Any, edges: Any, probs: Any) -> Any:
    """When an event happened, as a histogram, from when it was detected and the distribution of its latency."""
    return _made("latency", detected_at=detected_at, edges=edges, probs=probs)


def _made(name: str, **given: Any) -> Any:
    if any(map(_has_expression, given.values())):
        return Call(name, tuple(_lifted(given[parameter]) for parameter in PARAMETERS[name]))
    from haply.spark.columns import CONSTRUCTORS

    return CONSTRUCTORS[name](**given)


def _has_expression(value: Any) -> bool:
    return isinstance(value, Expression) or (isinstance(value, (list, tuple)) and any(map(_has_expression, value)))


def _lifted(value: Any) -> Expression:
    if isinstance(value, Expression):
        return value
    return Call("array", tuple(map(_lifted, value))) if isinstance(value, (list, tuple)) else Literal(value)
