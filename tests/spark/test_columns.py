"""The column constructors: names, columns, numbers and lists in; plain structs out."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from pyspark.sql import functions as F

import haply as hp
from haply.engines.spark.types import field_from
from haply.errors import HaplyError
from haply.models import (
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    MixtureND,
    Samples,
    TruncatedGaussian,
    Uniform,
)


@pytest.fixture(scope="module")
def numbers(spark):
    return spark.createDataFrame(
        [(1, 2.0, [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]), (3, None, None, None)],
        "a int, b double, list array<double>, nested array<array<double>>",
    )


def test_constructors_make_the_documented_structs(numbers):
    made = {
        "uniform": (hp.uniform("a", F.col("a") + 1), Uniform, {"lo": 1.0, "hi": 2.0}),
        "gaussian": (hp.gaussian("a", 0.5), Gaussian, {"mean": 1.0, "sd": 0.5}),
        "truncated": (
            hp.truncated_gaussian("a", 1, 0, F.lit(5)),
            TruncatedGaussian,
            {"mean": 1.0, "sd": 1.0, "lo": 0.0, "hi": 5.0},
        ),
        "mixture": (
            hp.mixture([0.5, 0.5], ["a", 4], [1, "a"]),
            Mixture,
            {"weights": [0.5, 0.5], "means": [1.0, 4.0], "sds": [1.0, 1.0]},
        ),
        "histogram": (
            hp.histogram([0, "a", 3], [0.25, 0.75]),
            Histogram,
            {"edges": [0.0, 1.0, 3.0], "probs": [0.25, 0.75]},
        ),
        "samples": (hp.samples("list"), Samples, {"points": [1.0, 2.0], "probs": None, "dim": 1}),
        "weighted": (hp.samples([1, 2], [0.5, 0.5]), Samples, {"points": [1.0, 2.0], "probs": [0.5, 0.5], "dim": 1}),
        "nested": (hp.samples("nested"), Samples, {"points": [1.0, 2.0, 3.0, 4.0], "probs": None, "dim": 2}),
        "listed": (
            hp.samples([["a", 2], [3, 4]], dim=2),
            Samples,
            {"points": [1.0, 2.0, 3.0, 4.0], "probs": None, "dim": 2},
        ),
        "flat": (hp.samples("list", dim=2), Samples, {"points": [1.0, 2.0], "probs": None, "dim": 2}),
        "gaussian_nd": (
            hp.gaussian_nd(["a", 2], sd=[1, 2], corr=0.5),
            GaussianND,
            {"mean": [1.0, 2.0], "cov": [1.0, 1.0, 1.0, 4.0]},
        ),
        "by_cov": (
            hp.gaussian_nd(["a", 2], cov=[[1, 0], [0, 1]]),
            GaussianND,
            {"mean": [1.0, 2.0], "cov": [1.0, 0.0, 0.0, 1.0]},
        ),
        "mixture_nd": (
            hp.mixture_nd([1], [0, 0], [1, 0, 0, 1]),
            MixtureND,
            {"weights": [1.0], "means": [0.0, 0.0], "covs": [1.0, 0.0, 0.0, 1.0]},
        ),
        "latency": (
            hp.latency(100, [0, 10, 40], [0.6, 0.4]),
            Histogram,
            {"edges": [60.0, 90.0, 100.0], "probs": [0.4, 0.6]},
        ),
    }
    frame = numbers.select("a", *(column.alias(name) for name, (column, _, _) in made.items()))
    row = frame.where("a = 1").collect()[0]
    for name, (_, model, wanted) in made.items():
        assert field_from("x", frame.schema[name].dataType).model is model
        assert row[name].asDict() == wanted
    assert field_from("x", frame.schema["a"].dataType).model is Certain


def test_an_unknown_parameter_makes_the_value_null(numbers):
    frame = numbers.select(
        "a", hp.gaussian("b", 1.0).alias("x"), hp.samples("list").alias("s"), hp.samples("nested").alias("n")
    )
    row = frame.where("a = 3").collect()[0]
    assert row["x"] is None
    assert row["s"] is None
    assert row["n"] is None
    assert hp.check(frame, "x").count() == 0
    assert hp.check(frame, "s").count() == 0


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("name", ["m", "M", "a b", "s.m", "`d.e`", "`q``r`", "${v}", "select"])
def test_any_name_will_do(spark, name):
    """Spark replaces ``${v}`` wherever it reads SQL."""
    plain, two = name.strip("`").replace("``", "`"), F.lit(2)
    values = spark.range(1).select(F.struct(two.alias("m")).alias("s") if name == "s.m" else two.alias(plain))
    for mean in (name, F.col(name)):
        (row,) = values.select(hp.gaussian(mean, 1e-300).alias("x")).collect()
        assert (row.x.mean, row.x.sd) == (2.0, 1e-300)
    if name != "s.m":
        other = spark.range(1).select(hp.gaussian(F.lit(2.0), F.lit(1.0)).alias("y"))
        pairs = hp.join(values.withColumn("x", hp.gaussian(name, 1.0)), other, hp.left.x < hp.right.y, 0.1)
        assert pairs.columns == [plain, "x", "y", "probability"]


def test_impossible_arguments(spark):
    with pytest.raises(HaplyError, match="differ in dimension"):
        hp.samples([[1, 2], [3]])
    with pytest.raises(HaplyError, match="differ in dimension"):
        hp.samples([[1, 2]], dim=3)
    with pytest.raises(HaplyError, match="either sd or cov"):
        hp.gaussian_nd(["a", "b"])
    with pytest.raises(HaplyError, match="two dimensions"):
        hp.gaussian_nd(["a", "b", "c"], sd=[1, 1, 1], corr=0.5)


@pytest.mark.parametrize(
    ("edges", "probs", "text"),
    [
        ([0, 20, 10], [0.5, 0.5], "edges not increasing"),
        ([40, 20, 0], [0.5, 0.5], "edges not increasing"),
        (np.array([0, 10, 20]), [0.5, 0.6], "probs not summing to 1"),
        ([0, 10, 20], [1], "lengths disagree"),
    ],
)
def test_impossible_buckets_are_refused_before_any_data_is_read(edges, probs, text):
    for make in (hp.histogram, partial(hp.latency, "seen")):
        with pytest.raises(HaplyError, match=text):
            make(edges, probs)


@pytest.mark.long
def test_check_finds_bad_covariances(spark):
    frame = spark.range(2).select(
        "id", hp.gaussian_nd([0, 0], cov=[1, F.col("id") * 2, F.col("id") * 2, 1]).alias("pos")
    )
    assert [(row["id"], row["reason"]) for row in hp.check(frame, "pos").collect()] == [
        (1, "cov not symmetric positive semidefinite")
    ]


def test_a_covariance_may_be_a_column_of_nested_arrays(spark):
    matrices = {
        1: [[1.0, 0.5], [0.5, 2.0]],
        2: None,
        3: [[1.0, 0.5], None],
        4: [[1.0, 0.5], [0.5]],
        5: [[4.0, 0.0], [0.0, 1.0]],
    }
    table = spark.createDataFrame(
        [(row, [0.0, 1.0], cov) for row, cov in matrices.items()], "id int, m array<float>, c array<array<double>>"
    )
    for cov in ("c", F.col("c")):
        points = table.select("id", hp.gaussian_nd("m", cov=cov).alias("pos"))
        found = {row.id: row.pos and row.pos.cov for row in points.collect()}
        assert found == {1: [1.0, 0.5, 0.5, 2.0], 2: None, 3: None, 4: [1.0, 0.5, 0.5], 5: [4.0, 0.0, 0.0, 1.0]}
    assert [row.id for row in hp.check(points, "pos").collect()] == [4]
    flat = spark.createDataFrame([([0.0, 1.0], [1, 0, 0, 2])], "m array<double>, c array<int>")
    assert flat.select(hp.gaussian_nd("m", cov="c").cov).collect() == [([1.0, 0.0, 0.0, 2.0],)]


def test_one_number_is_no_probabilities():
    with pytest.raises(HaplyError, match=r"probs of samples are one number.*Found 3.*dim=3"):
        hp.samples("points", 3)


def test_error_columns_are_named_or_given_as_columns_and_numbers(spark):
    """What they mean is tested on both engines; here, that each way to name an argument makes the same struct."""
    table = spark.createDataFrame(
        [(52.6, 13.5, 4.0, "1.5(2)"), (None, None, None, None)], "a double, b double, `my n` double, t string"
    )
    origin = (52.5, 13.4)
    ways = {
        "measured": [hp.measured("a", "b", 0.9), hp.measured(F.col("a"), F.col("b"), level=0.9)],
        "certain level": [hp.measured(52.6, 13.5), hp.measured(F.lit(52.6), np.float64(13.5))],
        "rounded": [hp.rounded("a", 0.1), hp.rounded(F.col("a"), F.lit("0.1")), hp.rounded(table.a, np.float64(0.1))],
        "quantiles": [
            hp.quantiles([0, 0.5, 1], ["my n", "b", "a"]),
            hp.quantiles((0, 0.5, 1), F.array("my n", "b", "a")),
            hp.quantiles(np.array([0, 0.5, 1]), [F.col("my n"), 13.5, "a"]),
        ],
        "counts": [hp.counts("my n"), hp.counts(F.col("my n")), hp.counts(4)],
        "gps": [
            hp.gps("a", "b", "my n", origin=origin),
            hp.gps(F.col("a"), "b", accuracy=F.col("my n"), origin=list(origin)),
            hp.gps(52.6, 13.5, 4, origin=origin),
        ],
        "hdop": [hp.gps("a", "b", hdop="my n", origin=origin), hp.gps("a", "b", hdop=4, uere=5, origin=origin)],
        "ellipse": [hp.ellipse("a", "b", "my n", 1, 30), hp.ellipse(52.6, 13.5, 4, 1.0, F.lit(30))],
        "parse": [hp.parse("t"), hp.parse(F.col("t")), hp.parse(F.lit("1.5(2)"))],
        "parse_asymmetric": [hp.parse_asymmetric("t"), hp.parse_asymmetric(F.lit("1.5 +0.2 -0.2"))],
    }
    named = {f"{name} {k}": column for name, columns in ways.items() for k, column in enumerate(columns)}
    first, unknown = table.select(*(column.alias(name) for name, column in named.items())).collect()
    for name, columns in ways.items():
        assert all(first[f"{name} {k}"] == first[f"{name} 0"] for k in range(len(columns))), name
    assert first["parse 0"].asDict() == {"mean": 1.5, "sd": 0.2}
    assert all(unknown[f"{name} 0"] is None for name in ("measured", "rounded", "counts", "parse", "parse_asymmetric"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hp.measured("a", "b", level=95), "cannot take this level"),
        (lambda: hp.measured("a", "b", level="c"), "cannot come from a column"),
        (lambda: hp.rounded("a", -1), "cannot take this step"),
        (lambda: hp.quantiles([0.1, 0.9], "q"), "begin at 0 and end at 1"),
        (lambda: hp.quantiles("levels", "q"), "cannot come from a column"),
        (lambda: hp.counts(-1), "cannot take this n"),
        (lambda: hp.gps("lat", "lon", 5), "needs the origin"),
        (lambda: hp.gps("lat", "lon", origin=(1, 1)), "Found neither"),
        (lambda: hp.gps("lat", "lon", 5, 1, origin=(1, 1)), "Found both"),
        (lambda: hp.gps("lat", "lon", 5, origin="here"), "Found a column"),
        (lambda: hp.ellipse("x", "y", 1, -1, 0), "cannot take this minor"),
        (lambda: hp.ellipse("x", "y", float("nan"), 1, 0), "cannot take this major"),
    ],
)
def test_numbers_of_error_columns_are_refused_when_the_column_is_made(spark, make, words):
    with pytest.raises(HaplyError, match=words):
        make()
