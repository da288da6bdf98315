"""Indexed tables: Parquet files in the order of their values, with bounds for every page.

A page is a row group. The x-bounds of its values are stored at some levels (see ``haply.pruning.candidates.xbounds``).
They give, for any threshold, an interval that contains the row intervals of all its rows. So a join reads only the
pages that may match.

A folder holds ``part-*.parquet`` (the rows), ``pages-*.parquet`` (the bounds) and ``_haply_index.json``, which names
all files of the index; the module ``manifest`` describes how concurrent builds use it. Each named file must exist, with
the same length and the same footer. Every page has a digest of its bytes: a join checks that of each page it reads, and
a plain scan those of all pages.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from haply.indexing.manifest import Build, everywhere, load_manifest, print_of, refused, system_of
from haply.joins.cells.rows import bad_row
from haply.models import Model, OneDimensional
from haply.models.columns import read_column
from haply.pruning.candidates.intervals import Ends, Intervals
from haply.pruning.candidates.xbounds import group_bounds, value_bounds
from haply.pruning.threshold import CERTAIN_LEVEL

PAGE_ROWS = 4096
LEVELS = (
    0.0, CERTAIN_LEVEL, 1e-4, 1e-3, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25,
    0.275, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99,
)  # fmt: skip
"""A threshold uses the largest level that is not above its own: finer levels skip more pages."""

PAGE_SCHEMA = pa.schema(
    {
        "file": pa.string(), "bytes": pa.int64(), "footer": pa.string(), "page": pa.int32(), "start": pa.int64(),
        "end": pa.int64(), "digest": pa.binary(), "rows": pa.int64(), "left": pa.list_(pa.float64()),
        "right": pa.list_(pa.float64()), "peak": pa.float64(),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Index:
    """An opened index: where its files are, and the bounds of its pages."""

    path: str
    column: str
    schema: str
    """The columns, as Spark writes them in JSON: any engine can read it."""
    files: tuple[dict[str, Any], ...]
    file: np.ndarray
    group: np.ndarray
    start: np.ndarray
    end: np.ndarray
    digests: tuple[bytes | None, ...]
    """The digest of the page's bytes from start to end; format 1 had none."""
    rows: np.ndarray
    left: np.ndarray
    right: np.ndarray
    page_rows: int

    def __len__(self) -> int:
        return len(self.rows)

    def intervals(self, ends: Ends) -> Intervals:
        """Return for each page an interval that contains those of all its rows, for a condition and threshold."""
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
        """Return the rows of a page, after a check of its bytes."""
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
            found = _digest(_handle(self.path, name, get_ident()), int(self.start[page]), int(self.end[page]))
        except (OSError, pa.ArrowException):
            raise refused(self.path, f"{name} was changed or removed") from None
        if found != known:
            raise refused(self.path, f"page {self.group[page]} of {name} was changed")
        return True


@dataclass(frozen=True)
class WritePages:
    """Writes the rows of a partition into its own file; returns the bounds of its pages (for ``mapInArrow``)."""

    path: str
    build: str
    column: str
    page_rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each page."""
        system, folder = system_of(self.path)
        name = f"part-{self.build}-{uuid.uuid4().hex}.parquet"
        writer: pq.ParquetWriter | None = None
        found: list[dict[str, Any]] = []
        for page in _in_pages(batches, self.page_rows):
            if writer is None:
                sink = system.open_output_stream(f"{folder}/{name}")
                writer = pq.ParquetWriter(sink, page.schema, write_page_checksum=True)
            writer.write_table(page, row_group_size=self.page_rows)
            # The first page begins with the file, so that every byte belongs to a page or to the footer.
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
        yield pa.RecordBatch.from_pylist(found, PAGE_SCHEMA)

    def _bounds(self, page: pa.Table) -> dict[str, Any]:
        read = read_column(page[self.column])
        if len(read.bad_rows):
            raise bad_row(f"Column '{self.column}'", read.example)
        model: Model = read.model
        assert isinstance(model, OneDimensional)
        if not len(model):  # a page with only nulls matches nothing
            empty = np.full(len(LEVELS), np.inf)
            return {"left": empty, "right": -empty, "peak": 0.0}
        bounds = group_bounds(value_bounds(model, np.array(LEVELS)), np.array([0, len(model)]))
        return {"left": bounds.left[0], "right": bounds.right[0], "peak": float(bounds.peak[0])}


def _in_pages(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of one size, except the last."""
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


def commit_pages(
    build: Build, column: str, schema: str, page_rows: int, pages: pa.Table, bounds: pa.Table | None
) -> None:
    """Write the bounds after those of earlier rows, then commit; if that fails, remove these files."""
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
            "schema": schema,
            "levels": list(LEVELS),
            "page_rows": page_rows,
            "files": files,
            "pages": {"name": name, "bytes": size, "footer": footer, "digest": digest},
        }
    )


def _digest(source: pa.NativeFile, start: int, end: int) -> bytes:
    return hashlib.blake2b(source.read_at(end - start, start), digest_size=16).digest()


def open_index(path: str) -> Index:
    """Read the manifest and the bounds of an index, but no rows."""
    path = everywhere(path)
    manifest = load_manifest(path)
    check_levels(manifest, path)
    table = read_bounds(path, manifest)
    left, right = (
        table[name].combine_chunks().flatten().to_numpy().reshape(-1, len(LEVELS)) for name in ("left", "right")
    )  # fmt: skip
    file, group, start, end, rows = (table[name].to_numpy() for name in ("file", "page", "start", "end", "rows"))
    return Index(
        path, manifest["column"], manifest["schema"], tuple(manifest["files"]), file, group, start, end,
        tuple(table["digest"].to_pylist()), rows, left, right, manifest["page_rows"],
    )  # fmt: skip


def forget_open_files() -> None:
    """Close files that this process has open, as they may have been replaced."""
    _handle.cache_clear()
    _opened.cache_clear()


def check_levels(manifest: dict[str, Any], path: str) -> None:
    if manifest["levels"] != list(LEVELS):
        raise refused(path, f"it was written in format {manifest['format']} by another version of haply")


def read_bounds(path: str, manifest: dict[str, Any]) -> pa.Table:
    """Read the bounds of the pages; format 1 had no digests of them."""
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
def _handle(path: str, name: str, thread: int) -> pa.NativeFile:
    """Open a file for one thread: a file handle has one position."""
    system, folder = system_of(path)
    return system.open_input_file(f"{folder}/{name}")


@lru_cache(maxsize=32)
def _opened(path: str, name: str, thread: int) -> pq.ParquetFile:
    return pq.ParquetFile(_handle(path, name, thread), page_checksum_verification=True)


def _read_group(path: str, name: str, group: int) -> pa.Table:
    try:
        return _opened(path, name, get_ident()).read_row_group(group)
    except (OSError, pa.ArrowException):
        raise refused(path, f"{name} was changed or removed") from None
