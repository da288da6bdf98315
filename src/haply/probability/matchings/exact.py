"""Exact probabilities of pairs: by messages along trees, and by subsets of open columns elsewhere."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare, kernel

DECIDED_BY = ("tree", "subsets", "bracket")
"""How a pair or a row was decided: by messages along a tree, subsets of open columns, or bounds from both sides."""
TREE, SUBSETS, BRACKET = np.int8(0), np.int8(1), np.int8(2)
MOST_OPEN, MOST_STATES = 16, 1 << 28
"""How many columns may be open at once for subsets, and how many subsets all rows of a component may have."""
TABLE = 1 << 21
"""How many subsets are kept at a time: 16 megabytes."""


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
def solve_exactly(links, islands, scaled, spare, likely, alone, decided):
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
