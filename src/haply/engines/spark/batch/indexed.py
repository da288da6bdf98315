"""The plan of a join with an indexed table: the rows of the other side go to the pages they may match.

The indexed rows are not shuffled. A worker gets the page numbers and the rows that need them, reads those pages, and
decides the pairs; every indexed row is on one page, so every pair is found once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.engines.spark.batch.join import BatchJoin
from haply.engines.spark.exchange.parcels import COUNTS, PARCEL, PARCEL_TYPE, parcels_of
from haply.engines.spark.exchange.stack import CELL
from haply.engines.spark.exchange.worker import CellWorker, cells_of, opened
from haply.engines.spark.observing import Observing
from haply.indexing.index import Index
from haply.indexing.pages import PageList, PagesOfJoin, page_rows
from haply.joins.cells.difference import DifferenceMethod, MatchPage
from haply.joins.cells.exchange import Sent
from haply.joins.cells.rows import LEFT, RIGHT, ROW_COUNTS, RowSpec, usable_rows
from haply.planning.pairs import PairPlan, Side
from haply.pruning.candidates.intervals import Intervals

READ = "pages_read"


@dataclass(frozen=True)
class AskPages:
    """Puts rows of the other side into parcels for the pages they may match, as a function for ``mapInArrow``."""

    side: RowSpec
    number: int
    pages: Intervals

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a parcel for each page and batch, and a row of counts."""
        known = PageList(self.pages)
        for batch in batches:
            if batch.num_rows:
                table, intervals, counts = usable_rows(pa.Table.from_batches([batch]), self.side, ())
                rows, pages = known.met_by(intervals)
                begins_here = np.ones(len(rows), dtype=bool)
                yield parcels_of(table, intervals, Sent(rows, begins_here, pages), self.number, counts)


@dataclass(frozen=True)
class PageJoin:
    """Joins pages with the rows that need them, as a function for ``mapInArrow``."""

    index: Index
    indexed: RowSpec
    names: tuple[str, ...]
    """The names of the index's columns here."""
    number: int
    cells: CellWorker

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of every page, each page's counters before them."""
        for cell in cells_of(batches):
            page = int(cell[CELL][0].as_py())
            asking, asked = opened(cell[PARCEL]), self._page(page)
            sides = (asking, asked) if self.number == RIGHT else (asked, asking)
            yield from self.cells.decided(*sides, [1])

    def _page(self, page: int) -> pa.Table:
        return page_rows(self.index, page, self.names, self.indexed)


class SparkIndexedJoin:
    """Runs a join with an indexed table."""

    def __init__(self, join: PairPlan, funnel: Any) -> None:
        assert isinstance(join.method, DifferenceMethod)
        assert join.indexed is not None
        self.join, self.method, self.batch = join, join.method, BatchJoin(join, funnel)
        self.funnel = funnel
        self._asked_side: Side = join.side(join.indexed)
        self._asking_side: Side = join.right if join.indexed == "left" else join.left
        self.index: Index = self._asked_side.frame.index
        self.pages = PagesOfJoin(self.index, self.method, self._asked_side.is_left)

    def run(self) -> DataFrame:
        """Return the pairs, as a lazy DataFrame."""
        self.method.warm(self.join.setting)
        observing = Observing(self.funnel)
        if self.funnel is not None:
            self.funnel.start_over()
            rows = {f"rows_{self._asked_side.name}": int(self.index.rows.sum()), "pages_total": len(self.index)}
            self.funnel.follow(lambda: rows)
        pairs = self._by_pages(observing)
        for expression in self.join.own_conditions(self._asked_side):  # whole pages are read: check pairs
            pairs = pairs.where(F.expr(self.join.sql(expression)))
        return self.batch.finished([pairs], observing)

    def _by_pages(self, observing: Observing) -> DataFrame:
        join, batch, raising = self.join, self.batch, self.join.invalid == "raise"
        specs = {side.name: join.row_spec(side, batch.place_of(side), raising) for side in join.sides}
        asking, asked = self._asking_side, self._asked_side
        number = LEFT if asking.is_left else RIGHT
        rows = batch.stack.spread(batch.own_rows(asking), asking.inner, number, [], named=False)
        ask = AskPages(specs[asking.name], number, self.pages.intervals)
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
