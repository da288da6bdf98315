"""Conditions on a few values of any laws: sums, products and squares, by integrals over all values but one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from haply.errors import HaplyError
from haply.models import Certain, Histogram, Mixture, Model, OneDimensional, Samples
from haply.numerics.nested import ALL, ANY, MOST_INTEGRALS, Laws, Polynomials, nested_rows
from haply.selection.cases import AllOf, AnyOf, Sure, Tree, leaves_of
from haply.selection.conditions import Polynomial, RowValues

MOST_WORLDS = 10_000_000
"""Combinations of points that are counted for one row."""
MOST_DEPTH = 60
"""Combinations of conditions that may lie inside one another."""
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


def depth_of(tree: Tree) -> int:
    """How many combinations of conditions lie inside one another: the kernel has one bit for each."""
    return 1 + max(map(depth_of, tree.parts), default=0) if isinstance(tree, (AllOf, AnyOf)) else 1


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
        """The conditions over values minus their centres; those about the same form share it, also with its sign."""
        batch, n, m = self.batch, len(names), len(self.conditions)
        most = max(len(condition.ranges) for condition in self.conditions)
        low, high = np.full((m, most, batch.rows), math.inf), np.full((m, most, batch.rows), -math.inf)
        closed = np.zeros((2, m, most), bool)
        forms: dict[bytes, int] = {}
        linear: list[np.ndarray] = []
        squares: list[np.ndarray] = []
        form = np.zeros(m, np.int64)
        borders: dict[tuple[int, bytes], np.ndarray] = {}
        for c, condition in enumerate(self.conditions):
            factors, bent, constant = self._form(condition, names, centres)
            flat = np.concatenate([factors, bent.reshape(n * n, -1)])[:, 0]
            sign = -1.0 if flat.any() and flat[np.flatnonzero(flat)[0]] < 0.0 else 1.0
            factors, bent = sign * factors + 0.0, sign * bent + 0.0  # no negative zeros
            form[c] = f = forms.setdefault(factors.tobytes() + bent.tobytes(), len(forms))
            if f == len(linear):
                linear.append(factors)
                squares.append(bent)
            for k, each in enumerate(condition.ranges):
                ends = [(batch.array(end) - constant).astype(np.float64) for end in (each.low, each.high)]
                both = each.low_closed, each.high_closed
                low[c, k], high[c, k] = ends if sign > 0.0 else (-ends[1], -ends[0])
                closed[:, c, k] = both if sign > 0.0 else both[::-1]
                borders |= {(f, end.tobytes()): end + 0.0 for end in (low[c, k], high[c, k]) if np.isfinite(end).any()}
        known = np.zeros((len(self.sure) + 2, batch.rows), bool)  # the last two: what always holds, and what never does
        known[-2] = True
        for k, sure in enumerate(self.sure):
            known[k] = np.isin(batch.numbers[sure.number], sure.values)
        border_form = np.array([f for f, _ in borders], np.int64)
        border = np.array(list(borders.values())).reshape(len(borders), batch.rows)
        return Polynomials(
            np.stack(linear), np.stack(squares), border_form, border, form, low, high, closed[0], closed[1], known,
            self._program(),
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

    def _program(self) -> np.ndarray:
        """How the conditions are combined, as the kernel reads it."""
        places = {id(leaf): place for place, leaf in enumerate([*self.conditions, *self.sure])}

        def steps(tree: Tree) -> Iterator[int]:
            if not isinstance(tree, (AllOf, AnyOf)):
                yield places[id(tree)]
                return
            if not tree.parts:
                yield len(places) + isinstance(tree, AnyOf)
            for number, part in enumerate(tree.parts):
                yield from steps(part)
                if number:
                    yield ALL if isinstance(tree, AllOf) else ANY

        return np.array(list(steps(self.tree)), np.int64)


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
