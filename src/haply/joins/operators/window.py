"""Join any number of streams by time windows (W-join), as an operator: push tuples, get the combinations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError, unknown_name
from haply.joins.operators.batches import checked_length
from haply.joins.operators.operator import ANY_DELAY, Columns, JoinOperator, PairBatch, RowBatch, forgotten_before
from haply.joins.operators.state import from_state, to_state
from haply.joins.operators.times import exact_times
from haply.pruning.candidates.combinations import combine, sort_streams
from haply.pruning.candidates.windows import (
    MADE,
    MOST_STREAMS,
    PEAK,
    POLICIES,
    RULE,
    Content,
    Policy,
    TupleBatch,
    WindowCounters,
    arrive_backward,
    arrive_forward,
    closure,
    content,
    empty_state,
    funnel,
    move_backward,
    move_forward,
    put_back,
    query,
    room_to_work,
    slots_of,
    stored_keys,
)

Algorithm = Literal["auto", "backward", "forward"]
ALGORITHMS: tuple[Algorithm, ...] = ("auto", "backward", "forward")
Drop = Literal["tight", "paper"]
DROPS: tuple[Drop, ...] = ("tight", "paper")
Lookup = Literal["hash", "scan"]
LOOKUPS: tuple[Lookup, ...] = ("hash", "scan")

_AT_ONCE = 1 << 14
"""Tuples that go into one call of a kernel: room for all of them is made before the call."""
_OUTPUT = 1 << 14
"""Combinations that a kernel writes before their ids are looked up: few enough to stay in the processor's cache."""
_LEAST_ROOM = 64
_KEPT_NAMES = 1024
"""Names of keys that may be kept although no tuple has them."""


def uniform_windows(streams: Iterable[str], window: float) -> dict[tuple[str, str], float]:
    """Make a mapping with the same window between any two streams, for ``WindowJoin``.

    Parameters
    ----------
    streams
        The names of the streams.
    window
        The window.

    Returns
    -------
    dict
        The window by pair of streams.

    Examples
    --------
    >>> uniform_windows("abc", 5)
    {('a', 'b'): 5, ('a', 'c'): 5, ('b', 'c'): 5}
    """
    return dict.fromkeys(itertools.combinations(streams, 2), window)


_STATE = "window join"


@dataclass(frozen=True)
class WindowResult(PairBatch):
    """Represents combinations of one tuple for each stream.

    Attributes
    ----------
    rows
        The ids of each stream, in the order of the streams.
    ids
        The ids by the name of the stream.
    probability
        1 for each combination: times and keys are certain.
    completed_by
        The place in the batch of the tuple that completed each combination; -1 if a heartbeat or the end of a stream
        completed it.
    late
        By stream, the ids of the batch that came too late and were not joined.
    """

    completed_by: np.ndarray
    late: dict[str, np.ndarray]

    @classmethod
    def of(cls, ids: Mapping[str, np.ndarray], completed_by: np.ndarray, late: dict[str, np.ndarray]) -> WindowResult:
        """Make a result of combinations, which are sure: times and keys are certain."""
        return cls(tuple(ids.values()), np.ones(len(completed_by)), completed_by, late)

    @property
    def ids(self) -> dict[str, np.ndarray]:
        """Return the ids by stream."""
        return dict(zip(self.late, self.rows, strict=True))

    @property
    def decided_by(self) -> np.ndarray:
        """Return the name of the rule that decided."""
        return np.full(len(self), RULE)


class WindowJoin(JoinOperator):
    """Joins any number of streams by time windows: one tuple of each stream, all with one key, in every given window.

    Each combination is returned once, in whatever order tuples of different streams arrive. The rows of a batch arrive
    one after the other: sort a batch by time if its order has no meaning.

    The state holds the tuples that can still meet a tuple to come. A stream that stands still makes the state of the
    others grow: call ``heartbeat`` or ``close`` if no tuple is missing. A tuple takes 40 bytes and its id, a key some
    30 bytes and 12 for each stream. There is room for up to eight times as many, and a batch.

    Parameters
    ----------
    windows
        ``W >= 0`` by pair of streams: the times of the two are at most ``W`` apart. The pairs must connect all streams.
        ``uniform_windows`` makes the same window for all pairs.
    key
        Whether tuples have a key, which is equal in all tuples of a combination.
    algorithm
        ``"backward"`` returns a combination when its last tuple arrives. ``"forward"`` returns it when a sweep over all
        streams comes to it, which waits for the slowest stream. ``"auto"`` is ``"backward"``.
    windows_policy
        How far apart tuples are tried where windows differ. ``"exact"``: no further than all windows together allow.
        ``"local"`` and ``"global"``: further, with a test at the end, as in the paper. The result does not depend on
        it.
    max_delay
        How far time may go back within a stream: a number, or one for each stream. Tuples that are older are late. They
        are reported, and not joined.
    drop
        When ``"backward"`` drops a tuple. ``"paper"``: when all other streams have passed its windows. ``"tight"``:
        also when one stream has passed them and left no tuple of the same key in them.
    lookup
        How keys are found: ``"hash"`` by a table, ``"scan"`` by comparing them one by one. The result does not depend
        on it.
    streams
        The names of the streams in the order of the result; by default that of ``windows``.

    Raises
    ------
    HaplyError
        If an option is not known, or if the windows do not connect all streams.

    Examples
    --------
    >>> join = WindowJoin({("a", "b"): 1, ("b", "c"): 10})
    >>> for stream, time in (("a", 0), ("b", 0.5), ("b", 2)):
    ...     found = join.push(stream, {"id": [f"{stream}{time}"], "time": [time], "key": [7]})
    >>> join.push("c", {"id": ["c5"], "time": [5], "key": [7]}).ids
    {'a': array(['a0'], dtype='<U2'), 'b': array(['b0.5'], dtype='<U4'), 'c': array(['c5'], dtype='<U2')}
    """

    def __init__(
        self,
        windows: Mapping[tuple[str, str], float],
        *,
        key: bool = True,
        algorithm: Algorithm = "auto",
        windows_policy: Policy = "exact",
        max_delay: float | Mapping[str, float] = 0,
        drop: Drop = "tight",
        lookup: Lookup = "hash",
        streams: Sequence[str] = (),
    ) -> None:
        for what, name, known in (
            ("algorithm", algorithm, ALGORITHMS),
            ("policy of windows", windows_policy, POLICIES),
            ("rule to drop tuples", drop, DROPS),
            ("way to look up keys", lookup, LOOKUPS),
        ):
            if name not in known:
                raise unknown_name(what, str(name), known)
        if not isinstance(windows, Mapping):
            raise HaplyError(
                "The windows are no mapping of pairs of streams", expected="{('a', 'b'): 10}", found=repr(windows)
            )
        self.windows, self.key = dict(windows), bool(key)
        self.algorithm, self.windows_policy, self.drop, self.lookup = algorithm, windows_policy, drop, lookup
        self.streams, given = _matrix(self.windows, streams)
        self.max_delay = _delays(max_delay, self.streams)
        # "auto" is backward: no other way returns combinations earlier, and it is as fast
        self._forward = algorithm == "forward"
        self._query = query(
            given, np.array([self.max_delay[name] for name in self.streams]), windows_policy,
            forward=self._forward, scan=lookup == "scan", tight=drop == "tight",
        )  # fmt: skip
        self._closed: set[str] = set()
        self._late = dict.fromkeys(self.streams, 0)
        self._names = _KeyNames()
        self._logs = {name: _Log() for name in self.streams}
        self._state = empty_state(len(self.streams), _LEAST_ROOM, _LEAST_ROOM)
        self._work = room_to_work(len(self.streams))
        self._output = np.empty((_OUTPUT, len(self.streams) + 1), np.int64)

    # -- pushing ------------------------------------------------------------------------------------------------------

    def push(self, stream: str, batch: Columns) -> WindowResult:
        """Add tuples of one stream, and return the combinations that they complete.

        Parameters
        ----------
        stream
            The name of the stream.
        batch
            Columns by name: ``id``, ``time``, and ``key`` if the join has keys.

        Returns
        -------
        WindowResult
            The combinations that are complete now.

        Raises
        ------
        HaplyError
            If a column is missing, if columns differ in length, or if the stream is closed.
        """
        return self._arrive_at(self._number(stream), *self._columns(batch))

    def arrive(self, side: int, rows: RowBatch[Any], *, match: bool = True) -> WindowResult:
        """Push rows that the caller has checked; groups are the keys, as whole numbers.

        The rows of a batch arrive in the order of their times. Without ``match``, the combinations that they complete
        are found and left out.
        """
        rows = rows.take(np.argsort(rows.times, kind="stable"))
        found = self._arrive_at(side, rows.ids, rows.times, rows.groups.astype(np.int64))
        return found if match else self._together([])

    def _arrive_at(self, number: int, ids: np.ndarray, times: np.ndarray, keys: np.ndarray) -> WindowResult:
        return self._arrive(np.full(len(ids), number), ids, times, keys)

    def push_many(self, batch: Columns) -> WindowResult:
        """Add tuples of several streams in the order of their arrival.

        Parameters
        ----------
        batch
            Columns by name: ``stream`` (the names of the streams, or their numbers), ``id``, ``time``, and ``key`` if
            the join has keys.

        Returns
        -------
        WindowResult
            The combinations that are complete now.
        """
        if "stream" not in batch:
            raise unknown_name("column", "stream", batch)
        streams = np.atleast_1d(np.asarray(batch["stream"]))
        numbers = self._numbers(streams)
        return self._arrive(numbers, *self._columns(batch, len(streams)))

    def _columns(self, batch: Columns, rows: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        wanted = ("id", "time", "key") if self.key else ("id", "time")
        for name in wanted:
            if name not in batch:
                raise unknown_name("column", name, batch)
        columns = [np.atleast_1d(np.asarray(batch[name])) for name in wanted]
        rows = len(columns[0]) if rows is None else rows
        if any(column.shape != (rows,) for column in columns):
            raise HaplyError(
                "A batch disagrees in length",
                expected=f"{rows} values each",
                found=", ".join(f"{name} {column.shape}" for name, column in zip(wanted, columns, strict=True)),
            )
        times = exact_times(columns[1])
        if not self.key:
            return columns[0], times, np.zeros(rows, np.int64)
        if len(self._names) > 2 * self._state.keys + _KEPT_NAMES:
            self._names.forget_all_but(stored_keys(self._state))
        return columns[0], times, self._names.numbers(columns[2])

    def _number(self, stream: str) -> int:
        if stream not in self.streams:
            raise unknown_name("stream", str(stream), self.streams)
        if stream in self._closed:
            raise HaplyError(f"The stream '{stream}' is closed", hint="push before close()")
        return self.streams.index(stream)

    def _numbers(self, streams: np.ndarray) -> np.ndarray:
        if streams.dtype.kind in "iu":
            numbers = streams.astype(np.int64)
        else:
            numbers = np.full(len(streams), -1)
            for number, name in enumerate(self.streams):
                numbers[streams == name] = number
        unknown = (numbers < 0) | (numbers >= len(self.streams))
        if unknown.any():
            raise unknown_name("stream", str(streams[unknown][0]), self.streams)
        for name in self._closed:
            if (numbers == self.streams.index(name)).any():
                self._number(name)
        return numbers

    def _arrive(self, streams: np.ndarray, ids: np.ndarray, times: np.ndarray, keys: np.ndarray) -> WindowResult:
        run = arrive_forward if self._forward else arrive_backward
        late, parts = np.zeros(len(ids), np.bool_), []
        for begin in range(0, max(len(ids), 1), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            batch = TupleBatch(
                streams[some], times[some], keys[some], self._labels(streams[some], ids[some]), late[some], begin
            )
            at, unfinished = 0, True
            while unfinished:
                at = run(self._query, self._state, self._work, batch, at, self._output)
                parts.append(self._found())
                unfinished = at < len(batch.time)
        result = self._together(parts)
        if late.any():
            for number, name in enumerate(self.streams):
                result.late[name] = ids[late & (streams == number)]
                self._late[name] += len(result.late[name])
        return result

    def _labels(self, streams: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Make room for tuples, store their ids, and return the labels by which kernels know the tuples."""
        self._make_room(len(ids))
        labels = np.empty(len(ids), np.int64)
        for number, log in enumerate(self._logs.values()):
            rows = np.flatnonzero(streams == number)
            if log.room < len(rows) or _too_spacious(len(log.ids), int(self._state.stored[number])):
                slots = slots_of(self._state, number)
                log.clear_but(self._state.label[slots], len(rows))
                self._state.label[slots] = np.arange(len(slots))
            labels[rows] = log.append(ids[rows])
        return labels

    def _found(self) -> WindowResult:
        """Return the combinations that a kernel has written, by their ids."""
        found = self._output[: self._state.tally[MADE]]
        ids = {name: log.ids[found[:, number]] for number, (name, log) in enumerate(self._logs.items())}
        return WindowResult.of(ids, found[:, -1].copy(), {name: log.ids[:0] for name, log in self._logs.items()})

    def _together(self, parts: list[WindowResult]) -> WindowResult:
        if len(parts) == 1:
            return parts[0]
        none = {name: log.ids[:0] for name, log in self._logs.items()}
        ids = {name: np.concatenate([none[name], *(part.ids[name] for part in parts)]) for name in self.streams}
        completed_by = np.concatenate([np.empty(0, np.int64), *(part.completed_by for part in parts)])
        return WindowResult.of(ids, completed_by, none)

    # -- time ---------------------------------------------------------------------------------------------------------

    def heartbeat(self, stream: str, time: float) -> WindowResult:
        """Say that no earlier tuple of a stream will come; one that does is late.

        Parameters
        ----------
        stream
            The name of the stream.
        time
            The watermark of the stream.

        Returns
        -------
        WindowResult
            The combinations that are complete now.
        """
        return self._move([self._number(stream)], float(time))

    def expire(self, time: float) -> WindowResult:
        """Say that no earlier tuple of any stream will come; one that does is late.

        Parameters
        ----------
        time
            The watermark of all streams.

        Returns
        -------
        WindowResult
            The combinations that are complete now.
        """
        return self._move(range(len(self.streams)), float(time))

    def advance(self, watermark: float) -> WindowResult:
        """See ``JoinOperator``."""
        return self.expire(watermark)

    def needed_from(self, side: int, watermark: float) -> float:
        """See ``JoinOperator``."""
        windows = closure(self._query.given)[side]
        return forgotten_before(watermark, float(windows.max()))

    def close(self, stream: str) -> WindowResult:
        """Say that a stream is complete.

        Parameters
        ----------
        stream
            The name of the stream.

        Returns
        -------
        WindowResult
            The combinations that are complete now.
        """
        number = self._number(stream)
        self._closed.add(stream)
        return self._move([number], np.inf)

    def _move(self, streams: Iterable[int], time: float) -> WindowResult:
        if np.isnan(time):
            raise HaplyError("A time is NaN", expected="a number")
        move = move_forward if self._forward else move_backward
        parts = []
        for number in streams:
            unfinished = True
            while unfinished:
                move(self._query, self._state, self._work, number, time, self._output)
                parts.append(self._found())
                unfinished = len(parts[-1]) == len(self._output)
        return self._together(parts)

    # -- room ---------------------------------------------------------------------------------------------------------

    def _make_room(self, coming: int) -> None:
        """Make room for this many more tuples, if necessary in new arrays that have as much room again as is stored.

        The cost of moving is thus paid by the tuples that came since the last move. Room that was taken during a stall
        is given back.
        """
        state = self._state
        if state.room < coming or _too_spacious(len(state.time), int(state.stored.sum())):
            self._move_in([content(state, number) for number in range(len(self.streams))], state.keys, coming)

    def _move_in(self, contents: list[Content], keys: int, coming: int) -> None:
        stored, old = sum(len(each.time) for each in contents), self._state
        slots, rows = (max(_LEAST_ROOM, 2 * kept + coming) for kept in (stored, keys))
        self._state = empty_state(len(self.streams), slots, rows)
        self._state.floor[:], self._state.tally[:] = old.floor, old.tally
        for number, each in enumerate(contents):
            put_back(self._query, self._state, number, each)

    # -- reporting ----------------------------------------------------------------------------------------------------

    @property
    def closure(self) -> dict[tuple[str, str], float]:
        """Return the window between any two streams that follows from the given ones."""
        shortest = closure(self._query.given)
        pairs = itertools.combinations(range(len(self.streams)), 2)
        return {(self.streams[i], self.streams[j]): float(shortest[i, j]) for i, j in pairs}

    @property
    def funnel(self) -> WindowCounters:
        """Return counters of the combinations that were tried.

        Returns
        -------
        WindowCounters
            The combinations that were tried, and those that were kept.
        """
        return funnel(self._state)

    @property
    def late(self) -> dict[str, int]:
        """Return how many tuples of each stream came too late to be joined."""
        return dict(self._late)

    @property
    def stored(self) -> dict[str, int]:
        """Return how many tuples of each stream are kept."""
        return dict(zip(self.streams, self._state.stored.tolist(), strict=True))

    @property
    def stored_bytes(self) -> int:
        """Memory that tuples take, room for new ones included."""
        return self._state.nbytes + sum(log.ids.nbytes for log in self._logs.values())

    @property
    def peak(self) -> int:
        """Return the largest number of tuples that were kept at a time."""
        return int(self._state.tally[PEAK])

    def snapshot(self) -> bytes:
        """Return the state of the operator as bytes.

        Returns
        -------
        bytes
            Arrow IPC with a format version, for ``restore``.
        """
        settings = {
            "windows": self.windows, "key": self.key, "algorithm": self.algorithm,
            "windows_policy": self.windows_policy, "max_delay": self.max_delay, "drop": self.drop,
            "lookup": self.lookup, "streams": self.streams,
        }  # fmt: skip
        state, contents = self._state, []
        for number, log in enumerate(self._logs.values()):
            times, keys, labels, pending = content(state, number)
            contents.append((times, keys, log.ids[labels], pending))
        self._names.forget_all_but(stored_keys(state))
        names = vars(self._names)
        return to_state(_STATE, (settings, contents, state.floor, state.tally, self._closed, self._late, names))

    @classmethod
    def restore(cls, state: bytes) -> WindowJoin:
        """Make the operator whose state was written by ``snapshot``.

        Parameters
        ----------
        state
            What ``snapshot`` returned.

        Returns
        -------
        WindowJoin
            An operator that continues where the other one was.

        Raises
        ------
        HaplyError
            If the bytes are no state of such an operator, or of another version of the format.
        """
        settings, stored, floor, tally, closed, late, names = from_state(_STATE, state)
        join = cls(settings.pop("windows"), **settings)
        join._state.floor[:], join._state.tally[:] = floor, tally
        join._closed, join._late = closed, late
        vars(join._names).update(names)
        contents = []
        for name, (times, keys, ids, pending) in zip(join.streams, stored, strict=True):
            join._logs[name] = _Log(ids)
            contents.append(Content(times, keys, np.arange(len(ids)), pending))
        join._move_in(contents, len(np.unique(np.concatenate([each.key for each in contents]))), 0)
        return join


def join_windows(
    windows: Mapping[tuple[str, str], float], streams: Mapping[str, Columns], *, key: bool = True
) -> WindowResult:
    """Find the combinations of streams that are complete, faster than ``WindowJoin`` does.

    Parameters
    ----------
    windows
        The largest difference of times by pair of streams, as for ``WindowJoin``.
    streams
        A batch for each stream, as ``WindowJoin.push`` takes it, in any order of time.
    key
        Whether tuples have a key, which is equal in all tuples of a combination.

    Returns
    -------
    WindowResult
        All combinations.

    Raises
    ------
    HaplyError
        If a stream is not known or missing, or if the windows do not connect all streams.

    Examples
    --------
    >>> streams = {"a": {"id": [1, 2], "time": [0, 9], "key": [7, 7]}, "b": {"id": [5], "time": [8], "key": [7]}}
    >>> join_windows({("a", "b"): 2}, streams).ids
    {'a': array([2]), 'b': array([5])}
    """
    join = WindowJoin(windows, key=key)
    for name in (*streams, *join.streams):
        if name not in join.streams or name not in streams:
            raise unknown_name("stream", name, join.streams if name not in join.streams else streams)
    return _combined(join, [join._columns(streams[name]) for name in join.streams])


def combine_tables(
    windows: Mapping[tuple[str, str], float],
    tables: Mapping[str, RowBatch[Any]],
    algorithm: Algorithm = "auto",
    windows_policy: Policy = "exact",
) -> WindowResult:
    """Return the combinations of tables by row numbers, for callers that have checked their rows.

    The papers' algorithms take the rows of each table in the order of their times; ``auto`` takes all at once.
    """
    join = WindowJoin(
        windows, max_delay=ANY_DELAY, algorithm=algorithm, windows_policy=windows_policy, streams=tuple(tables)
    )
    if algorithm == "auto":
        return _combined(join, [(rows.ids, rows.times, rows.groups.astype(np.int64)) for rows in tables.values()])
    parts = [join.arrive(number, rows) for number, rows in enumerate(tables.values())]
    return join._together([*parts, join.advance(np.inf)])


def _combined(join: WindowJoin, columns: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> WindowResult:
    """Find all combinations at once: ``columns`` has ids, times and keys of each stream."""
    ids, times, keys = (list(column) for column in zip(*columns, strict=True))
    # ids that are integers are written directly; others are looked up at the end
    plain = all(own.dtype == np.int64 for own in ids)
    labels = [own if plain else np.arange(len(own)) for own in ids]
    if min(map(len, ids)) == 0:
        found = np.empty((len(ids), 0), np.int64)
    else:
        found = combine(join._query, sort_streams(times, keys, labels))
    named = {
        name: found[number] if plain else own.take(found[number])
        for number, (name, own) in enumerate(zip(join.streams, ids, strict=True))
    }
    none_late = {name: own[:0] for name, own in zip(join.streams, ids, strict=True)}
    return WindowResult.of(named, np.full(found.shape[1], -1), none_late)


def _matrix(windows: Mapping[tuple[str, str], float], first: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the streams in the order in which they are named, and their windows as a matrix, infinite if not given."""
    for pair in windows:
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair)):
            raise HaplyError("A window is not one of two streams", expected="pairs as ('a', 'b')", found=repr(pair))
    streams = tuple(dict.fromkeys((*first, *(name for pair in windows for name in pair))))
    given = np.where(np.eye(len(streams), dtype=bool), 0.0, np.inf)
    for (one, other), window in windows.items():
        i, j = streams.index(one), streams.index(other)
        if i == j:
            raise HaplyError(f"The stream '{one}' is paired with itself", expected="windows between two streams")
        checked_length(f"The window of '{one}' and '{other}'", window)
        if given[i, j] not in (np.inf, window):
            raise HaplyError(
                f"The streams '{one}' and '{other}' have two windows",
                expected="one for each pair",
                found=f"{given[i, j]:g} and {window:g}",
            )
        given[i, j] = given[j, i] = window
    if not 2 <= len(streams) <= MOST_STREAMS:
        raise HaplyError(
            "A window join has too few or too many streams", expected=f"2 to {MOST_STREAMS}", found=str(len(streams))
        )
    apart = [name for name, window in zip(streams, closure(given)[0], strict=True) if np.isinf(window)]
    if apart:
        raise HaplyError(
            "The windows do not connect all streams",
            expected=f"a path of windows from '{streams[0]}' to every stream",
            found=f"none to {', '.join(apart)}",
            hint="without a window no tuple could ever be dropped; give one that is long enough",
        )
    return streams, given


def _delays(max_delay: float | Mapping[str, float], streams: tuple[str, ...]) -> dict[str, float]:
    delays = dict(max_delay) if isinstance(max_delay, Mapping) else dict.fromkeys(streams, max_delay)
    for name, delay in delays.items():
        if name not in streams:
            raise unknown_name("stream", str(name), streams)
        checked_length(f"The max_delay of '{name}'", delay)
    return {name: float(delays.get(name, 0.0)) for name in streams}


def _too_spacious(room: int, stored: int) -> bool:
    return room > 8 * stored + 4 * _AT_ONCE


class _Log:
    """Holds the ids of a stream's tuples, in the order of their arrival: kernels know a tuple by its place here."""

    def __init__(self, ids: np.ndarray | None = None) -> None:
        self.ids = np.empty(_LEAST_ROOM, np.int64) if ids is None else ids
        self._count = 0 if ids is None else len(ids)

    @property
    def room(self) -> int:
        """Return how many more ids there is room for."""
        return len(self.ids) - self._count

    def clear_but(self, places: np.ndarray, coming: int) -> None:
        """Keep the ids in these places, in this order, and make room for more."""
        kept = self.ids[places]
        self.ids, self._count = np.empty(max(_LEAST_ROOM, 4 * len(kept) + coming), kept.dtype), len(kept)
        self.ids[: len(kept)] = kept

    def append(self, ids: np.ndarray) -> np.ndarray:
        """Add ids, for which there must be room; return their places."""
        begin, end = self._count, self._count + len(ids)
        if len(ids) and ids.dtype != self.ids.dtype:
            kept = self.ids[:begin]
            self.ids = np.empty(len(self.ids), np.result_type(ids, kept) if begin else ids.dtype)
            self.ids[:begin] = kept
        self.ids[begin:end], self._count = ids, end
        return np.arange(begin, end)


class _KeyNames:
    """Turns keys into integers: integers stay, other keys get numbers, which are forgotten when no tuple has them."""

    def __init__(self) -> None:
        self._kind, self._last = "", 0
        self._numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, keys: np.ndarray) -> np.ndarray:
        """Return the integers of keys. A missing key (None) is equal to no other."""
        if not len(keys):
            return np.empty(0, np.int64)
        kind = "integers" if keys.dtype.kind in "iub" else "text"
        if self._kind not in ("", kind):
            raise HaplyError("Keys are integers in one batch and text in another", expected=self._kind, found=kind)
        numbers = self._checked(keys) if kind == "integers" else self._numbered(keys)
        self._kind = kind
        return numbers

    def forget_all_but(self, used: np.ndarray) -> None:
        """Forget the numbers that are not among these."""
        kept = set(used.tolist())
        self._numbers = {name: number for name, number in self._numbers.items() if number in kept}

    def _checked(self, keys: np.ndarray) -> np.ndarray:
        if keys.dtype == np.uint64 and keys.max() > np.iinfo(np.int64).max:
            raise HaplyError("A key is too large", expected="integers below 2**63", found=str(keys.max()))
        return keys.astype(np.int64)

    def _numbered(self, keys: np.ndarray) -> np.ndarray:
        try:
            encoded = pa.array(keys).dictionary_encode()
        except pa.ArrowException as error:
            raise HaplyError("Keys are of several kinds", expected="integers or text", found=str(error)) from None
        known = np.array([*map(self._number, encoded.dictionary.to_pylist()), 0])
        places = encoded.indices.fill_null(-1).to_numpy()
        numbers, missing = known[places], np.flatnonzero(places < 0)
        numbers[missing] = self._last + 1 + np.arange(len(missing))
        self._last += len(missing)
        return numbers

    def _number(self, name: Any) -> int:
        if name not in self._numbers:
            self._last += 1
            self._numbers[name] = self._last
        return self._numbers[name]
