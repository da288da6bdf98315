"""The probability of polynomial conditions on independent values of any law, by integrals over all values but one.

Values that are points only are enumerated. Of the others the last is integrated in closed form: where the conditions
hold is a union of intervals, and its distribution function says how likely they are. The others, two at most, are
integrated by Gauss-Kronrod panels, split where the integrand may have a kink, and halved until the rest is small.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.components import NORMAL, POINT, component_cdf, smooth_window
from haply.numerics.jit import kernel
from haply.numerics.normal import cut_pdf

MOST_INTEGRALS = 2
"""Values that are integrated numerically."""
TOLERANCE = 1e-12
"""What the estimated error of a panel may be."""
_MOST_PANELS = 4000
"""Panels that one integral may be split into."""
_MOST_BREAKS = 400
"""Kinks that are looked for before."""

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


class Polynomials(NamedTuple):
    """Conditions ``sum linear[c, v] x_v + sum squares[c, v, w] x_v x_w``, v <= w, in one of some ranges, by row.

    A condition with fewer ranges has empty ones.
    """

    linear: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray
    low_closed: np.ndarray
    high_closed: np.ndarray
    known: np.ndarray
    """Whether conditions hold that depend on no value, by row."""
    program: np.ndarray
    """How conditions are combined: their numbers, those of known ones after the others, each followed by ALL or ANY
    where it combines the last two."""


ALL, ANY = -1, -2


@kernel
def _along(asked, c, v, x, row):
    """``a, b, rest`` of the polynomial ``a t^2 + b t + rest`` in value ``v``, where the others are known."""
    n = asked.linear.shape[1]
    a, b, rest = asked.squares[c, v, v, row], asked.linear[c, v, row], 0.0
    for w in range(n):
        if w == v:
            continue
        rest += asked.linear[c, w, row] * x[w]
        b += asked.squares[c, min(v, w), max(v, w), row] * x[w]
        for u in range(w, n):
            if u != v:
                rest += asked.squares[c, w, u, row] * x[w] * x[u]
    return a, b, rest


@kernel
def _add_roots(a, b, c, found, count):
    """Put the roots of ``a t^2 + b t + c`` behind the others; returns how many there are then."""
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
def _ascending(values, count):
    """Sort some values: there are few."""
    for k in range(1, count):
        value, j = values[k], k
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@kernel
def _holds(asked, v, x, t, row):
    """Whether the combination of conditions holds where value ``v`` is ``t``."""
    polynomials, stack = asked.linear.shape[0], 0  # one bit for each result that waits
    for step in asked.program:
        if step < 0:
            last, stack = stack & 1, stack >> 1
            if step == ALL:
                stack &= ~1 | last
            else:
                stack |= last
            continue
        if step >= polynomials:
            stack = (stack << 1) | int(asked.known[step - polynomials, row])
            continue
        a, b, rest = _along(asked, step, v, x, row)
        value = (a * t + b) * t + rest
        inside = 0
        for k in range(asked.low.shape[1]):
            low, high = asked.low[step, k, row], asked.high[step, k, row]
            above = value > low or (value == low and asked.low_closed[step, k])
            below = value < high or (value == high and asked.high_closed[step, k])
            if above and below:
                inside = 1
                break
        stack = (stack << 1) | inside
    return stack == 1


@kernel
def _closed(laws, asked, x, v, row, breaks):
    """The probability of the conditions over value ``v``, where all others are known."""
    count = 0
    ends = breaks[v]
    for c in range(asked.linear.shape[0]):
        a, b, rest = _along(asked, c, v, x, row)
        for k in range(asked.low.shape[1]):
            for limit in (asked.low[c, k, row], asked.high[c, k, row]):
                if not math.isinf(limit):
                    count = _add_roots(a, b, rest - limit, ends, count)
    _ascending(ends, count)
    cuts = ends[:count]
    total = 0.0
    first, last = laws.start[v, row], laws.start[v, row + 1]
    for k in range(first, last):
        if laws.kind[k] == POINT and _holds(asked, v, x, laws.low[k], row):
            total += laws.weight[k]
    for part in range(count + 1):
        low = cuts[part - 1] if part > 0 else -math.inf
        high = cuts[part] if part < count else math.inf
        if not low < high:
            continue
        if low == -math.inf:
            middle = high - 1.0 - abs(high) if high < math.inf else 0.0
        else:
            middle = 0.5 * (low + high) if high < math.inf else low + 1.0 + abs(low)
        if not _holds(asked, v, x, middle, row):
            continue
        for k in range(first, last):
            if laws.kind[k] != POINT:
                begin = component_cdf(laws.kind[k], laws.low[k], laws.high[k], laws.mean[k], laws.sd[k], low)
                end = component_cdf(laws.kind[k], laws.low[k], laws.high[k], laws.mean[k], laws.sd[k], high)
                total += laws.weight[k] * (end - begin)
    return total


@kernel
def _window(laws, k):
    """Where a component has all but 1e-17 of its mass, and the length over which it changes."""
    if laws.kind[k] != NORMAL:
        return laws.low[k], laws.high[k], laws.high[k] - laws.low[k]
    down, up, scale = smooth_window(laws.mean[k], laws.sd[k], laws.low[k], laws.high[k])
    mode = min(max(laws.mean[k], laws.low[k]), laws.high[k])
    return mode + down, mode + up, 2.0 * scale


@kernel
def _places(laws, v, row, found):
    """Ends and middles of the components of a value; of many components those of the first and the last."""
    first, last = laws.start[v, row], laws.start[v, row + 1]
    step = 1 if 3 * (last - first) <= len(found) else max(1, last - first - 1)
    count = 0
    for k in range(first, last, step):
        low, high, _ = _window(laws, k)
        found[count], found[count + 1], found[count + 2] = low, 0.5 * (low + high), high
        count += 3
    return count


@kernel
def _kinks(laws, asked, x, v, row, found):
    """Where the integrand over value ``v`` may have a kink: the conditions' borders pass ends of the values inside it.

    This finds those that matter most; halving panels finds the others.
    """
    inside, count = asked.linear.shape[1] - 1 - v, 0
    near, far = np.empty(144 if inside == 1 else 48), np.zeros(48)
    here, there = _places(laws, v + 1, row, near), 1
    if inside > 1:
        there = _places(laws, v + 2, row, far)
    for i in range(here):
        for j in range(there):
            x[v + 1] = near[i]
            if inside > 1:
                x[v + 2] = far[j]
            for c in range(asked.linear.shape[0]):
                a, b, rest = _along(asked, c, v, x, row)
                for k in range(asked.low.shape[1]):
                    for limit in (asked.low[c, k, row], asked.high[c, k, row]):
                        if not math.isinf(limit):
                            count = _add_roots(a, b, rest - limit, found, count)
    if inside == 1:
        count = _meetings(asked, x, v, row, found, count)
    return count


@kernel
def _meetings(asked, x, v, row, found, count):
    """Where borders of conditions in the plane of the last two values meet, or turn back."""
    w = v + 1
    x[v] = x[w] = 0.0
    conditions, ranges = asked.low.shape[0], 2 * asked.low.shape[1]
    for one in range(conditions * ranges):
        c, k = one // ranges, one % ranges
        limit = asked.low[c, k // 2, row] if k % 2 == 0 else asked.high[c, k // 2, row]
        if math.isinf(limit):
            continue
        a, b, rest = _along(asked, c, v, x, row)
        curve, slope, _ = _along(asked, c, w, x, row)
        cross = asked.squares[c, v, w, row]
        if curve != 0.0:  # it turns back where the polynomial in the last value has one root
            count = _add_roots(
                a - 0.25 * cross * cross / curve, b - 0.5 * slope * cross / curve,
                rest - limit - 0.25 * slope * slope / curve, found, count,
            )  # fmt: skip
            continue
        for other in range(one):
            d, m = other // ranges, other % ranges
            end = asked.low[d, m // 2, row] if m % 2 == 0 else asked.high[d, m // 2, row]
            if math.isinf(end):
                continue
            a2, b2, rest2 = _along(asked, d, v, x, row)
            curve2, slope2, _ = _along(asked, d, w, x, row)
            cross2 = asked.squares[d, v, w, row]
            if curve2 != 0.0 or a != 0.0 or a2 != 0.0 or cross != 0.0 or cross2 != 0.0:
                continue
            count = _add_roots(
                0.0, b * slope2 - b2 * slope, (rest - limit) * slope2 - (rest2 - end) * slope, found, count
            )
    return count


@kernel
def _integrated(laws, asked, x, v, row, breaks, panels):
    """The probability of the conditions over value ``v`` and those behind it, where all before it are known."""
    if v == asked.linear.shape[1] - 1:
        return _closed(laws, asked, x, v, row, breaks)
    total = 0.0
    first, last = laws.start[v, row], laws.start[v, row + 1]
    smooth = False
    for k in range(first, last):
        if laws.kind[k] == POINT:
            x[v] = laws.low[k]
            total += laws.weight[k] * _integrated(laws, asked, x, v + 1, row, breaks, panels)
        else:
            smooth = True
    if not smooth:
        return total
    cuts = breaks[v]
    count = _kinks(laws, asked, x, v, row, cuts)
    _ascending(cuts, count)
    stack = panels[v]
    for k in range(first, last):
        if laws.kind[k] == POINT:
            continue
        begin, end, scale = _window(laws, k)
        waiting, low, next_cut = 0, begin, 0
        pieces = 0
        while low < end:
            while next_cut < count and not cuts[next_cut] > low:
                next_cut += 1
            high = min(end, low + 2.0 * scale)
            if next_cut < count and cuts[next_cut] < high:
                high = cuts[next_cut]
            if waiting + 1 >= len(stack):
                high = end
            stack[waiting, 0], stack[waiting, 1] = low, high
            waiting += 1
            low = high
        while waiting:
            waiting -= 1
            low, high = stack[waiting, 0], stack[waiting, 1]
            centre, half = 0.5 * (low + high), 0.5 * (high - low)
            fine = coarse = 0.0
            for node in range(15):
                side = node if node < 8 else 14 - node
                place = centre - half * _X[side] if node < 8 else centre + half * _X[side]
                x[v] = place
                if laws.kind[k] == NORMAL:
                    density = cut_pdf(laws.mean[k], laws.sd[k], laws.low[k], laws.high[k], place)
                else:
                    density = 1.0 / (laws.high[k] - laws.low[k])
                value = density * _integrated(laws, asked, x, v + 1, row, breaks, panels) if density > 0.0 else 0.0
                fine += _W15[side] * value
                if side % 2 == 1:
                    coarse += _W7[side // 2] * value
            pieces += 1
            error = abs(fine - coarse) * half
            small = half <= 4e-16 * max(abs(low), abs(high)) or pieces + waiting >= _MOST_PANELS
            if error <= TOLERANCE or small or waiting + 2 > len(stack):
                total += laws.weight[k] * fine * half
            else:
                stack[waiting, 0], stack[waiting, 1] = low, centre
                stack[waiting + 1, 0], stack[waiting + 1, 1] = centre, high
                waiting += 2
    return total


@kernel
def nested_rows(laws, asked, integrals, found):
    """The probability that all conditions hold, for each row.

    The values that are enumerated come first, then those that are integrated numerically, then the last.
    """
    n = asked.linear.shape[1]
    counted = n - 1 - integrals
    x = np.zeros(n)
    # of the last value all borders must be there; of the others those that are left out only cost time
    most = max(_MOST_BREAKS, 4 * asked.low.shape[0] * asked.low.shape[1])
    breaks, panels = np.empty((n, most)), np.empty((n, most + 200, 2))
    place = np.zeros(counted, np.int64)
    for row in range(len(found)):
        total = 0.0
        place[:] = 0
        more = True
        while more:
            weight = 1.0
            for v in range(counted):
                k = laws.start[v, row] + place[v]
                x[v] = laws.low[k]
                weight *= laws.weight[k]
            total += weight * _integrated(laws, asked, x, counted, row, breaks, panels)
            more = False
            for v in range(counted):
                place[v] += 1
                if place[v] < laws.start[v, row + 1] - laws.start[v, row]:
                    more = True
                    break
                place[v] = 0
        found[row] = min(1.0, max(0.0, total))
