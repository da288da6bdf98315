"""``hp.explain_pair``, ``hp.threshold_chart``, ``hp.map`` and ``hp.explore``: pictures of one's own pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError, without_advice
from haply.inputs import engine_of, frame_of, number_column, table_of
from haply.joins.cells.rows import bad_row
from haply.models import Model
from haply.models.columns import read_column
from haply.planning.frames import Frame, Tabular, field_of, find_column, names_of, position_model, quoted
from haply.planning.join import JOINS
from haply.planning.nodes import JoinNode, JoinOptions, condition_of
from haply.probability.region import Distance
from haply.pruning.threshold import Negligible, Threshold
from haply.query import Expression, columns_of
from haply.query.conditions import JoinCondition
from haply.query.expressions import And
from haply.report.explain import explain_distance, explain_parts
from haply.report.explain import explain_pair as explain_difference
from haply.report.pair import ComparedPair, PairExplanation, compared_pairs

if TYPE_CHECKING:
    import altair

TableRow: TypeAlias = object
"""A row of a table: a mapping from names of columns to values, a row of pandas, or a Row of Spark."""

PROBABILITIES = ("probability", "p_match")
"""The columns of pairs that tell how likely they are, as ``hp.join`` and ``hp.match`` call them."""
_LEAST = 1e-300
"""A threshold that every possible pair reaches."""
_MOST_PAIRS = 500_000
"""What a browser can hold."""


# -- one pair ----------------------------------------------------------------------------------------------------------


def explain_pair(
    left_row: TableRow, right_row: TableRow, on: Expression | str, threshold: float | None = None
) -> PairExplanation:
    """Explain why ``hp.join`` keeps a pair of rows, or why it does not.

    Parameters
    ----------
    left_row, right_row
        A row of each table: a dict from names of columns to values, a row of pandas, an entry of ``to_pylist()`` of
        an Arrow table, or a ``Row`` of Spark. Uncertain values are dicts with the fields of their struct.
    on
        The condition, or its text, as in ``hp.join``.
    threshold
        The least probability of a pair that is kept. By default every possible pair is.

    Returns
    -------
    PairExplanation
        ``str()`` is the verdict in a sentence. ``probability``, ``kept`` and ``steps`` are its parts, and ``chart()``
        draws the two values and the bounds that the rules prove.

    Raises
    ------
    HaplyError
        If a row lacks a column of the condition, or holds no value there.

    Examples
    --------
    >>> import haply as hp
    >>> one, other = {"temp": {"mean": 20.0, "sd": 0.5}}, {"temp": {"mean": 20.4, "sd": 0.3}}
    >>> print(hp.explain_pair(one, other, on="abs(left.temp - right.temp) <= 0.5", threshold=0.1))
    Kept: the probability of `abs(left.temp - right.temp) <= 0.5` is 0.5067, at least the threshold of 0.1.
    """
    frames = [
        frame_of(_one_row(row, where), where)
        for row, where in ((left_row, "The left row"), (right_row, "The right row"))
    ]
    limit = Threshold(threshold)
    with without_advice():
        node = JoinNode.of(frames[0], frames[1], on, JoinOptions(threshold=_LEAST))
        return _explained(node, str(condition_of(on)), limit)


def _explained(node: JoinNode, text: str, threshold: Threshold) -> PairExplanation:
    assert node.condition is not None
    every = node.condition.conditions if isinstance(node.condition, And) else (node.condition,)
    certain = [one for one in every if _is_certain(node, one)]
    uncertain = [one for one in every if not _is_certain(node, one)]
    failed = next((str(one) for one in certain if _probability(node, one) == 0.0), "")
    compared = compared_pairs([found for one in uncertain or every if (found := _compared(node, one)) is not None])
    if failed or not uncertain:
        value = 0.0 if failed else 1.0
        steps = explain_parts([], value, not failed and threshold.attainable, threshold)
    else:
        steps = _steps(node, uncertain, threshold)
    last = steps[-1]
    return PairExplanation(
        last.most, last.verdict == "accept", threshold.value, text, tuple(steps), compared, failed
    )  # fmt: skip


def _steps(node: JoinNode, uncertain: Sequence[Expression], threshold: Threshold) -> list[Any]:
    """Ask the rules, if the conditions compare one value of each row; else each condition by itself, then all."""
    whole = uncertain[0] if len(uncertain) == 1 else And(tuple(uncertain))
    one = _compared(node, whole)
    if one is None:
        value = _probability(node, whole)
        kept = bool(threshold.keep(np.array([value]), False)[0])
        parts = [(str(part), _probability(node, part)) for part in uncertain] if len(uncertain) > 1 else []
        return explain_parts(parts, value, kept, threshold)
    if isinstance(one.condition, Distance):
        return explain_distance(one.left, one.right, one.condition, threshold)
    return explain_difference(one.left, one.right, one.condition.region, threshold)  # type: ignore[arg-type]


def _compared(node: JoinNode, condition: Expression) -> ComparedPair | None:
    """The values that a condition compares, if it is one on a difference or a distance."""
    found = replace(node, condition=condition).pair_condition
    one = found.difference or found.distance if isinstance(found, JoinCondition) else None
    if one is None:
        return None
    left, right = _value(node.left, one.left, "left"), _value(node.right, one.right, "right")
    return ComparedPair(left, right, one)


def _value(frame: Frame, column: str, side: str) -> Model:
    found = read_column(frame.gathered([column], 1)[column])
    if len(found.bad_rows):
        raise bad_row(f"Column '{column}' of the {side} row", found.example)
    if not len(found.rows):
        raise HaplyError(f"The {side} row has no value in '{column}'", expected="a value", found="null")
    # in arrays of their own, for which kernels are compiled already
    return found.model.take(np.arange(1))


def _probability(node: JoinNode, condition: Expression) -> float:
    """Ask the join itself, which understands every condition."""
    threshold = Threshold(None) if _is_certain(node, condition) else Negligible(_LEAST)
    found = JOINS.plan(replace(node, condition=condition, threshold=threshold)).run(engine_of(node.left), None)
    values = found.gathered(["probability"], 1)["probability"].to_pylist()
    return float(values[0]) if values else 0.0


def _is_certain(node: JoinNode, condition: Expression) -> bool:
    return all(node.is_certain(column) for column in columns_of(condition))


def _one_row(row: TableRow, where: str) -> pa.Table:
    if hasattr(row, "asDict"):
        given: Any = row.asDict(recursive=True)
    elif isinstance(row, Mapping):
        given = row
    elif hasattr(row, "to_dict"):
        given = row.to_dict()
    else:
        raise HaplyError(
            f"{where} is of type {type(row).__name__}",
            expected="a dict from names of columns to values, a row of pandas, or a Row of Spark",
            hint='table.to_pylist()[0], frame.iloc[0], or df.first()',
        )  # fmt: skip
    return pa.Table.from_pylist([{str(name): _plain(value) for name, value in given.items()}])


def _plain(value: Any) -> Any:
    """A value without types of numpy, which Arrow does not take inside of others."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


# -- pairs -------------------------------------------------------------------------------------------------------------


def threshold_chart(pairs: Tabular, *, probability: str | None = None) -> altair.VConcatChart:
    """Draw how many pairs are kept at each threshold, and how many of them are expected to be right.

    The expected share of right pairs is the mean of their probabilities.

    Parameters
    ----------
    pairs
        A result of ``hp.join`` or ``hp.match``, or any table with a column of probabilities. Of a Spark DataFrame only
        sums leave the workers. Rows without a probability are left out.
    probability
        The column of probabilities. By default it is ``probability`` or ``p_match``.

    Returns
    -------
    altair.VConcatChart
        Two charts below each other; ``.save("file.svg")`` writes them.

    Raises
    ------
    HaplyError
        If there is no column of probabilities.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> chart = hp.threshold_chart(pa.table({"probability": [0.2, 0.6, 0.9]}))
    >>> chart.to_dict()["title"]["text"]
    'At 0.5, 2 of 3 pairs are kept; 75% should be right'
    """
    from haply.report.thresholds import AddingUp, threshold_records
    from haply.report.thresholds import threshold_chart as draw

    frame = table_of(pairs, "The table of pairs")
    column = probability_column(frame, probability)
    return draw(threshold_records(frame.totals([column], AddingUp(column))))


def map(pairs: Tabular, left: str, right: str, *, most: int = 300) -> altair.LayerChart:
    """Draw the positions of pairs with their errors, and lines between partners.

    Parameters
    ----------
    pairs
        A result of ``hp.join`` or ``hp.match``, or any table with two columns of positions.
    left, right
        The columns of the left and the right positions: points, models of them, or positions on the sky.
    most
        How many pairs are drawn: the likeliest, if there is a column ``probability`` or ``p_match``.

    Returns
    -------
    altair.LayerChart
        A map, on which an ellipse holds 68% of a position; ``.save("file.svg")`` writes it.

    Raises
    ------
    HaplyError
        If a column holds no positions, or if no pair has two of them.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> pairs = pa.table({"here": [[0.0, 0.0]], "there": [[3.0, 4.0]], "probability": [0.9]})
    >>> hp.map(pairs, "here", "there").to_dict()["title"]["text"]
    '1 pair of positions'
    """
    from haply.report.maps import pair_map

    frame = table_of(pairs, "The table of pairs")
    names = [find_column(frame, name, "given") for name in (left, right)]
    for name in names:
        if position_model(field_of(frame, name)) is None:
            raise HaplyError(
                f"Column '{name}' holds no positions",
                expected="points, hp.gaussian_nd, hp.mixture_nd, hp.samples or hp.sky",
                found=field_of(frame, name).text,
            )
    both = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in names)
    known = frame.where(both)
    count = known.count_rows()
    likely = next((name for name in PROBABILITIES if name in names_of(frame)), None)
    if likely is not None and count > most:
        known = known.ordered([(quoted(likely), True, False)]).limit(most)
    shown = known.gathered(names, most)
    if not shown.num_rows:
        raise HaplyError("No pair has two positions", expected="at least one")
    return pair_map([read_column(shown[name]).model for name in names], names, count)


def explore(
    pairs: Tabular,
    path: str | Path,
    *,
    title: str | None = None,
    probability: str | None = None,
    left: str | None = None,
    right: str | None = None,
) -> Path:
    """Write a page on which pairs can be explored in a browser, without a network.

    A slider moves the threshold. A histogram, a map of positions and a table of the pairs follow it, and each pair is
    explained when it is chosen.

    Parameters
    ----------
    pairs
        A result of ``hp.join`` or ``hp.match``, or any table with a column of probabilities, of at most 500,000 rows.
        Rows without a probability are those of an outer join that have no partner.
    path
        The file to write: one HTML page that holds all it needs.
    title
        The heading of the page.
    probability
        The column of probabilities. By default it is ``probability`` or ``p_match``.
    left, right
        The columns that were compared, as they are called in the pairs. By default they are found by their names:
        ``temp_left`` and ``temp_right``, or the only two columns of models.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    HaplyError
        If there is no column of probabilities, or if there are too many pairs.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa, tempfile
    >>> pairs = pa.table({"id_left": [1, 2], "id_right": [7, 8], "probability": [0.9, 0.4]})
    >>> page = hp.explore(pairs, tempfile.mkdtemp() + "/pairs.html")
    >>> page.name
    'pairs.html'
    """
    from haply.report.explore import ExploredPairs

    frame = table_of(pairs, "The table of pairs")
    column = probability_column(frame, probability)
    compared = [None if name is None else find_column(frame, name, "given") for name in (left, right)]
    table = frame.gathered(names_of(frame), _MOST_PAIRS + 1)
    if table.num_rows > _MOST_PAIRS:
        raise HaplyError(
            "There are too many pairs for a page",
            expected=f"at most {_MOST_PAIRS:,}",
            hint="filter them by their probability, or take a sample",
        )
    found = ExploredPairs.of(table.combine_chunks(), column, (compared[0], compared[1]))
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(found.page(title or "Pairs"), encoding="utf-8")
    return target


def probability_column(frame: Frame, given: str | None) -> str:
    """Return the column that tells how likely pairs are."""
    if given is not None:
        return number_column(frame, given)
    known = names_of(frame)
    found = next((name for name in PROBABILITIES if name in known), None)
    if found is None:
        raise HaplyError(
            "The table has no column of probabilities",
            expected=" or ".join(PROBABILITIES),
            found=", ".join(known),
            hint='name it: probability="p"',
        )
    return number_column(frame, found)
