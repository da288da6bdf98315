"""How many partners rows have where several uncertain conditions must hold together.

All conditions look at the same values of a row. Given these, its partners are independent, and each matches with the
probability that a join gives it. The possible worlds of a row are listed, and averaged over.

The values of a row may be samples. Then what the conditions say of a partner in each world is computed by the join's
own selection. Or they are normal, and each condition is about the sum of a value of the row and a normal one of the
partner, which is in no other condition (``NormalWindow``). Then worlds are the nodes of the trapezoidal rule for each
value, and a partner's chance is a product of normal masses. With an imaginary part ``y`` of a value, in its deviations,
these grow by ``exp(y**2 bends / 2)`` at most, where ``bends`` is the sum of squared ratios of the value's deviation to
those of the partners. So a step ``h`` errs by at most ``2 exp(-2 pi**2 / (h**2 (1 + bends)))`` of each chance, which is
1.3e-15 for each of the row's values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError
from haply.joins.cells.asked import PairSelection
from haply.joins.counting import CountedNumbers
from haply.models import Gaussian, Samples
from haply.models.columns import view_column
from haply.models.ragged import Ragged
from haply.numerics.grid import EXACT, FARTHEST
from haply.probability.counts import MatchCounts
from haply.probability.kernels import normal_windows
from haply.probability.quadrature import MOST_BENDS
from haply.selection.conditions import RowValues

_AT_ONCE = 1 << 20
"""Pairs in worlds that are computed together, about."""
_ROWS_AT_ONCE = 256
"""Rows whose worlds are listed together."""
_MOST_WORLDS = 1_000_000
"""Of one row."""


class _Worlds(NamedTuple):
    """The possible values of rows: those of row ``i`` are at ``start[i]:start[i + 1]``."""

    start: np.ndarray
    weight: np.ndarray
    values: dict[str, Any]
    """A point for each world, by the names of columns: samples, or numbers if values are normal."""


@dataclass(frozen=True)
class NormalWindow:
    """A condition: a normal value of each side, times factors, add up to a number between two ends."""

    columns: tuple[str, str]
    """The compared columns of pairs, of the left side and of the right one."""
    factors: tuple[float, float]
    low: float | str
    high: float | str
    """Ends: numbers, or columns of pairs."""
    closed: tuple[bool, bool]
    """Whether the ends themselves are between them."""


class _Nodes(NamedTuple):
    """The trapezoidal rule for a normal value of each row: how many nodes are on each side of
    its mean, and the step between them, in deviations."""

    mean: np.ndarray
    sd: np.ndarray
    last: np.ndarray
    step: np.ndarray


@dataclass(frozen=True)
class WorldCounting(CountedNumbers):
    """What is counted: pairs of one table for which all conditions hold."""

    asked: PairSelection
    side: int = 0
    """Whose partners are counted: 0 for left rows."""
    quantiles: tuple[float, ...] = ()
    distribution: bool = False
    singly: bool = False
    windows: tuple[NormalWindow, ...] = ()
    """The conditions, if values are normal; none if they are samples."""

    @property
    def mirrored(self) -> WorldCounting:
        """Return the same from the other side; only the variance is of interest there."""
        return replace(self, side=1 - self.side, quantiles=(), distribution=False, singly=False)

    @property
    def columns(self) -> list[str]:
        """Return the columns of pairs that are needed."""
        return [*self.asked.columns(0), *(name for name in self.asked.columns(1) if name not in self.asked.columns(0))]

    def rows(self, pairs: pa.Table, start: np.ndarray) -> dict[str, pa.Array]:
        """Count the partners of rows, whose pairs are at ``start[i]:start[i + 1]``; returns columns by name."""
        parts = []
        for first in range(0, len(start) - 1, _ROWS_AT_ONCE):
            own = start[first : first + _ROWS_AT_ONCE + 1]
            parts += self._parts(pairs.slice(own[0], own[-1] - own[0]), own - own[0])
        some, expected, variance, single = (
            np.concatenate([np.zeros(0), *(numbers[k] for numbers in parts)]) for k in range(4)
        )
        lists = [part.distribution for part in parts if part.distribution is not None]
        asked = self.distribution or bool(self.quantiles)
        found = MatchCounts(some, expected, variance, single, _joined(lists) if asked else None)
        return self.written(found, start)

    def _parts(self, pairs: pa.Table, start: np.ndarray) -> list[MatchCounts]:
        """Count the partners of some rows, in batches that limit the number of worlds."""
        rows = pairs.take(pa.array(start[:-1]))
        worlds = self._nodes(rows, pairs, start) if self.windows else self._worlds(rows)
        size = np.diff(worlds.start) * np.diff(start)
        ends = np.flatnonzero(np.diff(np.cumsum(size) // _AT_ONCE, prepend=0)) + 1
        return [
            self._counted(pairs, start, worlds, int(begin), int(end))
            for begin, end in zip([0, *ends], [*ends, len(size)], strict=True)
            if begin < end
        ]

    def _worlds(self, rows: pa.Table) -> _Worlds:
        """List all combinations of the samples of each row."""
        mine = {name: view_column(rows[column]) for name, side, column in self.asked.uncertain if side == self.side}
        counts = {name: model.points.lengths // model.dim.astype(np.int64) for name, model in mine.items()}
        start, owner, choices = _combinations(counts, rows.num_rows, "samples", "take fewer samples")
        weight, values = np.ones(start[-1]), {}
        for name, model in mine.items():
            each = choices[name]
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

    def _nodes(self, rows: pa.Table, pairs: pa.Table, start: np.ndarray) -> _Worlds:
        """List all combinations of the nodes of normal values, as many as the widths of a row's partners ask for."""
        of_pair, rules = np.repeat(np.arange(rows.num_rows), np.diff(start)), {}
        for name in dict.fromkeys(window.columns[self.side] for window in self.windows):
            model = view_column(rows[name])
            assert isinstance(model, Gaussian)
            bends = np.zeros(rows.num_rows)
            for window in self.windows:
                if window.columns[self.side] == name:
                    theirs = view_column(pairs[window.columns[1 - self.side]])
                    assert isinstance(theirs, Gaussian)
                    ratio = window.factors[self.side] / window.factors[1 - self.side]
                    with np.errstate(divide="ignore", invalid="ignore"):
                        bent = np.where(model.sd[of_pair] > 0.0, (ratio * model.sd[of_pair] / theirs.sd) ** 2, 0.0)
                    bends += np.bincount(of_pair, bent, rows.num_rows)
            if (bends > MOST_BENDS).any():
                raise HaplyError(
                    "A value is so much wider than those of its partners that its matches are not counted",
                    expected=f"squared ratios of standard deviations that sum to {MOST_BENDS:g} at most",
                    found=f"{bends.max():g}",
                    hint="turn the wide values into samples, or count by one condition",
                )
            step = np.sqrt(2.0 * np.pi**2 / (EXACT * (1.0 + bends)))
            last = np.where(model.sd > 0.0, np.floor(FARTHEST / step), 0.0).astype(np.int64)
            rules[name] = _Nodes(
                model.values["mean"], model.sd, last, np.where(last > 0, step, math.sqrt(2.0 * math.pi))
            )
        counts = {name: 2 * rule.last + 1 for name, rule in rules.items()}
        begins, owner, choices = _combinations(counts, rows.num_rows, "nodes", "compare fewer uncertain columns")
        weight, values = np.ones(begins[-1]), {}
        for name, rule in rules.items():
            z = (choices[name] - rule.last[owner]) * rule.step[owner]
            values[name] = rule.mean[owner] + rule.sd[owner] * z
            weight *= rule.step[owner] * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        return _Worlds(begins, weight, values)

    def _chances(self, pairs: pa.Table, worlds: _Worlds, pair: np.ndarray, world: np.ndarray) -> np.ndarray:
        """Return how likely pairs match, each in one world of its row."""
        if not self.windows:
            values = {
                name: worlds.values[name].take(world) if side == self.side else view_column(pairs[column]).take(pair)
                for name, side, column in self.asked.uncertain
            }
            numbers = {name: pairs[column].to_numpy()[pair] for name, _, column in self.asked.numbers}
            return self.asked.selection.probabilities(RowValues(values, numbers, len(pair))).prod(axis=0)
        chance = np.ones(len(pair))
        for window in self.windows:
            theirs = view_column(pairs[window.columns[1 - self.side]])
            assert isinstance(theirs, Gaussian)
            mine, factor = window.factors[self.side], window.factors[1 - self.side]
            centre = mine * worlds.values[window.columns[self.side]][world] + factor * theirs.values["mean"][pair]
            low, high = (
                pairs[end].to_numpy()[pair] if isinstance(end, str) else np.full(len(pair), end)
                for end in (window.low, window.high)
            )
            chance *= normal_windows(centre, abs(factor) * theirs.sd[pair], low, high, *window.closed)
        return chance

    def _counted(self, pairs: pa.Table, start: np.ndarray, worlds: _Worlds, begin: int, end: int) -> MatchCounts:
        """Count the partners of rows ``begin`` to ``end``."""
        of_row, partners = np.diff(worlds.start)[begin:end], np.diff(start)[begin:end]
        lengths = np.repeat(partners, of_row)  # of each world
        first = np.concatenate([[0], np.cumsum(lengths)])
        world = np.repeat(np.arange(worlds.start[begin], worlds.start[end]), lengths)
        pair = np.repeat(np.repeat(start[begin:end], of_row) - first[:-1], lengths) + np.arange(first[-1])
        chance = self._chances(pairs, worlds, pair, world)
        weight = worlds.weight[worlds.start[begin] : worlds.start[end]]
        matrices = np.split(chance, np.cumsum(of_row * partners)[:-1])
        weights = np.split(weight, np.cumsum(of_row)[:-1])
        return _summed(
            [one.reshape(len(share), -1) for one, share in zip(matrices, weights, strict=True)],
            weights,
            self.distribution or bool(self.quantiles),
        )


def _combinations(
    counts: dict[str, np.ndarray], rows: int, what: str, hint: str
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Number all combinations of what the columns of each row may be.

    Returns where those of each row begin, the row of each, and which of its column's choices it has.
    """
    total = np.prod([np.ones(rows), *counts.values()], axis=0)
    if (total > _MOST_WORLDS).any():
        raise HaplyError(
            f"A row has {total.max():,.0f} combinations of {what}", expected=f"{_MOST_WORLDS:,} at most", hint=hint
        )
    start = np.concatenate([[0], np.cumsum(total.astype(np.int64))])
    owner = np.repeat(np.arange(rows), np.diff(start))
    rest, choices = np.arange(start[-1]) - start[owner], {}
    for name, count in counts.items():
        choices[name] = rest % count[owner]
        rest = rest // count[owner]
    return start, owner, choices


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
    """Return how likely 0, 1, 2, ... of the partners match, in each world."""
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
