"""haply on a cluster: send it to the workers of a session, and check what they have."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import haply.errors
from haply._version import __version__
from haply.engines.packing import packed
from haply.engines.spark.runtime.failures import refused_by_spark, translate_failures
from haply.engines.spark.runtime.session import is_connect
from haply.errors import HaplyError, need_session
from haply.folders import private_folder

NEEDED = ("numpy", "numba", "pyarrow", "pandas", "sqlglot", "duckdb")
"""Packages that workers need besides haply and PySpark."""

_TASKS = 16


def ship(spark: SparkSession) -> None:
    """Send haply to the workers of a Spark session, where it is not installed.

    Call it once for each session, before the first query: a DataFrame that was made before does not find it.
    The packages that haply needs are not sent: numpy, numba,
    PyArrow, pandas, sqlglot and DuckDB must be installed where the workers run. A worker that has haply takes the one
    that was sent.

    Parameters
    ----------
    spark
        The session, classic or Connect.

    Raises
    ------
    HaplyError
        If Spark refuses the files.

    Examples
    --------
    >>> hp.ship(spark)                                                                               # doctest: +SKIP
    """
    need_session("hp.ship sends haply to the workers of a Spark session", spark, "hp.ship(spark)")
    content = packed()
    # Spark knows files by their names, and refuses another one of the same name.
    name = f"haply-{__version__}-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    path = private_folder("packed") / name
    if not path.is_file():
        path.write_bytes(content)
    try:
        spark.addArtifacts(str(path), pyfile=True)
    except PySparkException as refusal:
        raise HaplyError(
            f"Spark does not take haply: {refused_by_spark(refusal)}",
            hint="install haply where the workers run, or submit with --py-files; see docs/howto/clusters.md",
        ) from refusal
    find_in_driver(spark, path)


def find_in_driver(spark: SparkSession, archive: Path) -> None:
    """Let the processes that Spark starts next to its driver find haply in a zip.

    When a stream starts, one of them makes its stateful functions, to find the names of their state. It gets no files
    of the session, but the environment of its functions, to which this adds the zip. On other machines the zip does not
    exist, and Python ignores its name. Over Connect the environment cannot be changed.
    """
    if is_connect(spark):
        return
    environment = spark.sparkContext.environment
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(archive) not in known:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*known, str(archive)]))


def own_archive() -> Path | None:
    """Return the zip from which this process imported haply, as with ``--py-files``; None if haply is installed."""
    place = Path(haply.errors.__file__).parents[1]
    return place if place.is_file() else None


class WorkerEnvironment(NamedTuple):
    """The Python and the packages of the workers on one machine."""

    host: str
    python: str
    """The version of Python."""
    versions: dict[str, str | None]
    """Versions of packages by name; none for one that is missing."""
    kernels: str
    """The folder of compiled kernels; empty if haply does not start."""
    trouble: str
    """Why haply does not start; empty if it does."""


def worker_environments(spark: SparkSession) -> list[WorkerEnvironment]:
    """Ask the Python workers of a session what they have, by a job of a few tasks."""
    translate_failures()
    asked = ("haply", *NEEDED)

    # Inside of this function, and without any other name of this module: workers without haply must be able to run it.
    def look(_: int) -> str:
        import json
        import platform
        from importlib import import_module

        versions, kernels, trouble = {}, "", ""
        for package in asked:
            try:
                versions[package] = import_module(package).__version__
            except ImportError:
                versions[package] = None
        try:
            kernels = import_module("haply.numerics.jit").cache_folder()
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
        return json.dumps([platform.node(), platform.python_version(), versions, kernels, trouble], sort_keys=True)

    # Without Arrow: a worker that lacks it can report that.
    tell: Any = F.udf(look, "string", useArrow=False)
    rows = spark.range(0, _TASKS, 1, _TASKS).select(tell("id").alias("told")).distinct().collect()
    return sorted(WorkerEnvironment(*json.loads(row["told"])) for row in rows)
