"""Joins of two tables in this process (see ``planning.pairs`` for the parts of a plan).

Rows are identified by their numbers. One-dimensional values of one kind are sorted once, and threads sweep parts of the
sorted rows. Everything else, and sides that are too large to hold twice, go through cells: values, keys and times; a
cell is a slice of rows in the order of their cells. Cells are decided on threads, and the columns of pairs are taken
from the tables at the end of each.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.engines.local import sql
from haply.engines.local.frame import LocalFrame, taken
from haply.engines.local.threads import Once, cores, on_threads, tell_follower
from haply.errors import count_of
from haply.joins.cells.difference import DifferenceMethod
from haply.joins.cells.exchange import CellEdges, Sent, profile_of, to_cells
from haply.joins.cells.join import CellJoin
from haply.joins.cells.rows import (
    BEGINS_HERE,
    END,
    FITS,
    HOPELESS,
    LEFT,
    RIGHT,
    ROW_COUNTS,
    START,
    TIME,
    TIME_BEGINS_HERE,
    PlacedRows,
    RowSpec,
    good_rows,
    in_window,
    placed_rows,
    possible_rows,
)
from haply.joins.match import Matches
from haply.models.ragged import as_arrow, as_numpy
from haply.planning.explain import Description
from haply.planning.pairs import PairPlan, Side
from haply.pruning.candidates.intervals import Intervals, accepts_above, accepts_below
from haply.pruning.cells import expected_candidates, lay_out

ROW = "__row"
"""The column of row numbers."""
_PAIRS_AT_ONCE = 1 << 20
_ROWS_PER_CELL = 1 << 16
_ROWS_PER_PART = 1 << 16
"""How many rows of a side a thread sweeps at once, if there are no cells."""
_MOST_SWEPT = 1 << 25
"""The most rows of both sides that are swept without cells: while they are sorted, each takes some hundred bytes.

Copies of rows in cells take as much, and twice the time."""
_WINDOW_SLACK = 1e-9
"""How much longer windows are in DuckDB's join, which rounds differently: its pairs are checked again."""


class FoundPairs(NamedTuple):
    """Pairs by the numbers of their rows, and their probabilities."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray


@dataclass(frozen=True)
class SideRows:
    """The rows of a side: all columns that pairs show or decide, the rows that take part, and their intervals."""

    table: pa.Table
    """Inner columns of all rows that fulfil the side's own certain conditions."""
    placed: PlacedRows
    """Of rows with good values: their numbers, values, keys, times and intervals."""

    @Once
    def _possible(self) -> tuple[pa.Table, Intervals]:
        return possible_rows(self.placed)

    @property
    def usable(self) -> pa.Table:
        """Return the placed rows that may have partners."""
        return self._possible[0]

    @property
    def intervals(self) -> Intervals:
        """Return their intervals."""
        return self._possible[1]

    @property
    def counts(self) -> list[int]:
        """Counts of all rows (see ``ROW_COUNTS``)."""
        return self.placed.counts

    @property
    def labels(self) -> np.ndarray | None:
        """Return the numbers of the placed rows; None if they are all rows, in their order."""
        return None if self.placed.table.num_rows == self.table.num_rows else as_numpy(self.placed.table[ROW])


class LocalJoin:
    """Runs a join of two tables."""

    def __init__(self, join: PairPlan, funnel: Any) -> None:
        self.join, self.funnel = join, funnel
        self._counts: Counter[str] = Counter()

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the result."""
        fields = []
        for one in self.join.result:
            frame = self.join.side(one.side).frame
            assert isinstance(frame, LocalFrame)
            fields.append(frame.schema.field(one.column).with_name(one.name))
        return pa.schema([*fields, *([pa.field("probability", pa.float64())] if self.join.exact else [])])

    def tables(self) -> Iterator[pa.Table]:
        """Yield the pairs, some at a time."""
        shown, names = [one.name for one in self.join.result], self.schema.names
        for found in self.found():
            columns = self.columns(found, shown).columns
            if self.join.exact:  # it may be the only column
                columns = [*columns, as_arrow(found.probability)]
            yield pa.table(columns, names=names)

    def found(self) -> Iterator[FoundPairs]:
        """Yield the pairs that fulfil all conditions, some at a time, without their columns."""
        join = self.join
        if self.funnel is not None:
            self.funnel.start_over()
        if join.method is None:
            parts: Iterator[FoundPairs] = self._certain()
        else:
            self._count_rows()
            parts = map(self._without_same, self._overlapping())
            if join.method.has_sure_pairs:
                parts = itertools.chain(parts, self._counted("sure", map(self._without_same, self._sure())))
            if join.matches_itself:
                parts = itertools.chain(parts, self._counted("same", self._same()))
        for found in parts:
            for begin in range(0, len(found.left), _PAIRS_AT_ONCE):
                block = slice(begin, begin + _PAIRS_AT_ONCE)
                kept = self._fulfilling(FoundPairs(*(column[block] for column in found)))
                self._counts["kept"] += len(kept.left)
                if len(kept.left):
                    yield kept
        if self.funnel is not None:
            counts = dict(self._counts) if join.method is not None else {}
            self.funnel.follow(lambda: counts)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _needed(self, side: Side) -> list[str]:
        """Return the columns that pairs show, or that decide them."""
        join = self.join
        asked = join.selection.columns(RIGHT if side is join.right else LEFT) if join.selection is not None else ()
        names = {side.column, *join.checked_columns(side), *asked} if join.method is not None else set()
        return [
            name
            for name, inner in zip(side.original, side.inner, strict=True)
            if name in names or inner in join.payload
        ]

    def _own_rows(self, side: Side) -> pa.Table:
        """Return the side's rows that fulfil its own certain conditions: what is needed of them, keys and times."""
        join, frame = self.join, side.frame.renamed(side.inner)
        for expression in join.own_conditions(side):
            frame = frame.where(join.sql(expression))
        keys = {f"__key{position}": text for position, text in enumerate(join.key_sql(side))}
        frame = frame.with_columns(keys)
        if join.window is not None:
            name = join.window.column(side.is_left)
            frame = frame.with_time(TIME, join.window, side.inner_name(name), name)
        assert isinstance(frame, LocalFrame)
        wanted = [*map(side.inner_name, self._needed(side)), *keys, *([TIME] if join.window is not None else [])]
        table = frame.table(wanted or side.inner[:1])
        return table.append_column(ROW, as_arrow(np.arange(table.num_rows))).combine_chunks()

    def _fits(self, table: pa.Table) -> np.ndarray:
        """Return which rows have all that certain conditions need."""
        fits = np.full(table.num_rows, self.join.threshold.attainable)
        for position in range(len(self.join.condition.equalities)):
            fits &= np.asarray(table[f"__key{position}"].is_valid())
        if self.join.window is not None:
            fits &= np.isfinite(table[TIME].to_numpy())  # a null is NaN here
        return fits

    def _along(self) -> tuple[str, ...]:
        """Return columns that go into cells besides values: row numbers, keys and times."""
        keys = [f"__key{position}" for position in self.join.grouped_keys]
        return (ROW, *keys, *([TIME] if self.join.window is not None else []))

    def _spec(self, side: Side) -> RowSpec:
        join = self.join
        spec = join.row_spec(side, side.inner_name, join.invalid == "raise")
        asked = join.checked_columns(side)
        if join.selection is not None:
            asked = list(join.selection.columns(RIGHT if side is join.right else LEFT))
        return replace(spec, payload=tuple(map(side.inner_name, asked)))

    @Once
    def rows(self) -> tuple[SideRows, SideRows]:
        """Return the rows of both sides."""
        left, right = on_threads(self._side_rows, self.join.sides)
        return left, right

    def _side_rows(self, side: Side) -> SideRows:
        table = self._own_rows(side)
        fits = self._fits(table)
        marked = table if fits.all() else table.append_column(FITS, as_arrow(fits))
        return SideRows(table, placed_rows(marked, self._spec(side), self._along()))

    @Once
    def _whole(self) -> tuple[pa.Table, pa.Table]:
        """Return all columns of the rows of both sides."""
        if self.join.method is not None:
            return self.rows[0].table, self.rows[1].table
        return self._own_rows(self.join.left), self._own_rows(self.join.right)

    def _count_rows(self) -> None:
        for side, rows in zip(self.join.sides, self.rows, strict=True):
            for name, count in zip(ROW_COUNTS, rows.counts, strict=True):
                self._counts[f"{name}_{side.name}"] += count

    # -- overlapping pairs ---------------------------------------------------------------------------------------------

    def layout(self) -> tuple[CellEdges, tuple[Intervals, Intervals]]:
        """Choose cells, by the rows' intervals or by their times, whichever lets rows meet fewer others."""
        placed = self.rows[0].intervals, self.rows[1].intervals
        profiles = [profile_of(intervals) for intervals in placed]
        in_time = False
        if self.join.length is not None:
            length = self.join.length
            times = tuple(in_window(as_numpy(side.usable[TIME]), length) for side in self.rows)
            by_time = [profile_of(intervals) for intervals in times]
            in_time = expected_candidates(by_time[0], by_time[1]) < expected_candidates(profiles[0], profiles[1])
            if in_time:
                placed, profiles = (times[0], times[1]), by_time
        found = lay_out(profiles[0], profiles[1], rows_per_cell=_ROWS_PER_CELL)
        return CellEdges.of(found, in_time), placed

    def _overlapping(self) -> Iterator[FoundPairs]:
        """Yield pairs of rows whose intervals overlap, some at a time."""
        if any(side.placed.table.num_rows == side.counts[HOPELESS] for side in self.rows):
            return
        cell = self._cell_join()
        parts, total = self._swept(cell) or self._in_cells(cell)
        for done, found in enumerate(parts, 1):
            tell_follower(done, total)
            if found is not None:
                counts = Counter(found.counters.flat())
                counts.pop("kept", None)
                for stage, seconds in found.seconds.items():
                    counts[f"nanoseconds:{stage}"] += int(1e9 * seconds)
                self._counts.update(counts)
                yield FoundPairs(found.left, found.right, found.probability)

    def _cell_join(self) -> CellJoin:
        join = self.join
        assert join.method is not None
        left, right = (side.inner_name for side in join.sides)
        keys = tuple(f"__key{position}" for position in join.grouped_keys)
        return CellJoin(
            (left(join.left.column), right(join.right.column)), keys, join.method.match(join.setting),
            join.asked(left, right), join.length, join.setting.best,
        )  # fmt: skip

    def _swept(self, cell: CellJoin) -> tuple[Iterator[Matches | None], int] | None:
        """Find pairs in one sweep of sorted rows, part by part; return also how many parts there are."""
        sizes = [side.placed.table.num_rows for side in self.rows]
        if sum(sizes) > _MOST_SWEPT:
            return None
        one, other = (side.placed for side in self.rows)
        count = -(-max(sizes) // _ROWS_PER_PART)
        labels = self.rows[0].labels, self.rows[1].labels
        found = cell.in_parts((one.model, other.model), (one.intervals, other.intervals), labels, count, on_threads)
        return None if found is None else (found, count)

    def _in_cells(self, cell: CellJoin) -> tuple[Iterator[Matches | None], int]:
        """Find pairs cell by cell; return also how many cells there are."""
        edges, placed = self.layout()
        one_cell = not len(edges.edges) and not len(edges.slices)
        parts = list(
            on_threads(lambda side: _by_cell(self.rows[side], placed[side], side, edges, one_cell), (LEFT, RIGHT))
        )
        meeting = [number for number in parts[0].slices if number in parts[1].slices]

        def decided(number: int) -> Matches | None:
            mine, theirs = parts[0].rows(number), parts[1].rows(number)
            found = cell.pairs(mine, theirs)
            if found is None:
                return None
            rows = as_numpy(mine[ROW])[found.left], as_numpy(theirs[ROW])[found.right]
            return replace(found, left=rows[0], right=rows[1])

        return on_threads(decided, meeting), len(meeting)

    # -- pairs that DuckDB joins ---------------------------------------------------------------------------------------

    def _sure(self) -> Iterator[FoundPairs]:
        """Yield pairs decided by their position alone."""
        assert isinstance(self.join.method, DifferenceMethod)
        region = self.join.method.region
        tables = [self._joinable(rows.usable, rows.intervals) for rows in self.rows]
        for holds, apart in (
            (accepts_above(region), f"l.{START} > r.{END}"),
            (accepts_below(region), f"l.{END} < r.{START}"),
        ):
            if holds:
                yield self._joined(tables[0], tables[1], [apart])

    def _same(self) -> Iterator[FoundPairs]:
        """Yield each row and itself: the difference is certainly 0."""
        join, tables = self.join, []
        for side, rows in zip(join.sides, self.rows, strict=True):
            marked = rows.table
            good = good_rows(marked, self._spec(side), (ROW,)).table[ROW]
            table = rows.table.take(good)
            tables.append(table.append_column("__self", table[join.key_of(side)]))
        yield self._joined(tables[0], tables[1], ["l.__self = r.__self"])

    def _joinable(self, usable: pa.Table, intervals: Intervals) -> pa.Table:
        whole = self._whole[LEFT if usable is self.rows[0].usable else RIGHT]
        keys = [f"__key{position}" for position in range(len(self.join.condition.equalities))]
        times = [TIME] if self.join.window is not None else []
        table = whole.select([ROW, *keys, *times]).take(usable[ROW])
        return table.append_column(START, as_arrow(intervals.start)).append_column(END, as_arrow(intervals.end))

    def _joined(self, left: pa.Table, right: pa.Table, conditions: Sequence[str]) -> FoundPairs:
        """Join rows by their keys and times and by further conditions, all of them certain."""
        on = [*conditions]
        on += [f"l.__key{k} = r.__key{k}" for k in range(len(self.join.condition.equalities))]
        if self.join.length is not None:
            length = self.join.length * (1.0 + _WINDOW_SLACK)
            on += [f"l.{TIME} <= r.{TIME} + {length!r}", f"l.{TIME} >= r.{TIME} - {length!r}"]
        query = f"SELECT l.{ROW} AS mine, r.{ROW} AS theirs FROM l JOIN r ON {' AND '.join(on) or 'true'}"
        found = sql.run(query, l=left, r=right)
        rows = [found[name].to_numpy() for name in ("mine", "theirs")]
        return FoundPairs(rows[0], rows[1], np.ones(len(rows[0])))

    def _certain(self) -> Iterator[FoundPairs]:
        """Nothing is uncertain: every pair that fulfils the conditions is sure."""
        join = self.join
        if not join.threshold.attainable:
            return
        tables = []
        for table in self._whole:
            tables.append(table.filter(as_arrow(self._fits(table))))
        yield self._joined(tables[0], tables[1], [])

    def _counted(self, name: str, parts: Iterator[FoundPairs]) -> Iterator[FoundPairs]:
        for found in parts:
            self._counts[name] += len(found.left)
            yield found

    def _without_same(self, found: FoundPairs) -> FoundPairs:
        """Leave out pairs of a row and itself, if that is one variable."""
        if not self.join.sees_itself:
            return found
        one, other = (
            whole[self.join.key_of(side)].take(as_arrow(rows))
            for side, whole, rows in zip(self.join.sides, self._whole, (found.left, found.right), strict=True)
        )
        same = np.asarray(pc.fill_null(pc.equal(one, other), False))
        return FoundPairs(*(column[~same] for column in found))

    # -- columns of pairs ----------------------------------------------------------------------------------------------

    def columns(self, found: FoundPairs, names: Sequence[str]) -> pa.Table:
        """Return columns of the result, of pairs that were found."""
        inner = {one.name: self.join.side(one.side).inner_name(one.column) for one in self.join.result}
        return self._taken(found, [inner[name] for name in names]).rename_columns(list(names))

    def numbers_of(self, names: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Return a column of numbers of all rows of each side, by its side, where there is one of that name."""
        found: dict[str, np.ndarray] = {}
        for side, whole in zip(self.join.sides, self._whole, strict=True):
            inner = side.inner_name(names[side.name]) if names[side.name] in side.original else ""
            if inner in whole.column_names:
                found[side.name] = whole[inner].to_numpy()
        return found

    def _fulfilling(self, found: FoundPairs) -> FoundPairs:
        """Return the pairs that fulfil all certain conditions and the window."""
        join = self.join
        window = join.window
        if window is not None:
            times = [
                whole[TIME].to_numpy()[rows] for whole, rows in zip(self._whole, (found.left, found.right), strict=True)
            ]
            near = np.abs(times[0] - times[1]) <= window.length
            found = FoundPairs(*(column[near] for column in found))
        texts = [join.sql(expression) for expression in join.condition.residual]
        grouped = join.grouped_keys if join.method is not None else range(len(join.condition.equalities))
        texts += [
            f"({join.sql(one)}) = ({join.sql(other)})"
            for position, (one, other) in enumerate(join.condition.equalities)
            if position not in grouped
        ]
        if texts and len(found.left):
            wide = self._taken(found, join.payload).append_column(ROW, as_arrow(np.arange(len(found.left))))
            chosen = self._kept_by(wide, texts)[ROW].to_numpy()
            found = FoundPairs(*(column[chosen] for column in found))
        return found

    @staticmethod
    def _kept_by(wide: pa.Table, texts: Sequence[str]) -> pa.Table:
        """Return the pairs that fulfil certain conditions."""
        if not texts or not wide.num_rows:
            return wide
        kept = sql.evaluated(wide, {"kept": " AND ".join(f"({text})" for text in texts)})["kept"]
        return wide.filter(kept)

    def _taken(self, found: FoundPairs, names: Sequence[str]) -> pa.Table:
        """Inner columns of pairs."""
        rows, whole = {"l": found.left, "r": found.right}, {"l": self._whole[0], "r": self._whole[1]}
        return pa.table([taken(whole[name[0]][name], rows[name[0]]) for name in names], names=list(names))

    # -- explaining it -------------------------------------------------------------------------------------------------

    def describe(self) -> Description:
        """Describe where rows go, and how many pairs are expected: reads all rows."""
        swept = self._swept(self._cell_join()) if self.join.method is not None else None
        if swept is not None:
            placed, how = (self.rows[0].intervals, self.rows[1].intervals), f"one sweep in {count_of(swept[1], 'part')}"
        else:
            edges, placed = self.layout()
            sliced = int((edges.slices != 0).sum()) if len(edges.slices) else 0
            cells = count_of(len(edges.edges) + 1, "cell")
            how = f"{cells} by quantiles of the {'times' if edges.in_time else 'intervals'}, {sliced} of them sliced"
        one, other = (profile_of(intervals) for intervals in placed)
        return self.join.describe_cells(one, other, f"{how}; {count_of(cores(), 'thread')}")


@dataclass(frozen=True)
class _Cells:
    """Rows in the order of their cells."""

    table: pa.Table
    slices: dict[int, tuple[int, int]]
    """Where the rows of each cell begin and end."""

    def rows(self, cell: int) -> pa.Table:
        begin, end = self.slices[cell]
        return self.table.slice(begin, end - begin).combine_chunks()


def _by_cell(rows: SideRows, placed: Intervals, side: int, edges: CellEdges, one_cell: bool) -> _Cells:
    """Send rows to their cells."""
    table, intervals = rows.usable, rows.intervals
    name = TIME_BEGINS_HERE if edges.in_time else BEGINS_HERE
    if one_cell:
        sent = Sent(np.arange(table.num_rows), np.ones(table.num_rows, bool), np.empty(0, np.int64))
        slices = {0: (0, table.num_rows)}
    else:
        sent, slices = to_cells(placed, side, edges, np.arange(table.num_rows)).by_cell()
        table = table.take(as_arrow(sent.rows))
    table = (
        table.append_column(START, as_arrow(intervals.start[sent.rows]))
        .append_column(END, as_arrow(intervals.end[sent.rows]))
        .append_column(name, as_arrow(sent.begins_here))
    )
    return _Cells(table.combine_chunks(), slices)
