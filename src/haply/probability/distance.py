"""Compute the probability that the distance between two uncertain points is at most ``within``.

Gaussians and their mixtures are computed by ``multivariate``; the rest of this file is for samples. An object is a
cloud: samples with weights. The probability is the weight of the pairs of samples that are near enough, and for equal
weights a count over the number of pairs, which is exact. A sample pair is near enough when
``sqrt(sum of squared differences) <= within`` in doubles, as NumPy and SciPy compute it; the root is not taken (see
``squared_limit``).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from haply.errors import HaplyError
from haply.models import Certain, Model, OneDimensional, Samples
from haply.models.ragged import Ragged
from haply.numerics.jit import bare, bare_fused, kernel
from haply.numerics.normal import SCALE_DOWN, SCALE_UP
from haply.probability.exact import equal_within
from haply.probability.multivariate import near_normals

EQUAL_SLACK = 1e-12
"""Weights that differ from equal ones by less than this share are taken as equal, and pairs counted in integers."""

ROUNDING, MOST_SMALL, MOST_LARGE = 8 * 2.0**-24, 1e-30, 1e30
"""The relative error of singles (see ``narrowed``), and the range of errors for which all squares are in range."""
WORTH_NARROWING = 256
LEAST_DISTANCE, MOST_DISTANCE = 1e-140, 1e150
"""Between these the squares of distances are in the range of doubles, with all their digits."""
ONE, ZERO, HALF = np.int32(1), np.int32(0), np.float32(0.5)


class Clouds(NamedTuple):
    """Samples of many objects in flat arrays: each object's coordinates one after the other, so that loops vectorise.

    Coordinate ``c`` of sample ``k`` of object ``i`` is ``points[dim * start[i] + c * count + k]``. Weights are 1 for
    objects whose samples are equally likely, so that ``whole``, their sum, is the number of samples.
    """

    dim: int
    start: np.ndarray
    points: np.ndarray
    weight: np.ndarray
    whole: np.ndarray
    equal: np.ndarray
    most: int
    """The largest number of samples of an object."""
    largest: float
    """The largest absolute value of a coordinate."""


class Flat(NamedTuple):
    """Samples of many objects, point by point: sample ``k`` of object ``i`` is number ``start[i] + k``."""

    dim: int
    start: np.ndarray
    values: np.ndarray
    probs: np.ndarray
    """Empty where all samples of an object are equally likely."""


def _flat(model: Any, dim: int | None) -> Flat:
    if isinstance(model, Certain):
        found, points, probs = np.ones(1), Ragged(model.mean(), np.arange(len(model) + 1)), None
    elif isinstance(model, Samples):
        points, probs, dims = model.points, model.probs, model.dim
        found = dims if len(dims) == 1 else dims[:1] if (dims == dims[:1]).all() else np.unique(dims)
    else:
        raise HaplyError("A distance needs points", expected="Samples, or Certain numbers", found=type(model).__name__)
    if len(found) > 1 or (dim is not None and len(found) and found[0] != dim):
        raise HaplyError(
            "Points differ in dimension",
            expected="one dimension" if dim is None else f"dim = {dim}",
            found=", ".join(f"{number:g}" for number in found),
        )
    dim = int(found[0]) if len(found) else dim or 1
    start = np.ascontiguousarray(points.start // dim)
    return Flat(dim, start, points.values, np.empty(0) if probs is None else probs.values)


def clouds(model: Any, dim: int | None = None) -> Clouds:
    """Return rows of samples (or of certain numbers, which are single samples) as clouds; all have one dimension."""
    flat = _flat(model, dim)
    size, count = int(flat.start[-1]), len(flat.start) - 1
    points, weight = np.empty(flat.dim * size), np.empty(size)
    whole, equal = np.empty(count), np.empty(count, dtype=np.bool_)
    most, largest = _turn(flat, points, weight, whole, equal)
    return Clouds(flat.dim, flat.start, points, weight, whole, equal, most, largest)


@bare
def _turn_one(dim, first, count, rows, given, points, weight):
    """Copy one object from point by point to coordinate by coordinate, its weights divided by their sum.

    Returns the weight of all samples (their number if all weights are equal), and whether they are equal.
    """
    mine = rows[dim * first : dim * (first + count)]
    for c in range(dim):
        column, at = points[c * count : (c + 1) * count], c
        for k in range(len(column)):
            column[k] = mine[at]
            at += dim
    total, same = 0.0, True
    if len(given):
        for k in range(count):
            total += given[first + k]
            same &= abs(given[first + k] * count - 1.0) < EQUAL_SLACK
    if same:
        weight[:count] = 1.0
        return float(count), True
    for k in range(count):
        weight[k] = given[first + k] / total
    return 1.0, False


@kernel
def _turn(flat, points, weight, whole, equal):
    most = 0
    for i in range(len(flat.start) - 1):
        first, last = flat.start[i], flat.start[i + 1]
        most = max(most, last - first)
        whole[i], equal[i] = _turn_one(
            flat.dim, first, last - first, flat.values, flat.probs, points[flat.dim * first : flat.dim * last],
            weight[first:last],
        )  # fmt: skip
    return most, _largest(points)


@kernel
def _largest(values):
    """Return the largest absolute value.

    Doubles without their sign are in the order of their bits, which loops compare several at a time.
    """
    bits, most = values.view(np.int64), np.zeros(1, np.int64)
    largest = 0
    for k in range(len(bits)):
        largest = max(largest, bits[k] & 0x7FFFFFFFFFFFFFFF)
    most[0] = largest
    return most.view(np.float64)[0]


def _check_distance(within: float) -> None:
    if not within >= 0.0:
        raise HaplyError("A distance is negative or NaN", expected="within >= 0", found=str(within))


def squared_limit(within: float) -> float:
    """Return the largest double whose root is at most ``within``: squared distances are compared with it."""
    _check_distance(within)
    if math.isinf(within):
        return math.inf
    limit = within * within
    while math.sqrt(limit) > within:
        limit = math.nextafter(limit, 0.0)
    while math.sqrt(math.nextafter(limit, math.inf)) <= within:
        limit = math.nextafter(limit, math.inf)
    return limit


def scaled_limit(within: float) -> tuple[float, float]:
    """Return ``squared_limit`` on a scale on which it is in the range of doubles, and that scale, a power of two.

    Differences are multiplied by the scale before they are squared. It is 1 except for extreme distances.
    """
    _check_distance(within)
    if within < LEAST_DISTANCE:
        return squared_limit(within * SCALE_UP), SCALE_UP
    if MOST_DISTANCE < within < math.inf:
        return squared_limit(within * SCALE_DOWN), SCALE_DOWN
    return squared_limit(within), 1.0


class Block(NamedTuple):
    """The samples of an object: coordinates in blocks of ``size`` from ``at`` on, weights from ``heavy`` on."""

    points: np.ndarray
    at: int
    size: int
    weight: np.ndarray
    heavy: int
    equal: bool


@bare
def _near_1(x, at, begin, end, y, first, count, limit):
    ys = y[first : first + count]
    total = 0
    for k in range(begin, end):
        a, n = x[at + k], 0
        for m in range(len(ys)):
            u = a - ys[m]
            n += 1 if u * u <= limit else 0
        total += n
    return total


@bare
def _near_2(x, at, step, begin, end, y, first, count, limit):
    ys, zs = y[first : first + count], y[first + count : first + 2 * count]
    total = 0
    for k in range(begin, end):
        a, b, n = x[at + k], x[at + step + k], 0
        for m in range(len(ys)):
            u, v = a - ys[m], b - zs[m]
            n += 1 if u * u + v * v <= limit else 0
        total += n
    return total


@bare
def _near_3(x, at, step, begin, end, y, first, count, limit):
    ys, zs, ts = (
        y[first : first + count],
        y[first + count : first + 2 * count],
        y[first + 2 * count : first + 3 * count],
    )
    total = 0
    for k in range(begin, end):
        a, b, c, n = x[at + k], x[at + step + k], x[at + 2 * step + k], 0
        for m in range(len(ys)):
            u, v, w = a - ys[m], b - zs[m], c - ts[m]
            n += 1 if u * u + v * v + w * w <= limit else 0
        total += n
    return total


@bare
def _near_any(dim, x, begin, end, y, limit, scale, squares):
    squares, weight = squares[: y.size], y.weight[y.heavy : y.heavy + y.size]
    total = 0.0
    for k in range(begin, end):
        squares[:] = 0.0
        for c in range(dim):
            a = x.points[x.at + c * x.size + k]
            ys = y.points[y.at + c * y.size : y.at + (c + 1) * y.size]
            if scale == 1.0:
                for m in range(len(ys)):
                    u = a - ys[m]
                    squares[m] += u * u
            else:
                for m in range(len(ys)):
                    u = scale * (a - ys[m])
                    squares[m] += u * u
        near = 0.0
        for m in range(len(squares)):
            near += weight[m] if squares[m] <= limit else 0.0
        total += x.weight[x.heavy + k] * near
    return total


@bare
def near_weight(dim, x, begin, end, y, limit, scale, squares):
    """Return the weight of the near pairs among the samples ``begin`` to ``end`` of one object and all of another.

    With equal weights in up to three dimensions it is a count, each case in a function of its own: the compiler
    vectorises only loops that are so plain. ``squares`` is room for as many numbers as ``y`` has samples. ``limit`` and
    ``scale`` are those of ``scaled_limit``.
    """
    if x.equal and y.equal and scale == 1.0:
        if dim == 3:
            return float(_near_3(x.points, x.at, x.size, begin, end, y.points, y.at, y.size, limit))
        if dim == 2:
            return float(_near_2(x.points, x.at, x.size, begin, end, y.points, y.at, y.size, limit))
        if dim == 1:
            return float(_near_1(x.points, x.at, begin, end, y.points, y.at, y.size, limit))
    return _near_any(dim, x, begin, end, y, limit, scale, squares)


class Narrow(NamedTuple):
    """Room for a pair of objects in single precision: three coordinates and one more number a sample, and an origin."""

    x: np.ndarray
    y: np.ndarray
    origin: np.ndarray


_WIDE = 8
"""Samples are padded to a multiple of this, so that loops have no remainder."""


@kernel
def narrow_room(dim, most_x, most_y):
    """Return room for objects of up to this many samples."""
    return Narrow(
        np.empty(4 * (most_x + 1), np.float32), np.empty(4 * (most_y + _WIDE), np.float32), np.empty(dim)
    )  # fmt: skip


@bare
def _narrow(dim, block, origin, rows, step):
    """Write the samples of one object in single precision, relative to the point ``origin``.

    A sample has three coordinates (zeros if there are fewer), and half of its squared norm.
    """
    size, at, points = block.size, block.at, block.points
    norms = rows[3 * step : 3 * step + size]
    if dim == 3:
        xs, ys, zs = points[at : at + size], points[at + size : at + 2 * size], points[at + 2 * size : at + 3 * size]
        us, vs, ws = rows[:size], rows[step : step + size], rows[2 * step : 2 * step + size]
        a, b, c = origin[0], origin[1], origin[2]
        for k in range(len(norms)):
            u, v, w = np.float32(xs[k] - a), np.float32(ys[k] - b), np.float32(zs[k] - c)
            us[k], vs[k], ws[k] = u, v, w
            norms[k] = HALF * (u * u + v * v + w * w)
        return
    rows[: 3 * step] = np.float32(0.0)
    norms[:] = np.float32(0.0)
    for e in range(dim):
        column, mine = points[at + e * size : at + (e + 1) * size], rows[e * step : e * step + size]
        for k in range(len(norms)):
            u = np.float32(column[k] - origin[e])
            mine[k] = u
            norms[k] += HALF * (u * u)


@bare
def _most_of(norms):
    """Return the largest. Singles >= 0 are in the order of their bits, which loops compare several at a time."""
    bits, most = norms.view(np.int32), ZERO
    for k in range(len(bits)):
        most = max(most, bits[k])
    for k in range(len(bits)):
        if bits[k] == most:
            return norms[k]
    return norms[0]


@bare
def _fill_up(rows, step, size, norm):
    """Pad the rows with samples that are never near."""
    for e in range(3):
        rows[e * step + size : (e + 1) * step] = np.float32(0.0)
    rows[3 * step + size : 4 * step] = norm


@bare
def narrowed(dim, x, y, limit, widest, room, has_x):
    """Write a pair of objects in single precision, relative to the origin; return the error of a sample pair.

    With R the largest norms, ``widest`` the sum of their squares and u = 2^-24: rounding the coordinates costs 2u RxRy,
    three sums 3u (RxRy + (Ry^2 + limit)/2), the norms and the limit that they are compared with 2u (Ry^2 + limit)/2 +
    3u Rx^2, Ry^2 3u/2 more: less than 8u (Rx^2 + Ry^2 + limit) in all. A few in a million pairs are so close to the
    limit. Returns -1 if singles cannot hold such numbers. With ``has_x`` the object x is already written.
    """
    if not has_x:
        _narrow(dim, x, room.origin, room.x, x.size + 1)
    _narrow(dim, y, room.origin, room.y, _filled(y.size))
    return _ready(x.size, y.size, limit, widest, room)


@bare
def _ready(x_size, y_size, limit, widest, room):
    """Put the limit into the norms of y, and pad both objects; return the error of a sample pair, or -1."""
    slack, half = ROUNDING * (widest * (1.0 + 1e-6) + limit), np.float32(0.5 * limit)
    if not MOST_SMALL < slack < MOST_LARGE:
        return -1.0
    step, jump = x_size + 1, _filled(y_size)
    norms = room.y[3 * jump : 3 * jump + y_size]
    for k in range(len(norms)):
        norms[k] = half - norms[k]
    _fill_up(room.x, step, x_size, np.float32(np.inf))
    _fill_up(room.y, jump, y_size, np.float32(-np.inf))
    return slack


@bare
def _filled(size):
    return (size + _WIDE - 1) // _WIDE * _WIDE


@bare_fused
def count_above(room, begin, end, x_size, y_size, by):
    """Count the pairs of some samples of x with all of y that are nearer than the limit by ``by`` or more.

    With ``by`` the error of a pair the count is a lower bound of the near pairs, with ``by`` minus that error an upper
    bound. The test is ``2 x.y >= |x|^2 + |y|^2 - limit``, in singles. Two samples of x are taken at a time, so x is
    padded by one, with an infinite norm.
    """
    x, y, step, jump = room.x, room.y, x_size + 1, _filled(y_size)
    ys, zs, ts, norms = y[:jump], y[jump : 2 * jump], y[2 * jump : 3 * jump], y[3 * jump : 4 * jump]
    total = 0
    for k in range(begin, end, 2):
        a, b, c, here = x[k], x[step + k], x[2 * step + k], x[3 * step + k] + np.float32(by)
        d, e, f, there = x[k + 1], x[step + k + 1], x[2 * step + k + 1], x[3 * step + k + 1] + np.float32(by)
        n = np.int32(0)
        for m in range(len(ys)):
            s = a * ys[m] + (b * zs[m] + (c * ts[m] + norms[m]))
            t = d * ys[m] + (e * zs[m] + (f * ts[m] + norms[m]))
            n = np.int32(n + (ONE if s >= here else ZERO) + (ONE if t >= there else ZERO))
        total += int(n)
    return total


@bare_fused
def count_narrow(room, begin, end, x_size, y_size, slack):
    """Return both bounds of ``count_above`` at once."""
    x, y, step, jump, slack = room.x, room.y, x_size + 1, _filled(y_size), np.float32(slack)
    ys, zs, ts, norms = y[:jump], y[jump : 2 * jump], y[2 * jump : 3 * jump], y[3 * jump : 4 * jump]
    sure = maybe = 0
    for k in range(begin, end, 2):
        a, b, c, here = x[k], x[step + k], x[2 * step + k], x[3 * step + k]
        d, e, f, there = x[k + 1], x[step + k + 1], x[2 * step + k + 1], x[3 * step + k + 1]
        low, high, low_there, high_there = here - slack, here + slack, there - slack, there + slack
        n, q = np.int32(0), np.int32(0)
        for m in range(len(ys)):
            s = a * ys[m] + (b * zs[m] + (c * ts[m] + norms[m]))
            t = d * ys[m] + (e * zs[m] + (f * ts[m] + norms[m]))
            n = np.int32(n + (ONE if s >= low else ZERO) + (ONE if t >= low_there else ZERO))
            q = np.int32(q + (ONE if s >= high else ZERO) + (ONE if t >= high_there else ZERO))
        maybe += int(n)
        sure += int(q)
    return sure, maybe


@bare
def _narrow_points(dim, points, origin, rows, step, size):
    """Do as ``_narrow`` for samples that are stored point by point; return the largest squared norm."""
    norms = rows[3 * step : 3 * step + size]
    if dim == 3:
        us, vs, ws = rows[:size], rows[step : step + size], rows[2 * step : 2 * step + size]
        a, b, c = origin[0], origin[1], origin[2]
        for k in range(len(norms)):
            u, v = np.float32(points[3 * k] - a), np.float32(points[3 * k + 1] - b)
            w = np.float32(points[3 * k + 2] - c)
            us[k], vs[k], ws[k] = u, v, w
            norms[k] = HALF * (u * u + v * v + w * w)
    else:
        rows[: 3 * step] = np.float32(0.0)
        for k in range(len(norms)):
            square = np.float32(0.0)
            for e in range(dim):
                u = np.float32(points[dim * k + e] - origin[e])
                rows[e * step + k] = u
                square += u * u
            norms[k] = HALF * square
    return 2.0 * float(_most_of(norms))


@bare
def _near_narrow(dim, x_points, x_size, y_points, y_size, limit, room):
    """Return the number of near pairs in single precision, or -1 where it takes doubles to decide."""
    for c in range(dim):
        room.origin[c] = y_points[c]
    widest = _narrow_points(dim, x_points, room.origin, room.x, x_size + 1, x_size)
    widest += _narrow_points(dim, y_points, room.origin, room.y, _filled(y_size), y_size)
    slack = _ready(x_size, y_size, limit, widest, room)
    if slack < 0.0:
        return -1
    sure, maybe = count_narrow(room, 0, x_size, x_size, y_size, slack)
    return sure if sure == maybe else -1


@bare
def worth_narrowing(dim, x_size, y_size):
    """Tell whether this many pairs of samples of equal weights are counted faster in single precision."""
    return dim <= 3 and x_size * y_size >= WORTH_NARROWING


@kernel
def _pairs(left, right, left_rows, right_rows, limits, scales):
    """Copy the objects of each pair into an array that stays in the cache: most rows are needed once."""
    most_x, most_y = _most(left.start), _most(right.start)
    x = Block(np.empty(left.dim * most_x), 0, 0, np.empty(most_x), 0, True)
    y = Block(np.empty(left.dim * most_y), 0, 0, np.empty(most_y), 0, True)
    found = np.empty(len(left_rows))
    room = narrow_room(left.dim, most_x, most_y)
    _each_pair(left, right, left_rows, right_rows, limits, scales, x, y, np.empty(most_y), room, found)
    return found


@bare
def _each_pair(left, right, left_rows, right_rows, limits, scales, x_room, y_room, squares, narrow, found):
    dim, values, others = left.dim, left.values, right.values
    plain = len(left.probs) == 0 and len(right.probs) == 0
    for pair in range(len(left_rows)):
        i, j = left_rows[pair], right_rows[pair]
        limit, scale = limits[pair if len(limits) > 1 else 0], scales[pair if len(limits) > 1 else 0]
        first, count = left.start[i], left.start[i + 1] - left.start[i]
        second, size = right.start[j], right.start[j + 1] - right.start[j]
        if plain and scale == 1.0 and worth_narrowing(dim, count, size):
            mine, theirs = values[dim * first : dim * (first + count)], others[dim * second : dim * (second + size)]
            near = _near_narrow(dim, mine, count, theirs, size, limit, narrow)
            if near >= 0:
                found[pair] = near / (float(count) * float(size))
                continue
        whole, equal = _turn_one(dim, first, count, values, left.probs, x_room.points, x_room.weight)
        x = Block(x_room.points, 0, count, x_room.weight, 0, equal)
        other, equal = _turn_one(dim, second, size, others, right.probs, y_room.points, y_room.weight)
        y = Block(y_room.points, 0, size, y_room.weight, 0, equal)
        found[pair] = min(1.0, near_weight(dim, x, 0, count, y, limit, scale, squares) / (whole * other))


@bare
def _most(start):
    most = 0
    for i in range(len(start) - 1):
        most = max(most, start[i + 1] - start[i])
    return most


def within_distance(a: Model, b: Model, within: ArrayLike) -> np.ndarray:
    """Compute ``P(|a - b| <= within)`` for each row, in any dimension.

    Parameters
    ----------
    a, b
        Models of samples, Gaussians, mixtures or certain values, of the same class or not; in one dimension any model.
        A model with one row is used for all rows of the other.
    within
        The largest Euclidean distance that counts as near: one number, or one for each row.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Examples
    --------
    >>> from haply.models import GaussianND, Samples
    >>> square = Samples([[[0, 0], [2, 0], [0, 2], [2, 2]]])
    >>> moved = Samples([[[4, 0], [6, 0], [4, 2], [6, 2]]])
    >>> within_distance(square, moved, 4)
    array([0.5])
    >>> one, other = GaussianND([[0, 0]], [[[1, 0], [0, 1]]]), GaussianND([[2, 1]], [[[0.5, 0.2], [0.2, 0.8]]])
    >>> within_distance(one, other, 2).round(6)
    array([0.30987])
    """
    if isinstance(a, (Certain, Samples)) and isinstance(b, (Certain, Samples)):
        return _within_clouds(a, b, within)
    if _on_a_line(a) and _on_a_line(b):
        return equal_within(a, b, within)
    distances = np.atleast_1d(np.asarray(within, np.float64))
    for distance in distances:
        _check_distance(distance)
    return near_normals(a, b, *_aligned(len(a), len(b), len(distances)), distances)


def _on_a_line(model: Model) -> TypeGuard[OneDimensional]:
    return isinstance(model, OneDimensional) and not (isinstance(model, Samples) and (model.dim != 1).any())


def _aligned(*lengths: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of two models that belong together, given their lengths and those of other arguments."""
    if len(set(lengths) - {1}) > 1:
        raise HaplyError(
            "The arguments differ in length", expected="equal lengths, or one row", found=str(sorted(set(lengths)))
        )
    rows = min(lengths) if 0 in lengths else max(lengths)
    index, one = np.arange(rows, dtype=np.int32), np.zeros(rows, dtype=np.int32)
    return index if lengths[0] == rows else one, index if lengths[1] == rows else one


def _within_clouds(a: Any, b: Any, within: Any) -> np.ndarray:
    left = _flat(a, None)
    right = _flat(b, left.dim if len(a) else None)
    limits, scales = np.array([scaled_limit(float(distance)) for distance in np.atleast_1d(within)]).T.copy()
    return _pairs(left, right, *_aligned(len(a), len(b), len(limits)), limits, scales)
