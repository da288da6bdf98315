"""An independent referee for one-dimensional probabilities and joins: slow, plain, and sharing no line with haply.

Every value is split into atoms and continuous pieces (uniform, normal, cut normal). Two engines work on the split:

* the exact one, in rational arithmetic where the answer is rational and in mpmath (50 working digits, 30 promised)
  elsewhere: atoms by comparison, an atom against a piece through the cdf, two pieces by integrating one density
  against the other's mass on panels that end at every kink and every few standard deviations;
* the fast one (`probability_float`), plain doubles, good to about 1e-13, for brute force over thousands of pairs.

Floats mean their exact binary value, except where two atoms meet: there `float(a) - float(b)` is compared with
`float(t)`, because that is what the engine promises (`ties="exact"` compares the binary values instead).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import mpmath
import numpy as np
from mpmath import mp, mpf

Number = int | float | Fraction
Ties = Literal["float", "exact"]
Pair = tuple[int, int]

WORKING_DIGITS = 50
_GUARD_DIGITS = 20  # differences of cdfs over 1e-12 beside 1e6 lose 18
KINDS = ("point", "uniform", "normal", "truncated", "mixture", "hist", "discrete")


# ---------------------------------------------------------------------------------------------------------------
# Values


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _finite(*numbers: Number) -> None:
    _demand(all(math.isfinite(x) for x in numbers), f"parameters must be finite: {numbers}")


def _weights(weights: Sequence[Number]) -> None:
    _finite(*weights)
    _demand(len(weights) > 0 and min(weights) >= 0 and sum(weights) > 0, f"not weights: {weights}")


@dataclass(frozen=True)
class Point:
    """The certain value `v`."""

    v: Number

    def __post_init__(self) -> None:
        _finite(self.v)


@dataclass(frozen=True)
class Uniform:
    """Uniform on [lo, hi]; an atom when `lo == hi`."""

    lo: Number
    hi: Number

    def __post_init__(self) -> None:
        _finite(self.lo, self.hi)
        _demand(self.lo <= self.hi, f"{self.lo} > {self.hi}")


@dataclass(frozen=True)
class Normal:
    """Normal with a standard deviation, not a variance; an atom when `sd == 0`."""

    mean: Number
    sd: Number

    def __post_init__(self) -> None:
        _finite(self.mean, self.sd)
        _demand(self.sd >= 0, f"sd {self.sd} < 0")


@dataclass(frozen=True)
class Truncated:
    """Normal cut to [lo, hi] and renormalised; with `sd == 0` the mean clamped to [lo, hi]."""

    mean: Number
    sd: Number
    lo: Number
    hi: Number

    def __post_init__(self) -> None:
        _finite(self.mean, self.sd, self.lo, self.hi)
        _demand(self.sd >= 0 and self.lo <= self.hi, f"bad cut normal: {self}")


@dataclass(frozen=True)
class NormalMixture:
    """Mixture of normals; components with `sd == 0` are atoms."""

    weights: tuple[Number, ...]
    means: tuple[Number, ...]
    sds: tuple[Number, ...]

    def __post_init__(self) -> None:
        for name in ("weights", "means", "sds"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _weights(self.weights)
        _finite(*self.means, *self.sds)
        _demand(len(self.weights) == len(self.means) == len(self.sds) and min(self.sds) >= 0, f"bad mixture: {self}")


@dataclass(frozen=True)
class Hist:
    """Uniform inside each bucket; a bucket of width zero is an atom."""

    edges: tuple[Number, ...]
    probs: tuple[Number, ...]

    def __post_init__(self) -> None:
        for name in ("edges", "probs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _weights(self.probs)
        _finite(*self.edges)
        _demand(len(self.edges) == len(self.probs) + 1, f"bad histogram: {self}")
        _demand(all(u <= v for u, v in pairwise(self.edges)), f"edges fall: {self.edges}")


@dataclass(frozen=True)
class Discrete:
    """Samples; `probs=None` gives every sample the same weight. Points may repeat."""

    points: tuple[Number, ...]
    probs: tuple[Number, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(self.points))
        _finite(*self.points)
        _demand(len(self.points) > 0, "no samples")
        if self.probs is not None:
            object.__setattr__(self, "probs", tuple(self.probs))
            _weights(self.probs)
            _demand(len(self.points) == len(self.probs), f"bad samples: {self}")


Value = Point | Uniform | Normal | Truncated | NormalMixture | Hist | Discrete
Piece = Uniform | Normal | Truncated


def shifted(a: Value, by: Number) -> Value:
    """`a + by`, in exact arithmetic (parameters become Fractions)."""
    moved = {"v", "lo", "hi", "mean", "means", "edges", "points"}
    step = Fraction(by)

    def move(x: Any) -> Any:
        return tuple(Fraction(y) + step for y in x) if isinstance(x, tuple) else Fraction(x) + step

    return replace(a, **{f.name: move(getattr(a, f.name)) for f in fields(a) if f.name in moved})


def as_decimal(x: Any) -> Any:
    """Read a float as the decimal it prints (0.1 becomes 1/10); other things are left as they are."""
    return Fraction(str(float(x))) if isinstance(x, float) and math.isfinite(x) else x


def as_decimals(a: Value) -> Value:
    """The value with every float parameter read as the decimal it prints, so 18-digit goldens can be met exactly."""

    def read(x: Any) -> Any:
        return tuple(as_decimal(y) for y in x) if isinstance(x, tuple) else as_decimal(x)

    return replace(a, **{f.name: read(getattr(a, f.name)) for f in fields(a)})


def is_equal_weight(a: Value) -> bool:
    """Whether the value is a point or samples of equal weight, which the engine decides in integers."""
    return isinstance(a, Point) or (isinstance(a, Discrete) and (a.probs is None or len(set(a.probs)) == 1))


# ---------------------------------------------------------------------------------------------------------------
# The split into atoms and pieces, in exact rationals


@dataclass(frozen=True)
class _Split:
    atoms: tuple[tuple[Fraction, Fraction], ...]  # (weight, position)
    pieces: tuple[tuple[Fraction, Piece], ...]  # (weight, continuous value with Fraction parameters)

    @property
    def rational(self) -> bool:
        return all(isinstance(piece, Uniform) for _, piece in self.pieces)


def _components(a: Value) -> list[tuple[Fraction, Point | Uniform | Normal | Truncated]]:
    if isinstance(a, NormalMixture):
        parts = [Normal(m, s) for m, s in zip(a.means, a.sds, strict=True)]
        weights = a.weights
    elif isinstance(a, Hist):
        parts = [Uniform(u, v) for u, v in pairwise(a.edges)]
        weights = a.probs
    elif isinstance(a, Discrete):
        parts = [Point(v) for v in a.points]
        weights = a.probs if a.probs is not None else (1,) * len(a.points)
    else:
        parts, weights = [a], (1,)
    exact = [Fraction(w) for w in weights]
    total = sum(exact)
    return [(w / total, part) for w, part in zip(exact, parts, strict=True) if w > 0]


@lru_cache(maxsize=100_000)
def _split(a: Value) -> _Split:
    atoms: list[tuple[Fraction, Fraction]] = []
    pieces: list[tuple[Fraction, Piece]] = []
    for weight, part in _components(a):
        if isinstance(part, Point):
            atoms.append((weight, Fraction(part.v)))
        elif isinstance(part, Uniform):
            lo, hi = Fraction(part.lo), Fraction(part.hi)
            atoms.append((weight, lo)) if lo == hi else pieces.append((weight, Uniform(lo, hi)))
        elif isinstance(part, Normal):
            mean, sd = Fraction(part.mean), Fraction(part.sd)
            atoms.append((weight, mean)) if sd == 0 else pieces.append((weight, Normal(mean, sd)))
        else:
            mean, sd, lo, hi = (Fraction(x) for x in (part.mean, part.sd, part.lo, part.hi))
            if sd == 0 or lo == hi:
                atoms.append((weight, min(max(mean, lo), hi)))
            else:
                pieces.append((weight, Truncated(mean, sd, lo, hi)))
    return _Split(tuple(atoms), tuple(pieces))


# ---------------------------------------------------------------------------------------------------------------
# Exact engine: one value


def _real(x: Fraction | mpf | int) -> mpf:
    return mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mpf(x)


def _end(x: Number | mpf) -> Fraction | None:
    """A finite end as an exact rational; None stands for infinity (which one, the caller knows from its side)."""
    if isinstance(x, mpf):
        if mpmath.isinf(x):
            return None
        sign, mantissa, exponent, _ = x._mpf_
        return Fraction((-1) ** sign * int(mantissa)) * Fraction(2) ** exponent
    return None if isinstance(x, float) and math.isinf(x) else Fraction(x)


def _normal_mass(mean: mpf, sd: mpf, low: mpf, high: mpf) -> mpf:
    """P(low <= N(mean, sd) <= high), reflected into the left tail so that far tails keep their relative digits."""
    u, v = (low - mean) / sd, (high - mean) / sd
    if v <= u:
        return mpf(0)
    return mp.ncdf(-u) - mp.ncdf(-v) if u > 0 else mp.ncdf(v) - mp.ncdf(u)


def _mass_function(piece: Piece) -> Callable[[mpf, mpf], mpf]:
    """(low, high) -> P(low <= piece <= high) in the current precision; constants are computed once."""
    if isinstance(piece, Uniform):
        lo, hi = _real(piece.lo), _real(piece.hi)
        return lambda low, high: max(mpf(0), (min(high, hi) - max(low, lo)) / (hi - lo))
    mean, sd = _real(piece.mean), _real(piece.sd)
    if isinstance(piece, Normal):
        return lambda low, high: _normal_mass(mean, sd, low, high)
    lo, hi = _real(piece.lo), _real(piece.hi)
    whole = _normal_mass(mean, sd, lo, hi)
    return lambda low, high: _normal_mass(mean, sd, max(low, lo), min(high, hi)) / whole


def _density_function(piece: Uniform | Truncated) -> Callable[[mpf], mpf]:
    lo, hi = _real(piece.lo), _real(piece.hi)
    if isinstance(piece, Uniform):
        height = 1 / (hi - lo)
        return lambda x: height
    mean, sd = _real(piece.mean), _real(piece.sd)
    whole = _normal_mass(mean, sd, lo, hi)
    return lambda x: mp.npdf(x, mean, sd) / whole


def _uniform_share(lo: Fraction, hi: Fraction, x: Fraction) -> Fraction:
    return min(max((x - lo) / (hi - lo), Fraction(0)), Fraction(1))


def _rational_cdf(split: _Split, x: Fraction, *, closed: bool) -> Fraction:
    total = sum((w for w, at in split.atoms if at < x or (closed and at == x)), Fraction(0))
    return total + sum((w * _uniform_share(p.lo, p.hi, x) for w, p in split.pieces), Fraction(0))


def _cdf(a: Value, x: Number | mpf, *, closed: bool, digits: int) -> mpf:
    split = _split(a)
    with mp.workdps(digits):
        at = _end(x)
        if at is None:
            return mpf(1 if x > 0 else 0)
        if split.rational:
            return _real(_rational_cdf(split, at, closed=closed))
        total = _real(_rational_cdf(_Split(split.atoms, ()), at, closed=closed))
        return total + mp.fsum(_real(w) * _mass_function(p)(-mp.inf, _real(at)) for w, p in split.pieces)


def cdf(a: Value, x: Number | mpf, *, digits: int = WORKING_DIGITS) -> mpf:
    """P(A <= x). Atoms are compared exactly: there is no subtraction here that the engine could round."""
    return _cdf(a, x, closed=True, digits=digits)


def cdf_left(a: Value, x: Number | mpf, *, digits: int = WORKING_DIGITS) -> mpf:
    """P(A < x)."""
    return _cdf(a, x, closed=False, digits=digits)


def _piece_moments(piece: Piece) -> tuple[mpf, mpf]:
    """Mean and second moment about it. The cut normal's formulas cancel, so the caller works in many digits."""
    if isinstance(piece, Uniform):
        return _real(piece.lo + piece.hi) / 2, _real(piece.hi - piece.lo) ** 2 / 12
    mean, sd = _real(piece.mean), _real(piece.sd)
    if isinstance(piece, Normal):
        return mean, sd**2
    u, v = (_real(piece.lo) - mean) / sd, (_real(piece.hi) - mean) / sd
    whole = _normal_mass(mpf(0), mpf(1), u, v)
    shift = (mp.npdf(u) - mp.npdf(v)) / whole
    return mean + sd * shift, sd**2 * (1 + (u * mp.npdf(u) - v * mp.npdf(v)) / whole - shift**2)


def _moments(a: Value, digits: int) -> tuple[mpf, mpf]:
    split = _split(a)
    with mp.workdps(3 * digits):
        parts = [(_real(w), _real(at), mpf(0)) for w, at in split.atoms]
        parts += [(_real(w), *_piece_moments(p)) for w, p in split.pieces]
        centre = mp.fsum(w * m for w, m, _ in parts)
        return centre, mp.fsum(w * (v + (m - centre) ** 2) for w, m, v in parts)


def mean(a: Value, *, digits: int = WORKING_DIGITS) -> mpf:
    """E[A]."""
    return _moments(a, digits)[0]


def variance(a: Value, *, digits: int = WORKING_DIGITS) -> mpf:
    """Var[A]."""
    return _moments(a, digits)[1]


def support(a: Value, *, digits: int = WORKING_DIGITS) -> tuple[mpf, mpf]:
    """The smallest closed interval with probability 1; buckets and samples of weight 0 do not count."""
    split = _split(a)
    with mp.workdps(digits):
        if any(isinstance(p, Normal) for _, p in split.pieces):
            return -mp.inf, mp.inf
        ends = [(at, at) for _, at in split.atoms] + [(p.lo, p.hi) for _, p in split.pieces]
        return _real(min(lo for lo, _ in ends)), _real(max(hi for _, hi in ends))


def _rational_quantile(split: _Split, level: Fraction, *, upper: bool) -> Fraction:
    """Piecewise linear cdf: walk the breakpoints. `upper`: sup{F <= level}; otherwise inf{F >= level}, 0 < level."""
    points = sorted({at for _, at in split.atoms} | {x for _, p in split.pieces for x in (p.lo, p.hi)})

    def passed(share: Fraction) -> bool:
        return share > level if upper else share >= level

    k = bisect.bisect_left(points, True, key=lambda x: passed(_rational_cdf(split, x, closed=True)))
    x = points[k]
    before = _rational_cdf(split, x, closed=False)
    if k == 0 or not passed(before):
        return x
    start = points[k - 1]
    base = _rational_cdf(split, start, closed=True)
    return start + (level - base) / (before - base) * (x - start)


def _quantile(a: Value, level: Fraction, *, upper: bool, digits: int) -> mpf:
    """sup{F <= level} (`upper`) or inf{F >= level}. Only rational values have plateaus, and those are exact."""
    split = _split(a)
    with mp.workdps(digits):
        if upper and level >= 1:
            return mp.inf
        if not upper and level <= 0:
            return -mp.inf
        lo, hi = support(a, digits=digits)
        if level <= 0:
            return lo
        if level >= 1:
            return hi
        if split.rational:
            return _real(_rational_quantile(split, level, upper=upper))
        middle, spread = mean(a, digits=digits), mp.sqrt(variance(a, digits=digits))
        target = _real(level)

        def passed(x: mpf) -> bool:
            share = cdf(a, x, digits=digits)
            return share > target if upper else share >= target

        reach = spread
        while not passed(middle + reach) or passed(middle - reach):
            reach *= 2
        below, above = max(lo, middle - reach), min(hi, middle + reach)
        for _ in range(int(4 * digits)):
            centre = (below + above) / 2
            if passed(centre):
                above = centre
            else:
                below = centre
        snapped = [_real(at) for _, at in split.atoms if below <= _real(at) <= above]
        return snapped[0] if snapped else (below + above) / 2


def quantile_low(a: Value, p: Number, *, digits: int = WORKING_DIGITS) -> mpf:
    """sup{y: F(y) <= p}: the right end of a plateau at level p; +inf for p >= 1, the support's low end for p = 0."""
    return _quantile(a, Fraction(p), upper=True, digits=digits)


def quantile_high(a: Value, p: Number, *, digits: int = WORKING_DIGITS) -> mpf:
    """inf{y: 1 - F(y) <= p}: the left end of a plateau; -inf for p >= 1, the support's high end for p = 0."""
    return _quantile(a, 1 - Fraction(p), upper=False, digits=digits)


def quantile(a: Value, q: Number, *, digits: int = WORKING_DIGITS) -> mpf:
    """inf{y: F(y) >= q}, the usual quantile; q = 0 gives the support's low end."""
    level = Fraction(q)
    return support(a, digits=digits)[0] if level <= 0 else _quantile(a, level, upper=False, digits=digits)


# ---------------------------------------------------------------------------------------------------------------
# Exact engine: two values


@lru_cache(maxsize=32)
def _legendre_rule(nodes: int, precision: int) -> tuple[tuple[mpf, mpf], ...]:
    """Gauss-Legendre (node, weight) on [-1, 1] by Newton's method, in `precision` bits."""
    with mp.workprec(precision + 20):
        rule = []
        for k in range(nodes):
            x = mp.cos(mp.pi * (k + mpf(3) / 4) / (nodes + mpf(1) / 2))
            for _ in range(200):
                before, value = mpf(1), x
                for n in range(2, nodes + 1):
                    before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
                slope = nodes * (x * value - before) / (x * x - 1)
                step = value / slope
                x -= step
                if abs(step) < mpf(2) ** (-precision // 2 - 10):
                    # Newton doubles the digits, so this last step already left x right to full precision.
                    break
            before, value = mpf(1), x
            for n in range(2, nodes + 1):
                before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
            slope = nodes * (x * value - before) / (x * x - 1)
            rule.append((x, 2 / ((1 - x * x) * slope**2)))
        return tuple(rule)


def _integral(integrand: Callable[[mpf], mpf], points: Iterable[mpf]) -> mpf:
    """Adaptive Gauss-Legendre over panels between sorted `points`: halve until two halves confirm the whole.

    The tolerance is relative to the whole integral as known so far, so a tail probability of 1e-80 still has its
    digits. A narrow feature must have a point of `points` on it: bisection alone could miss it.
    """
    digits = mp.dps - _GUARD_DIGITS
    rule = _legendre_rule(max(16, digits // 2), mp.prec)
    relative, least = mpf(10) ** (17 - digits), mpf(10) ** -150

    def panel(u: mpf, v: mpf) -> mpf:
        centre, half = (u + v) / 2, (v - u) / 2
        return half * mp.fsum(weight * integrand(centre + half * node) for node, weight in rule)

    stack = [(u, v, panel(u, v)) for u, v in pairwise(sorted(set(points)))]
    estimate = mp.fsum(whole for _, _, whole in stack)
    for _ in range(5000):
        if not stack:
            return estimate
        u, v, whole = stack.pop()
        tolerance = max(estimate * relative, least)
        if whole < tolerance / 1000:
            continue
        centre = (u + v) / 2
        left, right = panel(u, centre), panel(centre, v)
        correction = left + right - whole
        estimate += correction
        if abs(correction) > tolerance:
            stack += [(u, centre, left), (centre, v, right)]
    raise ArithmeticError("the quadrature does not settle: not enough guard digits for these widths")


def _landmarks(piece: Piece) -> list[mpf]:
    """Where the piece changes character: its ends, and a ladder of sds (or of decay lengths, for a far cut tail)."""
    if isinstance(piece, Uniform):
        return [_real(piece.lo), _real(piece.hi)]
    centre, sd = _real(piece.mean), _real(piece.sd)
    marks = []
    if isinstance(piece, Truncated):
        lo, hi = _real(piece.lo), _real(piece.hi)
        marks = [lo, hi]
        peak = min(max(centre, lo), hi)
        steep = abs(peak - centre) / sd
        if steep > 1:
            marks += [peak + sign * sd / steep * k for k in (4, 8, 16, 24, 40, 60, 90, 130) for sign in (-1, 1)]
    reach = [centre + sign * sd * (3 * k + mpf(3) / 2) for k in range(6) for sign in (-1, 1)]
    return marks + reach


def _uniform_band(a: Uniform, b: Uniform, low: Fraction | None, high: Fraction | None) -> Fraction:
    """Exact: on each cell between kinks the mass of `b` is linear in x, so the midpoint rule has no error."""

    def mass(x: Fraction) -> Fraction:
        upper = Fraction(1) if low is None else _uniform_share(b.lo, b.hi, x - low)
        lower = Fraction(0) if high is None else _uniform_share(b.lo, b.hi, x - high)
        return upper - lower

    kinks = {end + t for t in (low, high) if t is not None for end in (b.lo, b.hi)}
    points = [a.lo, *sorted(k for k in kinks if a.lo < k < a.hi), a.hi]
    total = sum(((v - u) * mass((u + v) / 2) for u, v in pairwise(points)), Fraction(0))
    return total / (a.hi - a.lo)


def _piece_band(a: Piece, b: Piece, low: Fraction | None, high: Fraction | None) -> Fraction | mpf:
    """P(low <= A - B <= high) of two continuous pieces; None is an infinite end."""
    if isinstance(a, Uniform) and isinstance(b, Uniform):
        return _uniform_band(a, b, low, high)
    least = -mp.inf if low is None else _real(low)
    most = mp.inf if high is None else _real(high)
    if isinstance(a, Normal) and isinstance(b, Normal):
        sd = mp.sqrt(_real(a.sd**2 + b.sd**2))
        return _normal_mass(_real(a.mean - b.mean), sd, least, most)
    if isinstance(a, Normal):  # integrate over the bounded side
        return _piece_band(b, a, None if high is None else -high, None if low is None else -low)
    density, mass = _density_function(a), _mass_function(b)
    lo, hi = _real(a.lo), _real(a.hi)
    marks = _landmarks(a) + [m + t for m in _landmarks(b) for t in (least, most) if not mp.isinf(t)]
    return _integral(lambda x: density(x) * mass(x - most, x - least), [m for m in marks if lo < m < hi] + [lo, hi])


def _piece_mass(piece: Piece, low: Fraction | None, high: Fraction | None) -> Fraction | mpf:
    if isinstance(piece, Uniform):
        upper = Fraction(1) if high is None else _uniform_share(piece.lo, piece.hi, high)
        return upper - (Fraction(0) if low is None else _uniform_share(piece.lo, piece.hi, low))
    return _mass_function(piece)(-mp.inf if low is None else _real(low), mp.inf if high is None else _real(high))


def _plus(x: Fraction, end: Fraction | None, sign: int = 1) -> Fraction | None:
    return None if end is None else x + sign * end


@dataclass(frozen=True)
class _Window:
    """The set low..high of differences, each end open or closed; None is an infinite end."""

    low: Fraction | None
    high: Fraction | None
    low_closed: bool
    high_closed: bool

    @property
    def empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and not (self.low_closed and self.high_closed))

    def holds(self, x: Fraction, y: Fraction, ties: Ties) -> bool:
        """Whether the atoms x and y differ by something inside. The float rule is the engine's contract."""
        read = float if ties == "float" else Fraction
        gap = read(x) - read(y)
        above = self.low is None or gap > read(self.low) or (self.low_closed and gap == read(self.low))
        below = self.high is None or gap < read(self.high) or (self.high_closed and gap == read(self.high))
        return above and below


def _windows(
    low: Number | mpf, high: Number | mpf, low_closed: bool, high_closed: bool, outside: bool
) -> list[_Window]:
    """The asked set of differences as disjoint windows: a complement is added up, never subtracted from 1."""
    _demand(low < math.inf and high > -math.inf, f"an end at the wrong infinity: {low}, {high}")
    inside = _Window(_end(low), _end(high), low_closed, high_closed)
    if not outside:
        return [] if inside.empty else [inside]
    if inside.empty:
        return [_Window(None, None, False, False)]
    below = [] if inside.low is None else [_Window(None, inside.low, False, not low_closed)]
    above = [] if inside.high is None else [_Window(inside.high, None, not high_closed, False)]
    return below + above


def _terms(a: Value, b: Value, window: _Window, ties: Ties) -> list[tuple[Fraction, Fraction | mpf]]:
    """(weight, probability) for every pair of parts; their products add up to P(A - B in the window)."""
    left, right = _split(a), _split(b)
    low, high = window.low, window.high
    terms: list[tuple[Fraction, Fraction | mpf]] = []
    for wa, x in left.atoms:
        terms += [(wa * wb, Fraction(1)) for wb, y in right.atoms if window.holds(x, y, ties)]
        terms += [(wa * wb, _piece_mass(q, _plus(x, high, -1), _plus(x, low, -1))) for wb, q in right.pieces]
    for wa, p in left.pieces:
        terms += [(wa * wb, _piece_mass(p, _plus(y, low), _plus(y, high))) for wb, y in right.atoms]
        terms += [(wa * wb, _piece_band(p, q, low, high)) for wb, q in right.pieces]
    return terms


def probability_in(
    a: Value,
    b: Value,
    low: Number | mpf,
    high: Number | mpf,
    low_closed: bool = True,
    high_closed: bool = True,
    outside: bool = False,
    *,
    ties: Ties = "float",
    digits: int = WORKING_DIGITS,
) -> mpf:
    """P(low <= A - B <= high) for independent A and B, or with `outside` the probability of the complement.

    Ends may be infinite. At least 30 digits of the value (of a tail as small as 1e-100, too).
    """
    with mp.workdps(digits + _GUARD_DIGITS):
        windows = _windows(low, high, low_closed, high_closed, outside)
        return mp.fsum(_real(w) * _real(p) for window in windows for w, p in _terms(a, b, window, ties))


def rational_probability_in(
    a: Value,
    b: Value,
    low: Number,
    high: Number,
    low_closed: bool = True,
    high_closed: bool = True,
    outside: bool = False,
    *,
    ties: Ties = "float",
) -> Fraction:
    """The same, as an exact fraction; only for points, uniforms, histograms and samples."""
    _demand(_split(a).rational and _split(b).rational, "normals have no rational probabilities")
    windows = _windows(low, high, low_closed, high_closed, outside)
    return sum((w * p for window in windows for w, p in _terms(a, b, window, ties)), Fraction(0))


def difference_cdf(a: Value, b: Value, t: Number | mpf, *, ties: Ties = "float", digits: int = WORKING_DIGITS) -> mpf:
    """P(A - B <= t)."""
    return probability_in(a, b, -math.inf, t, ties=ties, digits=digits)


def difference_cdf_left(
    a: Value, b: Value, t: Number | mpf, *, ties: Ties = "float", digits: int = WORKING_DIGITS
) -> mpf:
    """P(A - B < t)."""
    return probability_in(a, b, -math.inf, t, high_closed=False, ties=ties, digits=digits)


# ---------------------------------------------------------------------------------------------------------------
# Fast engine: plain doubles
#
# Each piece lives in coordinates relative to a reference point of its own, and the one number that couples two
# pieces, `t + reference_b - reference_a`, is summed by fsum (one rounding). So a width of 1e-12 beside a position
# of 1e3 costs no digits. Only P(A - B <= t) is written out; everything else is that with roles and signs swapped.

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_ROOT_HALF = math.sqrt(0.5)
_MAPPED_ERFC = np.frompyfunc(math.erfc, 1, 1)


def _erfc(x: np.ndarray) -> np.ndarray:
    return _MAPPED_ERFC(x).astype(float)


def _mills(z: np.ndarray) -> np.ndarray:
    """exp(z^2/2) * integral of exp(-s^2/2) over s > z, for z >= 0: a continued fraction where erfc would underflow."""
    far = z > 8
    out = np.empty_like(z)
    near = z[~far]
    out[~far] = math.sqrt(math.pi / 2) * _erfc(near * _ROOT_HALF) * np.exp(near * near / 2)
    tail = z[far]
    fraction = tail.copy()
    for k in range(40, 0, -1):
        fraction = tail + k / fraction
    out[far] = 1 / fraction
    return out


def _scaled_mass(start: np.ndarray, stop: np.ndarray, z0: float) -> np.ndarray:
    """Integral of exp(-(z^2 - z0^2)/2) from z0 + start to z0 + stop, to full relative accuracy.

    Either z0 = 0, or z0 > 0 and both offsets are >= 0 (a cut tail seen from its steep end).
    """
    u, v, width = z0 + start, z0 + stop, stop - start
    out = np.zeros_like(width)
    steep = width * np.maximum(1.0, np.maximum(np.abs(u), np.abs(v)))
    narrow = (width > 0) & (steep <= 2)  # a difference of tails would cancel; the integrand is almost flat
    if narrow.any():
        e = start[narrow, None] + width[narrow, None] * (0.5 + 0.5 * _NODES)
        out[narrow] = width[narrow] / 2 * (np.exp(-e * (e + 2 * z0) / 2) @ _NODE_WEIGHTS)
    wide = (width > 0) & ~narrow
    astride = wide & (u < 0) & (v > 0)  # only with z0 = 0
    if astride.any():
        halves = 2 - _erfc(v[astride] * _ROOT_HALF) - _erfc(-u[astride] * _ROOT_HALF)
        out[astride] = math.sqrt(math.pi / 2) * halves
    one_sided = wide & ~astride
    if one_sided.any():
        left = (v <= 0)[one_sided]
        near = np.where(left, -stop[one_sided], start[one_sided])
        far = np.where(left, -start[one_sided], stop[one_sided])
        at_near = _mills(z0 + near) * np.exp(-near * (near + 2 * z0) / 2)
        out[one_sided] = at_near - _mills(z0 + far) * np.exp(-far * (far + 2 * z0) / 2)
    return out


class _FastUniform:
    """Uniform on [lo, hi]; local coordinate x - lo."""

    def __init__(self, lo: float, hi: float) -> None:
        self.lo, self.hi, self.reference = lo, hi, lo
        self.span = (0.0, hi - lo)
        self.marks = np.array(self.span)

    def density(self, x: np.ndarray) -> np.ndarray:
        return np.full_like(x, 1 / self.span[1])

    def below(self, x: np.ndarray) -> np.ndarray:
        return np.clip(x / self.span[1], 0.0, 1.0)

    def above(self, x: np.ndarray) -> np.ndarray:
        return np.clip((self.span[1] - x) / self.span[1], 0.0, 1.0)


class _FastNormal:
    """Normal; local coordinate x - mean."""

    def __init__(self, mean: float, sd: float) -> None:
        self.sd, self.reference = sd, mean
        self.span = (-math.inf, math.inf)
        self.marks = sd * np.arange(-10.0, 10.5, 2.0)

    def below(self, x: np.ndarray) -> np.ndarray:
        return 0.5 * _erfc(-x * (_ROOT_HALF / self.sd))

    def above(self, x: np.ndarray) -> np.ndarray:
        return 0.5 * _erfc(x * (_ROOT_HALF / self.sd))


class _FastTruncated:
    """Cut normal; local coordinate x - peak, the peak being the mean clamped to [lo, hi].

    Internally e = sign * (x - peak) / sd and z0 = |peak - mean| / sd, so a cut tail always decays to the right and
    only exp(-e (e + 2 z0) / 2) is ever computed: nothing underflows however far the mean is.
    """

    def __init__(self, mean: float, sd: float, lo: float, hi: float) -> None:
        peak = min(max(mean, lo), hi)
        self.sd, self.reference = sd, peak
        self.lo, self.hi = lo, hi
        self.span = (lo - peak, hi - peak)
        self.sign = -1.0 if mean > hi else 1.0
        self.z0 = abs(peak - mean) / sd
        ends = sorted(self.sign * x / sd for x in self.span)
        self.start, self.stop = ends
        self.whole = float(_scaled_mass(np.array([self.start]), np.array([self.stop]), self.z0)[0])
        ladder = sd / max(1.0, self.z0) * np.array([2.0, 4, 6, 8, 10, 13, 17, 22, 28, 36, 45])
        self.marks = np.concatenate([self.span, -ladder, [0.0], ladder])

    def _offsets(self, x: np.ndarray) -> np.ndarray:
        return np.clip(self.sign * x / self.sd, self.start, self.stop)

    def density(self, x: np.ndarray) -> np.ndarray:
        e = self._offsets(x)
        return np.exp(-e * (e + 2 * self.z0) / 2) / (self.whole * self.sd)

    def below(self, x: np.ndarray) -> np.ndarray:
        e = self._offsets(x)
        ends = (np.full_like(e, self.start), e) if self.sign > 0 else (e, np.full_like(e, self.stop))
        return np.minimum(1.0, _scaled_mass(*ends, self.z0) / self.whole)

    def above(self, x: np.ndarray) -> np.ndarray:
        e = self._offsets(x)
        ends = (e, np.full_like(e, self.stop)) if self.sign > 0 else (np.full_like(e, self.start), e)
        return np.minimum(1.0, _scaled_mass(*ends, self.z0) / self.whole)


_FastPiece = _FastUniform | _FastNormal | _FastTruncated


@dataclass(frozen=True, eq=False)
class _FastSplit:
    at: np.ndarray
    at_weights: np.ndarray
    pieces: tuple[tuple[float, _FastPiece], ...]


@lru_cache(maxsize=100_000)
def _fast_split(a: Value) -> _FastSplit:
    split = _split(a)
    pieces: list[tuple[float, _FastPiece]] = []
    for weight, p in split.pieces:
        if isinstance(p, Uniform):
            piece: _FastPiece = _FastUniform(float(p.lo), float(p.hi))
        elif isinstance(p, Normal):
            piece = _FastNormal(float(p.mean), float(p.sd))
        else:
            piece = _FastTruncated(float(p.mean), float(p.sd), float(p.lo), float(p.hi))
        pieces.append((float(weight), piece))
    at = np.array([float(x) for _, x in split.atoms])
    return _FastSplit(at, np.array([float(w) for w, _ in split.atoms]), tuple(pieces))


def _unit(x: float) -> float:
    return min(max(x, 0.0), 1.0)


def _uniforms_below(a: _FastUniform, b: _FastUniform, t: float) -> float:
    """P(A - B <= t): the average over v in [0, 1] of clamp((room - wb v) / wa), a ramp integrated by its corners."""
    room = math.fsum((t, b.hi, -a.lo))
    if room <= 0:
        return 0.0
    if math.fsum((t, b.lo, -a.hi)) >= 0:
        return 1.0
    wa, wb = a.span[1], b.span[1]
    full_until = _unit(math.fsum((t, b.hi, -a.hi)) / wb)
    zero_from = _unit(room / wb)
    left = 1.0 if full_until > 0 else _unit(room / wa)
    right = 0.0 if zero_from < 1 else _unit(math.fsum((t, b.lo, -a.lo)) / wa)
    return full_until + (zero_from - full_until) * (left + right) / 2


def _panels(piece: _FastUniform | _FastTruncated, marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and probability weights of a bounded piece on panels that end at the marks."""
    lo, hi = piece.span
    ends = np.unique(np.concatenate([[lo, hi], marks[(marks > lo) & (marks < hi)]]))
    half = np.diff(ends)[:, None] / 2
    nodes = (ends[:-1, None] + half + half * _NODES).ravel()
    return nodes, (half * _NODE_WEIGHTS).ravel() * piece.density(nodes)


def _pieces_below(a: _FastPiece, b: _FastPiece, t: float) -> float:
    if isinstance(a, _FastUniform) and isinstance(b, _FastUniform):
        return _uniforms_below(a, b, t)
    offset = math.fsum((t, b.reference, -a.reference))  # local coordinates: x - y <= offset
    if isinstance(a, _FastNormal) and isinstance(b, _FastNormal):
        return 0.5 * math.erfc(-offset / math.hypot(a.sd, b.sd) * _ROOT_HALF)
    if not isinstance(a, _FastNormal) and not isinstance(b, _FastNormal):
        if math.fsum((t, b.hi, -a.lo)) <= 0:
            return 0.0
        if math.fsum((t, b.lo, -a.hi)) >= 0:
            return 1.0
    if isinstance(a, _FastNormal):
        nodes, weights = _panels(b, np.concatenate([b.marks, a.marks - offset]))
        return _unit(float(weights @ a.below(nodes + offset)))
    nodes, weights = _panels(a, np.concatenate([a.marks, b.marks + offset]))
    return _unit(float(weights @ b.above(nodes - offset)))


def _atoms_against(piece: _FastPiece, at: np.ndarray, weights: np.ndarray, t: float, *, below: bool) -> float:
    """Sum over atoms of w P(piece <= at + t), or P(piece >= at + t)."""
    x = np.array([math.fsum((v, t, -piece.reference)) for v in at])
    return float(weights @ (piece.below(x) if below else piece.above(x)))


def _continuous_band(tail: Callable[[float, bool], float], low: float, high: float) -> float:
    """P(low <= D <= high) from P(D <= t) and P(D >= t) of an atom-free D, from the side where little cancels."""
    if low == -math.inf:
        return 1.0 if high == math.inf else tail(high, True)
    if high == math.inf:
        return tail(low, False)
    beneath = tail(low, True)
    if beneath <= 0.5:
        return max(0.0, tail(high, True) - beneath)
    return max(0.0, tail(low, False) - tail(high, False))


def _fast_band(a: _FastSplit, b: _FastSplit, low: float, high: float, low_closed: bool, high_closed: bool) -> float:
    total = 0.0
    if a.at.size and b.at.size:
        total += float(a.at_weights @ _hits(a.at, b.at, low, high, low_closed, high_closed) @ b.at_weights)

    def atom_below(p: _FastPiece, q: _FastSplit) -> Callable[[float, bool], float]:
        return lambda t, below: _atoms_against(p, q.at, q.at_weights, t, below=below)

    def piece_pair(p: _FastPiece, q: _FastPiece) -> Callable[[float, bool], float]:
        return lambda t, below: _pieces_below(p, q, t) if below else _pieces_below(q, p, -t)

    for wa, p in a.pieces:
        if b.at.size:
            total += wa * _continuous_band(atom_below(p, b), low, high)
        for wb, q in b.pieces:
            total += wa * wb * _continuous_band(piece_pair(p, q), low, high)
    if a.at.size:
        for wb, q in b.pieces:  # x - Y in [low, high] is Y - x in [-high, -low]
            total += wb * _continuous_band(atom_below(q, a), -high, -low)
    return total


def _hits(x: np.ndarray, y: np.ndarray, low: float, high: float, low_closed: bool, high_closed: bool) -> np.ndarray:
    """The engine's rule for two atoms: one float subtraction, compared as it comes out."""
    gap = x[:, None] - y[None, :]
    above = gap >= low if low_closed else gap > low
    return above & (gap <= high if high_closed else gap < high)


def probability_float(
    a: Value,
    b: Value,
    low: float,
    high: float,
    low_closed: bool = True,
    high_closed: bool = True,
    outside: bool = False,
) -> float:
    """`probability_in` in doubles: absolute error about 1e-13 (mostly 1e-15), ties by the float rule.

    It is exactly 0 where the supports rule the window out; a positive probability below 1e-16 may come out as 0, too
    (`is_possible` tells the two apart).
    """
    left, right = _fast_split(a), _fast_split(b)
    total = 0.0
    for w in _windows(low, high, low_closed, high_closed, outside):
        least = -math.inf if w.low is None else float(w.low)
        most = math.inf if w.high is None else float(w.high)
        total += _fast_band(left, right, least, most, w.low_closed, w.high_closed)
    return _unit(total)


def is_possible(
    a: Value,
    b: Value,
    low: float,
    high: float,
    low_closed: bool = True,
    high_closed: bool = True,
    outside: bool = False,
) -> bool:
    """Whether the probability is positive, decided by comparing the ends of the supports exactly."""
    left, right = _split(a), _split(b)

    def meets(p: Piece | Point, q: Piece | Point, window: _Window) -> bool:
        if isinstance(p, Point) and isinstance(q, Point):
            return window.holds(p.v, q.v, "float")
        if isinstance(p, Normal) or isinstance(q, Normal):
            return window.low is None or window.high is None or window.low < window.high
        ends = [(x.v, x.v) if isinstance(x, Point) else (x.lo, x.hi) for x in (p, q)]
        least, most = ends[0][0] - ends[1][1], ends[0][1] - ends[1][0]
        reaches = (window.low is None or most > window.low) and (window.high is None or least < window.high)
        return reaches and (window.low is None or window.high is None or window.low < window.high)

    parts = [[Point(x) for _, x in split.atoms] + [p for _, p in split.pieces] for split in (left, right)]
    windows = _windows(low, high, low_closed, high_closed, outside)
    return any(meets(p, q, window) for window in windows for p in parts[0] for q in parts[1])


def float_slack(a: Value, b: Value, low: float, high: float, roundings: int = 4) -> float:
    """How far P can move when A - B is displaced by a few float64 roundings of the numbers involved.

    An engine that subtracts positions in doubles cannot do better than this on values with widths of 1e-12 at 1e3,
    so a test on nasty values may add it to its tolerance. It is 0 between atoms: their rule is exact.
    """
    left, right = _split(a), _split(b)

    def sizes(split: _Split) -> float:
        marks = [abs(float(x)) for _, x in split.atoms]
        for _, p in split.pieces:
            marks += [abs(float(getattr(p, name))) for name in ("lo", "hi", "mean") if hasattr(p, name)]
        return max(marks)

    def peak(p: Piece) -> float:
        if isinstance(p, Uniform):
            return 1 / float(p.hi - p.lo)
        if isinstance(p, Normal):
            return 0.4 / float(p.sd)
        fast = _FastTruncated(float(p.mean), float(p.sd), float(p.lo), float(p.hi))
        return 1 / (fast.whole * fast.sd)

    ends = [abs(float(t)) for t in (low, high) if math.isfinite(t)]
    shift = roundings * 2.0**-52 * max([sizes(left), sizes(right), *ends])
    heights_a = [(float(w), math.inf) for w, _ in left.atoms] + [(float(w), peak(p)) for w, p in left.pieces]
    heights_b = [(float(w), math.inf) for w, _ in right.atoms] + [(float(w), peak(p)) for w, p in right.pieces]
    moved = 0.0
    for wa, ha in heights_a:
        for wb, hb in heights_b:
            height = min(ha, hb)
            moved += wa * wb * min(1.0, len(ends) * shift * height) if height < math.inf else 0.0
    return moved


# ---------------------------------------------------------------------------------------------------------------
# Decisions and joins


def keeps(
    p: float | Fraction | mpf, threshold: float | None, strict: bool = False, equal_weights: bool = False
) -> bool:
    """The decision rule. With `equal_weights`, p is the exact fraction count / (n m) and the threshold is read as the
    decimal it prints; otherwise the threshold has a margin of 1e-12 in favour of keeping (strict: of dropping)."""
    if p == 0:
        return False
    if threshold is None:
        return True
    if equal_weights:
        limit = Fraction(str(float(threshold)))
        return Fraction(p) > limit if strict else Fraction(p) >= limit
    return p > threshold + 1e-12 if strict else p >= threshold - 1e-12


def borderline(p: float | Fraction | mpf, threshold: float | None) -> bool:
    """Whether p is too near the threshold to be judged by an independent computation, so a test should skip the pair.

    A Fraction is exact and never borderline: equal-weight samples, one variable with itself, supports that rule the
    pair out. Without a threshold, any other p below 1e-15 is: both its digits and its being 0 may be rounding.
    """
    if isinstance(p, Fraction):
        return False
    return bool(p < 1e-15) if threshold is None else bool(abs(p - threshold) < 1e-9)


def pair_probability(
    a: Value,
    b: Value,
    low: float,
    high: float,
    low_closed: bool = True,
    high_closed: bool = True,
    outside: bool = False,
    same: bool = False,
) -> float | Fraction:
    """The probability a join works with: a Fraction where the decision is exact, a float elsewhere.

    `same` says that both are one variable: the difference is then 0 whatever the distribution.
    """
    if same:
        a = b = Point(0)
    if is_equal_weight(a) and is_equal_weight(b):
        x, y = (np.array([float(v) for v in (c.points if isinstance(c, Discrete) else (c.v,))]) for c in (a, b))
        inside = int(_hits(x, y, low, high, low_closed, high_closed).sum())
        return Fraction(x.size * y.size - inside if outside else inside, x.size * y.size)
    p = probability_float(a, b, low, high, low_closed, high_closed, outside)
    if p < 1e-15 and not is_possible(a, b, low, high, low_closed, high_closed, outside):
        return Fraction(0)
    return p


def brute_force_probabilities(
    lefts: Sequence[Value | None],
    rights: Sequence[Value | None],
    low: float,
    high: float,
    low_closed: bool = True,
    high_closed: bool = True,
    outside: bool = False,
    same: Callable[[int, int], bool] | None = None,
) -> dict[Pair, float | Fraction]:
    """The probability of every pair without a null, kept or not: what `borderline` needs to see."""
    return {
        (i, j): pair_probability(
            a, b, low, high, low_closed, high_closed, outside, same=bool(same is not None and same(i, j))
        )
        for i, a in enumerate(lefts)
        if a is not None
        for j, b in enumerate(rights)
        if b is not None
    }


def brute_force_join(
    lefts: Sequence[Value | None],
    rights: Sequence[Value | None],
    low: float,
    high: float,
    low_closed: bool = True,
    high_closed: bool = True,
    outside: bool = False,
    threshold: float | None = None,
    strict: bool = False,
    same: Callable[[int, int], bool] | None = None,
) -> dict[Pair, float]:
    """Every kept pair (i, j) with its probability, by looking at all of them. None is a null and matches nothing."""
    every = brute_force_probabilities(lefts, rights, low, high, low_closed, high_closed, outside, same)
    return kept_pairs(every, threshold, strict)


def kept_pairs(
    probabilities: dict[Pair, float | Fraction], threshold: float | None, strict: bool = False
) -> dict[Pair, float]:
    """The pairs the rule keeps: several thresholds can be tried on one table of probabilities."""
    return {
        pair: float(p)
        for pair, p in probabilities.items()
        if keeps(p, threshold, strict, equal_weights=isinstance(p, Fraction))
    }


def borderline_pairs(probabilities: dict[Pair, float | Fraction], threshold: float | None) -> set[Pair]:
    """The hair-line pairs, kept or not, on which two sound computations may disagree."""
    return {pair for pair, p in probabilities.items() if borderline(p, threshold)}


# ---------------------------------------------------------------------------------------------------------------
# Concentration


def _window_masses(split: _FastSplit, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """P(low <= A <= high) for many windows at once."""
    inside = (split.at >= low[:, None]) & (split.at <= high[:, None])
    total = inside @ split.at_weights if split.at.size else np.zeros(low.size)
    for weight, piece in split.pieces:
        u, v = low - piece.reference, high - piece.reference
        beneath = piece.below(u)
        from_left = piece.below(v) - beneath
        total = total + weight * np.where(beneath <= 0.5, from_left, piece.above(u) - piece.above(v))
    return total


def concentration(a: Value, w: float) -> float:
    """sup over y of P(y <= A <= y + w), the closed window.

    Exact (rounded once) for points, uniforms, histograms and samples: the mass is piecewise linear in y, so a window
    with an end on a breakpoint attains the supremum. For normals and mixtures a grid of a twentieth of an sd around
    every component is refined by golden section: the result is attained by some window, so it exceeds the supremum by
    rounding at most (1e-14), and falls short of it by less than 1e-9 unless two sds differ by more than about 1e6.
    """
    _demand(w >= 0, f"negative window {w}")
    split = _split(a)
    if split.rational:
        width = Fraction(w)
        points = {at for _, at in split.atoms} | {x for _, p in split.pieces for x in (p.lo, p.hi)}
        starts = points | {x - width for x in points}
        best = max(_rational_cdf(split, y + width, closed=True) - _rational_cdf(split, y, closed=False) for y in starts)
        return float(best)
    fast = _fast_split(a)
    marks = list(fast.at)
    for _, piece in fast.pieces:
        if isinstance(piece, _FastNormal):
            marks += list(piece.reference + piece.sd * np.linspace(-8, 8, 321))
        else:
            lo, hi = piece.span
            near = np.concatenate([piece.marks, np.linspace(lo, hi, 321)])
            if isinstance(piece, _FastTruncated):
                near = np.concatenate([near, piece.sd / max(1.0, piece.z0) * np.linspace(-8, 8, 321)])
            marks += list(piece.reference + near[(near >= lo) & (near <= hi)])
    ends = np.array(marks)
    grid = np.unique(np.concatenate([ends, ends - w, ends - w / 2]))
    masses = _window_masses(fast, grid, grid + w)
    # a window that ends on an atom must not lose it to the rounding of y + w
    best = max(float(masses.max()), *_window_masses(fast, ends - w, ends))
    before = np.concatenate([[-1.0], masses[:-1]])
    after = np.concatenate([masses[1:], [-1.0]])
    tops = np.flatnonzero((masses >= before) & (masses >= after) & (masses >= best - 0.01))
    low, high = grid[np.maximum(tops - 1, 0)], grid[np.minimum(tops + 1, grid.size - 1)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        u, v = high - golden * (high - low), low + golden * (high - low)
        at_u, at_v = _window_masses(fast, u, u + w), _window_masses(fast, v, v + w)
        best = max(best, float(at_u.max()), float(at_v.max()))
        low, high = np.where(at_u >= at_v, low, u), np.where(at_u >= at_v, v, high)
    return min(1.0, best)


# ---------------------------------------------------------------------------------------------------------------
# Random values


def random_value(
    rng: np.random.Generator,
    kind: str,
    scale: float = 1.0,
    center_range: tuple[float, float] = (-5.0, 5.0),
    nasty: bool = False,
) -> Value:
    """A random value of one of KINDS, about `scale` wide, centred in `center_range`; always valid input for haply.

    `nasty` picks one trouble: widths of 1e-12 to 1e-6, ends and points on a grid of 0.25 (ties), far outliers,
    atoms in disguise (sd = 0, lo = hi), weights and buckets of probability 0, means far outside the cut.
    """
    centre = float(rng.uniform(*center_range))
    size = float(scale * rng.uniform(0.2, 2.0))
    if nasty:
        return _nasty_value(rng, kind, scale, centre, size)
    count = int(rng.integers(2, 6))
    if kind == "point":
        return Point(centre)
    if kind == "uniform":
        return Uniform(centre - size / 2, centre + size / 2)
    if kind == "normal":
        return Normal(centre, size / 2)
    if kind == "truncated":
        ends = sorted(float(x) for x in centre + size * rng.uniform(-2, 2, 2))
        return Truncated(centre, size / 2, ends[0], ends[1] + 0.01 * scale)
    if kind == "mixture":
        means = centre + size * rng.normal(size=count)
        return NormalMixture(_random_probs(rng, count), _floats(means), _floats(size * rng.uniform(0.1, 1, count)))
    if kind == "hist":
        edges = centre + size * np.cumsum(rng.uniform(0.05, 0.7, count + 1))
        return Hist(_floats(edges), _random_probs(rng, count))
    if kind == "discrete":
        points = centre + size * rng.normal(size=count)
        return Discrete(_floats(points), None if rng.random() < 0.5 else _random_probs(rng, count))
    raise ValueError(f"unknown kind {kind!r}, expected one of {KINDS}")


def _floats(xs: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(x) for x in xs)


def _random_probs(rng: np.random.Generator, count: int, zeros: bool = False) -> tuple[float, ...]:
    raw = rng.uniform(0.05, 1.0, count)
    if zeros and count > 1:
        raw[rng.permutation(count)[: int(rng.integers(1, count))]] = 0.0
    return _floats(raw / raw.sum())


def _snap(x: float) -> float:
    return round(4 * x) / 4


def _nasty_value(rng: np.random.Generator, kind: str, scale: float, centre: float, size: float) -> Value:
    trouble = str(rng.choice(["tiny", "grid", "outlier", "atom", "zeros"]))
    count = int(rng.integers(2, 6))
    tiny = float(scale * 10 ** rng.uniform(-12, -6))
    far = float(rng.choice([-1, 1]) * scale * 10 ** rng.uniform(3, 6))
    if kind == "point":
        return Point(centre + far if trouble == "outlier" else _snap(centre))
    if kind == "uniform":
        if trouble in ("atom", "zeros"):
            return Uniform(_snap(centre), _snap(centre))
        if trouble == "outlier":
            return Uniform(centre + far, centre + far + size)
        if trouble == "grid":
            return Uniform(_snap(centre), _snap(centre) + 0.25 * int(rng.integers(1, 9)))
        return Uniform(centre, centre + tiny)
    if kind == "normal":
        if trouble in ("atom", "zeros"):
            return Normal(_snap(centre), 0.0)
        return Normal(centre + far if trouble == "outlier" else _snap(centre), tiny if trouble == "tiny" else size)
    if kind == "truncated":
        low = _snap(centre)
        if trouble == "tiny":
            narrow_cut = bool(rng.random() < 0.5)
            return Truncated(centre, size, low, low + tiny) if narrow_cut else Truncated(low, tiny, low - 2, low + 2)
        if trouble == "outlier":  # only a far tail of the normal survives the cut
            return Truncated(low + float(rng.choice([-1, 1]) * rng.uniform(5, 45)) * size, size, low, low + size)
        if trouble == "grid":
            return Truncated(low, size, low, low + 0.25 * int(rng.integers(1, 9)))
        return Truncated(centre, 0.0, low, low + 1) if trouble == "atom" else Truncated(centre, size, low, low)
    if kind == "mixture":
        means = centre + size * rng.normal(size=count)
        sds = size * rng.uniform(0.1, 1, count)
        if trouble == "tiny":
            sds[0] = tiny
        elif trouble in ("atom", "grid"):
            means = np.array([_snap(m) for m in means])
            sds[: count if trouble == "atom" else 1] = 0.0
        elif trouble == "outlier":
            means[0] += far
        return NormalMixture(_random_probs(rng, count, trouble == "zeros"), _floats(means), _floats(sds))
    if kind == "hist":
        widths = size * rng.uniform(0.05, 0.7, count)
        if trouble == "tiny":
            widths[int(rng.integers(count))] = tiny
        elif trouble in ("grid", "atom"):
            centre, widths = _snap(centre), 0.25 * rng.integers(1, 5, count)
        elif trouble == "outlier":
            widths[int(rng.integers(count))] = abs(far)
        edges = centre + np.concatenate([[0.0], np.cumsum(widths)])
        edges = np.maximum.accumulate(edges)
        for k in range(1, edges.size):  # a tiny width may have been rounded away
            edges[k] = max(edges[k], np.nextafter(edges[k - 1], np.inf))
        return Hist(_floats(edges), _random_probs(rng, count, zeros=trouble in ("zeros", "atom")))
    if kind == "discrete":
        points = centre + size * rng.normal(size=count)
        if trouble in ("grid", "atom", "zeros"):
            points = np.array([_snap(x) for x in points])
        if trouble == "outlier":
            points[0] += far
        if trouble == "tiny":
            points = centre + tiny * rng.normal(size=count)
        weighted = trouble == "zeros" or rng.random() < 0.3
        return Discrete(_floats(points), _random_probs(rng, count, trouble == "zeros") if weighted else None)
    raise ValueError(f"unknown kind {kind!r}, expected one of {KINDS}")
