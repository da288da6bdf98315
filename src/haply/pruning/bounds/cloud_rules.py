"""Rules that decide a pair of clouds without its probability, or with a part of its computation.

Every rule bounds the *near weight* of a pair, the weight of its sample pairs within the distance (a count when all are
equally likely). A pair is rejected when an upper bound is below the least weight that is kept, accepted when a lower
bound reaches it. Rounding is always covered on the safe side: for distances by ``slack``, for weights by the
threshold's own slack.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from haply.errors import unknown_name
from haply.numerics.jit import bare, bare_fused, bare_summed, inner
from haply.probability.distance import (
    Block,
    Narrow,
    count_above,
    count_narrow,
    narrowed,
    near_weight,
    squared_limit,
    worth_narrowing,
)
from haply.pruning.bounds.clouds import COUNT, EQUAL, FOURTH, RADIUS, SHELL_AT, SHELLS, START, TRACE, WHOLE
from haply.pruning.threshold import Threshold

BINS = 64
"""The number of bins on the line through two centres."""

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
_LINE_MARGIN = 0.1
_SHELL_MARGIN = 1.0


RuleName = Literal["balls", "core", "spheres", "moments", "line", "shell", "rows", "grid"]
"""The name of a rule; ``grid`` finds candidates by a grid of cells."""
RuleSet = Literal["auto", "paper", "none"]
"""The name of a set of rules."""


def rule_codes(rules: RuleSet | Iterable[RuleName]) -> frozenset[int]:
    """Return the codes of a named set (``auto``, ``paper``, ``none``) or of a list of rules."""
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


class CloudCondition(NamedTuple):
    """The condition, the threshold and the rules, as numbers for kernels."""

    within: float
    limit: float
    level: float
    keep_from: float
    keep_counts_from: float
    """The least share of pairs of samples that is kept if all have the same weight."""
    reject_below: float
    accept_from: float
    spread: float
    line_from: float
    """The line is tested only if two objects are this many standard deviations apart on it, beyond the distance."""
    exact: bool
    balls: bool
    core: bool
    spheres: bool
    moments: bool
    line: bool
    shell: bool
    rows: bool


def question(within: float, threshold: Threshold, exact: bool, rules: frozenset[int]) -> CloudCondition:
    """Return the condition on pairs of clouds as numbers for kernels."""
    reject = threshold.reject_below
    level = 0.0 if threshold.value is None else threshold.value
    spread = math.sqrt(1.0 / reject - 1.0) * (1.0 + 1e-9) if reject > 1e-9 else math.inf
    return CloudCondition(
        float(within), squared_limit(within), level, threshold.keeps_from(), threshold.keeps_from(counts=True), reject,
        threshold.accept_from, spread,
        -NormalDist().inv_cdf(min(level + _LINE_MARGIN, 1.0 - 1e-9)), exact, *(code in rules for code in RULES),
    )  # fmt: skip


@bare
def least_kept(question, whole, counted):
    """Return the least near weight of ``whole`` that is kept; counts are compared as fractions, as doubles can."""
    if not counted:
        return question.keep_from * whole
    count = math.floor(question.level * whole)
    while count > 0.0 and count / whole >= question.keep_counts_from:
        count -= 1.0
    while count / whole < question.keep_counts_from:
        count += 1.0
    return max(count, 1.0)


@inner
def moments_verdict(question, x, y, near, i, others, j, dim, slack):
    """Return -1 or 1 if the mean and variance of the squared distance decide the pair (Cantelli), otherwise 0.

    With ``U`` and ``V`` the deviations from the two means and ``d`` the difference of these, the squared distance is
    ``d.d + 2 d.(U - V) + U.U + V.V - 2 U.V``; the mixed term of both sides is uncorrelated with the others.
    """
    square, skew, thirds, line, mixed, at = 0.0, 0.0, 0.0, 0.0, 0.0, SHELL_AT + dim
    for c in range(dim):
        d = near[c, i] - others[c, j]
        square += d * d
        skew += d * (x[SHELL_AT + c] - y[SHELL_AT + c])
        thirds += abs(x[SHELL_AT + c]) + abs(y[SHELL_AT + c])
        for e in range(c, dim):
            twice = 1.0 if e == c else 2.0
            line += twice * d * (near[e, i] - others[e, j]) * (x[at] + y[at])
            mixed += twice * x[at] * y[at]
            at += 1
    # the means, and so their distance, are known up to the slack: each bound uses the worse end
    apart, trace = math.sqrt(square), x[TRACE] + y[TRACE]
    plain = x[FOURTH] + y[FOURTH] + 4.0 * mixed
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
    """Return the least ``whole - F(a) F(b)`` over spheres around both centres that are too far apart (Lemma 5.2).

    Only pairs of radii on the border matter: as one grows, the other shrinks.
    """
    lx, ly = int(x[COUNT]), int(y[COUNT])
    at_x, at_y = int(x[START]) + dim * lx, int(y[START]) + dim * ly
    best, held, b, reached = 0.0, 0.0, ly, y[WHOLE]
    for a in range(lx):
        held += x_pool[at_x + a]
        radius = x_pool[at_x + lx + a]
        while b > 0 and not apart - radius - y_pool[at_y + ly + b - 1] > within:
            b -= 1
            reached -= y_pool[at_y + b]
        if b == 0:
            break
        best = max(best, held * reached)
    return x[WHOLE] * y[WHOLE] - best


@bare_fused
def _places(pool, start, count, dim, direction, low, scale, out):
    """Write the places of an object's samples on a line, in bins from ``low`` on; in space all coordinates at once."""
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
    """Write the bins within a reach of places: the first, and the one after the last."""
    most, bins = BINS - 1.0, float(BINS)
    for k in range(len(first)):
        first[k] = np.int32(min(max(places[k] - reach, 0.0), most))
        until[k] = np.int32(min(max(places[k] + reach + 1.0, 0.0), bins))


@bare
def line_rows(x_pool, x, y_pool, y, dim, direction, middle, within, slack, work, bins, below, upper):
    """Write for each sample of ``x`` an upper bound of the near weight of ``y``, and return the weighted sum.

    The samples of ``y`` go into bins on the line through the centres, around the place ``middle`` of its centre. A
    sample of ``x`` gets all bins that may be near it. The added billionth of a bin is more than the rounding of places
    and reach.
    """
    lx, ly = int(x[COUNT]), int(y[COUNT])
    at_x, at_y = int(x[START]), int(y[START])
    weight = y_pool[at_y + dim * ly : at_y + (dim + 1) * ly]
    low, scale = middle - y[RADIUS] - slack, 0.5 * BINS / (y[RADIUS] + slack)
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
    """Write for each sample of ``x`` bounds of the near weight of ``y``, by its distance from the centre of ``y``.

    The weight of ``y`` within a radius of its centre is known at steps. ``upper`` is lowered where this bound is less.
    Returns both sums.
    """
    lx = int(x[COUNT])
    at_x = int(x[START])
    shells = y[len(y) - SHELLS - 1 :]
    work, lower, upper = work[:lx], lower[:lx], upper[:lx]
    work[:] = 0.0
    for c in range(dim):
        xs = x_pool[at_x + c * lx : at_x + (c + 1) * lx]
        for k in range(len(xs)):
            u = xs[k] - centre[c]
            work[k] += u * u
    scale, most = SHELLS / max(y[RADIUS], 1e-300), float(SHELLS)
    heavy, low, high = x_pool[at_x + dim * lx : at_x + (dim + 1) * lx], 0.0, 0.0
    holes, outer = bins[0, :lx], bins[1, :lx]
    # the numbers of steps that are surely near, or surely not near, are one too large here: 0 stands for none
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


class RuleScratch(NamedTuple):
    """Arrays for one pair: one number per sample, bins, a direction."""

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    bins: np.ndarray
    below: np.ndarray
    direction: np.ndarray
    narrow: Narrow
    has_x: np.ndarray
    """Whether the object that pairs have in common is in ``narrow`` already."""


@bare
def _block(pool, row, dim):
    start, count = int(row[START]), int(row[COUNT])
    return Block(pool, start, count, pool, start + dim * count, row[EQUAL] > 0.0)


@inner
def _line_may_reject(x, y, dim, direction, apart, question):
    """Tell whether objects, if Gaussian, would often enough be too far apart on the line through their centres."""
    variance, at = 0.0, SHELL_AT + dim
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
    """Decide in singles, some samples of x at a time with all of y: return a verdict and -1, or 1 and the count.

    All weights are 1. ``low`` and ``high`` bound the near weight of all samples, ``lower`` and ``upper``, if known,
    that of each sample of x. Samples half way out come first: they tell which verdict is likely, and for the others
    only the bound that decides for it is computed. Returns 0 and -1 if singles cannot decide.
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
    """Decide one pair by line, shell and rows: return ``(verdict, near weight or NaN, code)``.

    With ``EXACT`` the caller decides by the weight. ``centres`` has the two centres as rows. An upper bound below
    ``need`` rejects, a lower bound from ``sure`` on accepts.
    """
    count, other = int(x[COUNT]), y[WHOLE]
    heavy = int(x[START]) + dim * count
    high, low, has_upper, has_lower = x[WHOLE] * other, 0.0, False, False
    apart, middle = 0.0, 0.0
    for c in range(dim):
        work.direction[c] = centres[1, c] - centres[0, c]
        apart += work.direction[c] * work.direction[c]
    apart = math.sqrt(apart)
    if question.line and apart > slack:
        for c in range(dim):
            work.direction[c] /= apart
            middle += work.direction[c] * centres[1, c]
        # a guess of the result tells whether the rule is worth its time; it decides nothing
        if _line_may_reject(x, y, dim, work.direction, apart, question):
            high = line_rows(
                x_pool, x, y_pool, y, dim, work.direction, middle, question.within, slack, work.values, work.bins,
                work.below, work.upper,
            )  # fmt: skip
            has_upper = True
            if high < need:
                return -1, math.nan, LINE
    if question.shell and question.within - apart > _SHELL_MARGIN * y[RADIUS]:
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
        widest = (x[RADIUS] + slack) ** 2 + (apart + y[RADIUS] + slack) ** 2
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
        total += near_weight(dim, mine, begin, end, theirs, question.limit, 1.0, work.values)
        if question.rows and end < count:
            for k in range(begin, end):
                low -= x_pool[heavy + k] * work.lower[k]
                high -= x_pool[heavy + k] * work.upper[k]
            if total + high < need:
                return -1, math.nan, ROWS
            if total + low >= sure and not question.exact:
                return 1, math.nan, ROWS
    return 1, total, EXACT
