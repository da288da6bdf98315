"""``hp.where`` on Spark: what is pushed down, laziness, streams. Its answers are in ``tests/both``."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import haply as hp
from haply.errors import HaplyError
from stream_kit import await_that, read_stream, running, write_file

SCHEMA = """id long, site string, c double, x struct<mean:double,sd:double>, y struct<mean:double,sd:double>,
h struct<edges:array<double>,probs:array<double>>, s struct<points:array<double>,probs:array<double>,dim:int>,
p struct<mean:array<double>,cov:array<double>>, q struct<mean:array<double>,cov:array<double>>, at array<double>"""


def table_rows(count=60, seed=1):
    """Rows of every kind of column."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(count):
        edges = np.sort(rng.uniform(-2, 2, 4)).tolist()
        spots = [(rng.uniform(-1, 1, 2).tolist(), [0.5, r, r, 0.4]) for r in rng.uniform(-0.3, 0.3, 2).tolist()]
        rows.append(
            (
                k, "ab"[k % 2], float(rng.uniform(-1, 2)), (float(rng.uniform(-2, 2)), float(rng.uniform(0, 1.5))),
                (float(rng.uniform(-2, 2)), float(rng.uniform(0, 1.5))), (edges, [0.25, 0.5, 0.25]),
                ((rng.integers(-4, 5, 4) / 4).tolist(), None, 1), *spots, rng.uniform(-1, 1, 2).tolist(),
            )
        )  # fmt: skip
    return rows


ROWS = table_rows()


@pytest.fixture(scope="module")
def table(spark):
    return spark.createDataFrame(ROWS, SCHEMA).repartition(3)


def kept(result):
    """Ids with probabilities; no row twice."""
    rows = [(row["id"], row["probability"]) for row in result.select("id", "probability").collect()]
    assert len(dict(rows)) == len(rows), "a row was doubled"
    return dict(rows)


def test_certain_conditions_are_pushed_down(spark, table, tmp_path):
    table.write.parquet(str(tmp_path / "rows"))
    stored = spark.read.parquet(str(tmp_path / "rows"))
    funnel = hp.Funnel()
    result = hp.where(stored, "x < 1 AND site = 'a' AND c > 0", 0.5, funnel=funnel)
    plan = result._jdf.queryExecution().executedPlan().toString() if hasattr(result, "_jdf") else ""
    if plan:
        assert "PushedFilters" in plan
        assert "EqualTo(site,a)" in plan
        assert "GreaterThan(c,0.0)" in plan
    ids = kept(result)
    certain = {row[0] for row in ROWS if row[1] == "a" and row[2] > 0}
    assert set(ids) <= certain
    assert funnel.to_dict()["candidates"] == len(certain), "what is certain is decided before haply looks"


@pytest.mark.filterwarnings("ignore:No column of the condition")
def test_a_second_action_does_not_count_twice(table):
    funnel = hp.Funnel()
    result = hp.where(table, "x > 0 AND h < 1", 0.3, funnel=funnel)
    count = result.count()
    first = funnel.to_dict()
    assert first["kept"] == count > 0
    result.count()
    again = funnel.to_dict()
    assert {name: again[name] for name in ("candidates", "evaluated", "kept")} == {
        name: first[name] for name in ("candidates", "evaluated", "kept")
    }


def test_streams(spark, tmp_path):
    """A stream gives a stream; its funnel follows it; what comes later is decided as what came before."""
    rows = [(row[0], {"mean": row[3][0], "sd": row[3][1]}, row[2]) for row in ROWS]
    kinds = [("id", pa.int64()), ("x", pa.struct([("mean", pa.float64()), ("sd", pa.float64())])), ("c", pa.float64())]
    folder = tmp_path / "in"
    for number, (first, last) in enumerate(pairwise((0, 20, 40, 60))):
        columns = zip(*rows[first:last], strict=True)
        table = pa.table(
            {name: pa.array(list(column), kind) for (name, kind), column in zip(kinds, columns, strict=True)}
        )
        write_file(folder, number, table)
    text, funnel = "x * x < 1 AND x > c AND id <> 7", hp.Funnel()
    stream = read_stream(spark, folder)
    result = hp.where(stream, text, 0.2, funnel=funnel)
    assert result.isStreaming
    assert result.columns == ["id", "x", "c", "probability"]
    with running(result, tmp_path, "where_stream") as query:
        query.processAllAvailable()
        found = kept(spark.table("where_stream"))
        await_that(lambda: funnel.to_dict()["kept"] == len(found), "all rows are counted")
    assert found == pytest.approx(kept(hp.where(spark.read.parquet(str(folder)), text, 0.2)))
    assert found
    counts = funnel.to_dict()
    assert counts["kept"] == len(found)
    assert counts["candidates"] == 59
    assert hp.where(stream, "id > 3").isStreaming


def test_parquet_round_trip(spark, table, tmp_path):
    """The result keeps its uncertain columns, can be stored, and asked again."""
    text = "x < 1 AND distance(p, q) <= 2"
    first = hp.where(table, text, 0.3)
    first.write.parquet(str(tmp_path / "kept"))
    stored = spark.read.parquet(str(tmp_path / "kept"))
    assert kept(stored) == kept(first)
    again = hp.where(stored.drop("probability"), text, 0.3)
    assert kept(again) == pytest.approx(kept(first), abs=1e-12)


def test_errors_before_any_data_is_read(spark):
    failing = F.raise_error(F.lit("computed!")).cast("double")
    broken = spark.range(3).select("id", hp.gaussian(failing, F.lit(1.0)).alias("x"), F.lit("a").alias("name"))
    for arguments, options, words in (
        (("x < 1", 0.5), {"planning": "row"}, "no choice of planning 'row'"),
        (("x < 1", 0.5), {"probability": "some"}, "no choice of probability 'some'"),
        (("x < 1", 0.5), {"invalid": "ignore"}, "no choice of invalid 'ignore'"),
        (("x < 1", 0.0), {}, "not a probability"),
        (("x < 1", 1.5), {}, "not a probability"),
        (("z < 1", 0.5), {}, "'z'"),
        (("left.x < 1", 0.5), {}, "names a table"),
        ((3, 0.5), {}, "cannot be read"),
        (("x", 0.5), {}, "compared with something certain"),
        (("x[0] < 1", 0.5), {}, "component of 'x'"),
        (("x * x * x + x < 1", 0.5), {}, "more than two uncertain columns"),
        (("x <", 0.5), {}, "line 1"),
    ):  # fmt: skip
        with pytest.raises(HaplyError) as caught:
            hp.where(broken, *arguments, **options)
        assert words in str(caught.value), (arguments, str(caught.value))
    result = hp.where(broken, "x < 1", 0.5)
    assert result.columns == ["id", "x", "name", "probability"]
    with pytest.raises(Exception, match="computed!"):
        result.collect()
