"""The pair join in a window of time against brute force: every strategy, any order of batches, rows that are old."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from amounts import fewer
from engine import model_of
from haply.errors import HaplyError
from haply.joins import PairJoin
from haply.joins.operators import batches
from haply.joins.operators.meeting import TimedRows, parts_of
from haply.joins.operators.operator import RowBatch
from haply.joins.operators.pair import STRATEGIES
from haply.joins.slots import in_slots
from haply.models import Certain, Gaussian
from haply.probability import Difference, Region
from haply.pruning.candidates.intervals import Intervals

REGIONS = (
    Region(-0.8, 0.8),
    Region(-0.5, 1.25, low_closed=False),
    Region(-2.0, 2.0, outside=True),
    Region(0.25, np.inf),
    Region(-np.inf, 0.0, high_closed=False),
)
SIDES = ("left", "right")


def a_case(rng, kinds, region, level):
    """Values, times with ties and at the very ends of windows, groups, and the answer."""
    count, unit = 24, float(rng.choice([1.0, 0.1]))
    sides = [[oracle.random_value(rng, kind, center_range=(-2, 2)) for _ in range(count)] for kind in kinds]
    start = float(rng.choice([0.0, -1e6, 1e9]))
    times = [start + unit * rng.integers(0, 60, count) for _ in SIDES]
    groups = [rng.integers(0, int(rng.choice([1, 3])), count).astype(float) for _ in SIDES]
    window = float(unit * rng.choice([0, 1, 7, 25, 100]))
    probabilities = oracle.brute_force_probabilities(
        *sides, region.low, region.high, region.low_closed, region.high_closed, region.outside
    )
    near = {
        (i, j)
        for i, j in product(range(count), repeat=2)
        if abs(times[0][i] - times[1][j]) <= window and groups[0][i] == groups[1][j]
    }
    hairline = set(oracle.borderline_pairs(probabilities, level))
    wanted = {pair: p for pair, p in oracle.kept_pairs(probabilities, level).items() if pair in near - hairline}
    return sides, times, groups, window, wanted, hairline


@settings(max_examples=fewer(25), deadline=None)
@given(
    st.sampled_from(list(product(oracle.KINDS, repeat=2))),
    st.sampled_from(REGIONS),
    st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    st.sampled_from(STRATEGIES),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_pairs_in_a_window(kinds, region, level, strategy, exact, seed):
    """In the order of time, in batches of any size from either side, across a snapshot, and with old rows forgotten."""
    rng = np.random.default_rng(seed)
    sides, times, groups, window, wanted, hairline = a_case(rng, kinds, region, level)
    models = [model_of(side) for side in sides]
    join = PairJoin(Difference("x", "x", region), level, window=window, strategy=strategy, exact=exact)
    orders = [np.argsort(own, kind="stable") for own in times]
    batches = [np.split(order, np.sort(rng.integers(0, len(order) + 1, 4))) for order in orders]
    found = {}
    for step in range(5):
        for side in rng.permutation(2):
            rows = batches[side][step]
            batch = RowBatch.of(rows, models[side].take(rows), times[side][rows], groups[side][rows])
            result = join.arrive(side, batch)
            for i, j, p in zip(result.left.tolist(), result.right.tolist(), result.probability, strict=True):
                assert (i, j) not in found, "doubled"
                found[i, j] = p
        later = [times[side][rows] for side in (0, 1) for rows in batches[side][step + 1 :]]
        join.expire(min((own.min() for own in later if len(own)), default=np.inf))
        if step == 2:
            join = PairJoin.restore(join.snapshot())
    assert set(found) - hairline == set(wanted)
    assert join.funnel.kept == len(found)
    for (i, j), p in found.items():
        slack = oracle.float_slack(sides[0][i], sides[1][j], region.low, region.high)
        assert (not exact and np.isnan(p)) or (i, j) in hairline or abs(p - wanted[i, j]) <= 1e-10 + slack
    assert not len(join.ids("left"))
    assert join.stored_bytes == 0


def rows_at(times, groups=None):
    times = np.asarray(times, float)
    nothing = Intervals(times, times, np.zeros(len(times), bool))
    return TimedRows.placed(RowBatch.of(np.arange(len(times)), Certain(times), times, groups), nothing)


@pytest.mark.parametrize("window", [0.0, 1e-9, 0.3, 5.0, 1e4])
def test_rows_in_a_window_share_a_slot_once(window):
    rng = np.random.default_rng(4)
    for start, far in ((0.0, False), (1e9, False), (1e9, True)):
        left, right = (start + np.round(rng.uniform(0, 100, 400), 1) for _ in SIDES)
        if far:  # a time that is far from all others must not make slots long
            left[7], right[3] = 0.0, 3e12
        copies, (mine, theirs) = in_slots(rows_at(left), rows_at(right), window)
        i, k = np.nonzero(np.ones((400, 400)) if mine is None else mine[:, None] == theirs)
        shared = np.zeros((400, 400), np.int64)
        np.add.at(shared, (i, copies[k]), 1)
        assert shared.max() <= 1
        assert shared[np.abs(left[:, None] - right) <= window].all()
        if 0.0 < window < 1.0:
            assert shared.sum() < 0.05 * shared.size, "few others"


def test_parts_are_windows():
    """Tumbling windows of 100 rows have an index each; so have stretches of time; small groups share one."""
    number = np.random.default_rng(2).permutation(1000)
    parts = list(parts_of(rows_at(number, number // 100.0), 99.0))
    assert [sorted(part.times) for part in parts] == np.arange(1000).reshape(10, 100).tolist()
    parts = list(parts_of(rows_at(number), 99.0))
    assert sorted(np.concatenate([part.ids for part in parts])) == list(range(1000))
    assert all(np.ptp(part.times) <= 99.0 for part in parts)
    assert len(parts) == 10
    assert [len(part) for part in parts_of(rows_at(number, number % 100.0), 1e4)] == [1000]
    assert len(list(parts_of(rows_at(number), 1e-3))) == 16, "not one for each row"
    number = np.arange(6400)
    assert len(list(parts_of(rows_at(number % 64, number // 64.0), 0.5))) == 100, "one for each group"


def test_slots_save_pairs():
    """In short windows few pairs are looked at that are far apart in time, however many values are alike."""
    rng = np.random.default_rng(3)
    n = 2000
    join = PairJoin(Difference("x", "x", Region(-1.0, 1.0)), 0.5, window=3.0)
    kept = 0
    for side in SIDES:
        batch = {"id": np.arange(n), "time": np.arange(n), "x": Gaussian(rng.uniform(0, 10, n), np.full(n, 0.3))}
        kept += len(join.push(side, batch).left)
    assert 1000 < kept < join.funnel.candidates < 12 * n


def test_ids_keep_their_type():
    """Also where a stored batch is out of reach."""
    for ids in (np.array([2**63 + 1, 2**63 + 3, 2**63 + 5], np.uint64), np.array(["a", "b", "c"])):
        join = PairJoin(Difference("x", "x", Region(-0.5, 0.5)), 0.6, window=1.0)
        join.push("left", {"id": ids[:1], "x": [1.0], "time": [0]})
        join.push("left", {"id": ids[1:2], "x": [1.0], "time": [100]})
        found = join.push("right", {"id": ids[2:], "x": [1.0], "time": [0]})
        assert (found.left.tolist(), found.right.tolist()) == ([ids[0]], [ids[2]])
        assert found.left.dtype == join.ids("left").dtype == ids.dtype


def test_errors_of_a_window():
    condition = Difference("x", "x", Region(-1.0, 1.0))
    for wrong in (-1.0, float("nan"), (-1, 5), "10 seconds", True, [1]):
        with pytest.raises(HaplyError, match=r"window is no length of time.*number >= 0"):
            PairJoin(condition, 0.5, window=wrong)  # type: ignore[arg-type]
    assert PairJoin(condition, 0.5, window=np.int64(3)).window == 3.0
    join = PairJoin(condition, 0.5, window=1.0)
    with pytest.raises(HaplyError, match="no column 'time'"):
        join.push("left", {"id": [1], "x": [0.0]})
    with pytest.raises(HaplyError, match="Expected 2 times"):
        join.push("left", {"id": [1, 2], "x": [0.0, 1.0], "time": [3.0]})
    for times, text in (([np.nan], "is NaN or infinite"), ([1_700_000_000_000_000_001], "is too large to be exact")):
        with pytest.raises(HaplyError, match=text):
            join.push("left", {"id": [1], "x": [0.0], "time": times})
    with pytest.raises(HaplyError, match=r"Times are not numbers.*datetime64"):
        join.push("left", {"id": [1], "x": [0.0], "time": np.array(["2026-01-01"], "datetime64[s]")})


def pushed_row_by_row(join, sides, times, order):
    found = []
    for side, k in order:
        batch = {"id": [k], "x": sides[side].take(np.array([k])), "time": times[side][[k]]}
        result = join.push(SIDES[side], batch)
        found += zip(result.left.tolist(), result.right.tolist(), strict=True)
    return found


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("window", [None, 12.0])
@pytest.mark.parametrize(("few", "most"), [(256, 8192), (0, 8192), (0, 12), (16, 20)])
def test_many_small_pushes_leave_few_parts_and_lose_no_pair(window, few, most, monkeypatch):
    monkeypatch.setattr(batches, "_FEW", few)
    monkeypatch.setattr(batches, "_MOST_JOINED", most)
    rng, n = np.random.default_rng(7), 120
    sides = [Gaussian(rng.uniform(0, 6, n), rng.uniform(0.1, 0.5, n)) for _ in SIDES]
    times = [rng.permutation(n).astype(float) for _ in SIDES]
    near = Difference("x", "x", Region(-1.0, 1.0))
    join = PairJoin(near, 0.5, window=window)
    order = [(side, k) for k in range(n) for side in (0, 1)]
    found = pushed_row_by_row(join, sides, times, order)
    whole = PairJoin(near, 0.5, window=window)
    for side, name in enumerate(SIDES):
        result = whole.push(name, {"id": np.arange(n), "x": sides[side], "time": times[side]})
    assert sorted(found) == sorted(zip(result.left.tolist(), result.right.tolist(), strict=True))
    assert len(found) > 300
    sizes = [len(part.rows) for part in join._stored["left"]]
    assert sum(sizes) == n
    assert max(sizes) <= most
    assert len(sizes) <= max(9, 2 + 3 * n // most)


def test_half_of_a_part_may_wait_to_be_forgotten():
    """Rows come in the order of time, a window at a time is alive: no more than twice as many are kept."""
    join = PairJoin(Difference("x", "x", Region(-1.0, 1.0)), 0.5, window=10.0)
    for t in range(200):
        join.push("left", {"id": [t], "x": [0.0], "time": [t]})
        join.expire(t)
        kept = join.ids("left")
        assert set(range(max(0, t - 10), t + 1)) <= set(kept.tolist())
        assert len(kept) <= 22
    assert join.push("right", {"id": [0], "x": [0.0], "time": [199]}).left.tolist() == list(range(189, 200))


def test_batches_of_other_kinds_are_kept_apart():
    join = PairJoin(Difference("x", "x", Region(-1.0, 1.0)), 0.5)
    for k in range(6):
        join.push("left", {"id": [k], "x": Gaussian([0.0], [0.1]) if k % 2 else [0.0]})
    join.push("left", {"id": ["a"], "x": [0.0]})
    assert [type(part.rows.model) for part in join._stored["left"]] == [Certain, Gaussian] * 3 + [Certain]
    assert sorted(map(str, join.push("right", {"id": [9], "x": [0.0]}).left)) == [*"012345", "a"]
