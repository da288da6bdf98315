"""Define the contract of everything that joins rows without knowing an engine, and the batches that go in and come out.

A table is a stream that arrives at once: engines push its rows with ``arrive`` and end with ``advance(inf)``.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from haply.errors import unknown_name
from haply.models import Model
from haply.models.columns import stacked
from haply.pruning.cascade import Counters
from haply.pruning.ownership import Places

SideName = Literal["left", "right"]
"""The name of a side of a join."""
SIDES: tuple[SideName, SideName] = ("left", "right")

TIME_SLACK = 1e-12
"""Relative widening of windows, so that rounding loses no pair; the times of pairs are compared at the end."""

ProbabilityMode = Literal["exact", "none"]
"""``exact``: compute the probability of every pair that is kept; ``none``: bounds may accept a pair without it."""

Columns: TypeAlias = Mapping[str, Model | ArrayLike]
"""A batch that users push: its columns by name, models or arrays."""

ANY_DELAY = sys.float_info.max
"""The ``max_delay`` of an operator whose caller tells which rows are late."""

_Model = TypeVar("_Model", bound=Model)


@dataclass(frozen=True)
class RowBatch(Generic[_Model]):
    """Rows of one side: ids, values, times, the groups within which rows meet, and where rows begin.

    Where rows are copied to several cells, ``begins`` and ``begins_here`` tell which pairs this cell owns (see
    ``haply.pruning.ownership``). An operator may leave out the other pairs, so as not to decide them.
    """

    ids: np.ndarray
    model: _Model
    times: np.ndarray
    groups: np.ndarray
    begins: np.ndarray
    begins_here: np.ndarray

    @classmethod
    def of(
        cls, ids: np.ndarray, model: _Model, times: np.ndarray | None = None, groups: np.ndarray | None = None
    ) -> RowBatch[_Model]:
        """Make a batch of rows that are not copied; without times and groups all rows may meet."""
        none = np.zeros(len(ids))
        return RowBatch(
            ids, model, none if times is None else times, none if groups is None else groups, none,
            np.ones(len(ids), bool),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: np.ndarray) -> Self:
        """Return the given rows, in the given order."""
        return type(self)(*(getattr(self, column.name).take(rows) for column in fields(self)))

    @property
    def places(self) -> Places:
        """Return where rows begin, and their groups."""
        return Places(self.begins, self.begins_here, self.groups)

    @property
    def columns(self) -> tuple[Any, ...]:
        """Return the arguments that make a batch like this one."""
        return tuple(getattr(self, column.name) for column in fields(RowBatch))

    @property
    def nbytes(self) -> int:
        """Memory that these rows take."""
        return sum(column.nbytes for column in self.columns)

    def is_like(self, others: RowBatch[Any]) -> bool:
        """Tell whether other rows can be appended to these: models of one kind, and ids that keep their type."""
        return type(self.model) is type(others.model) and self.ids.dtype.kind == others.ids.dtype.kind


def joined_columns(batches: Sequence[RowBatch[_Model]]) -> tuple[Any, ...]:
    """Return the columns of batches of the same kind, one batch after the other."""
    ids, models, *others = zip(*(batch.columns for batch in batches), strict=True)
    return np.concatenate(ids), stacked(list(models)), *map(np.concatenate, others)


@dataclass(frozen=True)
class PairBatch:
    """Pairs, or combinations of rows of more sides: the ids of their rows by side, and their probabilities.

    Probabilities are NaN where they were not asked for.
    """

    rows: tuple[np.ndarray, ...]
    probability: np.ndarray

    def __len__(self) -> int:
        return len(self.probability)

    @property
    def left(self) -> np.ndarray:
        """Return the ids of the left rows."""
        return self.rows[0]

    @property
    def right(self) -> np.ndarray:
        """Return the ids of the right rows."""
        return self.rows[1]


def no_pairs(sides: int = 2) -> PairBatch:
    """Return no pairs."""
    return PairBatch((np.empty(0, np.int64),) * sides, np.empty(0))


class JoinOperator(Protocol):
    """Joins rows that arrive in batches, by the number of their side. Each pair is returned once.

    A caller that holds the payload of rows outside of the operator learns from ``needed_from`` which rows it may drop,
    and restores the operator after a restart by ``arrive(match=False)``. Other callers use ``snapshot``.
    """

    @abstractmethod
    def arrive(self, side: int, rows: RowBatch[Any], *, match: bool = True) -> PairBatch:
        """Store rows, and return the pairs that they complete. Without ``match`` they are only stored."""

    @abstractmethod
    def expire(self, time: float) -> Any:
        """Say that no row before ``time`` will come, and forget rows that no later row can meet."""

    def advance(self, watermark: float) -> PairBatch:
        """Expire rows before the watermark, and return the pairs that this decides.

        For most inner joins this returns nothing: their pairs are returned when the last row arrives. Left and anti
        joins will return the rows that have met no other.
        """
        self.expire(watermark)
        return no_pairs()

    @abstractmethod
    def needed_from(self, side: int, watermark: float) -> float:
        """Return the time from which on rows of a side are still needed when no row before the watermark will come."""

    def final_before(self, side: int, watermark: float) -> float:
        """Return the time before which rows of a side must end so that no row from the watermark on meets them.

        Operators with the same horizon return the same time, whichever rows they hold: so all cells of a join agree.
        """
        return self.needed_from(side, watermark)

    @property
    @abstractmethod
    def funnel(self) -> Counters:
        """Return what became of the candidates."""

    @property
    @abstractmethod
    def stored_bytes(self) -> int:
        """Memory that rows take."""

    @abstractmethod
    def snapshot(self) -> bytes:
        """Return the state as bytes: Arrow IPC with a format version (see ``state``)."""

    @classmethod
    @abstractmethod
    def restore(cls, state: bytes) -> Self:
        """Return the operator that wrote these bytes; refuse bytes of another version of the format."""

    @property
    def cut_short(self) -> tuple[int, ...]:
        """Return how many rows of each side have reached back to times whose rows were forgotten; empty if none can."""
        return ()

    @property
    def horizon(self) -> tuple[float, ...]:
        """Return what an operator must know after a restart besides rows; empty if nothing.

        The first numbers are those of the sides: how far back from their times rows have reached.
        """
        return ()

    def widen(self, horizon: Sequence[float]) -> None:
        """Take over the horizon that another cell has, or that was known before a restart."""
        assert not any(horizon), "only uncertain times reach back"


def forgotten_before(watermark: float, window: float) -> float:
    """Return a time: rows before it are in no window with rows from the watermark on, whatever the rounding."""
    if math.isinf(watermark):
        return watermark
    return watermark - window - TIME_SLACK * (abs(watermark) + abs(window))


def other_side(side: SideName) -> SideName:
    """Return the name of the other side."""
    return "right" if side == "left" else "left"


def is_exact(probability: ProbabilityMode) -> bool:
    """Tell whether probabilities are asked for; refuse an unknown word."""
    if probability not in get_args(ProbabilityMode):
        raise unknown_name("choice of probability", probability, get_args(ProbabilityMode))
    return probability == "exact"


def check_side(side: str) -> None:
    """Refuse a word that is not the name of a side."""
    if side not in SIDES:
        raise unknown_name("side", side, SIDES)
