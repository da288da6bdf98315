"""Conditions with squares, products and distances that share Gaussian columns, against brute force."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import oracle
import oracle_position
import oracle_select as referee
from amounts import fewer
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, GaussianND, Samples, Sky, Uniform
from haply.pruning.threshold import Threshold
from haply.query.rewrites import split_rows
from haply.query.text import parse
from haply.selection import costs
from haply.selection.cases import AllOf, AnyOf, Either
from haply.selection.conditions import Apart, Polynomial, Range, RowValues
from haply.selection.costs import Costs
from haply.selection.grouping import group_of
from haply.selection.methods.nested import Nested
from haply.selection.normals import Coordinates
from haply.selection.select import PLANNINGS, Selection
from oracle_select import Ask, Cloud, Near, NormalND
from select_kit import (
    INF,
    Question,
    ask_text,
    check,
    check_bounds,
    check_draws,
    mixtures,
    normals,
    one,
    point_mixtures,
    points,
    ranges,
)

X, Y, Z = ("x", None), ("y", None), ("z", None)
SPACE = 1e-7
"""What three dimensions promise."""


def quadratic(rng, by_row=None, straight=False, places=(X, Y)):
    """A random polynomial of some values in random ranges."""
    linear = tuple((place, rng.normal(size=by_row) if by_row else float(rng.normal())) for place in places)
    squares = tuple((a, b, float(rng.normal())) for k, a in enumerate(places) for b in places[k:])
    return Ask(linear, () if straight else squares, ranges(rng, int(rng.integers(1, 3)), by_row, 2.0))


def disc(radius, x=0.0, y=0.0, beyond=False):
    """``(x - x0)^2 + (y - y0)^2`` below ``radius^2``, or above."""
    level = radius**2 - x**2 - y**2
    found = (level, INF, True, True) if beyond else (-INF, level, True, True)
    return Ask(((X, -2.0 * x), (Y, -2.0 * y)), ((X, X, 1.0), (Y, Y, 1.0)), (found,))


def half(x, y, low=0.0, high=INF):
    return Ask(((X, x), (Y, y)), (), ((low, high, True, True),))


STANDARD = {name: [oracle.Normal(0.0, 1.0)] for name in "xyz"}


def of_standard(*asks):
    """The probability of what is asked of two independent standard normals."""
    question = Question({name: STANDARD[name] for name in "xy"}, asks)
    assert question.group.method == "curved"
    return question.group.prepare(question.batch).exact()[0][0]


# ---------------------------------------------------------------------------------------------------------------
# Random cases


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(8))
def test_in_the_plane(seed):
    """All at once: two or three polynomials, ranges in pieces, columns as factors and limits, sds of all sizes."""
    rng = np.random.default_rng(300 + seed)
    rows = fewer(60)
    # for sds that are tinier or larger still the referee has too few digits
    columns = {name: normals(rng, rows, tiny=1e-3, huge=30.0) for name in "xy"}
    columns |= {"y": mixtures(rng, rows)} if seed == 3 else {}
    for shape in range(3):
        by_row = rows if shape == 2 else None
        asks = [quadratic(rng, by_row, straight=k > 0 and rng.random() < 0.4) for k in range(int(rng.integers(2, 4)))]
        check(Question(columns, asks), "curved", referee.normals(columns, asks))


@pytest.mark.long
def test_components_of_points():
    """Correlated, nearly certain of each other, and singular."""
    rng = np.random.default_rng(310)
    rows = 80
    p = [("p", 0), ("p", 1)]
    for columns in ({"p": points(rng, rows, 2)}, {"p": point_mixtures(rng, rows, 2)}):
        for _ in range(3):
            asks = [quadratic(rng, places=p), quadratic(rng, straight=bool(rng.integers(0, 2)), places=p)]
            check(Question(columns, asks), "curved", referee.normals(columns, asks))


def test_along_a_line():
    """One direction matters: components that are the same, a single component, and a difference by itself."""
    rng = np.random.default_rng(311)
    rows = 200
    sd, mean = np.exp(rng.uniform(-1.0, 1.0, rows)), rng.uniform(-2.0, 2.0, (rows, 2))
    same = {"p": [NormalND(m, s * s * np.ones((2, 2))) for m, s in zip(mean, sd, strict=True)]}
    pair = {name: normals(rng, rows) for name in "xy"}
    p, q = ("p", 0), ("p", 1)
    squared = ((X, X, 1.0), (X, Y, -2.0), (Y, Y, 1.0))
    for columns, asks in (
        (same, [quadratic(rng, places=(p, q)), quadratic(rng, places=(p, q))]),
        (same, [quadratic(rng, places=(p,)), quadratic(rng, places=(p,)), quadratic(rng, straight=True, places=(p,))]),
        (pair, [Ask((), squared, ((-INF, 2.0, True, True),)), half(1.0, -1.0, -0.5)]),
    ):
        check(Question(columns, asks), "curved", referee.normals(columns, asks), 1e-13)


def cylinders(columns, one_limit, other_limit):
    """``x^2 + y^2`` and ``y^2 + z^2`` below limits: given ``y`` the others are independent. One integral is left."""
    found = []
    for x, y, z in zip(columns["x"], columns["y"], columns["z"], strict=True):
        reach = math.sqrt(min(one_limit, other_limit))

        def density(_, t, x=x, y=y, z=z, reach=reach):
            at = reach * np.sin(t)
            height = oracle_density(at, y) * reach * np.cos(t)
            for value, limit in ((x, one_limit), (z, other_limit)):
                far = np.sqrt(np.maximum(limit - at * at, 0.0))
                low, high = ((end - value.mean) / value.sd for end in (-far, far))
                height = height * (normal_cdf(high) - normal_cdf(low))
            return height

        cuts = np.linspace(-math.pi / 2, math.pi / 2, 41)
        found.append(referee.halved(density, np.zeros(40, int), cuts[:-1], cuts[1:], 1)[0])
    return np.array(found)


normal_cdf = referee.special.ndtr


def oracle_density(at, value):
    z = (at - value.mean) / value.sd
    return np.exp(-0.5 * z * z) / (value.sd * math.sqrt(2.0 * math.pi))


def some_normals(rng, rows, names="xyz"):
    """Of ordinary sizes."""
    mean, sd = rng.normal(size=(len(names), rows)), np.exp(rng.uniform(-1.0, 0.5, (len(names), rows)))
    return {
        name: [oracle.Normal(float(m), float(s)) for m, s in zip(mean[k], sd[k], strict=True)]
        for k, name in enumerate(names)
    }


def with_error(question):
    """Probabilities and how far off they may be: rows without mixtures."""
    made = question.group.prepare(question.batch)
    return made.of_parts(Coordinates(made.names, question.batch))


def test_in_space():
    rng = np.random.default_rng(312)
    columns = some_normals(rng, 12)
    asks = [
        Ask((), ((X, X, 1.0), (Y, Y, 1.0)), ((-INF, 2.5, True, True),)),
        Ask((), ((Y, Y, 1.0), (Z, Z, 1.0)), ((-INF, 3.0, True, True),)),
    ]
    question, wanted = Question(columns, asks), cylinders(columns, 2.5, 3.0)
    check(question, "curved", wanted, SPACE)
    found, error = with_error(question)
    assert (np.abs(found - wanted) <= error).all()
    assert error.max() < 1e-6


def test_in_space_against_draws():
    rng = np.random.default_rng(313)
    columns = some_normals(rng, 20)
    for seed in range(fewer(3)):
        asks = [quadratic(rng, places=(X, Y, Z)), quadratic(rng, straight=seed == 0, places=(X, Y, Z))]
        check_draws(Question(columns, asks), "curved", 6000, seed)


def test_the_lattice_says_how_far_off_it_is():
    """Four directions: two cylinders, and a condition that always holds but ties them to a fourth value."""
    rng = np.random.default_rng(314)
    columns = some_normals(rng, 6, "xyzw")
    w = ("w", None)
    asks = [
        Ask((), ((X, X, 1.0), (Y, Y, 1.0)), ((-INF, 2.5, True, True),)),
        Ask((), ((Y, Y, 1.0), (Z, Z, 1.0)), ((-INF, 3.0, True, True),)),
        Ask(((w, 1.0), (Y, 1.0)), (), ((-INF, 40.0, True, True),)),
    ]
    wanted = cylinders(columns, 2.5, 3.0)
    question = Question(columns, asks)
    found, error = with_error(question)
    assert (np.abs(found - wanted) <= error).all()
    assert error.max() < 2e-3
    asks = [quadratic(rng, places=(X, Y, Z, w)) for _ in range(2)]
    check_draws(Question(some_normals(rng, 6, "xyzw"), asks), "curved")


def test_conditions_without_a_common_direction_multiply():
    """Components of one column that do not correlate: tied by the column, but independent, and so exact in 2 + 2."""
    rng = np.random.default_rng(315)
    rows = 30
    p, a, b = [("p", 0), ("p", 1)], ("a", None), ("b", None)
    columns = some_normals(rng, rows, "ab")
    columns["p"] = [NormalND(rng.normal(size=2), np.diag(np.exp(rng.normal(size=2)))) for _ in range(rows)]
    asks = [
        Ask((), ((p[0], p[0], 1.0), (a, a, 1.0)), ((-INF, 2.0, True, True),)),
        Ask((), ((p[1], p[1], 1.0), (b, b, 1.0)), ((-INF, 3.0, True, True),)),
    ]
    check(Question(columns, asks), "curved", np.prod([referee.normals(columns, [ask]) for ask in asks], axis=0))


# ---------------------------------------------------------------------------------------------------------------
# Places where something special happens


def test_known_values():
    quarter = -math.expm1(-2.0) / 4.0
    assert of_standard(disc(2.0), half(1.0, 0.0), half(0.0, 1.0)) == pytest.approx(quarter, abs=1e-13)
    assert of_standard(disc(2.0), half(1.0, -1.0)) == pytest.approx(2.0 * quarter, abs=1e-13)  # through the middle
    ring = math.exp(-0.5) - math.exp(-2.0)
    assert of_standard(disc(2.0), disc(1.0, beyond=True)) == pytest.approx(ring, abs=1e-13)
    assert of_standard(disc(2.0), disc(1.0)) == pytest.approx(-math.expm1(-0.5), abs=1e-13)  # one inside the other
    assert of_standard(disc(2.0), disc(2.0)) == pytest.approx(-math.expm1(-2.0), abs=1e-13)  # the same twice
    positive = Ask((), ((X, Y, 1.0),), ((0.0, INF, True, True),))
    assert of_standard(positive, half(1.0, 1.0)) == pytest.approx(0.25, abs=1e-13)


def test_circles_and_lines_that_touch():
    whole = -math.expm1(-2.0)
    assert of_standard(disc(2.0), disc(1.0, x=3.0)) == pytest.approx(0.0, abs=1e-13)  # in one point
    assert of_standard(disc(2.0), disc(1.0, x=3.0, beyond=True)) == pytest.approx(whole, abs=1e-13)
    assert of_standard(disc(2.0), disc(1.0, x=1.0)) == pytest.approx(
        referee.normals({"x": STANDARD["x"], "y": STANDARD["y"]}, [disc(1.0, x=1.0)])[0], abs=1e-12
    )  # from within
    for x, y in ((1.0, 0.0), (0.0, 1.0), (math.sqrt(0.5), math.sqrt(0.5)), (0.6, 0.8)):
        assert of_standard(disc(2.0), half(x, y, 2.0)) == pytest.approx(0.0, abs=1e-12)
        assert of_standard(disc(2.0), half(x, y, -INF, 2.0)) == pytest.approx(whole, abs=1e-12)


def test_what_cannot_be_is_zero():
    assert of_standard(disc(1.0), half(1.0, 0.0, 2.0)) == 0.0
    assert of_standard(disc(1.0), disc(2.0, beyond=True)) == 0.0
    assert of_standard(disc(1.0, x=-2.0), disc(0.5, x=2.0)) == 0.0
    question = Question({"x": STANDARD["x"], "y": STANDARD["y"]}, [disc(1.0), half(1.0, 0.0, 2.0)])
    assert len(Selection.of([question.conditions], question.kinds, Threshold(None)).select(question.batch).rows) == 0


def test_nothing_varies():
    """3-4-5: without any sd < and <= are told apart."""
    columns = {"x": [oracle.Normal(3.0, 0.0)], "y": [oracle.Normal(4.0, 0.0)]}
    for sign, holds in (("<=", 1.0), ("<", 0.0), (">=", 1.0), (">", 0.0)):
        assert ask_text(f"x * x + y * y {sign} 25 AND x < y", columns)[0] == holds
        assert ask_text(f"x * x + y * y <= 25 AND x + y {sign} 7", columns)[0] == holds
        assert ask_text(f"(x - y) ** 2 {sign} 1 AND x < y", columns)[0] == holds
        assert ask_text(f"distance(x, y) {sign} 1 AND x < y", columns)[0] == holds
    assert ask_text("x * x + y * y <= 25 AND x > y", columns)[0] == 0.0


def test_a_square_that_is_zero_has_no_probability():
    columns = {"x": [oracle.Normal(0.0, 1.0)], "y": [oracle.Normal(0.5, 1.0)]}
    assert ask_text("(x - y) ** 2 <= 0 AND x > -1", columns)[0] == 0.0
    assert ask_text("(x - y) ** 2 >= 0 AND x > -1", columns)[0] == pytest.approx(float(normal_cdf(1.0)), abs=1e-13)
    points_ = {name: [NormalND([0.0, 0.0], np.eye(2))] for name in "pq"}
    assert ask_text("distance(p, q) <= 0 AND p[0] < 1", points_)[0] == 0.0
    assert ask_text("distance(p, q) > 0 AND p[0] < 1", points_)[0] == pytest.approx(float(normal_cdf(1.0)), abs=SPACE)


@pytest.mark.parametrize("mean", [0.0, 2.0])
@pytest.mark.parametrize("width", [1e-2, 1e-5, 1e-8])
def test_a_narrow_strip_is_as_good_as_a_difference(mean, width):
    """The square of one difference, and the distance of two numbers: what a box says without any square."""
    columns = {"x": [oracle.Normal(mean, 1.0)], "y": [oracle.Normal(0.0, 1.0)]}
    wanted = ask_text(f"abs(x - y) <= {width!r} AND x > 0", columns)[0]
    assert ask_text(f"(x - y) ** 2 <= {width * width!r} AND x > 0", columns)[0] == pytest.approx(wanted, abs=1e-14)
    assert ask_text(f"distance(x, y) <= {width!r} AND x > 0", columns)[0] == pytest.approx(wanted, abs=1e-14)
    outside = ask_text(f"distance(x, y) > {width!r} AND x > 0", columns)[0]
    assert outside == pytest.approx(float(normal_cdf(mean)) - wanted, abs=1e-13)


def test_far_tails_keep_their_digits():
    """Two quarters of what lies beyond a circle, 12 sds out; and nothing where nothing is."""
    for radius in (8.0, 12.0, 20.0):
        found = of_standard(disc(radius, beyond=True), Ask((), ((X, Y, 1.0),), ((0.0, INF, True, True),)))
        assert found == pytest.approx(0.5 * math.exp(-0.5 * radius**2), rel=1e-8, abs=0.0)


@pytest.mark.parametrize("mean", [1e3, 1e6])
def test_squares_far_from_zero_keep_their_digits(mean):
    """A circle of one sd around the mean, and half of it, wherever the mean is."""
    columns = {name: [oracle.Normal(mean, 0.125)] for name in "xy"}
    circle = f"(x - {mean:.0f}) ** 2 + (y - {mean:.0f}) ** 2 <= 0.015625"
    wanted = -math.expm1(-0.5)
    assert ask_text(f"{circle} AND x > y", columns)[0] == pytest.approx(0.5 * wanted, abs=1e-12)
    assert ask_text(f"{circle} AND x >= {mean:.0f}", columns)[0] == pytest.approx(0.5 * wanted, abs=1e-12)
    other = f"(x - {mean:.0f} - 0.125) ** 2 + (y - {mean:.0f}) ** 2 <= 0.015625"
    lens = {name: [oracle.Normal(0.0, 1.0)] for name in "xy"}
    assert ask_text(f"{circle} AND {other}", columns)[0] == pytest.approx(
        referee.normals(lens, [disc(1.0), disc(1.0, x=1.0)])[0], abs=1e-12
    )


# ---------------------------------------------------------------------------------------------------------------
# Distances


def far_apart(columns, near):
    """A distance as the referee asks for it together with others."""
    squares = []
    for k in range(2):
        a, b = (near.one, k), (near.other, k)
        squares += [(a, a, 1.0), (a, b, -2.0), (b, b, 1.0)]
    square = np.where(np.asarray(near.limit) < 0.0, -1.0, np.square(near.limit))
    found = (square, INF, not near.closed, True) if near.beyond else (-INF, square, True, near.closed)
    return Ask((), tuple(squares), (found,))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("beyond", [False, True])
def test_a_distance_from_a_point_and_a_component(beyond):
    """Two directions, and so exact: one of the columns is certain. Limits may be columns, and negative."""
    rng = np.random.default_rng(320 + beyond)
    rows = fewer(80)
    for limit in (1.5, rng.uniform(-0.5, 3.0, rows)):
        for p in (points(rng, rows, 2), point_mixtures(rng, rows, 2)):
            columns = {"p": p, "at": [Cloud(rng.uniform(-2, 2, (1, 2))) for _ in range(rows)]}
            near = Near("p", "at", limit, True, beyond)
            component = Ask((one("p", 0),), (), ranges(rng, 2, None, 1.5))
            wanted = referee.normals(columns, [far_apart(columns, near), component])
            check(Question(columns, [near, component]), "curved", wanted)


@pytest.mark.parametrize("kinds", ["normals", "mixtures", "lines"])
def test_distances_tied_to_others(kinds):
    rng = np.random.default_rng(322)
    rows = 12
    if kinds == "lines":
        columns = {name: normals(rng, rows, tiny=1e-2) for name in "pqr"}
        asks = [Near("p", "q", 1.5), Near("q", "r", 1.0, True, True), Ask((one("q"),), (), ((-1.0, INF, True, True),))]
    else:
        make = points if kinds == "normals" else point_mixtures
        columns = {name: make(rng, 4 if kinds == "mixtures" else rows, 2) for name in "pqr"}
        asks = [Near("p", "q", 2.0), Ask((one("p", 0),), (), ((-1.0, INF, True, True),))]
    check_draws(Question({n: columns[n] for n in "pqr"}, asks) if kinds == "lines" else
                Question({n: columns[n] for n in "pq"}, asks), "curved")  # fmt: skip
    if kinds == "normals":
        few = {name: values[:4] for name, values in columns.items()}
        check_draws(Question(few, [Near("p", "q", 2.0), Near("q", "r", rng.uniform(0.5, 3.0, 4))]), "curved")


def test_samples_may_be_at_the_other_end():
    """Each of them is a component of a mixture, without spread."""
    rng = np.random.default_rng(323)
    rows = 20
    columns = {"p": points(rng, rows, 2), "s": [Cloud(rng.uniform(-2, 2, (3, 2))) for _ in range(rows)]}
    near, component = Near("p", "s", 1.5), Ask((one("p", 1),), (), ((-0.5, INF, True, True),))
    wanted = referee.normals(columns, [far_apart(columns, near), component])
    check(Question(columns, [near, component]), "curved", wanted)


def test_distances_of_samples_alone_are_still_counted():
    near = [Apart("s", "t", 1.0, text="a"), Apart("t", "u", 1.0, text="b")]
    assert group_of(near, dict.fromkeys("stu", Samples)).method == "tree"


# ---------------------------------------------------------------------------------------------------------------
# Joint, not a product; bounds; plans


def test_joint_and_not_a_product():
    together = of_standard(disc(2.0), half(1.0, 0.0, 1.0))
    alone = -math.expm1(-2.0) * float(normal_cdf(-1.0))
    assert abs(together - alone) > 0.02
    groups = split_rows(parse("x * x < 1 AND y * y < 1"), lambda column: False).groups
    assert [len(group) for group in groups] == [1, 1]  # independent: they never come together
    tied = split_rows(parse("x * x + y * y < 1 AND (x - 1) ** 2 + y * y < 1"), lambda column: False).groups
    assert [len(group) for group in tied] == [2]
    assert [dict(part.centre).get(X, 0.0) for part in tied[0]] == [0.0, 1.0]
    # tied by a third condition only: their own probabilities still multiply
    third = Ask(((X, 1.0), (Y, 1.0)), (), ((-40.0, 40.0, True, True),))
    squares = [Ask((), ((place, place, 1.0),), ((-INF, 1.0, True, True),)) for place in (X, Y)]
    assert of_standard(*squares, third) == pytest.approx(math.erf(math.sqrt(0.5)) ** 2, abs=1e-12)


def test_bounds_are_on_the_right_side():
    rng = np.random.default_rng(330)
    rows = 400
    columns = {name: normals(rng, rows, tiny=1e-3) for name in "xy"}
    decided = 0.0
    for shape in range(6):
        asks = [quadratic(rng), quadratic(rng, rows if shape % 2 else None, straight=shape % 3 == 0)]
        question = Question(columns, asks)
        assert question.group.has_bounds
        prepared = question.group.prepare(question.batch)
        found = prepared.exact()[0]
        check_bounds(prepared, found)
        bounds = prepared.bounds(0.3, 0.8)
        assert (bounds.lower <= found + 1e-12).all()
        assert (bounds.upper >= found - 1e-12).all()
        decided += ((bounds.upper <= 0.3) | (bounds.lower >= 0.8)).mean() / 6
    assert decided > 0.3


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("exact", [True, False])
def test_every_plan_keeps_the_same_rows(exact):
    rng = np.random.default_rng(331)
    rows = 150
    columns = some_normals(rng, rows, "xyz")
    asks = [disc(2.0), half(1.0, -1.0, -0.5), Ask(((Z, 1.0),), (), ((0.0, INF, True, True),))]
    question = Question(columns, asks)
    groups = [question.conditions[:2], question.conditions[2:]]
    whole = referee.normals(columns, asks[:2]) * referee.normals(columns, asks[2:])
    for threshold in (0.05, 0.2, 0.5):
        for planning in PLANNINGS:
            found = Selection.of(groups, question.kinds, Threshold(threshold), planning, exact).select(question.batch)
            assert found.rows.tolist() == np.flatnonzero(whole >= threshold).tolist()
            known = ~np.isnan(found.probability)
            assert np.abs(found.probability - whole[found.rows])[known].max(initial=0.0) < 1e-11


def test_one_row_of_a_column_serves_for_all():
    rng = np.random.default_rng(332)
    columns = some_normals(rng, 10, "xy")
    asks = [disc(2.0), half(1.0, -1.0)]
    question = Question(columns, asks)
    question.models["y"] = Gaussian([0.5], [1.0])
    found = question.group.prepare(question.batch).exact()[0]
    same = {"x": columns["x"], "y": [oracle.Normal(0.5, 1.0)] * 10}
    np.testing.assert_allclose(found, referee.normals(same, asks), rtol=0, atol=1e-11)


def test_no_rows():
    question = Question({"x": STANDARD["x"], "y": STANDARD["y"]}, [disc(1.0), half(1.0, 0.0)])
    nobody = question.batch.take(np.arange(0))
    for planning in PLANNINGS:
        assert (
            len(Selection.of([question.conditions], question.kinds, Threshold(0.5), planning).select(nobody).rows) == 0
        )


# ---------------------------------------------------------------------------------------------------------------
# Sizes and refusals


KINDS = {"x": Gaussian, "y": Gaussian, "p": GaussianND, "q": GaussianND, "r": GaussianND, "u": Uniform, "s": Sky,
         "t": Sky, "w": Sky, "k": Certain}  # fmt: skip


def planned(text):
    found = split_rows(parse(text), lambda column: KINDS[column.name] is Certain)
    return Selection.of(found.groups, KINDS, Threshold(0.5)).groups


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("x * x + y * y < 4 AND x > y", 2),
        ("p[0] * p[0] < 2 AND p[0] > 0", 1),
        ("distance(p, q) < 3 AND p[0] > 1", 3),
        ("distance(p, q) < 3 AND p[2] > 1", 4),
        ("distance(p, q) < 3 AND distance(q, r) < 2", 4),
        ("x * y > k AND k * x + y < 5", 2),
        ("distance(s, t) < 3 AND distance(s, w) < 2", 6),
    ],
)
def test_its_size_is_the_number_of_directions(text, size):
    (group,) = planned(text)
    assert (group.method, group.size) == ("curved", size)
    assert group.cost_name == ("star" if text.count("distance") == 2 else f"curved {size}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("distance(s, t) < 1 AND distance(s, u) < 1", ["'u'", "points, samples"]),
        (
            "x * y < 1 AND " + " AND ".join(f"(x - {k} * y < -{k} OR x - {k} * y > {k})" for k in range(1, 33)),
            ["at most 64 ranges"],
        ),
    ],
)
def test_refused_before_any_data_is_read(text, words):
    with pytest.raises(HaplyError) as caught:
        planned(text)
    for each in words:
        assert each in str(caught.value)


def test_points_of_different_dimension_and_components_that_are_not_there():
    p, q = GaussianND([[0.0, 0.0]], [np.eye(2)]), GaussianND([[0.0, 0.0, 0.0]], [np.eye(3)])
    kinds = {"p": GaussianND, "q": GaussianND}
    near = Apart("p", "q", 1.0, text="distance(p, q) <= 1")
    first, sixth = (Polynomial(((("p", k), 1.0),), (), (Range(0.0, 1.0),), f"p[{k}] in [0, 1]") for k in (0, 5))
    with pytest.raises(HaplyError, match="differ in dimension"):
        group_of([near, first], kinds).prepare(RowValues({"p": p, "q": q}, {}, 1)).exact()
    with pytest.raises(HaplyError, match="component that is not there"):
        group_of([near, sixth], kinds).prepare(RowValues({"p": p, "q": p}, {}, 1)).exact()


def test_costs_that_were_measured_before_there_was_this_are_measured_again(monkeypatch, tmp_path):
    kept = tmp_path / "costs.json"
    known = dict.fromkeys(costs._names(), 1e-6)
    monkeypatch.setattr(costs, "calibrate", lambda path: Costs((("measured", 1.0),)))
    for leave_out, again in (("", False), ("curved 2", True), ("bounds of curved 2", True)):
        seconds = {name: value for name, value in known.items() if name != leave_out}
        kept.write_text(json.dumps({"machine": costs._machine(), "seconds": seconds}))
        costs._of_this_machine.cache_clear()
        assert (dict(costs._of_this_machine(str(kept)).seconds) == {"measured": 1.0}) == again
    costs._of_this_machine.cache_clear()
    assert {f"curved {size}" for size in (1, 2, 3, 4)} <= set(known)


PANELS = np.polynomial.legendre.leggauss(16)


def around_the_middle(middle, others, panels=4):
    """Given the point in the middle the others are independent: its error is gone through by Gauss's rule in panels."""
    edges = np.linspace(-7.5, 7.5, panels + 1)
    half = 0.5 * np.diff(edges)[:, None]
    nodes = (edges[:-1, None] + half * (1.0 + PANELS[0])).ravel()
    weights = (half * PANELS[1]).ravel() * np.exp(-0.5 * nodes**2) / math.sqrt(2.0 * math.pi)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    share = np.outer(weights, weights).ravel()
    value, basis = np.linalg.eigh(middle[1])
    places = middle[0] + grid @ (basis * np.sqrt(value)).T
    inside = share > 1e-14
    for mean, cov, radius, beyond in others:
        near = np.zeros(len(grid))
        near[inside] = oracle_position.ball(
            mean - places[inside], np.broadcast_to(cov, (int(inside.sum()), 2, 2)), radius
        )
        share = share * (1.0 - near if beyond else near)
    return share[inside].sum()


def some_points(rng, count, least=0.7, most=1.4):
    turns, sds = rng.uniform(0.0, math.pi, count), rng.uniform(least, most, (count, 2))
    basis = np.array([[np.cos(turns), -np.sin(turns)], [np.sin(turns), np.cos(turns)]]).transpose(2, 0, 1)
    return rng.normal(0.0, 1.0, (count, 2)), basis * sds[:, None, :] ** 2 @ basis.transpose(0, 2, 1)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(("others", "beyond"), [(2, (False, False)), (3, (False, True, False))])
def test_distances_from_one_point(others, beyond):
    """Three or four points in the plane, with limits by row; the order of names in a condition does not matter."""
    rng = np.random.default_rng(360 + others)
    n = 3
    laws = [some_points(rng, n) for _ in range(others + 1)]
    limits = rng.uniform(0.5, 3.0, (others, n))
    limits[0, 0] = -1.0  # never
    names = "mabc"[: others + 1]
    values = {name: GaussianND(*law) for name, law in zip(names, laws, strict=True)}
    numbers = {f"limit {k}": limit for k, limit in enumerate(limits)}
    asked = [
        Apart(*(("m", name) if k % 2 else (name, "m")), f"limit {k}", beyond=beyond[k], text=f"near {name}")
        for k, name in enumerate(names[1:])
    ]
    group = group_of(asked, dict.fromkeys(names, GaussianND))
    assert (group.method, group.cost_name) == ("curved", "star")
    prepared = group.prepare(RowValues(values, numbers, n))
    found, _ = prepared.exact()
    assert found[0] == 0.0
    for row in range(1, n):
        wanted = around_the_middle(
            (laws[0][0][row], laws[0][1][row]),
            [(mean[row], cov[row], limits[k, row], beyond[k]) for k, (mean, cov) in enumerate(laws[1:])],
        )
        assert found[row] == pytest.approx(wanted, abs=1e-9)
    check_bounds(prepared, found)
    chosen = np.array([2, 1])
    assert prepared.take(chosen).exact()[0] == pytest.approx(found[chosen], abs=0.0)


def test_a_star_says_what_it_cannot_do():
    """Errors that are too narrow beside the middle's, and points in space, go another way and agree with draws."""
    rng = np.random.default_rng(363)
    middle, sharp = GaussianND(np.zeros((2, 2)), np.stack([np.eye(2)] * 2)), [[0.3, 0.2]] * 2
    certain = GaussianND(sharp, np.zeros((2, 2, 2)))
    almost = GaussianND(sharp, np.stack([1e-6 * np.eye(2)] * 2))
    blurred = GaussianND([[0.1, -0.4]] * 2, np.stack([np.eye(2)] * 2))
    near = [Apart("m", name, 1.0, text=f"near {name}") for name in "ab"]
    drawn = [rng.normal(size=(400_000, 2)), rng.normal([0.1, -0.4], 1.0, (400_000, 2))]
    share = np.mean((np.hypot(*(drawn[0] - sharp[0]).T) <= 1.0) & (np.hypot(*(drawn[0] - drawn[1]).T) <= 1.0))
    for other in (certain, almost):
        group = group_of(near, dict.fromkeys("mab", GaussianND))
        found, _ = group.prepare(RowValues({"m": middle, "a": other, "b": blurred}, {}, 2)).exact()
        assert found == pytest.approx([share] * 2, abs=4e-3)
    dims = {name: GaussianND(np.zeros((1, 3)), np.eye(3)[None]) for name in "mab"}
    found, _ = group.prepare(RowValues(dims, {}, 1)).exact()
    drawn = rng.normal(size=(3, 400_000, 3))
    close = [np.linalg.norm(drawn[0] - other, axis=1) <= 1.0 for other in drawn[1:]]
    assert found == pytest.approx([(close[0] & close[1]).mean()], abs=4e-3)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(4))
def test_errors_of_all_widths_around_one_point(seed):
    """From far narrower than the middle's to far wider, singular ones too, by whichever way takes them."""
    rng = np.random.default_rng(370 + seed)
    columns = {name: points(rng, 12, 2) for name in "mab"}
    check_draws(
        Question(columns, [Near("m", "a", 2.0), Near("b", "m", 1.0, beyond=bool(seed % 2))]), "curved", seed=seed
    )


def test_mixtures_around_a_mixture():
    rng = np.random.default_rng(364)
    columns = {name: point_mixtures(rng, 3, 2) for name in "mab"}
    asks = [Near("m", "a", 1.5), Near("m", "b", 2.0)]
    check_draws(Question(columns, asks), "curved", seed=3)


def test_three_catalogues_on_the_sky():
    """Given the first position the others are independent, and all is flat at this size."""
    rng = np.random.default_rng(350)
    n = 3
    ra, dec = np.array([0.0, 123.0, 359.9999]), np.array([-30.0, 89.999, 10.0])
    shift, errors = rng.normal(0.0, 0.3, (2, 2, n)), rng.uniform(0.3, 0.5, (3, 2, n))
    corr = rng.uniform(-0.5, 0.5, (3, n))

    def sky(which, east, north):
        """Along the great circle, as a step to the east changes the declination near a pole."""
        base, lift = np.radians(ra), np.radians(dec)
        up = np.array([np.cos(lift) * np.cos(base), np.cos(lift) * np.sin(base), np.sin(lift)])
        toward_east = np.array([-np.sin(base), np.cos(base), np.zeros(n)])
        toward_north = np.array([-np.sin(lift) * np.cos(base), -np.sin(lift) * np.sin(base), np.cos(lift)])
        x, y, z = up + np.radians(east / 3600.0) * toward_east + np.radians(north / 3600.0) * toward_north
        return Sky(np.degrees(np.arctan2(y, x)), np.degrees(np.arctan2(z, np.hypot(x, y))), *errors[which], corr[which])

    batch = RowValues({"s": sky(0, np.zeros(n), np.zeros(n)), "t": sky(1, *shift[0]), "w": sky(2, *shift[1])}, {}, n)
    near = [Apart("s", "t", 0.9, text="distance(s, t) <= 0.9"), Apart("s", "w", 1.1, text="distance(s, w) <= 1.1")]
    prepared = group_of(near, dict.fromkeys("stw", Sky)).prepare(batch)
    found, _ = prepared.exact()
    for k in (0, 2):  # at the pole "north" of the others is another direction
        covs = [
            np.array([[e * e, c * e * u], [c * e * u, u * u]])
            for (e, u), c in zip(errors[:, :, k], corr[:, k], strict=True)
        ]
        others = [(shift[which, :, k], covs[which + 1], radius, False) for which, radius in ((0, 0.9), (1, 1.1))]
        assert found[k] == pytest.approx(around_the_middle((np.zeros(2), covs[0]), others), abs=1e-8)
    check_bounds(prepared, found)


def test_many_ranges():
    stripes = Ask(((X, 1.0), (Y, 1.0)), (), tuple((k / 2.0, k / 2.0 + 0.25, True, False) for k in range(-6, 6)))
    columns = some_normals(np.random.default_rng(340), 8, "xy")
    asks = [disc(2.0), stripes]
    check(Question(columns, asks), "curved", referee.normals(columns, asks))


def test_the_error_that_explain_states():
    """What is right to 1e-12 says nothing; cases add up what each of them may be off."""

    def error(text):
        (group,) = planned(text)
        return group.error

    assert error("x * x + y * y < 4 AND x > y") == error("x > 1 OR y > x") == 0.0
    assert error("distance(p, q) < 3 AND p[0] > 1") == 1e-8
    assert error("distance(p, q) < 3 AND p[2] > 1") == 1e-3
    cases = "distance(p, q) < 3 AND (p[0] > 1 OR p[1] > 0)"  # the second is about p[0], too
    assert error(cases) == pytest.approx(1e-8 + 1e-3)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(40))
def test_regions_in_space_are_within_the_stated_error(seed):
    """By their own estimate, and, for the sum of the cases of an OR, by one integral over all of them."""
    random = np.random.default_rng(seed)
    models = {name: Gaussian(random.normal(0, 1, 1), random.uniform(0.3, 1.5, 1)) for name in "xyz"}
    kinds = dict.fromkeys("xyz", Gaussian)
    batch = RowValues(models, {}, 1)
    values = [(name, None) for name in "xyz"]
    ball = Polynomial(
        (),
        tuple((one, one, float(random.uniform(0.5, 2))) for one in values),
        (Range(0.0, float(random.uniform(1, 4))),),
    )
    slanted = Polynomial(
        tuple((one, float(random.choice([-1.0, 0.5, 1.0]))) for one in values),
        (),
        (Range(float(random.normal()), np.inf),),
    )
    product = Polynomial((), ((values[0], values[1], 1.0),), (Range(-np.inf, float(random.normal())),))
    group = group_of([ball, product], kinds)
    assert (group.method, group.size, group.error) == ("curved", 3, 1e-8)
    _, miss = group.prepare(batch).of_parts(Coordinates("xyz", batch))
    assert miss.max() < group.error
    either = Either(AllOf((ball, AnyOf((product, slanted)))))
    cases = group_of([either], kinds)
    assert cases.method == "cases"
    found, _ = cases.prepare(batch).exact()
    wanted, _ = Nested(either.tree, cases.kinds, batch).exact()
    assert np.abs(found - wanted).max() < cases.error
