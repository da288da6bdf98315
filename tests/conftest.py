"""What all tests share: one Spark session, started by the first test that asks for it; and which tests run.

``@pytest.mark.long`` is for tests that only ``--long`` runs (``make test-long``), and ``@pytest.mark.long(keep=3)`` for
tests of many cases, three of which run always. A test that asks for ``engine`` is answered by the local engine, with
``--engine both`` by Spark as well. ``@pytest.mark.uses_spark`` is for cases that ask for ``spark`` only when they run.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import amounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OVER_CONNECT = os.environ.get("HAPLY_TEST_CONNECT") == "1"

# The matrices of the tests are small, and two processes share the cores: further threads of OpenBLAS only spin. It
# reads this when numpy is imported, which no plugin does before.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("haply")
    group.addoption("--long", action="store_true", help="run long tests too: kills, soaks, every case of all tests")
    group.addoption(
        "--engine",
        choices=("local", "spark", "both"),
        default="local",
        help="what answers queries that both can answer",
    )


def pytest_configure(config: pytest.Config) -> None:
    amounts.all_cases = config.getoption("long")
    gc.disable()  # what is imported for the tests stays


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Import the tests in one process after the other: the first keeps them compiled, and style is checked meanwhile.

    In a fresh checkout each process would else compile all tests, at the same time.
    """
    run = getattr(session.config, "workerinput", {}).get("testrunuid")
    if run is None:
        return (yield)
    path = Path(tempfile.gettempdir()) / f"haply-tests-{run}"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = yield
    path.unlink(missing_ok=True)
    return found


def pytest_report_header() -> str:
    kind = "Connect (HAPLY_TEST_CONNECT=1)" if OVER_CONNECT else "classic (HAPLY_TEST_CONNECT=1 tests over Connect)"
    return f"spark session: {kind}"


LONGEST = (
    *("test_whole", "stream_kill", "docs", "test_engines", "stream_how", "stream_settling", "test_cli", "test_ask"),
    *("test_select", "test_curved", "time_cells", "stream_cells"),
)
"""Files that take long, by a part of their names: they are begun first, so that no process ends with one of them.

xdist keeps to it only with ``--no-loadscope-reorder``."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        asked = metafunc.config.getoption("engine")
        names = ["local", "spark"] if asked == "both" else [asked]
        metafunc.parametrize("engine", names, indirect=True, scope="session")


def long_ones(items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests that only ``--long`` runs. The cases of them to be kept are drawn by a fixed seed."""
    found: set[pytest.Item] = set()
    cases: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("long")
        if mark is None:
            if item.path.name == "test_connect.py" and not OVER_CONNECT:
                found.add(item)  # ``make test`` runs these over Connect
            continue
        keep = mark.kwargs.get("keep", 0)
        if keep:
            cases[item.nodeid.partition("[")[0], keep].append(item)
        else:
            found.add(item)
    for (name, keep), group in cases.items():
        kept = random.Random(name).sample(group, min(keep, len(group)))
        found |= set(group) - set(kept)
    return found


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = any("::" in argument for argument in config.args)
    if not config.getoption("long") and not named:
        left_out = long_ones(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]

    @cache
    def rank(path: Path) -> int:
        found = [k for k, part in enumerate(LONGEST) if part in path.stem]
        return found[0] if found else len(LONGEST)

    items.sort(key=lambda item: rank(item.path))  # stable: all else stays as it is
    for item in items:
        # One process runs all tests on Spark, which starts once and is slow at first; the others go by their files.
        uses_spark = "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("uses_spark") is not None
        in_one = uses_spark and not config.getoption("long")
        item.add_marker(pytest.mark.xdist_group("spark" if in_one else item.path.name))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Check that groups are known, and let the collector rest.

    Thousands of tests and large libraries are in memory for good: each full collection would take a quarter of a second
    and more, and the benches ask for dozens.
    """
    # xdist appends the group to the name of a test. Under pytest 9.2 it fails to (pytest-dev/pytest-xdist#1386): tests
    # are then dealt out one by one, and each process starts its own Spark and compiles all kernels.
    if getattr(session.config.option, "loadgroup", False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist does not know the groups of tests: install the pinned pytest")
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


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
            "spark.driver.extraJavaOptions": (
                "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn500m "
                # A JVM that compiles lightly has by itself little room for machine code, and keeps sweeping it.
                "-XX:ReservedCodeCacheSize=240m"
            ),
        },
    )
    gc.freeze()  # PySpark as well
    yield session
    session.stop()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Any:
    """The engine that answers, for tests that need no more than answers (see ``both_kit``)."""
    from both_kit import Engine

    return Engine(request.getfixturevalue("spark") if request.param == "spark" else None)
