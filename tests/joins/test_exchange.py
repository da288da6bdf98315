"""Where rows go and who decides a pair, without an engine: each pair that may match is owned by exactly one cell."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest

from haply.joins.cells.exchange import SLICE_BITS, Blocks, CellEdges, to_blocks, to_cells
from haply.joins.cells.rows import window_ahead
from haply.models import Certain
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cells import Layout, touched_cells
from haply.pruning.ownership import Places, owned, owns


def random_intervals(rng, count):
    """Ends with ties, at edges of cells and blocks; wide and narrow ones, and cores that start behind their end."""
    start = rng.choice([rng.integers(-8, 8, count), rng.uniform(-8.0, 8.0, count)])
    width = rng.choice([-0.5, 0.0, 0.5, 1.0, 3.0, 40.0], count, p=[0.2, 0.1, 0.2, 0.3, 0.15, 0.05])
    return Intervals(start.astype(float), start + width, np.zeros(count, bool))


def may_match(sides):
    """All combinations of rows whose intervals have a point in common, as the definition of candidates has it."""
    for rows in itertools.product(*(range(len(side.start)) for side in sides)):
        pairs = itertools.permutations(zip(sides, rows, strict=True), 2)
        if all(one.start[i] <= other.end[j] for (one, i), (other, j) in pairs):
            yield rows


def cells_of(sides, sent):
    """For each cell, the rows of each side there, and whether they begin in it; no row is there twice."""
    cells = defaultdict(lambda: [{} for _ in sides])
    for side, found in enumerate(sent):
        for row, here, cell in zip(found.rows.tolist(), found.begins_here.tolist(), found.cell.tolist(), strict=True):
            assert row not in cells[cell][side], "a row comes to a cell once"
            cells[cell][side][row] = here
    return cells


def places_of(side, rows, here):
    rows = list(rows)
    return Places(side.begins[rows], np.array([here[row] for row in rows], bool))


def owners(sides, sent):
    """How many cells own each combination of rows that they have."""
    found = Counter()
    for members in cells_of(sides, sent).values():
        rows = list(itertools.product(*members))
        if rows:
            columns = zip(*rows, strict=True)
            places = [places_of(side, own, here) for side, own, here in zip(sides, columns, members, strict=True)]
            found.update(row for row, mine in zip(rows, owned(places).tolist(), strict=True) if mine)
    return found


@pytest.mark.parametrize("seed", range(25))
def test_tables_each_pair_is_owned_by_one_cell(seed):
    """Over random layouts, with edges where rows begin, and slices of one side, of both, or of none."""
    rng = np.random.default_rng(seed)
    sides = [random_intervals(rng, 22) for _ in range(2)]
    edges = np.unique(rng.choice(np.append(sides[0].start, rng.uniform(-8, 8, 5)), int(rng.integers(0, 6))))
    slices = [rng.integers(1, 4 if seed % 3 else 2, len(edges) + 1).astype(np.int32) for _ in range(2)]
    layout = CellEdges.of(Layout(edges, *slices), False)
    assert bool(len(layout.slices)) == bool((np.concatenate(slices) > 1).any())
    sent = [to_cells(side, number, layout, rng.integers(-(2**62), 2**62, 22)) for number, side in enumerate(sides)]
    found, wanted = owners(sides, sent), set(may_match(sides))
    assert not found or max(found.values()) == 1
    assert set(found) >= wanted
    assert len(wanted) > 20


@pytest.mark.parametrize("seed", range(12))
def test_rows_go_to_every_cell_that_they_touch(seed):
    rng = np.random.default_rng(seed)
    side = random_intervals(rng, 40)
    side.start[:3], side.end[:3] = (-np.inf, 1.0, 2.0), (0.5, np.inf, 2.0)
    edges = np.unique(np.append(rng.integers(-8, 8, 5).astype(float), rng.choice(side.end, 2)))
    edges = edges[np.isfinite(edges)]
    sent = to_cells(side, 0, CellEdges(edges, np.empty(0, np.int64)), None)
    low = np.minimum(side.start, side.end)
    bounds = list(zip([-np.inf, *edges], [*edges, np.inf], strict=True))  # a cell has its lower bound
    first = [sum(edge <= at for edge in edges) for at in low]
    wanted = {
        (row, cell): cell == first[row]
        for row in range(40)
        for cell, (begin, _) in enumerate(bounds)
        if cell == first[row] or (cell > first[row] and begin <= side.end[row])
    }
    cells = (sent.cell >> (2 * SLICE_BITS)).tolist()
    assert dict(zip(zip(sent.rows.tolist(), cells, strict=True), sent.begins_here.tolist(), strict=True)) == wanted
    assert len(cells) == len(wanted)
    assert cells == sorted(cells)


@pytest.mark.parametrize("seed", range(12))
def test_where_cells_follow_one_another_the_rule_has_simpler_forms(seed):
    """One row begins in the cell; the later beginning is not before the first one there; and kernels say the same."""
    rng = np.random.default_rng(seed)
    sides = [random_intervals(rng, 20) for _ in range(2)]
    edges = CellEdges(np.unique(rng.integers(-8, 8, 4)).astype(float), np.empty(0, np.int64))
    candidates = set(may_match(sides))
    for members in cells_of(sides, [to_cells(side, k, edges, None) for k, side in enumerate(sides)]).values():
        begun = [side.begins[row] for side, here in zip(sides, members, strict=True) for row in here if here[row]]
        for i, j in candidates & set(itertools.product(*members)):
            places = [places_of(side, [row], here) for side, row, here in zip(sides, (i, j), members, strict=True)]
            mine = bool(owned(places)[0])
            assert mine == (members[0][i] or members[1][j])
            assert mine == (max(sides[0].begins[i], sides[1].begins[j]) >= min(begun, default=np.inf))
            assert mine == owns(*(column[0] for place in places for column in place[:2]))
            assert mine == owned(places[::-1])[0]


def sent_to_blocks(rng, sides, groups, blocks):
    """Rows of streams in their cells. Every row begins in one cell, and is in no cell twice."""
    sent = [to_blocks(side, group, blocks) for side, group in zip(sides, groups, strict=True)]
    for side, found in zip(sides, sent, strict=True):
        assert np.bincount(found.rows, found.begins_here, len(side.start)).tolist() == [1.0] * len(side.start)
        assert ((found.cell >= 0) & (found.cell < blocks.cells)).all()
    return sent


def of_one_group(groups, rows):
    return len({float(group[row]) for group, row in zip(groups, rows, strict=True)}) == 1


@pytest.mark.parametrize("seed", range(25))
def test_streams_each_pair_is_owned_by_one_cell(seed):
    """Over random widths of blocks, numbers of cells and groups; also for rows that are everywhere."""
    rng = np.random.default_rng(seed)
    sides = [random_intervals(rng, 20) for _ in range(2)]
    if seed % 2:
        sides[0].start[0], sides[0].end[0] = -np.inf, 3.0
        sides[1].start[0], sides[1].end[0] = -np.inf, np.inf
        sides[1].start[1], sides[1].end[1] = -1e300, 2.0
    groups = [rng.choice([0.0, 3.0, -7.0, 2.0**51 + 1.0][: int(rng.integers(1, 5))], 20) for _ in sides]
    width = float(rng.choice([0.25, 1.0, 5.0, 100.0, 1e-17]))
    blocks = Blocks(int(rng.choice([1, 2, 3, 7, 16])), width)
    found = owners(sides, sent_to_blocks(rng, sides, groups, blocks))
    wanted = {rows for rows in may_match(sides) if of_one_group(groups, rows)}
    alike = {rows: count for rows, count in found.items() if of_one_group(groups, rows)}
    assert wanted
    assert set(alike) >= wanted
    assert {alike[rows] for rows in wanted} == {1}, "exactly one"


@pytest.mark.parametrize("seed", range(12))
def test_combinations_of_streams_are_owned_by_one_cell(seed):
    """Rows of three streams that are all within the longest window, which reaches ahead of each row's time."""
    rng = np.random.default_rng(seed)
    reach = float(rng.choice([0.0, 0.3, 2.0, 6.0]))
    times = [rng.choice([rng.integers(0, 20, 9) * 0.1, rng.uniform(-9.0, 9.0, 9)]) for _ in range(3)]
    sides = [window_ahead(Certain(own), reach) for own in times]
    groups = [rng.integers(0, int(rng.choice([1, 2])), 9).astype(float) for _ in sides]
    blocks = Blocks(int(rng.choice([1, 2, 5])), float(rng.choice([0.5, 16.0 * reach or 1.0])))
    found = owners(sides, sent_to_blocks(rng, sides, groups, blocks))
    for rows in itertools.product(range(9), repeat=3):
        own = [side[row] for side, row in zip(times, rows, strict=True)]
        if max(own) - min(own) <= reach and of_one_group(groups, rows):
            assert found[rows] == 1


def edges_of_all_kinds(rng):
    count = int(rng.integers(0, 40))
    even, ties = np.linspace(-5.0, 5.0, count), np.unique(rng.integers(-9, 9, count)) / 3.0
    far_apart = np.unique(rng.normal(0.0, 1.0, count) ** 15)  # nearly all in one step of their range
    huge = np.unique(np.append(rng.uniform(-2.0, 2.0, count), [-1.7e308, 1.7e308]))  # a range beyond doubles
    return [even, ties, far_apart, huge, np.array([0.25]), np.empty(0)][int(rng.integers(6))]


@pytest.mark.parametrize("seed", range(60))
def test_rows_find_their_cell_among_edges_of_all_kinds(seed):
    rng = np.random.default_rng(seed)
    edges = edges_of_all_kinds(rng)
    near = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
    places = np.concatenate([near, rng.normal(0.0, 3.0, 50), [0.0, -np.inf, np.inf, 1e308, -1e308]])
    ends = np.maximum(places, rng.permutation(places))
    rows, begins_here, cell = touched_cells(places, ends, edges)
    wanted = [
        (row, k == first, k)
        for row, (place, end) in enumerate(zip(places, ends, strict=True))
        for first in [sum(edge <= place for edge in edges)]
        for k in range(first, max(first, sum(edge <= end for edge in edges)) + 1)
    ]
    assert sorted(zip(rows.tolist(), begins_here.tolist(), cell.tolist(), strict=True)) == sorted(wanted)
    assert (np.diff(cell) >= 0).all()


def test_rows_in_the_order_of_their_cells():
    rng = np.random.default_rng(3)
    for count in (0, 1, 40, 6000):  # many are sorted by digits
        sent = to_blocks(random_intervals(rng, count), np.zeros(count), Blocks(5, 0.5))
        found, slices = sent.by_cell()
        assert sorted(zip(*map(np.ndarray.tolist, found), strict=True)) == sorted(
            zip(*map(np.ndarray.tolist, sent), strict=True)
        )
        assert [cell for cell, (begin, end) in slices.items() for _ in range(begin, end)] == found.cell.tolist()
        assert all((found.cell[begin:end] == cell).all() for cell, (begin, end) in slices.items())
