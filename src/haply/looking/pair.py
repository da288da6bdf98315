"""``hp.explain_pair``: why a join keeps a pair of rows, or why it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError, without_advice
from haply.inputs import engine_of, frame_of
from haply.joins.cells.rows import bad_row
from haply.models import Model
from haply.models.columns import read_column
from haply.planning.frames import Frame, TableRow, row_values
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

_LEAST = 1e-300
"""A threshold that every possible pair reaches."""


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
        The least probability of a pair that is kept. By default every possible pair is kept.

    Returns
    -------
    PairExplanation
        ``str()`` is the result in a sentence. ``probability``, ``kept`` and ``steps`` are its parts, and ``chart()``
        draws the two values and the bounds that the rules prove.

    Raises
    ------
    HaplyError
        If a row lacks a column of the condition, or has no value there.

    Examples
    --------
    >>> import haply as hp
    >>> one, other = {"temp": {"mean": 20.0, "sd": 0.5}}, {"temp": {"mean": 20.4, "sd": 0.3}}
    >>> print(hp.explain_pair(one, other, on="abs(left.temp - right.temp) <= 0.5", threshold=0.1))
    Kept: the probability of `abs(left.temp - right.temp) <= 0.5` is 0.5067, at least the threshold of 0.1.
    """
    return explain_joined(left_row, right_row, on, JoinOptions(threshold=threshold))


def explain_joined(
    left_row: TableRow, right_row: TableRow, on: Expression | str | None, options: JoinOptions
) -> PairExplanation:
    """Explain a pair of a join with these options: first by its window, then by its conditions."""
    frames = [
        frame_of(pa.Table.from_pylist([row_values(row, where)]), where)
        for row, where in ((left_row, "The left row"), (right_row, "The right row"))
    ]
    limit = Threshold(options.threshold, options.strict)
    with without_advice():
        asked = JoinOptions(threshold=_LEAST, time=options.time, window=options.window)
        node = JoinNode.of(frames[0], frames[1], on, asked)
        text = "" if on is None else str(condition_of(on))
        if node.window is None:
            return _explained(node, text, limit, options.exact)
        return _explained_in_window(node, text, limit, options.exact)


def _explained_in_window(node: JoinNode, text: str, threshold: Threshold, exact: bool) -> PairExplanation:
    """Check the window first: for certain times it is a certain condition, else one more uncertain one."""
    window = node.window
    assert window is not None
    length = f"{window.length / 1e6:g} seconds" if window.stamps and node.certain_times else f"{window.length:g}"
    told = f"abs(left.{window.left} - right.{window.right}) <= {length}"
    inside = value = _probability(node, None)
    parts: list[tuple[str, float]] = []
    if node.condition is not None:
        if node.certain_times and inside:
            return _explained(replace(node, window=None), text, threshold, exact)
        value = _probability(node, node.condition)
        parts = [(told, inside), (text, _probability(replace(node, window=None), node.condition))]
    kept = bool(threshold.keep(np.array([value]), False)[0])
    failed = told if node.certain_times and not inside else ""
    steps = explain_parts([] if failed else parts, value, kept, threshold)
    whole = f"{told} AND {text}" if text else told
    return PairExplanation(value, kept, threshold.value, whole, tuple(steps), (), failed)


def _explained(node: JoinNode, text: str, threshold: Threshold, exact: bool) -> PairExplanation:
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
        steps = _steps(node, uncertain, threshold, exact)
    last = steps[-1]
    return PairExplanation(
        last.most, last.verdict == "accept", threshold.value, text, tuple(steps), compared, failed
    )  # fmt: skip


def _steps(node: JoinNode, uncertain: Sequence[Expression], threshold: Threshold, exact: bool) -> list[Any]:
    """Apply the rules, if the conditions compare one value of each row; else each condition alone, then all."""
    whole = uncertain[0] if len(uncertain) == 1 else And(tuple(uncertain))
    one = _compared(node, whole)
    if one is None:
        value = _probability(node, whole)
        kept = bool(threshold.keep(np.array([value]), False)[0])
        parts = [(str(part), _probability(node, part)) for part in uncertain] if len(uncertain) > 1 else []
        return explain_parts(parts, value, kept, threshold)
    if isinstance(one.condition, Distance):
        return explain_distance(one.left, one.right, one.condition, threshold, exact=exact)
    region = one.condition.region
    return explain_difference(one.left, one.right, region, threshold, exact=exact)  # type: ignore[arg-type]


def _compared(node: JoinNode, condition: Expression) -> ComparedPair | None:
    """Return the values that a condition compares, if it is on a difference or a distance."""
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
    # in separate arrays, for which kernels are compiled already
    return found.model.take(np.arange(1))


def _probability(node: JoinNode, condition: Expression | None) -> float:
    """Compute the probability by a join, which understands every condition."""
    certain = node.certain_times and (condition is None or _is_certain(node, condition))
    threshold = Threshold(None) if certain else Negligible(_LEAST)
    found = JOINS.plan(replace(node, condition=condition, threshold=threshold)).run(engine_of(node.left), None)
    values = found.gathered(["probability"], 1)["probability"].to_pylist()
    return float(values[0]) if values else 0.0


def _is_certain(node: JoinNode, condition: Expression) -> bool:
    return all(node.is_certain(column) for column in columns_of(condition))
