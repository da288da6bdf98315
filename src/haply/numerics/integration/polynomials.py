"""Find roots of polynomials, and where two borders that are given by polynomials of two values cross.

A border is six factors ``a, e, f, g, h, k``: it is where ``a v^2 + (e u + f) v + g u^2 + h u + k`` is 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare

_TOUCHES = 1e-10
"""A polynomial touches zero at an extreme value below this share of its terms."""
_CANCELLED = 1e-9
"""A difference below this share of its terms has lost too many digits to divide by it."""


class Quartic(NamedTuple):
    """A polynomial of degree four, lowest factor first, the places that were found in it, and arrays to work in."""

    factors: np.ndarray
    found: np.ndarray
    derived: np.ndarray
    more: np.ndarray


def quartic_room() -> Quartic:
    """Make arrays for one polynomial after the other."""
    return Quartic(np.empty(5), np.empty(5), np.empty(5), np.empty(5))


@bare
def quadratic_roots(a, b, c, touch):
    """Return how many real roots ``a x^2 + b x + c`` has, and both: they are one if they differ by less than ``touch``.

    ``touch`` is a share of the terms that they are computed from.
    """
    if a == 0.0:
        return (0, 0.0, 0.0) if b == 0.0 else (1, -c / b, 0.0)
    inside, size = b * b - 4.0 * a * c, b * b + abs(4.0 * a * c)
    if inside < -touch * size:
        return 0, 0.0, 0.0
    root = math.sqrt(inside) if inside > touch * size else 0.0
    q = -0.5 * (b + math.copysign(root, b))
    return (1, q / a, 0.0) if q == 0.0 else (2, q / a, c / q)


@bare
def _value(factors, degree, x):
    total = factors[degree]
    for k in range(degree - 1, -1, -1):
        total = total * x + factors[k]
    return total


@bare
def _between_signs(factors, degree, left, right, low_side, unit):
    """Return the root between two places of different sign by Newton's steps, halving where these leave the bracket."""
    x = 0.5 * (left + right)
    for _ in range(80):
        value, slope = factors[degree], 0.0
        for k in range(degree - 1, -1, -1):
            slope = slope * x + value
            value = value * x + factors[k]
        if (value < 0.0) == (low_side < 0.0):
            left = x
        else:
            right = x
        following = x - value / slope if slope != 0.0 else left
        if not left < following < right:
            following = 0.5 * (left + right)
        if abs(following - x) <= 1e-13 * (unit + abs(x)):
            return following
        x = following
    return x


@bare
def quartic_roots(quartic, low, high):
    """Find real roots between two places, in order, and where the polynomial almost touches zero; return how many.

    Between two roots of its derivative a polynomial has at most one root; those of the derivative are found likewise.
    """
    found, derived, count, unit = quartic.found, quartic.derived, 0, 0.01 * (high - low)
    for level in range(3, -1, -1):
        degree = 4 - level
        for k in range(degree + 1):
            derived[k] = quartic.factors[k + level]
            for j in range(k + 1, k + level + 1):
                derived[k] *= j
        new, left = 0, low
        low_side = _value(derived, degree, left)
        for k in range(count + 1):
            right = found[k] if k < count else high
            high_side = _value(derived, degree, right)
            if (low_side < 0.0) != (high_side < 0.0):
                quartic.more[new] = _between_signs(derived, degree, left, right, low_side, unit)
                new += 1
            elif k < count:
                size = 0.0
                for j in range(degree, -1, -1):
                    size = size * abs(right) + abs(derived[j])
                if abs(high_side) <= _TOUCHES * size:
                    quartic.more[new] = right
                    new += 1
            left, low_side = right, high_side
        count = new
        for k in range(count):
            found[k] = quartic.more[k]
    return count


@bare
def crossings(one, other, quartic, low, high):
    """Find each ``u`` between two places at which two borders cross for some ``v``; return how many.

    They are the roots of the resultant of both quadratics in ``v``. Not all of them are where borders cross: ``v`` may
    not be real, or lie beyond what is asked for.
    """
    a1, e1, f1, g1, h1, k1 = one[0], one[1], one[2], one[3], one[4], one[5]
    a2, e2, f2, g2, h2, k2 = other[0], other[1], other[2], other[3], other[4], other[5]
    factors = quartic.factors
    # the combination of both without v^2 is l v + p, and that without a constant is v (p v + m): p^2 = l m
    p2, p1, p0 = a1 * g2 - a2 * g1, a1 * h2 - a2 * h1, a1 * k2 - a2 * k1
    l1, l0 = a1 * e2 - a2 * e1, a1 * f2 - a2 * f1
    m3, m2 = e1 * g2 - e2 * g1, e1 * h2 - e2 * h1 + f1 * g2 - f2 * g1
    m1, m0 = e1 * k2 - e2 * k1 + f1 * h2 - f2 * h1, f1 * k2 - f2 * k1
    if a1 == 0.0 and a2 == 0.0:
        factors[0], factors[1], factors[2], factors[3], factors[4] = m0, m1, m2, m3, 0.0
    else:
        factors[0] = p0 * p0 - l0 * m0
        factors[1] = 2.0 * p0 * p1 - l0 * m1 - l1 * m0
        factors[2] = p1 * p1 + 2.0 * p0 * p2 - l0 * m2 - l1 * m1
        factors[3] = 2.0 * p1 * p2 - l0 * m3 - l1 * m2
        factors[4] = p2 * p2 - l1 * m3
    return quartic_roots(quartic, low, high)


@bare
def common_root(one, other, u):
    """Return the ``v`` at which two borders cross, given ``u``; not a number if rounding does not tell it.

    That is so where both have the same two roots: they cross at each of them, or at none.
    """
    a1, a2 = one[0], other[0]
    line1, line2 = one[1] * u + one[2], other[1] * u + other[2]
    rest1, rest2 = (one[3] * u + one[4]) * u + one[5], (other[3] * u + other[4]) * u + other[5]
    size1, size2 = abs(one[1] * u) + abs(one[2]), abs(other[1] * u) + abs(other[2])
    if a1 == 0.0 and a2 == 0.0:
        digits1, digits2 = abs(line1) / size1 if size1 > 0.0 else 0.0, abs(line2) / size2 if size2 > 0.0 else 0.0
        if max(digits1, digits2) <= _CANCELLED:
            return math.nan
        return -rest1 / line1 if digits1 >= digits2 else -rest2 / line2
    bottom = a1 * line2 - a2 * line1
    if abs(bottom) <= _CANCELLED * (abs(a1) * size2 + abs(a2) * size1):
        return math.nan
    return (a2 * rest1 - a1 * rest2) / bottom


@bare
def append_roots(a, b, c, found, count):
    """Append the real roots of ``a x^2 + b x + c`` to a list, if it has room for them; return the new count."""
    roots, one, other = quadratic_roots(a, b, c, 0.0)
    if count + roots > len(found):
        return count
    if roots > 0:
        found[count] = one
    if roots > 1:
        found[count + 1] = other
    return count + roots


@bare
def keep_between(values, count, low, high):
    """Keep the values between two numbers, sorted; return how many there are."""
    kept = 0
    for k in range(count):
        value, j = values[k], kept
        if not low < value < high:
            continue
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
        kept += 1
    return kept
