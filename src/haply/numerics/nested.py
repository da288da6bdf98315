"""The probability of polynomial conditions on independent values of any law, by integrals over all values but one.

Values that are points only are enumerated. Of the others the last is integrated in closed form: where the conditions
hold is a union of intervals, and its distribution function says how likely they are. The others, if they are two at
most, are integrated by Gauss-Kronrod panels, split where the integrand may have a kink, and halved until the rest is
small. A kink is where borders of conditions meet, but only if what they bound together depends on all of them. A panel
in which the conditions hold for all values, or for none, is not integrated. More than two are those of the points of
shifted lattices.

What is about points only is compared as other kernels compare points, with doubles as they are: see ``_as_written``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.components import NORMAL, POINT, component_cdf, component_quantile, smooth_window
from haply.numerics.jit import kernel
from haply.numerics.multivariate.multinormal import MISSED, RARE
from haply.numerics.normal import cut_pdf

MOST_INTEGRALS = 2
"""Values that are integrated numerically."""
TOLERANCE = 1e-12
"""What the estimated error of a panel may be."""
_MOST_PANELS = 4000
"""Panels that one integral may be split into."""
_MOST_BREAKS = 400
"""Kinks that are looked for before."""
_MOST_ENDS, _FEW_ENDS = 96, 16
"""Ends of a value's components that are looked at, where one value is behind, and where two are."""
_NEAR, _NEAREST = 1e-10, 1e-13
"""How near borders that meet, and kinks, may be to be taken as one, beside their size."""

# Gauss-Kronrod of 15 nodes: its positive nodes, its weights, and those of the 7-node rule at every second node.
_X = np.array([
    0.991455371120812639206854697526329, 0.949107912342758524526189684047851, 0.864864423359769072789712788640926,
    0.741531185599394439863864773280788, 0.586087235467691130294144949058776, 0.405845151377397166906606412076961,
    0.207784955007898467600689403773245, 0.0,
])  # fmt: skip
_W15 = np.array([
    0.022935322010529224963732008058970, 0.063092092629978553290700663189204, 0.104790010322250183839876322541518,
    0.140653259715525918745189590510238, 0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
    0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
])  # fmt: skip
_W7 = np.array([
    0.129484966168869693270611432679082, 0.279705391489276667901467771423780, 0.381830050505118944950369775488975,
    0.417959183673469387755102040816327,
])  # fmt: skip


class Laws(NamedTuple):
    """The laws of all values: components ``start[v, row]`` to ``start[v, row + 1]`` are those of a value."""

    start: np.ndarray
    weight: np.ndarray
    kind: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    given: np.ndarray
    """Points as they are, while ``low`` may be relative to a centre."""


class Written(NamedTuple):
    """Forms about points only, term by term: a factor times ``x_v - far``, or times two of these.

    Form ``f`` has the terms ``start[f]`` to ``start[f + 1]``; none if it is about other values too.
    """

    start: np.ndarray
    one: np.ndarray
    other: np.ndarray
    """The second value of a term; -1 if it has one."""
    far: np.ndarray
    """What is subtracted from either value."""
    factor: np.ndarray
    """By row."""
    slack: np.ndarray
    """By form and row: rounding changes a value by less than this, so terms are added up only where an end is nearer.
    Negative if they always are, once all points are known."""
    low: np.ndarray
    high: np.ndarray
    """The ranges of conditions as they are given."""
    counted: int
    """Values that are enumerated."""


class Polynomials(NamedTuple):
    """Conditions that ``sum linear[f, v] x_v + sum squares[f, v, w] x_v x_w``, v <= w, is in a range, by row.

    Several conditions may be about one such form. A condition with fewer ranges than others has empty ones.
    """

    linear: np.ndarray
    squares: np.ndarray
    border_form: np.ndarray
    """The forms of all borders: a border is where a form has a value at which a range begins or ends."""
    border: np.ndarray
    """Those values, by row; not finite where a row has no such border."""
    form: np.ndarray
    """The form of each condition."""
    low: np.ndarray
    high: np.ndarray
    low_closed: np.ndarray
    high_closed: np.ndarray
    known: np.ndarray
    """Whether conditions hold that depend on no value, by row."""
    written: Written
    program: np.ndarray
    """How conditions are combined: rows of ALL or ANY, and the numbers of the two things that it combines: conditions,
    known ones after the others, and rows of the program after these. The last row is the whole."""


class _Room(NamedTuple):
    """Holds the numbers of one row while it is integrated, and arrays to work in."""

    terms: np.ndarray
    """``terms[v, f]``: the factors of the values from ``v`` on in a form, and its constant, where those before are
    known."""
    squares: np.ndarray
    window: np.ndarray
    """Of each component: where it has all but 1e-17 of its mass, and the length over which it changes."""
    reach: np.ndarray
    """From where to where each value goes."""
    smooth: np.ndarray
    """From where to where each value goes without its points."""
    points: np.ndarray
    """How many points each value has."""
    breaks: np.ndarray
    panels: np.ndarray
    planes: np.ndarray
    values: np.ndarray
    """Two numbers for each form."""
    given: np.ndarray
    """Each value that is a point, as it is."""
    span: np.ndarray
    """From where to where the points of each value go, as they are."""
    truth: np.ndarray
    """Up to 60 bits for each condition, and for each row of the program: whether it holds in as many places."""
    places: np.ndarray


ALL, ANY = 0, 1
_BITS = 60


# -- conditions --------------------------------------------------------------------------------------------------------


@kernel
def _fix(room, v, value):
    """Fix value ``v`` at a number, and compute the terms that are left of the values after it."""
    here, there, n = room.terms[v], room.terms[v + 1], room.squares.shape[1]
    for f in range(len(here)):
        for w in range(v + 1, n):
            there[f, w] = here[f, w] + room.squares[f, v, w] * value
        there[f, n] = here[f, n] + (room.squares[f, v, v] * value + here[f, v]) * value


@kernel
def _is_in(asked, c, value, side, row):
    """Return whether condition ``c`` holds at a value of its form, or just below (``side`` -1) or above it (1)."""
    for k in range(asked.low.shape[1]):
        low, high = asked.low[c, k, row], asked.high[c, k, row]
        above = value > low or (value == low and (side > 0 or (side == 0 and asked.low_closed[c, k])))
        below = value < high or (value == high and (side < 0 or (side == 0 and asked.high_closed[c, k])))
        if above and below:
            return True
    return False


@kernel
def _as_written(asked, room, f, row):
    """Return the value of a form about points: its terms in their order, rounded as NumPy does it.

    Whatever laws the condition stands beside, it is then the same points that lie on a border.
    """
    written, total = asked.written, 0.0
    for k in range(written.start[f], written.start[f + 1]):
        x = room.given[written.one[k]] - written.far[k, 0]
        if written.other[k] >= 0:
            x *= room.given[written.other[k]] - written.far[k, 1]
        total += written.factor[k, row] * x
    return total


@kernel
def _span_as_written(asked, room, f, row):
    """Return the least and the greatest of what ``_as_written`` may return: each step rounds in the same order."""
    written, least, most = asked.written, 0.0, 0.0
    for k in range(written.start[f], written.start[f + 1]):
        one, other = written.one[k], written.other[k]
        low, high = room.span[one, 0] - written.far[k, 0], room.span[one, 1] - written.far[k, 0]
        if other >= 0:
            first, last = room.span[other, 0] - written.far[k, 1], room.span[other, 1] - written.far[k, 1]
            ends = (low * first, low * last, high * first, high * last)
            low, high = min(ends), max(ends)
        begin, end = written.factor[k, row] * low, written.factor[k, row] * high
        least += min(begin, end)
        most += max(begin, end)
    return least, most


@kernel
def _set_written(asked, room, row):
    """Set the values of forms about points, which are all known now."""
    written, n = asked.written, room.squares.shape[1]
    for f in range(len(written.slack)):
        if written.slack[f, row] < 0.0:
            room.terms[written.counted, f, n] = _as_written(asked, room, f, row)


@kernel
def _is_near_end(asked, c, value, row):
    """Return whether rounding may tell on which side of an end a value is."""
    slack = asked.written.slack[asked.form[c], row]
    for k in range(asked.low.shape[1]):
        if abs(value - asked.low[c, k, row]) <= slack or abs(value - asked.high[c, k, row]) <= slack:
            return True
    return False


@kernel
def _is_in_as_written(asked, room, c, row):
    """Return whether a condition about points holds for the sum of its terms."""
    value, low, high = _as_written(asked, room, asked.form[c], row), asked.written.low, asked.written.high
    for k in range(low.shape[1]):
        above = value > low[c, k, row] or (value == low[c, k, row] and asked.low_closed[c, k])
        below = value < high[c, k, row] or (value == high[c, k, row] and asked.high_closed[c, k])
        if above and below:
            return True
    return False


@kernel
def _combined(asked, room):
    """Return where the combination holds: a bit for each place, as in ``room.truth``."""
    truth = room.truth
    place = len(truth) - len(asked.program)
    for step in range(len(asked.program)):
        one, other = truth[asked.program[step, 1]], truth[asked.program[step, 2]]
        truth[place + step] = one & other if asked.program[step, 0] == ALL else one | other
    return truth[len(truth) - 1]


@kernel
def _everywhere(asked, room, v, low, high, row):
    """Return whether the combination holds for all values (1), for none (0) or perhaps for some (-1).

    Values before ``v`` are known, ``v`` lies in a panel, and those behind it anywhere.
    """
    n, terms = room.squares.shape[1], room.terms[v]
    for f in range(len(terms)):
        least = most = terms[f, n]
        for w in range(v, n):
            begin, end = (low, high) if w == v else (room.reach[w, 0], room.reach[w, 1])
            one, two = terms[f, w] * begin, terms[f, w] * end
            least += min(one, two)
            most += max(one, two)
            for u in range(w, n):
                factor = room.squares[f, w, u]
                if factor == 0.0:
                    continue
                if u == w:
                    one, two = begin * begin, end * end
                    if begin < 0.0 < end:
                        one, two = 0.0, max(one, two)
                else:
                    first, last = room.reach[u, 0], room.reach[u, 1]
                    one = min(begin * first, begin * last, end * first, end * last)
                    two = max(begin * first, begin * last, end * first, end * last)
                least += min(factor * one, factor * two)
                most += max(factor * one, factor * two)
        if v < asked.written.counted and asked.written.slack[f, row] < 0.0:
            least, most = _span_as_written(asked, room, f, row)
        room.values[f, 0], room.values[f, 1] = least, most
    for c in range(len(asked.form)):
        f, bits = asked.form[c], 0
        least, most = room.values[f, 0], room.values[f, 1]
        for k in range(asked.low.shape[1]):
            first, last = asked.low[c, k, row], asked.high[c, k, row]
            from_here = most > first or (most == first and asked.low_closed[c, k])
            to_here = least < last or (least == last and asked.high_closed[c, k])
            if not (from_here and to_here):
                continue
            bits |= 2
            begun = least > first or (least == first and asked.low_closed[c, k])
            ended = most < last or (most == last and asked.high_closed[c, k])
            if begun and ended:
                bits = 3
                break
        room.truth[c] = bits
    found = _combined(asked, room)
    return 1 if found & 1 else -1 if found & 2 else 0


# -- the last value ----------------------------------------------------------------------------------------------------


@kernel
def _add_roots(a, b, c, found, count):
    """Append the roots of ``a t^2 + b t + c``; return how many roots there are then."""
    if a == 0.0:
        if b != 0.0 and count < len(found):
            found[count] = -c / b
            count += 1
        return count
    square = b * b - 4.0 * a * c
    if square < 0.0 or count + 2 > len(found):
        return count
    q = -0.5 * (b + math.copysign(math.sqrt(square), b))
    found[count] = q / a
    count += 1
    if q != 0.0:
        found[count] = c / q
        count += 1
    return count


@kernel
def _ascending(values, count, low, high):
    """Keep the values between two numbers, sorted; return how many there are."""
    kept = 0
    for k in range(count):
        value, j = values[k], kept
        if not low < value < high:
            continue
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
        kept += 1
    return kept


@kernel
def _mass(laws, first, last, low, high):
    """Return the probability of an interval under a law without points."""
    total = 0.0
    for k in range(first, last):
        if laws.kind[k] != POINT:
            begin = component_cdf(laws.kind[k], laws.low[k], laws.high[k], laws.mean[k], laws.sd[k], low)
            end = component_cdf(laws.kind[k], laws.low[k], laws.high[k], laws.mean[k], laws.sd[k], high)
            total += laws.weight[k] * (end - begin)
    return total


@kernel
def _closed(laws, asked, room, row):
    """Return the probability that the conditions hold for the last value, given all others."""
    n = room.squares.shape[1]
    v, terms, cuts = n - 1, room.terms[n - 1], room.breaks[n - 1]
    first, last = laws.start[v, row], laws.start[v, row + 1]
    low, high = room.smooth[v, 0], room.smooth[v, 1]
    count = parts = 0
    if low < high:
        for b in range(len(asked.border_form)):
            f, border = asked.border_form[b], asked.border[b, row]
            if math.isfinite(border):
                count = _add_roots(room.squares[f, v, v], terms[f, v], terms[f, n] - border, cuts, count)
        count = _ascending(cuts, count, low, high)
        parts = count + 1
    total, begun, running = 0.0, low, False
    places = parts + (0 if room.points[v] == 0 else last - first)
    for start in range(0, places, _BITS):
        size = min(_BITS, places - start)
        for k in range(size):
            part = start + k
            if part < parts:  # the middle of a part
                room.places[k] = 0.5 * ((cuts[part - 1] if part else low) + (cuts[part] if part < count else high))
            else:
                part += first - parts
                room.places[k] = laws.low[part] if laws.kind[part] == POINT else math.nan
        for c in range(len(asked.form)):
            f, bits = asked.form[c], 0
            a, b, rest = room.squares[f, v, v], terms[f, v], terms[f, n]
            exactly = asked.written.slack[f, row] > 0.0
            for k in range(size):
                t = room.places[k]
                value = (a * t + b) * t + rest
                if exactly and _is_near_end(asked, c, value, row):
                    room.given[v] = t
                    if _is_in_as_written(asked, room, c, row):
                        bits |= 1 << k
                elif _is_in(asked, c, value, 0, row):
                    bits |= 1 << k
            room.truth[c] = bits
        found = _combined(asked, room)
        for k in range(size):
            part, holds = start + k, (found >> k) & 1
            if part >= parts:
                part += first - parts
                if holds and laws.kind[part] == POINT:
                    total += laws.weight[part]
                continue
            here = cuts[part - 1] if part else -math.inf
            if running and not holds:
                total += _mass(laws, first, last, begun, here)
            elif holds and not running:
                begun = here
            running = holds == 1
    return total + _mass(laws, first, last, begun, math.inf) if running else total


# -- where integrands have kinks ---------------------------------------------------------------------------------------


@kernel
def _is_flat(room, f, v):
    """Return whether a form is linear in the values from ``v`` on."""
    n = room.squares.shape[1]
    for w in range(v, n):
        for u in range(w, n):
            if room.squares[f, w, u] != 0.0:
                return False
    return True


@kernel
def _planes(laws, asked, room, v, row):
    """Collect borders that are linear in the values from ``v`` on, and ends of later components; return how many.

    A plane is the factors of up to three values, their sum, and the number of its border, or -1.
    """
    n, count, planes = room.squares.shape[1], 0, room.planes
    for b in range(len(asked.border_form)):
        f = asked.border_form[b]
        if math.isfinite(asked.border[b, row]) and _is_flat(room, f, v):
            planes[count, :3] = 0.0
            for w in range(v, n):
                planes[count, w - v] = room.terms[v, f, w]
            planes[count, 3], planes[count, 4] = asked.border[b, row] - room.terms[v, f, n], b
            count += 1
    most = _MOST_ENDS if n - v == 2 else _FEW_ENDS
    for w in range(v + 1, n):
        first, last = laws.start[w, row], laws.start[w, row + 1]
        step = 1 if 2 * (last - first) <= most else max(1, last - first - 1)
        before = math.nan
        for k in range(first, last, step):
            for end in (laws.low[k], laws.high[k]):
                if math.isfinite(end) and end != before:
                    planes[count] = 0.0
                    planes[count, w - v], planes[count, 3], planes[count, 4] = 1.0, end, -1
                    before = end
                    count += 1
    return count


@kernel
def _matters(asked, room, v, point, meeting, row):
    """Return whether the integrand has a kink where planes meet: not if it is a sum of parts bounded by fewer planes.

    So it is if the combination, with a sign for each side of each border, does not add up to 0. Where other borders
    are as near, it is taken to matter.
    """
    n, terms, planes, sides = room.squares.shape[1], room.terms[v], room.planes, 0
    for i in meeting:
        if i >= 0 and planes[i, 4] >= 0:
            sides += 1
    for f in range(len(terms)):
        value = size = terms[f, n]
        size = abs(size)
        for w in range(v, n):
            term = terms[f, w] * point[w - v]
            for u in range(w, n):
                term += room.squares[f, w, u] * point[w - v] * point[u - v]
            value += term
            size += abs(term)
        room.values[f, 0], room.values[f, 1] = value, _NEAR * size
    for c in range(len(asked.form)):
        f, bit, bits = asked.form[c], 0, -1
        for i in meeting:
            b = int(planes[i, 4]) if i >= 0 else -1
            if b < 0:
                continue
            if asked.border_form[b] == f:
                bits = 0
                for k in range(1 << sides):
                    if _is_in(asked, c, asked.border[b, row], 1 if (k >> bit) & 1 else -1, row):
                        bits |= 1 << k
                break
            bit += 1
        else:
            value, near = room.values[f, 0], room.values[f, 1]
            for k in range(asked.low.shape[1]):
                if abs(value - asked.low[c, k, row]) <= near or abs(value - asked.high[c, k, row]) <= near:
                    return True
            bits = -1 if _is_in(asked, c, value, 0, row) else 0
        room.truth[c] = bits
    found, total = _combined(asked, room), 0
    for k in range(1 << sides):
        if (found >> k) & 1:
            total += -1 if (k ^ (k >> 1) ^ (k >> 2)) & 1 else 1
    return total != 0


@kernel
def _kinks(laws, asked, room, v, row):
    """Find where the integrand over value ``v`` may have a kink, in order; return how many.

    Of linear borders all are found, and of others too where one value is behind. Where two are, those of one curved
    border are found, alone or with linear ones, and those of two with the same squares: halving panels finds the rest.
    """
    found, inside = room.breaks[v], room.squares.shape[1] - 1 - v
    low, high = room.smooth[v, 0], room.smooth[v, 1]
    count = _curved_kinks(laws, asked, room, v, row)
    if inside == 1:
        count = _crossings(asked, room, v, row, found, count)
    many, planes, point, meeting = _planes(laws, asked, room, v, row), room.planes, np.zeros(3), np.full(3, -1)
    if inside == 2:
        count = _turns_on_planes(asked, room, v, row, many, found, count)
        count = _turns_of_two(asked, room, v, row, found, count)
    for i in range(many):
        a, b, c, d = planes[i, 0], planes[i, 1], planes[i, 2], planes[i, 3]
        if b == 0.0 and c == 0.0:
            count = _add_roots(0.0, a, -d, found, count)
            continue
        for j in range(i):
            a2, b2, c2, d2 = planes[j, 0], planes[j, 1], planes[j, 2], planes[j, 3]
            across = b * c2 - b2 * c if inside == 2 else 0.0
            if abs(across) <= 1e-14 * (abs(b * c2) + abs(b2 * c)):  # both are one line, for some value
                scale, other = (b, b2) if b != 0.0 else (c, c2)
                if inside == 1 and (b2 == 0.0 or b == 0.0):
                    continue
                if inside == 2 and other == 0.0:
                    continue
                slope = a * other - a2 * scale
                if slope == 0.0 or count >= len(found):
                    continue
                t = (d * other - d2 * scale) / slope
                if not low < t < high:
                    continue
                if inside == 1:
                    point[0], point[1] = t, (d - a * t) / b
                    meeting[0], meeting[1] = i, j
                    if not room.reach[v + 1, 0] <= point[1] <= room.reach[v + 1, 1]:
                        continue
                    if not _matters(asked, room, v, point, meeting, row):
                        continue
                found[count] = t
                count += 1
                continue
            for k in range(j):
                a3, b3, c3, d3 = planes[k, 0], planes[k, 1], planes[k, 2], planes[k, 3]
                one, two = b * c3 - b3 * c, b2 * c3 - b3 * c2
                if one == 0.0 or two == 0.0 or count >= len(found):
                    continue
                slope = a * two - a2 * one + a3 * across
                if abs(slope) <= 1e-14 * (abs(a * two) + abs(a2 * one) + abs(a3 * across)):
                    continue
                t = (d * two - d2 * one + d3 * across) / slope
                if not low < t < high:
                    continue
                x, y = d - a * t, d2 - a2 * t
                point[0], point[1], point[2] = t, (x * c2 - y * c) / across, (b * y - b2 * x) / across
                meeting[0], meeting[1], meeting[2] = i, j, k
                if not room.reach[v + 1, 0] <= point[1] <= room.reach[v + 1, 1]:
                    continue
                if not room.reach[v + 2, 0] <= point[2] <= room.reach[v + 2, 1]:
                    continue
                if _matters(asked, room, v, point, meeting, row):
                    found[count] = t
                    count += 1
    return _ascending(found, count, low, high)


@kernel
def _crossings(asked, room, v, row, found, count):
    """Append where two borders, of which one or both are curved, cross in the plane of value ``v`` and the last one."""
    n, w, planes, low, high = room.squares.shape[1], v + 1, room.planes, room.smooth[v, 0], room.smooth[v, 1]
    point, meeting, one, other = np.zeros(3), np.full(3, -1), np.zeros((2, 3)), np.zeros((2, 3))
    meeting[0], meeting[1] = len(planes) - 2, len(planes) - 1
    curve, roots = np.zeros(5), np.zeros(4)
    for i in range(len(asked.border_form)):
        f = asked.border_form[i]
        if not math.isfinite(asked.border[i, row]):
            continue
        for j in range(i):
            g = asked.border_form[j]
            if f == g or not math.isfinite(asked.border[j, row]) or (_is_flat(room, f, v) and _is_flat(room, g, v)):
                continue
            # a y^2 + b(t) y + c(t) = 0, twice: both hold for some y where the resultant is 0
            a, a2 = room.squares[f, w, w], room.squares[g, w, w]
            for each, form, border in ((one, f, i), (other, g, j)):
                each[0, 0], each[0, 1] = room.terms[v, form, w], room.squares[form, v, w]
                each[1, 0] = room.terms[v, form, n] - asked.border[border, row]
                each[1, 1], each[1, 2] = room.terms[v, form, v], room.squares[form, v, v]
            _resultant(a, one, a2, other, curve)
            for k in range(_real_roots(curve, low, high, roots)):
                t = roots[k]
                if count >= len(found):
                    return count
                y = _common_root(a, one, a2, other, t)
                reach = 1e-6 * (room.reach[w, 1] - room.reach[w, 0])  # of roots that nearly meet, y is not so exact
                if not room.reach[w, 0] - reach <= y <= room.reach[w, 1] + reach:
                    continue
                point[0], point[1] = t, y
                planes[len(planes) - 2, 4], planes[len(planes) - 1, 4] = i, j
                if _matters(asked, room, v, point, meeting, row):
                    found[count] = t
                    count += 1
    return count


@kernel
def _on_plane(room, f, v, border, plane, places):
    """Write where a border of a form turns back in a plane of value ``v`` and two more; return how many places."""
    n, y, z, squares, terms = room.squares.shape[1], v + 1, v + 2, room.squares[f], room.terms[v, f]
    swap = abs(plane[1]) > abs(plane[2])  # the value that is eliminated is the one with the larger factor
    if swap:
        y, z = z, y
    a, b, c, d = plane[0], plane[y - v], plane[z - v], plane[3]
    if c == 0.0:
        return 0
    p, q, r, across = d / c, -a / c, -b / c, squares[v + 1, v + 2]
    curve = squares[y, y] + (squares[z, z] * r + across) * r
    slope = terms[y] + terms[z] * r + (2.0 * squares[z, z] * r + across) * p
    cross = squares[v, y] + squares[v, z] * r + (2.0 * squares[z, z] * r + across) * q
    if abs(curve) <= 1e-14 * (abs(squares[y, y]) + abs(squares[z, z]) * r * r + abs(across * r)):
        return 0
    rest = terms[n] - border + (terms[z] + squares[z, z] * p) * p
    line = terms[v] + terms[z] * q + (2.0 * squares[z, z] * q + squares[v, z]) * p
    bend = squares[v, v] + (squares[z, z] * q + squares[v, z]) * q
    roots = np.empty(2)
    count = _add_roots(
        cross * cross - 4.0 * curve * bend, 2.0 * slope * cross - 4.0 * curve * line,
        slope * slope - 4.0 * curve * rest, roots, 0,
    )  # fmt: skip
    for k in range(count):
        t = roots[k]
        places[k, 0], places[k, y - v] = t, -0.5 * (slope + cross * t) / curve
        places[k, z - v] = p + q * t + r * places[k, y - v]
    return count


@kernel
def _on_line(room, f, v, border, one, other, places):
    """Write where a border of a form meets the line in which two planes cross; return how many places."""
    n, y, z, squares, terms = room.squares.shape[1], v + 1, v + 2, room.squares[f], room.terms[v, f]
    across = one[1] * other[2] - other[1] * one[2]
    if abs(across) <= 1e-14 * (abs(one[1] * other[2]) + abs(other[1] * one[2])):
        return 0
    p, q = (one[3] * other[2] - other[3] * one[2]) / across, (other[0] * one[2] - one[0] * other[2]) / across
    r, s = (one[1] * other[3] - other[1] * one[3]) / across, (other[1] * one[0] - one[1] * other[0]) / across
    # y = p + q t, z = r + s t
    curve = squares[v, v] + squares[v, y] * q + squares[v, z] * s
    curve += squares[y, y] * q * q + squares[y, z] * q * s + squares[z, z] * s * s
    slope = terms[v] + terms[y] * q + terms[z] * s + squares[v, y] * p + squares[v, z] * r
    slope += 2.0 * (squares[y, y] * p * q + squares[z, z] * r * s) + squares[y, z] * (p * s + q * r)
    rest = terms[n] - border + terms[y] * p + terms[z] * r
    rest += squares[y, y] * p * p + squares[y, z] * p * r + squares[z, z] * r * r
    roots = np.empty(2)
    count = _add_roots(curve, slope, rest, roots, 0)
    for k in range(count):
        places[k, 0], places[k, 1], places[k, 2] = roots[k], p + q * roots[k], r + s * roots[k]
    return count


@kernel
def _add_places(asked, room, v, row, places, size, meeting, found, count):
    """Append those places that lie within the reach of all values and where what meets matters."""
    for k in range(size):
        inside = count < len(found) and room.smooth[v, 0] < places[k, 0] < room.smooth[v, 1]
        for w in (1, 2):
            reach = 1e-6 * (room.reach[v + w, 1] - room.reach[v + w, 0])
            inside = inside and room.reach[v + w, 0] - reach <= places[k, w] <= room.reach[v + w, 1] + reach
        if inside and _matters(asked, room, v, places[k], meeting, row):
            found[count] = places[k, 0]
            count += 1
    return count


@kernel
def _turns_on_planes(asked, room, v, row, many, found, count):
    """Append where a curved border turns back in a linear one, or meets the line in which two planes cross."""
    planes, places, meeting = room.planes, np.empty((2, 3)), np.full(3, -1)
    last = len(planes) - 1
    for b in range(len(asked.border_form)):
        f, border = asked.border_form[b], asked.border[b, row]
        if not math.isfinite(border) or _is_flat(room, f, v):
            continue
        planes[last, 4], meeting[0] = b, last
        for i in range(many):
            meeting[1], meeting[2] = i, -1
            if planes[i, 4] >= 0:  # at the ends of a value it is known
                size = _on_plane(room, f, v, border, planes[i], places)
                count = _add_places(asked, room, v, row, places, size, meeting, found, count)
            for j in range(i):
                meeting[2] = j
                if planes[i, 4] >= 0 or planes[j, 4] >= 0:
                    size = _on_line(room, f, v, border, planes[i], planes[j], places)
                    count = _add_places(asked, room, v, row, places, size, meeting, found, count)
    return count


@kernel
def _turns_of_two(asked, room, v, row, found, count):
    """Append where two curved borders with the same squares, as those of balls, cross and turn back: in a plane."""
    n, planes, places, meeting = room.squares.shape[1], room.planes, np.empty((2, 3)), np.full(3, -1)
    meeting[0], meeting[1], plane = len(planes) - 2, len(planes) - 1, np.empty(4)
    for b in range(len(asked.border_form)):
        f, border = asked.border_form[b], asked.border[b, row]
        if not math.isfinite(border) or _is_flat(room, f, v):
            continue
        for e in range(b):
            g, end = asked.border_form[e], asked.border[e, row]
            if f == g or not math.isfinite(end) or _is_flat(room, g, v):
                continue
            ratio = _ratio(room, f, g, v)
            if ratio == 0.0:
                continue
            for w in range(3):
                plane[w] = room.terms[v, g, v + w] - ratio * room.terms[v, f, v + w]
            plane[3] = end - room.terms[v, g, n] - ratio * (border - room.terms[v, f, n])
            planes[meeting[0], 4], planes[meeting[1], 4] = b, e
            size = _on_plane(room, f, v, border, plane, places)
            count = _add_places(asked, room, v, row, places, size, meeting, found, count)
    return count


@kernel
def _ratio(room, f, g, v):
    """Return what the squares of one form are of those of another, for the values from ``v`` on; 0 if they differ."""
    n, ratio = room.squares.shape[1], 0.0
    for w in range(v, n):
        for u in range(w, n):
            here, there = room.squares[f, w, u], room.squares[g, w, u]
            if (here == 0.0) != (there == 0.0):
                return 0.0
            if here != 0.0:
                if ratio == 0.0:
                    ratio = there / here
                if abs(there - ratio * here) > 1e-14 * abs(there):
                    return 0.0
    return ratio


@kernel
def _resultant(a, one, a2, other, found):
    """Write the coefficients of the resultant of ``a y^2 + b(t) y + c(t)`` for two of these; b is linear in t."""
    found[:] = 0.0
    b, c, b2, c2 = one[0], one[1], other[0], other[1]
    for i in range(3):
        for j in range(3):
            cross = b[i] * c2[j] - b2[i] * c[j]
            if a == 0.0 and a2 == 0.0:
                if i + j < 5:
                    found[i + j] += cross
                continue
            found[i + j] += (a * c2[i] - a2 * c[i]) * (a * c2[j] - a2 * c[j])
            for k in range(2):
                if i < 2 and i + j + k < 5:
                    found[i + j + k] -= (a * b2[k] - a2 * b[k]) * cross


@kernel
def _common_root(a, one, a2, other, t):
    """Return the y at which ``a y^2 + b(t) y + c(t)`` is 0 for both, at a root of their resultant."""
    b, c = one[0, 0] + one[0, 1] * t, one[1, 0] + (one[1, 1] + one[1, 2] * t) * t
    b2, c2 = other[0, 0] + other[0, 1] * t, other[1, 0] + (other[1, 1] + other[1, 2] * t) * t
    if a == 0.0 and a2 == 0.0:
        return -c / b if abs(b) > abs(b2) else -c2 / b2 if b2 != 0.0 else 0.0
    across = a * b2 - a2 * b
    if abs(across) > 1e-9 * (abs(a * b2) + abs(a2 * b)):
        return (a2 * c - a * c2) / across
    return -0.5 * b / a if a != 0.0 else -0.5 * b2 / a2  # both are the same around their middle


@kernel
def _real_roots(curve, low, high, found):
    """Write where a polynomial of degree four changes its sign between two places, in order; return how many are.

    Between places where a derivative is 0 it rises or falls, so that halving finds the only root.
    """
    ends, places, count = np.zeros(6), np.zeros(6), 0
    derived = np.zeros(5)
    for degree in range(1, 5):
        # the derivative of this degree: its roots lie between those of the one after it, which are in ``ends``
        order = 4 - degree
        for k in range(degree + 1):
            factor = curve[k + order]
            for step in range(order):
                factor *= k + order - step
            derived[k] = factor
        places[0], places[count + 1] = low, high
        for k in range(count):
            places[k + 1] = ends[k]
        now = 0
        for k in range(count + 1):
            begin, end = places[k], places[k + 1]
            at_begin, at_end = _at(derived, degree, begin), _at(derived, degree, end)
            if at_begin == 0.0 and k > 0:
                if now == 0 or ends[now - 1] != begin:
                    ends[now] = begin
                    now += 1
                continue
            if not (at_begin < 0.0 < at_end or at_end < 0.0 < at_begin):
                continue
            for _ in range(60):
                middle = 0.5 * (begin + end)
                if not begin < middle < end:
                    break
                value = _at(derived, degree, middle)
                if (value < 0.0) == (at_begin < 0.0):
                    begin = middle
                else:
                    end = middle
            ends[now] = 0.5 * (begin + end)
            now += 1
        count = now
    for k in range(count):
        found[k] = ends[k]
    return count


@kernel
def _at(curve, degree, t):
    """Return the value of a polynomial."""
    value = curve[degree]
    for k in range(degree - 1, -1, -1):
        value = value * t + curve[k]
    return value


@kernel
def _curved_kinks(laws, asked, room, v, row):
    """Find where curved borders cross ends or middles of the values after ``v``, or turn back.

    What a single border bounds begins and ends there: where nodes of panels are far apart, it may lie between them.
    """
    n, found, count = room.squares.shape[1], room.breaks[v], 0
    inside, here, there = n - 1 - v, 0, 0
    near, far = np.zeros(1), np.zeros(1)
    for b in range(len(asked.border_form)):
        f, border = asked.border_form[b], asked.border[b, row]
        if not math.isfinite(border) or _is_flat(room, f, v):
            continue
        if here == 0:
            near = np.zeros(144 if inside == 1 else 48)
            here, there = _places(laws, room, v + 1, row, near), 1
            if inside > 1:
                far = np.zeros(48)
                there = _places(laws, room, v + 2, row, far)
        squares, terms = room.squares[f], room.terms[v, f]
        if inside == 2:
            count = _turns(squares, terms, v, border, near, here, far, there, found, count)
        for i in range(here):
            for j in range(there):
                y, z = near[i], far[j]
                slope = terms[v] + squares[v, v + 1] * y
                rest = terms[n] + (terms[v + 1] + squares[v + 1, v + 1] * y) * y
                if inside > 1:
                    slope += squares[v, v + 2] * z
                    rest += (terms[v + 2] + squares[v + 1, v + 2] * y + squares[v + 2, v + 2] * z) * z
                count = _add_roots(squares[v, v], slope, rest - border, found, count)
        curve = squares[v + 1, v + 1]
        if inside == 1 and curve != 0.0:  # it turns back where the polynomial in the last value has one root
            slope, cross = terms[v + 1], squares[v, v + 1]
            count = _add_roots(
                squares[v, v] - 0.25 * cross * cross / curve, terms[v] - 0.5 * slope * cross / curve,
                terms[n] - border - 0.25 * slope * slope / curve, found, count,
            )  # fmt: skip
    return count


@kernel
def _turns(squares, terms, v, border, near, here, far, there, found, count):
    """Append where a border turns back in the two values after ``v``: in both, or in one where the other has an end."""
    n, y, z = len(terms) - 1, v + 1, v + 2
    a, b, c = squares[y, y], squares[z, z], squares[y, z]
    p, q, s, t = terms[y], squares[v, y], terms[z], squares[v, z]
    det = 4.0 * a * b - c * c
    if abs(det) > 1e-14 * (abs(4.0 * a * b) + c * c):
        count = _add_roots(
            squares[v, v] - (b * q * q - c * q * t + a * t * t) / det,
            terms[v] - (2.0 * b * p * q - c * (p * t + q * s) + 2.0 * a * s * t) / det,
            terms[n] - border - (b * p * p - c * p * s + a * s * s) / det, found, count,
        )  # fmt: skip
    if b != 0.0:
        for i in range(here):
            u = near[i]
            line = s + c * u
            count = _add_roots(
                squares[v, v] - 0.25 * t * t / b, terms[v] + q * u - 0.5 * line * t / b,
                terms[n] - border + (p + a * u) * u - 0.25 * line * line / b, found, count,
            )  # fmt: skip
    if a != 0.0:
        for j in range(there):
            u = far[j]
            line = p + c * u
            count = _add_roots(
                squares[v, v] - 0.25 * q * q / a, terms[v] + t * u - 0.5 * line * q / a,
                terms[n] - border + (s + b * u) * u - 0.25 * line * line / a, found, count,
            )  # fmt: skip
    return count


@kernel
def _places(laws, room, v, row, found):
    """Collect ends and middles of the components of a value; if there are many, those of the first and the last."""
    first, last = laws.start[v, row], laws.start[v, row + 1]
    step = 1 if 3 * (last - first) <= len(found) else max(1, last - first - 1)
    count = 0
    for k in range(first, last, step):
        low, high = room.window[k, 0], room.window[k, 1]
        found[count], found[count + 1], found[count + 2] = low, 0.5 * (low + high), high
        count += 3
    return count


# -- integrals ---------------------------------------------------------------------------------------------------------


@kernel
def _integrated(laws, asked, room, v, row, tolerance):
    """Return the probability that the conditions hold for value ``v`` and those after it, given all before it.

    The estimated error of a panel is at most ``tolerance``; what counts little in the integral outside has a greater.
    """
    if v == room.squares.shape[1] - 1:
        return _closed(laws, asked, room, row)
    total = 0.0
    first, last = laws.start[v, row], laws.start[v, row + 1]
    if room.points[v]:
        for k in range(first, last):
            if laws.kind[k] == POINT:
                _fix(room, v, laws.low[k])
                total += laws.weight[k] * _integrated(laws, asked, room, v + 1, row, tolerance)
    begin, end = room.smooth[v, 0], room.smooth[v, 1]
    if not begin < end:
        return total
    known = _everywhere(asked, room, v, begin, end, row)
    if known >= 0:
        total += known * _mass(laws, first, last, -math.inf, math.inf)
        return total
    cuts, stack = room.breaks[v], room.panels[v]
    count = _kinks(laws, asked, room, v, row)
    for k in range(first, last):
        if laws.kind[k] == POINT:
            continue
        begin, end, scale = room.window[k, 0], room.window[k, 1], room.window[k, 2]
        waiting, low, next_cut, pieces = 0, begin, 0, 0
        while low < end:
            while next_cut < count and not cuts[next_cut] > low + _NEAREST * scale:
                next_cut += 1
            high = min(end, low + 2.0 * scale)
            if next_cut < count and cuts[next_cut] < high:
                high = cuts[next_cut]
            if waiting + 1 >= len(stack):
                high = end
            known = _everywhere(asked, room, v, low, high, row)
            if known < 0:
                stack[waiting, 0], stack[waiting, 1] = low, high
                waiting += 1
            elif known:
                total += _mass(laws, k, k + 1, low, high)
            low = high
        while waiting:
            waiting -= 1
            low, high = stack[waiting, 0], stack[waiting, 1]
            centre, half = 0.5 * (low + high), 0.5 * (high - low)
            fine = coarse = 0.0
            for node in range(15):
                side = node if node < 8 else 14 - node
                place = centre - half * _X[side] if node < 8 else centre + half * _X[side]
                if laws.kind[k] == NORMAL:
                    density = cut_pdf(laws.mean[k], laws.sd[k], laws.low[k], laws.high[k], place)
                else:
                    density = 1.0 / (laws.high[k] - laws.low[k])
                value = 0.0
                if density > 0.0:
                    _fix(room, v, place)
                    inner = tolerance / min(1.0, 2.0 * half * density)
                    value = density * _integrated(laws, asked, room, v + 1, row, inner)
                fine += _W15[side] * value
                if side % 2 == 1:
                    coarse += _W7[side // 2] * value
            pieces += 1
            error = abs(fine - coarse) * half
            small = half <= 4e-16 * max(abs(low), abs(high)) or pieces + waiting >= _MOST_PANELS
            if error <= tolerance or small or waiting + 2 > len(stack):
                total += laws.weight[k] * fine * half
            else:
                stack[waiting, 0], stack[waiting, 1] = low, centre
                stack[waiting + 1, 0], stack[waiting + 1, 1] = centre, high
                waiting += 2
    return total


@kernel
def _windows(laws):
    """Find where each component has all but 1e-17 of its mass, and the length over which its density changes."""
    found = np.empty((len(laws.kind), 3))
    for k in range(len(laws.kind)):
        found[k, 0], found[k, 1], found[k, 2] = laws.low[k], laws.high[k], laws.high[k] - laws.low[k]
        if laws.kind[k] == NORMAL:
            down, up, scale = smooth_window(laws.mean[k], laws.sd[k], laws.low[k], laws.high[k])
            mode = min(max(laws.mean[k], laws.low[k]), laws.high[k])
            found[k, 0], found[k, 1], found[k, 2] = mode + down, mode + up, 2.0 * scale
    return found


@kernel
def _begin_row(laws, asked, room, row):
    """Set up the numbers of a row before any value is fixed."""
    forms, n = asked.linear.shape[0], asked.linear.shape[1]
    for f in range(forms):
        room.terms[0, f, n] = 0.0
        for v in range(n):
            room.terms[0, f, v] = asked.linear[f, v, row]
            for w in range(v, n):
                room.squares[f, v, w] = asked.squares[f, v, w, row]
    for c in range(len(asked.known)):
        room.truth[len(asked.form) + c] = -1 if asked.known[c, row] else 0
    for v in range(n):
        room.reach[v, 0] = room.smooth[v, 0] = room.span[v, 0] = math.inf
        room.reach[v, 1] = room.smooth[v, 1] = room.span[v, 1] = -math.inf
        room.points[v] = 0
        for k in range(laws.start[v, row], laws.start[v, row + 1]):
            low, high = room.window[k, 0], room.window[k, 1]
            room.reach[v, 0], room.reach[v, 1] = min(room.reach[v, 0], low), max(room.reach[v, 1], high)
            if laws.kind[k] == POINT:
                room.points[v] += 1
                room.span[v, 0] = min(room.span[v, 0], laws.given[k])
                room.span[v, 1] = max(room.span[v, 1], laws.given[k])
            else:
                room.smooth[v, 0], room.smooth[v, 1] = min(room.smooth[v, 0], low), max(room.smooth[v, 1], high)


@kernel
def _room(laws, asked):
    """Make arrays that are large enough for any row."""
    forms, n, borders = asked.linear.shape[0], asked.linear.shape[1], len(asked.border_form)
    # of the last value all borders must be there; of the others those that are left out only cost time
    most = max(_MOST_BREAKS, 2 * borders)
    return _Room(
        np.zeros((n, forms, n + 1)), np.zeros((forms, n, n)), _windows(laws), np.empty((n, 2)), np.empty((n, 2)),
        np.empty(n, np.int64), np.empty((n, most)), np.empty((n, most + 200, 2)),
        np.empty((borders + 2 * (_MOST_ENDS + 2) + 2, 5)), np.empty((forms, 2)), np.zeros(n), np.empty((n, 2)),
        np.empty(len(asked.form) + len(asked.known) + len(asked.program), np.int64), np.empty(_BITS),
    )  # fmt: skip


@kernel
def nested_rows(laws, asked, integrals, found):
    """Compute the probability that all conditions hold, for each row.

    The values that are enumerated come first, then those that are integrated numerically, then the last.
    """
    counted, room = asked.linear.shape[1] - 1 - integrals, _room(laws, asked)
    place = np.zeros(counted, np.int64)
    for row in range(len(found)):
        _begin_row(laws, asked, room, row)
        total = 0.0
        place[:] = 0
        more = True
        while more:
            weight = 1.0
            for v in range(counted):
                k = laws.start[v, row] + place[v]
                _fix(room, v, laws.low[k])
                room.given[v] = laws.given[k]
                weight *= laws.weight[k]
            _set_written(asked, room, row)
            total += weight * _integrated(laws, asked, room, counted, row, TOLERANCE)
            more = False
            for v in range(counted):
                place[v] += 1
                if place[v] < laws.start[v, row + 1] - laws.start[v, row]:
                    more = True
                    break
                place[v] = 0
        found[row] = min(1.0, max(0.0, total))


# -- lattices ----------------------------------------------------------------------------------------------------------


@kernel
def _quantile(laws, first, last, share):
    """Return a quantile of a law, and that as it is given: the share says which component, and which of its
    quantiles."""
    k = first
    while k < last - 1 and share > laws.weight[k]:
        share -= laws.weight[k]
        k += 1
    if laws.kind[k] == POINT:
        return laws.low[k], laws.given[k]
    p = min(max(share / laws.weight[k], 1e-16), 1.0 - 1e-16)
    value = component_quantile(laws.kind[k], laws.low[k], laws.high[k], laws.mean[k], laws.sd[k], p)
    return value, value


@kernel
def _at_point(laws, asked, room, point, row):
    """Return the probability of the conditions over the last value; the others are quantiles at a point's numbers."""
    for v in range(len(point)):
        value, room.given[v] = _quantile(laws, laws.start[v, row], laws.start[v, row + 1], point[v])
        _fix(room, v, value)
        if v + 1 == asked.written.counted:
            _set_written(asked, room, row)
    return _closed(laws, asked, room, row)


@kernel
def lattice_rows(laws, asked, steps, shifts, tolerance, most, found, errors):
    """Estimate the probability that all conditions hold, for each row, by a mean over shifted lattices.

    ``steps`` is the lattice's direction and ``shifts`` has a row for each shift. Points are added until three standard
    errors of the mean are at most ``tolerance`` and hardly anything above ``RARE`` can have been missed, or there are
    ``most``. ``errors`` are three standard errors or, if that is more, what may have been missed. Where bounds
    show that the conditions hold for all values, or for none, no point is taken.
    """
    room, point, sums = _room(laws, asked), np.empty(len(steps)), np.empty(len(shifts))
    for row in range(len(found)):
        _begin_row(laws, asked, room, row)
        known = _everywhere(asked, room, 0, room.reach[0, 0], room.reach[0, 1], row)
        if known >= 0:
            found[row], errors[row] = known, 0.0
            continue
        sums[:] = 0.0
        done, points, mean, more = 0, 512, 0.0, True
        while more:
            mean = spread = 0.0
            for shift in range(len(shifts)):
                for i in range(done + 1, done + points + 1):
                    for v in range(len(steps)):
                        u = i * steps[v] + shifts[shift, v]
                        point[v] = abs(2.0 * (u - math.floor(u)) - 1.0)  # folded: the integrand is then periodic
                    sums[shift] += _at_point(laws, asked, room, point, row)
                mean += sums[shift] / (done + points) / len(shifts)
            done += points
            points = done
            for shift in range(len(shifts)):
                spread += (sums[shift] / done - mean) ** 2
            error = 3.0 * math.sqrt(spread / (len(shifts) * (len(shifts) - 1)))
            missed = MISSED / (done * len(shifts))
            more = (error > tolerance or missed > RARE) and done * len(shifts) < most
        found[row] = min(1.0, max(0.0, mean))
        errors[row] = max(error, missed)
