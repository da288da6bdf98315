"""Two tables as one frame of rows, so that both go through one plan; and the columns that haply gives to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.joins.cells.rows import LEFT
from haply.planning.frames import quoted

CELL, SIDE = "cell", "side"
"""Columns of parcels. Their names have no underscores in front, which Spark's stateful functions take away."""


class Stack:
    """Two sides in one frame: columns of one type share a place, so that few are empty."""

    def __init__(self, left: list[T.StructField], right: list[T.StructField]) -> None:
        self.types = [field.dataType for field in left]
        self.left = list(range(len(left)))
        self.right: list[int] = []
        free = list(self.left)
        for field in right:
            place = next((place for place in free if _same(self.types[place], field.dataType)), None)
            if place is None:
                place = len(self.types)
                self.types.append(field.dataType)
            else:
                free.remove(place)
            self.right.append(place)

    @property
    def columns(self) -> list[str]:
        """Names of the places."""
        return [f"__{place}" for place in range(len(self.types))]

    def spread(
        self,
        frame: DataFrame,
        names: list[str],
        side: int,
        more: Sequence[str],
        fields: Mapping[str, tuple[str, ...]] | None = None,
        *,
        named: bool = True,
    ) -> DataFrame:
        """Return one side's columns in their places, some columns besides; structs in ``fields`` field by field.

        Rows have the number of their side with them, if it is to be ``named``.
        """
        at = dict(zip(self.left if side == LEFT else self.right, names, strict=True))
        places, empty = [], {}
        for place, column in enumerate(self.columns):
            if fields is not None and column in fields:
                assert place in at
                parts = zip(field_names(column, fields[column]), fields[column], strict=True)
                places += [f"{at[place]}.{quoted(field)} AS {quoted(name)}" for name, field in parts]
            elif place in at:
                places.append(f"{at[place]} AS {column}")
            else:
                empty[column] = F.lit(None).cast(self.types[place])
        spread = frame.selectExpr(*places, *more, *([f"CAST({side} AS TINYINT) AS {SIDE}"] if named else []))
        return spread.withColumns(empty) if empty else spread

    def hashable(self, fields: Mapping[str, tuple[str, ...]] | None = None) -> list[str]:
        """Return the columns that a hash of a row uses."""
        odd, found = (T.MapType, T.VariantType), []
        for name, kind in zip(self.columns, self.types, strict=True):
            if not isinstance(kind, odd):
                found += field_names(name, fields[name]) if fields is not None and name in fields else [name]
        return found


def field_names(column: str, fields: Sequence[str]) -> list[str]:
    """Return what the fields of a struct are called where each is a column."""
    return [f"{column}_{field}" for field in fields]


def _same(one: T.DataType, other: T.DataType) -> bool:
    return one.simpleString() == other.simpleString()
