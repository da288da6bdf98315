"""What may be asked of the uncertain values of a row, as plain data, and rows that are decided together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from haply.joins.ranges import Ends, above, below, disjoint, divided, roots
from haply.models import Gaussian, GaussianND, Histogram, Mixture, Model, Uniform
from haply.pruning.region import Bounds

Number = float | str
"""A number, or the name of a column of certain numbers, one a row."""

Value = tuple[str, int | None]
"""An uncertain column, and which of its components; None for one that has no components."""


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``; an end that there is not is infinite."""

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

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that it speaks of, each once."""
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
        """The values that it speaks of."""
        return (self.one, None), (self.other, None)


Condition = Polynomial | Apart


@dataclass(frozen=True)
class Batch:
    """Rows that are decided together: a model for each uncertain column, and columns of certain numbers."""

    values: Mapping[str, Model]
    numbers: Mapping[str, np.ndarray]
    rows: int

    def take(self, rows: np.ndarray) -> Batch:
        """Some of the rows."""
        if len(rows) == self.rows:
            return self
        models = {name: model if len(model) == 1 else model.take(rows) for name, model in self.values.items()}
        return Batch(models, {name: numbers[rows] for name, numbers in self.numbers.items()}, len(rows))

    def number(self, number: Number) -> Any:
        """One for all rows, or an array."""
        return self.numbers[number] if isinstance(number, str) else number

    def array(self, number: Number) -> np.ndarray:
        """The same as an array, of one number or of one for each row."""
        return np.atleast_1d(np.asarray(self.number(number), np.float64))


class Prepared(Protocol):
    """The group's view of some rows, made once: what bounds and exact values are both computed from."""

    def take(self, rows: np.ndarray) -> Prepared:
        """Some of the rows."""

    def bounds(self, enough_below: Any, enough_from: Any) -> Bounds | None:
        """Certified bounds, cheapest first until they are enough; None if there are none cheaper than the value."""

    def exact(self) -> tuple[np.ndarray, bool]:
        """The probabilities, and whether they are counts of equally likely cases, rounded once."""


def ends_of(condition: Polynomial, batch: Batch) -> Ends:
    """The ranges as closed intervals that do not overlap."""
    smooth = is_smooth(condition, batch)
    found: Ends = []
    for each in condition.ranges:
        low, high = batch.array(each.low), batch.array(each.high)
        # at 0 the next double is as good, and says of squares that there are none below
        low_closed, high_closed = each.low_closed | (smooth & (low != 0.0)), each.high_closed | (smooth & (high != 0.0))
        found.append((above(low, low_closed), below(high, high_closed)))
    return disjoint(found, smooth)


def solved(condition: Polynomial, curve: np.ndarray, slope: np.ndarray, batch: Batch) -> Ends:
    """Where ``x``, seen from any centre, lies for which ``curve x^2 + slope x``, the polynomial, is in its ranges."""
    smooth = is_smooth(condition, batch)
    found: Ends = []
    for each in condition.ranges:
        low, high = batch.array(each.low), batch.array(each.high)
        low_closed, high_closed = each.low_closed | smooth, each.high_closed | smooth
        if condition.squares:
            found += roots(curve, slope, low, high, low_closed, high_closed)
        else:
            found.append(divided(slope, low, high, low_closed, high_closed))
    return disjoint(found, smooth)


def is_smooth(condition: Polynomial, batch: Batch) -> Any:
    """For which rows it is known that the polynomial has no value of positive probability: for all, none, or by row.

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
    """Rows of a law that has a density; only those of which that is plain to see."""
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
