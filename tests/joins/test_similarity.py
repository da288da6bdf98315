"""``SimilarityJoin`` against recomputation from scratch at every timestamp: no pair lost, doubled, early or late."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import numpy as np
import pytest

import haply.joins.operators.similarity as similarity
from haply.errors import HaplyError
from haply.joins import SimilarityJoin
from haply.joins.operators.similarity import SimilarityResult
from haply.models import Certain, Samples
from oracle_distance import (
    KINDS,
    Cloud,
    all_pairs,
    answers_at,
    cloud,
    keeps,
    live_span,
    probability,
    random_cloud,
    window_pairs,
)

Pair = tuple[int, int]

RULES = ("auto", "paper", "none", ["grid", "core", "line"])
BATCHES = (1, 2, 5, 50)


def samples(these: Sequence[Cloud]) -> Samples:
    """Clouds as rows; equal weights are left out if all have them."""
    weights = [list(map(float, each.exact_weights)) for each in these]
    return Samples([each.points for each in these], None if all(each.weights is None for each in these) else weights)


class Collected:
    """All results of a join, each pair once, with its probability and its life."""

    def __init__(self) -> None:
        self.pairs: dict[Pair, tuple[float, float, float]] = {}

    def add(self, result: SimilarityResult) -> None:
        columns = (result.left, result.right, result.probability, result.live_from, result.live_to)
        assert {len(column) for column in columns} == {len(result)}
        for i, j, *rest in zip(*(column.tolist() for column in columns), strict=True):
            assert (i, j) not in self.pairs, "a pair was returned twice"
            self.pairs[i, j] = tuple(rest)

    def live_at(self, t: float) -> set[Pair]:
        return {pair for pair, (_, begin, end) in self.pairs.items() if begin <= t <= end}


def walk(seed: int, count: int, dim: int = 2, weighted: bool = False, jump: float = 0.0) -> list[Cloud]:
    """Objects of all kinds around a point that wanders about the origin, and now and then jumps."""
    rng = np.random.default_rng(seed)
    places = rng.normal(0, 0.6, (count, dim))
    for before, place in itertools.pairwise(places):
        place += 0.7 * before
    places += rng.choice([0.0, jump], (count, 1), p=[0.8, 0.2])
    objects = []
    for place in places:
        kind, n = rng.choice(KINDS), int(rng.choice([1, 2, 4, 5]))
        each = random_cloud(rng, dim, n, kind, weighted=weighted and bool(rng.integers(2)), spread=0.0, size=0.8)
        objects.append(Cloud(each.points + place, each.weights))
    return objects


def run(
    join: SimilarityJoin,
    lefts: Sequence[Cloud],
    rights: Sequence[Cloud],
    batch: int,
    times: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Collected:
    """Both streams in batches of the given size, the left one first each time."""
    found = Collected()
    for begin in range(0, max(len(lefts), len(rights)), batch):
        for number, (side, objects) in enumerate((("left", lefts), ("right", rights))):
            rows = range(begin, min(begin + batch, len(objects)))
            if not rows:
                continue
            pushed = {"id": list(rows), "pos": samples([objects[row] for row in rows])}
            if times is not None:
                pushed["time"] = [times[number][row] for row in rows]
            found.add(join.push(side, pushed))
    return found


def check_every_timestamp(
    found: Collected,
    lefts: Sequence[Cloud],
    rights: Sequence[Cloud],
    times: tuple[Sequence[int], Sequence[int]],
    window: int | None,
    eps: float,
    threshold: float | None,
    strict: bool = False,
) -> int:
    """What lives at each time is what is computed anew from the two windows; returns how many answers there were."""
    answers = 0
    for t in range(min(min(times[0]), min(times[1])) - 1, max(max(times[0]), max(times[1])) + 2):
        wanted = answers_at(t, lefts, rights, *times, window=window, eps=eps, threshold=threshold, strict=strict)
        assert found.live_at(t) == wanted, t
        answers += len(wanted)
    for (i, j), (p, begin, end) in found.pairs.items():
        assert abs(p - float(probability(lefts[i], rights[j], eps))) <= 1e-12
        assert (begin, end) == live_span(times[0][i], times[1][j], window)
    return answers


# ---------------------------------------------------------------------------------------------------------------------
# Windows


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("batch", BATCHES)
def test_windows_of_the_last_objects(batch: int, rules: str | list[str]) -> None:
    """Without times: the last w objects of each side, whatever the batches."""
    count, w = 60, 8
    lefts, rights = walk(1, count, weighted=True), walk(2, count, jump=3.0)
    join = SimilarityJoin(1.5, 0.3, window=w - 1, dim=2, rules=rules)
    found = run(join, lefts, rights, batch)
    times = (range(count), range(count))
    assert check_every_timestamp(found, lefts, rights, times, w - 1, 1.5, 0.3) > 100
    assert max(join.stored.values()) <= w - 1 + batch


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("batch", BATCHES)
def test_windows_of_time(batch: int, rules: str | list[str]) -> None:
    """With times that stand still and jump, another number of objects on each side."""
    rng = np.random.default_rng(3)
    lefts, rights = walk(4, 50), walk(5, 35, weighted=True, jump=2.0)
    times = tuple(np.sort(rng.integers(-20, 40, len(side))).tolist() for side in (lefts, rights))
    found = run(SimilarityJoin(1.5, 0.5, window=6, dim=2, strict=True, rules=rules), lefts, rights, batch, times)
    assert check_every_timestamp(found, lefts, rights, times, 6, 1.5, 0.5, True) > 100


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("dim", [1, 3, 4, 7])
@pytest.mark.parametrize("threshold", [0.1, 1.0, None])
def test_dimensions_and_thresholds(dim: int, threshold: float | None) -> None:
    lefts, rights = walk(6, 30, dim), walk(7, 30, dim, weighted=True)
    times = (range(30), range(30))
    for rules in ("auto", "paper"):
        found = run(SimilarityJoin(2.5, threshold, window=9, dim=dim, rules=rules), lefts, rights, 4)
        assert check_every_timestamp(found, lefts, rights, times, 9, 2.5, threshold) > 0


@pytest.mark.parametrize("window", [0, None])
def test_the_shortest_and_the_longest_window(window: int | None) -> None:
    lefts, rights = walk(8, 30), walk(8, 30, jump=1.0)
    times = (range(30), range(30))
    for batch in (1, 7):
        found = run(SimilarityJoin(1.5, 0.2, window=window, dim=2), lefts, rights, batch)
        assert check_every_timestamp(found, lefts, rights, times, window, 1.5, 0.2) > 5


def test_windows_need_not_be_whole() -> None:
    """Times and window are any numbers, and both ends of the window belong to it."""
    point = cloud([0.0])
    join = SimilarityJoin(0.0, 1.0, window=0.75, dim=1)
    join.push("left", {"id": [0, 1, 2, 3], "time": [0.0, 0.25, 0.5, 1.75], "pos": samples([point] * 4)})
    found = join.push("right", {"id": [9], "time": [1.0], "pos": samples([point])})
    assert sorted(zip(found.left.tolist(), found.live_from.tolist(), found.live_to.tolist(), strict=True)) == [
        (1, 1.0, 1.0),
        (2, 1.0, 1.25),
        (3, 1.75, 1.75),
    ]


def test_a_grid_for_long_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` lays a grid where a window is long; it moves with the window, and the answers stay."""
    monkeypatch.setattr(similarity, "GRID_FROM", 12)
    count, window = 150, 40
    for dim, batch in ((1, 1), (2, 5), (3, 1), (4, 50)):
        lefts, rights = walk(9, count, dim, jump=8.0), walk(10, count, dim, jump=8.0)
        join = SimilarityJoin(1.0, 0.3, window=window, dim=dim)
        found = run(join, lefts, rights, batch)
        assert all(store.grid is not None for store in join._stored.values())
        times = (range(count), range(count))
        wanted = all_pairs(lefts, rights, *times, window=window, eps=1.0, threshold=0.3)
        assert set(found.pairs) == set(wanted)
        assert all(abs(found.pairs[pair][0] - float(p)) <= 1e-12 for pair, p in wanted.items())
        assert len(wanted) > 5


@pytest.mark.parametrize("rules", ["auto", "paper"])
def test_results_in_parts(rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose pairs do not fit the room for results: matching goes on where it stopped."""
    lefts, rights = walk(11, 60), walk(12, 60)
    whole = run(SimilarityJoin(3.0, None, dim=2, rules=rules), lefts, rights, 60)
    monkeypatch.setattr(similarity, "_OUTPUT", 1)
    parts = run(SimilarityJoin(3.0, None, dim=2, rules=rules), lefts, rights, 60)
    assert parts.pairs == whole.pairs
    assert len(whole.pairs) > 300


# ---------------------------------------------------------------------------------------------------------------------
# Difficult streams


TWO = cloud([(0, 0), (1, 0)])
FAR_POINTS = [cloud([10_000.0 + 100 * k]) for k in range(6)]
OPPOSITE_POINTS = [cloud(-each.points) for each in FAR_POINTS]
STREAMS = {
    "constant": ([TWO] * 20, [TWO] * 20, 1.0, 0.75),
    "one sample": ([cloud([(k % 5, k % 4)]) for k in range(20)], [cloud([(1, 1)])] * 20, 1.0, 1.0),
    "radius zero": ([cloud([k % 3] * 4) for k in range(20)], [cloud([k % 2] * 3) for k in range(20)], 0.5, 0.5),
    "ties": ([cloud([(k % 3, 0), (k % 3, 1)]) for k in range(20)], [TWO] * 20, math.sqrt(2), 0.5),
    "wide at last": ([*FAR_POINTS, cloud([0, 100])], [*OPPOSITE_POINTS, cloud([0, -100])], 1.0, 0.25),
    "wide at first": ([cloud([0, 100]), *FAR_POINTS], [cloud([0, -100]), *FAR_POINTS[::-1]], 1.0, 0.25),
    "growing": ([cloud([0, 2.0**k]) for k in range(16)], [cloud([0, -(2.0**k)]) for k in range(16)], 1.0, 0.25),
    "shrinking": ([cloud([0, 2.0**-k]) for k in range(16)], [cloud([1, 2.0**-k]) for k in range(16)], 0.5, 0.5),
}


@pytest.mark.long(keep=10)
@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("stream", STREAMS)
def test_difficult_streams(stream: str, rules: str | list[str]) -> None:
    lefts, rights, eps, threshold = STREAMS[stream]
    times = (range(len(lefts)), range(len(rights)))
    for batch, window in ((1, 2), (2, 4), (5, 3), (50, None)):
        join = SimilarityJoin(eps, threshold, window=window, dim=lefts[0].dim, rules=rules)
        found = run(join, lefts, rights, batch)
        assert check_every_timestamp(found, lefts, rights, times, window, eps, threshold) > 0, (batch, window)


def test_golden_12_the_largest_radius_counts_the_newest_object() -> None:
    """Points far away, and at last two wide objects: without the radius of the newest, the search would miss them."""
    lefts, rights, eps, threshold = STREAMS["wide at last"]
    last = len(lefts) - 1
    for rules in RULES:
        for batch in BATCHES:
            found = run(SimilarityJoin(eps, threshold, window=3, dim=1, rules=rules), lefts, rights, batch)
            assert found.pairs[last, last] == (0.25, last, last + 3)
            assert not run(SimilarityJoin(eps, 0.26, window=3, dim=1, rules=rules), lefts, rights, batch).pairs


def test_golden_15_liveness() -> None:
    """Windows of three: (5, 7) lives at 7 only, (5, 8) never, (5, 5) from 5 to 7."""
    point = cloud([0.0])
    for rules in RULES:
        found = run(SimilarityJoin(1.0, 1.0, window=2, dim=1, rules=rules), [point] * 12, [point] * 12, 1)
        assert found.pairs[5, 7] == found.pairs[7, 5] == (1.0, 7, 7)
        assert found.pairs[5, 5] == (1.0, 5, 7)
        assert (5, 8) not in found.pairs
        assert (8, 5) not in found.pairs
        assert [t for t in range(14) if (5, 6) in found.live_at(t)] == [6, 7]


def test_one_side_far_ahead() -> None:
    """Hundreds of objects of one side before the first of the other: nothing may leave that still has partners."""
    lefts, rights = walk(13, 90), walk(13, 90, jump=1.0)
    for rules in ("auto", "paper"):
        join, found = SimilarityJoin(1.0, 0.5, window=5, dim=2, rules=rules), Collected()
        found.add(join.push("left", {"id": np.arange(90), "pos": samples(lefts)}))
        assert join.stored == {"left": 90, "right": 0}
        for k in range(0, 90, 3):
            found.add(join.push("right", {"id": np.arange(k, k + 3), "pos": samples(rights[k : k + 3])}))
            assert join.stored["left"] == 90 - max(0, k + 3 - 5)
        wanted = all_pairs(lefts, rights, range(90), range(90), window=5, eps=1.0, threshold=0.5)
        assert set(found.pairs) == set(wanted)
        assert len(wanted) > 50


def test_counters_count_the_pairs_of_the_window() -> None:
    lefts, rights = walk(14, 50), walk(15, 50)
    for rules in ("auto", "none", ["spheres"], ["balls", "line"]):
        for way in ("exact", "none"):
            join = SimilarityJoin(1.5, 0.4, window=6, dim=2, rules=rules, probability=way)
            found = run(join, lefts, rights, 1)
            funnel = join.funnel
            assert funnel.candidates == len(window_pairs(range(50), range(50), 6))
            decided = sum(funnel.rejected.values()) + sum(funnel.accepted.values())
            assert decided + funnel.evaluated == funnel.candidates
            assert funnel.kept == len(found.pairs) > 10


# ---------------------------------------------------------------------------------------------------------------------
# Any order


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_pushes_in_any_order_with_a_watermark(rules: str | list[str]) -> None:
    """Objects come in any order; ``expire`` tells what will not come any more. Every pair once, all the same."""
    count, window = 120, 8
    lefts, rights = walk(16, count, jump=4.0), walk(17, count, weighted=True, jump=4.0)
    wanted = all_pairs(lefts, rights, range(count), range(count), window=window, eps=1.5, threshold=0.3)
    assert len(wanted) > 50
    for seed in range(4):
        rng = np.random.default_rng(seed)
        late = float(rng.choice([0.0, 5.0, 40.0]))
        coming = [(t + rng.uniform(0, late), side, t) for side in ("left", "right") for t in range(count)]
        coming.sort(key=lambda each: each[0])
        join, found, most = SimilarityJoin(1.5, 0.3, window=window, dim=2, rules=rules), Collected(), 0
        while coming:
            taken, coming = coming[: (size := int(rng.integers(1, 9)))], coming[size:]
            for side, objects in (("left", lefts), ("right", rights)):
                times = [t for _, where, t in taken if where == side]
                if times:
                    rows = {"id": times, "time": times, "pos": samples([objects[t] for t in times])}
                    found.add(join.push(side, rows))
            join.expire(min((t for *_, t in coming), default=count))
            most = max(most, *join.stored.values())
        assert set(found.pairs) == set(wanted)
        assert most <= 4 * (window + late + 10)


def test_expire_keeps_what_still_has_partners() -> None:
    """An object leaves when its window ends before the time, and not a moment earlier."""
    point = samples([cloud([0.0])])
    join = SimilarityJoin(1.0, 0.5, window=10, dim=1)
    join.push("left", {"id": [1], "time": [5.0], "pos": point})
    join.expire(15.0)
    assert join.stored == {"left": 1, "right": 0}
    assert len(join.push("right", {"id": [2], "time": [15.0], "pos": point})) == 1
    join.expire(math.nextafter(15.0, 16.0))
    assert join.stored == {"left": 0, "right": 1}
    join.expire(3.0)
    assert join.stored["right"] == 1, "time does not go back"


# ---------------------------------------------------------------------------------------------------------------------
# Memory


@pytest.mark.parametrize("rules", ["auto", "paper"])
@pytest.mark.parametrize("numbered", [True, False])
def test_memory_stays_flat(numbered: bool, rules: str) -> None:
    """Over ten windows neither the number of objects nor the bytes grow, and never beyond four times what is alive."""
    rng = np.random.default_rng(18)
    w, batch, n, dim = 200, 20, 6, 2
    join = SimilarityJoin(0.5, 0.5, window=w - 1, dim=dim, rules=rules)
    stored, sizes = [], []
    for begin in range(0, 10 * w, batch):
        for side in ("left", "right"):
            rows = {"id": np.arange(begin, begin + batch), "pos": Samples(rng.normal(0, 10, (batch, n, dim)))}
            if not numbered:
                rows["time"] = np.arange(begin, begin + batch)
            join.push(side, rows)
        if not numbered:
            join.expire(begin + batch)
        stored.append(max(join.stored.values()))
        sizes.append(join.stored_bytes)
    two_windows = 2 * w // batch
    assert max(stored) <= w - 1 + batch
    assert stored[-1] == stored[two_windows]
    assert max(sizes) == max(sizes[: 2 * two_windows])
    alive = 2 * (w + batch) * ((dim + 2) * n + 60) * 8
    assert max(sizes) <= 4 * alive


def test_close_lets_the_other_side_go() -> None:
    lefts, rights = walk(19, 40), walk(20, 40)
    for rules in RULES:
        join, found = SimilarityJoin(1.5, 0.3, dim=2, rules=rules), Collected()
        found.add(join.push("left", {"id": np.arange(20), "pos": samples(lefts[:20])}))
        found.add(join.push("right", {"id": np.arange(40), "pos": samples(rights)}))
        join.close("right")
        assert join.stored == {"left": 0, "right": 40}
        for k in range(20, 40, 5):
            found.add(join.push("left", {"id": np.arange(k, k + 5), "pos": samples(lefts[k : k + 5])}))
            assert join.stored == {"left": 0, "right": 40}
        wanted = all_pairs(lefts, rights, range(40), range(40), window=None, eps=1.5, threshold=0.3)
        assert set(found.pairs) == set(wanted)
        join.close("left")
        assert join.stored == {"left": 0, "right": 0}
        for side in ("left", "right"):
            with pytest.raises(HaplyError, match=f"The {side} side is closed"):
                join.push(side, {"id": [1], "pos": samples(lefts[:1])})


# ---------------------------------------------------------------------------------------------------------------------
# Snapshots


def told(result: SimilarityResult) -> list[tuple[str, ...]]:
    """All that a result says, in an order of its own: a grid that is laid anew may find pairs in another order."""
    columns = (result.left, result.right, result.probability, result.decided_by, result.live_from, result.live_to)
    return sorted(tuple(map(str, row)) for row in zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_a_restored_join_goes_on_as_if_nothing_had_been(rules: str | list[str]) -> None:
    """After every push, with string ids that get longer, in windows by number."""
    lefts, rights = walk(21, 40, weighted=True), walk(22, 40)
    settings = {"window": 6, "dim": 2, "rules": rules, "probability": "none", "strict": True}
    whole, parts = SimilarityJoin(1.5, 0.3, **settings), SimilarityJoin(1.5, 0.3, **settings)
    pairs = 0
    for k in range(40):
        for side, objects in (("left", lefts), ("right", rights)):
            rows = {"id": [f"{side}{'x' * (k % 7)}{k}"], "pos": samples(objects[k : k + 1])}
            one, other = whole.push(side, rows), parts.push(side, rows)
            assert told(one) == told(other)
            assert all(text.startswith("left") for text in one.left.tolist())
            pairs += len(one)
            state = parts.snapshot()
            assert isinstance(state, bytes)
            parts = SimilarityJoin.restore(state)
            assert parts.stored == whole.stored
    assert parts.funnel.flat() == whole.funnel.flat()
    assert pairs > 20


def test_a_snapshot_keeps_times_watermark_and_closed_sides() -> None:
    point = samples([cloud([0.0])])
    join = SimilarityJoin(1.0, None, window=10, dim=1)
    join.push("left", {"id": [1, 2, 3], "time": [0.0, 9.0, 5.0], "pos": samples([cloud([0.0])] * 3)})
    join.expire(11.0)
    join.close("left")
    again = SimilarityJoin.restore(join.snapshot())
    assert again.stored == join.stored
    for each in (join, again):
        found = each.push("right", {"id": [7], "time": [15.0], "pos": point})
        assert sorted(found.left.tolist()) == [2, 3]
        assert each.stored["right"] == 0
        with pytest.raises(HaplyError, match="left side is closed"):
            each.push("left", {"id": [4], "pos": point})
    assert again.threshold == join.threshold
    assert SimilarityJoin.restore(SimilarityJoin(2.0, 0.5, dim=3).snapshot()).window == math.inf


def test_a_snapshot_lays_its_grid_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "GRID_FROM", 10)
    lefts, rights = walk(23, 60, jump=5.0), walk(24, 60, jump=5.0)
    join = SimilarityJoin(1.0, 0.3, window=25, dim=2)
    found = Collected()
    for k in range(0, 60, 4):
        for side, objects in (("left", lefts), ("right", rights)):
            found.add(join.push(side, {"id": np.arange(k, k + 4), "pos": samples(objects[k : k + 4])}))
        join = SimilarityJoin.restore(join.snapshot())
    wanted = all_pairs(lefts, rights, range(60), range(60), window=25, eps=1.0, threshold=0.3)
    assert set(found.pairs) == set(wanted)
    assert len(wanted) > 20


# ---------------------------------------------------------------------------------------------------------------------
# What may be pushed


def test_ids_come_back_as_they_went_in() -> None:
    point = samples([cloud([0.0])])
    for ids in (
        [2**62 + 1, -5],
        ["a", "longer"],
        [1.5, 2.5],
        [np.datetime64("2024-01-01"), np.datetime64("2025-06-01")],
    ):
        join = SimilarityJoin(1.0, 0.5, dim=1)
        for each in ids:
            join.push("left", {"id": [each], "pos": point})
        found = join.push("right", {"id": [True], "pos": point})
        assert found.left.tolist() == np.array(ids).tolist()
        assert found.right.tolist() == [True, True]


def test_numbers_lists_and_samples_are_positions() -> None:
    join = SimilarityJoin(1.0, 0.5, dim=1)
    join.push("left", {"id": 1, "pos": Certain([5.0])})
    join.push("left", {"id": [2, 3], "pos": [[5.0, 9.0], [8.0, 9.0]]})
    found = join.push("right", {"id": [7], "time": 0, "pos": Samples([[4.5, 5.5]])})
    assert sorted(zip(found.left.tolist(), found.probability.tolist(), strict=True)) == [(1, 1.0), (2, 0.5)]


def test_a_batch_without_objects() -> None:
    nobody, point = samples([cloud([(0, 0)])]).take(np.arange(0)), samples([cloud([(0, 0)])])
    for rules in RULES:
        join = SimilarityJoin(1.0, 0.5, window=1, dim=2, rules=rules)
        assert len(join.push("left", {"id": [], "pos": nobody})) == 0
        join.push("left", {"id": [1], "pos": point})
        assert len(join.push("right", {"id": [], "time": [], "pos": nobody})) == 0
        assert join.push("right", {"id": [2], "pos": point}).left.tolist() == [1]
        assert len(join.push("left", {"id": [], "pos": nobody})) == 0
        assert join.stored == {"left": 1, "right": 1}


@pytest.mark.parametrize("positions", [[], np.empty((0, 3, 2))])
def test_a_batch_of_empty_lists(positions: object) -> None:
    join = SimilarityJoin(1.0, 0.5, dim=2)
    assert len(join.push("left", {"id": [], "pos": positions})) == 0


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_all_pairs_of_what_is_stored(rules: str | list[str]) -> None:
    """Found anew, and again, without a push: those of the two windows as they are."""
    lefts, rights = walk(25, 30), walk(26, 30, weighted=True)
    join = SimilarityJoin(1.5, 0.3, window=7, dim=2, rules=rules)
    assert len(join.pairs()) == 0
    run(join, lefts, rights, 4)
    alive = range(30 - 7, 30)
    assert join.stored == {"left": len(alive), "right": len(alive)}
    near = all_pairs(lefts, rights, range(30), range(30), window=7, eps=1.5, threshold=0.3)
    wanted = {pair for pair in near if pair[0] in alive and pair[1] in alive}
    for _ in range(2):
        found = Collected()
        found.add(join.pairs())
        assert set(found.pairs) == wanted
    assert len(wanted) > 5


def test_no_pair_is_more_than_certain_when_found_anew() -> None:
    point = samples([cloud([0.0])])
    join = SimilarityJoin(5.0, 1.0, dim=1, strict=True)
    for side in ("left", "right"):
        assert len(join.push(side, {"id": [1], "pos": point})) == 0
    assert len(join.pairs()) == 0


def test_a_strict_threshold_next_to_one() -> None:
    """Counts need no tolerance: a sure pair of equal weights is above every threshold but 1."""
    point, threshold = cloud([0.0]), 0.9999999999999
    assert keeps(point, point, 1.0, threshold, strict=True)
    for rules in RULES:
        assert run(SimilarityJoin(1.0, threshold, dim=1, strict=True, rules=rules), [point], [point], 1).pairs


def test_errors() -> None:
    point = samples([cloud([(0, 0)])])
    for call, text in (
        (lambda: SimilarityJoin(-1.0, 0.5, dim=2), "distance is negative or NaN"),
        (lambda: SimilarityJoin(math.nan, 0.5, dim=2), "distance is negative or NaN"),
        (lambda: SimilarityJoin(1.0, 0.0, dim=2), "threshold is not a probability"),
        (lambda: SimilarityJoin(1.0, 1.1, dim=2), "threshold is not a probability"),
        (lambda: SimilarityJoin(1.0, 0.5, window=-1, dim=2), "window is no length of time"),
        (lambda: SimilarityJoin(1.0, 0.5, window=math.nan, dim=2), "window is no length of time"),
        (lambda: SimilarityJoin(1.0, 0.5, window="3 s", dim=2), "window is no length of time"),  # type: ignore[arg-type]
        (lambda: SimilarityJoin(1.0, 0.5, window=(-1, 5), dim=2), "window is no length of time"),  # type: ignore[arg-type]
        (lambda: SimilarityJoin(1.0, 0.5, dim=0), "dimension is not a whole number"),
        (lambda: SimilarityJoin(1.0, 0.5, dim=2.5), "dimension is not a whole number"),  # type: ignore[arg-type]
        (lambda: SimilarityJoin(1.0, 0.5, dim=2, rules=["bals"]), "no rule 'bals'.*did you mean 'balls'"),
        (lambda: SimilarityJoin(1.0, 0.5, dim=2, rules="papers"), "no set of rules 'papers'.*did you mean 'paper'"),
        (lambda: SimilarityJoin(1.0, 0.5, dim=2, probability="exakt"), "did you mean 'exact'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(HaplyError, match=text):
            call()
    join = SimilarityJoin(1.0, 0.5, window=3, dim=2)
    for side, rows, text in (
        ("lefft", {"id": [1], "pos": point}, "no side 'lefft'.*did you mean 'left'"),
        ("left", {"id": [1]}, "no column 'pos'"),
        ("left", {"pos": point}, "no column 'id'"),
        ("left", {"id": [1], "pos": Samples([[1.0, 2.0]])}, "Points differ in dimension"),
        ("left", {"id": [1], "pos": Certain([1.0])}, "Points differ in dimension"),
        ("left", {"id": [1, 2], "pos": point}, "disagrees in length"),
        ("left", {"id": [1], "time": [1, 2], "pos": point}, "disagrees in length"),
        ("left", {"id": [1], "time": [], "pos": point}, "disagrees in length"),
    ):
        with pytest.raises(HaplyError, match=text):
            join.push(side, rows)
    with pytest.raises(HaplyError, match="no side 'both'"):
        join.close("both")  # type: ignore[arg-type]
    assert join.stored == {"left": 0, "right": 0}, "what is refused is not stored"
    assert join.push("left", {"id": [1], "pos": point}).left.tolist() == []
    assert join.push("right", {"id": [2], "pos": point}).live_to.tolist() == [3.0], "nor does it count as an object"


@pytest.mark.parametrize("kind", [list, tuple, set, dict.fromkeys, iter])
def test_rules_may_be_any_iterable(kind: Callable[[list[str]], Iterable[str]]) -> None:
    wanted = SimilarityJoin(1.0, 0.5, dim=1, rules=["balls", "line"]).rules
    assert len(wanted) == 2
    assert SimilarityJoin(1.0, 0.5, dim=1, rules=kind(["balls", "line"])).rules == wanted


def test_strictness_at_a_tie() -> None:
    """Three of four pairs of samples are near."""
    x, y = cloud([0.0, 1.0]), cloud([1.0, 2.0])
    assert probability(x, y, 1.0) == Fraction(3, 4)
    for threshold, strict in ((0.75, False), (0.75, True), (0.7499999999999999, True), (0.7500000000000001, False)):
        kept = keeps(x, y, 1.0, threshold, strict)
        for rules in RULES:
            join = SimilarityJoin(1.0, threshold, dim=1, strict=strict, rules=rules)
            assert bool(run(join, [x], [y], 1).pairs) == kept


@pytest.mark.parametrize("seed", range(3))
def test_pushes_of_one_row_find_what_one_batch_finds(seed):
    """In random orders, with a restart in the middle."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0.0, 4.0, (2, 120, 1, 2)) + rng.normal(0.0, 0.4, (2, 120, 5, 2))
    times = rng.integers(0, 200, (2, 120))

    def pairs(result):
        return list(
            zip(result.left.tolist(), result.right.tolist(), result.probability, result.decided_by, strict=True)
        )

    whole = SimilarityJoin(1.0, 0.3, window=20, dim=2)
    sides = ("left", "right")
    wanted = [
        pairs(whole.push(name, {"id": np.arange(120), "time": times[k], "pos": Samples(points[k])}))
        for k, name in enumerate(sides)
    ][1]
    join, found = SimilarityJoin(1.0, 0.3, window=20, dim=2), []
    for step, number in enumerate(rng.permutation(240).tolist()):
        if step == 120:
            join = SimilarityJoin.restore(join.snapshot())
        k, row = divmod(number, 120)
        batch = {"id": [row], "time": times[k, row : row + 1], "pos": Samples(points[k, row : row + 1])}
        found += pairs(join.push(sides[k], batch))
    assert len(wanted) > 50
    assert [each[:3] for each in sorted(found)] == [each[:3] for each in sorted(wanted)]
    assert join.funnel.kept == whole.funnel.kept == len(wanted)
