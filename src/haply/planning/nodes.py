"""Logical plans, which the Python functions, SQL and the command line build in the same way.

A node is frozen, knows its tables but no engine, and refuses a query without a meaning when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from haply.errors import HaplyError, advise, one_of, unknown_name
from haply.models import OneDimensional
from haply.models.columns import MODELS
from haply.planning.answers.options import Answer
from haply.planning.constructors import PLAIN, bound_constructors
from haply.planning.frames import (
    HOW_UNCERTAIN,
    Field,
    Frame,
    InvalidMode,
    ProbabilityMode,
    SideName,
    Wording,
    field_of,
    find_column,
    names_of,
)
from haply.planning.times import TimeWindow, time_window
from haply.pruning.best import Best
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, respelled
from haply.query.checks import (
    all_certain,
    error_left_out,
    ignored_errors,
    meets_itself,
    refuse_equalities,
    refuse_units,
    taken_as_independent,
)
from haply.query.conditions import JoinCondition, Misfit, split_join
from haply.query.expressions import Arithmetic, Between, Call, Comparison, Negative
from haply.query.text import parse

Strategy = Literal["auto", "sweep", "pages", "pti", "moments", "grid"]
"""How candidates are found; ``auto`` is the fastest that we know."""


class Shown(NamedTuple):
    """A column of the result: the side and the column there that it comes from, and its name."""

    side: SideName
    column: str
    name: str


@dataclass(frozen=True)
class JoinOptions:
    """The options of ``hp.join``, besides its tables and its condition."""

    threshold: float | None = None
    strict: bool = False
    time: Any = None
    window: Any = None
    max_delay: Any = 0
    probability: ProbabilityMode = "exact"
    strategy: Strategy = "auto"
    self_key: str | None = None
    invalid: InvalidMode = "raise"
    suffixes: tuple[str, str] = ("_left", "_right")
    columns: Sequence[str] | None = None
    broadcast: SideName | None = None
    answer: Answer = field(default_factory=Answer)
    best: Best | None = None
    """Which pairs the ranking needs; the join may leave out others."""
    only_candidates: bool = False
    """Whether a later selection decides every pair; the join may return others."""
    wording: Wording = field(default_factory=Wording)
    exclusive: bool = False
    """Whether the condition is an OR of parts of which one holds at most."""

    def __post_init__(self) -> None:
        """Refuse what is not one of the choices."""
        one_of("probability", self.probability, get_args(ProbabilityMode))
        one_of("invalid", self.invalid, get_args(InvalidMode))
        one_of("strategy", self.strategy, get_args(Strategy))
        if self.broadcast is not None:
            hint = "broadcast='right' sends the whole right table to every worker"
            one_of("table to broadcast", self.broadcast, get_args(SideName), hint)

    @property
    def exact(self) -> bool:
        """Return whether the result has probabilities."""
        return self.probability == "exact" and not self.answer.left_only

    @property
    def added(self) -> tuple[str, ...]:
        """Return the columns of the result that no table has."""
        return ("probability",) if self.exact else ()


@dataclass(frozen=True)
class NumbersAdded(JoinOptions):
    """Options of a join whose result has other numbers than ``probability``."""

    numbers: tuple[str, ...] = ()

    @property
    def added(self) -> tuple[str, ...]:
        """Return the columns of the result that no table has."""
        return () if self.answer.left_only else self.numbers


@dataclass(frozen=True)
class JoinNode:
    """A join of two tables or streams."""

    left: Frame
    right: Frame
    condition: Expression | None
    """Over columns as their tables spell them."""
    window: TimeWindow | None
    threshold: Threshold
    result: tuple[Shown, ...]
    options: JoinOptions

    @classmethod
    def of(cls, left: Frame, right: Frame, on: Expression | str | None, options: JoinOptions) -> JoinNode:
        """Check a join; the arguments are those of ``hp.join``."""
        window = time_window(left, right, options.time, options.window, options.max_delay, options.wording)
        if on is None and window is None:
            raise HaplyError(
                "A join has no condition",
                expected="on=..., an expression or text, or time and window",
                hint='"abs(left.x - right.x) <= 1"',
            )
        expression = condition_of(on) if on is not None else None
        result = shown_of(left, right, options)
        same_table = left.identity == right.identity and not left.streaming
        frames: dict[str | None, Frame] = {"left": left, "right": right}
        if expression is not None:
            refuse_units(expression, lambda column: unit_in(frames, column))
            expression = bound_constructors(expression, frames)
        threshold = Threshold(options.threshold, options.strict)
        node = cls(frames["left"], frames["right"], None, window, threshold, tuple(result), options)
        if expression is not None:
            node = replace(node, condition=node._spelled(expression))
        for side, frame in node.frames.items():
            if options.self_key is not None:
                find_column(frame, options.self_key, side)
        node._advise(same_table)
        node.ordered_by  # noqa: B018 (refuses columns that the other table has not)
        return node if options.columns is None else node._narrowed()

    # -- columns -------------------------------------------------------------------------------------------------------

    @property
    def frames(self) -> dict[str, Frame]:
        """Both tables by their sides."""
        return {"left": self.left, "right": self.right}

    @property
    def streaming(self) -> bool:
        """Return whether one of the tables is a stream."""
        return self.left.streaming or self.right.streaming

    @property
    def exact(self) -> bool:
        """Return whether the result has probabilities."""
        return self.options.exact

    @property
    def certain_times(self) -> bool:
        """Return whether there is no uncertain time."""
        return self.window is None or not any(self.window.uncertain)

    def field(self, column: Column) -> Field:
        """Find a column of the condition."""
        if column.table not in self.frames:
            raise HaplyError(
                f"Column '{column}' names no table",
                expected="left.<column> or right.<column>",
                hint=f"write left.{column.name} for the column of the left table",
            )
        frame = self.frames[column.table]
        return field_of(frame, find_column(frame, column.name, column.table, self.frames))

    def is_certain(self, column: Column) -> bool:
        """Return whether a column of the condition is certain."""
        return self.field(column).uncertain_model is None

    def can_sweep(self, column: Column) -> bool:
        """Return whether a sweep can use a column of certain numbers: doubles hold all of them."""
        kind = self.field(column).arrow
        return kind is not None and (pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind.bit_width < 64))

    def named(self, column: str, side: str) -> str:
        """Name a column in messages."""
        return f"'{column}' of {self.options.wording.table(side)}"

    @cached_property
    def pair_condition(self) -> JoinCondition | Misfit:
        """Return the sorted condition, if its uncertain part is a difference or distance of a column of each side."""
        if self.condition is None:
            return JoinCondition()
        return split_join(self.condition, self.is_certain, self.can_sweep)

    @cached_property
    def self_keys(self) -> dict[str, str]:
        """Return the columns of ``self_key`` by side, if there are any."""
        if self.options.self_key is None:
            return {}
        return {side: find_column(frame, self.options.self_key, side) for side, frame in self.frames.items()}

    @cached_property
    def ordered_by(self) -> dict[SideName, list[str]]:
        """Return the columns that order pairs that tie, of each side whose rows are chosen among."""
        answer = self.options.answer
        others: dict[SideName, SideName] = {"left": "right", "right": "left"}
        chosen = [others[side] for side in answer.ranked] if answer.keep != "one_to_one" else []
        if answer.order_by is None:
            return {
                side: [field.name for field in self.frames[side].fields if field.uncertain_model is None]
                for side in chosen
            }
        found: dict[SideName, list[str]] = {side: [] for side in chosen}
        for name in answer.order_columns:
            sides = [side for side in chosen if name.lower() in map(str.lower, names_of(self.frames[side]))]
            for side in sides or chosen[:1]:
                found[side].append(find_column(self.frames[side], name, side))
        return found

    def uncertain_columns(self, side: str) -> list[str]:
        """Return the uncertain columns of a side that the conditions and the window use."""
        used = [] if self.condition is None else [one.name for one in columns_of(self.condition) if one.table == side]
        if self.window is not None:
            used.append(self.window.column(side == "left"))
        frame = self.frames[side]
        return [name for name in dict.fromkeys(used) if field_of(frame, name).uncertain_model is not None]

    def without_threshold(self, column: str, side: str, kind: str) -> HaplyError:
        """Make the error for unbounded values without a threshold."""
        return unbounded_values(f"column {self.named(column, side)}, a {kind}", self.options.wording.threshold)

    # -- checks when it is made ----------------------------------------------------------------------------------

    def _spelled(self, expression: Expression) -> Expression:
        """Spell columns as their tables do; refuse unknown ones, and conditions that never hold."""
        for column in columns_of(expression):
            self.field(column)
        spelled = respelled(expression, lambda column: self.field(column).name)
        refuse_no_numbers(spelled, self.field)
        refuse_equalities(spelled, lambda column: self.field(column).uncertain_model)
        return spelled

    def _advise(self, same_table: bool) -> None:
        """Warn of a query that is answered, but probably not as intended."""
        condition, window = self.condition, self.window
        plain = None
        errors: list[str] = []
        if condition is not None:
            plain = all_certain(condition, self.is_certain, self.threshold.value is not None)
            errors = ignored_errors(condition, self.is_certain, lambda column: names_of(self.frames[str(column.table)]))
        if plain is not None and self.certain_times:
            advise(plain, f"write {errors[0]} in the condition" if errors else HOW_UNCERTAIN)
        elif errors:
            advise(*error_left_out(errors[0]))
        if same_table and self.options.self_key is None and not self.options.exclusive:
            in_both = not self.certain_times and window is not None and window.left == window.right
            if in_both or (condition is not None and meets_itself(condition, "left", "right", self.is_certain)):
                advise(*taken_as_independent("left", "right"))

    def _narrowed(self) -> JoinNode:
        """Leave out columns that neither the result nor conditions need. A table with an index keeps all columns."""
        needed: set[tuple[str, str]] = {(one.side, one.column) for one in self.result}
        if self.condition is not None:
            needed |= {(str(column.table), column.name) for column in columns_of(self.condition)}
        if self.window is not None:
            needed |= {("left", self.window.left), ("right", self.window.right)}
        needed |= set(self.self_keys.items())
        needed |= {(side, column) for side, columns in self.ordered_by.items() for column in columns}
        frames = {}
        for side, frame in self.frames.items():
            names = names_of(frame)
            kept = [name for name in names if (side, name) in needed] or names[:1]
            frames[side] = frame.select(kept) if len(kept) < len(names) and frame.index is None else frame
        return replace(self, left=frames["left"], right=frames["right"])


@dataclass(frozen=True)
class TablesNode:
    """A join of any number of tables or streams, as SQL asks for it."""

    frames: Mapping[str, Frame]
    conditions: tuple[Expression, ...]
    """Over columns that carry the names of their tables."""
    windows: Mapping[tuple[str, str], Any]
    times: Mapping[str, str]
    """The column of times of each table that a window names."""
    threshold: Threshold
    exact: bool
    max_delay: Any = 0
    invalid: InvalidMode = "raise"
    broadcast: str | None = None
    used: frozenset[tuple[str, str]] | None = None
    """The columns that the result needs; all by default."""
    answer: Answer = field(default_factory=Answer)
    """Which pairs and rows are returned, of two tables."""
    exclusive: bool = False
    """Whether the condition is an OR of parts of which one holds at most."""

    @property
    def names(self) -> list[str]:
        """Return the names of the tables."""
        return list(self.frames)

    @property
    def streaming(self) -> bool:
        """Return whether one of the tables is a stream."""
        return any(frame.streaming for frame in self.frames.values())

    def is_certain(self, column: Column) -> bool:
        """Return whether a column of the conditions is certain."""
        return field_of(self.frames[str(column.table)], column.name).uncertain_model is None

    @property
    def certain(self) -> list[Expression]:
        """Conditions on certain columns only."""
        return [one for one in self.conditions if all(map(self.is_certain, columns_of(one)))]

    @property
    def uncertain(self) -> list[Expression]:
        """Return all other conditions."""
        return [one for one in self.conditions if not all(map(self.is_certain, columns_of(one)))]


# -- helpers -----------------------------------------------------------------------------------------------------------


def refuse_no_numbers(condition: Expression, field_at: Callable[[Column], Field]) -> None:
    """Refuse to compute with, or order, values that are not numbers: positions, and structs that are not models."""
    for child in condition.children:
        refuse_no_numbers(child, field_at)
    computes = isinstance(condition, (Arithmetic, Negative, Between))
    orders = isinstance(condition, Comparison) and condition.op not in ("=", "!=")
    if not computes and not orders and not (isinstance(condition, Call) and condition.name == "abs"):
        return
    for column in condition.children:
        if not isinstance(column, Column) or column.index is not None:
            continue
        found = field_at(column)
        model = found.uncertain_model
        if model is not None and not issubclass(model, OneDimensional):
            raise HaplyError(
                f"`{condition}` computes with `{column}`, which is a position ({model.kind})",
                expected="numbers",
                hint="write distance(left.pos, right.pos) <= 1 for positions, or left.pos[0] for a coordinate",
            )
        if _is_other_struct(found):
            known = "; ".join(
                f"{', '.join(parameter.name for parameter in model.parameters)} (hp.{name})"
                for name, model in PLAIN.items()
                if not name.startswith("sky")
            )
            raise HaplyError(
                f"`{condition}` computes with `{column}`, a struct that is not an uncertain value",
                expected=f"the fields of a model: {known}",
                found=found.text,
                hint="make one in the condition, as in hp.gaussian(hp.left.value, hp.left.error)",
            )


def _is_other_struct(found: Field) -> bool:
    """Return whether a column holds structs that are of no model. Fields of models may hold only nulls."""
    if found.arrow is None or not pa.types.is_struct(found.arrow) or found.model is not None:
        return False
    fields = {part.name for part in found.arrow}
    return all({parameter.name for parameter in model.parameters} != fields for model in MODELS)


def unit_in(frames: Mapping[str | None, Frame], column: Column) -> str | None:
    """Return the unit of a column, if its table is known and says so."""
    frame = frames.get(column.table)
    return next((one.unit for one in frame.fields if one.name == column.name), None) if frame is not None else None


def condition_of(value: Expression | str) -> Expression:
    """Return a condition that is an expression, or the text of one."""
    expression = parse(value) if isinstance(value, str) else value
    if type(expression).__module__.startswith("pyspark."):
        raise HaplyError(
            "The condition is made of Spark columns, which do not say to which table they belong",
            expected="an expression of haply, or its text",
            found=str(expression),
            hint="write hp.left.kg and hp.right.kg for columns of two tables, or hp.col('kg') if there is one table",
        )
    if not isinstance(expression, Expression):
        raise HaplyError(
            "The condition cannot be read",
            expected="an expression or text",
            found=type(value).__name__,
            hint='write abs(hp.left.kg - hp.right.kg) <= 0.5, or the same as text: "abs(left.kg - right.kg) <= 0.5"',
        )
    return expression


def unbounded_values(what: str, mend: str) -> HaplyError:
    """Make the error for unbounded values without a threshold."""
    return HaplyError(
        "Without a threshold every pair is possible",
        expected="values with a bounded support, or a threshold",
        found=f"{what}, whose values are unbounded",
        hint=f"{mend} or another limit: the answer would be the cross product",
    )


def by_table(what: str, given: str | Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return a column for each stream, where one may be given for all."""
    if isinstance(given, str):
        return dict.fromkeys(names, given)
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise HaplyError(
            f"The {what} is given for other streams than there are",
            expected=f"a column, or one for each of {', '.join(names)}",
            found=repr(given),
        )
    return dict(given)


def shown_of(left: Frame, right: Frame, options: JoinOptions) -> list[Shown]:
    """List the columns of a join's result besides the probability."""
    names = names_of(left), names_of(right)
    if not options.answer.left_only:
        return result_columns(*names, options.suffixes, options.added, options.columns)
    for name in options.columns or ():
        if name not in names[0] and name.removesuffix(options.suffixes[1]) in names[1]:
            raise HaplyError(
                f"how='{options.answer.how}' returns left columns only; columns= names {name} of the right table",
                expected="columns of the left table",
                hint="how='inner' or how='left' returns columns of both",
            )
    return result_columns(names[0], (), options.suffixes, (), options.columns)


def result_columns(
    left: Sequence[str],
    right: Sequence[str],
    suffixes: tuple[str, str],
    added: Sequence[str],
    wanted: Sequence[str] | None = None,
) -> list[Shown]:
    """List the columns of both tables in the result; names that clash get the suffixes."""
    taken = set(added)
    clashes = {name.lower() for name in left} & {name.lower() for name in right}
    clashes |= {name for name in taken if name in {column.lower() for column in (*left, *right)}}
    shown: list[Shown] = []
    sides: tuple[tuple[SideName, Sequence[str], str], ...] = ("left", left, suffixes[0]), ("right", right, suffixes[1])
    for side, columns, suffix in sides:
        shown += [Shown(side, name, name + suffix if name.lower() in clashes else name) for name in columns]
    lowered = [*(one.name.lower() for one in shown), *taken]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise HaplyError(
            "Two columns of the result would have one name",
            expected="different names",
            found=", ".join(twice),
            hint="rename a column, or choose other suffixes",
        )
    return shown if wanted is None else _wanted(shown, wanted, added)


def _wanted(shown: list[Shown], wanted: Sequence[str], added: Sequence[str]) -> list[Shown]:
    """Choose the columns that have these names, in letters of any case."""
    if isinstance(wanted, str) or not all(isinstance(name, str) for name in wanted):
        raise HaplyError("The columns of a result are chosen by name", expected="a list of names", found=repr(wanted))
    known: dict[str, Shown] = {one.name.lower(): one for one in shown}
    found: list[Shown] = []
    for name in wanted:
        if name.lower() in added:
            raise HaplyError(
                f"'{name.lower()}' is one of the columns",
                expected="columns of the two tables",
                hint="leave it out: it is always the last column"
                + ('; probability="none" does without it' if name.lower() == "probability" else ""),
            )
        if name.lower() not in known:
            raise unknown_name("column of the result", name, [one.name for one in shown])
        if known[name.lower()] in found:
            raise HaplyError(f"columns names '{name}' twice", expected="different names")
        found.append(known[name.lower()])
    return found
