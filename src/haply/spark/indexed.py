"""The plan of a join with an indexed table: the rows of the other side go to the pages they may match.

The indexed rows are not moved at all. A worker gets the page numbers and the rows that ask for them, reads those pages
where they lie, and decides the pairs; every indexed row is on one page, so every pair is found once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.joins.match import Matches, match_all
from haply.models import OneDimensional
from haply.models.columns import read_column
from haply.probability.region import Region
from haply.pruning.intervals import Intervals, interval_ends
from haply.pruning.threshold import Threshold
from haply.query import Expression
from haply.query.conditions import JoinCondition
from haply.spark.index import Index
from haply.spark.packing import COUNTS, PARCEL, PARCEL_TYPE, PackedSide, parcels_of, usable_rows
from haply.spark.parcels import ROW_COUNTS
from haply.spark.plan import JoinPlan, Observing
from haply.spark.stack import CELL, END, LEFT, NATIVE, RIGHT, START
from haply.spark.worker import CellJoin, Rows, cells_of, opened

READ = "pages_read"
_PROBES = 256
"""Places at which an index is asked how many rows one meets there."""


def fits_index(condition: JoinCondition) -> bool:
    """Whether a join can go by pages: on one difference within an interval; all else of it is looked at afterwards."""
    if condition.difference is None:
        return False
    region = condition.difference.region
    return not (region.outside or region.one_sided)


class PageList:
    """Pages by the beginning of their intervals, to look up which a row may match."""

    def __init__(self, pages: Intervals) -> None:
        usable = np.flatnonzero(~pages.hopeless)
        self.pages = usable[np.argsort(pages.start[usable], kind="stable")]
        self.start, self.end = pages.start[self.pages], pages.end[self.pages]
        self.reached = np.maximum.accumulate(self.end)

    def met_by(self, rows: Intervals) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers, and the pages that they may match."""
        first = np.searchsorted(self.reached, rows.start, "left")
        last = np.searchsorted(self.start, rows.end, "right")
        counts = np.maximum(0, last - first)
        row = np.repeat(np.arange(len(first)), counts)
        at = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        meets = self.end[at] >= rows.start[row]
        return row[meets], self.pages[at[meets]]


@dataclass(frozen=True)
class AskPages:
    """Rows of the other side into parcels for the pages they may match, as a function for ``mapInArrow``."""

    side: PackedSide
    number: int
    pages: Intervals

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A parcel for each page and batch, and a row of counts."""
        known = PageList(self.pages)
        for batch in batches:
            if batch.num_rows:
                table, intervals, counts = usable_rows(pa.Table.from_batches([batch]), self.side, ())
                rows, pages = known.met_by(intervals)
                native = np.ones(len(rows), dtype=bool)
                yield parcels_of(table, intervals, rows, native, pages, self.number, counts)


@dataclass(frozen=True)
class PageJoin:
    """The join of pages with the rows that ask for them, as a function for ``mapInArrow``."""

    index: Index
    indexed: PackedSide
    names: tuple[str, ...]
    """What the columns of the index are called here."""
    number: int
    cells: CellJoin

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pairs of every page, each page's counters before them."""
        for cell in cells_of(batches):
            page = int(cell[CELL][0].as_py())
            asking, asked = opened(cell[PARCEL]), self._page(page)
            sides = (asking, asked) if self.number == RIGHT else (asked, asking)
            yield from self.cells.decided(*sides, [1])

    def _page(self, page: int) -> pa.Table:
        table = self.index.read_page(page).rename_columns(list(self.names))
        read = read_column(table[self.indexed.value])
        found = self.indexed.place(read.model)
        rows = np.flatnonzero(~found.hopeless)
        table, found = table.take(pa.array(read.rows[rows])), found.take(rows)
        return (
            table.append_column(START, pa.array(found.start))
            .append_column(END, pa.array(found.end))
            .append_column(NATIVE, pa.array(np.ones(len(rows), dtype=bool)))
        )


@dataclass(frozen=True)
class MatchPage:
    """By a set of differences, all pairs: see ``match_all``."""

    region: Region
    threshold: Threshold
    exact: bool

    def __call__(self, left: Rows, right: Rows) -> Matches:
        """The kept pairs."""
        assert isinstance(left.model, OneDimensional)
        assert isinstance(right.model, OneDimensional)
        mine, theirs = (Intervals(side.start, side.end, np.zeros(len(side.start), bool)) for side in (left, right))
        return match_all(left.model, right.model, mine, theirs, self.region, self.threshold, self.exact)


class IndexedPlan(JoinPlan):
    """A join with an indexed table (see ``JoinPlan``)."""

    def __init__(self, *args: Any, index: Index, indexed: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.index = index
        self._asked_side, self._asking_side = (
            (self._left, self._right) if indexed == "left" else (self._right, self._left)
        )

    def run(self) -> DataFrame:
        """The pairs, as a lazy DataFrame."""
        self._warm()
        observing = Observing(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
            rows = {f"rows_{self._asked_side.name}": int(self.index.rows.sum()), "pages_total": len(self.index)}
            self.funnel.follow(lambda: rows)
        pairs = self._by_pages(observing)
        for expression in self._own_conditions:
            pairs = pairs.where(F.expr(self._sql(expression)))
        return self._finish([pairs], observing)

    @property
    def _own_conditions(self) -> tuple[Expression, ...]:
        """Certain conditions on the indexed table: its pages are read whole, so pairs are asked."""
        return self.condition.left_only if self._asked_side.name == "left" else self.condition.right_only

    @property
    def _asked_of_pairs(self) -> list[Expression]:
        return [*super()._asked_of_pairs, *self._own_conditions]

    @cached_property
    def _grouped_keys(self) -> list[int]:
        """None: pages are not made by keys."""
        return []

    def _pages(self) -> Intervals:
        ends = interval_ends(
            self._asked_side.name == "left", self.region, self.threshold, self.exact, self._pairing
        )  # fmt: skip
        found = self.index.intervals(ends)
        if not self.threshold.attainable:
            found = Intervals(found.start, found.end, np.ones(len(found.start), dtype=bool))
        return found

    @property
    def expected_partners(self) -> float:
        """About how many rows of the index a row of the other side meets, told from the pages without reading any.

        As if the other side lay where the index lies, and were certain.
        """
        pages, rows = self._pages(), self.index.rows.astype(np.float64)
        known = np.isfinite(pages.start) & np.isfinite(pages.end) & (pages.end >= pages.start)
        start, end, rows = pages.start[known], pages.end[known], rows[known]
        if not len(rows):
            return 0.0
        reach = 0.5 * (self.region.high - self.region.low)
        probes = np.linspace(0, len(rows) - 1, min(len(rows), _PROBES)).astype(np.int64)
        middle = 0.5 * (start + end)[probes, None]
        shared = np.minimum(end, middle + reach) - np.maximum(start, middle - reach)
        share = np.clip(shared / np.maximum(end - start, np.finfo(np.float64).tiny), 0.0, 1.0)
        share[(end == start) & (shared >= 0.0)] = 1.0
        return float(np.average(share @ rows, weights=rows[probes]))

    def _by_pages(self, observing: Observing) -> DataFrame:
        stack, raising = self._stack, self.invalid == "raise"
        packed = {
            side.name: self._packed_side(side, raising) for side in (self._left, self._right)
        }  # fmt: skip
        asking, asked = self._asking_side, self._asked_side
        number = LEFT if asking.name == "left" else RIGHT
        rows = stack.spread(self._own_rows(asking), asking.inner, number, [], named=False)
        ask = AskPages(packed[asking.name], number, self._pages())
        parcels = rows.mapInArrow(lambda batches: ask(batches), PARCEL_TYPE)
        metrics = {
            f"{name}_{asking.name}": f"sum(get({COUNTS}, {k}))" for k, name in enumerate(ROW_COUNTS)
        }  # fmt: skip
        pages = observing.parcels(parcels, metrics).repartition(CELL).sortWithinPartitions(CELL)
        places = stack.left if asked.name == "left" else stack.right
        names = tuple(stack.columns[place] for place in places)
        index, match = self.index, MatchPage(self.region, self.threshold, self._needs_values)

        def join(cells: CellJoin) -> Any:
            reading = PageJoin(index, packed[asked.name], names, 1 - number, cells)
            return lambda batches: reading(batches)

        return self._joined(pages, observing, match, join, {READ: "sum"})

    def _explain_partitioning(self) -> list[str]:
        return [
            f"  index         {len(self.index):,} pages of {self.index.page_rows:,} rows of the "
            f"{self._asked_side.name} table, by x-bounds at {self.index.left.shape[1]} levels",
            f"  strategy      index: pages that no row of the {self._asking_side.name} table may match are not read",
        ]
