"""The similarity join of two streams of uncertain points (USJ), as an operator: push objects, get the near pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.joins.operators.batches import checked_length
from haply.joins.operators.operator import (
    SIDES,
    Columns,
    JoinOperator,
    PairBatch,
    ProbabilityMode,
    RowBatch,
    SideName,
    check_side,
    forgotten_before,
    is_exact,
    no_pairs,
    other_side,
)
from haply.joins.operators.state import from_state, to_state
from haply.joins.operators.times import exact_times
from haply.models import Certain, Samples
from haply.numerics.scale import power_of
from haply.probability.distance import LEAST_DISTANCE, Clouds, clouds
from haply.pruning.bounds.cloud_match import LOOK_AT_ALL, CloudPairs, Search, match_clouds
from haply.pruning.bounds.cloud_rules import (
    CORE,
    DECIDED_BY,
    EXACT,
    GRID,
    MOMENTS,
    RULES,
    WINDOW,
    RuleName,
    RuleSet,
    question,
    rule_codes,
)
from haply.pruning.bounds.clouds import (
    WHOLE_BALL,
    Objects,
    core_share,
    describe_into,
    room_for,
    shift_samples,
    take,
)
from haply.pruning.candidates.grid import Grid, RadiusList, empty_grid, group_batch, insert
from haply.pruning.cascade import Counters
from haply.pruning.ownership import Places
from haply.pruning.threshold import Threshold

GRID_FROM = 4096
"""Objects in a window from which on a grid is faster than a test of all of them."""

_LEAST_CAPACITY = 64
_OUTPUT = 1 << 16
_NAMES = np.array([DECIDED_BY[code] for code in range(len(DECIDED_BY))])


_STATE = "similarity join"


@dataclass(frozen=True)
class SimilarityResult(PairBatch):
    """Represents pairs of near objects.

    A pair is live from the later of its two times until the earlier one leaves the window.

    Attributes
    ----------
    rows
        The ids of the left rows and those of the right rows, also as ``left`` and ``right``.
    left, right
        The ids of the rows of each pair.
    probability
        The probability of each pair; NaN where it was not computed.
    codes
        The rule that decided each pair, as a number.
    decided_by
        The rule that decided each pair, as a name.
    left_time, right_time
        The times of the objects of each pair.
    window
        The window of the join.
    live_from, live_to
        The first and the last time at which both objects of a pair are in the window.
    """

    codes: np.ndarray
    left_time: np.ndarray
    right_time: np.ndarray
    window: float

    @property
    def decided_by(self) -> np.ndarray:
        """Return the name of the rule that decided each pair."""
        return _NAMES[self.codes]

    @property
    def live_from(self) -> np.ndarray:
        """Return the first time at which both objects are in the window."""
        return np.maximum(self.left_time, self.right_time)

    @property
    def live_to(self) -> np.ndarray:
        """Return the last time at which both objects are in the window."""
        return np.minimum(self.left_time, self.right_time) + self.window


NO_PAIRS = SimilarityResult(no_pairs().rows, np.empty(0), np.empty(0, np.int8), np.empty(0), np.empty(0), 0.0)


class SimilarityJoin(JoinOperator):
    """Joins objects of two sides that are likely within a distance of each other; an object is a set of samples.

    Each pair is returned once, when its second object is pushed. Without ``time`` in a batch the time of an object is
    its number on its side. ``window=w - 1`` is then the sliding window of the last ``w`` objects, and objects are
    forgotten without ``expire``. With times, pushes may come in any order of time.

    The state has ``(d + 2) * l`` numbers, and some fifty more, for an object of ``l`` samples in ``d`` dimensions.

    Parameters
    ----------
    within
        The distance.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict). None keeps every pair with positive probability.
    window
        Pairs are those with ``|left time - right time| <= window``. None means that all objects may meet.
    dim
        How many coordinates a sample has.
    rules
        The rules that decide pairs without their probability: ``"auto"``, ``"paper"`` (those of the paper), ``"none"``,
        or a list of the names of rules. The result does not depend on them.
    probability
        ``"exact"`` computes the probability of every pair that is kept. With ``"none"`` bounds may accept a pair
        without it.

    Raises
    ------
    HaplyError
        If an option is not known, or if the window or the dimension is no such number.

    Examples
    --------
    >>> join = SimilarityJoin(1.0, 0.5, window=10, dim=2)
    >>> join.push("left", {"id": [1], "time": [0], "pos": Samples([[[0, 0], [1, 0]]])}).left
    array([], dtype=int64)
    >>> near = join.push("right", {"id": [7], "time": [3], "pos": Samples([[[1, 0], [9, 9]]])})
    >>> near.left, near.right, near.probability, near.live_from, near.live_to
    (array([1]), array([7]), array([0.5]), array([3.]), array([10.]))
    """

    def __init__(
        self,
        within: float,
        threshold: float | None,
        *,
        window: float | None = None,
        dim: int,
        strict: bool = False,
        rules: RuleSet | Iterable[RuleName] = "auto",
        probability: ProbabilityMode = "exact",
    ) -> None:
        if window is not None:
            checked_length("The window", window, finite=False)
        if not (isinstance(dim, (int, np.integer)) and dim >= 1):
            raise HaplyError("A dimension is not a whole number", expected="dim >= 1", found=repr(dim))
        self.exact = is_exact(probability)
        self.within, self.dim, self.threshold = float(within), int(dim), Threshold(threshold, strict)
        self.window = np.inf if window is None else float(window)
        self.rules = rule_codes(rules)
        self.power = power_of(self.within)
        """Positions are stored divided by 2 to this power, so that squares and moments are in the range of doubles."""
        self.reach = math.ldexp(self.within, -self.power)
        self._question = question(self.reach, self.threshold, self.exact, self.rules)
        self._stored = {side: _Store(self) for side in SIDES}
        self._next = dict.fromkeys(SIDES, 0)
        self._closed: set[str] = set()
        self._counts = np.zeros((WINDOW + 1, 2), np.int64)
        self._kept = 0
        self._room = _output_of(0)

    # -- pushing ------------------------------------------------------------------------------------------------------

    def push(self, side: SideName, batch: Columns) -> SimilarityResult:
        """Add objects of one side, and return the pairs that they complete.

        Parameters
        ----------
        side
            ``"left"`` or ``"right"``.
        batch
            Columns by name: ``id``, ``pos`` as samples, and ``time`` or not.

        Returns
        -------
        SimilarityResult
            The pairs of these objects with objects that were pushed before.

        Raises
        ------
        HaplyError
            If a column is missing, if columns differ in length, or if the side is closed.
        """
        check_side(side)
        if side in self._closed:
            raise HaplyError(f"The {side} side is closed", hint="push before close()")
        for name in ("id", "pos"):
            if name not in batch:
                raise unknown_name("column", name, batch)
        ids, times, positions = np.atleast_1d(np.asarray(batch["id"])), batch.get("time"), batch["pos"]
        numbered = times is None
        if numbered:
            times = np.arange(self._next[side], self._next[side] + len(ids), dtype=np.float64)
        else:
            times = exact_times(times)
        model = positions if isinstance(positions, (Certain, Samples)) else Samples(positions)
        if not len(ids) == len(times) == len(model):
            raise HaplyError(
                "A batch disagrees in length",
                expected=f"{len(ids)} times and positions",
                found=f"{len(times)} and {len(model)}",
            )
        result = self.arrive(SIDES.index(side), RowBatch.of(ids, model, times))
        if numbered:
            self._next[side] += len(ids)
            self._stored[other_side(side)].expire(self._next[side] - self.window)
        return result

    def arrive(self, side: int, rows: RowBatch[Any], *, match: bool = True) -> SimilarityResult:
        """Push rows that the caller has checked; return the pairs that this cell owns."""
        these, name = clouds(self._scaled(rows.model), self.dim), SIDES[side]
        own, store = self._stored[name], self._stored[other_side(name)]
        begin = own.receive(rows.ids, these, rows.times, rows.places)
        result = self._match(name, own, begin, store) if match else NO_PAIRS
        if other_side(name) in self._closed:
            own.forget_from(begin)
        return result

    def _scaled(self, positions: Any) -> Any:
        """Return positions on the scale of the distance; refuse positions too large or too small for that scale."""
        if self.power:
            positions = positions.scaled(self.power)
            lost = ~np.isfinite(positions.sizes())
        elif self.within == 0.0:
            points = positions.points.values if isinstance(positions, Samples) else positions.mean()
            lost = (np.abs(points) < LEAST_DISTANCE) & (points != 0.0)
        else:
            return positions
        if lost.any():
            raise HaplyError(
                "Positions cannot be compared at the distance asked for: squares leave the range of doubles",
                expected="coordinates within 300 orders of magnitude of the distance",
                found=f"within = {self.within:g}",
                hint="give positions in another unit",
            )
        return positions

    def pairs(self) -> SimilarityResult:
        """Return all near pairs of the objects that are stored now, computed again."""
        right = self._stored["right"]
        return self._match("right", right, right.head, self._stored["left"])

    def _match(self, side: SideName, own: _Store, begin: int, store: _Store) -> SimilarityResult:
        first, last, end = store.head, store.tail, own.tail
        if first == last or begin == end:
            return NO_PAIRS
        reach = self.reach if math.isfinite(self.reach) else 0.0  # an infinite reach needs no slack for rounding
        slack = 1e-12 * max(1.0, reach, own.largest, store.largest)
        search = self._search(own, begin, store, slack)
        parts, at = [], begin
        while at < end:
            out = self._output(last - first + min(_OUTPUT, (last - first) * (end - at - 1)))
            at, n = match_clouds(
                self._question, own.objects, at, end, store.objects, first, last, self.window, slack,
                max(own.most, store.most), search, out, self._counts,
            )  # fmt: skip
            if n:
                parts.append(tuple(column[:n].copy() for column in out))
        if not parts:
            return NO_PAIRS
        found = parts[0] if len(parts) == 1 else tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        self._kept += len(found[0])
        rows, slots, probability, codes = found
        mine, theirs = (own.ids[rows], own.times[rows]), (store.ids[slots], store.times[slots])
        (left, left_time), (right, right_time) = (mine, theirs) if side == "left" else (theirs, mine)
        return SimilarityResult((left, right), probability, codes, left_time, right_time, self.window)

    def _output(self, size: int) -> CloudPairs:
        """Return reused arrays with room for ``size`` pairs or more; one object may find so many pairs."""
        if len(self._room.new) < size:
            self._room = _output_of(size)
        return self._room

    def _search(self, own: _Store, begin: int, store: _Store, slack: float) -> Search:
        grid = store.grid
        if grid is None:
            return LOOK_AT_ALL
        near = own.objects.near[:, begin : own.tail]
        if near.shape[1] > 1 and GRID in self.rules:
            groups = group_batch(np.ascontiguousarray(near), self.dim, self.reach + slack, store.widest)
        else:
            groups = (
                np.arange(1, near.shape[1] + 1),
                np.ascontiguousarray(near[: self.dim].T),
                np.ascontiguousarray(near[self.dim]),
            )
        return Search(True, grid, store.widest, begin, *groups)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def expire(self, time: float) -> None:
        """Say that no earlier object will come, and forget objects whose window has ended.

        Parameters
        ----------
        time
            The watermark: no row of either side with an earlier time will be pushed.
        """
        self._forget(float(time) - self.window)

    def advance(self, watermark: float) -> PairBatch:
        """See ``JoinOperator``: unlike ``expire``, this allows for the rounding of times."""
        self._forget(forgotten_before(watermark, self.window))
        return no_pairs()

    def _forget(self, before: float) -> None:
        for store in self._stored.values():
            store.expire(before)

    def needed_from(self, side: int, watermark: float) -> float:
        """See ``JoinOperator``."""
        return forgotten_before(watermark, self.window)

    def close(self, side: SideName) -> None:
        """Say that a side is complete: objects of the other side are no longer kept.

        Parameters
        ----------
        side
            ``"left"`` or ``"right"``.
        """
        check_side(side)
        self._closed.add(side)
        self._stored[other_side(side)] = _Store(self)

    # -- reporting ----------------------------------------------------------------------------------------------------

    @property
    def funnel(self) -> Counters:
        """Return what became of the pairs that were in the window.

        Returns
        -------
        Counters
            The candidates, those that each rule rejected or accepted, those evaluated exactly, and the pairs kept.
        """
        names = tuple(RULES.values())
        counters = Counters(names, names)
        for code, name in RULES.items():
            counters.rejected[name], counters.accepted[name] = (int(count) for count in self._counts[code])
        counters.candidates = int(self._counts[WINDOW, 0])
        counters.evaluated = int(self._counts[EXACT].sum())
        counters.kept = self._kept
        return counters

    @property
    def stored(self) -> dict[str, int]:
        """Return how many objects of each side are kept."""
        return {side: store.tail - store.head for side, store in self._stored.items()}

    @property
    def stored_bytes(self) -> int:
        """Memory that objects take, room for new ones included."""
        return sum(store.nbytes for store in self._stored.values())

    def snapshot(self) -> bytes:
        """Return the state of the operator as bytes.

        Returns
        -------
        bytes
            Arrow IPC with a format version, for ``restore``.
        """
        settings = {
            "within": self.within, "threshold": self.threshold.value, "dim": self.dim,
            "window": None if np.isinf(self.window) else self.window, "strict": self.threshold.strict,
            "rules": [name for code, name in {**RULES, GRID: "grid"}.items() if code in self.rules],
            "probability": "exact" if self.exact else "none",
        }  # fmt: skip
        stored = {side: store.snapshot() for side, store in self._stored.items()}
        return to_state(_STATE, (settings, stored, self._next, self._closed, self._counts, self._kept))

    @classmethod
    def restore(cls, state: bytes) -> SimilarityJoin:
        """Make the operator whose state was written by ``snapshot``.

        Parameters
        ----------
        state
            What ``snapshot`` returned.

        Returns
        -------
        SimilarityJoin
            An operator that continues where the other one was.

        Raises
        ------
        HaplyError
            If the bytes are no state of such an operator, or of another version of the format.
        """
        settings, stored, following, closed, counts, kept = from_state(_STATE, state)
        join = cls(settings.pop("within"), settings.pop("threshold"), **settings)
        for side, objects in stored.items():
            join._stored[side].recall(*objects)
        join._next, join._closed, join._counts, join._kept = following, closed, counts, kept
        return join


def _output_of(size: int) -> CloudPairs:
    return CloudPairs(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), np.empty(size, np.int8))


class _Store:
    """Stores the objects of one side, in the order of their arrival, in arrays with room at the end.

    Objects before ``head`` are forgotten. When the room is used up, forgotten and expired objects are removed, and the
    room is doubled if that does not help: memory is at most about four times that of the remaining objects.
    """

    def __init__(self, join: SimilarityJoin) -> None:
        self.dim, self.within, self.always_grid = join.dim, join.reach, GRID in join.rules
        self.share = core_share(join.threshold) if CORE in join.rules else WHOLE_BALL
        self.centred = CORE in join.rules or MOMENTS in join.rules
        self.head = self.tail = 0
        self.largest, self.most = 0.0, 1
        self.grid: Grid | None = None
        self._expired = -np.inf
        self._radii = RadiusList()
        self._pool_tail = 0
        self.ids = np.empty(0, np.int64)
        self.objects = room_for(self.dim, 0, 0)

    @property
    def times(self) -> np.ndarray:
        """Return the time of each object."""
        return self.objects.near[self.dim + 2]

    @property
    def widest(self) -> float:
        """Return the largest radius in the window, if there is a grid."""
        return self._radii.largest

    @property
    def nbytes(self) -> int:
        """Memory that the arrays take."""
        return sum(array.nbytes for array in self.objects)

    def receive(self, ids: np.ndarray, these: Clouds, times: np.ndarray, places: Places) -> int:
        """Store new objects; return the number of the first."""
        count, size = len(ids), (self.dim + 2) * int(these.start[-1])
        begin = self._room(ids, count, size)
        describe_into(self.objects, begin, self._pool_tail, these, times, self.share, self.centred, places)
        self._received(begin, count, size, these.largest, these.most)
        return begin

    def recall(self, ids: np.ndarray, objects: Objects, largest: float, most: int) -> None:
        """Store objects of a snapshot, whose moments and radii are known."""
        count, size = len(ids), len(objects.pool)
        begin, at = self._room(ids, count, size), self._pool_tail
        end = begin + count
        self.objects.near[:, begin:end], self.objects.facts[begin:end] = objects.near, objects.facts
        self.objects.pool[at : at + size] = objects.pool
        shift_samples(self.objects.facts[begin:end], at)
        self._received(begin, count, size, largest, most)

    def forget_from(self, begin: int) -> None:
        """Remove the objects from this number on, which were stored last and will never be matched."""
        self.tail, self.head = begin, min(self.head, begin)

    def _room(self, ids: np.ndarray, count: int, size: int) -> int:
        """Make room and store the ids; return the number of the first new object."""
        if self.tail + count > self.objects.near.shape[1] or self._pool_tail + size > len(self.objects.pool):
            self._make_room(count, size)
        if ids.dtype != self.ids.dtype:
            kept = self.ids[: self.tail]
            self.ids = np.empty(len(self.ids), np.result_type(ids, kept) if self.tail else ids.dtype)
            self.ids[: self.tail] = kept
        self.ids[self.tail : self.tail + count] = ids
        return self.tail

    def _received(self, begin: int, count: int, size: int, largest: float, most: int) -> None:
        self.tail, self._pool_tail = begin + count, self._pool_tail + size
        self.largest, self.most = max(self.largest, largest), max(self.most, most)
        if self.grid is not None:
            insert(self.grid, self.objects.near, self.dim, begin, self.tail)
            self._add_radii(begin)
        elif self.always_grid or self.tail - self.head > GRID_FROM:
            self._lay_grid()

    def _add_radii(self, begin: int) -> None:
        near = self.objects.near
        for radius, time in zip(
            near[self.dim, begin : self.tail].tolist(), near[self.dim + 2, begin : self.tail].tolist(), strict=True
        ):
            self._radii.add(radius, time)

    def expire(self, time: float) -> None:
        """Forget objects older than this."""
        self._expired = max(self._expired, time)
        times, head = self.times, self.head
        while head < self.tail and times[head] < time:
            head += 1
        self.head = head
        self._radii.expire(time)

    def _make_room(self, count: int, size: int) -> None:
        alive = self.head + np.flatnonzero(self.times[self.head : self.tail] >= self._expired)
        kept = take(self.objects, alive)
        capacity = max(_LEAST_CAPACITY, 2 * (len(alive) + count))
        near = np.empty((len(kept.near), capacity))
        facts = np.empty((capacity, kept.facts.shape[1]))
        pool = np.empty(2 * (len(kept.pool) + size))
        near[:, : len(alive)], facts[: len(alive)], pool[: len(kept.pool)] = kept
        ids = np.empty(capacity, self.ids.dtype)
        ids[: len(alive)] = self.ids[alive]
        self.objects, self.ids = Objects(near, facts, pool), ids
        self.head, self.tail, self._pool_tail = 0, len(alive), len(kept.pool)
        if self.grid is not None:
            self._lay_grid()

    def _lay_grid(self) -> None:
        self._radii = RadiusList()
        self._add_radii(self.head)
        # cells as wide as a search from an average object reaches
        radii = self.objects.near[self.dim, self.head : self.tail]
        edge = self.within + (radii.mean() if len(radii) else 0.0) + self.widest
        self.grid = empty_grid(self.objects.near.shape[1], float(edge))
        insert(self.grid, self.objects.near, self.dim, self.head, self.tail)

    def snapshot(self) -> tuple[Any, ...]:
        """Return the objects that are not forgotten."""
        kept = take(self.objects, np.arange(self.head, self.tail))
        return self.ids[self.head : self.tail], kept, self.largest, self.most
