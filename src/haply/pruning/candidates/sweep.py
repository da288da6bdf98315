"""The sweep: find index pairs of rows whose intervals overlap, each once, in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from haply.numerics.jit import kernel
from haply.pruning.candidates.intervals import Intervals

BLOCK_PAIRS = 1 << 17
"""Candidate pairs per block: small enough for the caches, large enough that a call costs little in comparison."""


@kernel
def _fill(begin, end, first, last, own_start, own_end, other_start, other_end, own, other):
    """Write the overlapping pairs of own rows ``begin:end`` with others at ``first[i]:last[i]``; return how many."""
    n = 0
    for i in range(begin, end):
        for j in range(first[i], last[i]):
            if own_start[i] <= other_end[j] and other_start[j] <= own_end[i]:
                own[n] = i
                other[n] = j
                n += 1
    return n


class Sweep:
    """Finds pairs of overlapping intervals of two sides.

    Both sides are sorted by the lower end of their intervals, without hopeless rows; ``left_order`` and ``right_order``
    have the row numbers. A pair is found from the row that begins first, where the other begins: this is its *reference
    point*. Only pairs whose reference point is at or above ``from_position`` are returned, so that neighbouring cells
    that share rows share no pair.
    """

    def __init__(
        self,
        left: Intervals,
        right: Intervals,
        *,
        from_position: float = -np.inf,
        left_groups: np.ndarray | None = None,
        right_groups: np.ndarray | None = None,
    ) -> None:
        # A row that begins first meets others up to its end, which for a row with start > end is where it begins.
        proper = [(np.minimum(side.start, side.end), side.end) for side in (left, right)]
        if left_groups is not None and right_groups is not None:
            proper, from_keys = _by_group(proper, (left_groups, right_groups), from_position)
        else:
            from_keys = (np.array([from_position]), np.array([from_position]))
        self.left_order, self.right_order = (
            _without(side.hopeless, np.argsort(low)) for side, (low, _) in zip((left, right), proper, strict=True)
        )
        (a_low, a_high), (b_low, b_high) = (
            (side[0][order], side[1][order])
            for side, order in zip(proper, (self.left_order, self.right_order), strict=True)
        )
        a_from = from_keys[0] if len(from_keys[0]) == 1 else from_keys[0][self.left_order]
        b_from = from_keys[1] if len(from_keys[1]) == 1 else from_keys[1][self.right_order]
        # from a left row: the right rows that begin at or after it, up to its end; from a right row: strictly after it
        self._from_left = (
            np.searchsorted(b_low, np.maximum(a_low, a_from), "left"),
            np.searchsorted(b_low, a_high, "right"),
        )
        self._from_right = (
            np.maximum(np.searchsorted(a_low, b_low, "right"), np.searchsorted(a_low, b_from, "left")),
            np.searchsorted(a_low, b_high, "right"),
        )
        self._raw = (
            left.start[self.left_order],
            left.end[self.left_order],
            right.start[self.right_order],
            right.end[self.right_order],
        )

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield candidate pairs as positions in ``left_order`` and ``right_order``."""
        a_start, a_end, b_start, b_end = self._raw
        for own, other in self._scan(*self._from_left, a_start, a_end, b_start, b_end):
            yield own, other
        for own, other in self._scan(*self._from_right, b_start, b_end, a_start, a_end):
            yield other, own

    @staticmethod
    def _scan(
        first: np.ndarray,
        last: np.ndarray,
        own_start: np.ndarray,
        own_end: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        total = np.concatenate([[0], np.cumsum(np.maximum(last - first, 0))])
        begin, rows = 0, len(first)
        while begin < rows:
            until = max(begin + 1, int(np.searchsorted(total, total[begin] + BLOCK_PAIRS, "right")) - 1)
            size = int(total[until] - total[begin])
            if size:
                own, other = np.empty(size, np.int32), np.empty(size, np.int32)
                n = _fill(begin, until, first, last, own_start, own_end, start, end, own, other)
                if n:
                    yield own[:n], other[:n]
            begin = until


def _without(hopeless: np.ndarray, order: np.ndarray) -> np.ndarray:
    return order[~hopeless[order]] if hopeless.any() else order


def _by_group(
    sides: list[tuple[np.ndarray, np.ndarray]], groups: tuple[np.ndarray, np.ndarray], from_position: float
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Give each group a stretch of its own on one integer axis: intervals of different groups can then never meet."""
    positions = np.concatenate([sides[0][0], sides[0][1], sides[1][0], sides[1][1], [from_position]])
    _, ranks = np.unique(positions, return_inverse=True)
    stretch = len(positions) + 1
    n, m = len(sides[0][0]), len(sides[1][0])
    cuts = np.split(ranks[:-1], [n, 2 * n, 2 * n + m])
    left, right = groups[0].astype(np.int64) * stretch, groups[1].astype(np.int64) * stretch
    keyed = [(left + cuts[0], left + cuts[1]), (right + cuts[2], right + cuts[3])]
    return keyed, (left + ranks[-1], right + ranks[-1])


def sure_pairs(left: Intervals, right: Intervals, above: bool, below: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of row numbers whose left interval is wholly above or below the right one, range by range."""
    for wanted, ranks in (
        (above, lambda: _prefixes(left.start, np.argsort(right.end), right.end, "left")),
        (below, lambda: _prefixes(-left.end, np.argsort(-right.start), -right.start, "left")),
    ):
        if wanted:
            yield from ranks()


def _prefixes(
    keys: np.ndarray, order: np.ndarray, values: np.ndarray, side: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for every key all rows whose value is smaller: a prefix of the sorted values."""
    counts = np.searchsorted(values[order], keys, side)  # type: ignore[call-overload]
    total = np.concatenate([[0], np.cumsum(counts)])
    begin = 0
    while begin < len(keys):
        until = max(begin + 1, int(np.searchsorted(total, total[begin] + BLOCK_PAIRS, "right")) - 1)
        taken = counts[begin:until]
        if taken.sum():
            within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
            yield np.repeat(np.arange(begin, until), taken), order[within]
        begin = until
