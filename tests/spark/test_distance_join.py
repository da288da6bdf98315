"""``hp.join`` on a distance on Spark: any number of cells. All else is in ``tests/both``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from pyspark.errors import PySparkException

import haply as hp
from distance_kit import ON, SAMPLES, check, collect, frame, random_clouds
from oracle_distance import random_cloud


@contextmanager
def settings(spark, **values) -> Iterator[None]:
    """Spark settings for one test, put back afterwards."""
    for name, value in values.items():
        spark.conf.set(f"spark.haply.{name}", str(value))
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(f"spark.haply.{name}")


@pytest.mark.long
def test_points_of_different_dimensions(spark):
    """Refused; with ``invalid="drop"`` each matches its like, and nothing else."""
    mixed = spark.createDataFrame([(0, [0.0, 0.0]), (1, [0.0, 0.0, 0.0]), (2, [0.0])], "id long, pos array<double>")
    plane = spark.createDataFrame([(5, ([0.0, 1.0], None, 2))], f"id long, pos {SAMPLES}")
    with settings(spark, cells=1):
        with pytest.raises(PySparkException, match="Points differ in dimension"):
            hp.join(mixed.where("id = 1"), plane, ON, 0.5).collect()
        assert collect(hp.join(mixed, plane, ON, 0.5, invalid="drop")) == {(0, 5): 1.0}


def test_any_number_of_cells(spark):
    """Wide objects span many cells, narrow ones one; each pair is found in one of them."""
    rng = np.random.default_rng(15)
    sides = [
        [
            *random_clouds(seed, 70, weighted=True, spread=20.0),
            *(random_cloud(rng, 2, 5, "two_clusters", size=15.0, spread=10.0) for _ in range(10)),
        ]
        for seed in (16, 17)
    ]
    left, right = frame(spark, sides[0]), frame(spark, sides[1])
    found = []
    for cells, strategy in ((5, "grid"), (40, "auto")):
        with settings(spark, cells=cells):
            found.append(collect(hp.join(left, right, "distance(left.pos, right.pos) <= 6", 0.2, strategy=strategy)))
    check(found[0], sides[0], sides[1], 6.0, 0.2, least=50)
    assert found[0] == found[1]
