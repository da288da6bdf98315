"""A query on workers that lack haply, before and after it is sent to them; ``tests/spark/test_cluster.py`` runs it."""

from __future__ import annotations

import sys

import haply as hp

spark = hp.local_session(
    "haply workers", cores=2, memory="1g", shuffle_partitions=2, remote=sys.argv[1] == "connect",
    extra_conf={"spark.python.daemon.module": "pyspark.daemon"},
)  # fmt: skip


def asked() -> int:
    """Ask anew: what was made before haply was sent does not find it."""
    return hp.where(spark.range(4).select("id", hp.gaussian("id", 0.1).alias("x")), "x > 1.5", 0.5).count()


try:
    print(asked())
except hp.HaplyError as error:
    print(error)
print(hp.doctor(spark).ok)
hp.ship(spark)
print(asked())
print(hp.doctor(spark).ok)
spark.stop()
