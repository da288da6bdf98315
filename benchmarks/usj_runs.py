"""Run a similarity join for the bench ``usj``: on two full windows at once, or one timestamp after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.measure import Answer, needs
from benchmarks.usj_data import Streams
from haply.errors import HaplyError
from haply.joins.operators.operator import SIDES, RowBatch, SideName
from haply.joins.operators.similarity import SimilarityJoin, SimilarityResult
from haply.models import Samples
from haply.probability.distance import squared_limit
from haply.pruning.cascade import Counters

RULES_OF = {"haply": "auto", "OP+SP": "paper", "WoP": "none"}
"""The engines that are haply's operator with other rules: WoP is its kernel without rules."""

ALL_BUT_ROWS = ("core", "balls", "moments", "line", "shell")

_NO_TIME = 1e15
"""A time so far in the future that no window reaches it."""


@dataclass(frozen=True)
class Query:
    """Which pairs are wanted, and by which rules they are found."""

    within: float
    threshold: float
    rules: str | tuple[str, ...] = "auto"

    def join(self, dim: int, window: int | None = None) -> ClockedJoin:
        """Return an operator for this query, with a sliding window of ``window`` objects if given."""
        return ClockedJoin(
            self.within,
            self.threshold,
            window=None if window is None else window - 1,
            dim=dim,
            rules=self.rules,
            probability="none",
        )


class ClockedJoin(SimilarityJoin):
    """The operator with clocks in it, and with windows that can be filled without a comparison of objects.

    Its parts: ``samples`` checks new samples, ``arrival`` describes objects for the rules, ``index`` stores objects and
    forgets old ones, ``match`` finds the pairs.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.start_clocks()
        for owner, name, part in (
            (self, "arrive", "arrival"),
            (self, "_match", "match"),
            *((store, name, "index") for store in self._stored.values() for name in ("_room", "_received", "expire")),
        ):
            setattr(owner, name, self._timed(part, getattr(owner, name)))

    def start_clocks(self) -> None:
        """Set the clocks to zero."""
        self.spent = {"samples": 0.0, "arrival": 0.0, "index": 0.0, "match": 0.0}

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            begun, before = time.perf_counter(), sum(self.spent.values())
            out = function(*arguments, **options)
            inside = sum(self.spent.values()) - before  # the time that inner clocks have counted
            self.spent[part] += time.perf_counter() - begun - inside
            return out

        return run

    def push_points(self, side: SideName, ids: np.ndarray, points: np.ndarray) -> SimilarityResult:
        """Push objects with the clocks running."""
        return self.push(side, {"id": ids, "pos": self._timed("samples", Samples)(points)})

    def fill(self, side: SideName, points: np.ndarray, times: np.ndarray | None = None) -> None:
        """Store objects before a measurement begins, by default with their numbers as times."""
        numbers = np.arange(len(points))
        own = numbers.astype(np.float64) if times is None else times
        self.arrive(SIDES.index(side), RowBatch.of(numbers, Samples(points), own), match=False)
        self._next[side] = len(points)


# -- two full windows --------------------------------------------------------------------------------------------------


class FullWindows:
    """Matches two full windows whose objects are described and stored: the remaining cost is that of pairs.

    With ``too_late`` the objects on the right come so late that none on the left is in their window. The search is the
    same, but it finds nothing.
    """

    def __init__(
        self, left: np.ndarray, right: np.ndarray, query: Query, window: int | None = None, too_late: bool = False
    ) -> None:
        self.pairs = len(left) * len(right)
        self.join = query.join(left.shape[2], window)
        self.join.fill("left", left)
        self.join.fill("right", right, np.full(len(right), _NO_TIME if too_late else len(left) - 1.0))

    def match(self) -> SimilarityResult:
        """Return the near pairs."""
        return self.join.pairs()

    def answer(self) -> Answer:
        """Return the near pairs as numbers of the objects."""
        found = self.match()
        return Answer(found.left, found.right)

    def counted(self) -> Counters:
        """Return counters of the pairs, for windows that have not been matched before."""
        self.match()
        return self.join.funnel


def undecided(counts: Counters) -> int:
    """Count pairs that no bound decided, so that some or all of their samples had to be compared."""
    return counts.evaluated + counts.rejected["rows"] + counts.accepted["rows"]


def best_of(repetitions: int, function: Callable[[], Any]) -> float:
    """Return the least seconds of some calls, after one that is not timed."""
    function()
    best = math.inf
    for _ in range(repetitions):
        begun = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begun)
    return best


def distance_for(left: np.ndarray, right: np.ndarray, threshold: float, share: float) -> float:
    """Find by bisection the distance at which this share of all pairs joins, to 1% of it where the data allow."""
    wanted = max(1, round(share * len(left) * len(right)))

    def joining(within: float) -> int:
        return len(FullWindows(left, right, Query(within, threshold)).match())

    low, high = 0.0, _guess(left, right, share)
    while joining(high) < wanted:
        low, high = high, 2.0 * high
        if math.isinf(high):
            raise HaplyError("No distance lets that many pairs join", found=f"{share:g} of all pairs")
    for _ in range(40):
        middle = 0.5 * (low + high)
        count = joining(middle)
        low, high = (middle, high) if count < wanted else (low, middle)
        if abs(count - wanted) <= 0.01 * wanted:
            return middle
    return high


def _guess(left: np.ndarray, right: np.ndarray, share: float) -> float:
    """Return the answer if the distance of every pair were the quadratic mean of the distances of its samples."""
    centres = [points.mean(axis=1) for points in (left, right)]
    spread = [points.var(axis=1).sum(axis=1) for points in (left, right)]
    squares = needs("scipy.spatial.distance").cdist(*centres, "sqeuclidean") + spread[0][:, None] + spread[1]
    return max(1.1 * math.sqrt(float(np.quantile(squares, share))), 1e-9)


# -- timestamps --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """Results of some timestamps: median seconds of one, and of its parts, and all pairs with the step of each."""

    seconds: float
    parts: dict[str, float]
    answer: Answer
    found_at: np.ndarray

    def first(self, steps: int) -> Answer:
        """Return the pairs of the first steps."""
        early = self.found_at < steps
        return Answer(self.answer.left[early], self.answer.right[early])


class Sliding:
    """Runs a stream: both windows are full, then an object of each side arrives at every timestamp."""

    def __init__(self, streams: Streams, window: int, query: Query, batch: int = 1) -> None:
        self.streams, self.batch, self.at = streams, batch, window
        self.join = query.join(streams.dim, window)
        for side in SIDES:
            self.join.fill(side, getattr(streams, side)[:window])

    def run(self, steps: int) -> Steps:
        """Run the next timestamps, or batches of them; the seconds are those of one timestamp."""
        join, took, parts, found = self.join, np.empty(steps), np.empty((steps, len(self.join.spent))), []
        for step in range(steps):
            these = slice(self.at, self.at + self.batch)
            ids = np.arange(these.start, these.stop)
            join.start_clocks()
            begun = time.perf_counter()
            found.append(join.push_points("left", ids, self.streams.left[these]))
            found.append(join.push_points("right", ids, self.streams.right[these]))
            took[step] = time.perf_counter() - begun
            parts[step] = list(join.spent.values())
            self.at += self.batch
        medians = np.median(parts, axis=0) / self.batch
        return Steps(
            float(np.median(took)) / self.batch,
            dict(zip(join.spent, medians.tolist(), strict=True)),
            _together((one.left, one.right) for one in found),
            np.repeat(np.arange(len(found)) // 2, [len(one) for one in found]),
        )


def _together(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> Answer:
    left, right = zip(*parts, strict=True)
    return Answer(np.concatenate(left), np.concatenate(right))


# -- the program an expert would write with SciPy ----------------------------------------------------------------------


class Cloud:
    """The data that a program with a cKDTree keeps of one side."""

    def __init__(self, points: np.ndarray) -> None:
        self.points = points
        self.centre = points.mean(axis=1)
        self.radius = np.sqrt(((points - self.centre[:, None, :]) ** 2).sum(axis=2)).max(axis=1)


class TreeProgram:
    """Searches a cKDTree of centres up to the radii of the object and the widest other, then calls cdist on candidates.

    With ``own_radii`` candidates must also be within the reach of their own radius (the paper's OP). There is one call
    of cdist for all candidates of an object, on squared distances: this is faster than a call for each, than roots, and
    than trees over the samples (``count_neighbors``).
    """

    def __init__(self, within: float, threshold: float, samples: int, own_radii: bool) -> None:
        self.within, self.limit, self.own_radii = within, squared_limit(within), own_radii
        self.needed = math.ceil(Fraction(str(threshold)) * samples * samples)
        self.tree: Any = needs("scipy.spatial").cKDTree
        self.cdist: Any = needs("scipy.spatial.distance").cdist

    def windows(self, left: Cloud, right: Cloud) -> Answer:
        """Return all pairs of two full windows."""
        reach = self.within + right.radius + left.radius.max()
        lists = self.tree(left.centre).query_ball_point(right.centre, reach)
        found = [
            self.joining(right.points[j], right.centre[j], right.radius[j], left, np.asarray(these, dtype=np.int64))
            for j, these in enumerate(lists)
        ]
        return Answer(np.concatenate(found), np.repeat(np.arange(len(found)), [len(one) for one in found]))

    def joining(
        self, points: np.ndarray, centre: np.ndarray, radius: float, other: Cloud, candidates: np.ndarray
    ) -> np.ndarray:
        """Return which of the candidates join with an object."""
        if self.own_radii:
            apart = np.sqrt(((other.centre[candidates] - centre) ** 2).sum(axis=1))
            candidates = candidates[apart <= self.within + radius + other.radius[candidates]]
        if not len(candidates):
            return candidates
        squares = self.cdist(other.points[candidates].reshape(-1, points.shape[1]), points, "sqeuclidean")
        return candidates[(squares <= self.limit).reshape(len(candidates), -1).sum(axis=1) >= self.needed]


class SlidingTree:
    """Runs the program by timestamps: the tree is built again from time to time, newer objects are all tested."""

    REBUILT_EVERY = 32

    def __init__(self, streams: Streams, window: int, within: float, threshold: float, own_radii: bool) -> None:
        self.program = TreeProgram(within, threshold, streams.left.shape[1], own_radii)
        self.window, self.at, self.built = window, window, -self.REBUILT_EVERY
        self.sides = [Cloud(points[:window]) for points in (streams.left, streams.right)]
        for cloud, points in zip(self.sides, (streams.left, streams.right), strict=True):
            more = len(points) - window
            cloud.points = points
            cloud.centre = np.concatenate([cloud.centre, np.empty((more, points.shape[2]))])
            cloud.radius = np.concatenate([cloud.radius, np.empty(more)])

    def run(self, steps: int) -> Answer:
        """Run the next timestamps."""
        found = []
        for _ in range(steps):
            if self.at - self.built >= self.REBUILT_EVERY:
                self.built, self.start = self.at, max(0, self.at - self.window)
                self.trees = [self.program.tree(cloud.centre[self.start : self.at]) for cloud in self.sides]
            for side in (0, 1):
                found.append(self._arrive(side))
            self.at += 1
        return _together(found)

    def _arrive(self, side: int) -> tuple[np.ndarray, np.ndarray]:
        mine, other, now = self.sides[side], self.sides[1 - side], self.at
        points = mine.points[now]
        centre = mine.centre[now] = points.mean(axis=0)
        mine.radius[now] = math.sqrt(float(((points - centre) ** 2).sum(axis=1).max()))
        first, last = now - self.window + 1, now + side  # the left object of a timestamp comes before the right one
        reach = self.program.within + mine.radius[now] + other.radius[first:last].max(initial=0.0)
        old = self.start + np.asarray(self.trees[1 - side].query_ball_point(centre, reach), dtype=np.int64)
        candidates = np.concatenate([old[old >= first], np.arange(max(self.built, first), last)])
        near = self.program.joining(points, centre, mine.radius[now], other, candidates)
        here = np.full(len(near), now)
        return (here, near) if side == 0 else (near, here)
