"""Integrate over all values but one, row by row, or average over a lattice."""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.components import NORMAL, POINT, component_quantile
from haply.numerics.integration.lattices import FIRST, MISSED, Lattice, folded, is_enough, mean_and_error
from haply.numerics.jit import bare
from haply.numerics.nested.conditions import everywhere, fix, set_written
from haply.numerics.nested.kinks import find_kinks
from haply.numerics.nested.last import mass, over_last
from haply.numerics.nested.problem import Laws, Polynomials, begin_row, room_for
from haply.numerics.normal import cut_pdf

MOST_INTEGRALS = 2
"""Values that are integrated numerically."""
TOLERANCE = 1e-12
"""What the estimated error of a panel may be."""
_MOST_PANELS = 4000
"""Panels that one integral may be split into."""
_NEAREST = 1e-13
"""How near kinks may be to be taken as one, beside the size of the component."""

# Gauss-Kronrod of 15 nodes: its positive nodes, its weights, and those of the 7-node rule at every second node.
_X = np.array([
    0.991455371120812639206854697526329, 0.949107912342758524526189684047851, 0.864864423359769072789712788640926,
    0.741531185599394439863864773280788, 0.586087235467691130294144949058776, 0.405845151377397166906606412076961,
    0.207784955007898467600689403773245, 0.0,
])  # fmt: skip
_W15 = np.array([
    0.022935322010529224963732008058970, 0.063092092629978553290700663189204, 0.104790010322250183839876322541518,
    0.140653259715525918745189590510238, 0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
    0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
])  # fmt: skip
_W7 = np.array([
    0.129484966168869693270611432679082, 0.279705391489276667901467771423780, 0.381830050505118944950369775488975,
    0.417959183673469387755102040816327,
])  # fmt: skip


@bare
def _integrated(laws, asked, room, v, row, tolerance):
    """Return the probability that the conditions hold for value ``v`` and those after it, given all before it.

    The estimated error of a panel is at most ``tolerance``; what counts little in the integral outside has a greater.
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
    cuts, stack = room.breaks[v], room.panels[v]
    count = find_kinks(laws, asked, room, v, row)
    for k in range(first, last):
        if laws.kind[k] == POINT:
            continue
        begin, end, scale = room.window[k, 0], room.window[k, 1], room.window[k, 2]
        waiting, low, next_cut, pieces = 0, begin, 0, 0
        while low < end:
            while next_cut < count and not cuts[next_cut] > low + _NEAREST * scale:
                next_cut += 1
            high = min(end, low + 2.0 * scale)
            if next_cut < count and cuts[next_cut] < high:
                high = cuts[next_cut]
            if waiting + 1 >= len(stack):
                high = end
            known = everywhere(asked, room, v, low, high, row)
            if known < 0:
                stack[waiting, 0], stack[waiting, 1] = low, high
                waiting += 1
            elif known:
                total += mass(laws, k, k + 1, low, high)
            low = high
        while waiting:
            waiting -= 1
            low, high = stack[waiting, 0], stack[waiting, 1]
            centre, half = 0.5 * (low + high), 0.5 * (high - low)
            fine = coarse = 0.0
            for node in range(15):
                side = node if node < 8 else 14 - node
                place = centre - half * _X[side] if node < 8 else centre + half * _X[side]
                if laws.kind[k] == NORMAL:
                    density = cut_pdf(laws.mean[k], laws.sd[k], laws.low[k], laws.high[k], place)
                else:
                    density = 1.0 / (laws.high[k] - laws.low[k])
                value = 0.0
                if density > 0.0:
                    fix(room, v, place)
                    inner = tolerance / min(1.0, 2.0 * half * density)
                    value = density * _integrated(laws, asked, room, v + 1, row, inner)
                fine += _W15[side] * value
                if side % 2 == 1:
                    coarse += _W7[side // 2] * value
            pieces += 1
            error = abs(fine - coarse) * half
            small = half <= 4e-16 * max(abs(low), abs(high)) or pieces + waiting >= _MOST_PANELS
            if error <= tolerance or small or waiting + 2 > len(stack):
                total += laws.weight[k] * fine * half
            else:
                stack[waiting, 0], stack[waiting, 1] = low, centre
                stack[waiting + 1, 0], stack[waiting + 1, 1] = centre, high
                waiting += 2
    return total


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
