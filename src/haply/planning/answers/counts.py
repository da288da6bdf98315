"""``hp.count_matches``: how many partners rows have, and whether they have any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haply.errors import HaplyError
from haply.joins.counting import ANY, DISTRIBUTION, EXPECTED, Counting, quantile_name
from haply.joins.worlds import WorldCounting
from haply.planning.answers.join import ROW_IDS, most_rows
from haply.planning.explain import Description
from haply.planning.frames import Engine, Frame, InvalidMode, SideName, field_of, find_column, names_of
from haply.planning.join import JOINS
from haply.planning.mixed import MixedJoin
from haply.planning.nodes import JoinNode, JoinOptions, Shown
from haply.planning.plans import Chosen
from haply.pruning.threshold import Negligible, Threshold
from haply.query import Expression
from haply.query.conditions import JoinCondition, Misfit

SD = "sd_matches"
_SIDES: dict[str, SideName] = {"left": "left", "right": "right"}


@dataclass(frozen=True)
class CountOptions:
    """The options of ``hp.count_matches``, besides its tables and its condition."""

    threshold: float | None = None
    by: str | Sequence[str] | None = None
    quantiles: Sequence[float] | None = None
    distribution: bool = False
    tolerance: float = 1e-9
    time: Any = None
    window: Any = None
    invalid: InvalidMode = "raise"
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Refuse options that do not go together."""
        for q in self.quantiles or ():
            if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0.0 < q < 1.0:
                raise HaplyError("A quantile is not a probability", expected="numbers between 0 and 1", found=repr(q))
        if not (isinstance(self.tolerance, float) and 0.0 < self.tolerance < 0.1):
            raise HaplyError("The tolerance is not a small number", expected="e.g. 1e-9", found=repr(self.tolerance))
        for name in ("threshold", "quantiles", "columns"):
            if self.by is not None and getattr(self, name) is not None:
                raise HaplyError(f"{name} is about rows, and by= asks about groups", hint=f"leave out {name}")
        if self.by is not None and self.distribution:
            raise HaplyError("distribution is about rows, and by= asks about groups", hint="leave out distribution")

    @property
    def groups(self) -> list[str]:
        """Return the columns of groups."""
        return [] if self.by is None else [self.by] if isinstance(self.by, str) else list(self.by)


@dataclass(frozen=True)
class CountPlan:
    """A count of partners that has been checked and planned."""

    node: JoinNode
    """The join whose pairs are counted; its tables have row ids."""
    pairs: Chosen
    """All pairs that may match."""
    counting: Counting | WorldCounting | None
    """How they are counted; each pair is a match if nothing is uncertain."""
    computed: Mapping[str, str]
    """Columns of pairs that counting needs, and SQL for them."""
    looked_up: bool
    """Whether pairs are row ids alone, by which the compared values are looked up in the tables."""
    options: CountOptions
    shown: tuple[str, ...]
    """The left columns of the result."""
    by: tuple[str, ...]
    threshold: Threshold | None

    @classmethod
    def plan(cls, left: Frame, right: Frame, on: Expression | str | None, options: CountOptions) -> CountPlan:
        """Check and plan it."""
        least = options.tolerance / most_rows(right)
        join_options = JoinOptions(
            threshold=least, time=options.time, window=options.window, probability="none", invalid=options.invalid
        )
        node = JoinNode.of(left, right, on, join_options)
        if node.streaming:
            raise HaplyError(
                "Matches in a second stream are not counted: it may always bring more",
                expected="two tables, or a stream on the left and a table on the right",
                hint="hp.join of both streams, with time and window, returns pairs and their probabilities; the sum "
                "of a row's is its expected number of matches",
            )
        by = tuple(find_column(node.left, name, "left") for name in options.groups)
        shown = tuple(find_column(node.left, name, "left") for name in options.columns or names_of(left))
        if isinstance(node.pair_condition, Misfit):
            return cls._of_several(node, options, by, shown)
        compared = _compared(node, node.pair_condition)
        # values are looked up by row ids where both tables are in this process; an index needs no ids, and has none
        looked_up = left.engine_name == "local" and left.index is None and right.index is None
        sides = [side for side in ("left", "right") if side == "left" or looked_up or by]
        frames = {
            side: frame.with_row_id(ROW_IDS[side]) if side in sides else frame for side, frame in node.frames.items()
        }
        shown_in_pairs = [Shown(_SIDES[side], ROW_IDS[side], ROW_IDS[side]) for side in sides]
        counting = None
        if compared is not None:
            counting = replace(
                compared, tolerance=options.tolerance, quantiles=tuple(map(float, options.quantiles or ())),
                distribution=options.distribution, singly=bool(by),
            )  # fmt: skip
        if not looked_up:
            shown_in_pairs += [Shown("left", name, f"__haply_by_{k}") for k, name in enumerate(by)]
        if counting is not None and not looked_up:
            shown_in_pairs += [
                Shown("left", counting.left, "__haply_left"), Shown("right", counting.right, "__haply_right"),
            ]  # fmt: skip
            counting = replace(counting, left="__haply_left", right="__haply_right")
        inner = replace(
            node,
            left=frames["left"],
            right=frames["right"],
            threshold=Negligible(least),
            result=tuple(shown_in_pairs),
        )
        threshold = None if options.threshold is None else Threshold(options.threshold)
        return cls(inner, JOINS.plan(inner), counting, {}, looked_up, options, shown, by, threshold)

    @classmethod
    def _of_several(
        cls, node: JoinNode, options: CountOptions, by: tuple[str, ...], shown: tuple[str, ...]
    ) -> CountPlan:
        """Plan it for several uncertain conditions, or one on several columns."""
        frames = {side: frame.with_row_id(ROW_IDS[side]) for side, frame in node.frames.items()}
        inner = replace(node, left=frames["left"], right=frames["right"], threshold=Negligible(node.threshold.value))
        joined = JOINS.plan(inner).query
        if not isinstance(joined, MixedJoin):
            raise HaplyError(
                "Matches are counted for conditions that all hold",
                expected="conditions on columns of both tables, joined by AND",
                found=str(node.condition),
            )
        asked, computed = joined.asked_of_pairs()
        windows = joined.normal_windows(asked, both_sides=bool(by))
        for side in _SIDES.values() if by else (_SIDES["left"],):
            column = None if windows else joined.without_worlds(side)
            if column is not None:
                raise HaplyError(
                    f"Matches are counted for several uncertain conditions where the {side} table has samples",
                    expected=f"certain values, or hp.samples, in '{column}'; or Gaussian values in both tables, no "
                    f"right one in two conditions{', and no left one' if by else ''}",
                    found=field_of(node.frames[side], column).text,
                    hint="count by one condition on the difference or distance of a column of each table; "
                    "hp.join takes several, and its probabilities add up to the expected number of matches",
                )
        counting = WorldCounting(
            asked, 0, tuple(map(float, options.quantiles or ())), options.distribution, bool(by), windows
        )  # fmt: skip
        result = [Shown(_SIDES[side], ROW_IDS[side], ROW_IDS[side]) for side in _SIDES]
        result += [Shown("left", name, f"__haply_by_{k}") for k, name in enumerate(by)]
        inner = replace(inner, result=(*result, *joined.used))
        threshold = None if options.threshold is None else Threshold(options.threshold)
        return cls(inner, JOINS.plan(inner), counting, computed, False, options, shown, by, threshold)

    def found_pairs(self, engine: Engine, funnel: Any) -> Frame:
        """Return all pairs that may match, with the columns that counting needs."""
        found = self.pairs.run(engine, funnel)
        return found.with_columns(self.computed) if self.computed else found

    @property
    def numbers(self) -> list[str]:
        """Return the columns of the result that are numbers."""
        if self.by:
            return [EXPECTED, SD]
        return [EXPECTED, SD, ANY, *(quantile_name(q) for q in self.options.quantiles or ())]

    @property
    def names(self) -> list[str]:
        """Return the columns of the result."""
        return [*(self.by or self.shown), *self.numbers, *([DISTRIBUTION] if self.options.distribution else [])]

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        return engine.counted(self, funnel)

    def describe(self, engine: Engine) -> Description:
        """Describe how the count will run."""
        what = "each left row" if not self.by else "the left rows of each " + ", ".join(self.by)
        return Description(
            "Count of matches", "", (("counted", f"how many right rows match {what}"),),
            parts=(self.pairs.describe(engine),),
        )  # fmt: skip


def _compared(node: JoinNode, condition: JoinCondition) -> Counting | None:
    """Return what is compared in the one uncertain condition; none if all conditions are certain."""
    if not node.certain_times:
        raise HaplyError(
            "Matches are counted in windows of certain times",
            hint="write the times as the condition: abs(left.t - right.t) <= window",
        )
    one = condition.difference
    if one is not None:
        return Counting(one.left, one.right, one.region, None)
    distance = condition.distance
    return None if distance is None else Counting(distance.left, distance.right, None, distance.limit)
