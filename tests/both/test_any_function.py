"""Functions in any combination of conditions: random trees against enumerated samples, and against drawn values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp
from amounts import fewer
from trees_kit import NUMBERS, FunctionTrees, is_asked, law, plane_law, stated_error, with_columns

ROWS = 3


def tree_of(seed, **known):
    make = FunctionTrees(seed, **known)
    return make.tree(int(make.random.integers(1, 5)))


def skip_if_refused(table, text):
    """Skip what the planner refuses, or return its plan. An error that comes only when rows are read is a failure."""
    try:
        return hp.haply.plan_where(table, text, 1e-9)
    except hp.HaplyError as refusal:
        pytest.skip(f"refused: {refusal}")


def of_samples(seed):
    """Make a condition, its function, and a table with three samples, or two points, in each row."""
    text, holds = tree_of(seed, discrete=(*NUMBERS, "p"), components=False)
    if not is_asked(text):
        return None
    random = np.random.default_rng([seed, 1])
    points = {name: (random.integers(-6, 7, (ROWS, 3)) / 4).tolist() for name in NUMBERS}
    places = random.integers(-6, 7, (ROWS, 4)) / 4
    sure = random.integers(-1, 2, ROWS)
    columns = {"id": list(range(ROWS)), **points, "p": places.tolist(), "sure": sure.tolist()}
    made = {name: f"samples({name})" for name in NUMBERS} | {"p": "samples(p, NULL, 2)"}
    return with_columns(text, made), holds, columns


@pytest.mark.long(keep=15)
@pytest.mark.parametrize("seed", range(1000))
def test_functions_of_samples_are_enumerated(engine, seed):
    case = of_samples(seed)
    if case is None:
        return
    asked, holds, columns = case
    table = pa.table(columns)
    skip_if_refused(table, asked)
    found = hp.where(hp.Table(engine, table), asked, 1e-9).collect()
    wanted = {}
    for k in range(ROWS):
        worlds = list(itertools.product(*(columns[name][k] for name in NUMBERS), np.reshape(columns["p"][k], (2, 2))))
        row = {name: np.array([world[j] for world in worlds]) for j, name in enumerate(NUMBERS)}
        row |= {"p": np.array([world[3] for world in worlds]).T, "sure": np.full(len(worlds), columns["sure"][k])}
        wanted[k] = float(np.mean(np.broadcast_to(holds(row) == 1, len(worlds))))
    assert {row["id"]: row["probability"] for row in found} == pytest.approx(
        {k: p for k, p in wanted.items() if p > 1e-9}, abs=1e-12
    ), asked


def laws_of(seed):
    laws = {name: law(np.random.default_rng([seed, k])) for k, name in enumerate(NUMBERS)}
    discrete = [name for name, (kind, _, _) in laws.items() if kind == "samples"]
    drawn = {name: draw for name, (_, _, draw) in laws.items()}
    made = {name: text for name, (_, text, _) in laws.items()}
    made["p"], drawn["p"] = plane_law(np.random.default_rng([seed, 7]))
    return discrete, made, drawn


def of_any_laws(seed):
    """Make a condition, its function, a table of two rows, and what draws each value."""
    discrete, made, drawn = laws_of(seed)
    text, holds = tree_of(20_000 + seed, discrete=discrete)
    return (with_columns(text, made), holds, {"id": [1, -1], "sure": [1, -1]}, drawn) if is_asked(text) else None


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("seed", range(2000))
def test_functions_of_any_laws_against_drawing(engine, seed):
    case = of_any_laws(seed)
    if case is None:
        return
    (asked, holds, columns, drawn), count = case, 1_000_000
    table = pa.table(columns)
    error = stated_error(skip_if_refused(table, asked).explain()) + 1e-9
    found = hp.where(hp.Table(engine, table), asked, 1e-9).collect()
    found = {row["sure"]: row["probability"] for row in found}
    values = {name: draw(count) for name, draw in drawn.items()}
    for sure in (1, -1):
        share = float(np.mean(np.broadcast_to(holds(values | {"sure": np.full(count, sure)}) == 1, count)))
        p = found.get(sure, 0.0)
        assert abs(p - share) <= 5 * math.sqrt(max(p * (1 - p), 1e-5) / count) + error, (asked, sure)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(("made_of", "first"), [
    *((of_samples, first) for first in range(0, 1000, 25)), *((of_any_laws, first) for first in range(0, 2000, 25)),
])  # fmt: skip
def test_spark_answers_as_the_local_engine_does(spark, made_of, first):
    """All trees above, many in one job."""
    cases = [case for case in map(made_of, range(first, first + fewer(25))) if case is not None]
    hp.check_spark_agrees(spark, [(case[0], pa.table(case[2])) for case in cases])


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_few_trees_are_refused(first):
    """A refusal names its reason, and comes before data is read."""
    reasons, asked = [], 0
    table = pa.table({"sure": [1]})
    for seed in range(first, first + 50):
        discrete, made, _ = laws_of(seed)
        text, _ = tree_of(20_000 + seed, discrete=discrete)
        if not is_asked(text):
            continue
        asked += 1
        try:
            hp.haply.plan_where(table, with_columns(text, made), 0.5)
        except hp.HaplyError as refusal:
            reasons.append(str(refusal))
    assert all("Expected" in reason for reason in reasons)
    assert len(reasons) <= 0.1 * asked


def chances(engine, columns, text):
    found = hp.where(hp.Table(engine, pa.table(columns)), text, 1e-12).collect()
    return {row["id"]: row["probability"] for row in found}


def below(mean, sd, limit):
    return 0.5 * math.erfc((mean - limit) / (sd * math.sqrt(2)))


def test_what_is_not_defined_is_unknown(engine):
    """As in SQL: neither a comparison with it holds, nor its opposite."""
    columns = {"id": [1], "s": [[-4.0, -1.0, 0.0, 1.0, 9.0]], "t": [[1.0, 1.0, 1.0, 1.0, 0.0]]}

    def share(text):
        return chances(engine, columns, with_columns(text, {"S": "samples(s)", "T": "samples(t)"})).get(1, 0.0)

    assert share("sqrt(S) > 2") == pytest.approx(1 / 5)
    assert share("NOT sqrt(S) > 2") == share("sqrt(S) <= 2") == pytest.approx(2 / 5)
    assert share("NOT (ln(S) > 0 OR S > 10)") == pytest.approx(1 / 5)
    assert share("S / T > 0") == pytest.approx(2 / 5 * 4 / 5)
    assert share("NOT S / T > 0") == pytest.approx(3 / 5 * 4 / 5)
    assert share("sqrt(S) > 2 XOR T = 0") == pytest.approx((1 * 4 + 2 * 1) / 25)
    assert share("CASE WHEN sqrt(S) > 2 THEN T > 0 ELSE T = 0 END") == pytest.approx((1 * 4 + 4 * 1) / 25)
    assert share("NOT CASE WHEN S > 0 THEN T > 0 END") == pytest.approx(2 / 5 * 1 / 5)
    assert share("NOT CASE WHEN S > 0 THEN T END > 0") == pytest.approx(2 / 5 * 1 / 5)
    assert share("power(S, 0.5) BETWEEN 1 AND 3") == pytest.approx(2 / 5)
    assert share("power(S, -1) NOT BETWEEN -1 AND 1") == 0.0
    assert share("power(S, -1) BETWEEN -1 AND 1") == pytest.approx(4 / 5)


def test_functions_that_rise(engine):
    """With factors and numbers beside them, on both sides, and of distances."""
    columns = {"id": [1], "x": [0.3], "y": [0.1], "m": [[1.0, 2.0]]}

    def asked(text):
        made = {"X": "gaussian(x, 0.5)", "Y": "gaussian(y, 0.4)", "P": "gaussian_nd(m, array(1.0, 1.0))"}
        return chances(engine, columns, with_columns(text, made)).get(1, 0.0)

    def normal(limit):
        return below(0.3, 0.5, limit)

    exact = {"abs": 1e-14}
    assert asked("3 - 2 * exp(X) > 1") == pytest.approx(normal(0.0), **exact)
    assert asked("-exp(X) / 4 < -0.5") == pytest.approx(1 - normal(math.log(2)), **exact)
    assert asked("abs(exp(X) - 1) < 0.5") == pytest.approx(normal(math.log(1.5)) - normal(math.log(0.5)), **exact)
    assert asked("exp(X) < exp(Y)") == pytest.approx(below(0.2, math.hypot(0.5, 0.4), 0.0), **exact)
    assert asked("tanh(X) < 0.5") == pytest.approx(normal(math.atanh(0.5)), **exact)
    assert asked("tanh(X) < 1.5") == asked("atan(X) > -2") == asked("exp(X) > -1") == pytest.approx(1.0)
    assert asked("atan(X) > 1") == pytest.approx(1 - normal(math.tan(1)), **exact)
    assert asked("log10(X) < -0.3") == pytest.approx(normal(10**-0.3) - normal(0.0), **exact)
    assert asked("cbrt(X) < 0.5") == pytest.approx(normal(0.125), **exact)
    assert asked("1 / X > 2") == pytest.approx(normal(0.5) - normal(0.0), **exact)
    near = 1 - math.exp(-0.5)  # within 1 of the middle
    assert asked("distance(P, array(1, 2)) < 1") == pytest.approx(near, abs=1e-12)
    for text in ("power(distance(P, array(1, 2)), 2) < 1", f"exp(distance(P, array(1, 2))) < {math.e}",
                 "2 * distance(P, array(1, 2)) - 1 < 1", "1 / distance(P, array(1, 2)) > 1",
                 "NOT distance(P, array(1, 2)) >= 1", "NOT (distance(P, array(1, 2)) > 1 AND X < 100)"):  # fmt: skip
        assert asked(text) == pytest.approx(near, abs=1e-12), text


def test_components_beside_values_of_other_laws(engine):
    """A component is a normal value; two of one point are not independent of each other."""
    columns = {"id": [1], "m": [[0.5, -0.2]]}
    point = "gaussian_nd(m, array(0.8, 0.5), 0.6)"
    wide = "mixture_nd(array(0.25, 0.75), array(0.0, 0.0, 0.5, 1.0), array(1.0, 0.3, 0.3, 0.5, 0.6, 0.0, 0.0, 0.2))"
    box = "uniform(-0.5, 1.5)"
    random = np.random.default_rng(1)
    count = 1_000_000
    z, w, u = random.normal(0, 1, count), random.normal(0, 1, count), random.uniform(-0.5, 1.5, count)
    p0, p1 = 0.5 + 0.8 * z, -0.2 + 0.5 * (0.6 * z + 0.8 * w)
    first = random.random(count) < 0.25
    x = np.where(first, z, 0.5 + math.sqrt(0.6) * z)
    y = np.where(first, 0.3 * z + math.sqrt(0.41) * w, 1 + math.sqrt(0.2) * w)
    for text, holds in {
        f"{point}[0] * {box} < 0.2": p0 * u < 0.2,
        f"{point}[0] * {box} + {point}[1] < 0.2": p0 * u + p1 < 0.2,
        f"distance({point}, array(0, 1)) < 1.2 AND {point}[1] < {box}": (np.hypot(p0, p1 - 1) < 1.2) & (p1 < u),
        f"({wide}[0] - 0.5) * ({wide}[1] + 0.25) < {box}": (x - 0.5) * (y + 0.25) < u,
        f"distance({wide}, array(0, 1)) > 1 OR {wide}[0] > {box}": (np.hypot(x, y - 1) > 1) | (x > u),
    }.items():
        p = chances(engine, columns, text)[1]
        assert abs(p - holds.mean()) < 5 * math.sqrt(p * (1 - p) / count), text


def test_products_of_shifted_values_of_any_laws(engine):
    """``(x - 1) (y - 2)``, of two uniform laws, is below 0 in two corners."""
    columns = {"id": [1], "s": [[0.0, 1.0, 3.0]]}
    text = "(uniform(0, 4) - 1) * (uniform(0, 3) - 2) < 0"
    assert chances(engine, columns, text) == pytest.approx({1: 1 / 4 * 1 / 3 + 3 / 4 * 2 / 3}, abs=1e-12)
    text = "(samples(s) - 1) * (uniform(0, 3) - 2) <= 0"
    assert chances(engine, columns, text) == pytest.approx({1: (1 / 3 + 1 + 2 / 3) / 3}, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("X * X * X > 0.125", lambda x, y, z: x**3 > 0.125),
        ("X * X * X + 1 <= 1.125", lambda x, y, z: x**3 + 1 <= 1.125),
        ("2 * X * X * X * X < 0.125", lambda x, y, z: 2 * x**4 < 0.125),
        ("-3 * X * power(X, 2) < 0.375", lambda x, y, z: -3 * x**3 < 0.375),
        ("(X - Y) * (X - Y) * (X - Y) > 0.125", lambda x, y, z: (x - y) ** 3 > 0.125),
        ("X * Y * Z > 0", lambda x, y, z: x * y * z > 0),
        ("-X * Y * Z >= 0", lambda x, y, z: -x * y * z >= 0),
        ("X * Y * Z <= 0 AND X > Y", lambda x, y, z: (x * y * z <= 0) & (x > y)),
        ("NOT X * X * Y < 0", lambda x, y, z: x * x * y >= 0),
        ("0 < X * Y * Z * (X - Y)", lambda x, y, z: x * y * z * (x - y) > 0),
        ("X * Y * Z = 0", lambda x, y, z: x * y * z == 0),
        ("X * X * X * Y <> 0 OR Z > 0.5", lambda x, y, z: (x**3 * y != 0) | (z > 0.5)),
    ],
)
def test_products_of_many_factors(engine, text, holds):
    """Equal factors are a power, and compared with 0 the signs of factors decide: all worlds of samples are counted."""
    random = np.random.default_rng(7)
    values = {name: (random.integers(-3, 4, (8, 3)) / 4).tolist() for name in "xyz"}
    made = {name.upper(): f"samples({name})" for name in "xyz"}
    wanted = {}
    for k in range(8):
        worlds = np.array(list(itertools.product(*(rows[k] for rows in values.values())))).T
        wanted[k] = float(np.mean(holds(*worlds)))
    found = chances(engine, {"id": list(range(8)), **values}, with_columns(text, made))
    assert found == pytest.approx({k: p for k, p in wanted.items() if p > 0.0}, abs=1e-12)


def test_products_with_a_factor_that_is_null_or_not_defined(engine):
    """The product is null as well, also where another factor is 0."""
    columns = {"id": [1, 2], "c": [None, 2.0], "s": [[-1.0, 0.0]] * 2, "u": [[0.0, 1.0]] * 2, "v": [[1.0, 2.0]] * 2}
    made = {name.upper(): f"samples({name})" for name in "suv"}

    def asked(text):
        return chances(engine, columns, with_columns(text, made))

    assert asked("sqrt(S) * U * V = 0") == pytest.approx({1: 0.5, 2: 0.5})
    assert asked("NOT sqrt(S) * U * V <> 0") == pytest.approx({1: 0.5, 2: 0.5})
    assert asked("c * S * U * V = 0") == pytest.approx({2: 0.75})
    assert asked("c * S * U * V <> 0") == pytest.approx({2: 0.25})
    assert asked("c * S * U * V >= 0") == pytest.approx({2: 0.75})


def test_products_of_many_normal_values(engine):
    """The sign of a product is that of independent coins: ``(1 + (2p - 1)(2q - 1)(2r - 1)) / 2``."""
    columns = {"id": [1], "x": [0.3], "y": [-0.2], "z": [0.7]}
    signs = [2.0 * below(-columns[name][0], 1.0, 0.0) - 1.0 for name in "xyz"]
    text = with_columns("X * Y * Z > 0", {name.upper(): f"gaussian({name}, 1.0)" for name in "xyz"})
    assert chances(engine, columns, text)[1] == pytest.approx(0.5 * (1.0 + math.prod(signs)), abs=1e-12)
    cube = with_columns("X * X * X > 8", {"X": "gaussian(x, 1.0)"})
    assert chances(engine, columns, cube)[1] == pytest.approx(1.0 - below(0.3, 1.0, 2.0), abs=1e-14)


def test_conditions_of_numbers_alone(engine):
    """Beside uncertain ones: what compares numbers needs no column."""
    columns = {"id": [1]}
    assert chances(engine, columns, "gaussian(0, 1) > 0 AND 2 > 1.5") == {1: 0.5}
    assert chances(engine, columns, "gaussian(0, 1) > 0 AND 2 < 1.5") == {}
    assert chances(engine, columns, "least(exp(gaussian(0, 1)), 2) > 1") == {1: 0.5}


def test_equalities_of_points_beside_other_values(engine):
    """Points are compared exactly, also where others are integrated, or distances are asked for."""
    columns = {"id": [1], "a": [[-0.5, 0.0, -0.5]], "c": [[0.75, 0.25, -0.5]], "q": [[0.5, -1.0, -1.0, -1.5]]}
    equal = "samples(a) - samples(c) = 0.5"  # of 0 and -0.5, in one of nine worlds
    never = "distance(samples(q, NULL, 2), array(0.75, 0)) <= -1"
    text = f"{equal} OR (samples(a) / samples(c) >= -0.5 AND {never})"
    assert chances(engine, columns, text) == pytest.approx({1: 1 / 9}, abs=1e-12)
    text = f"{equal} OR samples(a) * uniform(0, 1) * 2 + samples(c) > 9"
    assert chances(engine, columns, text) == pytest.approx({1: 1 / 9}, abs=1e-12)


def test_squares_of_one_component(engine):
    """Beside another condition, as one of its cases."""
    columns = {"id": [1], "m": [[0.0, 0.0]]}
    text = "gaussian_nd(m, array(1.0, 2.0))[1] * gaussian_nd(m, array(1.0, 2.0))[1] > 4 OR uniform(0, 4) < 1"
    assert chances(engine, columns, text) == pytest.approx({1: 1 - 0.75 * math.erf(math.sqrt(0.5))}, abs=1e-12)


def test_samples_on_the_roots_of_a_square(engine):
    """A point that is a root, as the number is written, is neither above nor below it."""
    random = np.random.default_rng(3)
    for _ in range(8):
        one, two = (round(float(x), int(random.integers(1, 4))) for x in random.uniform(-3.0, 3.0, 2))
        columns = {"id": [1], "c": [[one, two, 7.0]]}
        product = f"(samples(c) - ({one})) * (samples(c) - ({two}))"
        for comparison, wanted in (("> 0", 1 / 3), ("<= 0", 2 / 3), ("= 0", 2 / 3), (">= 0", 1.0)):
            assert chances(engine, columns, f"{product} {comparison}") == pytest.approx({1: wanted}, abs=1e-12)
        assert chances(engine, columns, f"{product} < 0") == {}
