"""One-to-one worlds: every row has at most one partner, and the weight of a world is the product over its pairs.

A world is a partial matching of left and right rows; having no partner has the weight 1. ``best_world`` is the heaviest
world. ``marginals`` gives the probability of each pair in a world drawn by weight:
``P(i ~ j) = w_ij Z(G - i - j) / Z(G)`` with ``Z`` the weight of all worlds. Both work on each connected component by
itself.

Marginals are exact where a component is a tree (by messages along it), or where few columns are open at once (by
subsets of these). For others, ``x_v(G) = P(v has no partner)`` has ``x_v(G) = 1 / (1 + sum_u w_vu x_u(G - v))``: cut at
any depth, the recursion gives bounds from both sides. Nothing is ever subtracted, so that small numbers keep their
relative digits, and weights may be as large as 1e300.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.numerics.jit import bare, kernel

DECIDED_BY = ("tree", "subsets", "bracket")
"""How a pair or a row was decided: by messages along a tree, subsets of open columns, or bounds from both sides."""
TREE, SUBSETS, BRACKET = np.int8(0), np.int8(1), np.int8(2)
TOLERANCE = 1e-6
BUDGET = 10_000
"""Steps of bounds for each row of either side: they take some tenths of a millisecond."""
MOST_OPEN, MOST_STATES = 16, 1 << 28
"""How many columns may be open at once for subsets, and how many subsets all rows of a component may have."""
TABLE = 1 << 21
"""How many subsets are kept at a time: 16 megabytes."""
MOST_WEIGHT = 1e300
"""The largest weight: sums of weights are then in the range of doubles."""
_PLAIN = 500.0
"""If the weight of all worlds is at most ``exp`` of this, weights are not scaled."""
_STAGES = (range(0), range(3, 5), range(5, 10_000))
"""Depths of the search before weak pairs are left out, after the first time, and after the second. The first two steps
need no search."""
_DROPPED = 0.2
"""The share of the tolerance for the pairs that are left out each time."""
_CUTOFF = 1e-3
"""Branches whose share of the answer is below this part of the tolerance are not followed."""
_OUTWARDS = 1e-13
"""Bounds are widened by this share, so that rounding cannot make them wrong."""


@kernel
def shares_of_rows(odds, factor, rows, count):
    """Compute how likely pairs are, each against all others of its left row and none, and how likely any is, by row.

    A pair weighs ``odds * factor``. A factor is infinite where two certain values are equal: such pairs share the
    whole probability. ``rows`` are numbers below ``count``.
    """
    total, endless = np.zeros(count), np.zeros(count)
    shares, some = np.empty(len(rows)), np.empty(count)
    for pair in range(len(rows)):
        shares[pair] = odds * factor[pair]
        if shares[pair] == np.inf:
            endless[rows[pair]] += 1.0
        else:
            total[rows[pair]] += shares[pair]
    for pair in range(len(rows)):
        row = rows[pair]
        if endless[row] == 0.0:
            shares[pair] /= 1.0 + total[row]
        else:
            shares[pair] = 1.0 / endless[row] if shares[pair] == np.inf else 0.0
    for row in range(count):
        some[row] = total[row] / (1.0 + total[row]) if endless[row] == 0.0 else 1.0
    return shares, some


class PairGroups(NamedTuple):
    """Connected components: the number of the component of every left and right row, or -1 for rows without a pair.

    Components are numbered in the order of their first left rows.
    """

    left: np.ndarray
    right: np.ndarray
    groups: int


class Brackets(NamedTuple):
    """Lower and upper bounds of probabilities; equal where they are exact."""

    low: np.ndarray
    high: np.ndarray


class Marginals(NamedTuple):
    """Bounds of the probability of pairs, and of rows without a partner; and what decided it, as in ``DECIDED_BY``."""

    pairs: Brackets
    unmatched_left: Brackets
    unmatched_right: Brackets
    decided_by: np.ndarray
    left_decided_by: np.ndarray
    right_decided_by: np.ndarray


class Links(NamedTuple):
    """Pairs by both of their nodes: those of node ``v`` are at ``start[v]:start[v + 1]``, in the given order.

    Nodes are the left rows, then the right ones. ``target`` is the other end, ``pair`` the number of the pair, ``back``
    the place of the same pair at the other end.
    """

    start: np.ndarray
    target: np.ndarray
    pair: np.ndarray
    back: np.ndarray
    weight: np.ndarray
    n_left: int


class Islands(NamedTuple):
    """Nodes by component, each from its first left row outwards: those of ``c`` are at ``start[c]:start[c + 1]``.

    ``label`` is the component of a node, or -1; ``parent`` is the place of the link by which a node was reached, or -1.
    """

    start: np.ndarray
    nodes: np.ndarray
    label: np.ndarray
    parent: np.ndarray


@kernel
def _link(left, right, weight, n_left, n_right):
    start = np.zeros(n_left + n_right + 1, np.int64)
    for e in range(len(left)):
        start[left[e] + 1] += 1
        start[n_left + right[e] + 1] += 1
    for v in range(n_left + n_right):
        start[v + 1] += start[v]
    at, places = start[:-1].copy(), 2 * len(left)
    target, pair, back = np.empty(places, np.int64), np.empty(places, np.int64), np.empty(places, np.int64)
    weights = np.empty(places)
    for e in range(len(left)):
        i, j = left[e], n_left + right[e]
        here, there = at[i], at[j]
        target[here], pair[here], back[here], weights[here] = j, e, there, weight[e]
        target[there], pair[there], back[there], weights[there] = i, e, here, weight[e]
        at[i] += 1
        at[j] += 1
    return Links(start, target, pair, back, weights, n_left)


@kernel
def _split(links):
    """Return components, found by walking outwards from every left row that was not reached yet."""
    count = len(links.start) - 1
    label, parent = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    nodes, starts = np.empty(count, np.int64), np.empty(links.n_left + 1, np.int64)
    size, found = 0, 0
    for root in range(links.n_left):
        if label[root] >= 0 or links.start[root] == links.start[root + 1]:
            continue
        starts[found], label[root], nodes[size], head = size, found, root, size
        size += 1
        while head < size:
            v = nodes[head]
            head += 1
            for at in range(links.start[v], links.start[v + 1]):
                u = links.target[at]
                if label[u] < 0:
                    label[u], parent[u], nodes[size] = found, at, u
                    size += 1
        found += 1
    starts[found] = size
    return Islands(starts[: found + 1].copy(), nodes[:size].copy(), label, parent)


# -- the best world ---------------------------------------------------------------------------------------------------


@bare
def _push(distance, column, size, d, c):
    """Push an entry into a heap, in the order of distance, then column."""
    k = size
    while k > 0:
        up = (k - 1) >> 1
        if distance[up] < d or (distance[up] == d and column[up] <= c):
            break
        distance[k], column[k] = distance[up], column[up]
        k = up
    distance[k], column[k] = d, c
    return size + 1


@bare
def _pop(distance, column, size):
    """Remove the first entry of a heap."""
    size -= 1
    d, c, k = distance[size], column[size], 0
    while True:
        down = 2 * k + 1
        if down >= size:
            break
        other = down + 1
        if other < size and (
            distance[other] < distance[down] or (distance[other] == distance[down] and column[other] < column[down])
        ):
            down = other
        if d < distance[down] or (d == distance[down] and c <= column[down]):
            break
        distance[k], column[k] = distance[down], column[down]
        k = down
    distance[k], column[k] = d, c
    return size


@kernel
def _assign(links):
    """Find the heaviest set of pairs without a common row, for weights that add up, from pairs with a weight > 0.

    Rows are added one after the other. Each looks for the cheapest change of the pairs chosen so far (Dijkstra over
    slacks, Kuhn's Hungarian method): to a free column, or to a row that then stays alone. ``value`` is a price of every
    node, at least 0, with ``value_i + value_j >= w_ij`` and equality for chosen pairs; rows and columns that stay alone
    have 0.

    Returns the place of the chosen pair in the links of each left row, or -1, and the prices.
    """
    count, n_left = len(links.start) - 1, links.n_left
    value, chosen, owner = np.zeros(count), np.full(n_left, -1, np.int64), np.full(count, -1, np.int64)
    distance, via, reached = np.full(count, np.inf), np.empty(count, np.int64), np.empty(count, np.int64)
    settled = np.zeros(count, np.bool_)
    heap_distance, heap_column = np.empty(len(links.target) + 1), np.empty(len(links.target) + 1, np.int64)
    for root in range(n_left):
        value[root] = 0.0
        for at in range(links.start[root], links.start[root + 1]):
            value[root] = max(value[root], links.weight[at] - value[links.target[at]])
        if value[root] == 0.0:
            continue
        row, here, touched, size, free = root, 0.0, 0, 0, -1
        alone, shortest = root, value[root]  # the row that would stay alone, and its cost
        distance[root] = 0.0
        reached[0] = root
        touched = 1
        while True:
            for at in range(links.start[row], links.start[row + 1]):
                c = links.target[at]
                if settled[c] or not (links.weight[at] > 0.0):
                    continue
                d = here + max(0.0, value[row] + value[c] - links.weight[at])
                if d < distance[c]:
                    if distance[c] == np.inf:
                        reached[touched] = c
                        touched += 1
                    distance[c], via[c] = d, at
                    if d <= shortest:
                        size = _push(heap_distance, heap_column, size, d, c)
            while size > 0 and settled[heap_column[0]]:
                size = _pop(heap_distance, heap_column, size)
            if size == 0 or heap_distance[0] > shortest:
                break
            here, c = heap_distance[0], heap_column[0]
            size = _pop(heap_distance, heap_column, size)
            settled[c] = True
            if owner[c] < 0:
                free, shortest = c, here
                break
            row = owner[c]
            distance[row] = here
            reached[touched] = row
            touched += 1
            if here + value[row] < shortest:
                alone, shortest = row, here + value[row]
        for k in range(touched):
            v = reached[k]
            if distance[v] < shortest and (v < n_left or settled[v]):
                value[v] += (distance[v] - shortest) if v < n_left else (shortest - distance[v])
                value[v] = max(0.0, value[v])
            distance[v], settled[v] = np.inf, False
        c = free
        if free < 0:  # the row that stays alone leaves its column to the row that reached it
            c = -1 if chosen[alone] < 0 else links.target[chosen[alone]]
            chosen[alone], value[alone] = -1, 0.0
        while c >= 0:
            row = links.target[links.back[via[c]]]
            before = -1 if chosen[row] < 0 else links.target[chosen[row]]
            chosen[row], owner[c] = via[c], row
            c = before if row != root else -1
    return chosen, value


# -- trees ------------------------------------------------------------------------------------------------------------


@bare
def _tree(links, islands, c, upward, downward, before, likely, alone):
    """Compute the marginals of a component that is a tree, in two passes.

    The message from ``v`` to its neighbour ``u`` is ``w_vu x_v(G - u) = w_vu / (1 + the other messages to v)``.
    """
    first, last = islands.start[c], islands.start[c + 1]
    for k in range(last - 1, first, -1):
        v = islands.nodes[k]
        total, up = 0.0, links.pair[islands.parent[v]]
        for at in range(links.start[v], links.start[v + 1]):
            if links.pair[at] != up:
                total += upward[links.target[at]]
        upward[v] = links.weight[islands.parent[v]] / (1.0 + total)
    for k in range(first, last):
        v = islands.nodes[k]
        up = links.pair[islands.parent[v]] if islands.parent[v] >= 0 else -1
        total = 0.0
        for at in range(links.start[v], links.start[v + 1]):  # sums of the messages before each, and then after it
            before[at] = total
            total += downward[v] if links.pair[at] == up else upward[links.target[at]]
        alone[v] = 1.0 / (1.0 + total)
        after = 0.0
        for at in range(links.start[v + 1] - 1, links.start[v] - 1, -1):
            if links.pair[at] == up:
                after += downward[v]
                continue
            u = links.target[at]
            likely[links.pair[at]] = upward[u] / (1.0 + total)
            downward[u] = links.weight[at] / (1.0 + (before[at] + after))
            after += upward[u]


# -- subsets of open columns ------------------------------------------------------------------------------------------


@bare
def _row_order(links, nodes, by_left, open_nodes, remaining, seen, order):
    """Order the rows of a component so that few columns are open: met by an earlier row, and by a later one.

    The first row is a far one. The next is a row beside an open column that opens the fewest and closes the most.
    Returns the number of rows, and the most open columns at once: -1 if these, or all their subsets, are too many.
    """
    count, first = 0, -1
    for k in range(len(nodes)):
        v = nodes[k]
        seen[v], remaining[v] = False, links.start[v + 1] - links.start[v]
        if (v < links.n_left) == by_left:
            count, first = count + 1, v
    size, widest, states = 0, 0, 0
    for step in range(count):
        best, least = first, 0
        if step > 0:
            best = -1
            for k in range(size):
                for at in range(links.start[open_nodes[k]], links.start[open_nodes[k] + 1]):
                    row = links.target[at]
                    if seen[row]:
                        continue
                    score = 0
                    for other in range(links.start[row], links.start[row + 1]):
                        column = links.target[other]
                        score += (0 if seen[column] else 1) - (1 if remaining[column] == 1 else 0)
                    if best < 0 or score < least:
                        best, least = row, score
        seen[best], order[step] = True, best
        for at in range(links.start[best], links.start[best + 1]):
            column = links.target[at]
            remaining[column] -= 1
            if not seen[column]:
                if size == len(open_nodes):
                    return count, -1
                seen[column], open_nodes[size] = True, column
                size += 1
        widest, states = max(widest, size), states + (1 << size)
        if states > MOST_STATES:
            return count, -1
        kept = 0
        for k in range(size):
            if remaining[open_nodes[k]] > 0:
                open_nodes[kept] = open_nodes[k]
                kept += 1
        size = kept
    return count, widest


@bare
def _place(nodes, size, node):
    for k in range(size):
        if nodes[k] == node:
            return k
    return -1


@bare
def _through(links, row, layout, size, before, scaled, spare, after):
    """Write ``after[S] = spare * before[S] + sum over the row's columns c in S of w_c before[S - c]``."""
    n = 1 << size
    for s in range(n):
        after[s] = spare[row] * before[s]
    for at in range(links.start[row], links.start[row + 1]):
        bit, weight = 1 << _place(layout, size, links.target[at]), scaled[links.pair[at]]
        for high in range(0, n, 2 * bit):
            for s in range(high, high + bit):
                after[s + bit] += weight * before[s]


class Steps(NamedTuple):
    """The rows of a component in their order: which columns are open at each, how many are old, which close after it.

    ``layout`` holds the open columns of each step, the new ones last; the first of them is bit 0 of a subset. The
    subsets of a step are at ``at`` in a table that holds those of a stretch of steps; stretches begin at ``begin``.
    """

    row: np.ndarray
    layout: np.ndarray
    size: np.ndarray
    old: np.ndarray
    closing: np.ndarray
    at: np.ndarray
    begin: np.ndarray


@kernel
def _steps(links, order, widest, closing):
    count = len(order)
    layout, size, old = np.empty((count, widest), np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    at, begin, stretches = np.zeros(count, np.int64), np.zeros(count + 1, np.int64), 1
    for step in range(count):
        for place in range(links.start[order[step]], links.start[order[step] + 1]):
            closing[links.target[place]] = step
    used = 0
    for step in range(count):
        kept = 0
        if step > 0:
            for k in range(size[step - 1]):
                if closing[layout[step - 1, k]] >= step:
                    layout[step, kept] = layout[step - 1, k]
                    kept += 1
        old[step] = size[step] = kept
        for place in range(links.start[order[step]], links.start[order[step] + 1]):
            if _place(layout[step], size[step], links.target[place]) < 0:
                layout[step, size[step]] = links.target[place]
                size[step] += 1
        if used + (1 << size[step]) > TABLE:
            begin[stretches], used = step, 0
            stretches += 1
        at[step] = used
        used += 1 << size[step]
    begin[stretches] = count
    return Steps(order, layout, size, old, closing, at, begin[: stretches + 1].copy())


@bare
def _forward(links, steps, first, last, scaled, spare, table, now):
    """Add rows: ``now`` is the weight of all choices of the rows so far, by the set of columns that are taken.

    ``table`` keeps ``now`` for each row as it was before the row, including the columns that the row opens.
    """
    for step in range(first, last):
        size, old, at = steps.size[step], steps.old[step], steps.at[step]
        for s in range(1 << old):
            table[at + s] = now[s]
        for s in range(1 << old, 1 << size):
            table[at + s] = 0.0
        _through(links, steps.row[step], steps.layout[step], size, table[at:], scaled, spare, now)
        for k in range(size - 1, -1, -1):
            column = steps.layout[step, k]
            if steps.closing[column] == step:
                _close(now, size, k, spare[column])
                size -= 1


@bare
def _backward(links, steps, step, scaled, spare, before, behind, then, likely, alone):
    """Remove a row: ``behind`` is the weight of all choices of the rows after it, ``then`` the weight with the row.

    ``before`` is the table of the row: products of ``before`` and ``behind`` are the weight of all worlds that have a
    pair, or leave a row alone.
    """
    row, size, layout = steps.row[step], steps.size[step], steps.layout[step]
    if _reopen(behind, steps, step, spare):
        _through(links, row, layout, size, before, scaled, spare, then)
        for k in range(size):
            if steps.closing[layout[k]] == step:
                alone[layout[k]] = _without(then, behind, size, k)
    total = 0.0
    for s in range(1 << size):
        total += before[s] * behind[s]
        then[s] = spare[row] * behind[s]
    alone[row] = spare[row] * total
    for place in range(links.start[row], links.start[row + 1]):
        bit, weight = 1 << _place(layout, size, links.target[place]), scaled[links.pair[place]]
        total = 0.0
        for high in range(0, 1 << size, 2 * bit):
            for s in range(high, high + bit):
                total += before[s] * behind[s + bit]
                then[s] += weight * behind[s + bit]
        likely[links.pair[place]] = weight * total


@kernel
def _subsets(links, steps, widest, scaled, spare, likely, alone):
    """Compute the marginals of a component, row by row, by the set of open columns that are taken.

    ``scaled`` are the weights of pairs, ``spare`` those of nodes without a partner. Only the tables of one stretch of
    rows are kept at a time. Those of earlier stretches are computed again on the way back, from ``now`` at their begin.
    """
    begin, most = steps.begin, 0
    for step in range(len(steps.row)):
        most = max(most, steps.at[step] + (1 << steps.size[step]))
    table, now, behind, then = np.empty(most), np.empty(1 << widest), np.empty(1 << widest), np.empty(1 << widest)
    kept = np.empty((len(begin) - 1, (1 << widest) if len(begin) > 2 else 1))
    now[0] = 1.0
    for stretch in range(len(begin) - 1):
        size = 1 << steps.old[begin[stretch]]
        kept[stretch, :size] = now[:size]
        _forward(links, steps, begin[stretch], begin[stretch + 1], scaled, spare, table, now)
    behind[0] = 1.0 / now[0]
    for stretch in range(len(begin) - 2, -1, -1):
        if stretch < len(begin) - 2:
            size = 1 << steps.old[begin[stretch]]
            now[:size] = kept[stretch, :size]
            _forward(links, steps, begin[stretch], begin[stretch + 1], scaled, spare, table, now)
        for step in range(begin[stretch + 1] - 1, begin[stretch] - 1, -1):
            _backward(links, steps, step, scaled, spare, table[steps.at[step] :], behind, then, likely, alone)
            behind, then = then, behind


@bare
def _close(table, size, k, spare):
    """Sum over a column in place: it is taken, or left alone."""
    bit = 1 << k
    for s in range(1 << (size - 1)):
        wide = (s & (bit - 1)) | ((s >> k) << (k + 1))
        table[s] = spare * table[wide] + table[wide | bit]


@bare
def _reopen(table, steps, step, spare):
    """Reverse ``_close`` in place for the columns that close after a step; return whether there are any."""
    closed = 0
    for k in range(steps.size[step]):
        closed += 1 if steps.closing[steps.layout[step, k]] == step else 0
    size = steps.size[step] - closed
    for k in range(steps.size[step]):
        column = steps.layout[step, k]
        if steps.closing[column] == step:
            size += 1
            bit = 1 << k
            for wide in range((1 << size) - 1, -1, -1):
                s = (wide & (bit - 1)) | ((wide >> (k + 1)) << k)
                table[wide] = table[s] if wide & bit else spare[column] * table[s]
    return closed > 0


@bare
def _without(before, after, size, k):
    """Return the weight of all worlds in which column ``k`` is not taken."""
    bit, total = 1 << k, 0.0
    for high in range(0, 1 << size, 2 * bit):
        for s in range(high, high + bit):
            total += before[s] * after[s]
    return total


@kernel
def _solve(links, islands, scaled, spare, likely, alone, decided):
    """Compute the marginals of all components that are trees or have few open columns; mark others as ``BRACKET``."""
    count = len(links.start) - 1
    upward, downward, before = np.empty(count), np.empty(count), np.empty(len(links.target))
    remaining, seen, order = np.empty(count, np.int64), np.empty(count, np.bool_), np.empty(count, np.int64)
    open_nodes = np.empty(MOST_OPEN, np.int64)
    for c in range(len(islands.start) - 1):
        nodes = islands.nodes[islands.start[c] : islands.start[c + 1]]
        ends, lefts = 0, 0
        for k in range(len(nodes)):
            ends += links.start[nodes[k] + 1] - links.start[nodes[k]]
            lefts += 1 if nodes[k] < links.n_left else 0
        if ends == 2 * (len(nodes) - 1):
            decided[c] = TREE
            _tree(links, islands, c, upward, downward, before, likely, alone)
            continue
        decided[c] = BRACKET
        by_left = 2 * lefts >= len(nodes)  # the smaller side has the columns
        for _ in range(2):
            rows, widest = _row_order(links, nodes, by_left, open_nodes, remaining, seen, order)
            if widest >= 0:
                _subsets(links, _steps(links, order[:rows], widest, remaining), widest, scaled, spare, likely, alone)
                decided[c] = SUBSETS
                break
            by_left = not by_left


# -- bounds -----------------------------------------------------------------------------------------------------------


@kernel
def _others(links, message):
    """Return for every place ``1 / (1 + the messages at the other places of its node)``, without a subtraction."""
    out, before = np.empty(len(message)), np.empty(len(message))
    for v in range(len(links.start) - 1):
        total = 0.0
        for at in range(links.start[v], links.start[v + 1]):
            before[at] = total
            total += message[at]
        total = 0.0
        for at in range(links.start[v + 1] - 1, links.start[v] - 1, -1):
            out[at] = 1.0 / (1.0 + (before[at] + total))
            total += message[at]
    return out


@kernel
def _arriving(links, x):
    """Return the message to a node at each of its places: the weight times ``x`` of the other end."""
    out = np.empty(len(x))
    for at in range(len(x)):
        out[at] = links.weight[at] * x[links.back[at]]
    return out


@bare
def _branch(links, least, first, depth, cutoff, allowance, on_path, frames):
    """Return bounds of ``x_first`` in the graph without the nodes on the path, and the number of steps.

    If there are more steps than ``allowance``, the bounds are not ready. ``least`` is ``_others`` of the weights: at a
    place of ``v`` it bounds ``x_v`` from below in all graphs without the other end of that place, whichever other nodes
    they lack.
    """
    node, at, low, high, gain = frames
    steps, level = 0, 0
    node[0], at[0], low[0], high[0] = first, links.start[first], 0.0, 0.0
    on_path[first] = True
    while True:
        v = node[level]
        if at[level] < links.start[v + 1]:
            place = at[level]
            u, weight = links.target[place], links.weight[place]
            at[level] += 1
            steps += 1
            if on_path[u]:
                continue
            part = gain[level] * min(1.0, weight)
            if level + 1 >= depth or part < cutoff:
                low[level] += weight * least[links.back[place]]
                high[level] += weight
            else:
                level += 1
                node[level], at[level], low[level], high[level], gain[level] = u, links.start[u], 0.0, 0.0, part
                on_path[u] = True
            if steps > allowance:
                for k in range(level + 1):
                    on_path[node[k]] = False
                return 0.0, 1.0, steps
            continue
        on_path[v] = False
        x_low, x_high = 1.0 / (1.0 + high[level]), 1.0 / (1.0 + low[level])
        if level == 0:
            return x_low, x_high, steps
        level -= 1
        weight = links.weight[at[level] - 1]
        low[level] += weight * x_low
        high[level] += weight * x_high


@kernel
def _bound(links, least, roots, depth, cutoff, allowance, pair_low, pair_high, low, high):
    """Tighten the bounds of the pairs of some nodes, and of these nodes without a partner; return the steps of each.

    A node that needs more steps than allowed keeps its bounds.
    """
    count, most = len(links.start) - 1, 1
    for k in range(len(roots)):
        most = max(most, links.start[roots[k] + 1] - links.start[roots[k]])
    on_path, taken = np.zeros(count, np.bool_), np.zeros(len(roots), np.int64)
    r_low, r_high, after = np.empty(most), np.empty(most), np.empty((2, most + 1))
    frames = (
        np.empty(depth + 1, np.int64), np.empty(depth + 1, np.int64),
        np.empty(depth + 1), np.empty(depth + 1), np.ones(depth + 1),
    )  # fmt: skip
    for k in range(len(roots)):
        root = roots[k]
        first, size = links.start[root], links.start[root + 1] - links.start[root]
        on_path[root] = True
        for m in range(size):
            weight = links.weight[first + m]
            frames[4][0] = min(1.0, weight)
            x_low, x_high, steps = _branch(
                links, least, links.target[first + m], depth, cutoff, allowance[k] - taken[k], on_path, frames
            )
            taken[k] += steps
            if taken[k] > allowance[k]:
                break
            r_low[m], r_high[m] = weight * x_low, weight * x_high
        on_path[root] = False
        if taken[k] <= allowance[k]:
            _settle(links, root, r_low, r_high, after, pair_low, pair_high, low, high)
    return taken


@kernel
def _bound_all(links, message_low, message_high, pair_low, pair_high, low, high):
    """Tighten the bounds of all pairs and nodes, from bounds of the messages at all places."""
    most = 1
    for v in range(len(low)):
        most = max(most, links.start[v + 1] - links.start[v])
    after = np.empty((2, most + 1))
    for v in range(len(low)):
        first, last = links.start[v], links.start[v + 1]
        _settle(links, v, message_low[first:last], message_high[first:last], after, pair_low, pair_high, low, high)


@kernel
def _settle(links, v, r_low, r_high, after, pair_low, pair_high, low, high):
    """Tighten the bounds of one node without a partner, and of its pairs, from the bounds of the messages to it.

    The probability of a pair grows with its own message, and falls with the others.
    """
    first, size = links.start[v], links.start[v + 1] - links.start[v]
    after[0, size], after[1, size] = 0.0, 0.0
    for m in range(size - 1, -1, -1):
        after[0, m], after[1, m] = after[0, m + 1] + r_low[m], after[1, m + 1] + r_high[m]
    _tighten(low, high, v, 1.0 / (1.0 + after[1, 0]), 1.0 / (1.0 + after[0, 0]))
    before_low, before_high = 0.0, 0.0
    for m in range(size):
        least_others, most_others = before_low + after[0, m + 1], before_high + after[1, m + 1]
        _tighten(
            pair_low, pair_high, links.pair[first + m],
            r_low[m] / (1.0 + r_low[m] + most_others), r_high[m] / (1.0 + r_high[m] + least_others),
        )  # fmt: skip
        before_low, before_high = before_low + r_low[m], before_high + r_high[m]


@bare
def _tighten(lows, highs, k, low, high):
    lows[k], highs[k] = max(lows[k], low * (1.0 - _OUTWARDS)), min(highs[k], high * (1.0 + _OUTWARDS))


@kernel
def _widths(links, pair_low, pair_high, low, high):
    """Return the largest width among the bounds of each node and its pairs."""
    out = high - low
    for v in range(len(out)):
        for at in range(links.start[v], links.start[v + 1]):
            out[v] = max(out[v], pair_high[links.pair[at]] - pair_low[links.pair[at]])
    return out


# -- problems ---------------------------------------------------------------------------------------------------------


class _Problem:
    """Holds the pairs of some components with positive weights: solved where that can be exact, otherwise bounded."""

    def __init__(self, left: np.ndarray, right: np.ndarray, weight: np.ndarray, shape: tuple[int, int]) -> None:
        self.left, self.right, self.weight, self.shape = left, right, weight, shape
        self.links = _link(left, right, weight, *shape)
        self.islands = _split(self.links)
        self.label = self.islands.label[left]
        """The component of each pair."""
        self.pair = Brackets(np.zeros(len(left)), np.ones(len(left)))
        self.alone = Brackets(np.zeros(sum(shape)), np.ones(sum(shape)))
        """Bounds of every node to have no partner; left rows, then right rows."""
        self.decided = np.zeros(len(self.islands.start) - 1, np.int8)

    def take(self, kept: np.ndarray) -> _Problem:
        """Return the same rows with some of the pairs."""
        return _Problem(self.left[kept], self.right[kept], self.weight[kept], self.shape)

    def solve(self) -> np.ndarray:
        """Compute exactly what can be; return which components cannot."""
        scaled, spare = self._scaled()
        likely, alone = np.zeros(len(self.left)), np.ones(len(self.islands.label))
        _solve(self.links, self.islands, scaled, spare, likely, alone, self.decided)
        hard = self.decided == BRACKET
        for bounds, values, labels in ((self.pair, likely, self.label), (self.alone, alone, self.islands.label)):
            exact = ~(hard[labels] & (labels >= 0)) if len(hard) else np.ones(len(labels), bool)
            bounds.low[exact] = bounds.high[exact] = np.minimum(1.0, values[exact])
        return hard

    def _scaled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights of pairs, and of nodes without a partner, for which the weights of worlds are in range.

        They are scaled by the prices of the best world: it has the weight 1 then, and no pair or node has more. Weights
        that underflow are negligible beside that world.
        """
        label, n_left = self.islands.label, self.shape[0]
        size, linked = np.log1p(_sums(self.links)), self.islands.label >= 0
        side = np.arange(len(label)) < n_left
        count = len(self.decided)
        wholes = [np.bincount(label[linked & one], size[linked & one], count) for one in (side, ~side)]
        large = np.minimum(*wholes) > _PLAIN
        if not large.any():
            return self.weight, np.ones(len(label))
        logs = np.log(self.weight)
        value = _assign(_link(self.left, self.right, logs, *self.shape))[1]
        value[~(linked & large[label])] = 0.0
        return np.exp(logs - value[self.left] - value[n_left + self.right]), np.exp(-value)

    @cached_property
    def least(self) -> np.ndarray:
        """Bound ``x`` of the node of every place from below, in the graph without the other end of the place."""
        return _others(self.links, self.links.weight)

    def bound(self) -> None:
        """Bound everything by the first steps of the recursion, in one pass over all pairs each.

        At this depth no path meets itself: without ``v``, the lower bounds of the other neighbours of ``x_u`` give an
        upper bound of it, and upper bounds found in this way give a lower bound.
        """
        most = _others(self.links, _arriving(self.links, self.least))
        least = _others(self.links, _arriving(self.links, most))
        messages = _arriving(self.links, least), _arriving(self.links, most)
        _bound_all(self.links, *messages, *self.pair, *self.alone)

    def deepen(self, hard: np.ndarray, left_over: np.ndarray, depths: range, tolerance: float) -> None:
        """Follow the recursion to increasing depths for the nodes of some components, within the rest of a budget."""
        label = self.islands.label
        unfinished, steps = (label >= 0) & hard[label], np.zeros(len(label), np.int64)
        for depth in depths:
            wide = _widths(self.links, *self.pair, *self.alone) > tolerance
            roots = np.flatnonzero(unfinished & wide)
            if not len(roots):
                return
            allowance = (left_over // np.maximum(1, np.bincount(label[roots], minlength=len(hard))))[label[roots]]
            taken = _bound(
                self.links, self.least, roots, depth, tolerance * _CUTOFF, allowance, *self.pair, *self.alone
            )  # fmt: skip
            # a node without steps left, or with the same number of steps as before, is finished
            unfinished[roots[(taken > allowance) | (taken == steps[roots])]] = False
            steps[roots] = taken
            left_over -= np.bincount(label[roots], np.minimum(taken, allowance), len(hard)).astype(np.int64)


@kernel
def _sums(links):
    out = np.zeros(len(links.start) - 1)
    for v in range(len(out)):
        for at in range(links.start[v], links.start[v + 1]):
            out[v] += links.weight[at]
    return out


def _weak(problem: _Problem, hard: np.ndarray, allowed: float) -> tuple[np.ndarray, np.ndarray]:
    """Flag pairs of hard components that are so unlikely that all of them together are below what is allowed.

    Returns also, for each component, a bound of the probability that a world has one of them.
    """
    order = np.lexsort((problem.pair.high, problem.label))
    high, label = problem.pair.high[order], problem.label[order]
    first = np.searchsorted(label, np.arange(len(hard)))
    upto = np.cumsum(high)
    upto -= (upto - high)[first][label]
    upto *= 1.0 + 1e-9
    dropped = np.zeros(len(order), bool)
    dropped[order] = weak = hard[label] & (upto + 1e-15 * len(high) <= allowed)
    return dropped, np.bincount(label, weak * high, len(hard)) * (1.0 + 1e-9)


def _narrow(bounds: Brackets, inner: Brackets, at: np.ndarray, missing: np.ndarray) -> None:
    """Take over bounds that hold in all worlds except a share of at most ``missing``."""
    low, high = inner.low * (1.0 - missing), inner.high + missing * (1.0 - inner.high)
    bounds.low[at] = np.maximum(bounds.low[at], low)
    bounds.high[at] = np.maximum(bounds.low[at], np.minimum(bounds.high[at], high))


def _bracket(problem: _Problem, hard: np.ndarray, tolerance: float, left_over: np.ndarray, stage: int = 0) -> None:
    """Bound what cannot be exact: by the recursion, then without weak pairs, which may split components, and so on.

    A world has one of the omitted pairs with probability ``missing`` at most, and is otherwise a world of the others.
    So each probability is at least ``(1 - missing)`` times that among the others, and at most ``missing`` more.
    """
    problem.bound()
    now = left_over if stage == len(_STAGES) - 1 else left_over // 2
    later = left_over - now
    problem.deepen(hard, now, _STAGES[stage], 0.5 * tolerance)
    if stage == len(_STAGES) - 1:
        return
    label = problem.islands.label
    dropped, missing = _weak(problem, hard, _DROPPED * tolerance)
    kept = np.flatnonzero(hard[problem.label] & ~dropped)
    rest = problem.take(kept)
    still_hard = rest.solve()
    if still_hard.any():
        # the rest of a component's budget is divided among the components into which it split, by their sizes
        whole, size = label[rest.islands.nodes[rest.islands.start[:-1]]], np.diff(rest.islands.start) * still_hard
        share = size / np.maximum(1, np.bincount(whole, size, len(hard)))[whole]
        _bracket(rest, still_hard, tolerance, ((now + later)[whole] * share).astype(np.int64), stage + 1)
    _narrow(problem.pair, rest.pair, kept, missing[problem.label[kept]])
    nodes = np.flatnonzero((label >= 0) & hard[label])
    inner = Brackets(rest.alone.low[nodes], rest.alone.high[nodes])
    _narrow(problem.alone, inner, nodes, missing[label[nodes]])


# -- public functions -------------------------------------------------------------------------------------------------


def _checked(left: np.ndarray, right: np.ndarray, n_left: int, n_right: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row numbers of pairs as the kernels take them; refuse those that do not fit."""
    sides = []
    for name, rows, count in (("left", left, n_left), ("right", right, n_right)):
        numbers = np.ascontiguousarray(rows, np.int64)
        missing = numbers[(numbers < 0) | (numbers >= count)]
        if len(missing):
            raise HaplyError(
                f"A pair has a {name} row that does not exist", expected=f"0 to {count - 1}", found=str(missing[0])
            )
        sides.append(numbers)
    if len(sides[0]) != len(sides[1]):
        raise HaplyError("Pairs need two rows", expected=f"{len(sides[0])} right rows", found=str(len(sides[1])))
    return sides[0], sides[1]


def _by_rows(left: np.ndarray, right: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the numbers of chosen pairs by left row, then right row: the order of pairs then does not matter."""
    pairs = np.flatnonzero(chosen)
    one, other = left[pairs], right[pairs]
    step = np.diff(one)
    if ((step > 0) | ((step == 0) & (np.diff(other) >= 0))).all():
        return pairs
    return pairs[np.lexsort((other, one))]


def _firsts(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return where new pairs begin among sorted pairs."""
    new = np.ones(len(left), bool)
    new[1:] = (np.diff(left) != 0) | (np.diff(right) != 0)
    return np.flatnonzero(new)


def components(left: np.ndarray, right: np.ndarray, n_left: int, n_right: int) -> PairGroups:
    """Find which rows are connected by pairs, directly or through others.

    Parameters
    ----------
    left, right
        The rows of each pair.
    n_left, n_right
        How many rows there are.

    Returns
    -------
    PairGroups
        The number of the component of every left and every right row, -1 for rows without a pair, and their count.

    Examples
    --------
    >>> components(np.array([0, 1, 3]), np.array([0, 0, 2]), 4, 3)
    PairGroups(left=array([ 0,  0, -1,  1]), right=array([ 0, -1,  1]), groups=2)
    """
    pairs = _checked(left, right, n_left, n_right)
    islands = _split(_link(*pairs, np.ones(len(pairs[0])), n_left, n_right))
    return PairGroups(islands.label[:n_left], islands.label[n_left:], len(islands.start) - 1)


def best_world(left: np.ndarray, right: np.ndarray, log_weight: np.ndarray, n_left: int, n_right: int) -> np.ndarray:
    """Find the pairs of the heaviest world: no row is in two of them, and their ``log_weight`` add up to the most.

    A pair is taken only for a positive ``log_weight``. Among worlds of equal weight the order of rows decides: earlier
    left rows keep what they have. For the most pairs that hold, on average, give probabilities as ``log_weight``.

    Parameters
    ----------
    left, right
        The rows of each pair.
    log_weight
        What each pair adds: the logarithm of its weight, or its probability. It may be minus infinity.
    n_left, n_right
        How many rows there are.

    Returns
    -------
    numpy.ndarray
        For each pair whether it is in that world.

    Examples
    --------
    >>> best_world(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0.9, 0.8, 0.8, 0.3]), 2, 2)
    array([False,  True,  True, False])
    """
    pairs = _checked(left, right, n_left, n_right)
    gain = np.ascontiguousarray(log_weight, np.float64)
    if not (gain < np.inf).all():
        raise HaplyError("A weight is infinite or NaN", expected="log weights below infinity", found=f"{gain.max()}")
    useful = _by_rows(*pairs, gain > 0.0)
    links = _link(pairs[0][useful], pairs[1][useful], gain[useful], n_left, n_right)
    chosen = _assign(links)[0]
    inside = np.zeros(len(gain), bool)
    inside[useful[links.pair[chosen[chosen >= 0]]]] = True
    return inside


def marginals(
    left: np.ndarray,
    right: np.ndarray,
    weight: np.ndarray,
    n_left: int,
    n_right: int,
    tolerance: float = TOLERANCE,
    budget: int = BUDGET,
) -> Marginals:
    """Compute how likely each pair is in a one-to-one world, and each row without a partner.

    Parameters
    ----------
    left, right
        The rows of each pair.
    weight
        The weight of each pair, from 0 to 1e300, where no partner has the weight 1: its posterior odds.
    n_left, n_right
        How many rows there are.
    tolerance
        How wide bounds may be where a value cannot be exact.
    budget
        How many steps of bounds a component may take for each of its rows; when they are spent, wider bounds are
        returned.

    Returns
    -------
    Marginals
        Bounds of the probability of every pair, of every left and right row without a partner, and what decided them.

    Examples
    --------
    >>> found = marginals(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([8, 6, 6, 0.5]), 2, 2)
    >>> (41 * found.pairs.low).round(12)
    array([ 8., 28., 28.,  3.])
    >>> DECIDED_BY[found.decided_by[0]]
    'subsets'
    """
    pairs = _checked(left, right, n_left, n_right)
    weights = np.ascontiguousarray(weight, np.float64)
    if not ((weights >= 0.0) & (weights <= MOST_WEIGHT)).all():
        worst = weights[~((weights >= 0.0) & (weights <= MOST_WEIGHT))][0]
        raise HaplyError("A weight is out of range", expected=f"0 to {MOST_WEIGHT:g}", found=f"{worst:g}")
    used = _by_rows(*pairs, weights > 0.0)
    first = _firsts(pairs[0][used], pairs[1][used])  # the same pair twice is one pair of both weights
    once, of_both = used[first], np.add.reduceat(weights[used], first) if len(first) else weights[used]
    problem = _Problem(pairs[0][once], pairs[1][once], of_both, (n_left, n_right))
    hard = problem.solve()
    if hard.any():
        _bracket(problem, hard, tolerance, np.diff(problem.islands.start) * budget)
    low, high, decided = np.zeros(len(weights)), np.zeros(len(weights)), np.zeros(len(weights), np.int8)
    which = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(used))))
    share = weights[used] / of_both[which]
    low[used], high[used] = problem.pair.low[which] * share, problem.pair.high[which] * share
    decided[used] = problem.decided[problem.label[which]]
    label = problem.islands.label
    by_node = np.where(label >= 0, problem.decided[label], TREE) if len(hard) else np.zeros(len(label), np.int8)
    alone = problem.alone
    return Marginals(
        Brackets(low, high),
        Brackets(alone.low[:n_left], alone.high[:n_left]),
        Brackets(alone.low[n_left:], alone.high[n_left:]),
        decided,
        by_node[:n_left],
        by_node[n_left:],
    )
