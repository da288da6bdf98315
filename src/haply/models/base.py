"""The base of all models: declared parameters, validation, Arrow in and out; and the functions in one dimension."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from haply.errors import HaplyError, count_of
from haply.models.densities import density_records
from haply.models.plane import OUTLINED, NormalParts, Plane
from haply.models.ragged import NumberLists, Ragged, as_arrow, floats
from haply.numerics import rows as kernels
from haply.numerics.rows import Components, Line

if TYPE_CHECKING:
    import altair

WEIGHT_SLACK = 1e-6
"""Weights may miss a sum of 1 by this much; they are then scaled to it."""

_Model = TypeVar("_Model", bound="Model")
_Line = TypeVar("_Line", bound="OneDimensional")


@dataclass(frozen=True)
class Parameter:
    """A declared parameter: its name in the struct, its shape, and its domain."""

    name: str
    shape: Literal["number", "list", "optional list", "integer"] = "number"
    least: float | None = None
    sums_to_one: bool = False
    degree: int = 1
    """Which power of the unit of values it is in: 1 for a length, 2 for a variance, 0 for a weight."""
    moves: bool = False
    """Whether it moves with the value: it is a position, not an error."""

    @property
    def is_list(self) -> bool:
        """Return whether a row holds several numbers of it."""
        return self.shape.endswith("list")


class Model:
    """Represents uncertain values of one kind, one for each row.

    Subclasses declare their parameters and add formulas. The docstring of a subclass begins with ``Represents`` and has
    a section ``Parameters``: ``haply.constructors`` makes the docstring of its constructor from them.

    Parameters
    ----------
    **values
        The parameters of the model by name. Each is an array with one number for each row, or a list of numbers for
        each row. A single number is used for all rows.

    Raises
    ------
    HaplyError
        If a row is not a distribution, or if the parameters differ in length.

    Examples
    --------
    >>> from haply.models import Gaussian
    >>> readings = Gaussian([20.0, 21.5, 19.0], 0.3)
    >>> len(readings), readings.take([1]).mean()
    (3, array([21.5]))
    """

    kind: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    arguments: ClassVar[tuple[str, ...] | None] = None
    """The constructor's names of the parameters, if they differ."""
    has_constructor: ClassVar[bool] = True
    """Whether its constructor takes just the parameters; other constructors are written by hand."""
    on_sky: ClassVar[bool] = False
    """Whether its values are positions on the sky."""
    continuous: ClassVar[bool] = True
    """Whether a value of this kind equals a given number with probability 0, unless its spread is 0."""

    values: dict[str, Any]

    def __init__(self, **values: NumberLists | None) -> None:
        self.values = self._read(values)
        for row, reason in self.problems():
            raise HaplyError(
                f"Row {row} of {type(self).__name__} is not a distribution",
                found=f"{reason} in {self.show(row)}",
                hint="fix or leave out the row",
            )

    @classmethod
    def _read(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Turn what people pass (numbers, lists, lists of lists) into columns of one length."""
        columns: dict[str, Any] = {}
        for parameter in cls.parameters:
            given = values[parameter.name]
            if parameter.is_list:
                columns[parameter.name] = None if given is None else Ragged.of(given, parameter.name)
            else:
                columns[parameter.name] = np.atleast_1d(np.asarray(given, dtype=np.float64))
        given_rows = [len(column) for column in columns.values() if isinstance(column, Ragged)]
        length = max(given_rows or [len(column) for column in columns.values()], default=0)  # one number for all rows
        for name, column in columns.items():
            if isinstance(column, np.ndarray) and len(column) == 1 != length:
                columns[name] = np.broadcast_to(column, (length,))
            elif column is not None and len(column) != length:
                raise HaplyError(
                    f"The parameters of {cls.__name__} differ in length",
                    expected=f"{count_of(length, 'row')} of '{name}'",
                    found=str(len(column)),
                )
        return columns

    @classmethod
    def _of_columns(cls: type[_Model], columns: dict[str, Any]) -> _Model:
        """Make a model of prepared columns, without looking for bad rows."""
        model = cls.__new__(cls)
        model.values = columns
        return model

    def __len__(self) -> int:
        return len(self.values[self.parameters[0].name])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {count_of(len(self), 'row')}>"

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def take(self: _Model, rows: np.ndarray) -> _Model:
        """Return the given rows, in the given order.

        Parameters
        ----------
        rows
            Row numbers.

        Returns
        -------
        Model
            A model of the same class.
        """
        return self._of_columns(
            {
                name: None if column is None else (column.take(rows) if isinstance(column, Ragged) else column[rows])
                for name, column in self.values.items()
            }
        )

    def sizes(self) -> np.ndarray:
        """Return the largest length of each row: of a value, an error or an end, whatever its sign."""
        out = np.zeros(len(self))
        for parameter in self.parameters:
            column = self.values[parameter.name]
            if column is None or parameter.degree == 0 or not len(self):
                continue
            if isinstance(column, Ragged):
                largest = np.zeros(len(self))
                full = column.lengths > 0
                if full.any():
                    largest[full] = np.maximum.reduceat(np.abs(column.values), column.start[:-1][full])
            else:
                largest = np.abs(column)
            out = np.maximum(out, largest if parameter.degree == 1 else np.sqrt(largest))
        return out

    def scaled(self: _Model, power: int | np.ndarray) -> _Model:
        """Divide the values by ``2**power``, one for all rows or one for each: exact within the range of doubles."""
        columns: dict[str, Any] = {}
        for parameter in self.parameters:
            column = self.values[parameter.name]
            if column is None or parameter.degree == 0:
                columns[parameter.name] = column
                continue
            by = -parameter.degree * np.asarray(power)
            with np.errstate(over="ignore", under="ignore"):
                if isinstance(column, Ragged):
                    values = np.ldexp(column.values, np.repeat(by, column.lengths) if by.ndim else by)
                    columns[parameter.name] = Ragged(values, column.start)
                else:
                    columns[parameter.name] = np.ldexp(column, by)
        return self._of_columns(columns)

    @property
    def nbytes(self) -> int:
        """Return the memory of its parameters."""
        return sum(column.nbytes for column in self.values.values() if column is not None)

    def show(self, row: int) -> dict[str, Any]:
        """Return the parameters of one row, as error messages show them.

        Parameters
        ----------
        row
            The number of the row.

        Returns
        -------
        dict
            The parameters by name. Long lists are cut.
        """
        out: dict[str, Any] = {}
        for name, column in self.values.items():
            if isinstance(column, Ragged):
                numbers = column.row(row).tolist()
                out[name] = numbers if len(numbers) <= 8 else [*numbers[:7], "..."]
            else:
                out[name] = None if column is None else float(column[row])
        return out

    # -- charts -----------------------------------------------------------------------------------------------------

    def normal_parts(self) -> NormalParts:
        """Return the rows as mixtures of normal positions."""
        raise HaplyError(f"{type(self).__name__} holds no positions", expected="a model of positions")

    def plot(self, *, most: int = 8) -> altair.LayerChart:
        """Draw where the values of the first rows may lie.

        Numbers have a density each. Positions have an ellipse, which holds 68% of them; samples are dots. Of more than
        two coordinates the first two are drawn. On the sky east is on the left.

        Parameters
        ----------
        most
            How many rows are drawn.

        Returns
        -------
        altair.LayerChart
            A chart; ``.save("file.svg")`` writes it.

        Raises
        ------
        HaplyError
            If there are no rows, or if the chart library is missing.

        Examples
        --------
        >>> from haply.models import Gaussian
        >>> Gaussian([20.0, 20.4], [0.5, 0.3]).plot().to_dict()["title"]["text"]
        'Where the 2 values may lie'
        """
        if not len(self):
            raise HaplyError(f"{type(self).__name__} has no rows to draw")
        shown = self.take(np.arange(min(len(self), most)))
        return shown._picture(_shown_rows(len(shown), len(self), shown._on_a_line))

    _on_a_line: bool = False
    """Whether values are numbers."""

    def _picture(self, title: str) -> altair.LayerChart:
        from haply.drawing.shapes import position_chart

        plane = Plane.of([self])
        start, _, placed = plane.parts(self)
        shapes: list[dict[str, Any]] = []
        for row in range(len(self)):
            for part in range(start[row], start[row + 1]):
                outline = placed.outline(part)
                points = [[(placed.x[part], placed.y[part])], *([outline] if outline is not None else [])]
                shapes += [{"kind": f"row {row}", "points": one, "closed": True} for one in points]
        each = "part" if start[-1] > len(self) else "position"
        ellipses = f"Ellipses hold {OUTLINED:.0%} of each {each}" if len(shapes) > start[-1] else ""
        return position_chart(shapes, plane.titles, title=title, subtitle=ellipses, east_left=plane.on_sky)

    # -- validation -------------------------------------------------------------------------------------------------

    def reasons(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield each reason why a row can be bad, with a flag per row; only the first flag of a row counts."""
        for parameter in self.parameters:
            column = self.values[parameter.name]
            if isinstance(column, Ragged):
                yield f"{parameter.name} is empty", column.lengths == 0
                yield f"{parameter.name} is NaN or infinite", column.any_by_row(~np.isfinite(column.values))
                if parameter.least is not None:
                    yield f"{parameter.name} negative", column.any_by_row(column.values < parameter.least)
                if parameter.sums_to_one:
                    with np.errstate(invalid="ignore"):
                        off = np.abs(column.sums() - 1.0) > WEIGHT_SLACK
                    yield f"{parameter.name} not summing to 1", off
            elif column is not None:
                yield f"{parameter.name} is NaN or infinite", ~np.isfinite(column)
                if parameter.least is not None:
                    yield f"{parameter.name} < {parameter.least:g}", column < parameter.least

    def problem_codes(self) -> tuple[np.ndarray, list[str]]:
        """Find for each row the index of its first problem in the returned reasons, or -1."""
        reasons: list[str] = []
        codes = np.full(len(self), -1, dtype=np.int16)
        for reason, flags in self.reasons():
            if flags.any():  # usually no row is bad
                codes[(codes < 0) & flags] = len(reasons)
            reasons.append(reason)
        return codes, reasons

    def problems(self) -> list[tuple[int, str]]:
        """Find the rows that are not a distribution.

        Returns
        -------
        list of (int, str)
            The number of each bad row, and the first problem that it has.
        """
        codes, reasons = self.problem_codes()
        return [(int(row), reasons[codes[row]]) for row in np.flatnonzero(codes >= 0)]

    @classmethod
    def refuse_constants(cls, called: str, known: Mapping[str, Any]) -> None:
        """Refuse constants that are bad whatever the other parameters are, which are not known yet.

        Missing numbers are NaN, for which every comparison of two parameters is false. Rules about whole lists need
        all of them.
        """
        columns: dict[str, Any] = {}
        for parameter in cls.parameters:
            if parameter.is_list:
                given = known.get(parameter.name)
                columns[parameter.name] = None if given is None else Ragged.of([list(given)], parameter.name)
            else:
                columns[parameter.name] = np.array([float(known.get(parameter.name, np.nan))])
        row = cls._of_columns(columns)
        missing = [parameter for parameter in cls.parameters if parameter.name not in known]
        whole = not any(parameter.is_list for parameter in missing)
        for reason, flags in row.reasons() if whole else Model.reasons(row):
            if flags.any() and not any(reason.startswith(f"{parameter.name} is ") for parameter in missing):
                shown = {name: value for name, value in row.show(0).items() if name in known}
                raise HaplyError(
                    f"The numbers given to {called} are not parameters of a distribution",
                    found=f"{reason} in {shown}",
                    hint="correct these numbers, or give columns",
                )

    # -- Arrow --------------------------------------------------------------------------------------------------------

    @classmethod
    def from_arrow(cls: type[_Model], array: pa.Array | pa.ChunkedArray) -> _Model:
        """Read a struct column without copying doubles.

        Parameters
        ----------
        array
            An Arrow struct array with a field for each parameter.

        Returns
        -------
        Model
            A model with one row for each row of the array.

        Raises
        ------
        HaplyError
            If a row is null, or is not a distribution.
        """
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        fields = cls.fields(array)
        if array.null_count or any(
            field is not None and field.null_count
            for parameter, field in zip(cls.parameters, fields, strict=True)
            if not parameter.shape.startswith("optional")
        ):
            raise HaplyError(f"A {cls.kind} column has null rows", hint="leave them out with array.drop_null()")
        model = cls.view(fields)
        for row, reason in model.problems():
            raise HaplyError(f"Row {row} of a {cls.kind} column is bad", found=f"{reason} in {model.show(row)}")
        return model

    @classmethod
    def fields(cls, array: pa.Array) -> list[pa.Array]:
        """Return the parameters of a struct array as arrays, in declared order, without the struct's own nulls."""
        if not pa.types.is_struct(array.type):
            raise HaplyError(f"A {cls.kind} column cannot be read", expected="a struct", found=str(array.type))
        return [array.field(parameter.name) for parameter in cls.parameters]

    @classmethod
    def view(cls: type[_Model], fields: Sequence[pa.Array | None]) -> _Model:
        """Return a model over parameter arrays without nulls, in declared order, without validation."""
        columns: dict[str, Any] = {}
        for parameter, field in zip(cls.parameters, fields, strict=True):
            if field is None:
                columns[parameter.name] = None
            else:
                columns[parameter.name] = Ragged.from_arrow(field) if parameter.is_list else floats(field)
        return cls._of_columns(columns)

    def to_arrow(self) -> pa.Array:
        """Write the rows as an Arrow array that other tools can read.

        Returns
        -------
        pyarrow.Array
            A struct array with the field names of the Spark column; for ``Certain``, an array of doubles.
        """
        arrays = []
        for parameter in self.parameters:
            column = self.values[parameter.name]
            if column is None:
                arrays.append(pa.nulls(len(self), pa.list_(pa.float64())))
            elif isinstance(column, Ragged):
                arrays.append(column.to_arrow())
            elif parameter.shape == "integer":
                arrays.append(as_arrow(column.astype(np.int32)))
            else:
                arrays.append(as_arrow(np.ascontiguousarray(column)))
        return pa.StructArray.from_arrays(arrays, [parameter.name for parameter in self.parameters])


class OneDimensional(Model, ABC):
    """Represents a random number for each row.

    All functions are computed from the components of a row: points, uniform parts and normal parts. Subclasses override
    the functions for which they have a better formula.

    Parameters
    ----------
    **values
        The parameters of the model by name.

    Examples
    --------
    >>> from haply.models import Histogram
    >>> wait = Histogram([[0, 1, 3]], [[0.25, 0.75]])
    >>> wait.mean(), wait.cdf(1.0), wait.quantile(0.5)
    (array([1.625]), array([0.25]), array([1.66666667]))
    """

    bounded: ClassVar[bool] = True
    """Whether every value of this kind lies in a finite interval."""
    change_places: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Parameters that change places when values are negated."""
    ascending: ClassVar[tuple[str, ...]] = ()
    """Lists that ascend with the values: they are reversed when values are negated."""

    @classmethod
    @abstractmethod
    def example(cls) -> OneDimensional:
        """Return two rows, by which kernels are compiled for this model before its data come."""

    @abstractmethod
    def _make_components(self) -> Components:
        """Return the components of all rows."""

    @cached_property
    def components(self) -> Components:
        """Return the rows as mixtures of points, uniforms and normals."""
        return self._make_components()

    def times(self: _Line, factor: float) -> _Line:
        """Return the same values times a number other than 0."""
        columns = dict(self.values)
        for parameter in self.parameters:
            column = columns[parameter.name]
            if column is None or parameter.degree == 0:
                continue
            by = factor if parameter.moves else abs(factor)
            listed = isinstance(column, Ragged)
            columns[parameter.name] = Ragged(by * column.values, column.start) if listed else by * column
        if factor < 0.0:
            for one, other in self.change_places:
                columns[one], columns[other] = columns[other], columns[one]
            for name in self.ascending:
                columns[name] = columns[name].reversed()
        return self._of_columns(columns)

    def _per_row(self, argument: Any) -> np.ndarray:
        array = np.asarray(argument, dtype=np.float64)
        try:
            return np.ascontiguousarray(np.broadcast_to(array, (len(self),)))
        except ValueError:
            raise HaplyError(
                f"An argument for {count_of(len(self), 'row')} has the wrong length",
                expected=f"one number, or {len(self)}",
                found=f"shape {array.shape}",
            ) from None

    def cdf(self, x: ArrayLike) -> np.ndarray:
        """Compute ``P(X <= x)`` for each row.

        Parameters
        ----------
        x
            One number, or one for each row.

        Returns
        -------
        numpy.ndarray
            A probability for each row.
        """
        return kernels.rows_cdf(self.components, self._per_row(x), True)

    def cdf_left(self, x: ArrayLike) -> np.ndarray:
        """Compute ``P(X < x)`` for each row; it differs from ``cdf`` where ``x`` itself has a positive probability.

        Parameters
        ----------
        x
            One number, or one for each row.

        Returns
        -------
        numpy.ndarray
            A probability for each row.
        """
        return kernels.rows_cdf(self.components, self._per_row(x), False)

    def integrated_cdf(self, x: ArrayLike) -> np.ndarray:
        """``E max(x - X, 0)`` for each row: the integral of the cdf up to ``x``."""
        return kernels.rows_integrated_cdf(self.components, self._per_row(x))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Compute the smallest ``y`` with ``P(X <= y) >= q`` for each row.

        Parameters
        ----------
        q
            One level from 0 to 1, or one for each row.

        Returns
        -------
        numpy.ndarray
            A quantile for each row.
        """
        return kernels.rows_quantile(self.components, self._level(q), False, 1)

    def quantile_low(self, level: Any) -> np.ndarray:
        """Return the largest y with ``P(X < y) <= level``: at most ``level`` of the value lies below it."""
        return kernels.rows_quantile(self.components, self._level(level), True, 1)

    def quantile_high(self, level: Any) -> np.ndarray:
        """Return the smallest y with ``P(X > y) <= level``: at most ``level`` of the value lies above it."""
        return kernels.rows_quantile(self.components, self._level(level), True, -1)

    def line(self, low_level: float, high_level: float) -> Line | None:
        """``quantile_low`` and ``quantile_high`` at two levels as linear functions of the parameters, if they are."""
        return None

    def _level(self, level: Any) -> np.ndarray:
        levels = np.array([float(level)]) if np.ndim(level) == 0 else self._per_row(level)
        if not ((levels >= 0.0) & (levels <= 1.0)).all():
            raise HaplyError("A quantile has a level outside [0, 1]", found=str(levels.min()))
        return levels

    def mean(self) -> np.ndarray:
        """Compute the mean of each row.

        Returns
        -------
        numpy.ndarray
            A number for each row.
        """
        return self.moments[0]

    def variance(self) -> np.ndarray:
        """Compute the variance of each row.

        Returns
        -------
        numpy.ndarray
            A number for each row; infinite, or 0, where it leaves the range of doubles.
        """
        return self.moments[1]

    def deviation(self) -> np.ndarray:
        """Standard deviation of each row, also where its square leaves the range of doubles."""
        return kernels.rows_deviation(self.components, self.moments[1])

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each row."""
        return kernels.rows_moments(self.components)

    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the greatest value that each row can take.

        Returns
        -------
        tuple of numpy.ndarray
            The lower and the upper ends, which may be infinite.
        """
        return kernels.rows_support(self.components)

    def concentration(self, width: float) -> np.ndarray:
        """Bound the probability of each row in a closed interval of the given width, wherever the interval lies.

        Parameters
        ----------
        width
            The width of the interval.

        Returns
        -------
        numpy.ndarray
            An upper bound for each row. Except for mixtures, it is the largest such probability.
        """
        return kernels.rows_concentration(self.components, float(width))

    def peak_density(self) -> np.ndarray:
        """Return the largest density of each row: ``width`` times it bounds ``concentration``. Infinite for atoms."""
        return kernels.rows_peak(self.components)

    def spread_out(self, width: float, share: float) -> np.ndarray:
        """Return which rows have at most this probability in any closed interval of this width."""
        return self.concentration(width) <= share

    def equal_weight_samples(self) -> bool:
        """Return whether every row is a set of equally likely points, so that probabilities are counts."""
        return False

    _on_a_line: bool = True

    def _picture(self, title: str) -> altair.LayerChart:
        from haply.drawing.shapes import density_chart

        rows = [self.take(np.array([row])) for row in range(len(self))]
        return density_chart(density_records(rows, [f"row {row}" for row in range(len(rows))]), title)


def _shown_rows(shown: int, of: int, on_a_line: bool) -> str:
    """Return the title of a chart: which rows it shows."""
    what = "value" if on_a_line else "position"
    if of == 1:
        return f"Where the {what} may lie"
    return (
        f"Where the {of:,} {what}s may lie" if shown == of else f"Where the first {shown:,} of {of:,} {what}s may lie"
    )
