"""Find pairs that may measure one value: their difference has a density at 0 that is not negligible."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from haply.joins.cells.method import Match, Setting
from haply.joins.cells.rows import CellRows
from haply.joins.dimensions import dimensions, known_dimensions, of_dimension, shared_dimensions
from haply.joins.match import Matches
from haply.models import GaussianND, Mixture, MixtureND, Model, OneDimensional, Sky, SkyEllipse
from haply.numerics.components import NORMAL
from haply.probability.density import PairDensity, peak_density
from haply.probability.multivariate import Parts, parts
from haply.pruning.bounds.positions import intervals_on_line, limits_of_deviations, near_pairs
from haply.pruning.candidates.intervals import Intervals
from haply.pruning.candidates.sweep import Sweep
from haply.pruning.cascade import Counters

_Densities: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The rows of pairs, and their densities."""
REACH = "reach"
"""The rule that rejects pairs: their means are too many standard deviations apart."""
_POSITIONS = (GaussianND, MixtureND, Sky, SkyEllipse)
_PARTS = math.log(1e4)
"""The logarithm of the number of pairs of parts that two mixtures may have: each pair is cut as if it were alone."""


@dataclass(frozen=True)
class IdentityMethod:
    """Finds candidates by standard deviations between means; their density is the result's ``probability``."""

    models: tuple[type[Model], type[Model]]
    log_cut: float
    """A density below ``exp(-log_cut)`` is negligible."""

    has_sure_pairs = False
    holds_for_itself = False

    @property
    def reach(self) -> Reach:
        """Return how far rows reach."""
        mixed = any(issubclass(model, (Mixture, MixtureND)) for model in self.models)
        positions = any(issubclass(model, _POSITIONS) for model in self.models)
        return Reach(self.log_cut + (_PARTS if mixed else math.log(2.0)), positions)

    def place(self, is_left: bool) -> Reach:
        """Return a callable that gives the rows of a side their intervals."""
        return self.reach

    def match(self, setting: Setting) -> Match:
        """Return a callable that computes the densities of the pairs of a cell."""
        return MatchIdentity(self.reach, math.exp(-self.log_cut), setting.raises)

    def counters(self) -> Counters:
        """Return counters with the names of all rules."""
        return Counters((REACH,), ())

    def warm(self, setting: Setting) -> None:
        """Do nothing: workers compile the few kernels themselves."""

    def condition_text(self, left: str, right: str) -> str:
        """Describe the condition between two columns."""
        return f"{left} and {right} are measurements of one value"

    def candidates_text(self) -> str:
        """Describe how candidates are found."""
        return f"rows whose densities may be above {math.exp(-self.log_cut):.3g}, by their place on a line"

    def cascade_text(self) -> str:
        """Describe how candidates are decided."""
        return f"{REACH} (reject) -> the density of the difference at 0"


@dataclass(frozen=True)
class Reach:
    """Gives rows their intervals: two rows whose intervals are disjoint have a negligible density.

    A normal has a density of at most ``peak * exp(-z**2 / 2)`` at ``z`` deviations from its mean: it reaches as many
    deviations as make that negligible. Where two intervals are disjoint, one of the two densities is negligible
    everywhere, and the integral of their product is at most twice as much. Two normals in space that are ``z``
    deviations of their difference apart have the density ``peak * exp(-z**2 / 2)``, and its peak is at most either's.
    """

    log_cut: float
    positions: bool

    def __call__(self, model: Model) -> Intervals:
        """Return the intervals of all rows."""
        return self._in_space(model) if self.positions else self._on_line(model)

    def deviations(self, model: Model) -> float:
        """Return the largest number of deviations that a row reaches."""
        peaks = peak_density(model)
        peaks = peaks[np.isfinite(peaks) & (peaks > 0.0)]
        most = self.log_cut + (math.log(float(peaks.max())) if len(peaks) else 0.0)
        return math.sqrt(2.0 * max(0.0, most)) + 1e-9

    def _in_space(self, model: Model) -> Intervals:
        dims = dimensions(model)
        found = Intervals(np.empty(len(model)), np.empty(len(model)), np.zeros(len(model), dtype=bool))
        for dim in known_dimensions(dims):
            these, rows = of_dimension(model, dims, dim)
            placed = intervals_on_line(_normals(these), limits_of_deviations(self.deviations(these)))
            found.start[rows], found.end[rows] = placed.start, placed.end
        return found

    def _on_line(self, model: Model) -> Intervals:
        assert isinstance(model, OneDimensional)
        parts_of = model.components
        low, high = np.array(parts_of.low), np.array(parts_of.high)
        normal = parts_of.kind == NORMAL
        if normal.any():
            own = np.repeat(peak_density(model), np.diff(parts_of.start))[normal]
            with np.errstate(divide="ignore", invalid="ignore"):
                out = np.sqrt(2.0 * np.maximum(0.0, self.log_cut + np.log(own))) + 1e-9
            mean, sd = parts_of.mean[normal], parts_of.sd[normal]
            reach = out * sd
            # a normal that is cut far from its mean has its peak at its nearer end, and falls faster from there
            peak = np.clip(mean, low[normal], high[normal])
            low[normal] = np.maximum(low[normal], peak - reach)
            high[normal] = np.minimum(high[normal], peak + reach)
        begin = np.asarray(parts_of.start[:-1], np.int64)
        start, end = np.minimum.reduceat(low, begin), np.maximum.reduceat(high, begin)
        return Intervals(start, end, np.zeros(len(model), dtype=bool))


@dataclass(frozen=True)
class MatchIdentity:
    """Computes the densities of the pairs of a cell, and leaves out those that are negligible."""

    reach: Reach
    least: float
    raises: bool

    def __call__(self, left: CellRows, right: CellRows) -> Matches:
        """Return the pairs that this cell owns, with their densities."""
        begun = time.perf_counter()
        counters = Counters((REACH,), ())
        found = list(self._near(left, right, counters)) if self.reach.positions else [self._overlapping(left, right)]
        i, j, density = (np.concatenate(column) for column in zip(*found, strict=True))
        counters.candidates += len(i)
        counters.evaluated += len(i)
        kept = np.flatnonzero(density >= self.least)
        counters.kept += len(kept)
        seconds = {"prepare": 0.0, "sweep": 0.0, "decide": time.perf_counter() - begun}
        return Matches(i[kept], j[kept], density[kept], np.zeros(len(kept), np.int8), counters, seconds)

    def _overlapping(self, left: CellRows, right: CellRows) -> _Densities:
        from_position = min(side.first_beginning for side in (left, right))
        sweep = Sweep(
            left.intervals, right.intervals,
            from_position=from_position, left_groups=left.groups, right_groups=right.groups,
        )  # fmt: skip
        blocks = [(sweep.left_order[i], sweep.right_order[j]) for i, j in sweep.blocks()]
        none = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        i, j = (np.concatenate(column) for column in zip(*(blocks or none), strict=True))
        return i, j, _densities(left.model, right.model, i, j)

    def _near(self, left: CellRows, right: CellRows, counters: Counters) -> Iterator[_Densities]:
        sides = left, right
        dims = [dimensions(side.model) for side in sides]
        yield np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        for dim in shared_dimensions(dims, self.raises):
            (mine, rows), (theirs, others) = (
                of_dimension(side.model, own, dim) for side, own in zip(sides, dims, strict=True)
            )
            if not len(rows) or not len(others):
                continue
            places = None
            if left.begins_here is not None or right.begins_here is not None or left.groups is not None:
                places = left.places(rows), right.places(others)
            deviations = max(map(self.reach.deviations, (mine, theirs)))
            near = near_pairs(_normals(mine), _normals(theirs), limits_of_deviations(deviations), places)
            counters.candidates += near.counters.candidates - near.counters.kept
            counters.rejected[REACH] += near.counters.candidates - near.counters.kept
            i, j = near.pairs.left, near.pairs.right
            yield rows[i], others[j], _densities(mine, theirs, i, j)


def _densities(left: Model, right: Model, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Compute the densities of pairs; for few pairs, only their rows are prepared."""
    if 2 * len(i) < len(left) + len(right):
        left, right = left.take(i), right.take(j)
        i = j = np.arange(len(i))
    return PairDensity(left, right).evaluate(i, j)


def _normals(model: Model) -> Parts | Sky:
    if isinstance(model, Sky):
        return model
    found = parts(model)
    assert found is not None
    return found
