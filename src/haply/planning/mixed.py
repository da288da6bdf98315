"""Joins with any mix of conditions: candidates by one of them, and a selection on the pairs by all.

What a condition between both tables implies for one sum of each side (see ``selection.bands``) is a fast join: pairs
that do not reach the threshold there cannot reach it with all conditions. The pairs that are left are
rows with uncertain columns, which a selection decides: jointly where conditions share columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from haply.errors import HaplyError
from haply.joins.cells.asked import PairSelection
from haply.joins.worlds import NormalWindow
from haply.models import Gaussian, GaussianND, Model, OneDimensional, Samples
from haply.planning.explain import Description, looked_at
from haply.planning.frames import (
    Engine,
    Field,
    Frame,
    InvalidMode,
    SideName,
    Wording,
    field_of,
    names_of,
    position_model,
    quoted,
)
from haply.planning.nodes import Shown, unbounded_values
from haply.planning.pairs import PairPlan, method_for
from haply.planning.plans import FunnelStage
from haply.planning.selection import Kinds, RowSelection
from haply.probability.region import Difference, Distance
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, owner_of, to_sql
from haply.query.conditions import JoinCondition, sorted_by_side
from haply.query.expressions import And, Call, Not, Or
from haply.query.forms import never
from haply.query.rewrites import RowCondition, split_rows
from haply.selection.bands import Band, Terms, bands_of
from haply.selection.cases import Either
from haply.selection.conditions import Apart, Polynomial
from haply.selection.select import Selection

_NUMBER = "__haply_number_{}"
_ROW_IDS: dict[str, str] = {"left": "__haply_left_candidate", "right": "__haply_right_candidate"}
"""Columns that identify the rows of candidates."""
_SIDES: tuple[SideName, SideName] = ("left", "right")


@dataclass(frozen=True)
class MixedJoin:
    """A join that is a selection on candidate pairs, checked and planned."""

    left: Frame
    right: Frame
    expression: Expression
    threshold: Threshold
    exact: bool
    invalid: InvalidMode
    result: tuple[Shown, ...]
    wording: Wording
    broadcast: SideName | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be computed, before any data is read."""
        self._row_selection(_product(self.left, self.right), certain=True).check_numbers()

    @property
    def problem(self) -> HaplyError | None:
        """Why it cannot be answered: without a threshold, unbounded values match all others."""
        unbounded = [name for name, model in self._kinds.models.items() if not getattr(model, "bounded", False)]
        if self.threshold.value is not None or not unbounded:
            return None
        return unbounded_values(unbounded[0], self.wording.threshold)

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _frame(self, side: str | None) -> Frame:
        return self.left if side == "left" else self.right

    def _field(self, column: Column) -> Field:
        return field_of(self._frame(column.table), column.name)

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds(self.expression, self._field)

    @cached_property
    def _columns(self) -> dict[str, Column]:
        """Return the columns of the condition by their texts."""
        return {owner_of(column): replace(column, index=None) for column in columns_of(self.expression)}

    @cached_property
    def _rows(self) -> RowCondition:
        return split_rows(self.expression, self._kinds.is_certain, self._kinds.is_point)

    @cached_property
    def _selection(self) -> Selection:
        return Selection.of(self._rows.groups, self._kinds.models, self.threshold, "per_row", self.exact)

    def _row_selection(self, pairs: Frame, certain: bool = False) -> RowSelection:
        """Return the selection on a table of pairs, whose columns are called ``side.column``."""
        rows = self._rows if certain else replace(self._rows, certain=())
        columns = {name: _wide(self._columns[name]) for name in self._selection.columns}
        return RowSelection(
            pairs, rows, columns, self._selection, self.invalid, lambda column: quoted(_wide(column))
        )  # fmt: skip

    # -- candidates ----------------------------------------------------------------------------------------------------

    @cached_property
    def candidates(self) -> PairPlan:
        """Return the join that finds the pairs: by a band or a distance, with all certain conditions.

        Where possible, it also checks all conditions where the pairs are found.
        """
        frames = {"left": self.left, "right": self.right}
        condition = sorted_by_side(self._rows.certain)
        generator = self._generator()
        called: dict[tuple[str, str], str] = {}
        if isinstance(generator, Band):
            names = {}
            for side, terms in (("left", generator.left), ("right", generator.right)):
                names[side] = _text(terms)
                frames[side] = frames[side].with_columns({names[side]: self._derived(terms)})
                called[side, names[side]] = self._called(terms)
            condition = replace(condition, difference=Difference(names["left"], names["right"], generator.region))
        elif isinstance(generator, Distance):
            condition = replace(condition, distance=generator)
        selection = None
        if isinstance(generator, Distance) or (isinstance(generator, Band) and generator.narrow):
            selection, condition = self._at_once(frames, condition)
        method, left, right = method_for(
            condition, frames["left"], frames["right"], self.threshold, self.exact and selection is not None
        )
        result = self.result
        if selection is None:  # a selection on the pairs needs more columns than the result
            result = tuple(
                Shown(side, name, _wide(Column(side, name))) for side in _SIDES for name in names_of(self._frame(side))
            )
        return PairPlan(
            left, right, condition, self.threshold, method, self.exact and selection is not None, result,
            invalid=self.invalid, selection=selection, broadcast=self.broadcast, called=called, wording=self.wording,
            only_candidates=selection is None,
        )  # fmt: skip

    @cached_property
    def finds_few(self) -> bool:
        """Return whether a condition limits which pairs may match; otherwise all are candidates."""
        return self._generator() is not None

    @cached_property
    def any_of(self) -> tuple[MixedJoin, ...]:
        """Joins that together find all candidates, if no single condition does.

        If an OR of n conditions holds with probability p, one of them holds with at least p / n.
        """
        parts = self.expression.conditions if isinstance(self.expression, And) else (self.expression,)
        certain = [part for part in parts if all(map(self._kinds.is_certain, columns_of(part)))]
        for part in parts:
            if not isinstance(part, Or):
                continue
            value, count = self.threshold.value, len(part.conditions)
            lenient = Threshold(None if value is None else value / count * (1.0 - 1e-9))
            frames = [self._frame(side).with_row_id(_ROW_IDS[side]) for side in _SIDES]
            result = tuple(
                Shown(side, name, _wide(Column(side, name)))
                for side, frame in zip(_SIDES, frames, strict=True)
                for name in names_of(frame)
            )
            joins = tuple(
                replace(
                    self, left=frames[0], right=frames[1], expression=And((one, *certain)) if certain else one,
                    threshold=lenient, exact=False, result=result,
                )
                for one in part.conditions
                if not never(one, self._kinds.is_certain)
            )  # fmt: skip
            if all(join.finds_few or not join._rows.groups for join in joins):
                return joins
        return ()

    def _at_once(
        self, frames: dict[str, Frame], condition: JoinCondition
    ) -> tuple[PairSelection | None, JoinCondition]:
        """Check all conditions where pairs are found: possible if each certain number is from one side."""
        numbers = {name: _side_of(expression) for name, expression in self._rows.numbers.items()}
        if None in numbers.values() or self._selection.may_miss_columns:
            return None, condition
        known = []
        for k, (name, side) in enumerate(numbers.items()):
            assert side is not None
            sql = to_sql(self._rows.numbers[name], lambda column: quoted(column.name))
            frames[side] = frames[side].with_columns({_NUMBER.format(k): f"CAST({sql} AS DOUBLE)"})
            known.append((name, _SIDES.index(side), _NUMBER.format(k)))
        uncertain = tuple(
            (name, _SIDES.index(column.table), column.name)
            for name, column in ((name, self._columns[name]) for name in self._selection.columns)
        )
        # an unknown number: the pair is not known to match
        there = [[Not(Call("isnull", (Column(_SIDES[at], c),))) for _, at, c in known if at == k] for k in (0, 1)]
        return PairSelection(self._selection, uncertain, tuple(known)), replace(
            condition, left_only=(*condition.left_only, *there[0]), right_only=(*condition.right_only, *there[1])
        )

    def _generator(self) -> Band | Distance | None:
        """Return the condition that finds the candidates: the first that few pairs fulfil, or else the first."""
        bands: list[Band] = []
        for condition in (condition for group in self._rows.groups for condition in group):
            if isinstance(condition, Either):
                continue
            if isinstance(condition, Polynomial):
                found = bands_of(condition, lambda name: self._columns[name].table == "left")
                bands += [band for band in found if self._can_derive(band.left) and self._can_derive(band.right)]
                continue
            distance = self._near(condition)
            if distance is not None:
                return distance
        if self.threshold.value is None:
            bands = [band for band in bands if self._bounded(band)]
        return next(iter(sorted(bands, key=lambda band: not band.narrow)), None)

    def _near(self, condition: Apart) -> Distance | None:
        """Return a distance between a column of each side that has an upper limit."""
        if condition.beyond or isinstance(condition.limit, str):
            return None
        ends = sorted((self._columns[condition.one], self._columns[condition.other]), key=lambda one: str(one.table))
        points = all(position_model(self._field(end)) is not None for end in ends)
        if [end.table for end in ends] != ["left", "right"] or not points:
            return None
        return Distance(ends[0].name, ends[1].name, condition.limit, condition.closed)

    def _bounded(self, band: Band) -> bool:
        """Return whether all values are bounded, which a join without a threshold needs."""
        terms = (*band.left, *band.right)
        return all(getattr(self._kinds.models[name], "bounded", False) for (name, _), _ in terms)

    # -- sums as columns -----------------------------------------------------------------------------------------------

    def _can_derive(self, terms: Terms) -> bool:
        """Return whether the sum is a column of one law: a single column, or a sum of Gaussians."""
        models = self._kinds.models
        alone = len(terms) == 1 and terms[0][1] == 1.0 and issubclass(models[terms[0][0][0]], OneDimensional)
        return alone or all(models[name] in (Gaussian, GaussianND) for (name, _), _ in terms)

    def _called(self, terms: Terms) -> str:
        """Return what messages about bad rows call a sum: by its column, or as it is written."""
        (name, index), factor = terms[0]
        alone = len(terms) == 1 and factor == 1.0 and index is None
        return self._columns[name].name if alone else _text(terms)

    def _derived(self, terms: Terms) -> str:
        """SQL for the sum. A bad part makes a bad sum, so that it is reported."""
        models: Mapping[str, type[Model]] = self._kinds.models
        (name, _), factor = terms[0]
        if len(terms) == 1 and factor == 1.0 and models[name] is not GaussianND:
            return quoted(self._columns[name].name)
        means, variances, bad = [], [], []
        columns: dict[str, list[tuple[int | None, float]]] = {}
        for (name, index), factor in terms:
            columns.setdefault(name, []).append((index, factor))
        for name, used in columns.items():
            column = quoted(self._columns[name].name)
            if models[name] is Gaussian:
                factor = sum(factor for _, factor in used)
                means.append(f"{_double(factor)} * {column}.mean")
                variances.append(f"{_double(factor * factor)} * {column}.sd * {column}.sd")
                bad.append(f"{column}.sd < 0")
                continue
            means += [f"{_double(factor)} * get({column}.mean, {index})" for index, factor in used]
            variances += [
                f"{_double(one * two)} * get({column}.cov, {i} * size({column}.mean) + {j})"
                for i, one in used
                for j, two in used
            ]
        variance = f"({' + '.join(variances)})"
        sd = f"sqrt(greatest({variance}, 0D))"
        if bad:
            sd = f"IF({' OR '.join(bad)}, -1D, {sd})"
        return f"named_struct('mean', {' + '.join(means)}, 'sd', {sd})"

    # -- counting matches ----------------------------------------------------------------------------------------------

    @cached_property
    def used(self) -> tuple[Shown, ...]:
        """Return the columns of pairs that ``asked_of_pairs`` needs, under new names."""
        columns = dict.fromkeys((column.table, column.name) for column in columns_of(self.expression))
        named = [(side, name) for side in _SIDES for of, name in columns if of == side]
        return tuple(Shown(side, name, f"__haply_used_{k}") for k, (side, name) in enumerate(named))

    def asked_of_pairs(self) -> tuple[PairSelection, dict[str, str]]:
        """Return the conditions on a table of pairs, and SQL for columns of certain numbers that they need."""
        if self._selection.may_miss_columns:
            raise HaplyError(
                "Matches are counted for conditions that all hold", expected="conditions joined by AND",
                found=f"`{self.expression}`",
            )  # fmt: skip
        called: dict[tuple[str | None, str], str] = {(one.side, one.column): one.name for one in self.used}
        numbers = {name: _NUMBER.format(k) for k, name in enumerate(self._rows.numbers)}
        sql = {
            numbers[name]: f"CAST({to_sql(number, lambda column: called[column.table, column.name])} AS DOUBLE)"
            for name, number in self._rows.numbers.items()
        }
        uncertain = tuple(
            (name, _SIDES.index(column.table), called[column.table, column.name])
            for name, column in ((name, self._columns[name]) for name in self._selection.columns)
        )
        return PairSelection(self._selection, uncertain, tuple((name, 0, numbers[name]) for name in numbers)), sql

    def without_worlds(self, side: SideName) -> str | None:
        """Name an uncertain column of a side whose values cannot be listed, as it has no samples; None if all can."""
        return next(
            (
                self._columns[name].name
                for name, model in self._kinds.models.items()
                if self._columns[name].table == side and model is not Samples
            ),
            None,
        )

    def normal_windows(self, asked: PairSelection, both_sides: bool) -> tuple[NormalWindow, ...]:
        """Return the conditions as windows of sums of two normal values, or nothing if one has another form.

        No right column may be in two of them, as their chances would not multiply; with ``both_sides`` no left one.
        """
        called = {name: column for name, _, column in (*asked.uncertain, *asked.numbers)}
        found, models = [], self._kinds.models
        for condition in (condition for group in self._selection.groups for condition in group.conditions):
            if not isinstance(condition, Polynomial) or condition.squares or condition.centre:
                return ()
            sides = {self._columns[name].table: (name, factor) for (name, _), factor in condition.linear}
            if len(condition.linear) != 2 or set(sides) != set(_SIDES) or len(condition.ranges) != 1:
                return ()
            names, factors = zip(*(sides[side] for side in _SIDES), strict=True)
            if any(models[name] is not Gaussian for name in names) or any(isinstance(one, str) for one in factors):
                return ()
            low, high, *closed = condition.ranges[0]
            ends = [called[end] if isinstance(end, str) else end for end in (low, high)]
            columns = called[names[0]], called[names[1]]
            found.append(NormalWindow(columns, (factors[0], factors[1]), ends[0], ends[1], (closed[0], closed[1])))
        for side in (0, 1) if both_sides else (1,):
            if len({window.columns[side] for window in found}) < len(found):
                return ()
        return tuple(found)

    # -- running and explaining it -------------------------------------------------------------------------------------

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Return the pairs."""
        if self._one_by_one:
            return self._found_by_any(engine, funnel)
        if self.candidates.selection is not None:
            return engine.pairs(self.candidates, funnel)
        if funnel is not None:
            funnel.start_over()
        return self._decided(engine, engine.pairs(self.candidates, _first_stage(funnel)), funnel)

    @property
    def _one_by_one(self) -> bool:
        return not self.finds_few and bool(self.any_of)

    def _found_by_any(self, engine: Engine, funnel: Any) -> Frame:
        """Find the candidates of each alternative, each pair once, and select among them."""
        if funnel is not None:
            funnel.start_over()
        stages = [_first_stage(funnel), *(_only_candidates(funnel) for _ in self.any_of[1:])]
        found = [engine.pairs(one.candidates, stage) for one, stage in zip(self.any_of, stages, strict=True)]
        pairs = found[0].stacked(found[1:]).each_once([_wide(Column(side, _ROW_IDS[side])) for side in _SIDES])
        return self._decided(engine, pairs, funnel)

    def _decided(self, engine: Engine, pairs: Frame, funnel: Any) -> Frame:
        """Select among candidates by all conditions."""
        kept = engine.selected(self._row_selection(pairs), _second_stage(funnel))
        shown = {one.name: quoted(_wide(Column(one.side, one.column))) for one in self.result}
        return kept.project(shown | ({"probability": "probability"} if self.exact else {}))

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run. Reads the two inputs once to estimate sizes."""
        second = replace(
            self._row_selection(_product(self.left, self.right)), condition=replace(self._rows, certain=(), numbers={})
        )
        if self._one_by_one:
            parts = [one.candidates.describe(engine) for one in self.any_of]
            known = [one.estimate for one in parts if one.estimate is not None]
            estimate = (known[0][0], sum(few for _, few in known)) if len(known) == len(parts) else None
            return Description(
                "Join with alternatives: candidates of each, all by a selection",
                "" if estimate is None else looked_at(estimate[1], estimate[0]),
                parts=(*parts, second.describe(engine)),
                estimate=estimate,
            )
        title = "Join with several conditions: candidates by one, all by a selection"
        certain = self.candidates.method is None
        verdict = "Every pair that fulfils the certain conditions will be looked at." if certain else ""
        return Description(title, verdict, parts=(self.candidates.describe(engine), second.describe(engine)))


def _wide(column: Column) -> str:
    """Return what a column is called in a table of pairs."""
    return f"{column.table}.{column.name}"


def _product(left: Frame, right: Frame) -> Frame:
    """Return pairs of rows, to find types; never run."""
    one, other = (
        frame.renamed([_wide(Column(side, name)) for name in names_of(frame)])
        for side, frame in zip(_SIDES, (left, right), strict=True)
    )
    return one.beside(other)


def _side_of(expression: Expression) -> SideName | None:
    """Return the one side that a certain expression is about, or None."""
    sides = {column.table for column in columns_of(expression)}
    return next((side for side in _SIDES if sides == {side}), None)


def _text(terms: Terms) -> str:
    """Return the name of a sum as a column, which messages about bad rows show."""
    named = [f"{factor:g} * {name}{'' if index is None else f'[{index}]'}" for (name, index), factor in terms]
    return f"band: {' + '.join(named)}"


def _double(number: float) -> str:
    return f"({number!r}D)"


# -- counting ----------------------------------------------------------------------------------------------------------


def _first_stage(funnel: Any) -> Any:
    """Count rows, candidates, and what the first condition rejects; accepted pairs go on."""
    said = ("rows_", "null_", "hopeless_", "invalid_", "candidates", "rejected:", "nanoseconds:")
    return None if funnel is None else FunnelStage(funnel, lambda name: name.startswith(said))


def _only_candidates(funnel: Any) -> Any:
    """Return the candidates of further alternatives: rows have been counted."""
    said = ("candidates", "rejected:", "nanoseconds:")
    return None if funnel is None else FunnelStage(funnel, lambda name: name.startswith(said))


def _second_stage(funnel: Any) -> Any:
    """Return what all conditions together decide."""
    said = ("rejected:", "accepted:", "evaluated", "kept")
    return None if funnel is None else FunnelStage(funnel, lambda name: name.startswith(said))
