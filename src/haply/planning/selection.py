"""Selections on one table or stream: checked before any data is read, and planned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import pyarrow as pa

from haply.errors import HaplyError, advise, one_of, without_advice
from haply.joins.cells.rows import NULL, row_states
from haply.joins.cells.selected import SelectRows
from haply.models import Certain, Model, Samples
from haply.planning.constructors import bound_constructors
from haply.planning.explain import Description, RowExplanation, price
from haply.planning.frames import (
    HOW_UNCERTAIN,
    Engine,
    Field,
    Frame,
    InvalidMode,
    ProbabilityMode,
    TableRow,
    field_of,
    find_column,
    names_of,
    one_row,
    quoted,
)
from haply.planning.nodes import condition_of, refuse_no_numbers, unit_in
from haply.pruning.bounds.region import DISTANCE
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, owner_of, points_of, respelled, to_sql
from haply.query.checks import all_certain, refuse_equalities, refuse_units
from haply.query.rewrites import RowCondition, split_rows
from haply.selection.group import STAR, Group
from haply.selection.methods.nested import integrals_of
from haply.selection.select import PLANNINGS, RULES, Planning, Selection


@dataclass(frozen=True)
class Origin:
    """The table and the condition of a selection as they were given, and how it is planned on another table."""

    frame: Frame
    condition: str
    columns: tuple[str, ...]
    """The columns that the condition names."""
    again: Callable[[Frame], RowSelection]


@dataclass(frozen=True)
class RowSelection:
    """A selection that has been checked and planned."""

    frame: Frame
    condition: RowCondition
    columns: Mapping[str, str]
    """The uncertain columns: the table's names by those in the condition."""
    selection: Selection
    invalid: InvalidMode
    column_sql: Callable[[Column], str] = lambda column: quoted(column.name)
    """The name of a column of the condition in SQL."""
    shown: tuple[str, ...] | None = None
    """The columns of the result; all of the table by default."""
    origin: Origin | None = None
    """The table and condition that it was planned from, if that is a table of the user."""

    def __post_init__(self) -> None:
        if self.selection.exact and any(name.lower() == "probability" for name in names_of(self.frame)):
            raise HaplyError(
                "The table has a column called 'probability'", expected="that name for the result",
                hint='rename it, or ask with probability="none"',
            )  # fmt: skip

    @property
    def certain_sql(self) -> list[str]:
        """SQL for certain conditions."""
        return [to_sql(expression, self.column_sql) for expression in self.condition.certain]

    @property
    def number_sql(self) -> list[str]:
        """SQL for certain numbers that the uncertain conditions need."""
        return [to_sql(expression, self.column_sql) for expression in self.condition.numbers.values()]

    @property
    def worker(self) -> SelectRows:
        """Return the function that decides a batch of rows."""
        shown = (own if name == quoted(own) else name for name, own in self.columns.items())
        called = tuple(shown) if self.invalid == "raise" else None
        return SelectRows(self.selection, tuple(self.columns), tuple(self.condition.numbers), called)

    def check_numbers(self) -> RowSelection:
        """Refuse a limit or a factor of something uncertain that is not a number."""
        for expression, sql in zip(self.condition.numbers.values(), self.number_sql, strict=True):
            kind = self.frame.type_of(sql)
            if not kind.is_number:
                raise HaplyError(
                    f"`{expression}` is compared with something uncertain, or multiplied by it",
                    expected="a number",
                    found=kind.text,
                )
        return self

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its table."""
        kept = engine.selected(self, funnel)
        if self.shown is None or len(self.shown) == len(self.frame.fields):
            return kept
        return kept.select([*self.shown, *(["probability"] if self.selection.exact else [])])

    def explain_row(self, row: TableRow) -> RowExplanation:
        """Explain a row: the order of the filters, what each proves, and which decides."""
        planning = self.selection.planning
        assert self.origin is not None
        if planning != "per_row":
            raise HaplyError(
                "The steps of a row are shown for per-row planning",
                expected='planning="per_row"', found=repr(planning),
                hint="plan the selection with it: it is the default",
            )  # fmt: skip
        with without_advice():
            one = self.origin.again(one_row(self.origin.frame, self.origin.columns, row))
        return one.explain_only_row(self.origin.condition)

    def explain_only_row(self, condition: str) -> RowExplanation:
        """Explain the only row of the table; ``condition`` is the condition as it was written."""
        holds = {f"__haply_holds_{k}": f"coalesce({sql}, false)" for k, sql in enumerate(self.certain_sql)}
        numbers = {f"__haply_number_{k}": f"CAST({sql} AS DOUBLE)" for k, sql in enumerate(self.number_sql)}
        uncertain = list(self.columns.values())
        frame = self.frame.with_columns({**holds, **numbers})
        table = frame.gathered([*uncertain, *holds, *numbers], 1).combine_chunks()

        def arrays(names: Iterable[str]) -> list[pa.Array]:
            return [table[name].combine_chunks() for name in names]

        threshold = self.selection.threshold
        failed = next(
            (str(one) for one, name in zip(self.condition.certain, holds, strict=True) if not table[name][0].as_py()),
            "",
        )
        if failed or not self.selection.groups:
            kept = not failed and threshold.attainable
            return RowExplanation(float(not failed), kept, threshold.value, condition, failed=failed)
        followed = replace(self, invalid="raise").worker.follow(arrays(uncertain), arrays(numbers))
        if followed is None:
            missing = [*self.columns, *map(str, self.condition.numbers.values())]
            nulls = [called for called, one in zip(missing, arrays([*uncertain, *numbers]), strict=True) if _null(one)]
            raise HaplyError(
                f"The row has no value in '{nulls[0]}'", expected="a value", found="null",
                hint="hp.where leaves such a row out, as no condition on null holds; give a value to see one decided",
            )  # fmt: skip
        return RowExplanation(
            followed.probability, followed.kept, threshold.value, condition, followed.steps, followed.chances
        )

    # -- words ---------------------------------------------------------------------------------------------------------

    def describe(self, engine: Engine) -> Description:
        """Describe how the selection will run."""
        lines = [("keeps", f"rows with {self.selection.threshold.describe()}")]
        if self.condition.certain:
            lines.append(("pushed down", "; ".join(map(str, self.condition.certain))))
        groups = sorted(self.selection.groups, key=self.selection.costs.of)
        for number, group in enumerate(groups, 1):
            lines.append(
                (f"group {number}", f"{_in_words(group)}; about {price(self.selection.costs.of(group))} a row")
            )
        lines.append(("plan", self._plan_text(groups)))
        if self.selection.planning == "per_row":
            lines += [(f"filter {number}", said) for number, said in enumerate(self._filters(groups), 1)]
        details = list(self.condition.steps)
        if self.condition.numbers:
            numbers = "; ".join(map(str, self.condition.numbers.values()))
            details.append(("numbers", f"{numbers}: computed by the engine"))
        count = len(groups)
        verdict = (
            f"Each row is decided by {count} independent group{'' if count == 1 else 's'} of conditions."
            if groups
            else "Every condition is certain: no probability is computed."
        )
        return Description("Threshold selection", verdict, tuple(lines), tuple(details))

    def _filters(self, groups: list[Group]) -> list[str]:
        """Describe the filters in their order; ``groups`` are in the order of their costs."""
        costs = self.selection.costs
        numbered = [(f"group {number}", group) for number, group in enumerate(groups, 1)]
        first = [f"exact value of {name}{_rank(costs.of(group))}" for name, group in numbered if group.is_nearly_free]
        bounds = [f"bounds of {name} by {_bounds_in_words(group)}" for name, group in numbered if group.rules]
        dear = [(name, costs.of(group)) for name, group in numbered if not group.is_nearly_free]
        if not dear:
            return first
        ranks = ", ".join(f"{name}{_rank(cost)}" for name, cost in dear)
        which = "exact value of" if len(dear) == 1 else "exact values, the group of the highest rank first:"
        return [*first, *bounds, f"{which} {ranks}"]

    def _plan_text(self, groups: list[Group]) -> str:
        if not groups:
            return "every condition is certain: a plain filter, probability 1.0"
        multiplied = " The groups share no uncertain column: their probabilities multiply." if len(groups) > 1 else ""
        match self.selection.planning:
            case "static":
                return "one order for all rows, by selectivity in a sample." + multiplied
            case "optimal":
                return "for experiments: all probabilities first, then the cheapest order for each row." + multiplied
        may = "reject rows" if self.selection.exact else "reject and accept rows"
        return (
            f"per row: one value at a time first, then bounds that {may}, then group by group by (1 - s) / cost, "
            f"where s is the middle of a group's bounds.{multiplied}"
        )


def plan_selection(
    frame: Frame,
    condition: Expression | str,
    threshold: Threshold,
    *,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
) -> RowSelection:
    """Check and plan a selection; the arguments are those of ``hp.where``."""
    one_of("probability", probability, get_args(ProbabilityMode))
    one_of("planning", planning, PLANNINGS)
    one_of("invalid", invalid, get_args(InvalidMode))
    table, asked = frame, condition_of(condition)
    expression = asked
    given = names_of(frame)
    tables: dict[str | None, Frame] = {None: frame}
    refuse_units(expression, lambda column: unit_in(tables, column))
    named = dict.fromkeys(_spelled(frame, column) for column in columns_of(expression))
    expression = bound_constructors(expression, tables)
    frame = tables[None]
    expression = respelled(expression, lambda column: _spelled(frame, column))
    kinds = Kinds(expression, lambda column: field_of(frame, column.name))
    refuse_no_numbers(expression, lambda column: field_of(frame, column.name))
    refuse_equalities(expression, kinds.uncertain_model)
    plain = all_certain(
        expression, lambda column: kinds.is_certain(column) or kinds.is_point(column), threshold.value is not None
    )
    if plain is not None:
        advise(plain, HOW_UNCERTAIN)
    rows = split_rows(expression, kinds.is_certain, kinds.is_point)
    selection = Selection.of(rows.groups, kinds.models, threshold, planning, probability == "exact")
    columns = {owner_of(column): column.name for column in columns_of(expression)}
    used = {name: columns[name] for name in selection.columns}
    again = partial(
        plan_selection, condition=condition, threshold=threshold, probability=probability, planning=planning,
        invalid=invalid,
    )  # fmt: skip
    origin = Origin(table, str(asked), tuple(named), again)
    return RowSelection(frame, rows, used, selection, invalid, shown=tuple(given), origin=origin).check_numbers()


class Kinds:
    """The models of the uncertain columns of a condition, by their texts, and which columns are certain."""

    def __init__(self, expression: Expression, field: Callable[[Column], Field]) -> None:
        self._field = field
        self._certain: dict[int, tuple[Column, bool]] = {}
        points = {owner_of(column) for column in points_of(expression)}
        self.models: dict[str, type[Model]] = {}
        for column in columns_of(expression):
            found = field(column)
            model = found.point_model if owner_of(column) in points else found.uncertain_model
            if model is not None:
                self.models[owner_of(column)] = model

    def is_certain(self, column: Column) -> bool:
        """Return whether a column is certain, or a coordinate of a certain point."""
        known = self._certain.get(id(column))  # a condition asks for the same few columns many times
        if known is None:
            found = (self._field(column).is_list and column.index is not None) or owner_of(column) not in self.models
            known = self._certain[id(column)] = column, found
        return known[1]

    def is_point(self, column: Column) -> bool:
        """Return whether a column holds certain points, or numbers: it has a model, but nothing of it is uncertain."""
        return self._field(column).is_point

    def uncertain_model(self, column: Column) -> type[Model] | None:
        """Return the model of a column; none if it is certain."""
        return None if self.is_certain(column) else self.models[owner_of(column)]


def _null(values: pa.Array) -> bool:
    """Return whether the first value, or a part of it, is null."""
    return bool(row_states(values, None)[0][0] == NULL)


def _rank(cost: float) -> str:
    """Describe the rank of a group of which nothing is known yet."""
    return f" (rank {1e-6 * 0.5 / cost:.2g} per µs at s = 0.5)"


def _spelled(frame: Frame, column: Column) -> str:
    if column.table is not None:
        raise HaplyError(
            f"The column `{column}` names a table", expected="columns of the one table",
            hint=f'write hp.col("{column.name}"), or in text {column.name}',
        )  # fmt: skip
    return find_column(frame, column.name, "given")


def _in_words(group: Group) -> str:
    shared = ", ".join(name for name, _ in group.kinds)
    how = {
        "interval": "distribution function of",
        "box": f"box in {group.size} dimension{'s' if group.size > 1 else ''} of",
        "form": "quadratic form of",
        "distance": "distance of",
        "curved": "distances from one point to others, of"
        if group.cost_name == STAR
        else f"region with curved borders in {group.size} dimension{'s' if group.size > 1 else ''} of",
        "tree": "tree of differences of",
        "nested": f"{_integrals(group)} of",
        "sum": f"convolution of {group.size} values and more that are points, of"
        if any(issubclass(kind, (Samples, Certain)) for _, kind in group.kinds)
        else f"convolution of {group.size} values, of",
        "lattice": f"mean over a lattice in {group.size - 1} dimensions, the last value in closed form, of",
        "parts": "parts that are independent of each other, of",
        "cases": f"{group.size} case{'s' if group.size > 1 else ''} that exclude one another, of",
    }[group.method]
    return f"{group.text}: {how} {shared}{_error(group.error)}"


def _error(error: float) -> str:
    """Tell how far off a probability may be, rounded up to one digit; nothing if it is right to 1e-12."""
    if not error:
        return ""
    power = math.floor(math.log10(error) + 1e-9)
    return f" (error below {math.ceil(error / 10.0**power - 1e-6)}e{power})"


def _integrals(group: Group) -> str:
    count = integrals_of(group.conditions, group.kinds)
    if count:
        return f"{count} numerical integral{'s' if count > 1 else ''} and one in closed form"
    counted = all(issubclass(kind, (Samples, Certain)) for _, kind in group.kinds)
    return "sum over all points" if counted else "sum over points, the last value in closed form"


_LIKE_CHEBYSHEV = "distance (that of Chebyshev's inequality, with the Gaussian tail)"


def _bounds_in_words(group: Group) -> str:
    """Name the rules that bound a group, cheapest first."""
    return ", ".join(_LIKE_CHEBYSHEV if rule == DISTANCE else RULES[rule] for rule in group.rules)
