"""Positions on the sky, with their errors, as Gaussians in space.

A source is a point on a sphere whose radius is one radian in arcseconds, and its errors lie in the plane that touches
the sphere there: a covariance of rank two. Distances of such points are chords in arcseconds. No tangent point has to
be chosen, so nothing is special at the poles or where right ascension starts again.

The chord of an arc of ``t`` radians is shorter by ``t**2 / 24`` of it: 1e-12 at one arcsecond, 4e-9 at one arcminute
(``chord`` gives it for larger radii). Errors are a Gaussian on the touching plane, not on the sphere: for errors of
``s`` radians a probability changes by about ``s**2``, 2e-11 for one arcsecond.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.models.multi_dimensional import GaussianND
from haply.models.ragged import Ragged
from haply.numerics.sphere import ARCSECONDS, lift

AngleUnit = Literal["arcsec", "mas", "deg"]
"""What errors are given in; positions themselves are in degrees."""

IN_ARCSECONDS = {"arcsec": 1.0, "mas": 1e-3, "deg": 3600.0}


def arcseconds_in(unit: str) -> float:
    """How many arcseconds a unit has."""
    if unit not in IN_ARCSECONDS:
        raise unknown_name("unit of errors", unit, IN_ARCSECONDS)
    return IN_ARCSECONDS[unit]


def chord(arcsec: float) -> float:
    """The straight distance, in arcseconds, of two points so many arcseconds apart on the sky.

    >>> chord(3600.0)
    3599.954...
    """
    return 2.0 * ARCSECONDS * math.sin(0.5 * arcsec / ARCSECONDS)


def sky_positions(
    ra: Any, dec: Any, ra_error: Any, dec_error: Any, corr: Any = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> GaussianND:
    """Positions from right ascension and declination in degrees, and their standard errors.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it; ``corr`` is the correlation of the two errors.

    >>> sky_positions(0.0, 90.0, 0.1, 0.2).mean().values.round(3)
    array([     0.   ,      0.   , 206264.806])
    """
    scale = arcseconds_in(errors_in)
    ra, dec, east, north, rho = _columns(ra=ra, dec=dec, ra_error=ra_error, dec_error=dec_error, corr=corr)
    _refuse("a negative error", (east < 0.0) | (north < 0.0))
    _refuse("a correlation beyond -1 and 1", np.abs(rho) > 1.0)
    return _positions(*lift(ra, dec, east, north, rho, scale, False))


def sky_ellipses(
    ra: Any, dec: Any, major: Any, minor: Any, angle: Any = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> GaussianND:
    """Positions with error ellipses: semi-axes of one standard error, and the angle of the major one, east of north.

    >>> sky_ellipses(0.0, 0.0, 2.0, 1.0, 90.0).cov.values.round(6).reshape(3, 3).tolist()
    [[0.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 1.0]]
    """
    scale = arcseconds_in(errors_in)
    ra, dec, long, short, turned = _columns(ra=ra, dec=dec, major=major, minor=minor, angle=angle)
    _refuse("a negative error", (long < 0.0) | (short < 0.0))
    return _positions(*lift(ra, dec, long, short, turned, scale, True))


def _columns(**given: Any) -> list[np.ndarray]:
    """Arguments as arrays of doubles of one length; a single number serves for all rows."""
    arrays = {name: np.atleast_1d(np.asarray(values, np.float64)) for name, values in given.items()}
    try:
        columns = np.broadcast_arrays(*arrays.values())
    except ValueError:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise HaplyError("Columns of positions differ in length", expected="one length", found=lengths) from None
    for name, column in zip(arrays, columns, strict=True):
        _refuse(f"a {name} that is NaN or infinite", ~np.isfinite(column))
    _refuse("a declination beyond the poles", np.abs(columns[1]) > 90.0)
    return [np.require(column, np.float64, ["C", "W"]) for column in columns]


def _refuse(what: str, flags: np.ndarray) -> None:
    if flags.any():
        raise HaplyError(f"Row {int(np.argmax(flags))} of sky positions has {what}", hint="mend or leave out the row")


def _positions(mean: np.ndarray, cov: np.ndarray) -> GaussianND:
    rows = np.arange(len(mean) + 1)
    # a covariance by its making, which need not be looked at again
    return GaussianND._of_columns({"mean": Ragged(mean.ravel(), 3 * rows), "cov": Ragged(cov.ravel(), 9 * rows)})
