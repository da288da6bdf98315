"""``hp.join`` on a distance on Spark: any number of cells. All else is in ``tests/both``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from pyspark.errors import PySparkException

import haply as hp
from oracle_distance import KINDS, Cloud, all_pairs, borderline, random_cloud

SAMPLES = "struct<points:array<double>,probs:array<double>,dim:int>"
ON = "distance(left.pos, right.pos) <= 1.5"


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


def struct(a: Cloud | None) -> tuple | None:
    return None if a is None else (a.points.ravel().tolist(), a.float_weights, a.dim)


def frame(spark, these: Sequence[Cloud | None]):
    """Ids and a column ``pos`` of samples."""
    return spark.createDataFrame([(i, struct(each)) for i, each in enumerate(these)], f"id long, pos {SAMPLES}")


def collect(result) -> dict[tuple[int, int], float | None]:
    """Pairs with their probabilities, refusing a doubled pair."""
    known = "probability" in result.columns
    rows = [(row["id_left"], row["id_right"], row["probability"] if known else None) for row in result.collect()]
    counts = Counter((i, j) for i, j, _ in rows)
    assert not counts or max(counts.values()) == 1, "a pair was doubled"
    return {(i, j): p for i, j, p in rows}


def check(
    found: dict,
    lefts: Sequence[Cloud],
    rights: Sequence[Cloud],
    eps: float,
    threshold: float | None,
    strict: bool = False,
    least: int = 10,
) -> None:
    """The oracle's pairs and probabilities."""
    times = [0] * len(lefts), [0] * len(rights)
    wanted = all_pairs(lefts, rights, *times, window=None, eps=eps, threshold=threshold, strict=strict)
    odd = {
        (i, j)
        for i, a in enumerate(lefts)
        for j, b in enumerate(rights)
        if borderline(a, b, eps, threshold, strict, margin=1e-13)
    }
    assert set(found) - odd == set(wanted) - odd
    assert len(wanted) >= least
    for pair in set(found) & set(wanted):
        assert found[pair] is None or abs(found[pair] - float(wanted[pair])) <= 1e-12


def random_clouds(seed: int, count: int, dim: int = 2, weighted: bool = False, spread: float = 6.0) -> list[Cloud]:
    rng = np.random.default_rng(seed)
    return [
        random_cloud(rng, dim, int(rng.choice([1, 2, 4, 5])), rng.choice(KINDS), weighted=weighted, spread=spread)
        for _ in range(count)
    ]


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
