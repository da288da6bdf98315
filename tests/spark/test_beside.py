"""A stream beside a table: each event is answered as if the stream were a table."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import amounts
import haply as hp
from haply.errors import HaplyError

BAND = "abs(left.x - right.x) <= 0.8"
TYPES = (
    "id long, kind string, t double, x struct<mean:double,sd:double>, xy struct<mean:array<double>,cov:array<double>>"
)


def rows(seed, count):
    rng = np.random.default_rng(seed)

    def maybe(value):
        return None if rng.random() < 0.1 else value

    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "kind": pa.array([maybe(str(rng.choice(["a", "b"]))) for _ in range(count)]),
            "t": rng.integers(0, 30, count).astype(float),
            "x": pa.array(
                [maybe({"mean": float(rng.uniform(-6, 6)), "sd": float(rng.uniform(0, 0.6))}) for _ in range(count)]
            ),
            "xy": pa.array(
                [{"mean": rng.uniform(-4, 4, 2).tolist(), "cov": [0.2, 0.0, 0.0, 0.3]} for _ in range(count)]
            ),
        }
    )


@pytest.fixture(scope="module")
def events():
    return rows(1, 60)


@pytest.fixture
def stream(spark, events, tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    for part in range(3):
        pq.write_table(events.slice(20 * part, 20), folder / f"{part}.parquet")
    return spark.readStream.schema(TYPES).option("maxFilesPerTrigger", 1).parquet(str(folder))


def answered(spark, query, folder, name):
    """All that a stream returns until it has read its files."""
    running = (
        query.writeStream.format("memory").queryName(name).option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert running.awaitTermination(300)
    return spark.table(name).toArrow()


def bag(table):
    return Counter(tuple(map(repr, row.values())) for row in table.to_pylist())


def rounded(table):
    """Rows with numbers that engines may round differently."""

    def about(value):
        if isinstance(value, list):
            return [round(part, 8) for part in value]
        return value if value is None else round(value, 8)

    for at, name in enumerate(table.column_names):
        if name.startswith(("probability", "p_any", "p_match", "bayes_", "expected_", "sd_", "matches_")):
            values = list(map(about, table[name].to_pylist()))
            table = table.set_column(at, name, pa.array(values, table.schema.field(name).type))
    return bag(table)


CASES = {
    "inner": (BAND, 0.4, {}),
    "left": (f"{BAND} AND left.kind = right.kind AND left.id < right.id", 0.4, {"how": "left"}),
    "anti": ("distance(left.xy, right.xy) <= 1", 0.4, {"how": "anti"}),
    "greater": ("left.x > right.x AND left.kind = 'a'", 0.9, {"how": "left", "keep": "best_left", "k": 2}),
    "windowed": (BAND, 0.4, {"time": "t", "window": 5.0}),
}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("name", CASES)
def test_every_event_is_answered_as_in_a_table(spark, events, stream, tmp_path, name):
    other = rows(2, 50)
    on, threshold, options = CASES[name]
    query = hp.join(stream, spark.createDataFrame(other), on, threshold, **options)
    found = answered(spark, query, tmp_path, f"beside_{name}")
    wanted = hp.join(events, other, on, threshold, **options)
    assert found.column_names == wanted.column_names
    assert rounded(found) == rounded(wanted)
    assert found.num_rows


def test_the_matches_of_each_event_are_counted(spark, events, stream, tmp_path):
    other = rows(8, 40)
    table = spark.createDataFrame(other)
    cases = {
        "all": (BAND, {"distribution": True, "quantiles": [0.5]}),
        "likely": (f"{BAND} AND left.kind = right.kind", {"threshold": 0.3, "columns": ["id"]}),
        "certain": ("left.kind = right.kind AND left.id < right.id", {"columns": ["id", "kind"]}),
    }
    for name in cases if amounts.all_cases else ("all", "certain"):
        on, options = cases[name]
        found = answered(spark, hp.count_matches(stream, table, on, **options), tmp_path, f"counted_{name}")
        wanted = hp.count_matches(events, other, on, **options)
        assert found.column_names == wanted.column_names
        assert rounded(found) == rounded(wanted), name
        assert found.num_rows


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("name", "same", "options"),
    [
        ("left", "x", {"density": 2.0, "how": "left", "threshold": 0.3, "on": "left.kind = right.kind"}),
        ("best", "xy", {"density": hp.density(area=64.0), "keep": "best_left"}),
        ("anti", "x", {"density": "t1", "how": "anti", "threshold": 0.5}),
    ],
)
def test_each_event_is_matched_with_the_table(spark, events, stream, tmp_path, name, same, options):
    """As if the stream were a table: no event is weighed against another."""
    other = rows(8, 40)
    if options["density"] == "t1":
        stream, events = stream.selectExpr("*", "t + 1 AS t1"), events.append_column("t1", pc.add(events["t"], 1.0))
    table = spark.createDataFrame(other)
    asked = options | {"completeness": 0.7}
    found = answered(spark, hp.match(stream, table, same, **asked), tmp_path, f"matched_{name}")
    wanted = hp.match(events, other, same, **asked)
    assert found.column_names == wanted.column_names
    assert rounded(found) == rounded(wanted)
    assert found.num_rows > 5


def test_matches_in_an_indexed_table_are_counted_page_by_page(spark, events, stream, tmp_path):
    rng = np.random.default_rng(9)
    many = pa.table({"x": pa.array([{"mean": float(m), "sd": 0.1} for m in rng.uniform(-2000, 2000, 20_000)])})
    path = str(tmp_path / "index")
    hp.build_index(many, "x", path, page_rows=100)
    funnel = hp.Funnel()
    query = hp.count_matches(stream, hp.read_index(path, spark), BAND, columns=["id"], funnel=funnel)
    found = answered(spark, query, tmp_path, "counted_index")
    assert rounded(found) == rounded(hp.count_matches(events, many, BAND, columns=["id"]))
    patience = time.monotonic() + 60
    while funnel.to_dict()["rows_left"] < events.num_rows and time.monotonic() < patience:
        time.sleep(0.2)
    counts = funnel.to_dict()
    assert 0 < counts["pages_read"] < 0.05 * counts["pages_total"]


def test_the_last_event_before_each_row_of_a_stream(spark, events, stream, tmp_path):
    other = rows(10, 40)
    table = spark.createDataFrame(other)
    cases = {
        "certain": ("t", {"by": "kind", "lookback": 6.0}),
        "uncertain": ("x", {"by": ["kind"], "keep": "all"}),
        "likely": (("x", "t"), {"how": "inner", "threshold": 0.6, "direction": "forward"}),
        "alone": ("t", {"by": "kind", "lookback": 1.0, "how": "anti"}),
    }
    for name in cases if amounts.all_cases else ("uncertain", "likely"):
        times, options = cases[name]
        found = answered(spark, hp.asof(stream, table, times, **options), tmp_path, f"asof_{name}")
        wanted = hp.asof(events, other, times, **options)
        assert found.column_names == wanted.column_names
        assert rounded(found) == rounded(wanted), name
        assert found.num_rows


def test_the_stream_may_be_the_right_side_and_the_table_empty(spark, events, stream, tmp_path):
    other = rows(3, 20)
    found = answered(spark, hp.join(spark.createDataFrame(other), stream, BAND, 0.4, how="right"), tmp_path, "right")
    assert rounded(found) == rounded(hp.join(other, events, BAND, 0.4, how="right"))
    nobody = spark.createDataFrame(other).where("id < 0")
    alone = answered(spark, hp.join(stream, nobody, BAND, 0.4, how="anti"), tmp_path, "nobody")
    assert alone.num_rows == events.num_rows


def test_an_indexed_table_is_read_page_by_page(spark, events, stream, tmp_path):
    rng = np.random.default_rng(5)
    many = pa.table(
        {
            "name": pa.array(range(20_000), pa.int64()),
            "x": pa.array([{"mean": float(m), "sd": 0.1} for m in rng.uniform(-2000, 2000, 20_000)]),
        }
    )
    path = str(tmp_path / "index")
    hp.build_index(many, "x", path, page_rows=100)
    funnel = hp.Funnel()
    query = hp.join(stream, hp.read_index(path, spark), BAND, 0.4, how="left", columns=["id", "name"], funnel=funnel)
    found = answered(spark, query, tmp_path, "indexed")
    assert bag(found) == bag(hp.join(events, many, BAND, 0.4, how="left", columns=["id", "name"]))
    patience = time.monotonic() + 60
    while funnel.to_dict()["rows_left"] < events.num_rows and time.monotonic() < patience:
        time.sleep(0.2)
    counts = funnel.to_dict()
    assert counts["rows_left"] == events.num_rows
    assert 0 < counts["pages_read"] < 0.05 * counts["pages_total"]


def test_explain_and_words_of_errors(spark, stream):
    table = spark.createDataFrame(rows(4, 5))
    said = hp.plan_join(stream, table, BAND, 0.4).explain()
    assert "Each micro-batch is answered from the whole table, without state." in said
    for sides, options, words in (
        ((stream, table), {"how": "outer"}, "how='outer' asks for rows of the right table without a partner"),
        ((table, stream), {"how": "left"}, "how='left' asks for rows of the left table without a partner"),
        ((stream, table), {"keep": "mutual"}, "keep='mutual' asks for the best event of each row of the right table"),
        ((stream, table), {"broadcast": "right"}, "A table that is joined with a stream is sent to every task anyway"),
        ((stream, table), {"columns": ["nothing"]}, "no column of the result 'nothing'"),
    ):
        with pytest.raises(HaplyError) as caught:
            hp.join(*sides, BAND, 0.4, **options)
        assert words in str(caught.value)
    with pytest.raises(HaplyError, match="Without a threshold every pair is possible"):
        hp.join(stream, table, BAND)


def test_words_of_counts_and_last_events_of_streams(spark, stream):
    table = spark.createDataFrame(rows(4, 5))
    said = hp.plan_asof(stream, table, "t").explain()
    assert "the right table is sent to every task in each micro-batch" in said
    for ask, words in (
        (lambda: hp.match(table, stream, "x", density=1.0, completeness=0.5), "all events of the right stream"),
        (lambda: hp.match(stream, stream, "x", density=1.0, completeness=0.5), "not looked for in a second stream"),
        (
            lambda: hp.match(stream, table, "x", density=1.0, completeness=0.5, exclusive=True),
            "exclusive=True weighs all events of the stream against each other",
        ),
        (lambda: hp.count_matches(table, stream, BAND), "counted in the whole right stream, which never ends"),
        (lambda: hp.count_matches(stream, table, BAND, by="kind"), "by= asks about groups of all events"),
        (lambda: hp.count_matches(stream, stream, BAND), "Matches in a second stream are not counted"),
        (lambda: hp.count_matches(stream, table, "left.x > nothing"), "'nothing' names no table"),
        (lambda: hp.asof(table, stream, "t"), "looked for in the whole right stream, which never ends"),
        (lambda: hp.asof(stream, stream, "t"), "The last event is not looked for in a second stream"),
        (lambda: hp.asof(stream, table, "t", how="outer"), "how='outer' asks for rows of the right table"),
    ):
        with pytest.raises(HaplyError) as caught:
            ask()
        assert words in str(caught.value)


STATEMENTS = {
    "pairs": "SELECT e.id, t.id AS other, PROB() FROM e JOIN t ON abs(e.x - t.x) <= 0.8 WITH THRESHOLD 0.4",
    "alone": "SELECT e.* FROM e ANTI JOIN t ON DISTANCE(e.xy, t.xy) <= 1 AND e.kind = t.kind WITH THRESHOLD 0.4",
    "windowed": "SELECT upper(e.kind) AS k, t.x.mean AS m, PROB() AS probability FROM t RIGHT JOIN e "
    "ON abs(GAUSSIAN(e.t, 1) - t.t) <= 2 AND WINDOW(e, t) = 5 WHERE e.id > 3 WITH THRESHOLD 0.2",
    "counted": "SELECT e.id, P_ANY() AS p_any FROM e LEFT JOIN t ON abs(e.x - t.x) <= 0.8 GROUP BY e",
    "last": "SELECT e.id, t.id AS other, PROB() AS probability FROM e ASOF JOIN t ON e.kind = t.kind AND t.x <= e.x",
}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("name", STATEMENTS)
def test_sql_answers_a_stream_beside_a_table(spark, events, stream, tmp_path, name):
    other, query = rows(6, 50), STATEMENTS[name]
    table = spark.createDataFrame(other)
    found = answered(spark, hp.sql(query, e=stream, t=table, time="t"), tmp_path, f"sql_{name}")
    wanted = hp.sql(query, e=events, t=other, time="t")
    assert found.column_names == wanted.column_names
    assert rounded(found) == rounded(wanted)
    assert found.num_rows


def test_words_of_sql_beside_a_stream(spark, stream):
    table = spark.createDataFrame(rows(7, 5))
    plan = hp.plan_sql("SELECT * FROM e JOIN t ON abs(e.x - t.x) <= 0.8 WITH THRESHOLD 0.4", e=stream, t=table)
    assert "Each micro-batch is answered from the whole table, without state." in plan.explain()
    for query, words in (
        ("SELECT * FROM t LEFT JOIN e ON abs(e.x - t.x) <= 0.8 WITH THRESHOLD 0.4", "how='left' asks for rows of the"),
        ("SELECT * FROM e JOIN t ON abs(e.x - t.x) <= 0.8", "Without a threshold every pair is possible"),
        ("SELECT * FROM t JOIN e ON SAME(t.x, e.x) WITH DENSITY 1 COMPLETENESS .5", "all events of the right stream"),
        ("SELECT * FROM t LEFT JOIN e ON abs(e.x - t.x) <= 0.8 GROUP BY t", "in the whole right stream"),
        ("SELECT * FROM t ASOF JOIN e ON e.t <= t.t", "in the whole right stream"),
    ):
        with pytest.raises(HaplyError) as caught:
            hp.sql(query, e=stream, t=table)
        assert str(caught.value).startswith("line 1, column ")
        assert words in str(caught.value)
