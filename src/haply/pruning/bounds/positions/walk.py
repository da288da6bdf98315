"""The walk through the sorted rows of one side, beside runs of the other's."""

from __future__ import annotations

import math

from haply.numerics.jit import bare, bare_inner
from haply.pruning.bounds.positions.rules import CANDIDATES, COUNTS, EVALUATED, INSIDE, REACH, SLACK
from haply.pruning.bounds.positions.verdicts import mixed_verdict, pair_verdict
from haply.pruning.ownership import owns


@bare_inner
def first_of_run(key, right_key, cursor, k):
    """Move cursor ``k`` to the first right row whose cell is next to a cell; return it, and the first such cell."""
    j, low = cursor[k], key - 1
    while j < len(right_key) and right_key[j] < low:
        j += 1
    cursor[k] = j
    return j, low


@bare_inner
def in_reach(dim, left, i, right, j, mixed, placed, limit, counts):
    """Return the squared distance of the centres of a pair if this cell owns it and they are near enough, else -1.

    Such a pair is counted as a candidate.
    """
    if placed:
        if not owns(left.begins[i], left.begins_here[i], right.begins[j], right.begins_here[j]):
            return -1.0
        if len(left.group) > 0 and left.group[i] != right.group[j]:
            return -1.0
    away, last = 0.0, left.near.shape[1] - 1
    for c in range(dim):
        apart = left.near[i, c] - right.near[j, c]
        away += apart * apart
    counts[CANDIDATES] += 1
    if too_far(away, left.near[i, last], right.near[j, last], mixed, limit):
        counts[REACH] += 1
        return -1.0
    return away


@bare
def walk(dim, left, left_key, begin, right, right_key, offset, cursor, mixed, placed, limit, room, out, found, counts):
    """Write the pairs of the left rows from ``begin`` on; return the row to go on with, and how many pairs there are.

    ``cursor[k]`` is the begin of the run of right rows whose cells are ``offset[k]`` away, one before to one after.
    """
    total = len(right_key)
    for i in range(begin, len(left_key)):
        mark = found
        for c in range(COUNTS):
            counts[COUNTS + c] = counts[c]
        for k in range(len(offset)):
            j, low = first_of_run(left_key[i] + offset[k], right_key, cursor, k)
            while j < total and right_key[j] <= low + 2:
                if in_reach(dim, left, i, right, j, mixed, placed, limit, counts) >= 0.0:
                    if limit.all_near:
                        rule, chance = INSIDE, math.nan
                    elif mixed:
                        rule, chance = mixed_verdict(dim, left, i, right, j, limit, room)
                    else:
                        rule, chance = pair_verdict(dim, left.near[i], right.near[j], limit, room)
                    if rule < 0:
                        counts[-rule] += 1
                    else:
                        counts[rule if rule > 0 else EVALUATED] += 1
                        if rule > 0 or chance >= limit.keep_from:
                            if found == len(out.left):  # repeat this row when there is room
                                for c in range(COUNTS):
                                    counts[c] = counts[COUNTS + c]
                                return i, mark
                            out.left[found], out.right[found] = left.label[i], right.label[j]
                            out.probability[found] = chance if limit.exact else math.nan
                            out.code[found] = rule
                            found += 1
                j += 1
    return len(left_key), found


@bare_inner
def too_far(away_square, one, other, mixed, limit):
    """Tell whether centres are too far apart for the reach of two rows: the variances of two normals add up."""
    if away_square <= limit.square:
        return False
    beyond = math.sqrt(away_square) - limit.radius
    reach = one + other
    if mixed:
        return beyond > reach + SLACK * (limit.radius + reach)
    return beyond * beyond > (one * one + other * other) * (1.0 + 1e-12) + SLACK * limit.square
