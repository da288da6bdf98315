"""Files as tables of this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from haply.engines.local import sql
from haply.engines.local.frame import LocalFrame, no_rows, usual_types
from haply.engines.local.marks import marks_in
from haply.errors import HaplyError
from haply.outputs import KINDS, files_of

_TEXTS = {"csv": "read_csv", "json": "read_json"}
"""How DuckDB reads files of text."""


def file_frame(path: str, where: str) -> LocalFrame:
    """Return the table in a file, a folder or all files of a pattern; errors name it by ``where``."""
    found = files_of(path)
    if not found:
        raise HaplyError(
            f"{where}: there is no file '{path}'", expected="a path, a folder or a pattern like 'out/*.parquet'"
        )
    suffix = Path(found[0]).suffix.lower()
    kind = KINDS.get(suffix)
    if kind is None:
        raise HaplyError(
            f"{where}: the kind of '{path}' is not known", expected=", ".join(KINDS), found=suffix or "none"
        )
    if kind == "parquet":
        written = pq.read_schema(found[0])
        schema = usual_types(no_rows(written)).schema

        def load(names: Sequence[str]) -> pa.Table:
            return usual_types(_parquet(found, list(names))).replace_schema_metadata(None)

        frame = LocalFrame(schema.remove_metadata(), load, _as_it_is, path)
        marks = marks_in(written)
        return frame.marked(marks) if marks else frame
    if kind in _TEXTS:
        return _texts(f"{_TEXTS[kind]}([{', '.join(map(_literal, found))}])", path)
    held = usual_types(pa.concat_tables([_whole(kind, one) for one in found]))
    return LocalFrame(held.schema, held.select, _as_it_is, path)


def _parquet(files: Sequence[str], names: list[str]) -> pa.Table:
    """Read columns; of one file each comes in one piece, which need not be put together from many."""
    # A file by itself takes a dot in a name for a part of a struct, and has no rows without columns.
    if len(files) > 1 or not names or any("." in name for name in names):
        return pq.read_table(files, columns=names)
    with pq.ParquetFile(files[0]) as file:
        return file.read(names).select(names)


def _texts(reader: str, path: str) -> LocalFrame:
    schema = sql.run(f"SELECT * FROM {reader} LIMIT 0").schema

    def load(names: Sequence[str]) -> pa.Table:
        return sql.run(f"SELECT {', '.join(map(sql.quoted, names))} FROM {reader}")

    return LocalFrame(schema, load, _as_it_is, path)


def _whole(kind: str, path: str) -> pa.Table:
    if kind == "arrow":
        try:
            with pa.memory_map(path) as source:
                return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            raise HaplyError(
                f"{path} is not an Arrow file", hint="write it with pyarrow.feather.write_feather"
            ) from None
    from haply.engines.local.files.astro import read_astro

    return read_astro(path, kind)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _as_it_is(table: pa.Table) -> pa.Table:
    return table
