"""The similarity join of two streams of uncertain points (USJ), as an operator: push objects, get the near pairs."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from haply.errors import HaplyError, unknown_name
from haply.models import Certain, Samples
from haply.probability.distance import clouds
from haply.pruning import clouds as rules_of
from haply.pruning.cascade import Counters
from haply.pruning.clouds import (
    CORE,
    DECIDED_BY,
    EXACT,
    GRID,
    MOMENTS,
    RULES,
    WINDOW,
    Objects,
    Output,
    Places,
    Search,
    core_share,
    describe,
    look_at_all,
    match_clouds,
    most_samples,
    question,
    rule_codes,
)
from haply.pruning.grid import RadiusList, empty_grid, group_batch, insert
from haply.pruning.threshold import Threshold

SideName = Literal["left", "right"]
SIDES: tuple[SideName, SideName] = ("left", "right")

GRID_FROM = 4096
"""Objects in a window from which on a grid is faster than a look at all of them."""

_LEAST_CAPACITY = 64
_OUTPUT = 1 << 16
_NAMES = np.array([DECIDED_BY[code] for code in range(len(DECIDED_BY))])


@dataclass(frozen=True)
class SimilarityResult:
    """The ids of the near pairs, their probabilities (NaN where not computed), what decided them, and when they live.

    A pair is live from the later of its two times until the earlier one leaves the window.
    """

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    decided_by: np.ndarray
    live_from: np.ndarray
    live_to: np.ndarray

    def __len__(self) -> int:
        return len(self.left)


class SimilarityJoin:
    """Pairs of objects that are within a distance of each other with at least the threshold's probability.

    An object is a row of ``Samples`` (or a certain number). Pairs are those with ``|time - time| <= window``; each is
    returned once, when its second object is pushed. Without ``time`` in a batch an object's time is its number on its
    side, so that ``window=w - 1`` is the sliding window of the last ``w`` objects; objects then leave by themselves.
    With times, ``expire(time)`` says that nothing older will come, in which order pushes come does not matter.

    What is kept of an object of ``l`` samples in ``d`` dimensions: ``(d + 2) * l`` numbers, and some fifty more.

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
        rules: str | Iterable[str] = "auto",
        probability: Literal["exact", "none"] = "exact",
    ) -> None:
        if window is not None and not window >= 0:
            raise HaplyError("A window is negative or NaN", expected="window >= 0, or None for all", found=repr(window))
        if not (isinstance(dim, (int, np.integer)) and dim >= 1):
            raise HaplyError("A dimension is not a whole number", expected="dim >= 1", found=repr(dim))
        if probability not in ("exact", "none"):
            raise unknown_name("choice of probability", probability, ("exact", "none"))
        self.within, self.dim, self.threshold = float(within), int(dim), Threshold(threshold, strict)
        self.window = np.inf if window is None else float(window)
        self.exact = probability == "exact"
        self.rules = rule_codes(rules)
        self._question = question(self.within, self.threshold, self.exact, self.rules)
        self._stored = {side: _Store(self.dim, self.within, GRID in self.rules) for side in SIDES}
        self._next = dict.fromkeys(SIDES, 0)
        self._closed: set[str] = set()
        self._counts = np.zeros((WINDOW + 1, 2), np.int64)
        self._kept = 0

    # -- pushing ------------------------------------------------------------------------------------------------------

    def push(self, side: SideName, batch: Mapping[str, Any]) -> SimilarityResult:
        """Add objects of one side: ``id``, ``pos`` as samples, ``time`` or not. Returns the pairs they complete."""
        _check_side(side)
        if side in self._closed:
            raise HaplyError(f"The {side} side is closed", hint="push before close()")
        for name in ("id", "pos"):
            if name not in batch:
                raise unknown_name("column", name, batch)
        ids = np.atleast_1d(np.asarray(batch["id"]))
        times = batch.get("time")
        numbered = times is None
        if numbered:
            times = np.arange(self._next[side], self._next[side] + len(ids), dtype=np.float64)
        times = np.atleast_1d(np.asarray(times, dtype=np.float64))
        new, largest = self.describe(batch["pos"], times)
        if not len(ids) == len(times) == len(new.facts):
            raise HaplyError(
                "A batch disagrees in length",
                expected=f"{len(ids)} times and positions",
                found=f"{len(times)} and {len(new.facts)}",
            )
        return self.push_objects(side, ids, new, largest, numbered=numbered)

    def describe(
        self,
        positions: Any,
        times: np.ndarray,
        places: Places = Places(),  # noqa: B008 - immutable
    ) -> tuple[Objects, float]:
        """What the rules use of objects, and their largest coordinate."""
        model = positions if isinstance(positions, (Certain, Samples)) else Samples(positions)
        these = clouds(model, self.dim)
        share = core_share(self.threshold) if CORE in self.rules else 1.0
        centred = CORE in self.rules or MOMENTS in self.rules
        return describe(these, times, share, centred, places), float(np.abs(these.points).max(initial=0.0))

    def push_objects(
        self, side: SideName, ids: np.ndarray, new: Objects, largest: float, *, numbered: bool = False
    ) -> SimilarityResult:
        """Push what ``describe`` has made."""
        other = _other(side)
        if numbered:
            self._next[side] += len(ids)
        store = self._stored[other]
        rows, slots, probability, codes = self._match(new, store, largest)
        times, other_times = new.near[self.dim + 2][rows], store.times[slots]
        mine, theirs = ids[rows], store.ids[slots]
        left, right = (mine, theirs) if side == "left" else (theirs, mine)
        result = SimilarityResult(
            left, right, probability, _NAMES[codes],
            np.maximum(times, other_times), np.minimum(times, other_times) + self.window,
        )  # fmt: skip
        self.remember(side, ids, new, largest)
        if numbered:
            store.expire(self._next[side] - self.window)
        return result

    def remember(self, side: SideName, ids: np.ndarray, new: Objects, largest: float) -> None:
        """Store what ``describe`` has made, without looking for its pairs: they are known already."""
        if _other(side) not in self._closed:
            self._stored[side].append(ids, new, largest)

    def _match(self, new: Objects, store: _Store, largest: float) -> tuple[np.ndarray, ...]:
        first, last = store.head, store.tail
        count = len(new.facts)
        if first == last or not count:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int8)
        slack = 1e-12 * max(1.0, self.within, largest, store.largest)
        most = max(most_samples(new), store.most)
        search = self._search(new, store, slack)
        parts, begin = [], 0
        while begin < count:
            size = last - first + min(_OUTPUT, (last - first) * (count - begin - 1))
            out = Output(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), np.empty(size, np.int8))
            begin, n = match_clouds(
                self._question, new, store.objects, first, last, begin, self.window, slack, most, search, out,
                self._counts,
            )  # fmt: skip
            parts.append(tuple(column[:n] for column in out))
        found = parts[0] if len(parts) == 1 else tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        self._kept += len(found[0])
        return found

    def _search(self, new: Objects, store: _Store, slack: float) -> Search:
        grid = store.grid
        if grid is None:
            return look_at_all()
        count = len(new.facts)
        if count > 1 and GRID in self.rules:
            groups = group_batch(new.near, self.dim, self.within + slack, store.widest)
        else:
            groups = (
                np.arange(1, count + 1),
                np.ascontiguousarray(new.near[: self.dim].T),
                np.ascontiguousarray(new.near[self.dim]),
            )
        return Search(True, grid, store.widest, *groups)

    # -- leaving ------------------------------------------------------------------------------------------------------

    def expire(self, time: float) -> None:
        """Say that nothing older than ``time`` will come: objects whose window ends before it are forgotten."""
        for store in self._stored.values():
            store.expire(float(time) - self.window)

    def close(self, side: SideName) -> None:
        """Say that a side is complete: objects of the other side need not be kept from now on."""
        _check_side(side)
        self._closed.add(side)
        self._stored[_other(side)] = _Store(self.dim, self.within, GRID in self.rules)

    # -- telling ------------------------------------------------------------------------------------------------------

    @property
    def funnel(self) -> Counters:
        """What became of the pairs that were in the window."""
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
        """How many objects of each side are kept."""
        return {side: store.tail - store.head for side, store in self._stored.items()}

    @property
    def stored_bytes(self) -> int:
        """Memory that is taken for objects, room for new ones included."""
        return sum(store.nbytes for store in self._stored.values())

    def snapshot(self) -> bytes:
        """The operator's state as bytes."""
        settings = {
            "within": self.within, "threshold": self.threshold.value, "dim": self.dim,
            "window": None if np.isinf(self.window) else self.window, "strict": self.threshold.strict,
            "rules": [name for code, name in {**RULES, GRID: "grid"}.items() if code in self.rules],
            "probability": "exact" if self.exact else "none",
        }  # fmt: skip
        stored = {side: store.snapshot() for side, store in self._stored.items()}
        return pickle.dumps((settings, stored, self._next, self._closed, self._counts, self._kept))

    @classmethod
    def restore(cls, state: bytes) -> SimilarityJoin:
        """The operator that wrote these bytes (which must come from a place you trust: they are a pickle)."""
        settings, stored, following, closed, counts, kept = pickle.loads(state)
        join = cls(settings.pop("within"), settings.pop("threshold"), **settings)
        for side, (ids, near, facts, pool, largest) in stored.items():
            join._stored[side].append(ids, Objects(near, facts, pool), largest)
        join._next, join._closed, join._counts, join._kept = following, closed, counts, kept
        return join


def _other(side: SideName) -> SideName:
    return "right" if side == "left" else "left"


def _check_side(side: str) -> None:
    if side not in SIDES:
        raise unknown_name("side", side, SIDES)


class _Store:
    """The objects of one side, in the order of their arrival, in arrays with room at the end.

    Those before ``head`` are gone. When the room is used up, what is gone or expired is taken out, and the room doubled
    if that does not help: memory is at most some four times what is alive.
    """

    def __init__(self, dim: int, within: float, always_grid: bool) -> None:
        self.dim, self.within, self.always_grid = dim, within, always_grid
        self.head = self.tail = 0
        self.largest, self.most = 0.0, 1
        self.grid: Any = None
        self._expired = -np.inf
        self._radii = RadiusList()
        self._pool_tail = 0
        self.ids = np.empty(0, np.int64)
        self.objects = Objects(
            np.empty((rules_of.near_rows(dim), 0)), np.empty((0, rules_of.fact_columns(dim))), np.empty(0)
        )

    @property
    def times(self) -> np.ndarray:
        """The time of each object."""
        return self.objects.near[self.dim + 2]

    @property
    def widest(self) -> float:
        """The largest radius in the window."""
        return self._radii.largest

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return sum(array.nbytes for array in self.objects)

    def append(self, ids: np.ndarray, new: Objects, largest: float) -> None:
        """Store new objects."""
        count, size = len(new.facts), len(new.pool)
        if not count:
            return
        if self.tail + count > self.objects.near.shape[1] or self._pool_tail + size > len(self.objects.pool):
            self._make_room(count, size)
        if ids.dtype != self.ids.dtype:
            kept = self.ids[: self.tail]
            self.ids = np.empty(len(self.ids), np.result_type(ids, kept) if self.tail else ids.dtype)
            self.ids[: self.tail] = kept
        to, at = self.tail + count, self._pool_tail
        self.ids[self.tail : to] = ids
        self.objects.near[:, self.tail : to] = new.near
        self.objects.facts[self.tail : to] = new.facts
        rules_of.shift_samples(self.objects.facts[self.tail : to], at)
        self.objects.pool[at : at + size] = new.pool
        begin, self.tail, self._pool_tail = self.tail, to, at + size
        self.largest, self.most = max(self.largest, largest), max(self.most, most_samples(new))
        for radius, time in zip(new.near[self.dim].tolist(), new.near[self.dim + 2].tolist(), strict=True):
            self._radii.add(radius, time)
        if self.grid is not None:
            insert(self.grid, self.objects.near, self.dim, begin, to)
        elif self.always_grid or self.tail - self.head > GRID_FROM:
            self._lay_grid()

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
        kept = rules_of.take(self.objects, alive)
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
        # cells as wide as a search from a middling object reaches
        radii = self.objects.near[self.dim, self.head : self.tail]
        edge = self.within + (radii.mean() if len(radii) else 0.0) + self.widest
        self.grid = empty_grid(self.objects.near.shape[1], float(edge))
        insert(self.grid, self.objects.near, self.dim, self.head, self.tail)

    def snapshot(self) -> tuple[Any, ...]:
        """The objects that are alive."""
        kept = rules_of.take(self.objects, np.arange(self.head, self.tail))
        return self.ids[self.head : self.tail], *kept, self.largest
