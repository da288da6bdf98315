"""Answers whose pairs are weighed against each other before some are kept: all of a row's pairs must be known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from haply.engines.local.answers.join import LocalAnswers, only


class LocalWeighed(LocalAnswers):
    """Keeps pairs that are likely enough, then adds rows without one."""

    @abstractmethod
    def weighed(self) -> tuple[pa.Table, np.ndarray]:
        """Return all pairs with their probabilities, and the probability of any partner of each left row.

        Further columns of them come from ``source``.
        """

    def tables(self) -> Iterator[pa.Table]:
        """Yield pairs, then rows without one."""
        join, answer = self.join, self.join.answer
        pairs, some = self.weighed()
        kept = only(pairs, join.node.threshold.keep(pairs[join.ranked_by].to_numpy(), counts=False))
        if answer.ranked and kept.num_rows:
            kept = only(kept, self._chosen(kept))
        for side in answer.preserved:
            self._matched[side] = np.zeros(join.side(side).count_rows(), bool)
            self._matched[side][self._ids(kept, side)] = True
        if answer.left_only:
            yield from self._rows("left", with_pair=answer.how == "semi")
            return
        yield from self.source.finished(kept, self.schema)
        counts = {}
        for side in answer.preserved:
            # a row whose candidates are all too unlikely still has its p_any
            alone = list(self._rows(side, with_pair=False, numbers={"p_any": some} if side == "left" else None))
            counts[f"unmatched_{side}"] = sum(rows.num_rows for rows in alone)
            yield from alone
        if self.funnel is not None:
            self.funnel.follow(lambda: counts)
