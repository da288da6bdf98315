"""Find the pairs of events that are likely close in time, by cores, ranges and tables of shifts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare, inner, kernel
from haply.pruning.bounds.timing.shapes import AT, GROUP, NO_SHAPE
from haply.pruning.bounds.timing.shifts import NO_TABLE, SURELY_POSITIVE, look_up, near
from haply.pruning.cascade import Counters

CORE, SHIFT, EXACT, WINDOW = 1, 2, 3, 0
RULES = {CORE: "core", SHIFT: "shift"}
DECIDED_BY = {EXACT: "exact value", **RULES}
"""What decided a kept pair, by its code."""


class Events(NamedTuple):
    """Events in the order of group (only equal ones meet) and of ``at``, the end of their shape.

    The ends of their core are differences to ``at``.
    """

    group: np.ndarray
    at: np.ndarray
    core_start: np.ndarray
    core_end: np.ndarray
    shape: np.ndarray


class TimingOutput(NamedTuple):
    """Kept pairs: ids, probability, deciding rule. Pairs with code 0 are still to be decided by the exact value.

    For these pairs it also has their places in the output and their rows. If probabilities are not wanted, there is
    room for only one.
    """

    new: np.ndarray
    old: np.ndarray
    probability: np.ndarray
    code: np.ndarray
    open_at: np.ndarray
    open_new: np.ndarray
    open_old: np.ndarray


class Ranges(NamedTuple):
    """For each shape of the new side: shifts outside ``[least, largest]`` match nothing, those in the sure range do.

    ``whole`` tells whether a shape has tables with all shapes that it may meet.
    """

    least: np.ndarray
    largest: np.ndarray
    sure_from: np.ndarray
    sure_to: np.ndarray
    whole: np.ndarray


NO_RANGES = Ranges(*(np.array([end]) for end in (-np.inf, np.inf, np.inf, -np.inf)), np.zeros(1, np.bool_))  # type: ignore[call-arg]
"""Ranges without information: only the cores of the events tell which pairs may match."""


@kernel
def insert(facts, codes, count, new_facts, new_codes):
    """Insert new events among ``count`` others, both in the order of group and place; arrays must have room.

    The first rows of ``facts`` and ``new_facts`` are those of events without ``LATEST``.
    """
    to, i, j = count + new_facts.shape[1] - 1, count - 1, new_facts.shape[1] - 1
    while j >= 0:
        group, place = new_facts[GROUP, j], new_facts[AT, j]
        if i >= 0 and (facts[GROUP, i] > group or (facts[GROUP, i] == group and facts[AT, i] > place)):
            for k in range(len(facts)):
                facts[k, to] = facts[k, i]
            for k in range(len(codes)):
                codes[k, to] = codes[k, i]
            i -= 1
        else:
            for k in range(len(facts)):
                facts[k, to] = new_facts[k, j]
            for k in range(len(codes)):
                codes[k, to] = new_codes[k, j]
            j -= 1
        to -= 1


@kernel
def drop_before(facts, codes, count, place):
    """Forget events before a place; return how many are left, and the last place that was forgotten."""
    kept, forgotten = 0, -math.inf
    for i in range(count):
        if facts[AT, i] < place:
            forgotten = max(forgotten, facts[AT, i])
            continue
        if kept < i:
            for k in range(len(facts)):
                facts[k, kept] = facts[k, i]
            for k in range(len(codes)):
                codes[k, kept] = codes[k, i]
        kept += 1
    return kept, forgotten


@inner
def _is_before(groups, places, k, group, place):
    return groups[k] < group or (groups[k] == group and places[k] < place)


@inner
def _first(groups, places, group, place, hint):
    """Return the first event of a group at a place or after it, searched for from ``hint`` on in growing steps."""
    low, high, step = 0, len(groups), 1
    if hint < high and _is_before(groups, places, hint, group, place):
        low = hint + 1
        while low + step <= high and _is_before(groups, places, low + step - 1, group, place):
            low += step
            step *= 2
        high = min(high, low + step - 1)
    else:
        high = hint
        while high - step >= 0 and not _is_before(groups, places, high - step, group, place):
            high -= step
            step *= 2
        low = max(low, high - step + 1)
    while low < high:
        middle = (low + high) // 2
        if _is_before(groups, places, middle, group, place):
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _tabled_run(
    tables, own, shape, at, old, old_id, j, stop, limit, new_is_left, keep_from, exact, out, n, beyond, sure
):
    """Write pairs of a new event with old ones from ``j`` on, up to a place, by look-ups.

    If only the verdict is wanted, the sure range of shifts decides without a look-up. Returns where it ended, how many
    pairs there are now, and how many more were outside of their table, or in its sure range.
    """
    table_of, hulls = tables.table_of, tables.hull
    old_at, old_shape = old.at, old.shape
    out_new, out_old, out_probability, out_code = out.new, out.old, out.probability, out.code
    while j < stop and old_at[j] <= limit:
        if new_is_left:
            r, shift = table_of[shape, old_shape[j]], old_at[j] - at
        else:
            r, shift = table_of[old_shape[j], shape], at - old_at[j]
        here = j
        j += 1
        if not hulls[r, 0] <= shift <= hulls[r, 1]:
            beyond += 1
            continue
        out_new[n], out_old[n] = own, old_id[here]
        if not exact and hulls[r, 2] <= shift <= hulls[r, 3]:
            out_probability[n if exact else 0], out_code[n] = math.nan, SHIFT
            n += 1
            sure += 1
            continue
        probability = look_up(tables, r, shift)
        if probability >= keep_from:  # mostly true within the hull
            out_probability[n if exact else 0], out_code[n] = min(1.0, probability), EXACT
            n += 1
    return j, n, beyond, sure


@bare
def match_times(
    new, new_id, begin, end, old, old_id, new_is_left, x, y, tables, ranges, window, slack, keep_from, sure_value, hits,
    out, n, left_open, counts,
):  # fmt: skip
    """Write pairs of new events, ``begin`` to ``end``, with old ones of the other side that are near in time.

    ``x`` and ``y`` are the shapes of left and right, ``ranges`` those of the new side. The output has ``n`` pairs
    already, ``left_open`` of them undecided. Stops when it may overflow; returns the next event, how many pairs there
    are, how many are undecided, and the maximum of ``hits``, which counts how often a pair of shapes has met without a
    table. ``counts`` gets the pairs that each rule rejected and accepted, the pairs tested, and those accepted without
    a test. ``sure_value`` is the probability of sure pairs, NaN if it is not wanted.
    """
    size = len(old.at)
    old_group, old_at, old_start, old_end, old_shape = old.group, old.at, old.core_start, old.core_end, old.shape
    table_of, hulls = tables.table_of, tables.hull
    out_new, out_old, out_probability, out_code = out.new, out.old, out.probability, out.code
    longest_before, longest_after = 0.0, -math.inf
    for j in range(size):
        longest_before = min(longest_before, old_start[j])
        longest_after = max(longest_after, old_end[j])
    exact = not math.isnan(sure_value)
    hint = stop = 0
    current = math.nan
    i, hottest, looked_at, untested = begin, 0, 0, 0
    rejected, accepted, computed, dismissed, apart = 0, 0, 0, 0, 0
    while i < end and n + size <= len(out_new):
        group, at, shape, own = new.group[i], new.at[i], new.shape[i], new_id[i]
        known = shape if shape < len(ranges.least) - 1 else NO_SHAPE
        from_here, to_here = at + new.core_start[i] - window - slack, at + new.core_end[i] + window + slack
        lowest, highest = from_here - longest_after, to_here - longest_before
        sure_from, sure_to = math.inf, -math.inf
        if known >= 0:
            lowest = max(lowest, at + ranges.least[known] - slack)
            highest = min(highest, at + ranges.largest[known] + slack)
            sure_from, sure_to = at + ranges.sure_from[known] + slack, at + ranges.sure_to[known] - slack
        if group != current:
            current, stop = group, _first(old_group, old_at, group, math.inf, hint)
            while stop < size and old_group[stop] == group:  # events at infinity
                stop += 1
        j = hint = _first(old_group, old_at, group, lowest, hint)
        if known >= 0 and ranges.whole[known] and keep_from >= SURELY_POSITIVE:
            before, taken, beyond, sure = n, j, 0, 0
            if sure_from <= sure_to:
                j, n, beyond, sure = _tabled_run(
                    tables, own, shape, at, old, old_id, j, stop, sure_from, new_is_left, keep_from, exact, out, n, 0, 0
                )
                taken = j
                while j < stop and old_at[j] <= sure_to:  # pairs in this range are accepted without a test
                    out_new[n], out_old[n], out_probability[n if exact else 0], out_code[n] = (
                        own,
                        old_id[j],
                        sure_value,
                        SHIFT,
                    )
                    n += 1
                    j += 1
            taken = j - taken
            j, n, beyond, sure = _tabled_run(
                tables,
                own,
                shape,
                at,
                old,
                old_id,
                j,
                stop,
                highest,
                new_is_left,
                keep_from,
                exact,
                out,
                n,
                beyond,
                sure,
            )
            seen, found = j - hint - taken, n - before - taken
            looked_at, untested = looked_at + seen, untested + taken
            rejected, accepted, computed = rejected + beyond, accepted + sure, computed + found - sure
            dismissed += seen - found - beyond
            i += 1
            continue
        while j < stop:
            place, other, here = old_at[j], old_shape[j], j
            if place > highest:
                break
            j += 1
            out_new[n], out_old[n], out_probability[n if exact else 0], out_code[n] = (
                own,
                old_id[here],
                sure_value,
                SHIFT,
            )
            if sure_from <= place <= sure_to:
                untested += 1
                n += 1
                continue
            looked_at += 1
            if place + old_end[here] < from_here or place + old_start[here] > to_here:
                apart += 1
                continue
            undecided, probability = shape < 0 or other < 0, 0.0
            if not undecided:
                u, v = (shape, other) if new_is_left else (other, shape)
                shift = place - at if new_is_left else at - place
                shared = u < table_of.shape[0] and v < table_of.shape[1]
                r = table_of[u, v] if shared else NO_TABLE
                if r < 0:
                    if shared:
                        hits[u, v] += 1
                        hottest = max(hottest, hits[u, v])
                    undecided = x.points[u] and y.points[v]  # ties are decided by exact values
                    if shift - x.low[x.start[u]] <= window and -shift - y.low[y.start[v]] <= window:
                        probability = 1.0  # even if they are farthest apart
                    elif not undecided:
                        probability = near(x, u, y, v, shift, window)
                elif shift < hulls[r, 0] or shift > hulls[r, 1]:
                    rejected += 1
                    continue
                elif hulls[r, 2] <= shift <= hulls[r, 3] and not exact:
                    accepted += 1
                    n += 1
                    continue
                else:
                    probability = look_up(tables, r, shift)
                undecided |= keep_from < SURELY_POSITIVE and probability < SURELY_POSITIVE
            if undecided:
                out_probability[n if exact else 0], out_code[n] = math.nan, 0
                out.open_at[left_open], out.open_new[left_open], out.open_old[left_open] = n, i, here
                left_open += 1
                n += 1
            elif probability >= keep_from:
                computed += 1
                out_probability[n if exact else 0], out_code[n] = min(1.0, probability), EXACT
                n += 1
            else:
                dismissed += 1
        i += 1
    counts[WINDOW, 0] += looked_at + untested
    counts[WINDOW, 1] += untested
    counts[CORE, 0] += apart
    counts[SHIFT, 0] += rejected
    counts[SHIFT, 1] += accepted + untested
    counts[EXACT, 0] += dismissed
    counts[EXACT, 1] += computed
    return i, n, left_open, hottest


def counters_of(counts: np.ndarray, kept: int) -> Counters:
    """Return counts as counters, by names."""
    names = tuple(RULES.values())
    counters = Counters(names, names)
    for code, name in RULES.items():
        counters.rejected[name], counters.accepted[name] = (int(count) for count in counts[code])
    counters.candidates, counters.evaluated, counters.kept = int(counts[WINDOW, 0]), int(counts[EXACT].sum()), kept
    return counters
