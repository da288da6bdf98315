"""``hp.sky``: catalogues of the sky as columns of positions; see ``haply.models.sky`` for what a position is.

>>> stars.select("id", hp.sky.position("ra", "dec", "ra_error", "dec_error", errors_in="mas"))     # doctest: +SKIP
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from haply.models.sky import AngleUnit, arcseconds_in, chord
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

    The angle is from north to east. Its fields are the arguments, with semi-axes in arcseconds.
    """
    scale = arcseconds_in(errors_in)
    long, short = (number(axis) if scale == 1.0 else F.lit(scale) * number(axis) for axis in (major, minor))
    return struct(ra=number(ra), dec=number(dec), major=long, minor=short, angle=number(angle))
