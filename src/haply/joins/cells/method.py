"""Define what every method of finding and deciding pairs offers; each method is a module of this folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from haply.joins.cells.rows import CellRows
from haply.joins.match import Matches
from haply.models import Model
from haply.pruning.best import Best
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.cascade import Counters


@dataclass(frozen=True)
class Setting:
    """What a method has to know of the join that uses it."""

    needs_values: bool
    """Whether the probability of the condition itself is needed."""
    raises: bool
    """Whether rows whose dimension differs from others are an error."""
    keyed: bool
    """Whether rows are in groups, by keys or by times."""
    whole: bool
    """Whether the sides are not cut into cells."""
    window: float | None = None
    """How far apart certain times may be."""
    best: Best | None = None
    """Which pairs are wanted, if not all: a pair kept here may still be replaced by better pairs of its rows."""


class Match(Protocol):
    """Decides the pairs of a cell."""

    def __call__(self, left: CellRows, right: CellRows) -> Matches:
        """Return the kept pairs that this cell owns."""


class Method(Protocol):
    """A way to find the pairs of a condition between one column of each side."""

    @property
    def has_sure_pairs(self) -> bool:
        """Return whether rows that are far apart match: these pairs are joined without a test."""

    @property
    def holds_for_itself(self) -> bool:
        """Return whether two equal certain values match."""

    def place(self, is_left: bool) -> Callable[[Model], Intervals]:
        """Return a callable that gives the rows of a side their intervals."""

    def match(self, setting: Setting) -> Match:
        """Return a callable that decides the pairs of a cell."""

    def counters(self) -> Counters:
        """Return counters with the names of all rules."""

    def warm(self, setting: Setting) -> None:
        """Compile the kernels, or load them, before workers need them."""

    def condition_text(self, left: str, right: str) -> str:
        """Describe the condition between two columns."""

    def candidates_text(self) -> str:
        """Describe how candidates are found."""

    def cascade_text(self) -> str:
        """Describe how candidates are decided."""
