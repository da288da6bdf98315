"""Time windows between streams: windows that follow from given ones, and kernels that join any number of streams.

One tuple of each stream makes a combination; it is wanted if all have one key and every given window holds,
``|time - time| <= window``. Two algorithms (Hammad, Aref, Elmagarmid, SSDBM 2003), both exactly once:

* backward (BEW): a tuple that arrives is combined with stored tuples of the other streams, and stored;
* forward (FEW): a tuple waits until the sweep over the oldest tuples of all streams admits it, and is then combined
  with admitted tuples. No admitted tuple is too far from the others, so equal windows need no test of time.

Tuples live in slots of flat arrays, each in two lists in the order of time: all of its stream, and those of its stream
with its key. Row 0 of the lists is for whole streams, row 1 for tuples that wait to be admitted, further rows are for
keys. Slot 0 is never used: 0 stands for "none".

Times are compared as doubles, by their differences: ``a - b`` is rounded monotonically, so that a bound which holds for
a tuple holds for all beyond it. Bounds that are sums of windows are a little too wide; given windows decide.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from haply.numerics.jit import bare
from haply.pruning.cascade import Counters

Policy = Literal["exact", "local", "global"]
POLICIES: tuple[Policy, ...] = ("exact", "local", "global")

MOST_STREAMS = 62
"""The forward sweep has one bit of a number for each stream."""

RULE = "windows"
"""The rule that decides a combination."""

_WIDER = 1.0 + 1e-14
"""Up to 61 distances, each within a window up to rounding, add up to at most the rounded sum of windows times this."""
_MARGIN = 1e-15
"""Three roundings of numbers up to ``x`` change a result by at most this times ``x``."""

NONE = 0
OLDER, NEWER = 0, 1
ALIKE = 2
STORED, PENDING, FIRST_KEY = 0, 1, 2
NOBODY = -1

FREE_SLOT, FREE_ROW, SLOTS, ROWS = range(4)
PEAK, COMPARISONS, CANDIDATES, KEPT, SWEPT, LAGGARD, DEPTH, MADE, POSITION = range(9)


# -- windows ----------------------------------------------------------------------------------------------------------


def closure(given: np.ndarray) -> np.ndarray:
    """Return the windows that hold between any two streams: shortest paths over the given ones (infinite: none given).

    >>> closure(np.array([[0, 1, np.inf], [1, 0, 10], [np.inf, 10, 0]]))[0, 2]
    np.float64(11.0)
    """
    shortest = given.copy()
    for via in range(len(given)):
        np.minimum(shortest, shortest[:, via, None] + shortest[None, via, :], out=shortest)
    return shortest


class WindowQuery(NamedTuple):
    """The windows and options of a join, as numbers for kernels.

    ``given`` windows decide (infinite: none). ``reach`` follows from them by the policy: tuples that are further apart
    are not tried together; ``span`` is a stream's longest reach, ``widest`` the longest of all. ``delay`` is how far
    time may go back within a stream. ``refined``: reach is not enough, whole combinations are tested. ``timed``: tuples
    are searched by time. ``scan``: they are searched in the whole stream and not by key. ``tight``: tuples without a
    partner are dropped.
    """

    given: np.ndarray
    reach: np.ndarray
    span: np.ndarray
    delay: np.ndarray
    widest: float
    refined: bool
    timed: bool
    scan: bool
    tight: bool


def query(
    given: np.ndarray, delay: np.ndarray, policy: Policy, *, forward: bool, scan: bool, tight: bool
) -> WindowQuery:
    """Return the query for a matrix of windows with zeros in its diagonal, infinite where none is given.

    The reach between two streams is their window in the closure (exact), the smaller of the two streams' longest
    windows (local, LCA), or the longest of all (global, GCA).
    """
    count = len(given)
    others = ~np.eye(count, dtype=bool)
    uniform = bool((given[others] == given[0, 1]).all())
    shortest = closure(given)
    reach = np.minimum(given, np.where(shortest < given, shortest * _WIDER, shortest))
    if policy == "local":
        longest = reach.max(axis=1)
        reach = np.minimum(longest[:, None], longest[None, :])
    elif policy == "global":
        reach = np.full((count, count), reach.max())
    exact = policy == "exact" or uniform
    return WindowQuery(
        given, reach, reach.max(axis=1), delay, float(reach.max()), refined=not exact,
        timed=not forward or (policy == "exact" and not uniform), scan=scan, tight=tight,
    )  # fmt: skip


# -- state ------------------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """The stored tuples, in arrays with room.

    Of a slot: ``time``, ``label`` (the caller's number of the tuple), ``row`` of its key, how many other streams have
    ``passed`` it, and ``links``: older and newer in its stream, older and newer of its key. Of a row and a stream:
    ``ends`` of the list (oldest and newest) and its ``length``. Of a row: its ``key`` and how many tuples make ``use``
    of it; ``table`` finds it by the key. Of a stream: no tuple to come is older than its ``floor``; ``unpassed[k, v]``
    is the oldest tuple of ``k`` that a later tuple of ``v`` may still reach.
    """

    time: np.ndarray
    label: np.ndarray
    row: np.ndarray
    passed: np.ndarray
    links: np.ndarray
    ends: np.ndarray
    length: np.ndarray
    key: np.ndarray
    use: np.ndarray
    table: np.ndarray
    floor: np.ndarray
    unpassed: np.ndarray
    free: np.ndarray
    tally: np.ndarray

    @property
    def nbytes(self) -> int:
        """Memory that the arrays take."""
        return sum(array.nbytes for array in self)

    @property
    def stored(self) -> np.ndarray:
        """Return how many tuples of each stream are stored."""
        return self.length[STORED] + self.length[PENDING]

    @property
    def keys(self) -> int:
        """Return how many keys the stored tuples have."""
        return int(self.free[ROWS])

    @property
    def room(self) -> int:
        """Return how many more tuples there is room for, with any keys."""
        return min(len(self.time) - 1 - int(self.free[SLOTS]), len(self.key) - FIRST_KEY - int(self.free[ROWS]))


def empty_state(streams: int, slots: int, keys: int) -> State:
    """Return a state with room for this many tuples with this many keys."""
    rows = FIRST_KEY + keys
    links = np.zeros((slots + 1, 4), np.int32)
    links[1:-1, NEWER] = np.arange(2, slots + 1)  # free slots are linked, and so are free rows
    ends = np.zeros((rows, streams, 2), np.int32)
    ends[FIRST_KEY:-1, 0, 0] = np.arange(FIRST_KEY + 1, rows)
    tally = np.zeros(9, np.int64)
    tally[SWEPT] = NOBODY
    return State(
        time=np.zeros(slots + 1), label=np.zeros(slots + 1, np.int64), row=np.zeros(slots + 1, np.int32),
        passed=np.zeros(slots + 1, np.int32), links=links, ends=ends, length=np.zeros((rows, streams), np.int32),
        key=np.zeros(rows, np.int64), use=np.zeros(rows, np.int32),
        table=np.zeros(1 << max(4, (2 * keys - 1).bit_length()), np.int32), floor=np.full(streams, -np.inf),
        unpassed=np.zeros((streams, streams), np.int32), free=np.array([1, FIRST_KEY, 0, 0]), tally=tally,
    )  # fmt: skip


def stored_keys(state: State) -> np.ndarray:
    """Return the keys of stored tuples."""
    return state.key[state.use > 0]


def funnel(state: State) -> WindowCounters:
    """Return counters of the combinations so far."""
    counters = WindowCounters((RULE,), (RULE,))
    counters.comparisons = int(state.tally[COMPARISONS])
    counters.candidates, counters.kept = int(state.tally[CANDIDATES]), int(state.tally[KEPT])
    counters.accepted[RULE], counters.rejected[RULE] = counters.kept, counters.candidates - counters.kept
    return counters


class WindowCounters(Counters):
    """Counts combinations: candidates are those before refinement, comparisons are the tuples tested to find them."""

    comparisons = 0

    def add(self, more: Counters) -> None:
        """Add other counts to these."""
        super().add(more)
        if isinstance(more, WindowCounters):
            self.comparisons += more.comparisons

    def flat(self) -> dict[str, int]:
        """Return all counters under flat names."""
        return {**super().flat(), "comparisons": self.comparisons}


# -- lists and keys ---------------------------------------------------------------------------------------------------


@bare
def _home(key, table):
    code = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((code ^ (code >> np.uint64(32))) & np.uint64(len(table) - 1))


@bare
def _row_of(state, key):
    """Return the row of a key; make it if there is none."""
    table = state.table
    at = _home(key, table)
    while table[at] != NONE:
        if state.key[table[at]] == key:
            return np.int64(table[at])
        at = (at + 1) & (len(table) - 1)
    row = state.free[FREE_ROW]
    state.free[FREE_ROW] = state.ends[row, 0, 0]
    state.free[ROWS] += 1
    state.ends[row, 0, 0] = NONE
    state.key[row] = key
    table[at] = row
    return row


@bare
def _forget_unused(state, row):
    """Free the row of a key that is no longer stored; rows after it in the table move up (Knuth 6.4 R)."""
    if state.use[row] > 0:
        return
    state.ends[row, 0, 0] = state.free[FREE_ROW]
    state.free[FREE_ROW] = row
    state.free[ROWS] -= 1
    table = state.table
    mask = len(table) - 1
    hole = _home(state.key[row], table)
    while table[hole] != row:
        hole = (hole + 1) & mask
    at = hole
    while True:
        at = (at + 1) & mask
        if table[at] == NONE:
            table[hole] = NONE
            return
        if (at - _home(state.key[table[at]], table)) & mask >= (at - hole) & mask:
            table[hole] = table[at]
            hole = at


@bare
def _key_row(state, slot):
    return np.int64(state.row[slot])


@bare
def _new_slot(state, time, label, row):
    slot = state.free[FREE_SLOT]
    state.free[FREE_SLOT] = state.links[slot, NEWER]
    state.time[slot], state.label[slot], state.row[slot] = time, label, row
    state.use[row] += 1
    state.free[SLOTS] += 1
    return slot


@bare
def _free_slot(state, slot):
    state.links[slot, NEWER] = state.free[FREE_SLOT]
    state.free[FREE_SLOT] = slot
    state.free[SLOTS] -= 1
    row = _key_row(state, slot)
    state.use[row] -= 1
    _forget_unused(state, row)


@bare
def _link(state, row, stream, slot, kind):
    """Insert a slot into a list, after all slots that are not newer."""
    links, ends, time = state.links, state.ends, state.time
    before = ends[row, stream, NEWER]
    while before != NONE and time[before] > time[slot]:
        before = links[before, kind + OLDER]
    if before == NONE:
        behind = ends[row, stream, OLDER]
        ends[row, stream, OLDER] = slot
    else:
        behind = links[before, kind + NEWER]
        links[before, kind + NEWER] = slot
    if behind == NONE:
        ends[row, stream, NEWER] = slot
    else:
        links[behind, kind + OLDER] = slot
    links[slot, kind + OLDER], links[slot, kind + NEWER] = before, behind
    state.length[row, stream] += 1


@bare
def _unlink(state, row, stream, slot, kind):
    links, ends = state.links, state.ends
    before, behind = links[slot, kind + OLDER], links[slot, kind + NEWER]
    if before == NONE:
        ends[row, stream, OLDER] = behind
    else:
        links[before, kind + NEWER] = behind
    if behind == NONE:
        ends[row, stream, NEWER] = before
    else:
        links[behind, kind + OLDER] = before
    state.length[row, stream] -= 1


class TupleBatch(NamedTuple):
    """Tuples in the order of their arrival: stream, time, key and label of each, and whether it came too late.

    ``first`` is the position of the first.
    """

    stream: np.ndarray
    time: np.ndarray
    key: np.ndarray
    label: np.ndarray
    late: np.ndarray
    first: int


# -- combinations -----------------------------------------------------------------------------------------------------


class WindowScratch(NamedTuple):
    """Arrays for one search.

    They hold the streams in the order of the search, where each begins and in which direction, the next tuple, the time
    and label chosen of each stream, and the period it is chosen from.
    """

    order: np.ndarray
    begin: np.ndarray
    way: np.ndarray
    following: np.ndarray
    time: np.ndarray
    label: np.ndarray
    period: np.ndarray


def room_to_work(streams: int) -> WindowScratch:
    """Return arrays for a search among this many streams."""
    numbers = np.zeros((5, streams), np.int64)
    order, begin, way, following, label = numbers
    return WindowScratch(order, begin, way, following, np.zeros(streams), label, np.zeros((streams, 4)))


@bare
def _begin(query, state, work, row, kind, stream, low, high):
    """Find where tuples of a period begin, from the nearer end of the list; return False if there are none."""
    oldest, newest = np.int64(state.ends[row, stream, OLDER]), np.int64(state.ends[row, stream, NEWER])
    if not query.timed:
        work.begin[stream], work.way[stream] = oldest, NEWER
        return True
    time, links = state.time, state.links
    if time[newest] - high <= low - time[oldest]:
        slot, work.way[stream] = newest, OLDER
        while slot != NONE and time[slot] > high:
            slot = np.int64(links[slot, kind + OLDER])
        found = slot != NONE and time[slot] >= low
    else:
        slot, work.way[stream] = oldest, NEWER
        while slot != NONE and time[slot] < low:
            slot = np.int64(links[slot, kind + NEWER])
        found = slot != NONE and time[slot] <= high
    work.begin[stream] = slot
    return found


@bare
def _set_period(query, work, depth, margin):
    """Set the times between which a tuple can still be chosen, and those between which it surely can."""
    stream = work.order[depth]
    low, high = -math.inf, math.inf
    if query.timed:
        for earlier in range(depth):
            chosen = work.order[earlier]
            low = max(low, work.time[chosen] - query.reach[chosen, stream])
            high = min(high, work.time[chosen] + query.reach[chosen, stream])
    sure = -margin if query.refined else margin
    work.period[depth, 0], work.period[depth, 1] = low - margin, high + margin
    work.period[depth, 2], work.period[depth, 3] = low + sure, high - sure


@bare
def _holds(query, work, depth):
    """Tell whether the given windows hold between the tuple chosen at this depth and those before it."""
    stream = work.order[depth]
    for earlier in range(depth):
        chosen = work.order[earlier]
        if not abs(work.time[stream] - work.time[chosen]) <= query.given[chosen, stream]:
            return False
    return True


@bare
def _open_search(query, state, work, stream, time, label, key_row):
    """Prepare to combine a tuple with stored ones of the other streams; open no search if it has no combination.

    Streams with few tuples of the key come first, and all must have one in reach of the new tuple: a stream that lags
    behind costs no search in the others.
    """
    streams = len(query.span)
    row, kind = (STORED, 0) if query.scan else (key_row, ALIKE)
    for other in range(streams):
        if other != stream and state.length[row, other] == 0:
            return
    margin = _MARGIN * (abs(time) + 2.0 * query.widest)
    work.order[0], work.time[stream], work.label[stream] = stream, time, label
    last = 0
    for other in range(streams):
        if other == stream:
            continue
        low, high = time - query.reach[stream, other] - margin, time + query.reach[stream, other] + margin
        if not _begin(query, state, work, row, kind, other, low, high):
            return
        last += 1
        place = last
        while place > 1 and state.length[row, work.order[place - 1]] > state.length[row, other]:
            work.order[place] = work.order[place - 1]
            place -= 1
        work.order[place] = other
    state.tally[DEPTH] = 1
    work.following[1] = work.begin[work.order[1]]
    _set_period(query, work, 1, margin)


@bare
def _search(query, state, work, key_row, out):
    """Write combinations after the first ``MADE``: labels by stream, and the ``POSITION``.

    If the output is full, the search stays open, at a ``DEPTH`` above 0, and can go on with an empty output.
    """
    streams = len(query.span)
    kind = 0 if query.scan else ALIKE
    margin = _MARGIN * (abs(work.time[work.order[0]]) + 2.0 * query.widest)
    first = made = state.tally[MADE]
    looked, complete = 0, 0
    depth, last, full = state.tally[DEPTH], streams - 1, False
    while depth > 0 and not full:
        other, slot = work.order[depth], work.following[depth]
        way = work.way[other]
        low, high = work.period[depth, 0], work.period[depth, 1]
        sure_low, sure_high = work.period[depth, 2], work.period[depth, 3]
        deeper = False
        while slot != NONE and not deeper:
            if made == len(out):
                full = True
                break
            looked += 1
            there = state.time[slot]
            if (there < low and way == OLDER) or (there > high and way == NEWER):
                break
            if low <= there <= high and not (query.scan and state.row[slot] != key_row):
                work.time[other], work.label[other] = there, state.label[slot]
                if (sure_low <= there <= sure_high) or _holds(query, work, depth):
                    if depth < last:
                        deeper = True
                    else:
                        complete += 1
                        wanted = True
                        if query.refined:
                            for each in range(1, streams):
                                wanted = wanted and _holds(query, work, each)
                        if wanted:
                            for each in range(streams):
                                out[made, each] = work.label[each]
                            out[made, streams] = state.tally[POSITION]
                            made += 1
            slot = np.int64(state.links[slot, kind + way])
        work.following[depth] = slot
        if deeper:
            depth += 1
            work.following[depth] = work.begin[work.order[depth]]
            _set_period(query, work, depth, margin)
        elif not full:
            depth -= 1
    state.tally[DEPTH], state.tally[MADE] = depth, made
    state.tally[COMPARISONS] += looked
    state.tally[CANDIDATES] += complete
    state.tally[KEPT] += made - first


# -- backward ---------------------------------------------------------------------------------------------------------


@bare
def _has_partner(state, row, stream, time, reach):
    """Tell whether a stream has a stored tuple of this key within reach of a time; search from the nearer end."""
    oldest, newest = np.int64(state.ends[row, stream, OLDER]), np.int64(state.ends[row, stream, NEWER])
    if oldest == NONE:
        return False
    if state.time[newest] - time <= time - state.time[oldest]:
        slot = newest
        while slot != NONE and state.time[slot] - time > reach:
            slot = np.int64(state.links[slot, ALIKE + OLDER])
        return slot != NONE and time - state.time[slot] <= reach
    slot = oldest
    while slot != NONE and time - state.time[slot] > reach:
        slot = np.int64(state.links[slot, ALIKE + NEWER])
    return slot != NONE and state.time[slot] - time <= reach


@bare
def _has_use(query, state, row, stream, time):
    """Tell whether a tuple may be in a combination that is still to come."""
    open_streams = 0
    for other in range(len(query.span)):
        if other != stream:
            reach = query.reach[stream, other]
            if not state.floor[other] - time > reach:
                open_streams += 1
            elif query.tight and not _has_partner(state, row, other, time, reach):
                return False
    return open_streams > 0


@bare
def _store(query, state, stream, slot):
    """Insert a tuple into its lists, and note which other streams have passed it."""
    _link(state, STORED, stream, slot, 0)
    _link(state, _key_row(state, slot), stream, slot, ALIKE)
    passed = 0
    for other in range(len(query.span)):
        if other != stream:
            if state.floor[other] - state.time[slot] > query.reach[stream, other]:
                passed += 1
            elif state.unpassed[stream, other] == state.links[slot, NEWER]:
                state.unpassed[stream, other] = slot
    state.passed[slot] = passed


@bare
def _drop(state, stream, slot):
    for other in range(len(state.floor)):
        if state.unpassed[stream, other] == slot:
            state.unpassed[stream, other] = state.links[slot, NEWER]
    _unlink(state, STORED, stream, slot, 0)
    _unlink(state, _key_row(state, slot), stream, slot, ALIKE)
    _free_slot(state, slot)


@bare
def _pass(query, state, stream):
    """Drop tuples after a stream has moved on: those that all have passed, or (tight) those left without a partner."""
    floor, others = state.floor[stream], len(query.span) - 1
    for other in range(len(query.span)):
        slot, reach = np.int64(state.unpassed[other, stream]), query.reach[other, stream]
        while slot != NONE and floor - state.time[slot] > reach:
            newer = np.int64(state.links[slot, NEWER])
            state.unpassed[other, stream] = newer
            state.passed[slot] += 1
            if state.passed[slot] == others or (
                query.tight and not _has_partner(state, _key_row(state, slot), stream, state.time[slot], reach)
            ):
                _drop(state, other, slot)
            slot = newer


@bare
def arrive_backward(query, state, work, batch, at, out):
    """Take tuples in the order of arrival: find the combinations of each, store it, drop tuples without further use.

    Begins with tuple ``at``; stops when the output is full, and returns the next tuple. ``MADE`` is the number of
    combinations in the output.
    """
    state.tally[MADE] = 0
    while at < len(batch.time):
        stream, time, label = batch.stream[at], batch.time[at], batch.label[at]
        if time < state.floor[stream]:
            batch.late[at] = True
            at += 1
            continue
        row = _row_of(state, batch.key[at])
        if state.tally[DEPTH] == 0:
            _open_search(query, state, work, stream, time, label, row)
        if state.tally[DEPTH] > 0:
            state.tally[POSITION] = batch.first + at
            _search(query, state, work, row, out)
            if state.tally[DEPTH] > 0:
                break
        if _has_use(query, state, row, stream, time):
            _store(query, state, stream, _new_slot(state, time, label, row))
        else:
            _forget_unused(state, row)
        if time - query.delay[stream] > state.floor[stream]:
            state.floor[stream] = time - query.delay[stream]
            _pass(query, state, stream)
        state.tally[PEAK] = max(state.tally[PEAK], state.free[SLOTS])
        at += 1
    return at


@bare
def move_backward(query, state, _work, stream, floor, _out):
    """Drop tuples without further use, now that a stream will have no tuple older than ``floor``."""
    state.tally[MADE] = 0
    if floor > state.floor[stream]:
        state.floor[stream] = floor
        _pass(query, state, stream)


# -- forward ----------------------------------------------------------------------------------------------------------


@bare
def _front(state, stream):
    """Return the oldest tuple of a stream, admitted or not."""
    slot = np.int64(state.ends[STORED, stream, OLDER])
    return slot if slot != NONE else np.int64(state.ends[PENDING, stream, OLDER])


@bare
def _front_is_sure(state, stream):
    """Tell whether there is a front that no later tuple will precede."""
    slot = state.ends[PENDING, stream, OLDER]
    return state.ends[STORED, stream, OLDER] != NONE or (slot != NONE and state.time[slot] <= state.floor[stream])


@bare
def _earliest(state, stream):
    """Return a time such that no tuple of the stream is older, stored or to come."""
    if state.ends[STORED, stream, OLDER] != NONE:
        return state.time[state.ends[STORED, stream, OLDER]]
    slot = state.ends[PENDING, stream, OLDER]
    return state.floor[stream] if slot == NONE else min(state.floor[stream], state.time[slot])


@bare
def _discard(state, stream, slot):
    if state.ends[STORED, stream, OLDER] == slot:
        _unlink(state, STORED, stream, slot, 0)
        _unlink(state, _key_row(state, slot), stream, slot, ALIKE)
    else:
        _unlink(state, PENDING, stream, slot, 0)
    _free_slot(state, slot)


@bare
def _discard_unreached(query, state, changed):
    """Discard fronts that some stream cannot reach any more, until none is left (``changed``: bits of streams).

    Only a stream whose oldest tuple has changed can get out of reach, or put others out of it.
    """
    streams = len(query.span)
    while changed != 0:
        stream = 0
        while not (changed >> stream) & 1:
            stream += 1
        changed &= changed - 1
        front, other = _front(state, stream), 0
        while front != NONE and other < streams:
            if other != stream and _earliest(state, other) - state.time[front] > query.reach[stream, other]:
                _discard(state, stream, front)
                front, other = _front(state, stream), 0
            else:
                other += 1
        earliest = _earliest(state, stream)
        for other in range(streams):
            if other != stream:
                front = _front(state, other)
                while front != NONE and earliest - state.time[front] > query.reach[other, stream]:
                    _discard(state, other, front)
                    front = _front(state, other)
                    changed |= 1 << other


@bare
def _first_to_end(query, state):
    """Return the stream whose front's span ends first (if equal, the oldest front); nobody if a front is missing."""
    found, end, begin = NOBODY, math.inf, math.inf
    for stream in range(len(query.span)):
        if not _front_is_sure(state, stream):
            return NOBODY
        time = state.time[_front(state, stream)]
        if time + query.span[stream] < end or (time + query.span[stream] == end and time < begin):
            found, end, begin = stream, time + query.span[stream], time
    return found


@bare
def _next_laggard(query, state, swept):
    """Return a stream that may still have partners of the swept stream's front; nobody if there is none."""
    time = state.time[_front(state, swept)]
    for other in range(len(query.span)):
        if other != swept and not state.floor[other] - time > query.span[swept]:
            return other
    return NOBODY


@bare
def _sweep(query, state, work, stream, had_front, out):
    """Continue the sweep after a stream has got a tuple or moved on.

    The sweep stands at the front whose span ends first (``SWEPT``) and admits all tuples in its span, until every other
    stream has passed it; then that front is discarded. It waits for the ``LAGGARD``, or if a front is missing, for that
    front: a stream that had a front then changes nothing. It stops with an open search when the output is full, and
    goes on when called again.
    """
    swept, laggard = state.tally[SWEPT], state.tally[LAGGARD]
    if swept == NOBODY and had_front:
        return
    begin, end, changed = stream, stream + 1, 1 << stream
    if state.tally[DEPTH] > 0:
        begin, end, laggard = 0, len(query.span), NOBODY
    while True:
        if swept == NOBODY:
            _discard_unreached(query, state, changed)
            swept = _first_to_end(query, state)
            if swept == NOBODY:
                break
            begin, end, laggard = 0, len(query.span), NOBODY
        start = state.time[_front(state, swept)]
        for other in range(begin, end):
            slot = np.int64(state.ends[PENDING, other, OLDER])
            while (
                slot != NONE
                and state.time[slot] - start <= query.span[swept]
                and state.time[slot] <= state.floor[other]  # otherwise a later one may precede it
            ):
                row = _key_row(state, slot)
                if state.tally[DEPTH] == 0:
                    _open_search(query, state, work, other, state.time[slot], state.label[slot], row)
                if state.tally[DEPTH] > 0:
                    _search(query, state, work, row, out)
                    if state.tally[DEPTH] > 0:
                        state.tally[SWEPT], state.tally[LAGGARD] = swept, laggard
                        return
                _unlink(state, PENDING, other, slot, 0)
                _link(state, STORED, other, slot, 0)
                _link(state, row, other, slot, ALIKE)
                slot = np.int64(state.ends[PENDING, other, OLDER])
        if laggard in (NOBODY, stream):
            laggard = _next_laggard(query, state, swept)
        if laggard != NOBODY:
            break
        _discard(state, swept, _front(state, swept))
        swept, changed = NOBODY, 1 << swept
    state.tally[SWEPT], state.tally[LAGGARD] = swept, laggard


@bare
def arrive_forward(query, state, work, batch, at, out):
    """Take tuples in the order of arrival, and sweep after each; begin, stop and return as ``arrive_backward``."""
    state.tally[MADE] = 0
    while at < len(batch.time):
        stream, time = batch.stream[at], batch.time[at]
        had_front = False
        if state.tally[DEPTH] == 0:
            if time < state.floor[stream]:
                batch.late[at] = True
                at += 1
                continue
            had_front = _front_is_sure(state, stream)
            slot = _new_slot(state, time, batch.label[at], _row_of(state, batch.key[at]))
            _link(state, PENDING, stream, slot, 0)
            state.floor[stream] = max(state.floor[stream], time - query.delay[stream])
        state.tally[POSITION] = batch.first + at
        _sweep(query, state, work, stream, had_front, out)
        if state.tally[DEPTH] > 0:
            break
        state.tally[PEAK] = max(state.tally[PEAK], state.free[SLOTS])
        at += 1
    return at


@bare
def move_forward(query, state, work, stream, floor, out):
    """Continue the sweep: a stream will have no tuple older than ``floor``. Call again while a search is open."""
    had_front = _front_is_sure(state, stream) and state.tally[DEPTH] == 0
    state.floor[stream] = max(state.floor[stream], floor)
    state.tally[MADE], state.tally[POSITION] = 0, NOBODY
    _sweep(query, state, work, stream, had_front, out)


# -- moving a state ---------------------------------------------------------------------------------------------------


class Content(NamedTuple):
    """The stored tuples of a stream, in the order of time, and how many of them, at the end, are pending."""

    time: np.ndarray
    key: np.ndarray
    label: np.ndarray
    pending: int


def content(state: State, stream: int) -> Content:
    """Return the stored tuples of a stream."""
    slots = slots_of(state, stream)
    return Content(
        state.time[slots], state.key[state.row[slots]], state.label[slots], int(state.length[PENDING, stream])
    )


def slots_of(state: State, stream: int) -> np.ndarray:
    """Return the slots of a stream's tuples, in the order of time, the pending ones last."""
    slots = np.empty(state.stored[stream], np.int64)
    _list_slots(state, stream, slots)
    return slots


@bare
def _list_slots(state, stream, slots):
    found = 0
    for row in (STORED, PENDING):
        slot = np.int64(state.ends[row, stream, OLDER])
        while slot != NONE:
            slots[found] = slot
            found += 1
            slot = np.int64(state.links[slot, NEWER])


@bare
def put_back(query, state, stream, content):
    """Store tuples of another state; there must be room, and the floors of all streams must be set."""
    admitted = len(content.time) - content.pending
    for i in range(len(content.time)):
        slot = _new_slot(state, content.time[i], content.label[i], _row_of(state, content.key[i]))
        if i < admitted:
            _store(query, state, stream, slot)
        else:
            _link(state, PENDING, stream, slot, 0)
