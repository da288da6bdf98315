"""The constructors of uncertain columns, such as ``hp.samples`` and ``hp.measured``.

From names, numbers and Spark columns they make a Spark column; from expressions (``hp.left.kg``) an expression, which
is part of a condition on any engine. Constructors whose arguments are the parameters of a model are made from its
class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from haply.planning.constructors import PARAMETERS, PLAIN, lifted, refuse_numbers
from haply.query import Expression
from haply.query.expressions import ArrayColumnLike, Call, ColumnLike

if TYPE_CHECKING:
    from haply.engines.spark.columns import Column as SparkColumn

    class UncertainColumn(Expression, SparkColumn):  # type: ignore[misc]
        """An expression if an argument is one, else a Spark column: type checkers take it for both."""


_GIVEN = {
    False: "Give numbers as the name of a column, a Spark column, an expression (``hp.left.kg``) or a number.",
    True: "Give lists as the name of an array column, a Spark column, an expression, or a list of columns or numbers.",
}
"""What an argument may be: a number, or a list."""
_RETURNS = """\
Returns
-------
pyspark.sql.Column or Expression
    An expression if an argument is one, else a Spark column. It holds a struct, which is null where an argument is."""


def samples(points: ArrayColumnLike, probs: ArrayColumnLike | None = None, dim: int | None = None) -> UncertainColumn:
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
) -> UncertainColumn:
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


def latency(detected_at: ColumnLike, edges: ArrayColumnLike, probs: ArrayColumnLike) -> UncertainColumn:
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


def measured(value: ColumnLike, error: ColumnLike, level: float | None = None) -> UncertainColumn:
    """Make normal values from measurements and their errors.

    Give numbers as the name of a column, a Spark column, an expression (``hp.left.kg``) or a number.

    Parameters
    ----------
    value
        The measured value.
    error
        One standard deviation, or half the width of an interval around the value if ``level`` is given.
    level
        The probability that the true value is within ``error`` of the measured one, such as 0.95: a number between 0
        and 1. By default ``error`` is one standard deviation, which is a level of 0.683.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds the struct of ``hp.gaussian``, which is null
        where an argument is. A row whose error is negative is a bad row.

    Raises
    ------
    HaplyError
        If ``level`` is not between 0 and 1, or a column, or if ``error`` is a negative number.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.measured(hp.left.kg, hp.left.err, level=0.95) > 20)
    measured(left.kg, left.err, 0.95) > 20
    """
    return _made("measured", value, error, level)


def rounded(value: ColumnLike, step: ColumnLike) -> UncertainColumn:
    """Make values that are uniform around a number to which they were rounded.

    Give numbers as the name of a column, a Spark column, an expression (``hp.left.kg``) or a number.

    Parameters
    ----------
    value
        The rounded number.
    step
        The distance between two neighbours of the numbers to which values are rounded: 0.1 for one decimal, 5 for
        multiples of 5.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds the struct of ``hp.uniform`` from
        ``value - step / 2`` to ``value + step / 2``, which is null where an argument is. A row with a negative step is
        a bad row, a row with step 0 a certain value.

    Raises
    ------
    HaplyError
        If ``step`` is a number that is not above 0.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.rounded(hp.left.kg, 0.1) > 20)
    rounded(left.kg, 0.1) > 20
    """
    return _made("rounded", value, step)


def quantiles(levels: Sequence[float], values: ArrayColumnLike) -> UncertainColumn:
    """Make values from quantiles: between two of them, a value is uniform.

    Parameters
    ----------
    levels
        The levels of the quantiles: increasing numbers that begin at 0 and end at 1, the same for all rows.
    values
        The quantiles of these levels, strictly increasing. The first and the last one are the least and the largest
        possible value. Give a list of columns or numbers, or an array column.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds the struct of ``hp.histogram``, which is null
        where a quantile is. A row whose quantiles do not increase is a bad row.

    Raises
    ------
    HaplyError
        If levels are columns, do not increase, or do not go from 0 to 1, or if there are more or fewer values.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.quantiles([0, 0.5, 1], [hp.left.least, hp.left.median, hp.left.most]) > 20)
    quantiles(array(0, 0.5, 1), array(left.least, left.median, left.most)) > 20
    """
    return _made("quantiles", levels, values)


def counts(n: ColumnLike) -> UncertainColumn:
    """Make the expected number of events from the number that was counted.

    The true mean of a Poisson variable is taken to be normal around the count, with a standard deviation of
    ``sqrt(max(n, 1))``. This is an approximation. Compared with the exact distribution of the mean given the count (a
    gamma distribution with shape ``n + 1``, if all means are equally likely before), probabilities differ by up to
    ``0.27 / sqrt(n)``: 0.13 for a count of 4, 0.027 for 100, 0.003 for 10,000. For a count of 0 half of the normal is
    below zero. If counts are small, give the quantiles of the exact distribution to ``hp.quantiles``.

    Parameters
    ----------
    n
        The count: the name of a column, a Spark column, an expression (``hp.left.hits``) or a number.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if the argument is one, else a Spark column. It holds the struct of ``hp.gaussian``, which is null
        where the count is. A row with a negative count is a bad row.

    Raises
    ------
    HaplyError
        If the count is a negative number.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.counts(hp.left.hits) > hp.counts(hp.right.hits))
    counts(left.hits) > counts(right.hits)
    """
    return _made("counts", n)


def gps(
    lat: ColumnLike,
    lon: ColumnLike,
    accuracy: ColumnLike | None = None,
    hdop: ColumnLike | None = None,
    uere: float = 5.0,
    origin: Sequence[float] | None = None,
) -> UncertainColumn:
    """Make positions on a plane, in metres, from latitudes and longitudes with their accuracy.

    The plane touches the Earth (the ellipsoid WGS 84) at the origin; its first coordinate points east and its second
    one north. Distances on it are too short by up to 1.3e-6 of their length at 10 km from the origin, by 1.3e-4 at
    100 km and by 1.3 % at 1000 km. Heights are not used. The error is the same in all directions.

    Parameters
    ----------
    lat, lon
        Latitude and longitude in degrees.
    accuracy
        The radius in metres of the circle that contains the true position with probability 0.68, as Android reports
        it. The standard deviation of each coordinate is ``accuracy / 1.51``.
    hdop
        The horizontal dilution of precision, which many receivers report instead of an accuracy. The standard deviation
        of each coordinate is ``hdop * uere / sqrt(2)``, as ``hdop`` times ``uere`` is the error of both coordinates
        together.
    uere
        The error of the distance to one satellite in metres (user equivalent range error), for ``hdop``:
        a number, the same for all rows.
    origin
        Where the plane touches the Earth: ``(lat, lon)`` in degrees, as numbers. Give one place near your data, the
        same for all tables that are compared.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds the struct of ``hp.gaussian_nd`` in two
        dimensions, which is null where an argument is. A row is bad if its accuracy is negative, if its latitude is
        beyond 90 degrees, or if it is more than 1000 km away from the origin, where the plane would be wrong.

    Raises
    ------
    HaplyError
        If both ``accuracy`` and ``hdop`` are given, or neither, if there is no ``origin``, or if a number is outside of
        its range.

    Examples
    --------
    >>> import haply as hp
    >>> here = hp.gps(hp.left.lat, hp.left.lon, accuracy=hp.left.accuracy, origin=(52.5, 13.4))
    >>> print(hp.distance(here, hp.right.pos) < 50)
    distance(gps(left.lat, left.lon, left.accuracy, NULL, 5.0, array(52.5, 13.4)), right.pos) < 50
    """
    return _made("gps", lat, lon, accuracy, hdop, uere, origin)


def ellipse(x: ColumnLike, y: ColumnLike, major: ColumnLike, minor: ColumnLike, angle: ColumnLike) -> UncertainColumn:
    """Make points on a plane from coordinates and error ellipses.

    Give numbers as the name of a column, a Spark column, an expression (``hp.left.x``) or a number. For positions on
    the sky there is ``hp.sky.ellipse``.

    Parameters
    ----------
    x, y
        The coordinates of the point.
    major, minor
        Semi-axes of the ellipse of one standard deviation, in the unit of the coordinates.
    angle
        Angle of the major axis in degrees, from the y-axis towards the x-axis: from north to east if ``x`` points east
        and ``y`` north, as in ``hp.sky.ellipse``. If yours is from the x-axis towards the y-axis, give ``90 - angle``.

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds the struct of ``hp.gaussian_nd`` in two
        dimensions, which is null where an argument is. A row with a negative semi-axis is a bad row.

    Raises
    ------
    HaplyError
        If a semi-axis is a negative number.

    Examples
    --------
    >>> import haply as hp
    >>> strike = hp.ellipse(hp.left.x, hp.left.y, hp.left.major, hp.left.minor, hp.left.angle)
    >>> print(hp.distance(strike, hp.right.pos) < 50)
    distance(ellipse(left.x, left.y, left.major, left.minor, left.angle), right.pos) < 50
    """
    return _made("ellipse", x, y, major, minor, angle)


def parse(text: ColumnLike) -> UncertainColumn:
    """Make normal values from texts that hold a value and its error.

    These texts are read: ``12.3 ± 0.4``, ``12.3 +/- 0.4``, ``12.3+-0.4``, ``1.23e-5 ± 4e-7``,
    ``(1.23 ± 0.04)e-5``, ``(1.23 ± 0.04) x 10^-5``, ``12.3(4)`` and ``1.23(4)e-5``, where the digits in parentheses are
    the error of the last digits, and a plain number, which is certain. The error is one standard deviation.

    Parameters
    ----------
    text
        The texts: the name of a column, a Spark column or an expression (``hp.left.mass``).

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if the argument is one, else a Spark column. It holds the struct of ``hp.gaussian``, which is null
        where the text is null. A row whose text cannot be read is a bad row. So is one with two errors, like
        ``12.3 +0.4 -0.2``: ``hp.parse_asymmetric`` reads these.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.parse(hp.left.mass) > 20)
    parse(left.mass) > 20
    """
    return _made("parse", text)


def parse_asymmetric(text: ColumnLike) -> UncertainColumn:
    """Make values with two errors from texts, as split normals.

    These texts are read: ``12.3 +0.4 -0.2``, ``12.3 +0.4/-0.2``, ``12.3 (+0.4, -0.2)``, ``12.3 -0.2 +0.4``,
    ``12.3^{+0.4}_{-0.2}``, and all that ``hp.parse`` reads, whose one error then holds for both sides. Errors are
    standard deviations of their side.

    Parameters
    ----------
    text
        The texts: the name of a column, a Spark column or an expression (``hp.left.age``).

    Returns
    -------
    pyspark.sql.Column or Expression
        An expression if the argument is one, else a Spark column. It holds the struct of ``hp.asymmetric``, which is
        null where the text is null. A row whose text cannot be read is a bad row.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.parse_asymmetric(hp.left.age) > 3)
    parse_asymmetric(left.age) > 3
    """
    return _made("parse_asymmetric", text)


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
    signature = inspect.Signature(parameters, return_annotation="UncertainColumn")

    def constructor(*given: Any, **named: Any) -> Any:
        return _made(name, *signature.bind(*given, **named).arguments.values())

    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = _described(name)
    constructor.__signature__ = signature  # type: ignore[attr-defined]
    return constructor


def _described(name: str) -> str:
    """Make the docstring of a constructor from that of its model's class, with the names of its arguments.

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
        made = Call(name, tuple(map(lifted, given)))
        refuse_numbers(made)
        return made
    from haply.engines.spark.columns import CONSTRUCTORS, no_session

    try:
        return CONSTRUCTORS[name](*given)
    except (AssertionError, RuntimeError) as refusal:  # how PySpark's versions say that there is no session
        if str(refusal) and "SparkContext" not in str(refusal):
            raise
        raise no_session(name) from None


def _has_expression(value: Any) -> bool:
    return isinstance(value, Expression) or (isinstance(value, (list, tuple)) and any(map(_has_expression, value)))


CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    **{name: _plain(name) for name in PLAIN},
    **{
        made.__name__: made
        for made in (
            *(samples, gaussian_nd, latency, measured, rounded, quantiles, counts, gps, ellipse, parse),
            parse_asymmetric,
        )
    },
}
"""All constructors by their names."""


if TYPE_CHECKING:  # for type checkers and editors; the functions are made from the classes of the models

    def uniform(lo: ColumnLike, hi: ColumnLike) -> UncertainColumn:
        """Make values that are uniform on an interval."""

    def gaussian(mean: ColumnLike, sd: ColumnLike) -> UncertainColumn:
        """Make values with a normal distribution."""

    def truncated_gaussian(mean: ColumnLike, sd: ColumnLike, lo: ColumnLike, hi: ColumnLike) -> UncertainColumn:
        """Make values with a normal distribution that is cut to an interval."""

    def mixture(weights: ArrayColumnLike, means: ArrayColumnLike, sds: ArrayColumnLike) -> UncertainColumn:
        """Make values whose distribution is a mixture of normals."""

    def histogram(edges: ArrayColumnLike, probs: ArrayColumnLike) -> UncertainColumn:
        """Make values with a histogram: uniform inside each bucket."""

    def asymmetric(value: ColumnLike, minus: ColumnLike, plus: ColumnLike) -> UncertainColumn:
        """Make values with two errors: a split normal, with one standard deviation below its mode and one above."""

    def mixture_nd(weights: ArrayColumnLike, means: ArrayColumnLike, covs: ArrayColumnLike) -> UncertainColumn:
        """Make points whose distribution is a mixture of multivariate normals."""
