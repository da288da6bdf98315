"""Joins of many tables in windows of time, in this process."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.engines.local import sql
from haply.engines.local.frame import LocalFrame
from haply.joins.cells.rows import FITS, ROW_COUNTS, TIME, good_rows
from haply.joins.operators.operator import RowBatch
from haply.joins.operators.window import combine_tables
from haply.models import Certain
from haply.models.ragged import as_arrow
from haply.planning.windows import WindowPlan


def combinations(plan: WindowPlan, funnel: Any) -> pa.Table:
    """Return the combinations."""
    if funnel is not None:
        funnel.start_over()
    counts: dict[str, int] = {}
    tables = {name: _rows(plan, name, counts) for name in plan.names}
    keys = _codes([tables[name][plan.inner(name, plan.keys[name])] for name in plan.names]) if plan.keys else None
    batches = {}
    for number, name in enumerate(plan.names):
        times = tables[name][TIME].to_numpy()
        batches[name] = RowBatch.of(
            np.arange(len(times)), Certain(times), times, None if keys is None else keys[number]
        )  # fmt: skip
    found = combine_tables(plan.windows, batches, plan.algorithm, plan.policy)
    ids, probability = found.rows, found.probability
    counts["candidates"] = len(probability)
    if plan.together is not None and len(probability):
        sides = [
            tables[name].select(plan.together.columns(number)).take(as_arrow(ids[number]))
            for number, name in enumerate(plan.names)
        ]
        kept, probability, _ = plan.together.keep(sides, probability)
        ids = tuple(column[kept] for column in ids)
    columns = {
        inner: tables[name][inner].take(as_arrow(ids[number]))
        for number, name in enumerate(plan.names)
        for inner in plan.inners[name]
    }
    rows = pa.table(columns).append_column("probability", as_arrow(probability))
    if plan.certain_sql:
        kept = sql.evaluated(rows, {"kept": " AND ".join(f"({text})" for text in plan.certain_sql)})["kept"]
        rows = rows.filter(kept)
    counts["kept"] = rows.num_rows
    if funnel is not None:
        funnel.follow(lambda: counts)
    shown = [f"{name}_{field.name}" for name in plan.names for field in plan.frames[name].fields]
    return rows.rename_columns([*shown, "probability"])


def _rows(plan: WindowPlan, name: str, counts: dict[str, int]) -> pa.Table:
    """Return the rows of a table that take part, under inner names, with their times as numbers."""
    frame: Any = plan.frames[name]
    assert isinstance(frame, LocalFrame)
    time = plan.times[name]
    table = frame.renamed(plan.inners[name]).with_time(TIME, plan.clock_times, plan.inner(name, time), time).table()
    table = table.combine_chunks()
    fits = np.isfinite(table[TIME].to_numpy())
    if plan.keys:
        fits &= np.asarray(table[plan.inner(name, plan.keys[name])].is_valid())
    good = good_rows(table.append_column(FITS, as_arrow(fits)), plan.row_spec(name), (TIME,))
    for what, count in zip(ROW_COUNTS, (good.rows, good.null, 0, good.bad), strict=True):
        counts[f"{what}_{name}"] = count
    return good.table.combine_chunks()


def _codes(keys: list[pa.ChunkedArray]) -> list[np.ndarray]:
    """Return numbers that are equal where keys are."""
    kind = keys[0].type
    both = pa.chunked_array([chunk for key in keys for chunk in key.cast(kind).chunks], kind).combine_chunks()
    codes = pc.dictionary_encode(both).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ends = list(itertools.accumulate(map(len, keys), initial=0))
    return [codes[begin:end] for begin, end in itertools.pairwise(ends)]
