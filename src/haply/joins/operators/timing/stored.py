"""Events of one side of a timing join: new ones, and those that are kept, with their shapes and models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from haply.models import OneDimensional
from haply.models.columns import stacked
from haply.pruning.bounds.timing.meeting import Events, drop_before, insert
from haply.pruning.bounds.timing.shapes import AT, CORE_START, GROUP, LATEST, ShapeList
from haply.pruning.threshold import Pairing, Threshold

MOST_SHAPES = 1024
"""Most shapes of a side that several events may share; a further shape is kept with its event, and gets no table."""
_LEAST_ROOM = 64
_FEW_CHUNKS = 8
"""The most models in which the events of a side are looked up one after the other: more models are merged first."""
_SMALL_CHUNK = 256
"""Rows that cost less to copy than to look up in a model of their own."""
_LATEST = 1.0 - 1e-12


def latest_times(model: OneDimensional) -> np.ndarray:
    """Return the latest possible time of each event, or if there is none, a time that it almost surely precedes."""
    return model.support()[1] if model.bounded else model.quantile(_LATEST)


def reach_back(model: OneDimensional, threshold: Threshold) -> float:
    """Return the largest distance from an event's latest time back to the start of its core."""
    start, _, latest = _facts_of(model, threshold, np.zeros(len(model)))
    return float((latest - start).max(initial=0.0))


def last_times(model: OneDimensional, threshold: Threshold) -> np.ndarray:
    """Return the time at which each event ends: its latest time, or the end of its core if that is later."""
    _, end, latest = _facts_of(model, threshold, np.zeros(len(model)))
    return np.maximum(end, latest)


@dataclass
class NewEvents:
    """Holds new events in the order of their places: their facts, shapes, and row numbers in the model."""

    facts: np.ndarray
    shape: np.ndarray
    row: np.ndarray
    model: OneDimensional

    @property
    def events(self) -> Events:
        """Return what the kernel needs of the events."""
        group, at, core_start, core_end, _ = self.facts
        return Events(group, at, core_start, core_end, self.shape)

    @property
    def extent(self) -> tuple[list[float], list[float]]:
        """Return the smallest and the largest value of each fact."""
        if len(self.row) == 1:  # single events come often, and reducing arrays takes long
            only = self.facts[:, 0].tolist()
            return only, only
        return self.facts.min(axis=1, initial=np.inf).tolist(), self.facts.max(axis=1, initial=-np.inf).tolist()

    def take(self, rows: np.ndarray) -> NewEvents:
        """Return some of the events. Each fact stays contiguous: for another layout kernels would be compiled again."""
        return NewEvents(self.facts.take(rows, axis=1), self.shape[rows], self.row[rows], self.model)


def _facts_of(model: OneDimensional, threshold: Threshold, at: np.ndarray) -> np.ndarray:
    """Return the start and end of the core, and the latest time, as differences to the place."""
    level = threshold.core_level(Pairing.ANY)
    return np.stack([model.quantile_low(level), model.quantile_high(level), latest_times(model)]) - at


_SHAPE, _LABEL, CHUNK, ROW = range(4)
"""Integers of a stored event: its shape, its id (or the place of its id), its model, and its row in the model."""


class StoredEvents:
    """Stores the events of one side, in the order of place, in arrays with room at the end."""

    def __init__(self, threshold: Threshold) -> None:
        self._threshold, self._level = threshold, threshold.core_level(Pairing.ANY)
        self.shapes = ShapeList()
        self.templates = 0
        self.count = 0
        self.facts, self.codes = np.empty((LATEST, _LEAST_ROOM)), np.empty((4, _LEAST_ROOM), np.int64)
        self._names: np.ndarray | None = None
        """Ids by their labels; None while all ids are integers, which are their own labels."""
        self._named = 0
        self.chunks: dict[int, OneDimensional] = {}
        self.newest, self.forgotten, self.late, self.cut_short = -np.inf, -np.inf, 0, 0
        self.reach, self.template_reach = 0.0, 0.0
        self._following = 0
        self._in_chunks, self._most_in_chunks = 0, _SMALL_CHUNK
        self._alone = 0

    def describe(self, model: OneDimensional, keys: np.ndarray | None = None) -> NewEvents:
        """Return the facts and shapes of new events, in the order of their places."""
        if self.shapes.unshared > 2 * self.count + _SMALL_CHUNK:
            self._forget_shapes()
        shape, facts = self.shapes.describe(model, MOST_SHAPES - self.shapes.count, self._level, keep_unshared=True)
        loose = np.flatnonzero(shape < 0) if len(shape) != 1 or shape[0] < 0 else shape[:0]
        if len(loose):
            some = model.take(loose) if len(loose) < len(shape) else model
            latest = latest_times(some)
            facts[AT, loose] = latest
            facts[CORE_START:, loose] = _facts_of(some, self._threshold, latest)
            facts[LATEST, loose] = latest
        facts[GROUP] = 0.0 if keys is None else keys
        new = NewEvents(facts, shape, np.arange(len(shape)), model)
        if len(shape) == 1:
            return new
        grouped, at = bool(facts[GROUP].any()), facts[AT]
        if not grouped and (at[1:] >= at[:-1]).all():
            return new
        return new.take(np.lexsort((at, facts[GROUP])) if grouped else np.argsort(at, kind="stable"))

    # -- what is stored ------------------------------------------------------------------------------------------------

    @property
    def events(self) -> Events:
        """Return what the kernel needs of the events."""
        group, at, core_start, core_end = self.facts[:, : self.count]
        return Events(group, at, core_start, core_end, self.codes[_SHAPE, : self.count])

    @property
    def labels(self) -> np.ndarray:
        """Return for each event its id, if that is an integer, or the place of its id."""
        return self.codes[_LABEL, : self.count]

    @property
    def ids(self) -> np.ndarray:
        """Return the id of each event."""
        return self.ids_of(self.labels.copy())

    @property
    def no_ids(self) -> np.ndarray:
        """Return an empty array of the type of the ids."""
        return np.empty(0, np.int64) if self._names is None else self._names[:0]

    def ids_of(self, labels: np.ndarray) -> np.ndarray:
        """Return the ids that have these labels."""
        return labels if self._names is None else self._names[labels]

    @property
    def all_shared(self) -> bool:
        """Return whether the shapes of all stored events are shapes that others may share."""
        return self._alone == 0

    def insert(self, ids: np.ndarray, new: NewEvents) -> None:
        """Put new events among the others."""
        more = len(new.row)
        if not more:
            return
        if self.count + more > self.facts.shape[1]:
            self._make_room(more)
        codes = np.empty((4, more), np.int64)
        codes[_SHAPE], codes[_LABEL], codes[CHUNK], codes[ROW] = (
            new.shape, self._labelled(ids[new.row]), self._following, new.row,
        )  # fmt: skip
        insert(self.facts, self.codes, self.count, new.facts, codes)
        self.count += more
        self._alone += self._count_alone(new.shape)
        self.chunks[self._following] = new.model
        self._following += 1
        self._in_chunks += len(new.model)
        if self._in_chunks > self._most_in_chunks:
            self._forget_chunks()

    def _make_room(self, more: int) -> None:
        room = 2 * (self.count + more)
        facts, codes = np.empty((LATEST, room)), np.empty((4, room), np.int64)
        facts[:, : self.count], codes[:, : self.count] = self.facts[:, : self.count], self.codes[:, : self.count]
        self.facts, self.codes = facts, codes

    def _labelled(self, ids: np.ndarray) -> np.ndarray:
        """Return labels for new ids; relabel stored ids as well if the new ones are the first that are not integers."""
        if self._names is None and (ids.dtype == np.int64 or not self.count):
            if ids.dtype == np.int64:
                return ids
            self._names, self._named = ids[:0], 0
        if self._names is None or self._named + len(ids) > len(self._names) or ids.dtype != self._names.dtype:
            kept = self.ids
            self.codes[_LABEL, : self.count] = np.arange(self.count)
            self._named = self.count
            kind = np.result_type(kept, ids) if self.count else ids.dtype
            self._names = np.empty(2 * (self.count + len(ids)), kind)
            self._names[: self.count] = kept
        begin, self._named = self._named, self._named + len(ids)
        self._names[begin : self._named] = ids
        return np.arange(begin, self._named)

    def _count_alone(self, shape: np.ndarray) -> int:
        """Count the events whose shape no other event may share."""
        if len(shape) == 1:
            return int(not 0 <= shape[0] < self.shapes.count)
        if not self.shapes.unshared and not (shape < 0).any():
            return 0
        return int(((shape < 0) | (shape >= self.shapes.count)).sum())

    def forget_before(self, place: float) -> None:
        """Forget events whose place is before this one."""
        if not self.count:
            return
        kept, forgotten = drop_before(self.facts, self.codes, self.count, place)
        if kept == self.count:
            return
        self.count, self.forgotten = kept, max(self.forgotten, forgotten)
        if self._alone:
            self._alone = self._count_alone(self.codes[_SHAPE, :kept])
        if not kept:
            self.chunks, self._in_chunks = {}, 0
        if 8 * kept + _SMALL_CHUNK < self.facts.shape[1]:
            self._make_room(kept)

    def _forget_chunks(self) -> None:
        """Forget models that have no event left."""
        used = set(np.unique(self.codes[CHUNK, : self.count]).tolist())
        self.chunks = {number: model for number, model in self.chunks.items() if number in used}
        self._in_chunks = sum(map(len, self.chunks.values()))
        self._most_in_chunks = 2 * self._in_chunks + _SMALL_CHUNK

    def _forget_shapes(self) -> None:
        """Forget shapes of events that are gone."""
        shape = self.codes[_SHAPE, : self.count]
        alone = np.flatnonzero(shape >= self.shapes.count)
        used = np.sort(shape[alone])
        shape[alone] = self.shapes.count + np.searchsorted(used, shape[alone])
        self.shapes.keep_unshared(used)

    def join_chunks(self, slots: np.ndarray) -> None:
        """Merge the models of these events, if they are many small ones of a kind.

        They are merged like the parts of a ``TwoSidedJoin``: no row of a large model was copied more often than the
        number of rows has binary digits.
        """
        if len(np.unique(self.codes[CHUNK, slots])) <= _FEW_CHUNKS:
            return
        self._forget_chunks()
        by_kind: dict[type[OneDimensional], list[int]] = {}
        for number, model in self.chunks.items():
            by_kind.setdefault(type(model), []).append(number)
        for numbers in by_kind.values():
            while len(numbers) > 1:
                size, first = len(self.chunks[numbers[-1]]), len(numbers) - 1
                while first and (
                    size + len(self.chunks[numbers[first - 1]]) <= _SMALL_CHUNK
                    or 2 * size > len(self.chunks[numbers[first - 1]])
                ):
                    first -= 1
                    size += len(self.chunks[numbers[first]])
                if first == len(numbers) - 1:
                    break
                self._join(numbers[first:])
                numbers[first:] = [numbers[first]]

    def _join(self, numbers: list[int]) -> None:
        """Replace several models by one, without rows that have no event left."""
        chunk, row = self.codes[CHUNK, : self.count], self.codes[ROW, : self.count]
        mine = np.flatnonzero(np.isin(chunk, numbers))
        before = np.zeros(max(numbers) + 1, np.int64)
        before[numbers] = np.cumsum([0, *(len(self.chunks[number]) for number in numbers)])[:-1]
        together = stacked([self.chunks.pop(number) for number in numbers])
        self.chunks[numbers[0]] = together.take(before[chunk[mine]] + row[mine])
        chunk[mine], row[mine] = numbers[0], np.arange(len(mine))

    def snapshot(self) -> Any:
        """Return the state that ``recall`` needs."""
        parts = []
        self._forget_chunks()
        self.join_chunks(np.arange(self.count))
        ids, (group, chunk, row) = self.ids, (self.facts[GROUP], self.codes[CHUNK], self.codes[ROW])
        for number, model in self.chunks.items():
            mine = np.flatnonzero(chunk[: self.count] == number)
            parts.append((ids[mine], model.take(row[mine]), group[mine]))
        return parts, self.newest, self.forgotten, self.late, self.reach

    def recall(self, state: Any) -> None:
        """Store the events of a snapshot."""
        parts, self.newest, self.forgotten, self.late, self.reach = state
        for ids, model, keys in parts:
            self.insert(ids, self.describe(model, keys))
