"""Operators that take two sides batch by batch: what they store, how they merge small batches, and what they forget."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Generic, Self, TypeVar

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.joins.operators.meeting import TimedRows
from haply.joins.operators.operator import (
    SIDES,
    Columns,
    JoinOperator,
    RowBatch,
    SideName,
    check_side,
    forgotten_before,
    other_side,
)
from haply.joins.operators.state import from_state, to_state
from haply.joins.operators.times import exact_times
from haply.models import Model
from haply.pruning.cascade import Counters

_FEW = 256
"""Rows that cost less to copy than to match as a part of their own."""
_MOST_JOINED = 1 << 13
"""The most rows of a part that is merged from smaller ones: larger parts cost more to copy than to match one by one."""

_Rows = TypeVar("_Rows", bound=TimedRows[Any])
_Result = TypeVar("_Result")


def checked_length(what: str, value: Any, *, finite: bool = True) -> float:
    """Return a window or delay as a number, in the unit of the times; refuse anything but a number >= 0."""
    is_number = isinstance(value, (Real, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    if is_number and value >= 0 and not (finite and np.isinf(value)):
        return value
    hint = ""
    if isinstance(value, str):
        hint = "operators count in the unit of the times; hp.join and hp.window_join take durations"
    elif isinstance(value, (tuple, list)):
        hint = "give one number: the times are at most that far apart, whichever is the earlier"
    raise HaplyError(
        f"{what} is no length of time",
        expected=f"a{' finite' if finite else ''} number >= 0",
        found=repr(value),
        hint=hint,
    )


@dataclass
class Stored(Generic[_Rows]):
    """Holds rows that wait for others, and an index of them if the join uses one, made when they are first matched."""

    rows: _Rows
    index: Any = None


class TwoSidedJoin(JoinOperator, Generic[_Rows, _Result]):
    """Joins two sides that are pushed in batches; each pair is found when its later row comes.

    A push is matched with all stored parts of the other side. To keep the number of parts small, the newest part is
    merged with the one before it while both are small, or while it is more than half as large. There are then about as
    many parts as the number of rows has binary digits, and no row was copied more often than that.
    """

    window: float | None
    _funnel: Counters
    _joins_parts = True
    """Whether small parts are merged into larger ones; parts with an index are not."""

    def __init__(self, window: float | None) -> None:
        self.window = None if window is None else checked_length("The window", window, finite=False)
        self._stored: dict[str, list[Stored[_Rows]]] = {"left": [], "right": []}
        self._closed: set[str] = set()

    # -- what depends on the join -------------------------------------------------------------------------------------

    @abstractmethod
    def _match(self, added: _Rows, stored: Stored[_Rows], side: SideName) -> _Result:
        """Return the pairs of new rows of a side with stored rows."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return the arguments that make an operator like this one."""

    def _parts(self, rows: _Rows) -> Iterable[_Rows]:
        """Return the parts in which new rows are stored."""
        return [rows]

    # -- arriving -----------------------------------------------------------------------------------------------------

    def _read(self, side: str, batch: Columns, column: str, model_of: Callable[[Any], Model]) -> RowBatch[Any]:
        """Return a pushed batch as rows; refuse a batch with missing columns or columns that differ in length."""
        check_side(side)
        if side in self._closed:
            raise HaplyError(f"The {side} side is closed", hint="push before close()")
        for name in ("id", column, *(() if self.window is None else ("time",))):
            if name not in batch:
                raise unknown_name("column", name, batch)
        ids, model = np.asarray(batch["id"]), model_of(batch[column])
        times = np.zeros(len(ids)) if self.window is None else exact_times(batch["time"])
        for what, count in (("values", len(model)), ("times", len(times))):
            if count != len(ids):
                raise HaplyError("A batch disagrees in length", expected=f"{len(ids)} {what}", found=str(count))
        return RowBatch.of(ids, model, times)

    def _arrive(self, side: SideName, added: _Rows, match: bool) -> list[_Result]:
        """Match new rows with stored ones if ``match``, and store them; leave out hopeless rows."""
        possible = np.flatnonzero(~added.intervals.hopeless)
        if len(possible) < len(added):
            added = added.take(possible)
        other = other_side(side)
        found = [self._match(added, stored, side) for stored in self._stored[other]] if match and len(added) else []
        if other not in self._closed:
            for part in self._parts(added):
                if len(part):
                    self._store(self._stored[side], part)
        return found

    def _store(self, parts: list[Stored[_Rows]], rows: _Rows) -> None:
        while self._joins_parts and parts:
            older = parts[-1].rows
            many = len(rows) + len(older)
            if many > _MOST_JOINED or (many > _FEW and 2 * len(rows) <= len(older)) or not older.is_like(rows):
                break
            rows = older.followed_by(rows)
            parts.pop()
        parts.append(Stored(rows))

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def expire(self, time: float) -> None:
        """Say that no earlier row will come, and forget rows that no later row can meet.

        Without a window nothing is forgotten. Rows of a part are removed when at least half of them are too old; a part
        with an index is removed only as a whole.

        Parameters
        ----------
        time
            The watermark: no row of either side with an earlier time will be pushed.
        """
        if self.window is not None:
            before = forgotten_before(time, self.window)
            for side, parts in self._stored.items():
                left = [_alive(part, before) for part in parts]
                self._stored[side] = [part for part in left if len(part.rows)]

    def needed_from(self, side: int, watermark: float) -> float:
        """See ``JoinOperator``."""
        return -np.inf if self.window is None else forgotten_before(watermark, self.window)

    def close(self, side: SideName) -> None:
        """Say that a side is complete: rows of the other side are no longer kept.

        Parameters
        ----------
        side
            ``"left"`` or ``"right"``.
        """
        check_side(side)
        self._closed.add(side)
        self._stored[other_side(side)].clear()

    # -- reporting ----------------------------------------------------------------------------------------------------

    def ids(self, side: SideName) -> np.ndarray:
        """Return the ids of the stored rows of a side."""
        return np.concatenate([part.rows.ids for part in self._stored[side]] or [np.empty(0, np.int64)])

    @property
    def funnel(self) -> Counters:
        """Return what became of the candidates.

        Returns
        -------
        Counters
            The candidates, those that each rule rejected or accepted, those evaluated exactly, and the pairs kept.
        """
        return self._funnel

    @property
    def stored_bytes(self) -> int:
        """Memory that rows take."""
        return sum(part.rows.nbytes for parts in self._stored.values() for part in parts)

    @classmethod
    def _state_name(cls) -> str:
        return f"{cls.__name__} operator"

    def snapshot(self) -> bytes:
        """Return the state of the operator as bytes.

        Returns
        -------
        bytes
            Arrow IPC with a format version, for ``restore``.
        """
        stored = {side: [part.rows.columns for part in parts] for side, parts in self._stored.items()}
        return to_state(self._state_name(), (self._settings(), stored, self._closed, self._funnel))

    @classmethod
    def restore(cls, state: bytes) -> Self:
        """Make the operator whose state was written by ``snapshot``.

        Parameters
        ----------
        state
            What ``snapshot`` returned.

        Returns
        -------
        TwoSidedJoin
            An operator that continues where the other one was.

        Raises
        ------
        HaplyError
            If the bytes are no state of such an operator, or of another version of the format.
        """
        settings, stored, closed, funnel = from_state(cls._state_name(), state)
        join: Any = cls(**settings)
        for side, parts in stored.items():
            for columns in parts:
                join.arrive(SIDES.index(side), RowBatch(*columns), match=False)
        join._closed, join._funnel = closed, funnel
        return join


def _alive(part: Stored[_Rows], before: float) -> Stored[_Rows]:
    """Return a part without earlier rows if they are at least half of it; parts with an index stay or go as a whole."""
    alive = np.flatnonzero(part.rows.times >= before)
    if 2 * len(alive) > len(part.rows) or (part.index is not None and len(alive)):
        return part
    return Stored(part.rows.take(alive))
