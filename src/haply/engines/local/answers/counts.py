"""How many partners rows have (see ``planning.answers.counts``), on the local engine."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from haply.engines.local import sql
from haply.engines.local.answers.source import PlannedPairs
from haply.engines.local.frame import LocalFrame
from haply.engines.local.threads import on_threads
from haply.joins.cells.rows import BAD, row_states
from haply.joins.counting import ANY, DISTRIBUTION, EXPECTED, OWN, VARIANCE, Counting
from haply.joins.worlds import WorldCounting
from haply.models.ragged import as_arrow
from haply.numerics.order import grouped, numbered
from haply.planning.answers.counts import SD, CountPlan
from haply.planning.answers.join import ROW_IDS
from haply.planning.frames import SideName

_PAIRS_AT_ONCE = 1 << 16
"""About how many pairs a thread counts at a time; all pairs of a row stay together."""


_SIDES: tuple[SideName, SideName] = ("left", "right")
_MIRRORED: tuple[SideName, SideName] = ("right", "left")


class LocalCounts:
    """Runs a count of partners."""

    def __init__(self, plan: CountPlan, engine: Any, funnel: Any) -> None:
        self.plan, self.engine, self.funnel = plan, engine, funnel

    def table(self) -> pa.Table:
        """Return the result."""
        plan = self.plan
        frame = plan.node.left
        assert isinstance(frame, LocalFrame)
        pairs = self._pairs()
        checked = plan.node.uncertain_columns("left")
        rows = frame.table(list(dict.fromkeys([*(plan.by or plan.shown), *checked, ROW_IDS["left"]])))
        columns = self._by_row(pairs, rows.num_rows)
        good = np.ones(rows.num_rows, bool)
        for name in checked:
            good &= row_states(rows[name], None)[0] != BAD
        if plan.by:
            return self._groups(rows, good, pairs, columns)
        if plan.threshold is not None:
            good &= plan.threshold.keep(columns[ANY], counts=False)
        table = rows.select(list(plan.shown))
        columns[SD] = np.sqrt(columns[VARIANCE])
        for name in plan.numbers:
            table = table.append_column(name, as_arrow(columns[name]))
        if plan.options.distribution:
            table = table.append_column(DISTRIBUTION, self._distributions)
        return table.filter(as_arrow(good))

    def _pairs(self) -> pa.Table:
        """Return all pairs that may match: their row ids, and the columns that are not looked up by these."""
        plan = self.plan
        if plan.looked_up:
            source = PlannedPairs(plan.pairs, self.engine, self.funnel)
            return pa.concat_tables(source.columns(pairs, list(ROW_IDS.values())) for pairs in source.tables())
        found = plan.found_pairs(self.engine, self.funnel)
        assert isinstance(found, LocalFrame)
        return found.table()

    def _by_row(self, pairs: pa.Table, count: int) -> dict[str, np.ndarray]:
        """Return the numbers of all left rows: those without pairs have no matches."""
        counting, ids = self.plan.counting, pairs[ROW_IDS["left"]].to_numpy()
        if counting is None:  # every pair is a match
            matches = np.bincount(ids, minlength=count).astype(np.float64)
            self._distributions = pa.array([[0.0] * int(n) + [1.0] for n in matches], pa.list_(pa.float64()))
            numbers = dict.fromkeys(self.plan.numbers, matches)
            return {**numbers, VARIANCE: np.zeros(count), ANY: (matches > 0) * 1.0, OWN: np.zeros(count)}
        known, found = self._counted(counting, pairs, ids)
        columns = {}
        for name in counting.names:
            columns[name] = np.zeros(count)
            columns[name][known] = found[name].to_numpy()
        if counting.distribution:
            place = np.full(count, len(known))
            place[known] = np.arange(len(known))
            sure = pa.array([[1.0]], pa.list_(pa.float64()))
            self._distributions = pa.concat_arrays([found[DISTRIBUTION], sure]).take(as_arrow(place))
        return columns

    def _groups(self, rows: pa.Table, good: np.ndarray, pairs: pa.Table, columns: dict[str, np.ndarray]) -> pa.Table:
        """Return the numbers of groups of left rows: those that share right rows are not independent."""
        plan, names = self.plan, list(self.plan.by)
        given = rows.select(names).append_column("place", as_arrow(np.arange(rows.num_rows)))
        keys = ", ".join(map(sql.quoted, names))
        ranked = sql.run(f"SELECT place, dense_rank() OVER (ORDER BY {keys}) - 1 AS number FROM given", given=given)
        group = np.empty(rows.num_rows, np.int64)
        group[ranked["place"].to_numpy()] = ranked["number"].to_numpy()
        group = group[good]
        count = int(group.max(initial=-1)) + 1
        known, first = np.unique(group, return_index=True)
        expected = np.bincount(group, columns[EXPECTED][good], count)
        variance = np.bincount(group, (columns[VARIANCE] - columns[OWN])[good], count)
        if plan.counting is not None and pairs.num_rows:
            all_groups = np.full(rows.num_rows, -1)
            all_groups[good] = group
            of_pair = all_groups[pairs[ROW_IDS["left"]].to_numpy()]
            rights = pairs[ROW_IDS["right"]].to_numpy()
            key = of_pair * (int(rights.max()) + 1) + rights
            found_keys, found = self._counted(plan.counting.mirrored, pairs, key, mirrored=True)
            variance += np.bincount(found_keys // (int(rights.max()) + 1), found[VARIANCE].to_numpy(), count)
        table = rows.select(names).filter(as_arrow(good)).take(as_arrow(first))
        table = table.append_column(EXPECTED, as_arrow(expected[known]))
        return table.append_column(SD, as_arrow(np.sqrt(np.maximum(variance[known], 0.0))))

    def _values(self, pairs: pa.Table, side: SideName, name: str, chosen: np.ndarray) -> pa.Array:
        """Return the compared values of some pairs."""
        if not self.plan.looked_up:
            return pairs[name].take(as_arrow(chosen)).combine_chunks()
        frame = self.plan.node.frames[side]
        assert isinstance(frame, LocalFrame)
        rows = pairs[ROW_IDS[side]].to_numpy()[chosen]
        return frame.table([name])[name].take(as_arrow(rows)).combine_chunks()

    def _counted(
        self, counting: Counting | WorldCounting, pairs: pa.Table, keys: np.ndarray, mirrored: bool = False
    ) -> tuple[np.ndarray, dict[str, pa.Array]]:
        """Count the partners of each key; returns the keys, and columns of their numbers.

        Both are numbered as they appear. Pairs are found along a line, so that rows with near numbers have near values:
        they share partners, and what is computed of these.
        """
        mine, theirs = _MIRRORED if mirrored else _SIDES
        known = not isinstance(counting, WorldCounting) and ROW_IDS[theirs] in pairs.column_names
        both = [keys, pairs[ROW_IDS[theirs]].to_numpy()] if known else [keys]
        (number, first), *others = on_threads(numbered, both)
        start, members = grouped(number, len(first))
        if isinstance(counting, WorldCounting):
            return keys[first], counting.rows(pairs.take(as_arrow(members)).combine_chunks(), start)
        partner, first_partner = others[0] if others else (np.arange(pairs.num_rows),) * 2
        partner = partner.take(members)
        left = self._values(pairs, mine, counting.left, first)
        right = self._values(pairs, theirs, counting.right, first_partner)
        begins = np.searchsorted(start[:-1], np.arange(0, len(keys), _PAIRS_AT_ONCE))
        spans = list(itertools.pairwise(np.unique(np.append(begins, len(first))).tolist()))

        def counted(span: tuple[int, int]) -> dict[str, pa.Array]:
            bounds = start[span[0] : span[1] + 1]
            mine, theirs = partner[bounds[0] : bounds[-1]], right
            if len(mine):
                low, high = int(mine.min()), int(mine.max()) + 1
                if high - low <= 2 * len(mine):
                    mine, theirs = mine - low, right.slice(low, high - low)
                else:  # few of those between
                    mine, theirs = np.arange(len(mine)), right.take(as_arrow(mine))
            return counting.count(left.slice(span[0], span[1] - span[0]), theirs, bounds - bounds[0], mine)

        parts = list(on_threads(counted, spans or [(0, 0)]))
        return keys[first], {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
