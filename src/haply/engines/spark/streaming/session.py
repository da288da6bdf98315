"""What a Spark session needs to run joins of streams."""

from __future__ import annotations

from typing import Any

from haply.engines.spark.exchange.parcels import CellSettings
from haply.engines.spark.runtime.cluster import find_in_driver, own_archive
from haply.engines.spark.versions import check_stateful
from haply.errors import HaplyError, advise, count_of

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PARTITIONS_PER_CELL = 2
STREAM_CELLS = 16
"""The number of cells, unless ``spark.haply.cells`` is set. It is fixed: a restart must send rows to the same cells."""


def check_session(spark: Any) -> None:
    """Refuse a session without the RocksDB state store: only that has the kinds of state that are used.

    Streams also need haply next to Spark's driver.
    """
    check_stateful(spark)
    archive = own_archive()
    if archive is not None:
        find_in_driver(spark, archive)
    found = spark.conf.get(_PROVIDER, "")
    if "RocksDB" not in found:
        raise HaplyError(
            "A join of streams needs Spark's RocksDB state store",
            expected=f"{_PROVIDER} = {_ROCKSDB}",
            found=found or "nothing set",
            hint=f'spark.conf.set("{_PROVIDER}", "{_ROCKSDB}"), or start with hp.local_session()',
        )
    cells = CellSettings.of(spark).cells or STREAM_CELLS
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
    if partitions > _PARTITIONS_PER_CELL * max(cells, STREAM_CELLS):
        advise(
            f"Each micro-batch of this stream will wait for {partitions} tasks, of which at most {cells} have rows to "
            f"join: spark.sql.shuffle.partitions is {partitions}, and rows are distributed over "
            f"{count_of(cells, 'cell')} (spark.haply.cells). The checkpoint keeps the number of the first start.",
            f'before it, spark.conf.set("spark.sql.shuffle.partitions", n) with the number of cores, at most {cells}',
        )
