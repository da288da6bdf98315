"""The owner of a pair: the one cell that decides it, where rows are copied to several cells.

A row begins in one cell, and is copied to others that its interval touches. The owner of a pair, or of a combination of
more rows, is the cell in which the last of them begins: all others have been copied there.

If each cell is one stretch of the line, a row that does not begin in a cell has begun before it. The rule then has two
simpler forms: one of the two rows begins in the cell (see ``in_slots``), and the later of the two beginnings is not
before the first one in the cell (see ``Sweep``). A cell of a stream has several stretches of the line, and needs the
rule itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import inner


class Places(NamedTuple):
    """Where rows begin on the line, whether they begin in this cell, and the groups within which rows meet, if any."""

    begins: np.ndarray
    begins_here: np.ndarray
    group: np.ndarray | None = None


ONE_CELL = Places(np.zeros(1), np.ones(1, np.bool_))
"""The places of rows that are not copied, for any number of them: there is one cell, which owns all pairs."""


@inner
def owns(begins: float, begins_here: bool, other_begins: float, other_begins_here: bool) -> bool:
    """Tell whether this cell owns the pair of two rows. Rows that begin at the same place begin in the same cell."""
    return begins_here if begins >= other_begins else other_begins_here


def owned(sides: Sequence[Places]) -> np.ndarray:
    """Tell which pairs, or combinations, this cell owns: ``sides`` has the places of their rows, one row for each."""
    begins, begins_here = sides[0][:2]
    for side in sides[1:]:
        later = side.begins >= begins
        begins, begins_here = np.where(later, side.begins, begins), np.where(later, side.begins_here, begins_here)
    return begins_here
