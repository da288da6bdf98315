"""Rows without a partner, and the best pairs of each row (see ``planning.answers.join``).

Row ids are positions. Pairs are passed on as they are found, unless they must be ranked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from haply.engines.local import sql
from haply.engines.local.answers.source import PairSource, PlannedPairs
from haply.engines.local.frame import LocalFrame
from haply.engines.local.threads import on_threads
from haply.joins.cells.rows import BAD, row_states
from haply.joins.ranks import Centres, RankedPairs, expected_squares, most_pairs, numbered
from haply.models.columns import view_column
from haply.models.ragged import as_arrow
from haply.planning.answers.join import LEVELS, ROW_IDS, TIES, AnsweredJoin
from haply.planning.frames import SideName

_HELD_PAIRS = 1 << 22
"""How many pairs are held before all but the best of each row are dropped."""

_FEW_LEFT_OUT = 256


class LocalAnswers:
    """Runs a join whose pairs are ranked, or whose rows without a pair matter."""

    source: PairSource
    """The source of the pairs, which returns further columns of them."""

    def __init__(self, join: AnsweredJoin, engine: Any, funnel: Any) -> None:
        self.join, self.engine, self.funnel = join, engine, funnel
        self._matched = {side: np.zeros(0, bool) for side in join.answer.preserved}

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the result."""
        join, fields = self.join, []
        for one in join.node.result:
            frame = join.side(one.side)
            assert isinstance(frame, LocalFrame)
            fields.append(frame.schema.field(one.column).with_name(one.name).with_nullable(True))
        return pa.schema([*fields, *(pa.field(name, pa.float64()) for name in join.added)])

    def tables(self) -> Iterator[pa.Table]:
        """Yield pairs, then rows without one."""
        join, answer = self.join, self.join.answer
        for side in answer.preserved:
            self._matched[side] = np.zeros(join.side(side).count_rows(), bool)
        for pairs in self._pairs():
            for side, seen in self._matched.items():
                seen[self._ids(pairs, side)] = True
            if not answer.left_only:
                yield from self.source.finished(pairs, self.schema)
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

    def _pairs(self) -> Iterator[pa.Table]:
        """Yield the pairs that are kept."""
        join = self.join
        if join.by_levels:
            yield from self._by_levels()
            return
        source = self.source = PlannedPairs(join.ids if join.answer.left_only else join.pairs, self.engine, self.funnel)
        found = source.tables()
        yield from self._ranked(found) if join.answer.ranked else found

    def _ids(self, pairs: pa.Table, side: SideName) -> np.ndarray:
        """Return the row ids of one side of pairs."""
        return self.source.columns(pairs, [ROW_IDS[side]])[ROW_IDS[side]].to_numpy()

    # -- the best pairs ------------------------------------------------------------------------------------------------

    def _by_levels(self) -> Iterator[pa.Table]:
        """Yield the best pairs of each row without a threshold.

        A row that has ``k`` pairs above a level has no better ones below it; the others are looked at again, with a
        lower level, which lets rows farther away be candidates.
        """
        join = self.join
        side = join.answer.ranked[0]
        frame = join.side(side)
        assert isinstance(frame, LocalFrame)
        whole = frame.table()
        open_rows = np.arange(whole.num_rows)
        for level in LEVELS:
            rows = LocalFrame.of(whole.take(as_arrow(open_rows)), frame._give)
            funnel = self.funnel if level == LEVELS[0] else None
            source = self.source = PlannedPairs(join.at_level(level, side, rows), self.engine, funnel)
            pairs = pa.concat_tables(source.tables())
            ids = self._ids(pairs, side)
            above = np.bincount(ids[pairs["probability"].to_numpy() >= level + TIES], minlength=whole.num_rows)
            closed = above >= (join.answer.k or 1) if level != LEVELS[-1] else np.ones(whole.num_rows, bool)
            done = pairs.filter(as_arrow(closed[ids]))
            if done.num_rows:
                yield done.filter(as_arrow(self._chosen(done)))
            open_rows = open_rows[~closed[open_rows]]
            if not len(open_rows):
                return

    def _ranked(self, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the pairs that are kept; only pairs that may still be kept are held in memory."""
        answer, held, count, limit = self.join.answer, list[pa.Table](), 0, _HELD_PAIRS
        for pairs in parts:
            held.append(pairs)
            count += pairs.num_rows
            if count > limit and answer.keep in ("best_left", "best_right"):
                whole = pa.concat_tables(held)
                held = [whole.filter(as_arrow(self._best(whole, answer.ranked[0], ties=True)))]
                count = held[0].num_rows
                limit = max(_HELD_PAIRS, 2 * count)
        if held:
            whole = pa.concat_tables(held)
            yield only(whole, self._chosen(whole))

    def _chosen(self, pairs: pa.Table) -> np.ndarray:
        """Return which of all pairs are kept."""
        answer = self.join.answer
        if answer.keep == "one_to_one":
            rows = [self.source.rows(pairs, side) for side in answer.ranked]
            return most_pairs(rows[0], rows[1], pairs[self.join.ranked_by].to_numpy())
        best = on_threads(lambda side: self._best(pairs, side, answer.ties == "all"), answer.ranked)
        return np.logical_and.reduce(list(best))

    def _best(self, pairs: pa.Table, side: SideName, ties: bool) -> np.ndarray:
        """Return which pairs are among the best of their row of a side."""
        rows, count = numbered(self.source.rows(pairs, side))
        ranked = RankedPairs(
            rows, count, pairs[self.join.ranked_by].to_numpy(), lambda tied: self._spreads(pairs.take(as_arrow(tied)))
        )
        return ranked.best(
            self.join.answer.k or 1, None if ties else lambda tied: self._ranks(pairs.take(as_arrow(tied)), side)
        )

    def _looked_up(self, pairs: pa.Table, side: SideName, names: Sequence[str]) -> pa.Table:
        """Return columns of one side for each pair: from the pairs, or looked up by row id."""
        known, frame = {(one.side, one.column): one.name for one in self.join.wide}, self.join.side(side)
        names = list(dict.fromkeys(names))
        if all((side, name) in known for name in names):
            return self.source.columns(pairs, [known[side, name] for name in names]).rename_columns(names)
        assert isinstance(frame, LocalFrame)
        return frame.table(names).take(as_arrow(self._ids(pairs, side)))

    def _spreads(self, pairs: pa.Table) -> np.ndarray:
        """Return the expected squared differences of pairs; zeros if no columns are compared."""
        if self.join.compared is None:
            return np.zeros(pairs.num_rows)
        sides: tuple[SideName, SideName] = ("left", "right")
        left, right = (
            Centres.of(view_column(self._looked_up(pairs, side, [name])[name].combine_chunks()))
            for side, name in zip(sides, self.join.compared, strict=True)
        )
        rows = np.arange(pairs.num_rows)
        return expected_squares(left, right, rows, rows)

    def _ranks(self, pairs: pa.Table, side: SideName) -> np.ndarray:
        """Number the rows of the other side by the columns that order those that tie."""
        other: SideName = "right" if side == "left" else "left"
        names = self.join.order_of(other)
        if not names:
            return np.zeros(pairs.num_rows, np.int64)
        keys = ", ".join(f"{sql.quoted(name)} NULLS LAST" for name in names)
        query = f"SELECT place, dense_rank() OVER (ORDER BY {keys}) AS rank FROM given"
        given = self._looked_up(pairs, other, names).append_column("place", as_arrow(np.arange(pairs.num_rows)))
        found = sql.run(query, given=given)
        ranks = np.empty(pairs.num_rows, np.int64)
        ranks[found["place"].to_numpy()] = found["rank"].to_numpy()
        return ranks

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows(
        self, side: SideName, with_pair: bool, numbers: Mapping[str, np.ndarray] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of a side that have a pair, or have none, with nulls for what the other side would show.

        ``numbers`` are further columns of all rows of the side.
        """
        join, frame = self.join, self.join.side(side)
        assert isinstance(frame, LocalFrame)
        shown, checked = join.shown(side), join.node.uncertain_columns(side)
        table = frame.table(list(dict.fromkeys([*(one.column for one in shown), *checked, ROW_IDS[side]])))
        chosen = self._matched[side] == with_pair
        if not with_pair:
            for name in checked:  # bad rows are never returned: it is not known whether they have a partner
                chosen &= row_states(table[name], None)[0] != BAD
        rows = table.filter(as_arrow(chosen))
        if not rows.num_rows:
            return
        columns: dict[str, Any] = {one.name: rows[one.column] for one in shown}
        columns |= {name: as_arrow(values[chosen]) for name, values in (numbers or {}).items()}
        yield pa.table(
            [
                columns[field.name] if field.name in columns else pa.nulls(rows.num_rows, field.type)
                for field in self.schema
            ],
            schema=self.schema,
        )


def only(table: pa.Table, chosen: np.ndarray) -> pa.Table:
    """Return the chosen rows of a table: where few are left out, the others are not copied."""
    out = np.flatnonzero(~chosen)
    if len(out) > _FEW_LEFT_OUT:
        return table.filter(as_arrow(chosen))
    begins, ends = [0, *(out + 1).tolist()], [*out.tolist(), table.num_rows]
    return pa.concat_tables(
        [table.slice(begin, end - begin) for begin, end in zip(begins, ends, strict=True) if begin < end]
        or [table.slice(0, 0)]
    )
