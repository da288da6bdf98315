"""Positions on the sky with their errors.

Internally a source is a point on a sphere whose radius is one radian in arcseconds, and its errors lie in the plane
that touches the sphere there: a Gaussian in space with a covariance of rank two. Distances are chords in arcseconds.
Each source has its own tangent plane, so the poles and right ascension 0 need no special case.

The chord of an arc of ``t`` radians is shorter by ``t**2 / 24`` of it: 1e-12 at one arcsecond, 4e-9 at one arcminute
(``chord`` gives it for larger radii). Errors are a Gaussian on the touching plane, not on the sphere: for errors of
``s`` radians a probability changes by about ``s**2``, 2e-11 for one arcsecond. A position in doubles is rounded to some
3e-11 arcseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from haply.errors import unknown_name
from haply.models.base import Model, Parameter
from haply.models.plane import NormalParts
from haply.numerics.multivariate.sphere import ARCSECONDS, lift

AngleUnit = Literal["arcsec", "mas", "deg"]
"""The units of errors; positions are in degrees."""

IN_ARCSECONDS = {"arcsec": 1.0, "mas": 1e-3, "deg": 3600.0}
CORRELATION_SLACK = 1e-9
_BEYOND_POLES = "dec beyond the poles"
_TOO_WIDE, _MOST_ERROR = "an error too large to be squared", 1e60
"""Far more than any real error; its fourth power is in the range of doubles."""


def _beyond(numbers: np.ndarray, most: float) -> np.ndarray:
    return (numbers > most) | (numbers < -most)


class Sky(Model):
    """Represents positions on the sky with the errors of both coordinates.

    Parameters
    ----------
    ra
        Right ascension in degrees.
    dec
        Declination in degrees, from -90 to 90.
    ra_error
        Standard error of the right ascension in arcseconds, already multiplied by ``cos(dec)``, as Gaia gives it.
    dec_error
        Standard error of the declination in arcseconds.
    corr
        Correlation of the two errors, from -1 to 1.

    Examples
    --------
    >>> from haply.models import Sky
    >>> Sky(150.1, 2.2, 0.1, 0.05, 0.3).show(0)
    {'ra': 150.1, 'dec': 2.2, 'ra_error': 0.1, 'dec_error': 0.05, 'corr': 0.3}
    """

    kind: ClassVar[str] = "sky"
    on_sky: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("ra", degree=0),
        Parameter("dec", degree=0),
        Parameter("ra_error", least=0.0, degree=0),
        Parameter("dec_error", least=0.0, degree=0),
        Parameter("corr", degree=0),
    )

    def __init__(
        self, ra: ArrayLike, dec: ArrayLike, ra_error: ArrayLike, dec_error: ArrayLike, corr: ArrayLike = 0.0
    ) -> None:
        super().__init__(ra=ra, dec=dec, ra_error=ra_error, dec_error=dec_error, corr=corr)

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from super().reasons()
        yield _BEYOND_POLES, _beyond(self.dec, 90.0)
        yield _TOO_WIDE, _beyond(self.ra_error, _MOST_ERROR) | _beyond(self.dec_error, _MOST_ERROR)
        yield "corr beyond -1 and 1", _beyond(self.corr, 1.0 + CORRELATION_SLACK)

    @property
    def columns(self) -> list[np.ndarray]:
        """Return its parameters, one after another."""
        return [self.values[parameter.name] for parameter in self.parameters]

    def normal_parts(self) -> NormalParts:
        east, north = np.asarray(self.ra_error) ** 2, np.asarray(self.dec_error) ** 2
        return self._touching(east, self.corr * self.ra_error * self.dec_error, north)

    def _touching(self, east: np.ndarray, both: np.ndarray, north: np.ndarray) -> NormalParts:
        """Return rows with these variances in the plane that touches the sky."""
        cov = np.stack([np.stack([east, both], axis=-1), np.stack([both, north], axis=-1)], axis=-1)
        return NormalParts(np.arange(len(self) + 1), np.ones(len(self)), np.column_stack([self.ra, self.dec]), cov)

    def lifted(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, 3) and covariances (n, 3, 3) in space."""
        return lift(self.columns, isinstance(self, SkyEllipse))


class SkyEllipse(Sky):
    """Represents positions on the sky with error ellipses.

    Parameters
    ----------
    ra
        Right ascension in degrees.
    dec
        Declination in degrees, from -90 to 90.
    major
        Semi-major axis of the ellipse of one standard error, in arcseconds.
    minor
        Semi-minor axis of the ellipse of one standard error, in arcseconds.
    angle
        Angle of the major axis in degrees, from north to east.

    Examples
    --------
    >>> from haply.models import SkyEllipse
    >>> SkyEllipse(150.1, 2.2, 0.2, 0.1, 45.0).show(0)
    {'ra': 150.1, 'dec': 2.2, 'major': 0.2, 'minor': 0.1, 'angle': 45.0}
    """

    # Errors to the east and north are computed where they are used: sines and cosines for every row would take Spark
    # longer than all else it does with a row.

    kind: ClassVar[str] = "sky_ellipse"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("ra", degree=0),
        Parameter("dec", degree=0),
        Parameter("major", least=0.0, degree=0),
        Parameter("minor", least=0.0, degree=0),
        Parameter("angle", degree=0),
    )

    def __init__(
        self, ra: ArrayLike, dec: ArrayLike, major: ArrayLike, minor: ArrayLike, angle: ArrayLike = 0.0
    ) -> None:
        Model.__init__(self, ra=ra, dec=dec, major=major, minor=minor, angle=angle)

    def normal_parts(self) -> NormalParts:
        sin, cos = np.sin(np.radians(self.angle)), np.cos(np.radians(self.angle))
        long, short = np.asarray(self.major) ** 2, np.asarray(self.minor) ** 2
        return self._touching(
            long * sin**2 + short * cos**2, (long - short) * sin * cos, long * cos**2 + short * sin**2
        )

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from Model.reasons(self)
        yield _BEYOND_POLES, _beyond(self.dec, 90.0)
        yield _TOO_WIDE, _beyond(self.major, _MOST_ERROR) | _beyond(self.minor, _MOST_ERROR)


def arcseconds_in(unit: str) -> float:
    """Return how many arcseconds a unit has."""
    if unit not in IN_ARCSECONDS:
        raise unknown_name("unit of errors", unit, IN_ARCSECONDS)
    return IN_ARCSECONDS[unit]


def chord(arcsec: float) -> float:
    """Compute the straight distance of two points on the sky from the arc between them.

    Distances between positions are straight ones. That of an arcminute is shorter than the arc by 4e-9 of its length.
    For larger radii, compare distances with ``chord(radius)``.

    Parameters
    ----------
    arcsec
        The length of the arc in arcseconds.

    Returns
    -------
    float
        The straight distance in arcseconds.

    Examples
    --------
    >>> round(chord(3600.0), 6)
    3599.954308
    """
    return 2.0 * ARCSECONDS * math.sin(0.5 * arcsec / ARCSECONDS)


def sky_positions(
    ra: ArrayLike,
    dec: ArrayLike,
    ra_error: ArrayLike,
    dec_error: ArrayLike,
    corr: ArrayLike = 0.0,
    *,
    errors_in: AngleUnit = "arcsec",
) -> Sky:
    """Make positions on the sky from coordinates and their standard errors.

    Parameters
    ----------
    ra, dec
        Right ascension and declination in degrees.
    ra_error, dec_error
        Their standard errors. ``ra_error`` is already multiplied by ``cos(dec)``, as Gaia gives it.
    corr
        Correlation of the two errors.
    errors_in
        The unit of the errors: ``"arcsec"``, ``"mas"`` or ``"deg"``.

    Returns
    -------
    Sky
        A position for each row, with errors in arcseconds.

    Examples
    --------
    >>> sky_positions([10.0, 359.99], [-5.0, 89.0], 0.1, 0.2)
    <Sky: 2 rows>
    """
    scale = arcseconds_in(errors_in)
    return Sky(ra, dec, scale * np.asarray(ra_error, np.float64), scale * np.asarray(dec_error, np.float64), corr)


def sky_ellipses(
    ra: ArrayLike,
    dec: ArrayLike,
    major: ArrayLike,
    minor: ArrayLike,
    angle: ArrayLike = 0.0,
    *,
    errors_in: AngleUnit = "arcsec",
) -> SkyEllipse:
    """Make positions on the sky from coordinates and error ellipses.

    Parameters
    ----------
    ra, dec
        Right ascension and declination in degrees.
    major, minor
        Semi-axes of the ellipse of one standard error.
    angle
        Angle of the major axis in degrees, from north to east.
    errors_in
        The unit of the semi-axes: ``"arcsec"``, ``"mas"`` or ``"deg"``.

    Returns
    -------
    SkyEllipse
        A position for each row, with semi-axes in arcseconds.

    Examples
    --------
    >>> sky_ellipses([0.0, 0.1], 0.0, 2.0, [0.5, 1.0], 90.0)
    <SkyEllipse: 2 rows>
    """
    scale = arcseconds_in(errors_in)
    long, short = np.asarray(major, np.float64), np.asarray(minor, np.float64)
    return SkyEllipse(ra, dec, long if scale == 1.0 else scale * long, short if scale == 1.0 else scale * short, angle)
