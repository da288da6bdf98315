"""The second stage of a join of streams: decide which pairs and rows are returned, once pairs are found.

Cells send pairs as they find them, and each row when no further pair of it can come (see ``worker``). Rows go to
buckets by their ids, so that a row and its pairs meet in one. If the pairs of both rows decide whether a pair is kept,
rows go to buckets by their keys: both are then in one bucket, and without keys there is one bucket for all rows.

A bucket waits for nothing but rows: it needs no watermark and no timers.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from haply.engines.spark.exchange.parcels import PARCEL, from_bytes, to_bytes
from haply.engines.spark.streaming.parcels import GROUP, ROW, ROW_TYPE
from haply.engines.spark.streaming.worker import KIND
from haply.joins.cells.rows import RIGHT
from haply.joins.operators.state import from_state, to_state
from haply.joins.ranks import Centres, RankedPairs, expected_squares
from haply.models.columns import view_column

BUCKET, SPREAD = "bucket", "__haply_spread"
"""The number of a bucket; the expected squared difference of a pair."""

_PAIR, _NOTE = -1, 2
"""Kinds besides the numbers of sides: a pair, and a note that a right row has one."""
_GONE = 1
_BUCKET = "bucket of rows"
_FEW = 256
_MEMORY_LIMIT = 1 << 30


@dataclass(frozen=True)
class Settling:
    """The options of the second stage. Sides are numbers."""

    how: str
    ranked: tuple[int, ...]
    preserved: tuple[int, ...]
    rows: Mapping[int, str]
    """The columns with the ids of rows, of sides whose final rows are reported."""
    entangled: bool
    """Whether both rows of a pair are in one bucket, because what is kept depends on both."""
    most: int
    ties: bool
    order: Mapping[int, tuple[str, ...]]
    """The columns that order pairs that tie, by the side whose rows keep some of them."""
    compared: tuple[str, str] | None
    """The columns of pairs whose expected squared difference orders those of equal probability."""
    held: pa.Schema
    """The columns of rows that arrive, and are stored."""
    output: pa.Schema
    name: str = ""

    @property
    def of_pairs(self) -> tuple[int, ...]:
        """Return the sides whose rows are in the bucket of their pairs; for others there are notes."""
        return tuple(self.rows) if self.entangled else tuple(self.rows)[:1]


# -- to buckets --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BucketPack:
    """Puts pairs and rows into parcels by bucket, as a function for ``mapInArrow``."""

    settling: Settling
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each bucket."""
        for batch in batches:
            if batch.num_rows:
                yield self._parcels(pa.Table.from_batches([batch]))

    def _parcels(self, table: pa.Table) -> pa.RecordBatch:
        asked = self.settling
        kind = kinds_of(table)
        if SPREAD in asked.held.names:
            table = table.append_column(SPREAD, pa.array(self._spreads(table, kind == _PAIR)))
        if asked.entangled:
            bucket = np.mod(table[GROUP].to_numpy(), self.buckets).astype(np.int64)
        else:
            bucket = np.zeros(len(kind), np.int64)
            for side, name in asked.rows.items():
                mine = np.flatnonzero((kind == side) | ((kind == _PAIR) & (side in asked.of_pairs)))
                bucket[mine] = self._bucket_of(table[name].take(pa.array(mine)))
        table = table.select(asked.held.names).cast(asked.held)
        if not asked.entangled and len(asked.rows) > 1:
            notes = self._notes(table.filter(pa.array(kind == _PAIR))[asked.rows[RIGHT]])
            bucket = np.concatenate([bucket, self._bucket_of(notes[asked.rows[RIGHT]])])
            table = pa.concat_tables([table, notes])
        order = np.argsort(bucket, kind="stable")
        begins = np.flatnonzero(np.diff(bucket[order], prepend=-1))
        parts = np.split(order, begins[1:])
        parcels = [to_bytes(table.take(pa.array(part))) for part in parts]
        columns = [pa.array(bucket[order[begins]], pa.int32()), pa.array(parcels, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, [BUCKET, PARCEL])

    def _bucket_of(self, ids: pa.ChunkedArray) -> np.ndarray:
        numbers = pa.concat_arrays(ids.cast(ROW_TYPE).chunks or [pa.array([], ROW_TYPE)])
        begin = numbers.offset * 2
        parts = np.frombuffer(numbers.buffers()[1], np.int64)[begin : begin + 2 * len(numbers)].reshape(-1, 2)
        return np.mod(parts.sum(axis=1), self.buckets)  # those of a task go to the buckets in turn

    def _notes(self, ids: pa.ChunkedArray) -> pa.Table:
        """Make notes for the buckets of right rows: these rows have a pair."""
        ids = ids.unique()
        columns: dict[str, Any] = {self.settling.rows[RIGHT]: ids, KIND: pa.array(np.full(len(ids), _NOTE, np.int8))}
        nulls = [columns.get(one.name, pa.nulls(len(ids), one.type)) for one in self.settling.held]
        return pa.table(nulls, schema=self.settling.held)

    def _spreads(self, table: pa.Table, pairs: np.ndarray) -> np.ndarray:
        assert self.settling.compared is not None
        spreads, chosen = np.zeros(table.num_rows), np.flatnonzero(pairs)
        if len(chosen):
            some = table.take(pa.array(chosen))
            left, right = (Centres.of(view_column(some[name])) for name in self.settling.compared)
            rows = np.arange(len(chosen))
            spreads[chosen] = expected_squares(left, right, rows, rows)
        return spreads


def kinds_of(table: pa.Table) -> np.ndarray:
    """Return what rows are: pairs, rows of a side, or notes."""
    return table[KIND].fill_null(_PAIR).to_numpy()


# -- in a bucket -------------------------------------------------------------------------------------------------------


@dataclass
class Shelf:
    """Tables that are stored in pieces, with a byte for each row that holds its status.

    A batch writes what is new and these bytes. Pieces are rewritten when half of their rows are gone, or together
    with others when they are small.
    """

    schema: pa.Schema
    pieces: dict[int, tuple[pa.Table, np.ndarray]] = field(default_factory=dict)

    @property
    def table(self) -> pa.Table:
        """Return all rows, also those that are gone."""
        return pa.concat_tables([self.schema.empty_table(), *(table for table, _ in self.pieces.values())])

    @property
    def flags(self) -> np.ndarray:
        """Return the status of all rows."""
        return np.concatenate([np.empty(0, np.uint8), *(flags for _, flags in self.pieces.values())])

    def update(self, table: pa.Table, flags: np.ndarray, following: int) -> int:
        """Append new rows, and set the status of all; returns the number of the next piece."""
        cuts = np.cumsum([0, *(piece.num_rows for piece, _ in self.pieces.values()), table.num_rows])
        numbers: list[int | None] = [*self.pieces, None]
        kept: list[tuple[int | None, pa.Table, np.ndarray]] = []
        for number, begin, end in zip(numbers, cuts[:-1].tolist(), [*cuts[1:-1].tolist(), table.num_rows], strict=True):
            own = flags[begin:end]
            if (own & _GONE).all():
                continue
            piece = table.slice(begin, end - begin) if number is None else self.pieces[number][0]
            while kept and len(kept[-1][2]) <= max(_FEW, 2 * len(own)):
                _, before, earlier = kept.pop()
                number, piece, own = None, pa.concat_tables([before, piece]), np.concatenate([earlier, own])
            alive = own & _GONE == 0
            if number is None or 2 * alive.sum() < len(own):
                number, piece, own = None, piece.filter(pa.array(alive)).combine_chunks(), own[alive]
            kept.append((number, piece, own))
        self.pieces = {}
        for number, piece, own in kept:
            if number is None:
                number, following = following, following + 1
            self.pieces[number] = piece, own
        return following


@dataclass
class BucketState:
    """Pairs and rows that are not settled, and the ids of rows that have a pair and are not final yet."""

    settling: Settling
    rows: Shelf
    notes: Shelf
    following: int = 0

    @classmethod
    def of(cls, settling: Settling) -> BucketState:
        """Make an empty one."""
        notes = pa.schema([(KIND, pa.int8()), (ROW, pa.binary())])
        return cls(settling, Shelf(settling.held), Shelf(notes))

    @property
    def shelves(self) -> tuple[Shelf, Shelf]:
        """Return all that is stored."""
        return self.rows, self.notes

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes in this process."""
        return sum(int(table.nbytes) + flags.nbytes for shelf in self.shelves for table, flags in shelf.pieces.values())

    def settle(self, new: pa.Table) -> pa.Table:
        """Take new pairs and rows, and return what is now decided: pairs that are kept, and rows."""
        asked = self.settling
        noted = kinds_of(new) == _NOTE
        rows = pa.concat_tables([self.rows.table, new.filter(pa.array(~noted))])
        flags = np.concatenate([self.rows.flags, np.zeros(rows.num_rows - len(self.rows.flags), np.uint8)])
        ledger = Ledger(asked, rows, flags)
        for side in asked.ranked:
            ledger.vote(side)
        ledger.drop_hopeless()
        ledger.decide()
        notes, note_flags = self.notes.table, self.notes.flags
        known, chosen = kinds_of(notes), []
        for side in asked.preserved:
            came = new.filter(pa.array(noted))[asked.rows[side]] if side == RIGHT else None
            mine = np.flatnonzero((known == side) & (note_flags & _GONE == 0))
            more, done = ledger.close(side, notes[ROW].take(pa.array(mine)), came)
            note_flags[mine[done]] |= _GONE
            kind = pa.array(np.full(len(more), side, np.int8))
            notes = pa.concat_tables([notes, pa.table([kind, more], schema=notes.schema)])
            note_flags = np.concatenate([note_flags, np.zeros(len(more), np.uint8)])
            known = np.concatenate([known, np.full(len(more), side)])
            chosen += [ledger.first, ledger.lonely]
        if asked.how not in ("semi", "anti"):
            chosen.append(np.flatnonzero(ledger.kept))
        ledger.forget_told()
        self.following = self.rows.update(rows, ledger.flags, self.following)
        self.following = self.notes.update(notes, note_flags, self.following)
        taken = np.concatenate([np.empty(0, np.int64), *chosen])
        return rows.take(pa.array(taken)).select(asked.output.names).cast(asked.output)


class Ledger:
    """Pairs and rows of a bucket in one batch, by position, and their status."""

    def __init__(self, settling: Settling, rows: pa.Table, flags: np.ndarray) -> None:
        self.settling, self.rows, self.flags = settling, rows, flags
        self.kind = kinds_of(rows)
        alive = flags & _GONE == 0
        self.pairs, self.told = alive & (self.kind == _PAIR), alive & (self.kind != _PAIR)
        self.kept = self.open = np.zeros(len(flags), bool)
        self.first = self.lonely = np.empty(0, np.int64)

    def _codes(self, side: int, *more: pa.ChunkedArray) -> tuple[list[np.ndarray], pa.Array]:
        """Number the ids of a side, here and in further columns; the last number means no id. Also returns all ids."""
        columns = [self.rows[self.settling.rows[side]], *more]
        parts = [pa.concat_arrays([pa.array([], pa.binary()), *column.chunks]) for column in columns]
        encoded = pa.concat_arrays(parts).dictionary_encode()
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
        return np.split(codes, np.cumsum([len(part) for part in parts])[:-1]), encoded.dictionary

    def _chosen(self, codes: np.ndarray, ids: pa.Array) -> np.ndarray:
        """Return for each id whether it is among these codes; False for no id."""
        found = np.zeros(len(ids) + 1, bool)
        found[codes] = True
        found[-1] = False
        return found

    # -- the best pairs ------------------------------------------------------------------------------------------------

    def vote(self, side: int) -> None:
        """Let final rows of a side choose their best pairs: all their pairs are here."""
        (codes,), ids = self._codes(side)
        ended = self._chosen(codes[self.told & (self.kind == side)], ids)
        voting = np.flatnonzero(self.pairs & ended[codes] & (self.flags & _voted(side) == 0))
        if len(voting):
            best = self._best(voting, side, codes, self.settling.ties)
            self.flags[voting] |= _voted(side)
            self.flags[voting[best]] |= _chose(side)

    def drop_hopeless(self) -> None:
        """Forget pairs that neither of their rows would choose among the pairs so far.

        Later pairs cannot make them better. A pair that a row would choose stays even if it will not be kept: it
        prevents others from being chosen.
        """
        ranked = self.settling.ranked
        if not ranked:
            return
        waiting, wanted = np.zeros(len(self.flags), bool), np.zeros(len(self.flags), bool)
        for side in ranked:
            (codes,), _ = self._codes(side)
            some = np.flatnonzero(self.pairs & (self.flags & _voted(side) == 0))
            if len(some):
                waiting[some] = True
                wanted[some[self._best(some, side, codes, ties=True)]] = True
        hopeless = waiting & ~wanted
        self.flags[hopeless] |= _GONE
        self.pairs = self.pairs & ~hopeless

    def _best(self, chosen: np.ndarray, side: int, codes: np.ndarray, ties: bool) -> np.ndarray:
        """Return which of chosen pairs are among the best of their rows of a side."""
        table = self.rows.select([name for name in self.rows.column_names if name in self._ranked_by(side)])
        table = table.take(pa.array(chosen))
        known, numbers = np.unique(codes[chosen], return_inverse=True)
        probability = table["probability"].to_numpy()
        spreads = table[SPREAD].to_numpy() if SPREAD in table.column_names else np.zeros(len(chosen))
        ranked = RankedPairs(numbers, len(known), probability, lambda tied: spreads[tied])
        return ranked.best(self.settling.most, None if ties else lambda tied: self._ranks(table, tied, side))

    def _ranked_by(self, side: int) -> set[str]:
        return {"probability", SPREAD, *self.settling.order[side]}

    def _ranks(self, table: pa.Table, tied: np.ndarray, side: int) -> np.ndarray:
        """Number pairs by the columns that order those that tie, nulls last."""
        keys, ranks = [(name, "ascending") for name in self.settling.order[side]], np.zeros(len(tied), np.int64)
        if keys:
            ranks[pc.sort_indices(table.take(pa.array(tied)), sort_keys=keys).to_numpy()] = np.arange(len(tied))
        return ranks

    # -- rows ----------------------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Decide which pairs are kept, and which are still open."""
        voted, chose = (sum(bit(side) for side in self.settling.ranked) for bit in (_voted, _chose))
        decided = self.pairs & (self.flags & voted == voted)
        self.kept, self.open = decided & (self.flags & chose == chose), self.pairs & ~decided
        self.flags[decided] |= _GONE

    def close(self, side: int, notes: pa.ChunkedArray, came: pa.ChunkedArray | None) -> tuple[pa.Array, np.ndarray]:
        """Settle the final rows of a side that have no open pairs.

        ``notes`` are rows known to have a pair, ``came`` those that other buckets report. Returns the rows that are
        now known and will be reported, and which of the notes are no longer needed.
        """
        given = [notes, *([] if came is None else [came])]
        (codes, known, *others), ids = self._codes(side, *given)
        before, matched = self._chosen(known, ids), self._chosen(np.concatenate([known, *others]), ids)
        waits = np.zeros(len(ids) + 1, bool)
        self.first = np.empty(0, np.int64)
        if side in self.settling.of_pairs:
            waits = self._chosen(codes[self.open], ids)
            pairs = np.flatnonzero(self.kept)
            matched |= self._chosen(codes[pairs], ids)
            if self.settling.how == "semi":
                found, at = np.unique(codes[pairs], return_index=True)
                self.first = pairs[at[~before[found]]]
        mine = np.flatnonzero(self.told & (self.kind == side))
        mine = mine[~waits[codes[mine]]]
        self.flags[mine] |= _GONE
        done = self._chosen(codes[mine], ids)
        self.lonely = mine[~matched[codes[mine]]] if self.settling.how != "semi" else mine[:0]
        more = np.flatnonzero(matched & ~before & ~done)
        return ids.take(pa.array(more)), done[known]

    def forget_told(self) -> None:
        """Forget rows that were reported only so that they choose."""
        for side in self.settling.rows:
            if side not in self.settling.preserved:
                self.flags[self.told & (self.kind == side)] |= _GONE


def _voted(side: int) -> int:
    return 2 << 2 * side


def _chose(side: int) -> int:
    return 4 << 2 * side


_cached_states: OrderedDict[tuple[str, int], tuple[bytes, BucketState]] = OrderedDict()
"""States of buckets that this worker has served, by query and bucket, each with its stamp."""


class Bucket:
    """One bucket, with the state that Spark keeps for it (see ``BucketProcessor``)."""

    def __init__(self, settling: Settling, index: Any, pieces: Any) -> None:
        self.settling, self.index, self.pieces = settling, index, pieces

    def take(self, key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        """Take the parcels of one batch, and pass on what is settled."""
        stored, state = self._load(int(key[0]))
        parcels = [from_bytes(parcel) for frame in rows for parcel in frame[PARCEL]]
        settled = state.settle(pa.concat_tables(parcels).combine_chunks())
        self._save(int(key[0]), stored, state)
        if settled.num_rows:
            yield pd.DataFrame({PARCEL: [to_bytes(settled)]})

    def _load(self, bucket: int) -> tuple[set[int], BucketState]:
        """Return the state, and the numbers of the pieces that are stored."""
        state = BucketState.of(self.settling)
        if not self.index.exists():
            return set(), state
        stamp, following, entries = from_state(_BUCKET, bytes(self.index.get()[0]))
        stored = {number for _, number, _ in entries}
        # taken out, and put back by `_save`: a batch that fails leaves no partial state
        known = _cached_states.pop((self.settling.name, bucket), None)
        if known is not None and known[0] == stamp:
            return stored, known[1]
        state.following = following
        for shelf, number, flags in entries:
            state.shelves[shelf].pieces[number] = from_bytes(bytes(self.pieces.getValue((number,))[0])), flags
        return stored, state

    def _save(self, bucket: int, stored: set[int], state: BucketState) -> None:
        pieces = {number: piece for shelf in state.shelves for number, piece in shelf.pieces.items()}
        for number in stored - set(pieces):
            self.pieces.removeKey((number,))
        for number, (table, _) in pieces.items():
            if number not in stored:
                self.pieces.updateValue((number,), (to_bytes(table),))
        if not pieces:
            if stored:
                self.index.clear()
            return
        stamp = os.urandom(16)
        entries = [
            (k, number, flags) for k, shelf in enumerate(state.shelves) for number, (_, flags) in shelf.pieces.items()
        ]
        self.index.update((to_state(_BUCKET, (stamp, state.following, entries)),))
        _cached_states[(self.settling.name, bucket)] = (stamp, state)
        held = sum(state.nbytes for _, state in _cached_states.values())
        while held > _MEMORY_LIMIT and len(_cached_states) > 1:
            held -= _cached_states.popitem(last=False)[1][1].nbytes
