"""Joins of any number of tables: a chain of joins of two, and one selection at the end over the wide rows.

Each join of the chain keeps what can still belong to the answer: all conditions together are at most as likely as some
of them. The selection at the end sees all uncertain conditions at once and gives their joint probability, because
conditions that share a value are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haply.errors import HaplyError, without_advice
from haply.planning.frames import Frame, InvalidMode, ProbabilityMode, field_of, names_of, quoted
from haply.planning.join import JoinOptions, plan_pairs
from haply.planning.mixed import MixedJoin
from haply.planning.pairs import PairPlan
from haply.planning.selection import RowSelection, plan_selection
from haply.planning.times import time_window
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, Literal, columns_of, to_sql, with_columns
from haply.query.expressions import And, Comparison

SLACK = 1e-9
"""The joins before the last selection keep a little more: they round differently."""


@dataclass(frozen=True)
class Step:
    """One join of the chain: a table, and what ties it to those before."""

    table: str
    certain: tuple[Expression, ...]
    uncertain: tuple[Expression, ...]
    partners: float | None = None
    """About how many of its rows one so far meets, where an index tells."""


class SeveralJoin:
    """A join of several tables that has been checked and planned but not run.

    Conditions name their tables by the keys of ``frames``; the result has all columns of all tables in order, under
    names of its own (see ``names``), then ``probability``.
    """

    def __init__(
        self,
        frames: Mapping[str, Frame],
        conditions: Sequence[Expression],
        threshold: Threshold,
        *,
        windows: Mapping[tuple[str, str], Any] | None = None,
        times: Mapping[str, str] | None = None,
        probability: ProbabilityMode = "exact",
        invalid: InvalidMode = "raise",
    ) -> None:
        self.threshold, self.probability, self.invalid = threshold, probability, invalid
        self._tables = list(frames)
        self._inner = _inner_names(frames)
        self.names = list(self._inner.values())
        """The columns of the result, but for the probability."""
        self._frames = {
            table: frame.renamed([self._inner[table, column] for column in names_of(frame)])
            for table, frame in frames.items()
        }
        inner = [with_columns(condition, self._renamed) for condition in conditions]
        inner += self._window_conditions(frames, windows or {}, times or {})
        self._uncertain = [one for one in inner if not all(map(self._is_certain, columns_of(one)))]
        self._certain = [one for one in inner if all(map(self._is_certain, columns_of(one)))]
        self._steps = list(self._chain())
        self._selection(self._wide(planned=True))  # refuses here what it cannot compute

    # -- names ---------------------------------------------------------------------------------------------------------

    def _renamed(self, column: Column) -> Column:
        assert column.table is not None
        return replace(column, name=self._inner[column.table, column.name])

    def _is_certain(self, column: Column) -> bool:
        assert column.table is not None
        return field_of(self._frames[column.table], column.name).uncertain_model is None

    def _window_conditions(
        self, frames: Mapping[str, Frame], windows: Mapping[tuple[str, str], Any], times: Mapping[str, str]
    ) -> Iterator[Expression]:
        """Windows as conditions on the difference of two times; certain times as numbers, in columns of their own."""
        for (one, other), length in windows.items():
            window = time_window(frames[one], frames[other], (times[one], times[other]), length, 0)
            assert window is not None
            ends: list[Expression] = []
            sides = zip((one, other), (window.left, window.right), window.uncertain, strict=True)
            for table, name, uncertain in sides:
                inner = self._inner[table, name]
                if not uncertain:
                    number = f"__haply_{inner}_{'seconds' if any(window.uncertain) else 'number'}"
                    self._frames[table] = self._frames[table].with_time(number, window, inner, name)
                    inner = number
                ends.append(Column(table, inner))
            yield abs(ends[0] - ends[1]) <= window.length

    # -- planning ------------------------------------------------------------------------------------------------------

    def _chain(self) -> Iterator[Step]:
        """Tables that a condition connects with those before come first, equalities before all else.

        Of several that uncertain conditions connect, those with an index: it tells which has the fewest partners.
        """
        joined = [self._tables[0]]
        while len(joined) < len(self._tables):
            rest = [table for table in self._tables if table not in joined]
            steps = {}
            for table in rest:
                if self._frames[table].index is not None and self._rank(joined, table) == 2:
                    steps[table] = self._step(joined, table)
            fewest = {table: step.partners for table, step in steps.items() if step.partners is not None}
            best = max(rest, key=lambda table: (self._rank(joined, table), -fewest.get(table, math.inf)))
            yield steps.get(best) or self._step(joined, best)
            joined.append(best)

    @staticmethod
    def _between(conditions: Iterable[Expression], joined: Sequence[str], table: str) -> list[Expression]:
        """Conditions that speak of a table and of others that are there already."""
        tables = [(one, {column.table for column in columns_of(one)}) for one in conditions]
        return [one for one, named in tables if table in named and len(named) > 1 and named <= {*joined, table}]

    @staticmethod
    def _own(conditions: Iterable[Expression], table: str) -> list[Expression]:
        return [one for one in conditions if {column.table for column in columns_of(one)} == {table}]

    def _rank(self, joined: Sequence[str], table: str) -> int:
        certain = self._between(self._certain, joined, table)
        if any(isinstance(one, Comparison) and one.op == "=" for one in certain):
            return 3
        return 2 if self._between(self._uncertain, joined, table) else 1 if certain else 0

    def _step(self, joined: list[str], table: str) -> Step:
        """All that ties the table to those before, if a join of two takes it; otherwise what is certain."""
        certain = tuple(self._between(self._certain, joined, table))
        uncertain = tuple(self._between(self._uncertain, joined, table))
        left = self._frames[joined[0]]
        for name in joined[1:]:
            left = left.beside(self._frames[name])
        whole = Step(table, certain, uncertain)
        try:
            plan = self._join(left, self._frames[table], whole)
        except HaplyError:
            if not uncertain or (self.threshold.value is None and not certain):
                raise
            return Step(table, certain, ())  # the last selection decides
        if isinstance(plan, PairPlan) and plan.indexed is not None:
            return replace(whole, partners=left.engine.expected_partners(plan))
        return whole

    # -- running it ----------------------------------------------------------------------------------------------------

    def run(self, funnel: Any) -> Frame:
        """Return the combinations."""
        wide = self._wide(planned=False)
        selected = self._selection(wide)
        if selected is not None:
            wide = selected.run(funnel)
        elif self.probability == "exact":
            wide = wide.with_columns({"probability": "1D"})
        return wide.select([*self.names, *(["probability"] if self.probability == "exact" else [])])

    def _selection(self, wide: Frame) -> RowSelection | None:
        """The selection by all uncertain conditions; none if there are none."""
        if not self._uncertain:
            return None
        return plan_selection(
            wide, _alone(self._uncertain), self.threshold, probability=self.probability, invalid=self.invalid
        )  # fmt: skip

    def _wide(self, planned: bool) -> Frame:
        """The rows of all tables together that may be in the answer; if only planned, a product for its types."""
        whole = self._first(self._tables[0], planned)
        for step in self._steps:
            following = self._first(step.table, planned)
            if planned:
                whole = whole.beside(following)
            else:
                whole = self._join(whole, following, step).run(None)
        return whole

    def _first(self, table: str, planned: bool) -> Frame:
        """A table's rows that pass its own conditions."""
        frame = self._frames[table]
        for condition in self._own(self._certain, table):
            frame = frame.where(to_sql(condition, lambda column: quoted(column.name)))
        own = self._own(self._uncertain, table)
        if planned or not own:
            return frame
        selection = plan_selection(
            frame, _alone(own), self._lenient, probability="none", invalid=self.invalid
        )  # fmt: skip
        return selection.run(None)

    @property
    def _lenient(self) -> Threshold:
        """The threshold of the joins before the last selection, which round differently."""
        value = self.threshold.value
        return Threshold(None if value is None else max(value - SLACK, value / 2))

    def _join(self, left: Frame, right: Frame, step: Step) -> PairPlan | MixedJoin:
        def on_side(column: Column) -> Column:
            return replace(column, table="right" if column.table == step.table else "left")

        on = _all([with_columns(part, on_side) for part in (*step.certain, *step.uncertain)])
        options = JoinOptions(threshold=self._lenient.value, probability="none", invalid=self.invalid)
        with without_advice():
            return plan_pairs(left, right, on, options)

    # -- explaining it -------------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Describe how the join will run."""
        lines = ["Join of several tables"]
        for table in self._tables:
            own = [*self._own(self._certain, table), *self._own(self._uncertain, table)]
            lines.append(f"  table {table:<8}{'; '.join(map(self._text, own)) if own else 'all rows'}")
        for step in self._steps:
            by = [self._text(one) for one in step.certain]
            by += [f"{self._text(one)} (uncertain)" for one in step.uncertain]
            if step.partners is not None:
                by.append(f"by its index, about {step.partners:.2g} partners a row")
            lines.append(f"  join  {step.table:<8}{'; '.join(by) if by else 'with every row so far'}")
        selected = self._selection(self._wide(planned=True))
        if selected is None:
            return "\n".join([*lines, "  selection     none: every condition is certain, probability 1.0"])
        joint = " AND ".join(map(self._text, self._uncertain))
        return "\n".join([*lines, f"  selection     {joint}: one joint probability", selected.explain()])

    def _text(self, condition: Expression) -> str:
        """A condition as it was written."""
        outer = {inner: Column(*key) for key, inner in self._inner.items()}

        def original(column: Column) -> Column:
            return replace(outer[column.name], index=column.index) if column.name in outer else column

        return str(with_columns(condition, original))


def _all(conditions: Sequence[Expression]) -> Expression:
    """All conditions as one; without any it always holds."""
    if not conditions:
        return Literal(True)
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _alone(conditions: Sequence[Expression]) -> Expression:
    """Conditions on the columns of one table, all as one."""
    return _all([with_columns(one, lambda column: replace(column, table=None)) for one in conditions])


def _inner_names(frames: Mapping[str, Frame]) -> dict[tuple[str, str], str]:
    """Names of which no two are alike, whatever the case of their letters."""
    found: dict[tuple[str, str], str] = {}
    taken = {"probability"}
    for table, frame in frames.items():
        for column in names_of(frame):
            name, number = f"{table}_{column}", 1
            while name.lower() in taken:
                number += 1
                name = f"{table}_{column}_{number}"
            taken.add(name.lower())
            found[table, column] = name
    return found
