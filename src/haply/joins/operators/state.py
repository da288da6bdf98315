"""Write the state of an operator as bytes: Arrow IPC with a format version, so that nothing in it can run as code.

Settings and the structure of the state are JSON in the metadata of the Arrow schema; arrays and models are columns of
its one row.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError
from haply.joins.moments import MomentCounters
from haply.models import Model
from haply.models.columns import BY_KIND
from haply.probability.region import Difference, Distance, Region
from haply.pruning.bounds.clouds import Objects
from haply.pruning.cascade import Counters

FORMAT = 2
"""The version that is written and read: a state of another version is refused."""

_KEY = b"haply_state"
_CLASSES: dict[str, Any] = {
    kind.__name__: kind for kind in (Difference, Distance, Region, Counters, MomentCounters, Objects)
}
"""Objects that a state may hold besides plain values, arrays and models."""


def to_state(kind: str, value: Any) -> bytes:
    """Write the state of an operator; ``kind`` names the kind of operator."""
    columns: list[pa.Array] = []
    said = {"format": FORMAT, "kind": kind, "value": _written(value, columns)}
    fields = [pa.field(f"c{k}", column.type) for k, column in enumerate(columns)]
    schema = pa.schema(fields, metadata={_KEY: json.dumps(said).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue().to_pybytes()


def from_state(kind: str, state: bytes) -> Any:
    """Read what ``to_state`` wrote for the same kind of operator."""
    try:
        table = pa.ipc.open_stream(state).read_all()
        said = json.loads((table.schema.metadata or {})[_KEY])
    except (pa.ArrowException, KeyError, ValueError, TypeError, EOFError):
        raise HaplyError(f"These bytes are no state of a {kind}", expected="what snapshot() returned") from None
    if said["format"] != FORMAT:
        newer = said["format"] > FORMAT
        raise HaplyError(
            f"The state was written by {'a newer' if newer else 'an older'} version of haply",
            expected=f"format {FORMAT}",
            found=f"format {said['format']}",
            hint=f"{'upgrade haply' if newer else 'use that version'}, or begin without the state",
        )
    if said["kind"] != kind:
        raise HaplyError("The state is that of another operator", expected=f"a {kind}", found=f"a {said['kind']}")
    return _read(said["value"], [column.combine_chunks() for column in table.columns])


def _written(value: Any, columns: list[pa.Array]) -> Any:
    """Return a value as JSON; bytes, arrays and models become columns."""

    def column(array: pa.Array) -> int:
        columns.append(pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array))
        return len(columns) - 1

    match value:
        case None | bool() | str() | int() | float():
            return value
        case np.generic():
            return value.item()
        case bytes():
            return {"bytes": column(pa.array([value], pa.binary()))}
        case np.ndarray() if value.dtype.kind == "V":  # rows of several fields
            raw = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
            return {"records": column(pa.array(raw)), "shape": value.shape, "type": value.dtype.descr}
        case np.ndarray():
            flat = pa.array(value.ravel().tolist() if value.dtype == object else np.ascontiguousarray(value).ravel())
            return {"array": column(flat), "shape": value.shape, "type": value.dtype.str}
        case Model():
            return {"model": column(value.to_arrow()), "kind": value.kind}
        case list():
            return [_written(each, columns) for each in value]
        case tuple() if type(value) is tuple:
            return {"tuple": [_written(each, columns) for each in value]}
        case set():
            return {"set": [_written(each, columns) for each in sorted(value)]}
        case dict():
            return {"dict": [[_written(k, columns), _written(v, columns)] for k, v in value.items()]}
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value):
        raise TypeError(f"a state holds no {name}")
    return {"object": name, "fields": {key: _written(part, columns) for key, part in _fields(value).items()}}


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, tuple):
        return dict(value._asdict())  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(vars(value))


def _read(said: Any, columns: list[pa.Array]) -> Any:
    def column(number: int) -> pa.Array:
        return columns[number].flatten()

    match said:
        case list():
            return [_read(each, columns) for each in said]
        case {"bytes": number}:
            return column(number)[0].as_py()
        case {"array": number, "shape": shape, "type": kind}:
            flat = column(number)
            values = np.array(flat.to_pylist(), object) if kind == "|O" else flat.to_numpy(zero_copy_only=False)
            return np.array(values, dtype=np.dtype(kind)).reshape(shape)
        case {"records": number, "shape": shape, "type": kind}:
            dtype = np.dtype([tuple(part) for part in kind])
            return np.frombuffer(column(number).to_numpy().tobytes(), dtype).reshape(shape).copy()
        case {"model": number, "kind": kind}:
            return BY_KIND[kind].from_arrow(column(number))
        case {"tuple": parts}:
            return tuple(_read(each, columns) for each in parts)
        case {"set": parts}:
            return {_read(each, columns) for each in parts}
        case {"dict": parts}:
            return {_read(key, columns): _read(value, columns) for key, value in parts}
        case {"object": name, "fields": fields}:
            return _made(_CLASSES[name], {key: _read(part, columns) for key, part in fields.items()})
    return said


def _made(kind: Any, fields: dict[str, Any]) -> Any:
    if issubclass(kind, Counters):
        counters = kind()
        vars(counters).update(fields)
        return counters
    return kind(**fields)
