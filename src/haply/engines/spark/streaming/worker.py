"""One cell of a stream join: joins parcels (see ``parcels``) with the rows in its state.

The state is kept as pieces of Arrow bytes, of rows of one batch that are about as old (see ``CellState``), so that a
batch writes only new rows, and whole old pieces are removed. A worker that served a cell before still has its state in
memory; a stamp shows whether that is the committed state.

Where rows without a pair matter, or the best pairs of a row, a cell also reports each row that begins in it, when no
further pair can come (see ``CellState.close``). ``settling`` then decides about the row, since other cells may have
found pairs of it.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from haply.engines.spark.exchange.parcels import PARCEL, from_bytes, to_bytes
from haply.engines.spark.exchange.stack import SIDE
from haply.engines.spark.exchange.worker import counter_row
from haply.engines.spark.streaming.parcels import BEGINS, CONTROL, GROUP, REACH, ROW, Clock
from haply.errors import HaplyError
from haply.joins.cells.asked import Together
from haply.joins.cells.rows import BEGINS_HERE, TIME
from haply.joins.operators.operator import SIDES, JoinOperator, PairBatch, RowBatch
from haply.joins.operators.state import from_state, to_state
from haply.models.columns import view_column
from haply.pruning.ownership import Places, owned

STAGES = ("decide", "state", "transfer")
"""The stages of a cell that are timed: joining, reading and writing its state, packing and unpacking."""

KIND = "__haply_kind"
"""The kind of a returned row: null for a pair, else the number of the side of the row."""

_OLDEST = 64
_MARGIN = 4
"""Milliseconds that a clock may be behind (see ``Clock``)."""
_CELL, _IDENTITY = "cell of a stream", "join of streams"
_MEMORY_LIMIT = 1 << 30


Taken = Callable[[int, np.ndarray, Sequence[str]], list[pa.ChunkedArray]]
"""Returns columns of the rows of a side with these ids."""


@dataclass(frozen=True)
class CellResult:
    """Makes the result rows of the pairs, or combinations, that were found in a cell."""

    together: Together | None
    """Further conditions, whose probabilities are multiplied."""
    payloads: tuple[tuple[str, ...], ...]
    """The columns of each side that go into the result."""
    output: pa.Schema
    rows: Mapping[int, str] = field(default_factory=dict)
    """The names of row ids in the result, by side, if final rows are reported."""

    def pairs(self, found: PairBatch, taken: Taken) -> list[pa.Table]:
        """Return those that this cell owns and that are likely enough, with the columns of their rows."""
        rows, probability = found.rows, found.probability
        if not len(probability):
            return []
        mine = owned([Places(*_numpy(taken(side, ids, (BEGINS, BEGINS_HERE)))) for side, ids in enumerate(rows)])
        if not mine.all():
            rows, probability = tuple(ids[mine] for ids in rows), probability[mine]
        if self.together is not None and len(probability):
            asked = []
            for side, ids in enumerate(rows):
                names = self.together.columns(side)
                asked.append(pa.table(taken(side, ids, names) if names else [], names=names))
            kept, probability, _ = self.together.keep(asked, probability)
            rows = tuple(ids[kept] for ids in rows)
        if not len(probability):
            return []
        columns = [column for side, ids in enumerate(rows) for column in taken(side, ids, self.payloads[side])]
        shown = [name for payload in self.payloads for name in payload]
        for side, name in self.rows.items():
            columns += taken(side, rows[side], (ROW,))
            shown.append(name)
        if GROUP in self.output.names:
            columns += taken(0, rows[0], (GROUP,))
            shown.append(GROUP)
        return [pa.table([*columns, pa.array(probability)], names=[*shown, "probability"])]

    def told(self, side: int, rows: pa.Table) -> pa.Table:
        """Return rows of a side as they go out."""
        names = {name: name for name in (*self.payloads[side], GROUP)} | {self.rows[side]: ROW}
        table = pa.table([rows[name] for name in names.values()], names=list(names))
        return table.append_column(KIND, pa.array(np.full(rows.num_rows, side, np.int8)))

    def table(self, pairs: Sequence[pa.Table], counted: Sequence[int]) -> pa.Table:
        """Return the output: a row of counters, and the pairs and rows; nulls where these have no such column."""
        tables = [counter_row(self.output, counted)]
        for table in pairs:
            columns = [
                table[one.name] if one.name in table.column_names else pa.nulls(table.num_rows, one.type)
                for one in self.output
            ]
            tables.append(pa.table(columns, names=self.output.names).cast(self.output))
        return pa.concat_tables(tables)


def _numpy(columns: Sequence[pa.ChunkedArray]) -> list[np.ndarray]:
    return [column.to_numpy() for column in columns]


def row_batch(table: pa.Table, value: str, ids: np.ndarray) -> RowBatch[Any]:
    """Return the rows of a parcel as an operator takes them."""
    columns = _numpy([table[name] for name in (TIME, GROUP, BEGINS, BEGINS_HERE)])
    return RowBatch(ids, view_column(table[value]), *columns)


@dataclass(frozen=True)
class CellQuery:
    """The description of the join for a cell."""

    make: Callable[[], JoinOperator]
    values: tuple[str, ...]
    """The columns of each side that the operator compares."""
    result: CellResult
    window: float
    clock: Clock
    name: str
    identity: tuple[tuple[str, Any], ...] = ()
    """What must be the same after a restart, as text: the rows in the state depend on it."""
    ends: Mapping[int, str] = field(default_factory=dict)
    """By side, where final rows are reported: the column with the times at which they end."""

    @property
    def sides(self) -> int:
        """Return how many streams are joined."""
        return len(self.values)


@dataclass
class Piece:
    """Rows of one side and batch that are about as old."""

    number: int
    side: int
    newest: float
    table: pa.Table
    ends_in: str = TIME

    @cached_property
    def ends(self) -> np.ndarray:
        """Return the times at which its rows end."""
        return np.asarray(self.table[self.ends_in])

    @cached_property
    def first_end(self) -> float:
        """Return the first of these."""
        return float(self.ends.min(initial=np.inf))

    @cached_property
    def last_end(self) -> float:
        """Return the last of these."""
        return float(self.ends.max(initial=-np.inf))

    @cached_property
    def counted(self) -> int:
        """Return how many of its rows begin in this cell: those are counted here and nowhere else."""
        return int(pc.sum(self.table[BEGINS_HERE]).as_py())

    @cached_property
    def nbytes(self) -> int:
        """Return the memory of its rows."""
        return int(self.table.nbytes)


@dataclass
class CellState:
    """The state of a cell: pieces, and the operator that holds their rows under ``number << 32 | row``."""

    query: CellQuery
    operator: JoinOperator
    pieces: dict[int, Piece] = field(default_factory=dict)
    following: int = 0
    closed: list[float] = field(default_factory=list)
    """By side, the time before which rows that end are final: they have no further pairs."""
    late: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.late = [0] * self.query.sides
        self.closed = self.closed or [-np.inf] * self.query.sides

    def add(self, side: int, table: pa.Table) -> tuple[list[Piece], list[pa.Table]]:
        """Add new rows; returns their pieces, and the pairs that they complete."""
        pieces = [self._piece(side, part) for part in self._by_age(table)]
        result = self.query.result
        return pieces, [pairs for piece in pieces for pairs in result.pairs(self._found(piece), self._taken)]

    def restore(self, piece: Piece) -> None:
        """Take back a piece from the state: its pairs are known already."""
        self.pieces[piece.number] = piece
        self._push(piece, match=False)

    def piece(self, number: int, side: int, newest: float, table: pa.Table) -> Piece:
        """Make a piece, without adding it to the state."""
        return Piece(number, side, newest, table, self.query.ends.get(side, TIME))

    def _piece(self, side: int, table: pa.Table) -> Piece:
        piece = self.piece(self.following, side, float(pc.max(table[TIME]).as_py()), table)
        self.following += 1
        self.pieces[piece.number] = piece
        return piece

    def _by_age(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield rows that are about as old: the newest up to the window, each older part spans twice as much time.

        A piece is forgotten as a whole. Rows that are much older than the newest are mostly forgotten together.
        """
        if not table.num_rows:
            return
        times = table[TIME].to_numpy()
        age = times.max() - times
        length = max(self.query.window, float(age.max()) / _OLDEST)
        if length <= 0.0:
            yield table
            return
        part = -np.ceil(np.log2(np.maximum(age / length, 1.0)))
        order = np.argsort(part, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
            yield table.take(pa.array(rows))

    def _found(self, piece: Piece) -> PairBatch:
        """Return the pairs that new rows complete, without those of final rows.

        Only an uncertain time that reaches further back than any before it can meet such a row: it has come too late.
        """
        found = self._push(piece)
        for side, ends_in in self.query.ends.items():
            if ends_in == TIME or not len(found):
                continue  # certain times are asked for at the end of the plan
            (ends,) = _numpy(self._taken(side, found.rows[side], (ends_in,)))
            still = ends >= self.closed[side]
            if not still.all():
                self.late[piece.side] += len(np.unique(found.rows[piece.side][~still]))
                found = PairBatch(tuple(ids[still] for ids in found.rows), found.probability[still])
        return found

    def _push(self, piece: Piece, match: bool = True) -> PairBatch:
        ids = (piece.number << 32) | np.arange(piece.table.num_rows, dtype=np.int64)
        rows = row_batch(piece.table, self.query.values[piece.side], ids)
        return self.operator.arrive(piece.side, rows, match=match)

    def _taken(self, side: int, ids: np.ndarray, names: Sequence[str]) -> list[pa.ChunkedArray]:
        numbers, which = np.unique(ids >> 32, return_inverse=True)
        tables = []
        for number in numbers:
            tables.append(self.pieces[int(number)].table.select(list(dict.fromkeys(names))))
        offsets = np.cumsum([0, *(table.num_rows for table in tables[:-1])])
        chosen = pa.array(offsets[which] + (ids & 0xFFFFFFFF))
        together = pa.concat_tables(tables).combine_chunks()
        return [together[name].take(chosen) for name in names]

    def close(self, watermark: float) -> list[pa.Table]:
        """Report rows for which no pair can come after the watermark: each once, in the cell in which it begins.

        Must be called before rows of a batch arrive, and before the horizon widens: then all cells agree on which rows
        have no further pairs, also those that other cells have copies of.
        """
        told = []
        for side in self.query.ends:
            before, until = self.closed[side], self.operator.final_before(side, watermark)
            if until <= before:
                continue
            self.closed[side] = until
            for piece in self.pieces.values():
                if piece.side == side and piece.first_end < until and piece.last_end >= before:
                    ended = (piece.ends >= before) & (piece.ends < until)
                    rows = piece.table.filter(pc.and_(pa.array(ended), piece.table[BEGINS_HERE].combine_chunks()))
                    if rows.num_rows:
                        told.append(self.query.result.told(side, rows))
        return told

    def next_final(self) -> float:
        """Return the watermark from which on the next row is final; infinity if there is none."""
        moments = [np.inf]
        for side in self.query.ends:
            back = -self.operator.final_before(side, 0.0)
            closed = self.closed[side]
            for piece in self.pieces.values():
                if piece.side == side and piece.last_end >= closed:
                    still = piece.first_end if piece.first_end >= closed else piece.ends[piece.ends >= closed].min()
                    moments.append(float(still) + back)
        return min(moments)

    def advance(self, watermark: float) -> list[int]:
        """Forget rows that no row after the watermark can meet; returns the numbers of removed pieces."""
        needed = [self.operator.needed_from(side, watermark) for side in range(self.query.sides)]
        self.operator.advance(watermark)  # inner joins return pairs as their last rows arrive: nothing is left for here
        gone = [
            number
            for number, piece in self.pieces.items()
            if piece.newest < needed[piece.side]
            and (piece.side not in self.query.ends or piece.last_end < self.closed[piece.side])
        ]
        for number in gone:
            del self.pieces[number]
        return gone

    @property
    def counts(self) -> list[int]:
        """Return what was counted: by the operator, and of each side rows that were late or may have lost pairs."""
        cut_short = self.operator.cut_short or (0,) * len(self.late)
        lost = [late + cut for late, cut in zip(self.late, cut_short, strict=True)]
        return [*self.operator.funnel.flat().values(), *lost]

    @property
    def stored(self) -> list[int]:
        """Return how many rows of each side there are, each in one cell only."""
        stored = [0] * self.query.sides
        for piece in self.pieces.values():
            stored[piece.side] += piece.counted
        return stored

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes in this process."""
        return sum(piece.nbytes for piece in self.pieces.values()) + self.operator.stored_bytes


_cached_states: OrderedDict[tuple[str, int], tuple[bytes, CellState]] = OrderedDict()
"""States of cells that this worker has served, by query and cell, each with its stamp."""


class Loaded(NamedTuple):
    """A state as Spark stores it: its stamp (None if there is no state), the timer that is set, the horizon of the
    operator, and how many rows of each side this run of the query has reported as stored.
    """

    state: CellState
    stamp: bytes | None = None
    timer: int | None = None
    horizon: tuple[float, ...] = ()
    reported: tuple[int, ...] | None = None


class Cell:
    """One cell of a stream join, with the state that Spark keeps for it (see ``CellProcessor``)."""

    def __init__(self, query: CellQuery, handle: Any, index: Any, pieces: Any) -> None:
        self.query, self.handle, self.index, self.pieces = query, handle, index, pieces

    def take(self, key: Any, rows: Iterator[Any], timer_values: Any) -> Iterator[Any]:
        """Join the parcels of one batch with the rows in the state."""
        if int(key[0]) == CONTROL:
            self._check_identity()
            return
        watermark = timer_values.getCurrentWatermarkInMs()
        now = self.query.clock.time(watermark)
        begun = time.perf_counter_ns()
        loaded = self._load(int(key[0]))
        state = loaded.state
        read_from = time.perf_counter_ns()
        before = state.counts
        told = state.close(now)
        parcels: list[list[pa.Table]] = [[] for _ in range(self.query.sides)]
        reaches = [0.0] * self.query.sides
        for frame in rows:
            for side, parcel, reach in zip(frame[SIDE], frame[PARCEL], frame[REACH], strict=True):
                if side < 0:
                    told += self._alone(state, ~int(side), from_bytes(parcel), now)
                    continue
                reaches[int(side)] = max(reaches[int(side)], reach)  # NaN, which means none, is not larger
                if parcel is not None:
                    parcels[int(side)].append(from_bytes(parcel))
        state.operator.widen(reaches)
        read = time.perf_counter_ns()
        pairs, new = [], []
        for side in range(len(parcels)):
            if not parcels[side]:
                continue
            table = pa.concat_tables(parcels[side]).combine_chunks()
            late = table[TIME].to_numpy() < now
            if late.any():
                state.late[side] += int(table[BEGINS_HERE].to_numpy()[late].sum())  # only once, in one of the cells
                table = table.filter(pa.array(~late))
            pieces, found = state.add(side, table)
            new += pieces
            pairs += found
        decided = time.perf_counter_ns()
        counted = [after - past for after, past in zip(state.counts, before, strict=True)]
        counted += self._save(int(key[0]), loaded, new, watermark, bool(told))
        if any(counted) or pairs or told:
            counted += [decided - read, read_from - begun + time.perf_counter_ns() - decided, read - read_from]
            yield self._parcel([*pairs, *told], counted)

    def _alone(self, state: CellState, side: int, rows: pa.Table, now: float) -> list[pa.Table]:
        """Report rows that take no part, unless they are late. Rows without a time are never late."""
        times = np.asarray(rows[TIME].fill_null(np.nan))
        late = np.isfinite(times) & (times < now)
        state.late[side] += int(late.sum())
        return [self.query.result.told(side, rows.filter(pa.array(~late)))]

    def tick(self, key: Any, timer_values: Any) -> Iterator[Any]:
        """Forget rows that are too old in a cell that gets no rows, and report rows that have no further pairs."""
        watermark = timer_values.getCurrentWatermarkInMs()
        loaded = self._load(int(key[0]))
        if loaded.timer is not None and loaded.timer <= watermark:  # else it is an older one, and another is set
            loaded = loaded._replace(timer=None)
        told = loaded.state.close(self.query.clock.time(watermark))
        changed = self._save(int(key[0]), loaded, [], watermark, bool(told))
        counted = [0] * len(loaded.state.counts) + changed + [0] * len(STAGES)
        return iter([self._parcel(told, counted)] if any(counted) or told else [])

    def _check_identity(self) -> None:
        if not self.index.exists():
            self.index.update((to_state(_IDENTITY, self.query.identity),))
            return
        before, now = dict(from_state(_IDENTITY, bytes(self.index.get()[0]))), dict(self.query.identity)
        changed = [name for name in now if before.get(name) != now[name]]
        if changed:
            raise HaplyError(
                "The checkpoint was written by another join",
                expected=", ".join(f"{name} = {before.get(name)}" for name in changed),
                found=", ".join(f"{name} = {now[name]}" for name in changed),
                hint="set it back, or start with a new checkpoint",
            )

    def _load(self, cell: int) -> Loaded:
        if not self.index.exists():
            return Loaded(CellState(self.query, self.query.make()))
        stamp, timer, following, entries, horizon, run, *closed = from_state(_CELL, bytes(self.index.get()[0]))
        # taken out, and put back by `_save`: a batch that fails leaves no partial state
        known = _cached_states.pop((self.query.name, cell), None)
        if known is not None and known[0] == stamp:
            state = known[1]
        else:
            state = CellState(self.query, self.query.make(), following=following, closed=list(closed))
            for number, side, newest in entries:
                table = from_bytes(bytes(self.pieces.getValue((number,))[0]))
                state.restore(state.piece(number, side, newest, table))
            state.operator.widen(horizon)
        # counters start at zero with the query, the state does not
        return Loaded(state, stamp, timer, horizon, tuple(state.stored) if run == self.query.name else None)

    def _save(self, cell: int, loaded: Loaded, new: list[Piece], watermark: int, told: bool) -> list[int]:
        """Forget rows that are too old and write the changes; returns how many more rows of each side are stored.

        A cell without new rows still gets the horizon of others in every batch: then there may be nothing to write.
        """
        state, clock = loaded.state, self.query.clock
        gone = state.advance(clock.time(watermark))
        for number in gone:
            if not any(piece.number == number for piece in new):
                self.pieces.removeKey((number,))
        for piece in new:
            if piece.number in state.pieces:
                self.pieces.updateValue((piece.number,), (to_bytes(piece.table),))
        horizon, stored = state.operator.horizon, state.stored
        more = [now - before for now, before in zip(stored, loaded.reported or [0] * len(stored), strict=True)]
        if not state.pieces and not horizon:
            if loaded.stamp is not None:
                self.index.clear()
            return more
        timer = loaded.timer
        if state.pieces:
            wanted = self._next_look(state, watermark, timer)
            if wanted != timer:
                timer = wanted
                self.handle.registerTimer(timer)
        stamp = loaded.stamp
        changed = (timer, horizon) != (loaded.timer, loaded.horizon)
        if stamp is None or new or gone or loaded.reported is None or changed or told:
            stamp = os.urandom(16)
            entries = [(piece.number, piece.side, piece.newest) for piece in state.pieces.values()]
            closed = state.closed if self.query.ends else []
            written = to_state(_CELL, (stamp, timer, state.following, entries, horizon, self.query.name, *closed))
            self.index.update((written,))
        _cached_states[(self.query.name, cell)] = (stamp, state)
        held = sum(state.nbytes for _, state in _cached_states.values())
        while held > _MEMORY_LIMIT and len(_cached_states) > 1:
            held -= _cached_states.popitem(last=False)[1][1].nbytes
        return more

    def _next_look(self, state: CellState, watermark: int, timer: int | None) -> int:
        """Return when to look at the cell again if no rows come; ``timer`` is what has been set already, if anything.

        Never at the same moment: Spark deletes the timer of that moment when it has been handled.
        """
        clock = self.query.clock

        def shown(time: float) -> int:
            return int(clock.seconds(np.array([time]))[0] * 1000.0)

        if timer is None:
            last = max(piece.newest for piece in state.pieces.values()) + self.query.window
            # Uncertain times are kept for longer: look again after another window.
            timer = max(shown(last) + 10, watermark + clock.delay(self.query.window))
        final = state.next_final()
        return timer if np.isinf(final) else min(timer, max(shown(final) + _MARGIN, watermark + 1))

    def _parcel(self, pairs: list[pa.Table], counted: list[int]) -> pd.DataFrame:
        return pd.DataFrame({PARCEL: [to_bytes(self.query.result.table(pairs, counted))]})


def stream_counter_names(operator: JoinOperator, sides: Sequence[Any] = SIDES) -> list[str]:
    """Name the counters of a cell in a batch; stored rows are counted as changes: their sum is the current number."""
    of_sides = [f"{what}_{side}" for what in ("late", "stored") for side in sides]
    return [*operator.funnel.flat(), *of_sides, *(f"nanoseconds:{stage}" for stage in STAGES)]
