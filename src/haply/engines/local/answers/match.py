"""Which rows are the same thing (see ``planning.answers.match``), on the local engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from haply.engines.local.answers.weighed import LocalWeighed
from haply.engines.local.frame import LocalFrame
from haply.joins.evidence import share_of
from haply.joins.ranks import most_pairs
from haply.planning.answers.join import ROW_IDS
from haply.planning.answers.match import MatchPlan
from haply.probability.matchings import marginals


class LocalMatches(LocalWeighed):
    """Runs a match: weighs all pairs, then keeps those that are likely enough."""

    join: MatchPlan

    def weighed(self) -> tuple[pa.Table, np.ndarray]:
        """Return all pairs with their probabilities, and the probability of any partner of each left row."""
        found = self.join.pairs.run(self.engine, self.funnel)
        assert isinstance(found, LocalFrame)
        pairs = found.table().combine_chunks()
        options = self.join.options
        factor = self.join.evidence.bayes_factors(pairs)
        rows = pairs[ROW_IDS["left"]].to_numpy()
        count = self.join.side("left").count_rows()
        weight = options.odds * factor
        columns = {"bayes_factor": factor}
        if options.exclusive:
            others, theirs = np.unique(pairs[ROW_IDS["right"]].to_numpy(), return_inverse=True)
            worlds = marginals(rows, theirs, weight, count, len(others), options.tolerance)
            low, high = worlds.pairs
            columns |= {"p_match": 0.5 * (low + high), "p_low": low, "p_high": high}
            some = 1.0 - 0.5 * (worlds.unmatched_left.low + worlds.unmatched_left.high)
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
