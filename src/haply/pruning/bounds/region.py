"""Filters for regions in one and more dimensions: certified bounds on a probability, without an integral.

Every function gives a lower and an upper bound, so that rows are accepted as well as rejected. Bounds for any law need
only means and covariances (Markov, Cantelli, Selberg, and Chebyshev's inequality in several dimensions, with Marshall
and Olkin's sharper form for convex regions); the others are for Gaussians, and for mixtures when added up over the
components. ``decide_regions`` runs them in order of price. Section numbers are those of ``claro.md``.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.numerics.jit import bare, kernel, solid
from haply.numerics.multivariate.quadratic import form_moments, saddle, tilt
from haply.numerics.normal import normal_between, normal_cdf
from haply.probability.multivariate import Parts, canonical_forms, normal_rows, parts
from haply.pruning.threshold import Threshold

MARGINALS, CANTELLI, DISTANCE, SLAB, CHERNOFF, STRIPS, MARKOV = 1, 2, 3, 4, 5, 6, 7
REGION_RULES = {
    MARGINALS: "marginals",
    CANTELLI: "Cantelli",
    DISTANCE: "distance",
    SLAB: "slab",
    CHERNOFF: "Chernoff",
    STRIPS: "strips",
    MARKOV: "Markov",
}
"""Names of the rules, by their code (negative in a verdict: rejected, positive: accepted, 0: undecided)."""

BOX_RULES = (MARGINALS, DISTANCE)
FORM_RULES = (CANTELLI, DISTANCE, SLAB, CHERNOFF, STRIPS)
"""Rules for boxes and quadratic forms of Gaussians, cheapest first."""

SLACK = 1e-14
"""The rounding of a bound: it must clear the threshold by this."""
SWEEPS, ANGLES, STRIP_COUNT, STRIP_WINDOW = 200, 9, 16, 5.0


# -- one dimension, from moments (2.2) --------------------------------------------------------------------------------


@bare
def cantelli(sd, away):
    """Upper bound on ``P(X >= mean + away)`` for any law: ``sd**2 / (sd**2 + away**2)``, 1 unless away > 0.

    Here and below lengths are divided by ``sd`` before they are squared, so that no bound depends on the unit.
    """
    if not away > 0.0:
        return 1.0
    away /= sd
    return 1.0 / (1.0 + away * away)


@bare
def selberg(sd, below, above):
    """Upper bound on ``P(X <= mean - below or X >= mean + above)`` for any law; no better one holds for all laws."""
    near = min(below, above)
    if not near > 0.0:
        return 1.0
    near, far = near / sd, max(below, above) / sd
    if near == math.inf:  # no spread, or a negligible one
        return 0.0
    if near * far <= 1.0:
        return 1.0
    if near * (far - near) >= 2.0:  # Cantelli's bound, also if the far side is infinite
        return 1.0 / (1.0 + near * near)
    return (4.0 + (far - near) ** 2) / (near + far) ** 2


@bare
def chebyshev(sd, below, above):
    """Upper bound on the same probability by the nearer side alone, as in the paper; never below Selberg's bound."""
    near = min(below, above)
    return min(1.0, (sd / near) ** 2) if near > 0.0 else 1.0


@bare
def markov(mean_absolute, nearest):
    """Upper bound on ``P(|X| >= nearest)`` for any law: ``E|X| / nearest``."""
    return min(1.0, mean_absolute / nearest) if nearest > 0.0 else 1.0


@kernel
def _interval_bounds(mean, sd, low, high, outside):
    lower, upper = np.zeros(len(mean)), np.ones(len(mean))
    for i in range(len(mean)):
        if mean[i] < low[i]:
            upper[i] = cantelli(sd[i], low[i] - mean[i])
        elif mean[i] > high[i]:
            upper[i] = cantelli(sd[i], mean[i] - high[i])
        else:
            lower[i] = 1.0 - selberg(sd[i], mean[i] - low[i], high[i] - mean[i])
        if outside:
            lower[i], upper[i] = 1.0 - upper[i], 1.0 - lower[i]
    return lower, upper


def interval_bounds(mean: Any, sd: Any, low: Any, high: Any, outside: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Bound ``P(low < X < high)``, or the outside, for any law: Cantelli beside the mean, Selberg around it.

    Both hold for open and for closed ends.
    """
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(each, np.float64)) for each in (mean, sd, low, high)))
    means, sds, lows, highs = (solid(each) for each in arrays)
    return _interval_bounds(means, sds, lows, highs, outside)


# -- distances (2.1) --------------------------------------------------------------------------------------------------


@bare
def _solve_faces(mean, cov, low, high, dual, room):
    """Solve for the coordinates of the normal that are not zero, on the faces met so far; keep it if these stay."""
    dim, count = len(mean), 0
    for i in range(dim):
        if dual[i] != 0.0:
            at = 0
            for j in range(dim):
                if dual[j] != 0.0:
                    room[count, at] = cov[i, j]
                    at += 1
            room[count, dim] = (low[i] if dual[i] > 0.0 else high[i]) - mean[i]
            count += 1
    for k in range(count):  # elimination without pivots: the block is a covariance
        if not room[k, k] > 0.0:
            return
        for i in range(count):
            if i != k:
                share = room[i, k] / room[k, k]
                for j in range(k, count):
                    room[i, j] -= share * room[k, j]
                room[i, dim] -= share * room[k, dim]
    at = 0
    for i in range(dim):
        if dual[i] != 0.0:
            if not room[at, dim] / room[at, at] * dual[i] > 0.0:
                return
            at += 1
    at = 0
    for i in range(dim):
        if dual[i] != 0.0:
            dual[i] = room[at, dim] / room[at, at]
            at += 1


@bare
def box_distance(mean, cov, low, high, dual, room):
    """Lower bound on the distance of a box from the mean, in sds: that of the best half-space that holds the box.

    For any normal ``y``, ``(min over the box of y.x - y.mean) / sd(y.x)`` is a lower bound, and the largest is the
    distance (duality of convex quadratic programs). Coordinates of ``y`` are improved in turn, and sometimes all faces
    met so far are solved for at once. Singular covariances are allowed, and stopping early is safe. ``dual`` and
    ``room`` have room for d, and for d x (d + 1) numbers.
    """
    dim = len(mean)
    dual[:] = 0.0
    for sweep in range(SWEEPS):
        moved = 0.0
        for i in range(dim):
            if cov[i, i] <= 0.0:
                if mean[i] < low[i] or mean[i] > high[i]:
                    return math.inf
                continue
            others = mean[i]
            for j in range(dim):
                if j != i:
                    others += cov[i, j] * dual[j]
            new = 0.0
            if low[i] > others:
                new = (low[i] - others) / cov[i, i]
            elif high[i] < others:
                new = (high[i] - others) / cov[i, i]
            moved = max(moved, abs(new - dual[i]) * math.sqrt(cov[i, i]))
            dual[i] = new
        if moved < 1e-9 or (sweep == 0 and dim == 1):
            break
        if sweep % 3 == 2:
            _solve_faces(mean, cov, low, high, dual, room)
    reach = spread = size = 0.0
    for i in range(dim):
        if dual[i] != 0.0:
            reach += dual[i] * ((low[i] if dual[i] > 0.0 else high[i]) - mean[i])
            size += abs(dual[i]) * (abs(mean[i]) + abs(low[i] if dual[i] > 0.0 else high[i]))
            for j in range(dim):
                spread += dual[i] * cov[i, j] * dual[j]
    reach -= 4e-16 * dim * size
    if not reach > 0.0:
        return 0.0
    return reach / math.sqrt(spread) if spread > 0.0 else 0.0


@bare
def form_distance(curve, slope, sign, limit):
    """Lower bound on the distance, in sds, of the mean from the region ``sign * form < limit`` (without its constant).

    The largest value over ``t >= 0`` of ``-t limit - sum(t**2 slope**2 / (1 + t curve))``, the dual of the least
    ``|z|**2``; the maximum is the solution of the secular equation, and every other ``t`` gives a smaller bound. It
    holds for balls, ellipsoids, half-spaces and forms of mixed signs. It is infinite if the region is empty.
    """
    if limit >= 0.0:
        return 0.0
    edge, pull, least, steep = math.inf, 0.0, 0.0, False
    for j in range(len(curve)):
        bend, square = sign * curve[j], slope[j] * slope[j]
        pull += square
        if bend < 0.0:
            edge = min(edge, -1.0 / bend)
        if bend > 0.0:
            least -= square / bend
        elif square > 0.0 or bend < 0.0:
            steep = True
    if not steep and limit <= least:
        return math.inf
    low, high = 0.0, edge
    t = -0.5 * limit / pull if pull > 0.0 else edge
    t = min(t, 0.5 * edge)
    for _ in range(80):
        first, second = -limit, 0.0
        for j in range(len(curve)):
            bend, square = sign * curve[j], slope[j] * slope[j]
            w = 1.0 + t * bend
            first -= square * t * (1.0 + w) / (w * w)
            second += 2.0 * square / (w * w * w)
        if first > 0.0:
            low = t
        else:
            high = t
        following = t + first / second if second > 0.0 else high
        if not (low < following < high):
            following = 0.5 * (low + high) if high < math.inf else 4.0 * t
        if abs(following - t) <= 1e-10 * t:
            break
        t = following
    best = -t * limit
    size = best
    for j in range(len(curve)):
        part = t * t * slope[j] * slope[j] / (1.0 + t * sign * curve[j])
        best -= part
        size += part
    best -= 4e-16 * len(curve) * size
    return math.sqrt(best) if best > 0.0 else 0.0


@bare
def chi_square_above(square, dim):
    """Return ``P(|Z|**2 > square)`` for a standard normal ``Z``: ``dim / 2`` positive terms, and one tail if odd."""
    if square == math.inf:
        return 0.0
    half = 0.5 * square
    if dim % 2 == 0:
        term, total = 1.0, 0.0
        for k in range(dim // 2):
            total += term
            term *= half / (k + 1)
        return math.exp(-half) * total
    term, total = math.sqrt(half) * 2.0 / math.sqrt(math.pi), 0.0
    for k in range(dim // 2):
        total += term
        term *= half / (k + 1.5)
    return math.erfc(math.sqrt(half)) + math.exp(-half) * total


@bare
def distance_bounds(distance, depth, dim, convex, hollow, gaussian):
    """Return bounds from the distance to a region or, inside it, the depth below its surface (both in sds; 2.1).

    ``convex``: the region is; ``hollow``: its complement is. Gaussian: ``Phi(-d)`` for a convex region, else the tail
    of chi-square; any law: ``1 / (1 + d**2)`` (Marshall and Olkin 1960), else ``dim / d**2`` (Chebyshev).
    """
    lower, upper = 0.0, 1.0
    for side in range(2):
        far, flat = (distance, convex) if side == 0 else (depth, hollow)
        bound = 1.0
        if far > 0.0:
            if gaussian:
                bound = normal_cdf(-far) if flat else chi_square_above(far * far, dim)
            else:
                bound = 1.0 / (1.0 + far * far) if flat else min(1.0, dim / (far * far))
        if side == 0:
            upper = bound
        else:
            lower = 1.0 - bound
    return lower, upper


# -- boxes ------------------------------------------------------------------------------------------------------------


@bare
def _axis_mass(mean, variance, low, high):
    if variance <= 0.0:
        return 1.0 if low <= mean <= high else 0.0
    sd = math.sqrt(variance)
    return normal_between((low - mean) / sd, (high - mean) / sd)


@bare
def marginal_bounds(mean, cov, low, high):
    """Bound a Gaussian box: above by the least probability of a coordinate, below by 1 minus the sum of complements.

    A box around the mean also has at least the product of probabilities of its symmetric part (Sidak 1967).
    """
    upper, misses, product = 1.0, 0.0, 1.0
    for i in range(len(mean)):
        inside = _axis_mass(mean[i], cov[i, i], low[i], high[i])
        upper = min(upper, inside)
        misses += 1.0 - inside
        room = min(mean[i] - low[i], high[i] - mean[i])
        if room < 0.0:
            product = 0.0
        elif product > 0.0:
            product *= _axis_mass(0.0, cov[i, i], -room, room)
    return max(0.0, 1.0 - misses, product), upper


@bare
def moment_bounds(mean, cov, low, high):
    """Bound a box for any law: Cantelli on the worst coordinate; 1 minus the sum of Selberg's bounds for each side."""
    upper, misses = 1.0, 0.0
    for i in range(len(mean)):
        if mean[i] < low[i]:
            upper = min(upper, cantelli(math.sqrt(cov[i, i]), low[i] - mean[i]))
            misses = 1.0
        elif mean[i] > high[i]:
            upper = min(upper, cantelli(math.sqrt(cov[i, i]), mean[i] - high[i]))
            misses = 1.0
        elif cov[i, i] > 0.0:
            misses += selberg(math.sqrt(cov[i, i]), mean[i] - low[i], high[i] - mean[i])
    return max(0.0, 1.0 - misses), upper


@bare
def box_bounds(rule, mean, cov, low, high, gaussian, dual, room):
    """Return the bounds of one rule on a box."""
    if rule == MARGINALS:
        return marginal_bounds(mean, cov, low, high)
    if rule == CANTELLI:
        return moment_bounds(mean, cov, low, high)
    # the complement of a box is not convex, and marginals bound better than a ball inside: only the distance is used
    return distance_bounds(box_distance(mean, cov, low, high, dual, room), 0.0, len(mean), True, False, gaussian)


# -- quadratic forms (2.3) --------------------------------------------------------------------------------------------


@bare
def _signs(curve, slope):
    """Return how many directions matter, and whether no curve is negative, and whether none is positive."""
    count, rising, falling = 0, True, True
    for j in range(len(curve)):
        if curve[j] != 0.0 or slope[j] != 0.0:
            count += 1
        rising &= curve[j] >= 0.0
        falling &= curve[j] <= 0.0
    return max(count, 1), rising, falling


@bare
def cantelli_form(curve, slope, limit):
    """Bound a Gaussian form: Cantelli on its mean ``sum(curve)`` and variance ``sum(2 curve**2 + 4 slope**2)``."""
    mean, variance = form_moments(curve, slope)
    if limit < mean:
        return 0.0, cantelli(math.sqrt(variance), mean - limit)
    return 1.0 - cantelli(math.sqrt(variance), limit - mean), 1.0


@bare
def _ball(curve, slope, limit, sign):
    """Return the squared radius of a definite form's ball, the squared distance of the means, and the rounding of both.

    Below its limit the form is a ball around 0 of independent normals with means ``slope / sd`` and sds
    ``sqrt(curve)``.
    """
    middle = 0.0
    for j in range(len(curve)):
        if curve[j] != 0.0:
            middle += slope[j] * slope[j] / (sign * curve[j])
    return sign * limit + middle, middle, 1e-15 * len(curve) * (abs(limit) + middle)


@bare
def _held(half, mean, sd, blur):
    """Return ``P(|mean + sd Z| <= half)``, the ends moved outwards by ``blur`` for rounding (inwards if negative)."""
    return normal_between((-half - mean - blur) / sd, (half - mean + blur) / sd)


@bare
def slab_bound(curve, slope, limit, sign):
    """Upper bound on a definite form: the ball lies in the slab across the direction of its means."""
    square, middle, hidden = _ball(curve, slope, limit, sign)
    pull = 0.0
    for j in range(len(curve)):
        pull += slope[j] * slope[j]
    if not (square > 0.0 and middle > 0.0 and pull > 0.0):
        return 1.0
    radius, across, sd = math.sqrt(square), math.sqrt(middle), math.sqrt(pull / middle)
    return _held(radius, across, sd, hidden / radius + 1e-15 * (radius + across))


@bare
def _definite(curve, slope):
    """Return 1 or -1 for a form whose curves, where they matter, all have this sign; otherwise 0."""
    _, rising, falling = _signs(curve, slope)
    for j in range(len(curve)):
        if curve[j] == 0.0 and slope[j] != 0.0:
            return 0.0
    return 1.0 if rising else (-1.0 if falling else 0.0)


@bare
def slab_bounds(curve, slope, limit):
    """Bound a definite form: above by the slab and by the box around the ball, below by a box inside it.

    The box inside is the best of several; in a box the coordinates are independent.
    """
    sign = _definite(curve, slope)
    if sign == 0.0:
        return 0.0, 1.0
    square, _, hidden = _ball(curve, slope, limit, sign)
    if square <= hidden:
        upper = 0.0 if square < -hidden else 1.0
        return (0.0, upper) if sign > 0.0 else (1.0 - upper, 1.0)
    radius = math.sqrt(square)
    upper, blur = 1.0, hidden / radius
    for j in range(len(curve)):
        sd = math.sqrt(sign * curve[j])
        if sd > 0.0:
            mean = slope[j] / sd
            upper *= _held(radius, mean, sd, blur + 1e-15 * (radius + abs(mean)))
    upper = min(upper, slab_bound(curve, slope, limit, sign))
    lower = 0.0
    for angle in range(1, ANGLES + 1):
        # half-sides are the radius times a unit vector: longer where the normal is farther out or wider
        lean = 0.5 * angle
        norm, inside = 0.0, 1.0
        for j in range(len(curve)):
            sd = math.sqrt(sign * curve[j])
            if sd > 0.0:
                norm += (abs(slope[j] / sd) + lean * sd) ** 2
        for j in range(len(curve)):
            sd = math.sqrt(sign * curve[j])
            if sd > 0.0 and inside > lower:
                mean = slope[j] / sd
                side = radius * (abs(mean) + lean * sd) / math.sqrt(norm)
                inside *= _held(side, mean, sd, -blur - 1e-15 * (radius + abs(mean)))
        lower = max(lower, inside)
    return (lower, upper) if sign > 0.0 else (1.0 - upper, 1.0 - lower)


@bare
def chernoff_bounds(curve, slope, limit):
    """Bound a Gaussian form of any signs by ``exp`` of the least ``s limit + log E exp(-s form)``, or its mirror."""
    mean, variance = form_moments(curve, slope)
    if variance == 0.0 or limit == mean:
        return 0.0, 1.0
    sign = 1.0 if limit < mean else -1.0
    least, bounded = 0.0, True
    for j in range(len(curve)):
        bend = sign * curve[j]
        if bend > 0.0:
            least -= slope[j] * slope[j] / bend
        elif bend < 0.0 or slope[j] != 0.0:
            bounded = False
    if bounded and sign * limit <= least:
        miss = 0.0
    else:
        s, edge = saddle(curve, slope, sign, sign * limit, 0.0)
        miss = min(1.0, math.exp(tilt(curve, slope, sign, sign * limit, s))) if 0.0 < s < edge else 1.0
    return (0.0, miss) if sign > 0.0 else (1.0 - miss, 1.0)


@bare
def strip_bounds(curve, slope, limit):
    """Bound a definite form in two directions: the disc is cut into strips, each between two boxes (certified)."""
    one, two, count = -1, -1, 0
    for j in range(len(curve)):
        if curve[j] != 0.0 or slope[j] != 0.0:
            count += 1
            one, two = two, j
    if count != 2 or one < 0 or not curve[one] * curve[two] > 0.0:
        return 0.0, 1.0
    sign = 1.0 if curve[one] > 0.0 else -1.0
    if abs(curve[one]) > abs(curve[two]):  # strips across the narrower normal
        one, two = two, one
    square, _, hidden = _ball(curve, slope, limit, sign)
    if square <= hidden:
        return 0.0, 1.0
    radius = math.sqrt(square)
    sd1, sd2 = math.sqrt(sign * curve[one]), math.sqrt(sign * curve[two])
    mean1, mean2 = slope[one] / sd1, slope[two] / sd2
    start = math.asin(max(-1.0, min(1.0, (mean1 - STRIP_WINDOW * sd1) / radius)))
    end = math.asin(max(-1.0, min(1.0, (mean1 + STRIP_WINDOW * sd1) / radius)))
    edge = (hidden / radius + 1e-15 * (radius + abs(mean1))) / sd1  # covers the mass that rounding hides at the ends
    lower, upper = -edge, edge
    x = -radius
    thin = thick = _held(0.0, mean2, sd2, 0.0)
    for strip in range(STRIP_COUNT + 2):
        y = radius if strip > STRIP_COUNT else radius * math.sin(start + (end - start) * strip / STRIP_COUNT)
        y = max(x, min(radius, y))
        thin_x, thick_x = thin, thick
        for width in range(2):
            half = math.sqrt(max(0.0, (radius - y) * (radius + y) + (2.0 * width - 1.0) * hidden))
            blur = (2.0 * width - 1.0) * 1e-15 * (radius + abs(mean2))
            if width == 0:
                thin = _held(half, mean2, sd2, blur)
            else:
                thick = _held(half, mean2, sd2, blur)
        if strip == 0:
            half = math.sqrt(hidden)
            thin_x, thick_x = 0.0, _held(half, mean2, sd2, 1e-15 * (radius + abs(mean2)))
        if y > x:
            mass = normal_between((x - mean1) / sd1, (y - mean1) / sd1)
            widest = max(thick_x, thick)
            if x < 0.0 < y:
                widest = _held(math.sqrt(square + hidden), mean2, sd2, 1e-15 * (radius + abs(mean2)))
            upper += mass * widest
            lower += mass * min(thin_x, thin)
        x = y
    lower, upper = max(0.0, lower - SLACK), min(1.0, upper + SLACK)
    return (lower, upper) if sign > 0.0 else (1.0 - upper, 1.0 - lower)


@bare
def form_bounds(rule, curve, slope, limit, gaussian):
    """Return the bounds of one rule on ``P(form < limit)``, both without the constant of the form."""
    mean, variance = form_moments(curve, slope)
    if variance == 0.0:
        if limit == 0.0:  # ``<`` and ``<=`` differ: leave it to the exact value
            return 0.0, 1.0
        return (1.0, 1.0) if limit > 0.0 else (0.0, 0.0)
    if rule == CANTELLI:
        return cantelli_form(curve, slope, limit)
    if rule == SLAB:
        return slab_bounds(curve, slope, limit)
    if rule == CHERNOFF:
        return chernoff_bounds(curve, slope, limit)
    if rule == STRIPS:
        return strip_bounds(curve, slope, limit)
    count, rising, falling = _signs(curve, slope)
    if rule == MARKOV:  # a form without negative curves is at least its minimum: Markov on the excess
        sign = _definite(curve, slope)
        if sign == 0.0:
            return 0.0, 1.0
        square, middle, hidden = _ball(curve, slope, limit, sign)
        miss = markov(sign * mean + middle + hidden, square - hidden)
        return (1.0 - miss, 1.0) if sign > 0.0 else (0.0, miss)
    near = form_distance(curve, slope, 1.0, limit)
    deep = form_distance(curve, slope, -1.0, -limit)
    return distance_bounds(near, deep, count, rising, falling, gaussian)


# -- the cascade ------------------------------------------------------------------------------------------------------


class Box(NamedTuple):
    """``low <= x <= high`` in every coordinate: (d,) for all rows, or (n, d)."""

    low: Any
    high: Any


class Quadratic(NamedTuple):
    """``x' matrix x < limit``: a symmetric (d, d) for all rows, or (n, d, d); one limit, or n."""

    matrix: Any
    limit: Any


class Decisions(NamedTuple):
    """What became of each row: -1 rejected, 1 accepted, 0 open; the rule's code; and the counts by rule."""

    verdict: np.ndarray
    code: np.ndarray
    rejected: dict[str, int]
    accepted: dict[str, int]

    @property
    def open(self) -> np.ndarray:
        """Return the rows that still need their exact value."""
        return np.flatnonzero(self.verdict == 0)


@kernel
def _bound_boxes(start, weight, mean, cov, low, high, rules, gaussian, reject_below, accept_from):
    n, dim = len(start) - 1, mean.shape[1]
    dual, room = np.empty(dim), np.empty((dim, dim + 1))
    lower_bound, upper_bound, code = np.zeros(n), np.ones(n), np.zeros(n, np.int8)
    below, above = np.empty(len(weight)), np.empty(len(weight))
    for i in range(n):
        for rule in rules:
            least = most = 0.0
            for k in range(start[i], start[i + 1]):
                if rule == rules[0]:
                    below[k], above[k] = 0.0, 1.0
                lower, upper = box_bounds(rule, mean[k], cov[k], low[i], high[i], gaussian, dual, room)
                below[k], above[k] = max(below[k], lower), min(above[k], upper)
                least += weight[k] * below[k]
                most += weight[k] * above[k]
            lower_bound[i], upper_bound[i], code[i] = least - SLACK, most + SLACK, rule
            if upper_bound[i] <= reject_below[i] or lower_bound[i] >= accept_from[i]:
                break
    return lower_bound, upper_bound, code


@kernel
def _bound_forms(start, weight, curve, slope, constant, limit, rules, gaussian, reject_below, accept_from):
    n = len(start) - 1
    lower_bound, upper_bound, code = np.zeros(n), np.ones(n), np.zeros(n, np.int8)
    below, above = np.empty(len(weight)), np.empty(len(weight))
    for i in range(n):
        for rule in rules:
            least = most = 0.0
            for k in range(start[i], start[i + 1]):
                if rule == rules[0]:
                    below[k], above[k] = 0.0, 1.0
                if above[k] - below[k] > SLACK:
                    lower, upper = form_bounds(rule, curve[k], slope[k], limit[i] - constant[k], gaussian)
                    below[k], above[k] = max(below[k], lower), min(above[k], upper)
                least += weight[k] * below[k]
                most += weight[k] * above[k]
            lower_bound[i], upper_bound[i], code[i] = least - SLACK, most + SLACK, rule
            if upper_bound[i] <= reject_below[i] or lower_bound[i] >= accept_from[i]:
                break
    return lower_bound, upper_bound, code


def _rules(region: Box | Quadratic, gaussian: bool) -> tuple[int, ...]:
    if isinstance(region, Box):
        return BOX_RULES if gaussian else (CANTELLI, DISTANCE)
    return FORM_RULES if gaussian else (MARKOV, DISTANCE)


def _as_parts(rows: Any) -> Parts:
    if isinstance(rows, Parts):
        return rows
    if isinstance(rows, tuple):
        means, covs = normal_rows(*rows)
        return Parts(np.arange(len(means) + 1), np.ones(len(means)), means, covs)
    found = parts(rows)
    if found is None or found.cov.shape[0] != len(found.weight):
        raise HaplyError(
            "A region's filters need a law with a covariance",
            expected="GaussianND, MixtureND, Gaussian, Mixture, or (mean, cov)",
            found=type(rows).__name__,
        )
    return found


def decide_regions(
    rows: Any,
    region: Box | Quadratic,
    threshold: Threshold,
    *,
    law: Literal["gaussian", "any"] = "gaussian",
    may_accept: bool = True,
    rules: tuple[int, ...] | None = None,
) -> Decisions:
    """Decide rows by bounds, the cheapest rule first; rows left open need their exact value.

    ``rows`` are Gaussians, mixtures, their ``Parts``, or means and covariances as a tuple; with ``law="any"`` a tuple
    stands for every law with these moments. Without ``may_accept`` (if probabilities are wanted) rows are only
    rejected.

    >>> far = decide_regions(([[0, 0], [9, 9]], [[1, 0], [0, 1]]), Quadratic([[1, 0], [0, 1]], 16.0), Threshold(0.7))
    >>> far.verdict.tolist()
    [1, -1]
    """
    order = np.array(_rules(region, law == "gaussian") if rules is None else rules, np.int64)
    accept = threshold.accept_from if may_accept else math.inf
    bounds = bound_regions(rows, region, threshold.reject_below, accept, law=law, rules=rules)
    verdict = np.where(bounds.upper <= threshold.reject_below, -1, np.where(bounds.lower >= accept, 1, 0))
    code = np.where(verdict != 0, bounds.code, 0)
    names = {int(rule): REGION_RULES[int(rule)] for rule in order}
    rejected = {name: int(np.count_nonzero((code == rule) & (verdict < 0))) for rule, name in names.items()}
    accepted = {name: int(np.count_nonzero((code == rule) & (verdict > 0))) for rule, name in names.items()}
    return Decisions(verdict, code, rejected, accepted)


class Bounds(NamedTuple):
    """Certified bounds of each row's probability, and the code of the last rule that was used for it."""

    lower: np.ndarray
    upper: np.ndarray
    code: np.ndarray


def bound_regions(
    rows: Any,
    region: Box | Quadratic,
    enough_below: Any,
    enough_from: Any,
    *,
    law: Literal["gaussian", "any"] = "gaussian",
    rules: tuple[int, ...] | None = None,
) -> Bounds:
    """Bound probabilities rule by rule, the cheapest first, until the bounds of a row are good enough.

    That is when the upper bound is at most ``enough_below`` or the lower one reaches ``enough_from`` (a number for all
    rows, or one for each). ``rows`` and ``law`` are those of ``decide_regions``.
    """
    gaussian = law == "gaussian"
    if not gaussian and not isinstance(rows, tuple):
        raise HaplyError("Bounds for any law need moments", expected="(mean, cov)", found=type(rows).__name__)
    found = _as_parts(rows)
    n, dim = len(found.start) - 1, found.mean.shape[1]
    order = np.array(_rules(region, gaussian) if rules is None else rules, np.int64)
    enough = (solid(np.broadcast_to(np.asarray(level, np.float64), (n,))) for level in (enough_below, enough_from))
    start, weight = np.require(found.start, np.int64, ["C", "W"]), solid(found.weight)
    if isinstance(region, Box):
        low, high = (solid(np.broadcast_to(np.asarray(end, np.float64), (n, dim))) for end in region)
        mean, cov = solid(found.mean), solid(found.cov)
        return Bounds(*_bound_boxes(start, weight, mean, cov, low, high, order, gaussian, *enough))
    matrix = np.asarray(region.matrix, np.float64)
    if matrix.ndim == 3 and len(matrix) > 1:
        matrix = matrix[np.repeat(np.arange(n), np.diff(start))]
    curve, slope, constant = canonical_forms(found.mean, found.cov, matrix)
    limit = solid(np.broadcast_to(np.asarray(region.limit, np.float64), (n,)))
    return Bounds(*_bound_forms(start, weight, curve, slope, constant, limit, order, gaussian, *enough))


def bound_forms(
    start: np.ndarray,
    weight: np.ndarray,
    curve: np.ndarray,
    slope: np.ndarray,
    constant: np.ndarray,
    limit: np.ndarray,
    enough_below: Any,
    enough_from: Any,
    rules: tuple[int, ...] = FORM_RULES,
) -> Bounds:
    """Do as ``bound_regions`` for quadratic forms of Gaussians that are canonical already (see ``canonical_forms``)."""
    order = np.array(rules, np.int64)
    enough = (
        solid(np.broadcast_to(np.asarray(level, np.float64), (len(start) - 1,)))
        for level in (enough_below, enough_from)
    )
    return Bounds(*_bound_forms(start, weight, curve, slope, constant, limit, order, True, *enough))
