"""Cells in Spark: the layout computed inside the query, and rows sent to the cells their intervals touch.

Nothing here runs a job of its own: the layout is a subquery that is part of the plan, so a join stays lazy. It must be
used once: two uses might be computed twice, from rows in another order, and two layouts that differ lose pairs. So the
two sides of a join are stacked into one frame before they meet it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.pruning.cells import BINS, QUANTILES, ROWS_PER_CELL, Grid, Layout, Profile, lay_out
from haply.spark.columns import arrow_function, quoted

START, END, LOW, HIGH = "__start", "__end", "__low", "__high"
CELL, NATIVE, SIDE, TIME = "__cell", "__native", "__side", "__time"
LEFT, RIGHT = 0, 1
SLICE_BITS = 9
_UNSLICED = (1 << SLICE_BITS) + 1
_SAMPLED_PER_CELL = 1024


@dataclass(frozen=True)
class CellSettings:
    """What a user may set in the Spark session: ``spark.haply.rowsPerCell`` and ``spark.haply.cells``."""

    rows_per_cell: int = ROWS_PER_CELL
    cells: int | None = None

    @classmethod
    def of(cls, spark: Any) -> CellSettings:
        """The settings of a session."""
        rows, cells = spark.conf.get("spark.haply.rowsPerCell", None), spark.conf.get("spark.haply.cells", None)
        return cls(int(rows) if rows else ROWS_PER_CELL, int(cells) if cells else None)

    @property
    def sampled(self) -> float:
        """The share of rows that the quantiles of a layout are made from."""
        return 1.0 if self.cells else min(1.0, _SAMPLED_PER_CELL / self.rows_per_cell)


# As text, because every literal made one by one is a call into the JVM.
_LEVELS = "array(" + ",".join(f"{k / QUANTILES}D" for k in range(1, QUANTILES)) + ")"


def _profile(frame: DataFrame, side: str, sampled: float) -> DataFrame:
    seen = f"IF(__sampled, {LOW}, NULL)"
    fields = {
        "usable": f"count({LOW})",
        "quantiles": f"percentile_approx({seen}, {_LEVELS}, {4 * QUANTILES})",
        "width": f"percentile_approx({HIGH} - {seen}, 0.9D, 200)",
        "first": f"min({LOW})",
        "last": f"max({HIGH})",
    }
    chosen = frame.selectExpr("*", "true AS __sampled" if sampled >= 1.0 else f"rand(0) < {sampled}D AS __sampled")
    return chosen.selectExpr(f"struct({', '.join(f'{value} AS {name}' for name, value in fields.items())}) AS {side}")


def profiles(left: DataFrame, right: DataFrame, sampled: float = 1.0) -> DataFrame:
    """One row with what ``lay_out`` wants to know of both sides, from a share of their rows.

    The frames have lower and upper ends of the intervals, null where a row takes no part.
    """
    return _profile(left, "left", sampled).crossJoin(_profile(right, "right", sampled))


def read_profile(value: Any) -> Profile:
    """A profile from a Row or a dict."""
    quantiles = value["quantiles"]
    width = value["width"]
    return Profile(
        int(value["usable"]),
        np.array(quantiles if quantiles is not None else [], dtype=np.float64),
        0.0 if width is None else float(width),
    )


def slices_of(layout: Layout) -> list[int]:
    """The slices of both sides as one number for each cell; nothing where no cell is sliced."""
    slices = layout.left_slices * (1 << SLICE_BITS) + layout.right_slices
    return slices.tolist() if (slices != _UNSLICED).any() else []


def layout_frame(profile: DataFrame, settings: CellSettings) -> DataFrame:
    """One row ``layout``, made from that of ``profiles`` when the query runs: a grid, and slices if there are any."""

    def compute(left_profile: pa.Array, right_profile: pa.Array) -> pa.Array:
        rows = []
        for one, other in zip(left_profile.to_pylist(), right_profile.to_pylist(), strict=True):
            found = lay_out(
                read_profile(one), read_profile(other), rows_per_cell=settings.rows_per_cell, cells=settings.cells
            )
            grid = Grid.of(found.edges)
            bins = zip(
                *(column.tolist() for column in (grid.bin_low, grid.bin_high, grid.parts, grid.offset)), strict=True
            )
            rows.append(
                {
                    "low": grid.low,
                    "high": grid.high,
                    "bins": [dict(zip(("low", "high", "parts", "offset"), bin, strict=True)) for bin in bins],
                    "cells": grid.cells.tolist(),
                    "slices": slices_of(found),
                }
            )
        return pa.array(rows)

    layout = arrow_function(
        compute,
        "low double, high double, bins array<struct<low: double, high: double, parts: bigint, offset: bigint>>, "
        "cells array<bigint>, slices array<bigint>",
    )
    return profile.select(layout("left", "right").alias("layout"))


class Stack:
    """Two sides in one frame: columns of one type share a place, so that few places stay empty."""

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
        """One side's columns in their places, some columns besides; structs in ``fields`` field by field.

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
        """The columns that tell rows apart by a hash."""
        odd, found = (T.MapType, T.VariantType), []
        for name, kind in zip(self.columns, self.types, strict=True):
            if not isinstance(kind, odd):
                found += field_names(name, fields[name]) if fields is not None and name in fields else [name]
        return found


def is_flat(kind: T.DataType) -> bool:
    """A struct of doubles, as most models are. Spark reads its fields faster one by one, and only those it needs."""
    return (
        isinstance(kind, T.StructType)
        and len(kind) > 0
        and all(isinstance(field.dataType, T.DoubleType) for field in kind)
    )


def field_names(column: str, fields: Sequence[str]) -> list[str]:
    """What the fields of a struct are called where each is a column."""
    return [f"{column}_{field}" for field in fields]


def _same(one: T.DataType, other: T.DataType) -> bool:
    return one.simpleString() == other.simpleString()


def _cell(position: str, at: str) -> str:
    """SQL for the cell of a position in the bin of that name (see ``Grid``)."""
    part = f"width_bucket({position}, {at}.low, {at}.high, {at}.parts)"
    return f"get(layout.cells, CAST({at}.offset + {part} AS INT))"


def place(frame: DataFrame, layout: DataFrame, salt: list[str]) -> DataFrame:
    """Each row once for every cell (and slice of the other side) it must be seen in: columns ``__cell``, ``__native``.

    A row is *native* in the cell that holds its lower end; a pair is found in the cell where the later-beginning row is
    native. ``salt`` are the columns whose hash picks the row's own slice.

    The look-ups are few and small on purpose: Spark compiles all of this into one Java method, and if that grows beyond
    8000 bytes the JVM interprets it, ten times slower.
    """
    kept = [column for column in frame.columns if column not in (LOW, HIGH)]
    bins = {
        end: f"get(layout.bins, CAST(width_bucket({end}, layout.low, layout.high, {BINS}) AS INT))"
        for end in (LOW, HIGH)
    }
    is_left, size = f"{SIDE} = {LEFT}", 1 << SLICE_BITS
    lefts, rights = f"(__slices DIV {size})", f"(__slices % {size})"
    mine = f"pmod(xxhash64({', '.join(salt) or '0'}), IF({is_left}, {lefts}, {rights}))"
    slice_of = f"IF({is_left}, {mine} * {size} + __other, __other * {size} + {mine})"
    return (
        # A subquery, which is computed once; joined to the rows, the layout would be copied for each of them.
        frame.withColumn("layout", layout.scalar())
        .selectExpr(
            *kept, "layout.slices AS __slices",
            f"{bins[LOW]} AS __low_bin", f"{bins[HIGH]} AS __high_bin",
            f"{_cell(LOW, '__low_bin')} AS __first", f"{_cell(HIGH, '__high_bin')} AS __last",
        )
        .selectExpr(*kept, "__slices", "__first", "explode(sequence(__first, __last)) AS __at")
        .selectExpr(*kept, "__first", "__at", f"coalesce(get(__slices, CAST(__at AS INT)), {_UNSLICED}) AS __slices")
        .selectExpr("*", f"explode(sequence(0L, IF({is_left}, {rights}, {lefts}) - 1)) AS __other")
        .selectExpr(*kept, f"__at * {size * size} + {slice_of} AS {CELL}", f"__at = __first AS {NATIVE}")
    )  # fmt: skip
