"""Models from error columns: measured, rounded, quantiles, counts, gps, ellipse and parse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import both_kit as hp
from haply.errors import HaplyError

ORIGIN = (52.5, 13.4)
PLACES = [(52.5, 13.4), (52.6, 13.5), (52.4, 13.2), (48.1, 11.6), (52.5, -346.6)]


def made(engine: Any, text: str, rows: list[tuple[Any, ...]], types: str) -> list[Any]:
    """What a constructor makes of rows, as dictionaries."""
    found = hp.sql(f"SELECT {text} AS made FROM t", t=engine.createDataFrame(rows, types)).collect()
    return [None if row.made is None else row.made.asDict() for row in found]


def chance(engine: Any, condition: Any, rows: list[tuple[Any, ...]], types: str) -> list[float]:
    """The probability of a condition for each row."""
    table = engine.createDataFrame([(k, *row) for k, row in enumerate(rows)], f"id long, {types}")
    kept = {row.id: row.probability for row in hp.where(table, condition, 1e-9).collect()}
    return [kept.get(k, 0.0) for k in range(len(rows))]


# -- what they make ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "sd"),
    [("NULL", 0.4), ("0.95", 0.4 / stats.norm.ppf(0.975)), ("0.5", 0.4 / stats.norm.ppf(0.75)), ("0.6826894921", 0.4)],
)
def test_an_error_of_any_level_is_a_standard_deviation(engine: Any, level: str, sd: float) -> None:
    (found,) = made(engine, f"MEASURED(v, e, {level})", [(12.3, 0.4)], "v double, e double")
    assert found == {"mean": 12.3, "sd": pytest.approx(sd, rel=1e-9)}


def test_half_the_width_of_an_interval_holds_its_level(engine: Any) -> None:
    values = [(12.3, 0.4), (-5.0, 2.0)]
    condition = hp.between(hp.measured(hp.col("v"), hp.col("e"), level=0.9) - hp.col("v"), -0.4, 0.4)
    wanted = [0.9, 2 * stats.norm.cdf(0.4 * stats.norm.ppf(0.95) / 2.0) - 1]
    assert chance(engine, condition, values, "v double, e double") == pytest.approx(wanted, abs=1e-12)


def test_a_rounded_value_is_anywhere_in_its_step(engine: Any) -> None:
    found = made(engine, "rounded(v, s)", [(20.0, 5.0), (0.5, 0.0)], "v double, s double")
    assert found == [{"lo": 17.5, "hi": 22.5}, {"lo": 0.5, "hi": 0.5}]
    assert chance(engine, "rounded(v, 5) > 21", [(20,), (25,)], "v long") == pytest.approx([0.3, 1.0])


def test_quantiles_are_uniform_between_them(engine: Any) -> None:
    levels, values = [0, 0.1, 0.5, 0.9, 1], [1.0, 2.0, 4.0, 5.0, 9.0]
    text = "quantiles(array(0, 0.1, 0.5, 0.9, 1), {})"
    (found,) = made(engine, text.format("q"), [(values,)], "q array<double>")
    assert found["edges"] == values
    assert found["probs"] == pytest.approx(np.diff(levels))
    columns = "array(a, b, c, d, e)"
    asked = f"{text.format(columns)} < 4.6"
    (p,) = chance(engine, asked, [tuple(values)], "a double, b double, c double, d double, e double")
    assert p == pytest.approx(np.interp(4.6, values, levels))


def test_a_count_has_the_error_of_a_poisson_variable(engine: Any) -> None:
    found = made(engine, "counts(n)", [(0,), (1,), (4,), (100,), (None,)], "n long")
    assert found[-1] is None
    assert [(row["mean"], row["sd"]) for row in found[:-1]] == [(0, 1), (1, 1), (4, 2), (100, 10)]


@pytest.mark.parametrize("n", [1, 4, 25, 100, 10_000])
def test_the_stated_error_of_counts(n: int) -> None:
    """The docstring says how far the normal is from the exact distribution of the mean."""
    x = np.linspace(n - 8 * math.sqrt(n), n + 8 * math.sqrt(n), 20_001)
    off = np.abs(stats.norm.cdf(x, n, math.sqrt(n)) - stats.gamma.cdf(x, n + 1)).max()
    assert 0.24 / math.sqrt(n) < off < 0.27 / math.sqrt(n)


@pytest.mark.parametrize("angle", [0.0, 30.0, 90.0, 135.0, 400.0])
def test_an_ellipse_turns_from_y_to_x(engine: Any, angle: float) -> None:
    (found,) = made(engine, f"ellipse(x, y, 5, 2, {angle})", [(1.0, -1.0)], "x double, y double")
    assert found["mean"] == [1.0, -1.0]
    long = np.array([math.sin(math.radians(angle)), math.cos(math.radians(angle))])
    short = np.array([long[1], -long[0]])
    wanted = 25 * np.outer(long, long) + 4 * np.outer(short, short)
    np.testing.assert_allclose(found["cov"], wanted.ravel(), rtol=0, atol=1e-13)


# -- positions ---------------------------------------------------------------------------------------------------------


def in_space(lat: float, lon: float) -> np.ndarray:
    """A place on the ellipsoid of WGS 84 in coordinates that are fixed to the Earth."""
    a, b = 6378137.0, 6356752.314245
    phi, lam = np.radians([lat, lon])
    normal = a**2 / math.hypot(a * math.cos(phi), b * math.sin(phi))
    return np.array(
        [
            normal * math.cos(phi) * math.cos(lam),
            normal * math.cos(phi) * math.sin(lam),
            (b / a) ** 2 * normal * math.sin(phi),
        ]
    )


def on_plane(lat: float, lon: float) -> np.ndarray:
    """Metres to the east and to the north of the origin."""
    phi, lam = np.radians(ORIGIN)
    east = np.array([-math.sin(lam), math.cos(lam), 0.0])
    up = np.array([math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)])
    return np.array([east, np.cross(up, east)]) @ (in_space(lat, lon) - in_space(*ORIGIN))


def test_places_on_the_plane(engine: Any) -> None:
    text = f"gps(lat, lon, 10, NULL, 5, array({ORIGIN[0]}, {ORIGIN[1]}))"
    found = made(engine, text, PLACES, "lat double, lon double")
    for place, row in zip(PLACES, found, strict=True):
        np.testing.assert_allclose(row["mean"], on_plane(*place), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(("degrees", "error"), [(0.0899, 1.3e-6), (0.899, 1.3e-4), (8.98, 1.3e-2)])
def test_the_stated_error_of_the_plane(engine: Any, degrees: float, error: float) -> None:
    """At 10, 100 and 1000 km to the north, two places 100 m apart."""
    places = [(ORIGIN[0] + degrees, ORIGIN[1]), (ORIGIN[0] + degrees + 0.0009, ORIGIN[1])]
    found = made(engine, "gps(lat, lon, 10, NULL, 5, array(52.5, 13.4))", places, "lat double, lon double")
    here = math.dist(found[0]["mean"], found[1]["mean"])
    there = math.dist(in_space(*places[0]), in_space(*places[1]))
    assert 0.8 * error < 1 - here / there < error


def test_accuracy_is_the_radius_of_68_percent(engine: Any) -> None:
    here = hp.gps(hp.col("lat"), hp.col("lon"), accuracy=hp.col("a"), origin=ORIGIN)
    rows = [(*ORIGIN, 10.0), (*ORIGIN, 25.0)]
    found = chance(engine, hp.distance(here, hp.col("zero")) <= 10, [(*row, [0.0, 0.0]) for row in rows],
                   "lat double, lon double, a double, zero array<double>")  # fmt: skip
    assert found == pytest.approx([0.68, 1 - 0.32 ** (10 / 25) ** 2], abs=1e-12)


def test_hdop_is_the_error_of_both_coordinates_together(engine: Any) -> None:
    text = "gps(lat, lon, NULL, h, 4, array(52.5, 13.4))"
    (found,) = made(engine, text, [(*ORIGIN, 1.5)], "lat double, lon double, h double")
    assert math.sqrt(found["cov"][0] + found["cov"][3]) == pytest.approx(1.5 * 4)
    assert found["cov"][1:3] == [0, 0]


def test_two_tables_share_a_plane(engine: Any) -> None:
    phones = engine.createDataFrame([(1, 52.50010, 13.40020, 8.0), (2, 52.51, 13.41, 8.0)],
                                    "id long, lat double, lon double, a double")  # fmt: skip
    stops = engine.createDataFrame([("x", 52.50015, 13.40000)], "stop string, lat double, lon double")
    here = hp.gps(hp.left.lat, hp.left.lon, hp.left.a, origin=ORIGIN)
    stop = hp.gps(hp.right.lat, hp.right.lon, 0, origin=ORIGIN)
    (pair,) = hp.join(phones, stops, on=hp.distance(here, stop) <= 30, threshold=0.5).collect()
    apart = math.dist(on_plane(52.50010, 13.40020), on_plane(52.50015, 13.40000))
    variance = 8.0**2 / (-2 * math.log(0.32))
    wanted = stats.ncx2.cdf(30**2 / variance, 2, apart**2 / variance)
    assert (pair.id, pair.probability) == (1, pytest.approx(wanted, abs=1e-9))


# -- texts -------------------------------------------------------------------------------------------------------------

READ = {
    "12.3 ± 0.4": (12.3, 0.4),
    "12.3±0.4": (12.3, 0.4),
    "12.3 +/- 0.4": (12.3, 0.4),
    "12.3+-0.4": (12.3, 0.4),
    "12.3\u00a0±\u00a00.4\n": (12.3, 0.4),
    "-1.5e3 ± 2e2": (-1500.0, 200.0),
    "12.3(4)": (12.3, 0.4),
    "12.345(12)": (12.345, 0.012),
    "12.3(45)": (12.3, 4.5),
    "1200(30)": (1200.0, 30.0),
    "1.23(4)e-5": (1.23e-5, 4e-7),
    "1.2(3) x 10^4": (12000.0, 3000.0),
    "(1.23 ± 0.04)e-5": (1.23e-5, 4e-7),
    "( -1.23 +/- 0.04 ) × 10^-5": (-1.23e-5, 4e-7),
    "(1.23 ± 0.04)": (1.23, 0.04),
    "\u22125 ± 1": (-5.0, 1.0),
    " 7 ": (7.0, 0.0),
    ".5": (0.5, 0.0),
    "1e-3": (1e-3, 0.0),
}

NOT_READ = [
    *("", " ", "abc", "12,3 ± 0,4", "12.3 ± ", "± 0.4", "12.3 ± -0.4", "(12.3 ± 0.4", "12.3 ± 0.4)", "1 2.3"),
    *("12.3 +0.4 -0.2", "5 ± 1 kg", "12.3(0.4)", "12.3()", "12.3 (4)", "NaN", "inf", ".", "1e", "1e9999", "١٢"),
    *("12.3\u000b", "12.3\n4"),
]  # fmt: skip


def test_texts_that_are_read(engine: Any) -> None:
    found = made(engine, "parse(t)", [(text,) for text in READ], "t string")
    for (text, (mean, sd)), row in zip(READ.items(), found, strict=True):
        assert (row["mean"], row["sd"]) == (mean, sd), text


def test_texts_that_are_not_read_are_bad_rows(engine: Any) -> None:
    table = engine.createDataFrame([(text,) for text in [*NOT_READ, None, "20 ± 1"]], "t string")
    bad = hp.check(hp.sql("SELECT t, parse(t) AS v FROM t", t=table), "v")
    assert sorted(row.t for row in bad.collect()) == sorted(NOT_READ)
    assert [row.t for row in hp.where(table, "parse(t) > 19", 0.5, invalid="drop").collect()] == ["20 ± 1"]
    with pytest.raises(engine.failure, match=r"parse\(t\).*a text that it cannot read"):
        hp.where(table, "parse(t) > 19", 0.5).collect()


TWO_ERRORS = {
    **dict.fromkeys(
        (
            *("12.3 +0.4 -0.2", "12.3+0.4-0.2", "12.3 +0.4/-0.2", "12.3 (+0.4/-0.2)", "12.3 ( +0.4, -0.2 )"),
            *(
                "12.3 -0.2 +0.4",
                "12.3^{+0.4}_{-0.2}",
                "$12.3_{-0.2}^{+0.4}$",
                " 12.3 + 0.4 − 0.2 ",
                "1.23e1 +4e-1 -2e-1",
            ),
        ),
        (12.3, 0.2, 0.4),
    ),
    "-5 +0 -1": (-5.0, 1.0, 0.0),
    "12.3 ± 0.4": (12.3, 0.4, 0.4),
    "12.3(4)": (12.3, 0.4, 0.4),
    "(1.23 ± 0.04)e1": (12.3, 0.4, 0.4),
    "7": (7.0, 0.0, 0.0),
}
"""Texts with a value, the error below it and the error above it."""


def test_texts_with_two_errors_are_read(engine: Any) -> None:
    found = made(engine, "PARSE_ASYMMETRIC(t)", [(text,) for text in TWO_ERRORS] + [(None,)], "t string")
    assert found[-1] is None
    for (text, expected), row in zip(TWO_ERRORS.items(), found, strict=False):
        assert (row["mode"], row["minus"], row["plus"]) == pytest.approx(expected, rel=1e-15), text
    both = made(engine, "PARSE_ASYMMETRIC(t)", [(text,) for text in READ], "t string")
    assert [(row["mode"], row["minus"], row["plus"]) for row in both] == [(mean, sd, sd) for mean, sd in READ.values()]


def test_two_errors_are_no_one_error_and_the_message_says_what_reads_them(engine: Any) -> None:
    table = engine.createDataFrame([("12.3 +0.4 -0.2",)], "t string")
    with pytest.raises(engine.failure, match=r"a text with two errors: hp.parse_asymmetric reads these"):
        hp.where(table, "parse(t) > 12", 0.5).collect()
    (kept,) = hp.where(table, "parse_asymmetric(t) > 12.3", 0.5).collect()
    assert kept.probability == pytest.approx(0.4 / 0.6)
    texts = [text for text in NOT_READ if "+0.4 -0.2" not in text] + ["12.3 +0.4", "12.3 +0.4 +0.2", "1 -2 -3"]
    bad = engine.createDataFrame([(text,) for text in texts], "t string")
    found = hp.check(hp.sql("SELECT t, parse_asymmetric(t) AS v FROM t", t=bad), "v").collect()
    assert {row.t: row.reason for row in found} == dict.fromkeys(
        texts, "mode, minus and plus are NaN (as hp.parse_asymmetric makes them of a text that it cannot read)"
    )


def test_numbers_are_read_as_well(engine: Any) -> None:
    assert made(engine, "parse(n)", [(12.5,), (1e-7,), (3e20,), (None,)], "n double") == [
        {"mean": 12.5, "sd": 0.0}, {"mean": 1e-7, "sd": 0.0}, {"mean": 3e20, "sd": 0.0}, None,
    ]  # fmt: skip


# -- rows and numbers that are none ------------------------------------------------------------------------------------

BAD = {
    "measured(a, b)": "sd < 0",
    "measured(a, b, 0.9)": "sd < 0",
    "rounded(a, b)": "lo > hi",
    "counts(b)": "sd < 0",
    "quantiles(array(0, 0.5, 1), array(a, b, 9))": "edges not increasing",
    "ellipse(a, a, b, 2, 30)": "cov not symmetric positive semidefinite",
    "ellipse(a, a, 2, b, 30)": "cov not symmetric positive semidefinite",
    "gps(a, a, b, NULL, 5, array(1, 1))": "cov not symmetric positive semidefinite",
    "gps(a, a, NULL, b, 5, array(1, 1))": "cov not symmetric positive semidefinite",
    "gps(a + 90, a, 2, NULL, 5, array(89, 1))": "mean is NaN or infinite",
    "gps(a, a, 2, NULL, 5, array(20, 1))": "mean is NaN or infinite",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_rows_are_found_and_null_is_not_one(engine: Any, text: str) -> None:
    table = engine.createDataFrame([(1, 1.0, -3.0), (2, None, None)], "id long, a double, b double")
    bad = hp.check(hp.sql(f"SELECT id, {text} AS v FROM t", t=table), "v")
    ((number, reason),) = [(row.id, row.reason) for row in bad.collect()]
    assert (number, reason) == (1, BAD[text])


REFUSED = {
    "measured(a, 1, 95)": r"measured\(\) cannot take this level. Expected a probability between 0 and 1. Found 95. "
    r"Hint: 95 % is 0.95",
    "measured(a, 1, 0)": "cannot take this level",
    "measured(a, 1, b)": r"The level of measured\(\) cannot come from a column",
    "measured(a, -1)": r"measured\(\) cannot take this error. Expected a number from 0. Found -1",
    "rounded(a, 0)": r"rounded\(\) cannot take this step. Expected a number above 0. Found 0",
    "counts(-2)": r"counts\(\) cannot take this n",
    "quantiles(array(0.1, 0.9), array(a, b))": "begin at 0 and end at 1.*Hint: quantiles do not say how far",
    "quantiles(array(0, 0.6, 0.5, 1), array(a, b, a, b))": r"quantiles\(\) cannot take these levels",
    "quantiles(array(0, 1), array(1, b, 2))": "needs a value for each level. Expected 2 values. Found 3",
    "quantiles(array(0, 0.5, 1), array(1, 1, 2))": "Expected increasing values",
    "quantiles(array(0, a, 1), array(1, b, 2))": r"The levels of quantiles\(\) cannot come from a column",
    "ellipse(a, b, -1, 1, 0)": r"ellipse\(\) cannot take this major",
    "gps(a, b, 5)": r"needs the origin of its plane. Expected origin=\(lat, lon\).*the same for all tables",
    "gps(a, b, 5, 1, 5, array(1, 1))": "Expected either accuracy or hdop. Found both",
    "gps(a, b, NULL, NULL, 5, array(1, 1))": "Expected either accuracy or hdop. Found neither",
    "gps(a, b, 5, NULL, 5, array(1, 1, 1))": r"The origin of gps\(\) is not a position.*Found 3 values",
    "gps(a, b, 5, NULL, 5, array(a, b))": r"The origin of gps\(\) is not a position.*Found a column",
    "gps(a, b, 5, NULL, 5, array(95, 1))": r"gps\(\) cannot take this origin. Expected a latitude from -90 to 90",
    "gps(91, b, 5, NULL, 5, array(1, 1))": r"gps\(\) cannot take this lat",
    "gps(a, b, -5, NULL, 5, array(1, 1))": r"gps\(\) cannot take this accuracy",
    "gps(a, b, NULL, 1, b, array(1, 1))": r"The uere of gps\(\) cannot come from a column",
    "counts(a, b)": r"Expected counts\(n\). Found 2 arguments",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_numbers_that_no_row_could_have_are_refused(engine: Any, text: str) -> None:
    table = engine.createDataFrame([(1.0, 2.0)], "a double, b double")
    with pytest.raises(HaplyError, match=REFUSED[text]):
        hp.where(table, f"{text} > 0", 0.5)
    with pytest.raises(HaplyError, match=REFUSED[text]):
        hp.sql(f"SELECT {text} AS v FROM t", t=table)


def test_numbers_are_refused_where_an_expression_is_made() -> None:
    with pytest.raises(HaplyError, match="cannot take this level"):
        hp.measured(hp.left.a, 1, level=2)
    with pytest.raises(HaplyError, match="needs the origin"):
        hp.gps(hp.left.lat, hp.left.lon, accuracy=5)
    with pytest.raises(HaplyError, match="begin at 0 and end at 1"):
        hp.quantiles([0.25, 0.5, 0.75], [hp.left.a, hp.left.b, hp.left.c])


def test_sql_tells_where_a_number_is_wrong(engine: Any) -> None:
    table = engine.createDataFrame([(1.0,)], "a double")
    with pytest.raises(HaplyError, match=r"line 1, column 23:.*\n.*\n +\^\nrounded\(\) cannot take this step"):
        hp.sql("SELECT a FROM t WHERE rounded(a, -1) > 2 WITH THRESHOLD 0.5", t=table)


# -- in conditions that have a direction -------------------------------------------------------------------------------

LEFT_VALUES = ("gaussian({x}, 0.7)", "uniform({x}, {x} + 1.5)", "truncated_gaussian({x}, 1, {x} - 1, {x} + 2)",
               "rounded({x}, 1)", "samples(array({x}, {x} + 1, {x} + 3))")  # fmt: skip
RIGHT_VALUES = ("{x}", "gaussian({x}, 0.4)", "uniform({x}, {x} + 2)", "asymmetric({x}, 0.3, 0.9)")
DIRECTED = ("{a} <= {b}", "{a} > {b}", "{b} - {a} BETWEEN 0.5 AND 2", "{a} - {b} < 1")


@pytest.mark.parametrize("on", DIRECTED)
@pytest.mark.parametrize("right", RIGHT_VALUES)
@pytest.mark.parametrize("left", LEFT_VALUES)
@pytest.mark.long(keep=20)
def test_a_constructor_in_a_condition_is_the_column_that_it_makes(engine: Any, left: str, right: str, on: str) -> None:
    """The order of the tables does not depend on the names of constructors, by which sums of values are ordered."""
    one = engine.createDataFrame([(k, x) for k, x in enumerate((-2.0, 0.0, 0.4, 3.0))], "id long, x double")
    other = engine.createDataFrame([(k, x) for k, x in enumerate((-1.5, 0.2, 1.0, 2.5))], "id long, x double")

    def pairs(first: Any, second: Any, condition: str) -> dict[tuple[int, int], float]:
        found = hp.join(first, second, on=condition, threshold=1e-6, columns=["id_left", "id_right"]).collect()
        return {(row.id_left, row.id_right): row.probability for row in found}

    inside = pairs(one, other, on.format(a=left.format(x="left.x"), b=right.format(x="right.x")))
    made = [
        hp.sql(f"SELECT id, {text.format(x='x')} AS value FROM t", t=table)
        for text, table in ((left, one), (right, other))
    ]
    assert inside == pytest.approx(pairs(*made, on.format(a="left.value", b="right.value")), abs=1e-12)
    assert inside


@pytest.mark.parametrize("constructor", ["uniform(left.x, left.x + 1)", "samples(array(left.x, left.x + 1))"])
def test_a_value_below_a_number_is_below_it(engine: Any, constructor: str) -> None:
    one, other = (engine.createDataFrame([(x,)], "x double") for x in (-3.0, 5.0))
    assert [
        row.probability for row in hp.join(one, other, on=f"{constructor} <= right.x", threshold=0.5).collect()
    ] == [1]
    assert hp.join(one, other, on=f"{constructor} > right.x", threshold=0.5).collect() == []
