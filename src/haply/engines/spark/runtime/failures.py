"""Failures inside Spark's workers reach the caller as a ``HaplyError``, in one sentence and without Java.

A result is a plain lazy DataFrame, so a bad row is found by whatever the caller does with it: ``collect``, ``count``,
``write``, ``toPandas``, a streaming query. There is no call of ours left to catch anything in. A subclass of DataFrame
would be lost with the first ``select``, and an error class for Spark's own messages needs a jar on every node.

PySpark has one step that all of them share: an exception from the JVM, or from a Connect server, becomes one of
Python, and ``recover_python_exception`` looks for the traceback of a worker in its text. `translate_failures` puts a
function around this step. It touches nothing but texts in which a worker's traceback ends with a ``HaplyError``: these
become an exception that is a ``HaplyError`` and also of the class that PySpark chose, so ``except PySparkException``
and ``except StreamingQueryException`` work as before.
"""

from __future__ import annotations

import re
import sys
from functools import cache, wraps
from typing import Any

from pyspark.errors import PySparkException, PythonException

from haply.errors import HaplyError

_CONVERTERS = ("pyspark.errors.exceptions.captured", "pyspark.errors.exceptions.connect")
"""The modules of classic PySpark and of Connect that convert exceptions. Connect's is there once a session is."""

MARK = f"{HaplyError.__module__}.{HaplyError.__name__}: "
"""What the last line of a worker's traceback begins with, and a text of ours that SQL raises."""

_OURS = re.compile(r"(?:^|\[USER_RAISED_EXCEPTION\] )" + re.escape(MARK) + r"(.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
"""Not in the middle of a line: a stream's plan, which is in the text as well, has the messages that SQL may raise."""

_CONVERT = "recover_python_exception"


def translate_failures() -> None:
    """Have PySpark raise what workers say as a ``HaplyError``. May be called any number of times."""
    for name in _CONVERTERS:
        module = sys.modules.get(name)
        if module is not None and not hasattr(getattr(module, _CONVERT), "__wrapped__"):
            setattr(module, _CONVERT, _translating(getattr(module, _CONVERT)))


def _translating(convert: Any) -> Any:
    @wraps(convert)
    def converted(failure: Any) -> Any:
        return translated(failure) or convert(failure)

    return converted


def translated(failure: PySparkException) -> HaplyError | None:
    """The same failure as our error, if a worker of ours has raised it."""
    found = _OURS.findall(str(failure))
    if not found:
        return None
    chosen = type(failure)
    if chosen.__name__ == "UnknownException":  # classic PySpark raises the Java error instead of one of this class
        chosen = getattr(sys.modules[chosen.__module__], PythonException.__name__)
    kind = _both(chosen)  # type: ignore[arg-type]  # mypy: a class of exceptions has no hash
    error = kind.__new__(kind)
    error.__dict__.update(failure.__dict__)  # the condition, the SQL state and the Java trace can still be asked for
    error.args = (found[-1],)  # the last one, where one error led to another
    return error


@cache
def _both(chosen: type[PySparkException]) -> type[HaplyError]:
    """The class of errors that are ours and PySpark's at once, shown under our name."""
    names = {"__str__": lambda self: str(self.args[0]), "__module__": HaplyError.__module__}
    return type(HaplyError.__name__, (HaplyError, chosen), names)


def refused_by_spark(refusal: BaseException) -> str:
    """Shorten the message of an exception of Spark to one line."""
    text = re.split(r"SQLSTATE|;\s*line \d|\n== |\nJVM stacktrace|\n\n", str(refusal))[0]
    return re.sub(r"^\[[\w.]+\]\s*", "", re.sub(r"\s+", " ", text)).strip()
