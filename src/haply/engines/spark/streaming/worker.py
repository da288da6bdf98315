"""One cell of a stream join: joins parcels (see ``parcels``) with what it remembers.

What a cell remembers is kept as pieces of Arrow bytes, one per batch and *pane* (a stretch of time, see
``Memory``), so that a batch writes only what is new and old panes are removed whole. A worker that served a cell before
still has it in memory; a stamp in the state says whether that memory is the one that was committed.
"""

from __future__ import annotations

import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from haply.engines.spark.streaming.parcels import (
    CONTROL,
    GROUP,
    HOME,
    ORDER,
    PARCEL,
    REACH,
    SIDE,
    Clock,
    from_bytes,
    to_bytes,
)
from haply.errors import HaplyError
from haply.joins.cells.asked import Together
from haply.joins.cells.dimensions import dimensions
from haply.joins.cells.rows import TIME
from haply.joins.operators.pair import PairJoin
from haply.joins.operators.position import PositionJoin
from haply.joins.operators.similarity import SIDES, SimilarityJoin
from haply.joins.operators.state import from_state, to_state
from haply.joins.operators.timing import TimingJoin
from haply.joins.operators.window import WindowJoin, WindowResult, join_windows
from haply.models import Certain, OneDimensional
from haply.models.columns import view_column
from haply.probability.region import Difference, Distance
from haply.pruning.bounds.cloud_rules import RULES
from haply.pruning.bounds.positions import no_counts
from haply.pruning.cascade import Counters
from haply.pruning.ownership import Places
from haply.pruning.threshold import Threshold

STAGES = ("decide", "state", "transfer")
"""Where a cell spends its time: with the pairs, reading and writing what it remembers, packing and unpacking."""

_LONGEST_PANE = 64
_CELL, _IDENTITY = "cell of a stream", "join of streams"
_MEMORY_LIMIT = 1 << 30


class FoundInCell(NamedTuple):
    """Ids of the rows of each side that make a pair (or a combination of more), and probabilities."""

    ids: tuple[np.ndarray, ...]
    probability: np.ndarray

    def take(self, kept: np.ndarray) -> FoundInCell:
        """Some of them."""
        return FoundInCell(tuple(column[kept] for column in self.ids), self.probability[kept])


class Operator(Protocol):
    """What joins the rows of a cell: an operator of ``haply.joins`` that reads Arrow tables.

    Rows have the columns of their side, ``TIME``, ``GROUP``, ``ORDER`` and ``HOME``.
    """

    def arrive(self, side: int, ids: np.ndarray, rows: pa.Table, match: bool) -> FoundInCell | None:
        """Store rows under ids; if ``match``, the pairs that they complete."""

    def hear(self, side: int, reach: float) -> None:
        """Rows of a side have reached so far back from their times, in this cell or in another."""

    def expire(self, time: float) -> tuple[float, ...]:
        """Rows before ``time`` will not come: up to which times rows of each side are now forgotten."""

    def learnt(self) -> Any:
        """What it must know after a restart besides the rows it holds; none if there is nothing."""

    def recall(self, learnt: Any) -> None:
        """Take back what was learnt."""

    @property
    def counts(self) -> dict[str, int]:
        """What it has counted, by flat names that are always the same."""

    @property
    def cut_short(self) -> tuple[int, ...]:
        """Rows of each side that may have lost pairs with rows already forgotten."""

    @property
    def nbytes(self) -> int:
        """Roughly the memory that it takes."""


@dataclass(frozen=True)
class CellQuery:
    """All that a cell needs to know of the join."""

    make: Callable[[], Operator]
    together: Together | None
    window: float
    clock: Clock
    payloads: tuple[tuple[str, ...], ...]
    """The columns of each side that go into the result."""
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
    table: pa.Table

    @cached_property
    def at_home(self) -> int:
        """How many of its rows are at home in this cell: those are counted here and nowhere else."""
        return int(pc.sum(self.table[HOME]).as_py())

    @cached_property
    def nbytes(self) -> int:
        """The memory of its rows."""
        return int(self.table.nbytes)


@dataclass
class Memory:
    """What a cell remembers: pieces, and the operator that holds their rows under ``number << 32 | row``."""

    query: CellQuery
    operator: Operator
    pieces: dict[int, Piece] = field(default_factory=dict)
    following: int = 0
    late: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.late = [0] * len(self.query.payloads)

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
        """Rows by stretches of time, the newest as long as the window and each older one twice as long as the next.

        A piece is forgotten as a whole. What is much older than the newest rows will mostly go at once.
        """
        if not table.num_rows:
            return
        times = table[TIME].to_numpy()
        age = times.max() - times
        length = max(self.query.window, float(age.max()) / _LONGEST_PANE)
        if length <= 0.0:
            yield table
            return
        pane = -np.ceil(np.log2(np.maximum(age / length, 1.0)))
        order = np.argsort(pane, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(pane[order])) + 1):
            yield table.take(pa.array(rows))

    def _push(self, piece: Piece, match: bool = True) -> pa.Table | None:
        ids = (piece.number << 32) | np.arange(piece.table.num_rows, dtype=np.int64)
        found = self.operator.arrive(piece.side, ids, piece.table, match)
        return self.table_of(found)

    def table_of(self, found: FoundInCell | None) -> pa.Table | None:
        """Those that are likely enough, with the columns of their rows; none if there are none."""
        if found is not None and self.query.together is not None and len(found.probability):
            found = self._kept(found, self.query.together)
        if found is None or not len(found.probability):
            return None
        columns: list[pa.ChunkedArray] = []
        names: list[str] = []
        for side, (ids, payload) in enumerate(zip(found.ids, self.query.payloads, strict=True)):
            columns += self.taken(side, ids, payload)
            names += payload
        return pa.table([*columns, pa.array(found.probability)], names=[*names, "probability"])

    def _kept(self, found: FoundInCell, together: Together) -> FoundInCell:
        rows = []
        for side, ids in enumerate(found.ids):
            names = together.columns(side)
            rows.append(pa.table(self.taken(side, ids, names) if names else [], names=names))
        kept, probability, _ = together.keep(rows, found.probability)
        return FoundInCell(found.take(kept).ids, probability)

    def taken(self, side: int, ids: np.ndarray, names: tuple[str, ...]) -> list[pa.ChunkedArray]:
        """Columns of the rows with these ids."""
        numbers, which = np.unique(ids >> 32, return_inverse=True)
        tables = []
        for number in numbers:
            tables.append(self.pieces[int(number)].table.select(dict.fromkeys(names)))
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

    def result(self, pairs: list[pa.Table], counted: list[int]) -> pa.Table:
        """What goes out: a row of counters, and the pairs."""
        schema = self.query.output
        counters = schema.field(len(schema) - 1).type
        arrays = [pa.nulls(1, field.type) for field in list(schema)[:-1]]
        tables = [pa.Table.from_arrays([*arrays, pa.array([counted], counters)], schema=schema)]
        for table in pairs:
            columns = [table[name].cast(schema.field(name).type) for name in schema.names[:-1]]
            tables.append(pa.Table.from_arrays([*columns, pa.nulls(table.num_rows, counters)], schema=schema))
        return pa.concat_tables(tables)

    @property
    def stored(self) -> list[int]:
        """How many rows of each side there are, each in one cell only."""
        stored = [0] * len(self.query.payloads)
        for piece in self.pieces.values():
            stored[piece.side] += piece.at_home
        return stored

    @property
    def nbytes(self) -> int:
        """Roughly what it takes in this process."""
        return sum(piece.nbytes for piece in self.pieces.values()) + self.operator.nbytes


_remembered: OrderedDict[tuple[str, int], tuple[bytes, Memory]] = OrderedDict()
"""Memories of cells that this worker has served, by query and cell, each with its stamp."""


class Loaded(NamedTuple):
    """A memory as the state has it: its stamp (none if there is no state), the timer that is set, what the operator has
    learnt, and how many rows of each side this run of the query has reported as stored.
    """

    memory: Memory
    stamp: bytes | None = None
    timer: int | None = None
    learnt: Any = None
    reported: tuple[int, ...] | None = None


class Cell:
    """One cell of a stream join, with the state that Spark keeps for it (see ``CellProcessor``)."""

    def __init__(self, query: CellQuery, handle: Any, index: Any, pieces: Any) -> None:
        self.query, self.handle, self.index, self.pieces = query, handle, index, pieces

    def take(self, key: Any, rows: Iterator[Any], timer_values: Any) -> Iterator[Any]:
        """Join the parcels of one batch with what is remembered."""
        if int(key[0]) == CONTROL:
            self._check_identity()
            return
        watermark = timer_values.getCurrentWatermarkInMs()
        now = self.query.clock.time(watermark)
        begun = time.perf_counter_ns()
        loaded = self._load(int(key[0]))
        memory = loaded.memory
        read_from = time.perf_counter_ns()
        before = _counts(memory)
        parcels: list[list[pa.Table]] = [[] for _ in self.query.payloads]
        for frame in rows:
            for side, parcel, reach in zip(frame[SIDE], frame[PARCEL], frame[REACH], strict=True):
                if reach > 0.0:  # not so if there is none, which is NaN
                    memory.operator.hear(int(side), float(reach))
                if parcel is not None:
                    parcels[int(side)].append(from_bytes(parcel))
        read = time.perf_counter_ns()
        pairs, new = [], []
        for side in range(len(parcels)):
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
        counted += self._save(int(key[0]), loaded, new, watermark)
        if any(counted) or pairs:
            counted += [decided - read, read_from - begun + time.perf_counter_ns() - decided, read - read_from]
            yield self._parcel(memory, pairs, counted)

    def tick(self, key: Any, timer_values: Any) -> Iterator[Any]:
        """Forget what is too old in a cell that gets no rows."""
        loaded = self._load(int(key[0]))
        changed = self._save(int(key[0]), loaded._replace(timer=None), [], timer_values.getCurrentWatermarkInMs())
        counted = [0] * len(_counts(loaded.memory)) + changed + [0] * len(STAGES)
        return iter([self._parcel(loaded.memory, [], counted)] if any(counted) else [])

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
            return Loaded(Memory(self.query, self.query.make()))
        stamp, timer, following, entries, learnt, run = from_state(_CELL, bytes(self.index.get()[0]))
        # taken out, and put back by `_save`: a batch that fails leaves nothing half done
        known = _remembered.pop((self.query.name, cell), None)
        if known is not None and known[0] == stamp:
            memory = known[1]
        else:
            memory = Memory(self.query, self.query.make(), following=following)
            for number, side, newest in entries:
                table = from_bytes(bytes(self.pieces.getValue((number,))[0]))
                memory.recall(Piece(number, side, newest, table))
            if learnt is not None:
                memory.operator.recall(learnt)
        # counters begin anew with the query, the state does not
        return Loaded(memory, stamp, timer, learnt, tuple(memory.stored) if run == self.query.name else None)

    def _save(self, cell: int, loaded: Loaded, new: list[Piece], watermark: int) -> list[int]:
        """Forget what is too old and write down what has changed; returns how many rows more of each side are stored.

        A cell that gets no rows is told what others have heard in every batch: then there may be nothing to write.
        """
        memory, clock = loaded.memory, self.query.clock
        gone = memory.expire(clock.time(watermark))
        for number in gone:
            if not any(piece.number == number for piece in new):
                self.pieces.removeKey((number,))
        for piece in new:
            if piece.number in memory.pieces:
                self.pieces.updateValue((piece.number,), (to_bytes(piece.table),))
        learnt, stored = memory.operator.learnt(), memory.stored
        more = [now - before for now, before in zip(stored, loaded.reported or [0] * len(stored), strict=True)]
        if not memory.pieces and learnt is None:
            if loaded.stamp is not None:
                self.index.clear()
            return more
        timer = loaded.timer
        if timer is None and memory.pieces:
            last = max(piece.newest for piece in memory.pieces.values()) + self.query.window
            # Uncertain times are kept for longer: look again after another window, and never at the same moment, for
            # Spark deletes the timer of that moment when it has been handled.
            again = watermark + clock.delay(self.query.window)
            timer = max(int(clock.seconds(np.array([last]))[0] * 1000.0) + 10, again)
            self.handle.registerTimer(timer)
        stamp = loaded.stamp
        if stamp is None or new or gone or loaded.reported is None or (timer, learnt) != (loaded.timer, loaded.learnt):
            stamp = os.urandom(16)
            entries = [(piece.number, piece.side, piece.newest) for piece in memory.pieces.values()]
            written = to_state(_CELL, (stamp, timer, memory.following, entries, learnt, self.query.name))
            self.index.update((written,))
        _remembered[(self.query.name, cell)] = (stamp, memory)
        held = sum(memory.nbytes for _, memory in _remembered.values())
        while held > _MEMORY_LIMIT and len(_remembered) > 1:
            held -= _remembered.popitem(last=False)[1][1].nbytes
        return more

    def _parcel(self, memory: Memory, pairs: list[pa.Table], counted: list[int]) -> pd.DataFrame:
        return pd.DataFrame({PARCEL: [to_bytes(memory.result(pairs, counted))]})


def counter_names(operator: Operator, sides: Sequence[Any] = SIDES) -> list[str]:
    """What a cell counts in a batch: of stored rows how many more there are, so that the sum is what is stored now."""
    of_sides = [f"{what}_{side}" for what in ("late", "stored") for side in sides]
    return [*operator.counts, *of_sides, *(f"nanoseconds:{stage}" for stage in STAGES)]


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
        self._joins: dict[int, Any] = {}

    cut_short = (0, 0)
    _kind: Any = SimilarityJoin

    def arrive(self, side: int, ids: np.ndarray, rows: pa.Table, match: bool) -> FoundInCell | None:
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
        found = []
        for dim in known:
            chosen = np.flatnonzero(dims == dim)
            these = model if len(known) == 1 else model.take(chosen)
            columns = self._columns(rows, chosen)
            found.append(self._join(int(dim)).arrive(SIDES[side], ids[chosen], these, *columns, match=match))
        if not match:
            return None
        left, right, probability = (
            np.concatenate([getattr(part, name) for part in found]) for name in ("left", "right", "probability")
        )
        return FoundInCell((left, right), probability)

    @staticmethod
    def _columns(rows: pa.Table, chosen: np.ndarray) -> tuple[Any, ...]:
        """What the join wants to know of some rows beside their ids and positions."""
        times, order, home, groups = (rows[name].to_numpy()[chosen] for name in (TIME, ORDER, HOME, GROUP))
        return times, Places(order, home, groups)

    def _join(self, dim: int) -> Any:
        if dim not in self._joins:
            self._joins[dim] = self._kind(
                self.distance.limit, self.threshold.value, dim=dim, strict=self.threshold.strict,
                window=self.window, probability="exact" if self.exact else "none",
            )  # fmt: skip
        return self._joins[dim]

    def hear(self, side: int, reach: float) -> None:
        """Nothing: times are certain."""

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
        counters = self._counters()
        for join in self._joins.values():
            counters.add(join.funnel)
        return counters.flat()

    @staticmethod
    def _counters() -> Counters:
        names = tuple(RULES.values())
        return Counters(names, names)

    @property
    def nbytes(self) -> int:
        """See ``Operator``."""
        return sum(join.stored_bytes for join in self._joins.values())


class PositionOperator(DistanceOperator):
    """Near positions, Gaussians or mixtures of them, in a window of certain times: see ``PositionJoin``."""

    _kind = PositionJoin

    @staticmethod
    def _columns(rows: pa.Table, chosen: np.ndarray) -> tuple[Any, ...]:
        times, groups, order, home = (rows[name].to_numpy()[chosen] for name in (TIME, GROUP, ORDER, HOME))
        return times, groups, order, home > 0.0

    def expire(self, time: float) -> tuple[float, float]:
        """See ``Operator``."""
        super().expire(time)
        forgotten = min((join.forgotten_before(time) for join in self._joins.values()), default=time - self.window)
        return forgotten, forgotten

    @staticmethod
    def _counters() -> Counters:
        return no_counts()


class HomeRule:
    """Which combinations belong to a cell, of those that several may find: the row that begins last is at home there.

    All others are seen in the block where it begins, so that its cell has the whole combination.
    """

    def __init__(self) -> None:
        self._pieces: dict[int, np.ndarray] = {}

    def add(self, ids: np.ndarray, rows: pa.Table) -> None:
        """Note where the rows of a piece begin and whether they are at home here."""
        self._pieces[int(ids[0] >> 32)] = np.stack([rows[ORDER].to_numpy(), rows[HOME].to_numpy()])

    def keep(self, ids: np.ndarray) -> None:
        """Forget all but the pieces of these rows."""
        held = set(np.unique(ids >> 32).tolist())
        self._pieces = {number: piece for number, piece in self._pieces.items() if number in held}

    def ours(self, found: FoundInCell) -> FoundInCell:
        """Those that belong to this cell."""
        latest, home = np.full(len(found.probability), -np.inf), np.zeros(len(found.probability))
        for ids in found.ids:
            numbers, rows = ids >> 32, ids & 0xFFFFFFFF
            for number in np.unique(numbers):
                mine = np.flatnonzero(numbers == number)
                order, at_home = self._pieces[int(number)][:, rows[mine]]
                later = order >= latest[mine]
                home[mine] = np.where(later, at_home, home[mine])
                latest[mine] = np.where(later, order, latest[mine])
        return found.take(home > 0.0)


class DifferenceOperator:
    """Rows of near values in a window of certain times: see ``PairJoin``."""

    def __init__(
        self,
        difference: Difference,
        threshold: Threshold,
        exact: bool,
        window: float,
        strategy: str,
        columns: tuple[str, str],
    ) -> None:
        self.columns = columns
        self._join = PairJoin(
            difference, threshold.value, window=window, strategy=strategy, strict=threshold.strict, exact=exact
        )
        self._places = HomeRule()

    cut_short = (0, 0)

    def arrive(self, side: int, ids: np.ndarray, rows: pa.Table, match: bool) -> FoundInCell | None:
        """See ``Operator``."""
        model = view_column(rows[self.columns[side]])
        assert isinstance(model, OneDimensional)
        self._places.add(ids, rows)
        times, groups = rows[TIME].to_numpy(), rows[GROUP].to_numpy()
        found = self._join.arrive(SIDES[side], ids, model, times, groups, match=match)
        return self._places.ours(FoundInCell((found.left, found.right), found.probability)) if len(found.left) else None

    def hear(self, side: int, reach: float) -> None:
        """Nothing: times are certain."""

    def expire(self, time: float) -> tuple[float, float]:
        """See ``Operator``."""
        forgotten = self._join.forgotten_before(time)
        self._join.expire(time)
        self._places.keep(np.concatenate([self._join.ids(side) for side in SIDES]))
        return forgotten, forgotten

    def learnt(self) -> Any:
        """Nothing."""

    def recall(self, learnt: Any) -> None:
        """Nothing."""

    @property
    def counts(self) -> dict[str, int]:
        """See ``Operator``."""
        return self._join.funnel.flat()

    @property
    def nbytes(self) -> int:
        """See ``Operator``."""
        return self._join.stored_bytes


class TimingOperator:
    """Events near in time, which may be uncertain: see ``TimingJoin``."""

    def __init__(self, window: float, threshold: Threshold, columns: tuple[str | None, str | None]) -> None:
        self.columns = columns
        # lateness is told by the clock of the streams
        self._join = TimingJoin(window, threshold.value, strict=threshold.strict, max_delay=sys.float_info.max)
        self._places = HomeRule()
        self._cut_short = [0, 0]

    def arrive(self, side: int, ids: np.ndarray, rows: pa.Table, match: bool) -> FoundInCell | None:
        """See ``Operator``. A pair belongs to the cell where the row with the later beginning is at home."""
        column = self.columns[side]
        model = Certain(rows[TIME].to_numpy()) if column is None else view_column(rows[column])
        assert isinstance(model, OneDimensional)
        self._places.add(ids, rows)
        found = self._join.arrive(SIDES[side], ids, model, rows[GROUP].to_numpy(), match=match)
        self._cut_short[side] += len(found.cut_short)
        if not len(found):
            return None
        return self._places.ours(FoundInCell((found.left, found.right), found.probability))

    def hear(self, side: int, reach: float) -> None:
        """See ``Operator``."""
        self._join.reach = (reach, 0.0) if side == 0 else (0.0, reach)

    def expire(self, time: float) -> tuple[float, float]:
        """See ``Operator``."""
        left, right = self._join.forgotten_before("left", time), self._join.forgotten_before("right", time)
        self._join.expire(time)
        self._places.keep(np.concatenate([self._join.ids(side) for side in SIDES]))
        return left, right

    def learnt(self) -> Any:
        """How far events have reached back, and what is forgotten: what reaches back to it may lose pairs."""
        return (self._join.reach, self._join.forgotten) if any(self._join.reach) else None

    def recall(self, learnt: Any) -> None:
        """See ``Operator``."""
        self._join.reach, self._join.forgotten = learnt

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


class WindowOperator:
    """Combinations of rows of many streams: see ``WindowJoin``."""

    def __init__(self, windows: dict[tuple[str, str], float], streams: tuple[str, ...], **options: Any) -> None:
        # lateness is told by the clock of the streams
        self._join = WindowJoin(windows, max_delay=sys.float_info.max, **options)
        self._streams = streams
        self._reach = dict.fromkeys(streams, 0.0)
        for (one, other), window in self._join.closure.items():
            self._reach[one], self._reach[other] = max(self._reach[one], window), max(self._reach[other], window)
        self._places = HomeRule()
        self._times: dict[int, tuple[str, float]] = {}
        self.cut_short = (0,) * len(streams)

    def arrive(self, side: int, ids: np.ndarray, rows: pa.Table, match: bool) -> FoundInCell | None:
        """See ``Operator``."""
        self._places.add(ids, rows)
        times = rows[TIME].to_numpy()
        self._times[int(ids[0] >> 32)] = (self._streams[side], float(times.max()))
        order = np.argsort(times, kind="stable")
        batch = {"id": ids[order], "time": times[order], "key": rows[GROUP].to_numpy()[order].astype(np.int64)}
        result = self._take(self._streams[side], batch)
        return self._found(result) if match and result is not None else None

    def _take(self, stream: str, batch: dict[str, np.ndarray]) -> WindowResult | None:
        return self._join.arrive(stream, batch)

    def finish(self) -> FoundInCell | None:
        """What waits until all streams are complete."""
        parts = [self._found(self._join.close(name)) for name in self._streams]
        found = [part for part in parts if part is not None]
        if not found:
            return None
        ids = tuple(np.concatenate(column) for column in zip(*(part.ids for part in found), strict=True))
        return FoundInCell(ids, np.concatenate([part.probability for part in found]))

    def _found(self, result: WindowResult) -> FoundInCell | None:
        if not len(result):
            return None
        return self._places.ours(FoundInCell(tuple(result.ids[name] for name in self._streams), result.probability))

    def hear(self, side: int, reach: float) -> None:
        """Nothing: times are certain."""

    def expire(self, time: float) -> tuple[float, ...]:
        """See ``Operator``."""
        self._join.expire(time)
        forgotten = {name: time - reach - 1e-12 * (abs(time) + reach) for name, reach in self._reach.items()}
        self._times = {number: of for number, of in self._times.items() if not of[1] < forgotten[of[0]]}
        self._places.keep(np.array(list(self._times), dtype=np.int64) << 32)
        return tuple(forgotten[name] for name in self._streams)

    def learnt(self) -> Any:
        """Nothing."""

    def recall(self, learnt: Any) -> None:
        """Nothing."""

    @property
    def counts(self) -> dict[str, int]:
        """See ``Operator``."""
        funnel = self._join.funnel
        return {"candidates": funnel.candidates, "kept": funnel.kept}

    @property
    def nbytes(self) -> int:
        """See ``Operator``."""
        return self._join.stored_bytes


class WholeWindows(WindowOperator):
    """The same for tables, which are there as a whole: all is found in the end."""

    def __init__(self, windows: dict[tuple[str, str], float], streams: tuple[str, ...]) -> None:
        super().__init__(windows, streams)
        self._batches: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in streams}
        self._kept = 0

    def _take(self, stream: str, batch: dict[str, np.ndarray]) -> WindowResult | None:
        self._batches[stream].append(batch)
        return None

    def finish(self) -> FoundInCell | None:
        """All combinations."""
        if not all(self._batches.values()):
            return None
        whole = {
            name: {column: np.concatenate([each[column] for each in own]) for column in own[0]}
            for name, own in self._batches.items()
        }
        result = join_windows(self._join.windows, whole, checked=True)
        self._kept = len(result)
        return self._found(result)

    @property
    def counts(self) -> dict[str, int]:
        """See ``Operator``: every combination that is tried is one."""
        return {"candidates": self._kept, "kept": self._kept}
