"""Compute the probability that several polynomials of normals, of degree at most two, lie in their ranges together.

Conditions are ``z' bent z + slant z`` in a union of ranges, with independent standard normal ``z``. Conditions that
share no direction are independent, and computed apart. For the others only the directions that matter are kept. One
direction is always exact: given the rest, each condition cuts its line at the roots of a quadratic, and the normal mass
between these is known. Over a second direction that mass is integrated piecewise, cut wherever it has a corner: where
two roots meet, and where two borders cross. A third is integrated likewise, around the plane. Beyond three, the other
directions are those of a randomly shifted lattice, with its error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.integration.lattices import FIRST, MISSED, folded, is_enough, make_lattice, mean_and_error
from haply.numerics.integration.pieces import PIECES, PLACES, SUMS, begin_pieces, error_of, halve, place_of
from haply.numerics.integration.polynomials import Quartic, common_root, crossings, quadratic_roots, quartic_room
from haply.numerics.jit import bare
from haply.numerics.multivariate.directions import SAME, reduce_rows
from haply.numerics.multivariate.multinormal import EXACT_ERROR
from haply.numerics.normal import SQRT_2PI, normal_between, normal_quantile

TOUCH = 2.0**-48
"""Two roots count as one if they differ by this share of the terms that they are computed from."""
REACH, FAR = 8.5, 38.0
"""A standard normal is beyond the first with probability 2e-17, and beyond the second with one that is 0 in doubles."""
PANEL = 2.5
"""Pieces are no longer than this."""
FINE, COARSE, OUTER = 1e-12, 1e-11, 1e-10
"""The error that a piece may have: in the plane; in space, in its planes; and in space, along the last direction. All
pieces in space together err by 1e-8 by their own estimate, which is ten times the observed error."""
SMALL, RELATIVE = 1e-9, 1e-10
"""In the plane, probabilities below the first are computed to the second, as a relative error."""
MOST_PIECES = 400
"""The most pieces between two corners: if these are not enough, the values have no more digits."""
ANGLES, TRIALS = 12, 64
"""How many directions are tried in the plane, and in more than three dimensions."""


class CurvedScratch(NamedTuple):
    """Arrays to work in, made once for all rows.

    Conditions that are computed together are stored one after the other: in a ``plane`` as
    ``a v^2 + (e u + f) v + g u^2 + h u + k``, its factors in this order, and along a line, ``given`` all else, as
    ``curve v^2 + line v + rest``. Their ranges are ``span[c, 0]:span[c, 1]`` of ``ends``, each with a low and a high
    one.
    """

    plane: np.ndarray
    given: np.ndarray
    span: np.ndarray
    ends: np.ndarray
    cuts: np.ndarray
    border: np.ndarray
    """Each border as its six factors (see ``numerics.polynomials``) and the number of its condition."""
    marks: np.ndarray
    """Where there are corners."""
    turns: np.ndarray
    """Where the two roots of a border meet."""
    stack: np.ndarray
    """Pieces that are not integrated yet."""
    sums: np.ndarray
    quartic: Quartic


# -- one direction -----------------------------------------------------------------------------------------------------


@bare
def _insert(cuts, count, x):
    """Insert a number into a sorted list, unless it lies beyond all mass; return the new count."""
    if not -FAR < x < FAR:
        return count
    at = count
    while at > 0 and cuts[at - 1] > x:
        cuts[at] = cuts[at - 1]
        at -= 1
    cuts[at] = x
    return count + 1


@bare
def _add_roots(a, b, c, cuts, count):
    """Insert the real roots of ``a x^2 + b x + c`` into a sorted list; return the new count."""
    roots, one, other = quadratic_roots(a, b, c, TOUCH)
    if roots > 0:
        count = _insert(cuts, count, one)
    return _insert(cuts, count, other) if roots > 1 else count


@bare
def _within(y, c, room, slack):
    """Tell whether a number lies in one of the ranges of a condition."""
    found = False
    for e in range(room.span[c, 0], room.span[c, 1]):
        found = found or room.ends[e, 0] - slack <= y <= room.ends[e, 1] + slack
    return found


@bare
def _mass(count, room):
    """Return the normal mass of all ``v`` for which every condition of ``room.given`` lies in its ranges."""
    given, cuts, span, ends = room.given, room.cuts, room.span, room.ends
    n = np.int64(0)  # for a plain 0 the functions that get it would be compiled twice
    for c in range(count):
        for e in range(span[c, 0], span[c, 1]):
            for side in range(2):
                if abs(ends[e, side]) < math.inf:
                    n = _add_roots(given[c, 0], given[c, 1], given[c, 2] - ends[e, side], cuts, n)
    total, begin, inside, before = 0.0, 0.0, False, -FAR
    for k in range(n + 2):  # a last step only ends the open piece
        after = cuts[k] if k < n else FAR
        if k <= n and after <= before:
            continue
        holds = not k > n
        v = 0.5 * (before + after)
        for c in range(count):
            holds = holds and _within((given[c, 0] * v + given[c, 1]) * v + given[c, 2], c, room, 0.0)
        if inside and not holds:
            total += normal_between(begin, before)
        elif holds and not inside:
            begin = before
        inside, before = holds, after
    return total


# -- where the mass has corners ----------------------------------------------------------------------------------------


@bare
def _is_corner(u, v, one, other, count, room):
    """Tell whether a place where borders meet may be a corner of the region: no other condition rules it out."""
    plane, possible = room.plane, abs(u) < FAR and abs(v) < FAR
    for c in range(count):
        if possible and c != one and c != other:
            a, e, f, g, h, k = plane[c, 0], plane[c, 1], plane[c, 2], plane[c, 3], plane[c, 4], plane[c, 5]
            y = a * v * v + (e * u + f) * v + (g * u + h) * u + k
            size = abs(a) * v * v + (abs(e * u) + abs(f)) * abs(v) + (abs(g * u) + abs(h)) * abs(u) + abs(k)
            possible = _within(y, c, room, 1e-6 * (1.0 + size))
    return possible


@bare
def _mark_turns(at, count, n, turns, room):
    """Add the places where the two roots of a border meet, or where one goes off to infinity.

    Returns how many corners and how many turns there are now. Turns need not be corners of the region.
    """
    border, found = room.border, room.cuts
    a, e, f, g, h, k = border[at, 0], border[at, 1], border[at, 2], border[at, 3], border[at, 4], border[at, 5]
    inside = f * f - 4.0 * a * k, 2.0 * e * f - 4.0 * a * h, e * e - 4.0 * a * g
    for i in range(_add_roots(inside[2], inside[1], inside[0], found, np.int64(0))):
        turns = _insert(room.turns, turns, found[i])
        if a == 0.0 or _is_corner(found[i], -0.5 * (e * found[i] + f) / a, border[at, 6], border[at, 6], count, room):
            n = _insert(room.marks, n, found[i])
    return n, turns


@bare
def _mark_crossings(one, other, count, n, room):
    """Add the places where two borders cross, unless other conditions rule them out."""
    border, quartic = room.border, room.quartic
    for i in range(crossings(border[one], border[other], quartic, -FAR, FAR)):
        u = quartic.found[i]
        v = common_root(border[one], border[other], u)
        if math.isnan(v) or _is_corner(u, v, border[one, 6], border[other, 6], count, room):
            n = _insert(room.marks, n, u)
    return n


@bare
def _mark_borders(count, room):
    """Mark all places in ``u`` where the mass given ``u`` may have a corner, and all turns, sorted; return how many."""
    border, ends, borders, n, turns = room.border, room.ends, 0, np.int64(0), np.int64(0)
    for c in range(count):
        for e in range(room.span[c, 0], room.span[c, 1]):
            for side in range(2):
                if abs(ends[e, side]) < math.inf and ends[e, 0] <= ends[e, 1]:
                    for k in range(6):
                        border[borders, k] = room.plane[c, k]
                    border[borders, 5] -= ends[e, side]
                    border[borders, 6] = c
                    borders += 1
    for at in range(borders):
        n, turns = _mark_turns(at, count, n, turns, room)
        for other in range(at):
            if border[other, 6] != border[at, 6]:
                n = _mark_crossings(at, other, count, n, room)
    return n, turns


# -- two directions ----------------------------------------------------------------------------------------------------


@bare
def _turn(count, room):
    """Turn the plane so that all borders are as flat as possible: the mass given ``u`` then changes slowly with it."""
    plane = room.plane
    best, cosine, sine = -1.0, 1.0, 0.0
    for angle in range(ANGLES):
        x, y = math.cos(math.pi * angle / ANGLES), math.sin(math.pi * angle / ANGLES)
        score = math.inf
        for c in range(count):
            a, e, f, g, h = plane[c, 0], plane[c, 1], plane[c, 2], plane[c, 3], plane[c, 4]
            size = 4.0 * math.sqrt(a * a + 0.5 * e * e + g * g) + math.sqrt(f * f + h * h)
            if size > SAME:
                bend = abs(x * x * a + x * y * e + y * y * g)
                score = min(score, (4.0 * bend + abs(x * f + y * h)) / size)
        if score > best + 1e-3:
            best, cosine, sine = score, x, y
    x, y = cosine, sine
    for c in range(count):  # v is now x v - y u, and u is y v + x u
        a, e, f, g, h = plane[c, 0], plane[c, 1], plane[c, 2], plane[c, 3], plane[c, 4]
        plane[c, 0], plane[c, 3] = x * x * a + x * y * e + y * y * g, y * y * a - x * y * e + x * x * g
        plane[c, 1] = 2.0 * x * y * (g - a) + (x * x - y * y) * e
        plane[c, 2], plane[c, 4] = x * f + y * h, x * h - y * f


@bare
def _along(u, count, room):
    """Return the mass of the other direction, given this one."""
    plane, given = room.plane, room.given
    for c in range(count):
        given[c, 0], given[c, 1] = plane[c, 0], plane[c, 1] * u + plane[c, 2]
        given[c, 2] = (plane[c, 3] * u + plane[c, 4]) * u + plane[c, 5]
    return _mass(count, room)


@bare
def _over_pieces(count, n, turns, reach, agree, relative, room):
    """Return the integral over all pieces between corners within reach, and its error; pieces are halved as needed."""
    stack, sums = room.stack, room.sums
    total, error, edge = 0.0, 0.0, -reach
    for k in range(n + 1):
        following = min(room.marks[k], reach) if k < n else reach
        if following - edge <= 1e-10 * (1.0 + abs(edge)):
            continue
        size, done = begin_pieces(stack, edge, following, PANEL, room.turns, turns), 0
        most = size + MOST_PIECES
        while size > 0:
            size, done = size - 1, done + 1
            sums[:] = 0.0
            for j in range(len(PLACES)):
                u, pace = place_of(stack[size, 0], stack[size, 1], stack[size, 2], PLACES[j])
                height = pace / SQRT_2PI * math.exp(-0.5 * u * u) * _along(u, count, room)
                for i in range(len(sums)):
                    sums[i] += SUMS[i, j] * height
                if j == 2 and sums[0] == 0.0:
                    break  # empty in the middle and at both ends, and without corners: empty everywhere
            miss = error_of(sums)
            if miss <= agree + relative * (total + sums[0]) or size + 2 > len(stack) or done > most:
                total += sums[0]
                error += miss
            else:
                size = halve(stack, size)
        edge = following
    return total, error


@bare
def _in_plane(count, agree, small, room):
    """Return the probability in the plane, and its error: relative if the probability is below ``small``."""
    kept = 0
    for c in range(count):  # a condition that does not depend on the place holds everywhere or nowhere
        varies = False
        for k in range(5):
            varies = varies or abs(room.plane[c, k]) > SAME
        if varies:
            kept += 1
        elif not _within(room.plane[c, 5], c, room, 0.0):
            return 0.0, 0.0
    if kept == 0:
        return 1.0, 0.0
    _turn(count, room)
    n, turns = _mark_borders(count, room)
    reach, relative = REACH, 0.0
    while True:
        total, error = _over_pieces(count, n, turns, reach, agree, relative, room)
        if total >= small or relative > 0.0:
            return total, error + EXACT_ERROR
        reach, agree, relative = FAR, 0.0, RELATIVE


# -- three directions --------------------------------------------------------------------------------------------------


@bare
def _section(w, count, bent, slant, room):
    """Write the conditions in the plane that is left, given the first of three directions."""
    plane = room.plane
    for c in range(count):
        plane[c, 0], plane[c, 1], plane[c, 3] = bent[c, 2, 2], 2.0 * bent[c, 1, 2], bent[c, 1, 1]
        plane[c, 2] = slant[c, 2] + 2.0 * bent[c, 0, 2] * w
        plane[c, 4] = slant[c, 1] + 2.0 * bent[c, 0, 1] * w
        plane[c, 5] = (bent[c, 0, 0] * w + slant[c, 0]) * w


@bare
def _mark_sections(count, bent, slant, marks, room):
    """Mark places along the first direction where a border's section with the plane appears or vanishes.

    Returns how many there are.
    """
    n, ends = np.int64(0), room.ends
    for c in range(count):
        p, q, r = bent[c, 1, 1], bent[c, 1, 2], bent[c, 2, 2]
        size = abs(p) + abs(q) + abs(r)
        # the extreme value in the plane is a quadratic in w: where it equals an end of a range, the section is a point
        a, b, k = bent[c, 0, 0], slant[c, 0], 0.0
        x1, y1, x0, y0 = 2.0 * bent[c, 0, 1], 2.0 * bent[c, 0, 2], slant[c, 1], slant[c, 2]
        inverse = p * r - q * q
        if abs(inverse) > 1e-12 * size * size:
            a -= 0.25 * (r * x1 * x1 - 2.0 * q * x1 * y1 + p * y1 * y1) / inverse
            b -= 0.5 * (r * x1 * x0 - q * (x1 * y0 + x0 * y1) + p * y1 * y0) / inverse
            k -= 0.25 * (r * x0 * x0 - 2.0 * q * x0 * y0 + p * y0 * y0) / inverse
        elif size > SAME:  # bent in one direction only: (x, y) with p = x^2, q = x y, r = y^2, up to a factor
            x, y = (p, q) if abs(p) >= abs(r) else (q, r)
            length = math.sqrt(x * x + y * y)
            grow, stay, bend = (x * x1 + y * y1) / length, (x * x0 + y * y0) / length, p + r
            a, b, k = a - 0.25 * grow * grow / bend, b - 0.5 * grow * stay / bend, k - 0.25 * stay * stay / bend
        for e in range(room.span[c, 0], room.span[c, 1]):
            for side in range(2):
                if abs(ends[e, side]) < math.inf:
                    n = _add_roots(a, b, k - ends[e, side], marks, n)
    return n


@bare
def _in_space(count, bent, slant, marks, stack, sums, room):
    """Return the probability in three directions, and its error: the probability in the plane, integrated once more."""
    n = _mark_sections(count, bent, slant, marks, room)
    total, error, edge = 0.0, 0.0, -REACH
    for k in range(n + 1):
        following = min(marks[k], REACH) if k < n else REACH
        if following - edge <= 1e-10:
            continue
        size, done = begin_pieces(stack, edge, following, PANEL, marks, n), 0
        most = size + MOST_PIECES
        while size > 0:
            size, done = size - 1, done + 1
            sums[:] = 0.0
            inner = 0.0
            for j in range(len(PLACES)):
                w, pace = place_of(stack[size, 0], stack[size, 1], stack[size, 2], PLACES[j])
                height = pace / SQRT_2PI * math.exp(-0.5 * w * w)
                _section(w, count, bent, slant, room)
                chance, miss = _in_plane(count, COARSE, 0.0, room)
                for i in range(len(sums)):
                    sums[i] += SUMS[i, j] * height * chance
                inner += SUMS[0, j] * height * miss
            miss = error_of(sums)
            if miss <= OUTER or size + 2 > len(stack) or done > most:
                total += sums[0]
                error += 10.0 * miss + inner  # surfaces that touch make corners that are not marked
            else:
                size = halve(stack, size)
        edge = following
    return total, error + EXACT_ERROR


# -- more directions ---------------------------------------------------------------------------------------------------


@bare
def _at_point(dim, count, bent, slant, z, room):
    """Return the mass of the first direction, given all others."""
    for c in range(count):
        line, rest = slant[c, 0], 0.0
        for i in range(1, dim):
            line += 2.0 * bent[c, 0, i] * z[i]
            own = slant[c, i]
            for j in range(1, dim):
                own += bent[c, i, j] * z[j]
            rest += own * z[i]
        room.given[c, 0], room.given[c, 1], room.given[c, 2] = bent[c, 0, 0], line, rest
    return _mass(count, room)


@bare
def _smoothest(dim, count, bent, slant, lattice, best):
    """Turn the conditions so that all of them depend on the first direction as much as possible.

    Its mass is then a smooth function of the others. The directions that are tried are spread evenly.
    """
    z, steps = lattice.point, lattice.steps
    most = -1.0
    for trial in range(TRIALS):
        length = 0.0
        for k in range(dim):
            u = (trial + 1) * steps[k]
            z[k] = normal_quantile(min(max(u - math.floor(u), 1e-9), 1.0 - 1e-9))
            length += z[k] * z[k]
        score = math.inf
        for c in range(count):
            bend, line = 0.0, 0.0
            for i in range(dim):
                line += slant[c, i] * z[i]
                for j in range(dim):
                    bend += bent[c, i, j] * z[i] * z[j]
            score = min(score, abs(line) / math.sqrt(length) + 4.0 * abs(bend) / length)
        if score > most:
            most = score
            for k in range(dim):
                best[k] = z[k] / math.sqrt(length)
    best[0] -= 1.0  # the normal of the mirror that exchanges this direction and the first
    length = 0.0
    for k in range(dim):
        length += best[k] * best[k]
    for c in range(count):
        _mirror(slant[c], best, dim, length)
        for i in range(dim):
            _mirror(bent[c, i], best, dim, length)
        for j in range(dim):
            _mirror(bent[c, :, j], best, dim, length)


@bare
def _mirror(row, normal, dim, length):
    inner = 0.0
    for k in range(dim):
        inner += row[k] * normal[k]
    for k in range(dim):
        row[k] -= 2.0 * inner / length * normal[k]


@bare
def _over_lattice(dim, count, bent, slant, lattice, best, room):
    """Return the mean over shifted lattices, folded so that the integrand is periodic, and its error.

    The error is three standard errors or, if that is more, what so many points may have missed.
    """
    _smoothest(dim, count, bent, slant, lattice, best)
    z, steps, shifts, sums = lattice.point, lattice.steps, lattice.shifts, lattice.sums
    sums[:] = 0.0
    done, points = 0, FIRST
    while True:
        for shift in range(len(sums)):
            for i in range(done + 1, done + points + 1):
                for k in range(1, dim):
                    u = folded(i * steps[k - 1] + shifts[shift, k - 1])
                    z[k] = max(-FAR, min(FAR, normal_quantile(u)))
                sums[shift] += _at_point(dim, count, bent, slant, z, room)
        done += points
        mean, error = mean_and_error(lattice, done)
        missed = MISSED / (done * len(sums))
        if is_enough(lattice, error, missed, done):
            return mean, max(error, missed) + EXACT_ERROR
        points = done


# -- all rows ----------------------------------------------------------------------------------------------------------


class Reduced(NamedTuple):
    """Conditions in the directions of their labels, row by row, and the results of each row."""

    label: np.ndarray
    dims: np.ndarray
    first: np.ndarray
    low: np.ndarray
    high: np.ndarray
    bent: np.ndarray
    slant: np.ndarray
    chance: np.ndarray
    error: np.ndarray


@bare
def _gather(row, own, reduced, bent, slant, room):
    """Collect the conditions of one label, one after the other; return how many."""
    count = ranges = 0
    for c in range(reduced.label.shape[1]):
        if reduced.label[row, c] != own:
            continue
        for i in range(bent.shape[1]):
            slant[count, i] = reduced.slant[row, c, i]
            for j in range(bent.shape[1]):
                bent[count, i, j] = reduced.bent[row, c, i, j]
        room.span[count, 0] = ranges
        for e in range(reduced.first[c], reduced.first[c + 1]):
            room.ends[ranges, 0], room.ends[ranges, 1] = reduced.low[row, e], reduced.high[row, e]
            ranges += 1
        room.span[count, 1] = ranges
        count += 1
    return count


@bare
def _multiply(row, part, miss, reduced):
    part = max(0.0, min(1.0, part))
    reduced.error[row] = reduced.error[row] * part + miss * reduced.chance[row]
    reduced.chance[row] *= part


@bare
def _line_rows(rows, owns, reduced, bent, slant, z, room):
    for b in range(len(rows)):
        count = _gather(rows[b], owns[b], reduced, bent, slant, room)
        _multiply(rows[b], _at_point(1, count, bent, slant, z, room), EXACT_ERROR, reduced)


@bare
def _plane_rows(rows, owns, reduced, bent, slant, room):
    for b in range(len(rows)):
        if reduced.chance[rows[b]] > 0.0:
            count = _gather(rows[b], owns[b], reduced, bent, slant, room)
            _section(0.0, count, bent, slant, room)
            part, miss = _in_plane(count, FINE, SMALL, room)
            _multiply(rows[b], part, miss, reduced)


@bare
def _space_rows(rows, owns, reduced, bent, slant, marks, stack, sums, room):
    for b in range(len(rows)):
        if reduced.chance[rows[b]] > 0.0:
            count = _gather(rows[b], owns[b], reduced, bent, slant, room)
            part, miss = _in_space(count, bent, slant, marks, stack, sums, room)
            _multiply(rows[b], part, miss, reduced)


@bare
def _lattice_rows(rows, owns, reduced, bent, slant, lattice, best, room):
    for b in range(len(rows)):
        if reduced.chance[rows[b]] > 0.0:
            count = _gather(rows[b], owns[b], reduced, bent, slant, room)
            part, miss = _over_lattice(reduced.dims[rows[b], owns[b]], count, bent, slant, lattice, best, room)
            _multiply(rows[b], part, miss, reduced)


def curved_rows(
    bent: np.ndarray, slant: np.ndarray, low: np.ndarray, high: np.ndarray, first: np.ndarray,
    tolerance: float, most: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the probability that all conditions of a row hold, and its error.

    ``bent`` (n, conditions, d, d) and ``slant`` (n, conditions, d) are those of the conditions in standard normals; the
    ranges of condition ``c`` are ``first[c]:first[c + 1]`` of ``low`` and ``high`` (n, ranges). ``tolerance`` and
    ``most`` (lattice points for a row) only matter for more than three directions.
    """
    n, count, dim = slant.shape
    ends, space = 2 * low.shape[1], max(dim, 3)
    varies = bent.any(axis=(2, 3)) | slant.any(axis=2)
    met = np.logical_or.reduceat((low <= 0.0) & (high >= 0.0), first[:-1], axis=1)
    reduced = Reduced(
        label=np.empty((n, count), np.int64), dims=np.empty((n, count), np.int64), first=first, low=low.copy(),
        high=high.copy(), bent=np.empty((n, count, space, space)), slant=np.empty((n, count, space)),
        chance=np.where((varies | met).all(axis=1), 1.0, 0.0), error=np.zeros(n),
    )  # fmt: skip
    reduce_rows(
        bent, slant, first, np.empty((count * (dim + 1), dim)), np.empty((space, dim)), np.empty(dim),
        reduced.label, reduced.dims, reduced.bent, reduced.slant, reduced.low, reduced.high,
    )  # fmt: skip
    room = CurvedScratch(
        plane=np.empty((count, 6)), given=np.empty((count, 3)), span=np.empty((count, 2), np.int64),
        ends=np.empty((low.shape[1], 2)), cuts=np.empty(2 * ends + 2), border=np.empty((ends, 7)),
        marks=np.empty(2 * ends + 2 * ends * ends), turns=np.empty(2 * ends), stack=np.empty((PIECES, 3)),
        sums=np.empty(5), quartic=quartic_room(),
    )  # fmt: skip
    own_bent, own_slant, z = np.empty((count, space, space)), np.empty((count, space)), np.empty(space)
    rows, owns = _places(reduced.dims == 1)
    if len(rows):
        _line_rows(rows, owns, reduced, own_bent, own_slant, z, room)
    rows, owns = _places(reduced.dims == 2)
    if len(rows):
        _plane_rows(rows, owns, reduced, own_bent, own_slant, room)
    rows, owns = _places(reduced.dims == 3)
    if len(rows):
        marks, stack, sums = np.empty(2 * ends), np.empty((PIECES, 3)), np.empty(5)
        _space_rows(rows, owns, reduced, own_bent, own_slant, marks, stack, sums, room)
    rows, owns = _places(reduced.dims > 3)
    if len(rows):
        lattice = make_lattice(dim, tolerance, most)
        _lattice_rows(rows, owns, reduced, own_bent, own_slant, lattice, np.empty(dim), room)
    return reduced.chance, reduced.error


def _places(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of chosen entries as contiguous arrays: numpy's views would compile kernels once more."""
    rows, columns = map(np.ascontiguousarray, np.nonzero(chosen))
    return rows, columns
