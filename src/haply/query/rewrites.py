"""Rewrite a condition into the form that is computed: small steps, one after the other.

Each takes a ``Draft`` and returns an equivalent one; ``REWRITES`` has their order. ``explain()`` shows what each
of them changed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from haply.errors import HaplyError
from haply.probability.joint import ZERO, independent_groups
from haply.probability.region import Difference, Distance, Linear, Region
from haply.query.choices import (
    Branch,
    Choice,
    Combination,
    Known,
    Parity,
    changed,
    part_or_choice,
    parts_of,
)
from haply.query.columns import columns_of, owner_of
from haply.query.conditions import Misfit, one_range
from haply.query.expressions import And, Column, Expression, Opaque, is_value
from haply.query.forms import (
    Certainty,
    Form,
    Interval,
    Near,
    Part,
    Scalar,
    as_float,
    plus,
    same_form,
    shared,
    uncertain_columns,
)
from haply.query.spelling import inward, spelled_out
from haply.selection.cases import FALSE, TRUE, UNKNOWN, AllOf, AnyOf, Either, OddOf, Sure, Tree
from haply.selection.conditions import Apart, Number, Polynomial, Range, Value


class Columns(NamedTuple):
    """What rewrites know about columns: which are certain, and which are certain points, which connect no
    conditions."""

    is_certain: Callable[[Column], bool]
    is_point: Callable[[Column], bool]

    def all_certain(self, condition: Expression) -> bool:
        """Return whether nothing in a condition is uncertain."""
        return all(self.is_certain(column) for column in columns_of(condition))


Group = tuple[Part | Near | Choice, ...]
"""Conditions that share uncertain columns; all must hold."""


@dataclass(frozen=True)
class Draft:
    """A condition while it is rewritten; everything in it must hold.

    ``conditions`` are as they were written, ``certain`` are those that Spark checks, and ``groups`` have parts in the
    normal form.
    """

    conditions: tuple[Expression, ...]
    certain: tuple[Expression, ...] = ()
    groups: tuple[Group, ...] = ()

    def __str__(self) -> str:
        said = [*map(str, self.conditions), *(f"certain: {condition}" for condition in self.certain)]
        said += [" AND ".join(map(str, group)) for group in self.groups]
        return "; ".join(said)


# -- the rewrites, in their order --------------------------------------------------------------------------------------


def functions_spelled_out(draft: Draft, columns: Columns) -> Draft:
    """XOR, CASE, IN, greatest, quotients and the like become comparisons of sums with AND and OR between them."""
    conditions = tuple(spelled_out(condition, columns.is_certain) for condition in draft.conditions)
    return replace(draft, conditions=conditions)


def negations_inward(draft: Draft, columns: Columns) -> Draft:
    """``NOT (a OR b)`` is ``NOT a AND NOT b``, ``NOT (a AND b)`` is ``NOT a OR NOT b``; two NOTs are none."""
    return replace(draft, conditions=tuple(inward(condition, columns.is_certain) for condition in draft.conditions))


def one_by_one(draft: Draft, columns: Columns) -> Draft:
    """Split an AND into its conditions."""
    apart = [
        each
        for condition in draft.conditions
        for each in (condition.conditions if isinstance(condition, And) else (condition,))
    ]
    return replace(draft, conditions=tuple(apart))


def certain_pushed_down(draft: Draft, columns: Columns) -> Draft:
    """Leave conditions on certain columns to Spark, before anything is computed."""
    for condition in draft.conditions:
        if is_value(condition):
            raise HaplyError(f"`{condition}` is a value", expected="a condition", hint="compare it with something")
    certain = tuple(filter(columns.all_certain, draft.conditions))
    rest = tuple(condition for condition in draft.conditions if not columns.all_certain(condition))
    return replace(draft, conditions=rest, certain=draft.certain + certain)


def in_normal_form(draft: Draft, columns: Columns) -> Draft:
    """Comparisons, BETWEEN, abs, OR and NOT become forms that lie in intervals; distances stay what they are.

    An OR of conditions on different forms becomes a combination of them.
    """
    parts = tuple(part_or_choice(condition, columns.is_certain) for condition in draft.conditions)
    return replace(draft, conditions=(), groups=(parts,) if parts else ())


def one_part_a_form(draft: Draft, columns: Columns) -> Draft:
    """Parts about the same form become one, of the numbers they share: one dimension less for each.

    Parts whose limits are columns stay separate, and so do parts that can never hold together: their probability is
    computed as 0.
    """

    def united(parts: Group) -> Group:
        found: list[Part | Near | Choice] = []
        for part in parts:
            for k, other in enumerate(found):
                if isinstance(part, Part) and isinstance(other, Part) and same_form(part.form, other.form):
                    both = shared(other.intervals, part.intervals)
                    if both:
                        found[k] = Part(other.form, both, f"{other.text} AND {part.text}")
                        break
            else:
                found.append(part)
        return tuple(found)

    return replace(draft, groups=tuple(map(united, draft.groups)))


def independent(draft: Draft, columns: Columns) -> Draft:
    """Put parts that share no uncertain column into separate groups: their probabilities multiply.

    Columns with several components count as one: their components may be correlated.
    """
    parts = [part for group in draft.groups for part in group]
    found = independent_groups(
        parts,
        lambda part: [
            owner_of(one)
            for leaf in parts_of(part)
            for one in uncertain_columns(leaf, columns.is_certain)
            if not columns.is_point(one)
        ],
    )
    return replace(draft, groups=tuple(found))


def one_choice_a_group(draft: Draft, columns: Columns) -> Draft:
    """Return a combination and the conditions that share columns with it become one combination."""

    def united(parts: Group) -> Group:
        if len(parts) == 1 or not any(isinstance(part, Choice) for part in parts):
            return parts
        tree = Branch(True, tuple(part.tree if isinstance(part, Choice) else part for part in parts))
        texts = [f"({part.text})" if isinstance(part, Choice) else part.text for part in parts]
        return (Choice(tree, " AND ".join(texts)),)

    return replace(draft, groups=tuple(map(united, draft.groups)))


def squares_centred(draft: Draft, columns: Columns) -> Draft:
    """Centre squares at their minimum, without linear terms, so that ``(x - 1000)^2`` keeps its digits."""
    return _with_parts(draft, _centred)


def squares_solved(draft: Draft, columns: Columns) -> Draft:
    """Write the square of one column as ranges of the column, where the roots are fractions.

    A sample that lies on a root is then compared with that root, without rounding.
    """
    return _with_parts(draft, _solved)


def _with_parts(draft: Draft, change: Callable[[Part], Part]) -> Draft:
    """Change every comparison, also those of combinations."""

    def with_part(part: Part | Near | Choice) -> Part | Near | Choice:
        if isinstance(part, Choice):
            tree = changed(part.tree, change)
            assert isinstance(tree, (Branch, Parity))
            return replace(part, tree=tree)
        return change(part) if isinstance(part, Part) else part

    return replace(draft, groups=tuple(tuple(map(with_part, group)) for group in draft.groups))


class Rewrite(NamedTuple):
    """A rewrite and what ``explain()`` calls it."""

    name: str
    apply: Callable[[Draft, Columns], Draft]


REWRITES = (
    Rewrite("spelled out", functions_spelled_out),
    Rewrite("NOT inward", negations_inward),
    Rewrite("one by one", one_by_one),
    Rewrite("push down", certain_pushed_down),
    Rewrite("normal form", in_normal_form),
    Rewrite("same form", one_part_a_form),
    Rewrite("independent", independent),
    Rewrite("combined", one_choice_a_group),
    Rewrite("centre", squares_centred),
    Rewrite("roots", squares_solved),
)


# -- the results of them -----------------------------------------------------------------------------------------------


class Rewritten:
    """What has been rewritten step by step: ``drafts`` are what each rewrite was given, and the last result."""

    drafts: tuple[Draft, ...]

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """Return the name and the result of each rewrite that changed something."""
        texts = list(map(str, self.drafts))
        return tuple(
            (rewrite.name, after)
            for rewrite, (before, after) in zip(REWRITES, itertools.pairwise(texts), strict=False)
            if after != before
        )


@dataclass(frozen=True)
class Split(Rewritten):
    """A condition sorted: what Spark checks, and groups of parts that share uncertain columns.

    Groups are independent of each other, so that their probabilities multiply.
    """

    certain: tuple[Expression, ...]
    groups: tuple[Group, ...]
    drafts: tuple[Draft, ...] = ()


def split(
    condition: Expression,
    is_certain: Callable[[Column], bool],
    is_point: Callable[[Column], bool] = lambda column: False,
) -> Split:
    """Return the normal form of a condition over one table or several. Certain points connect no conditions."""
    drafts, columns = [Draft((condition,))], Columns(Certainty(is_certain), is_point)
    for rewrite in REWRITES:
        drafts.append(rewrite.apply(drafts[-1], columns))
    return Split(drafts[-1].certain, drafts[-1].groups, tuple(drafts))


@dataclass(frozen=True)
class ManyCondition(Rewritten):
    """A condition between any number of tables: what Spark checks, and conditions whose names are texts of columns."""

    certain: tuple[Expression, ...]
    uncertain: tuple[Difference | Distance | Linear, ...]
    columns: dict[str, Column]
    drafts: tuple[Draft, ...] = ()


def split_many(condition: Expression, is_certain: Callable[[Column], bool]) -> ManyCondition | Misfit:
    """Sums, differences and distances of uncertain columns that are compared with numbers.

    Parts about the same sum become one. Parts that share a column are not independent: their probability must
    be computed jointly.
    """
    sorted_parts = split(condition, is_certain)
    choice = next((part for group in sorted_parts.groups for part in group if isinstance(part, Choice)), None)
    if choice is not None:
        return Misfit(
            HaplyError(
                f"The condition `{choice.text}` cannot be part of a join of many tables",
                expected="conditions that all must hold",
            )
        )
    parts = [part for group in sorted_parts.groups for part in group if not isinstance(part, Choice)]
    problem = next((found for k, part in enumerate(parts) if (found := _many_problem(part, parts[:k]))), None)
    if problem is not None:
        return Misfit(problem)
    columns: dict[str, Column] = {}
    for part in parts:
        columns |= (
            {str(part.one): part.one, str(part.other): part.other} if isinstance(part, Near) else part.form.columns
        )
    near = [
        Distance(str(part.one), str(part.other), _plain(part.limit), part.closed)
        for part in parts
        if isinstance(part, Near)
    ]
    sums = [_linear_condition(part) for part in parts if isinstance(part, Part)]
    return ManyCondition(sorted_parts.certain, (*near, *sums), columns, sorted_parts.drafts)


def _many_problem(part: Part | Near, before: Sequence[Part | Near]) -> HaplyError | None:
    """Return why a part cannot belong to a condition between many tables."""
    if isinstance(part, Near):
        numbers: list[Scalar | None] = [part.limit]
    else:
        numbers = [*part.form.linear.values(), *(end for one in part.intervals for end in (one.low, one.high))]
    named = next((number for number in numbers if isinstance(number, Expression)), None)
    expected = ""
    if named is not None:
        expected = f"numbers instead of `{named}`"
    elif isinstance(part, Near):
        expected = "an upper limit of the distance" if part.beyond else ""
    elif part.form.squares:
        expected = "sums and differences of columns, or a distance"
    elif one_range(part.intervals) is None:
        expected = "one range of values, or all that lies outside of one"
    if expected:
        return HaplyError(f"The condition `{part.text}` cannot be part of a join of many tables", expected=expected)
    for other in before:
        if isinstance(part, Part) and isinstance(other, Part) and same_form(part.form, other.form):
            # the rewrites would have made one of them, if they could hold together
            text = f"{other.text} AND {part.text}"
            return HaplyError(
                f"The condition `{text}` can never hold", hint="check the order of the bounds and the signs"
            )
    return None


@dataclass(frozen=True)
class RowCondition(Rewritten):
    """A condition on the rows of one table: what Spark checks, groups that share uncertain columns, and certain
    expressions that these need the value of, by the names they use."""

    certain: tuple[Expression, ...]
    groups: tuple[tuple[Polynomial | Apart | Either, ...], ...]
    numbers: dict[str, Expression]
    drafts: tuple[Draft, ...] = ()


def split_rows(
    condition: Expression,
    is_certain: Callable[[Column], bool],
    is_point: Callable[[Column], bool] = lambda column: False,
) -> RowCondition:
    """Return the normal form of a condition for ``Selection``; uncertain columns are named by their texts."""
    sorted_parts = split(condition, is_certain, is_point)
    numbers: dict[str, Expression] = {}

    def number(scalar: Scalar | None, missing: float = 0.0) -> Number:
        if scalar is None:
            return missing
        if isinstance(scalar, Fraction):
            return as_float(scalar)
        numbers[str(scalar)] = scalar
        return str(scalar)

    def value(form: Form, name: str) -> Value:
        column = form.columns[name]
        return owner_of(column), column.index

    def polynomial(part: Part) -> Polynomial:
        form = part.form
        return Polynomial(
            tuple((value(form, name), number(factor)) for name, factor in form.linear.items()),
            tuple((value(form, one), value(form, two), number(factor)) for (one, two), factor in form.squares.items()),
            tuple(
                Range(number(each.low, -math.inf), number(each.high, math.inf), each.low_closed, each.high_closed)
                for each in part.intervals
            ),
            part.text,
            tuple((value(form, name), as_float(place)) for name, place in part.centre),
        )

    def apart(near: Near) -> Apart:
        return Apart(str(near.one), str(near.other), number(near.limit), near.closed, near.beyond, near.text)

    def known(condition: Expression) -> Sure:
        name, unknown = str(condition), f" THEN {FALSE!r}D ELSE {UNKNOWN!r}D END"
        numbers[name] = Opaque(("CASE WHEN ", condition, f" THEN {TRUE!r}D WHEN NOT ", condition, unknown))
        return Sure(name, text=name)

    def tree(node: Combination) -> Tree:
        match node:
            case Branch(all_of, inner):
                return (AllOf if all_of else AnyOf)(tuple(map(tree, inner)))
            case Parity(pairs):
                return OddOf(tuple((tree(holds), tree(fails)) for holds, fails in pairs))
            case Known(condition):
                return known(condition)
            case Near():
                return apart(node)
            case Part():
                return polynomial(node)

    def condition_of(part: Part | Near | Choice) -> Polynomial | Apart | Either:
        if isinstance(part, Choice):
            return Either(tree(part.tree), part.text)
        return apart(part) if isinstance(part, Near) else polynomial(part)

    groups = tuple(tuple(map(condition_of, group)) for group in sorted_parts.groups)
    return RowCondition(sorted_parts.certain, groups, numbers, sorted_parts.drafts)


def _centred(part: Part) -> Part:
    """Find the centre in fractions; if there is none, or columns are factors, nothing changes."""
    form = part.form
    numbers = [*form.linear.values(), *form.squares.values()]
    ends = [end for each in part.intervals for end in (each.low, each.high)]
    if not form.squares or not form.linear or any(isinstance(one, Expression) for one in (*numbers, *ends)):
        return part
    names = form.variables
    rows = [[Fraction(0)] * len(names) + [Fraction(form.linear.get(name, 0)) / -2] for name in names]  # type: ignore[arg-type]
    for (one, two), factor in form.squares.items():
        i, j = names.index(one), names.index(two)
        rows[i][j] += Fraction(factor) / 2  # type: ignore[arg-type]
        rows[j][i] += Fraction(factor) / 2  # type: ignore[arg-type]
    place = _solution(rows)
    if place is None:
        return part
    centre = dict(zip(names, place, strict=True))
    shift = sum((Fraction(factor) * centre[name] / 2 for name, factor in form.linear.items()), Fraction(0))  # type: ignore[arg-type]
    moved = tuple(
        replace(each, low=each.low if each.low is None else plus(each.low, -shift),
                high=each.high if each.high is None else plus(each.high, -shift))
        for each in part.intervals
    )  # fmt: skip
    return replace(part, form=replace(form, linear={}), intervals=moved, centre=tuple(centre.items()))


def _solved(part: Part) -> Part:
    """Solve the condition for its column; if it has others, or roots that are not fractions, nothing changes."""
    (pair, factor), *more = part.form.squares.items() or [(("", ""), None)]
    if more or part.form.linear or pair[0] != pair[1] or not isinstance(factor, Fraction):
        return part
    middle = dict(part.centre).get(pair[0], Fraction(0))
    found: list[Interval] = []
    for each in part.intervals:
        if isinstance(each.low, Expression) or isinstance(each.high, Expression):
            return part
        low, high = (None if end is None else end / factor for end in (each.low, each.high))
        low_closed, high_closed = each.low_closed, each.high_closed
        if factor < 0:
            low, high, low_closed, high_closed = high, low, high_closed, low_closed
        outer = None if high is None else _rational_root(high)
        inner = None if low is None or low < 0 or (low == 0 and low_closed) else _rational_root(low)
        if (high is not None and outer is None) or (low is not None and low >= 0 and inner is None and low != 0):
            return part
        first, last = (None, None) if outer is None else (middle - outer, middle + outer)
        if inner is None:
            found.append(Interval(first, last, high_closed, high_closed))
        else:
            found.append(Interval(first, middle - inner, high_closed, low_closed))
            found.append(Interval(middle + inner, last, low_closed, high_closed))
    linear = Form(Fraction(0), {pair[0]: Fraction(1)}, {}, part.form.columns)
    return Part(linear, tuple(found), part.text)


def _rational_root(number: Fraction) -> Fraction | None:
    """Return the square root if it is a fraction."""
    if number < 0:
        return None
    above, below = math.isqrt(number.numerator), math.isqrt(number.denominator)
    return Fraction(above, below) if above**2 == number.numerator and below**2 == number.denominator else None


def _solution(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """Solve linear equations, the right-hand sides last; free unknowns are 0, and contradictions have no solution."""
    count, at = len(rows), 0
    pivots: list[int] = []
    for column in range(count):
        found = next((k for k in range(at, count) if rows[k][column]), None)
        if found is None:
            continue
        rows[at], rows[found] = rows[found], rows[at]
        rows[at] = [value / rows[at][column] for value in rows[at]]
        for k in range(count):
            if k != at and rows[k][column]:
                rows[k] = [value - rows[k][column] * top for value, top in zip(rows[k], rows[at], strict=True)]
        pivots.append(column)
        at += 1
    if any(row[-1] for row in rows[at:]):
        return None
    place = [Fraction(0)] * count
    for row, column in enumerate(pivots):
        place[column] = rows[row][-1]
    return place


def _linear_condition(part: Part) -> Difference | Linear:
    inner = one_range(part.intervals)
    assert inner is not None
    low = -math.inf if inner.low is None else _plain(inner.low)
    high = math.inf if inner.high is None else _plain(inner.high)
    region = Region(low, high, inner.low_closed, inner.high_closed, len(part.intervals) == 2)
    terms = [(name, _plain(factor)) for name, factor in part.form.linear.items()]
    if len(terms) == 1:  # its factor is 1
        return Difference(terms[0][0], ZERO, region)
    if len(terms) == 2 and sorted(factor for _, factor in terms) == [-1.0, 1.0]:
        left, right = (name for name, _ in sorted(terms, key=lambda term: -term[1]))
        return Difference(left, right, region)
    return Linear(tuple(terms), region)


def _plain(value: Scalar) -> float:
    assert isinstance(value, Fraction)
    return as_float(value)
