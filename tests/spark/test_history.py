"""History on Spark: through its own operations, files, and to the local engine."""

from __future__ import annotations

import pytest

import haply as hp

JOINT = [0.3413447460685429, 0.3413447460685429]


@pytest.fixture
def first(spark):
    table = spark.createDataFrame([(1, 0.0), (2, 1.0)], "id long, m double")
    return hp.where(table, "gaussian(m, 1) > 0", 0.1)


def chances(found):
    return [row["probability"] for row in found.orderBy("id").collect()]


def test_operations_of_spark_keep_history(spark, first, tmp_path):
    assert chances(hp.where(first, "gaussian(m, 1) < 1", 0.1)) == pytest.approx(JOINT)
    other = first.withColumnRenamed("m", "mean").where("id > 0").select("id", "mean")
    assert chances(hp.where(other, "gaussian(mean, 1) < 1", 0.1)) == pytest.approx(JOINT)
    path = str(tmp_path / "first.parquet")
    first.write.parquet(path)
    assert chances(hp.where(spark.read.parquet(path), "gaussian(m, 1) < 1", 0.1)) == pytest.approx(JOINT)
    local = hp.where(path, "gaussian(m, 1) < 1", 0.1)  # the local engine reads what Spark has written
    assert local["probability"].to_pylist() == pytest.approx(JOINT)
    plan = hp.plan_where(first.select("id", "probability"), "gaussian(id, 1) < 1", 0.1, probability="none")
    assert "history       cut: columns that 1 earlier condition used are missing" in plan.explain()


def test_rows_with_equal_keys_meet(spark, first):
    table = hp.table(spark.createDataFrame([(1, 0.0), (2, 1.0)], "id long, m double"), key="id")
    light, heavy = (hp.where(table, f"gaussian(m, 1) {sign} 0.5", 0.1, probability="none") for sign in "<>")
    found = hp.join(light, heavy, on="gaussian(left.m, 1) < gaussian(right.m, 1)", threshold=0.01)
    rows = {(row["id_left"], row["id_right"]): row["probability"] for row in found.collect()}
    assert rows == pytest.approx({(1, 2): 0.691462461274013**2, (2, 1): 0.308537538725987**2})
    query = "SELECT a.id AS i, b.id AS j, PROB() AS p FROM t KEY id a, t KEY id b WHERE {} WITH THRESHOLD 0.9"
    near = "abs(gaussian(a.m, 1) - gaussian(b.m, 1)) <= 0.5"
    assert {(r["i"], r["j"], r["p"]) for r in hp.sql(query.format(near), t=table).collect()} == {
        (1, 1, 1.0),
        (2, 2, 1.0),
    }
