"""Joins with any mix of conditions: candidates by one of them, and a selection on the pairs by all.

What a condition between both tables implies for one sum of each side (see ``joins.bands``) is a join that haply is
fast at: pairs that do not reach the threshold there cannot reach it with all conditions. The pairs that are left are
rows with uncertain columns, and ``hp.where`` decides them: jointly where conditions share columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.errors import HaplyError
from haply.joins.bands import Band, Terms, bands_of
from haply.joins.conditions import Apart, Polynomial
from haply.joins.select import Selection
from haply.models import Gaussian, GaussianND, Model, OneDimensional
from haply.probability.region import Difference, Distance
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, to_sql, with_columns
from haply.query.conditions import JoinCondition, sorted_by_side
from haply.query.expressions import Call, Not
from haply.query.rewrites import RowCondition, split_rows
from haply.spark.columns import quoted
from haply.spark.distance import DistancePlan
from haply.spark.plan import InvalidMode, JoinPlan
from haply.spark.positions import NORMALS, PositionPlan, position_model
from haply.spark.result import Shown, SideName
from haply.spark.where import WherePlan, check_numbers, column_kinds, is_known_point
from haply.spark.worker import PairQuestion

_BAND = "band"
_SIDES = ("left", "right")


@dataclass(frozen=True)
class MixedPlan:
    """A join that is a selection on candidate pairs, checked and planned but not run."""

    left: DataFrame
    right: DataFrame
    expression: Expression
    threshold: Threshold
    exact: bool
    invalid: InvalidMode
    result: Sequence[Shown]
    funnel: Any
    broadcast: SideName | None = None

    def __post_init__(self) -> None:
        """Refuses what cannot be done, before any data is read."""
        try:
            rows, kinds, selection = self._parts()
            left, right = self._renamed()
            check_numbers(left.crossJoin(right), rows)
            if self.broadcast is not None:
                self._candidates(rows, kinds, selection)
        except HaplyError as refusal:
            raise HaplyError(self._in_words(str(refusal))) from None
        unbounded = [name for name, kind in kinds.items() if not getattr(kind, "bounded", False)]
        if self.threshold.value is None and unbounded:
            raise HaplyError(
                "Without a threshold every pair is possible",
                expected="values with a bounded support, or a threshold",
                found=f"{self._in_words(unbounded[0])}, whose values are unbounded",
                hint="give threshold=0.01 or another limit: the answer would be the cross product",
            )

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _inner(self, side: str) -> list[str]:
        frame = self.left if side == "left" else self.right
        return [f"{side}_{k}" for k in range(len(frame.columns))]

    def _renamed(self) -> tuple[DataFrame, DataFrame]:
        """Both tables with names that no other column of the plan has."""
        return self.left.toDF(*self._inner("left")), self.right.toDF(*self._inner("right"))

    def _parts(self) -> tuple[RowCondition, dict[str, type[Model]], Selection]:
        frames = dict(zip(("left", "right"), self._renamed(), strict=True))
        original = {"left": self.left.columns, "right": self.right.columns}

        def inner(column: Column) -> Column:
            assert column.table is not None
            name = self._inner(column.table)[original[column.table].index(column.name)]
            return Column(None, name, column.index)

        expression = with_columns(self.expression, inner)
        fields = {field.name: field.dataType for frame in frames.values() for field in frame.schema.fields}
        kinds, is_certain = column_kinds(expression, fields)
        rows = split_rows(expression, is_certain, lambda column: is_known_point(fields[column.name]))
        return rows, kinds, Selection.of(rows.groups, kinds, self.threshold, "per_row", self.exact)

    # -- candidates ----------------------------------------------------------------------------------------------------

    def _candidates(self, rows: RowCondition, kinds: Mapping[str, type[Model]], selection: Selection) -> JoinPlan:
        """The join that finds the pairs: by a band or a distance, with all certain conditions.

        Where it can, it asks them all conditions as well, where they are found.
        """
        left, right = self._renamed()
        condition = _sorted(rows.certain)
        generator = self._generator(rows, kinds, left, right)
        plan: type[JoinPlan] = JoinPlan
        if isinstance(generator, Band):
            terms = {"left": generator.left, "right": generator.right}
            left, right = (
                frame.withColumn(_text(terms[side]), F.expr(_derived(terms[side], kinds)))
                for side, frame in (("left", left), ("right", right))
            )
            ends = _text(generator.left), _text(generator.right)
            condition = replace(condition, difference=Difference(*ends, generator.region))
        elif isinstance(generator, Distance):
            condition = replace(condition, distance=generator)
            types = left.schema[generator.left].dataType, right.schema[generator.right].dataType
            plan = PositionPlan if any(position_model(kind) in NORMALS for kind in types) else DistancePlan
        at_once = isinstance(generator, Distance) or (isinstance(generator, Band) and generator.narrow)
        numbers = {name: _side_of(expression) for name, expression in rows.numbers.items()}
        question = None
        if at_once and None not in numbers.values():
            frames = {"left": left, "right": right}
            for number, (name, side) in enumerate(numbers.items()):
                assert side is not None
                expression = to_sql(rows.numbers[name], lambda column: quoted(column.name))
                frames[side] = frames[side].withColumn(f"number_{number}", F.expr(expression).cast("double"))
            left, right = frames["left"], frames["right"]
            uncertain = tuple((name, _SIDES.index(name.split("_")[0]), name) for name in selection.columns)
            known = tuple(
                (name, _SIDES.index(str(side)), f"number_{k}") for k, (name, side) in enumerate(numbers.items())
            )
            question = PairQuestion(selection, uncertain, known)
            # an unknown number: the pair is not known to match
            there = [[Not(Call("isnull", (Column(_SIDES[at], c),))) for _, at, c in known if at == k] for k in (0, 1)]
            condition = replace(
                condition, left_only=(*condition.left_only, *there[0]), right_only=(*condition.right_only, *there[1])
            )
        # a selection on the pairs needs more of them than the result
        columns = self._shown if question is not None else [*self._inner("left"), *self._inner("right")]
        return plan(
            left, right, condition, self.threshold,
            exact=self.exact and question is not None, self_key=None, invalid=self.invalid,
            result=[Shown("left" if name.startswith("left_") else "right", name, name) for name in columns],
            funnel=self.funnel if question is not None else _first_stage(self.funnel), question=question,
            broadcast=self.broadcast, called=self._called(generator),
        )  # fmt: skip

    def _called(self, generator: Band | Distance | None) -> dict[tuple[str, str], str]:
        """The columns of the plan by side and name there, as the tables call them; sums as they are written."""
        called = {
            (side, inner): name
            for side, frame in (("left", self.left), ("right", self.right))
            for inner, name in zip(self._inner(side), frame.columns, strict=True)
        }
        if isinstance(generator, Band):
            for side, terms in (("left", generator.left), ("right", generator.right)):
                (name, index), factor = terms[0]
                alone = len(terms) == 1 and factor == 1.0 and index is None
                called[side, _text(terms)] = called[side, name] if alone else self._in_words(_text(terms))
        return called

    @property
    def _shown(self) -> list[str]:
        """The columns of the result as they are called here."""
        original = {"left": self.left.columns, "right": self.right.columns}
        return [self._inner(one.side)[original[one.side].index(one.column)] for one in self.result]

    def _generator(
        self, rows: RowCondition, kinds: Mapping[str, type[Model]], left: DataFrame, right: DataFrame
    ) -> Band | Distance | None:
        """What finds the candidates: the first that few pairs fulfil, or else the first."""
        bands: list[Band] = []
        for condition in (condition for group in rows.groups for condition in group):
            if isinstance(condition, Polynomial):
                found = bands_of(condition, lambda name: name.startswith("left_"))
                bands += [band for band in found if _can_derive(band.left, kinds) and _can_derive(band.right, kinds)]
                continue
            distance = _as_generator(condition)
            if distance is not None and all(
                position_model(frame.schema[name].dataType) is not None
                for frame, name in ((left, distance.left), (right, distance.right))
            ):
                return distance
        if self.threshold.value is None:
            bands = [band for band in bands if self._bounded(band, kinds)]
        return next(iter(sorted(bands, key=lambda band: not band.narrow)), None)

    @staticmethod
    def _bounded(band: Band, kinds: Mapping[str, type[Model]]) -> bool:
        """Without a threshold, only what has a bounded support can be told apart."""
        return all(
            getattr(kinds[name], "bounded", False) for terms in (band.left, band.right) for (name, _), _ in terms
        )

    # -- running and explaining it -------------------------------------------------------------------------------------

    def run(self) -> DataFrame:
        """The pairs, as a lazy DataFrame."""
        rows, kinds, selection = self._parts()
        if self.funnel is not None:
            self.funnel.start_over()
        plan = self._candidates(rows, kinds, selection)
        pairs = plan.run()
        if not plan.asks_all:
            uncertain = RowCondition((), rows.groups, rows.numbers)
            columns = {name: name for name in selection.columns}
            funnel = _second_stage(self.funnel)
            pairs = WherePlan(pairs, uncertain, columns, selection, self.invalid, funnel, self._in_words).run()
        shown = [F.col(name).alias(one.name) for name, one in zip(self._shown, self.result, strict=True)]
        return pairs.select(*shown, *(["probability"] if self.exact else []))

    def explain(self) -> str:
        """How the join will run, in words. Reads the two inputs once to estimate sizes."""
        rows, kinds, selection = self._parts()
        first = self._candidates(rows, kinds, selection).explain()
        second = WherePlan(
            self.left, RowCondition((), rows.groups, {}, rows.steps), {}, selection, self.invalid, None
        ).explain()
        return self._in_words(f"Join with several conditions: candidates by one, all by a selection\n{first}\n{second}")

    def _in_words(self, text: str) -> str:
        """A text of the plan with the names that the tables have."""
        names: dict[str, str] = {}
        for side, frame in (("left", self.left), ("right", self.right)):
            names |= {inner: f"{side}.{name}" for inner, name in zip(self._inner(side), frame.columns, strict=True)}

        def outer(found: re.Match[str]) -> str:
            return names.get(found[1], found[0])

        return re.sub(r"`?(?:left\.|right\.)?((?:left|right)_\d+)`?", outer, text)


def _side_of(expression: Expression) -> str | None:
    """The one side that a certain expression is about, or None."""
    sides = {column.name.split("_")[0] for column in columns_of(expression)}
    return sides.pop() if len(sides) == 1 else None


def _as_generator(condition: Apart) -> Distance | None:
    if condition.beyond or isinstance(condition.limit, str):
        return None
    ends = sorted((condition.one, condition.other))
    if not (ends[0].startswith("left_") and ends[1].startswith("right_")):
        return None
    return Distance(ends[0], ends[1], condition.limit, condition.closed)


def _sorted(certain: tuple[Expression, ...]) -> JoinCondition:
    """Certain conditions by the side that they are about."""

    def on_side(column: Column) -> Column:
        return replace(column, table=column.name.split("_")[0])

    return sorted_by_side([with_columns(expression, on_side) for expression in certain], None)


# -- sums as columns ---------------------------------------------------------------------------------------------------


def _text(terms: Terms) -> str:
    """The name of a sum as a column, which messages about bad rows show."""
    named = [f"{factor:g} * {name}{'' if index is None else f'[{index}]'}" for (name, index), factor in terms]
    return f"{_BAND}: {' + '.join(named)}"


def _can_derive(terms: Terms, kinds: Mapping[str, type[Model]]) -> bool:
    """Whether the sum is a column of one law: a column as it is, or a sum of Gaussians."""
    alone = len(terms) == 1 and terms[0][1] == 1.0 and issubclass(kinds[terms[0][0][0]], OneDimensional)
    return alone or all(kinds[name] in (Gaussian, GaussianND) for (name, _), _ in terms)


def _derived(terms: Terms, kinds: Mapping[str, type[Model]]) -> str:
    """SQL for the sum. A bad part makes a bad sum: it is not to be lost from sight."""
    (name, _), factor = terms[0]
    if len(terms) == 1 and factor == 1.0 and kinds[name] is not GaussianND:
        return quoted(name)
    means, variances, bad = [], [], []
    columns: dict[str, list[tuple[int | None, float]]] = {}
    for (name, index), factor in terms:
        columns.setdefault(name, []).append((index, factor))
    for name, used in columns.items():
        column = quoted(name)
        if kinds[name] is Gaussian:
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


def _double(number: float) -> str:
    return f"({number!r}D)"


# -- counting ----------------------------------------------------------------------------------------------------------


class _Stage:
    """A funnel that hears of one stage of the plan only what the stage may say."""

    def __init__(self, funnel: Any, hears: Callable[[str], bool]) -> None:
        self.funnel, self.hears = funnel, hears

    def start_over(self) -> None:
        """Both stages fill one funnel, which is emptied before."""

    def follow(self, source: Callable[[], Mapping[str, Any]], live: bool = False) -> None:
        """Pass on what this stage may say; that it has spoken at all, too."""

        def heard() -> dict[str, Any]:
            said = source()
            return {"stages": 1, **{name: value for name, value in said.items() if self.hears(name)}} if said else {}

        self.funnel.follow(heard, live)


def _first_stage(funnel: Any) -> Any:
    """Rows, candidates, and what the first condition rejects; what it accepts goes on."""
    said = ("rows_", "null_", "hopeless_", "invalid_", "candidates", "rejected:", "nanoseconds:")
    return None if funnel is None else _Stage(funnel, lambda name: name.startswith(said))


def _second_stage(funnel: Any) -> Any:
    """What all conditions together decide."""
    said = ("rejected:", "accepted:", "evaluated", "kept")
    return None if funnel is None else _Stage(funnel, lambda name: name.startswith(said))
