"""Joins of tables in a window of certain times on Spark: stretches of time and cells. All else is in ``tests/both``."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import functions as F

import haply as hp
from haply.engines.spark.times import time_slot
from haply.planning.times import TimeWindow
from join_kit import answer, collect, frame, settings, values

BAND, GREATER, APART = "abs(left.x - right.x) <= 0.8", "left.x > right.x", "abs(left.x - right.x) >= 3"
WINDOW = 4.0


def test_slots_of_time_in_sql(spark):
    """Times within the window are in one slot or in neighbours, at any scale and however far from 0."""
    rng, asked, names = np.random.default_rng(20), [], []
    for window in (0.0, 1e-9, 0.3, 7.0, 2e4, 3e9):
        for origin in (0.0, -2.5, 1.7e9, 1.7e15, -1e25):
            times = origin + window * rng.choice([0.0, 0.1, 0.5, 1.0, 2.0], 60) * rng.integers(-3, 4, 60)
            asked += [(len(names), float(t)) for t in times]
            names.append(TimeWindow("t", "t", window, 0.0, stamps=False))
    cases = " ".join(f"WHEN {k} THEN {time_slot(each, 't')}" for k, each in enumerate(names))
    table = spark.createDataFrame(asked, "k int, t double")
    found = table.select("k", "t", F.expr(f"CASE k {cases} END").alias("slot")).toPandas()
    for k, rows in found.groupby("k"):
        times, slots = rows["t"].to_numpy(), rows["slot"].to_numpy()
        near = np.abs(times[:, None] - times) <= names[k].length
        assert (np.abs(slots[:, None] - slots) <= 1)[near].all(), names[k]
        assert near.sum() > len(times)
    for k in (10, 15):  # windows of 0.3 and 7 around 0: and far ones are not
        assert found[found["k"] == k]["slot"].nunique() > 3


def timed(spark, these, seed, span=40):
    """Values with times, the first of which is unknown; the time is there as a number and as a timestamp."""
    times = [None, *np.random.default_rng(seed).integers(0, span, len(these) - 1).astype(float).tolist()]
    table = spark.createDataFrame(list(enumerate(times)), "id long, t double")
    table = frame(spark, these).join(table, "id")
    return times, table.select("*", F.timestamp_seconds("t").alias("at"), (F.col("id") % 2).alias("key"))


def near(lefts, rights, window=WINDOW):
    return {
        (i, j)
        for i, one in enumerate(lefts)
        for j, other in enumerate(rights)
        if one is not None and other is not None and abs(one - other) <= window
    }


@pytest.mark.long
@pytest.mark.parametrize("shape", [{"cells": 7}, {"rowsPerCell": 6}], ids=str)
@pytest.mark.parametrize(("span", "window", "told"), [(40, 4.0, "times"), (4, 3.0, "intervals")])
def test_cells_by_times_and_by_values(spark, span, window, told, shape):
    """Each pair once, however many cells and slices there are, and whichever tells rows apart."""
    lefts, rights = values("normal", 60, 15), values("uniform", 50, 16)
    (mine, left), (theirs, right) = timed(spark, lefts, 17, span), timed(spark, rights, 18, span)
    wanted, hairline = answer(lefts, rights, BAND, 0.2)[1:]
    wanted &= near(mine, theirs, window)
    assert len(wanted) > 10
    with settings(spark, **shape):
        plan = hp.plan_join(left, right, BAND, 0.2, time="t", window=window)
        assert f"cells by quantiles of the {told}" in plan.explain(verbose=True)
        assert set(collect(plan.run())) - hairline == wanted - hairline
        funnel = hp.Funnel()
        hp.join(left, right, BAND, 0.2, time="t", window=window, funnel=funnel).collect()
    counts = funnel.to_dict()
    together = sum(one is not None and other is not None for one in mine for other in theirs)
    assert counts["kept"] <= counts["evaluated"] <= counts["candidates"] <= together
