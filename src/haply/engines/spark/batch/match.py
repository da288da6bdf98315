"""Which rows are the same thing (see ``planning.answers.match``), on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.batch.weighed import SparkWeighed
from haply.engines.spark.frame import SparkFrame
from haply.joins.ranks import most_pairs
from haply.planning.answers.join import ROW_IDS
from haply.planning.answers.match import MatchPlan
from haply.probability.matchings import marginals

_WEIGHT, _TOTAL, _ENDLESS = "__weight", "__total", "__endless"


class SparkMatches(SparkWeighed):
    """Runs a match: weighs all pairs, then keeps those that are likely enough."""

    join: MatchPlan

    def weighed(self) -> DataFrame:
        """Return all pairs with their probabilities."""
        frame = self.join.pairs.run(self.engine, self.funnel)
        assert isinstance(frame, SparkFrame)
        pairs = frame.df
        options = self.join.options
        pairs = pairs.mapInArrow(_with_factors(self.join), _wider(pairs, "bayes_factor"))
        if options.exclusive:
            schema = _wider(pairs, "p_match", "p_low", "p_high", "p_any")
            return pairs.coalesce(1).mapInArrow(_in_worlds(options.odds, options.tolerance), schema)
        of_row = Window.partitionBy(ROW_IDS["left"])
        endless = F.col(_WEIGHT) == float("inf")
        pairs = pairs.withColumn(_WEIGHT, options.odds * F.col("bayes_factor"))
        pairs = pairs.withColumn(_TOTAL, F.sum(F.when(endless, 0.0).otherwise(F.col(_WEIGHT))).over(of_row))
        pairs = pairs.withColumn(_ENDLESS, F.sum(endless.cast("double")).over(of_row))
        share = F.col(_WEIGHT) / (1.0 + F.col(_TOTAL))
        pairs = pairs.withColumn(
            "p_match", F.when(F.col(_ENDLESS) > 0, endless.cast("double") / F.col(_ENDLESS)).otherwise(share)
        )
        some = F.col(_TOTAL) / (1.0 + F.col(_TOTAL))
        return pairs.withColumn("p_any", F.when(F.col(_ENDLESS) > 0, 1.0).otherwise(some))

    def _ranked(self, pairs: DataFrame) -> DataFrame:
        if self.join.answer.keep != "one_to_one":
            return super()._ranked(pairs)
        # any two rows may depend on each other
        return pairs.coalesce(1).mapInArrow(_likeliest_world(self.join.options.odds), pairs.schema)


_Batches = Iterator[pa.RecordBatch]


def _wider(pairs: DataFrame, *names: str) -> T.StructType:
    """Return the columns of pairs, and further numbers."""
    return T.StructType([*pairs.schema.fields, *(T.StructField(name, T.DoubleType()) for name in names)])


def _with_factors(match: MatchPlan) -> Callable[[_Batches], _Batches]:
    evidence = match.evidence

    def add(batches: _Batches) -> _Batches:
        for batch in batches:
            pairs = pa.Table.from_batches([batch])
            yield from pairs.append_column("bayes_factor", pa.array(evidence.bayes_factors(pairs))).to_batches()

    return add


def _in_worlds(odds: float, tolerance: float) -> Callable[[_Batches], _Batches]:
    """Return what computes the probabilities of pairs in one-to-one worlds."""

    def weigh(batches: _Batches) -> _Batches:
        given = list(batches)
        if not given:
            return
        pairs = pa.Table.from_batches(given)
        (lefts, left), (rights, right) = (np.unique(ids, return_inverse=True) for ids in _ids(pairs))
        found = marginals(left, right, odds * pairs["bayes_factor"].to_numpy(), len(lefts), len(rights), tolerance)
        low, high = found.pairs
        some = 1.0 - 0.5 * (found.unmatched_left.low + found.unmatched_left.high)
        for name, values in (("p_match", 0.5 * (low + high)), ("p_low", low), ("p_high", high), ("p_any", some[left])):
            pairs = pairs.append_column(name, pa.array(values))
        yield from pairs.to_batches()

    return weigh


def _likeliest_world(odds: float) -> Callable[[_Batches], _Batches]:
    """Return what keeps the pairs of the likeliest one-to-one world."""

    def keep(batches: _Batches) -> _Batches:
        given = list(batches)
        if not given:
            return
        pairs = pa.Table.from_batches(given)
        left, right = _ids(pairs)
        with np.errstate(divide="ignore"):
            chosen = most_pairs(left, right, np.log(odds * pairs["bayes_factor"].to_numpy()))
        yield from pairs.filter(pa.array(chosen)).to_batches()

    return keep


def _ids(pairs: pa.Table) -> list[np.ndarray]:
    return [pairs[name].combine_chunks().field("row").to_numpy() for name in ROW_IDS.values()]
