"""Positions on the sky as points in space: a covariance on the plane that touches the sphere, lifted to three."""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.jit import bare

ARCSECONDS = 180.0 * 3600.0 / math.pi
"""The radius of the sky: lengths on it are then arcseconds."""


@bare
def lifted(cos_ra, sin_ra, cos_dec, sin_dec, east, both, north):
    """Mean and the upper triangle of the covariance in space, from variances to the east and north and their product.

    Plain arithmetic, so that numbers, arrays and columns of Spark do alike.
    """
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
    """Variances to the east and north, and their product, of an ellipse; its major axis is turned from north to east.

    ``long`` and ``short`` are the squares of the semi-axes.
    """
    return (
        long * sine * sine + short * cosine * cosine,
        (long - short) * sine * cosine,
        long * cosine * cosine + short * sine * sine,
    )


@bare
def lift_rows(ra, dec, one, other, third, scale, is_ellipse, mean, cov):
    """``lifted`` for angles in degrees, into flat means and covariances.

    The errors are those to east and north and their correlation; or semi-axes, and an angle in degrees.
    """
    for i in range(len(ra)):
        a, d = math.radians(ra[i]), math.radians(dec[i])
        p, q = scale * one[i], scale * other[i]
        if is_ellipse:
            turned = math.radians(third[i])
            east, both, north = ellipse(p * p, q * q, math.sin(turned), math.cos(turned))
        else:
            east, both, north = p * p, third[i] * p * q, q * q
        x, y, z, xx, xy, xz, yy, yz, zz = lifted(math.cos(a), math.sin(a), math.cos(d), math.sin(d), east, both, north)
        mean[i, 0], mean[i, 1], mean[i, 2] = x, y, z
        cov[i, 0], cov[i, 4], cov[i, 8] = xx, yy, zz
        cov[i, 1] = cov[i, 3] = xy
        cov[i, 2] = cov[i, 6] = xz
        cov[i, 5] = cov[i, 7] = yz


def lift(
    ra: np.ndarray,
    dec: np.ndarray,
    one: np.ndarray,
    other: np.ndarray,
    third: np.ndarray,
    scale: float,
    is_ellipse: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Means (n, 3) and covariances (n, 9); see ``lift_rows``."""
    mean, cov = np.empty((len(ra), 3)), np.empty((len(ra), 9))
    lift_rows(ra, dec, one, other, third, scale, is_ellipse, mean, cov)
    return mean, cov
