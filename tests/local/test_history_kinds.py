"""History in tables of other libraries and in files: what they keep, and what they cannot."""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import haply as hp

TABLE = pa.table({"id": [1, 2], "m": [0.0, 1.0]})
JOINT = [0.3413447460685429, 0.3413447460685429]
"""P(0 < x < 1) for both rows."""
ALONE = [0.841344746068543, 0.5]
"""P(x < 1)."""
KINDS = {
    "arrow": lambda: TABLE,
    "pandas": lambda: TABLE.to_pandas(),
    "polars": lambda: pl.from_arrow(TABLE),
    "duckdb": lambda: duckdb.from_arrow(TABLE),
}


def chances(found):
    if isinstance(found, pd.DataFrame):
        return found["probability"].tolist()
    table = found.to_arrow_table() if type(found).__module__.startswith(("duckdb", "_duckdb")) else found
    return list(pa.table(table)["probability"].to_pylist())


def again(frame):
    return chances(hp.where(frame, "gaussian(m, 1) < 1", 0.1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_asked_again(kind):
    first = hp.where(KINDS[kind](), "gaussian(m, 1) > 0", 0.1)
    assert type(first) is type(KINDS[kind]())
    assert again(first) == pytest.approx(JOINT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_remembered(kind):
    table = hp.table(KINDS[kind](), key="id")
    assert type(table) is type(KINDS[kind]())
    found = hp.join(table, table, on="abs(gaussian(left.m, 1) - gaussian(right.m, 1)) <= 0.5", threshold=0.9)
    assert chances(found) == [1.0, 1.0]


def test_a_key_given_twice_is_the_same_key():
    one, other = hp.table(TABLE, key="id"), hp.table(TABLE, key="id")
    near = "abs(gaussian(left.m, 1) - gaussian(right.m, 1)) <= 0.5"
    assert chances(hp.join(one, other, on=near, threshold=0.9)) == [1.0, 1.0]
    copy = hp.table(pa.table(TABLE.to_pydict()), key="id")
    assert chances(hp.join(one, copy, on=near, threshold=0.9)) == []


def test_columns_under_other_names_are_the_same():
    first = hp.where(TABLE, "gaussian(m, 1) > 0", 0.1)
    renamed = first.rename_columns(["number", "mean", "p"])
    assert chances(hp.where(renamed, "gaussian(mean, 1) < 1", 0.1)) == pytest.approx(JOINT)
    chosen = first.select(["m"]).slice(0, 1)
    assert again(chosen) == pytest.approx(JOINT[:1])


def test_a_copy_of_a_column_is_the_same_variable():
    first = hp.where(TABLE, "gaussian(m, 1) > 0", 0.1)
    twice = first.append_column(first.schema.field("m").with_name("n"), first["m"])
    found = hp.where(twice, "gaussian(n, 1) < 1", 0.1)
    assert chances(found) == pytest.approx(JOINT)


def test_a_column_that_was_replaced_is_another():
    frame = hp.where(TABLE.to_pandas(), "gaussian(m, 1) > 0", 0.1)
    frame["m"] = [0.0, 1.0]
    plan = hp.plan_where(frame, "gaussian(m, 1) < 1", 0.1, probability="none")
    assert "cut: columns that 1 earlier condition used are missing" in plan.explain()
    table = hp.where(TABLE, "gaussian(m, 1) > 0", 0.1)
    other = table.set_column(1, "m", pa.array([0.0, 1.0])).drop_columns(["probability"])
    assert again(other) == pytest.approx(ALONE)


def test_parquet_keeps_history(tmp_path):
    plan = hp.plan_where(TABLE, "gaussian(m, 1) > 0", 0.1)
    plan.write(str(tmp_path / "first.parquet"))
    assert again(str(tmp_path / "first.parquet")) == pytest.approx(JOINT)
    pq.write_table(plan.run(), tmp_path / "second.parquet")
    assert again(pq.read_table(tmp_path / "second.parquet")) == pytest.approx(JOINT)
    plan.write(str(tmp_path / "third.csv"))
    with pytest.raises(hp.HaplyError, match="called 'probability'"):
        again(str(tmp_path / "third.csv"))


def test_marks_of_another_version_say_that_history_is_cut():
    field = pa.field("m", pa.float64(), metadata={"haply": '{"id": "h1", "unheard": 3}'})
    table = pa.Table.from_arrays([pa.array([0.0])], schema=pa.schema([field]))
    plan = hp.plan_where(table, "gaussian(m, 1) < 1", 0.1)
    assert "cut: it was made by another version of haply" in plan.explain()
    assert plan.run()["probability"].to_pylist() == pytest.approx([0.841344746068543])


def test_streams_beside_a_table_use_its_history():
    """The plan of one batch is that of two tables."""
    first = hp.where(TABLE, "gaussian(m, 1) > 0", 0.1)
    events = pa.table({"t": [0.5]})
    found = hp.join(events, first, on="gaussian(right.m, 1) < left.t", threshold=0.01)
    wanted = {1: 0.1914624612740131, 2: 0.14988228479452986}
    assert {row["id"]: row["probability"] for row in found.to_pylist()} == pytest.approx(wanted)
