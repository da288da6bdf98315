"""Pictures of Spark's tables: rows, sums and pairs come to this process, and nothing else is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import haply as hp

NEAR = "abs(left.t - right.t) <= 0.5"


def readings(spark: Any, rows: list[tuple[int, float, float]], key: str) -> Any:
    return spark.createDataFrame(rows, f"{key} long, m double, s double").select(key, hp.gaussian("m", "s").alias("t"))


def test_rows_and_pairs_of_spark_are_drawn(spark: Any, tmp_path: Path) -> None:
    left, right = readings(spark, [(1, 20.0, 0.5)], "id"), readings(spark, [(7, 20.4, 0.3)], "key")
    pairs = hp.join(left, right, on=NEAR, threshold=0.1)
    expected = pairs.first()["probability"]
    assert hp.explain_pair(left.first(), right.first(), NEAR, 0.1).probability == expected
    assert hp.threshold_chart(pairs).to_dict()["title"]["text"].startswith("At 0.5, 1 of 1 pairs are kept")
    assert "These are 1 pair of rows" in hp.explore(pairs, tmp_path / "pairs.html").read_text(encoding="utf-8")


def test_a_map_of_spark_has_the_likeliest_pair(spark: Any) -> None:
    rows = [([0.0, 0.0], [1.0, 1.0], 0.2), ([5.0, 5.0], [6.0, 5.0], 0.9)]
    pairs = spark.createDataFrame(rows, "a array<double>, b array<double>, probability double")
    chart = hp.map(pairs, "a", "b", most=1).to_dict()
    assert chart["title"]["text"] == "1 of 2 pairs of positions"
    assert chart["layer"][0]["data"]["values"][0]["x"] == 5.0
