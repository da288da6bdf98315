"""Find the rows of each dimension: only points of one dimension meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haply.errors import HaplyError
from haply.models import GaussianND, MixtureND, Model, Samples, Sky


def dimensions(model: Model) -> np.ndarray:
    """Count the coordinates of each row."""
    if isinstance(model, GaussianND):
        return model.mean().lengths
    if isinstance(model, MixtureND):
        return model.means.lengths // np.maximum(model.weights.lengths, 1)
    if isinstance(model, Sky):
        return np.full(len(model), 3)
    return np.asarray(model.dim) if isinstance(model, Samples) else np.ones(len(model), np.int64)


def known_dimensions(dims: np.ndarray) -> list[int]:
    """List the dimensions that occur; mostly it is one."""
    if len(dims) and (dims == dims[0]).all():
        return [int(dims[0])]
    return [int(dim) for dim in np.unique(dims)]


def of_dimension(model: Model, dims: np.ndarray, dim: int) -> tuple[Model, np.ndarray]:
    """Return the rows of one dimension, and their numbers; nothing is copied if all rows have it."""
    rows = np.flatnonzero(dims == dim)
    return (model if len(rows) == len(dims) else model.take(rows)), rows


def shared_dimensions(sides: Sequence[np.ndarray], raises: bool) -> list[int]:
    """List the dimensions that occur on any side; if ``raises``, more than one is an error."""
    known = sorted({dim for dims in sides for dim in known_dimensions(dims)})
    if len(known) > 1 and raises:
        raise dimensions_differ(known[0], known[-1])
    return known


def dimensions_differ(expected: int, found: int) -> HaplyError:
    """Make the error for points whose dimensions differ."""
    return HaplyError(
        "Points differ in dimension",
        expected=f"{expected} coordinates, as other rows have",
        found=str(found),
        hint='leave out what fits nothing with invalid="drop"',
    )
