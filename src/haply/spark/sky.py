"""``hp.sky``: catalogues of the sky as columns of positions; see ``haply.models.sky`` for what a position is.

>>> stars.select("id", hp.sky.position("ra", "dec", "ra_error", "dec_error", errors_in="mas"))     # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from haply.models.sky import AngleUnit, arcseconds_in, chord
from haply.numerics.sphere import ellipse as of_ellipse
from haply.numerics.sphere import lifted
from haply.spark.columns import Value, gaussian_nd, number

__all__ = ["chord", "ellipse", "position"]


def position(
    ra: Value, dec: Value, ra_error: Value, dec_error: Value, corr: Value = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Column:
    """A position from right ascension and declination in degrees, and their standard errors.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it; ``corr`` is the correlation of the two errors.
    Distances of positions are in arcseconds. A row with a negative error or a declination beyond the poles is a bad row.
    """
    scale = arcseconds_in(errors_in)
    east, north = _error(ra_error, scale), _error(dec_error, scale)
    return _lifted(ra, dec, east * east, number(corr) * east * north, north * north)


def ellipse(
    ra: Value, dec: Value, major: Value, minor: Value, angle: Value = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Column:
    """A position with an error ellipse: semi-axes of one standard error, and the angle of the major one in degrees.

    The angle is from north to east.
    """
    scale = arcseconds_in(errors_in)
    long, short, turned = _error(major, scale), _error(minor, scale), F.radians(number(angle))
    east, both, north = _plain(of_ellipse)(long * long, short * short, F.sin(turned), F.cos(turned))
    return _lifted(ra, dec, east, both, north)


def _plain(kernel: Any) -> Any:
    """A compiled formula as Python has it, which columns will do for."""
    return kernel.py_func


def _error(value: Value, scale: float) -> Column:
    """An error in arcseconds; not a number if it is negative, so that its row is a bad one."""
    error = number(value) * F.lit(scale)
    return F.when(error < 0.0, F.lit(float("nan"))).otherwise(error)


def _lifted(ra: Value, dec: Value, east: Any, both: Any, north: Any) -> Column:
    height = number(dec)
    a, d = F.radians(number(ra)), F.radians(F.when(F.abs(height) > 90.0, F.lit(float("nan"))).otherwise(height))
    x, y, z, xx, xy, xz, yy, yz, zz = _plain(lifted)(F.cos(a), F.sin(a), F.cos(d), F.sin(d), east, both, north)
    return gaussian_nd([x, y, z], cov=[xx, xy, xz, xy, yy, yz, xz, yz, zz])
