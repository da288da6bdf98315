"""Compute match probabilities on one grid that all normal left values share.

A candidate of many rows is evaluated once, not once for each row. The trapezoidal rule is equally exact wherever its
nodes lie, so all rows may use multiples of one step, or of its half, its quarter, and so on. The width of the region is
such a multiple as well, so that one cdf serves both of its ends. A pair then takes only multiplications and additions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.components import NORMAL, gap
from haply.numerics.jit import bare, bare_fused, bare_summed, kernel
from haply.numerics.normal import SQRT_2PI, root_sum

FARTHEST = 8.3
"""Beyond this many standard deviations from its mean a normal has 5e-17 of its mass: negligible beside 1."""
EXACT = 35.0
"""The exponent of a negligible error: ``exp(-EXACT)``."""
_SLOTS = 256
"""Candidates that are stored, by the last digits of their numbers: neighbouring rows have neighbouring candidates."""
_ROOM = 1536
"""The most nodes of a candidate or a left value; with more, the grid is not used."""
_BITS = 2.0**24
_FARTHEST_NODE = 2.0**28
"""Products of node numbers up to here with numbers of 24 bits are exact."""
_LEAST, _MOST = 1e-250, 1e250
_RANK, _RANKS = 3.0, 10
"""Candidates are ranked by the logarithms of their probabilities."""
_DUST = 1e-15
"""A probability below this is the rounding error of 0."""


_TERMS = 16
"""Terms of the polynomial for the normal cdf in a cell one standard deviation wide."""
_FARTHEST_CELL = 8.5


def _cdf_cells() -> np.ndarray:
    """Return polynomials through the normal cdf at Chebyshev's points of cells, in the distance from their middles.

    Their error is below 3e-16.
    """
    middles = np.arange(int(2.0 * _FARTHEST_CELL)) + 0.5 - _FARTHEST_CELL
    points = np.cos(np.pi * (np.arange(_TERMS) + 0.5) / _TERMS)
    values = [[0.5 * math.erfc(-(middle + 0.5 * point) * math.sqrt(0.5)) for middle in middles] for point in points]
    terms = np.linalg.solve(np.vander(points, increasing=True), np.array(values))
    return np.ascontiguousarray(terms.T * 2.0 ** np.arange(_TERMS))


_CDF = _cdf_cells()


class NodeGrid(NamedTuple):
    """Probabilities of candidates at the nodes, kept for later rows, and room for the nodes of a left value.

    ``frame`` is the place of node 0, the width of the region, and its first bits; ``demand`` writes ``wanted``. The
    probabilities of candidate ``owner[slot]`` are ``q[slot, 0]``, at the nodes from ``first[slot]`` to before
    ``beyond[slot]`` of ``step[slot]``; those at even nodes are ``q[slot, 1]``. ``weight``, ``some`` and ``mean`` are as
    in a tally, ``squares`` the sums of squared probabilities.
    """

    frame: np.ndarray
    wanted: np.ndarray
    owner: np.ndarray
    step: np.ndarray
    first: np.ndarray
    beyond: np.ndarray
    q: np.ndarray
    weight: np.ndarray
    some: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    spare: np.ndarray
    fixed: np.ndarray
    bends: np.ndarray


@kernel
def room_for_grid(a, low, high, used):
    """Return room for a grid whose node 0 is at the first left value; minimal room if it is not used."""
    slots, room = (_SLOTS, _ROOM) if used else (1, 1)
    width, origin = high - low, 0.0
    if used and len(a.mean) > 0:
        origin = a.mean[0]
    share, power = math.frexp(width if used else 1.0)
    return NodeGrid(
        np.array([origin, width, math.ldexp(math.floor(share * _BITS) / _BITS, power)]), np.zeros(4),
        np.full(slots, -1), np.zeros(slots), np.zeros(slots, np.int64), np.zeros(slots, np.int64),
        np.empty((slots, 2, room)), np.empty(room), np.empty(room), np.empty(room), np.empty(room),
        np.empty(room), np.empty(9), np.empty(_RANKS),
    )  # fmt: skip


@bare
def demand(grid, tolerance, most, candidates):
    """Set how exact the sums of a row of this many candidates must be; no row has more than ``most`` candidates.

    Writes the exponent ``e`` of the error, how many deviations a left value is followed, how many a candidate is, and
    how far outside a candidate may be, in squared deviations. A probability, or a product of two, errs by less than
    ``3 exp(-e)``: 2 for the step, 0.2 for the tails of the left value, 0.5 for those of the product (see ``_reach``).
    So no sum over pairs of candidates errs by more than a quarter of the tolerance. A candidate whose mean is ``z``
    deviations outside of the region has a probability below ``exp(-z**2 / 2) / 5``: the omitted ones add another fifth.
    """
    wanted = grid.wanted
    wanted[0], wanted[1], wanted[2], wanted[3] = EXACT, FARTHEST, FARTHEST, math.inf
    if tolerance > 0.0:
        wanted[0] = min(EXACT, math.log(16.0 * candidates * candidates / tolerance))
        wanted[1] = min(FARTHEST, math.sqrt(2.0 * max(8.0, wanted[0] - 1.6)))
        wanted[2] = min(FARTHEST, math.sqrt(2.0 * max(8.0, math.log(16.0 * most * most / tolerance))))
        wanted[3] = -2.0 * math.log(tolerance / candidates)


@bare
def trapezoid_step(bends):
    """Return the step of the trapezoidal rule for a standard normal times cdfs of total sharpness ``bends``.

    ``bends`` is the sum of ``(sd / sd_j)**2`` of the cdfs. The transform of the integrand falls like
    ``exp(-w**2 / (2 (1 + bends)))``; the error of a step h is its value at 2 pi / h.
    """
    return math.sqrt(2.0 * math.pi * math.pi / (EXACT * (1.0 + bends)))


@bare
def grid_step(a, k, b, candidates, low, grid):
    """Return the step of the grid for left component ``k``: 0 if the grid does not fit it.

    With ``q`` from the likeliest on, no match has the probability ``1 - sum q_k prod_(j < k) (1 - q_j)``. At a distance
    ``t`` from the real line ``q_j`` and ``1 - q_j`` grow by at most ``exp((t / sd_j)**2 / 2)``. So a step h errs in the
    term of ``k`` by at most ``2 p_k exp(-2 pi**2 / (h**2 (1 + bends up to k)))``: unlikely candidates need no fine
    step. ``demand`` says how small the error must be.
    """
    if a.kind[k] != NORMAL or a.low[k] != -math.inf or a.high[k] != math.inf:
        return 0.0
    sd, width, bends = a.sd[k], grid.frame[1], grid.bends
    bends[:] = 0.0
    widest, farthest = 2.0 * FARTHEST * sd, abs(a.mean[k] - grid.frame[0])
    for j in candidates:
        m = b.start[j]
        if b.start[j + 1] - m != 1 or b.kind[m] != NORMAL or b.low[m] != -math.inf or b.high[m] != math.inf:
            return 0.0
        ratio = sd / b.sd[m]
        middle = (b.mean[m] - a.mean[k]) + (low + 0.5 * width)
        outside = max(0.0, abs(middle) - 0.5 * width) / root_sum(sd, b.sd[m])
        # its probability is below exp(-outside**2 / 2)
        bends[int(min(_RANKS - 1.0, 0.5 * outside * outside / _RANK))] += ratio * ratio
        widest = max(widest, width + 2.0 * FARTHEST * b.sd[m])
        farthest = max(farthest, abs(b.mean[m] - grid.frame[0]))
    together, needed = 1.0, 0.0
    for rank in range(_RANKS):
        together += bends[rank]
        if rank == 0 or bends[rank] > 0.0:
            needed = max(needed, (grid.wanted[0] - _RANK * rank) * together)
    most = sd * trapezoid_step(needed / EXACT - 1.0)
    if not (
        _LEAST < most < _MOST and _LEAST < width < _MOST
        and widest < (_ROOM // 2 - 16) * most and farthest < (0.25 * _FARTHEST_NODE) * most
    ):  # fmt: skip
        return 0.0
    halvings = math.frexp(most / width)[1] - 1
    return math.ldexp(width, halvings)  # more than half of the largest allowed step


@bare
def _before(grid, node, step, value):
    """Return the place of a node minus a value, as exact as both are, wherever they lie."""
    coarse = grid.frame[2] * (step / grid.frame[1])
    return node * (step - coarse) - gap(value, grid.frame[0], node * coarse)


@bare_fused
def _add_cdf(q, count, start, slope, sign):
    """Add ``sign * Phi(start + e * slope)`` to the first numbers of an array: nodes in one cell share a polynomial."""
    per_node = 1.0 / slope
    e = min(count, max(0, math.ceil((-FARTHEST - start) * per_node)))
    while e < count:
        cell = int(start + e * slope + _FARTHEST_CELL)
        middle = cell + (0.5 - _FARTHEST_CELL)
        if cell >= len(_CDF):
            for rest in range(e, count):
                q[rest] += sign
            return
        end = min(count, max(e + 1, math.ceil((middle + 0.5 - start) * per_node)))
        c0, c1, c2, c3 = _CDF[cell, 0], _CDF[cell, 1], _CDF[cell, 2], _CDF[cell, 3]
        c4, c5, c6, c7 = _CDF[cell, 4], _CDF[cell, 5], _CDF[cell, 6], _CDF[cell, 7]
        c8, c9, c10, c11 = _CDF[cell, 8], _CDF[cell, 9], _CDF[cell, 10], _CDF[cell, 11]
        c12, c13, c14, c15 = _CDF[cell, 12], _CDF[cell, 13], _CDF[cell, 14], _CDF[cell, 15]
        part, place = q[e:end], (start - middle) + e * slope  # from 0 on, so that several nodes are computed at once
        for at in range(end - e):
            d = place + at * slope
            d2 = d * d
            d4 = d2 * d2
            low_part = ((c3 * d + c2) * d2 + (c1 * d + c0)) + ((c7 * d + c6) * d2 + (c5 * d + c4)) * d4
            high_part = ((c11 * d + c10) * d2 + (c9 * d + c8)) + ((c15 * d + c14) * d2 + (c13 * d + c12)) * d4
            part[at] += sign * (low_part + high_part * (d4 * d4))
        e = end


@bare
def _between(cdf, back, q):
    """Write ``cdf[e] - cdf[e - back]`` for each ``e`` from ``back`` on, and ``cdf[e]`` before ``back``."""
    q = q[: len(cdf)]
    for e in range(min(back, len(cdf))):
        q[e] = min(1.0, cdf[e]) if cdf[e] > _DUST else 0.0
    upper, lower, rest = cdf[back:], cdf[: max(0, len(cdf) - back)], q[back:]
    for e in range(len(lower)):
        change = upper[e] - lower[e]
        rest[e] = min(1.0, change) if change > _DUST else 0.0


@bare
def _write_chances(grid, slot, mean, sd, step, low):
    """Write the probabilities of a candidate at all nodes where they are not 0."""
    width, place, q, even = grid.frame[1], gap(mean, grid.frame[0], -low), grid.q[slot, 0], grid.q[slot, 1]
    reach = grid.wanted[2] * sd
    first = math.ceil((place - reach) / step)
    count = math.floor((place + width + reach) / step) + 1 - first
    begin, back = _before(grid, first, step, mean) - low, int(width / step)
    cdf = grid.spare[:count]
    cdf[:] = 0.0
    _add_cdf(cdf, count, begin / sd, step / sd, 1.0)
    if back == 0:
        _add_cdf(cdf, count, (begin - width) / sd, step / sd, -1.0)
        back = count
    _between(cdf, back, q)
    fine = q[first & 1 : count]
    for e in range((len(fine) + 1) // 2):
        even[e] = fine[2 * e]
    grid.step[slot], grid.first[slot], grid.beyond[slot] = step, first, first + count


@bare
def _slot_of(grid, j, b, step, low):
    """Return the slot of candidate ``j``; write its probabilities there if they are missing, or of another step."""
    slot, m = j % _SLOTS, b.start[j]
    if grid.owner[slot] != j or (grid.step[slot] != step and 2.0 * grid.step[slot] != step):
        grid.owner[slot] = j
        _write_chances(grid, slot, b.mean[m], b.sd[m], step, low)
    return slot


@bare_fused
def _write_weights(grid, count, start, slope, scale):
    """Write ``scale`` times the density of the standard normal at ``start + e * slope``, sixteen values at a time.

    Around a place ``z`` it is ``exp(-z * z / 2)`` times powers of ``exp(-z * slope)`` times factors that do not depend
    on z.
    """
    weight, fixed = grid.weight, grid.fixed
    for e in range(9):
        fixed[e] = math.exp(-0.5 * (e * slope) * (e * slope))
    for middle in range(8, count + 8, 16):
        z = start + middle * slope
        here, up = scale * math.exp(-0.5 * z * z) / SQRT_2PI, math.exp(-z * slope)
        down, ups, downs = 1.0 / up, here, here
        weight[middle] = here
        for e in range(1, 8):
            ups *= up
            downs *= down
            weight[middle + e], weight[middle - e] = ups * fixed[e], downs * fixed[e]
        weight[middle - 8] = downs * down * fixed[8]


@bare_fused
def _add(q, some, mean, squares):
    """Add one more candidate at the nodes of these arrays."""
    for e in range(len(q)):
        value = q[e]
        some[e] += value * (1.0 - some[e])
        mean[e] += value
        squares[e] += value * value


@bare_summed
def _chance(q, weight):
    """Return the probability of a candidate over the nodes of these arrays."""
    chance = 0.0
    for e in range(len(q)):
        chance += weight[e] * q[e]
    return chance


@bare_summed
def _totals(grid, count):
    """Return the weight of all nodes, the mean over them, the squares around it, and sums of variances and ``some``."""
    whole, mean, own, some, squares = 0.0, 0.0, 0.0, 0.0, 0.0
    for e in range(count):
        whole += grid.weight[e]
        mean += grid.weight[e] * grid.mean[e]
        own += grid.weight[e] * (grid.mean[e] - grid.squares[e])
        some += grid.weight[e] * grid.some[e]
    mean /= whole
    for e in range(count):
        away = grid.mean[e] - mean
        squares += grid.weight[e] * away * away
    return whole, mean, squares, own, some


@bare
def _reach(mu, sd, mean, spread, low, width, wanted):
    """Return the places between which a left value's density times a candidate's probability is not negligible.

    Places are relative to the left value's mean. Before the place ``d`` from which on the candidate matches, ``t`` from
    the mean, the product falls like ``exp(-(t**2 / sd**2 + (d - t)**2 / spread**2) / 2)``; in the same way after the
    place up to which it matches. The part left out on each side is at most ``exp(-e) / 4``, with ``e`` as in
    ``demand``. A candidate too far outside has no such places.
    """
    below = gap(mean, mu, -low)
    above, both = below + width, 1.0 / (sd * sd + spread * spread)
    right = wanted[1] * sd
    left, away = -right, max(0.0, below, -above)
    if away * away * both > wanted[3]:
        return math.inf, -math.inf
    most, share, size = 2.0 * wanted[0], sd * sd * both, sd * spread
    if below > left:
        rest = most - below * below * both
        left = below * share - size * math.sqrt(rest * both) if rest > 0.0 else math.inf
    if above < wanted[1] * sd:
        rest = most - above * above * both
        right = above * share + size * math.sqrt(rest * both) if rest > 0.0 else -math.inf
    return left, right


@bare
def over_grid(a, k, b, candidates, low, step, grid, chances, probability):
    """Integrate over left component ``k``, as exactly as ``demand`` asks; return the arguments of ``add_sums``.

    With ``chances`` the probability of each candidate is added to ``probability``.
    """
    mu, sd = a.mean[k], a.sd[k]
    place = mu - grid.frame[0]
    reach = grid.wanted[1] * sd
    first = math.ceil((place - reach) / step)
    count = math.floor((place + reach) / step) + 1 - first
    _write_weights(grid, count, _before(grid, first, step, mu) / sd, step / sd, a.weight[k] * step / sd)
    grid.some[:count] = 0.0
    grid.mean[:count] = 0.0
    grid.squares[:count] = 0.0
    last = first + count - 1
    for c in range(len(candidates)):
        j = candidates[c]
        left, right = _reach(mu, sd, b.mean[b.start[j]], b.sd[b.start[j]], low, grid.frame[1], grid.wanted)
        if left > right:
            continue
        slot = _slot_of(grid, j, b, step, low)
        every = 0 if grid.step[slot] == step else 1
        at, end = (grid.first[slot] + every) >> every, ((grid.beyond[slot] - 1) >> every) + 1
        begin = max(first, at, math.floor((place + left) / step))
        end = min(last + 1, end, math.ceil((place + right) / step) + 1)
        if begin < end:
            nodes = slice(begin - first, end - first)
            q = grid.q[slot, every, begin - at : end - at]
            _add(q, grid.some[nodes], grid.mean[nodes], grid.squares[nodes])
            if chances:
                probability[c] += _chance(q, grid.weight[nodes])
    return _totals(grid, count)
