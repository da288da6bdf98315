"""Threshold selection: which rows fulfil all conditions with enough probability, deciding as many as possible early.

Conditions come in groups that share no uncertain column, so that their probabilities multiply. Per-row planning works
on a batch in waves: what costs next to nothing is computed, all other groups get bounds, and then each row that is
still open has that group computed which promises to decide it soonest for its price. What the other groups can still
give a row is its residual threshold: a group that stays below it rejects the row by itself. Rows whose means miss a
condition are asked about it first: that takes arithmetic only, and most of them are rejected.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from haply.errors import unknown_name
from haply.models import Model
from haply.pruning.cascade import Counters
from haply.pruning.groups import choose, likely, residual, settle
from haply.pruning.threshold import Threshold
from haply.selection.cases import Either
from haply.selection.conditions import Condition, Prepared, RowValues
from haply.selection.costs import Costs
from haply.selection.group import RULE_NAMES, Group
from haply.selection.grouping import group_of
from haply.selection.hindsight import BOUNDS, NOTHING, VALUE, Hindsight

Planning = Literal["per_row", "static", "optimal"]
"""``per_row``: an order for each row; ``static``: one order for all and no bounds; ``optimal``, for experiments: the
best order for each row in hindsight, over the same values and bounds (see ``selection.hindsight``)."""
PLANNINGS: tuple[Planning, ...] = ("per_row", "static", "optimal")

EVALUATED, ONE_VALUE = 0, 101
"""The code of rows for which something dear was computed, and of the rule that asks the conditions on one value first,
which cost next to nothing. A code is negative where its rule rejected a row."""
RULES = {**RULE_NAMES, ONE_VALUE: "one value"}
"""Names of the rules by their codes."""
EXACT_VALUE = "exact value"
_SAMPLE = 256
"""Rows whose probabilities tell a static plan in which order to go."""
_TRIAL = 1024
"""Rows that tell whether a group's bounds are worth their price, in batches of many more."""
MANY = 8 * _TRIAL
"""Rows of a batch from which on there is a trial."""
_NEARLY_ALL = 0.98
"""From this part of a batch on, all rows are computed: to copy the parameters of some costs more than the others."""
_SEVERAL = 512
"""Rows of a batch from which on it is worth while to look which of them miss a condition with their means."""
_CHEAP = 0.25
"""Bounds that cost no more than this part of the value need no trial: rows that miss the condition are asked."""
_FEW = 128
"""Those of them whose value is computed, for its price."""


class Selected(NamedTuple):
    """The kept rows, their probabilities (NaN where none was asked for or needed), and what decided each row."""

    rows: np.ndarray
    probability: np.ndarray
    code: np.ndarray


class RowStep(NamedTuple):
    """One filter that was asked about a row: a bound on the probability of a group, or its exact value.

    ``selectivity`` is what was expected of the group before, ``cost`` the seconds of its exact value, and ``rank``
    follows from both. ``lower`` and ``upper`` are what is known of the group after the step; ``least`` and ``most``
    what is known of the row.
    """

    group: str
    filter: str
    cost: float
    selectivity: float
    rank: float
    lower: float
    upper: float
    least: float
    most: float
    verdict: Literal["rejects", "accepts", "leaves it open"]


class FollowedRow(NamedTuple):
    """How one row was decided, and the exact probability of each group, cheapest first, and of all together."""

    steps: tuple[RowStep, ...]
    chances: tuple[tuple[str, float], ...]
    probability: float
    kept: bool


@dataclass
class Effort:
    """Where the time went, and for how many rows each group was computed, and bounded."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("bounds", "exact", "choosing"), 0.0))
    computed: dict[str, int] = field(default_factory=dict)
    bounded: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """Groups of conditions and the threshold that they must reach together."""

    groups: tuple[Group, ...]
    threshold: Threshold
    planning: Planning = "per_row"
    exact: bool = True
    """Whether the probability of each kept row is wanted: bounds then reject, but do not accept."""
    costs: Costs = field(default_factory=Costs.of_this_machine)

    @classmethod
    def of(
        cls,
        groups: Sequence[Sequence[Condition | Either]],
        kinds: Mapping[str, type[Model]],
        threshold: Threshold,
        planning: Planning = "per_row",
        exact: bool = True,
        costs: Costs | None = None,
    ) -> Selection:
        """Checks, before any data is read, that every group can be computed."""
        if planning not in PLANNINGS:
            raise unknown_name("choice of planning", planning, PLANNINGS)
        made = tuple(group_of(group, kinds) for group in groups)
        return cls(made, threshold, planning, exact, costs or Costs.of_this_machine())

    @property
    def columns(self) -> list[str]:
        """Return the uncertain columns, each once."""
        return [name for group in self.groups for name, _ in group.kinds]

    @property
    def may_miss_columns(self) -> bool:
        """Return whether rows may be kept in which a column is null."""
        return any(group.either is not None for group in self.groups)

    def without(self, unknown: frozenset[str]) -> Selection | None:
        """Decide rows in which some columns or numbers are null: conditions on these do not hold.

        Returns nothing if no such row can be kept.
        """
        groups: list[Group] = []
        for group in self.groups:
            if not unknown & {name for name, _ in group.kinds} | unknown & set(group.numbers):
                groups.append(group)
                continue
            left = group.either.without(unknown) if group.either else None
            if left is None:
                return None
            groups.append(group_of([left], dict(group.kinds)))
        return replace(self, groups=tuple(groups))

    def select(self, batch: RowValues, effort: Effort | None = None, steps: np.ndarray | None = None) -> Selected:
        """Decide the rows of a batch. ``steps`` are those of an optimal plan, if they are known (see ``hindsight``)."""
        run = _Run(self, batch, effort or Effort())
        if not self.groups:
            return run.result()
        if self.planning == "static":
            run.in_order(self._static_order(batch))
        elif self.planning == "optimal":
            if steps is None:
                steps = Hindsight.of(self.groups, batch, self.threshold).steps(self.threshold, self.exact)
            run.in_hindsight(steps)
        else:
            run.per_row()
        return run.result()

    def follow(self, row: RowValues) -> FollowedRow:
        """Decide a batch of one row, and tell step by step how."""
        run = _Run(self, row, Effort())
        run.trace = []
        run.per_row()
        chances = self.probabilities(row)[:, 0]
        by_cost = sorted(range(len(self.groups)), key=lambda g: run.costs[g])
        groups = tuple((self.groups[g].text, float(chances[g])) for g in by_cost)
        return FollowedRow(tuple(run.trace), groups, float(chances.prod()), bool(len(run.result().rows)))

    def probabilities(self, batch: RowValues) -> np.ndarray:
        """Compute the probability of every group and row."""
        found = np.empty((len(self.groups), batch.rows))
        for g, group in enumerate(self.groups):
            found[g] = group.prepare(batch).exact()[0]
        return found

    def _static_order(self, batch: RowValues) -> list[int]:
        """Order groups by ascending selectivity in a sample of the rows."""
        sample = batch.take(np.linspace(0, batch.rows - 1, min(batch.rows, _SAMPLE)).astype(np.int64))
        needed = self.threshold.reject_below
        share = [float((chance > needed).mean()) for chance in self.probabilities(sample)] if sample.rows else []
        return sorted(range(len(share)), key=lambda g: share[g])


class _Run:
    """The rows of one batch while they are decided."""

    def __init__(self, selection: Selection, batch: RowValues, effort: Effort) -> None:
        self.selection, self.batch, self.effort = selection, batch, effort
        self.groups, self.threshold = selection.groups, selection.threshold
        shape = (len(self.groups), batch.rows)
        self.lower, self.upper = np.zeros(shape), np.ones(shape)
        self.computed = np.zeros(shape, bool)
        self.counts = len(self.groups) == 1
        self.code = np.zeros(batch.rows, np.int8)
        self.rule = np.full(batch.rows, EVALUATED, np.int8)
        """What was last learnt of each row, and by which rule; EVALUATED once something dear was computed."""
        self.dear = [not group.is_nearly_free for group in self.groups]
        self.open = np.arange(batch.rows)
        """Rows that are not decided."""
        self.accepted = np.zeros(batch.rows, bool)
        self._prepared: dict[int, tuple[np.ndarray, Prepared]] = {}
        self.costs = [selection.costs.of(group) for group in self.groups]
        """Seconds for a row of each group: as measured before, or, better, in this batch."""
        self.expected = np.full(len(self.groups), 0.5)
        """The probability of rows of which nothing is known, as far as a trial has told it."""

        self.trace: list[RowStep] | None = None
        """What was asked about a row, in order, if it is a batch of one row whose steps are to be told."""

    # -- steps ---------------------------------------------------------------------------------------------------------

    def compute(self, g: int, rows: np.ndarray) -> None:
        """Compute the exact probabilities of a group for some of the open rows."""
        if not len(rows):
            return
        begun = time.thread_time()
        before = self.lower[g, rows[0]], self.upper[g, rows[0]]
        if g not in self._prepared and len(rows) > _NEARLY_ALL * self.batch.rows:
            found, counts = self.groups[g].prepare(self.batch).exact()
            self._know(g, rows, found[rows], counts)
        else:
            self._know(g, rows, *self._ready(g, rows).exact())
        self.effort.seconds["exact"] += time.thread_time() - begun
        if self.trace is not None:
            self._tell(g, EXACT_VALUE, before)

    def _prepare(self, g: int, rows: np.ndarray) -> None:
        """Prepare rows of a group, for bounds and values of some of them."""
        self._prepared[g] = rows, self.groups[g].prepare(self.batch, rows)

    def _ready(self, g: int, rows: np.ndarray) -> Prepared:
        """Return rows of a group out of those that have been prepared; if none have, prepare these."""
        if g not in self._prepared:
            return self.groups[g].prepare(self.batch, rows)
        of, prepared = self._prepared[g]
        return prepared.take(np.searchsorted(of, rows)) if len(rows) < len(of) else prepared

    def _know(self, g: int, rows: np.ndarray, found: np.ndarray, counts: bool) -> None:
        """Keep the exact probabilities of some rows."""
        self.lower[g, rows] = self.upper[g, rows] = found
        self.computed[g, rows] = True
        self.rule[rows] = EVALUATED if self.dear[g] or not any(self.dear) else ONE_VALUE
        self.counts = self.counts and counts
        name = self.groups[g].text
        self.effort.computed[name] = self.effort.computed.get(name, 0) + len(rows)

    def bound(self, g: int) -> None:
        """Compute bounds of a group for the open rows where they paid in a sample."""
        begun, before = time.thread_time(), self.effort.seconds["exact"]
        rows = self.open
        missed = self._surely_missed(g, rows)
        where: Literal["everywhere", "missed", "nowhere"] = "everywhere" if missed is None else "missed"
        if missed is None and len(rows) > MANY:
            where = self._trial(g, rows)
        if where == "missed":
            missed = self.groups[g].missed(self.batch, rows) if missed is None else missed
            assert missed is not None
            if missed.any():
                self._bound_rows(g, rows[missed])
        elif where == "everywhere":
            self._prepare(g, rows)
            self._bound_rows(g, rows)
        self.effort.seconds["bounds"] += time.thread_time() - begun - (self.effort.seconds["exact"] - before)

    def _surely_missed(self, g: int, rows: np.ndarray) -> np.ndarray | None:
        """Return the rows that bounds are likely to reject, if only these need bounds without a trial; else None.

        So it is if bounds are known to be cheap, and there is no other dear group whose order a trial would tell.
        """
        if len(rows) <= _SEVERAL or not self.selection.exact or sum(self.dear) > 1:
            return None
        if self.selection.costs.of_bounds(self.groups[g]) > _CHEAP * self.costs[g]:
            return None
        return self.groups[g].missed(self.batch, rows)

    def _bound_rows(self, g: int, rows: np.ndarray) -> None:
        """Compute bounds of a group for some rows, until each is decided."""
        enough = self._enough(g, rows)
        if self.trace is not None:
            self._bound_step_by_step(g, *enough)
        found = self._ready(g, rows).bounds(*enough)
        name = self.groups[g].text
        self.effort.bounded[name] = self.effort.bounded.get(name, 0) + len(rows)
        if found is not None:
            new = ~self.computed[g, rows]
            rows = rows[new]
            self.lower[g, rows] = np.clip(found.lower[new], 0.0, 1.0)
            self.upper[g, rows] = np.clip(found.upper[new], 0.0, 1.0)
            self.rule[rows] = found.code[new]

    def _bound_step_by_step(self, g: int, below: np.ndarray, enough: np.ndarray) -> None:
        """Tell what each rule makes of the one row, until one decides it."""
        prepared, lower, upper = self._ready(g, self.open), self.lower[g].copy(), self.upper[g].copy()
        for most in range(1, len(self.groups[g].rules) + 1):
            found = prepared.bounds(below, enough, most)
            if found is None:
                return
            before = self.lower[g, 0], self.upper[g, 0]
            self.lower[g], self.upper[g] = np.clip(found.lower, 0.0, 1.0), np.clip(found.upper, 0.0, 1.0)
            self._tell(g, RULES[int(found.code[0])], before)
            if found.upper[0] <= below[0] or found.lower[0] >= enough[0]:
                break
        self.lower[g], self.upper[g] = lower, upper

    def _tell(self, g: int, asked: str, before: tuple[float, float]) -> None:
        """Write down a step that has changed what is known of a group of the one row."""
        assert self.trace is not None
        least, most = float(self.lower[:, 0].prod()), float(self.upper[:, 0].prod())
        selectivity, cost = float(likely(*before, self.expected[g])), self.costs[g]
        full = bool(self.computed[:, 0].all())
        counts = self.counts and full
        verdict: Literal["rejects", "accepts", "leaves it open"] = "leaves it open"
        if most <= self.threshold.reject_below or (full and not self.threshold.keep(np.array([most]), counts)[0]):
            verdict = "rejects"
        elif full or (not self.selection.exact and least >= self.threshold.accept_from):
            verdict = "accepts"
        known = float(self.lower[g, 0]), float(self.upper[g, 0])
        rank = (1.0 - selectivity) / cost
        self.trace.append(RowStep(self.groups[g].text, asked, cost, selectivity, rank, *known, least, most, verdict))

    def _enough(self, g: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the upper and the lower bound of a group that decide each row, given the other groups."""
        below = residual(self.threshold.reject_below, rows, self.upper, g)
        if self.selection.exact:  # once its lower bound is there, this group does not reject the row
            return below, np.maximum(below, 0.0)
        return below, residual(self.threshold.accept_from, rows, self.lower, g)

    def _trial(self, g: int, rows: np.ndarray) -> Literal["everywhere", "missed", "nowhere"]:
        """Find in a sample of the rows where the bounds of a group pay; keep its costs and values."""
        group = self.groups[g]
        chosen = rows[np.linspace(0, len(rows) - 1, _TRIAL).astype(np.int64)]
        below, enough = self._enough(g, chosen)
        trial = group.prepare(self.batch, chosen)
        asked = time.thread_time()
        found = trial.bounds(below, enough)
        price = (time.thread_time() - asked) / _TRIAL
        if found is None:
            return "everywhere"
        decided = found.upper <= below
        if not self.selection.exact:
            decided |= found.lower >= enough
        few = np.flatnonzero(~decided)[:_FEW]  # they will have to be computed anyway
        chances = 0.5 * (found.lower + found.upper)
        if len(few) >= _FEW // 4:
            some = trial.take(few)
            asked = time.thread_time()
            self._know(g, chosen[few], *some.exact())
            spent = time.thread_time() - asked
            self.effort.seconds["exact"] += spent
            self.costs[g] = spent / len(few)
            chances[few] = self.lower[g, chosen[few]]
        # without bounds it would be computed, after all that is cheaper
        dear = [cost for cost, dear in zip(self.costs, self.dear, strict=True) if dear]
        saved = self.costs[g] + sum(cost for cost in dear if cost < self.costs[g])
        missed = group.missed(self.batch, chosen)
        where = _where_bounds_pay(decided, missed, saved, price)
        self.expected[g] = chances[~missed if where == "missed" and missed is not None else slice(None)].mean()
        return where

    def settle(self) -> None:
        """Remove the decided rows from the open ones."""
        accept_from = math.inf if self.selection.exact else self.threshold.accept_from
        self.open = settle(
            self.open, self.lower, self.upper, self.computed, self.rule, self.threshold.reject_below, accept_from,
            self.code, self.accepted,
        )  # fmt: skip

    # -- plans ---------------------------------------------------------------------------------------------------------

    def in_order(self, order: Sequence[int]) -> None:
        """Compute one group after the other, for all rows that are still open."""
        for g in order:
            self.compute(g, self.open[~self.computed[g, self.open]])
            self.settle()

    def _compute_missed(self, g: int) -> bool:
        """Compute a group for the rows that miss it with their means; return whether means can tell.

        To copy the parameters of most rows costs more than to compute the few others as well.
        """
        rows = self.open
        missed = self.groups[g].missed(self.batch, rows) if len(rows) > _SEVERAL else None
        if missed is None:
            return False
        self.compute(g, rows if 2 * np.count_nonzero(missed) > len(rows) else rows[missed])
        self.settle()
        return True

    def per_row(self) -> None:
        """Decide rows in waves, as the top of the module describes."""
        order = sorted(range(len(self.groups)), key=lambda g: self.costs[g])
        nearly_free, others = [g for g in order if not self.dear[g]], [g for g in order if self.dear[g]]
        bounded = [g for g in others if self.groups[g].has_bounds]
        known = [self._compute_missed(g) for g in nearly_free] if bounded else []
        if known and (all(known) or self._bounds_reject_more(bounded[0], nearly_free[0])):
            self._bound_all(bounded)
            self.in_order(nearly_free)
        else:
            self.in_order(nearly_free)
            self._bound_all(bounded)
        self.by_rank(others)

    def by_rank(self, groups: Sequence[int]) -> None:
        """Compute for each open row the group of the highest rank, until all are decided."""
        while len(self.open):
            begun = time.thread_time()
            rows = self.open
            costs = np.array(self.costs)
            chosen = choose(rows, self.lower, self.upper, self.computed, self.expected, np.array(groups), costs)
            self.effort.seconds["choosing"] += time.thread_time() - begun
            for g in groups:
                self.compute(g, rows[chosen == g])
            self.settle()

    def _bound_all(self, groups: Sequence[int]) -> None:
        for g in groups:
            if len(self.open):
                self.bound(g)
                self.settle()

    def _bounds_reject_more(self, bounded: int, nearly_free: int) -> bool:
        """Return whether bounds of one group reject more rows of a sample for their cost than another group's value."""
        if len(self.open) <= MANY:
            return False
        begun = time.thread_time()
        rows = self.open[np.linspace(0, len(self.open) - 1, _FEW).astype(np.int64)]
        worth, needed = [], self.threshold.reject_below
        for g in (bounded, nearly_free):
            asked = time.thread_time()
            prepared = self.groups[g].prepare(self.batch, rows)
            bounds = prepared.bounds(needed, needed) if g == bounded else None
            upper = prepared.exact()[0] if bounds is None else bounds.upper
            worth.append(np.count_nonzero(upper <= needed) / max(1e-9, time.thread_time() - asked))
        self.effort.seconds["choosing"] += time.thread_time() - begun
        return bool(worth[0] > worth[1])

    def in_hindsight(self, steps: np.ndarray) -> None:
        """Take the steps that decide each row: values that cost next to nothing, then bounds, then other values."""
        order = sorted(range(len(self.groups)), key=lambda g: self.costs[g])
        nearly_free, others = [g for g in order if not self.dear[g]], [g for g in order if self.dear[g]]
        for g in nearly_free:
            needed = steps[g] == VALUE
            # to copy the parameters of most rows costs more than to compute the few others as well
            everything = np.count_nonzero(needed) > len(needed) // 2
            self.compute(g, np.arange(len(needed)) if everything else np.flatnonzero(needed))
        for g in others:
            self._prepare(g, np.flatnonzero(steps[g] != NOTHING))
            bounded = np.flatnonzero(steps[g] == BOUNDS)
            if len(bounded):
                begun = time.thread_time()
                self._bound_rows(g, bounded)
                self.effort.seconds["bounds"] += time.thread_time() - begun
            self.compute(g, np.flatnonzero(steps[g] == VALUE))
        self._prepared.clear()
        self.open = np.arange(self.batch.rows)
        self.settle()
        self.by_rank(order)  # nobody, unless rounding says otherwise

    def result(self) -> Selected:
        """Return the rows that are kept."""
        probability = np.prod(self.lower, axis=0)
        full = self.computed.all(axis=0)
        kept = self.accepted | (full & self.threshold.keep(probability, counts=self.counts and len(self.groups) == 1))
        if not len(self.groups):
            kept = np.full(self.batch.rows, self.threshold.attainable)
        probability = np.where(self.accepted & ~full, math.nan, probability)
        rows = np.flatnonzero(kept)
        return Selected(rows, probability[rows], self.code)


def add_codes(counters: Counters, codes: np.ndarray) -> None:
    """Count what decided rows."""
    counters.evaluated += int(np.count_nonzero(codes == EVALUATED))
    for code, name in RULES.items():
        counters.rejected[name] += int(np.count_nonzero(codes == -code))
        counters.accepted[name] += int(np.count_nonzero(codes == code))


def _where_bounds_pay(
    decided: np.ndarray, missed: np.ndarray | None, saved: float, price: float
) -> Literal["everywhere", "missed", "nowhere"]:
    """Return where bounds pay, from the rows of a trial: a bound has a cost, and saves a value where it decides."""
    everywhere = float(decided.mean()) * saved - price
    there = -math.inf if missed is None else float((decided & missed).mean()) * saved - float(missed.mean()) * price
    if max(everywhere, there) < 0.0:
        return "nowhere"
    return "everywhere" if everywhere >= there else "missed"
