"""Sort many integers that lie close together, like numbers of cells, by digits; sort evenly spread values by buckets.

NumPy's ``argsort`` takes three times as long for a million of them if the processor has no wide vectors.
"""

from __future__ import annotations

import numpy as np

from haply.numerics.jit import kernel, read_only

_DIGIT = 11
_FEW, _MOST_DIGITS = 1 << 12, 4
_MOST_OF_BUCKET = 64
"""The most values of a bucket, which are compared with one another."""
_RUN = 11
"""A run has two to this power of buckets."""


def ordered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``argsort`` (equal keys stay in their order) and the sorted keys.

    >>> ordered(np.array([7, 3, 9, 3]))
    (array([1, 3, 0, 2]), array([3, 3, 7, 9]))
    """
    if len(keys) >= _FEW:
        low = int(keys.min())
        digits = -(-(int(keys.max()) - low).bit_length() // _DIGIT)
        if digits <= _MOST_DIGITS:
            return _by_digits(keys, low, max(1, digits))
    order = np.argsort(keys, kind="stable")
    return order, keys[order]


@kernel
def _by_digits(keys, low, digits):
    """Sort in one pass for each digit, the least first; a pass keeps the order of the one before."""
    size, mask = len(keys), (1 << _DIGIT) - 1
    order, found = np.arange(size), keys - low
    next_order, next_found = np.empty_like(order), np.empty_like(found)
    starts = np.empty(mask + 2, np.int64)
    for digit in range(digits):
        shift = digit * _DIGIT
        starts[:] = 0
        for k in range(size):
            starts[((found[k] >> shift) & mask) + 1] += 1
        for k in range(1, mask + 1):
            starts[k] += starts[k - 1]
        for k in range(size):
            of = (found[k] >> shift) & mask
            at = starts[of]
            starts[of] = at + 1
            next_order[at], next_found[at] = order[k], found[k]
        order, next_order = next_order, order
        found, next_found = next_found, found
    return order, found + low


def ordered_rows(
    values: np.ndarray, rows: np.ndarray, columns: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Sort rows by a number that each of them has; return the rows, their numbers, and columns of all rows for them.

    Infinity is added to the numbers, so that a loop over them needs no other end. Rows with equal numbers may come in
    any order.

    >>> ordered_rows(np.array([0.7, 0.3, 0.9]), np.array([1, 2, 4]), (np.arange(5.0),))
    (array([2, 1, 4]), array([0.3, 0.7, 0.9, inf]), (array([2., 1., 4.]),))
    """
    if len(values) >= _FEW:
        size, width = len(values), len(columns)
        # NumPy asks for large pages of memory, which a kernel does not, and which take a quarter of the time
        near, order, found = np.empty((size, 2 + width)), np.empty(size, np.int64), np.empty((1 + width, size + 1))
        if _by_buckets(np.ascontiguousarray(values), rows, tuple(map(read_only, columns)), near, order, found):
            found[0, size] = np.inf
            return order, found[0], tuple(column[:size] for column in found[1:])
    order = np.argsort(values)
    rows, ordered = rows[order], np.empty(len(values) + 1)
    ordered[:-1], ordered[-1] = values[order], np.inf
    return rows, ordered, tuple(column[rows] for column in columns)


@kernel
def _by_buckets(values, rows, columns, near, order, found):
    """Sort values that are spread about evenly between the least and the largest; return False if they are not.

    That range is cut into as many buckets as there are values, so that most hold one or two values, which are compared.
    Whole rows go to runs of buckets first, then to their place in the run: a run fits the cache, while a million rows
    do not, and each access to one of them by its number would wait for memory.
    """
    size, width = len(values), len(columns)
    low, high, odd = values[0], values[0], False
    for k in range(size):
        odd |= np.isnan(values[k])
        low, high = min(low, values[k]), max(high, values[k])
    scale = (size - 1) / (high - low) if high > low else 0.0
    if odd or not (0.0 < scale < np.inf):  # equal, infinite, or too close to one another
        return False
    runs = ((size - 1) >> _RUN) + 1
    starts = np.zeros(runs + 1, np.int64)
    for k in range(size):
        starts[(int((values[k] - low) * scale) >> _RUN) + 1] += 1
    most = starts.max()
    for run in range(runs):
        starts[run + 1] += starts[run]
    ends = starts[:-1].copy()
    for k in range(size):
        run = int((values[k] - low) * scale) >> _RUN
        at = ends[run]
        ends[run] = at + 1
        near[at, 0], near[at, 1] = values[k], rows[k]
        for column in range(width):
            near[at, 2 + column] = columns[column][rows[k]]
    buckets, here, value_of = np.empty((1 << _RUN) + 1, np.int64), np.empty(most, np.int64), np.empty(most)
    for run in range(runs):
        begin, end, first = starts[run], starts[run + 1], run << _RUN
        buckets[:] = 0
        for k in range(begin, end):
            buckets[int((near[k, 0] - low) * scale) - first + 1] += 1
        if buckets.max() > _MOST_OF_BUCKET:
            return False
        for bucket in range(1 << _RUN):
            buckets[bucket + 1] += buckets[bucket]
        for k in range(begin, end):
            of = int((near[k, 0] - low) * scale) - first
            at = buckets[of]
            buckets[of] = at + 1
            here[at], value_of[at] = k, near[k, 0]
        for at in range(1, end - begin):  # buckets are in order, so values move only within their bucket
            row, value, to = here[at], value_of[at], at
            while to > 0 and value_of[to - 1] > value:
                here[to], value_of[to] = here[to - 1], value_of[to - 1]
                to -= 1
            here[to], value_of[to] = row, value
        for at in range(end - begin):
            row = here[at]
            order[begin + at], found[0, begin + at] = int(near[row, 1]), near[row, 0]
            for column in range(width):
                found[1 + column, begin + at] = near[row, 2 + column]
    return True


def numbered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number keys >= 0 in the order of their appearance; return the number of each, and where each number is first.

    >>> numbered(np.array([7, 3, 7, 9]))
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    """
    size = int(keys.max(initial=-1)) + 1
    if size <= 16 * len(keys) + _FEW:
        return _numbered(np.ascontiguousarray(keys), size)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[number], first[order]


@kernel
def _numbered(keys, size):
    given, number, first, count = np.full(size, -1), np.empty(len(keys), np.int64), np.empty(len(keys), np.int64), 0
    for k in range(len(keys)):
        key = keys[k]
        if given[key] < 0:
            given[key], first[count] = count, k
            count += 1
        number[k] = given[key]
    return number, first[:count].copy()


@kernel
def grouped(number, count):
    """Return where each of ``count`` groups begins and ends, and the members of all groups in their order."""
    start, members = np.zeros(count + 2, np.int64), np.empty(len(number), np.int64)
    for k in range(len(number)):
        start[number[k] + 2] += 1
    for group in range(count):
        start[group + 2] += start[group + 1]
    for k in range(len(number)):
        at = start[number[k] + 1]
        start[number[k] + 1], members[at] = at + 1, k
    return start[: count + 1].copy(), members
