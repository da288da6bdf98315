"""Positions on the sky with their errors.

To the engine a source is a point on a sphere whose radius is one radian in arcseconds, and its errors lie in the plane
that touches the sphere there: a Gaussian in space with a covariance of rank two. Distances are chords in arcseconds. No
tangent point is chosen for all, so nothing is special at the poles or where right ascension begins again.

The chord of an arc of ``t`` radians is shorter by ``t**2 / 24`` of it: 1e-12 at one arcsecond, 4e-9 at one arcminute
(``chord`` gives it for larger radii). Errors are a Gaussian on the touching plane, not on the sphere: for errors of
``s`` radians a probability changes by about ``s**2``, 2e-11 for one arcsecond. A position in doubles is rounded to some
3e-11 arcseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from haply.errors import unknown_name
from haply.models.base import Model, Parameter
from haply.numerics.multivariate.sphere import ARCSECONDS, lift

AngleUnit = Literal["arcsec", "mas", "deg"]
"""What errors are given in; positions themselves are in degrees."""

IN_ARCSECONDS = {"arcsec": 1.0, "mas": 1e-3, "deg": 3600.0}
CORRELATION_SLACK = 1e-9
_BEYOND_POLES = "dec beyond the poles"
_TOO_WIDE, _MOST_ERROR = "an error too large to be squared", 1e60
"""Many times around the sky, which no error is; its fourth power is in the range of doubles."""


def _beyond(numbers: np.ndarray, most: float) -> np.ndarray:
    return (numbers > most) | (numbers < -most)


class Sky(Model):
    """Right ascension and declination in degrees; their errors in arcseconds, and the correlation of these.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it.
    """

    kind: ClassVar[str] = "sky"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("ra", degree=0),
        Parameter("dec", degree=0),
        Parameter("ra_error", least=0.0, degree=0),
        Parameter("dec_error", least=0.0, degree=0),
        Parameter("corr", degree=0),
    )

    def __init__(self, ra: Any, dec: Any, ra_error: Any, dec_error: Any, corr: Any = 0.0) -> None:
        super().__init__(ra=ra, dec=dec, ra_error=ra_error, dec_error=dec_error, corr=corr)

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from super().reasons()
        yield _BEYOND_POLES, _beyond(self.dec, 90.0)
        yield _TOO_WIDE, _beyond(self.ra_error, _MOST_ERROR) | _beyond(self.dec_error, _MOST_ERROR)
        yield "corr beyond -1 and 1", _beyond(self.corr, 1.0 + CORRELATION_SLACK)

    @property
    def columns(self) -> list[np.ndarray]:
        """Its parameters, one after another."""
        return [self.values[parameter.name] for parameter in self.parameters]

    def lifted(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, 3) and covariances (n, 3, 3) in space."""
        return lift(self.columns, isinstance(self, SkyEllipse))


class SkyEllipse(Sky):
    """The same by an error ellipse: semi-axes of one standard error in arcseconds, and the angle of the major one.

    The angle is in degrees from north to east. What an ellipse means to the east and north is found where it is used:
    sines and cosines for every row take Spark longer than all else it does with a row.
    """

    kind: ClassVar[str] = "sky_ellipse"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("ra", degree=0),
        Parameter("dec", degree=0),
        Parameter("major", least=0.0, degree=0),
        Parameter("minor", least=0.0, degree=0),
        Parameter("angle", degree=0),
    )

    def __init__(self, ra: Any, dec: Any, major: Any, minor: Any, angle: Any = 0.0) -> None:
        Model.__init__(self, ra=ra, dec=dec, major=major, minor=minor, angle=angle)

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from Model.reasons(self)
        yield _BEYOND_POLES, _beyond(self.dec, 90.0)
        yield _TOO_WIDE, _beyond(self.major, _MOST_ERROR) | _beyond(self.minor, _MOST_ERROR)


def arcseconds_in(unit: str) -> float:
    """How many arcseconds a unit has."""
    if unit not in IN_ARCSECONDS:
        raise unknown_name("unit of errors", unit, IN_ARCSECONDS)
    return IN_ARCSECONDS[unit]


def chord(arcsec: float) -> float:
    """The straight distance, in arcseconds, of two points so many arcseconds apart on the sky.

    >>> round(chord(3600.0), 6)
    3599.954308
    """
    return 2.0 * ARCSECONDS * math.sin(0.5 * arcsec / ARCSECONDS)


def sky_positions(
    ra: Any, dec: Any, ra_error: Any, dec_error: Any, corr: Any = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Sky:
    """Positions from right ascension and declination in degrees, and their standard errors.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it; ``corr`` is the correlation of the two errors.

    >>> sky_positions([10.0, 359.99], [-5.0, 89.0], 0.1, 0.2)
    <Sky: 2 rows>
    """
    scale = arcseconds_in(errors_in)
    return Sky(ra, dec, scale * np.asarray(ra_error, np.float64), scale * np.asarray(dec_error, np.float64), corr)


def sky_ellipses(
    ra: Any, dec: Any, major: Any, minor: Any, angle: Any = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> SkyEllipse:
    """Positions with error ellipses: semi-axes of one standard error, and the angle of the major one in degrees.

    The angle is from north to east.

    >>> sky_ellipses([0.0, 0.1], 0.0, 2.0, [0.5, 1.0], 90.0)
    <SkyEllipse: 2 rows>
    """
    scale = arcseconds_in(errors_in)
    long, short = np.asarray(major, np.float64), np.asarray(minor, np.float64)
    return SkyEllipse(ra, dec, long if scale == 1.0 else scale * long, short if scale == 1.0 else scale * short, angle)
