"""The heaviest one-to-one world of a graph of pairs: Kuhn's Hungarian method."""

from __future__ import annotations

import numpy as np

from haply.numerics.jit import bare, kernel


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
def assign(links):
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
