"""haply on a real cluster: Spark's standalone master and a worker on this machine, whose Python lacks haply."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import haply
from haply.engines.packing import pack
from haply.engines.spark.runtime.session import find_java, launcher_home

JOB = Path(__file__).parents[1] / "cluster_job.py"
SPARK = Path(pyspark.__file__).parent
PATIENCE_SECONDS = 120

WITHOUT = """
import sys

class Blocked:
    # haply comes from what is sent alone: a zip, or an unpacked environment.
    def find_spec(self, name, path=None, target=None):
        sent = any("/haply" in each and each.endswith(".zip") or "/environment/" in each for each in sys.path)
        if name.partition(".")[0] == "haply" and not sent:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Blocked())
"""


def settings() -> dict[str, str]:
    java = str(launcher_home(find_java()))
    return {**os.environ, "JAVA_HOME": java, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}


def started(log: Path, pattern: str, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a part of the cluster, and wait until its log says so; returns what the pattern finds."""
    with log.open("wb") as written:
        command = [str(SPARK / "bin" / "spark-class"), *arguments]
        process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT, env=settings())
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and process.poll() is None:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return process, found[1]
        time.sleep(0.2)
    process.kill()
    pytest.fail(f"Spark has not started: {log.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster with one worker."""
    folder = tmp_path_factory.mktemp("cluster")
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    processes = []
    try:
        name = "org.apache.spark.deploy.master.Master"
        process, address = started(folder / "master", r"Starting Spark master at (\S+)", name, *here, "--port", "0")
        processes.append(process)
        room = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
        name = "org.apache.spark.deploy.worker.Worker"
        process, _ = started(folder / "worker", r"(registered with master)", name, *here, *room, address)
        processes.append(process)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """A Python that has all packages but haply."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    return wrapped(tmp_path / "python", tmp_path)


def wrapped(python: Path, *places: Path | str) -> Path:
    python.write_text(f'#!/bin/sh\nPYTHONPATH={":".join(map(str, places))}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def submitted(master: str, way: str, folder: Path, *options: str) -> list[str]:
    """Submit the job; returns what it prints."""
    quick = ("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.sql.codegen.wholeStage=false")
    command = [str(SPARK / "bin" / "spark-submit"), "--master", master, *quick, *options, str(JOB), way, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, env=settings(), cwd=folder, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    return ended.stdout.splitlines()


ANSWERED = "spark 20 20 True"


@pytest.mark.long
def test_haply_is_sent_with_a_session(master: str, without: Path, tmp_path: Path) -> None:
    pythons = (f"spark.pyspark.python={without}", f"spark.pyspark.driver.python={sys.executable}")
    said = submitted(master, "ship", tmp_path, *(part for python in pythons for part in ("--conf", python)))
    assert said[0].startswith("The Python of Spark's workers lacks haply")
    assert said[1:] == [ANSWERED]


@pytest.mark.long
def test_haply_is_submitted_as_a_zip(master: str, without: Path, tmp_path: Path) -> None:
    """Neither the driver nor the workers have haply."""
    archive = pack(tmp_path / "haply.zip")
    options = ("--py-files", str(archive), "--conf", f"spark.pyspark.python={without}")
    assert submitted(master, "files", tmp_path, *options) == [ANSWERED]


@pytest.mark.long
def test_a_whole_environment_is_submitted(master: str, without: Path, tmp_path: Path) -> None:
    """The archive is a stand-in for one of venv-pack, which would hold all packages: its Python finds haply in it."""
    packed, python = tmp_path / "environment.tar.gz", tmp_path / "inside"
    wrapped(python, without.parent, '$(dirname "$0")/../lib/environment/')
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(python, "bin/python")
        archive.add(Path(haply.__file__).parent, "lib/environment/haply")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "environment", filter="tar")  # for the driver, which runs here
    options = ("--archives", f"{packed}#environment", "--conf", "spark.pyspark.python=./environment/bin/python")
    assert submitted(master, "archive", tmp_path, *options) == [ANSWERED]
