"""Find the last event before an uncertain time, where the times of events are uncertain too.

Event ``j`` is the last before ``T`` if ``S_j <= T`` and no other event is in ``(S_j, T]``. All times are independent:

    P_j = E_T integral of f_j(s) prod over k != j of (1 - F_k(T) + F_k(s)) over s <= T
    P_none = E_T prod of (1 - F_k(T))

With a lookback ``l``, ``s`` begins at ``T - l``. Points are summed: of two events at one time the one of the higher
rank is the later one. Uniform parts are integrated exactly, normal ones to rounding, by Gauss-Legendre panels between
all breaks. The cdfs at ``s`` do not depend on ``T``: those of all candidates at the nodes are computed once.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.models import OneDimensional
from haply.numerics.components import NORMAL, POINT, gap, smooth_window
from haply.numerics.grid import FARTHEST, trapezoid_step
from haply.numerics.jit import bare, kernel, solid
from haply.numerics.normal import SQRT_2PI, cut_anchor, cut_mass
from haply.numerics.rows import Components, row_cdf
from haply.probability.counts import candidate_lists
from haply.probability.quadrature import (
    GAIN,
    HIGH,
    LOW,
    MOST_BENDS,
    MOST_NODES,
    NODE,
    NODE_WEIGHT,
    Moving,
    Pieces,
    add_moving,
    most_pieces,
    only_bends,
    panel_plan,
    piece_breaks,
    room_for_moving,
    room_for_pieces,
    see,
    sort_breaks,
    start_again,
    survey,
    value_at,
    weights_before,
    write_density,
)

Direction = Literal["backward", "forward"]
_NOTHING = 1e-17
"""A probability too small to change a sum."""
_SHARE = 0.25
"""The share of a tolerance for each of four losses: two at the ends of the left time, one at those of the events, and
one for events before the place where the walk stopped."""
_WIDE = 0.25
"""A curve that takes this share of the time of all events is not a break."""
_ATOMS, _PANEL = np.int8(0), np.int8(1)


class LastEvents(NamedTuple):
    """The probability of each event to be the last before each left time."""

    probability: np.ndarray
    """The probability of each candidate to be the last event."""
    none: np.ndarray
    """For each left row the probability that there is no event."""


class EventBlocks(NamedTuple):
    """Room for the events of one left row in the order of time: runs of points, and panels of continuous times.

    For a block with ``size`` nodes from number ``at`` on, the tables have the values of candidate ``k`` of ``n`` at
    node ``e`` at place ``n * at + k * size + e``: ``cdf``, its mass before the node, and ``mass``, its mass there.
    ``place`` is the time of each node that is a point; ``lines``, ``change`` and ``lengths`` of a panel are what
    ``panel_plan`` needs.
    """

    kind: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    size: np.ndarray
    at: np.ndarray
    lines: np.ndarray
    change: np.ndarray
    lengths: np.ndarray
    place: np.ndarray
    cdf: np.ndarray
    mass: np.ndarray


class Bench(NamedTuple):
    """Arrays to work in: numbers for each node, and for each node of each candidate."""

    offset: np.ndarray
    out: np.ndarray
    cdf: np.ndarray
    mass: np.ndarray
    before: np.ndarray
    after: np.ndarray
    none: np.ndarray
    level: np.ndarray
    place: np.ndarray


class Desk(NamedTuple):
    """The events of one left row: how many candidates and blocks there are, and the arrays for them.

    The first ranges of ``pieces`` are passed by at the left time, the second half at the end of the lookback.
    """

    rows: int
    number: int
    lookback: float
    ordered: bool
    pieces: Pieces
    moving: Moving
    blocks: EventBlocks
    bench: Bench


@kernel
def _room_for_blocks(blocks, nodes, count):
    return EventBlocks(
        np.empty(blocks, np.int8), np.empty(blocks), np.empty(blocks), np.empty(blocks, np.int64),
        np.empty(blocks, np.int64), np.empty(blocks, np.int64), np.empty(blocks), np.empty(blocks), np.empty(nodes),
        np.empty(nodes * count), np.empty(nodes * count),
    )  # fmt: skip


@kernel
def _bench(count):
    size = MOST_NODES * (count + 1)
    return Bench(
        np.zeros(MOST_NODES), np.zeros(MOST_NODES), np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size),
        np.zeros(MOST_NODES), np.zeros(2 * count + 2), np.zeros(MOST_NODES),
    )  # fmt: skip


@bare
def _middle(rows, k):
    """Return a place inside a component."""
    return min(max(rows.mean[k], rows.low[k]), rows.high[k]) if rows.kind[k] == NORMAL else rows.low[k]


@bare
def _origin(a, i, b, candidates):
    """Return the origin of times: near the left time if all events are nearer to it than it is to 0.

    Narrow times far from 0 thus keep their digits. It is 0 if there are points, whose differences are compared as
    given.
    """
    origin = _middle(a, a.start[i])
    for k in range(a.start[i], a.start[i + 1]):
        if a.kind[k] == POINT or abs(_middle(a, k) - origin) > 0.5 * abs(origin):
            return 0.0
    for j in candidates:
        for k in range(b.start[j], b.start[j + 1]):
            if b.kind[k] == POINT or abs(_middle(b, k) - origin) > 0.5 * abs(origin):
                return 0.0
    return origin


@bare
def _reach(rows, i, origin):
    """Return the earliest and the latest time of a row, up to a probability of 1e-17."""
    first, last = math.inf, -math.inf
    for k in range(rows.start[i], rows.start[i + 1]):
        low, high, mean = gap(rows.low[k], origin, 0.0), gap(rows.high[k], origin, 0.0), gap(rows.mean[k], origin, 0.0)
        if rows.kind[k] == NORMAL:
            down, up, _ = smooth_window(mean, rows.sd[k], low, high)
            mode = min(max(mean, low), high)
            low, high = mode + down, mode + up
        first, last = min(first, low), max(last, high)
    return first, last


@bare
def _write_atoms(blocks, number, nodes, count, many, bench):
    """Write the run of points on the bench into a block."""
    if number < len(blocks.kind) and nodes + many <= len(blocks.place):
        blocks.kind[number], blocks.size[number], blocks.at[number] = _ATOMS, many, nodes
        blocks.begin[number], blocks.end[number] = bench.place[0], bench.place[many - 1]
        for e in range(many):
            blocks.place[nodes + e] = bench.place[e]
            for k in range(count):
                blocks.cdf[count * nodes + k * many + e] = bench.cdf[k * MOST_NODES + e]
                blocks.mass[count * nodes + k * many + e] = bench.mass[k * MOST_NODES + e]


@bare
def _add_atoms(pieces, count, x, ordered, rank, many, blocks, number, nodes, bench):
    """Add the points of all candidates at one time to the run on the bench.

    Returns how long the run is, and how many blocks and nodes there are. For a point of candidate ``j``, the points of
    another candidate at the same time are before it if their rank is lower.
    """
    for k in range(count):
        bench.before[k] = value_at(pieces, k, x, 0.0, False, ordered, bench.offset, bench.out)
        bench.after[k] = 0.0
        for p in range(pieces.at[k], pieces.start[k + 1]):
            if pieces.kind[p] == POINT and pieces.number[p, LOW] == x:
                bench.after[k] += pieces.number[p, GAIN]
            elif ordered and pieces.number[p, LOW] > x:
                break
    for j in range(count):
        if bench.after[j] > 0.0:
            if many == MOST_NODES:
                _write_atoms(blocks, number, nodes, count, many, bench)
                number, nodes, many = number + 1, nodes + many, 0
            bench.place[many] = x
            for k in range(count):
                earlier = rank[k] < rank[j] or (rank[k] == rank[j] and k < j)
                bench.cdf[k * MOST_NODES + many] = bench.before[k] + (bench.after[k] if earlier else 0.0)
                bench.mass[k * MOST_NODES + many] = bench.after[j] if k == j else 0.0
            many += 1
    return many, number, nodes


@bare
def _has_atoms(pieces, count, x, ordered):
    for k in range(count):
        for p in range(pieces.at[k], pieces.start[k + 1]):
            if pieces.kind[p] == POINT and pieces.number[p, LOW] == x:
                return True
            if ordered and pieces.number[p, LOW] > x:
                break
    return False


@bare
def _build(pieces, count, breaks, number_of_breaks, ordered, rank, moving, blocks, bench):
    """Write all events between breaks; return how many blocks and nodes are needed, also if there is no room."""
    number, nodes, many = 0, 0, 0
    for part in range(number_of_breaks):
        x = breaks[part]
        if _has_atoms(pieces, count, x, ordered):
            many, number, nodes = _add_atoms(pieces, count, x, ordered, rank, many, blocks, number, nodes, bench)
        if part + 1 == number_of_breaks:
            break
        begin, end = x, breaks[part + 1]
        _, lines, change, bends = survey(pieces, 0, count, 1, begin, end, ordered, -1.0, moving)
        if lines == 0 and bends == 0.0:
            continue
        if many > 0:
            _write_atoms(blocks, number, nodes, count, many, bench)
            number, nodes, many = number + 1, nodes + many, 0
        panels, size = panel_plan(max(0, lines - 1), change, math.sqrt(bends))
        width = (end - begin) / panels
        for panel in range(panels):
            if number < len(blocks.kind) and nodes + size <= len(blocks.place):
                base = begin + panel * width
                blocks.kind[number], blocks.size[number], blocks.at[number] = _PANEL, size, nodes
                blocks.lines[number], blocks.change[number] = max(0, lines - 1), change / panels
                blocks.lengths[number] = math.sqrt(bends) / panels
                blocks.begin[number] = base
                blocks.end[number] = end if panel == panels - 1 else begin + (panel + 1) * width
                _fill(
                    pieces, moving, count, begin, base, width, size, bench, blocks.cdf[count * nodes :],
                    blocks.mass[count * nodes :],
                )  # fmt: skip
            number, nodes = number + 1, nodes + size
    if many > 0:
        _write_atoms(blocks, number, nodes, count, many, bench)
        number, nodes = number + 1, nodes + many
    return number, nodes


@bare
def _fill(pieces, moving, count, begin, base, width, size, bench, cdf, mass):
    """Write the cdfs and the masses of all candidates at the nodes of a panel."""
    first = size * (size - 1) // 2
    for e in range(size):
        bench.offset[e] = width * NODE[first + e]
    for k in range(count):
        add_moving(pieces, moving, k, begin, base, bench.offset, size, cdf[k * size :])
        if write_density(pieces, moving, k, base, bench.offset, size, mass[k * size :]):
            for e in range(size):
                mass[k * size + e] *= width * NODE_WEIGHT[first + e]


@bare
def _gather(count, cdf, mass, size, first, last, weight, bench, probability):
    """Add the probabilities that the nodes ``first`` to ``last`` of a block contribute.

    ``bench.after`` is the probability of each candidate to be after the left time. A product over all others is made of
    the products over the candidates before and after, so that nothing is divided. Returns the probability that no event
    is after the first node.
    """
    after, before, rest = bench.after, bench.before, bench.none
    for e in range(first, last):
        before[e] = 1.0
        rest[e] = weight
    for k in range(count):
        here, now, following = cdf[k * size :], before[k * MOST_NODES :], before[(k + 1) * MOST_NODES :]
        free = after[k]
        for e in range(first, last):
            following[e] = now[e] * (free + here[e])
    none = before[count * MOST_NODES + first]
    for k in range(count - 1, -1, -1):
        here, there, now = cdf[k * size :], mass[k * size :], before[k * MOST_NODES :]
        free, total = after[k], 0.0
        for e in range(first, last):
            total += there[e] * now[e] * rest[e]
            rest[e] *= free + here[e]
        probability[k] += total
    return none


@bare
def _walk(weight, start, offset, top, desk, probability):
    """Add one left time, ``start + offset``: walk back in time over the blocks below ``top``.

    The panel that holds the time counts only up to it, and the one that holds the end of the lookback only from there
    on.
    """
    count, lookback, blocks, bench, moving = desk.rows, desk.lookback, desk.blocks, desk.bench, desk.moving
    t, lower = start + offset, -math.inf
    if lookback < math.inf:
        lower = (start - lookback) + offset
    for number in range(top - 1, -1, -1):
        size, at, begin, end = blocks.size[number], blocks.at[number], blocks.begin[number], blocks.end[number]
        cdf, mass = blocks.cdf[count * at :], blocks.mass[count * at :]
        first, last = 0, size
        if blocks.kind[number] == _ATOMS:
            while last > 0 and blocks.place[at + last - 1] > t:
                last -= 1
            while first < last and t - blocks.place[at + first] > lookback:
                first += 1
        elif end > t or begin < lower:
            base = max(begin, lower)
            width = (start - base) + offset if begin >= lower else min(end - lower, lookback)
            if not width > 0.0:
                continue
            share = min(1.0, width / (end - begin))
            _, size = panel_plan(blocks.lines[number], share * blocks.change[number], share * blocks.lengths[number])
            last, cdf, mass = size, bench.cdf, bench.mass
            ranges = 0 if end > t else count + 1
            survey(desk.pieces, ranges, count, 1, begin, end, desk.ordered, -1.0, moving)
            _fill(desk.pieces, moving, count, begin, base, width, size, bench, cdf, mass)
        if first < last:
            none = _gather(count, cdf, mass, size, first, last, weight, bench, probability)
            if none < _NOTHING:
                return
        if begin < lower:
            return


@bare
def _below(places, count, x):
    """Return how many of the first ``count`` places, which ascend, are below ``x``."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if places[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low


@bare
def _one_point(t, weight, desk, probability):
    """Add a left time that is certain; return the probability that there is no event."""
    start_again(desk.pieces, 2 * desk.rows + 2, desk.bench.level)
    blocks, bench = desk.blocks, desk.bench
    free, top = 1.0, _below(blocks.begin, desk.number, t)
    while top < desk.number and blocks.begin[top] <= t:
        top += 1
    for k in range(desk.rows):
        bench.after[k] = 1.0 - value_at(desk.pieces, k, t, 0.0, True, desk.ordered, bench.offset, bench.out)
        gone = 0.0
        if desk.lookback < math.inf:
            gone = value_at(
                desk.pieces, desk.rows + 1 + k, t, desk.lookback, False, desk.ordered, bench.offset, bench.out
            )
        free *= bench.after[k] + gone
    _walk(weight, t, 0.0, top, desk, probability)
    return weight * free


@bare
def _one_normal(mean, sd, weight, bends, desk, probability):
    """Add a normal left time among normal events, by the trapezoidal rule; return the probability of no event."""
    step, none = trapezoid_step(bends), 0.0
    last = math.floor(FARTHEST / step)
    for k in range(-last, last + 1):
        z = k * step
        share = weight * step * math.exp(-0.5 * z * z) / SQRT_2PI
        none += _one_point(mean + sd * z, share, desk, probability)
    return none


@bare
def _times(left, right, edges, number_of_edges, lookback, times):
    """Break a left time where an event may begin or end, or the lookback from it; return how many breaks there are."""
    times[0], times[1] = left, right
    many = 2
    for k in range(number_of_edges):
        if left < edges[k] < right:
            times[many] = edges[k]
            many += 1
        if left < edges[k] + lookback < right:
            times[many] = edges[k] + lookback
            many += 1
    return sort_breaks(times, many)


@bare
def _one_part(a, part, origin, edges, number_of_edges, times, table, desk, probability):
    """Add a uniform or normal component of a left time; return the probability that there is no event."""
    start_again(desk.pieces, 2 * desk.rows + 2, desk.bench.level)
    count, lookback, ordered = desk.rows, desk.lookback, desk.ordered
    pieces, moving, blocks, bench = desk.pieces, desk.moving, desk.blocks, desk.bench
    weight, sd, mean, curved = a.weight[part], a.sd[part], gap(a.mean[part], origin, 0.0), a.kind[part] == NORMAL
    low, high = gap(a.low[part], origin, 0.0), gap(a.high[part], origin, 0.0)
    left, right, scale, z0, mass = low, high, math.inf, 0.0, 1.0
    if curved:
        down, up, scale = smooth_window(mean, sd, low, high)
        mode = min(max(mean, low), high)
        left, right = mode + down, mode + up
        z0 = cut_anchor(mean, sd, low, high)
        mass = cut_mass(mean, sd, low, high, z0)
    many = _times(left, right, edges, number_of_edges, lookback, times)
    none, top = 0.0, 0
    for number_of_time in range(many - 1):
        begin, end = times[number_of_time], times[number_of_time + 1]
        middle = begin + 0.5 * (end - begin)
        while top < desk.number and blocks.begin[top] < middle:
            top += 1
        _, lines, change, bends = survey(pieces, 0, count, 1, begin, end, ordered, -1.0, moving)
        low_begin, low_end = begin - lookback, end - lookback
        if lookback < math.inf:
            # sums are rounded: the break at which the stretch begins or ends must not fall inside of it
            above = _below(edges, number_of_edges, middle - lookback)
            low_end = min(low_end, edges[above] if above < number_of_edges else math.inf)
            low_begin = max(low_begin, edges[above - 1] if above > 0 else -math.inf)
            _, low_lines, low_change, low_bends = survey(
                pieces, count + 1, count, 1, low_begin, low_end, ordered, -1.0, moving
            )
            lines, change, bends = lines + low_lines, change + low_change, bends + low_bends
        own = (end - begin) / scale
        # the time is both where events end and where cdfs are taken: their change counts twice
        panels, size = panel_plan(lines, 2.0 * change, math.sqrt(bends + own * own))
        width, first = (end - begin) / panels, size * (size - 1) // 2
        for panel in range(panels):
            base = begin + panel * width
            for e in range(size):
                bench.offset[e] = width * NODE[first + e]
            survey(pieces, 0, count, 1, begin, end, ordered, -1.0, moving)
            for k in range(count):
                add_moving(pieces, moving, k, begin, base, bench.offset, size, table[k * MOST_NODES :])
            if lookback < math.inf:
                survey(pieces, count + 1, count, 1, low_begin, low_end, ordered, -1.0, moving)
                for k in range(count):
                    gone = table[(count + k) * MOST_NODES :]
                    add_moving(pieces, moving, k, low_begin, base - lookback, bench.offset, size, gone)
            for e in range(size):
                share, offset = weight * NODE_WEIGHT[first + e] * (width / (right - left)), width * NODE[first + e]
                if curved:
                    z = (base - mean) / sd + offset / sd
                    density = math.exp(-0.5 * (z - z0) * (z + z0)) / (SQRT_2PI * mass)
                    share = weight * NODE_WEIGHT[first + e] * (width / sd) * density
                if share <= 0.0:
                    continue
                free = 1.0
                for k in range(count):
                    bench.after[k] = 1.0 - min(1.0, table[k * MOST_NODES + e])
                    free *= bench.after[k] + (table[(count + k) * MOST_NODES + e] if lookback < math.inf else 0.0)
                none += share * free
                _walk(share, base, offset, top, desk, probability)
    return none


@bare
def _breaks_of(pieces, count, first, last, breaks):
    """Write where pieces begin and end between two times; return how many breaks there are."""
    begin, end = math.inf, -math.inf
    for k in range(pieces.start[count]):
        begin, end = min(begin, max(pieces.number[k, LOW], first)), max(end, min(pieces.number[k, HIGH], last))
    if not begin <= end:
        return 0
    return piece_breaks(pieces, count, begin, end, _WIDE, breaks)


@kernel
def chances(a, b, start, candidates, rank, lookback):
    """Compute the probability of each candidate, and of no event, for all left rows."""
    rows, before = len(start) - 1, weights_before(b)
    most, components = most_pieces(b, start, candidates)
    pieces, moving = room_for_pieces(2 * most + 2, components), room_for_moving(most, components)
    bench, table = _bench(most), np.empty(2 * MOST_NODES * (most + 1))
    breaks = np.empty(2 * components + 4)
    blocks = _room_for_blocks(4 * components + 8, MOST_NODES * (most + 2) + 4 * components, most)
    edges, times = np.empty(len(breaks) + len(blocks.kind)), np.empty(2 * (len(breaks) + len(blocks.kind)) + 2)
    probability, none = np.zeros(len(candidates)), np.zeros(rows)
    for i in range(rows):
        count = start[i + 1] - start[i]
        if count == 0:
            none[i] = 1.0
            continue
        mine, ranks = candidates[start[i] : start[i + 1]], rank[start[i] : start[i + 1]]
        chances = probability[start[i] : start[i + 1]]
        origin = _origin(a, i, b, mine)
        first, last = _reach(a, i, origin)
        first -= lookback
        for c in range(count):
            see(b, before, mine[c], origin, 0.0, first, last, 1.0, pieces, c)
        for r in range(count + 1):
            bench.level[r] = bench.level[count + 1 + r] = pieces.level[r]
            pieces.start[count + 1 + r] = pieces.start[r]
        number_of_breaks = _breaks_of(pieces, count, first, last, breaks)
        number, nodes = _build(pieces, count, breaks, number_of_breaks, b.ordered, ranks, moving, blocks, bench)
        if number > len(blocks.kind) or nodes > len(blocks.place):
            blocks = _room_for_blocks(2 * number, 2 * nodes, most)
            edges = np.empty(len(breaks) + len(blocks.kind))
            times = np.empty(2 * len(edges) + 2)
            start_again(pieces, 2 * count + 2, bench.level)
            number, nodes = _build(pieces, count, breaks, number_of_breaks, b.ordered, ranks, moving, blocks, bench)
        edges[:number_of_breaks] = breaks[:number_of_breaks]
        edges[number_of_breaks : number_of_breaks + number] = blocks.begin[:number]
        number_of_edges = sort_breaks(edges, number_of_breaks + number)
        desk = Desk(count, number, lookback, b.ordered, pieces, moving, blocks, bench)
        for k in range(a.start[i], a.start[i + 1]):
            bends = math.inf
            if a.kind[k] == NORMAL and a.low[k] == -math.inf and a.high[k] == math.inf:
                bends = only_bends(pieces, count, 1, a.sd[k])
            if a.kind[k] == POINT:
                none[i] += _one_point(a.low[k], a.weight[k], desk, chances)
            elif bends <= MOST_BENDS:
                none[i] += _one_normal(gap(a.mean[k], origin, 0.0), a.sd[k], a.weight[k], bends, desk, chances)
            else:
                none[i] += _one_part(a, k, origin, edges, number_of_edges, times, table, desk, chances)
    return probability, none


@bare
def _none_between(b, walked, count, low, high):
    """Return the probability that none of some rows is in ``(low, high]``."""
    chance = 1.0
    for k in range(count):
        chance *= 1.0 - max(0.0, row_cdf(b, walked[k], high, True) - row_cdf(b, walked[k], low, True))
        if chance == 0.0:
            break
    return chance


@bare
def _walk_over(b, order, earliest, latest, newest, begin, end, low, high, oldest, budget, walked, ends):
    """Walk back from the end of a left time, which is between ``low`` and ``high``, over rows that may be the last.

    Rows ``begin`` to ``end`` of the order ascend by their earliest time; ``newest`` is the latest time of all rows up
    to a row. Rows not yet walked over are at or before ``newest``: one of them is the last only if none of the others
    is after that and at or before ``low``. Rows that end before ``oldest`` cannot be. Writes the rows walked over and
    their latest times; returns how many they are.
    """
    count, check, at, size = 0, 0, begin, end
    while at < size:  # find the first row that begins after the left time's end
        middle = (at + size) // 2
        if earliest[middle] <= high:
            at = middle + 1
        else:
            size = middle
    while at > begin:
        at -= 1
        if newest[at] < oldest:
            break
        if newest[at] <= low and count >= check:
            if _none_between(b, walked, count, newest[at], low) <= budget:
                break
            check = count + 1 + count // 8  # a product takes all rows: do not compute it after each row
        if latest[at] >= oldest:
            walked[count], ends[count] = order[at], latest[at]
            count += 1
    return count


@bare
def _needed(b, walked, ends, low, budget):
    """Return how many of the rows walked over, which descend by latest time, are needed; the others are too early."""
    fewest, most = 0, len(walked)
    while fewest < most:
        middle = (fewest + most) // 2
        if ends[middle] <= low and _none_between(b, walked, middle, ends[middle], low) <= budget:
            most = middle
        else:
            fewest = middle + 1
    return fewest


@kernel
def _candidate_rows(b, order, earliest, latest, newest, begins, ends_of, low, high, lookback, budget):
    """Find the candidates of all left rows; row ``i`` has its events in the order from ``begins[i]`` on."""
    rows = len(low)
    start = np.zeros(rows + 1, np.int64)
    found = np.empty(max(16, 4 * rows), np.int64)
    walked, ends = np.empty(len(order), np.int64), np.empty(len(order))
    for i in range(rows):
        count = _walk_over(
            b, order, earliest, latest, newest, begins[i], ends_of[i], low[i], high[i], low[i] - lookback, budget,
            walked, ends,
        )  # fmt: skip
        place = np.argsort(-ends[:count])
        by_end = walked[place]
        needed, at = _needed(b, by_end, ends[place], low[i], budget), start[i]
        if at + needed > len(found):
            more = np.empty(2 * (at + needed), np.int64)
            more[:at] = found[:at]
            found = more
        found[at : at + needed] = by_end[:needed]
        start[i + 1] = at + needed
    return start, found[: start[-1]].copy()


@kernel
def _newest_of_key(latest, keys):
    """Return for each event of an order the latest time of all events with its key up to it."""
    out = np.empty(len(latest))
    for k in range(len(latest)):
        out[k] = latest[k] if k == 0 or keys[k] != keys[k - 1] else max(out[k - 1], latest[k])
    return out


class EventOrder(NamedTuple):
    """Events in the order of keys and earliest times, and where the events of each left row begin and end in it."""

    order: np.ndarray
    earliest: np.ndarray
    latest: np.ndarray
    newest: np.ndarray
    """The latest time of all events with the event's key up to it."""
    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, earliest: np.ndarray, latest: np.ndarray, left_key: Any, right_key: Any, left_rows: int) -> EventOrder:
        """Sort events by their earliest time; without keys all events have the same key."""
        keys = np.zeros(len(earliest), np.int64) if right_key is None else np.asarray(right_key, np.int64)
        asked = np.zeros(left_rows, np.int64) if left_key is None else np.asarray(left_key, np.int64)
        order = np.lexsort((earliest, keys))
        keys, latest = keys[order], latest[order]
        begins, ends = np.searchsorted(keys, asked, "left"), np.searchsorted(keys, asked, "right")
        return cls(order, earliest[order], latest, _newest_of_key(latest, keys), begins, ends)


def negated(rows: Components) -> Components:
    """Return the components of ``-X``, in each row in reverse order, so that they ascend if those of ``X`` do."""
    count = np.diff(rows.start)
    turn = np.repeat(rows.start[:-1] + rows.start[1:] - 1, count) - np.arange(len(rows.weight))
    return Components(
        rows.start,
        rows.weight[turn],
        rows.kind[turn],
        -rows.high[turn],
        -rows.low[turn],
        -rows.mean[turn],
        rows.sd[turn],
        rows.ordered,
    )


def _turned(left: OneDimensional, right: OneDimensional, direction: Direction) -> tuple[Components, Components]:
    if direction not in ("backward", "forward"):
        raise HaplyError("A direction is unknown", expected="'backward' or 'forward'", found=repr(direction))
    if direction == "backward":
        return left.components, right.components
    return negated(left.components), negated(right.components)


def lookback_of(lookback: float | None) -> float:
    """Return the largest distance of an event: infinite if none is given."""
    if lookback is None:
        return math.inf
    if not lookback >= 0.0:
        raise HaplyError("A lookback is negative or NaN", expected="lookback >= 0", found=str(lookback))
    return float(lookback)


def ranked_candidates(
    start: Any, candidates: Any, rank: Any, left: int, right: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check lists of candidates and their ranks, which are their row numbers if none are given."""
    begins, rows = candidate_lists(start, candidates, left, right)
    ranks = rows.astype(np.float64) if rank is None else solid(rank)
    if len(ranks) != len(rows):
        raise HaplyError("Ranks do not fit", expected=f"{len(rows)} numbers", found=str(len(ranks)))
    return begins, rows, ranks


def last_events(
    left: OneDimensional, right: OneDimensional, start: Any, candidates: Any, *, rank: Any = None,
    lookback: float | None = None, direction: Direction = "backward",
) -> LastEvents:  # fmt: skip
    """Compute how likely each candidate is the last event at or before an uncertain time.

    Parameters
    ----------
    left, right
        One-dimensional models of any kinds: the times asked about, and the times of events.
    start, candidates
        Which events there are for a left row: those of row ``i`` are ``candidates[start[i]:start[i + 1]]``, in any
        order.
    rank
        For each candidate a number: of two events at one time the one of the higher rank is the last; if ranks are
        equal, the later one among the candidates. By default the numbers of the right rows.
    lookback
        How far back an event may be, at most; by default any time.
    direction
        ``"forward"`` asks for the first event at or after the time instead. Ranks decide ties as before.

    Returns
    -------
    LastEvents
        The probability of each candidate, and for each left row that there is no event. They sum to 1.

    Examples
    --------
    >>> from haply.models import Uniform
    >>> found = last_events(Uniform(4, 6), Uniform([0, 2, 5], [3, 5, 7]), [0, 3], [0, 1, 2])
    >>> (144 * found.probability).round(9), found.none
    (array([ 19., 107.,  18.]), array([0.]))
    """
    begins, rows, ranks = ranked_candidates(start, candidates, rank, len(left), len(right))
    return LastEvents(*chances(*_turned(left, right, direction), begins, rows, ranks, lookback_of(lookback)))


def event_candidates(
    left: OneDimensional, right: OneDimensional, *, tolerance: float = 1e-9, lookback: float | None = None,
    direction: Direction = "backward", left_key: Any = None, right_key: Any = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Find for each left time the events that may be the last before it.

    Parameters
    ----------
    left, right
        One-dimensional models of any kinds: the times asked about, and the times of events.
    tolerance
        All events left out together are the last with at most this probability.
    lookback, direction
        As in ``last_events``.
    left_key, right_key
        Whole numbers: only events with the key of the left row count. By default all do.

    Returns
    -------
    tuple of numpy.ndarray
        ``start`` and ``candidates``, as ``last_events`` takes them. The latest events come first.
    """
    lookback = lookback_of(lookback)
    _, events = _turned(left, right, direction)
    share = _SHARE * tolerance
    single = 0.5 * share / max(1, len(right))  # one share for each end of each event
    low, high = left.quantile_low(share), left.quantile_high(share)
    earliest, latest = right.quantile_low(single), right.quantile_high(single)
    if direction == "forward":
        low, high, earliest, latest = -high, -low, -latest, -earliest
    ordered = EventOrder.of(earliest, latest, left_key, right_key, len(left))
    return _candidate_rows(events, *ordered, low, high, lookback, share)
