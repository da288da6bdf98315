"""The tree of a condition, built by the Python operators people type or by `haply.query.text.parse`."""

from __future__ import annotations

import itertools
import math
import numbers
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from haply.errors import HaplyError, unknown_name

if TYPE_CHECKING:
    from haply.probability.region import Difference

MAX_DEPTH = 100  # trees are walked recursively: this keeps every walk far from Python's recursion limit

# Reserved words of the text form: a column with such a name is written in backquotes. Some of them are
# names of functions too when a parenthesis follows.
_ONLY_WORDS = "ALL AND AS CASE DISTINCT DIV ELSE END ESCAPE EXISTS FALSE FROM IN IS NOT NULL OR SELECT THEN TRUE WHEN"
_WORDS_AND_FUNCTIONS = (
    "ANY BETWEEN CURRENT_DATE CURRENT_TIMESTAMP CURRENT_USER ILIKE LIKE LOCALTIMESTAMP REGEXP RLIKE SOME"
)
NEVER_FUNCTIONS = frozenset(_ONLY_WORDS.split())
RESERVED = NEVER_FUNCTIONS.union(_WORDS_AND_FUNCTIONS.split())

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLUMN_PART = r"(?:`((?:[^`]|``)+)`|([^.`\[\]]+))"
_COLUMN_TEXT = re.compile(rf"(?:{_COLUMN_PART}\.)?{_COLUMN_PART}(?:\[(\d{{1,9}})\])?")


class Level(IntEnum):
    """The precedence of a piece of text, as in Spark's grammar (``**``, which Spark lacks, as in Python)."""

    OR = 1
    XOR = 2
    AND = 3
    NOT = 4
    COMPARISON = 5
    BIT_OR = 6
    BIT_XOR = 7
    BIT_AND = 8
    SUM = 9
    PRODUCT = 10
    SIGN = 11
    POWER = 12
    ATOM = 13


_ARITHMETIC = {"+": Level.SUM, "-": Level.SUM, "*": Level.PRODUCT, "/": Level.PRODUCT, "**": Level.POWER}


@dataclass(frozen=True)
class _Writer:
    """Writes trees as text, with parentheses where the text would otherwise read back differently."""

    column: Callable[[Column], str]
    for_spark: bool

    def text(self, node: Expression, at_least: Level = Level.OR) -> str:
        if self is not _PLAIN:
            written = node._sql(self)
        else:  # rewrites need the text of the same parts many times, and an expression never changes
            known: str | None = node.__dict__.get("_text")
            written = node._sql(self) if known is None else known
            if known is None:
                object.__setattr__(node, "_text", written)
        return written if node._level() >= at_least else f"({written})"


def sql_text(expression: Expression, column: Callable[[Column], str] | None = None, *, for_spark: bool = False) -> str:
    """Write the expression as text: haply's, which `parse` reads, or Spark's, which lacks ``**`` and ``distance``."""
    writer = _PLAIN if column is None and not for_spark else _Writer(column or _column_text, for_spark)
    return writer.text(expression)


class Expression:
    """A node of a condition. Operators build further nodes: ``==`` is a condition too, and `same_as` compares trees."""

    __hash__ = None  # type: ignore[assignment]
    __iter__ = None  # indexing a column would otherwise make it an endless sequence

    __match_args__: ClassVar[tuple[str, ...]]  # the names of its fields, as dataclasses set them

    _children: tuple[Expression, ...]
    _depth: int
    difference_of: ClassVar[Callable[[Expression], Difference]]
    """Recognises differences: set by ``haply.query.conditions``, which builds on this module."""

    def __post_init__(self) -> None:
        children: list[Expression] = []
        for value in self._values():
            items = value if isinstance(value, tuple) else (value,)
            children += [item for item in items if isinstance(item, Expression)]
        object.__setattr__(self, "_children", tuple(children))
        depth = 1 + max([child._depth for child in children], default=0)
        if depth > MAX_DEPTH:
            raise HaplyError(
                f"An expression is nested more than {MAX_DEPTH} levels deep",
                hint="compute parts of it as columns before the join",
            )
        object.__setattr__(self, "_depth", depth)

    @property
    def children(self) -> tuple[Expression, ...]:
        """Return the expressions directly inside this one, in the order they are written."""
        return self._children

    def same_as(self, other: object) -> bool:
        """Return whether the other is the same tree (``==`` builds a condition instead)."""
        return isinstance(other, Expression) and type(self) is type(other) and _same(self._values(), other._values())

    def _values(self) -> tuple[Any, ...]:
        """Return the values of its fields."""
        return tuple([getattr(self, name) for name in self.__match_args__])

    def as_difference(self) -> Difference:
        """Return the condition as a set of differences ``left - right`` of two columns, taken to be uncertain."""
        return Expression.difference_of(self)

    def _level(self) -> Level:
        return Level.ATOM

    def _sql(self, writer: _Writer) -> str:
        """Return the node as SQL text."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Expression:
        """Let operators take NumPy numbers, and ``np.abs`` mean ``abs``."""
        operate = _UFUNCS.get(ufunc.__name__)
        operands = [one if isinstance(one, Expression) else _python_number(one) for one in inputs]
        if operate is None or method != "__call__" or options or any(one is None for one in operands):
            raise HaplyError(
                f"NumPy cannot compute `{ufunc.__name__}` of an expression, whose values are not known yet",
                hint="an expression takes numbers, and no arrays; functions are written in text: 'sqrt(left.x) <= 2'",
            )
        made: Expression = operate(*operands)
        return made

    def __str__(self) -> str:
        return sql_text(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __bool__(self) -> bool:
        raise HaplyError(
            f"The condition `{self}` is neither true nor false before the data is read",
            hint="combine conditions with & | ~ and parentheses, not with and, or, not; "
            "write 0 < x < 1 as (0 < x) & (x < 1)",
        )

    def isin(self, *values: Any) -> Expression:
        """Return the condition that this equals one of some values: ``hp.left.kind.isin("a", "b")``.

        Parameters
        ----------
        values
            The values, or one list of them.

        Returns
        -------
        Expression
            The condition.
        """
        listed = list(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple, set)) else list(values)
        if not listed:
            raise HaplyError(f"`{self}` is compared with no value at all", expected="at least one value in isin()")
        found: Expression = Comparison("=", self, as_expression(listed[0]))
        for value in listed[1:]:
            found = found | Comparison("=", self, as_expression(value))
        return found

    def __add__(self, other: Any) -> Expression:
        return Arithmetic("+", self, as_expression(other))

    def __radd__(self, other: Any) -> Expression:
        return Arithmetic("+", as_expression(other), self)

    def __sub__(self, other: Any) -> Expression:
        return Arithmetic("-", self, as_expression(other))

    def __rsub__(self, other: Any) -> Expression:
        return Arithmetic("-", as_expression(other), self)

    def __mul__(self, other: Any) -> Expression:
        return Arithmetic("*", self, as_expression(other))

    def __rmul__(self, other: Any) -> Expression:
        return Arithmetic("*", as_expression(other), self)

    def __truediv__(self, other: Any) -> Expression:
        return Arithmetic("/", self, as_expression(other))

    def __rtruediv__(self, other: Any) -> Expression:
        return Arithmetic("/", as_expression(other), self)

    def __pow__(self, other: Any) -> Expression:
        return Arithmetic("**", self, as_expression(other))

    def __rpow__(self, other: Any) -> Expression:
        return Arithmetic("**", as_expression(other), self)

    def __neg__(self) -> Expression:
        return Negative(self)

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return Call("abs", (self,))

    def __lt__(self, other: Any) -> Expression:
        return Comparison("<", self, as_expression(other))

    def __le__(self, other: Any) -> Expression:
        return Comparison("<=", self, as_expression(other))

    def __gt__(self, other: Any) -> Expression:
        return Comparison(">", self, as_expression(other))

    def __ge__(self, other: Any) -> Expression:
        return Comparison(">=", self, as_expression(other))

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return Comparison("=", self, as_expression(other))

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return Comparison("!=", self, as_expression(other))

    def __and__(self, other: Any) -> Expression:
        return And((self, as_expression(other)))

    def __rand__(self, other: Any) -> Expression:
        return And((as_expression(other), self))

    def __or__(self, other: Any) -> Expression:
        return Or((self, as_expression(other)))

    def __ror__(self, other: Any) -> Expression:
        return Or((as_expression(other), self))

    def __xor__(self, other: Any) -> Expression:
        return exclusive(self, as_expression(other))

    def __rxor__(self, other: Any) -> Expression:
        return exclusive(as_expression(other), self)

    def __invert__(self) -> Expression:
        return Not(self)


@dataclass(frozen=True, eq=False, repr=False)
class Column(Expression):
    """A column, or with an index one component of it; the table is ``left`` or ``right`` in a join of two."""

    table: str | None
    name: str
    index: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.table == "":
            raise HaplyError("A column has no name", expected="a name such as left.temp", found=repr(self.name))
        if self.index is not None and (type(self.index) is not int or self.index < 0):
            raise HaplyError(
                f"A component of '{self.name}' is addressed by {self.index!r}",
                expected="a whole number from 0",
                hint="the first component is [0]",
            )
        if self.table is not None and self.table.lower() in ("left", "right"):
            object.__setattr__(self, "table", self.table.lower())
        super().__post_init__()

    def __getitem__(self, index: int) -> Column:
        if self.index is not None:
            raise HaplyError(f"`{self}` is a single component already", hint="use one index")
        if hasattr(index, "__index__") and not isinstance(index, bool):
            index = operator.index(index)  # NumPy's whole numbers
        return replace(self, index=index)

    def _sql(self, writer: _Writer) -> str:
        return writer.column(self)


@dataclass(frozen=True, eq=False, repr=False)
class MadeColumn(Column):
    """A column made by a constructor in a condition. Messages and plans show it as it was written."""

    written: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expression):
    """A number, a string, a truth value or null."""

    value: int | float | str | bool | None

    def __post_init__(self) -> None:
        value: Any = self.value
        if not (value is None or isinstance(value, (bool, str))):
            if not isinstance(value, (numbers.Real, Decimal)):
                raise HaplyError(
                    f"A condition contains a value of type {type(value).__name__}",
                    expected="a number, a string, True, False, None or a column",
                    hint="times can be written in the text form, as TIMESTAMP '2026-01-31 12:00:00'",
                )
            if not _is_finite(value):
                raise HaplyError("A condition contains a number that is not finite", expected="a finite number")
            value = int(value) if isinstance(value, numbers.Integral) else float(value)
        elif isinstance(value, str):
            value = str(value)
        object.__setattr__(self, "value", value)  # plain Python types: NumPy's print differently
        super().__post_init__()

    def _level(self) -> Level:
        return Level.SIGN if self._sql_number().startswith("-") else Level.ATOM

    def _sql_number(self) -> str:
        return repr(self.value) if isinstance(self.value, (int, float)) else ""

    def _sql(self, writer: _Writer) -> str:
        if self.value is None or isinstance(self.value, bool):
            return {None: "NULL", True: "TRUE", False: "FALSE"}[self.value]
        if isinstance(self.value, str):
            return "'" + self.value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return self._sql_number()


@dataclass(frozen=True, eq=False, repr=False)
class Arithmetic(Expression):
    """``left op right`` with one of ``+ - * / **``."""

    op: str
    left: Expression
    right: Expression

    def __post_init__(self) -> None:
        _require_operator(self.op, _ARITHMETIC)
        super().__post_init__()

    def _level(self) -> Level:
        return _ARITHMETIC[self.op]

    def _sql(self, writer: _Writer) -> str:
        if self.op == "**":
            if writer.for_spark:
                return f"power({writer.text(self.left)}, {writer.text(self.right)})"
            return f"{writer.text(self.left, Level.ATOM)} ** {writer.text(self.right, Level.SIGN)}"
        level = self._level()
        return f"{writer.text(self.left, level)} {self.op} {writer.text(self.right, Level(level + 1))}"


@dataclass(frozen=True, eq=False, repr=False)
class Negative(Expression):
    """``-operand``."""

    operand: Expression

    def _level(self) -> Level:
        return Level.SIGN

    def _sql(self, writer: _Writer) -> str:
        # `-1` reads as a number and `--` starts a comment: both need parentheses here
        number = isinstance(self.operand, Literal)
        return f"-({writer.text(self.operand)})" if number else f"-{writer.text(self.operand, Level.POWER)}"


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expression):
    """A function of expressions: ``abs`` and ``distance`` are haply's own, all others are Spark's."""

    name: str
    args: tuple[Expression, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.lower())
        object.__setattr__(self, "args", tuple(self.args))
        if not _PLAIN_NAME.fullmatch(self.name) or self.name.upper() in NEVER_FUNCTIONS:
            raise HaplyError(f"'{self.name}' is not the name of a function")
        arity = {"abs": 1, "distance": 2}.get(self.name, len(self.args))
        if len(self.args) != arity:
            raise HaplyError(
                f"{self.name}() takes {arity} argument{'s' if arity > 1 else ''}", found=f"{len(self.args)} arguments"
            )
        super().__post_init__()

    def __getitem__(self, index: int) -> Opaque:
        """Return a coordinate of a value that a constructor makes, or an element of an array."""
        return Opaque((self, "[", as_expression(index), "]"))

    def _sql(self, writer: _Writer) -> str:
        written = [writer.text(arg) for arg in self.args]
        if self.name == "distance" and writer.for_spark:
            squares = f"zip_with({written[0]}, {written[1]}, (x, y) -> (x - y) * (x - y))"
            return f"sqrt(aggregate({squares}, 0D, (total, square) -> total + square))"
        return f"{self.name}({', '.join(written)})"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Expression):
    """``left op right`` with one of ``< <= > >= = !=``.

    A literal on the left changes sides with the other operand, because Python hands over ``1 < x`` as ``x > 1``.
    """

    op: str
    left: Expression
    right: Expression

    def __post_init__(self) -> None:
        _require_operator(self.op, _MIRRORED)
        if self.op not in ("=", "!=") and (_is_condition(self.left) or _is_condition(self.right)):
            raise HaplyError(
                "A condition is compared with a value",
                found=f"{self.left} {self.op} {self.right}",
                hint="put parentheses around each comparison: (a < b) & (b < c); in text, a < b AND b < c",
            )
        if isinstance(self.left, Literal) and not isinstance(self.right, Literal):
            left, right = self.right, self.left
            object.__setattr__(self, "op", _MIRRORED[self.op])
            object.__setattr__(self, "left", left)
            object.__setattr__(self, "right", right)
        super().__post_init__()

    def _level(self) -> Level:
        return Level.COMPARISON

    def _sql(self, writer: _Writer) -> str:
        return f"{writer.text(self.left, Level.BIT_OR)} {self.op} {writer.text(self.right, Level.BIT_OR)}"


@dataclass(frozen=True, eq=False, repr=False)
class Between(Expression):
    """``low <= value <= high``."""

    value: Expression
    low: Expression
    high: Expression

    def _level(self) -> Level:
        return Level.COMPARISON

    def _sql(self, writer: _Writer) -> str:
        value, low, high = (writer.text(part, Level.BIT_OR) for part in (self.value, self.low, self.high))
        return f"{value} BETWEEN {low} AND {high}"


@dataclass(frozen=True, eq=False, repr=False)
class _Chain(Expression):
    """Two or more conditions with one word between them. A chain of the same word inside is taken apart."""

    conditions: tuple[Expression, ...]

    _word: ClassVar[str]

    def __post_init__(self) -> None:
        flat: list[Expression] = []
        for condition in self.conditions:
            _require_condition(condition, self._word)
            flat.extend(condition.conditions if isinstance(condition, type(self)) else (condition,))
        if len(flat) < 2:
            raise HaplyError(f"{self._word} combines conditions", expected="two or more", found=str(len(flat)))
        object.__setattr__(self, "conditions", tuple(flat))
        super().__post_init__()

    def _level(self) -> Level:
        return Level[self._word]

    def _sql(self, writer: _Writer) -> str:
        inner = Level(self._level() + 1)
        return f" {self._word} ".join([writer.text(condition, inner) for condition in self.conditions])


class And(_Chain):
    """All conditions hold."""

    _word = "AND"


class Or(_Chain):
    """At least one condition holds."""

    _word = "OR"


@dataclass(frozen=True, eq=False, repr=False)
class Xor(_Chain):
    """An odd number of conditions hold. Where neither one of them nor its opposite holds, nothing is known."""

    opposites: tuple[Expression, ...]

    _word = "XOR"

    def __post_init__(self) -> None:
        both = zip(self.conditions, self.opposites, strict=True)
        flat = [each.opposites if isinstance(each, Xor) else (opposite,) for each, opposite in both]
        object.__setattr__(self, "opposites", tuple(itertools.chain.from_iterable(flat)))
        super().__post_init__()


@dataclass(frozen=True, eq=False, repr=False)
class Not(Expression):
    """The condition does not hold."""

    condition: Expression

    def __post_init__(self) -> None:
        _require_condition(self.condition, "NOT")
        super().__post_init__()

    def _level(self) -> Level:
        return Level.NOT

    def _sql(self, writer: _Writer) -> str:
        return f"NOT {writer.text(self.condition, Level.NOT)}"


@dataclass(frozen=True, eq=False, repr=False)
class Opaque(Expression):
    """SQL that haply passes to Spark unchanged: pieces of text with the expressions between them."""

    parts: tuple[str | Expression, ...]

    def __post_init__(self) -> None:
        merged: list[str | Expression] = []
        for part in self.parts:
            if isinstance(part, str) and merged and isinstance(merged[-1], str):
                merged[-1] += part
            elif not isinstance(part, str) or part:
                merged.append(part)
        object.__setattr__(self, "parts", tuple(merged))
        super().__post_init__()

    def _level(self) -> Level:
        # what begins with a keyword is closed (CASE ... END, CAST(...)); what begins with an operand is not
        first = self.parts[0]
        return Level.ATOM if isinstance(first, str) and not first.startswith("~") else Level.COMPARISON

    def _sql(self, writer: _Writer) -> str:
        return "".join([part if isinstance(part, str) else writer.text(part, Level.ATOM) for part in self.parts])


class TableColumns:
    """One table of a join: every attribute is a column (so there are no methods), and so is every item."""

    __slots__ = ("__table",)
    __iter__ = None

    def __init__(self, table: str) -> None:
        self.__table = table

    def __getattr__(self, name: str) -> Column:
        if name == "_TableColumns__table" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)  # Python's protocols look up such names
        return Column(self.__table, name)

    def __getitem__(self, name: str) -> Column:
        if not isinstance(name, str):
            raise HaplyError(
                f"{self.__table}[{name!r}] is not a column",
                expected="a column name",
                hint=f'write {self.__table}["name"], and {self.__table}["name"][0] for a component',
            )
        return Column(self.__table, name)

    def __repr__(self) -> str:
        return f"<columns of {self.__table}>"


Operand: TypeAlias = Expression | float | Decimal | str | None
"""What an operator or a comparison takes: an expression, a number, a string, a truth value or None."""
ColumnLike: TypeAlias = object
"""The name of a column, a Spark column, an expression (``hp.left.kg``) or a number."""
ArrayColumnLike: TypeAlias = object
"""The name of an array column, a Spark column or an expression of arrays, or a list whose items are ``ColumnLike``."""

left = TableColumns("left")
right = TableColumns("right")


def col(name: str) -> Column:
    """Name a column of a condition.

    Parameters
    ----------
    name
        The name: ``"x"``, with its table ``"left.x"``, or with a component ``"pos[0]"``. Put a name that contains dots
        or brackets in backquotes.

    Returns
    -------
    Expression
        The column. Arithmetic, ``abs()`` and comparisons make further expressions of it.

    Raises
    ------
    HaplyError
        If the text is not the name of a column.

    Examples
    --------
    >>> import haply as hp
    >>> print(abs(hp.col("left.x") - hp.col("right.x")) <= 2)
    abs(left.x - right.x) <= 2
    """
    found = _COLUMN_TEXT.fullmatch(name) if isinstance(name, str) else None
    if not found:
        raise HaplyError(
            f"{name!r} is not a column name",
            expected='a name such as "x" or "left.x"',
            hint='put a name that contains dots in backquotes: "left.`a.b`"',
        )
    quoted_table, plain_table, quoted_name, plain_name, index = found.groups()
    table = quoted_table.replace("``", "`") if quoted_table else plain_table
    return Column(table, quoted_name.replace("``", "`") if quoted_name else plain_name, int(index) if index else None)


def between(value: Operand, low: Operand, high: Operand) -> Expression:
    """Make the condition ``low <= value <= high``, both ends included.

    Parameters
    ----------
    value
        What is compared.
    low, high
        The least and the greatest value that satisfy the condition.

    Returns
    -------
    Expression
        The condition.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.between(hp.left.x - hp.right.x, -1, 2))
    left.x - right.x BETWEEN -1 AND 2
    """
    return Between(as_expression(value), as_expression(low), as_expression(high))


def distance(a: Operand, b: Operand) -> Expression:
    """Make the Euclidean distance of two points.

    Parameters
    ----------
    a, b
        Columns of points, or of numbers.

    Returns
    -------
    Expression
        The distance, to be compared with a number.

    Examples
    --------
    >>> import haply as hp
    >>> print(hp.distance(hp.left.pos, hp.right.pos) < 5)
    distance(left.pos, right.pos) < 5
    """
    return Call("distance", (as_expression(a), as_expression(b)))


def exclusive(one: Expression, other: Expression) -> Expression:
    """Return the condition that one of two conditions holds and the other does not."""
    for condition in (one, other):
        _require_condition(condition, "XOR")
    return Comparison("!=", one, other)


def as_expression(value: Any) -> Expression:
    """Return the value itself if it is an expression, otherwise a literal."""
    return value if isinstance(value, Expression) else Literal(value)


def rewritten(node: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Return the tree with every node replaced for which ``change`` returns another, from the top down.

    What is unchanged is not built anew: conditions are rewritten many times, and most of their parts stay.
    """
    other = change(node)
    if other is not None:
        return other

    changed = [rewritten(child, change) for child in node.children]
    if all(map(operator.is_, changed, node.children)):
        return node
    inner = iter(changed)

    def replaced(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([replaced(item) for item in value])
        return next(inner) if isinstance(value, Expression) else value

    return type(node)(*map(replaced, node._values()))


def quote_name(name: str) -> str:
    """Write a name for the text form: in backquotes unless it is plain."""
    plain = _PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED
    return name if plain else "`" + name.replace("`", "``") + "`"


def is_value(node: Expression) -> bool:
    """Return whether the node is surely a value and not a condition."""
    if isinstance(node, Literal):
        return not (node.value is None or isinstance(node.value, bool))
    return isinstance(node, (Arithmetic, Negative)) or (isinstance(node, Call) and node.name in ("abs", "distance"))


def _is_condition(node: Expression) -> bool:
    return isinstance(node, (Comparison, Between, And, Or, Not))


def _require_condition(node: Expression, word: str) -> None:
    if is_value(node):
        raise HaplyError(
            f"{word} is applied to a value",
            expected="a condition",
            found=str(node),
            hint="put parentheses around each comparison: (a < b) & (c < d)",
        )


def _require_operator(op: str, known: Iterable[str]) -> None:
    if op not in known:
        raise unknown_name("operator", op, known)


def _column_text(column: Column) -> str:
    if isinstance(column, MadeColumn):
        return column.written if column.index is None else f"{column.written}[{column.index}]"
    table = f"{quote_name(column.table)}." if column.table is not None else ""
    index = f"[{column.index}]" if column.index is not None else ""
    return f"{table}{quote_name(column.name)}{index}"


_PLAIN = _Writer(_column_text, for_spark=False)
"""Writes what people read."""


def _same(a: object, b: object) -> bool:
    if isinstance(a, Expression):
        return a.same_as(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def _python_number(value: Any) -> Any:
    """Return a number of NumPy as one of Python; None for an array of several."""
    return value.item() if getattr(value, "ndim", None) == 0 else None if hasattr(value, "ndim") else value


_UFUNCS: dict[str, Callable[..., Any]] = {
    **{"absolute": abs, "negative": operator.neg, "true_divide": operator.truediv, "divide": operator.truediv},
    **{"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "power": operator.pow},
    **{"less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge},
    **{"equal": operator.eq, "not_equal": operator.ne, "bitwise_and": operator.and_, "bitwise_or": operator.or_},
}
"""What functions of NumPy mean between expressions and numbers, by their names."""


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (OverflowError, ValueError):
        return False
