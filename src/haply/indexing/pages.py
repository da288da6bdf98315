"""Find the pages of an index that a join has to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from haply.indexing.index import Index
from haply.joins.cells.difference import DifferenceMethod
from haply.joins.cells.rows import BEGINS_HERE, END, START, RowSpec
from haply.models.columns import read_column
from haply.pruning.candidates.intervals import Intervals, interval_ends

_PROBES = 256
"""The number of places at which the index estimates how many rows a row meets."""


class PageList:
    """Pages in the order of where their intervals begin, to look up the pages that a row may match."""

    def __init__(self, pages: Intervals) -> None:
        usable = np.flatnonzero(~pages.hopeless)
        self.pages = usable[np.argsort(pages.start[usable], kind="stable")]
        self.start, self.end = pages.start[self.pages], pages.end[self.pages]
        self.reached = np.maximum.accumulate(self.end)

    def met_by(self, rows: Intervals) -> tuple[np.ndarray, np.ndarray]:
        """Return row numbers, and the pages that these rows may match."""
        first = np.searchsorted(self.reached, rows.start, "left")
        last = np.searchsorted(self.start, rows.end, "right")
        counts = np.maximum(0, last - first)
        row = np.repeat(np.arange(len(first)), counts)
        at = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        meets = self.end[at] >= rows.start[row]
        return row[meets], self.pages[at[meets]]


@dataclass(frozen=True)
class PagesOfJoin:
    """The pages of an index as a join sees them."""

    index: Index
    method: DifferenceMethod
    is_left: bool

    @cached_property
    def intervals(self) -> Intervals:
        """Return for each page an interval that contains the intervals of its rows."""
        method = self.method
        ends = interval_ends(self.is_left, method.region, method.threshold, method.exact, method.pairing)
        found = self.index.intervals(ends)
        if not method.threshold.attainable:
            found = Intervals(found.start, found.end, np.ones(len(found.start), dtype=bool))
        return found

    @property
    def expected_partners(self) -> float:
        """Estimate how many rows of the index a row of the other side meets, without reading any page.

        Assumes that the other side is distributed like the index, and certain.
        """
        pages, rows = self.intervals, self.index.rows.astype(np.float64)
        known = np.isfinite(pages.start) & np.isfinite(pages.end) & (pages.end >= pages.start)
        start, end, rows = pages.start[known], pages.end[known], rows[known]
        if not len(rows):
            return 0.0
        reach = 0.5 * (self.method.region.high - self.method.region.low)
        probes = np.linspace(0, len(rows) - 1, min(len(rows), _PROBES)).astype(np.int64)
        middle = 0.5 * (start + end)[probes, None]
        shared = np.minimum(end, middle + reach) - np.maximum(start, middle - reach)
        share = np.clip(shared / np.maximum(end - start, np.finfo(np.float64).tiny), 0.0, 1.0)
        share[(end == start) & (shared >= 0.0)] = 1.0
        return float(np.average(share @ rows, weights=rows[probes]))


def page_rows(index: Index, page: int, names: Sequence[str], spec: RowSpec) -> pa.Table:
    """Read the rows of a page that may have partners, with their intervals, under other names."""
    table = index.read_page(page).rename_columns(list(names))
    read = read_column(table[spec.value])
    found = spec.place(read.model)
    rows = np.flatnonzero(~found.hopeless)
    table, found = table.take(pa.array(read.rows[rows])), found.take(rows)
    return (
        table.append_column(START, pa.array(found.start))
        .append_column(END, pa.array(found.end))
        .append_column(BEGINS_HERE, pa.array(np.ones(len(rows), dtype=bool)))
    )
