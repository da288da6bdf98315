"""The normal form of uncertain conditions: polynomials of uncertain columns that must lie in intervals.

``abs((u - g) - 2 * t) < tol`` is ``u - g - 2 t`` in ``(-tol, tol)``: whatever is certain, numbers or columns, becomes a
coefficient or an end of an interval. Numbers are fractions, because those people write are decimals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from haply.errors import HaplyError
from haply.joins.evaluate import Apart, Number, Polynomial, Range, Value
from haply.probability.joint import ZERO, independent_groups
from haply.probability.region import Difference, Distance, Linear, Region
from haply.query.conditions import columns_of
from haply.query.expressions import (
    And,
    Arithmetic,
    Between,
    Call,
    Column,
    Comparison,
    Expression,
    Literal,
    Negative,
    Not,
    Or,
    is_value,
)

Scalar = Fraction | Expression
"""A number, or an expression of certain columns."""

UNDERSTOOD = (
    "sums of uncertain columns with certain factors, their squares and products, abs() of a sum, or a distance of two "
    "columns, compared with something certain"
)


@dataclass(frozen=True, eq=False)
class Interval:
    """Numbers from ``low`` to ``high``; None is an end that there is not."""

    low: Scalar | None
    high: Scalar | None
    low_closed: bool = True
    high_closed: bool = True

    def __str__(self) -> str:
        low = "-inf" if self.low is None else number_text(self.low)
        high = "inf" if self.high is None else number_text(self.high)
        opening, closing = "[" if self.low_closed and self.low is not None else "(", "]" if self.high_closed else ")"
        return f"{opening}{low}, {high}{')' if self.high is None else closing}"


@dataclass(frozen=True, eq=False)
class Form:
    """``sum of coefficient * column + sum of coefficient * column * column + constant``, by the columns' texts."""

    constant: Scalar
    linear: dict[str, Scalar]
    squares: dict[tuple[str, str], Scalar]
    columns: dict[str, Column]

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns that it speaks of."""
        return tuple(dict.fromkeys([*self.linear, *(name for pair in self.squares for name in pair)]))

    def scaled(self, factor: Scalar) -> Form:
        """Times a certain factor."""
        return Form(
            times(self.constant, factor),
            {name: times(value, factor) for name, value in self.linear.items()},
            {pair: times(value, factor) for pair, value in self.squares.items()},
            self.columns,
        )

    def plus(self, other: Form) -> Form:
        """The sum of both."""
        linear, squares = dict(self.linear), dict(self.squares)
        for name, value in other.linear.items():
            linear[name] = plus(linear[name], value) if name in linear else value
        for pair, value in other.squares.items():
            squares[pair] = plus(squares[pair], value) if pair in squares else value
        return Form(plus(self.constant, other.constant), linear, squares, self.columns | other.columns)

    def product(self, other: Form) -> Form:
        """The product, of degree two at most."""
        if other.is_certain:
            return self.scaled(other.constant)
        if self.is_certain:
            return other.scaled(self.constant)
        if self.squares or other.squares:
            raise _MisfitError("a product of more than two uncertain columns")
        found = Form(Fraction(0), {}, {}, self.columns | other.columns)
        for one, a in self.linear.items():
            for two, b in other.linear.items():
                pair = (one, two) if one <= two else (two, one)
                found = found.plus(Form(Fraction(0), {}, {pair: times(a, b)}, {}))
        pure = replace(self, constant=Fraction(0)).scaled(other.constant)
        return (
            found.plus(pure)
            .plus(replace(other, constant=Fraction(0)).scaled(self.constant))
            .plus(Form(times(self.constant, other.constant), {}, {}, {}))
        )

    @property
    def is_certain(self) -> bool:
        """Whether no uncertain column is in it."""
        return not self.linear and not self.squares

    def __str__(self) -> str:
        parts = [_term_text(value, name) for name, value in self.linear.items()]
        parts += [
            _term_text(value, f"{one}^2" if one == two else f"{one}*{two}")
            for (one, two), value in self.squares.items()
        ]
        return " + ".join(parts).replace("+ -", "- ") or "0"


@dataclass(frozen=True, eq=False)
class Part:
    """One condition: the form lies in one of the intervals."""

    form: Form
    intervals: tuple[Interval, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.form} in {' or '.join(map(str, self.intervals))}"


@dataclass(frozen=True, eq=False)
class Near:
    """One condition: two points are at most ``limit`` apart (not at most, if ``beyond``)."""

    one: Column
    other: Column
    limit: Scalar
    closed: bool
    beyond: bool
    text: str

    def __str__(self) -> str:
        sign = (">" if self.beyond else "<") + ("=" if self.closed != self.beyond else "")
        return f"distance({self.one}, {self.other}) {sign} {number_text(self.limit)}"


@dataclass(frozen=True)
class Split:
    """A condition sorted: what Spark checks by itself, and groups of parts that share uncertain columns.

    Groups are independent of each other, so that their probabilities multiply. Columns with several components count
    as one: their components may be correlated.
    """

    certain: tuple[Expression, ...]
    groups: tuple[tuple[Part | Near, ...], ...]


def split(
    condition: Expression,
    is_certain: Callable[[Column], bool],
    is_point: Callable[[Column], bool] = lambda column: False,
) -> Split:
    """The normal form of a condition over one table or several. Certain points tie no conditions together."""
    certain: list[Expression] = []
    parts: list[Part | Near] = []
    for conjunct in condition.conditions if isinstance(condition, And) else (condition,):
        if is_value(conjunct):
            raise HaplyError(f"`{conjunct}` is a value", expected="a condition", hint="compare it with something")
        if all(is_certain(column) for column in columns_of(conjunct)):
            certain.append(conjunct)
        else:
            parts.append(_part(conjunct, is_certain))
    groups = independent_groups(
        parts, lambda part: [_owner(one) for one in uncertain_columns(part, is_certain) if not is_point(one)]
    )
    return Split(tuple(certain), tuple(groups))


@dataclass(frozen=True)
class ManyCondition:
    """A condition between any number of tables: what Spark checks, and conditions whose names are texts of columns."""

    certain: tuple[Expression, ...]
    uncertain: tuple[Difference | Distance | Linear, ...]
    columns: dict[str, Column]


def split_many(condition: Expression, is_certain: Callable[[Column], bool]) -> ManyCondition:
    """Sums, differences and distances of uncertain columns that are compared with numbers.

    Parts about the same sum become one. Parts that share a column are not independent: whoever computes their
    probability has to take them together.
    """
    sorted_parts = split(condition, is_certain)
    found: list[Difference | Distance | Linear] = []
    sums: list[Part] = []
    columns: dict[str, Column] = {}
    for part in (part for group in sorted_parts.groups for part in group):
        if isinstance(part, Near):
            if part.beyond:
                raise _refused(part, "an upper limit of the distance")
            columns |= {str(part.one): part.one, str(part.other): part.other}
            found.append(Distance(str(part.one), str(part.other), _plain(part, part.limit), part.closed))
            continue
        if part.form.squares:
            raise _refused(part, "sums and differences of columns, or a distance")
        columns |= part.form.columns
        same = [k for k, other in enumerate(sums) if _same_form(part.form, other.form)]
        if same:
            sums[same[0]] = _both(sums[same[0]], part)
        else:
            sums.append(part)
    return ManyCondition(sorted_parts.certain, (*found, *map(_linear_condition, sums)), columns)


@dataclass(frozen=True)
class RowCondition:
    """A condition on the rows of one table: what Spark checks, groups that share uncertain columns, and certain
    expressions that these need the value of, by the names they use."""

    certain: tuple[Expression, ...]
    groups: tuple[tuple[Polynomial | Apart, ...], ...]
    numbers: dict[str, Expression]


def split_rows(
    condition: Expression,
    is_certain: Callable[[Column], bool],
    is_point: Callable[[Column], bool] = lambda column: False,
) -> RowCondition:
    """Everything that the normal form can say, for ``Selection``; uncertain columns go by their texts."""
    sorted_parts = split(condition, is_certain, is_point)
    numbers: dict[str, Expression] = {}

    def number(scalar: Scalar | None, missing: float = 0.0) -> Number:
        if scalar is None:
            return missing
        if isinstance(scalar, Fraction):
            return _float(scalar)
        numbers[str(scalar)] = scalar
        return str(scalar)

    def value(form: Form, name: str) -> Value:
        column = form.columns[name]
        return _owner(column), column.index

    def polynomial(part: Part) -> Polynomial:
        part, centre = _centred(part)
        form = part.form
        return Polynomial(
            tuple((value(form, name), number(factor)) for name, factor in form.linear.items()),
            tuple((value(form, one), value(form, two), number(factor)) for (one, two), factor in form.squares.items()),
            tuple(
                Range(number(each.low, -math.inf), number(each.high, math.inf), each.low_closed, each.high_closed)
                for each in part.intervals
            ),
            part.text,
            tuple((value(form, name), _float(place)) for name, place in centre.items()),
        )

    def apart(near: Near) -> Apart:
        return Apart(str(near.one), str(near.other), number(near.limit), near.closed, near.beyond, near.text)

    groups = tuple(
        tuple(apart(part) if isinstance(part, Near) else polynomial(part) for part in group)
        for group in sorted_parts.groups
    )
    return RowCondition(sorted_parts.certain, groups, numbers)


def _centred(part: Part) -> tuple[Part, dict[str, Fraction]]:
    """Squares as seen from where they are least, without linear terms: ``(x - 1000)^2`` keeps its digits so.

    The place is found in fractions; where there is none, or columns are factors, nothing changes.
    """
    form = part.form
    numbers = [*form.linear.values(), *form.squares.values()]
    ends = [end for each in part.intervals for end in (each.low, each.high)]
    if not form.squares or not form.linear or any(isinstance(one, Expression) for one in (*numbers, *ends)):
        return part, {}
    names = form.variables
    rows = [[Fraction(0)] * len(names) + [Fraction(form.linear.get(name, 0)) / -2] for name in names]  # type: ignore[arg-type]
    for (one, two), factor in form.squares.items():
        i, j = names.index(one), names.index(two)
        rows[i][j] += Fraction(factor) / 2  # type: ignore[arg-type]
        rows[j][i] += Fraction(factor) / 2  # type: ignore[arg-type]
    place = _solution(rows)
    if place is None:
        return part, {}
    centre = dict(zip(names, place, strict=True))
    shift = sum((Fraction(factor) * centre[name] / 2 for name, factor in form.linear.items()), Fraction(0))  # type: ignore[arg-type]
    moved = tuple(
        replace(each, low=each.low if each.low is None else plus(each.low, -shift),
                high=each.high if each.high is None else plus(each.high, -shift))
        for each in part.intervals
    )  # fmt: skip
    return replace(part, form=replace(form, linear={}), intervals=moved), centre


def _solution(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """Linear equations, the right-hand sides last; what is free is 0, and what contradicts itself has no solution."""
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


def _both(one: Part, other: Part) -> Part:
    """Two conditions on one sum as one."""
    text = f"{one.text} AND {other.text}"
    if len(one.intervals) > 1 or len(other.intervals) > 1:
        raise _refused(replace(one, text=text), "one range of values for each sum")
    first, second = (_cuts(part) for part in (one, other))
    low, high = max(first[0], second[0]), min(first[1], second[1])
    if not low < high:
        raise HaplyError(f"The condition `{text}` can never hold", hint="check the order of the bounds and the signs")
    interval = Interval(
        None if low[0] == -math.inf else Fraction(low[0]), None if high[0] == math.inf else Fraction(high[0]),
        not low[1], bool(high[1]),
    )  # fmt: skip
    return Part(one.form, (interval,), text)


def _cuts(part: Part) -> tuple[tuple[Fraction | float, int], tuple[Fraction | float, int]]:
    """The ends of an interval, each just below (0) or just above (1) its number."""
    (interval,) = part.intervals
    low = (-math.inf, 1) if interval.low is None else (_exact(part, interval.low), 0 if interval.low_closed else 1)
    high = (math.inf, 0) if interval.high is None else (_exact(part, interval.high), 1 if interval.high_closed else 0)
    return low, high


def _linear_condition(part: Part) -> Difference | Linear:
    outside = len(part.intervals) == 2
    if outside:
        below, above = part.intervals
        if below.low is not None or above.high is not None or below.high is None or above.low is None:
            raise _refused(part, "one range of values, or all that lies outside of one")
        inner = Interval(below.high, above.low, not below.high_closed, not above.low_closed)
    elif len(part.intervals) == 1:
        inner = part.intervals[0]
    else:
        raise _refused(part, "one range of values, or all that lies outside of one")
    low = -math.inf if inner.low is None else _plain(part, inner.low)
    high = math.inf if inner.high is None else _plain(part, inner.high)
    region = Region(low, high, inner.low_closed, inner.high_closed, outside)
    terms = [(name, _plain(part, factor)) for name, factor in part.form.linear.items()]
    if len(terms) == 1:  # its factor is 1
        return Difference(terms[0][0], ZERO, region)
    if len(terms) == 2 and sorted(factor for _, factor in terms) == [-1.0, 1.0]:
        left, right = (name for name, _ in sorted(terms, key=lambda term: -term[1]))
        return Difference(left, right, region)
    return Linear(tuple(terms), region)


def _plain(part: Part | Near, value: Scalar) -> float:
    return _float(_exact(part, value))


def _exact(part: Part | Near, value: Scalar) -> Fraction:
    if isinstance(value, Expression):
        raise _refused(part, f"numbers instead of `{value}`")
    return value


def _refused(part: Part | Near, expected: str) -> HaplyError:
    return HaplyError(f"The condition `{part.text}` cannot be part of a join of many tables", expected=expected)


def uncertain_columns(part: Part | Near, is_certain: Callable[[Column], bool]) -> list[Column]:
    """The uncertain columns of a part."""
    if isinstance(part, Near):
        return [column for column in (part.one, part.other) if not is_certain(column)]
    return [part.form.columns[name] for name in part.form.variables]


def _owner(column: Column) -> str:
    return str(replace(column, index=None))


class _MisfitError(Exception):
    """Why a condition has no normal form."""


def _part(condition: Expression, is_certain: Callable[[Column], bool]) -> Part | Near:
    try:
        near = _near(condition, is_certain)
        if near is not None:
            return near
        form, intervals = _solved(condition, is_certain)
    except _MisfitError as misfit:
        raise HaplyError(
            f"haply does not understand the uncertain condition `{condition}`", expected=UNDERSTOOD, found=str(misfit)
        ) from None
    return Part(form, intervals, str(condition))


def _solved(condition: Expression, is_certain: Callable[[Column], bool]) -> tuple[Form, tuple[Interval, ...]]:
    match condition:
        case Not(inner):
            form, intervals = _solved(inner, is_certain)
            limits = [end for each in intervals for end in (each.low, each.high)]
            if isinstance(inner, Or) and any(isinstance(end, Expression) for end in limits):
                raise _MisfitError("a NOT of an OR whose limits are columns: write it as an AND")
            return form, _complement(intervals)
        case Or(conditions):
            return _any_of([_solved(each, is_certain) for each in conditions])
        case Comparison(op, left, right):
            return _compared(left, right, op, is_certain)
        case Between(value, low, high):
            form, above = _compared(value, low, ">=", is_certain)
            other, below = _compared(value, high, "<=", is_certain)
            if not _same_form(form, other):
                raise _MisfitError("uncertain ends of BETWEEN")
            ends = above[0], below[0]
            if ends[0].low is None:  # a negative factor has turned them
                ends = ends[1], ends[0]
            return form, (Interval(ends[0].low, ends[1].high),)
    raise _MisfitError(f"`{condition}`, which is not a comparison")


def _any_of(found: list[tuple[Form, tuple[Interval, ...]]]) -> tuple[Form, tuple[Interval, ...]]:
    form = found[0][0]
    if not all(_same_form(form, other) for other, _ in found):
        raise _MisfitError("an OR of conditions on different columns")
    return form, _merged([interval for _, intervals in found for interval in intervals])


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """The same numbers in ascending intervals that do not touch, if the ends are known; otherwise as they are."""
    if any(isinstance(end, Expression) for each in intervals for end in (each.low, each.high)):
        return tuple(intervals)
    cuts = sorted((_low_cut(each), _high_cut(each)) for each in intervals)
    joined = [cuts[0]]
    for low, high in cuts[1:]:
        if low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return tuple(
        Interval(
            None if low[0] == -math.inf else Fraction(low[0]), None if high[0] == math.inf else Fraction(high[0]),
            not low[1], bool(high[1]),
        )
        for low, high in joined
    )  # fmt: skip


def _low_cut(interval: Interval) -> tuple[Fraction | float, int]:
    assert not isinstance(interval.low, Expression)
    return (-math.inf, 1) if interval.low is None else (interval.low, 0 if interval.low_closed else 1)


def _high_cut(interval: Interval) -> tuple[Fraction | float, int]:
    assert not isinstance(interval.high, Expression)
    return (math.inf, 0) if interval.high is None else (interval.high, 1 if interval.high_closed else 0)


def _compared(
    left: Expression, right: Expression, op: str, is_certain: Callable[[Column], bool]
) -> tuple[Form, tuple[Interval, ...]]:
    """The form and where it must lie for ``left op right``; constants are brought to the right."""
    absolute = _absolute(left, right, op, is_certain)
    if absolute is not None:
        return absolute
    form = _form(left, is_certain).plus(_form(right, is_certain).scaled(Fraction(-1)))
    form = _without_zeros(form)
    if form.is_certain:
        raise _MisfitError("uncertain columns that cancel out")
    end = times(form.constant, Fraction(-1))
    form = replace(form, constant=Fraction(0))
    # the first coefficient is 1 if it is a number: conditions on one attribute are then told by equal forms
    first = _leading(form)
    if isinstance(first, Fraction) and first != 1:
        form, end = form.scaled(1 / first), times(end, 1 / first)
        op = _TURNED.get(op, op) if first < 0 else op
    return form, _where(op, end)


def _leading(form: Form) -> Scalar:
    return next(iter(form.squares.values() if form.squares else form.linear.values()))


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _where(op: str, end: Scalar) -> tuple[Interval, ...]:
    match op:
        case "<" | "<=":
            return (Interval(None, end, high_closed=op == "<="),)
        case ">" | ">=":
            return (Interval(end, None, low_closed=op == ">="),)
        case "=":
            return (Interval(end, end),)
    return Interval(None, end, high_closed=False), Interval(end, None, low_closed=False)


def _absolute(
    left: Expression, right: Expression, op: str, is_certain: Callable[[Column], bool]
) -> tuple[Form, tuple[Interval, ...]] | None:
    """``abs(...)`` of something uncertain, times a number, on one side and something certain on the other."""
    for side, other, turned in ((left, right, op), (right, left, _TURNED.get(op, op))):
        factor, inner = _factor_of_abs(side)
        if inner is None or all(is_certain(column) for column in columns_of(inner)):
            continue
        limit = _form(other, is_certain)
        if not limit.is_certain:
            raise _MisfitError("abs(...) beside further uncertain terms")
        tolerance = times(limit.constant, 1 / factor)
        turned = _TURNED.get(turned, turned) if factor < 0 else turned
        if isinstance(tolerance, Fraction) and tolerance < 0:
            raise HaplyError(
                f"`{side}` is compared with a negative tolerance", expected="a tolerance of 0 or more",
                hint="an absolute value is never negative: check the sign",
            )  # fmt: skip
        low, high = times(tolerance, Fraction(-1)), tolerance
        form, _ = _compared(inner, Literal(0), "<=", is_certain)
        whole = _without_zeros(_form(inner, is_certain))
        # the form has been moved and scaled: so are the ends
        first = _leading(whole)
        if isinstance(first, Fraction) and first != 1:
            low, high = times(low, 1 / abs(first)), times(high, 1 / abs(first))
            move = times(whole.constant, Fraction(-1) / first)
        else:
            move = times(whole.constant, Fraction(-1))
        low, high = plus(low, move), plus(high, move)
        match turned:
            case "<" | "<=":
                return form, (Interval(low, high, turned == "<=", turned == "<="),)
            case ">" | ">=":
                closed = turned == ">="
                return form, (Interval(None, low, high_closed=closed), Interval(high, None, low_closed=closed))
            case "=":
                return form, (Interval(low, low), Interval(high, high))
        return form, _complement((Interval(low, low), Interval(high, high)))
    return None


def _factor_of_abs(node: Expression) -> tuple[Fraction, Expression | None]:
    match node:
        case Call("abs", (inner,)):
            return Fraction(1), inner
        case Negative(operand):
            factor, found = _factor_of_abs(operand)
            return -factor, found
        case Arithmetic("*", left, right):
            for number, other in ((_number(left), right), (_number(right), left)):
                if number:
                    factor, found = _factor_of_abs(other)
                    return factor * number, found
    return Fraction(1), None


def _near(condition: Expression, is_certain: Callable[[Column], bool]) -> Near | None:
    if not isinstance(condition, Comparison):
        return None
    for call, other, op in (
        (condition.left, condition.right, condition.op),
        (condition.right, condition.left, _TURNED.get(condition.op, condition.op)),
    ):
        if isinstance(call, Call) and call.name == "distance":
            limit = _form(other, is_certain)
            columns = [column for column in call.args if isinstance(column, Column) and column.index is None]
            if len(columns) != 2 or not limit.is_certain or op not in _TURNED:
                raise _MisfitError("a distance that is not between two columns, or compared with something uncertain")
            if columns[0].same_as(columns[1]):
                raise _MisfitError("the distance of a column from itself")
            closed, beyond = op in ("<=", ">"), op in (">", ">=")
            return Near(columns[0], columns[1], limit.constant, closed, beyond, str(condition))
    return None


def _form(node: Expression, is_certain: Callable[[Column], bool]) -> Form:
    if all(is_certain(column) for column in columns_of(node)):
        number = _number(node)
        return Form(node if number is None else number, {}, {}, {})
    match node:
        case Column():
            return Form(Fraction(0), {str(node): Fraction(1)}, {}, {str(node): node})
        case Negative(operand):
            return _form(operand, is_certain).scaled(Fraction(-1))
        case Arithmetic("+", left, right):
            return _form(left, is_certain).plus(_form(right, is_certain))
        case Arithmetic("-", left, right):
            return _form(left, is_certain).plus(_form(right, is_certain).scaled(Fraction(-1)))
        case Arithmetic("*", left, right):
            return _form(left, is_certain).product(_form(right, is_certain))
        case Arithmetic("/", left, right):
            below = _form(right, is_certain)
            if not below.is_certain:
                raise _MisfitError(f"a division by `{right}`, which is uncertain")
            if _is_zero(below.constant):
                raise _MisfitError("a division by zero")
            return _form(left, is_certain).scaled(_inverse(below.constant))
        case Arithmetic("**", base, exponent) | Call("power" | "pow", (base, exponent)):
            if _number(exponent) != 2:
                raise _MisfitError(f"the power `{node}`: only squares are understood")
            inner = _form(base, is_certain)
            return inner.product(inner)
        case Call("abs" | "distance"):
            raise _MisfitError(f"`{node}` inside a sum")
        case Call(name):
            raise _MisfitError(f"the function {name}() of something uncertain")
    raise _MisfitError(f"`{node}`")


def _number(node: Expression) -> Fraction | None:
    match node:
        case Literal(bool() | str() | None):
            return None
        case Literal(number):
            return Fraction(repr(number))
        case Negative(operand):
            value = _number(operand)
            return None if value is None else -value
        case Arithmetic(op, left, right):
            one, two = _number(left), _number(right)
            if one is None or two is None:
                return None
            if op in "+-*":
                return one + two if op == "+" else one - two if op == "-" else one * two
            if op == "/" and two:
                return one / two
            if op == "**" and two.denominator == 1 and abs(two) <= 16 and (one or two >= 0):
                return one ** int(two)
    return None


def _without_zeros(form: Form) -> Form:
    """Terms whose coefficient is 0 are dropped, as an uncertain column is never null; the others by their names."""
    linear = {name: form.linear[name] for name in sorted(form.linear) if not _is_zero(form.linear[name])}
    squares = {pair: form.squares[pair] for pair in sorted(form.squares) if not _is_zero(form.squares[pair])}
    return replace(form, linear=linear, squares=squares)


def _is_zero(value: Scalar) -> bool:
    return isinstance(value, Fraction) and value == 0


def _same_form(one: Form, other: Form) -> bool:
    def same(a: dict[str, Scalar], b: dict[str, Scalar]) -> bool:
        return a.keys() == b.keys() and all(_same_scalar(a[key], b[key]) for key in a)

    named = [{"*".join(pair): value for pair, value in form.squares.items()} for form in (one, other)]
    return same(one.linear, other.linear) and same(named[0], named[1])


def _same_scalar(a: Scalar, b: Scalar) -> bool:
    if isinstance(a, Expression):
        return a.same_as(b)
    return not isinstance(b, Expression) and a == b


def _complement(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """What lies outside of all intervals, which are in ascending order."""
    found, low, closed = [], None, False
    unbounded = True
    for interval in intervals:
        if interval.low is not None:
            found.append(Interval(None if unbounded else low, interval.low, closed, not interval.low_closed))
        low, closed, unbounded = interval.high, not interval.high_closed, False
        if interval.high is None:
            return tuple(found)
    return (*found, Interval(low, None, closed))


# -- numbers and certain expressions -----------------------------------------------------------------------------------


def plus(a: Scalar, b: Scalar) -> Scalar:
    """Their sum."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    if _is_zero(a) or _is_zero(b):
        return b if _is_zero(a) else a
    return Arithmetic("+", _expression(a), _expression(b))


def times(a: Scalar, b: Scalar) -> Scalar:
    """Their product."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    if isinstance(a, Fraction):
        a, b = b, a
    if isinstance(b, Fraction) and b in (0, 1):
        return Fraction(0) if b == 0 else a
    if isinstance(b, Fraction) and b == -1:
        return a.operand if isinstance(a, Negative) else Negative(_expression(a))
    return Arithmetic("*", _expression(a), _expression(b))


def _inverse(a: Scalar) -> Scalar:
    return 1 / a if isinstance(a, Fraction) else Arithmetic("/", Literal(1), a)


def _expression(a: Scalar) -> Expression:
    if isinstance(a, Expression):
        return a
    if a.denominator == 1:
        return Literal(int(a))
    number = Literal(float(a))
    exact = Fraction(repr(number.value)) == a
    return number if exact else Arithmetic("/", Literal(a.numerator), Literal(a.denominator))


def number_text(a: Scalar) -> str:
    """For people."""
    return str(a) if isinstance(a, Expression) else f"{_float(a):g}"


def _float(a: Fraction) -> float:
    try:
        return float(a)
    except OverflowError:
        return math.copysign(math.inf, a)


def _term_text(value: Scalar, name: str) -> str:
    if isinstance(value, Fraction):
        return name if value == 1 else f"-{name}" if value == -1 else f"{number_text(value)}*{name}"
    return f"({value})*{name}"
