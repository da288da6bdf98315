"""The split of rows into usable, null, hopeless and bad ones, against a row-by-row account; without an engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from haply.errors import HaplyError
from haply.joins.cells.rows import BAD, FITS, NULL, TIME, USABLE, RowSpec, good_rows, row_states, usable_rows
from haply.models import Certain
from haply.pruning.candidates.intervals import Intervals

GAUSSIAN = pa.struct([("mean", pa.float64()), ("sd", pa.float64())])
KINDS = ("good", "wide", "null", "half null", "negative", "nan")
"""Rows of a Gaussian column: good ones, one too wide for any partner, nulls, and two that are no distribution."""


def value_of(kind, number):
    mean = float(number)
    return {
        "good": {"mean": mean, "sd": 1.0}, "wide": {"mean": mean, "sd": 99.0}, "null": None,
        "half null": {"mean": mean, "sd": None}, "negative": {"mean": mean, "sd": -1.0},
        "nan": {"mean": float("nan"), "sd": 1.0},
    }[kind]  # fmt: skip


def state_of(kind):
    return NULL if "null" in kind else USABLE if kind in ("good", "wide") else BAD


def place(model):
    if isinstance(model, Certain):
        return Intervals(model.mean(), model.mean(), np.zeros(len(model), bool))
    return Intervals(model.mean() - model.sd, model.mean() + model.sd, model.sd > 10.0)


def random_table(rng, count):
    kinds = [rng.choice(KINDS, count, p=[0.6, 0.1, 0.1, 0.05, 0.1, 0.05]).tolist() for _ in range(2)]
    columns = {
        name: pa.array([value_of(kind, k) for k, kind in enumerate(own)], GAUSSIAN)
        for name, own in zip(("x", "y"), kinds, strict=True)
    }
    fits = rng.random(count) < 0.8
    numbers = pa.array(np.arange(count))
    table = pa.table({**columns, "id": numbers, TIME: np.arange(count) * 0.5, FITS: pa.array(fits)})
    return table, kinds, fits


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("further", [False, True])
def test_each_row_is_one_thing(seed, further):
    rng = np.random.default_rng(seed)
    table, (xs, ys), fits = random_table(rng, int(rng.integers(0, 60)))
    spec = RowSpec("x", ("id",), (("y", "why"),) if further else (), place, "ex", None)
    states = [max(state_of(x), state_of(y)) if further else state_of(x) for x, y in zip(xs, ys, strict=True)]
    good = [k for k, state in enumerate(states) if state == USABLE and fits[k]]
    found, intervals, counts = usable_rows(table, spec, (TIME,))
    wanted = [k for k in good if xs[k] == "good"]
    assert found.column_names == ["x", "id", TIME]
    assert found["id"].to_pylist() == wanted
    assert found[TIME].to_pylist() == [k * 0.5 for k in wanted]
    assert intervals.start.tolist() == [k - 1.0 for k in wanted]
    assert not intervals.hopeless.any()
    assert counts == [len(xs), states.count(NULL), len(good) - len(wanted), states.count(BAD)]
    rows = good_rows(table, spec, ())
    assert rows.table["id"].to_pylist() == good
    assert rows.model.mean().tolist() == [float(k) for k in good]
    # what all rows of a column are, one by one
    own, read = row_states(table["x"], None)
    assert own.tolist() == [state_of(kind) for kind in xs]
    assert (len(read.rows), len(read.bad_rows)) == (own.tolist().count(USABLE), own.tolist().count(BAD))


def test_a_bad_row_is_an_error_with_its_column_or_left_out():
    table = pa.table({"x": pa.array([value_of("good", 0)], GAUSSIAN), "y": pa.array([value_of("nan", 1)], GAUSSIAN)})
    spec = RowSpec("x", (), (("y", "why"),), place, "ex", "Column '{}' of the left table")
    with pytest.raises(HaplyError, match=r"(?s)Column 'why' of the left table has a row that is not a distribution"):
        usable_rows(table, spec, ())
    with pytest.raises(HaplyError, match="Column 'ex' of the left table"):
        usable_rows(table.rename_columns(["z", "x"]), RowSpec("x", (), (), place, "ex", spec.raise_as), ())


def test_rows_that_are_compared_by_their_certain_times():
    """A time that is missing is not counted as null: that is told by ``FITS``, as for all certain conditions."""
    times = pa.array([1.0, None, float("nan"), 4.0, float("inf")])
    fits = pa.array([True, False, False, True, False])
    table = pa.table({TIME: times, "y": pa.array([value_of(kind, 1) for kind in KINDS[1:]], GAUSSIAN), FITS: fits})
    found, intervals, counts = usable_rows(table, RowSpec(TIME, ("y",), (), place, "t", "Column '{}'"), (TIME,))
    assert found[TIME].to_pylist() == intervals.start.tolist() == [1.0, 4.0]
    assert counts == [5, 0, 0, 0]
    _, _, counts = usable_rows(table, RowSpec(TIME, (), (("y", "y"),), place, "t", None), ())
    assert counts == [5, 2, 0, 2]
