"""``hp.sql`` on Spark: the papers' queries, the same answers and plans as in Python, and errors with their place."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest
from pyspark.sql import functions as F
from scipy import stats

import haply as hp
from haply.engines.spark.engine import ENGINE
from haply.engines.spark.frame import SparkFrame
from haply.errors import HaplyError
from haply.planning.windows import WindowPlan
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


def test_a_selection(tables: dict[str, Any]) -> None:
    query = "SELECT * FROM a WHERE x > 2 AND name <> 'n3' AND x < 4 WITH THRESHOLD 0.3"
    condition = (hp.col("x") > 2) & (hp.col("name") != "n3") & (hp.col("x") < 4)
    assert hp.plan_sql(query, **tables).explain(verbose=True) == hp.plan_where(tables["a"], condition, 0.3).explain(
        verbose=True
    )
    found = hp.sql(query, **tables)
    assert found.columns == [*tables["a"].columns, "probability"]
    selected = rows(found)
    assert selected == rows(hp.where(tables["a"], condition, 0.3))
    assert {row[0] for row in selected} == {2, 4}


def test_a_join(tables: dict[str, Any]) -> None:
    query = "SELECT * FROM a, b WHERE abs(a.x - b.x) <= 0.5 AND a.id <= b.id WITH THRESHOLD 0.5"
    on = (abs(hp.left.x - hp.right.x) <= 0.5) & (hp.left.id <= hp.right.id)
    assert hp.plan_sql(query, **tables).explain(verbose=True) == hp.plan_join(
        tables["a"], tables["b"], on, 0.5
    ).explain(verbose=True)
    funnel = hp.Funnel()
    found = hp.sql(query, funnel=funnel, **tables)
    assert found.columns == [
        *("a_id", "a_m", "a_s", "name", "a_time", "a_x"),
        *("b_id", "b_m", "b_s", "b_time", "b_x", "probability"),
    ]
    joined = rows(found)
    assert funnel.to_dict()["kept"] == len(joined) == 5
    assert joined == rows(hp.join(tables["a"], tables["b"], on, 0.5))


def test_a_join_in_a_window(tables: dict[str, Any]) -> None:
    query = "SELECT * FROM a A, b B WHERE WINDOW(A, B) <= 7 AND |A.x - B.x| < 1.2 WITH THRESHOLD 0.5"
    options: dict[str, Any] = {"time": "time", "window": 7}
    on = abs(hp.left.x - hp.right.x) < 1.2
    same = hp.plan_join(tables["a"], tables["b"], on, 0.5, **options)
    assert hp.plan_sql(query, **tables).explain(verbose=True) == same.explain(verbose=True)
    found = rows(hp.sql(query, **tables))
    assert found == rows(hp.join(tables["a"], tables["b"], on, 0.5, **options))
    assert len(found) == 9


def test_windows_between_many_tables(tables: dict[str, Any]) -> None:
    query = """SELECT * FROM a, b, c
               WHERE WINDOW(a, b) = 7 AND WINDOW(b, c) = 8 AND a.id <= c.id AND abs(a.x - b.x) <= 1
               WITH THRESHOLD 0.2"""
    on = "a.id <= c.id AND abs(a.x - b.x) <= 1"
    windows = {("a", "b"): 7, ("b", "c"): 8}
    same = WindowPlan(
        {name: SparkFrame(table) for name, table in tables.items()}, windows, key=None, on=on, threshold=0.2,
        time="time", max_delay=0, algorithm="auto", windows_policy="exact",
    )  # fmt: skip
    said = hp.plan_sql(query, **tables).explain(verbose=True)
    assert said.partition("\nNot taken")[0] == same.describe(ENGINE).text(verbose=True)
    assert "chain         costs more" in said
    found = rows(hp.sql(query, **tables))
    assert found == rows(hp.window_join(tables, windows, on=on, threshold=0.2))
    assert found


def test_equal_keys_of_all_tables_are_the_key_of_a_window_join(tables: dict[str, Any]) -> None:
    query = """SELECT a.id, c.m FROM a, b, c
               WHERE WINDOW(a, b, c) = 10 AND a.id = b.id AND c.id = b.id"""
    plan = hp.plan_sql(query, **tables)
    assert "key           a.id = b.id = c.id" in plan.explain(verbose=True)
    assert "windows       a-b 10, a-c 10, b-c 10" in plan.explain(verbose=True)
    assert rows(plan.run()) == [(1, 0.9), (2, 2.2)]


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


def test_the_first_query_of_claro(spark: Any) -> None:
    # Table 1 of the paper, whose second numbers are standard deviations
    galaxy = spark.createDataFrame(
        [(1, 27.0, 2.2, 1.2, 2.2, 0.1, 1.1), (2, 21.6, 0.1, 0.1, 0.1, -0.1, 0.1)],
        "objID int, r double, rErr double, q_r double, qErr_r double, u_r double, uErr_r double",
    )
    query = """SELECT objID, PROB() AS p
               FROM (SELECT objID, GAUSSIAN(r, rErr) AS r, GAUSSIAN(q_r, qErr_r) AS q_r, GAUSSIAN(u_r, uErr_r) AS u_r
                     FROM Galaxy) G
               WHERE G.r < 24 AND G.q_r*G.q_r + power(G.u_r, 2) > 0.25"""
    found = {row.objID: row.p for row in hp.sql(query, Galaxy=galaxy).collect()}
    assert found[1] == pytest.approx(0.0863410207093742061 * 0.956974204162672754, abs=1e-9)
    assert found[2] == pytest.approx(0.000329517361275301893, abs=1e-9)
    kept = hp.sql(query.replace("SELECT objID, PROB() AS p", "SELECT *") + " WITH THRESHOLD 0.05", Galaxy=galaxy)
    assert kept.columns == ["objID", "r", "q_r", "u_r", "probability"]
    assert [row.objID for row in kept.collect()] == [1]


def test_squares_beside_other_conditions_on_the_same_columns(spark: Any) -> None:
    # a circle of two sds, cut through its middle
    one = spark.range(1).selectExpr("0.0 AS m", "1.0 AS s")
    inner = "SELECT GAUSSIAN(m, s) AS x, GAUSSIAN(m, s + 0) AS y FROM t"
    query = f"SELECT PROB() AS p FROM ({inner}) u WHERE x*x + y*y < 4 AND x > y"
    assert hp.sql(query, t=one).first().p == pytest.approx(0.5 * -math.expm1(-2.0), abs=1e-12)


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


def test_the_query_of_timing_joins(spark: Any) -> None:
    phi = ([0.0, 1000.0, 3000.0], [0.7, 0.3])
    seismic = spark.createDataFrame([(1, 5000.0), (2, 60000.0)], "id int, t double").select(
        "id", hp.latency("t", *phi).alias("time")
    )
    acoustic = spark.createDataFrame([(1, 5500.0), (2, 64000.0)], "id int, t double").select(
        "id", hp.latency("t", *phi).alias("time")
    )
    query = "select * from SEISMIC A, ACOUSTIC B\nwhere WINDOW(A, B) = 2000 with THRESHOLD 0.6"
    found = hp.sql(query, seismic=seismic, acoustic=acoustic)
    assert found.columns == ["A_id", "A_time", "B_id", "B_time", "probability"]
    same = hp.join(seismic, acoustic, time="time", window=2000, threshold=0.6)
    (only,) = found.collect()
    assert (only.A_id, only.B_id) == (1, 1)
    assert [only.probability] == [row.probability for row in same.collect()]
    # the same from plain numbers
    raw = spark.createDataFrame([(1, 5000.0), (2, 60000.0)], "id int, t double")
    late = spark.createDataFrame([(1, 5500.0), (2, 64000.0)], "id int, t double")
    query = """SELECT A.id, PROB() AS p
               FROM (SELECT id, LATENCY(t, array(0, 1000, 3000), array(0.7, 0.3)) AS h FROM seismic) A,
                    (SELECT id, LATENCY(t, array(0, 1000, 3000), array(0.7, 0.3)) AS h FROM acoustic) B
               WHERE WINDOW(A, B) = 2000 WITH THRESHOLD 0.6"""
    again = hp.sql(query, time="h", seismic=raw, acoustic=late)
    assert [row.p for row in again.collect()] == [only.probability]


def test_the_forms_of_window_joins(spark: Any) -> None:
    def sensor(*seen: tuple[int, int]) -> Any:
        return spark.createDataFrame(seen, "time long, gas int")

    sensors = {
        "s1": sensor((0, 7), (50, 8)),
        "s2": sensor((8, 7), (90, 8)),
        "s3": sensor((17, 7), (91, 8)),
        "s4": sensor((20, 7), (92, 8)),
    }
    path = """SELECT A.gas, A.time, D.time AS last FROM s1 A, s2 B, s3 C, s4 D
              WHERE A.gas = B.gas AND B.gas = C.gas AND C.gas = D.gas
              AND WINDOW(A, B) = 10 AND WINDOW(B, C) = 10 AND WINDOW(C, D) = 10"""
    assert rows(hp.sql(path, **sensors)) == [(7, 0, 20)]
    clique = path + " AND WINDOW(A, C) = 17 AND WINDOW(A, D) = 20 AND WINDOW(B, D) = 12"
    assert rows(hp.sql(clique, **sensors)) == [(7, 0, 20)]
    assert rows(hp.sql(clique.replace("= 20", "= 19"), **sensors)) == []
    uniform = (
        "SELECT A.gas, PROB() FROM s2 A, s3 B, s4 C WHERE WINDOW(A, B, C) = 12 AND A.gas = B.gas AND B.gas = C.gas"
    )
    assert rows(hp.sql(uniform, **sensors)) == [(7, 1.0), (8, 1.0)]


# -- what a query may say ----------------------------------------------------------------------------------------------


def test_names_expressions_and_order(tables: dict[str, Any]) -> None:
    query = """SELECT a.id, b.id, PROB() AS p, a.m + 1, upper(name) AS who, b.x.sd, round(PROB(), 2),
                      GAUSSIAN(a.m + b.m, 1) y
               FROM a INNER JOIN b ON a.id = b.id
               WHERE abs(GAUSSIAN(a.m, 2 * a.s) - b.x) <= 0.5 AND b.x.mean > 1
               ORDER BY who DESC LIMIT 2 WITH THRESHOLD 0.2"""
    found = hp.sql(query, **tables)
    assert found.columns == ["a_id", "b_id", "p", "m + 1", "who", "x.sd", "round(prob(), 2)", "y"]
    p = stats.norm.cdf(0.4, 0, 0.5) - stats.norm.cdf(-0.6, 0, 0.5)
    for row, k in zip(found.collect(), (4, 3), strict=True):
        assert row[:2] == (k, k)
        assert row.p == pytest.approx(p, abs=1e-12)
        assert row[3:7] == (k + 1.0, f"N{k}", 0.3, round(p, 2))
        assert row.y.mean == pytest.approx(2 * k + 0.1)


@pytest.mark.parametrize(
    ("constructor", "p"),
    [
        ("UNIFORM(id - 1, id + 1)", 0.75),
        ("gaussian(id, 0.5)", stats.norm.cdf(1)),
        ("TRUNCATED_GAUSSIAN(id, 1, id - 1, id + 1)", 0.5 + (stats.norm.cdf(0.5) - 0.5) / (2 * stats.norm.cdf(1) - 1)),
        ("MIXTURE(array(0.5, 0.5), array(id, id + 5), array(0.5, 0.5))", stats.norm.cdf(1) / 2),
        ("HISTOGRAM(array(0, 1, 2, 4), array(0.5, 0.25, 0.25))", 0.625),
        ("SAMPLES(array(0, 1, 2, 3))", 0.5),
        ("SAMPLES(array(0, 1, 2), array(0.5, 0.3, 0.2))", 0.8),
        ("LATENCY(3, array(0, 2, 4), array(0.5, 0.5))", 0.625),
        ("GAUSSIAN_ND(array(id, 0), array(0.5, 1))[0]", stats.norm.cdf(1)),
        ("GAUSSIAN_ND(array(id, 0), NULL, NULL, array(0.25, 0, 0, 1))[0]", stats.norm.cdf(1)),
        ("GAUSSIAN_ND(array(id, 0), NULL, NULL, array(array(0.25, 0), array(0, 1)))[0]", stats.norm.cdf(1)),
        ("MIXTURE_ND(array(1), array(id, 0), array(0.25, 0, 0, 1))[0]", stats.norm.cdf(1)),
    ],
)
def test_constructors_in_conditions(spark: Any, constructor: str, p: float) -> None:
    one = spark.createDataFrame([(1,)], "id int")
    inner = constructor.removesuffix("[0]")
    query = f"SELECT PROB() FROM (SELECT {inner} AS v FROM t) u WHERE v{constructor[len(inner) :]} < 1.5"
    ((found,),) = hp.sql(query, t=one).collect()
    assert found == pytest.approx(p, abs=1e-9)
    if inner == constructor:
        ((found,),) = hp.sql(f"SELECT PROB() FROM t WHERE {constructor} < 1.5", t=one).collect()
        assert found == pytest.approx(p, abs=1e-9)


def test_equal_constructors_are_one_value(spark: Any) -> None:
    one = spark.createDataFrame([(0.0, 1.0)], "m double, s double")
    query = "SELECT PROB() FROM t WHERE GAUSSIAN(m, s) > -1 AND gaussian( m , s ) < 1"
    assert hp.sql(query, t=one).collect()[0][0] == pytest.approx(0.682689492137085897, abs=1e-12)


@pytest.mark.filterwarnings("ignore:A table is joined with itself")
def test_distances(spark: Any) -> None:
    walks = spark.createDataFrame([(1, [0.0, 0.0, 3.0, 4.0]), (2, [50.0, 50.0])], "id int, p array<double>").select(
        "id", hp.samples("p", dim=2).alias("pos")
    )
    query = "SELECT A.id AS i, B.id AS j, PROB() FROM walks A, walks B WHERE DISTANCE(A.pos, B.pos) < 5"
    assert rows(hp.sql(query, walks=walks)) == [(1, 1, 0.5), (2, 2, 1.0)]
    assert "P >= 0.5" in hp.plan_sql(query + " WITH THRESHOLD 0.5", walks=walks).explain(verbose=True)
    assert rows(hp.sql(query + " WITH THRESHOLD 0.5 STRICT", walks=walks)) == [(2, 2, 1.0)]


def test_one_number_after_the_points_of_samples_is_their_dimension(spark: Any) -> None:
    flat = spark.createDataFrame([(1, [0.0, 0.0, 1.0, 3.0, 4.0, 1.0]), (2, [9.0, 9.0, 9.0])], "id int, p array<double>")
    nested = spark.createDataFrame([(1, [[0.0, 0.0, 1.0], [3.0, 4.0, 1.0]])], "id int, p array<array<double>>")
    made = {1: ([0.0, 0.0, 1.0, 3.0, 4.0, 1.0], None, 3), 2: ([9.0, 9.0, 9.0], None, 3)}
    for table in (flat, nested):
        found = hp.sql("SELECT id, SAMPLES(p, 3) AS s FROM t", t=table).collect()
        assert {row.id: tuple(row.s) for row in found} == {row.id: made[row.id] for row in found}
    query = "SELECT a.id, b.id AS other, PROB() FROM t a, t b WHERE DISTANCE(SAMPLES(a.p, 3), SAMPLES(b.p, 3)) < 5"
    assert rows(hp.sql(query, t=flat)) == [(1, 1, 0.5), (2, 2, 1.0)]


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


def test_tables_without_conditions(tables: dict[str, Any]) -> None:
    assert rows(hp.sql("SELECT * FROM c", **tables)) == [(1, 0.9, 15.0, 1.0), (2, 2.2, 21.0, 1.0)]
    crossed = hp.sql("SELECT u.id AS i, v.id AS j, PROB() FROM c u CROSS JOIN c v", **tables)
    assert rows(crossed) == [(1, 1, 1.0), (1, 2, 1.0), (2, 1, 1.0), (2, 2, 1.0)]


def test_a_column_that_is_called_probability(spark: Any) -> None:
    one = spark.createDataFrame([(1, 0.25)], "id int, probability double").withColumn(
        "x", hp.uniform(F.lit(0), F.lit(1))
    )
    found = hp.sql("SELECT * FROM t WHERE x < probability + 0.25", t=one)
    assert found.columns == ["id", "t_probability", "x", "probability"]
    assert [(row.t_probability, row.probability) for row in found.collect()] == [(0.25, pytest.approx(0.5))]
    assert hp.sql("SELECT probability, PROB() AS p FROM t WHERE x < 0.5", t=one).columns == ["probability", "p"]


def test_rows_without_their_probability(tables: dict[str, Any]) -> None:
    plan = hp.plan_sql("SELECT a.id FROM a, b WHERE abs(a.x - b.x) <= 0.5 WITH THRESHOLD 0.5", **tables)
    on = abs(hp.left.x - hp.right.x) <= 0.5
    assert plan.explain(verbose=True) == hp.plan_join(tables["a"], tables["b"], on, 0.5, probability="none").explain(
        verbose=True
    )
    assert rows(plan.run()) == [(k,) for k in range(5)]


def test_conditions_on_one_of_two_tables_count(tables: dict[str, Any]) -> None:
    query = "SELECT a.id AS i, b.id AS j, PROB() FROM a, b WHERE abs(a.x - b.x) <= 0.5 AND a.x < 2 WITH THRESHOLD 0.2"
    plan = hp.plan_sql(query, **tables)
    on = (abs(hp.left.x - hp.right.x) <= 0.5) & (hp.left.x < 2)
    assert plan.explain(verbose=True) == hp.plan_join(tables["a"], tables["b"], on, 0.2).explain(verbose=True)
    found = {(i, j): p for i, j, p in rows(plan.run())}
    assert set(found) == {(0, 0), (1, 1), (2, 2)}
    assert found[0, 0] == pytest.approx(0.8183250886949693, abs=1e-9)
    assert found[2, 2] < 0.5


def test_times_by_table(spark: Any) -> None:
    one = spark.createDataFrame([(1, 0.0)], "id int, t double")
    other = spark.createDataFrame([(1, 2.0)], "id int, at double")
    query = "SELECT u.id FROM one u, other v WHERE WINDOW(u, v) = 2"
    assert hp.sql(query, time={"u": "t", "other": "at"}, one=one, other=other).count() == 1
    stamped = [frame.select("id", F.timestamp_seconds(frame.columns[1]).alias("time")) for frame in (one, other)]

    def plan(length: str) -> Any:
        query = f"SELECT u.id FROM one u, other v WHERE WINDOW(u, v) = {length}"
        return hp.plan_sql(query, one=stamped[0], other=stamped[1])

    assert plan("INTERVAL 2 SECONDS").run().count() == 1
    assert plan("INTERVAL '1' SECOND").run().count() == 0
    assert (
        plan("'2 seconds'").explain(verbose=True)
        == plan("INTERVAL 2 SECONDS").explain(verbose=True)
        == plan("2").explain(verbose=True)
    )
    assert plan("'2 seconds'").explain(verbose=True) != plan("INTERVAL '1' SECOND").explain(verbose=True)


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
    with pytest.raises(HaplyError, match="One side of the join is a stream"):
        hp.sql(query, a=streams["a"], b=tables["b"])
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
    ("SELECT * FROM a, b WHERE a.x < 3 OR b.x > 3", "column 26", "an OR of conditions on different columns"),
    ("SELECT * FROM a WHERE m", "column 23", "`m` is no condition. Expected something that is true or false"),
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
    ("SELECT * FROM a WHERE GAUSSIAN(name, s) < 3", "column 23", "something that is no number"),
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
    ("SELECT * FROM a, b WHERE WINDOW(a, b) = 'soon'", "column 26", "'soon' is no window"),
    ("SELECT * FROM a, b WHERE WINDOW(a, b) = -3", "column 26", "no length of time"),
    ("SELECT * FROM a, b WHERE WINDOW(a, b) = 3 OR a.id = 1", "column 26", "WINDOW stands alone"),
    ("SELECT * FROM a, (SELECT id FROM b) q WHERE WINDOW(a, q) = 3", "column 45", "has no column 'time'"),
    ("SELECT a.id AS q, a.m AS Q FROM a", "column 19", "two columns of the result are called 'Q'"),
    ("SELECT * FROM a WHERE x ** 3 < 1", "column 23", "only squares are understood"),
    ("SELECT * FROM a WHERE sin(x) < 1", "column 23", "the function sin() of something uncertain"),
    ("SELECT * FROM a WHERE x = 'abc'", "column 23", "Found `'abc'`, of type string"),
    ("SELECT * FROM a WHERE x < name", "column 23", "compares a number with something else"),
    ("SELECT * FROM a WHERE x IN (1, 2)", "column 23", "which is not a comparison"),
    ("SELECT * FROM a WHERE DISTANCE(x, m) < 3", "column 23", "is a number, not a point. Hint: write abs(a.x - a.m)"),
    ("SELECT * FROM a WHERE DISTANCE(s, m) < 3", "column 23", "Spark refuses it"),
    ("SELECT id FROM a ORDER BY z", "column 27", "There is no column 'z'"),
    ("SELECT id FROM a ORDER BY 3", "column 27", "there is no column number 3"),
    ("SELECT * FROM (SELECT * FROM a WHERE x < 3) q", "column 38", "move it to the outer WHERE"),
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
