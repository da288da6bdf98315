"""Find where the integrand over a value may have a kink: where borders of conditions meet, and what they bound depends
on all of them; where a border turns back; and where it crosses an end of a later value."""

from __future__ import annotations

import math

from haply.numerics.integration.polynomials import append_roots, common_root, crossings, keep_between, quadratic_roots
from haply.numerics.jit import bare
from haply.numerics.nested.conditions import combined, is_in
from haply.numerics.nested.problem import FEW_ENDS, MANY_PLACES, MOST_ENDS, SOME_PLACES

_NEAR = 1e-10
"""How near borders that meet may be to be taken as one, beside their size."""


@bare
def _is_flat(room, f, v):
    """Return whether a form is linear in the values from ``v`` on."""
    n = room.squares.shape[1]
    for w in range(v, n):
        for u in range(w, n):
            if room.squares[f, w, u] != 0.0:
                return False
    return True


@bare
def _planes(laws, asked, room, v, row):
    """Collect borders that are linear in the values from ``v`` on, and ends of later components; return how many.

    A plane is the factors of up to three values, their sum, and the number of its border, or -1.
    """
    n, count, planes = room.squares.shape[1], 0, room.kinks.planes
    for b in range(len(asked.border_form)):
        f = asked.border_form[b]
        if math.isfinite(asked.border[b, row]) and _is_flat(room, f, v):
            planes[count, :3] = 0.0
            for w in range(v, n):
                planes[count, w - v] = room.terms[v, f, w]
            planes[count, 3], planes[count, 4] = asked.border[b, row] - room.terms[v, f, n], b
            count += 1
    most = MOST_ENDS if n - v == 2 else FEW_ENDS
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


@bare
def _matters(asked, room, v, point, row):
    """Return whether the integrand has a kink where planes meet: not if it is a sum of parts bounded by fewer planes.

    So it is if the combination, with a sign for each side of each border, does not add up to 0. Where other borders
    are as near, it is taken to matter.
    """
    n, terms, planes, meeting, sides = room.squares.shape[1], room.terms[v], room.kinks.planes, room.kinks.meeting, 0
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
                    if is_in(asked, c, asked.border[b, row], 1 if (k >> bit) & 1 else -1, row):
                        bits |= 1 << k
                break
            bit += 1
        else:
            value, near = room.values[f, 0], room.values[f, 1]
            for k in range(asked.low.shape[1]):
                if abs(value - asked.low[c, k, row]) <= near or abs(value - asked.high[c, k, row]) <= near:
                    return True
            bits = -1 if is_in(asked, c, value, 0, row) else 0
        room.truth[c] = bits
    found, total = combined(asked, room), 0
    for k in range(1 << sides):
        if (found >> k) & 1:
            total += -1 if (k ^ (k >> 1) ^ (k >> 2)) & 1 else 1
    return total != 0


@bare
def find_kinks(laws, asked, room, v, row):
    """Find where the integrand over value ``v`` may have a kink, in order; return how many.

    Of linear borders all are found, and of others too where one value is behind. Where two are, those of one curved
    border are found, alone or with linear ones, and those of two with the same squares: halving panels finds the rest.
    """
    found, inside = room.breaks[v], room.squares.shape[1] - 1 - v
    low, high = room.smooth[v, 0], room.smooth[v, 1]
    room.turning[v] = 0
    count = _curved_kinks(laws, asked, room, v, row)
    if inside == 1:
        count = _crossings(asked, room, v, row, found, count)
    many, planes, point, meeting = (
        _planes(laws, asked, room, v, row),
        room.kinks.planes,
        room.kinks.point,
        room.kinks.meeting,
    )
    if inside == 2:
        count = _turns_on_planes(asked, room, v, row, many, found, count)
        count = _turns_of_two(asked, room, v, row, found, count)
    meeting[:] = -1
    for i in range(many):
        a, b, c, d = planes[i, 0], planes[i, 1], planes[i, 2], planes[i, 3]
        if b == 0.0 and c == 0.0:
            count = append_roots(0.0, a, -d, found, count)
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
                    if not _matters(asked, room, v, point, row):
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
                if _matters(asked, room, v, point, row):
                    found[count] = t
                    count += 1
    for k in range(room.turning[v]):
        if count < len(found):
            found[count] = room.turns[v, k]
            count += 1
    return keep_between(found, count, low, high)


@bare
def _crossings(asked, room, v, row, found, count):
    """Append where two borders, of which one or both are curved, cross in the plane of value ``v`` and the last one."""
    low, high, reach = room.smooth[v, 0], room.smooth[v, 1], room.reach[v + 1]
    planes, point, meeting = room.kinks.planes, room.kinks.point, room.kinks.meeting
    one, other, quartic = room.kinks.borders[0], room.kinks.borders[1], room.kinks.quartic
    meeting[0], meeting[1], meeting[2] = len(planes) - 2, len(planes) - 1, -1
    beyond = 1e-6 * (reach[1] - reach[0])  # of roots that nearly meet, the place is not so exact
    for i in range(len(asked.border_form)):
        f = asked.border_form[i]
        if not math.isfinite(asked.border[i, row]):
            continue
        for j in range(i):
            g = asked.border_form[j]
            if f == g or not math.isfinite(asked.border[j, row]) or (_is_flat(room, f, v) and _is_flat(room, g, v)):
                continue
            _set_border(asked, room, v, i, row, one)
            _set_border(asked, room, v, j, row, other)
            for k in range(crossings(one, other, quartic, low, high)):
                t = quartic.found[k]
                if count >= len(found):
                    return count
                y = common_root(one, other, t)
                if not math.isnan(y):
                    if not reach[0] - beyond <= y <= reach[1] + beyond:
                        continue
                    point[0], point[1] = t, y
                    planes[len(planes) - 2, 4], planes[len(planes) - 1, 4] = i, j
                    if not _matters(asked, room, v, point, row):
                        continue
                found[count] = t
                count += 1
    return count


@bare
def _set_border(asked, room, v, number, row, border):
    """Write the factors of a border in the plane of value ``v`` and the last one, with ``v`` as ``u``."""
    f, n, w = asked.border_form[number], room.squares.shape[1], v + 1
    border[0], border[1], border[2] = room.squares[f, w, w], room.squares[f, v, w], room.terms[v, f, w]
    border[3], border[4] = room.squares[f, v, v], room.terms[v, f, v]
    border[5] = room.terms[v, f, n] - asked.border[number, row]


@bare
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
    count, first, second = quadratic_roots(
        cross * cross - 4.0 * curve * bend, 2.0 * slope * cross - 4.0 * curve * line,
        slope * slope - 4.0 * curve * rest, 0.0,
    )  # fmt: skip
    for k in range(count):
        t = second if k else first
        places[k, 0], places[k, y - v] = t, -0.5 * (slope + cross * t) / curve
        places[k, z - v] = p + q * t + r * places[k, y - v]
    return count


@bare
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
    count, first, second = quadratic_roots(curve, slope, rest, 0.0)
    for k in range(count):
        t = second if k else first
        places[k, 0], places[k, 1], places[k, 2] = t, p + q * t, r + s * t
    return count


@bare
def _add_places(asked, room, v, row, size, found, count):
    """Append the places of ``room.kinks.met`` that lie within the reach of all values and where what meets matters."""
    places = room.kinks.met
    for k in range(size):
        inside = count < len(found) and room.smooth[v, 0] < places[k, 0] < room.smooth[v, 1]
        for w in (1, 2):
            reach = 1e-6 * (room.reach[v + w, 1] - room.reach[v + w, 0])
            inside = inside and room.reach[v + w, 0] - reach <= places[k, w] <= room.reach[v + w, 1] + reach
        if inside and _matters(asked, room, v, places[k], row):
            found[count] = places[k, 0]
            count += 1
    return count


@bare
def _turns_on_planes(asked, room, v, row, many, found, count):
    """Append where a curved border turns back in a linear one, or meets the line in which two planes cross."""
    planes, places, meeting = room.kinks.planes, room.kinks.met, room.kinks.meeting
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
                count = _add_places(asked, room, v, row, size, found, count)
            for j in range(i):
                meeting[2] = j
                if planes[i, 4] >= 0 or planes[j, 4] >= 0:
                    size = _on_line(room, f, v, border, planes[i], planes[j], places)
                    count = _add_places(asked, room, v, row, size, found, count)
    return count


@bare
def _turns_of_two(asked, room, v, row, found, count):
    """Append where two curved borders with the same squares, as those of balls, cross and turn back: in a plane."""
    n, planes, places, plane = room.squares.shape[1], room.kinks.planes, room.kinks.met, room.kinks.plane
    one, other = len(planes) - 2, len(planes) - 1
    room.kinks.meeting[0], room.kinks.meeting[1], room.kinks.meeting[2] = one, other, -1
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
            planes[one, 4], planes[other, 4] = b, e
            size = _on_plane(room, f, v, border, plane, places)
            count = _add_places(asked, room, v, row, size, found, count)
    return count


@bare
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


@bare
def _curved_kinks(laws, asked, room, v, row):
    """Find where curved borders cross ends or middles of the values after ``v``, or turn back.

    What a single border bounds begins and ends there: where nodes of panels are far apart, it may lie between them.
    """
    n, found, count = room.squares.shape[1], room.breaks[v], 0
    inside, here, there = n - 1 - v, 0, 0
    near, far = room.kinks.near[: MANY_PLACES if inside == 1 else SOME_PLACES], room.kinks.far
    for b in range(len(asked.border_form)):
        f, border = asked.border_form[b], asked.border[b, row]
        if not math.isfinite(border) or _is_flat(room, f, v):
            continue
        if here == 0:
            here, there = _places(laws, room, v + 1, row, near), 1
            if inside > 1:
                there = _places(laws, room, v + 2, row, far)
        squares, terms = room.squares[f], room.terms[v, f]
        if inside == 2:
            _add_turns(squares, terms, v, border, near[:here], far[:there], room)
        for i in range(here):
            for j in range(there):
                y, z = near[i], far[j]
                slope = terms[v] + squares[v, v + 1] * y
                rest = terms[n] + (terms[v + 1] + squares[v + 1, v + 1] * y) * y
                if inside > 1:
                    slope += squares[v, v + 2] * z
                    rest += (terms[v + 2] + squares[v + 1, v + 2] * y + squares[v + 2, v + 2] * z) * z
                count = append_roots(squares[v, v], slope, rest - border, found, count)
        curve = squares[v + 1, v + 1]
        if inside == 1 and curve != 0.0:  # it turns back where the polynomial in the last value has one root
            slope, cross = terms[v + 1], squares[v, v + 1]
            _add_turn(
                squares[v, v] - 0.25 * cross * cross / curve, terms[v] - 0.5 * slope * cross / curve,
                terms[n] - border - 0.25 * slope * slope / curve, room, v,
            )  # fmt: skip
    return count


@bare
def _add_turn(a, b, c, room, v):
    """Add the roots of ``a t^2 + b t + c`` to the turns of value ``v``."""
    room.turning[v] = append_roots(a, b, c, room.turns[v], room.turning[v])


@bare
def _add_turns(squares, terms, v, border, near, far, room):
    """Add where a border turns back in the two values after ``v``: in both, or in one where the other has an end."""
    n, y, z = len(terms) - 1, v + 1, v + 2
    a, b, c = squares[y, y], squares[z, z], squares[y, z]
    p, q, s, t = terms[y], squares[v, y], terms[z], squares[v, z]
    det = 4.0 * a * b - c * c
    if abs(det) > 1e-14 * (abs(4.0 * a * b) + c * c):
        _add_turn(
            squares[v, v] - (b * q * q - c * q * t + a * t * t) / det,
            terms[v] - (2.0 * b * p * q - c * (p * t + q * s) + 2.0 * a * s * t) / det,
            terms[n] - border - (b * p * p - c * p * s + a * s * s) / det, room, v,
        )  # fmt: skip
    if b != 0.0:
        for u in near:
            line = s + c * u
            _add_turn(
                squares[v, v] - 0.25 * t * t / b, terms[v] + q * u - 0.5 * line * t / b,
                terms[n] - border + (p + a * u) * u - 0.25 * line * line / b, room, v,
            )  # fmt: skip
    if a != 0.0:
        for u in far:
            line = p + c * u
            _add_turn(
                squares[v, v] - 0.25 * q * q / a, terms[v] + t * u - 0.5 * line * q / a,
                terms[n] - border + (s + b * u) * u - 0.25 * line * line / a, room, v,
            )  # fmt: skip


@bare
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
