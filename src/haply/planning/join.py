"""Strategies for joins of two tables or streams."""

from __future__ import annotations

from dataclasses import dataclass, replace

from haply.errors import HaplyError
from haply.joins.cells.positions import NORMALS
from haply.models import OneDimensional
from haply.planning.frames import Frame, SideName, field_of, position_model
from haply.planning.mixed import MixedJoin
from haply.planning.nodes import JoinNode
from haply.planning.pairs import PairPlan, Side, broadcast_problem, method_for
from haply.planning.plans import Chosen, DoesNotFit, Fits, Registry
from haply.planning.times import TimeWindow
from haply.probability.region import Difference, Region
from haply.query.conditions import JoinCondition, Misfit
from haply.query.expressions import Or
from haply.query.forms import never
from haply.query.text import parse

FITTING = {
    "difference": ("auto", "sweep", "pages", "pti", "moments"),
    "distance": ("auto", "grid"),
    "uncertain times": ("auto", "sweep"),
}
"""The values of ``strategy`` that fit a condition."""
TIME_NUMBER = "__haply_time"
"""A column of certain times as numbers, for the join alone."""
_PLAIN, _INDEX, _CELLS, _STREAMED, _SELECTION = 0.01, 0.05, 0.1, 1.0, 10.0
"""Microseconds for a candidate, about."""


@dataclass(frozen=True)
class _Pair:
    """A join whose uncertain condition is on the difference or distance of a column of each side, checked."""

    node: JoinNode
    condition: JoinCondition
    frames: dict[str, Frame]
    window: TimeWindow | None
    called: dict[tuple[str, str], str]

    @classmethod
    def of(cls, node: JoinNode) -> _Pair | DoesNotFit:
        """Check a join; a problem becomes the reason why it does not fit."""
        if isinstance(node.pair_condition, Misfit):
            return DoesNotFit(node.pair_condition.error)
        condition = node.pair_condition
        problem = (
            _strategy_problem(node, condition)
            or _difference_problem(node, condition)
            or _distance_problem(node, condition)
            or _time_problem(node, condition)
            or (_stream_problem(node) if node.streaming else None)
        )
        if problem is not None:
            return DoesNotFit(problem, meant=True)
        if node.streaming or node.window is None or (node.condition is not None and node.certain_times):
            return cls(node, condition, node.frames, node.window, {})
        called = {("left", TIME_NUMBER): node.window.left, ("right", TIME_NUMBER): node.window.right}
        condition, frames = _joined_in_time(node, condition, node.window)
        problem = _itself_problem(node, condition)
        return DoesNotFit(problem, meant=True) if problem is not None else cls(node, condition, frames, None, called)

    def plan(self, indexed: SideName | None = None) -> PairPlan | DoesNotFit:
        """Make the plan."""
        node, options = self.node, self.node.options
        method, left, right = None, Side("left", self.frames["left"]), Side("right", self.frames["right"])
        timing = node.streaming and (not node.certain_times or self.condition.compared is None)
        if not timing:
            method, left, right = method_for(
                self.condition, left.frame, right.frame, node.threshold, node.exact, options.strategy
            )
        join = PairPlan(
            left, right, self.condition, node.threshold, method, node.exact, node.result, window=self.window,
            self_key=options.self_key, invalid=options.invalid, broadcast=options.broadcast, called=self.called,
            indexed=indexed, wording=options.wording, best=options.best, only_candidates=options.only_candidates,
        )  # fmt: skip
        problem = broadcast_problem(join)
        return join if problem is None else DoesNotFit(problem, meant=True)


class PlainJoin:
    """A plain join of the engine: nothing is uncertain."""

    name = "plain join"
    cheapest = _PLAIN

    def fits(self, node: JoinNode) -> Fits | DoesNotFit:
        """Fit a join without any uncertain condition."""
        pair = _Pair.of(node)
        if (
            node.options.exclusive
            or isinstance(pair, DoesNotFit)
            or pair.condition.compared is not None
            or node.streaming
        ):
            return DoesNotFit(HaplyError("a condition is uncertain, or a band that a sweep joins faster"))
        return _fits(_PLAIN, pair.plan())


class IndexedPages:
    """Pages of an indexed table: only those that rows of the other table may match are read."""

    name = "index"
    cheapest = _INDEX

    def fits(self, node: JoinNode) -> Fits | DoesNotFit:
        """Fit a difference within an interval, where a side is indexed by the compared column."""
        pair = _Pair.of(node)
        side = None if isinstance(pair, DoesNotFit) else _indexed_side(node, pair)
        if isinstance(pair, DoesNotFit) or side is None:
            return DoesNotFit(HaplyError("no table is indexed by a column that is compared within an interval"))
        return _fits(_INDEX, pair.plan(side))


class Cells:
    """Cells: rows that may match meet in one, and bounds decide most pairs there."""

    name = "cells"
    cheapest = _CELLS

    def fits(self, node: JoinNode) -> Fits | DoesNotFit:
        """Fit an uncertain condition on a difference or a distance."""
        pair = _Pair.of(node)
        if isinstance(pair, DoesNotFit):
            return pair
        if node.streaming:
            node.left.check_streams()
            return _fits(_STREAMED, pair.plan())
        if pair.condition.compared is None:
            return DoesNotFit(HaplyError("nothing is uncertain"))
        plan = pair.plan()
        return _fits(plan.price if isinstance(plan, PairPlan) else 0.0, plan)


class CandidateSelection:
    """Candidates found by one condition, and a selection on them by all conditions."""

    name = "selection"
    cheapest = _SELECTION

    def fits(self, node: JoinNode) -> Fits | DoesNotFit:
        """Fit any conditions between two tables."""
        options = node.options
        if not isinstance(node.pair_condition, Misfit):
            return DoesNotFit(HaplyError("one condition on a difference or distance needs no selection on candidates"))
        for trouble, what in (
            (node.streaming, "streams"),
            (options.strategy != "auto", f"strategy='{options.strategy}'"),
            (options.self_key is not None, "self_key"),
            (node.window is not None, "a window"),
        ):
            if trouble:
                return DoesNotFit(
                    HaplyError(
                        f"A join with several uncertain conditions, or one on several columns, does not go with {what}",
                        expected="two tables, or one condition on the difference or distance of a column of each",
                        found=node.pair_condition.error.found,
                        hint="join by one condition, then hp.where on the result" if what == "streams" else "",
                    )
                )
        assert node.condition is not None
        join = MixedJoin(
            node.left, node.right, node.condition, node.threshold, node.exact, options.invalid, node.result,
            options.wording, options.broadcast,
        )  # fmt: skip
        problem = join.problem or broadcast_problem(join.candidates)
        return DoesNotFit(problem, meant=True) if problem is not None else Fits(_SELECTION, lambda: join)


class JoinStrategies(Registry[JoinNode]):
    """The strategies for joins of two; a condition whose parts exclude one another is joined part by part."""

    def choose(self, node: JoinNode) -> Chosen | DoesNotFit:
        """Take the cheapest strategy that fits, for each part of the condition if it has parts."""
        if not node.options.exclusive or not isinstance(node.condition, Or):
            return super().choose(node)
        options = replace(node.options, exclusive=False)
        parts = [part for part in node.condition.conditions if not never(part, node.is_certain)]
        return self.by_parts([replace(node, condition=part, options=options) for part in parts or [node.condition]])


JOINS = JoinStrategies((PlainJoin(), IndexedPages(), Cells(), CandidateSelection()))
"""All strategies for joins of two tables or streams."""


def _fits(cost: float, plan: PairPlan | DoesNotFit) -> Fits | DoesNotFit:
    return plan if isinstance(plan, DoesNotFit) else Fits(cost, lambda: plan)


# -- problems of a join -------------------------------------------------------------------------------------


def _strategy_problem(node: JoinNode, condition: JoinCondition) -> HaplyError | None:
    """Name the strategies that fit, if the requested one does not."""
    kind = "distance" if condition.distance is not None else "difference"
    if node.streaming and kind == "difference" and (condition.difference is None or not node.certain_times):
        kind = "uncertain times"
    asked = node.options.strategy
    if asked in FITTING[kind]:
        return None
    return HaplyError(
        f"Strategy '{asked}' does not fit this join", expected="one of " + ", ".join(FITTING[kind]), found=f"'{asked}'"
    )


def _difference_problem(node: JoinNode, condition: JoinCondition) -> HaplyError | None:
    """Return the problem of unbounded values without a threshold, or of values that are not numbers."""
    if condition.difference is None:
        return None
    for side, name in (("left", condition.difference.left), ("right", condition.difference.right)):
        field = field_of(node.frames[side], name)
        model = field.model
        if model is None or not issubclass(model, OneDimensional):
            raise HaplyError(
                f"Column {node.named(name, side)} is not a number that may be uncertain",
                expected="a one-dimensional model or a number",
                found=field.text,
            )
        if node.threshold.value is None and not model.bounded:
            return node.without_threshold(name, side, model.kind)
    return None


def _distance_problem(node: JoinNode, condition: JoinCondition) -> HaplyError | None:
    """Return the problem of unbounded positions without a threshold, or of values that are not points."""
    if condition.distance is None:
        return None
    for side, name in (("left", condition.distance.left), ("right", condition.distance.right)):
        field = field_of(node.frames[side], name)
        model = position_model(field)
        if model is None:
            raise HaplyError(
                f"Column {node.named(name, side)} holds no points",
                expected="hp.gaussian_nd, hp.mixture_nd, hp.samples, hp.sky, an array of numbers, or a number",
                found=field.text,
            )
        if node.threshold.value is None and model in NORMALS:
            return node.without_threshold(name, side, model.kind)
    return None


def _time_problem(node: JoinNode, condition: JoinCondition) -> HaplyError | None:
    """Return the problem of a time that is also in the condition, or of an unbounded time without a threshold."""
    if node.window is None or node.certain_times:
        return None
    used = condition.compared
    for side, name, uncertain, other in (
        ("left", node.window.left, node.window.uncertain[0], used.left if used else None),
        ("right", node.window.right, node.window.uncertain[1], used.right if used else None),
    ):
        if not uncertain:
            continue
        if name == other:
            return HaplyError(
                f"Column {node.named(name, side)} is the time and part of another uncertain condition",
                expected="conditions on different columns: their probabilities multiply",
                found=f"'{name}' in both",
            )
        model = field_of(node.frames[side], name).model
        assert model is not None
        if node.threshold.value is None and not getattr(model, "bounded", False):
            return node.without_threshold(name, side, model.kind)
    return None


def _stream_problem(node: JoinNode) -> HaplyError | None:
    """Return what a join of streams cannot do yet."""
    if not all(frame.streaming for frame in node.frames.values()):
        return HaplyError(
            "One side of the join is a stream and the other a table",
            expected="two streams or two tables",
            hint="hp.join joins a stream with a table",
        )
    if node.window is None:
        return HaplyError(
            "A join of streams has no window", expected="time and window", hint='time="t", window="10 minutes"'
        )
    if node.options.self_key is not None:
        return HaplyError("A join of streams takes no self_key in this version")
    if node.options.broadcast is not None:
        return HaplyError("A stream cannot be broadcast", expected="two tables", hint="leave out broadcast")
    return None


def _itself_problem(node: JoinNode, condition: JoinCondition) -> HaplyError | None:
    """Return the problem of a row that is one variable with itself in one condition, and two in another."""
    conditions = [one for one in (condition.difference, condition.distance, *condition.further) if one is not None]
    same = [one.left == one.right for one in conditions]
    if node.options.self_key is None or not any(same) or all(same):
        return None
    two = conditions[same.index(False)]
    return HaplyError(
        "self_key does not go with conditions on one column and on two different ones",
        expected="conditions that each compare a column with itself",
        found=f"'{two.left}' with '{two.right}'",
    )


# -- parts of plans ----------------------------------------------------------------------------------------------------


def _joined_in_time(
    node: JoinNode, condition: JoinCondition, window: TimeWindow
) -> tuple[JoinCondition, dict[str, Frame]]:
    """Make the window a condition on the difference of two times, certain ones as numbers in their own column."""
    names, frames = [], node.frames
    for side, name, uncertain in zip(("left", "right"), (window.left, window.right), window.uncertain, strict=True):
        if not uncertain:
            frames[side] = frames[side].with_time(TIME_NUMBER, window, name, name)
        names.append(name if uncertain else TIME_NUMBER)
    near = Difference(names[0], names[1], Region(-window.length, window.length))
    value = condition.difference
    if value is not None and (value.region.outside or value.region.one_sided):
        # of two conditions the first is one that holds in a band only: it decides which rows may meet
        condition = replace(condition, difference=near, further=(value,))
    elif value is not None or condition.distance is not None:
        condition = replace(condition, further=(near,))
    else:
        condition = replace(condition, difference=near)
    if node.options.self_key is not None and not any(window.uncertain):
        # rows that are one variable have one value, but may have different times, which are known
        together = parse(f"abs(left.{TIME_NUMBER} - right.{TIME_NUMBER}) <= {window.length!r}")
        condition = replace(condition, residual=(*condition.residual, together))
    return condition, frames


def _indexed_side(node: JoinNode, pair: _Pair) -> SideName | None:
    """Name the side whose index finds the candidates, if one does: for a difference within an interval."""
    options, difference = node.options, pair.condition.difference
    asked = options.self_key, options.broadcast, options.strategy
    if difference is None or pair.window is not None or pair.called or asked != (None, None, "auto"):
        return None
    if node.streaming or difference.region.outside or difference.region.one_sided:
        return None
    sides: tuple[tuple[SideName, str], ...] = ("right", difference.right), ("left", difference.left)
    for side, compared in sides:
        index = node.frames[side].index
        if index is not None and index.column == compared:
            return side
    return None
