"""Decide which matrices are covariances, by elimination: much faster for many small matrices than eigenvalues."""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.jit import bare


@bare
def flag_indefinite(flat, dims, start, slack, room, bad):
    """Flag the matrices at ``start``, flat and row by row, that are not symmetric positive semidefinite.

    A matrix may differ from a symmetric one, and an eigenvalue may be below 0, by ``slack`` times the largest entry:
    with that much added to the diagonal, all pivots are positive if no eigenvalue is lower. Entries that are not finite
    are not checked here.
    """
    for i in range(len(dims)):
        dim, at = dims[i], start[i]
        most, finite, skew = 0.0, True, 0.0
        for a in range(dim):
            for b in range(dim):
                entry = flat[at + a * dim + b]
                finite = finite and math.isfinite(entry)
                most = max(most, abs(entry))
                skew = max(skew, abs(entry - flat[at + b * dim + a]))
                room[a, b] = 0.5 * (entry + flat[at + b * dim + a])
        bad[i] = False
        if not finite or most == 0.0:
            continue
        if skew > slack * most:
            bad[i] = True
            continue
        for k in range(dim):
            room[k, k] += slack * most
        for k in range(dim):
            if not room[k, k] > 0.0:
                bad[i] = True
                break
            for a in range(k + 1, dim):
                share = room[a, k] / room[k, k]
                for b in range(a, dim):
                    room[a, b] -= share * room[k, b]
                    room[b, a] = room[a, b]


def indefinite(flat: np.ndarray, dims: np.ndarray, start: np.ndarray, slack: float) -> np.ndarray:
    """Return which matrices are not symmetric positive semidefinite: see ``flag_indefinite``."""
    bad = np.zeros(len(dims), dtype=bool)
    most = int(dims.max(initial=0))
    # as read-only doubles, like those from Arrow: one compilation serves all
    values = np.asarray(flat, np.float64).view()
    values.flags.writeable = False
    flag_indefinite(values, dims.astype(np.int64), start.astype(np.int64), slack, np.empty((most, most)), bad)
    return bad
