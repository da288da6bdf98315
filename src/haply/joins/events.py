"""Find the last event before each time, for rows of two sides that have times, and keys that must be equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.joins.cells.join import shared_codes
from haply.joins.cells.rows import USABLE, row_states
from haply.models import OneDimensional
from haply.models.columns import view_column
from haply.probability.events.last import event_candidates, last_events
from haply.probability.events.nearest import nearest_candidates, nearest_events

Direction = Literal["backward", "forward", "nearest"]
"""Which event is asked for: the last at or before a time, the first at or after it, or the nearest to it."""


class FoundEvents(NamedTuple):
    """Pairs of a left row and an event, by row numbers, with the probability that the event is the one asked for."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    some: np.ndarray
    """For each left row the probability that there is an event at all."""


@dataclass(frozen=True)
class LastEvent:
    """A query for events: see ``last_events`` and ``nearest_events``."""

    lookback: float | None
    direction: Direction
    tolerance: float

    def pairs(
        self, left: pa.Table, right: pa.Table, times: tuple[str, str], keys: int, names: list[str]
    ) -> FoundEvents:
        """Find the events of all left rows.

        Tables have columns ``__key0``, ``__key1``, ... of their keys. ``names`` are right columns that order events of
        equal times: the last of these counts.
        """
        usable = [_usable(table, time, keys) for table, time in zip((left, right), times, strict=True)]
        some = np.zeros(left.num_rows)
        empty = np.empty(0, np.int64)
        if not all(len(rows) for rows in usable):
            return FoundEvents(empty, empty, np.empty(0), some)
        sides = [table.take(pa.array(rows)) for table, rows in zip((left, right), usable, strict=True)]
        mine, theirs = (view_column(side[time].combine_chunks()) for side, time in zip(sides, times, strict=True))
        assert isinstance(mine, OneDimensional)
        assert isinstance(theirs, OneDimensional)
        codes = _codes(sides[0], sides[1], keys)
        rank = _ranks(sides[1], names)
        near: Any = {"tolerance": self.tolerance, "lookback": self.lookback}
        if self.direction == "nearest":
            start, candidates = nearest_candidates(mine, theirs, left_key=codes[0], right_key=codes[1], **near)
            found = nearest_events(mine, theirs, start, candidates, rank=rank[candidates], lookback=self.lookback)
        else:
            start, candidates = event_candidates(
                mine, theirs, left_key=codes[0], right_key=codes[1], direction=self.direction, **near
            )
            found = last_events(
                mine, theirs, start, candidates, rank=rank[candidates], lookback=self.lookback,
                direction=self.direction,
            )  # fmt: skip
        some[usable[0]] = np.clip(1.0 - found.none, 0.0, 1.0)
        owner = np.repeat(np.arange(len(mine)), np.diff(start))
        likely = np.flatnonzero(found.probability > 0.0)
        return FoundEvents(
            usable[0][owner[likely]], usable[1][candidates[likely]], np.minimum(found.probability[likely], 1.0), some
        )


def _usable(table: pa.Table, time: str, keys: int) -> np.ndarray:
    states, _ = row_states(table[time], None)
    usable = states == USABLE
    for key in range(keys):
        usable &= np.asarray(table[f"__key{key}"].is_valid())
    return np.flatnonzero(usable)


def _codes(left: pa.Table, right: pa.Table, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the rows of both sides so that rows have the same number if all their keys are equal."""
    if not keys:
        return np.zeros(left.num_rows, np.int64), np.zeros(right.num_rows, np.int64)
    columns = [(left[f"__key{key}"], right[f"__key{key}"]) for key in range(keys)]
    return shared_codes([(one, other.cast(one.type)) for one, other in columns])


def _ranks(events: pa.Table, names: list[str]) -> np.ndarray:
    """Number events in the order of columns, then of their place."""
    if not names:
        return np.arange(events.num_rows, dtype=np.float64)
    columns: dict[str, pa.ChunkedArray] = {}
    for number, name in enumerate(names):  # nulls first: an event without a value does not come before others
        columns |= {f"known{number}": events[name].is_valid(), f"value{number}": events[name]}
    order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
    ranks = np.empty(events.num_rows)
    ranks[order.to_numpy()] = np.arange(events.num_rows)
    return ranks
