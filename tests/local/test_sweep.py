"""Sides swept whole have the pairs, the probabilities and the counts of sides that are cut into cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import haply as hp
from amounts import fewer
from haply.engines.local import pairs


def table(rng: np.random.Generator, kind: str, rows: int) -> pa.Table:
    """Ordinary rows, and some that are null, bad, hopeless, alone or beside many others."""
    at = np.where(rng.random(rows) < 0.2, 50.0, rng.uniform(0.0, 100.0, rows))
    size = np.where(rng.random(rows) < 0.1, 9.0, rng.uniform(0.1, 1.0, rows))
    size[rng.random(rows) < 0.02] = np.nan
    ends = {"gaussian": (("mean", at), ("sd", size)), "uniform": (("lo", at), ("hi", at + size))}[kind]
    fields = [pa.array(column) for _, column in ends]
    values = pa.StructArray.from_arrays(fields, [name for name, _ in ends], mask=pa.array(rng.random(rows) < 0.02))
    return pa.table({"id": rng.permutation(rows), "x": values})


@settings(max_examples=fewer(30), deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(["gaussian", "uniform"]), st.sampled_from([0.2, 0.7]), st.booleans(),
    st.sampled_from([0, 3, 400, 5_000]),
)  # fmt: skip
def test_swept_as_in_cells(seed: int, kind: str, threshold: float, exact: bool, rows: int) -> None:
    rng = np.random.default_rng(seed)
    sides = table(rng, kind, rows), table(rng, kind, 300)

    def joined(**limits: int) -> tuple[dict[tuple[int, int], float], dict[str, Any]]:
        funnel = hp.Funnel()
        with pytest.MonkeyPatch.context() as patch:
            for name, limit in limits.items():
                patch.setattr(pairs, name, limit)
            found = hp.join(
                *sides, "abs(left.x - right.x) <= 1", threshold, invalid="drop", funnel=funnel,
                probability="exact" if exact else "none",
            )  # fmt: skip
        values = found["probability"].to_pylist() if exact else [0.0] * len(found)
        names = [name for name in found.column_names if name.startswith("id")]
        numbers = zip(*(found[name].to_pylist() for name in names), strict=True)
        counts = {name: count for name, count in funnel.to_dict().items() if name != "seconds"}
        return dict(zip(numbers, values, strict=True)), counts

    swept = joined(_ROWS_PER_PART=100)
    whole_cell = joined(_MOST_SWEPT=0)
    cells = joined(_MOST_SWEPT=0, _ROWS_PER_CELL=64)
    assert swept == whole_cell
    assert swept[0] == cells[0]
    assert swept[1]["kept"] == cells[1]["kept"] == len(swept[0])
