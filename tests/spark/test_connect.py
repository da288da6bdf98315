"""A handful of queries over Spark Connect (``HAPLY_TEST_CONNECT=1``), and over a classic session in any other run."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import functions as F

import haply as hp
import oracle
from join_kit import check, frame, values

BAND = "abs(left.x - right.x) <= 0.8"


def test_the_session_is_the_one_asked_for(spark):
    remote = type(spark).__module__.startswith("pyspark.sql.connect")
    assert remote == (os.environ.get("HAPLY_TEST_CONNECT") == "1")


@pytest.mark.parametrize("on", [BAND, pytest.param("left.x > right.x", marks=pytest.mark.long)])
def test_joins_and_their_funnels(spark, on):
    funnel = hp.Funnel()
    found = check(spark, values("normal", 30, 1), values("hist", 25, 2), on, 0.6, funnel=funnel)
    assert funnel.to_dict()["kept"] == len(found) > 0


@pytest.mark.long
def test_a_table_that_goes_whole_to_every_task(spark):
    assert check(spark, values("normal", 30, 3), values("uniform", 25, 4), BAND, 0.3, broadcast="right")


@pytest.mark.long
def test_a_table_with_itself(spark):
    rows = [*values("normal", 10, 20), oracle.Normal(0.0, 100.0)]
    found = check(spark, rows, rows, BAND, 0.8, same=lambda i, j: i == j, self_key="id")
    assert found[10, 10] == 1.0


def test_bad_rows_are_told(spark):
    table = spark.createDataFrame([(1, (0.0, -1.0))], "id long, x struct<mean:double,sd:double>")
    with pytest.raises(Exception, match="Column 'x' of the left table has a row that is not a distribution"):
        hp.join(table, frame(spark, values("normal", 3, 5)), BAND, 0.5).collect()


def test_selections_and_statements(spark):
    table = frame(spark, values("normal", 30, 6)).withColumn("k", F.col("id") % 2)
    kept = {row["id"]: row["probability"] for row in hp.where(table, "x > 0 AND k = 1", 0.3).collect()}
    asked = hp.sql("SELECT id, PROB() AS p FROM t WHERE x > 0 AND k = 1 WITH THRESHOLD 0.3", t=table).collect()
    assert {row["id"]: row["p"] for row in asked} == kept != {}
