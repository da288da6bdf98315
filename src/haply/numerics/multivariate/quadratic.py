"""Quadratic forms of normal variables: their canonical form, and the probability that they are below a limit.

A form is kept as ``Q = constant + sum(curve[j] * Z[j]**2 + 2 * slope[j] * Z[j])`` with independent standard normal
``Z``. It is the usual ``sum(weight * (Z + shift)**2)`` with ``slope = weight * shift``, but a weight may go to zero
without a factor that grows: singular covariances and flat directions are no special case.

The probability is the inversion integral of the Laplace transform, taken along a hyperbola through the saddle point
(Helstrom 1983 and Rice 1980 integrate along such lines; the textbook line is Imhof's). The integrand is largest at the
saddle point, where it is about as large as the answer, so that far tails keep their relative accuracy; the trapezoidal
rule gains twice the digits with each halving of its step. One method serves every sign, dimension, shift and spread.
"""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.jit import bare, kernel
from haply.numerics.normal import normal_between, normal_cdf

SINGULAR = 2.0**-49
"""A conditional variance below this share of the variance is rounding, and counts as zero."""
FLAT = 1e-15
"""A curve this small beside the largest counts as zero: the form is straight there to all digits."""
SLANT = 0.5
"""The slope of the hyperbola away from the vertical: well inside the cone in which a normal's transform decreases."""
AGREE = 1e-12
"""When two steps of the trapezoidal rule agree to this, the smaller one is right to rounding: in tests halving reduced
an error of 2e-10 to 4e-14 at worst, and mostly to its square."""
FINEST = 11


_ROUGH = 1e-11
"""A probability with a larger error is computed again by another method (see ``form_rows``)."""
_MEAN_NODES, _MEAN_WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
_MEAN_WEIGHTS /= math.sqrt(2.0 * math.pi)


@bare
def factor(cov, root, left, used):
    """Compute the factor ``root`` of a covariance, ``cov = root @ root.T``, by Cholesky's method on the correlations.

    Pivots are taken in order of the largest share of variance left, and stop where only rounding is left, so that
    singular covariances have columns of zeros at the end. ``used[k]`` is the pivot of column k. Returns the rank.
    """
    dim = len(left)
    root[:, :] = 0.0
    for i in range(dim):
        left[i] = 1.0 if cov[i, i] > 0.0 else 0.0
    for k in range(dim):
        pivot = 0
        for i in range(1, dim):
            if left[i] > left[pivot]:
                pivot = i
        if not left[pivot] > SINGULAR:
            return k
        used[k] = pivot
        depth = math.sqrt(left[pivot])
        own = math.sqrt(cov[pivot, pivot])
        for i in range(dim):
            if left[i] <= 0.0 and i != pivot:
                continue
            if i == pivot:
                root[i, k] = depth
                continue
            inner = cov[i, pivot] / (own * math.sqrt(cov[i, i]))
            for m in range(k):
                inner -= root[i, m] * root[pivot, m]
            root[i, k] = inner / depth
            left[i] = max(0.0, left[i] - root[i, k] * root[i, k])
        left[pivot] = 0.0
        for i in range(dim):  # a pivot's row is complete; later columns must not touch it
            if i == pivot:
                for m in range(k + 1, dim):
                    root[i, m] = 0.0
    return dim


@bare
def unscale(cov, root):
    """Turn the factor of the correlations into that of the covariance."""
    for i in range(len(root)):
        sd = math.sqrt(max(0.0, cov[i, i]))
        for k in range(root.shape[1]):
            root[i, k] *= sd


@bare
def _root_rows(covs, roots, left, used):
    for i in range(len(covs)):
        factor(covs[i], roots[i], left, used)
        unscale(covs[i], roots[i])


def root_rows(covs: np.ndarray) -> np.ndarray:
    """Return the factors ``root`` of covariances, ``cov = root @ root.T``; see ``factor``."""
    dim = covs.shape[-1]
    roots = np.empty(covs.shape)
    _root_rows(covs, roots, np.empty(dim), np.empty(dim, np.int64))
    return roots


@bare
def diagonalise(matrix, vector):
    """Rotate a symmetric matrix to its eigenvalues on the diagonal, and a vector along with it (Jacobi's method).

    Small eigenvalues of a definite matrix come out with as many right digits as large ones.
    """
    dim = len(vector)
    for _ in range(40):
        quiet = True
        for p in range(dim - 1):
            for q in range(p + 1, dim):
                off = matrix[p, q]
                if off == 0.0 or abs(off) <= 1e-17 * math.sqrt(abs(matrix[p, p]) * abs(matrix[q, q])):
                    continue
                if abs(off) < 1e-290:
                    matrix[p, q] = matrix[q, p] = 0.0
                    continue
                quiet = False
                theta = 0.5 * (matrix[q, q] - matrix[p, p]) / off
                t = 1.0 / (abs(theta) + math.sqrt(1.0 + theta * theta))
                if theta < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = t * c
                matrix[p, p] -= t * off
                matrix[q, q] += t * off
                matrix[p, q] = matrix[q, p] = 0.0
                for i in range(dim):
                    if i not in (p, q):
                        a, b = matrix[i, p], matrix[i, q]
                        matrix[i, p] = matrix[p, i] = c * a - s * b
                        matrix[i, q] = matrix[q, i] = s * a + c * b
                a, b = vector[p], vector[q]
                vector[p], vector[q] = c * a - s * b, s * a + c * b
        if quiet:
            return


@bare
def canonical(mean, root, matrix, room, work, curve, slope):
    """Write the form ``x' matrix x`` of ``x = mean + root Z``: fill ``curve`` and ``slope``, return the constant."""
    dim = len(mean)
    constant = 0.0
    for i in range(dim):
        work[i] = 0.0
        for j in range(dim):
            work[i] += matrix[i, j] * mean[j]
        constant += mean[i] * work[i]
    for k in range(dim):
        slope[k] = 0.0
        for i in range(dim):
            slope[k] += root[i, k] * work[i]
    for k in range(dim):
        for i in range(dim):
            work[i] = 0.0
            for j in range(dim):
                work[i] += matrix[i, j] * root[j, k]
        for m in range(k + 1):
            total = 0.0
            for i in range(dim):
                total += root[i, m] * work[i]
            room[k, m] = room[m, k] = total
    diagonalise(room, slope)
    for k in range(dim):
        curve[k] = room[k, k]
    flatten(curve)
    return constant


@bare
def flatten(curve):
    """Set factors to zero that differ from zero only by rounding."""
    largest = 0.0
    for k in range(len(curve)):
        largest = max(largest, abs(curve[k]))
    for k in range(len(curve)):
        if abs(curve[k]) <= FLAT * largest:
            curve[k] = 0.0


@bare
def form_moments(curve, slope):
    """Return mean and variance of a form, without its constant."""
    mean = variance = 0.0
    for j in range(len(curve)):
        mean += curve[j]
        variance += 2.0 * curve[j] * curve[j] + 4.0 * slope[j] * slope[j]
    return mean, variance


@bare
def _lowest(curve, slope, sign):
    """Return the least value of ``sign * Q`` without its constant; minus infinity where there is none."""
    least = 0.0
    for j in range(len(curve)):
        bend = sign * curve[j]
        if bend < 0.0 or (bend == 0.0 and slope[j] != 0.0):
            return -math.inf
        if bend > 0.0:
            least -= slope[j] * slope[j] / bend
    return least


@bare
def tilt_slope(curve, slope, sign, limit, s):
    """Return the first two derivatives by ``s`` of ``s limit + log E exp(-s sign Q)``, a convex function."""
    first, second = limit, 0.0
    for j in range(len(curve)):
        bend, square = sign * curve[j], slope[j] * slope[j]
        w = 1.0 + 2.0 * bend * s
        first += (4.0 * square * s * (1.0 + bend * s) / w - bend) / w
        second += (2.0 * bend * bend + 4.0 * square / w) / (w * w)
    return first, second


@bare
def tilt(curve, slope, sign, limit, s):
    """Return ``s limit + log E exp(-s sign Q)``."""
    total = s * limit
    for j in range(len(curve)):
        bend = sign * curve[j]
        total += 2.0 * slope[j] * slope[j] * s * s / (1.0 + 2.0 * bend * s) - 0.5 * math.log1p(2.0 * bend * s)
    return total


@bare
def saddle(curve, slope, sign, limit, pole):
    """Return the ``s > 0`` at which ``tilt`` (minus ``log s``, if ``pole`` is 1) is least, and the supremum of ``s``.

    It takes Newton's steps inside a bracket; the caller ensures that there is a minimum.
    """
    edge = math.inf
    for j in range(len(curve)):
        if sign * curve[j] < 0.0:
            edge = min(edge, -0.5 / (sign * curve[j]))
    variance = form_moments(curve, slope)[1]
    low, high = 0.0, edge
    s = min(1.0 / math.sqrt(variance), 0.5 * edge)
    for _ in range(200):
        first, second = tilt_slope(curve, slope, sign, limit, s)
        first -= pole / s
        second += pole / (s * s)
        if first > 0.0:
            high = s
        else:
            low = s
        following = s - first / second
        if abs(following - s) <= 1e-9 * s:
            break
        if not (low < following < high):
            following = 0.5 * (low + high) if high < math.inf else 4.0 * s
        elif high == math.inf and following > 8.0 * s:
            following = 8.0 * s
        elif low == 0.0 and following < 0.125 * s:
            following = 0.125 * s
        s = following
    return s, edge


@bare
def _integrand(curve, slope, sign, s, x, y):
    """Return the integrand at ``s + x + iy`` over that at ``s``, as ``exp(real + i imaginary) * (top + i side)``.

    The exponent's part of first order vanishes at the saddle point. It is left out by algebra, as it would cancel in
    digits: this keeps forms with large shifts accurate. The other factor holds the pole and the square roots.
    """
    ratio, tall = 1.0 + x / s, y / s
    size = ratio * ratio + tall * tall
    top, side = ratio / size, -tall / size
    real, imaginary = x / s, tall
    across, along = x * x - y * y, 2.0 * x * y
    for j in range(len(curve)):
        bend = sign * curve[j]
        w = 1.0 + 2.0 * bend * s
        step = bend / w
        real += step * x
        imaginary += step * y
        a, b = 1.0 + 2.0 * step * x, 2.0 * step * y
        size = a * a + b * b
        if slope[j] != 0.0:
            pull = 2.0 * slope[j] * slope[j] / (w * w * w * size)
            real += pull * (across * a + along * b)
            imaginary += pull * (along * a - across * b)
        if bend != 0.0:
            size = math.sqrt(size)
            # the root of a + ib; for negative a, the real part follows from the imaginary one, which does not cancel
            if a >= 0.0:
                c = math.sqrt(0.5 * (size + a))
                d = 0.5 * b / c
            else:
                d = math.copysign(math.sqrt(0.5 * (size - a)), b)
                c = 0.5 * b / d
            top, side = (top * c + side * d) / size, (side * c - top * d) / size
    return real, imaginary, top, side


@bare
def _along(curve, slope, sign, s, residue, width, slant, radius, start, step):
    """Return the sum of the integrand at ``t = start, start + step, ...`` on the hyperbola, and its largest size.

    ``y = width sinh(t)`` and ``x = slant (sqrt(y**2 + radius**2) - radius)``; the size at the saddle point is 1.
    """
    total = largest = 0.0
    t, quiet = start, 0
    while quiet < 3 and t < 200.0:
        grow = math.exp(t)
        y, pace = 0.5 * width * (grow - 1.0 / grow), 0.5 * width * (grow + 1.0 / grow)
        away = math.sqrt(y * y + radius * radius)
        x, lean = slant * y * (y / (away + radius)), slant * y / away
        real, imaginary, top, side = _integrand(curve, slope, sign, s, x, y)
        real += residue * x
        imaginary += residue * y
        if real > 40.0:
            return total, math.inf
        size, cosine, sine = math.exp(real), math.cos(imaginary), math.sin(imaginary)
        up, out = cosine * top - sine * side, cosine * side + sine * top
        term = pace * size * (up + out * lean)
        total += term if t > 0.0 else 0.5 * term
        size *= abs(top) + abs(side)
        largest = max(largest, size)
        quiet = quiet + 1 if size * pace < 1e-17 * width else 0
        t += step
    return total, largest


@bare
def _lower_tail(curve, slope, sign, limit):
    """Return ``P(sign Q < limit)`` for a limit up to the mean, and its error."""
    s, edge = saddle(curve, slope, sign, limit, 1.0)
    first, second = tilt_slope(curve, slope, sign, limit, s)
    residue, second = first - 1.0 / s, second + 1.0 / (s * s)
    height = tilt(curve, slope, sign, limit, s) - math.log(s)
    if height < -745.0:
        return 0.0, 0.0
    far, near = limit, math.inf
    for j in range(len(curve)):
        bend = sign * curve[j]
        if bend != 0.0:
            far += slope[j] * slope[j] / bend
        if bend > 0.0:
            near = min(near, 0.5 / bend)
    width = 1.0 / math.sqrt(second)
    best, worst = 0.0, math.inf
    # Far out the integrand is exp(far * s): bend to the side where that decreases. If it grows on the way there, which
    # happens where a curve is tiny beside its slope, bend to the other. Straight up it always decreases, but slowly.
    for attempt in range(3):
        slant = 0.0 if attempt == 2 or far == 0.0 else (-SLANT if (far > 0.0) == (attempt == 0) else SLANT)
        radius = s + min(near, s) if slant <= 0.0 else (edge - s if edge < math.inf else s)
        step, value, largest, error = 1.0, 0.0, 0.0, math.inf
        for level in range(1 + (FINEST if slant == 0.0 else FINEST // 2)):
            first = 0.0 if level == 0 else 0.5 * step
            step = 0.5 if level == 0 else step
            more, size = _along(curve, slope, sign, s, residue, width, slant, radius, first, step)
            largest = max(largest, size)
            if largest > 1e3:
                break
            if level == 0:
                value = more * step
                continue
            finer = 0.5 * (value + more * step)
            step *= 0.5
            error = abs(finer - value) / max(abs(finer), 1e-300)
            value = finer
            if error < AGREE:
                break
        if largest > 1e3:
            continue
        if error < worst:
            best, worst = value, error
        if error < AGREE:
            break
    chance = best * math.exp(height) / math.pi
    if worst == math.inf:
        return 0.5, 0.5
    return max(0.0, chance), chance * (1e-15 * (4.0 + abs(height)) + (0.01 * worst if worst < AGREE else worst))


@bare
def form_chance(curve, slope, limit, closed, upper):
    """Return ``P(Q < limit)``, or ``P(Q > limit)`` if ``upper``, of a form without its constant, and its error.

    With ``closed`` equality counts as well. The smaller of the two probabilities is relatively accurate.
    """
    mean, variance = form_moments(curve, slope)
    if variance == 0.0:
        inside = (limit < 0.0 if upper else limit > 0.0) or (closed and limit == 0.0)
        return (1.0 if inside else 0.0), 0.0
    sign = 1.0 if limit <= mean else -1.0
    alone, count = 0, 0
    for j in range(len(curve)):
        if curve[j] != 0.0 or slope[j] != 0.0:
            alone, count = j, count + 1
    if sign * limit <= _lowest(curve, slope, sign):
        small, error = 0.0, 0.0
    elif count == 1:
        small, error = _below_alone(sign * curve[alone], sign * slope[alone], sign * limit), 1e-15
    else:
        small, error = _lower_tail(curve, slope, sign, sign * limit)
    return (min(1.0, small) if (sign < 0.0) == upper else max(0.0, 1.0 - small)), error


@bare
def _below_alone(curve, slope, limit):
    """Return ``P(curve Z**2 + 2 slope Z < limit)``: ``Z`` is between the roots, or outside of them."""
    if curve == 0.0:
        return normal_cdf(0.5 * limit / abs(slope))
    inside = slope * slope + curve * limit
    if inside <= 0.0:
        return 0.0 if curve > 0.0 else 1.0
    # the root farther from zero by adding terms of one sign, the other from their product -limit / curve
    sum_ = abs(slope) + math.sqrt(inside)
    far, near = -sum_ / curve, limit / sum_
    if curve > 0.0:
        return normal_between(far, near)
    return normal_cdf(near) + normal_cdf(-far)


@kernel
def _form_rows(curves, slopes, limits, closed, upper):
    n = len(limits)
    chance, error = np.empty(n), np.empty(n)
    for i in range(n):
        chance[i], error[i] = form_chance(curves[i], slopes[i], limits[i], closed, upper)
    return chance, error


def form_rows(
    curves: np.ndarray, slopes: np.ndarray, limits: np.ndarray, closed: bool, upper: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``form_chance`` for many forms, and their errors.

    Where one normal is very small beside the others, the integral has a corner too sharp to follow, and a large error.
    Then the mean over that normal of the probability of the others is taken: it hardly changes, so few nodes are
    enough.
    """
    chance, error = _form_rows(curves, slopes, limits, closed, upper)
    rough = np.flatnonzero(error > _ROUGH)
    if not len(rough) or curves.shape[1] < 2:
        return chance, error
    curve, slope = curves[rough], slopes[rough]
    size = np.abs(curve) + np.abs(slope)
    least = np.where(size > 0.0, size, math.inf).argmin(axis=1)
    each = np.arange(len(rough))
    own, along = curve[each, least], slope[each, least]
    others = np.arange(curve.shape[1])[None, :] != least[:, None]
    count, rest = len(_MEAN_NODES), curve.shape[1] - 1
    left = limits[rough][:, None] - own[:, None] * _MEAN_NODES**2 - 2.0 * along[:, None] * _MEAN_NODES
    inner, inner_error = form_rows(
        np.repeat(curve[others].reshape(-1, rest), count, axis=0),
        np.repeat(slope[others].reshape(-1, rest), count, axis=0),
        np.ascontiguousarray(left.ravel()), closed, upper,
    )  # fmt: skip
    chance[rough] = inner.reshape(-1, count) @ _MEAN_WEIGHTS
    error[rough] = inner_error.reshape(-1, count) @ _MEAN_WEIGHTS + 1e-15
    return chance, error


@bare
def _canonical_rows(means, covs, matrices, root, left, used, room, work, curves, slopes, constants):
    each = 1 if len(matrices) > 1 else 0
    for i in range(len(means)):
        factor(covs[i], root, left, used)
        unscale(covs[i], root)
        constants[i] = canonical(means[i], root, matrices[each * i], room, work, curves[i], slopes[i])


def canonical_rows(
    means: np.ndarray, covs: np.ndarray, matrices: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return curves, slopes and constants of many forms; one matrix may serve for all."""
    n, dim = means.shape
    curves, slopes, constants = np.empty((n, dim)), np.empty((n, dim)), np.empty(n)
    square, line, mark = np.empty((2, dim, dim)), np.empty((2, dim)), np.empty(dim, np.int64)
    _canonical_rows(means, covs, matrices, square[0], line[0], mark, square[1], line[1], curves, slopes, constants)
    return curves, slopes, constants
