"""Files of tables and results: their kinds by name, and checks before anything runs, the same for both engines."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection
from pathlib import Path

from haply.errors import HaplyError

KINDS = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".fits": "fits", ".fit": "fits", ".vot": "votable",
    ".votable": "votable", ".xml": "votable",
}  # fmt: skip
"""Kinds of files by the extension of their names."""

ON_SPARK = ("parquet", "csv", "json")
"""Kinds that Spark reads and writes itself."""


def files_of(path: str) -> list[str]:
    """List the files of a path, a folder or a pattern; empty if there are none."""
    place = Path(path)
    if place.is_dir():
        inside = (one for one in place.iterdir() if one.suffix.lower() in KINDS)
        return sorted(str(one) for one in inside if not one.name.startswith(("_", ".")))
    return sorted(glob.glob(path)) if glob.has_magic(path) and not place.exists() else [path] * place.exists()


def kind_of(path: str) -> str:
    """Return the kind of a table's file, or of the files in a folder or of a pattern; they must exist."""
    found = files_of(path)
    if not found:
        there(path)
    kinds = {KINDS.get(Path(one).suffix.lower()) for one in found}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        raise HaplyError(f"{path} is not a table", expected="a name that ends in " + ", ".join(KINDS))
    return kind


def there(path: str) -> Path:
    """Refuse a file or folder that does not exist, or a pattern that no file has."""
    place = Path(path)
    if not place.exists():
        what = "file for the pattern" if glob.has_magic(path) else "file or folder"
        raise HaplyError(f"There is no {what} {path}", hint="check the path")
    return place


def check_output(path: str, stream: bool, kinds: Collection[str] = tuple(KINDS.values())) -> str:
    """Return the kind of the file that a result goes into, or refuse it before anything is computed."""
    place = Path(path)
    kind = KINDS.get(place.suffix.lower())
    allowed = ("parquet",) if stream else kinds
    if kind is None or kind not in allowed or place.suffix.lower() == ".tsv":
        endings = [ending for ending, one in KINDS.items() if one in allowed and ending != ".tsv"]
        raise HaplyError(f"A result cannot go into {path}", expected="a name that ends in " + ", ".join(endings))
    if place.exists() and not (stream and checkpoint_of(place).exists()):
        raise HaplyError(f"{path} exists already", expected="a new name", hint="remove it, or choose another")
    return kind


def check_folder(path: str) -> None:
    """Refuse a file whose folder does not exist, or cannot be written into."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise HaplyError(f"There is no folder {folder} for {Path(path).name}", hint=f"mkdir -p {folder} makes it")
    if not os.access(folder, os.W_OK):
        raise HaplyError(f"Nothing can be written into the folder {folder}", hint="check its permissions")


def checkpoint_of(path: Path) -> Path:
    """Return where a stream that writes to a path keeps its checkpoint."""
    return path.with_name(path.name + ".checkpoint")


def value_text(value: object) -> str:
    """Show a value in a table: numbers with six digits, structs and lists by their parts."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {value_text(part)}" for name, part in value.items()) + ")"
    return "[" + ", ".join(map(value_text, value)) + "]" if isinstance(value, list) else str(value)
