"""Weigh pairs of rows as evidence for one thing: compute the Bayes factor of "the same" against "unrelated"."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.joins.dimensions import dimensions
from haply.models.columns import view_column
from haply.probability.density import PairDensity


@dataclass(frozen=True)
class Attribute:
    """Two columns of pairs that measure the same value if the rows are the same thing."""

    left: str
    right: str
    among: float | str
    """The density of unrelated right rows at the value of the right row: a number, or the name of a column."""


@dataclass(frozen=True)
class Category:
    """Two columns of pairs that agree more often if the rows are the same thing."""

    left: str
    right: str
    same: float
    """The share of pairs that agree, among pairs that are the same thing."""
    unrelated: float
    """The share of pairs that agree, among unrelated pairs."""


@dataclass(frozen=True)
class Evidence:
    """Names what counts as evidence; the density of the first attribute comes with the pairs, as ``probability``."""

    density: float | str
    """The density of unrelated right rows: a number, or the name of a column."""
    first: str
    """The column of the left rows whose density, or probability, comes with the pairs."""
    within: float | None = None
    """If pairs come with the probability of a distance instead of a density: this distance."""
    attributes: tuple[Attribute, ...] = ()
    categories: tuple[Category, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Return the columns of pairs that are needed."""
        names = ["probability"]
        if self.within is not None:
            names.append(self.first)
        for one in self.attributes:
            names += [one.left, one.right, *([one.among] if isinstance(one.among, str) else [])]
        for category in self.categories:
            names += [category.left, category.right]
        return list(dict.fromkeys([*names, *([self.density] if isinstance(self.density, str) else [])]))

    def bayes_factors(self, pairs: pa.Table) -> np.ndarray:
        """Compute the Bayes factor of each pair; a null value leaves the factor as it is."""
        factor = pairs["probability"].to_numpy() / _numbers(pairs, self.density)
        if self.within is not None and pairs.num_rows:
            factor = factor / _ball(self.within, dimensions(view_column(pairs[self.first].combine_chunks())))
        for one in self.attributes:
            factor = factor * _attribute_factors(pairs, one)
        for category in self.categories:
            agree = pc.equal(pairs[category.left], pairs[category.right])
            known = np.asarray(agree.is_valid())
            same = np.asarray(pc.fill_null(agree, False))
            values = np.where(
                same, category.same / category.unrelated, (1.0 - category.same) / (1.0 - category.unrelated)
            )
            factor = factor * np.where(known, values, 1.0)
        return factor


def _ball(radius: float, dims: np.ndarray) -> np.ndarray:
    """Return the volume of a ball of this radius, for each dimension."""
    known, which = np.unique(dims, return_inverse=True)
    of_one = [math.pi ** (0.5 * dim) / math.gamma(0.5 * dim + 1.0) for dim in known.tolist()]
    return np.array(of_one)[which] * radius**dims


def _numbers(pairs: pa.Table, given: float | str) -> np.ndarray | float:
    return pairs[given].to_numpy().astype(np.float64) if isinstance(given, str) else given


def _attribute_factors(pairs: pa.Table, attribute: Attribute) -> np.ndarray:
    known = np.asarray(pc.and_(pairs[attribute.left].is_valid(), pairs[attribute.right].is_valid()))
    rows = np.flatnonzero(known)
    factors = np.ones(pairs.num_rows)
    if len(rows):
        chosen = pairs.take(pa.array(rows))
        left, right = (view_column(chosen[name].combine_chunks()) for name in (attribute.left, attribute.right))
        each = np.arange(len(rows))
        factors[rows] = PairDensity(left, right).evaluate(each, each) / _numbers(chosen, attribute.among)
    return factors
