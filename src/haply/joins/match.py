"""Matching two sets of rows: candidates from the sweep, verdicts from the cascade."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from haply.models import Gaussian, OneDimensional, Uniform
from haply.probability.region import Region
from haply.pruning.best import Best, flagged
from haply.pruning.bounds.one_dimensional import CONCENTRATION, CONTAINMENT, CURVE, RULES
from haply.pruning.candidates.gaussian import gaussian_pass
from haply.pruning.candidates.intervals import Intervals, accepts_above, accepts_below
from haply.pruning.candidates.one_pass import Labels, OnePass, PassOutput, Places, Run, fits, ordinary
from haply.pruning.candidates.sweep import Sweep, sure_pairs
from haply.pruning.candidates.uniform import uniform_pass
from haply.pruning.cascade import BEATEN, SURE_RANGE, Cascade, Counters
from haply.pruning.threshold import Threshold

EXACT_VALUE, SURE_CODE = 0, max(RULES) + 1
DECIDED_BY = {EXACT_VALUE: "exact value", **RULES, SURE_CODE: SURE_RANGE}
"""What decided a kept pair, by the code in ``Matches.decided_by``."""


@dataclass(frozen=True)
class Matches:
    """Kept pairs by row numbers or labels, their probabilities (NaN if not asked for), and what decided them."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    decided_by: np.ndarray
    counters: Counters
    seconds: dict[str, float]

    def take(self, chosen: np.ndarray) -> Matches:
        """Return the given pairs; all that was counted."""
        return Matches(
            self.left[chosen], self.right[chosen], self.probability[chosen], self.decided_by[chosen],
            self.counters, self.seconds,
        )  # fmt: skip

    def only(self, kept: np.ndarray) -> Matches:
        """Return the pairs that are flagged; all that was counted."""
        left, right, probability, reasons = flagged(self.left, self.right, self.probability, self.decided_by, kept)
        return Matches(left, right, probability, reasons, self.counters, self.seconds)


def match_overlapping(
    left: OneDimensional,
    right: OneDimensional,
    left_intervals: Intervals,
    right_intervals: Intervals,
    region: Region,
    threshold: Threshold,
    exact: bool,
    *,
    from_position: float = -np.inf,
    left_groups: np.ndarray | None = None,
    right_groups: np.ndarray | None = None,
    labels: Labels = (None, None),
    best: Best | None = None,
) -> Matches:
    """Decide all pairs whose intervals overlap; what lies wholly above or below is the caller's to accept or drop.

    Hopeless rows are passed over. Groups, if given, must be equal for a pair to be one. With ``best``, which goes with
    probabilities and without labels, other pairs than the wanted ones may be left out.
    """
    left_labels, right_labels = labels
    started = time.perf_counter()
    if left_groups is None:
        intervals = left_intervals, right_intervals
        one_pass = _one_pass((left, right), intervals, from_position, region, threshold, exact, labels, best)
        if one_pass is not None:
            return _as_matches(one_pass.whole(), type(left), exact, time.perf_counter() - started)
    sweep = Sweep(
        left_intervals, right_intervals,
        from_position=from_position, left_groups=left_groups, right_groups=right_groups,
    )  # fmt: skip
    cascade = Cascade(left.take(sweep.left_order), right.take(sweep.right_order), region, threshold, exact)
    prepared = time.perf_counter()
    deciding = 0.0
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
    for left_rows, right_rows in sweep.blocks():
        begun = time.perf_counter()
        kept, probability, decided_by = cascade.decide(left_rows, right_rows)
        deciding += time.perf_counter() - begun
        if len(kept):
            parts.append((left_rows[kept], right_rows[kept], probability, decided_by))
    if parts:
        i, j, probability, decided_by = (np.concatenate(column) for column in zip(*parts, strict=True))
    else:
        i = j = np.empty(0, np.int32)
        probability, decided_by = np.empty(0), np.empty(0, np.int8)
    swept = time.perf_counter() - prepared - deciding
    left_names = sweep.left_order if left_labels is None else left_labels.take(sweep.left_order)
    right_names = sweep.right_order if right_labels is None else right_labels.take(sweep.right_order)
    return Matches(
        left_names.take(i), right_names.take(j), probability, decided_by, cascade.counters,
        {"prepare": prepared - started, "sweep": swept, "decide": deciding},
    )  # fmt: skip


def match_in_parts(
    left: OneDimensional,
    right: OneDimensional,
    left_intervals: Intervals,
    right_intervals: Intervals,
    region: Region,
    threshold: Threshold,
    exact: bool,
    *,
    labels: Labels,
    parts: int,
    run: Run,
    best: Best | None,
    finish: Callable[[Matches, Places | None], Matches],
) -> Iterator[Matches] | None:
    """Decide as ``match_overlapping``, but in so many parts, which ``run`` may find and ``finish`` at the same time.

    Returns None if these sides are not joined in one pass.
    """
    intervals = left_intervals, right_intervals
    one_pass = _one_pass((left, right), intervals, -np.inf, region, threshold, exact, labels, best)
    if one_pass is None:
        return None
    return one_pass.parts(
        parts, run, lambda part: finish(_as_matches(part, type(left), exact, part.seconds), part.places)
    )


def _one_pass(
    models: tuple[OneDimensional, OneDimensional], intervals: tuple[Intervals, Intervals], from_position: float,
    region: Region, threshold: Threshold, exact: bool, labels: Labels, best: Best | None,
) -> OnePass | None:  # fmt: skip
    """Return the join of two sides of these kinds in one pass, if there is one."""
    if not fits(region, threshold):
        return None
    (left, right), hopeless = models, [side.hopeless for side in intervals]
    if isinstance(left, Gaussian) and isinstance(right, Gaussian):
        if all(ordinary(side.sd, bad, region) for side, bad in zip((left, right), hopeless, strict=True)):
            return gaussian_pass(left, right, *intervals, from_position, region, threshold, exact, labels, best)
    elif isinstance(left, Uniform) and isinstance(right, Uniform):
        lengths = left.hi - left.lo, right.hi - right.lo
        if all((length > 0.0).all() for length in lengths) and all(
            ordinary(length, bad, region) for length, bad in zip(lengths, hopeless, strict=True)
        ):
            return uniform_pass(left, right, *intervals, from_position, region, threshold, exact, labels)
    return None


def _as_matches(found: PassOutput, kind: type[OneDimensional], exact: bool, seconds: float) -> Matches:
    """Count what one pass found under the names of the rules that are in it."""
    rejecting, accepting = (CURVE, CURVE) if kind is Gaussian else (CONCENTRATION, CONTAINMENT)
    counters = Counters()
    counters.candidates, counters.evaluated, counters.kept = found.candidates, found.evaluated, len(found.left)
    counters.rejected[RULES[rejecting]] = found.rejected
    if exact:  # nothing is accepted by a bound: what is neither rejected nor evaluated is beaten
        counters.rejected[BEATEN] = found.accepted
    else:
        counters.accepted[RULES[accepting]] = found.accepted
    decided_by = np.zeros(len(found.left), np.int8)
    if not exact:
        decided_by[np.isnan(found.probability)] = accepting
    spent = {"prepare": 0.0, "sweep": 0.0, "decide": seconds}
    return Matches(found.left, found.right, found.probability, decided_by, counters, spent)


def match_all(
    left: OneDimensional,
    right: OneDimensional,
    left_intervals: Intervals,
    right_intervals: Intervals,
    region: Region,
    threshold: Threshold,
    exact: bool,
    *,
    labels: Labels = (None, None),
) -> Matches:
    """Return every kept pair: the overlapping ones through the cascade, the sure ones range by range."""
    if not threshold.attainable:
        none = np.empty(0, dtype=np.int64)
        left, right = left.take(none), right.take(none)
        left_intervals, right_intervals = left_intervals.take(none), right_intervals.take(none)
        labels = (None, None)
    matches = match_overlapping(left, right, left_intervals, right_intervals, region, threshold, exact, labels=labels)
    above, below = accepts_above(region), accepts_below(region)
    if not (above or below):
        return matches
    parts = [(matches.left, matches.right, matches.probability, matches.decided_by)]
    for i, j in sure_pairs(left_intervals, right_intervals, above, below):
        i = i if labels[0] is None else labels[0].take(i)
        j = j if labels[1] is None else labels[1].take(j)
        parts.append((i, j, np.full(len(i), 1.0 if exact else np.nan), np.full(len(i), SURE_CODE, np.int8)))
        matches.counters.add_sure(len(i))
    i, j, probability, decided_by = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Matches(i, j, probability, decided_by, matches.counters, matches.seconds)
