"""Pack haply into one zip, which Spark can send to its workers."""

from __future__ import annotations

import importlib.resources
import io
import zipfile
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

from haply.errors import HaplyError

_ALWAYS = (1980, 1, 1, 0, 0, 0)
"""The date of all files: the same sources make the same zip."""


def pack(path: str | Path) -> Path:
    """Write the package haply, without the packages that it needs, into a zip; returns its path."""
    target = Path(path)
    if target.suffix != ".zip":
        raise HaplyError(f"haply cannot be packed into {target}", expected="a name that ends in .zip")
    target.write_bytes(packed())
    return target


def packed() -> bytes:
    """Return the zip. It is made from wherever haply was loaded: a folder, or a zip."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(_files(importlib.resources.files("haply"), "haply")):
            archive.writestr(zipfile.ZipInfo(name, _ALWAYS), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return zipped.getvalue()


def _files(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for file in folder.iterdir():
        path = f"{name}/{file.name}"
        if file.is_dir() and file.name != "__pycache__":
            yield from _files(file, path)
        elif file.name.endswith((".py", ".typed", ".html")):
            yield path, file
