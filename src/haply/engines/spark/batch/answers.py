"""Rows without a partner, and the best pairs of each row (see ``planning.answers.join``), on Spark.

A row id has a fingerprint, which is the same whenever Spark computes the row, and a number, which tells equal rows
apart within one computation. Equal rows have equal partners: so fingerprints tell which rows have none.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.engines.spark.exchange.prepare import state_function
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.observing import Observing
from haply.joins.cells.rows import BAD
from haply.planning.answers.join import ROW_IDS, AnsweredJoin
from haply.planning.frames import SideName, quoted

_PRINTS = ("__print0", "__print1")


class SparkAnswers:
    """Runs a join whose pairs are ranked, or whose rows without a pair matter."""

    def __init__(self, join: AnsweredJoin, engine: Any, funnel: Any) -> None:
        self.join, self.engine, self.funnel = join, engine, funnel

    def run(self) -> DataFrame:
        """Return the result, as a lazy DataFrame."""
        join, answer = self.join, self.join.answer
        if answer.left_only:
            found = join.ids.run(self.engine, self.funnel)
            return self._rows("left", found.df, with_pair=answer.how == "semi")
        pairs = join.pairs.run(self.engine, self.funnel).df
        parts = [pairs.select(*map(quoted, self._names))]
        observing = Observing(self.funnel)
        for side in answer.preserved:
            # the same join once more, for ids only: to sort all pairs by their rows would take longer
            alone = self._rows(side, join.ids.run(self.engine, None).df, with_pair=False)
            parts.append(observing.watch(self._padded(alone, side), {f"unmatched_{side}": "count(1)"}))
        whole = parts[0]
        for more in parts[1:]:
            whole = whole.unionByName(more)
        return whole

    @property
    def _names(self) -> list[str]:
        names = [one.name for one in self.join.node.result]
        return [*names, "probability"] if self.join.node.exact else names

    def _rows(self, side: SideName, pairs: DataFrame, with_pair: bool) -> DataFrame:
        """The rows of a side that have a pair, or have none, with the columns that the result shows of it."""
        join, frame = self.join, self.join.side(side)
        assert isinstance(frame, SparkFrame)
        df = frame.df
        if not with_pair and join.node.options.invalid == "drop":
            for name in join.node.uncertain_columns(side):  # nobody knows that a bad row has no partner
                df = df.where(state_function(None)(F.col(quoted(name))) != BAD)
        parts = zip(("first", "second"), _PRINTS, strict=True)
        matched = pairs.select(*(F.col(f"{ROW_IDS[side]}.{part}").alias(name) for part, name in parts))
        on = [
            df[ROW_IDS[side]][part] == matched[name] for part, name in zip(("first", "second"), _PRINTS, strict=True)
        ]
        found = df.join(matched, on, "left_semi" if with_pair else "left_anti")
        return found.select(*(F.col(quoted(one.column)).alias(one.name) for one in join.shown(side)))

    def _padded(self, rows: DataFrame, side: SideName) -> DataFrame:
        """The same with nulls for what the other side would show."""
        join, columns = self.join, []
        for one in join.node.result:
            frame = join.side(one.side)
            assert isinstance(frame, SparkFrame)
            kind = frame.df.schema[one.column].dataType
            null = F.lit(None).cast(kind).alias(one.name)
            columns.append(F.col(quoted(one.name)) if one.side == side else null)
        if join.node.exact:
            columns.append(F.lit(None).cast("double").alias("probability"))
        return rows.select(*columns)
