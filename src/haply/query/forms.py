"""The normal form of uncertain conditions: polynomials of uncertain columns that must lie in intervals.

``abs((u - g) - 2 * t) < tol`` is ``u - g - 2 t`` in ``(-tol, tol)``: whatever is certain, numbers or columns, becomes a
coefficient or an end of an interval. Numbers are fractions, because those people write are decimals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from haply.errors import HaplyError
from haply.query.columns import columns_of
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
)

Scalar = Fraction | Expression
"""A number, or an expression of certain columns."""

UNDERSTOOD = (
    "sums of uncertain columns with certain factors, their squares and products, abs() of a sum, or a distance of two "
    "columns, compared with something certain; or a power, exp, ln or sqrt of one of these, compared with a number"
)


@dataclass(frozen=True, eq=False)
class Interval:
    """Numbers from ``low`` to ``high``; None means that there is no limit on that side."""

    low: Scalar | None
    high: Scalar | None
    low_closed: bool = True
    high_closed: bool = True

    def __str__(self) -> str:
        low = "-inf" if self.low is None else number_text(self.low)
        high = "inf" if self.high is None else number_text(self.high)
        opening, closing = "[" if self.low_closed and self.low is not None else "(", "]" if self.high_closed else ")"
        return f"{opening}{low}, {high}{')' if self.high is None else closing}"


EVERYTHING = (Interval(None, None),)
"""All numbers."""


@dataclass(frozen=True, eq=False)
class Form:
    """``sum of coefficient * column + sum of coefficient * column * column + constant``, by the columns' texts."""

    constant: Scalar
    linear: dict[str, Scalar]
    squares: dict[tuple[str, str], Scalar]
    columns: dict[str, Column]

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the columns in it."""
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
        """Return the sum of both."""
        linear, squares = dict(self.linear), dict(self.squares)
        for name, value in other.linear.items():
            linear[name] = plus(linear[name], value) if name in linear else value
        for pair, value in other.squares.items():
            squares[pair] = plus(squares[pair], value) if pair in squares else value
        return Form(plus(self.constant, other.constant), linear, squares, self.columns | other.columns)

    def product(self, other: Form) -> Form:
        """Return the product, of degree two at most."""
        if other.is_certain:
            return self.scaled(other.constant)
        if self.is_certain:
            return other.scaled(self.constant)
        if self.squares or other.squares:
            raise _MisfitError("a product of more than two uncertain columns (alone, it may be compared with 0)")
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
        """Return whether no uncertain column is in it."""
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
    """One condition: the form lies in one of the intervals; columns that have a ``centre`` count from there."""

    form: Form
    intervals: tuple[Interval, ...]
    text: str
    centre: tuple[tuple[str, Fraction], ...] = ()

    def __str__(self) -> str:
        places = ", ".join(f"{name} from {number_text(place)}" for name, place in self.centre if place)
        where = f", {places}" if places else ""
        return f"{self.form} in {' or '.join(map(str, self.intervals))}{where}"


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


def uncertain_columns(part: Part | Near, is_certain: Callable[[Column], bool]) -> list[Column]:
    """Return the uncertain columns of a part."""
    if isinstance(part, Near):
        return [column for column in (part.one, part.other) if not is_certain(column)]
    return [part.form.columns[name] for name in part.form.variables]


class _MisfitError(Exception):
    """Raised inside this module for a condition that has no normal form."""


class Certainty:
    """Tells which columns are certain, and keeps the solved conditions: rewrites ask for those of the same parts often.

    Conditions are kept by their identity, which is why they are kept themselves.
    """

    def __init__(self, is_certain: Callable[[Column], bool]) -> None:
        self._is_certain = is_certain
        self.solved: dict[int, tuple[Expression, tuple[Form, tuple[Interval, ...]] | str]] = {}

    def __call__(self, column: Column) -> bool:
        return self._is_certain(column)


def form_or_reason(condition: Expression, is_certain: Callable[[Column], bool]) -> Part | Near | str:
    """Return the normal form of a single condition, or the reason why it has none."""
    try:
        near = _near(condition, is_certain)
        if near is not None:
            return near
        form, intervals = _solved(condition, is_certain)
    except _MisfitError as misfit:
        return str(misfit)
    return Part(form, intervals, str(condition))


def certain_rest(condition: Expression, is_certain: Callable[[Column], bool]) -> bool | Expression | None:
    """Return what is left of a comparison whose uncertain columns cancel out: whether it holds, or a condition.

    None if something uncertain is left.
    """
    if isinstance(condition, Not):
        inner = certain_rest(condition.condition, is_certain)
        return Not(inner) if isinstance(inner, Expression) else None if inner is None else not inner
    if not isinstance(condition, Comparison):
        return None
    try:
        left, right = (_without_zeros(_form(side, is_certain)) for side in (condition.left, condition.right))
        form = _without_zeros(left.plus(right.scaled(Fraction(-1))))
    except _MisfitError:
        return None
    if not form.is_certain:
        return None
    if isinstance(form.constant, Fraction):
        where = _where(condition.op, Fraction(0))
        return any(_low_cut(each) <= (form.constant, 0) < _high_cut(each) for each in where)
    return Comparison(condition.op, form.constant, Literal(0))


def never(condition: Expression, is_certain: Callable[[Column], bool]) -> bool:
    """Return whether a condition obviously never holds: a part of it, or two parts about the same sum."""
    parts = condition.conditions if isinstance(condition, And) else (condition,)
    if any(certain_rest(part, is_certain) is False for part in parts):
        return True
    uncertain = [part for part in parts if not all(map(is_certain, columns_of(part)))]
    forms = [form for part in uncertain if isinstance(form := form_or_reason(part, is_certain), Part)]
    return any(
        same_form(one.form, other.form) and shared(one.intervals, other.intervals) == ()
        for one, two in itertools.combinations(forms, 2)
        for other in (two, _turned(two))
    )


def _turned(part: Part) -> Part:
    """Return the same condition on the negative of its sum, as far as its limits are numbers."""
    found = []
    for each in part.intervals:
        low, high = (None if end is None else times(end, Fraction(-1)) for end in (each.high, each.low))
        found.append(Interval(low, high, each.high_closed, each.low_closed))
    return Part(part.form.scaled(Fraction(-1)), tuple(reversed(found)), part.text)


def any_value(column: Column) -> Part:
    """Return the condition that a value is known, whatever it is."""
    form = Form(Fraction(0), {str(column): Fraction(1)}, {}, {str(column): column})
    return Part(form, (Interval(None, None),), f"{column} is known")


def normal_form(
    condition: Expression, is_certain: Callable[[Column], bool], *, refuse_never: bool = True
) -> Part | Near:
    """Return the normal form of a single condition; refuse one that has none, or that never holds."""
    refuse_negative_tolerance(condition)
    found = form_or_reason(condition, is_certain)
    if isinstance(found, str):
        raise HaplyError(
            f"haply does not understand the uncertain condition `{condition}`", expected=UNDERSTOOD, found=found
        )
    if refuse_never and isinstance(found, Part) and not found.intervals:
        raise never_holds(condition)
    return found


def never_holds(condition: Expression) -> HaplyError:
    """Make the error for a condition that no values fulfil."""
    return HaplyError(f"The condition `{condition}` can never hold", hint="check the order of the bounds")


def refuse_negative_tolerance(condition: Expression) -> None:
    """Refuse an absolute value that is compared with a negative number, which is a mistake."""
    match condition:
        case Not(inner):
            refuse_negative_tolerance(inner)
        case Or(conditions):
            for each in conditions:
                refuse_negative_tolerance(each)
        case Comparison(_, left, right):
            for side, other in ((left, right), (right, left)):
                _check_tolerance(side, other)
        case Between(value, _, high):
            _check_tolerance(value, high)


def _check_tolerance(side: Expression, other: Expression) -> None:
    factor, inner, offset = unscaled(side)
    limit = number_of(other)
    if _is_absolute(inner) and limit is not None and (limit - offset) / factor < 0:
        raise HaplyError(
            f"`{side}` is compared with a negative tolerance",
            expected="a tolerance of 0 or more",
            found=number_text((limit - offset) / factor),
            hint="an absolute value is never negative: check the sign",
        )


def _solved(condition: Expression, is_certain: Callable[[Column], bool]) -> tuple[Form, tuple[Interval, ...]]:
    if not isinstance(is_certain, Certainty):
        return _solve(condition, is_certain)
    if id(condition) not in is_certain.solved:
        found: tuple[Form, tuple[Interval, ...]] | str
        try:
            found = _solve(condition, is_certain)
        except _MisfitError as misfit:
            found = str(misfit)
        is_certain.solved[id(condition)] = condition, found
    _, known = is_certain.solved[id(condition)]
    if isinstance(known, str):
        raise _MisfitError(known)
    return known


def _solve(condition: Expression, is_certain: Callable[[Column], bool]) -> tuple[Form, tuple[Interval, ...]]:
    match condition:
        case Not(inner):
            form, intervals = _solved(inner, is_certain)
            limits = [end for each in intervals for end in (each.low, each.high)]
            if isinstance(inner, Or) and any(isinstance(end, Expression) for end in limits):
                raise _MisfitError("a NOT of an OR whose limits are columns: write it as an AND")
            return form, _complement(intervals)
        case Or(conditions):
            first = _solved(conditions[0], is_certain)
            return _any_of([first, *(_of_form(first[0], each, is_certain) for each in conditions[1:])])
        case Comparison(op, left, right):
            return _compared(left, right, op, is_certain)
        case Between(Call("abs", _) as value, low, high) if (number_of(low) or 0) < 0 <= (number_of(high) or 0):
            return _compared(value, high, "<=", is_certain)
        case Between(value, low, high):
            form, above = _compared(value, low, ">=", is_certain)
            other, below = _compared(value, high, "<=", is_certain)
            if not same_form(form, other):
                raise _MisfitError("uncertain ends of BETWEEN")
            return form, _in_both(above, below)
    raise _MisfitError(f"`{condition}`, which is not a comparison")


def _in_both(above: tuple[Interval, ...], below: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Return the numbers that both ends of a BETWEEN allow; a negative factor may have turned either of them."""
    both = shared(above, below)
    if both is not None:
        return both
    if len(above) + len(below) > 2:
        raise _MisfitError("columns as the ends of a BETWEEN around abs(...): write it as two comparisons with AND")
    low, high = (above[0], below[0]) if above[0].high is None else (below[0], above[0])
    if low.high is not None or high.low is not None:
        raise _MisfitError("a BETWEEN whose ends limit the value on one side: write it as two comparisons with AND")
    return (Interval(low.low, high.high),)


def _of_form(
    form: Form, condition: Expression, is_certain: Callable[[Column], bool]
) -> tuple[Form, tuple[Interval, ...]]:
    """Solve a condition that must be on the same form as another."""
    found = _solved(condition, is_certain)
    if not same_form(form, found[0]):
        raise _MisfitError("an OR of conditions on different columns")
    return found


def _any_of(found: list[tuple[Form, tuple[Interval, ...]]]) -> tuple[Form, tuple[Interval, ...]]:
    return found[0][0], _merged([interval for _, intervals in found for interval in intervals])


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """Merge intervals into ascending ones that do not touch, if the ends are known; otherwise leave them unchanged."""
    if any(isinstance(end, Expression) for each in intervals for end in (each.low, each.high)):
        return tuple(intervals)
    cuts = sorted((_low_cut(each), _high_cut(each)) for each in intervals)
    joined = [cuts[0]]
    for low, high in cuts[1:]:
        if low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return tuple(_between(low, high) for low, high in joined)


def shared(one: tuple[Interval, ...], other: tuple[Interval, ...]) -> tuple[Interval, ...] | None:
    """Return the numbers in both; None if ends are columns."""
    if any(isinstance(end, Expression) for each in (*one, *other) for end in (each.low, each.high)):
        return None
    found = []
    for mine in one:
        for theirs in other:
            low, high = max(_low_cut(mine), _low_cut(theirs)), min(_high_cut(mine), _high_cut(theirs))
            if low < high:
                found.append(_between(low, high))
    return _merged(found) if found else ()


Cut = tuple[Fraction | float, int]
"""Just below (0) or just above (1) a number."""


def _between(low: Cut, high: Cut) -> Interval:
    return Interval(
        None if low[0] == -math.inf else Fraction(low[0]), None if high[0] == math.inf else Fraction(high[0]),
        not low[1], bool(high[1]),
    )  # fmt: skip


def _low_cut(interval: Interval) -> Cut:
    assert not isinstance(interval.low, Expression)
    return (-math.inf, 1) if interval.low is None else (interval.low, 0 if interval.low_closed else 1)


def _high_cut(interval: Interval) -> Cut:
    assert not isinstance(interval.high, Expression)
    return (math.inf, 0) if interval.high is None else (interval.high, 1 if interval.high_closed else 0)


def _compared(
    left: Expression, right: Expression, op: str, is_certain: Callable[[Column], bool]
) -> tuple[Form, tuple[Interval, ...]]:
    """Return the form and where it must lie for ``left op right``; constants are brought to the right."""
    absolute = _absolute(left, right, op, is_certain)
    if absolute is not None:
        return absolute
    form = _form(left, is_certain).plus(_form(right, is_certain).scaled(Fraction(-1)))
    form = _without_zeros(form)
    if form.is_certain:
        raise _MisfitError("uncertain columns that cancel out")
    end = times(form.constant, Fraction(-1))
    form = replace(form, constant=Fraction(0))
    # the first coefficient is 1 if it is a number: conditions on one sum then have equal forms
    first = _leading(form)
    if isinstance(first, Fraction) and first != 1:
        form, end = form.scaled(1 / first), times(end, 1 / first)
        op = TURNED.get(op, op) if first < 0 else op
    return form, _where(op, end)


def _leading(form: Form) -> Scalar:
    return next(iter(form.squares.values() if form.squares else form.linear.values()))


TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparison with the same meaning after its sides are swapped, or both are negated."""


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
    """``abs(...)`` of something uncertain, times a number and plus one, on one side; something certain on the other."""
    for side, other, turned in ((left, right, op), (right, left, TURNED.get(op, op))):
        factor, absolute, offset = unscaled(side)
        if not _is_absolute(absolute) or all(is_certain(column) for column in columns_of(absolute)):
            continue
        (inner,) = absolute.children
        limit = _form(other, is_certain)
        limit = replace(limit, constant=plus(limit.constant, -offset))
        if not limit.is_certain:
            raise _MisfitError("abs(...) together with further uncertain terms")
        tolerance = times(limit.constant, 1 / factor)
        turned = TURNED.get(turned, turned) if factor < 0 else turned
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


def _is_absolute(node: Expression) -> bool:
    return isinstance(node, Call) and node.name == "abs"


def unscaled(node: Expression) -> tuple[Fraction, Expression, Fraction]:
    """Return the factor, the inner expression and the offset that ``factor * inner + offset`` is made of."""
    match node:
        case Negative(operand):
            factor, inner, offset = unscaled(operand)
            return -factor, inner, -offset
        case Arithmetic("*", left, right):
            for number, other in ((number_of(left), right), (number_of(right), left)):
                if number:
                    factor, inner, offset = unscaled(other)
                    return factor * number, inner, offset * number
        case Arithmetic("/", left, right) if number := number_of(right):
            factor, inner, offset = unscaled(left)
            return factor / number, inner, offset / number
        case Arithmetic("+" | "-" as op, left, right):
            sign = 1 if op == "+" else -1
            moved, taken = number_of(right), number_of(left)
            if moved is not None:
                factor, inner, offset = unscaled(left)
                return factor, inner, offset + sign * moved
            if taken is not None:
                factor, inner, offset = unscaled(right)
                return sign * factor, inner, taken + sign * offset
    return Fraction(1), node, Fraction(0)


def _near(condition: Expression, is_certain: Callable[[Column], bool]) -> Near | None:
    if isinstance(condition, Not):
        inner = _near(condition.condition, is_certain)
        return inner and replace(inner, beyond=not inner.beyond, text=str(condition))
    if not isinstance(condition, Comparison):
        return None
    for call, other, op in (
        (condition.left, condition.right, condition.op),
        (condition.right, condition.left, TURNED.get(condition.op, condition.op)),
    ):
        if isinstance(call, Call) and call.name == "distance":
            limit = _form(other, is_certain)
            columns = [column for column in call.args if isinstance(column, Column) and column.index is None]
            if len(columns) != 2 or not limit.is_certain or op not in TURNED:
                raise _MisfitError("a distance that is not between two columns, or compared with something uncertain")
            if columns[0].same_as(columns[1]):
                raise _MisfitError("the distance of a column from itself")
            closed, beyond = op in ("<=", ">"), op in (">", ">=")
            return Near(columns[0], columns[1], limit.constant, closed, beyond, str(condition))
    return None


def _form(node: Expression, is_certain: Callable[[Column], bool]) -> Form:
    if all(is_certain(column) for column in columns_of(node)):
        number = number_of(node)
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
            if number_of(exponent) != 2:
                raise _MisfitError(f"the power `{node}`: only squares are understood")
            inner = _form(base, is_certain)
            return inner.product(inner)
        case Call("abs", (inner,)):
            value = _without_zeros(_form(inner, is_certain))
            if not value.is_certain:
                raise _MisfitError(f"`{node}` inside a sum")
            size = value.constant
            return Form(abs(size) if isinstance(size, Fraction) else Call("abs", (size,)), {}, {}, {})
        case Call("distance", (Column() as one, Column() as other)) if one.same_as(other):
            return Form(Fraction(0), {}, {}, {})
        case Call("distance"):
            raise _MisfitError(f"`{node}` inside a sum")
        case Call(name):
            raise _MisfitError(f"the function {name}() of something uncertain")
    raise _MisfitError(f"`{node}`")


def number_of(node: Expression) -> Fraction | None:
    """Return the number that an expression of literals is, or nothing."""
    match node:
        case Literal(bool() | str() | None):
            return None
        case Literal(number):
            return Fraction(repr(number))
        case Negative(operand):
            value = number_of(operand)
            return None if value is None else -value
        case Arithmetic(op, left, right):
            one, two = number_of(left), number_of(right)
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
    """Drop terms whose coefficient is 0, as an uncertain column is never null; return the others by name."""
    linear = {name: form.linear[name] for name in sorted(form.linear) if not _is_zero(form.linear[name])}
    squares = {pair: form.squares[pair] for pair in sorted(form.squares) if not _is_zero(form.squares[pair])}
    return replace(form, linear=linear, squares=squares)


def _is_zero(value: Scalar) -> bool:
    return isinstance(value, Fraction) and value == 0


def same_form(one: Form, other: Form) -> bool:
    """Return whether both are the same sum of the same columns."""

    def same(a: dict[str, Scalar], b: dict[str, Scalar]) -> bool:
        return a.keys() == b.keys() and all(_same_scalar(a[key], b[key]) for key in a)

    named = [{"*".join(pair): value for pair, value in form.squares.items()} for form in (one, other)]
    return same(one.linear, other.linear) and same(named[0], named[1])


def _same_scalar(a: Scalar, b: Scalar) -> bool:
    if isinstance(a, Expression):
        return a.same_as(b)
    return not isinstance(b, Expression) and a == b


def _complement(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Return what lies outside of all intervals, which are in ascending order."""
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
    """Return their sum."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    if _is_zero(a) or _is_zero(b):
        return b if _is_zero(a) else a
    return Arithmetic("+", expression_of(a), expression_of(b))


def times(a: Scalar, b: Scalar) -> Scalar:
    """Return their product."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    if isinstance(a, Fraction):
        a, b = b, a
    if isinstance(b, Fraction) and b in (0, 1):
        return Fraction(0) if b == 0 else a
    if isinstance(b, Fraction) and b == -1:
        return a.operand if isinstance(a, Negative) else Negative(expression_of(a))
    return Arithmetic("*", expression_of(a), expression_of(b))


def _inverse(a: Scalar) -> Scalar:
    return 1 / a if isinstance(a, Fraction) else Arithmetic("/", Literal(1), a)


def expression_of(a: Scalar) -> Expression:
    """Write a number as an expression that is read back exactly."""
    if isinstance(a, Expression):
        return a
    if a.denominator == 1:
        return Literal(int(a))
    number = Literal(float(a))
    exact = Fraction(repr(number.value)) == a
    return number if exact else Arithmetic("/", Literal(a.numerator), Literal(a.denominator))


def number_text(a: Scalar) -> str:
    """Write a number for people."""
    return str(a) if isinstance(a, Expression) else f"{as_float(a):g}"


def as_float(a: Fraction) -> float:
    """Return the nearest double."""
    try:
        return float(a)
    except OverflowError:
        return math.inf if a > 0 else -math.inf


def _term_text(value: Scalar, name: str) -> str:
    if isinstance(value, Fraction):
        return name if value == 1 else f"-{name}" if value == -1 else f"{number_text(value)}*{name}"
    return f"({value})*{name}"
