"""``WindowJoin`` against brute force: every combination once, whatever the order, the batches and the interruptions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import haply.joins.operators.window as window
from amounts import fewer
from haply.errors import HaplyError
from haply.joins import WindowJoin, WindowResult, uniform_windows
from oracle_time import (
    Arrival,
    Heartbeat,
    Row,
    bew,
    disorder,
    few,
    interleave,
    random_streams,
    random_windows,
    replay,
    window_combinations,
)

ALGORITHMS = ("backward", "forward")
POLICIES = ("exact", "local", "global")
METHODS = {"exact": "exact", "local": "lca", "global": "gca"}
DROPS = ("tight", "paper")
LOOKUPS = ("hash", "scan")
SHAPES = ("uniform", "clique", "path", "graph")
WAYS = [
    {"algorithm": algorithm, "windows_policy": policy, "drop": drop}
    for algorithm, policy, drop in itertools.product(ALGORITHMS, POLICIES, DROPS)
]

Combination = tuple[Any, ...]


class End(NamedTuple):
    """In a list of arrivals: the stream is closed."""


def combinations(result: WindowResult) -> list[Combination]:
    """What a result holds, as ids in the order of the streams, after a look at its columns."""
    columns = [*result.ids.values(), result.completed_by, result.probability, result.decided_by]
    assert {len(column) for column in columns} == {len(result)}
    assert (result.probability == 1.0).all()
    return list(zip(*(ids.tolist() for ids in result.ids.values()), strict=True))


def batch(rows: Sequence[Row], names: Sequence[str] | None = None) -> dict[str, Any]:
    columns = {"id": [row[0] for row in rows], "time": [row[1] for row in rows], "key": [row[2] for row in rows]}
    return columns if names is None else {"stream": list(names), **columns}


def push_each(join: WindowJoin, arrivals: Iterable[Arrival]) -> list[Combination]:
    """One row at a time."""
    return [each for name, row in arrivals for each in combinations(join.push(name, batch([row])))]


def close_all(join: WindowJoin) -> list[Combination]:
    return [each for name in join.streams for each in combinations(join.close(name))]


class Player:
    """Lets arrivals come in pieces of all kinds, now and then with a restart; gathers what is found."""

    def __init__(self, join: WindowJoin, rng: np.random.Generator, restarts: float = 0.1) -> None:
        self.join, self.rng, self.restarts = join, rng, restarts
        self.found: list[Combination] = []
        self.late: list[Any] = []

    def play(self, arrivals: Sequence[Any]) -> None:
        position = {what[0]: at for at, (_, what) in enumerate(arrivals) if not isinstance(what, (Heartbeat, End))}
        at = 0
        while at < len(arrivals):
            name, what = arrivals[at]
            if isinstance(what, (Heartbeat, End)):
                result = self.join.close(name) if isinstance(what, End) else self.join.heartbeat(name, what.ts)
                assert (result.completed_by == -1).all()
                self.take(result)
                at += 1
            else:
                at = self.push(arrivals, at, position)
            if self.rng.random() < self.restarts:
                self.join = WindowJoin.restore(self.join.snapshot())

    def push(self, arrivals: Sequence[Any], at: int, position: Mapping[Any, int]) -> int:
        """Rows that come one after the other, of one stream or of several, as one batch; returns where it ends."""
        most, of_one = int(self.rng.choice([1, 3, 50])), bool(self.rng.integers(2))
        piece = list(
            itertools.takewhile(
                lambda each: not isinstance(each[1], (Heartbeat, End)) and (not of_one or each[0] == arrivals[at][0]),
                arrivals[at : at + most],
            )
        )
        names, rows = [name for name, _ in piece], [row for _, row in piece]
        if of_one:
            result = self.join.push(names[0], batch(rows))
        elif self.rng.integers(2):
            result = self.join.push_many(batch(rows, names))
        else:
            result = self.join.push_many(
                {**batch(rows), "stream": np.array([self.join.streams.index(name) for name in names])}
            )
        found = self.take(result)
        assert (np.diff(result.completed_by) >= 0).all(), "in the order of the arrivals"
        for ids, by in zip(found, result.completed_by.tolist(), strict=True):
            last = max(position[each] for each in ids) - at
            assert by == last if self.join.algorithm != "forward" else 0 <= last <= by < len(piece) or last < 0 <= by
        return at + len(piece)

    def take(self, result: WindowResult) -> list[Combination]:
        found = combinations(result)
        self.found += found
        self.late += [each for ids in result.late.values() for each in ids.tolist()]
        return found


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array is too small, so that searches are interrupted, batches cut and states moved all the time."""
    for name, size in (("_OUTPUT", 3), ("_AT_ONCE", 4), ("_LEAST_ROOM", 2), ("_KEPT_NAMES", 1)):
        monkeypatch.setattr(window, name, size)


# ---------------------------------------------------------------------------------------------------------------------
# Golden values

A, B, C, D = "ABCD"
GOLDENS: dict[int, tuple[dict[str, list[Any]], dict[tuple[str, str], float], list[int] | None, set[Combination]]] = {
    1: ({A: [0, 5], B: [5, 10]}, uniform_windows("AB", 5), [0, 1, 0, 1], {(0, 5), (5, 5), (5, 10)}),
    2: (
        {A: [0, 4], B: [2, 7], C: [3, 9]},
        uniform_windows("ABC", 4),
        [0, 1, 2, 0, 1, 2],
        {(0, 2, 3), (4, 2, 3), (4, 7, 3)},
    ),
    3: ({A: [0], B: [3], C: [6]}, uniform_windows("ABC", 5), None, set()),
    4: ({A: [0, 20], B: [1, 21], C: [2]}, uniform_windows("ABC", 5), [0, 1, 0, 1, 2], {(0, 1, 2)}),
    5: ({A: [0, 12], B: [5]}, uniform_windows("AB", 10), [0, 1, 0], {(0, 5), (12, 5)}),
    6: ({A: [0], B: [0.5, 2], C: [5]}, {(A, B): 1, (B, C): 10}, [0, 1, 1, 2], {(0, 0.5, 5)}),
    7: ({A: [0], B: [1], C: [2]}, {(A, B): 1, (B, C): 1}, None, {(0, 1, 2)}),
    8: ({A: [0], B: [1], C: [2, 3]}, {(A, B): 1, (B, C): 1, (A, C): 50}, None, {(0, 1, 2)}),
    10: ({A: [0], B: [1, 9], C: [3]}, uniform_windows("ABC", 4), [0, 1, 1, 2], {(0, 1, 3)}),
    11: (
        {A: [(0, "x"), (1, "y")], B: [(1, "y"), (2, "x")]},
        uniform_windows("AB", 2),
        [0, 1, 0, 1],
        {(1, 1), (0, 2)},
    ),
    12: ({A: [0], B: [2], C: [4], D: [3]}, {(A, B): 2, (B, C): 2, (C, D): 1, (A, D): 3}, None, {(0, 2, 4, 3)}),
    13: (
        {A: [1], B: [4, 5], C: [2, 3]},
        {(A, B): 4, (A, C): 2, (B, C): 2},
        [0, 2, 2, 1, 1],
        {(1, 4, 2), (1, 4, 3), (1, 5, 3)},
    ),
    15: ({A: [5], B: [2]}, uniform_windows("AB", 5), [0, 1], {(5, 2)}),
}


def golden(number: int) -> tuple[dict[str, list[Row]], dict[tuple[str, str], float], list[list[int]], set[Combination]]:
    """Rows whose ids are their times, windows, the orders of arrival (the given one, or all), and the answer."""
    times, windows, order, expected = GOLDENS[number]
    streams = {
        name: [(t[0], t[0], t[1]) if isinstance(t, tuple) else (t, t, "k") for t in ts] for name, ts in times.items()
    }
    every = orders([number for number, name in enumerate(streams) for _ in streams[name]])
    return streams, windows, [order] if order else every, expected


def orders(slots: list[int]) -> list[list[int]]:
    return [list(order) for order in sorted(set(itertools.permutations(slots)))]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_goldens(way: dict[str, Any]) -> None:
    for number, lookup in itertools.product(GOLDENS, LOOKUPS):
        streams, windows, arrivals, expected = golden(number)
        for order in arrivals:
            join = WindowJoin(windows, lookup=lookup, **way)
            assert join.streams == tuple(streams)
            found = push_each(join, replay(streams, order))
            if way["algorithm"] == "backward":
                assert len(found) == len(expected), "backward evaluation needs no end of streams"
            found += close_all(join)
            assert len(found) == len(expected)
            assert set(found) == expected, number
            assert join.stored == dict.fromkeys(streams, 0)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_golden_09_equal_tuples_are_different_ones(way: dict[str, Any]) -> None:
    for order in orders([0, 0, 1, 2, 2]):
        streams = {name: [(f"{name}{n}", 1, 7) for n in range(count)] for name, count in ((A, 2), (B, 1), (C, 2))}
        join = WindowJoin(uniform_windows("ABC", 0), **way)
        found = push_each(join, replay(streams, order)) + close_all(join)
        assert sorted(found) == [("A0", "B0", "C0"), ("A0", "B0", "C1"), ("A1", "B0", "C0"), ("A1", "B0", "C1")]


@pytest.mark.parametrize(("number", "expected"), [(1, [(0, 5), (5, 5), (5, 10)]), (11, [(1, 1), (0, 2)])])
def test_backward_emits_when_the_last_tuple_arrives(number: int, expected: list[Combination]) -> None:
    streams, windows, (order,), _ = golden(number)
    assert push_each(WindowJoin(windows), replay(streams, order)) == expected


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("number", "expected"), [(2, {(0, 2, 3), (4, 2, 3)}), (5, {(0, 5)})])
def test_forward_waits_for_the_slowest(number: int, expected: set[Combination], policy: Any) -> None:
    streams, windows, (order,), complete = golden(number)
    join = WindowJoin(windows, algorithm="forward", windows_policy=policy)
    assert set(push_each(join, replay(streams, order))) == expected
    assert set(close_all(join)) == complete - expected


def test_golden_closures() -> None:
    assert WindowJoin(GOLDENS[6][1]).closure == {(A, B): 1, (A, C): 11, (B, C): 10}
    assert WindowJoin(GOLDENS[8][1]).closure == {(A, B): 1, (A, C): 2, (B, C): 1}
    assert WindowJoin({(A, B): 3, (B, C): 1, (C, D): 2}).closure[A, D] == 6


# ---------------------------------------------------------------------------------------------------------------------
# Against brute force


def random_case(
    rng: np.random.Generator, most: int
) -> tuple[dict[str, list[Row]], dict[tuple[str, str], int], list[Any], dict[str, float]]:
    """Streams, windows, arrivals with disorder, heartbeats and ends, and how late rows may be."""
    names = [*"abcde"[: int(rng.choice([2, 3, 3, 4, 5]))]]
    windows = random_windows(rng, names, str(rng.choice(SHAPES)))
    streams = random_streams(rng, names, most=most - len(names), until=14, keys=int(rng.integers(1, 4)))
    delays = {name: float(rng.choice([0, 0, 3, 10])) for name in names}
    coming = {name: disorder(rng, streams[name], delays[name]) for name in names}
    arrivals = interleave(rng, coming, str(rng.choice(["time", "any", "bursts"])))
    return streams, windows, list(with_news(rng, names, arrivals)), delays


def with_news(rng: np.random.Generator, names: Sequence[str], arrivals: Sequence[Arrival]) -> Iterator[Any]:
    """Now and then say what is true: how old the oldest row to come is, and that none will come."""
    often, closed = float(rng.choice([0.0, 0.2])), set()
    for at, arrival in enumerate(arrivals):
        yield arrival
        name = str(rng.choice(names))
        if rng.random() < often and name not in closed:
            rest = [row[1] for other, row in arrivals[at + 1 :] if other == name]
            if rest:
                yield name, Heartbeat(float(min(rest) - rng.integers(3)))
            else:
                closed.add(name)
                yield name, End()
    for name in rng.permutation([each for each in names if each not in closed]):
        yield str(name), End()


def check_case(rng: np.random.Generator, most: int) -> int:
    streams, windows, arrivals, delays = random_case(rng, most)
    expected = sorted(window_combinations(streams, windows))
    for algorithm, policy in itertools.product(ALGORITHMS, POLICIES):
        drop, lookup = str(rng.choice(DROPS)), str(rng.choice(LOOKUPS))
        named = sorted(windows.items()) if rng.integers(2) else [((b, a), w) for (a, b), w in windows.items()]
        join = WindowJoin(
            dict(named), algorithm=algorithm, windows_policy=policy, drop=drop, lookup=lookup, max_delay=delays
        )
        player = Player(join, rng)
        player.play(arrivals)
        order = [player.join.streams.index(name) for name in streams]
        found = sorted(tuple(ids[k] for k in order) for ids in player.found)
        assert found == expected, (algorithm, policy, drop, lookup)
        assert player.late == []
        assert player.join.stored == dict.fromkeys(player.join.streams, 0)
        assert player.join.funnel.kept == len(expected)
    return len(expected)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(5))
def test_every_combination_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert sum(check_case(rng, 12) for _ in range(fewer(80))) > fewer(120)


@pytest.mark.long(keep=1)
@pytest.mark.usefixtures("cramped")
@pytest.mark.parametrize("seed", range(5, 7))
def test_every_combination_once_in_cramped_arrays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert sum(check_case(rng, 12) for _ in range(fewer(80))) > fewer(120)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_more_combinations_than_the_output_holds(way: dict[str, Any]) -> None:
    join = WindowJoin({("a", "b"): 1, ("b", "c"): 2, ("c", "d"): 1}, **way)
    rows = batch([(n, n / 14, "x") for n in range(14)])
    found = [join.push(name, rows) for name in "abcd"] + [join.close(name) for name in "abcd"]
    ids = np.concatenate([np.stack([result.ids[name] for name in "abcd"], axis=1) for result in found])
    assert len(ids) == len(np.unique(ids, axis=0)) == 14**4 > 2 * window._OUTPUT


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_times_that_are_no_round_numbers(way: dict[str, Any]) -> None:
    """Tenths, whose differences and sums are rounded: what counts is ``abs(a - b) <= window`` as computed."""
    rng = np.random.default_rng(5)
    grid = sorted({k / 10 for k in range(30)} | {k * 0.1 for k in range(30)})
    total = 0
    for case in range(40):
        names = "abcd"[: int(rng.integers(2, 5))]
        windows = random_windows(rng, names, SHAPES[case % 4], sizes=(0, 1, 2, 3, 6, 7))
        windows = {pair: size / 10 for pair, size in windows.items()}
        shift = float(rng.choice([0.0, -1.0, 1e5]))
        streams = {
            name: [(f"{name}{n}", t + shift, 0) for n, t in enumerate(np.sort(rng.choice(grid, 8)).tolist())]
            for name in names
        }
        expected = sorted(window_combinations(streams, windows))
        join = WindowJoin(windows, **way)
        found = push_each(join, interleave(rng, streams)) + close_all(join)
        order = [join.streams.index(name) for name in names]
        assert sorted(tuple(ids[k] for k in order) for ids in found) == expected
        total += len(expected)
    assert total > 500


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_a_sum_of_windows_is_not_rounded_down(way: dict[str, Any]) -> None:
    """The two windows hold as computed, and yet ``0.9 - 0.1 > 0.1 + 0.7``; and ``1 - -1e-17 == 1``."""
    assert 0.9 - 0.1 > 0.1 + 0.7
    for order in itertools.permutations("abc"):
        times = {"a": 0.1, "b": 0.2, "c": 0.9}
        join = WindowJoin({("a", "b"): 0.1, ("b", "c"): 0.7}, **way)
        found = push_each(join, [(name, (name, times[name], 0)) for name in order]) + close_all(join)
        assert found == [("a", "b", "c")]
    for order in itertools.permutations("ab"):
        times = {"a": -1e-17, "b": 1.0}
        join = WindowJoin({("a", "b"): 1}, **way)
        assert len(push_each(join, [(name, (name, times[name], 0)) for name in order]) + close_all(join)) == 1


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_a_tuple_that_may_still_be_preceded_does_not_count_as_the_oldest(way: dict[str, Any]) -> None:
    """When b at 0 has gone, b at 5 is out of reach for a at 1, but b at 1.5 is to come."""
    windows = {("a", "b"): 1, ("b", "c"): 10}
    times = {"a": [1, 20], "b": [0, 5, 10, 1.5], "c": [3, 30]}
    streams = {name: [(f"{name}{t}", t, 0) for t in ts] for name, ts in times.items()}
    join = WindowJoin(windows, max_delay={"b": 10}, **way)
    found = push_each(join, replay(streams, "bbbacacb")) + close_all(join)
    assert sorted(found) == sorted(window_combinations(streams, windows)) == [("a1", "b0", "c3"), ("a1", "b1.5", "c3")]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_sixteen_streams(way: dict[str, Any]) -> None:
    names = [f"s{k}" for k in range(16)]
    rng = np.random.default_rng(6)
    path = dict.fromkeys(itertools.pairwise(names), 1)
    for windows, times in ((path, range(16)), (uniform_windows(names, 15), range(16)), (path, [0] * 16)):
        rows = [(name, (name, t, 1)) for name, t in zip(names, times, strict=True)]
        join = WindowJoin(windows, **way)
        found = push_each(join, [rows[k] for k in rng.permutation(16)])
        found += push_each(join, [("s3", ("twin", times[3], 1)), ("s5", ("other", times[5], 2))]) + close_all(join)
        assert sorted(found) == sorted([tuple(names), (*names[:3], "twin", *names[4:])])


def test_without_a_key_all_tuples_match() -> None:
    rng = np.random.default_rng(7)
    for _ in range(30):
        streams = random_streams(rng, "abc", most=7, keys=5)
        windows = random_windows(rng, "abc", "clique")
        expected = sorted(window_combinations(streams, windows, lambda _: True))
        for algorithm, lookup in itertools.product(ALGORITHMS, LOOKUPS):
            join = WindowJoin(windows, key=False, algorithm=algorithm, lookup=lookup)
            found = []
            for name, (each, time, _) in interleave(rng, streams):
                found += combinations(join.push(name, {"id": [each], "time": [time]}))
            assert sorted(found + close_all(join)) == expected


# ---------------------------------------------------------------------------------------------------------------------
# Work and memory, against the reference


@pytest.mark.parametrize("policy", POLICIES)
def test_backward_keeps_and_tries_what_the_paper_does(policy: Any) -> None:
    """The reference holds as many rows after every arrival, and tries as many candidates; the tight rule holds less."""
    rng = np.random.default_rng(8)
    tight_held = paper_held = 0
    for case in range(fewer(90)):
        names = "abcd"[: int(rng.integers(2, 5))]
        windows, streams = random_windows(rng, names, SHAPES[case % 4]), random_streams(rng, names, until=40)
        arrivals = interleave(rng, streams, str(rng.choice(["time", "any", "bursts"])))
        joins = {drop: WindowJoin(windows, windows_policy=policy, drop=drop) for drop in DROPS}
        reference = bew(arrivals, windows, names, method=METHODS[policy])
        held: dict[str, list[int]] = {drop: [] for drop in DROPS}
        for arrival in arrivals:
            for drop, join in joins.items():
                push_each(join, [arrival])
                held[drop].append(sum(join.stored.values()))
        assert held["paper"] == reference.held
        assert joins["paper"].peak == reference.peak
        assert joins["paper"].funnel.candidates == reference.candidates
        assert all(a <= b for a, b in zip(held["tight"], held["paper"], strict=True))
        tight_held, paper_held = tight_held + sum(held["tight"]), paper_held + sum(held["paper"])
    assert tight_held < 0.8 * paper_held


@pytest.mark.parametrize("policy", ["local", "global"])
def test_forward_goes_as_far_as_the_reference(policy: Any) -> None:
    """After every arrival as many combinations are out; of equal fronts another may go first, so held rows differ."""
    rng = np.random.default_rng(9)
    emitted = held = reference_held = 0
    for case in range(fewer(90)):
        names = "abcd"[: int(rng.integers(2, 5))]
        windows, streams = random_windows(rng, names, SHAPES[case % 4]), random_streams(rng, names, until=40)
        arrivals = interleave(rng, streams, str(rng.choice(["time", "any", "bursts"])))
        join, out = WindowJoin(windows, algorithm="forward", windows_policy=policy), 0
        for end, arrival in enumerate(arrivals, 1):
            out += len(push_each(join, [arrival]))
            reference = few(arrivals[:end], windows, join.streams, method=METHODS[policy], flush=False)
            assert out == len(reference.emitted)
            assert join.funnel.candidates <= reference.candidates
            held, reference_held = held + sum(join.stored.values()), reference_held + reference.held[-1]
        emitted += out
    assert emitted > fewer(40)
    assert held < 1.01 * reference_held


def test_the_funnel_of_the_policies() -> None:
    """The further the reach, the more candidates; exact windows have none that are refused."""
    rng = np.random.default_rng(10)
    windows = {("a", "b"): 2, ("b", "c"): 20, ("c", "d"): 4}
    streams = {name: [(n, t, 0) for n, t in enumerate(range(0, 80, 4))] for name in "abcd"}
    arrivals = interleave(rng, streams, "time")
    for algorithm in ALGORITHMS:
        funnels = {}
        for policy in POLICIES:
            join = WindowJoin(windows, algorithm=algorithm, windows_policy=policy)
            join.push_many(batch([row for _, row in arrivals], [name for name, _ in arrivals]))
            close_all(join)
            funnels[policy] = join.funnel
        candidates = [funnels[policy].candidates for policy in POLICIES]
        assert candidates == sorted(set(candidates)), "each further than the one before"
        assert len({funnel.kept for funnel in funnels.values()}) == 1
        assert funnels["exact"].candidates == funnels["exact"].kept > 0
        for funnel in funnels.values():
            assert funnel.accepted["windows"] == funnel.kept
            assert funnel.rejected["windows"] == funnel.candidates - funnel.kept
            assert funnel.flat()["comparisons"] == funnel.comparisons >= funnel.candidates


def test_a_scan_looks_at_other_keys_and_a_hash_does_not() -> None:
    rng = np.random.default_rng(11)
    rows = {"stream": np.arange(600) % 3, "id": np.arange(600), "time": np.arange(600), "key": rng.integers(0, 20, 600)}
    for algorithm in ALGORITHMS:
        hashed, scanned = (WindowJoin(uniform_windows("abc", 60), algorithm=algorithm, lookup=each) for each in LOOKUPS)
        assert sorted(combinations(hashed.push_many(rows))) == sorted(combinations(scanned.push_many(rows)))
        assert hashed.funnel.comparisons * 5 < scanned.funnel.comparisons


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("keys", ["few", "new", "text", "missing"])
def test_memory_stays_flat(algorithm: Any, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over fifty windows neither tuples nor bytes nor names grow, with keys that never come again."""
    monkeypatch.setattr(window, "_KEPT_NAMES", 100)
    monkeypatch.setattr(window, "_AT_ONCE", 200)
    join = WindowJoin(uniform_windows("abc", 100), algorithm=algorithm)
    stored, sizes, names, found = [], [], [], 0
    for begin in range(0, 15_000, 60):
        at = np.arange(begin, begin + 60)
        key = {"few": at // 3 % 7, "new": at // 3, "text": np.array([f"k{k}" for k in at // 3]), "missing": at // 3}[
            keys
        ]
        if keys == "missing":
            key = np.where(at % 2, None, key.astype(str))
        result = join.push_many({"stream": at % 3, "id": at, "time": at.astype(float), "key": key})
        found += len(result)
        stored.append(sum(join.stored.values()))
        sizes.append(join.stored_bytes)
        names.append(len(join._names))
    assert max(stored) == max(stored[:20]) <= 3 * 103
    assert join.peak <= 3 * 103
    assert max(sizes) == max(sizes[:50]) < 200_000
    assert max(names) == max(names[:50]) < 500
    assert len(join.snapshot()) < 30_000
    found += len(close_all(join))
    assert found == {"few": found, "new": 5000, "text": 5000, "missing": 0}[keys]
    assert found > 5000 or keys != "few"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_a_stream_that_stands_still_holds_the_others(way: dict[str, Any]) -> None:
    """All that it may still reach is kept, and goes when it is known not to come; so does the memory."""
    join = WindowJoin(uniform_windows("abc", 10), **way)
    for begin in range(0, 120_000, 40_000):
        at = np.arange(begin, begin + 40_000)
        join.push_many({"stream": at % 2, "id": at, "time": at // 2, "key": at // 2 % 2})
    assert join.stored == {"a": 60_000, "b": 60_000, "c": 0}
    grown = join.stored_bytes
    assert grown > 120_000 * 40
    found = len(join.push_many({"stream": ["c"] * 3, "id": [0, 1, 2], "time": [100, 20_000, 59_000], "key": [0, 1, 0]}))
    found += len(join.expire(59_011))
    assert 0 < sum(join.stored.values()) < 2_100
    found += len(join.expire(70_000))
    assert sum(join.stored.values()) == 0
    even, odd = (
        sum(abs(s - t) <= 10 for s, t in itertools.product(range(begin, 11, 2), repeat=2)) for begin in (-10, -9)
    )
    assert found == 2 * even + odd
    join.push("a", {"id": [1], "time": [70_000], "key": [1]})
    assert join.stored_bytes < grown / 20


def test_heartbeats_let_go() -> None:
    """A tuple goes when its window is passed, and not a moment earlier; time does not go back."""
    for way in WAYS:
        join = WindowJoin({("a", "b"): 10}, **way)
        join.push("a", batch([(1, 5.0, "k")]))
        join.heartbeat("b", 15.0)
        assert join.stored == {"a": 1, "b": 0}
        assert combinations(join.push("b", batch([(2, 15.0, "k")]))) == [(1, 2)]
        join.heartbeat("b", math.nextafter(15.0, 16.0))
        assert join.stored["a"] == 0
        join.heartbeat("b", 3.0)
        late = join.push("b", batch([(3, 14.0, "k")]))
        assert late.late["b"].tolist() == [3]
        assert join.late == {"a": 0, "b": 1}


def test_a_heartbeat_brings_forward_results() -> None:
    """The oldest front goes when the two other streams have passed its window; then the next tuple is in reach."""
    join = WindowJoin(uniform_windows("abc", 4), algorithm="forward")
    assert push_each(join, [("a", (0, 0, 1)), ("b", (1, 2, 1)), ("c", (2, 3, 1)), ("a", (3, 5, 1))]) == [(0, 1, 2)]
    assert combinations(join.heartbeat("b", 4.5)) == []
    assert combinations(join.heartbeat("c", 4)) == [], "a tuple at 4 may still come"
    assert combinations(join.heartbeat("c", 4.5)) == [(3, 1, 2)]


# ---------------------------------------------------------------------------------------------------------------------
# Late tuples


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_late_tuples_are_reported_and_not_joined(way: dict[str, Any]) -> None:
    """Late is what is more than max_delay behind the newest of its own stream; all else is joined."""
    rng = np.random.default_rng(12)
    late_rows = joined = 0
    for _ in range(60):
        streams = random_streams(rng, "abc", most=12)
        delays = {name: float(rng.choice([0, 1, 3])) for name in "abc"}
        coming = {name: disorder(rng, rows, 5) for name, rows in streams.items()}
        late: dict[str, list[Any]] = {name: [] for name in "abc"}
        for name, rows in coming.items():
            newest = -math.inf
            for row in rows:
                if row[1] < newest - delays[name]:
                    late[name].append(row[0])
                newest = max(newest, row[1])
        windows = random_windows(rng, "abc", "graph")
        on_time = {name: [row for row in rows if row[0] not in late[name]] for name, rows in streams.items()}
        player = Player(WindowJoin(windows, max_delay=delays, **way), rng)
        player.play([*interleave(rng, coming), *((name, End()) for name in "abc")])
        order = [player.join.streams.index(name) for name in "abc"]
        expected = window_combinations(on_time, windows)
        assert sorted(tuple(ids[k] for k in order) for ids in player.found) == sorted(expected)
        assert sorted(player.late) == sorted(itertools.chain(*late.values()))
        assert {name: player.join.late[name] for name in "abc"} == {name: len(ids) for name, ids in late.items()}
        late_rows, joined = late_rows + len(player.late), joined + len(expected)
    assert min(late_rows, joined) > 50


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_edge_of_lateness(algorithm: Any) -> None:
    join = WindowJoin({("a", "b"): 100}, algorithm=algorithm, max_delay={"a": 2.5})
    result = join.push("a", batch([(1, 10, 0), (2, 7.5, 0), (3, 7.25, 0), (4, 12, 0), (5, 9.25, 0), (6, 9.5, 0)]))
    assert result.late["a"].tolist() == [3, 5]
    assert result.late["b"].tolist() == []
    assert join.late == {"a": 2, "b": 0}
    result = join.push("b", batch([(1, 10, 0), (2, 9, 0)]))
    assert result.late["b"].tolist() == [2], "no delay is allowed where none is given"
    found = combinations(result) + close_all(join)
    assert sorted(found) == [(1, 1), (2, 1), (4, 1), (6, 1)]


# ---------------------------------------------------------------------------------------------------------------------
# Snapshots, ids and keys


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_a_restored_join_goes_on_as_if_nothing_had_been(way: dict[str, Any]) -> None:
    rng = np.random.default_rng(13)
    streams = random_streams(rng, "abc", most=40, until=60)
    arrivals = interleave(rng, {name: disorder(rng, rows, 3) for name, rows in streams.items()}, "bursts")
    settings = {"max_delay": {"a": 2, "b": 3}, "lookup": "scan", **way}
    whole = parts = WindowJoin({("a", "b"): 3, ("b", "c"): 5}, **settings)
    for name, row in arrivals:
        renamed = (row[0], row[1], f"key {row[2]}")
        one, other = whole.push(name, batch([renamed])), parts.push(name, batch([renamed]))
        assert combinations(one) == combinations(other)
        assert [ids.tolist() for ids in one.late.values()] == [ids.tolist() for ids in other.late.values()]
        state = parts.snapshot()
        assert isinstance(state, bytes)
        parts = WindowJoin.restore(state)
        assert (parts.stored, parts.peak, parts.late) == (whole.stored, whole.peak, whole.late)
    assert whole.late["c"] > 0
    assert whole.funnel.kept > 50
    whole.close("b")
    parts = WindowJoin.restore(whole.snapshot())
    assert parts.funnel.flat() == whole.funnel.flat()
    with pytest.raises(HaplyError, match="'b' is closed"):
        parts.push("b", batch([(1, 100, "k")]))
    assert (parts.windows, parts.streams, parts.max_delay) == (whole.windows, whole.streams, {"a": 2, "b": 3, "c": 0})
    for name in ("algorithm", "windows_policy", "drop", "lookup", "key"):
        assert getattr(parts, name) == getattr(whole, name)


def test_ids_come_back_as_they_went_in() -> None:
    for ids in (
        [2**62 + 1, -5],
        ["a", "longer"],
        [1.5, 2.5],
        [np.datetime64("2024-01-01"), np.datetime64("2025-06-01")],
    ):
        join = WindowJoin({("a", "b"): 1})
        for each in ids:
            join.push("a", {"id": [each], "time": [0], "key": [1]})
        found = join.push("b", {"id": [True], "time": [1], "key": [1]})
        assert found.ids["a"].dtype == np.array(ids).dtype
        assert sorted(found.ids["a"].tolist()) == sorted(np.array(ids).tolist())
        assert found.ids["b"].tolist() == [True, True]
        mixed = WindowJoin({("a", "b"): 1})
        rows = {"stream": ["a", "a"], "id": np.array(ids), "time": [0, 0], "key": [1, 1]}
        assert mixed.push_many(rows).ids["b"].tolist() == []
        assert mixed.push("b", {"id": 7, "time": 0, "key": 1}).ids["a"].dtype == np.array(ids).dtype


@pytest.mark.parametrize(
    "keys",
    [
        np.array([3, -(2**63), 2**63 - 1]),
        np.array([0, 1, 255], np.uint8),
        np.array([0, 5, 2**63 - 1], np.uint64),
        np.array(["", "a", "longer name"]),
        np.array([b"x", b"y", b"zz"]),
        np.array(["one", "two", "3"], object),
        np.array([0.5, 1.5, -2.0]),
        np.array(["2024-01-01", "2024-01-02", "2025-01-01"], "M8[D]"),
    ],
    ids=lambda keys: str(keys.dtype),
)
def test_keys_of_many_kinds(keys: np.ndarray) -> None:
    for algorithm in ALGORITHMS:
        join = WindowJoin({("a", "b"): 0}, algorithm=algorithm)
        join.push("a", {"id": [0, 1, 2], "time": [0, 0, 0], "key": keys})
        found = combinations(join.push("b", {"id": [2, 1, 0, 5], "time": [0] * 4, "key": keys[[2, 1, 0, 1]]}))
        assert sorted(found) == [(0, 0), (1, 1), (1, 5), (2, 2)]


def test_a_missing_key_equals_no_other() -> None:
    join = WindowJoin({("a", "b"): 0})
    join.push("a", {"id": [0, 1, 2], "time": [0, 0, 0], "key": [None, "x", None]})
    assert combinations(join.push("b", {"id": [3, 4], "time": [0, 0], "key": ["x", None]})) == [(1, 3)]
    join = WindowJoin.restore(join.snapshot())
    assert combinations(join.push("b", {"id": [5], "time": [0], "key": [None]})) == []


def test_an_empty_batch() -> None:
    for algorithm in ALGORITHMS:
        join = WindowJoin({("a", "b"): 1}, algorithm=algorithm)
        for result in (
            join.push("a", {"id": [], "time": [], "key": []}),
            join.push_many({"stream": [], "id": [], "time": [], "key": []}),
        ):
            assert len(result) == 0
            assert list(result.ids) == list(result.late) == ["a", "b"]
        join.push("a", batch([(1, 0, "text")]))
        assert len(join.push("b", batch([(2, 0, "text")]))) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Errors


@pytest.mark.parametrize(
    ("windows", "settings", "text"),
    [
        ({("a", "b"): 1, ("c", "d"): 1}, {}, "do not connect all streams.*from 'a'.*none to c, d.*no tuple could ever"),
        ({("a", "b"): -1}, {}, "window of 'a' and 'b' is no length of time.*number >= 0.*Found -1"),
        ({("a", "b"): math.nan}, {}, "no length of time.*Found nan"),
        ({("a", "b"): math.inf}, {}, "no length of time.*Found inf"),
        (
            {("a", "b"): (-1, 5)},
            {},
            r"window of 'a' and 'b' is no length.*number >= 0.*Found \(-1, 5\).*one number",
        ),
        ({("a", "b"): [1]}, {}, r"no length of time.*Found \[1\]"),
        ({("a", "b"): None}, {}, "no length of time.*Found None"),
        ({("a", "b"): "10 seconds"}, {}, "no length of time.*Found '10 seconds'.*hp.window_join take durations"),
        ({("a", "b"): True}, {}, "no length of time.*Found True"),
        ({("a", "b"): 1j}, {}, "no length of time.*Found 1j"),
        (None, {}, "no mapping of pairs of streams.*Found None"),
        (5, {}, "no mapping of pairs of streams.*Found 5"),
        ([("a", "b")], {}, "no mapping of pairs of streams"),
        ({("a", "a"): 1}, {}, "'a' is paired with itself"),
        ({("a", "b"): 1, ("b", "a"): 2}, {}, "'b' and 'a' have two windows.*Found 1 and 2"),
        ({}, {}, "too few or too many streams.*2 to 62.*Found 0"),
        (dict.fromkeys(itertools.pairwise(map(str, range(63))), 1), {}, "too few or too many streams.*Found 63"),
        ({"ab": 1}, {}, "not one of two streams.*Found 'ab'"),
        ({("a", "b", "c"): 1}, {}, "not one of two streams"),
        ({("a", 1): 1}, {}, "not one of two streams"),
        ({("a", "b"): 1}, {"algorithm": "bakward"}, "no algorithm 'bakward'.*did you mean 'backward'"),
        ({("a", "b"): 1}, {"windows_policy": "lokal"}, "no policy of windows 'lokal'.*did you mean 'local'"),
        ({("a", "b"): 1}, {"drop": "any"}, "no rule to drop tuples 'any'.*one of tight, paper"),
        ({("a", "b"): 1}, {"lookup": "hsah"}, "no way to look up keys 'hsah'.*did you mean 'hash'"),
        ({("a", "b"): 1}, {"max_delay": -1}, "max_delay of 'a' is no length of time"),
        ({("a", "b"): 1}, {"max_delay": {"b": math.nan}}, "max_delay of 'b' is no length of time"),
        ({("a", "b"): 1}, {"max_delay": {"b": None}}, "max_delay of 'b' is no length of time.*Found None"),
        ({("a", "b"): 1}, {"max_delay": (1, 2)}, r"max_delay of 'a' is no length of time.*Found \(1, 2\)"),
        ({("a", "b"): 1}, {"max_delay": "1 second"}, "max_delay of 'a' is no length of time.*Found '1 second'"),
        ({("a", "b"): 1}, {"max_delay": True}, "max_delay of 'a' is no length of time.*Found True"),
        ({("a", "b"): 1}, {"max_delay": {"bb": 1}}, "no stream 'bb'.*did you mean 'b'"),
    ],
)
def test_what_cannot_be_asked(windows: Any, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(HaplyError, match=text):
        WindowJoin(windows, **settings)


def test_a_window_may_be_given_twice() -> None:
    assert WindowJoin({("a", "b"): 1, ("b", "a"): 1.0}).closure == {("a", "b"): 1.0}
    assert uniform_windows(["a", "b", "c"], 2) == {("a", "b"): 2, ("a", "c"): 2, ("b", "c"): 2}


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"id": [1], "time": [0]}, "no column 'key'"),
        ({"id": [1], "key": [0]}, "no column 'time'"),
        ({"time": [1], "key": [0]}, "no column 'id'"),
        ({"id": [1, 2], "time": [0], "key": [0]}, "disagrees in length"),
        ({"id": [1], "time": [0], "key": [[0, 1]]}, "disagrees in length"),
        ({"id": [1], "time": [math.nan], "key": [0]}, "NaN or infinite"),
        ({"id": [1], "time": [math.inf], "key": [0]}, "NaN or infinite"),
        ({"id": [1], "time": [2**53 + 1], "key": [0]}, "too large to be exact"),
        ({"id": [1], "time": ["noon"], "key": [0]}, "Times are not numbers"),
        ({"id": [1], "time": [0], "key": ["x"]}, "Keys are integers in one batch and text in another"),
        ({"id": [1], "time": [0], "key": np.array([2**63], np.uint64)}, "key is too large"),
    ],
)
def test_what_cannot_be_pushed(rows: dict[str, Any], text: str) -> None:
    join = WindowJoin({("a", "b"): 1})
    join.push("a", batch([(1, 0, 0)]))
    with pytest.raises(HaplyError, match=text):
        join.push("b", rows)
    with pytest.raises(HaplyError, match=text):
        join.push_many({**rows, "stream": ["b"] * len(rows.get("id", [1]))})
    assert join.stored == {"a": 1, "b": 0}, "what is refused is not stored"
    assert combinations(join.push("b", batch([(2, 1, 0)]))) == [(1, 2)]


def test_streams_that_are_not_there_or_closed() -> None:
    join = WindowJoin({("left", "right"): 1})
    row = batch([(1, 0, 0)])
    for call in (
        lambda: join.push("lefft", row),
        lambda: join.heartbeat("lefft", 0),
        lambda: join.close("lefft"),
        lambda: join.push_many({**row, "stream": ["lefft"]}),
    ):
        with pytest.raises(HaplyError, match=r"no stream 'lefft'.*did you mean 'left'"):
            call()
    for number in (-1, 2):
        with pytest.raises(HaplyError, match=f"no stream '{number}'"):
            join.push_many({**row, "stream": [number]})
    with pytest.raises(HaplyError, match="no column 'stream'"):
        join.push_many(row)
    with pytest.raises(HaplyError, match="disagrees in length"):
        join.push_many({**row, "stream": [0, 1]})
    with pytest.raises(HaplyError, match="Keys are of several kinds"):
        join.push("left", {"id": [1, 2], "time": [0, 0], "key": np.array(["a", 1], object)})
    for time in (join.heartbeat, lambda _, t: join.expire(t)):
        with pytest.raises(HaplyError, match="time is NaN"):
            time("left", math.nan)
    join.close("left")
    for call in (lambda: join.push("left", row), lambda: join.push_many({**row, "stream": [0]})):
        with pytest.raises(HaplyError, match=r"'left' is closed.*push before close"):
            call()
    assert join.stored == {"left": 0, "right": 0}
