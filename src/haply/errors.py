"""One error family: every message says where, what was expected, what was found, and how to mend it."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class HaplyError(ValueError):
    """Raised for a question haply cannot answer as it is put.

    The text has up to four parts: where the trouble is, what was expected, what was found, and a hint that mends it.
    """

    def __init__(self, where: str, *, expected: str = "", found: str = "", hint: str = "") -> None:
        parts = [where.rstrip(".") + "."]
        if expected:
            parts.append(f"Expected {expected.rstrip('.')}.")
        if found:
            parts.append(f"Found {found.rstrip('.')}.")
        if hint:
            parts.append(f"Hint: {hint.rstrip('.')}.")
        super().__init__(" ".join(parts))


class HaplyWarning(UserWarning):
    """Issued for a query that is answered, but probably not as its author meant, or far more slowly than need be."""


_advising: ContextVar[bool] = ContextVar("advising", default=True)


def advise(text: str, hint: str) -> None:
    """Issue a ``HaplyWarning`` at the line outside of haply that led here: Python shows it once for each such line."""
    if not _advising.get():
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "haply":
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{text} Hint: {hint}.", HaplyWarning, stacklevel=level)


@contextmanager
def without_advice() -> Iterator[None]:
    """Plan a part of a query whose whole has been looked at already, without warnings about the part."""
    token = _advising.set(False)
    try:
        yield
    finally:
        _advising.reset(token)


def unknown_name(what: str, name: str, known: Iterable[str]) -> HaplyError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = list(known)
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    nearest = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.5)
    return HaplyError(
        f"There is no {what} '{name}'",
        expected="one of " + ", ".join(names) if names else "",
        hint=f"did you mean '{by_lower_case[nearest[0]]}'?" if nearest else "",
    )
