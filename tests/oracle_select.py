"""Brute force for conditions on the rows of one table. Imports nothing from the package.

What is asked is plain data (`Ask`, `Near`), and so are the values: those of `oracle` in one dimension, and `NormalND`,
`MixtureND` and `Cloud` in several. How likely it is, is found in another way than the engine's:

* one value of any law: in 50 digits, by cutting the line at the roots and asking in each piece whether it holds;
* normals: what is asked as polynomials of as few independent standard normals as matter; the strongest of them in
  closed form, a second by Gauss-Legendre on panels that are halved until halving changes nothing (1e-13), a third on
  fixed panels (about 1e-8);
* samples: every combination counted, in fractions where they are equally likely;
* values tied to one by differences: given that one they are independent, which leaves one integral;
* all else: draws, whose standard errors say how far off a right answer may be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from mpmath import mp, mpf
from scipy import special

import oracle

Range = tuple[Any, Any, bool, bool]
"""Low, high (numbers, or one for each row), and whether they belong to it."""
Place = tuple[str, int | None]
"""A column and which of its components."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 9.0
"""A standard normal is farther out with probability 2e-19."""


@dataclass(frozen=True)
class NormalND:
    """A normal in several dimensions."""

    mean: Any
    cov: Any


@dataclass(frozen=True)
class MixtureND:
    """A mixture of such."""

    weights: Any
    means: Any
    covs: Any


@dataclass(frozen=True)
class Cloud:
    """Points with weights; without, all are equally likely."""

    points: Any
    probs: Any = None


@dataclass(frozen=True)
class Ask:
    """The sum of factors times values, and times products of two values, lies in one of the ranges."""

    linear: tuple[tuple[Place, Any], ...]
    squares: tuple[tuple[Place, Place, Any], ...]
    ranges: tuple[Range, ...]

    def holds(self, draws: Mapping[str, np.ndarray], row: int) -> np.ndarray:
        """Whether it holds for drawn numbers: (count,) or, of columns with components, (count, d)."""

        def drawn(place: Place) -> np.ndarray:
            name, index = place
            return draws[name] if index is None else draws[name][:, index]

        total: Any = sum(at(factor, row) * drawn(place) for place, factor in self.linear)
        total = total + sum(at(factor, row) * drawn(one) * drawn(two) for one, two, factor in self.squares)
        return inside(total, self.ranges, row)


@dataclass(frozen=True)
class Near:
    """Two points are at most ``limit`` apart (less, if not closed); if ``beyond``, they are not."""

    one: str
    other: str
    limit: Any
    closed: bool = True
    beyond: bool = False

    def holds(self, draws: Mapping[str, np.ndarray], row: int) -> np.ndarray:
        """Whether it holds for drawn points."""
        one, other = (np.reshape(draws[name], (len(draws[name]), -1)) for name in (self.one, self.other))
        apart = np.sqrt(((one - other) ** 2).sum(axis=1))
        limit = at(self.limit, row)
        return (apart <= limit if self.closed else apart < limit) != self.beyond


def at(number: Any, row: int) -> float:
    """A number of a row."""
    return float(number[row]) if np.ndim(number) else float(number)


def inside(x: Any, ranges: Sequence[Range], row: int | np.ndarray = 0) -> Any:
    """Whether numbers lie in one of the ranges."""
    found: Any = False
    for low, high, low_closed, high_closed in ranges:
        lo = low[row] if np.ndim(low) else low
        hi = high[row] if np.ndim(high) else high
        found = found | (((x > lo) | (low_closed & (x == lo))) & ((x < hi) | (high_closed & (x == hi))))
    return found


# ---------------------------------------------------------------------------------------------------------------
# One value of any law


def one_value(value: oracle.Value, asks: Sequence[Ask], row: int = 0, digits: int = 50) -> mpf:
    """All that is asked of one value together."""
    with mp.workdps(digits):
        parts = []
        for ask in asks:
            slope = mpf(sum(at(factor, row) for _, factor in ask.linear))
            curve = mpf(sum(at(factor, row) for _, _, factor in ask.squares))
            parts.append((curve, slope, [(mpf(at(a, row)), mpf(at(b, row)), c, d) for a, b, c, d in ask.ranges]))

        def holds(x: mpf) -> bool:
            return all(
                any(
                    (low < y or (low_closed and low == y)) and (y < high or (high_closed and y == high))
                    for low, high, low_closed, high_closed in ranges
                )
                for y, ranges in ((curve * x * x + slope * x, ranges) for curve, slope, ranges in parts)
            )

        cuts = sorted({x for part in parts for x in _roots(*part)})
        total = mpf(0)
        for low, high in pairwise([-mp.inf, *cuts, mp.inf]):
            middle = high - 1 if low == -mp.inf else low + 1 if high == mp.inf else (low + high) / 2
            if holds(mpf(0) if low == -mp.inf and high == mp.inf else middle):
                total += oracle.cdf_left(value, high, digits=digits) - oracle.cdf(value, low, digits=digits)
        for cut in cuts:
            if holds(cut):
                total += oracle.cdf(value, cut, digits=digits) - oracle.cdf_left(value, cut, digits=digits)
        return total


def _roots(curve: mpf, slope: mpf, ranges: Sequence[tuple[mpf, mpf, bool, bool]]) -> list[mpf]:
    found = []
    for end in {end for each in ranges for end in each[:2] if mp.isfinite(end)}:
        if curve == 0:
            found += [end / slope] if slope != 0 else []
            continue
        root = slope * slope + 4 * curve * end
        found += [(-slope + sign * mp.sqrt(root)) / (2 * curve) for sign in (-1, 1)] if root >= 0 else []
    return found


# ---------------------------------------------------------------------------------------------------------------
# Normals


def normal_parts(value: Any) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Weights, means and covariances of what a value is a mixture of."""
    if isinstance(value, oracle.Point):
        return [(1.0, np.array([float(value.v)]), np.zeros((1, 1)))]
    if isinstance(value, oracle.Normal):
        return [(1.0, np.array([float(value.mean)]), np.array([[float(value.sd) ** 2]]))]
    if isinstance(value, oracle.NormalMixture):
        total = sum(value.weights)
        return [
            (float(w / total), np.array([float(m)]), np.array([[float(s) ** 2]]))
            for w, m, s in zip(value.weights, value.means, value.sds, strict=True)
        ]
    if isinstance(value, NormalND):
        return [(1.0, np.asarray(value.mean, float), np.asarray(value.cov, float))]
    if isinstance(value, Cloud):
        points = np.asarray(value.points, float)
        weights = np.full(len(points), 1.0 / len(points)) if value.probs is None else np.asarray(value.probs, float)
        nothing = np.zeros((points.shape[1], points.shape[1]))
        return [(float(w), point, nothing) for w, point in zip(weights / weights.sum(), points, strict=True)]
    assert isinstance(value, MixtureND), value
    total = sum(value.weights)
    return [
        (float(w / total), np.asarray(m, float), np.asarray(c, float))
        for w, m, c in zip(value.weights, value.means, value.covs, strict=True)
    ]


@dataclass
class _Polynomials:
    """What is asked, as ``z' matrix z + line z + constant`` in ranges, each array with one entry for each problem."""

    matrix: np.ndarray
    line: np.ndarray
    constant: np.ndarray
    ranges: list[Range]


def normals(columns: Mapping[str, Sequence[Any]], asks: Sequence[Ask]) -> np.ndarray:
    """All that is asked of normals, and mixtures of them, together: for each row."""
    names = list(dict.fromkeys(name for ask in asks for name in _names(ask)))
    count = len(columns[names[0]])
    found = np.zeros(count)
    problems: dict[int, list[tuple[int, float, list[tuple[np.ndarray, np.ndarray, float]]]]] = {}
    for row in range(count):
        for combination in itertools.product(*(normal_parts(columns[name][row]) for name in names)):
            weight = math.prod(part[0] for part in combination)
            if weight == 0.0:
                continue
            latent = _latent(names, combination, asks, row)
            problems.setdefault(latent[0][0].shape[0], []).append((row, weight, latent))
    for size, alike in problems.items():
        rows = np.array([row for row, _, _ in alike])
        asked = []
        for k, ask in enumerate(asks):
            matrix, line, constant = (np.array([latent[k][part] for _, _, latent in alike]) for part in range(3))
            ranges = [
                (*(np.array([at(end, row) for row in rows]) for end in each[:2]), *each[2:]) for each in ask.ranges
            ]
            asked.append(_Polynomials(matrix, line, constant, ranges))
        np.add.at(found, rows, np.array([weight for _, weight, _ in alike]) * _solve(asked, size))
    return found


def _names(ask: Ask) -> list[str]:
    return [name for (name, _), _ in ask.linear] + [p[0] for one, two, _ in ask.squares for p in (one, two)]


def _latent(
    names: Sequence[str], parts: Sequence[tuple[float, np.ndarray, np.ndarray]], asks: Sequence[Ask], row: int
) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """What is asked as polynomials of those independent standard normals that matter, the least one first."""
    start = dict(zip(names, np.cumsum([0, *(len(mean) for _, mean, _ in parts)]), strict=False))
    mean = np.concatenate([part[1] for part in parts])
    root = np.zeros((len(mean), len(mean)))
    for name, (_, own, cov) in zip(names, parts, strict=True):
        here = slice(start[name], start[name] + len(own))
        root[here, here] = _root(cov)
    found = []
    for ask in asks:
        matrix, line = np.zeros(root.shape), np.zeros(len(mean))
        for (name, index), factor in ask.linear:
            line[start[name] + (index or 0)] += at(factor, row)
        for (one, i), (two, j), factor in ask.squares:
            matrix[start[one] + (i or 0), start[two] + (j or 0)] += at(factor, row)
        matrix = 0.5 * (matrix + matrix.T)
        found.append(
            (root.T @ matrix @ root, root.T @ (line + 2.0 * matrix @ mean), mean @ matrix @ mean + line @ mean)
        )
    rows = []
    for matrix, line, _ in found:
        size = max(np.abs(matrix).max(), np.abs(line).max())
        rows += [*(matrix / size), line / size] if size > 0.0 else []
    if not rows:
        return [(np.zeros((0, 0)), np.zeros(0), constant) for _, _, constant in found]
    _, sizes, turned = np.linalg.svd(np.array(rows))
    kept = turned[: int((sizes > 1e-13 * sizes[0]).sum())][::-1]
    if len(found) == 1 and len(kept) == 3:  # along its axes, the one that bends against the others first
        values, vectors = np.linalg.eigh(kept @ found[0][0] @ kept.T)
        sign = np.sign(np.where(np.abs(values) > 1e-12 * np.abs(values).max(), values, 0.0))
        alike = [int((sign == each).sum()) for each in sign]
        kept = vectors[:, np.argsort(alike, kind="stable")].T @ kept
    return [(kept @ matrix @ kept.T, kept @ line, constant) for matrix, line, constant in found]


def _root(cov: np.ndarray) -> np.ndarray:
    sd = np.sqrt(np.diag(cov))
    known = np.where(sd > 0.0, sd, 1.0)
    values, vectors = np.linalg.eigh(cov / np.outer(known, known))
    values = np.where(values > 1e-14 * max(values.max(), 0.0), values, 0.0)
    return known[:, None] * vectors * np.sqrt(values) * (sd > 0.0)[:, None]


def _solve(asked: list[_Polynomials], size: int) -> np.ndarray:
    count = len(asked[0].constant)
    if size == 0:
        return np.all([inside(one.constant, one.ranges, np.arange(count)) for one in asked], axis=0).astype(float)
    if size == 1:
        return _along([(a.matrix[:, 0, 0], a.line[:, 0], a.constant, a.ranges) for a in asked])
    if size == 2:
        return _plane(asked)
    if size == 3:
        return _solid(asked)
    raise ValueError("only up to three dimensions are integrated here: compare with draws instead")


def _along(parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, list[Range]]]) -> np.ndarray:
    """The probability of ``curve z^2 + slope z + constant`` in ranges, all together, for a standard normal ``z``."""
    cuts = []
    for curve, slope, constant, ranges in parts:
        for end in (end for each in ranges for end in each[:2]):
            if np.isfinite(end).any():
                cuts += _quadratic_roots(curve, slope, constant - end)
    edges = np.sort(np.clip(np.nan_to_num(np.array(cuts), nan=40.0), -40.0, 40.0), axis=0)
    count = len(parts[0][0])
    edges = np.concatenate([np.full((1, count), -40.0), edges, np.full((1, count), 40.0)])
    low, high = edges[:-1], edges[1:]
    middle = 0.5 * (low + high)
    holds: Any = True
    for curve, slope, constant, ranges in parts:
        holds = holds & inside(curve * middle * middle + slope * middle + constant, ranges, slice(None))
    flip = low > 0.0
    mass = special.ndtr(np.where(flip, -low, high)) - special.ndtr(np.where(flip, -high, low))
    return np.where(holds, mass, 0.0).sum(axis=0)


def _quadratic_roots(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        under = b * b - 4.0 * a * c
        under = np.where(np.abs(under) < 1e-14 * (b * b + np.abs(4.0 * a * c)), 0.0, under)  # a double root, rounded
        q = -0.5 * (b + np.copysign(np.sqrt(under), b))
        return [q / a, c / q]


def _crossings(one: Sequence[np.ndarray], two: Sequence[np.ndarray]) -> np.ndarray:
    """The first coordinate of where two borders cross: zeros of the determinant that two quadratics have when they
    share a root (Sylvester's), found by its values at nine places; NaN where there are less than four."""
    places = np.cos(np.pi * (np.arange(9) + 0.5) / 9)
    found = np.full((one[0].shape[1], 4), np.nan)
    for k in range(len(found)):
        (a, b, c), (d, e, f) = (
            [np.polynomial.polynomial.polyval(_REACH * places, x[:, k]) for x in y] for y in (one, two)
        )
        rows = [[a, b, c, 0 * a], [0 * a, a, b, c], [d, e, f, 0 * a], [0 * a, d, e, f]]
        values = np.linalg.det(np.array(rows).transpose(2, 0, 1))
        if not np.isfinite(values).all() or not values.any():
            continue
        roots = np.polynomial.chebyshev.chebroots(np.polynomial.chebyshev.chebfit(places, values, 4))
        real = roots.real[np.abs(roots.imag) < 1e-6]
        found[k, : len(real)] = _REACH * real
    return found


def _plane(asked: list[_Polynomials], panels: int = 12, enough: float = 1e-15) -> np.ndarray:
    """Two that matter: the second in closed form, given the first."""
    count = len(asked[0].constant)
    marks = [np.linspace(-_REACH, _REACH, panels + 1)[:, None] + np.zeros(count)]
    lines: list[Any] = []
    borders: list[Any] = []
    for a in asked:
        for end in (end for each in a.ranges for end in each[:2]):
            if not np.isfinite(end).any():
                continue
            c00, c01, c11 = a.matrix[:, 0, 0], a.matrix[:, 0, 1], a.matrix[:, 1, 1]
            for z in (-_REACH, -5.0, -2.0, 0.0, 2.0, 5.0, _REACH):
                marks.append(
                    _quadratic_roots(c00, a.line[:, 0] + 2 * c01 * z, a.constant - end + a.line[:, 1] * z + c11 * z * z)
                )
            # where the number of roots in the second changes
            b0, b1, rest = a.line[:, 0], a.line[:, 1], a.constant - end
            marks.append(
                _quadratic_roots(4 * c01 * c01 - 4 * c11 * c00, 4 * c01 * b1 - 4 * c11 * b0, b1 * b1 - 4 * c11 * rest)
            )
            lines.append((b0, b1, rest))
            borders.append(
                (a, np.array([c11, 0 * c11]), np.array([b1, 2 * c01]), np.array([a.constant - end, b0, c00]))
            )
    for one, two in itertools.combinations(lines, 2):  # where two straight borders cross
        with np.errstate(all="ignore"):
            marks.append([(one[1] * two[2] - two[1] * one[2]) / (one[0] * two[1] - two[0] * one[1])])
    for (one, *mine), (two, *yours) in itertools.combinations(borders, 2):
        if one is not two:
            marks.append(_crossings(mine, yours).T)
    edges = np.concatenate([np.atleast_2d(np.array(each)) for each in marks])
    edges = np.sort(np.clip(np.nan_to_num(edges, nan=_REACH), -_REACH, _REACH), axis=0)
    low, high = edges[:-1].T, edges[1:].T
    problem = np.broadcast_to(np.arange(count)[:, None], low.shape)
    real = high - low > 1e-14

    def density(which: np.ndarray, z: np.ndarray) -> np.ndarray:
        parts = []
        for a in asked:
            matrix, line = a.matrix[which], a.line[which]
            parts.append(
                (
                    matrix[:, 1, 1],
                    line[:, 1] + 2.0 * matrix[:, 0, 1] * z,
                    a.constant[which] + line[:, 0] * z + matrix[:, 0, 0] * z * z,
                    [(x[0][which], x[1][which], *x[2:]) for x in a.ranges],
                )
            )
        return np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * _along(parts)

    # borders that cross make corners, which one halving may miss by chance
    return halved(density, problem[real], low[real], high[real], count, enough, twice=len(asked) > 1)


def halved(
    density: Callable[[np.ndarray, np.ndarray], np.ndarray],
    problem: np.ndarray, low: np.ndarray, high: np.ndarray, count: int, enough: float = 1e-15, most: int = 1_000_000,
    twice: bool = False,
) -> np.ndarray:  # fmt: skip
    """Integrals of many problems at once: panels are halved until that changes nothing, if asked for twice in a row."""

    def integral(which: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        middle, half = 0.5 * (a + b), 0.5 * (b - a)
        z = middle[:, None] + half[:, None] * _NODES
        values = density(np.repeat(which, len(_NODES)), z.ravel()).reshape(z.shape)
        return half * (values @ _WEIGHTS)

    found = np.zeros(count)
    whole = integral(problem, low, high)
    before = np.full(len(problem), not twice)
    for _ in range(50):
        if not len(problem) or len(problem) > most:  # what is left is rounding
            break
        middle = 0.5 * (low + high)
        left, right = integral(problem, low, middle), integral(problem, middle, high)
        fine = np.abs(whole - left - right) <= enough + 1e-13 * np.abs(left + right)
        same, fine = fine, fine & before
        np.add.at(found, problem[fine], (left + right)[fine])
        open_ = ~fine
        before = np.tile((same | (not twice))[open_], 2)
        problem, whole = np.tile(problem[open_], 2), np.concatenate([left[open_], right[open_]])
        low, high = (
            np.concatenate([low[open_], middle[open_]]),
            np.concatenate([middle[open_], high[open_]]),
        )
    np.add.at(found, problem, whole)
    return found


def _solid(asked: list[_Polynomials]) -> np.ndarray:
    """Three that matter: two as before, for each node of the first, on panels that end where a section vanishes."""
    count = len(asked[0].constant)
    marks = [np.linspace(-7.5, 7.5, 7)[:, None] + np.zeros(count)]
    for a in asked:
        inner, mixed = a.matrix[:, 1:, 1:], a.matrix[:, 0, 1:]
        bent = np.abs(np.linalg.det(inner)) > 1e-12 * np.abs(inner).max(axis=(1, 2)) ** 2
        inverse = np.linalg.inv(np.where(bent[:, None, None], inner, np.eye(2)))
        for end in (end for each in a.ranges for end in each[:2]):
            if np.isfinite(end).any() and bent.any():
                product = [
                    np.einsum("ni,nij,nj->n", u, inverse, v)
                    for u, v in ((mixed, mixed), (mixed, a.line[:, 1:]), (a.line[:, 1:], a.line[:, 1:]))
                ]
                roots = _quadratic_roots(
                    a.matrix[:, 0, 0] - product[0], a.line[:, 0] - product[1], a.constant - end - 0.25 * product[2]
                )
                marks.append(np.where(bent, roots, 7.5))
    edges = np.sort(np.clip(np.nan_to_num(np.concatenate(marks), nan=7.5), -7.5, 7.5), axis=0)
    half, middle = 0.5 * np.diff(edges, axis=0), 0.5 * (edges[:-1] + edges[1:])
    first = (middle[:, :, None] + half[:, :, None] * _NODES).transpose(1, 0, 2)
    weight = (half[:, :, None] * _WEIGHTS).transpose(1, 0, 2)
    weight = weight * np.exp(-0.5 * first**2) / math.sqrt(2.0 * math.pi)
    real = weight > 1e-13
    which = np.broadcast_to(np.arange(count)[:, None, None], first.shape)[real]
    z = first[real]
    given = [
        _Polynomials(
            a.matrix[which, 1:, 1:],
            a.line[which, 1:] + 2.0 * a.matrix[which, 0, 1:] * z[:, None],
            a.constant[which] + a.line[which, 0] * z + a.matrix[which, 0, 0] * z**2,
            [(x[0][which], x[1][which], *x[2:]) for x in a.ranges],
        )
        for a in asked
    ]
    found = np.zeros(count)
    np.add.at(found, which, weight[real] * _plane(given, 4, 1e-11))
    return found


# ---------------------------------------------------------------------------------------------------------------
# Distances


def distances(columns: Mapping[str, Sequence[Any]], near: Near) -> np.ndarray:
    """How likely points are near each other: samples are counted, normals integrated."""
    pairs = list(zip(columns[near.one], columns[near.other], strict=True))
    found = np.zeros(len(pairs))
    owner, weight, pieces = [], [], []
    for row, (one, other) in enumerate(pairs):
        if isinstance(one, Cloud) and isinstance(other, Cloud):
            found[row] = counted_distance(one, other, at(near.limit, row), near.closed)
            continue
        for (w1, m1, c1), (w2, m2, c2) in itertools.product(normal_parts(one), normal_parts(other)):
            owner.append(row)
            weight.append(w1 * w2)
            pieces.append(NormalND(m1 - m2, c1 + c2))
    if pieces:
        limit = np.array([at(near.limit, row) for row in owner])
        square = np.where(limit >= 0.0, limit * limit, -1.0)
        squares = tuple((("d", k), ("d", k), 1.0) for k in range(len(pieces[0].mean)))
        chance = normals({"d": pieces}, [Ask((), squares, ((-math.inf, square, True, near.closed),))])
        np.add.at(found, owner, np.multiply(weight, chance))
    return 1.0 - found if near.beyond else found


def counted_distance(one: Cloud, other: Cloud, limit: float, closed: bool) -> Fraction:
    """The share of pairs of samples that are near, in fractions of the numbers as they are."""

    def split(cloud: Cloud) -> tuple[list[list[Fraction]], list[Fraction]]:
        points = [[Fraction(float(x)) for x in point] for point in cloud.points]
        weights = [Fraction(1)] * len(points) if cloud.probs is None else [Fraction(float(p)) for p in cloud.probs]
        return points, weights

    (points, weights), (others, more) = split(one), split(other)
    square, total = Fraction(limit) ** 2, Fraction(0)
    for (p, v), (q, w) in itertools.product(zip(points, weights, strict=True), zip(others, more, strict=True)):
        away = sum((a - b) ** 2 for a, b in zip(p, q, strict=True))
        if limit >= 0 and (away <= square if closed else away < square):
            total += v * w
    return total / (sum(weights) * sum(more))


# ---------------------------------------------------------------------------------------------------------------
# Values that are tied to one by differences


def law_parts(value: oracle.Value) -> tuple[list[tuple[float, float]], list[tuple[float, float, float, float, float]]]:
    """Atoms (weight, place), and pieces (weight, mean, sd, low, high): a uniform one has an infinite sd."""
    atoms: list[tuple[float, float]] = []
    pieces: list[tuple[float, float, float, float, float]] = []

    def normal(w: float, mean: float, sd: float, low: float = -math.inf, high: float = math.inf) -> None:
        if sd == 0.0 or low == high:
            atoms.append((w, min(max(mean, low), high)))
        else:
            pieces.append((w, mean, sd, low, high))

    match value:
        case oracle.Point(v):
            atoms.append((1.0, float(v)))
        case oracle.Uniform(lo, hi):
            normal(1.0, lo, math.inf, lo, hi)
        case oracle.Normal(mean, sd):
            normal(1.0, mean, sd)
        case oracle.Truncated(mean, sd, lo, hi):
            normal(1.0, mean, sd, lo, hi)
        case oracle.NormalMixture(weights, means, sds):
            for w, mean, sd in zip(weights, means, sds, strict=True):
                normal(w / sum(weights), mean, sd)
        case oracle.Hist(edges, probs):
            for w, (lo, hi) in zip(probs, pairwise(edges), strict=True):
                normal(w / sum(probs), lo, math.inf, lo, hi)
        case oracle.Discrete(points, probs):
            weights = probs or [1.0] * len(points)
            atoms += [(w / sum(weights), float(x)) for w, x in zip(weights, points, strict=True)]
        case _:
            raise ValueError(value)
    return atoms, pieces


def _mass(piece: tuple[float, float, float, float, float], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    _, mean, sd, lo, hi = piece
    low, high = np.clip(low, lo, hi), np.clip(high, lo, hi)
    if math.isinf(sd):
        return np.maximum(0.0, high - low) / (hi - lo)

    def between(a: Any, b: Any) -> Any:
        u, v = (a - mean) / sd, (b - mean) / sd
        return np.where(u > 0, special.ndtr(-u) - special.ndtr(-v), special.ndtr(v) - special.ndtr(u))

    return np.maximum(0.0, between(low, high)) / between(lo, hi)


def star(centre: oracle.Value, own: Sequence[Range], leaves: Sequence[tuple[oracle.Value, Sequence[Range]]]) -> float:
    """``centre`` lies in its own ranges, and ``centre - leaf`` in those of each leaf: all together."""
    split = [(law_parts(leaf), ranges) for leaf, ranges in leaves]

    def through(x: np.ndarray) -> np.ndarray:
        found = inside(x, own).astype(float)
        for (atoms, pieces), ranges in split:
            share: Any = 0.0
            for weight, place in atoms:
                share = share + weight * inside(x - place, ranges)
            for piece in pieces:
                for low, high, _, _ in ranges:
                    share = share + piece[0] * _mass(piece, x - high, x - low)
            found = found * share
        return found

    atoms, pieces = law_parts(centre)
    total = float(sum(weight * through(np.array([place]))[0] for weight, place in atoms))
    ends = [end for low, high, _, _ in own for end in (low, high)]
    for (points, laws), ranges in split:
        corners = [place for _, place in points]
        for _, mean, sd, lo, hi in laws:
            corners += [lo, hi]
            if math.isfinite(sd):
                corners += [mean + k * sd for k in (-9, -6, -4, -2, -1, 0, 1, 2, 4, 6, 9)]
        ends += [corner + end for corner in corners for low, high, _, _ in ranges for end in (low, high)]
    for weight, mean, sd, lo, hi in pieces:
        if math.isfinite(sd):
            first, last = max(lo, mean - _REACH * sd), min(hi, mean + _REACH * sd)
            if first >= last:
                first, last = lo, hi
            steps = [mean + k * sd for k in range(-9, 10)]
        else:
            first, last, steps = lo, hi, []
        cuts = sorted({first, last, *(float(end) for end in [*ends, *steps] if first < end < last)})
        low, high = np.array(cuts[:-1]), np.array(cuts[1:])
        whole = (
            _mass((1.0, mean, sd, -math.inf, math.inf), np.array(lo), np.array(hi)) if math.isfinite(sd) else hi - lo
        )

        def density(_: np.ndarray, x: np.ndarray, mean=mean, sd=sd, whole=whole) -> np.ndarray:
            z = (x - mean) / sd
            height = np.exp(-0.5 * z * z) / (sd * math.sqrt(2.0 * math.pi)) if math.isfinite(sd) else 1.0
            return height / whole * through(x)

        total += weight * float(halved(density, np.zeros(len(low), int), low, high, 1, 1e-14, 1000)[0])
    return total


# ---------------------------------------------------------------------------------------------------------------
# Draws and counts


def draws(value: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random numbers, or points, of a value of any kind."""
    if isinstance(value, (NormalND, MixtureND, Cloud)):
        parts = normal_parts(value)
        chosen = rng.choice(len(parts), count, p=[part[0] for part in parts])
        means, roots = np.array([part[1] for part in parts]), np.array([_root(part[2]) for part in parts])
        noise = rng.normal(size=(count, means.shape[1]))
        return means[chosen] + np.einsum("nij,nj->ni", roots[chosen], noise)
    atoms, pieces = law_parts(value)
    weights = np.array([each[0] for each in [*atoms, *pieces]])
    sizes = rng.multinomial(count, weights / weights.sum())
    found = [np.full(n, place) for n, (_, place) in zip(sizes, atoms, strict=False)]
    for n, (_, mean, sd, lo, hi) in zip(sizes[len(atoms) :], pieces, strict=True):
        if math.isinf(sd):
            found.append(rng.uniform(lo, hi, n))
            continue
        ends = special.ndtr((lo - mean) / sd), special.ndtr((hi - mean) / sd)
        found.append(np.clip(mean + sd * special.ndtri(rng.uniform(*ends, n)), lo, hi))
    return rng.permutation(np.concatenate(found))


def frequencies(
    columns: Mapping[str, Sequence[Any]], holds: Callable[[Mapping[str, np.ndarray], int], np.ndarray],
    count: int, rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """How often something holds among the draws of each row: one row of a table is one draw of each column."""
    rows = len(next(iter(columns.values())))
    found = np.empty(rows)
    for row in range(rows):
        drawn = {name: draws(values[row], count, rng) for name, values in columns.items()}
        found[row] = np.mean(holds(drawn, row))
    return found


def all_hold(asks: Sequence[Ask | Near]) -> Callable[[Mapping[str, np.ndarray], int], np.ndarray]:
    """Everything that is asked, as `frequencies` takes it."""
    return lambda drawn, row: np.logical_and.reduce([ask.holds(drawn, row) for ask in asks])


def assert_frequencies(probability: np.ndarray, frequency: np.ndarray, count: int) -> None:
    """Each frequency is one that the probability makes likely, and so are all of them together.

    A right answer fails by chance about once in a million times.
    """
    p = np.clip(probability, 0.0, 1.0)
    error = np.sqrt(np.maximum(p * (1.0 - p), 1.0 / count) / count)
    z = (frequency - p) / error
    assert np.abs(z).max() < 7.0, f"row {np.abs(z).argmax()}: {p[np.abs(z).argmax()]}, {frequency[np.abs(z).argmax()]}"
    assert abs(z.sum()) / math.sqrt(len(z)) < 5.0, f"all rows lean to one side: {z.mean()}"


def enumerated(
    columns: Mapping[str, oracle.Discrete], holds: Callable[[Mapping[str, np.ndarray], int], np.ndarray], row: int = 0
) -> Fraction:
    """The share of combinations of samples for which something holds."""
    names = list(columns)
    total, whole = Fraction(0), Fraction(0)
    weighted = [
        list(zip(value.points, value.probs or [1] * len(value.points), strict=True)) for value in columns.values()
    ]
    combinations = list(itertools.product(*weighted))
    drawn = {name: np.array([float(c[k][0]) for c in combinations]) for k, name in enumerate(names)}
    for combination, good in zip(combinations, holds(drawn, row), strict=True):
        weight = math.prod((Fraction(w) for _, w in combination), start=Fraction(1))
        whole += weight
        total += weight if good else 0
    return total / whole
