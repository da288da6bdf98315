"""Tables for pairs of shapes that meet often, and how far apart events of a shape may meet others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from haply.joins.operators.operator import SIDES, SideName, other_side
from haply.joins.operators.timing.stored import MOST_SHAPES, StoredEvents
from haply.pruning.bounds.timing.meeting import NO_RANGES, Ranges
from haply.pruning.bounds.timing.shapes import ShapeList
from haply.pruning.bounds.timing.shifts import Tables
from haply.pruning.threshold import Threshold

Partitions = Literal["tight", "free"]
PARTITIONS: tuple[Partitions, ...] = ("tight", "free")
HOT = 256
"""How often a pair of shapes must have met before it gets a table: this is about the cost of a table."""
_NEVER = -(1 << 30)


class _KnownRanges(NamedTuple):
    """Holds the ranges of a side, and the shapes they were made for."""

    ranges: Ranges
    any_whole: bool
    own: int
    other: int
    longest: float

    def hold_for(self, own: ShapeList, other: ShapeList) -> bool:
        """Tell whether the ranges are valid for the present shapes.

        They are computed again as seldom as possible: where each event has its own shape, this would be done at each
        push. A new shape of the own side has no range until there are twice as many, and is judged by its core until
        then. A new shape of the other side changes what tables imply for all shapes of this side, and may be the
        longest.
        """
        same = other.longest == self.longest and (other.count == self.other or not self.any_whole)
        return same and own.count <= 2 * self.own and (self.other > 0 or other.count == 0)


class ShapeTables:
    """Holds tables for pairs of shapes, made when they pay, and what they imply for each shape by itself."""

    def __init__(
        self,
        sides: Mapping[SideName, StoredEvents],
        threshold: Threshold,
        window: float,
        exact: bool,
        partitions: Partitions,
    ) -> None:
        self._sides, self._threshold, self._window = sides, threshold, window
        self._exact, self._partitions = exact, partitions
        self.hits: np.ndarray = np.zeros((0, 0), np.int32)
        self.tables = Tables.none()
        self._ranges: dict[str, _KnownRanges] = {}

    def _counts(self) -> tuple[int, int]:
        left, right = (self._sides[side].shapes.count for side in SIDES)
        return left, right

    def fit(self) -> None:
        """Make room for all shapes that have a number."""
        wanted, there = self._counts(), self.hits.shape
        if wanted[0] > there[0] or wanted[1] > there[1]:
            # no more than that: a shape of a higher number belongs to one event only
            size = tuple(
                min(MOST_SHAPES, max(8, 2 * want)) if want > have else have
                for want, have in zip(wanted, there, strict=True)
            )
            hits, index = np.zeros(size, np.int32), np.full(size, -1, np.int64)
            hits[: there[0], : there[1]], index[: there[0], : there[1]] = self.hits, self.tables.table_of
            self.hits, self.tables = hits, self.tables._replace(table_of=index)

    def install_all(self) -> None:
        """Make tables for all pairs of the present shapes."""
        self.fit()
        left, right = self._counts()
        self._install(*(index.ravel() for index in np.indices((left, right))))

    def install_hot(self, share: float) -> None:
        """Make tables for pairs that have met often, or will have after a batch of which this share has been seen."""
        self._install(*np.nonzero(self.hits > HOT * share))

    def _install(self, us: np.ndarray, vs: np.ndarray) -> None:
        x, y = (self._sides[side].shapes.shapes for side in SIDES)
        self.hits[us, vs] = _NEVER
        smooth = ~(x.points[us] & y.points[vs])  # the probability jumps where points meet points
        us, vs = us[smooth], vs[smooth]
        if not len(us):
            return
        least = 1e-300 if self._threshold.value is None else max(1e-300, self._threshold.reject_below)
        self.tables = self.tables.with_more(x, us, y, vs, self._window, least, self._threshold.accept_from)
        self._ranges = {}

    def ranges(self, side: SideName) -> Ranges:
        """Return for each shape of a side where events of the other side may meet it, as differences of places."""
        own, other = self._sides[side].shapes, self._sides[other_side(side)].shapes
        known = self._ranges.get(side)
        if known is None or not known.hold_for(own, other):
            ranges = self._ranges_of(side)
            known = _KnownRanges(ranges, bool(ranges.whole.any()), own.count, other.count, other.longest)
            self._ranges[side] = known
        return known.ranges

    def _ranges_of(self, side: SideName) -> Ranges:
        left, right = self._counts()
        own, other = self._sides[side].shapes, self._sides[other_side(side)].shapes
        if not own.count or not other.count:
            return NO_RANGES
        found = Ranges(*(np.repeat(end, own.count + 1) for end in NO_RANGES))
        # both events lie within the window as a whole: the pair matches with probability 1
        length, longest = -own.shapes.low[own.shapes.start[: own.count]], other.longest
        found.sure_from[:-1], found.sure_to[:-1] = longest - self._window, self._window - length
        if self._partitions == "free":
            found.least[:-1], found.largest[:-1] = -length - self._window, self._window + longest
            return found
        if not len(self.tables.hull):
            return found
        index = self.tables.table_of[:left, :right]
        index = index if side == "left" else index.T
        found.whole[:-1] = (index >= 0).all(axis=1)
        complete = np.flatnonzero(found.whole)
        if not len(complete):
            return found
        hull = self.tables.hull[index[complete]]
        if side == "right":
            hull = np.stack([-hull[..., 1], -hull[..., 0], -hull[..., 3], -hull[..., 2]], axis=-1)
        found.least[complete], found.largest[complete] = hull[..., 0].min(axis=1), hull[..., 1].max(axis=1)
        if not self._exact:
            found.sure_from[complete], found.sure_to[complete] = hull[..., 2].max(axis=1), hull[..., 3].min(axis=1)
        return found
