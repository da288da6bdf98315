"""Rows without a partner, and the best pairs of each row (see ``planning.answers.join``), on Spark.

A row id has a fingerprint, which is the same whenever Spark computes the row, and a number, which distinguishes
equal rows within one computation. Equal rows have equal partners, so fingerprints are enough to find rows without any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from haply.engines.spark.exchange.prepare import state_function
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.observing import Observing
from haply.engines.spark.versions import arrow_function
from haply.joins.cells.rows import BAD
from haply.joins.ranks import Centres, expected_squares, most_pairs
from haply.models.columns import view_column
from haply.planning.answers.join import LEVELS, ROW_IDS, TIES, AnsweredJoin
from haply.planning.frames import SideName, quoted
from haply.planning.plans import Chosen
from haply.pruning.best import DECIMALS

_SCORE, _SPREAD, _ROW, _COUNT, _PLACE = "__score", "__spread", "__row", "__count", "__place"


def fingerprints(side: SideName) -> dict[str, Column]:
    """Return the fingerprints of the rows of a side, as columns by name."""
    return {f"__{part}": F.col(f"{ROW_IDS[side]}.{part}") for part in ("first", "second")}


class SparkAnswers:
    """Runs a join whose pairs are ranked, or whose rows without a pair matter."""

    def __init__(self, join: AnsweredJoin, engine: Any, funnel: Any) -> None:
        self.join, self.engine, self.funnel = join, engine, funnel

    def run(self) -> DataFrame:
        """Return the result, as a lazy DataFrame."""
        answer = self.join.answer
        if answer.left_only:
            return self._rows("left", self._pairs(self.join.ids, self.funnel), with_pair=answer.how == "semi")
        pairs = self._pairs(self.join.pairs, self.funnel)
        parts = [pairs.select(*map(quoted, self.join.names))]
        observing = Observing(self.funnel)
        for side in answer.preserved:
            # the same join again, for ids only: sorting all pairs by their rows would take longer
            alone = self._rows(side, self._pairs(self.join.ids, None), with_pair=False)
            parts.append(observing.watch(self._padded(alone, side), {f"unmatched_{side}": "count(1)"}))
        whole = parts[0]
        for more in parts[1:]:
            whole = whole.unionByName(more)
        return whole

    def _pairs(self, plan: Chosen, funnel: Any) -> DataFrame:
        """Return the pairs that are kept, with the ids of their rows."""
        if self.join.by_levels:
            return self._ranked(self._by_levels(funnel))
        frame = plan.run(self.engine, funnel)
        assert isinstance(frame, SparkFrame)
        return self._ranked(frame.df) if self.join.answer.ranked else frame.df

    def _by_levels(self, funnel: Any) -> DataFrame:
        """Return the pairs of each row above the first level that enough of its pairs reach; without such a level, all.

        Rows that have enough are found by a separate join, with ids only, and left out of the next level. Equal rows
        have equal pairs, so fingerprints identify these rows.
        """
        side, k = self.join.answer.ranked[0], self.join.answer.k or 1
        frame, prints = self.join.side(side), fingerprints(side)
        assert isinstance(frame, SparkFrame)
        columns, parts = frame.df.columns, []
        for level in LEVELS:
            pairs = self._at_level(level, frame, only_id=False, funnel=funnel if level == LEVELS[0] else None)
            if level == LEVELS[-1]:
                parts.append(pairs)
                break
            reaches = F.col("probability") >= level + TIES
            count = F.count(F.when(reaches, 1)).over(Window.partitionBy(ROW_IDS[side]))
            parts.append(pairs.withColumn(_COUNT, count).where(F.col(_COUNT) >= k).drop(_COUNT))
            found = self._at_level(level, frame, only_id=True, funnel=None).where(reaches)
            full = found.groupBy(ROW_IDS[side]).agg(F.count("*").alias(_COUNT)).where(F.col(_COUNT) >= k)
            full = full.select(*(part.alias(name) for name, part in prints.items()))
            frame = SparkFrame(
                frame.df.withColumns(prints).join(full, list(prints), "left_anti").select(*map(quoted, columns))
            )
        whole = parts[0]
        for more in parts[1:]:
            whole = whole.unionByName(more)
        return whole

    def _at_level(self, level: float, rows: SparkFrame, only_id: bool, funnel: Any) -> DataFrame:
        found = self.join.at_level(level, self.join.answer.ranked[0], rows, only_id).run(self.engine, funnel)
        assert isinstance(found, SparkFrame)
        return found.df

    def _ranked(self, pairs: DataFrame) -> DataFrame:
        """Return the best pairs of each row."""
        answer = self.join.answer
        if answer.keep == "one_to_one":
            return pairs.coalesce(1).mapInArrow(_most_pairs, pairs.schema)  # any two rows may depend on each other
        spread = F.lit(0.0)
        if self.join.compared_pairs is not None:
            left, right = map(quoted, self.join.compared_pairs)
            spread = arrow_function(_spreads, "double")(F.col(left), F.col(right))
        score = F.expr(f"floor({self.join.ranked_by} * {DECIMALS!r}D + 0.5D)")
        pairs = pairs.withColumn(_SCORE, score).withColumn(_SPREAD, spread)
        for side in answer.ranked:
            other: SideName = "right" if side == "left" else "left"
            order = [F.col(_SCORE).desc(), F.col(_SPREAD).asc()]
            rank = F.rank()
            if answer.ties == "first":
                order += [F.col(quoted(name)).asc_nulls_last() for name in self.join.ordered_pairs(other)]
                rank = F.row_number()
            place = f"__place_{side}"
            pairs = pairs.withColumn(place, rank.over(Window.partitionBy(ROW_IDS[side]).orderBy(*order)))
        for side in answer.ranked:  # after all ranks: those of one side do not know the other's
            pairs = pairs.where(F.col(f"__place_{side}") <= (answer.k or 1))
        return pairs

    def _rows(self, side: SideName, pairs: DataFrame, with_pair: bool) -> DataFrame:
        """Return the rows of a side that have a pair, or have none, with the columns that the result shows of it."""
        shown = [F.col(quoted(one.column)).alias(one.name) for one in self.join.shown(side)]
        return self._chosen_rows(side, pairs, with_pair).select(*shown)

    def _chosen_rows(self, side: SideName, pairs: DataFrame, with_pair: bool) -> DataFrame:
        """Return the same with all columns of the side, and the fingerprints of rows."""
        join, frame = self.join, self.join.side(side)
        assert isinstance(frame, SparkFrame)
        df = frame.df
        if not with_pair and join.node.options.invalid == "drop":
            for name in join.node.uncertain_columns(side):  # it is not known whether a bad row has a partner
                df = df.where(state_function(None)(F.col(quoted(name))) != BAD)
        prints = fingerprints(side)
        df, on = df.withColumns(prints), list(prints)
        matched = pairs.select(
            F.col(f"{ROW_IDS[side]}.row").alias(_ROW), *(part.alias(name) for name, part in prints.items())
        )
        if not join.answer.ranked:
            return df.join(matched.select(*on), on, "left_semi" if with_pair else "left_anti")
        # some of several equal rows may have lost their pairs to others: count the ids among the pairs
        counts = matched.groupBy(*on).agg(F.count_distinct(_ROW).alias(_COUNT))
        place = F.row_number().over(Window.partitionBy(*on).orderBy(*on))
        df = df.withColumn(_PLACE, place).join(counts, on, "left")
        has_pair = F.col(_PLACE) <= F.coalesce(F.col(_COUNT), F.lit(0))
        return df.where(has_pair if with_pair else ~has_pair)

    def _padded(self, rows: DataFrame, side: SideName) -> DataFrame:
        """Return the same with nulls for what the other side would show."""
        join, columns = self.join, []
        for one in join.node.result:
            frame = join.side(one.side)
            assert isinstance(frame, SparkFrame)
            kind = frame.df.schema[one.column].dataType
            null = F.lit(None).cast(kind).alias(one.name)
            columns.append(F.col(quoted(one.name)) if one.side == side else null)
        known = rows.columns
        numbers = [F.col(name) if name in known else F.lit(None).cast("double").alias(name) for name in join.added]
        return rows.select(*columns, *numbers)


def _most_pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the pairs with the largest sum of probabilities in which no row is twice."""
    given = list(batches)
    if not given:
        return
    pairs, rows = pa.Table.from_batches(given), []
    for name in ROW_IDS.values():
        ids = pairs[name].combine_chunks()
        rows.append(ids.field("row").to_numpy())
    yield from pairs.filter(pa.array(most_pairs(rows[0], rows[1], pairs["probability"].to_numpy()))).to_batches()


def _spreads(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the expected squared differences of pairs."""
    rows = np.arange(len(left))
    return pa.array(expected_squares(Centres.of(view_column(left)), Centres.of(view_column(right)), rows, rows))
