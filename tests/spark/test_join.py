"""``hp.join`` on Spark: cells, laziness, and what is only there. Its answers are in ``tests/both``."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from pyspark.sql import functions as F

import haply as hp
import oracle
from haply.errors import HaplyError
from haply.inputs import engine_of, frame_of
from haply.planning.join import JOINS
from haply.planning.nodes import JoinNode, JoinOptions
from haply.planning.pairs import PairPlan
from haply.planning.plans import Chosen
from join_kit import answer, check, collect, frame, settings, values, with_column

BAND, GREATER, APART = "abs(left.x - right.x) <= 0.8", "left.x > right.x", "abs(left.x - right.x) >= 3"


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(("cells", "on"), [(2, BAND), (8, GREATER), (200, APART)])
def test_any_number_of_cells(spark, cells, on):
    with settings(spark, cells=cells):
        check(spark, values("uniform", 70, 7), values("uniform", 60, 8), on, 0.3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "kinds", "in_cells", "with_keys", "told"),
    [
        ("moments", ("mixture", "hist"), GREATER, APART, "index of means and variances"),
        ("pages", ("normal", "hist"), APART, BAND, "x-bounds"),
        ("pti", ("normal", "hist"), BAND, GREATER, "x-bounds"),
    ],
)
def test_other_strategies(spark, strategy, kinds, in_cells, with_keys, told):
    """Cells share rows but no pair, whichever index finds the candidates, and keys are looked at before it.

    Each condition is met in cells by one strategy and with keys by another. All strategies under all conditions are in
    ``tests/joins``.
    """
    lefts, rights = (values(kind, count, seed) for kind, count, seed in zip(kinds, (50, 40), (7, 8), strict=True))
    with settings(spark, cells=8):
        check(spark, lefts, rights, in_cells, 0.3, strategy=strategy)
    check(spark, lefts, rights, with_keys, 0.3, keys=3, strategy=strategy)
    left, right = frame(spark, lefts), frame(spark, rights)
    assert told in hp.plan_join(left, right, in_cells, 0.3, strategy=strategy).explain(verbose=True)


def test_indexes_are_not_for_uncertain_times(spark):
    flow = spark.readStream.format("rate").load()
    late = flow.select("value", hp.gaussian("value", 1.0).alias("t"))
    for side, on in ((flow, None), (late, "left.value > right.value")):
        time = "timestamp" if side is flow else "t"
        with pytest.raises(HaplyError, match="does not fit"):
            hp.join(side, side, on, 0.5, time=time, window=1, strategy="moments")


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("on", ["left.x > right.x", "left.x < right.x", "left.x >= right.x"])
@pytest.mark.parametrize(
    ("kinds", "threshold"),
    [
        (("normal", "mixture"), 0.3),
        (("hist", "uniform"), 0.9),
        (("discrete", "normal"), 0.999),
        (("uniform", "uniform"), 0.02),
    ],
)
@pytest.mark.parametrize("cells", [1, 8])
def test_candidates_of_a_later_selection_miss_no_pair(spark, on, kinds, threshold, cells):
    """Where a later selection decides, ``<`` and ``>`` may return more pairs, but no pair that is far off."""
    spread = (-60, 60)
    lefts, rights = (values(kind, 40, seed, spread) for kind, seed in zip(kinds, (31, 32), strict=True))
    probabilities, wanted, hairline = answer(lefts, rights, on, threshold)
    tables = [with_column(frame(spark, side), "key", "id % 2") for side in ([*lefts, None], rights)]
    options = JoinOptions(threshold=threshold, probability="none", only_candidates=True)
    left, right = (frame_of(table, name) for table, name in zip(tables, ("left", "right"), strict=True))
    chosen = JOINS.choose(JoinNode.of(left, right, f"{on} AND left.key = right.key", options))
    assert isinstance(chosen, Chosen)
    assert isinstance(chosen.query, PairPlan)
    assert chosen.query.found_by_position
    with settings(spark, cells=cells):
        found = set(collect(chosen.run(engine_of(left), None).df))
    alike = {(i, j) for i, j in probabilities if i % 2 == j % 2}
    assert found >= (wanted & alike) - hairline
    assert found <= alike
    far = {(i, j) for i, j in found if abs(float(oracle.mean(lefts[i]) - oracle.mean(rights[j]))) > 30}
    assert far <= wanted | hairline


def test_a_plan_says_that_candidates_are_found_by_ranges(spark):
    left, right = (frame(spark, values("normal", 5, seed)) for seed in (3, 4))
    plan = hp.plan_join(left, right, "left.x > right.x AND left.x + right.x > 1", 0.5)
    told = plan.explain(verbose=True)
    assert "pairs that their quantiles do not rule out, joined natively by ranges" in told
    assert "ranges of equal width" in told
    assert "by quantiles of the intervals" not in told


def test_all_rows_in_one_place(spark):
    same = [oracle.Uniform(3.0, 4.0)] * 40
    with settings(spark, rowsPerCell=5):
        found = check(spark, same, same[:30], "abs(left.x - right.x) <= 0.8", 0.5)
    assert len(found) == 1200


@pytest.mark.long
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
        result = hp.join(left, right, "abs(left.x - right.x) <= 0.6", 0.5).select("id_left", "id_right").toPandas()
    found = result.groupby("id_right")["id_left"].agg(["size", "nunique"])
    assert {j: (row["size"], row["nunique"]) for j, row in found.iterrows()} == {j: (n, n) for j, n in expected.items()}


@pytest.mark.long
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


def test_a_funnel_is_filled_by_the_first_action(spark):
    funnel = hp.Funnel()
    sides = frame(spark, values("normal", 30, 15)), frame(spark, values("normal", 20, 16))
    result = hp.join(*sides, BAND, 0.5, funnel=funnel)
    assert "empty" in str(funnel)
    kept = result.count()
    assert funnel.to_dict()["kept"] == kept
    result.count()
    assert funnel.to_dict()["kept"] == kept, "a second action must not count twice"


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


def test_results_join_again_and_survive_parquet(spark, tmp_path):
    left, right = frame(spark, values("hist", 10, 25)), frame(spark, values("hist", 10, 26))
    hp.join(left, right, "abs(left.x - right.x) <= 2", 0.3).write.parquet(str(tmp_path / "pairs"))
    first = spark.read.parquet(str(tmp_path / "pairs"))
    again = first.withColumnRenamed("id_left", "pair").drop("probability", "id_right")
    assert hp.join(again, right, "abs(left.x_left - right.x) <= 2", 0.3).count() >= first.count() > 0
