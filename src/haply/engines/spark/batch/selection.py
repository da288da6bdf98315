"""Selections on Spark: certain conditions are Spark's own; all else is decided batch by batch in one Arrow function.

It gets only the columns that the conditions use, and the certain numbers that they need, computed by Spark.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.observing import Observing
from haply.engines.spark.streaming.join import StreamObserving
from haply.engines.spark.versions import arrow_function
from haply.joins.cells.rows import BAD, NULL, USABLE
from haply.joins.warm import warm_selection
from haply.planning.frames import quoted
from haply.planning.selection import RowSelection
from haply.selection.select import EVALUATED, RULES

_FOUND = "__haply_where"
_FOUND_TYPE = "kept boolean, probability double, code smallint, state tinyint"


def selected_rows(rows: RowSelection, funnel: Any) -> DataFrame:
    """Return the kept rows, as a lazy DataFrame."""
    assert isinstance(rows.frame, SparkFrame)
    frame, selection = rows.frame.df, rows.selection
    for sql in rows.certain_sql:
        frame = frame.where(F.expr(sql))
    if not selection.groups:
        kept = frame if selection.threshold.attainable else frame.where(F.lit(False))
        return kept.withColumn("probability", F.lit(1.0)) if selection.exact else kept
    warm_selection(selection)
    if funnel is not None:
        funnel.start_over()
    observing = (StreamObserving if frame.isStreaming else Observing)(funnel)
    worker, uncertain = rows.worker, len(rows.columns)
    given = [F.col(quoted(name)) for name in rows.columns.values()]
    given += [F.expr(sql).cast("double") for sql in rows.number_sql]

    def decide(values: pa.Array) -> pa.Array:
        columns = [values.field(k) for k in range(values.type.num_fields)]
        found = worker(columns[:uncertain], columns[uncertain:], len(values))
        return pa.StructArray.from_arrays([pa.array(column) for column in found], list(found._fields))

    # A function of one column, so that its arguments are fixed. Declared not deterministic, or Spark would copy the
    # call into every later filter and projection.
    function = arrow_function(decide, _FOUND_TYPE).asNondeterministic()
    packed = F.struct(*(column.alias(f"c{k}") for k, column in enumerate(given)))
    decided = observing.watch(frame.withColumn(_FOUND, function(packed)), _counts())
    kept = observing.watch(decided.where(F.col(f"{_FOUND}.kept")), {"kept": "count(1)"})
    shown = [F.col(quoted(name)) for name in frame.columns]
    probability = [F.col(f"{_FOUND}.probability").alias("probability")] if selection.exact else []
    return kept.select(*shown, *probability)


def _counts() -> dict[str, str]:
    usable = f"{_FOUND}.state = {USABLE}"
    counts = {
        "rows_left": "count(1)",
        "rows_right": "max(1)",  # a selection counts as a join with one row of constants
        "null_left": f"count_if({_FOUND}.state = {NULL})",
        "invalid_left": f"count_if({_FOUND}.state = {BAD})",
        "candidates": f"count_if({usable})",
        "evaluated": f"count_if({usable} AND {_FOUND}.code = {EVALUATED})",
    }
    for code, name in RULES.items():
        counts[f"rejected:{name}"] = f"count_if({usable} AND {_FOUND}.code = {-code})"
        counts[f"accepted:{name}"] = f"count_if({usable} AND {_FOUND}.code = {code})"
    return counts
