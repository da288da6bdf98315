"""``hp.sql``: the papers' queries, the same answers and plans as in Python, and errors with their place."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

import both_kit as hp
from haply.inputs import engine_of, frame_of
from haply.planning.windows import WindowPlan


@pytest.fixture(scope="module")
def tables(engine: Any) -> dict[str, Any]:
    """Two tables of Gaussians and a third of plain numbers, all with times."""
    left = [(k, 1.0 * k, 0.2, f"n{k}", 10.0 * k) for k in range(5)]
    right = [(k, 1.0 * k + 0.1, 0.3, 10.0 * k + 3) for k in range(5)]
    return {
        "a": engine.createDataFrame(left, "id int, m double, s double, name string, time double").withColumn(
            "x", hp.gaussian("m", "s")
        ),
        "b": engine.createDataFrame(right, "id int, m double, s double, time double").withColumn(
            "x", hp.gaussian("m", "s")
        ),
        "c": engine.createDataFrame([(1, 0.9, 15.0), (2, 2.2, 21.0)], "id int, m double, time double"),
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
    frames = {name: frame_of(table.asked, name) for name, table in tables.items()}
    same = WindowPlan(
        frames, windows, key=None, on=on, threshold=0.2,
        time="time", max_delay=0, algorithm="auto", windows_policy="exact",
    )  # fmt: skip
    said = hp.plan_sql(query, **tables).explain(verbose=True)
    assert said.partition("\nNot taken")[0] == same.describe(engine_of(frames["a"])).text(verbose=True)
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


# -- the papers' queries -----------------------------------------------------------------------------------------------


def test_the_first_query_of_claro(engine: Any) -> None:
    # Table 1 of the paper, whose second numbers are standard deviations
    galaxy = engine.createDataFrame(
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


def test_squares_beside_other_conditions_on_the_same_columns(engine: Any) -> None:
    # a circle of two sds, cut through its middle
    one = engine.createDataFrame([(0.0, 1.0)], "m double, s double")
    inner = "SELECT GAUSSIAN(m, s) AS x, GAUSSIAN(m, s + 0) AS y FROM t"
    query = f"SELECT PROB() AS p FROM ({inner}) u WHERE x*x + y*y < 4 AND x > y"
    assert hp.sql(query, t=one).first().p == pytest.approx(0.5 * -math.expm1(-2.0), abs=1e-12)


def test_the_query_of_timing_joins(engine: Any) -> None:
    phi = ([0.0, 1000.0, 3000.0], [0.7, 0.3])
    seismic = engine.createDataFrame([(1, 5000.0), (2, 60000.0)], "id int, t double").select(
        "id", hp.latency("t", *phi).alias("time")
    )
    acoustic = engine.createDataFrame([(1, 5500.0), (2, 64000.0)], "id int, t double").select(
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
    raw = engine.createDataFrame([(1, 5000.0), (2, 60000.0)], "id int, t double")
    late = engine.createDataFrame([(1, 5500.0), (2, 64000.0)], "id int, t double")
    query = """SELECT A.id, PROB() AS p
               FROM (SELECT id, LATENCY(t, array(0, 1000, 3000), array(0.7, 0.3)) AS h FROM seismic) A,
                    (SELECT id, LATENCY(t, array(0, 1000, 3000), array(0.7, 0.3)) AS h FROM acoustic) B
               WHERE WINDOW(A, B) = 2000 WITH THRESHOLD 0.6"""
    again = hp.sql(query, time="h", seismic=raw, acoustic=late)
    assert [row.p for row in again.collect()] == [only.probability]


def test_the_forms_of_window_joins(engine: Any) -> None:
    def sensor(*seen: tuple[int, int]) -> Any:
        return engine.createDataFrame(seen, "time long, gas int")

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
def test_constructors_in_conditions(engine: Any, constructor: str, p: float) -> None:
    one = engine.createDataFrame([(1,)], "id int")
    inner = constructor.removesuffix("[0]")
    query = f"SELECT PROB() FROM (SELECT {inner} AS v FROM t) u WHERE v{constructor[len(inner) :]} < 1.5"
    ((found,),) = hp.sql(query, t=one).collect()
    assert found == pytest.approx(p, abs=1e-9)
    if inner == constructor:
        ((found,),) = hp.sql(f"SELECT PROB() FROM t WHERE {constructor} < 1.5", t=one).collect()
        assert found == pytest.approx(p, abs=1e-9)


def test_equal_constructors_are_one_value(engine: Any) -> None:
    one = engine.createDataFrame([(0.0, 1.0)], "m double, s double")
    query = "SELECT PROB() FROM t WHERE GAUSSIAN(m, s) > -1 AND gaussian( m , s ) < 1"
    assert hp.sql(query, t=one).collect()[0][0] == pytest.approx(0.682689492137085897, abs=1e-12)


@pytest.mark.filterwarnings("ignore:A table is joined with itself")
def test_distances(engine: Any) -> None:
    walks = engine.createDataFrame([(1, [0.0, 0.0, 3.0, 4.0]), (2, [50.0, 50.0])], "id int, p array<double>").select(
        "id", hp.samples("p", dim=2).alias("pos")
    )
    query = "SELECT A.id AS i, B.id AS j, PROB() FROM walks A, walks B WHERE DISTANCE(A.pos, B.pos) < 5"
    assert rows(hp.sql(query, walks=walks)) == [(1, 1, 0.5), (2, 2, 1.0)]
    assert "P >= 0.5" in hp.plan_sql(query + " WITH THRESHOLD 0.5", walks=walks).explain(verbose=True)
    assert rows(hp.sql(query + " WITH THRESHOLD 0.5 STRICT", walks=walks)) == [(2, 2, 1.0)]


def test_one_number_after_the_points_of_samples_is_their_dimension(engine: Any) -> None:
    flat = engine.createDataFrame(
        [(1, [0.0, 0.0, 1.0, 3.0, 4.0, 1.0]), (2, [9.0, 9.0, 9.0])], "id int, p array<double>"
    )
    nested = engine.createDataFrame([(1, [[0.0, 0.0, 1.0], [3.0, 4.0, 1.0]])], "id int, p array<array<double>>")
    made = {1: ([0.0, 0.0, 1.0, 3.0, 4.0, 1.0], None, 3), 2: ([9.0, 9.0, 9.0], None, 3)}
    for table in (flat, nested):
        found = hp.sql("SELECT id, SAMPLES(p, 3) AS s FROM t", t=table).collect()
        assert {row.id: tuple(row.s) for row in found} == {row.id: made[row.id] for row in found}
    query = "SELECT a.id, b.id AS other, PROB() FROM t a, t b WHERE DISTANCE(SAMPLES(a.p, 3), SAMPLES(b.p, 3)) < 5"
    assert rows(hp.sql(query, t=flat)) == [(1, 1, 0.5), (2, 2, 1.0)]


def test_tables_without_conditions(tables: dict[str, Any]) -> None:
    assert rows(hp.sql("SELECT * FROM c", **tables)) == [(1, 0.9, 15.0, 1.0), (2, 2.2, 21.0, 1.0)]
    crossed = hp.sql("SELECT u.id AS i, v.id AS j, PROB() FROM c u CROSS JOIN c v", **tables)
    assert rows(crossed) == [(1, 1, 1.0), (1, 2, 1.0), (2, 1, 1.0), (2, 2, 1.0)]


def test_a_column_that_is_called_probability(engine: Any) -> None:
    one = engine.createDataFrame([(1, 0.25)], "id int, probability double").withColumn("x", hp.uniform(0, 1))
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


def test_times_by_table(engine: Any) -> None:
    one = engine.createDataFrame([(1, 0.0)], "id int, t double")
    other = engine.createDataFrame([(1, 2.0)], "id int, at double")
    query = "SELECT u.id FROM one u, other v WHERE WINDOW(u, v) = 2"
    assert hp.sql(query, time={"u": "t", "other": "at"}, one=one, other=other).count() == 1
    stamps = "id int, time timestamp"
    stamped = [engine.createDataFrame([(1, 1_000_000 * at)], stamps) for at in (0, 2)]

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


# -- errors ------------------------------------------------------------------------------------------------------------
