"""Turn failures of Spark's workers into a ``HaplyError``, in one sentence and without a Java trace.

A result is a plain lazy DataFrame, so a bad row is found by whatever the caller does with it: ``collect``, ``count``,
``write``, ``toPandas``, a streaming query. At that point no function of haply is called that could catch it. A subclass
of DataFrame would be lost with the first ``select``, and an error class for Spark's own messages needs a jar on every
node.

PySpark has one step that all of them share: an exception from the JVM, or from a Connect server, becomes one of
Python, and ``recover_python_exception`` looks for the traceback of a worker in its text. `translate_failures` puts a
function around this step. It changes only texts in which a worker's traceback ends with a ``HaplyError``: these
become an exception that is a ``HaplyError`` and also of the class that PySpark chose, so ``except PySparkException``
and ``except StreamingQueryException`` work as before. Failures of workers without haply are translated in the same way.
"""

from __future__ import annotations

import re
import sys
from functools import cache, wraps
from typing import Any

from pyspark.errors import PySparkException, PythonException

from haply.errors import HaplyError

_CONVERTERS = (
    "pyspark.errors.exceptions.captured",
    "pyspark.errors.exceptions.connect",
    "pyspark.sql.connect.client.core",
)
"""The modules of classic PySpark and of Connect that convert exceptions. Connect's need a session."""

MARK = f"{HaplyError.__module__}.{HaplyError.__name__}: "
"""The beginning of the last line of a worker's traceback, and of an error of haply that SQL raises."""

_OURS = re.compile(r"(?:^|\[USER_RAISED_EXCEPTION\] )" + re.escape(MARK) + r"(.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
"""Not in the middle of a line: a stream's plan, which is in the text as well, has the messages that SQL may raise."""

_NO_PACKAGE = re.compile(r"^(?:ModuleNotFoundError|ImportError): (No module named '[\w.]+').*$", re.MULTILINE)
"""The last line of the traceback of a worker that lacks a package."""

_NO_DAEMON = re.compile(r"port number from haply\.|in haply\.[\w.]+'s standard output")
"""Spark's message if it cannot start haply's parent of workers, which is set by ``spark.python.daemon.module``."""

_STREAM = "=== Streaming Query ==="
"""A text that all failures of streams contain."""

_RECOVER, _CONVERT = "recover_python_exception", "convert_exception"
"""The shared step, and the one around it that only PySpark 4.0 has."""


def translate_failures() -> None:
    """Make PySpark raise errors of workers as a ``HaplyError``. May be called any number of times."""
    for name in _CONVERTERS:
        module = sys.modules.get(name)
        step = _RECOVER if hasattr(module, _RECOVER) else _CONVERT
        found = getattr(module, step, None)
        if found is not None and not hasattr(found, "__wrapped__"):
            setattr(module, step, (_before if step == _RECOVER else _after)(found))


def _before(recover: Any) -> Any:
    @wraps(recover)
    def recovered(failure: Any) -> Any:
        return translated(failure) or recover(failure)

    return recovered


def _after(convert: Any) -> Any:
    @wraps(convert)
    def converted(*arguments: Any, **options: Any) -> Any:
        failure = convert(*arguments, **options)
        return translated(failure) or failure

    return converted


def translated(failure: PySparkException) -> HaplyError | None:
    """Return a failure as a ``HaplyError``, if haply raised it in a worker, or if the worker lacks haply."""
    # if one job of a query waits for another, the cause is only in Spark's trace
    message = _message(str(failure)) or _message(getattr(failure, "_stackTrace", None) or "")
    if message is None:
        return None
    chosen = type(failure)
    if chosen.__name__ == "UnknownException":  # classic PySpark raises the Java error instead of one of this class
        chosen = getattr(sys.modules[chosen.__module__], PythonException.__name__)
    kind = _both(chosen)  # type: ignore[arg-type]  # mypy: a class of exceptions has no hash
    error = kind.__new__(kind)
    error.__dict__.update(failure.__dict__)  # the condition, the SQL state and the Java trace can still be asked for
    error.args = (message,)
    return error


def _message(text: str) -> str | None:
    """Return the message for a failure of Spark; None if it is not about haply."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])  # the last one, where one error led to another
    lacking = _NO_PACKAGE.findall(text) if "haply" in text else []
    if lacking:
        found, mend = str(lacking[-1]), "hp.ship(spark) sends haply to workers, hp.doctor(spark) shows what they lack"
        if _STREAM in text:
            mend += "; over Spark Connect, a stream needs haply installed on the server as well"
    elif _NO_DAEMON.search(text):
        found = "that spark.python.daemon.module, which names a module of haply, does not start"
        mend = "install haply there, or leave that setting out and call hp.ship(spark)"
    else:
        return None
    where = "The Python of Spark's workers lacks haply, or a package that haply needs there"
    return str(HaplyError(where, found=found, hint=f"{mend}; see docs/howto/clusters.md"))


@cache
def _both(chosen: type[PySparkException]) -> type[HaplyError]:
    """Make a class of errors that are both a ``HaplyError`` and PySpark's, shown as ``HaplyError``."""
    names = {"__str__": lambda self: str(self.args[0]), "__module__": HaplyError.__module__}
    return type(HaplyError.__name__, (HaplyError, chosen), names)


def refused_by_spark(refusal: BaseException) -> str:
    """Shorten the message of an exception of Spark to one line."""
    text = re.split(r"SQLSTATE|;\s*line \d|\n== |\nJVM stacktrace|\n\n", str(refusal))[0]
    return re.sub(r"^\[[\w.]+\]\s*", "", re.sub(r"\s+", " ", text)).strip()
