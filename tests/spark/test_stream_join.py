"""``hp.join`` of two streams: each pair of the offline answer exactly once, whatever comes late, fails or is killed."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import haply as hp
import oracle_distance as oracle
from haply.errors import HaplyError
from haply.joins import similarity
from haply.probability.region import Distance
from haply.pruning.threshold import Threshold
from haply.spark import stream_worker
from haply.spark.distance import PlaceOnLine
from haply.spark.parcels import CONTROL, GROUP, STANDING, TAKES_PART, Clock, Pack, from_bytes, unpack
from haply.spark.partition import TIME
from haply.spark.stream_worker import CellProcessor, Query, counter_names
from haply.spark.worker import COUNTERS

POSITION = pa.struct([("points", pa.list_(pa.float64())), ("probs", pa.list_(pa.float64())), ("dim", pa.int32())])
KINDS = list(oracle.KINDS)


def samples(clouds):
    """Clouds of the oracle as a column of samples; they may differ in dimension."""
    rows = [
        {"points": cloud.points.ravel().tolist(), "probs": cloud.float_weights, "dim": cloud.dim} for cloud in clouds
    ]
    return pa.array(rows, POSITION)


def random_clouds(rng, n, dim, weighted=False, spread=4.0, size=1.0, most=8):
    return [
        oracle.random_cloud(
            rng, dim, int(rng.integers(1, most)), str(rng.choice(KINDS)), weighted=weighted, size=size, spread=spread
        )
        for _ in range(n)
    ]


def in_batches(rng, times, batches, max_delay):
    """Rows by batch, in the order of times that are delayed by up to ``max_delay``: none comes too late."""
    arrival = times + rng.uniform(0.0, max_delay, len(times)) if max_delay else times
    order = np.argsort(arrival, kind="stable")
    cuts = np.sort(rng.integers(0, len(times) + 1, batches - 1))
    return np.split(order, cuts)


def assert_pairs(found, wanted, lefts, rights, eps, threshold, strict=False):
    """Each pair once, with the oracle's probability; only a pair that rounding may decide is free."""
    counts = Counter((i, j) for i, j, *_ in found)
    doubled = [pair for pair, n in counts.items() if n > 1]
    assert not doubled, f"doubled: {doubled[:5]}"
    free = {
        (i, j)
        for i, j in set(counts) ^ set(wanted)
        if oracle.borderline(lefts[i], rights[j], eps, threshold, strict, margin=1e-11)
    }
    assert not set(wanted) - set(counts) - free, f"lost: {sorted(set(wanted) - set(counts) - free)[:5]}"
    assert not set(counts) - set(wanted) - free, f"invented: {sorted(set(counts) - set(wanted) - free)[:5]}"
    for i, j, *p in found:
        if p:
            assert abs(p[0] - float(oracle.probability(lefts[i], rights[j], eps))) < 1e-12


# -- one cell after the other, without Spark ---------------------------------------------------------------------------


class FakeState:
    """A value or a map of one cell, with the methods of Spark's."""

    def __init__(self, states, name):
        self._states, self._name = states, name

    @property
    def _mine(self):
        return self._states.current[self._name]

    def exists(self):
        return "value" in self._mine

    def get(self):
        return self._mine.get("value")

    def update(self, value):
        (data,) = value
        assert isinstance(data, bytes)
        self._states.burn()
        self._mine["value"] = value

    def clear(self):
        self._mine.clear()

    def getValue(self, key):  # noqa: N802 - Spark's name
        return self._mine.get(key)

    def updateValue(self, key, value):  # noqa: N802
        assert isinstance(value[0], bytes)
        self._states.burn()
        self._mine[key] = value

    def removeKey(self, key):  # noqa: N802
        assert key in self._mine, "a piece that is not there was removed"
        del self._mine[key]


class DiskFullError(Exception):
    """A batch fails."""


class FakeHandle:
    """The handle of one partition: ``current`` is the state of the cell that is being served.

    With a ``fuse`` it allows for so many writes, and then fails.
    """

    def __init__(self):
        self.cells, self.cell, self.fuse = {}, None, None

    def burn(self):
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise DiskFullError

    @property
    def current(self):
        return self.cells.setdefault(self.cell, {"index": {}, "pieces": {}, "timers": set()})

    def getValueState(self, name, schema):  # noqa: N802
        return FakeState(self, name)

    def getMapState(self, name, key_schema, value_schema):  # noqa: N802
        return FakeState(self, name)

    def registerTimer(self, milliseconds):  # noqa: N802
        assert isinstance(milliseconds, int)
        self.current["timers"].add(milliseconds)


class FakeStream:
    """Spark's part in a stream join: parcels to cells, watermarks, timers, and state that a batch commits or not."""

    def __init__(
        self, eps, threshold, window, max_delay, *, cells=1, strict=False, raises=True, exact=True, stamps=False, seed=0
    ):
        self.clock = Clock.of(stamps, window + max_delay)
        self.delay, self.cells = self.clock.delay(max_delay), cells
        self.place = PlaceOnLine(Distance("pos", "pos", eps), Threshold(threshold, strict))
        self.settings = (eps, threshold, strict, exact, raises, window)
        self.rng = np.random.default_rng(seed)
        self.handle, self.newest, self.watermark = FakeHandle(), [None, None], 0
        self.counted = Counter()
        self.start()

    def start(self):
        """A new processor, as after a restart of the query: it has a new name, and knows nothing."""
        eps, threshold, strict, exact, raises, window = self.settings
        fields = [(f"{side}{k}", kind) for side in "lr" for k, kind in enumerate((pa.int64(), pa.float64(), POSITION))]
        schema = pa.schema([*fields, ("probability", pa.float64()), (COUNTERS, pa.list_(pa.int64()))])
        self.query = Query(
            Distance("pos", "pos", eps), Threshold(threshold, strict), exact, raises, window, self.clock,
            ("l2", "r2"), (("l0", "l1", "l2"), ("r0", "r1", "r2")), schema, f"test-{self.rng.integers(1 << 62)}",
            (("cells", self.cells), ("window", window), ("delay", self.delay)),
        )  # fmt: skip
        self.processor = CellProcessor(self.query)

    def parcels(self, side, ids, times, clouds, groups=None):
        """The rows of one side as Spark would hand them on, in several Arrow batches."""
        positions = samples(clouds)
        prefix = "lr"[side]
        table = pa.table(
            {
                f"{prefix}0": pa.array(ids, pa.int64()), f"{prefix}1": pa.array(times, pa.float64()),
                f"{prefix}2": positions, TIME: pa.array(times, pa.float64()),
                STANDING: pa.array([TAKES_PART] * len(ids), pa.int8()),
                GROUP: np.zeros(len(ids)) if groups is None else np.asarray(groups, np.float64),
            }
        )  # fmt: skip
        width = self.place.distance.limit * 16.0 or 1.0
        pack = Pack(side, self.cells, width, self.clock, f"{prefix}2", self.place, None)
        parts = table.combine_chunks().to_batches(max_chunksize=int(self.rng.integers(1, len(ids) + 2)))
        return pa.Table.from_batches(list(pack(iter(parts))))

    def batch(self, *sides, fail=False):
        """One micro-batch: ``(side, ids, times, clouds[, groups])`` of each side that has rows; returns its pairs.

        A batch that fails does so after some of its writes, within a cell or between two; nothing of it is committed.
        """
        packed = {side[0]: self.parcels(*side) for side in sides if len(side[1])}
        before = copy.deepcopy(self.handle.cells)
        if fail:
            self.handle.fuse = int(self.rng.integers(0, 3 * self.cells + 1))
        try:
            parcels = self._serve(packed)
        except DiskFullError:
            parcels = []
        self.handle.fuse = None
        if fail:
            self.handle.cells = before
            return []
        for side, table in packed.items():
            latest = max(table["newest"].cast(pa.int64()).to_pylist()) // 1000
            self.newest[side] = latest if self.newest[side] is None else max(latest, self.newest[side])
        if None not in self.newest:
            self.watermark = max(self.watermark, min(self.newest) - self.delay)
        return self._read(parcels)

    def _serve(self, packed):
        """The cells that have rows in any order, and then the timers that are due."""
        self.processor.init(self.handle)
        timer_values = SimpleNamespace(getCurrentWatermarkInMs=lambda: self.watermark)
        together = pd.concat(
            [pd.DataFrame({"cell": []}, dtype=int), *(table.drop(["newest"]).to_pandas() for table in packed.values())]
        )
        parcels = []
        for cell in self.rng.permutation(together["cell"].unique()):
            self.handle.cell = int(cell)
            rows = together[together["cell"] == cell]
            cut = int(self.rng.integers(0, len(rows) + 1))
            chunks = iter([rows.iloc[:cut], rows.iloc[cut:]])
            parcels += list(self.processor.handleInputRows((int(cell),), chunks, timer_values))
        for cell in list(self.handle.cells):
            self.handle.cell = cell
            for timer in sorted(timer for timer in self.handle.current["timers"] if timer <= self.watermark):
                due = SimpleNamespace(getExpiryTimeInMs=lambda timer=timer: timer)
                parcels += list(self.processor.handleExpiredTimer((cell,), timer_values, due))
                self.handle.current["timers"].discard(timer)
        self.processor.close()
        return parcels

    def _read(self, parcels):
        pairs = []
        for frame in parcels:
            for found in unpack(iter([pa.RecordBatch.from_pandas(frame, preserve_index=False)])):
                for row in found.to_pylist():
                    if row[COUNTERS] is not None:
                        self.counted.update(dict(zip(counter_names(), row[COUNTERS], strict=True)))
                    else:
                        pairs.append((row["l0"], row["r0"], row["probability"]))
        return pairs

    @property
    def state(self):
        """What is committed: rows of the index and of the pieces, and bytes."""
        cells = [cell for number, cell in self.handle.cells.items() if number != CONTROL]
        values = [value[0] for cell in cells for part in ("index", "pieces") for value in cell[part].values()]
        return SimpleNamespace(rows=len(values), bytes=sum(map(len, values)))

    def restart(self):
        """Kill the query: all that survives is what Spark has stored."""
        self.handle.cells = pickle.loads(pickle.dumps(self.handle.cells))
        self.start()


@pytest.fixture(autouse=True)
def nothing_remembered():
    stream_worker._remembered.clear()
    yield
    stream_worker._remembered.clear()


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
    stream_worker._remembered.clear()


def fail(stream, rows):
    for _ in range(2):
        stream.batch(*rows, fail=True)


def fail_elsewhere(stream, rows):
    stream.batch(*rows, fail=True)
    stream_worker._remembered.clear()


def restart(stream, rows):
    stream.restart()


def go_back(stream, rows):
    """Another worker serves the cells for a while: this one still has what was true before."""
    if stream.rng.random() < 0.5:
        stream.kept = copy.deepcopy(stream_worker._remembered)
    elif hasattr(stream, "kept"):
        stream_worker._remembered.clear()
        stream_worker._remembered.update(stream.kept)


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
        stream_worker._remembered.clear()
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
        seen += sum(from_bytes(parcel).num_rows for parcel in parcels["parcel"].drop_null().to_pylist()) > 45
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


POINT = oracle.cloud([[0.0, 0.0]])


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
    assert [cell for _, cell in stream_worker._remembered] == [0], "the worker forgets it as well"


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
        memory.append(sum(held.nbytes for _, held in stream_worker._remembered.values()))
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
        stream.delay = value
    stream.restart()
    with pytest.raises(HaplyError, match=rf"(?s)another join.*{what} = .*{what} = {value:g}.*set it back"):
        stream.batch((1, *row))


# -- on Spark ----------------------------------------------------------------------------------------------------------

EPS, THRESHOLD, WINDOW, DELAY = 1.5, 0.1, 40.0, 6.0
NEAR = hp.distance(hp.left.pos, hp.right.pos) <= EPS
PATIENCE = 300.0


@contextmanager
def settings(spark, **values):
    """Spark settings for a moment; names with two underscores for each dot."""
    names = {name.replace("__", "."): value for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, str(value))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def await_that(condition, what):
    """Waits for a condition that must come to hold."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"not after {PATIENCE} seconds: {what}"
        time.sleep(0.02)


def write_file(folder, number, table):
    """A file of a stream: files are read one a batch, in the order of their times."""
    folder.mkdir(exist_ok=True)
    draft = folder / f".{number:03}.draft"
    pq.write_table(table, draft)
    os.utime(draft, (1e9 + number, 1e9 + number))
    draft.rename(folder / f"{number:03}.parquet")


def read_stream(spark, folder, like=None):
    """A stream of the files in a folder, which may still be empty if another folder has files like them."""
    schema = spark.read.parquet(str(next((like or folder).glob("*.parquet")))).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@contextmanager
def running(result, tmp_path, name):
    """A query into a table of that name, with a checkpoint of that name."""
    writer = result.writeStream.format("memory").queryName(name).outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{name}")).start()
    try:
        yield query
    finally:
        query.stop()
        result.sparkSession.catalog.dropTempView(name)


def pairs_in(frame, more=("probability",)):
    return [tuple(row) for row in frame.select("id_left", "id_right", *more).collect()]


def two_places(rng, n, places):
    """Small clouds at places far apart, and objects that are half at one and half at another: seen in many cells."""
    clouds = []
    for k in range(n):
        here, there = places[rng.integers(len(places))], places[rng.integers(len(places))]
        points = rng.normal(0.0, 0.4, (int(rng.integers(2, 7)), 2)) + here
        if k % 4 == 0:
            points[::2] += there - here
        clouds.append(oracle.cloud(points, oracle.random_weights(rng, len(points)) if k % 5 == 0 else None))
    return clouds


@pytest.fixture(scope="module")
def scattered():
    """Two sides of 48 objects on both sides of zero, in blocks that are met in many cells, and their answer."""
    rng = np.random.default_rng(21)
    places = rng.uniform(-90.0, 90.0, (10, 2))
    sides = [two_places(rng, 48, places) for _ in range(2)]
    times = [np.sort(rng.integers(0, 480, 48)) / 4.0 for _ in range(2)]
    wanted = oracle.all_pairs(*sides, *(t.tolist() for t in times), window=WINDOW, eps=EPS, threshold=THRESHOLD)
    assert len(wanted) > 60
    stream = FakeStream(EPS, THRESHOLD, WINDOW, DELAY, cells=9)
    for side in (0, 1):
        parcels = stream.parcels(side, np.arange(48), times[side], sides[side])
        assert len(set(parcels["cell"].to_pylist())) == 10  # with that of control
        assert sum(from_bytes(parcel).num_rows for parcel in parcels["parcel"].drop_null().to_pylist()) > 80
    return SimpleNamespace(sides=sides, times=times, wanted=wanted)


def write_sides(folder, sides, times, names=("t", "t"), shuffled=False, files=4, seed=0):
    """Both sides as files; shuffled rows come up to the delay later than newer ones."""
    rng = np.random.default_rng(seed)
    for side, clouds, own, name in zip("lr", sides, times, names, strict=True):
        stamps = own.dtype.kind == "M"
        seconds = own.astype(np.int64) / 1e6 if stamps else own
        arrival = seconds + (rng.uniform(0.0, DELAY, len(own)) if shuffled else 0.0)
        column = pa.array(own, pa.timestamp("us", "UTC")) if stamps else pa.array(own)
        table = pa.table({"id": pa.array(np.arange(len(own))), name: column, "pos": samples(clouds)})
        for k, rows in enumerate(np.array_split(np.argsort(arrival, kind="stable"), files)):
            write_file(folder / side, k, table.take(pa.array(rows)))


TIMES = {
    # name: (start, names of the columns, window, delay)
    "negative numbers": (-300.0, ("t", "t"), WINDOW, DELAY),
    "large numbers": (1e9, ("t", "when"), WINDOW, DELAY),
    "very large numbers": (1e15, ("t", "t"), 40, 6),
    "timestamps": (None, ("a", "b"), "40 seconds", "6 seconds"),
}


@pytest.mark.parametrize(
    ("cells", "shuffled", "kind"),
    [
        (1, False, "negative numbers"),
        (9, False, "large numbers"),
        (1, True, "very large numbers"),
        (9, True, "timestamps"),
    ],
)
def test_batch_equals_stream(spark, tmp_path, scattered, cells, shuffled, kind):
    """A table, a stream in order and one that is shuffled give the same pairs, with one cell and with many."""
    start, names, window, max_delay = TIMES[kind]
    begun = np.datetime64("2024-03-10T06:58:30", "us")  # two minutes around which New York's clocks change
    times = [begun + (own * 1e6).astype("timedelta64[us]") if start is None else start + own for own in scattered.times]
    write_sides(tmp_path, scattered.sides, times, names, shuffled)
    options = {"on": NEAR, "threshold": THRESHOLD, "time": names, "window": window, "max_delay": max_delay}
    where = "America/New_York" if start is None else "UTC"
    with settings(spark, spark__haply__cells=cells, spark__sql__session__timeZone=where):
        tables = [spark.read.parquet(str(tmp_path / side)) for side in "lr"]
        from_tables = pairs_in(hp.join(*tables, **options))
        result = hp.join(*(read_stream(spark, tmp_path / side) for side in "lr"), **options)
        assert result.isStreaming
        left, right = (
            name + suffix * (names[0] == names[1]) for name, suffix in zip(names, ("_left", "_right"), strict=True)
        )
        assert result.columns == ["id_left", left, "pos_left", "id_right", right, "pos_right", "probability"]
        with running(result, tmp_path, "pairs") as query:
            query.processAllAvailable()
            batches = [progress["numInputRows"] for progress in query.recentProgress]
            found = spark.table("pairs").select(
                "id_left", "id_right", "probability", left, right, "pos_left", "pos_right"
            )
            rows = [tuple(row) for row in found.collect()]
    assert batches[:4] == [24] * 4
    for pairs in (from_tables, [row[:3] for row in rows]):
        assert_pairs(pairs, scattered.wanted, *scattered.sides, EPS, THRESHOLD)
    for i, j, _, mine, theirs, here, there in rows:
        for side, k, time_of, position in ((0, i, mine, here), (1, j, theirs, there)):
            cloud = scattered.sides[side][k]
            if start is None:
                time_of = np.datetime64(time_of.astimezone(UTC).replace(tzinfo=None), "us")
            assert time_of == times[side][k], "the row that comes out is the row that went in"
            assert (position["points"], position["dim"]) == (cloud.points.ravel().tolist(), 2)


def test_a_stream_that_stalls_loses_nothing(spark, tmp_path, scattered):
    """The right comes when all of the left has been seen: the left's rows have waited for it."""
    with settings(spark, spark__haply__cells=4):
        write_sides(tmp_path, scattered.sides, scattered.times, files=2)
        waiting = [path.rename(tmp_path / path.name) for path in sorted((tmp_path / "r").glob("*.parquet"))]
        left, right = (read_stream(spark, tmp_path / side, like=tmp_path / "l") for side in "lr")
        funnel = hp.Funnel()
        result = hp.join(left, right, NEAR, THRESHOLD, time="t", window=WINDOW, max_delay=DELAY, funnel=funnel)
        with running(result, tmp_path, "stalled") as query:
            query.processAllAvailable()
            assert spark.table("stalled").count() == 0
            for path in waiting:
                path.rename(tmp_path / "r" / path.name)
            query.processAllAvailable()
            found = pairs_in(spark.table("stalled"))
            await_that(lambda: funnel.to_dict()["kept"] == len(found), "all pairs are counted")
    assert_pairs(found, scattered.wanted, *scattered.sides, EPS, THRESHOLD)
    counts = funnel.to_dict()
    assert (counts["late_left"], counts["late_right"]) == (0, 0)
    assert (counts["rows_left"], counts["rows_right"]) == (48, 48)


def remembered(spark, checkpoint, batch):
    """Rows and bytes in the state after a batch, by cell."""
    held = {}
    for name, value in (("pieces", "user_map_value"), ("index", "value")):
        reader = spark.read.format("statestore").option("path", str(checkpoint)).option("stateVarName", name)
        rows = reader.option("batchId", batch).load().where(f"key.cell <> {CONTROL}")
        for row in rows.selectExpr("key.cell", f"length({value}.data) AS bytes").collect():
            count, size = held.get(row["cell"], (0, 0))
            held[row["cell"]] = (count + 1, size + row["bytes"])
    return held


@pytest.fixture(scope="module")
def long_run(spark, tmp_path_factory):
    """Eleven windows, one a batch, in one cell; two other cells have rows for a while; and five rows come far too late.

    The late rows have one partner each, far away from all others, that came in time.
    """
    folder, rng = tmp_path_factory.mktemp("long"), np.random.default_rng(31)
    window, delay, files = 10.0, 2.0, 11

    def at(x):
        return oracle.cloud([[x, 0.0], [x + 0.1, 0.0]])

    sides, times, batches = ([], []), ([], []), ([], [])

    def put(side, batch, t, cloud):
        sides[side].append(cloud)
        times[side].append(t)
        batches[side].append(batch)

    for k in range(files):
        for side in (0, 1):
            for t in np.sort(rng.uniform(0.0, 10.0, 10)):
                put(side, k, 10.0 * k + t, at(float(rng.uniform(7.0, 13.0))))  # block 0, cell 0
    for side in (0, 1):
        for x in (27.0, 30.0, 33.0):
            put(side, 0, 5.0, at(x))  # block 1, cell 1
    for x, late in ((1007.0, 0), (1009.0, 0), (1011.0, 0), (1013.0, 1), (1015.0, 1)):  # block 50, cell 2
        put(1 - late, 4, 45.0, at(x))
        put(late, 9, 45.5, at(x))
    for side, name in enumerate("lr"):
        table = pa.table({"id": np.arange(len(times[side])), "t": times[side], "pos": samples(sides[side])})
        for k in range(files):
            write_file(folder / name, k, table.filter(pa.array(np.array(batches[side]) == k)))
    wanted = oracle.all_pairs(*sides, *times, window=window, eps=1.0, threshold=0.3)
    late = {pair for pair in wanted if {batches[0][pair[0]], batches[1][pair[1]]} == {4, 9}}
    assert len(late) == 5
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=3):
        streams = [read_stream(spark, folder / name) for name in "lr"]
        near = "DISTANCE(left.pos, right.pos) <= 1"
        result = hp.join(*streams, near, 0.3, time="t", window=window, max_delay=delay, funnel=funnel)
        with running(result, folder, "long") as query:
            query.processAllAvailable()
            found = pairs_in(spark.table("long"))
            progress = query.recentProgress
            await_that(lambda: funnel.to_dict()["kept"] == len(found), "all pairs are counted")
    return SimpleNamespace(
        found=found, wanted=set(wanted), late=late, sides=sides, progress=progress, funnel=funnel.to_dict(),
        rows=[len(side) for side in times], checkpoint=folder / "checkpoint-long", text=str(funnel),
    )  # fmt: skip


def test_late_rows_are_joined_or_counted(long_run):
    found = {(i, j) for i, j, _ in long_run.found}
    missing = long_run.late - found
    assert_pairs(long_run.found, long_run.wanted - missing, *long_run.sides, 1.0, 0.3)
    counts = long_run.funnel
    assert counts["late_left"] + counts["late_right"] == len(missing)
    assert (counts["late_left"], counts["late_right"]) == (3, 2), "two windows late: their partners are forgotten"
    assert "late rows" in long_run.text


def test_the_funnel_of_a_stream(long_run):
    counts = long_run.funnel
    assert [counts["rows_left"], counts["rows_right"]] == long_run.rows
    assert counts["kept"] == len(long_run.found)
    assert counts["invalid_left"] == counts["invalid_right"] == counts["null_left"] == counts["null_right"] == 0
    decided = sum(counts["rejected"].values()) + sum(counts["accepted"].values())
    assert counts["candidates"] == counts["evaluated"] + decided
    assert counts["pairs_possible"] >= counts["candidates"] >= counts["kept"] > 100


def test_idle_cells_are_emptied(spark, long_run):
    last = long_run.progress[-1]["batchId"]
    assert set(remembered(spark, long_run.checkpoint, 0)) == {0, 1}
    assert set(remembered(spark, long_run.checkpoint, 5)) == {0, 2}
    assert set(remembered(spark, long_run.checkpoint, last)) == {0}


def test_state_stays_flat_over_ten_windows(spark, long_run):
    totals = [progress["stateOperators"][0]["numRowsTotal"] for progress in long_run.progress]
    assert len(totals) >= 11
    assert max(totals[4:]) <= max(totals[1:4]) + 3, totals
    assert totals[-1] <= 1 + 2 * 4, "the index, and for each side a few panes of the last three batches"
    early, late = (remembered(spark, long_run.checkpoint, batch)[0] for batch in (3, 10))
    assert late[1] < 1.25 * early[1]
    assert sum(early) > 0


ODD_COLUMNS = {
    "tags": pa.map_(pa.string(), pa.int32()), "day": pa.date32(), "price": pa.decimal128(9, 2),
    "names": pa.list_(pa.string()), "raw": pa.binary(), "seen": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"),
}  # fmt: skip


def odd_values(k):
    day = datetime(2024, 5, 1 + k % 20, 3, 4, 5)
    return {
        "tags": [("k", k)], "day": day.date(), "price": Decimal(k) / 4, "names": [None, f"n{k}"],
        "raw": bytes([k, 0]), "seen": day.replace(tzinfo=UTC), "local": day,
    }  # fmt: skip


def test_conditions_bad_rows_and_columns_of_all_kinds(spark, tmp_path):
    """Equalities, also of two types; certain conditions; strict, no probabilities, suffixes; bad rows are counted."""
    rng = np.random.default_rng(41)
    n = 40
    clouds = [random_clouds(rng, n, 2, spread=2.0, most=5) for _ in range(2)]
    sites = [rng.choice(["a", "b", None], n).tolist() for _ in range(2)]
    codes, kinds = {"a": 0, "b": 1, None: 0}, (pa.int32(), pa.int64())
    ranks = [rng.integers(0, 4, n) for _ in range(2)]
    times = [np.sort(rng.uniform(0.0, 40.0, n)) for _ in range(2)]
    broken = [
        {"points": [], "probs": None, "dim": 2},
        {"points": [float("nan"), 0.0], "probs": None, "dim": 2},
        {"points": [0.0, 0.0, 1.0, 1.0], "probs": [0.5, 0.6], "dim": 2},
        {"points": [0.0, 0.0, 1.0], "probs": None, "dim": 2},
        {"points": [0.0, 0.0, 0.0], "probs": None, "dim": 3},  # of another dimension than all others: meets nobody
        None,
    ]
    whole = {"points": [0.0, 0.0], "probs": None, "dim": 2}
    never = [None, float("nan"), float("inf"), -float("inf")]
    for side, name in enumerate("lr"):
        positions = samples(clouds[side]).to_pylist() + (broken if side == 0 else []) + [whole] * len(never)
        more = len(positions) - n
        table = pa.table(
            {
                "id": pa.array(np.arange(len(positions))),
                "t": pa.array([*times[side], *[40.0] * (more - len(never)), *never]),
                "site": pa.array(sites[side] + ["a"] * more, pa.string()),
                "code": pa.array([codes[site] for site in sites[side]] + [0] * more, kinds[side]),
                "rank": pa.array([*ranks[side], *[1] * more]),
                "pos": pa.array(positions, POSITION),
            }
        )
        if side == 0:
            values = [odd_values(k) for k in range(len(positions))]
            for column, kind in ODD_COLUMNS.items():
                table = table.append_column(column, pa.array([value[column] for value in values], kind))
        for k, (begin, end) in enumerate(((0, n // 2), (n // 2, len(positions)))):
            write_file(tmp_path / name, k, table.slice(begin, end - begin))
    wanted = {
        (i, j)
        for i, j in oracle.all_pairs(
            *clouds, *(t.tolist() for t in times), window=15.0, eps=1.5, threshold=0.25, strict=True
        )
        if sites[0][i] is not None and sites[0][i] == sites[1][j] and ranks[0][i] > 0 and ranks[0][i] + ranks[1][j] < 5
    }
    assert len(wanted) > 10
    on = "DISTANCE(left.pos, right.pos) <= 1.5 AND left.site = right.site AND left.code = right.code"
    on += " AND left.rank > 0 AND left.rank + right.rank < 5"
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=5):
        result = hp.join(
            *(read_stream(spark, tmp_path / side) for side in "lr"), on, 0.25,
            strict=True, time="t", window=15, probability="none", suffixes=("_a", "_b"), invalid="drop", funnel=funnel,
        )  # fmt: skip
        assert result.columns == [
            "id_a", "t_a", "site_a", "code_a", "rank_a", "pos_a", *ODD_COLUMNS,
            "id_b", "t_b", "site_b", "code_b", "rank_b", "pos_b",
        ]  # fmt: skip
        with running(result, tmp_path, "conditions") as query:
            query.processAllAvailable()
            rows = spark.table("conditions").collect()
            await_that(lambda: funnel.to_dict()["kept"] == len(rows), "all pairs are counted")
    assert_pairs([(row["id_a"], row["id_b"]) for row in rows], wanted, *clouds, 1.5, 0.25, True)
    given = {row["id"]: row for row in spark.read.parquet(str(tmp_path / "l")).collect()}
    for row in rows:
        assert [row[name] for name in ODD_COLUMNS] == [given[row["id_a"]][name] for name in ODD_COLUMNS]
    counts = funnel.to_dict()
    assert (counts["null_left"], counts["null_right"], counts["invalid_right"]) == (1, 0, 0)
    assert counts["invalid_left"] == 4
    assert (counts["rows_left"], counts["rows_right"]) == ((ranks[0] > 0).sum() + 10, n + 4)
    assert (counts["late_left"], counts["late_right"]) == (0, 0), "a time that is no number does not move the clock"


def test_bad_rows_fail_the_query(spark, tmp_path):
    """With the column, the reason and an example; the same for dimensions that differ."""
    good = {"points": [0.0, 0.0], "probs": None, "dim": 2}
    reasons = {
        "nan": ({"points": [float("nan"), 0.0], "probs": None, "dim": 2}, "Column 'pos' of the right.*NaN or infinite"),
        "dimension": ({"points": [0.0, 0.0, 0.0], "probs": None, "dim": 3}, "Points differ in dimension.*3"),
    }
    for name, (bad, text) in reasons.items():
        for side, position in (("l", good), ("r", bad)):
            (tmp_path / name).mkdir(exist_ok=True)
            write_file(
                tmp_path / name / side, 0, pa.table({"id": [0], "t": [1.0], "pos": pa.array([position], POSITION)})
            )
        streams = [read_stream(spark, tmp_path / name / side) for side in "lr"]
        with (
            settings(spark, spark__haply__cells=1),
            running(hp.join(*streams, NEAR, 0.5, time="t", window=1), tmp_path, f"bad_{name}") as query,
            pytest.raises(StreamingQueryException, match=f"(?s){text}"),
        ):
            query.processAllAvailable()


def test_errors_when_a_join_of_streams_is_built(spark, tmp_path):
    table = pa.table(
        {
            "id": [0], "time": [1.0], "name": ["a"], "stamp": pa.array([0], pa.timestamp("us", "UTC")), "x": [1.5],
            "pos": samples([POINT]),
        }
    )  # fmt: skip
    write_file(tmp_path / "s", 0, table)
    stream, static = read_stream(spark, tmp_path / "s"), spark.read.parquet(str(tmp_path / "s"))
    fine = {"on": NEAR, "threshold": 0.5, "time": "time", "window": 10}
    for sides, changes, text in (
        ((stream, stream), {"time": None, "window": None}, "A join of streams has no window.*time and window"),
        ((stream, stream), {"window": None}, "half a window"),
        ((stream, stream), {"time": None}, "half a window"),
        ((stream, static), {}, "One side of the join is a stream and the other a table"),
        ((static, stream), {}, "One side of the join is a stream and the other a table"),
        ((stream, stream), {"on": "abs(left.x - right.x) <= 1"}, "on a distance only"),
        ((stream, stream), {"on": "left.id = right.id"}, "on a distance only"),
        ((stream, stream), {"window": -1}, "window is no length of time"),
        ((stream, stream), {"max_delay": -0.5}, "max_delay is no length of time"),
        ((stream, stream), {"window": float("nan")}, "window is no length of time"),
        ((stream, stream), {"window": "10 seconds"}, "window is a duration, and the times are numbers"),
        ((stream, stream), {"max_delay": "10 seconds"}, "max_delay is a duration, and the times are numbers"),
        ((stream, stream), {"window": "10 parsecs", "time": "stamp"}, "'10 parsecs' is no window"),
        ((stream, stream), {"time": "tme"}, "no column in the left table called 'tme'.*did you mean 'time'"),
        ((stream, stream), {"time": ("time", "tiem")}, "in the right table called 'tiem'.*did you mean 'time'"),
        ((stream, stream), {"time": "name"}, "'name' of the left table is no certain time.*string"),
        ((stream, stream), {"time": ("time", "pos")}, "'pos' of the right table is no certain time"),
        ((stream, stream), {"time": ("time", "stamp")}, "differ in kind"),
        ((stream, stream), {"time": ("time",)}, "one time column for each side"),
        ((stream, stream), {"self_key": "id"}, "no self_key"),
        ((stream, stream), {"threshold": 1.5}, "threshold is not a probability"),
        ((stream, stream), {"strategy": "sweep"}, "does not fit"),
    ):
        with pytest.raises(HaplyError, match=f"(?s){text}"):
            hp.join(*sides, **{**fine, **changes})
    provider = "spark.sql.streaming.stateStore.providerClass"
    hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    with (
        settings(spark, **{provider.replace(".", "__"): hdfs}),
        pytest.raises(HaplyError, match=f"(?s)needs Spark's RocksDB state store.*{provider} = .*RocksDB.*spark.conf"),
    ):
        hp.join(stream, stream, **fine)
    text = hp.plan_join(stream, stream, **fine, max_delay=3).explain()
    for part in ("streams", "distance", "<= 10", "up to 3 late", "P >= 0.5", "panes"):
        assert part in text


def one_file(folder, side, number, ids, time, clouds, **columns):
    folder.mkdir(exist_ok=True)
    table = {"id": pa.array(ids, pa.int64()), "t": pa.array([float(time)] * len(ids)), "pos": samples(clouds)}
    write_file(folder / side, number, pa.table({**table, **columns}))


def test_rows_that_a_condition_leaves_out_move_the_clock(spark, tmp_path):
    """The left goes on, but none of its rows takes part: what waits for it on the right must go all the same."""
    for k in range(3):
        for side in "lr":
            kind = pa.array(["wanted" if k == 0 else "other"])
            one_file(tmp_path, side, k, [k], 10.0 * k, [oracle.cloud([[10.0, 0.0]])], kind=kind)
    streams = [read_stream(spark, tmp_path / side) for side in "lr"]
    on = "DISTANCE(left.pos, right.pos) <= 1 AND left.kind = 'wanted'"
    with (
        settings(spark, spark__haply__cells=1),
        running(hp.join(*streams, on, 0.5, time="t", window=2), tmp_path, "starved") as query,
    ):
        query.processAllAvailable()
        totals = [progress["stateOperators"][0]["numRowsTotal"] for progress in query.recentProgress]
    assert totals[-1] <= 4, totals  # an index, two pieces, and what the control cell knows


# -- kill -9 -----------------------------------------------------------------------------------------------------------


class Victim:
    """A process that runs a streaming join; all of its children are in a session of its own."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "log"
        scratch = folder / "scratch"
        scratch.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("stream_victim.py")), str(folder)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(scratch)},
                start_new_session=True,
            )  # fmt: skip

    def has_begun(self, batch):
        return (self.folder / "checkpoint" / "offsets" / str(batch)).exists()

    def has_committed(self, batch):
        return (self.folder / "checkpoint" / "commits" / str(batch)).exists()

    def await_that(self, condition, what):
        until = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < until, f"not after {PATIENCE} seconds: {what}\n{self.log.read_text()[-3000:]}"
            time.sleep(0.005)

    def kill(self):
        """SIGKILL to the whole group, and to Spark's Python workers, which have a group of their own."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        for member in self._members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        await_that(lambda: not self._members(), "all processes of the victim have ended")

    def _members(self):
        """The processes of its session that still run."""
        members = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    members.append(int(path.parent.name))
        return members


def test_kill_9_and_restart_is_exactly_once(spark, tmp_path, scattered):
    """Killed within a batch, right after a commit and while pairs are written: the answer is that without kills."""
    files = 6
    write_sides(tmp_path, scattered.sides, scattered.times, shuffled=True, files=files, seed=3)
    arguments = {
        "on": f"DISTANCE(left.pos, right.pos) <= {EPS}", "threshold": THRESHOLD, "time": "t", "window": WINDOW,
        "max_delay": DELAY,
    }  # fmt: skip
    (tmp_path / "join.json").write_text(json.dumps(arguments))
    out = tmp_path / "out"
    rng = np.random.default_rng(17)

    def within_the_first_batch(victim):
        victim.await_that(lambda: victim.has_begun(0), "batch 0 has begun")
        time.sleep(rng.uniform(0.0, 2.0))  # anywhere in it: its first run takes many seconds
        return not victim.has_committed(0)

    def right_after_a_commit(victim):
        victim.await_that(lambda: victim.has_committed(2), "batch 2 is committed")
        return not victim.has_committed(4)

    def while_pairs_are_written(victim):
        """Batch 4 has written pairs, which are not yet part of the answer."""
        victim.await_that(lambda: victim.has_begun(4), "batch 4 has begun")
        before = set(os.listdir(out))
        victim.await_that(lambda: set(os.listdir(out)) - before, "pairs of batch 4 are written")
        return not victim.has_committed(5)

    for moment in (within_the_first_batch, right_after_a_commit, while_pairs_are_written):
        victim = Victim(tmp_path)
        try:
            at_the_moment = moment(victim)
        finally:
            victim.kill()
        assert at_the_moment, f"too late for {moment.__name__}"
        assert victim.process.returncode == -signal.SIGKILL
        assert not (tmp_path / "done").exists()
    assert not victim.has_committed(files - 1)
    # The last run is in this process, whose session is warm. It has another number of shuffle partitions: Spark keeps
    # to that of the checkpoint, and rows go to the same cells.
    assert spark.conf.get("spark.sql.shuffle.partitions") != "2"
    result = hp.join(*(read_stream(spark, tmp_path / side) for side in "lr"), **arguments)
    writer = result.writeStream.format("parquet").outputMode("append").option("path", str(out))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
    finally:
        query.stop()
    assert read < 48, "it began where the victims had come to"
    assert_pairs(pairs_in(spark.read.parquet(str(out))), scattered.wanted, *scattered.sides, EPS, THRESHOLD)
    batches = sorted(int(path.name) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert batches == list(range(len(batches))), "every batch once"
    assert files <= len(batches) <= files + 3, "a file of each stream in a batch"
