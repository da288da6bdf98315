"""Tables that remember: Parquet files in the order of their values, and beside them what is known of every page.

A page is a row group. Of its values the x-bounds are kept at some levels (see ``haply.pruning.xbounds``): from them
follows, for any threshold, an interval that holds the row intervals of all its rows. So a join asks the pages that may
match, and reads no others.

A folder holds ``part-*.parquet`` (the rows), ``pages-*.parquet`` (the bounds) and ``_haply_index.json``, which names
all that belongs to the index. New files have new names; the index is the old one until that file is replaced, which is
the last step. What is named must be there, as long as it was, and with the same footer, and its bytes are checked page
by page when they are read.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.errors import HaplyError, unknown_name
from haply.models import Model, OneDimensional
from haply.models.columns import read_column
from haply.pruning.intervals import Ends, Intervals
from haply.pruning.threshold import CERTAIN_LEVEL
from haply.pruning.xbounds import group_bounds, value_bounds
from haply.spark.columns import find_column, model_of_spark_type, quoted
from haply.spark.prepare import bad_row, middle_column

IndexMode = Literal["error", "overwrite", "append"]
"""What to do where a folder is there: refuse, replace the index, or add rows to it."""

MANIFEST, FORMAT = "_haply_index.json", 1
PAGE_ROWS = 4096
LEVELS = (
    0.0, CERTAIN_LEVEL, 1e-4, 1e-3, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25,
    0.275, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99,
)  # fmt: skip
"""A threshold uses the largest level that is not above its own: the finer, the less is lost."""

_PAGE_TYPE = (
    "file string, bytes bigint, footer string, page int, rows bigint, "
    "`left` array<double>, `right` array<double>, peak double"
)
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
        return _read_group(self.path, self.files[self.file[page]]["name"], int(self.group[page]))


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

    ``mode``: ``"error"`` refuses a folder that is there, ``"overwrite"`` replaces the index in it, ``"append"`` adds
    rows. Until all is written the old index stays as it is.

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
    name = find_column(df, column, "given")
    model = model_of_spark_type(df.schema[name].dataType)
    if model is None or not issubclass(model, OneDimensional):
        raise HaplyError(
            f"Column '{name}' cannot be indexed",
            expected="a number, or an uncertain value made by hp.gaussian, hp.uniform, ...",
            found=df.schema[name].dataType.simpleString(),
        )
    path = _everywhere(path)
    system, folder = _system(path)
    there = system.get_file_info(folder).type != fs.FileType.NotFound
    if there and mode == "error":
        raise HaplyError(f"{path} is there already", expected="a new folder", hint='mode="overwrite" or mode="append"')
    before = _load(path) if there and mode == "append" else None
    if there and mode == "overwrite" and not _is_ours(system, folder):
        raise HaplyError(
            f"{path} is no index", expected="a folder that build_index wrote", hint="remove it, or choose another"
        )
    if before is not None:
        _check_alike(before, name, df.schema, path)
    system.create_dir(folder, recursive=True)
    writer = WritePages(path, name, page_rows)
    at = "__at"
    ordered = df.withColumn(at, middle_column(quoted(name))).repartitionByRange(F.col(at).asc_nulls_last())
    pages = (
        ordered.sortWithinPartitions(F.col(at).asc_nulls_last()).drop(at)
        .mapInArrow(lambda batches: writer(batches), _PAGE_TYPE).toArrow()  # bounds, not rows
    )  # fmt: skip
    _commit(path, name, df.schema, page_rows, pages, before)


@dataclass(frozen=True)
class WritePages:
    """Writes the rows of a partition into a file of its own; gives the bounds of its pages (``mapInArrow``)."""

    path: str
    column: str
    page_rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each page."""
        system, folder = _system(self.path)
        name = f"part-{uuid.uuid4().hex}.parquet"
        writer: pq.ParquetWriter | None = None
        found: list[dict[str, Any]] = []
        for page in _in_pages(batches, self.page_rows):
            if writer is None:
                writer = pq.ParquetWriter(
                    system.open_output_stream(f"{folder}/{name}"), page.schema, write_page_checksum=True
                )
            writer.write_table(page, row_group_size=self.page_rows)
            found.append({"page": len(found), "rows": page.num_rows, **self._bounds(page)})
        if writer is None:
            return
        sink = writer.file_handle
        writer.close()
        if sink is not None:
            sink.close()
        size, footer = _print_of(system, f"{folder}/{name}")
        for page in found:
            page.update(file=name, bytes=size, footer=footer)
        columns = ("file", "bytes", "footer", "page", "rows", "left", "right", "peak")
        types = (pa.string(), pa.int64(), pa.string(), pa.int32(), pa.int64(), *[pa.list_(pa.float64())] * 2)
        arrays = [
            pa.array([page[key] for page in found], kind)
            for key, kind in zip(columns, (*types, pa.float64()), strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, list(columns))

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
    path: str, column: str, schema: T.StructType, page_rows: int, pages: pa.Table, before: dict[str, Any] | None
) -> None:
    """Write the bounds, then put the manifest in the old one's place: from then on the index is the new one."""
    system, folder = _system(path)
    named = dict.fromkeys(pages["file"].to_pylist())
    prints = {
        name: {"name": name, "bytes": size, "footer": footer}
        for name, size, footer in zip(
            *(pages[key].to_pylist() for key in ("file", "bytes", "footer")), strict=True
        )
    }  # fmt: skip
    files = [*(before["files"] if before else []), *(prints[name] for name in named)]
    numbers = {entry["name"]: number for number, entry in enumerate(files)}
    table = pa.table(
        {
            "file": pa.array([numbers[name] for name in pages["file"].to_pylist()], pa.int32()),
            "page": pages["page"],
            "rows": pages["rows"],
            "left": pages["left"],
            "right": pages["right"],
            "peak": pages["peak"],
        }
    )
    if before:
        table = pa.concat_tables([_read_file(path, before["pages"]["name"]).cast(table.schema), table])
    bounds = f"pages-{uuid.uuid4().hex}.parquet"
    pq.write_table(table, f"{folder}/{bounds}", filesystem=system, write_page_checksum=True)
    size, footer = _print_of(system, f"{folder}/{bounds}")
    manifest = {
        "format": FORMAT,
        "column": column,
        "schema": schema.json(),
        "levels": list(LEVELS),
        "page_rows": page_rows,
        "files": files,
        "pages": {"name": bounds, "bytes": size, "footer": footer},
    }
    manifest["checksum"] = _checksum(manifest)
    draft = f"{folder}/.{MANIFEST}-{uuid.uuid4().hex}"
    with system.open_output_stream(draft) as out:
        out.write(json.dumps(manifest, indent=1).encode())
    system.move(draft, f"{folder}/{MANIFEST}")
    _sweep_out(system, folder, {MANIFEST, bounds, *numbers})


def _sweep_out(system: fs.FileSystem, folder: str, kept: set[str]) -> None:
    """Remove what earlier indexes, or writers that were killed, have left."""
    for entry in system.get_file_info(fs.FileSelector(folder)):
        if entry.base_name not in kept and _named_by_us(entry.base_name):
            system.delete_file(entry.path)


def _named_by_us(name: str) -> bool:
    data = name.startswith(("part-", "pages-")) and name.endswith(".parquet")
    return data or name.startswith((MANIFEST, f".{MANIFEST}"))


def _is_ours(system: fs.FileSystem, folder: str) -> bool:
    """Whether nothing else is in a folder."""
    if system.get_file_info(folder).type != fs.FileType.Directory:
        return False
    return all(_named_by_us(entry.base_name) for entry in system.get_file_info(fs.FileSelector(folder)))


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
    path = _everywhere(path)
    manifest = _load(path)
    table = _read_file(path, manifest["pages"]["name"])
    schema = T.StructType.fromJson(json.loads(manifest["schema"]))
    levels = len(LEVELS)
    left, right = (
        table[name].combine_chunks().flatten().to_numpy().reshape(-1, levels) for name in ("left", "right")
    )  # fmt: skip
    index = Index(
        path, manifest["column"], schema, tuple(manifest["files"]), table["file"].to_numpy(), table["page"].to_numpy(),
        table["rows"].to_numpy(), left, right, manifest["page_rows"],
    )  # fmt: skip
    session = spark or SparkSession.getActiveSession() or _own_session()
    places = [f"{path.rstrip('/')}/{entry['name']}" for entry in manifest["files"]]
    frame = session.read.schema(schema).parquet(*places) if places else session.createDataFrame([], schema)
    frame.__dict__[_MARK] = index
    return frame


def _own_session() -> SparkSession:
    from haply.spark.session import local_session

    return local_session()


def _load(path: str) -> dict[str, Any]:
    """The manifest of an index, after all that it names was found as it says."""
    system, folder = _system(path)
    try:
        with system.open_input_stream(f"{folder}/{MANIFEST}") as source:
            manifest = json.loads(source.read())
    except FileNotFoundError:
        raise _refused(path, f"{MANIFEST} is not there") from None
    except (OSError, ValueError):
        raise _refused(path, f"{MANIFEST} cannot be read") from None
    if not isinstance(manifest, dict) or manifest.get("checksum") != _checksum(manifest):
        raise _refused(path, f"{MANIFEST} was changed")
    if manifest["format"] != FORMAT or manifest["levels"] != list(LEVELS):
        raise _refused(path, f"it was written in format {manifest['format']} by another version of haply")
    for entry in (manifest["pages"], *manifest["files"]):
        try:
            found = _print_of(system, f"{folder}/{entry['name']}")
        except (OSError, pa.ArrowException):
            raise _refused(path, f"{entry['name']} is not there, or cannot be read") from None
        if found != (entry["bytes"], entry["footer"]):
            raise _refused(path, f"{entry['name']} was changed")
    return manifest


def _refused(path: str, why: str) -> HaplyError:
    return HaplyError(
        f"The index {path} cannot be used: {why}", expected="an index as build_index left it",
        hint=f'build it again: hp.build_index(df, column, "{path}", mode="overwrite")',
    )  # fmt: skip


def _checksum(manifest: dict[str, Any]) -> str:
    told = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _print_of(system: fs.FileSystem, place: str) -> tuple[int, str]:
    """Length and a digest of the footer of a Parquet file, which has the sizes and places of all its pages."""
    with system.open_input_file(place) as source:
        size = source.size()
        tail = source.read_at(8, size - 8) if size >= 8 else b""
        length = int.from_bytes(tail[:4], "little") + 8 if tail[4:] == b"PAR1" else 8
        footer = source.read_at(min(length, size), max(0, size - length))
    return size, hashlib.sha256(footer).hexdigest()


def _everywhere(path: str) -> str:
    """A path that means the same to this process, to Spark and to its workers, which may run in other folders."""
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _system(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or address, and the place there."""
    system, place = fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)
    return system, place.rstrip("/") or "/"


def _read_file(path: str, name: str) -> pa.Table:
    system, folder = _system(path)
    try:
        return pq.read_table(f"{folder}/{name}", filesystem=system, page_checksum_verification=True)
    except (OSError, pa.ArrowException):
        raise _refused(path, f"{name} was changed") from None


@lru_cache(maxsize=32)
def _opened(path: str, name: str) -> pq.ParquetFile:
    system, folder = _system(path)
    return pq.ParquetFile(system.open_input_file(f"{folder}/{name}"), page_checksum_verification=True)


def _read_group(path: str, name: str, group: int) -> pa.Table:
    try:
        return _opened(path, name).read_row_group(group)
    except (OSError, pa.ArrowException):
        raise _refused(path, f"{name} was changed or removed") from None
