"""The plan of a join with an indexed table: the rows of the other side go to the pages they may match.

The indexed rows are not moved at all. A worker gets the page numbers and the rows that ask for them, reads those pages
where they lie, and decides the pairs; every indexed row is on one page, so every pair is found once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.joins.cells.difference import DifferenceMethod, MatchPage
from haply.joins.cells.rows import BEGINS_HERE, END, LEFT, RIGHT, ROW_COUNTS, START, RowSpec, usable_rows
from haply.models.columns import read_column
from haply.planning.pairs import PairJoin, Side
from haply.pruning.intervals import Intervals, interval_ends
from haply.spark.batch import BatchJoin
from haply.spark.index import Index
from haply.spark.observing import Observing
from haply.spark.packing import COUNTS, PARCEL, PARCEL_TYPE, parcels_of
from haply.spark.stack import CELL
from haply.spark.worker import CellWorker, cells_of, opened

READ = "pages_read"
_PROBES = 256
"""Places at which an index is asked how many rows one meets there."""


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

    side: RowSpec
    number: int
    pages: Intervals

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A parcel for each page and batch, and a row of counts."""
        known = PageList(self.pages)
        for batch in batches:
            if batch.num_rows:
                table, intervals, counts = usable_rows(pa.Table.from_batches([batch]), self.side, ())
                rows, pages = known.met_by(intervals)
                begins_here = np.ones(len(rows), dtype=bool)
                yield parcels_of(table, intervals, rows, begins_here, pages, self.number, counts)


@dataclass(frozen=True)
class PageJoin:
    """The join of pages with the rows that ask for them, as a function for ``mapInArrow``."""

    index: Index
    indexed: RowSpec
    names: tuple[str, ...]
    """What the columns of the index are called here."""
    number: int
    cells: CellWorker

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
            .append_column(BEGINS_HERE, pa.array(np.ones(len(rows), dtype=bool)))
        )


class IndexedJoin:
    """Runs a join with an indexed table."""

    def __init__(self, join: PairJoin, funnel: Any) -> None:
        assert isinstance(join.method, DifferenceMethod)
        assert join.indexed is not None
        self.join, self.method, self.batch = join, join.method, BatchJoin(join, funnel)
        self.funnel = funnel
        self._asked_side: Side = join.side(join.indexed)
        self._asking_side: Side = join.right if join.indexed == "left" else join.left
        self.index: Index = self._asked_side.frame.index

    def run(self) -> DataFrame:
        """Return the pairs, as a lazy DataFrame."""
        self.method.warm(self.join.setting)
        observing = Observing(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
            rows = {f"rows_{self._asked_side.name}": int(self.index.rows.sum()), "pages_total": len(self.index)}
            self.funnel.follow(lambda: rows)
        pairs = self._by_pages(observing)
        for expression in self.join.own_conditions(self._asked_side):  # pages are read whole, so pairs are asked
            pairs = pairs.where(F.expr(self.join.sql(expression)))
        return self.batch.finished([pairs], observing)

    def _pages(self) -> Intervals:
        method = self.method
        ends = interval_ends(
            self._asked_side.is_left, method.region, method.threshold, method.exact, method.pairing
        )  # fmt: skip
        found = self.index.intervals(ends)
        if not method.threshold.attainable:
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
        reach = 0.5 * (self.method.region.high - self.method.region.low)
        probes = np.linspace(0, len(rows) - 1, min(len(rows), _PROBES)).astype(np.int64)
        middle = 0.5 * (start + end)[probes, None]
        shared = np.minimum(end, middle + reach) - np.maximum(start, middle - reach)
        share = np.clip(shared / np.maximum(end - start, np.finfo(np.float64).tiny), 0.0, 1.0)
        share[(end == start) & (shared >= 0.0)] = 1.0
        return float(np.average(share @ rows, weights=rows[probes]))

    def _by_pages(self, observing: Observing) -> DataFrame:
        join, batch, raising = self.join, self.batch, self.join.invalid == "raise"
        specs = {side.name: join.row_spec(side, batch.place_of(side), raising) for side in join.sides}
        asking, asked = self._asking_side, self._asked_side
        number = LEFT if asking.is_left else RIGHT
        rows = batch.stack.spread(batch.own_rows(asking), asking.inner, number, [], named=False)
        ask = AskPages(specs[asking.name], number, self._pages())
        parcels = rows.mapInArrow(lambda batches: ask(batches), PARCEL_TYPE)
        metrics = {
            f"{name}_{asking.name}": f"sum(get({COUNTS}, {k}))" for k, name in enumerate(ROW_COUNTS)
        }  # fmt: skip
        pages = observing.parcels(parcels, metrics).repartition(CELL).sortWithinPartitions(CELL)
        names = tuple(map(batch.place_of(asked), asked.original))
        index, match = self.index, MatchPage(self.method.region, self.method.threshold, join.needs_values)

        def worker(cells: CellWorker) -> Any:
            reading = PageJoin(index, specs[asked.name], names, 1 - number, cells)
            return lambda batches: reading(batches)

        return batch.joined(pages, observing, match, worker, {READ: "sum"})

    def profile(self) -> list[str]:
        """Describe the pages of the index."""
        return [
            f"  index         {len(self.index):,} pages of {self.index.page_rows:,} rows of the "
            f"{self._asked_side.name} table, by x-bounds at {self.index.left.shape[1]} levels",
            f"  strategy      index: pages that no row of the {self._asking_side.name} table may match are not read",
        ]
