"""One cell of a stream join: joins parcels (see ``parcels``) with what it remembers.

What a cell remembers is kept as pieces of Arrow bytes, one per batch and *pane* (a stretch of time as long as the
window), so that a batch writes only what is new and old panes are removed whole. A worker that served a cell before
still has it in memory; a stamp in the state says whether that memory is the one that was committed.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from haply.errors import HaplyError
from haply.joins.similarity import SIDES, SimilarityJoin
from haply.joins.timing import TimingJoin
from haply.models import Certain, OneDimensional
from haply.models.columns import view_column
from haply.probability.region import Distance
from haply.pruning.cascade import Counters
from haply.pruning.clouds import RULES, Places
from haply.pruning.threshold import Threshold
from haply.spark.distance import dimensions
from haply.spark.parcels import CONTROL, GROUP, HOME, ORDER, PARCEL, SIDE, Clock, from_bytes, to_bytes
from haply.spark.partition import TIME
from haply.spark.worker import Further

STAGES = ("decide", "state", "transfer")
"""Where a cell spends its time: with the pairs, reading and writing what it remembers, packing and unpacking."""

_MOST_PANES = 64
_MEMORY_LIMIT = 1 << 30


Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Ids of the left and right rows, and probabilities."""


class Operator(Protocol):
    """What joins the rows of a cell: an operator of ``haply.joins`` that reads Arrow tables.

    Rows have the columns of their side, ``TIME``, ``GROUP``, ``ORDER`` and ``HOME``.
    """

    def arrive(self, side: int, ids: np.ndarray, rows: pa.Table, match: bool) -> Pairs | None:
        """Store rows under ids; if ``match``, the pairs that they complete."""

    def expire(self, time: float) -> tuple[float, float]:
        """Rows before ``time`` will not come: up to which times rows of the left and the right are now forgotten."""

    def learnt(self) -> Any:
        """What it must know after a restart besides the rows it holds."""

    def recall(self, learnt: Any) -> None:
        """Take back what was learnt."""

    @property
    def counts(self) -> dict[str, int]:
        """What it has counted, by flat names that are always the same."""

    @property
    def cut_short(self) -> tuple[int, int]:
        """Rows of each side that may have lost pairs with rows already forgotten."""

    @property
    def nbytes(self) -> int:
        """Roughly the memory that it takes."""


@dataclass(frozen=True)
class Query:
    """All that a cell needs to know of the join."""

    make: Callable[[], Operator]
    further: tuple[Further, ...]
    threshold: Threshold
    window: float
    clock: Clock
    payloads: tuple[tuple[str, ...], tuple[str, ...]]
    output: pa.Schema
    name: str
    identity: tuple[tuple[str, Any], ...] = ()
    """What must be the same after a restart, in words: rows that are remembered lie where it has put them."""


@dataclass
class Piece:
    """Remembered rows of one side, of one batch and pane."""

    number: int
    side: int
    newest: float
    table: pa.Table | None = None


@dataclass
class Memory:
    """What a cell remembers: pieces, and the operator that holds their rows under ``number << 32 | row``."""

    query: Query
    operator: Operator
    pieces: dict[int, Piece] = field(default_factory=dict)
    following: int = 0
    late: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, side: int, table: pa.Table) -> tuple[list[Piece], list[pa.Table]]:
        """Push new rows: the pieces to be remembered of them, and the pairs they complete."""
        pieces = [self._piece(side, part) for part in self._panes(table)]
        return pieces, [pairs for piece in pieces if (pairs := self._push(piece)) is not None]

    def recall(self, piece: Piece) -> None:
        """Take back a piece from the state: its pairs are known already."""
        self.pieces[piece.number] = piece
        self._push(piece, match=False)

    def _piece(self, side: int, table: pa.Table) -> Piece:
        piece = Piece(self.following, side, float(pc.max(table[TIME]).as_py()), table)
        self.following += 1
        self.pieces[piece.number] = piece
        return piece

    def _panes(self, table: pa.Table) -> Iterator[pa.Table]:
        """Rows by stretches of time as long as the window, so that each can be forgotten by itself."""
        if not table.num_rows:
            return
        times = table[TIME].to_numpy()
        span = float(times.max() - times.min())
        length = max(self.query.window, span / _MOST_PANES)
        if length <= 0.0 or span == 0.0:
            yield table
            return
        pane = np.floor((times - times.min()) / length)
        order = np.argsort(pane, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(pane[order])) + 1):
            yield table.take(pa.array(rows))

    def _push(self, piece: Piece, match: bool = True) -> pa.Table | None:
        assert piece.table is not None
        ids = (piece.number << 32) | np.arange(piece.table.num_rows, dtype=np.int64)
        found = self.operator.arrive(piece.side, ids, piece.table, match)
        if found is None or not len(found[0]):
            return None
        left, right, probability = found
        if self.query.further:
            names = [tuple(getattr(one, side) for one in self.query.further) for side in SIDES]
            rows = [pa.table(self.taken(k, ids, names[k]), names=names[k]) for k, ids in enumerate((left, right))]
            for further in self.query.further:
                probability = probability * further.row_by_row(rows[0], rows[1])
            kept = self.query.threshold.keep(probability, counts=False)
            if not kept.any():
                return None
            left, right, probability = left[kept], right[kept], probability[kept]
        payloads = self.query.payloads
        columns = [*self.taken(0, left, payloads[0]), *self.taken(1, right, payloads[1]), pa.array(probability)]
        return pa.table(columns, names=[*payloads[0], *payloads[1], "probability"])

    def taken(self, side: int, ids: np.ndarray, names: tuple[str, ...]) -> list[pa.ChunkedArray]:
        """Columns of the rows with these ids."""
        numbers, which = np.unique(ids >> 32, return_inverse=True)
        tables = []
        for number in numbers:
            table = self.pieces[int(number)].table
            assert table is not None
            tables.append(table.select(dict.fromkeys(names)))
        offsets = np.cumsum([0, *(table.num_rows for table in tables[:-1])])
        chosen = pa.array(offsets[which] + (ids & 0xFFFFFFFF))
        together = pa.concat_tables(tables).combine_chunks()
        return [together[name].take(chosen) for name in names]

    def expire(self, time: float) -> list[int]:
        """Forget what no row from ``time`` on can meet; returns the numbers of pieces that are gone."""
        forgotten = self.operator.expire(time)
        gone = [number for number, piece in self.pieces.items() if piece.newest < forgotten[piece.side]]
        for number in gone:
            del self.pieces[number]
        return gone

    @property
    def nbytes(self) -> int:
        """Roughly what it takes in this process."""
        tables = sum(piece.table.nbytes for piece in self.pieces.values() if piece.table is not None)
        return tables + self.operator.nbytes


_remembered: OrderedDict[tuple[str, int], tuple[bytes, Memory]] = OrderedDict()
"""Memories of cells that this worker has served, by query and cell, each with its stamp."""


class CellProcessor(StatefulProcessor):
    """One cell of a stream join, as Spark's stateful function."""

    def __init__(self, query: Query) -> None:
        self.query = query

    def init(self, handle: Any) -> None:
        """Declare the state: an index of the pieces with a stamp, and the pieces."""
        self.handle = handle
        self.index = handle.getValueState("index", "data binary")
        self.pieces = handle.getMapState("pieces", "number bigint", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802
        """Join the parcels of one batch with what is remembered."""
        if int(key[0]) == CONTROL:
            self._check_identity()
            return
        now = self.query.clock.time(timerValues.getCurrentWatermarkInMs())
        begun = time.perf_counter_ns()
        memory, timer = self._load(int(key[0]))
        loaded = time.perf_counter_ns()
        before = _counts(memory)
        parcels: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for frame in rows:
            for side, parcel in zip(frame[SIDE], frame[PARCEL], strict=True):
                parcels[int(side)].append(from_bytes(parcel))
        read = time.perf_counter_ns()
        pairs, new = [], []
        for side in (0, 1):
            if not parcels[side]:
                continue
            table = pa.concat_tables(parcels[side]).combine_chunks()
            late = table[TIME].to_numpy() < now
            if late.any():
                memory.late[side] += int(table[HOME].to_numpy()[late].sum())  # once, whoever sees it
                table = table.filter(pa.array(~late))
            pieces, found = memory.add(side, table)
            new += pieces
            pairs += found
        decided = time.perf_counter_ns()
        counted = [after - past for after, past in zip(_counts(memory), before, strict=True)]
        self._save(int(key[0]), memory, new, now, timer)
        counted += [decided - read, loaded - begun + time.perf_counter_ns() - decided, read - loaded]
        yield self._parcel(pairs, counted)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802
        """Forget what is too old in a cell that gets no rows."""
        memory, _ = self._load(int(key[0]))
        self._save(int(key[0]), memory, [], self.query.clock.time(timerValues.getCurrentWatermarkInMs()), None)
        return iter(())

    def close(self) -> None:
        """Nothing is held open."""

    def _check_identity(self) -> None:
        if not self.index.exists():
            self.index.update((pickle.dumps(self.query.identity),))
            return
        before, now = dict(pickle.loads(self.index.get()[0])), dict(self.query.identity)
        changed = [name for name in now if before.get(name) != now[name]]
        if changed:
            raise HaplyError(
                "The checkpoint was written by another join",
                expected=", ".join(f"{name} = {before.get(name)}" for name in changed),
                found=", ".join(f"{name} = {now[name]}" for name in changed),
                hint="set it back, or start with a new checkpoint",
            )

    def _load(self, cell: int) -> tuple[Memory, int | None]:
        if not self.index.exists():
            return Memory(self.query, self.query.make()), None
        stamp, timer, following, entries, learnt = pickle.loads(self.index.get()[0])
        # taken out, and put back by `_save`: a batch that fails leaves nothing half done
        known = _remembered.pop((self.query.name, cell), None)
        if known is not None and known[0] == stamp:
            return known[1], timer
        memory = Memory(self.query, self.query.make(), following=following)
        for number, side, newest in entries:
            table = from_bytes(bytes(self.pieces.getValue((number,))[0]))
            memory.recall(Piece(number, side, newest, table))
        memory.operator.recall(learnt)
        return memory, timer

    def _save(self, cell: int, memory: Memory, new: list[Piece], now: float, timer: int | None) -> None:
        for number in memory.expire(now):
            if not any(piece.number == number for piece in new):
                self.pieces.removeKey((number,))
        for piece in new:
            if piece.number in memory.pieces:
                assert piece.table is not None
                self.pieces.updateValue((piece.number,), (to_bytes(piece.table),))
        if not memory.pieces:
            self.index.clear()
            return
        if timer is None:
            last = max(piece.newest for piece in memory.pieces.values()) + self.query.window
            timer = int(self.query.clock.seconds(np.array([last]))[0] * 1000.0) + 10
            self.handle.registerTimer(timer)
        stamp = os.urandom(16)
        entries = [(piece.number, piece.side, piece.newest) for piece in memory.pieces.values()]
        self.index.update((pickle.dumps((stamp, timer, memory.following, entries, memory.operator.learnt())),))
        _remembered[(self.query.name, cell)] = (stamp, memory)
        held = sum(memory.nbytes for _, memory in _remembered.values())
        while held > _MEMORY_LIMIT and len(_remembered) > 1:
            held -= _remembered.popitem(last=False)[1][1].nbytes

    def _parcel(self, pairs: list[pa.Table], counted: list[int]) -> pd.DataFrame:
        schema = self.query.output
        arrays = [pa.nulls(1, schema.field(k).type) for k in range(len(schema) - 1)]
        arrays.append(pa.array([counted], schema.field(len(schema) - 1).type))
        tables = [pa.Table.from_arrays(arrays, schema=schema)]
        for table in pairs:
            blank = pa.nulls(table.num_rows, schema.field(len(schema) - 1).type)
            columns = [table[name].cast(schema.field(name).type) for name in schema.names[:-1]]
            tables.append(pa.Table.from_arrays([*columns, blank], schema=schema))
        return pd.DataFrame({PARCEL: [to_bytes(pa.concat_tables(tables))]})


def counter_names(operator: Operator) -> list[str]:
    """What a cell counts in a batch."""
    return [*operator.counts, "late_left", "late_right", *(f"nanoseconds:{stage}" for stage in STAGES)]


def _counts(memory: Memory) -> list[int]:
    lost = [late + cut for late, cut in zip(memory.late, memory.operator.cut_short, strict=True)]
    return [*memory.operator.counts.values(), *lost]


# -- the operators -----------------------------------------------------------------------------------------------------


class DistanceOperator:
    """Near points in a window of certain times: see ``SimilarityJoin``, one for each dimension."""

    def __init__(
        self,
        distance: Distance,
        threshold: Threshold,
        exact: bool,
        raises: bool,
        window: float,
        columns: tuple[str, str],
    ) -> None:
        self.distance, self.threshold, self.exact, self.raises = distance, threshold, exact, raises
        self.window, self.columns = window, columns
        self._joins: dict[int, SimilarityJoin] = {}

    cut_short = (0, 0)

    def arrive(self, side: int, ids: np.ndarray, rows: pa.Table, match: bool) -> Pairs | None:
        """See ``Operator``. Rows whose points differ in the number of coordinates never meet."""
        model = view_column(rows[self.columns[side]])
        dims = dimensions(model)
        known = np.unique(dims)
        odd = [dim for dim in known if self._joins and int(dim) not in self._joins] or known[1:].tolist()
        if odd and self.raises:
            raise HaplyError(
                "Points differ in dimension",
                expected=f"{next(iter(self._joins), known[0]):g} coordinates, as other rows have",
                found=f"{odd[0]:g}",
                hint='leave out what fits nothing with invalid="drop"',
            )
        times = rows[TIME].to_numpy()
        places = [rows[name].to_numpy() for name in (ORDER, HOME, GROUP)]
        found = []
        for dim in known:
            chosen = np.flatnonzero(dims == dim)
            these = model if len(known) == 1 else model.take(chosen)
            here = Places(*(column[chosen] for column in places))
            found.append(self._join(int(dim)).arrive(SIDES[side], ids[chosen], these, times[chosen], here, match=match))
        if not match:
            return None
        return tuple(
            np.concatenate([getattr(part, name) for part in found]) for name in ("left", "right", "probability")
        )  # type: ignore[return-value]

    def _join(self, dim: int) -> SimilarityJoin:
        if dim not in self._joins:
            self._joins[dim] = SimilarityJoin(
                self.distance.limit, self.threshold.value, dim=dim, strict=self.threshold.strict,
                window=self.window, probability="exact" if self.exact else "none",
            )  # fmt: skip
        return self._joins[dim]

    def expire(self, time: float) -> tuple[float, float]:
        """See ``Operator``."""
        for join in self._joins.values():
            join.expire(time)
        return time - self.window, time - self.window

    def learnt(self) -> Any:
        """Nothing."""

    def recall(self, learnt: Any) -> None:
        """Nothing."""

    @property
    def counts(self) -> dict[str, int]:
        """See ``Operator``."""
        names = tuple(RULES.values())
        counters = Counters(names, names)
        for join in self._joins.values():
            counters.add(join.funnel)
        return counters.flat()

    @property
    def nbytes(self) -> int:
        """See ``Operator``."""
        return sum(join.stored_bytes for join in self._joins.values())


class TimingOperator:
    """Events near in time, which may be uncertain: see ``TimingJoin``."""

    def __init__(self, window: float, threshold: Threshold, columns: tuple[str | None, str | None]) -> None:
        self.columns = columns
        # lateness is told by the clock of the streams
        self._join = TimingJoin(window, threshold.value, strict=threshold.strict, max_delay=sys.float_info.max)
        self._places: dict[int, np.ndarray] = {}
        self._cut_short = [0, 0]

    def arrive(self, side: int, ids: np.ndarray, rows: pa.Table, match: bool) -> Pairs | None:
        """See ``Operator``. A pair belongs to the cell where the row with the later beginning is at home."""
        column = self.columns[side]
        model = Certain(rows[TIME].to_numpy()) if column is None else view_column(rows[column])
        assert isinstance(model, OneDimensional)
        self._places[int(ids[0] >> 32)] = np.stack([rows[ORDER].to_numpy(), rows[HOME].to_numpy()])
        found = self._join.arrive(SIDES[side], ids, model, rows[GROUP].to_numpy(), match=match)
        self._cut_short[side] += len(found.cut_short)
        if not len(found):
            return None
        left, right = (self._place_of(column) for column in (found.left, found.right))
        ours = np.where(left[0] >= right[0], left[1], right[1]) > 0.0
        return found.left[ours], found.right[ours], found.probability[ours]

    def _place_of(self, ids: np.ndarray) -> np.ndarray:
        place = np.empty((2, len(ids)))
        numbers, rows = ids >> 32, ids & 0xFFFFFFFF
        for number in np.unique(numbers):
            mine = numbers == number
            place[:, mine] = self._places[int(number)][:, rows[mine]]
        return place

    def expire(self, time: float) -> tuple[float, float]:
        """See ``Operator``."""
        self._join.expire(time)
        left, right = self._join.forgotten_before("left", time), self._join.forgotten_before("right", time)
        held = {int(number) for side in SIDES for number in np.unique(self._join.ids(side) >> 32)}
        self._places = {number: place for number, place in self._places.items() if number in held}
        return left, right

    def learnt(self) -> Any:
        """How far events have reached back."""
        return self._join.reach

    def recall(self, learnt: Any) -> None:
        """See ``Operator``."""
        self._join.reach = learnt

    @property
    def counts(self) -> dict[str, int]:
        """See ``Operator``."""
        return self._join.funnel.flat()

    @property
    def cut_short(self) -> tuple[int, int]:
        """See ``Operator``."""
        return self._cut_short[0], self._cut_short[1]

    @property
    def nbytes(self) -> int:
        """See ``Operator``."""
        return self._join.stored_bytes
