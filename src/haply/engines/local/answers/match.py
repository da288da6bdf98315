"""Which rows are the same thing (see ``planning.answers.match``), on the local engine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from haply.engines.local.answers.join import LocalAnswers
from haply.engines.local.frame import LocalFrame
from haply.joins.evidence import share_of
from haply.joins.ranks import most_pairs
from haply.planning.answers.join import ROW_IDS
from haply.planning.answers.match import MatchPlan
from haply.probability.matchings import marginals


class LocalMatches(LocalAnswers):
    """Runs a match: weighs all pairs, then keeps those that are likely enough."""

    join: MatchPlan

    def tables(self) -> Iterator[pa.Table]:
        """Yield pairs, then rows without one."""
        join, answer = self.join, self.join.answer
        found = join.pairs.run(self.engine, self.funnel)
        assert isinstance(found, LocalFrame)
        pairs = found.table().combine_chunks()
        weighed, some = self._weighed(pairs)
        likely = join.threshold.keep(weighed["p_match"].to_numpy(), counts=False)
        kept = weighed.filter(pa.array(likely))
        if answer.ranked and kept.num_rows:
            kept = kept.filter(pa.array(self._chosen(kept)))
        for side in answer.preserved:
            self._matched[side] = np.zeros(join.side(side).count_rows(), bool)
            self._matched[side][kept[ROW_IDS[side]].to_numpy()] = True
        if answer.left_only:
            yield from self._rows("left", with_pair=answer.how == "semi")
            return
        if kept.num_rows:
            yield kept.select(self.schema.names).cast(self.schema)
        counts = {}
        for side in answer.preserved:
            # a row whose candidates are all too unlikely has a probability that one of them is it
            alone = list(self._rows(side, with_pair=False, numbers={"p_any": some} if side == "left" else None))
            counts[f"unmatched_{side}"] = sum(rows.num_rows for rows in alone)
            yield from alone
        if self.funnel is not None:
            self.funnel.follow(lambda: counts)

    def _weighed(self, pairs: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The pairs with their probabilities, and the probability of any partner of each left row."""
        options = self.join.options
        factor = self.join.evidence.bayes_factors(pairs)
        rows = pairs[ROW_IDS["left"]].to_numpy()
        count = self.join.side("left").count_rows()
        weight = options.odds * factor
        columns = {"bayes_factor": factor}
        if options.exclusive:
            others, theirs = np.unique(pairs[ROW_IDS["right"]].to_numpy(), return_inverse=True)
            found = marginals(rows, theirs, weight, count, len(others), options.tolerance)
            low, high = found.pairs
            columns |= {"p_match": 0.5 * (low + high), "p_low": low, "p_high": high}
            some = 1.0 - 0.5 * (found.unmatched_left.low + found.unmatched_left.high)
        else:
            columns["p_match"], some = share_of(weight, rows, count)
        columns["p_any"] = some[rows]
        for name, values in columns.items():
            pairs = pairs.append_column(name, pa.array(values))
        return pairs, some

    def _chosen(self, pairs: pa.Table) -> np.ndarray:
        if self.join.answer.keep != "one_to_one":
            return super()._chosen(pairs)
        rows = [pairs[name].to_numpy() for name in ROW_IDS.values()]
        with np.errstate(divide="ignore"):
            return most_pairs(rows[0], rows[1], np.log(self.join.options.odds * pairs["bayes_factor"].to_numpy()))
