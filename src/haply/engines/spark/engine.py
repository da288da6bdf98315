"""The engine that runs plans on Spark."""

from __future__ import annotations

from typing import Any

from haply.engines.spark.batch.indexed import SparkIndexedJoin
from haply.engines.spark.batch.join import BatchJoin
from haply.engines.spark.batch.selection import selected_rows
from haply.engines.spark.exchange.prepare import bad_rows
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.index import build_index
from haply.engines.spark.runtime.failures import translate_failures
from haply.engines.spark.streaming.join import check_session, stream_join
from haply.engines.spark.windows import combinations
from haply.planning.frames import Frame
from haply.planning.pairs import PairPlan
from haply.planning.selection import RowSelection
from haply.planning.windows import WindowPlan


class SparkEngine:
    """Runs plans on Spark: batch and streaming, classic and Connect."""

    name = "spark"

    def check_streams(self, frame: Frame) -> None:
        """Refuse a session that cannot run streams."""
        assert isinstance(frame, SparkFrame)
        check_session(frame.df.sparkSession)

    def pairs(self, join: PairPlan, funnel: Any) -> SparkFrame:
        """Run a join of two tables or streams."""
        translate_failures()
        if join.streaming:
            return SparkFrame(stream_join(join, funnel).run())
        return SparkFrame((BatchJoin if join.indexed is None else SparkIndexedJoin)(join, funnel).run())

    def pairs_profile(self, join: PairPlan) -> list[str]:
        """Describe how rows are dealt out, and how many pairs are expected; reads the tables."""
        return (BatchJoin if join.indexed is None else SparkIndexedJoin)(join, None).profile()

    def stream_text(self, join: PairPlan) -> str:
        """Describe a join of streams."""
        return stream_join(join, None).explain()

    def expected_partners(self, join: PairPlan) -> float | None:
        """About how many rows a row meets, where an index tells."""
        return None if join.indexed is None else SparkIndexedJoin(join, None).pages.expected_partners

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
