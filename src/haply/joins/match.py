"""Matching two sets of rows: candidates from the sweep, verdicts from the cascade."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from haply.models import Gaussian, OneDimensional
from haply.probability.region import Region
from haply.pruning.bounds import CURVE, RULES
from haply.pruning.cascade import SURE_RANGE, Cascade, Counters
from haply.pruning.gaussian import fits, match_gaussians, sorted_rows
from haply.pruning.intervals import Intervals, accepts_above, accepts_below
from haply.pruning.sweep import Sweep, sure_pairs
from haply.pruning.threshold import Threshold

EXACT_VALUE, SURE_CODE = 0, max(RULES) + 1
DECIDED_BY = {EXACT_VALUE: "exact value", **RULES, SURE_CODE: SURE_RANGE}
"""What decided a kept pair, by the code in ``Matches.decided_by``."""


@dataclass(frozen=True)
class Matches:
    """Kept pairs as row numbers, the probability of each (NaN if it was not asked for), and what decided it."""

    left: np.ndarray
    right: np.ndarray
    probability: np.ndarray
    decided_by: np.ndarray
    counters: Counters
    seconds: dict[str, float]


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
) -> Matches:
    """Decide all pairs whose intervals overlap; what lies wholly above or below is the caller's to accept or drop.

    Hopeless rows are passed over. Groups, if given, must be equal for a pair to be one.
    """
    started = time.perf_counter()
    if isinstance(left, Gaussian) and isinstance(right, Gaussian) and left_groups is None and fits(region, threshold):
        mine = sorted_rows(left.values["mean"], left.sd, left_intervals)
        theirs = sorted_rows(right.values["mean"], right.sd, right_intervals)
        prepared = time.perf_counter()
        found = match_gaussians(mine, theirs, from_position, region, threshold, exact)
        counters = Counters()
        counters.candidates, counters.evaluated, counters.kept = found.candidates, found.evaluated, len(found.left)
        counters.rejected[RULES[CURVE]], counters.accepted[RULES[CURVE]] = found.rejected, found.accepted
        decided_by = np.zeros(len(found.left), np.int8)
        if not exact:
            decided_by[np.isnan(found.probability)] = CURVE
        seconds = {"prepare": prepared - started, "sweep": 0.0, "decide": time.perf_counter() - prepared}
        return Matches(found.left, found.right, found.probability, decided_by, counters, seconds)
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
    return Matches(
        sweep.left_order[i], sweep.right_order[j], probability, decided_by, cascade.counters,
        {"prepare": prepared - started, "sweep": swept, "decide": deciding},
    )  # fmt: skip


def match_all(
    left: OneDimensional,
    right: OneDimensional,
    left_intervals: Intervals,
    right_intervals: Intervals,
    region: Region,
    threshold: Threshold,
    exact: bool,
) -> Matches:
    """Every kept pair: the overlapping ones through the cascade, the sure ones range by range."""
    if not threshold.attainable:
        none = np.empty(0, dtype=np.int64)
        left, right = left.take(none), right.take(none)
        left_intervals, right_intervals = left_intervals.take(none), right_intervals.take(none)
    matches = match_overlapping(left, right, left_intervals, right_intervals, region, threshold, exact)
    above, below = accepts_above(region), accepts_below(region)
    if not (above or below):
        return matches
    parts = [(matches.left, matches.right, matches.probability, matches.decided_by)]
    for i, j in sure_pairs(left_intervals, right_intervals, above, below):
        parts.append((i, j, np.full(len(i), 1.0 if exact else np.nan), np.full(len(i), SURE_CODE, np.int8)))
        matches.counters.add_sure(len(i))
    return Matches(
        *(np.concatenate(column) for column in zip(*parts, strict=True)), matches.counters, matches.seconds
    )
