"""One error family: every message says where, what was expected, what was found, and how to fix it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar


class HaplyError(ValueError):
    """Raised for a query that haply cannot answer.

    The parts of the message are also attributes.

    Parameters
    ----------
    where
        What is wrong, and where.
    expected
        What was expected.
    found
        What was found.
    hint
        How to correct it.
    place
        The place in the text of a query, shown before the message.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> try:
    ...     hp.where(pa.table({"kg": [2.0]}), "gaussian(kg, 0.1) > 2", threshold=2)
    ... except hp.HaplyError as error:
    ...     print(error.expected)
    a number in (0, 1], or None for every possible pair
    """

    def __init__(self, where: str, *, expected: str = "", found: str = "", hint: str = "", place: str = "") -> None:
        super().__init__(where)
        self.where, self.expected, self.found, self.hint, self.place = where, expected, found, hint, place

    def __str__(self) -> str:
        parts = [_sentence(self.where)]
        if self.expected:
            parts.append(_sentence(f"Expected {self.expected}"))
        if self.found:
            parts.append(_sentence(f"Found {self.found}"))
        if self.hint:
            parts.append(_sentence(f"Hint: {self.hint}"))
        return self.place + " ".join(parts)

    def at(self, place: str) -> HaplyError:
        """Return the same error with its place in a text; one that has a place keeps it."""
        if self.place:
            return self
        return HaplyError(self.where, expected=self.expected, found=self.found, hint=self.hint, place=place)


def _sentence(text: str) -> str:
    return text if text.endswith("?") else text.rstrip(".") + "."


def missing_package(what: str, missing: ImportError, install: str) -> HaplyError:
    """Make the error for something that needs packages which are not installed.

    Parameters
    ----------
    what
        What needs them, in the plural: ``"Charts"``.
    missing
        What Python said.
    install
        What to install: ``"haply[viz]"``.
    """
    needed = f"{what} need a package that is not installed"
    return HaplyError(needed, found=str(missing), hint=f'pip install "{install}"')


def count_of(count: int, one: str, many: str = "") -> str:
    """Say how many there are: ``1 row``, ``2 rows``.

    >>> count_of(1, "cell"), count_of(1200, "cell"), count_of(0, "entry", "entries")
    ('1 cell', '1,200 cells', '0 entries')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


class HaplyWarning(UserWarning):
    """Issued for a query that is answered, but probably not as its author meant, or far more slowly than necessary.

    Examples
    --------
    >>> import warnings
    >>> import haply as hp
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", hp.HaplyWarning)  # a doubtful query now raises
    """


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
    """Plan a part of a query without warnings, because the whole query has been checked already."""
    token = _advising.set(False)
    try:
        yield
    finally:
        _advising.reset(token)


def unknown_name(what: str, name: str, known: Iterable[str], hint: str = "") -> HaplyError:
    """Make the error for a name that does not exist; it suggests one that does if that is likely what was meant."""
    names = list(known)
    meant = _meant(name, names)
    return HaplyError(
        f"There is no {what} '{name}'",
        expected="one of " + ", ".join(names) if names else "",
        hint=hint if meant is None else f"did you mean '{meant}'?",
    )


def need_session(what: str, given: object, hint: str) -> None:
    """Refuse a value that is not a Spark session; ``what`` says why one is needed."""
    if not hasattr(given, "createDataFrame"):
        raise HaplyError(what, expected="a SparkSession", found=type(given).__name__, hint=hint)


def one_of(what: str, value: str, known: Sequence[str], hint: str = "") -> None:
    """Refuse a value that is not among the known ones; the hint is shown if it is similar to none of them."""
    names = "one of " + ", ".join(known)
    if not isinstance(value, str):
        raise HaplyError(f"The choice of {what} is not a name", expected=names, found=repr(value), hint=hint)
    if value not in known:
        raise unknown_name(f"choice of {what}", value, known, hint)


def _meant(name: str, names: Sequence[str]) -> str | None:
    """Find the name of which this one is a misspelling, or the only one with some words more or fewer."""
    apart = {candidate: _edits(name.lower(), candidate.lower()) for candidate in names}
    near = [candidate for candidate in names if apart[candidate] <= _most_edits(name, candidate)]
    if near:
        return min(near, key=lambda candidate: apart[candidate])
    longer = [candidate for candidate in names if _is_part(name, candidate) or _is_part(candidate, name)]
    return longer[0] if len(longer) == 1 else None


def _most_edits(one: str, other: str) -> int:
    """Return how many edits still count as a misspelling: fewer for a short name."""
    shorter = min(len(one), len(other))
    if shorter < 3:
        return int(len(one) != len(other))
    return 1 if shorter < 7 else 2


def _is_part(part: str, whole: str) -> bool:
    """Return whether a name is another one without its first or last words: ``kg`` of ``kg_left``."""
    words = whole.lower().split("_")
    return any(part.lower() in ("_".join(words[:k]), "_".join(words[k:])) for k in range(1, len(words)))


def _edits(one: str, other: str) -> int:
    """Count the letters to insert, leave out, replace or swap with their neighbour to turn one name into the other.

    >>> _edits("windw", "window"), _edits("tiem", "time"), _edits("arcmin", "arcsec")
    (1, 1, 3)
    """
    before, last = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, theirs in enumerate(other, 1):
            least = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != theirs))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == theirs:
                least = min(least, before[j - 2] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]
