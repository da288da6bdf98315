"""What all tests share: one Spark session, started by the first test that asks for it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OVER_CONNECT = os.environ.get("HAPLY_TEST_CONNECT") == "1"


def pytest_report_header() -> str:
    kind = "Connect (HAPLY_TEST_CONNECT=1)" if OVER_CONNECT else "classic (HAPLY_TEST_CONNECT=1 tests over Connect)"
    return f"spark session: {kind}"


LONGEST = (
    *("docs", "test_join", "test_sql", "stream_kill", "stream_join", "test_index", "several", "mixed_join"),
    *("test_where", "timing_join", "distance_join", "test_positions", "stream_stall", "test_window", "test_cli"),
)
"""Files that take long, by a part of their names: they are begun first, so that no process ends with one of them.

xdist keeps to it only with ``--no-loadscope-reorder``."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        found = [k for k, part in enumerate(LONGEST) if part in item.path.stem]
        return found[0] if found else len(LONGEST)

    items.sort(key=rank)  # stable: all else stays as it is


def pytest_collection_finish() -> None:
    """Thousands of tests and large libraries are in memory for good: the collector need not look at them again.

    Each full collection would take a quarter of a second and more, and the benches ask for dozens.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The shared session. A test that changes a setting must put it back; one that stops it breaks all the others."""
    # Imported here so that tests of plain arithmetic pay neither for PySpark nor for Java.
    from haply.engines.spark.runtime.session import local_session

    session = local_session(
        "haply tests",
        # Two tasks at a time: enough for races between partitions to show, and what the smallest machines have.
        cores=2,
        # The test data is tiny; a small heap leaves room for the Python workers.
        memory="1g",
        # Each partition of a shuffle is a task and, in a stream, a state store: more of them is only more waiting. Not
        # fewer than three, so that rows that belong together can be apart.
        shuffle_partitions=3,
        remote=OVER_CONNECT,
        extra_conf={
            # Keep the partitions as they are: with so few rows, adaptive execution would merge all into one and tests
            # would never see two.
            "spark.sql.adaptive.coalescePartitions.enabled": False,
            # Every join is a new plan of a dozen stages over a few rows: compiling Java for each takes far longer than
            # running it. Interpret the plans instead, and let the JVM compile only lightly. The demo, the benches and
            # the first lines of a user's own session run compiled.
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    gc.freeze()  # PySpark as well
    yield session
    session.stop()
