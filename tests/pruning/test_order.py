"""The order of whole numbers by their digits is that of NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from haply.numerics.order import ordered


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
