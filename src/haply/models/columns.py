"""Columns of uncertain values: the kind of a column, and its rows as a model, separated from null and bad rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.errors import HaplyError
from haply.models.asymmetric import Asymmetric
from haply.models.base import Model
from haply.models.measurements import TWO_ERRORS
from haply.models.multi_dimensional import GaussianND, MixtureND
from haply.models.one_dimensional import (
    Certain,
    Gaussian,
    Histogram,
    Mixture,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.models.ragged import as_arrow, as_numpy, in_one_piece
from haply.models.sky import Sky, SkyEllipse

MODELS: tuple[type[Model], ...] = (
    Certain,
    Uniform,
    Gaussian,
    TruncatedGaussian,
    Mixture,
    Histogram,
    Samples,
    Asymmetric,
    GaussianND,
    MixtureND,
    Sky,
    SkyEllipse,
)

_BY_FIELDS = {
    frozenset(parameter.name for parameter in model.parameters): model for model in MODELS if model != Certain
}
BY_KIND = {model.kind: model for model in MODELS}

UNREAD: dict[type[Model], str] = {
    Gaussian: "mean and sd are NaN (as hp.parse makes them of a text that it cannot read)",
    Asymmetric: "mode, minus and plus are NaN (as hp.parse_asymmetric makes them of a text that it cannot read)",
}
"""Why a text that cannot be read is a bad row."""
UNREAD_ERRORS = (
    "mean is NaN and sd is -1 (as hp.parse makes them of a text with two errors: hp.parse_asymmetric reads these, and "
    "hp.asymmetric takes them from two columns)"
)

_Model = TypeVar("_Model", bound=Model)


def model_of_fields(names: Iterable[str]) -> type[Model] | None:
    """Return the model whose struct has just these fields, if there is one."""
    return _BY_FIELDS.get(frozenset(names))


def model_of_type(arrow_type: pa.DataType) -> type[Model] | None:
    """Return the model an Arrow column of this type holds, if any: structs by their field names, numbers are certain.

    A list of numbers is a certain point: a single sample.
    """
    if pa.types.is_struct(arrow_type):
        return model_of_fields(arrow_type.field(i).name for i in range(arrow_type.num_fields))
    if pa.types.is_list(arrow_type):
        return Samples if model_of_type(arrow_type.value_type) is Certain else None
    if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type):
        return Certain
    return None


def _as_struct(array: pa.Array) -> pa.Array:
    """Certain points as samples, one each."""
    if not pa.types.is_list(array.type):
        return array
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    nothing = pa.nulls(len(array), pa.list_(pa.float64()))
    return pa.StructArray.from_arrays([array, nothing, lengths], ["points", "probs", "dim"], mask=pc.is_null(array))


@dataclass(frozen=True)
class ReadColumn:
    """The good rows of a column as a model, and the null and bad ones."""

    model: Model
    rows: np.ndarray
    """Position in the column of each row of the model."""
    bad_rows: np.ndarray
    """Positions of rows that are not a distribution."""
    bad_reasons: list[str]
    example: str
    """The first bad row, as an error shows it."""


def null_rows(array: pa.Array, model: type[Model]) -> np.ndarray:
    """Mark rows that are null: the struct itself, a parameter but ``probs`` of samples, or a number in a list."""
    null = as_numpy(pc.is_null(array)) if array.null_count else np.zeros(len(array), bool)
    if model is Certain:
        return null
    for parameter in model.parameters:
        field = array.field(parameter.name)
        if field.null_count and not parameter.shape.startswith("optional"):
            null = null | as_numpy(pc.is_null(field))
        if parameter.is_list and isinstance(field, (pa.ListArray, pa.LargeListArray)) and field.values.null_count:
            gaps = np.concatenate([[0], np.cumsum(np.asarray(pc.is_null(field.values)))])
            offsets = np.asarray(field.offsets)
            null = null | (gaps[offsets[1:]] > gaps[offsets[:-1]])
    return null


def view_column(array: pa.Array | pa.ChunkedArray) -> Model:
    """Return a column without null or bad rows as its model, without checks and without a copy."""
    array = in_one_piece(array)
    model_class = model_of_type(array.type)
    assert model_class is not None
    return model_class.view(model_class.fields(_as_struct(array)))


def stacked(models: Sequence[_Model]) -> _Model:
    """Return the rows of models of one kind one after the other.

    In new, writable arrays: for read-only views of Arrow, kernels would be compiled again.
    """
    kind = type(models[0])
    together = kind.view(kind.fields(pa.concat_arrays([model.to_arrow() for model in models])))
    return together.take(np.arange(len(together)))


def read_column(array: pa.Array | pa.ChunkedArray) -> ReadColumn:
    """Split a column into good rows (as a model), null rows and bad rows. Without nulls nothing is copied."""
    array = in_one_piece(array)
    model_class = model_of_type(array.type)
    if model_class is None:
        raise HaplyError(
            "A column holds no uncertain values", expected="a number or a model struct", found=str(array.type)
        )
    array = _as_struct(array)
    null, rows = null_rows(array, model_class), np.arange(len(array))
    if null.any():
        rows = np.flatnonzero(~null)
        array = array.take(as_arrow(rows))
    model = model_class.view(model_class.fields(array))
    codes, reasons = model.problem_codes()
    bad = np.flatnonzero(codes >= 0)
    if not len(bad):
        return ReadColumn(model, rows, bad, [], "")
    good = np.flatnonzero(codes < 0)
    told = [_unread(model, int(row)) or reasons[code] for row, code in zip(bad, codes[bad], strict=True)]
    example = f"{told[0]} in {model.show(int(bad[0]))}"
    return ReadColumn(model.take(good), rows[good], rows[bad], told, example)


def _unread(model: Model, row: int) -> str:
    """Return the reason for a bad row whose text could not be read; empty if it is bad for another reason."""
    if type(model) not in UNREAD:
        return ""
    numbers = [float(model.values[parameter.name][row]) for parameter in model.parameters]
    if all(map(math.isnan, numbers)):
        return UNREAD[type(model)]
    return UNREAD_ERRORS if math.isnan(numbers[0]) and numbers[1:] == [TWO_ERRORS] else ""


def bad_reasons(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return for each row of a column why it is not a distribution; null where it is one, or is null."""
    read = read_column(array)
    out: list[str | None] = [None] * len(array)
    for row, reason in zip(read.bad_rows, read.bad_reasons, strict=True):
        out[row] = reason
    return pa.array(out, pa.string())
