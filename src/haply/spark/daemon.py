"""Spark's parent of Python workers with haply already in it: workers are forked from it, and begin at once.

    python -m haply.spark.daemon pyspark.worker

Spark starts it where ``spark.python.daemon.module`` names it, as ``hp.local_session()`` does. Nothing here changes what
workers do: it only saves each of them the seconds that importing takes.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import haply.spark.distance
import haply.spark.stream_worker  # noqa: F401

if __name__ == "__main__":
    # PySpark collects garbage after each task. What was imported stays: without it a collection takes a tenth as long.
    gc.collect()
    gc.freeze()
    manager()
