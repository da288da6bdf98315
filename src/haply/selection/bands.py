"""Bands that follow from a condition between two tables: what candidate pairs can be found by.

A sum that must lie in a range is the difference of a sum on each side. A sum of squares below a limit keeps every one
of its directions within the root of the limit. Whatever fulfils the condition fulfils the band, so that a pair whose
band is not likely enough cannot be kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from haply.probability.region import Region
from haply.selection.conditions import Polynomial, Range, Value, one_region

Terms = tuple[tuple[Value, float], ...]
"""A sum of values with their factors."""

_NONE = 1e-9
"""Factors below this share of the largest are rounding."""


@dataclass(frozen=True)
class Band:
    """``left - right`` lies in the region, for a sum of each side."""

    left: Terms
    right: Terms
    region: Region

    @property
    def narrow(self) -> bool:
        """Return whether few pairs fulfil it: it is bounded on both sides."""
        return not (self.region.outside or self.region.one_sided)


def bands_of(condition: Polynomial, is_left: Callable[[str], bool]) -> list[Band]:
    """Return the bands between both sides that a condition implies: none if it is about one side, or has no such."""
    if not condition.squares:
        region = one_region(condition.ranges) or _hull(condition.ranges)
        factors = [(value, factor) for value, factor in condition.linear if isinstance(factor, float)]
        if region is None or len(factors) < len(condition.linear):
            return []
        return _between(factors, region, is_left)
    if condition.linear or len(condition.ranges) != 1:
        return []
    high = condition.ranges[0].high
    values = condition.values
    if isinstance(high, str) or not math.isfinite(high) or any(isinstance(f, str) for *_, f in condition.squares):
        return []
    matrix = np.zeros((len(values), len(values)))
    for one, two, factor in condition.squares:
        i, j = values.index(one), values.index(two)
        matrix[i, j] += 0.5 * float(factor)
        matrix[j, i] += 0.5 * float(factor)
    curves, directions = np.linalg.eigh(matrix)
    if high <= 0.0 or curves[0] < -_NONE * curves[-1]:
        return []
    found = []
    for curve, direction in zip(curves, directions.T, strict=True):
        if curve > _NONE * curves[-1]:
            reach = math.sqrt(high / curve) * (1.0 + 1e-12)
            whole = [(v, float(f)) for v, f in zip(values, direction, strict=True) if abs(f) > _NONE]
            centre = dict(condition.centre)
            middle = sum(factor * centre.get(value, 0.0) for value, factor in whole)
            slack = 1e-12 * (abs(middle) + reach)
            found += _between(whole, Region(middle - reach - slack, middle + reach + slack), is_left)
    return found


def _hull(ranges: tuple[Range, ...]) -> Region | None:
    """Return the least interval that holds all ranges; None if it would hold every number, or ends are columns."""
    ends = [(each.low, each.high) for each in ranges]
    if any(isinstance(end, str) for pair in ends for end in pair):
        return None
    low, high = min(float(low) for low, _ in ends), max(float(high) for _, high in ends)
    return None if math.isinf(low) and math.isinf(high) else Region(low, high)


def _between(factors: list[tuple[Value, float]], region: Region, is_left: Callable[[str], bool]) -> list[Band]:
    left = tuple((value, factor) for value, factor in factors if is_left(value[0]))
    right = tuple((value, -factor) for value, factor in factors if not is_left(value[0]))
    return [Band(left, right, region)] if left and right else []
