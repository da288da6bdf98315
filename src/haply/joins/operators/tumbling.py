"""Join two streams in tumbling windows: a fixed number of rows a side, window by window, with an index for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from haply.errors import HaplyError, unknown_name
from haply.joins.moments import IndexName, MomentCounters, match_moments
from haply.joins.operators.operator import Columns, SideName
from haply.joins.operators.pair import PairResult, concatenate
from haply.joins.operators.state import from_state, to_state
from haply.models import Certain, Model, OneDimensional
from haply.models.columns import stacked
from haply.probability.region import Difference, DifferenceLike
from haply.pruning.threshold import Threshold

_Part = tuple[np.ndarray, list[OneDimensional]]
"""Ids of some rows, and their columns in the order of the conditions."""


_STATE = "tumbling join"


class TumblingJoin:
    """Joins two streams in tumbling windows: each window has a number of rows of each side, in the order they come.

    All conditions must hold; their columns are taken to be independent. The right side of a window is indexed by mean
    and variance, and the left side is looked up in it. Rows beyond a full window wait for the next one.

    Parameters
    ----------
    conditions
        Each a ``Difference``, or an expression such as ``abs(hp.left.x - hp.right.x) <= 0.5``.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict).
    rows
        How many rows of each side a window has.
    index
        The index of a window: ``"gj"`` for Gaussians, ``"gmj"`` for any model, ``"chebyshev"`` and ``"xbound"`` for
        comparison. ``"auto"`` is ``"gj"`` where that fits, else ``"gmj"``.
    exact
        Whether to compute the probability of every pair that is kept. If not, bounds may accept a pair without it.

    Raises
    ------
    HaplyError
        If a window has no rows, or if a condition is not about a difference.

    Examples
    --------
    >>> from haply.models import Gaussian
    >>> from haply.probability import Difference, Region
    >>> join = TumblingJoin([Difference("u", "u", Region(-1.0, 1.0))], 0.7, rows=2)
    >>> found = join.push("left", {"id": [1, 2, 3], "u": Gaussian([0.0, 5.0, 9.0], 0.1)})
    >>> found = join.push("right", {"id": [7, 8, 9], "u": Gaussian([9.0, 0.2, 9.1], 0.1)})
    >>> found.left, found.right  # rows 3 and 9 are of the next window
    (array([1]), array([8]))
    >>> join.close().right, join.funnel.validated
    (array([9]), 0)
    """

    def __init__(
        self,
        conditions: Sequence[DifferenceLike],
        threshold: float,
        *,
        rows: int = 500,
        index: IndexName = "auto",
        strict: bool = False,
        exact: bool = True,
    ) -> None:
        self.conditions: list[Difference] = [condition.as_difference() for condition in conditions]
        if rows < 1:
            raise HaplyError("A window has no rows", expected="1 or more", found=str(rows))
        self.threshold, self.rows, self.index, self.exact = Threshold(threshold, strict), rows, index, exact
        self.funnel = MomentCounters()
        self.windows = 0
        """How many windows have been joined."""
        self._waiting: dict[str, list[_Part]] = {"left": [], "right": []}
        self._closed = False

    def push(self, side: SideName, batch: Columns) -> PairResult:
        """Add rows of one side, and return the pairs of windows that are full now.

        Parameters
        ----------
        side
            ``"left"`` or ``"right"``.
        batch
            Columns by name: ``id``, and the columns of the conditions as models or as numbers.

        Returns
        -------
        PairResult
            The pairs of all windows that these rows complete.

        Raises
        ------
        HaplyError
            If a column is missing, if columns differ in length, or if the join is closed.
        """
        if side not in self._waiting:
            raise unknown_name("side", side, self._waiting)
        if self._closed:
            raise HaplyError("The join is closed", hint="push before close()")
        names = [condition.left if side == "left" else condition.right for condition in self.conditions]
        for name in ("id", *names):
            if name not in batch:
                raise unknown_name("column", name, batch)
        ids = np.asarray(batch["id"])
        models = [_model_of(batch[name]) for name in names]
        for model in models:
            if len(model) != len(ids):
                raise HaplyError("A batch disagrees in length", expected=f"{len(ids)} values", found=str(len(model)))
        self._waiting[side].append((ids, models))
        results = []
        while min(self._count(side) for side in self._waiting) >= self.rows:
            results.append(self._join())
        return concatenate(results)

    def close(self) -> PairResult:
        """Say that both streams have ended, and join the rows that wait.

        Returns
        -------
        PairResult
            The pairs of the last windows, which may have fewer rows.
        """
        self._closed = True
        results = []
        while min(self._count(side) for side in self._waiting) > 0:
            results.append(self._join())
        return concatenate(results)

    def snapshot(self) -> bytes:
        """Return the state of the operator as bytes.

        Returns
        -------
        bytes
            Arrow IPC with a format version, for ``restore``.
        """
        settings = {
            "conditions": self.conditions, "threshold": self.threshold.value, "rows": self.rows, "index": self.index,
            "strict": self.threshold.strict, "exact": self.exact,
        }  # fmt: skip
        return to_state(_STATE, (settings, self._waiting, self._closed, self.windows, self.funnel))

    @classmethod
    def restore(cls, state: bytes) -> TumblingJoin:
        """Make the operator whose state was written by ``snapshot``.

        Parameters
        ----------
        state
            What ``snapshot`` returned.

        Returns
        -------
        TumblingJoin
            An operator that continues where the other one was.

        Raises
        ------
        HaplyError
            If the bytes are no state of such an operator, or of another version of the format.
        """
        settings, waiting, closed, windows, funnel = from_state(_STATE, state)
        join = cls(**settings)
        join._waiting, join._closed, join.windows, join.funnel = waiting, closed, windows, funnel
        return join

    def _count(self, side: str) -> int:
        return sum(len(ids) for ids, _ in self._waiting[side])

    def _join(self) -> PairResult:
        left, right = (self._cut(side) for side in ("left", "right"))
        regions = [condition.region for condition in self.conditions]
        found = match_moments(left[1], right[1], regions, self.threshold, self.exact, index=self.index)
        assert isinstance(found.counters, MomentCounters)
        self.funnel.add(found.counters)
        self.windows += 1
        return PairResult((left[0][found.left], right[0][found.right]), found.probability, found.decided_by)

    def _cut(self, side: str) -> _Part:
        """Return the next window of a side, put together from as many batches as it spans."""
        parts, missing = [], self.rows
        while missing and self._waiting[side]:
            ids, models = self._waiting[side].pop(0)
            if len(ids) > missing:
                rest = np.arange(missing, len(ids))
                self._waiting[side].insert(0, (ids[missing:], [model.take(rest) for model in models]))
                ids, models = ids[:missing], [model.take(np.arange(missing)) for model in models]
            parts.append((ids, models))
            missing -= len(ids)
        columns = zip(*(models for _, models in parts), strict=True)
        return np.concatenate([ids for ids, _ in parts]), [_one(list(column)) for column in columns]


def _model_of(values: Model | ArrayLike) -> OneDimensional:
    """Return values as a model; numbers are certain."""
    return values if isinstance(values, OneDimensional) else Certain(cast(ArrayLike, values))


def _one(models: list[OneDimensional]) -> OneDimensional:
    """Return the rows of several models of one kind as one model, in the same order."""
    if len(models) == 1:
        return models[0]
    if len({type(model) for model in models}) > 1:
        raise HaplyError(
            "A column changes its kind within a window",
            expected=f"{models[0].kind} throughout",
            found=" and ".join(dict.fromkeys(model.kind for model in models)),
        )
    return stacked(models)
