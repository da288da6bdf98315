"""The engine that runs plans in this process.

Each kind of query is imported when it first runs, so a join of two small files starts quickly.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from haply.engines.local import sql
from haply.engines.local.frame import LocalFrame
from haply.engines.local.pairs import LocalJoin
from haply.engines.local.threads import on_threads
from haply.errors import HaplyError
from haply.joins.cells.rows import BAD, NULL, USABLE
from haply.joins.cells.selected import Decided
from haply.models.columns import bad_reasons
from haply.models.ragged import as_arrow
from haply.planning.explain import Description
from haply.planning.frames import Frame
from haply.planning.pairs import PairPlan
from haply.planning.selection import RowSelection
from haply.selection.select import EVALUATED, RULES

if TYPE_CHECKING:
    from haply.engines.local.answers.join import LocalAnswers
    from haply.planning.answers.asof import AsofPlan
    from haply.planning.answers.counts import CountPlan
    from haply.planning.answers.join import AnsweredJoin
    from haply.planning.answers.match import MatchPlan
    from haply.planning.windows import WindowPlan

_ROWS_AT_ONCE = 1 << 17


class LocalEngine:
    """Runs plans in this process, on threads."""

    name = "local"

    def pairs(self, join: PairPlan, funnel: Any) -> LocalFrame:
        """Run a join of two tables."""
        runs = _join(join, funnel)
        frame: Any = join.left.frame
        return LocalFrame.streamed(runs.schema, runs.tables, frame._give)

    def describe_pairs(self, join: PairPlan) -> Description:
        """Describe how rows are distributed, and how many pairs are expected; reads the tables."""
        return join.describe_index() if join.indexed is not None else LocalJoin(join, None).describe()

    def answered(self, join: AnsweredJoin, funnel: Any) -> LocalFrame:
        """Run a join whose pairs are ranked, or whose rows without a pair matter."""
        from haply.engines.local.answers.join import LocalAnswers

        return _streamed(LocalAnswers(join, self, funnel))

    def matched(self, match: MatchPlan, funnel: Any) -> LocalFrame:
        """Find rows that are the same thing."""
        from haply.engines.local.answers.match import LocalMatches

        return _streamed(LocalMatches(match, self, funnel))

    def counted(self, count: CountPlan, funnel: Any) -> LocalFrame:
        """Count the partners of rows."""
        from haply.engines.local.answers.counts import LocalCounts

        return _like(count.node.left, LocalCounts(count, self, funnel).table())

    def beside(self, join: Any, funnel: Any) -> LocalFrame:
        """Refuse: tables of this process are not streams."""
        raise HaplyError("Tables of this process are not streams", hint="streams are Spark DataFrames")

    def last_events(self, asof: AsofPlan, funnel: Any) -> LocalFrame:
        """Find the last event before each time."""
        from haply.engines.local.answers.asof import LocalAsof

        return _streamed(LocalAsof(asof, self, funnel))

    def selected(self, selection: RowSelection, funnel: Any) -> LocalFrame:
        """Run a selection."""
        frame: Any = selection.frame
        for text in selection.certain_sql:
            frame = frame.where(text)
        exact = selection.selection.exact
        if not selection.selection.groups:
            kept = frame if selection.selection.threshold.attainable else frame.limit(0)
            return _like(frame, (kept.with_columns({"probability": "1D"}) if exact else kept).table())
        if funnel is not None:
            funnel.start_over()
        table = frame.table().combine_chunks()
        decided = _decided(selection, table)
        if funnel is not None:
            counts = _counts(decided)
            funnel.follow(lambda: counts)
        rows = table.filter(as_arrow(decided.kept))
        if exact:
            rows = rows.append_column("probability", as_arrow(decided.probability[decided.kept]))
        return _like(frame, rows)

    def bad_rows(self, frame: Frame, column: str) -> LocalFrame:
        """Find the bad rows of an uncertain column, with a ``reason``."""
        assert isinstance(frame, LocalFrame)
        table = frame.table()
        reasons = bad_reasons(table[column])
        return _like(frame, table.append_column("reason", reasons).filter(reasons.is_valid()))

    def build_index(self, frame: Frame, column: str, path: str, page_rows: int, mode: str) -> None:
        """Write an indexed table."""
        from haply.engines.local.index import build_index

        assert isinstance(frame, LocalFrame)
        build_index(frame, column, path, page_rows, mode)

    def combinations(self, plan: WindowPlan, funnel: Any) -> LocalFrame:
        """Run a join of many tables in windows of time."""
        from haply.engines.local.windows import combinations

        return _like(plan.first, combinations(plan, funnel))


ENGINE = LocalEngine()


def _join(join: PairPlan, funnel: Any) -> LocalJoin:
    if join.indexed is None:
        return LocalJoin(join, funnel)
    from haply.engines.local.index import LocalIndexedJoin

    return LocalIndexedJoin(join, funnel)


def _like(frame: Any, table: pa.Table) -> LocalFrame:
    """Make a table that the user gets in the kind of a frame."""
    return LocalFrame.of(table, frame._give)


def _streamed(runs: LocalAnswers) -> LocalFrame:
    frame: Any = runs.join.side("left")
    return LocalFrame.streamed(runs.schema, runs.tables, frame._give)


def _decided(selection: RowSelection, table: pa.Table) -> Decided:
    columns = [table[name].combine_chunks() for name in selection.columns.values()]
    texts = {f"n{k}": f"CAST({text} AS DOUBLE)" for k, text in enumerate(selection.number_sql)}
    numbers = [column.combine_chunks() for column in sql.evaluated(table, texts).columns] if texts else []
    worker = selection.worker

    def decide(begin: int) -> Decided:
        count = min(_ROWS_AT_ONCE, table.num_rows - begin)
        return worker([one.slice(begin, count) for one in columns], [one.slice(begin, count) for one in numbers], count)

    parts = list(on_threads(decide, range(0, max(1, table.num_rows), _ROWS_AT_ONCE)))
    return Decided(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _counts(found: Decided) -> dict[str, int]:
    """Return the counters of a selection for a funnel: it counts as a join with one row of constants."""
    usable = found.state == USABLE
    counts = Counter(
        rows_left=len(usable), rows_right=1, null_left=int((found.state == NULL).sum()),
        invalid_left=int((found.state == BAD).sum()), candidates=int(usable.sum()),
        evaluated=int((usable & (found.code == EVALUATED)).sum()), kept=int(found.kept.sum()),
    )  # fmt: skip
    for code, name in RULES.items():
        counts[f"rejected:{name}"] = int((usable & (found.code == -code)).sum())
        counts[f"accepted:{name}"] = int((usable & (found.code == code)).sum())
    return dict(counts)
