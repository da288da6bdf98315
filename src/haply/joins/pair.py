"""The pair join as an operator: push batches of either side, get the pairs that have become known."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError, unknown_name
from haply.joins.match import DECIDED_BY, Matches, match_all
from haply.joins.meeting import TIME_SLACK, Rows, can_meet, match_in_time, parts_of
from haply.joins.moments import MomentCounters, index_moments, match_moments
from haply.joins.paged import OF_STRATEGY, PagedJoin
from haply.models import Certain, OneDimensional
from haply.models.columns import BY_KIND
from haply.probability.region import Difference, Region
from haply.pruning.cascade import Counters
from haply.pruning.intervals import row_intervals
from haply.pruning.moments import Tree
from haply.pruning.threshold import Threshold

SideName = Literal["left", "right"]
SWEEPS = ("auto", "sweep")
STRATEGIES = (*SWEEPS, *OF_STRATEGY, "moments")
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
    rows: Rows
    tree: Tree | None = None
    paged: PagedJoin | None = None
    """Made when they are first asked, if the strategy has one."""


class PairJoin:
    """Joins batches of two sides under one difference condition and a threshold.

    Each pair is returned once, when its later row is pushed. Hopeless rows (those that can match nothing) are not kept.
    The strategies ``"pages"``, ``"pti"`` and ``"moments"`` lay stored rows out in pages, or as a tree, when they are
    first met.

    With a window, batches have a ``time`` as well, and pairs are those with ``|time - time| <= window``; in which order
    pushes come does not matter. ``expire(time)`` says that nothing older will come.

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
        window: float | None = None,
        strategy: str = "auto",
        strict: bool = False,
        exact: bool = True,
    ) -> None:
        self.condition: Difference = condition.as_difference()
        self.threshold = Threshold(threshold, strict)
        if strategy not in STRATEGIES:
            raise unknown_name("strategy", strategy, STRATEGIES)
        if window is not None and not window >= 0.0:
            raise HaplyError("The window is no length of time", expected="a number >= 0", found=repr(window))
        self.exact, self.strategy, self.window = exact, strategy, window
        self.funnel = MomentCounters() if strategy == "moments" else Counters()
        self._stored: dict[str, list[_Stored]] = {"left": [], "right": []}
        self._closed: set[str] = set()

    @property
    def region(self) -> Region:
        """The differences the join looks for."""
        return self.condition.region

    def push(self, side: SideName, batch: Mapping[str, Any]) -> PairResult:
        """Add a batch: ``id``, the side's column as a model (or plain numbers), and ``time`` if there is a window.

        Returns the pairs it completes.
        """
        if side not in self._stored:
            raise unknown_name("side", side, self._stored)
        if side in self._closed:
            raise HaplyError(f"The {side} side is closed", hint="push before close()")
        column = self.condition.left if side == "left" else self.condition.right
        for name in ("id", column, *(() if self.window is None else ("time",))):
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
        times = np.zeros(len(ids)) if self.window is None else _numbers(batch["time"])
        for what, count in (("values", len(model)), ("times", len(times))):
            if count != len(ids):
                raise HaplyError("A batch disagrees in length", expected=f"{len(ids)} {what}", found=str(count))
        return self.arrive(side, ids, model, times, np.zeros(len(ids)))

    def arrive(
        self,
        side: SideName,
        ids: np.ndarray,
        model: OneDimensional,
        times: np.ndarray,
        groups: np.ndarray,
        *,
        match: bool = True,
    ) -> PairResult:
        """``push`` for callers that have checked their rows: pairs are of one group, a number for each row.

        Without a window times and groups are not looked at. Without ``match`` the rows are only stored.
        """
        intervals = row_intervals(model, side == "left", self.region, self.threshold, self.exact)
        added = Rows(ids, model, intervals, times, groups)
        other = "right" if side == "left" else "left"
        results = [self._match(added, stored, side) for stored in self._stored[other]] if match else []
        if other not in self._closed:
            possible = np.flatnonzero(~intervals.hopeless)
            kept = added if len(possible) == len(added) else added.take(possible)
            in_parts = self.window is not None and self.strategy not in SWEEPS
            parts = parts_of(kept, self.window) if in_parts and self.window is not None else [kept]
            self._stored[side] += [_Stored(part) for part in parts if len(part)]
        return concatenate(results)

    def _match(self, added: Rows, stored: _Stored, side: SideName) -> PairResult:
        """The pairs of new rows with stored ones."""
        if self.window is not None:
            own = stored.rows.times
            near = added.near(own.min(), own.max(), self.window)
            if len(near) < len(added):
                added = added.take(near)
        left, right = (added, stored.rows) if side == "left" else (stored.rows, added)
        if not len(added):
            return PairResult(left.ids[:0], right.ids[:0], np.empty(0), np.empty(0, np.int8))
        whole_numbers = self.window is None and left.ids.dtype == right.ids.dtype == np.int64
        labels = (left.ids, right.ids) if whole_numbers else (None, None)
        found: Matches
        if self.strategy == "moments":
            found = self._match_moments(left, right, stored, "right" if side == "left" else "left")
            whole_numbers = False  # what is found are row numbers
        elif self.strategy in OF_STRATEGY:
            owned = None if self.window is None else self._admits(left, right)
            found = self._paged(stored, side == "right").match(added.model, labels=labels, owned=owned)
        elif self.window is not None:
            found = match_in_time(left, right, self.region, self.threshold, self.exact, self.window)
        else:
            found = match_all(
                left.model, right.model, left.intervals, right.intervals, self.region, self.threshold, self.exact,
                labels=labels,
            )  # fmt: skip
        self.funnel.add(found.counters)
        mine, theirs = (found.left, found.right) if whole_numbers else (left.ids[found.left], right.ids[found.right])
        return PairResult(mine, theirs, found.probability, found.decided_by)

    def _admits(self, left: Rows, right: Rows) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        assert self.window is not None
        return partial(can_meet, left, right, window=self.window)

    def _match_moments(self, left: Rows, right: Rows, stored: _Stored, indexed: SideName) -> Matches:
        """The batch that was there before has the index, and keeps it for batches to come."""
        stored.tree = stored.tree or index_moments([stored.rows.model])
        return match_moments(
            [left.model], [right.model], [self.region], self.threshold, self.exact, tree=stored.tree, indexed=indexed,
            admits=None if self.window is None else self._admits(left, right),
        )  # fmt: skip

    def _paged(self, stored: _Stored, is_left: bool) -> PagedJoin:
        """Stored rows in pages or as a tree, made when they are first met."""
        if stored.paged is None:
            algorithm = OF_STRATEGY[self.strategy]
            stored.paged = PagedJoin(
                stored.rows.model, self.region, self.threshold, self.exact, algorithm, inner_is_left=is_left
            )
        return stored.paged

    def expire(self, time: float) -> None:
        """Say that nothing older will come: what is too old for it is forgotten. Without a window nothing is."""
        if self.window is not None:
            before = self.forgotten_before(time)
            for side, parts in self._stored.items():
                self._stored[side] = [part for part in parts if part.rows.times.max() >= before]

    def forgotten_before(self, time: float) -> float:
        """Rows of earlier times may be forgotten when nothing older than ``time`` will come."""
        assert self.window is not None
        return time - self.window - TIME_SLACK * (abs(time) + self.window)

    def ids(self, side: SideName) -> np.ndarray:
        """The ids of the rows of a side that are kept."""
        return np.concatenate([part.rows.ids for part in self._stored[side]] or [np.empty(0, np.int64)])

    @property
    def stored_bytes(self) -> int:
        """Memory that is taken for rows, without their models."""
        return sum(part.rows.nbytes for parts in self._stored.values() for part in parts)

    def close(self, side: SideName) -> None:
        """Say that a side is complete: rows of the other side need not be kept from now on."""
        if side not in self._stored:
            raise unknown_name("side", side, self._stored)
        self._closed.add(side)
        self._stored["right" if side == "left" else "left"].clear()

    def snapshot(self) -> bytes:
        """The operator's state as bytes."""
        stored = {
            side: [
                (rows.ids, rows.model.kind, model_to_bytes(rows.model), rows.times, rows.groups)
                for rows in (part.rows for part in parts)
            ]
            for side, parts in self._stored.items()
        }
        settings = {
            "condition": self.condition, "threshold": self.threshold.value, "window": self.window,
            "strategy": self.strategy, "strict": self.threshold.strict, "exact": self.exact,
        }  # fmt: skip
        return pickle.dumps((settings, stored, self._closed, self.funnel))

    @classmethod
    def restore(cls, state: bytes) -> PairJoin:
        """The operator that wrote these bytes (which must come from a place you trust: they are a pickle)."""
        settings, stored, closed, funnel = pickle.loads(state)
        join = cls(**settings)
        for side, parts in stored.items():
            for ids, kind, data, times, groups in parts:
                join.arrive(side, ids, model_from_bytes(kind, data), times, groups, match=False)
        join._closed, join.funnel = closed, funnel
        return join


def _numbers(times: Any) -> np.ndarray:
    """Times as doubles, if they are numbers that doubles hold."""
    given = np.asarray(times)
    if given.dtype.kind not in "iuf":
        raise HaplyError("Times are no numbers", expected="integers or floats", found=str(given.dtype))
    found = given.astype(np.float64)
    wrong = ~np.isfinite(found) if given.dtype.kind == "f" else np.abs(found) > 2.0**53
    if wrong.any():
        raise HaplyError(
            "A time is no number that a double holds",
            expected="finite times, whole ones up to 2**53",
            found=str(given[wrong][0]),
        )
    return found


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
