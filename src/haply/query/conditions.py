"""The normal form of a join condition: what Spark checks, what it can hash, and the differences haply joins on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from haply.errors import HaplyError
from haply.probability.region import Difference, Distance, Region
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
    Opaque,
    Or,
    is_value,
    rewritten,
    sql_text,
)

UNDERSTOOD = (
    "abs(left.a - right.b) compared with a number, left.a - right.b between two numbers, or left.a compared with "
    "right.b, with one unscaled column of each table and any constants"
)

# A set of numbers: disjoint, increasing intervals between cuts. A cut lies just below (0) or just above (1) its value,
# so cuts compare as tuples, and open and closed ends need no cases of their own. Fractions, because the constants
# people write are decimals: 0.1 + 0.2 is 0.3 here.
_Cut = tuple[Fraction | float, int]
_Values = tuple[tuple[_Cut, _Cut], ...]
_LOWEST: _Cut = (-math.inf, 1)
_HIGHEST: _Cut = (math.inf, 0)
_EVERYTHING: _Values = ((_LOWEST, _HIGHEST),)


@dataclass(frozen=True, eq=False)
class JoinCondition:
    """A condition between two tables, all of whose parts must hold."""

    left_only: tuple[Expression, ...] = ()
    right_only: tuple[Expression, ...] = ()
    equalities: tuple[tuple[Expression, Expression], ...] = ()  # of certain values, the left table's first
    residual: tuple[Expression, ...] = ()  # certain conditions over both tables that are no such equality
    difference: Difference | None = None
    distance: Distance | None = None
    further: tuple[Difference | Distance, ...] = ()  # independent of the first: their probabilities multiply

    @property
    def compared(self) -> Difference | Distance | None:
        """The uncertain condition that finds the pairs."""
        return self.difference or self.distance


def split_join(
    condition: Expression, is_certain: Callable[[Column], bool], can_sweep: Callable[[Column], bool]
) -> JoinCondition:
    """Sorts the parts of a join condition.

    A part that speaks of an uncertain column has to be a condition on the difference of one column of each table, and
    all such parts on the same two columns, so that together they are one set of differences and one exact probability.
    Without uncertain parts, a bounded band over two columns that can be swept becomes the difference instead.
    """
    certainty = {_key(column): _on_a_side(column) and is_certain(column) for column in columns_of(condition)}
    conjuncts = condition.conditions if isinstance(condition, And) else (condition,)
    for conjunct in conjuncts:
        if is_value(conjunct):
            raise HaplyError(f"`{conjunct}` is a value", expected="a condition", hint="compare it with something")
    certain = [part for part in conjuncts if all(certainty[_key(column)] for column in columns_of(part))]
    uncertain = [part for part in conjuncts if not all(certainty[_key(column)] for column in columns_of(part))]
    near = [(part, found) for part in conjuncts if (found := _as_distance(part)) is not None]
    if near:
        part, distance = near[0]
        others = [other for other in uncertain if other is not part]
        if others:
            raise UnfitError(
                "The condition has a distance beside another uncertain condition",
                expected="a distance and any certain conditions",
                found=f"`{part}` and `{others[0]}`",
            )
        return replace(sorted_by_side([other for other in certain if other is not part], None), distance=distance)
    if uncertain:
        return sorted_by_side(certain, _joint_difference(uncertain))
    return sorted_by_side(*_take_sweepable(certain, can_sweep))


def _as_distance(part: Expression) -> Distance | None:
    """A limit on the distance of a column of each table, if the part is one."""
    if not isinstance(part, Comparison) or part.op not in ("<", "<=", ">", ">="):
        return None
    call, limit, op = part.left, part.right, part.op
    if isinstance(limit, Call):
        call, limit, op = limit, call, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
    if not (isinstance(call, Call) and call.name == "distance"):
        return None
    columns = {column.table: column for column in call.args if isinstance(column, Column) and column.index is None}
    try:
        number = _linear(limit)
    except _MisfitError as misfit:
        raise _misfit(part, str(misfit)) from None
    if set(columns) != {"left", "right"} or number.terms or op in (">", ">="):
        raise UnfitError(
            f"haply does not understand the condition `{part}`",
            expected="distance(left.a, right.b) <= a number",
            hint="points of one column of each table, and an upper limit",
        )
    try:
        within = float(number.constant)
    except OverflowError:
        raise HaplyError(f"The condition `{part}` compares with a number that is too large") from None
    return Distance(columns["left"].name, columns["right"].name, within, op == "<=")


def as_difference(condition: Expression) -> Difference:
    """The difference condition that the whole condition is, with every column taken to be uncertain."""
    split = split_join(condition, lambda column: False, lambda column: False)
    if split.difference is None or split.residual:
        raise _misfit(condition, "a condition without columns")
    return split.difference


def columns_of(expression: Expression) -> tuple[Column, ...]:
    """The columns the expression speaks of, each once, in the order they are written."""
    found: dict[tuple[str | None, str, int | None], Column] = {}
    stack: list[Expression] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, Column):
            found.setdefault(_key(node), node)
        stack.extend(reversed(node.children))
    return tuple(found.values())


def points_of(expression: Expression) -> tuple[Column, ...]:
    """The columns whose distance is asked for: a plain number is a point there."""
    if isinstance(expression, Call) and expression.name == "distance":
        return tuple(column for column in expression.args if isinstance(column, Column))
    return tuple(column for child in expression.children for column in points_of(child))


def with_columns(expression: Expression, change: Callable[[Column], Expression]) -> Expression:
    """The same with something else in the place of each column."""
    return rewritten(expression, lambda node: change(node) if isinstance(node, Column) else None)


def respelled(expression: Expression, spell: Callable[[Column], str]) -> Expression:
    """The same with columns named as their tables spell them: two spellings of one column are one variable."""
    return with_columns(expression, lambda column: replace(column, name=spell(column)))


def to_sql(expression: Expression, rename: Callable[[Column], str]) -> str:
    """Spark SQL for a certain expression. `rename` gives the quoted text of a column, without its component index."""

    def column_text(column: Column) -> str:
        index = "" if column.index is None else f"[{column.index}]"
        return rename(replace(column, index=None)) + index

    return sql_text(expression, column_text, for_spark=True)


def _key(column: Column) -> tuple[str | None, str, int | None]:
    return (column.table, column.name, column.index)


def _on_a_side(column: Column) -> bool:
    if column.table in ("left", "right"):
        return True
    name = column.name
    raise HaplyError(
        f"The column `{column}` names no table of the join"
        if column.table is None
        else f"The table '{column.table}' of `{column}` is not part of the join",
        expected="a column of left or right",
        hint=f"write left.{name} or right.{name}",
    )


def _tables_of(expression: Expression) -> set[str | None]:
    return {column.table for column in columns_of(expression)}


def sorted_by_side(certain: list[Expression], difference: Difference | None) -> JoinCondition:
    left_only, right_only, equalities, residual = [], [], [], []
    for part in certain:
        tables = _tables_of(part)
        if tables == {"left"}:
            left_only.append(part)
        elif tables == {"right"}:
            right_only.append(part)
        elif equality := _as_equality(part):
            equalities.append(equality)
        else:
            residual.append(part)
    return JoinCondition(tuple(left_only), tuple(right_only), tuple(equalities), tuple(residual), difference)


def _as_equality(part: Expression) -> tuple[Expression, Expression] | None:
    if isinstance(part, Comparison) and part.op == "=":
        for one, other in ((part.left, part.right), (part.right, part.left)):
            if _tables_of(one) == {"left"} and _tables_of(other) == {"right"}:
                return one, other
    return None


@dataclass(frozen=True, eq=False)
class _Band:
    """The differences ``left - right`` for which one condition holds."""

    left: Column
    right: Column
    values: _Values

    def same_pair(self, other: _Band) -> bool:
        return self.left.same_as(other.left) and self.right.same_as(other.right)

    def difference(self, condition: str) -> Difference:
        return Difference(self.left.name, self.right.name, _region(self.values, condition))


class _MisfitError(Exception):
    """Why a condition is not one on a difference of two columns."""


class UnfitError(HaplyError):
    """A condition that is not one on the difference, or the distance, of two columns; it may have another form."""


def _misfit(condition: Expression, reason: str) -> HaplyError:
    return UnfitError(
        f"haply does not understand the uncertain condition `{condition}`", expected=UNDERSTOOD, found=reason
    )


def _joint_difference(uncertain: list[Expression]) -> Difference:
    bands = [_band(part) for part in uncertain]
    for part, band in zip(uncertain, bands, strict=True):
        _refuse_trivial(band.values, f"`{part}`")
        if not band.same_pair(bands[0]):
            raise UnfitError(
                "The condition compares more than one pair of uncertain columns",
                expected="one uncertain condition per join, or several on the same two columns",
                found=f"`{uncertain[0]}` and `{part}`",
                hint="a further join on the result is not the same: probabilities of joint conditions do not multiply",
            )
    joint = bands[0]
    for band in bands[1:]:
        joint = replace(joint, values=_intersection(joint.values, band.values))
    return joint.difference(" AND ".join(f"`{part}`" for part in uncertain))


def _take_sweepable(
    certain: list[Expression], can_sweep: Callable[[Column], bool]
) -> tuple[list[Expression], Difference | None]:
    """The first bounded band over two columns that can be swept, and what is left of the conditions.

    People write bands as two comparisons as well, so all intervals over the same two columns count together.
    """
    intervals: list[tuple[Expression, _Band]] = []
    for part in certain:
        try:
            band = _band(part)
        except HaplyError:
            continue  # Spark checks it as it is
        if len(band.values) == 1 and _width(band) > 0 and can_sweep(band.left) and can_sweep(band.right):
            intervals.append((part, band))
    for _, first in intervals:
        parts = [part for part, band in intervals if band.same_pair(first)]
        joint = first
        for _, band in intervals:
            if band.same_pair(first):
                joint = replace(joint, values=_intersection(joint.values, band.values))
        if len(joint.values) == 1 and 0 < _width(joint) < math.inf:
            used = set(map(id, parts))
            return [part for part in certain if id(part) not in used], joint.difference(str(first))
    return certain, None


def _width(band: _Band) -> Fraction | float:
    return band.values[0][1][0] - band.values[0][0][0]


def _band(condition: Expression) -> _Band:
    try:
        return _solved_condition(condition)
    except _MisfitError as misfit:
        raise _misfit(condition, str(misfit)) from None


def _solved_condition(condition: Expression) -> _Band:
    match condition:
        case Not(inner):
            band = _solved_condition(inner)
            return replace(band, values=_complement(band.values))
        case Comparison(op, left, right):
            return _solved(_linear(left) - _linear(right), _compared(op))
        case Between(value, low, high):
            middle, lowest, highest = _linear(value), _linear(low), _linear(high)
            if not lowest.terms and not highest.terms:
                ends = _intersection(_compared(">=", lowest.constant), _compared("<=", highest.constant))
                return _solved(middle, ends)
            above, below = _solved(middle - lowest, _compared(">=")), _solved(middle - highest, _compared("<="))
            if not above.same_pair(below):
                raise _MisfitError("different columns at the two ends of BETWEEN")
            return replace(above, values=_intersection(above.values, below.values))
        case Or():
            raise _MisfitError("an OR of uncertain conditions")
        case And():
            raise _MisfitError("a NOT of several uncertain conditions together")
    raise _MisfitError("something that is not a comparison")


@dataclass(frozen=True, eq=False)
class _Linear:
    """``constant + sum of coefficient * term``, where a term is a column or an ``abs(...)``, kept by its text.

    Terms that cancel out stay, with coefficient 0: where such a column is null, so is the sum.
    """

    constant: Fraction
    terms: dict[str, tuple[Fraction, Expression]]

    def scaled(self, factor: Fraction) -> _Linear:
        terms = {text: (factor * coefficient, term) for text, (coefficient, term) in self.terms.items()}
        return _Linear(factor * self.constant, terms)

    def __add__(self, other: _Linear) -> _Linear:
        terms = dict(self.terms)
        for text, (coefficient, term) in other.terms.items():
            terms[text] = (coefficient + terms.get(text, (Fraction(0), term))[0], term)
        return _Linear(self.constant + other.constant, terms)

    def __sub__(self, other: _Linear) -> _Linear:
        return self + other.scaled(Fraction(-1))


def _term(node: Expression) -> _Linear:
    return _Linear(Fraction(0), {str(node): (Fraction(1), node)})


def _linear(node: Expression) -> _Linear:
    match node:
        case Literal(bool() | str() | None):
            raise _MisfitError(f"{node} where a number is expected")
        case Literal(number):
            return _Linear(Fraction(repr(number)), {})  # the decimal as it is written
        case Column():
            return _term(node)
        case Negative(operand):
            return _linear(operand).scaled(Fraction(-1))
        case Arithmetic(op, left, right):
            return _linear_arithmetic(node, op, _linear(left), _linear(right))
        case Call("abs", (inner,)):
            form = _linear(inner)
            return _term(node) if form.terms else _Linear(abs(form.constant), {})
        case Call("distance"):
            raise _MisfitError("a distance")
        case Call(name):
            raise _MisfitError(f"the function {name}()")
        case Opaque():
            raise _MisfitError(f"`{node}`, which only Spark can compute")
    raise _MisfitError(f"a condition where a number is expected, `{node}`")


def _linear_arithmetic(node: Expression, op: str, left: _Linear, right: _Linear) -> _Linear:
    if op in "+-":
        return left + right if op == "+" else left - right
    if op == "*" and not (left.terms and right.terms):
        return left.scaled(right.constant) if left.terms else right.scaled(left.constant)
    if op == "/" and not right.terms and right.constant:
        return left.scaled(1 / right.constant)
    if op == "**" and not left.terms and not right.terms:
        exponent = right.constant
        if exponent.denominator == 1 and abs(exponent) <= 16 and (left.constant or exponent >= 0):
            return _Linear(left.constant ** int(exponent), {})
    raise _MisfitError(f"`{node}`, which is not a sum of columns and numbers")


def _solved(form: _Linear, values: _Values) -> _Band:
    """The differences for which the form lies in the values."""
    terms = list(form.terms.values())
    if any(not coefficient for coefficient, _ in terms):
        raise _MisfitError(f"columns that cancel out ({', '.join(form.terms)})")
    if len(terms) == 1 and isinstance(terms[0][1], Call):
        scale, term = terms[0]
        sizes = _unscaled(values, scale, form.constant)
        tolerances = [value for interval in sizes for value, _ in interval if abs(value) != math.inf]
        if tolerances and max(tolerances) < 0:
            raise HaplyError(
                f"`{term}` is compared with a negative tolerance",
                expected="a tolerance of 0 or more",
                found=_short(max(tolerances)),
                hint="an absolute value is never negative: check the sign",
            )
        sizes = _intersection(sizes, _compared(">="))
        return _solved(_linear(term.children[0]), _union(sizes, _reflected(sizes)))
    left, right, scale = _pair(form)
    return _Band(left, right, _unscaled(values, scale, form.constant))


def _pair(form: _Linear) -> tuple[Column, Column, Fraction]:
    """The columns and the scale of ``scale * (left - right)``, the only form of columns that is understood."""
    columns = [(coefficient, term) for coefficient, term in form.terms.values() if isinstance(term, Column)]
    names = ", ".join(form.terms)
    if not form.terms:
        raise _MisfitError("one end without columns")
    if len(columns) < len(form.terms):
        raise _MisfitError(f"abs(...) beside further terms ({names})")
    lefts = [(coefficient, column) for coefficient, column in columns if column.table == "left"]
    rights = [(coefficient, column) for coefficient, column in columns if column.table == "right"]
    if len(lefts) > 1 or len(rights) > 1:
        raise _MisfitError(f"several columns of one table ({names})")
    if not lefts or not rights:
        raise _MisfitError(f"a column of one table only ({names})")
    (scale, left), (other_scale, right) = lefts[0], rights[0]
    if scale == other_scale:
        raise _MisfitError(f"a sum over both tables ({names}) instead of a difference")
    if scale != -other_scale:
        raise _MisfitError(f"scaled columns ({_short(scale)} * {left}, {_short(other_scale)} * {right})")
    if left.index is not None or right.index is not None:
        raise _MisfitError(f"a component of a column ({names}) instead of a whole one")
    return left, right, scale


def _refuse_trivial(values: _Values, condition: str) -> None:
    if values in ((), _EVERYTHING):
        raise HaplyError(
            f"The condition {condition} {'always holds' if values else 'can never hold'}",
            hint="leave it out" if values else "check the order of the bounds and the signs",
        )


def _region(values: _Values, condition: str) -> Region:
    _refuse_trivial(values, condition)
    outside = len(values) > 1
    inner = _complement(values) if outside else values
    if len(inner) > 1:
        raise HaplyError(
            f"The condition {condition} allows several separate ranges of differences",
            expected="one range, or all that lies outside one range",
            hint="keep one of the ranges",
        )
    (low, above_low), (high, above_high) = inner[0]
    low_closed, high_closed = low == -math.inf or not above_low, high == math.inf or bool(above_high)
    try:
        return Region(float(low), float(high), low_closed, high_closed, outside)
    except OverflowError:
        raise HaplyError(f"The condition {condition} compares with a number that is too large") from None


def _short(number: Fraction | float) -> str:
    try:
        return f"{float(number):g}"
    except OverflowError:
        return "a very large number"


def _compared(op: str, number: Fraction = Fraction(0)) -> _Values:
    below, above = (number, 0), (number, 1)
    match op:
        case "<":
            return ((_LOWEST, below),)
        case "<=":
            return ((_LOWEST, above),)
        case ">":
            return ((above, _HIGHEST),)
        case ">=":
            return ((below, _HIGHEST),)
        case "=":
            return ((below, above),)
    return _complement(((below, above),))


def _intersection(a: _Values, b: _Values) -> _Values:
    overlaps = ((max(low, other_low), min(high, other_high)) for low, high in a for other_low, other_high in b)
    return tuple((low, high) for low, high in overlaps if low < high)


def _complement(values: _Values) -> _Values:
    cuts = [_LOWEST, *(cut for interval in values for cut in interval), _HIGHEST]
    return tuple((low, high) for low, high in zip(cuts[::2], cuts[1::2], strict=True) if low < high)


def _union(a: _Values, b: _Values) -> _Values:
    return _complement(_intersection(_complement(a), _complement(b)))


def _reflected(values: _Values) -> _Values:
    return tuple(((-high, 1 - side), (-low, 1 - other)) for (low, other), (high, side) in reversed(values))


def _unscaled(values: _Values, scale: Fraction, shift: Fraction) -> _Values:
    """The numbers x with ``scale * x + shift`` in the values."""

    def moved(cut: _Cut) -> _Cut:
        value, side = cut
        return cut if isinstance(value, float) else ((value - shift) / abs(scale), side)  # only infinities are floats

    unsigned = tuple((moved(low), moved(high)) for low, high in values)
    return unsigned if scale > 0 else _reflected(unsigned)
