"""``hp.join``, ``hp.where``, ``hp.window_join`` and their plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from haply.beside import AskedPairs, planned
from haply.errors import HaplyError, one_of
from haply.indexing.index import PAGE_ROWS
from haply.inputs import engine_of, frame_of, spark_runs, together
from haply.planning.answers.options import Answer, How, Keep, Ties
from haply.planning.explain import Description
from haply.planning.frames import (
    Duration,
    Engine,
    FilePath,
    Frame,
    InvalidMode,
    ProbabilityMode,
    SideName,
    TableRow,
    TableT,
    Tabular,
    field_of,
    find_column,
    is_one_dimensional,
    names_of,
)
from haply.planning.history.asked import asked_of
from haply.planning.history.keys import keyed, name_of
from haply.planning.history.marks import without_earlier_probability
from haply.planning.nodes import JoinOptions, Strategy, condition_of, shown_of
from haply.planning.plans import ExplainedPair, Plan, PlannedQuery
from haply.planning.selection import plan_selection
from haply.pruning.threshold import Threshold
from haply.query import Expression
from haply.report.funnel import Funnel
from haply.selection.select import Planning

if TYPE_CHECKING:
    from haply.engines.spark.index import DataFrame, SparkSession
    from haply.joins.operators.window import Algorithm
    from haply.pruning.candidates.windows import Policy

IndexMode = Literal["error", "overwrite", "append"]
"""What to do if an index exists: refuse, replace it, or add rows to it."""
EngineName = Literal["local", "spark"]
"""What answers a query over files: this process, or Spark."""


def table(frame: TableT | FilePath, key: str | Sequence[str] | None = None) -> TableT:
    """Declare which rows of a table are the same: those with equal keys.

    In a join of the table with itself, or with a result made from it, the uncertain values of rows with equal keys are
    the same variables. Without a key, rows of two tables are independent.

    Parameters
    ----------
    frame
        A table.
    key
        The column that identifies rows, or several of them. None forgets the history of the table: conditions that its
        rows have passed no longer count.

    Returns
    -------
    table
        The same table, of the same kind; Arrow for a path. Results made from it, by haply, Spark or Arrow, remember
        the key.

    Raises
    ------
    HaplyError
        If the key is not a certain column of the table, or the table is a stream.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> readings = hp.table(pa.table({"id": [1, 2], "kg": [2.0, 2.1]}), key="id")
    >>> near = "abs(gaussian(left.kg, 0.1) - gaussian(right.kg, 0.1)) <= 0.05"
    >>> found = hp.join(readings, readings, on=near, columns=["id_left", "id_right"], threshold=0.2)
    >>> sorted((row["id_left"], row["id_right"], round(row["probability"], 3)) for row in found.to_pylist())
    [(1, 1, 1.0), (1, 2, 0.217), (2, 1, 0.217), (2, 2, 1.0)]
    """
    given = frame_of(frame, "The table")
    if given.streaming:
        raise HaplyError("The table is a stream", expected="a table", hint="streams are joined within one query")
    return keyed(given, key, name_of(frame)).give()


def plan_join(
    left: TableT | FilePath,
    right: Tabular,
    on: Expression | str | None = None,
    threshold: float | None = None,
    *,
    strict: bool = False,
    time: str | tuple[str, str] | None = None,
    window: Duration | None = None,
    max_delay: Duration = 0,
    probability: ProbabilityMode = "exact",
    strategy: Strategy = "auto",
    self_key: str | None = None,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    columns: Sequence[str] | None = None,
    broadcast: SideName | None = None,
    how: How = "inner",
    keep: Keep = "all",
    k: int | None = None,
    order_by: str | Sequence[str] | None = None,
    ties: Ties = "first",
    funnel: Funnel | None = None,
) -> Plan[TableT]:
    """Check and plan a join without running it.

    Parameters
    ----------
    left, right, on, threshold, strict, time, window, max_delay, probability, strategy, self_key, invalid, suffixes
        As in ``hp.join``.
    columns, broadcast, how, keep, k, order_by, ties, funnel
        As in ``hp.join``.

    Returns
    -------
    Plan
        ``run()`` returns the result, ``write()`` writes it into a file, ``explain()`` describes how the join will run.

    Raises
    ------
    HaplyError
        If the join cannot be answered.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> one, other = pa.table({"x": [1.0], "sd": [0.1]}), pa.table({"y": [1.1]})
    >>> plan = hp.plan_join(one, other, on="abs(gaussian(left.x, left.sd) - right.y) <= 0.2", threshold=0.5)
    >>> plan.run().to_pylist()
    [{'x': 1.0, 'sd': 0.1, 'y': 1.1, 'probability': 0.839...}]
    """
    options = JoinOptions(
        threshold=threshold, strict=strict, time=time, window=window, max_delay=max_delay, probability=probability,
        strategy=strategy, self_key=self_key, invalid=invalid, suffixes=suffixes, columns=columns, broadcast=broadcast,
        answer=Answer(how, keep, k, order_by, ties),
    )  # fmt: skip
    one, other = frame_of(left, "The left table"), frame_of(right, "The right table")
    together({"the left table": one, "the right table": other})
    query, as_written = _pairs(one, other, on, options)
    return Plan(query, engine_of(one), funnel, pair=_explaining(on, options) if as_written else None)


def _explaining(on: Expression | str | None, options: JoinOptions) -> Callable[[TableRow, TableRow], ExplainedPair]:
    def explain(left_row: TableRow, right_row: TableRow) -> ExplainedPair:
        from haply.looking.pair import explain_joined

        return explain_joined(left_row, right_row, on, options)

    return explain


def _pairs(left: Frame, right: Frame, on: Expression | str | None, options: JoinOptions) -> tuple[PlannedQuery, bool]:
    """Plan a join by its condition, and by the earlier conditions that the tables' rows have passed.

    Also returns whether these change nothing: a pair of rows can then be explained alone.
    """
    frames: dict[str | None, Frame] = {"left": left, "right": right}
    on = None if on is None else condition_of(on)
    asked = asked_of(frames, () if on is None else (on,), keys=options.self_key is None)
    if asked.changed:
        on, options = asked.condition, replace(options, exclusive=asked.exclusive)
    query = planned(left, right, AskedPairs(on, options))
    if left.streaming or right.streaming:
        return query, not asked.changed
    shown = {one.name: (one.side, one.column) for one in shown_of(left, right, options)}
    return asked.remembered(query, frames, shown, _cut(left, right, options)), not asked.changed


def _cut(left: Frame, right: Frame, options: JoinOptions) -> str | None:
    """Return why the conditions of a join do not hold for all rows of its result; None if they do."""
    if options.answer.how != "inner":
        return f"it was joined with how='{options.answer.how}'"
    times = (options.time, options.time) if isinstance(options.time, str) else options.time or ()
    names = zip((left, right), times, strict=False)
    if any(field_of(frame, find_column(frame, name, "given")).uncertain_model is not None for frame, name in names):
        return "it was joined in a window of uncertain times"
    return None


def join(
    left: TableT | FilePath,
    right: Tabular,
    on: Expression | str | None = None,
    threshold: float | None = None,
    *,
    strict: bool = False,
    time: str | tuple[str, str] | None = None,
    window: Duration | None = None,
    max_delay: Duration = 0,
    probability: ProbabilityMode = "exact",
    strategy: Strategy = "auto",
    self_key: str | None = None,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    columns: Sequence[str] | None = None,
    broadcast: SideName | None = None,
    how: How = "inner",
    keep: Keep = "all",
    k: int | None = None,
    order_by: str | Sequence[str] | None = None,
    ties: Ties = "first",
    funnel: Funnel | None = None,
) -> TableT:
    """Find the pairs of rows for which a condition on uncertain values is at least as likely as the threshold.

    Parameters
    ----------
    left, right
        Two tables, two streams, or a stream and a table. If only one is a stream, each micro-batch is joined with the
        whole table, which is read again, or page by page if it comes from ``hp.read_index``.
    on
        A condition between a column of each side, as an expression or as text, with any certain conditions. Without it
        the window alone is the condition.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict); ``None`` keeps every pair with positive probability.
    time, window, max_delay
        ``|left time - right time| <= window``. Uncertain times count into the probability, as a further condition.
        In a stream a row may come ``max_delay`` after newer ones of its side.
    probability
        ``"exact"`` adds a ``probability`` column; ``"none"`` returns only the pairs, which is faster.
    strategy
        How the pairs of a cell are found: ``"auto"`` is the fastest we know. On a difference, ``"sweep"`` goes along
        the rows' core regions, ``"pages"`` and ``"pti"`` take pages and the tree of Cheng et al. 2005, ``"moments"``
        looks candidates up by mean and variance (Peng and Diao 2011).
    self_key
        When a table is joined with itself: rows with equal keys are one variable.
    invalid
        ``"raise"`` fails on a row that is not a distribution; ``"drop"`` leaves it out and counts it.
    suffixes
        Added to names that both sides have.
    columns
        Which columns the result has besides ``probability``, by their names in it (``"id_left"`` where both tables have
        an ``id``); all by default. Columns that only a condition needs are then not in the result, and columns that
        nothing needs are not read.
    broadcast
        ``"left"`` or ``"right"``: this whole table is sent to every task, and the other is not shuffled. Faster for a
        table that fits into the memory of the driver and of every worker; by default the rows of both are shuffled to
        cells.
    how
        What becomes of rows without a partner. ``"inner"`` returns pairs only. ``"left"``, ``"right"`` and ``"outer"``
        add the rows of the left table, the right table or both that have no pair, with nulls for the other side and
        ``probability``. ``"semi"`` and ``"anti"`` return the left rows that have a pair, or have none: each once, with
        left columns only. A row has a pair if a single partner is likely enough; several unlikely ones do not add up.
        On streams pairs are returned at once, and a row without one when both streams are past its time by more than
        ``window`` and ``max_delay``; rows without a value or a time are returned at once, late rows never.
    keep
        Which pairs are kept, before ``how`` looks for rows without one. ``"best_left"`` keeps the ``k`` best pairs of
        each left row, ``"best_right"`` those of each right row, ``"mutual"`` pairs that are the best of both rows,
        ``"one_to_one"`` a set of pairs with the largest sum of probabilities in which no row appears twice. On streams
        a pair is returned when the rows that choose can have no other; ``"one_to_one"`` is for tables only.
    k
        How many pairs of a row are kept, with ``keep="best_left"`` or ``"best_right"``; 1 by default. With ``k`` the
        threshold may be left out.
    order_by, ties
        Pairs are ordered by probability, to 12 decimals, then by the expected squared difference, then by the columns
        ``order_by`` of the other table; by default by all its certain columns. ``ties="all"`` keeps all pairs that tie
        with the last one by the first two.
    funnel
        An ``hp.Funnel()`` to fill.

    Returns
    -------
    table
        All columns of both tables, then ``probability``: of the kind of the left table; Arrow for a path.

    Raises
    ------
    HaplyError
        For what cannot be answered, before any data is read; for a bad row, when it is found.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> shop = pa.table({"parcel": ["A", "B"], "kg": [2.0, 3.1], "err": [0.02, 0.03]})
    >>> depot = pa.table({"ticket": [1, 2], "kg": [2.01, 4.0], "err": [0.02, 0.02]})
    >>> near = "abs(gaussian(left.kg, left.err) - gaussian(right.kg, right.err)) <= 0.05"
    >>> hp.join(shop, depot, on=near, threshold=0.5, columns=["parcel", "ticket"]).to_pylist()
    [{'parcel': 'A', 'ticket': 1, 'probability': 0.904...}]
    """
    return plan_join(
        left, right, on, threshold,
        strict=strict, time=time, window=window, max_delay=max_delay, probability=probability, strategy=strategy,
        self_key=self_key, invalid=invalid, suffixes=suffixes, columns=columns, broadcast=broadcast, how=how, keep=keep,
        k=k, order_by=order_by, ties=ties, funnel=funnel,
    ).run()  # fmt: skip


def plan_where(
    df: TableT | FilePath,
    condition: Expression | str,
    threshold: float | None = None,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
    funnel: Funnel | None = None,
) -> Plan[TableT]:
    """Check and plan a selection without running it.

    Parameters
    ----------
    df, condition, threshold, strict, probability, planning, invalid, funnel
        As in ``hp.where``.

    Returns
    -------
    Plan
        ``run()`` returns the result, ``write()`` writes it into a file, ``explain()`` describes how the selection will
        run.

    Raises
    ------
    HaplyError
        If the selection cannot be answered.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> plan = hp.plan_where(pa.table({"kg": [2.0, 2.2]}), "gaussian(kg, 0.1) > 2.1", threshold=0.5)
    >>> plan.run()["kg"].to_pylist()
    [2.2]
    """
    limit = Threshold(threshold, strict)
    frame = frame_of(df, "The table")
    tables: dict[str | None, Frame] = {None: frame}
    condition = condition_of(condition)
    asked = asked_of(tables, (condition,))
    if probability == "exact":
        frame = without_earlier_probability(frame)
    query: PlannedQuery = plan_selection(
        frame, asked.condition if asked.changed else condition, limit,
        probability=probability, planning=planning, invalid=invalid,
    )  # fmt: skip
    if not frame.streaming:
        query = asked.remembered(query, tables, {name: (None, name) for name in names_of(frame)})
    return Plan(query, engine_of(frame), funnel)


def where(
    df: TableT | FilePath,
    condition: Expression | str,
    threshold: float | None = None,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
    funnel: Funnel | None = None,
) -> TableT:
    """Find the rows for which a condition on uncertain columns is at least as likely as the threshold.

    Parameters
    ----------
    df
        A table or a stream.
    condition
        Conditions joined by AND, as an expression or as text: sums of columns, their squares, products, absolute values
        and distances compared with something certain, and any certain conditions.
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

    Returns
    -------
    table
        The rows that are kept, then ``probability``: of the kind of the given table; Arrow for a path.

    Raises
    ------
    HaplyError
        For what cannot be answered, before any data is read; for a bad row, when it is found.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> shop = pa.table({"parcel": ["A", "B"], "kg": [2.0, 3.1], "err": [0.02, 0.03]})
    >>> hp.where(shop, "gaussian(kg, err) > 3.05", 0.9).select(["parcel", "probability"]).to_pylist()
    [{'parcel': 'B', 'probability': 0.952...}]
    """
    return plan_where(
        df, condition, threshold,
        strict=strict, probability=probability, planning=planning, invalid=invalid, funnel=funnel,
    ).run()  # fmt: skip


def window_join(
    streams: Mapping[str, TableT | FilePath],
    windows: Mapping[tuple[str, str], Duration],
    *,
    key: str | Mapping[str, str] | None = None,
    on: Expression | str | None = None,
    threshold: float | None = None,
    time: str | Mapping[str, str] = "time",
    max_delay: Duration | Mapping[str, Duration] = 0,
    algorithm: Algorithm = "auto",
    windows_policy: Policy = "exact",
    funnel: Funnel | None = None,
) -> TableT:
    """Find the combinations of one row of each table (or stream) in which every given window holds.

    Parameters
    ----------
    streams
        Tables by name, or streams: all of one kind.
    windows
        ``{("a", "b"): 10, ("b", "c"): 20}``: times of ``a`` and ``b`` are at most 10 apart, and so on. The pairs must
        connect all streams.
    key
        A column that must be equal in all rows of a combination, or a column for each stream.
    on
        Further conditions, with the names of the streams as those of tables. Uncertain ones that share a column are
        computed together: they must connect columns like the branches of a tree.
    threshold
        The least probability of a combination that is kept; by default all that are possible. It has no effect if all
        conditions are certain.
    time, max_delay
        The column of times (or one for each stream), and how late a row of a stream may come after newer ones of it.
    algorithm, windows_policy
        How combinations are found, as in ``haply.joins.WindowJoin``. The answer depends on neither.
    funnel
        An ``hp.Funnel()`` to fill.

    Returns
    -------
    table
        A row for each combination: columns named ``<stream>_<column>``, then ``probability``, that of all uncertain
        conditions together. It is of the kind of the first table; Arrow for a path.

    Raises
    ------
    HaplyError
        For what cannot be answered, before any data is read.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> streams = {
    ...     "a": pa.table({"id": [1, 2], "time": [0, 9]}),
    ...     "b": pa.table({"id": [5], "time": [8]}),
    ...     "c": pa.table({"id": [7, 8], "time": [10, 30]}),
    ... }
    >>> found = hp.window_join(streams, {("a", "b"): 2, ("b", "c"): 3})
    >>> found.select(["a_id", "b_id", "c_id"]).to_pylist()
    [{'a_id': 2, 'b_id': 5, 'c_id': 7}]
    """
    frames = {name: frame_of(stream, f"Stream '{name}'") for name, stream in streams.items()}
    together({f"stream '{name}'": frame for name, frame in frames.items()})
    from haply.planning.windows import plan_windows  # here: other queries need nothing of it

    plan = plan_windows(
        frames, windows, key=key, on=on, threshold=threshold, time=time, max_delay=max_delay, algorithm=algorithm,
        windows_policy=windows_policy,
    )  # fmt: skip
    return Plan(plan, engine_of(plan.first), funnel).run()


def check(df: TableT | FilePath, column: str) -> TableT:
    """Find the rows of an uncertain column that are not a distribution.

    Parameters
    ----------
    df
        A table of any kind that ``hp.join`` takes.
    column
        The name of the column.

    Returns
    -------
    table
        The bad rows with a column ``reason``, of the kind of the given table; Arrow for a path. Null rows are not bad.

    Raises
    ------
    HaplyError
        If the column holds no uncertain values and no numbers.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> readings = pa.table({"temp": [{"mean": 20.0, "sd": 0.1}, {"mean": 21.0, "sd": -1.0}]})
    >>> hp.check(readings, "temp").to_pylist()
    [{'temp': {'mean': 21.0, 'sd': -1.0}, 'reason': 'sd < 0'}]
    """
    return plan_check(df, column).run()


def plan_check(df: TableT | FilePath, column: str) -> Plan[TableT]:
    """Check a search for bad rows without running it; the arguments are those of ``hp.check``."""
    frame = frame_of(df, "The table")
    field = field_of(frame, find_column(frame, column, "given"))
    if field.model is None:
        raise HaplyError(
            f"Column '{field.name}' holds no uncertain values",
            expected="a struct made by hp.gaussian, hp.uniform, ... or a number",
            found=field.text,
        )
    return Plan(_BadRows(frame, field.name), engine_of(frame))


@dataclass(frozen=True)
class _BadRows:
    """The search for the rows of a column that are not a distribution."""

    frame: Frame
    column: str

    def run(self, engine: Engine, funnel: Any) -> Frame:
        return engine.bad_rows(self.frame, self.column)

    def describe(self, engine: Engine) -> Description:
        return Description("Bad rows", "Every row is looked at.", (("column", f"'{self.column}'"),))


def build_index(df: Tabular, column: str, path: str, *, page_rows: int = PAGE_ROWS, mode: IndexMode = "error") -> None:
    """Write a table in the order of an uncertain column, with statistics by which joins skip pages.

    Parameters
    ----------
    df
        A table of any kind that ``hp.join`` takes.
    column
        A column of numbers, certain or uncertain.
    path
        The folder of the index. It can be moved or copied, and read by either engine.
    page_rows
        The number of rows of a page. A join reads a page as a whole, or not at all.
    mode
        ``"error"`` refuses a folder that is not empty, ``"overwrite"`` replaces the index in it, ``"append"`` adds
        rows. A folder without haply's manifest is never overwritten, and other files in it are never removed.

    The last step, the commit, makes the new files the index; until then the old one is unchanged. If several builds
    run at the same time on one machine, the first to commit wins, and the others raise: their rows are not written.
    Other file systems (``hdfs://``, ``s3://``, ...) cannot guarantee that: let one build at a time write. Tables of the
    old index can be used until the second commit from now, which removes its files.

    Raises
    ------
    HaplyError
        If the column cannot be indexed, if ``mode`` does not allow writing into the folder, or if another build
        committed first.

    Examples
    --------
    >>> hp.build_index(readings, "temp", "readings.index")                                           # doctest: +SKIP
    >>> readings = hp.read_index("readings.index")                                                   # doctest: +SKIP
    >>> hp.join(probes, readings, on="abs(left.temp - right.temp) <= 0.1", threshold=0.5)            # doctest: +SKIP
    """
    one_of("mode", mode, get_args(IndexMode))
    if not 1 <= page_rows <= 1 << 24:
        raise HaplyError(
            "A page cannot have this size", expected="page_rows from 1 to 16,777,216", found=str(page_rows)
        )
    frame = frame_of(df, "The table")
    if frame.streaming:
        raise HaplyError("A stream cannot be indexed", expected="a table")
    field = field_of(frame, find_column(frame, column, "given"))
    if not is_one_dimensional(field.model):
        raise HaplyError(
            f"Column '{field.name}' cannot be indexed",
            expected="a number, or an uncertain value made by hp.gaussian, hp.uniform, ...",
            found=field.text,
        )
    engine_of(frame).build_index(frame, field.name, path, page_rows, mode)


@overload
def read_index(path: str, spark: SparkSession, *, engine: Literal["spark"] | None = None) -> DataFrame: ...


@overload
def read_index(path: str, spark: object | None = None, *, engine: EngineName | None = None) -> Tabular: ...


def read_index(path: str, spark: object | None = None, *, engine: EngineName | None = None) -> Tabular:
    """Read the table of an index; joins with it skip pages, on whichever side it is.

    Parameters
    ----------
    path
        The folder of the index.
    spark
        The Spark session; by default the running one.
    engine
        ``"spark"`` or ``"local"``. By default it is Spark if ``spark`` is given or a session runs.

    Returns
    -------
    table
        A Spark DataFrame, or a table of this process, which ``hp.join`` and ``hp.where`` take.

    Raises
    ------
    HaplyError
        If there is no index in the folder.

    Examples
    --------
    >>> readings = hp.read_index("readings.index")                                                   # doctest: +SKIP
    """
    if engine is not None:
        one_of("engine", engine, get_args(EngineName))
    if engine == "spark" or (engine is None and (spark is not None or spark_runs())):
        from haply.engines.spark.index import read_index as read_on_spark

        session: Any = spark
        return read_on_spark(path, session)
    from haply.engines.local.index import read_index as read_here

    return read_here(path)
