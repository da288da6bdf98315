"""The condition between two uncertain values, a set of differences or a distance, and the columns it speaks of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from haply.errors import HaplyError


@dataclass(frozen=True)
class Region:
    """The differences ``left - right`` for which a condition holds: one interval, or all that lies outside it.

    ``=c`` is ``Region(-c, c)``, ``>`` is ``Region(0, inf, low_closed=False)``, and farther apart than ``c`` is
    ``Region(-c, c, outside=True)``. The closed flags are those of the interval: outside of a closed one is open.
    """

    low: float
    high: float
    low_closed: bool = True
    high_closed: bool = True
    outside: bool = False

    def __post_init__(self) -> None:
        if math.isnan(self.low) or math.isnan(self.high):
            raise HaplyError("A condition compares with NaN", expected="numbers", found=f"{self.low} and {self.high}")
        if self.low > self.high:
            raise HaplyError(
                "A condition can never hold",
                expected="a lower end that is not above the upper end",
                found=f"an interval from {self.low:g} to {self.high:g}",
                hint="check the sign of the tolerance and the order of the bounds",
            )
        if self.outside and not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise HaplyError(
                "A condition is the outside of an unbounded interval",
                expected="two finite ends",
                found=f"an interval from {self.low:g} to {self.high:g}",
                hint="write it as a single comparison",
            )

    @property
    def width(self) -> float:
        """Length of the interval (infinite for a comparison)."""
        return self.high - self.low

    @property
    def one_sided(self) -> bool:
        """Whether the interval is unbounded on a side, as for ``<`` and ``>``."""
        return math.isinf(self.low) or math.isinf(self.high)

    def contains(self, difference: float) -> bool:
        """Whether the condition holds for two values that are certainly this far apart."""
        above = difference >= self.low if self.low_closed else difference > self.low
        below = difference <= self.high if self.high_closed else difference < self.high
        return (above and below) != self.outside

    def describe(self) -> str:
        """The condition in words of mathematics, for plans and messages."""
        if self.low == -self.high:
            sign = ">" if self.outside else "<"
            closed = self.high_closed != self.outside
            return f"|difference| {sign}{'=' if closed else ''} {self.high:g}"
        opening, closing = "[" if self.low_closed else "(", "]" if self.high_closed else ")"
        return f"difference {'not ' if self.outside else ''}in {opening}{self.low:g}, {self.high:g}{closing}"


@dataclass(frozen=True)
class Difference:
    """``left - right`` lies in the region, for one column of each side."""

    left: str
    right: str
    region: Region

    @property
    def names(self) -> tuple[str, ...]:
        """The values that it speaks of."""
        return self.left, self.right

    def renamed(self, name: Callable[[str], str]) -> Difference:
        """The same of values with other names."""
        return replace(self, left=name(self.left), right=name(self.right))

    def as_difference(self) -> Difference:
        """Itself: joins accept anything that can say which difference it is about."""
        return self


@dataclass(frozen=True)
class Distance:
    """The Euclidean distance of two points is at most ``within`` (less, if not ``closed``)."""

    left: str
    right: str
    within: float
    closed: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The values that it speaks of."""
        return self.left, self.right

    def renamed(self, name: Callable[[str], str]) -> Distance:
        """The same of values with other names."""
        return replace(self, left=name(self.left), right=name(self.right))

    def __post_init__(self) -> None:
        if not self.within >= 0.0 or (self.within == 0.0 and not self.closed):
            raise HaplyError(
                "A distance can never be that small",
                expected="a limit of 0 or more",
                found=f"distance {'<=' if self.closed else '<'} {self.within:g}",
                hint="a distance is never negative: check the sign",
            )

    @property
    def limit(self) -> float:
        """The largest distance that counts."""
        return self.within if self.closed else math.nextafter(self.within, 0.0)


@dataclass(frozen=True)
class Linear:
    """``sum of factor * value`` lies in the region."""

    terms: tuple[tuple[str, float], ...]
    region: Region

    @property
    def names(self) -> tuple[str, ...]:
        """The values that it speaks of."""
        return tuple(name for name, _ in self.terms)

    def renamed(self, name: Callable[[str], str]) -> Linear:
        """The same of values with other names."""
        return replace(self, terms=tuple((name(one), factor) for one, factor in self.terms))
