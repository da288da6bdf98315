"""Random conditions with functions in them, each as text and as a function of plain numbers at once.

Nothing of the package evaluates them. A condition is an array of 1 (it holds), 0 (it does not) and nan (it is unknown,
because a function in it is not defined there).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

OPS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "=": np.equal, "<>": np.not_equal}
NUMBERS = ("a", "b", "c")
"""Columns of numbers; ``p`` is one of points in the plane."""

Made = tuple[str, Callable]
"""A text, and what gives its values, of a dict of arrays by the names of columns."""


def stated_error(explained):
    """What a plan says of how far off its probabilities may be: 0 if it says nothing.

    Means over lattices are right to 1e-3 only, which is more than a million draws tell.
    """
    return sum(float(each) for each in re.findall(r"error below ([0-9.e-]+)", explained))


def known(truth, *values):
    """Truth as numbers, unknown where one of the values is nan."""
    return np.where(np.any([np.isnan(value) for value in values], axis=0), np.nan, truth.astype(float))


def negated(one):
    return 1 - one


def both(one, other):
    return np.where((one == 0) | (other == 0), 0.0, one * other)


def either(one, other):
    return 1 - both(1 - one, 1 - other)


def other_than(one, other):
    return np.abs(one - other)


class FunctionTrees:
    """Makes random conditions.

    ``discrete`` names the columns whose values are samples, of which equalities are asked; points have components if
    ``components`` says so. Most trees are about three values, as haply knows no more of them if their laws are not
    normal: three numbers, or a point and a number. The others may be about all.
    """

    def __init__(self, seed, *, discrete=(), components=True):
        self.random = np.random.default_rng(seed)
        self.discrete, self.components = set(discrete), components
        some = str(self.random.choice(NUMBERS))
        kind = self.random.random()
        self.numbers = NUMBERS if kind < 0.65 else (some,) if kind < 0.9 else NUMBERS
        self.points = kind >= 0.65

    def chance(self, share):
        return self.random.random() < share

    def number(self, low=-6, high=7):
        return float(self.random.integers(low, high)) / 4

    def op(self):
        return str(self.random.choice(list(OPS)[:4]))

    # -- values: a text, what it is, and the columns in it -----------------------------------------------------------

    def column(self):
        if self.points and self.components and self.chance(0.4):
            k = int(self.random.integers(0, 2))
            return f"p[{k}]", lambda row: row["p"][k], {"p"}
        name = str(self.random.choice(self.numbers))
        return name, lambda row: row[name], {name}

    def linear(self):
        text, of, names = self.column()
        if self.chance(0.5):
            return text, of, names
        other, of_other, more = self.column()
        if other == text:
            return text, of, names
        factor = float(self.random.choice([-1.0, 0.5, 2.0, 1.0]))
        if factor == -1.0:
            return f"({text} - {other})", lambda row: of(row) - of_other(row), names | more
        return f"({text} + {factor} * {other})", lambda row: of(row) + factor * of_other(row), names | more

    def quadratic(self):
        (one, of_one, names), (two, of_two, more) = self.column(), self.column()
        k, m = self.number(-3, 4), self.number(-3, 4)
        if self.chance(0.5):
            text = f"(({one} - {k}) * ({two} - {m}))"
            return text, lambda row: (of_one(row) - k) * (of_two(row) - m), names | more
        sign = "-" if self.chance(0.3) and one != two else "+"
        text = f"(({one} - {k}) * ({one} - {k}) {sign} ({two} - {m}) ** 2)"
        plus = 1 if sign == "+" else -1
        return text, lambda row: (of_one(row) - k) ** 2 + plus * (of_two(row) - m) ** 2, names | more

    def distance(self):
        if not self.points:
            return self.quadratic()
        k, m = self.number(), self.number()
        return (
            f"distance(p, array({k}, {m}))",
            lambda row: np.sqrt((row["p"][0] - k) ** 2 + (row["p"][1] - m) ** 2),
            {"p"},
        )

    def inner(self):
        """What a function may be of."""
        kind = int(self.random.integers(0, 5))
        return self.quadratic() if kind == 0 else self.distance() if kind == 1 else self.linear()

    def function(self):
        """A function that rises, or a power, with a factor and an offset at times."""
        text, of, names = self.inner()
        kind = str(self.random.choice(["exp", "ln", "sqrt", "odd", "even", "cbrt", "inverse"]))

        def value(row):
            with np.errstate(all="ignore"):
                x = of(row)
                found = {
                    "exp": np.exp, "ln": lambda x: np.where(x > 0, np.log(x), np.nan), "sqrt": np.sqrt,
                    "odd": lambda x: x**3, "even": lambda x: x**4, "cbrt": np.cbrt,
                    "inverse": lambda x: np.where(x != 0, 1 / x, np.nan),
                }[kind](x)  # fmt: skip
                return found

        written = {"odd": f"power({text}, 3)", "even": f"{text} ** 4", "inverse": f"power({text}, -1)"}
        made = written.get(kind, f"{kind}({text})")
        if self.chance(0.3):
            return f"(3 - 2 * {made})", lambda row: 3 - 2 * value(row), names
        return made, value, names

    def several(self):
        """The greatest or least of some values, a sum of absolute values, or one of two by a condition."""
        (one, of_one, names), (two, of_two, more) = self.linear(), self.linear()
        kind = int(self.random.integers(0, 5))
        names = names | more
        if kind == 0:
            return f"greatest({one}, {two})", lambda row: np.maximum(of_one(row), of_two(row)), names
        if kind == 1:
            third, of_third, more = self.column()
            text = f"least({one}, {two}, {third})"
            return text, lambda row: np.minimum(np.minimum(of_one(row), of_two(row)), of_third(row)), names | more
        if kind == 2:
            return f"(abs({one}) + abs({two}))", lambda row: np.abs(of_one(row)) + np.abs(of_two(row)), names
        if kind == 3:
            k = self.number()
            third, of_third, more = self.column()
            text = f"CASE WHEN {third} < {k} THEN {one} ELSE {two} END"
            return text, lambda row: np.where(of_third(row) < k, of_one(row), of_two(row)), names | more
        # not below -1.5: haply refuses what compares an absolute value with a negative number
        return f"(abs({one} - abs({two})) - 1.5)", lambda row: np.abs(of_one(row) - np.abs(of_two(row))) - 1.5, names

    def quotient(self):
        (one, of_one, names), (two, of_two, more) = self.linear(), self.linear()

        def value(row):
            with np.errstate(all="ignore"):
                return np.where(of_two(row) != 0, of_one(row) / of_two(row), np.nan)

        return f"{one} / {two}", value, names | more

    def value(self):
        kind = int(self.random.integers(0, 7))
        if kind < 2:
            return self.linear()
        made = (self.quadratic, self.distance, self.function, self.several, self.quotient)[kind - 2]
        return made()

    # -- conditions --------------------------------------------------------------------------------------------------

    def leaf(self) -> Made:
        if self.chance(0.05):
            return "sure > 0", lambda row: (row["sure"] > 0).astype(float)
        text, of, names = self.linear() if self.chance(0.25) else self.value()
        k, m = sorted((self.number(), self.number()))
        exact = names <= self.discrete and not any(
            sign in text for sign in ("/", "-1)", "distance", "exp", "ln", "cbrt")
        )
        kind = int(self.random.integers(0, 8))
        if exact and kind == 0:
            return f"{text} IN ({k}, {m})", lambda row: known((of(row) == k) | (of(row) == m), of(row))
        if exact and kind == 1:
            return f"{text} <> {k}", lambda row: known(of(row) != k, of(row))
        if kind in (2, 3):
            word = "NOT BETWEEN" if kind == 3 else "BETWEEN"

            def within(row):
                inside = known((of(row) >= k) & (of(row) <= m), of(row))
                return 1 - inside if kind == 3 else inside

            return f"{text} {word} {k} AND {m}", within
        op = self.op()
        return f"{text} {op} {k}", lambda row: known(OPS[op](of(row), k), of(row))

    def tree(self, depth) -> Made:
        if depth == 0 or self.chance(0.15):
            return self.leaf()
        kind = int(self.random.integers(0, 6))
        one, holds = self.tree(depth - 1)
        if kind == 0:
            return f"NOT ({one})", lambda row: negated(holds(row))
        other, also = self.tree(depth - 1)
        if kind == 1:
            return f"({one}) XOR ({other})", lambda row: other_than(holds(row), also(row))
        if kind == 2 and depth > 1:
            third, otherwise = self.tree(depth - 2)
            if self.chance(0.3):
                return (
                    f"CASE WHEN {one} THEN {other} END",
                    lambda row: np.where(holds(row) == 1, also(row), np.nan),
                )
            return (
                f"CASE WHEN {one} THEN {other} ELSE {third} END",
                lambda row: np.where(holds(row) == 1, also(row), otherwise(row)),
            )
        if kind == 3:
            return f"({one}) AND ({other})", lambda row: both(holds(row), also(row))
        return f"({one}) OR ({other})", lambda row: either(holds(row), also(row))


def with_columns(text, constructors):
    """Put what makes the columns uncertain in the place of their names."""
    parts, part = [], ""
    for letter in [*text, ""]:
        if letter.isalnum() or letter == "_":
            part += letter
            if letter:
                continue
        parts += [constructors.get(part, part), letter]
        part = ""
    return "".join(parts)


def is_asked(text):
    """Whether something uncertain is in a condition."""
    return "@" in with_columns(text, dict.fromkeys((*NUMBERS, "p"), "@"))


KINDS = ("gaussian", "uniform", "histogram", "truncated", "mixture", "samples")


def law(random, kinds=(*KINDS, "asymmetric")):
    """A random law of numbers: its kind, its text, and what draws from it."""
    kind = str(random.choice(kinds))
    place, width = (round(float(number), 3) for number in (random.normal(0, 0.7), random.uniform(0.3, 1.2)))
    if kind == "gaussian":
        return kind, f"gaussian({place}, {width})", lambda n: random.normal(place, width, n)
    if kind == "uniform":
        text = f"uniform({place - width}, {place + width})"
        return kind, text, lambda n: random.uniform(place - width, place + width, n)
    if kind == "samples":
        points = [float(point) for point in random.integers(-6, 7, 4) / 4]
        return kind, f"samples(array({', '.join(map(str, points))}))", lambda n: random.choice(points, n)
    if kind == "asymmetric":

        def split(n):
            sizes = np.abs(random.normal(0, 1, n))
            below = random.random(n) < 1 / 3  # the halves weigh as their deviations do
            return np.where(below, place - width * sizes, place + 2 * width * sizes)

        return kind, f"asymmetric({place}, {width}, {2 * width})", split
    if kind == "truncated":
        low, high = place - width, place + 0.5 * width

        def cut(n):
            found = random.normal(place, width, 4 * n)
            return found[(found >= low) & (found <= high)][:n]

        return kind, f"truncated_gaussian({place}, {width}, {low}, {high})", cut
    share = round(float(random.uniform(0.2, 0.8)), 3)
    if kind == "mixture":
        text = f"mixture(array({share}, {1 - share}), array({place}, {place + 1}), array({width}, {width / 2}))"
        return (
            kind,
            text,
            lambda n: np.where(
                random.random(n) < share, random.normal(place, width, n), random.normal(place + 1, width / 2, n)
            ),
        )
    edges = [place - width, place, place + 2 * width]
    text = f"histogram(array({', '.join(map(str, edges))}), array({share}, {1 - share}))"
    return (
        kind,
        text,
        lambda n: np.where(
            random.random(n) < share, random.uniform(edges[0], edges[1], n), random.uniform(edges[1], edges[2], n)
        ),
    )


def plane_law(random):
    """A random law of points in the plane, normal or a mixture: its text, and what draws its two coordinates."""
    (x, y, u, v), (s, t) = random.normal(0, 0.7, 4).round(3), random.uniform(0.3, 1.0, 2).round(3)
    corr = round(float(random.uniform(-0.8, 0.8)), 3)
    cov = np.array([[s * s, corr * s * t], [corr * s * t, t * t]])

    def normal(centre, n):
        return random.multivariate_normal(centre, cov, n).T

    if random.random() < 0.6:
        return f"gaussian_nd(array({x}, {y}), array({s}, {t}), {corr})", lambda n: normal((x, y), n)
    flat = ", ".join(repr(float(number)) for number in cov.ravel())
    text = f"mixture_nd(array(0.25, 0.75), array({x}, {y}, {u}, {v}), array({flat}, {flat}))"
    return text, lambda n: np.where(random.random(n) < 0.25, normal((x, y), n), normal((u, v), n))
