"""How many right rows match a left row: whether any does, how many to expect, how they vary, and their distribution.

All candidates of a left row look at the same value, so that their matches depend on each other: the product of the
single chances is no bound, neither from above nor from below. Given the value ``x`` they are independent, candidate
``j`` matches with probability ``q_j(x)``, and everything is an expectation over ``x``: a sum over the points of the
left value, Gauss-Legendre panels over its uniform parts (exact if the candidates are points and uniforms), and panels
or the trapezoidal rule over its normal parts. Errors are below 1e-14 for each candidate, or below a
tolerance.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.models import OneDimensional
from haply.models.ragged import Ragged
from haply.numerics.components import NORMAL, POINT, UNIFORM, gap, smooth_window
from haply.numerics.grid import FARTHEST, demand, grid_step, over_grid, room_for_grid, trapezoid_step
from haply.numerics.jit import bare, kernel
from haply.numerics.normal import SQRT_2PI, cut_anchor, cut_cdf, cut_mass
from haply.probability.quadrature import (
    GAIN,
    HIGH,
    LOW,
    MOST_BENDS,
    NODE,
    NODE_WEIGHT,
    add_moving,
    most_pieces,
    only_bends,
    panel_plan,
    piece_breaks,
    quick_cdf,
    room_for_moving,
    room_for_pieces,
    see,
    survey,
    weights_before,
)
from haply.probability.region import Region

BLOCK = 32
"""Nodes worked on at once."""
_DUST = 1e-15
"""A chance below this is what rounding leaves of none."""
_WIDE = 0.5
"""A curve that takes this share of a left value is not a break in it."""


class MatchCounts(NamedTuple):
    """How many matches each left row has."""

    p_any: np.ndarray
    """The probability that there is one."""
    expected: np.ndarray
    variance: np.ndarray
    probability: np.ndarray
    """For each candidate the probability that it matches; of no use if single ones were not asked for."""
    distribution: Ragged | None
    """For each left row the probabilities of 0, 1, 2, ... matches, up to the largest number that is possible."""


class Tally(NamedTuple):
    """Room for a block of nodes, and the sums of one left row.

    ``some`` is the chance of any match at a node, ``mean`` and ``own`` the mean and the variance of their number there;
    ``shares`` holds the chances of each number. ``sums`` are the weight of all nodes so far, the mean over them, the
    sum of squares around it, and the weighted sums of ``own`` and of ``some``.
    """

    offset: np.ndarray
    weight: np.ndarray
    q: np.ndarray
    some: np.ndarray
    mean: np.ndarray
    own: np.ndarray
    shares: np.ndarray
    added: np.ndarray
    sums: np.ndarray
    distribution: np.ndarray


class Found(NamedTuple):
    """Room for what is found of all left rows.

    The distribution of row ``i`` is in ``shares`` from ``start[i] + i`` on, with room for all its candidates, and ends
    after the number ``largest`` of matches.
    """

    some: np.ndarray
    expected: np.ndarray
    variance: np.ndarray
    probability: np.ndarray
    shares: np.ndarray
    largest: np.ndarray


@kernel
def room_for_found(rows, candidates, distribution):
    """Room for so many rows and candidates."""
    return Found(
        np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(candidates),
        np.zeros(candidates + rows if distribution else 0), np.zeros(rows if distribution else 0, np.int64),
    )  # fmt: skip


@kernel
def room_for_tally(most, distribution):
    """Room for rows of up to so many candidates."""
    return Tally(
        np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK),
        np.zeros((most + 2 if distribution else 1, BLOCK)), np.zeros(1, np.int64), np.zeros(5),
        np.zeros(most + 1 if distribution else 1),
    )  # fmt: skip


@bare
def begin_block(tally, count):
    """Begin with a block of so many nodes: no candidate has been looked at, so that there is no match."""
    tally.some[:count] = 0.0
    tally.mean[:count] = 0.0
    tally.own[:count] = 0.0
    tally.shares[0, :count] = 1.0
    tally.added[0] = 0


@bare
def add_candidate(tally, count, distribution):
    """Add one more candidate, whose chances at the nodes are in ``q``; returns its chance over the whole block."""
    q, some, mean, own, weight = tally.q, tally.some, tally.mean, tally.own, tally.weight
    chance = 0.0
    for e in range(count):
        value = min(1.0, q[e])
        value = value if value > _DUST else 0.0
        q[e] = value
        some[e] += value * (1.0 - some[e])
        mean[e] += value
        own[e] += value * (1.0 - value)
        chance += weight[e] * value
    if distribution and chance > 0.0:
        top = tally.added[0] + 1
        tally.added[0] = top
        tally.shares[top, :count] = 0.0
        for number in range(top, 0, -1):
            here, fewer = tally.shares[number], tally.shares[number - 1]
            for e in range(count):
                here[e] += q[e] * (fewer[e] - here[e])
        none = tally.shares[0]
        for e in range(count):
            none[e] -= q[e] * none[e]
    return chance


@bare
def add_sums(sums, weight, mean, squares, own, some):
    """Add the sums of some nodes to those of a row: the squares around both means become those around the mean."""
    if weight > 0.0:
        whole, away = sums[0] + weight, mean - sums[1]
        sums[1] += away * (weight / whole)
        sums[2] += squares + away * away * (weight * (sums[0] / whole))
        sums[0] = whole
        sums[3] += own
        sums[4] += some


@bare
def end_block(tally, count, distribution):
    """Add a block to the sums of its row."""
    whole, mean, squares, own, some = 0.0, 0.0, 0.0, 0.0, 0.0
    for e in range(count):
        weight = tally.weight[e]
        whole += weight
        mean += weight * tally.mean[e]
        own += weight * tally.own[e]
        some += weight * tally.some[e]
    if whole > 0.0:
        mean /= whole
    for e in range(count):
        away = tally.mean[e] - mean
        squares += tally.weight[e] * away * away
    add_sums(tally.sums, whole, mean, squares, own, some)
    if distribution:
        for number in range(tally.added[0] + 1):
            total = 0.0
            for e in range(count):
                total += tally.weight[e] * tally.shares[number, e]
            tally.distribution[number] += total


@bare
def begin_row(tally, count):
    """Begin with the sums of a row of so many candidates."""
    tally.sums[:] = 0.0
    tally.distribution[: count + 1] = 0.0


@bare
def end_row(tally, i, begin, found, chances):
    """Write down what was found of row ``i``, whose candidates begin at ``begin``.

    What has not been looked at is where no candidate matches.
    """
    sums = tally.sums
    rest = max(0.0, 1.0 - sums[0])
    found.some[i], found.expected[i] = min(1.0, sums[4]), sums[0] * sums[1]
    found.variance[i] = sums[3] + sums[2] + sums[1] * sums[1] * sums[0] * rest
    for c in range(len(chances)):
        chances[c] = min(1.0, chances[c])
    if len(found.largest) > 0:
        tally.distribution[0] += rest
        for number in range(len(chances) + 1):
            found.shares[begin + i + number] = tally.distribution[number]
            if tally.distribution[number] > 0.0:
                found.largest[i] = number


@bare
def _share_below(x, kind, low, high, mean, sd, end, closed):
    """Return the share of a component at or before ``x - end``; a point there counts only if the end is closed."""
    if kind == POINT:
        difference = x - low
        return 1.0 if difference > end or (closed and difference == end) else 0.0
    if math.isinf(end):
        return 1.0 if end < 0.0 else 0.0
    if kind == UNIFORM:
        return min(1.0, max(0.0, gap(x, low, end) / (high - low)))
    if low == -math.inf and high == math.inf:
        return quick_cdf(gap(x, mean, end) / sd)
    return cut_cdf(gap(mean, x, -end), sd, gap(low, x, -end), gap(high, x, -end), 0.0)


@bare
def _below(b, m, x, end, closed):
    return _share_below(x, b.kind[m], b.low[m], b.high[m], b.mean[m], b.sd[m], end, closed)


@bare
def _points_near(a, place, count, b, before, j, low, high, low_closed, high_closed, outside, tally):
    """Find the chances that row ``j`` matches, for left values that are points: the components ``place``."""
    q, begin, end = tally.q, b.start[j], b.start[j + 1]
    last, first = begin, begin
    for e in range(count):
        x, inside = a.low[place[e]], 0.0
        if b.ordered:
            # two walks along the candidate, for the lower and the upper end of the region
            if e > 0 and x < a.low[place[e - 1]]:
                last, first = begin, begin
            part = 0.0
            while last < end:
                part = _below(b, last, x, low, low_closed)
                if part < 1.0:
                    break
                last += 1
            over = 0.0
            while first < end:
                over = _below(b, first, x, high, not high_closed)
                if over < 1.0:
                    break
                first += 1
            if last > first:
                inside = (before[last] if last < end else 1.0) - before[first]
            if last < end:
                inside += b.weight[last] * part
            if first < end:
                inside -= b.weight[first] * over
        else:
            for m in range(begin, end):
                inside += b.weight[m] * (_below(b, m, x, low, low_closed) - _below(b, m, x, high, not high_closed))
        q[e] = 1.0 - inside if outside else inside


@bare
def _over_points(
    a, i, b, before, candidates, low, high, low_closed, high_closed, outside, distribution, place, tally, probability
):
    """Add all points of left row ``i``."""
    count, end = 0, a.start[i + 1]
    for k in range(a.start[i], end + 1):
        if k < end and a.kind[k] == POINT:
            place[count], tally.weight[count] = k, a.weight[k]
            count += 1
        if count == BLOCK or (k == end and count > 0):
            begin_block(tally, count)
            for c in range(len(candidates)):
                _points_near(
                    a, place, count, b, before, candidates[c], low, high, low_closed, high_closed, outside, tally
                )
                probability[c] += add_candidate(tally, count, distribution)
            end_block(tally, count, distribution)
            count = 0


@bare
def _see_all(b, before, candidates, origin, left, right, low, high, outside, pieces):
    """Write down the chance of each candidate ``c`` as the sum of ranges ``2c`` and ``2c + 1``, one for each end."""
    sign = -1.0 if outside else 1.0
    for c in range(len(candidates)):
        see(b, before, candidates[c], origin, low, left, right, sign, pieces, 2 * c)
        see(b, before, candidates[c], origin, high, left, right, -sign, pieces, 2 * c + 1)
        if outside:
            pieces.level[2 * c] += 1.0


@bare
def _evaluate(pieces, moving, number, begin, base, nodes, distribution, tally, probability):
    """Add a block of nodes, whose places and weights are in the tally."""
    begin_block(tally, nodes)
    for s in range(number):
        add_moving(pieces, moving, s, begin, base, tally.offset, nodes, tally.q)
        probability[moving.owner[s]] += add_candidate(tally, nodes, distribution)
    end_block(tally, nodes, distribution)


@bare
def _trapezoid(pieces, count, weight, sd, bends, distribution, moving, tally, probability):
    """Integrate over a normal left value, seen from its mean, with equal steps; not where no candidate can match."""
    first, last, before, after = math.inf, -math.inf, 0.0, 0.0
    for c in range(count):
        level = pieces.level[2 * c] + pieces.level[2 * c + 1]
        before = max(before, level)
        for k in range(pieces.start[2 * c], pieces.start[2 * c + 2]):
            first, last = min(first, pieces.number[k, LOW]), max(last, pieces.number[k, HIGH])
            level += pieces.number[k, GAIN]
        after = max(after, level)
    if not first <= last and before <= _DUST:
        return
    step = trapezoid_step(bends)
    z_first = max(-FARTHEST, first / sd) if before <= _DUST else -FARTHEST
    z_last = min(FARTHEST, last / sd) if after <= _DUST else FARTHEST
    k, end = math.ceil(z_first / step), math.floor(z_last / step)
    while k <= end:
        nodes = min(BLOCK, end - k + 1)
        for e in range(nodes):
            z = (k + e) * step
            tally.offset[e] = sd * z
            tally.weight[e] = weight * step * math.exp(-0.5 * z * z) / SQRT_2PI
        begin, beyond = tally.offset[0], tally.offset[nodes - 1]
        number, _, _, _ = survey(pieces, 0, count, 2, begin, beyond, False, _DUST, moving)
        _evaluate(pieces, moving, number, begin, 0.0, nodes, distribution, tally, probability)
        k += nodes


@bare
def _over_part(
    a, k, b, before, candidates, low, high, outside, distribution, pieces, moving, breaks, tally, probability
):
    """Add a uniform or normal component of the left value, seen from its lower end or its mode."""
    count, weight, sd = len(candidates), a.weight[k], a.sd[k]
    curved = a.kind[k] == NORMAL
    if curved:
        origin = min(max(a.mean[k], a.low[k]), a.high[k])
        left, right, scale = smooth_window(a.mean[k], sd, a.low[k], a.high[k])
        z0, z_mode = cut_anchor(a.mean[k], sd, a.low[k], a.high[k]), (origin - a.mean[k]) / sd
        mass = cut_mass(a.mean[k], sd, a.low[k], a.high[k], z0)
    else:
        origin, left, right, scale, z0, z_mode, mass = a.low[k], 0.0, a.high[k] - a.low[k], math.inf, 0.0, 0.0, 1.0
    _see_all(b, before, candidates, origin, left, right, low, high, outside, pieces)
    if curved and a.low[k] == -math.inf and a.high[k] == math.inf:
        bends = only_bends(pieces, count, 2, sd)
        if bends <= MOST_BENDS:
            _trapezoid(pieces, count, weight, sd, bends, distribution, moving, tally, probability)
            return
    number = piece_breaks(pieces, 2 * count, left, right, _WIDE, breaks)
    for part in range(number - 1):
        begin, end = breaks[part], breaks[part + 1]
        moves, lines, change, bends = survey(pieces, 0, count, 2, begin, end, b.ordered, _DUST, moving)
        if moves == 0:
            continue
        own = (end - begin) / scale
        panels, nodes = panel_plan(lines, change, math.sqrt(bends + own * own))
        width, at = (end - begin) / panels, nodes * (nodes - 1) // 2
        for panel in range(panels):
            base = begin + panel * width
            for e in range(nodes):
                tally.offset[e] = width * NODE[at + e]
                tally.weight[e] = weight * NODE_WEIGHT[at + e] * (width / (right - left))
                if curved:
                    z = z_mode + (base + tally.offset[e]) / sd
                    density = math.exp(-0.5 * (z - z0) * (z + z0)) / (SQRT_2PI * mass)
                    tally.weight[e] = weight * NODE_WEIGHT[at + e] * (width / sd) * density
            _evaluate(pieces, moving, moves, begin, base, nodes, distribution, tally, probability)


@kernel
def _count_rows(a, b, start, candidates, low, high, low_closed, high_closed, outside, distribution, tolerance, singly):
    """Count for all left rows; with ``singly`` the chance of each candidate is told as well."""
    rows = len(start) - 1
    before = weights_before(b)
    most, components = most_pieces(b, start, candidates)
    pieces, breaks = room_for_pieces(2 * most, 2 * components), np.empty(4 * components + 4)
    tally, place = room_for_tally(most, distribution), np.empty(BLOCK, np.int64)
    moving = room_for_moving(most, 2 * components)
    found = room_for_found(rows, len(candidates), distribution)
    gridded = not (distribution or outside or math.isinf(low) or math.isinf(high)) and low < high
    grid = room_for_grid(a, low, high, gridded)
    for i in range(rows):
        mine, chances = candidates[start[i] : start[i + 1]], found.probability[start[i] : start[i + 1]]
        begin_row(tally, len(mine))
        if len(mine) > 0:
            _over_points(
                a, i, b, before, mine, low, high, low_closed, high_closed, outside, distribution, place, tally, chances
            )
            demand(grid, tolerance, most, len(mine))
            for k in range(a.start[i], a.start[i + 1]):
                step = grid_step(a, k, b, mine, low, grid) if gridded else 0.0
                if step > 0.0:
                    whole, mean, squares, own, some = over_grid(a, k, b, mine, low, step, grid, singly, chances)
                    add_sums(tally.sums, whole, mean, squares, own, some)
                elif a.kind[k] != POINT:
                    _over_part(
                        a, k, b, before, mine, low, high, outside, distribution, pieces, moving, breaks, tally, chances
                    )
        end_row(tally, i, start[i], found, chances)
    return found


@kernel
def _gathered(start, shares, largest):
    """Return the distributions of all rows without the numbers that cannot be."""
    begins = np.zeros(len(largest) + 1, np.int64)
    for i in range(len(largest)):
        begins[i + 1] = begins[i] + largest[i] + 1
    values = np.empty(begins[-1])
    for i in range(len(largest)):
        for number in range(largest[i] + 1):
            values[begins[i] + number] = shares[start[i] + i + number]
    return begins, values


def candidate_lists(start: Any, candidates: Any, left: int, right: int) -> tuple[np.ndarray, np.ndarray]:
    """Check lists of candidates, those of left row ``i`` at ``start[i]:start[i + 1]``, and return them as integers."""
    # that may be written to, whatever they came from: kernels are compiled once more for those that may not
    begins, rows = np.require(start, np.int64, ["C", "W"]), np.require(candidates, np.int64, ["C", "W"])
    if len(begins) != left + 1 or begins[0] != 0 or begins[-1] != len(rows) or (np.diff(begins) < 0).any():
        raise HaplyError(
            "Lists of candidates do not fit",
            expected=f"{left + 1} ascending numbers from 0 to {len(rows)}",
            found=f"{len(begins)} numbers, the last {begins[-1] if len(begins) else 'missing'}",
        )
    if len(rows) and not 0 <= rows.min() <= rows.max() < right:
        raise HaplyError(
            "A candidate is no row", expected=f"row numbers below {right}", found=f"{rows.min()} to {rows.max()}"
        )
    return begins, rows


def _ends(region: Region) -> tuple[float, float, bool, bool, bool]:
    return float(region.low), float(region.high), region.low_closed, region.high_closed, region.outside


def match_counts(
    left: OneDimensional, right: OneDimensional, region: Region, start: Any, candidates: Any, *,
    distribution: bool = False, tolerance: float = 0.0, singly: bool = True,
) -> MatchCounts:  # fmt: skip
    """Compute how many candidates match each left row, that is, how often ``left[i] - right[j]`` lies in a region.

    Parameters
    ----------
    left, right
        One-dimensional models of any kinds.
    region
        The differences for which rows match.
    start, candidates
        Which right rows may match: those of left row ``i`` are ``candidates[start[i]:start[i + 1]]``. Others are taken
        as not matching.
    distribution
        Whether to compute the probability of each number of matches as well.
    tolerance
        How far numbers may be off: candidates may be left out, and integrals over normal values be less exact.
    singly
        Whether to tell the probability of each candidate. It is faster without.

    Returns
    -------
    MatchCounts
        For each left row the probability of any match, and the mean and the variance of their number.

    Examples
    --------
    >>> from haply.models import Certain, Uniform
    >>> found = match_counts(Uniform(0, 1), Certain([0.25, 0.75]), Region(-0.25, 0.25), [0, 2], [0, 1])
    >>> found.p_any, found.expected, found.variance.round(12)
    (array([1.]), array([1.]), array([0.]))
    """
    begins, rows = candidate_lists(start, candidates, len(left), len(right))
    found = _count_rows(
        left.components, right.components, begins, rows, *_ends(region), distribution, tolerance, singly
    )
    return counts_of(begins, found, distribution)


def counts_of(begins: np.ndarray, found: Found, with_distribution: bool) -> MatchCounts:
    """Return what was found, with the distributions cut after the largest number of matches."""
    distribution = None
    if with_distribution:
        starts, values = _gathered(begins, found.shares, found.largest)
        distribution = Ragged(values, starts)
    return MatchCounts(found.some, found.expected, found.variance, found.probability, distribution)
