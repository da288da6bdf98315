"""haply on workers: whether they have it, what is said if not, and how it gets to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import haply as hp
from haply.engines.spark.runtime.failures import translated

JOB = Path(__file__).parents[1] / "worker_job.py"

WITHOUT = """
import sys

class Blocked:
    # A worker has haply from a zip only: the one that hp.ship sends.
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "haply" and not any("/haply-" in each for each in sys.path):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Blocked())
"""


def test_doctor_asks_the_workers(spark):
    found = hp.doctor(spark)
    assert found.ok, str(found)
    (workers,) = (check for check in found.checks if check.name.startswith("workers on"))
    assert f"haply {hp.__version__}" in workers.found


def test_a_worker_without_a_package_is_told_in_one_sentence():
    lacking = PySparkException("File \"haply/joins\"\nModuleNotFoundError: No module named 'numba'\n\tat java.lang")
    assert str(translated(lacking)) == (
        "The Python of Spark's workers lacks haply, or a package that haply needs there. "
        "Found No module named 'numba'. Hint: hp.ship(spark) sends haply to workers, hp.doctor(spark) shows what they "
        "lack; see docs/howto/clusters.md."
    )
    stream = PySparkException(f"{lacking}\n=== Streaming Query ===\nIdentifier")
    assert "; over Spark Connect, a stream needs haply installed on the server as well; see" in str(translated(stream))
    daemon = PySparkException("EOFException occurred while reading the port number from haply.engines.x's stdout")
    assert "leave that setting out and call hp.ship(spark); see docs/howto/clusters.md" in str(translated(daemon))
    assert translated(PySparkException("ModuleNotFoundError: No module named 'numba'")) is None
    waiting = PySparkException("org.apache.spark.SparkException: Exception thrown in awaitResult: ")
    assert translated(waiting) is None
    waiting._stackTrace = f"Exception thrown in awaitResult\n\tat java.lang\nCaused by: {lacking}"
    assert "Found No module named 'numba'" in str(translated(waiting))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_workers_without_haply(kind: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    there = {**os.environ, "PYSPARK_PYTHON": str(python)}
    ended = subprocess.run([sys.executable, str(JOB), kind], capture_output=True, text=True, env=there, timeout=900)
    said = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    assert said[0].startswith("The Python of Spark's workers lacks haply")
    assert "No module named 'haply'" in said[0]
    assert said[1:] == ["False", "2", "True"]
