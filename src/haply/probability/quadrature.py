"""Integrate over one uncertain value beside many others: pieces of cdfs, breaks, and nodes.

Given ``x``, whether other values are near it are independent events; the probability is an integral over ``x``.
Relative to an origin, each cdf is constant except on pieces where it rises: steps (points), lines (uniforms), and
curves (normals, cut or not). Between breaks all of them are smooth, and the number of nodes follows from the number of
lines and the bend of the curves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.components import NORMAL, POINT, UNIFORM, gap, smooth_window
from haply.numerics.grid import EXACT, FARTHEST
from haply.numerics.jit import bare, bare_fused, kernel
from haply.numerics.normal import SQRT_2PI, cut_cdf, cut_pdf, normal_cdf

MOST_NODES = 32
_FINE = 16
"""Steps of the table of the normal cdf in a standard deviation."""
_TERMS = 8
_ROWS = math.ceil(FARTHEST * _FINE) + 1
_FEW_LINES = 8
"""The least number for which a bound pays: fewer are exact with few nodes."""
MOST_BENDS = 1500.0
"""Where others vary over lengths that are shorter than a normal value by more than this (sum of squared ratios), panels
are placed where they vary; up to here the trapezoidal rule takes at most 1,000 nodes."""
_LEAST_PART = 0.05
"""A cut normal with less than this share of the plain normal's mass is computed with more care."""
CAREFUL = np.int8(3)
"""The kind of a piece of a cut normal with little mass."""


def _gauss_table() -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss-Legendre nodes on [0, 1] and their weights, of 1 node, of 2, and so on, one after another."""
    size = np.repeat(np.arange(1, MOST_NODES + 1), np.arange(1, MOST_NODES + 1))
    place = np.concatenate([np.arange(count) for count in range(1, MOST_NODES + 1)])
    x = -np.cos(np.pi * (place + 0.75) / (size + 0.5))
    slope = np.ones_like(x)
    for _ in range(6):  # Newton's steps from close guesses
        before, now = np.ones_like(x), x.copy()
        value, lower = x.copy(), np.ones_like(x)
        for degree in range(1, MOST_NODES):
            before, now = now, ((2 * degree + 1) * x * now - degree * before) / (degree + 1)
            there = size == degree + 1
            value[there], lower[there] = now[there], before[there]
        slope = size * (x * value - lower) / (x * x - 1.0)
        x = x - value / slope
    return 0.5 * (1.0 + x), 1.0 / ((1.0 - x * x) * slope * slope)


def _cdf_table() -> np.ndarray:
    """Return Taylor coefficients of the normal cdf around multiples of a step, from where it is 0 to where it is 1."""
    table = np.zeros((2 * _ROWS + 1, _TERMS))
    for row, terms in enumerate(table):
        z = (row - _ROWS) / _FINE
        density = math.exp(-0.5 * z * z) / SQRT_2PI
        terms[0] = 0.5 * math.erfc(-z * math.sqrt(0.5))
        before, now = 0.0, 1.0  # Hermite polynomials of z
        for k in range(1, _TERMS):
            terms[k] = (-1) ** (k - 1) * density * now / math.factorial(k)
            before, now = now, z * now - (k - 1) * before
    return table.ravel()


def _ellipses() -> np.ndarray:
    """Return the factors that ``panel_plan`` needs of ellipses around a panel, with axes ``cosh t`` and ``sinh t``."""
    t = 0.4 * 1.2 ** np.arange(17)
    return np.column_stack([0.5 * (np.cosh(t) - 1.0), 0.125 * np.sinh(t) ** 2, 0.5 / t])


NODE, NODE_WEIGHT = _gauss_table()
_CDF = _cdf_table()
_ELLIPSES = _ellipses()


@bare_fused
def quick_cdf(z):
    """Return ``Phi(z)`` with an error below 1e-15, from a table: in a third of the time of an error function."""
    z = min(max(z, -FARTHEST), FARTHEST)
    row = np.int32(z * _FINE + (_ROWS + 0.5))
    d = z - (np.float64(row) - _ROWS) * (1.0 / _FINE)
    at = np.uint32(row) * np.uint32(_TERMS)  # unsigned: an index that cannot be negative needs no test
    value = _CDF[at + np.uint32(7)]
    value = value * d + _CDF[at + np.uint32(6)]
    value = value * d + _CDF[at + np.uint32(5)]
    value = value * d + _CDF[at + np.uint32(4)]
    value = value * d + _CDF[at + np.uint32(3)]
    value = value * d + _CDF[at + np.uint32(2)]
    value = value * d + _CDF[at + np.uint32(1)]
    return value * d + _CDF[at]


@bare_fused
def quick_density(z):
    """Return the density of the standard normal with an error below 1e-15, from the same table and a short series."""
    z = min(max(z, -FARTHEST), FARTHEST)
    row = np.int32(z * _FINE + (_ROWS + 0.5))
    middle = (np.float64(row) - _ROWS) * (1.0 / _FINE)
    x = (middle - z) * (0.5 * (middle + z))
    series = 1.0 + x * (1.0 / 7.0)
    series = 1.0 + x * series * (1.0 / 6.0)
    series = 1.0 + x * series * 0.2
    series = 1.0 + x * series * 0.25
    series = 1.0 + x * series * (1.0 / 3.0)
    series = 1.0 + x * series * 0.5
    series = 1.0 + x * series
    return series * _CDF[np.uint32(row) * np.uint32(_TERMS) + np.uint32(1)]


@bare
def panel_plan(lines, change, lengths):
    """Return the number of panels for a stretch, and of nodes for each panel, for an error of about 1e-15.

    ``lines`` is how many lines between 0 and 1 are multiplied, ``change`` the sum of their changes, and ``lengths`` the
    length of the stretch in lengths over which curves change (for several: the root of the sum of squares). On the
    ellipse with axes ``cosh t`` and ``sinh t`` around a panel the product of lines is at most
    ``exp(change (cosh t - 1) / 2)``, normal curves are at most ``exp(lengths**2 sinh(t)**2 / 8)``, and m nodes err by
    the product of both times ``exp(-2 m t)``, whatever t is. Lines alone are exact with half as many nodes.
    """
    if lengths <= 0.0 and lines < _FEW_LINES:
        return 1, lines // 2 + 1
    panels = 1
    while True:
        nodes = math.inf
        steps, squares = change / panels, (lengths / panels) * (lengths / panels)
        for k in range(len(_ELLIPSES)):
            nodes = min(nodes, (steps * _ELLIPSES[k, 0] + squares * _ELLIPSES[k, 1] + EXACT) * _ELLIPSES[k, 2])
        needed = math.ceil(nodes) if nodes < 1e6 else 1000000
        if lengths <= 0.0:
            needed = min(needed, lines // 2 + 1)
        if needed <= MOST_NODES:
            return panels, needed
        panels = max(panels + 1, min(2 * panels, math.ceil(panels * needed / MOST_NODES) - 1))


LOW, HIGH, GAIN, SCALE, MEAN, SD, CUT_LOW, CUT_HIGH, LOST, FACTOR = range(10)
"""The numbers of a piece: it rises by ``GAIN`` (falls, if negative) between ``LOW`` and ``HIGH``. Curves change over a
length ``SCALE``; they have a mean, a standard deviation and the ends of their cut, the share ``LOST`` below it, and
a factor for the rest."""


class Pieces(NamedTuple):
    """Room for the pieces on which cdfs rise, in ranges: one after another, ``start[r]:start[r + 1]``.

    ``level`` is the cdf of a range before its first piece that is not passed, which is ``at``. There are few arrays, as
    functions that take many are slow to compile.
    """

    start: np.ndarray
    at: np.ndarray
    level: np.ndarray
    kind: np.ndarray
    number: np.ndarray


@kernel
def room_for_pieces(ranges, pieces):
    """Return room for this many ranges and pieces."""
    return Pieces(
        np.zeros(ranges + 1, np.int64), np.zeros(ranges + 1, np.int64), np.zeros(ranges + 1),
        np.zeros(pieces + 1, np.int8), np.zeros((pieces + 1, 10)),
    )  # fmt: skip


@kernel
def weights_before(rows):
    """Return for each component the weight of its row before it: summed row by row, so that many rows add no error."""
    before = np.empty(len(rows.weight))
    for i in range(len(rows.start) - 1):
        total = 0.0
        for k in range(rows.start[i], rows.start[i + 1]):
            before[k] = total
            total += rows.weight[k]
    return before


@kernel
def most_pieces(rows, start, candidates):
    """Return the largest numbers of candidates and of their components that a left row has."""
    most, most_components = 0, 0
    for i in range(len(start) - 1):
        components = 0
        for c in range(start[i], start[i + 1]):
            components += rows.start[candidates[c] + 1] - rows.start[candidates[c]]
        most, most_components = max(most, start[i + 1] - start[i]), max(most_components, components)
    return most, most_components


@bare
def see(rows, before, j, origin, end, left, right, sign, pieces, r):
    """Write the cdf of row ``j`` at ``x - end`` as range ``r``, for ``x - origin`` between ``left`` and ``right``.

    Ranges are written in their order. Positions enter only as distances from the origin, so that narrow values far from
    0 keep their digits.
    """
    at = pieces.start[r]
    level, k, last = 0.0, rows.start[j], rows.start[j + 1]
    if math.isinf(end):
        level, k = (1.0 if end < 0.0 else 0.0), last
    elif rows.ordered:
        beyond = last
        while k < beyond:
            middle = (k + beyond) // 2
            if gap(rows.high[middle], origin, -end) < left:
                k = middle + 1
            else:
                beyond = middle
        level = before[k] if k < last else 1.0
    while k < last:
        kind, weight = rows.kind[k], rows.weight[k]
        low, high = gap(rows.low[k], origin, -end), gap(rows.high[k], origin, -end)
        mean, sd, scale = low, 0.0, 0.0
        cut_low, cut_high, lost, factor = low, high, 0.0, 1.0
        if kind == NORMAL:
            mean, sd = gap(rows.mean[k], origin, -end), rows.sd[k]
            down, up, scale = smooth_window(mean, sd, low, high)
            mode = min(max(mean, low), high)
            low, high = mode + down, mode + up
            if mode == mean:
                low, high = max(low, mean - FARTHEST * sd), min(high, mean + FARTHEST * sd)
            if cut_low > -math.inf or cut_high < math.inf:
                lost = normal_cdf((cut_low - mean) / sd)
                kept = normal_cdf((cut_high - mean) / sd) - lost
                if mean < cut_low or mean > cut_high or kept < _LEAST_PART:
                    kind = CAREFUL
                else:
                    factor = 1.0 / kept
        if high < left:
            level += weight
        elif low <= right:
            pieces.kind[at] = kind
            pieces.number[at, LOW], pieces.number[at, HIGH], pieces.number[at, GAIN] = low, high, sign * weight
            pieces.number[at, MEAN], pieces.number[at, SD], pieces.number[at, SCALE] = mean, sd, scale
            pieces.number[at, CUT_LOW], pieces.number[at, CUT_HIGH] = cut_low, cut_high
            pieces.number[at, LOST], pieces.number[at, FACTOR] = lost, factor
            at += 1
        elif rows.ordered:
            break
        k += 1
    pieces.level[r] = sign * level
    pieces.at[r] = pieces.start[r]
    pieces.start[r + 1] = at


@bare
def pass_by(pieces, r, x):
    """Mark the first pieces of an ordered range as passed if they end at or before ``x``."""
    k, end = pieces.at[r], pieces.start[r + 1]
    while k < end and pieces.number[k, HIGH] <= x:
        pieces.level[r] += pieces.number[k, GAIN]
        k += 1
    pieces.at[r] = k


@bare_fused
def add_piece(pieces, k, base, offset, count, out):
    """Add the values of one piece at the nodes ``base + offset``."""
    kind, gain = pieces.kind[k], pieces.number[k, GAIN]
    low, high, mean, sd = pieces.number[k, LOW], pieces.number[k, HIGH], pieces.number[k, MEAN], pieces.number[k, SD]
    if kind == NORMAL:
        start, slope = (base - mean) / sd, 1.0 / sd
        if pieces.number[k, FACTOR] == 1.0:
            for e in range(count):
                out[e] += gain * quick_cdf(start + offset[e] * slope)
        else:
            factor, lost = pieces.number[k, FACTOR], pieces.number[k, LOST]
            for e in range(count):
                share = factor * (quick_cdf(start + offset[e] * slope) - lost)
                u = base + offset[e]
                out[e] += gain * (0.0 if u <= low else 1.0 if u >= high else share)
    elif kind == UNIFORM:
        begun, width = base - low, high - low
        rate = gain / width
        for e in range(count):
            out[e] += rate * min(max(begun + offset[e], 0.0), width)
    elif kind == POINT:
        for e in range(count):
            out[e] += gain if (base - low) + offset[e] > 0.0 else 0.0
    else:
        low, high = pieces.number[k, CUT_LOW], pieces.number[k, CUT_HIGH]
        for e in range(count):
            out[e] += gain * cut_cdf(mean, sd, low, high, base + offset[e])


class Moving(NamedTuple):
    """Room for owners that change between two breaks: lines (``value`` at the first break and ``slope``) and curves.

    The curves of number ``s`` are the pieces ``curve[first[s]:first[s + 1]]``.
    """

    owner: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    first: np.ndarray
    curve: np.ndarray


@kernel
def room_for_moving(most, pieces):
    """Return room for ``most`` owners with ``pieces`` pieces in all."""
    return Moving(
        np.zeros(most + 1, np.int64), np.zeros(most + 1), np.zeros(most + 1), np.zeros(most + 2, np.int64),
        np.zeros(pieces + 1, np.int64),
    )  # fmt: skip


@bare
def survey(pieces, first, count, each, begin, end, ordered, least, moving):
    """Find which of ``count`` owners are above ``least`` somewhere between two breaks, and write them into ``moving``.

    An owner has ``each`` ranges, from ``first`` on. Returns how many are found, how many of them are lines, the sum of
    the lines' changes, and the sum of squares of the curves' lengths of change (the sharpest of each owner: an owner is
    a sum of its curves).
    """
    number, lines, change, bends, at = 0, 0, 0.0, 0.0, 0
    for c in range(count):
        value, slope, sharpest, moves = 0.0, 0.0, 0.0, False
        moving.first[number] = at
        for r in range(first + each * c, first + each * c + each):
            if ordered:
                pass_by(pieces, r, begin)
            value += pieces.level[r]
            for k in range(pieces.at[r], pieces.start[r + 1]):
                if pieces.number[k, HIGH] <= begin:
                    value += pieces.number[k, GAIN]
                elif pieces.number[k, LOW] < end:
                    moves = True
                    if pieces.kind[k] == UNIFORM:
                        rate = pieces.number[k, GAIN] / (pieces.number[k, HIGH] - pieces.number[k, LOW])
                        slope += rate
                        value += rate * (begin - pieces.number[k, LOW])
                    else:
                        moving.curve[at] = k
                        at += 1
                        if pieces.kind[k] != POINT:
                            sharpest = max(sharpest, (end - begin) / pieces.number[k, SCALE])
                elif ordered:
                    break
        if moves or value > least:
            moving.owner[number], moving.value[number], moving.slope[number] = c, value, slope
            number += 1
            lines += 1 if slope != 0.0 else 0
            change += abs(slope) * (end - begin)
            bends += sharpest * sharpest
    moving.first[number] = at
    return number, lines, change, bends


@bare
def add_moving(pieces, moving, s, begin, base, offset, count, out):
    """Write the values of one moving owner to ``out``, at the nodes ``base + offset``."""
    value, slope = moving.value[s] + moving.slope[s] * (base - begin), moving.slope[s]
    for e in range(count):
        out[e] = value + slope * offset[e]
    for k in range(moving.first[s], moving.first[s + 1]):
        add_piece(pieces, moving.curve[k], base, offset, count, out)


@bare_fused
def write_density(pieces, moving, s, base, offset, count, out):
    """Write the density of one moving owner to ``out``, at the nodes ``base + offset``; return whether it has any."""
    slope = moving.slope[s]
    for e in range(count):
        out[e] = slope
    for at in range(moving.first[s], moving.first[s + 1]):
        k = moving.curve[at]
        gain, mean, sd = pieces.number[k, GAIN], pieces.number[k, MEAN], pieces.number[k, SD]
        low, high = pieces.number[k, LOW], pieces.number[k, HIGH]
        if pieces.kind[k] == NORMAL:
            start, rate, factor = (base - mean) / sd, 1.0 / sd, gain * pieces.number[k, FACTOR] / sd
            for e in range(count):
                u = base + offset[e]
                out[e] += factor * quick_density(start + offset[e] * rate) if low < u < high else 0.0
        elif pieces.kind[k] == CAREFUL:
            low, high = pieces.number[k, CUT_LOW], pieces.number[k, CUT_HIGH]
            for e in range(count):
                out[e] += gain * cut_pdf(mean, sd, low, high, base + offset[e])
    return slope != 0.0 or moving.first[s] < moving.first[s + 1]


@bare
def only_bends(pieces, count, each, sd):
    """Return how much owners bend within ``sd``, squared and summed; infinite if one has other pieces than normals.

    An owner has ``each`` ranges. Its sharpest range counts: an owner is the sum of its ranges, not their product.
    """
    total = 0.0
    for c in range(count):
        most = 0.0
        for k in range(pieces.start[each * c], pieces.start[each * c + each]):
            if pieces.kind[k] != NORMAL or pieces.number[k, FACTOR] != 1.0:
                return math.inf
            most = max(most, sd / pieces.number[k, SD])
        total += most * most
    return total


@bare
def value_at(pieces, r, x, back, closed, ordered, offset, out):
    """Return the value of a range at ``x - back``; a point there counts only if closed.

    ``offset`` and ``out`` are room to work in.
    """
    total, place = pieces.level[r], x - back
    for k in range(pieces.at[r], pieces.start[r + 1]):
        if pieces.kind[k] == POINT:
            difference = x - pieces.number[k, LOW]
            if difference > back or (closed and difference == back):
                total += pieces.number[k, GAIN]
            elif ordered:
                break
        elif pieces.number[k, HIGH] <= place:
            total += pieces.number[k, GAIN]
        elif pieces.number[k, LOW] < place:
            offset[0], out[0] = 0.0, 0.0
            add_piece(pieces, k, place, offset, 1, out)
            total += out[0]
        elif ordered:
            break
    return total


@bare
def start_again(pieces, ranges, level):
    """Mark all pieces as not passed again; ``level`` holds the first levels of the ranges."""
    for r in range(ranges):
        pieces.at[r], pieces.level[r] = pieces.start[r], level[r]


@bare
def sort_breaks(breaks, count):
    """Sort the first numbers of an array and keep each of them once; return how many are left.

    It is a shell sort: breaks come in a few ascending runs, and no memory is allocated.
    """
    step = 1
    while step < count // 3:
        step = 3 * step + 1
    while step > 0:
        for k in range(step, count):
            value, at = breaks[k], k
            while at >= step and breaks[at - step] > value:
                breaks[at] = breaks[at - step]
                at -= step
            breaks[at] = value
        step //= 3
    kept = 0
    for k in range(count):
        if kept == 0 or breaks[k] > breaks[kept - 1]:
            breaks[kept] = breaks[k]
            kept += 1
    return kept


@bare
def piece_breaks(pieces, ranges, left, right, wide, breaks):
    """Write where the pieces of the first ranges begin and end between two places; return how many breaks there are.

    A curve that takes more than the share ``wide`` of the stretch is no break: it bends over all of it.
    """
    breaks[0], breaks[1] = left, right
    count = 2
    for k in range(pieces.start[ranges]):
        low, high = pieces.number[k, LOW], pieces.number[k, HIGH]
        curved = pieces.kind[k] != POINT and pieces.kind[k] != UNIFORM
        if curved and high - low > wide * (right - left):
            low, high = pieces.number[k, CUT_LOW], pieces.number[k, CUT_HIGH]
        if left < low < right:
            breaks[count] = low
            count += 1
        if left < high < right and high > low:
            breaks[count] = high
            count += 1
    return sort_breaks(breaks, count)
