"""Natural mistakes get an error or a warning when the query is built, on both engines."""

from __future__ import annotations

import warnings

import pytest

import haply as hp
from both_kit import Table

NEAR = abs(hp.left.kg - hp.right.kg) <= 0.05


@pytest.fixture(scope="module")
def parcels(engine):
    rows = engine.createDataFrame([("A", 1.0, 1), ("B", 2.0, 2)], "parcel string, mean double, n int")
    made = rows.select(
        "parcel", "mean", "n", "gaussian(mean, 0.1) AS kg", "samples(array(1.0, 2.0)) AS guess",
        "CAST(n AS double) AS time",
    )  # fmt: skip
    return made.asked


@pytest.fixture(scope="module")
def other(engine, parcels):
    """The same rows in another frame: haply cannot know that they are the same."""
    return parcels.select("*" if engine.spark is not None else parcels.column_names)


def only(frame, *names):
    return frame.select(*names) if hasattr(frame, "sparkSession") else frame.select(list(names))


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


def test_equality_of_samples_and_of_certain_columns_is_answered(engine, parcels, other):
    found = hp.join(parcels, other, "left.guess = right.guess AND left.parcel = 'A' AND right.parcel = 'B'", 0.1)
    assert [row.probability for row in Table(engine, found).collect()] == [0.5]
    heavy = hp.where(parcels, (hp.col("kg") > 1.5) & (hp.col("parcel") == "B"), 0.5)
    assert Table(engine, heavy).count() == 1


def test_an_absolute_value_in_a_range_has_two_sides(engine, parcels):
    kept = Table(engine, hp.where(parcels, "abs(kg) BETWEEN 0.5 AND 1.5", 0.5)).collect()
    assert [(row.parcel, round(row.probability, 6)) for row in kept] == [("A", 0.999999)]


# -- warnings ----------------------------------------------------------------------------------------------------------


def said(make):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    ours = [warning for warning in caught if warning.category is hp.HaplyWarning]
    assert all(warning.filename == __file__ for warning in ours), "shown at the caller's line"
    return [str(warning.message) for warning in ours]


def test_queries_without_anything_uncertain_are_warned_of(parcels, other):
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
            t=parcels, u=other, v=only(parcels, "n"),
        ),
    ):  # fmt: skip
        (message,) = said(make)
        assert "is uncertain, so every result has probability 1" in message
        assert "mean" in message or "parcel" in message
        assert "gaussian(mean, sd)" in message.lower()


def test_queries_that_are_meant_to_be_certain_are_not(parcels, other):
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
                       "WITH THRESHOLD 0.5", t=parcels, u=other, v=only(parcels, "mean")),
    ):  # fmt: skip
        assert said(make) == []


def test_a_loop_is_warned_of_once(parcels):
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter("default", hp.HaplyWarning)
        for _ in range(3):
            hp.where(parcels, "mean > 1", 0.5)
    assert len([warning for warning in caught if warning.category is hp.HaplyWarning]) == 1


def test_a_table_joined_with_itself_is_warned_of(parcels, other):
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
        lambda: hp.sql(query.replace("T B", "U B"), T=parcels, U=other),
    ):
        assert said(make) == []
