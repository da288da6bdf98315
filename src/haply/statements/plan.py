"""``hp.sql`` and ``hp.plan_sql``: a query becomes the plan that the functions of Python would make of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from haply.beside import AskedPairs, BesideTable
from haply.errors import HaplyError, advise, without_advice
from haply.inputs import catalog_for, engine_of, frame_of, frames_of
from haply.planning.explain import Description, RowExplanation
from haply.planning.frames import (
    Duration,
    Engine,
    FilePath,
    Frame,
    InvalidMode,
    TableRow,
    TableT,
    field_of,
    find_column,
    names_of,
    one_row,
)
from haply.planning.history.keys import name_of
from haply.planning.plans import Chosen, Plan, PlannedQuery
from haply.planning.selection import RowSelection, plan_selection
from haply.planning.several import TABLES, as_join
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, Literal, columns_of, with_columns
from haply.query.checks import all_certain, meets_itself, taken_as_independent
from haply.query.expressions import And
from haply.report.funnel import Funnel
from haply.statements.binding import bind
from haply.statements.bound import PROBABILITY, Bound, CountQuestion
from haply.statements.syntax import Statement, read


def plan_sql(
    query: str,
    spark: object | None = None,
    time: str | Mapping[str, str] = "time",
    *,
    max_delay: Duration = 0,
    invalid: InvalidMode = "raise",
    funnel: Funnel | None = None,
    **tables: TableT | FilePath,
) -> Plan[TableT]:
    """Check and plan a query in SQL without running it.

    Parameters
    ----------
    query, spark, time, max_delay, invalid, funnel, **tables
        As in ``hp.sql``.

    Returns
    -------
    Plan
        ``run()`` returns the result, ``write()`` writes it into a file, ``explain()`` describes how the query will run.

    Raises
    ------
    HaplyError
        If the query cannot be read or answered. The message shows the place in the query.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> shop = pa.table({"kg": [2.0, 2.2]})
    >>> plan = hp.plan_sql("SELECT kg FROM shop WHERE GAUSSIAN(kg, 0.1) > 2.1 WITH THRESHOLD 0.5", shop=shop)
    >>> plan.run()["kg"].to_pylist()
    [2.2]
    """
    frames = frames_of(tables, "the arguments besides tables are spark, time, max_delay, invalid and funnel")
    statement = read(query)
    frames |= _files(statement, frames, spark)
    catalog = catalog_for(spark, frames.values())
    names = {name: name_of(table) for name, table in tables.items()}
    bound = bind(statement, catalog, time, frames, names).narrowed()
    notes = list(_notes(bound))
    select = statement.select
    place = select.conditions[0] if select.conditions else select.start
    with statement.at(place if select.broadcast is None else select.broadcast.start), without_advice():
        # warnings about parts of a query do not help the author of the whole query
        plan = _plan(bound, max_delay, invalid)
    for note, hint in notes:
        advise(note, hint)
    engine = engine_of(bound.tables[0].frame)
    finished = _Finished(bound, plan)
    if isinstance(plan, RowSelection):

        def on(frame: Frame) -> PlannedQuery:
            name = ".".join(select.sources[0].name)
            again = bind(statement, catalog, time, {**frames, name: frame}, names).narrowed()
            with without_advice():
                return _plan(again, max_delay, invalid)

        finished = _FinishedSelection(bound, plan, on)
    return Plan(finished, engine, funnel, tuple(f"{note} Hint: {hint}." for note, hint in notes))


def sql(
    query: str,
    spark: object | None = None,
    time: str | Mapping[str, str] = "time",
    *,
    max_delay: Duration = 0,
    invalid: InvalidMode = "raise",
    funnel: Funnel | None = None,
    **tables: TableT | FilePath,
) -> TableT:
    """Answer a query in SQL over tables with uncertain values.

    Parameters
    ----------
    query
        ``SELECT ... FROM ... WHERE ... WITH THRESHOLD p``; certain and uncertain conditions, ``WINDOW(A, B) = d``,
        ``DISTANCE(a.x, b.x) < d``, ``PROB()`` in the select list, and the constructors as functions, as in
        ``GAUSSIAN(m, s)``. ``JOIN b ON SAME(a.x, b.x)`` asks as ``hp.match`` does, ``LEFT JOIN b ... GROUP BY a`` as
        ``hp.count_matches``, and ``ASOF JOIN b`` as ``hp.asof``. Of two tables one may be a stream.
    spark
        The session; by default that of the tables, or the running one.
    time
        The column of times that ``WINDOW`` uses, or one for each table.
    max_delay, invalid, funnel
        As in ``hp.join``.
    **tables
        Tables by the names that the query uses. Other names are looked up in the Spark catalog. Without Spark a query
        may also name files: ``FROM 'shop.csv'``.

    Returns
    -------
    table
        The select list, of the kind of the first table; Arrow for a path.

    Raises
    ------
    HaplyError
        If the query cannot be read or answered. The message shows the place in the query.

    Examples
    --------
    >>> parts = spark.createDataFrame([("a", 1.0, 0.1), ("b", 3.0, 0.1)], ["id", "mean", "error"])
    >>> query = "SELECT id, PROB() AS p FROM parts WHERE GAUSSIAN(mean, error) > 2.9 WITH THRESHOLD 0.5"
    >>> [(row.id, round(row.p, 3)) for row in sql(query, parts=parts).collect()]
    [('b', 0.841)]
    """
    return plan_sql(
        query, spark, time, max_delay=max_delay, invalid=invalid, funnel=funnel, **tables
    ).run()  # fmt: skip


def _files(statement: Statement, frames: Mapping[str, Frame], spark: object | None) -> dict[str, Frame]:
    """Return the tables that a query names by a path in quotes; those that are given by this name are left out."""
    found: dict[str, Frame] = {}
    on_spark = spark is not None or any(frame.engine_name == "spark" for frame in frames.values())
    for source in statement.sources():
        (path, *_) = source.name
        if not source.is_file or path in frames:
            continue
        with statement.at(source.start):
            if on_spark:
                raise HaplyError(
                    "A path in quotes is a table of this process, and this query is answered by Spark",
                    expected="a Spark DataFrame",
                    hint=f"read the file {path} with spark.read, and give the table as an argument of hp.sql",
                )
            found[path] = frame_of(path, "The table")
    return found


@dataclass(frozen=True)
class _Finished:
    """A query whose plan returns wide rows, from which the select list is computed."""

    bound: Bound
    query: PlannedQuery

    def run(self, engine: Engine, funnel: Any) -> Frame:
        return self.bound.finished(self.query.run(engine, funnel))

    def describe(self, engine: Engine) -> Description:
        found, asked = self.query.describe(engine), self.bound.asked
        return found if asked is None else replace(found, lines=found.lines + asked.lines)


@dataclass(frozen=True)
class _FinishedSelection(_Finished):
    """The same for a selection on one table, which can explain a row."""

    on: Callable[[Frame], PlannedQuery]
    """Plans the query on another table."""

    def explain_row(self, row: TableRow) -> RowExplanation:
        (table,) = self.bound.tables
        if table.given is None:
            raise HaplyError(
                "Single rows are explained of tables, and this query selects from another query",
                hint="select from the table, with all conditions in one WHERE",
            )
        conditions = self.bound.select.conditions
        named = (column.name for condition in conditions for column in columns_of(condition))
        needed = list(dict.fromkeys(find_column(table.given, name, table.alias) for name in named))
        others = [field.name for field in table.given.fields if field.name not in needed and field.arrow is not None]
        planned = self.on(one_row(table.given, needed, row, others))
        assert isinstance(planned, RowSelection)
        return planned.explain_only_row(" AND ".join(map(str, conditions)))


def _notes(bound: Bound) -> Iterator[tuple[str, str]]:
    """Return advice for the author of a query, each with a hint."""
    if bound.question is not None and not isinstance(bound.question, CountQuestion):
        return  # SAME and ASOF may compare certain values

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
        split = bound.asked is not None and bound.asked.exclusive
        if split or one.origin != other.origin or one.frame.streaming:
            continue
        windows = any({window.one, window.other} == {one.alias, other.alias} for window in bound.windows)
        in_time = windows and {one.alias, other.alias} <= times and bound.times[one.alias] == bound.times[other.alias]
        if in_time or meets_itself(condition, one.alias, other.alias, is_certain):
            yield taken_as_independent(one.alias, other.alias)


@dataclass(frozen=True)
class _WholeTable:
    """A table without conditions: every row is sure."""

    frame: Frame
    exact: bool

    def run(self, engine: Engine, funnel: Any) -> Frame:
        return self.frame.with_columns({PROBABILITY: "1D"}) if self.exact else self.frame

    def describe(self, engine: Engine) -> Description:
        return Description("Whole table", "Every row is in the answer.", (("plan", "no condition: probability 1.0"),))


def _plan(bound: Bound, max_delay: Duration, invalid: InvalidMode) -> PlannedQuery:
    if len(bound.tables) == 1:
        if bound.windows:
            raise HaplyError("WINDOW is between tables", expected="two tables or more")
        return _selection(bound, invalid)
    if bound.question is not None:
        return bound.question.plan(bound, invalid)
    node = bound.node(max_delay, invalid)
    if len(node.frames) == 2:
        left, right = node.frames.values()
        if left.streaming != right.streaming:
            return BesideTable.of(left, right, AskedPairs(*as_join(node)))
    chosen = TABLES.plan(node)
    # for two tables it is the plan that hp.join makes, with its description of strategies
    return chosen.query if isinstance(chosen.query, Chosen) else chosen


def _selection(bound: Bound, invalid: InvalidMode) -> PlannedQuery:
    (table,) = bound.tables
    frame, spare = _without_probability(table.frame)
    if not bound.conditions:
        return _WholeTable(frame, PROBABILITY in bound.numbers)

    def alone(column: Column) -> Column:
        return replace(column, table=None, name=spare if column.name.lower() == PROBABILITY else column.name)

    return plan_selection(
        frame, _all(bound.conditions, alone), Threshold(bound.select.threshold, bound.select.strict),
        probability="exact" if PROBABILITY in bound.numbers else "none", invalid=invalid,
    )  # fmt: skip


def _without_probability(frame: Frame) -> tuple[Frame, str]:
    """Rename a column that has the name of the result's probability; return the table and the new name."""
    names = names_of(frame)
    taken = {name.lower() for name in names}
    spare = next(name for name in ("probability_" + "_" * k for k in range(len(taken) + 1)) if name not in taken)
    given = [spare if name.lower() == PROBABILITY else name for name in names]
    return (frame, spare) if given == names else (frame.renamed(given), spare)


def _all(conditions: list[Expression], rename: Callable[[Column], Column]) -> Expression:
    """Return all conditions as one, over renamed columns."""
    renamed = [with_columns(condition, rename) for condition in conditions]
    return renamed[0] if len(renamed) == 1 else And(tuple(renamed))
