"""An independent referee for answers about rows: which have no partner, which partner is the one, how many there are,
whether two rows are the same thing, and which row came last. Plain, slow, and sharing no line with haply.

The parts follow the sections of the design note "answers": A `how_rows`, B `best`, `mutual`, `one_to_one` and
`matchings`, C `count_distribution` and the groups, D densities, match probabilities and simulated worlds, E `em_step`,
F scores of probabilities, G `asof`.

One-dimensional values are those of `oracle` (Point, Uniform, Normal, Truncated, NormalMixture, Hist, Discrete). Three
ways to compute stand side by side:

* samples and certain values: all possible worlds, or all samples of one side, in exact rationals;
* uniforms and histograms: panels that end at every kink; on each the integrand is a polynomial of known degree, and a
  rule with enough rational nodes integrates it without any error;
* normals, cut normals and mixtures: Gauss-Legendre in mpmath on panels that end at every kink and every few standard
  deviations.

Two functions, `count_distribution_float` and `asof_float`, do the same in doubles, for tests with many rows.

A float means its exact binary value; `oracle.as_decimals` reads it as the decimal it prints. Answers are Fractions
where the inputs are rational and mpmath numbers elsewhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from mpmath import mp, mpf
from scipy.optimize import linear_sum_assignment

import oracle
from oracle import Hist, Normal, Number, Piece, Truncated, Uniform, Value

How = Literal["inner", "left", "right", "outer", "semi", "anti"]
Side = Literal["left", "right"]
Ties = Literal["first", "all"]
Exact = Fraction | mpf
Cell = tuple[int, int]
World = frozenset[Cell]

ZERO, ONE = Fraction(0), Fraction(1)
INF = math.inf
DIGITS = 20
"""The quadratures promise as many decimals unless told otherwise; they can give up to 25."""


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


# ---------------------------------------------------------------------------------------------------------------
# A. Rows without a partner


def how_rows(
    left_count: int,
    right_count: int,
    pairs: Iterable[Cell],
    how: How,
    *,
    dropped_left: Iterable[int] = (),
    dropped_right: Iterable[int] = (),
) -> list[tuple[int | None, int | None]]:
    """The rows of the answer for a set of kept pairs: pairs first, then unmatched left rows, then unmatched right rows.

    None stands for the null columns of a missing side. `semi` and `anti` give (i, None). A row with a null value is a
    row without a pair. A dropped (bad) row is in no answer, and must be in no pair.
    """
    kept = sorted(set(pairs))
    bad_left, bad_right = set(dropped_left), set(dropped_right)
    _demand(not any(i in bad_left or j in bad_right for i, j in kept), "a dropped row is in a pair")
    _demand(all(0 <= i < left_count and 0 <= j < right_count for i, j in kept), "a pair of rows that do not exist")
    with_partner = {i for i, _ in kept}
    wanted = {j for _, j in kept}
    lonely_left = [i for i in range(left_count) if i not in with_partner and i not in bad_left]
    lonely_right = [j for j in range(right_count) if j not in wanted and j not in bad_right]
    if how == "semi":
        return [(i, None) for i in sorted(with_partner)]
    if how == "anti":
        return [(i, None) for i in lonely_left]
    _demand(how in ("inner", "left", "right", "outer"), f"unknown how {how!r}")
    rows: list[tuple[int | None, int | None]] = list(kept)
    if how in ("left", "outer"):
        rows += [(i, None) for i in lonely_left]
    if how in ("right", "outer"):
        rows += [(None, j) for j in lonely_right]
    return rows


# ---------------------------------------------------------------------------------------------------------------
# B. The best partner


class Kept(NamedTuple):
    """A kept pair with what the order of section B looks at. A rank is the place of a row among its own side."""

    i: int
    j: int
    probability: float
    square: float = 0.0
    left_rank: int = 0
    right_rank: int = 0


def expected_square(x: Value, y: Value) -> mpf:
    """E (X - Y)^2 = (difference of means)^2 + both variances."""
    gap = oracle.mean(x) - oracle.mean(y)
    return gap**2 + oracle.variance(x) + oracle.variance(y)


def _quality(pair: Kept) -> tuple[float, float]:
    """What decides first: probability to 12 decimals, falling; then expected squared difference, rising."""
    return -round(float(pair.probability), 12), float(pair.square)


def best(pairs: Iterable[Kept], side: Side, k: int = 1, ties: Ties = "first") -> set[Cell]:
    """For each row of `side` its k best partners.

    The order: probability (12 decimals) falling, expected square rising, rank of the other row rising. Rows of equal
    rank are equal rows; then the position decides. `ties="all"` adds what ties with the k-th in the first two.
    """
    _demand(k >= 1, f"k = {k}")
    groups: dict[int, list[Kept]] = {}
    for pair in pairs:
        groups.setdefault(pair.i if side == "left" else pair.j, []).append(pair)

    def order(pair: Kept) -> tuple[Any, ...]:
        other = (pair.right_rank, pair.j) if side == "left" else (pair.left_rank, pair.i)
        return (*_quality(pair), *other)

    chosen: set[Cell] = set()
    for group in groups.values():
        ranked = sorted(group, key=order)
        last = ranked[:k][-1]
        for place, pair in enumerate(ranked):
            if place < k or (ties == "all" and _quality(pair) == _quality(last)):
                chosen.add((pair.i, pair.j))
    return chosen


def mutual(pairs: Iterable[Kept], ties: Ties = "first") -> set[Cell]:
    """The pairs that are the best of both of their rows."""
    every = list(pairs)
    return best(every, "left", 1, ties) & best(every, "right", 1, ties)


def worlds_of(possible: Sequence[Sequence[Any]]) -> Iterator[World]:
    """Every partial matching of a matrix; entries that are 0 or None are no pairs."""

    def extend(row: int, used: frozenset[int]) -> Iterator[list[Cell]]:
        if row == len(possible):
            yield []
            return
        for rest in extend(row + 1, used):
            yield rest
        for j, entry in enumerate(possible[row]):
            if entry and j not in used:
                for rest in extend(row + 1, used | {j}):
                    yield [(row, j), *rest]

    for cells in extend(0, frozenset()):
        yield frozenset(cells)


class Assignment(NamedTuple):
    """The largest sum of probabilities, and every matching that reaches it."""

    total: float
    worlds: list[World]


def one_to_one(P: Sequence[Sequence[float | None]], most: int = 6) -> Assignment:
    """The matchings with the largest sum of P: all of them up to `most` rows and columns, one of them above.

    None and 0 are pairs that the join did not keep.
    """
    if len(P) <= most and max((len(row) for row in P), default=0) <= most:
        sums = {world: math.fsum(float(P[i][j]) for i, j in world) for world in worlds_of(P)}
        top = max(sums.values())
        return Assignment(top, [world for world, total in sums.items() if total >= top - 1e-12])
    gains = np.array([[float(p or 0) for p in row] for row in P])
    rows, columns = linear_sum_assignment(gains, maximize=True)
    world = frozenset((int(i), int(j)) for i, j in zip(rows, columns, strict=True) if gains[i, j] > 0)
    return Assignment(math.fsum(gains[i, j] for i, j in world), [world])


class Matchings(NamedTuple):
    """What all one-to-one worlds say together."""

    z: Any
    marginals: list[list[Any]]
    unmatched_left: list[Any]
    unmatched_right: list[Any]
    best_worlds: list[World]
    best_weight: Any


def matchings(W: Sequence[Sequence[Number]], exact: bool = True) -> Matchings:
    """Marginals, partition function and best world by listing all matchings; a world weighs the product of its odds.

    `exact` reads the odds as Fractions; otherwise everything is in doubles. Good for about 6 x 6.
    """
    read: Callable[[Number], Any] = Fraction if exact else float
    odds = [[read(w) for w in row] for row in W]
    width = len(odds[0]) if odds else 0
    weights = {world: math.prod((odds[i][j] for i, j in world), start=read(1)) for world in worlds_of(odds)}
    z = sum(weights.values())

    def share(holds: Callable[[World], bool]) -> Any:
        return sum((weight for world, weight in weights.items() if holds(world)), read(0)) / z

    marginals = [[share(lambda world, at=(i, j): at in world) for j in range(width)] for i in range(len(odds))]
    top = max(weights.values())
    return Matchings(
        z,
        marginals,
        [1 - sum(row) for row in marginals],
        [1 - sum(row[j] for row in marginals) for j in range(width)],
        [world for world, weight in weights.items() if weight == top],
        top,
    )


def partition_function(W: Sequence[Sequence[Number]], rows: Iterable[int], columns: Iterable[int]) -> Any:
    """The sum over the matchings of some rows and columns, row by row: either unmatched, or with a free column."""
    order = tuple(rows)

    @cache
    def total(place: int, free: frozenset[int]) -> Any:
        if place == len(order):
            return 1
        row = W[order[place]]
        return total(place + 1, free) + sum(row[j] * total(place + 1, free - {j}) for j in free if row[j])

    return total(0, frozenset(columns))


def matchings_by_removal(W: Sequence[Sequence[Number]]) -> tuple[Any, list[list[Any]]]:
    """Z and the marginals from P(i ~ j) = w_ij Z(without i and j) / Z, for more rows than can be listed (about 12)."""
    rows, columns = range(len(W)), range(len(W[0]) if W else 0)
    z = partition_function(W, rows, columns)

    def without(i: int, j: int) -> Any:
        return partition_function(W, [r for r in rows if r != i], [c for c in columns if c != j])

    return z, [[W[i][j] * without(i, j) / z if W[i][j] else 0 for j in columns] for i in rows]


def unmatched_by_paths(W: Sequence[Sequence[Number]], row: int, depth: int | None = None) -> Any:
    """P(a left row is unmatched) = 1 / (1 + sum_u w_vu x_u(without v)), along all paths that meet no node twice.

    Cut after `depth` steps with x = 1: an odd depth gives a lower bound, an even one an upper bound.
    """

    def odds(node: tuple[str, int]) -> list[tuple[tuple[str, int], Any]]:
        side, at = node
        if side == "left":
            return [(("right", j), w) for j, w in enumerate(W[at]) if w]
        return [(("left", i), W[i][at]) for i in range(len(W)) if W[i][at]]

    def share(node: tuple[str, int], removed: frozenset[tuple[str, int]], left: int | None) -> Any:
        if left == 0:
            return 1
        gone, further = removed | {node}, None if left is None else left - 1
        return ONE / (1 + sum(w * share(other, gone, further) for other, w in odds(node) if other not in gone))

    return share(("left", row), frozenset(), depth)


# ---------------------------------------------------------------------------------------------------------------
# Integrals: exact for polynomials between kinks, Gauss-Legendre elsewhere

Integrand = Callable[[Any], list[Any]]


@lru_cache(maxsize=64)
def _open_rule(degree: int) -> tuple[tuple[Fraction, Fraction], ...]:
    """(node, weight) inside (0, 1), all rational: exact for polynomials up to `degree`.

    The weight of a node is the integral of its Lagrange polynomial.
    """
    count = degree + 1
    nodes = [Fraction(2 * i + 1, 2 * count) for i in range(count)]
    rule = []
    for node in nodes:
        polynomial = [ONE]
        for other in nodes:
            if other != node:
                shifted = [ZERO, *polynomial]
                polynomial = [s - other * p for s, p in zip(shifted, [*polynomial, ZERO], strict=True)]
                polynomial = [p / (node - other) for p in polynomial]
        rule.append((node, sum((p / (k + 1) for k, p in enumerate(polynomial)), ZERO)))
    return tuple(rule)


def _between(marks: Iterable[Any], low: Any, high: Any) -> list[tuple[Any, Any]]:
    """The panels of [low, high] that end at the marks inside."""
    return list(pairwise([low, *sorted({m for m in marks if low < m < high}), high])) if low < high else []


def _exact_integral(f: Integrand, panels: Iterable[tuple[Fraction, Fraction]], degree: int) -> list[Fraction]:
    """Integrate a function that is on each panel a polynomial of at most this degree. There is no error."""
    totals: list[Fraction] = []
    for u, v in panels:
        for node, weight in _open_rule(degree):
            values = f(u + (v - u) * node)
            totals = totals or [ZERO] * len(values)
            totals = [total + (v - u) * weight * value for total, value in zip(totals, values, strict=True)]
    return totals


def _quadrature(f: Integrand, panels: Iterable[tuple[mpf, mpf]], nodes: int) -> list[mpf]:
    """Gauss-Legendre on each panel. The panels must be so short that the function is smooth on each."""
    rule = oracle._legendre_rule(nodes, mp.prec)
    totals: list[mpf] = []
    for u, v in panels:
        centre, half = (u + v) / 2, (v - u) / 2
        for node, weight in rule:
            values = f(centre + half * node)
            totals = totals or [mpf(0)] * len(values)
            totals = [total + half * weight * value for total, value in zip(totals, values, strict=True)]
    return totals


def _piece_marks(piece: Piece) -> list[mpf]:
    """Where to end panels for a piece: its ends and every three standard deviations; a normal is cut at 10.5 sd."""
    if isinstance(piece, Normal):
        centre, sd = oracle._real(piece.mean), oracle._real(piece.sd)
        return [centre + sd * (mpf(3) * k + mpf(3) / 2) for k in range(-4, 4)]
    marks = oracle._landmarks(piece)
    lo, hi = oracle._real(piece.lo), oracle._real(piece.hi)
    return [m for m in marks if lo <= m <= hi]


def _piece_density(piece: Piece) -> Callable[[mpf], mpf]:
    """The density of a piece; the caller stays inside its support."""
    if isinstance(piece, Normal):
        centre, sd = oracle._real(piece.mean), oracle._real(piece.sd)
        return lambda x: mp.npdf(x, centre, sd)
    return oracle._density_function(piece)


def _piece_cdf(piece: Piece) -> Callable[[mpf], mpf]:
    """x -> P(piece <= x)."""
    if isinstance(piece, Normal):
        centre, sd = oracle._real(piece.mean), oracle._real(piece.sd)
        return lambda x: mp.ncdf((x - centre) / sd)
    mass = oracle._mass_function(piece)
    return lambda x: mass(-mp.inf, x)


def _rational(values: Iterable[Value]) -> bool:
    return all(oracle._split(value).rational for value in values)


def _only_atoms(values: Iterable[Value]) -> bool:
    return not any(oracle._split(value).pieces for value in values)


def _rational_marks(value: Value) -> set[Fraction]:
    split = oracle._split(value)
    return {at for _, at in split.atoms} | {end for _, piece in split.pieces for end in (piece.lo, piece.hi)}


def _real_marks(value: Value) -> list[mpf]:
    split = oracle._split(value)
    return [oracle._real(at) for _, at in split.atoms] + [m for _, piece in split.pieces for m in _piece_marks(piece)]


# The same in doubles, for many rows at once in tests: about 1e-13 for values whose widths are not tiny beside their
# places.

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)


def _float_span(piece: oracle._FastPiece) -> tuple[float, float]:
    """The ends of a piece; a normal is cut at 10 sd."""
    local = (-10 * piece.sd, 10 * piece.sd) if isinstance(piece, oracle._FastNormal) else piece.span
    return piece.reference + local[0], piece.reference + local[1]


def _float_density(piece: oracle._FastPiece, x: np.ndarray) -> np.ndarray:
    if isinstance(piece, oracle._FastNormal):
        return np.exp(-(((x - piece.reference) / piece.sd) ** 2) / 2) / (piece.sd * math.sqrt(2 * math.pi))
    return piece.density(x - piece.reference)


def _float_marks(value: Value) -> np.ndarray:
    """Where the value changes character: atoms, ends, every few standard deviations."""
    split = oracle._fast_split(value)
    return np.concatenate([split.at, *(piece.reference + piece.marks for _, piece in split.pieces)])


def _float_cdf(value: Value, x: np.ndarray, closed: bool = True) -> np.ndarray:
    """P(A <= x), or P(A < x), at many places."""
    split = oracle._fast_split(value)
    under = split.at <= x[..., None] if closed else split.at < x[..., None]
    total = under @ split.at_weights if split.at.size else np.zeros(x.shape)
    for weight, piece in split.pieces:
        total = total + weight * piece.below(x - piece.reference)
    return total


def _float_nodes(piece: oracle._FastPiece, cuts: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of a piece between low and high on panels that end at the cuts, and how much probability each carries."""
    ends = _float_span(piece)
    low, high = max(low, ends[0]), min(high, ends[1])
    if low >= high:
        return np.zeros(0), np.zeros(0)
    edges = np.unique(np.concatenate([[low, high], cuts[(cuts > low) & (cuts < high)]]))
    half = np.diff(edges)[:, None] / 2
    nodes = (edges[:-1, None] + half + half * _NODES).ravel()
    return nodes, (half * _NODE_WEIGHTS).ravel() * _float_density(piece, nodes)


# ---------------------------------------------------------------------------------------------------------------
# C. Existence and counts


class Window(NamedTuple):
    """The differences X - Y that match, with open or closed ends."""

    low: Number
    high: Number
    low_closed: bool = True
    high_closed: bool = True


def within(c: Number) -> Window:
    """|X - Y| <= c."""
    return Window(-c, c)


def below(c: Number = 0, closed: bool = False) -> Window:
    """X - Y < c, or <= c."""
    return Window(-INF, c, high_closed=closed)


def above(c: Number = 0, closed: bool = False) -> Window:
    """X - Y > c, or >= c."""
    return Window(c, INF, low_closed=closed)


def mirrored(window: Window) -> Window:
    """The same condition seen from the right row: Y - X."""
    return Window(-window.high, -window.low, window.high_closed, window.low_closed)


class Counts(NamedTuple):
    """The number of matches N of one row: the probability of each candidate, then P(N = k) for k = 0, 1, ..."""

    p: list[Any]
    pmf: list[Any]
    p_any: Any
    mean: Any
    variance: Any

    def quantile(self, q: Number) -> int:
        """The least n with P(N <= n) >= q."""
        total: Any = 0
        for n, share in enumerate(self.pmf):
            total += share
            if total >= q:
                return n
        return len(self.pmf) - 1


def poisson_binomial(qs: Sequence[Any]) -> list[Any]:
    """P(k of independent events happen), event by event."""
    pmf: list[Any] = [1]
    for q in qs:
        stay, step = [f * (1 - q) for f in pmf], [f * q for f in pmf]
        pmf = [a + b for a, b in zip([*stay, 0], [0, *step], strict=True)]
    return pmf


def _counts(p: list[Any], pmf: list[Any]) -> Counts:
    """Mean and variance are read off the pmf, not off the single probabilities: two ways that a test can compare."""
    mean = sum(k * share for k, share in enumerate(pmf))
    return Counts(p, pmf, sum(pmf[1:]), mean, sum((k - mean) ** 2 * share for k, share in enumerate(pmf)))


def count_distribution(x: Value | None, ys: Sequence[Value | None], c: Number | Window, digits: int = DIGITS) -> Counts:
    """The number of matches of one left value among several right values.

    `c` is a radius (|X - Y| <= c) or a window of differences. None is a null and matches nothing.
    Given X = x the candidates are independent, so P(N = k) is the mean over X of the Poisson-binomial pmf of q_j(x).
    """
    window = c if isinstance(c, Window) else within(c)
    present = [y for y in ys if y is not None]
    if x is None or not present:
        return _counts([ZERO] * len(ys), [ONE] + [ZERO] * len(ys))
    if _rational([x, *present]):
        pmf, single = _rational_pmf(x, present, window), oracle.rational_probability_in
    else:
        pmf, single = _quadrature_pmf(x, present, window, digits), oracle.probability_in
    p = [ZERO if y is None else single(x, y, *window) for y in ys]
    with mp.workdps(digits + 10):
        return _counts(p, pmf + [ZERO] * (len(ys) - len(present)))


def _rational_pmf(x: Value, ys: Sequence[Value], window: Window) -> list[Fraction]:
    """Samples of X one by one; buckets of X by panels on which every q_j is linear."""
    split, ends = oracle._split(x), [Fraction(t) for t in window[:2] if math.isfinite(t)]
    totals = [ZERO] * (len(ys) + 1)

    def add(values: Sequence[Fraction], weight: Fraction) -> None:
        for k, value in enumerate(values):
            totals[k] += weight * value

    for weight, at in split.atoms:
        add(poisson_binomial([oracle.rational_probability_in(oracle.Point(at), y, *window) for y in ys]), weight)

    def share_below(y: Value, t: Number, x: Fraction) -> Fraction:
        """P(Y <= x - t); panels end at the atoms, so it does not matter here whether an end is closed."""
        if not math.isfinite(t):
            return ONE if t < 0 else ZERO
        return oracle._rational_cdf(oracle._split(y), x - Fraction(t), closed=True)

    def inside(x: Fraction) -> list[Fraction]:
        return poisson_binomial([share_below(y, window.low, x) - share_below(y, window.high, x) for y in ys])

    kinks = {mark + end for y in ys for mark in _rational_marks(y) for end in ends}
    for weight, piece in split.pieces:
        panels = _between(kinks, piece.lo, piece.hi)
        add(_exact_integral(inside, panels, degree=len(ys)), weight / (piece.hi - piece.lo))
    return totals


def _conditional(y: Value, window: Window) -> Callable[[mpf], mpf]:
    """x -> P(x - Y in the window), for an x that is no tie."""
    split = oracle._split(y)
    low, high = (mpf(t) if not math.isfinite(t) else oracle._real(Fraction(t)) for t in window[:2])
    atoms = [(oracle._real(w), oracle._real(at)) for w, at in split.atoms]
    masses = [(oracle._real(w), oracle._mass_function(piece)) for w, piece in split.pieces]

    def q(x: mpf) -> mpf:
        sure = mp.fsum(w for w, at in atoms if low <= x - at <= high)
        return sure + mp.fsum(w * mass(x - high, x - low) for w, mass in masses)

    return q


def _quadrature_pmf(x: Value, ys: Sequence[Value], window: Window, digits: int) -> list[mpf]:
    """Samples of X one by one; continuous pieces of X on panels at all kinks of X and of the shifted Y."""
    split = oracle._split(x)
    with mp.workdps(digits + 10):
        totals = [mpf(0)] * (len(ys) + 1)

        def add(values: Sequence[mpf], weight: mpf) -> None:
            for k, value in enumerate(values):
                totals[k] += weight * value

        for weight, at in split.atoms:
            qs = [oracle.probability_in(oracle.Point(at), y, *window) for y in ys]
            add(poisson_binomial(qs), oracle._real(weight))
        ends = [oracle._real(Fraction(t)) for t in window[:2] if math.isfinite(t)]
        kinks = [mark + end for y in ys for mark in _real_marks(y) for end in ends]
        conditionals = [_conditional(y, window) for y in ys]
        for weight, piece in split.pieces:
            marks, density = _piece_marks(piece), _piece_density(piece)

            def weighted(at: mpf, density: Callable[[mpf], mpf] = density) -> list[mpf]:
                height = density(at)
                return [height * share for share in poisson_binomial([q(at) for q in conditionals])]

            panels = _between([*kinks, *marks], min(marks), max(marks))
            add(_quadrature(weighted, panels, nodes=digits), oracle._real(weight))
        return totals


def count_distribution_float(x: Value | None, ys: Sequence[Value | None], c: Number | Window) -> Counts:
    """`count_distribution` in doubles: about 1e-13, ties of atoms by the rule of `oracle.probability_float`."""
    window = c if isinstance(c, Window) else within(c)
    if x is None:
        return _counts([0.0] * len(ys), [1.0] + [0.0] * len(ys))
    split = oracle._fast_split(x)
    ends = [float(t) for t in window[:2] if math.isfinite(t)]
    marks = [_float_marks(y) for y in ys if y is not None]
    cuts = np.concatenate([_float_marks(x), *(m + end for m in marks for end in ends)])
    pieces = [(weight, *_float_nodes(piece, cuts, -INF, INF)) for weight, piece in split.pieces]
    nodes = np.concatenate([np.zeros(0), *(at for _, at, _ in pieces)])
    weights = np.concatenate([split.at_weights, *(weight * w for weight, _, w in pieces)])

    def conditional(y: Value | None) -> np.ndarray:
        if y is None:
            return np.zeros(weights.size)
        sure = [oracle.probability_float(oracle.Point(float(at)), y, *window) for at in split.at]
        upper = _float_cdf(y, nodes - float(window.low)) if math.isfinite(window.low) else np.ones(nodes.size)
        lower = _float_cdf(y, nodes - float(window.high)) if math.isfinite(window.high) else np.zeros(nodes.size)
        return np.concatenate([sure, upper - lower])

    pmf = [float(np.sum(weights * share)) for share in poisson_binomial([conditional(y) for y in ys])]
    return _counts([0.0 if y is None else oracle.probability_float(x, y, *window) for y in ys], pmf)


Samples = Sequence[tuple[Fraction, Any]]
"""(weight, point) of an uncertain value; a point may be a number, a tuple, anything."""


def equally(points: Iterable[Any]) -> Samples:
    """Samples of equal weight."""
    every = list(points)
    return [(Fraction(1, len(every)), point) for point in every]


def near(c: Number) -> Callable[[Any, Any], bool]:
    """Whether two places (numbers or tuples) are at most c apart, decided in exact rationals."""

    def holds(x: Any, y: Any) -> bool:
        xs, ys = (at if isinstance(at, tuple) else (at,) for at in (x, y))
        gaps = [Fraction(a) - Fraction(b) for a, b in zip(xs, ys, strict=True)]
        return sum(gap * gap for gap in gaps) <= Fraction(c) ** 2

    return holds


def count_samples(x: Samples, ys: Sequence[Samples], matches: Callable[[Any, Any], bool]) -> Counts:
    """`count_distribution` for samples in any dimension: enumerate the samples of X."""
    p, pmf = [ZERO] * len(ys), [ZERO] * (len(ys) + 1)
    for weight, at in x:
        qs = [sum((w for w, other in y if matches(at, other)), ZERO) for y in ys]
        p = [total + weight * q for total, q in zip(p, qs, strict=True)]
        pmf = [total + weight * share for total, share in zip(pmf, poisson_binomial(qs), strict=True)]
    return _counts(p, pmf)


class Group(NamedTuple):
    """The number T of pairs of a group of left rows: N_i are the matches of left row i, M_j of right row j."""

    p: list[list[Any]]
    left_variances: list[Any]
    right_variances: list[Any]
    left_covariances: list[list[Any]]
    mean: Any
    variance: Any


def group_variance(lefts: Sequence[Samples], rights: Sequence[Samples], matches: Callable[[Any, Any], bool]) -> Group:
    """Every moment of the counts, by listing all possible worlds of small sample sets."""
    n, m = len(lefts), len(rights)
    worlds = []
    for draw in itertools.product(*lefts, *rights):
        weight = math.prod((w for w, _ in draw), start=ONE)
        points = [point for _, point in draw]
        worlds.append((weight, [[int(matches(x, y)) for y in points[n:]] for x in points[:n]]))

    def expect(f: Callable[[list[list[int]]], Any]) -> Fraction:
        return sum((weight * f(table) for weight, table in worlds), ZERO)

    def covariance(f: Callable[[Any], int], g: Callable[[Any], int]) -> Fraction:
        return expect(lambda table: f(table) * g(table)) - expect(f) * expect(g)

    counts = [lambda table, i=i: sum(table[i]) for i in range(n)]
    mirrored_counts = [lambda table, j=j: sum(row[j] for row in table) for j in range(m)]
    pairs = [lambda table: sum(map(sum, table))]
    covariances = [[covariance(f, g) for g in counts] for f in counts]
    return Group(
        [[expect(lambda table, i=i, j=j: table[i][j]) for j in range(m)] for i in range(n)],
        [covariances[i][i] for i in range(n)],
        [covariance(f, f) for f in mirrored_counts],
        covariances,
        expect(pairs[0]),
        covariance(pairs[0], pairs[0]),
    )


def group_moments(xs: Sequence[Value], ys: Sequence[Value], c: Number | Window) -> tuple[Any, Any]:
    """E T and Var T for any one-dimensional values: one pass over the left rows, one over the right rows.

    Var T = sum of Var N_i + sum of Var M_j - sum of p_ij (1 - p_ij).
    """
    window = c if isinstance(c, Window) else within(c)
    lefts = [count_distribution(x, ys, window) for x in xs]
    rights = [count_distribution(y, xs, mirrored(window)) for y in ys]
    p = [share for row in lefts for share in row.p]
    with mp.workdps(DIGITS + 10):
        spread = sum(row.variance for row in lefts) + sum(row.variance for row in rights) - sum(q * (1 - q) for q in p)
        return sum(p), spread


# ---------------------------------------------------------------------------------------------------------------
# D. Identity: densities


def difference_density(x: Value, y: Value, within: Number | None = None, digits: int = 40) -> Exact:
    """The density of X - Y at 0, in closed form: the sum over all pairs of parts.

    Where a certain value lies on the end of a bucket, it is the mean of the limits from both sides, as of
    P(|X - Y| <= c) / (2 c) when c goes to 0. Refuse two values that both have atoms: their difference has no density.
    With `within` = c it is P(|X - Y| <= c) / (2 c) for any two values.
    """
    with mp.workdps(digits):
        if within is not None:
            c = Fraction(within)
            if _rational([x, y]):
                return oracle.rational_probability_in(x, y, -within, within) / (2 * c)
            return oracle.probability_in(x, y, -within, within) / oracle._real(2 * c)
        left, right = oracle._split(x), oracle._split(y)
        _demand(not (left.atoms and right.atoms), "two certain values or samples have no density: give within")
        terms = [(w * v, _density_at(p, at)) for w, at in left.atoms for v, p in right.pieces]
        terms += [(w * v, _density_at(p, at)) for v, at in right.atoms for w, p in left.pieces]
        terms += [(w * v, _common_density(p, q)) for w, p in left.pieces for v, q in right.pieces]
        if all(isinstance(d, Fraction) for _, d in terms):
            return sum((w * d for w, d in terms), ZERO)
        return mp.fsum(oracle._real(w) * oracle._real(d) for w, d in terms)


def _density_at(piece: Piece, at: Fraction) -> Exact:
    """The density of a piece at a place; half of it on an end."""
    if isinstance(piece, Normal):
        return _piece_density(piece)(oracle._real(at))
    inside = 2 if piece.lo < at < piece.hi else 1 if piece.lo <= at <= piece.hi else 0
    if isinstance(piece, Uniform):
        return Fraction(inside, 2) / (piece.hi - piece.lo)
    return mpf(inside) / 2 * _piece_density(piece)(oracle._real(at)) if inside else mpf(0)


def _common_density(p: Piece, q: Piece) -> Exact:
    """The integral of the product of two densities: what both have in common is [lo, hi]."""
    los = [piece.lo for piece in (p, q) if not isinstance(piece, Normal)]
    his = [piece.hi for piece in (p, q) if not isinstance(piece, Normal)]
    if los and max(los) >= min(his):
        return ZERO
    if isinstance(p, Uniform) and isinstance(q, Uniform):
        return (min(his) - max(los)) / ((p.hi - p.lo) * (q.hi - q.lo))
    lo, hi = (oracle._real(max(los)), oracle._real(min(his))) if los else (-mp.inf, mp.inf)
    if isinstance(p, Uniform) or isinstance(q, Uniform):
        flat, bell = (p, q) if isinstance(p, Uniform) else (q, p)
        return oracle._mass_function(bell)(lo, hi) / oracle._real(flat.hi - flat.lo)
    whole = math.prod(_bell_whole(piece) for piece in (p, q))
    variance = p.sd**2 + q.sd**2
    middle = oracle._real((p.mean * q.sd**2 + q.mean * p.sd**2) / variance)
    spread = oracle._real(p.sd * q.sd) / mp.sqrt(oracle._real(variance))
    peak = mp.npdf(oracle._real(p.mean - q.mean), 0, mp.sqrt(oracle._real(variance)))
    return peak * oracle._normal_mass(middle, spread, lo, hi) / whole


def _bell_whole(piece: Normal | Truncated) -> mpf:
    """How much of its normal a piece keeps."""
    if isinstance(piece, Normal):
        return mpf(1)
    mean, sd, lo, hi = (oracle._real(t) for t in (piece.mean, piece.sd, piece.lo, piece.hi))
    return oracle._normal_mass(mean, sd, lo, hi)


def integrate_densities(f: Callable[[list[mpf]], mpf], values: Sequence[Value], digits: int = DIGITS) -> mpf:
    """The integral over the line of f(densities of the values there), by quadrature; for values without atoms.

    The panels end at all kinks of all values. A place counts where at least the first value has a density.
    """
    splits = [oracle._split(value) for value in values]
    _demand(not any(split.atoms for split in splits), "an atom has no density")
    with mp.workdps(digits + 10):
        marks = [mark for value in values for mark in _real_marks(value)]
        parts = [[(oracle._real(w), piece, _piece_density(piece)) for w, piece in split.pieces] for split in splits]

        def inside(piece: Piece, x: mpf) -> bool:
            return isinstance(piece, Normal) or oracle._real(piece.lo) <= x <= oracle._real(piece.hi)

        def heights(x: mpf) -> list[mpf]:
            return [mp.fsum(w * density(x) for w, piece, density in part if inside(piece, x)) for part in parts]

        first = _real_marks(values[0])
        panels = _between(marks, min(first), max(first))
        return _quadrature(lambda x: [f(heights(x))], panels, nodes=digits)[0]


def difference_density_by_quadrature(x: Value, y: Value, digits: int = DIGITS) -> mpf:
    """The same as `difference_density`, by integrating the product of the densities."""
    return integrate_densities(lambda d: d[0] * d[1], [x, y], digits)


class Population(NamedTuple):
    """Bayes factors for true values of density g, and the density of a measured Y given a measured X."""

    of_measurements: mpf
    of_posteriors: mpf
    conditional_density: mpf


def population_factors(x: Value, y: Value, g: Value, digits: int = DIGITS) -> Population:
    """Uneven populations. X and Y are read as measurements, or as posteriors that already contain g.

    Posteriors have no mass where g has none, so such places are left out.
    """
    with mp.workdps(digits + 10):
        both = integrate_densities(lambda d: d[0] * d[1] * d[2], [x, y, g], digits)
        alone = [integrate_densities(lambda d: d[0] * d[1], [value, g], digits) for value in (x, y)]
        posterior = integrate_densities(lambda d: d[0] * d[1] / d[2] if d[2] else mpf(0), [x, y, g], digits)
        return Population(both / (alone[0] * alone[1]), posterior, both / alone[0])


def position_density(delta: Sequence[Number], covariance: Sequence[Sequence[Number]], digits: int = 40) -> mpf:
    """N(delta; 0, covariance): the density of the difference of two Gaussian positions at 0."""
    with mp.workdps(digits):
        matrix = mp.matrix([[oracle._real(Fraction(v)) for v in row] for row in covariance])
        gap = mp.matrix([oracle._real(Fraction(v)) for v in delta])
        distance = (gap.T * mp.lu_solve(matrix, gap))[0]
        return mp.exp(-distance / 2) / mp.sqrt((2 * mp.pi) ** len(delta) * mp.det(matrix))


# ---------------------------------------------------------------------------------------------------------------
# D. Identity: probabilities


class MatchRow(NamedTuple):
    """One left row: the probability of each candidate, of any of them, and of each given that there is one (NWAY)."""

    p_match: list[Any]
    p_any: Any
    p_i: list[Any]


def match_odds(density: Any, field: Any, completeness: Any, factors: Sequence[Any] = ()) -> Any:
    """w = f / (1 - f) * d / lambda * other factors."""
    return completeness / (1 - completeness) * density / field * math.prod(factors)


def agreement(m: Any, u: Any, agrees: bool | None) -> Any:
    """The factor of a certain category: m/u where it agrees, (1-m)/(1-u) where not, 1 where one is null."""
    if agrees is None:
        return 1
    return m / u if agrees else (1 - m) / (1 - u)


def match_rows(weights: Sequence[Sequence[Any]]) -> list[MatchRow]:
    """Probabilities from the odds w_ij of each left row. A row without candidates has p_any = 0."""
    rows = []
    for ws in weights:
        total = sum(ws)
        rows.append(MatchRow([w / (1 + total) for w in ws], total / (1 + total), [w / total for w in ws if total]))
    return rows


def sky_separation(ra1: Any, dec1: Any, ra2: Any, dec2: Any, digits: int = 40) -> mpf:
    """The angle between two directions, everything in degrees (haversine form: no digits lost at small angles)."""
    with mp.workdps(digits):
        a1, d1, a2, d2 = (mp.radians(mpf(v)) for v in (ra1, dec1, ra2, dec2))
        square = mp.sin((d2 - d1) / 2) ** 2 + mp.cos(d1) * mp.cos(d2) * mp.sin((a2 - a1) / 2) ** 2
        return mp.degrees(2 * mp.asin(mp.sqrt(square)))


def sky_log10_bayes(separation: Any, error1: Any, error2: Any, digits: int = 40) -> mpf:
    """log10 of the Bayes factor against the whole sky, flat form, in arcseconds: 2 / s^2 exp(-psi^2 / (2 s^2))."""
    with mp.workdps(digits):
        unit = mp.pi / (180 * 3600)
        square = (mpf(error1) ** 2 + mpf(error2) ** 2) * unit**2
        return mp.log10(2 / square) - (mpf(separation) * unit) ** 2 / (2 * square) / mp.log(10)


def sky_log10_bayes_fisher(separation: Any, error1: Any, error2: Any, digits: int = 60) -> mpf:
    """The same with Fisher distributions on the sphere: sinh|k| / |k| * k1 k2 / (sinh k1 sinh k2), |k| of the sum."""
    with mp.workdps(digits + 30):
        unit = mp.pi / (180 * 3600)
        k1, k2 = (1 / (mpf(error) * unit) ** 2 for error in (error1, error2))
        half = mpf(separation) * unit / 2
        # |k1 + k2| = sum - missing; the exponentials are taken out of the sinh, which would overflow.
        total = k1 + k2
        length = mp.sqrt(total**2 - 4 * k1 * k2 * mp.sin(half) ** 2)
        log_sinh = [k + mp.log1p(-mp.exp(-2 * k)) - mp.log(2) for k in (length, k1, k2)]
        log_factor = log_sinh[0] - mp.log(length) + mp.log(k1) - log_sinh[1] + mp.log(k2) - log_sinh[2]
        return log_factor / mp.log(10)


class SkyRow(NamedTuple):
    """A source on the sky: degrees, and its error in arcseconds."""

    ra: Any
    dec: Any
    error: Any


def sky_separation_in_doubles(ra1: float, dec1: float, ra2: float, dec2: float) -> float:
    """The same as NWAY computes it: Vincenty's formula in doubles, every angle first divided by 180.

    Its rounding moves Bayes factors by 1e-10 and more, so NWAY's own numbers can be met to all digits only with it.
    """
    lon1, lat1, lon2, lat2 = (np.float64(v) / 180 * np.pi for v in (ra1, dec1, ra2, dec2))
    across = np.cos(lat2) * np.sin(lon2 - lon1)
    along = np.cos(lat1) * np.sin(lat2) - np.sin(lat1) * np.cos(lat2) * np.cos(lon2 - lon1)
    inner = np.sin(lat1) * np.sin(lat2) + np.cos(lat1) * np.cos(lat2) * np.cos(lon2 - lon1)
    return float(np.arctan2(np.hypot(across, along), inner) * 180 / np.pi)


Separation = Callable[[Any, Any, Any, Any], Any]


def sky_candidates(
    left: Sequence[SkyRow], right: Sequence[SkyRow], radius: Any, separation: Separation = sky_separation
) -> list[list[tuple[int, Any]]]:
    """For each left source (right index, separation in arcseconds) of the right sources within the radius."""
    rows = []
    for a in left:
        gaps = [(j, 3600 * separation(a.ra, a.dec, b.ra, b.dec)) for j, b in enumerate(right)]
        rows.append([(j, gap) for j, gap in gaps if gap <= radius])
    return rows


def sky_weights(
    left: Sequence[SkyRow], right: Sequence[SkyRow], field: Any, radius: Any, separation: Separation = sky_separation
) -> list[list[mpf]]:
    """d_ij / field for every candidate; `field` in sources per square arcsecond."""
    with mp.workdps(40):
        rows = []
        for a, candidates in zip(left, sky_candidates(left, right, radius, separation), strict=True):
            squares = [(gap, mpf(a.error) ** 2 + mpf(right[j].error) ** 2) for j, gap in candidates]
            rows.append([mp.exp(-(gap**2) / (2 * s2)) / (2 * mp.pi * s2) / field for gap, s2 in squares])
        return rows


def nway(
    left: Sequence[SkyRow],
    right: Sequence[SkyRow],
    area: Any,
    radius: Any,
    completeness: Any,
    separation: Separation = sky_separation,
) -> list[MatchRow]:
    """What NWAY computes: density (n + 1) / area, and "no counterpart" weighs 1, not 1 - c. `area` in square degrees.

    It is the whole-sky Bayes factor times c / (number of right sources of a whole sky of this density).
    """
    with mp.workdps(40):
        whole_sky = 4 * mp.pi * (180 / mp.pi) ** 2
        sources = (len(right) + 1) * whole_sky / mpf(area)
        rows = []
        for a, candidates in zip(left, sky_candidates(left, right, radius, separation), strict=True):
            logs = [sky_log10_bayes(gap, a.error, right[j].error) for j, gap in candidates]
            rows.append([mpf(completeness) / sources * mpf(10) ** log for log in logs])
        return match_rows(rows)


# ---------------------------------------------------------------------------------------------------------------
# D. Simulated worlds


@dataclass(frozen=True)
class Simulated:
    """A world drawn from the model of identity.

    `left` and `right` are the measured places (rows, dimensions) with one standard deviation each, and `truth` is the
    right row of each left row's counterpart, or -1. `field` counts the right rows per unit that are unrelated to one
    left row; `background` leaves out the counterparts of all left rows. The box is [0, side) in every dimension, a
    torus where `wrapped`.
    """

    left: np.ndarray
    left_sds: np.ndarray
    right: np.ndarray
    right_sds: np.ndarray
    truth: np.ndarray
    side: float
    field: float
    background: float
    wrapped: bool

    def differences(self) -> np.ndarray:
        """Left minus right of every pair (left, right, dimension), the short way round on a torus."""
        gap = self.left[:, None, :] - self.right[None, :, :]
        return gap - self.side * np.round(gap / self.side) if self.wrapped else gap

    def truths(self) -> np.ndarray:
        """Whether each pair (left, right) is the same thing."""
        return self.truth[:, None] == np.arange(self.right.shape[0])[None, :]


def simulate_world(
    seed: int,
    *,
    dimension: int = 2,
    left_count: int,
    side: float,
    completeness: float,
    background: float,
    left_sds: tuple[float, float],
    right_sds: tuple[float, float],
    margin: float | None = None,
) -> Simulated:
    """Draw left objects evenly in a box, counterparts of a share of them, and unrelated right rows around them.

    Without `margin` the box is a torus. With it the field of right rows goes on for `margin` beyond the box at the same
    density, so that rows near the border see no border; choose several standard deviations. A margin of 0 makes a patch
    with real borders. Errors are Gaussian, their standard deviations even between the two given numbers.
    """
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, side, (left_count, dimension))
    has_counterpart = rng.random(left_count) < completeness
    box = side**dimension
    field = background + completeness * left_count / box
    strangers = [rng.uniform(0, side, (rng.poisson(background * box), dimension))]
    if margin is not None:
        around = rng.uniform(-margin, side + margin, (rng.poisson(field * (side + 2 * margin) ** dimension), dimension))
        strangers.append(around[((around < 0) | (around >= side)).any(axis=1)])
    true_right = np.concatenate([places[has_counterpart], *strangers])
    truth = np.full(left_count, -1)
    truth[has_counterpart] = np.arange(int(has_counterpart.sum()))
    order = rng.permutation(len(true_right))
    new_place = np.argsort(order)
    truth[truth >= 0] = new_place[truth[truth >= 0]]
    spread_left = rng.uniform(*left_sds, left_count)
    spread_right = rng.uniform(*right_sds, len(true_right))
    left = places + spread_left[:, None] * rng.normal(size=places.shape)
    right = true_right[order] + spread_right[:, None] * rng.normal(size=true_right.shape)
    if margin is None:
        left, right = left % side, right % side
    return Simulated(left, spread_left, right, spread_right, truth, side, field, background, wrapped=margin is None)


def simulate_line(
    seed: int,
    *,
    left_count: int,
    side: float,
    completeness: float,
    background: float,
    left_errors: Sequence[Value],
    right_errors: Sequence[Value],
    margin: float,
) -> tuple[list[Value], list[Value], np.ndarray, float]:
    """A world on the line with errors of any continuous law: left values, right values, truth, field.

    Each row takes one of the error laws. A measurement is the true value plus an error, so the true value is the
    measurement minus the error: the law of the row is the mirrored error law at the measurement.
    """
    rng = np.random.default_rng([seed, 1])
    skeleton = simulate_world(
        seed,
        dimension=1,
        left_count=left_count,
        side=side,
        completeness=completeness,
        background=background,
        left_sds=(0, 0),
        right_sds=(0, 0),
        margin=margin,
    )

    def measured(true_value: float, errors: Sequence[Value]) -> Value:
        error = errors[int(rng.integers(len(errors)))]
        return oracle.shifted(negated(error), true_value + draw(error, rng))

    lefts = [measured(float(x), left_errors) for x in skeleton.left[:, 0]]
    rights = [measured(float(y), right_errors) for y in skeleton.right[:, 0]]
    return lefts, rights, skeleton.truth, skeleton.field


def draw(value: Value, rng: np.random.Generator) -> float:
    """One draw: choose a part by its weight, then a place in it; a cut normal by trying until it is inside."""
    split = oracle._split(value)
    parts = [(w, at) for w, at in split.atoms] + list(split.pieces)
    part = parts[int(rng.choice(len(parts), p=[float(w) for w, _ in parts]))][1]
    if isinstance(part, Fraction):
        return float(part)
    if isinstance(part, Uniform):
        return float(rng.uniform(float(part.lo), float(part.hi)))
    for _ in range(100_000):
        x = float(rng.normal(float(part.mean), float(part.sd)))
        if isinstance(part, Normal) or part.lo <= x <= part.hi:
            return x
    raise ArithmeticError(f"the cut leaves too little of {part}")


def negated(a: Value) -> Value:
    """-A, in exact arithmetic."""
    if isinstance(a, Hist):
        return Hist(tuple(-Fraction(x) for x in reversed(a.edges)), tuple(reversed(a.probs)))
    if isinstance(a, Uniform):
        return Uniform(-Fraction(a.hi), -Fraction(a.lo))
    if isinstance(a, Truncated):
        return Truncated(-Fraction(a.mean), a.sd, -Fraction(a.hi), -Fraction(a.lo))
    if isinstance(a, Normal):
        return Normal(-Fraction(a.mean), a.sd)
    if isinstance(a, oracle.NormalMixture):
        return oracle.NormalMixture(a.weights, tuple(-Fraction(m) for m in a.means), a.sds)
    if isinstance(a, oracle.Discrete):
        return oracle.Discrete(tuple(-Fraction(x) for x in a.points), a.probs)
    return oracle.Point(-Fraction(a.v))


# ---------------------------------------------------------------------------------------------------------------
# E. Learned error sizes and offsets

Candidate = tuple[tuple[float, ...], float]
"""The difference of a pair (one number per dimension), and the stated variance per axis, both sides together.

Floats, or numbers of mpmath where more digits are wanted; then the fit and the field must be such numbers, too.
"""


@dataclass(frozen=True)
class Fit:
    """Share of left rows with a counterpart, offset, scale of the stated errors, and an extra error (a sd)."""

    share: float
    offset: tuple[float, ...]
    scale: float = 1.0
    extra: float = 0.0


def _call(name: str, x: Any) -> Any:
    """A function of `math`, or of mpmath where x is a number of mpmath."""
    return getattr(mp if isinstance(x, mpf) else math, name)(x)


def _pi(x: Any) -> Any:
    return mp.pi if isinstance(x, mpf) else math.pi


def _likelihoods(rows: Sequence[Sequence[Candidate]], fit: Fit, field: float) -> list[list[float]]:
    """N(Delta - b; V) / lambda of each candidate, V = scale^2 s^2 + extra^2 on every axis."""
    table = []
    for row in rows:
        values = []
        for delta, stated in row:
            v = fit.scale**2 * stated + fit.extra**2
            q = sum((d - b) ** 2 for d, b in zip(delta, fit.offset, strict=True))
            values.append(_call("exp", -q / (2 * v)) / _call("sqrt", 2 * _pi(v) * v) ** len(delta) / field)
        table.append(values)
    return table


def log_likelihood(rows: Sequence[Sequence[Candidate]], fit: Fit, field: float) -> float:
    """The sum over left rows of log((1 - f) + f sum_j N(Delta_ij - b; V_ij) / lambda)."""
    return sum(_call("log", (1 - fit.share) + fit.share * sum(values)) for values in _likelihoods(rows, fit, field))


def responsibilities(rows: Sequence[Sequence[Candidate]], fit: Fit, field: float) -> list[list[float]]:
    """r_ij = w_ij / (1 + W_i)."""
    odds = fit.share / (1 - fit.share)
    return [list(row.p_match) for row in match_rows([[odds * v for v in vs] for vs in _likelihoods(rows, fit, field)])]


def em_step(
    rows: Sequence[Sequence[Candidate]],
    fit: Fit,
    field: float,
    learn: Sequence[str] = ("share", "offset", "scale"),
) -> Fit:
    """One round: responsibilities from the old fit, then share, offset, and the variances around the new offset."""
    weights = responsibilities(rows, fit, field)
    dimension = len(fit.offset)
    flat = [(r, *pair) for rs, row in zip(weights, rows, strict=True) for r, pair in zip(rs, row, strict=True)]
    total = sum(r for r, _, _ in flat)
    share, offset, scale, extra = fit.share, fit.offset, fit.scale, fit.extra

    def variance(stated: float) -> float:
        return fit.scale**2 * stated + fit.extra**2

    if "share" in learn:
        share = total / len(rows)
    if "offset" in learn:
        below = sum(r / variance(stated) for r, _, stated in flat)
        sums = [sum(r / variance(stated) * d[axis] for r, d, stated in flat) for axis in range(dimension)]
        offset = tuple(s / below for s in sums)

    def part(own: float, delta: Sequence[float], stated: float) -> float:
        """The expected square of one of the two independent parts of an error, whose variance is `own`."""
        v = variance(stated)
        q = sum((d - b) ** 2 for d, b in zip(delta, offset, strict=True))
        return dimension * own * (1 - own / v) + (own / v) ** 2 * q

    if "scale" in learn:
        squares = sum(r * part(fit.scale**2 * stated, delta, stated) / stated for r, delta, stated in flat)
        scale = _call("sqrt", squares / (dimension * total))
    if "extra" in learn:
        squares = sum(r * part(fit.extra**2, delta, stated) for r, delta, stated in flat)
        extra = _call("sqrt", squares / (dimension * total))
    return Fit(share, offset, scale, extra)


# ---------------------------------------------------------------------------------------------------------------
# F. Are the probabilities right?


def brier(p: Sequence[Any], y: Sequence[Any]) -> Any:
    """The mean of (p - y)^2."""
    return sum((a - b) ** 2 for a, b in zip(p, y, strict=True)) / len(p)


def log_loss(p: Sequence[float], y: Sequence[bool | int]) -> float:
    """The mean of -log of the probability that was given to what happened."""
    return -math.fsum(math.log(a if b else 1 - a) for a, b in zip(p, y, strict=True)) / len(p)


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson's interval for a share: the shares s with |successes - n s| <= z sqrt(n s (1 - s))."""
    share, extra = successes / n, z * z / n
    centre = (share + extra / 2) / (1 + extra)
    half = math.sqrt(share * (1 - share) * extra + extra * extra / 4) / (1 + extra)
    return centre - half, centre + half


class Bin(NamedTuple):
    """One bin of the reliability table; `z` is the surplus of true ones in standard deviations."""

    low: float
    high: float
    n: int
    mean: Any
    share: Any
    wilson_low: float
    wilson_high: float
    z: float


def _binned(p: Sequence[Any], y: Sequence[Any], edges: Sequence[float]) -> list[list[tuple[Any, Any]]]:
    """Pairs (p, y) of each bin [low, high); the last bin holds its high end, too."""
    groups: list[list[tuple[Any, Any]]] = [[] for _ in edges[1:]]
    for a, b in zip(p, y, strict=True):
        for k, (low, high) in enumerate(pairwise(edges)):
            if low <= a < high or (k == len(groups) - 1 and a == high):
                groups[k].append((a, b))
    return groups


def even_edges(bins: int) -> list[float]:
    """The ends of bins of equal width: k / bins."""
    return [k / bins for k in range(bins + 1)]


def reliability_table(p: Sequence[Any], y: Sequence[Any], edges: Sequence[float] | int = 10) -> list[Bin]:
    """What was said and what happened, bin by bin; empty bins are left out."""
    ends = even_edges(edges) if isinstance(edges, int) else edges
    table = []
    for (low, high), group in zip(pairwise(ends), _binned(p, y, ends), strict=True):
        if group:
            n, hits = len(group), sum(int(b) for _, b in group)
            spread = math.sqrt(math.fsum(float(a) * (1 - float(a)) for a, _ in group))
            surplus = hits - math.fsum(float(a) for a, _ in group)
            z = surplus / spread if spread > 0 else math.copysign(INF, surplus) if surplus else 0.0
            table.append(Bin(low, high, n, sum(a for a, _ in group) / n, Fraction(hits, n), *wilson(hits, n), z))
    return table


class Decomposition(NamedTuple):
    """Brier = reliability - resolution + uncertainty + within_variance - 2 within_covariance."""

    reliability: Any
    resolution: Any
    uncertainty: Any
    within_variance: Any
    within_covariance: Any

    @property
    def total(self) -> Any:
        return self.reliability - self.resolution + self.uncertainty + self.within_variance - 2 * self.within_covariance


def brier_decomposition(p: Sequence[Any], y: Sequence[Any], edges: Sequence[float] | int = 10) -> Decomposition:
    """The five terms. Without the last two the sum is the Brier score only where p is constant inside bins."""
    ends = even_edges(edges) if isinstance(edges, int) else edges
    n, base = len(p), Fraction(sum(int(b) for b in y), len(y))
    terms: list[Any] = [0, 0, 0, 0]
    for group in _binned(p, y, ends):
        if group:
            mean = sum(a for a, _ in group) / len(group)
            share = Fraction(sum(int(b) for _, b in group), len(group))
            terms[0] += len(group) * (mean - share) ** 2
            terms[1] += len(group) * (share - base) ** 2
            terms[2] += sum((a - mean) ** 2 for a, _ in group)
            terms[3] += sum((a - mean) * (int(b) - share) for a, b in group)
    return Decomposition(terms[0] / n, terms[1] / n, base * (1 - base), terms[2] / n, terms[3] / n)


def doubt(p_match: Sequence[Any], p_any: Sequence[Any]) -> tuple[Any, Any]:
    """The expected false ones among kept pairs: of rows without a partner, and of rows that have another one."""
    return sum(1 - a for a in p_any), sum(a - m for m, a in zip(p_match, p_any, strict=True))


def position_pit(delta: Sequence[float], covariance: Sequence[Sequence[float]]) -> float:
    """1 - exp(-z^2 / 2) of a pair on the plane: even between 0 and 1 for true pairs with right errors."""
    z2 = float(np.array(delta) @ np.linalg.solve(np.array(covariance, dtype=float), np.array(delta)))
    return -math.expm1(-z2 / 2)


# ---------------------------------------------------------------------------------------------------------------
# G. The last one before


class Asof(NamedTuple):
    """The probability that each row is the last before T, and that none is."""

    p: list[Any]
    none: Any


def asof(
    t: Value,
    s_list: Sequence[Value],
    lookback: Number | None = None,
    keys: Sequence[Any] | None = None,
    digits: int = 18,
) -> Asof:
    """Which of several uncertain times is the last one that is not after T (and not more than `lookback` before it).

    Both ends count: S = T and S = T - lookback are in. Among equal times the row with the largest key comes last and
    wins; the key is the position where none is given. Times are compared in exact arithmetic.
    """
    if _only_atoms([t, *s_list]):
        return asof_by_worlds(t, s_list, lookback, keys)
    if _rational([t, *s_list]):
        return _asof_exact(t, s_list, lookback, keys)
    return _asof_quadrature(t, s_list, lookback, keys, digits)


def _places(keys: Sequence[Any] | None, count: int) -> list[int]:
    """The place of each row among the keys. Keys must differ, or a tie would have no winner."""
    order = list(range(count)) if keys is None else list(keys)
    _demand(len(set(order)) == count, f"keys must differ: {order}")
    return [sorted(order).index(key) for key in order]


def asof_by_worlds(
    t: Value, s_list: Sequence[Value], lookback: Number | None = None, keys: Sequence[Any] | None = None
) -> Asof:
    """Samples and certain times: list all possible worlds, and look in each for the last row."""
    _demand(_only_atoms([t, *s_list]), "only samples and certain times have finitely many worlds")
    place = _places(keys, len(s_list))
    p, none = [ZERO] * len(s_list), ZERO
    for draw in itertools.product(*(oracle._split(value).atoms for value in (t, *s_list))):
        weight = math.prod((w for w, _ in draw), start=ONE)
        now, times = draw[0][1], [at for _, at in draw[1:]]
        start = None if lookback is None else now - Fraction(lookback)
        eligible = [j for j, at in enumerate(times) if at <= now and (start is None or at >= start)]
        if eligible:
            p[max(eligible, key=lambda j: (times[j], place[j]))] += weight
        else:
            none += weight
    return Asof(p, none)


@dataclass(frozen=True)
class _Clock:
    """How to compute with times: rationals with an exact rule, or mpmath numbers with Gauss-Legendre."""

    number: Callable[[Fraction], Any]
    cdf: Callable[[int, Any, bool], Any]
    density: Callable[[Piece], Callable[[Any], Any]]
    marks: Callable[[Piece], Iterable[Any]]
    integral: Callable[[Integrand, list[tuple[Any, Any]]], list[Any]]


def _asof(
    t: Value, s_list: Sequence[Value], lookback: Number | None, keys: Sequence[Any] | None, clock: _Clock
) -> Asof:
    """P_j = mean over T of the integral over s in [T - lookback, T] of f_j(s) prod_k P(k is not in (s, T]).

    A row k that wins ties against j must not be at s either, hence the open cdf for it. The product of the sums
    (1 - F_k(T)) + F_k(s) is written as a sum over subsets of products: so the integrals over whole panels of s do not
    depend on T, and are computed once.
    """
    count = len(s_list)
    others = [[k for k in range(count) if k != j] for j in range(count)]
    subsets = [[set(c) for n in range(count) for c in itertools.combinations(rest, n)] for rest in others]
    place = _places(keys, count)
    splits = [oracle._split(value) for value in s_list]
    back = None if lookback is None else clock.number(Fraction(lookback))
    kinks = {clock.number(at) for split in splits for _, at in split.atoms}
    kinks |= {mark for split in splits for _, piece in split.pieces for mark in clock.marks(piece)}
    parts = [
        [(clock.number(w), list(clock.marks(piece)), clock.density(piece)) for w, piece in split.pieces]
        for split in splits
    ]

    @cache
    def panel(j: int, part: int, first: Any, last: Any) -> list[Any]:
        """The integral of f_j(s) times the product of F_k(s) over each subset of the other rows."""
        density = parts[j][part][2]

        def products(s: Any) -> list[Any]:
            shares, height = [clock.cdf(k, s, True) for k in range(count)], density(s)
            return [math.prod((shares[k] for k in subset), start=height) for subset in subsets[j]]

        return clock.integral(products, [(first, last)])

    def given(now: Any) -> list[Any]:
        """P_j and P_none for a certain T."""
        start = None if back is None else now - back
        after = [1 - clock.cdf(k, now, True) for k in range(count)]

        def alone(j: int, s: Any) -> Any:
            return math.prod((after[k] + clock.cdf(k, s, place[k] < place[j]) for k in others[j]), start=1)

        shares = []
        for j in range(count):
            share: Any = 0
            late = [math.prod((after[k] for k in others[j] if k not in subset), start=1) for subset in subsets[j]]
            for weight, at in splits[j].atoms:
                s = clock.number(at)
                if s <= now and (start is None or s >= start):
                    share += clock.number(weight) * alone(j, s)
            for part, (weight, marks, _) in enumerate(parts[j]):
                first = min(marks) if start is None else max(min(marks), start)
                for u, v in _between(kinks, first, min(max(marks), now)):
                    share += weight * sum(a * b for a, b in zip(late, panel(j, part, u, v), strict=True))
            shares.append(share)
        before = [0 if start is None else clock.cdf(k, start, False) for k in range(count)]
        return [*shares, math.prod((a + b for a, b in zip(after, before, strict=True)), start=1)]

    totals: list[Any] = [0] * (count + 1)
    whole = oracle._split(t)
    for weight, at in whole.atoms:
        values = given(clock.number(at))
        totals = [total + clock.number(weight) * value for total, value in zip(totals, values, strict=True)]
    for weight, piece in whole.pieces:
        marks, density = list(clock.marks(piece)), clock.density(piece)
        cuts = kinks | set(marks) | (set() if back is None else {mark + back for mark in kinks})
        panels = _between(cuts, min(marks), max(marks))
        values = clock.integral(lambda now, density=density: [density(now) * v for v in given(now)], panels)
        totals = [total + clock.number(weight) * value for total, value in zip(totals, values, strict=True)]
    return Asof(totals[:-1], totals[-1])


def _asof_exact(t: Value, s_list: Sequence[Value], lookback: Number | None, keys: Sequence[Any] | None) -> Asof:
    """Uniforms, histograms, samples and certain times: between kinks everything is a polynomial of degree <= n."""
    splits = [oracle._split(value) for value in s_list]

    @cache
    def cdf(k: int, x: Fraction, closed: bool) -> Fraction:
        return oracle._rational_cdf(splits[k], x, closed=closed)

    clock = _Clock(
        number=Fraction,
        cdf=cdf,
        density=lambda piece: lambda x: 1 / (piece.hi - piece.lo),
        marks=lambda piece: (piece.lo, piece.hi),
        integral=lambda f, panels: _exact_integral(f, panels, degree=len(s_list)),
    )
    return _asof(t, s_list, lookback, keys, clock)


def _asof_quadrature(
    t: Value, s_list: Sequence[Value], lookback: Number | None, keys: Sequence[Any] | None, digits: int
) -> Asof:
    """Anything with normals: Gauss-Legendre in both directions. Cdfs are kept, since most nodes come again."""
    with mp.workdps(digits + 10):
        splits = [oracle._split(value) for value in s_list]
        pieces = [[(oracle._real(w), _piece_cdf(p)) for w, p in split.pieces] for split in splits]
        atoms = [[(oracle._real(w), oracle._real(at)) for w, at in split.atoms] for split in splits]

        @cache
        def cdf(k: int, x: mpf, closed: bool) -> mpf:
            sure = sum(w for w, at in atoms[k] if at < x or (closed and at == x))
            return sure + sum(w * share(x) for w, share in pieces[k])

        clock = _Clock(
            number=oracle._real,
            cdf=cdf,
            density=lambda piece: lru_cache(maxsize=None)(_piece_density(piece)),
            marks=_piece_marks,
            integral=lambda f, panels: _quadrature(f, panels, nodes=digits),
        )
        return _asof(t, s_list, lookback, keys, clock)


def asof_float(
    t: Value, s_list: Sequence[Value], lookback: Number | None = None, keys: Sequence[Any] | None = None
) -> Asof:
    """`asof` in doubles: about 1e-13. The formula is used as it stands, one T after the other."""
    count, place = len(s_list), _places(keys, len(s_list))
    splits = [oracle._fast_split(value) for value in s_list]
    kinks = np.concatenate([np.zeros(0), *(_float_marks(value) for value in s_list)])

    def given(now: float) -> np.ndarray:
        start = -INF if lookback is None else now - float(lookback)
        edges = np.array([start, now])
        until = [float(_float_cdf(value, edges[1:])[0]) for value in s_list]
        before = [float(_float_cdf(value, edges[:1], closed=False)[0]) if start > -INF else 0.0 for value in s_list]

        def alone(j: int, s: np.ndarray) -> np.ndarray:
            others = [k for k in range(count) if k != j]
            shares = [1 - until[k] + _float_cdf(s_list[k], s, closed=place[k] < place[j]) for k in others]
            return math.prod(shares, start=np.ones(s.size))

        answers = []
        for j, split in enumerate(splits):
            inside = (split.at >= start) & (split.at <= now)
            share = float(split.at_weights[inside] @ alone(j, split.at[inside]))
            for weight, piece in split.pieces:
                nodes, weights = _float_nodes(piece, kinks, start, now)
                share += weight * float(weights @ alone(j, nodes))
            answers.append(share)
        return np.array([*answers, math.prod(1 - u + b for u, b in zip(until, before, strict=True))])

    whole = oracle._fast_split(t)
    totals = np.zeros(count + 1)
    for weight, at in zip(whole.at_weights, whole.at, strict=True):
        totals += weight * given(float(at))
    moved = [] if lookback is None else [kinks + float(lookback)]
    cuts = np.concatenate([_float_marks(t), kinks, *moved])
    for weight, piece in whole.pieces:
        for at, share in zip(*_float_nodes(piece, cuts, -INF, INF), strict=True):
            totals += weight * share * given(float(at))
    return Asof([float(p) for p in totals[:-1]], float(totals[-1]))


# ---------------------------------------------------------------------------------------------------------------
# G. The nearest one


def nearest_by_worlds(
    t: Value, s_list: Sequence[Value], within: Number | None = None, keys: Sequence[Any] | None = None
) -> Asof:
    """Samples and certain times: list all possible worlds, and look in each for the nearest row.

    Of two rows at one distance the earlier is taken, and of two at one time that with the largest key.
    """
    _demand(_only_atoms([t, *s_list]), "only samples and certain times have finitely many worlds")
    place = _places(keys, len(s_list))
    p, none = [ZERO] * len(s_list), ZERO
    for draw in itertools.product(*(oracle._split(value).atoms for value in (t, *s_list))):
        weight = math.prod((w for w, _ in draw), start=ONE)
        now, times = draw[0][1], [at for _, at in draw[1:]]
        near = [j for j, at in enumerate(times) if within is None or abs(at - now) <= Fraction(within)]
        if near:
            p[min(near, key=lambda j: (abs(times[j] - now), times[j], -place[j]))] += weight
        else:
            none += weight
    return Asof(p, none)


def nearest_float(t: Value, s_list: Sequence[Value], within: Number | None = None) -> Asof:
    """The nearest row in doubles, where no two rows can be at one distance: about 1e-12.

    P_j = mean over T of the integral over s of f_j(s) prod_k P(|S_k - T| > |s - T|), one T after the other.
    """
    count, reach = len(s_list), INF if within is None else float(within)
    kinks = np.concatenate([_float_marks(value) for value in s_list])

    def outside(k: int, now: float, distance: np.ndarray) -> np.ndarray:
        return 1 - _float_cdf(s_list[k], now + distance) + _float_cdf(s_list[k], now - distance, closed=False)

    def given(now: float) -> np.ndarray:
        cuts = np.concatenate([kinks, 2 * now - kinks, [now]])
        answers = []
        for j, value in enumerate(s_list):

            def alone(s: np.ndarray, j: int = j) -> np.ndarray:
                shares = [outside(k, now, np.abs(s - now)) for k in range(count) if k != j]
                return math.prod(shares, start=np.ones(s.size))

            split = oracle._fast_split(value)
            inside = np.abs(split.at - now) <= reach
            share = float(split.at_weights[inside] @ alone(split.at[inside]))
            for weight, piece in split.pieces:
                nodes, weights = _float_nodes(piece, cuts, now - reach, now + reach)
                share += weight * float(weights @ alone(nodes))
            answers.append(share)
        none = math.prod(float(outside(k, now, np.array([reach]))[0]) for k in range(count)) if reach < INF else 0.0
        return np.array([*answers, none])

    whole = oracle._fast_split(t)
    totals = np.zeros(count + 1)
    for weight, at in zip(whole.at_weights, whole.at, strict=True):
        totals += weight * given(float(at))
    middles = (kinks[:, None] + kinks).ravel() / 2
    moved = [] if within is None else [kinks + reach, kinks - reach]
    cuts = np.concatenate([_float_marks(t), middles, *moved])
    for weight, piece in whole.pieces:
        for at, share in zip(*_float_nodes(piece, cuts, -INF, INF), strict=True):
            totals += weight * share * given(float(at))
    return Asof([float(p) for p in totals[:-1]], float(totals[-1]))
