"""What a worker does: parcels of a partition come sorted by cell; each cell is decided, and its pairs go out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.joins.conditions import Batch
from haply.joins.match import Matches, match_overlapping
from haply.joins.moments import match_moments
from haply.joins.paged import OF_STRATEGY, PagedJoin
from haply.joins.select import RULES as SELECTION_RULES
from haply.joins.select import Selection, add_codes
from haply.joins.warm import warm_joint
from haply.models import Model, OneDimensional
from haply.models.columns import view_column
from haply.probability.joint import Condition, Joint
from haply.probability.region import Region
from haply.pruning.cascade import Counters
from haply.pruning.intervals import Intervals
from haply.pruning.threshold import Threshold
from haply.spark.packing import PARCEL
from haply.spark.parcels import from_bytes
from haply.spark.stack import CELL, END, LEFT, NATIVE, NATIVE_IN_TIME, SIDE, START, TIME

COUNTERS = "__counters"
"""The column that holds a cell's counters in one row of its own, and null in the rows of pairs."""

_STAGES = ("prepare", "sweep", "decide", "assemble")
_PAIRS_PER_BATCH = 1 << 16
_PAIRS_AT_ONCE = 1 << 17


def counter_names(counters: Counters) -> list[str]:
    """What a cell counts. Kept pairs are counted at the end of the plan, after certain conditions over both sides."""
    return [*counters.flat(), *(f"nanoseconds:{stage}" for stage in _STAGES)]


@dataclass(frozen=True)
class SideColumns:
    """Where a side's columns are in the stacked rows: its value, and all that goes into the result."""

    value: str
    payload: tuple[str, ...]
    value_in_parts: bool

    def taken(self, rows: pa.Table, chosen: np.ndarray) -> list[pa.ChunkedArray]:
        """The payload of chosen rows; the fields of the value one by one if so wanted."""
        columns = []
        for name in self.payload:
            parts = rows[name].flatten() if name == self.value and self.value_in_parts else [rows[name]]
            columns += [part.take(pa.array(chosen)) for part in parts]
        return columns


@dataclass(frozen=True)
class Rows:
    """One side of a cell: values, intervals, which rows are native here, numbers for equal keys, and times.

    Where a side is whole, all rows are native, and only those have intervals whose pairs are found by them.
    """

    model: Model
    start: np.ndarray
    end: np.ndarray
    native: np.ndarray | None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    def take(self, chosen: np.ndarray) -> Rows:
        """The given rows, in the given order."""

        def of(column: np.ndarray | None) -> np.ndarray | None:
            return column if column is None else column[chosen]

        start, end = (ends[chosen] if len(ends) else ends for ends in (self.start, self.end))
        return Rows(self.model.take(chosen), start, end, of(self.native), of(self.groups), of(self.times))

    def placed(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where chosen rows begin, and which are native: one place for all where a side is whole."""
        if self.native is None:
            return np.zeros(len(chosen)), np.ones(len(chosen), bool)
        return self.start[chosen], self.native[chosen]


@dataclass(frozen=True)
class Together:
    """Conditions on columns of the sides that are independent of what an operator decides: probabilities multiply.

    They name their columns with the side before them (see ``on_side``).
    """

    joint: Joint
    kinds: tuple[tuple[str, type[Model]], ...]
    threshold: Threshold
    """That of all conditions together."""

    @classmethod
    def of(
        cls, conditions: Sequence[Condition], kinds: Mapping[str, type[Model]], threshold: Threshold
    ) -> Together | None:
        """None if there are none. Kernels are compiled here, not by every worker."""
        if not conditions:
            return None
        together = cls(Joint.of(conditions, kinds), tuple(kinds.items()), threshold)
        warm_joint(together.joint, together.kinds)
        return together

    def columns(self, side: int) -> tuple[str, ...]:
        """The columns of a side that it speaks of."""
        names = [name.split(":", 1) for name in self.joint.names]
        return tuple(column for of, column in names if int(of) == side)

    def keep(self, rows: Sequence[pa.Table], before: np.ndarray) -> tuple[np.ndarray, np.ndarray, None]:
        """Which rows are kept of tables that stand side by side, and their probabilities.

        ``before`` are the operator's; rows that no condition by itself leaves likely enough are not computed.
        """
        values = {
            on_side(side, name): view_column(table[name])
            for side, table in enumerate(rows)
            for name in self.columns(side)
        }
        with np.errstate(divide="ignore", invalid="ignore"):
            chosen, probability, counts = self.joint.likely(values, self.threshold.reject_below / before)
        sure = bool((before == 1.0).all())
        probability = before[chosen] * probability
        kept = self.threshold.keep(probability, counts=counts and sure)
        return chosen[kept], probability[kept], None


@dataclass(frozen=True)
class PairQuestion:
    """All conditions on a pair, whose candidates an operator has found by something that follows from them."""

    selection: Selection
    uncertain: tuple[tuple[str, int, str], ...]
    """Names in the conditions, the side, and the column there."""
    numbers: tuple[tuple[str, int, str], ...] = ()

    def renamed(self, names: Sequence[Callable[[str], str]]) -> PairQuestion:
        """The same of columns as they are called elsewhere: a function for each side."""

        def moved(columns: tuple[tuple[str, int, str], ...]) -> tuple[tuple[str, int, str], ...]:
            return tuple((name, side, names[side](column)) for name, side, column in columns)

        return PairQuestion(self.selection, moved(self.uncertain), moved(self.numbers))

    def columns(self, side: int) -> tuple[str, ...]:
        """The columns of a side that it speaks of."""
        return tuple(dict.fromkeys(column for _, of, column in (*self.uncertain, *self.numbers) if of == side))

    def keep(self, rows: Sequence[pa.Table], before: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which pairs are kept of tables that stand side by side, their probabilities, and what decided each pair."""
        values = {name: view_column(rows[side][column]) for name, side, column in self.uncertain}
        numbers = {name: rows[side][column].to_numpy() for name, side, column in self.numbers}
        return self.selection.select(Batch(values, numbers, rows[0].num_rows))

    @staticmethod
    def counters(found: Counters) -> Counters:
        """With the names of the selection's rules beside those of the operator."""
        names = tuple(SELECTION_RULES.values())
        more = Counters((*found.rejected, *names), (*found.accepted, *names))
        more.candidates, more.rejected = found.candidates, {**more.rejected, **found.rejected}
        return more


def on_side(side: int, column: str) -> str:
    """How conditions on several sides name a column."""
    return f"{side}:{column}"


class Match(Protocol):
    """How the pairs of a cell are decided."""

    def __call__(self, left: Rows, right: Rows) -> Matches:
        """The kept pairs, each of which belongs to this cell."""


@dataclass(frozen=True)
class MatchDifferences:
    """By a set of differences: see ``match_overlapping``; ``PagedJoin`` and ``match_moments`` for their strategies."""

    region: Region
    threshold: Threshold
    exact: bool
    strategy: str = "auto"

    def __call__(self, left: Rows, right: Rows) -> Matches:
        """The kept pairs whose later beginning is in this cell."""
        assert isinstance(left.model, OneDimensional)
        assert isinstance(right.model, OneDimensional)
        from_position = min(
            np.minimum(side.start, side.end).min(initial=np.inf, where=side.native)
            if side.native is not None
            else -np.inf
            for side in (left, right)
        )
        owned = partial(_of_this_cell, left, right, from_position)
        if self.strategy == "moments":
            return match_moments(
                [left.model], [right.model], [self.region], self.threshold, self.exact, admits=owned
            )  # fmt: skip
        if self.strategy in OF_STRATEGY:
            join = PagedJoin(right.model, self.region, self.threshold, self.exact, OF_STRATEGY[self.strategy])
            return join.match(left.model, owned=owned)
        intervals = [Intervals(side.start, side.end, np.zeros(len(side.start), bool)) for side in (left, right)]
        return match_overlapping(
            left.model, right.model, intervals[0], intervals[1], self.region, self.threshold, self.exact,
            from_position=from_position, left_groups=left.groups, right_groups=right.groups,
        )  # fmt: skip


def _of_this_cell(left: Rows, right: Rows, from_position: float, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Which pairs are this cell's, by the rules of the sweep: their intervals overlap, and the later begins here."""
    meet = (left.start[i] <= right.end[j]) & (right.start[j] <= left.end[i])
    begins = np.maximum(np.minimum(left.start, left.end)[i], np.minimum(right.start, right.end)[j])
    meet &= begins >= from_position
    if left.groups is not None and right.groups is not None:
        meet &= left.groups[i] == right.groups[j]
    return meet


@dataclass(frozen=True)
class CellJoin:
    """The join of all cells of a partition, as a function for ``mapInArrow``."""

    left: SideColumns
    right: SideColumns
    schema: pa.Schema
    keys: tuple[str, ...]
    match: Match
    counters: int
    """How many there are."""
    together: Together | PairQuestion | None = None
    window: float | None = None
    """How far apart times may be, where rows have certain ones. Pairs that are not are left out by the plan at the end;
    here only most of them are."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pairs of every cell, each cell's counters before them."""
        for cell in cells_of(batches):
            # sorted by side within the cell
            lefts = int(np.count_nonzero(cell[SIDE].to_numpy() == LEFT))
            if 0 < lefts < cell.num_rows:
                yield from self.decided(opened(cell[PARCEL][:lefts]), opened(cell[PARCEL][lefts:]))

    def decided(self, left: pa.Table, right: pa.Table, more: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
        """Kept pairs of two tables, their counters before them, and behind these what else was counted."""
        yield from self._decide(left, right, more).to_batches(max_chunksize=_PAIRS_PER_BATCH)

    def nothing(self, more: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """What was counted where there are no rows of one side."""
        if self._counts:
            counts = [*[0] * self.counters, *more]
            columns = [pa.array([counts if field.name == COUNTERS else None], field.type) for field in self.schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @property
    def _counts(self) -> bool:
        """Whether anybody asks for counters."""
        return COUNTERS in self.schema.names

    def _decide(self, left_rows: pa.Table, right_rows: pa.Table, more: Sequence[int]) -> pa.Table:
        groups = _shared_codes([(left_rows[key], right_rows[key]) for key in self.keys]) if self.keys else (None, None)
        sides = [
            Rows(
                view_column(rows[columns.value]),
                _numbers(rows, START),
                _numbers(rows, END),
                rows[NATIVE].to_numpy(zero_copy_only=False) if NATIVE in rows.column_names else None,
                group,
                rows[TIME].to_numpy() if TIME in rows.column_names else None,
            )
            for rows, columns, group in zip((left_rows, right_rows), (self.left, self.right), groups, strict=True)
        ]
        begun = time.perf_counter()
        if self.window is None:
            found = self.match(sides[0], sides[1])
        else:
            away = [_elsewhere(rows) for rows in (left_rows, right_rows)]
            left, right, mine, theirs = in_slots(sides[0], sides[1], self.window, away[0], away[1])
            if not len(mine):
                return pa.Table.from_batches(list(self.nothing(more)), self.schema)
            found = self.match(left, right)
            found = replace(found, left=mine[found.left], right=theirs[found.right])
        if self.together is not None:
            found = self._kept(left_rows, right_rows, found, self.together)
        matched = time.perf_counter()
        taken = [
            *self.left.taken(left_rows, found.left),
            *self.right.taken(right_rows, found.right),
        ]
        if not self._counts:
            return pa.table([*taken, pa.array(found.probability)], names=self.schema.names)
        seconds = {**found.seconds, "assemble": time.perf_counter() - matched}
        seconds["prepare"] += matched - begun - sum(found.seconds.values())
        counts = [*found.counters.flat().values(), *(int(1e9 * seconds[stage]) for stage in _STAGES)]
        counts += more
        counters = pa.list_(pa.int64())
        names = self.schema.names
        pairs = pa.table([*taken, pa.array(found.probability), pa.nulls(len(found.left), counters)], names=names)
        first = [
            *(pa.nulls(1, column.type) for column in taken),
            pa.nulls(1, pa.float64()),
            pa.array([counts], counters),
        ]
        # the counters come first: an action that stops early, as show() does, then still counts the cells it has seen
        return pa.concat_tables([pa.table(first, names=names), pairs])

    @staticmethod
    def _kept(left: pa.Table, right: pa.Table, found: Matches, together: Together | PairQuestion) -> Matches:
        """The pairs that are left when all conditions are asked, some at a time: they may be many."""
        begun = time.perf_counter()
        counters = together.counters(found.counters) if isinstance(together, PairQuestion) else found.counters
        parts = []
        for begin in range(0, max(1, len(found.left)), _PAIRS_AT_ONCE):
            block = slice(begin, begin + _PAIRS_AT_ONCE)
            rows = [
                table.select(together.columns(side)).take(pa.array(chosen[block]))
                for side, (table, chosen) in enumerate(((left, found.left), (right, found.right)))
            ]
            kept, probability, codes = together.keep(rows, found.probability[block])
            if codes is not None:
                add_codes(counters, codes)
            parts.append((begin + kept, probability))
        kept, probability = (np.concatenate(part) for part in zip(*parts, strict=True))
        seconds = {**found.seconds, "decide": found.seconds["decide"] + time.perf_counter() - begun}
        return replace(found.take(kept), probability=probability, counters=counters, seconds=seconds)


def in_slots(
    left: Rows, right: Rows, window: float, left_away: np.ndarray, right_away: np.ndarray
) -> tuple[Rows, Rows, np.ndarray, np.ndarray]:
    """Rows in groups by their times as well: slots a little longer than the window, so that partners are neighbours.

    Left rows are there once for each of the three slots where right ones may be their partners, so that a pair meets
    once, in the slot of its right row; who has nobody to meet is left out. Rows whose time begins in another cell are
    *away*: two of these meet there, and not here. The arrays tell which row is which.
    """
    assert left.times is not None
    assert right.times is not None
    farthest = max(float(np.abs(side.times).max(initial=0.0)) for side in (left, right))  # type: ignore[arg-type]
    # so long that rounding of the quotients is far less than what a slot is longer than the window
    length = max(1.001 * window, 2.0**-40 * farthest) or 1.0
    mine, theirs = (np.floor(times / length) for times in (left.times, right.times))
    apart = max(mine.max(), theirs.max()) - min(mine.min(), theirs.min())
    if apart <= 1.0 and not (left_away.any() and right_away.any()):  # all are neighbours
        return left, right, np.arange(len(mine)), np.arange(len(theirs))
    # two numbers for each slot: the second one is for right rows that are away, which some left rows do not meet
    slots, code = np.unique(2.0 * theirs + right_away, return_inverse=True)
    wanted = 2.0 * mine[:, None] + np.array([-2.0, 0.0, 2.0])
    if right_away.any():
        wanted = np.concatenate([wanted, np.where(left_away[:, None], np.nan, wanted + 1.0)], axis=1)
    at = np.minimum(np.searchsorted(slots, wanted.ravel()), len(slots) - 1)
    met = np.flatnonzero(slots[at] == wanted.ravel())
    at, chosen = at[met], (met // wanted.shape[1], np.flatnonzero(np.bincount(at[met], minlength=len(slots))[code]))
    sides = [side.take(rows) for side, rows in zip((left, right), chosen, strict=True)]
    for k, slot in enumerate((at, code[chosen[1]])):
        groups = sides[k].groups
        sides[k] = replace(sides[k], groups=slot if groups is None else groups * len(slots) + slot)
    return sides[0], sides[1], *chosen


def _elsewhere(rows: pa.Table) -> np.ndarray:
    """Which rows' times begin in another cell; none if rows are not in cells by their times."""
    if NATIVE_IN_TIME not in rows.column_names:
        return np.zeros(rows.num_rows, dtype=bool)
    return ~rows[NATIVE_IN_TIME].to_numpy(zero_copy_only=False)


def _numbers(rows: pa.Table, name: str) -> np.ndarray:
    """A column of numbers, or none at all."""
    return rows[name].to_numpy() if name in rows.column_names else np.empty(0)


def opened(parcels: pa.ChunkedArray) -> pa.Table:
    """All rows of some parcels, in one piece."""
    return pa.concat_tables([from_bytes(parcel.as_buffer()) for parcel in parcels]).combine_chunks()


def cells_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The parcels of one cell after the other; only one cell is held at a time. Rows of no cell are left out."""
    held: list[pa.RecordBatch] = []
    current: int | None = None
    for batch in batches:
        if batch.column(CELL).null_count:
            batch = batch.filter(batch.column(CELL).is_valid())
        if not batch.num_rows:
            continue
        cells = batch.column(CELL).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(cells)]
        for begin, end in itertools.pairwise(cuts):
            if held and cells[begin] != current:
                yield pa.Table.from_batches(held)
                held = []
            current = cells[begin]
            held.append(batch.slice(begin, end - begin))
    if held:
        yield pa.Table.from_batches(held)


def _shared_codes(keys: list[tuple[pa.ChunkedArray, pa.ChunkedArray]]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that are equal for rows of either side whose keys are all equal."""
    codes: np.ndarray | None = None
    for left, right in keys:
        both = pa.chunked_array([*left.chunks, *right.chunks], left.type).combine_chunks()
        index = pc.dictionary_encode(both).indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = index if codes is None else np.unique(codes * (int(index.max()) + 1) + index, return_inverse=True)[1]
    assert codes is not None
    return codes[: len(keys[0][0])], codes[len(keys[0][0]) :]
