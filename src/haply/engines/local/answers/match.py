"""Which rows are the same thing (see ``planning.answers.match``), on the local engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from haply.engines.local.answers.source import PlannedPairs
from haply.engines.local.answers.weighed import LocalWeighed
from haply.joins.ranks import most_pairs
from haply.models.ragged import as_arrow
from haply.planning.answers.match import MatchPlan
from haply.probability.matchings import marginals, shares_of_rows


class LocalMatches(LocalWeighed):
    """Runs a match: weighs all pairs, then keeps those that are likely enough."""

    join: MatchPlan

    def weighed(self) -> tuple[pa.Table, np.ndarray]:
        """Return all pairs with their probabilities, and the probability of any partner of each left row."""
        source = self.source = PlannedPairs(self.join.pairs, self.engine, self.funnel)
        evidence, options = self.join.evidence, self.join.options
        parts = []
        for found in source.tables():
            factor = evidence.bayes_factors(source.columns(found, evidence.columns))
            parts.append(found.append_column("bayes_factor", as_arrow(factor)))
        pairs = pa.concat_tables(parts)
        rows = self._ids(pairs, "left")
        count = self.join.side("left").count_rows()
        factor = pairs["bayes_factor"].to_numpy()
        if options.exclusive:
            others, theirs = np.unique(self._ids(pairs, "right"), return_inverse=True)
            worlds = marginals(rows, theirs, options.odds * factor, count, len(others), options.tolerance)
            low, high = worlds.pairs
            columns = {"p_match": 0.5 * (low + high), "p_low": low, "p_high": high}
            some = 1.0 - 0.5 * (worlds.unmatched_left.low + worlds.unmatched_left.high)
        else:
            share, some = shares_of_rows(options.odds, factor, rows, count)
            columns = {"p_match": share}
        columns["p_any"] = some[rows]
        for name, values in columns.items():
            pairs = pairs.append_column(name, as_arrow(values))
        return pairs, some

    def _chosen(self, pairs: pa.Table) -> np.ndarray:
        if self.join.answer.keep != "one_to_one":
            return super()._chosen(pairs)
        rows = [self.source.rows(pairs, side) for side in self.join.answer.ranked]
        with np.errstate(divide="ignore"):
            return most_pairs(rows[0], rows[1], np.log(self.join.options.odds * pairs["bayes_factor"].to_numpy()))
