"""Conditions between two uncertain values, a set of differences or a distance, and the columns that they compare."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from haply.errors import HaplyError


@dataclass(frozen=True)
class Region:
    """Represents the differences ``left - right`` for which a condition holds: an interval, or all that is outside it.

    Equal within ``c`` is ``Region(-c, c)``, greater is ``Region(0, inf, low_closed=False)``, and farther apart than
    ``c`` is ``Region(-c, c, outside=True)``.

    Parameters
    ----------
    low, high
        The ends of the interval, which may be infinite.
    low_closed, high_closed
        Whether the interval includes its ends.
    outside
        Whether the condition holds outside of the interval, and not inside.

    Raises
    ------
    HaplyError
        If an end is NaN, if ``low`` is above ``high``, or if the outside of an unbounded interval is asked for.

    Examples
    --------
    >>> Region(-1, 1).contains(0.5), Region(-1, 1, outside=True).contains(0.5)
    (True, False)
    """

    low: float
    high: float
    low_closed: bool = True
    high_closed: bool = True
    outside: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):  # always doubles: kernels are compiled for each kind of number
            object.__setattr__(self, name, float(getattr(self, name)))
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
        """Return whether the interval is unbounded on a side, as for ``<`` and ``>``."""
        return math.isinf(self.low) or math.isinf(self.high)

    def over(self, factor: float) -> Region:
        """Return where ``x`` lies when ``factor * x`` lies in this region; the factor is not 0."""
        if factor == 1.0:
            return self
        low, high = self.low / factor, self.high / factor
        if factor > 0.0:
            return replace(self, low=low, high=high)
        return replace(self, low=high, high=low, low_closed=self.high_closed, high_closed=self.low_closed)

    def contains(self, difference: float) -> bool:
        """Tell whether the condition holds for a difference.

        Parameters
        ----------
        difference
            ``left - right`` of two certain values.

        Returns
        -------
        bool
            Whether the difference is in the region.
        """
        above = difference >= self.low if self.low_closed else difference > self.low
        below = difference <= self.high if self.high_closed else difference < self.high
        return (above and below) != self.outside

    def describe(self) -> str:
        """Return the condition in mathematical notation, for plans and messages."""
        if self.low == -self.high:
            sign = ">" if self.outside else "<"
            closed = self.high_closed != self.outside
            return f"|difference| {sign}{'=' if closed else ''} {self.high:g}"
        opening, closing = "[" if self.low_closed else "(", "]" if self.high_closed else ")"
        return f"difference {'not ' if self.outside else ''}in {opening}{self.low:g}, {self.high:g}{closing}"


class DifferenceLike(Protocol):
    """A condition on a difference: a ``Difference``, or an expression such as ``abs(hp.left.x - hp.right.x) <= 1``."""

    def as_difference(self) -> Difference:
        """Return the condition; raise if it is not about a difference."""


@dataclass(frozen=True)
class Difference:
    """Represents the condition that the difference of two values lies in a region.

    Parameters
    ----------
    left, right
        The names of the values: in a join, of a column of each side.
    region
        The differences ``left - right`` for which the condition holds.

    Examples
    --------
    >>> from haply.probability import Difference, Region
    >>> near = Difference("temp", "temp", Region(-0.5, 0.5))
    >>> near.region.contains(0.4)
    True
    """

    left: str
    right: str
    region: Region

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the values that it compares."""
        return self.left, self.right

    def renamed(self, name: Callable[[str], str]) -> Difference:
        """Return the same condition on values with other names."""
        return replace(self, left=name(self.left), right=name(self.right))

    def as_difference(self) -> Difference:
        """Return itself: joins accept anything that can return the difference it is about."""
        return self


@dataclass(frozen=True)
class Distance:
    """Represents the condition that the Euclidean distance of two points is at most a limit.

    Parameters
    ----------
    left, right
        The names of the points: in a join, of a column of each side.
    within
        The limit, 0 or more.
    closed
        Whether a distance of ``within`` itself satisfies the condition.

    Raises
    ------
    HaplyError
        If no distance is so small.

    Examples
    --------
    >>> from haply.probability import Distance
    >>> Distance("pos", "pos", 30.0)
    Distance(left='pos', right='pos', within=30.0, closed=True)
    """

    left: str
    right: str
    within: float
    closed: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the values that it compares."""
        return self.left, self.right

    def renamed(self, name: Callable[[str], str]) -> Distance:
        """Return the same condition on values with other names."""
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
        """Return the largest distance that satisfies the condition."""
        return self.within if self.closed else math.nextafter(self.within, 0.0)


@dataclass(frozen=True)
class Identity:
    """The condition that a column of each side is a measurement of the same value."""

    left: str
    right: str


@dataclass(frozen=True)
class Linear:
    """``sum of factor * value`` lies in the region."""

    terms: tuple[tuple[str, float], ...]
    region: Region

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the values in the sum."""
        return tuple(name for name, _ in self.terms)

    def renamed(self, name: Callable[[str], str]) -> Linear:
        """Return the same condition on values with other names."""
        return replace(self, terms=tuple((name(one), factor) for one, factor in self.terms))
