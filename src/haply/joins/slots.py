"""Slots of time: a slot is a little longer than the window, so that partners are in one slot or in neighbours.

A slot can thus be a key: one side has the key of its slot, the other one is copied to three. A pair then meets once.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

_SLACK = 1e-6
"""Relative length that a slot has beyond the window: more than the rounding of places in slots."""

Numbers = tuple[np.ndarray, np.ndarray] | tuple[None, None]
"""A number for each row of the two sides: rows meet if their numbers are equal. None if all rows may meet."""


class TimesAndGroups(Protocol):
    """What rows must have to be put into slots: times, and the groups within which they meet, if any."""

    @property
    def times(self) -> np.ndarray | None:
        """Return the times."""

    @property
    def groups(self) -> np.ndarray | None:
        """Return the groups."""


def sql_slot_length(window: float) -> float:
    """Return the length of slots that SQL computes as ``floor(time / length)``.

    Partners' quotients differ by less than 1, and by at most 1 when they are rounded, as 1 is a multiple of whatever
    doubles are apart there (or times as near as that are equal).
    """
    return 1.001 * window or 1.0


def in_slots(
    left: TimesAndGroups, right: TimesAndGroups, window: float, away: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, Numbers]:
    """Return the numbers of right rows, some of them repeated, and the keys by which left rows meet these right rows.

    Rows within the window and of one group have equal keys, and no two rows meet twice. Rows with equal keys are of one
    group, but may be up to two windows apart. Rows whose times begin in another cell are *away*: two rows that are away
    do not meet here, since this cell does not own their pair.
    """
    assert left.times is not None
    assert right.times is not None
    copies, (mine, theirs) = _shared(left.times, right.times, window)
    if away is not None and away[0].any() and away[1].any():
        # each slot has a second key, by which left rows that are away meet only right rows that are not
        here = np.flatnonzero(~away[1][copies])
        mine, theirs = 2 * mine + away[0], np.append(2 * theirs, 2 * theirs[here] + 1)
        copies = np.append(copies, copies[here])
    return copies, numbered((left.groups, None if right.groups is None else right.groups[copies]), (mine, theirs))


def _shared(left: np.ndarray, right: np.ndarray, window: float) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the numbers of right rows, some repeated, and slots of left and right rows, equal for pairs in a window.

    A left row has the number of its slot. A right row is copied to its own slot and to both neighbours, if these hold
    left rows.
    """
    times = np.sort(np.concatenate([left, right]))
    if not len(left) or not len(right) or times[-1] - times[0] <= 2.0 * window:
        return np.arange(len(right)), (np.zeros(len(left), np.int64), np.zeros(len(right), np.int64))
    of_left, of_right = _slots(times, window, (left, right))
    taken = np.zeros(int(max(of_left.max(), of_right.max())) + 2, dtype=bool)
    taken[of_left] = True
    copies = [np.flatnonzero(taken[of_right + step]) for step in (-1, 0, 1)]
    numbers = [of_right[rows] + step for rows, step in zip(copies, (-1, 0, 1), strict=True)]
    return np.concatenate(copies), (of_left, np.concatenate(numbers))


def _slots(known: np.ndarray, window: float, sides: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """Return the numbers of the slots of times, from 1 on; slots side by side have consecutive numbers.

    Slots are laid out anew after each gap between times, so that a time far away from all others does not change how
    many slots there are, or how long they are.
    """
    if window == 0.0:  # rows meet at equal times only, and slots have no neighbours
        return [1 + 2 * np.searchsorted(known, times) for times in sides]
    length = window * (1.0 + _SLACK)
    after = np.flatnonzero(np.diff(known) > 2.0 * length) + 1
    begins, ends = known[np.append(0, after)], known[np.append(after - 1, len(known) - 1)]
    counts = 2 + np.floor((ends - begins) / length).astype(np.int64)
    offsets = 1 + np.cumsum(counts) - counts
    found = []
    for times in sides:
        piece = np.searchsorted(begins, times, "right") - 1
        found.append(offsets[piece] + np.floor((times - begins[piece]) / length).astype(np.int64))
    return found


def numbered(groups: tuple[np.ndarray | None, np.ndarray | None], slots: tuple[np.ndarray, np.ndarray]) -> Numbers:
    """Return a number for each pair of a group and a slot; None for both sides if there is only one such pair."""
    if not len(slots[0]) or not len(slots[1]):
        return None, None
    codes = np.concatenate(slots)
    if groups[0] is not None and groups[1] is not None:
        both = np.concatenate([groups[0], groups[1]])
        codes = np.unique(both, return_inverse=True)[1] * (int(codes.max()) + 1) + codes
    codes = np.unique(codes, return_inverse=True)[1]
    return (codes[: len(slots[0])], codes[len(slots[0]) :]) if codes.any() else (None, None)
