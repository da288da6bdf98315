"""Rows in slots of time: a slot is a little longer than the window, so that partners are in one or in neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from haply.joins.cells.rows import CellRows


def in_slots(
    left: CellRows, right: CellRows, window: float, left_away: np.ndarray, right_away: np.ndarray
) -> tuple[CellRows, CellRows, np.ndarray, np.ndarray]:
    """Put rows into groups by their times as well; returns the rows, and which row each of them is.

    Left rows are there once for each of the three slots where right ones may be their partners, so that a pair meets
    once, in the slot of its right row; rows without a possible partner are left out. Rows whose time begins in another
    cell are *away*: two of these meet there, and not here.
    """
    assert left.times is not None
    assert right.times is not None
    farthest = max(float(np.abs(side.times).max(initial=0.0)) for side in (left, right))  # type: ignore[arg-type]
    # so long that rounding of the quotients is far less than what a slot is longer than the window
    length = max(1.001 * window, 2.0**-40 * farthest) or 1.0
    mine, theirs = (np.floor(times / length) for times in (left.times, right.times))
    apart = max(mine.max(), theirs.max()) - min(mine.min(), theirs.min())
    if apart <= 1.0 and not (left_away.any() and right_away.any()):  # all are neighbours
        return left, right, np.arange(len(mine)), np.arange(len(theirs))
    # two numbers for each slot: the second one is for right rows that are away, which some left rows do not meet
    slots, code = np.unique(2.0 * theirs + right_away, return_inverse=True)
    wanted = 2.0 * mine[:, None] + np.array([-2.0, 0.0, 2.0])
    if right_away.any():
        wanted = np.concatenate([wanted, np.where(left_away[:, None], np.nan, wanted + 1.0)], axis=1)
    at = np.minimum(np.searchsorted(slots, wanted.ravel()), len(slots) - 1)
    met = np.flatnonzero(slots[at] == wanted.ravel())
    at, chosen = at[met], (met // wanted.shape[1], np.flatnonzero(np.bincount(at[met], minlength=len(slots))[code]))
    sides = [side.take(rows) for side, rows in zip((left, right), chosen, strict=True)]
    for k, slot in enumerate((at, code[chosen[1]])):
        groups = sides[k].groups
        sides[k] = replace(sides[k], groups=slot if groups is None else groups * len(slots) + slot)
    return sides[0], sides[1], *chosen
