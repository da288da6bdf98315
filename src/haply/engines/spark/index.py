"""Indexed tables on Spark (see ``haply.indexing``).

A plain scan checks the pages in separate tasks, which come before the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.exchange.prepare import middle_column
from haply.errors import HaplyError
from haply.indexing.index import (
    Index,
    WritePages,
    check_levels,
    commit_pages,
    forget_open_files,
    open_index,
    read_bounds,
)
from haply.indexing.manifest import begin, building, everywhere
from haply.planning.frames import quoted

_PAGE_TYPE = (
    "file string, bytes bigint, footer string, page int, start bigint, end bigint, digest binary, rows bigint, "
    "`left` array<double>, `right` array<double>, peak double"
)
_MARK = "_haply_index"


def index_of(frame: DataFrame) -> Index | None:
    """Return the index of a DataFrame from ``read_index``; None for DataFrames derived from it."""
    found = frame.__dict__.get(_MARK)
    return found if isinstance(found, Index) else None


def renamed(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return a table under other names for its columns; an index stays with it."""
    found, index = frame.toDF(*names), index_of(frame)
    if index is not None:
        found.__dict__[_MARK] = replace(index, column=names[frame.columns.index(index.column)])
    return found


def build_index(df: DataFrame, name: str, path: str, page_rows: int, mode: str) -> None:
    """Write a table in the order of an uncertain column, with the bounds of its pages for joins."""
    path = everywhere(path)
    before, bounds = begin(path, mode), None
    if mode == "append" and before is not None:
        check_levels(before, path)
        _check_alike(before, name, df.schema, path)
        bounds = read_bounds(path, before)
    at = "__at"
    ordered = df.withColumn(at, middle_column(quoted(name))).repartitionByRange(F.col(at).asc_nulls_last())
    ordered = ordered.sortWithinPartitions(F.col(at).asc_nulls_last()).drop(at)
    with building(path, before) as build:
        writer = WritePages(path, build.id, name, page_rows)
        pages = ordered.mapInArrow(lambda batches: writer(batches), _PAGE_TYPE).toArrow()  # bounds, not rows
        commit_pages(build, name, df.schema.json(), page_rows, pages, bounds)


def _check_alike(before: dict[str, Any], column: str, schema: T.StructType, path: str) -> None:
    known = T.StructType.fromJson(json.loads(before["schema"]))
    for what, found, expected in (
        ("column", column, before["column"]),
        ("columns", schema.simpleString(), known.simpleString()),
    ):
        if found != expected:
            raise HaplyError(f"The {what} of the index {path} differ", expected=expected, found=found)


def read_index(path: str, spark: SparkSession | None = None) -> DataFrame:
    """Return the table of an index, as a DataFrame that ``hp.join`` recognises on either side."""
    index = open_index(path)
    frame = _scan(spark or SparkSession.getActiveSession() or _own_session(), index)
    frame.__dict__[_MARK] = index
    return frame


def _scan(session: SparkSession, index: Index) -> DataFrame:
    """Read all rows as Parquet files with Spark, after tasks that check the bytes of all pages and return no rows.

    Spark leaves out columns and rows that a query does not need, but cannot leave out the tasks: it does not know that
    they return no rows.
    """
    schema = T.StructType.fromJson(json.loads(index.schema))
    if not index.files:
        return session.createDataFrame([], schema)
    places = [f"{index.path.rstrip('/')}/{entry['name']}" for entry in index.files]
    nothing = np.empty((0, 0))
    known = replace(index, left=nothing, right=nothing)  # workers do not need them

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_open_files()  # this worker may have opened one that was replaced since
        for batch in batches:
            for page in batch.column(0).to_pylist():
                known.check_page(page)
        yield from ()

    # In the schema of the rows all may be null: else Spark would leave out the tasks from `where("id IS NULL")`.
    rows = session.read.schema(schema).parquet(*places)
    return session.range(len(index)).mapInArrow(check, rows.schema).union(rows)


def _own_session() -> SparkSession:
    from haply.engines.spark.runtime.session import local_session

    return local_session()
