"""Rows with times and groups: which rows of two sides can meet in a window, and how they are brought together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic, Self, TypeVar

import numpy as np

from haply.joins.match import Matches, match_overlapping
from haply.models import Model, OneDimensional
from haply.models.columns import stacked
from haply.probability.region import Region
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.threshold import Threshold

_STRETCH_SLACK = 1e-6
"""By how much a stretch of time is longer than the window: more than places on it are rounded by."""
TIME_SLACK = 1e-12
"""Relative widening of windows, so that rounding loses no pair; pairs are asked for their times in the end."""

_LEAST_PART = 64
"""Rows for which an index of their own pays: groups that are smaller share one."""


_Model = TypeVar("_Model", bound=Model)


@dataclass(frozen=True)
class TimedRows(Generic[_Model]):
    """Rows of one side: ids, values, intervals of values, times, and the groups within which rows meet."""

    ids: np.ndarray
    model: _Model
    intervals: Intervals
    times: np.ndarray
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: np.ndarray) -> Self:
        """The given rows, in the given order."""
        return type(self)(*(getattr(self, column.name).take(rows) for column in fields(self)))

    def is_like(self, others: TimedRows[Any]) -> bool:
        """Whether others can stand behind these: models of one kind, and ids that keep their type."""
        return type(self.model) is type(others.model) and self.ids.dtype.kind == others.ids.dtype.kind

    def followed_by(self, others: Self) -> Self:
        """These rows, and others that are like them."""
        intervals = [
            np.concatenate([getattr(rows.intervals, end.name) for rows in (self, others)]) for end in fields(Intervals)
        ]
        ids = np.concatenate([self.ids, others.ids])
        further = [np.concatenate(pair) for pair in zip(self.further_columns, others.further_columns, strict=True)]
        return type(self)(ids, stacked([self.model, others.model]), Intervals(*intervals), *further)

    @property
    def further_columns(self) -> list[np.ndarray]:
        """Numbers of rows beside their ids, values and intervals: times, groups, and what else there is."""
        return [getattr(self, column.name) for column in fields(self)[3:]]

    @property
    def nbytes(self) -> int:
        """Memory that is taken for them."""
        arrays = [self.ids, self.intervals.start, self.intervals.end, *self.further_columns]
        return self.model.nbytes + sum(array.nbytes for array in arrays)

    def facing(self, others: TimedRows[Any], window: float) -> Self:
        """Those that may be in a window with one of the others."""
        if not len(others) or np.isinf(window):
            return self
        first, last = float(others.times.min()), float(others.times.max())
        slack = window + TIME_SLACK * max(abs(first), abs(last), window)
        near = np.flatnonzero((self.times >= first - slack) & (self.times <= last + slack))
        return self if len(near) == len(self) else self.take(near)


ValueRows = TimedRows[OneDimensional]


def can_meet(left: TimedRows[Any], right: TimedRows[Any], i: np.ndarray, j: np.ndarray, window: float) -> np.ndarray:
    """Which pairs of row numbers are in a window and of one group."""
    return (np.abs(left.times[i] - right.times[j]) <= window) & (left.groups[i] == right.groups[j])


def match_in_time(
    left: ValueRows, right: ValueRows, region: Region, threshold: Threshold, exact: bool, window: float
) -> Matches:
    """The kept pairs of rows that can meet, as row numbers: the sweep, group by group.

    If the condition holds in a band, rows are swept by their values, stretch by stretch of time. Else most pairs that
    meet are answers: they are swept by their times.
    """
    if not threshold.attainable:
        left, right = left.take(np.empty(0, np.int64)), right.take(np.empty(0, np.int64))
    if region.outside or region.one_sided:
        copies, one = np.arange(len(right)), (np.zeros(len(left), np.int64), np.zeros(len(right), np.int64))
        groups = _numbered((left.groups, right.groups), one)
        slack = window + TIME_SLACK * max(window, *(np.abs(side.times).max(initial=0.0) for side in (left, right)))
        intervals = [_around(left.times, slack), _around(right.times, 0.0)]
    else:
        copies, groups = in_stretches(left, right, window)
        intervals = [left.intervals, right.intervals.take(copies)]
    found = match_overlapping(
        left.model, right.model.take(copies), intervals[0], intervals[1], region, threshold, exact,
        left_groups=groups[0], right_groups=groups[1],
    )  # fmt: skip
    rows = copies[found.right]
    kept = np.flatnonzero(can_meet(left, right, found.left, rows, window))
    found.counters.kept = len(kept)
    return Matches(
        found.left[kept], rows[kept], found.probability[kept], found.decided_by[kept], found.counters, found.seconds
    )


Numbers = tuple[np.ndarray, np.ndarray] | tuple[None, None]
"""A number for each row of two sides, which must be equal for rows to meet; none if all are."""


def in_stretches(left: TimedRows[Any], right: TimedRows[Any], window: float) -> tuple[np.ndarray, Numbers]:
    """Right rows, some more than once, and numbers for left and right ones: those that can meet have equal numbers.

    No pair comes twice. Rows with equal numbers are of one group, but may be up to two windows apart.
    """
    copies, stretches = _copied(left.times, right.times, window)
    return copies, _numbered((left.groups, right.groups[copies]), stretches)


def _around(times: np.ndarray, window: float) -> Intervals:
    return Intervals(times - window, times + window, np.zeros(len(times), dtype=bool))


def _copied(left: np.ndarray, right: np.ndarray, window: float) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Right rows, some more than once, and numbers for left and right ones: pairs in a window have equal numbers.

    Time is cut into stretches as long as the window. A left row has the number of its stretch; a right row is copied to
    its own stretch and both neighbours, where there are left rows. No pair comes twice.
    """
    times = np.sort(np.concatenate([left, right]))
    if not len(left) or not len(right) or times[-1] - times[0] <= 2.0 * window:
        return np.arange(len(right)), (np.zeros(len(left), np.int64), np.zeros(len(right), np.int64))
    of_left, of_right = _stretches(times, window, (left, right))
    taken = np.zeros(int(max(of_left.max(), of_right.max())) + 2, dtype=bool)
    taken[of_left] = True
    copies = [np.flatnonzero(taken[of_right + step]) for step in (-1, 0, 1)]
    numbers = [of_right[rows] + step for rows, step in zip(copies, (-1, 0, 1), strict=True)]
    return np.concatenate(copies), (of_left, np.concatenate(numbers))


def _stretches(known: np.ndarray, window: float, sides: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """Numbers from 1 on of the stretches in which times are; neighbours are those of stretches side by side.

    They are counted anew after each gap, so that a time far away from all others does not make them few or long.
    """
    if window == 0.0:  # equal times, and no neighbours
        return [1 + 2 * np.searchsorted(known, times) for times in sides]
    length = window * (1.0 + _STRETCH_SLACK)
    after = np.flatnonzero(np.diff(known) > 2.0 * length) + 1
    begins, ends = known[np.append(0, after)], known[np.append(after - 1, len(known) - 1)]
    counts = 2 + np.floor((ends - begins) / length).astype(np.int64)
    offsets = 1 + np.cumsum(counts) - counts
    found = []
    for times in sides:
        piece = np.searchsorted(begins, times, "right") - 1
        found.append(offsets[piece] + np.floor((times - begins[piece]) / length).astype(np.int64))
    return found


def _numbered(groups: tuple[np.ndarray, np.ndarray], stretches: tuple[np.ndarray, np.ndarray]) -> Numbers:
    """Numbers for pairs of a group and a stretch; none if there is but one."""
    whole = np.concatenate(groups), np.concatenate(stretches)
    if not len(whole[0]) or all((each == each[0]).all() for each in whole):
        return None, None
    codes = np.unique(whole[0], return_inverse=True)[1] * (int(whole[1].max()) + 1) + whole[1]
    codes = np.unique(codes, return_inverse=True)[1]
    return codes[: len(groups[0])], codes[len(groups[0]) :]


def parts_of(rows: ValueRows, window: float) -> Iterator[ValueRows]:
    """The rows in parts that are worth an index each: by group, and by stretches of time no longer than a window.

    Small groups are not kept apart, and few rows not by time.
    """
    if not len(rows):
        return
    codes = np.unique(rows.groups, return_inverse=True)[1]
    if (int(codes.max()) + 1) * _LEAST_PART > len(rows):
        codes = np.zeros(len(rows), np.int64)
    order = np.lexsort((rows.times, codes))
    for group in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        times, begin = rows.times[group], 0
        while begin < len(group):
            end = max(int(np.searchsorted(times, times[begin] + window, "right")), begin + _LEAST_PART)
            yield rows.take(group[begin:end])
            begin = end
