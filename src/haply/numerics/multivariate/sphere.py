"""Positions on the sky as points in space: a covariance on the tangent plane, lifted to three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from haply.numerics.jit import bare, solid

ARCSECONDS = 180.0 * 3600.0 / math.pi
"""The radius of the sky: lengths on it are then arcseconds."""


@bare
def lifted(cos_ra, sin_ra, cos_dec, sin_dec, east, both, north):
    """Return mean and upper triangle of the covariance in space, from the variances and covariance east and north."""
    x, y, z = cos_dec * cos_ra, cos_dec * sin_ra, sin_dec
    # unit vectors: to the east (-sin_ra, cos_ra, 0), to the north (u, v, cos_dec)
    u, v = -sin_dec * cos_ra, -sin_dec * sin_ra
    p, q = both * cos_ra + north * v, -both * sin_ra + north * u
    return (
        ARCSECONDS * x, ARCSECONDS * y, ARCSECONDS * z,
        east * sin_ra * sin_ra - 2.0 * both * sin_ra * u + north * u * u,
        -east * sin_ra * cos_ra + both * (u * cos_ra - sin_ra * v) + north * u * v,
        q * cos_dec,
        east * cos_ra * cos_ra + 2.0 * both * cos_ra * v + north * v * v,
        p * cos_dec,
        north * cos_dec * cos_dec,
    )  # fmt: skip


@bare
def ellipse(long, short, sine, cosine):
    """Return variances to the east and north, and their covariance, of an ellipse.

    ``long`` and ``short`` are the squares of the semi-axes; ``sine`` and ``cosine`` those of the major axis, turned
    from north to east.
    """
    return (
        long * sine * sine + short * cosine * cosine,
        (long - short) * sine * cosine,
        long * cosine * cosine + short * sine * sine,
    )


@bare
def variances(one, other, third, is_ellipse):
    """Return variances to the east and north, and their covariance.

    They are those of an ellipse, given by its semi-axes and the angle in degrees of the major one from north to east,
    or of two errors and their correlation.
    """
    if is_ellipse:
        turned = math.radians(third)
        return ellipse(one * one, other * other, math.sin(turned), math.cos(turned))
    return one * one, max(-1.0, min(1.0, third)) * one * other, other * other


@bare
def lift_rows(ra, dec, one, other, third, is_ellipse, mean, cov):
    """Apply ``lifted`` to angles in degrees and errors in arcseconds, into means (n, 3) and covariances (n, 3, 3)."""
    for i in range(len(ra)):
        a, d = math.radians(ra[i]), math.radians(dec[i])
        east, both, north = variances(one[i], other[i], third[i], is_ellipse)
        x, y, z, xx, xy, xz, yy, yz, zz = lifted(math.cos(a), math.sin(a), math.cos(d), math.sin(d), east, both, north)
        mean[i, 0], mean[i, 1], mean[i, 2] = x, y, z
        cov[i, 0, 0], cov[i, 1, 1], cov[i, 2, 2] = xx, yy, zz
        cov[i, 0, 1] = cov[i, 1, 0] = xy
        cov[i, 0, 2] = cov[i, 2, 0] = xz
        cov[i, 1, 2] = cov[i, 2, 1] = yz


def lift(columns: Sequence[np.ndarray], is_ellipse: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return means and covariances of positions: right ascension, declination, and the arguments of ``variances``."""
    count = len(columns[0])
    mean, cov = np.empty((count, 3)), np.empty((count, 3, 3))
    ra, dec, one, other, third = (solid(column) for column in columns)
    lift_rows(ra, dec, one, other, third, is_ellipse, mean, cov)
    return mean, cov
