"""Integrate over pieces between corners, which are halved until a rule of 16 nodes is exact enough.

A stack holds the pieces that are not integrated yet: from where to where they go, and the turn beside each or infinity.
A turn is a place towards which the integrand changes like a square root, as where the two roots of a border meet.
"""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.jit import bare
from haply.numerics.normal import NODE_WEIGHTS, NODES

PIECES = 64
"""Pieces that a stack has room for."""


def _rule() -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss's nodes in -1..1, a middle one and the outermost first, and for each the factors of five sums.

    The sums are the integral, and the coefficients of Legendre's polynomials of degrees 12, 13, 6 and 7.
    """
    shares = [(k + 0.5) * NODE_WEIGHTS * np.polynomial.Legendre.basis(k)(NODES) for k in (12, 13, 6, 7)]
    order = [8, 0, 15, *range(1, 8), *range(9, 15)]
    return NODES[order], np.ascontiguousarray(np.array([NODE_WEIGHTS, *shares])[:, order])


PLACES, SUMS = _rule()


@bare
def error_of(sums):
    """Estimate the error of the rule, which misses degrees from 32 on.

    Where the integrand is smooth, its coefficients fall geometrically with the degree, as from 7 to 13. Where a root
    lies just beyond the piece they fall more slowly later on; at an unmarked corner they hardly fall at all.
    """
    miss, low = max(abs(sums[1]), abs(sums[2])), max(abs(sums[3]), abs(sums[4]))
    return miss * math.sqrt(min(1.0, miss / low)) if low > 0.0 else miss


@bare
def place_of(left, right, turn, x):
    """Return the place in a piece for a node in -1..1, and its derivative.

    The map is linear, or, beside a turn, quadratic in the distance from it.
    """
    if turn == math.inf:
        return 0.5 * (left + right) + 0.5 * (right - left) * x, 0.5 * (right - left)
    near, far = (left, right) if turn <= left else (right, left)
    low, high = math.sqrt(abs(near - turn)), math.sqrt(abs(far - turn))
    root = 0.5 * (low + high) + 0.5 * (high - low) * x
    return turn + math.copysign(root * root, far - turn), root * (high - low)


@bare
def begin_pieces(stack, left, right, panel, turns, count):
    """Cut the range between two corners into pieces no longer than a panel, and return how many.

    The outer ones get the nearest turn beyond, if it is no further off than the range is long: the two roots of a
    border meet at its turn like a square root, even if something else bounds the region before it.
    """
    before, after, slack = -math.inf, math.inf, 4e-10 * panel
    for k in range(count):
        if turns[k] <= left + slack:
            before = max(before, min(turns[k], left))
        elif turns[k] >= right - slack:
            after = min(after, max(turns[k], right))
    near = right - left
    bends_left, bends_right = left - before < near, after - right < near
    pieces = max(math.ceil(near / panel), 2 if bends_left and bends_right else 1)
    pieces = min(pieces, len(stack) // 2)
    for k in range(pieces):
        stack[k, 0] = left + near * (k / pieces)
        stack[k, 1] = left + near * ((k + 1) / pieces) if k < pieces - 1 else right
        stack[k, 2] = math.inf
    if bends_left:
        stack[0, 2] = before
    if bends_right:
        stack[pieces - 1, 2] = after
    return pieces


@bare
def halve(stack, size):
    """Replace the piece on top of the stack by its halves; return the new size."""
    left, right, turn = stack[size, 0], stack[size, 1], stack[size, 2]
    middle = 0.5 * (left + right)
    stack[size, 0], stack[size, 1], stack[size, 2] = middle, right, turn
    stack[size + 1, 0], stack[size + 1, 1], stack[size + 1, 2] = left, middle, turn
    return size + 2
