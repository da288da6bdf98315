"""The last event before each time (see ``planning.answers.asof``), on Spark.

Rows with one key meet in one task. Without keys that is a single task.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.batch.weighed import SparkWeighed
from haply.engines.spark.exchange.prepare import state_function
from haply.engines.spark.frame import SparkFrame
from haply.joins.cells.rows import USABLE
from haply.planning.answers.asof import AsofPlan
from haply.planning.answers.join import ROW_IDS
from haply.planning.frames import SideName, quoted


class SparkAsof(SparkWeighed):
    """Runs a join by the last event."""

    join: AsofPlan

    def weighed(self) -> DataFrame:
        """Return all pairs with their probabilities."""
        plan = self.join
        left, right = self._rows_of("left"), self._rows_of("right")
        keys = [f"__key{number}" for number in range(max(1, len(plan.keys)))]
        schema, taken = T.StructType(), []
        for side, frame in (("left", left), ("right", right)):
            for one in (one for one in plan.wide if one.side == side):
                schema.add(one.name, frame.schema[one.column].dataType)
                taken.append((one.name, side, one.column))
            schema.add(ROW_IDS[side], frame.schema[ROW_IDS[side]].dataType)
            taken.append((ROW_IDS[side], side, ROW_IDS[side]))
        schema.add("probability", T.DoubleType()).add("p_any", T.DoubleType())
        return left.groupBy(*keys).cogroup(right.groupBy(*keys)).applyInArrow(_in_group(plan, taken), schema)

    def _rows_of(self, side: SideName) -> DataFrame:
        plan, frame = self.join, self.join.side(side)
        assert isinstance(frame, SparkFrame)
        at = 0 if side == "left" else 1
        df = frame.df.select(*map(quoted, plan.needed(side)))
        names = [key[at] for key in plan.keys]
        df = df.withColumns(
            {f"__key{number}": F.col(quoted(name)) for number, name in enumerate(names)}
            if names
            else {"__key0": F.lit(0)}
        )
        raise_as = f"Column '{plan.times[at]}' of the {side} table" if plan.node.options.invalid == "raise" else None
        return df.where(state_function(raise_as)(F.col(quoted(plan.times[at]))) == USABLE)


def _in_group(plan: AsofPlan, taken: list[tuple[str, str, str]]) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """Return what finds the events of rows with one key."""
    asked, times, keys, order = plan.asked, plan.times, len(plan.keys), plan.ordered_events

    def pairs(left: pa.Table, right: pa.Table) -> pa.Table:
        found = asked.pairs(left, right, times, keys, order)
        rows = {"left": pa.array(found.left), "right": pa.array(found.right)}
        tables = {"left": left, "right": right}
        columns = {name: tables[side][column].take(rows[side]) for name, side, column in taken}
        columns |= {"probability": pa.array(found.probability), "p_any": pa.array(found.some[found.left])}
        return pa.table(columns)

    return pairs
