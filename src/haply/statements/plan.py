"""``hp.sql`` and ``hp.plan_sql``: a query becomes the plan that the functions of Python would make of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from haply.errors import HaplyError, advise, without_advice
from haply.inputs import catalog_for, frames_of
from haply.planning.frames import Frame, field_of, names_of
from haply.planning.join import JoinOptions, plan_pairs
from haply.planning.plans import Plan, PlannedQuery
from haply.planning.result import result_columns
from haply.planning.selection import plan_selection
from haply.planning.several import SeveralJoin
from haply.planning.windows import WindowPlan
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, Literal, with_columns
from haply.query.checks import all_certain, meets_itself, taken_as_independent
from haply.query.expressions import And, Comparison
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
) -> Plan:
    """Check and plan a query without running it; the arguments are those of ``hp.sql``."""
    frames = frames_of(tables, "the arguments besides tables are spark, time, max_delay, invalid and funnel")
    statement = read(query)
    bound = bind(statement, catalog_for(spark, frames.values()), time, frames).narrowed()
    options = _Options(max_delay, invalid)
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
    return Plan(_Finished(bound, plan), funnel, tuple(f"{note} Hint: {hint}." for note, hint in notes))


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


@dataclass(frozen=True)
class _Finished:
    """A query whose plan gives wide rows, of which the select list takes what it wants."""

    bound: Bound
    query: PlannedQuery

    def run(self, funnel: Any) -> Frame:
        return self.bound.finished(self.query.run(funnel))

    def explain(self) -> str:
        return self.query.explain()


def _notes(bound: Bound) -> Iterator[tuple[str, str]]:
    """What the author of a query should know of it, each with a hint."""

    def is_certain(column: Column) -> bool:
        (table,) = (table for table in bound.tables if table.alias == column.table)
        return field_of(table.frame, column.name).uncertain_model is None

    times = {alias for alias, time in bound.times.items() if not is_certain(Column(alias, time))}
    condition = _all(bound.conditions, lambda column: column) if bound.conditions else Literal(True)
    if bound.select.threshold is not None and not times:
        plain = all_certain(condition, is_certain, claims=True)
        if plain is not None:
            yield plain, "make one of them uncertain, with GAUSSIAN(mean, sd), UNIFORM(lo, hi) or another constructor"
    for one, other in itertools.combinations(bound.tables, 2):
        if one.origin != other.origin or one.frame.streaming:
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


@dataclass(frozen=True)
class _WholeTable:
    """A table without conditions: every row is sure."""

    frame: Frame
    exact: bool

    def run(self, funnel: Any) -> Frame:
        return self.frame.with_columns({PROBABILITY: "1D"}) if self.exact else self.frame

    def explain(self) -> str:
        return "Whole table\n  no condition: every row, probability 1.0"


def _plan(bound: Bound, options: _Options) -> PlannedQuery:
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
                if any(table.frame.streaming for table in bound.tables):
                    raise
                if bound.select.broadcast is not None:
                    with bound.statement.at(bound.select.broadcast.start):
                        raise
                first = refusal
    if any(table.frame.streaming for table in bound.tables):
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


def _selection(bound: Bound, options: _Options) -> PlannedQuery:
    (table,) = bound.tables
    if not bound.conditions:
        return _WholeTable(table.frame, bound.with_probability)
    frame, spare = _without_probability(table.frame)

    def alone(column: Column) -> Column:
        return replace(column, table=None, name=spare if column.name.lower() == PROBABILITY else column.name)

    return plan_selection(
        frame, _all(bound.conditions, alone), _threshold(bound), probability=_mode(bound), invalid=options.invalid
    )


def _threshold(bound: Bound) -> Threshold:
    return Threshold(bound.select.threshold, bound.select.strict)


def _without_probability(frame: Frame) -> tuple[Frame, str]:
    """The table with another name for a column that is called as that of the result, and that name."""
    names = names_of(frame)
    taken = {name.lower() for name in names}
    spare = next(name for name in ("probability_" + "_" * k for k in range(len(taken) + 1)) if name not in taken)
    given = [spare if name.lower() == PROBABILITY else name for name in names]
    return (frame, spare) if given == names else (frame.renamed(given), spare)


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
    hint = bound.select.broadcast
    result = result_columns(names_of(left.frame), names_of(right.frame), _SUFFIXES, bound.with_probability)
    aliases = {"left": left.alias, "right": right.alias}
    asked = JoinOptions(
        threshold=bound.select.threshold, strict=bound.select.strict, probability=_mode(bound),
        invalid=options.invalid, suffixes=_SUFFIXES,
        columns=[one.name for one in result if (aliases[one.side], one.column) in bound.used],
        broadcast=None if hint is None else "left" if hint.table.lower() == left.alias.lower() else "right", **timed,
    )  # fmt: skip
    plan = plan_pairs(left.frame, right.frame, on, asked)
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
    if any(field_of(table.frame, bound.times[table.alias]).uncertain_model is not None for table in bound.tables):
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
        ),
        bound.with_probability,
    )  # fmt: skip


@dataclass(frozen=True)
class _Positional:
    """A plan whose probability, the last column, is not asked for by all."""

    plan: PlannedQuery
    exact: bool

    def run(self, funnel: Any) -> Frame:
        found = self.plan.run(funnel)
        return found if self.exact else found.select(names_of(found)[:-1])

    def explain(self) -> str:
        return str(self.plan.explain())


def _key(bound: Bound) -> tuple[dict[str, str] | None, list[Expression]]:
    """A column of each table that must all be equal, if equalities say so, and the other conditions."""
    equal: list[tuple[Expression, Column, Column]] = []
    for condition in bound.certain:
        match condition:
            case Comparison("=", Column(_, _, None) as one, Column(_, _, None) as other) if one.table != other.table:
                equal.append((condition, one, other))
    types = {table.alias: {field.name: field.text for field in table.frame.fields} for table in bound.tables}
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
    return SeveralJoin(
        {table.alias: table.frame for table in bound.tables}, bound.conditions, _threshold(bound),
        windows=_windows_of(bound), times=bound.times, probability=_mode(bound), invalid=options.invalid,
    )  # fmt: skip


def _all(conditions: list[Expression], rename: Callable[[Column], Column]) -> Expression:
    """All conditions as one, over renamed columns."""
    renamed = [with_columns(condition, rename) for condition in conditions]
    return renamed[0] if len(renamed) == 1 else And(tuple(renamed))
