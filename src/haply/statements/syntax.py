"""Reads a query: ``SELECT ... FROM ... WHERE ... WITH THRESHOLD p``. Expressions in it are read as conditions are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath

from haply.errors import HaplyError
from haply.query.expressions import RESERVED, And, Column, Expression, Literal, sql_text
from haply.query.text import Parser, TextPlaces, Token, place_in, tokens_of

_JOIN_WORDS = "JOIN INNER CROSS LEFT RIGHT FULL OUTER SEMI ANTI NATURAL LATERAL ASOF"
_JOINS = frozenset(_JOIN_WORDS.split())
_HOW = {
    "": "inner", "INNER": "inner", "CROSS": "inner", "LEFT": "left", "LEFT OUTER": "left", "RIGHT": "right",
    "RIGHT OUTER": "right", "FULL": "outer", "FULL OUTER": "outer", "LEFT SEMI": "semi", "SEMI": "semi",
    "LEFT ANTI": "anti", "ANTI": "anti",
}  # fmt: skip
"""What the words before JOIN mean, as ``how`` of ``hp.join``."""
_KNOWN_JOINS = "LEFT, RIGHT, FULL, LEFT SEMI, LEFT ANTI, CROSS, ASOF and ASOF LEFT JOIN"
_OPTIONS = ("THRESHOLD", "DENSITY", "COMPLETENESS", "WITHIN", "EXCLUSIVE", "LOOKBACK")
"""What WITH may say."""
_CLAUSE_WORDS = (
    "WHERE WITH KEEP ORDER LIMIT GROUP HAVING UNION EXCEPT MINUS INTERSECT OFFSET SORT CLUSTER DISTRIBUTE ON USING "
    "JOIN INNER CROSS FULL NATURAL TABLESAMPLE PIVOT UNPIVOT QUALIFY FETCH SELECT FROM AS"
)
_AFTER_A_TABLE = frozenset(_CLAUSE_WORDS.split())
_ON_THE_RESULT = {
    "GROUP": ("GROUP BY", "df.groupBy(...).agg(...)"),
    "HAVING": ("HAVING", "df.groupBy(...).agg(...).where(...)"),
    "DISTINCT": ("DISTINCT", "df.distinct()"),
    "OFFSET": ("OFFSET", "df.offset(n)"),
    "UNION": ("UNION", "df.union(other)"),
    "EXCEPT": ("EXCEPT", "df.exceptAll(other)"),
    "MINUS": ("MINUS", "df.exceptAll(other)"),
    "INTERSECT": ("INTERSECT", "df.intersect(other)"),
    "QUALIFY": ("QUALIFY", "df.where(...)"),
    "PIVOT": ("PIVOT", "df.groupBy(...).pivot(...)"),
    "TABLESAMPLE": ("TABLESAMPLE", "df.sample(share), on the table"),
    "OVER": ("a window function", "df.withColumn(...)"),
    "SORT": ("SORT BY", "df.sortWithinPartitions(...)"),
    "CLUSTER": ("CLUSTER BY", "df.repartition(...)"),
    "DISTRIBUTE": ("DISTRIBUTE BY", "df.repartition(...)"),
    "FETCH": ("FETCH", "LIMIT, or df.limit(n)"),
}
_AGGREGATE_WORDS = (
    "any_value approx_count_distinct avg collect_list collect_set corr count count_if covar_pop covar_samp dense_rank "
    "every first lag last lead max max_by mean median min min_by mode percentile percentile_approx rank row_number "
    "stddev stddev_pop stddev_samp sum var_pop var_samp variance"
)
_AGGREGATES = frozenset(_AGGREGATE_WORDS.split())
_BROADCASTS = ("BROADCAST", "BROADCASTJOIN", "MAPJOIN")  # as Spark has it
_EXAMPLE = "SELECT * FROM a, b WHERE abs(a.x - b.x) <= 1 WITH THRESHOLD 0.5"
_DEEPEST_QUERY = 20


@dataclass(frozen=True)
class Item:
    """One thing to select: an expression, or all columns (of one table, if it is named)."""

    expression: Expression | None
    table: str | None
    name: str | None
    start: int


@dataclass(frozen=True)
class Source:
    """A table by its name, of several parts if it is in a schema, or a file in quotes, or a query in parentheses."""

    name: tuple[str, ...]
    query: Select | None
    alias: str
    start: int
    is_file: bool = False
    key: tuple[str, ...] = ()
    """The columns of its key: rows with equal keys are the same."""


@dataclass(frozen=True)
class SortKey:
    """One key of the order."""

    expression: Expression
    descending: bool
    nulls_first: bool | None
    start: int


@dataclass(frozen=True)
class Hint:
    """``/*+ BROADCAST(a) */``: send a whole table to every task."""

    table: str
    start: int


@dataclass(frozen=True)
class Option:
    """An option of WITH besides the threshold, as ``COMPLETENESS 0.6``. ``DENSITY AREA 400`` is called AREA."""

    name: str
    value: Expression
    start: int


@dataclass(frozen=True)
class Kept:
    """``KEEP BEST 3 PER a WITH TIES``, ``KEEP MUTUAL``, ``KEEP ONE TO ONE`` or ``KEEP ALL``."""

    what: str
    table: str | None
    count: int | None
    ties: bool
    start: int


@dataclass(frozen=True)
class Outer:
    """A join that returns rows without a partner, or only rows of its first table."""

    how: str
    words: str
    start: int


@dataclass(frozen=True)
class Select:
    """A query as it is written; all conditions must hold."""

    start: int
    items: tuple[Item, ...]
    sources: tuple[Source, ...]
    on: tuple[Expression, ...]
    where: tuple[Expression, ...]
    threshold: float | None
    strict: bool
    with_start: int | None
    order: tuple[SortKey, ...]
    limit: int | None
    broadcast: Hint | None = None
    outer: Outer | None = None
    kept: Kept | None = None
    options: tuple[Option, ...] = ()
    groups: tuple[Expression, ...] = ()
    """The columns after GROUP BY; the name of a table is read as a column."""
    asof_start: int | None = None

    @property
    def conditions(self) -> tuple[Expression, ...]:
        """Return what pairs must fulfil: WHERE is the same as ON, unless rows without a partner are returned."""
        return self.on if self.outer is not None else self.on + self.where

    @property
    def filters(self) -> tuple[Expression, ...]:
        """Return what WHERE asks of the result of an outer join: unlike ON, it cannot take a row's partner away."""
        return self.where if self.outer is not None else ()


@dataclass(frozen=True)
class Statement:
    """A query with its text and the places of all expressions in it."""

    text: str
    select: Select
    places: TextPlaces

    def sources(self) -> list[Source]:
        """Return all tables that the query names, also those in parentheses."""
        return list(_named_sources(self.select))

    def error(
        self, at: Expression | int, what: str, *, expected: str = "", found: str = "", hint: str = ""
    ) -> HaplyError:
        """Make the error for a place in the query."""
        return HaplyError(what, expected=expected, found=found, hint=hint, place=self.place(at))

    def place(self, at: Expression | int) -> str:
        """Describe a place in the query."""
        offset = at if isinstance(at, int) else self.places.start(at)
        return place_in(self.text, self.select.start if offset is None else offset)

    @contextmanager
    def at(self, place: Expression | int) -> Iterator[None]:
        """Report errors raised inside at this place."""
        try:
            yield
        except HaplyError as refusal:
            raise refusal.at(self.place(place)) from None


def _named_sources(select: Select) -> Iterator[Source]:
    for source in select.sources:
        if source.query is None:
            yield source
        else:
            yield from _named_sources(source.query)


def read(text: str) -> Statement:
    """Read a query from a text."""
    if not isinstance(text, str):
        raise HaplyError(f"A query is of type {type(text).__name__}", expected="text", hint=f'as in "{_EXAMPLE}"')
    parser = _SelectParser(text, tokens_of(text, 0, len(text)))
    try:
        return Statement(text, parser.query(), parser.places)
    except RecursionError:  # the caller may have used up most of Python's stack
        raise parser.too_deep() from None


class _SelectParser(Parser):
    """The clauses of a query, over the grammar of expressions."""

    reserved = RESERVED | _AFTER_A_TABLE
    inside = 0

    def query(self) -> Select:
        """Read the whole text, except a semicolon at its end."""
        found = self.select()
        self.take_if(";")
        if self.next.kind != "end":
            raise self.misplaced("this does not continue the query")
        return found

    def select(self) -> Select:
        self.inside += 1
        if self.inside > _DEEPEST_QUERY:
            raise self.too_deep()
        start = self.next.start
        if self.next.key != "SELECT":
            what = "the query is empty" if self.next.kind == "end" else "a query begins with SELECT"
            raise self.error(self.next, what, expected="SELECT", hint=f"write {_EXAMPLE}")
        self.take()
        broadcast = self.hint() if self.take_if("/*+") else None
        self.refuse_what_is_for_the_result()
        self.take_if("ALL")
        items = [self.item()]
        while self.take_if(","):
            items.append(self.item())
        if self.next.key != "FROM":
            raise self.misplaced("the columns are not followed by FROM", expected="FROM, or a comma and a column")
        self.take()
        sources: list[Source] = [self.table()]
        on: list[Expression] = []
        outer: Outer | None = None
        asof_start: int | None = None
        while True:
            if self.take_if(","):
                sources.append(self.table())
            elif self.next.key in _JOINS:
                if self.next.key == "ASOF" and asof_start is None:
                    asof_start = self.next.start
                joined, more, found = self.join()
                sources.append(joined)
                on += more
                outer = outer or found
            else:
                break
        where = self.conditions() if self.take_if("WHERE") else []
        groups = self.groups() if self.next.key == "GROUP" and len(sources) > 1 else ()
        threshold, strict, with_start, limit = None, False, None, None
        order: tuple[SortKey, ...] = ()
        kept: Kept | None = None
        options: tuple[Option, ...] = ()
        seen: set[str] = set()
        while self.next.key in ("WITH", "KEEP", "ORDER", "LIMIT"):
            token = self.take()
            if token.key in seen:
                raise self.error(token, f"{token.key} is written twice")
            seen.add(token.key)
            if token.key == "WITH":
                with_start = token.start
                threshold, strict, options = self.options()
            elif token.key == "KEEP":
                kept = self.kept(token.start)
            elif token.key == "ORDER":
                order = self.order()
            else:
                limit = self.limit()
        self.inside -= 1
        return Select(
            start, tuple(items), tuple(sources), tuple(on), tuple(where), threshold, strict, with_start, order, limit,
            broadcast, outer, kept, options, groups, asof_start,
        )  # fmt: skip

    def hint(self) -> Hint:
        if self.next.key not in _BROADCASTS:
            raise self.error(
                self.next, "this hint is not known", expected="BROADCAST(table)", hint="write /*+ BROADCAST(b) */"
            )
        self.take()
        self.require("(", "BROADCAST names no table")
        token = self.next
        name = self.name("BROADCAST names no table")
        self.require(")", "BROADCAST is of one table")
        self.require("*/", "the hint is not closed")
        return Hint(name, token.start)

    # -- the select list -----------------------------------------------------------------------------------------------

    def item(self) -> Item:
        token = self.next
        if token.key == "*":
            self.take()
            return Item(None, None, None, token.start)
        if token.kind in ("word", "name") and self.after(1).key == "." and self.after(2).key == "*":
            for _ in range(3):
                self.take()
            return Item(None, token.text, None, token.start)
        expression = self.expression()
        if self.next.key == "OVER":
            self.refuse_what_is_for_the_result()
        return Item(expression, None, self.alias(), token.start)

    def alias(self) -> str | None:
        if self.take_if("AS"):
            return self.name("AS is not followed by a name")
        if self.next.kind == "name" or (self.next.kind == "word" and self.next.key not in self.reserved):
            return self.take().text
        return None

    def name(self, what: str) -> str:
        token = self.next
        if token.kind not in ("word", "name") or not token.text or token.key in self.reserved:
            raise self.error(token, what, expected="a name", hint="put unusual names in backquotes")
        return self.take().text

    # -- tables --------------------------------------------------------------------------------------------------------

    def table(self) -> Source:
        token = self.next
        if self.take_if("("):
            query = self.select()
            self.require(")", "the query in parentheses is not closed")
            alias = self.table_alias()
            if alias is None:
                raise self.error(
                    self.next, "a query in parentheses has no name", expected="a name", hint="write (SELECT ...) a"
                )
            return Source((), query, alias, token.start)
        if token.kind == "string":
            path = self.take().text
            key = self.key()
            return Source((path,), None, self.table_alias() or PurePath(path).stem, token.start, True, key)
        parts = [self.table_name()]
        while self.take_if("."):
            parts.append(self.name("a name is missing after the dot"))
        if self.next.key == "(":
            raise self.error(self.next, f"{parts[-1]}() is a function, not a table", hint="name a table")
        key = self.key()
        return Source(tuple(parts), None, self.table_alias() or parts[-1], token.start, key=key)

    def key(self) -> tuple[str, ...]:
        """Read ``KEY id``, or ``KEY (id, day)``: rows with equal keys are the same. KEY alone is a name."""
        following = self.after()
        named = following.kind == "name" or (following.kind == "word" and following.key not in self.reserved)
        if self.next.key != "KEY" or self.next.kind != "word" or not (named or following.key == "("):
            return ()
        self.take()
        if not self.take_if("("):
            return (self.name("KEY names no column"),)
        found = [self.name("KEY names no column")]
        while self.take_if(","):
            found.append(self.name("KEY names no column"))
        self.require(")", "the columns of KEY are not closed")
        return tuple(found)

    def table_name(self) -> str:
        if self.next.key in _JOINS and self.next.kind == "word" and self.after().key in ("JOIN", "OUTER"):
            raise self.error(self.next, "a table is missing here", expected="the name of a table")
        return self.name("a table is missing here")

    def table_alias(self) -> str | None:
        self.refuse_what_is_for_the_result()
        kinds = ("LEFT", "RIGHT", "SEMI", "ANTI", "OUTER", "LATERAL", "ASOF")
        if self.next.key in kinds and self.after().key in _JOINS:
            return None  # a kind of join
        return self.alias()

    def join(self) -> tuple[Source, list[Expression], Outer | None]:
        token = self.next
        kinds: list[str] = []
        while self.next.key in _JOINS - {"JOIN"}:
            kinds.append(self.take().key)
        text = " ".join(kinds)
        words = f"{'an' if text.startswith('A') else 'a'} {text} JOIN"
        kind = text.removeprefix("ASOF").lstrip()
        if kind not in _HOW or text == "ASOF CROSS":
            raise self.error(token, f"{words} is not part of a query", expected="JOIN, or one of " + _KNOWN_JOINS)
        self.require("JOIN", "this does not continue the tables")
        source = self.table()
        if self.next.key == "USING":
            raise self.error(self.next, "USING is not part of a query", hint="write ON a.id = b.id")
        if "CROSS" not in kinds and self.next.key != "ON":
            raise self.error(self.next, "a JOIN has no ON", expected="ON and a condition", hint="or write CROSS JOIN")
        on = self.conditions() if self.take_if("ON") else []
        return source, on, None if _HOW[kind] == "inner" else Outer(_HOW[kind], words, token.start)

    def conditions(self) -> list[Expression]:
        """Read conditions that must all hold."""
        tree = self.expression()
        return list(tree.conditions) if isinstance(tree, And) else [tree]

    # -- after the conditions
    # --------------------------------------------------------------------------------------------

    def groups(self) -> tuple[Expression, ...]:
        self.take()
        self.require("BY", "GROUP is not followed by BY")
        found = [self.expression()]
        while self.take_if(","):
            found.append(self.expression())
        return tuple(found)

    def options(self) -> tuple[float | None, bool, tuple[Option, ...]]:
        """Return the threshold, whether it is strict, and everything else."""
        threshold, strict, found = None, False, []
        seen: set[str] = set()
        if self.next.key not in _OPTIONS:
            raise self.error(
                self.next, "WITH is followed by something else than THRESHOLD or another option",
                expected="one of " + ", ".join(_OPTIONS),
            )  # fmt: skip
        while self.next.key in _OPTIONS:
            token = self.take()
            if token.key in seen:
                raise self.error(token, f"{token.key} is written twice")
            seen.add(token.key)
            if token.key == "THRESHOLD":
                threshold, strict = self.threshold()
            else:
                found.append(self.option(token))
        return threshold, strict, tuple(found)

    def option(self, token: Token) -> Option:
        if token.key == "EXCLUSIVE":
            return Option(token.key, Literal(True), token.start)
        following = self.next
        # a column may have the name of its option: DENSITY density
        another = following.key in _OPTIONS and following.key != token.key and self.after().key != "."
        if following.kind == "end" or another:
            raise self.error(following, f"{token.key} has no value", expected="a number", hint=f"as in {token.key} 0.5")
        by_area = token.key == "DENSITY" and following.key == "AREA" and self.after().kind == "number"
        if by_area:
            self.take()
        return Option("AREA" if by_area else token.key, self.expression(), token.start)

    def threshold(self) -> tuple[float, bool]:
        token = self.next
        value = self.number(self.take()) if token.kind == "number" else None
        if not isinstance(value, Literal) or not isinstance(value.value, (int, float)) or not 0 < value.value <= 1:
            raise self.error(
                token, "the threshold is not a probability", expected="a number above 0 and up to 1",
                hint="write WITH THRESHOLD 0.5",
            )  # fmt: skip
        return float(value.value), self.take_if("STRICT")

    def kept(self, start: int) -> Kept:
        what, table, count = self.next.key, None, None
        if self.take_if("BEST"):
            if self.next.kind == "number":
                count = self.limit()
            self.require("PER", "KEEP BEST is not followed by PER and a table")
            table = self.name("KEEP BEST names no table")
        elif self.take_if("ONE"):
            self.require("TO", "ONE is not followed by TO ONE")
            self.require("ONE", "TO is not followed by ONE")
        elif not self.take_if("MUTUAL", "ALL"):
            raise self.error(
                self.next, "KEEP does not say which pairs", expected="BEST [n] PER table, MUTUAL, ONE TO ONE or ALL"
            )
        ties = self.next.key == "WITH" and self.after().key == "TIES"
        if ties:
            self.take()
            self.take()
        return Kept(what, table, count, ties, start)

    def order(self) -> tuple[SortKey, ...]:
        self.require("BY", "ORDER is not followed by BY")
        keys = [self.order_key()]
        while self.take_if(","):
            keys.append(self.order_key())
        return tuple(keys)

    def order_key(self) -> SortKey:
        start = self.next.start
        expression = self.expression()
        descending = self.next.key == "DESC"
        self.take_if("ASC", "DESC")
        nulls_first = None
        if self.take_if("NULLS"):
            nulls_first = self.next.key == "FIRST"
            if not self.take_if("FIRST", "LAST"):
                raise self.error(self.next, "NULLS is followed by something else", expected="FIRST or LAST")
        return SortKey(expression, descending, nulls_first, start)

    def limit(self) -> int:
        token = self.take()
        if token.kind != "number" or not token.text.isdigit() or int(token.text) > 2**31 - 1:
            raise self.error(token, "the limit is not a number of rows", expected="a whole number")
        return int(token.text)

    # -- errors --------------------------------------------------------------------------------------------------------

    def call(self, token: Token) -> Expression:
        if token.text.lower() in _AGGREGATES:
            raise self.error(
                token, f"{token.text.lower()}() is over many rows, which a query does not gather",
                expected="expressions of one row", hint="aggregate the DataFrame that the query gives",
            )  # fmt: skip
        return super().call(token)

    def refuse_what_is_for_the_result(self) -> None:
        if self.next.kind == "word" and self.next.key in _ON_THE_RESULT and self.after().key != ".":
            raise self.misplaced("")

    def misplaced(self, what: str, *, expected: str = "") -> HaplyError:
        """Make the error for a word in a wrong place."""
        token = self.next
        if token.kind == "word" and token.key in _ON_THE_RESULT:
            clause, instead = _ON_THE_RESULT[token.key]
            return self.error(
                token, f"{clause} is not part of a query here", hint=f"do it on the DataFrame that comes out: {instead}"
            )
        hint = ""
        if token.key == "WHERE":
            hint = "a query has one WHERE, after its tables; put AND between conditions"
        elif token.key == "SELECT":
            hint = "write inner queries in parentheses after FROM"
        elif token.kind in ("word", "name"):
            hint = "put AND between conditions, and commas between columns and tables"
        return self.error(token, what, expected=expected, hint=hint)


def spelled(expression: Expression) -> str:
    """Return the name of a computed column: the expression without the tables' names."""

    def bare(column: Column) -> str:
        return column.name if column.index is None else f"{column.name}[{column.index}]"

    return sql_text(expression, bare)
