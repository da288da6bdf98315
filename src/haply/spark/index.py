"""Tables that remember: Parquet files in the order of their values, and beside them what is known of every page.

A page is a row group. Of its values the x-bounds are kept at some levels (see ``haply.pruning.xbounds``): from them
follows, for any threshold, an interval that holds the row intervals of all its rows. So a join asks the pages that may
match, and reads no others.

A folder holds ``part-*.parquet`` (the rows), ``pages-*.parquet`` (the bounds) and ``_haply_index.json``, which names
all that belongs to the index; ``haply.spark.manifest`` says how builds take turns in it. What is named must be there,
as long as it was, and with the same footer. Every page has a digest of its bytes: a join checks that of each page it
reads, and a plain scan those of all pages, in tasks of its own that come before the rows.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.errors import HaplyError, unknown_name
from haply.joins.cells.rows import bad_row
from haply.models import Model, OneDimensional
from haply.models.columns import read_column
from haply.planning.frames import find_name, quoted
from haply.pruning.intervals import Ends, Intervals
from haply.pruning.threshold import CERTAIN_LEVEL
from haply.pruning.xbounds import group_bounds, value_bounds
from haply.spark.manifest import (
    Build,
    begin,
    building,
    everywhere,
    load_manifest,
    print_of,
    refused,
    system_of,
)
from haply.spark.prepare import middle_column
from haply.spark.types import field_from

IndexMode = Literal["error", "overwrite", "append"]
"""What to do where an index is there: refuse, replace it, or add rows to it."""

PAGE_ROWS = 4096
LEVELS = (
    0.0, CERTAIN_LEVEL, 1e-4, 1e-3, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25,
    0.275, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99,
)  # fmt: skip
"""A threshold uses the largest level that is not above its own: the finer, the less is lost."""

_PAGE_TYPE = (
    "file string, bytes bigint, footer string, page int, start bigint, end bigint, digest binary, rows bigint, "
    "`left` array<double>, `right` array<double>, peak double"
)
_PAGE_SCHEMA = pa.schema(
    {
        "file": pa.string(), "bytes": pa.int64(), "footer": pa.string(), "page": pa.int32(), "start": pa.int64(),
        "end": pa.int64(), "digest": pa.binary(), "rows": pa.int64(), "left": pa.list_(pa.float64()),
        "right": pa.list_(pa.float64()), "peak": pa.float64(),
    }
)  # fmt: skip
_MARK = "_haply_index"


@dataclass(frozen=True)
class Index:
    """An index as it was read: where its files are, and the bounds of its pages."""

    path: str
    column: str
    schema: T.StructType
    files: tuple[dict[str, Any], ...]
    file: np.ndarray
    group: np.ndarray
    start: np.ndarray
    end: np.ndarray
    digests: tuple[bytes | None, ...]
    """Of the bytes from start to end; format 1 had none."""
    rows: np.ndarray
    left: np.ndarray
    right: np.ndarray
    page_rows: int

    def __len__(self) -> int:
        return len(self.rows)

    def intervals(self, ends: Ends) -> Intervals:
        """What holds the row intervals of all rows of each page, for a condition and threshold (``interval_ends``)."""
        levels = np.array(LEVELS)
        low, high = (int(np.searchsorted(levels, level, "right")) - 1 for level in (ends.low_level, ends.high_level))
        start, end = self.left[:, low] - ends.low_shift, self.right[:, high] - ends.high_shift
        slack = 64 * np.finfo(np.float64).eps
        with np.errstate(invalid="ignore"):
            start = start - slack * (np.abs(self.left[:, low]) + abs(ends.low_shift))
            end = end + slack * (np.abs(self.right[:, high]) + abs(ends.high_shift))
        nothing = np.isposinf(self.left[:, 0]) & np.isneginf(self.right[:, 0])
        start = np.where(np.isnan(start) | np.isneginf(self.left[:, low]), -np.inf, start)
        end = np.where(np.isnan(end) | np.isposinf(self.right[:, high]), np.inf, end)
        return Intervals(start, end, nothing)

    def read_page(self, page: int) -> pa.Table:
        """The rows of a page, its bytes checked."""
        self._check_digest(page)
        return _read_group(self.path, self._name(page), int(self.group[page]))

    def check_page(self, page: int) -> None:
        """Refuse a page whose bytes have changed."""
        if not self._check_digest(page):
            _read_group(self.path, self._name(page), int(self.group[page]))  # by the checksums of Parquet

    def _name(self, page: int) -> str:
        name: str = self.files[self.file[page]]["name"]
        return name

    def _check_digest(self, page: int) -> bool:
        known, name = self.digests[page], self._name(page)
        if known is None:
            return False
        try:
            found = _digest(_handle(self.path, name), int(self.start[page]), int(self.end[page]))
        except (OSError, pa.ArrowException):
            raise refused(self.path, f"{name} was changed or removed") from None
        if found != known:
            raise refused(self.path, f"page {self.group[page]} of {name} was changed")
        return True


def index_of(frame: DataFrame) -> Index | None:
    """The index of a DataFrame that ``read_index`` gave; what was made from it since has none."""
    found = frame.__dict__.get(_MARK)
    return found if isinstance(found, Index) else None


def renamed(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """A table under other names for its columns; an index stays with it."""
    found, index = frame.toDF(*names), index_of(frame)
    if index is not None:
        found.__dict__[_MARK] = replace(index, column=names[frame.columns.index(index.column)])
    return found


# -- writing -----------------------------------------------------------------------------------------------------------


def build_index(
    df: DataFrame, column: str, path: str, *, page_rows: int = PAGE_ROWS, mode: IndexMode = "error"
) -> None:
    """Write a table in the order of an uncertain column, with what joins want to know of its pages.

    ``mode``: ``"error"`` refuses a folder in which anything is, ``"overwrite"`` replaces the index in it, ``"append"``
    adds rows. A folder without a manifest of ours is never overwritten, and foreign files beside one are never removed.

    The last step makes the new files the index; until then the old one stays as it is. Of builds at the same time on
    one machine the first to come so far wins, and the others raise: their rows are not written. On other file systems
    than local ones (``hdfs://``, ``s3://``, ...), which cannot make sure of that, let one build at a time write.
    DataFrames of the old index can be used until the second build from now commits, which removes its files.

    >>> hp.build_index(readings, "temp", "readings.index")                                           # doctest: +SKIP
    >>> readings = hp.read_index("readings.index")                                                   # doctest: +SKIP
    >>> hp.join(probes, readings, on="abs(left.temp - right.temp) <= 0.1", threshold=0.5)            # doctest: +SKIP
    """
    if mode not in ("error", "overwrite", "append"):
        raise unknown_name("mode", mode, ("error", "overwrite", "append"))
    if not 1 <= page_rows <= 1 << 24:
        raise HaplyError("A page has no such size", expected="page_rows from 1 to 16,777,216", found=str(page_rows))
    if df.isStreaming:
        raise HaplyError("A stream cannot be indexed", expected="a table")
    name = find_name(df.columns, column, "given")
    model = field_from(name, df.schema[name].dataType).model
    if model is None or not issubclass(model, OneDimensional):
        raise HaplyError(
            f"Column '{name}' cannot be indexed",
            expected="a number, or an uncertain value made by hp.gaussian, hp.uniform, ...",
            found=df.schema[name].dataType.simpleString(),
        )
    path = everywhere(path)
    before, bounds = begin(path, mode), None
    if mode == "append" and before is not None:
        _check_levels(before, path)
        _check_alike(before, name, df.schema, path)
        bounds = _read_bounds(path, before)
    at = "__at"
    ordered = df.withColumn(at, middle_column(quoted(name))).repartitionByRange(F.col(at).asc_nulls_last())
    ordered = ordered.sortWithinPartitions(F.col(at).asc_nulls_last()).drop(at)
    with building(path, before) as build:
        writer = WritePages(path, build.id, name, page_rows)
        pages = ordered.mapInArrow(lambda batches: writer(batches), _PAGE_TYPE).toArrow()  # bounds, not rows
        _commit(build, name, df.schema, page_rows, pages, bounds)


@dataclass(frozen=True)
class WritePages:
    """Writes the rows of a partition into a file of its own; gives the bounds of its pages (``mapInArrow``)."""

    path: str
    build: str
    column: str
    page_rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each page."""
        system, folder = system_of(self.path)
        name = f"part-{self.build}-{uuid.uuid4().hex}.parquet"
        writer: pq.ParquetWriter | None = None
        found: list[dict[str, Any]] = []
        for page in _in_pages(batches, self.page_rows):
            if writer is None:
                sink = system.open_output_stream(f"{folder}/{name}")
                writer = pq.ParquetWriter(sink, page.schema, write_page_checksum=True)
            writer.write_table(page, row_group_size=self.page_rows)
            # The first begins with the file: so every byte of it belongs to a page or to the footer.
            start = found[-1]["end"] if found else 0
            found.append(
                {"page": len(found), "start": start, "end": sink.tell(), "rows": page.num_rows, **self._bounds(page)}
            )
        if writer is None:
            return
        writer.close()
        sink.close()
        size, footer = print_of(system, f"{folder}/{name}")
        with system.open_input_file(f"{folder}/{name}") as source:
            for page in found:
                page.update(file=name, bytes=size, footer=footer, digest=_digest(source, page["start"], page["end"]))
        yield pa.RecordBatch.from_pylist(found, _PAGE_SCHEMA)

    def _bounds(self, page: pa.Table) -> dict[str, Any]:
        read = read_column(page[self.column])
        if len(read.bad_rows):
            raise bad_row(f"Column '{self.column}'", read.example)
        model: Model = read.model
        assert isinstance(model, OneDimensional)
        if not len(model):  # nulls alone: they match nothing
            empty = np.full(len(LEVELS), np.inf)
            return {"left": empty, "right": -empty, "peak": 0.0}
        bounds = group_bounds(value_bounds(model, np.array(LEVELS)), np.array([0, len(model)]))
        return {"left": bounds.left[0], "right": bounds.right[0], "peak": float(bounds.peak[0])}


def _in_pages(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The rows in tables of one size, but for the last."""
    held, count = [], 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, size - count)
            held.append(part)
            at += part.num_rows
            count += part.num_rows
            if count == size:
                yield pa.Table.from_batches(held)
                held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _commit(
    build: Build, column: str, schema: T.StructType, page_rows: int, pages: pa.Table, bounds: pa.Table | None
) -> None:
    """Write the bounds, behind those of the rows that are there; then these files are the index, or are removed."""
    system, folder = system_of(build.path)
    prints = {
        name: {"name": name, "bytes": size, "footer": footer}
        for name, size, footer in zip(
            *(pages[key].to_pylist() for key in ("file", "bytes", "footer")), strict=True
        )
    }  # fmt: skip
    files = [*(build.before["files"] if build.before and bounds is not None else []), *prints.values()]
    numbers = {entry["name"]: number for number, entry in enumerate(files)}
    table = pages.drop_columns(["bytes", "footer"]).set_column(
        0, "file", pa.array([numbers[name] for name in pages["file"].to_pylist()], pa.int32())
    )
    if bounds is not None:
        table = pa.concat_tables([bounds, table.select(bounds.column_names).cast(bounds.schema)])
    name = f"pages-{build.id}.parquet"
    pq.write_table(table, f"{folder}/{name}", filesystem=system, write_page_checksum=True)
    size, footer = print_of(system, f"{folder}/{name}")
    with system.open_input_file(f"{folder}/{name}") as source:
        digest = _digest(source, 0, size).hex()
    build.commit(
        {
            "column": column,
            "schema": schema.json(),
            "levels": list(LEVELS),
            "page_rows": page_rows,
            "files": files,
            "pages": {"name": name, "bytes": size, "footer": footer, "digest": digest},
        }
    )


def _digest(source: pa.NativeFile, start: int, end: int) -> bytes:
    return hashlib.blake2b(source.read_at(end - start, start), digest_size=16).digest()


def _check_alike(before: dict[str, Any], column: str, schema: T.StructType, path: str) -> None:
    known = T.StructType.fromJson(json.loads(before["schema"]))
    for what, found, expected in (
        ("column", column, before["column"]),
        ("columns", schema.simpleString(), known.simpleString()),
    ):
        if found != expected:
            raise HaplyError(f"The {what} of the index {path} differ", expected=expected, found=found)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_index(path: str, spark: SparkSession | None = None) -> DataFrame:
    """The table of an index, as a DataFrame that ``hp.join`` recognises on either side."""
    path = everywhere(path)
    manifest = load_manifest(path)
    _check_levels(manifest, path)
    table = _read_bounds(path, manifest)
    schema = T.StructType.fromJson(json.loads(manifest["schema"]))
    left, right = (
        table[name].combine_chunks().flatten().to_numpy().reshape(-1, len(LEVELS)) for name in ("left", "right")
    )  # fmt: skip
    file, group, start, end, rows = (table[name].to_numpy() for name in ("file", "page", "start", "end", "rows"))
    index = Index(
        path, manifest["column"], schema, tuple(manifest["files"]), file, group, start, end,
        tuple(table["digest"].to_pylist()), rows, left, right, manifest["page_rows"],
    )  # fmt: skip
    frame = _scan(spark or SparkSession.getActiveSession() or _own_session(), index)
    frame.__dict__[_MARK] = index
    return frame


def _scan(session: SparkSession, index: Index) -> DataFrame:
    """All rows, as Spark reads Parquet files. Tasks that check the bytes of all pages come before them, and give none.

    Spark leaves out columns and rows that a query does not ask for, and cannot leave out the tasks: it does not know
    that they give no rows.
    """
    if not index.files:
        return session.createDataFrame([], index.schema)
    places = [f"{index.path.rstrip('/')}/{entry['name']}" for entry in index.files]
    nothing = np.empty((0, 0))
    known = replace(index, left=nothing, right=nothing)  # workers have no use for them

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _handle.cache_clear()  # this worker may have opened a file that was replaced since
        _opened.cache_clear()
        for batch in batches:
            for page in batch.column(0).to_pylist():
                known.check_page(page)
        yield from ()

    # In the schema of the rows all may be null: else Spark would leave out the tasks from `where("id IS NULL")`.
    rows = session.read.schema(index.schema).parquet(*places)
    return session.range(len(index)).mapInArrow(check, rows.schema).union(rows)


def _own_session() -> SparkSession:
    from haply.spark.session import local_session

    return local_session()


def _check_levels(manifest: dict[str, Any], path: str) -> None:
    if manifest["levels"] != list(LEVELS):
        raise refused(path, f"it was written in format {manifest['format']} by another version of haply")


def _read_bounds(path: str, manifest: dict[str, Any]) -> pa.Table:
    """What is known of the pages; format 1 had no digests of them."""
    system, folder = system_of(path)
    entry = manifest["pages"]
    try:
        with system.open_input_file(f"{folder}/{entry['name']}") as source:
            if manifest["format"] > 1 and _digest(source, 0, entry["bytes"]).hex() != entry["digest"]:
                raise refused(path, f"{entry['name']} was changed")
            table = pq.read_table(source, page_checksum_verification=True)
    except (OSError, pa.ArrowException):
        raise refused(path, f"{entry['name']} was changed") from None
    if manifest["format"] == 1:
        for name, kind in (("start", pa.int64()), ("end", pa.int64()), ("digest", pa.binary())):
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    return table


@lru_cache(maxsize=32)
def _handle(path: str, name: str) -> pa.NativeFile:
    system, folder = system_of(path)
    return system.open_input_file(f"{folder}/{name}")


@lru_cache(maxsize=32)
def _opened(path: str, name: str) -> pq.ParquetFile:
    return pq.ParquetFile(_handle(path, name), page_checksum_verification=True)


def _read_group(path: str, name: str, group: int) -> pa.Table:
    try:
        return _opened(path, name).read_row_group(group)
    except (OSError, pa.ArrowException):
        raise refused(path, f"{name} was changed or removed") from None
