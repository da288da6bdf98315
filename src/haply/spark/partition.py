"""Cells in Spark: the layout computed inside the query, and rows sent to the cells their intervals touch.

Nothing here runs a job of its own: the layout is a one-row frame that is part of the plan, so a join stays lazy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.pruning.cells import QUANTILES, ROWS_PER_CELL, Layout, Profile, lay_out
from haply.spark.columns import arrow_function

START, END, LOW, HIGH = "__start", "__end", "__low", "__high"
CELL, NATIVE = "__cell", "__native"
_SLICE_BITS = 9
_DEEPEST_SEARCH = 11  # halvings that find a cell among 2047: both sides' quantiles together are fewer


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


# As text, because every literal made one by one is a call into the JVM.
_LEVELS = "array(" + ",".join(f"{k / QUANTILES}D" for k in range(1, QUANTILES)) + ")"
_STEPS = "array(" + ",".join(str(1 << k) for k in reversed(range(_DEEPEST_SEARCH))) + ")"


def _profile(frame: DataFrame, side: str, counts: dict[str, str]) -> DataFrame:
    fields = {
        "usable": f"count_if({LOW} IS NOT NULL)",
        "quantiles": f"percentile_approx({LOW}, {_LEVELS}, {4 * QUANTILES})",
        "width": f"percentile_approx({HIGH} - {LOW}, 0.9D, 200)",
        **counts,
    }
    return frame.selectExpr(f"struct({', '.join(f'{value} AS {name}' for name, value in fields.items())}) AS {side}")


def profiles(left: DataFrame, right: DataFrame, counts: dict[str, str]) -> DataFrame:
    """One row with what ``lay_out`` wants to know of both sides, and further counts (name to SQL) of each.

    The frames have lower and upper ends of the intervals, null where a row takes no part.
    """
    return _profile(left, "left", counts).crossJoin(_profile(right, "right", counts))


def read_profile(value: Any) -> Profile:
    """A profile from a Row or a dict."""
    quantiles = value["quantiles"]
    width = value["width"]
    return Profile(
        int(value["usable"]),
        np.array(quantiles if quantiles is not None else [], dtype=np.float64),
        0.0 if width is None else float(width),
    )


def layout_frame(profile: DataFrame, settings: CellSettings) -> DataFrame:
    """One row ``layout: edges, left_slices, right_slices`` from that of ``profiles``, computed when the query runs."""

    def compute(left_profile: pa.Array, right_profile: pa.Array) -> pa.Array:
        rows = []
        for one, other in zip(left_profile.to_pylist(), right_profile.to_pylist(), strict=True):
            found = lay_out(
                read_profile(one), read_profile(other), rows_per_cell=settings.rows_per_cell, cells=settings.cells
            )
            rows.append(_as_dict(found))
        return pa.array(rows, _LAYOUT_TYPE)

    layout = arrow_function(compute, "edges array<double>, left_slices array<int>, right_slices array<int>")
    return F.broadcast(profile.select(layout("left", "right").alias("layout")))


_LAYOUT_TYPE = pa.struct(
    [
        ("edges", pa.list_(pa.float64())),
        ("left_slices", pa.list_(pa.int32())),
        ("right_slices", pa.list_(pa.int32())),
    ]
)


def _as_dict(layout: Layout) -> dict[str, list[Any]]:
    return {
        "edges": layout.edges.tolist(),
        "left_slices": layout.left_slices.tolist(),
        "right_slices": layout.right_slices.tolist(),
    }


def cell_of(position: str) -> str:
    """SQL for the cell that holds a position: the number of edges at or below it, by halving."""
    step = f"IF(get(layout.edges, found + step - 1) <= {position}, found + step, found)"
    return f"aggregate({_STEPS}, 0, (found, step) -> {step})"


def place(frame: DataFrame, layout: DataFrame, side: str, salt: list[str]) -> DataFrame:
    """Each row once for every cell (and slice of the other side) it must be seen in: columns ``__cell``, ``__native``.

    A row is *native* in the cell that holds its lower end; a pair is found in the cell where the later-beginning row is
    native. ``salt`` are the columns whose hash picks the row's own slice.
    """
    own, other = ("left_slices", "right_slices") if side == "left" else ("right_slices", "left_slices")
    salted = f"xxhash64({', '.join(salt)})" if salt else "0L"

    def key(cell: str, mine: str, theirs: str) -> str:
        left, right = (mine, theirs) if side == "left" else (theirs, mine)
        return f"CAST({cell} AS BIGINT) * {1 << 2 * _SLICE_BITS} + {left} * {1 << _SLICE_BITS} + {right}"

    mine = f"pmod({salted}, CAST(get(layout.{own}, cell) AS BIGINT))"
    slices = f"sequence(0, get(layout.{other}, cell) - 1)"
    every = (
        f"transform(sequence(__first, __last), cell -> transform({slices}, theirs -> {key('cell', mine, 'theirs')}))"
    )
    single = f"__first = __last AND get(layout.{own}, __first) = 1 AND get(layout.{other}, __first) = 1"
    stays = f"coalesce(get(layout.edges, __first) > {HIGH}, true)"  # the next edge, if there is one, is beyond the row
    kept = [column for column in frame.columns if column not in (LOW, HIGH)]
    return (
        frame.crossJoin(layout)
        .selectExpr("*", f"{cell_of(LOW)} AS __first")
        .selectExpr("*", f"IF({stays}, __first, {cell_of(HIGH)}) AS __last")
        .selectExpr(
            *kept, "__first", f"explode(IF({single}, array({key('__first', '0', '0')}), flatten({every}))) AS {CELL}"
        )
        .selectExpr(*kept, CELL, f"shiftright({CELL}, {2 * _SLICE_BITS}) = __first AS {NATIVE}")
    )
