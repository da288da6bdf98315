"""``hp.join`` on Spark against brute force, on plain and on difficult data."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import haply as hp
import oracle
from haply.errors import HaplyError
from haply.probability import Region
from join_kit import REGIONS, check, collect, frame, settings, values


@pytest.mark.parametrize("on", REGIONS)
def test_every_condition_on_gaussians(spark, on):
    check(spark, values("normal", 60, 1), values("normal", 50, 2), on, 0.6)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("point", "normal"),
        ("uniform", "uniform"),
        ("truncated", "hist"),
        ("mixture", "discrete"),
        ("hist", "hist"),
        ("discrete", "discrete"),
    ],
)
def test_kinds_and_mixed_kinds(spark, left, right):
    check(spark, values(left, 25, 3), values(right, 25, 4), "abs(left.x - right.x) <= 0.8", 0.3)


def test_kinds_under_a_comparison(spark):
    check(spark, values("hist", 20, 5), values("uniform", 20, 6), "left.x > right.x", 0.75)


@pytest.mark.parametrize("cells", [2, 8, 200])
@pytest.mark.parametrize("on", ["abs(left.x - right.x) <= 0.8", "left.x > right.x", "abs(left.x - right.x) >= 3"])
def test_any_number_of_cells(spark, cells, on):
    with settings(spark, cells=cells):
        check(spark, values("uniform", 70, 7), values("uniform", 60, 8), on, 0.3)


@pytest.mark.parametrize("on", ["abs(left.x - right.x) <= 0.8", "left.x > right.x", "abs(left.x - right.x) >= 3"])
def test_candidates_by_moments(spark, on):
    """Cells share rows but no pair, whichever index finds the candidates."""
    with settings(spark, cells=8):
        for left, right in (("normal", "normal"), ("mixture", "hist")):
            check(spark, values(left, 70, 7), values(right, 60, 8), on, 0.3, strategy="moments")
    lefts, rights = (frame(spark, values("normal", 40, seed)).withColumn("g", F.expr("id % 3")) for seed in (1, 2))
    keyed = on + " AND left.g = right.g"
    found = collect(hp.join(lefts, rights, keyed, 0.4, strategy="moments"))
    assert found.keys() == collect(hp.join(lefts, rights, keyed, 0.4)).keys() != set()
    assert "index of means and variances" in hp.plan_join(lefts, rights, on, 0.4, strategy="moments").explain()
    flow = spark.readStream.format("rate").load()
    with pytest.raises(HaplyError, match="does not fit"):
        hp.join(flow, flow, "left.value > right.value", 0.5, time="timestamp", window="1 second", strategy="moments")


@pytest.mark.parametrize("strategy", ["pages", "pti"])
@pytest.mark.parametrize("on", ["abs(left.x - right.x) <= 0.8", "left.x > right.x", "abs(left.x - right.x) >= 3"])
def test_pages_and_trees_in_many_cells(spark, strategy, on):
    lefts, rights = values("normal", 50, 7), values("hist", 40, 8)
    with settings(spark, cells=8):
        check(spark, lefts, rights, on, 0.3, strategy=strategy)
    left, right = (frame(spark, side).withColumn("key", F.col("id") % 3) for side in (lefts, rights))
    together = f"{on} AND left.key = right.key"
    found = [collect(hp.join(left, right, together, 0.3, strategy=name)) for name in (strategy, "sweep")]
    assert found[0].keys() == found[1].keys() != set()
    assert "x-bounds" in hp.plan_join(left, right, on, 0.3, strategy=strategy).explain()


def test_strict_and_missing_threshold(spark):
    lefts, rights = values("discrete", 15, 9), values("discrete", 15, 10)
    check(spark, lefts, rights, "abs(left.x - right.x) <= 0.8", 0.25, strict=True)
    check(spark, lefts, rights, "abs(left.x - right.x) <= 0.8", None)
    check(spark, lefts, rights, "abs(left.x - right.x) > 0.8", None)
    check(spark, lefts, rights, "left.x < right.x", 1.0)
    assert not collect(hp.join(frame(spark, lefts), frame(spark, rights), "left.x < right.x", 1.0, strict=True))


def test_empty_sides_one_row_and_nulls(spark):
    some = values("normal", 10, 11)
    nobody = frame(spark, some).where("id < 0")
    for on in ("abs(left.x - right.x) <= 0.8", "left.x > right.x"):
        assert not collect(hp.join(nobody, frame(spark, some), on, 0.5))
        assert not collect(hp.join(frame(spark, some), nobody, on, 0.5))
        assert not collect(hp.join(nobody, nobody, on, 0.5))
    check(spark, some[:1], some, "abs(left.x - right.x) <= 0.8", 0.2)
    gaps = [value if i % 3 else None for i, value in enumerate(some)]
    check(spark, gaps, gaps, "abs(left.x - right.x) <= 0.8", 0.2)
    check(spark, gaps, some, "left.x > right.x", 0.2)


def test_all_rows_in_one_place(spark):
    same = [oracle.Uniform(3.0, 4.0)] * 40
    with settings(spark, rowsPerCell=5):
        found = check(spark, same, same[:30], "abs(left.x - right.x) <= 0.8", 0.5)
    assert len(found) == 1200


def test_one_value_repeated_100_000_times(spark):
    """A heavy value on one side is split; the other side meets every part of it once."""
    heavy = 100_000
    left = spark.range(heavy + 50).select(
        "id", hp.gaussian(F.when(F.col("id") < heavy, 10.0).otherwise(F.col("id") - heavy + 0.5), F.lit(0.1)).alias("x")
    )
    right = spark.range(40).select("id", hp.gaussian(F.col("id") * 1.0, F.lit(0.1)).alias("x"))
    expected = Counter()
    for j in range(40):
        for place, rows in ((10.0, heavy), *((k + 0.5, 1) for k in range(50))):
            if oracle.probability_float(oracle.Normal(place, 0.1), oracle.Normal(float(j), 0.1), -0.6, 0.6) >= 0.5:
                expected[j] += rows
    with settings(spark, rowsPerCell=8_000):
        result = hp.join(left, right, "abs(left.x - right.x) <= 0.6", 0.5)
        found = {
            row["id_right"]: (row["n"], row["d"])
            for row in result.groupBy("id_right")
            .agg(F.count("*").alias("n"), F.count_distinct("id_left").alias("d"))
            .collect()
        }
    assert found == {j: (n, n) for j, n in expected.items()}


def test_wide_rows_among_narrow_ones(spark):
    """A few intervals that span everything meet every cell, and every partner once."""
    rng = np.random.default_rng(12)
    lefts = [oracle.Uniform(float(c), float(c) + 0.5) for c in rng.uniform(0, 100, 80)] + [
        oracle.Uniform(0.0, 100.0)
    ] * 3
    rights = [oracle.Uniform(float(c), float(c) + 0.5) for c in rng.uniform(0, 100, 80)] + [
        oracle.Uniform(-50.0, 150.0)
    ]
    with settings(spark, cells=16):
        check(spark, lefts, rights, "abs(left.x - right.x) <= 0.8", None)
        check(spark, lefts, rights, "left.x > right.x", 0.3)


def test_probability_none_gives_the_same_pairs(spark):
    for kind, on in (
        ("normal", "abs(left.x - right.x) <= 0.8"),
        ("hist", "left.x > right.x"),
        ("uniform", "abs(left.x - right.x) > 0.8"),
    ):
        left, right = frame(spark, values(kind, 40, 13)), frame(spark, values(kind, 40, 14))
        exact = collect(hp.join(left, right, on, 0.6))
        funnel = hp.Funnel()
        pairs = hp.join(left, right, on, 0.6, probability="none", funnel=funnel)
        assert "probability" not in pairs.columns
        assert {(row["id_left"], row["id_right"]) for row in pairs.collect()} == set(exact)
        counts = funnel.to_dict()
        assert counts["candidates"] == counts["evaluated"] + sum(counts["rejected"].values()) + sum(
            counts["accepted"].values()
        )
        assert sum(counts["accepted"].values()) > 0


def test_funnel_counts(spark):
    lefts = [*values("normal", 30, 15), None, oracle.Normal(0.0, 500.0)]
    funnel = hp.Funnel()
    result = hp.join(
        frame(spark, lefts), frame(spark, values("normal", 20, 16)), "abs(left.x - right.x) <= 0.8", 0.5, funnel=funnel
    )
    assert "empty" in str(funnel)
    kept = result.count()
    counts = funnel.to_dict()
    assert counts["kept"] == kept
    assert counts["pairs_possible"] == 32 * 20
    assert counts["null_left"] == 1
    assert counts["hopeless_left"] >= 1
    assert counts["invalid_left"] == counts["invalid_right"] == counts["pages_read"] == counts["pages_total"] == 0
    assert counts["candidates"] == counts["evaluated"] + sum(counts["rejected"].values())
    assert "kept" in str(funnel)
    result.count()
    assert funnel.to_dict()["kept"] == kept, "a second action must not count twice"


def test_certain_conditions_are_pushed_down(spark):
    rng = np.random.default_rng(17)
    n = 80
    data = pd.DataFrame(
        {
            "id": range(n),
            "site": rng.choice(["a", "b", "c", None], n),
            "m": rng.normal(0, 2, n),
            "k": rng.integers(0, 3, n),
        }
    )
    table = spark.createDataFrame(
        data.astype(object).where(data.notna(), None), "id long, site string, m double, k int"
    )
    table = table.withColumn("x", hp.gaussian("m", F.lit(0.5)))
    gaussians = [oracle.Normal(float(m), 0.5) for m in data.m]
    for on, region in (
        ("abs(left.x - right.x) <= 0.8", REGIONS["abs(left.x - right.x) <= 0.8"]),
        ("left.x > right.x", REGIONS["left.x > right.x"]),
    ):
        text = f"{on} AND left.site = right.site AND left.id < right.id AND left.k > 0"
        text += " AND right.k + 0 <= 1 AND left.k = right.id % 3"
        found = collect(hp.join(table, table, text, 0.6))
        everything = oracle.brute_force_join(
            gaussians, gaussians, region.low, region.high, region.low_closed, region.high_closed, region.outside, 0.6
        )
        wanted = {
            (i, j)
            for i, j in everything
            if data.site[i] is not None
            and data.site[i] == data.site[j]
            and i < j
            and data.k[i] > 0
            and data.k[j] <= 1
            and data.k[i] == j % 3
        }
        assert set(found) == wanted
        assert wanted


def test_python_and_text_conditions_are_one(spark):
    left, right = frame(spark, values("normal", 20, 18)), frame(spark, values("normal", 20, 19))
    by_text = collect(hp.join(left, right, "ABS(Left.x - RIGHT.x) <= 0.8 and left.id <> right.id", 0.4))
    by_python = collect(hp.join(left, right, (abs(hp.left.x - hp.right.x) <= 0.8) & (hp.left.id != hp.right.id), 0.4))
    assert by_text == by_python


def test_certain_band_join_needs_no_threshold(spark):
    left = spark.range(50).select("id", (F.col("id") * 0.5).alias("t"))
    right = spark.range(50).select("id", (F.col("id") * 0.7).alias("t"))
    found = collect(hp.join(left, right, "abs(left.t - right.t) <= 1"))
    assert set(found) == {(i, j) for i in range(50) for j in range(50) if abs(i * 0.5 - j * 0.7) <= 1}
    assert set(found.values()) == {1.0}
    named = hp.join(left, right, "left.id = right.id + 1")
    assert collect(named) == {(i + 1, i): 1.0 for i in range(49)}


def test_self_join_sees_a_row_as_itself(spark):
    rows = [*values("normal", 20, 20), oracle.Normal(0.0, 100.0)]
    table = frame(spark, rows)
    for on, itself in (("abs(left.x - right.x) <= 0.8", 1.0), ("left.x > right.x", None), ("left.x >= right.x", 1.0)):
        found = collect(hp.join(table, table, on, 0.8, self_key="id"))
        region = REGIONS.get(on, Region(0.0, math.inf))
        wanted = oracle.brute_force_join(
            rows, rows, region.low, region.high, region.low_closed, region.high_closed, region.outside, 0.8,
            same=lambda i, j: i == j,
        )  # fmt: skip
        assert set(found) == set(wanted)
        assert found.get((20, 20)) == itself
    unaware = collect(hp.join(table, table, "abs(left.x - right.x) <= 0.8", 0.8))
    assert (20, 20) not in unaware


def test_output_columns(spark):
    left = spark.createDataFrame([(1, 2.0, "a")], "id int, x double, only_left string")
    right = spark.createDataFrame([(7, 2.5, 0.5)], "id int, x double, probability double")
    result = hp.join(left, right, "abs(left.x - right.x) <= 1", suffixes=("_l", "_r"))
    assert result.columns == ["id_l", "x_l", "only_left", "id_r", "x_r", "probability_r", "probability"]
    assert result.collect()[0].asDict() == {
        "id_l": 1, "x_l": 2.0, "only_left": "a", "id_r": 7, "x_r": 2.5, "probability_r": 0.5, "probability": 1.0,
    }  # fmt: skip
    with pytest.raises(HaplyError, match="would have one name"):
        hp.join(left, right, "abs(left.x - right.x) <= 1", suffixes=("", ""))


def test_building_a_join_runs_no_job(spark):
    """Lazy: a frame whose computation fails can be joined, and fails only when the result is asked for."""
    broken = spark.range(3).select(
        "id", hp.gaussian(F.raise_error(F.lit("computed!")).cast("double"), F.lit(1.0)).alias("x")
    )
    good = frame(spark, values("normal", 3, 21))
    result = hp.join(good, broken, "abs(left.x - right.x) <= 1", 0.5)
    assert result.columns == ["id_left", "x_left", "id_right", "x_right", "probability"]
    with pytest.raises(Exception, match="computed!"):
        result.collect()


BAD = {
    "gaussian": (
        "struct<mean:double,sd:double>",
        [(0.0, -1.0, "sd < 0"), (math.nan, 1.0, "mean is NaN or infinite"), (0.0, math.inf, "sd is NaN or infinite")],
        (0.0, 1.0),
    ),
    "uniform": (
        "struct<lo:double,hi:double>",
        [(2.0, 1.0, "lo > hi"), (-math.inf, 1.0, "lo is NaN or infinite")],
        (0.0, 1.0),
    ),
    "truncated": (
        "struct<mean:double,sd:double,lo:double,hi:double>",
        [(0.0, 1.0, 2.0, 1.0, "lo > hi"), (0.0, -1.0, 0.0, 1.0, "sd < 0")],
        (0.0, 1.0, -1.0, 1.0),
    ),
    "mixture": (
        "struct<weights:array<double>,means:array<double>,sds:array<double>>",
        [
            ([0.5, 0.6], [0.0, 1.0], [1.0, 1.0], "weights not summing to 1"),
            ([1.5, -0.5], [0.0, 1.0], [1.0, 1.0], "weights negative"),
            ([1.0], [0.0, 1.0], [1.0], "lengths disagree"),
            ([1.0], [0.0], [-1.0], "sds negative"),
            ([1.0], [math.nan], [1.0], "means is NaN or infinite"),
        ],
        ([1.0], [0.0], [1.0]),
    ),
    "histogram": (
        "struct<edges:array<double>,probs:array<double>>",
        [
            ([0.0, 0.0], [1.0], "edges not increasing"),
            ([0.0, 1.0], [0.9], "probs not summing to 1"),
            ([0.0, 1.0, 2.0], [1.0], "lengths disagree"),
            ([0.0, 1.0, 2.0], [1.5, -0.5], "probs negative"),
        ],
        ([0.0, 1.0], [1.0]),
    ),
    "samples": (
        "struct<points:array<double>,probs:array<double>,dim:int>",
        [
            ([1.0, 2.0], [1.0], 1, "lengths disagree"),
            ([], None, 1, "points is empty"),
            ([1.0, 2.0], [0.9, 0.2], 1, "probs not summing to 1"),
        ],
        ([1.0, 2.0], None, 1),
    ),
    "certain": ("double", [(math.nan, "values is NaN or infinite"), (math.inf, "values is NaN or infinite")], (0.5,)),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_rows(spark, kind):
    """Raised with column, reason and example; dropped and counted; listed by check. Nulls are not bad."""
    schema, bad, good = BAD[kind]
    single = kind == "certain"
    rows = [(i, row[0] if single else row[:-1]) for i, row in enumerate(bad)]
    rows += [(100, good[0] if single else good), (101, None)]
    table = spark.createDataFrame(rows, f"id long, value {schema}")
    listed = {row["id"]: row["reason"] for row in hp.check(table, "value").collect()}
    assert listed == {i: row[-1] for i, row in enumerate(bad)}
    other = spark.createDataFrame([(1, (0.5, 0.1))], "id long, value struct<mean:double,sd:double>")
    with pytest.raises(PySparkException) as caught:
        hp.join(other, table.where("id = 0 OR id = 100"), "abs(left.value - right.value) <= 2", 0.1).collect()
    assert "Column 'value' of the right table has a row that is not a distribution" in str(caught.value)
    assert bad[0][-1] in str(caught.value)
    funnel = hp.Funnel()
    result = hp.join(table, other, "abs(left.value - right.value) <= 3", 0.01, invalid="drop", funnel=funnel)
    assert [row["id_left"] for row in result.collect()] == [100]
    assert funnel.to_dict()["invalid_left"] == len(bad)
    assert funnel.to_dict()["null_left"] == 1


def test_errors_before_any_data_is_read(spark):
    left = frame(spark, values("normal", 2, 22)).withColumn("name", F.lit("a"))
    ok = "abs(left.x - right.x) <= 1"
    for call, text in (
        (lambda: hp.join(left, left, "abs(left.y - right.x) <= 1", 0.5), "no column in the left table called 'y'"),
        (lambda: hp.join(left, left, "abs(left.nme - right.x) <= 1", 0.5), "did you mean 'name'"),
        (lambda: hp.join(left, left, "abs(x - right.x) <= 1", 0.5), "left"),
        (lambda: hp.join(left, left, ok, 1.5), "threshold is not a probability"),
        (lambda: hp.join(left, left, ok, 0.0), "threshold is not a probability"),
        (lambda: hp.join(left, left, ok), "give threshold="),
        (lambda: hp.join(left, left, None, 0.5), "no condition"),
        (lambda: hp.join(left, left, ok, 0.5, probability="exakt"), "did you mean 'exact'"),
        (lambda: hp.join(left, left, ok, 0.5, invalid="ignore"), "no choice of invalid 'ignore'"),
        (lambda: hp.join(left, left, ok, 0.5, strategy="swep"), "did you mean 'sweep'"),
        (lambda: hp.join(left, left, ok, 0.5, strategy="grid"), "does not fit"),
        (lambda: hp.join(left, left, ok, 0.5, self_key="idd"), "did you mean 'id'"),
        (lambda: hp.join(left, left, "abs(left.x - right.x) <= -1", 0.5), "negative"),
        (lambda: hp.join(left, left, "abs(left.x - right.x) <=", 0.5), "line 1"),
        (lambda: hp.join(left, left, "left.x > right.x OR left.id = 1", 0.5), "left.x"),
        (lambda: hp.join(left, left, "abs(left.name - right.x) <= 1", 0.5), "name"),
        (lambda: hp.check(left, "idx"), "did you mean 'id'"),
        (lambda: hp.check(left, "name"), "holds no uncertain values"),
    ):
        with pytest.raises(HaplyError, match=text):
            call()
        with pytest.raises(ValueError, match=text):
            call()


def test_explain_tells_the_plan(spark):
    left, right = frame(spark, values("normal", 40, 23)), frame(spark, values("uniform", 30, 24))
    text = hp.plan_join(left, right, "abs(left.x - right.x) <= 0.8 AND left.id < right.id", 0.7).explain()
    for part in (
        "gaussian",
        "uniform",
        "P >= 0.7",
        "core regions",
        "cascade",
        "cells",
        "candidate pairs",
        "left.id < right.id",
    ):
        assert part in text
    sure = hp.plan_join(left, right, "left.x > right.x", 0.7).explain()
    assert "sure" in sure
    plan = hp.plan_join(left, right, "left.x > right.x", 0.7)
    assert collect(plan.run()) == collect(hp.join(left, right, "left.x > right.x", 0.7))


def test_results_join_again_and_survive_parquet(spark, tmp_path):
    left, right = frame(spark, values("hist", 10, 25)), frame(spark, values("hist", 10, 26))
    first = hp.join(left, right, "abs(left.x - right.x) <= 2", 0.3)
    first.write.parquet(str(tmp_path / "pairs"))
    again = (
        spark.read.parquet(str(tmp_path / "pairs")).withColumnRenamed("id_left", "pair").drop("probability", "id_right")
    )
    assert hp.join(again, right, "abs(left.x_left - right.x) <= 2", 0.3).count() >= first.count()
