"""Pairs whose columns are taken when they are needed: most answers look at few of them before some pairs are left out.

A join knows pairs by the numbers of their rows. The columns of the result are many, and taking them for pairs that are
then left out takes longer than telling which these are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from haply.engines.local.frame import LocalFrame, no_rows
from haply.engines.local.pairs import FoundPairs, LocalJoin
from haply.engines.local.threads import Once, on_threads
from haply.models.ragged import as_arrow
from haply.planning.answers.join import ROW_IDS
from haply.planning.frames import SideName
from haply.planning.pairs import PairPlan
from haply.planning.plans import Chosen

_NUMBERS: dict[SideName, str] = {"left": "__left_number", "right": "__right_number"}
"""The numbers of the rows of pairs, in the tables of their join."""
_PAIRS_AT_ONCE = 1 << 18


class PairSource:
    """Where pairs come from, as tables that have some of their columns; ``columns`` returns others.

    This one is for pairs that have all columns at once.
    """

    def columns(self, pairs: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return columns of pairs that came from here."""
        return pairs.select(list(names))

    def rows(self, pairs: pa.Table, side: SideName) -> np.ndarray:
        """Return numbers that tell the rows of a side apart, for some pairs that came from here."""
        return self.columns(pairs, [ROW_IDS[side]])[ROW_IDS[side]].to_numpy()

    def finished(self, pairs: pa.Table, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield pairs that came from here with the columns of a result."""

        def shown(begin: int) -> pa.Table:
            return self.columns(pairs.slice(begin, _PAIRS_AT_ONCE), schema.names).cast(schema)

        yield from on_threads(shown, range(0, pairs.num_rows, _PAIRS_AT_ONCE))


class PlannedPairs(PairSource):
    """The pairs of a plan. Joins with an index, and joins by several conditions, have all columns at once."""

    def __init__(self, plan: Chosen, engine: Any, funnel: Any) -> None:
        self._plan, self._engine, self._funnel = plan, engine, funnel
        query = plan.query
        self._join = LocalJoin(query, funnel) if isinstance(query, PairPlan) and query.indexed is None else None

    def tables(self) -> Iterator[pa.Table]:
        """Yield the pairs, some at a time, with their probability if it is computed; the first table has none."""
        if self._join is None:
            found = self._plan.run(self._engine, self._funnel)
            assert isinstance(found, LocalFrame)
            yield no_rows(found.schema)
            yield from found.tables()
            return
        nothing = FoundPairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        for pairs in itertools.chain([nothing], self._join.found()):
            columns = dict(zip(_NUMBERS.values(), (pairs.left, pairs.right), strict=True))
            if self._join.join.exact:
                columns["probability"] = pairs.probability
            yield pa.table({name: as_arrow(column) for name, column in columns.items()})

    def columns(self, pairs: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return columns of pairs from this source; columns that the pairs lack are taken from the tables."""
        if not names:
            return pairs.select([])  # keeps the number of rows
        known = {name: pairs[name] for name in names if name in pairs.column_names}
        if any(name in ROW_IDS.values() for name in names):
            known |= {ROW_IDS[side]: pairs[_NUMBERS[side]] for side in self._unmoved if ROW_IDS[side] in names}
        missing = [name for name in names if name not in known]
        if missing:
            assert self._join is not None
            numbers = [pairs[name].to_numpy() for name in _NUMBERS.values()]
            taken = self._join.columns(FoundPairs(numbers[0], numbers[1], np.empty(0)), missing)
            known |= {name: taken[name] for name in missing}
        return pa.table([known[name] for name in names], names=list(names))

    def rows(self, pairs: pa.Table, side: SideName) -> np.ndarray:
        """Return numbers that tell the rows of a side apart, for some pairs that came from here."""
        if self._join is None:
            return super().rows(pairs, side)
        return pairs[_NUMBERS[side]].to_numpy()

    @Once
    def _unmoved(self) -> tuple[SideName, ...]:
        """Return the sides whose row ids are the numbers of their rows: no row was left out before the join."""
        ids = {} if self._join is None else self._join.numbers_of(ROW_IDS)
        return tuple(side for side in _NUMBERS if side in ids and np.array_equal(ids[side], np.arange(len(ids[side]))))
