"""haply ("by chance"): joins and filters on data whose values are uncertain.

>>> import haply as hp
>>> print(abs(hp.left.temp - hp.right.temp) <= 0.5)
abs(left.temp - right.temp) <= 0.5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haply._version import __version__
from haply.errors import HaplyError, HaplyWarning
from haply.query import between, col, distance, left, right
from haply.report.funnel import Funnel

if TYPE_CHECKING:
    from types import FrameType

    from haply import sky
    from haply.api import build_index, check, join, plan_join, plan_where, read_index, table, where, window_join
    from haply.constructors import (
        asymmetric,
        counts,
        ellipse,
        gaussian,
        gaussian_nd,
        gps,
        histogram,
        latency,
        measured,
        mixture,
        mixture_nd,
        parse,
        parse_asymmetric,
        quantiles,
        rounded,
        samples,
        truncated_gaussian,
        uniform,
    )
    from haply.engines.doctor import doctor
    from haply.engines.spark.runtime.cluster import ship
    from haply.engines.spark.runtime.session import local_session
    from haply.judging import calibrate, calibration, shifted
    from haply.looking.pair import explain_pair
    from haply.looking.pairs import explore, map, threshold_chart
    from haply.looking.watching import progress, watch
    from haply.questions import asof, count_matches, density, match, plan_asof, plan_count_matches, plan_match
    from haply.statements import plan_sql, sql

__all__ = [
    "Funnel",
    "HaplyError",
    "HaplyWarning",
    "__version__",
    "asof",
    "asymmetric",
    "between",
    "build_index",
    "calibrate",
    "calibration",
    "check",
    "col",
    "count_matches",
    "counts",
    "density",
    "distance",
    "doctor",
    "ellipse",
    "explain_pair",
    "explore",
    "gaussian",
    "gaussian_nd",
    "gps",
    "histogram",
    "join",
    "latency",
    "left",
    "local_session",
    "map",
    "match",
    "measured",
    "mixture",
    "mixture_nd",
    "parse",
    "parse_asymmetric",
    "plan_asof",
    "plan_count_matches",
    "plan_join",
    "plan_match",
    "plan_sql",
    "plan_where",
    "progress",
    "quantiles",
    "read_index",
    "right",
    "rounded",
    "samples",
    "shifted",
    "ship",
    "sky",
    "sql",
    "table",
    "threshold_chart",
    "truncated_gaussian",
    "uniform",
    "watch",
    "where",
    "window_join",
]

_LAZY = {
    "build_index": "haply.api",
    "read_index": "haply.api",
    "check": "haply.api",
    "join": "haply.api",
    "plan_join": "haply.api",
    "plan_where": "haply.api",
    "asof": "haply.questions",
    "plan_asof": "haply.questions",
    "count_matches": "haply.questions",
    "plan_count_matches": "haply.questions",
    "density": "haply.questions",
    "match": "haply.questions",
    "plan_match": "haply.questions",
    "calibrate": "haply.judging",
    "calibration": "haply.judging",
    "shifted": "haply.judging",
    "doctor": "haply.engines.doctor",
    "explain_pair": "haply.looking.pair",
    "explore": "haply.looking.pairs",
    "map": "haply.looking.pairs",
    "threshold_chart": "haply.looking.pairs",
    "local_session": "haply.engines.spark.runtime.session",
    "ship": "haply.engines.spark.runtime.cluster",
    "plan_sql": "haply.statements",
    "sql": "haply.statements",
    "table": "haply.api",
    "progress": "haply.looking.watching",
    "watch": "haply.looking.watching",
    "where": "haply.api",
    "window_join": "haply.api",
}


def __getattr__(name: str) -> Any:
    """Import names on their first use: ``import haply`` alone stays light.

    Constructors, like ``hp.gaussian``, are made from the classes of the models.
    """
    import importlib

    if not name.startswith("_"):  # tools ask for private names, and need nothing for the answer
        _import_numba()
    if name == "sky":
        found: Any = importlib.import_module("haply.sky")
    elif name in _LAZY:
        found = getattr(importlib.import_module(_LAZY[name]), name)
    else:
        constructors = {} if name.startswith("_") else importlib.import_module("haply.constructors").CONSTRUCTORS
        if name not in constructors:
            raise AttributeError(f"module 'haply' has no attribute '{name}'")
        found = constructors[name]
    globals()[name] = found
    return found


def _import_numba() -> None:
    """Import numba on a thread of its own, where the stack is empty.

    CPython 3.11 keeps a stack in chunks. A loop in numba's import takes .2 s instead of .01 s if its calls cross from
    one chunk into the next, and whether they do depends on how many callers the import has.

    A module that is being imported is locked. If numba needs it as well, as where a script has the name of a module of
    Python, the thread would wait for this one, which waits for the thread: no thread then.
    """
    import sys
    import threading
    from contextlib import suppress
    from importlib import import_module

    def attempt() -> None:
        with suppress(ImportError):  # the import that needs it reports that
            import_module("numba")

    if "numba" in sys.modules or _in_import(sys._getframe()):
        return
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()


def _in_import(frame: FrameType | None) -> bool:
    """Return whether one of the callers is the import of a module."""
    while frame is not None:
        if frame.f_code.co_name == "_load_unlocked" and frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def __dir__() -> list[str]:
    from haply.planning.constructors import PARAMETERS

    return sorted({*__all__, *PARAMETERS})
