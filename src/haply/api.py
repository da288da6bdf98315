"""``hp.join``, ``hp.where``, ``hp.window_join`` and their plans.

The answer is a table of the kind of the first argument, so that its type is not known before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from haply.errors import HaplyError
from haply.indexing.index import PAGE_ROWS
from haply.inputs import engine_of, frame_of, spark_runs, together
from haply.joins.operators.window import Algorithm
from haply.planning.frames import (
    Duration,
    InvalidMode,
    ProbabilityMode,
    SideName,
    Tabular,
    field_of,
    find_column,
    is_one_dimensional,
)
from haply.planning.join import JOINS
from haply.planning.nodes import JoinNode, JoinOptions, Strategy, one_of
from haply.planning.plans import Plan
from haply.planning.selection import plan_selection
from haply.planning.windows import WindowPlan
from haply.pruning.candidates.windows import Policy
from haply.pruning.threshold import Threshold
from haply.query import Expression
from haply.report.funnel import Funnel
from haply.selection.select import Planning

IndexMode = Literal["error", "overwrite", "append"]
"""What to do where an index is there: refuse, replace it, or add rows to it."""
EngineName = Literal["local", "spark"]
"""What answers a query over files: this process, or Spark."""


def plan_join(
    left: Tabular,
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
    funnel: Funnel | None = None,
) -> Plan:
    """Check and plan a join without running it; the arguments are those of ``hp.join``."""
    options = JoinOptions(
        threshold=threshold, strict=strict, time=time, window=window, max_delay=max_delay, probability=probability,
        strategy=strategy, self_key=self_key, invalid=invalid, suffixes=suffixes, columns=columns, broadcast=broadcast,
    )  # fmt: skip
    one, other = frame_of(left, "The left table"), frame_of(right, "The right table")
    together({"the left table": one, "the right table": other})
    return Plan(JOINS.plan(JoinNode.of(one, other, on, options)), engine_of(one), funnel)


def join(
    left: Tabular,
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
    funnel: Funnel | None = None,
) -> Any:
    """Find the pairs of rows for which a condition on uncertain values is as likely as the threshold asks.

    Parameters
    ----------
    left, right
        Two tables, or two streams.
    on
        A condition between a column of each side, as an expression or as text, with any certain conditions. Without it
        the window alone is the condition.
    threshold, strict
        Keep ``P >= threshold`` (``P > threshold`` when strict); ``None`` keeps every pair with positive probability.
    time, window, max_delay
        ``|left time - right time| <= window``. Uncertain times count into the probability, as a condition of their own.
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
        an ``id``); all by default. What only a condition needs then does not come out, and what nothing needs is not
        read.
    broadcast
        ``"left"`` or ``"right"``: this table goes whole to every task, and the other stays where it is. Faster for a
        table that fits into the memory of the driver and of every worker; by default both are sent to their cells.
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
        self_key=self_key, invalid=invalid, suffixes=suffixes, columns=columns, broadcast=broadcast, funnel=funnel,
    ).run()  # fmt: skip


def plan_where(
    df: Tabular,
    condition: Expression | str,
    threshold: float | None = None,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
    funnel: Funnel | None = None,
) -> Plan:
    """Check and plan a selection without running it; the arguments are those of ``hp.where``."""
    limit = Threshold(threshold, strict)
    frame = frame_of(df, "The table")
    selection = plan_selection(
        frame, condition, limit, probability=probability, planning=planning, invalid=invalid
    )  # fmt: skip
    return Plan(selection, engine_of(frame), funnel)


def where(
    df: Tabular,
    condition: Expression | str,
    threshold: float | None = None,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
    funnel: Funnel | None = None,
) -> Any:
    """Find the rows for which a condition on uncertain columns is as likely as the threshold asks.

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
    streams: Mapping[str, Tabular],
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
) -> Any:
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
        taken together: they must tie columns as the branches of a tree do.
    threshold
        The least probability of a combination that is kept; by default all that are possible. Without effect where all
        conditions are certain.
    time, max_delay
        The column of times (or one for each stream), and how late a row of a stream may come after newer ones of it.
    algorithm, windows_policy
        How combinations are found; the answer depends on neither.
    funnel
        An ``hp.Funnel()`` to fill.

    Columns are named ``<stream>_<column>``; then comes ``probability``, that of all uncertain conditions together.
    """
    frames = {name: frame_of(stream, f"Stream '{name}'") for name, stream in streams.items()}
    together({f"stream '{name}'": frame for name, frame in frames.items()})
    plan = WindowPlan(
        frames, windows, key=key, on=on, threshold=threshold, time=time, max_delay=max_delay, algorithm=algorithm,
        windows_policy=windows_policy,
    )  # fmt: skip
    return Plan(plan, engine_of(plan.first), funnel).run()


def check(df: Tabular, column: str) -> Any:
    """Return the bad rows of an uncertain column, with a ``reason``; null rows are not bad.

    >>> hp.check(readings, "temp").show()                                                            # doctest: +SKIP
    """
    frame = frame_of(df, "The table")
    field = field_of(frame, find_column(frame, column, "given"))
    if field.model is None:
        raise HaplyError(
            f"Column '{field.name}' holds no uncertain values",
            expected="a struct made by hp.gaussian, hp.uniform, ... or a number",
            found=field.text,
        )
    return engine_of(frame).bad_rows(frame, field.name).give()


def build_index(df: Tabular, column: str, path: str, *, page_rows: int = PAGE_ROWS, mode: IndexMode = "error") -> None:
    """Write a table in the order of an uncertain column, with what joins want to know of its pages.

    Parameters
    ----------
    df
        A table of any kind that ``hp.join`` takes.
    column
        A column of numbers, certain or uncertain.
    path
        The folder of the index. It can be moved or copied, and read by either engine.
    page_rows
        Rows of a page, of which a join reads all or none.
    mode
        ``"error"`` refuses a folder in which anything is, ``"overwrite"`` replaces the index in it, ``"append"`` adds
        rows. A folder without a manifest of ours is never overwritten, and foreign files beside one are never removed.

    The last step makes the new files the index; until then the old one stays as it is. Of builds at the same time on
    one machine the first to come so far wins, and the others raise: their rows are not written. On other file systems
    than local ones (``hdfs://``, ``s3://``, ...), which cannot make sure of that, let one build at a time write.
    Tables of the old index can be used until the second build from now commits, which removes its files.

    >>> hp.build_index(readings, "temp", "readings.index")                                           # doctest: +SKIP
    >>> readings = hp.read_index("readings.index")                                                   # doctest: +SKIP
    >>> hp.join(probes, readings, on="abs(left.temp - right.temp) <= 0.1", threshold=0.5)            # doctest: +SKIP
    """
    one_of("mode", mode, get_args(IndexMode))
    if not 1 <= page_rows <= 1 << 24:
        raise HaplyError("A page has no such size", expected="page_rows from 1 to 16,777,216", found=str(page_rows))
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


def read_index(path: str, spark: Any = None, *, engine: EngineName | None = None) -> Any:
    """Return the table of an index, which ``hp.join`` recognises on either side.

    With ``spark``, or if a Spark session runs, it is a DataFrame; else a table of this process. ``engine`` says which.
    """
    if engine is not None:
        one_of("engine", engine, get_args(EngineName))
    if engine == "spark" or (engine is None and (spark is not None or spark_runs())):
        from haply.engines.spark.index import read_index as read_on_spark

        return read_on_spark(path, spark)
    from haply.engines.local.index import read_index as read_here

    return read_here(path)
