"""A short job with whatever PySpark runs it: each answer of Spark is compared with that of the local engine.

    python tests/version_job.py FOLDER

Prints the version of PySpark and what was asked, and ends with status 0 if all answers are right. It uses no pytest, so
that it runs in environments that have PySpark and haply only. ``tests/spark/test_versions.py`` runs it.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

import haply as hp

BAND = "abs(left.x - right.x) <= 0.5"
GAUSSIAN = pa.struct([("mean", pa.float64()), ("sd", pa.float64())])
NEAR = hp.distance(hp.left.place, hp.right.place) <= 1.0
POINTS = [[[0.0, 0.0], [0.5, 0.5]], None, [[1.0, 1.0]], [[2.0, 0.1], [2.0, 0.3], [9.0, 9.0]]]


def readings(n: int, shift: float) -> pa.Table:
    """Rows with a Gaussian, one of them null, and with a certain time."""
    values = [{"mean": 0.37 * k % 4 + shift, "sd": 0.1 + 0.05 * (k % 3)} for k in range(n)]
    times = pa.array([float(k) for k in range(n)])
    return pa.table({"id": range(n), "x": pa.array([*values[:-1], None], GAUSSIAN), "time": times})


LEFT, RIGHT = readings(40, 0.0), readings(30, 0.1)


def rows(answer: Any) -> list[tuple[Any, ...]]:
    """The rows of an answer of either engine in order, with probabilities rounded."""
    table = answer if isinstance(answer, pa.Table) else answer.toArrow()
    names = [name for name in table.column_names if "id" in name or name in ("probability", "reason")]
    kept = table.select(names).to_pylist()
    return sorted(
        (tuple(round(value, 9) if isinstance(value, float) else value for value in row.values()) for row in kept),
        key=repr,
    )


def questions(spark: Any, folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """What is asked, with the answers of Spark and of the local engine."""
    left, right = spark.createDataFrame(LEFT), spark.createDataFrame(RIGHT)
    for keep in ("all", "best_left"):
        asked = {"on": BAND, "threshold": 0.6, "keep": keep}
        yield f"band join, keep {keep}", hp.join(left, right, **asked), hp.join(LEFT, RIGHT, **asked)
    yield "selection", hp.where(left, "x > 1 AND id < 30", 0.3), hp.where(LEFT, "x > 1 AND id < 30", 0.3)

    told = pa.table({"id": range(len(POINTS)), "points": pa.array(POINTS, pa.list_(pa.list_(pa.float64())))})
    flat = [None if one is None else [number for point in one for number in point] for one in POINTS]
    sampled = [None if one is None else {"points": one, "probs": None, "dim": 2} for one in flat]
    kind = pa.struct([("points", pa.list_(pa.float64())), ("probs", pa.list_(pa.float64())), ("dim", pa.int32())])
    here = pa.table({"id": range(len(POINTS)), "place": pa.array(sampled, kind)})
    there = spark.createDataFrame(told).select("id", hp.samples("points").alias("place"))
    asked = (hp.join(one, one, NEAR, 0.4, self_key="id") for one in (there, here))
    yield "positions, samples from a nested column", *asked

    values = pa.array([{"mean": math.nan, "sd": 1}, {"mean": 0, "sd": -1}, None], GAUSSIAN)
    bad = LEFT.slice(0, 3).set_column(1, "x", values)
    yield "bad rows", hp.check(spark.createDataFrame(bad), "x"), hp.check(bad, "x")
    there, here = hp.shifted(left, "x", [0.5])[0], hp.shifted(LEFT, "x", [0.5])[0]
    yield "a shifted column", hp.where(there, "x > 1", 0.3), hp.where(here, "x > 1", 0.3)

    window: dict[str, Any] = {"on": BAND, "threshold": 0.6, "time": "time", "window": 5.0}
    yield "join in a window of time", hp.join(left, right, **window), hp.join(LEFT, RIGHT, **window)
    yield "stream join", streamed(spark, folder, window), hp.join(LEFT, RIGHT, **window)


def streamed(spark: Any, folder: Path, window: dict[str, Any]) -> Any:
    """The same join of two streams of files, after all has been read."""
    sides = []
    for name, table in (("left", LEFT), ("right", RIGHT)):
        (folder / name).mkdir(parents=True)
        # The last file moves the clock on, so that everything before it is answered.
        late = pa.table({"id": [-1], "x": pa.array([None], GAUSSIAN), "time": [1000.0]})
        for k, part in enumerate((table.slice(0, 15), table.slice(15), late)):
            file = folder / name / f"{k}.parquet"
            pq.write_table(part.cast(table.schema), file)
            os.utime(file, (1e9 + k, 1e9 + k))  # streams read files by their age
        schema = spark.read.parquet(str(folder / name)).schema
        sides.append(spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name)))
    found = hp.join(*sides, **window)
    query = (
        found.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "pairs")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return spark.read.parquet(str(folder / "pairs"))


def main(folder: Path) -> int:
    """Ask everything; returns the exit status."""
    remote = "--connect" in sys.argv
    spark = hp.local_session("haply versions", cores=2, memory="1g", shuffle_partitions=2, remote=remote)
    print(f"PySpark {pyspark.__version__}")
    wrong = 0
    for name, found, wanted in questions(spark, folder):
        right = rows(found) == rows(wanted) != []
        wrong += not right
        print(f"{'right' if right else 'WRONG'}: {name}, {len(rows(wanted))} rows")
        if not right:
            print(rows(found), rows(wanted), sep="\n")
    try:
        bad = spark.createDataFrame(LEFT).selectExpr("id", "struct(x.mean, -x.sd AS sd) AS x")
        hp.join(bad, spark.createDataFrame(RIGHT), BAND, 0.5).collect()
        wrong += 1
        print("WRONG: a bad row is joined")
    except hp.HaplyError as error:
        right = "Column 'x' of the left table" in str(error) and "Java" not in str(error)
        wrong += not right
        print(f"{'right' if right else 'WRONG'}: {error}")
    spark.stop()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
