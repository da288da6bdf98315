"""The join of two Arrow tables that hold the rows of one cell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.joins.cells.asked import PairSelection, Together
from haply.joins.cells.difference import MatchDifferences
from haply.joins.cells.method import Match
from haply.joins.cells.rows import BEGINS_HERE, END, START, TIME, TIME_BEGINS_HERE, CellRows
from haply.joins.match import Matches
from haply.joins.ranks import best_of_cell
from haply.joins.slots import in_slots
from haply.models import Model
from haply.models.columns import view_column
from haply.models.ragged import as_arrow, as_numpy
from haply.pruning.best import Best
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.candidates.one_pass import Labels, Places, Run
from haply.selection.select import add_codes

_PAIRS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class CellJoin:
    """Finds and decides the pairs of a cell: by keys and slots of time, by a method, then by further conditions."""

    values: tuple[str, str]
    """The compared columns of both sides."""
    keys: tuple[str, ...]
    match: Match
    asked: Together | PairSelection | None = None
    window: float | None = None
    """How far apart certain times may be. Here most pairs that are farther apart are left out; the end of a plan leaves
    out the others."""
    best: Best | None = None
    """Which pairs are wanted, if not all (see ``Setting``)."""

    def in_parts(
        self, models: tuple[Model, Model], placed: tuple[Intervals, Intervals], labels: Labels, parts: int, run: Run
    ) -> Iterator[Matches] | None:
        """Return the kept pairs of sides that are not cut into cells, in so many parts; None if cells are needed.

        That can be done where nothing but values decides pairs, by one pass.
        """
        if self.keys or self.window is not None or self.asked is not None:
            return None
        if not isinstance(self.match, MatchDifferences):
            return None
        best = self.best
        if best is None:
            return self.match.in_parts(models, placed, labels, parts, run, lambda found, _: found)

        def finish(found: Matches, places: Places | None) -> Matches:
            begun = time.perf_counter()
            found = best_of_cell(found, models, best, parts, places)
            left, right = (
                rows if label is None else label.take(rows)
                for rows, label in zip((found.left, found.right), labels, strict=True)
            )
            seconds = {**found.seconds, "decide": found.seconds["decide"] + time.perf_counter() - begun}
            return replace(found, left=left, right=right, seconds=seconds)

        return self.match.in_parts(models, placed, (None, None), parts, run, finish)

    def pairs(self, left: pa.Table, right: pa.Table) -> Matches | None:
        """Return the kept pairs that this cell owns, by row numbers; None if no two rows can meet."""
        groups = shared_codes([(left[key], right[key]) for key in self.keys]) if self.keys else (None, None)
        mine, theirs = (
            _rows_of(table, value, group)
            for table, value, group in zip((left, right), self.values, groups, strict=True)
        )
        begun = time.perf_counter()
        if self.window is None:
            found = self.match(mine, theirs)
        else:
            copies, keys = in_slots(mine, theirs, self.window, (_elsewhere(left), _elsewhere(right)))
            if not len(copies):
                return None
            if not np.array_equal(copies, np.arange(right.num_rows)):
                theirs = theirs.take(copies)
            found = self.match(replace(mine, groups=keys[0]), replace(theirs, groups=keys[1]))
            found = replace(found, right=copies[found.right])
        if self.asked is not None:
            found = self._kept(left, right, found, self.asked)
        if self.best is not None:
            begun_last = time.perf_counter()
            found = best_of_cell(found, (mine.model, theirs.model), self.best)
            found.seconds["decide"] += time.perf_counter() - begun_last
        seconds = dict(found.seconds)
        seconds["prepare"] += time.perf_counter() - begun - sum(found.seconds.values())
        return replace(found, seconds=seconds)

    @staticmethod
    def _kept(left: pa.Table, right: pa.Table, found: Matches, asked: Together | PairSelection) -> Matches:
        """Return the pairs that further conditions keep; evaluate them block by block, as pairs may be many."""
        begun = time.perf_counter()
        counters = asked.counters(found.counters) if isinstance(asked, PairSelection) else found.counters
        parts = []
        for begin in range(0, max(1, len(found.left)), _PAIRS_AT_ONCE):
            block = slice(begin, begin + _PAIRS_AT_ONCE)
            rows = [
                table.select(asked.columns(side)).take(as_arrow(chosen[block]))
                for side, (table, chosen) in enumerate(((left, found.left), (right, found.right)))
            ]
            kept, probability, codes = asked.keep(rows, found.probability[block])
            if codes is not None:
                add_codes(counters, codes)
            parts.append((begin + kept, probability))
        kept, probability = (np.concatenate(part) for part in zip(*parts, strict=True))
        seconds = {**found.seconds, "decide": found.seconds["decide"] + time.perf_counter() - begun}
        return replace(found.take(kept), probability=probability, counters=counters, seconds=seconds)


def _rows_of(table: pa.Table, value: str, groups: np.ndarray | None) -> CellRows:
    names = table.column_names
    return CellRows(
        view_column(table[value]),
        as_numpy(table[START]) if START in names else np.empty(0),
        as_numpy(table[END]) if END in names else np.empty(0),
        as_numpy(table[BEGINS_HERE]) if BEGINS_HERE in names else None,
        groups,
        as_numpy(table[TIME]) if TIME in names else None,
    )


def _elsewhere(table: pa.Table) -> np.ndarray:
    """Tell which rows have times that begin in another cell: no row, if rows are not placed by their times."""
    if TIME_BEGINS_HERE not in table.column_names:
        return np.zeros(table.num_rows, dtype=bool)
    return ~as_numpy(table[TIME_BEGINS_HERE])


def shared_codes(keys: list[tuple[pa.ChunkedArray, pa.ChunkedArray]]) -> tuple[np.ndarray, np.ndarray]:
    """Number the rows of both sides so that rows have the same number if all their keys are equal."""
    codes: np.ndarray | None = None
    for left, right in keys:
        both = pa.chunked_array([*left.chunks, *right.chunks], left.type).combine_chunks()
        index = pc.dictionary_encode(both).indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = index if codes is None else np.unique(codes * (int(index.max()) + 1) + index, return_inverse=True)[1]
    assert codes is not None
    return codes[: len(keys[0][0])], codes[len(keys[0][0]) :]
