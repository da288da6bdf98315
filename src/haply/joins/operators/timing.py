"""The timing join (PTJoin) as an operator: push events whose times are uncertain, get those likely close in time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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
from haply.models import Certain, OneDimensional
from haply.models.columns import stacked
from haply.probability.exact import PairProbability
from haply.probability.region import Region
from haply.pruning.bounds.timing import (
    AT,
    CORE_END,
    CORE_START,
    DECIDED_BY,
    EXACT,
    GROUP,
    LATEST,
    NO_RANGES,
    WINDOW,
    Events,
    Ranges,
    ShapeList,
    Tables,
    TimingOutput,
    counters_of,
    drop_before,
    insert,
    match_times,
)
from haply.pruning.cascade import Counters
from haply.pruning.threshold import Pairing, Threshold

Partitions = Literal["tight", "free"]
PARTITIONS: tuple[Partitions, ...] = ("tight", "free")

MOST_SHAPES = 1024
"""Most shapes of a side that several events may share; a further shape is kept with its event, and gets no table."""

_HOT = 256
"""How often a pair of shapes must have met before it gets a table: this is about the cost of a table."""

_NEVER = -(1 << 30)
_LEAST_ROOM = 64
_FEW_CHUNKS = 8
"""The most models in which the events of a side are looked up one after the other: more models are merged first."""
_SMALL_CHUNK = 256
"""Rows that cost less to copy than to look up in a model of their own."""
_FIRST_CHUNK = 512
_OUTPUT = 1 << 18
_LATEST = 1.0 - 1e-12
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
        self._sides = {side: _Side(self.threshold) for side in SIDES}
        self._closed: set[str] = set()
        self._counts = np.zeros((EXACT + 1, 2), np.int64)
        self._kept = 0
        self._tables = _Tables(self)
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

    def _reaching_too_far(self, side: SideName, new: _Batch, other: _Side) -> np.ndarray:
        """Return the rows of events that reach back to times whose events of the other side were forgotten."""
        reach = self.window - new.facts[CORE_START]
        if other.all_shared:
            least = self._tables.ranges(side).least
            reach = np.minimum(reach, -least[np.where(new.shape < len(least), new.shape, -1)])
        return new.row[new.facts[AT] - reach < other.forgotten]

    def _match(self, side: SideName, ids: np.ndarray, new: _Batch, store: _Side, farthest: float) -> Any:
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
            if hottest > _HOT * share:
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
        self, is_left: bool, new: _Batch, store: _Side, found: list[np.ndarray], left_open: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Decide the pairs that the tables leave open by the exact formula; return all kept pairs."""
        at, rows, slots = left_open
        probability, codes = found[2:]
        kept = np.ones(len(codes), dtype=bool)
        store.join_chunks(slots)
        chunks = store.codes[_CHUNK, slots]
        for number in np.unique(chunks):
            these = np.flatnonzero(chunks == number)
            mine, theirs = new.row[rows[these]], store.codes[_ROW, slots[these]]
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


def latest_times(model: OneDimensional) -> np.ndarray:
    """Return the latest possible time of each event, or if there is none, a time that it almost surely precedes."""
    return model.support()[1] if model.bounded else model.quantile(_LATEST)


def reach_back(model: OneDimensional, threshold: Threshold) -> float:
    """Return the largest distance from an event's latest time back to the start of its core."""
    start, _, latest = _facts_of(model, threshold, np.zeros(len(model)))
    return float((latest - start).max(initial=0.0))


def last_times(model: OneDimensional, threshold: Threshold) -> np.ndarray:
    """Return the time at which each event ends: its latest time, or the end of its core if that is later."""
    _, end, latest = _facts_of(model, threshold, np.zeros(len(model)))
    return np.maximum(end, latest)


@dataclass
class _Batch:
    """Holds new events in the order of their places: their facts, shapes, and row numbers in the model."""

    facts: np.ndarray
    shape: np.ndarray
    row: np.ndarray
    model: OneDimensional

    @property
    def events(self) -> Events:
        """Return what the kernel needs of the events."""
        group, at, core_start, core_end, _ = self.facts
        return Events(group, at, core_start, core_end, self.shape)

    @property
    def extent(self) -> tuple[list[float], list[float]]:
        """Return the smallest and the largest value of each fact."""
        if len(self.row) == 1:  # single events come often, and reducing arrays takes long
            only = self.facts[:, 0].tolist()
            return only, only
        return self.facts.min(axis=1, initial=np.inf).tolist(), self.facts.max(axis=1, initial=-np.inf).tolist()

    def take(self, rows: np.ndarray) -> _Batch:
        """Return some of the events. Each fact stays contiguous: for another layout kernels would be compiled again."""
        return _Batch(self.facts.take(rows, axis=1), self.shape[rows], self.row[rows], self.model)


def _facts_of(model: OneDimensional, threshold: Threshold, at: np.ndarray) -> np.ndarray:
    """Return the start and end of the core, and the latest time, as differences to the place."""
    level = threshold.core_level(Pairing.ANY)
    return np.stack([model.quantile_low(level), model.quantile_high(level), latest_times(model)]) - at


_SHAPE, _LABEL, _CHUNK, _ROW = range(4)
"""Integers of a stored event: its shape, its id (or the place of its id), its model, and its row in the model."""


class _Side:
    """Stores the events of one side, in the order of place, in arrays with room at the end."""

    def __init__(self, threshold: Threshold) -> None:
        self._threshold, self._level = threshold, threshold.core_level(Pairing.ANY)
        self.shapes = ShapeList()
        self.templates = 0
        self.count = 0
        self.facts, self.codes = np.empty((LATEST, _LEAST_ROOM)), np.empty((4, _LEAST_ROOM), np.int64)
        self._names: np.ndarray | None = None
        """Ids by their labels; None while all ids are integers, which are their own labels."""
        self._named = 0
        self.chunks: dict[int, OneDimensional] = {}
        self.newest, self.forgotten, self.late, self.cut_short = -np.inf, -np.inf, 0, 0
        self.reach, self.template_reach = 0.0, 0.0
        self._following = 0
        self._in_chunks, self._most_in_chunks = 0, _SMALL_CHUNK
        self._alone = 0

    def describe(self, model: OneDimensional, keys: np.ndarray | None = None) -> _Batch:
        """Return the facts and shapes of new events, in the order of their places."""
        if self.shapes.unshared > 2 * self.count + _SMALL_CHUNK:
            self._forget_shapes()
        shape, facts = self.shapes.describe(model, MOST_SHAPES - self.shapes.count, self._level, keep_unshared=True)
        loose = np.flatnonzero(shape < 0) if len(shape) != 1 or shape[0] < 0 else shape[:0]
        if len(loose):
            some = model.take(loose) if len(loose) < len(shape) else model
            latest = latest_times(some)
            facts[AT, loose] = latest
            facts[CORE_START:, loose] = _facts_of(some, self._threshold, latest)
            facts[LATEST, loose] = latest
        facts[GROUP] = 0.0 if keys is None else keys
        new = _Batch(facts, shape, np.arange(len(shape)), model)
        if len(shape) == 1:
            return new
        grouped, at = bool(facts[GROUP].any()), facts[AT]
        if not grouped and (at[1:] >= at[:-1]).all():
            return new
        return new.take(np.lexsort((at, facts[GROUP])) if grouped else np.argsort(at, kind="stable"))

    # -- what is stored ------------------------------------------------------------------------------------------------

    @property
    def events(self) -> Events:
        """Return what the kernel needs of the events."""
        group, at, core_start, core_end = self.facts[:, : self.count]
        return Events(group, at, core_start, core_end, self.codes[_SHAPE, : self.count])

    @property
    def labels(self) -> np.ndarray:
        """Return for each event its id, if that is an integer, or the place of its id."""
        return self.codes[_LABEL, : self.count]

    @property
    def ids(self) -> np.ndarray:
        """Return the id of each event."""
        return self.ids_of(self.labels.copy())

    @property
    def no_ids(self) -> np.ndarray:
        """Return an empty array of the type of the ids."""
        return np.empty(0, np.int64) if self._names is None else self._names[:0]

    def ids_of(self, labels: np.ndarray) -> np.ndarray:
        """Return the ids that have these labels."""
        return labels if self._names is None else self._names[labels]

    @property
    def all_shared(self) -> bool:
        """Return whether the shapes of all stored events are shapes that others may share."""
        return self._alone == 0

    def insert(self, ids: np.ndarray, new: _Batch) -> None:
        """Put new events among the others."""
        more = len(new.row)
        if not more:
            return
        if self.count + more > self.facts.shape[1]:
            self._make_room(more)
        codes = np.empty((4, more), np.int64)
        codes[_SHAPE], codes[_LABEL], codes[_CHUNK], codes[_ROW] = (
            new.shape, self._labelled(ids[new.row]), self._following, new.row,
        )  # fmt: skip
        insert(self.facts, self.codes, self.count, new.facts, codes)
        self.count += more
        self._alone += self._count_alone(new.shape)
        self.chunks[self._following] = new.model
        self._following += 1
        self._in_chunks += len(new.model)
        if self._in_chunks > self._most_in_chunks:
            self._forget_chunks()

    def _make_room(self, more: int) -> None:
        room = 2 * (self.count + more)
        facts, codes = np.empty((LATEST, room)), np.empty((4, room), np.int64)
        facts[:, : self.count], codes[:, : self.count] = self.facts[:, : self.count], self.codes[:, : self.count]
        self.facts, self.codes = facts, codes

    def _labelled(self, ids: np.ndarray) -> np.ndarray:
        """Return labels for new ids; relabel stored ids as well if the new ones are the first that are not integers."""
        if self._names is None and (ids.dtype == np.int64 or not self.count):
            if ids.dtype == np.int64:
                return ids
            self._names, self._named = ids[:0], 0
        if self._names is None or self._named + len(ids) > len(self._names) or ids.dtype != self._names.dtype:
            kept = self.ids
            self.codes[_LABEL, : self.count] = np.arange(self.count)
            self._named = self.count
            kind = np.result_type(kept, ids) if self.count else ids.dtype
            self._names = np.empty(2 * (self.count + len(ids)), kind)
            self._names[: self.count] = kept
        begin, self._named = self._named, self._named + len(ids)
        self._names[begin : self._named] = ids
        return np.arange(begin, self._named)

    def _count_alone(self, shape: np.ndarray) -> int:
        """Count the events whose shape no other event may share."""
        if len(shape) == 1:
            return int(not 0 <= shape[0] < self.shapes.count)
        if not self.shapes.unshared and not (shape < 0).any():
            return 0
        return int(((shape < 0) | (shape >= self.shapes.count)).sum())

    def forget_before(self, place: float) -> None:
        """Forget events whose place is before this one."""
        if not self.count:
            return
        kept, forgotten = drop_before(self.facts, self.codes, self.count, place)
        if kept == self.count:
            return
        self.count, self.forgotten = kept, max(self.forgotten, forgotten)
        if self._alone:
            self._alone = self._count_alone(self.codes[_SHAPE, :kept])
        if not kept:
            self.chunks, self._in_chunks = {}, 0
        if 8 * kept + _SMALL_CHUNK < self.facts.shape[1]:
            self._make_room(kept)

    def _forget_chunks(self) -> None:
        """Forget models that have no event left."""
        used = set(np.unique(self.codes[_CHUNK, : self.count]).tolist())
        self.chunks = {number: model for number, model in self.chunks.items() if number in used}
        self._in_chunks = sum(map(len, self.chunks.values()))
        self._most_in_chunks = 2 * self._in_chunks + _SMALL_CHUNK

    def _forget_shapes(self) -> None:
        """Forget shapes of events that are gone."""
        shape = self.codes[_SHAPE, : self.count]
        alone = np.flatnonzero(shape >= self.shapes.count)
        used = np.sort(shape[alone])
        shape[alone] = self.shapes.count + np.searchsorted(used, shape[alone])
        self.shapes.keep_unshared(used)

    def join_chunks(self, slots: np.ndarray) -> None:
        """Merge the models of these events, if they are many small ones of a kind.

        They are merged like the parts of a ``TwoSidedJoin``: no row of a large model was copied more often than the
        number of rows has binary digits.
        """
        if len(np.unique(self.codes[_CHUNK, slots])) <= _FEW_CHUNKS:
            return
        self._forget_chunks()
        by_kind: dict[type[OneDimensional], list[int]] = {}
        for number, model in self.chunks.items():
            by_kind.setdefault(type(model), []).append(number)
        for numbers in by_kind.values():
            while len(numbers) > 1:
                size, first = len(self.chunks[numbers[-1]]), len(numbers) - 1
                while first and (
                    size + len(self.chunks[numbers[first - 1]]) <= _SMALL_CHUNK
                    or 2 * size > len(self.chunks[numbers[first - 1]])
                ):
                    first -= 1
                    size += len(self.chunks[numbers[first]])
                if first == len(numbers) - 1:
                    break
                self._join(numbers[first:])
                numbers[first:] = [numbers[first]]

    def _join(self, numbers: list[int]) -> None:
        """Replace several models by one, without rows that have no event left."""
        chunk, row = self.codes[_CHUNK, : self.count], self.codes[_ROW, : self.count]
        mine = np.flatnonzero(np.isin(chunk, numbers))
        before = np.zeros(max(numbers) + 1, np.int64)
        before[numbers] = np.cumsum([0, *(len(self.chunks[number]) for number in numbers)])[:-1]
        together = stacked([self.chunks.pop(number) for number in numbers])
        self.chunks[numbers[0]] = together.take(before[chunk[mine]] + row[mine])
        chunk[mine], row[mine] = numbers[0], np.arange(len(mine))

    def snapshot(self) -> Any:
        """Return the state that ``recall`` needs."""
        parts = []
        self._forget_chunks()
        self.join_chunks(np.arange(self.count))
        ids, (group, chunk, row) = self.ids, (self.facts[GROUP], self.codes[_CHUNK], self.codes[_ROW])
        for number, model in self.chunks.items():
            mine = np.flatnonzero(chunk[: self.count] == number)
            parts.append((ids[mine], model.take(row[mine]), group[mine]))
        return parts, self.newest, self.forgotten, self.late, self.reach

    def recall(self, state: Any) -> None:
        """Store the events of a snapshot."""
        parts, self.newest, self.forgotten, self.late, self.reach = state
        for ids, model, keys in parts:
            self.insert(ids, self.describe(model, keys))


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


class _Tables:
    """Holds tables for pairs of shapes, made when they pay, and what they imply for each shape by itself."""

    def __init__(self, join: TimingJoin) -> None:
        self._join = join
        self.hits: np.ndarray = np.zeros((0, 0), np.int32)
        self.tables = Tables.none()
        self._ranges: dict[str, _KnownRanges] = {}

    def _counts(self) -> tuple[int, int]:
        left, right = (self._join._sides[side].shapes.count for side in SIDES)
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
        self._install(*np.nonzero(self.hits > _HOT * share))

    def _install(self, us: np.ndarray, vs: np.ndarray) -> None:
        join = self._join
        x, y = (join._sides[side].shapes.shapes for side in SIDES)
        self.hits[us, vs] = _NEVER
        smooth = ~(x.points[us] & y.points[vs])  # the probability jumps where points meet points
        us, vs = us[smooth], vs[smooth]
        if not len(us):
            return
        least = 1e-300 if join.threshold.value is None else max(1e-300, join.threshold.reject_below)
        self.tables = self.tables.with_more(x, us, y, vs, join.window, least, join.threshold.accept_from)
        self._ranges = {}

    def ranges(self, side: SideName) -> Ranges:
        """Return for each shape of a side where events of the other side may meet it, as differences of places."""
        own, other = self._join._sides[side].shapes, self._join._sides[other_side(side)].shapes
        known = self._ranges.get(side)
        if known is None or not known.hold_for(own, other):
            ranges = self._ranges_of(side)
            known = _KnownRanges(ranges, bool(ranges.whole.any()), own.count, other.count, other.longest)
            self._ranges[side] = known
        return known.ranges

    def _ranges_of(self, side: SideName) -> Ranges:
        join = self._join
        left, right = self._counts()
        own, other = join._sides[side].shapes, join._sides[other_side(side)].shapes
        if not own.count or not other.count:
            return NO_RANGES
        found = Ranges(*(np.repeat(end, own.count + 1) for end in NO_RANGES))
        # both events lie within the window as a whole: the pair matches with probability 1
        length, longest = -own.shapes.low[own.shapes.start[: own.count]], other.longest
        found.sure_from[:-1], found.sure_to[:-1] = longest - join.window, join.window - length
        if join.partitions == "free":
            found.least[:-1], found.largest[:-1] = -length - join.window, join.window + longest
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
        if not join.exact:
            found.sure_from[complete], found.sure_to[complete] = hull[..., 2].max(axis=1), hull[..., 3].min(axis=1)
        return found
