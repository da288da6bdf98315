"""Sketches of where rows are, which cells are laid out from; without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from haply.engines.spark.exchange.parcels import Sketch, profiles_of
from haply.engines.spark.exchange.stack import SIDE
from haply.joins.cells.rows import FITS, TIME, RowSpec, in_window
from haply.models import Certain
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cells import QUANTILES


def placed(model):
    values = model.mean()
    return Intervals(values - 1.0, values + 1.0, values > 1e6)


def sketched(tasks):
    """What tasks see: each has values, and which side each is of."""
    side = RowSpec("x", (), (), placed, "x", None)
    found = []
    for values, sides in tasks:
        columns = {"x": pa.array(values), FITS: pa.array(np.ones(len(values), bool)), SIDE: pa.array(sides, pa.int8())}
        batches = pa.table(columns).to_batches(max_chunksize=1000)
        found += [row for batch in Sketch((side, side), {}, True)(iter(batches)) for row in batch.to_pylist()]
    return found


def test_few_rows_are_known_exactly():
    found = sketched([([3.0, None, 1.0, 1e7], [0, 0, 0, 0]), ([2.0, 50.0], [0, 1]), ([], [])])
    left, right, _ = profiles_of(found, 1.0)
    assert (left.rows, right.rows) == (3, 1)
    assert sorted(set(left.quantiles)) == [0.0, 1.0, 2.0]
    assert set(right.quantiles) == {49.0}
    assert left.width == right.width == 2.0
    nothing = profiles_of([], 0.5)[:2]
    assert [(one.rows, len(one.quantiles), one.width) for one in nothing] == [(0, 0, 0.0)] * 2


@pytest.mark.parametrize("tasks", [1, 7])
def test_many_rows_in_few_numbers(tasks):
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.normal(size=40_000), rng.exponential(50.0, 20_000)])
    rng.shuffle(values)
    parts = np.split(values, np.sort(rng.integers(0, len(values), tasks - 1)))
    found = sketched([(part, np.zeros(len(part), np.int8)) for part in parts])
    assert max(len(row["places"]) for row in found) <= 8 * 4096
    left, _, _ = profiles_of(found, 0.25)
    assert left.rows == 4 * len(values)
    below = np.searchsorted(np.sort(values - 1.0), left.quantiles) / len(values)
    assert np.abs(below - np.arange(1, QUANTILES) / QUANTILES).max() < 1e-3


@pytest.mark.parametrize(("span", "in_time"), [(1000.0, True), (20.0, False)])
def test_cells_are_by_what_tells_rows_apart(span, in_time):
    """By times, if a row meets fewer others in its window than by its interval of length 2 among 50."""
    rng, side = np.random.default_rng(4), RowSpec("x", (), (), placed, "x", None)
    columns = {
        "x": pa.array(rng.uniform(0.0, 50.0, 2000)),
        TIME: pa.array(rng.uniform(0.0, span, 2000)),
        SIDE: pa.array(np.arange(2000) % 2, pa.int8()),
    }
    sketch = Sketch((side, side), {}, False, 4.0)
    assert sketch.columns == ["x", TIME, SIDE]
    found = [row for batch in sketch(iter(pa.table(columns).to_batches())) for row in batch.to_pylist()]
    left, right, chosen = profiles_of(found, 1.0, 4.0)
    assert chosen == in_time
    assert (left.rows, right.rows) == (1000, 1000)
    assert left.width == (4.0 if in_time else 2.0)
    assert np.ptp(left.quantiles) == pytest.approx(span if in_time else 50.0, rel=0.05)


@pytest.mark.parametrize("window", [0.0, 1e-3, 7.0, 1e9])
@pytest.mark.parametrize("origin", [0.0, -3.0, 1.7e9, 1.7e15])
def test_times_within_the_window_have_intervals_that_overlap(window, origin):
    rng = np.random.default_rng(5)
    times = np.sort(origin + window * rng.integers(-5, 6, 200) * rng.choice([1.0, 0.5, 0.1], 200))
    found = in_window(times, window)
    near = np.abs(times[:, None] - times) <= window
    assert (found.start[:, None] <= found.end)[near].all()
    assert (np.diff(found.start) >= 0.0).all()


def test_what_takes_no_part_is_not_seen():
    side = RowSpec("x", (), (("y", "y"),), placed, "x", None)
    columns = {
        "x": pa.array([1.0, 2.0, 3.0]),
        "y": Certain([1.0, 2.0, np.pi]).to_arrow(),
        FITS: pa.array([True, False, True]),
        SIDE: pa.array([0, 0, 0], pa.int8()),
    }
    sketch = Sketch((side, side), {}, True)
    assert sketch.columns == ["x", "y", FITS, SIDE]
    (row,) = [row for batch in sketch(iter(pa.table(columns).to_batches())) for row in batch.to_pylist()]
    assert row["rows"] == 2
    assert np.frombuffer(row["places"]).tolist() == [0.0, 2.0]
