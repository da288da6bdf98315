"""The sweep and the cells: every overlapping pair once, whatever the cells."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import fewer
from haply.pruning.candidates import sweep as sweep_module
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.candidates.sweep import Sweep, sure_pairs
from haply.pruning.cells import Layout, Profile, expected_candidates, lay_out

seeds = st.integers(0, 2**32 - 1)


def random_intervals(rng: np.random.Generator, n: int) -> Intervals:
    """Intervals with ties, points, and (as above a threshold of 3/4) some with their ends in reverse."""
    start = rng.integers(0, 20, n) / 2.0 if rng.integers(2) else rng.uniform(0, 10, n)
    width = rng.choice([0.0, 0.5, 1.0, 8.0], n) * rng.choice([1.0, 1.0, -0.3], n)
    return Intervals(start, start + width, np.zeros(n, dtype=bool))


def overlapping(left: Intervals, right: Intervals) -> set[tuple[int, int]]:
    hit = (left.start[:, None] <= right.end) & (right.start <= left.end[:, None])
    return {(int(i), int(j)) for i, j in zip(*np.nonzero(hit), strict=True)}


def swept(sweep: Sweep) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for i, j in sweep.blocks():
        out += zip(sweep.left_order[i].tolist(), sweep.right_order[j].tolist(), strict=True)
    return out


@settings(max_examples=150, deadline=None)
@given(seeds, st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 7, 1 << 17]))
def test_every_overlap_once(seed, n, m, block):
    rng = np.random.default_rng(seed)
    left, right = random_intervals(rng, n), random_intervals(rng, m)
    before, sweep_module.BLOCK_PAIRS = sweep_module.BLOCK_PAIRS, block
    try:
        found = swept(Sweep(left, right))
    finally:
        sweep_module.BLOCK_PAIRS = before
    assert len(found) == len(set(found))
    assert set(found) == overlapping(left, right)


@settings(max_examples=100, deadline=None)
@given(seeds, st.integers(0, 30), st.integers(0, 30))
def test_groups_keep_apart(seed, n, m):
    rng = np.random.default_rng(seed)
    left, right = random_intervals(rng, n), random_intervals(rng, m)
    left_groups, right_groups = rng.integers(0, 3, n), rng.integers(0, 4, m)
    found = swept(Sweep(left, right, left_groups=left_groups, right_groups=right_groups))
    assert len(found) == len(set(found))
    assert set(found) == {(i, j) for i, j in overlapping(left, right) if left_groups[i] == right_groups[j]}


@settings(max_examples=fewer(150), deadline=None)
@given(seeds, st.integers(1, 40), st.integers(1, 40), st.integers(1, 12), st.integers(1, 20))
def test_cells_and_slices_share_out_every_pair_once(seed, n, m, rows_per_cell, cells):
    """What Spark does, done by hand: rows sent to the cells they touch and to slices, each pair found in one."""
    rng = np.random.default_rng(seed)
    sides = random_intervals(rng, n), random_intervals(rng, m)
    profiles = []
    for side in sides:
        lows = np.minimum(side.start, side.end)
        quantiles = np.sort(lows)[(np.arange(1, 64) * len(lows)) // 64]
        profiles.append(Profile(len(lows), quantiles, float(np.quantile(side.end - lows, 0.9))))
    forced = cells if seed % 2 else None
    layout = lay_out(*profiles, rows_per_cell=rows_per_cell, cells=forced)
    assert (np.diff(layout.edges) > 0).all()
    slices = layout.left_slices, layout.right_slices
    homes = [rng.integers(0, 1000, len(side.start)) for side in sides]
    found: list[tuple[int, int]] = []
    for cell in range(layout.cells):
        chosen, natives = [], []
        for side in sides:
            low, high = np.minimum(side.start, side.end), side.end
            first, last = (np.searchsorted(layout.edges, end, "right") for end in (low, high))
            chosen.append(np.flatnonzero((first <= cell) & (cell <= last)))
            natives.append(low[(first == cell)])
        reference = min((lows.min() for lows in natives if len(lows)), default=np.inf)
        for one in range(slices[0][cell]):
            for other in range(slices[1][cell]):
                mine = chosen[0][homes[0][chosen[0]] % slices[0][cell] == one]
                theirs = chosen[1][homes[1][chosen[1]] % slices[1][cell] == other]
                parts = [
                    Intervals(side.start[rows], side.end[rows], side.hopeless[rows])
                    for side, rows in zip(sides, (mine, theirs), strict=True)
                ]
                found += [(int(mine[i]), int(theirs[j])) for i, j in swept(Sweep(*parts, from_position=reference))]
    assert len(found) == len(set(found))
    assert set(found) == overlapping(*sides)


@settings(max_examples=100, deadline=None)
@given(seeds, st.integers(0, 30), st.integers(0, 30), st.booleans(), st.booleans())
def test_sure_pairs_are_those_apart(seed, n, m, above, below):
    rng = np.random.default_rng(seed)
    left, right = random_intervals(rng, n), random_intervals(rng, m)
    found = [(int(a), int(b)) for i, j in sure_pairs(left, right, above, below) for a, b in zip(i, j, strict=True)]
    wanted = []
    for a in range(n):
        for b in range(m):
            wanted += [(a, b)] * int(above and left.start[a] > right.end[b])
            wanted += [(a, b)] * int(below and left.end[a] < right.start[b])
    assert sorted(found) == sorted(wanted)


def test_heavy_values_are_sliced_and_the_small_side_repeated():
    heavy = Profile(1_000_000, np.full(511, 5.0), 0.1)
    small = Profile(100, np.linspace(0, 10, 511), 0.1)
    layout = lay_out(heavy, small, rows_per_cell=10_000)
    cell = int(np.searchsorted(layout.edges, 5.0, "right"))
    assert layout.left_slices[cell] > 10
    assert (layout.right_slices == 1).all()


def test_cells_are_not_narrower_than_a_typical_interval():
    dense = Profile(1_000_000, np.linspace(0, 1, 511), 0.25)
    layout = lay_out(dense, dense, rows_per_cell=1_000)
    assert (np.diff(layout.edges) >= 0.25).all()
    assert (layout.left_slices > 1).all()


def test_empty_sides_have_one_cell():
    empty = Profile(0, np.empty(0), 0.0)
    assert lay_out(empty, empty).cells == 1
    assert expected_candidates(empty, empty) == 0.0
    assert isinstance(lay_out(empty, Profile(5, np.zeros(511), 0.0), cells=8), Layout)
