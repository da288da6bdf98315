"""Describe the rows of one side: which of them take part in a join, where they are, and their data in a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError
from haply.joins.operators.operator import TIME_SLACK, RowBatch
from haply.models import Certain, Model
from haply.models.columns import ReadColumn, read_column, view_column
from haply.models.ragged import as_arrow, as_numpy
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.ownership import Places

START, END, TIME = "__start", "__end", "__time"
"""Columns that haply adds to rows: their interval, and their time as a number."""
BEGINS_HERE, TIME_BEGINS_HERE = "__begins_here", "__time_begins_here"
"""Whether a row's interval, or the interval of its time, begins in the cell (see ``haply.pruning.ownership``)."""
FITS = "__fits"
"""Whether a row has all values that certain conditions need; the column is missing if they need none."""

LEFT, RIGHT = 0, 1
USABLE, NULL, HOPELESS, BAD = 0, 1, 2, 3
"""The state of a row in a join. A row with several values has the largest of their numbers."""
ROW_COUNTS = ("rows", "null", "hopeless", "invalid")
"""The counts that are taken of the rows of a side."""


def bad_row(where: str, example: str) -> HaplyError:
    """Make the error for a row that is not a distribution."""
    return HaplyError(
        f"{where} has a row that is not a distribution",
        found=example,
        hint='see all of them with hp.check(df, column), or leave them out with invalid="drop"',
    )


def row_states(column: pa.Array | pa.ChunkedArray, raise_as: str | None) -> tuple[np.ndarray, ReadColumn]:
    """Tell which rows of a column are usable, null or bad; return also the column as it was read.

    ``raise_as`` names the column in the error for a bad row; without it bad rows are only marked.
    """
    read = read_column(column)
    if len(read.bad_rows) and raise_as is not None:
        raise bad_row(raise_as, read.example)
    if len(read.rows) == len(column):
        return np.full(len(column), USABLE, np.int8), read
    states = np.full(len(column), NULL, np.int8)
    states[read.rows], states[read.bad_rows] = USABLE, BAD
    return states, read


@dataclass(frozen=True)
class RowSpec:
    """Describes the rows of one side: their columns, how they get intervals, and how errors name them."""

    value: str
    """The column that is compared. It may be ``TIME``, which is certain: ``FITS`` tells which rows have a time."""
    payload: tuple[str, ...]
    """Payload columns, or columns that conditions on pairs need."""
    further: tuple[tuple[str, str], ...]
    """Other uncertain columns, which must be neither bad nor null, and their names in errors."""
    place: Callable[[Model], Intervals]
    called: str
    """The name of the compared column in errors."""
    raise_as: str | None
    """How errors about bad rows name a column, with a placeholder for its name; if None, bad rows are left out."""


class GoodRows(NamedTuple):
    """Rows that take part, judged by their values and by certain conditions, and the number of other rows."""

    table: pa.Table
    model: Model
    rows: int
    null: int
    bad: int


def good_rows(table: pa.Table, spec: RowSpec, more: tuple[str, ...]) -> GoodRows:
    """Return the rows whose values are all present and good."""
    states, whole = np.full(table.num_rows, USABLE, np.int8), None
    # the others first: a value may be a sum of them, and users know the parts by their names
    for name, called in (*spec.further, (spec.value, spec.called)):
        if name != TIME:
            own, read = row_states(table[name], spec.raise_as and spec.raise_as.format(called))
            states = np.maximum(states, own)
            if name == spec.value and len(read.rows) == table.num_rows:
                whole = read.model
    null, bad = (int(np.count_nonzero(states == state)) for state in (NULL, BAD))
    kept = table.select(list(dict.fromkeys((spec.value, *spec.payload, *more))))
    usable = states == USABLE
    if FITS in table.column_names:
        usable &= as_numpy(table[FITS])
    if whole is None or not usable.all():
        kept = kept.filter(as_arrow(usable))
        whole = view_column(kept[spec.value])
    return GoodRows(kept, whole, table.num_rows, null, bad)


def usable_rows(table: pa.Table, spec: RowSpec, more: tuple[str, ...]) -> tuple[pa.Table, Intervals, list[int]]:
    """Return the rows that may have partners, with their intervals, and counts of rows (see ``ROW_COUNTS``)."""
    placed = placed_rows(table, spec, more)
    return *possible_rows(placed), placed.counts


class PlacedRows(NamedTuple):
    """Rows that take part, hopeless ones too, with their intervals, and counts of all rows (see ``ROW_COUNTS``)."""

    table: pa.Table
    model: Model
    intervals: Intervals
    counts: list[int]


def placed_rows(table: pa.Table, spec: RowSpec, more: tuple[str, ...]) -> PlacedRows:
    """Return the rows whose values are all present and good, with their intervals."""
    good = good_rows(table, spec, more)
    found = spec.place(good.model)
    counts = [good.rows, good.null, int(np.count_nonzero(found.hopeless)), good.bad]
    return PlacedRows(good.table, good.model, found, counts)


def possible_rows(placed: PlacedRows) -> tuple[pa.Table, Intervals]:
    """Leave out hopeless rows."""
    if not placed.intervals.hopeless.any():
        return placed.table, placed.intervals
    rows = np.flatnonzero(~placed.intervals.hopeless)
    return placed.table.take(as_arrow(rows)), placed.intervals.take(rows)


def in_window(times: np.ndarray, window: float) -> Intervals:
    """Return intervals of certain times: if they overlap, the times are within the window, or hardly farther apart."""
    reach = 0.5 * window + 2.0**-50 * (np.abs(times) + window)  # more than rounding may change the ends
    return Intervals(times - reach, times + reach, np.zeros(len(times), dtype=bool))


def window_ahead(model: Model, reach: float) -> Intervals:
    """Return the intervals from certain times to the last time that they may be combined with."""
    assert isinstance(model, Certain)
    times = model.mean()
    slack = TIME_SLACK * (np.abs(times) + reach)
    return Intervals(times, times + reach + slack, np.zeros(len(times), dtype=bool))


@dataclass(frozen=True)
class CellRows:
    """Holds one side of a cell: values, intervals, which rows begin here, numbers for equal keys, and times.

    Where a side is not cut into cells, all rows begin here, and intervals may be missing.
    """

    model: Model
    start: np.ndarray
    end: np.ndarray
    begins_here: np.ndarray | None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    def take(self, chosen: np.ndarray) -> CellRows:
        """Return rows by their numbers, in this order."""

        def of(column: np.ndarray | None) -> np.ndarray | None:
            return column if column is None else column[chosen]

        start, end = (ends[chosen] if len(ends) else ends for ends in (self.start, self.end))
        return CellRows(self.model.take(chosen), start, end, of(self.begins_here), of(self.groups), of(self.times))

    def places(self, chosen: np.ndarray) -> Places:
        """Return where chosen rows begin; if a side is not cut into cells, all rows begin at one place."""
        group = None if self.groups is None else self.groups[chosen]
        if self.begins_here is None:
            return Places(np.zeros(len(chosen)), np.ones(len(chosen), bool), group)
        return Places(np.minimum(self.start[chosen], self.end[chosen]), self.begins_here[chosen], group)

    @property
    def first_beginning(self) -> float:
        """Return the place of the first row that begins in this cell."""
        if self.begins_here is None:
            return -np.inf
        return float(np.minimum(self.start, self.end).min(initial=np.inf, where=self.begins_here))

    def batch(self, chosen: np.ndarray) -> RowBatch[Model]:
        """Return chosen rows as an operator takes them, with their numbers as ids."""
        begins, begins_here, group = self.places(chosen)
        none = np.zeros(len(chosen))
        times = none if self.times is None else self.times[chosen]
        return RowBatch(chosen, self.model.take(chosen), times, none if group is None else group, begins, begins_here)

    @property
    def intervals(self) -> Intervals:
        """Return the intervals of all rows."""
        return Intervals(self.start, self.end, np.zeros(len(self.start), bool))
