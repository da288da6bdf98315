"""The cascade: rules in order of price; each pair is rejected, accepted, or left for the exact value, and counted."""

from __future__ import annotations

import numpy as np

from haply.models import Gaussian, OneDimensional
from haply.probability.exact import PairProbability
from haply.probability.region import Region
from haply.pruning.bounds.one_dimensional import RULES, bound_verdicts, facts, pays_for_sandwich
from haply.pruning.candidates.curve import gaussian_verdicts
from haply.pruning.threshold import Threshold

SURE_RANGE = "sure range"
"""Pairs accepted without a test: one row's interval lies wholly above or below the other's, or all rows of an index
node are likely enough."""

RULE_NAMES = tuple(RULES.values())
BEATEN = "beaten"
"""Pairs whose rows have enough better pairs, if only the best are wanted."""


class Counters:
    """Counts what became of the candidates: every one is rejected or accepted by a rule, or evaluated."""

    def __init__(
        self, rejecting: tuple[str, ...] = RULE_NAMES, accepting: tuple[str, ...] = (*RULE_NAMES, SURE_RANGE)
    ) -> None:
        self.candidates = self.evaluated = self.kept = 0
        self.rejected, self.accepted = dict.fromkeys((*rejecting, BEATEN), 0), dict.fromkeys(accepting, 0)

    def add_verdicts(self, verdicts: np.ndarray) -> None:
        """Count one block of verdicts."""
        self.candidates += len(verdicts)
        counts = np.bincount(verdicts.astype(np.int64) + len(RULES), minlength=2 * len(RULES) + 1)
        for code, name in RULES.items():
            self.rejected[name] += int(counts[len(RULES) - code])
            self.accepted[name] += int(counts[len(RULES) + code])
        self.evaluated += int(counts[len(RULES)])

    def add_sure(self, pairs: int) -> None:
        """Count pairs accepted without a test."""
        self.candidates += pairs
        self.accepted[SURE_RANGE] += pairs
        self.kept += pairs

    def add(self, more: Counters) -> None:
        """Add other counts to these."""
        self.candidates += more.candidates
        self.evaluated += more.evaluated
        self.kept += more.kept
        for mine, theirs in ((self.rejected, more.rejected), (self.accepted, more.accepted)):
            for rule, count in theirs.items():
                mine[rule] += count

    def flat(self) -> dict[str, int]:
        """Return all counters under flat names, as Spark adds them up over cells."""
        out = {"candidates": self.candidates, "evaluated": self.evaluated, "kept": self.kept}
        out |= {f"rejected:{rule}": count for rule, count in self.rejected.items()}
        out |= {f"accepted:{rule}": count for rule, count in self.accepted.items()}
        return out


class Cascade:
    """Decides pairs of rows of two models under a region and a threshold.

    With ``exact`` the probability of every kept pair is wanted, so bounds only reject; without it they accept as well,
    and the exact value is computed for undecided pairs alone.
    """

    def __init__(
        self, left: OneDimensional, right: OneDimensional, region: Region, threshold: Threshold, exact: bool
    ) -> None:
        self.left, self.right, self.region, self.threshold, self.exact = left, right, region, threshold, exact
        self.probability = PairProbability(left, right, region)
        self.counters = Counters()
        self._gaussian = isinstance(left, Gaussian) and isinstance(right, Gaussian)
        if not self._gaussian:
            self._cuts = pays_for_sandwich(left.components, right.components)
            self._left_facts = facts(left, region.width, self._cuts)
            self._right_facts = facts(right, region.width, False)

    def verdicts(self, left_rows: np.ndarray, right_rows: np.ndarray) -> np.ndarray:
        """Return the first rule that decides each pair: negative if it rejects, positive if it accepts, else 0."""
        left, right, region = self.left, self.right, self.region
        limits = (self.threshold.reject_below, self.threshold.accept_from, not self.exact)
        if self._gaussian:
            return gaussian_verdicts(self.probability.parameters, left_rows, right_rows, region, *limits)
        return bound_verdicts(
            left.components, self._left_facts, right.components, self._right_facts, left_rows, right_rows,
            region.low, region.high, region.outside, *limits, self._cuts,
        )  # fmt: skip

    def decide(self, left_rows: np.ndarray, right_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return positions of the kept pairs in the list, their probabilities (NaN if not computed) and deciding rules.

        A rule is a code of ``bounds.RULES``, or 0 for the exact value.
        """
        verdicts = self.verdicts(left_rows, right_rows)
        self.counters.add_verdicts(verdicts)
        open_pairs = np.flatnonzero(verdicts == 0)
        values = self.probability.evaluate(left_rows[open_pairs], right_rows[open_pairs])
        passed = self.threshold.keep(values, self.probability.counts)
        kept, probabilities = open_pairs[passed], values[passed]
        accepted = np.flatnonzero(verdicts > 0)
        if len(accepted):
            kept = np.concatenate([kept, accepted])
            probabilities = np.concatenate([probabilities, np.full(len(accepted), np.nan)])
        self.counters.kept += len(kept)
        return kept, probabilities, verdicts[kept]
