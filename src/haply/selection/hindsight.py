"""Find the best plan for each row in hindsight, to measure per-row planning against it in experiments.

All that a plan can find out is known beforehand: the value and the bounds of every group for every row, and what both
cost in this batch. For each row those steps are taken that decide it for the least cost. A step is a group's value or
its bounds; these are the filters that per-row planning has. What they cost is spent when the plan runs, and is not
spent here on anything else: to know all this takes no time.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from haply.pruning.threshold import Threshold
from haply.selection.conditions import RowValues
from haply.selection.group import Group

NOTHING, BOUNDS, VALUE = 0, 1, 2
"""What is computed of a group for a row."""
_MOST_GROUPS = 5
"""Groups up to which all combinations of steps are looked at; of more, those of a few groups, and all values."""
_FEW = 2
_ROUNDS = 3


@dataclass(frozen=True)
class Hindsight:
    """The values, bounds and costs of a batch; arrays have a row for each group."""

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    value_costs: Sequence[float]
    """Seconds for the value of a row."""
    bound_costs: Sequence[float]
    """Seconds for the bounds of a row; infinite for groups that have none."""

    @classmethod
    def of(cls, groups: Sequence[Group], batch: RowValues, threshold: Threshold) -> Hindsight:
        """Compute and time everything."""
        shape = len(groups), batch.rows
        values, lower, upper = np.ones(shape), np.zeros(shape), np.ones(shape)
        value_costs, bound_costs = [], []
        for g, group in enumerate(groups):
            values[g] = group.prepare(batch).exact()[0]
            value_costs.append(_price(lambda: group.prepare(batch).exact(), batch.rows))  # noqa: B023
            bound_costs.append(math.inf)
            found = group.prepare(batch).bounds(0.0, math.inf) if group.has_bounds else None
            if found is not None:
                lower[g], upper[g] = np.clip(found.lower, 0.0, 1.0), np.clip(found.upper, 0.0, 1.0)
                enough = threshold.reject_below
                bound_costs[g] = _price(lambda: group.prepare(batch).bounds(enough, enough), batch.rows)  # noqa: B023
        return cls(values, lower, upper, value_costs, bound_costs)

    def steps(self, threshold: Threshold, exact: bool) -> np.ndarray:
        """Return what to compute of each group for each row: the cheapest steps that decide it.

        With ``exact`` the value of every kept row is wanted, so that only all values keep one.
        """
        count, rows = self.values.shape
        best, chosen = np.full(rows, math.inf), np.full((count, rows), VALUE, np.int8)
        for steps in _combinations(count):
            price = sum((0.0, self.bound_costs[g], self.value_costs[g])[step] for g, step in enumerate(steps))
            if math.isinf(price):
                continue
            least, most = np.ones(rows), np.ones(rows)
            for g, step in enumerate(steps):
                least = least * (0.0, self.lower[g], self.values[g])[step]
                most = most * (1.0, self.upper[g], self.values[g])[step]
            decided = most <= threshold.reject_below
            if not exact:
                decided |= least >= threshold.accept_from
            if min(steps) == VALUE:
                decided[:] = True
            better = decided & (price < best)
            best[better] = price
            chosen[:, better] = np.array(steps, np.int8)[:, None]
        return chosen


def _combinations(count: int) -> list[tuple[int, ...]]:
    """Return all combinations of groups that may be computed; of very many, the likeliest."""
    if count <= _MOST_GROUPS:
        return list(itertools.product((NOTHING, BOUNDS, VALUE), repeat=count))
    found = [(VALUE,) * count, (BOUNDS,) * count]
    for size in range(1, _FEW + 1):
        for groups in itertools.combinations(range(count), size):
            for steps in itertools.product((BOUNDS, VALUE), repeat=size):
                taken = dict(zip(groups, steps, strict=True))
                found.append(tuple(taken.get(g, NOTHING) for g in range(count)))
    return found


def _price(work: Callable[[], Any], rows: int) -> float:
    """Return seconds for a row, at best."""
    spent = []
    for _ in range(_ROUNDS):
        begun = time.thread_time()
        work()
        spent.append(time.thread_time() - begun)
    return min(spent) / max(rows, 1)
