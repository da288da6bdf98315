"""Any combination of conditions with AND and OR, as cases that exclude one another.

A case is a conjunction, whose probability a group of conditions knows how to compute; the probabilities of cases add
up. Cases come from a decision diagram. What a condition is about (a polynomial, a distance, or a certain condition) is
a variable whose values fall into a few cells. Each path through the diagram that ends in true is a case.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from haply.errors import HaplyError
from haply.models import Certain, Model, OneDimensional
from haply.probability.joint import POINTS, independent_groups
from haply.selection.conditions import NORMALS, Apart, Condition, Number, Polynomial, Range, Value, one_region

MOST_CASES = 4096
"""Cases that a combination of conditions may have."""

TRUE, FALSE, UNKNOWN = 1.0, 0.0, -1.0
"""What a certain condition is, as the number of a row."""


@dataclass(frozen=True)
class Sure:
    """A certain condition: a column of the rows has one of some numbers."""

    number: str
    values: tuple[float, ...] = (TRUE,)
    text: str = ""


@dataclass(frozen=True)
class AllOf:
    """Everything in it holds."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class AnyOf:
    """Something in it holds."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class OddOf:
    """An odd number of parts hold; parts share no uncertain column, and each is kept with its opposite.

    Where something certain is unknown, neither a part nor its opposite holds, and then nothing in it does.
    """

    pairs: tuple[tuple[Tree, Tree], ...]


Tree = Polynomial | Apart | Sure | AllOf | AnyOf | OddOf
"""A combination of conditions."""


class Case(NamedTuple):
    """A conjunction: certain conditions, and groups of uncertain ones that are independent of each other.

    Its probability counts with its sign.
    """

    sign: float
    sure: tuple[Sure, ...]
    groups: tuple[tuple[Condition, ...], ...]


@dataclass(frozen=True)
class Either:
    """A combination of conditions that share uncertain columns."""

    tree: Tree
    text: str = ""

    @property
    def values(self) -> tuple[Value, ...]:
        """Return the values that it is about, each once."""
        found = [value for leaf in leaves_of(self.tree) if not isinstance(leaf, Sure) for value in leaf.values]
        return tuple(dict.fromkeys(found))

    def without(self, unknown: frozenset[str]) -> Either | None:
        """Return what is left where some columns or numbers are null: conditions on them do not hold. May be None."""
        tree = _without(self.tree, unknown)
        return None if tree is None else replace(self, tree=tree)

    def cases(self, kinds: Mapping[str, type[Model]]) -> Iterator[Case] | None:
        """Return the cases, which are made one by one; None if there are too many."""
        diagram = _Diagram()
        whole = diagram.node(without_odd(self.tree, self.text))
        if diagram.count(whole) > MOST_CASES:
            return None
        return (
            case
            for path in diagram.paths(whole)
            for chosen in itertools.product(*(diagram.asked(*each) for each in sorted(path.items())))
            for case in _cases([one for several in chosen for one in several], kinds)
        )


def leaves_of(tree: Tree) -> Iterator[Polynomial | Apart | Sure]:
    """Yield the conditions of a combination."""
    if isinstance(tree, (AllOf, AnyOf)):
        for part in tree.parts:
            yield from leaves_of(part)
    elif isinstance(tree, OddOf):
        for pair in tree.pairs:
            for part in pair:
                yield from leaves_of(part)
    else:
        yield tree


def without_odd(tree: Tree, text: str) -> AllOf | AnyOf | Polynomial | Apart | Sure:
    """Write each ``OddOf`` with ``AnyOf`` and ``AllOf``; the text is that of the whole, for an error."""
    if isinstance(tree, (AllOf, AnyOf)):
        return replace(tree, parts=tuple(without_odd(part, text) for part in tree.parts))
    if not isinstance(tree, OddOf):
        return tree
    if 2 ** len(tree.pairs) > MOST_CASES:
        raise too_many_cases(text)
    (odd, even), *others = ((without_odd(holds, text), without_odd(fails, text)) for holds, fails in tree.pairs)
    for holds, fails in others:
        odd, even = (
            AnyOf((AllOf((odd, fails)), AllOf((even, holds)))),
            AnyOf((AllOf((odd, holds)), AllOf((even, fails)))),
        )
    return odd


def numbers_of(condition: Polynomial | Apart | Sure) -> tuple[str, ...]:
    """Name the columns of certain numbers that a condition needs."""
    if isinstance(condition, Sure):
        return (condition.number,)
    if isinstance(condition, Apart):
        found: list[Number] = [condition.limit]
    else:
        found = [factor for _, factor in condition.linear]
        found += [factor for _, _, factor in condition.squares]
        found += [end for each in condition.ranges for end in (each.low, each.high)]
    return tuple(number for number in found if isinstance(number, str))


def _without(tree: Tree, unknown: frozenset[str]) -> Tree | None:
    if isinstance(tree, AllOf):
        parts = [_without(part, unknown) for part in tree.parts]
        return None if None in parts else replace(tree, parts=tuple(part for part in parts if part is not None))
    if isinstance(tree, AnyOf):
        left = [part for part in (_without(part, unknown) for part in tree.parts) if part is not None]
        return replace(tree, parts=tuple(left)) if left else None
    if isinstance(tree, OddOf):
        pairs = [(_without(holds, unknown), _without(fails, unknown)) for holds, fails in tree.pairs]
        if any(holds is None and fails is None for holds, fails in pairs):
            return None
        return OddOf(tuple((holds or AnyOf(()), fails or AnyOf(())) for holds, fails in pairs))
    names = set(numbers_of(tree)) | (set() if isinstance(tree, Sure) else {name for name, _ in tree.values})
    return None if names & unknown else tree


def too_many_cases(text: str) -> HaplyError:
    """Return the error for a combination that falls into too many cases."""
    return HaplyError(
        f"The condition `{text}` falls into more than {MOST_CASES:,} cases that exclude one another",
        expected="fewer conditions with OR between them",
        hint="ask for parts of it in queries of their own, or compute what is certain in it as a column before",
    )


# -- one conjunction ---------------------------------------------------------------------------------------------------


def _cases(asked: Sequence[Polynomial | Apart | Sure], kinds: Mapping[str, type[Model]]) -> list[Case]:
    """Write a conjunction in forms that groups can compute: one, or several whose probabilities add up."""
    sure = tuple(one for one in asked if isinstance(one, Sure))
    uncertain = [one for one in asked if not isinstance(one, Sure)]
    groups = independent_groups(
        uncertain, lambda one: [name for name, _ in one.values if kinds[name] is not Certain] or [repr(one)]
    )
    whole = [Case(1.0, sure, ())]
    for group in groups:
        parts = computable(group, kinds)
        whole = [
            Case(case.sign * sign, sure, (*case.groups, *([part] if part else [])))
            for case in whole
            for sign, part in parts
        ]
    return whole


def computable(
    group: tuple[Condition, ...], kinds: Mapping[str, type[Model]]
) -> list[tuple[float, tuple[Condition, ...]]]:
    """Return conditions that share columns, with signs.

    Joint laws other than normal ones know a range, or what is outside of one, and distances up to a limit: several
    ranges are asked for one by one, and a distance beyond a limit is everything without what is within it.
    """
    named = dict.fromkeys(name for one in group for name, _ in one.values)
    apart = any(isinstance(one, Apart) for one in group)
    counted = apart and all(issubclass(kinds[name], OneDimensional) for name in named)
    easy = POINTS if apart and not counted else NORMALS
    alone = len(group) == 1 and apart
    if alone or len(named) == 1 or all(issubclass(kinds[name], easy) for name in named):
        return [(1.0, group)]
    found: list[tuple[float, tuple[Condition, ...]]] = [(1.0, ())]
    for one in group:
        if isinstance(one, Apart) and one.beyond:
            within = replace(one, beyond=False)
            found = [each for sign, before in found for each in ((sign, before), (-sign, (*before, within)))]
        elif isinstance(one, Polynomial) and one_region(one.ranges) is None:
            found = [(sign, (*before, replace(one, ranges=(each,)))) for sign, before in found for each in one.ranges]
        else:
            found = [(sign, (*before, one)) for sign, before in found]
    return found


# -- variables, and cells of their values ------------------------------------------------------------------------------

Cut = tuple[float, int]
"""Just below (0) or just above (1) a number."""
_ENDS: tuple[Cut, Cut] = ((-math.inf, 0), (math.inf, 1))


class _Line:
    """A polynomial or a distance that is compared with numbers, which cut the line into cells."""

    def __init__(self, example: Polynomial | Apart) -> None:
        self.example, self.cuts = example, set(_ENDS)
        self.texts: list[str] = []

    def add(self, condition: Polynomial | Apart) -> None:
        self.cuts |= {cut for low, high in _spans(condition) for cut in (low, high)}
        self.texts.append(condition.text)

    @property
    def cells(self) -> int:
        return len(self.cuts) - 1

    def where(self, condition: Polynomial | Apart) -> frozenset[int]:
        """Return the cells in which a condition holds."""
        spans, cells = _spans(condition), itertools.pairwise(sorted(self.cuts))
        return frozenset(
            k for k, (begin, end) in enumerate(cells) if any(low <= begin and end <= high for low, high in spans)
        )

    def asked(self, cells: Sequence[int]) -> list[list[Polynomial | Apart | Sure]]:
        """Return conditions that put the value into some cells: all of one list must hold, of any of the lists."""
        if len(cells) == self.cells:
            return [[]]
        cuts = sorted(self.cuts)
        spans: list[tuple[Cut, Cut]] = []
        for k in sorted(cells):
            if spans and spans[-1][1] == cuts[k]:
                spans[-1] = spans[-1][0], cuts[k + 1]
            else:
                spans.append((cuts[k], cuts[k + 1]))
        text = " / ".join(dict.fromkeys(self.texts))
        if isinstance(self.example, Polynomial):
            ranges = tuple(Range(low[0], high[0], not low[1], bool(high[1])) for low, high in spans)
            return [[replace(self.example, ranges=ranges, text=text)]]
        return [_between(replace(self.example, text=text), low, high) for low, high in spans]


def _between(example: Apart, low: Cut, high: Cut) -> list[Polynomial | Apart | Sure]:
    """Return conditions that say that a distance lies in a span; no distance is below 0."""
    found: list[Polynomial | Apart | Sure] = []
    if high[0] < math.inf:
        found.append(replace(example, limit=high[0], closed=bool(high[1]), beyond=False))
    if low[0] > -math.inf:
        found.append(replace(example, limit=low[0], closed=bool(low[1]), beyond=True))
    return found


def _spans(condition: Polynomial | Apart) -> list[tuple[Cut, Cut]]:
    if isinstance(condition, Apart):
        limit = (float(condition.limit), int(condition.closed))
        return [(limit, _ENDS[1]) if condition.beyond else (_ENDS[0], limit)]
    found = []
    for each in condition.ranges:
        low = _ENDS[0] if each.low == -math.inf else (float(each.low), 0 if each.low_closed else 1)
        high = _ENDS[1] if each.high == math.inf else (float(each.high), 1 if each.high_closed else 0)
        if low < high:
            found.append((low, high))
    return found


class _Once:
    """A condition whose limits are columns: it holds (1) or not (0)."""

    cells = 2

    def __init__(self, condition: Polynomial | Apart) -> None:
        self.condition = condition

    def asked(self, cells: Sequence[int]) -> list[list[Polynomial | Apart | Sure]]:
        return [[]] if len(cells) == 2 else [[self.condition if 1 in cells else _opposite(self.condition)]]


def _opposite(condition: Polynomial | Apart) -> Polynomial | Apart:
    """Return the opposite of a condition. One on a polynomial has a range, or two that are open outwards."""
    text = f"NOT {condition.text}"
    if isinstance(condition, Apart):
        return replace(condition, beyond=not condition.beyond, text=text)
    if len(condition.ranges) == 2:
        below, above = condition.ranges
        return replace(
            condition, ranges=(Range(below.high, above.low, not below.high_closed, not above.low_closed),), text=text
        )
    (only,) = condition.ranges
    ranges = []
    if only.low != -math.inf:
        ranges.append(Range(-math.inf, only.low, True, not only.low_closed))
    if only.high != math.inf:
        ranges.append(Range(only.high, math.inf, not only.high_closed, True))
    return replace(condition, ranges=tuple(ranges), text=text)


class _Known:
    """A certain condition: a cell for each value that it may have."""

    cells = 3
    order = (FALSE, TRUE, UNKNOWN)

    def __init__(self, example: Sure) -> None:
        self.example = example

    def asked(self, cells: Sequence[int]) -> list[list[Polynomial | Apart | Sure]]:
        return [[]] if len(cells) == 3 else [[replace(self.example, values=tuple(self.order[k] for k in cells))]]


# -- the decision diagram ----------------------------------------------------------------------------------------------


class _Leaf(NamedTuple):
    """A variable has a value in one of some cells."""

    variable: int
    cells: frozenset[int]


class _Node(NamedTuple):
    """A conjunction or a disjunction of formulas, given by their numbers."""

    all: bool
    parts: frozenset[int]


_NEVER, _ALWAYS = 0, 1
"""The numbers of the formulas that never hold and that always hold."""


class _Formulas:
    """Gives formulas numbers: equal formulas have the same number, so that results are kept by number."""

    def __init__(self) -> None:
        self.of: list[_Leaf | _Node | None] = [None, None]
        self.about: list[int] = [0, 0]
        """The variables that each is about, as bits."""
        self.counts: list[Counter[int]] = [Counter(), Counter()]
        """How many conditions in it are about each variable."""
        self._numbers: dict[tuple[bool, _Leaf | _Node], int] = {}
        """The number of each formula. The key has its kind: as tuples, a leaf and a node may be equal."""
        self._restricted: dict[tuple[int, int, int], int] = {}

    def leaf(self, variable: int, cells: frozenset[int], count: int) -> int:
        """Return the formula that a variable with ``count`` cells lies in some of them."""
        if len(cells) in (0, count):
            return _ALWAYS if cells else _NEVER
        return self._number(_Leaf(variable, cells))

    def combined(self, all_of: bool, parts: Iterable[int]) -> int:
        """Return the conjunction or the disjunction of some formulas, simplified."""
        nothing, everything = (_ALWAYS, _NEVER) if all_of else (_NEVER, _ALWAYS)
        found: set[int] = set()
        for part in parts:
            if part == everything:
                return everything
            inner = self.of[part]
            if isinstance(inner, _Node) and inner.all == all_of:
                found |= inner.parts
            elif part != nothing:
                found.add(part)
        if len(found) < 2:
            return found.pop() if found else nothing
        return self._number(_Node(all_of, frozenset(found)))

    def restricted(self, number: int, variable: int, cell: int) -> int:
        """Return what remains of a formula if a variable lies in a cell."""
        if not self.about[number] >> variable & 1:
            return number
        key = number, variable, cell
        known = self._restricted.get(key)
        if known is None:
            formula = self.of[number]
            if isinstance(formula, _Leaf):
                known = _ALWAYS if cell in formula.cells else _NEVER
            else:
                assert formula is not None
                known = self.combined(formula.all, (self.restricted(part, variable, cell) for part in formula.parts))
            self._restricted[key] = known
        return known

    def most_common(self, number: int) -> int:
        """Return the variable in the most conditions; the first one if several tie."""
        counts = self.counts[number]
        return min(counts, key=lambda variable: (-counts[variable], variable))

    def _number(self, formula: _Leaf | _Node) -> int:
        key = isinstance(formula, _Node), formula
        known = self._numbers.get(key)
        if known is not None:
            return known
        number = self._numbers[key] = len(self.of)
        self.of.append(formula)
        if isinstance(formula, _Leaf):
            counts = Counter([formula.variable])
        else:
            counts = Counter()
            for part in formula.parts:
                counts.update(self.counts[part])
        self.counts.append(counts)
        self.about.append(sum(1 << variable for variable in counts))
        return number


class _Diagram:
    """Turns a combination of conditions into paths that exclude one another."""

    def __init__(self) -> None:
        self.variables: list[_Line | _Once | _Known] = []
        self._numbers: dict[object, int] = {}
        self.formulas = _Formulas()
        self._below: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        self._counted: dict[int, int] = {_NEVER: 0, _ALWAYS: 1}
        self._asked: dict[tuple[int, tuple[int, ...]], list[list[Polynomial | Apart | Sure]]] = {}

    def node(self, tree: Tree) -> int:
        """Write the combination as a formula of variables."""
        for leaf in leaves_of(tree):  # lines are cut before cells are counted
            self._variable(leaf)
        return self._formula(tree)

    def _formula(self, tree: Tree) -> int:
        if isinstance(tree, (AllOf, AnyOf)):
            return self.formulas.combined(isinstance(tree, AllOf), list(map(self._formula, tree.parts)))
        assert not isinstance(tree, OddOf)
        number = self._variable(tree)
        variable = self.variables[number]
        if isinstance(tree, Sure):
            assert isinstance(variable, _Known)
            cells = frozenset(k for k, value in enumerate(variable.order) if value in tree.values)
        elif isinstance(variable, _Line):
            cells = variable.where(tree)
        else:
            assert isinstance(variable, _Once)
            cells = frozenset([1 if _bare(tree) == _bare(variable.condition) else 0])
        return self.formulas.leaf(number, cells, variable.cells)

    def _variable(self, leaf: Polynomial | Apart | Sure) -> int:
        """Return the number of the variable that a condition is about."""
        make: Callable[[], _Line | _Once | _Known]
        if isinstance(leaf, Sure):
            key: object = ("sure", leaf.number)
            make = lambda: _Known(leaf)  # noqa: E731
        elif _has_numbers(leaf):
            key = ("line", _value(leaf))
            make = lambda: _Line(leaf)  # noqa: E731
        else:
            key, other = ("once", _bare(leaf)), ("once", _bare(_opposite(leaf)))
            key = other if other in self._numbers else key
            make = lambda: _Once(leaf)  # noqa: E731
        if key not in self._numbers:
            self._numbers[key] = len(self.variables)
            self.variables.append(make())
        number = self._numbers[key]
        variable = self.variables[number]
        if isinstance(variable, _Line) and not isinstance(leaf, Sure):
            variable.add(leaf)
        return number

    def count(self, formula: int) -> int:
        """Count the cases before any of them is made; the count stops above ``MOST_CASES``."""
        known = self._counted.get(formula)
        if known is None:
            known, chosen = 0, self.formulas.most_common(formula)
            for rest, cells in self._branches(formula):
                known += self.count(rest) * len(self.asked(chosen, cells))
                if known > MOST_CASES:
                    break
            self._counted[formula] = known
        return known

    def asked(self, variable: int, cells: tuple[int, ...]) -> list[list[Polynomial | Apart | Sure]]:
        """Return lists of conditions; a variable lies in some cells if all conditions of one list hold."""
        known = self._asked.get((variable, cells))
        if known is None:
            known = self._asked[variable, cells] = self.variables[variable].asked(cells)
        return known

    def paths(self, formula: int) -> Iterator[dict[int, tuple[int, ...]]]:
        """Yield cells of some variables for each way in which the formula holds; no two of them together."""
        if formula == _ALWAYS:
            yield {}
        elif formula != _NEVER:
            chosen = self.formulas.most_common(formula)
            for rest, cells in self._branches(formula):
                if self.count(rest):
                    for path in self.paths(rest):
                        yield {chosen: cells, **path}

    def _branches(self, formula: int) -> list[tuple[int, tuple[int, ...]]]:
        """Return what remains of a formula in the cells of its commonest variable; equal results are joined."""
        known = self._below.get(formula)
        if known is None:
            chosen, after = self.formulas.most_common(formula), dict[int, list[int]]()
            for cell in range(self.variables[chosen].cells):
                after.setdefault(self.formulas.restricted(formula, chosen, cell), []).append(cell)
            known = self._below[formula] = [(rest, tuple(cells)) for rest, cells in after.items()]
        return known


def _value(leaf: Polynomial | Apart) -> object:
    """Return what a condition compares, without the numbers that it is compared with."""
    if isinstance(leaf, Apart):
        return tuple(sorted((leaf.one, leaf.other)))
    return leaf.linear, leaf.squares, leaf.centre


def _bare(leaf: Polynomial | Apart) -> Polynomial | Apart:
    return replace(leaf, text="")


def _has_numbers(leaf: Polynomial | Apart) -> bool:
    """Return whether a condition compares with numbers, not with columns."""
    if isinstance(leaf, Apart):
        return not isinstance(leaf.limit, str)
    return not any(isinstance(end, str) for each in leaf.ranges for end in (each.low, each.high))
