"""Compute the probability that a normal point lies in a disc, or in a ball that is a disc up to rounding.

This is the inner loop of joins. The mass of a region is an integral along its boundary. In coordinates in which the
normal is standard, with ``q`` the squared distance from the mean and ``phi`` the angle around it,
``(1 - exp(-q / 2)) dphi`` has the density as its derivative; ``dphi`` is a cross product over ``q``, and
``(1 - exp(-q / 2)) / q`` has no pole. So along the circle, by its angle, the integrand is periodic and smooth
everywhere, wherever the mean lies, and the trapezoidal rule gains digits in proportion to its nodes. The number of
nodes was measured: see ``_half_nodes``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare, bare_summed
from haply.numerics.multivariate.quadratic import diagonalise, factor, flatten, form_chance, unscale
from haply.numerics.normal import normal_between

MOST_RATIO = 128.0
"""The largest ratio of radius to smaller standard deviation; beyond it the circle takes longer than another method."""
STEP = 4
"""Numbers of nodes are multiples of this: the number that narrow vectors take in one round of the loop."""
FLAT_ENOUGH = 1e-13
"""How much leaving out a third direction may change the probability."""
SURE = 8.6
"""In two dimensions a normal is within this many standard deviations of its mean, except with probability 1e-16."""


def _circle_table() -> tuple[np.ndarray, ...]:
    """Return cosines and sines over half a circle, and of twice the angle, for each number of nodes in turn."""
    angles = [np.pi * (np.arange(count) + 0.5) / count for count in range(STEP, int(_half_nodes(MOST_RATIO)) + 1, STEP)]
    angle = np.concatenate(angles)
    return np.cos(angle), np.sin(angle), np.cos(2.0 * angle), np.sin(2.0 * angle)


def _half_nodes(ratio):
    """Return the nodes on half a circle for an error below 1e-13; ``ratio`` is radius to smaller standard deviation."""
    return STEP * math.ceil((5.75 + 4.25 * ratio) / STEP)


_COSINES, _SINES, _COSINES2, _SINES2 = _circle_table()


@bare_summed
def _around(x, y, xx, xy, yy, det, radius, count):
    """Return the integral along the circle with ``count`` nodes on each half."""
    begin = (count // STEP - 1) * count // 2
    cosine, sine = _COSINES[begin : begin + count], _SINES[begin : begin + count]
    cosine2, sine2 = _COSINES2[begin : begin + count], _SINES2[begin : begin + count]
    scale = 0.5 / det
    bend = 0.5 * scale * radius * radius
    a, b = bend * (yy - xx), -2.0 * bend * xy
    c = bend * (xx + yy) + scale * (yy * x * x - 2.0 * xy * x * y + xx * y * y)
    d, e = -2.0 * scale * radius * (yy * x - xy * y), -2.0 * scale * radius * (xx * y - xy * x)
    total = 0.0
    for k in range(count):
        even = a * cosine2[k] + b * sine2[k] + c
        odd = d * cosine[k] + e * sine[k]
        lean = x * cosine[k] + y * sine[k]
        # halves of q at an angle and at the one opposite; where they vanish the other factor does too
        q, p = min(max(even + odd, 1e-150), 1e150), min(max(even - odd, 1e-150), 1e150)
        s, t = min(q, 64.0) * (1.0 / 64.0), min(p, 64.0) * (1.0 / 64.0)
        # exp(-q) is the 64th power of the series of exp(-q / 64), without a call in the loop: where the series is
        # wrong by more, the power is small; the error over q is below 6e-17
        u = v = 1.0 / 40320.0
        u, v = 1.0 / 5040.0 - s * u, 1.0 / 5040.0 - t * v
        u, v = 1.0 / 720.0 - s * u, 1.0 / 720.0 - t * v
        u, v = 1.0 / 120.0 - s * u, 1.0 / 120.0 - t * v
        u, v = 1.0 / 24.0 - s * u, 1.0 / 24.0 - t * v
        u, v = 1.0 / 6.0 - s * u, 1.0 / 6.0 - t * v
        u, v = 0.5 - s * u, 0.5 - t * v
        u, v = 1.0 - s * u, 1.0 - t * v
        u, v = 1.0 - s * u, 1.0 - t * v
        u, v = u * u, v * v
        u, v = u * u, v * v
        u, v = u * u, v * v
        u, v = u * u, v * v
        u, v = u * u, v * v
        u, v = u * u, v * v
        total += ((radius - lean) * (1.0 - u) * p + (radius + lean) * (1.0 - v) * q) / (q * p)
    return min(1.0, max(0.0, 0.25 * radius * total / (math.sqrt(det) * count)))


@bare
def disc_chance(x, y, xx, xy, yy, square, curve, slope):
    """Return ``P(|X|**2 <= square)`` for normal ``X`` in the plane with mean ``(x, y)``; absolute error below 1e-12.

    ``curve`` and ``slope`` are room for two numbers each.
    """
    most = widest(xx, xy, yy)
    inside = math.sqrt(max(0.0, square)) - math.sqrt(x * x + y * y)
    if inside > 0.0 and inside * inside >= SURE * SURE * most > 0.0:
        return 1.0
    return open_disc(x, y, xx, xy, yy, square, most, curve, slope)


@bare
def widest(xx, xy, yy):
    """Return the largest variance along any line in the plane."""
    return 0.5 * (xx + yy) + math.sqrt(0.25 * (xx - yy) * (xx - yy) + xy * xy)


@bare
def open_disc(x, y, xx, xy, yy, square, most, curve, slope):
    """Return ``disc_chance`` for a known largest variance ``most``, if the disc is not known to hold all mass."""
    away = x * x + y * y
    if most <= 0.0:
        return 1.0 if away <= square else 0.0
    if square <= 0.0:
        return 0.0
    det = xx * yy - xy * xy
    least = max(0.0, det / most)
    if square <= MOST_RATIO * MOST_RATIO * least and det > 1e-12 * xx * yy:
        ratio = math.sqrt(square / least)
        return _around(x, y, xx, xy, yy, det, math.sqrt(square), STEP * math.ceil((5.75 + 4.25 * ratio) / STEP))
    # along the axes of the ellipse
    if least <= 1e-15 * most:
        least = 0.0
    if xx >= yy:
        c, s = most - yy, xy
    else:
        c, s = xy, most - xx
    norm = math.hypot(c, s)
    c, s = (c / norm, s / norm) if norm > 0.0 else (1.0, 0.0)
    one, two = c * x + s * y, c * y - s * x
    if least == 0.0:
        half = square - two * two
        if half < 0.0:
            return 0.0
        half, sd = math.sqrt(half), math.sqrt(most)
        return normal_between((-half - one) / sd, (half - one) / sd)
    curve[0], curve[1] = most, least
    slope[0], slope[1] = math.sqrt(most) * one, math.sqrt(least) * two
    return form_chance(curve, slope, square - away, True, False)[0]


@bare
def plane_of(mx, my, mz, a, d, e, b, f, c):
    """Reduce three dimensions to two where the point hardly leaves a plane: return ``x, y, xx, xy, yy, off, change``.

    The arguments are the mean and the upper triangle of the covariance. ``off`` must be subtracted from the squared
    radius; ``change`` bounds the error of the probability, and is infinite if there is no such plane. The plane is
    across the direction of least variance, found in the matrix of cofactors, which is its projection up to the share of
    the least variance.
    """
    p, q, r = b * c - f * f, a * c - e * e, a * b - d * d
    if p >= q and p >= r:
        nx, ny, nz = p, e * f - c * d, d * f - b * e
    elif q >= r:
        nx, ny, nz = e * f - c * d, q, d * e - a * f
    else:
        nx, ny, nz = d * f - b * e, d * e - a * f, r
    norm = math.sqrt(nx * nx + ny * ny + nz * nz)
    if not norm > 0.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, math.inf
    norm = 1.0 / norm
    nx, ny, nz = nx * norm, ny * norm, nz * norm
    # two orthogonal directions (Duff and others 2017)
    sign = 1.0 if nz >= 0.0 else -1.0
    g = -1.0 / (sign + nz)
    h = nx * ny * g
    ux, uy, uz = 1.0 + sign * nx * nx * g, sign * h, -sign * nx
    vx, vy, vz = h, sign + ny * ny * g, -ny
    sx, sy, sz = a * ux + d * uy + e * uz, d * ux + b * uy + f * uz, e * ux + f * uy + c * uz
    tx, ty, tz = a * vx + d * vy + e * vz, d * vx + b * vy + f * vz, e * vx + f * vy + c * vz
    xx, xy, yy = ux * sx + uy * sy + uz * sz, vx * sx + vy * sy + vz * sz, vx * tx + vy * ty + vz * tz
    third = nx * (a * nx + d * ny + e * nz) + ny * (d * nx + b * ny + f * nz) + nz * (e * nx + f * ny + c * nz)
    third = max(0.0, third)
    det = xx * yy - xy * xy
    deep = nx * mx + ny * my + nz * mz
    change = math.inf
    if det > 0.0:
        # The mean of the third coordinate's square is subtracted; its variation changes the result by half its variance
        # times the slope of the density of the distance squared, which is at most trace / (8 det**1.5). What still
        # varies with the two others, since the direction is not quite right, changes it by at most itself times that
        # density, which is below 1 / (2 det**0.5).
        vary = (third * third + 2.0 * deep * deep * third) * (xx + yy) / (8.0 * det)
        su, sv = nx * sx + ny * sy + nz * sz, nx * tx + ny * ty + nz * tz
        shared = max(0.0, (yy * su * su - 2.0 * xy * su * sv + xx * sv * sv) / det)
        change = (vary + 0.5 * shared + abs(deep) * math.sqrt(shared)) / math.sqrt(det)
    return ux * mx + uy * my + uz * mz, vx * mx + vy * my + vz * mz, xx, xy, yy, deep * deep + third, change


class DiscScratch(NamedTuple):
    """Arrays to work in, for one dimension."""

    root: np.ndarray
    square: np.ndarray
    lines: np.ndarray
    marks: np.ndarray
    mean: np.ndarray
    cov: np.ndarray


def room_for(dim: int) -> DiscScratch:
    """Return arrays to work in for points of ``dim`` coordinates."""
    return DiscScratch(
        np.zeros((dim, dim)), np.zeros((dim, dim)), np.zeros((3, max(dim, 2))), np.zeros(dim, np.int64),
        np.zeros(dim), np.zeros((dim, dim)),
    )  # fmt: skip


@bare
def ball_chance(mean, cov, square, room):
    """Return ``P(|X|**2 <= square)`` for normal ``X`` in any dimension.

    In three dimensions it is computed in a disc if a plane holds the point up to rounding (as the sky does a source).
    """
    dim = len(mean)
    if dim == 1:
        sd = math.sqrt(max(0.0, cov[0, 0]))
        if sd == 0.0:
            return 1.0 if mean[0] * mean[0] <= square else 0.0
        half = math.sqrt(max(0.0, square))
        return normal_between((-half - mean[0]) / sd, (half - mean[0]) / sd)
    curve, slope = room.lines[0], room.lines[1]
    if dim == 2:
        return disc_chance(mean[0], mean[1], cov[0, 0], cov[0, 1], cov[1, 1], square, curve[:2], slope[:2])
    if dim == 3:
        x, y, xx, xy, yy, off, change = plane_of(
            mean[0], mean[1], mean[2], cov[0, 0], cov[0, 1], cov[0, 2], cov[1, 1], cov[1, 2], cov[2, 2]
        )
        if change <= FLAT_ENOUGH and off <= square:
            return disc_chance(x, y, xx, xy, yy, square - off, curve[:2], slope[:2])
    curve, slope = curve[:dim], slope[:dim]
    factor(cov, room.root, room.lines[2][:dim], room.marks)
    unscale(cov, room.root)
    away = distance_form(mean, room, curve, slope)
    return form_chance(curve, slope, square - away, True, False)[0]


@bare
def distance_form(mean, room, curve, slope):
    """Write the squared distance of ``mean + root Z`` as a form (see ``canonical``, with the identity as matrix)."""
    dim = len(mean)
    constant = 0.0
    for k in range(dim):
        constant += mean[k] * mean[k]
        slope[k] = 0.0
        for i in range(dim):
            slope[k] += room.root[i, k] * mean[i]
        for m in range(k + 1):
            total = 0.0
            for i in range(dim):
                total += room.root[i, k] * room.root[i, m]
            room.square[k, m] = room.square[m, k] = total
    diagonalise(room.square, slope)
    for k in range(dim):
        curve[k] = room.square[k, k]
    flatten(curve)
    return constant
