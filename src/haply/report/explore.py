"""The page on which pairs are explored: their columns, packed for a browser, in a template that draws them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply._version import __version__
from haply.models import Model, OneDimensional
from haply.models.columns import read_column
from haply.models.plane import Placed, Plane
from haply.outputs import value_text
from haply.planning.frames import Field, is_list
from haply.report.pair import is_number

ADDED = ("probability", "p_match", "p_any", "bayes_factor")
"""Columns of pairs that belong to neither table."""
_MOST_COMPONENTS = 1_500_000
"""The most components of densities on a page: further pairs are explained by text only."""
_MANY_TEXTS = 0.5
"""Texts of which more than this share are different are written one by one."""


@dataclass
class Packed:
    """Arrays of numbers as texts: each is stored once."""

    arrays: list[dict[str, Any]] = field(default_factory=list)
    _known: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def add(self, values: np.ndarray, kind: str = "f8") -> int:
        """Add an array and return its number; doubles that are floats take half the space, equal ones almost none."""
        values = np.ascontiguousarray(values)
        if kind == "f8" and len(values) and (values == values[0]).all() and np.isfinite(values[0]):
            return self._put("constant", values[:1].tobytes(), {"value": float(values[0]), "length": len(values)})
        if kind == "f8" and np.array_equal(values.astype(np.float32).astype(np.float64), values, equal_nan=True):
            kind = "f4"
        raw = values.astype(f"<{kind}").tobytes()
        return self._put(kind, raw, None)

    def _put(self, kind: str, raw: bytes, said: dict[str, Any] | None) -> int:
        key = kind if said is None else f"{kind} {said['length']}", raw
        if key not in self._known:
            self._known[key] = len(self.arrays)
            self.arrays.append({"type": kind, **(said or {"data": base64.b64encode(raw).decode("ascii")})})
        return self._known[key]


@dataclass(frozen=True)
class ExploredPairs:
    """Pairs as the page needs them."""

    table: pa.Table
    probability: str
    sides: dict[str, str]
    """The side of each column besides those that belong to none: ``left`` or ``right``."""
    compared: list[tuple[str, str]]
    """The columns of models, or of points, that are drawn together."""

    @classmethod
    def of(cls, table: pa.Table, probability: str, given: tuple[str | None, str | None]) -> ExploredPairs:
        """Find out which columns are of which side, and which were compared."""
        own = [name for name in table.column_names if name != probability and name not in ADDED]
        sides = sides_of(table, own, given)
        return cls(table, probability, sides, compared_columns(table, sides, given))

    # -- words ---------------------------------------------------------------------------------------------------------

    def sentence(self) -> str:
        """Return a sentence that says what the pairs are, and how many."""
        pairs = self.table.num_rows - self.table[self.probability].null_count
        alone = self.table[self.probability].null_count
        means = "are the same thing" if self.probability == "p_match" else "fulfil the condition of the join"
        rest = f", and {_many(alone, 'row')} without a partner" if alone else ""
        return f"These are {_many(pairs, 'pair')} of rows, each with the probability that the two {means}{rest}."

    def page(self, title: str) -> str:
        """Return the whole page: every text is escaped, and nothing in the data can end its script."""
        template = resources.files("haply.report").joinpath("explore.html").read_text(encoding="utf-8")
        data = json.dumps(self._data(), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        words = {
            "TITLE": escape(title),
            "SENTENCE": escape(self.sentence()),
            "VERSION": escape(__version__),
            "DATA": data.replace("<", "\\u003c"),
        }
        # split once, so that data that looks like a placeholder is never replaced
        before, *rest = template.split("{{")
        return before + "".join(words[place] + text for place, _, text in (part.partition("}}") for part in rest))

    # -- data ----------------------------------------------------------------------------------------------------------

    def _data(self) -> dict[str, Any]:
        packed = Packed()
        p = self.table[self.probability].cast(pa.float64()).fill_null(np.nan).to_numpy()
        columns = [
            {"name": name, "side": self.sides.get(name, ""), **_column(self.table[name], packed)}
            for name in self.table.column_names
            if name != self.probability
        ]
        values, places = self._pictures(packed)
        return {
            "length": self.table.num_rows,
            "probability": {"name": self.probability, "array": packed.add(p)},
            "columns": columns,
            "groups": {side: packed.add(self._groups(side), "u4") for side in ("left", "right")},
            "values": values,
            "map": places,
            "arrays": packed.arrays,
        }

    def _groups(self, side: str) -> np.ndarray:
        """Number the rows of a side: rows with equal values have one number. Missing rows have the last number."""
        names = [name for name, of in self.sides.items() if of == side]
        if not names:
            return np.arange(self.table.num_rows, dtype=np.uint32)
        codes = combined([codes_of(self.table[name]) for name in names])
        missing = np.logical_and.reduce([np.asarray(self.table[name].is_null()) for name in names])
        return np.where(missing, np.uint32(0xFFFFFFFF), codes.astype(np.uint32))

    def _pictures(self, packed: Packed) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        values: list[dict[str, Any]] = []
        places = None
        for left, right in self.compared:
            sides = [_KnownRows.of(self.table[name]) for name in (left, right)]
            if all(is_number(side.model) for side in sides):
                parts = [_components(side, packed) for side in sides]
                if all(part is not None for part in parts):
                    values.append({"names": [left, right], "left": parts[0], "right": parts[1]})
            elif places is None and not any(is_number(side.model) for side in sides):
                places = _map(sides, [left, right], packed)
        return values, places


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


# -- sides -------------------------------------------------------------------------------------------------------------


def sides_of(table: pa.Table, names: Sequence[str], given: tuple[str | None, str | None]) -> dict[str, str]:
    """Return which columns are of which side: those of the left come first, so that only the border has to be found.

    Names that end in ``_left`` and ``_right`` decide. Otherwise the border is where both sides have the fewest
    different rows: a column of the other side would make equal rows different.
    """
    left = [k for k, name in enumerate(names) if name.endswith("_left") or name == given[0]]
    right = [k for k, name in enumerate(names) if name.endswith("_right") or name == given[1]]
    first, last = max(left, default=0) + 1, min(right, default=len(names) - 1)
    if first > last:  # columns in another order: only their names can decide
        known = dict.fromkeys([names[k] for k in left], "left")
        return (
            known | dict.fromkeys([names[k] for k in right], "right")
            if left and right
            else dict.fromkeys(names, "left")
        )
    border = first
    if first < last:
        codes = [codes_of(table[name]) for name in names]
        distinct = [
            len(np.unique(combined(codes[:at]))) + len(np.unique(combined(codes[at:]))) for at in range(first, last + 1)
        ]
        best = [first + k for k, count in enumerate(distinct) if count == min(distinct)]
        border = min(best, key=lambda at: abs(at - len(names) / 2))
    return {name: "left" if k < border else "right" for k, name in enumerate(names)}


def codes_of(column: pa.ChunkedArray) -> np.ndarray:
    """Number the different values of a column; nulls are one of them."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_struct(array.type):
        return combined([codes_of(part) for part in array.flatten()])
    if pa.types.is_nested(array.type):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), -1))
        if len(lengths) and lengths[0] > 0 and (lengths == lengths[0]).all():  # as most positions are
            numbers = array.flatten()
            places = np.arange(0, len(numbers), lengths[0])
            return combined([codes_of(numbers.take(pa.array(places + k))) for k in range(lengths[0])])
        array = pa.array([None if value is None else json.dumps(value, default=str) for value in array.to_pylist()])
    found = pc.dictionary_encode(array, null_encoding="encode")
    return np.asarray(found.indices).astype(np.int64)


def combined(codes: Sequence[np.ndarray]) -> np.ndarray:
    """Number the different rows of several columns."""
    whole = codes[0]
    for more in codes[1:]:
        _, whole = np.unique(whole * (int(more.max(initial=0)) + 1) + more, return_inverse=True)
    return whole


def compared_columns(
    table: pa.Table, sides: dict[str, str], given: tuple[str | None, str | None]
) -> list[tuple[str, str]]:
    """Find the columns that can be drawn together: as given, by their names, or the only ones of each side."""
    if given[0] is not None and given[1] is not None:
        return [(given[0], given[1])]
    drawn = [name for name in sides if _drawable(table.schema.field(name))]
    named = [
        (name, f"{name.removesuffix('_left')}_right")
        for name in drawn
        if name.endswith("_left") and f"{name.removesuffix('_left')}_right" in drawn
    ]
    alone = [[name for name in drawn if sides[name] == side] for side in ("left", "right")]
    if not named and len(alone[0]) == len(alone[1]) == 1:
        return [(alone[0][0], alone[1][0])]
    return named


def _drawable(column: pa.Field) -> bool:
    """Return whether a column holds uncertain values, or points."""
    found = Field(column.name, column.type, "")
    return found.uncertain_model is not None or (is_list(column.type) and found.point_model is not None)


# -- columns -----------------------------------------------------------------------------------------------------------


def _column(column: pa.ChunkedArray, packed: Packed) -> dict[str, Any]:
    """Pack a column of the table that the page shows."""
    found = Field("", column.type, "")
    if found.is_number and not (pa.types.is_integer(column.type) and _is_long(column)):
        whole = pa.types.is_integer(column.type)
        values = pc.cast(column, pa.float64(), safe=False).fill_null(np.nan).to_numpy()
        return {"kind": "number", "whole": whole, "array": packed.add(values)}
    if _drawable(pa.field("", column.type)):
        rows = _KnownRows.of(column)
        if is_number(rows.model):
            assert isinstance(rows.model, OneDimensional)
            mean, spread = rows.filled(rows.model.mean()), rows.filled(rows.model.deviation())
            return {"kind": "value", "mean": packed.add(mean), "spread": packed.add(spread)}
        x, y = (rows.filled(one) for one in _coordinates(rows.model))
        # six digits are shown, which floats have; degrees of the sky need more
        if not rows.model.on_sky:
            x, y = _as_floats(x), _as_floats(y)
        return {"kind": "point", "digits": 9 if rows.model.on_sky else 6, "x": packed.add(x), "y": packed.add(y)}
    texts = [None if value is None else _text(value) for value in column.to_pylist()]
    known = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    if len(known) > _MANY_TEXTS * len(texts):
        return {"kind": "text", "texts": texts}
    codes = np.array([known[text] for text in texts], np.uint32)
    return {"kind": "coded", "texts": list(known), "codes": packed.add(codes, "u4")}


def _is_long(column: pa.ChunkedArray) -> bool:
    """Return whether whole numbers are too large for doubles, as ids may be."""
    found = pc.min_max(column)
    return any(end is not None and abs(end) > 2**53 for end in found.as_py().values())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else value_text(value)


def _coordinates(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return the first two coordinates of the mean of each row; on the sky, right ascension and declination."""
    parts = model.normal_parts()
    mean = parts.mean if parts.mean.shape[1] > 1 else np.pad(parts.mean, ((0, 0), (0, 1)))
    begin = np.asarray(parts.start[:-1], np.int64)
    whole = np.add.reduceat(parts.weight[:, None] * mean, begin, axis=0) if len(begin) else mean
    return whole[:, 0], whole[:, 1]


@dataclass(frozen=True)
class _KnownRows:
    """The rows of a column that have a value, and where they are."""

    model: Model
    rows: np.ndarray
    count: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> _KnownRows:
        found = read_column(column)
        return cls(found.model.take(np.arange(len(found.model))), found.rows, len(column))

    def filled(self, values: np.ndarray) -> np.ndarray:
        """Return numbers for all rows, NaN where there is no value."""
        out = np.full(self.count, np.nan)
        out[self.rows] = values
        return out


def _components(side: _KnownRows, packed: Packed) -> dict[str, int] | None:
    """Pack the densities of numbers: points, uniform parts and normal parts, whatever the model is."""
    assert isinstance(side.model, OneDimensional)
    parts = side.model.components
    if len(parts.weight) > _MOST_COMPONENTS:
        return None
    counts = np.zeros(side.count, np.uint32)
    counts[side.rows] = np.diff(parts.start)
    names = ("weight", "low", "high", "mean", "sd")
    # JSON has no infinity: a very long interval looks the same
    limits = {name: np.clip(getattr(parts, name), -1e300, 1e300) for name in names}
    return {
        "start": packed.add(np.concatenate([[0], np.cumsum(counts)]), "u4"),
        "kind": packed.add(parts.kind, "u1"),
        **{name: packed.add(limits[name]) for name in names},
    }


def _map(sides: Sequence[_KnownRows], names: Sequence[str], packed: Packed) -> dict[str, Any]:
    """Pack positions on a common plane, with their covariances."""
    plane = Plane.of([side.model for side in sides])
    found = [_placed(side, plane.place(side.model), packed) for side in sides]
    return {"names": list(names), "titles": list(plane.titles), "east_left": plane.on_sky,
            "left": found[0], "right": found[1]}  # fmt: skip


def _placed(side: _KnownRows, placed: Placed, packed: Packed) -> dict[str, int]:
    numbers = {"x": placed.x, "y": placed.y, "xx": placed.cov[:, 0, 0], "xy": placed.cov[:, 0, 1],
               "yy": placed.cov[:, 1, 1]}  # fmt: skip
    return {name: packed.add(_as_floats(side.filled(values))) for name, values in numbers.items()}


def _as_floats(values: np.ndarray) -> np.ndarray:
    """Round doubles to floats, which take half the space: a chart needs no more digits."""
    return values.astype(np.float32).astype(np.float64)
