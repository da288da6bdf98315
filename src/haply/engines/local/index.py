"""Indexed tables in this process (see ``haply.indexing``)."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from haply.engines.local.frame import LocalFrame, no_rows, type_text
from haply.engines.local.pairs import ROW, LocalJoin
from haply.engines.local.threads import on_threads
from haply.errors import HaplyError
from haply.indexing.index import (
    PAGE_SCHEMA,
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
from haply.joins.cells.join import CellJoin
from haply.joins.cells.rows import BEGINS_HERE, END, ROW_COUNTS, START
from haply.models import OneDimensional
from haply.models.columns import read_column
from haply.models.ragged import as_arrow
from haply.numerics.order import ordered
from haply.planning.pairs import PairPlan

_ROWS_OF_A_FILE = 1 << 20


def build_index(frame: LocalFrame, column: str, path: str, page_rows: int, mode: str) -> None:
    """Write a table in the order of an uncertain column, with the bounds of its pages for joins."""
    path = everywhere(path)
    before, bounds = begin(path, mode), None
    schema = _spark_schema(frame.schema)
    if mode == "append" and before is not None:
        check_levels(before, path)
        _check_alike(before, column, schema, path)
        bounds = read_bounds(path, before)
    table = frame.table().combine_chunks()
    table = table.take(as_arrow(np.argsort(_middles(table[column]), kind="stable")))
    with building(path, before) as build:
        writer = WritePages(path, build.id, column, page_rows)
        pages = []
        for begin_row in range(0, max(1, table.num_rows), _ROWS_OF_A_FILE):
            pages += list(writer(iter(table.slice(begin_row, _ROWS_OF_A_FILE).to_batches())))
        found = pa.Table.from_batches(pages, PAGE_SCHEMA) if pages else no_rows(PAGE_SCHEMA)
        commit_pages(build, column, schema, page_rows, found, bounds)


def _middles(column: pa.ChunkedArray) -> np.ndarray:
    """Return about the median of each value; infinite where there is none, so that these come last."""
    read = read_column(column)
    assert isinstance(read.model, OneDimensional)
    middle = np.full(len(column), np.inf)
    middle[read.rows] = read.model.quantile_low(0.5)
    return middle


def _check_alike(before: dict[str, Any], column: str, schema: str, path: str) -> None:
    for what, found, expected in (("column", column, before["column"]), ("columns", schema, before["schema"])):
        if found != expected:
            raise HaplyError(f"The {what} of the index {path} differ", expected=expected, found=found)


def _spark_schema(schema: pa.Schema) -> str:
    """Return the columns as Spark writes them in JSON."""

    def kind(of: pa.DataType) -> Any:
        if pa.types.is_struct(of):
            return {"type": "struct", "fields": [field(part) for part in of]}
        if pa.types.is_list(of):
            return {"type": "array", "elementType": kind(of.value_type), "containsNull": True}
        return {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}.get(
            type_text(of), type_text(of)
        )

    def field(of: pa.Field) -> dict[str, Any]:
        return {"name": of.name, "type": kind(of.type), "nullable": True, "metadata": {}}

    return json.dumps({"type": "struct", "fields": [field(each) for each in schema]}, separators=(",", ":"))


def read_index(path: str) -> LocalFrame:
    """Return the table of an index, which ``hp.join`` recognises on either side."""
    index = open_index(path)
    forget_open_files()
    schema = index.read_page(0).schema.remove_metadata() if len(index) else pa.schema([])

    def load(names: Sequence[str]) -> pa.Table:
        """Read all rows; every page is checked."""
        pages = [index.read_page(page).select(list(names)) for page in range(len(index))]
        return pa.concat_tables(pages).replace_schema_metadata(None) if pages else no_rows(schema)

    return LocalFrame(schema, load, lambda table: table, ("index", path), index)


class LocalIndexedJoin(LocalJoin):
    """Runs a join with an indexed table: pages that no row of the other table may match are not read."""

    def __init__(self, join: PairPlan, funnel: Any) -> None:
        super().__init__(join, funnel)
        assert isinstance(join.method, DifferenceMethod)
        assert join.indexed is not None
        self.method = join.method
        self._asked = join.side(join.indexed)
        self._asking = join.right if join.indexed == "left" else join.left
        self.index: Index = self._asked.frame.index
        self.pages = PagesOfJoin(self.index, self.method, self._asked.is_left)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the pairs, some at a time."""
        join, asking, asked = self.join, self._asking, self._asked
        if self.funnel is not None:
            self.funnel.start_over()
        rows = self._side_rows(asking)
        counts = Counter({f"rows_{asked.name}": int(self.index.rows.sum()), "pages_total": len(self.index)})
        counts.update({f"{name}_{asking.name}": n for name, n in zip(ROW_COUNTS, rows.counts, strict=True)})
        usable = rows.usable.append_column(START, as_arrow(rows.intervals.start)).append_column(
            END, as_arrow(rows.intervals.end)
        )
        usable = usable.append_column(BEGINS_HERE, as_arrow(np.ones(usable.num_rows, bool))).combine_chunks()
        met, pages = PageList(self.pages.intervals).met_by(rows.intervals)
        order, sorted_pages = ordered(pages)
        met = met[order]
        cuts = (
            np.concatenate([[0], np.flatnonzero(np.diff(sorted_pages)) + 1, [len(met)]]).tolist() if len(met) else [0]
        )
        left, right = (side.inner_name for side in join.sides)
        match = MatchPage(self.method.region, self.method.threshold, join.needs_values)
        values = left(join.left.column), right(join.right.column)
        cell = CellJoin(values, (), match, join.asked(left, right), join.length, join.setting.best)
        spec = join.row_spec(asked, asked.inner_name, join.invalid == "raise")

        def decided(cut: tuple[int, int]) -> tuple[pa.Table, Counter[str]] | None:
            page = int(sorted_pages[cut[0]])
            mine = usable.take(as_arrow(met[cut[0] : cut[1]])).combine_chunks()
            theirs = page_rows(self.index, page, asked.inner, spec).combine_chunks()
            sides = (theirs, mine) if asked.is_left else (mine, theirs)
            found = cell.pairs(*sides)
            if found is None:
                return None
            counted = Counter(found.counters.flat())
            counted.pop("kept", None)
            counted["pages_read"] = 1
            for stage, seconds in found.seconds.items():
                counted[f"nanoseconds:{stage}"] += int(1e9 * seconds)
            numbers = mine[ROW].to_numpy()
            chosen = {
                asking.prefix: (rows.table, numbers[found.right if asked.is_left else found.left]),
                asked.prefix: (theirs, found.left if asked.is_left else found.right),
            }
            return self._wide(chosen, found.probability), counted

        for one in on_threads(decided, list(itertools.pairwise(cuts))):
            if one is None:
                continue
            counts.update(one[1])
            shown = self._finished(one[0])
            counts["kept"] += shown.num_rows
            if shown.num_rows:
                yield shown
        if self.funnel is not None:
            said = dict(counts)
            self.funnel.follow(lambda: said)

    def _wide(self, chosen: dict[str, tuple[pa.Table, np.ndarray]], probability: np.ndarray) -> pa.Table:
        """Inner columns of pairs, and their probabilities."""
        columns = [chosen[name[0]][0][name].take(as_arrow(chosen[name[0]][1])) for name in self.join.payload]
        return pa.table([*columns, as_arrow(probability)], names=[*self.join.payload, "probability"])

    def _finished(self, wide: pa.Table) -> pa.Table:
        """Return the columns of the result, of pairs that fulfil all certain conditions."""
        join = self.join
        texts = [join.sql(expression) for expression in (*join.condition.residual, *join.own_conditions(self._asked))]
        texts += [f"({join.sql(one)}) = ({join.sql(other)})" for one, other in join.condition.equalities]
        wide = self._kept_by(wide, texts)
        inner = [join.side(one.side).inner_name(one.column) for one in join.result]
        shown = wide.select(inner).rename_columns([one.name for one in join.result])
        return shown.append_column("probability", wide["probability"]) if join.exact else shown
