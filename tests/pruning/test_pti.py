"""The tree stays a tree: every row once, bounds those of its children, whatever is inserted and deleted."""

from __future__ import annotations

import numpy as np
import pytest

from haply.errors import HaplyError
from haply.models import Gaussian, OneDimensional, Uniform
from haply.probability import Region
from haply.pruning.candidates.pti import ThresholdTree
from haply.pruning.candidates.xbounds import Pages, PageScratch, levels_for, question
from haply.pruning.threshold import Threshold

THRESHOLD = Threshold(0.3)
LEVELS = levels_for(THRESHOLD, False)


def random_rows(rng: np.random.Generator, n: int, kind: str = "uniform") -> OneDimensional:
    centre = np.where(rng.random(n) < 0.3, 50.0, rng.uniform(0.0, 100.0, n))  # many in one place
    width = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.0, 3.0, n))
    return Uniform(centre, centre + width) if kind == "uniform" else Gaussian(centre, width)


def check_tree(tree: ThresholdTree, rows: set[int]) -> None:
    """Walk the whole tree: depths, parents, counts and tight bounds."""
    nodes, seen = tree.nodes, []

    def walk(node: int, parent: int) -> int:
        children = nodes.children[node, : nodes.size[node]]
        assert nodes.parent[node] == parent
        assert len(children) <= tree.fan_out
        entries = tree.values if nodes.is_leaf[node] else tree.bounds
        if len(children):
            assert np.array_equal(tree.bounds.left[node], entries.left[children].min(axis=0))
            assert np.array_equal(tree.bounds.right[node], entries.right[children].max(axis=0))
            assert tree.bounds.peak[node] == entries.peak[children].max()
        if nodes.is_leaf[node]:
            assert (tree.leaf_of[children] == node).all()
            assert nodes.rows_below[node] == len(children)
            seen.extend(children.tolist())
            return 1
        depths = {walk(int(child), node) for child in children}
        assert len(depths) == 1
        assert nodes.rows_below[node] == nodes.rows_below[children].sum()
        return 1 + depths.pop()

    assert walk(int(nodes.state[0]), -1) == tree.height
    assert sorted(seen) == sorted(rows)
    assert len(tree) == len(rows)


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("kind", ["uniform", "gaussian"])
@pytest.mark.parametrize("n", [0, 1, 2, 4, 5, 16, 17, 300])
def test_insert_and_delete(n, kind):
    rng = np.random.default_rng(n)
    tree = ThresholdTree(random_rows(rng, n, kind), LEVELS, fan_out=4)
    rows = set(range(n))
    check_tree(tree, rows)
    for _ in range(6):
        rows |= set(tree.insert(random_rows(rng, int(rng.integers(0, 120)), kind)).tolist())
        check_tree(tree, rows)
        gone = rng.permutation(sorted(rows))[: int(rng.integers(0, len(rows) + 1))]
        tree.delete(gone)
        rows -= set(gone.tolist())
        check_tree(tree, rows)
    tree.delete(np.array(sorted(rows), np.int64))
    check_tree(tree, set())
    check_tree(tree, set(tree.insert(random_rows(rng, 30, kind)).tolist()))


def test_places_of_deleted_nodes_are_used_again():
    rng = np.random.default_rng(1)
    tree = ThresholdTree(random_rows(rng, 1_000), LEVELS, fan_out=8)
    for _ in range(20):
        tree.delete(np.flatnonzero(tree.leaf_of >= 0)[:500])
        tree.insert(random_rows(rng, 500))
    assert len(tree) == 1_000
    assert tree.nodes.state[1] < 1_000


@pytest.mark.parametrize(
    "region", [Region(-1.0, 1.0), Region(0.0, np.inf), Region(-np.inf, 0.0), Region(-1.0, 1.0, outside=True)]
)
def test_a_search_finds_what_looking_at_every_row_finds(region):
    """Bulk-loaded, grown and shrunk trees say of each row what its own bounds say; only less is looked at."""
    rng = np.random.default_rng(2)
    model = random_rows(rng, 3_000)
    bulk = ThresholdTree(model, LEVELS, fan_out=10)
    grown = ThresholdTree(model.take(np.arange(0)), LEVELS, fan_out=10)
    grown.insert(model)
    extra = grown.insert(random_rows(rng, 500))
    grown.delete(extra)
    outer = Pages(random_rows(rng, 100), LEVELS, 10, True)
    asked = question(region, THRESHOLD, False, LEVELS, "strong")
    single = Pages(model, LEVELS, 1, False)
    for page in range(len(outer)):
        wanted = single.meet(outer.bounds, page, asked, PageScratch.of(3_000))
        for tree in (bulk, grown):
            room = PageScratch.of(3_500)
            met = tree.meet(outer.bounds, page, asked, room)
            counted = tree.meet(outer.bounds, page, asked, PageScratch.of(0))
            # a subtree's verdict is one for all its rows: rows may be included or pruned that alone would be too
            assert set(met.check.tolist()) == set(wanted.check.tolist())
            assert set(met.include.tolist()) == set(wanted.include.tolist())
            assert (counted.checked, counted.included) == (met.checked, met.included)
        assert bulk.meet(outer.bounds, page, asked, PageScratch.of(0)).visited < 2_000


def test_errors():
    tree = ThresholdTree(Uniform([0.0, 1.0], [1.0, 2.0]), LEVELS)
    for rows in ([2], [-1], [0, 0]):
        with pytest.raises(HaplyError, match="row to delete is not in the index"):
            tree.delete(np.array(rows))
    tree.delete(np.array([0]))
    with pytest.raises(HaplyError, match="Found row 0"):
        tree.delete(np.array([0]))
    with pytest.raises(HaplyError, match="is no tree"):
        ThresholdTree(Uniform(0.0, 1.0), LEVELS, fan_out=1)
