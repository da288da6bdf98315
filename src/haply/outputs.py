"""Where tables come from and answers go, for the command line: names of files and what they say."""

from __future__ import annotations

from pathlib import Path

from haply.errors import HaplyError

KINDS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
"""Kinds of files by the extension of their names."""


def kind_of(path: str) -> str:
    """Tell the kind of a table's file, or of the files in a folder; it must be there."""
    place = there(path)
    kind = KINDS.get(place.suffix.lower()) or ("parquet" if any(place.glob("*.parquet")) else None)
    if kind is None:
        raise HaplyError(f"{path} is no table", expected="a name that ends in " + ", ".join(KINDS))
    return kind


def there(path: str) -> Path:
    """Refuse a file or folder that does not exist."""
    place = Path(path)
    if not place.exists():
        raise HaplyError(f"There is no file or folder {path}", hint="check the path")
    return place


def check_output(path: str, stream: bool) -> str:
    """Tell the kind of file that an answer goes into; refused before anything is computed."""
    place = Path(path)
    kind = KINDS.get(place.suffix.lower())
    if kind not in ("parquet", "csv") or (stream and kind != "parquet"):
        raise HaplyError(
            f"A result cannot go into {path}",
            expected="a name that ends in .parquet" + ("" if stream else " or .csv"),
        )
    if place.exists() and not (stream and checkpoint_of(place).exists()):
        raise HaplyError(f"{path} is there already", expected="a new name", hint="remove it, or choose another")
    return kind


def checkpoint_of(path: Path) -> Path:
    """Where a stream that writes to a path keeps its checkpoint."""
    return path.with_name(path.name + ".checkpoint")


def value_text(value: object) -> str:
    """Show a value in a table: numbers with six digits, structs and lists by their parts."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {value_text(part)}" for name, part in value.items()) + ")"
    return "[" + ", ".join(map(value_text, value)) + "]" if isinstance(value, list) else str(value)
