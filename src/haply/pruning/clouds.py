"""Deciding pairs of clouds (sets of weighted samples) without computing their probability, rule by rule.

What is known of an object is written down once, when it arrives:

* ``near``, a column per object, for the first look at many objects at a time: centre, core radius, largest variance,
  time, and to which pairs it belongs here (see ``Places``);
* ``facts``, a row per object: where its samples are, its moments, and how much of it lies within each radius;
* ``pool``: the samples, coordinate by coordinate, their weights and their distances from the centre, nearest first.

Every rule bounds the *near weight* of a pair, the weight of its sample pairs within the distance (a count when all are
equally likely). A pair is rejected when an upper bound is below the least weight that is kept, accepted when a lower
bound reaches it. Rounding is always given to the safe side: distances by ``slack``, weights by the threshold's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from haply.errors import unknown_name
from haply.numerics.jit import bare, bare_fused, bare_summed, inner, kernel
from haply.probability.distance import (
    Block,
    Clouds,
    Narrow,
    count_above,
    count_narrow,
    narrow_room,
    narrowed,
    near_weight,
    squared_limit,
    worth_narrowing,
)
from haply.pruning.grid import Grid, empty_grid, objects_near
from haply.pruning.threshold import TOLERANCE, Threshold

WHOLE_BALL = 2.0
"""As much as a core must hold to be the whole ball: more than the weights may add up to by rounding."""

SHELLS = 32
"""Steps of the radius at which it is written down how much of an object lies within."""

BINS = 64
"""Bins on the line through two centres."""

EXACT, BALLS, CORE, SPHERES, MOMENTS, LINE, SHELL, ROWS = range(8)
WINDOW = 8
"""The place in the counts of the pairs that were in the window."""
RULES = {
    BALLS: "balls",
    CORE: "core",
    SPHERES: "spheres",
    MOMENTS: "moments",
    LINE: "line",
    SHELL: "shell",
    ROWS: "rows",
}
"""The rules by their code: ``balls`` and ``spheres`` are the paper's object- and sample-level pruning (OP, SP)."""

DECIDED_BY = {EXACT: "exact value", **RULES}

GRID = 8
_SETS = {
    "auto": (CORE, BALLS, MOMENTS, LINE, SHELL, ROWS),
    "paper": (BALLS, SPHERES, GRID),
    "none": (),
}

_ROWS_AT_ONCE = 16
_WORTH_A_TABLE = 16
_LINE_MARGIN = 0.1
_SHELL_MARGIN = 1.0


def rule_codes(rules: str | Iterable[str]) -> frozenset[int]:
    """The codes of a named set (``auto``, ``paper``, ``none``) or of a list of rules."""
    names = {**{name: code for code, name in RULES.items()}, "grid": GRID}
    if isinstance(rules, str):
        if rules not in _SETS:
            raise unknown_name("set of rules", rules, _SETS)
        return frozenset(_SETS[rules])
    rules = tuple(rules)
    for rule in rules:
        if rule not in names:
            raise unknown_name("rule", rule, names)
    return frozenset(names[rule] for rule in rules)


class Question(NamedTuple):
    """The condition, the threshold and the rules, as numbers for kernels."""

    within: float
    limit: float
    level: float
    keep: float
    reject_below: float
    accept_from: float
    strict: bool
    spread: float
    line_from: float
    """Standard deviations that two objects must be apart on a line, beyond the distance, for a look at it."""
    exact: bool
    balls: bool
    core: bool
    spheres: bool
    moments: bool
    line: bool
    shell: bool
    rows: bool


def question(within: float, threshold: Threshold, exact: bool, rules: frozenset[int]) -> Question:
    """What a pair of clouds is asked."""
    reject = threshold.reject_below
    level = 0.0 if threshold.value is None else threshold.value
    spread = math.sqrt(1.0 / reject - 1.0) * (1.0 + 1e-9) if reject > 1e-9 else math.inf
    keep = level + TOLERANCE if threshold.strict else max(level - TOLERANCE, 0.0)
    if threshold.value is None:
        keep = 0.0
    return Question(
        float(within), squared_limit(within), level, keep, reject, threshold.accept_from, threshold.strict, spread,
        -NormalDist().inv_cdf(min(level + _LINE_MARGIN, 1.0 - 1e-9)), exact, *(code in rules for code in RULES),
    )  # fmt: skip


def near_rows(dim: int) -> int:
    """Rows of ``near``: the centre, the core radius, the largest variance, the time, and the three of ``Places``."""
    return dim + 6


def fact_columns(dim: int) -> int:
    """Columns of ``facts``."""
    return _SHELL_AT + dim + dim * (dim + 1) // 2 + SHELLS + 1


_START, _COUNT, _WHOLE, _EQUAL, _RADIUS, _TRACE, _FOURTH, _SHELL_AT = range(8)


class Objects(NamedTuple):
    """Objects as the rules want them (see the module)."""

    near: np.ndarray
    facts: np.ndarray
    pool: np.ndarray


class Places(NamedTuple):
    """Which pairs are one's own to find, where space is cut into cells and objects are seen in several.

    Of a pair, the object whose ``order`` is larger must be at ``home``; and both must have one ``group``.
    """

    order: np.ndarray | float = 0.0
    home: np.ndarray | float = 1.0
    group: np.ndarray | float = 0.0


NOWHERE_ELSE = Places()
"""Space is not cut: every pair is to be found here."""


def describe(
    these: Clouds,
    times: np.ndarray,
    core_share: float,
    weighted_centre: bool = True,
    places: Places = NOWHERE_ELSE,
) -> Objects:
    """Write down what the rules use. ``core_share``: how much of an object its core must hold (see ``core_share``)."""
    count = len(these.start) - 1
    objects = room_for(these.dim, count, int(these.start[-1]))
    describe_into(objects, 0, 0, these, times, core_share, weighted_centre, places)
    return objects


def room_for(dim: int, count: int, samples: int) -> Objects:
    """Empty arrays for so many objects with so many samples in all."""
    return Objects(
        np.empty((near_rows(dim), count)), np.empty((count, fact_columns(dim))), np.empty((dim + 2) * samples)
    )


def describe_into(
    objects: Objects,
    at: int,
    pool_at: int,
    these: Clouds,
    times: np.ndarray,
    core_share: float,
    weighted_centre: bool,
    places: Places,
) -> None:
    """``describe``, into arrays that have room: objects from number ``at`` on, samples from ``pool_at`` on."""
    dim, end = these.dim, at + len(these.start) - 1
    near = objects.near
    near[dim + 2, at:end] = times
    near[dim + 3, at:end], near[dim + 4, at:end], near[dim + 5, at:end] = places
    _describe(these, core_share, weighted_centre, near, objects.facts, objects.pool, at, pool_at)


def core_share(threshold: Threshold) -> float:
    """Two cores that hold more than this each, and are too far apart, leave a pair below the threshold."""
    if threshold.reject_below <= 0.0:
        return WHOLE_BALL
    return math.sqrt(max(0.0, 1.0 - threshold.reject_below)) * (1.0 + 1e-14) + 1e-14


def extents(these: Clouds, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The place of each object's centre on a line in general position, and the radius of its core.

    On any line two centres are at most as far apart as in space: objects that are too far apart on it match nothing.
    """
    direction = 0.75 ** np.arange(these.dim)
    count = len(these.start) - 1
    place, core = np.empty(count), np.empty(count)
    _extents(these, share, direction / np.sqrt((direction * direction).sum()), place, core, np.empty(these.most))
    return place, core


@kernel
def _extents(these, share, direction, place, core, room):
    dim = these.dim
    for i in range(len(these.start) - 1):
        first, count = these.start[i], these.start[i + 1] - these.start[i]
        weight, whole = these.weight[first : first + count], these.whole[i]
        distance = room[:count]
        distance[:] = 0.0
        place[i] = 0.0
        for c in range(dim):
            xs = these.points[dim * first + c * count : dim * first + (c + 1) * count]
            total = 0.0
            for k in range(len(xs)):
                total += xs[k] * weight[k]
            centre = total / whole
            place[i] += direction[c] * centre
            for k in range(len(xs)):
                distance[k] += (xs[k] - centre) * (xs[k] - centre)
        order = np.argsort(distance)
        held, core[i] = 0.0, math.sqrt(distance[order[count - 1]])
        for k in range(count):
            held += weight[order[k]]
            if held > share * whole:
                core[i] = math.sqrt(distance[order[k]])
                break


@kernel
def _largest_variance(cov, dim, trace, work):
    """An upper bound of the largest eigenvalue, at most ``dim ** (1 / 16)`` too large, by squaring four times."""
    if trace <= 0.0:
        return 0.0
    if dim == 1:
        return cov[0]
    one, other = work[:dim, :dim], work[:dim, dim:]
    at = 0
    for r in range(dim):
        for c in range(r, dim):
            one[r, c] = one[c, r] = cov[at] / trace
            at += 1
    for _ in range(4):
        for r in range(dim):
            for c in range(dim):
                total = 0.0
                for k in range(dim):
                    total += one[r, k] * one[k, c]
                other[r, c] = total
        one, other = other, one
    power = 0.0
    for r in range(dim):
        power += one[r, r]
    return min(1.0, power**0.0625 * (1.0 + 1e-12)) * trace


@kernel
def _describe(these, share, weighted_centre, near, facts, pool, at, pool_at):
    dim = these.dim
    room = np.empty((dim + 2, these.most))
    centre, third = np.empty(dim), np.empty(dim)
    cov, work = np.empty(dim * (dim + 1) // 2), np.empty((dim, 2 * dim))
    for i in range(len(these.start) - 1):
        first, count = these.start[i], these.start[i + 1] - these.start[i]
        weight, whole = these.weight[first : first + count], these.whole[i]
        row = facts[at + i]
        # the centre: any would do for the balls, the moments want the mean
        for c in range(dim):
            xs = these.points[dim * first + c * count : dim * first + (c + 1) * count]
            total = 0.0
            for k in range(len(xs)):
                total += xs[k] * (weight[k] if weighted_centre else 1.0)
            centre[c] = total / (whole if weighted_centre else float(count))
            near[c, at + i] = centre[c]
        distance = room[dim + 1, :count]
        distance[:] = 0.0
        for c in range(dim):
            xs, us = these.points[dim * first + c * count : dim * first + (c + 1) * count], room[c, :count]
            for k in range(len(xs)):
                us[k] = xs[k] - centre[c]
                distance[k] += us[k] * us[k]
        # moments about the centre
        trace, fourth = 0.0, 0.0
        cov[:] = 0.0
        third[:] = 0.0
        for k in range(count):
            share_of = weight[k] / whole
            square = distance[k]
            trace += share_of * square
            fourth += share_of * square * square
            entry = 0
            for c in range(dim):
                third[c] += share_of * square * room[c, k]
                for e in range(c, dim):
                    cov[entry] += share_of * room[c, k] * room[e, k]
                    entry += 1
        distance[:] = np.sqrt(distance)
        order = np.argsort(distance)
        start = pool_at + (dim + 2) * first
        for c in range(dim):
            xs = these.points[dim * first + c * count : dim * first + (c + 1) * count]
            for k in range(count):
                pool[start + c * count + k] = xs[order[k]]
        core, held, radius = 0.0, 0.0, distance[order[count - 1]]
        found = False
        shells = row[_SHELL_AT + dim + len(cov) :]
        step = radius / SHELLS
        shell = 0
        for k in range(count):
            here = distance[order[k]]
            while shell <= SHELLS and shell * step < here:  # the last step may fall short of the radius: it holds all
                shells[shell] = held
                shell += 1
            held += weight[order[k]]
            pool[start + dim * count + k] = weight[order[k]]
            pool[start + (dim + 1) * count + k] = here
            if not found and held > share * whole:
                core, found = here, True
        while shell <= SHELLS:
            shells[shell] = held
            shell += 1
        shells[SHELLS] = whole
        near[dim, at + i] = core if found else radius
        near[dim + 1, at + i] = _largest_variance(cov, dim, trace, work)
        row[_START], row[_COUNT], row[_WHOLE], row[_EQUAL] = start, count, whole, (1.0 if these.equal[i] else 0.0)
        row[_RADIUS], row[_TRACE], row[_FOURTH] = radius, trace, max(0.0, fourth - trace * trace)
        row[_SHELL_AT : _SHELL_AT + dim] = third
        row[_SHELL_AT + dim : _SHELL_AT + dim + len(cov)] = cov


@bare
def least_kept(question, whole, counted):
    """The least near weight that is kept, of ``whole``; counts are decided as fractions, which doubles tell apart."""
    if not counted:
        return question.keep * whole
    count = math.floor(question.level * whole)
    while count > 0.0 and (count / whole > question.level or (not question.strict and count / whole >= question.level)):
        count -= 1.0
    while not (count / whole > question.level or (not question.strict and count / whole >= question.level)):
        count += 1.0
    return max(count, 1.0)


@inner
def moments_verdict(question, x, y, near, i, others, j, dim, slack):
    """-1 or 1 if the mean and variance of the squared distance decide the pair (Cantelli), else 0.

    With ``U`` and ``V`` the deviations from the two means and ``d`` the difference of these, the squared distance is
    ``d.d + 2 d.(U - V) + U.U + V.V - 2 U.V``; what is mixed of both sides is uncorrelated with what is not.
    """
    square, skew, thirds, line, mixed, at = 0.0, 0.0, 0.0, 0.0, 0.0, _SHELL_AT + dim
    for c in range(dim):
        d = near[c, i] - others[c, j]
        square += d * d
        skew += d * (x[_SHELL_AT + c] - y[_SHELL_AT + c])
        thirds += abs(x[_SHELL_AT + c]) + abs(y[_SHELL_AT + c])
        for e in range(c, dim):
            twice = 1.0 if e == c else 2.0
            line += twice * d * (near[e, i] - others[e, j]) * (x[at] + y[at])
            mixed += twice * x[at] * y[at]
            at += 1
    # the means, and so their distance, are known up to the slack: each bound takes the worse end
    apart, trace = math.sqrt(square), x[_TRACE] + y[_TRACE]
    plain = x[_FOURTH] + y[_FOURTH] + 4.0 * mixed
    variance = max(0.0, plain + 4.0 * line + 4.0 * skew)
    variance += 1e-12 * (plain + 4.0 * square * trace + 4.0 * apart * thirds)
    variance += 4.0 * slack * ((2.0 * apart + slack) * trace + thirds)
    nearest = max(0.0, apart - slack)
    above = (nearest * nearest + trace) * (1.0 - 1e-12) - (question.within + slack) ** 2 * (1.0 + 1e-12)
    above -= 2.0 * slack * slack
    if above > 0.0 and variance < question.reject_below * (1.0 - 1e-12) * (variance + above * above):
        return -1
    if question.within > slack:
        below = (question.within - slack) ** 2 * (1.0 - 1e-12) - ((apart + slack) ** 2 + trace) * (1.0 + 1e-12)
        if below > 0.0 and below * below * (1.0 - 1e-12) >= question.accept_from * (variance + below * below):
            return 1
    return 0


@bare
def spheres_bound(x_pool, x, y_pool, y, dim, apart, within):
    """The least ``whole - F(a) F(b)`` over spheres of both around their centres that are too far apart (Lemma 5.2).

    Of all pairs of radii only those on the border matter: as one grows, the other shrinks.
    """
    lx, ly = int(x[_COUNT]), int(y[_COUNT])
    at_x, at_y = int(x[_START]) + dim * lx, int(y[_START]) + dim * ly
    best, held, b, reached = 0.0, 0.0, ly, y[_WHOLE]
    for a in range(lx):
        held += x_pool[at_x + a]
        radius = x_pool[at_x + lx + a]
        while b > 0 and not apart - radius - y_pool[at_y + ly + b - 1] > within:
            b -= 1
            reached -= y_pool[at_y + b]
        if b == 0:
            break
        best = max(best, held * reached)
    return x[_WHOLE] * y[_WHOLE] - best


@bare_fused
def _places(pool, start, count, dim, direction, low, scale, out):
    """Where an object's samples are on a line, in bins from ``low`` on; in space all coordinates in one go."""
    out = out[:count]
    if dim == 3:
        a, b, c = direction[0], direction[1], direction[2]
        xs = pool[start : start + count]
        ys, zs = pool[start + count : start + 2 * count], pool[start + 2 * count : start + 3 * count]
        for k in range(len(out)):
            out[k] = (a * xs[k] + b * ys[k] + c * zs[k] - low) * scale
        return
    out[:] = 0.0
    for c in range(dim):
        xs = pool[start + c * count : start + (c + 1) * count]
        for k in range(len(xs)):
            out[k] += direction[c] * xs[k]
    for k in range(len(out)):
        out[k] = (out[k] - low) * scale


@bare
def _in_bins(places, reach, first, until):
    """The bins that are within a reach of places: the first, and the one after the last."""
    most, bins = BINS - 1.0, float(BINS)
    for k in range(len(first)):
        first[k] = np.int32(min(max(places[k] - reach, 0.0), most))
        until[k] = np.int32(min(max(places[k] + reach + 1.0, 0.0), bins))


@bare
def line_rows(x_pool, x, y_pool, y, dim, direction, middle, within, slack, work, bins, below, upper):
    """For each sample of ``x`` the most of ``y`` that lies near on the line through the centres; returns the sum.

    The samples of ``y`` go into bins along the line, around the place ``middle`` of its centre; a sample of ``x`` is
    given all bins that it may come near. A billionth of a bin more is more than what places and reach are rounded by.
    """
    lx, ly = int(x[_COUNT]), int(y[_COUNT])
    at_x, at_y = int(x[_START]), int(y[_START])
    weight = y_pool[at_y + dim * ly : at_y + (dim + 1) * ly]
    low, scale = middle - y[_RADIUS] - slack, 0.5 * BINS / (y[_RADIUS] + slack)
    _places(y_pool, at_y, ly, dim, direction, low, scale, work)
    below[:] = 0.0
    for k in range(len(weight)):
        below[np.uint32(1.0 + min(max(work[k], 0.0), BINS - 1.0))] += weight[k]
    held = 0.0
    for b in range(1, BINS + 1):
        held += below[b]
        below[b] = held
    _places(x_pool, at_x, lx, dim, direction, low, scale, work)
    reach = (within + slack) * scale * (1.0 + 1e-12) + 1e-9
    first, until, upper = bins[0, :lx], bins[1, :lx], upper[:lx]
    _in_bins(work, reach, first, until)
    heavy, total = x_pool[at_x + dim * lx : at_x + (dim + 1) * lx], 0.0
    for k in range(len(upper)):
        most = max(0.0, below[np.uint32(until[k])] - below[np.uint32(first[k])])
        upper[k] = most
        total += heavy[k] * most
    return total


@bare
def shell_rows(x_pool, x, y_pool, y, dim, centre, within, slack, work, bins, lower, upper):
    """For each sample of ``x`` bounds of what of ``y`` is near, by its distance from the centre of ``y``.

    What of ``y`` lies within a radius of its centre is known at steps. ``upper`` is lowered where this is less; returns
    both sums.
    """
    lx = int(x[_COUNT])
    at_x = int(x[_START])
    shells = y[len(y) - SHELLS - 1 :]
    work, lower, upper = work[:lx], lower[:lx], upper[:lx]
    work[:] = 0.0
    for c in range(dim):
        xs = x_pool[at_x + c * lx : at_x + (c + 1) * lx]
        for k in range(len(xs)):
            u = xs[k] - centre[c]
            work[k] += u * u
    scale, most = SHELLS / max(y[_RADIUS], 1e-300), float(SHELLS)
    heavy, low, high = x_pool[at_x + dim * lx : at_x + (dim + 1) * lx], 0.0, 0.0
    holes, outer = bins[0, :lx], bins[1, :lx]
    # steps that are sure to be near are one too many here, and so are those that are sure not to be: none is 0
    for k in range(len(work)):
        distance = math.sqrt(work[k])
        outer[k] = np.int32(np.ceil(min((distance + within + slack) * scale, most)))
        gap = (distance - within - slack) * scale * (1.0 - 1e-14)
        holes[k] = np.int32(np.ceil(max(min(gap, most + 1.0), 0.0)))
        work[k] = max(min((within - distance - slack) * scale * (1.0 - 1e-14) + 1.0, most + 1.0), 0.0)
    for k in range(len(work)):
        step, hole = np.uint32(np.int32(work[k])), np.uint32(holes[k])
        least = shells[step - np.uint32(1)] if step > 0 else 0.0
        inner_part = shells[hole - np.uint32(1)] if hole > 0 else 0.0
        lower[k] = least
        upper[k] = min(upper[k], shells[np.uint32(outer[k])] - inner_part)
        low += heavy[k] * least
        high += heavy[k] * upper[k]
    return low, high


class Work(NamedTuple):
    """Room for what is computed of one pair: one number per sample, bins, a direction."""

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    bins: np.ndarray
    below: np.ndarray
    direction: np.ndarray
    narrow: Narrow
    has_x: np.ndarray
    """Whether the object that pairs have in common is in ``narrow``."""


@bare
def _block(pool, row, dim):
    start, count = int(row[_START]), int(row[_COUNT])
    return Block(pool, start, count, pool, start + dim * count, row[_EQUAL] > 0.0)


@inner
def _line_may_reject(x, y, dim, direction, apart, question):
    """Whether two objects would be far apart often enough on the line through their centres if they were Gaussian."""
    variance, at = 0.0, _SHELL_AT + dim
    for c in range(dim):
        for e in range(c, dim):
            variance += (1.0 if e == c else 2.0) * direction[c] * direction[e] * (x[at] + y[at])
            at += 1
    return apart - question.within > question.line_from * math.sqrt(max(variance, 1e-300))


@bare_summed
def _sum(values, begin, end):
    total = 0.0
    for k in range(begin, end):
        total += values[k]
    return total


@bare
def _narrow_rows(question, count, other, error, low, high, has_lower, has_upper, need, sure, work):
    """Some samples of x at a time with all of y, in singles: a verdict and -1 as soon as there is one, else the count.

    All weights are 1. ``low`` and ``high`` bound what is near in all, ``lower`` and ``upper``, if there, what is near
    each sample of x. Samples half way out are looked at first: they tell what to expect, and of the others only the
    bound is taken that will most likely decide. The answer is 0 and -1 if singles do not tell.
    """
    narrow, first = work.narrow, count // (2 * _ROWS_AT_ONCE) * _ROWS_AT_ONCE
    until = min(first + _ROWS_AT_ONCE, count)
    least, most = count_narrow(narrow, first, until, count, other, error)
    likely = least + most >= 2.0 * question.level * (until - first) * other
    if not question.rows or (question.exact and likely):
        for begin, end in ((0, first), (until, count)):
            near, perhaps = count_narrow(narrow, begin, end, count, other, error)
            least += near
            most += perhaps
        return (1, float(least)) if least == most else (0, -1.0)
    bound, bounds, rest, by = (least, work.lower, low, error) if likely else (most, work.upper, high, -error)
    known, each = has_lower if likely else has_upper, 0.0 if likely else float(other)
    rest -= _sum(bounds, first, until) if known else each * (until - first)
    for begin in range(0, count, _ROWS_AT_ONCE):
        if begin != first:
            end = min(begin + _ROWS_AT_ONCE, count)
            bound += count_above(narrow, begin, end, count, other, by)
            rest -= _sum(bounds, begin, end) if known else each * (end - begin)
        if likely and bound + rest >= sure:
            return 1, -1.0
        if not likely and bound + rest < need:
            return -1, -1.0
    other_bound = most if likely else least
    for begin, end in ((0, first), (until, count)):
        other_bound += count_above(narrow, begin, end, count, other, -by)
    return (1, float(bound)) if bound == other_bound else (0, -1.0)


@bare
def decide(question, x_pool, x, y_pool, y, centres, dim, slack, need, sure, work):
    """Line, shell and rows for one pair: ``(verdict, near weight or NaN, code)``.

    With ``EXACT`` the caller decides by the weight. ``centres`` has the two centres as rows. Below ``need`` an upper
    bound rejects, from ``sure`` on a lower bound accepts.
    """
    count, other = int(x[_COUNT]), y[_WHOLE]
    heavy = int(x[_START]) + dim * count
    high, low, has_upper, has_lower = x[_WHOLE] * other, 0.0, False, False
    apart, middle = 0.0, 0.0
    for c in range(dim):
        work.direction[c] = centres[1, c] - centres[0, c]
        apart += work.direction[c] * work.direction[c]
    apart = math.sqrt(apart)
    if question.line and apart > slack:
        for c in range(dim):
            work.direction[c] /= apart
            middle += work.direction[c] * centres[1, c]
        # a guess of what the rule would find tells whether it is worth its time; it decides nothing
        if _line_may_reject(x, y, dim, work.direction, apart, question):
            high = line_rows(
                x_pool, x, y_pool, y, dim, work.direction, middle, question.within, slack, work.values, work.bins,
                work.below, work.upper,
            )  # fmt: skip
            has_upper = True
            if high < need:
                return -1, math.nan, LINE
    if question.shell and question.within - apart > _SHELL_MARGIN * y[_RADIUS]:
        if not has_upper:
            work.upper[:count] = other
        has_upper = has_lower = True
        low, high = shell_rows(
            x_pool, x, y_pool, y, dim, centres[1], question.within, slack, work.values, work.bins, work.lower,
            work.upper,
        )  # fmt: skip
        if high < need:
            return -1, math.nan, SHELL
        if low >= sure and not question.exact:
            return 1, math.nan, SHELL
    mine, theirs = _block(x_pool, x, dim), _block(y_pool, y, dim)
    if mine.equal and theirs.equal and worth_narrowing(dim, mine.size, theirs.size):
        for c in range(dim):
            work.narrow.origin[c] = centres[0, c]
        widest = (x[_RADIUS] + slack) ** 2 + (apart + y[_RADIUS] + slack) ** 2
        error = narrowed(dim, mine, theirs, question.limit, widest, work.narrow, work.has_x[0])
        work.has_x[0] = error >= 0.0
        if error >= 0.0:
            verdict, total = _narrow_rows(
                question, count, theirs.size, error, low, high, has_lower, has_upper, need, sure, work
            )
            if total >= 0.0:
                return verdict, total, EXACT
            if verdict != 0:
                return verdict, math.nan, ROWS
    if not has_upper:
        work.upper[:count] = other
    if not has_lower:
        work.lower[:count] = 0.0
    total = 0.0
    for begin in range(0, count, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, count)
        total += near_weight(dim, mine, begin, end, theirs, question.limit, work.values)
        if question.rows and end < count:
            for k in range(begin, end):
                low -= x_pool[heavy + k] * work.lower[k]
                high -= x_pool[heavy + k] * work.upper[k]
            if total + high < need:
                return -1, math.nan, ROWS
            if total + low >= sure and not question.exact:
                return 1, math.nan, ROWS
    return 1, total, EXACT


class Search(NamedTuple):
    """How candidates are found: by the grid, a group of new objects (from ``begin`` on) at a time, or in all."""

    by_grid: bool
    grid: Grid
    widest: float
    begin: int
    ends: np.ndarray
    centres: np.ndarray
    radii: np.ndarray


LOOK_AT_ALL = Search(False, empty_grid(1, 1.0), 0.0, 0, np.empty(0, np.int64), np.empty((0, 1)), np.empty(0))
"""The search without a grid."""


class Output(NamedTuple):
    """Kept pairs: numbers of the new and of the stored object, probability (NaN if not computed), deciding rule."""

    new: np.ndarray
    old: np.ndarray
    probability: np.ndarray
    code: np.ndarray


class Room(NamedTuple):
    """Room for what is computed of one new object: a number and a byte for each stored one, lists of some of them."""

    squares: np.ndarray
    close: np.ndarray
    candidates: np.ndarray
    slots: np.ndarray
    centres: np.ndarray
    corners: np.ndarray
    span: np.ndarray
    table: np.ndarray
    work: Work


@bare_fused
def _close_in_space(near, i, others, first, touching, level, slope, close):
    """Which centres of stored objects are within the reach of two cores, and within what variances allow."""
    last = first + len(close)
    a, b, c = near[0, i], near[1, i], near[2, i]
    xs, ys, zs = others[0, first:last], others[1, first:last], others[2, first:last]
    radii, variances = others[3, first:last], others[4, first:last]
    for m in range(len(close)):
        u, v, w, reach = a - xs[m], b - ys[m], c - zs[m], touching + radii[m]
        square = u * u + v * v + w * w
        close[m] = (square <= reach * reach) & (square <= level + slope * variances[m])


@bare_fused
def _close_anywhere(near, i, others, first, touching, level, slope, close, squares):
    """The same in any number of dimensions, coordinate by coordinate."""
    dim, last = len(near) - 6, first + len(close)
    squares[:] = 0.0
    for c in range(dim):
        a, ys = near[c, i], others[c, first:last]
        for m in range(len(squares)):
            u = a - ys[m]
            squares[m] += u * u
    radii, variances = others[dim, first:last], others[dim + 1, first:last]
    for m in range(len(close)):
        reach = touching + radii[m]
        close[m] = (squares[m] <= reach * reach) & (squares[m] <= level + slope * variances[m])


@bare_fused
def _close_in_singles(table, a, b, c, touching, level, slope, close):
    """``_close_in_space`` by a table of singles."""
    xs, ys, zs, radii, variances = table[0], table[1], table[2], table[3], table[4]
    for m in range(len(close)):
        u, v, w, reach = a - xs[m], b - ys[m], c - zs[m], touching + radii[m]
        square = u * u + v * v + w * w
        close[m] = (square <= reach * reach) & (square <= level + slope * variances[m])


@bare
def _tabulate(near, first, last, table):
    """Centres as seen from the first one, cores and variances, in singles; returns the largest length among them."""
    largest = 0.0
    for r in range(5):
        origin = near[r, first] if r < 3 else 0.0
        for m in range(first, last):
            value = near[r, m] - origin
            table[r, m - first] = np.float32(value)
            largest = max(largest, abs(value) if r < 4 else math.sqrt(value))
    return largest


@bare
def _first_look(near, i, others, first, touching, level, slope, table, largest, close):
    """``_close_in_space`` in singles with room for their errors, and what that leaves in doubles. False if they cannot.

    Coordinates of up to R are rounded by R 2^-24 at most, twice, as is their difference; so a distance d is found as
    less than d + e, with e = R 2^-20, and its square as less than (1 + 1e-4) d^2 + 2e4 e^2. The rest is relative.
    """
    a, b, c = near[0, i] - others[0, first], near[1, i] - others[1, first], near[2, i] - others[2, first]
    extent = max(largest, abs(a), abs(b), abs(c), near[3, i])
    error = extent * 2.0**-20
    if not (extent < 1e15 and touching < 1e15 and (level < 1e30 or level == math.inf) and slope < 1e15):
        return False
    _close_in_singles(
        table, np.float32(a), np.float32(b), np.float32(c), np.float32((touching + error) * (1.0 + 1e-4) + error),
        np.float32((level + 2e4 * error * error) * (1.0 + 1e-3)), np.float32(slope * (1.0 + 1e-3)), close,
    )  # fmt: skip
    return True


@bare
def _in_time(times, time, window, close):
    """Leave out those that are not in the window; returns how many are."""
    inside = 0
    for m in range(len(times)):
        here = 1 if abs(time - times[m]) <= window else 0
        inside += here
        close[m] &= here
    return inside


@bare
def _all_near(question, new, i, stored, first, last, span, table, window, slack, squares, close, candidates):
    """Candidates of a new object among all stored ones, in loops that the compiler makes wide.

    ``close`` is room for a byte per object and seven more: eight are looked at as one number, which is mostly 0.
    ``span`` has the first and last time of the stored ones, and their largest core; ``table``, if it is not empty, what
    a look in singles needs.
    """
    near, others = new.near, stored.near
    dim, size = len(near) - 6, last - first
    variance, time = near[dim + 1, i], near[dim + 2, i]
    base, stretch = question.within + slack, 1.0 + 1e-12
    touching, slope, level = base + near[dim, i], 0.0, math.inf
    if question.core:
        # (base + k sqrt(V))^2 without the root: sqrt(V) <= (V / q + q) / 2, whatever q is; here that of V = 2 variance
        if question.spread < 1e150 and base < 1e150:
            root = math.sqrt(2.0 * variance) + 1e-150
            slope = stretch * question.spread * (question.spread + base / root)
            level = stretch * base * (base + question.spread * root) + slope * variance
    elif not question.balls:
        touching = math.inf
    touching += 1e-12 * (touching + span[2])
    in_singles = len(table) > 0 and _first_look(
        near, i, others, first, touching, level, slope, table, span[3], close[:size]
    )
    if dim != 3:
        _close_anywhere(near, i, others, first, touching, level, slope, close[:size], squares)
    elif not in_singles:
        _close_in_space(near, i, others, first, touching, level, slope, close[:size])
    inside = size
    if not (abs(time - span[0]) <= window and abs(time - span[1]) <= window):
        inside = _in_time(others[dim + 2, first:last], time, window, close[:size])
    found = 0
    for block, flags in enumerate(close.view(np.uint64)):
        if flags:
            for m in range(8 * block, min(8 * block + 8, size)):
                candidates[found] = m
                found += close[m]
    kept = 0
    for k in range(found):
        m, square = candidates[k], 0.0
        for c in range(dim):
            u = near[c, i] - others[c, first + m]
            square += u * u
        squares[m] = square
        reach = touching + others[dim, first + m]
        candidates[kept] = m
        if not in_singles or (square <= reach * reach and square <= level + slope * others[dim + 1, first + m]):
            kept += 1
    return kept, inside


@bare
def _span(times, cores, span):
    """The first and the last of some times, and the largest core."""
    span[0], span[1], span[2] = math.inf, -math.inf, 0.0
    for m in range(len(times)):
        span[0], span[1], span[2] = min(span[0], times[m]), max(span[1], times[m]), max(span[2], cores[m])


@bare
def _some_near(question, new, i, stored, first, window, slack, slots, count, squares, candidates):
    """The same among given objects."""
    dim = len(new.near) - 6
    radius, variance, time = new.near[dim, i], new.near[dim + 1, i], new.near[dim + 2, i]
    found = 0
    for k in range(count):
        j = slots[k]
        square = 0.0
        for c in range(dim):
            u = new.near[c, i] - stored.near[c, j]
            square += u * u
        reach = radius + stored.near[dim, j]
        if question.core:
            reach = min(reach, question.spread * math.sqrt(variance + stored.near[dim + 1, j]))
        reach += question.within + slack
        near = square <= reach * reach * (1.0 + 1e-12) or not (question.core or question.balls)
        squares[j - first] = square
        candidates[found] = j - first
        found += 1 if near and abs(time - stored.near[dim + 2, j]) <= window else 0
    return found


@inner
def _is_ours(near, i, others, j, dim):
    """Whether a pair is to be found here (see ``Places``)."""
    later = near[dim + 4, i] if near[dim + 3, i] >= others[dim + 3, j] else others[dim + 4, j]
    return later > 0.0 and near[dim + 5, i] == others[dim + 5, j]


@kernel
def match_clouds(question, new, begin, end, stored, first, last, window, slack, most, search, out, counts):
    """Kept pairs of new objects, ``begin`` to ``end``, and stored ones of the other side, ``first`` to ``last``.

    Stops when the output may overflow; returns where, and how many pairs there are. ``most`` is the largest number of
    samples of an object. ``counts`` gets, for each rule, what it rejected and accepted, and the pairs in the window.
    """
    dim = len(new.near) - 6
    size = last - first
    scratch = Room(
        np.empty(size), np.zeros(8 * ((size + 7) // 8), np.uint8), np.empty(size + 1, np.int64),
        np.empty(size if search.by_grid else 0, np.int64), np.empty((2, dim)), np.empty((3, dim)), np.empty(4),
        np.empty((5 if dim == 3 and not search.by_grid and end - begin >= _WORTH_A_TABLE else 0, size), np.float32),
        Work(
            np.empty(most), np.empty(most), np.empty(most), np.empty((2, most), np.int32), np.empty(BINS + 1),
            np.empty(dim), narrow_room(dim, most, most), np.zeros(1, np.bool_),
        ),
    )  # fmt: skip
    return _match(question, new, begin, end, stored, first, last, window, slack, search, scratch, out, counts)


@bare
def _match(question, new, begin, end, stored, first, last, window, slack, search, scratch, out, counts):
    dim = len(new.near) - 6
    size = last - first
    squares, close, candidates, slots = scratch.squares, scratch.close, scratch.candidates, scratch.slots
    centres, work = scratch.centres, scratch.work
    n, i, group, listed = 0, begin, -1, -1
    asked, need = -1.0, 0.0  # mostly all objects have as many samples
    first_rule = CORE if question.core else BALLS
    base = question.within + slack
    _span(stored.near[dim + 2, first:last], stored.near[dim, first:last], scratch.span)
    if len(scratch.table):
        scratch.span[3] = _tabulate(stored.near, first, last, scratch.table)
    while i < end and n + size <= len(out.new):
        if search.by_grid:
            while group < 0 or search.ends[group] <= i - search.begin:
                group += 1
                if search.ends[group] > i - search.begin:
                    listed = objects_near(
                        search.grid, stored.near, dim, first, last, search.centres[group], base + search.radii[group],
                        search.widest, scratch.corners, slots,
                    )  # fmt: skip
        if listed >= 0:
            found, inside = _some_near(
                question, new, i, stored, first, window, slack, slots, listed, squares, candidates
            ), size  # fmt: skip
        else:
            found, inside = _all_near(
                question,
                new,
                i,
                stored,
                first,
                last,
                scratch.span,
                scratch.table,
                window,
                slack,
                squares,
                close,
                candidates,
            )
        work.has_x[0] = False
        counts[WINDOW, 0] += inside
        counts[first_rule, 0] += inside - found
        for candidate in range(found):
            square = squares[candidates[candidate]]
            j = first + candidates[candidate]
            if not _is_ours(new.near, i, stored.near, j, dim):
                counts[WINDOW, 0] -= 1
                continue
            x, y = new.facts[i], stored.facts[j]
            counted = x[_EQUAL] > 0.0 and y[_EQUAL] > 0.0
            whole = x[_WHOLE] * y[_WHOLE]
            verdict, weight, code = 0, math.nan, BALLS
            if question.balls:
                room = question.within - slack - x[_RADIUS] - y[_RADIUS]
                if room >= 0.0 and square <= room * room * (1.0 - 1e-12) and square < math.inf:
                    # sure, and kept if anything is
                    verdict, weight = (1 if whole >= least_kept(question, whole, counted) else -1), whole
            if verdict == 0 and question.moments:
                code = MOMENTS
                verdict = moments_verdict(question, x, y, new.near, i, stored.near, j, dim, slack)
                if verdict > 0 and question.exact:
                    verdict = 0
            if verdict == 0:
                if not counted or whole != asked:
                    need, asked = least_kept(question, whole, counted), whole if counted else -1.0
                reject = need if counted else need - TOLERANCE * whole
                sure = need if counted else need + 4.0 * TOLERANCE * whole
                if question.spheres:
                    code = SPHERES
                    if spheres_bound(new.pool, x, stored.pool, y, dim, math.sqrt(square), base) < reject:
                        verdict = -1
                if verdict == 0:
                    for c in range(dim):
                        centres[0, c], centres[1, c] = new.near[c, i], stored.near[c, j]
                    verdict, weight, code = decide(
                        question, new.pool, x, stored.pool, y, centres, dim, slack, reject, sure, work
                    )
                    if code == EXACT and not (weight >= need and weight > 0.0):
                        verdict = -1
            counts[code, 1 if verdict > 0 else 0] += 1
            if verdict > 0:
                out.new[n], out.old[n], out.code[n] = i, j, code
                out.probability[n] = 1.0 if weight > whole else weight / whole
                n += 1
        i += 1
    return i, n


@kernel
def _copy_blocks(facts, pool, rows, dim, into_facts, into_pool):
    at = 0
    for k in range(len(rows)):
        row = facts[rows[k]]
        start, size = int(row[_START]), (dim + 2) * int(row[_COUNT])
        into_pool[at : at + size] = pool[start : start + size]
        into_facts[k] = row
        into_facts[k, _START] = at
        at += size
    return at


def take(objects: Objects, rows: np.ndarray) -> Objects:
    """The given objects, in the given order."""
    dim = len(objects.near) - 6
    size = int((dim + 2) * objects.facts[rows, _COUNT].sum())
    facts, pool = np.empty((len(rows), objects.facts.shape[1])), np.empty(size)
    _copy_blocks(objects.facts, objects.pool, rows, dim, facts, pool)
    return Objects(np.ascontiguousarray(objects.near[:, rows]), facts, pool)


def shift_samples(facts: np.ndarray, by: int) -> None:
    """Say that the samples of these objects now lie further on in the pool."""
    facts[:, _START] += by
