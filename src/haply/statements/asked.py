"""Queries that ask for more than pairs: the same thing, how many partners there are, and the last event.

Such a query becomes the arguments of ``hp.match``, ``hp.count_matches`` or ``hp.asof``, whose plan then answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from haply.beside import AskedCounts, AskedEvents, AskedMatches, planned
from haply.errors import HaplyError
from haply.joins.counting import ANY, DISTRIBUTION, EXPECTED, quantile_name
from haply.joins.events import Direction
from haply.planning.answers.asof import AsofOptions
from haply.planning.answers.counts import SD, CountOptions
from haply.planning.answers.match import Density, MatchOptions
from haply.planning.frames import InvalidMode, names_of
from haply.planning.plans import PlannedQuery
from haply.planning.several import SUFFIXES, as_join, used_columns
from haply.query import Column, Expression, Literal, columns_of
from haply.query.expressions import Call, Comparison
from haply.statements.bound import PROBABILITY, Bound, CountQuestion, Question, Table
from haply.statements.numbers import QUANTILE, numbers_in, written
from haply.statements.scope import Scope, length_of_time
from haply.statements.syntax import Option

_OPTION_OF = {
    **dict.fromkeys(("DENSITY", "AREA", "COMPLETENESS", "WITHIN", "EXCLUSIVE"), ("SAME", "ON SAME(a.x, b.x)")),
    "LOOKBACK": ("an ASOF JOIN", "a ASOF JOIN b"),
}
"""The kind of query that each option belongs to, and how that is written."""
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def question_of(found: Bound, scope: Scope) -> Question | None:
    """Return what the query asks for instead of pairs; None if it asks for pairs."""
    select, error = found.select, found.statement.error
    same = [one for one in (*select.on, *select.where) if _is_same(one)]
    what = ""
    place: Expression | int = select.start
    if select.asof_start is not None:
        what, place = "an ASOF JOIN", select.asof_start
    elif same:
        what, place = "SAME", same[0]
    elif select.groups:
        what, place = "GROUP BY", select.groups[0]
    if not what and any(map(_mentions_same, (*select.on, *select.where))):
        return None  # a SAME inside another condition, which is refused where conditions are read
    _check_options(found, what)
    if not what:
        return None
    if len(found.tables) != 2:
        raise error(place, f"{what} is for two tables", found=f"{len(found.tables)}")
    if select.groups and what != "GROUP BY":
        raise error(select.groups[0], f"GROUP BY counts the pairs of a condition, and {what} asks something else")
    if select.strict:
        raise error(select.with_start or select.start, f"{what} has no STRICT threshold", hint="leave out STRICT")
    if select.broadcast is not None:
        raise error(select.broadcast.start, f"BROADCAST is not for {what}", hint="leave out the hint")
    if what == "SAME":
        return _same_thing(found, scope, same)
    return _last_event(found, scope) if what == "an ASOF JOIN" else _counted(found, scope)


def _is_same(condition: Expression) -> bool:
    return isinstance(condition, Call) and condition.name == "same"


def _mentions_same(condition: Expression) -> bool:
    return _is_same(condition) or any(map(_mentions_same, condition.children))


def _check_options(found: Bound, what: str) -> None:
    """Refuse options of another kind of query."""
    for option in found.select.options:
        meant, instead = _OPTION_OF[option.name]
        if meant != what:
            raise found.statement.error(
                option.start, f"{option.name} is an option of {meant}, and this query has none",
                hint=f"leave out {option.name}, or write {instead}",
            )  # fmt: skip


# -- the same thing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatchQuestion(Question):
    """``ON SAME(a.pos, b.pos)``, which is ``hp.match``."""

    same: tuple[Any, ...]
    options: MatchOptions

    def plan(self, bound: Bound, invalid: InvalidMode) -> PlannedQuery:
        """Plan it as ``hp.match`` does."""
        node = bound.node(0, invalid)
        options = replace(
            self.options, answer=bound.answer, invalid=invalid, suffixes=SUFFIXES,
            columns=used_columns(node, self.numbers), on=as_join(node)[0] if node.conditions else None,
        )  # fmt: skip
        left, right = node.frames.values()
        return planned(left, right, AskedMatches(list(self.same), options))


def _same_thing(found: Bound, scope: Scope, calls: list[Any]) -> MatchQuestion:
    statement, select = found.statement, found.select
    same: list[Any] = []
    categories: dict[Any, tuple[float, float]] = {}
    for call in calls:
        with statement.at(call):
            names, more = _compared(found, scope, call)
            if len(more) == 2:
                categories[names] = more[0], more[1]
            elif same and not more:
                raise HaplyError(
                    "A further SAME does not say how common its values are among unrelated rows",
                    expected=f"SAME({call.args[0]}, {call.args[1]}, 0.1)",
                    found=f"SAME({call.args[0]}, {call.args[1]})",
                    hint="0.1 stands for the share of unrelated rows per unit of the value: a number, or a column of "
                    + found.tables[1].alias,
                )
            else:
                same.append((*names, *more))
    filters = tuple(one for one in select.where if not _is_same(one))
    if select.outer is not None and len(filters) < len(select.where):
        raise statement.error(calls[-1], f"{select.outer.words} has its conditions in ON", hint="move SAME into ON")
    certain = tuple(one for one in select.on if not _is_same(one))
    for one in (*certain, *filters):
        condition = scope.condition(one)
        if condition is None or not all(map(scope.is_certain, columns_of(condition))):
            _refuse_beside_same(found, scope, one)
    given = {option.name: option for option in select.options}
    if not same:
        raise statement.error(
            calls[0], "SAME compares categories only", expected="a value that is measured as well",
            hint="as in SAME(a.x, b.x) AND SAME(a.kind, b.kind, 0.9, 0.1)",
        )  # fmt: skip
    if "COMPLETENESS" not in given and ("DENSITY" in given or "AREA" in given):
        left, right = (table.alias for table in found.tables)
        raise statement.error(
            calls[0], f"SAME needs a completeness: the share of rows of {left} that have a counterpart in {right}",
            expected="a number between 0 and 1, both excluded", hint="write WITH COMPLETENESS 0.6",
        )  # fmt: skip
    exclusive = "EXCLUSIVE" in given
    with statement.at(calls[0] if select.with_start is None else select.with_start):
        options = MatchOptions(
            _density(found, scope, given), _number(found, given.get("COMPLETENESS")), select.threshold,
            exclusive=exclusive, within=_number(found, given.get("WITHIN")), by_category=categories or None,
        )  # fmt: skip
    numbers = ("bayes_factor", "p_match", *(("p_low", "p_high") if exclusive else ()), "p_any")
    return MatchQuestion(numbers, certain, filters, tuple(same), options)


def _compared(found: Bound, scope: Scope, call: Call) -> tuple[tuple[str, str], list[Any]]:
    """Return the columns of both tables that SAME compares, and what else it says."""
    expected = "SAME(a.x, b.x), SAME(a.x, b.x, density) or SAME(a.kind, b.kind, share, share)"
    if not 2 <= len(call.args) <= 4:
        raise HaplyError("SAME compares a column of each table", expected=expected, found=f"`{call}`")
    left, right = (table.alias for table in found.tables)
    ends = [scope.value(one) for one in call.args[:2]]
    columns = {one.table: one.name for one in ends if isinstance(one, Column) and one.index is None}
    if set(columns) != {left, right}:
        raise HaplyError(
            "SAME compares a column of each table", expected=expected, found=f"`{call}`",
            hint="compute other expressions as columns in a query in parentheses",
        )  # fmt: skip
    more: list[Any] = []
    for one in call.args[2:]:
        value = scope.value(one)
        match value:
            case Literal(int() | float() as number) if not isinstance(number, bool):
                more.append(number)
            case Column(table, name, None) if table == right and len(call.args) == 3:
                more.append(name)
            case _:
                raise HaplyError(
                    f"`{one}` is not a density of unrelated rows", expected=f"a number, or a column of {right}",
                    hint="with four arguments, two shares of rows that agree",
                )  # fmt: skip
    return (columns[left], columns[right]), more


def _refuse_beside_same(found: Bound, scope: Scope, original: Expression) -> None:
    if scope.condition(original) is None:
        raise found.statement.error(
            original, "WINDOW cannot be used together with SAME", expected="SAME and certain conditions, with AND",
            hint="times that are measured on both sides are a further SAME",
        )  # fmt: skip
    raise found.statement.error(
        original, "An uncertain condition cannot be used together with SAME",
        expected="SAME, or conditions WITH THRESHOLD", found=f"`{original}`",
        hint="SAME needs no limit; write SAME for each value that is measured on both sides",
    )  # fmt: skip


def _density(found: Bound, scope: Scope, given: Mapping[str, Option]) -> Any:
    """Return the density as ``hp.match`` takes it: a number, a left column, or an area; none if it is not given."""
    if "AREA" in given:
        return Density(_number(found, given["AREA"]))
    option = given.get("DENSITY")
    if option is None or not isinstance(option.value, Column):
        return _number(found, option)
    column, left = scope.value(option.value), found.tables[0].alias
    if not isinstance(column, Column) or column.table != left or column.index is not None:
        raise found.statement.error(
            option.value, f"the density is not a column of {left}", expected=f"a number, or a column of {left}",
            found=f"`{option.value}`",
        )  # fmt: skip
    return column.name


def _number(found: Bound, option: Option | None) -> Any:
    """Return the number that an option gives; none if the option is not there."""
    if option is None:
        return None
    match option.value:
        case Literal(int() | float() as number) if not isinstance(number, bool):
            return number
    raise found.statement.error(
        option.value, f"{option.name} is not a number", expected=f"a number, as in {option.name} 0.5",
        found=f"`{option.value}`",
    )  # fmt: skip


# -- how many partners -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountedPartners(CountQuestion):
    """``GROUP BY a``, which is ``hp.count_matches``."""

    quantiles: tuple[float, ...]
    distribution: bool

    def plan(self, bound: Bound, invalid: InvalidMode) -> PlannedQuery:
        """Plan it as ``hp.count_matches`` does."""
        left = bound.tables[0]
        if not any(table == left.alias for table, _ in bound.used):
            bound.used.add((left.alias, left.shown[0]))  # rows are identified by their columns
        node = bound.node(0, invalid)
        on, join = as_join(node)
        columns = [name for name in names_of(left.frame) if (left.alias, name) in bound.used]
        options = CountOptions(
            bound.select.threshold, self.by or None, self.quantiles or None, self.distribution, time=join.time,
            window=join.window, invalid=invalid, columns=None if self.by else columns,
        )  # fmt: skip
        one, other = node.frames.values()
        return planned(one, other, AskedCounts(on, options))


def _counted(found: Bound, scope: Scope) -> CountedPartners:
    select, error = found.select, found.statement.error
    left, right = found.tables
    if select.outer is None or select.outer.how != "left":
        place = select.groups[0] if select.outer is None else select.outer.start
        raise error(
            place, f"GROUP BY counts the partners of every row of {left.alias}, also of those without any",
            expected="a LEFT JOIN", hint=f"write FROM {left.alias} LEFT JOIN {right.alias}",
        )  # fmt: skip
    if select.kept is not None:
        raise error(select.kept.start, "KEEP chooses pairs, and GROUP BY counts them all", hint="leave out KEEP")
    by = _groups(found, scope)
    if by and select.threshold is not None:
        raise error(
            select.with_start or select.start, "THRESHOLD is about rows, and this GROUP BY asks about groups",
            hint=f"leave out THRESHOLD, or write GROUP BY {left.alias}",
        )  # fmt: skip
    quantiles: dict[float, None] = {}
    distribution = False
    for expression, _ in written(select):
        for call in numbers_in(expression):
            distribution |= call.name == "matches_distribution"
            match call.args:
                case (Literal(int() | float() as level),) if call.name == QUANTILE:
                    quantiles[float(level)] = None
    if by:
        return CountedPartners((EXPECTED, SD), select.on, select.where, by, (), False)
    numbers = (EXPECTED, SD, ANY, *map(quantile_name, quantiles), *((DISTRIBUTION,) if distribution else ()))
    return CountedPartners(numbers, select.on, select.where, (), tuple(quantiles), distribution)


def _groups(found: Bound, scope: Scope) -> tuple[str, ...]:
    """Return the columns of groups in the order of their table; none if GROUP BY names the table itself."""
    groups, (left, right) = found.select.groups, found.tables
    names: set[str] = set()
    for one in groups:
        table = _table_named(found, one)
        if table is left and len(groups) == 1:
            return ()
        column = scope.value(one) if isinstance(one, Column) and table is None else None
        if not isinstance(column, Column) or column.table != left.alias or column.index is not None:
            raise found.statement.error(
                one, f"GROUP BY is about rows of {left.alias}", expected=f"{left.alias}, or columns of {left.alias}",
                found=f"`{one}`",
                hint=f"to count for rows of {right.alias}, write FROM {right.alias} LEFT JOIN {left.alias}",
            )  # fmt: skip
        names.add(column.name)
    return tuple(name for name in left.shown if name in names)


def _table_named(found: Bound, one: Expression) -> Table | None:
    """Return the table whose name this is; None if it is something else."""
    if not isinstance(one, Column) or one.table is not None:
        return None
    return next((table for table in found.tables if table.alias.lower() == one.name.lower()), None)


# -- the last event ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastQuestion(Question):
    """``ASOF JOIN``, which is ``hp.asof``."""

    times: tuple[str, str]
    by: tuple[tuple[str, str], ...]
    lookback: Any
    direction: Direction

    def plan(self, bound: Bound, invalid: InvalidMode) -> PlannedQuery:
        """Plan it as ``hp.asof`` does."""
        node = bound.node(0, invalid)
        options = AsofOptions(
            self.by, self.lookback, self.direction, bound.select.threshold, replace(bound.answer, order_by=None),
            invalid=invalid, suffixes=SUFFIXES, columns=used_columns(node, self.numbers),
        )  # fmt: skip
        left, right = node.frames.values()
        return planned(left, right, AskedEvents(self.times, options))


def _last_event(found: Bound, scope: Scope) -> LastQuestion:
    error = found.statement.error
    left, right = (table.alias for table in found.tables)
    keys: list[tuple[str, str]] = []
    times: list[tuple[str, str, Direction]] = []
    for original in found.select.on:
        nearest = isinstance(original, Call) and original.name == "nearest" and len(original.args) == 2
        # the nearest time is written as a function, and read as a comparison
        condition = scope.condition(Comparison("<=", *original.args) if nearest else original)  # type: ignore[attr-defined]
        match condition:
            case Comparison(op, Column(_, _, None) as one, Column(_, _, None) as other) if {one.table, other.table} == {
                left, right
            }:  # fmt: skip
                if one.table == right:
                    op, one, other = _MIRRORED.get(op, op), other, one
                if op == "=" and scope.is_certain(one) and scope.is_certain(other):
                    keys.append((one.name, other.name))
                    continue
                if op in ("<", ">"):
                    raise error(
                        original, "an ASOF JOIN takes events at the same time as well", found=f"`{original}`",
                        hint=f"write {'>=' if '>' in str(original) else '<='}",
                    )  # fmt: skip
                if nearest:
                    times.append((one.name, other.name, "nearest"))
                    continue
                if op in ("<=", ">="):
                    times.append((one.name, other.name, "backward" if op == ">=" else "forward"))
                    continue
        raise error(
            original, "this condition is not for an ASOF JOIN", found=f"`{original}`",
            expected=f"equal certain columns, and one comparison of times, as {right}.time <= {left}.time or "
            f"NEAREST({left}.time, {right}.time)",
            hint="WITH LOOKBACK 10 limits how far back events are; choose rows in a query in parentheses",
        )  # fmt: skip
    if len(times) != 1:
        raise error(
            found.select.asof_start or 0, "an ASOF JOIN compares the times of both tables once",
            expected=f"ON {right}.time <= {left}.time", found=f"{len(times)} comparisons",
            hint="WITH LOOKBACK 10 limits how far back events are" if times else "",
        )  # fmt: skip
    mine, theirs, direction = times[0]
    lookback = None
    for option in found.select.options:
        lookback = length_of_time(option.value)
        if lookback is None:
            raise error(
                option.value, "the lookback is no length of time", expected="a number, or a duration",
                found=f"`{option.value}`", hint="write LOOKBACK 10, '10 seconds' or INTERVAL 10 SECONDS",
            )  # fmt: skip
    return LastQuestion(
        (PROBABILITY, ANY), (), found.select.where, (mine, theirs), tuple(keys), lookback, direction
    )  # fmt: skip
