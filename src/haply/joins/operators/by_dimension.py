"""Join near points of any dimension: one operator for each dimension, since only points of one dimension meet."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from haply.joins.dimensions import dimensions, dimensions_differ, known_dimensions, of_dimension
from haply.joins.operators.operator import JoinOperator, PairBatch, RowBatch, no_pairs
from haply.joins.operators.position import PositionJoin
from haply.joins.operators.similarity import SimilarityJoin
from haply.joins.operators.state import from_state, to_state
from haply.pruning.cascade import Counters

_KINDS: dict[str, type[SimilarityJoin | PositionJoin]] = {
    kind.__name__: kind for kind in (SimilarityJoin, PositionJoin)
}
_STATE = "join of points"


class PointJoin(JoinOperator):
    """Joins near points with operators of one kind, all with the same settings.

    With ``raises``, a row is an error if its dimension differs from that of the rows before it.
    """

    def __init__(self, kind: type[SimilarityJoin | PositionJoin], settings: dict[str, Any], raises: bool) -> None:
        self.kind, self.settings, self.raises = kind, settings, raises
        self._joins: dict[int, SimilarityJoin | PositionJoin] = {}

    def arrive(self, side: int, rows: RowBatch[Any], *, match: bool = True) -> PairBatch:
        """See ``JoinOperator``."""
        dims = dimensions(rows.model)
        known = known_dimensions(dims)
        odd = [dim for dim in known if self._joins and dim not in self._joins] or known[1:]
        if odd and self.raises:
            raise dimensions_differ(next(iter(self._joins), known[0]), odd[0])
        found: list[PairBatch] = [no_pairs()]
        for dim in known:
            _, chosen = of_dimension(rows.model, dims, dim)
            some = rows if len(chosen) == len(rows) else rows.take(chosen)
            found.append(self._join(dim).arrive(side, some, match=match))
        left, right, probability = (
            np.concatenate([getattr(part, name) for part in found]) for name in ("left", "right", "probability")
        )
        return PairBatch((left, right), probability)

    def _join(self, dim: int) -> SimilarityJoin | PositionJoin:
        if dim not in self._joins:
            self._joins[dim] = self.kind(**self.settings, dim=dim)
        return self._joins[dim]

    def expire(self, time: float) -> None:
        """See ``JoinOperator``."""
        for join in self._joins.values():
            join.advance(time)

    def needed_from(self, side: int, watermark: float) -> float:
        """See ``JoinOperator``."""
        return min((join.needed_from(side, watermark) for join in self._joins.values()), default=-np.inf)

    @property
    def funnel(self) -> Counters:
        """Return what became of the candidates."""
        counters = self.kind(**self.settings, dim=1).funnel
        for join in self._joins.values():
            counters.add(join.funnel)
        return counters

    @property
    def stored_bytes(self) -> int:
        """Memory that rows take."""
        return sum(join.stored_bytes for join in self._joins.values())

    def snapshot(self) -> bytes:
        """Return the operator's state as bytes."""
        joins = {dim: join.snapshot() for dim, join in self._joins.items()}
        return to_state(_STATE, (self.kind.__name__, self.settings, self.raises, joins))

    @classmethod
    def restore(cls, state: bytes) -> Self:
        """Return the operator that wrote these bytes; refuse bytes of another version of the format."""
        kind, settings, raises, joins = from_state(_STATE, state)
        join = cls(_KINDS[kind], settings, raises)
        join._joins = {dim: join.kind.restore(own) for dim, own in joins.items()}
        return join
