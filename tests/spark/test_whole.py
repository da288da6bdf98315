"""``broadcast`` and ``columns``: the same pairs where a table goes whole to every task, and only what is asked for."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import amounts
import haply as hp
import oracle_position
from haply.engines.spark.exchange.parcels import in_blocks
from haply.errors import HaplyError
from join_kit import check, collect, frame, values

SIDES = ("left", "right")
BAND = "abs(left.x - right.x) <= 0.8"


def sky(spark, count, seed, spread=40.0):
    """Sources with error ellipses around right ascension 0, a null and a source too vague for anything among them."""
    random = np.random.default_rng(seed)
    rows = [
        (k, k % 3, float(ra % 360.0), float(dec), float(major), float(major * share), float(angle))
        for k, (ra, dec, major, share, angle) in enumerate(
            zip(
                random.uniform(-spread, spread, count) / 3600.0,
                random.uniform(-spread, spread, count) / 3600.0,
                random.uniform(0.1, 3.0, count),
                random.uniform(0.3, 1.0, count),
                random.uniform(0.0, 180.0, count),
                strict=True,
            )
        )
    ]
    rows[5] = (5, 2, None, *rows[5][3:])
    rows[7] = (*rows[7][:4], 4e4, 3e4, 0.0)
    table = spark.createDataFrame(
        rows, "id long, band long, ra double, dec double, major double, minor double, pa double"
    )
    return table.select("id", "band", hp.sky.ellipse("ra", "dec", "major", "minor", "pa").alias("pos")).repartition(3)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("left", "right", "on", "threshold"),
    [
        ("normal", "normal", BAND, 0.3),
        ("uniform", "hist", "left.x - right.x BETWEEN -0.5 AND 1.25", 0.2),
        ("discrete", "point", BAND, None),
        ("normal", "mixture", BAND, 0.05),
    ],
)
def test_differences_against_brute_force(spark, left, right, on, threshold, side):
    assert check(spark, values(left, 40, 1), values(right, 30, 2), on, threshold, broadcast=side)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("options", [{"strict": True}, {"probability": "none"}, {"strategy": "pti"}, {"keys": 3}])
def test_differences_in_other_ways(spark, options):
    lefts, rights = values("normal", 50, 3), values("normal", 40, 4)
    assert check(spark, [*lefts, None], [None, *rights], BAND, 0.25, broadcast="right", **options)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("side", SIDES)
def test_positions_against_brute_force(spark, side):
    random = np.random.default_rng(5)
    sides = []
    for count in (60, 45):
        root = random.normal(size=(count, 1, 2, 2)) * 0.4
        mean = random.uniform(0.0, 6.0, (count, 1, 2))
        sides.append([(np.ones(1), m, r @ r.transpose(0, 2, 1)) for m, r in zip(mean, root, strict=True)])
    chance = oracle_position.near(sides[0], sides[1], 1.0)
    kind = "struct<mean:array<double>,cov:array<double>>"
    tables = [
        spark.createDataFrame(
            [(i, (m.ravel().tolist(), s.ravel().tolist())) for i, (_, m, s) in enumerate(these)], f"id long, pos {kind}"
        ).repartition(3)
        for these in sides
    ]
    found = collect(hp.join(*tables, on="distance(left.pos, right.pos) <= 1", threshold=0.1, broadcast=side))
    assert set(found) == {(i, j) for i, j in np.argwhere(chance >= 0.1).tolist()}
    assert len(found) > 20
    assert all(abs(p - chance[pair]) < 1e-8 for pair, p in found.items())


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("more", ["", " AND left.band = right.band", " AND left.band < right.band + 1"])
def test_the_sky_and_its_funnel(spark, more):
    """As by cells: the same pairs, and the same of every count that is not about cells."""
    tables = sky(spark, 300, 6), sky(spark, 200, 7)
    on = f"distance(left.pos, right.pos) <= 1.5{more}"
    names = [f"{name}_{each}" for name in ("rows", "null", "hopeless", "invalid") for each in SIDES]
    found, told = {}, {}
    sides = SIDES if amounts.all_cases else SIDES[1:]
    for side in (None, *sides):
        funnel = hp.Funnel()
        found[side] = collect(hp.join(*tables, on=on, threshold=0.1, funnel=funnel, broadcast=side))
        told[side] = {name: funnel.to_dict()[name] for name in (*names, "kept", "evaluated")}
    assert len(found[None]) > 50
    assert [told[None][name] for name in ("rows_left", "null_left", "hopeless_left")] == [300, 1, 1]
    for side in sides:
        assert found[side] == pytest.approx(found[None], abs=1e-12)
        assert told[side] == told[None]
        assert collect(hp.join(*tables, on=on, threshold=0.1, broadcast=side)) == found[side]


def points(spark, count, seed):
    random = np.random.default_rng(seed)
    cloud = random.uniform(0.0, 8.0, (count, 1, 2)) + 0.3 * random.normal(size=(count, 4, 2))
    rows = [(k, float(k % 7), cloud[k].tolist()) for k in range(count)]
    table = spark.createDataFrame(rows, "id long, t double, points array<array<double>>")
    return table.select("id", "t", hp.samples("points", dim=2).alias("pos"))


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [{}, {"time": "t", "window": 2}, {"self_key": "id"}, {"probability": "none"}], ids=str
)
def test_clouds_windows_and_a_table_with_itself(spark, options):
    one = points(spark, 60, 8)
    other = one if "self_key" in options else points(spark, 50, 9)
    on = "distance(left.pos, right.pos) <= 0.7"
    wanted = collect(hp.join(one, other, on=on, threshold=0.4, **options))
    assert collect(hp.join(one, other, on=on, threshold=0.4, broadcast="right", **options)) == pytest.approx(wanted)
    assert len(wanted) > 20


@pytest.mark.long
def test_several_conditions(spark):
    random = np.random.default_rng(10)
    tables = [
        spark.createDataFrame(
            [(k, float(random.uniform(0, 9)), float(random.uniform(0, 9)), k % 2) for k in range(60)],
            "id long, a double, b double, odd long",
        ).select("id", hp.gaussian("a", 0.3).alias("x"), hp.gaussian("b", 0.4).alias("y"), "odd")
        for _ in range(2)
    ]
    for on in (
        "abs(left.x - right.x) <= 1 AND abs(left.y - right.y) <= 2 AND left.odd = right.odd",
        "abs(left.x + left.y - right.x) <= 1 AND left.y < right.y",
    ):
        wanted = collect(hp.join(*tables, on=on, threshold=0.2))
        assert len(wanted) > 5
        found = hp.join(*tables, on=on, threshold=0.2, broadcast="left", columns=["id_right", "id_left"])
        assert found.columns == ["id_right", "id_left", "probability"]
        assert collect(found) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("side", SIDES)
def test_nobody_there(spark, side):
    full, empty = frame(spark, values("normal", 5, 11)), frame(spark, [])
    pairs = [(empty, full), (full, empty), (empty, empty)]
    for tables in pairs if amounts.all_cases else pairs[1:]:
        funnel = hp.Funnel()
        assert collect(hp.join(*tables, BAND, 0.5, broadcast=side, funnel=funnel)) == {}
        stays = "left" if side == "right" else "right"
        assert funnel.to_dict()[f"rows_{stays}"] == tables[SIDES.index(stays)].count()
        assert collect(hp.join(*tables, BAND, 0.5, broadcast=side)) == {}


@pytest.mark.long
@pytest.mark.parametrize("bad", SIDES)
def test_bad_rows(spark, bad):
    good = spark.createDataFrame([(k, k / 4, 0.2) for k in range(8)], "id long, m double, s double")
    worse = good.withColumn("s", F.when(F.col("id") == 3, -1.0).otherwise(F.col("s")))
    tables = {"left": good, "right": good, bad: worse}
    left, right = (tables[name].select("id", hp.gaussian("m", "s").alias("x")) for name in SIDES)
    wanted = collect(hp.join(left, right, BAND, 0.5, invalid="drop"))
    for side in SIDES:
        with pytest.raises(
            PySparkException, match=f"Column 'x' of the {bad} table has a row that is not a distribution"
        ):
            hp.join(left, right, BAND, 0.5, broadcast=side).collect()
        funnel = hp.Funnel()
        assert collect(hp.join(left, right, BAND, 0.5, broadcast=side, invalid="drop", funnel=funnel)) == wanted
        assert funnel.to_dict()[f"invalid_{bad}"] == 1


def test_blocks_smaller_than_a_partition(spark, monkeypatch):
    """Rows that stay come in blocks, and those that are sent in parcels, of any size."""
    import haply.engines.spark.exchange.broadcast as whole

    random = np.random.default_rng(12)
    batches = [
        whole.pa.RecordBatch.from_pydict({"x": random.normal(size=size)}) for size in (3, 0, 5, 1, 1, 7)
    ]  # fmt: skip
    for rows, sizes in ((1, [3, 5, 1, 1, 7]), (4, [8, 9]), (100, [17])):
        blocks = list(in_blocks(iter(batches), rows))
        assert [sum(batch.num_rows for batch in block) for block in blocks] == sizes
    assert list(in_blocks(iter(batches), size=1)) == [[batch] for batch in batches if batch.num_rows]


# -- columns -----------------------------------------------------------------------------------------------------------


def wide(spark, seed):
    table = frame(spark, values("normal", 30, seed))
    return table.select("id", "x", (F.col("id") % 3).alias("key"), (F.col("id") * 2).alias("Twice"))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("options", [{}, {"broadcast": "left"}, {"self_key": "id"}, {"probability": "none"}], ids=str)
def test_columns_of_the_result(spark, options):
    one = wide(spark, 13)
    other = one if "self_key" in options else wide(spark, 14)
    on = f"{BAND} AND left.key = right.key AND left.Twice + right.Twice > 10"
    probability = [] if "probability" in options else ["probability"]
    whole = hp.join(one, other, on=on, threshold=0.2, **options).collect()
    assert len(whole) > 5
    lists = [["id_left", "id_right"], ["x_right", "Twice_left", "id_left"], ["twice_right", "id_left"], []]
    for columns in lists if amounts.all_cases else lists[2:]:
        found = hp.join(one, other, on=on, threshold=0.2, columns=columns, **options)
        names = [{"twice_right": "Twice_right"}.get(name, name) for name in columns]
        assert found.columns == [*names, *probability]
        wanted = [tuple(row[name] for name in found.columns) for row in whole]
        assert sorted(map(str, map(tuple, found.collect()))) == sorted(map(str, wanted))


def test_columns_that_nobody_needs_are_not_read(spark):
    tables = [wide(spark, seed).withColumn("trap", F.expr("raise_error('read')").cast("int")) for seed in (15, 16)]
    for options in ({}, {"broadcast": "right"}):
        found = hp.join(*tables, BAND, 0.2, columns=["id_left", "id_right"], **options)
        assert len(collect(found)) > 5
    several = "abs(left.x - right.x) <= 1 AND left.x < 4"
    assert collect(hp.join(*tables, several, 0.2, columns=["id_left", "id_right"]))


def test_certain_joins_take_both(spark):
    tables = wide(spark, 17), wide(spark, 18)
    for side in SIDES:
        found = hp.join(*tables, "left.key = right.key", broadcast=side, columns=["id_right"])
        assert found.columns == ["id_right", "probability"]
        assert found.count() == 300


# -- the same in SQL ---------------------------------------------------------------------------------------------------

QUERY = "SELECT {} a.id AS i, b.id AS j, PROB() AS p FROM a, b WHERE abs(a.x - b.x) <= 0.8 WITH THRESHOLD 0.2"


@pytest.mark.long
def test_sql_hints(spark):
    tables = {"a": wide(spark, 19), "b": wide(spark, 20)}
    wanted = collect(hp.join(tables["a"], tables["b"], BAND, 0.2))
    for hint in ("", "/*+ BROADCAST(b) */", "/*+broadcast(`A`)*/", "/*+ MAPJOIN(b) */"):
        found = hp.sql(QUERY.format(hint), **tables)
        assert found.columns == ["i", "j", "p"]
        assert {(row.i, row.j): row.p for row in found.collect()} == pytest.approx(wanted)
        told = hp.plan_sql(QUERY.format(hint), **tables).explain(verbose=True)
        assert ("is sent to every task" in told) == bool(hint)


def test_sql_hints_that_are_wrong(spark):
    tables = {"a": wide(spark, 19), "b": wide(spark, 20)}
    for hint, wrong in {
        "/*+ BROADCAST(c) */": "There is no table 'c'",
        "/*+ SHUFFLE_HASH(b) */": "this hint is not known",
        "/*+ BROADCAST(a, b) */": "BROADCAST is of one table",
        "/*+ BROADCAST */": "BROADCAST names no table",
    }.items():
        with pytest.raises(HaplyError, match="line 1, column") as refusal:
            hp.plan_sql(QUERY.format(hint), **tables)
        assert wrong in str(refusal.value)
    with pytest.raises(HaplyError, match=r"(?s)line 1, column 22.*conditions that hold for values near each other"):
        hp.plan_sql("SELECT /*+ BROADCAST(b) */ a.id FROM a, b WHERE a.x > b.x WITH THRESHOLD 0.5", **tables)
    with pytest.raises(HaplyError, match="BROADCAST is for a join of two tables"):
        hp.plan_sql("SELECT /*+ BROADCAST(a) */ id FROM a WHERE x > 1 WITH THRESHOLD 0.2", **tables)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_refusals(spark):
    one = wide(spark, 21)
    with pytest.raises(HaplyError, match="There is no choice of table to broadcast 'both'"):
        hp.plan_join(one, one, BAND, 0.5, broadcast="both")
    with pytest.raises(HaplyError, match=r"There is no column of the result 'id_lft'.*did you mean 'id_left'"):
        hp.plan_join(one, one, BAND, 0.5, columns=["id_lft"])
    for columns, wrong in (
        ("id_left", "chosen by name. Expected a list of names. Found 'id_left'"),
        ([1], "Found [1]"),
        (["id_left", "ID_left"], "columns names 'ID_left' twice"),
        (["id_left", "probability"], "leave it out: it is always the last"),
    ):
        with pytest.raises(HaplyError, match=re.escape(wrong)):
            hp.plan_join(one, one, BAND, 0.5, columns=columns)
    for on in ("left.x < right.x", "abs(left.x - right.x) > 2"):
        with pytest.raises(HaplyError, match="conditions that hold for values near each other"):
            hp.plan_join(one, one, on, 0.5, broadcast="left")


def test_explain(spark):
    one = wide(spark, 22)
    text = hp.plan_join(one, one, BAND, 0.5, broadcast="left").explain(verbose=True)
    assert "partitioning  none: the left table is sent to every task of the other" in text
    assert "30 x 30 usable rows" in text


# -- what was wrong once -----------------------------------------------------------------------------------------------


def rows_of(spark):
    """Twenty rows with all kinds of columns."""
    return spark.range(20).select(
        "id",
        (F.col("id") % 2).alias("n"),
        F.concat(F.lit("k"), F.col("id") % 2).alias("key"),
        hp.gaussian(F.col("id") / 3, F.lit(0.3)).alias("x"),
        hp.gaussian(F.col("id") * 1.0, F.lit(1.0)).alias("t"),
        hp.gaussian(F.col("id") + 50.0, F.lit(1.0)).alias("u"),
    )


def test_a_table_with_itself_by_certain_conditions(spark):
    one = rows_of(spark)
    assert hp.join(one, one, "left.key = right.key", self_key="id").count() == 200
    assert hp.join(one, one, "left.key = right.key", 1.0, strict=True).count() == 0


@pytest.mark.long
def test_a_row_and_itself_with_uncertain_times(spark):
    one = rows_of(spark)
    pairs = collect(hp.join(one, one, BAND, 0.01, time="t", window=1, self_key="id"))
    assert {pair: p for pair, p in pairs.items() if pair[0] == pair[1]} == {(i, i): 1.0 for i in range(20)}
    unknown = one.withColumn("t", F.when(F.col("id") != 3, F.col("t")))
    found = collect(hp.join(unknown, unknown, BAND, 0.01, time="t", window=1, self_key="id"))
    assert found == pytest.approx({pair: p for pair, p in pairs.items() if 3 not in pair})
    later = collect(hp.join(one, one, "left.x > right.x", 0.01, time="t", window=1, self_key="id"))
    assert later
    assert not any(i == j for i, j in later)
    with pytest.raises(HaplyError, match=r"Expected conditions that each compare a column with itself.*'t' with 'u'"):
        hp.plan_join(one, one, BAND, 0.1, time=("t", "u"), window=1, self_key="id")


@pytest.mark.long
def test_keys_in_letters_of_another_case(spark):
    one = rows_of(spark)
    wanted = collect(hp.join(one, one, BAND, 0.5, self_key="id"))
    found = hp.join(one, one.withColumnRenamed("id", "ID"), BAND, 0.5, self_key="id").collect()
    assert {(row.id_left, row.ID_right): row.probability for row in found} == wanted


@pytest.mark.long
def test_strings_that_are_equal_by_their_collation(spark):
    one = spark.range(6).selectExpr("id", "IF(id % 2 = 0, 'a', 'A') COLLATE UTF8_LCASE AS key")
    one = one.select("id", "key", hp.gaussian(F.lit(1.0), F.lit(0.1)).alias("x"))
    for side in (None, "right"):
        assert hp.join(one, one, f"{BAND} AND left.key = right.key", 0.5, broadcast=side).count() == 36


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("on", [BAND, "distance(left.x, right.x) <= 0.8"])
def test_a_funnel_of_a_join_that_no_row_takes_part_in(spark, on):
    one = rows_of(spark).withColumn("key", F.lit(None).cast("string"))
    for side in (None, "left"):
        funnel = hp.Funnel()
        assert hp.join(one, one, f"{on} AND left.key = right.key", 0.2, broadcast=side, funnel=funnel).count() == 0
        assert (funnel.to_dict()["rows_left"], funnel.to_dict()["rows_right"]) == (20, 20)


def test_times_that_are_no_numbers_are_called_by_their_name(spark):
    one = spark.createDataFrame([(1, 0.0), (2, float("nan"))], "id long, seen double")
    with pytest.raises(PySparkException, match="Column 'seen' of the left table"):
        hp.join(one, one.where("id = 1"), time="seen", window=1).collect()


@pytest.mark.long
def test_a_stream_does_not_go_on_with_other_columns(spark, tmp_path):
    """What is remembered of rows would be read as other columns."""
    one = rows_of(spark).select("id", F.col("id").cast("double").alias("t"), "u", "x")
    one.coalesce(1).write.parquet(str(tmp_path / "rows"))

    def run(columns):
        side = spark.readStream.schema(one.schema).parquet(str(tmp_path / "rows"))
        pairs = hp.join(side, side, BAND, 0.5, time="t", window=9, columns=columns).select("id_left", "id_right")
        writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "pairs")).awaitTermination()

    run(None)
    one.withColumn("id", F.col("id") + 20).coalesce(1).write.mode("append").parquet(str(tmp_path / "rows"))
    with pytest.raises(PySparkException, match="The checkpoint was written by another join"):
        run(["id_left", "id_right"])
    run(None)
    assert spark.read.parquet(str(tmp_path / "pairs")).where("id_left >= 20 AND id_right < 20").count() > 0
