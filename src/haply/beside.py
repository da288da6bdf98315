"""Joins of a stream with a table: each micro-batch of events is answered from the whole table, without state.

The workers of Spark answer with the local engine, so every option of a join of two tables works. The table is sent to
them in each micro-batch, or, if it is indexed, they read the pages of the index that the events may match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import pyarrow as pa

from haply.errors import HaplyError, without_advice
from haply.planning.answers.join import plan_pairs
from haply.planning.answers.match import MatchOptions, MatchPlan, Same
from haply.planning.answers.options import Answer
from haply.planning.explain import Description
from haply.planning.frames import Engine, Frame
from haply.planning.nodes import JoinNode, JoinOptions, Shown, shown_of
from haply.planning.plans import PlannedQuery
from haply.query import Expression
from haply.report.funnel import Funnel

if TYPE_CHECKING:  # a join need not import counts and as-of joins
    from haply.planning.answers.asof import AsofOptions, AsofPlan
    from haply.planning.answers.counts import CountOptions, CountPlan

COUNTED = (
    "rows_left", "rows_right", "null_left", "null_right", "hopeless_left", "hopeless_right", "invalid_left",
    "invalid_right", "candidates", "evaluated", "kept", "pages_read", "pages_total", "unmatched_left",
    "unmatched_right",
)  # fmt: skip
"""The counters of each batch, in this order."""


NumberKind = Literal["double", "array<double>"]
"""The types of the result's columns that no table has."""


class QueryOfTwo(Protocol):
    """A query on two tables, or on a stream and a table."""

    by_index: ClassVar[bool]
    """Whether it reads only pages of an indexed table."""

    def plan(self, left: Frame, right: Frame) -> PlannedQuery:
        """Plan it for two tables, or refuse it."""

    def refuse(self, stream_is_left: bool) -> None:
        """Refuse what depends on all events that will ever come."""

    def columns(self, left: Frame, right: Frame, plan: Any) -> tuple[tuple[Shown, ...], dict[str, NumberKind]]:
        """Return the columns of the answer that a table has, and the others with their types."""


@dataclass(frozen=True)
class AskedPairs:
    """A join: ``hp.join``."""

    on: Expression | str | None
    options: JoinOptions
    by_index: ClassVar[bool] = True

    def plan(self, left: Frame, right: Frame) -> PlannedQuery:
        """Plan it for two tables."""
        return plan_pairs(JoinNode.of(left, right, self.on, self.options))

    def refuse(self, stream_is_left: bool) -> None:
        """Refuse what depends on all events that will ever come."""
        _refuse_answer(self.options.answer, stream_is_left)
        if self.options.broadcast is not None:
            raise HaplyError(
                "A table that is joined with a stream is sent to every task anyway", hint="leave out broadcast"
            )
        if self.options.time is None and self.options.window is not None:
            raise HaplyError("A join has only one of time and window", expected="time and window", found="window")

    def columns(self, left: Frame, right: Frame, plan: Any) -> tuple[tuple[Shown, ...], dict[str, NumberKind]]:
        """Return the columns of the answer."""
        return tuple(shown_of(left, right, self.options)), dict.fromkeys(self.options.added, "double")


@dataclass(frozen=True)
class AskedCounts:
    """How many partners rows have: ``hp.count_matches``."""

    on: Expression | str | None
    options: CountOptions
    by_index: ClassVar[bool] = True

    def plan(self, left: Frame, right: Frame) -> CountPlan:
        """Plan it for two tables."""
        from haply.planning.answers.counts import CountPlan

        return CountPlan.plan(left, right, self.on, self.options)

    def refuse(self, stream_is_left: bool) -> None:
        """Refuse to count what a stream has not brought yet."""
        if not stream_is_left:
            raise HaplyError(
                "The matches of a table's rows are counted in the whole right stream, which never ends",
                expected="the stream on the left, the table on the right",
            )
        if self.options.by is not None:
            raise HaplyError(
                "by= asks about groups of all events of the stream, which never ends",
                hint="leave out by, and the matches of each event are counted",
            )

    def columns(self, left: Frame, right: Frame, plan: CountPlan) -> tuple[tuple[Shown, ...], dict[str, NumberKind]]:
        """Return the columns of the answer."""
        from haply.joins.counting import DISTRIBUTION

        numbers: dict[str, NumberKind] = dict.fromkeys(plan.numbers, "double")
        if self.options.distribution:
            numbers[DISTRIBUTION] = "array<double>"
        return tuple(Shown("left", name, name) for name in plan.shown), numbers


@dataclass(frozen=True)
class AskedEvents:
    """The last event before each time: ``hp.asof``."""

    time: str | tuple[str, str]
    options: AsofOptions
    by_index: ClassVar[bool] = False

    def plan(self, left: Frame, right: Frame) -> AsofPlan:
        """Plan it for two tables."""
        from haply.planning.answers.asof import AsofPlan

        return AsofPlan.plan(left, right, self.time, self.options)

    def refuse(self, stream_is_left: bool) -> None:
        """Refuse to look for an event that a stream has not brought yet."""
        if not stream_is_left:
            raise HaplyError(
                "The last event is looked for in the whole right stream, which never ends",
                expected="the stream on the left, the table of events on the right",
            )
        _refuse_answer(self.options.answer, stream_is_left)

    def columns(self, left: Frame, right: Frame, plan: AsofPlan) -> tuple[tuple[Shown, ...], dict[str, NumberKind]]:
        """Return the columns of the answer."""
        return plan.node.result, dict.fromkeys(plan.added, "double")


@dataclass(frozen=True)
class AskedMatches:
    """Which rows are the same thing: ``hp.match``."""

    same: Same | Sequence[Same]
    options: MatchOptions
    by_index: ClassVar[bool] = False

    def plan(self, left: Frame, right: Frame) -> MatchPlan:
        """Plan it for two tables."""
        return MatchPlan.plan(left, right, self.same, self.options)

    def refuse(self, stream_is_left: bool) -> None:
        """Refuse to weigh rows against what a stream has not brought yet."""
        if not stream_is_left:
            raise HaplyError(
                "The candidates of a table's rows are all events of the right stream, which never ends",
                expected="the stream on the left, the table on the right",
            )
        if self.options.exclusive:
            raise HaplyError(
                "exclusive=True weighs all events of the stream against each other, and it never ends",
                hint="leave out exclusive, and each event is weighed alone",
            )
        _refuse_answer(self.options.answer, stream_is_left)

    def columns(self, left: Frame, right: Frame, plan: MatchPlan) -> tuple[tuple[Shown, ...], dict[str, NumberKind]]:
        """Return the columns of the answer."""
        return plan.node.result, dict.fromkeys(plan.added, "double")


def planned(left: Frame, right: Frame, asked: QueryOfTwo) -> PlannedQuery:
    """Plan a query on two tables, two streams, or a stream and a table."""
    return asked.plan(left, right) if left.streaming == right.streaming else BesideTable.of(left, right, asked)


@dataclass(frozen=True)
class Answering:
    """Answers a batch of events from a table, in the process where it is called."""

    asked: QueryOfTwo
    stream_is_left: bool
    index: str | None
    """The folder of the index that the table is read from, page by page."""

    def __call__(self, events: pa.Table, table: pa.Table | None) -> tuple[pa.Table, list[int]]:
        """Return the answer, and what was counted."""
        from haply.engines.local.engine import ENGINE
        from haply.engines.local.inputs import local_frame

        other = local_frame(table, "The table") if self.index is None else _indexed(self.index, _version(self.index))
        mine = local_frame(events, "The stream")
        left, right = (mine, other) if self.stream_is_left else (other, mine)
        funnel = Funnel()
        with without_advice():
            found = self.asked.plan(left, right).run(ENGINE, funnel)
        answer: Any = found
        rows = answer.table()
        counts = funnel.to_dict()
        return rows, [int(counts.get(name, 0)) for name in COUNTED]


def _version(path: str) -> tuple[tuple[str, int], ...]:
    """Return a value that changes when an index is built again: then it is read anew."""
    return tuple(sorted((one.name, one.stat().st_mtime_ns) for one in Path(path).iterdir() if one.is_file()))


@lru_cache(maxsize=4)
def _indexed(path: str, version: object) -> Any:
    from haply.engines.local.index import read_index

    return read_index(path)


@dataclass(frozen=True)
class BesideTable:
    """A query on a stream and a table that has been checked and planned."""

    stream: Frame
    table: Frame
    answering: Answering
    result: tuple[Shown, ...]
    added: Mapping[str, NumberKind]
    """The columns of the answer that no table has."""
    checked: PlannedQuery
    """The plan for one batch, over tables without rows."""
    counted: tuple[str, ...] = COUNTED

    @classmethod
    def of(cls, left: Frame, right: Frame, asked: QueryOfTwo) -> BesideTable:
        """Check and plan it; what is refused for two tables is refused here."""
        stream_is_left = left.streaming
        stream, table = (left, right) if stream_is_left else (right, left)
        asked.refuse(stream_is_left)
        index = table.index
        answering = Answering(asked, stream_is_left, None if index is None else str(index.path))
        checked = asked.plan(_no_rows(left), _no_rows(right))
        result, added = asked.columns(left, right, checked)
        return cls(stream, table, answering, result, added, checked)

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of the stream."""
        return engine.beside(self, funnel)

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run."""
        if self.answering.index is None:
            how = "is sent to every task in each micro-batch"
        elif self.answering.asked.by_index:
            how = "is indexed: only pages that events may match are read"
        else:
            how = "is indexed, and every task reads all pages in each micro-batch"
        return Description(
            "Join of a stream with a table", "Each micro-batch is answered from the whole table, without state.",
            (("table", f"the {'right' if self.answering.stream_is_left else 'left'} table {how}"),),
        )  # fmt: skip


def _no_rows(frame: Frame) -> Frame:
    from haply.engines.local.inputs import local_frame

    fields: Mapping[str, Any] = {field.name: field.arrow for field in frame.fields}
    missing = [name for name, kind in fields.items() if kind is None]
    if missing:
        raise HaplyError(f"Column '{missing[0]}' has a type that Arrow does not know", hint="leave it out, or cast it")
    schema = pa.schema(list(fields.items()))
    return local_frame(pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema), "The table")


def _refuse_answer(answer: Answer, stream_is_left: bool) -> None:
    """Refuse rows and pairs that depend on all events that will ever come."""
    stream, table = ("left", "right") if stream_is_left else ("right", "left")
    if table in answer.preserved:
        raise HaplyError(
            f"how='{answer.how}' asks for rows of the {table} table without a partner in the whole stream, "
            "which never ends",
            expected="how='inner', " + ("'left', 'semi' or 'anti'" if stream_is_left else "or 'right'"),
        )
    if table in answer.ranked:
        raise HaplyError(
            f"keep='{answer.keep}' asks for the best event of each row of the {table} table, and a stream never ends",
            expected=f"keep='best_{stream}' or 'all'",
        )
