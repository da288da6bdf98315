"""The plan of a join of two tables, or two streams: all that an engine needs to run it.

A plan has up to three parts, united at the end:

* *overlapping* pairs: rows whose intervals overlap meet in cells, and a compiled kernel decides each cell;
* *sure* pairs, for conditions that hold between rows far apart (``<``, ``>``, far apart): a join over whole ranges,
  without the kernel;
* *same* pairs, with ``self_key``: a row and itself, an equality join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from haply.errors import HaplyError, count_of
from haply.joins.cells.asked import PairSelection, Together, on_side
from haply.joins.cells.difference import DifferenceMethod
from haply.joins.cells.method import Method, Setting
from haply.joins.cells.positions import NORMALS, PositionsMethod
from haply.joins.cells.rows import RowSpec
from haply.joins.cells.samples import SamplesMethod
from haply.joins.strategies import estimated_seconds
from haply.models import Model, Samples
from haply.planning.explain import Description, NotTaken, looked_at
from haply.planning.frames import (
    Engine,
    Frame,
    InvalidMode,
    SideName,
    Wording,
    field_of,
    find_column,
    names_of,
    position_model,
    quoted,
)
from haply.planning.nodes import Shown
from haply.planning.times import TimeWindow
from haply.probability.region import Difference, Distance, Identity
from haply.pruning.best import Best
from haply.pruning.cells import Profile, expected_candidates
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, to_sql
from haply.query.conditions import JoinCondition

_PRICE_OF_DISTANCE = 1.0
"""Microseconds for a candidate, about."""


@dataclass(frozen=True)
class Side:
    """One input. Inside a plan its columns are named by position, so that no two columns share a name."""

    name: SideName
    frame: Frame
    column: str = ""
    """The compared column; none if nothing uncertain is compared."""
    model: type[Model] | None = None

    @property
    def is_left(self) -> bool:
        """Return whether it is the left side."""
        return self.name == "left"

    @property
    def prefix(self) -> str:
        """Return what the names of its columns begin with inside of a plan."""
        return self.name[0]

    @cached_property
    def original(self) -> list[str]:
        """Return the names of its columns."""
        return names_of(self.frame)

    @cached_property
    def inner(self) -> list[str]:
        """Return the same inside of a plan."""
        return [f"{self.prefix}{k}" for k in range(len(self.original))]

    def inner_name(self, column: str) -> str:
        """Return what a column is called inside of a plan."""
        return self.inner[self.original.index(column)]


@dataclass(frozen=True)
class PairPlan:
    """A join of two inputs that has been checked and planned."""

    left: Side
    right: Side
    condition: JoinCondition
    threshold: Threshold
    method: Method | None
    """How pairs of the uncertain condition are found; none if nothing is uncertain."""
    exact: bool
    """Whether the result has probabilities."""
    result: tuple[Shown, ...]
    window: TimeWindow | None = None
    self_key: str | None = None
    invalid: InvalidMode = "raise"
    selection: PairSelection | None = None
    """All conditions on a pair, if the planned one only finds the candidates; it must hold in a band."""
    broadcast: SideName | None = None
    called: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The names that messages about bad rows use for columns that are renamed here, by side and name."""
    indexed: SideName | None = None
    """The side whose index finds the candidates."""
    wording: Wording = field(default_factory=Wording)
    best: Best | None = None
    """Which pairs the ranking needs."""
    only_candidates: bool = False
    """Whether a later selection decides every pair, so that pairs may be found that do not fulfil the condition."""

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both inputs."""
        return self.left, self.right

    @property
    def found_by_position(self) -> bool:
        """Return whether Spark alone finds the candidates: those of ``<`` or ``>`` that a later selection decides.

        Most of them are sure, so that deciding the others first would hardly make them fewer.
        """
        one_sided = isinstance(self.method, DifferenceMethod) and self.method.region.one_sided
        return self.only_candidates and one_sided and self.left.frame.engine_name == "spark"

    @property
    def streaming(self) -> bool:
        """Return whether the inputs are streams."""
        return self.left.frame.streaming

    def side(self, name: SideName) -> Side:
        """Return the input of this name."""
        return self.left if name == "left" else self.right

    @property
    def length(self) -> float | None:
        """Return how far apart certain times may be."""
        return None if self.window is None else self.window.length

    @property
    def needs_values(self) -> bool:
        """Return whether the probability of the planned condition itself is needed."""
        return self.selection is None and (self.exact or bool(self.condition.further))

    @property
    def setting(self) -> Setting:
        """Return what the method has to know of the join."""
        return Setting(
            self.needs_values, self.invalid == "raise", bool(self.grouped_keys) or self.window is not None,
            self.broadcast is not None, self.length, self.best if self._keeps_what_is_found else None,
        )  # fmt: skip

    @property
    def _keeps_what_is_found(self) -> bool:
        """Return whether all pairs that a cell finds are in the result: only such pairs may replace others."""
        asked = self.selection is not None or self.condition.further or self.asked_of_pairs
        return not asked and self.window is None and not self.sees_itself and self.exact

    # -- one variable on both sides ------------------------------------------------------------------------------------

    @property
    def compared(self) -> Difference | Distance | Identity | None:
        """Return the uncertain condition that finds the pairs."""
        return self.condition.compared

    @property
    def sees_itself(self) -> bool:
        """Return whether a row of the left and the same row of the right are one variable in this condition."""
        one = self.compared
        return one is not None and self.self_key is not None and one.left == one.right

    @property
    def matches_itself(self) -> bool:
        """Return whether the pairs of a row and itself are in the result."""
        return (
            self.sees_itself
            and self.method is not None
            and self.method.holds_for_itself
            and all(_holds_at_0(one) for one in self.condition.further)
            and self.threshold.attainable
        )

    def key_of(self, side: Side) -> str:
        """Return the column of ``self_key`` of a side; tables may spell it in another case."""
        return side.inner_name(find_column(side.frame, str(self.self_key), side.name))

    # -- columns -------------------------------------------------------------------------------------------------------

    def sql(self, expression: Expression) -> str:
        """Write a certain condition over the inner column names."""

        def rename(column: Column) -> str:
            side = self.left if column.table == "left" else self.right
            return quoted(side.inner_name(find_column(side.frame, column.name, side.name)))

        return to_sql(expression, rename)

    def own_conditions(self, side: Side) -> tuple[Expression, ...]:
        """Certain conditions on the rows of one side."""
        return self.condition.left_only if side.is_left else self.condition.right_only

    def key_sql(self, side: Side) -> list[str]:
        """SQL for the keys of a side: equalities of certain values, in their order."""
        return [self.sql(pair[0 if side.is_left else 1]) for pair in self.condition.equalities]

    def checked_columns(self, side: Side) -> list[str]:
        """Uncertain columns besides the compared one: their rows must be good as well."""
        if self.selection is not None:
            at = int(not side.is_left)
            return list(dict.fromkeys(column for _, of, column in self.selection.uncertain if of == at))
        return [one.left if side.is_left else one.right for one in self.condition.further]

    @cached_property
    def payload(self) -> list[str]:
        """Return the inner columns that pairs have: those of the result, and what certain conditions on pairs need."""
        used: list[tuple[str, str]] = [(one.side, one.column) for one in self.result]
        for expression in self.asked_of_pairs:
            used += [(str(column.table), column.name) for column in columns_of(expression)]
        if self.window is not None:
            used += [("left", self.window.left), ("right", self.window.right)]
        keys = [self.key_of(side) for side in self.sides] if self.sees_itself else []
        return [
            inner
            for side in self.sides
            for inner, name in zip(side.inner, side.original, strict=True)
            if (side.name, name) in used or inner in keys
        ]

    @property
    def asked_of_pairs(self) -> list[Expression]:
        """Certain conditions, or parts of them, that are checked on pairs once they are found."""
        ungrouped = [pair for k, pair in enumerate(self.condition.equalities) if k not in self.grouped_keys]
        own = [] if self.indexed is None else list(self.own_conditions(self.side(self.indexed)))
        return [*self.condition.residual, *(one for pair in ungrouped for one in pair), *own]

    @cached_property
    def grouped_keys(self) -> list[int]:
        """Return the equalities by which a cell groups its rows: keys of one plain type on both sides."""
        if not self.condition.equalities or self.indexed is not None:  # pages are not made by keys
            return []
        frames = [side.frame.renamed(side.inner) for side in self.sides]
        keys = zip(*(self.key_sql(side) for side in self.sides), strict=True)
        grouped = []
        for position, pair in enumerate(keys):
            one, other = (frame.type_of(sql) for frame, sql in zip(frames, pair, strict=True))
            if one.text == other.text and one.arrow is not None and _is_plain(one.arrow) and "collate" not in one.text:
                grouped.append(position)
        return grouped

    def row_spec(self, side: Side, column_of: Callable[[str], str], raising: bool) -> RowSpec:
        """Return the description of a side's rows, by the names of its columns where they are read."""
        assert self.method is not None
        checked = self.checked_columns(side)
        asked = checked if self.selection is None else self.selection.columns(int(not side.is_left))
        payload = tuple(
            column_of(name)
            for name, inner in zip(side.original, side.inner, strict=True)
            if name in asked or inner in self.payload
        )
        called = {name: self.called.get((side.name, name), name) for name in (side.column, *checked)}
        further = tuple((column_of(name), called[name]) for name in checked)
        raise_as = self._column_of(side, "{}") if raising else None
        return RowSpec(
            column_of(side.column), payload, further, self.method.place(side.is_left), called[side.column], raise_as
        )

    def name_in_errors(self, side: Side, column: str) -> str | None:
        """Return the name of a column in an error about a bad row; None if bad rows are left out."""
        called = self.called.get((side.name, column), column)
        return self._column_of(side, called) if self.invalid == "raise" else None

    def _column_of(self, side: Side, column: str) -> str:
        return f"Column '{column}' of {self.wording.table(side.name)}"

    # -- further conditions --------------------------------------------------------------------------------------------

    def together(
        self, conditions: tuple[Difference | Distance, ...], left: Callable[[str], str], right: Callable[[str], str]
    ) -> Together | None:
        """Conditions that multiply, on columns as they are named where they are computed."""
        renamed, kinds = [], {}
        for one in conditions:
            ends = on_side(0, left(one.left)), on_side(1, right(one.right))
            for name, side, column in zip(ends, self.sides, (one.left, one.right), strict=True):
                # of the checked columns, only arrays of coordinates have no model: each is a single sample
                kinds[name] = field_of(side.frame, column).model or Samples
            renamed.append(replace(one, left=ends[0], right=ends[1]))
        return Together.of(renamed, kinds, self.threshold)

    def asked(self, left: Callable[[str], str], right: Callable[[str], str]) -> Together | PairSelection | None:
        """Return the conditions on pairs besides the planned one, on columns as they are named where it is computed."""
        if self.selection is not None:
            return self.selection.renamed((left, right))
        return self.together(self.condition.further, left, right)

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        return engine.pairs(self, funnel)

    @property
    def price(self) -> float:
        """Microseconds for a candidate, about."""
        if not isinstance(self.method, DifferenceMethod):
            return _PRICE_OF_DISTANCE
        seconds = estimated_seconds(*self.method.models, 0, 1.0)
        return 1e6 * seconds[_chosen(self.method, seconds)]

    @property
    def partners(self) -> float | None:
        """Return about how many rows a row meets, if an index knows."""
        if self.indexed is None:
            return None
        assert isinstance(self.method, DifferenceMethod)
        side = self.side(self.indexed)
        from haply.indexing.pages import PagesOfJoin

        return PagesOfJoin(side.frame.index, self.method, side.is_left).expected_partners

    # -- words ---------------------------------------------------------------------------------------------------------

    def condition_text(self) -> str:
        """Describe the uncertain condition."""
        assert self.method is not None
        left, right = (
            f"{side.name}.{self.called.get((side.name, side.column), side.column)} "
            f"({side.model.kind if side.model is not None else 'certain'})"
            for side in self.sides
        )
        return self.method.condition_text(left, right)

    def describe(self, engine: Engine) -> Description:
        """Describe how the join will run. Reads the two inputs once to estimate sizes."""
        if self.streaming:
            return engine.describe_pairs(self)
        if self.method is None:
            verdict = "Every condition is certain: no probability is computed."
            return Description(
                "Certain join", verdict, (("plan", "every condition is certain: a plain join, probability 1.0"),)
            )
        certain = [*self.condition.left_only, *self.condition.right_only, *self.condition.residual]
        further = [f"{one.left} and {one.right}: {in_words(one)}" for one in self.condition.further]
        equal = [f"{one} = {other}" for one, other in self.condition.equalities]
        limit = "" if self.condition.identity is not None else f", {self.threshold.describe()}"
        lines = [("condition", f"{self.condition_text()}{limit}")]
        if further:
            lines.append(("multiplied", "; ".join(further)))
        if certain or equal:
            lines.append(("pushed down", "; ".join([*equal, *(str(expression) for expression in certain)])))
        if self.window is not None:
            unit = " microseconds" if self.window.stamps else ""
            near = f"|time - time| <= {self.window.length:g}{unit}"
            lines.append(("window", f"{near}; in each cell rows meet those of their own and neighbouring slots"))
        by_position = "pairs that their quantiles do not rule out, joined natively by ranges"
        lines.append(("candidates", by_position if self.found_by_position else self.method.candidates_text()))
        details = () if self.found_by_position else (("cascade", self.method.cascade_text()),)
        title = "Threshold join" if self.condition.identity is None else "Pairs with a density"
        return Description(title, "", tuple(lines), details).with_more(engine.describe_pairs(self))

    def describe_cells(self, one: Profile, other: Profile, how: str) -> Description:
        """Describe where rows go, and how many candidates are expected of so many rows."""
        candidates, pairs = expected_candidates(one, other), one.rows * other.rows
        lines = [
            (
                "estimates",
                f"{one.rows:,} x {count_of(other.rows, 'usable row')}, "
                f"about {count_of(round(candidates), 'candidate pair')} of {pairs:,}",
            )
        ]
        not_taken: tuple[NotTaken, ...] = ()
        by_kernels = self.window is None and self.selection is None and not self.found_by_position
        if isinstance(self.method, DifferenceMethod) and by_kernels:
            seconds = estimated_seconds(*self.method.models, one.rows + other.rows, candidates)
            chosen = _chosen(self.method, seconds)
            why = "auto: " if self.method.strategy == "auto" else ""
            lines.append(("strategy", f"{why}{chosen}, about {_duration(seconds[chosen])} of one core"))
            not_taken = tuple(
                NotTaken(name, f"by estimate {_duration(value)} of one core")
                for name, value in seconds.items()
                if name != chosen
            )
        return Description(
            "", looked_at(candidates, pairs), tuple(lines), (("partitioning", how),), not_taken,
            estimate=(pairs, candidates),
        )  # fmt: skip

    def describe_index(self) -> Description:
        """Describe the pages of the index that finds the candidates."""
        assert self.indexed is not None
        index, asking = self.side(self.indexed).frame.index, "right" if self.indexed == "left" else "left"
        return Description(
            "",
            f"Of {count_of(len(index), 'page')} only those are read that rows of the {asking} table may match.",
            (
                (
                    "index",
                    f"{count_of(len(index), 'page')} of {count_of(index.page_rows, 'row')} of "
                    f"the {self.indexed} table, by x-bounds at {count_of(index.left.shape[1], 'level')}",
                ),
                ("strategy", f"index: pages that no row of the {asking} table may match are not read"),
            ),
        )


def _chosen(method: DifferenceMethod, seconds: Mapping[str, float]) -> str:
    """Name the strategy that finds the pairs; estimates are sorted, the cheapest first."""
    return next(iter(seconds)) if method.strategy == "auto" else method.strategy


def method_for(
    condition: JoinCondition, left: Frame, right: Frame, threshold: Threshold, exact: bool, strategy: str = "auto"
) -> tuple[Method | None, Side, Side]:
    """Choose how the pairs of a condition are found, and return it with both sides."""
    compared = condition.compared
    if compared is None:
        return None, Side("left", left), Side("right", right)
    fields = field_of(left, compared.left), field_of(right, compared.right)
    found = [field.model if condition.difference is not None else position_model(field) for field in fields]
    assert found[0] is not None
    assert found[1] is not None
    models = found[0], found[1]
    method: Method
    if condition.difference is not None:
        method = DifferenceMethod(condition.difference.region, threshold, exact, models, strategy)
    else:
        assert condition.distance is not None
        kind = PositionsMethod if any(model in NORMALS for model in models) else SamplesMethod
        method = kind(condition.distance, threshold, exact, models)
    return method, Side("left", left, compared.left, models[0]), Side("right", right, compared.right, models[1])


def broadcast_problem(join: PairPlan) -> HaplyError | None:
    """Return the problem of a broadcast for a condition that matches rows far apart."""
    if join.broadcast is None or join.method is None or not join.method.has_sure_pairs:
        return None
    return HaplyError(
        "A table is broadcast for conditions that hold for values near each other",
        expected="a distance, or a difference within a band",
        found=join.condition_text(),
        hint="leave out broadcast",
    )


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether equal values of a type are equal to the last byte."""
    tests: tuple[Any, ...] = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp,
        pa.types.is_boolean, pa.types.is_binary, pa.types.is_large_binary,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _holds_at_0(condition: Difference | Distance) -> bool:
    """Return whether a condition holds for one value and itself."""
    return isinstance(condition, Distance) or condition.region.contains(0.0)


def _duration(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


def in_words(condition: Difference | Distance) -> str:
    """Describe a condition for plans and messages."""
    if isinstance(condition, Distance):
        return f"distance <{'=' if condition.closed else ''} {condition.within:g}"
    return condition.region.describe()
