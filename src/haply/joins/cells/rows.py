"""The rows of one side: which of them take part in a join, where they are, and what belongs to them in a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError
from haply.models import Model
from haply.models.columns import read_column, view_column
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.ownership import Places

START, END, TIME = "__start", "__end", "__time"
"""Columns that haply gives to rows: their interval, and their time as a number."""
BEGINS_HERE, TIME_BEGINS_HERE = "__begins_here", "__time_begins_here"
"""Whether a row's interval, or the interval of its time, begins in the cell. The owner of a pair is the cell in which
the row that begins later begins."""
FITS = "__fits"
"""Whether a row has all that certain conditions need; not there if they need nothing."""

LEFT, RIGHT = 0, 1
USABLE, NULL, HOPELESS, BAD = 0, 1, 2, 3
"""What a row is to a join."""
ROW_COUNTS = ("rows", "null", "hopeless", "invalid")
"""What is counted of the rows of a side."""


def bad_row(where: str, example: str) -> HaplyError:
    """Make the error for a row that is not a distribution."""
    return HaplyError(
        f"{where} has a row that is not a distribution",
        found=example,
        hint='see all of them with hp.check(df, column), or leave them out with invalid="drop"',
    )


@dataclass(frozen=True)
class RowSpec:
    """What to know of the rows of one side: their columns, how they are placed, and how errors name them."""

    value: str
    """The column that is compared."""
    payload: tuple[str, ...]
    """Columns that only travel, or that conditions on pairs need."""
    further: tuple[tuple[str, str], ...]
    """Other uncertain columns, which must be neither bad nor null, and what their owner calls them."""
    place: Callable[[Model], Intervals]
    called: str
    """What the owner calls the compared column."""
    raise_as: str | None
    """How errors about bad rows name a column, with a gap for its name; without it bad rows are left out."""


class GoodRows(NamedTuple):
    """Rows that take part as far as their values and certain conditions tell, and how many others there are."""

    table: pa.Table
    model: Model
    rows: int
    null: int
    bad: int


def good_rows(table: pa.Table, spec: RowSpec, more: tuple[str, ...]) -> GoodRows:
    """Take the rows whose values are all there, none of them bad."""
    good, bad = np.ones(table.num_rows, dtype=bool), np.zeros(table.num_rows, dtype=bool)
    whole = None
    # the others first: a value may be a sum of them, and people know the parts by their names
    for name, called in (*spec.further, (spec.value, spec.called)):
        read = read_column(table[name])
        if len(read.bad_rows) and spec.raise_as is not None:
            raise bad_row(spec.raise_as.format(called), read.example)
        if name == spec.value and len(read.rows) == table.num_rows:
            whole = read.model
        bad[read.bad_rows] = True
        here = np.zeros(table.num_rows, dtype=bool)
        here[read.rows] = True
        good &= here
    nulls = int((~good & ~bad).sum())
    kept = table.select([*dict.fromkeys((spec.value, *spec.payload)), *more])
    usable = good & table[FITS].to_numpy(zero_copy_only=False) if FITS in table.column_names else good
    if whole is None or not usable.all():
        kept = kept.filter(pa.array(usable))
        whole = view_column(kept[spec.value])
    return GoodRows(kept, whole, table.num_rows, nulls, int(bad.sum()))


def usable_rows(table: pa.Table, spec: RowSpec, more: tuple[str, ...]) -> tuple[pa.Table, Intervals, list[int]]:
    """Take the rows that may have partners, with their intervals, and what was counted (as ``ROW_COUNTS``)."""
    good = good_rows(table, spec, more)
    kept, found = good.table, spec.place(good.model)
    hopeless = int(found.hopeless.sum())
    if hopeless:
        rows = np.flatnonzero(~found.hopeless)
        kept, found = kept.take(pa.array(rows)), found.take(rows)
    return kept, found, [good.rows, good.null, hopeless, good.bad]


def in_window(times: np.ndarray, window: float) -> Intervals:
    """Give certain times their row intervals: those that overlap are within the window, or hardly farther apart."""
    reach = 0.5 * window + 2.0**-50 * (np.abs(times) + window)  # what rounding may do to the ends, and more
    return Intervals(times - reach, times + reach, np.zeros(len(times), dtype=bool))


@dataclass(frozen=True)
class CellRows:
    """One side of a cell: values, intervals, which rows begin here, numbers for equal keys, and times.

    Where a side is not cut into cells, all rows begin here, and intervals may be missing.
    """

    model: Model
    start: np.ndarray
    end: np.ndarray
    begins_here: np.ndarray | None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    def take(self, chosen: np.ndarray) -> CellRows:
        """Choose rows by their numbers, in this order."""

        def of(column: np.ndarray | None) -> np.ndarray | None:
            return column if column is None else column[chosen]

        start, end = (ends[chosen] if len(ends) else ends for ends in (self.start, self.end))
        return CellRows(self.model.take(chosen), start, end, of(self.begins_here), of(self.groups), of(self.times))

    def places(self, chosen: np.ndarray) -> Places:
        """Tell where chosen rows begin: at one place where a side is not cut into cells."""
        group = None if self.groups is None else self.groups[chosen]
        if self.begins_here is None:
            return Places(np.zeros(len(chosen)), np.ones(len(chosen), bool), group)
        return Places(np.minimum(self.start[chosen], self.end[chosen]), self.begins_here[chosen], group)

    @property
    def intervals(self) -> Intervals:
        """The intervals of all rows."""
        return Intervals(self.start, self.end, np.zeros(len(self.start), bool))
