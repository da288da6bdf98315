"""The cells of joins of streams in time, without Spark: each result once, whatever is late, idle or fails."""

from __future__ import annotations

import copy
import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import oracle as referee
import oracle_position as positions
import oracle_time as oracle
from fake_stream import FakeCells, in_batches
from haply.engines.spark.exchange.worker import COUNTERS
from haply.engines.spark.streaming import worker as stream_worker
from haply.engines.spark.streaming.join import BLOCKS_PER_REACH
from haply.engines.spark.streaming.parcels import CONTROL, GROUP, Clock, StreamPack
from haply.engines.spark.streaming.worker import CellQuery, CellResult
from haply.errors import HaplyError
from haply.joins import PairJoin, PositionJoin, TimingJoin, WindowJoin
from haply.joins.cells.exchange import Blocks
from haply.joins.cells.positions import PlacePositions
from haply.joins.cells.rows import TIME, RowSpec, window_ahead
from haply.joins.operators.by_dimension import PointJoin
from haply.joins.operators.operator import ANY_DELAY
from haply.joins.operators.timing import reach_back
from haply.models import Gaussian, GaussianND, Histogram, MixtureND
from haply.probability.region import Difference, Distance, Region
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.threshold import Threshold

IDS_AND_VALUES = (("l0", "l1"), ("r0", "r1"))


def spec_of(side, place):
    """Rows of a side: an id and a value, which has this place."""
    return RowSpec(f"{'lr'[side]}1", (f"{'lr'[side]}0",), (), place, "value", None)


def group_column(count, groups):
    return np.zeros(count) if groups is None else np.asarray(groups, np.float64)


class TimingCells(FakeCells):
    """Events near in time: rows are ids, histograms of the oracle, and groups."""

    def __init__(self, window, threshold, max_delay, *, cells=1, seed=0):
        self.window, self.threshold, self.max_delay = float(window), Threshold(threshold), float(max_delay)
        clock = Clock.of(False, self.window + self.max_delay)
        super().__init__(("left", "right"), clock, (self.max_delay,) * 2, cells, seed)

    def make_query(self, name):
        histogram = Histogram([[0.0, 1.0]], [[1.0]]).to_arrow().type
        fields = [(f"{side}{k}", kind) for side in "lr" for k, kind in enumerate((pa.int64(), histogram))]
        schema = pa.schema([*fields, ("probability", pa.float64()), (COUNTERS, pa.list_(pa.int64()))])
        make = partial(TimingJoin, self.window, self.threshold.value, max_delay=ANY_DELAY)
        return CellQuery(make, ("l1", "r1"), CellResult(None, IDS_AND_VALUES, schema), self.window, self.clock, name)

    def table(self, side, ids, events, groups=None):
        edges, probs = ([[float(x) for x in getattr(h, name)] for h in events] for name in ("edges", "probs"))
        return pa.table(
            {
                f"{'lr'[side]}0": pa.array(ids, pa.int64()), f"{'lr'[side]}1": Histogram(edges, probs).to_arrow(),
                GROUP: group_column(len(ids), groups),
            }
        )  # fmt: skip

    def pack(self, side):
        def place(model):
            return row_intervals(model, side == 0, Region(-self.window, self.window), self.threshold, True)

        spec, name = spec_of(side, place), f"{'lr'[side]}1"
        blocks = Blocks(self.cells, BLOCKS_PER_REACH * (self.window + self.max_delay) or 1.0)
        return StreamPack(side, spec, blocks, self.clock, timed=name, reach=self.reach)

    def reach(self, model):
        return reach_back(model, self.threshold)

    def found(self, row):
        return row["l0"], row["r0"]


class DifferenceCells(FakeCells):
    """Near values in a window of certain times: rows are ids, times with a mean and sd, and groups."""

    def __init__(self, window, threshold, max_delay, strategy, *, cells=1, seed=0):
        self.window, self.threshold, self.max_delay = float(window), Threshold(threshold), float(max_delay)
        self.strategy = strategy
        clock = Clock.of(False, self.window + self.max_delay)
        super().__init__(("left", "right"), clock, (self.max_delay,) * 2, cells, seed)

    def make_query(self, name):
        gaussian = Gaussian([0.0], [1.0]).to_arrow().type
        fields = [(f"{side}{k}", kind) for side in "lr" for k, kind in enumerate((pa.int64(), gaussian))]
        schema = pa.schema([*fields, ("probability", pa.float64()), (COUNTERS, pa.list_(pa.int64()))])
        near = Difference("x", "x", Region(-1.0, 1.0))
        make = partial(PairJoin, near, self.threshold.value, window=self.window, strategy=self.strategy)
        return CellQuery(make, ("l1", "r1"), CellResult(None, IDS_AND_VALUES, schema), self.window, self.clock, name)

    def table(self, side, ids, rows, groups=None):
        times, means, sds = (np.array(column, float) for column in zip(*rows, strict=True))
        return pa.table(
            {
                f"{'lr'[side]}0": pa.array(ids, pa.int64()), f"{'lr'[side]}1": Gaussian(means, sds).to_arrow(),
                TIME: times, GROUP: group_column(len(ids), groups),
            }
        )  # fmt: skip

    def pack(self, side):
        def place(model):
            return row_intervals(model, side == 0, Region(-1.0, 1.0), self.threshold, True)

        blocks = Blocks(self.cells, BLOCKS_PER_REACH * (self.window + self.max_delay) or 1.0)
        return StreamPack(side, spec_of(side, place), blocks, self.clock, self.window)

    def found(self, row):
        return row["l0"], row["r0"]


class PositionCells(FakeCells):
    """Near positions in a window of certain times: rows are ids, times with a position as Arrow has it, and groups."""

    def __init__(self, kinds, window, threshold, max_delay, *, within=1.0, raises=True, cells=1, seed=0):
        self.window, self.threshold, self.max_delay = float(window), Threshold(threshold), float(max_delay)
        self.kinds, self.near, self.raises = kinds, Distance("pos", "pos", within), raises
        clock = Clock.of(False, self.window + self.max_delay)
        super().__init__(("left", "right"), clock, (self.max_delay,) * 2, cells, seed)

    def make_query(self, name):
        fields = [(f"{side}{k}", kind) for side, own in zip("lr", self.kinds, strict=True) for k, kind in
                  enumerate((pa.int64(), own))]  # fmt: skip
        schema = pa.schema([*fields, ("probability", pa.float64()), (COUNTERS, pa.list_(pa.int64()))])
        settings = {"within": self.near.limit, "threshold": self.threshold.value, "window": self.window}
        make = partial(PointJoin, PositionJoin, settings, self.raises)
        return CellQuery(make, ("l1", "r1"), CellResult(None, IDS_AND_VALUES, schema), self.window, self.clock, name)

    def table(self, side, ids, rows, groups=None):
        times, positions = zip(*rows, strict=True)
        return pa.table(
            {
                f"{'lr'[side]}0": pa.array(ids, pa.int64()), f"{'lr'[side]}1": pa.array(positions, self.kinds[side]),
                TIME: np.array(times, float), GROUP: group_column(len(ids), groups),
            }
        )  # fmt: skip

    def pack(self, side):
        blocks = Blocks(self.cells, BLOCKS_PER_REACH * self.near.limit or 1.0)
        return StreamPack(side, spec_of(side, PlacePositions(self.near, self.threshold)), blocks, self.clock)

    def found(self, row):
        return row["l0"], row["r0"]


class WindowCells(FakeCells):
    """Combinations of rows of many streams: rows are ids, times and groups."""

    def __init__(self, names, windows, delays, *, cells=1, seed=0):
        self.windows = windows
        shortest = oracle.closure(windows, names)
        self.reach = float(max(shortest.values()))
        clock = Clock.of(False, self.reach + max(delays.values()))
        super().__init__(tuple(names), clock, [delays[name] for name in names], cells, seed)

    def make_query(self, name):
        fields = [(f"{stream}{k}", kind) for stream in self.names for k, kind in enumerate((pa.int64(), pa.float64()))]
        schema = pa.schema([*fields, ("probability", pa.float64()), (COUNTERS, pa.list_(pa.int64()))])
        make = partial(WindowJoin, self.windows, algorithm="backward", max_delay=ANY_DELAY, streams=self.names)
        payloads = tuple((f"{stream}0", f"{stream}1") for stream in self.names)
        result = CellResult(None, payloads, schema)
        return CellQuery(make, (TIME,) * len(self.names), result, self.reach, self.clock, name)

    def table(self, side, ids, times, groups=None):
        name = self.names[side]
        return pa.table(
            {
                f"{name}0": pa.array(ids, pa.int64()), f"{name}1": pa.array(times, pa.float64()),
                TIME: pa.array(times, pa.float64()), GROUP: group_column(len(ids), groups),
            }
        )  # fmt: skip

    def pack(self, side):
        name, place = self.names[side], partial(window_ahead, reach=self.reach)
        spec = RowSpec(TIME, (f"{name}0", f"{name}1"), (), place, "time", None)
        return StreamPack(side, spec, Blocks(self.cells, BLOCKS_PER_REACH * self.reach or 1.0), self.clock)

    def found(self, row):
        return tuple(row[f"{name}0"] for name in self.names)


@pytest.fixture(autouse=True)
def nothing_remembered():
    stream_worker._cached_states.clear()
    yield
    stream_worker._cached_states.clear()


# -- cases: what comes in which batch, and the answer ------------------------------------------------------------------


def timing_case(seed):
    """Events of a few templates, in groups that have a cell for themselves or not."""
    rng = np.random.default_rng(seed)
    window, max_delay = float(rng.choice([1, 4, 12])), float(rng.choice([0, 3, 20]))
    threshold = [0.05, 0.3, 0.6, 0.9][rng.integers(4)]
    longest = int(rng.choice([6, 40]))
    templates = [t for t in (oracle.random_template(rng, longest) for _ in range(6)) if oracle.length(t) > 0][:4]
    events = [[h for *_, h in oracle.random_events(rng, side, templates, 50, gap=4.0)] for side in "AB"]
    groups = [rng.integers(0, int(rng.choice([1, 3, 8])), 50) for _ in range(2)]
    latest = [np.array([float(oracle.last(h)) for h in side]) for side in events]
    # the first event of each side is as long as any, and comes first: nothing reaches further back than known
    first = max(templates, key=oracle.length)
    for side in range(2):
        events[side][0] = oracle.detected(first, int(latest[side][0]))
    batches = [in_batches(rng, times, int(rng.choice([5, 14])), max_delay) for times in latest]
    pairs = oracle.timing_pairs(*(list(enumerate(side)) for side in events), window, threshold)
    return SimpleNamespace(
        make=partial(TimingCells, window, threshold, max_delay, cells=int(rng.choice([1, 3, 7])), seed=seed),
        columns=[(events[k], groups[k]) for k in range(2)], times=latest, batches=batches,
        wanted=sorted(pair for pair in pairs if groups[0][pair[0]] == groups[1][pair[1]]),
    )  # fmt: skip


def difference_case(seed):
    """Normal values at times with ties, in groups or not; strategies in turn."""
    rng = np.random.default_rng(seed)
    window, max_delay = float(rng.choice([0, 4, 12])), float(rng.choice([0, 3, 20]))
    threshold, count = [0.05, 0.3, 0.6][rng.integers(3)], 50
    times = [np.sort(rng.integers(0, 160, count)) / 2.0 for _ in range(2)]
    means, sds = rng.uniform(0.0, 6.0, (2, count)), rng.uniform(0.1, 0.6, (2, count))
    groups = [rng.integers(0, int(rng.choice([1, 3, 8])), count) for _ in range(2)]
    values = [
        [referee.Normal(mean, sd) for mean, sd in zip(means[k].tolist(), sds[k].tolist(), strict=True)]
        for k in range(2)
    ]
    likely = referee.brute_force_join(*values, -1.0, 1.0, threshold=threshold)
    strategy = ("sweep", "moments", "pages", "pti")[seed % 4]
    return SimpleNamespace(
        make=partial(
            DifferenceCells, window, threshold, max_delay, strategy, cells=int(rng.choice([1, 3, 7])), seed=seed
        ),
        columns=[(list(zip(times[k], means[k], sds[k], strict=True)), groups[k]) for k in range(2)], times=times,
        batches=[in_batches(rng, own, int(rng.choice([5, 14])), max_delay) for own in times],
        wanted=sorted(
            (i, j) for i, j in likely
            if abs(times[0][i] - times[1][j]) <= window and groups[0][i] == groups[1][j]
        ),
    )  # fmt: skip


def position_case(seed):
    """Gaussians, mixtures, and points, on both sides of zero, seen in one cell or in many."""
    rng = np.random.default_rng(seed)
    window, max_delay = float(rng.choice([0, 4, 12])), float(rng.choice([0, 3, 20]))
    threshold, count = [0.05, 0.3, 1e-6, 0.6][seed % 4], 40
    times = [np.sort(rng.integers(0, 160, count)) / 2.0 for _ in range(2)]
    groups = [rng.integers(0, int(rng.choice([1, 3, 8])), count) for _ in range(2)]
    sides = []
    for parts in ((1, 2), (2, 1), (1, 0), (0, 1))[seed % 4]:
        places = rng.choice([-300.0, -17.0, 5.0], (count, 1, 1)) + rng.uniform(0.0, 1.5, (count, 1, 2))
        root = rng.normal(size=(count, max(parts, 1), 2, 2)) * (0.4 if parts else 0.0)
        means = places + rng.uniform(0.0, 20.0, (count, 1, 2)) * np.arange(max(parts, 1))[:, None]
        weights = rng.dirichlet(np.ones(max(parts, 1)), count)
        sides.append((weights, means, root @ root.transpose(0, 1, 3, 2), KINDS_OF_POSITIONS[parts]))
    lefts, rights = ([(w[k], m[k], s[k]) for k in range(count)] for w, m, s, _ in sides)
    chance = positions.near(lefts, rights, 1.0)
    assert (np.abs(chance - threshold) > 1e-9).all(), "no pair is so close that rounding decides"
    columns = [[kind.of(w[k], m[k], s[k]) for k in range(count)] for w, m, s, kind in sides]
    return SimpleNamespace(
        make=partial(
            PositionCells, [kind.type for *_, kind in sides], window, threshold, max_delay,
            cells=int(rng.choice([1, 3, 7])), seed=seed,
        ),
        columns=[(list(zip(times[k], columns[k], strict=True)), groups[k]) for k in range(2)], times=times,
        batches=[in_batches(rng, own, int(rng.choice([5, 14])), max_delay) for own in times],
        wanted=sorted(
            (i, j) for i, j in np.argwhere(chance >= threshold).tolist()
            if abs(times[0][i] - times[1][j]) <= window and groups[0][i] == groups[1][j]
        ),
    )  # fmt: skip


KINDS_OF_POSITIONS = (
    SimpleNamespace(type=pa.list_(pa.float64()), of=lambda w, m, s: m[0].tolist()),
    SimpleNamespace(
        type=GaussianND([[0.0]], [[1.0]]).to_arrow().type,
        of=lambda w, m, s: {"mean": m[0].tolist(), "cov": s[0].ravel().tolist()},
    ),
    SimpleNamespace(
        type=MixtureND([[1.0]], [[0.0]], [[1.0]]).to_arrow().type,
        of=lambda w, m, s: {"weights": w.tolist(), "means": m.ravel().tolist(), "covs": s.ravel().tolist()},
    ),
)
"""A column by how many normals a row has: none is a point."""


def window_case(seed):
    """Times with ties, whole or in tenths, in groups or not."""
    rng = np.random.default_rng(seed)
    names = "abcd"[: int(rng.integers(2, 5))]
    unit = float(rng.choice([1.0, 0.1]))
    shape = ["uniform", "clique", "path", "graph"][rng.integers(4)]
    windows = {pair: unit * w for pair, w in oracle.random_windows(rng, names, shape).items()}
    count, until = 24, int(rng.choice([40, 120]))
    times = [unit * np.sort(rng.integers(0, until, count)) for _ in names]
    groups = [rng.integers(0, int(rng.choice([1, 3])), count) for _ in names]
    delays = {name: float(unit * rng.choice([0, 3, 10])) for name in names}
    rows = {
        name: [(k, float(t), int(g)) for k, (t, g) in enumerate(zip(times[n], groups[n], strict=True))]
        for n, name in enumerate(names)
    }
    count = int(rng.choice([4, 12]))
    return SimpleNamespace(
        make=partial(WindowCells, names, windows, delays, cells=int(rng.choice([1, 3, 7])), seed=seed),
        columns=[(times[k], groups[k]) for k in range(len(names))], times=times,
        batches=[in_batches(rng, own, count, delays[name]) for name, own in zip(names, times, strict=True)],
        wanted=sorted(oracle.window_combinations(rows, windows)),
    )  # fmt: skip


CASES = {"timing": timing_case, "difference": difference_case, "position": position_case, "window": window_case}


def run_case(case, disturb=None):
    """All batches of a case; ``disturb(stream, rows)`` comes before each. Streams may end before others."""
    stream, out = case.make(), []
    for chosen in itertools.zip_longest(*case.batches, fillvalue=np.arange(0)):
        rows = [rows_of(case, side, mine) for side, mine in enumerate(chosen)]
        if disturb:
            disturb(stream, rows)
        out.append(sorted(stream.batch(*rows)))
    return stream, out


def rows_of(case, side, chosen):
    values, groups = case.columns[side]
    return side, chosen, [values[k] for k in chosen], groups[chosen]


def flat(batches):
    return [found for batch in batches for found in batch]


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
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_each_result_once_whatever_a_worker_remembers(kind, seed):
    case = CASES[kind](seed)
    stream, out = run_case(case)
    assert sorted(flat(out)) == case.wanted
    assert not any(stream.counted[f"late_{name}"] for name in stream.names)
    for disturb in (fail_elsewhere, restart, go_back):
        stream_worker._cached_states.clear()
        assert run_case(case, disturb)[1] == out, disturb.__name__


# -- what is forgotten, and what is not --------------------------------------------------------------------------------

LONG = oracle.histogram((0, 10, "0.9"), (10, 40, "0.1"))
SHORT = oracle.histogram((0, 1, 1))


def clocks(stream, at, phi=LONG, group=0):
    """A batch that moves the clock: an event of each side, of this group."""
    event = [oracle.detected(phi, at)]
    return stream.batch(*((side, [1000 + at], event, [group]) for side in (0, 1)))


def test_a_cell_waits_for_events_as_long_as_any_of_its_stream():
    """Long events of the right are known from other cells only: one that comes to this cell still finds its partner."""
    stream = TimingCells(10, 0.5, 0, cells=4)
    clocks(stream, 40)
    stream.batch((0, [1], [oracle.detected(SHORT, 100)], [1]))
    for at in (100, 125, 130):
        clocks(stream, at)
    assert stream.watermark > stream.clock.seconds(np.array([124.0]))[0] * 1000, "the window has passed"
    found = stream.batch((1, [2], [oracle.detected(LONG, 135)], [1]))
    assert found == [(1, 2)]
    assert stream.counted["late_left"] == stream.counted["late_right"] == 0


@pytest.mark.parametrize("again", [True, False])
def test_an_event_that_reaches_back_too_far_is_counted_as_late(again):
    """It is four times as long as any before it; also where nothing but what was learnt is left, after a restart."""
    stream = TimingCells(10, 0.5, 30, cells=4)  # all in one block of time
    for at in range(60, 400, 20):
        clocks(stream, at)
        if at == 60:
            clocks(stream, at, group=1)
    assert 1 not in holding(stream), "all of the group is forgotten"
    if again:
        stream.restart()
        stream_worker._cached_states.clear()
    long = oracle.histogram((0, 10, "0.9"), (10, 400, "0.1"))
    assert stream.batch((1, [2], [oracle.detected(long, 400)], [1])) == []
    assert stream.counted["late_left"] == 0 < stream.counted["late_right"]


@pytest.mark.parametrize("told", [True, False])
def test_idle_groups_are_forgotten(told, monkeypatch):
    """Groups that never come again are gone when their events can meet no other; if need be, by timers alone."""
    if not told:
        monkeypatch.setattr(TimingCells, "reach", None)
    stream = TimingCells(10, 0.5, 30, cells=4)  # all in one block of time
    clocks(stream, 40)
    for group in (1, 2, 3):
        clocks(stream, 41 + group, group=group)
    assert holding(stream) == {0, 1, 2, 3}
    assert (stream.counted["stored_left"], stream.counted["stored_right"]) == (4, 4)
    for at in range(60, 160, 20):
        clocks(stream, at)
    # the clock shows 110: up to 90 before it, events may be met by others that are twice as long as these
    assert holding(stream) == {0, 1, 2, 3}
    for at in range(160, 400, 20):
        clocks(stream, at)
    assert holding(stream) == {0}
    assert stream.counted["stored_left"] == stream.counted["stored_right"] == len(stream.handle.cells[0]["pieces"]) // 2
    assert sum(len(held["timers"]) for held in stream.handle.cells.values()) <= 2
    stream.restart()
    stream.counted.clear()
    clocks(stream, 400)
    assert stream.counted["stored_left"] == len(stream.handle.cells[0]["pieces"]) // 2, "all, and not only what is new"


def holding(stream):
    """The cells that have rows in their state."""
    return {cell for cell, held in stream.handle.cells.items() if held["pieces"]}


def test_rows_of_idle_keys_are_forgotten_by_the_window_join():
    stream = WindowCells("abc", {("a", "b"): 5.0, ("b", "c"): 10.0}, dict.fromkeys("abc", 0.0), cells=5)
    for group in range(5):
        for side in range(3):
            stream.batch((side, [group], [1.0 + group], [group]))
    assert holding(stream) == {0, 1, 2, 3, 4}
    for t in range(10, 200, 10):
        stream.batch(*((side, [t], [float(t)], [0]) for side in range(3)))
    assert holding(stream) <= {0, 1}, "the two last blocks of time"
    assert stream.counted["stored_b"] == sum(len(held["pieces"]) for held in stream.handle.cells.values()) // 3
    assert sum(bool(held["index"]) for cell, held in stream.handle.cells.items() if cell != CONTROL) <= 2


@pytest.mark.parametrize(("kind", "seed"), [("timing", 6), ("difference", 8), ("position", 6), ("window", 4)])
def test_a_stream_that_stalls_loses_nothing_and_the_others_grow(kind, seed):
    """The first stream stops after two batches, the others go on to their end; then comes all that is missing."""
    case = CASES[kind](seed)
    first, *others = case.batches
    order, stall = np.concatenate(first), [np.arange(0)] * max(map(len, others))
    case.batches = [[order[:3], order[3:6], *stall, *np.array_split(order[6:], 3)], *([*stall[:2], *b] for b in others)]
    stream, grown = case.make(), []
    name = stream.names[1]
    found = []
    for chosen in itertools.zip_longest(*case.batches, fillvalue=np.arange(0)):
        found += stream.batch(*(rows_of(case, side, mine) for side, mine in enumerate(chosen)))
        grown.append(stream.counted[f"stored_{name}"])
    assert sorted(found) == case.wanted
    assert found
    stalled = grown[2 : 2 + len(stall)]
    assert max(grown) == stalled[-1] > 0.7 * len(case.times[1]), "it waits"
    assert grown[-1] < 0.5 * stalled[-1], "and is let go in the end"


def test_positions_of_other_dimensions_meet_nobody_or_fail():
    kind = KINDS_OF_POSITIONS[1].type
    flat, solid = ({"mean": [0.0] * dim, "cov": (0.01 * np.eye(dim)).ravel().tolist()} for dim in (2, 3))
    stream = PositionCells([kind, kind], 5, 0.5, 0, raises=False)
    stream.batch((0, [1, 2], [(0.0, flat), (0.0, solid)]))
    assert sorted(stream.batch((1, [3, 4], [(1.0, solid), (1.0, flat)]))) == [(1, 4), (2, 3)]
    stream = PositionCells([kind, kind], 5, 0.5, 0)
    stream.batch((0, [1], [(0.0, flat)]))
    with pytest.raises(HaplyError, match=r"(?s)Points differ in dimension.*2 coordinates.*3"):
        stream.batch((1, [3], [(1.0, solid)]))


def test_positions_that_reach_everywhere_have_a_home():
    """With a threshold that rounding cannot tell from none, rows begin at minus infinity: they are in every cell."""
    kind = KINDS_OF_POSITIONS[1].type
    rows = [(0.0, {"mean": [x, 0.0], "cov": [0.1, 0.0, 0.0, 0.1]}) for x in (0.0, 0.5, 700.0)]
    stream = PositionCells([kind, kind], 5, 1e-13, 0, cells=4)
    assert stream.batch((0, [0, 1, 2], rows, [0, 1, 1])) == []
    found = stream.batch((1, [0, 1, 2], rows, [0, 1, 1]))
    assert {(0, 0), (1, 1), (2, 2)} <= set(found), "those of 0.9; rounding decides of those that are far apart"
    assert len(found) == len(set(found))
    assert (stream.counted["stored_left"], stream.counted["stored_right"]) == (3, 3)


def test_wide_positions_are_not_sent():
    """They are counted as hopeless before they come to any cell."""
    kind = KINDS_OF_POSITIONS[1].type
    rows = [(0.0, {"mean": [0.0, 0.0], "cov": [v, 0.0, 0.0, v]}) for v in (0.1, 900.0)]
    stream = PositionCells([kind, kind], 5, 0.5, 0, cells=3)
    assert stream.batch((0, [1, 2], rows)) == []
    assert stream.counted["stored_left"] == 1
    assert stream.batch((1, [3, 4], rows)) == [(1, 3)]
