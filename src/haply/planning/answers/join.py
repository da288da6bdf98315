"""Joins that return more than their pairs, or fewer: rows without a partner, and the best pairs of each row.

A plan has the pairs of the inner join with an id for each row that matters. An engine then ranks pairs and adds rows
without a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from haply.errors import HaplyError
from haply.planning.answers.options import Answer
from haply.planning.explain import Description
from haply.planning.frames import Engine, Field, Frame, SideName, field_of, names_of
from haply.planning.join import JOINS
from haply.planning.nodes import JoinNode, Shown
from haply.planning.pairs import PairPlan
from haply.planning.plans import Chosen, PlannedQuery
from haply.pruning.best import Best
from haply.pruning.threshold import Negligible
from haply.query import columns_of
from haply.query.conditions import JoinCondition

ROW_IDS: dict[str, str] = {"left": "__haply_left_row", "right": "__haply_right_row"}
"""Columns of pairs that identify the rows of each side."""

_TITLES = {
    "inner": "Join", "left": "Left join", "right": "Right join", "outer": "Full outer join", "semi": "Semi join",
    "anti": "Anti join",
}  # fmt: skip
_ROWS = {
    "left": "left rows without a pair are returned with nulls",
    "right": "right rows without a pair are returned with nulls",
    "outer": "rows of both tables without a pair are returned with nulls",
    "semi": "left rows that have a pair, each once",
    "anti": "left rows that have no pair",
}
_KEPT = {
    "best_left": "the {k} best pairs of each left row",
    "best_right": "the {k} best pairs of each right row",
    "mutual": "pairs that are the best of both of their rows",
    "one_to_one": "a set of pairs in which no row is twice, with the largest sum of probabilities",
}


LEVELS = (0.3, 1e-6, 1e-300)
"""The thresholds that are tried, one after the other, to find the best pairs of each row, however unlikely."""
TIES = 1e-11
"""Probabilities nearer than this may tie: of pairs that tie, none may be below a level."""
_SIDES: tuple[SideName, SideName] = ("left", "right")
_MANY_ROWS = 1e12
"""Assumed number of rows where it is not known."""
_Of = tuple[SideName, str]
"""A side, and a column of it."""
_CHOSEN = {
    "best_left": "a pair is returned when its left row can have no other",
    "best_right": "a pair is returned when its right row can have no other",
    "mutual": "a pair is returned when both of its rows can have no other",
}
_ALONE = "a row without a pair is returned when it can no longer have one"


def plan_pairs(node: JoinNode) -> PlannedQuery:
    """Plan a join of two tables or streams, with any ``how`` and ``keep``."""
    if node.options.answer.plain:
        return JOINS.plan(node)
    return AnsweredJoin.of_streams(node) if node.streaming else AnsweredJoin.of(node)


@dataclass(frozen=True)
class AnsweredJoin:
    """A join of two tables or streams whose pairs are ranked, or whose rows without a pair matter."""

    node: JoinNode
    """What is asked. Its tables have ids for the rows that matter; the rows of streams get theirs as they arrive."""
    pairs: Chosen
    """The pairs of the inner join, with their row ids."""
    ids: Chosen
    """The plan that finds only the row ids of the same pairs, more cheaply."""
    wide: tuple[Shown, ...]
    """The columns of the pairs besides row ids and the probability: those of the result, and what ranking needs."""

    @classmethod
    def of(cls, node: JoinNode) -> AnsweredJoin:
        """Plan the inner joins."""
        answer = node.options.answer
        if answer.k is not None and node.threshold.value is None:
            node = replace(node, threshold=Negligible(LEVELS[0]))
        # the local engine looks up what ranking needs by row ids, for the few pairs that tie; ids take an index away
        by_ids = node.left.engine_name == "local" and node.left.index is None and node.right.index is None
        sides: tuple[SideName, ...] = answer.identified
        if answer.ranked and by_ids:
            unseen = {one.side for one in with_columns(node, _compared(node))[len(node.result) :]}
            sides = tuple(side for side in _SIDES if side in answer.identified or side in unseen)
        frames = {
            side: frame.with_row_id(ROW_IDS[side]) if side in sides else frame for side, frame in node.frames.items()
        }
        node = replace(node, left=frames["left"], right=frames["right"])
        ids = [Shown(side, ROW_IDS[side], ROW_IDS[side]) for side in sides]
        if answer.ranked:
            wide = node.result if by_ids else with_columns(node, _compared(node))
            ranked = JOINS.plan(_ranked(node, [*wide, *ids]))
            return cls(node, ranked, ranked, wide)
        only_ids = JOINS.plan(_inner(node, ids, exact=False))
        pairs = only_ids if answer.left_only else JOINS.plan(_inner(node, [*node.result, *ids], node.exact))
        return cls(node, pairs, only_ids, node.result)

    @classmethod
    def of_streams(cls, node: JoinNode) -> AnsweredJoin:
        """Plan the inner join of streams, and refuse options that streams do not have."""
        problem = _stream_problem(node)
        if problem is not None:
            raise problem
        answer = node.options.answer
        if answer.left_only and answer.keep == "best_left":
            # a left row has a pair if and only if it has a best one
            answer = Answer(answer.how)
            node = replace(node, options=replace(node.options, answer=answer))
        wide = with_columns(node, _compared(node)) if answer.ranked else node.result
        pairs = JOINS.plan(_inner(node, list(wide), exact=bool(answer.ranked) or node.exact))
        return cls(node, pairs, pairs, wide)

    @property
    def answer(self) -> Answer:
        """Return which pairs and rows are returned."""
        return self.node.options.answer

    def side(self, name: SideName) -> Frame:
        """Return the table of a side, with ids of its rows if they matter."""
        return self.node.frames[name]

    def shown(self, side: SideName) -> list[Shown]:
        """Return the columns of the result that a side has."""
        return [one for one in self.node.result if one.side == side]

    @property
    def compared(self) -> tuple[str, str] | None:
        """Return the columns of both tables whose expected squared difference breaks ties in probability, if any."""
        return _compared(self.node)

    def order_of(self, side: SideName) -> list[str]:
        """Return the columns that order rows of a side that tie."""
        columns = self.node.ordered_by.get(side, [])
        if self.node.streaming:  # by default all certain columns order: here, all that have an order
            return [name for name in columns if can_order(field_of(self.node.frames[side], name))]
        return columns

    def ordered_pairs(self, side: SideName) -> list[str]:
        """Return the same columns, as they are called in the pairs."""
        return [self.called(side, column) for column in self.order_of(side)]

    @property
    def compared_pairs(self) -> tuple[str, str] | None:
        """Return the compared columns, as they are called in the pairs."""
        compared = self.compared
        return None if compared is None else (self.called("left", compared[0]), self.called("right", compared[1]))

    def called(self, side: SideName, column: str) -> str:
        """Return what a column is called in the pairs."""
        return next(one.name for one in self.wide if (one.side, one.column) == (side, column))

    @property
    def by_levels(self) -> bool:
        """Return whether there is no threshold: it is then lowered from level to level for rows that lack pairs."""
        return isinstance(self.node.threshold, Negligible)

    def at_level(self, level: float, side: SideName, rows: Frame, only_id: bool = False) -> Chosen:
        """Plan the pairs of some rows of a side whose probability is at least a level; maybe only the rows' ids."""
        left, right = (rows, self.node.right) if side == "left" else (self.node.left, rows)
        node = replace(self.node, left=left, right=right, threshold=Negligible(level))
        named = (side,) if only_id else [name for name in _SIDES if ROW_IDS[name] in names_of(node.frames[name])]
        ids = [Shown(name, ROW_IDS[name], ROW_IDS[name]) for name in named]
        return JOINS.plan(_ranked(node, ids if only_id else [*self.wide, *ids]))

    @property
    def names(self) -> list[str]:
        """Return the columns of the result."""
        return [*(one.name for one in self.node.result), *self.added]

    @property
    def added(self) -> tuple[str, ...]:
        """Return the columns of the result that no table has: numbers."""
        return self.node.options.added

    @property
    def ranked_by(self) -> str:
        """Return the column of pairs that ranks them, the largest first."""
        return "probability"

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        return engine.answered(self, funnel)

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run."""
        lines = []
        if self.answer.keep != "all":
            kept = _KEPT[self.answer.keep].format(k=self.answer.k or 1).replace("the 1 best pairs", "the best pair")
            lines.append(("kept", kept))
        if self.answer.how in _ROWS:
            lines.append(("rows", _ROWS[self.answer.how]))
        details = self._in_streams(lines) if self.node.streaming else ()
        if self._always_matched:
            lines.append(
                (
                    "note",
                    f"with self_key every row is its own partner, so how='{self.answer.how}' says nothing about "
                    f"others; add left.{self.node.options.self_key} != right.{self.node.options.self_key}",
                )
            )
        return Description(_TITLES[self.answer.how], "", tuple(lines), details, parts=(self.pairs.describe(engine),))

    def _in_streams(self, lines: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Describe when rows and pairs of streams are returned; returns where pairs are ranked."""
        answer = self.answer
        if answer.how == "semi" and not answer.ranked:
            when = "a row is returned with its first pair"
        else:
            first = _CHOSEN[answer.keep] if answer.ranked else "pairs are returned at once"
            rows = f"{'' if answer.how == 'anti' else first + '; '}{_ALONE}" if answer.preserved else first
            when = f"{rows}: both streams are then past its time by more than window and max_delay"
        lines.append(("when", when))
        if answer.preserved and answer.how != "semi":
            lines.append(
                ("silence", "a stream without new rows holds back rows for which it may still bring a partner")
            )
        lines.append(("late rows", "rows that come later than max_delay are not in the result; the funnel counts them"))
        if not answer.entangled:
            return ()
        keys = isinstance(self.pairs.query, PairPlan) and self.pairs.query.grouped_keys
        where = "by their keys" if keys else "in one task, as there are no keys to distribute them by"
        return (("ranking", f"pairs that compete for a row are ranked in one place: {where}"),)

    @property
    def _always_matched(self) -> bool:
        """Return whether each row matches itself, which is probably not intended."""
        key = self.node.options.self_key
        if key is None or not self.answer.left_only or self.node.condition is None:
            return False
        return key.lower() not in {column.name.lower() for column in columns_of(self.node.condition)}


def _inner(node: JoinNode, result: list[Shown], exact: bool) -> JoinNode:
    """Return the inner join of the same condition, with other columns."""
    options = replace(node.options, answer=Answer(), probability="exact" if exact else "none")
    return replace(node, result=tuple(result), options=options)


def _ranked(node: JoinNode, result: list[Shown]) -> JoinNode:
    """Return the inner join whose pairs are ranked: it may leave out all but the best of each row."""
    inner, answer = _inner(node, result, exact=True), node.options.answer
    if answer.keep == "one_to_one" or node.window is not None:  # pairs of times are ranked by other columns
        return inner
    best = Best(tuple(_SIDES.index(side) for side in answer.ranked), answer.k or 1)
    return replace(inner, options=replace(inner.options, best=best))


def with_columns(node: JoinNode, compared: tuple[str, str] | None, more: Sequence[_Of] = ()) -> tuple[Shown, ...]:
    """Return the columns of a result, and further ones that ranking its pairs needs."""
    needed: list[_Of] = [(side, column) for side, columns in node.ordered_by.items() for column in columns]
    if compared is not None:
        needed += [("left", compared[0]), ("right", compared[1])]
    known = {(one.side, one.column) for one in node.result}
    new = [one for one in dict.fromkeys([*needed, *more]) if one not in known]
    return (*node.result, *(Shown(side, column, f"__haply_{side}_{column}") for side, column in new))


def _compared(node: JoinNode) -> tuple[str, str] | None:
    """Return the column of each side that is compared, of values or of uncertain times, if there is only one."""
    condition = node.pair_condition
    one = condition.compared if isinstance(condition, JoinCondition) else None
    if one is not None:
        return one.left, one.right
    if node.window is None or node.certain_times:
        return None
    columns = node.window.left, node.window.right
    known = all(field_of(node.frames[side], name).model for side, name in zip(("left", "right"), columns, strict=True))
    return columns if known else None


def _stream_problem(node: JoinNode) -> HaplyError | None:
    """Return what streams cannot answer."""
    answer = node.options.answer
    if answer.keep == "one_to_one":
        return HaplyError(
            "keep='one_to_one' is not for streams: a chain of conflicts may never end", hint="use keep='mutual'"
        )
    for side, columns in node.ordered_by.items() if answer.order_by is not None else ():
        for name in columns:
            field = field_of(node.frames[side], name)
            if not can_order(field):
                return HaplyError(
                    f"order_by names {node.named(name, side)}, which has no order on streams",
                    expected="numbers, texts, times, or truth values",
                    found=field.text,
                )
    return None


def can_order(field: Field) -> bool:
    """Return whether rows can be sorted by a column."""
    return field.arrow is not None and not pa.types.is_nested(field.arrow)


def most_rows(frame: Frame) -> float:
    """Return about how many rows a table has at most: on Spark they are not counted, as that would take a job."""
    if frame.index is not None:
        return float(max(1, int(frame.index.rows.sum())))
    return _MANY_ROWS if frame.engine_name == "spark" else float(max(1, frame.count_rows()))
