"""Tell where conditions on values hold, and combinations of them: at a place, beside one, and in a whole range.

What is about points only is compared as other kernels compare points, with doubles as they are: see ``_as_written``.
"""

from __future__ import annotations

from haply.numerics.jit import bare
from haply.numerics.nested.problem import ALL


@bare
def fix(room, v, value):
    """Fix value ``v`` at a number, and compute the terms that are left of the values after it."""
    here, there, n = room.terms[v], room.terms[v + 1], room.squares.shape[1]
    for f in range(len(here)):
        for w in range(v + 1, n):
            there[f, w] = here[f, w] + room.squares[f, v, w] * value
        there[f, n] = here[f, n] + (room.squares[f, v, v] * value + here[f, v]) * value


@bare
def is_in(asked, c, value, side, row):
    """Return whether condition ``c`` holds at a value of its form, or just below (``side`` -1) or above it (1)."""
    for k in range(asked.low.shape[1]):
        low, high = asked.low[c, k, row], asked.high[c, k, row]
        above = value > low or (value == low and (side > 0 or (side == 0 and asked.low_closed[c, k])))
        below = value < high or (value == high and (side < 0 or (side == 0 and asked.high_closed[c, k])))
        if above and below:
            return True
    return False


@bare
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


@bare
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


@bare
def set_written(asked, room, row):
    """Set the values of forms about points, which are all known now."""
    written, n = asked.written, room.squares.shape[1]
    for f in range(len(written.slack)):
        if written.slack[f, row] < 0.0:
            room.terms[written.counted, f, n] = _as_written(asked, room, f, row)


@bare
def is_near_end(asked, c, value, row):
    """Return whether rounding may tell on which side of an end a value is."""
    slack = asked.written.slack[asked.form[c], row]
    for k in range(asked.low.shape[1]):
        if abs(value - asked.low[c, k, row]) <= slack or abs(value - asked.high[c, k, row]) <= slack:
            return True
    return False


@bare
def is_in_as_written(asked, room, c, row):
    """Return whether a condition about points holds for the sum of its terms."""
    value, low, high = _as_written(asked, room, asked.form[c], row), asked.written.low, asked.written.high
    for k in range(low.shape[1]):
        above = value > low[c, k, row] or (value == low[c, k, row] and asked.low_closed[c, k])
        below = value < high[c, k, row] or (value == high[c, k, row] and asked.high_closed[c, k])
        if above and below:
            return True
    return False


@bare
def combined(asked, room):
    """Return where the combination holds: a bit for each place, as in ``room.truth``."""
    truth = room.truth
    place = len(truth) - len(asked.program)
    for step in range(len(asked.program)):
        one, other = truth[asked.program[step, 1]], truth[asked.program[step, 2]]
        truth[place + step] = one & other if asked.program[step, 0] == ALL else one | other
    return truth[len(truth) - 1]


@bare
def everywhere(asked, room, v, low, high, row):
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
    found = combined(asked, room)
    return 1 if found & 1 else -1 if found & 2 else 0
