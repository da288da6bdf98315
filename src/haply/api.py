"""``hp.join``, ``hp.where``, ``hp.window_join`` and their plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from haply.inputs import frame_of, together
from haply.joins.select import Planning
from haply.planning.frames import InvalidMode, ProbabilityMode, SideName
from haply.planning.join import JoinOptions, plan_pairs
from haply.planning.plans import Plan
from haply.planning.selection import plan_selection
from haply.planning.windows import WindowPlan
from haply.pruning.threshold import Threshold
from haply.query import Expression


def plan_join(
    left: Any,
    right: Any,
    on: Expression | str | None = None,
    threshold: float | None = None,
    *,
    strict: bool = False,
    time: Any = None,
    window: Any = None,
    max_delay: Any = 0,
    probability: ProbabilityMode = "exact",
    strategy: str = "auto",
    self_key: str | None = None,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    columns: Sequence[str] | None = None,
    broadcast: SideName | None = None,
    funnel: Any = None,
) -> Plan:
    """Check and plan a join without running it; the arguments are those of ``hp.join``."""
    options = JoinOptions(
        threshold=threshold, strict=strict, time=time, window=window, max_delay=max_delay, probability=probability,
        strategy=strategy, self_key=self_key, invalid=invalid, suffixes=suffixes, columns=columns, broadcast=broadcast,
    )  # fmt: skip
    one, other = frame_of(left, "The left table"), frame_of(right, "The right table")
    together({"the left table": one, "the right table": other})
    return Plan(plan_pairs(one, other, on, options), funnel)


def join(
    left: Any,
    right: Any,
    on: Expression | str | None = None,
    threshold: float | None = None,
    *,
    strict: bool = False,
    time: Any = None,
    window: Any = None,
    max_delay: Any = 0,
    probability: ProbabilityMode = "exact",
    strategy: str = "auto",
    self_key: str | None = None,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    columns: Sequence[str] | None = None,
    broadcast: SideName | None = None,
    funnel: Any = None,
) -> Any:
    """Pairs of rows for which a condition on uncertain values holds with at least the threshold's probability.

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
    """
    return plan_join(
        left, right, on, threshold,
        strict=strict, time=time, window=window, max_delay=max_delay, probability=probability, strategy=strategy,
        self_key=self_key, invalid=invalid, suffixes=suffixes, columns=columns, broadcast=broadcast, funnel=funnel,
    ).run()  # fmt: skip


def plan_where(
    df: Any,
    condition: Expression | str,
    threshold: float | None = None,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
    funnel: Any = None,
) -> Plan:
    """Check and plan a selection without running it; the arguments are those of ``hp.where``."""
    limit = Threshold(threshold, strict)
    selection = plan_selection(
        frame_of(df, "The table"), condition, limit, probability=probability, planning=planning, invalid=invalid
    )
    return Plan(selection, funnel)


def where(
    df: Any,
    condition: Expression | str,
    threshold: float | None = None,
    *,
    strict: bool = False,
    probability: ProbabilityMode = "exact",
    planning: Planning = "per_row",
    invalid: InvalidMode = "raise",
    funnel: Any = None,
) -> Any:
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


def window_join(
    streams: Mapping[str, Any],
    windows: Mapping[tuple[str, str], Any],
    *,
    key: str | Mapping[str, str] | None = None,
    on: Expression | str | None = None,
    threshold: float | None = None,
    time: str | Mapping[str, str] = "time",
    max_delay: Any = 0,
    algorithm: str = "auto",
    windows_policy: str = "exact",
    funnel: Any = None,
) -> Any:
    """Combinations of one row of each table (or stream), in which every given window holds.

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
    return Plan(plan, funnel).run()
