"""The cells of a stream join, one after the other, without Spark: each pair once, whatever comes late or fails."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import oracle_distance as oracle
from fake_stream import FakeCells, in_batches
from haply.engines.spark.exchange.parcels import PARCEL, from_bytes
from haply.engines.spark.exchange.stack import CELL
from haply.engines.spark.exchange.worker import COUNTERS
from haply.engines.spark.streaming import worker as stream_worker
from haply.engines.spark.streaming.parcels import CONTROL, GROUP, Clock, StreamPack
from haply.engines.spark.streaming.worker import CellQuery, CellResult
from haply.errors import HaplyError
from haply.joins.cells.exchange import Blocks
from haply.joins.cells.rows import TIME, RowSpec
from haply.joins.cells.samples import PlaceSamples
from haply.joins.operators import similarity
from haply.joins.operators.by_dimension import PointJoin
from haply.joins.operators.similarity import SimilarityJoin
from haply.probability.region import Distance
from haply.pruning.threshold import Threshold
from stream_kit import DELAY, EPS, POINT, POSITION, THRESHOLD, WINDOW, assert_pairs, random_clouds, samples, scattered


class FakeStream(FakeCells):
    """Near points in a window of time."""

    def __init__(
        self, eps, threshold, window, max_delay, *, cells=1, strict=False, raises=True, exact=True, stamps=False, seed=0
    ):
        self.place = PlaceSamples(Distance("pos", "pos", eps), Threshold(threshold, strict))
        self.settings = (eps, threshold, strict, exact, raises, window)
        clock = Clock.of(stamps, window + max_delay)
        super().__init__(("left", "right"), clock, (max_delay, max_delay), cells, seed)

    def make_query(self, name):
        eps, threshold, strict, exact, raises, window = self.settings
        fields = [(f"{side}{k}", kind) for side in "lr" for k, kind in enumerate((pa.int64(), pa.float64(), POSITION))]
        schema = pa.schema([*fields, ("probability", pa.float64()), (COUNTERS, pa.list_(pa.int64()))])
        settings = {
            "within": eps, "threshold": threshold, "strict": strict, "window": window,
            "probability": "exact" if exact else "none",
        }  # fmt: skip
        result = CellResult(None, (("l0", "l1", "l2"), ("r0", "r1", "r2")), schema)
        return CellQuery(
            partial(PointJoin, SimilarityJoin, settings, raises), ("l2", "r2"), result, window, self.clock, name,
            (("cells", self.cells), ("window", window), ("delay", self.delays)),
        )  # fmt: skip

    def table(self, side, ids, times, clouds, groups=None):
        prefix = "lr"[side]
        return pa.table(
            {
                f"{prefix}0": pa.array(ids, pa.int64()), f"{prefix}1": pa.array(times, pa.float64()),
                f"{prefix}2": samples(clouds), TIME: pa.array(times, pa.float64()),
                GROUP: np.zeros(len(ids)) if groups is None else np.asarray(groups, np.float64),
            }
        )  # fmt: skip

    def pack(self, side):
        blocks, prefix = Blocks(self.cells, self.place.distance.limit * 16.0 or 1.0), "lr"[side]
        spec = RowSpec(f"{prefix}2", (f"{prefix}0", f"{prefix}1"), (), self.place, "pos", None)
        return StreamPack(side, spec, blocks, self.clock)

    def found(self, row):
        return row["l0"], row["r0"], row["probability"]


@pytest.fixture(autouse=True)
def nothing_remembered():
    stream_worker._cached_states.clear()
    yield
    stream_worker._cached_states.clear()


def random_case(seed):
    """A join, two sides that come in batches within the delay, and the answer."""
    rng = np.random.default_rng(seed)
    n, dim = 45, int(rng.integers(1, 4))
    weighted = bool(rng.random() < 0.3)
    eps, threshold = float(rng.choice([1.5, 3.0, 6.0])), [None, 0.1, 0.3, 0.5, 1.0][rng.integers(5)]
    strict = bool(rng.random() < 0.3) and threshold not in (None, 1.0)
    window, max_delay = float(rng.choice([2, 6, 15, 60])), float(rng.choice([0, 2, 10]))
    size, spread = float(rng.choice([1, 6])), float(rng.choice([3, 9]))
    clouds = [random_clouds(rng, n, dim, weighted, spread=spread, size=size) for _ in range(2)]
    start = float(rng.choice([-1e6, 0.0, 1e9, 1e12]))
    times = [start + rng.integers(0, 160, n) / 2.0 for _ in range(2)]
    groups = [rng.integers(-1, 2, n) * 3.7e17 if seed % 2 else np.zeros(n) for _ in range(2)]
    count = int(rng.choice([5, 14]))
    batches = [in_batches(rng, side, count, max_delay) for side in times]
    wanted = oracle.all_pairs(
        *clouds, *(side.tolist() for side in times), window=window, eps=eps, threshold=threshold, strict=strict
    )
    return SimpleNamespace(
        eps=eps, threshold=threshold, strict=strict, window=window, max_delay=max_delay, clouds=clouds, times=times,
        cells=int(rng.choice([1, 2, 5, 9])), groups=groups, batches=list(zip(*batches, strict=True)),
        wanted={(i, j) for i, j in wanted if groups[0][i] == groups[1][j]},
    )  # fmt: skip


def rows_of(case, side, chosen):
    clouds = [case.clouds[side][k] for k in chosen]
    return side, chosen, case.times[side][chosen], clouds, case.groups[side][chosen]


def run_case(case, disturb=None, **options):
    """All batches of a case; ``disturb(stream, rows)`` comes before each."""
    stream = FakeStream(
        case.eps, case.threshold, case.window, case.max_delay, cells=case.cells, strict=case.strict, **options
    )
    out = []
    for chosen in case.batches:
        rows = [rows_of(case, side, chosen[side]) for side in (0, 1)]
        if disturb:
            disturb(stream, rows)
        out.append(sorted(stream.batch(*rows)))
    return stream, out


def flat(batches):
    return [pair for batch in batches for pair in batch]


def forget(stream, rows):
    stream_worker._cached_states.clear()


def fail(stream, rows):
    for _ in range(2):
        stream.batch(*rows, fail=True)


def fail_elsewhere(stream, rows):
    stream.batch(*rows, fail=True)
    stream_worker._cached_states.clear()


def restart(stream, rows):
    stream.restart()


def go_back(stream, rows):
    """Another worker serves the cells for a while: this one still has what was true before."""
    if stream.rng.random() < 0.5:
        stream.kept = copy.deepcopy(stream_worker._cached_states)
    elif hasattr(stream, "kept"):
        stream_worker._cached_states.clear()
        stream_worker._cached_states.update(stream.kept)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(10))
def test_cells_give_each_pair_once_whatever_a_worker_remembers(seed, monkeypatch):
    case = random_case(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(similarity, "GRID_FROM", 4)  # as if there were thousands
    stream, out = run_case(case)
    assert_pairs(flat(out), case.wanted, *case.clouds, case.eps, case.threshold, case.strict)
    assert stream.counted["late_left"] == stream.counted["late_right"] == 0
    assert stream.counted["kept"] == sum(map(len, out))
    for disturb in (forget, fail, fail_elsewhere, restart, go_back):
        stream_worker._cached_states.clear()
        other, again = run_case(case, disturb)
        assert again == out, disturb.__name__
        assert other.state.rows == stream.state.rows
    monkeypatch.setattr(stream_worker, "_MEMORY_LIMIT", 1)
    assert run_case(case)[1] == out, "no room to remember"


def test_the_cases_have_pairs_and_rows_in_several_cells():
    """What the test above relies on: many pairs, in many batches, some across cells and groups."""
    cases = [random_case(seed) for seed in range(10)]
    assert sum(len(case.wanted) > 20 for case in cases) >= 5
    assert {case.cells for case in cases} >= {1, 5, 9}
    seen = 0
    for case in cases:
        stream = FakeStream(case.eps, case.threshold, case.window, case.max_delay, cells=case.cells)
        parcels = stream.parcels(*rows_of(case, 0, np.arange(45)))
        seen += sum(from_bytes(parcel).num_rows for parcel in parcels[PARCEL].drop_null().to_pylist()) > 45
    assert seen >= 5


def on_time(times, batches, max_delay):
    """By side, which rows are at most ``max_delay`` behind the newest of their side in earlier batches."""
    good = [np.zeros(len(side), bool) for side in times]
    for side in (0, 1):
        newest = -np.inf
        for chosen in batches:
            rows = chosen[side]
            good[side][rows] = times[side][rows] >= newest - max_delay
            newest = max(newest, times[side][rows].max(initial=-np.inf))
    return good


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("seed", range(100, 106))
def test_cells_lose_late_rows_only_and_count_them(seed):
    """Rows come in any order: pairs of rows that are on time are all there, and what is missing was counted."""
    case = random_case(seed)
    rng = np.random.default_rng(seed)
    case.cells = 1
    case.batches = list(zip(*([*np.array_split(rng.permutation(45), 6)] for _ in range(2)), strict=True))
    stream, out = run_case(case)
    found = flat(out)
    good = on_time(case.times, case.batches, case.max_delay)
    missing = case.wanted - {(i, j) for i, j, _ in found}
    assert_pairs(found, case.wanted - missing, *case.clouds, case.eps, case.threshold, case.strict)
    assert not [(i, j) for i, j in missing if good[0][i] and good[1][j]], "a row that came in time was lost"
    late = [stream.counted["late_left"], stream.counted["late_right"]]
    assert all(count <= (~fine).sum() for count, fine in zip(late, good, strict=True))
    lost = [{pair[side] for pair in missing if good[1 - side][pair[1 - side]]} for side in (0, 1)]
    assert all(len(rows) <= count for rows, count in zip(lost, late, strict=True))
    assert run_case(case, restart)[1] == out


def test_a_stream_that_is_behind_holds_back_eviction():
    """All of the left comes before any of the right: nothing is forgotten, and the right's rows are not late."""
    case = random_case(3)
    nothing = np.arange(0)
    case.batches = [(chosen[0], nothing) for chosen in case.batches] + [(nothing, chosen[1]) for chosen in case.batches]
    stream, out = run_case(case)
    assert_pairs(flat(out), case.wanted, *case.clouds, case.eps, case.threshold, case.strict)
    half = len(out) // 2
    assert not any(out[:half])
    assert any(out[half:])
    assert stream.counted["late_left"] == stream.counted["late_right"] == 0


def test_an_idle_cell_is_emptied_by_its_timer():
    """Two cells, and after a while rows come to one of them only; the first timer finds the other one not yet idle."""
    stream = FakeStream(1.0, 0.5, 10.0, 2.0, cells=4)
    idle, busy = [oracle.cloud([[430.0 + k, 0.0]]) for k in range(5)], [oracle.cloud([[10.0, 0.0]])]
    stream.batch((0, np.arange(5), np.arange(5.0), idle), (1, [90], np.array([0.0]), busy))
    assert {cell: len(held["pieces"]) for cell, held in stream.handle.cells.items() if cell != CONTROL} == {1: 1, 0: 1}
    for t in range(5, 90, 5):
        ids, times = [t], np.array([float(t)])
        more = ([*ids, 99], np.array([float(t)] * 2), busy + idle[:1]) if t < 15 else (ids, times, busy)
        stream.batch((0, *more), (1, ids, times, busy))
        if t <= 25:  # the watermark of a batch before is at most 20 - 2
            assert stream.handle.cells[1]["index"]
    assert stream.handle.cells[1] == {"index": {}, "pieces": {}, "timers": set()}
    assert stream.handle.cells[0]["index"]
    assert [cell for _, cell in stream_worker._cached_states] == [0], "the worker forgets it as well"


def test_all_is_forgotten_when_time_has_passed():
    """After the last rows: cells without rows are emptied by timers alone, and nothing stays in the state."""
    case = random_case(9)
    stream, _ = run_case(case)
    assert stream.state.rows
    for later in (1e4, 2e4, 3e4):
        times = np.array([max(side.max() for side in case.times) + later])
        far = oracle.cloud(np.zeros((1, case.clouds[0][0].dim)))
        stream.batch((0, [0], times, [far]), (1, [0], times, [far]))
    held = [cell for key, cell in stream.handle.cells.items() if key != CONTROL and (cell["index"] or cell["pieces"])]
    assert len(held) <= 2, "only the cells of the last rows remember something"
    assert stream.state.rows <= 2 * (1 + 2 * 2), "the index, and two sides of the last two batches"
    assert sum(len(cell["timers"]) for cell in stream.handle.cells.values()) <= 2


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("max_delay", [0.0, 3.0])
def test_state_is_flat_over_many_windows(max_delay):
    rng = np.random.default_rng(5)
    stream = FakeStream(1.0, 0.3, 10.0, max_delay, cells=3)
    sizes, memory = [], []
    for k in range(60):
        times = np.sort(k * 5.0 + rng.uniform(0, 5, 12))
        sides = [(side, k * 12 + np.arange(12), times, random_clouds(rng, 12, 2, most=6)) for side in (0, 1)]
        stream.batch(*sides)
        sizes.append((stream.state.rows, stream.state.bytes))
        memory.append(sum(held.nbytes for _, held in stream_worker._cached_states.values()))
    for name, values in (("rows", [rows for rows, _ in sizes]), ("bytes", [size for _, size in sizes])):
        assert max(values[10:]) < 1.5 * max(values[6:10]), name
        assert max(values[35:]) < 1.2 * max(values[10:35]), name
    assert max(memory[35:]) < 1.5 * max(memory[10:35])
    assert all(len(cell["timers"]) <= 1 for cell in stream.handle.cells.values())


def test_a_window_of_nothing_joins_equal_times():
    stream = FakeStream(1.0, 0.5, 0.0, 0.0)
    found = []
    for t in range(6):
        side = (np.arange(3) + 3 * t, np.full(3, float(t)), [POINT] * 3)
        found += stream.batch((0, *side), (1, *side))
    assert sorted((i, j) for i, j, _ in found) == [
        (3 * t + a, 3 * t + b) for t in range(6) for a in range(3) for b in range(3)
    ]
    assert stream.state.rows <= 6


def test_rows_of_other_dimensions_raise():
    stream = FakeStream(1.0, 0.5, 10.0, 0.0)
    stream.batch((0, [0], np.array([0.0]), [POINT]))
    with pytest.raises(HaplyError, match="Points differ in dimension") as caught:
        stream.batch((1, [0], np.array([0.0]), [oracle.cloud([[0.0, 0.0, 0.0]])]))
    assert 'invalid="drop"' in str(caught.value)


def test_rows_of_other_dimensions_meet_their_like_only():
    """Where they are not refused; whichever comes first."""
    plane, space = [POINT] * 2, [oracle.cloud([[0.0, 0.0, 0.0]])] * 2
    times = np.array([0.0, 1.0])
    for first, second in ((plane, space), (space, plane)):
        for disturb in (None, forget):
            stream = FakeStream(1.0, 0.5, 10.0, 5.0, raises=False)
            found = stream.batch((0, [0, 1], times, first))
            for rows in ((1, [0, 1], times, [second[0], first[0]]), (0, [2, 3], times, second)):
                if disturb:
                    disturb(stream, None)
                found += stream.batch(rows)
            assert sorted(found) == [(0, 1, 1.0), (1, 1, 1.0), (2, 0, 1.0), (3, 0, 1.0)]


def test_late_rows_are_counted_once():
    """Also one that is seen in many cells."""
    stream = FakeStream(1.0, 0.1, 10.0, 0.0, cells=9)
    wide = [oracle.cloud([[-200.0, 0.0], [200.0, 0.0]])]
    for t in (0.0, 100.0, 200.0):
        stream.batch(*((side, [0], np.array([t]), wide) for side in (0, 1)))
    assert len(stream.handle.cells) == 10
    stream.batch((0, [1], np.array([5.0]), wide))
    stream.batch((1, [1, 2], np.array([5.0, 200.0]), wide * 2))
    assert (stream.counted["late_left"], stream.counted["late_right"]) == (1, 1)


@pytest.mark.parametrize(("eps", "at"), [(1e-12, 5e6), (1e-12, -5e6), (0.0, 1e17), (1e-300, 5e6), (1e-300, 0.0)])
def test_a_distance_that_is_tiny_beside_the_coordinates(eps, at):
    """The blocks have numbers that doubles cannot count."""
    for cells in (1, 4, 7):
        stream = FakeStream(eps, 0.5, 10.0, 0.0, cells=cells)
        row = ([0, 1], np.array([0.0, 0.0]), [oracle.cloud([[at, at]]), oracle.cloud([[at, at + 1e3]])])
        assert sorted(stream.batch((0, *row)) + stream.batch((1, *row))) == [(0, 0, 1.0), (1, 1, 1.0)]


@pytest.mark.parametrize("start", [-1e10, -1e13, -1e15, 1e13, 1e15])
def test_times_far_from_zero(start):
    """Beyond where the clock begins and ends nothing is lost."""
    stream, found = FakeStream(1.0, 0.5, 10.0, 0.0), []
    for k in range(4):
        row = ([k], np.array([start + k]), [POINT])
        found += stream.batch((0, *row), (1, *row))
    assert len(found) == 16
    assert stream.counted["late_left"] == 0


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    ("start", "step", "window", "stamps"),
    [
        (1.7e9, 1.0, 10.0, False),
        (1.7e9, 0.01, 0.1, False),
        (1.7e12, 10.0, 100.0, False),
        (-1e9, 0.01, 0.1, False),
        (1.7e15, 1e6, 1e7, True),
    ],
    ids=["seconds", "seconds, small window", "milliseconds, small window", "negative, small window", "timestamps"],
)
def test_state_is_freed_whatever_the_times_are(start, step, window, stamps):
    """One row a batch, ten a window: a window's rows and some more are kept of sixty."""
    stream = FakeStream(1.0, 0.5, window, 0.0, stamps=stamps)
    for k in range(60):
        row = ([k], np.array([start + k * step]), [POINT])
        stream.batch((0, *row), (1, *row))
    assert stream.state.rows < 2 * 15


def test_timestamps_before_1970_are_joined_and_kept():
    """Spark has no clock for them: nothing is lost, and nothing forgotten until times are later."""
    stream, found, rows = FakeStream(1.0, 0.5, 1e7, 0.0, stamps=True), [], []
    for k in range(50):
        row = ([k], np.array([-2.5e7 + k * 1e6]), [POINT])
        found += stream.batch((0, *row), (1, *row))
        rows.append(stream.state.rows)
    assert sorted((i, j) for i, j, _ in found) == [(i, j) for i in range(50) for j in range(50) if abs(i - j) <= 10]
    assert rows[25] == 2 * 26 + 1, "all, and the index"
    assert rows[-1] < 2 * 15


@pytest.mark.parametrize("x", [10.0, 150.0])  # in a cell that was there before, and in a new one
@pytest.mark.parametrize(("what", "value"), [("cells", 9), ("window", 20.0), ("delay", 3.0)])
def test_another_join_on_the_same_checkpoint_is_refused(x, what, value):
    """Rows would be dealt out away from those that they must meet, or times read on another scale."""
    stream = FakeStream(1.0, 0.5, 10.0, 0.0, cells=4)
    row = ([0], np.array([0.0]), [oracle.cloud([[x, 0.0]])])
    stream.batch((0, *row))
    stream.restart()
    stream.batch((0, *row))
    if what == "cells":
        stream.cells = value
    elif what == "window":
        stream.settings = (*stream.settings[:-1], value)
    else:
        stream.delays = value
    stream.restart()
    with pytest.raises(HaplyError, match=rf"(?s)another join.*{what} = .*{what} = {value:g}.*set it back"):
        stream.batch((1, *row))


def test_the_data_of_the_tests_on_spark_is_met_in_many_cells():
    """What ``test_stream_join.py`` relies on."""
    sides, times = scattered().sides, scattered().times
    stream = FakeStream(EPS, THRESHOLD, WINDOW, DELAY, cells=9)
    for side in (0, 1):
        parcels = stream.parcels(side, np.arange(48), times[side], sides[side])
        assert len(set(parcels[CELL].to_pylist())) == 10  # with that of control
        assert sum(from_bytes(parcel).num_rows for parcel in parcels[PARCEL].drop_null().to_pylist()) > 80
