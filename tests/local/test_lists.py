"""Columns of lists as users' tables hold them: slices, chunks, and null lists that have numbers behind them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import haply as hp

LISTS = pa.ListArray.from_arrays(
    pa.array([0, 2, 4, 6, 8], pa.int32()), pa.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
    mask=pa.array([False, True, False, False]),
)  # fmt: skip
CUT = [LISTS, LISTS[1:], LISTS[2:], LISTS[1:3], pa.chunked_array([LISTS[2:], LISTS[:2]]), LISTS[:0]]


@pytest.mark.parametrize("cut", range(len(CUT)))
@pytest.mark.parametrize(
    "condition", ["samples(a) > 1.5", "distance(gaussian_nd(a, array(1.0, 2.0)), array(3, 4)) < 2"]
)
def test_lists_are_read_wherever_they_lie(condition, cut):
    column = CUT[cut]
    ids = list(range(len(column)))
    given = hp.where(pa.table({"id": ids, "a": column}), condition, 1e-9)
    compact = pa.array(column.to_pylist(), pa.list_(pa.float64()))
    wanted = hp.where(pa.table({"id": ids, "a": compact}), condition, 1e-9)
    assert given.select(["id", "probability"]).to_pylist() == wanted.select(["id", "probability"]).to_pylist()
    known = [i for i, each in enumerate(column.to_pylist()) if each is not None]
    assert given["id"].to_pylist() == known


def test_a_list_column_needs_no_query(monkeypatch):
    """A selection by a column of lists asks nothing of DuckDB, also when it is only planned."""
    monkeypatch.setattr("haply.engines.local.sql.run", lambda query, **tables: pytest.fail(query))
    table = pa.table({"id": [1], "a": [[1.0, 2.0]]})
    plan = hp.plan_where(table, "gaussian_nd(a, array(1.0, 2.0))[0] > 1", 0.1)
    assert "gaussian_nd" in plan.explain()
