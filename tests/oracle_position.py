"""Brute force for distances of uncertain positions, and for the sky. Imports nothing from the package.

The mass of a normal in a ball is integrated axis by axis in the basis of its eigenvectors, the last axis in closed
form, by Gauss and Legendre's rule over an angle whose sine is the coordinate. On the sphere, points are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]
WINDOW = 8.5
NODES = {1: 1, 2: 96, 3: 56, 4: 28}
"""On each axis, by dimension."""


def _line(mean: Floats, sd: Floats, square: Floats) -> Floats:
    """``P(x**2 <= square)`` on one axis."""
    half = np.sqrt(np.maximum(square, 0.0))
    spread = np.where(sd > 0.0, sd, 1.0)
    low, high = (-half - mean) / spread, (half - mean) / spread
    flip = low > 0.0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    inside = np.where(sd > 0.0, ndtr(high) - ndtr(low), (mean * mean <= square).astype(float))
    return np.where(square < 0.0, 0.0, inside)


def _axes(mean: list[Floats], sd: list[Floats], square: Floats, nodes: int) -> Floats:
    if len(mean) == 1:
        return _line(mean[0], sd[0], square)
    x, weight = np.polynomial.legendre.leggauss(nodes)
    m, s = mean[0], sd[0]
    half = np.sqrt(np.maximum(square, 0.0))
    safe = np.where(half > 0.0, half, 1.0)
    low = np.arcsin(np.clip((m - WINDOW * s) / safe, -1.0, 1.0))
    high = np.arcsin(np.clip((m + WINDOW * s) / safe, -1.0, 1.0))
    angle = low[..., None] + (high - low)[..., None] * 0.5 * (1.0 + x)
    at = half[..., None] * np.sin(angle)
    spread = np.where(s > 0.0, s, 1.0)[..., None]
    density = np.exp(-0.5 * ((at - m[..., None]) / spread) ** 2) / (spread * np.sqrt(2.0 * np.pi))
    share = density * (half * 0.5 * (high - low))[..., None] * np.cos(angle) * weight
    left = (half[..., None] * np.cos(angle)) ** 2
    # well inside, the coordinate itself: an angle would lose the digits of a narrow window
    inside = (half - np.abs(m) > 60.0 * s)[..., None]
    share = np.where(inside, WINDOW * weight * np.exp(-0.5 * (WINDOW * x) ** 2) / np.sqrt(2.0 * np.pi), share)
    left = np.where(inside, square[..., None] - (m[..., None] + s[..., None] * WINDOW * x) ** 2, left)
    more = [[each[..., None] for each in rest[1:]] for rest in (mean, sd)]
    spread_out = (share * _axes(more[0], more[1], left, nodes)).sum(axis=-1)
    fixed = _axes(mean[1:], sd[1:], square - m * m, nodes)
    return np.where(s > 0.0, spread_out, fixed)


def ball(mean: Any, cov: Any, radius: float) -> Floats:
    """``P(|X| <= radius)`` for each row of means (n, d) and covariances (n, d, d)."""
    means, covs = np.asarray(mean, float), np.asarray(cov, float)
    dim = means.shape[1]
    found = np.zeros(len(means))
    for begin in range(0, len(means), 64):
        some = slice(begin, begin + 64)
        variance, basis = np.linalg.eigh(0.5 * (covs[some] + covs[some].transpose(0, 2, 1)))
        variance = np.where(variance > 1e-14 * np.abs(variance).max(axis=1, keepdims=True), variance, 0.0)
        along = np.einsum("nij,ni->nj", basis, means[some])
        axes = [along[:, k] for k in range(dim)], [np.sqrt(variance[:, k]) for k in range(dim)]
        square = np.full(len(along), radius * radius)
        if not variance.any():  # points: no rounding by the basis
            found[some] = ((means[some] ** 2).sum(axis=1) <= square).astype(float)
            continue
        chance = _axes(axes[0], axes[1], square, NODES[dim])
        points = ~variance.any(axis=1)
        found[some] = np.where(points, (means[some] ** 2).sum(axis=1) <= square, chance)
    return found


Normal = tuple[Floats, Floats, Floats]
"""Weights (k,), means (k, d) and covariances (k, d, d) of a position: one part for a Gaussian, zeros for a point."""


def near(lefts: list[Normal], rights: list[Normal], within: float) -> Floats:
    """``P(|left - right| <= within)`` for all pairs."""
    chance = np.zeros((len(lefts), len(rights)))
    parts = [
        (i, j, w * v, m - n, s + t)
        for i, (ws, ms, ss) in enumerate(lefts)
        for j, (vs, ns, ts) in enumerate(rights)
        for w, m, s in zip(ws, ms, ss, strict=True)
        for v, n, t in zip(vs, ns, ts, strict=True)
    ]
    values = ball([part[3] for part in parts], [part[4] for part in parts], within)
    for (i, j, weight, _, _), value in zip(parts, values, strict=True):
        chance[i, j] += weight * value
    return chance


# -- the sky ----------------------------------------------------------------------------------------------------------


def on_sphere(ra: float, dec: float, east: Floats, north: Floats) -> Floats:
    """Unit vectors of points that lie some arcseconds to the east and north of a place, by great circles from it."""
    a, d = np.radians(ra), np.radians(dec)
    place = np.array([np.cos(d) * np.cos(a), np.cos(d) * np.sin(a), np.sin(d)])
    eastward = np.array([-np.sin(a), np.cos(a), 0.0])
    northward = np.cross(place, eastward)
    steps = np.radians(np.hypot(east, north) / 3600.0)
    direction = np.arctan2(east, north)
    toward = np.sin(direction)[:, None] * eastward + np.cos(direction)[:, None] * northward
    return np.cos(steps)[:, None] * place + np.sin(steps)[:, None] * toward


def separation(one: Floats, other: Floats) -> Floats:
    """Angles between unit vectors, in arcseconds; exact for small ones."""
    across = np.linalg.norm(np.cross(one, other), axis=-1)
    return np.degrees(np.arctan2(across, (one * other).sum(axis=-1))) * 3600.0


def drawn_chance(
    one: tuple[float, float], cov: Any, other: tuple[float, float], other_cov: Any, within: float, count: int, seed: int
) -> tuple[float, float]:
    """Share of random pairs of points on the sphere that are within some arcseconds, and its standard error.

    Covariances are of (east, north) in square arcseconds.
    """
    random = np.random.default_rng(seed)
    points = []
    for (ra, dec), spread in ((one, cov), (other, other_cov)):
        value, basis = np.linalg.eigh(np.asarray(spread, float))
        moved = (random.normal(size=(count, 2)) * np.sqrt(np.maximum(value, 0.0))) @ basis.T
        points.append(on_sphere(ra, dec, moved[:, 0], moved[:, 1]))
    share = float((separation(points[0], points[1]) <= within).mean())
    return share, float(np.sqrt(max(share * (1.0 - share), 1.0 / count) / count))
