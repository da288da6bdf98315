"""A selection on the rows of one Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from haply.joins.cells.rows import NULL, USABLE, row_states
from haply.selection.conditions import RowValues
from haply.selection.select import Selection


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
    """Uncertain columns, as the conditions call them."""
    numbers: tuple[str, ...]
    """Certain numbers that the conditions need."""
    called: tuple[str, ...] | None
    """What the columns are called when a bad row is refused; None leaves bad rows out."""

    def __call__(self, columns: Sequence[pa.Array], numbers: Sequence[pa.Array], count: int) -> Decided:
        """Decide rows, of which these are the uncertain columns and the numbers."""
        state = np.full(count, USABLE, np.int8)
        read = []
        for position, array in enumerate(columns):
            own, column = row_states(array, None if self.called is None else f"Column '{self.called[position]}'")
            state = np.maximum(state, own)
            read.append(column)
        values = {}
        for name, array in zip(self.numbers, numbers, strict=True):
            values[name] = array.to_numpy(zero_copy_only=False)
            state = np.maximum(state, np.where(np.isnan(values[name]), NULL, USABLE).astype(np.int8))
        usable = np.flatnonzero(state == USABLE)
        models = {
            name: column.model
            if len(column.rows) == len(usable)
            else column.model.take(np.searchsorted(column.rows, usable))
            for name, column in zip(self.names, read, strict=True)
        }
        found = self.selection.select(RowValues(models, {name: of[usable] for name, of in values.items()}, len(usable)))
        kept, probability, code = np.zeros(count, bool), np.full(count, np.nan), np.zeros(count, np.int16)
        kept[usable[found.rows]] = True
        probability[usable[found.rows]] = found.probability
        code[usable] = found.code
        return Decided(kept, probability, code, state)
