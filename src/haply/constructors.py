"""The constructors of uncertain columns that people type.

Of names, numbers and Spark columns they make a Spark column; of expressions (``hp.left.kg``) an expression, which is
part of a condition on any engine. Those whose arguments are the parameters of a model are made from its class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from haply.planning.constructors import PARAMETERS, PLAIN
from haply.query import Expression, Literal
from haply.query.expressions import ArrayColumnLike, Call, ColumnLike

_GIVEN = {
    False: "Give numbers as the name of a column, a Spark column, an expression (``hp.left.kg``) or a number.",
    True: "Give lists as the name of an array column, a Spark column, an expression, or a list of columns or numbers.",
}
"""What an argument may be, by whether it is a list."""
_RETURNS = """\
Returns
-------
pyspark.sql.Column or Expression
    An expression if an argument is one, else a Spark column. It holds a struct, which is null where an argument is."""


def samples(points: ArrayColumnLike, probs: ArrayColumnLike | None = None, dim: int | None = None) -> Any:
    """Make values, or points, from discrete samples.

    Parameters
    ----------
    points
        The samples: an array of numbers, an array of points, or the coordinates of all points one after another. Give
        an array column by its name, as a Spark column or as an expression, or a list of columns or numbers.
    probs
        The probability of each sample. They sum to 1. By default all samples are equally likely.
    dim
        How many coordinates a point has: by default 1, or the length of points that are given as arrays.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds a struct.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.samples(hp.left.readings) > 20)
    samples(left.readings, NULL, NULL) > 20
    """
    return _made("samples", points, probs, dim)


def gaussian_nd(
    mean: ArrayColumnLike,
    sd: Sequence[ColumnLike] | None = None,
    corr: ColumnLike | None = None,
    cov: ArrayColumnLike | None = None,
) -> Any:
    """Make multivariate normal points from standard deviations or from a covariance.

    Parameters
    ----------
    mean
        The mean: a list of d columns or numbers, or an array column.
    sd
        A list of d standard deviations. Give either ``sd`` or ``cov``.
    corr
        The correlation of the two coordinates, if ``sd`` has two; 0 by default.
    cov
        The covariance: an array column of d * d numbers, an array column of d arrays, or a list of d lists.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds a struct.

    Raises
    ------
    HaplyError
        If both ``sd`` and ``cov`` are given, or neither, or if ``corr`` is given for other than two coordinates.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.gaussian_nd([hp.left.x, hp.left.y], sd=[0.1, 0.2]))
    gaussian_nd(array(left.x, left.y), array(0.1, 0.2), NULL, NULL)
    """
    return _made("gaussian_nd", mean, sd, corr, cov)


def latency(detected_at: ColumnLike, edges: ArrayColumnLike, probs: ArrayColumnLike) -> Any:
    """Make the time of an event from the time at which it was detected and the distribution of the latency.

    Parameters
    ----------
    detected_at
        The time at which the event was detected.
    edges
        The edges of the histogram of latencies, strictly increasing, in the unit of the times.
    probs
        The probability of each bucket. They sum to 1.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds the histogram of the event's time.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.latency(hp.left.seen, [0, 5, 30], [0.9, 0.1]))
    latency(left.seen, array(0, 5, 30), array(0.9, 0.1))
    """
    return _made("latency", detected_at, edges, probs)


def _plain(name: str) -> Callable[..., Any]:
    """Make the constructor of a model."""
    model = PLAIN[name]
    parameters = [
        inspect.Parameter(
            argument,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation="ArrayColumnLike" if parameter.is_list else "ColumnLike",
        )
        for argument, parameter in zip(PARAMETERS[name], model.parameters, strict=True)
    ]
    signature = inspect.Signature(parameters, return_annotation="Any")

    def constructor(*given: Any, **named: Any) -> Any:
        return _made(name, *signature.bind(*given, **named).arguments.values())

    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = _described(name)
    constructor.__signature__ = signature  # type: ignore[attr-defined]
    return constructor


def _described(name: str) -> str:
    """Make the docstring of a constructor: what the class of its model says, with the names of its arguments.

    >>> print(_described("uniform").partition("Returns")[0].strip())
    Make values that are uniform on an interval.
    <BLANKLINE>
    Give numbers as the name of a column, a Spark column, an expression (``hp.left.kg``) or a number.
    <BLANKLINE>
    Parameters
    ----------
    lo
        The lower end of the interval.
    hi
        The upper end. A value is certain where both ends are equal.
    """
    model, arguments = PLAIN[name], PARAMETERS[name]
    about, _, rest = (inspect.getdoc(model) or "").partition("Parameters\n----------\n")
    section = re.split(r"\n\n\w+\n-+\n", rest)[0]
    for parameter, argument in zip(model.parameters, arguments, strict=True):
        if parameter.name != argument:
            section = re.sub(rf"(?m)^{parameter.name}$", argument, section)
            about, section = (text.replace(f"``{parameter.name}``", f"``{argument}``") for text in (about, section))
    given = "\n".join(_GIVEN[is_list] for is_list in sorted({parameter.is_list for parameter in model.parameters}))
    said = re.sub(r"^Represents", "Make", about.strip())
    columns = [f"left.{argument}" for argument in arguments]
    spelled = "sky.position" if name == "sky" else name  # hp.sky is a module
    example = (
        f">>> import haply as hp\n>>> print(hp.{spelled}({', '.join(f'hp.{column}' for column in columns)}))\n"
        f"{name}({', '.join(columns)})"
    )
    return (
        f"{said}\n\n{given}\n\nParameters\n----------\n{section.strip()}\n\n{_RETURNS}\n\n"
        f"Examples\n--------\n{example}\n"
    )


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
