"""The split normal by its definition, in mpmath: two halves of normals that meet at the mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpmath import mp, mpf


@dataclass(frozen=True)
class SplitNormal:
    """Density ``c exp(-(x - mode)^2 / (2 s^2))`` with ``s = minus`` below the mode and ``plus`` above."""

    mode: float
    minus: float
    plus: float

    def pdf(self, x: mpf) -> mpf:
        sd = mpf(self.minus if x < self.mode else self.plus)
        if sd == 0:
            return mpf(0)
        return mp.sqrt(2 / mp.pi) / (mpf(self.minus) + mpf(self.plus)) * mp.exp(-(((x - self.mode) / sd) ** 2) / 2)

    def cdf(self, x: mpf) -> mpf:
        whole = mpf(self.minus) + mpf(self.plus)
        if whole == 0:
            return mpf(x >= self.mode)
        if x < self.mode:
            return mpf(0) if self.minus == 0 else 2 * self.minus / whole * mp.ncdf((x - self.mode) / mpf(self.minus))
        above = mpf(1) if self.plus == 0 else 2 * mp.ncdf((x - self.mode) / mpf(self.plus)) - 1
        return (self.minus + self.plus * above) / whole

    def mean(self) -> mpf:
        return self.mode + mp.sqrt(2 / mp.pi) * (mpf(self.plus) - mpf(self.minus))

    def variance(self) -> mpf:
        difference = mpf(self.plus) - mpf(self.minus)
        return (1 - 2 / mp.pi) * difference**2 + mpf(self.minus) * mpf(self.plus)

    def near(self, place: mpf, within: float) -> mpf:
        """``P(|X - place| <= within)``."""
        return self.cdf(place + within) - self.cdf(place - within)

    def near_uniform(self, low: float, high: float, within: float) -> mpf:
        """``P(|X - Y| <= within)`` for a ``Y`` that is uniform between two ends."""
        corners = {self.mode + sign * within for sign in (-1, 1)} | {self.mode}
        places = [mpf(low), *(mpf(c) for c in sorted(corners) if low < c < high), mpf(high)]
        return mp.quad(lambda y: self.near(y, within), places) / (mpf(high) - mpf(low))

    def near_density(self, pdf: Callable[[mpf], mpf], places: Sequence[float], within: float) -> mpf:
        """The same for a ``Y`` with this density, which is smooth between these places and nothing outside."""
        corners = {self.mode + sign * within for sign in (-1, 0, 1)}
        inside = (c for c in corners if places[0] < c < places[-1])
        return mp.quad(lambda y: pdf(y) * self.near(y, within), sorted(mpf(p) for p in {*places, *inside}))
