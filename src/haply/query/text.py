"""Reads conditions written as Spark SQL expressions into the same trees that the Python operators build.

sqlglot's Spark dialect cuts the text into tokens; the grammar over them is Spark's, with ``**`` added. sqlglot's own
parser is not used because it rewrites what it reads (``CAST`` becomes ``TRY_CAST``, functions change names and argument
order), while everything that haply does not interpret must reach Spark unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from haply.errors import HaplyError
from haply.query.expressions import (
    MAX_DEPTH,
    NEVER_FUNCTIONS,
    RESERVED,
    And,
    Arithmetic,
    Between,
    Call,
    Column,
    Comparison,
    Expression,
    Level,
    Literal,
    Negative,
    Not,
    Opaque,
    Or,
    exclusive,
    quote_name,
)

_COMPARISONS = {"=": "=", "==": "=", "<>": "!=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPERATORS = {
    "OR": Level.OR,
    "XOR": Level.XOR,
    "AND": Level.AND,
    **dict.fromkeys([*_COMPARISONS, "<=>"], Level.COMPARISON),
    "|": Level.BIT_OR,
    "^": Level.BIT_XOR,
    "&": Level.BIT_AND,
    **dict.fromkeys(["+", "-", "||"], Level.SUM),
    **dict.fromkeys(["*", "/", "%", "DIV"], Level.PRODUCT),
    "**": Level.POWER,
}
_PREDICATES = ("BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS")
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_FUNCTIONS_WITHOUT_PARENTHESES = ("CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIMESTAMP")
_TYPED_STRINGS = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
_CASTS = ("cast", "try_cast")
_FUNCTIONS_OF_A_UNIT = ("dateadd", "datediff", "date_add", "date_diff", "timestampadd", "timestampdiff")
_UNIT_WORDS = "YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND"
_UNITS = frozenset(unit + ending for unit in _UNIT_WORDS.split() for ending in ("", "S"))
_HINTS = {
    "&&": "write AND",
    "=>": "write >=",
    "->": "compute what needs a lambda function as a column before the join",
    ";": "give one condition, without a semicolon",
    "SELECT": "hp.sql runs whole queries; a condition has no subqueries",
    "EXISTS": "a condition has no subqueries: join the other table",
    "NOT": "put parentheses around the NOT and what it negates",
    "AS": "a condition has no aliases",
    "*": "name the columns",
    "<": "comparisons are written <, <=, >, >=, = and !=",
    ">": "comparisons are written <, <=, >, >=, = and !=",
    ")": "there is no ( for this )",
}
_NUMBER = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?)(BD|[DFLSY]?)", re.ASCII | re.IGNORECASE)
_PLAIN = re.compile(
    r"[ \t\r\n]*(?:(?P<word>[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<symbol>[<>!=]=|[()<>=,.+\-*/]))",
    re.ASCII,
)
_ODD = re.compile(r"\(\+\)|user-defined|\bbegin\b", re.IGNORECASE)
"""What sqlglot takes for one token though each part is one, and a word after which it looks for a command."""
_PLAIN_OPERATORS = frozenset(["<=", ">=", "!=", "==", "<", ">", "=", "+", "-", "*", "/"])
_EXAMPLE = "abs(left.temp - right.temp) <= 0.5"


class Token(NamedTuple):
    """A word, number, string or symbol of the text, and its place."""

    kind: str  # "number", "string", "bytes", "name" (in backquotes), "word", "symbol" or "end"
    text: str  # its text: strings and names without quotes
    start: int
    stop: int

    @property
    def key(self) -> str:
        """Return what the grammar matches: the symbol, or the word in capitals; empty for strings and quoted names."""
        return self.text.upper() if self.kind in ("word", "symbol") and self.text.isascii() else ""


def parse(text: str, *, span: tuple[int, int] | None = None) -> Expression:
    """Parse a text into an expression; with a span, only that part of a longer text, whose places errors then show."""
    if not isinstance(text, str):
        raise HaplyError(
            f"A condition is of type {type(text).__name__}",
            expected="text or an expression",
            hint=f"write {_EXAMPLE!r}",
        )
    start, stop = span or (0, len(text))
    parser = Parser(text, tokens_of(text, start, stop))
    try:
        return parser.whole()
    except RecursionError:  # the caller may have used up most of Python's stack
        raise parser.too_deep() from None


def as_condition(value: str | Expression) -> Expression:
    """Return a condition in either form as an expression."""
    return value if isinstance(value, Expression) else parse(value)


def located(source: str, offset: int, what: str, *, expected: str = "", found: str = "", hint: str = "") -> HaplyError:
    """Make the error for a place in a text."""
    return HaplyError(what, expected=expected, found=found, hint=hint, place=place_in(source, offset))


def place_in(source: str, offset: int) -> str:
    """Describe a place in a text: its line and column, and the line with a caret under the place."""
    lines = re.split(r"\r\n|\r|\n", source[:offset])
    line_start = offset - len(lines[-1])
    line = re.split(r"[\r\n]", source[line_start:], maxsplit=1)[0]
    cut = max(0, len(lines[-1]) - 70)  # keeps the place visible in a very long line
    shown = "".join(char if char.isprintable() else " " for char in line[cut : cut + 100])
    caret = " " * (len(lines[-1]) - cut) + "^"
    return f"line {len(lines)}, column {len(lines[-1]) + 1}:\n    {shown}\n    {caret}\n"


def tokens_of(source: str, start: int, stop: int) -> list[Token]:
    """Return the tokens of a part of a text; an ``end`` is the last."""
    plain = plain_tokens(source, start, stop)
    return tokens_of_sql(source, start, stop) if plain is None else plain


def plain_tokens(source: str, start: int, stop: int) -> list[Token] | None:
    """Cut words, numbers and common symbols into tokens without sqlglot, whose import takes a tenth of a second.

    Returns None if there is anything else, or if symbols touch that may belong together.
    """
    tokens: list[Token] = []
    at = start
    while (found := _PLAIN.match(source, at, stop)) is not None:
        kind = str(found.lastgroup)
        token, at = Token(kind, found[kind], found.start(kind), found.end()), found.end()
        before = tokens[-1] if tokens else Token("end", "", start, start)
        touches = before.stop == token.start
        if touches and before.text in _PLAIN_OPERATORS and token.text in _PLAIN_OPERATORS:
            return None
        if (before.text == "." and kind != "word") or (token.text == "." and before.kind != "word"):
            return None
        if "." in (before.text, token.text) and not touches:
            return None
        tokens.append(token)
    if source[at:stop].strip(" \t\r\n") or (tokens and tokens[-1].text == ".") or _ODD.search(source, start, stop):
        return None
    return [*tokens, Token("end", "", stop, stop)]


def tokens_of_sql(source: str, start: int, stop: int) -> list[Token]:
    """Return the tokens of any text, by sqlglot."""
    tokens: list[Token] = []
    for raw in _raw_tokens(source, start, stop):
        first, last = start + raw.start - 1, start + raw.end
        written = source[first:last]
        if tokens and first < tokens[-1].stop:
            continue  # sqlglot turns the suffix of a number, as in 10L, into further tokens at the same place
        kind = raw.token_type.name
        if kind in ("STRING", "RAW_STRING"):
            tokens.append(Token("string", raw.text, first, last))
        elif kind == "IDENTIFIER":
            tokens.append(Token("name", raw.text, first, last))
        elif kind == "HEX_STRING" and "'" in written:
            tokens.append(Token("bytes", written, first, last))
        elif kind == "NUMBER":
            if _is_symbol_before(".", tokens, first) and (len(tokens) < 2 or not _owns_dot(*tokens[-2:])):
                first, written = tokens.pop().start, "." + written  # sqlglot cuts .5 in two
            tokens.append(Token("number", written, first, last))
        elif kind == "HINT" and written.endswith("*/"):
            tokens.append(Token("symbol", "/*+", first, first + 3))
            tokens += tokens_of_sql(source, first + 3, last - 2)[:-1]
            tokens.append(Token("symbol", "*/", last - 2, last))
        else:  # sqlglot makes one token of some pairs of words, of 5.x and of |>, and two of **
            for piece in re.finditer(r"\w+|\|(?=>)|[^\w\s]+", written):
                of = "number" if piece[0].isdigit() else "word" if re.match(r"\w", piece[0]) else "symbol"
                begin, text = first + piece.start(), piece[0]
                if text == "*" and _is_symbol_before("*", tokens, begin):
                    begin, text = tokens.pop().start, "**"
                elif text == "=" and _is_symbol_before(">", tokens, begin):
                    begin, text = tokens.pop().start, ">="
                tokens.append(Token(of, text, begin, first + piece.end()))
    tokens.append(Token("end", "", stop, stop))
    return tokens


def _raw_tokens(source: str, start: int, stop: int) -> list[Any]:
    # the parenthesis in front keeps sqlglot from taking a column called `show` or `call` for a command
    text = "(" + source[start:stop]
    if (raw := _tokenize(text)) is not None:
        return raw[1:]
    # only an opening quote or comment that is never closed fails: find the last place before which all is well
    openings = [match.start() for match in re.finditer(r"['\"`]|/\*", text)]
    place = next((at for at in reversed(openings) if _tokenize(text[:at]) is not None), 1)
    raise located(
        source,
        start + place - 1,
        "this is never closed",
        expected="a closing quote" if text[place : place + 2] != "/*" else "a closing */",
        hint="write strings in '...', names in `...`",
    )


def _tokenize(text: str) -> list[Any] | None:
    import sqlglot  # here, as it takes a tenth of a second, and conditions that Python makes need none of it

    try:
        return sqlglot.tokenize(text, read="spark")
    except Exception:  # whatever the tokenizer raises for bad text, people see a HaplyError
        return None


def _is_symbol_before(symbol: str, tokens: list[Token], position: int) -> bool:
    return bool(tokens) and tokens[-1].key == symbol and tokens[-1].stop == position


def _owns_dot(before: Token, dot: Token) -> bool:
    """Return whether the dot belongs to what precedes it, as in ``left.2mass``, and not to the number after it."""
    return before.stop == dot.start and _ends_operand(before)


def _ends_operand(token: Token) -> bool:
    return token.key in (")", "]") or (token.kind != "symbol" and token.key not in RESERVED)


class TextPlaces:
    """Places of the nodes of a tree in its text, for errors that are found later. Nodes are compared by identity."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Expression, int]] = {}  # nodes are kept alive, so no other object gets their id

    def mark(self, node: Expression, offset: int) -> Expression:
        """Remember where a node begins."""
        self._of[id(node)] = (node, offset)
        return node

    def start(self, node: Expression) -> int | None:
        """Return where a tree begins: the first place of its nodes."""
        known = [] if id(node) not in self._of else [self._of[id(node)][1]]
        inner = (self.start(child) for child in node.children)
        return min([*known, *(place for place in inner if place is not None)], default=None)


class Parser:
    """Precedence climbing over the tokens: `expression` reads everything that binds at least as tightly as asked."""

    reserved = RESERVED
    """Words that are not columns."""

    def __init__(self, source: str, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.places = TextPlaces()

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def after(self, count: int = 1) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.next
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return token

    def take_if(self, *keys: str) -> bool:
        if self.next.key in keys:
            self.take()
            return True
        return False

    def require(self, key: str, what: str) -> Token:
        if self.next.key != key:
            raise self.error(self.next, what, expected=key)
        return self.take()

    def error(self, token: Token, what: str, *, expected: str = "", hint: str = "") -> HaplyError:
        found = repr(self.source[token.start : token.stop]) if token.kind != "end" else "the end of the text"
        return located(
            self.source, token.start, what, expected=expected, found=found, hint=hint or _HINTS.get(token.key, "")
        )

    def too_deep(self) -> HaplyError:
        return self.error(self.next, "the condition is nested too deeply here", hint="compute parts as columns first")

    def make(self, token: Token, build: Callable[..., Expression], *args: Any) -> Expression:
        """Build a node; an error of the node itself is reported at the token."""
        try:
            return self.places.mark(build(*args), token.start)
        except HaplyError as refusal:
            raise refusal.at(place_in(self.source, token.start)) from None

    def whole(self) -> Expression:
        if self.next.kind == "end":
            raise self.error(self.next, "the condition is empty", hint=f"write one such as {_EXAMPLE}")
        tree = self.expression()
        if self.next.kind != "end":
            hint = "put AND or OR between conditions" if self.next.kind in ("word", "name") else ""
            raise self.error(self.next, "this does not continue the condition", hint=_HINTS.get(self.next.key, hint))
        return tree

    def expression(self, at_least: Level = Level.OR) -> Expression:
        self.depth += 1
        if self.depth > 2 * MAX_DEPTH + 10:  # an operand in parentheses takes two steps per level of the tree
            raise self.too_deep()
        tree = self.operand(at_least)
        compared = False
        while (level := self.operator_level()) is not None and level >= at_least:
            token = self.take()
            if compared and level >= Level.COMPARISON:
                hint = "write 0 < x AND x < 1, or put parentheses"
                raise self.error(token, "comparisons cannot be chained", hint=hint)
            compared = level == Level.COMPARISON
            if token.key in ("NOT", *_PREDICATES):
                tree = self.predicate(token, tree)
            else:
                inner = Level.SIGN if level == Level.POWER else Level(level + 1)
                tree = self.combined(token, tree, self.expression(inner))
        self.depth -= 1
        return tree

    def operator_level(self) -> Level | None:
        key = self.next.key
        if key in _PREDICATES or (key == "NOT" and self.after().key in _PREDICATES):
            return Level.COMPARISON
        return _OPERATORS.get(key)

    def combined(self, token: Token, left: Expression, right: Expression) -> Expression:
        key = token.key
        if key in ("AND", "OR"):
            return self.make(token, And if key == "AND" else Or, (left, right))
        if key == "XOR":
            return self.make(token, exclusive, left, right)
        if key in _COMPARISONS:
            return self.make(token, Comparison, _COMPARISONS[key], left, right)
        if key in ("+", "-", "*", "/", "**"):
            return self.make(token, Arithmetic, key, left, right)
        return self.make(token, Opaque, (left, f" {key} ", right))

    def predicate(self, token: Token, value: Expression) -> Expression:
        negated = token.key == "NOT"
        word = self.take().key if negated else token.key
        if word == "BETWEEN":
            low = self.expression(Level.BIT_OR)
            self.require("AND", "BETWEEN has no upper end")
            between = self.make(token, Between, value, low, self.expression(Level.BIT_OR))
            return self.make(token, Not, between) if negated else between
        parts: list[str | Expression] = [value, f" NOT {word}" if negated else f" {word}"]
        if word == "IS":
            if negated:
                raise self.error(token, "NOT stands before IS", hint="write IS NOT")
            parts += [" NOT"] if self.take_if("NOT") else []
            if self.next.key in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
                parts += [f" {self.take().key}"]
            else:
                self.require("DISTINCT", "IS is followed by something else than NULL, TRUE, FALSE or DISTINCT FROM")
                self.require("FROM", "IS DISTINCT lacks its FROM")
                parts += [" DISTINCT FROM ", self.expression(Level.BIT_OR)]
        elif word == "IN" or self.next.key in ("ALL", "ANY", "SOME"):
            parts += ["" if word == "IN" else f" {self.take().key}", " ("]
            self.require("(", f"{word} is not followed by a list in parentheses")
            parts += [self.expression()]
            while self.take_if(","):
                parts += [", ", self.expression()]
            self.require(")", "the list is not closed")
            parts += [")"]
        else:
            parts += [" ", self.expression(Level.BIT_OR)]
            parts += [" ESCAPE ", self.expression(Level.BIT_OR)] if self.take_if("ESCAPE") else []
        return self.make(token, Opaque, tuple(parts))

    def operand(self, at_least: Level) -> Expression:
        token = self.next
        if token.key in ("NOT", "!") and at_least <= Level.NOT:
            self.take()
            return self.make(token, Not, self.expression(Level.NOT))
        if token.key not in ("-", "+", "~"):
            return self.with_suffixes(self.primary())
        self.take()
        if token.key == "-" and self.next.kind == "number" and self.after().key not in ("**", "[", "::", "."):
            number = self.number(self.take())
            if isinstance(number, Literal) and isinstance(number.value, (int, float)):
                return self.make(token, Literal, -number.value)
            return self.make(token, Negative, number)
        inner = self.expression(Level.SIGN)
        if token.key == "+":
            return inner
        return self.make(token, Negative, inner) if token.key == "-" else self.make(token, Opaque, ("~", inner))

    def with_suffixes(self, tree: Expression) -> Expression:
        while self.next.key in ("[", "::", "."):
            token = self.take()
            if token.key == "." and isinstance(tree, Literal):
                raise self.error(token, "a number or string has no fields")
            if token.key == ".":
                tree = self.make(token, Opaque, (tree, f".{quote_name(self.name_part())}"))
            elif token.key == "::":
                tree = self.make(token, Opaque, (tree, f"::{self.type_text()}"))
            else:
                index = self.expression()
                self.require("]", "the index is not closed")
                component = isinstance(index, Literal) and type(index.value) is int and index.value >= 0
                if component and isinstance(tree, Column) and tree.index is None:
                    place = self.places.start(tree)
                    tree = self.places.mark(tree[index.value], token.start if place is None else place)  # type: ignore[attr-defined]
                else:
                    tree = self.make(token, Opaque, (tree, "[", index, "]"))
        return tree

    def primary(self) -> Expression:
        token = self.take()
        if token.kind == "number":
            return self.number(token)
        if token.kind == "string":
            return self.string(token)
        if token.kind == "bytes":
            return Opaque((token.text,))
        if token.kind in ("word", "name"):
            return self.named(token)
        if token.key == "(":
            tree = self.expression()
            if self.next.key == ",":
                raise self.error(self.next, "there is a list where one value is expected", hint="compare one by one")
            if self.next.kind == "end":
                raise self.error(token, "this parenthesis is not closed", expected=") before the end")
            self.require(")", "this does not continue the expression in parentheses")
            return tree
        if token.key == "|":  # |a - b|, as in papers: no other operand begins with a bar
            tree = self.expression(Level.BIT_XOR)
            self.require("|", "the bars of an absolute value are not closed")
            return self.make(token, Call, "abs", (tree,))
        raise self.error(token, "an operand is missing here", expected="a column, a number, a string or a function")

    def number(self, token: Token) -> Expression:
        written = _NUMBER.fullmatch(token.text)
        if not written:
            raise self.error(token, "this is not a number", expected="a number such as 12, 0.5 or 1e-3")
        digits, suffix = written.groups()
        if suffix.upper() == "F":
            return Opaque((token.text,))  # rounded to 32 bits by Spark: not the number it reads as
        value = self.make(token, Literal, float(digits))
        return self.make(token, Literal, int(digits)) if digits.isdigit() else value

    def string(self, token: Token) -> Expression:
        first, text = token, token.text
        while self.next.kind == "string":  # as in Spark: neighbours are one string, and a doubled quote is a quote
            following = self.take()
            quote = self.source[token.stop - 1]
            doubled = following.start == token.stop and self.source[following.start] == quote
            text += (quote if doubled else "") + following.text
            token = following
        return self.make(first, Literal, text)

    def named(self, token: Token) -> Expression:
        key, following = token.key, self.next
        if following.key != ".":
            if following.key == "(" and token.kind == "word" and key not in NEVER_FUNCTIONS:
                return self.call(token)
            if key in _CONSTANTS:
                return self.make(token, Literal, _CONSTANTS[key])
            if key == "CASE":
                return self.case()
            if key == "INTERVAL" and self.starts_interval():
                return self.interval(token)
            if key in _TYPED_STRINGS and following.kind == "string":
                return Opaque((f"{key} {self.source[following.start : self.take().stop]}",))
            if key in _FUNCTIONS_WITHOUT_PARENTHESES:
                return Opaque((key,))
            if key in self.reserved:
                hint = _HINTS.get(key, f"a column of this name is written `{token.text}`, in backquotes")
                raise self.error(token, "an operand is missing here", expected="a column or a value", hint=hint)
            return self.make(token, Column, None, token.text)
        self.take()
        column = self.make(token, Column, token.text, self.name_part())
        if self.next.key == "(":
            raise self.error(self.next, f"`{column}` is a column, not a function")
        return column

    def name_part(self) -> str:
        token = self.take()
        if token.kind not in ("word", "name") or not token.text:
            raise self.error(
                token, "a name is missing after the dot", hint="put unusual names in backquotes, as in left.`my name`"
            )
        return token.text

    def call(self, token: Token) -> Expression:
        self.take()
        name = token.text.lower()
        head = f"{name}("
        if name == "extract" and self.next.kind == "word" and self.after().key == "FROM":
            head += f"{self.take().key} {self.take().key} "
        elif name in _FUNCTIONS_OF_A_UNIT and self.next.key in _UNITS and self.after().key == ",":
            head += f"{self.take().key}, "
            self.take()
        args: list[Expression] = []
        if self.next.key != ")":
            args.append(self.expression())
            if name in _CASTS and self.take_if("AS"):
                head, tail = f"{name.upper()}(", f" AS {self.type_text()})"
                self.require(")", "the cast is not closed")
                return self.make(token, Opaque, (head, args[0], tail))
            while self.take_if(","):
                args.append(self.expression())
        if self.next.key != ")":
            hint = _HINTS.get(self.next.key, "separate arguments by commas")
            raise self.error(self.next, f"the call of {name}() is not closed", expected=") or a comma", hint=hint)
        self.take()
        if head != f"{name}(":
            parts = [part for arg in args for part in (", ", arg)][1:]
            return self.make(token, Opaque, (head, *parts, ")"))
        if name == "between" and len(args) == 3:
            return self.make(token, Between, *args)
        if name in ("power", "pow") and len(args) == 2:
            return self.make(token, Arithmetic, "**", *args)
        return self.make(token, Call, name, tuple(args))

    def case(self) -> Expression:
        token = self.next
        parts: list[str | Expression] = ["CASE"]
        if self.next.key != "WHEN":
            parts += [" ", self.expression()]
        if self.next.key != "WHEN":
            raise self.error(self.next, "CASE has no WHEN", expected="WHEN")
        while self.take_if("WHEN"):
            parts += [" WHEN ", self.expression()]
            self.require("THEN", "WHEN has no THEN")
            parts += [" THEN ", self.expression()]
        if self.take_if("ELSE"):
            parts += [" ELSE ", self.expression()]
        self.require("END", "CASE is not closed")
        return self.make(token, Opaque, (*parts, " END"))

    def starts_interval(self) -> bool:
        signed = self.next.key in ("-", "+")
        number, unit = (self.after(1), self.after(2)) if signed else (self.next, self.after(1))
        return (self.next.kind == "string") or (number.kind == "number" and unit.key in _UNITS)

    def interval(self, token: Token) -> Expression:
        last = token
        while self.next.kind == "string" or self.starts_interval():
            while self.next.kind != "word":
                last = self.take()
                if last.kind == "string":
                    break
            if self.next.key in _UNITS:
                last = self.take()
            if self.next.key == "TO" and self.after().key in _UNITS:
                self.take()
                last = self.take()
        return Opaque((self.source[token.start : last.stop],))

    def type_text(self) -> str:
        first = last = self.next
        if first.kind != "word":
            raise self.error(first, "the name of a type is missing", expected="a type such as DOUBLE")
        self.take()
        opening = ("(", "<") if first.key in ("ARRAY", "MAP", "STRUCT") else ("(",)  # x::int < 3 is a comparison
        depth = 0
        while depth or (last is first and self.next.key in opening):
            last = self.take()
            if last.kind == "end":
                raise self.error(last, "the type is not closed")
            depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(last.key, 0)
        return self.source[first.start : last.stop]
