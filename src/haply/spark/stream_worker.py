"""One cell of a stream join: joins parcels (see ``parcels``) with what it remembers.

What a cell remembers is kept as pieces of Arrow bytes, one per batch and *pane* (a stretch of time as long as the
window), so that a batch writes only what is new and old panes are removed whole. A worker that served a cell before
still has it in memory; a stamp in the state says whether that memory is the one that was committed.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from haply.errors import HaplyError
from haply.joins.similarity import SIDES, SimilarityJoin
from haply.models.columns import view_column
from haply.probability.region import Distance
from haply.pruning.cascade import Counters
from haply.pruning.clouds import RULES, Places
from haply.pruning.threshold import Threshold
from haply.spark.distance import dimensions
from haply.spark.parcels import CONTROL, GROUP, HOME, ORDER, PARCEL, SIDE, Clock, from_bytes, to_bytes
from haply.spark.partition import TIME

STAGES = ("decide", "state", "transfer")
"""Where a cell spends its time: with the pairs, reading and writing what it remembers, packing and unpacking."""

_MOST_PANES = 64
_MEMORY_LIMIT = 1 << 30


@dataclass(frozen=True)
class Query:
    """All that a cell needs to know of the join."""

    distance: Distance
    threshold: Threshold
    exact: bool
    raises: bool
    window: float
    clock: Clock
    positions: tuple[str, str]
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
    """What a cell remembers: pieces, and the operator that holds their objects under ``number << 32 | row``."""

    query: Query
    pieces: dict[int, Piece] = field(default_factory=dict)
    following: int = 0
    joins: dict[int, SimilarityJoin] = field(default_factory=dict)
    late: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, side: int, table: pa.Table) -> tuple[list[Piece], list[pa.Table]]:
        """Push new rows: the pieces to be remembered of them, and the pairs they complete."""
        pieces = [self._piece(side, part) for same in self._by_dimension(side, table) for part in self._panes(same)]
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

    def _by_dimension(self, side: int, table: pa.Table) -> Iterator[pa.Table]:
        """Rows whose points have equally many coordinates: others never meet."""
        if not table.num_rows:
            return
        dims = dimensions(view_column(table[self.query.positions[side]]))
        known = np.unique(dims)
        odd = [dim for dim in known if self.joins and int(dim) not in self.joins] or known[1:].tolist()
        if odd and self.query.raises:
            raise HaplyError(
                "Points differ in dimension",
                expected=f"{next(iter(self.joins), known[0]):g} coordinates, as other rows have",
                found=f"{odd[0]:g}",
                hint='leave out what fits nothing with invalid="drop"',
            )
        for dim in known:
            yield table if len(known) == 1 else table.filter(pa.array(dims == dim))

    def _join(self, dim: int) -> SimilarityJoin:
        query = self.query
        if dim not in self.joins:
            self.joins[dim] = SimilarityJoin(
                query.distance.limit, query.threshold.value, dim=dim, strict=query.threshold.strict,
                window=query.window, probability="exact" if query.exact else "none",
            )  # fmt: skip
        return self.joins[dim]

    def _panes(self, table: pa.Table) -> Iterator[pa.Table]:
        """Rows by stretches of time as long as the window, so that each can be forgotten by itself."""
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
        rows = piece.table
        model = view_column(rows[self.query.positions[piece.side]])
        join = self._join(int(dimensions(model)[0]))
        places = Places(*(rows[name].to_numpy() for name in (ORDER, HOME, GROUP)))
        ids = (piece.number << 32) | np.arange(rows.num_rows, dtype=np.int64)
        found = join.arrive(SIDES[piece.side], ids, model, rows[TIME].to_numpy(), places, match=match)
        if not len(found):
            return None
        columns = [column for side, ids in enumerate((found.left, found.right)) for column in self._taken(side, ids)]
        columns.append(pa.array(found.probability))
        names = [*self.query.payloads[0], *self.query.payloads[1], "probability"]
        return pa.table(columns, names=names)

    def _taken(self, side: int, ids: np.ndarray) -> list[pa.ChunkedArray]:
        numbers, which = np.unique(ids >> 32, return_inverse=True)
        tables = []
        for number in numbers:
            table = self.pieces[int(number)].table
            assert table is not None
            tables.append(table)
        offsets = np.cumsum([0, *(table.num_rows for table in tables[:-1])])
        chosen = pa.array(offsets[which] + (ids & 0xFFFFFFFF))
        together = pa.concat_tables([table.select(self.query.payloads[side]) for table in tables])
        return [column.take(chosen) for column in together.combine_chunks().columns]

    def expire(self, time: float) -> list[int]:
        """Forget what no row from ``time`` on can meet; returns the numbers of pieces that are gone."""
        for join in self.joins.values():
            join.expire(time)
        gone = [number for number, piece in self.pieces.items() if piece.newest + self.query.window < time]
        for number in gone:
            del self.pieces[number]
        return gone

    @property
    def nbytes(self) -> int:
        """Roughly what it takes in this process."""
        tables = sum(piece.table.nbytes for piece in self.pieces.values() if piece.table is not None)
        return tables + sum(join.stored_bytes for join in self.joins.values())


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
            return Memory(self.query), None
        stamp, timer, following, entries = pickle.loads(self.index.get()[0])
        # taken out, and put back by `_save`: a batch that fails leaves nothing half done
        known = _remembered.pop((self.query.name, cell), None)
        if known is not None and known[0] == stamp:
            return known[1], timer
        memory = Memory(self.query, following=following)
        for number, side, newest in entries:
            table = from_bytes(bytes(self.pieces.getValue((number,))[0]))
            memory.recall(Piece(number, side, newest, table))
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
        self.index.update((pickle.dumps((stamp, timer, memory.following, entries)),))
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


_RULES = tuple(RULES.values())


def counter_names() -> list[str]:
    """What a cell counts in a batch."""
    late = ["late_left", "late_right"]
    return [*Counters(_RULES, _RULES).flat(), *late, *(f"nanoseconds:{stage}" for stage in STAGES)]


def _counts(memory: Memory) -> list[int]:
    counters = Counters(_RULES, _RULES)
    for join in memory.joins.values():
        counters.add(join.funnel)
    return [*counters.flat().values(), *memory.late]
