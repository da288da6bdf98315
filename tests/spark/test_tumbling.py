"""Tumbling windows of so many rows a side: as a condition on row numbers they run on tables and streams."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import haply as hp
from haply.joins import TumblingJoin
from haply.models import Gaussian
from haply.probability import Difference, Region

ROWS, WINDOW, FILES = 150, 25, 3
ON = "abs(left.u - right.u) <= 1 AND left.w = right.w"


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Two streams of numbered rows in files, and the pairs of their windows by the operator without Spark."""
    random, folder = np.random.default_rng(5), tmp_path_factory.mktemp("tumbling")
    join = TumblingJoin([Difference("u", "u", Region(-1.0, 1.0))], 0.7, rows=WINDOW)
    found = []
    for side in ("left", "right"):
        mean, sd, number = random.uniform(0.0, 12.0, ROWS), random.uniform(0.1, 0.6, ROWS), np.arange(ROWS)
        (folder / side).mkdir()
        table = pa.table({"n": number, "mean": mean, "sd": sd})
        for part in range(FILES):
            size = ROWS // FILES
            file = folder / side / f"{part}.parquet"
            pq.write_table(table.slice(part * size, size), file)
            os.utime(file, (1e9 + part, 1e9 + part))  # streams read files by their age
        found.append(join.push(side, {"id": number, "u": Gaussian(mean, sd)}))
    found.append(join.close())
    pairs = {(i, j): p for part in found for i, j, p in zip(part.left, part.right, part.probability, strict=True)}
    assert len(pairs) > 50
    assert all(i // WINDOW == j // WINDOW for i, j in pairs)
    return folder, pairs


def numbered(frame):
    """The rows with their value and the number of their window."""
    return frame.select("n", F.expr(f"n DIV {WINDOW}").alias("w"), hp.gaussian("mean", "sd").alias("u"))


@pytest.mark.long
def test_a_table_has_the_pairs_of_the_operator(spark, sides):
    folder, pairs = sides
    left, right = (numbered(spark.read.parquet(str(folder / side))) for side in ("left", "right"))
    for strategy in ("auto", "moments"):
        found = hp.join(left, right, ON, 0.7, strategy=strategy).collect()
        assert {(row.n_left, row.n_right): row.probability for row in found} == pytest.approx(pairs, abs=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["auto", "moments"])
def test_a_stream_has_the_pairs_of_the_operator(spark, sides, tmp_path, strategy):
    """With moments every window has an index, whose answers are the matches: nothing is validated."""
    folder, pairs = sides
    left, right = (
        numbered(
            spark.readStream.schema("n long, mean double, sd double")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / side))
        )
        for side in ("left", "right")
    )
    funnel = hp.Funnel()
    arguments = {"time": "n", "window": WINDOW - 1, "strategy": strategy}
    told = hp.plan_join(left, right, ON, 0.7, **arguments).explain(verbose=True)
    assert ("index of means and variances for each key" if strategy == "moments" else "sweep over core") in told
    found = hp.join(left, right, ON, 0.7, funnel=funnel, **arguments)
    writer = found.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert len(rows) == len(pairs)
    assert {(row.n_left, row.n_right): row.probability for row in rows} == pytest.approx(pairs, abs=1e-12)
    counted = funnel.to_dict()
    assert counted["candidates"] < ROWS * WINDOW, "windows as a whole would be that many pairs"
