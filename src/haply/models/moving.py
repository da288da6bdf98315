"""Columns of uncertain values moved to another place, or with other errors. Null rows stay null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.errors import HaplyError
from haply.models.base import Model, Parameter
from haply.models.columns import model_of_type
from haply.models.multi_dimensional import GaussianND, MixtureND
from haply.models.one_dimensional import Certain, Gaussian, Samples
from haply.models.sky import Sky, SkyEllipse
from haply.numerics.multivariate.sphere import ARCSECONDS

GAUSSIANS: tuple[type[Model], ...] = (Gaussian, GaussianND, Sky, SkyEllipse)
"""Models whose errors can be scaled within the same model."""

_NUMBERS = pa.list_(pa.float64())


def moved(array: pa.Array, by: Sequence[float]) -> pa.Array:
    """Move all values by a vector: one number for numbers, arcseconds to the east and north on the sky.

    On the sky a place moves along a great circle, which begins in this direction: so the poles and right ascension 0
    need no special case. Errors keep their angle to the north.
    """
    model = model_of_type(array.type)
    assert model is not None
    if issubclass(model, Sky):
        _refuse(np.full(1, 2), len(by))
        return _replaced(array, _moved_on_the_sky(array.field("ra"), array.field("dec"), by[0], by[1]))
    if pa.types.is_list(array.type):
        _refuse(_counts(array), len(by))
        return _moved_list(array, by)
    if model is Certain:
        _refuse(np.full(1, 1), len(by))
        return pc.add(array.cast(pa.float64(), safe=False), float(by[0]))
    _refuse(_dimensions(array, model), len(by))
    return _replaced(array, {one.name: _moved_field(array, one, by) for one in model.parameters if one.moves})


def rescaled(array: pa.Array, scale: float, extra: float) -> pa.Array:
    """Make variances ``scale**2`` as large, and add ``extra**2`` to that of every axis: for ``GAUSSIANS`` and certain
    values, which are given an error if there is an extra one.
    """
    model = model_of_type(array.type)
    if model is Certain:
        mean = array.cast(pa.float64(), safe=False)
        return array if extra == 0.0 else _struct({"mean": mean, "sd": _like(mean, extra)}, array)
    if pa.types.is_list(array.type):
        if extra == 0.0:
            return array
        counts = _counts(array)
        return _struct({"mean": array.cast(_NUMBERS), "cov": _lists(_identities(counts, extra**2), counts**2)}, array)
    if model is Gaussian:
        return _replaced(array, {"sd": _wider(array.field("sd"), scale, extra)})
    if model is GaussianND:
        cov = array.field("cov")
        dims = _counts(array.field("mean"))
        values = scale**2 * cov.flatten().to_numpy(zero_copy_only=False)
        dims = np.where(_counts(cov) == dims**2, dims, 0)  # a bad row, or null
        at = np.repeat(np.append(0, np.cumsum(_counts(cov)))[:-1], dims)
        step = np.arange(len(at)) - np.repeat(np.cumsum(dims) - dims, dims)
        values[at + step * (np.repeat(dims, dims) + 1)] += extra**2
        return _replaced(array, {"cov": _lists(values, _counts(cov), cov)})
    assert model is not None
    assert issubclass(model, Sky)
    names = ("major", "minor") if issubclass(model, SkyEllipse) else ("ra_error", "dec_error")
    fields = {name: _wider(array.field(name), scale, extra) for name in names}
    if not issubclass(model, SkyEllipse):
        before = pc.multiply(array.field("ra_error"), array.field("dec_error"))
        after = pc.multiply(fields["ra_error"], fields["dec_error"])
        share = pc.if_else(pc.equal(after, 0.0), 0.0, pc.divide(pc.multiply(before, scale**2), after))
        fields["corr"] = pc.multiply(array.field("corr"), share)
    return _replaced(array, fields)


# -- places ------------------------------------------------------------------------------------------------------------


def _refuse(dims: np.ndarray, given: int) -> None:
    wrong = dims[dims != given]
    if len(wrong):
        raise HaplyError(
            "Values are moved by a vector of another dimension",
            expected=f"{int(wrong[0])} number{'s' * (int(wrong[0]) != 1)}",
            found=str(given),
        )


def _dimensions(array: pa.Array, model: type[Model]) -> np.ndarray:
    """Return the dimension of each row that is not null."""
    known = np.asarray(array.is_valid())
    if model is GaussianND:
        return _counts(array.field("mean"))[known]
    if model is MixtureND:
        return (_counts(array.field("means")) // np.maximum(_counts(array.field("weights")), 1))[known]
    if model is Samples:
        return np.asarray(pc.fill_null(array.field("dim"), 1))[known]
    return np.ones(1, np.int64)


def _moved_field(array: pa.Array, parameter: Parameter, by: Sequence[float]) -> pa.Array:
    field = array.field(parameter.name)
    return _moved_list(field, by) if parameter.is_list else pc.add(field.cast(pa.float64()), float(by[0]))


def _moved_list(array: pa.Array, by: Sequence[float]) -> pa.Array:
    """Lists of coordinates, point after point."""
    counts = _counts(array)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    values = array.flatten().cast(pa.float64())
    return _lists(pc.add(values, pa.array(np.asarray(by, np.float64)[within % len(by)])), counts, array)


def _moved_on_the_sky(ra: pa.Array, dec: pa.Array, east: float, north: float) -> dict[str, pa.Array]:
    """Return the end of the great circle that begins at a place in a direction."""
    alpha, delta = (np.radians(np.asarray(one.cast(pa.float64()).fill_null(np.nan))) for one in (ra, dec))
    length = float(np.hypot(east, north))
    if length == 0.0:
        return {"ra": ra, "dec": dec}
    angle, e, n = length / ARCSECONDS, east / length, north / length
    cos_a, sin_a, cos_d, sin_d = np.cos(alpha), np.sin(alpha), np.cos(delta), np.sin(delta)
    x = np.cos(angle) * cos_d * cos_a + np.sin(angle) * (-e * sin_a - n * sin_d * cos_a)
    y = np.cos(angle) * cos_d * sin_a + np.sin(angle) * (e * cos_a - n * sin_d * sin_a)
    z = np.cos(angle) * sin_d + np.sin(angle) * n * cos_d
    # a tiny negative angle is rounded to a whole turn
    turned = np.degrees(np.arctan2(y, x)) % 360.0
    new_ra, new_dec = np.where(turned == 360.0, 0.0, turned), np.degrees(np.arctan2(z, np.hypot(x, y)))
    unknown = np.asarray(pc.or_(ra.is_null(), dec.is_null()))
    return {"ra": pa.array(new_ra, mask=unknown), "dec": pa.array(new_dec, mask=unknown)}


# -- errors ------------------------------------------------------------------------------------------------------------


def _wider(sd: pa.Array, scale: float, extra: float) -> pa.Array:
    if extra == 0.0:  # works also where a square leaves the range of doubles
        return pc.multiply(sd.cast(pa.float64()), float(scale))
    values = np.asarray(sd.cast(pa.float64()).fill_null(np.nan))
    return pa.array(np.hypot(scale * values, extra), mask=np.asarray(sd.is_null()))


def _identities(dims: np.ndarray, value: float) -> np.ndarray:
    """Matrices with a value on their diagonals, row by row, one after another."""
    return np.concatenate([value * np.eye(dim).ravel() for dim in dims.tolist()] or [np.zeros(0)])


# -- Arrow -------------------------------------------------------------------------------------------------------------


def _counts(array: pa.Array) -> np.ndarray:
    """Return how many values of each list ``flatten`` returns; 0 if it is null."""
    return np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)


def _lists(values: pa.Array | np.ndarray, counts: np.ndarray, like: pa.Array | None = None) -> pa.Array:
    """Lists of these lengths, null where those of another array are."""
    ends = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))
    values = values if isinstance(values, pa.Array) else pa.array(values)
    mask = like.is_null() if like is not None and like.null_count else None
    return pa.ListArray.from_arrays(ends, values, mask=mask)


def _like(array: pa.Array, value: float) -> pa.Array:
    return pa.array(np.full(len(array), value))


def _struct(fields: Mapping[str, pa.Array], like: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=like.is_null())


def _replaced(array: pa.Array, fields: Mapping[str, pa.Array]) -> pa.Array:
    """Return a struct with other values of some fields."""
    names = [array.type.field(k).name for k in range(array.type.num_fields)]
    return _struct({name: fields.get(name, array.field(name)) for name in names}, array)
