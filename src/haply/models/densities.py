"""Densities of uncertain numbers for charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

_OUTER = 0.0005
"""The share of a value on each side that may lie outside its chart."""


class NumberRows(Protocol):
    """A model of numbers."""

    def take(self, rows: np.ndarray) -> Any:
        """Return rows."""

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Compute a quantile of each row."""


def density_records(values: Sequence[NumberRows], names: Sequence[str], points: int = 400) -> list[dict[str, Any]]:
    """Return the densities of one-row models on a common axis: records ``reading, value, density``.

    A density is the mass between neighbouring points divided by their distance, so that every model has one; an atom
    shows as a spike.
    """
    ends = [value.quantile(level)[0] for value in values for level in (_OUTER, 1.0 - _OUTER)]
    margin = 0.05 * (max(ends) - min(ends)) or 1.0
    edges = np.linspace(min(ends) - margin, max(ends) + margin, points + 1)
    middles, width = 0.5 * (edges[1:] + edges[:-1]), edges[1] - edges[0]
    records = []
    for value, name in zip(values, names, strict=True):
        masses = np.diff(value.take(np.zeros(points + 1, dtype=np.int64)).cdf(edges))
        records += [
            {"reading": name, "value": float(at), "density": float(mass / width)}
            for at, mass in zip(middles, masses, strict=True)
        ]
    return records
