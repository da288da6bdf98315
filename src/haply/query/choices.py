"""Combinations of conditions other than AND, and functions that can be written as such combinations.

``spelled_out`` writes XOR, CASE, IN, greatest(), least(), abs() in a sum, a quotient and increasing functions as
comparisons of sums, with AND and OR between them. ``choice_of`` brings each comparison of such a tree into the normal
form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from haply.errors import HaplyError
from haply.probability.joint import independent_groups
from haply.query.columns import columns_of
from haply.query.expressions import (
    And,
    Arithmetic,
    Between,
    Call,
    Column,
    Comparison,
    Expression,
    Negative,
    Not,
    Opaque,
    Or,
    Xor,
    rewritten,
)
from haply.query.forms import (
    TURNED,
    Near,
    Part,
    any_value,
    certain_rest,
    expression_of,
    form_or_reason,
    never_holds,
    normal_form,
    number_of,
    owner_of,
)
from haply.selection.cases import MOST_CASES, too_many_cases

IsCertain = Callable[[Column], bool]


# -- combinations in the normal form -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Branch:
    """All, or any, of some combinations hold: always, or never, if there are none."""

    all: bool
    parts: tuple[Combination, ...]

    def __str__(self) -> str:
        if not self.parts:
            return "true" if self.all else "false"
        word = " AND " if self.all else " OR "
        return word.join(f"({part})" if isinstance(part, (Branch, Parity)) else str(part) for part in self.parts)


@dataclass(frozen=True, eq=False)
class Known:
    """A condition in which nothing is uncertain."""

    condition: Expression

    def __str__(self) -> str:
        return f"certain: {self.condition}"


@dataclass(frozen=True, eq=False)
class Parity:
    """An odd number of combinations hold that share no uncertain columns; each is stored with its opposite."""

    pairs: tuple[tuple[Combination, Combination], ...]

    def __str__(self) -> str:
        parts = [holds for holds, _ in self.pairs]
        return " XOR ".join(f"({part})" if isinstance(part, (Branch, Parity)) else str(part) for part in parts)


Combination = Part | Near | Known | Branch | Parity


@dataclass(frozen=True, eq=False)
class Choice:
    """One condition: a combination of others."""

    tree: Branch | Parity
    text: str

    def __str__(self) -> str:
        return f"({self.tree})"


def leaves(tree: Combination) -> Iterator[Part | Near | Known]:
    """Yield the conditions of a combination."""
    if isinstance(tree, Branch):
        for part in tree.parts:
            yield from leaves(part)
    elif isinstance(tree, Parity):
        for pair in tree.pairs:
            for part in pair:
                yield from leaves(part)
    else:
        yield tree


def parts_of(part: Part | Near | Choice) -> list[Part | Near]:
    """The uncertain conditions of a part: itself, or those of a combination."""
    if isinstance(part, Choice):
        return [leaf for leaf in leaves(part.tree) if not isinstance(leaf, Known)]
    return [part]


def changed(tree: Combination, change: Callable[[Part], Part]) -> Combination:
    """The same combination of other parts."""
    if isinstance(tree, Branch):
        return Branch(tree.all, tuple(changed(part, change) for part in tree.parts))
    if isinstance(tree, Parity):
        return Parity(tuple((changed(holds, change), changed(fails, change)) for holds, fails in tree.pairs))
    return change(tree) if isinstance(tree, Part) else tree


def part_or_choice(condition: Expression, is_certain: IsCertain) -> Part | Near | Choice:
    """Return the normal form of a condition whose NOTs precede single comparisons."""
    if isinstance(condition, (And, Or)):
        whole = form_or_reason(condition, is_certain)
        if isinstance(whole, str) or not _is_plain(whole):
            tree = _combination(condition, is_certain)
            assert isinstance(tree, Branch)
            return Choice(tree, str(condition))
    if isinstance(condition, Xor):
        return Choice(_parity(condition, is_certain), str(condition))
    known = _cancelled(condition, is_certain)
    if known is not None:
        if not known.all:
            raise never_holds(condition)
        return Choice(known, str(condition))
    return normal_form(condition, is_certain)


def _cancelled(condition: Expression, is_certain: IsCertain) -> Branch | None:
    """Return what is left of a comparison whose uncertain columns cancel out: it still needs a known value to hold."""
    rest = certain_rest(condition, is_certain)
    if rest is None or (isinstance(rest, bool) and not rest):
        return None if rest is None else Branch(False, ())
    owners = {owner_of(column): column for column in columns_of(condition) if not is_certain(column)}
    parts = [any_value(column) for column in owners.values()]
    return Branch(True, (*([Known(rest)] if isinstance(rest, Expression) else []), *parts))


def _combination(condition: Expression, is_certain: IsCertain) -> Combination:
    if all(is_certain(column) for column in columns_of(condition)):
        return Known(condition)
    if isinstance(condition, (And, Or)):
        whole = form_or_reason(condition, is_certain)
        if isinstance(whole, str) or not _is_plain(whole):
            parts = tuple(_combination(each, is_certain) for each in condition.conditions)
            return Branch(isinstance(condition, And), parts)
        return whole
    if isinstance(condition, Xor):
        return _parity(condition, is_certain)
    known = _cancelled(condition, is_certain)
    if known is not None:
        return known
    return normal_form(condition, is_certain, refuse_never=False)


def _parity(condition: Xor, is_certain: IsCertain) -> Parity:
    opposites = [inward(Not(each), is_certain) for each in condition.conditions]
    both = zip(condition.conditions, opposites, strict=True)
    return Parity(tuple((_combination(holds, is_certain), _combination(fails, is_certain)) for holds, fails in both))


def _is_plain(part: Part | Near) -> bool:
    """Return whether a part has numbers as limits: then the complement of its ranges is known."""
    return isinstance(part, Near) or not any(
        isinstance(end, Expression) for each in part.intervals for end in (each.low, each.high)
    )


# -- spelling out ------------------------------------------------------------------------------------------------------


def spelled_out(condition: Expression, is_certain: IsCertain) -> Expression:
    """Rewrite the uncertain parts of a condition as comparisons of sums, with AND, OR and NOT between them."""

    def certain(node: Expression) -> bool:
        return all(is_certain(column) for column in columns_of(node))

    def out(node: Expression) -> Expression:
        if certain(node):
            return node
        match node:
            case And(conditions):
                return And(tuple(map(out, conditions)))
            case Or(conditions):
                return Or(tuple(map(out, conditions)))
            case Not(inner):
                return Not(out(inner))
            case Comparison() if _is_exclusive(node):
                return exclusive(node)
            case Opaque():
                listed = _in_list(node)
                listed = _as_condition(node, certain) if listed is None else listed
                return node if listed is None else out(listed)
            case Comparison() | Between():
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
        found = Xor(tuple(out(functools.reduce(_exclusive, group)) for group in groups))
        return Not(found) if even else found

    if _written(condition, is_certain) > MOST_CASES:
        raise too_many_cases(str(condition))
    return out(condition)


def inward(condition: Expression, is_certain: IsCertain) -> Expression:
    """Move NOT inward to single comparisons, wherever something uncertain is in them."""
    if all(is_certain(column) for column in columns_of(condition)):
        return condition
    match condition:
        case Not(Not(inner)):
            return inward(inner, is_certain)
        case Not(Or(conditions)):
            return And(tuple(inward(Not(each), is_certain) for each in conditions))
        case Not(And(conditions)):
            return Or(tuple(inward(Not(each), is_certain) for each in conditions))
        case Not(Xor((first, *others))):
            return Xor(tuple(inward(each, is_certain) for each in (Not(first), *others)))
        case And(conditions) | Or(conditions) | Xor(conditions):
            return type(condition)(tuple(inward(each, is_certain) for each in conditions))
    return condition


def _is_exclusive(node: Expression) -> bool:
    """Return whether it is XOR, or its opposite ``=``, between two conditions."""
    return isinstance(node, Comparison) and node.op in ("=", "!=") and all(map(_is_condition, node.children))


def _exclusive_groups(node: Expression, is_certain: IsCertain) -> tuple[bool, list[tuple[Expression, ...]]]:
    """Return whether an even number must hold, and the conditions of an XOR in groups that share uncertain columns."""
    parts, even = [], False
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if _is_exclusive(part):
            assert isinstance(part, Comparison)
            even ^= part.op == "="
            waiting += [part.right, part.left]
        else:
            parts.append(part)

    def names(part: Expression) -> list[str]:
        return [owner_of(column) for column in columns_of(part) if not is_certain(column)] or [f"certain {id(part)}"]

    return even, independent_groups(parts, names)


def _written(node: Expression, is_certain: IsCertain) -> int:
    """Estimate the number of comparisons when each XOR of conditions that share columns is written as two cases."""
    if _is_exclusive(node):
        _, groups = _exclusive_groups(node, is_certain)
        return sum(sum(_written(part, is_certain) for part in group) << len(group) for group in groups)
    return sum(_written(child, is_certain) for child in node.children) + isinstance(node, Comparison)


Certain = Callable[[Expression], bool]


def _is_condition(node: Expression) -> bool:
    return isinstance(node, (And, Or, Not, Comparison, Between)) or (
        isinstance(node, Opaque) and (_in_list(node) is not None or _cases_of(node) is not None)
    )


def _not_true(condition: Expression, certain: Certain) -> Expression:
    """Return a condition that holds where another is false or unknown; an uncertain one is never unknown."""
    if certain(condition):
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
    """The conditions and results of ``CASE WHEN ... THEN ... END``; the last, ELSE, has no condition."""
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
    """Return the cases of a function, by conditions that exclude one another; none if it is not such a function."""
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


def _as_condition(node: Opaque, certain: Certain) -> Expression | None:
    """A CASE whose results are conditions."""
    found = [
        result if condition is None else And((condition, result)) for condition, result in _branches(node, certain)
    ]
    return None if not found else found[0] if len(found) == 1 else Or(tuple(found))


def _simpler(node: Comparison | Between, certain: Certain) -> Expression | None:
    """Return the comparison without one of its functions; None if this module knows none of them."""
    if isinstance(node, Between):
        return And((Comparison(">=", node.value, node.low), Comparison("<=", node.value, node.high)))
    for side, other, op in ((node.left, node.right, node.op), (node.right, node.left, TURNED.get(node.op, node.op))):
        found = _of_one_side(side, other, op, certain)
        if found is not None:
            return found
    return _split(node, certain)


def _of_one_side(side: Expression, other: Expression, op: str, certain: Certain) -> Expression | None:
    """Return ``f(...) op other`` without its function."""
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
    number = number_of(other)
    if number is None:
        return None
    match side:
        case Call("exp", (inner,)):
            return _rising(inner, op, _log(number), None)
        case Call("ln" | "log", (inner,)):
            return _rising(inner, op, _exp(number), "above 0")
        case Call("sqrt", (inner,)):
            return _rising(inner, op, number * number if number >= 0 else None, "from 0", below=number < 0)
        case Arithmetic("**", inner, exponent) | Call("power" | "pow", (inner, exponent)):
            power = number_of(exponent)
            if power is not None and power.denominator == 1 and 2 < power <= 64:
                return _power(inner, op, number, int(power))
    return None


def _rising(
    inner: Expression, op: str, limit: Fraction | None, domain: str | None, *, below: bool = True
) -> Expression:
    """Return ``f(inner) op c`` for an increasing function as ``inner op limit``, where the function is defined.

    Without a limit, ``c`` lies ``below`` all values of the function.
    """
    inside: list[Expression] = []
    if domain is not None:
        inside = [inner >= 0 if domain == "from 0" else inner > 0]
    if limit is None:
        holds = (op in (">", ">=", "!=")) == below
        return inside[0] if holds and inside else _always(inner, holds)
    compared = Comparison(op, inner, expression_of(limit))
    return And((*inside, compared)) if inside else compared


def _always(inner: Expression, holds: bool) -> Expression:
    """A condition on an expression that holds always, or never."""
    either = Or((inner >= 0, inner < 0))
    return either if holds else And((inner > 0, inner < 0))


def _power(inner: Expression, op: str, number: Fraction, power: int) -> Expression:
    """Rewrite a power: an odd one increases, an even one is that of the absolute value."""
    root = _root(abs(number), power)
    if power % 2:
        return Comparison(op, inner, expression_of(root if number >= 0 else -root))
    if number < 0:
        return _always(inner, op in (">", ">=", "!="))
    return Comparison(op, Call("abs", (inner,)), expression_of(root))


def _root(number: Fraction, power: int) -> Fraction:
    near = float(number) ** (1.0 / power)
    whole = Fraction(round(near))
    return whole if whole**power == number else Fraction(repr(near))


def _log(number: Fraction) -> Fraction | None:
    return Fraction(repr(math.log(number))) if number > 0 else None


def _exp(number: Fraction) -> Fraction:
    if number > 700:
        raise HaplyError(f"exp({float(number):g}) is too large to be compared with")
    return Fraction(repr(math.exp(number)))


def _split(node: Comparison, certain: Certain) -> Expression | None:
    """The comparison for each branch of the first function in it that has some."""
    found = next((inner for inner in _inside(node) if not certain(inner) and _branches(inner, certain)), None)
    if found is None:
        return None
    each = []
    for condition, result in _branches(found, certain):
        compared = rewritten(node, lambda other, result=result: result if other is found else None)  # type: ignore[misc]
        each.append(compared if condition is None else And((condition, compared)))
    return each[0] if len(each) == 1 else Or(tuple(each))


def _inside(node: Expression) -> Iterator[Expression]:
    """Yield everything in an expression, the innermost first."""
    for child in node.children:
        yield from _inside(child)
        yield child
