"""Find scales by powers of two: they are exact, and bring numbers whose squares leave the range back into it."""

from __future__ import annotations

import math

import numpy as np

LEAST, MOST = 1e-60, 1e60
"""Between these, squares, fourth powers and small determinants are in range: such lengths are not scaled."""


def powers_of(sizes: np.ndarray) -> np.ndarray | None:
    """Return for each length the ``p`` for which ``length / 2**p`` is about 1, or 0 for no scaling; None if all are."""
    odd = (sizes > MOST) | ((sizes < LEAST) & (sizes > 0.0))
    if not odd.any():
        return None
    return np.where(odd, np.frexp(np.where(odd, sizes, 1.0))[1], 0)


def power_of(size: float) -> int:
    """Return ``powers_of`` one length."""
    return math.frexp(size)[1] if 0.0 < size < LEAST or MOST < size < math.inf else 0
