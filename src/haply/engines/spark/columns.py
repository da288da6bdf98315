"""The constructors of uncertain columns on Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from haply.engines.spark.versions import arrow_function
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, GaussianND, Histogram, Model, Samples
from haply.models.measurements import RECIPES
from haply.models.points import flat_matrices, flat_points
from haply.models.sky import AngleUnit, Sky, SkyEllipse, arcseconds_in
from haply.planning.constructors import PARAMETERS, PLAIN, fields_of, flattened
from haply.planning.frames import quoted

Value = Any
"""A column name, a Spark column, or a number."""


def number(value: Value) -> Column:
    """Return a double column from a name, a column or a number."""
    if isinstance(value, str):
        return F.col(value).cast("double")
    if isinstance(value, Column):
        return value.cast("double")
    return F.lit(float(value)).cast("double")


def _spelled(value: Value) -> str | None:
    """Return the same as SQL text; None for a column that has none, or with ``${...}``, which Spark would replace."""
    if isinstance(value, Column) or (isinstance(value, str) and ("`" in value or "${" in value)):
        return None
    if isinstance(value, str):
        return f"CAST({'.'.join(map(quoted, value.split('.')))} AS DOUBLE)"
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def numbers(**fields: Value) -> Column:
    """Return a struct of doubles that is null when one of them is.

    As one SQL text where possible: every other step of making a column is a call to the JVM.
    """
    texts = {name: _spelled(value) for name, value in fields.items()}
    if None in texts.values():
        return struct(**{name: number(value) for name, value in fields.items()})
    known = " AND ".join(f"{text} IS NOT NULL" for text in texts.values())
    return F.expr(
        f"CASE WHEN {known} THEN struct({', '.join(f'{text} AS {name}' for name, text in texts.items())}) END"
    )


def _numbers(values: Value) -> Column:
    """Return an array of doubles from a name, an array column, or a list of names, columns and numbers."""
    if isinstance(values, str):
        return F.col(values).cast("array<double>")
    if isinstance(values, Column):
        return values.cast("array<double>")
    return F.array(*(number(value) for value in values)).cast("array<double>")


def struct(given: Sequence[Column] | None = None, /, **fields: Column) -> Column:
    """Make a struct that is null if one of its fields is; with ``given``, if one of these columns is."""
    whole = F.struct(*(column.alias(name) for name, column in fields.items()))
    if given is None:
        given = [column for name, column in fields.items() if name != "probs" or "points" not in fields]
    known = None
    for column in given:
        known = column.isNotNull() if known is None else known & column.isNotNull()
    return F.when(known, whole) if known is not None else whole


def no_session(constructor: str) -> HaplyError:
    """Make the error for a column that is made where there is no Spark session."""
    return HaplyError(
        f"hp.{constructor}() of names and numbers makes a column of Spark, and there is no Spark session",
        hint=f"for other tables write it in the condition, with hp.{constructor}(hp.left.value, ...); "
        "hp.local_session() starts Spark",
    )


def refuse_constants(called: str, model: type[Model], **given: Value) -> None:
    """Refuse numbers, and lists of numbers, that are not parameters of a distribution, before any data is read."""
    known = {name: value for name, value in given.items() if _is_constant(value)}
    if known:
        model.refuse_constants(called, known)


def _is_constant(value: Value) -> bool:
    if isinstance(value, (str, Column)) or value is None:
        return False
    return isinstance(value, (Real, Decimal)) or all(isinstance(one, (Real, Decimal)) for one in value)


def plain(name: str, *arguments: Value) -> Column:
    """Make a struct of the given parameters of a model."""
    model = PLAIN[name]
    given = fields_of(name, dict(zip(PARAMETERS[name], arguments, strict=False)))
    if model is Histogram:
        _refuse_buckets("histogram()", given["edges"], given["probs"])
    else:
        refuse_constants(f"{name}()", model, **given)
    if not any(parameter.is_list for parameter in model.parameters):
        return numbers(**given)
    lists = {parameter.name: parameter.is_list for parameter in model.parameters}
    return struct(**{key: _numbers(value) if lists[key] else number(value) for key, value in given.items()})


def _refuse_buckets(called: str, edges: Value, probs: Value) -> None:
    if _is_constant(edges) and not _is_constant(probs):  # any probabilities: edges are checked separately
        probs = [1.0 / max(len(edges) - 1, 1)] * (len(edges) - 1)
    refuse_constants(called, Histogram, edges=edges, probs=probs)


def samples(points: Value, probs: Value = None, dim: int | None = None) -> Column:
    """Discrete samples, equally likely without ``probs``.

    ``points`` is a flat array with ``dim`` numbers a point (1 if not given), or an array of points, which has its
    own dimension.
    """
    if isinstance(probs, Real):
        raise HaplyError(
            "The probs of samples are one number",
            expected="one probability for each point",
            found=repr(probs),
            hint=f"for points of {probs} numbers write dim={probs}",
        )
    weights = F.lit(None).cast("array<double>") if probs is None else _numbers(probs)
    if isinstance(points, (str, Column)):
        column = F.col(points) if isinstance(points, str) else points
        read = _flat_points(dim)(column)
        return F.when(
            column.isNotNull(),
            F.struct(read["points"].alias("points"), weights.alias("probs"), read["dim"].alias("dim")),
        )
    nested = [point for point in points if not isinstance(point, (str, Column, int, float))]
    points, dim = flattened(points, nested, dim)
    known = {"probs": probs} if probs is None or _is_constant(probs) else {}
    if _is_constant(points):
        known["points"] = points
    Samples.refuse_constants("samples()", {"dim": dim or 1, **known})
    return struct(points=_numbers(points), probs=weights, dim=F.lit(dim or 1).cast("int"))


def _flat_points(dim: int | None) -> Any:
    """Return points as a flat array with their dimension; only a Python function takes flat and nested ones."""

    def read(column: pa.Array) -> pa.Array:
        return pa.StructArray.from_arrays(list(flat_points(column, dim)), ["points", "dim"], mask=column.is_null())

    return arrow_function(read, "points array<double>, dim int")


def _row_by_row(column: Column) -> Column:
    """Return a matrix as a flat array, from a flat or nested column: only a Python function takes both."""

    def read(matrices: pa.Array) -> pa.Array:
        return flat_matrices(matrices)

    made: Column = arrow_function(read, "array<double>")(column)
    return made


def gaussian_nd(mean: Value, sd: Value = None, corr: Value = None, cov: Value = None) -> Column:
    """Multivariate normal: from columns and their sds with an optional correlation (2-D), or from a covariance.

    ``cov`` is a flat array of d * d numbers, an array of d arrays, or a list of d lists.
    """
    if (sd is None) == (cov is None):
        raise HaplyError(
            "A gaussian_nd needs its spread once", expected="either sd or cov", found="both" if sd else "none"
        )
    means = _numbers(mean)
    if cov is not None:
        if isinstance(cov, (str, Column)):
            refuse_constants("gaussian_nd()", GaussianND, mean=mean)
            return struct(mean=means, cov=_row_by_row(F.col(cov) if isinstance(cov, str) else cov))
        flat = [
            entry for row in cov for entry in (row if isinstance(row, Sequence) and not isinstance(row, str) else [row])
        ]
        refuse_constants("gaussian_nd()", GaussianND, mean=mean, cov=flat)
        return struct(mean=means, cov=_numbers(flat))
    if isinstance(sd, (str, Column)):
        raise HaplyError("The sds of a gaussian_nd are one column", expected="a list with one sd per dimension")
    sds = [number(value) for value in sd]
    if corr is not None and len(sds) != 2:
        raise HaplyError("A single correlation needs two dimensions", found=f"{len(sds)} sds", hint="give cov instead")
    refuse_constants("gaussian_nd()", GaussianND, mean=mean)
    for each in sd:
        refuse_constants("gaussian_nd()", Gaussian, sd=each)
    if _is_constant(corr):
        refuse_constants("gaussian_nd()", GaussianND, mean=[0, 0], cov=[1, corr, corr, 1])
    rho = F.lit(0.0) if corr is None else number(corr)
    # A negative sd makes a negative variance, which is a bad row; its square would be a good one.
    entries = [a * (F.abs(b) if i == j else b * rho) for i, a in enumerate(sds) for j, b in enumerate(sds)]
    return struct(mean=means, cov=F.array(*entries))


def latency(detected_at: Value, edges: Value, probs: Value) -> Column:
    """When an event happened, as a histogram, from when it was detected and the distribution of its latency."""
    _refuse_buckets("latency()", edges, probs)
    refuse_constants("latency()", Certain, values=detected_at)
    delays = F.reverse(_numbers(edges))
    # The time goes in as an argument: Spark's optimizer can lose a column that a lambda takes from outside.
    back = F.zip_with(F.array_repeat(number(detected_at), F.size(delays)), delays, lambda seen, delay: seen - delay)
    return struct(edges=back, probs=F.reverse(_numbers(probs)))


def from_recipe(name: str, *given: Value) -> Column:
    """Make a column of a constructor by its recipe."""
    model, arguments = RECIPES[name](_function, *map(_operand, given))
    return CONSTRUCTORS[model](*arguments)


def _operand(value: Value) -> Any:
    """Return a column that operators accept; numbers and None are unchanged."""
    if value is None or isinstance(value, Column):
        return value
    if isinstance(value, str):
        return F.col(value)
    return float(value) if isinstance(value, (Real, Decimal)) else [_operand(one) for one in value]


def _function(name: str, *arguments: Any) -> Column:
    return F.call_function(name, *(one if isinstance(one, Column) else F.lit(one) for one in arguments))


CONSTRUCTORS: dict[str, Callable[..., Column]] = {
    **{name: partial(plain, name) for name in PLAIN},
    "samples": samples,
    "gaussian_nd": gaussian_nd,
    "latency": latency,
    **{name: partial(from_recipe, name) for name in RECIPES},
}
"""By the names that they have in SQL, in lower case."""


def sky_position(
    ra: Value, dec: Value, ra_error: Value, dec_error: Value, corr: Value = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Column:
    """Return a position from right ascension and declination in degrees, and their standard errors.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it; ``corr`` is the correlation of the two errors.
    Distances of positions are in arcseconds. Its fields are the arguments, with errors in arcseconds.
    """
    refuse_constants("sky.position()", Sky, ra=ra, dec=dec, ra_error=ra_error, dec_error=dec_error, corr=corr)
    east, north = (_in_arcseconds(error, errors_in) for error in (ra_error, dec_error))
    return numbers(ra=ra, dec=dec, ra_error=east, dec_error=north, corr=corr)


def sky_ellipse(
    ra: Value, dec: Value, major: Value, minor: Value, angle: Value = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Column:
    """Make a position with an error ellipse: semi-axes of one standard error, and the major one's angle in degrees.

    The angle is from north to east. Its fields are the arguments, with semi-axes in arcseconds.
    """
    refuse_constants("sky.ellipse()", SkyEllipse, ra=ra, dec=dec, major=major, minor=minor, angle=angle)
    long, short = (_in_arcseconds(axis, errors_in) for axis in (major, minor))
    return numbers(ra=ra, dec=dec, major=long, minor=short, angle=angle)


def _in_arcseconds(error: Value, unit: AngleUnit) -> Value:
    scale = arcseconds_in(unit)
    return error if scale == 1.0 else F.lit(scale) * number(error)
