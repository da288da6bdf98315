"""``hp.sky``: catalogues of the sky as columns of positions; see ``haply.models.sky`` for what a position is.

>>> stars.select("id", hp.sky.position("ra", "dec", "ra_error", "dec_error", errors_in="mas"))     # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from haply.models.sky import AngleUnit, arcseconds_in, chord
from haply.numerics.sphere import ellipse as of_ellipse
from haply.spark.columns import Value, number, struct

__all__ = ["chord", "ellipse", "position"]


def position(
    ra: Value, dec: Value, ra_error: Value, dec_error: Value, corr: Value = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Column:
    """A position from right ascension and declination in degrees, and their standard errors.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it; ``corr`` is the correlation of the two errors.
    Distances of positions are in arcseconds. Its fields are the arguments, with errors in arcseconds.
    """
    scale = F.lit(arcseconds_in(errors_in))
    return struct(
        ra=number(ra), dec=number(dec), ra_error=scale * number(ra_error), dec_error=scale * number(dec_error),
        corr=number(corr),
    )  # fmt: skip


def ellipse(
    ra: Value, dec: Value, major: Value, minor: Value, angle: Value = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Column:
    """A position with an error ellipse: semi-axes of one standard error, and the angle of the major one in degrees.

    The angle is from north to east.
    """
    scale, turned = F.lit(arcseconds_in(errors_in)), F.radians(number(angle))
    long, short = _axis(major) * scale, _axis(minor) * scale
    # the formula as Python has it does for columns as well
    plain: Any = of_ellipse
    east, both, north = plain.py_func(long * long, short * short, F.sin(turned), F.cos(turned))
    # without an area the product is 0, and so is the correlation; a NaN counts as the greatest and stays one
    corr = both / F.greatest(F.sqrt(east) * F.sqrt(north), F.lit(1e-300))
    corr = F.least(F.lit(1.0), F.greatest(F.lit(-1.0), corr))
    given = [number(value) for value in (ra, dec, major, minor, angle)]
    fields = {"ra": given[0], "dec": given[1], "ra_error": F.sqrt(east), "dec_error": F.sqrt(north), "corr": corr}
    # Spark copies the formulas to every use of them: the arguments tell as well whether a position is known
    return struct(given, **fields)


def _axis(value: Value) -> Column:
    """A semi-axis; not a number if it is negative, so that its row is a bad one."""
    axis = number(value)
    return F.when(axis < 0.0, F.lit(float("nan"))).otherwise(axis)
