"""One pass: sweep, bounds and exact value in one loop, for pairs so cheap that all other work would cost more.

This is the driver; ``gaussian.py`` and ``uniform.py`` have the kernels. Rows are sorted by the lower ends of their
intervals; a pair is found from the row that begins first. So threads can share the work without cutting the sides into
cells: each takes some rows of both sides, and finds the pairs that begin with one of these. Pairs are decided in two
steps. The first rejects, without a branch on a verdict: every pair is written, and the place moves on only if the pair
stays. A processor that predicts verdicts is wrong for one pair in three, and would spend most of its time on that. The
second step accepts or evaluates.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from haply.numerics.jit import kernel, read_only
from haply.numerics.order import ordered_rows
from haply.probability.region import Region
from haply.pruning.best import Best
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.threshold import Threshold

HELD = 1 << 12
"""The most pairs between the two steps: their data stay in the first-level cache."""

_LEAST_SIZE, _MOST_SIZE = 1e-140, 1e140
_CAPACITY = 1 << 22
_LEAST_CAPACITY = 1 << 16

U = np.uint64
"""The type of positions in the kernels. A signed one would be checked at every use, which is half of the work."""

U0, U1 = U(0), U(1)


Labels = tuple[np.ndarray | None, np.ndarray | None]
"""Integers for the rows of the two sides that stand in the result instead of their numbers."""


Places = tuple[np.ndarray, np.ndarray]
"""The rows of pairs by their places among the rows of a part: small numbers, where labels may be large."""


class PassOutput(NamedTuple):
    """Kept pairs as labels, their probabilities (NaN if accepted by a bound), and what became of the candidates.

    Their places are known where only the best pairs are wanted.
    """

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    candidates: int
    rejected: int
    accepted: int
    evaluated: int
    seconds: float
    places: Places | None


def fits(region: Region, threshold: Threshold) -> bool:
    """Tell whether one pass can answer this condition: an interval of positive length, with a threshold.

    If rounding hides the threshold, rows have no ends, and the pass would not know where to stop.
    """
    bounded = threshold.value is not None and threshold.reject_below > 0.0
    return not (region.outside or region.one_sided) and region.width > 0.0 and bounded


def ordinary(sizes: np.ndarray, hopeless: np.ndarray, region: Region) -> bool:
    """Tell whether the kernels may square, divide by and scale these lengths of one side's rows, and the region's.

    Other rows are decided on a scale of their own, for which one pass has no time. A length of 0 is a point; hopeless
    rows are skipped anyway.
    """
    if not _LEAST_SIZE < region.width < _MOST_SIZE:
        return False
    if sizes.min(initial=1.0) > _LEAST_SIZE and sizes.max(initial=1.0) < _MOST_SIZE:  # mostly, and quickly told
        return True
    odd = (sizes >= _MOST_SIZE) | ((sizes <= _LEAST_SIZE) & (sizes > 0.0))
    return not (odd & ~hopeless).any()


def largest(values: np.ndarray) -> float:
    """Return the largest magnitude of numbers, without a copy of them."""
    return float(max(-values.min(initial=0.0), values.max(initial=0.0)))


Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function with each item and yields the results in order: ``map``, or one that uses threads."""


class Order(NamedTuple):
    """Rows of one side by the lower ends of their intervals: lower ends and infinity, ends, labels, and columns."""

    begin: np.ndarray
    end: np.ndarray
    label: np.ndarray
    columns: tuple[np.ndarray, ...]


def in_order(
    side: Intervals, columns: tuple[np.ndarray, ...], reach: tuple[float, float], labels: np.ndarray | None
) -> Order:
    """Sort a side, without rows that are hopeless or out of the other side's reach."""
    size = len(side.start)
    rows, begin = np.empty(size, np.int64), np.empty(size)
    start, end, hopeless = _read_only(side)
    count = _within(start, end, hopeless, reach[0], reach[1], rows, begin)
    rows, begin = rows[:count], begin[:count]
    rows, begin, (end, *sorted_columns) = ordered_rows(begin, rows, (end, *columns))
    label = rows if labels is None else labels.take(rows).astype(np.int64, copy=False)
    return Order(begin, end, label, tuple(sorted_columns))


def warm_order() -> None:
    """Compile the sort of many rows, which those of a small join do not need."""
    values = np.arange(float(1 << 12))
    in_order(Intervals(values, values, np.zeros(1 << 12, bool)), (values, values), (-np.inf, np.inf), None)


def _read_only(side: Intervals) -> list[np.ndarray]:
    return [read_only(column) for column in (side.start, side.end, side.hopeless)]


@kernel
def _reach(start, end, hopeless):
    """Return the least start and the largest end of rows that are not hopeless."""
    low, high = np.inf, -np.inf
    for i in range(len(start)):
        if not hopeless[i]:
            low, high = min(low, start[i]), max(high, end[i])
    return low, high


@kernel
def _within(start, end, hopeless, low, high, rows, begin):
    """Write rows that are not hopeless and meet ``[low, high]``, and their lower ends; return how many there are."""
    n = 0
    for i in range(len(start)):
        rows[n], begin[n] = i, min(start[i], end[i])
        n += int((not hopeless[i]) & (start[i] <= high) & (end[i] >= low))
    return n


@dataclass(frozen=True)
class OnePass:
    """One pass over two sides, whole or in parts.

    ``scan(own, other, sign, from_position, i, j, first, question, held, n, out_own, out_other, out_p)`` continues from
    own row ``i`` and other row ``j`` until all is done or the output may overflow; it returns how many pairs the output
    has, where it stopped, and how many pairs were candidates, rejected and evaluated. ``sign`` is 1 if own rows are the
    left ones: these also take other rows that begin where they do.
    """

    scan: Callable[..., Any]
    intervals: tuple[Intervals, Intervals]
    columns: tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]
    """What is known of the rows of both sides."""
    rows: Callable[[Order], Any]
    """Returns the sorted rows of a side as ``scan`` reads them; ``begin`` is longer than the other columns by one."""
    labels: Labels
    from_position: float
    """The least reference point of the pairs that are wanted."""
    question: Any
    held: Callable[[], Any]
    """Returns room for the pairs between the two steps."""
    best: Best | None = None
    """Which pairs are wanted, if not all. Pairs that others in their part beat may be left out: ``question`` then has
    ``left_best`` and ``right_best``, which hold what the best pairs of each row reach."""

    def whole(self) -> PassOutput:
        """Return all kept pairs."""
        return next(self.parts(1, map))

    def parts(self, count: int, run: Run, finish: Callable[[PassOutput], Any] = lambda found: found) -> Iterator[Any]:
        """Yield all kept pairs in so many parts, which ``run`` may find and ``finish`` at the same time."""
        reaches = list(run(lambda side: _reach(*_read_only(side)), self.intervals))

        def ready(side: int) -> Any:
            return self.rows(in_order(self.intervals[side], self.columns[side], reaches[1 - side], self.labels[side]))

        left, right = run(ready, (0, 1))
        cuts = [[len(side.label) * k // count for k in range(count + 1)] for side in (left, right)]
        shares = list(zip(*map(itertools.pairwise, cuts), strict=True))
        yield from run(lambda share: finish(self._part(left, right, *share)), shares)

    def _part(self, left: Any, right: Any, mine: tuple[int, int], theirs: tuple[int, int]) -> PassOutput:
        """Return the kept pairs that begin with one of these left or right rows."""
        started = time.perf_counter()
        if mine[1] - mine[0] == len(left.label) and theirs[1] - theirs[0] == len(right.label):
            facing = mine, theirs
        else:
            facing = self._facing(left, right, theirs), self._facing(right, left, mine)
        question, label_of = self.question, None
        if self.best is None:
            ways = [
                (_slice(left, *mine), _slice(right, *facing[1]), 1.0),
                (_slice(right, *theirs), _slice(left, *facing[0]), -1.0),
            ]
        else:  # rows are called by their places among the rows of this part, so that what is held of them is little
            first = min(mine[0], facing[0][0]), min(theirs[0], facing[1][0])
            last = max(mine[1], facing[0][1]), max(theirs[1], facing[1][1])
            ways = [
                (_placed(left, mine, first[0]), _placed(right, facing[1], first[1]), 1.0),
                (_placed(right, theirs, first[1]), _placed(left, facing[0], first[0]), -1.0),
            ]
            reached = [
                np.full(((last[side] - first[side]) * (side in self.best.sides), self.best.k), -np.inf)
                for side in (0, 1)
            ]
            question = question._replace(left_best=reached[0], right_best=reached[1])
            label_of = left.label[first[0] : last[0]], right.label[first[1] : last[1]]
        held = self.held()
        counts = np.zeros(3, dtype=np.int64)
        parts: list[tuple[np.ndarray, ...]] = []
        capacity = _capacity(ways, len(held[0]))
        output, n = _room(capacity), 0
        for own, other, sign in ways:
            i = j = begun = 0
            while i < len(own.label):
                if n + len(held[0]) > capacity:
                    parts.append(tuple(column[:n] for column in output))
                    output, n = _room(capacity), 0
                one, two = (output[0], output[1]) if sign > 0 else (output[1], output[0])
                n, i, j, begun, *done = self.scan(
                    own, other, sign, self.from_position, U(i), U(j), U(begun), question, held, U(n), one, two,
                    output[2],
                )  # fmt: skip
                counts += done
        parts.append(tuple(column[:n] for column in output))
        whole = parts[0] if len(parts) == 1 else tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        places = None
        if label_of is not None:
            places = whole[0], whole[1]
            whole = label_of[0].take(whole[0]), label_of[1].take(whole[1]), whole[2]
        candidates, rejected, evaluated = (int(count) for count in counts)
        accepted = candidates - rejected - evaluated
        seconds = time.perf_counter() - started
        return PassOutput(whole[0], whole[1], whole[2], candidates, rejected, accepted, evaluated, seconds, places)

    def _facing(self, others: Any, rows: Any, share: tuple[int, int]) -> tuple[int, int]:
        """Return the range of other rows from where the first of a part's rows begins to where the last one ends."""
        begin = max(float(rows.begin[share[0]]), self.from_position)
        begin_of = others.begin[:-1]
        met = int(np.searchsorted(begin_of, begin, "left"))
        return met, max(met, int(np.searchsorted(begin_of, rows.end[slice(*share)].max(initial=-np.inf), "right")))


def _slice(rows: Any, begin: int, end: int) -> Any:
    """Return some of the sorted rows: ``begin`` of the next one, or infinity, stays behind them."""
    if end - begin == len(rows.label):
        return rows
    return rows._replace(
        begin=rows.begin[begin : end + 1],
        **{name: column[begin:end] for name, column in zip(rows._fields, rows, strict=True) if name != "begin"},
    )


def _placed(rows: Any, share: tuple[int, int], first: int) -> Any:
    """Return some of the sorted rows, labelled by how far they are behind the row ``first``."""
    return _slice(rows, *share)._replace(label=np.arange(share[0] - first, share[1] - first))


def _capacity(ways: list[tuple[Any, Any, float]], held: int) -> int:
    """Estimate room for the pairs from the candidates of a sample of rows: memory costs time when first used."""
    most = len(ways[0][0].label) * len(ways[1][0].label)
    if most <= _LEAST_CAPACITY:  # all pairs of few rows; where a part has more, further room is made
        return held + most
    candidates = 0.0
    for own, other, _ in ways:
        few = slice(None, None, 1 + len(own.label) // 64)
        begins, ends = own.begin[:-1][few], own.end[few]
        met = np.searchsorted(other.begin, ends, "right") - np.searchsorted(other.begin, begins, "left")
        candidates += np.maximum(met, 0).mean() * len(own.label) if len(met) else 0.0
    return held + int(min(max(candidates, _LEAST_CAPACITY), _CAPACITY))


def _room(capacity: int) -> tuple[np.ndarray, ...]:
    return np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity)
