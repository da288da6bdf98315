"""Find all combinations of complete streams under time windows at once; ``windows`` finds them tuple by tuple.

Tuples of a stream are in one array by key and time, so that those in reach of others are a slice of it. A combination
begins with a tuple of one stream and goes on with slices of the others, each as narrow as the windows from the tuples
chosen so far allow; in the last stream a whole slice is written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare, bare_inner, kernel
from haply.pruning.candidates.windows import WindowQuery

_MARGIN = 4e-16
"""The rounding error of a sum of two numbers is less than this times the larger one."""
_FEW = 16
_SAMPLED, _LEAST = 16, 1 << 12


class Sorted(NamedTuple):
    """Tuples of all streams, one stream after the other, each by key and time; ``label`` is the number of a tuple.

    Tuples of stream ``s`` with key ``k`` are ``start[s, k]:start[s, k + 1]``. Keys that a stream lacks are left out.
    """

    start: np.ndarray
    time: np.ndarray
    label: np.ndarray


def sort_streams(times: list[np.ndarray], keys: list[np.ndarray], labels: list[np.ndarray]) -> Sorted:
    """Sort the tuples of all streams, which may come in any order; keys and labels are integers."""
    times, keys, labels = list(times), list(keys), list(labels)
    for k, own in enumerate(times):
        if not (own[1:] >= own[:-1]).all():
            order = np.argsort(own, kind="stable")
            times[k], keys[k], labels[k] = own[order], keys[k][order], labels[k][order]
    ends = np.cumsum([0, *map(len, times)])
    first = int(np.argmin(np.diff(ends)))
    return _sorted(np.concatenate(times), np.concatenate(keys), np.concatenate(labels), ends, first)


@kernel
def _sorted(time, key, label, ends, first):
    """Sort tuples by key: keys of the stream ``first`` are numbered as they come, tuples with other keys left out."""
    streams = len(ends) - 1
    size = 16
    while size < 2 * (ends[first + 1] - ends[first]):
        size *= 2
    table, names, count = np.full(size, -1, np.int64), np.empty(size, np.int64), 0
    code = np.empty(len(key), np.int64)
    for turn in range(streams):
        stream = first if turn == 0 else turn - 1 if turn <= first else turn
        for i in range(ends[stream], ends[stream + 1]):
            hashed = np.uint64(key[i]) * np.uint64(0x9E3779B97F4A7C15)
            at = np.int64((hashed ^ (hashed >> np.uint64(32))) & np.uint64(size - 1))
            while table[at] >= 0 and names[table[at]] != key[i]:
                at = (at + 1) & (size - 1)
            if table[at] < 0 and turn == 0:
                table[at], names[count] = count, key[i]
                count += 1
            code[i] = table[at]
    start = np.zeros((streams, count + 1), np.int64)
    for stream in range(streams):
        for i in range(ends[stream], ends[stream + 1]):
            if code[i] >= 0:
                start[stream, code[i] + 1] += 1
    placed = 0
    for stream in range(streams):
        for k in range(count + 1):
            placed += start[stream, k]
            start[stream, k] = placed
        # the slices of all streams follow each other, so the count goes on with the next stream
    sorted_time, sorted_label = np.empty(placed), np.empty(placed, label.dtype)
    following = start.copy()
    for stream in range(streams):
        for i in range(ends[stream], ends[stream + 1]):
            if code[i] >= 0:
                at = following[stream, code[i]]
                sorted_time[at], sorted_label[at] = time[i], label[i]
                following[stream, code[i]] = at + 1
    return Sorted(start, sorted_time, sorted_label)


def stream_order(query: WindowQuery, sizes: np.ndarray) -> np.ndarray:
    """Return the order in which streams are searched: the smallest first, then always the one with the least reach."""
    order = [int(np.argmin(sizes))]
    while len(order) < len(sizes):
        left = [stream for stream in range(len(sizes)) if stream not in order]
        order.append(min(left, key=lambda stream: (query.reach[order, stream].min(), stream)))
    return np.array(order)


def combine(query: WindowQuery, streams: Sorted) -> np.ndarray:
    """Return the labels of all combinations, a row for each stream."""
    count = len(query.span)
    order = stream_order(query, streams.start[:, -1] - streams.start[:, 0])
    at, until, begin, end = (np.zeros(count, np.int64) for _ in range(4))
    work = CombinationScratch(at, until, begin, end, np.zeros((count, count)), np.zeros((count, count)))
    reach = np.ascontiguousarray(query.reach[np.ix_(order, order)])
    alike = bool((reach[~np.eye(count, dtype=bool)] == reach[0, 1]).all())
    # Counting all combinations takes as long as finding them, so their number is estimated from some keys.
    keys, nothing = streams.start.shape[1] - 1, np.empty((count, 0), streams.label.dtype)
    every = _SAMPLED if keys > 4 * _SAMPLED else 1
    counted = _combine(reach, alike, streams, order, work, nothing, every, False)
    out = np.empty((count, _room_for(counted, every)), streams.label.dtype)
    made = _combine(reach, alike, streams, order, work, out, 1, True)
    if made > out.shape[1]:
        out = np.empty((count, made), streams.label.dtype)
        _combine(reach, alike, streams, order, work, out, 1, True)
    return out[:, :made]


def _room_for(counted: int, every: int) -> int:
    return counted if every == 1 else every * (counted + counted // 4) + _LEAST


class CombinationScratch(NamedTuple):
    """Arrays for one search.

    By depth: the chosen tuple, the end of the choice, and the slice of tuples that the first chosen tuple can reach,
    which only moves forward. By depth and later depth: the range of times that the tuples chosen so far allow.
    """

    at: np.ndarray
    until: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    low: np.ndarray
    high: np.ndarray


@bare
def _combine(reach, alike, streams, order, work, out, every, write):
    """Count the combinations of every ``every``-th key, and write those for which there is room."""
    count, keys, time = len(order), streams.start.shape[1] - 1, streams.time
    made, last, room = 0, count - 1, out.shape[1]
    at, until = work.at, work.until
    for key in range(0, keys, every):
        missing = False
        for depth in range(count):
            stream = order[depth]
            work.begin[depth] = work.end[depth] = streams.start[stream, key]
            missing = missing or streams.start[stream, key] == streams.start[stream, key + 1]
        if missing:
            continue
        for opening in range(streams.start[order[0], key], streams.start[order[0], key + 1]):
            at[0] = opening
            if not _reach(reach, streams, order, work, key, time[opening]):
                continue
            depth = 1
            _open(reach, alike, time, work, 1)
            while depth > 0:
                if depth == last:
                    begin, end = at[depth], until[depth]
                    made += end - begin
                    if write and end > begin and made <= room:
                        _write(streams.label, order, at, begin, end, out, made - (end - begin))
                    depth -= 1
                    at[depth] += 1
                elif at[depth] < until[depth]:
                    depth += 1
                    _open(reach, alike, time, work, depth)
                else:
                    depth -= 1
                    at[depth] += 1
    return made


@bare_inner
def _write(labels, order, at, begin, end, out, made):
    last = len(order) - 1
    for earlier in range(last):
        label = labels[at[earlier]]
        row = out[order[earlier], made : made + end - begin]
        for n in range(len(row)):
            row[n] = label
    row, mine = out[order[last], made : made + end - begin], labels[begin:end]
    for n in range(len(row)):
        row[n] = mine[n]


@bare_inner
def _reach(reaches, streams, order, work, key, opening):
    """Move the slices forward to the reach of a first tuple at this time; return False if one of them is empty."""
    time = streams.time
    for depth in range(1, len(order)):
        stream = order[depth]
        reach, stop = reaches[0, depth], streams.start[stream, key + 1]
        begin, end = work.begin[depth], work.end[depth]
        while begin < stop and opening - time[begin] > reach:
            begin += 1
        end = max(begin, end)
        while end < stop and time[end] - opening <= reach:
            end += 1
        work.begin[depth], work.end[depth] = begin, end
        work.low[0, depth], work.high[0, depth] = opening - reach, opening + reach
        if begin == end:
            return False
    return True


@bare_inner
def _open(reach, alike, time, work, depth):
    """Set the range of tuples that can be chosen at this depth, given those before; it is a part of the slice.

    Times are compared with sums of times and windows; within the rounding of these, the differences decide.
    """
    if depth > 1:
        chosen, before = time[work.at[depth - 1]], depth - 2
        for later in range(depth, depth + 1 if alike else len(reach)):
            # with equal windows all later streams have the same range
            window = reach[depth - 1, later]
            work.low[depth - 1, later] = max(work.low[before, later - 1 if alike else later], chosen - window)
            work.high[depth - 1, later] = min(work.high[before, later - 1 if alike else later], chosen + window)
    low, high = work.low[depth - 1, depth], work.high[depth - 1, depth]
    margin = _MARGIN * (abs(low) + abs(high))
    begin, end = work.begin[depth], work.end[depth]
    if end - begin > _FEW:
        begin = _first_from(time, begin, end, low - margin)
    while begin < end and (
        time[begin] < low - margin or (time[begin] < low + margin and not _allowed(reach, time, work, depth, begin))
    ):
        begin += 1
    stop = begin
    while stop < end and (
        time[stop] <= high - margin or (time[stop] <= high + margin and _allowed(reach, time, work, depth, stop))
    ):
        stop += 1
    work.at[depth], work.until[depth] = begin, stop


@bare_inner
def _first_from(time, begin, end, low):
    while begin < end:
        middle = (begin + end) // 2
        if time[middle] < low:
            begin = middle + 1
        else:
            end = middle
    return begin


@bare_inner
def _allowed(reach, time, work, depth, slot):
    """Tell whether a tuple is in reach of all chosen tuples."""
    for earlier in range(depth):  # noqa: SIM110
        if not abs(time[slot] - time[work.at[earlier]]) <= reach[earlier, depth]:
            return False
    return True
