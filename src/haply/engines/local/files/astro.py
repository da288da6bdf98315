"""FITS and VOTable files, by astropy, which is installed with the extra ``astro``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError

_SPOKEN = {"fits": "FITS", "votable": "VOTable"}


def _astropy_table(path: str, kind: str) -> Any:
    """Import astropy, which takes long and which most people do not need."""
    try:
        from astropy.table import Table as AstropyTable
    except ImportError:
        raise HaplyError(
            f"The {_SPOKEN[kind]} file {path} needs astropy, which is not installed",
            hint='pip install "haply[astro]"',
        ) from None
    return AstropyTable


def read_astro(path: str, kind: str) -> pa.Table:
    """Read the first table of a file. Masked values are null, and units are kept in the metadata of the columns."""
    table = _astropy_table(path, kind)
    try:
        found = table.read(path, format=kind, **({"hdu": _first_table(path)} if kind == "fits" else {}))
    except (OSError, ValueError, IndexError, TypeError) as refusal:
        raise HaplyError(f"{path} cannot be read as {_SPOKEN[kind]}: {' '.join(str(refusal).split())}") from None
    columns = [found[name] for name in found.colnames]
    fields, arrays = [], []
    for column in columns:
        array = _arrow(column)
        unit = None if column.unit is None else {"unit": str(column.unit)}
        fields.append(pa.field(column.name, array.type, metadata=unit))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _first_table(path: str) -> int:
    """Find the first part of a FITS file that holds a table: astropy warns where there are several."""
    from astropy.io import fits

    with fits.open(path) as parts:
        tables = [k for k, part in enumerate(parts) if isinstance(part, (fits.BinTableHDU, fits.TableHDU))]
    return tables[0]


def _arrow(column: Any) -> pa.Array:
    """Return a column of astropy as Arrow: in this machine's byte order, texts as texts, several numbers as a list."""
    mask = np.asarray(getattr(column, "mask", False))
    values = np.asarray(getattr(column, "filled", lambda: column)() if column.dtype.kind != "f" else column.data)
    if values.ndim > 1:
        return pa.array(values.tolist())
    missing = np.broadcast_to(mask, values.shape) if mask.ndim <= 1 else None
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind in "UO":
        texts = [_plain(value) for value in values.tolist()]
        return pa.array([None if gone else text for text, gone in zip(texts, _each(missing, len(texts)), strict=True)])
    return pa.array(values.astype(values.dtype.newbyteorder("=")), mask=missing)


def _plain(value: Any) -> Any:
    """Return a value of a column of Python objects as Arrow takes it: texts, and arrays of any length as lists."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.tolist() if isinstance(value, np.ndarray) else value


def _each(missing: np.ndarray | None, count: int) -> list[bool]:
    return [False] * count if missing is None else missing.tolist()


def write_astro(table: pa.Table, path: str, kind: str, target: str) -> None:
    """Write a table of numbers, texts and lists of one length; nulls are masked. Errors name the ``path``."""
    astropy = _astropy_table(path, kind)
    found = astropy()
    from astropy.table import MaskedColumn

    for name, column in zip(table.column_names, table.columns, strict=True):
        unit = (table.schema.field(name).metadata or {}).get(b"unit")
        missing = np.asarray(column.is_null())
        if pa.types.is_string(column.type) or pa.types.is_temporal(column.type):
            values = np.array([str(value) if value is not None else "" for value in column.to_pylist()], dtype=str)
        else:
            values = column.fill_null(0).to_numpy() if column.null_count else column.to_numpy()
        made = MaskedColumn(values, mask=missing) if missing.any() else values
        found[name] = made
        if unit is not None:
            found[name].unit = unit.decode()
    try:
        found.write(target, format=kind)
    except (OSError, ValueError, TypeError) as refusal:
        raise HaplyError(f"{path} cannot be written as {_SPOKEN[kind]}: {' '.join(str(refusal).split())}") from None
