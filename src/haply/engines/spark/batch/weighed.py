"""Answers whose pairs are weighed against each other before some are kept, on Spark."""

from __future__ import annotations

from abc import abstractmethod

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.engines.spark.batch.answers import SparkAnswers, fingerprints
from haply.engines.spark.observing import Observing
from haply.planning.frames import quoted


class SparkWeighed(SparkAnswers):
    """Keeps pairs that are likely enough, then adds rows without one."""

    @abstractmethod
    def weighed(self) -> DataFrame:
        """Return all pairs with their probabilities."""

    def run(self) -> DataFrame:
        """Return the result, as a lazy DataFrame."""
        join, answer = self.join, self.join.answer
        weighed = self.weighed()
        kept = weighed.where(F.col(join.ranked_by) >= join.node.threshold.keeps_from())
        if answer.ranked:
            kept = self._ranked(kept)
        if answer.left_only:
            return self._rows("left", kept, with_pair=answer.how == "semi")
        result = kept.select(*map(quoted, join.names))
        observing = Observing(self.funnel)
        for side in answer.preserved:
            alone = self._chosen_rows(side, kept, with_pair=False)
            shown = [F.col(quoted(one.column)).alias(one.name) for one in join.shown(side)]
            if side == "left":
                # a row whose candidates are all too unlikely still has its p_any
                prints = fingerprints("left")
                some = weighed.withColumns(prints).groupBy(*prints).agg(F.max("p_any").alias("p_any"))
                alone = alone.join(some, list(prints), "left")
                shown.append(F.coalesce("p_any", F.lit(0.0)).alias("p_any"))
            whole = self._padded(alone.select(*shown), side)
            result = result.unionByName(observing.watch(whole, {f"unmatched_{side}": "count(1)"}))
        return result
