"""The probability threshold index: an R-tree of intervals whose entries carry x-bounds (Cheng et al. 2005, 4.3).

A node's x-bounds are the least and the greatest of its children's, so the tests of ``xbounds`` apply to a whole subtree
as to a page, and at the leaves to single values. Nodes are stored in flat arrays, and freed nodes are used again.
Values are inserted and deleted one by one: an insertion extends bounds, a deletion shrinks them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.models import OneDimensional
from haply.numerics.jit import inner, kernel
from haply.pruning.candidates.xbounds import (
    CHECK,
    INCLUDE,
    PRUNE,
    Met,
    PageCondition,
    PageScratch,
    XBounds,
    group_bounds,
    node_verdict,
    packing_level,
    packing_order,
    value_bounds,
)

NOBODY = -1
_ROOT, _USED, _FREE = 0, 1, 2


class Nodes(NamedTuple):
    """Nodes in flat arrays. Children of a leaf are rows. A node has one place more than the fan-out, to overflow."""

    children: np.ndarray
    size: np.ndarray
    rows_below: np.ndarray
    parent: np.ndarray
    is_leaf: np.ndarray
    free: np.ndarray
    """Free nodes; ``state`` has their number."""
    state: np.ndarray
    """The root, how many nodes have been used at some time, and how many of these are free."""


@kernel
def _meet_tree(outer, page, bounds, nodes, values, asked, stack, check, include):
    """Walk down from the root with an outer page; rows below included nodes are listed without more tests."""
    checked, included, reads, visited = 0, 0, 0, 0
    listing = len(check) > 0
    stack[0] = nodes.state[_ROOT]
    depth = 1
    while depth:
        depth -= 1
        node = stack[depth]
        if node >= 0:
            visited += 1
            verdict = node_verdict(outer, page, bounds, node, asked)
        else:
            node, verdict = -1 - node, INCLUDE
        if verdict == PRUNE:
            continue
        if verdict == INCLUDE and not listing:
            included += nodes.rows_below[node]
            continue
        if not nodes.is_leaf[node]:
            for k in range(nodes.size[node]):
                child = nodes.children[node, k]
                stack[depth] = child if verdict == CHECK else -1 - child
                depth += 1
            continue
        reads += 1
        for k in range(nodes.size[node]):
            row = nodes.children[node, k]
            of_row = INCLUDE
            if verdict == CHECK:
                visited += 1
                of_row = node_verdict(outer, page, values, row, asked)
            if of_row == CHECK:
                if listing:
                    check[checked] = row
                checked += 1
            elif of_row == INCLUDE:
                if listing:
                    include[included] = row
                included += 1
    return checked, included, reads, visited


@inner
def _take_over(bounds, node, entry, other, anew):
    """Extend a node's bounds to cover an entry's; with ``anew`` they cover only this entry."""
    for k in range(bounds.left.shape[1]):
        if anew or entry.left[other, k] < bounds.left[node, k]:
            bounds.left[node, k] = entry.left[other, k]
        if anew or entry.right[other, k] > bounds.right[node, k]:
            bounds.right[node, k] = entry.right[other, k]
    if anew or entry.peak[other] > bounds.peak[node]:
        bounds.peak[node] = entry.peak[other]


@inner
def _tighten(bounds, nodes, values, node):
    """Set a node's bounds and rows from its children."""
    below = 0
    for k in range(nodes.size[node]):
        child = nodes.children[node, k]
        if nodes.is_leaf[node]:
            _take_over(bounds, node, values, child, k == 0)
            below += 1
        else:
            _take_over(bounds, node, bounds, child, k == 0)
            below += nodes.rows_below[child]
    nodes.rows_below[node] = below


@inner
def _new_node(nodes, is_leaf):
    state = nodes.state
    if state[_FREE]:
        state[_FREE] -= 1
        node = nodes.free[state[_FREE]]
    else:
        node = state[_USED]
        state[_USED] += 1
    nodes.size[node], nodes.parent[node], nodes.is_leaf[node] = 0, NOBODY, is_leaf
    return node


@inner
def _adopt(nodes, leaf_of, node, child):
    """Add a child to a node."""
    nodes.children[node, nodes.size[node]] = child
    nodes.size[node] += 1
    if nodes.is_leaf[node]:
        leaf_of[child] = node
    else:
        nodes.parent[child] = node


@kernel
def _insert(bounds, nodes, values, leaf_of, rows, level):
    """Insert rows: go down where the box at ``level`` grows least, and split overflowing nodes on the way back."""
    state, fan_out = nodes.state, nodes.children.shape[1] - 1
    for row in rows:
        node = state[_ROOT]
        low, high = values.left[row, level], values.right[row, level]
        while True:
            _take_over(bounds, node, values, row, nodes.rows_below[node] == 0)
            nodes.rows_below[node] += 1
            if nodes.is_leaf[node]:
                break
            best, least, narrowest = nodes.children[node, 0], np.inf, np.inf
            for k in range(nodes.size[node]):
                child = nodes.children[node, k]
                width = bounds.right[child, level] - bounds.left[child, level]
                grown = max(bounds.right[child, level], high) - min(bounds.left[child, level], low) - width
                if grown < least or (grown == least and width < narrowest):
                    best, least, narrowest = child, grown, width
            node = best
        _adopt(nodes, leaf_of, node, row)
        while nodes.size[node] > fan_out:
            parent = nodes.parent[node]
            if parent == NOBODY:
                parent = _new_node(nodes, False)
                state[_ROOT] = parent
                _adopt(nodes, leaf_of, parent, node)
            entries = values if nodes.is_leaf[node] else bounds
            places = np.empty(nodes.size[node])
            for k in range(len(places)):
                child = nodes.children[node, k]
                places[k] = entries.left[child, level] + entries.right[child, level]
            order = nodes.children[node, : len(places)][np.argsort(places)]
            other = _new_node(nodes, nodes.is_leaf[node])
            nodes.size[node] = 0
            for k in range(len(order)):
                _adopt(nodes, leaf_of, node if 2 * k < len(order) else other, order[k])
            _adopt(nodes, leaf_of, parent, other)
            _tighten(bounds, nodes, values, node)
            _tighten(bounds, nodes, values, other)
            _tighten(bounds, nodes, values, parent)
            node = parent


@kernel
def _delete(bounds, nodes, values, leaf_of, rows):
    """Delete rows: shrink bounds up to the root, and free nodes that become empty."""
    state = nodes.state
    for row in rows:
        node, gone = leaf_of[row], row
        leaf_of[row] = NOBODY
        while node != NOBODY:
            if gone != NOBODY:
                last = nodes.size[node] - 1
                for k in range(last):
                    if nodes.children[node, k] == gone:
                        nodes.children[node, k] = nodes.children[node, last]
                        break
                nodes.size[node] = last
            parent = nodes.parent[node]
            gone = NOBODY
            if nodes.size[node] == 0 and parent != NOBODY:
                gone = node
                nodes.free[state[_FREE]] = node
                state[_FREE] += 1
            else:
                _tighten(bounds, nodes, values, node)
            node = parent
        root = state[_ROOT]
        while not nodes.is_leaf[root] and nodes.size[root] == 1:
            nodes.free[state[_FREE]] = root
            state[_FREE] += 1
            root = nodes.children[root, 0]
            nodes.parent[root] = NOBODY
            state[_ROOT] = root


class ThresholdTree:
    """Indexes the rows of one model, bulk-loaded: sorted, and cut into full leaves, level by level.

    Rows keep their numbers; inserted rows get the next numbers.
    """

    def __init__(self, model: OneDimensional, levels: np.ndarray, fan_out: int = 50) -> None:
        if fan_out < 2:
            raise HaplyError("An index with a fan-out below 2 is no tree", expected="2 or more", found=str(fan_out))
        self.levels, self.fan_out = levels, fan_out
        self.values = value_bounds(model, levels)
        self._level = packing_level(self.values)
        self._load(packing_order(self.values))

    def _load(self, rows: np.ndarray) -> None:
        """Build a new tree over the given rows in the given order."""
        layers: list[tuple[np.ndarray, XBounds]] = []
        entries, held = XBounds(*(column[rows] for column in self.values)), len(rows)
        while not layers or held > 1:
            start = np.minimum(np.arange(0, max(held, 1) + self.fan_out, self.fan_out), held)
            start = start[: -(-max(held, 1) // self.fan_out) + 1]
            entries = group_bounds(entries, start) if held else XBounds(*(np.zeros((1, *c.shape[1:])) for c in entries))
            layers.append((start, entries))
            held = len(start) - 1
        total = sum(len(start) - 1 for start, _ in layers)
        self.bounds = XBounds(*(np.concatenate(columns) for columns in zip(*(b for _, b in layers), strict=True)))
        self.nodes = _empty_nodes(total, self.fan_out)
        self.nodes.state[:] = total - 1, total, 0
        self.leaf_of = np.full(len(self.values.peak), NOBODY, np.int64)
        first, below = 0, 0  # where this layer and the layer below it begin
        for depth, (start, _) in enumerate(layers):
            count = len(start) - 1
            mine = np.arange(first, first + count)
            sizes = np.diff(start)
            owner, place = np.repeat(mine, sizes), np.arange(start[-1]) - np.repeat(start[:-1], sizes)
            children = rows if depth == 0 else below + np.arange(start[-1])
            self.nodes.children[owner, place] = children
            self.nodes.size[mine], self.nodes.is_leaf[mine] = sizes, depth == 0
            if depth == 0:
                self.leaf_of[rows] = owner
                self.nodes.rows_below[mine] = sizes
            else:
                self.nodes.parent[children] = owner
                np.add.at(self.nodes.rows_below, owner, self.nodes.rows_below[children])
            first, below = first + count, first
        self._stack = np.empty(total + 1, np.int64)

    def __len__(self) -> int:
        return int(self.nodes.rows_below[self.nodes.state[_ROOT]])

    def insert(self, model: OneDimensional) -> np.ndarray:
        """Add the rows of a model; return their numbers."""
        before, n = len(self.leaf_of), len(model)
        more = value_bounds(model, self.levels)
        self.values = XBounds(*(np.concatenate(columns) for columns in zip(self.values, more, strict=True)))
        self.leaf_of = np.concatenate([self.leaf_of, np.full(n, NOBODY, np.int64)])
        rows = np.arange(before, before + n)
        for begin in range(0, n, 256):  # each row can split all nodes above it, and make a new root
            some = rows[begin : begin + 256]
            self._make_room(len(some) * (self.height + 2))
            _insert(self.bounds, self.nodes, self.values, self.leaf_of, some, self._level)
        return rows

    def delete(self, rows: np.ndarray) -> None:
        """Remove rows; each must be in the tree."""
        rows = np.asarray(rows, np.int64)
        known = (rows >= 0) & (rows < len(self.leaf_of))
        present = known.copy()
        present[known] = self.leaf_of[rows[known]] != NOBODY
        if not present.all() or len(np.unique(rows)) < len(rows):
            absent = rows[~present]
            raise HaplyError(
                "A row to delete is not in the index",
                expected="rows that are there, each once",
                found=f"row {absent[0]}" if len(absent) else "a row named twice",
            )
        _delete(self.bounds, self.nodes, self.values, self.leaf_of, rows)

    @property
    def height(self) -> int:
        """Return how many layers of nodes there are from the root to the leaves."""
        node, layers = int(self.nodes.state[_ROOT]), 1
        while not self.nodes.is_leaf[node]:
            node, layers = int(self.nodes.children[node, 0]), layers + 1
        return layers

    def meet(self, outer: XBounds, page: int, asked: PageCondition, room: PageScratch) -> Met:
        """Decide the rows of the tree against one page of the other side."""
        if not len(self):
            return Met(room.check[:0], room.include[:0], 0, 0, 0, 0)
        counts = _meet_tree(
            outer, page, self.bounds, self.nodes, self.values, asked, self._stack, room.check, room.include
        )
        listed = len(room.check) > 0
        return Met(room.check[: counts[0] * listed], room.include[: counts[1] * listed], *counts)

    def _make_room(self, wanted: int) -> None:
        """Make room for this many more nodes."""
        have, used = len(self.nodes.size), int(self.nodes.state[_USED])
        if used + wanted <= have:
            return
        extra = max(wanted, have)
        fresh = _empty_nodes(extra, self.fan_out)
        joined = [
            old if name == "state" else np.concatenate([old, new])
            for name, old, new in zip(Nodes._fields, self.nodes, fresh, strict=True)
        ]
        self.nodes = Nodes(*joined)
        self.bounds = XBounds(*(np.concatenate([c, np.zeros((extra, *c.shape[1:]))]) for c in self.bounds))
        self._stack = np.empty(have + extra + 1, np.int64)


def _empty_nodes(count: int, fan_out: int) -> Nodes:
    return Nodes(
        np.full((count, fan_out + 1), NOBODY, np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.full(count, NOBODY, np.int64),
        np.zeros(count, np.bool_),
        np.zeros(count, np.int64),
        np.zeros(3, np.int64),
    )
