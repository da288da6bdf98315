"""The threshold: which probabilities are kept, and how far a bound must clear it to decide in their place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from haply.errors import HaplyError

TOLERANCE = 1e-12
"""A probability this close to the threshold counts as equal to it (equal-weight samples, being counts, need none)."""

CERTAIN_LEVEL = 1e-17
"""Two tails of this size are lost in rounding: what holds outside of them has probability 1.0 in doubles."""


@dataclass(frozen=True)
class Threshold:
    """Keep ``P >= value`` (``P > value`` when strict); without a value keep every ``P > 0``."""

    value: float | None
    strict: bool = False

    def __post_init__(self) -> None:
        if self.value is not None and not (isinstance(self.value, (int, float)) and 0.0 < self.value <= 1.0):
            raise HaplyError(
                "The threshold is not a probability",
                expected="a number in (0, 1], or None for every possible pair",
                found=repr(self.value),
            )

    @property
    def reject_below(self) -> float:
        """An upper bound that is at most this rejects a pair, whatever the rounding of bound and value."""
        if self.value is None:
            return 0.0
        return self.value if self.strict else max(0.0, self.value - 2 * TOLERANCE)

    @property
    def accept_from(self) -> float:
        """A lower bound that reaches this accepts a pair."""
        if self.value is None:
            return TOLERANCE
        return self.value + 2 * TOLERANCE if self.strict else min(1.0, self.value + 2 * TOLERANCE)

    @property
    def core_level(self) -> float:
        """Tail cut from each side of each value so that pairs with disjoint rests stay below the threshold.

        With ``a = 1 - sqrt(1 - threshold)`` the two rests hold together with probability ``(1 - a)**2``, so the
        condition can hold with at most the threshold.
        """
        return 1.0 - math.sqrt(max(1.0 - self.reject_below, 1e-30))  # short of 1, where quantiles are infinite

    def sure_level(self, exact: bool) -> float:
        """Tail cut from each value so that pairs whose rests fulfil the condition are accepted.

        If the probability itself is asked for, only tails that vanish in rounding may be cut: it is then 1.0.
        """
        if exact or self.accept_from >= 1.0:
            return CERTAIN_LEVEL
        return max(CERTAIN_LEVEL, 1.0 - math.sqrt(self.accept_from))

    def keep(self, probability: np.ndarray, counts: bool) -> np.ndarray:
        """Which probabilities are kept. ``counts``: they are counts over combinations, rounded once.

        Such a quotient and the decimal threshold are equal as doubles if and only if they are equal as fractions.
        """
        if self.value is None:
            return probability > 0.0
        slack = 0.0 if counts else TOLERANCE
        if self.strict:
            return probability > self.value + slack
        return (probability >= self.value - slack) & (probability > 0.0)

    @property
    def attainable(self) -> bool:
        """Whether a sure pair is kept; if not, nothing is."""
        return bool(self.keep(np.ones(1), False)[0])
