"""Points and matrices in lists: flat or nested, as people write them, made flat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.errors import HaplyError
from haply.models.ragged import Ragged


def flat_points(column: pa.Array, dim: int | None) -> tuple[pa.Array, pa.Array]:
    """Make points flat lists, and return how many numbers a point has; null rows stay null.

    Flat ones have ``dim`` numbers a point, 1 if it is not given.
    """
    read = on_known_rows(lambda known: _flat_points(known, dim), column)
    return pc.struct_field(read, "points"), pc.struct_field(read, "dim")


def _flat_points(column: pa.Array, dim: int | None) -> pa.Array:
    if not pa.types.is_list(column.type.value_type):
        dims, values = np.full(len(column), dim or 1), column.cast(pa.list_(pa.float64()))
    else:
        lengths = np.asarray(pc.list_value_length(column.flatten()))
        first = np.asarray(column.offsets)[:-1] - column.offsets[0].as_py()
        has_points = np.diff(np.asarray(column.offsets)) > 0
        dims = np.ones(len(column), dtype=np.int64)
        dims[has_points] = lengths[first[has_points]]
        if dim is not None and (dims[has_points] != dim).any():
            raise HaplyError(
                "Samples have another dimension than given",
                expected=f"dim = {dim}",
                found=f"points of {dims[has_points][0]} numbers",
            )
        values = Ragged.from_arrow(column).to_arrow()
    return pa.StructArray.from_arrays([values, pa.array(dims.astype(np.int32))], ["points", "dim"])


def flat_matrices(column: pa.Array) -> pa.Array:
    """Make matrices flat lists, row by row; a matrix with a null row is null."""
    return on_known_rows(_flat_matrices, column)


def _flat_matrices(matrices: pa.Array) -> pa.Array:
    if not pa.types.is_list(matrices.type.value_type):
        return matrices.cast(pa.list_(pa.float64()))
    rows = matrices.flatten()
    row_ends = np.append(0, np.cumsum(pc.list_value_length(rows).fill_null(0).to_numpy()))
    ends = np.append(0, np.cumsum(pc.list_value_length(matrices).to_numpy()))
    flat = pa.ListArray.from_arrays(pa.array(row_ends[ends], pa.int32()), rows.flatten().cast(pa.float64()))
    unknown_rows = np.append(0, np.cumsum(pc.is_null(rows).to_numpy(zero_copy_only=False)))
    return flat.take(pa.array(np.arange(len(flat)), mask=unknown_rows[ends[1:]] > unknown_rows[ends[:-1]]))


def on_known_rows(read: Callable[[pa.Array], pa.Array], column: pa.Array) -> pa.Array:
    """Apply a function of arrays without nulls to the rows that are not null."""
    rows = pa.array(np.flatnonzero(np.asarray(pc.is_valid(column))))
    found = read(column.take(rows))
    if len(rows) == len(column):
        return found
    place = np.full(len(column), -1)
    place[rows.to_numpy()] = np.arange(len(rows))
    return found.take(pa.array(place, mask=place < 0))
