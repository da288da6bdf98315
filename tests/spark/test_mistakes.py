"""Natural mistakes get one sentence when Spark runs (see ``tests/both/test_mistakes.py`` for those found before)."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

import haply as hp

NEAR = abs(hp.left.kg - hp.right.kg) <= 0.05
BAD = (
    "Column 'kg' of the left table has a row that is not a distribution. Found sd < 0 in {'mean': 2.0, 'sd': -0.1}. "
    'Hint: see all of them with hp.check(df, column), or leave them out with invalid="drop".'
)


# -- bad rows while Spark runs -----------------------------------------------------------------------------------------


def bad_parcels(spark):
    rows = spark.createDataFrame([("A", 1.0, 0.1), ("B", 2.0, -0.1)], "parcel string, mean double, sd double")
    return rows.select("parcel", hp.gaussian("mean", "sd").alias("kg"))


ACTIONS = {
    "collect": lambda pairs, folder: pairs.collect(),
    "count": lambda pairs, folder: pairs.count(),
    "show": lambda pairs, folder: pairs.show(),
    "first": lambda pairs, folder: pairs.first(),
    "toPandas": lambda pairs, folder: pairs.toPandas(),
    "toArrow": lambda pairs, folder: pairs.toArrow(),
    "toLocalIterator": lambda pairs, folder: list(pairs.toLocalIterator()),
    "write": lambda pairs, folder: pairs.write.parquet(str(folder / "pairs")),
    "further": lambda pairs, folder: pairs.select("parcel_left").groupBy("parcel_left").count().collect(),
}


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("action", ACTIONS)
def test_bad_rows_reach_the_caller_as_one_sentence(spark, tmp_path, action):
    bad = bad_parcels(spark)
    good = bad.where("parcel = 'A'")  # only one side has a bad row: of two, either may be read first
    pairs = hp.join(bad, good, NEAR, 0.5)
    with pytest.raises(hp.HaplyError) as caught:
        ACTIONS[action](pairs, tmp_path)
    assert str(caught.value) == BAD
    assert isinstance(caught.value, PySparkException), "as it was before"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__, "no Java is printed"


def test_bad_rows_of_a_selection_reach_the_caller_as_one_sentence(spark):
    with pytest.raises(hp.HaplyError) as caught:
        hp.where(bad_parcels(spark), "kg > 1", 0.5).collect()
    assert str(caught.value).startswith("Column 'kg' has a row that is not a distribution. Found sd < 0")


def test_bad_rows_of_a_stream_reach_the_caller_as_one_sentence(spark, tmp_path):
    bad = bad_parcels(spark)
    bad.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(bad.schema).parquet(str(tmp_path / "rows"))
    query = hp.where(stream, "kg > 1", 0.5).writeStream.format("noop").start()
    with pytest.raises(hp.HaplyError, match=r"^Column 'kg' has a row that is not a distribution") as caught:
        query.awaitTermination(120)
    assert isinstance(caught.value, StreamingQueryException)
    assert "java" not in str(caught.value)


def test_times_that_are_too_large_reach_the_caller_as_one_sentence(spark):
    table = spark.range(3).selectExpr("id", "1700000000000000000 + id AS t")
    with pytest.raises(hp.HaplyError, match=r"^A time in 't' is too large to be exact[.].*timestamp column[.]$"):
        hp.join(table, table.select("*"), "left.id = right.id", time="t", window=1).collect()


def test_failures_of_others_stay_as_they_are(spark):
    def fail(value):
        raise ValueError("mine")

    with pytest.raises(PySparkException, match="ValueError: mine") as caught:
        spark.range(1).select(F.udf(fail)("id")).collect()
    assert not isinstance(caught.value, hp.HaplyError)


# -- constants of constructors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: hp.gaussian("mean", -0.1), "sd < 0 in {'sd': -0.1}"),
        (lambda: hp.gaussian(float("nan"), "sd"), "mean is NaN or infinite"),
        (lambda: hp.gaussian("mean", float("inf")), "sd is NaN or infinite"),
        (lambda: hp.uniform(3, 1), "lo > hi"),
        (lambda: hp.uniform("lo", float("nan")), "hi is NaN"),
        (lambda: hp.truncated_gaussian("mean", "sd", 5, 1), "lo > hi"),
        (lambda: hp.truncated_gaussian("mean", -1, "lo", "hi"), "sd < 0"),
        (lambda: hp.mixture([0.5, 0.4], [1, 2], [1, 1]), "weights not summing to 1"),
        (lambda: hp.mixture([0.5, 0.4], "means", "sds"), "weights not summing to 1"),
        (lambda: hp.mixture([0.5, 0.5], [1, 2], [1, -1]), "sds negative"),
        (lambda: hp.mixture([0.5, 0.5], [1, 2, 3], [1, 1]), "lengths disagree"),
        (lambda: hp.histogram([0, 2, 1], "probs"), "edges not increasing"),
        (lambda: hp.histogram("edges", [0.5, 0.6]), "probs not summing to 1"),
        (lambda: hp.histogram([0, 1], [0.5, 0.5]), "lengths disagree"),
        (lambda: hp.latency("seen", [0, 1, 1], [0.5, 0.5]), "edges not increasing"),
        (lambda: hp.latency(float("nan"), [0, 1, 2], [0.5, 0.5]), "NaN"),
        (lambda: hp.samples([1, float("nan")]), "points is NaN"),
        (lambda: hp.samples([1, 2], [0.5, 0.6]), "probs not summing to 1"),
        (lambda: hp.samples(["a", "b"], [0.5, 0.6]), "probs not summing to 1"),
        (lambda: hp.samples([1, 2, 3], dim=2), "lengths disagree"),
        (lambda: hp.gaussian_nd(["x", "y"], [0.1, -0.1]), "sd < 0"),
        (lambda: hp.gaussian_nd(["x", "y"], ["a", "b"], corr=1.5), "not symmetric positive semidefinite"),
        (lambda: hp.gaussian_nd([0, 0], cov=[[1, 2], [2, 1]]), "not symmetric positive semidefinite"),
        (lambda: hp.gaussian_nd([0, float("inf")], cov="cov"), "mean is NaN"),
        (lambda: hp.mixture_nd([0.5, 0.6], "means", "covs"), "weights not summing to 1"),
        (lambda: hp.sky.position("ra", 91, "e", "e"), "dec beyond the poles"),
        (lambda: hp.sky.position("ra", "dec", -1, "e", errors_in="mas"), "ra_error < 0"),
        (lambda: hp.sky.position("ra", "dec", "e", "e", 1.5), "corr beyond"),
        (lambda: hp.sky.ellipse("ra", "dec", "major", -1), "minor < 0"),
    ],
)
def test_constants_that_are_no_parameters_are_refused_when_the_column_is_made(spark, make, reason):
    with pytest.raises(hp.HaplyError, match="are not parameters of a distribution") as caught:
        make()
    assert reason in str(caught.value)


def test_constants_that_are_parameters_are_taken(spark):
    row = spark.range(1).select(
        hp.gaussian(1, 0), hp.uniform(1, 1), hp.uniform("id", 1), hp.truncated_gaussian("id", 1, 0, 5),
        hp.mixture([0.5, 0.5], ["id", 2], [1, 1]), hp.histogram([0, "id", 3], [0.25, 0.75]),
        hp.samples([[1, 2], [3, 4]]),
        hp.gaussian_nd(["id", 1], [0, 1], corr=-1), hp.sky.position("id", 90, 0, 1), hp.latency("id", [0, 1], [1]),
    ).collect()  # fmt: skip
    assert len(row) == 1
