"""Frames of every kind go in, and the same kind comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import haply as hp

SHOP = pa.table({"parcel": ["A", "B", "C"], "kg": [2.0, 2.1, 3.5], "err": [0.02, 0.02, 0.05]})
DEPOT = pa.table({"ticket": [1, 2, 3], "kg": [2.01, 2.1, 9.0], "err": [0.03, 0.01, 0.05]})
ON = "abs(gaussian(left.kg, left.err) - gaussian(right.kg, right.err)) <= 0.05"
COLUMNS = ["parcel", "kg_left", "err_left", "ticket", "kg_right", "err_right", "probability"]


class ArrowStream:
    """Something that only speaks Arrow's C interface."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested)


def rows_of(found: Any) -> list[tuple[Any, ...]]:
    if isinstance(found, pd.DataFrame):
        return [tuple(row) for row in found.itertuples(index=False)]
    if isinstance(found, pl.DataFrame):
        return found.rows()
    if isinstance(found, duckdb.DuckDBPyRelation):
        return found.fetchall()
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda table: table, pa.Table),
        (lambda table: table.to_pandas(), pd.DataFrame),
        (pl.from_arrow, pl.DataFrame),
        (lambda table: pl.from_arrow(table).lazy(), pl.DataFrame),
        (duckdb.from_arrow, duckdb.DuckDBPyRelation),
        (lambda table: table.to_batches()[0], pa.Table),
        (ArrowStream, pa.Table),
    ],
)
def test_the_kind_of_the_first_frame_comes_back(make: Any, kind: type) -> None:
    shop, depot = make(SHOP), make(DEPOT)
    found = hp.join(shop, depot, ON, 0.5)
    assert isinstance(found, kind)
    assert list(found.columns if not isinstance(found, pa.Table) else found.column_names) == COLUMNS
    assert [(row[0], row[3]) for row in rows_of(found)] == [("A", 1), ("B", 2)]
    np.testing.assert_allclose([row[-1] for row in rows_of(found)], [0.81832508869497, 0.97465268132253], rtol=1e-12)
    kept = hp.where(shop, "gaussian(kg, err) > 2.05", 0.5)
    assert isinstance(kept, kind)
    assert [row[0] for row in rows_of(kept)] == ["B", "C"]
    asked = hp.sql("SELECT parcel FROM shop WHERE GAUSSIAN(kg, err) > 2.05 WITH THRESHOLD 0.999", shop=shop)
    assert isinstance(asked, kind)
    assert rows_of(asked) == [("C",)]


def written(folder: Path, table: pa.Table, name: str) -> str:
    path = folder / name
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        table.to_pandas().to_csv(path, index=False)
    elif path.suffix == ".json":
        table.to_pandas().to_json(path, orient="records", lines=True)
    else:
        pa.feather.write_feather(table, path, compression="uncompressed")
    return str(path)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "arrow"])
def test_files_give_arrow(kind: str, tmp_path: Path) -> None:
    shop, depot = written(tmp_path, SHOP, f"shop.{kind}"), written(tmp_path, DEPOT, f"depot.{kind}")
    for left, right in ((shop, depot), (Path(shop), DEPOT)):
        found = hp.join(left, right, ON, 0.5)
        assert isinstance(found, pa.Table)
        assert [(row[0], row[3]) for row in rows_of(found)] == [("A", 1), ("B", 2)]


def test_folders_and_patterns_are_all_their_files(tmp_path: Path) -> None:
    for k in range(3):
        pa.parquet.write_table(SHOP.slice(k, 1), tmp_path / f"part-{k}.parquet")
    for path in (str(tmp_path), str(tmp_path / "part-*.parquet")):
        assert hp.where(path, "gaussian(kg, err) > 0", 0.5)["parcel"].to_pylist() == ["A", "B", "C"]


def test_only_columns_that_are_needed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = written(tmp_path, SHOP, "shop.parquet"), []
    read = pa.parquet.ParquetFile.read

    def watched(file: Any, columns: Any) -> pa.Table:
        asked.append(columns)
        return read(file, columns)

    monkeypatch.setattr("haply.engines.local.files.read.pq.ParquetFile.read", watched)
    hp.join(path, DEPOT, "abs(left.kg - uniform(right.kg, right.kg + 1)) <= 0.5", 0.1, columns=["ticket"])
    assert asked == [["kg"]]


def test_nan_is_null_in_pandas_and_bad_elsewhere() -> None:
    frame = pd.DataFrame({"id": [1, 2], "kg": [1.0, np.nan], "err": [0.1, 0.1]})
    assert hp.where(frame, "gaussian(kg, err) > 0", 0.5)["id"].tolist() == [1]
    table = pa.table({"id": [1, 2], "kg": pa.array([1.0, np.nan]), "err": [0.1, 0.1]})
    with pytest.raises(hp.HaplyError, match=r"has a row that is not a distribution.*mean"):
        hp.where(table, "gaussian(kg, err) > 0", 0.5)
    assert hp.where(table, "gaussian(kg, err) > 0", 0.5, invalid="drop")["id"].to_pylist() == [1]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    for value, text in (
        (3, "The left table is of type int. Expected a frame of pandas, Polars"),
        (str(tmp_path / "none.parquet"), "The left table: there is no file '.*none.parquet'"),
        (written(tmp_path, SHOP, "shop.csv").replace("shop.csv", ""), ""),
    ):
        if text:
            with pytest.raises(hp.HaplyError, match=text):
                hp.join(value, DEPOT, ON, 0.5)
    (tmp_path / "shop.txt").write_text("x")
    with pytest.raises(hp.HaplyError, match=r"the kind of '.*shop.txt' is not known"):
        hp.join(tmp_path / "shop.txt", DEPOT, ON, 0.5)
    with pytest.raises(hp.HaplyError, match=r"The table 'a' is of type int.*the arguments besides tables are"):
        hp.sql("SELECT * FROM a", a=1)


def test_spark_beside_a_local_table_is_refused(spark: Any) -> None:
    frame = spark.range(1)
    text = r"mixes a Spark DataFrame with a table of this process.*the right table on Spark.*createDataFrame"
    with pytest.raises(hp.HaplyError, match=text):
        hp.join(SHOP, frame, ON, 0.5)
    with pytest.raises(hp.HaplyError, match=r"'b' on Spark, 'a' not"):
        hp.sql("SELECT * FROM a, b", a=SHOP, b=frame)


def test_bad_rows_are_told() -> None:
    table = pa.table({"id": [1, 2, 3], "x": pa.array([{"mean": 1.0, "sd": 0.1}, {"mean": 1.0, "sd": -0.1}, None])})
    found = hp.check(table, "X")
    assert found.select(["id", "reason"]).to_pylist() == [{"id": 2, "reason": "sd < 0"}]
    assert isinstance(hp.check(table.to_pandas(), "x"), pd.DataFrame)
    with pytest.raises(hp.HaplyError, match=r"Column 'name' holds no uncertain values.*Found string"):
        hp.check(pa.table({"name": ["a"]}), "name")


def test_categories_are_keys_like_others() -> None:
    left = pd.DataFrame({"id": [1, 2], "k": pd.Categorical(["a", "b"]), "x": [1.0, 1.0]})
    right = pd.DataFrame({"id": [1, 2], "k": pd.Categorical(["b", "c"]), "x": [1.0, 1.0]})
    found = hp.join(left, right, "abs(gaussian(left.x, 0.1) - right.x) <= 1 AND left.k = right.k", 0.5)
    assert found[["id_left", "id_right"]].to_numpy().tolist() == [[2, 1]]
