"""Rows without a partner, and the best pairs of each row (see ``planning.answers.join``).

Row ids are positions. Pairs are passed on as they are found, unless they must be ranked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from haply.engines.local.frame import LocalFrame
from haply.joins.cells.rows import BAD, row_states
from haply.planning.answers.join import ROW_IDS, AnsweredJoin
from haply.planning.frames import SideName


class LocalAnswers:
    """Runs a join whose pairs are ranked, or whose rows without a pair matter."""

    def __init__(self, join: AnsweredJoin, engine: Any, funnel: Any) -> None:
        self.join, self.engine, self.funnel = join, engine, funnel
        self._matched = {side: np.zeros(0, bool) for side in join.answer.preserved}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        join, fields = self.join, []
        for one in join.node.result:
            frame = join.side(one.side)
            assert isinstance(frame, LocalFrame)
            fields.append(frame.schema.field(one.column).with_name(one.name).with_nullable(True))
        return pa.schema([*fields, *([pa.field("probability", pa.float64())] if join.node.exact else [])])

    def tables(self) -> Iterator[pa.Table]:
        """Yield pairs, then rows without one."""
        join, answer = self.join, self.join.answer
        for side in answer.preserved:
            self._matched[side] = np.zeros(self._row_count(side), bool)
        plan = join.ids if answer.left_only else join.pairs
        found = plan.run(self.engine, self.funnel)
        assert isinstance(found, LocalFrame)
        for pairs in found.tables():
            for side, seen in self._matched.items():
                seen[pairs[ROW_IDS[side]].to_numpy()] = True
            if not answer.left_only and pairs.num_rows:
                yield pairs.select(self.schema.names).cast(self.schema)
        if answer.left_only:
            yield from self._rows("left", with_pair=answer.how == "semi")
            return
        counts = {}
        for side in answer.preserved:
            alone = list(self._rows(side, with_pair=False))
            counts[f"unmatched_{side}"] = sum(rows.num_rows for rows in alone)
            yield from alone
        if self.funnel is not None:
            self.funnel.follow(lambda: counts)

    def _row_count(self, side: SideName) -> int:
        frame = self.join.side(side)
        assert isinstance(frame, LocalFrame)
        return frame.table([ROW_IDS[side]]).num_rows

    def _rows(self, side: SideName, with_pair: bool) -> Iterator[pa.Table]:
        """Yield the rows of a side that have a pair, or have none, with nulls for what the other side would show."""
        join, frame = self.join, self.join.side(side)
        assert isinstance(frame, LocalFrame)
        shown, checked = join.shown(side), join.node.uncertain_columns(side)
        table = frame.table(list(dict.fromkeys([*(one.column for one in shown), *checked, ROW_IDS[side]])))
        chosen = self._matched[side] == with_pair
        if not with_pair:
            for name in checked:  # bad rows are in no answer: nobody knows that they have no partner
                chosen &= row_states(table[name], None)[0] != BAD
        rows = table.filter(pa.array(chosen))
        if not rows.num_rows:
            return
        columns = {one.name: rows[one.column] for one in shown}
        yield pa.table(
            [
                columns[field.name] if field.name in columns else pa.nulls(rows.num_rows, field.type)
                for field in self.schema
            ],
            schema=self.schema,
        )
