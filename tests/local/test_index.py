"""Indexed tables without Spark: the same pairs as without an index, few pages read, on either engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import haply as hp


def readings(rows: int, seed: int, spread: float = 1000.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    mean, sd = rng.uniform(0, spread, rows), rng.uniform(0.05, 0.5, rows)
    unknown = pa.array(rng.random(rows) < 0.03)
    values = pa.StructArray.from_arrays([pa.array(mean), pa.array(sd)], ["mean", "sd"], mask=unknown)
    return pa.table({"id": np.arange(rows), "k": rng.integers(0, 3, rows), "x": values})


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ("id_left", "id_right", "probability")) for row in table.to_pylist())


@pytest.mark.parametrize("indexed", ["left", "right"])
@pytest.mark.parametrize("on", ["", " AND left.k = right.k AND left.id <> 7", " AND right.k > 0"])
def test_the_same_pairs(on: str, indexed: str, tmp_path: Path) -> None:
    left, right = readings(3000, 1), readings(200, 2, 300.0)
    condition = "abs(left.x - right.x) <= 0.4" + on
    wanted = rows_of(hp.join(left, right, condition, 0.3))
    assert wanted
    tables = {"left": left, "right": right}
    hp.build_index(tables[indexed], "x", str(tmp_path / "i"), page_rows=64)
    tables[indexed] = hp.read_index(str(tmp_path / "i"), engine="local")
    funnel = hp.Funnel()
    plan = hp.plan_join(tables["left"], tables["right"], condition, 0.3, funnel=funnel)
    assert "index: pages that no row" in plan.explain(verbose=True)
    found = rows_of(plan.run())
    assert [pair[:2] for pair in found] == [pair[:2] for pair in wanted]
    np.testing.assert_allclose([pair[2] for pair in found], [pair[2] for pair in wanted], rtol=0, atol=1e-12)
    told = funnel.to_dict()
    assert told["kept"] == len(wanted)
    if indexed == "left":
        assert 0 < told["pages_read"] < told["pages_total"] == 47


def test_a_plain_scan_has_all_rows_and_checks_them(tmp_path: Path) -> None:
    table = readings(500, 3)
    path = tmp_path / "i"
    hp.build_index(table, "x", str(path), page_rows=64)
    hp.build_index(table, "x", str(path), page_rows=64, mode="append")
    indexed = hp.read_index(str(path), engine="local")
    assert sorted(pa.table(indexed)["id"].to_pylist()) == sorted(2 * table["id"].to_pylist())
    assert hp.where(indexed, "x > 999", 0.5).num_rows == 2 * hp.where(table, "x > 999", 0.5).num_rows
    (part, *_) = sorted(path.glob("part-*.parquet"))
    data = bytearray(part.read_bytes())
    data[200] ^= 0xFF
    part.write_bytes(bytes(data))
    with pytest.raises(hp.HaplyError, match="was changed"):
        hp.where(hp.read_index(str(path), engine="local"), "x > 1", 0.5)


def test_what_cannot_be_indexed(tmp_path: Path) -> None:
    table = readings(5, 1)
    with pytest.raises(hp.HaplyError, match=r"There is no choice of mode 'replace'"):
        hp.build_index(table, "x", str(tmp_path / "i"), mode="replace")  # type: ignore[arg-type]
    with pytest.raises(hp.HaplyError, match=r"Column 'name' cannot be indexed.*string"):
        hp.build_index(pa.table({"name": ["a"]}), "name", str(tmp_path / "i"))
    bad = pa.table({"x": pa.array([{"mean": 1.0, "sd": -1.0}])})
    with pytest.raises(hp.HaplyError, match="has a row that is not a distribution"):
        hp.build_index(bad, "x", str(tmp_path / "i"))


def test_either_engine_reads_what_the_other_wrote(spark: Any, tmp_path: Path) -> None:
    table, few = readings(600, 4), readings(50, 5, 200.0)
    on = "abs(left.x - right.x) <= 0.4"
    wanted = rows_of(hp.join(few, table, on, 0.3))
    hp.build_index(table, "x", str(tmp_path / "here"), page_rows=64)
    hp.build_index(spark.createDataFrame(table), "x", str(tmp_path / "there"), page_rows=64)
    there = hp.join(spark.createDataFrame(few), hp.read_index(str(tmp_path / "here"), spark), on, 0.3).toArrow()
    here = hp.join(few, hp.read_index(str(tmp_path / "there"), engine="local"), on, 0.3)
    for found in (rows_of(there), rows_of(here)):
        assert [pair[:2] for pair in found] == [pair[:2] for pair in wanted]
