"""Select rows of one Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from haply.joins.cells.rows import NULL, USABLE, row_states
from haply.selection.conditions import RowValues
from haply.selection.select import FollowedRow, Selection


class Decided(NamedTuple):
    """What became of each row: whether it is kept, with what probability, decided by which rule, and its state."""

    kept: np.ndarray
    probability: np.ndarray
    code: np.ndarray
    state: np.ndarray


@dataclass(frozen=True)
class SelectRows:
    """Decides the rows of a batch."""

    selection: Selection
    names: tuple[str, ...]
    """Uncertain columns, by their names in the conditions."""
    numbers: tuple[str, ...]
    """Certain numbers that the conditions need."""
    called: tuple[str, ...] | None
    """Names of the columns in the error for a bad row; None leaves bad rows out."""

    def __call__(self, columns: Sequence[pa.Array], numbers: Sequence[pa.Array], count: int) -> Decided:
        """Decide rows, given their uncertain columns and their numbers."""
        state, parts = self._parts(columns, numbers, count)
        kept, probability, code = np.zeros(count, bool), np.full(count, np.nan), np.zeros(count, np.int16)
        for selection, rows, values in parts:
            found = selection.select(values)
            kept[rows[found.rows]] = True
            probability[rows[found.rows]] = found.probability
            code[rows], state[rows] = found.code, USABLE
        return Decided(kept, probability, code, state)

    def follow(self, columns: Sequence[pa.Array], numbers: Sequence[pa.Array]) -> FollowedRow | None:
        """Decide one row, and tell step by step how; None if a value that it needs is null."""
        _, parts = self._parts(columns, numbers, 1)
        return next((selection.follow(values) for selection, rows, values in parts if len(rows)), None)

    def _parts(
        self, columns: Sequence[pa.Array], numbers: Sequence[pa.Array], count: int
    ) -> tuple[np.ndarray, list[tuple[Selection, np.ndarray, RowValues]]]:
        """Return the state of each row, and a list of selections with the rows that each decides and their values."""
        states, read = {}, {}
        for position, (name, array) in enumerate(zip(self.names, columns, strict=True)):
            called = None if self.called is None else f"Column '{self.called[position]}'"
            states[name], read[name] = row_states(array, called)
        values = {}
        for name, array in zip(self.numbers, numbers, strict=True):
            values[name] = array.to_numpy(zero_copy_only=False)
            states[name] = np.where(np.isnan(values[name]), NULL, USABLE).astype(np.int8)
        state = np.full(count, USABLE, np.int8)
        for own in states.values():
            state = np.maximum(state, own)
        usable = np.flatnonzero(state == USABLE)
        decided = [(self.selection, usable)]
        if self.selection.may_miss_columns and len(usable) < count:
            decided += self._with_nulls(states, np.flatnonzero(state == NULL))
        parts = []
        for selection, rows in decided:
            models = {
                name: column.model
                if len(column.rows) == len(rows)
                else column.model.take(np.searchsorted(column.rows, rows))
                for name, column in read.items()
                if name in selection.columns
            }
            of_rows = RowValues(models, {name: of[rows] for name, of in values.items()}, len(rows))
            parts.append((selection, rows, of_rows))
        return state, parts

    def _with_nulls(self, states: dict[str, np.ndarray], rows: np.ndarray) -> list[tuple[Selection, np.ndarray]]:
        """Return selections and the rows that each decides, for rows with nulls.

        Conditions on a null do not hold, others may.
        """
        names = list(states)
        missing = np.array([states[name][rows] == NULL for name in names])
        patterns, which = np.unique(missing, axis=1, return_inverse=True)
        found = []
        for k, pattern in enumerate(patterns.T):
            left = self.selection.without(frozenset(name for name, null in zip(names, pattern, strict=True) if null))
            if left is not None:
                found.append((left, rows[which.reshape(-1) == k]))
        return found
