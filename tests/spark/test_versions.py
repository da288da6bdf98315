"""A short job with other versions of PySpark, in environments that ``HAPLY_TEST_PYTHONS`` names.

``make test-long HAPLY_TEST_PYTHONS="/path/of/one/bin/python /path/of/another/bin/python"``: each is an interpreter that
has haply's packages with another PySpark; haply itself is taken from this repository.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.versions import TextFunction, arrow_schema

ROOT = Path(__file__).parents[2]
PYTHONS = os.environ.get("HAPLY_TEST_PYTHONS", "").split()


@pytest.mark.long
@pytest.mark.skipif(not PYTHONS, reason="HAPLY_TEST_PYTHONS names no interpreters with other versions of PySpark")
@pytest.mark.parametrize("python", PYTHONS)
def test_a_short_job_is_right(python: str, tmp_path: Path) -> None:
    job = [python, str(ROOT / "tests" / "version_job.py"), str(tmp_path)]
    there = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(job, capture_output=True, text=True, timeout=1800, env=there)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    assert "WRONG" not in ended.stdout


def test_times_are_in_utc_for_arrow():
    schema = T.StructType([T.StructField("at", T.TimestampType()), T.StructField("x", T.DoubleType(), False)])
    assert arrow_schema(schema) == pa.schema([("at", pa.timestamp("us", "UTC")), pa.field("x", pa.float64(), False)])


def test_a_function_by_texts_loses_nothing(spark):
    """The way that PySpark 4.0 goes: nulls are no NaN, and neither types nor bytes are lost."""
    table = spark.sql(
        "SELECT * FROM VALUES (1, struct(array(1.0D, double('NaN'), null, double('-Infinity')), 7L, X'00ff')), "
        "(2, null), (3, struct(array(), null, null)) AS t(id, value)"
    )

    def same(values: pa.Array, ids: pa.Array) -> pa.Array:
        assert str(values.type) == "struct<col1: list<item: double>, col2: int64, col3: binary>", values.type
        assert ids.type == pa.int32()
        return values

    call = TextFunction(same, "col1 array<double>, col2 bigint, col3 binary").asNondeterministic()
    rows = table.select("id", "value", call(F.col("value"), "id").alias("again")).orderBy("id").collect()
    for row in rows:
        assert json.dumps(row["value"], default=repr) == json.dumps(row["again"], default=repr)
    assert rows[1]["again"] is None
