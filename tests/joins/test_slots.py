"""Slots of time: rows that are within the window share a key, once; without an engine."""

from __future__ import annotations

import numpy as np
import pytest

from haply.joins.cells.rows import CellRows
from haply.joins.slots import in_slots, sql_slot_length
from haply.models import Certain


@pytest.mark.parametrize(
    ("window", "unit", "origin"),
    [(3.0, 1.0, 0.0), (0.0, 1.0, -20.0), (0.3, 0.1, 0.0), (1e6, 1e5, 1.7e15), (0.5, 1e-3, 1e13), (2.0, 0.0, 0.0)],
)
@pytest.mark.parametrize(("keys", "share"), [(0, 0.0), (3, 0.0), (0, 0.3), (2, 0.8)])
def test_pairs_near_in_time_meet_once(window, unit, origin, keys, share):
    """Whatever the unit of time is, and however far its beginning; rows with other keys never meet, and rows that both
    are away do not meet here."""
    rng = np.random.default_rng(round(10 * window) + keys)
    for count, other in ((60, 50), (1, 40), (30, 1)):
        sides = []
        for n in (count, other):
            times = origin + unit * rng.integers(-100, 100, n)
            groups = rng.integers(0, keys, n) if keys else None
            sides.append(CellRows(Certain(np.arange(n)), np.arange(n), np.arange(n), np.ones(n, bool), groups, times))
        away = [rng.random(n) < share for n in (count, other)]
        copies, codes = in_slots(sides[0], sides[1], window, (away[0], away[1]))
        mine, theirs = (np.zeros(n) if key is None else key for n, key in zip((count, len(copies)), codes, strict=True))
        met = [(int(i), int(copies[j])) for i, j in np.argwhere(mine[:, None] == theirs)]
        assert len(met) == len(set(met))
        here = ~(away[0][:, None] & away[1])
        assert all(here[pair] for pair in met)
        near = (np.abs(sides[0].times[:, None] - sides[1].times) <= window) & here
        if keys:
            alike = sides[0].groups[:, None] == sides[1].groups
            near &= alike
            assert all(alike[pair] for pair in met)
        assert set(met) >= set(map(tuple, np.argwhere(near).tolist()))
        if count == 60 and unit == 1.0:
            assert len(met) < 0.2 * count * other


@pytest.mark.parametrize("window", [0.0, 1e-9, 0.3, 7.0, 2e4, 3e9])
@pytest.mark.parametrize("origin", [0.0, -2.5, 1.7e9, 1.7e15, -1e25])
def test_slots_in_sql_are_neighbours_where_times_are_near(window, origin):
    """As SQL computes them: times that are just a window apart are in one slot or in neighbours."""
    rng = np.random.default_rng(20)
    times = origin + window * rng.choice([0.0, 0.1, 0.5, 1.0, 2.0], 200) * rng.integers(-3, 4, 200)
    slots = np.floor(times / sql_slot_length(window))
    near = np.abs(times[:, None] - times) <= window
    assert (np.abs(slots[:, None] - slots) <= 1.0)[near].all()
    if window and abs(origin) < 10.0:
        assert len(np.unique(slots)) > 3
