"""The timing join (PTJoin) as an operator: push events whose times are uncertain, get those likely close in time."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.joins.batches import checked_length, model_from_bytes, model_to_bytes
from haply.models import Certain, OneDimensional
from haply.probability.exact import PairProbability
from haply.probability.region import Region
from haply.pruning.cascade import Counters
from haply.pruning.threshold import TOLERANCE, Pairing, Threshold
from haply.pruning.timing import (
    DECIDED_BY,
    EXACT,
    WINDOW,
    Events,
    Ranges,
    ShapeList,
    Tables,
    TimingOutput,
    counters_of,
    match_times,
)

SideName = Literal["left", "right"]
SIDES: tuple[SideName, SideName] = ("left", "right")
PARTITIONS = ("tight", "free")

MOST_SHAPES = 1024
"""Shapes a side that get a number; events of further shapes are decided by the exact formula."""

_HOT = 256
"""How often a pair of shapes must have met before it gets a table: about what the table costs."""

_NEVER = -(1 << 30)
_FIRST_CHUNK = 512
_OUTPUT = 1 << 18
_LATEST = 1.0 - 1e-12
_GENEROUS = 2.0
_NAMES = np.array([DECIDED_BY.get(code, "") for code in range(max(DECIDED_BY) + 1)])


@dataclass(frozen=True)
class TimingResult:
    """The ids of the pairs, their probabilities (NaN where not computed), what decided them, and what was lost.

    ``late``: ids that came later than ``max_delay`` and were not joined. ``cut_short``: ids that were joined, but reach
    back to times whose events were forgotten, because no event before them reached so far.
    """

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    codes: np.ndarray
    late: np.ndarray
    cut_short: np.ndarray

    def __len__(self) -> int:
        return len(self.left)

    @property
    def decided_by(self) -> np.ndarray:
        """The name of what decided each pair."""
        return _NAMES[self.codes]


class TimingJoin:
    """Pairs of events with ``P(|left time - right time| <= window) >= threshold``, each returned once.

    Times are any one-dimensional model. Those that are shifts of a few shapes (*templates*: histograms of detection
    latencies, say) are decided by a look-up in a table per pair of shapes; tables are made for the given templates at
    once, and for shapes that are found in the data when they have been met often enough. Everything else is computed.

    An event counts at its latest possible time. It may come ``max_delay`` after newer ones of its side. What cannot
    meet any event to come is forgotten: with ``templates`` by what they allow (Theorem 4 of the paper, sharpened), else
    by twice the longest event seen so far; an event that reaches further back is reported in ``cut_short``.

    Stored per event: seven numbers, its id, and its row in the model it was pushed with.

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
        probability: Literal["exact", "none"] = "exact",
        partitions: Literal["tight", "free"] = "tight",
    ) -> None:
        for what, value in (("window", window), ("max_delay", max_delay)):
            checked_length(f"The {what}", value)
        if probability not in ("exact", "none"):
            raise unknown_name("choice of probability", probability, ("exact", "none"))
        if partitions not in PARTITIONS:
            raise unknown_name("choice of partitions", partitions, PARTITIONS)
        self.window, self.max_delay, self.threshold = float(window), float(max_delay), Threshold(threshold, strict)
        self.exact, self.partitions = probability == "exact", partitions
        self.region = Region(-self.window, self.window)
        self._sides = {side: _Side() for side in SIDES}
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
            _check_side(side)
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
                rows = np.arange(len(model))
                core_start = own.describe(rows, model, np.zeros(len(model)), self.threshold).events.core_start
                own.template_reach = float(-core_start.min(initial=0.0))
        self._tables.install_all()

    # -- pushing ------------------------------------------------------------------------------------------------------

    def push(self, side: SideName, batch: Mapping[str, Any]) -> TimingResult:
        """Add events of one side: ``id``, ``time`` (a model, or numbers) and ``key`` or not: only equal keys meet.

        Keys are numbers. Returns the pairs that are now complete.
        """
        _check_side(side)
        if side in self._closed:
            raise HaplyError(f"The {side} side is closed", hint="push before close()")
        for name in ("id", "time"):
            if name not in batch:
                raise unknown_name("column", name, batch)
        ids, times = np.atleast_1d(np.asarray(batch["id"])), batch["time"]
        model = times if isinstance(times, OneDimensional) else Certain(np.asarray(times, dtype=np.float64))
        if len(ids) != len(model):
            raise HaplyError("A batch disagrees in length", expected=f"{len(ids)} times", found=str(len(model)))
        if self.threshold.value is None and not model.bounded:
            raise HaplyError(
                "Without a threshold every pair is possible",
                expected="times with a bounded support, or a threshold",
                found=f"a {model.kind} column, whose values are unbounded",
            )
        keys = np.broadcast_to(np.asarray(batch.get("key", 0.0), dtype=np.float64), ids.shape)
        return self.arrive(side, ids, model, keys)

    def arrive(
        self, side: SideName, ids: np.ndarray, model: OneDimensional, keys: np.ndarray, *, match: bool = True
    ) -> TimingResult:
        """``push`` for those who have checked; without ``match`` events are stored only: their pairs are known."""
        own, other = self._sides[side], self._sides[_other(side)]
        new = own.describe(ids, model, keys, self.threshold)
        late = new.latest < own.newest - self.max_delay if match else np.zeros(len(ids), dtype=bool)
        lost = new.ids[late]
        own.late += len(lost)
        if len(lost):
            new = new.take(np.flatnonzero(~late))
        self._tables.fit()
        reach = self.window - new.events.core_start
        if other.all_shaped:
            least = self._tables.ranges(side).least[np.maximum(new.events.shape, -1)]
            reach = np.minimum(reach, -least)
        cut_short = new.ids[new.events.at - reach < other.forgotten] if match else ids[:0]
        found = self._match(side, new, other) if match else []
        if _other(side) not in self._closed:
            own.insert(new)
        known = (new.events.shape >= 0) & (new.events.shape < own.templates)
        own.reach = max(own.reach, float(-new.events.core_start[~known].min(initial=0.0)))
        own.newest = max(own.newest, float(new.latest.max(initial=-np.inf)))
        self._forget(side, own.newest - self.max_delay)
        left, right, probability, codes = found or (new.ids[:0], other.ids[:0], np.empty(0), np.empty(0, np.int8))
        if not found and side == "right":
            left, right = right, left
        self._kept += len(left)
        return TimingResult(left, right, probability, codes, lost, cut_short)

    def _match(self, side: SideName, new: _Batch, store: _Side) -> Any:
        size, end = len(store.ids), len(new.ids)
        if not size or not end or not self.threshold.attainable:
            return []
        tables, is_left = self._tables, side == "left"
        ranges = tables.ranges if store.all_shaped else tables.no_ranges
        keep_from = 0.0 if self.threshold.value is None else self.threshold.value - TOLERANCE
        if self.threshold.strict and self.threshold.value is not None:
            keep_from = float(np.nextafter(self.threshold.value + TOLERANCE, 2.0))
        slack = 1e-12 * (2.0 * float(np.abs(new.events.at).max()) + self.window)
        mine, theirs = (ids if ids.dtype == np.int64 else np.arange(len(ids)) for ids in (new.ids, store.ids))
        room, n, left_open, at, chunk = self._room, 0, 0, 0, _FIRST_CHUNK
        while at < end:
            if n + size > len(room.new):
                expected = n * end // at if at else _OUTPUT  # as many per event as so far; unused room costs nothing
                room = self._room_for(max(n + _OUTPUT, expected + expected // 8) + size, room, n, left_open)
            stop = min(end, at + chunk)
            at, n, left_open, hottest = match_times(
                new.events, mine, at, stop, store.events, theirs, is_left, self._sides["left"].shapes.shapes,
                self._sides["right"].shapes.shapes, tables.tables, ranges(side), self.window, slack, keep_from,
                1.0 if self.exact else np.nan, tables.hits, room, n, left_open, self._counts,
            )  # fmt: skip
            share = at / end if at > _FIRST_CHUNK // 2 else 1.0
            if hottest > _HOT * share:
                tables.install_hot(share)
            chunk *= 4
        # small answers are copied and the room used again; large ones keep it
        large = n >= _OUTPUT // 2
        self._room = self._room_for(0) if large else room
        found = [column[:n] if large else column[:n].copy() for column in room[:4]]
        if not self.exact:
            found[2] = np.broadcast_to(np.nan, n)
        if left_open:
            found = self._decide(is_left, new, store, found, [column[:left_open] for column in room[4:]])
        for k, side_ids in enumerate((new.ids, store.ids)):
            if side_ids.dtype != np.int64:
                found[k] = side_ids.take(found[k])
        return [found[0 if is_left else 1], found[1 if is_left else 0], *found[2:]]

    def _room_for(self, size: int, before: TimingOutput | None = None, n: int = 0, left_open: int = 0) -> TimingOutput:
        """Room for so many pairs, beginning with ``n`` that there are already, some of them undecided."""
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
        """Pairs that the tables leave open, by the exact formula."""
        at, rows, slots = left_open
        probability, codes = found[2:]
        kept = np.ones(len(codes), dtype=bool)
        chunks = store.chunk[slots]
        for number in np.unique(chunks):
            these = np.flatnonzero(chunks == number)
            mine, theirs = new.row[rows[these]], store.row[slots[these]]
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
        """Say that no event of either side with a latest time before ``time`` will come."""
        for side in SIDES:
            self._forget(side, float(time))

    def _forget(self, side: SideName, time: float) -> None:
        """What no event of ``side`` from ``time`` on can meet."""
        self._sides[_other(side)].forget_before(self.forgotten_before(_other(side), time))

    def forgotten_before(self, side: SideName, time: float) -> float:
        """The place before which events of ``side`` are forgotten, if no other event before ``time`` will come."""
        store, others = self._sides[side], self._sides[_other(side)]
        if not np.isfinite(time):
            return -np.inf
        back = -np.inf
        if self._templates is None or others.reach > 0.0:
            back = self.window + _GENEROUS * others.reach
        if others.templates:
            ranges = self._tables.ranges(_other(side))
            least = ranges.least[: others.templates].min() if store.all_shaped else -np.inf
            back = max(back, min(-float(least), self.window + others.template_reach))
        # a core may reach beyond what is taken as the latest time
        ahead = max(0.0, float(store.events.core_end.max(initial=0.0)))
        slack = 1e-12 * (abs(time) + self.window)
        return time - back - ahead - slack if np.isfinite(back) else -np.inf

    def close(self, side: SideName) -> None:
        """Say that a side is complete: events of the other side need not be kept from now on."""
        _check_side(side)
        self._closed.add(side)
        self._sides[_other(side)].forget_before(np.inf)

    # -- telling ------------------------------------------------------------------------------------------------------

    @property
    def funnel(self) -> Counters:
        """What became of the pairs that were close enough to look at."""
        return counters_of(self._counts, self._kept)

    @property
    def untested(self) -> int:
        """Pairs that were taken without a look at them: all of their range matches (the paper's SR)."""
        return int(self._counts[WINDOW, 1])

    @property
    def stored(self) -> dict[str, int]:
        """How many events of each side are kept."""
        return {side: len(own.ids) for side, own in self._sides.items()}

    @property
    def stored_bytes(self) -> int:
        """Memory that is taken for events, without their models."""
        return sum(sum(array.nbytes for array in own.events) + own.ids.nbytes for own in self._sides.values())

    def ids(self, side: SideName) -> np.ndarray:
        """The ids of the events of a side that are kept."""
        return self._sides[side].ids

    @property
    def reach(self) -> tuple[float, float]:
        """How far events of each side have reached back so far."""
        return self._sides["left"].reach, self._sides["right"].reach

    @reach.setter
    def reach(self, reach: tuple[float, float]) -> None:
        for side, value in zip(SIDES, reach, strict=True):
            self._sides[side].reach = max(self._sides[side].reach, value)

    @property
    def forgotten(self) -> tuple[float, float]:
        """Up to which places events of each side have been forgotten."""
        return self._sides["left"].forgotten, self._sides["right"].forgotten

    @forgotten.setter
    def forgotten(self, forgotten: tuple[float, float]) -> None:
        for side, value in zip(SIDES, forgotten, strict=True):
            self._sides[side].forgotten = max(self._sides[side].forgotten, value)

    @property
    def late(self) -> dict[str, int]:
        """How many events of each side came too late to be joined."""
        return {side: own.late for side, own in self._sides.items()}

    @property
    def shapes(self) -> dict[str, int]:
        """How many shapes each side has."""
        return {side: own.shapes.count for side, own in self._sides.items()}

    def snapshot(self) -> bytes:
        """The operator's state as bytes."""
        settings = {
            "window": self.window, "threshold": self.threshold.value, "max_delay": self.max_delay,
            "strict": self.threshold.strict, "probability": "exact" if self.exact else "none",
            "partitions": self.partitions, "templates": self._templates,
        }  # fmt: skip
        sides = {side: own.snapshot() for side, own in self._sides.items()}
        return pickle.dumps((settings, sides, self._closed, self._counts, self._kept))

    @classmethod
    def restore(cls, state: bytes) -> TimingJoin:
        """The operator that wrote these bytes (which must come from a place you trust: they are a pickle)."""
        settings, sides, closed, counts, kept = pickle.loads(state)
        join = cls(settings.pop("window"), settings.pop("threshold"), **settings)
        for side, stored in sides.items():
            join._sides[side].recall(stored, join.threshold)
        join._tables.fit()
        join._closed, join._counts, join._kept = closed, counts, kept
        return join


def latest_times(model: OneDimensional) -> np.ndarray:
    """The latest possible time of each event; where there is none, the time it precedes almost surely."""
    return model.support()[1] if model.bounded else model.quantile(_LATEST)


def reach_back(model: OneDimensional, threshold: Threshold) -> float:
    """How far back from its latest time the event reaches that reaches furthest."""
    start, _, latest = _facts_of(model, threshold, np.zeros(len(model)))
    return float((latest - start).max(initial=0.0))


def _other(side: SideName) -> SideName:
    return "right" if side == "left" else "left"


def _check_side(side: str) -> None:
    if side not in SIDES:
        raise unknown_name("side", side, SIDES)


@dataclass
class _Batch:
    """New events in the order of their places."""

    ids: np.ndarray
    events: Events
    model: OneDimensional
    row: np.ndarray
    latest: np.ndarray

    def take(self, rows: np.ndarray) -> _Batch:
        """Some of them, in their order."""
        events = Events(*(column[rows] for column in self.events))
        return _Batch(self.ids[rows], events, self.model, self.row[rows], self.latest[rows])


def _facts_of(model: OneDimensional, threshold: Threshold, at: np.ndarray) -> np.ndarray:
    """Start and end of the core, and the latest time, as differences to the place."""
    level = threshold.core_level(Pairing.ANY)
    return np.stack([model.quantile_low(level), model.quantile_high(level), latest_times(model)]) - at


class _Side:
    """What is kept of one side, in the order of place."""

    def __init__(self) -> None:
        self.shapes = ShapeList()
        self._facts = np.zeros((3, 1))
        self.templates = 0
        self.ids = np.empty(0, np.int64)
        self.events = Events(np.empty(0), np.empty(0), np.empty(0), np.empty(0), np.empty(0, np.int64))
        self.chunk, self.row = np.empty(0, np.int64), np.empty(0, np.int64)
        self.chunks: dict[int, OneDimensional] = {}
        self.newest, self.forgotten, self.late = -np.inf, -np.inf, 0
        self.reach, self.template_reach = 0.0, 0.0
        self._following = 0

    def describe(self, ids: np.ndarray, model: OneDimensional, keys: np.ndarray, threshold: Threshold) -> _Batch:
        """What the kernel needs of new events, in their order."""
        shape, at = self.shapes.number(model, MOST_SHAPES - self.shapes.count)
        self._learn(model, shape, at, threshold)
        facts = np.take(self._facts, shape, axis=1)
        loose = np.flatnonzero(shape < 0)
        if len(loose):
            some = model.take(loose) if len(loose) < len(shape) else model
            at[loose] = latest_times(some)
            facts[:, loose] = _facts_of(some, threshold, at[loose])
        start, end, latest = facts
        latest += at
        new = _Batch(ids, Events(np.ascontiguousarray(keys), at, start, end, shape), model, np.arange(len(ids)), latest)
        if not keys.any() and (at[1:] >= at[:-1]).all():
            return new
        return new.take(np.lexsort((at, keys)) if keys.any() else np.argsort(at, kind="stable"))

    def _learn(self, model: OneDimensional, shape: np.ndarray, at: np.ndarray, threshold: Threshold) -> None:
        """What is alike in all rows of a shape, from one row of each that is new."""
        known = self._facts.shape[1] - 1
        if self.shapes.count > known:
            row_of = np.empty(self.shapes.count + 1, np.int64)  # the last for rows without a shape
            row_of[shape] = np.arange(len(shape))
            rows = row_of[known:-1]
            facts = _facts_of(model.take(rows), threshold, at[rows])
            # the last column is for rows without a shape
            self._facts = np.concatenate([self._facts[:, :known], facts, np.zeros((3, 1))], axis=1)

    @property
    def all_shaped(self) -> bool:
        """Whether all that is stored has the number of a shape."""
        return not (self.events.shape < 0).any()

    def insert(self, new: _Batch) -> None:
        """Put new events among the others."""
        if not len(new.ids):
            return
        number, self._following = self._following, self._following + 1
        self.chunks[number] = new.model
        if not len(self.ids):
            self.ids, self.events, self.row = new.ids, new.events, new.row
            self.chunk = np.full(len(new.ids), number)
            return
        events = Events(*(np.concatenate(both) for both in zip(self.events, new.events, strict=True)))
        # two sorted runs behind each other: what a stable sort by one key merges in one pass
        order = np.lexsort((events.at, events.group)) if events.group.any() else np.argsort(events.at, kind="stable")
        self.events = Events(*(column[order] for column in events))
        self.ids = np.concatenate([self.ids, new.ids])[order]
        self.row = np.concatenate([self.row, new.row])[order]
        self.chunk = np.concatenate([self.chunk, np.full(len(new.ids), number)])[order]

    def forget_before(self, place: float) -> None:
        """Forget events whose place is before this one."""
        kept = self.events.at >= place
        if kept.all():
            return
        self.forgotten = max(self.forgotten, float(self.events.at[~kept].max()))
        self.ids, self.chunk, self.row = self.ids[kept], self.chunk[kept], self.row[kept]
        self.events = Events(*(column[kept] for column in self.events))
        used = set(np.unique(self.chunk).tolist())
        self.chunks = {number: model for number, model in self.chunks.items() if number in used}

    def snapshot(self) -> Any:
        parts = []
        for number, model in self.chunks.items():
            mine = self.chunk == number
            stored = model_to_bytes(model.take(self.row[mine]))
            parts.append((self.ids[mine], model.kind, stored, self.events.group[mine]))
        return parts, self.newest, self.forgotten, self.late, self.reach

    def recall(self, state: Any, threshold: Threshold) -> None:
        parts, self.newest, self.forgotten, self.late, self.reach = state
        for ids, kind, data, keys in parts:
            model = model_from_bytes(kind, data)
            assert isinstance(model, OneDimensional)
            self.insert(self.describe(ids, model, keys, threshold))


class _Tables:
    """Tables for pairs of shapes, made when they pay, and what they say of each shape by itself."""

    def __init__(self, join: TimingJoin) -> None:
        self._join = join
        self.hits: np.ndarray = np.zeros((0, 0), np.int32)
        self.tables = Tables.none()
        self._ranges: dict[str, Ranges] = {}

    def _counts(self) -> tuple[int, int]:
        left, right = (self._join._sides[side].shapes.count for side in SIDES)
        return left, right

    def fit(self) -> None:
        """Room for all shapes that have a number."""
        wanted, there = self._counts(), self.hits.shape
        if wanted[0] > there[0] or wanted[1] > there[1]:
            size = tuple(max(8, 2 * want) if want > have else have for want, have in zip(wanted, there, strict=True))
            hits, index = np.zeros(size, np.int32), np.full(size, -1, np.int64)
            hits[: there[0], : there[1]], index[: there[0], : there[1]] = self.hits, self.tables.table_of
            self.hits, self.tables = hits, self.tables._replace(table_of=index)
        if self._ranges and len(self._ranges["left"].least) + len(self._ranges["right"].least) != sum(wanted) + 2:
            self._ranges = {}

    def install_all(self) -> None:
        """Tables for all pairs of the shapes there are."""
        self.fit()
        left, right = self._counts()
        self._install(*(index.ravel() for index in np.indices((left, right))))

    def install_hot(self, share: float) -> None:
        """Tables for pairs that have met often, or will have when only this share of a batch has been seen."""
        self._install(*np.nonzero(self.hits > _HOT * share))

    def _install(self, us: np.ndarray, vs: np.ndarray) -> None:
        join = self._join
        x, y = (join._sides[side].shapes.shapes for side in SIDES)
        self.hits[us, vs] = _NEVER
        smooth = ~(x.points[us] & y.points[vs])  # where points meet points there are jumps
        us, vs = us[smooth], vs[smooth]
        if not len(us):
            return
        least = 1e-300 if join.threshold.value is None else max(1e-300, join.threshold.reject_below)
        self.tables = self.tables.with_more(x, us, y, vs, join.window, least, join.threshold.accept_from)
        self._ranges = {}

    def ranges(self, side: SideName) -> Ranges:
        """For each shape of a side the places of the other side's events it may meet, as differences of places."""
        if not self._ranges:
            self._ranges = {name: self._ranges_of(name) for name in SIDES}
        return self._ranges[side]

    def no_ranges(self, side: SideName) -> Ranges:
        """The same where nothing is known: only the cores of the events tell what they may meet."""
        count = self._join._sides[side].shapes.count + 1  # at least one, for events without a shape
        least, most = np.full(count, -np.inf), np.full(count, np.inf)
        return Ranges(least, most, most.copy(), least.copy(), np.zeros(count, np.bool_))

    def _ranges_of(self, side: SideName) -> Ranges:
        join = self._join
        left, right = self._counts()
        own, other = join._sides[side].shapes, join._sides[_other(side)].shapes
        found = self.no_ranges(side)
        if not own.count or not other.count:
            return found
        # where the whole of both lies within the window: sure, and with probability 1
        length, longest = -_starts(own), float(-_starts(other).min())
        found.sure_from[:-1], found.sure_to[:-1] = longest - join.window, join.window - length
        if join.partitions == "free":
            found.least[:-1], found.largest[:-1] = -length - join.window, join.window + longest
            return found
        index = self.tables.table_of[:left, :right]
        hull = self.tables.hull[np.maximum(index, 0)] if len(self.tables.hull) else np.zeros((left, right, 7))
        if side == "right":
            index = index.T
            hull = np.transpose(hull, (1, 0, 2))
            hull = np.stack([-hull[..., 1], -hull[..., 0], -hull[..., 3], -hull[..., 2]], axis=-1)
        whole = np.append((index >= 0).all(axis=1), False)
        complete = whole[:-1]
        found.whole[:] = whole
        found.least[whole], found.largest[whole] = hull[complete, :, 0].min(axis=1), hull[complete, :, 1].max(axis=1)
        if not join.exact:
            found.sure_from[whole], found.sure_to[whole] = (
                hull[complete, :, 2].max(axis=1), hull[complete, :, 3].min(axis=1),
            )  # fmt: skip
        return found


def _starts(shapes: ShapeList) -> np.ndarray:
    """Where each shape begins, before its end at 0."""
    return shapes.shapes.low[shapes.shapes.start[: shapes.count]]
