"""Threshold selection against brute force: every kind of group, every plan, and what must be refused."""

from __future__ import annotations

import itertools
import math
import multiprocessing
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from mpmath import mpf

import oracle
import oracle_region
import oracle_select as referee
from amounts import fewer
from haply.errors import HaplyError
from haply.models import (
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    MixtureND,
    Model,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.pruning.threshold import Threshold
from haply.query.rewrites import split_rows
from haply.query.text import parse
from haply.selection import select
from haply.selection.conditions import Apart, Polynomial, Range, RowValues
from haply.selection.grouping import group_of
from haply.selection.hindsight import BOUNDS, NOTHING, VALUE, Hindsight
from haply.selection.select import PLANNINGS, Effort, Selection
from oracle_select import Ask, Cloud, Near, NormalND
from select_kit import (
    INF,
    LATTICE,
    Question,
    ask_text,
    check,
    check_draws,
    clouds,
    laws,
    mixtures,
    normals,
    one,
    point_mixtures,
    points,
    ranges,
)

LAWS = [kind for kind in oracle.KINDS if kind != "point"]


# ---------------------------------------------------------------------------------------------------------------
# One value of any law


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", LAWS)
def test_one_value(kind):
    """Ranges, several of them, several conditions, squares, and certain columns wherever numbers can be."""
    rng = np.random.default_rng(LAWS.index(kind))
    rows = 24
    for shape in range(14):
        values = laws(rng, kind, rows)
        asks = []
        for _ in range(1 + shape % 3):
            by_row = rows if rng.random() < 0.5 else None
            factor = rng.choice([-2.0, -0.5, 0.0, 1.0, 3.0], by_row)
            bend = rng.choice([-1.0, 0.0, 0.5, 2.0], by_row)
            linear = (one("x", None, factor),) if shape % 4 != 3 else ()
            squares = ((("x", None), ("x", None), bend),) if shape % 4 in (1, 3) else ()
            asks.append(Ask(linear, squares, ranges(rng, int(rng.integers(1, 4)), by_row)))
        wanted = [float(referee.one_value(value, asks, row)) for row, value in enumerate(values)]
        check(Question({"x": values}, asks), "interval", wanted, 1e-12)


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("kind", ["discrete", "normal", "mixture", "uniform", "truncated"])
def test_atoms_at_a_limit(kind, closed):
    """Values with atoms on a grid, limits on the same grid: < and <= differ, and so do > and >=."""
    rng = np.random.default_rng(3)
    atoms = {
        "discrete": lambda p: oracle.Discrete(tuple(p)),
        "normal": lambda p: oracle.Normal(p[0], 0.0),
        "mixture": lambda p: oracle.NormalMixture((0.25, 0.75), (p[0], p[1]), (0.0, 0.5)),
        "uniform": lambda p: oracle.Uniform(p[0], p[0]),
        "truncated": lambda p: oracle.Truncated(p[0], 0.0, -9.0, 9.0),
    }
    rows = 60
    values = [atoms[kind](rng.integers(-6, 7, 4) / 4) for _ in range(rows)]
    limit = rng.integers(-6, 7, rows) / 4
    x = ("x", None)
    questions = [
        [Ask((one("x"),), (), ((-INF, limit, True, closed),))],
        [Ask((one("x"),), (), ((limit, INF, closed, True),))],
        [Ask((one("x", None, -2.0),), (), ((-1.5, limit, closed, closed),))],
        [Ask((one("x"),), (), ((limit, limit, closed, closed),))],
        [Ask((one("x"),), (), ((-INF, limit, True, closed), (limit, INF, closed, True)))],
        [Ask((), ((x, x, 1.0),), ((0.0, 1.5625, closed, closed),))],
        [Ask((one("x"),), ((x, x, 1.0),), ((-0.25, 2.0, closed, closed),))],
        [Ask((), ((x, x, -4.0),), ((-4.0, 0.0, closed, closed),))],
    ]
    for asks in questions:
        wanted = [float(referee.one_value(value, asks, row)) for row, value in enumerate(values)]
        check(Question({"x": values}, asks), "interval", wanted, 1e-14)


def test_far_tails_of_one_value_keep_their_digits():
    for away in (8.0, 20.0, 36.0):
        for low, high in ((-INF, -away), (away, INF), (away, away + 1.0)):
            question = Question({"x": [oracle.Normal(0.0, 1.0)]}, [Ask((one("x"),), (), ((low, high, True, True),))])
            wanted = float(referee.one_value(oracle.Normal(0, 1), question.asks, digits=400))
            assert question.group.prepare(question.batch).exact()[0][0] == pytest.approx(wanted, rel=1e-10, abs=0.0)


# ---------------------------------------------------------------------------------------------------------------
# Sums of normals in boxes


@pytest.mark.parametrize("by_row", [False, True])
def test_one_sum(by_row):
    rng = np.random.default_rng(10 + by_row)
    rows = 150
    for shape in range(4):
        columns = {"a": normals(rng, rows), "b": mixtures(rng, rows), "p": points(rng, rows, 3)}
        factors = [rng.choice([-1.5, -1.0, 0.0, 1.0, 2.0], rows if by_row else None) for _ in range(3)]
        asks = [
            Ask(
                (one("a", None, factors[0]), one("b", None, factors[1]), one("p", 2, factors[2])),
                (),
                ranges(rng, 1 + shape % 3, rows if by_row else None),
            )
        ]
        check(Question(columns, asks), "box", referee.normals(columns, asks))


@pytest.mark.long
def test_two_sums():
    """Of one point, of several columns, of mixtures; with ranges in several pieces and certain ends and factors."""
    rng = np.random.default_rng(12)
    rows = 60
    for shape in range(8):
        by_row = rows if shape % 2 else None
        some = int(rng.integers(1, 3))
        if shape < 3:
            columns = {"p": (points if shape else point_mixtures)(rng, rows, 2)}
            sums = [(one("p", 0),), (one("p", 1),)] if shape < 2 else [(one("p", 0),), (one("p", 0), one("p", 1, -1.0))]
        else:
            columns = {"a": normals(rng, rows), "b": normals(rng, rows), "c": mixtures(rng, rows)}
            factor = rng.choice([-1.0, 0.5, 0.0, 3.0], by_row)
            sums = [(one("a"), one("b", None, -1.0)), (one("b"), one("c", None, factor))]
        asks = [Ask(linear, (), ranges(rng, some, by_row)) for linear in sums]
        if shape == 7:  # and a second range for one of them
            asks.append(Ask(sums[0], (), ranges(rng, 2)))
        check(Question(columns, asks), "box", referee.normals(columns, asks))


def test_sums_that_depend_on_each_other():
    """Three sums of two values, parallel ones, and one that the others make certain."""
    rng = np.random.default_rng(13)
    rows = fewer(80)
    columns = {n: normals(rng, rows, tiny=1e-2) for n in "ab"}  # see test_a_sum_of_a_narrow_value
    a, b = one("a"), one("b")
    for sums in (
        [(a,), (b,), (a, b)],
        [(a, b), (one("a", None, 2.0), one("b", None, 2.0))],
        [(a, b), (one("a", None, -1.0), one("b", None, -1.0))],
        [(a,), (a, b), (a, one("b", None, -1.0))],
    ):
        for by_row in (None, rows):
            asks = [Ask(linear, (), ranges(rng, 1, by_row, 1.5)) for linear in sums]
            check(Question(columns, asks), "box", referee.normals(columns, asks))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("leaves", [2, 3])
def test_three_and_four_sums(leaves):
    """Differences from one value: given it the others are independent, so that one integral tells."""
    rng = np.random.default_rng(14 + leaves)
    rows = 60 if leaves == 2 else 12
    names = "abc"[:leaves]
    columns = {name: [oracle.Normal(float(m), float(s)) for m, s in zip(rng.uniform(-2, 2, rows), np.exp(
        rng.uniform(-2, 1, rows)), strict=True)] for name in "z" + names}  # fmt: skip
    own = ranges(rng, 2)
    asks = [Ask((one("z"),), (), own)]
    asks += [Ask((one("z"), one(name, None, -1.0)), (), ranges(rng, 1)) for name in names]
    wanted = [
        referee.star(
            columns["z"][row], own, [(columns[n][row], ask.ranges) for n, ask in zip(names, asks[1:], strict=True)]
        )
        for row in range(rows)
    ]  # fmt: skip
    question = Question(columns, asks)
    assert question.group.size == leaves + 1
    check(question, "box", wanted, 1e-11 if leaves == 2 else LATTICE)


def test_sums_of_correlated_points_in_three_and_four_dimensions():
    rng = np.random.default_rng(18)
    for dim in (3, 4):
        columns = {"p": points(rng, 60, dim)}
        asks = [Ask((one("p", k),), (), ranges(rng, 1, None, 1.5)) for k in range(dim)]
        check_draws(Question(columns, asks), "box")
        mixed = {"p": point_mixtures(rng, 30, dim), "a": normals(rng, 30)}
        asks = [Ask((one("p", k), one("a", None, 0.5)), (), ranges(rng, 1, 30, 1.5)) for k in range(dim)]
        check_draws(Question(mixed, asks), "box")


def test_certain_sums_at_a_limit():
    """All sds are 0: a sum is a number, and < and <= are told apart."""
    columns = {"a": [oracle.Normal(1.0, 0.0)] * 2, "b": [oracle.Normal(2.0, 0.0)] * 2}
    for closed in (True, False):
        for ends in ((-INF, 3.0), (3.0, INF), (3.0, 3.0)):
            sums = [Ask((one("a"), one("b")), (), ((*ends, closed, closed),))]
            check(Question(columns, sums), "box", [float(closed)] * 2, 0.0)
            sums.append(Ask((one("a"), one("b", None, -1.0)), (), ((-1.0, 0.0, closed, True),)))
            check(Question(columns, sums), "box", [float(closed)] * 2, 0.0)


def in_time(work, seconds=2.0):
    """What a function finds, in a process of its own: a kernel that never ends cannot be stopped otherwise."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=lambda: sender.send(work()), daemon=True)
    process.start()
    try:
        return receiver.recv() if receiver.poll(seconds) else None
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("how", ["two ranges", "an infinite limit"])
def test_ranges_that_both_go_on_for_ever(how):
    """``a + b > 1 OR a + b > 2`` leaves nothing for the second range; nor does a certain limit that is infinite."""
    columns = {"a": [oracle.Normal(0.0, 1.0)] * 2, "b": [oracle.Normal(0.0, 1.0)] * 2}
    other = Ask((one("a"), one("b", None, -0.5)), (), ((0.0, INF, True, True),))
    before = Question(columns, [other, Ask((one("a"), one("b")), (), ((1.0, INF, False, True),))])
    known = before.group.prepare(before.batch).exact()[0]  # compiles
    if how == "two ranges":
        asks = [other, Ask((one("a"), one("b")), (), ((1.0, INF, False, True), (2.0, INF, False, True)))]
    else:
        asks = [other, Ask((one("a"), one("b")), (), ((np.array([INF, 1.0]), INF, False, True),))]
        known = known * [0.0, 1.0]
    question = Question(columns, asks)
    found = in_time(lambda: question.group.prepare(question.batch).exact()[0])
    assert found is not None, "it did not end"
    np.testing.assert_allclose(found, known, rtol=0, atol=1e-12)


def test_a_sum_of_a_narrow_value():
    """``a < 5 AND b BETWEEN -2.6 AND -1.9 AND a + b BETWEEN -0.7 AND 3.8`` where b is -2.8 +- 1e-7: 0, and soon."""
    columns = {"a": [oracle.Normal(-0.5, 0.7)], "b": [oracle.Normal(-2.8, 1e-7)]}
    asks = [
        Ask((one("a"),), (), ((-INF, 5.0, True, True),)),
        Ask((one("b"),), (), ((-2.6, -1.9, True, True),)),
        Ask((one("a"), one("b")), (), ((-0.7, 3.8, True, True),)),
    ]
    wide = Question({**columns, "b": [oracle.Normal(-2.8, 0.1)]}, asks)
    wide.group.prepare(wide.batch).exact()  # compiles
    question = Question(columns, asks)
    found = in_time(lambda: question.group.prepare(question.batch).exact()[0])
    assert found is not None, "it did not end"
    assert found[0] == 0.0


# ---------------------------------------------------------------------------------------------------------------
# Quadratic forms


FORMS = {
    "circle": [("a", "a", 1.0), ("b", "b", 1.0)],
    "ellipse": [("a", "a", 3.0), ("b", "b", 0.1), ("a", "b", 0.4)],
    "saddle": [("a", "a", 1.0), ("b", "b", -2.0)],
    "product": [("a", "b", 1.0)],
    "difference": [("a", "a", 1.0), ("b", "b", 1.0), ("a", "b", -2.0)],
    "hill": [("a", "a", -1.0), ("b", "b", -0.5)],
    "one of two": [("a", "a", 1.0)],
}


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_forms(name, linear):
    """All signs and ranks, ranges from both sides, limit 0, certain columns as factors and limits."""
    rng = np.random.default_rng(20 + list(FORMS).index(name) + 100 * linear)
    rows = 50
    for shape in range(5):
        by_row = rows if shape in (1, 3) else None
        # sds that are tinier still: see test_a_saddle_of_a_narrow_value
        columns = {"a": normals(rng, rows, tiny=1e-3), "b": normals(rng, rows, tiny=1e-3)}
        columns |= {"b": mixtures(rng, rows)} if shape == 2 else {}
        squares = tuple(
            ((one_, None), (two, None), c * rng.choice([0.5, 1.0, 2.0], by_row)) for one_, two, c in FORMS[name]
        )
        terms = (one("a", None, rng.choice([-1.0, 0.5], by_row)), one("b", None, 0.25)) if linear else ()
        if name == "one of two" and not linear:
            terms = (one("b"),)
        found = ranges(rng, 1 + shape % 2, rows if shape > 2 else None, 2.0)
        if shape == 4:
            found = ((-INF, 0.0, True, bool(linear)),)
        asks = [Ask(terms, squares, found)]
        check(Question(columns, asks), "form", referee.normals(columns, asks))


@pytest.mark.parametrize("sd", [1e-5, 1e-6, 1e-7])
def test_a_saddle_of_a_narrow_value(sd):
    """``a * a - b * b < 0`` where b is nearly certain: ``abs(a) < abs(b)``."""
    columns = {
        "a": [oracle.Normal(0.2963828516045037, 1.6103015693076392)],
        "b": [oracle.Normal(-0.8509764548893086, sd)],
    }
    asks = [Ask((), ((("a", None), ("a", None), 2.0), (("b", None), ("b", None), -2.0)), ((-INF, 0.0, True, False),))]
    wanted = oracle.probability_float(columns["a"][0], oracle.Point(0.0), -0.8509764548893086, 0.8509764548893086)
    check(Question(columns, asks), "form", [wanted], 1e-9)


@pytest.mark.parametrize("text", ["x * y > 1", "x * x - y * y > 1"])
def test_not_of_a_form(text):
    """NOT makes ranges whose infinite ends are open."""
    columns = {"x": [oracle.Normal(0.0, 1.0)], "y": [oracle.Normal(1.0, 1.0)]}
    plain, turned = ask_text(text, columns), ask_text(f"NOT ({text})", columns)
    assert plain[0] + turned[0] == pytest.approx(1.0, abs=1e-12)


def test_forms_of_points():
    rng = np.random.default_rng(40)
    rows = fewer(100)
    p = [("p", k) for k in range(3)]
    for columns in ({"p": points(rng, rows, 2)}, {"p": point_mixtures(rng, rows, 2)}):
        for linear, squares, found in (
            ((), ((p[0], p[0], 1.0), (p[1], p[1], 1.0)), ((-INF, 1.5, True, True),)),
            ((one("p", 0, -2.0),), ((p[0], p[0], 1.0), (p[1], p[1], 1.0)), ((1.0, 4.0, True, False),)),
            ((), ((p[0], p[1], 1.0),), ((-INF, 0.0, True, False),)),
            ((one("p", 1),), ((p[0], p[0], -1.0),), ((-1.0, 1.0, True, True), (2.0, INF, True, True))),
        ):
            asks = [Ask(linear, squares, found)]
            check(Question(columns, asks), "form", referee.normals(columns, asks))


@pytest.mark.long
def test_forms_in_three_dimensions():
    rng = np.random.default_rng(41)
    rows = 150
    sd, mean = np.exp(rng.uniform(-1.5, 1, (3, rows))), rng.uniform(-2, 2, (3, rows))
    columns = {
        n: [oracle.Normal(*map(float, x)) for x in zip(mean[k], sd[k], strict=True)] for k, n in enumerate("abc")
    }
    factors, limit = (1.5, 0.4, 0.8), rng.uniform(0.5, 8.0, rows)
    places = [(n, None) for n in "abc"]
    asks = [Ask((), tuple((n, n, f) for n, f in zip(places, factors, strict=True)), ((-INF, limit, True, True),))]
    series = [
        oracle_region.ruben(np.multiply(factors, sd[:, i] ** 2), mean[:, i] / sd[:, i], limit[i]) for i in range(rows)
    ]
    assert max(high - low for low, high in series) < 1e-12
    check(Question(columns, asks), "form", [low for low, _ in series])
    few = {name: values[:12] for name, values in columns.items()}
    turned = [Ask((), ((places[0], places[0], 1.0), (places[1], places[1], 0.5), (places[2], places[2], -1.0)),
                  ((-INF, limit[:12], True, True),))]  # fmt: skip
    check(Question(few, turned), "form", referee.normals(few, turned), 1e-9)


def test_forms_in_many_dimensions():
    rng = np.random.default_rng(42)
    rows = 60
    columns = {"p": points(rng, rows, 3), "q": point_mixtures(rng, rows, 2), "a": normals(rng, rows)}
    for shape in range(4):
        places = [("p", 0), ("p", 2), ("q", 0), ("q", 1), ("a", None)]
        squares = tuple(
            (x, y, float(rng.normal()))
            for x, y in itertools.combinations_with_replacement(places, 2)
            if rng.random() < 0.6
        )
        linear = tuple((x, rng.normal(size=rows) if shape % 2 else float(rng.normal())) for x in places[::2])
        asks = [Ask(linear if shape > 1 else (), squares, ranges(rng, 2, rows if shape % 2 else None, 3.0))]
        check_draws(Question(columns, asks), "form", seed=shape)


def test_certain_forms_at_a_limit():
    """3-4-5: without any sd the form is a number, and < and <= are told apart."""
    columns = {"x": [oracle.Normal(3.0, 0.0)] * 2, "y": [oracle.Normal(4.0, 0.0)] * 2}
    for form, value in (("x * x + y * y", 25), ("x * y + x + y", 19), ("x * y", 12), ("x * x - y * y", -7)):
        for sign, holds in (("<=", 1.0), ("<", 0.0), (">=", 1.0), (">", 0.0)):
            assert ask_text(f"{form} {sign} {value}", columns).tolist() == [holds] * 2, (form, sign)


@pytest.mark.parametrize(
    "text", ["x * x + y * y = 25", "(x - y) ** 2 >= 1", "NOT ((x - y) ** 2 < 1)", "(x + y) ** 2 >= 49"]
)
def test_certain_forms_that_meet_a_limit(text):
    columns = {"x": [oracle.Normal(3.0, 0.0)], "y": [oracle.Normal(4.0, 0.0)]}
    assert ask_text(text, columns)[0] == 1.0


def test_far_tails_of_forms_keep_their_digits():
    columns = {"a": [oracle.Normal(0.0, 1.0)], "b": [oracle.Normal(0.0, 1.0)]}
    squares = tuple(((n, None), (n, None), 1.0) for n in "ab")
    for limit in (4.0, 60.0, 400.0):
        for low, high, wanted in ((limit, INF, mpf(-limit / 2)), (-INF, 1.0 / limit**3, None)):
            question = Question(columns, [Ask((), squares, ((low, high, True, True),))])
            exact = float(oracle.mp.exp(wanted)) if wanted is not None else -math.expm1(-0.5 / limit**3)
            assert question.group.prepare(question.batch).exact()[0][0] == pytest.approx(exact, rel=1e-9, abs=0.0)


# ---------------------------------------------------------------------------------------------------------------
# Distances


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("kinds", ["normals", "mixtures", "normal and samples", "normal and points", "lines"])
def test_distances(kinds, beyond):
    rng = np.random.default_rng(50 + len(kinds) + beyond)
    rows = 120
    make = {
        "normals": lambda: (points(rng, rows, 2), points(rng, rows, 2)),
        "mixtures": lambda: (point_mixtures(rng, rows, 2), point_mixtures(rng, rows, 2)),
        "normal and samples": lambda: (points(rng, rows, 2), clouds(rng, rows, 2, weighted=True)),
        "normal and points": lambda: (points(rng, rows, 2), [Cloud(rng.uniform(-2, 2, (1, 2))) for _ in range(rows)]),
        "lines": lambda: (points(rng, rows, 1), points(rng, rows, 1)),
    }
    one_, other = make[kinds]()
    columns = {"p": one_, "q": other}
    for limit in (1.25, rng.uniform(-0.5, 3.0, rows), *([] if kinds == "lines" else [0.0])):
        near = Near("p", "q", limit, True, beyond)
        check(Question(columns, [near]), "distance", referee.distances(columns, near))


def test_no_two_values_on_a_line_are_the_same():
    rng = np.random.default_rng(54)
    columns = {name: points(rng, 60, 1, hard=False) for name in "pq"}
    check(Question(columns, [Near("p", "q", 0.0)]), "distance", np.zeros(60), 1e-12)


def test_distances_in_three_dimensions():
    rng = np.random.default_rng(55)
    rows = fewer(100)
    one_, other = points(rng, rows, 3, hard=False), points(rng, rows, 3, hard=False)
    limit = rng.uniform(0.5, 3.0, rows)
    wanted = []
    for p, q, r in zip(one_, other, limit, strict=True):
        values, vectors = np.linalg.eigh(p.cov + q.cov)
        low, high = oracle_region.ruben(values, vectors.T @ (p.mean - q.mean) / np.sqrt(values), r * r)
        wanted.append(low if high - low < 1e-12 else math.nan)
    known = np.flatnonzero(~np.isnan(wanted))
    assert len(known) > fewer(60)
    columns = {"p": [one_[i] for i in known], "q": [other[i] for i in known]}
    check(Question(columns, [Near("p", "q", limit[known])]), "distance", np.array(wanted)[known])


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_distances_of_samples(closed, weighted, beyond):
    """Points on a grid, and limits that some pairs meet exactly."""
    rng = np.random.default_rng(56)
    for dim in (1, 2, 3):
        columns = {name: clouds(rng, 80, dim, weighted) for name in "pq"}
        for limit in (0.0, 1.25, rng.integers(-1, 9, 80) / 4):
            near = Near("p", "q", limit, closed, beyond)
            check(Question(columns, [near]), "distance", referee.distances(columns, near), 1e-13)


def test_one_dimensional_distances():
    """Of any law: the distance of numbers is their difference without its sign."""
    rng = np.random.default_rng(57)
    for kinds in (("normal", "normal"), ("mixture", "discrete"), ("discrete", "discrete")):
        columns = {name: laws(rng, kind, 60) for name, kind in zip("xy", kinds, strict=True)}
        wanted = [oracle.probability_float(a, b, -0.5, 0.5) for a, b in zip(*columns.values(), strict=True)]
        check(Question(columns, [Near("x", "y", 0.5)]), "distance", wanted)


# ---------------------------------------------------------------------------------------------------------------
# Trees


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("centre", LAWS)
def test_trees(centre):
    """Values of all laws tied to one: in ranges, outside of ranges, and with a condition of its own."""
    rng = np.random.default_rng(60 + LAWS.index(centre))
    rows = 12
    for leaves in itertools.combinations(["uniform", "normal", "truncated", "mixture", "hist", "discrete"], 2):
        if {centre, *leaves} <= {"normal", "mixture"}:
            continue
        columns = {
            name: laws(rng, kind, rows, 0.0 if kind == "truncated" else 0.2)
            for name, kind in zip("zxy", (centre, *leaves), strict=True)
        }
        own = ranges(rng, 1)
        low = float(rng.uniform(-1, 0))
        split = ((-INF, low, True, False), (low + 1.0, INF, True, True))
        asks = [
            Ask((one("z"),), (), own),
            Ask((one("z"), one("x", None, -1.0)), (), ranges(rng, 1)),
            Ask((one("y"), one("z", None, -1.0)), (), split if rng.random() < 0.5 else ranges(rng, 1)),
        ]
        turned = [(-high, -lo, hc, lc) for lo, high, lc, hc in asks[2].ranges]
        wanted = [
            referee.star(columns["z"][i], own, [(columns["x"][i], asks[1].ranges), (columns["y"][i], turned)])
            for i in range(rows)
        ]
        check(Question(columns, asks), "tree", wanted, 1e-10)


def test_trees_of_samples_are_counted():
    """Ties on a grid, open and closed: every combination is looked at."""
    rng = np.random.default_rng(70)
    rows = 60
    for closed in (True, False):
        columns = {n: [oracle.Discrete(tuple(rng.integers(-4, 5, 3) / 4)) for _ in range(rows)] for n in "wxyz"}
        asks = [
            Ask((one("x"), one("y", None, -1.0)), (), ((-0.5, 0.5, closed, closed),)),
            Ask((one("y"), one("z", None, -1.0)), (), ((-INF, -0.25, True, closed), (0.25, INF, closed, True))),
            Ask((one("z"), one("w", None, -1.0)), (), ((-INF, 0.0, True, closed),)),
            Ask((one("w"),), (), ((-0.5, 1.0, closed, not closed),)),
        ]
        holds = referee.all_hold(asks)
        wanted = [
            float(referee.enumerated({n: values[i] for n, values in columns.items()}, holds)) for i in range(rows)
        ]
        question = Question(columns, asks)
        check(question, "tree", wanted, 1e-14)
        assert question.group.prepare(question.batch).exact()[1], "equally likely combinations are counts"


def test_deep_trees_and_distances_tied_to_others():
    rng = np.random.default_rng(71)
    rows = 40
    columns = {
        n: laws(rng, kind, rows, 0.0) for n, kind in zip("wxyz", ("hist", "uniform", "normal", "discrete"), strict=True)
    }
    chain = [Ask((one(a), one(b, None, -1.0)), (), ((-1.5, 2.0, True, True),)) for a, b in itertools.pairwise("wxyz")]
    check_draws(Question(columns, chain), "tree")
    spots = {n: clouds(rng, rows, 2) for n in "pqr"}
    near = [Near("p", "q", 2.0), Near("q", "r", 1.5, False)]
    check_draws(Question(spots, near), "tree", 6000)


# ---------------------------------------------------------------------------------------------------------------
# What one row may hold: joint, not a product


def test_two_conditions_on_one_column_are_joint():
    """x > 0 and x < 1 of a standard normal: P(0 < x < 1), which is not P(x > 0) P(x < 1)."""
    value = [oracle.Normal(0.0, 1.0)]
    above, below = Ask((one("x"),), (), ((0.0, INF, False, True),)), Ask((one("x"),), (), ((-INF, 1.0, True, False),))
    together = check(Question({"x": value}, [above, below]), "interval", [0.341344746068543])[0]
    alone = [
        Question({"x": value}, [each]).group.prepare(Question({"x": value}, [each]).batch).exact()[0][0]
        for each in (above, below)
    ]
    assert abs(together - alone[0] * alone[1]) > 0.05
    groups = split_rows(parse("x > 0 AND y > 0 AND x < 1"), lambda column: False).groups
    assert [[len(part.ranges) for part in group] for group in groups] == [[1], [1]]
    assert (groups[0][0].ranges[0].low, groups[0][0].ranges[0].high) == (0.0, 1.0)
    # correlated components, and sums that share a column
    p = {"p": [NormalND([0.0, 0.0], [[1.0, 0.9], [0.9, 1.0]])]}
    quadrant = [Ask((one("p", k),), (), ((0.0, INF, False, True),)) for k in (0, 1)]
    wanted = 0.25 + math.asin(0.9) / (2 * math.pi)
    assert abs(check(Question(p, quadrant), "box", [wanted])[0] - 0.25) > 0.1
    shared = dict.fromkeys("xyz", value)
    sums = [Ask((one("x"), one(n, None, -1.0)), (), ((0.0, INF, False, True),)) for n in "yz"]
    check(Question(shared, sums), "box", [1.0 / 3.0])


# ---------------------------------------------------------------------------------------------------------------
# Whole selections


def any_group(rng, rows, tag):
    """A random group: columns named by a tag, what is asked, and the referee's probabilities."""
    kind = int(rng.integers(0, 8))
    x, y, z = (f"{name}{tag}" for name in "xyz")
    if kind == 0:
        columns = {x: laws(rng, str(rng.choice(LAWS)), rows)}
        squares = (((x, None), (x, None), 0.5),) if rng.random() < 0.4 else ()
        asks = [Ask((one(x),), squares, ranges(rng, int(rng.integers(1, 3)), None, 2.0))]
        return columns, asks, np.array([float(referee.one_value(v, asks, i, 30)) for i, v in enumerate(columns[x])])
    if kind in (1, 2, 3):
        columns = {x: normals(rng, rows), y: mixtures(rng, rows), z: normals(rng, rows)}
        limits = [ranges(rng, int(rng.integers(1, 3)), rows if rng.random() < 0.5 else None, 3.0) for _ in range(2)]
        sums = [(one(x), one(y, None, rng.normal(size=rows))), (one(y), one(z, None, -1.0))]
        asks = [Ask(*each, ()) for each in ()] or [Ask(s, (), r) for s, r in zip(sums, limits, strict=True)][:kind]
        if kind == 3:
            linear = (one(x),) if rng.random() < 0.5 else ()
            sign = float(rng.choice([-1.0, 1.0, 2.0]))
            asks = [Ask(linear, (((x, None), (x, None), 1.0), ((z, None), (z, None), sign)), limits[0])]
            columns = {name: columns[name] for name in (x, z)}
        elif kind == 1:
            columns = {name: columns[name] for name in (x, y)}
        return columns, asks, referee.normals(columns, asks)
    if kind in (4, 5, 6):
        make = {4: points, 5: point_mixtures, 6: clouds}[kind]
        columns = {x: make(rng, rows, 2), y: make(rng, rows, 2)}
        near = Near(x, y, float(rng.uniform(0.5, 3.0)), bool(rng.integers(0, 2)), bool(rng.integers(0, 2)))
        return columns, [near], referee.distances(columns, near)
    columns = {x: laws(rng, "hist", rows, 0.2), y: laws(rng, "normal", rows, 0.2), z: laws(rng, "uniform", rows, 0.2)}
    asks = [Ask((one(x), one(n, None, -1.0)), (), ranges(rng, 1, None, 2.0)) for n in (y, z)]
    every = ((-INF, INF, True, True),)
    return columns, asks, np.array([
        referee.star(columns[x][i], every, [(columns[n][i], ask.ranges) for n, ask in zip((y, z), asks, strict=True)])
        for i in range(rows)
    ])  # fmt: skip


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("seed", range(18))
def test_selections_are_those_of_brute_force(seed):
    """Random conditions and thresholds, every plan, with probabilities and without: the right rows."""
    rng = np.random.default_rng(1000 + seed)
    rows = 40
    parts = [any_group(rng, rows, tag) for tag in range(int(rng.integers(1, 5)))]
    questions = [Question(columns, asks) for columns, asks, _ in parts]
    chance = np.array([wanted for _, _, wanted in parts])
    whole = np.prod(chance, axis=0)
    for question, wanted in zip(questions, chance, strict=True):
        check(question, question.group.method, wanted)
    batch = RowValues(
        {name: each for question in questions for name, each in question.models.items()},
        {name: each for question in questions for name, each in question.numbers.items()},
        rows,
    )
    kinds = {name: kind for question in questions for name, kind in question.kinds.items()}
    conditions = [question.conditions for question in questions]
    middle = float(np.clip(np.round(np.median(whole), 3), 0.001, 1.0))
    for value, strict in (
        (0.001, False),
        (middle, True),
        (float(rng.uniform(0.05, 0.9)), False),
        (1.0, False),
        (None, False),
    ):
        threshold = Threshold(value, strict)
        free = set(np.flatnonzero(whole < 1e-11 if value is None else np.abs(whole - value) < 1e-10))
        wanted = {i for i in range(rows) if oracle.keeps(whole[i], value, strict)} - free
        for planning, exact in itertools.product(PLANNINGS, (True, False)):
            found = Selection.of(conditions, kinds, threshold, planning, exact).select(batch)
            assert set(found.rows.tolist()) - free == wanted, (planning, exact, value, strict)
            known = ~np.isnan(found.probability)
            assert known.all() or not exact
            assert np.abs(found.probability - whole[found.rows])[known].max(initial=0.0) <= 1e-11
            assert len(found.code) == rows
            assert not (found.code[found.rows] < 0).any(), "a rule rejected a row that was kept"
            dropped = np.setdiff1d(np.arange(rows), found.rows)
            assert not (found.code[dropped] > 0).any(), "a rule accepted a row that was dropped"


def test_probabilities_do_not_depend_on_the_plan():
    rng = np.random.default_rng(80)
    rows = 200
    columns = {"a": normals(rng, rows), "b": normals(rng, rows), "p": points(rng, rows, 2), "q": points(rng, rows, 2)}
    circle = Ask((), ((("a", None), ("a", None), 1.0), (("b", None), ("b", None), 1.0)), ((-INF, 4.0, True, True),))
    question = Question(columns, [circle, Near("p", "q", 2.0)])
    groups = [[condition] for condition in question.conditions]
    found = [
        Selection.of(groups, question.kinds, Threshold(0.1), planning).select(question.batch) for planning in PLANNINGS
    ]
    for each in found[1:]:
        np.testing.assert_array_equal(each.rows, found[0].rows)
        np.testing.assert_allclose(each.probability, found[0].probability, rtol=0, atol=1e-11)


def test_equally_likely_samples_are_decided_in_integers():
    """The threshold is the decimal that it prints: 3 of 10 samples are 0.3, and not a rounding less or more."""
    value = [oracle.Discrete(tuple(float(k) for k in range(10)))]
    for k in range(1, 11):
        question = Question({"x": value}, [Ask((one("x"),), (), ((-INF, float(k), True, False),))])
        for planning in PLANNINGS:
            for threshold, strict, kept in ((k / 10, False, True), (k / 10, True, False)):
                selection = Selection.of([question.conditions], question.kinds, Threshold(threshold, strict), planning)
                assert len(selection.select(question.batch).rows) == kept, (k, threshold, strict)
    spots = {"p": [Cloud([[0.0], [1.0], [2.0]])], "q": [Cloud([[0.0], [0.0], [0.0], [9.0], [9.0]])]}
    question = Question(spots, [Near("p", "q", 1.0)])
    share = referee.counted_distance(spots["p"][0], spots["q"][0], 1.0, True)
    assert share == Fraction(2, 5)
    for strict in (False, True):
        selection = Selection.of([question.conditions], question.kinds, Threshold(0.4, strict))
        assert len(selection.select(question.batch).rows) == (not strict)


def test_what_cannot_be_is_never_kept():
    """Without a threshold a row is kept if it can be at all, also where weights do not add up to 1 in doubles."""
    tenth = Cloud(np.arange(10.0)[:, None] / 100, np.full(10, 0.1))
    spots = {"p": [tenth], "q": [Cloud([[0.0]])]}
    question = Question(spots, [Near("p", "q", 5.0, True, beyond=True)])
    for planning in PLANNINGS:
        selection = Selection.of([question.conditions], question.kinds, Threshold(None), planning)
        assert len(selection.select(question.batch).rows) == 0
    weights = tuple([0.1] * 10)
    value = {"x": [oracle.Discrete(tuple(np.arange(10.0) / 100), weights)]}
    question = Question(value, [Ask((one("x"),), (), ((-INF, -1.0, True, True), (5.0, INF, True, True)))])
    assert len(Selection.of([question.conditions], question.kinds, Threshold(None)).select(question.batch).rows) == 0


@pytest.mark.parametrize("planning", PLANNINGS)
def test_no_rows(planning):
    question = Question({"x": [oracle.Normal(0.0, 1.0)]}, [Ask((one("x"),), (), ((0.0, INF, True, True),))])
    nobody = question.batch.take(np.arange(0))
    for exact in (True, False):
        found = Selection.of([question.conditions], question.kinds, Threshold(0.5), planning, exact).select(nobody)
        assert len(found.rows) == len(found.probability) == len(found.code) == 0


@pytest.mark.parametrize(
    "planning",
    ["per_row", "static", "optimal"],
)
def test_no_groups(planning):
    """Nothing uncertain is asked: every row is kept, unless more than 1 is."""
    nothing = RowValues({}, {}, 3)
    assert Selection.of([], {}, Threshold(0.5), planning).select(nothing).rows.tolist() == [0, 1, 2]
    assert Selection.of([], {}, Threshold(1.0, True), planning).select(nothing).rows.tolist() == []


def hindsight_question(seed: int, rows: int = 300) -> tuple[list[list[Polynomial]], RowValues]:
    """Three groups: one value, a box of two sums, and a form."""
    random = np.random.default_rng(seed)
    names = "abcde"
    sds = {name: random.uniform(0.05, 1.0, rows) for name in names}
    batch = RowValues({name: Gaussian(random.normal(0, 1.5, rows), sds[name]) for name in names}, {}, rows)
    a, b, c, d, e = ((name, None) for name in names)
    groups = [
        [Polynomial(((a, 1.0),), (), (Range(-math.inf, 1.0),), "a")],
        [Polynomial(((b, 1.0), (c, 1.0)), (), (Range(-2.0, 2.0),), "b + c"),
         Polynomial(((b, 1.0), (c, -1.0)), (), (Range(-2.5, 2.5),), "b - c")],
        [Polynomial((), ((d, d, 1.0), (e, e, 1.0)), (Range(-math.inf, 4.0),), "d e")],
    ]  # fmt: skip
    return groups, batch


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("needed", [0.05, 0.4, 0.9])
def test_hindsight_takes_the_cheapest_steps_that_decide(exact, needed):
    """Against every combination of steps, row by row."""
    groups, batch = hindsight_question(3)
    threshold = Threshold(needed)
    selection = Selection.of(groups, dict.fromkeys("abcde", Gaussian), threshold, "optimal", exact)
    known = replace(
        Hindsight.of(selection.groups, batch, threshold), value_costs=(1.0, 7.0, 9.0), bound_costs=(INF, 2.0, 3.0)
    )
    steps = known.steps(threshold, exact)
    for row in range(batch.rows):
        prices = {}
        for taken in itertools.product((NOTHING, BOUNDS, VALUE), repeat=3):
            least = most = 1.0
            price = 0.0
            for g, step in enumerate(taken):
                value = known.values[g, row]
                least *= {NOTHING: 0.0, BOUNDS: known.lower[g, row], VALUE: value}[step]
                most *= {NOTHING: 1.0, BOUNDS: known.upper[g, row], VALUE: value}[step]
                price += {NOTHING: 0.0, BOUNDS: known.bound_costs[g], VALUE: known.value_costs[g]}[step]
            accepts = least >= threshold.accept_from and not exact
            if most <= threshold.reject_below or accepts or taken == (VALUE, VALUE, VALUE):
                prices[taken] = price
        assert prices[tuple(steps[:, row])] == min(prices.values())
    assert len(np.unique(steps, axis=1).T) > 3


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_hindsight_keeps_the_rows_of_other_plans_and_costs_no_more(seed, exact):
    groups, batch = hindsight_question(seed)
    kinds, threshold = dict.fromkeys("abcde", Gaussian), Threshold(0.3)
    plans = {planning: Selection.of(groups, kinds, threshold, planning, exact) for planning in PLANNINGS}
    values, bounds = (1.0, 7.0, 9.0), (INF, 2.0, 3.0)
    known = replace(Hindsight.of(plans["optimal"].groups, batch, threshold), value_costs=values, bound_costs=bounds)
    steps = known.steps(threshold, exact)
    efforts = {planning: Effort() for planning in PLANNINGS}
    found = {planning: plan.select(batch, efforts[planning], steps) for planning, plan in plans.items()}
    assert 0 < len(found["optimal"].rows) < 200
    assert found["optimal"].rows.tolist() == found["per_row"].rows.tolist() == found["static"].rows.tolist()
    if exact:
        assert found["optimal"].probability == pytest.approx(found["static"].probability)
    spent = sum(
        value * np.count_nonzero(steps[g] == VALUE) + (bound * np.count_nonzero(steps[g] == BOUNDS) if g else 0.0)
        for g, (value, bound) in enumerate(zip(values, bounds, strict=True))
    )
    for planning in ("per_row", "static"):
        effort = efforts[planning]
        theirs = 0.0
        for g, group in enumerate(plans[planning].groups):
            theirs += values[g] * effort.computed.get(group.text, 0)
            theirs += bounds[g] * effort.bounded[group.text] if effort.bounded.get(group.text) else 0.0
        assert spent < theirs


def test_hindsight_of_many_groups_keeps_the_same_rows():
    random = np.random.default_rng(5)
    names = "abcdefg"
    batch = RowValues({name: Gaussian(random.normal(-1.5, 1, 100), np.ones(100)) for name in names}, {}, 100)
    groups = [[Polynomial((((name, None), 1.0),), (), (Range(-math.inf, 1.0),), name)] for name in names]
    kept = [
        Selection.of(groups, dict.fromkeys(names, Gaussian), Threshold(0.6), planning).select(batch).rows.tolist()
        for planning in PLANNINGS
    ]
    assert kept[0] == kept[1] == kept[2]
    assert 0 < len(kept[0]) < 100


# ---------------------------------------------------------------------------------------------------------------
# From text to probability


TEXTS = {
    "a < 1": lambda d: d.a < 1,
    "-2 * a + 1 >= b": lambda d: -2 * d.a + 1 >= d.b,
    "a BETWEEN -1 AND c": lambda d: (d.a >= -1) & (d.a <= d.c),
    "NOT (a BETWEEN -1 AND 1)": lambda d: (d.a < -1) | (d.a > 1),
    "a < -1 OR a > 1 OR a BETWEEN -0.2 AND 0.1": lambda d: (d.a < -1) | (d.a > 1) | ((d.a >= -0.2) & (d.a <= 0.1)),
    "a > 1 OR a < 2": lambda d: (d.a > 1) | (d.a < 2),
    "NOT (a < -1 OR a > 1)": lambda d: ~((d.a < -1) | (d.a > 1)),
    "abs(a - b) > abs(c)": lambda d: np.abs(d.a - d.b) > abs(d.c),
    "abs(3 - 2 * a) <= c": lambda d: np.abs(3 - 2 * d.a) <= d.c,
    "abs(a) > c": lambda d: np.abs(d.a) > d.c,
    "NOT (abs(a) <= c)": lambda d: ~(np.abs(d.a) <= d.c),
    "c * a < b / 2 + 1": lambda d: d.c * d.a < d.b / 2 + 1,
    "(a - 1) ** 2 + power(b, 2) <= 4": lambda d: (d.a - 1) ** 2 + d.b**2 <= 4,
    "(a - b) * (a + b) > c": lambda d: (d.a - d.b) * (d.a + d.b) > d.c,
    "c * a * a + b < 1": lambda d: d.c * d.a**2 + d.b < 1,
    "(a - 1) ** 2 + b * b < 4 AND a > b": lambda d: ((d.a - 1) ** 2 + d.b**2 < 4) & (d.a > d.b),
    "a * b > c AND (a + b < 2 OR a + b > 3)": lambda d: (d.a * d.b > d.c) & ((d.a + d.b < 2) | (d.a + d.b > 3)),
    "distance(p, q) > 1 AND p[0] * p[1] < c": lambda d: (
        (((d.p - d.q) ** 2).sum(axis=1) > 1) & (d.p[:, 0] * d.p[:, 1] < d.c)
    ),
    "a * b BETWEEN -1 AND 1": lambda d: (d.a * d.b >= -1) & (d.a * d.b <= 1),
    "NOT (a * a BETWEEN 1 AND 4)": lambda d: (d.a**2 < 1) | (d.a**2 > 4),
    "u * u < 1 AND a > b AND b > -1": lambda d: (d.u**2 < 1) & (d.a > d.b) & (d.b > -1),
    "u - a <= 1 AND a - h > -1 AND u > -2": lambda d: (d.u - d.a <= 1) & (d.a - d.h > -1) & (d.u > -2),
    "u < h": lambda d: d.u < d.h,
    "p[0] + p[1] > a AND p[0] < 1": lambda d: (d.p[:, 0] + d.p[:, 1] > d.a) & (d.p[:, 0] < 1),
    "p[0] * p[0] + p[1] * p[1] >= c": lambda d: (d.p**2).sum(axis=1) >= d.c,
    "distance(p, q) <= 2 AND a + b > 0": lambda d: (((d.p - d.q) ** 2).sum(axis=1) <= 4) & (d.a + d.b > 0),
    "2 < distance(p, q)": lambda d: ((d.p - d.q) ** 2).sum(axis=1) > 4,
    "u != 1 AND a <> 1": lambda d: (d.u != 1) & (d.a != 1),
    "a = 1": lambda d: d.a == 1,
}  # fmt: skip


class _Drawn:
    def __init__(self, values):
        self.__dict__.update(values)


@pytest.mark.long(keep=10)
@pytest.mark.parametrize("text", TEXTS)
def test_texts_against_draws(text):
    rng = np.random.default_rng(90)
    rows, count = 25, 4000
    columns = {
        "a": [oracle.Normal(float(m), float(s)) for m, s in rng.uniform([-1.5, 0.3], [1.5, 1.5], (rows, 2))],
        "b": mixtures(rng, rows), "u": laws(rng, "uniform", rows, 0.0), "h": laws(rng, "hist", rows, 0.0),
        "p": points(rng, rows, 2, hard=False), "q": points(rng, rows, 2, hard=False),
    }  # fmt: skip
    c = rng.uniform(-1.0, 2.0, rows)
    mentioned = {
        name: values for name, values in columns.items() if name in text.replace("abs", "").replace("power", "")
    }
    found = ask_text(text, mentioned, {"c": c, "abs": np.abs})
    drawn = referee.frequencies(
        mentioned, lambda values, row: TEXTS[text](_Drawn({**values, "c": c[row]})), count, np.random.default_rng(91)
    )
    referee.assert_frequencies(found, drawn, count)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("NOT (x > 2 OR x < 1)", oracle.cdf(oracle.Normal(0, 1), 2) - oracle.cdf(oracle.Normal(0, 1), 1)),
        ("NOT (x < 3 OR x < 1)", 1 - oracle.cdf(oracle.Normal(0, 1), 3)),
        ("NOT (x BETWEEN 2 AND 3 OR x BETWEEN 0 AND 1)", None),
    ],
)
def test_not_of_an_or_in_any_order(text, wanted):
    if wanted is None:
        normal = oracle.Normal(0, 1)
        wanted = 1 - sum(oracle.cdf(normal, k + 1) - oracle.cdf(normal, k) for k in (0, 2))
    assert ask_text(text, {"x": [oracle.Normal(0.0, 1.0)]})[0] == pytest.approx(float(wanted), abs=1e-12)


@pytest.mark.parametrize("several", [False, True])
def test_squares_far_from_zero_keep_their_digits(several):
    """One sd around the mean, wherever the mean is."""
    value = [oracle.Normal(1000.0, 0.01)]
    if several:
        text, wanted = "(x - 1000) ** 2 + (y - 1000) ** 2 <= 0.0001", -math.expm1(-0.5)
    else:
        text, wanted = "(x - 1000) ** 2 <= 0.0001", math.erf(math.sqrt(0.5))
    columns = {"x": value, "y": value} if several else {"x": value}
    assert ask_text(text, columns)[0] == pytest.approx(wanted, abs=1e-11)


# ---------------------------------------------------------------------------------------------------------------
# Refusals


KINDS: dict[str, type[Model]] = {
    "a": Gaussian, "b": Gaussian, "c": Mixture, "u": Uniform, "v": Uniform, "t": TruncatedGaussian, "h": Histogram,
    "s": Samples, "p": GaussianND, "q": GaussianND, "m": MixtureND, "k": Certain,
}  # fmt: skip

REFUSED = {
    "distance(a, u) < 1 AND u < 1": ["distance is asked of 'u'", "samples, Gaussians or mixtures"],
    "distance(a, u) > 1 AND u < 1": ["distance is asked of 'u'", "samples, Gaussians or mixtures"],
    "p < 1": ["'p', which has several components", "p\\[0\\]"],
    "a[1] < 1": ["component of 'a'", "gaussian_nd or hp.mixture_nd"],
    "s[0] < 1": ["component of 's'", "samples"],
    " AND ".join(f"a - {k}*b IN (0, 1, 2, 3, 4)" for k in range(1, 4)): ["at most 64 combinations"],
    "abs(a - b) < -1": ["negative tolerance", "check the sign"],
    "a * b * c < 1": ["does not understand", "more than two uncertain columns", "compared with 0"],
    "a / b = 1": ["division by `b`", "uncertain"],
    "a - a > 1": ["can never hold"],
    "sin(a) < 1": ["function sin"],
    "a": ["does not understand", "compared with something certain"],
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refused_before_any_data_is_read(text):
    def plan():
        found = split_rows(parse(text), lambda column: KINDS[column.name] is Certain)
        return Selection.of(found.groups, KINDS, Threshold(0.5))

    with pytest.raises(HaplyError) as caught:
        plan()
    for words in REFUSED[text]:
        assert words.replace("\\", "") in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "u * u + a * a < 1",
        "u * v < 1",
        "u + v + h < 1",
        "2 * u - v < 1 AND u - v < 1",
        "u - v < k",
        "u - v < 1 AND v - h < 1 AND h - u < 1",
        "s * u + h < 1 OR u < k",
    ],
)
def test_values_of_any_law_take_integrals(text):
    found = split_rows(parse(text), lambda column: KINDS[column.name] is Certain)
    groups = Selection.of(found.groups, KINDS, Threshold(0.5)).groups
    assert "nested" in {one.method for group in groups for one in (group, *group.inner)}


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("u + v + h + t < 1 OR a < 1", "sum"),
        ("u + v + h + t < 1 AND u < 1", "lattice"),
        ("u * v + h * t < 1", "lattice"),
    ],
)
def test_many_values_of_any_law_take_convolutions_and_lattices(text, method):
    found = split_rows(parse(text), lambda column: KINDS[column.name] is Certain)
    groups = Selection.of(found.groups, KINDS, Threshold(0.5)).groups
    assert method in {one.method for group in groups for one in (group, *group.inner)}


def test_unknown_planning_and_thresholds():
    with pytest.raises(HaplyError, match=r"no choice of planning 'per-row'.*did you mean 'per_row'"):
        Selection.of([], {}, Threshold(0.5), "per-row")
    for value in (0.0, -0.1, 1.5, math.nan, "0.5"):
        with pytest.raises(HaplyError, match="not a probability"):
            Threshold(value)


def test_distance_of_a_histogram_is_refused():
    with pytest.raises(HaplyError, match="distance of 'h'"):
        group_of([Apart("p", "h", 1.0, text="distance(p, h) <= 1")], KINDS)


def test_distance_of_a_column_from_itself():
    """It is 0: kept for sure, or refused; never a probability of 0.0025."""
    columns = {"p": [NormalND([0.0, 0.0], np.eye(2))]}
    try:
        found = ask_text("distance(p, p) <= 0.1", columns)
    except HaplyError:
        return
    assert found[0] == 1.0


def test_distance_from_a_certain_number():
    """Answered, as abs(x - k) <= 1 is, or refused with words."""
    columns = {"x": [oracle.Normal(0.0, 1.0)]}
    try:
        found = ask_text("distance(x, k) <= 1", columns, {"k": 0.0})
    except HaplyError:
        return
    assert found[0] == pytest.approx(math.erf(math.sqrt(0.5)), abs=1e-12)


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("limit", [0.05, 0.4, 3.0])
@pytest.mark.parametrize("where", ["everywhere", "missed", "nowhere"])
def test_a_trial_of_bounds_changes_no_answer(monkeypatch, exact, limit, where):
    """Batches of many rows try on some where bounds pay; wherever they do, the rows stay the same."""
    asked = []
    monkeypatch.setattr(select, "_where_bounds_pay", lambda *facts: asked.append(facts) or where)
    rng = np.random.default_rng(77)
    rows = 9_000
    values = {name: Gaussian(rng.normal(0.0, 0.5, rows), rng.uniform(0.02, 0.4, rows)) for name in "abcd"}
    kinds = dict.fromkeys("abcd", Gaussian)
    disc = Polynomial((), tuple(((n, None), (n, None), 1.0) for n in "ab"), (Range(-np.inf, limit * limit),), "disc")
    sums = [
        Polynomial(((("c", None), 1.0), (("d", None), sign)), (), (Range(-limit, limit),), f"sum {sign:g}")
        for sign in (1.0, -1.0)
    ]
    batch = RowValues(values, {}, rows)
    chance = np.prod(Selection.of([[disc], sums], kinds, Threshold(0.3)).probabilities(batch), axis=0)
    found = Selection.of([[disc], sums], kinds, Threshold(0.3), "per_row", exact).select(batch)
    assert found.rows.tolist() == np.flatnonzero(chance >= 0.3).tolist()
    known = ~np.isnan(found.probability)
    assert exact <= bool(known.all())
    assert np.abs(found.probability[known] - chance[found.rows][known]).max(initial=0.0) < 1e-11
    assert asked


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("rows", "far"), [(600, 0.2), (600, -0.3), (9_000, 0.0)])
@pytest.mark.parametrize("cheap", [0.0, math.inf])
def test_rows_that_miss_first_change_no_answer(monkeypatch, exact, rows, far, cheap):
    """Rows whose means miss a condition are asked first: what is kept is what the referee keeps."""
    monkeypatch.setattr(select, "_CHEAP", cheap)
    rng = np.random.default_rng(int(rows + 10 * far))
    values = {name: Gaussian(rng.normal(0.0, 0.5, rows), rng.uniform(0.02, 0.4, rows)) for name in "abc"}
    ring = Polynomial((), tuple(((n, None), (n, None), 1.0) for n in "ab"), (Range(0.25, INF),), "ring")
    low = Polynomial(((("c", None), 1.0),), (), (Range(-INF, far),), "low")
    batch, effort = RowValues(values, {}, rows), Effort()
    found = Selection.of([[low], [ring]], dict.fromkeys("abc", Gaussian), Threshold(0.4), "per_row", exact).select(
        batch, effort
    )
    law = {name: [oracle.Normal(float(m), float(s)) for m, s in zip(v.mean(), v.sd, strict=True)]
           for name, v in values.items()}  # fmt: skip
    some = np.arange(0, rows, max(1, rows // 150))
    ask = Ask((), tuple(((n, None), (n, None), 1.0) for n in "ab"), ((0.25, INF, True, True),))
    rings = referee.normals({name: [law[name][k] for k in some] for name in "ab"}, [ask])
    wanted = {
        int(k): float(p) * NormalDist(law["c"][k].mean, law["c"][k].sd).cdf(far)
        for k, p in zip(some, rings, strict=True)
    }
    kept = dict(zip(found.rows.tolist(), found.probability, strict=True))
    assert {k for k in wanted if k in kept} == {k for k, p in wanted.items() if p >= 0.4}
    assert 10 < len(kept) < rows - 10
    for k in wanted.keys() & kept.keys():
        assert (math.isnan(kept[k]) and not exact) or kept[k] == pytest.approx(wanted[k], abs=1e-10)
    if exact and cheap:
        assert effort.bounded["ring"] < rows // 2 + rows // 4  # only rows that miss it


def test_where_bounds_pay():
    decided, missed = np.array([True, True, True, False]), np.array([True, True, False, False])
    assert select._where_bounds_pay(decided, missed, 10.0, 1.0) == "everywhere"  # 6.5 against 4.5
    assert select._where_bounds_pay(decided, missed, 2.0, 1.2) == "missed"  # 0.3 against 0.4
    assert select._where_bounds_pay(decided, missed, 1.0, 1.2) == "nowhere"
    assert select._where_bounds_pay(decided, None, 2.0, 1.2) == "everywhere"


def test_means_that_miss_are_those_of_values_without_spread():
    """Where values are all but certain, a row fulfils the conditions if and only if its means do."""
    rng, rows = np.random.default_rng(8), 400
    kinds = {"a": Gaussian, "b": Gaussian, "p": GaussianND}
    values = {name: Gaussian(rng.uniform(-3.0, 3.0, rows), np.full(rows, 1e-9)) for name in "ab"}
    values["p"] = GaussianND(rng.uniform(-3.0, 3.0, (rows, 2)), np.tile(1e-18 * np.eye(2), (rows, 1, 1)))
    batch = RowValues(values, {"k": rng.uniform(-2.0, 2.0, rows)}, rows)
    some = np.arange(0, rows, 3)
    for text in (
        "a + 2 * b < 1 AND a - b > 0", "abs(a - b) > 1 AND a > -2", "k * a + b BETWEEN -1 AND 1 AND a < k",
        "a * a + b * b < 4", "(a - 1) ** 2 + b * b > 2", "p[0] + a < 1 AND p[1] - a < 2",
        "(a - 1) ** 2 + b * b < 4 AND a + k * b > 0",
    ):  # fmt: skip
        found = split_rows(parse(text), lambda column: column.name == "k")
        (group,) = Selection.of(found.groups, kinds, Threshold(0.5)).groups
        holds = group.prepare(batch).exact()[0] > 0.5
        assert 20 < holds.sum() < rows - 20
        assert np.array_equal(group.missed(batch, np.arange(rows)), ~holds)
        assert np.array_equal(group.missed(batch, some), ~holds[some])


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e7])
def test_units_do_not_matter(unit):
    """A square is not forgotten because its factor is small: its column has large numbers."""
    columns = {name: [oracle.Normal(0.0, sd)] for name, sd in (("x", unit), ("y", 1.0), ("z", unit))}
    square = unit * unit
    half = 1.0 - math.exp(-2.0)
    assert ask_text(f"x*x/{square!r} + y*y < 4", columns) == pytest.approx(half, abs=1e-12)
    assert ask_text(f"x*x + {square!r}*y*y < {4 * square!r}", columns) == pytest.approx(half, abs=1e-12)
    assert ask_text(f"x*x/{square!r} + y*y < 4 AND x > 0", columns) == pytest.approx(half / 2, abs=1e-12)
    for text in ("x*y/{0} + z*z/{1} < 1", "x*z/{1} + y*y - y < 1", "x/{0} + y*y < 1", "x*x/{1} + y < 1"):
        same = ask_text(text.format(1.0, 1.0), {name: [oracle.Normal(0.0, 1.0)] for name in "xyz"})
        assert ask_text(text.format(repr(unit), repr(square)), columns) == pytest.approx(same, abs=1e-11)


@pytest.mark.parametrize(("mean", "sd"), [(1e6, 1.0), (1.7e9, 1e-3), (1.7e15, 10.0)])
def test_an_open_end_takes_nothing_from_a_value_without_atoms(mean, sd):
    """The next double may be far away, as seen from the error; only a certain value can be there and not beyond."""
    columns = {"x": [oracle.Normal(mean, sd), oracle.Normal(mean, 0.0)], "y": [oracle.Normal(0.0, 1.0)] * 2}
    for text, wanted in (
        ("x > {m}", [0.5, 0.0]),
        ("x < {m}", [0.5, 0.0]),
        ("x >= {m}", [0.5, 1.0]),
        ("x < {m} OR x > {m}", [1.0, 0.0]),
        ("x > {m} AND x + y < 1e300", [0.5, 0.0]),
        ("x > {m} AND y*y + x*y > -1e300", [0.5, 0.0]),
    ):
        assert ask_text(text.format(m=repr(mean)), columns) == pytest.approx(wanted, abs=1e-12), text
    kinds = {"x": Gaussian}
    groups = split_rows(parse(f"x > {mean!r}"), lambda column: False).groups
    chosen = Selection.of(groups, kinds, Threshold(0.5)).select(RowValues({"x": Gaussian([mean], [sd])}, {}, 1))
    assert chosen.rows.tolist() == [0]
