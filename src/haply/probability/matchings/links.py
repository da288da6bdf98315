"""Pairs as a graph: the links of every row, and the connected components."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from haply.numerics.jit import kernel


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
def link_pairs(left, right, weight, n_left, n_right):
    """Return the links of all nodes, in the order of the pairs."""
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
def connected(links):
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
