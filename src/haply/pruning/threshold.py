"""The threshold: which probabilities are kept, and how far a bound must clear it to decide a pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from haply.errors import HaplyError
from haply.numerics.normal import normal_cdf, normal_quantile

TOLERANCE = 1e-12
"""A probability this close to the threshold counts as equal to it (equal-weight samples, being counts, need none)."""

_LEAST_POSITIVE = math.nextafter(0.0, 1.0)

CERTAIN_LEVEL = 1e-17
"""Two tails of this size are lost in rounding: the rest has probability 1.0 in doubles."""


class Pairing(Enum):
    """What is known about two kinds of values together: with more knowledge, more can be cut from each."""

    ANY = "any two laws"
    ONE_CERTAIN = "a certain value and any law"
    GAUSSIAN = "two Gaussians"
    UNIFORM = "two uniforms"


@dataclass(frozen=True)
class Threshold:
    """Keeps ``P >= value`` (``P > value`` when strict); without a value keeps every ``P > 0``."""

    value: float | None
    strict: bool = False

    def __post_init__(self) -> None:
        if self.value is not None and not (isinstance(self.value, (int, float)) and 0.0 < self.value <= 1.0):
            raise HaplyError(
                "The threshold is not a probability",
                expected="a number in (0, 1], or None for every possible pair",
                found=repr(self.value),
                hint=self._as_share(),
            )

    def _as_share(self) -> str:
        """Return a hint with the probability for a value that looks like a percentage."""
        if isinstance(self.value, (int, float)) and 1.0 < self.value <= 100.0:
            return f"{self.value:g} % is {self.value / 100:g}"
        return ""

    def describe(self) -> str:
        """Return the threshold as a condition on ``P``."""
        return "P > 0" if self.value is None else f"P {'>' if self.strict else '>='} {self.value:g}"

    @property
    def reject_below(self) -> float:
        """Return an upper bound of at most this rejects a pair, whatever the rounding of bound and value."""
        if self.value is None:
            return 0.0
        return self.value if self.strict else max(0.0, self.value - 2 * TOLERANCE)

    @property
    def accept_from(self) -> float:
        """Return a lower bound that reaches this accepts a pair."""
        if self.value is None:
            return TOLERANCE
        return self.value + 2 * TOLERANCE if self.strict else min(1.0, self.value + 2 * TOLERANCE)

    def core_level(self, pairing: Pairing) -> float:
        """Return the tail to cut from each side of each value so that pairs with disjoint rests are below ``p``.

        Here ``p`` is the threshold. For any two laws it is ``1 - sqrt(1 - p)``: the two rests hold together with
        probability ``1 - p``. Beside a certain value only one law is cut, by ``p`` itself. Two Gaussians need
        ``z(p) * hypot(s1, s2)`` between their means, and the root lies between ``(s1 + s2) / sqrt(2)`` and ``s1 + s2``,
        which is again a cut from each. The difference of two uniforms of lengths ``r <= 1`` is a trapezoid over
        ``1 + r``; the share of it below its quantile ``p`` is least for ``r = 0`` while ``p <= 1/2``, where it is
        ``p``, and for ``r = 1`` above.
        """
        p = min(self.reject_below, 1.0 - 1e-15)  # below 1, where quantiles are infinite
        if pairing is Pairing.ANY:
            return -math.expm1(0.5 * math.log1p(-p))  # this is 1 - sqrt(1 - p), also for tiny p
        if pairing is Pairing.GAUSSIAN and p > 0.5:
            return float(normal_cdf(normal_quantile(p) / math.sqrt(2.0)))
        if pairing is Pairing.UNIFORM and p > 0.5:
            return 1.0 - math.sqrt(0.5 * (1.0 - p))
        return p

    def sure_level(self, exact: bool, pairing: Pairing) -> float:
        """Return the tail to cut from each value so that pairs whose rests fulfil the condition are accepted.

        If the probability itself is asked for, only tails that vanish in rounding may be cut: it is then 1.0.
        """
        p = self.accept_from
        if exact or p >= 1.0:
            return CERTAIN_LEVEL
        if pairing is Pairing.ANY:
            return max(CERTAIN_LEVEL, 1.0 - math.sqrt(p))
        if pairing is Pairing.GAUSSIAN and p < 0.5:
            return float(normal_cdf(-normal_quantile(p) / math.sqrt(2.0)))
        if pairing is Pairing.UNIFORM and p < 0.5:
            return 1.0 - math.sqrt(0.5 * p)
        return 1.0 - p

    def keeps_from(self, counts: bool = False) -> float:
        """Return the least probability that is kept; every decision by a value compares with this number.

        With ``counts``, probabilities are counts over combinations, rounded once. Such a quotient and the decimal
        threshold are equal as doubles if and only if they are equal as fractions, so there is no tolerance.
        """
        slack = 0.0 if counts else TOLERANCE
        if self.value is None:
            return _LEAST_POSITIVE
        if self.strict:
            return math.nextafter(self.value + slack, math.inf)
        return max(self.value - slack, _LEAST_POSITIVE)

    def keep(self, probability: np.ndarray, counts: bool) -> np.ndarray:
        """Tell which probabilities are kept (see ``keeps_from``)."""
        return probability >= self.keeps_from(counts)

    @property
    def attainable(self) -> bool:
        """Return whether a sure pair is kept; if not, no pair is."""
        return bool(self.keep(np.ones(1), False)[0])


@dataclass(frozen=True)
class Negligible(Threshold):
    """Keeps pairs whose probability may matter, however small it is.

    Bounds decide, and pairs near the edge may be kept or not.
    """

    @property
    def reject_below(self) -> float:
        """Return an upper bound of at most this rejects a pair."""
        return float(self.value or 0.0)

    @property
    def accept_from(self) -> float:
        """Return a lower bound that reaches this accepts a pair."""
        return float(self.value or 0.0)

    def keeps_from(self, counts: bool = False) -> float:
        """Return the least probability that is kept."""
        return max(float(self.value or 0.0), _LEAST_POSITIVE)
