"""``hp.sql`` and ``hp.plan_sql``: a query becomes the plan that the functions of Python would make of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haply.errors import HaplyError, advise, without_advice
from haply.query import Column, Expression, Literal, with_columns
from haply.query.checks import all_certain, meets_itself, taken_as_independent
from haply.query.expressions import And, Comparison
from haply.spark.join import plan_join
from haply.spark.many import WindowPlan
from haply.spark.result import result_columns
from haply.spark.several import SeveralPlan
from haply.spark.tables import is_table, uncertain_model, with_sure, without_probability
from haply.spark.where import plan_where
from haply.statements.binding import bind
from haply.statements.bound import PROBABILITY, Bound
from haply.statements.syntax import read

_SUFFIXES = ("__haply_left", "__haply_right")
"""For names that both tables have: columns of the result are taken by their position."""


def plan_sql(
    query: str,
    spark: Any = None,
    time: str | Mapping[str, str] = "time",
    *,
    max_delay: Any = 0,
    invalid: Any = "raise",
    funnel: Any = None,
    **tables: Any,
) -> SqlPlan:
    """Check and plan a query without running it; the arguments are those of ``hp.sql``."""
    for name, table in tables.items():
        if not is_table(table):
            raise HaplyError(
                f"The table '{name}' is of type {type(table).__name__}",
                expected="a DataFrame for each table",
                hint="the arguments besides tables are spark, time, max_delay, invalid and funnel",
            )
    statement = read(query)
    bound = bind(statement, spark, time, tables).narrowed()
    options = _Options(max_delay, invalid, funnel)
    notes = list(_notes(bound))
    try:
        with without_advice():  # what is said of the parts of a query is no advice for those who write the whole
            plan = _plan(bound, options)
    except HaplyError as refusal:
        if str(refusal).startswith("line "):
            raise
        conditions = statement.select.conditions
        place = conditions[0] if conditions else statement.select.start
        raise statement.error(place, _in_sql(str(refusal), bound)) from None
    for note, hint in notes:
        advise(note, hint)
    return SqlPlan(bound, plan, [f"{note} Hint: {hint}." for note, hint in notes])


def sql(
    query: str,
    spark: Any = None,
    time: str | Mapping[str, str] = "time",
    *,
    max_delay: Any = 0,
    invalid: Any = "raise",
    funnel: Any = None,
    **tables: Any,
) -> Any:
    """The answer to a query in SQL over tables with uncertain values, as a DataFrame.

    Parameters
    ----------
    query
        ``SELECT ... FROM ... WHERE ... WITH THRESHOLD p``; certain and uncertain conditions, ``WINDOW(A, B) = d``,
        ``DISTANCE(a.x, b.x) < d``, ``PROB()`` in the select list, and the constructors as functions, as in
        ``GAUSSIAN(m, s)``.
    spark
        The session; by default that of the tables, or the one that runs.
    time
        The column of times that ``WINDOW`` uses, or one for each table.
    max_delay, invalid, funnel
        As in ``hp.join``.
    tables
        DataFrames by the names that the query uses. Other names are looked up in the Spark catalog.

    >>> parts = spark.createDataFrame([("a", 1.0, 0.1), ("b", 3.0, 0.1)], ["id", "mean", "error"])
    >>> query = "SELECT id, PROB() AS p FROM parts WHERE GAUSSIAN(mean, error) > 2.9 WITH THRESHOLD 0.5"
    >>> [(row.id, round(row.p, 3)) for row in sql(query, parts=parts).collect()]
    [('b', 0.841)]
    """
    return plan_sql(
        query, spark, time, max_delay=max_delay, invalid=invalid, funnel=funnel, **tables
    ).run()  # fmt: skip


class SqlPlan:
    """A query that has been checked and planned but not run: ``explain()`` tells how, ``run()`` gives the DataFrame."""

    def __init__(self, bound: Bound, plan: Any, notes: Sequence[str] = ()) -> None:
        self._bound, self._plan, self._notes = bound, plan, notes

    def run(self) -> Any:
        """The answer, as a lazy DataFrame."""
        return self._bound.finished(self._plan.run())

    def explain(self) -> str:
        """How the query will run, in words: what the same query in Python explains."""
        return "\n".join([str(self._plan.explain()), *(f"  note          {note}" for note in self._notes)])


def _notes(bound: Bound) -> Iterator[tuple[str, str]]:
    """What the author of a query should know of it, each with a hint."""

    def is_certain(column: Column) -> bool:
        (table,) = (table for table in bound.tables if table.alias == column.table)
        return uncertain_model(table.frame, column.name) is None

    times = {alias for alias, time in bound.times.items() if not is_certain(Column(alias, time))}
    condition = _all(bound.conditions, lambda column: column) if bound.conditions else Literal(True)
    if bound.select.threshold is not None and not times:
        plain = all_certain(condition, is_certain, claims=True)
        if plain is not None:
            yield plain, "make one of them uncertain, with GAUSSIAN(mean, sd), UNIFORM(lo, hi) or another constructor"
    for one, other in itertools.combinations(bound.tables, 2):
        if one.origin != other.origin or one.frame.isStreaming:
            continue
        windows = any({window.one, window.other} == {one.alias, other.alias} for window in bound.windows)
        in_time = windows and {one.alias, other.alias} <= times and bound.times[one.alias] == bound.times[other.alias]
        if in_time or meets_itself(condition, one.alias, other.alias, is_certain):
            yield taken_as_independent(one.alias, other.alias)


def _in_sql(text: str, bound: Bound) -> str:
    """What a function of Python says, in the words of the query."""
    text = text.replace("give threshold=0.01", "write WITH THRESHOLD 0.01")
    for side, table in zip(("left", "right"), bound.tables, strict=False):
        text = text.replace(f"of the {side} table", f"of {table.alias}")
    return text


@dataclass(frozen=True)
class _Options:
    max_delay: Any
    invalid: Any
    funnel: Any


@dataclass(frozen=True)
class _WholeTable:
    """A table without conditions: every row is sure."""

    frame: Any
    exact: bool

    def run(self) -> Any:
        return with_sure(self.frame, PROBABILITY) if self.exact else self.frame

    def explain(self) -> str:
        return "Whole table\n  no condition: every row, probability 1.0"


def _plan(bound: Bound, options: _Options) -> Any:
    if bound.windows and len(bound.tables) == 1:
        raise HaplyError("WINDOW is between tables", expected="two tables or more")
    if len(bound.tables) == 1:
        return _selection(bound, options)
    first: HaplyError | None = None
    for fits, make in ((_fits_two, _two), (_fits_windows, _windows)):
        if fits(bound):
            try:
                return make(bound, options)
            except HaplyError as refusal:
                if any(table.frame.isStreaming for table in bound.tables):
                    raise
                if bound.select.broadcast is not None:
                    with bound.statement.at(bound.select.broadcast.start):
                        raise
                first = refusal
    if any(table.frame.isStreaming for table in bound.tables):
        raise HaplyError(
            "Streams need windows that connect them all",
            expected="WINDOW(A, B) = d for certain times",
            hint="join tables otherwise, or two streams",
        )
    try:
        return _several(bound, options)
    except HaplyError as refusal:
        raise (first if first is not None and not bound.uncertain else refusal) from None


def _mode(bound: Bound) -> Any:
    return "exact" if bound.with_probability else "none"


def _selection(bound: Bound, options: _Options) -> Any:
    (table,) = bound.tables
    if not bound.conditions:
        return _WholeTable(table.frame, bound.with_probability)
    frame, spare = without_probability(table.frame)

    def alone(column: Column) -> Column:
        return replace(column, table=None, name=spare if column.name.lower() == PROBABILITY else column.name)

    return plan_where(
        frame, _all(bound.conditions, alone), bound.select.threshold,
        strict=bound.select.strict, probability=_mode(bound), invalid=options.invalid, funnel=options.funnel,
    )  # fmt: skip


def _fits_two(bound: Bound) -> bool:
    return len(bound.tables) == 2


def _two(bound: Bound, options: _Options) -> Any:
    left, right = bound.tables
    sides = {left.alias: "left", right.alias: "right"}
    on: Expression | None = None
    if bound.conditions:
        on = _all(bound.conditions, lambda column: replace(column, table=sides[str(column.table)]))
    elif not bound.windows:
        on = Literal(True)  # the cross product, as it is written
    windows = _windows_of(bound)
    timed: dict[str, Any] = {}
    if windows:
        (length,) = windows.values()
        times = bound.times[left.alias], bound.times[right.alias]
        timed = {"time": times, "window": length, "max_delay": options.max_delay}
    hint, frames = bound.select.broadcast, (left.frame, right.frame)
    result = result_columns(left.frame.columns, right.frame.columns, _SUFFIXES, bound.with_probability)
    aliases = {"left": left.alias, "right": right.alias}
    plan = plan_join(
        *frames, on, bound.select.threshold,
        strict=bound.select.strict, probability=_mode(bound), invalid=options.invalid, suffixes=_SUFFIXES,
        columns=[one.name for one in result if (aliases[one.side], one.column) in bound.used],
        broadcast=None if hint is None else "left" if hint.table.lower() == left.alias.lower() else "right",
        funnel=options.funnel, **timed,
    )  # fmt: skip
    bound.lean = True
    return plan


def _windows_of(bound: Bound) -> dict[tuple[str, str], Any]:
    """The window of each pair of tables that has one, the shortest of those that are written."""
    found: dict[tuple[str, str], Any] = {}
    places = [table.alias for table in bound.tables]
    for window in bound.windows:
        one, other = sorted((window.one, window.other), key=places.index)
        known = found.get((one, other), window.length)
        if isinstance(known, str) != isinstance(window.length, str) or (
            isinstance(known, str) and known != window.length
        ):
            raise HaplyError(
                f"{one} and {other} have two windows", expected="one", found=f"{known} and {window.length}"
            )
        found[one, other] = min(known, window.length)
    return found


def _fits_windows(bound: Bound) -> bool:
    """Whether windows between certain times connect all tables."""
    if len(bound.tables) < 3 or set(bound.times) != {table.alias for table in bound.tables}:
        return False
    if bound.select.strict and bound.uncertain:
        return False  # a join in windows knows no strict threshold
    if any(uncertain_model(table.frame, bound.times[table.alias]) is not None for table in bound.tables):
        return False
    reached = {bound.tables[0].alias}
    for _ in bound.tables:
        for window in bound.windows:
            if reached & {window.one, window.other}:
                reached |= {window.one, window.other}
    return len(reached) == len(bound.tables)


def _windows(bound: Bound, options: _Options) -> Any:
    key, rest = _key(bound)
    return _Positional(
        WindowPlan(
            {table.alias: table.frame for table in bound.tables}, _windows_of(bound),
            key=key, on=_all(rest, lambda column: column) if rest else None, threshold=bound.select.threshold,
            time=bound.times, max_delay=options.max_delay, algorithm="auto", windows_policy="exact",
            funnel=options.funnel,
        ),
        bound.with_probability,
    )  # fmt: skip


@dataclass(frozen=True)
class _Positional:
    """A plan whose probability, the last column, is not asked for by all."""

    plan: Any
    exact: bool

    def run(self) -> Any:
        found = self.plan.run()
        return found if self.exact else found.select(*found.columns[:-1])

    def explain(self) -> str:
        return str(self.plan.explain())


def _key(bound: Bound) -> tuple[dict[str, str] | None, list[Expression]]:
    """A column of each table that must all be equal, if equalities say so, and the other conditions."""
    equal: list[tuple[Expression, Column, Column]] = []
    for condition in bound.certain:
        match condition:
            case Comparison("=", Column(_, _, None) as one, Column(_, _, None) as other) if one.table != other.table:
                equal.append((condition, one, other))
    types = {table.alias: {field.name: field.dataType for field in table.frame.schema.fields} for table in bound.tables}
    for _, start, _ in equal:
        key = {str(start.table): start.name}
        for _ in bound.tables:
            for _, one, other in equal:
                for here, there in ((one, other), (other, one)):
                    if key.get(str(here.table)) == here.name and str(there.table) not in key:
                        key[str(there.table)] = there.name
        used = [
            condition
            for condition, one, other in equal
            if key.get(str(one.table)) == one.name and key.get(str(other.table)) == other.name
        ]
        kinds = {types[alias][name] for alias, name in key.items()}  # cells go by a hash, which differs between types
        if len(key) == len(bound.tables) and len(kinds) == 1:
            ordered = {table.alias: key[table.alias] for table in bound.tables}
            return ordered, [one for one in bound.conditions if not any(one is each for each in used)]
    return None, bound.conditions


def _several(bound: Bound, options: _Options) -> Any:
    return SeveralPlan(
        {table.alias: table.frame for table in bound.tables}, bound.conditions, bound.select.threshold,
        strict=bound.select.strict, windows=_windows_of(bound), times=bound.times, probability=_mode(bound),
        invalid=options.invalid, funnel=options.funnel,
    )  # fmt: skip


def _all(conditions: list[Expression], rename: Callable[[Column], Column]) -> Expression:
    """All conditions as one, over renamed columns."""
    renamed = [with_columns(condition, rename) for condition in conditions]
    return renamed[0] if len(renamed) == 1 else And(tuple(renamed))
