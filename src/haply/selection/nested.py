"""Conditions on a few values of any laws: sums, products and squares, by integrals over all values but one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from haply.errors import HaplyError
from haply.models import Certain, Histogram, Mixture, Model, OneDimensional, Samples
from haply.numerics.nested import ALL, ANY, MOST_INTEGRALS, Laws, Polynomials, nested_rows
from haply.selection.cases import AllOf, AnyOf, Sure, Tree, leaves_of
from haply.selection.conditions import Polynomial, RowValues

MOST_WORLDS = 10_000_000
"""Combinations of points that are counted for one row."""
_COUNTED = (Samples, Certain)
"""Laws that are points only."""
_LAST = (Mixture, Histogram)
"""Laws of many components: one of them is best integrated in closed form."""


def integrals_of(kinds: Sequence[tuple[str, type[Model]]]) -> int:
    """How many numerical integrals values of these laws take; the last value takes none."""
    return max(0, sum(not issubclass(kind, _COUNTED) for _, kind in kinds) - 1)


def can_nest(conditions: Sequence[Any], kinds: Sequence[tuple[str, type[Model]]]) -> bool:
    """Whether these are conditions and laws that ``Nested`` computes."""
    return (
        all(isinstance(condition, Polynomial) and not condition.centre for condition in conditions)
        and all(index is None for condition in conditions for _, index in condition.values)
        and all(issubclass(kind, OneDimensional) for _, kind in kinds)
        and integrals_of(kinds) <= MOST_INTEGRALS
    )


class Nested:
    """Values of any laws, of which all but one are enumerated or integrated."""

    def __init__(self, tree: Tree, kinds: Sequence[tuple[str, type[Model]]], batch: RowValues) -> None:
        self.tree, self.kinds, self.batch = tree, kinds, batch
        leaves = list(leaves_of(tree))
        self.conditions = [leaf for leaf in leaves if isinstance(leaf, Polynomial)]
        self.sure = [leaf for leaf in leaves if isinstance(leaf, Sure)]

    def take(self, rows: np.ndarray) -> Nested:
        """Some of the rows."""
        return Nested(self.tree, self.kinds, self.batch.take(rows))

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> None:
        """None are cheaper than the value."""

    def exact(self) -> tuple[np.ndarray, bool]:
        """The probabilities; counts of equally likely cases, if all values are points of equal weight."""
        batch, rows = self.batch, self.batch.rows
        names = sorted((name for name, _ in self.kinds), key=lambda name: _rank(dict(self.kinds)[name]))
        models = {}
        for name in names:
            model = batch.values[name]
            assert isinstance(model, OneDimensional)
            models[name] = model if len(model) == rows else model.take(np.zeros(rows, np.int64))
        integrals = integrals_of(self.kinds)
        self._refuse_many(models, names[: len(names) - 1 - integrals])
        # near each value's middle, sums of large numbers lose no digits; points are compared as they are
        counted = all(issubclass(kind, _COUNTED) for _, kind in self.kinds)
        centres = np.zeros((len(names), rows)) if counted else np.stack([models[name].mean() for name in names])
        found = np.empty(rows)
        nested_rows(_laws(models, centres), self._polynomials(names, centres), integrals, found)
        return found, counted and all(models[name].equal_weight_samples() for name in names)

    def _refuse_many(self, models: dict[str, Any], names: Sequence[str]) -> None:
        counts = np.ones(self.batch.rows)
        for name in names:
            counts = counts * np.diff(models[name].components.start)
        if self.batch.rows and counts.max() > MOST_WORLDS:
            text = " AND ".join(condition.text for condition in self.conditions)
            raise HaplyError(
                f"The points of a row in `{text}` have {counts.max():.2g} combinations",
                expected=f"{MOST_WORLDS:,} at most",
                hint="thin the samples out, or ask for fewer columns at once",
            )

    def _polynomials(self, names: Sequence[str], centres: np.ndarray) -> Polynomials:
        """The conditions over values minus their centres, each once; those about the same form share it."""
        batch, n = self.batch, len(names)
        most = max(len(condition.ranges) for condition in self.conditions)
        forms: dict[bytes, int] = {}
        linear: list[np.ndarray] = []
        squares: list[np.ndarray] = []
        borders: dict[tuple[int, bytes], np.ndarray] = {}
        leaves: dict[tuple[int, bytes], int] = {}
        asked: list[tuple[int, np.ndarray, np.ndarray]] = []
        places: dict[int, int] = {}
        for condition in self.conditions:
            factors, bent, constant = self._form(condition, names, centres)
            flat = np.concatenate([factors, bent.reshape(n * n, -1)])[:, 0]
            sign = -1.0 if flat.any() and flat[np.flatnonzero(flat)[0]] < 0.0 else 1.0
            factors, bent = sign * factors + 0.0, sign * bent + 0.0  # no negative zeros
            f = forms.setdefault(factors.tobytes() + bent.tobytes(), len(forms))
            if f == len(linear):
                linear.append(factors)
                squares.append(bent)
            ends = np.repeat(np.array([math.inf, -math.inf])[:, None, None], most, 1).repeat(batch.rows, 2)
            closed = np.zeros((2, most), bool)
            for k, each in enumerate(condition.ranges):
                ends[:, k] = [batch.array(end) - constant for end in (each.low, each.high)]
                closed[:, k] = each.low_closed, each.high_closed
                if sign < 0.0:
                    ends[:, k], closed[:, k] = -ends[::-1, k], closed[::-1, k].copy()
                borders |= {(f, end.tobytes()): end + 0.0 for end in ends[:, k] if np.isfinite(end).any()}
            number = leaves.setdefault((f, ends.tobytes() + closed.tobytes()), len(asked))
            if number == len(asked):
                asked.append((f, ends, closed))
            places[id(condition)] = number
        known = np.zeros((len(self.sure) + 2, batch.rows), bool)  # the last two: what always holds, and what never does
        known[-2] = True
        sure: dict[tuple[str, tuple[float, ...]], int] = {}
        for leaf in self.sure:
            number = sure.setdefault((leaf.number, leaf.values), len(sure))
            known[number] = np.isin(batch.numbers[leaf.number], leaf.values)
            places[id(leaf)] = len(asked) + number
        border_form = np.array([f for f, _ in borders], np.int64)
        border = np.array(list(borders.values())).reshape(len(borders), batch.rows)
        low, high = (np.stack([ends[side] for _, ends, _ in asked]) for side in (0, 1))
        low_closed, high_closed = (np.stack([closed[side] for _, _, closed in asked]) for side in (0, 1))
        return Polynomials(
            np.stack(linear), np.stack(squares), border_form, border, np.array([f for f, _, _ in asked], np.int64),
            low, high, low_closed, high_closed, known, self._program(places, len(asked) + len(known)),
        )  # fmt: skip

    def _form(
        self, condition: Polynomial, names: Sequence[str], centres: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The factors of values and of their products in a condition, and its constant, seen from the centres."""
        batch, n = self.batch, len(names)
        place = {name: v for v, name in enumerate(names)}
        linear, squares = np.zeros((n, batch.rows)), np.zeros((n, n, batch.rows))
        far = centres.astype(np.longdouble)
        constant = np.zeros(batch.rows, np.longdouble)
        for (name, _), factor in condition.linear:
            v, number = place[name], batch.array(factor)
            linear[v] += number
            constant += number * far[v]
        for (one, _), (two, _), factor in condition.squares:
            v, w = sorted((place[one], place[two]))
            number = batch.array(factor)
            squares[v, w] += number
            linear[v] += number * centres[w]
            linear[w] += number * centres[v]
            constant += number * far[v] * far[w]
        return linear, squares, constant

    def _program(self, places: dict[int, int], count: int) -> np.ndarray:
        """How the conditions are combined, as the kernel reads it; what stands twice in the tree is computed once.

        ``places`` has the numbers of conditions by their ids, ``count`` is that of all.
        """
        rows: dict[tuple[int, int, int], int] = {}
        always, never = count - 2, count - 1

        def combined(op: int, one: int, other: int) -> int:
            return rows.setdefault((op, min(one, other), max(one, other)), count + len(rows))

        def place(tree: Tree) -> int:
            if not isinstance(tree, (AllOf, AnyOf)):
                return places[id(tree)]
            if not tree.parts:
                return always if isinstance(tree, AllOf) else never
            first, *others = sorted({place(part) for part in tree.parts})
            for other in others:
                first = combined(ALL if isinstance(tree, AllOf) else ANY, first, other)
            return first

        whole = place(self.tree)
        if whole < count + len(rows) - 1 or not rows:  # the whole is the last
            rows[ALL, whole, whole] = count + len(rows)
        return np.array(list(rows), np.int64)


def _rank(kind: type[Model]) -> int:
    """Points come first, laws of many components last."""
    return 0 if issubclass(kind, _COUNTED) else 2 if issubclass(kind, _LAST) else 1


def _laws(models: dict[str, Any], centres: np.ndarray) -> Laws:
    """The components of all values, seen from the centres."""
    starts, columns = [], []
    begun = 0
    for centre, model in zip(centres, models.values(), strict=True):
        parts = model.components
        away = np.repeat(centre, np.diff(parts.start))
        starts.append(parts.start + begun)
        columns.append((parts.weight, parts.kind, parts.low - away, parts.high - away, parts.mean - away, parts.sd))
        begun += len(parts.weight)
    merged = [np.ascontiguousarray(np.concatenate(column)) for column in zip(*columns, strict=True)]
    return Laws(np.stack(starts).astype(np.int64), *merged)
