"""What is asked about a row: laws of independent values, conditions on them; and the arrays to compute it in."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.components import NORMAL, POINT, smooth_window
from haply.numerics.integration.pieces import PIECES, SUMS
from haply.numerics.integration.polynomials import Quartic, quartic_room
from haply.numerics.jit import bare

ALL, ANY = 0, 1
BITS = 60
"""Places at which conditions are looked at together: a bit of a number for each."""
MOST_ENDS, FEW_ENDS = 96, 16
"""Ends of a value's components that are looked at, where one value is behind, and where two are."""
MANY_PLACES, SOME_PLACES = 144, 48
"""Ends and middles of components that curved borders are cut at, where one value is behind, and where two are."""
_MOST_BREAKS, _MOST_TURNS = 400, 200
"""Kinks that are looked for, at least, and those of them that are turns, at most."""


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


class KinkRoom(NamedTuple):
    """Holds arrays in which places are looked for where borders meet."""

    planes: np.ndarray
    """Linear borders and ends of components: the factors of up to three values, their sum, and the number of the
    border, or -1. The last two stand for curved borders, which have only a number."""
    meeting: np.ndarray
    """The planes that meet, up to three; -1 for each that is missing."""
    point: np.ndarray
    """Where they meet."""
    met: np.ndarray
    """Two such places."""
    plane: np.ndarray
    near: np.ndarray
    far: np.ndarray
    """Places of the two values after the first."""
    borders: np.ndarray
    """Two borders in the plane of two values."""
    quartic: Quartic


class Room(NamedTuple):
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
    turns: np.ndarray
    """Places of each value towards which the integrand changes like a square root, and how many there are."""
    turning: np.ndarray
    pieces: np.ndarray
    """Of each value, the pieces that are not integrated yet, and sums over the nodes of one."""
    sums: np.ndarray
    values: np.ndarray
    """Two numbers for each form."""
    given: np.ndarray
    """Each value that is a point, as it is."""
    span: np.ndarray
    """From where to where the points of each value go, as they are."""
    truth: np.ndarray
    """Up to 60 bits for each condition, and for each row of the program: whether it holds in as many places."""
    places: np.ndarray
    """Numbers of the last value, one for each bit."""
    kinks: KinkRoom


def room_for(laws: Laws, asked: Polynomials) -> Room:
    """Make arrays that are large enough for any row."""
    forms, n, borders = asked.linear.shape[0], asked.linear.shape[1], len(asked.border_form)
    # of the last value all borders must be there; of the others those that are left out only cost time
    most = max(_MOST_BREAKS, 2 * borders)
    window = np.empty((len(laws.kind), 3))
    _set_windows(laws, window)
    kinks = KinkRoom(
        planes=np.zeros((borders + 2 * (MOST_ENDS + 2) + 2, 5)), meeting=np.empty(3, np.int64), point=np.zeros(3),
        met=np.zeros((2, 3)), plane=np.empty(4), near=np.empty(MANY_PLACES), far=np.empty(SOME_PLACES),
        borders=np.zeros((2, 6)), quartic=quartic_room(),
    )  # fmt: skip
    return Room(
        terms=np.zeros((n, forms, n + 1)), squares=np.zeros((forms, n, n)), window=window, reach=np.empty((n, 2)),
        smooth=np.empty((n, 2)), points=np.empty(n, np.int64), breaks=np.empty((n, most)),
        turns=np.empty((n, _MOST_TURNS)), turning=np.zeros(n, np.int64), pieces=np.empty((n, PIECES, 3)),
        sums=np.empty((n, len(SUMS))), values=np.empty((forms, 2)), given=np.zeros(n), span=np.empty((n, 2)),
        truth=np.empty(len(asked.form) + len(asked.known) + len(asked.program), np.int64), places=np.empty(BITS),
        kinks=kinks,
    )  # fmt: skip


@bare
def _set_windows(laws, window):
    """Find where each component has all but 1e-17 of its mass, and the length over which its density changes."""
    for k in range(len(laws.kind)):
        low, high = laws.low[k], laws.high[k]
        window[k, 0], window[k, 1], window[k, 2] = low, high, high - low
        if laws.kind[k] == NORMAL:
            down, up, scale = smooth_window(laws.mean[k], laws.sd[k], low, high)
            mode = min(max(laws.mean[k], low), high)
            window[k, 0], window[k, 1], window[k, 2] = mode + down, mode + up, 2.0 * scale


@bare
def begin_row(laws, asked, room, row):
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
