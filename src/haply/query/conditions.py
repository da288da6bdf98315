"""Conditions between two tables: certain ones, sorted by table, and the uncertain one that finds the pairs.

A condition on the difference, or the distance, of one column of each table is a case of the normal form (see
``forms``) for which joins are fast. ``split_join`` recognises it; a condition of another form is a ``Misfit``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from haply.errors import HaplyError
from haply.probability.region import Difference, Distance, Identity, Region
from haply.query.columns import columns_of, tables_of
from haply.query.expressions import And, Call, Column, Comparison, Expression, is_value
from haply.query.forms import (
    EVERYTHING,
    Interval,
    Near,
    Part,
    Scalar,
    as_float,
    form_or_reason,
    refuse_negative_tolerance,
    shared,
)

UNDERSTOOD = (
    "abs(left.a - right.b) compared with a number, left.a - right.b between two numbers, or left.a compared with "
    "right.b, with one unscaled column of each table and any constants"
)


@dataclass(frozen=True, eq=False)
class JoinCondition:
    """A condition between two tables, all of whose parts must hold."""

    left_only: tuple[Expression, ...] = ()
    right_only: tuple[Expression, ...] = ()
    equalities: tuple[tuple[Expression, Expression], ...] = ()  # of certain values, the left table's first
    residual: tuple[Expression, ...] = ()  # all other certain conditions over both tables
    difference: Difference | None = None
    distance: Distance | None = None
    further: tuple[Difference | Distance, ...] = ()  # independent of the first: their probabilities multiply
    identity: Identity | None = None

    @property
    def compared(self) -> Difference | Distance | Identity | None:
        """Return the uncertain condition that finds the pairs."""
        return self.difference or self.distance or self.identity


@dataclass(frozen=True)
class Misfit:
    """A condition that is not on the difference, or the distance, of two columns, and the parts of its error."""

    error: HaplyError


def split_join(
    condition: Expression, is_certain: Callable[[Column], bool], can_sweep: Callable[[Column], bool]
) -> JoinCondition | Misfit:
    """Sort the parts of a join condition.

    A part with an uncertain column has to be a condition on the difference of one column of each table, and all such
    parts on the same two columns, so that together they are one set of differences and one exact probability. Without
    uncertain parts, a bounded band over two columns that can be swept becomes the difference instead.
    """
    for column in columns_of(condition):
        _check_table(column)
        is_certain(column)
    conjuncts = condition.conditions if isinstance(condition, And) else (condition,)
    for conjunct in conjuncts:
        if is_value(conjunct):
            raise HaplyError(f"`{conjunct}` is a value", expected="a condition", hint="compare it with something")
    certain = [part for part in conjuncts if all(map(is_certain, columns_of(part)))]
    uncertain = [part for part in conjuncts if not all(map(is_certain, columns_of(part)))]
    near = [part for part in conjuncts if _asks_distance(part)]
    if near:
        distance = _distance(near[0])
        if isinstance(distance, Misfit):
            return distance
        others = [part for part in uncertain if part is not near[0]]
        if others:
            return _misfit(
                "The condition combines a distance with another uncertain condition",
                "a distance and any certain conditions",
                f"`{near[0]}` and `{others[0]}`",
            )
        return replace(sorted_by_side([part for part in certain if part is not near[0]]), distance=distance)
    if not uncertain:
        return _with_swept_band(certain, can_sweep)
    difference = _joint_difference(uncertain)
    if isinstance(difference, Misfit):
        return difference
    return replace(sorted_by_side(certain), difference=difference)


def as_difference(condition: Expression) -> Difference:
    """Return the difference condition that the whole condition is, with every column taken to be uncertain."""
    found = split_join(condition, lambda column: False, lambda column: False)
    if isinstance(found, Misfit):
        raise found.error
    if found.difference is None or found.residual:
        raise _not_understood(condition, "a condition without columns").error
    return found.difference


Expression.difference_of = staticmethod(as_difference)


def sorted_by_side(certain: Sequence[Expression]) -> JoinCondition:
    """Sort certain conditions by the tables whose columns they have."""
    left_only, right_only, equalities, residual = [], [], [], []
    for part in certain:
        tables = tables_of(part)
        if tables == {"left"}:
            left_only.append(part)
        elif tables == {"right"}:
            right_only.append(part)
        elif equality := _as_equality(part):
            equalities.append(equality)
        else:
            residual.append(part)
    return JoinCondition(tuple(left_only), tuple(right_only), tuple(equalities), tuple(residual))


def _check_table(column: Column) -> None:
    if column.table in ("left", "right"):
        return
    raise HaplyError(
        f"The column `{column}` names no table of the join"
        if column.table is None
        else f"The table '{column.table}' of `{column}` is not part of the join",
        expected="a column of left or right",
        hint=f"write left.{column.name} or right.{column.name}",
    )


def _as_equality(part: Expression) -> tuple[Expression, Expression] | None:
    if isinstance(part, Comparison) and part.op == "=":
        for one, other in ((part.left, part.right), (part.right, part.left)):
            if tables_of(one) == {"left"} and tables_of(other) == {"right"}:
                return one, other
    return None


def _misfit(where: str, expected: str, found: str, hint: str = "") -> Misfit:
    return Misfit(HaplyError(where, expected=expected, found=found, hint=hint))


def _not_understood(condition: Expression, reason: str) -> Misfit:
    return _misfit(f"haply does not understand the uncertain condition `{condition}`", UNDERSTOOD, reason)


# -- distances ---------------------------------------------------------------------------------------------------------


def _asks_distance(part: Expression) -> bool:
    """Return whether a comparison has a distance on one of its sides."""
    sides = (part.left, part.right) if isinstance(part, Comparison) else ()
    return any(isinstance(side, Call) and side.name == "distance" for side in sides)


def _distance(condition: Expression) -> Distance | Misfit:
    """Recognise an upper limit of the distance between a column of each table."""
    part = form_or_reason(condition, lambda column: False)
    ends = {} if not isinstance(part, Near) else {column.table: column.name for column in (part.one, part.other)}
    if not isinstance(part, Near) or part.beyond or set(ends) != {"left", "right"}:
        return _misfit(
            f"haply does not understand the condition `{condition}`",
            "distance(left.a, right.b) <= a number",
            part if isinstance(part, str) else "",
            "points of one column of each table, and an upper limit",
        )
    if not isinstance(part.limit, Fraction):
        return _not_understood(condition, f"{part.limit} where a number is expected")
    return Distance(ends["left"], ends["right"], _number(part.limit, f"`{condition}`"), part.closed)


# -- differences -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Band:
    """The differences ``left - right`` for which a condition holds: intervals in ascending order."""

    left: Column
    right: Column
    intervals: tuple[Interval, ...]

    def same_pair(self, other: _Band) -> bool:
        return self.left.same_as(other.left) and self.right.same_as(other.right)

    def within(self, other: _Band) -> _Band:
        return replace(self, intervals=shared(self.intervals, other.intervals) or ())

    def refuse_trivial(self, condition: str) -> None:
        always = [(one.low, one.high) for one in self.intervals] == [(None, None)]
        if always or not self.intervals:
            raise HaplyError(
                f"The condition {condition} {'always holds' if always else 'can never hold'}",
                hint="leave it out" if always else "check the order of the bounds and the signs",
            )

    def difference(self, condition: str) -> Difference | Misfit:
        self.refuse_trivial(condition)
        inner = one_range(self.intervals)
        if inner is None:
            return _misfit(
                f"The condition {condition} allows several separate ranges of differences",
                "one range, or all that lies outside one range",
                "",
                "keep one of the ranges",
            )
        low = -math.inf if inner.low is None else _number(inner.low, condition)
        high = math.inf if inner.high is None else _number(inner.high, condition)
        region = Region(low, high, inner.low_closed, inner.high_closed, outside=len(self.intervals) > 1)
        return Difference(self.left.name, self.right.name, region)


def one_range(intervals: tuple[Interval, ...]) -> Interval | None:
    """Return the one interval, or the one that lies between two; None if there is no such interval."""
    if len(intervals) == 1:
        (one,) = intervals
        return replace(
            one, low_closed=one.low is None or one.low_closed, high_closed=one.high is None or one.high_closed
        )
    if len(intervals) == 2 and intervals[0].low is None and intervals[1].high is None:
        below, above = intervals
        return Interval(below.high, above.low, not below.high_closed, not above.low_closed)
    return None


def _joint_difference(uncertain: Sequence[Expression]) -> Difference | Misfit:
    """Combine all conditions into one set of differences."""
    joint: _Band | None = None
    for part in uncertain:
        refuse_negative_tolerance(part)
        band = _band(part)
        if isinstance(band, str):
            return _not_understood(part, band)
        band.refuse_trivial(f"`{part}`")
        if joint is not None and not band.same_pair(joint):
            return _misfit(
                "The condition compares more than one pair of uncertain columns",
                "one uncertain condition per join, or several on the same two columns",
                f"`{uncertain[0]}` and `{part}`",
                "a further join on the result is not the same: probabilities of joint conditions do not multiply",
            )
        joint = band if joint is None else joint.within(band)
    assert joint is not None
    return joint.difference(" AND ".join(f"`{part}`" for part in uncertain))


def _with_swept_band(certain: Sequence[Expression], can_sweep: Callable[[Column], bool]) -> JoinCondition:
    """Make the first bounded band over two columns that can be swept the difference.

    People write bands as two comparisons as well, so all intervals over the same two columns count together.
    """
    found = [(part, band) for part in certain if isinstance(band := _band(part), _Band)]
    swept = [
        (part, band)
        for part, band in found
        if len(band.intervals) == 1 and _width(band) > 0 and can_sweep(band.left) and can_sweep(band.right)
    ]
    for first, joint in swept:
        same = [(part, band) for part, band in swept if band.same_pair(joint)]
        for _, band in same:
            joint = joint.within(band)
        if len(joint.intervals) == 1 and 0 < _width(joint) < math.inf:
            difference = joint.difference(str(first))
            assert isinstance(difference, Difference)
            rest = [part for part in certain if not any(part is used for used, _ in same)]
            return replace(sorted_by_side(rest), difference=difference)
    return sorted_by_side(certain)


def _width(band: _Band) -> Fraction | float:
    low, high = band.intervals[0].low, band.intervals[0].high
    if low is None or high is None:
        return math.inf
    assert isinstance(low, Fraction)
    assert isinstance(high, Fraction)
    return high - low


def _band(condition: Expression) -> _Band | str:
    """Recognise a set of differences of one column of each table, or return why a condition is not one."""
    part = form_or_reason(condition, lambda column: False)
    if isinstance(part, str):
        return part
    if isinstance(part, Near):
        return "a distance"
    pair = _pair(part)
    if isinstance(pair, str):
        return pair
    ends = [end for each in part.intervals for end in (each.low, each.high) if isinstance(end, Expression)]
    if ends:
        return f"{ends[0]} where a number is expected"
    intervals = shared(part.intervals, EVERYTHING) or ()
    first = part.form.columns[next(iter(part.form.linear))]
    return _Band(*pair, intervals if first.table == "left" else _mirrored(intervals))


def _mirrored(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Return the intervals of ``right - left`` as those of ``left - right``."""

    def negative(end: Scalar | None) -> Fraction | None:
        assert not isinstance(end, Expression)
        return None if end is None else -end

    return tuple(
        Interval(negative(one.high), negative(one.low), one.high_closed, one.low_closed) for one in reversed(intervals)
    )


def _pair(part: Part) -> tuple[Column, Column] | str:
    """Return the columns of ``left - right``, or why the sum is not such a difference.

    The first factor of a form is 1, and its columns are in the order of their texts: that of a constructor,
    ``uniform(left.a, left.b)``, may come after one of the right table. The form is then ``right - left``.
    """
    form = part.form
    names = ", ".join(form.variables)
    if form.squares:
        return f"squares or products ({names})"
    columns = [form.columns[name] for name in form.linear]
    lefts, rights = ([column for column in columns if column.table == side] for side in ("left", "right"))
    if len(lefts) > 1 or len(rights) > 1:
        return f"several columns of one table ({names})"
    if not lefts or not rights:
        return f"a column of one table only ({names})"
    factors = list(form.linear.values())
    if factors == [1, 1]:
        return f"a sum over both tables ({names}) instead of a difference"
    if factors != [1, -1]:
        return f"scaled columns ({form})"
    if any(column.index is not None for column in columns):
        return f"a component of a column ({names}) instead of a whole one"
    return lefts[0], rights[0]


def _number(end: Fraction | Expression, condition: str) -> float:
    assert isinstance(end, Fraction)
    number = as_float(end)
    if math.isinf(number):
        raise HaplyError(f"The condition {condition} compares with a number that is too large")
    return number
