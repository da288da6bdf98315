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

from haply.errors import HaplyError, unknown_name
from haply.models.base import Model, Parameter
from haply.numerics.sphere import ARCSECONDS, errors_of, lift

AngleUnit = Literal["arcsec", "mas", "deg"]
"""What errors are given in; positions themselves are in degrees."""

IN_ARCSECONDS = {"arcsec": 1.0, "mas": 1e-3, "deg": 3600.0}
CORRELATION_SLACK = 1e-9


class Sky(Model):
    """Right ascension and declination in degrees; their errors in arcseconds, and the correlation of these.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it.
    """

    kind: ClassVar[str] = "sky"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("ra"),
        Parameter("dec"),
        Parameter("ra_error", least=0.0),
        Parameter("dec_error", least=0.0),
        Parameter("corr"),
    )

    def __init__(self, ra: Any, dec: Any, ra_error: Any, dec_error: Any, corr: Any = 0.0) -> None:
        super().__init__(ra=ra, dec=dec, ra_error=ra_error, dec_error=dec_error, corr=corr)

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from super().reasons()
        most = 1.0 + CORRELATION_SLACK
        yield "dec beyond the poles", (self.dec > 90.0) | (self.dec < -90.0)
        yield "corr beyond -1 and 1", (self.corr > most) | (self.corr < -most)

    def lifted(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, 3) and covariances (n, 3, 3) in space."""
        return lift([self.values[parameter.name] for parameter in self.parameters])


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
) -> Sky:
    """Positions with error ellipses: semi-axes of one standard error, and the angle of the major one in degrees.

    The angle is from north to east.

    >>> east = sky_ellipses(0.0, 0.0, 2.0, 1.0, 90.0)
    >>> east.ra_error.round(6), east.dec_error.round(6)
    (array([2.]), array([1.]))
    """
    scale = arcseconds_in(errors_in)
    axes = [np.atleast_1d(np.asarray(each, np.float64)) for each in (major, minor, angle)]
    if (axes[0] < 0.0).any() or (axes[1] < 0.0).any():
        raise HaplyError("An error ellipse has a negative axis", expected="semi-axes of 0 or more")
    if len({each.shape for each in axes}) > 1:
        axes = list(np.broadcast_arrays(*axes))
    return Sky(ra, dec, *errors_of(axes[0], axes[1], axes[2], scale))
