"""One value of any law, one distance, and differences of any laws that connect values as a tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from haply.models import Certain, GaussianND, OneDimensional, Samples
from haply.numerics.jit import solid
from haply.numerics.multivariate.quadratic import canonical_rows
from haply.numerics.scale import powers_of
from haply.probability.distance import within_distance
from haply.probability.exact import interval_probability
from haply.probability.joint import ZERO, Joint
from haply.probability.multivariate import parts
from haply.probability.region import Difference, Distance, Linear
from haply.pruning.bounds.region import FORM_RULES, Bounds, bound_forms
from haply.selection.conditions import Apart, Condition, Polynomial, RowValues, one_region, solved
from haply.selection.group import Group
from haply.selection.methods.curved import SINGLY
from haply.selection.ranges import Ends, both


class IntervalRows:
    """One value of any law in a union of intervals, by its distribution function."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        ((name, _),) = group.kinds
        model = batch.values[name]
        assert isinstance(model, OneDimensional)
        self.model, self.rows = model, batch.rows
        ends: Ends | None = None
        for condition in group.conditions:
            assert isinstance(condition, Polynomial)
            slope = batch.array(condition.linear[0][1] if condition.linear else 0.0)
            curve = batch.array(condition.squares[0][2] if condition.squares else 0.0)
            mine = solved(condition, curve, slope, batch, sum(centre for _, centre in condition.centre))
            ends = mine if ends is None else both(ends, mine)
        assert ends is not None
        self.ends = [(low, high) for low, high in ends if (low <= high).any()]

    def take(self, rows: np.ndarray) -> IntervalRows:
        taken = object.__new__(IntervalRows)
        taken.model = self.model.take(rows) if len(self.model) > 1 else self.model
        taken.ends = [tuple(end[rows] if len(end) > 1 else end for end in each) for each in self.ends]  # type: ignore[misc]
        taken.rows = len(rows)
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> None:
        return None

    def exact(self) -> tuple[np.ndarray, bool]:
        found = np.zeros(self.rows)
        for low, high in self.ends:
            found = found + np.where(low <= high, interval_probability(self.model, low, np.maximum(low, high)), 0.0)
        counts = self.model.equal_weight_samples() and len(self.ends) <= 1
        return found if counts else np.minimum(found, 1.0), counts


class DistanceRows:
    """One distance: by the difference of normals, with the bounds of forms, or by counting samples."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        (condition,) = group.conditions
        assert isinstance(condition, Apart)
        self.condition = condition
        self.one, self.other = batch.values[condition.one], batch.values[condition.other]
        limit = np.atleast_1d(np.asarray(batch.number(condition.limit), np.float64))
        self.limit = limit if condition.closed else np.nextafter(limit, -math.inf)
        self.rows = batch.rows

    def take(self, rows: np.ndarray) -> DistanceRows:
        taken = object.__new__(DistanceRows)
        taken.condition, taken.rows = self.condition, len(rows)
        taken.one, taken.other = (model.take(rows) if len(model) > 1 else model for model in (self.one, self.other))
        taken.limit = self.limit[rows] if len(self.limit) > 1 else self.limit
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        if not (isinstance(self.one, GaussianND) and isinstance(self.other, GaussianND)):
            return None
        if any(powers_of(sizes) is not None for sizes in (self.one.sizes(), self.other.sizes(), np.abs(self.limit))):
            return None  # the value is found on scales on which squares are in range
        one, other = parts(self.one), parts(self.other)
        assert one is not None
        assert other is not None
        if self.condition.beyond:
            enough_below, enough_from = np.subtract(1.0, enough_from), np.subtract(1.0, enough_below)
        means, covs = solid(one.mean - other.mean), solid(one.cov + other.cov)
        curve, slope, constant = canonical_rows(means, covs, np.eye(means.shape[1])[None])
        square = np.where(self.limit < 0.0, -math.inf, self.limit * self.limit)
        limits = solid(np.broadcast_to(square, (self.rows,)))
        found = bound_forms(
            np.arange(self.rows + 1), np.ones(self.rows), curve, slope, constant, limits, enough_below, enough_from,
            FORM_RULES[:most],
        )  # fmt: skip
        if self.condition.beyond:
            return Bounds(1.0 - found.upper, 1.0 - found.lower, found.code)
        return found

    def exact(self) -> tuple[np.ndarray, bool]:
        never = self.limit < 0.0
        found = np.where(never, 0.0, within_distance(self.one, self.other, np.where(never, 0.0, self.limit)))
        counts = all(
            isinstance(model, (Certain, Samples)) and model.equal_weight_samples() for model in (self.one, self.other)
        )
        found = np.broadcast_to(found, (self.rows,))
        return (1.0 - found, False) if self.condition.beyond else (found, counts)


class TreeRows:
    """Differences that connect values as a tree."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        tree = scaled_tree(group.conditions)
        assert tree is not None
        self.joint, self.rows = Joint.of(tree.conditions, dict(group.kinds)), batch.rows
        self.values = {
            name: model.times(scale) if (scale := tree.scales.get(name, 1.0)) != 1.0 else model
            for name, model in batch.values.items()
        }

    def take(self, rows: np.ndarray) -> TreeRows:
        taken = object.__new__(TreeRows)
        taken.joint, taken.rows = self.joint, len(rows)
        taken.values = {name: m if len(m) == 1 else m.take(rows) for name, m in self.values.items()}
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        if all(len(group) == 1 for group in self.joint.groups):
            return None
        lower, upper = self.joint.bounds(self.values)
        shape = (self.rows,)
        return Bounds(np.broadcast_to(lower, shape), np.broadcast_to(upper, shape), np.full(shape, SINGLY, np.int8))

    def exact(self) -> tuple[np.ndarray, bool]:
        found, counts = self.joint.probability(self.values)
        return np.broadcast_to(found, (self.rows,)), counts


class ScaledTree(NamedTuple):
    """Conditions as ``Joint`` takes them, on values that are multiplied by a number for each column."""

    conditions: list[Difference | Distance | Linear]
    scales: dict[str, float]


def scaled_tree(conditions: Sequence[Condition]) -> ScaledTree | None:
    """Write sums of two columns as differences: ``2 x + y`` as that of ``2 x`` and ``-y``. None if they are others."""
    scales = _scales(conditions)
    if scales is None:
        return None
    found: list[Difference | Distance | Linear] = []
    for condition in conditions:
        if isinstance(condition, Apart):
            if condition.beyond or isinstance(condition.limit, str):
                return None
            found.append(Distance(condition.one, condition.other, condition.limit, condition.closed))
            continue
        region = one_region(condition.ranges)
        if region is None:
            return None
        (first, factor), *rest = ((name, float(factor) / scales[name]) for (name, _), factor in condition.linear)
        if factor > 0.0 or not rest:
            found.append(Difference(first, rest[0][0] if rest else ZERO, region.over(factor)))
        else:
            found.append(Difference(rest[0][0], first, region.over(-factor)))
    return ScaledTree(found, scales)


def _scales(conditions: Sequence[Condition]) -> dict[str, float] | None:
    """Return the factor of each column that makes each sum of two a multiple of a difference.

    Columns that are tied by a sum have a fixed ratio. None if a condition is no sum of one or two columns, or a circle
    of them asks for two ratios.
    """
    ties: list[tuple[str, str, float]] = []
    scales: dict[str, float] = {}
    if any(index is not None for condition in conditions for _, index in condition.values):
        return None
    for condition in conditions:
        if isinstance(condition, Apart):
            ties.append((condition.one, condition.other, 1.0))
            continue
        factors = [factor for _, factor in condition.linear]
        if condition.squares or any(isinstance(factor, str) or not factor for factor in factors) or len(factors) > 2:
            return None
        if len(factors) == 2:
            (one, _), (other, _) = (value for value, _ in condition.linear)
            ties.append((one, other, -float(factors[1]) / float(factors[0])))
    for start in dict.fromkeys(name for condition in conditions for name, _ in condition.values):
        scales.setdefault(start, 1.0)
        reached = [start]
        while reached:
            name = reached.pop()
            for one, other, ratio in ties:
                for here, there, times in ((one, other, ratio), (other, one, 1.0 / ratio)):
                    if here == name and there not in scales:
                        scales[there] = scales[name] * times
                        reached.append(there)
    if any(not math.isclose(scales[other], scales[one] * ratio, rel_tol=1e-15) for one, other, ratio in ties):
        return None
    apart = {name for one in conditions if isinstance(one, Apart) for name in (one.one, one.other)}
    return None if any(scales[name] != 1.0 for name in apart) else scales
