"""Tables of this process as planning sees them (see ``planning.frames.Frame``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from haply.engines.local import sql
from haply.engines.local.constructors import constructed
from haply.engines.local.files.write import write_tables
from haply.engines.local.marks import remember
from haply.engines.local.times import time_numbers
from haply.errors import HaplyError
from haply.indexing.index import Index
from haply.models.ragged import as_arrow, as_numpy, in_one_piece
from haply.planning.constructors import refuse_type
from haply.planning.frames import Field, quoted
from haply.planning.times import TimeWindow

_SEED = 8191
"""The seed of samples of rows."""

Give = Callable[[pa.Table], Any]
"""Converts an Arrow table into the kind that the user gave."""


def _described(field: pa.Field) -> Field:
    """Describe a column of Arrow."""
    return Field(
        field.name, plain_type(field.type), type_text(field.type), _metadata(field, b"unit"), _metadata(field, b"haply")
    )


def _metadata(field: pa.Field, name: bytes) -> str | None:
    found = (field.metadata or {}).get(name)
    return None if found is None else found.decode()


class LocalFrame:
    """A table whose columns are read or computed when they are used."""

    def __init__(
        self,
        schema: pa.Schema,
        load: Callable[[Sequence[str]], pa.Table],
        give: Give,
        identity: Any = None,
        index: Index | None = None,
    ) -> None:
        self.schema, self._load, self._give = schema, load, give
        self._identity, self.index = identity, index
        self._tables: Callable[[], Iterator[pa.Table]] | None = None

    @classmethod
    def of(cls, table: pa.Table, give: Give) -> LocalFrame:
        """Hold an existing table."""
        return cls(table.schema, table.select, give)

    @classmethod
    def streamed(cls, schema: pa.Schema, tables: Callable[[], Iterator[pa.Table]], give: Give) -> LocalFrame:
        """Hold a result that comes table by table; it is computed once."""
        found: list[pa.Table] = []

        def load(names: Sequence[str]) -> pa.Table:
            if not found:
                found.append(pa.concat_tables([no_rows(schema), *tables()]))
            return found[0].select(list(names))

        frame = cls(schema, load, give)
        frame._tables = tables
        return frame

    def table(self, names: Sequence[str] | None = None) -> pa.Table:
        """Return some columns, or all."""
        return self._load(list(self.schema.names if names is None else names))

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows, some at a time where they come so."""
        if self._tables is None:
            yield self.table()
        else:
            yield from self._tables()

    @cached_property
    def _empty(self) -> pa.Table:
        return no_rows(self.schema)

    # -- for planning --------------------------------------------------------------------------------------------

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Return the columns in their order."""
        return tuple(map(_described, self.schema))

    streaming = False

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export all rows to any library that reads Arrow."""
        return self.table().__arrow_c_stream__(requested_schema)

    @property
    def engine_name(self) -> str:
        """Return the name of the engine that holds it."""
        return "local"

    @property
    def identity(self) -> Any:
        """Return a value that is equal for two frames of the same table of the user."""
        return id(self) if self._identity is None else self._identity

    def check_streams(self) -> None:
        """Refuse streams, which are Spark's."""
        raise HaplyError("Tables of this process are not streams", hint="streams are Spark DataFrames")

    def give(self) -> Any:
        """Return the table in the kind that the user gave."""
        return remember(self._give(self.table()), self.schema)

    def write(self, path: str) -> int:
        """Write the rows as they come into a new file; returns how many there are."""
        return write_tables(self.schema, self.tables(), path)

    # -- operations --------------------------------------------------------------------------------------------

    def _made(self, schema: pa.Schema, load: Callable[[Sequence[str]], pa.Table]) -> LocalFrame:
        return LocalFrame(schema, load, self._give)

    def renamed(self, names: Sequence[str]) -> LocalFrame:
        """Give all columns other names."""
        original = dict(zip(names, self.schema.names, strict=True))
        schema = pa.schema([field.with_name(name) for field, name in zip(self.schema, names, strict=True)])

        def load(wanted: Sequence[str]) -> pa.Table:
            return self.table([original[name] for name in wanted]).rename_columns(list(wanted))

        index = (
            None
            if self.index is None
            else replace(self.index, column=names[self.schema.names.index(self.index.column)])
        )
        return LocalFrame(schema, load, self._give, self._identity, index)

    def select(self, names: Sequence[str]) -> LocalFrame:
        """Choose columns."""
        return self._made(pa.schema([self.schema.field(name) for name in names]), self.table)

    def where(self, text: str) -> LocalFrame:
        """Keep the rows for which a condition holds."""
        used = self._used(text) or self.schema.names[:1]  # DuckDB takes no table without columns
        sql.evaluated(self._empty.select(used), {"kept": text})

        def load(wanted: Sequence[str]) -> pa.Table:
            table = self.table(list(dict.fromkeys([*wanted, *used])))
            kept = sql.evaluated(table.select(used), {"kept": text})["kept"]
            return table.select(list(wanted)).filter(kept)

        return self._made(self.schema, load)

    def with_columns(self, columns: Mapping[str, str]) -> LocalFrame:
        """Add columns, computed by SQL."""
        frame = self
        for name, text in columns.items():
            frame = frame._with(name, frame._used(text), lambda table, text=text: _column(table, text))  # type: ignore[misc]
        return frame

    def with_time(self, name: str, window: TimeWindow, column: str, known_as: str) -> LocalFrame:
        """Add a column of certain times as numbers; ``known_as`` names the column in errors."""

        def times(table: pa.Table) -> pa.Array:
            # null stays null: an unknown time is not a bad row
            return pa.array(time_numbers(table[column], window, known_as), mask=np.asarray(table[column].is_null()))

        return self._with(name, [column], times)

    def with_model(self, name: str, constructor: str, arguments: Sequence[Any]) -> LocalFrame:
        """Add an uncertain column: what a constructor makes of ``Text``, numbers and lists of them."""
        make = constructed(constructor, arguments)
        for text in make.texts:
            alone = sql.column_alone(self._empty, text)
            if alone is not None and not pa.types.is_temporal(alone.type):  # everything else needs DuckDB
                refuse_type(constructor, type_text(alone.type))
        used = [column for text in make.texts for column in self._used(text)]
        return self._with(name, list(dict.fromkeys(used)), make)

    def with_function(self, name: str, columns: Sequence[str], function: Callable[..., pa.Array]) -> LocalFrame:
        """Add a column, or replace one: what a function makes of the Arrow arrays of columns, row by row."""

        def compute(table: pa.Table) -> pa.Array:
            return function(*(in_one_piece(table[column]) for column in columns))

        return self._with(name, columns, compute)

    def sampled(self, share: float) -> LocalFrame:
        """Keep about this share of the rows, drawn by a fixed seed."""

        def load(wanted: Sequence[str]) -> pa.Table:
            table = self.table(wanted)
            return table.filter(as_arrow(np.random.default_rng(_SEED).random(table.num_rows) < share))

        return self._made(self.schema, load)

    def totals(self, columns: Sequence[str], function: Callable[[pa.Table], np.ndarray]) -> np.ndarray:
        """Add up the numbers that a function makes of some rows at a time."""
        return function(self.table(list(dict.fromkeys(columns))).combine_chunks())

    def listed(self, key: str, name: str) -> LocalFrame:
        """Make one row of all rows with one key, which is a number: a list of structs of the other columns."""
        others = [field for field in self.schema if field.name != key]
        items = pa.struct(others)

        def load(wanted: Sequence[str]) -> pa.Table:
            table = self.table().combine_chunks()
            keys, place, counts = np.unique(table[key].to_numpy(), return_inverse=True, return_counts=True)
            rows = table.take(as_arrow(np.argsort(place, kind="stable"))).select([field.name for field in others])
            ends = pa.array(np.append(0, np.cumsum(counts)), pa.int64())
            lists = pa.LargeListArray.from_arrays(ends, rows.cast(pa.schema(others)).to_struct_array().combine_chunks())
            return pa.table({key: keys, name: lists}).select(list(wanted))

        return self._made(pa.schema([self.schema.field(key), pa.field(name, pa.large_list(items))]), load)

    @contextmanager
    def held(self) -> Iterator[LocalFrame]:
        """Compute the rows once."""
        yield LocalFrame.of(self.table(), self._give)

    def gathered(self, columns: Sequence[str], most: int) -> pa.Table:
        """Return columns of all rows, or of at most ``most``."""
        return self.table(columns).slice(0, most)

    def of_rows(self, table: pa.Table) -> LocalFrame:
        """Hold other rows."""
        return LocalFrame.of(table, self._give)

    def with_row_id(self, name: str) -> LocalFrame:
        """Add a column of row ids: their positions."""
        return self._with(name, [], lambda table: as_arrow(np.arange(table.num_rows)))

    def count_rows(self) -> int:
        """Count the rows."""
        return self.table(self.schema.names[:1]).num_rows

    def least(self, column: str) -> float:
        """Return the least number of a column, NaN if one is null."""
        values = self.table([column])[column]
        return float(np.min(values.to_numpy(), initial=np.inf)) if not values.null_count else float("nan")

    def _with(self, name: str, used: Sequence[str], compute: Callable[[pa.Table], pa.Array]) -> LocalFrame:
        """Add a column that is computed from others; one of the same name is replaced, as in Spark."""
        rows = no_rows(pa.schema(map(self.schema.field, used))) if used else pa.table({"": pa.nulls(0)})
        made = pa.field(name, compute(rows).type)
        at = self.schema.get_field_index(name)
        schema = self.schema.append(made) if at < 0 else self.schema.set(at, made)

        def load(wanted: Sequence[str]) -> pa.Table:
            if name not in wanted:
                return self.table(wanted)
            given = [each for each in wanted if each != name]
            first = self.schema.names[:1]  # a table without columns has no rows
            table = self.table(list(dict.fromkeys([*given, *used])) or first)
            return table.select(given).append_column(made, compute(table)).select(list(wanted))

        frame = self._made(schema, load)
        if at < 0:  # the others are described already
            frame.__dict__["fields"] = (*self.fields, _described(made))
        return frame

    def marked(self, marks: Mapping[str, str]) -> LocalFrame:
        """Write these marks of its columns into its metadata, and no others."""
        schema = pa.schema([_marked(field, marks.get(field.name)) for field in self.schema], self.schema.metadata)

        def with_marks(table: pa.Table) -> pa.Table:
            chosen = pa.schema([schema.field(name) for name in table.column_names], table.schema.metadata)
            return pa.Table.from_arrays(table.columns, schema=chosen)

        frame = LocalFrame(
            schema, lambda wanted: with_marks(self.table(wanted)), self._give, self._identity, self.index
        )
        if self._tables is not None:
            frame._tables = lambda: map(with_marks, self.tables())
        return frame

    def each_once(self, names: Sequence[str]) -> LocalFrame:
        """Keep one row for each combination of whole numbers in some columns."""

        def load(wanted: Sequence[str]) -> pa.Table:
            table = self.table(list(dict.fromkeys([*wanted, *names])))
            numbers = np.stack([table[name].to_numpy() for name in names], axis=1)
            rows = np.sort(np.unique(numbers, axis=0, return_index=True)[1])
            return table.select(list(wanted)).take(as_arrow(rows))

        return self._made(self.schema, load)

    def stacked(self, others: Sequence[Any]) -> LocalFrame:
        """Add the rows of other tables with the same columns."""

        def tables() -> Iterator[pa.Table]:
            for frame in (self, *others):
                for table in frame.tables():
                    yield table.rename_columns(self.schema.names).cast(self.schema)

        return LocalFrame.streamed(self.schema, tables, self._give)

    def beside(self, other: Any) -> LocalFrame:
        """Make the product with another table."""
        schema = pa.schema([*self.schema, *other.schema])

        def load(wanted: Sequence[str]) -> pa.Table:
            mine = self.table([name for name in self.schema.names if name in wanted] or self.schema.names[:1])
            theirs = other.table([name for name in other.schema.names if name in wanted] or other.schema.names[:1])
            rows = np.repeat(np.arange(mine.num_rows), theirs.num_rows)
            others = np.tile(np.arange(theirs.num_rows), mine.num_rows)
            mine, theirs = mine.take(as_arrow(rows)), theirs.take(as_arrow(others))
            both = pa.table([*mine.columns, *theirs.columns], names=[*mine.column_names, *theirs.column_names])
            return both.select(list(wanted))

        return self._made(schema, load)

    def type_of(self, text: str) -> Field:
        """Return the type of an expression over the columns."""
        kind = _column(self._empty.select(self._used(text)) if self._used(text) else self._empty, text).type
        return Field("value", plain_type(kind), type_text(kind))

    def ordered(self, keys: Sequence[tuple[str, bool, bool | None]]) -> LocalFrame:
        """Sort by expressions, each descending or not, and nulls first or last if that is asked for."""
        from haply.engines.local.dialect import to_duckdb

        texts = []
        for text, descending, nulls_first in keys:
            first = not descending if nulls_first is None else nulls_first
            texts.append(f"{to_duckdb(text)} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}")
        query = f"SELECT * FROM given ORDER BY {', '.join(texts)}"
        return self._made(self.schema, lambda wanted: sql.run(query, given=self.table()).select(list(wanted)))

    def project(self, columns: Mapping[str, str]) -> LocalFrame:
        """Make the columns of a result, computed by SQL."""
        schema = pa.schema([self._projected(name, text) for name, text in columns.items()])

        def load(wanted: Sequence[str]) -> pa.Table:
            used = dict.fromkeys(column for name in wanted for column in self._used(columns[name]))
            table = self.table(list(used) or self.schema.names[:1])
            made = pa.schema([schema.field(name) for name in wanted])
            return pa.Table.from_arrays([_column(table, columns[name]) for name in wanted], schema=made)

        return self._made(schema, load)

    def limit(self, rows: int) -> LocalFrame:
        """Keep some rows."""
        return self._made(self.schema, lambda wanted: self.table(wanted).slice(0, rows))

    def _projected(self, name: str, text: str) -> pa.Field:
        """Compute a column of a projection; an unchanged column keeps its metadata."""
        alone = [field for field in self.schema if text in (field.name, quoted(field.name))]
        return pa.field(name, _column(self._empty, text).type, metadata=alone[0].metadata if alone else None)

    def _used(self, text: str) -> list[str]:
        """Return the columns that an expression uses."""
        alone = sql.name_alone(self.schema.names, text)
        if alone is not None:
            return [alone]
        if sql.is_point_of_numbers(text):
            return []
        from haply.engines.local.dialect import columns_in  # here: many joins need neither it nor sqlglot

        return columns_in(text, self.schema.names)


def _marked(field: pa.Field, mark: str | None) -> pa.Field:
    kept = {name: value for name, value in (field.metadata or {}).items() if name != b"haply"}
    return field.with_metadata(kept | ({b"haply": mark.encode()} if mark is not None else {}))


def _column(table: pa.Table, text: str) -> pa.ChunkedArray:
    """Compute an expression; a single column is returned unchanged."""
    alone = sql.column_alone(table, text)
    if alone is not None:
        return alone
    if table.num_rows == 0 and sql.is_point_of_numbers(text):  # a query would take milliseconds for each of many points
        return pa.chunked_array([], sql.type_of_points())
    return sql.evaluated(table, {"value": text})["value"]


def taken(column: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray | pa.Array:
    """Return rows of a column by their numbers; Arrow takes three times as long for numbers without nulls."""
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if plain and column.num_chunks == 1 and not column.null_count:
        return as_arrow(as_numpy(column).take(rows))
    return column.take(as_arrow(rows))


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table with these columns and no rows. Arrow's own way to make one imports pandas, which takes long."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, however they are encoded."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def type_text(kind: pa.DataType) -> str:
    """Write an Arrow type as Spark SQL spells it."""
    kind = plain_type(kind)
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{part.name}:{type_text(part.type)}' for part in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    for test, text in (
        (pa.types.is_null, "void"), (pa.types.is_boolean, "boolean"), (pa.types.is_int8, "tinyint"),
        (pa.types.is_int16, "smallint"), (pa.types.is_int32, "int"), (pa.types.is_integer, "bigint"),
        (pa.types.is_float64, "double"), (pa.types.is_floating, "float"), (pa.types.is_date, "date"),
        (pa.types.is_string, "string"), (pa.types.is_large_string, "string"), (pa.types.is_string_view, "string"),
        (pa.types.is_binary, "binary"), (pa.types.is_large_binary, "binary"),
    ):  # fmt: skip
        if test(kind):
            return text
    return str(kind)


def usual_types(table: pa.Table) -> pa.Table:
    """Return lists and texts with 32-bit offsets, and no dictionaries: so kernels and engines read them."""
    schema = pa.schema([field.with_type(_usual(field.type)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _usual(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_list(kind) or pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_usual(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_usual(part.type)) for part in kind])
    if pa.types.is_dictionary(kind):  # those of two tables differ, and keys are compared between them
        return _usual(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind
