"""Pairs of two tables and of two streams on a cluster; ``tests/spark/test_standalone.py`` submits it."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

import haply as hp

NEAR = "abs(left.x - right.x) <= 0.3"
spark = SparkSession.builder.appName("haply on a cluster").getOrCreate()
rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)


def table() -> DataFrame:
    """Make rows whose neighbours are too far away to match."""
    numbers = spark.range(20).selectExpr("id", "0.5D * id AS value", "double(id) AS time")
    return numbers.select("id", "time", hp.gaussian("value", 0.2).alias("x"))


def asked() -> int:
    return hp.join(table(), table(), on=NEAR, threshold=0.5).count()


def streamed(folder: str) -> int:
    """Join two streams of the same rows into a folder."""
    table().write.parquet(f"{folder}/rows")
    rows = spark.readStream.schema(table().schema).parquet(f"{folder}/rows")
    pairs = hp.join(rows, rows, on=NEAR, threshold=0.5, window=5.0, time="time")
    writer = pairs.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start(f"{folder}/pairs").awaitTermination()
    return spark.read.parquet(f"{folder}/pairs").count()


way, where = sys.argv[1:]
if way == "ship":
    try:
        print(asked())
    except hp.HaplyError as error:
        print(error)
    hp.ship(spark)
print(spark.sparkContext.master.partition(":")[0], asked(), streamed(where), hp.doctor(spark).ok)
spark.stop()
