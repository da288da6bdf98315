"""Find the event nearest to an uncertain time, where the times of events are uncertain too.

Given ``T = t``, the nearest event is the last one before 0 among ``-|S_k - t|``. Folded at ``t``, a component of an
event is one or two components of the same kinds, so that ``last`` computes the probabilities for a certain time
exactly; among normals alone ``near_normals`` does. The result is their mean over ``T``.

Points are summed. A normal part of ``T`` among normal events is a sum as well, by the trapezoidal rule, whose error is
bounded: with an imaginary part ``y``, in deviations of ``T``, the density of ``T`` grows by ``exp(y**2 / 2)`` and the
probability ``p_j(t)`` by ``exp(y**2 bends / 2)`` at most, where ``bends`` is the sum of squared ratios of the deviation
of ``T`` to those of the events (see ``near_normals``). So a step ``h`` errs by at most
``2 p_j exp(-2 pi**2 / (h**2 (1 + bends)))``, which is ``2 p_j exp(-35)`` here. Others are integrated by Gauss-Legendre
panels between all places where the order of two events may change: edges, their midpoints, and those shifted by the
lookback. Panels on which rules of two sizes disagree are halved: their error is estimated from that difference, not
bounded.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from haply.models import OneDimensional
from haply.numerics.components import NORMAL, POINT, UNIFORM, smooth_window
from haply.numerics.grid import FARTHEST, trapezoid_step
from haply.numerics.jit import bare, kernel
from haply.numerics.normal import SQRT_2PI, cut_cdf, cut_pdf, cut_sf
from haply.numerics.rows import Components, row_cdf
from haply.probability.events.last import EventOrder, LastEvents, chances, lookback_of, ranked_candidates
from haply.probability.events.near_normals import nearest_normals, only_normals
from haply.probability.quadrature import MOST_BENDS, sort_breaks

_SMALL, _LARGE = np.polynomial.legendre.leggauss(8), np.polynomial.legendre.leggauss(12)
_NODES = np.concatenate([_SMALL[0], _LARGE[0]])
_SMALL_RULE, _LARGE_RULE = np.append(_SMALL[1], np.zeros(12)), np.append(np.zeros(8), _LARGE[1])
"""Weights of all nodes: each rule uses its own nodes."""
_AGREED = 1e-9
"""Rules of both sizes must agree to this: the larger one then errs by about its power of 3/2."""
_MOST_HALVINGS = 40
_MOST_MARKS = 40
"""With more marks, midpoints are not used as breaks: halving finds where panels must be short."""
_WIDTHS = 6.0
"""Standard deviations over which normal times change their order."""
_NO_WEIGHT = 1e-18
_ROUNDING = 1e-12
_NODES_AT_ONCE = 1 << 15
_SHARE = 0.25
"""The share of a tolerance for each loss: at both ends of left times, at those of events, and by the distance."""


class _Panels(NamedTuple):
    """Stretches of components of left rows: row, component, begin and end."""

    row: np.ndarray
    part: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    def at(self, chosen: Any) -> _Panels:
        return _Panels(*(values[chosen] for values in self))


# -- candidates --------------------------------------------------------------------------------------------------------


@bare
def _none_within(b, near, count, low, high, radius):
    """Return a bound of the probability that no event is nearer than ``radius`` to a time from ``low`` to ``high``."""
    chance = 1.0
    radius -= _ROUNDING * (radius + abs(low) + abs(high))  # an event at the radius itself is not nearer
    if high - radius >= low + radius:
        return chance
    for k in range(count):
        inside = row_cdf(b, near[k], low + radius, False) - row_cdf(b, near[k], high - radius, True)
        chance *= 1.0 - max(0.0, inside)
        if chance == 0.0:
            break
    return chance


@kernel
def _nearest_rows(b, order, earliest, latest, newest, begins, ends, low, high, lookback, budget):
    """Find the candidates of all left rows; row ``i`` has its events in the order from ``begins[i]`` to ``ends[i]``.

    Events ascend by their earliest time; ``newest`` is the latest time of all events of one key up to an event. An
    event is left out if it is farther away than a radius within which there is almost surely another.
    """
    rows = len(low)
    start, found = np.zeros(rows + 1, np.int64), np.empty(max(16, 4 * rows), np.int64)
    near, gaps = np.empty(len(order), np.int64), np.empty(len(order))
    for i in range(rows):
        radius = lookback
        after = begins[i] + np.searchsorted(earliest[begins[i] : ends[i]], high[i])
        for k in range(max(begins[i], after - 2), min(ends[i], after + 2)):  # the nearest of these bounds the radius
            radius = min(radius, max(high[i] - earliest[k], latest[k] - low[i]))
        count, at = 0, after
        while at < ends[i] and earliest[at] - high[i] <= radius:
            near[count], gaps[count] = order[at], max(0.0, earliest[at] - high[i], low[i] - latest[at])
            count, at = count + 1, at + 1
        at = after - 1
        while at >= begins[i] and low[i] - newest[at] <= radius:
            gap = max(0.0, earliest[at] - high[i], low[i] - latest[at])
            if gap <= radius:
                near[count], gaps[count] = order[at], gap
                count += 1
            at -= 1
        place = np.argsort(gaps[:count])
        sorted_events, sorted_gaps = near[:count][place], gaps[:count][place]
        fewest, most = 0, count
        while fewest < most:  # events beyond a gap are not needed if one is almost surely nearer than the gap
            middle = (fewest + most) // 2
            inner = sorted_gaps[middle]
            if inner > 0.0 and _none_within(b, sorted_events, count, low[i], high[i], inner) <= budget:
                most = middle
            else:
                fewest = middle + 1
        if start[i] + fewest > len(found):
            more = np.empty(2 * (start[i] + fewest), np.int64)
            more[: start[i]] = found[: start[i]]
            found = more
        found[start[i] : start[i] + fewest] = sorted_events[:fewest]
        start[i + 1] = start[i] + fewest
    return start, found[: start[-1]].copy()


def nearest_candidates(
    left: OneDimensional, right: OneDimensional, *, tolerance: float = 1e-9, lookback: float | None = None,
    left_key: Any = None, right_key: Any = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Find for each left time the events that may be the nearest.

    Parameters
    ----------
    left, right
        One-dimensional models of any kinds: the times asked about, and the times of events.
    tolerance
        All events left out together are the nearest with at most this probability.
    lookback
        How far away an event may be, at most; by default any distance.
    left_key, right_key
        As in ``event_candidates``.

    Returns
    -------
    tuple of numpy.ndarray
        ``start`` and ``candidates``, as ``nearest_events`` takes them.
    """
    share = _SHARE * tolerance
    single = 0.5 * share / max(1, len(right))
    ordered = EventOrder.of(right.quantile_low(single), right.quantile_high(single), left_key, right_key, len(left))
    return _nearest_rows(
        right.components, *ordered, left.quantile_low(share), left.quantile_high(share), lookback_of(lookback), share
    )


# -- a certain time ----------------------------------------------------------------------------------------------------


@bare
def _fold(b, k, t, out, at):
    """Write the components of ``-|S - t|`` for a component of ``S``; return the place after them.

    Of two points at one distance the earlier counts as nearer, as in pandas: by the last bit of a double.
    """
    kind, low, high, weight, mean, sd = b.kind[k], b.low[k], b.high[k], b.weight[k], b.mean[k], b.sd[k]
    if kind == POINT:
        distance = abs(low - t)
        if low < t:
            distance = np.nextafter(distance, 0.0)
        out.weight[at], out.kind[at], out.low[at], out.high[at] = weight, kind, -distance, -distance
        out.mean[at], out.sd[at] = -distance, 0.0
        return at + 1
    before = 1.0 if high <= t else 0.0
    after = 1.0 if low >= t else 0.0
    if low < t < high:
        before = (t - low) / (high - low) if kind == UNIFORM else cut_cdf(mean, sd, low, high, t)
        after = (high - t) / (high - low) if kind == UNIFORM else cut_sf(mean, sd, low, high, t)
    if before > _NO_WEIGHT:
        out.weight[at], out.kind[at], out.low[at], out.high[at] = weight * before, kind, low - t, min(0.0, high - t)
        out.mean[at], out.sd[at] = mean - t, sd
        at += 1
    if after > _NO_WEIGHT:
        out.weight[at], out.kind[at], out.low[at], out.high[at] = weight * after, kind, t - high, min(0.0, t - low)
        out.mean[at], out.sd[at] = t - mean, sd
        at += 1
    return at


@kernel
def _folded(b, start, candidates, rows, times):
    """Return the components of ``-|S_j - t|`` for each time and candidate of its row, and where each time begins."""
    pairs, most = 0, 0
    for m in range(len(rows)):
        for c in range(start[rows[m]], start[rows[m] + 1]):
            pairs += 1
            most += 2 * (b.start[candidates[c] + 1] - b.start[candidates[c]])
    out = Components(
        np.zeros(pairs + 1, np.int64), np.empty(most), np.empty(most, np.int8), np.empty(most), np.empty(most),
        np.empty(most), np.empty(most), False,
    )  # fmt: skip
    begins, at, pair = np.zeros(len(rows) + 1, np.int64), 0, 0
    for m in range(len(rows)):
        for c in range(start[rows[m]], start[rows[m] + 1]):
            for k in range(b.start[candidates[c]], b.start[candidates[c] + 1]):
                at = _fold(b, k, times[m], out, at)
            pair += 1
            out.start[pair] = at
        begins[m + 1] = pair
    return out, begins


class _Question(NamedTuple):
    """Holds the events of each left row, and how far away they may be."""

    events: Components
    start: np.ndarray
    candidates: np.ndarray
    rank: np.ndarray
    lookback: float
    normal: np.ndarray
    """Whether all events of a left row are normal."""

    def at(self, rows: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the probabilities of all candidates of rows at certain times, and of none, and where each begins."""
        normal = self.normal[rows]
        if not normal.any():
            return self._at_any(rows, times)
        if normal.all():
            return nearest_normals(self.events, self.start, self.candidates, rows, times, self.lookback)
        counts = np.diff(self.start)[rows]
        begins = np.concatenate([[0], np.cumsum(counts)])
        found, none = np.empty(begins[-1]), np.empty(len(rows))
        for chosen in (normal, ~normal):
            found[np.repeat(chosen, counts)], none[chosen], _ = self.at(rows[chosen], times[chosen])
        return found, none, begins

    def _at_any(self, rows: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Do as ``at`` for events of any kinds."""
        folded, begins = _folded(self.events, self.start, self.candidates, rows, times)
        zeros = np.zeros(len(rows))
        now = Components(
            np.arange(len(rows) + 1), zeros + 1.0, np.full(len(rows), POINT), zeros, zeros, zeros, zeros, True
        )
        counts = np.diff(begins)
        ranks = self.rank[np.repeat(self.start[rows] - begins[:-1], counts) + np.arange(begins[-1])]
        found, none = chances(now, folded, begins, np.arange(begins[-1]), ranks, self.lookback)
        return found, none, begins


# -- the mean over a time ----------------------------------------------------------------------------------------------


@kernel
def _longer(values, size):
    out = np.empty(size, values.dtype)
    out[: len(values)] = values
    return out


@bare
def _marks_of(b, mine, places, widths):
    """Write where events begin, end or have their middle, and the width there; return how many marks there are."""
    count = 0
    for j in mine:
        for k in range(b.start[j], b.start[j + 1]):
            if b.kind[k] == NORMAL:
                places[count], widths[count] = min(max(b.mean[k], b.low[k]), b.high[k]), b.sd[k]
                count += 1
            if b.kind[k] != NORMAL or b.low[k] > -math.inf:
                places[count], widths[count] = b.low[k], 0.0
                count += 1
            if b.kind[k] == UNIFORM or (b.kind[k] == NORMAL and b.high[k] < math.inf):
                places[count], widths[count] = b.high[k], 0.0
                count += 1
    return count


@bare
def _add_break(x, low, high, breaks, count):
    if low < x < high:
        breaks[count] = x
        return count + 1
    return count


@bare
def _breaks_between(low, high, places, widths, count, lookback, breaks):
    """Write where the order of two events, or which are within the lookback, may change; return how many breaks."""
    many = 2
    breaks[0], breaks[1] = low, high
    for i in range(count):
        for other in range(0 if count <= _MOST_MARKS else i, i + 1):
            middle = 0.5 * places[i] + 0.5 * places[other]
            width = 0.5 * _WIDTHS * math.sqrt(widths[i] ** 2 + widths[other] ** 2)
            many = _add_break(middle, low, high, breaks, many)
            if width > 0.0:
                many = _add_break(middle - width, low, high, breaks, many)
                many = _add_break(middle + width, low, high, breaks, many)
        if lookback < math.inf:
            for side in (-1.0, 1.0):
                edge = places[i] + side * lookback
                many = _add_break(edge, low, high, breaks, many)
                if widths[i] > 0.0:
                    many = _add_break(edge - _WIDTHS * widths[i], low, high, breaks, many)
                    many = _add_break(edge + _WIDTHS * widths[i], low, high, breaks, many)
    return sort_breaks(breaks, many)


@bare
def _bends_of(a, k, b, mine):
    """Return the squared bends of events within a normal part of a left time, summed; infinite if one is not normal."""
    if a.kind[k] != NORMAL or a.low[k] > -math.inf or a.high[k] < math.inf:
        return math.inf
    total = 0.0
    for j in mine:
        most = 0.0
        for part in range(b.start[j], b.start[j + 1]):
            if b.kind[part] != NORMAL or b.low[part] > -math.inf or b.high[part] < math.inf:
                return math.inf
            most = max(most, a.sd[k] / b.sd[part])
        total += most * most
    return total


@kernel
def _sums_of(a, b, start, candidates):
    """Return times, their rows and weights, for left components that are sums, and flags of these components."""
    size, number = 1024, 0
    rows, times, weights = np.empty(size, np.int64), np.empty(size), np.empty(size)
    summed = np.zeros(len(a.kind), np.bool_)
    for i in range(len(start) - 1):
        mine = candidates[start[i] : start[i + 1]]
        for k in range(a.start[i], a.start[i + 1] if len(mine) else a.start[i]):
            step, last = 1.0, 0
            if a.kind[k] != POINT:
                bends = _bends_of(a, k, b, mine)
                if bends > MOST_BENDS:
                    continue
                step = trapezoid_step(bends)
                last = math.floor(FARTHEST / step)
            summed[k] = True
            if number + 2 * last + 1 > size:
                size = 2 * (number + 2 * last + 1)
                rows, times, weights = _longer(rows, size), _longer(times, size), _longer(weights, size)
            for node in range(-last, last + 1):
                z = node * step
                rows[number], times[number], weights[number] = i, a.low[k], a.weight[k]
                if a.kind[k] != POINT:
                    times[number] = a.mean[k] + a.sd[k] * z
                    weights[number] = a.weight[k] * step * math.exp(-0.5 * z * z) / SQRT_2PI
                number += 1
    return rows[:number].copy(), times[:number].copy(), weights[:number].copy(), summed


@kernel
def _most_marks(b, start, candidates):
    """Return how many marks the events of a row have at most."""
    most = 0
    for i in range(len(start) - 1):
        count = 0
        for c in range(start[i], start[i + 1]):
            count += 3 * (b.start[candidates[c] + 1] - b.start[candidates[c]])
        most = max(most, count)
    return most


@kernel
def _panels_of(a, b, start, candidates, lookback, summed):
    """Return all panels of left components that are not sums: row, component, begin and end."""
    most = _most_marks(b, start, candidates)
    places, widths = np.empty(most), np.empty(most)
    small = min(most, _MOST_MARKS)
    breaks = np.empty(2 + 3 * (small * (small + 1) // 2 + most) + 6 * most)
    size, number = 1024, 0
    rows, parts = np.empty(size, np.int64), np.empty(size, np.int64)
    begins, ends = np.empty(size), np.empty(size)
    for i in range(len(start) - 1):
        if start[i] == start[i + 1]:
            continue
        count = _marks_of(b, candidates[start[i] : start[i + 1]], places, widths)
        for k in range(a.start[i], a.start[i + 1]):
            if summed[k]:
                continue
            low, high = a.low[k], a.high[k]
            if a.kind[k] == NORMAL:
                down, up, _ = smooth_window(a.mean[k], a.sd[k], low, high)
                mode = min(max(a.mean[k], low), high)
                low, high = mode + down, mode + up
            many = _breaks_between(low, high, places, widths, count, lookback, breaks)
            if number + many > size:
                size = 2 * (number + many)
                rows, parts = _longer(rows, size), _longer(parts, size)
                begins, ends = _longer(begins, size), _longer(ends, size)
            for p in range(many - 1):
                rows[number], parts[number], begins[number], ends[number] = i, k, breaks[p], breaks[p + 1]
                number += 1
    return rows[:number].copy(), parts[:number].copy(), begins[:number].copy(), ends[:number].copy()


@kernel
def _densities(a, parts, times):
    """Return the density of components at times, multiplied by their weights."""
    out = np.empty(len(times))
    for m in range(len(times)):
        k = parts[m]
        if a.kind[k] == UNIFORM:
            out[m] = a.weight[k] / (a.high[k] - a.low[k])
        else:
            out[m] = a.weight[k] * cut_pdf(a.mean[k], a.sd[k], a.low[k], a.high[k], times[m])
    return out


def _integrate(asked: _Question, a: Components, panels: _Panels, sums: np.ndarray, none: np.ndarray) -> None:
    """Add the means over panels, which are halved until rules of two sizes agree."""
    size = len(_NODES)
    for halving in range(_MOST_HALVINGS + 1):
        again: list[np.ndarray] = []
        at_once = max(1, _NODES_AT_ONCE // size)
        for begin in range(0, len(panels.row), at_once):
            some = panels.at(slice(begin, begin + at_once))
            half = 0.5 * (some.end - some.begin)
            times = (0.5 * (some.begin + some.end))[:, None] + half[:, None] * _NODES
            rows, parts = np.repeat(some.row, size), np.repeat(some.part, size)
            share = _densities(a, parts, times.ravel()).reshape(-1, size) * half[:, None]
            found, alone, places = asked.at(rows, times.ravel())
            counts = np.diff(asked.start)[some.row]
            owner = np.concatenate([[0], np.cumsum(counts)])
            # probabilities are in the order of panels, nodes and candidates
            each = np.repeat(np.repeat(owner[:-1], size) - places[:-1], np.diff(places)) + np.arange(len(found))
            small, large = (
                np.bincount(each, found * np.repeat((share * rule).ravel(), np.diff(places)), owner[-1])
                for rule in (_SMALL_RULE, _LARGE_RULE)
            )
            lone, alone_there = (
                (share * rule * alone.reshape(-1, size)).sum(axis=1) for rule in (_SMALL_RULE, _LARGE_RULE)
            )
            apart = np.maximum(np.maximum.reduceat(np.abs(small - large), owner[:-1]), np.abs(lone - alone_there))
            fine = (apart <= _AGREED) | (halving == _MOST_HALVINGS)
            kept = np.repeat(fine, counts)
            targets = np.repeat(asked.start[some.row] - owner[:-1], counts) + np.arange(len(large))
            np.add.at(sums, targets[kept], large[kept])
            np.add.at(none, some.row[fine], alone_there[fine])
            again.append(begin + np.flatnonzero(~fine))
        left = np.concatenate(again) if again else np.zeros(0, np.int64)
        if not len(left):
            return
        rest = panels.at(left)
        middle = 0.5 * (rest.begin + rest.end)
        panels = _Panels(
            np.tile(rest.row, 2), np.tile(rest.part, 2), np.append(rest.begin, middle), np.append(middle, rest.end)
        )


def nearest_events(
    left: OneDimensional, right: OneDimensional, start: Any, candidates: Any, *, rank: Any = None,
    lookback: float | None = None,
) -> LastEvents:  # fmt: skip
    """Compute how likely each candidate is the event nearest to an uncertain time, before or after it.

    Parameters
    ----------
    left, right
        One-dimensional models of any kinds: the times asked about, and the times of events.
    start, candidates, rank
        As in ``last_events``. Of two events at one distance the earlier is chosen.
    lookback
        How far away an event may be, at most; by default any distance.

    Returns
    -------
    LastEvents
        The probability of each candidate, and for each left row that there is no event. They sum to 1.

    Examples
    --------
    >>> from haply.models import Certain, Uniform
    >>> found = nearest_events(Uniform(0, 10), Certain([2, 6]), [0, 2], [0, 1])
    >>> found.probability.round(9), found.none
    (array([0.4, 0.6]), array([0.]))
    """
    begins, rows, ranks = ranked_candidates(start, candidates, rank, len(left), len(right))
    a, b = left.components, right.components
    asked = _Question(b, begins, rows, ranks, lookback_of(lookback), only_normals(b, begins, rows))
    sums, none = np.zeros(len(rows)), np.where(np.diff(begins) == 0, 1.0, 0.0)
    owner, times, weights, summed = _sums_of(a, asked.events, begins, rows)
    for begin in range(0, len(owner), _NODES_AT_ONCE):
        some = slice(begin, begin + _NODES_AT_ONCE)
        found, alone, places = asked.at(owner[some], times[some])
        counts = np.diff(places)
        targets = np.repeat(begins[owner[some]] - places[:-1], counts) + np.arange(len(found))
        np.add.at(sums, targets, found * np.repeat(weights[some], counts))
        np.add.at(none, owner[some], alone * weights[some])
    _integrate(asked, a, _Panels(*_panels_of(a, asked.events, begins, rows, asked.lookback, summed)), sums, none)
    return LastEvents(np.clip(sums, 0.0, 1.0), np.clip(none, 0.0, 1.0))
