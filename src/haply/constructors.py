"""The constructors of uncertain columns that people type.

Of names, numbers and Spark columns they make a Spark column; of expressions (``hp.left.kg``) an expression, which is
part of a condition on any engine. Those whose arguments are the parameters of a model are made from its class.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from haply.planning.constructors import PARAMETERS, PLAIN
from haply.query import Expression, Literal
from haply.query.expressions import Call


def samples(points: Any, probs: Any = None, dim: int | None = None) -> Any:
    """Discrete samples, equally likely without ``probs``.

    ``points`` is a flat array with ``dim`` numbers a point (1 if not given), or an array of points, which tells its
    dimension itself.
    """
    return _made("samples", points, probs, dim)


def gaussian_nd(mean: Any, sd: Any = None, corr: Any = None, cov: Any = None) -> Any:
    """Multivariate normal: from columns and their sds with an optional correlation (2-D), or from a covariance.

    ``cov`` is a flat array of d * d numbers, an array of d arrays, or a list of d lists.
    """
    return _made("gaussian_nd", mean, sd, corr, cov)


def latency(detected_at: Any, edges: Any, probs: Any) -> Any:
    """When an event happened, as a histogram, from when it was detected and the distribution of its latency."""
    return _made("latency", detected_at, edges, probs)


def _plain(name: str) -> Callable[..., Any]:
    """Make the constructor of a model."""
    parameters = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in PARAMETERS[name]]
    signature = inspect.Signature(parameters)

    def constructor(*given: Any, **named: Any) -> Any:
        return _made(name, *signature.bind(*given, **named).arguments.values())

    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = PLAIN[name].__doc__
    constructor.__signature__ = signature  # type: ignore[attr-defined]
    return constructor


def _made(name: str, *given: Any) -> Any:
    if any(map(_has_expression, given)):
        return Call(name, tuple(map(_lifted, given)))
    from haply.engines.spark.columns import CONSTRUCTORS

    return CONSTRUCTORS[name](*given)


def _has_expression(value: Any) -> bool:
    return isinstance(value, Expression) or (isinstance(value, (list, tuple)) and any(map(_has_expression, value)))


def _lifted(value: Any) -> Expression:
    if isinstance(value, Expression):
        return value
    return Call("array", tuple(map(_lifted, value))) if isinstance(value, (list, tuple)) else Literal(value)


CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    **{name: _plain(name) for name in PLAIN},
    "samples": samples,
    "gaussian_nd": gaussian_nd,
    "latency": latency,
}
"""All constructors by their names."""
