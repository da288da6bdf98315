"""``hp.sky``: positions on the sky, from catalogues; ``haply.models.sky`` says what a position is.

>>> import haply as hp
>>> near = hp.distance(hp.sky.position(hp.left.ra, hp.left.dec, hp.left.e, hp.left.e), hp.right.pos) <= 0.5
>>> print(near)
distance(sky(left.ra, left.dec, left.e, left.e, 0.0), right.pos) <= 0.5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haply.models.sky import AngleUnit, arcseconds_in, chord
from haply.query import Expression, Literal
from haply.query.expressions import Call, ColumnLike

if TYPE_CHECKING:
    from haply.constructors import UncertainColumn

__all__ = ["chord", "ellipse", "position"]


def position(
    ra: ColumnLike,
    dec: ColumnLike,
    ra_error: ColumnLike,
    dec_error: ColumnLike,
    corr: ColumnLike = 0.0,
    *,
    errors_in: AngleUnit = "arcsec",
) -> UncertainColumn:
    """Make positions on the sky from coordinates and their standard errors.

    Give each argument as the name of a column, a Spark column, an expression (``hp.left.ra``) or a number. Distances
    between positions are in arcseconds.

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
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds a struct of the arguments, with errors in
        arcseconds.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.sky.position(hp.left.ra, hp.left.dec, hp.left.ra_error, hp.left.dec_error))
    sky(left.ra, left.dec, left.ra_error, left.dec_error, 0.0)
    """
    return _made("sky", "position", (ra, dec), (ra_error, dec_error), corr, errors_in)


def ellipse(
    ra: ColumnLike,
    dec: ColumnLike,
    major: ColumnLike,
    minor: ColumnLike,
    angle: ColumnLike = 0.0,
    *,
    errors_in: AngleUnit = "arcsec",
) -> UncertainColumn:
    """Make positions on the sky from coordinates and error ellipses.

    Give each argument as the name of a column, a Spark column, an expression (``hp.left.ra``) or a number. Distances
    between positions are in arcseconds.

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
    pyspark.sql.Column or Expression
        An expression if an argument is one, else a Spark column. It holds a struct of the arguments, with semi-axes in
        arcseconds.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.sky.ellipse(hp.left.ra, hp.left.dec, hp.left.major, hp.left.minor, hp.left.angle))
    sky_ellipse(left.ra, left.dec, left.major, left.minor, left.angle)
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
