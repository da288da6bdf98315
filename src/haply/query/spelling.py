"""Functions that are regions in disguise, and NOT, as comparisons of sums with AND and OR between them.

``spelled_out`` writes XOR, CASE, IN, greatest(), least(), abs() in a sum, a quotient, powers, products compared with 0
and functions that only rise in this way. Where a function is not defined, as the root of a negative number, a
comparison of it is unknown, as it is in SQL: neither it nor its opposite holds. ``inward`` brings NOT to single
comparisons.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from haply.errors import HaplyError
from haply.probability.joint import independent_groups
from haply.query.columns import columns_of, owner_of
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
    Xor,
    rewritten,
)
from haply.query.forms import TURNED, expression_of, form_or_reason, number_of, unscaled
from haply.selection.cases import MOST_CASES, too_many_cases

IsCertain = Callable[[Column], bool]

MOST_COMPARISONS = 2 * MOST_CASES
"""Comparisons that functions may be written as: each absolute value in a sum doubles their number."""

_MOST_POWER = 64


def spelled_out(condition: Expression, is_certain: IsCertain) -> Expression:
    """Write what is uncertain in a condition as comparisons of sums, with AND, OR and NOT between them."""

    def certain(node: Expression) -> bool:
        return all(is_certain(column) for column in columns_of(node))

    made = itertools.count(1)

    def out(node: Expression) -> Expression:
        if certain(node):
            return node
        match node:
            case And(conditions):
                return And(tuple(map(out, conditions)))
            case Or(conditions):
                return Or(tuple(map(out, conditions)))
            case Not(inner):
                opposite = _opposite(inner, certain) if _may_be_undefined(inner, certain) else None
                return Not(out(inner)) if opposite is None else out(opposite)
            case Comparison() if is_exclusive(node):
                return exclusive(node)
            case Opaque((Expression() as inner, " IS NOT TRUE")):
                return inward(Not(out(inner)), is_certain)
            case Opaque():
                listed = _in_list(node)
                listed = _as_condition(node, certain) if listed is None else listed
                return node if listed is None else out(listed)
            case Comparison() | Between():
                if next(made) > MOST_COMPARISONS:
                    raise too_many_cases(str(condition))
                if not isinstance(form_or_reason(node, is_certain), str):
                    return node
                other = _simpler(node, certain)
                return node if other is None else out(other)
        return node

    def exclusive(node: Expression) -> Expression:
        even, groups = _exclusive_groups(node, is_certain)
        if len(groups) == 1:
            first, *others = groups[0]
            for number, other in enumerate(others):
                first = (_alike if even and number == len(others) - 1 else _exclusive)(first, other)
            return out(first)
        whole = [functools.reduce(_exclusive, group) for group in groups]
        found = Xor(tuple(map(out, whole)), tuple(out(Not(each)) for each in whole))
        return Not(found) if even else found

    if _written(condition, is_certain) > MOST_CASES:
        raise too_many_cases(str(condition))
    return out(condition)


def inward(condition: Expression, is_certain: IsCertain) -> Expression:
    """Write NOT before single comparisons only, as far as something uncertain is in them."""
    if all(is_certain(column) for column in columns_of(condition)):
        return condition
    match condition:
        case Not(Not(inner)):
            return inward(inner, is_certain)
        case Not(Or(conditions)):
            return And(tuple(inward(Not(each), is_certain) for each in conditions))
        case Not(And(conditions)):
            return Or(tuple(inward(Not(each), is_certain) for each in conditions))
        case Not(Xor((first, *others), (opposite, *opposites))):
            return inward(Xor((opposite, *others), (first, *opposites)), is_certain)
        case Xor(conditions, opposites):
            return Xor(*(tuple(inward(each, is_certain) for each in side) for side in (conditions, opposites)))
        case And(conditions) | Or(conditions):
            return type(condition)(tuple(inward(each, is_certain) for each in conditions))
    return condition


def is_exclusive(node: Expression) -> bool:
    """Return whether it is XOR, or the opposite, ``=``, between two conditions."""
    return isinstance(node, Comparison) and node.op in ("=", "!=") and all(map(_is_condition, node.children))


def _exclusive_groups(node: Expression, is_certain: IsCertain) -> tuple[bool, list[tuple[Expression, ...]]]:
    """Return the conditions of which an odd number hold, or an even one: by groups that share uncertain columns."""
    parts, even = [], False
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if is_exclusive(part):
            assert isinstance(part, Comparison)
            even ^= part.op == "="
            waiting += [part.right, part.left]
        else:
            parts.append(part)

    def names(part: Expression) -> list[str]:
        return [owner_of(column) for column in columns_of(part) if not is_certain(column)] or [f"certain {id(part)}"]

    return even, independent_groups(parts, names)


def _written(node: Expression, is_certain: IsCertain) -> int:
    """About how many comparisons there are when each XOR of conditions that share columns is written as two cases."""
    if is_exclusive(node):
        _, groups = _exclusive_groups(node, is_certain)
        return sum(sum(_written(part, is_certain) for part in group) << len(group) for group in groups)
    return sum(_written(child, is_certain) for child in node.children) + isinstance(node, Comparison)


Certain = Callable[[Expression], bool]


def _is_condition(node: Expression) -> bool:
    return isinstance(node, (And, Or, Not, Comparison, Between)) or (
        isinstance(node, Opaque) and (_in_list(node) is not None or _cases_of(node) is not None)
    )


_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}


def _opposite(condition: Expression, certain: Certain) -> Expression | None:
    """Return what holds where a condition is false, but not where it is unknown; None if it cannot be unknown."""
    match condition:
        case _ if certain(condition):
            return None
        case Not(inner):
            return inner
        case And(conditions):
            return Or(tuple(map(Not, conditions)))
        case Or(conditions):
            return And(tuple(map(Not, conditions)))
        case Comparison(op, left, right):
            return Comparison(_OPPOSITE[op], left, right)
        case Between(value, low, high):
            return Or((Comparison("<", value, low), Comparison(">", value, high)))
        case Opaque():
            listed = _in_list(condition)
            return Not(listed) if listed is not None else _as_condition(condition, certain, Not)
    return None


def _may_be_undefined(node: Expression, certain: Certain) -> bool:
    """Return whether there are values for which something in it has none."""
    if certain(node):
        return False
    cases = _cases_of(node)
    if cases is not None and cases[-1][0] is not None:
        return True
    match node:
        case Arithmetic("/", _, below) if not certain(below):
            return True
        case Call(name) if name in _RISING and _RISING[name].begins is not None:
            return True
        case Arithmetic("**", _, exponent) | Call("power" | "pow", (_, exponent)):
            power = number_of(exponent)
            return power is None or power < 0 or power.denominator > 1
    return any(_may_be_undefined(child, certain) for child in node.children)


def _not_true(condition: Expression, certain: Certain) -> Expression:
    """Return what holds where a condition is false or unknown."""
    if certain(condition) or _may_be_undefined(condition, certain):
        return Opaque((condition, " IS NOT TRUE"))
    match condition:
        case And(conditions):
            return Or(tuple(_not_true(each, certain) for each in conditions))
        case Or(conditions):
            return And(tuple(_not_true(each, certain) for each in conditions))
    return Not(condition)


def _exclusive(one: Expression, other: Expression) -> Expression:
    return Or((And((one, Not(other))), And((Not(one), other))))


def _alike(one: Expression, other: Expression) -> Expression:
    return Or((And((one, other)), And((Not(one), Not(other)))))


def _in_list(node: Opaque) -> Expression | None:
    """``x IN (a, b)`` as an OR of equalities."""
    match node.parts:
        case (Expression() as value, str(word), *listed, str(last)) if word in (" IN (", " NOT IN (") and last == ")":
            items = [item for item in listed if isinstance(item, Expression)]
            equal: list[Expression] = [Comparison("=", value, item) for item in items]
            found = equal[0] if len(equal) == 1 else Or(tuple(equal))
            return Not(found) if "NOT" in word else found
    return None


def _cases_of(node: Expression) -> list[tuple[Expression | None, Expression]] | None:
    """Return the conditions and results of ``CASE WHEN ... THEN ... END``; the last, ELSE, has no condition."""
    if isinstance(node, Call) and node.name in ("if", "iff") and len(node.args) == 3:
        return [(node.args[0], node.args[1]), (None, node.args[2])]
    if not isinstance(node, Opaque) or not isinstance(node.parts[0], str) or not node.parts[0].startswith("CASE"):
        return None
    words = [part for part in node.parts if isinstance(part, str)]
    given = [part for part in node.parts if isinstance(part, Expression)]
    value = None if words[0] == "CASE WHEN " else given.pop(0)
    words = words if value is None else words[1:]
    found: list[tuple[Expression | None, Expression]] = []
    while given and words[0].strip().endswith("WHEN"):
        condition, result = given.pop(0), given.pop(0)
        found.append((condition if value is None else Comparison("=", value, condition), result))
        words = words[2:]
    if given:
        found.append((None, given.pop(0)))
    return found


def _branches(node: Expression, certain: Certain) -> list[tuple[Expression | None, Expression]]:
    """Return what a function is, by conditions that exclude one another; nothing if it is not such a function."""
    cases = _cases_of(node)
    if cases is not None:
        found, before = [], list[Expression]()
        for condition, result in cases:
            holds = [*before, *([] if condition is None else [condition])]
            found.append((None if not holds else holds[0] if len(holds) == 1 else And(tuple(holds)), result))
            if condition is not None:
                before.append(_not_true(condition, certain))
        return found
    match node:
        case Call("abs", (Call("distance") as inner,)):
            return [(None, inner)]
        case Call("abs", (inner,)) if not certain(inner):
            return [(inner >= 0, inner), (inner < 0, Negative(inner))]
        case Call("greatest" | "least" as name, args) if len(args) > 1:
            ops = ("<", "<=") if name == "greatest" else (">", ">=")
            found = []
            for k, arg in enumerate(args):
                beats = [Comparison(ops[0], other, arg) for other in args[:k]]
                beats += [Comparison(ops[1], other, arg) for other in args[k + 1 :]]
                found.append((beats[0] if len(beats) == 1 else And(tuple(beats)), arg))
            return found
    return []


def _as_condition(
    node: Opaque, certain: Certain, change: Callable[[Expression], Expression] = lambda result: result
) -> Expression | None:
    """Return a CASE whose results are conditions, each of them changed."""
    found = [
        change(result) if condition is None else And((condition, change(result)))
        for condition, result in _branches(node, certain)
    ]
    return None if not found else found[0] if len(found) == 1 else Or(tuple(found))


def _simpler(node: Comparison | Between, certain: Certain) -> Expression | None:
    """Return a comparison with one function less; None if there is none that this module knows."""
    if isinstance(node, Between):
        return And((Comparison(">=", node.value, node.low), Comparison("<=", node.value, node.high)))
    for side, other, op in ((node.left, node.right, node.op), (node.right, node.left, TURNED.get(node.op, node.op))):
        found = _of_one_side(side, other, op, certain)
        if found is not None:
            return found
    return _split(node, certain)


def _of_one_side(side: Expression, other: Expression, op: str, certain: Certain) -> Expression | None:
    """``f(...) op other`` without its function."""
    if certain(side):
        return None
    match side:
        case Call("greatest" | "least" as name, args) if op not in ("=", "!=") and len(args) > 1:
            each = tuple(Comparison(op, arg, other) for arg in args)
            return And(each) if (name == "greatest") == op.startswith("<") else Or(each)
        case Arithmetic("/", above, below) if not certain(below) and op not in ("=", "!="):
            product = Arithmetic("*", other, below)
            return Or(
                (
                    And((below > 0, Comparison(op, above, product))),
                    And((below < 0, Comparison(TURNED[op], above, product))),
                )
            )
        case Call(name, (inner,)) if name in _RISING and isinstance(other, Call) and other.name == name:
            (beside,) = other.args
            defined = [*_domain(inner, _RISING[name]), *_domain(beside, _RISING[name])]
            compared = Comparison(op, inner, beside)
            return And((*defined, compared)) if defined else compared
    number = number_of(other)
    if number is None:
        return None
    match side:
        case Call(name, (inner,)) if name in _RISING:
            return _rising(inner, op, number, _RISING[name])
        case Arithmetic("**", inner, exponent) | Call("power" | "pow", (inner, exponent)):
            power = number_of(exponent)
            return None if power is None else _power(inner, op, number, power)
    multiple, factors = _factors(side)
    if multiple and len(factors) > 2:  # squares and products of two have a normal form
        return _product(factors, TURNED.get(op, op) if multiple < 0 else op, number / multiple)
    factor, inner, offset = unscaled(side)
    if inner is side:
        return None
    limit, op = expression_of((number - offset) / factor), TURNED.get(op, op) if factor < 0 else op
    if isinstance(inner, Call) and inner.name == "distance":
        return Comparison(op, inner, limit)
    return _of_one_side(inner, limit, op, certain)


class Rising(NamedTuple):
    """A function that only rises: its inverse, which raises ValueError for what is no value of it."""

    inverse: Callable[[Fraction], Fraction]
    begins: Callable[[Expression], Expression] | None = None
    """What tells whether it is defined, if it is not everywhere."""
    least: float = -math.inf
    """What its values are not below."""


def _near(function: Callable[[float], float]) -> Callable[[Fraction], Fraction]:
    return lambda number: Fraction(repr(function(float(number))))


def _square(number: Fraction) -> Fraction:
    if number < 0:
        raise ValueError("a root is not negative")
    return number * number


def _tangent(number: float) -> float:
    if abs(number) >= 0.5 * math.pi:
        raise ValueError("an angle is less than a right one")
    return math.tan(number)


_RISING = {
    "exp": Rising(_near(math.log), least=0.0),
    "ln": Rising(_near(math.exp), lambda inner: inner > 0),
    "log": Rising(_near(math.exp), lambda inner: inner > 0),
    "log10": Rising(_near(lambda number: 10.0**number), lambda inner: inner > 0),
    "log2": Rising(_near(lambda number: 2.0**number), lambda inner: inner > 0),
    "sqrt": Rising(_square, lambda inner: inner >= 0, least=0.0),
    "cbrt": Rising(lambda number: number**3),
    "sinh": Rising(_near(math.asinh)),
    "tanh": Rising(_near(math.atanh), least=-1.0),
    "atan": Rising(_near(_tangent), least=-0.5 * math.pi),
}


def _domain(inner: Expression, function: Rising) -> list[Expression]:
    return [] if function.begins is None else [function.begins(inner)]


def _rising(inner: Expression, op: str, number: Fraction, function: Rising) -> Expression:
    """``f(inner) op number`` as ``inner op limit``, where the function is defined."""
    inside = _domain(inner, function)
    try:
        limit = function.inverse(number)
    except ValueError:
        holds = (op in (">", ">=", "!=")) == (number <= function.least)
        return inside[0] if holds and inside else _always(inner, holds)
    except OverflowError:
        raise HaplyError(
            f"`{inner}` is compared with a number that is too large", found=f"the inverse of {float(number):g}"
        ) from None
    compared = Comparison(op, inner, expression_of(limit))
    return And((*inside, compared)) if inside else compared


def _always(inner: Expression, holds: bool) -> Expression:
    """Return a condition on an expression that holds always, or never."""
    either = Or((inner >= 0, inner < 0))
    return either if holds else And((inner > 0, inner < 0))


def _power(inner: Expression, op: str, number: Fraction, power: Fraction) -> Expression | None:
    """Return an odd power rises; an even one is that of the absolute value; a negative one is a quotient."""
    if power.denominator > 1 and power > 0:
        return _rising(inner, op, number, Rising(lambda c: _root(c, power), lambda x: x >= 0, least=0.0))
    if not 1 <= abs(power) <= _MOST_POWER:
        return None
    if power < 0:
        above = inner if power == -1 else Arithmetic("**", inner, expression_of(-power))
        return Comparison(op, Arithmetic("/", Literal(1), above), expression_of(number))
    if power % 2:
        root = _root(abs(number), power)
        return Comparison(op, inner, expression_of(root if number >= 0 else -root))
    if number < 0:
        return _always(inner, op in (">", ">=", "!="))
    return Comparison(op, Call("abs", (inner,)), expression_of(_root(number, power)))


def _factors(node: Expression) -> tuple[Fraction, list[Expression]]:
    """Return the number and the other factors of a product; a power counts as so many factors."""
    number = number_of(node)
    if number is not None:
        return number, []
    match node:
        case Negative(inner):
            number, factors = _factors(inner)
            return -number, factors
        case Arithmetic("*", left, right):
            (one, before), (two, after) = _factors(left), _factors(right)
            return one * two, [*before, *after]
        case Arithmetic("**", base, exponent) | Call("power" | "pow", (base, exponent)):
            power = number_of(exponent)
            if power is not None and power.denominator == 1 and 1 <= power <= _MOST_POWER:
                return Fraction(1), [base] * int(power)
    return Fraction(1), [node]


def _product(factors: list[Expression], op: str, number: Fraction) -> Expression | None:
    """Write a product of equal factors as a power, and one that is compared with 0 by the signs of its factors."""
    first, *others = factors
    if all(first.same_as(other) for other in others):
        return _power(first, op, number, Fraction(len(factors)))
    if number:
        return None
    if op == "!=":
        return And(tuple(Comparison(op, factor, Literal(0)) for factor in factors))
    if op == "=":  # not that one factor is 0: where another is null or not defined, so is the product
        at_least, at_most = (_product(factors, either, number) for either in (">=", "<="))
        return None if at_least is None or at_most is None else And((at_least, at_most))
    rest = functools.reduce(lambda left, right: Arithmetic("*", left, right), others)
    above, below = (first >= 0, first <= 0) if op in (">=", "<=") else (first > 0, first < 0)
    return Or(
        (
            And((above, Comparison(op, rest, Literal(0)))),
            And((below, Comparison(TURNED[op], rest, Literal(0)))),
        )
    )


def _root(number: Fraction, power: Fraction) -> Fraction:
    """Return the root, exactly if it is a fraction of few digits."""
    if number < 0:
        raise ValueError("a root is not negative")
    near = float(number) ** (1.0 / float(power))
    simple = Fraction(near).limit_denominator(1_000_000)
    return simple if simple**power.numerator == number**power.denominator else Fraction(repr(near))


def _split(node: Comparison, certain: Certain) -> Expression | None:
    """Return the comparison for each branch of the first function in it that has some."""
    found = next((inner for inner in _inside(node) if not certain(inner) and _branches(inner, certain)), None)
    if found is None:
        return None
    counts = sorted(len(_branches(inner, certain)) for inner in _outermost(node, certain))
    if 2 * math.prod(counts[:-1]) > MOST_COMPARISONS:  # the last may need no branches; each branch of the others is cut
        raise too_many_cases(str(node))
    each = []
    for condition, result in _branches(found, certain):
        compared = rewritten(node, lambda other, result=result: result if other is found else None)  # type: ignore[misc]
        each.append(compared if condition is None else And((condition, compared)))
    return each[0] if len(each) == 1 else Or(tuple(each))


def _outermost(node: Expression, certain: Certain) -> Iterator[Expression]:
    """Yield the functions with branches in an expression that are in no other such function."""
    for child in node.children:
        if not certain(child) and _branches(child, certain):
            yield child
        else:
            yield from _outermost(child, certain)


def _inside(node: Expression) -> Iterator[Expression]:
    """Yield everything in an expression, the innermost first."""
    for child in node.children:
        yield from _inside(child)
        yield child
