"""Compute the probability that a multivariate normal lies in a box.

Two dimensions: the four corners' densities are integrated over the correlation (Plackett 1954; Drezner and Wesolowsky
1990 and Genz 2004 use it for one corner). Where that would cancel, or the correlation is close to 1, one coordinate's
density times the other's window is integrated piecewise. The second way only adds positive terms, so that far corners
keep their relative accuracy, and it takes singular covariances as they are. Three dimensions: the piecewise integral
once more, adaptively, to 1e-13 absolutely. Beyond: groups of correlated coordinates are computed apart; within a large
group the coordinates are separated one after the other (Genz 1992; Genz and Bretz 2009) over a randomly shifted
lattice, with its error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.integration.lattices import FIRST, MISSED, Lattice, folded, is_enough, make_lattice, mean_and_error
from haply.numerics.jit import bare
from haply.numerics.multivariate.quadratic import SINGULAR
from haply.numerics.normal import NODE_WEIGHTS, NODES, normal_between, normal_cdf, normal_quantile, scaled_mass

FEW_NODES, FEW_WEIGHTS = np.polynomial.legendre.leggauss(8)
SOME_NODES, SOME_WEIGHTS = np.polynomial.legendre.leggauss(12)
MANY_NODES, MANY_WEIGHTS = np.polynomial.legendre.leggauss(20)

STEEP = 0.925
"""Correlations beyond this make the corner integrals too steep for twenty nodes."""
SMALL = 1e-3
"""Below this the sum over corners has lost digits that the piecewise integral keeps."""
PANEL = 4.0
"""Sixteen nodes are enough for a normal density over this many standard deviations."""
FALL = 12.0
"""Over a panel the density may fall by about this many e-folds at most."""
REACH = 84.0
"""Where the squared distance exceeds the least one by this, the density is below 1e-18 of the largest."""
EXACT_ERROR = 1e-14
FEW = 100.0
"""Where the values of fewer points, if they were equal, would make up a sum, others may be large that were not met."""


class BoxScratch(NamedTuple):
    """Arrays to work in, made once for all rows, and the lattice of large groups."""

    group: np.ndarray
    order: np.ndarray
    last: np.ndarray
    low: np.ndarray
    high: np.ndarray
    low3: np.ndarray
    high3: np.ndarray
    guess: np.ndarray
    root: np.ndarray
    lattice: Lattice


@bare
def _split(a):
    """Return a number as a sum of two numbers with half its digits each."""
    c = 134217729.0 * a
    high = c - (c - a)
    return high, a - high


@bare
def product_difference(a, b, c):
    """Return ``a b - c c`` with an error of one rounding of the result, even when it cancels (Dekker's products)."""
    ab, cc = a * b, c * c
    if not (1e-140 < abs(ab) < 1e140 and 1e-140 < cc < 1e140):
        return ab - cc
    ah, al = _split(a)
    bh, bl = _split(b)
    ch, cl = _split(c)
    ab_rest = ((ah * bh - ab) + ah * bl + al * bh) + al * bl
    cc_rest = ((ch * ch - cc) + 2.0 * ch * cl) + cl * cl
    return (ab - cc) + (ab_rest - cc_rest)


@bare
def _corner(h, k, sine, spread):
    if math.isinf(h) or math.isinf(k):
        return 0.0
    return math.exp(-0.5 * (h * h + k * k - 2.0 * h * k * sine) / spread)


@bare
def _corners(low1, high1, low2, high2, angle, nodes, weights):
    """Return the signed densities at the four corners, integrated over the angle whose sine is the correlation."""
    total = 0.0
    for i in range(len(nodes)):
        sine = math.sin(0.5 * angle * (1.0 + nodes[i]))
        spread = 1.0 - sine * sine
        total += weights[i] * (
            _corner(high1, high2, sine, spread)
            + _corner(low1, low2, sine, spread)
            - _corner(low1, high2, sine, spread)
            - _corner(high1, low2, sine, spread)
        )
    return total * 0.25 * angle / math.pi


@bare
def _away(x, low, high, slope, sd):
    """Return how many sds the window of the other coordinate is away, given that this one is ``x``."""
    if slope * x < low:
        gap = low - slope * x
    elif slope * x > high:
        gap = slope * x - high
    else:
        return 0.0
    return gap / sd if sd > 0.0 else math.inf


@bare
def _distance3(x, low2, high2, slope2, sd2, low3, high3, slope3, sd3):
    """Return a lower bound of the squared distance of the box at ``x``: each other coordinate is taken alone."""
    return x * x + max(_away(x, low2, high2, slope2, sd2), _away(x, low3, high3, slope3, sd3)) ** 2


@bare
def _reach(low, high, low2, high2, slope2, sd2, low3, high3, slope3, sd3):
    """Return the part of ``[low, high]`` where the density is not negligible beside its largest: a convex search."""
    a, b = max(low, -40.0), min(high, 40.0)
    if not a < b:
        return a, a
    left, right = a, b
    for _ in range(100):
        third = (right - left) * 0.381966
        x, y = left + third, right - third
        p = _distance3(x, low2, high2, slope2, sd2, low3, high3, slope3, sd3)
        q = _distance3(y, low2, high2, slope2, sd2, low3, high3, slope3, sd3)
        if p < q or (p == q and abs(x) < abs(y)):
            right = y
        else:
            left = x
        if right - left < 1e-6 * min(sd2, sd3) or right - left <= 4e-16 * (abs(left) + abs(right)):
            break
    best = 0.5 * (left + right)
    most = _distance3(best, low2, high2, slope2, sd2, low3, high3, slope3, sd3) + REACH
    for side in range(2):
        outer, inner = (a if side == 0 else b), best
        if _distance3(outer, low2, high2, slope2, sd2, low3, high3, slope3, sd3) > most:
            for _ in range(40):
                middle = 0.5 * (outer + inner)
                if _distance3(middle, low2, high2, slope2, sd2, low3, high3, slope3, sd3) > most:
                    outer = middle
                else:
                    inner = middle
        if side == 0:
            a = outer
        else:
            b = outer
    return a, b


@bare
def _steepness(x, low, high, slope, sd):
    """Return how fast the log density falls at ``x``, with the other coordinate at the nearest point of its window."""
    if slope * x < low:
        return abs(x - (low - slope * x) / sd * (slope / sd))
    if slope * x > high:
        return abs(x + (slope * x - high) / sd * (slope / sd))
    return abs(x)


@bare
def _next_break(x, end, low, high, slope, sd):
    """Return the end of the panel that begins at ``x``: where the other coordinate's window begins or ends to matter.

    It is at most ``end``. Within eight conditional sds of an edge a panel is at most ``PANEL`` of them long, and over
    no panel the density falls by more than ``FALL`` allows.
    """
    end = min(end, x + PANEL, x + FALL / (1.0 + _steepness(x, low, high, slope, sd)))
    if slope == 0.0:
        return end
    width = sd / abs(slope)
    for side in range(2):
        edge = (low if side == 0 else high) / slope
        if math.isinf(edge):
            continue
        near, far = edge - 8.0 * width, edge + 8.0 * width
        if x < near:
            end = min(end, near)
        elif x < far:
            end = min(end, x + PANEL * width)
    return end


@bare
def _piecewise(low1, high1, low2, high2, slope, sd):
    """Return ``P`` of the box by integrating the first coordinate's density times the second's window."""
    start, end = _reach(low1, high1, low2, high2, slope, sd, -math.inf, math.inf, 0.0, 1.0)
    total, x = 0.0, start
    span = (high2 - low2) / sd
    while x < end:
        y = _next_break(x, end, low2, high2, slope, sd)
        if not y > x:
            y = math.nextafter(x, math.inf)
        half, part = 0.5 * (y - x), 0.0
        for i in range(len(NODES)):
            at = x + half * (1.0 + NODES[i])
            window = scaled_mass((low2 - slope * at) / sd, (high2 - slope * at) / sd, span, 0.0)
            part += NODE_WEIGHTS[i] * math.exp(-0.5 * at * at) * window
        total += part * half
        x = y
    return total / math.sqrt(2.0 * math.pi)


@bare
def standard_box2(low1, high1, low2, high2, slope, sd, enough):
    """Return ``P`` of a box of two standard normals of correlation ``slope``; ``sd`` is ``sqrt(1 - slope**2)``, exact.

    ``enough`` is a sufficient absolute error; without it the error is relative.
    """
    if not (low1 <= high1 and low2 <= high2):
        return 0.0
    if sd == 0.0:  # one variable with two windows
        if slope < 0.0:
            low2, high2 = -high2, -low2
        low1, high1, low2, high2 = max(low1, low2), min(high1, high2), -math.inf, math.inf
        slope = 0.0
    steep = abs(slope)
    if steep < STEEP:
        value = normal_between(low1, high1) * normal_between(low2, high2)
        if steep == 0.0:
            return value
        angle = math.asin(slope)
        nodes, weights = MANY_NODES, MANY_WEIGHTS
        if steep < 0.3:
            nodes, weights = FEW_NODES, FEW_WEIGHTS
        elif steep < 0.75:
            nodes, weights = SOME_NODES, SOME_WEIGHTS
        value += _corners(low1, high1, low2, high2, angle, nodes, weights)
        if value > SMALL or enough > 1e-15:
            return max(0.0, value)
    if high2 - low2 < high1 - low1:
        low1, high1, low2, high2 = low2, high2, low1, high1
    return _piecewise(low1, high1, low2, high2, slope, sd)


@bare
def _box3_panel(x, y, low2, high2, slope2, sd2, low3, high3, slope3, sd3, slope, sd, enough):
    """Integrate one panel of the first of three coordinates by sixteen nodes.

    A coordinate with a conditional sd of 0 is a window of the first one, and is left out here.
    """
    half, part = 0.5 * (y - x), 0.0
    for i in range(len(NODES)):
        at = x + half * (1.0 + NODES[i])
        density = math.exp(-0.5 * at * at)
        from2, to2, from3, to3 = -math.inf, math.inf, -math.inf, math.inf
        if sd2 > 0.0:
            from2, to2 = (low2 - slope2 * at) / sd2, (high2 - slope2 * at) / sd2
        if sd3 > 0.0:
            from3, to3 = (low3 - slope3 * at) / sd3, (high3 - slope3 * at) / sd3
        value = standard_box2(from2, to2, from3, to3, slope, sd, enough / max(density, 1e-300))
        part += NODE_WEIGHTS[i] * density * value
    return part * half


@bare
def _clip(low, high, low2, high2, slope):
    """Return the part of an interval in which ``slope x`` lies between two numbers."""
    if slope > 0.0:
        return max(low, low2 / slope), min(high, high2 / slope)
    if slope < 0.0:
        return max(low, high2 / slope), min(high, low2 / slope)
    return low, high


@bare
def standard_box3(low, high, r12, r13, r23):
    """Return ``P`` of a box of three standard normals, the first coordinate outermost."""
    sd2, sd3 = (1.0 - r12) * (1.0 + r12), (1.0 - r13) * (1.0 + r13)
    sd2 = math.sqrt(sd2) if sd2 > SINGULAR else 0.0
    sd3 = math.sqrt(sd3) if sd3 > SINGULAR else 0.0
    slope, sd = 0.0, 1.0
    if sd2 > 0.0 and sd3 > 0.0:
        rest = r23 - r12 * r13
        slope = max(-1.0, min(1.0, rest / (sd2 * sd3)))
        left = product_difference(sd2 * sd2, sd3 * sd3, rest) / (sd2 * sd2 * sd3 * sd3)
        # rounding of the covariance is larger, in proportion, beside the conditional covariance
        sd = math.sqrt(left) if left > SINGULAR / min(sd2 * sd2, sd3 * sd3) else 0.0
    start, end = low[0], high[0]
    if sd2 == 0.0:
        start, end = _clip(start, end, low[1], high[1], r12)
    if sd3 == 0.0:
        start, end = _clip(start, end, low[2], high[2], r13)
    if not start < end:
        return 0.0
    low2, high2 = (low[1], high[1]) if sd2 > 0.0 else (-math.inf, math.inf)
    low3, high3 = (low[2], high[2]) if sd3 > 0.0 else (-math.inf, math.inf)
    start, end = _reach(start, end, low2, high2, r12, max(sd2, 1e-300), low3, high3, r13, max(sd3, 1e-300))
    total = rough = 0.0
    for attempt in range(2):
        # first without halving, to find the error that is enough; tiny answers keep nine digits
        rough, total, x = total, 0.0, start
        digits = 1e-14 if rough > 1e-9 else 1e-9
        while x < end:
            y = min(end, x + PANEL, x + FALL / (1.0 + abs(x)))
            if sd2 > 0.0:
                y = _next_break(x, y, low2, high2, r12, sd2)
            if sd3 > 0.0:
                y = _next_break(x, y, low3, high3, r13, sd3)
            if not y > x:
                y = math.nextafter(x, math.inf)
            # the panel, halved where its halves disagree with it: a walk through the halvings from left to right
            length, depth, index = y - x, 0, 0
            while True:
                begin = x + index * length
                enough = 1.0 if attempt == 0 else 0.01 * digits * rough / (end - start)
                left = right = whole = 0.0
                for part in range(3 if attempt == 1 else 1):
                    first = begin + 0.5 * length if part == 2 else begin
                    last = begin + 0.5 * length if part == 1 else begin + length
                    found = _box3_panel(first, last, low2, high2, r12, sd2, low3, high3, r13, sd3, slope, sd, enough)
                    if part == 0:
                        whole = found
                    elif part == 1:
                        left = found
                    else:
                        right = found
                if attempt == 0:
                    total += whole
                    break
                if abs(left + right - whole) <= digits * max(rough, total + left + right) or depth >= 30:
                    total += left + right
                    while depth > 0 and index % 2 == 1:  # up while this is a right half, then to the sibling
                        index //= 2
                        depth -= 1
                        length *= 2.0
                    if depth == 0:
                        break
                    index += 1
                else:
                    depth += 1
                    index *= 2
                    length *= 0.5
            x = y
    return total / math.sqrt(2.0 * math.pi)


@bare
def _narrowest_first(cov, low, high, count, root, order, guess):
    """Factor the correlations of a group, the coordinate that is least likely in its window first (Gibson et al. 1994).

    ``order`` is reordered in place; row i of ``root`` belongs to ``order[i]``. A row whose own share of variance is
    only rounding ends at an earlier column: there it is a further window of that column's variable.
    """
    for i in range(count):
        for k in range(count):
            root[i, k] = 0.0
    rank = 0
    for step in range(count):
        best, least, depth = -1, math.inf, 0.0
        for i in range(step, count):
            at = order[i]
            share = 1.0
            mean = 0.0
            for m in range(rank):
                share -= root[i, m] * root[i, m]
                mean += root[i, m] * guess[m]
            if share <= 4.0 * SINGULAR:
                continue
            own = math.sqrt(share)
            sd = math.sqrt(cov[at, at])
            chance = normal_between((low[at] / sd - mean) / own, (high[at] / sd - mean) / own)
            if chance < least:
                best, least, depth = i, chance, own
        if best < 0:
            break
        order[step], order[best] = order[best], order[step]
        for m in range(rank):
            root[step, m], root[best, m] = root[best, m], root[step, m]
        at = order[step]
        root[step, rank] = depth
        sd = math.sqrt(cov[at, at])
        mean = 0.0
        for m in range(rank):
            mean += root[step, m] * guess[m]
        a, b = (low[at] / sd - mean) / depth, (high[at] / sd - mean) / depth
        mass = normal_between(a, b)
        centre = (math.exp(-0.5 * a * a) - math.exp(-0.5 * b * b)) / math.sqrt(2.0 * math.pi)
        guess[rank] = centre / mass if mass > 1e-300 else max(a, min(b, 0.0))
        for i in range(step + 1, count):
            other = order[i]
            inner = cov[other, at] / (sd * math.sqrt(cov[other, other]))
            for m in range(rank):
                inner -= root[i, m] * root[step, m]
            root[i, rank] = inner / depth
        rank += 1
    return rank


@bare
def _interval(low, high, cov, order, root, last, z, k, count):
    """Return the window of the k-th separated variable: of all rows that end at its column, given those before."""
    a, b = -math.inf, math.inf
    for i in range(count):
        if last[i] != k:
            continue
        at = order[i]
        sd = math.sqrt(cov[at, at])
        known = 0.0
        for m in range(k):
            known += root[i, m] * z[m]
        x, y = (low[at] / sd - known) / root[i, k], (high[at] / sd - known) / root[i, k]
        a, b = max(a, min(x, y)), min(b, max(x, y))
    return a, b


@bare
def _lattice(cov, low, high, count, rank, order, root, last, z, lattice, shift, first, points):
    """Return the sum over lattice points of products of windows, and of their squares.

    Points are folded to make the integrand periodic.
    """
    total = squares = 0.0
    for i in range(first, first + points):
        product = 1.0
        for k in range(rank):
            a, b = _interval(low, high, cov, order, root, last, z, k, count)
            mass = normal_between(a, b)
            product *= mass
            if product <= 0.0:
                break
            if k < rank - 1:
                u = folded((i + 1) * lattice.steps[k] + lattice.shifts[shift, k])
                if a > 0.0:  # from the upper tail, which keeps its digits
                    z[k] = -normal_quantile(normal_cdf(-a) - u * mass)
                else:
                    z[k] = normal_quantile(normal_cdf(a) + u * mass)
                z[k] = max(a, min(b, z[k]))
        total += product
        squares += product * product
    return total, squares


@bare
def _separated(cov, low, high, count, order, root, last, guess, lattice):
    """Return ``P`` of more than three coordinates: the mean over shifted lattices, and its error.

    The error is three standard errors or, where few points have met the box, what they may have missed: no product of
    windows is larger than the first of them.
    """
    rank = _narrowest_first(cov, low, high, count, root, order, guess)
    for i in range(count):
        last[i] = -1
        for k in range(rank):
            if abs(root[i, k]) > 1e-13:
                last[i] = k
    a, b = _interval(low, high, cov, order, root, last, guess, 0, count)
    most_product = normal_between(a, b)
    if rank == 1:
        return most_product, EXACT_ERROR
    sums = lattice.sums
    sums[:] = 0.0
    done, points, squares = 0, FIRST, 0.0
    while True:
        for shift in range(len(sums)):
            part, part_squares = _lattice(
                cov, low, high, count, rank, order, root, last, guess, lattice, shift, done, points
            )
            sums[shift] += part
            squares += part_squares
        done += points
        mean, error = mean_and_error(lattice, done)
        whole, missed = mean * done * len(sums), 0.0
        if whole * whole <= FEW * squares:
            missed = most_product * MISSED / (done * len(sums))
        if is_enough(lattice, error, missed, done):
            return min(1.0, mean), max(error, missed) + EXACT_ERROR
        points = done


@bare
def _groups(mean, cov, low, high, room):
    """Compute limits relative to the mean, and label coordinates that correlate; return whether the box is possible."""
    dim = len(mean)
    for i in range(dim):
        room.group[i] = i
        room.low[i], room.high[i] = low[i] - mean[i], high[i] - mean[i]
        if not low[i] <= high[i] or (cov[i, i] <= 0.0 and not room.low[i] <= 0.0 <= room.high[i]):
            return False
    for i in range(dim):
        for j in range(i):
            if cov[i, j] != 0.0 and cov[i, i] > 0.0 and cov[j, j] > 0.0 and room.group[i] != room.group[j]:
                old, new = room.group[i], room.group[j]
                for k in range(dim):
                    if room.group[k] == old:
                        room.group[k] = new
    return True


@bare
def _members(cov, label, room):
    """List in ``room.order`` the coordinates of a group that vary and have a limit."""
    count = 0
    for i in range(len(room.group)):
        unlimited = room.low[i] == -math.inf and room.high[i] == math.inf
        if room.group[i] == label and cov[i, i] > 0.0 and not unlimited:
            room.order[count] = i
            count += 1
    return count


@bare
def _has_empty_side(cov, room, count):
    """Tell whether one coordinate by itself is outside with so much certainty that its probability is 0 in doubles.

    Then the box's is 0 too, and there is no mass to follow by panels.
    """
    for at in range(count):
        own = room.order[at]
        sd = math.sqrt(cov[own, own])
        if normal_between(room.low[own] / sd, room.high[own] / sd) == 0.0 and room.low[own] < room.high[own]:
            return True
        if room.low[own] == math.inf or room.high[own] == -math.inf:
            return True
    return False


@bare
def _box_rows(means, covs, lows, highs, room, chance, error, largest):
    """Compute all groups of up to three coordinates; ``largest`` tells which rows have larger ones, for the lattice."""
    dim = means.shape[1]
    for row in range(len(means)):
        cov = covs[row]
        chance[row] = 1.0 if _groups(means[row], cov, lows[row], highs[row], room) else 0.0
        error[row], largest[row] = 0.0, 0
        for label in range(dim):
            count = _members(cov, label, room)
            largest[row] = max(largest[row], count)
            if count == 0 or count > 3 or chance[row] == 0.0:
                continue
            if _has_empty_side(cov, room, count):
                chance[row] = 0.0
                continue
            i, j, k = room.order[0], room.order[1 % count], room.order[2 % count]
            part = 1.0
            if count == 1:
                sd = math.sqrt(cov[i, i])
                part = scaled_mass(room.low[i] / sd, room.high[i] / sd, (room.high[i] - room.low[i]) / sd, 0.0)
            elif count == 2:
                one, two = math.sqrt(cov[i, i]), math.sqrt(cov[j, j])
                slope = max(-1.0, min(1.0, cov[i, j] / (one * two)))
                left = product_difference(cov[i, i], cov[j, j], cov[i, j]) / (cov[i, i] * cov[j, j])
                part = standard_box2(
                    room.low[i] / one, room.high[i] / one, room.low[j] / two, room.high[j] / two,
                    slope, math.sqrt(left) if left > SINGULAR else 0.0, 0.0,
                )  # fmt: skip
            else:
                narrow, least = 0, math.inf
                for at in range(3):
                    own = room.order[at]
                    width = (room.high[own] - room.low[own]) / math.sqrt(cov[own, own])
                    if width < least:
                        narrow, least = at, width
                i, j, k = room.order[narrow], room.order[(narrow + 1) % 3], room.order[(narrow + 2) % 3]
                one, two, three = math.sqrt(cov[i, i]), math.sqrt(cov[j, j]), math.sqrt(cov[k, k])
                room.low3[0], room.low3[1], room.low3[2] = room.low[i] / one, room.low[j] / two, room.low[k] / three
                room.high3[0], room.high3[1] = room.high[i] / one, room.high[j] / two
                room.high3[2] = room.high[k] / three
                part = standard_box3(
                    room.low3, room.high3, cov[i, j] / (one * two), cov[i, k] / (one * three), cov[j, k] / (two * three)
                )
            error[row] += EXACT_ERROR
            chance[row] *= min(1.0, part)


@bare
def _lattice_rows(rows, means, covs, lows, highs, room, chance, error):
    """Compute the groups of more than three coordinates of the given rows."""
    for row in rows:
        cov = covs[row]
        if chance[row] == 0.0 or not _groups(means[row], cov, lows[row], highs[row], room):
            continue
        for label in range(means.shape[1]):
            count = _members(cov, label, room)
            if count > 3:
                part, miss = _separated(
                    cov, room.low, room.high, count, room.order, room.root, room.last, room.guess, room.lattice
                )
                error[row] = error[row] * part + miss * chance[row]
                chance[row] *= part


def box_rows(
    means: np.ndarray, covs: np.ndarray, lows: np.ndarray, highs: np.ndarray, tolerance: float, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``P(low <= X <= high)`` for each row, and its error.

    ``tolerance`` and ``most`` (lattice points for a row) only matter for groups of more than three coordinates.
    """
    dim = means.shape[1]

    def whole() -> np.ndarray:
        return np.empty(dim, np.int64)

    room = BoxScratch(
        whole(), whole(), whole(), np.empty(dim), np.empty(dim), np.empty(3), np.empty(3), np.empty(dim),
        np.empty((dim, dim)), make_lattice(dim, tolerance, most),
    )  # fmt: skip
    chance, error, largest = np.empty(len(means)), np.empty(len(means)), np.empty(len(means), np.int64)
    _box_rows(means, covs, lows, highs, room, chance, error, largest)
    if (largest > 3).any():
        _lattice_rows(np.flatnonzero(largest > 3), means, covs, lows, highs, room, chance, error)
    return chance, error
