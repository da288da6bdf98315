"""Estimate what a join costs by each strategy; ``auto`` is the strategy that costs least.

The estimate is a price for each row and one for each candidate pair of the core regions. Prices were fitted to
``python -m benchmarks strategies``. They are those of one machine, but only their ratios matter.
"""

from __future__ import annotations

from typing import NamedTuple

from haply.models import Gaussian, Model, Uniform


class Price(NamedTuple):
    """Microseconds for a row, and for a candidate pair."""

    row: float
    candidate: float


_ONE_PASS = {"sweep": Price(0.1, 0.1), "pages": Price(4.0, 0.15), "pti": Price(5.0, 0.2), "moments": Price(17.0, 0.4)}
_OTHER = {"sweep": Price(3.0, 9.0), "pages": Price(80.0, 9.5), "pti": Price(35.0, 9.0), "moments": Price(6.0, 9.2)}
"""Pairs of two Gaussians, or of two uniforms, are decided in one pass of the sweep; all others by the cascade."""


def estimated_seconds(
    left: type[Model] | None, right: type[Model] | None, rows: int, candidates: float
) -> dict[str, float]:
    """Return the seconds on one core by each strategy, least first, for ``rows`` of both sides and candidate pairs."""
    prices = _ONE_PASS if left is right and left in (Gaussian, Uniform) else _OTHER
    found = {name: 1e-6 * (price.row * rows + price.candidate * candidates) for name, price in prices.items()}
    return dict(sorted(found.items(), key=lambda item: item[1]))
