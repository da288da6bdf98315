"""The pair join as an operator: push batches of either side, get the pairs that they complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.joins.match import DECIDED_BY, Matches, match_all
from haply.joins.moments import MomentCounters, index_moments, match_moments
from haply.joins.operators.batches import Stored, TwoSidedJoin
from haply.joins.operators.meeting import TimedRows, ValueRows, can_meet, match_in_time, parts_of
from haply.joins.operators.operator import SIDES, Columns, PairBatch, RowBatch, SideName, no_pairs
from haply.joins.paged import OF_STRATEGY, PagedJoin
from haply.models import Certain, OneDimensional
from haply.probability.region import Difference, DifferenceLike, Region
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.cascade import Counters
from haply.pruning.threshold import Threshold

SWEEPS = ("auto", "sweep")
PairStrategy = Literal["auto", "sweep", "pages", "pti", "moments"]
"""Ways to generate candidates: the sweep over core regions (also by default), x-bound pages, the tree over them, and an
index of means and variances."""
STRATEGIES: tuple[PairStrategy, ...] = get_args(PairStrategy)


@dataclass(frozen=True)
class PairResult(PairBatch):
    """Represents the pairs that a push completes.

    Attributes
    ----------
    rows
        The ids of the left rows and those of the right rows, also as ``left`` and ``right``.
    left, right
        The ids of the rows of each pair.
    probability
        The probability of each pair; NaN where it was not computed.
    codes
        What decided each pair, as a number, which takes less time than a name.
    decided_by
        What decided each pair, as a name.
    """

    codes: np.ndarray

    @property
    def decided_by(self) -> np.ndarray:
        """Return what decided each pair, as a name."""
        return np.array([DECIDED_BY[code] for code in range(len(DECIDED_BY))])[self.codes]


class PairJoin(TwoSidedJoin[ValueRows, PairResult]):
    """Joins batches of two sides under a condition on the difference of two values.

    Each pair is returned once, when its later row is pushed. Rows that can match nothing are not kept. With a window,
    batches have a column ``time``, and pushes may come in any order of time.

    Parameters
    ----------
    condition
        The condition: a ``Difference``, or an expression such as ``abs(hp.left.x - hp.right.x) <= 0.5``.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict). None keeps every pair with positive probability.
    window
        Pairs are those with ``|left time - right time| <= window``, in the unit of the times. None means that all rows
        may meet.
    strategy
        How candidates are found: ``"auto"`` and ``"sweep"`` sweep over core regions, ``"pages"`` puts the stored rows
        into pages, ``"pti"`` into a tree of pages, ``"moments"`` into an index of means and variances.
    exact
        Whether to compute the probability of every pair that is kept. If not, bounds may accept a pair without it.

    Raises
    ------
    HaplyError
        If the strategy is not known, or if the condition is not about a difference.

    Examples
    --------
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
        condition: DifferenceLike,
        threshold: float | None,
        *,
        window: float | None = None,
        strategy: PairStrategy = "auto",
        strict: bool = False,
        exact: bool = True,
    ) -> None:
        self.condition: Difference = condition.as_difference()
        self.threshold = Threshold(threshold, strict)
        if strategy not in STRATEGIES:
            raise unknown_name("strategy", strategy, STRATEGIES)
        super().__init__(window)
        self.exact, self.strategy = exact, strategy
        self._funnel = MomentCounters() if strategy == "moments" else Counters()
        self._joins_parts = strategy in SWEEPS

    @property
    def region(self) -> Region:
        """Return the region in which the difference of a pair must lie."""
        return self.condition.region

    def push(self, side: SideName, batch: Columns) -> PairResult:
        """Add rows of one side, and return the pairs that they complete.

        Parameters
        ----------
        side
            ``"left"`` or ``"right"``.
        batch
            Columns by name: ``id``, the column of the condition as a model or as numbers, and ``time`` if there is a
            window.

        Returns
        -------
        PairResult
            The pairs of these rows with rows that were pushed before.

        Raises
        ------
        HaplyError
            If a column is missing, if columns differ in length, or if the side is closed.
        """
        column = self.condition.left if side == "left" else self.condition.right
        rows = self._read(side, batch, column, self._model_of)
        return self.arrive(SIDES.index(side), rows)

    def _model_of(self, values: Any) -> OneDimensional:
        model = values if isinstance(values, OneDimensional) else Certain(values)
        if self.threshold.value is None and not model.bounded:
            raise HaplyError(
                "Without a threshold every pair is possible",
                expected="values with a bounded support",
                found=f"a {model.kind} column, whose values are unbounded",
                hint="give a threshold",
            )
        return model

    def arrive(self, side: int, rows: RowBatch[OneDimensional], *, match: bool = True) -> PairResult:
        """Push rows that the caller has checked. Without a window, times and groups are ignored."""
        intervals = row_intervals(rows.model, side == 0, self.region, self.threshold, self.exact)
        return concatenate(self._arrive(SIDES[side], TimedRows.placed(rows, intervals), match))

    def _parts(self, rows: ValueRows) -> Iterable[ValueRows]:
        return [rows] if self.window is None or self.strategy in SWEEPS else parts_of(rows, self.window)

    def _match(self, added: ValueRows, stored: Stored[ValueRows], side: SideName) -> PairResult:
        there = stored.rows
        if self.window is not None:
            added = added.facing(there, self.window)
            if self.strategy in SWEEPS:
                there = there.facing(added, self.window)
        left, right = (added, there) if side == "left" else (there, added)
        if not len(added) or not len(there):
            return PairResult((left.ids[:0], right.ids[:0]), np.empty(0), np.empty(0, np.int8))
        whole_numbers = self.window is None and left.ids.dtype == right.ids.dtype == np.int64
        labels = (left.ids, right.ids) if whole_numbers else (None, None)
        found: Matches
        if self.strategy == "moments":
            found = self._match_moments(left, right, stored, "right" if side == "left" else "left")
            whole_numbers = False  # the ids that are found are row numbers
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
        self._funnel.add(found.counters)
        mine, theirs = (found.left, found.right) if whole_numbers else (left.ids[found.left], right.ids[found.right])
        return PairResult((mine, theirs), found.probability, found.decided_by)

    def _admits(self, left: ValueRows, right: ValueRows) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        assert self.window is not None
        return partial(can_meet, left, right, window=self.window)

    def _match_moments(
        self,
        left: ValueRows,
        right: ValueRows,
        stored: Stored[ValueRows],
        indexed: SideName,
    ) -> Matches:
        """Match by an index of means and variances of the stored batch, which is kept for later batches."""
        stored.index = stored.index or index_moments([stored.rows.model])
        return match_moments(
            [left.model], [right.model], [self.region], self.threshold, self.exact, tree=stored.index, indexed=indexed,
            admits=None if self.window is None else self._admits(left, right),
        )  # fmt: skip

    def _paged(self, stored: Stored[ValueRows], is_left: bool) -> PagedJoin:
        """Return stored rows in pages or as a tree, made when they are first matched."""
        if stored.index is None:
            algorithm = OF_STRATEGY[self.strategy]
            stored.index = PagedJoin(
                stored.rows.model, self.region, self.threshold, self.exact, algorithm, inner_is_left=is_left
            )
        assert isinstance(stored.index, PagedJoin)
        return stored.index

    def _settings(self) -> dict[str, Any]:
        return {
            "condition": self.condition, "threshold": self.threshold.value, "window": self.window,
            "strategy": self.strategy, "strict": self.threshold.strict, "exact": self.exact,
        }  # fmt: skip


def concatenate(results: list[PairResult]) -> PairResult:
    """Return the pairs of several results as one."""
    if not results:
        return PairResult(no_pairs().rows, np.empty(0), np.empty(0, np.int8))
    left, right, probability, codes = (
        np.concatenate([getattr(result, name) for result in results])
        for name in ("left", "right", "probability", "codes")
    )
    return PairResult((left, right), probability, codes)
