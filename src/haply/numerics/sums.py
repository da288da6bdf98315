"""The distribution of a sum of independent values of any law, by convolution.

The law of a part of the values is kept as points and a density, which is a polynomial in each of many panels. Panels
end where the density may have a kink: at each sum of the ends of two components. Between kinks it is smooth, and a
panel is halved until its polynomial is right. To add a value to a part, a point moves the density, a uniform component
takes differences of its integral, and a normal one is integrated against it. Of uniform components and points all is
exact but for rounding. The values are in two parts, so that kinks multiply only within each; at last one part's density
is integrated with the other's distribution function, piece by piece, by a rule that is exact for both polynomials.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.components import NORMAL, POINT, UNIFORM, smooth_window
from haply.numerics.jit import kernel
from haply.numerics.normal import cut_pdf

MOST_PANELS = 8192
"""Panels, points and kinks that a part of a sum may have."""
DEGREE = 16
"""Coefficients of a polynomial, and places at which it is found."""
_ENOUGH = 1e-14
"""The largest probability in the last coefficients of a panel: the sum over all panels is then right to 1e-10."""
_MOST_HALVED = 12
"""The most times that a panel is halved."""
_NOTHING = 3e-16
"""Coefficients below this share of the largest one are dropped."""
_NEAR = 1e-3
"""The mass of a shorter share of a panel is integrated: as a difference it would lose digits."""
_SAME = 1e-14
"""Kinks count as one if they differ by less than this share of their size."""


def _rule() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Gauss's nodes and weights, and the matrix from values at the nodes to Legendre coefficients."""
    nodes, weights = np.polynomial.legendre.leggauss(DEGREE)
    shares = [(k + 0.5) * weights * np.polynomial.Legendre.basis(k)(nodes) for k in range(DEGREE)]
    return nodes, weights, np.array(shares)


_X, _W, _SHARES = _rule()


class Addends(NamedTuple):
    """The components of the values of one row, scaled by their factors: value ``v`` has ``start[v]:start[v + 1]``."""

    start: np.ndarray
    kind: np.ndarray
    weight: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    window: np.ndarray
    """From where to where each component has its mass, and the length over which it changes."""


class PartialLaw(NamedTuple):
    """A law: points with their probabilities, and a density as polynomials in panels."""

    size: np.ndarray
    """How many panels there are, and how many points."""
    edges: np.ndarray
    shares: np.ndarray
    """Legendre's coefficients of the density in each panel."""
    terms: np.ndarray
    """The number of coefficients in use in each panel: at least one."""
    below: np.ndarray
    """The mass of all panels before each."""
    points: np.ndarray


@kernel
def _table(most):
    """Return room for a law."""
    return PartialLaw(
        np.zeros(2, np.int64), np.empty(most + 1), np.empty((most, DEGREE)), np.empty(most, np.int64),
        np.empty(most + 1), np.empty((most, 2)),
    )  # fmt: skip


# -- a law -------------------------------------------------------------------------------------------------------------


@kernel
def _panel(table, y):
    """Return the number of the panel that holds a place, or of the nearest one."""
    first, last = 0, table.size[0] - 1
    while first < last:
        middle = (first + last + 1) // 2
        if table.edges[middle] <= y:
            first = middle
        else:
            last = middle - 1
    return first


@kernel
def _in_panel(table, k, y):
    """Return the polynomial of a panel at a place."""
    low, high, shares = table.edges[k], table.edges[k + 1], table.shares[k]
    x = (2.0 * y - low - high) / (high - low)
    before, here, total = 1.0, x, shares[0]
    for j in range(1, table.terms[k]):
        total += shares[j] * here
        before, here = here, ((2 * j + 1) * x * here - j * before) / (j + 1)
    return total


@kernel
def _density(table, y):
    """Return the density at a place."""
    n = table.size[0]
    if n == 0 or not table.edges[0] <= y < table.edges[n]:
        return 0.0
    return _in_panel(table, _panel(table, y), y)


@kernel
def _below(table, y):
    """Return the mass of the density up to a place."""
    n = table.size[0]
    if n == 0 or y <= table.edges[0]:
        return 0.0
    if y >= table.edges[n]:
        return table.below[n]
    k = _panel(table, y)
    low, high, shares = table.edges[k], table.edges[k + 1], table.shares[k]
    x = (2.0 * y - low - high) / (high - low)
    before, here, total = 1.0, x, shares[0] * (x + 1.0)
    for j in range(1, table.terms[k]):
        after = ((2 * j + 1) * x * here - j * before) / (j + 1)
        total += shares[j] * (after - before) / (2 * j + 1)
        before, here = here, after
    return table.below[k] + 0.5 * (high - low) * total


@kernel
def _inside(table, begin, end):
    """Return the mass between two places; between near places it is integrated, as a difference loses digits."""
    n = table.size[0]
    if n == 0:
        return 0.0
    begin, end = max(begin, table.edges[0]), min(end, table.edges[n])
    if not begin < end:
        return 0.0
    first, last = _panel(table, begin), _panel(table, end)
    if last - first > 1 or end - begin > _NEAR * (table.edges[last + 1] - table.edges[first]):
        return _below(table, end) - _below(table, begin)
    total = 0.0
    for k in range(first, last + 1):
        low, high = max(begin, table.edges[k]), min(end, table.edges[k + 1])
        centre, half = 0.5 * (low + high), 0.5 * (high - low)
        for j in range(DEGREE):
            total += _W[j] * half * _in_panel(table, k, centre + half * _X[j])
    return total


# -- one value more ----------------------------------------------------------------------------------------------------


@kernel
def _with_normal(table, parts, k, y):
    """Return the density of the sum of a law and a normal component: an integral, panel by panel."""
    total, begin, end = 0.0, y - parts.window[k, 1], y - parts.window[k, 0]
    if table.size[0] == 0:
        return total
    begin, end = max(begin, table.edges[0]), min(end, table.edges[table.size[0]])
    at = _panel(table, begin)
    while begin < end:
        while table.edges[at + 1] <= begin:
            at += 1
        piece = min(min(end, table.edges[at + 1]), begin + parts.window[k, 2])
        centre, half = 0.5 * (begin + piece), 0.5 * (piece - begin)
        for j in range(DEGREE):
            t = centre + half * _X[j]
            near = cut_pdf(parts.mean[k], parts.sd[k], parts.low[k], parts.high[k], y - t)
            total += _W[j] * half * near * _in_panel(table, at, t)
        begin = piece
    return total


@kernel
def _summed_density(table, parts, v, y):
    """Return the density of the sum of a law and a value, at a place."""
    total = 0.0
    for k in range(parts.start[v], parts.start[v + 1]):
        low, high = parts.low[k], parts.high[k]
        if parts.kind[k] == POINT:
            total += parts.weight[k] * _density(table, y - low)
            continue
        if parts.kind[k] == UNIFORM:
            found = _inside(table, y - high, y - low) / (high - low)
        else:
            found = _with_normal(table, parts, k, y)
        for i in range(table.size[1]):
            away = y - table.points[i, 0]
            if parts.kind[k] == UNIFORM:
                found += table.points[i, 1] / (high - low) if low <= away < high else 0.0
            elif parts.window[k, 0] <= away <= parts.window[k, 1]:
                found += table.points[i, 1] * cut_pdf(parts.mean[k], parts.sd[k], low, high, away)
        total += parts.weight[k] * found
    return total


@kernel
def _kinks(table, parts, v, found):
    """Find in order where the density of the sum of a law and a value may have kinks; return how many, or -1."""
    count, n, points = 0, table.size[0], table.size[1]
    for k in range(parts.start[v], parts.start[v + 1]):
        smooth = parts.kind[k] != POINT
        for side in range(2 if smooth else 1):
            end = parts.window[k, side]
            if count + n + 1 + points > len(found):
                return -1
            if n:
                for i in range(n + 1):
                    found[count + i] = table.edges[i] + end
                count += n + 1
            if smooth:
                for i in range(points):
                    found[count + i] = table.points[i, 0] + end
                count += points
    if count == 0:
        return 0
    found[:count].sort()
    nearest, kept = _SAME * max(abs(found[0]), abs(found[count - 1])), 1
    for i in range(1, count):
        if found[i] - found[kept - 1] > nearest:
            found[kept] = found[i]
            kept += 1
    return kept if kept > 1 else 0


@kernel
def _add(table, parts, v, kinks, made):
    """Add one value to a partial sum and compute the law of the result; return whether there was room."""
    count, panels, points = _kinks(table, parts, v, kinks), 0, 0
    if count < 0:
        return False
    for k in range(parts.start[v], parts.start[v + 1]):
        if parts.kind[k] == POINT:
            for i in range(table.size[1]):
                if points == len(made.points):
                    return False
                made.points[points, 0] = table.points[i, 0] + parts.low[k]
                made.points[points, 1] = table.points[i, 1] * parts.weight[k]
                points += 1
    values, stack = np.empty(DEGREE), np.empty((2 * _MOST_HALVED + 2, 3))
    made.below[0] = 0.0
    for i in range(count - 1):
        waiting = 1
        stack[0, 0], stack[0, 1], stack[0, 2] = kinks[i], kinks[i + 1], 0.0
        while waiting:
            waiting -= 1
            low, high, halved = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
            if panels == len(made.shares):
                return False
            centre, half = 0.5 * (low + high), 0.5 * (high - low)
            for j in range(DEGREE):
                values[j] = _summed_density(table, parts, v, centre + half * _X[j])
            shares = made.shares[panels]
            for j in range(DEGREE):
                shares[j] = 0.0
                for node in range(DEGREE):
                    shares[j] += _SHARES[j, node] * values[node]
            rest = (abs(shares[DEGREE - 1]) + abs(shares[DEGREE - 2]) + abs(shares[DEGREE - 3])) * half
            if rest > _ENOUGH and halved < _MOST_HALVED:
                stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = centre, high, halved + 1.0
                stack[waiting + 1, 0], stack[waiting + 1, 1], stack[waiting + 1, 2] = low, centre, halved + 1.0
                waiting += 2
                continue
            size, terms = 0.0, 1
            for j in range(DEGREE):
                size = max(size, abs(shares[j]))
            for j in range(DEGREE):
                if abs(shares[j]) > _NOTHING * size:
                    terms = j + 1
            made.terms[panels] = terms
            made.edges[panels], made.edges[panels + 1] = low, high
            made.below[panels + 1] = made.below[panels] + 2.0 * half * shares[0]
            panels += 1
    made.size[0], made.size[1] = panels, points
    return True


# -- two parts ---------------------------------------------------------------------------------------------------------


@kernel
def _points_up_to(table, x, closed, moved):
    """Return the probability of the shifted points that are below a number, or at most that number."""
    total = 0.0
    for i in range(table.size[1]):
        place = table.points[i, 0] + moved
        if place < x or (closed and place == x):
            total += table.points[i, 1]
    return total


@kernel
def _up_to(one, other, x, closed):
    """Return the probability that the sum of two values is below a number, or at most that number."""
    total, n = 0.0, other.size[0]
    for i in range(one.size[1]):
        place = one.points[i, 0]
        total += one.points[i, 1] * (_below(other, x - place) + _points_up_to(other, x, closed, place))
    for i in range(other.size[1]):
        total += other.points[i, 1] * _below(one, x - other.points[i, 0])
    if n == 0:
        return total
    for k in range(one.size[0]):
        low, high = one.edges[k], one.edges[k + 1]
        mass = one.below[k + 1] - one.below[k]
        if x - high >= other.edges[n]:
            total += mass * other.below[n]
            continue
        if x - low <= other.edges[0] or mass == 0.0:
            continue
        begin, end = low, high
        if x - begin > other.edges[n]:  # for these the other is below for certain
            begin = x - other.edges[n]
            total += (_inside(one, low, begin)) * other.below[n]
        end = min(end, x - other.edges[0])
        at = _panel(other, x - end)
        while begin < end:  # from the end back, as the other then goes up
            while at < n - 1 and x - other.edges[at + 1] >= end:
                at += 1
            piece = max(begin, x - other.edges[at + 1]) if at < n - 1 else begin
            centre, half = 0.5 * (piece + end), 0.5 * (end - piece)
            for j in range(DEGREE):
                t = centre + half * _X[j]
                total += _W[j] * half * _in_panel(one, k, t) * _below(other, x - t)
            end = piece
    return total


@kernel
def _scaled(laws, factors, row):
    """List the components of all values of a row, times their factors. Single normals become one, the first value.

    Numbers without any uncertainty only move it; if there are no normals, it is a point.
    """
    n = len(factors)
    most = 1
    for v in range(n):
        most += laws.start[v, row + 1] - laws.start[v, row]
    parts = Addends(
        np.zeros(n + 2, np.int64), np.empty(most, np.int8), np.empty(most), np.empty(most), np.empty(most),
        np.empty(most), np.empty(most), np.empty((most, 3)),
    )  # fmt: skip
    mean = variance = 0.0
    values, count = 1, 1
    parts.start[1] = 1
    for v in range(n):
        factor, first, last = factors[v, row], laws.start[v, row], laws.start[v, row + 1]
        if factor == 0.0:
            continue
        if last - first == 1 and laws.kind[first] == POINT:
            mean += factor * laws.low[first]
            continue
        plain = laws.kind[first] == NORMAL and laws.low[first] == -math.inf and laws.high[first] == math.inf
        if last - first == 1 and plain:
            mean += factor * laws.mean[first]
            variance += (factor * laws.sd[first]) ** 2
            continue
        for k in range(first, last):
            one, two = factor * laws.low[k], factor * laws.high[k]
            parts.kind[count], parts.weight[count] = laws.kind[k], laws.weight[k]
            parts.low[count], parts.high[count] = min(one, two), max(one, two)
            parts.mean[count], parts.sd[count] = factor * laws.mean[k], abs(factor) * laws.sd[k]
            count += 1
        values += 1
        parts.start[values] = count
    parts.kind[0], parts.weight[0] = NORMAL if variance > 0.0 else POINT, 1.0
    parts.mean[0], parts.sd[0] = mean, math.sqrt(variance)
    parts.low[0] = -math.inf if variance > 0.0 else mean
    parts.high[0] = math.inf if variance > 0.0 else mean
    for k in range(count):
        parts.window[k, 0], parts.window[k, 1], parts.window[k, 2] = parts.low[k], parts.high[k], 0.0
        if parts.kind[k] == NORMAL:
            down, up, scale = smooth_window(parts.mean[k], parts.sd[k], parts.low[k], parts.high[k])
            mode = min(max(parts.mean[k], parts.low[k]), parts.high[k])
            parts.window[k, 0], parts.window[k, 1], parts.window[k, 2] = mode + down, mode + up, 2.0 * scale
    return parts, values


@kernel
def _ordered(parts, values):
    """Order the values as they are added, and assign each to a part: values of many kinks to different ones.

    Normals come first in each, as they are integrated against what is there; then narrow values before wide ones.
    """
    dear, width, half = np.empty(values), np.empty(values), np.zeros(values, np.int64)
    for v in range(values):
        low, high, normal, ends = math.inf, -math.inf, 0.0, 0
        for k in range(parts.start[v], parts.start[v + 1]):
            low, high = min(low, parts.window[k, 0]), max(high, parts.window[k, 1])
            normal = max(normal, 1.0 if parts.kind[k] == NORMAL else 0.0)
            ends += 1 if parts.kind[k] == POINT else 2
        dear[v] = ends
        width[v] = (high - low) - (1e300 if normal else 0.0)
    size = np.zeros(2)
    for v in np.argsort(-dear):
        half[v] = 0 if size[0] <= size[1] else 1
        size[half[v]] += math.log(dear[v] + 1.0)
    return np.argsort(width), half


@kernel
def sum_rows(laws, factors, low, high, low_closed, high_closed):
    """Return the probability that ``sum factors[v] x_v`` lies in one of some ranges, for each row.

    Ranges do not overlap: ``low`` and ``high`` have one row for each. nan where a law has more than ``MOST_PANELS``.
    """
    found = np.empty(factors.shape[1])
    tables = (_table(MOST_PANELS), _table(MOST_PANELS), _table(MOST_PANELS), _table(MOST_PANELS))
    kinks = np.empty(4 * MOST_PANELS)
    for row in range(len(found)):
        parts, values = _scaled(laws, factors, row)
        order, half = _ordered(parts, values)
        one, other, one_room, other_room = tables
        fits = True
        for part in range(2):
            here, there = (one, one_room) if part == 0 else (other, other_room)
            here.size[0], here.size[1] = 0, 1
            here.points[0, 0], here.points[0, 1] = 0.0, 1.0
            for v in order:
                if half[v] == part and fits:
                    fits = _add(here, parts, v, kinks, there)
                    here, there = there, here
            if part == 0:
                one, one_room = here, there
            else:
                other, other_room = here, there
        if not fits:
            found[row] = math.nan
            continue
        total = 0.0
        for e in range(len(low)):
            if low[e, row] > high[e, row]:
                continue
            most = _up_to(one, other, high[e, row], high_closed[e]) if high[e, row] < math.inf else 1.0
            least = _up_to(one, other, low[e, row], not low_closed[e]) if low[e, row] > -math.inf else 0.0
            total += most - least
        found[row] = min(1.0, max(0.0, total))
    return found
