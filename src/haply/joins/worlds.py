"""How many partners rows have where several uncertain conditions must hold together.

All conditions look at the same values of a row. Given these, its partners are independent, and each matches with the
probability that a join gives it. So the values of a row must be samples: its possible worlds are listed, and what the
conditions say of a partner in each of them is computed by the join's own selection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError
from haply.joins.cells.asked import PairSelection
from haply.joins.counting import CountedNumbers
from haply.models import Samples
from haply.models.columns import view_column
from haply.models.ragged import Ragged
from haply.probability.counts import MatchCounts
from haply.selection.conditions import RowValues

_AT_ONCE = 1 << 20
"""Pairs in worlds that are computed together, about."""
_MOST_WORLDS = 1_000_000
"""Of one row."""


class _Worlds(NamedTuple):
    """The possible values of rows: those of row ``i`` are at ``start[i]:start[i + 1]``."""

    start: np.ndarray
    weight: np.ndarray
    values: dict[str, Samples]
    """A point for each world, by the names of columns."""


@dataclass(frozen=True)
class WorldCounting(CountedNumbers):
    """What is counted: pairs of one table for which all conditions hold."""

    asked: PairSelection
    side: int = 0
    """Whose partners are counted: 0 for left rows."""
    quantiles: tuple[float, ...] = ()
    distribution: bool = False
    singly: bool = False

    @property
    def mirrored(self) -> WorldCounting:
        """The same from the other side; only the variance is of interest there."""
        return replace(self, side=1 - self.side, quantiles=(), distribution=False, singly=False)

    @property
    def columns(self) -> list[str]:
        """The columns of pairs that are needed."""
        return [*self.asked.columns(0), *(name for name in self.asked.columns(1) if name not in self.asked.columns(0))]

    def rows(self, pairs: pa.Table, start: np.ndarray) -> dict[str, pa.Array]:
        """Count the partners of rows, whose pairs are at ``start[i]:start[i + 1]``; returns columns by name."""
        worlds = self._worlds(pairs.take(pa.array(start[:-1])))
        size = np.diff(worlds.start) * np.diff(start)
        ends = np.flatnonzero(np.diff(np.cumsum(size) // _AT_ONCE, prepend=0)) + 1
        parts = [
            self._counted(pairs, start, worlds, int(begin), int(end))
            for begin, end in zip([0, *ends], [*ends, len(size)], strict=True)
            if begin < end
        ]
        some, expected, variance, single = (
            np.concatenate([np.zeros(0), *(numbers[k] for numbers in parts)]) for k in range(4)
        )
        lists = [part.distribution for part in parts if part.distribution is not None]
        asked = self.distribution or bool(self.quantiles)
        found = MatchCounts(some, expected, variance, single, _joined(lists) if asked else None)
        return self.written(found, start)

    def _worlds(self, rows: pa.Table) -> _Worlds:
        """List all combinations of the samples of each row."""
        mine = {name: view_column(rows[column]) for name, side, column in self.asked.uncertain if side == self.side}
        counts = {name: model.points.lengths // model.dim.astype(np.int64) for name, model in mine.items()}
        total = np.prod([np.ones(rows.num_rows), *counts.values()], axis=0)
        if (total > _MOST_WORLDS).any():
            raise HaplyError(
                f"A row has {total.max():,.0f} combinations of samples", expected=f"{_MOST_WORLDS:,} at most",
                hint="take fewer samples",
            )  # fmt: skip
        start = np.concatenate([[0], np.cumsum(total.astype(np.int64))])
        owner = np.repeat(np.arange(rows.num_rows), np.diff(start))
        rest, weight = np.arange(start[-1]) - start[owner], np.ones(start[-1])
        values = {}
        for name, model in mine.items():
            each = rest % counts[name][owner]
            rest = rest // counts[name][owner]
            dims = model.dim.astype(np.int64)[owner]
            first = model.points.start[owner] + each * dims
            begins = np.concatenate([[0], np.cumsum(dims)])
            place = np.repeat(first - begins[:-1], dims) + np.arange(begins[-1])
            values[name] = Samples(Ragged(model.points.values[place], begins), None, dims.astype(np.float64))
            if model.probs is None:
                weight = weight / counts[name][owner]
            else:
                weight = weight * model.probs.values[model.probs.start[owner] + each] / model.probs.sums()[owner]
        return _Worlds(start, weight, values)

    def _counted(self, pairs: pa.Table, start: np.ndarray, worlds: _Worlds, begin: int, end: int) -> MatchCounts:
        """Count the partners of rows ``begin`` to ``end``."""
        of_row, partners = np.diff(worlds.start)[begin:end], np.diff(start)[begin:end]
        lengths = np.repeat(partners, of_row)  # of each world
        first = np.concatenate([[0], np.cumsum(lengths)])
        world = np.repeat(np.arange(worlds.start[begin], worlds.start[end]), lengths)
        pair = np.repeat(np.repeat(start[begin:end], of_row) - first[:-1], lengths) + np.arange(first[-1])
        values = {
            name: worlds.values[name].take(world) if side == self.side else view_column(pairs[column]).take(pair)
            for name, side, column in self.asked.uncertain
        }
        numbers = {name: pairs[column].to_numpy()[pair] for name, _, column in self.asked.numbers}
        chance = self.asked.selection.probabilities(RowValues(values, numbers, len(pair))).prod(axis=0)
        weight = worlds.weight[worlds.start[begin] : worlds.start[end]]
        matrices = np.split(chance, np.cumsum(of_row * partners)[:-1])
        weights = np.split(weight, np.cumsum(of_row)[:-1])
        return _summed(
            [one.reshape(len(share), -1) for one, share in zip(matrices, weights, strict=True)],
            weights,
            self.distribution or bool(self.quantiles),
        )


def _summed(chances: list[np.ndarray], weights: list[np.ndarray], distribution: bool) -> MatchCounts:
    """Average over worlds: ``chances[i]`` is an array (worlds, partners) of row ``i``."""
    some, expected, variance, single, shares = [], [], [], [], []
    for chance, weight in zip(chances, weights, strict=True):
        here = chance.sum(axis=1)
        mean = float(weight @ here)
        some.append(1.0 - float(weight @ (1.0 - chance).prod(axis=1)))
        expected.append(mean)
        variance.append(float(weight @ ((chance * (1.0 - chance)).sum(axis=1) + (here - mean) ** 2)))
        single.append(weight @ chance)
        if distribution:
            shares.append(weight @ _numbers(chance))
    lists = None
    if distribution:
        ends = np.concatenate([[0], np.cumsum([len(one) for one in shares])]).astype(np.int64)
        lists = Ragged(np.concatenate(shares), ends)
    return MatchCounts(np.array(some), np.array(expected), np.array(variance), np.concatenate(single), lists)


def _numbers(chance: np.ndarray) -> np.ndarray:
    """How likely 0, 1, 2, ... of the partners match, in each world."""
    found = np.zeros((len(chance), chance.shape[1] + 1))
    found[:, 0] = 1.0
    for k in range(chance.shape[1]):
        q = chance[:, k : k + 1]
        found[:, 1 : k + 2] = found[:, 1 : k + 2] * (1.0 - q) + found[:, : k + 1] * q
        found[:, :1] *= 1.0 - q
    return found


def _joined(parts: list[Ragged]) -> Ragged:
    starts = np.concatenate([[0], np.cumsum([len(part.values) for part in parts])])[:-1]
    values = np.concatenate([np.zeros(0), *(part.values for part in parts)])
    return Ragged(values, np.concatenate([[0], *(part.start[1:] + at for part, at in zip(parts, starts, strict=True))]))
