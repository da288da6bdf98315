"""The walk where only the best pairs of each row are wanted."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare, bare_inner
from haply.numerics.multivariate.disc import FLAT_ENOUGH, plane_of
from haply.pruning.best import MARGIN, Best, hold
from haply.pruning.bounds.discs import along_at_most, disc_at_most, half_space_at_most
from haply.pruning.bounds.positions.rules import COUNTS, EVALUATED, LEFT_OUT, SLAB
from haply.pruning.bounds.positions.sides import FIRST_ROOM
from haply.pruning.bounds.positions.verdicts import difference_of, half_space, mixed_verdict, pair_verdict, slab_verdict
from haply.pruning.bounds.positions.walk import first_of_run, in_reach

_NEEDLESS = 8
"""If both sides are ranked, up to this many candidates for each wanted pair of a row are computed without bounds."""


class BestRows(NamedTuple):
    """Probabilities that the best pairs of rows reach, and room for the candidates of one row.

    ``left`` and ``right`` have for each row a probability that as many of its pairs reach as are wanted; ``right`` is
    empty if only the best pairs of left rows matter. ``upper`` are bounds of the candidates at ``at``, as a heap.
    """

    left: np.ndarray
    right: np.ndarray
    held: np.ndarray
    at: np.ndarray
    upper: np.ndarray
    swapped: bool
    """Whether the left rows are those of the right side."""

    @classmethod
    def of(cls, best: Best, left: int, right: int, swapped: bool) -> BestRows:
        """Make it for rows of both sides before any pair is known."""
        others = np.full(right if 1 in best.sides else 0, -np.inf)
        size = FIRST_ROOM
        return cls(np.full(left, -np.inf), others, np.empty(best.k), np.empty(size, np.int64), np.empty(size), swapped)

    def grown(self) -> BestRows:
        """Return the same with twice the room."""
        size = 2 * len(self.at)
        return self._replace(at=np.empty(size, np.int64), upper=np.empty(size))


@bare_inner
def _push(heap, at, upper, count):
    """Add a candidate to a heap with the largest bound first."""
    place = count
    while place > 0:
        above = (place - 1) >> 1
        if heap.upper[above] >= upper:
            break
        heap.upper[place], heap.at[place] = heap.upper[above], heap.at[above]
        place = above
    heap.upper[place], heap.at[place] = upper, at


@bare_inner
def _pop(heap, last):
    """Remove the first candidate of a heap: the last one, at ``last``, takes its place and sinks."""
    upper, at, place = heap.upper[last], heap.at[last], 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        if below + 1 < last and heap.upper[below + 1] > heap.upper[below]:
            below += 1
        if heap.upper[below] <= upper:
            break
        heap.upper[place], heap.at[place] = heap.upper[below], heap.at[below]
        place = below
    heap.upper[place], heap.at[place] = upper, at


@bare_inner
def _outside(away, along, limit, least):
    """Do as ``_bound`` by the half-space alone that holds the ball.

    Where ``least`` is above the threshold it decides both, whether a pair is kept and whether it is beaten: two tests
    would be two branches that a processor cannot predict.
    """
    if least >= limit.reject_below:
        return 0, half_space_at_most(away, along, limit.radius)
    return (-SLAB, 0.0) if slab_verdict(away, along, limit) else (0, 1.0)


@bare_inner
def _bound(dim, left, i, right, j, mixed, limit, room, least):
    """Return the rule that rejects a pair (negative) or 0, and an upper bound on its probability.

    A bound below ``least`` need not be a close one: most often the half-space that holds the ball is enough.
    """
    if mixed:
        most = 0.0
        for k in range(left.first[i], left.first[i] + left.many[i]):
            for m in range(right.first[j], right.first[j] + right.many[j]):
                share = left.weight[k] * right.weight[m]
                most += share * half_space(dim, left.packed[k], right.packed[m], limit, room)
        return (-SLAB if most < limit.reject_below - 1e-14 else 0), most
    one, other = left.near[i], right.near[j]
    if dim == 2:
        x, y = one[0] - other[0], one[1] - other[1]
        xx, xy, yy = one[2] + other[2], one[3] + other[3], one[4] + other[4]
        away, along = x * x + y * y, x * x * xx + 2.0 * x * y * xy + y * y * yy
        rule, most = _outside(away, along, limit, least)
        if rule < 0 or most < least:
            return rule, most
        return 0, disc_at_most(x, y, xx, xy, yy, limit.square)
    if dim == 3:
        x, y, z = one[0] - other[0], one[1] - other[1], one[2] - other[2]
        xx, xy, xz = one[3] + other[3], one[4] + other[4], one[5] + other[5]
        yy, yz, zz = one[6] + other[6], one[7] + other[7], one[8] + other[8]
        along = x * (x * xx + 2.0 * (y * xy + z * xz)) + y * (y * yy + 2.0 * z * yz) + z * z * zz
        away = x * x + y * y + z * z
        rule, most = _outside(away, along, limit, least)
        if rule < 0 or most < least:
            return rule, most
        u, v, uu, uv, vv, off, change = plane_of(x, y, z, xx, xy, xz, yy, yz, zz)
        if change <= FLAT_ENOUGH and off <= limit.square:
            return 0, disc_at_most(u, v, uu, uv, vv, limit.square - off)
        return 0, along_at_most(away, along, limit.radius)
    away, along = difference_of(dim, one, other, room), 0.0
    for c in range(dim):
        for d in range(dim):
            along += room.mean[c] * room.cov[c, d] * room.mean[d]
    rule, most = _outside(away, along, limit, least)
    return (rule, most) if rule < 0 or most < least else (0, along_at_most(away, along, limit.radius))


@bare_inner
def _bounded(dim, left, i, right, begin, count, mixed, limit, room, counts, best):
    """Make a heap of a row's candidates from ``begin`` on that bounds do not reject; return how many there are.

    If there are no more candidates than wanted pairs, none can be beaten, and bounds are not computed. If a pair must
    be beaten on both sides, few are, and bounds of few candidates cost more than they save.
    """
    mine_best, kept = best.left[left.label[i]], 0
    needless = len(best.held) if len(best.right) == 0 else _NEEDLESS * len(best.held)
    for n in range(begin, count):
        j = best.at[n]
        theirs = best.right[right.label[j]] if len(best.right) > 0 else math.inf
        rule, upper, least = 0, 1.0, min(mine_best, theirs) - MARGIN
        if count > needless:
            rule, upper = _bound(dim, left, i, right, j, mixed, limit, room, least)
        if rule < 0:
            counts[-rule] += 1
        elif upper < least:
            counts[LEFT_OUT] += 1
        else:
            _push(best, j, upper, kept)
            kept += 1
    return kept


@bare
def walk_best(
    dim, left, left_key, begin, right, right_key, offset, cursor, mixed, placed, limit, room, out, found, counts, best
):
    """Do as ``walk`` if only the best pairs of a row are wanted: its candidates are computed by falling bounds.

    The nearest candidate comes first, without a bound: most often no other is better. A pair is skipped if its bound is
    below the probability that enough pairs of its row reach; with two sides, of both rows.
    """
    total, both = len(right_key), len(best.right) > 0
    for i in range(begin, len(left_key)):
        mark, count, nearest, least = found, 0, 0, math.inf
        for c in range(COUNTS):
            counts[COUNTS + c] = counts[c]
        for k in range(len(offset)):
            j, low = first_of_run(left_key[i] + offset[k], right_key, cursor, k)
            while j < total and right_key[j] <= low + 2:
                away = in_reach(dim, left, i, right, j, mixed, placed, limit, counts)
                if away >= 0.0:
                    if count == len(best.at):  # repeat this row when there is room
                        for c in range(COUNTS):
                            counts[c] = counts[COUNTS + c]
                        return i, mark
                    best.at[count] = j
                    if away < least:
                        least, nearest = away, count
                    count += 1
                j += 1
        if count == 0:  # no candidates: the row's probability stays as it is
            continue
        held, kept, rest = 0, 0, 0
        if best.left[left.label[i]] == -math.inf:
            j = best.at[nearest]
            best.at[nearest] = best.at[0]
            best.at[0], best.upper[0], kept, rest = j, 1.0, 1, 1
        while kept > 0 or rest < count:
            if kept == 0:
                kept = _bounded(dim, left, i, right, rest, count, mixed, limit, room, counts, best)
                rest = count
                continue
            j, upper, mine_best = best.at[0], best.upper[0], best.left[left.label[i]]
            theirs = best.right[right.label[j]] if both else math.inf
            if upper < min(mine_best, theirs) - MARGIN:
                if not both:  # all others are beaten, too
                    counts[LEFT_OUT] += kept
                    break
                counts[LEFT_OUT] += 1
            else:
                if mixed and best.swapped:  # in the order that is not swapped, for equal bits
                    rule, chance = mixed_verdict(dim, right, j, left, i, limit, room)
                elif mixed:
                    rule, chance = mixed_verdict(dim, left, i, right, j, limit, room)
                else:  # one call, not two: the compiler then inlines it
                    one, other = left.near[i], right.near[j]
                    if best.swapped:
                        one, other = other, one
                    rule, chance = pair_verdict(dim, one, other, limit, room)
                counts[-rule if rule < 0 else rule if rule > 0 else EVALUATED] += 1
                if rule > 0 or (rule == 0 and chance >= limit.keep_from):
                    if found == len(out.left):
                        for c in range(COUNTS):
                            counts[c] = counts[COUNTS + c]
                        return i, mark
                    out.left[found], out.right[found] = left.label[i], right.label[j]
                    out.probability[found], out.code[found] = chance, rule
                    found += 1
                    held = hold(chance, best.held, held)
                    if held == len(best.held):
                        best.left[left.label[i]] = max(mine_best, best.held[held - 1])
                    if both:
                        best.right[right.label[j]] = max(theirs, chance)
            kept -= 1
            if kept > 0:
                _pop(best, kept)
        if found > mark + 1:
            found = _without_beaten(out, mark, found, best.left[left.label[i]], best)
    return len(left_key), found


@bare_inner
def _without_beaten(out, begin, end, mine_best, best):
    """Leave out pairs of one row that others have beaten since they were computed; return how many are left."""
    kept = begin
    for k in range(begin, end):
        wanted = out.probability[k] >= mine_best - MARGIN
        if len(best.right) > 0:
            wanted = wanted or out.probability[k] >= best.right[out.right[k]] - MARGIN
        if wanted:
            out.left[kept], out.right[kept] = out.left[k], out.right[k]
            out.probability[kept], out.code[kept] = out.probability[k], out.code[k]
            kept += 1
    return kept
