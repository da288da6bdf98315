"""The timing join (PTJoin) as an operator: push events whose times are uncertain, get those likely close in time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    other_side,
)
from haply.joins.operators.state import from_state, to_state
from haply.joins.operators.times import LARGEST_TIME, exact_times, too_large
from haply.joins.operators.timing.stored import CHUNK, MOST_SHAPES, ROW, NewEvents, StoredEvents
from haply.joins.operators.timing.tables import HOT, PARTITIONS, Partitions, ShapeTables
from haply.models import Certain, OneDimensional
from haply.probability.exact import PairProbability
from haply.probability.region import Region
from haply.pruning.bounds.timing.meeting import (
    DECIDED_BY,
    EXACT,
    NO_RANGES,
    WINDOW,
    TimingOutput,
    counters_of,
    match_times,
)
from haply.pruning.bounds.timing.shapes import AT, CORE_END, CORE_START, LATEST
from haply.pruning.cascade import Counters
from haply.pruning.threshold import Threshold

_FIRST_CHUNK = 512
_OUTPUT = 1 << 18
_GENEROUS = 2.0
_NAMES = np.array([DECIDED_BY.get(code, "") for code in range(max(DECIDED_BY) + 1)])
_STATE = "timing join"


@dataclass(frozen=True)
class TimingResult(PairBatch):
    """Represents pairs of events that are likely within a window of each other.

    Attributes
    ----------
    rows
        The ids of the left rows and those of the right rows, also as ``left`` and ``right``.
    left, right
        The ids of the rows of each pair.
    probability
        The probability of each pair; NaN where it was not computed.
    codes
        What decided each pair, as a number.
    decided_by
        What decided each pair, as a name.
    late
        The ids of events that came later than ``max_delay`` and were not joined.
    cut_short
        The ids of events that were joined, but reach back to times whose events were forgotten, because no event before
        them reached so far.
    """

    codes: np.ndarray
    late: np.ndarray
    cut_short: np.ndarray

    @property
    def decided_by(self) -> np.ndarray:
        """Return what decided each pair, as a name."""
        return _NAMES[self.codes]


class TimingJoin(JoinOperator):
    """Joins events of two sides whose uncertain times are likely within a window of each other.

    Each pair with ``P(|left time - right time| <= window) >= threshold`` is returned once. Times that are shifts of a
    few shapes (templates, such as histograms of latencies) are decided by a table for each pair of shapes. Tables are
    made for the given templates at once, and for shapes in the data when they have been met often enough. All other
    pairs are computed.

    The time of an event is its latest possible time. Events that can meet no event to come are forgotten. With
    ``templates`` these tell how far an event reaches back, else it is twice the longest event so far; the ids of events
    that reach further back are in ``cut_short``. The state has seven numbers for each event, its id, and its row in the
    model it was pushed with.

    Parameters
    ----------
    window
        The window, in the unit of the times.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict). None keeps every pair with positive probability.
    templates
        The shapes of the times: a model, or one for each side by ``"left"`` and ``"right"``.
    max_delay
        How much later than newer events of its side an event may come, in the unit of the times.
    probability
        ``"exact"`` computes the probability of every pair that is kept. With ``"none"`` bounds may accept a pair
        without it.
    partitions
        How far apart events are candidates: ``"tight"`` as far as the tables of their shapes allow, ``"free"`` as far
        as the ends of their shapes allow. The result does not depend on it.

    Raises
    ------
    HaplyError
        If an option is not known, if a window or delay is no length of time, or if templates cannot be tabulated.

    Examples
    --------
    >>> from haply.models import Histogram
    >>> join = TimingJoin(40, 0.4)
    >>> _ = join.push("left", {"id": [1], "time": Histogram([[20, 40, 50, 60]], [[0.1, 0.3, 0.6]])})
    >>> found = join.push("right", {"id": [7], "time": Histogram([[70, 80, 90, 100, 110]], [[0.15, 0.3, 0.4, 0.15]])})
    >>> found.left, found.right, found.probability
    (array([1]), array([7]), array([0.48375]))
    """

    def __init__(
        self,
        window: float,
        threshold: float | None,
        *,
        templates: OneDimensional | Mapping[str, OneDimensional] | None = None,
        max_delay: float = 0,
        strict: bool = False,
        probability: ProbabilityMode = "exact",
        partitions: Partitions = "tight",
    ) -> None:
        for what, value in (("window", window), ("max_delay", max_delay)):
            checked_length(f"The {what}", value)
        self.exact = is_exact(probability)
        if partitions not in PARTITIONS:
            raise unknown_name("choice of partitions", partitions, PARTITIONS)
        self.window, self.max_delay, self.threshold = float(window), float(max_delay), Threshold(threshold, strict)
        self.partitions = partitions
        self.region = Region(-self.window, self.window)
        self._sides = {side: StoredEvents(self.threshold) for side in SIDES}
        self._closed: set[str] = set()
        self._counts = np.zeros((EXACT + 1, 2), np.int64)
        self._kept = 0
        self._tables = ShapeTables(self._sides, self.threshold, self.window, self.exact, self.partitions)
        self._room = self._room_for(0)
        self._templates = templates
        if templates is not None:
            self._install(templates)

    def _install(self, templates: OneDimensional | Mapping[str, OneDimensional]) -> None:
        given = templates if isinstance(templates, Mapping) else dict.fromkeys(SIDES, templates)
        for side in given:
            check_side(side)
        for side in SIDES:
            own = self._sides[side]
            if side in given:
                model = given[side]
                if not isinstance(model, OneDimensional):
                    raise HaplyError(
                        f"The templates of the {side} side are no model",
                        expected="rows of a one-dimensional model, as Histogram(edges, probs)",
                        found=type(model).__name__,
                    )
                numbers, _ = own.shapes.number(model, MOST_SHAPES)
                if (numbers < 0).any():
                    raise HaplyError(
                        f"The {side} side has templates that cannot be tabulated",
                        expected=f"up to {MOST_SHAPES} histograms, uniforms, samples or certain values",
                        found=f"row {int(np.flatnonzero(numbers < 0)[0])}, a {model.kind}",
                    )
                own.templates = own.shapes.count
                own.template_reach = float(-own.describe(model).facts[CORE_START].min(initial=0.0))
        self._tables.install_all()

    # -- pushing ------------------------------------------------------------------------------------------------------

    def push(self, side: SideName, batch: Columns) -> TimingResult:
        """Add events of one side, and return the pairs that they complete.

        Parameters
        ----------
        side
            ``"left"`` or ``"right"``.
        batch
            Columns by name: ``id``, ``time`` as a model or as numbers, and ``key`` or not. Only events with equal keys
            meet. Keys are numbers.

        Returns
        -------
        TimingResult
            The pairs of these events with events that were pushed before.

        Raises
        ------
        HaplyError
            If a column is missing, if columns differ in length, or if the side is closed.
        """
        check_side(side)
        if side in self._closed:
            raise HaplyError(f"The {side} side is closed", hint="push before close()")
        for name in ("id", "time"):
            if name not in batch:
                raise unknown_name("column", name, batch)
        ids, times = np.atleast_1d(np.asarray(batch["id"])), batch["time"]
        model = times if isinstance(times, OneDimensional) else Certain(exact_times(times))
        if len(ids) != len(model):
            raise HaplyError("A batch disagrees in length", expected=f"{len(ids)} times", found=str(len(model)))
        if self.threshold.value is None and not model.bounded:
            raise HaplyError(
                "Without a threshold every pair is possible",
                expected="times with a bounded support, or a threshold",
                found=f"a {model.kind} column, whose values are unbounded",
            )
        key = batch.get("key")
        keys = None if key is None else np.broadcast_to(np.asarray(key, dtype=np.float64), ids.shape)
        return self._arrive(side, ids, model, keys)

    def arrive(self, side: int, rows: RowBatch[OneDimensional], *, match: bool = True) -> TimingResult:
        """Push rows that the caller has checked. The times are those of the model."""
        return self._arrive(SIDES[side], rows.ids, rows.model, rows.groups, match)

    def _arrive(
        self, side: SideName, ids: np.ndarray, model: OneDimensional, keys: np.ndarray | None, match: bool = True
    ) -> TimingResult:
        own, other = self._sides[side], self._sides[other_side(side)]
        new = own.describe(model, keys)
        least, most = new.extent
        farthest = max(0.0, -least[AT], most[AT])
        if match and farthest > LARGEST_TIME:
            raise too_large("time", str(new.facts[AT][np.abs(new.facts[AT]) == farthest][0]))
        lost, still = ids[:0], own.newest - self.max_delay
        if match and least[LATEST] < still:
            late = new.facts[LATEST] < still
            lost = ids[new.row[late]]
            own.late += len(lost)
            new = new.take(np.flatnonzero(~late))
            least, most = new.extent
        self._tables.fit()
        cut_short = ids[:0]
        if match and least[AT] + least[CORE_START] - self.window < other.forgotten:
            cut_short = ids[self._reaching_too_far(side, new, other)]
            own.cut_short += len(cut_short)
        found = self._match(side, ids, new, other, farthest) if match else []
        if other_side(side) not in self._closed:
            own.insert(ids, new)
        if own.templates:
            others = new.facts[CORE_START, (new.shape < 0) | (new.shape >= own.templates)]
            own.reach = max(own.reach, float(-others.min(initial=0.0)))
        else:
            own.reach = max(own.reach, -least[CORE_START])
        own.newest = max(own.newest, most[LATEST])
        self._forget(side, own.newest - self.max_delay)
        left, right, probability, codes = found or (ids[:0], other.no_ids, np.empty(0), np.empty(0, np.int8))
        if not found and side == "right":
            left, right = right, left
        self._kept += len(left)
        return TimingResult((left, right), probability, codes, lost, cut_short)

    def _reaching_too_far(self, side: SideName, new: NewEvents, other: StoredEvents) -> np.ndarray:
        """Return the rows of events that reach back to times whose events of the other side were forgotten."""
        reach = self.window - new.facts[CORE_START]
        if other.all_shared:
            least = self._tables.ranges(side).least
            reach = np.minimum(reach, -least[np.where(new.shape < len(least), new.shape, -1)])
        return new.row[new.facts[AT] - reach < other.forgotten]

    def _match(self, side: SideName, ids: np.ndarray, new: NewEvents, store: StoredEvents, farthest: float) -> Any:
        size, end = store.count, len(new.row)
        if not size or not end or not self.threshold.attainable:
            return []
        tables, is_left = self._tables, side == "left"
        slack = 1e-12 * (2.0 * farthest + self.window)
        as_they_are = ids.dtype == np.int64
        mine, theirs = ids[new.row] if as_they_are else new.row, store.labels
        events, stored = new.events, store.events
        room, n, left_open, at, chunk = self._room, 0, 0, 0, _FIRST_CHUNK
        while at < end:
            if n + size > len(room.new):
                expected = n * end // at if at else _OUTPUT  # as many pairs per event; unused room costs nothing
                room = self._room_for(max(n + _OUTPUT, expected + expected // 8) + size, room, n, left_open)
            stop = min(end, at + chunk)
            at, n, left_open, hottest = match_times(
                events, mine, at, stop, stored, theirs, is_left, self._sides["left"].shapes.shapes,
                self._sides["right"].shapes.shapes, tables.tables,
                tables.ranges(side) if store.all_shared else NO_RANGES, self.window, slack, self.threshold.keeps_from(),
                1.0 if self.exact else np.nan, tables.hits, room, n, left_open, self._counts,
            )  # fmt: skip
            share = at / end if at > _FIRST_CHUNK // 2 else 1.0
            if hottest > HOT * share:
                tables.install_hot(share)
            chunk *= 4
        # small results are copied and the arrays used again; large results keep them
        large = n >= _OUTPUT // 2
        self._room = self._room_for(0) if large else room
        found = [column[:n] if large else column[:n].copy() for column in room[:4]]
        if not self.exact:
            found[2] = np.broadcast_to(np.nan, n)
        if left_open:
            found = self._decide(is_left, new, store, found, [column[:left_open] for column in room[4:]])
        if not as_they_are:
            found[0] = ids[found[0]]
        found[1] = store.ids_of(found[1])
        return [found[0 if is_left else 1], found[1 if is_left else 0], *found[2:]]

    def _room_for(self, size: int, before: TimingOutput | None = None, n: int = 0, left_open: int = 0) -> TimingOutput:
        """Return room for ``size`` pairs.

        It begins with the first ``n`` pairs of ``before``, of which ``left_open`` are undecided.
        """
        new, old, open_at, open_new, open_old = (np.empty(size, np.int64) for _ in range(5))
        probability, code = np.empty(size if self.exact else 1), np.empty(size, np.int8)
        made = TimingOutput(new, old, probability, code, open_at, open_new, open_old)
        if before is not None:
            for column, known, used in zip(made, before, [n] * 4 + [left_open] * 3, strict=True):
                column[:used] = known[:used]
        return made

    def _decide(
        self, is_left: bool, new: NewEvents, store: StoredEvents, found: list[np.ndarray], left_open: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Decide the pairs that the tables leave open by the exact formula; return all kept pairs."""
        at, rows, slots = left_open
        probability, codes = found[2:]
        kept = np.ones(len(codes), dtype=bool)
        store.join_chunks(slots)
        chunks = store.codes[CHUNK, slots]
        for number in np.unique(chunks):
            these = np.flatnonzero(chunks == number)
            mine, theirs = new.row[rows[these]], store.codes[ROW, slots[these]]
            models, pair = (new.model, store.chunks[number]), (mine, theirs)
            if not is_left:
                models, pair = models[::-1], pair[::-1]
            exact = PairProbability(*models, self.region)
            values = exact.evaluate(*pair)
            if self.exact:
                probability[at[these]] = values
            kept[at[these]] = self.threshold.keep(values, exact.counts)
        gone = int(len(kept) - kept.sum())
        self._counts[EXACT] += [gone, len(at) - gone]
        codes[at] = EXACT
        return [column[kept] for column in found] if gone else found

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def expire(self, time: float) -> None:
        """Say that no earlier event will come, and forget events that no later event can meet.

        Parameters
        ----------
        time
            The watermark: no event of either side will be pushed whose latest possible time is earlier.
        """
        for side in SIDES:
            self._forget(side, float(time))

    def needed_from(self, side: int, watermark: float) -> float:
        """See ``JoinOperator``."""
        return self._forgotten_before(SIDES[side], watermark)

    def final_before(self, side: int, watermark: float) -> float:
        """See ``JoinOperator``; events end at their ``last_times``."""
        back = self._back(SIDES[side])
        return forgotten_before(watermark, back) if math.isfinite(watermark) and math.isfinite(back) else -np.inf

    def _forget(self, side: SideName, time: float) -> None:
        """Forget events of the other side that no event of ``side`` from ``time`` on can meet."""
        self._sides[other_side(side)].forget_before(self._forgotten_before(other_side(side), time))

    def _forgotten_before(self, side: SideName, time: float) -> float:
        """Return the place before which events of ``side`` are forgotten, if no event to come is before ``time``."""
        if not math.isfinite(time):
            return -np.inf
        store, back = self._sides[side], self._back(side)
        # a core may end after the time that counts as the latest
        ahead = float(store.facts[CORE_END, : store.count].max(initial=0.0))
        return forgotten_before(time, back + ahead) if math.isfinite(back) else -np.inf

    def _back(self, side: SideName) -> float:
        """Return how far back from their times future events may meet those of ``side``; minus infinity if none can."""
        store, others = self._sides[side], self._sides[other_side(side)]
        back = -np.inf
        if self._templates is None or others.reach > 0.0:
            back = self.window + _GENEROUS * others.reach
        if others.templates:
            ranges = self._tables.ranges(other_side(side))
            least = ranges.least[: others.templates].min() if store.all_shared else -np.inf
            back = max(back, min(-float(least), self.window + others.template_reach))
        return back

    def close(self, side: SideName) -> None:
        """Say that a side is complete: events of the other side are no longer kept.

        Parameters
        ----------
        side
            ``"left"`` or ``"right"``.
        """
        check_side(side)
        self._closed.add(side)
        self._sides[other_side(side)].forget_before(np.inf)

    # -- reporting ----------------------------------------------------------------------------------------------------

    @property
    def funnel(self) -> Counters:
        """Return what became of the pairs that were close enough to be candidates.

        Returns
        -------
        Counters
            The candidates, those that each rule rejected or accepted, those evaluated exactly, and the pairs kept.
        """
        return counters_of(self._counts, self._kept)

    @property
    def untested(self) -> int:
        """Return pairs that were accepted without a test, because all pairs of their range match (the paper's SR)."""
        return int(self._counts[WINDOW, 1])

    @property
    def stored(self) -> dict[str, int]:
        """Return how many events of each side are kept."""
        return {side: own.count for side, own in self._sides.items()}

    @property
    def stored_bytes(self) -> int:
        """Memory that events take, without their models and the room for new ones."""
        return sum(sum(array.nbytes for array in own.events) + own.ids.nbytes for own in self._sides.values())

    def ids(self, side: SideName) -> np.ndarray:
        """Return the ids of the stored events of a side."""
        return self._sides[side].ids

    @property
    def cut_short(self) -> tuple[int, int]:
        """Return how many events of each side have reached back to times whose events were forgotten."""
        left, right = self._sides.values()
        return left.cut_short, right.cut_short

    @property
    def horizon(self) -> tuple[float, ...]:
        """Return how far events of each side reach back, and up to which places events have been forgotten."""
        left, right = self._sides.values()
        known = left.reach, right.reach, left.forgotten, right.forgotten
        return known if left.reach > 0.0 or right.reach > 0.0 else ()

    def widen(self, horizon: Sequence[float]) -> None:
        """See ``JoinOperator``."""
        for own, reach in zip(self._sides.values(), horizon[:2], strict=False):
            own.reach = max(own.reach, reach)
        for own, forgotten in zip(self._sides.values(), horizon[2:], strict=False):
            own.forgotten = max(own.forgotten, forgotten)

    @property
    def late(self) -> dict[str, int]:
        """Return how many events of each side came too late to be joined."""
        return {side: own.late for side, own in self._sides.items()}

    @property
    def shapes(self) -> dict[str, int]:
        """Return how many shapes each side has."""
        return {side: own.shapes.count for side, own in self._sides.items()}

    def snapshot(self) -> bytes:
        """Return the state of the operator as bytes.

        Returns
        -------
        bytes
            Arrow IPC with a format version, for ``restore``.
        """
        settings = {
            "window": self.window, "threshold": self.threshold.value, "max_delay": self.max_delay,
            "strict": self.threshold.strict, "probability": "exact" if self.exact else "none",
            "partitions": self.partitions, "templates": self._templates,
        }  # fmt: skip
        sides = {side: own.snapshot() for side, own in self._sides.items()}
        return to_state(_STATE, (settings, sides, self._closed, self._counts, self._kept))

    @classmethod
    def restore(cls, state: bytes) -> TimingJoin:
        """Make the operator whose state was written by ``snapshot``.

        Parameters
        ----------
        state
            What ``snapshot`` returned.

        Returns
        -------
        TimingJoin
            An operator that continues where the other one was.

        Raises
        ------
        HaplyError
            If the bytes are no state of such an operator, or of another version of the format.
        """
        settings, sides, closed, counts, kept = from_state(_STATE, state)
        join = cls(settings.pop("window"), settings.pop("threshold"), **settings)
        for side, stored in sides.items():
            join._sides[side].recall(stored)
        join._tables.fit()
        join._closed, join._counts, join._kept = closed, counts, kept
        return join
