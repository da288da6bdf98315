"""Find the event nearest to a certain time, where the times of events are normal or mixtures of normals.

Event ``j`` is farther than ``r`` from the time ``t`` with probability ``g_j(r) = 1 - F_j(t + r) + F_j(t - r)``, and
``h_j(r) = f_j(t + r) + f_j(t - r)`` is the density of its distance. It is the nearest with probability
``integral h_j(r) prod_(k != j) g_k(r) dr`` from 0 on: one integral of smooth factors, by Gauss-Legendre panels.

The error is bounded. An imaginary part ``y`` makes ``f_j`` and ``g_j`` larger by ``exp(y**2 / (2 sd_j**2))`` at most:
``|exp(-(x + iy)**2 / 2)| = exp(y**2 / 2) exp(-x**2 / 2)``, also under the integral of the cdf. Where ``r`` is negative
``g_j`` is below 2. Let ``b`` be half the length of a panel times the root of the sum of ``1 / sd**2`` over its events.
On the ellipse whose half axes sum to ``p`` the integrand is below ``2**events exp(b**2 (p - 1/p)**2 / 8)`` times its
largest density, and a rule of ``m`` nodes errs by 64/15 of that over ``p**(2 m) - p**(2 m - 2)``. Here ``b`` is at most
2.5 and ``m`` is 20: with ``p = 5`` a panel errs by less than ``1e-19 * 2**events``, which is 1e-13 for 20 events that
move on one panel. An event moves within 8.3 deviations of its mean; elsewhere it changes by 1e-16 and is taken as
constant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.components import NORMAL
from haply.numerics.grid import FARTHEST
from haply.numerics.jit import bare, kernel
from haply.probability.quadrature import most_pieces, quick_cdf, quick_density, sort_breaks

_RULE = np.polynomial.legendre.leggauss(20)
_NODE, _WEIGHT = 0.5 * (_RULE[0] + 1.0), 0.5 * _RULE[1]
_MOST_BENT = 2.5


class _RoomOfTime(NamedTuple):
    """Arrays for one time: for its candidates on a panel, and for their components that move there."""

    breaks: np.ndarray
    fixed: np.ndarray
    farther: np.ndarray
    density: np.ndarray
    before: np.ndarray
    owner: np.ndarray
    part: np.ndarray


@kernel
def only_normals(b, start, candidates):
    """Tell for each left row whether all of its candidates are normals that are not cut, or mixtures of them."""
    out = np.ones(len(start) - 1, np.bool_)
    for i in range(len(out)):
        for c in range(start[i], start[i + 1]):
            for k in range(b.start[candidates[c]], b.start[candidates[c] + 1]):
                out[i] &= b.kind[k] == NORMAL and b.low[k] == -math.inf and b.high[k] == math.inf
    return out


@bare
def _farther(b, k, t, r):
    """Return the probability that a component is farther from a time than a distance."""
    return quick_cdf((b.mean[k] - t - r) / b.sd[k]) + quick_cdf((t - r - b.mean[k]) / b.sd[k])


@bare
def _breaks(b, mine, t, lookback, breaks):
    """Write where events begin or end to move, up to where one is surely nearer; return how many breaks there are."""
    far = lookback
    for j in mine:
        reach = 0.0
        for k in range(b.start[j], b.start[j + 1]):
            reach = max(reach, abs(b.mean[k] - t) + FARTHEST * b.sd[k])
        far = min(far, reach)
    breaks[0], breaks[1] = 0.0, far
    count = 2
    for j in mine:
        for k in range(b.start[j], b.start[j + 1]):
            for side in (-1.0, 1.0):
                place = abs(b.mean[k] - t) + side * FARTHEST * b.sd[k]
                if 0.0 < place < far:
                    breaks[count] = place
                    count += 1
    return sort_breaks(breaks, count)


@bare
def _moving(b, mine, t, middle, room):
    """Find the components that move on a panel; return how many they are, and how much they bend together."""
    moving, bends = 0, 0.0
    for c in range(len(mine)):
        room.fixed[c], own = 0.0, 0.0
        for k in range(b.start[mine[c]], b.start[mine[c] + 1]):
            away = abs(b.mean[k] - t)
            if abs(middle - away) < FARTHEST * b.sd[k]:
                room.owner[moving], room.part[moving] = c, k
                moving, own = moving + 1, max(own, 1.0 / (b.sd[k] * b.sd[k]))
            elif middle < away:
                room.fixed[c] += b.weight[k]
        bends += own
    return moving, bends


@bare
def _add_node(b, t, r, weight, moving, room, found):
    """Add the probability of each candidate to be the nearest, at one distance."""
    count = len(found)
    for c in range(count):
        room.farther[c], room.density[c] = room.fixed[c], 0.0
    for at in range(moving):
        c, k = room.owner[at], room.part[at]
        room.farther[c] += b.weight[k] * _farther(b, k, t, r)
        finer, away = 1.0 / b.sd[k], t - b.mean[k]
        here = quick_density((away + r) * finer) + quick_density((away - r) * finer)
        room.density[c] += b.weight[k] * finer * here
    product = 1.0
    for c in range(count):
        room.before[c] = product
        product *= room.farther[c]
    after = weight
    for c in range(count - 1, -1, -1):
        found[c] += room.density[c] * room.before[c] * after
        after *= room.farther[c]


@bare
def _at_time(b, mine, t, lookback, room, found):
    """Write the probability of each candidate to be the nearest; return the probability that there is none."""
    count = _breaks(b, mine, t, lookback, room.breaks)
    for p in range(count - 1):
        begin, end = room.breaks[p], room.breaks[p + 1]
        moving, bends = _moving(b, mine, t, 0.5 * (begin + end), room)
        if moving == 0:
            continue
        panels = max(1, math.ceil(0.5 * (end - begin) * math.sqrt(bends) / _MOST_BENT))
        width = (end - begin) / panels
        for panel in range(panels):
            for e in range(len(_NODE)):
                _add_node(b, t, begin + (panel + _NODE[e]) * width, _WEIGHT[e] * width, moving, room, found)
    none = 1.0
    if len(mine) > 0 and lookback == math.inf:
        return 0.0
    for j in mine:
        beyond = 0.0
        for k in range(b.start[j], b.start[j + 1]):
            beyond += b.weight[k] * _farther(b, k, t, lookback)
        none *= beyond
    return none


@kernel
def nearest_normals(b, start, candidates, rows, times, lookback):
    """Compute the probabilities of all candidates of rows at certain times, and of no event.

    Returns also where the candidates of each time begin.
    """
    begins = np.zeros(len(rows) + 1, np.int64)
    for m in range(len(rows)):
        begins[m + 1] = begins[m] + start[rows[m] + 1] - start[rows[m]]
    most, parts = most_pieces(b, start, candidates)
    room = _RoomOfTime(
        np.empty(2 * parts + 2), np.empty(most), np.empty(most), np.empty(most), np.empty(most),
        np.empty(parts, np.int64), np.empty(parts, np.int64),
    )  # fmt: skip
    found, none = np.zeros(begins[-1]), np.empty(len(rows))
    for m in range(len(rows)):
        mine = candidates[start[rows[m]] : start[rows[m] + 1]]
        none[m] = _at_time(b, mine, times[m], lookback, room, found[begins[m] : begins[m + 1]])
    return found, none, begins
