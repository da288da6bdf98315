"""Sums of normals in boxes, and one quadratic form of normals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from haply.numerics.jit import solid
from haply.numerics.multivariate.multinormal import box_rows
from haply.numerics.multivariate.quadratic import canonical_rows, form_rows
from haply.probability.multivariate import MOST_POINTS, TOLERANCE, Parts
from haply.pruning.bounds.region import FORM_RULES, Bounds, Box, bound_forms, bound_regions
from haply.selection.conditions import Condition, Number, Polynomial, RowValues, Value, ends_of
from haply.selection.group import Group
from haply.selection.normals import Coordinates, fewer_dimensions, take_parts
from haply.selection.ranges import Ends, both, reachable


class BoxRows:
    """Sums of normals, each in a union of ranges: boxes that do not overlap, whose probabilities add up."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        self.rules = group.rules
        normals = Coordinates([name for name, _ in group.kinds], batch)
        sums: dict[tuple[tuple[Value, Number], ...], Ends] = {}
        asked: dict[tuple[tuple[Value, Number], ...], Condition] = {}
        for condition in group.conditions:
            assert isinstance(condition, Polynomial)
            ends = ends_of(condition, batch)
            asked[condition.linear] = condition
            known = sums.get(condition.linear)
            sums[condition.linear] = ends if known is None else both(known, ends)
        by_row = any(isinstance(factor, str) for linear in sums for _, factor in linear)
        rows = np.zeros((*((batch.rows,) if by_row else ()), len(sums), normals.size))
        for at, linear in enumerate(sums):
            for value, factor in linear:
                rows[..., at, normals.place(asked[linear], value)] += batch.number(factor)
        means, covs = normals.transformed(rows)
        self.parts = Parts(normals.start, normals.weight, solid(means), solid(covs))
        boxes: list[list[tuple[np.ndarray, np.ndarray]]] = [[]]
        for ends in sums.values():
            boxes = [[*box, each] for box in boxes for each in ends if (each[0] <= each[1]).any()]
        shape = (batch.rows, len(sums))
        self.boxes = [
            tuple(
                np.stack([np.broadcast_to(each[side], (batch.rows,)) for each in box], axis=1).reshape(shape)
                for side in (0, 1)
            )
            for box in boxes
        ]

    def take(self, rows: np.ndarray) -> BoxRows:
        taken = object.__new__(BoxRows)
        taken.rules = self.rules
        start, chosen = take_parts(self.parts.start, rows)
        taken.parts = Parts(start, self.parts.weight[chosen], self.parts.mean[chosen], self.parts.cov[chosen])
        taken.boxes = [(low[rows], high[rows]) for low, high in self.boxes]
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        if not self.rules:
            return None
        lower, upper = np.zeros(len(self.parts.start) - 1), np.zeros(len(self.parts.start) - 1)
        code = np.zeros(len(lower), np.int8)
        alone = len(self.boxes) == 1
        for low, high in self.boxes:
            empty, low, high = _without_empty(low, high)
            one = bound_regions(
                self.parts, Box(low, high), enough_below if alone else 0.0,
                enough_from if alone else math.inf, rules=self.rules[:most],
            )  # fmt: skip
            lower += np.where(empty, 0.0, one.lower)
            upper += np.where(empty, 0.0, one.upper)
            code = np.maximum(code, one.code)
        return Bounds(lower, upper, code)

    def exact(self) -> tuple[np.ndarray, bool]:
        found = np.zeros(len(self.parts.start) - 1)
        owner = np.repeat(np.arange(len(found)), np.diff(self.parts.start))
        for low, high in self.boxes:
            empty, low, high = _without_empty(low, high)
            chance, _ = box_rows(
                solid(self.parts.mean), solid(self.parts.cov), solid(low[owner]), solid(high[owner]), TOLERANCE,
                MOST_POINTS,
            )  # fmt: skip
            whole = chance if len(owner) == len(found) else np.bincount(owner, self.parts.weight * chance, len(found))
            found += np.where(empty, 0.0, whole)
        return np.minimum(found, 1.0), False


def _without_empty(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which rows' boxes are empty, and the boxes with valid ones in place of these."""
    empty = ((low > high) | (low == math.inf) | (high == -math.inf)).any(axis=1)
    if not empty.any():
        return empty, low, high
    return empty, np.where(empty[:, None], 0.0, low), np.where(empty[:, None], 0.0, high)


class FormRows:
    """One quadratic form of normals in a union of ranges."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        (condition,) = group.conditions
        assert isinstance(condition, Polynomial)
        normals = Coordinates([name for name, _ in group.kinds], batch)
        matrix, line = normals.form(condition, batch)
        by_row = matrix.ndim == 3
        for value, centre in condition.centre:
            normals.means[:, normals.place(condition, value)] -= centre
        if by_row:
            lower, bent, slanted = np.eye(normals.size), matrix[normals.owner], line[normals.owner]
        else:
            lower, bent, slanted = fewer_dimensions(matrix, line)
        means, covs = normals.transformed(lower)
        if slanted.any():
            means, covs, bent = _with_a_constant(means, covs, bent, slanted)
        bent = bent if bent.ndim == 3 else bent[None]
        self.start, self.weight, self.owner = normals.start, normals.weight, normals.owner
        self.curve, self.slope, self.constant = canonical_rows(solid(means), solid(covs), solid(bent))
        self.ends = ends_of(condition, batch)
        if not by_row and not line.any():
            self.ends = [reachable(*each, np.linalg.eigvalsh(matrix)) for each in self.ends]

    def take(self, rows: np.ndarray) -> FormRows:
        taken = object.__new__(FormRows)
        taken.start, chosen = take_parts(self.start, rows)
        taken.owner = np.repeat(np.arange(len(rows)), np.diff(taken.start))
        taken.weight, taken.curve = self.weight[chosen], self.curve[chosen]
        taken.slope, taken.constant = self.slope[chosen], self.constant[chosen]
        taken.ends = [tuple(end[rows] if len(end) > 1 else end for end in each) for each in self.ends]  # type: ignore[misc]
        return taken

    def _limits(self, end: np.ndarray) -> np.ndarray:
        return solid(np.broadcast_to(end, (len(self.start) - 1,)))

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        n = len(self.start) - 1
        lower, upper, code = np.zeros(n), np.zeros(n), np.zeros(n, np.int8)
        levels = [np.broadcast_to(np.asarray(level, np.float64), (n,)) for level in (enough_below, enough_from)]
        alone = len(self.ends) == 1

        def below(end: np.ndarray, reject: Any, accept: Any) -> Bounds:
            return bound_forms(
                self.start, self.weight, self.curve, self.slope, self.constant, self._limits(end), reject, accept,
                FORM_RULES[:most],
            )  # fmt: skip

        for low, high in self.ends:
            empty = low > high
            if np.isneginf(low).all():
                one = below(high, *(levels if alone else (0.0, math.inf)))
            elif np.isposinf(high).all():  # the other side of the same question
                other = below(low, *((1.0 - levels[1], 1.0 - levels[0]) if alone else (0.0, math.inf)))
                one = Bounds(1.0 - other.upper, 1.0 - other.lower, other.code)
            else:
                first, second = below(high, 0.0, math.inf), below(low, 0.0, math.inf)
                one = Bounds(first.lower - second.upper, first.upper - second.lower, first.code)
            lower += np.where(empty, 0.0, np.maximum(one.lower, 0.0))
            upper += np.where(empty, 0.0, one.upper)
            code = np.maximum(code, one.code)
        return Bounds(lower, upper, code)

    def exact(self) -> tuple[np.ndarray, bool]:
        n = len(self.start) - 1
        found = np.zeros(n)
        for low, high in self.ends:
            within = _between(self._chance, self._limits(low), self._limits(high))
            found += np.where(low <= high, within, 0.0)
        return np.clip(found, 0.0, 1.0), False

    def _chance(self, end: np.ndarray, above: bool, closed: bool) -> np.ndarray:
        chance = form_rows(self.curve, self.slope, end[self.owner] - self.constant, closed, above)[0]
        if len(self.owner) == len(end):
            return chance
        return np.bincount(self.owner, self.weight * chance, len(end))


def _between(chance: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Compute ``P(low <= X <= high)`` from the tails on the side where they are small.

    ``chance`` takes an end, whether the tail is above it, and whether the end belongs to it.
    """
    if np.isneginf(low).all():
        return chance(high, False, True)
    if np.isposinf(high).all():
        return chance(low, True, True)
    below = chance(low, False, False)
    return np.where(below < 0.5, chance(high, False, True) - below, chance(low, True, True) - chance(high, True, False))


def _with_a_constant(
    means: np.ndarray, covs: np.ndarray, matrix: np.ndarray, line: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write a form with linear terms as one without, of one more variable that is always 1."""
    n, k = means.shape
    wide = np.zeros((n, k + 1, k + 1))
    wide[:, :k, :k] = covs
    form = np.zeros((*matrix.shape[:-2], k + 1, k + 1))
    form[..., :k, :k] = matrix
    form[..., :k, k] = form[..., k, :k] = 0.5 * line
    return np.hstack([means, np.ones((n, 1))]), wide, form
