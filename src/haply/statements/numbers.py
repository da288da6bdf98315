"""The functions of the select list that are numbers of the answer, such as ``PROB()`` and ``P_MATCH()``."""

from __future__ import annotations

from collections.abc import Iterator

from haply.errors import HaplyError
from haply.joins.counting import ANY, DISTRIBUTION, EXPECTED, quantile_name
from haply.planning.answers.counts import SD
from haply.query import Expression, Literal
from haply.query.expressions import Call
from haply.statements.bound import PROBABILITY, Bound, CountQuestion
from haply.statements.syntax import Select

QUANTILE = "matches_quantile"
NUMBERS = {
    "prob": PROBABILITY, "p_match": "p_match", "bayes_factor": "bayes_factor", "p_low": "p_low", "p_high": "p_high",
    "p_any": ANY, "expected_matches": EXPECTED, "sd_matches": SD, "matches_distribution": DISTRIBUTION,
}  # fmt: skip
"""The column of the answer that each function means. That of ``MATCHES_QUANTILE(0.95)`` depends on its argument."""
NUMBER_FUNCTIONS = (*NUMBERS, QUANTILE)

_COUNTS = ("expected_matches", "sd_matches", "matches_distribution", QUANTILE)


def number_column(call: Call) -> str:
    """Name the column that a function means, and refuse arguments that it does not take."""
    if call.name == QUANTILE:
        match call.args:
            case (Literal(int() | float() as level),) if not isinstance(level, bool):
                return quantile_name(level)
        raise HaplyError("MATCHES_QUANTILE() takes one probability", hint="as in MATCHES_QUANTILE(0.95)")
    if call.args:
        raise HaplyError(f"{call.name.upper()}() takes no arguments")
    return NUMBERS[call.name]


def has_no_number(call: Call, found: Bound) -> HaplyError:
    """Make the error for a number that the answer of this query does not have."""
    left = found.tables[0].alias
    right = found.tables[1].alias if len(found.tables) > 1 else "b"
    name, asked = f"{call.name.upper()}()", found.question
    counted = f"FROM {left} LEFT JOIN {right} ON ... GROUP BY {left}"
    same = f"FROM {left} JOIN {right} ON SAME({left}.x, {right}.x) WITH DENSITY 0.02 COMPLETENESS 0.6"
    if isinstance(asked, CountQuestion) and asked.by and call.name in ("p_any", "matches_distribution", QUANTILE):
        return HaplyError(
            f"{name} is about one row, and this GROUP BY asks about groups", hint=f"write GROUP BY {left}"
        )
    if call.name in _COUNTS:
        return HaplyError(
            f"{name} is about all partners of a row, and this query does not count them",
            hint=f"write {counted}",
        )
    if call.name == "p_any":
        return HaplyError(
            "P_ANY() is about all partners of a row, and this query asks for pairs one by one",
            expected=f"GROUP BY {left}, ON SAME({left}.x, {right}.x), or an ASOF JOIN",
            hint=f"write {counted}",
        )
    if call.name == "prob":
        instead = "P_MATCH()" if "p_match" in found.known_numbers else "EXPECTED_MATCHES()"
        return HaplyError("PROB() is about pairs that fulfil a condition", hint=f"here, write {instead}")
    if call.name in ("p_low", "p_high") and "p_match" in found.known_numbers:
        return HaplyError(f"{name} is a bound for EXCLUSIVE matches", hint="write WITH EXCLUSIVE, or P_MATCH()")
    return HaplyError(
        f"{name} is about rows that are the same thing, and this query has no SAME", hint=f"write {same}"
    )  # fmt: skip


def written(select: Select) -> Iterator[tuple[Expression, int]]:
    """Yield the expressions after SELECT and ORDER BY, and where they begin."""
    for item in select.items:
        if item.expression is not None:
            yield item.expression, item.start
    for key in select.order:
        yield key.expression, key.start


def numbers_in(expression: Expression) -> Iterator[Call]:
    """Yield the calls of such functions in an expression."""
    if isinstance(expression, Call) and expression.name in NUMBER_FUNCTIONS:
        yield expression
    for child in expression.children:
        yield from numbers_in(child)
