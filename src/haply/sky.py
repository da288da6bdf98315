"""``hp.sky``: catalogues of the sky as positions; see ``haply.models.sky`` for what a position is.

>>> import haply as hp
>>> near = hp.distance(hp.sky.position(hp.left.ra, hp.left.dec, hp.left.e, hp.left.e), hp.right.pos) <= 0.5
>>> print(near)
distance(sky(left.ra, left.dec, left.e, left.e, 0.0), right.pos) <= 0.5
"""

from __future__ import annotations

from typing import Any

from haply.models.sky import AngleUnit, arcseconds_in, chord
from haply.query import Expression, Literal
from haply.query.expressions import Call

__all__ = ["chord", "ellipse", "position"]


def position(
    ra: Any, dec: Any, ra_error: Any, dec_error: Any, corr: Any = 0.0, *, errors_in: AngleUnit = "arcsec"
) -> Any:
    """A position from right ascension and declination in degrees, and their standard errors.

    ``ra_error`` is already times ``cos(dec)``, as Gaia gives it; ``corr`` is the correlation of the two errors.
    Distances of positions are in arcseconds. Its fields are the arguments, with errors in arcseconds. Of names, numbers
    and Spark columns it makes a Spark column, of expressions an expression.
    """
    return _made("sky", "position", (ra, dec), (ra_error, dec_error), corr, errors_in)


def ellipse(ra: Any, dec: Any, major: Any, minor: Any, angle: Any = 0.0, *, errors_in: AngleUnit = "arcsec") -> Any:
    """A position with an error ellipse: semi-axes of one standard error, and the angle of the major one in degrees.

    The angle is from north to east. Its fields are the arguments, with semi-axes in arcseconds.
    """
    return _made("sky_ellipse", "ellipse", (ra, dec), (major, minor), angle, errors_in)


def _made(kind: str, name: str, place: tuple[Any, Any], errors: tuple[Any, Any], last: Any, unit: AngleUnit) -> Any:
    if any(isinstance(value, Expression) for value in (*place, *errors, last)):
        scale = arcseconds_in(unit)
        scaled = errors if scale == 1.0 else tuple(error * scale for error in errors)
        given = (value if isinstance(value, Expression) else Literal(value) for value in (*place, *scaled, last))
        return Call(kind, tuple(given))
    from haply.engines.spark import columns

    return getattr(columns, f"sky_{name}")(*place, *errors, last, errors_in=unit)
