"""A stream beside a table: each micro-batch of events is answered from the whole table, without state.

The workers of Spark answer with the local engine: all that a join of two tables can be asked is there. The table comes
to them in each micro-batch, or, if it is indexed, they read the pages of the index that the events may match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from haply.errors import HaplyError, without_advice
from haply.planning.answers.join import plan_pairs
from haply.planning.explain import Description
from haply.planning.frames import Engine, Frame
from haply.planning.nodes import JoinNode, JoinOptions, Shown, shown_of
from haply.planning.plans import PlannedQuery
from haply.query import Expression
from haply.report.funnel import Funnel

COUNTED = (
    "rows_left", "rows_right", "null_left", "null_right", "hopeless_left", "hopeless_right", "invalid_left",
    "invalid_right", "candidates", "evaluated", "kept", "pages_read", "pages_total", "unmatched_left",
    "unmatched_right",
)  # fmt: skip
"""What is counted of each batch, in this order."""


@dataclass(frozen=True)
class Answering:
    """Answers a batch of events from a table, in the process where it is called."""

    on: Expression | str | None
    options: JoinOptions
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
            found = plan_pairs(JoinNode.of(left, right, self.on, self.options)).run(ENGINE, funnel)
        answer: Any = found
        rows = answer.table()
        counts = funnel.to_dict()
        return rows, [int(counts.get(name, 0)) for name in COUNTED]


def _version(path: str) -> tuple[tuple[str, int], ...]:
    """What changes when an index is built again: then it is read anew."""
    return tuple(sorted((one.name, one.stat().st_mtime_ns) for one in Path(path).iterdir() if one.is_file()))


@lru_cache(maxsize=4)
def _indexed(path: str, version: object) -> Any:
    from haply.engines.local.index import read_index

    return read_index(path)


@dataclass(frozen=True)
class BesideTable:
    """A join of a stream with a table that has been checked and planned."""

    stream: Frame
    table: Frame
    answering: Answering
    result: tuple[Shown, ...]
    added: tuple[str, ...]
    checked: PlannedQuery
    """The plan for one batch, over tables without rows."""
    counted: tuple[str, ...] = COUNTED

    @classmethod
    def of(cls, left: Frame, right: Frame, on: Expression | str | None, options: JoinOptions) -> BesideTable:
        """Check and plan it: what two tables refuse is refused here."""
        stream_is_left = left.streaming
        stream, table = (left, right) if stream_is_left else (right, left)
        _refuse(options, stream_is_left)
        index = table.index
        path = None if index is None else str(index.path)
        answering = Answering(on, options, stream_is_left, path)
        empty = [_no_rows(frame) for frame in (left, right)]
        checked = plan_pairs(JoinNode.of(empty[0], empty[1], on, options))
        result = shown_of(left, right, options)
        return cls(stream, table, answering, tuple(result), options.added, checked)

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of the stream."""
        return engine.beside(self, funnel)

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run."""
        how = (
            "comes whole to every task in each micro-batch"
            if self.answering.index is None
            else "is indexed: only pages are read that events may match"
        )
        return Description(
            "Stream beside a table", "Each micro-batch is answered from the whole table, without state.",
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


def _refuse(options: JoinOptions, stream_is_left: bool) -> None:
    """Refuse what depends on all events that will ever come."""
    answer = options.answer
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
    if options.broadcast is not None:
        raise HaplyError("A table beside a stream goes to every task anyway", hint="leave out broadcast")
    if options.time is None and options.window is not None:
        raise HaplyError("A join has half a window", expected="time and window", found="window")
