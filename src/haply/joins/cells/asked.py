"""Evaluate conditions on pairs besides the one that found them: independent ones, or all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from haply.models import Model
from haply.models.columns import view_column
from haply.probability.joint import Condition, Joint
from haply.pruning.cascade import Counters
from haply.pruning.threshold import Threshold
from haply.selection.conditions import RowValues
from haply.selection.select import RULES as SELECTION_RULES
from haply.selection.select import Selection


@dataclass(frozen=True)
class Together:
    """Evaluates conditions on columns that are independent of what an operator decides: probabilities multiply.

    Conditions name a column with its side before it (see ``on_side``).
    """

    joint: Joint
    kinds: tuple[tuple[str, type[Model]], ...]
    threshold: Threshold
    """The threshold of all conditions together."""

    @classmethod
    def of(
        cls, conditions: Sequence[Condition], kinds: Mapping[str, type[Model]], threshold: Threshold
    ) -> Together | None:
        """Make it; None without conditions. Kernels are compiled here, not by every worker."""
        if not conditions:
            return None
        together = cls(Joint.of(conditions, kinds), tuple(kinds.items()), threshold)
        from haply.joins.warm import warm_joint  # this module imports all operators, which few joins need

        warm_joint(together.joint, together.kinds)
        return together

    def columns(self, side: int) -> tuple[str, ...]:
        """Name the columns of a side that the conditions use."""
        names = [name.split(":", 1) for name in self.joint.names]
        return tuple(column for of, column in names if int(of) == side)

    def keep(self, rows: Sequence[pa.Table], before: np.ndarray) -> tuple[np.ndarray, np.ndarray, None]:
        """Return which rows of tables side by side are kept, and their probabilities.

        ``before`` are the operator's probabilities. Rows that one condition by itself makes too unlikely are not
        computed.
        """
        values = {
            on_side(side, name): view_column(table[name])
            for side, table in enumerate(rows)
            for name in self.columns(side)
        }
        with np.errstate(divide="ignore", invalid="ignore"):
            chosen, probability, counts = self.joint.likely(values, self.threshold.reject_below / before)
        sure = bool((before == 1.0).all())
        probability = before[chosen] * probability
        kept = self.threshold.keep(probability, counts=counts and sure)
        return chosen[kept], probability[kept], None


@dataclass(frozen=True)
class PairSelection:
    """Evaluates all conditions on a pair whose candidates were found by a condition that follows from them."""

    selection: Selection
    uncertain: tuple[tuple[str, int, str], ...]
    """For each uncertain column: its name in the conditions, its side, and its name there."""
    numbers: tuple[tuple[str, int, str], ...] = ()

    def renamed(self, names: Sequence[Callable[[str], str]]) -> PairSelection:
        """Return the same selection with other names of the columns: a function for each side gives them."""

        def moved(columns: tuple[tuple[str, int, str], ...]) -> tuple[tuple[str, int, str], ...]:
            return tuple((name, side, names[side](column)) for name, side, column in columns)

        return PairSelection(self.selection, moved(self.uncertain), moved(self.numbers))

    def columns(self, side: int) -> tuple[str, ...]:
        """Name the columns of a side that the conditions use."""
        return tuple(dict.fromkeys(column for _, of, column in (*self.uncertain, *self.numbers) if of == side))

    def keep(self, rows: Sequence[pa.Table], before: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which rows of tables side by side are kept, their probabilities, and what decided each."""
        values = {name: view_column(rows[side][column]) for name, side, column in self.uncertain}
        numbers = {name: rows[side][column].to_numpy() for name, side, column in self.numbers}
        return self.selection.select(RowValues(values, numbers, rows[0].num_rows))

    @staticmethod
    def counters(found: Counters) -> Counters:
        """Return counters with the names of the selection's rules added to those of the method."""
        names = tuple(SELECTION_RULES.values())
        more = Counters((*found.rejected, *names), (*found.accepted, *names))
        more.candidates, more.rejected = found.candidates, {**more.rejected, **found.rejected}
        return more


def on_side(side: int, column: str) -> str:
    """Name a column of a side, as conditions on several sides do."""
    return f"{side}:{column}"
