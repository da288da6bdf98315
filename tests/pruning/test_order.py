"""The order of whole numbers by their digits, and of values by buckets, is that of NumPy's sorts."""

from __future__ import annotations

import numpy as np
import pytest

from haply.numerics.jit import read_only
from haply.numerics.order import _by_buckets, ordered, ordered_rows


@pytest.mark.parametrize("size", [0, 1, 100, 5_000, 70_000])
@pytest.mark.parametrize("bits", [0, 1, 10, 11, 12, 22, 33, 44, 45, 62])
def test_as_the_stable_sort(size, bits):
    random = np.random.default_rng(size + bits)
    for low in (0, -(1 << 40), 12_345):
        keys = low + random.integers(0, 1 << bits, size)
        before = keys.copy()
        order, found = ordered(keys)
        assert np.array_equal(order, np.argsort(keys, kind="stable"))
        assert np.array_equal(found, np.sort(keys))
        assert np.array_equal(keys, before)


@pytest.mark.parametrize("size", [4_096, 30_000])
@pytest.mark.parametrize(
    ("kind", "in_buckets"),
    [
        ("even", True), ("normal", True), ("tiny", True), ("huge", True), ("sorted", True),
        ("equal", False), ("one far away", False), ("few values", False), ("infinite", False), ("not a number", False),
        ("wider than a double", False), ("a step of a double apart", False),
    ],
)  # fmt: skip
def test_values_in_the_order_of_argsort(size, kind, in_buckets):
    random = np.random.default_rng(size)
    values = random.uniform(-5.0, 3.0, size)
    values = {
        "normal": random.normal(0.0, 1.0, size),
        "tiny": values * 1e-300,
        "huge": values * 1e305,
        "sorted": np.sort(values),
        "equal": np.full(size, 2.5),
        "one far away": np.append(values[1:], 1e9),
        "few values": np.round(values),
        "infinite": np.append(values[1:], -np.inf),
        "not a number": np.append(values[1:], np.nan),
        "wider than a double": np.append(values[2:], [-1.7e308, 1.7e308]),
        "a step of a double apart": np.append(np.full(size - 1, 5e-324), 0.0),
    }.get(kind, values)
    before = values.copy()
    columns = random.random(size), np.arange(float(size)), values
    order, found, others = ordered_rows(values, np.arange(size), columns)
    assert np.array_equal(np.sort(order), np.arange(size))
    assert np.array_equal(values[order], np.sort(values), equal_nan=True)
    assert np.array_equal(found, np.append(values[order], np.inf), equal_nan=True)
    for column, other in zip(columns, others, strict=True):
        assert np.array_equal(other, column[order], equal_nan=True)
    some = np.flatnonzero(random.random(size) < 0.99)
    order, found, (other,) = ordered_rows(values[some], some, columns[:1])
    assert np.array_equal(np.sort(order), some)
    assert np.array_equal(found[:-1], np.sort(values[some]), equal_nan=True)
    assert np.array_equal(found[:-1], values[order], equal_nan=True)
    assert np.array_equal(other, columns[0][order])
    assert np.array_equal(values, before, equal_nan=True)
    room = np.empty((size, 3)), np.empty(size, np.int64), np.empty((2, size + 1))
    assert _by_buckets(values, np.arange(size), (read_only(values),), *room) == in_buckets
