"""A group of conditions that share uncertain columns: its columns, how it is computed, and what bounds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from haply.models import GaussianND, Model, OneDimensional, Samples, Sky
from haply.pruning.bounds.region import BOX_RULES, FORM_RULES, REGION_RULES
from haply.selection.cases import Either, Sure, leaves_of, numbers_of
from haply.selection.conditions import Apart, Condition, Polynomial, Prepared, RowValues, Value, in_range
from haply.selection.methods.curved import SINGLY, middle_of

INTERVAL, BOX, FORM, DISTANCE, CURVED, TREE = "interval", "box", "form", "distance", "curved", "tree"
CASES, NESTED, SUM, LATTICE, PARTS = "cases", "nested", "sum", "lattice", "parts"
STAR = "star"
"""The cost of distances from one column to several others, which are curved but have a way of their own."""

CASE_BY_CASE = 102
"""The code of the rule that adds up the bounds of cases; 101 is that of ``selection.select``."""
RULE_NAMES = {**REGION_RULES, SINGLY: "one by one", CASE_BY_CASE: "case by case"}


_SPACE_ERROR, _STAR_ERROR, _NESTED_ERROR, _LATTICE_ERROR = 1e-8, 1e-9, 1e-10, 1e-3
"""How far off a probability may be: of curved regions in three directions, of distances from one column to others, of
integrals and sums over any laws, and of means over a lattice."""
_LENS_ERROR = 1e-6
"""How likely a region may be that two integrals miss: a thin one, between borders of different curved conditions."""


@dataclass(frozen=True)
class Group:
    """Conditions that share uncertain columns, and how their probability is computed."""

    methods: ClassVar[dict[str, Callable[[Group, RowValues], Prepared]]] = {}
    """How each method prepares rows: set by ``selection.grouping``, which builds on this module."""

    conditions: tuple[Condition, ...]
    kinds: tuple[tuple[str, type[Model]], ...]
    method: str
    """What its unit cost is known by."""
    size: int
    """How many conditions or dimensions it is about."""
    either: Either | None = None
    """A combination of conditions, instead of conditions that all hold."""
    inner: tuple[Group, ...] = ()
    """The groups that its cases are made of, each once."""
    cases: tuple[CaseOfGroups, ...] = ()
    """Its cases, whose probabilities add up."""

    @property
    def text(self) -> str:
        """Describe the group in words."""
        return self.either.text if self.either else " AND ".join(condition.text for condition in self.conditions)

    @property
    def has_bounds(self) -> bool:
        """Return whether there are bounds that may cost less than the value."""
        return bool(self.rules)

    @property
    def rules(self) -> tuple[int, ...]:
        """Return the codes of the rules that may bound its probability, cheapest first."""
        match self.method:
            case "box":  # in two dimensions the second rule costs as much as the value
                return BOX_RULES if self.size > 2 else BOX_RULES[: self.size - 1]
            case "form":
                return FORM_RULES
            case "distance":
                return FORM_RULES if all(issubclass(kind, GaussianND) for _, kind in self.kinds) else ()
            case "curved" | "tree":
                return (SINGLY,)
            case "cases":
                return (CASE_BY_CASE,) if any(group.rules for group in self.inner) else ()
        return ()

    @property
    def error(self) -> float:
        """Return the largest error of its probability; 0 if it is right to 1e-12."""
        if self.method == CASES:
            return sum(self.inner[number].error for case in self.cases for number in case.groups)
        if self.method == PARTS:
            return sum(group.error for group in self.inner)
        if self.method in (NESTED, SUM):
            return _LENS_ERROR if self.has_lenses else _NESTED_ERROR
        if self.cost_name == STAR:
            return _STAR_ERROR
        if self.is_lattice:
            return _LATTICE_ERROR
        if self.method not in (BOX, CURVED) or self.size < 3 or (self.method == BOX and self.size == 3):
            return 0.0
        return _SPACE_ERROR

    @property
    def has_lenses(self) -> bool:
        """Return whether thin regions may be missed: between conditions on three values that are curved differently.

        All corners of a region are computed if it has two values, or three values and one curved condition.
        """
        if self.method != NESTED or self.size < 3:
            return False
        curved = {
            frozenset((leaf.one, leaf.other)) if isinstance(leaf, Apart) else (leaf.linear, leaf.squares, leaf.centre)
            for leaf in self._leaves
            if isinstance(leaf, Apart) or (isinstance(leaf, Polynomial) and leaf.squares)
        }
        return len(curved) > 1

    @property
    def is_lattice(self) -> bool:
        """Return whether its probability is a mean over a lattice."""
        return self.method == LATTICE or (self.method in (BOX, CURVED) and self.size > 3 and self.cost_name != STAR)

    @property
    def is_nearly_free(self) -> bool:
        """Return whether the value costs no more than a bound: one value in intervals, or one sum of normals."""
        return self.method == INTERVAL or (self.method == BOX and self.size == 1)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the columns of certain numbers that it needs."""
        return tuple(dict.fromkeys(number for leaf in self._leaves for number in numbers_of(leaf)))

    @property
    def _leaves(self) -> list[Condition | Sure]:
        """Return all conditions, also those of a combination."""
        return list(leaves_of(self.either.tree)) if self.either else list(self.conditions)

    @property
    def shapes(self) -> list[tuple[str, type[Model], int]]:
        """Return its columns, their kinds, and a number of dimensions: the one of the conditions, or two.

        Those of a distance have the same. What is added up is a number, also samples, which may be points elsewhere.
        """
        leaves = self._leaves
        asked = [value for leaf in leaves if not isinstance(leaf, Sure) for value in leaf.values]
        on_a_line = all(issubclass(kind, OneDimensional) for _, kind in self.kinds)
        most = {name: max((i or 0) + 1 for n, i in asked if n == name) for name, _ in self.kinds}
        least = 1 if on_a_line else 3 if any(issubclass(kind, Sky) for _, kind in self.kinds) else 2
        numbers = {
            name for leaf in leaves if isinstance(leaf, Polynomial) for name, index in leaf.values if index is None
        }
        dims = {name: 1 if name in numbers else max(least, most[name]) for name, _ in self.kinds}
        apart = [(one.one, one.other) for one in leaves if isinstance(one, Apart)]
        flat = {name for name, kind in self.kinds if issubclass(kind, OneDimensional) and kind is not Samples} | numbers
        for ends in apart * len(apart):
            dims |= dict.fromkeys(ends, 1 if flat & set(ends) else max(dims[name] for name in ends))
        return [(name, kind, dims[name]) for name, kind in self.kinds]

    @property
    def cost_name(self) -> str:
        """Return the name of its cost for one row."""
        if self.method == CURVED and middle_of(self.conditions) is not None:
            return STAR
        return (
            f"{self.method} {self.size}"
            if self.method in (BOX, FORM, CURVED, TREE, NESTED, SUM, LATTICE)
            else self.method
        )

    def prepare(self, batch: RowValues, rows: np.ndarray | None = None) -> Prepared:
        """Prepare rows for bounds and values; all, if none are given."""
        if rows is not None and len(rows) < batch.rows:
            mine = {name: batch.values[name] for name, _ in self.kinds}
            batch = RowValues(mine, {name: batch.numbers[name] for name in self.numbers}, batch.rows).take(rows)
        if self.method in (BOX, FORM, CURVED):
            conditions, batch = in_range(self.conditions, batch)
            return Group.methods[self.method](replace(self, conditions=conditions), batch)
        return Group.methods[self.method](self, batch)

    def missed(self, batch: RowValues, rows: np.ndarray) -> np.ndarray | None:
        """Return which rows miss a condition with their means; None if that takes more than arithmetic.

        It proves nothing, but tells where bounds are likely to reject.
        """
        if self.either:
            return None
        found = np.zeros(len(rows), bool)
        everything = len(rows) == batch.rows

        def of_rows(numbers: Any) -> Any:
            return numbers if everything or np.size(numbers) == 1 else numbers[rows]

        for condition in self.conditions:
            if not isinstance(condition, Polynomial):
                return None
            means: dict[Value, Any] = {}
            for value in condition.values:
                mean = _mean_of(batch.values[value[0]], value[1])
                if mean is None:
                    return None
                means[value] = of_rows(mean) - dict(condition.centre).get(value, 0.0)
            total: Any = 0.0
            for value, factor in condition.linear:
                total = total + of_rows(batch.number(factor)) * means[value]
            for one, two, factor in condition.squares:
                total = total + of_rows(batch.number(factor)) * means[one] * means[two]
            hit = np.zeros(len(rows), bool)
            for each in condition.ranges:
                hit |= (total >= of_rows(batch.number(each.low))) & (total <= of_rows(batch.number(each.high)))
            found |= ~hit
        return found


class CaseOfGroups(NamedTuple):
    """One case: its sign, its certain conditions, and the numbers of the groups whose probabilities multiply."""

    sign: float
    sure: tuple[Sure, ...]
    groups: tuple[int, ...]


def _mean_of(model: Model, index: int | None) -> np.ndarray | None:
    """Return the mean of one value of each row."""
    if isinstance(model, OneDimensional):
        return model.mean()
    if isinstance(model, GaussianND) and index is not None and index < model.mean().lengths.min(initial=1 << 30):
        return np.asarray(model.mean().values[model.mean().start[:-1] + index])
    return None
