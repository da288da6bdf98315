"""The engine that runs plans on Spark."""

from __future__ import annotations

from typing import Any

from haply.engines.spark.batch.answers import SparkAnswers
from haply.engines.spark.batch.asof import SparkAsof
from haply.engines.spark.batch.counts import SparkCounts
from haply.engines.spark.batch.indexed import SparkIndexedJoin
from haply.engines.spark.batch.join import BatchJoin
from haply.engines.spark.batch.match import SparkMatches
from haply.engines.spark.batch.selection import selected_rows
from haply.engines.spark.exchange.prepare import bad_rows
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.index import build_index
from haply.engines.spark.runtime.failures import translate_failures
from haply.engines.spark.streaming.answers import StreamAnswers
from haply.engines.spark.streaming.beside import answered_beside
from haply.engines.spark.streaming.join import stream_join
from haply.engines.spark.windows import combinations
from haply.planning.answers.asof import AsofPlan
from haply.planning.answers.counts import CountPlan
from haply.planning.answers.join import AnsweredJoin
from haply.planning.answers.match import MatchPlan
from haply.planning.explain import Description
from haply.planning.frames import Frame
from haply.planning.pairs import PairPlan
from haply.planning.selection import RowSelection
from haply.planning.windows import WindowPlan


class SparkEngine:
    """Runs plans on Spark: batch and streaming, classic and Connect."""

    name = "spark"

    def pairs(self, join: PairPlan, funnel: Any) -> SparkFrame:
        """Run a join of two tables or streams."""
        translate_failures()
        if join.streaming:
            return SparkFrame(stream_join(join, funnel).run())
        return SparkFrame((BatchJoin if join.indexed is None else SparkIndexedJoin)(join, funnel).run())

    def describe_pairs(self, join: PairPlan) -> Description:
        """Describe how rows are distributed, and how many pairs are expected; reads tables, not streams."""
        if join.streaming:
            return stream_join(join, None).describe()
        return join.describe_index() if join.indexed is not None else BatchJoin(join, None).describe()

    def answered(self, join: AnsweredJoin, funnel: Any) -> SparkFrame:
        """Run a join of two tables or streams whose pairs are ranked, or whose rows without a pair matter."""
        translate_failures()
        if join.node.streaming:
            return SparkFrame(StreamAnswers(join, funnel).run())
        return SparkFrame(SparkAnswers(join, self, funnel).run())

    def matched(self, match: MatchPlan, funnel: Any) -> SparkFrame:
        """Find rows that are the same thing."""
        translate_failures()
        return SparkFrame(SparkMatches(match, self, funnel).run())

    def counted(self, count: CountPlan, funnel: Any) -> SparkFrame:
        """Count the partners of rows."""
        translate_failures()
        return SparkFrame(SparkCounts(count, self, funnel).run())

    def beside(self, join: Any, funnel: Any) -> SparkFrame:
        """Run a join of a stream with a table."""
        translate_failures()
        return SparkFrame(answered_beside(join, join.counted, funnel))

    def last_events(self, asof: AsofPlan, funnel: Any) -> SparkFrame:
        """Find the last event before each time."""
        translate_failures()
        return SparkFrame(SparkAsof(asof, self, funnel).run())

    def selected(self, selection: RowSelection, funnel: Any) -> SparkFrame:
        """Run a selection."""
        translate_failures()
        return SparkFrame(selected_rows(selection, funnel))

    def bad_rows(self, frame: Frame, column: str) -> SparkFrame:
        """Find the bad rows of an uncertain column, with a ``reason``."""
        translate_failures()
        assert isinstance(frame, SparkFrame)
        return SparkFrame(bad_rows(frame.df, column))

    def build_index(self, frame: Frame, column: str, path: str, page_rows: int, mode: str) -> None:
        """Write an indexed table."""
        translate_failures()
        assert isinstance(frame, SparkFrame)
        build_index(frame.df, column, path, page_rows, mode)

    def combinations(self, plan: WindowPlan, funnel: Any) -> SparkFrame:
        """Run a join of many tables or streams in windows of time."""
        translate_failures()
        return SparkFrame(combinations(plan, funnel))


ENGINE = SparkEngine()
