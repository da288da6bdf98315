"""Lists of numbers of different lengths, one per row, in two flat arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from haply.errors import HaplyError


@dataclass(frozen=True)
class Ragged:
    """Row ``i`` is ``values[start[i]:start[i + 1]]``: the layout of an Arrow list array."""

    values: np.ndarray
    start: np.ndarray

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Return how many numbers each row has."""
        return np.diff(self.start)

    @property
    def nbytes(self) -> int:
        """Return the memory of all numbers."""
        return self.values.nbytes + self.start.nbytes

    def row(self, i: int) -> np.ndarray:
        """Return the numbers of one row."""
        return self.values[self.start[i] : self.start[i + 1]]

    def any_by_row(self, flags: np.ndarray) -> np.ndarray:
        """Return for each row whether a flag given per value is set for one of its values."""
        counts = np.concatenate([[0], np.cumsum(flags)])
        return counts[self.start[1:]] > counts[self.start[:-1]]

    def sums(self) -> np.ndarray:
        """Sum of each row; 0 for an empty one."""
        if len(self.values) == 0:
            return np.zeros(len(self))
        padded = np.concatenate([self.values, [0.0]])
        sums = np.add.reduceat(padded, np.minimum(self.start[:-1], len(self.values)))
        return np.where(self.lengths > 0, sums, 0.0)

    def owner(self) -> np.ndarray:
        """Return the row that each value belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def reversed(self) -> Ragged:
        """Return each row from its end."""
        at = np.arange(len(self.values))
        begin, end = (np.repeat(ends, self.lengths) for ends in (self.start[:-1], self.start[1:]))
        return Ragged(self.values[begin + end - 1 - at], self.start)

    def take(self, rows: np.ndarray) -> Ragged:
        """Return the given rows, in the given order."""
        lengths = self.lengths[rows]
        start = np.concatenate([[0], np.cumsum(lengths)])
        within = np.arange(start[-1]) - np.repeat(start[:-1], lengths)
        return Ragged(self.values[np.repeat(self.start[:-1][rows], lengths) + within], start)

    @classmethod
    def of(cls, rows: NumberLists, name: str) -> Ragged:
        """From a list of lists, a two-dimensional array, one flat list (a single row), or an Arrow list array."""
        if isinstance(rows, Ragged):
            return rows
        if isinstance(rows, (pa.Array, pa.ChunkedArray)):
            return cls.from_arrow(rows)
        if isinstance(rows, np.ndarray) and rows.ndim > 1 and rows.dtype.kind in "iuf":
            values = np.ascontiguousarray(rows, dtype=np.float64).reshape(-1)
            length = math.prod(rows.shape[1:])
            return cls(values, np.arange(len(rows) + 1, dtype=np.int64) * length)
        try:
            items = list(rows)  # type: ignore[arg-type]
            if items and np.ndim(items[0]) == 0:
                items = [items]
            arrays = [np.asarray(item, dtype=np.float64).ravel() for item in items]
        except (TypeError, ValueError) as problem:
            raise HaplyError(
                f"Parameter '{name}' cannot be read",
                expected="a list of numbers for each row",
                found=f"{type(rows).__name__} ({problem})",
                hint="wrap the numbers of one row in a list: [[0, 1, 3]]",
            ) from problem
        values = np.concatenate(arrays) if arrays else np.empty(0)
        return cls(values, np.concatenate([[0], np.cumsum([len(array) for array in arrays])]).astype(np.int64))

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray) -> Ragged:
        """View an Arrow list array of numbers without nulls; double values are not copied."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            if pa.types.is_list(array.type.value_type):  # nested points: row by row into one flat list
                inner = array.values.slice(array.offsets[0].as_py(), None)
                steps = np.asarray(inner.offsets) - inner.offsets[0].as_py()
                start = steps[np.asarray(array.offsets) - array.offsets[0].as_py()]
                return cls(floats(inner.flatten()), start.astype(np.int64))
            first = array.offsets[0].as_py() if len(array) else 0
            last = array.offsets[len(array)].as_py() if len(array) else 0
            start = np.asarray(array.offsets)[: len(array) + 1].astype(np.int64) - first
            return cls(floats(array.values.slice(first, last - first)), start if len(array) else np.zeros(1, np.int64))
        if pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
            return cls(floats(array.flatten()), np.arange(len(array) + 1, dtype=np.int64) * size)
        raise HaplyError("A column cannot be read as lists of numbers", expected="an Arrow list", found=str(array.type))

    def to_arrow(self) -> pa.Array:
        """Return an Arrow list array over the same values."""
        return pa.ListArray.from_arrays(as_arrow(self.start.astype(np.int32)), as_arrow(self.values))


NumberLists: TypeAlias = ArrayLike | Ragged | pa.Array | pa.ChunkedArray
"""A list of numbers for each row: nested lists, a two-dimensional array, or an Arrow list array."""


def in_one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy if it is one; Arrow copies it, and without rows imports pandas."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)


def as_arrow(values: np.ndarray) -> pa.Array:
    """Return numbers without a copy, or truth values, as an Arrow array.

    ``pa.array`` looks whether they are a column of pandas, and imports pandas for that, which takes longer than a small
    join.
    """
    if values.dtype == bool:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def as_numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """View numbers without nulls as NumPy's, or return truth values; Arrow's ``to_numpy`` imports pandas, too."""
    array = in_one_piece(array)
    data, size = array.buffers()[1], len(array)
    if pa.types.is_boolean(array.type):
        if not size:
            return np.empty(0, bool)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=array.offset + size, bitorder="little")
        return bits[array.offset :].view(bool)
    kind = np.dtype(array.type.to_pandas_dtype())
    # Arrow may have more memory than numbers, and none for no numbers.
    found = np.frombuffer(data, kind, size, array.offset * kind.itemsize) if size else np.empty(0, kind)
    found.flags.writeable = False
    return found


def floats(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return the numbers of an Arrow array without nulls as float64; doubles are viewed, other types converted."""
    array = in_one_piece(array)
    if array.type != pa.float64():
        array = pc.cast(array, pa.float64(), safe=False)
    return as_numpy(array)
