"""``hp.match``, ``hp.count_matches``, ``hp.asof`` and their plans: questions about rows rather than pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haply.beside import AskedCounts, AskedEvents, AskedMatches, planned
from haply.inputs import engine_of, frame_of, together
from haply.joins.events import Direction
from haply.planning.answers.asof import AsofOptions
from haply.planning.answers.counts import CountOptions
from haply.planning.answers.match import Density, MatchOptions, Same
from haply.planning.answers.options import Answer, How, Keep, Ties
from haply.planning.frames import Duration, FilePath, InvalidMode, TableT, Tabular
from haply.planning.history.asked import notes_on
from haply.planning.plans import Plan
from haply.query import Expression
from haply.report.funnel import Funnel


def density(*, area: float) -> Density:
    """Give the density of the right rows by the area that they cover.

    Parameters
    ----------
    area
        The area, length or volume that the right table covers, in units of the compared values: for positions on the
        sky in square arcseconds.

    Returns
    -------
    Density
        The number of right rows over the area, once the table is known. With ``exclusive=True`` counterparts of left
        rows are not counted.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> stars, sources = pa.table({"x": [0.0]}), pa.table({"x": [0.2, 7.0]})
    >>> same = hp.gaussian(hp.left.x, 0.3) == hp.gaussian(hp.right.x, 0.3)
    >>> found = hp.match(stars, sources, same, density=hp.density(area=10), completeness=0.8)
    >>> [round(p, 3) for p in found["p_match"].to_pylist()]
    [0.944]
    """
    return Density(area)


def plan_match(
    left: TableT | FilePath,
    right: Tabular,
    same: Same | Sequence[Same],
    *,
    density: float | str | Density | None = None,
    completeness: float,
    threshold: float | None = None,
    how: How = "inner",
    keep: Keep = "all",
    exclusive: bool = False,
    k: int | None = None,
    order_by: str | Sequence[str] | None = None,
    ties: Ties = "first",
    within: float | None = None,
    on: Expression | str | None = None,
    by_category: Mapping[str | tuple[str, str], tuple[float, float]] | None = None,
    tolerance: float = 1e-9,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    columns: Sequence[str] | None = None,
    funnel: Funnel | None = None,
) -> Plan[TableT]:
    """Check and plan a match without running it.

    Parameters
    ----------
    left, right, same, density, completeness, threshold, how, keep, exclusive, k, order_by, ties, within, on
        As in ``hp.match``.
    by_category, tolerance, invalid, suffixes, columns, funnel
        As in ``hp.match``.

    Returns
    -------
    Plan
        ``run()`` returns the result, ``write()`` writes it into a file, ``explain()`` describes how the match will run.

    Raises
    ------
    HaplyError
        If the match cannot be answered.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> stars, sources = pa.table({"x": [0.0]}), pa.table({"x": [0.2, 7.0]})
    >>> same = hp.gaussian(hp.left.x, 0.3) == hp.gaussian(hp.right.x, 0.3)
    >>> plan = hp.plan_match(stars, sources, same, density=0.2, completeness=0.8)
    >>> plan.run()["x_right"].to_pylist()
    [0.2]
    """
    options = MatchOptions(
        density, completeness, threshold, Answer(how, keep, k, order_by, ties), exclusive, tolerance, within,
        by_category, invalid, suffixes, columns, on,
    )  # fmt: skip
    one, other = frame_of(left, "The left table"), frame_of(right, "The right table")
    together({"the left table": one, "the right table": other})
    return Plan(planned(one, other, AskedMatches(same, options)), engine_of(one), funnel, notes_on(one, other))


def match(
    left: TableT | FilePath,
    right: Tabular,
    same: Same | Sequence[Same],
    *,
    density: float | str | Density | None = None,
    completeness: float,
    threshold: float | None = None,
    how: How = "inner",
    keep: Keep = "all",
    exclusive: bool = False,
    k: int | None = None,
    order_by: str | Sequence[str] | None = None,
    ties: Ties = "first",
    within: float | None = None,
    on: Expression | str | None = None,
    by_category: Mapping[str | tuple[str, str], tuple[float, float]] | None = None,
    tolerance: float = 1e-9,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    columns: Sequence[str] | None = None,
    funnel: Funnel | None = None,
) -> TableT:
    """Find the rows of two tables that are the same thing, and how likely that is.

    A left row has its counterpart among the right rows with probability ``completeness``. All other right rows are
    spread evenly with ``density``. Each pair is then weighed against all other candidates of its left row, and against
    the chance that none of them is the counterpart.

    Parameters
    ----------
    left, right
        Two tables, or a stream and a table. Each micro-batch of the stream is then answered from the whole table.
    same
        What is measured on both sides: a column that both tables have, ``("mag", "vmag")`` for a column of each, or
        ``hp.left.pos == hp.right.pos``. In a list of several, which must be independent, each but the first also has
        the density of its values among unrelated rows, a number or a right column: ``("mag", "vmag", 0.1)``, or
        ``(hp.left.mag == hp.right.mag, 0.1)``.
    density
        Right rows per unit of the first value (per unit area of positions, per square arcsecond on the sky) that are
        unrelated to a left row: a number, a left column, or ``hp.density(area=...)``. It decides the answer, so there
        is no default.
    completeness
        How many left rows have a counterpart in the right table: more than 0, less than 1.
    threshold
        The least ``p_match`` of a pair that is kept; by default all pairs that are not negligible.
    how, keep, k, order_by, ties
        As in ``hp.join``, by ``p_match``. With ``how="left"`` a row whose candidates are all too unlikely stays, with
        nulls for the right table and its ``p_any``. ``keep="one_to_one"`` keeps the likeliest set of pairs in which no
        row appears twice.
    exclusive
        Whether a right row is the counterpart of at most one left row. Probabilities are then summed over all
        one-to-one assignments; ``p_low`` and ``p_high`` bound ``p_match`` where too many rows compete for an exact
        value.
    within
        For samples and certain values, which have no density: the distance within which they count as the same.
    on
        Certain conditions, such as ``"left.band = right.band"``. A pair that does not fulfil them cannot be the same
        thing: it is not a candidate, and has no weight. ``density`` is then that of right rows which fulfil them.
    by_category
        ``{"class": (m, u)}``: the share of equal values of a certain column among the same things, and among unrelated
        ones.
    tolerance
        Negligible pairs are left out: together they change no probability by more than this.
    invalid, suffixes, columns, funnel
        As in ``hp.join``.

    Returns
    -------
    table
        All columns of both tables, then ``bayes_factor`` (of the same thing against an unrelated one), ``p_match`` (the
        pair is the same thing) and ``p_any`` (the left row has a counterpart): of the kind of the left table.

    Raises
    ------
    HaplyError
        For what cannot be answered, before any data is read; for a bad row, when it is found.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> one = pa.table({"id": [1, 2], "x": [{"mean": 0.0, "sd": 0.1}, {"mean": 5.0, "sd": 0.1}]})
    >>> other = pa.table({"name": ["a", "b"], "x": [{"mean": 0.1, "sd": 0.1}, {"mean": 9.0, "sd": 0.1}]})
    >>> found = hp.match(one, other, "x", density=0.2, completeness=0.7, how="left", columns=["id", "name"])
    >>> [(row["id"], row["name"], round(row["p_any"], 3)) for row in found.to_pylist()]
    [(1, 'a', 0.962), (2, None, 0.0)]
    """
    return plan_match(
        left, right, same,
        density=density, completeness=completeness, threshold=threshold, how=how, keep=keep, exclusive=exclusive, k=k,
        order_by=order_by, ties=ties, within=within, on=on, by_category=by_category, tolerance=tolerance,
        invalid=invalid, suffixes=suffixes, columns=columns, funnel=funnel,
    ).run()  # fmt: skip


def plan_count_matches(
    left: TableT | FilePath,
    right: Tabular,
    on: Expression | str,
    *,
    threshold: float | None = None,
    by: str | Sequence[str] | None = None,
    quantiles: Sequence[float] | None = None,
    distribution: bool = False,
    tolerance: float = 1e-9,
    time: str | tuple[str, str] | None = None,
    window: Duration | None = None,
    invalid: InvalidMode = "raise",
    columns: Sequence[str] | None = None,
    funnel: Funnel | None = None,
) -> Plan[TableT]:
    """Check and plan a count of matches without running it.

    Parameters
    ----------
    left, right, on, threshold, by, quantiles, distribution, tolerance, time, window, invalid, columns, funnel
        As in ``hp.count_matches``.

    Returns
    -------
    Plan
        ``run()`` returns the result, ``write()`` writes it into a file, ``explain()`` describes how the count will run.

    Raises
    ------
    HaplyError
        If the count cannot be answered.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> one, other = pa.table({"x": [0.0, 9.0]}), pa.table({"x": [0.1, 0.2]})
    >>> plan = hp.plan_count_matches(one, other, "abs(gaussian(left.x, 0.1) - right.x) <= 1")
    >>> [round(n, 6) for n in plan.run()["expected_matches"].to_pylist()]
    [2.0, 0.0]
    """
    options = CountOptions(threshold, by, quantiles, distribution, tolerance, time, window, invalid, columns)
    one, other = frame_of(left, "The left table"), frame_of(right, "The right table")
    together({"the left table": one, "the right table": other})
    return Plan(planned(one, other, AskedCounts(on, options)), engine_of(one), funnel, notes_on(one, other))


def count_matches(
    left: TableT | FilePath,
    right: Tabular,
    on: Expression | str,
    *,
    threshold: float | None = None,
    by: str | Sequence[str] | None = None,
    quantiles: Sequence[float] | None = None,
    distribution: bool = False,
    tolerance: float = 1e-9,
    time: str | tuple[str, str] | None = None,
    window: Duration | None = None,
    invalid: InvalidMode = "raise",
    columns: Sequence[str] | None = None,
    funnel: Funnel | None = None,
) -> TableT:
    """Count how many right rows fulfil a condition with each left row: whether any does, and how many to expect.

    All partners of a left row are compared with the same uncertain value, so their probabilities do not multiply. The
    numbers here take all possible values into account.

    Parameters
    ----------
    left, right
        Two tables, or a stream and a table. Each micro-batch of the stream is then answered from the whole table, which
        is read page by page if ``hp.read_index`` gave it.
    on
        A condition on the difference or the distance of a column of each side, with any certain conditions. Several
        uncertain conditions may be joined by AND if the left columns in them are samples or certain; with ``by`` the
        right columns, too.
    threshold
        The least ``p_any`` of a row that is returned; by default all rows.
    by
        Left columns to group by: count the matches of all rows of a group together, instead of those of each row.
    quantiles
        Levels such as ``[0.05, 0.95]``: the least number of matches that is reached with this probability, as columns
        ``matches_q05`` and ``matches_q95``.
    distribution
        Whether to add ``matches_distribution``, an array of the probabilities of 0, 1, 2, ... matches.
    tolerance
        How far numbers may be off. Pairs are left out that together change no number by more, and integrals are as
        exact.
    time, window
        ``|left time - right time| <= window``, for certain times.
    invalid, funnel
        As in ``hp.join``.
    columns
        Which left columns the result has; all by default.

    Returns
    -------
    table
        Left columns, then ``expected_matches``, ``sd_matches`` and ``p_any``, the probability of at least one match: of
        the kind of the left table. Rows without a candidate have zeros. With ``by`` the columns of groups, then
        ``expected_matches`` and ``sd_matches``.

    Raises
    ------
    HaplyError
        For what cannot be answered, before any data is read; for a bad row, when it is found.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> places = pa.table({"id": [1], "x": [{"lo": 0.0, "hi": 1.0}]})
    >>> posts = pa.table({"y": [0.25, 0.75]})
    >>> found = hp.count_matches(places, posts, "abs(left.x - right.y) <= 0.25", columns=["id"])
    >>> {name: round(value, 6) for name, value in found.to_pylist()[0].items()}
    {'id': 1, 'expected_matches': 1.0, 'sd_matches': 0.0, 'p_any': 1.0}
    """
    return plan_count_matches(
        left, right, on,
        threshold=threshold, by=by, quantiles=quantiles, distribution=distribution, tolerance=tolerance, time=time,
        window=window, invalid=invalid, columns=columns, funnel=funnel,
    ).run()  # fmt: skip


def plan_asof(
    left: TableT | FilePath,
    right: Tabular,
    time: str | tuple[str, str],
    *,
    by: str | Sequence[str | tuple[str, str]] | None = None,
    lookback: Duration | None = None,
    direction: Direction = "backward",
    keep: Keep = "best_left",
    k: int | None = None,
    threshold: float | None = None,
    how: How = "left",
    tolerance: float = 1e-9,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    columns: Sequence[str] | None = None,
    funnel: Funnel | None = None,
) -> Plan[TableT]:
    """Check and plan a join by the last event without running it.

    Parameters
    ----------
    left, right, time, by, lookback, direction, keep, k, threshold, how, tolerance, invalid, suffixes, columns, funnel
        As in ``hp.asof``.

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
    >>> failures, requests = pa.table({"t": [5.0]}), pa.table({"t": [1.0, 4.0, 6.0]})
    >>> plan = hp.plan_asof(failures, requests, "t")
    >>> plan.run()["t_right"].to_pylist()
    [4.0]
    """
    options = AsofOptions(
        by, lookback, direction, threshold, Answer(how, keep, k), tolerance, invalid, suffixes, columns
    )  # fmt: skip
    one, other = frame_of(left, "The left table"), frame_of(right, "The right table")
    together({"the left table": one, "the right table": other})
    return Plan(planned(one, other, AskedEvents(time, options)), engine_of(one), funnel, notes_on(one, other))


def asof(
    left: TableT | FilePath,
    right: Tabular,
    time: str | tuple[str, str],
    *,
    by: str | Sequence[str | tuple[str, str]] | None = None,
    lookback: Duration | None = None,
    direction: Direction = "backward",
    keep: Keep = "best_left",
    k: int | None = None,
    threshold: float | None = None,
    how: How = "left",
    tolerance: float = 1e-9,
    invalid: InvalidMode = "raise",
    suffixes: tuple[str, str] = ("_left", "_right"),
    columns: Sequence[str] | None = None,
    funnel: Funnel | None = None,
) -> TableT:
    """Find for each left row the last right row before it, where times may be uncertain.

    A right row is the last one if its time is at or before that of the left row, and no other right row is between
    them. With certain times that is the ordinary as-of join.

    Parameters
    ----------
    left, right
        Two tables, or a stream and a table of events. Each micro-batch of the stream is then answered from the whole
        table.
    time
        The column of times: of both tables, or ``("left_time", "right_time")``. Numbers, timestamps or uncertain
        values.
    by
        Columns that must be equal: names, or pairs of names in a list.
    lookback
        How far before the left row a right row may be, at most; with ``direction="nearest"``, before or after it.
    direction
        ``"forward"`` asks for the first right row at or after the left one, ``"nearest"`` for the one nearest to it, on
        either side; of two at one distance the earlier.
    keep, k
        ``"best_left"`` keeps the likeliest right row, or the ``k`` likeliest; ``"all"`` keeps all that may be the last.
    threshold
        The least probability of a pair that is kept.
    how
        ``"left"`` keeps left rows without a pair, with nulls; ``"inner"`` leaves them out; others as in ``hp.join``.
    tolerance
        Negligible right rows are left out: together they are the last one with a smaller probability than this.
    invalid, suffixes, columns, funnel
        As in ``hp.join``.

    Returns
    -------
    table
        All columns of both tables, then ``probability`` (the right row is the last one) and ``p_any`` (there is one):
        of the kind of the left table. Of several right rows at one time, the one that is last by its certain columns
        counts.

    Raises
    ------
    HaplyError
        For what cannot be answered, before any data is read; for a bad row, when it is found.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> asked = pa.table({"t": [{"lo": 4.0, "hi": 6.0}]})
    >>> events = pa.table({"name": ["a", "b", "c"], "t": [{"lo": 0.0, "hi": 3.0}, {"lo": 2.0, "hi": 5.0},
    ...                    {"lo": 5.0, "hi": 7.0}]})
    >>> found = hp.asof(asked, events, "t", keep="all", columns=["name"])
    >>> {row["name"]: round(144 * row["probability"], 6) for row in found.to_pylist()}
    {'c': 18.0, 'b': 107.0, 'a': 19.0}
    """
    return plan_asof(
        left, right, time,
        by=by, lookback=lookback, direction=direction, keep=keep, k=k, threshold=threshold, how=how,
        tolerance=tolerance, invalid=invalid, suffixes=suffixes, columns=columns, funnel=funnel,
    ).run()  # fmt: skip
