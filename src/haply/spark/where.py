"""``hp.where`` and ``hp.plan_where``: rows of a table or a stream that fulfil uncertain conditions likely enough.

Certain conditions are Spark's own. Everything uncertain is decided batch by batch in one Arrow function, which gets
only the columns that the conditions speak of, and the certain numbers that they need, computed by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.errors import HaplyError, advise, unknown_name
from haply.joins.conditions import Batch
from haply.joins.evaluate import STAR, Group
from haply.joins.select import EVALUATED, PLANNINGS, RULES, Planning, Selection
from haply.joins.warm import warm_selection
from haply.models import Certain, Model, Samples
from haply.models.columns import read_column
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, points_of, respelled, to_sql
from haply.query.checks import all_certain, refuse_equalities
from haply.query.rewrites import RowCondition, split_rows
from haply.query.text import parse
from haply.spark.columns import HOW_UNCERTAIN, arrow_function, find_column, model_of_spark_type, quoted
from haply.spark.plan import InvalidMode, Observing, ProbabilityMode
from haply.spark.prepare import BAD, NULL, USABLE, bad_row
from haply.spark.stream import StreamObserving

_FOUND = "__haply_where"
_FOUND_TYPE = "kept boolean, probability double, code smallint, state tinyint"


def plan_where(
    df: DataFrame,
    condition: Expression | str,
    threshold: float | None = None,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
    funnel: Any = None,
) -> WherePlan:
    """Check and plan a selection without running it; the arguments are those of ``hp.where``."""
    for what, given, known in (
        ("probability", probability, get_args(ProbabilityMode)),
        ("planning", planning, PLANNINGS),
        ("invalid", invalid, get_args(InvalidMode)),
    ):
        if given not in known:
            raise unknown_name(f"choice of {what}", given, known)
    limit = Threshold(threshold, strict)
    expression = parse(condition) if isinstance(condition, str) else condition
    if not isinstance(expression, Expression):
        raise HaplyError(
            "The condition cannot be read", expected="an expression or text", found=type(condition).__name__
        )
    expression = respelled(expression, lambda column: _spelled(df, column))
    kinds, is_certain = column_kinds(expression, {field.name: field.dataType for field in df.schema.fields})
    refuse_equalities(expression, lambda column: None if is_certain(column) else kinds[_owner(column)])
    plain = all_certain(
        expression, lambda column: is_certain(column) or is_known_point(df.schema[column.name].dataType),
        threshold is not None,
    )  # fmt: skip
    if plain is not None:
        advise(plain, HOW_UNCERTAIN)
    rows = split_rows(expression, is_certain, lambda column: is_known_point(df.schema[column.name].dataType))
    check_numbers(df, rows)
    selection = Selection.of(rows.groups, kinds, limit, planning, probability == "exact")
    columns = {_owner(column): column.name for column in columns_of(expression)}
    return WherePlan(df, rows, {name: columns[name] for name in selection.columns}, selection, invalid, funnel)


def column_kinds(
    expression: Expression, types: Mapping[str, T.DataType]
) -> tuple[dict[str, type[Model]], Callable[[Column], bool]]:
    """The models of the uncertain columns of a condition, by their texts, and which columns are certain."""
    points = {_owner(column) for column in points_of(expression)}
    kinds: dict[str, type[Model]] = {}
    for column in columns_of(expression):
        kind = value_model(types[column.name])
        if kind is not None and (kind is not Certain or _owner(column) in points):
            kinds[_owner(column)] = kind

    def is_certain(column: Column) -> bool:
        if isinstance(types[column.name], T.ArrayType) and column.index is not None:
            return True  # one number of a certain point
        return _owner(column) not in kinds

    return kinds, is_certain


def is_known_point(data_type: T.DataType) -> bool:
    """Whether a column holds certain points, or numbers: it has a model, but nothing of it is uncertain."""
    return isinstance(data_type, T.ArrayType) or value_model(data_type) is Certain


def check_numbers(frame: DataFrame, condition: RowCondition) -> None:
    """Refuse what is compared with something uncertain, or its factor, and is no number."""
    for expression in condition.numbers.values():
        kind = frame.select(F.expr(_sql(expression))).schema.fields[0].dataType
        if not isinstance(kind, T.NumericType):
            raise HaplyError(
                f"`{expression}` is compared with something uncertain, or multiplied by it",
                expected="a number",
                found=kind.simpleString(),
            )


def _owner(column: Column) -> str:
    """How the normal form calls a column."""
    return str(replace(column, index=None))


def value_model(data_type: T.DataType) -> type[Model] | None:
    """The model of a Spark column; an array of numbers is a certain point."""
    if isinstance(data_type, T.ArrayType):
        return Samples if isinstance(data_type.elementType, T.NumericType) else None
    return model_of_spark_type(data_type)


def _spelled(frame: DataFrame, column: Column) -> str:
    if column.table is not None:
        raise HaplyError(
            f"The column `{column}` names a table", expected="columns of the one table",
            hint=f'write hp.col("{column.name}"), or in text {column.name}',
        )  # fmt: skip
    return find_column(frame, column.name, "given")


@dataclass(frozen=True)
class WherePlan:
    """A selection that has been checked and planned but not run."""

    frame: DataFrame
    condition: RowCondition
    columns: dict[str, str]
    """The uncertain columns: the table's names by those in the condition."""
    selection: Selection
    invalid: InvalidMode
    funnel: Any
    called: Callable[[str], str] = str
    """What messages about bad rows call a column of the condition."""

    def run(self) -> DataFrame:
        """The kept rows, as a lazy DataFrame."""
        frame = self.frame
        for expression in self.condition.certain:
            frame = frame.where(F.expr(_sql(expression)))
        exact = self.selection.exact
        if exact and any(name.lower() == "probability" for name in frame.columns):
            raise HaplyError(
                "The table has a column called 'probability'", expected="that name for the result",
                hint='rename it, or ask with probability="none"',
            )  # fmt: skip
        if not self.selection.groups:
            kept = frame if self.selection.threshold.attainable else frame.where(F.lit(False))
            return kept.withColumn("probability", F.lit(1.0)) if exact else kept
        warm_selection(self.selection)
        if self.funnel is not None:
            self.funnel.start_over()
        observing = (StreamObserving if frame.isStreaming else Observing)(self.funnel)
        called = tuple(map(self.called, self.columns)) if self.invalid == "raise" else None
        worker = _Worker(self.selection, tuple(self.columns), tuple(self.condition.numbers), called)
        given = [F.col(quoted(name)) for name in self.columns.values()]
        given += [F.expr(_sql(number)).cast("double") for number in self.condition.numbers.values()]
        # A function, because Spark does not take another callable; of one column, so that its arguments are fixed.
        # Declared not deterministic, or Spark would copy the call into every later filter and projection.
        decide = arrow_function(lambda rows: worker(rows), _FOUND_TYPE).asNondeterministic()
        packed = F.struct(*(column.alias(f"c{k}") for k, column in enumerate(given)))
        decided = observing.watch(frame.withColumn(_FOUND, decide(packed)), self._counts())
        kept = observing.watch(decided.where(F.col(f"{_FOUND}.kept")), {"kept": "count(1)"})
        shown = [F.col(quoted(name)) for name in frame.columns]
        return kept.select(*shown, *([F.col(f"{_FOUND}.probability").alias("probability")] if exact else []))

    def _counts(self) -> dict[str, str]:
        usable = f"{_FOUND}.state = {USABLE}"
        counts = {
            "rows_left": "count(1)",
            "rows_right": "max(1)",  # a selection is a join with the one row of its constants
            "null_left": f"count_if({_FOUND}.state = {NULL})",
            "invalid_left": f"count_if({_FOUND}.state = {BAD})",
            "candidates": f"count_if({usable})",
            "evaluated": f"count_if({usable} AND {_FOUND}.code = {EVALUATED})",
        }
        for code, name in RULES.items():
            counts[f"rejected:{name}"] = f"count_if({usable} AND {_FOUND}.code = {-code})"
            counts[f"accepted:{name}"] = f"count_if({usable} AND {_FOUND}.code = {code})"
        return counts

    def explain(self) -> str:
        """How the selection will run, in words."""
        threshold = self.selection.threshold
        needed = "P > 0" if threshold.value is None else f"P {'>' if threshold.strict else '>='} {threshold.value:g}"
        lines = [f"Threshold selection\n  keeps         rows with {needed}"]
        for name, made in self.condition.steps:
            lines.append(f"  {name:<13} {made}")
        if self.condition.certain:
            lines.append(f"  pushed down   {'; '.join(map(str, self.condition.certain))}")
        if self.condition.numbers:
            lines.append(f"  numbers       {'; '.join(map(str, self.condition.numbers.values()))}: computed by Spark")
        groups = sorted(self.selection.groups, key=self.selection.costs.of)
        for number, group in enumerate(groups, 1):
            lines.append(
                f"  group {number}       {_in_words(group)}; about {_price(self.selection.costs.of(group))} a row"
            )
        lines.append(f"  plan          {self._explain_plan(groups)}")
        return "\n".join(lines)

    def _explain_plan(self, groups: list[Group]) -> str:
        if not groups:
            return "every condition is certain: Spark's own filter, probability 1.0"
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


def _sql(expression: Expression) -> str:
    return to_sql(expression, lambda column: quoted(column.name))


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
    }[group.method]
    return f"{group.text}: {how} {shared}"


def _price(seconds: float) -> str:
    return f"{1e6 * seconds:.2g} µs" if seconds < 1e-4 else f"{1e3 * seconds:.2g} ms"


@dataclass(frozen=True)
class _Worker:
    """What happens to a batch of rows: it travels to the workers."""

    selection: Selection
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    called: tuple[str, ...] | None
    """What the columns are called when a bad row is refused; None leaves bad rows out."""

    def __call__(self, rows: pa.StructArray) -> pa.StructArray:
        """Which rows are kept, with what probability, decided by what."""
        arrays = [rows.field(k) for k in range(rows.type.num_fields)]
        count = len(rows)
        state = np.full(count, USABLE, np.int8)
        read = []
        for position, array in enumerate(arrays[: len(self.names)]):
            column = read_column(array)
            if len(column.bad_rows) and self.called is not None:
                raise bad_row(f"Column '{self.called[position]}'", column.example)
            mine = np.full(count, NULL, np.int8)
            mine[column.rows] = USABLE
            mine[column.bad_rows] = BAD
            state = np.maximum(state, mine)
            read.append(column)
        numbers = {}
        for name, array in zip(self.numbers, arrays[len(self.names) :], strict=True):
            numbers[name] = array.to_numpy(zero_copy_only=False)
            state = np.maximum(state, np.where(np.isnan(numbers[name]), NULL, USABLE).astype(np.int8))
        usable = np.flatnonzero(state == USABLE)
        models = {
            name: column.model
            if len(column.rows) == len(usable)
            else column.model.take(np.searchsorted(column.rows, usable))
            for name, column in zip(self.names, read, strict=True)
        }
        batch = Batch(models, {name: values[usable] for name, values in numbers.items()}, len(usable))
        found = self.selection.select(batch)
        kept, probability, code = np.zeros(count, bool), np.full(count, np.nan), np.zeros(count, np.int16)
        kept[usable[found.rows]] = True
        probability[usable[found.rows]] = found.probability
        code[usable] = found.code
        columns = [pa.array(values) for values in (kept, probability, code, state)]
        return pa.StructArray.from_arrays(columns, ["kept", "probability", "code", "state"])


def where(
    df: DataFrame,
    condition: Expression | str,
    threshold: float | None = None,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
    funnel: Any = None,
) -> DataFrame:
    """Rows for which a condition on uncertain columns holds with at least the threshold's probability.

    Parameters
    ----------
    df
        A table or a stream.
    condition
        Conditions joined by AND, as an expression or as text: sums of columns, their squares, products, absolute values
        and distances compared with something certain; certain conditions are left to Spark.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict); ``None`` keeps every row with positive probability.
    probability
        ``"exact"`` adds a ``probability`` column; ``"none"`` returns only the rows, which is faster.
    planning
        ``"per_row"`` decides for each row in which order conditions are computed; ``"static"`` and ``"optimal"`` are
        there for comparison.
    invalid
        ``"raise"`` fails on a row that is not a distribution; ``"drop"`` leaves it out and counts it.
    funnel
        An ``hp.Funnel()`` to fill.
    """
    return plan_where(
        df, condition, threshold,
        strict=strict, probability=probability, planning=planning, invalid=invalid, funnel=funnel,
    ).run()  # fmt: skip
