"""The interfaces of tables and engines that planning uses, the same for both engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError, unknown_name
from haply.joins.cells.positions import NORMALS
from haply.joins.operators.operator import ProbabilityMode as ProbabilityMode
from haply.joins.operators.operator import SideName as SideName
from haply.models import Certain, Model, OneDimensional, Samples
from haply.models.columns import model_of_type
from haply.planning.explain import Description

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    TableT = TypeVar("TableT", default=pa.Table)
else:
    from typing import TypeVar

    TableT = TypeVar("TableT")
    """The kind of a result, which is that of the first table; Arrow where that is a path."""
Tabular: TypeAlias = object
"""A table of pandas, Polars, Arrow or DuckDB, the path of a file, or a Spark DataFrame."""
FilePath: TypeAlias = str | os.PathLike[str]
"""The path of a file, or of a folder of files."""
TableRow: TypeAlias = object
"""A row of a table: a mapping from names of columns to values, a row of pandas, a Row of Spark, a table of one row."""
Duration: TypeAlias = float | str | timedelta
"""A length of time: a number, ``"10 seconds"``, or a ``timedelta``."""
InvalidMode = Literal["raise", "drop"]
"""What happens to rows that are not a distribution."""

HOW_UNCERTAIN = "make one of them uncertain, with hp.gaussian(mean, sd), hp.uniform(lo, hi) or another constructor"
"""The hint for a query in which nothing is uncertain."""


@dataclass(frozen=True)
class Wording:
    """How messages name the tables of a join, and what to write for a threshold."""

    left: str = "the left table"
    right: str = "the right table"
    threshold: str = "give threshold=0.01"

    def table(self, side: str) -> str:
        """Name a table."""
        return self.left if side == "left" else self.right


@dataclass(frozen=True)
class Field:
    """A column of a table: its name and its type."""

    name: str
    arrow: pa.DataType | None
    """Its Arrow type; none if Arrow has no such type."""
    text: str
    """The type as Spark SQL spells it."""
    unit: str | None = None
    """The unit of its values, if the table's metadata has it under ``unit``."""
    mark: str | None = None
    """Its history, as haply has written it into the table's metadata, under ``haply``."""

    @cached_property
    def model(self) -> type[Model] | None:
        """Return the model of its values: ``Certain`` for numbers, None for what cannot be a value of a condition."""
        if self.arrow is None or is_list(self.arrow):
            return None
        return model_of_type(self.arrow) if _all_numbers(self.arrow) else None

    @property
    def uncertain_model(self) -> type[Model] | None:
        """Return the model of its values; none if they are certain."""
        return None if self.model is Certain else self.model

    @property
    def point_model(self) -> type[Model] | None:
        """Return the model of its values where a list of numbers is a certain point."""
        if self.arrow is not None and is_list(self.arrow):
            return Samples if _is_number(self.arrow.value_type) else None
        return self.model

    @property
    def is_number(self) -> bool:
        """Return whether it holds certain numbers."""
        return self.arrow is not None and _is_number(self.arrow)

    @property
    def is_point(self) -> bool:
        """Return whether it holds certain points, or numbers: it has a model, but nothing of it is uncertain."""
        return self.arrow is not None and (is_list(self.arrow) or self.model is Certain)

    @property
    def is_number_or_null(self) -> bool:
        """Return whether it holds certain numbers, or nothing but NULL, which has the type of anything."""
        return self.is_number or self.text == "void"

    @property
    def is_boolean(self) -> bool:
        """Return whether its values are those of a condition; NULL has the type of anything."""
        return self.text in ("boolean", "void")

    @property
    def is_list(self) -> bool:
        """Return whether it holds lists."""
        return self.arrow is not None and is_list(self.arrow)

    @property
    def is_flat(self) -> bool:
        """Return whether it is a struct of doubles, as most models are."""
        kind = self.arrow
        fields = list(kind) if kind is not None and pa.types.is_struct(kind) else []
        return bool(fields) and all(part.type == pa.float64() for part in fields)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is that of lists, however long."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _all_numbers(kind: pa.DataType) -> bool:
    """Return whether a type, or each field of a struct, is a number or a list of numbers."""
    if pa.types.is_struct(kind):
        return all(_is_number(f.type.value_type if is_list(f.type) else f.type) for f in kind)
    return _is_number(kind)


class Frame(Protocol):
    """A table or a stream of one engine. Texts are Spark SQL over its columns. It is computed when it is used."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the columns in their order."""

    @property
    def streaming(self) -> bool:
        """Return whether it is a stream."""

    @property
    def engine_name(self) -> str:
        """Return the name of the engine that holds it."""

    @property
    def index(self) -> Any:
        """Return the index it was read from; None if it is not an indexed table."""

    @property
    def identity(self) -> Any:
        """Return a value that is equal for two frames of the same table of the user."""

    def renamed(self, names: Sequence[str]) -> Frame:
        """Give all columns other names."""

    def select(self, names: Sequence[str]) -> Frame:
        """Choose columns."""

    def where(self, sql: str) -> Frame:
        """Keep the rows for which a condition holds."""

    def with_columns(self, columns: Mapping[str, str]) -> Frame:
        """Add columns, computed by SQL."""

    def with_time(self, name: str, window: Any, column: str, known_as: str) -> Frame:
        """Add a column of certain times as numbers, by a ``TimeWindow``; ``known_as`` names the column in errors."""

    def with_model(self, name: str, constructor: str, arguments: Sequence[Any]) -> Frame:
        """Add an uncertain column: what a constructor makes of ``Text``, numbers and lists of them."""

    def with_function(self, name: str, columns: Sequence[str], function: Callable[..., pa.Array]) -> Frame:
        """Add a column, or replace one: what a function makes of the Arrow arrays of columns, row by row."""

    def sampled(self, share: float) -> Frame:
        """Keep about this share of the rows, drawn by a fixed seed."""

    def totals(self, columns: Sequence[str], function: Callable[[pa.Table], np.ndarray]) -> np.ndarray:
        """Add up the numbers that a function makes of some rows at a time; only sums leave the workers of Spark."""

    def listed(self, key: str, name: str) -> Frame:
        """Make one row of all rows with one key: a list of structs of the other columns. None of these is null."""

    def held(self) -> AbstractContextManager[Frame]:
        """Compute the rows once for all uses in a ``with`` block."""

    def gathered(self, columns: Sequence[str], most: int) -> pa.Table:
        """Bring columns of all rows into this process, or of at most ``most``."""

    def of_rows(self, table: pa.Table) -> Frame:
        """Hold other rows in the same engine: a table of some columns of this one, of the same types."""

    def with_row_id(self, name: str) -> Frame:
        """Add a column with a different id for each row, also for equal rows."""

    def count_rows(self) -> int:
        """Count the rows: Spark reads the table for that."""

    def least(self, column: str) -> float:
        """Return the least number of a column, NaN if one is null: Spark reads the table for that."""

    def marked(self, marks: Mapping[str, str]) -> Frame:
        """Write these marks of its columns into its metadata, and no others."""

    def each_once(self, names: Sequence[str]) -> Frame:
        """Keep one row for each combination of values in some columns."""

    def stacked(self, others: Sequence[Frame]) -> Frame:
        """Add the rows of other tables with the same columns."""

    def beside(self, other: Frame) -> Frame:
        """Make the product with another table. Mostly only its types are used, and it is not run."""

    def type_of(self, sql: str) -> Field:
        """Return the type of an expression over the columns."""

    def ordered(self, keys: Sequence[tuple[str, bool, bool | None]]) -> Frame:
        """Sort by expressions, each descending or not, and nulls first or last if that is asked for."""

    def project(self, columns: Mapping[str, str]) -> Frame:
        """Make the columns of a result, computed by SQL."""

    def limit(self, rows: int) -> Frame:
        """Keep some rows."""

    def check_streams(self) -> None:
        """Refuse a stream whose session cannot run joins of streams."""

    def give(self) -> Any:
        """Return the table in the kind that the user gave."""

    def write(self, path: str) -> int:
        """Write the rows into a new Parquet or CSV file; returns how many there are."""


class Catalog(Protocol):
    """The names that a query in SQL can use besides the given tables."""

    def table(self, parts: Sequence[str]) -> Frame | None:
        """Find a table by its name; none if there is no such table."""

    def names(self) -> list[str]:
        """List the tables, for hints."""

    def check_function(self, name: str, also: Sequence[str]) -> None:
        """Refuse a function that the engine does not know; ``also`` are functions of haply."""


class Engine(Protocol):
    """What runs plans: see ``pairs``, ``selection`` and ``windows`` for them."""

    name: str

    def pairs(self, join: Any, funnel: Any) -> Frame:
        """Run a ``PairPlan``."""

    def describe_pairs(self, join: Any) -> Description:
        """Describe how rows of a ``PairPlan`` are distributed, and how many pairs are expected; reads the tables."""

    def answered(self, join: Any, funnel: Any) -> Frame:
        """Run an ``AnsweredJoin``."""

    def matched(self, match: Any, funnel: Any) -> Frame:
        """Run a ``MatchPlan``."""

    def counted(self, count: Any, funnel: Any) -> Frame:
        """Run a ``CountPlan``."""

    def beside(self, join: Any, funnel: Any) -> Frame:
        """Run a ``BesideTable``, a join of a stream with a table."""

    def last_events(self, asof: Any, funnel: Any) -> Frame:
        """Run an ``AsofPlan``."""

    def selected(self, selection: Any, funnel: Any) -> Frame:
        """Run a ``RowSelection``."""

    def combinations(self, plan: Any, funnel: Any) -> Frame:
        """Run a ``WindowPlan``."""

    def bad_rows(self, frame: Any, column: str) -> Frame:
        """Find the bad rows of an uncertain column, with a ``reason``."""

    def build_index(self, frame: Any, column: str, path: str, page_rows: int, mode: str) -> None:
        """Write an indexed table."""


@dataclass(frozen=True)
class Text:
    """SQL, where a plain string would be the name of a column."""

    sql: str


def names_of(frame: Frame) -> list[str]:
    """List the names of a table's columns."""
    return [field.name for field in frame.fields]


def field_of(frame: Frame, name: str) -> Field:
    """Find a column by its exact name."""
    return next(field for field in frame.fields if field.name == name)


def find_column(frame: Frame, name: str, table: str, others: Mapping[Any, Frame] | None = None) -> str:
    """Return the column's name as the table spells it; an unknown one raises and suggests the nearest.

    ``others`` are all tables of the query by name: if one of them has such a column, the error says so.
    """
    having = [other for other, columns in (others or {}).items() if other != table and name in names_of(columns)]
    hint = f"the {having[0]} table has such a column: did you mean {having[0]}.{name}?" if having else ""
    return find_name(names_of(frame), name, table, hint)


def find_name(names: Sequence[str], name: str, table: str, hint: str = "") -> str:
    """Do the same among the names of a table's columns."""
    if name in names:
        return name
    alike = [column for column in names if column.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise unknown_name(f"column in the {table} table called", name, names, hint)


def row_values(row: TableRow, where: str) -> dict[str, Any]:
    """Return the values of a row by the names of their columns; errors name the row by ``where``."""
    found: Any = row
    if hasattr(found, "asDict"):
        found = found.asDict(recursive=True)
    elif not isinstance(found, Mapping) and hasattr(found, "to_dict") and not hasattr(found, "columns"):
        found = found.to_dict()  # a row of pandas
    elif hasattr(found, "toArrow"):
        found = _only_row(found.limit(2).toArrow(), where)
    elif hasattr(found, "iloc"):
        found = _only_row(pa.Table.from_pandas(found, preserve_index=False), where)
    elif hasattr(found, "__arrow_c_stream__"):
        found = _only_row(pa.table(found), where)
    if not isinstance(found, Mapping):
        raise HaplyError(
            f"{where} is of type {type(row).__name__}",
            expected="a dict from names of columns to values, a row of pandas, a Row of Spark, or a table of one row",
            hint="table.to_pylist()[0], frame.iloc[0], or df.first()",
        )
    return {str(name): _plain(value) for name, value in found.items()}


def _only_row(table: pa.Table, where: str) -> dict[str, Any]:
    if table.num_rows != 1:
        raise HaplyError(
            f"{where} is a table", expected="a table of one row", found="no row" if not table.num_rows else "more",
            hint="table.slice(0, 1), frame.head(1), or df.limit(1)",
        )  # fmt: skip
    return dict(table.to_pylist()[0])


def _plain(value: Any) -> Any:
    """Return a value without types of NumPy, which Arrow does not accept inside other values."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def one_row(frame: Frame, needed: Sequence[str], row: TableRow, others: Sequence[str] = ()) -> Frame:
    """Make a table of one row that has some columns of another table, with their types.

    ``others`` are further columns, which are null: their values are not used.
    """
    given = row_values(row, "The row")
    columns = {name: pa.nulls(1, field_of(frame, name).arrow) for name in others}
    for name in needed:
        field, spelled = field_of(frame, name), _spelled_in(given, name)
        try:
            columns[name] = pa.array([given[spelled]], type=field.arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            fields = ", ".join(f'"{part.name}": ...' for part in _struct_fields(field))
            raise HaplyError(
                f"The row's '{name}' is not a value of its column", expected=field.text, found=repr(given[spelled]),
                hint=f"give a dict {{{fields}}}" if fields else "give it as the table holds it",
            ) from None  # fmt: skip
    return frame.of_rows(pa.table(columns))


def _struct_fields(field: Field) -> list[pa.Field]:
    return list(field.arrow) if field.arrow is not None and pa.types.is_struct(field.arrow) else []


def _spelled_in(row: Mapping[str, Any], name: str) -> str:
    """Return the name of a column as a row spells it."""
    if name in row:
        return name
    alike = [each for each in row if each.lower() == name.lower()]
    if len(alike) != 1:
        raise HaplyError(
            f"The row has no column '{name}', which the condition uses", found=", ".join(map(repr, row)) or "no column",
            hint="give all columns that the condition names",
        )  # fmt: skip
    return alike[0]


def quoted(name: str) -> str:
    """Write a column name as SQL text."""
    return "`" + name.replace("`", "``") + "`"


def position_model(field: Field) -> type[Model] | None:
    """Return the model of a column of positions: normals and mixtures, samples, certain points and numbers."""
    model = field.point_model
    return model if model in (*NORMALS, Certain, Samples) else None


def is_one_dimensional(model: type[Model] | None) -> bool:
    """Return whether a model's values are numbers."""
    return model is not None and issubclass(model, OneDimensional)
