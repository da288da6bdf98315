"""The constructors on Arrow columns, with the same meaning as on Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.engines.local import sql
from haply.errors import HaplyError
from haply.models.points import flat_matrices, flat_points
from haply.models.ragged import as_arrow, in_one_piece
from haply.planning.constructors import PARAMETERS, PLAIN, checked_arguments, fields_of, flattened
from haply.planning.frames import Text

_NUMBER, _NUMBERS = pa.float64(), pa.list_(pa.float64())


@dataclass(frozen=True)
class Constructed:
    """Makes an uncertain column of a table's rows."""

    name: str
    arguments: tuple[Any, ...]

    @property
    def texts(self) -> list[str]:
        """Return the expressions that it is made of."""
        return list(_texts(self.arguments))

    def __call__(self, table: pa.Table) -> pa.Array:
        """Return the column."""
        count = table.num_rows
        given = dict(zip(PARAMETERS[self.name], self.arguments, strict=False))
        return _MAKERS[self.name](_Rows(table, count), given)


def constructed(name: str, arguments: Sequence[Any]) -> Constructed:
    """Check the arguments of a constructor."""
    checked = checked_arguments(name, arguments)
    _refuse_constants(name, dict(zip(PARAMETERS[name], checked, strict=False)))
    return Constructed(name, checked)


def _texts(arguments: Sequence[Any]) -> list[str]:
    found = []
    for argument in arguments:
        if isinstance(argument, Text):
            found.append(argument.sql)
        elif isinstance(argument, (list, tuple)):
            found += _texts(argument)
    return found


def _refuse_constants(name: str, given: dict[str, Any]) -> None:
    """Refuse numbers, and lists of numbers, that are not parameters of a distribution."""
    if name not in PLAIN:
        return
    known = {key: value for key, value in fields_of(name, given).items() if _is_constant(value)}
    if known:
        PLAIN[name].refuse_constants(f"{name}()", known)


def _is_constant(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(one, (int, float)) for one in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class _Rows:
    """Columns of numbers, and of lists of them, from the arguments of a constructor."""

    def __init__(self, table: pa.Table, count: int) -> None:
        self.table, self.count = table, count

    def number(self, argument: Any) -> pa.Array:
        """Return a column of doubles."""
        if isinstance(argument, Text):
            alone = sql.column_alone(self.table, argument.sql)
            if alone is not None and (pa.types.is_integer(alone.type) or alone.type in (pa.float32(), pa.float64())):
                return in_one_piece(alone.cast(pa.float64(), safe=False))  # rounds large numbers, as SQL does
            if self.count == 0 and sql.is_plain_arithmetic(self.table, argument.sql):
                return pa.array([], pa.float64())
            return in_one_piece(sql.evaluated(self.table, {"value": f"CAST({argument.sql} AS DOUBLE)"})["value"])
        return as_arrow(np.full(self.count, float(argument)))

    def numbers(self, argument: Any) -> pa.Array:
        """Return a column of lists of doubles."""
        if isinstance(argument, Text):
            return self.any(argument).cast(_NUMBERS)
        columns = [self.number(one) for one in argument]
        if not columns:
            return pa.array([[]] * self.count, _NUMBERS)
        values = np.column_stack([np.asarray(column.fill_null(np.nan)) for column in columns]).ravel()
        ends = np.arange(self.count + 1, dtype=np.int32) * len(columns)
        unknown = np.logical_or.reduce([np.asarray(column.is_null()) for column in columns])
        mask = np.repeat(unknown, len(columns))
        values_array = pa.array(values, mask=mask) if unknown.any() else pa.array(values)
        return pa.ListArray.from_arrays(as_arrow(ends), values_array)

    def any(self, argument: Any) -> pa.Array:
        """Return a column unchanged."""
        assert isinstance(argument, Text)
        alone = sql.column_alone(self.table, argument.sql)
        if alone is not None and pa.types.is_list(alone.type) and alone.type.value_type == pa.float64():
            return in_one_piece(alone)  # DuckDB would return it unchanged
        return in_one_piece(sql.evaluated(self.table, {"value": argument.sql})["value"])


def _struct(fields: dict[str, pa.Array], given: Sequence[pa.Array] | None = None) -> pa.Array:
    """Make a struct that is null if one of its fields is; with ``given``, if one of these arrays is."""
    unknown: Any = None
    for column in given if given is not None else fields.values():
        unknown = pc.is_null(column) if unknown is None else pc.or_(unknown, pc.is_null(column))
    return pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=unknown)


def _plain(name: str, rows: _Rows, given: dict[str, Any]) -> pa.Array:
    """Make a struct of the given parameters."""
    lists = {parameter.name: parameter.is_list for parameter in PLAIN[name].parameters}
    fields = fields_of(name, given)
    return _struct({key: rows.numbers(one) if lists[key] else rows.number(one) for key, one in fields.items()})


def _samples(rows: _Rows, given: dict[str, Any]) -> pa.Array:
    points, probs, dim = given["points"], given.get("probs"), given.get("dim")
    weights = pa.nulls(rows.count, _NUMBERS) if probs is None else rows.numbers(probs)
    if isinstance(points, Text):
        column = rows.any(points)
        values, dims = flat_points(column, dim)
        fields = {"points": values, "probs": weights, "dim": dims}
        return _struct(fields, [column])
    nested = [point for point in points if isinstance(point, (list, tuple))]
    points, dim = flattened(points, nested, dim)
    flat = rows.numbers(points)
    return _struct({"points": flat, "probs": weights, "dim": as_arrow(np.full(rows.count, dim or 1, np.int32))}, [flat])


def _gaussian_nd(rows: _Rows, given: dict[str, Any]) -> pa.Array:
    sd, corr, cov = given.get("sd"), given.get("corr"), given.get("cov")
    if (sd is None) == (cov is None):
        raise HaplyError(
            "A gaussian_nd needs its spread once", expected="either sd or cov", found="both" if sd else "none"
        )
    mean = rows.numbers(given["mean"])
    if cov is not None:
        if isinstance(cov, Text):
            return _struct({"mean": mean, "cov": flat_matrices(rows.any(cov))})
        flat = [entry for row in cov for entry in (row if isinstance(row, (list, tuple)) else [row])]
        return _struct({"mean": mean, "cov": rows.numbers(flat)})
    if isinstance(sd, Text):
        raise HaplyError("The sds of a gaussian_nd are one column", expected="a list with one sd per dimension")
    assert sd is not None
    if corr is not None and len(sd) != 2:
        raise HaplyError("A single correlation needs two dimensions", found=f"{len(sd)} sds", hint="give cov instead")
    given_sds, given_corr = [rows.number(one) for one in sd], [] if corr is None else [rows.number(corr)]
    sds = [np.asarray(column.fill_null(np.nan)) for column in given_sds]
    rho = np.asarray(given_corr[0].fill_null(np.nan)) if given_corr else np.zeros(rows.count)
    # A negative sd makes a negative variance, which is a bad row; its square would be a good one.
    entries = np.column_stack(
        [a * (np.abs(b) if i == j else b * rho) for i, a in enumerate(sds) for j, b in enumerate(sds)]
    )
    ends = as_arrow(np.arange(rows.count + 1, dtype=np.int32) * entries.shape[1])
    cov_lists = pa.ListArray.from_arrays(ends, as_arrow(entries.ravel()))
    return _struct({"mean": mean, "cov": cov_lists}, [mean, *given_sds, *given_corr])


def _latency(rows: _Rows, given: dict[str, Any]) -> pa.Array:
    seen, edges, probs = rows.number(given["detected_at"]), rows.numbers(given["edges"]), rows.numbers(given["probs"])
    lengths = np.asarray(pc.list_value_length(edges).fill_null(0))
    repeated = np.repeat(np.asarray(seen.fill_null(np.nan)), lengths)
    back = as_arrow(repeated - _reversed(edges).flatten().to_numpy())
    ends = as_arrow(np.append(0, np.cumsum(lengths)).astype(np.int32))
    return _struct({"edges": pa.ListArray.from_arrays(ends, back), "probs": _reversed(probs)}, [seen, edges, probs])


def _reversed(lists: pa.Array) -> pa.Array:
    """Return each list from its end to its beginning; unknown ones are empty."""
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0))
    ends = np.append(0, np.cumsum(lengths))
    rows = np.repeat(np.arange(len(lists)), lengths)
    at = ends[rows] + ends[rows + 1] - 1 - np.arange(ends[-1])
    return pa.ListArray.from_arrays(as_arrow(ends.astype(np.int32)), lists.flatten().take(as_arrow(at)))


_MAKERS: dict[str, Callable[[_Rows, dict[str, Any]], pa.Array]] = {
    **{name: partial(_plain, name) for name in PLAIN},
    "samples": _samples,
    "gaussian_nd": _gaussian_nd,
    "latency": _latency,
}
