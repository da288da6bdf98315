"""``hp.sky``: catalogues of the sky as columns of positions; see ``haply.models.sky`` for what a position is.

>>> stars.select("id", hp.sky.position("ra", "dec", "ra_error", "dec_error", errors_in="mas"))     # doctest: +SKIP
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from haply.models.sky import AngleUnit, Sky, SkyEllipse, arcseconds_in, chord
from haply.spark.columns import Value, number, numbers, refuse_constants

__all__ = ["chord", "ellipse", "position"]


def position(
    ra: Value, dec: Value, ra_error: Value, dec_error: Value, corr: Value = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Column:
    """A position from right ascension and declination in degrees, and their standard errors.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it; ``corr`` is the correlation of the two errors.
    Distances of positions are in arcseconds. Its fields are the arguments, with errors in arcseconds.
    """
    refuse_constants("sky.position()", Sky, ra=ra, dec=dec, ra_error=ra_error, dec_error=dec_error, corr=corr)
    east, north = (_in_arcseconds(error, errors_in) for error in (ra_error, dec_error))
    return numbers(ra=ra, dec=dec, ra_error=east, dec_error=north, corr=corr)


def ellipse(
    ra: Value, dec: Value, major: Value, minor: Value, angle: Value = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Column:
    """A position with an error ellipse: semi-axes of one standard error, and the angle of the major one in degrees.

    The angle is from north to east. Its fields are the arguments, with semi-axes in arcseconds.
    """
    refuse_constants("sky.ellipse()", SkyEllipse, ra=ra, dec=dec, major=major, minor=minor, angle=angle)
    long, short = (_in_arcseconds(axis, errors_in) for axis in (major, minor))
    return numbers(ra=ra, dec=dec, major=long, minor=short, angle=angle)


def _in_arcseconds(error: Value, unit: AngleUnit) -> Value:
    scale = arcseconds_in(unit)
    return error if scale == 1.0 else F.lit(scale) * number(error)
