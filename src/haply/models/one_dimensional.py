"""The one-dimensional models: declared parameters, what makes a row bad, and the components of a row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from haply.errors import HaplyError
from haply.models.base import Model, OneDimensional, Parameter
from haply.models.plane import NormalParts, one_dimension
from haply.models.ragged import NumberLists, Ragged, as_arrow, floats
from haply.numerics.components import NORMAL, POINT, UNIFORM
from haply.numerics.normal import normal_quantile
from haply.numerics.rows import Components, Line, too_long

if TYPE_CHECKING:
    import altair


def _single(
    kind: np.ndarray, low: np.ndarray, high: np.ndarray, mean: np.ndarray | None = None, sd: np.ndarray | None = None
) -> Components:
    """Components of rows that have one each."""
    n = len(kind)
    zeros = np.zeros(n)
    return Components(
        np.arange(n + 1),
        np.ones(n),
        kind.astype(np.int8),
        np.array(low),
        np.array(high),
        zeros if mean is None else np.array(mean),
        zeros if sd is None else np.array(sd),
        False,
    )


def weighted(
    weights: Ragged,
    kind: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    mean: np.ndarray,
    sd: np.ndarray,
    ordered: bool,
) -> Components:
    """Components of rows that have several: scaled to a sum of 1, those of weight 0 left out."""
    owner = weights.owner()
    scaled = weights.values / weights.sums()[owner]
    kept = weights.values > 0.0
    counts = np.bincount(owner[kept], minlength=len(weights))
    start = np.concatenate([[0], np.cumsum(counts)])
    return Components(
        start, scaled[kept], kind[kept].astype(np.int8), low[kept], high[kept], mean[kept], sd[kept], ordered
    )


class Certain(OneDimensional):
    """Represents values that are known exactly.

    Parameters
    ----------
    values
        A number for each row.

    Examples
    --------
    >>> from haply.models import Certain
    >>> Certain([1.0, 2.5]).quantile(0.5)
    array([1. , 2.5])
    """

    kind: ClassVar[str] = "certain"
    has_constructor: ClassVar[bool] = False
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("values", moves=True),)
    continuous: ClassVar[bool] = False

    def __init__(self, values: ArrayLike) -> None:
        super().__init__(values=values)

    @classmethod
    def example(cls) -> Certain:
        return cls([1.0, 2.0])

    def __getattr__(self, name: str) -> Any:  # `values` is also the name of the columns of every model
        raise AttributeError(f"Certain has no attribute '{name}'")

    @classmethod
    def fields(cls, array: pa.Array) -> list[pa.Array]:
        return [array]

    def to_arrow(self) -> pa.Array:
        """Write the values as an array of doubles: a certain value needs no struct."""
        return as_arrow(np.ascontiguousarray(self.values["values"]))

    def _make_components(self) -> Components:
        values = self.values["values"]
        return _single(np.full(len(values), POINT), values, values)

    def equal_weight_samples(self) -> bool:
        return True


class Uniform(OneDimensional):
    """Represents values that are uniform on an interval.

    Parameters
    ----------
    lo
        The lower end of the interval.
    hi
        The upper end. A value is certain where both ends are equal.

    Examples
    --------
    >>> from haply.models import Uniform
    >>> Uniform([0, 10], [5, 20]).mean()
    array([ 2.5, 15. ])
    """

    kind: ClassVar[str] = "uniform"
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("lo", moves=True), Parameter("hi", moves=True))
    change_places: ClassVar[tuple[tuple[str, str], ...]] = (("lo", "hi"),)

    def __init__(self, lo: ArrayLike, hi: ArrayLike) -> None:
        super().__init__(lo=lo, hi=hi)

    @classmethod
    def example(cls) -> Uniform:
        return cls([1.0, 2.0], [2.0, 3.0])

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from super().reasons()
        yield "lo > hi", self.lo > self.hi

    def quantile_low(self, level: Any) -> np.ndarray:
        return np.asarray(self.lo + self._level(level) * (self.hi - self.lo))

    def quantile_high(self, level: Any) -> np.ndarray:
        return np.asarray(self.hi - self._level(level) * (self.hi - self.lo))

    def line(self, low_level: float, high_level: float) -> Line | None:
        return Line(self.lo, self.hi, self.hi - self.lo, float(low_level), float(high_level))

    def spread_out(self, width: float, share: float) -> np.ndarray:
        return np.asarray(too_long(self.lo, self.hi, width, share))

    def _make_components(self) -> Components:
        return _single(np.where(self.lo < self.hi, UNIFORM, POINT), self.lo, self.hi)


class Gaussian(OneDimensional):
    """Represents values with a normal distribution.

    Parameters
    ----------
    mean
        The mean.
    sd
        The standard deviation, 0 or more. A value is certain where it is 0.

    Examples
    --------
    >>> from haply.models import Gaussian
    >>> Gaussian([20.0, 30.0], 0.1).cdf([20.0, 30.1]).round(4)
    array([0.5   , 0.8413])
    """

    kind: ClassVar[str] = "gaussian"
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("mean", moves=True), Parameter("sd", least=0.0))
    bounded: ClassVar[bool] = False

    def __init__(self, mean: ArrayLike, sd: ArrayLike) -> None:
        super().__init__(mean=mean, sd=sd)

    @classmethod
    def example(cls) -> Gaussian:
        return cls([1.0, 2.0], [1.0, 2.0])

    def mean(self) -> np.ndarray:  # the parameter of the same name is in `values`
        return np.array(self.values["mean"])

    def variance(self) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(self.sd**2)

    def deviation(self) -> np.ndarray:
        return np.array(self.sd)

    def quantile_low(self, level: Any) -> np.ndarray:
        if np.ndim(level) or not 0.0 < level < 1.0:
            return super().quantile_low(level)
        return np.asarray(self.values["mean"] + normal_quantile(float(level)) * self.sd)

    def quantile_high(self, level: Any) -> np.ndarray:
        if np.ndim(level) or not 0.0 < level < 1.0:
            return super().quantile_high(level)
        return np.asarray(self.values["mean"] - normal_quantile(float(level)) * self.sd)

    def line(self, low_level: float, high_level: float) -> Line | None:
        if not (0.0 < low_level < 1.0 and 0.0 < high_level < 1.0):
            return None
        z = normal_quantile(float(low_level)), normal_quantile(float(high_level))
        return Line(self.values["mean"], self.values["mean"], self.sd, z[0], z[1])

    def spread_out(self, width: float, share: float) -> np.ndarray:
        if not 0.0 < share < 1.0:
            return super().spread_out(width, share)
        widest = 0.5 * width / normal_quantile(0.5 * (1.0 + share))  # the sd with just this share around the mean
        return np.asarray(self.sd > widest * (1.0 + 1e-9))

    def _make_components(self) -> Components:
        mean, atom = self.values["mean"], self.sd == 0.0
        return _single(
            np.where(atom, POINT, NORMAL), np.where(atom, mean, -np.inf), np.where(atom, mean, np.inf), mean, self.sd
        )


class TruncatedGaussian(OneDimensional):
    """Represents values with a normal distribution that is cut to an interval.

    Parameters
    ----------
    mean
        The mean before the cut.
    sd
        The standard deviation before the cut, 0 or more. Where it is 0, the value is the point of the interval that is
        nearest to ``mean``.
    lo
        The lower end of the interval.
    hi
        The upper end of the interval.

    Examples
    --------
    >>> from haply.models import TruncatedGaussian
    >>> TruncatedGaussian(0.2, 1.0, 0.0, 5.0).mean().round(4)
    array([0.8751])
    """

    kind: ClassVar[str] = "truncated_gaussian"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("mean", moves=True),
        Parameter("sd", least=0.0),
        Parameter("lo", moves=True),
        Parameter("hi", moves=True),
    )
    change_places: ClassVar[tuple[tuple[str, str], ...]] = (("lo", "hi"),)

    def __init__(self, mean: ArrayLike, sd: ArrayLike, lo: ArrayLike, hi: ArrayLike) -> None:
        super().__init__(mean=mean, sd=sd, lo=lo, hi=hi)

    @classmethod
    def example(cls) -> TruncatedGaussian:
        return cls([1.0, 2.0], [1.0, 2.0], [0.0, 1.0], [2.0, 3.0])

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from super().reasons()
        yield "lo > hi", self.lo > self.hi

    def mean(self) -> np.ndarray:  # the parameter of the same name is in `values`
        return self.moments[0]

    def _make_components(self) -> Components:
        mean = self.values["mean"]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            # too far from the mean to count sds in doubles: all mass is at the near end
            beyond = np.isinf((self.lo - mean) / self.sd) & (self.lo > mean)
            beyond |= np.isinf((self.hi - mean) / self.sd) & (self.hi < mean)
        atom = (self.sd == 0.0) | (self.lo == self.hi) | beyond
        place = np.clip(mean, self.lo, self.hi)
        return _single(
            np.where(atom, POINT, NORMAL), np.where(atom, place, self.lo), np.where(atom, place, self.hi), mean, self.sd
        )


class Mixture(OneDimensional):
    """Represents values whose distribution is a mixture of normals.

    Parameters
    ----------
    weights
        The probability of each component. They sum to 1.
    means
        The mean of each component.
    sds
        The standard deviation of each component, 0 or more.

    Examples
    --------
    >>> from haply.models import Mixture
    >>> Mixture([[0.3, 0.7]], [[2.0, 5.0]], [[0.5, 0.8]]).mean()
    array([4.1])
    """

    kind: ClassVar[str] = "mixture"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("weights", "list", least=0.0, sums_to_one=True, degree=0),
        Parameter("means", "list", moves=True),
        Parameter("sds", "list", least=0.0),
    )
    bounded: ClassVar[bool] = False

    def __init__(self, weights: NumberLists, means: NumberLists, sds: NumberLists) -> None:
        super().__init__(weights=weights, means=means, sds=sds)

    @classmethod
    def example(cls) -> Mixture:
        return cls([[0.5, 0.5]] * 2, [[1.0, 2.0]] * 2, [[1.0, 1.0]] * 2)

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        count = self.weights.lengths
        yield "lengths disagree", (count != self.means.lengths) | (count != self.sds.lengths)
        yield from super().reasons()

    def _make_components(self) -> Components:
        mean, sd = self.means.values, self.sds.values
        atom = sd == 0.0
        low, high = np.where(atom, mean, -np.inf), np.where(atom, mean, np.inf)
        return weighted(self.weights, np.where(atom, POINT, NORMAL), low, high, mean, sd, False)


class Histogram(OneDimensional):
    """Represents values with a histogram: uniform inside each bucket.

    Parameters
    ----------
    edges
        The edges of the buckets, strictly increasing: one more than there are buckets.
    probs
        The probability of each bucket, 0 or more. They sum to 1.

    Examples
    --------
    >>> from haply.models import Histogram
    >>> Histogram([[0, 1, 3]], [[0.25, 0.75]]).quantile(0.5)
    array([1.66666667])
    """

    kind: ClassVar[str] = "histogram"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("edges", "list", moves=True),
        Parameter("probs", "list", least=0.0, sums_to_one=True, degree=0),
    )
    ascending: ClassVar[tuple[str, ...]] = ("edges", "probs")

    def __init__(self, edges: NumberLists, probs: NumberLists) -> None:
        super().__init__(edges=edges, probs=probs)

    @classmethod
    def example(cls) -> Histogram:
        return cls([[0.0, 1.0, 3.0]] * 2, [[0.5, 0.5]] * 2)

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        edges = self.edges
        yield "lengths disagree", edges.lengths != self.probs.lengths + 1
        yield from super().reasons()
        falls = np.zeros(len(edges.values), dtype=bool)
        falls[1:] = ~(edges.values[1:] > edges.values[:-1])
        falls[edges.start[:-1][edges.lengths > 0]] = False  # the first edge of a row follows another row's last
        yield "edges not increasing", edges.any_by_row(falls)

    def _make_components(self) -> Components:
        edges = self.edges
        is_last = np.zeros(len(edges.values), dtype=bool)
        is_last[edges.start[1:] - 1] = True
        is_first = np.zeros(len(edges.values), dtype=bool)
        is_first[edges.start[:-1]] = True
        zeros = np.zeros(len(self.probs.values))
        kind = np.full(len(zeros), UNIFORM)
        return weighted(self.probs, kind, edges.values[~is_last], edges.values[~is_first], zeros, zeros, True)


def _nested_dimension(points: Any) -> int | None:
    """Return the number of coordinates of each point, if points are given as lists of them."""
    if isinstance(points, (Ragged, pa.Array, pa.ChunkedArray)):
        return None
    rows = points if isinstance(points, np.ndarray) and points.ndim == 3 else [row for row in points if np.size(row)]
    return np.shape(rows[0])[1] if len(rows) and np.ndim(rows[0]) == 2 else None


class Samples(OneDimensional):
    """Represents values, or points, by discrete samples.

    The functions of one-dimensional models, as ``cdf`` and ``quantile``, need points of one number.

    Parameters
    ----------
    points
        The samples of each row: numbers, points as lists of coordinates, or the coordinates of all points one after
        another.
    probs
        The probability of each sample. They sum to 1. By default all samples of a row are equally likely.
    dim
        How many coordinates a point has: by default 1, or the length of points that are given as lists.

    Examples
    --------
    >>> from haply.models import Samples
    >>> Samples([[1, 2, 5]]).cdf(2.0).round(4)
    array([0.6667])
    """

    kind: ClassVar[str] = "samples"
    has_constructor: ClassVar[bool] = False
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("points", "list", moves=True),
        Parameter("probs", "optional list", least=0.0, sums_to_one=True, degree=0),
        Parameter("dim", "integer", least=1.0, degree=0),
    )
    continuous: ClassVar[bool] = False

    def __init__(self, points: NumberLists, probs: NumberLists | None = None, dim: ArrayLike | None = None) -> None:
        found = _nested_dimension(points)
        if dim is None:
            dim = found or 1
        elif found is not None and not (np.asarray(dim) == found).all():
            raise HaplyError("Points differ in dimension", expected=f"dim = {dim}", found=f"points of {found} numbers")
        super().__init__(points=points, probs=probs, dim=dim)

    @classmethod
    def example(cls) -> Samples:
        return cls([[1.0, 2.0]] * 2)

    @classmethod
    def view(cls, fields: Any) -> Samples:
        points, sizes = Ragged.from_arrow(fields[0]), floats(fields[2])
        missing = np.asarray(pc.is_null(fields[1]))
        if missing.all():
            return cls._of_columns({"points": points, "probs": None, "dim": sizes})
        probs = Ragged.from_arrow(fields[1])
        if missing.any():  # some rows have no probabilities: write out equal ones for them
            counts = np.where(missing, points.lengths // np.maximum(sizes, 1).astype(np.int64), probs.lengths)
            start = np.concatenate([[0], np.cumsum(counts)])
            owner = np.repeat(np.arange(len(counts)), counts)
            values = 1.0 / counts[owner]
            values[~missing[owner]] = probs.take(np.flatnonzero(~missing)).values
            probs = Ragged(values, start)
        return cls._of_columns({"points": points, "probs": probs, "dim": sizes})

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from super().reasons()
        yield "dim is not a whole number", self.dim != np.floor(self.dim)
        with np.errstate(divide="ignore", invalid="ignore"):
            yield "lengths disagree", np.mod(self.points.lengths, self.dim) != 0
            if self.probs is not None:
                yield "lengths disagree", self.points.lengths != self.probs.lengths * self.dim

    @cached_property
    def one_dimensional(self) -> bool:
        """Return whether every row's points are single numbers."""
        return bool((self.dim == 1).all())

    @property
    def _on_a_line(self) -> bool:  # type: ignore[override]
        return self.one_dimensional

    def normal_parts(self) -> NormalParts:
        dim, start = one_dimension(self.dim), self.points.start
        counts = np.diff(start) // dim
        if self.probs is None:
            weight = np.repeat(1.0 / np.maximum(counts, 1), counts)
        else:
            weight = self.probs.values / self.probs.sums()[self.probs.owner()]
        points = self.points.values.reshape(-1, dim)
        return NormalParts(start // dim, weight, points, np.zeros((len(points), dim, dim)))

    def _picture(self, title: str) -> altair.LayerChart:
        return super()._picture(title) if self.one_dimensional else Model._picture(self, title)

    def _make_components(self) -> Components:
        if not self.one_dimensional:
            raise HaplyError(
                "A one-dimensional function is called on samples with more dimensions",
                expected="dim = 1",
                found=f"dim = {int(self.dim.max())}",
            )
        points = self.points
        order = np.lexsort((points.values, points.owner()))
        values = points.values[order]
        if self.probs is None:
            weights = Ragged(np.ones(len(values)), points.start)
        else:
            weights = Ragged(self.probs.values[order], points.start)
        zeros = np.zeros(len(values))
        return weighted(weights, np.full(len(values), POINT), values, values, zeros, zeros, True)

    def equal_weight_samples(self) -> bool:
        if self.probs is None:
            return True
        spread = np.abs(self.probs.values * self.probs.lengths[self.probs.owner()] - 1.0)
        return bool((spread < 1e-12).all())


ONE_DIMENSIONAL: tuple[type[OneDimensional], ...] = (
    Certain,
    Uniform,
    Gaussian,
    TruncatedGaussian,
    Mixture,
    Histogram,
    Samples,
)

__all__ = [
    "ONE_DIMENSIONAL",
    "Certain",
    "Gaussian",
    "Histogram",
    "Mixture",
    "Model",
    "OneDimensional",
    "Samples",
    "TruncatedGaussian",
    "Uniform",
]
