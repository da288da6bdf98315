"""``hp.sql`` on Spark: the catalog, streams, and errors with their place. Its answers are in ``tests/both``."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from pyspark.sql import functions as F
from scipy import stats

import haply as hp
from haply.errors import HaplyError
from mutations import mutated


@pytest.fixture(scope="module")
def tables(spark: Any) -> dict[str, Any]:
    """Two tables of Gaussians and a third of plain numbers, all with times."""
    left = [(k, 1.0 * k, 0.2, f"n{k}", 10.0 * k) for k in range(5)]
    right = [(k, 1.0 * k + 0.1, 0.3, 10.0 * k + 3) for k in range(5)]
    return {
        "a": spark.createDataFrame(left, "id int, m double, s double, name string, time double").withColumn(
            "x", hp.gaussian("m", "s")
        ),
        "b": spark.createDataFrame(right, "id int, m double, s double, time double").withColumn(
            "x", hp.gaussian("m", "s")
        ),
        "c": spark.createDataFrame([(1, 0.9, 15.0), (2, 2.2, 21.0)], "id int, m double, time double"),
    }


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """The rows, sorted, probabilities to nine digits."""

    def rounded(value: Any) -> Any:
        return round(value, 9) if isinstance(value, float) else value

    return sorted(tuple(map(rounded, row)) for row in frame.collect())


# -- SQL and Python give the same plan and the same rows ---------------------------------------------------------------


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.id, PROB() FROM a, b WHERE abs(a.x - b.x) <= 0.5 AND a.m < b.time WITH THRESHOLD 0.5",
        "SELECT a.name, b.x.mean AS y FROM a, b WHERE WINDOW(a, b) = 7 ORDER BY b.s, a.id",
        "SELECT GAUSSIAN(b.m, a.s) AS g FROM a, b WHERE abs(a.x - b.x) <= 0.5 AND a.id = b.id WITH THRESHOLD 0.5",
        "SELECT a.id FROM a, b, c WHERE WINDOW(a, b) = 7 AND WINDOW(b, c) = 8",
        "SELECT c.id FROM a, b, c WHERE abs(a.x - b.x) <= 0.5 AND abs(b.x - c.m) < 1 WITH THRESHOLD 0.2",
        "SELECT b.id FROM a, b",
        "SELECT id FROM a WHERE x > 2 WITH THRESHOLD 0.5",
    ],
)
def test_columns_that_a_query_does_not_name_are_not_computed(tables: dict[str, Any], query: str) -> None:
    spoilt = {
        name: frame.select(frame.columns[0], F.expr("raise_error('computed')").alias("spoilt"), *frame.columns[1:])
        for name, frame in tables.items()
    }
    found, wanted = (sorted(map(str, hp.sql(query, **given).collect())) for given in (spoilt, tables))
    assert found == wanted
    assert found


# -- the papers' queries -----------------------------------------------------------------------------------------------


def test_the_second_query_of_claro(spark: Any) -> None:
    # the colours of golden P24: differences with means .01 and -.02; positions with equal errors
    def galaxy(key: int, u: Any, g: Any, r: Any, row: float, column: float) -> Any:
        values = {"u": u, "g": g, "r": r, "rowc": (row, 30.0), "colc": (column, 30.0)}
        return spark.range(1).select(
            F.lit(key).alias("objID"), *(hp.gaussian(F.lit(m), F.lit(s)).alias(name) for name, (m, s) in values.items())
        )

    far = galaxy(3, (30.0, 0.01), (20.0, 0.01), (20.0, 0.01), 0.0, 0.0)
    first = galaxy(1, (20.01, 0.05), (20.0, 0.02), (20.02, 0.02), 100.0, 200.0)
    second = galaxy(2, (20.0, 0.04), (20.0, 0.03), (20.0, 0.01), 130.0, 220.0)
    query = """SELECT G1.objID, G2.objID AS other, PROB()
               FROM Galaxy AS G1, Galaxy AS G2
               WHERE G1.objID < G2.objID
               AND |(G1.u-G1.g)-(G2.u-G2.g)| < 0.05
               AND |(G1.g-G1.r)-(G2.g-G2.r)| < 0.05
               AND power(G1.rowc-G2.rowc, 2)+power(G1.colc-G2.colc, 2)<1E4
               WITH THRESHOLD 0.1"""
    plan = hp.plan_sql(query, Galaxy=first.union(second).union(far))
    assert "candidates by one, all by a selection" in plan.explain(verbose=True)
    near = stats.ncx2.cdf(1e4 / 1800, 2, (30**2 + 20**2) / 1800)
    (found,) = plan.run().collect()
    assert (found.objID, found.other) == (1, 2)
    assert found.probability == pytest.approx(0.375960670257794376 * near, abs=1e-9)


# -- what a query may say ----------------------------------------------------------------------------------------------


def test_tables_of_the_catalog_and_case(spark: Any, tables: dict[str, Any]) -> None:
    tables["a"].createOrReplaceTempView("stored_readings")
    try:
        query = "SELECT ID, T.Name FROM Stored_Readings t WHERE ID < 2 ORDER BY 1 DESC"
        assert [tuple(row) for row in hp.sql(query, spark=spark).collect()] == [(1, "n1"), (0, "n0")]
        assert hp.sql(query).columns == ["id", "name"]
        assert hp.sql("SELECT c.id FROM c, stored_readings s WHERE c.id = s.id", c=tables["c"]).count() == 2
        # what is given comes first
        assert hp.sql("SELECT * FROM stored_readings", stored_readings=tables["c"]).columns[1] == "m"
    finally:
        spark.catalog.dropTempView("stored_readings")


@pytest.mark.long
def test_streams(spark: Any, tables: dict[str, Any], tmp_path: Any) -> None:
    query = """SELECT a.id, b.id AS other, PROB() FROM a, b
               WHERE WINDOW(a, b) = 7 AND abs(a.x - b.x) <= 0.5 WITH THRESHOLD 0.5"""
    streams = {}
    for name in ("a", "b"):
        tables[name].coalesce(1).write.parquet(str(tmp_path / name))
        streams[name] = spark.readStream.schema(tables[name].schema).parquet(str(tmp_path / name))
    found = hp.sql(query, **streams)
    assert found.isStreaming
    out, state = str(tmp_path / "out"), str(tmp_path / "state")
    running = (
        found.writeStream.format("parquet").option("checkpointLocation", state).trigger(availableNow=True).start(out)
    )
    running.awaitTermination()
    assert rows(spark.read.parquet(out)) == rows(hp.sql(query, **tables))
    with pytest.raises(HaplyError, match="a stream has no order"):
        hp.sql(query + " ORDER BY 1", **streams)
    with pytest.raises(HaplyError, match=r"(?s)line 1, column .*A join of streams has no window"):
        hp.sql("SELECT * FROM a, b WHERE abs(a.x - b.x) <= 0.5 WITH THRESHOLD 0.5", **streams)


# -- errors ------------------------------------------------------------------------------------------------------------

MISTAKES = [
    ("SELECT * FROM a WHERE y < 3", "column 23", "There is no column 'y'. Expected one of id, m, s, name, time, x"),
    ("SELECT * FROM a WHERE nam = 'x'", "column 23", "did you mean 'name'?"),
    ("SELECT a.naem FROM a", "column 8", "There is no column in a called 'naem'"),
    ("SELECT * FROM a, b WHERE x < 3", "column 26", "column 'x' is in more than one table. Hint: write a.x or b.x"),
    ("SELECT * FROM aa", "column 15", "There is no table 'aa'. Expected one of a, b, c"),
    ("SELECT * FROM a WHERE d.x < 1", "column 23", "There is no table 'd'. Expected one of a"),
    ("SELECT d.* FROM a", "column 8", "There is no table 'd'"),
    ("SELECT * FROM a u WHERE a.x < 1", "column 25", "table 'a' is called 'u' in this query"),
    ("SELECT * FROM a, A", "column 18", "two tables are called 'A'"),
    ("SELECT * FROM a, b WHERE a.x < 3 OR sin(b.x) > 3", "column 26", "function sin"),
    ("SELECT * FROM a WHERE m", "column 23", "`m` is not a condition. Expected something that is true or false"),
    ("SELECT * FROM a WHERE m + 1", "column 23", "is a value"),
    ("SELECT * FROM a WHERE name", "column 23", "Found string"),
    ("SELECT * FROM a WHERE id > 1 AND 3", "column 30", "AND is applied to a value"),
    ("SELECT * FROM a WHERE 3", "column 23", "`3` is a value"),
    ("SELECT * FROM a WHERE uper(name) = 'x'", "column 23", "There is no function uper(). Hint: did you mean 'upper'?"),
    ("SELECT gausian(m, s) FROM a", "column 8", "did you mean 'gaussian'?"),
    ("SELECT x + 1 FROM a", "column 8", "is computed from `a.x`, which is uncertain"),
    ("SELECT name + id FROM a WHERE explode(name)", "column 31", "Spark refuses it"),
    ("SELECT map(id) FROM a", "column 8", "Spark refuses it"),
    ("SELECT * FROM a WHERE GAUSSIAN(m) < 3", "column 23", "Expected gaussian(mean, sd). Found 1 argument"),
    ("SELECT GAUSSIAN(m, s, s) FROM a", "column 8", "Expected gaussian(mean, sd). Found 3 arguments"),
    ("SELECT * FROM a WHERE GAUSSIAN(name, s) < 3", "column 23", "something that is not a number"),
    ("SELECT * FROM a WHERE GAUSSIAN(x, s) < 3", "column 23", "is made of `a.x`, which is uncertain"),
    ("SELECT * FROM a, b WHERE GAUSSIAN(a.m, b.s) < 3", "column 26", "columns of two tables"),
    ("SELECT HISTOGRAM(array(0, 1), array(0.5)) FROM a", "column 8", "not sum"),
    ("SELECT HISTOGRAM(1, 2) FROM a", "column 8", "cannot take these arguments"),
    ("SELECT SAMPLES(array(1, 2), NULL, 1.5) FROM a", "column 8", "not a whole number"),
    ("SELECT SAMPLES(array(1, 2), 0.5) FROM a", "column 8", "not a whole number"),
    ("SELECT * FROM a WHERE PROB() > 0.4", "column 23", "write WITH THRESHOLD p"),
    ("SELECT PROB(x) FROM a", "column 8", "PROB() takes no arguments"),
    ("SELECT probability FROM a", "column 8", "write PROB()"),
    ("SELECT * FROM a, b WHERE WINDOW(a, b) < 3", "column 26", "Expected WINDOW(A, B) = d, or <= d"),
    ("SELECT * FROM a, b WHERE WINDOW(a, c) = 3", "column 36", "There is no table 'c'"),
    ("SELECT * FROM a, b WHERE WINDOW(a) = 3", "column 26", "WINDOW is between tables"),
    ("SELECT * FROM a, b WHERE WINDOW(a, a) = 3", "column 26", "names a table twice"),
    ("SELECT * FROM a, b WHERE WINDOW(a, b) = a.m", "column 26", "no length of time"),
    ("SELECT * FROM a, b WHERE WINDOW(a, b) = 'soon'", "column 26", "'soon' is not a window"),
    ("SELECT * FROM a, b WHERE WINDOW(a, b) = -3", "column 26", "no length of time"),
    ("SELECT * FROM a, b WHERE WINDOW(a, b) = 3 OR a.id = 1", "column 26", "WINDOW cannot be part of another"),
    ("SELECT * FROM a, (SELECT id FROM b) q WHERE WINDOW(a, q) = 3", "column 45", "has no column 'time'"),
    ("SELECT a.id AS q, a.m AS Q FROM a", "column 19", "two columns of the result are called 'Q'"),
    ("SELECT * FROM a WHERE x ** 2.5 < x", "column 23", "only squares are understood"),
    ("SELECT * FROM a WHERE sin(x) < 1", "column 23", "the function sin() of something uncertain"),
    ("SELECT * FROM a WHERE x = 'abc'", "column 23", "Found `'abc'`, of type string"),
    ("SELECT * FROM a WHERE x < name", "column 23", "compares a number with something else"),
    ("SELECT * FROM a WHERE x IN (1, 2)", "column 23", "equals any other value with probability 0"),
    ("SELECT * FROM a WHERE DISTANCE(x, m) < 3", "column 23", "is a number, not a point. Hint: write abs(a.x - a.m)"),
    ("SELECT * FROM a WHERE DISTANCE(s, m) < 3", "column 23", "Spark refuses it"),
    ("SELECT id FROM a ORDER BY z", "column 27", "There is no column 'z'"),
    ("SELECT id FROM a ORDER BY 3", "column 27", "there is no column number 3"),
    ("SELECT * FROM (SELECT id FROM a WHERE x < 3) q", "column 16", "add x to the inner SELECT"),
    ("SELECT * FROM (SELECT id FROM a WITH THRESHOLD 0.5) q", "column 33", "move it behind the outer query"),
    ("SELECT * FROM (SELECT PROB() FROM a) q", "column 23", "move it to the outer SELECT"),
    ("SELECT * FROM (SELECT a.id FROM a, b) q", "column 36", "name all tables after the outer FROM"),
    ("SELECT * FROM a, b WHERE abs(a.x - b.x) < 0.5", "column 26", "Without a threshold every pair is possible"),
    ("SELECT * FROM a WHERE a.x.foo < 3", "column 23", "Spark refuses it"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "place", "text"), MISTAKES)
def test_mistakes_are_told_with_their_place(tables: dict[str, Any], query: str, place: str, text: str) -> None:
    with pytest.raises(HaplyError) as caught:
        hp.plan_sql(query, **tables)
    said = str(caught.value)
    assert said.startswith(f"line 1, {place}:\n    {query[:60]}"), said
    assert text in said, said


def test_what_is_no_table_is_told(spark: Any) -> None:
    with pytest.raises(HaplyError, match="The table 'a' is of type list"):
        hp.sql("SELECT * FROM a", spark=spark, a=[1])


def test_nothing_but_errors_of_ours_comes_out(tables: dict[str, Any]) -> None:
    queries = [
        "SELECT a.id AS i, b.*, PROB() p FROM a JOIN b ON a.id = b.id WHERE abs(a.x - b.x) < .5 WITH THRESHOLD 0.5",
        "SELECT * FROM a WHERE x * x + GAUSSIAN(m, s) * 2 > 0.25 AND name LIKE 'n%' ORDER BY id LIMIT 3",
        "SELECT upper(name), UNIFORM(m, m + 1) AS u FROM (SELECT name, m FROM a WHERE m > 0) q WHERE m BETWEEN 1 AND 2",
        "SELECT * FROM a, b, c WHERE WINDOW(a, b) = 7 AND WINDOW(b, c) <= 8 AND a.x - b.x < 1 WITH THRESHOLD 0.3",
        "SELECT a.id FROM a, b, c WHERE abs(a.x - b.x) < 1 AND a.x + b.x < 2 * c.m AND a.id = c.id WITH THRESHOLD 0.3",
    ]
    for query in queries:
        hp.plan_sql(query, **tables)
    chance = random.Random(7)
    planned, begun = 0, time.perf_counter()
    for _ in range(250):
        text = mutated(chance.choice(queries), chance)
        try:
            hp.plan_sql(text, **tables)
            planned += 1
        except HaplyError as error:
            if not str(error).startswith("line "):
                raise AssertionError(text) from error
    assert planned > 10
    assert time.perf_counter() - begun < 120
