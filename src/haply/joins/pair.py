"""The static pair join as an operator: push batches of either side, get the pairs that have become known."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError, unknown_name
from haply.joins.match import DECIDED_BY, Matches, match_all
from haply.joins.moments import MomentCounters, index_moments, match_moments
from haply.joins.paged import OF_STRATEGY, PagedJoin
from haply.models import Certain, OneDimensional
from haply.models.columns import BY_KIND
from haply.probability.region import Difference, Region
from haply.pruning.cascade import Counters
from haply.pruning.intervals import Intervals, row_intervals
from haply.pruning.moments import Tree
from haply.pruning.threshold import Threshold

SideName = Literal["left", "right"]
STRATEGIES = ("auto", "sweep", *OF_STRATEGY, "moments")
"""Ways to generate candidates: the sweep over core regions (also by default), x-bound pages, the tree over them, and an
index of means and variances."""


@dataclass(frozen=True)
class PairResult:
    """The ids of the matched rows, their probabilities, and what decided each pair."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    codes: np.ndarray
    """What decided, as numbers of ``DECIDED_BY``: words for every pair take longer than many a join."""

    @property
    def decided_by(self) -> np.ndarray:
        """What decided each pair, in words."""
        return np.array([DECIDED_BY[code] for code in range(len(DECIDED_BY))])[self.codes]


@dataclass
class _Stored:
    ids: np.ndarray
    model: OneDimensional
    intervals: Intervals
    tree: Tree | None = None
    paged: PagedJoin | None = None
    """Made when they are first asked, if the strategy has one."""


class PairJoin:
    """Joins batches of two sides under one difference condition and a threshold.

    Each pair is returned once, when its later row is pushed. Hopeless rows (those that can match nothing) are not kept.
    The strategies ``"pages"`` and ``"pti"`` lay stored rows out in pages or as a tree when they are first met.

    >>> from haply.models import Gaussian
    >>> from haply.probability import Difference, Region
    >>> join = PairJoin(Difference("temp", "temp", Region(-0.5, 0.5)), 0.6)
    >>> join.push("left", {"id": [1, 2], "temp": Gaussian([20.0, 30.0], [0.1, 0.1])}).left
    array([], dtype=int64)
    >>> result = join.push("right", {"id": [7], "temp": Gaussian([20.2], [0.2])})
    >>> result.left, result.right, result.probability.round(4)
    (array([1]), array([7]), array([0.9093]))
    """

    def __init__(
        self,
        condition: Any,
        threshold: float | None,
        *,
        strategy: str = "auto",
        strict: bool = False,
        exact: bool = True,
    ) -> None:
        self.condition: Difference = condition.as_difference()
        self.threshold = Threshold(threshold, strict)
        if strategy not in STRATEGIES:
            raise unknown_name("strategy", strategy, STRATEGIES)
        self.exact, self.strategy = exact, strategy
        self.funnel = MomentCounters() if strategy == "moments" else Counters()
        self._stored: dict[str, list[_Stored]] = {"left": [], "right": []}
        self._closed: set[str] = set()

    @property
    def region(self) -> Region:
        """The differences the join looks for."""
        return self.condition.region

    def push(self, side: SideName, batch: Mapping[str, Any]) -> PairResult:
        """Add a batch: ``id`` and the side's column as a model (or plain numbers). Returns the pairs it completes."""
        if side not in self._stored:
            raise unknown_name("side", side, self._stored)
        if side in self._closed:
            raise HaplyError(f"The {side} side is closed", hint="push before close()")
        column = self.condition.left if side == "left" else self.condition.right
        for name in ("id", column):
            if name not in batch:
                raise unknown_name("column", name, batch)
        ids = np.asarray(batch["id"])
        model = batch[column] if isinstance(batch[column], OneDimensional) else Certain(batch[column])
        if self.threshold.value is None and not model.bounded:
            raise HaplyError(
                "Without a threshold every pair is possible",
                expected="values with a bounded support",
                found=f"a {model.kind} column, whose values are unbounded",
                hint="give a threshold",
            )
        if len(ids) != len(model):
            raise HaplyError("A batch disagrees in length", expected=f"{len(ids)} values", found=str(len(model)))
        added = _Stored(ids, model, row_intervals(model, side == "left", self.region, self.threshold, self.exact))
        other = "right" if side == "left" else "left"
        results = [self._match(added, stored, side) for stored in self._stored[other]]
        if other not in self._closed:
            rows = np.flatnonzero(~added.intervals.hopeless)
            if len(rows):
                self._stored[side].append(_Stored(ids[rows], model.take(rows), added.intervals.take(rows)))
        return concatenate(results)

    def _match(self, added: _Stored, stored: _Stored, side: str) -> PairResult:
        left, right = (added, stored) if side == "left" else (stored, added)
        whole_numbers = left.ids.dtype == right.ids.dtype == np.int64
        labels = (left.ids, right.ids) if whole_numbers else (None, None)
        found: Matches
        if self.strategy == "moments":
            found = self._match_moments(left, right, stored, "right" if side == "left" else "left")
            whole_numbers = False  # what is found are row numbers
        elif self.strategy in OF_STRATEGY:
            found = self._paged(stored, side == "right").match(added.model, labels=labels)
        else:
            found = match_all(
                left.model, right.model, left.intervals, right.intervals, self.region, self.threshold, self.exact,
                labels=labels,
            )  # fmt: skip
        self.funnel.add(found.counters)
        mine, theirs = (found.left, found.right) if whole_numbers else (left.ids[found.left], right.ids[found.right])
        return PairResult(mine, theirs, found.probability, found.decided_by)

    def _match_moments(self, left: _Stored, right: _Stored, stored: _Stored, indexed: SideName) -> Matches:
        """The batch that was there before has the index, and keeps it for batches to come."""
        stored.tree = stored.tree or index_moments([stored.model])
        return match_moments(
            [left.model], [right.model], [self.region], self.threshold, self.exact, tree=stored.tree, indexed=indexed
        )

    def _paged(self, stored: _Stored, is_left: bool) -> PagedJoin:
        """Stored rows in pages or as a tree, made when they are first met."""
        if stored.paged is None:
            algorithm = OF_STRATEGY[self.strategy]
            stored.paged = PagedJoin(
                stored.model, self.region, self.threshold, self.exact, algorithm, inner_is_left=is_left
            )
        return stored.paged

    def expire(self, time: float) -> None:
        """A static join has no clock: nothing expires."""

    def close(self, side: SideName) -> None:
        """Say that a side is complete: rows of the other side need not be kept from now on."""
        if side not in self._stored:
            raise unknown_name("side", side, self._stored)
        self._closed.add(side)
        self._stored["right" if side == "left" else "left"].clear()

    def snapshot(self) -> bytes:
        """The operator's state as bytes."""
        stored = {
            side: [(part.ids, part.model.kind, model_to_bytes(part.model)) for part in parts]
            for side, parts in self._stored.items()
        }
        settings = (self.condition, self.threshold.value, self.threshold.strict, self.exact, self.strategy)
        return pickle.dumps((settings, stored, self._closed, self.funnel))

    @classmethod
    def restore(cls, state: bytes) -> PairJoin:
        """The operator that wrote these bytes (which must come from a place you trust: they are a pickle)."""
        (condition, threshold, strict, exact, strategy), stored, closed, funnel = pickle.loads(state)
        join = cls(condition, threshold, strict=strict, exact=exact, strategy=strategy)
        for side, parts in stored.items():
            for ids, kind, data in parts:
                model = model_from_bytes(kind, data)
                intervals = row_intervals(model, side == "left", join.region, join.threshold, join.exact)
                join._stored[side].append(_Stored(ids, model, intervals))
        join._closed, join.funnel = closed, funnel
        return join


def concatenate(results: list[PairResult]) -> PairResult:
    """All pairs of some results."""
    if not results:
        return PairResult(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int8))
    return PairResult(
        *(np.concatenate([getattr(result, name) for result in results]) for name in PairResult.__dataclass_fields__)
    )


def model_to_bytes(model: OneDimensional) -> bytes:
    """The rows of a model as Arrow bytes."""
    sink = pa.BufferOutputStream()
    table = pa.table({"model": model.to_arrow()})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def model_from_bytes(kind: str, data: bytes) -> OneDimensional:
    """The model that was made into these bytes."""
    model = BY_KIND[kind].from_arrow(pa.ipc.open_stream(data).read_all()["model"])
    assert isinstance(model, OneDimensional)
    return model
