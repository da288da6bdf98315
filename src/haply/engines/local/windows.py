"""Joins of many tables in windows of time, in this process."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.engines.local import sql
from haply.engines.local.frame import LocalFrame
from haply.joins.cells.rows import ROW_COUNTS, TIME, bad_row
from haply.joins.operators.window import WindowJoin, join_windows
from haply.models.columns import read_column
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
        key = np.zeros(len(times), np.int64) if keys is None else keys[number]
        batches[name] = {"id": np.arange(len(times)), "time": times, "key": key}
    if plan.algorithm == "auto":
        found = join_windows(plan.windows, batches, checked=True)
        ids = [found.ids[name] for name in plan.names]
    else:
        ids = _pushed(plan, batches)
    probability = np.ones(len(ids[0]))
    counts["candidates"] = len(probability)
    if plan.together is not None and len(probability):
        sides = [
            tables[name].select(plan.together.columns(number)).take(pa.array(ids[number]))
            for number, name in enumerate(plan.names)
        ]
        kept, probability, _ = plan.together.keep(sides, probability)
        ids = [column[kept] for column in ids]
    columns = {
        inner: tables[name][inner].take(pa.array(ids[number]))
        for number, name in enumerate(plan.names)
        for inner in plan.inners[name]
    }
    rows = pa.table(columns).append_column("probability", pa.array(probability))
    if plan.certain_sql:
        kept = sql.evaluated(rows, {"kept": " AND ".join(f"({text})" for text in plan.certain_sql)})["kept"]
        rows = rows.filter(kept)
    counts["kept"] = rows.num_rows
    if funnel is not None:
        funnel.follow(lambda: counts)
    shown = [f"{name}_{field.name}" for name in plan.names for field in plan.frames[name].fields]
    return rows.rename_columns([*shown, "probability"])


def _rows(plan: WindowPlan, name: str, counts: dict[str, int]) -> pa.Table:
    """The rows of a table that take part, under inner names, with their times as numbers."""
    frame: Any = plan.frames[name]
    assert isinstance(frame, LocalFrame)
    time = plan.times[name]
    table = frame.renamed(plan.inners[name]).with_time(TIME, plan.clock_times, plan.inner(name, time), time).table()
    table = table.combine_chunks()
    uncertain = plan.together.columns(plan.names.index(name)) if plan.together else ()
    good, bad = np.ones(table.num_rows, bool), np.zeros(table.num_rows, bool)
    called = dict(zip(plan.inners[name], frame.schema.names, strict=True))
    for column in uncertain:
        read = read_column(table[column])
        if len(read.bad_rows):
            raise bad_row(f"Column '{called[column]}' of stream '{name}'", read.example)
        here = np.zeros(table.num_rows, bool)
        here[read.rows] = True
        good &= here
    nulls = int((~good & ~bad).sum())
    good &= np.isfinite(table[TIME].to_numpy())
    if plan.keys:
        good &= np.asarray(table[plan.inner(name, plan.keys[name])].is_valid())
    for what, count in zip(ROW_COUNTS, (table.num_rows, nulls, 0, int(bad.sum())), strict=True):
        counts[f"{what}_{name}"] = count
    return table.filter(pa.array(good)).combine_chunks()


def _codes(keys: list[pa.ChunkedArray]) -> list[np.ndarray]:
    """Numbers that are equal where keys are."""
    kind = keys[0].type
    both = pa.chunked_array([chunk for key in keys for chunk in key.cast(kind).chunks], kind).combine_chunks()
    codes = pc.dictionary_encode(both).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ends = list(itertools.accumulate(map(len, keys), initial=0))
    return [codes[begin:end] for begin, end in itertools.pairwise(ends)]


def _pushed(plan: WindowPlan, batches: dict[str, dict[str, np.ndarray]]) -> list[np.ndarray]:
    """The combinations by one of the papers' algorithms: the rows of each table arrive in the order of their times."""
    join = WindowJoin(
        plan.windows, max_delay=sys.float_info.max, algorithm=plan.algorithm, windows_policy=plan.policy
    )  # fmt: skip
    parts = []
    for name, batch in batches.items():
        order = np.argsort(batch["time"], kind="stable")
        if len(order):
            parts.append(join.arrive(name, {column: values[order] for column, values in batch.items()}))
    parts += [join.close(name) for name in plan.names]
    return [np.concatenate([part.ids[name] for part in parts]).astype(np.int64) for name in plan.names]
