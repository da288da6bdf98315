"""Joins of streams that return more than their pairs, or fewer (see ``planning.answers.join``).

Two stateful functions follow each other. Cells find pairs, and report each row when no further pair of it can come
(see ``worker``). Buckets keep the best pairs, and find the rows that have none (see ``settling``). Certain
conditions on both rows are checked between the two.
"""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from haply.engines.spark.exchange.parcels import PARCEL, CellSettings
from haply.engines.spark.streaming.join import stream_join
from haply.engines.spark.streaming.parcels import unpack
from haply.engines.spark.streaming.session import STREAM_CELLS
from haply.engines.spark.streaming.settling import BUCKET, SPREAD, BucketPack, Settling
from haply.engines.spark.streaming.stateful import BucketProcessor
from haply.engines.spark.streaming.worker import KIND
from haply.engines.spark.versions import arrow_schema
from haply.joins.operators.operator import SIDES, other_side
from haply.joins.ranks import RankedPairs
from haply.planning.answers.join import ROW_IDS, AnsweredJoin
from haply.planning.pairs import PairPlan


class StreamAnswers:
    """Runs a join of streams whose pairs are ranked, or whose rows without a pair matter."""

    def __init__(self, join: AnsweredJoin, funnel: Any) -> None:
        self.join, self.funnel = join, funnel
        assert isinstance(join.pairs.query, PairPlan)
        self.pairs = join.pairs.query

    def run(self) -> DataFrame:
        """Return the result, as a streaming DataFrame."""
        answer = self.join.answer
        if answer.ranked:
            _warm_ranking()
        found, observing = stream_join(self.pairs, self.funnel, answer).pairs_and_rows()
        settling = self._settling(found)
        buckets = CellSettings.of(found.sparkSession).cells or STREAM_CELLS
        pack = BucketPack(settling, buckets)
        parcels = found.mapInArrow(lambda batches: pack(batches), f"{BUCKET} int, {PARCEL} binary")
        settled = parcels.groupBy(BUCKET).transformWithStateInPandas(
            BucketProcessor(settling), f"{PARCEL} binary", "Append", "None"
        )
        result = settled.mapInArrow(unpack, self._schema(found, self._names))
        counts = {
            f"unmatched_{side}": f"count_if({KIND} = {number})"
            for number, side in enumerate(SIDES)
            if side in answer.preserved and not answer.left_only
        }
        return (observing.watch(result, counts) if counts else result).drop(KIND)

    @property
    def _names(self) -> list[str]:
        names = [one.name for one in self.join.node.result]
        return [*names, *(["probability"] if self.join.node.exact else []), KIND]

    def _settling(self, found: DataFrame) -> Settling:
        join, answer = self.join, self.join.answer
        numbers = {side: number for number, side in enumerate(SIDES)}
        order = {numbers[side]: tuple(join.ordered_pairs(other_side(side))) for side in answer.ranked}
        rows = {numbers[side]: ROW_IDS[side] for side in answer.identified}
        held = [*self._names, *(name for names in order.values() for name in names), *rows.values()]
        held += ["probability"] if answer.ranked else []
        schema = arrow_schema(self._schema(found, list(dict.fromkeys(held))))
        if answer.ranked and join.compared_pairs is not None:
            schema = schema.append(pa.field(SPREAD, pa.float64()))
        return Settling(
            answer.how, tuple(numbers[side] for side in answer.ranked),
            tuple(numbers[side] for side in answer.preserved), rows, answer.entangled, answer.k or 1,
            answer.ties == "all", order, join.compared_pairs if answer.ranked else None, schema,
            arrow_schema(self._schema(found, self._names)), uuid.uuid4().hex,
        )  # fmt: skip

    @staticmethod
    def _schema(frame: DataFrame, names: list[str]) -> T.StructType:
        return T.StructType([T.StructField(name, frame.schema[name].dataType) for name in names])


@cache
def _warm_ranking() -> None:
    """Compile here what ranks pairs in workers."""
    pairs = RankedPairs(np.zeros(2, np.int64), 1, np.zeros(2), lambda tied: np.zeros(len(tied)))
    pairs.best(1, lambda tied: np.zeros(len(tied), np.int64))
