"""haply for tables that either engine answers: ``import both_kit as hp`` in a test, and ask for the fixture ``engine``.

Tables are made in this process, from rows and Spark's names of types, as ``engine.createDataFrame(rows, types)``, and
changed with the few operations of :class:`Table`. Where Spark is to answer, they become DataFrames when they are asked.
Answers are tables too, whatever engine they come from. All that is not here is haply's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row

import haply

_PLAIN = {
    "long": pa.int64(), "bigint": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string(),
    "boolean": pa.bool_(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def kind_of(text: str) -> pa.DataType:
    """Arrow's type for Spark's name of one."""
    text = text.strip()
    inner = re.fullmatch(r"(array|struct)<(.*)>", text)
    if inner is None:
        return _PLAIN[text]
    if inner[1] == "array":
        return pa.list_(kind_of(inner[2]))
    parts = (part.split(":", 1) for part in _parts(inner[2]))
    return pa.struct([(name.strip(), kind_of(kind)) for name, kind in parts])


def _parts(text: str) -> list[str]:
    """What commas part that are in no brackets."""
    found, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and depth == 0:
            found.append(text[start:place])
            start = place + 1
    return [*found, text[start:]]


def _given(value: Any, kind: pa.DataType) -> Any:
    """A value as Arrow takes it: structs of tuples by the names of their fields."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        parts = [value[field.name] for field in kind] if isinstance(value, dict) else value
        return {field.name: _given(part, field.type) for field, part in zip(kind, parts, strict=True)}
    if pa.types.is_list(kind):
        return [_given(part, kind.value_type) for part in value]
    return value


def _found(value: Any) -> Any:
    if isinstance(value, dict):
        return Row(**{name: _found(part) for name, part in value.items()})
    return [_found(part) for part in value] if isinstance(value, list) else value


class Table:
    """Rows of this process, or the answer of an engine."""

    def __init__(self, engine: Engine, table: Any) -> None:
        self.engine, self._table = engine, table

    @cached_property
    def arrow(self) -> pa.Table:
        """All rows; of Spark's answer, computed when first asked for."""
        return self._table if isinstance(self._table, pa.Table) else self._table.toArrow()

    @cached_property
    def asked(self) -> Any:
        """What the engine is asked with: one object, however often."""
        if not isinstance(self._table, pa.Table) or self.engine.spark is None:
            return self._table
        given = self._table
        if not given.num_rows:  # which PySpark does not take
            given = pa.table([pa.nulls(1, field.type) for field in given.schema], schema=given.schema)
        frame = self.engine.spark.createDataFrame(given)
        if not self._table.num_rows:
            frame = frame.where("false")
        for field in self._table.schema:
            if pa.types.is_timestamp(field.type) and field.type.tz is None:
                frame = frame.withColumn(field.name, frame[field.name].cast("timestamp_ntz"))
        return frame

    @property
    def columns(self) -> list[str]:
        return self._table.column_names if isinstance(self._table, pa.Table) else self._table.columns

    def collect(self) -> list[Row]:
        # by position: an answer may have two columns of one name
        columns = [column.to_pylist() for column in self.arrow.columns]
        kind = Row(*self.arrow.column_names)
        return [kind(*map(_found, values)) for values in zip(*columns, strict=True)]

    def first(self) -> Row:
        return self.collect()[0]

    def count(self) -> int:
        return self.arrow.num_rows

    def toPandas(self) -> Any:  # noqa: N802
        return self.arrow.to_pandas()

    def select(self, *texts: str) -> Table:
        """Columns by expressions in SQL, with constructors."""
        wanted = [f"`{text}`" if text in self.columns else text for text in texts]
        return Table(self.engine, haply.sql(f"SELECT {', '.join(wanted)} FROM t", t=self.arrow))

    def withColumn(self, name: str, text: str) -> Table:  # noqa: N802
        """Another column, or another in the place of one."""
        if name not in self.columns:
            return self.select(*self.columns, f"{text} AS {name}")
        return self.select(*(f"{text} AS {name}" if each == name else each for each in self.columns))

    def where(self, text: str) -> Table:
        names = ", ".join(f"`{name}`" for name in self.columns)
        return Table(self.engine, haply.sql(f"SELECT {names} FROM t WHERE {text}", t=self.arrow))

    def drop(self, *names: str) -> Table:
        return Table(self.engine, self.arrow.drop_columns(list(names)))

    def withColumnRenamed(self, old: str, new: str) -> Table:  # noqa: N802
        return Table(self.engine, self.arrow.rename_columns([new if name == old else name for name in self.columns]))

    def union(self, other: Table) -> Table:
        return Table(self.engine, pa.concat_tables([self.arrow, other.arrow.cast(self.arrow.schema)]))

    unionByName = union  # noqa: N815


class Engine:
    """The engine that answers: Spark if there is a session."""

    def __init__(self, spark: Any = None) -> None:
        self.spark, self.name = spark, "local" if spark is None else "spark"
        self.failure = haply.HaplyError if spark is None else PySparkException
        """What a query that has begun fails with."""
        self.lazy = spark is not None

    def createDataFrame(self, rows: Sequence[Any], types: str) -> Table:  # noqa: N802
        fields = [re.fullmatch(r"\s*(?:`(.*?)`|(\w+))\s+(.*)", part).groups() for part in _parts(types)]
        fields = [(quoted or plain, kind) for quoted, plain, kind in fields]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
        kinds = [kind_of(kind) for _, kind in fields]
        arrays = [
            pa.array([_given(value, kind) for value in column], kind)
            for column, kind in zip(columns, kinds, strict=True)
        ]
        return Table(self, pa.table(arrays, names=[name for name, _ in fields]))

    def range(self, *bounds: int) -> Table:
        return Table(self, pa.table({"id": pa.array(list(range(*bounds)), pa.int64())}))

    @contextmanager
    def settings(self, **values: Any) -> Iterator[None]:
        """Settings of Spark for a while; the local engine has none."""
        names = [f"spark.haply.{name}" for name in values] if self.spark is not None else []
        for name, value in zip(names, values.values(), strict=False):
            self.spark.conf.set(name, str(value))
        try:
            yield
        finally:
            for name in names:
                self.spark.conf.unset(name)


# -- haply's functions ------------------------------------------------------------------------------------------------


class _Asked:
    """A function of haply, or a plan of it, with tables for frames."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def __call__(self, *given: Any, **options: Any) -> Any:
        tables = [each for each in (*given, *options.values()) if isinstance(each, Table)]
        tables += [each for some in given if isinstance(some, dict) for each in some.values()]
        engine = next((table.engine for table in tables), None)
        answer = self._ask(*map(_bare, given), **{name: _bare(value) for name, value in options.items()})
        if engine is None:  # frames of haply's own
            return answer
        mine = type(answer).__module__.startswith("haply.")  # a plan; DataFrames of Connect have any attribute
        return Planned(engine, answer) if mine else Table(engine, answer)


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(each) for name, each in value.items()}
    return value.asked if isinstance(value, Table) else value


class Planned:
    """A plan, whose answer is a table."""

    def __init__(self, engine: Engine, plan: Any) -> None:
        self.engine, self.plan = engine, plan

    def explain(self, **options: Any) -> str:
        return self.plan.explain(**options)

    def explain_row(self, row: Any) -> Any:
        return self.plan.explain_row(_bare(row) if isinstance(row, Table) else row)

    def explain_pair(self, left_row: Any, right_row: Any) -> Any:
        return self.plan.explain_pair(left_row, right_row)

    def run(self) -> Table:
        return Table(self.engine, self.plan.run())


join, where, sql, window_join, check, match, count_matches, asof, table = (
    _Asked(getattr(haply, name))
    for name in ("join", "where", "sql", "window_join", "check", "match", "count_matches", "asof", "table")
)
plan_join, plan_where, plan_sql, plan_match, plan_asof = (
    _Asked(getattr(haply, name)) for name in ("plan_join", "plan_where", "plan_sql", "plan_match", "plan_asof")
)


def __getattr__(name: str) -> Any:
    return getattr(haply, name)


# -- constructors, as texts -------------------------------------------------------------------------------------------


class Text(str):
    """An expression in SQL."""

    def alias(self, name: str) -> str:
        return f"{self} AS {name}"


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"array({', '.join(map(_text, value))})" if isinstance(value, list | tuple) else str(value)


def _constructor(name: str) -> Any:
    real = getattr(haply, name)

    def construct(*given: Any, **options: Any) -> Any:
        if not all(isinstance(each, str | int | float | list | tuple | type(None)) for each in given):
            return real(*given, **options)
        if name == "gaussian_nd":
            given = (given[0], options.get("sd"), options.get("corr"), options.get("cov"))
        else:
            given = (*given, *options.values())
        return Text(f"{name.upper()}({', '.join(map(_text, given))})")

    return construct


uniform, gaussian, truncated_gaussian, mixture, histogram, samples, latency, gaussian_nd, mixture_nd = (
    _constructor(name)
    for name in (
        "uniform", "gaussian", "truncated_gaussian", "mixture", "histogram", "samples", "latency", "gaussian_nd",
        "mixture_nd",
    )
)  # fmt: skip


# -- many questions at once -------------------------------------------------------------------------------------------


def check_spark_agrees(spark: Any, cases: Sequence[tuple[str, pa.Table]]) -> None:
    """Ask both engines of conditions on tables with ids, Spark in one job: one for each would take a second.

    What one engine refuses the other refuses in the same words.
    """
    wanted, frames = {}, []
    for case, (asked, table) in enumerate(cases):
        frame, refused = spark.createDataFrame(table).coalesce(1), None
        try:
            rows = haply.where(table, asked, 1e-9).to_pylist()
        except haply.HaplyError as refusal:
            refused = str(refusal)
        if refused is not None:
            with pytest.raises(haply.HaplyError) as other:
                haply.where(frame, asked, 1e-9)
            assert str(other.value) == refused
            continue
        wanted |= {(case, row["id"]): row["probability"] for row in rows}
        answer = haply.where(frame, asked, 1e-9)
        frames.append(answer.selectExpr(f"{case} AS tree", "id", "probability"))
    found = reduce(lambda one, other: one.unionAll(other), frames).collect()
    assert {(row["tree"], row["id"]): row["probability"] for row in found} == pytest.approx(wanted, abs=1e-12)
