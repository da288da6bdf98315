"""Tables as plain text that fits a given width."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence

_LEAST = 6
"""Letters of a column that is cut."""
_GAP = "  "
_NUMBER = re.compile(r"[-+]?(\d[\d.]*(e[-+]?\d+)?|nan|inf)|None", re.IGNORECASE)


def room() -> int:
    """Return the width of a line: that of the terminal, or ``COLUMNS``, else 80."""
    return shutil.get_terminal_size((80, 24)).columns


def table_text(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Write a table in lines of at most so many letters.

    The widest columns are cut first. If that does not help, columns are left out, and named below.

    >>> print(table_text(["parcel", "kg"], [["A", "2.1"], ["B", "13"]], 60))
    parcel   kg
    ------  ---
    A       2.1
    B        13
    """
    columns = [[name, *(_one_line(row[at]) for row in rows)] for at, name in enumerate(names)]
    numbers = [len(rows) > 0 and all(map(_NUMBER.fullmatch, column[1:])) for column in columns]
    wanted = [max(map(len, column)) for column in columns]
    least = [full if number else min(full, _LEAST) for full, number in zip(wanted, numbers, strict=True)]
    ranks = [_rank(column[1:]) for column in columns]
    shown = _chosen(least, ranks, width)
    widths = _cut([wanted[at] for at in shown], [least[at] for at in shown], width)
    lines = []
    for row in range(len(rows) + 1):
        cells = [_fitted(columns[at][row], room, numbers[at]) for at, room in zip(shown, widths, strict=True)]
        lines.append(_GAP.join(cells).rstrip())
        if row == 0:
            lines.append(_GAP.join("-" * room for room in widths))
    hidden = [name for at, name in enumerate(names) if at not in shown]
    if hidden:
        lines.append(_cut_text(f"Not shown: {', '.join(hidden)}", width))
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split()) if text.strip() else text.strip()


def _rank(cells: Sequence[str]) -> int:
    """Return how early a column is left out: names and whole numbers identify a row, cut structs say little."""
    if any(cell.startswith(("(", "[")) for cell in cells):
        return 2
    return int(any(_NUMBER.fullmatch(cell) and not cell.lstrip("-").isdigit() and cell != "None" for cell in cells))


def _chosen(least: Sequence[int], ranks: Sequence[int], width: int) -> list[int]:
    """Choose columns: the first and the last, then by their ranks, from both ends.

    The first columns identify a row, and the last is its probability.
    """
    last = len(least) - 1
    order = sorted(
        range(len(least)),
        key=lambda at: (0 < at < last, ranks[at], min(2 * at, 2 * (last - at) + 1)),
    )
    chosen: list[int] = []
    used = -len(_GAP)
    for at in order:
        if used + len(_GAP) + least[at] <= width or not chosen:
            used += len(_GAP) + least[at]
            chosen.append(at)
    return sorted(chosen)


def _cut(widths: list[int], least: Sequence[int], width: int) -> list[int]:
    """Shorten the widest columns until all fit; numbers are never cut, as that would change them."""
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        spare = [at for at, one in enumerate(widths) if one > least[at]]
        if not spare:
            break
        widths[max(spare, key=lambda at: widths[at])] -= 1
    return widths


def wrapped(text: str, width: int) -> str:
    """Wrap the lines of a plan: text next to a name stays in its column."""
    lines = []
    for line in text.splitlines():
        name = re.match(r" +\S.*? {2,}", line)
        beside = " " * len(name[0]) if name is not None and 2 * len(name[0]) < width else "    "
        lines += textwrap.wrap(line, width, subsequent_indent=beside, break_long_words=False) or [""]
    return "\n".join(lines)


def _cut_text(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 3, 0)] + "..."


def _fitted(text: str, room: int, right: bool) -> str:
    text = _cut_text(text, room)
    return text.rjust(room) if right else text.ljust(room)
