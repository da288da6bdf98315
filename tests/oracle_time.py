"""An independent referee for joins in time: plain, slow, and sharing no line with haply.

Two joins are covered.

* The timing join of events whose timestamps are histograms: `P(|X - Y| <= d) >= delta`. Two elementary methods, both in
  exact rationals, stand side by side. `ge` and `band` cut each rectangle of two buckets with the strip and take the
  area of the polygon. `DifferenceLaw` writes the cdf of `X - Y` as a sum of truncated powers; its pieces are exact
  quadratics, and everything that inverts a probability (satisfaction times, super-level sets, bounds) is read off them.
* The n-way window join `|ts_i - ts_j| <= W_ij`: a plain recursion over all combinations, windows closed by walking all
  simple paths, and small versions of the backward (BEW) and the forward (FEW) algorithm. The parameters of these two
  include the rules that look right and are not, so that a test can show what each mistake costs.

Last come probabilities of several conditions that share uncertain values: samples by enumeration, Gaussians by nested
quadrature.

A float means its exact binary value, but a threshold (`delta`) means the decimal it prints.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtr

import oracle
from oracle import Discrete, Hist, Normal, Number, Point, Ties, Value, shifted

Timestamp = Hist | Point | oracle.Uniform
Threshold = int | float | str | Fraction
Interval = tuple[float, float]
Event = tuple[str, Any, Timestamp]  # side, id, timestamp
Row = tuple[Any, Any, Any]  # id, ts, key
Windows = Mapping[tuple[str, str], Any]
Bounds = dict[tuple[str, str], Any]
Condition = tuple[str, str, float, float]
Polynomial = tuple[Fraction, Fraction, Fraction]  # c0 + c1 x + c2 x^2

TOLERANCE = Fraction(1, 10**12)
ZERO, ONE = Fraction(0), Fraction(1)


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def as_level(delta: Threshold) -> Fraction:
    """A threshold is the decimal it prints: 0.8 is 4/5, not the double next to it."""
    return delta if isinstance(delta, Fraction) else Fraction(str(delta))


# ---------------------------------------------------------------------------------------------------------------
# Histogram timestamps


def histogram(*buckets: tuple[Number | str, Number | str, Number | str]) -> Hist:
    """Contiguous (from, to, probability) buckets; a string is a decimal. Probabilities need not add up to 1."""
    exact = [tuple(Fraction(x) for x in bucket) for bucket in buckets]
    _demand(all(a[1] == b[0] for a, b in itertools.pairwise(exact)), f"not contiguous: {buckets}")
    return Hist((exact[0][0], *(bucket[1] for bucket in exact)), tuple(bucket[2] for bucket in exact))


def point(at: Number) -> Hist:
    """A certain timestamp: one bucket without width."""
    return Hist((at, at), (1,))


@lru_cache(maxsize=100_000)
def _edges(h: Timestamp) -> tuple[Fraction, ...]:
    if isinstance(h, Point):
        return Fraction(h.v), Fraction(h.v)
    if isinstance(h, oracle.Uniform):
        return Fraction(h.lo), Fraction(h.hi)
    return tuple(Fraction(x) for x in h.edges)


_Buckets = tuple[tuple[Fraction, Fraction, Fraction], ...]


@lru_cache(maxsize=100_000)
def _buckets(h: Timestamp) -> _Buckets:
    """(from, to, probability) of the buckets that can happen; the probabilities add up to 1."""
    edges = _edges(h)
    weights = tuple(Fraction(p) for p in h.probs) if isinstance(h, Hist) else (ONE,)
    total = sum(weights)
    return tuple((lo, hi, p / total) for (lo, hi), p in zip(itertools.pairwise(edges), weights, strict=True) if p > 0)


def first(h: Timestamp) -> Fraction:
    """min(H), the start of the first bucket even if that has no probability."""
    return _edges(h)[0]


def last(h: Timestamp) -> Fraction:
    """max(H), the end of the last bucket; the detection time of an event."""
    return _edges(h)[-1]


def length(h: Timestamp) -> Fraction:
    return last(h) - first(h)


def template(latency: Hist) -> Hist:
    """Mirror a latency distribution: the event happened `latency` before its detection. Starts at 0."""
    edges = _edges(latency)
    return Hist(tuple(edges[-1] - x for x in reversed(edges)), tuple(reversed(latency.probs)))


def detected(phi: Timestamp, at: Number) -> Timestamp:
    """The timestamp of an event of template `phi` that is detected at time `at`."""
    return shifted(phi, Fraction(at) - last(phi))


# ---------------------------------------------------------------------------------------------------------------
# Probabilities by areas
#
# Two uniform buckets are a rectangle, a condition on the difference is a strip, and the probability is the share of the
# rectangle in the strip: cut the polygon with both lines, then use the shoelace formula. No case distinction at all.

_Vertex = tuple[Fraction, Fraction]


def _cut(polygon: list[_Vertex], side: Callable[[_Vertex], Fraction]) -> list[_Vertex]:
    """The part of a convex polygon where the linear function `side` is >= 0."""
    kept: list[_Vertex] = []
    for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        at_p, at_q = side(p), side(q)
        if at_p >= 0:
            kept.append(p)
        if at_p * at_q < 0:
            t = at_p / (at_p - at_q)
            kept.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
    return kept


def _area(polygon: list[_Vertex]) -> Fraction:
    corners = zip(polygon, polygon[1:] + polygon[:1], strict=True)
    return abs(sum((p[0] * q[1] - p[1] * q[0] for p, q in corners), ZERO)) / 2


def _rectangle_share(x: _Vertex, y: _Vertex, low: Fraction | None, high: Fraction | None) -> Fraction:
    """The share of the rectangle where low <= x - y <= high; None is an infinite end."""
    least, most = x[0] - y[1], x[1] - y[0]
    if (low is None or least >= low) and (high is None or most <= high):
        return ONE
    if (low is not None and most <= low) or (high is not None and least >= high):
        return ZERO
    polygon = [(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1])]
    if low is not None:
        polygon = _cut(polygon, lambda p: p[0] - p[1] - low)
    if high is not None:
        polygon = _cut(polygon, lambda p: high - p[0] + p[1])
    return _area(polygon) / ((x[1] - x[0]) * (y[1] - y[0]))


def _segment_share(ends: _Vertex, low: Fraction | None, high: Fraction | None) -> Fraction:
    start = ends[0] if low is None else max(ends[0], low)
    stop = ends[1] if high is None else min(ends[1], high)
    return max(ZERO, stop - start) / (ends[1] - ends[0])


def probability_between(
    hi: Timestamp, hj: Timestamp, low: Number | None, high: Number | None, *, ties: Ties = "exact"
) -> Fraction:
    """P(low <= X_i - X_j <= high), exactly; None is an infinite end.

    `ties` says how two atoms are compared: by their exact values, or as doubles (`float(x) - float(y) <= float(high)`).
    """
    ends = (None if end is None else Fraction(end) for end in (low, high))
    return _probability(_buckets(hi), _buckets(hj), *ends, ties)


def _probability(
    left: _Buckets, right: _Buckets, least: Fraction | None, most: Fraction | None, ties: Ties
) -> Fraction:
    read = Fraction if ties == "exact" else float
    total = ZERO
    for a, b, p in left:
        for c, e, q in right:
            if a == b and c == e:
                gap = read(a) - read(c)
                holds = (least is None or gap >= read(least)) and (most is None or gap <= read(most))
                share = ONE if holds else ZERO
            elif a == b:  # c..e must hold a - high .. a - low
                share = _segment_share((c, e), None if most is None else a - most, None if least is None else a - least)
            elif c == e:
                share = _segment_share((a, b), None if least is None else c + least, None if most is None else c + most)
            else:
                share = _rectangle_share((a, b), (c, e), least, most)
            total += p * q * share
    return total


def ge(hi: Timestamp, hj: Timestamp) -> Fraction:
    """P(X_i >= X_j)."""
    return probability_between(hi, hj, 0, None)


def band(hi: Timestamp, hj: Timestamp, d: Number, *, ties: Ties = "exact") -> Fraction:
    """P(|X_i - X_j| <= d) for every d >= 0, atoms and empty buckets included."""
    _demand(d >= 0, f"negative distance {d}")
    return probability_between(hi, hj, -Fraction(d), d, ties=ties)


def band_float(hi: Timestamp, hj: Timestamp, d: float) -> float:
    """The same in doubles (about 1e-13) by the engine of `oracle`, for long lists."""
    return oracle.probability_float(hi, hj, -d, d)


# ---------------------------------------------------------------------------------------------------------------
# The law of the difference, as exact quadratics
#
# The density of a bucket is a step up and a step down, so that of a difference of two buckets is a sum of four ramps
# and its cdf a sum of four squared ramps, c (x - k)^2 for x >= k. Atoms give plain ramps and jumps. Rationals do not
# cancel, and between two knots the cdf is one quadratic.


class DifferenceLaw:
    """The distribution of D = X_u - X_v."""

    def __init__(self, u: Timestamp, v: Timestamp) -> None:
        terms: dict[Fraction, list[Fraction]] = {}

        def add(knot: Fraction, power: int, coefficient: Fraction) -> None:
            terms.setdefault(knot, [ZERO, ZERO, ZERO])[power] += coefficient

        for a, b, p in _buckets(u):
            for c, e, q in _buckets(v):
                w = p * q
                if a == b and c == e:
                    add(a - c, 0, w)
                elif a == b:
                    add(a - e, 1, w / (e - c))
                    add(a - c, 1, -w / (e - c))
                elif c == e:
                    add(a - c, 1, w / (b - a))
                    add(b - c, 1, -w / (b - a))
                else:
                    height = w / (2 * (b - a) * (e - c))
                    for knot, sign in ((a - e, 1), (a - c, -1), (b - e, -1), (b - c, 1)):
                        add(knot, 2, sign * height)
        self.knots: list[Fraction] = sorted(terms)
        self._cells: list[Polynomial] = []  # the cdf from each knot to the next
        c0 = c1 = c2 = ZERO
        for k in self.knots:
            jump, slope, curve = terms[k]
            c0, c1, c2 = c0 + jump - slope * k + curve * k * k, c1 + slope - 2 * curve * k, c2 + curve
            self._cells.append((c0, c1, c2))

    def cell(self, x: Number) -> Polynomial:
        """The quadratic that is P(D <= .) around x; at a knot the one to the right of it."""
        index = bisect_right(self.knots, Fraction(x)) - 1
        return self._cells[index] if index >= 0 else (ZERO, ZERO, ZERO)

    def at_most(self, x: Number) -> Fraction:
        """P(D <= x)."""
        return _value(self.cell(x), Fraction(x))

    def below(self, x: Number) -> Fraction:
        """P(D < x): the quadratic to the left of x."""
        index = bisect_left(self.knots, Fraction(x)) - 1
        return _value(self._cells[index], Fraction(x)) if index >= 0 else ZERO

    def at_least(self, x: Number) -> Fraction:
        """P(D >= x)."""
        return 1 - self.below(x)

    def above(self, x: Number) -> Fraction:
        """P(D > x)."""
        return 1 - self.at_most(x)

    def between(self, low: Number, high: Number) -> Fraction:
        """P(low <= D <= high)."""
        return self.at_most(high) - self.below(low)


@lru_cache(maxsize=10_000)
def _law(u: Timestamp, v: Timestamp) -> DifferenceLaw:
    return DifferenceLaw(u, v)


def _value(p: Polynomial, x: Fraction) -> Fraction:
    return p[0] + x * (p[1] + x * p[2])


def _moved(p: Polynomial, by: Fraction) -> Polynomial:
    """The polynomial in s that is p at s + by."""
    return p[0] + p[1] * by + p[2] * by * by, p[1] + 2 * p[2] * by, p[2]


def _square_root(x: Fraction) -> Fraction:
    """Exact for squares of rationals, otherwise good to some 90 digits."""
    n, m = math.isqrt(x.numerator), math.isqrt(x.denominator)
    if n * n == x.numerator and m * m == x.denominator:
        return Fraction(n, m)
    product = x.numerator * x.denominator
    shift = max(0, 300 - product.bit_length() // 2)
    return Fraction(math.isqrt(product << 2 * shift), x.denominator << shift)


def _part_at_least(p: Polynomial, level: Fraction, lo: Fraction, hi: Fraction) -> list[tuple[Fraction, Fraction]]:
    """The closed intervals of lo..hi where p >= level."""
    c, b, a = p[0] - level, p[1], p[2]
    if a == 0 and b == 0:
        parts = [(lo, hi)] if c >= 0 else []
    elif a == 0:
        parts = [(-c / b, hi)] if b > 0 else [(lo, -c / b)]
    else:
        discriminant = b * b - 4 * a * c
        if discriminant < 0:
            parts = [(lo, hi)] if a > 0 else []
        else:
            root = _square_root(discriminant)
            left, right = sorted([(-b - root) / (2 * a), (-b + root) / (2 * a)])
            parts = [(lo, left), (right, hi)] if a > 0 else [(left, right)]
    clipped = [(max(lo, u), min(hi, v)) for u, v in parts]
    return [(u, v) for u, v in clipped if u <= v]


def _merged(intervals: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The union of closed intervals, in order; those that touch become one."""
    merged: list[tuple[Any, Any]] = []
    for lo, hi in sorted(intervals):
        if merged and lo <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], hi))
        else:
            merged.append((lo, hi))
    return merged


# ---------------------------------------------------------------------------------------------------------------
# Satisfaction times


def satisfaction(hi: Timestamp, hj: Timestamp, t: Number, *, strict: bool = False) -> Fraction:
    """G(T) = P(X_i + max(H_j) - T >= X_j), with `strict` the same with `>`; never increases with T."""
    x = Fraction(t) - last(hj)
    return _law(hi, hj).above(x) if strict else _law(hi, hj).at_least(x)


def _stime_plus(hi: Timestamp, hj: Timestamp, level: Fraction) -> Fraction:
    _demand(0 < level <= 1, f"level {level}")
    law = _law(hi, hj)
    index = max(k for k, knot in enumerate(law.knots) if law.at_least(knot) >= level)  # the first knot always has 1
    best = law.knots[index]
    if index + 1 < len(law.knots):  # in the cell after it, where P(D > x) >= level
        c0, c1, c2 = law.cell(best)
        inside = _part_at_least((1 - c0, -c1, -c2), level, best, law.knots[index + 1])
        best = max([best, *(end for _, end in inside)])
    return best + last(hj)


def stime_plus(hi: Timestamp, hj: Timestamp, delta: Threshold) -> float:
    """sup {T: G(T) >= delta}; the supremum is attained."""
    return float(_stime_plus(hi, hj, as_level(delta)))


def _stime_minus(hi: Timestamp, hj: Timestamp, level: Fraction, strict: bool = False) -> Fraction:
    _demand(0 <= level < 1, f"level {level}")
    law = _law(hi, hj)
    tail = law.above if strict else law.at_least
    low_enough = [k for k, knot in enumerate(law.knots) if tail(knot) <= level]
    if not low_enough:  # an atom at the very end: every later T has 0
        return law.knots[-1] + last(hj)
    index = low_enough[0]
    best = law.knots[index]
    if index > 0:
        before = law.knots[index - 1]
        best = min([best, *(lo for lo, _ in _part_at_least(law.cell(before), 1 - level, before, best))])
    return best + last(hj)


def stime_minus(hi: Timestamp, hj: Timestamp, delta: Threshold, *, strict: bool = False) -> float:
    """inf {T: G(T) <= delta}; `strict` uses P(X_i + max(H_j) - T > X_j) for G, and attains its infimum."""
    return float(_stime_minus(hi, hj, as_level(delta), strict))


def configuration(hi: Timestamp, hj: Timestamp, x: Number, *, as_printed: bool = False) -> tuple[int, ...]:
    """For each breakpoint of H_j the bucket of H_i - x that it falls in: 0 before all, n + 1 after all of the n.

    `as_printed` calls "after all" n, as the paper does, which confuses it with the last bucket.
    """
    edges = [edge - Fraction(x) for edge in _edges(hi)]
    found = [bisect_right(edges, at) for at in _edges(hj)]
    return tuple(min(k, len(edges) - 1) for k in found) if as_printed else tuple(found)


# ---------------------------------------------------------------------------------------------------------------
# Super-level sets and bounds for any distance


def band_at(u: Timestamp, v: Timestamp, d: Number, s: Number) -> Fraction:
    """J(s) = P(|X_i - X_j| <= d) for events of templates u and v with s = max(H_j) - max(H_i)."""
    centre = Fraction(s) + last(u) - last(v)
    return _law(u, v).between(centre - Fraction(d), centre + Fraction(d))


def _super_level(u: Timestamp, v: Timestamp, d: Number, delta: Threshold) -> list[tuple[Fraction, Fraction]]:
    level, reach = as_level(delta), Fraction(d)
    _demand(0 < level <= 1, f"level {level}")
    _demand(reach >= 0, f"negative distance {d}")
    law, offset = _law(u, v), last(u) - last(v)
    # in c = s + offset, J is at_most(c + d) - below(c - d)
    knots = sorted({k + sign * reach for k in law.knots for sign in (-1, 1)})
    parts = [(k, k) for k in knots if law.between(k - reach, k + reach) >= level]
    for lo, hi in itertools.pairwise(knots):
        middle = (lo + hi) / 2
        upper, lower = _moved(law.cell(middle + reach), reach), _moved(law.cell(middle - reach), -reach)
        p = (upper[0] - lower[0], upper[1] - lower[1], upper[2] - lower[2])
        parts += _part_at_least(p, level, lo, hi)
    return [(lo - offset, hi - offset) for lo, hi in _merged(parts)]


def super_level(u: Timestamp, v: Timestamp, d: Number, delta: Threshold) -> list[Interval]:
    """{s: J(s) >= delta} as closed intervals, s = max(H_j) - max(H_i); a single value is an interval without length."""
    return [(float(lo), float(hi)) for lo, hi in _super_level(u, v, d, delta)]


def low_bounds(
    us: Iterable[Timestamp], vs: Iterable[Timestamp], d: Number, delta: Threshold
) -> tuple[float, float] | None:
    """(low_A, low_B): the least max(H_b) - max(H_a), and the least max(H_a) - max(H_b), of any pair that joins.

    None if no templates can ever join.
    """
    rights = list(vs)
    found = [part for u in us for v in rights for part in _super_level(u, v, d, delta)]
    if not found:
        return None
    return float(min(lo for lo, _ in found)), float(-max(hi for _, hi in found))


class Ranges(NamedTuple):
    """Ranges of max(H_j): in LPR and RPR a pair must be tested, between them (SR) it joins, outside it does not."""

    lpr: Interval  # from closed to open
    sr: Interval  # closed
    rpr: Interval  # from open to closed

    def place(self, t: float) -> Literal["LPR", "SR", "RPR", "VR"]:
        if self.lpr[0] <= t < self.lpr[1]:
            return "LPR"
        if self.rpr[0] < t <= self.rpr[1]:
            return "RPR"
        return "SR" if self.sr[0] <= t <= self.sr[1] else "VR"


def threshold_free_ranges(hi: Timestamp, longest: Number, d: Number) -> Ranges:
    """The ranges from the supports alone; `longest` is the length of the longest template of the other stream."""
    _demand(d >= max(length(hi), longest), "the ranges need a distance of at least every length")
    pi, reach = Fraction(longest), Fraction(d)
    ends = [first(hi) - reach, last(hi) - reach + pi, first(hi) + reach, last(hi) + reach + pi]
    a, b, c, e = (float(x) for x in ends)
    return Ranges((a, b), (b, c), (c, e))


def tight_ranges(
    u: Timestamp,
    vs: Iterable[Timestamp],
    detected_at: Number,
    d: Number,
    delta: Threshold,
    *,
    right_shift: Literal["plus", "minus"] = "plus",
) -> Ranges:
    """The ranges that use the threshold, for an event of template u; `right_shift="minus"` is the misprint g(-d)."""
    rights, level, reach = list(vs), as_level(delta), Fraction(d)
    _demand(d >= max(length(t) for t in [u, *rights]), "the ranges need a distance of at least every length")
    shift = Fraction(detected_at) - last(u)
    lows = [_stime_minus(u, v, 1 - level) + shift - reach for v in rights]
    highs = [_stime_plus(u, v, level) + shift + (reach if right_shift == "plus" else -reach) for v in rights]
    a, b, c, e = (float(x) for x in (min(lows), max(lows), min(highs), max(highs)))
    return Ranges((a, b), (b, c), (c, e))


def sure_and_possible(
    u: Timestamp, vs: Iterable[Timestamp], d: Number, delta: Threshold
) -> tuple[list[Interval], list[Interval]]:
    """For any d: the s = max(H_j) - max(H_i) where every template of the other stream joins, and where some does."""
    sets = [_super_level(u, v, d, delta) for v in vs]
    sure = sets[0]
    for other in sets[1:]:
        sure = [(max(a, c), min(b, e)) for a, b in sure for c, e in other if max(a, c) <= min(b, e)]
    possible = _merged(part for parts in sets for part in parts)
    return [(float(a), float(b)) for a, b in sorted(sure)], [(float(a), float(b)) for a, b in possible]


# ---------------------------------------------------------------------------------------------------------------
# The timing join, by looking at all pairs


def keeps(p: Number, delta: Threshold | None, strict: bool = False) -> bool:
    """The decision rule: a margin of 1e-12 in favour of keeping (strict: of dropping), and never a P of 0."""
    if p == 0:
        return False
    if delta is None:
        return True
    level = as_level(delta)
    return p > level + TOLERANCE if strict else p >= level - TOLERANCE


def borderline(p: Number, delta: Threshold | None, strict: bool = False, margin: float = 1e-13) -> bool:
    """Whether rounding alone may decide: p is possible and within `margin` of where the decision turns.

    A tie with the threshold is not borderline, the tolerance is wider than the margin; without a threshold nothing is
    but a p so small that a sum of doubles may lose it.
    """
    if p == 0:
        return False
    if delta is None:
        return p < as_level(margin)
    return abs(p - as_level(delta) - (TOLERANCE if strict else -TOLERANCE)) <= as_level(margin)


def timing_pairs(
    lefts: Sequence[tuple[Any, Timestamp]],
    rights: Sequence[tuple[Any, Timestamp]],
    d: Number,
    delta: Threshold | None,
    strict: bool = False,
    *,
    exact: bool = True,
    ties: Ties = "exact",
) -> dict[tuple[Any, Any], Number]:
    """The kept pairs of ids with their probabilities: Fractions, or doubles with `exact=False` (faster)."""
    _demand(len({i for i, _ in lefts}) == len(lefts) and len({j for j, _ in rights}) == len(rights), "repeated ids")
    _demand(d >= 0, f"negative distance {d}")
    reach = Fraction(d)
    others = [(j, hj, _buckets(hj)) for j, hj in rights]
    kept: dict[tuple[Any, Any], Number] = {}
    for i, hi in lefts:
        mine = _buckets(hi)
        for j, hj, theirs in others:
            apart = max(mine[0][0] - theirs[-1][1], theirs[0][0] - mine[-1][1])
            if exact and ties == "exact" and apart > reach:
                continue
            p = _probability(mine, theirs, -reach, reach, ties) if exact else band_float(hi, hj, float(d))
            if keeps(p, delta, strict):
                kept[i, j] = p
    return kept


# ---------------------------------------------------------------------------------------------------------------
# Arrivals and the buffers of the timing join


def _delay(rng: np.random.Generator, most: Number) -> Fraction:
    """None at all, as long as allowed, or something between, each a third of the time; an exact number."""
    share = {0: ZERO, 1: ONE}.get(int(rng.integers(3)), Fraction(int(rng.integers(1001)), 1000))
    return share * Fraction(most)


def timed_arrivals(
    rng: np.random.Generator,
    events: Sequence[Event],
    max_delay: Number | Mapping[str, Number],
    *,
    stall: Number = 0,
) -> list[tuple[Fraction, Event]]:
    """(clock, event) in the order of arrival: never before max(H), and at most `max_delay` after it.

    With a `stall`, each side is also held up as a whole, once, for at most that long. Its own order stays, so nothing
    comes more than `max_delay` behind the newest of its side, but the clock no longer bounds the delay.
    """
    delays = (
        dict.fromkeys({side for side, _, _ in events}, max_delay) if not isinstance(max_delay, Mapping) else max_delay
    )
    clocks = [last(h) + _delay(rng, delays[side]) for side, _, h in events]
    held = list(clocks)
    if stall:
        for name in sorted({side for side, _, _ in events}):
            start = clocks[int(rng.integers(len(clocks)))]
            stop = start + _delay(rng, stall)
            for k, (side, _, _) in enumerate(events):
                if side == name and start <= clocks[k] < stop:
                    held[k] = stop
    shuffle = rng.permutation(len(events))
    order = sorted(range(len(events)), key=lambda k: (held[k], clocks[k], shuffle[k]))
    return [(held[k], events[k]) for k in order]


def arrivals(
    rng: np.random.Generator,
    events: Sequence[Event],
    max_delay: Number | Mapping[str, Number],
    *,
    stall: Number = 0,
) -> list[Event]:
    """An order in which no event comes more than `max_delay` (in max(H)) behind the newest of its own side."""
    return [event for _, event in timed_arrivals(rng, events, max_delay, stall=stall)]


@dataclass
class TimingRun:
    """What `timing_operator` emitted, in order, and how many events it held after each arrival."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)


def timing_operator(
    timed: Sequence[tuple[Number, Event]],
    matches: Callable[[Any, Any], bool],
    lows: tuple[float, float],
    max_delay: Mapping[str, Number],
    *,
    bound: Literal["newest", "clock", "raw", "without delay"] = "newest",
) -> TimingRun:
    """The symmetric join of sides "A" and "B" with its buffers; `matches` decides on two ids, exactly.

    Right bounds: the `newest` max(H) of a side, or the `clock`. Wrong: `without delay` (loses pairs). `raw` takes the
    last event's max(H) as it is; it loses nothing and holds more than it must.
    """
    guard = 1e-9  # the bounds are rounded
    other = {"A": "B", "B": "A"}
    low = dict(zip("AB", lows, strict=True))
    buffers: dict[str, list[tuple[Fraction, Any]]] = {"A": [], "B": []}
    newest: dict[str, Fraction] = {}
    run = TimingRun()
    for now, (side, key, h) in timed:
        for _, partner in buffers[other[side]]:
            pair = (key, partner) if side == "A" else (partner, key)
            if matches(*pair):
                run.pairs.append(pair)
        buffers[side].append((last(h), key))
        newest[side] = last(h) if bound == "raw" else max(newest.get(side, last(h)), last(h))
        for name in "AB" if bound == "clock" else side:
            seen = now if bound == "clock" else newest[name]
            limit = seen - (0 if bound == "without delay" else max_delay[name]) + low[name] - guard
            buffers[other[name]] = [entry for entry in buffers[other[name]] if entry[0] >= limit]
        run.held.append(len(buffers["A"]) + len(buffers["B"]))
    return run


def random_template(
    rng: np.random.Generator,
    longest: int = 40,
    *,
    buckets: int = 4,
    empty: bool = True,
    atoms: bool = True,
    inner_atoms: bool = False,
) -> Hist:
    """A template of whole-numbered edges from 0 on: now and then an atom, now and then with empty buckets inside.

    Some are two narrow humps far apart, of round probabilities: with these a probability stays on a level for a while,
    and more than one range of shifts can reach a threshold. `inner_atoms` allows buckets without width among others.
    """
    kind = rng.random()
    if atoms and kind < 0.1:
        return point(0)
    if inner_atoms and kind < 0.2:
        at = sorted(int(x) for x in rng.choice(np.arange(1, longest + 1), size=2, replace=False))
        return Hist((0, 0, at[0], at[0], at[1], at[1]), (Fraction(1, 4), 0, Fraction(1, 2), 0, Fraction(1, 4)))
    if empty and kind > 0.8 and longest >= 6:
        share = Fraction(int(rng.integers(1, 4)), 4)
        return Hist((0, 1, longest - 1, longest), (share, 0, 1 - share))
    count = int(rng.integers(1, buckets + 1))
    ends = sorted(int(x) for x in rng.choice(np.arange(1, longest + 1), size=count, replace=False))
    weights = [int(x) for x in rng.integers(1, 10, count)]
    if empty and count > 2 and rng.random() < 0.4:
        weights[int(rng.integers(1, count - 1))] = 0
    if inner_atoms and count > 1 and rng.random() < 0.3:
        ends[0] = 0  # an atom at the start, then buckets
    return Hist((0, *ends), tuple(Fraction(w, sum(weights)) for w in weights))


def random_events(
    rng: np.random.Generator, side: str, templates: Sequence[Timestamp], count: int, gap: float = 5.0
) -> list[Event]:
    """Events of random templates, detected at whole times that are `gap` apart on average; ids count from 0."""
    times = np.cumsum(rng.integers(0, int(2 * gap) + 1, count))
    return [
        (side, k, detected(templates[int(rng.integers(len(templates)))], int(at)))
        for k, at in enumerate(times.tolist())
    ]


# ---------------------------------------------------------------------------------------------------------------
# The window join, by looking at all combinations


Predicate = Callable[[dict[str, Row]], bool]


def _window(windows: Windows, a: str, b: str) -> Any:
    """The window of a pair, whichever way round it was given; infinite if it was not."""
    return min(windows.get((a, b), math.inf), windows.get((b, a), math.inf))


def window_combinations(
    streams: Mapping[str, Sequence[Row]], windows: Windows, predicate: Predicate | None = None
) -> list[tuple[Any, ...]]:
    """The ids of every combination, one row (id, ts, key) per stream, that keeps all given windows (ends included).

    Without a predicate all keys must be equal (None equals None). A predicate replaces that: it is given the whole
    combination as a dict of rows.
    """
    names = list(streams)
    _demand(all(a in streams and b in streams and a != b for a, b in windows), f"unknown streams in {list(windows)}")
    found: list[tuple[Any, ...]] = []

    def fits(row: Row, k: int, chosen: list[Row]) -> bool:
        if predicate is None and chosen and row[2] != chosen[0][2]:
            return False
        return all(abs(row[1] - other[1]) <= _window(windows, names[k], names[j]) for j, other in enumerate(chosen))

    def extend(chosen: list[Row]) -> None:
        k = len(chosen)
        if k == len(names):
            if predicate is None or predicate(dict(zip(names, chosen, strict=True))):
                found.append(tuple(row[0] for row in chosen))
            return
        for row in streams[names[k]]:
            if fits(row, k, chosen):
                extend([*chosen, row])

    extend([])
    return found


def closure(windows: Windows, names: Sequence[str] | None = None) -> Bounds:
    """Shortest path between every two streams (both ways round), by walking all simple paths; inf if there is none."""
    known = list(names) if names is not None else sorted({name for pair in windows for name in pair})
    _demand(len(known) <= 7, "all simple paths: at most 7 streams")

    def shortest(at: str, goal: str, visited: frozenset[str]) -> Any:
        if at == goal:
            return 0
        steps = [v for v in known if v not in visited and _window(windows, at, v) < math.inf]
        return min((_window(windows, at, v) + shortest(v, goal, visited | {v}) for v in steps), default=math.inf)

    return {(a, b): shortest(a, b, frozenset({a})) for a in known for b in known if a != b}


def local_windows(bounds: Bounds) -> dict[str, Any]:
    """L: for each stream its largest window to any other."""
    names = dict.fromkeys(a for a, _ in bounds)
    return {a: max(w for (x, _), w in bounds.items() if x == a) for a in names}


Method = Literal["exact", "lca", "gca"]
Source = Literal["closure", "given"]


def pair_bounds(windows: Windows, names: Sequence[str], method: Method = "exact", source: Source = "closure") -> Bounds:
    """What an algorithm uses instead of the windows, for every pair and both ways round.

    `exact` the closure, `lca` min(L_i, L_j), `gca` the largest window everywhere. `source="given"` takes L and the
    largest window from the given windows only, which is wrong unless all pairs are given.
    """
    _demand(method != "exact" or source == "closure", "the given windows do not bound every pair")
    known = _known_windows(windows, names, source)
    if method == "exact":
        return known
    pairs = [(a, b) for a in names for b in names if a != b]
    if method == "gca":
        return dict.fromkeys(pairs, max(known.values()))
    local = local_windows(known)
    return {(a, b): min(local[a], local[b]) for a, b in pairs}


def _known_windows(windows: Windows, names: Sequence[str], source: Source) -> Bounds:
    if source == "closure":
        return closure(windows, names)
    given = {(a, b): _window(windows, a, b) for a in names for b in names if a != b}
    return {pair: w for pair, w in given.items() if w < math.inf}


# ---------------------------------------------------------------------------------------------------------------
# Backward and forward evaluation


class Heartbeat(NamedTuple):
    """In a list of arrivals: no later row of the stream is older than `ts`."""

    ts: Any


Arrival = tuple[str, Row | Heartbeat]


@dataclass
class WindowRun:
    """What an algorithm emitted, in order, the combinations it had before refinement, rows compared and rows held."""

    names: list[str]
    windows: Windows
    predicate: Predicate | None
    emitted: list[tuple[Any, ...]] = field(default_factory=list)
    candidates: int = 0
    comparisons: int = 0
    held: list[int] = field(default_factory=list)

    @property
    def peak(self) -> int:
        return max(self.held, default=0)

    def compatible(self, row: Row, chosen: Mapping[str, Row]) -> bool:
        """The predicate against what is chosen so far: equal keys, or nothing until the combination is complete."""
        self.comparisons += 1
        return self.predicate is not None or all(row[2] == other[2] for other in chosen.values())

    def offer(self, chosen: Mapping[str, Row]) -> None:
        """Count a full combination, and emit it if it keeps the given windows and the predicate."""
        if self.predicate is not None and not self.predicate({name: chosen[name] for name in self.names}):
            return
        self.candidates += 1
        if all(abs(chosen[a][1] - chosen[b][1]) <= w for (a, b), w in self.windows.items()):
            self.emitted.append(tuple(chosen[name][0] for name in self.names))


def bew(
    order: Iterable[Arrival],
    windows: Windows,
    names: Sequence[str],
    *,
    method: Method = "exact",
    source: Source = "closure",
    drop: Literal["all", "tight", "none", "any", "adjacent"] = "all",
    strict_drop: bool = True,
    period: Literal["both", "backward"] = "both",
    slack: Mapping[str, Any] | None = None,
    predicate: Predicate | None = None,
) -> WindowRun:
    """Backward evaluation: each arrival looks for partners in the buffers, so the last to arrive emits.

    Right: every method with the closure, `drop` of "all", "tight" or "none", `slack` = how far rows of a stream may be
    behind its newest. Wrong: `source="given"`, `drop="any"` (some stream has gone on), `drop="adjacent"` (only streams
    with a window of their own count), `strict_drop=False` (ties are lost), `period="backward"`, disorder without slack.
    """
    bounds = pair_bounds(windows, names, method, source)
    late = {name: 0 if slack is None else slack[name] for name in names}
    buffers: dict[str, list[Row]] = {name: [] for name in names}
    newest: dict[str, Any] = dict.fromkeys(names, -math.inf)
    run = WindowRun(list(names), windows, predicate)

    def extend(chosen: dict[str, Row], rest: list[str], latest: Any) -> None:
        if not rest:
            run.offer(chosen)
            return
        k = rest[0]
        lo = max(row[1] - bounds[name, k] for name, row in chosen.items())
        hi = min([*(row[1] + bounds[name, k] for name, row in chosen.items()), latest])
        for row in buffers[k]:
            if lo <= row[1] <= hi and run.compatible(row, chosen):
                extend({**chosen, k: row}, rest[1:], latest)

    def passed(v: str, limit: Any) -> bool:
        safe = newest[v] - late[v]
        return safe > limit if strict_drop else safe >= limit

    def obsolete(k: str, row: Row) -> bool:
        others = [v for v in names if v != k]
        if drop == "none":
            return False
        if drop == "adjacent":
            neighbours = [v for v in others if _window(windows, k, v) < math.inf]
            return all(passed(v, row[1] + _window(windows, k, v)) for v in neighbours)
        gone = [v for v in others if passed(v, row[1] + bounds[k, v])]
        if drop == "any":
            return bool(gone)
        if drop == "tight" and any(
            all(abs(other[1] - row[1]) > bounds[k, v] for other in buffers[v]) for v in gone
        ):  # slot v can never be filled
            return True
        return len(gone) == len(others)

    for name, row in order:
        _demand(not isinstance(row, Heartbeat), "backward evaluation has no heartbeats")
        newest[name] = max(newest[name], row[1])
        extend({name: row}, [v for v in names if v != name], row[1] if period == "backward" else math.inf)
        buffers[name].append(row)
        for k in names:
            buffers[k] = [entry for entry in buffers[k] if not obsolete(k, entry)]
        run.held.append(sum(len(buffer) for buffer in buffers.values()))
    return run


def few(
    order: Iterable[Arrival],
    windows: Windows,
    names: Sequence[str],
    *,
    method: Literal["lca", "gca"] = "lca",
    source: Source = "closure",
    drop: Literal["argmin", "oldest"] = "argmin",
    discard: Literal["bound", "closure"] = "bound",
    admission: Literal["single", "pairwise"] = "single",
    flush: bool = True,
    predicate: Predicate | None = None,
) -> WindowRun:
    """Forward evaluation: find fronts near each other, then admit and join up to a limit without window tests.

    Streams must be in order. `flush` closes every stream at the end; without it the output may be incomplete. `discard`
    picks the bound of mode 1. Wrong: `source="given"`, `drop="oldest"` (leaves the oldest front, not the one with
    the least end), `admission="pairwise"` (a limit for each pair instead of one: can wait for ever from 4 streams on).
    """
    bounds = pair_bounds(windows, names, method, source)
    star = closure(windows, names)
    if method == "gca":
        local = dict.fromkeys(names, max(bounds.values()))
    else:
        local = local_windows(_known_windows(windows, names, source))
    sweep = bounds if discard == "bound" else star
    admitted: dict[str, deque[Row]] = {name: deque() for name in names}
    pending: dict[str, deque[Row]] = {name: deque() for name in names}
    promised: dict[str, Any] = dict.fromkeys(names, -math.inf)  # heartbeats; closed is inf
    run = WindowRun(list(names), windows, predicate)

    def front(k: str) -> Row | None:
        return admitted[k][0] if admitted[k] else pending[k][0] if pending[k] else None

    def leave(k: str) -> None:
        (admitted[k] or pending[k]).popleft()

    def earliest(k: str) -> Any:
        """No row of k that is still in the game, or to come, is older."""
        head = front(k)
        return promised[k] if head is None else head[1]

    def upcoming(k: str) -> Any:
        """No row of k that is still to be admitted is older."""
        return pending[k][0][1] if pending[k] else promised[k]

    def hopeless() -> str | None:
        for k in names:
            head = front(k)
            if head is not None and any(earliest(v) > head[1] + sweep[k, v] for v in names if v != k):
                return k
        return None

    def join(chosen: dict[str, Row], rest: list[str]) -> None:
        if not rest:
            run.offer(chosen)
            return
        for row in admitted[rest[0]]:
            if run.compatible(row, chosen):
                join({**chosen, rest[0]: row}, rest[1:])

    def advance() -> None:
        while True:
            while (k := hopeless()) is not None:
                leave(k)
            fronts = {k: head[1] for k in names if (head := front(k)) is not None}
            if len(fronts) < len(names):
                return
            end = {k: fronts[k] + local[k] for k in names}
            least = min(end.values())
            for j in names:
                others = [v for v in names if v != j]
                limit = least if admission == "single" else min(fronts[v] + star[v, j] for v in others)
                while pending[j] and pending[j][0][1] <= limit:
                    row = pending[j].popleft()
                    join({j: row}, others)
                    admitted[j].append(row)
            if admission == "pairwise":
                done = [k for k in names if all(upcoming(j) > fronts[k] + star[k, j] for j in names if j != k)]
            else:
                k0 = min(names, key=lambda k: (end if drop == "argmin" else fronts)[k])
                done = [k0] if all(upcoming(j) > least for j in names if j != k0) else []
            if not done:
                return
            leave(done[0])

    for name, row in order:
        if isinstance(row, Heartbeat):
            promised[name] = max(promised[name], row.ts)
        else:
            pending[name].append(row)
        advance()
        run.held.append(sum(len(admitted[k]) + len(pending[k]) for k in names))
    if flush:
        for name in names:
            promised[name] = math.inf
            advance()
    return run


# ---------------------------------------------------------------------------------------------------------------
# Random input for window joins


def rows(*times: Any, key: Any = None, prefix: str = "") -> list[Row]:
    """Rows with ids prefix + 0, 1, ...; a time may be a (ts, key) pair."""
    pairs = [t if isinstance(t, tuple) else (t, key) for t in times]
    return [(f"{prefix}{n}", ts, k) for n, (ts, k) in enumerate(pairs)]


def replay(streams: Mapping[str, Sequence[Row]], order: Iterable[int | str]) -> list[Arrival]:
    """The arrivals of the streams' rows, each stream in its own order, in the given order of names or positions."""
    names = list(streams)
    rest = {name: deque(found) for name, found in streams.items()}
    played = [(name, rest[name].popleft()) for k in order for name in [names[k] if isinstance(k, int) else k]]
    _demand(not any(rest.values()), "rows that never arrive")
    return played


def interleave(
    rng: np.random.Generator, streams: Mapping[str, Sequence[Row]], how: Literal["time", "any", "bursts"] = "any"
) -> list[Arrival]:
    """All rows, each stream in its own order: by time, in any order, or in bursts of one stream at a time."""
    names = list(streams)
    if how == "time":
        everything = [(row[1], rng.random(), name) for name in names for row in streams[name]]
        # ties of one stream carry the same name, so replay keeps their order
        return replay(streams, [name for *_, name in sorted(everything)])
    order = [name for name in names for _ in streams[name]]
    rng.shuffle(order)
    if how == "any":
        return replay(streams, order)
    left, burst = {name: len(streams[name]) for name in names}, []
    while any(left.values()):
        name = str(rng.choice([n for n in names if left[n]]))
        count = int(rng.integers(1, left[name] + 1))
        burst += [name] * count
        left[name] -= count
    return replay(streams, burst)


def disorder(rng: np.random.Generator, stream: Sequence[Row], slack: Number) -> list[Row]:
    """The rows in an order in which none is more than `slack` older than the newest before it."""
    late = [Fraction(row[1]) + _delay(rng, slack) for row in stream]
    shuffle = rng.permutation(len(stream))
    return [stream[k] for k in sorted(range(len(stream)), key=lambda k: (late[k], shuffle[k]))]


def random_windows(
    rng: np.random.Generator,
    names: Sequence[str],
    shape: Literal["uniform", "clique", "path", "graph"],
    sizes: Sequence[int] = (0, 1, 2, 4, 6),
) -> dict[tuple[str, str], int]:
    """Windows of a connected query."""

    def size() -> int:
        return int(rng.choice(sizes))

    if shape == "uniform":
        return dict.fromkeys(itertools.combinations(names, 2), size())
    if shape == "clique":
        return {pair: size() for pair in itertools.combinations(names, 2)}
    mixed = [str(name) for name in rng.permutation(list(names))]
    if shape == "path":
        return {pair: size() for pair in itertools.pairwise(mixed)}
    tree = {(mixed[int(rng.integers(k))], mixed[k]) for k in range(1, len(mixed))}
    extra = [(a, b) for a, b in itertools.combinations(mixed, 2) if (a, b) not in tree and rng.random() < 0.3]
    return {pair: size() for pair in [*sorted(tree), *extra]}


def random_streams(
    rng: np.random.Generator, names: Sequence[str], most: int = 9, until: int = 20, keys: int = 2
) -> dict[str, list[Row]]:
    """Up to `most` rows per stream at whole times in order, ties likely; ids are unique over all streams."""
    return {
        name: rows(
            *(
                (t, int(rng.integers(keys)))
                for t in np.sort(rng.integers(0, until, int(rng.integers(0, most + 1)))).tolist()
            ),
            prefix=name,
        )
        for name in names
    }


# ---------------------------------------------------------------------------------------------------------------
# Several conditions that share uncertain values


def joint_samples(values: Mapping[str, Value], conditions: Sequence[Condition], *, ties: Ties = "float") -> Fraction:
    """P(all of lo <= x - y <= hi) for independent samples, by enumerating what all of them can be together.

    A name stands for one variable wherever it appears. Differences are taken as doubles unless `ties="exact"`.
    """
    names = sorted({name for a, b, _, _ in conditions for name in (a, b)})
    supports = [_support(values[name]) for name in names]
    _demand(math.prod(len(s) for s in supports) <= 2_000_000, "too many combinations to enumerate")
    read = float if ties == "float" else Fraction
    place = {name: k for k, name in enumerate(names)}
    tests = [
        (place[a], place[b], lo if math.isinf(lo) else read(lo), hi if math.isinf(hi) else read(hi))
        for a, b, lo, hi in conditions
    ]
    total = ZERO
    for outcome in itertools.product(*supports):
        if all(lo <= read(outcome[i][0]) - read(outcome[j][0]) <= hi for i, j, lo, hi in tests):
            total += math.prod((weight for _, weight in outcome), start=ONE)
    return total


def _support(a: Value) -> list[tuple[Fraction, Fraction]]:
    _demand(isinstance(a, Point | Discrete), f"not samples: {a}")
    if isinstance(a, Point):
        return [(Fraction(a.v), ONE)]
    weights = [Fraction(p) for p in a.probs] if a.probs is not None else [ONE] * len(a.points)
    return [(Fraction(x), w / sum(weights)) for x, w in zip(a.points, weights, strict=True) if w > 0]


@dataclass
class _Nested:
    """Gaussians one after the other, each with a mean that is linear in those before it, and windows between them.

    The last `leaves` of them have no windows between each other and are integrated in closed form.
    """

    means: list[float]
    slopes: list[dict[int, float]]  # mean of variable i = means[i] + sum of slopes[i][j] * x_j
    sds: list[float]
    windows: dict[tuple[int, int], Interval]  # (i, j), j < i: lo <= x_i - x_j <= hi
    boxes: list[Interval]
    leaves: int

    def __post_init__(self) -> None:
        """Find where the integrand of each level has kinks: at x_j + c for these c, or at a constant (key -1)."""
        depth = len(self.means) - self.leaves
        kinks: list[dict[int, set[float]]] = [{} for _ in self.means]
        for i in reversed(range(len(self.means))):
            ends = kinks[i]
            for (a, j), window in self.windows.items():
                if a == i:
                    ends.setdefault(j, set()).update(end for end in window if math.isfinite(end))
            ends.setdefault(-1, set()).update(end for end in self.boxes[i] if math.isfinite(end))
            # limits of x_i that meet make a kink in the integral over x_i: x_j + c = x_k + e
            for j, k in itertools.combinations(sorted(ends), 2):
                kinks[k].setdefault(j, set()).update(c - e for c in ends[j] for e in ends[k])
        self.kinks = kinks[:depth]
        self.depth = depth

    def limits(self, i: int, chosen: Sequence[Any]) -> tuple[Any, Any]:
        lo, hi = self.boxes[i]
        for (a, j), (least, most) in self.windows.items():
            if a == i:
                lo, hi = np.maximum(lo, chosen[j] + least), np.minimum(hi, chosen[j] + most)
        return lo, hi

    def mean(self, i: int, chosen: Sequence[Any]) -> Any:
        return self.means[i] + sum(slope * chosen[j] for j, slope in self.slopes[i].items())

    def leaf_mass(self, chosen: Sequence[Any]) -> Any:
        mass: Any = 1.0
        for i in range(self.depth, len(self.means)):
            lo, hi = self.limits(i, chosen)
            centre = self.mean(i, chosen)
            mass = mass * _normal_mass((lo - centre) / self.sds[i], (hi - centre) / self.sds[i])
        return mass

    def steps(self, i: int, chosen: Sequence[float]) -> set[float]:
        """Where a limit of a later, narrow variable passes over it: there the integrand may rise within a hair."""
        marks: set[float] = set()
        for w in range(i + 1, len(self.means)):
            slopes = self.slopes[w]
            if any(i < j for j in slopes):  # its mean depends on what is not yet known
                continue
            rest = self.means[w] + sum(slope * chosen[j] for j, slope in slopes.items() if j < i)
            mine = slopes.get(i, 0.0)
            # x_i + e (or the end e of a box) is k sds off the mean, rest + mine * x_i
            ends = [(1 - mine, e) for e in self.windows.get((w, i), ())] + [(-mine, e) for e in self.boxes[w]]
            for factor, end in ends:
                if factor and math.isfinite(end):
                    marks |= {(rest - end + k * self.sds[w]) / factor for k in (-7, -3, -1, 1, 3, 7)}
        return marks

    def integral(self, chosen: tuple[float, ...] = ()) -> float:
        i = len(chosen)
        if i == self.depth:
            return float(self.leaf_mass(chosen))
        centre, sd = float(self.mean(i, chosen)), self.sds[i]
        lo, hi = (float(x) for x in self.limits(i, chosen))
        lo, hi = max(lo, centre - 8.5 * sd), min(hi, centre + 8.5 * sd)
        if lo >= hi:
            return 0.0
        marks = {centre + k * 1.7 * sd for k in range(-5, 6)}
        marks |= {(0.0 if j < 0 else chosen[j]) + c for j, found in self.kinks[i].items() for c in found}
        marks |= self.steps(i, chosen)

        def integrand(x: np.ndarray) -> np.ndarray:
            z = (x - centre) / sd
            density = np.exp(-z * z / 2) / (sd * math.sqrt(2 * math.pi))
            if i + 1 == self.depth:
                return density * self.leaf_mass([*chosen, x])
            # what is left is at most 1, so where the density is negligible it need not be known
            inner = [
                self.integral((*chosen, float(t))) if w * sd > 1e-14 else 0.0 for t, w in zip(x, density, strict=True)
            ]
            return density * np.array(inner)

        return _adaptive(integrand, [lo, *sorted(m for m in marks if lo < m < hi), hi], 1e-13 if i else 1e-12)


def _normal_mass(lo: Any, hi: Any) -> Any:
    """P(lo <= Z <= hi), 0 for an empty window; taken from the tail that is nearer."""
    flip = lo > 0
    u, v = np.where(flip, -hi, lo), np.where(flip, -lo, hi)
    return np.where(hi > lo, ndtr(v) - ndtr(u), 0.0)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def _adaptive(f: Callable[[np.ndarray], np.ndarray], points: Sequence[float], tolerance: float) -> float:
    """The integral over panels, each halved until the halves agree with the whole."""

    def rule(lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        half = (hi - lo)[:, None] / 2
        x = (lo + hi)[:, None] / 2 + half * _NODES
        return (half * _WEIGHTS * f(x.ravel()).reshape(x.shape)).sum(axis=1)

    lo, hi = np.array(points[:-1]), np.array(points[1:])
    wide = hi - lo > 1e-13 * (1 + np.abs(lo))  # marks that rounding has split
    lo, hi = lo[wide], hi[wide]
    whole, total = rule(lo, hi), 0.0
    for _ in range(40):
        if lo.size == 0:
            return total
        middle = (lo + hi) / 2
        parts = rule(np.concatenate([lo, middle]), np.concatenate([middle, hi]))
        left, right = parts[: lo.size], parts[lo.size :]
        bad = np.abs(left + right - whole) > tolerance
        total += float((left + right)[~bad].sum())
        lo, hi = np.concatenate([lo[bad], middle[bad]]), np.concatenate([middle[bad], hi[bad]])
        whole = np.concatenate([left[bad], right[bad]])
    raise ArithmeticError("the quadrature does not settle")


def joint_gaussians(
    values: Mapping[str, Normal | Point],
    conditions: Sequence[Condition],
    *,
    method: Literal["auto", "cover", "differences"] = "auto",
) -> float:
    """P(all of lo <= x - y <= hi) for independent Gaussians (or certain values), to about 1e-11. Ends may be infinite.

    A name stands for one variable wherever it appears. `cover` integrates numerically over variables that touch every
    condition: given those, the others are independent. `differences` integrates over differences from one variable,
    which takes a dimension less when every two are tied. They share the integrator, not the formula.
    """
    certain = {n: float(v.v if isinstance(v, Point) else v.mean) for n, v in values.items() if not getattr(v, "sd", 0)}
    windows: dict[tuple[str, str], Interval] = {}
    boxes: dict[str, Interval] = {}

    def narrow(table: dict[Any, Interval], key: Any, lo: float, hi: float) -> None:
        old = table.get(key, (-math.inf, math.inf))
        table[key] = max(old[0], lo), min(old[1], hi)

    for a, b, lo, hi in conditions:
        if a == b or (a in certain and b in certain):
            gap = 0.0 if a == b else certain[a] - certain[b]
            if not lo <= gap <= hi:
                return 0.0
        elif b in certain:
            narrow(boxes, a, certain[b] + lo, certain[b] + hi)
        elif a in certain:
            narrow(boxes, b, certain[a] - hi, certain[a] - lo)
        elif a < b:
            narrow(windows, (a, b), lo, hi)
        else:
            narrow(windows, (b, a), -hi, -lo)
    names = sorted({n for pair in windows for n in pair} | set(boxes))
    return math.prod(_nested(values, part, windows, boxes, method).integral() for part in _connected(names, windows))


def _connected(names: Sequence[str], links: Iterable[tuple[str, str]]) -> Iterator[list[str]]:
    rest, pairs = list(names), list(links)
    while rest:
        part = {rest[0]}
        while grown := {n for pair in pairs if part & set(pair) for n in pair} - part:
            part |= grown
        yield [n for n in rest if n in part]
        rest = [n for n in rest if n not in part]


def _nested(
    values: Mapping[str, Any],
    part: list[str],
    windows: Mapping[tuple[str, str], Interval],
    boxes: Mapping[str, Interval],
    method: str,
) -> _Nested:
    links = {pair: w for pair, w in windows.items() if pair[0] in part}
    cover = next(
        list(chosen)
        for size in range(len(part) + 1)
        for chosen in itertools.combinations(part, size)
        if all(set(pair) & set(chosen) for pair in links)
    )
    boxed = any(n in boxes for n in part)
    if method == "auto":
        method = "differences" if len(cover) > len(part) - 2 >= 1 and not boxed else "cover"
    everywhere = (-math.inf, math.inf)

    def oriented(a: str, b: str) -> Interval:
        """The window of a - b."""
        if (a, b) in links:
            return links[a, b]
        lo, hi = links.get((b, a), everywhere)
        return -hi, -lo

    if method == "cover":
        # broad variables inside, so that the narrow ones do not make spikes in the outer integrals
        inner = sorted(cover, key=lambda n: values[n].sd)
        order = [*inner, *(n for n in part if n not in cover)]
        pairs = {(i, j): oriented(a, order[j]) for i, a in enumerate(order) for j in range(i)}
        return _Nested(
            [float(values[n].mean) for n in order],
            [{} for _ in order],
            [float(values[n].sd) for n in order],
            {key: w for key, w in pairs.items() if w != everywhere},
            [boxes.get(n, everywhere) for n in order],
            len(part) - len(cover),
        )
    _demand(not boxed and len(part) >= 2, "differences need conditions between uncertain values only")
    base, *rest = part
    # d_i = x_i - x_base: given d_1 .. d_i-1, the base is Gaussian with a weighted mean, hence so is d_i
    variance = float(values[base].sd) ** 2
    centre, gain = float(values[base].mean), {}  # E[x_base | d] = centre + sum of gain[j] d_j
    means, slopes, sds = [], [], []
    for i, n in enumerate(rest):
        mine = float(values[n].sd) ** 2
        means.append(float(values[n].mean) - centre)
        slopes.append({j: -g for j, g in gain.items()})
        sds.append(math.sqrt(mine + variance))
        # observing d_i = x_i - x_base means observing x_base = mean_i - d_i with variance sd_i^2
        weight = variance / (variance + mine)
        centre = (1 - weight) * centre + weight * float(values[n].mean)
        gain = {**{j: (1 - weight) * g for j, g in gain.items()}, i: -weight}
        variance *= 1 - weight
    pairs = {(i, j): oriented(a, rest[j]) for i, a in enumerate(rest) for j in range(i)}
    return _Nested(
        means, slopes, sds, {k: w for k, w in pairs.items() if w != everywhere}, [oriented(n, base) for n in rest], 1
    )
