"""Find which rows of two sides can meet, by their times and groups, and join these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

import numpy as np

from haply.joins.match import Matches, match_overlapping
from haply.joins.operators.operator import TIME_SLACK, RowBatch, joined_columns
from haply.joins.slots import in_slots, numbered
from haply.models import Model, OneDimensional
from haply.probability.region import Region
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.threshold import Threshold

_LEAST_PART = 64
"""Rows from which on an index of their own pays: smaller groups share one index."""


_Model = TypeVar("_Model", bound=Model)


@dataclass(frozen=True)
class TimedRows(RowBatch[_Model]):
    """Rows of one side with the intervals of their values."""

    intervals: Intervals

    @classmethod
    def placed(cls, rows: RowBatch[_Model], intervals: Intervals) -> TimedRows[_Model]:
        """Give rows their intervals."""
        return cls(*(*rows.columns, intervals))

    @property
    def nbytes(self) -> int:
        """Memory that these rows take."""
        return super().nbytes + self.intervals.start.nbytes + self.intervals.end.nbytes

    def followed_by(self, others: Self) -> Self:
        """Return these rows followed by others of the same kind."""
        both = self.intervals, others.intervals
        ends = (np.concatenate([getattr(each, end.name) for each in both]) for end in fields(Intervals))
        return type(self)(*(*joined_columns([self, others]), Intervals(*ends)))

    def facing(self, others: TimedRows[Any], window: float) -> Self:
        """Return the rows that may be in a window with one of the others."""
        if not len(others) or np.isinf(window):
            return self
        first, last = float(others.times.min()), float(others.times.max())
        slack = window + TIME_SLACK * max(abs(first), abs(last), window)
        near = np.flatnonzero((self.times >= first - slack) & (self.times <= last + slack))
        return self if len(near) == len(self) else self.take(near)


ValueRows = TimedRows[OneDimensional]


def can_meet(left: TimedRows[Any], right: TimedRows[Any], i: np.ndarray, j: np.ndarray, window: float) -> np.ndarray:
    """Tell which pairs of row numbers are in a window and of one group."""
    return (np.abs(left.times[i] - right.times[j]) <= window) & (left.groups[i] == right.groups[j])


def match_in_time(
    left: ValueRows, right: ValueRows, region: Region, threshold: Threshold, exact: bool, window: float
) -> Matches:
    """Return the kept pairs of rows that can meet, as row numbers: sweep each group.

    If the condition holds in a band, rows are swept by their values, within slots of time. Otherwise most pairs that
    meet are answers, so rows are swept by their times.
    """
    if not threshold.attainable:
        left, right = left.take(np.empty(0, np.int64)), right.take(np.empty(0, np.int64))
    if region.outside or region.one_sided:
        copies, one = np.arange(len(right)), (np.zeros(len(left), np.int64), np.zeros(len(right), np.int64))
        groups = numbered((left.groups, right.groups), one)
        slack = window + TIME_SLACK * max(window, *(np.abs(side.times).max(initial=0.0) for side in (left, right)))
        intervals = [_around(left.times, slack), _around(right.times, 0.0)]
    else:
        copies, groups = in_slots(left, right, window)
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


def _around(times: np.ndarray, window: float) -> Intervals:
    return Intervals(times - window, times + window, np.zeros(len(times), dtype=bool))


def parts_of(rows: ValueRows, window: float) -> Iterator[ValueRows]:
    """Yield the rows in parts that are worth an index each: by group, and by times no farther apart than a window.

    Small groups are not separated by group, and few rows are not separated by time.
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
