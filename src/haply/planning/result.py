"""The columns of a join's result: which there are, what they are called, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from haply.errors import HaplyError, unknown_name
from haply.planning.frames import SideName


class Shown(NamedTuple):
    """A column of the result: the side and the column there that it comes from, and its name."""

    side: SideName
    column: str
    name: str


def result_columns(
    left: Sequence[str],
    right: Sequence[str],
    suffixes: tuple[str, str],
    with_probability: bool,
    wanted: Sequence[str] | None = None,
) -> list[Shown]:
    """The columns of the result besides the probability, those that clash with the suffixes: all, or those wanted."""
    taken = {"probability"} if with_probability else set()
    clashes = {name.lower() for name in left} & {name.lower() for name in right}
    clashes |= {name for name in taken if name in {column.lower() for column in (*left, *right)}}
    shown: list[Shown] = []
    sides: tuple[tuple[SideName, Sequence[str], str], ...] = ("left", left, suffixes[0]), ("right", right, suffixes[1])
    for side, columns, suffix in sides:
        shown += [Shown(side, name, name + suffix if name.lower() in clashes else name) for name in columns]
    lowered = [*(one.name.lower() for one in shown), *taken]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise HaplyError(
            "Two columns of the result would have one name",
            expected="different names",
            found=", ".join(twice),
            hint="rename a column, or choose other suffixes",
        )
    return shown if wanted is None else _wanted(shown, wanted, with_probability)


def _wanted(shown: list[Shown], wanted: Sequence[str], with_probability: bool) -> list[Shown]:
    """The columns that have these names, in letters of any case."""
    if isinstance(wanted, str) or not all(isinstance(name, str) for name in wanted):
        raise HaplyError("The columns of a result are chosen by name", expected="a list of names", found=repr(wanted))
    known, found = {one.name.lower(): one for one in shown}, []
    for name in wanted:
        if name.lower() == "probability" and with_probability:
            raise HaplyError("'probability' is one of the columns", expected="columns of the two tables",
                hint="leave it out: it always comes, as the last; probability=\"none\" does without it")  # fmt: skip
        if name.lower() not in known:
            raise unknown_name("column of the result", name, [one.name for one in shown])
        if known[name.lower()] in found:
            raise HaplyError(f"columns names '{name}' twice", expected="different names")
        found.append(known[name.lower()])
    return found


def one_of(what: str, value: str, known: Sequence[str]) -> None:
    """Refuse a value that is none of the known ones."""
    if value not in known:
        raise unknown_name(f"choice of {what}", value, known)
