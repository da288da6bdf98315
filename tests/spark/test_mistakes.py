"""Natural mistakes get an error or a warning when the query is built, or one sentence when Spark runs."""

from __future__ import annotations

import warnings

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

import haply as hp

NEAR = abs(hp.left.kg - hp.right.kg) <= 0.05
BAD = (
    "Column 'kg' of the left table has a row that is not a distribution. Found sd < 0 in {'mean': 2.0, 'sd': -0.1}. "
    'Hint: see all of them with hp.check(df, column), or leave them out with invalid="drop".'
)


@pytest.fixture(scope="module")
def parcels(spark):
    rows = spark.createDataFrame([("A", 1.0, 1), ("B", 2.0, 2)], "parcel string, mean double, n int")
    return rows.select(
        "parcel", "mean", "n", hp.gaussian("mean", 0.1).alias("kg"), hp.samples([1.0, 2.0]).alias("guess"),
        F.col("n").cast("double").alias("time"),
    )  # fmt: skip


# -- equality of continuous values -------------------------------------------------------------------------------------


def test_equality_of_continuous_columns_is_refused_wherever_it_is_written(parcels):
    left, right, col = hp.left, hp.right, hp.col
    queries = [
        lambda: hp.join(parcels, parcels, left.kg == right.kg, 0.5),
        lambda: hp.join(parcels, parcels, "left.kg = right.kg", 0.5),
        lambda: hp.join(parcels, parcels, NEAR & (left.kg == right.kg), 0.5),
        lambda: hp.join(parcels, parcels, NEAR | (left.kg == right.kg), 0.5),
        lambda: hp.window_join({"left": parcels, "right": parcels}, {("left", "right"): 1}, on="left.kg = right.kg"),
        lambda: hp.sql("SELECT * FROM t left, u right WHERE left.kg = right.kg", t=parcels, u=parcels),
    ]
    for query in queries:
        with pytest.raises(hp.HaplyError, match=r"abs\(left.kg - right.kg\) <= c"):
            query()
    with pytest.raises(hp.HaplyError, match=r"always holds.*abs\(left.kg - right.kg\) > c"):
        hp.join(parcels, parcels, left.kg != right.kg, 0.5)
    with pytest.raises(hp.HaplyError, match=r"abs\(kg - 1\) <= c"):
        hp.where(parcels, col("kg") == 1, 0.5)
    with pytest.raises(hp.HaplyError, match=r"line 1.*(?s:.*)abs\(t.kg - 1\) > c"):
        hp.sql("SELECT * FROM t WHERE kg != 1 WITH THRESHOLD 0.5", t=parcels)


def test_equality_of_samples_and_of_certain_columns_is_answered(parcels):
    found = hp.join(
        parcels, parcels.select("*"), "left.guess = right.guess AND left.parcel = 'A' AND right.parcel = 'B'", 0.1
    )
    assert [row.probability for row in found.collect()] == [0.5]
    assert hp.where(parcels, (hp.col("kg") > 1.5) & (hp.col("parcel") == "B"), 0.5).count() == 1


def test_an_absolute_value_in_a_range_has_two_sides(spark, parcels):
    kept = hp.where(parcels, "abs(kg) BETWEEN 0.5 AND 1.5", 0.5).collect()
    assert [(row.parcel, round(row.probability, 6)) for row in kept] == [("A", 0.999999)]


# -- warnings ----------------------------------------------------------------------------------------------------------


def said(make):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    ours = [warning for warning in caught if warning.category is hp.HaplyWarning]
    assert all(warning.filename == __file__ for warning in ours), "shown at the caller's line"
    return [str(warning.message) for warning in ours]


def test_queries_without_anything_uncertain_are_warned_of(parcels):
    other = parcels.select("*")
    near = "abs(left.mean - right.mean) <= 1"
    for make in (
        lambda: hp.join(parcels, other, near, 0.5),
        lambda: hp.join(parcels, other, near),
        lambda: hp.plan_join(parcels, other, near, 0.5),
        lambda: hp.join(parcels, other, "left.parcel = right.parcel", 0.5),
        lambda: hp.where(parcels, "mean > 1", 0.5),
        lambda: hp.window_join({"left": parcels, "right": other}, {("left", "right"): 1}, on=near),
        lambda: hp.sql("SELECT * FROM t WHERE mean > 1 WITH THRESHOLD 0.5", t=parcels),
        lambda: hp.sql(
            "SELECT * FROM t, u, v WHERE abs(t.mean - u.mean) < 1 AND u.n = v.n WITH THRESHOLD 0.5",
            t=parcels, u=other, v=parcels.select("n"),
        ),
    ):  # fmt: skip
        (message,) = said(make)
        assert "is uncertain, so every result has probability 1" in message
        assert "mean" in message or "parcel" in message
        assert "gaussian(mean, sd)" in message.lower()


def test_queries_that_are_meant_to_be_certain_are_not(parcels):
    other = parcels.select("*")
    for make in (
        lambda: hp.join(parcels, other, NEAR, 0.5),
        lambda: hp.join(parcels, other, "left.parcel = right.parcel"),
        lambda: hp.join(parcels, other, time="time", window=1),
        lambda: hp.join(parcels, other, "left.parcel = right.parcel", time="time", window=1),
        lambda: hp.window_join({"a": parcels, "b": other}, {("a", "b"): 1}, key="parcel"),
        lambda: hp.window_join({"a": parcels, "b": other}, {("a", "b"): 1}, on="a.n != b.n"),
        lambda: hp.where(parcels, "kg > 1 AND mean > 1", 0.5),
        lambda: hp.sql("SELECT * FROM t WHERE mean > 1", t=parcels),
        lambda: hp.sql("SELECT * FROM t, u WHERE abs(t.kg - u.kg) < 1 AND t.n < u.n WITH THRESHOLD 0.5", t=parcels,
                       u=other),
        lambda: hp.sql("SELECT t.n FROM t, u, v WHERE abs(t.kg - u.kg) < 1 AND abs(u.mean - v.mean) < 1 "
                       "WITH THRESHOLD 0.5", t=parcels, u=other, v=parcels.select("mean")),
    ):  # fmt: skip
        assert said(make) == []


def test_a_loop_is_warned_of_once(parcels):
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter("default", hp.HaplyWarning)
        for _ in range(3):
            hp.where(parcels, "mean > 1", 0.5)
    assert len([warning for warning in caught if warning.category is hp.HaplyWarning]) == 1


def test_a_table_joined_with_itself_is_warned_of(parcels):
    query = "SELECT A.parcel, PROB() AS p FROM T A, T B WHERE abs(A.kg - B.kg) <= 0.05 WITH THRESHOLD 0.1"
    inside = query.replace("T A, T B", "(SELECT * FROM T) A, (SELECT * FROM T) B")
    for make, names in (
        (lambda: hp.join(parcels, parcels, NEAR, 0.5), "left and right"),
        (lambda: hp.sql(query, T=parcels), "A and B"),
        (lambda: hp.sql(inside, T=parcels), "A and B"),
        (lambda: hp.sql(query.replace("T B", "U B"), T=parcels, U=parcels), "A and B"),
    ):
        (message,) = said(make)
        assert f"{names} are taken as independent" in message
        assert 'hp.table(frame, key="id"), or FROM t KEY id in SQL' in message
    with pytest.warns(hp.HaplyWarning, match="independent"):
        plan = hp.plan_sql(query, T=parcels)
    assert "A and B are taken as independent" in plan.explain(verbose=True)
    for make in (
        lambda: hp.join(parcels, parcels, NEAR, 0.5, self_key="parcel"),
        lambda: hp.join(parcels, parcels, NEAR & (hp.left.n < hp.right.n), 0.5),
        lambda: hp.join(parcels, parcels, "left.parcel = right.parcel"),
        lambda: hp.sql(query.replace("WITH", "AND A.n < B.n WITH"), T=parcels),
        lambda: hp.sql(query.replace("T B", "U B"), T=parcels, U=parcels.select("*")),
    ):
        assert said(make) == []


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
    pairs = hp.join(bad, bad.select("*"), NEAR, 0.5)
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
