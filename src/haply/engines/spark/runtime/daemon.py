"""Spark's parent of Python workers, with haply imported: workers are forked from it, and start at once.

    python -m haply.engines.spark.runtime.daemon pyspark.worker

Spark starts it where ``spark.python.daemon.module`` names it, as ``hp.local_session()`` does. Nothing here changes what
workers do: it only saves each of them the seconds for imports and for collecting their garbage.
"""

from __future__ import annotations

import gc
import time

from pyspark import daemon

import haply.engines.spark.batch
import haply.engines.spark.streaming.worker  # noqa: F401
from haply.numerics.jit import compile_silently

_LONG = 0.005
_ALL_AT_LEAST = 1000


class Sweeper:
    """Collects garbage for PySpark, which collects after every task of a worker.

    Modules and compiled kernels are hundreds of thousands of objects that are never freed. After a slow collection, the
    objects that are left are frozen: they are not searched again before a thousand more collections.
    """

    _calls = 0

    @classmethod
    def collect(cls) -> int:
        """Collect garbage."""
        cls._calls += 1
        if cls._calls % _ALL_AT_LEAST == 0:
            gc.unfreeze()
        begun = time.thread_time()
        found = gc.collect()
        if time.thread_time() - begun > _LONG:
            gc.freeze()
        return found


if __name__ == "__main__":
    compile_silently()
    gc.collect()
    gc.freeze()
    daemon.gc = Sweeper  # type: ignore[assignment]
    daemon.manager()
