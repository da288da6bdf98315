"""Indexed tables on Spark (see ``haply.indexing``): how they are written, read and joined.

A plain scan checks the pages in tasks of its own, which come before the rows. In a join the indexed rows are not moved
at all: a worker gets the page numbers and the rows that ask for them, reads those pages where they lie, and decides the
pairs; every indexed row is on one page, so every pair is found once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.batch import BatchJoin
from haply.engines.spark.exchange.parcels import COUNTS, PARCEL, PARCEL_TYPE, parcels_of
from haply.engines.spark.exchange.prepare import middle_column
from haply.engines.spark.exchange.stack import CELL
from haply.engines.spark.exchange.worker import CellWorker, cells_of, opened
from haply.engines.spark.observing import Observing
from haply.errors import HaplyError
from haply.indexing.index import (
    Index,
    WritePages,
    check_levels,
    commit_pages,
    forget_open_files,
    open_index,
    read_bounds,
)
from haply.indexing.manifest import begin, building, everywhere
from haply.indexing.pages import PageList, PagesOfJoin, page_rows
from haply.joins.cells.difference import DifferenceMethod, MatchPage
from haply.joins.cells.rows import LEFT, RIGHT, ROW_COUNTS, RowSpec, usable_rows
from haply.planning.frames import quoted
from haply.planning.pairs import PairPlan, Side
from haply.pruning.candidates.intervals import Intervals

_PAGE_TYPE = (
    "file string, bytes bigint, footer string, page int, start bigint, end bigint, digest binary, rows bigint, "
    "`left` array<double>, `right` array<double>, peak double"
)
_MARK = "_haply_index"


def index_of(frame: DataFrame) -> Index | None:
    """The index of a DataFrame that ``read_index`` gave; what was made from it since has none."""
    found = frame.__dict__.get(_MARK)
    return found if isinstance(found, Index) else None


def renamed(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """A table under other names for its columns; an index stays with it."""
    found, index = frame.toDF(*names), index_of(frame)
    if index is not None:
        found.__dict__[_MARK] = replace(index, column=names[frame.columns.index(index.column)])
    return found


def build_index(df: DataFrame, name: str, path: str, page_rows: int, mode: str) -> None:
    """Write a table in the order of an uncertain column, with what joins want to know of its pages."""
    path = everywhere(path)
    before, bounds = begin(path, mode), None
    if mode == "append" and before is not None:
        check_levels(before, path)
        _check_alike(before, name, df.schema, path)
        bounds = read_bounds(path, before)
    at = "__at"
    ordered = df.withColumn(at, middle_column(quoted(name))).repartitionByRange(F.col(at).asc_nulls_last())
    ordered = ordered.sortWithinPartitions(F.col(at).asc_nulls_last()).drop(at)
    with building(path, before) as build:
        writer = WritePages(path, build.id, name, page_rows)
        pages = ordered.mapInArrow(lambda batches: writer(batches), _PAGE_TYPE).toArrow()  # bounds, not rows
        commit_pages(build, name, df.schema.json(), page_rows, pages, bounds)


def _check_alike(before: dict[str, Any], column: str, schema: T.StructType, path: str) -> None:
    known = T.StructType.fromJson(json.loads(before["schema"]))
    for what, found, expected in (
        ("column", column, before["column"]),
        ("columns", schema.simpleString(), known.simpleString()),
    ):
        if found != expected:
            raise HaplyError(f"The {what} of the index {path} differ", expected=expected, found=found)


def read_index(path: str, spark: SparkSession | None = None) -> DataFrame:
    """Return the table of an index, as a DataFrame that ``hp.join`` recognises on either side."""
    index = open_index(path)
    frame = _scan(spark or SparkSession.getActiveSession() or _own_session(), index)
    frame.__dict__[_MARK] = index
    return frame


def _scan(session: SparkSession, index: Index) -> DataFrame:
    """All rows, as Spark reads Parquet files. Tasks that check the bytes of all pages come before them, and give none.

    Spark leaves out columns and rows that a query does not ask for, and cannot leave out the tasks: it does not know
    that they give no rows.
    """
    schema = T.StructType.fromJson(json.loads(index.schema))
    if not index.files:
        return session.createDataFrame([], schema)
    places = [f"{index.path.rstrip('/')}/{entry['name']}" for entry in index.files]
    nothing = np.empty((0, 0))
    known = replace(index, left=nothing, right=nothing)  # workers have no use for them

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_open_files()  # this worker may have opened one that was replaced since
        for batch in batches:
            for page in batch.column(0).to_pylist():
                known.check_page(page)
        yield from ()

    # In the schema of the rows all may be null: else Spark would leave out the tasks from `where("id IS NULL")`.
    rows = session.read.schema(schema).parquet(*places)
    return session.range(len(index)).mapInArrow(check, rows.schema).union(rows)


def _own_session() -> SparkSession:
    from haply.engines.spark.runtime.session import local_session

    return local_session()


READ = "pages_read"


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
        for expression in self.join.own_conditions(self._asked_side):  # pages are read whole, so pairs are asked
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

    def profile(self) -> list[str]:
        """Describe the pages of the index."""
        return [
            f"  index         {len(self.index):,} pages of {self.index.page_rows:,} rows of the "
            f"{self._asked_side.name} table, by x-bounds at {self.index.left.shape[1]} levels",
            f"  strategy      index: pages that no row of the {self._asking_side.name} table may match are not read",
        ]
