"""Recipes: constructors that make the parameters of a model from other columns, such as errors and texts.

A recipe returns the name of a model's constructor and its arguments. It writes formulas with operators, and functions
of Spark's SQL with ``call(name, *arguments)``. The caller decides what ``call`` and the operators make: columns of
Spark, or expressions that either engine evaluates. Numbers stay numbers, so recipes refuse wrong ones before any
data is read. In a formula, a row that is not a distribution gets invalid parameters, such as a negative variance or
NaN: it is then a bad row, as everywhere else.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

from haply.errors import HaplyError

Made = tuple[str, list[Any]]
"""The name of a constructor, and its arguments."""

SHARE_WITHIN_ACCURACY = 0.68
"""The probability that the true position is within ``accuracy``, as Android and others define it."""
FARTHEST = 1.0e6
"""How far a position may be from the origin of its plane, in metres."""

_EQUATOR_RADIUS, _FLATTENING = 6378137.0, 1.0 / 298.257223563  # WGS 84
_SQUARED_ECCENTRICITY = _FLATTENING * (2.0 - _FLATTENING)
_DEPTH_THERE = 6371008.8 * (1.0 - math.cos(FARTHEST / 6371008.8))
"""How far below the plane the ground is at that distance."""

_DIGITS = "(?:[0-9]+[.]?[0-9]*|[.][0-9]+)"
_EXPONENT = "[eE][+-]?[0-9]{1,3}"
_SPACE = "[ \t\r\n\u0085\u00a0\u2009\u2028\u2029\u202f]*"  # all line ends: Java's $ matches before them
_TIMES_POWER = f"(?:(?:[eE]|{_SPACE}[x×*]{_SPACE}10[*^]{{1,2}})([+-]?[0-9]{{1,3}}))?"
_PLUS_MINUS = f"{_SPACE}(?:±|[+]/?-){_SPACE}"
_SEPARATE = f"^{_SPACE}([+-]?{_DIGITS}(?:{_EXPONENT})?)(?:{_PLUS_MINUS}({_DIGITS}(?:{_EXPONENT})?))?{_SPACE}$"
_ENCLOSED = f"^{_SPACE}[(]{_SPACE}([+-]?{_DIGITS}){_PLUS_MINUS}({_DIGITS}){_SPACE}[)]{_TIMES_POWER}{_SPACE}$"
_CONCISE = f"^{_SPACE}([+-]?[0-9]+(?:[.]([0-9]*))?)[(]([0-9]+)[)]{_TIMES_POWER}{_SPACE}$"
_BETWEEN = f"[(){{}}^_,;/$]*{_SPACE}[(){{}}^_,;/$]*{_SPACE}"
_PLUS, _MINUS = (f"[{sign}]{_SPACE}({_DIGITS}(?:{_EXPONENT})?){_SPACE}{_BETWEEN}" for sign in "+-")
_PLUS_FIRST, _MINUS_FIRST = (
    f"^{_SPACE}[$]?([+-]?{_DIGITS}(?:{_EXPONENT})?){_SPACE}{_BETWEEN}{errors}$"
    for errors in (_PLUS + _MINUS, _MINUS + _PLUS)
)
PATTERNS = (_SEPARATE, _ENCLOSED, _CONCISE, _PLUS_FIRST, _MINUS_FIRST)
"""Texts with one error, then with two. They mean the same in Java's and RE2's regular expressions; a text matches at
most one of them."""
TWO_ERRORS = -1.0
"""The sd, next to a mean of NaN, that ``parse`` makes of a text with two errors: it marks these bad rows."""


def measured(call: Any, value: Any, error: Any, level: Any = None) -> Made:
    """Make a normal from a value and its error."""
    _refuse_unless("measured", "error", error, "a number from 0", lambda number: number >= 0.0)
    if level is None:
        return "gaussian", [value, error]
    _refuse_column("measured", "level", level)
    hint = f"{level} % is {level / 100}" if 1.0 < level < 100.0 else ""
    _refuse_unless("measured", "level", level, "a probability between 0 and 1", lambda number: 0.0 < number < 1.0, hint)
    return "gaussian", [value, _number(call, error) / NormalDist().inv_cdf(0.5 + 0.5 * level)]


def rounded(call: Any, value: Any, step: Any) -> Made:
    """Make a uniform from a rounded value."""
    _refuse_unless("rounded", "step", step, "a number above 0", lambda number: number > 0.0)
    middle, half = _number(call, value), 0.5 * _number(call, step)
    return "uniform", [middle - half, middle + half]


def quantiles(call: Any, levels: Any, values: Any) -> Made:
    """Make a histogram from quantiles."""
    numbers = levels if isinstance(levels, list) else [levels]
    for level in numbers:
        _refuse_column("quantiles", "levels", level)
    if len(numbers) < 2 or not _is_increasing(numbers) or (numbers[0], numbers[-1]) != (0, 1):
        raise HaplyError(
            "quantiles() cannot take these levels",
            expected="increasing probabilities that begin at 0 and end at 1",
            found=str(numbers),
            hint="quantiles do not say how far the tails reach: give the least and the largest possible value as the "
            "quantiles of the levels 0 and 1",
        )
    if isinstance(values, list):
        if len(values) != len(numbers):
            raise HaplyError(
                "quantiles() needs a value for each level", expected=f"{len(numbers)} values", found=str(len(values))
            )
        if all(map(_is_number, values)) and not _is_increasing(values):
            raise HaplyError("quantiles() cannot take these values", expected="increasing values", found=str(values))
    return "histogram", [values, [high - low for low, high in itertools.pairwise(numbers)]]


def counts(call: Any, n: Any) -> Made:
    """Make a normal from a count."""
    _refuse_unless("counts", "n", n, "a number from 0", lambda number: number >= 0.0)
    number = _number(call, n)
    # a count below zero stays as the sd, which makes it a bad row
    return "gaussian", [n, call("if", number < 0.0, number, call("sqrt", call("greatest", number, 1.0)))]


def gps(
    call: Any, lat: Any, lon: Any, accuracy: Any = None, hdop: Any = None, uere: Any = None, origin: Any = None
) -> Made:
    """Make a normal on a plane from a position on Earth and its accuracy."""
    if (accuracy is None) == (hdop is None):
        found = "neither" if accuracy is None else "both"
        raise HaplyError("gps() needs the error of a position once", expected="either accuracy or hdop", found=found)
    if origin is None:
        raise HaplyError(
            "gps() needs the origin of its plane",
            expected="origin=(lat, lon)",
            hint="give one place near your data, the same for all tables that are compared: origin=(52.5, 13.4)",
        )
    if not isinstance(origin, (list, tuple)) or len(origin) != 2 or not all(map(_is_number, origin)):
        found = f"{len(origin)} values" if isinstance(origin, (list, tuple)) and len(origin) != 2 else "a column"
        raise HaplyError(
            "The origin of gps() is not a position", expected="two numbers, origin=(lat, lon)", found=found
        )
    for argument, given in (("lat", lat), ("origin", origin[0])):
        _refuse_unless("gps", argument, given, "a latitude from -90 to 90", lambda number: -90.0 <= number <= 90.0)
    uere = 5.0 if uere is None else uere
    _refuse_column("gps", "uere", uere)
    for argument, given in (("accuracy", accuracy), ("hdop", hdop), ("uere", uere)):
        _refuse_unless("gps", argument, given, "a number from 0", lambda number: number >= 0.0)
    if accuracy is not None:
        sd = _number(call, accuracy) / math.sqrt(-2.0 * math.log(1.0 - SHARE_WITHIN_ACCURACY))
    else:
        sd = _number(call, hdop) * (uere / math.sqrt(2.0))
    variance = _signed_square(call, sd)
    return _normal(_on_plane(call, lat, lon, *origin), [variance, 0.0, 0.0, variance])


def ellipse(call: Any, x: Any, y: Any, major: Any, minor: Any, angle: Any) -> Made:
    """Make a normal on a plane from a point and its error ellipse."""
    for argument, given in (("major", major), ("minor", minor)):
        _refuse_unless("ellipse", argument, given, "a number from 0", lambda number: number >= 0.0)
    long, short = (_signed_square(call, _number(call, axis)) for axis in (major, minor))
    turn = call("radians", _number(call, angle))
    along_x, along_y = call("sin", turn), call("cos", turn)
    both = (long - short) * along_x * along_y
    return _normal(
        [x, y],
        [
            long * along_x * along_x + short * along_y * along_y,
            both,
            both,
            long * along_y * along_y + short * along_x * along_x,
        ],
    )


def parse(call: Any, text: Any) -> Made:
    """Make a normal from a value and its error in one text."""
    found = _Text(call, text)
    value, error = found.with_one_error("NaN", "NaN")
    two = call("concat", found.part(_PLUS_FIRST, 1), found.part(_MINUS_FIRST, 1))
    return "gaussian", [call("double", value), call("if", two == "", call("double", error), TWO_ERRORS)]


def parse_asymmetric(call: Any, text: Any) -> Made:
    """Make a value with two errors from one text, which may also have one error for both sides."""
    found = _Text(call, text)

    def of_two(group_if_plus_is_first: int, group_if_not: int) -> Any:
        rest = found.or_else(found.part(_MINUS_FIRST, group_if_not), "NaN")
        return found.or_else(found.part(_PLUS_FIRST, group_if_plus_is_first), rest)

    value, minus = found.with_one_error(of_two(1, 1), of_two(3, 2))
    _, plus = found.with_one_error("", of_two(2, 3))
    return "asymmetric", [call("double", one) for one in (value, minus, plus)]


class _Text:
    """A text with a value and its error, or its errors."""

    def __init__(self, call: Any, text: Any) -> None:
        self.call = call
        self.written = call("replace", call("string", text), "−", "-")  # a minus sign as in print

    def part(self, pattern: str, group: int) -> Any:
        """Return what a group of a pattern matches: empty where the text does not match."""
        return self.call("regexp_extract", self.written, pattern, group)

    def or_else(self, found: Any, other: Any, given: Any = None) -> Any:
        """Return ``found``, or ``given`` instead, if ``found`` is not empty; else ``other``. Null stays null."""
        return self.call("if", found == "", other, found if given is None else given)

    def with_one_error(self, other_value: Any, other_error: Any) -> tuple[Any, Any]:
        """Return value and error as texts of numbers; the others where the text has not just one error."""
        separate, enclosed, concise = (self.part(pattern, 1) for pattern in (_SEPARATE, _ENCLOSED, _CONCISE))
        shared, last = (self.or_else(self.part(*power), "0") for power in ((_ENCLOSED, 3), (_CONCISE, 4)))
        value = self.or_else(concise, other_value, self._power(concise, last))
        value = self.or_else(separate, self.or_else(enclosed, value, self._power(enclosed, shared)))
        # the error's last digit is at the position of the value's last digit
        place = self.call("string", self.call("int", last) - self.call("length", self.part(_CONCISE, 2)))
        error = self.or_else(concise, other_error, self._power(self.part(_CONCISE, 3), place))
        error = self.or_else(enclosed, error, self._power(self.part(_ENCLOSED, 2), shared))
        return value, self.or_else(separate, error, self.or_else(self.part(_SEPARATE, 2), "0"))

    def _power(self, digits: Any, exponent: Any) -> Any:
        return self.call("concat", digits, "e", exponent)


RECIPES: dict[str, Callable[..., Made]] = {
    recipe.__name__: recipe for recipe in (measured, rounded, quantiles, counts, gps, ellipse, parse, parse_asymmetric)
}
"""By the names of their constructors, in Python and in SQL."""


def arguments_of(name: str) -> tuple[tuple[str, ...], int]:
    """Return the names of a recipe's arguments, and how many of them have no default.

    >>> arguments_of("measured")
    (('value', 'error', 'level'), 2)
    """
    parameters = list(inspect.signature(RECIPES[name]).parameters.values())[1:]
    return tuple(one.name for one in parameters), sum(one.default is one.empty for one in parameters)


def _normal(mean: list[Any], cov: list[Any]) -> Made:
    return "gaussian_nd", [mean, None, None, cov]


def _on_plane(call: Any, lat: Any, lon: Any, lat0: float, lon0: float) -> list[Any]:
    """Return metres to the east and to the north on the plane that touches the ellipsoid of WGS 84 at an origin.

    A position that is far from the origin, or invalid, becomes NaN.
    """
    latitude = _number(call, lat)
    turn, tilt, tilt0 = call("radians", _number(call, lon) - lon0), call("radians", latitude), math.radians(lat0)
    sin, sin0, cos0 = call("sin", tilt), math.sin(tilt0), math.cos(tilt0)
    radius = _EQUATOR_RADIUS * call("power", 1.0 - _SQUARED_ECCENTRICITY * sin * sin, -0.5)
    radius0 = _EQUATOR_RADIUS * (1.0 - _SQUARED_ECCENTRICITY * sin0 * sin0) ** -0.5
    from_axis = radius * call("cos", tilt)
    outwards = from_axis * call("cos", turn) - radius0 * cos0
    upwards = (1.0 - _SQUARED_ECCENTRICITY) * (radius * sin - radius0 * sin0)
    east, north = from_axis * call("sin", turn), cos0 * upwards - sin0 * outwards
    out_of_range = (call("abs", latitude) > 90.0) | (cos0 * outwards + sin0 * upwards < -_DEPTH_THERE)
    return [call("if", out_of_range, call("double", "NaN"), metres) for metres in (east, north)]


def _signed_square(call: Any, value: Any) -> Any:
    """Return the square of an error; for a negative one a negative number, which is not a variance."""
    return value * call("abs", value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _is_increasing(numbers: list[float]) -> bool:
    return all(low < high for low, high in itertools.pairwise(numbers))


def _number(call: Any, value: Any) -> Any:
    """Return a double; a number is unchanged."""
    return float(value) if _is_number(value) else call("double", value)


def _refuse_unless(
    name: str, argument: str, value: Any, expected: str, holds: Callable[[float], bool], hint: str = ""
) -> None:
    """Refuse a number that is wrong for every row; columns are checked row by row."""
    if _is_number(value) and not (math.isfinite(value) and holds(value)):
        raise HaplyError(f"{name}() cannot take this {argument}", expected=expected, found=f"{value:g}", hint=hint)


def _refuse_column(name: str, argument: str, value: Any) -> None:
    if not _is_number(value):
        raise HaplyError(
            f"The {argument} of {name}() cannot come from a column", expected="numbers, which hold for all rows"
        )
