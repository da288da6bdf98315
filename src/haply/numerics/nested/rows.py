"""Integrate over all values but one, row by row, or average over a lattice."""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.components import NORMAL, POINT, component_quantile
from haply.numerics.integration.lattices import FIRST, MISSED, Lattice, folded, is_enough, mean_and_error
from haply.numerics.integration.pieces import PLACES, SUMS, begin_pieces, error_of, halve, place_of
from haply.numerics.jit import bare
from haply.numerics.nested.conditions import everywhere, fix, set_written
from haply.numerics.nested.kinks import find_kinks
from haply.numerics.nested.last import mass, mass_of, over_last
from haply.numerics.nested.problem import Laws, Polynomials, begin_row, room_for
from haply.numerics.normal import cut_pdf

MOST_INTEGRALS = 2
"""Values that are integrated numerically."""
TOLERANCE = 1e-12
"""What the estimated error of a piece may be."""
PANEL = 1.25
"""Pieces are no longer than this, beside the length over which a density changes."""
MOST_PIECES = 4000
"""Pieces that one integral may be cut into."""
_NEAREST = 1e-13
"""How near kinks may be to be taken as one, beside the size of the component."""


@bare
def _integrated(laws, asked, room, v, row, tolerance):
    """Return the probability that the conditions hold for value ``v`` and those after it, given all before it.

    The estimated error of a piece is at most ``tolerance``; what counts little in the integral outside has a greater.
    """
    if v == room.squares.shape[1] - 1:
        return over_last(laws, asked, room, row)
    total = 0.0
    first, last = laws.start[v, row], laws.start[v, row + 1]
    if room.points[v]:
        for k in range(first, last):
            if laws.kind[k] == POINT:
                fix(room, v, laws.low[k])
                total += laws.weight[k] * _integrated(laws, asked, room, v + 1, row, tolerance)
    begin, end = room.smooth[v, 0], room.smooth[v, 1]
    if not begin < end:
        return total
    known = everywhere(asked, room, v, begin, end, row)
    if known >= 0:
        total += known * mass(laws, first, last, -math.inf, math.inf)
        return total
    kinks, cuts, stack, sums = find_kinks(laws, asked, room, v, row), room.breaks[v], room.pieces[v], room.sums[v]
    for k in range(first, last):
        if laws.kind[k] == POINT:
            continue
        low, end, scale = room.window[k, 0], room.window[k, 1], room.window[k, 2]
        part, next_cut, done = 0.0, 0, 0
        while low < end:
            while next_cut < kinks and not cuts[next_cut] > low + _NEAREST * scale:
                next_cut += 1
            high = min(end, cuts[next_cut]) if next_cut < kinks else end
            size = begin_pieces(stack, low, high, PANEL * scale, room.turns[v], room.turning[v])
            low = high
            while size > 0:
                size, done = size - 1, done + 1
                left, right, turn = stack[size, 0], stack[size, 1], stack[size, 2]
                known = everywhere(asked, room, v, left, right, row)
                if known >= 0:
                    part += known * mass_of(laws, k, left, right)
                    continue
                sums[:] = 0.0
                for j in range(len(PLACES)):
                    place, pace = place_of(left, right, turn, PLACES[j])
                    height = pace * _density(laws, k, place)
                    if height > 0.0:
                        fix(room, v, place)
                        height *= _integrated(laws, asked, room, v + 1, row, tolerance / min(1.0, 2.0 * height))
                        for i in range(len(sums)):
                            sums[i] += SUMS[i, j] * height
                short = right - left <= 4e-16 * max(abs(left), abs(right)) or done >= MOST_PIECES
                if error_of(sums) <= tolerance or short or size + 2 > len(stack):
                    part += sums[0]
                else:
                    size = halve(stack, size)
        total += laws.weight[k] * part
    return total


@bare
def _density(laws, k, x):
    """Return the density of a component that is not a point."""
    if laws.kind[k] == NORMAL:
        return cut_pdf(laws.mean[k], laws.sd[k], laws.low[k], laws.high[k], x)
    return 1.0 / (laws.high[k] - laws.low[k])


def nested_rows(laws: Laws, asked: Polynomials, integrals: int, found: np.ndarray) -> None:
    """Compute the probability that all conditions hold, for each row.

    The values that are enumerated come first, then those that are integrated numerically, then the last.
    """
    place = np.zeros(asked.linear.shape[1] - 1 - integrals, np.int64)
    _nested_rows(laws, asked, room_for(laws, asked), place, found)


@bare
def _nested_rows(laws, asked, room, place, found):
    counted = len(place)
    for row in range(len(found)):
        begin_row(laws, asked, room, row)
        total = 0.0
        place[:] = 0
        more = True
        while more:
            weight = 1.0
            for v in range(counted):
                k = laws.start[v, row] + place[v]
                fix(room, v, laws.low[k])
                room.given[v] = laws.given[k]
                weight *= laws.weight[k]
            set_written(asked, room, row)
            total += weight * _integrated(laws, asked, room, counted, row, TOLERANCE)
            more = False
            for v in range(counted):
                place[v] += 1
                if place[v] < laws.start[v, row + 1] - laws.start[v, row]:
                    more = True
                    break
                place[v] = 0
        found[row] = min(1.0, max(0.0, total))


@bare
def _quantile(laws, first, last, share):
    """Return a quantile of a law, and that as it is given: the share says which component, and which of its
    quantiles."""
    k = first
    while k < last - 1 and share > laws.weight[k]:
        share -= laws.weight[k]
        k += 1
    if laws.kind[k] == POINT:
        return laws.low[k], laws.given[k]
    p = min(max(share / laws.weight[k], 1e-16), 1.0 - 1e-16)
    value = component_quantile(laws.kind[k], laws.low[k], laws.high[k], laws.mean[k], laws.sd[k], p)
    return value, value


@bare
def _at_point(laws, asked, room, point, row):
    """Return the probability of the conditions over the last value; the others are quantiles at a point's numbers."""
    for v in range(len(point)):
        value, room.given[v] = _quantile(laws, laws.start[v, row], laws.start[v, row + 1], point[v])
        fix(room, v, value)
        if v + 1 == asked.written.counted:
            set_written(asked, room, row)
    return over_last(laws, asked, room, row)


def lattice_rows(laws: Laws, asked: Polynomials, lattice: Lattice, found: np.ndarray, errors: np.ndarray) -> None:
    """Estimate the probability that all conditions hold, for each row, by a mean over shifted lattices.

    Points are added until three standard errors of the mean are at most the lattice's tolerance and hardly anything
    above ``RARE`` can have been missed, or there are as many as it may have. ``errors`` are three standard errors or,
    if that is more, what may have been missed. Where bounds show that the conditions hold for all values, or for none,
    no point is taken.
    """
    _lattice_rows(laws, asked, room_for(laws, asked), lattice, found, errors)


@bare
def _lattice_rows(laws, asked, room, lattice, found, errors):
    steps, shifts, point, sums = lattice.steps, lattice.shifts, lattice.point, lattice.sums
    for row in range(len(found)):
        begin_row(laws, asked, room, row)
        known = everywhere(asked, room, 0, room.reach[0, 0], room.reach[0, 1], row)
        if known >= 0:
            found[row], errors[row] = known, 0.0
            continue
        sums[:] = 0.0
        done, more, enough = 0, FIRST, False
        while not enough:
            for shift in range(len(sums)):
                for i in range(done + 1, done + more + 1):
                    for v in range(len(steps)):
                        point[v] = folded(i * steps[v] + shifts[shift, v])
                    sums[shift] += _at_point(laws, asked, room, point, row)
            done += more
            more = done
            mean, error = mean_and_error(lattice, done)
            missed = MISSED / (done * len(sums))
            enough = is_enough(lattice, error, missed, done)
            found[row], errors[row] = min(1.0, max(0.0, mean)), max(error, missed)
