"""Conditions on the uncertain values of a row, as plain data, and rows that are decided together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from haply.errors import HaplyError
from haply.models import Gaussian, GaussianND, Histogram, Mixture, MixtureND, Model, Uniform
from haply.numerics.scale import powers_of
from haply.probability.region import Region
from haply.pruning.bounds.region import Bounds
from haply.selection.ranges import Ends, above, below, disjoint, divided, roots

NORMALS = (Gaussian, Mixture, GaussianND, MixtureND)
"""Laws whose joint one is known in closed form."""

Number = float | str
"""A number, or the name of a column of certain numbers, one a row."""

Value = tuple[str, int | None]
"""An uncertain column, and which of its components; None for one that has no components."""


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``; a missing end is infinite."""

    low: Number
    high: Number
    low_closed: bool = True
    high_closed: bool = True


@dataclass(frozen=True)
class Polynomial:
    """``sum of factor * value + sum of factor * value * value`` lies in one of the ranges.

    With a ``centre`` it is about the values minus those numbers; there are no linear terms then.
    """

    linear: tuple[tuple[Value, Number], ...]
    squares: tuple[tuple[Value, Value, Number], ...]
    ranges: tuple[Range, ...]
    text: str = ""
    centre: tuple[tuple[Value, float], ...] = ()

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Return the values that it is about, each once."""
        named = [value for value, _ in self.linear] + [value for one, two, _ in self.squares for value in (one, two)]
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True)
class Apart:
    """The distance of two columns is at most ``limit``, or, if ``beyond``, is not."""

    one: str
    other: str
    limit: Number
    closed: bool = True
    beyond: bool = False
    text: str = ""

    @property
    def values(self) -> tuple[Value, ...]:
        """Return the values that it is about."""
        return (self.one, None), (self.other, None)


Condition = Polynomial | Apart


@dataclass(frozen=True)
class RowValues:
    """Rows that are decided together: a model for each uncertain column, and columns of certain numbers."""

    values: Mapping[str, Model]
    numbers: Mapping[str, np.ndarray]
    rows: int

    def take(self, rows: np.ndarray) -> RowValues:
        """Return some of the rows."""
        if len(rows) == self.rows:
            return self
        models = {name: model if len(model) == 1 else model.take(rows) for name, model in self.values.items()}
        return RowValues(models, {name: numbers[rows] for name, numbers in self.numbers.items()}, len(rows))

    def number(self, number: Number) -> Any:
        """Return one number for all rows, or an array."""
        return self.numbers[number] if isinstance(number, str) else number

    def array(self, number: Number) -> np.ndarray:
        """Return it as an array, with one number or with one for each row."""
        return np.atleast_1d(np.asarray(self.number(number), np.float64))


class Prepared(Protocol):
    """Some rows as a group needs them, prepared once for bounds and exact values."""

    def take(self, rows: np.ndarray) -> Prepared:
        """Return some of the rows."""

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        """Compute certified bounds, cheapest first until they are enough; None if none is cheaper than the value.

        ``most`` is how many of the group's rules are asked at most; all by default.
        """

    def exact(self) -> tuple[np.ndarray, bool]:
        """Compute the probabilities, and tell whether they are counts of equally likely cases, rounded once."""


def in_range(conditions: tuple[Condition, ...], batch: RowValues) -> tuple[tuple[Condition, ...], RowValues]:
    """Divide values by powers of two, and conditions with them, where they are too large or small to be squared.

    Each row has a power of its own. Where all may stay as they are, conditions and batch are those that were given.
    """
    named = dict.fromkeys(name for condition in conditions for name, _ in condition.values)
    sizes = {name: np.broadcast_to(batch.values[name].sizes(), (batch.rows,)) for name in named}
    power = powers_of(np.max(list(sizes.values()), axis=0)) if batch.rows else None
    if power is None:
        return conditions, batch
    one, text = bool((power == power[0]).all()), " AND ".join(condition.text for condition in conditions)
    apart = not one and any(isinstance(condition, Polynomial) and condition.centre for condition in conditions)
    for name, size in sizes.items():
        if apart or (np.ldexp(size, -power)[size > 0.0] < LEAST_BESIDE).any():
            raise HaplyError(
                f"Values in `{text}` differ by too many orders of magnitude to be computed together",
                expected="values of one row within 1e140 of each other",
                found=f"'{name}' of size {size[size > 0.0].min():g}" if (size > 0.0).any() else f"'{name}'",
                hint="give columns in units of similar size",
            )
    numbers, values = dict(batch.numbers), dict(batch.values)
    for name in named:
        model = values[name]
        values[name] = (model if len(model) == batch.rows else model.take(np.zeros(batch.rows, np.int64))).scaled(power)

    def over(number: Number, degree: int) -> Number:
        if degree == 0 or (not isinstance(number, str) and (number == 0.0 or np.isinf(number))):
            return number
        with np.errstate(over="ignore", under="ignore"):
            found = np.ldexp(np.asarray(batch.number(number), np.float64), -degree * power)
        if one and not isinstance(number, str):
            return float(found[0])
        place = f"{number} over {degree} powers of two"
        numbers[place] = found
        return place

    return tuple(_over(condition, over) for condition in conditions), RowValues(values, numbers, batch.rows)


LEAST_BESIDE = 1e-140
"""What is smaller than this beside other values of its row has no square beside theirs."""


def _over(condition: Condition, over: Callable[[Number, int], Number]) -> Condition:
    """Write a condition on values divided by a power of two; ``over`` divides a number by its ``degree``-th power."""
    if isinstance(condition, Apart):
        return replace(condition, limit=over(condition.limit, 1))
    degree = 2 if condition.squares else 1
    return replace(
        condition,
        linear=tuple((value, over(factor, degree - 1)) for value, factor in condition.linear),
        ranges=tuple(
            each._replace(low=over(each.low, degree), high=over(each.high, degree)) for each in condition.ranges
        ),
        centre=tuple((value, float(over(place, 1))) for value, place in condition.centre),
    )


def ends_of(condition: Polynomial, batch: RowValues) -> Ends:
    """Return the ranges as closed intervals that do not overlap."""
    smooth = is_smooth(condition, batch)
    found: Ends = []
    for each in condition.ranges:
        low, high = batch.array(each.low), batch.array(each.high)
        # at 0 the next double is as good, and says of squares that there are none below
        low_closed, high_closed = each.low_closed | (smooth & (low != 0.0)), each.high_closed | (smooth & (high != 0.0))
        found.append((above(low, low_closed), below(high, high_closed)))
    return disjoint(found, smooth)


def solved(condition: Polynomial, curve: np.ndarray, slope: np.ndarray, batch: RowValues, centre: float = 0.0) -> Ends:
    """Return where ``x + centre`` lies if ``curve x^2 + slope x``, the polynomial, is in its ranges."""
    smooth = is_smooth(condition, batch)
    found: Ends = []
    for each in condition.ranges:
        low, high = batch.array(each.low), batch.array(each.high)
        low_closed, high_closed = each.low_closed | smooth, each.high_closed | smooth
        if condition.squares:
            found += roots(curve, slope, low, high, low_closed, high_closed, centre)
        else:
            ends = divided(slope, low, high, low_closed, high_closed)
            found.append((ends[0] + centre, ends[1] + centre) if centre else ends)
    return disjoint(found, smooth)


def is_smooth(condition: Polynomial, batch: RowValues) -> Any:
    """Return for which rows the polynomial certainly has no value of positive probability: all, none, or an array.

    It is then all the same whether an end is open or closed.
    """
    if all(each.low_closed and each.high_closed for each in condition.ranges) and len(condition.ranges) == 1:
        return False
    found = np.ones(1, bool)
    for name in dict.fromkeys(name for name, _ in condition.values):
        here = _without_atoms(batch.values[name])
        found = found if here.all() else found & here
    for factor in (*(factor for _, factor in condition.linear), *(factor for _, _, factor in condition.squares)):
        found = found & (batch.array(factor) != 0.0)
    return True if found.all() else found if found.any() else False


def _without_atoms(model: Model) -> np.ndarray:
    """Return the rows whose law certainly has a density; only what needs no computation is found."""
    match model:
        case Gaussian():
            return np.asarray(model.sd) > 0.0
        case Uniform():
            return np.asarray(model.lo < model.hi)
        case Mixture():
            return np.minimum.reduceat(model.sds.values, model.sds.start[:-1]) > 0.0
        case GaussianND() if len(model) and (model.cov.lengths == 4).all():
            cov = model.cov.values.reshape(-1, 4)
            return cov[:, 0] * cov[:, 3] - cov[:, 1] * cov[:, 2] > 1e-12 * cov[:, 0] * cov[:, 3]
        case Histogram():
            return np.ones(1, bool)
    return np.zeros(1, bool)


def one_region(ranges: tuple[Range, ...]) -> Region | None:
    """Return the ranges as one region of numbers, if they are one."""
    ends = [end for each in ranges for end in (each.low, each.high)]
    if any(isinstance(end, str) for end in ends):
        return None
    if len(ranges) == 1:
        (only,) = ranges
        return Region(float(only.low), float(only.high), only.low_closed, only.high_closed)
    if len(ranges) == 2 and ranges[0].low == -math.inf and ranges[1].high == math.inf:
        below, above = ranges
        low, high = float(below.high), float(above.low)
        if low <= high:
            return Region(low, high, not below.high_closed, not above.low_closed, outside=True)
    return None
