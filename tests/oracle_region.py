"""Brute force for regions in several dimensions. Imports nothing from the package.

Boxes and quadratic forms in two dimensions are integrated in 25 digits over one coordinate, the other in closed form;
positive forms in any dimension are Ruben's series over chi-squares, all terms positive; distances in sds come from
SciPy's minimisers; everything else is counted in random draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpmath import erfc, mp, mpf, quad, sqrt
from scipy import optimize, special

mp.dps = max(mp.dps, 25)
FAR = 30


def between(low: Any, high: Any) -> Any:
    """``P(low < Z < high)`` for a standard normal ``Z``, from the tail that has the digits."""
    if not low < high:
        return mpf(0)
    if low > 0:
        low, high = -high, -low
    return (erfc(-high / sqrt(2)) - erfc(-low / sqrt(2))) / 2


def density(z: Any) -> Any:
    return mp.exp(-z * z / 2) / sqrt(2 * mp.pi)


def _pieces(low: Any, high: Any, marks: Sequence[Any], width: Any) -> list[Any]:
    """The interval cut at marks, around them in steps of a width, and at every third sd."""
    cuts = {low, high}
    places = [mark + k * width for mark in marks for k in (-24, -8, -3, -1, 0, 1, 3, 8, 24)]
    cuts |= {cut for cut in [*places, *(mpf(k) for k in range(-FAR, FAR + 1, 3))] if low < cut < high}
    return sorted(cuts)


def box2(mean: Sequence[float], cov: Any, low: Sequence[float], high: Sequence[float], scale: float = 1.0) -> float:
    """``P(low < X < high)`` for a normal in two dimensions; ``scale`` is about the answer, as quad errs absolutely."""
    m = [mpf(float(each)) for each in mean]
    (a, b), (_, c) = [[mpf(float(each)) for each in row] for row in np.asarray(cov)]
    sd, slope, rest = sqrt(a), b / a, sqrt(c - b * b / a)
    start = max((mpf(float(low[0])) - m[0]) / sd, mpf(-FAR))
    end = min((mpf(float(high[0])) - m[0]) / sd, mpf(FAR))
    if not start < end:
        return 0.0
    ends = mpf(float(low[1])) - m[1], mpf(float(high[1])) - m[1]

    def part(z: Any) -> Any:
        away = slope * sd * z
        return density(z) * between((ends[0] - away) / rest, (ends[1] - away) / rest) / mpf(scale)

    tilt = slope * sd
    marks = [edge / tilt for edge in ends if tilt != 0 and mp.isfinite(edge)]
    return float(mpf(scale) * quad(part, _pieces(start, end, marks, abs(rest / tilt) if tilt != 0 else mpf(1))))


def _inside(curve: Any, slope: Any, limit: Any) -> Any:
    """``P(curve Z**2 + 2 slope Z < limit)``."""
    if curve == 0:
        if slope == 0:
            return mpf(1 if limit > 0 else 0)
        return between(-mp.inf, limit / (2 * abs(slope)))
    root = slope * slope + curve * limit
    if root <= 0:
        return mpf(0 if curve > 0 else 1)
    ends = sorted([(-slope - sqrt(root)) / curve, (-slope + sqrt(root)) / curve])
    return between(*ends) if curve > 0 else between(-mp.inf, ends[0]) + between(ends[1], mp.inf)


def form2(curve: Sequence[float], slope: Sequence[float], limit: float) -> float:
    """``P(sum(curve Z**2 + 2 slope Z) < limit)`` in two dimensions, of any signs."""
    order = sorted(range(2), key=lambda j: abs(curve[j]) + abs(slope[j]))
    (c1, c2), (s1, s2) = ([mpf(float(each[j])) for j in order] for each in (curve, slope))
    q = mpf(float(limit))
    marks = []
    if c2 != 0:  # where the inner root begins
        a, b, c = -c2 * c1, -2 * c2 * s1, s2 * s2 + c2 * q
        if a != 0 and b * b - 4 * a * c > 0:
            marks = [(-b + sign * sqrt(b * b - 4 * a * c)) / (2 * a) for sign in (-1, 1)]
        elif a == 0 and b != 0:
            marks = [-c / b]
    pieces = _pieces(mpf(-12), mpf(12), marks, mpf("0.05"))
    return float(quad(lambda z: density(z) * _inside(c2, s2, q - c1 * z * z - 2 * s1 * z), pieces))


def ruben(weights: Sequence[float], shifts: Sequence[float], limit: float, terms: int = 2000) -> tuple[float, float]:
    """Lower and upper bound on ``P(sum(weights (Z + shifts)**2) < limit)`` for positive weights."""
    weight, square = np.asarray(weights, float), np.asarray(shifts, float) ** 2
    beta = weight.min()
    rest = 1.0 - beta / weight
    g = np.empty(terms)
    power = np.ones_like(rest)
    for n in range(1, terms):
        g[n] = 0.5 * (power * rest).sum() + 0.5 * n * (square * power * (1.0 - rest)).sum()
        power = power * rest
    c = np.zeros(terms)
    c[0] = np.exp(-0.5 * square.sum()) * np.prod(np.sqrt(beta / weight))
    for n in range(1, terms):
        c[n] = np.dot(g[n:0:-1], c[:n]) / n
        if n % 50 == 0 and c[: n + 1].sum() > 1.0 - 1e-15:
            terms = n + 1
            break
    values = special.gammainc(0.5 * len(weight) + np.arange(terms), 0.5 * limit / beta)
    known = float(np.dot(c[:terms], values))
    return known, known + max(0.0, 1.0 - float(c[:terms].sum())) * float(values[-1])


def draws(mean: Any, cov: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random points of a normal, by the eigenvalues of its covariance (singular ones as well)."""
    values, vectors = np.linalg.eigh(np.asarray(cov, float))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(mean, float) + rng.normal(size=(count, len(values))) @ root.T


def box_distance(mean: Any, cov: Any, low: Any, high: Any) -> float:
    """The distance of a box from the mean in sds, by bounded least squares."""
    root = np.linalg.inv(np.linalg.cholesky(np.asarray(cov, float)))
    found = optimize.lsq_linear(root, root @ np.asarray(mean, float), bounds=(low, high), tol=1e-14)
    return float(np.sqrt(2.0 * found.cost))


def circle_distance(mean: Any, cov: Any, radius: float) -> float:
    """The distance of a circle's line from the mean in sds, over ever finer angles."""
    inverse, centre, width = np.linalg.inv(np.asarray(cov, float)), 0.0, np.pi
    best = np.inf
    for _ in range(12):
        angles = centre + np.linspace(-width, width, 2001)
        away = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1) - np.asarray(mean, float)
        squares = np.einsum("ni,ij,nj->n", away, inverse, away)
        centre, best, width = angles[squares.argmin()], min(best, squares.min()), width / 100
    return float(np.sqrt(best))
