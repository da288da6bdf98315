"""Bounds of probabilities from both sides, by a recursion that is cut at some depth."""

from __future__ import annotations

import numpy as np

from haply.numerics.jit import bare, kernel

_OUTWARDS = 1e-13
"""Bounds are widened by this share, so that rounding cannot make them wrong."""


@kernel
def without_others(links, message):
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
def arriving(links, x):
    """Return the message to a node at each of its places: the weight times ``x`` of the other end."""
    out = np.empty(len(x))
    for at in range(len(x)):
        out[at] = links.weight[at] * x[links.back[at]]
    return out


@bare
def _branch(links, least, first, depth, cutoff, allowance, on_path, frames):
    """Return bounds of ``x_first`` in the graph without the nodes on the path, and the number of steps.

    If there are more steps than ``allowance``, the bounds are not ready. ``least`` is ``without_others`` of the
    weights: at a place of ``v`` it bounds ``x_v`` from below in all graphs without the other end of that place,
    whichever other nodes they lack.
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
def tighten_nodes(links, least, roots, depth, cutoff, allowance, pair_low, pair_high, low, high):
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
def tighten_all(links, message_low, message_high, pair_low, pair_high, low, high):
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
def widths(links, pair_low, pair_high, low, high):
    """Return the largest width among the bounds of each node and its pairs."""
    out = high - low
    for v in range(len(out)):
        for at in range(links.start[v], links.start[v + 1]):
            out[v] = max(out[v], pair_high[links.pair[at]] - pair_low[links.pair[at]])
    return out
