"""An independent referee for the uncertain similarity join: quadratic, plain, and sharing no line with haply.

An uncertain object is a cloud of weighted samples. Weights are exact rationals; distances are doubles, compared in one
way only: `sqrt` of the squares added coordinate by coordinate, `<= eps`. So a probability is the exact sum of the
weights of those sample pairs that a double calls close, and a tie with the threshold is a tie.

Every bound is written as the set of sample pairs it speaks about, an `l_x` by `l_y` array of booleans, and that set's
weight. With `slack=0` the comparisons are the textbook's; rounded radii and centres can then miss a distance that
equals `eps` to the last bit. `slack=safe_slack(a, b, eps)` moves each comparison to the side on which the bound holds
for the doubles that `probability` sees.

The rules are those of the sliding-window similarity join of uncertain streams (object-level and sample-level pruning)
and the tighter bounds that use the same radii. The threshold is called `gamma` where a rule uses it and `threshold`
where a pair is decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Number = int | float | Fraction
Threshold = int | float | str | Fraction
Pair = tuple[int, int]
Bounds = tuple[Fraction, Fraction]
Kind = Literal["ball", "gaussian", "lattice", "one", "same", "line", "two_clusters"]

KINDS: tuple[Kind, ...] = get_args(Kind)
TOLERANCE = Fraction(1, 10**12)
ZERO = Fraction(0)


# ---------------------------------------------------------------------------------------------------------------
# Clouds


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, eq=False)
class Cloud:
    """Samples (n by d) and their weights; `weights=None` means equal weights, which are decided without tolerance."""

    points: Floats
    weights: tuple[Fraction, ...] | None = None

    def __post_init__(self) -> None:
        _demand(self.points.ndim == 2 and min(self.points.shape) > 0, f"not n by d: {self.points.shape}")
        _demand(bool(np.isfinite(self.points).all()), "coordinates must be finite")
        if self.weights is not None:
            _demand(len(self.weights) == len(self.points), f"{len(self.weights)} weights, {len(self.points)} points")
            _demand(min(self.weights) >= 0 and sum(self.weights) > 0, f"not weights: {self.weights}")

    def __len__(self) -> int:
        return len(self.points)

    @property
    def dim(self) -> int:
        return self.points.shape[1]

    @property
    def exact_weights(self) -> tuple[Fraction, ...]:
        """One weight per sample, also where they are equal."""
        return self.weights if self.weights is not None else (Fraction(1, len(self)),) * len(self)

    @property
    def mass(self) -> Fraction:
        """The sum of the weights: 1, but for weights that came from floats and are not normalised."""
        return sum(self.exact_weights, ZERO)

    @property
    def float_weights(self) -> list[float] | None:
        """The nearest doubles, as a library would be given them; None for equal weights."""
        return None if self.weights is None else [float(weight) for weight in self.weights]


def cloud(points: ArrayLike, weights: Iterable[Number | str] | None = None) -> Cloud:
    """A cloud from lists. Plain numbers are 1-D samples; a float weight means its binary value, "0.1" the decimal."""
    array = np.array(points, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    array.flags.writeable = False
    return Cloud(array, None if weights is None else tuple(Fraction(weight) for weight in weights))


def with_float_weights(a: Cloud) -> Cloud:
    """The same cloud with each weight rounded to a double and not normalised: what a library actually sees."""
    return Cloud(a.points, None if a.float_weights is None else tuple(Fraction(w) for w in a.float_weights))


# ---------------------------------------------------------------------------------------------------------------
# Probability and decision


def _length(vectors: Floats) -> Floats:
    """Euclidean length along the last axis; squares are added one by one in order, so the rounding is defined."""
    total = np.zeros(vectors.shape[:-1])
    for c in range(vectors.shape[-1]):
        total = total + vectors[..., c] * vectors[..., c]
    return np.sqrt(total)


def distances(x: Floats, y: Floats) -> Floats:
    """All distances of the rows of x from the rows of y, l_x by l_y."""
    return _length(x[:, None, :] - y[None, :, :])


def within(x: Floats, y: Floats, eps: float) -> Mask:
    """Which sample pairs are close: the only place where a distance is decided."""
    return distances(x, y) <= eps


def pair_mass(a: Cloud, b: Cloud, mask: Mask) -> Fraction:
    """The weight of a set of sample pairs; for equal weights a count over l_x * l_y."""
    if a.weights is None and b.weights is None:
        return Fraction(int(np.count_nonzero(mask)), mask.size)
    return sum(_row_masses(a, b, mask), ZERO)


def _row_masses(a: Cloud, b: Cloud, mask: Mask) -> list[Fraction]:
    right = b.exact_weights
    return [
        weight * sum((right[m] for m in np.flatnonzero(row)), ZERO)
        for weight, row in zip(a.exact_weights, mask, strict=True)
    ]


def probability(a: Cloud, b: Cloud, eps: float) -> Fraction:
    """The exact weight of the sample pairs within eps. Not divided by the masses."""
    return pair_mass(a, b, within(a.points, b.points, eps))


def as_decimal(threshold: Threshold) -> Fraction:
    """A threshold is the decimal it prints: 0.3 is 3/10, not the double below it."""
    return Fraction(str(threshold))


def keeps(a: Cloud, b: Cloud, eps: float, threshold: Threshold | None, strict: bool = False) -> bool:
    """Whether the join returns the pair: exactly for two clouds of equal weights, within a tolerance otherwise."""
    return _decides(a, b, probability(a, b, eps), threshold, strict)


def _decides(a: Cloud, b: Cloud, p: Fraction, threshold: Threshold | None, strict: bool) -> bool:
    if p == 0:
        return False
    if threshold is None:
        return True
    edge = _edge(a, b, threshold, strict)
    return p > edge if strict else p >= edge


def _edge(a: Cloud, b: Cloud, threshold: Threshold, strict: bool) -> Fraction:
    """The probability at which the decision turns."""
    if a.weights is None and b.weights is None:
        return as_decimal(threshold)
    return as_decimal(threshold) + (TOLERANCE if strict else -TOLERANCE)


def borderline(
    a: Cloud, b: Cloud, eps: float, threshold: Threshold | None, strict: bool = False, margin: float = 1e-11
) -> bool:
    """Whether rounding alone may decide the pair: weighted, possible, and within `margin` of the edge.

    The default margin is wider than the tolerance, so it covers P = threshold too. A sum of doubles is good to 1e-15
    or so: with `margin=1e-13` a tie is no longer borderline and must be decided as `keeps` says.
    """
    if threshold is None or (a.weights is None and b.weights is None):
        return False
    p = probability(a, b, eps)
    return p > 0 and abs(p - _edge(a, b, threshold, strict)) <= as_decimal(margin)


# ---------------------------------------------------------------------------------------------------------------
# Sliding windows. Times are integers or fractions; floats work where their sums and differences are exact.


def live_span(ti: Number, tj: Number, window: Number | None) -> tuple[Number, Number] | None:
    """First and last time at which both are in the window, None for never; no window never ends."""
    if window is None:
        return max(ti, tj), math.inf
    if abs(ti - tj) > window:
        return None
    return max(ti, tj), min(ti, tj) + window


def window_pairs(left_times: Sequence[Number], right_times: Sequence[Number], window: Number | None) -> list[Pair]:
    """The positions of all pairs that are ever live together, left first."""
    return [
        (i, j)
        for i, ti in enumerate(left_times)
        for j, tj in enumerate(right_times)
        if window is None or abs(ti - tj) <= window
    ]


def answers_at(
    t: Number,
    lefts: Sequence[Cloud],
    rights: Sequence[Cloud],
    left_times: Sequence[Number],
    right_times: Sequence[Number],
    *,
    window: Number | None,
    eps: float,
    threshold: Threshold | None,
    strict: bool = False,
) -> set[Pair]:
    """The answer at time t, from scratch: both windows are cut anew and every pair in them is decided anew."""

    def in_window(times: Sequence[Number]) -> list[int]:
        return [k for k, time in enumerate(times) if time <= t and (window is None or t - time <= window)]

    _demand(len(lefts) == len(left_times) and len(rights) == len(right_times), "one time per cloud")
    return {
        (i, j)
        for i in in_window(left_times)
        for j in in_window(right_times)
        if keeps(lefts[i], rights[j], eps, threshold, strict)
    }


def all_pairs(
    lefts: Sequence[Cloud],
    rights: Sequence[Cloud],
    left_times: Sequence[Number],
    right_times: Sequence[Number],
    *,
    window: Number | None,
    eps: float,
    threshold: Threshold | None = None,
    strict: bool = False,
) -> dict[Pair, Fraction]:
    """Every pair that is an answer at some time, with its probability; without a threshold, every possible pair."""
    _demand(len(lefts) == len(left_times) and len(rights) == len(right_times), "one time per cloud")
    found = {(i, j): probability(lefts[i], rights[j], eps) for i, j in window_pairs(left_times, right_times, window)}
    return {(i, j): p for (i, j), p in found.items() if _decides(lefts[i], rights[j], p, threshold, strict)}


# ---------------------------------------------------------------------------------------------------------------
# Centres and radii


def safe_slack(a: Cloud, b: Cloud, eps: float) -> float:
    """A distance above the rounding of every centre, radius and projection, and still far below any real gap."""
    return 1e-12 * max(1.0, float(np.abs(a.points).max()), float(np.abs(b.points).max()), eps)


def centre(a: Cloud, *, weighted_centre: bool = False) -> Floats:
    """The mean of the samples. Any centre makes valid bounds; the weighted one only makes other bounds."""
    if not weighted_centre or a.weights is None:
        return a.points.mean(axis=0)
    weights = np.array(a.float_weights)
    return (weights[:, None] * a.points).sum(axis=0) / weights.sum()


def radii(a: Cloud, *, weighted_centre: bool = False) -> Floats:
    """Distance of each sample from the centre, in the order of the samples."""
    return _length(a.points - centre(a, weighted_centre=weighted_centre))


def radius(a: Cloud, *, weighted_centre: bool = False) -> float:
    """The sphere about the centre that holds every sample."""
    return float(radii(a, weighted_centre=weighted_centre).max())


def centre_distance(a: Cloud, b: Cloud, *, weighted_centre: bool = False) -> float:
    return float(_length(centre(b, weighted_centre=weighted_centre) - centre(a, weighted_centre=weighted_centre)))


def radial_profile(a: Cloud, *, weighted_centre: bool = False) -> tuple[list[float], list[Fraction]]:
    """Radii in ascending order, and with each the weight of the samples up to it."""
    rho = radii(a, weighted_centre=weighted_centre)
    order = np.argsort(rho, kind="stable")
    cumulative, total = [], ZERO
    for k in order:
        total += a.exact_weights[k]
        cumulative.append(total)
    return [float(rho[k]) for k in order], cumulative


# ---------------------------------------------------------------------------------------------------------------
# Object-level rules: they look at spheres or boxes, never at weights


def op_prunes(a: Cloud, b: Cloud, eps: float, *, weighted_centre: bool = False, slack: float = 0.0) -> bool:
    """The spheres are further apart than eps, so P = 0."""
    apart = centre_distance(a, b, weighted_centre=weighted_centre)
    return apart - radius(a, weighted_centre=weighted_centre) - radius(b, weighted_centre=weighted_centre) > eps + slack


def op_accepts(a: Cloud, b: Cloud, eps: float, *, weighted_centre: bool = False, slack: float = 0.0) -> bool:
    """The farthest points of the spheres are within eps, so P = 1."""
    apart = centre_distance(a, b, weighted_centre=weighted_centre)
    return (
        apart + radius(a, weighted_centre=weighted_centre) + radius(b, weighted_centre=weighted_centre) <= eps - slack
    )


def mbr_prunes(a: Cloud, b: Cloud, eps: float, *, slack: float = 0.0) -> bool:
    """The bounding boxes are further apart than eps, so P = 0."""
    gaps = np.maximum(b.points.min(axis=0) - a.points.max(axis=0), a.points.min(axis=0) - b.points.max(axis=0))
    return bool(_length(np.maximum(gaps, 0.0)) > eps + slack)


def mbr_accepts(a: Cloud, b: Cloud, eps: float, *, slack: float = 0.0) -> bool:
    """The farthest corners of the bounding boxes are within eps, so P = 1."""
    spans = np.maximum(b.points.max(axis=0) - a.points.min(axis=0), a.points.max(axis=0) - b.points.min(axis=0))
    return bool(_length(spans) <= eps - slack)


# ---------------------------------------------------------------------------------------------------------------
# Sample-level rules


def sp_prunes(
    a: Cloud, b: Cloud, eps: float, gamma: Threshold, *, weighted_centre: bool = False, slack: float = 0.0
) -> bool:
    """Some inner spheres are further apart than eps and hold more than 1 - gamma between them, so P < gamma.

    All pairs of inner spheres are tried. The `>` on the weights is strict: with equality P may be gamma itself. For
    weighted clouds P < gamma is not yet a rejection, since `keeps` forgives 1e-12: pass gamma - 1e-12 for that.
    """
    apart = centre_distance(a, b, weighted_centre=weighted_centre)
    needed = a.mass * b.mass - as_decimal(gamma)
    inner_a = list(zip(*radial_profile(a, weighted_centre=weighted_centre), strict=True))
    inner_b = list(zip(*radial_profile(b, weighted_centre=weighted_centre), strict=True))
    return any(
        apart - rho_a - rho_b > eps + slack and mass_a * mass_b > needed
        for rho_a, mass_a in inner_a
        for rho_b, mass_b in inner_b
    )


def staircase_bound(a: Cloud, b: Cloud, eps: float, *, weighted_centre: bool = False, slack: float = 0.0) -> Fraction:
    """Upper bound: samples so near to their centres that the centres' distance keeps them apart are not close."""
    apart, rho_a, rho_b = _radial(a, b, weighted_centre)
    return a.mass * b.mass - pair_mass(a, b, apart - rho_a - rho_b > eps + slack)


def two_sided_bound(a: Cloud, b: Cloud, eps: float, *, weighted_centre: bool = False, slack: float = 0.0) -> Fraction:
    """Upper bound: the staircase, less the samples of one cloud that lie far outside the other's sphere."""
    apart, rho_a, rho_b = _radial(a, b, weighted_centre)
    far = (apart - rho_a - rho_b > eps + slack) | (np.abs(rho_a - rho_b) - apart > eps + slack)
    return a.mass * b.mass - pair_mass(a, b, far)


def radial_accept_bound(
    a: Cloud, b: Cloud, eps: float, *, weighted_centre: bool = False, slack: float = 0.0
) -> Fraction:
    """Lower bound: samples so near to their centres that the detour over both centres is within eps."""
    apart, rho_a, rho_b = _radial(a, b, weighted_centre)
    return pair_mass(a, b, apart + rho_a + rho_b <= eps - slack)


def _radial(a: Cloud, b: Cloud, weighted_centre: bool) -> tuple[float, Floats, Floats]:
    """The centres' distance, and the radii of a down the rows and of b along the columns."""
    return (
        centre_distance(a, b, weighted_centre=weighted_centre),
        radii(a, weighted_centre=weighted_centre)[:, None],
        radii(b, weighted_centre=weighted_centre)[None, :],
    )


def shell_bounds(a: Cloud, b: Cloud, eps: float, *, weighted_centre: bool = False, slack: float = 0.0) -> Bounds:
    """Lower and upper bound from a's samples and b's radii; swap a and b for the bounds the other way round.

    A sample of a at distance delta from b's centre is within eps of every sample of b with radius <= eps - delta, and
    of none with a radius that differs from delta by more than eps.
    """
    delta, rho = _shells(a, b, weighted_centre)
    return (
        pair_mass(a, b, delta + rho <= eps - slack),
        pair_mass(a, b, np.abs(delta - rho) <= eps + slack),
    )


def _shells(a: Cloud, b: Cloud, weighted_centre: bool) -> tuple[Floats, Floats]:
    delta = _length(a.points - centre(b, weighted_centre=weighted_centre))
    return delta[:, None], radii(b, weighted_centre=weighted_centre)[None, :]


def axis_bound(a: Cloud, b: Cloud, eps: float, *, slack: float = 0.0) -> Fraction:
    """Upper bound: close samples are close in every coordinate; the best single coordinate."""
    gaps = np.abs(a.points[:, None, :] - b.points[None, :, :])
    return min(pair_mass(a, b, gaps[..., c] <= eps + slack) for c in range(a.dim))


def line_bound(a: Cloud, b: Cloud, eps: float, *, weighted_centre: bool = False, slack: float = 0.0) -> Fraction:
    """Upper bound: close samples are close along the line through the centres. No line, no bound: the whole mass."""
    return pair_mass(a, b, _near_on_line(a, b, eps + slack, weighted_centre))


def _near_on_line(a: Cloud, b: Cloud, reach: float, weighted_centre: bool) -> Mask:
    step = centre(b, weighted_centre=weighted_centre) - centre(a, weighted_centre=weighted_centre)
    longest = np.abs(step).max()
    if longest == 0:
        return np.ones((len(a), len(b)), dtype=bool)
    # Scaled before it is measured: the squares of a tiny step would vanish and leave a direction that is no unit vector
    step = step / longest
    direction = step / _length(step)
    along_a, along_b = ((points * direction).sum(axis=1) for points in (a.points, b.points))
    return np.abs(along_a[:, None] - along_b[None, :]) <= reach


def rowwise_bound(a: Cloud, b: Cloud, eps: float, *, weighted_centre: bool = False, slack: float = 0.0) -> Fraction:
    """Upper bound: for each sample of a the better of its shell and its line bound."""
    delta, rho = _shells(a, b, weighted_centre)
    by_shell = _row_masses(a, b, np.abs(delta - rho) <= eps + slack)
    by_line = _row_masses(a, b, _near_on_line(a, b, eps + slack, weighted_centre))
    return sum(map(min, by_shell, by_line), ZERO)


# ---------------------------------------------------------------------------------------------------------------
# Moments


def squared_distance_moments(a: Cloud, b: Cloud) -> Bounds:
    """Mean and variance of the squared distance, enumerated in rationals from the doubles' binary values.

    Exact because a variance is a small difference of large numbers. Divided by the masses: moments of a distribution.
    """
    rows_a, rows_b = ([[Fraction(x) for x in point] for point in each.points.tolist()] for each in (a, b))
    mass = a.mass * b.mass
    mean, mean_square = ZERO, ZERO
    for x, weight_x in zip(rows_a, a.exact_weights, strict=True):
        for y, weight_y in zip(rows_b, b.exact_weights, strict=True):
            squared = sum(((p - q) ** 2 for p, q in zip(x, y, strict=True)), ZERO)
            share = weight_x * weight_y / mass
            mean += share * squared
            mean_square += share * squared**2
    return mean, mean_square - mean**2


def cantelli(mean: Fraction, variance: Fraction, limit: Fraction) -> Bounds:
    """Lower and upper bound of P(S <= limit) from the moments of S alone (Cantelli's one-sided inequality)."""
    if limit == mean:
        return ZERO, Fraction(1)
    tail = variance / (variance + (limit - mean) ** 2)
    return (1 - tail, Fraction(1)) if limit > mean else (ZERO, tail)


def cantelli_bounds(a: Cloud, b: Cloud, eps: float, *, slack: float = 0.0) -> Bounds:
    """Lower and upper bound of the probability from the moments of the squared distance."""
    mean, variance = squared_distance_moments(a, b)
    inner, outer = Fraction(eps) - Fraction(slack), Fraction(eps) + Fraction(slack)
    lower = cantelli(mean, variance, inner**2)[0] if inner >= 0 else ZERO
    upper = cantelli(mean, variance, outer**2)[1]
    return lower * a.mass * b.mass, upper * a.mass * b.mass


# ---------------------------------------------------------------------------------------------------------------
# Radius lists and batches


def radius_maxima(radii: Sequence[float], w: int) -> list[float]:
    """The largest of the last w radii, after each one has arrived."""
    return [max(radii[max(0, t - w + 1) : t + 1]) for t in range(len(radii))]


def ball_union(c1: ArrayLike, r1: float, c2: ArrayLike, r2: float) -> tuple[Floats, float]:
    """The smallest ball around two balls."""
    first, second = np.asarray(c1, dtype=np.float64), np.asarray(c2, dtype=np.float64)
    apart = float(_length(second - first))
    if apart + r2 <= r1:
        return first, r1
    if apart + r1 <= r2:
        return second, r2
    r = (apart + r1 + r2) / 2
    return first + (second - first) * ((r - r1) / apart), r


@dataclass(frozen=True, eq=False)
class Group:
    """Consecutive objects of a batch that share one search, and the ball around their spheres."""

    members: tuple[int, ...]
    centre: Floats
    radius: float


def batch_groups(centres: ArrayLike, radii: Sequence[float], eps: float, r_max: float) -> list[Group]:
    """One pass: an object joins the last group if the searched volume per object does not grow, else opens a new one.

    The search about a group reaches eps + its radius + r_max, the largest radius of the other stream.
    """
    points = np.asarray(centres, dtype=np.float64)

    def cost(reach_of: float, count: int) -> float:
        return (eps + reach_of + r_max) ** points.shape[1] / count

    groups: list[Group] = []
    for k, r in enumerate(radii):
        if groups:
            last = groups[-1]
            middle, reach = ball_union(last.centre, last.radius, points[k], r)
            if cost(last.radius, len(last.members)) >= cost(reach, len(last.members) + 1):
                groups[-1] = Group((*last.members, k), middle, reach)
                continue
        groups.append(Group((k,), points[k], r))
    return groups


# ---------------------------------------------------------------------------------------------------------------
# Random cases


def random_weights(rng: np.random.Generator, n: int, *, smallest: int = 1, largest: int = 9) -> tuple[Fraction, ...]:
    """Integers over their sum, so that they add up to exactly 1 and ties are common; `smallest=0` gives zeros too."""
    parts = rng.integers(smallest, largest + 1, size=n)
    if parts.sum() == 0:
        parts[0] = 1
    total = int(parts.sum())
    return tuple(Fraction(int(part), total) for part in parts)


def random_cloud(
    rng: np.random.Generator,
    d: int,
    n: int,
    kind: Kind,
    *,
    weighted: bool = False,
    size: float = 1.0,
    spread: float = 3.0,
    **weight_options: Any,
) -> Cloud:
    """A cloud of about `size` whose middle is uniform in [-spread, spread]^d; `float_weights` are the library's.

    "lattice" has integer coordinates (many equal distances and radii), "one" a single sample whatever n is, "same" n
    times the same sample, "line" is long and thin, "two_clusters" has an empty middle.
    """
    middle = rng.uniform(-spread, spread, size=d)
    match kind:
        case "ball":
            points = middle + size * _in_ball(rng, n, d)
        case "gaussian":
            points = middle + size / 2 * rng.standard_normal((n, d))
        case "lattice":
            half = max(1, round(size))
            points = np.rint(middle) + rng.integers(-half, half + 1, size=(n, d))
        case "one":
            points = middle[None, :]
        case "same":
            points = np.tile(middle, (n, 1))
        case "line":
            along = rng.uniform(-size, size, size=(n, 1)) * _direction(rng, d)
            points = middle + along + 0.02 * size * rng.standard_normal((n, d))
        case "two_clusters":
            sides = np.where(np.arange(n) % 2 == 0, size, -size)[:, None] * _direction(rng, d)
            points = middle + sides + 0.2 * size * _in_ball(rng, n, d)
        case _:
            raise ValueError(f"unknown kind {kind!r}: one of {', '.join(KINDS)}")
    return cloud(points, random_weights(rng, len(points), **weight_options) if weighted else None)


def _direction(rng: np.random.Generator, d: int) -> Floats:
    vector = rng.standard_normal(d)
    return vector / _length(vector)


def _in_ball(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Uniform in the unit ball: a uniform direction, and a radius whose d-th power is uniform."""
    vectors = rng.standard_normal((n, d))
    return vectors / _length(vectors)[:, None] * rng.uniform(size=(n, 1)) ** (1 / d)


def random_eps(rng: np.random.Generator, a: Cloud, b: Cloud) -> float:
    """Every second time a distance that occurs, so that `<=` and `<` differ; else anything up to just over all."""
    every = distances(a.points, b.points)
    if rng.random() < 0.5:
        return float(rng.choice(every.ravel()))
    return float(rng.uniform(0, 1.1 * every.max()))
