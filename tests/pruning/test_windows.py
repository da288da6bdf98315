"""Windows that follow from others, and the lists and tables under the window join."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from amounts import fewer
from haply.pruning.candidates.windows import (
    FIRST_KEY,
    PENDING,
    POLICIES,
    STORED,
    Content,
    State,
    WindowCounters,
    WindowQuery,
    _forget_unused,
    _row_of,
    closure,
    content,
    empty_state,
    put_back,
    query,
    stored_keys,
)
from oracle_time import closure as all_paths
from oracle_time import local_windows, pair_bounds, random_windows

METHODS = {"exact": "exact", "local": "lca", "global": "gca"}


def matrix(windows: dict[tuple[str, str], float], names: str) -> np.ndarray:
    given = np.where(np.eye(len(names), dtype=bool), 0.0, np.inf)
    for (a, b), w in windows.items():
        i, j = names.index(a), names.index(b)
        given[i, j] = given[j, i] = min(w, given[i, j])
    return given


def asked(windows: dict[tuple[str, str], float], names: str, policy: Any = "exact", **settings: bool) -> WindowQuery:
    settings = {"forward": False, "scan": False, "tight": True, **settings}
    return query(matrix(windows, names), np.zeros(len(names)), policy, **settings)


# ---------------------------------------------------------------------------------------------------------------------
# Windows


@pytest.mark.parametrize(
    ("windows", "pair", "expected", "longest"),
    [
        ({("a", "b"): 1, ("b", "c"): 10}, "ac", 11, [11, 10, 11]),
        ({("a", "b"): 1, ("b", "c"): 1}, "ac", 2, [2, 1, 2]),
        ({("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 50}, "ac", 2, [2, 1, 2]),
        ({("a", "b"): 2, ("b", "c"): 2, ("c", "d"): 1, ("a", "d"): 3}, "ac", 4, [4, 3, 4, 3]),
        ({("a", "b"): 2, ("b", "c"): 2, ("c", "d"): 1, ("a", "d"): 3}, "bd", 3, [4, 3, 4, 3]),
        ({("a", "b"): 4, ("a", "c"): 2, ("b", "c"): 2}, "ab", 4, [4, 4, 2]),
        ({("a", "b"): 3, ("b", "c"): 1, ("c", "d"): 2}, "ad", 6, [6, 3, 4, 6]),
    ],
)
def test_golden_closures(windows: Any, pair: str, expected: float, longest: list[float]) -> None:
    names = "abcd"[: len(longest)]
    shortest = closure(matrix(windows, names))
    assert shortest[names.index(pair[0]), names.index(pair[1])] == expected
    assert shortest.max(axis=1).tolist() == longest
    np.testing.assert_allclose(asked(windows, names).span, longest, rtol=1e-13)


def test_closures_and_reaches_of_random_windows() -> None:
    """Shortest paths by all simple paths, and what the policies make of them; a hair wider where they are sums."""
    rng = np.random.default_rng(1)
    for case in range(fewer(120)):
        names = "abcdef"[: int(rng.integers(2, 7))]
        windows = random_windows(rng, names, ("uniform", "clique", "path", "graph")[case % 4])
        shortest = closure(matrix(windows, names))
        expected = all_paths(windows, names)
        pairs = list(itertools.permutations(range(len(names)), 2))
        assert all(shortest[i, j] == expected[names[i], names[j]] for i, j in pairs)
        assert (shortest == shortest.T).all()
        for policy in POLICIES:
            asking = asked(windows, names, policy)
            bounds = pair_bounds(windows, names, METHODS[policy])
            for i, j in pairs:
                bound = bounds[names[i], names[j]]
                assert bound <= asking.reach[i, j] <= bound * (1 + 2e-14)
                if policy == "exact" and bound == matrix(windows, names)[i, j]:
                    assert asking.reach[i, j] == bound, "a given window is exact"
            local = local_windows(bounds)
            np.testing.assert_allclose(asking.span, [local[name] for name in names], rtol=3e-14)
            assert asking.widest == asking.span.max()


def test_a_sum_of_windows_reaches_all_that_the_windows_allow() -> None:
    """The longest chains of doubles that hold each window as computed end within the reach of the two ends."""
    rng = np.random.default_rng(2)
    beyond = 0
    for _ in range(3000):
        names = "abcdefgh"[: int(rng.integers(3, 9))]
        windows = {pair: float(rng.integers(1, 100)) / 10 for pair in itertools.pairwise(names)}
        time = begin = float(rng.integers(0, 100)) / 10
        for window in windows.values():
            here = time + window
            while abs(math.nextafter(here, math.inf) - time) <= window:
                here = math.nextafter(here, math.inf)
            while not abs(here - time) <= window:
                here = math.nextafter(here, -math.inf)
            time = here
        asking = asked(windows, names)
        assert time - begin <= asking.reach[0, -1]
        beyond += time - begin > closure(asking.given)[0, -1]
    assert beyond > 5, "which the sums themselves would not do"


def test_what_needs_a_test_of_time() -> None:
    """Equal windows never need a second test, others only where the reach is more than they allow."""
    uniform, path = dict.fromkeys(itertools.combinations("abc", 2), 5.0), {("a", "b"): 5.0, ("b", "c"): 5.0}
    for policy in POLICIES:
        assert not asked(uniform, "abc", policy).refined
        assert asked(path, "abc", policy).refined == (policy != "exact")
        assert asked(uniform, "abc", policy).reach[0, 2] == 5.0
        for windows in (uniform, path):
            assert asked(windows, "abc", policy).timed, "backward"
        assert not asked(uniform, "abc", policy, forward=True).timed
        assert asked(path, "abc", policy, forward=True).timed == (policy == "exact")


# ---------------------------------------------------------------------------------------------------------------------
# Lists and tables


def test_rows_of_keys_come_and_go() -> None:
    """Against a dict, with keys that collide: each key has one row, and rows are used again."""
    rng = np.random.default_rng(3)
    state = empty_state(2, 1, 40)
    rows: dict[int, int] = {}
    pool = np.concatenate([np.arange(40) * 2**40, np.arange(40), [-1, -(2**63), 2**63 - 1]])
    for _ in range(4000):
        key = int(rng.choice(pool))
        if key in rows and rng.random() < 0.6:
            state.use[rows[key]] = 0
            _forget_unused(state, rows.pop(key))
        elif key in rows or len(rows) < 40:
            row = _row_of(state, key)
            assert rows.get(key, row) == row
            rows[key] = row
            state.use[row] = 1
            _forget_unused(state, row)
        assert state.keys == len(rows)
        assert sorted(stored_keys(state).tolist()) == sorted(rows)
        assert len(set(rows.values())) == len(rows)
        assert min(rows.values(), default=FIRST_KEY) >= FIRST_KEY
    assert {key: _row_of(state, key) for key in rows} == rows


def filled(time: list[float], key: list[int], pending: int = 0) -> tuple[State, Content]:
    state = empty_state(2, len(time), len(time))
    given = Content(np.array(time, float), np.array(key), np.arange(len(time)) + 100, pending)
    put_back(asked({("a", "b"): 5.0}, "ab"), state, 1, given)
    return state, given


def test_what_is_put_back_is_there_again() -> None:
    state, given = filled([1, 2, 2, 4, 7], [5, 6, 5, 5, 6], pending=2)
    for column, expected in zip(content(state, 1), given, strict=True):
        assert np.array_equal(column, expected)
    assert (state.length[STORED, 1], state.length[PENDING, 1]) == (3, 2)
    assert state.stored.tolist() == [0, 5]
    assert state.keys == 2
    assert state.room == 0, "for tuples"
    assert len(content(state, 0).time) == 0


def test_lists_are_in_the_order_of_time() -> None:
    """Whatever comes in, equal times in the order of arrival."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        time, key = rng.integers(0, 9, 30).astype(float), rng.integers(0, 3, 30)
        state, _ = filled(time.tolist(), key.tolist())
        order = np.argsort(time, kind="stable")
        found = content(state, 1)
        assert (found.label - 100).tolist() == order.tolist()
        assert found.time.tolist() == time[order].tolist()
        assert found.key.tolist() == key[order].tolist()
        for each in range(3):
            row = _row_of(state, each)
            assert state.length[row, 1] == (key == each).sum()


def test_room_is_for_any_keys() -> None:
    assert empty_state(3, 10, 4).room == 4
    assert empty_state(3, 4, 10).room == 4
    assert empty_state(3, 10, 10).nbytes < empty_state(3, 1000, 10).nbytes


def test_counters_add_up() -> None:
    one, other = WindowCounters(("windows",), ("windows",)), WindowCounters(("windows",), ("windows",))
    one.comparisons, one.candidates, other.comparisons = 3, 2, 4
    one.add(other)
    assert one.flat() == {
        "candidates": 2, "evaluated": 0, "kept": 0, "rejected:windows": 0, "rejected:beaten": 0, "accepted:windows": 0,
        "comparisons": 7,
    }  # fmt: skip
