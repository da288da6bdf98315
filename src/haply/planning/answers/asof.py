"""``hp.asof``: the last event before each time, where times may be uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from haply.errors import HaplyError, one_of
from haply.joins.events import Direction, LastEvent
from haply.planning.answers.join import ROW_IDS, AnsweredJoin, can_order, with_columns
from haply.planning.answers.options import Answer
from haply.planning.explain import Description
from haply.planning.frames import Duration, Engine, Frame, InvalidMode, SideName, find_column
from haply.planning.nodes import JoinNode, NumbersAdded, shown_of
from haply.planning.times import length_of, time_window
from haply.pruning.threshold import Threshold

_WORDS: dict[Direction, str] = {
    "backward": "the last event at or before",
    "forward": "the first event at or after",
    "nearest": "the event nearest to",
}
TIME = "__haply_time"
"""Certain times as numbers."""


@dataclass(frozen=True)
class AsofOptions:
    """The options of ``hp.asof``, besides its tables and its times."""

    by: str | Sequence[str | tuple[str, str]] | None = None
    lookback: Duration | None = None
    direction: Direction = "backward"
    threshold: float | None = None
    answer: Answer = field(default_factory=lambda: Answer("left", "best_left"))
    tolerance: float = 1e-9
    invalid: InvalidMode = "raise"
    suffixes: tuple[str, str] = ("_left", "_right")
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Refuse what is not one of the choices."""
        one_of("direction", self.direction, get_args(Direction))
        if not (isinstance(self.tolerance, float) and 0.0 < self.tolerance < 0.1):
            raise HaplyError("The tolerance is not a small number", expected="e.g. 1e-9", found=repr(self.tolerance))


@dataclass(frozen=True)
class AsofPlan(AnsweredJoin):
    """A join by the last event that has been checked and planned."""

    asked: LastEvent
    times: tuple[str, str]
    """The columns of times of both tables, certain ones as numbers."""
    keys: tuple[tuple[str, str], ...]
    certain: bool

    @classmethod
    def plan(cls, left: Frame, right: Frame, time: str | tuple[str, str], options: AsofOptions) -> AsofPlan:
        """Check and plan it."""
        window = time_window(left, right, time, 0, 0)
        assert window is not None
        length = None
        if options.lookback is not None:
            length = float(length_of("lookback", options.lookback, window.stamps, any(window.uncertain)))
        if left.streaming or right.streaming:
            raise HaplyError(
                "The last event is not looked for in a second stream: it may always bring a later one",
                expected="two tables, or a stream on the left and a table of events on the right",
                hint="hp.join of both streams, with time and window, returns all pairs that are near in time",
            )
        keys = [_key(left, right, one) for one in _listed(options.by)]
        join_options = NumbersAdded(
            invalid=options.invalid, suffixes=options.suffixes, columns=options.columns, answer=options.answer,
            numbers=("probability", "p_any"),
        )  # fmt: skip
        result = shown_of(left, right, join_options)
        names: list[str] = []
        frames: list[Frame] = []
        for frame, side, is_left in ((left, "left", True), (right, "right", False)):
            column = window.column(is_left)
            if not window.uncertain[0 if is_left else 1]:
                frame = frame.with_time(TIME, window, column, column)
                column = TIME
            frames.append(frame.with_row_id(ROW_IDS[side]))
            names.append(column)
        node = JoinNode(
            frames[0], frames[1], None, replace(window, left=names[0], right=names[1]), Threshold(options.threshold),
            tuple(result), join_options,
        )  # fmt: skip
        nothing: Any = None  # pairs are found by the engine itself
        return cls(
            node, nothing, nothing, with_columns(node, None), LastEvent(length, options.direction, options.tolerance),
            (names[0], names[1]), tuple(keys), not any(window.uncertain),
        )  # fmt: skip

    @property
    def compared(self) -> tuple[str, str] | None:
        """Return nothing: only the columns of ``order_of`` order events of equal probability."""
        return None

    @property
    def ordered_events(self) -> list[str]:
        """Right columns that order events at one time: all that are certain and plain."""
        return [one.name for one in self.node.right.fields if can_order(one) and one.name != TIME]

    def needed(self, side: SideName) -> list[str]:
        """Return the columns of a side that pairs show, or that find them."""
        at = 0 if side == "left" else 1
        order = self.ordered_events if side == "right" else []
        wide = [one.column for one in self.wide if one.side == side]
        return list(dict.fromkeys([*wide, self.times[at], *(key[at] for key in self.keys), *order, ROW_IDS[side]]))

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        return engine.last_events(self, funnel)

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run."""
        lines = [("asked", f"{_WORDS[self.asked.direction]} each left time"), ("kept", self.answer.keep)]
        if self.keys:
            lines.append(("keys", ", ".join(f"{one} = {other}" for one, other in self.keys)))
        if self.asked.lookback is not None:
            lines.append(("lookback", f"{self.asked.lookback:g}"))
        verdict = (
            "All times are certain: each left row has one event at most."
            if self.certain
            else "Only events that may be the one are looked at: none farther away than a sure one."
        )
        return Description("As-of join", verdict, tuple(lines))


def _listed(by: str | Sequence[Any] | None) -> list[Any]:
    return [] if by is None else [by] if isinstance(by, str) else list(by)


def _key(left: Frame, right: Frame, one: Any) -> tuple[str, str]:
    names = (one, one) if isinstance(one, str) else one
    if not isinstance(names, tuple) or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise HaplyError(
            "by names no columns", expected='"key", or ("left_key", "right_key") in a list', found=repr(one)
        )
    return find_column(left, names[0], "left"), find_column(right, names[1], "right")
