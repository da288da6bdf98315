"""``join_windows``: all combinations of whole streams, against brute force and against the operator."""

from __future__ import annotations

import numpy as np
import pytest

from haply.errors import HaplyError
from haply.joins import WindowJoin, join_windows, uniform_windows
from haply.pruning.candidates import combinations as kernels
from oracle_time import random_streams, random_windows, window_combinations

SHAPES = ("path", "graph", "clique", "uniform")


def batches(streams):
    return {
        name: {
            "id": np.array([row[0] for row in rows]),
            "time": np.array([row[1] for row in rows], dtype=np.float64),
            "key": np.array([row[2] for row in rows], dtype=np.int64),
        }
        for name, rows in streams.items()
    }


def found_in(result, names):
    return sorted(zip(*(result.ids[name].tolist() for name in names), strict=True))


def test_every_combination_once():
    rng = np.random.default_rng(1)
    total = 0
    for case in range(400):
        names = [*"abcde"[: int(rng.choice([2, 3, 3, 4, 5]))]]
        windows = random_windows(rng, names, SHAPES[case % len(SHAPES)])
        streams = random_streams(rng, names, most=9, until=14, keys=int(rng.integers(1, 4)))
        for rows in streams.values():
            rng.shuffle(rows)
        expected = sorted(window_combinations(streams, windows))
        assert found_in(join_windows(windows, batches(streams)), names) == expected, windows
        total += len(expected)
    assert total > 600


def test_long_slices_and_more_than_guessed(monkeypatch):
    """Many tuples in reach of one, which are searched for; and a guess of the output that is too small."""
    monkeypatch.setattr(kernels, "_room_for", lambda counted, every: 100)
    rng = np.random.default_rng(2)
    names = ("a", "b", "c")
    for windows in ({("a", "b"): 30.0, ("b", "c"): 2.5}, uniform_windows(names, 9.0)):
        streams = {
            name: [
                (k, float(time), int(key))
                for k, (time, key) in enumerate(zip(rng.integers(0, 60, 70), rng.integers(0, 2, 70), strict=True))
            ]
            for name in names
        }
        expected = sorted(window_combinations(streams, windows))
        assert len(expected) > 2000
        assert found_in(join_windows(windows, batches(streams)), names) == expected


def test_many_keys_of_which_some_are_counted():
    rng = np.random.default_rng(4)
    names = ("a", "b", "c")
    whole = {
        name: {"id": np.arange(3000), "time": rng.uniform(0, 300, 3000), "key": rng.integers(0, 200, 3000) ** 2}
        for name in names
    }
    join = WindowJoin(uniform_windows(names, 9.0), max_delay=1e9)
    parts = [join.push(name, whole[name]) for name in names]
    expected = sorted(pair for part in parts for pair in found_in(part, names))
    assert len(expected) > 1000
    assert found_in(join_windows(uniform_windows(names, 9.0), whole), names) == expected


def test_times_that_are_no_round_numbers():
    """Differences decide, as in the operator: 0.1 + 0.7 is less than 0.8 in doubles."""
    rng = np.random.default_rng(3)
    names = ("a", "b", "c")
    windows = {("a", "b"): 0.1, ("b", "c"): 0.7}
    for _ in range(60):
        times = {name: np.round(rng.integers(0, 40, 12) * 0.1, 1) for name in names}
        whole = {
            name: {"id": np.arange(12), "time": np.sort(own), "key": np.zeros(12, np.int64)}
            for name, own in times.items()
        }
        join = WindowJoin(windows)
        parts = [join.push(name, whole[name]) for name in names]
        expected = sorted(pair for part in parts for pair in found_in(part, names))
        assert found_in(join_windows(windows, whole), names) == expected


def test_text_keys_and_ids_no_key_and_nothing():
    streams = {
        "a": {"id": ["x", "y"], "time": [0, 5], "key": ["k", None]},
        "b": {"id": ["z"], "time": [1], "key": ["k"]},
    }
    assert {name: ids.tolist() for name, ids in join_windows({("a", "b"): 9}, streams).ids.items()} == {
        "a": ["x"],
        "b": ["z"],
    }
    assert len(join_windows({("a", "b"): 9}, streams, key=False)) == 2
    streams["b"] = {"id": [], "time": [], "key": []}
    assert len(join_windows({("a", "b"): 9}, streams)) == 0


def test_errors():
    rows = {"id": [1], "time": [0], "key": [1]}
    for windows, streams, text in (
        ({("a", "b"): 1}, {"a": rows}, "'b'"),
        ({("a", "b"): 1}, {"a": rows, "b": rows, "c": rows}, "'c'"),
        ({("a", "b"): -1}, {"a": rows, "b": rows}, "no length of time"),
        ({("a", "b"): 1, ("c", "d"): 1}, dict.fromkeys("abcd", rows), "connect|reach"),
        ({("a", "b"): 1}, {"a": rows, "b": {"id": [1], "time": [0]}}, "key"),
    ):
        with pytest.raises(HaplyError, match=text):
            join_windows(windows, streams)
