"""Sums, products and squares of values of any laws, against mpmath and against enumeration."""

from __future__ import annotations

import itertools

import mpmath as mp
import numpy as np
import pytest

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Histogram, Mixture, Samples, TruncatedGaussian, Uniform
from haply.pruning.threshold import Threshold
from haply.selection.cases import AllOf, AnyOf, Either, Sure
from haply.selection.conditions import Polynomial, Range, RowValues
from haply.selection.group import CASES, NESTED
from haply.selection.grouping import group_of
from haply.selection.methods.nested import MOST_VALUES, Nested
from haply.selection.select import Selection

INF = float("inf")


def value(name):
    return name, None


def polynomial(linear, squares=(), low=-INF, high=INF, **closed):
    """``linear`` has factors by name, ``squares`` by pairs of names."""
    return Polynomial(
        tuple((value(name), factor) for name, factor in dict(linear).items()),
        tuple((value(one), value(two), factor) for (one, two), factor in dict(squares).items()),
        (Range(low, high, **closed),),
    )


LAWS = {
    "uniform": (Uniform([-1.0], [1.5]), [(1.0, -1.0, 1.5, None)]),
    "histogram": (
        Histogram([[-1.0, 0.0, 0.5, 2.0]], [[0.2, 0.5, 0.3]]),
        [(0.2, -1.0, 0.0, None), (0.5, 0.0, 0.5, None), (0.3, 0.5, 2.0, None)],
    ),
    "gaussian": (Gaussian([0.3], [0.8]), [(1.0, -9.0, 9.5, (0.3, 0.8))]),
    "narrow": (Gaussian([0.4], [0.002]), [(1.0, 0.38, 0.42, (0.4, 0.002))]),
    "truncated": (TruncatedGaussian([0.2], [1.0], [-1.0], [2.0]), [(1.0, -1.0, 2.0, (0.2, 1.0))]),
    "mixture": (
        Mixture([[0.4, 0.6]], [[-0.5, 0.7]], [[0.3, 0.5]]),
        [(0.4, -4.0, 3.5, (-0.5, 0.3)), (0.6, -4.8, 6.2, (0.7, 0.5))],
    ),
}
"""Models, and their pieces as the oracle has them: weight, from, to, and the mean and sd of a normal cut to that."""


def density(pieces, x):
    total = mp.mpf(0)
    for weight, low, high, normal in pieces:
        if low <= x <= high:
            if normal is None:
                total += mp.mpf(weight) / (mp.mpf(high) - low)
            else:
                mean, sd = map(mp.mpf, normal)
                mass = mp.ncdf((high - mean) / sd) - mp.ncdf((low - mean) / sd)
                total += weight * mp.npdf(x, mean, sd) / mass
    return total


def cdf(pieces, x):
    total = mp.mpf(0)
    for weight, low, high, normal in pieces:
        place = min(max(x, mp.mpf(low)), mp.mpf(high))
        if normal is None:
            total += weight * (place - low) / (mp.mpf(high) - low)
        else:
            mean, sd = map(mp.mpf, normal)
            begin, end = mp.ncdf((low - mean) / sd), mp.ncdf((high - mean) / sd)
            total += weight * (mp.ncdf((place - mean) / sd) - begin) / (end - begin)
    return total


def ends(pieces):
    return sorted({mp.mpf(end) for _, low, high, _ in pieces for end in (low, high)})


def middles(pieces):
    return [mp.mpf(normal[0]) for *_, normal in pieces if normal is not None]


def integral(function, pieces, cuts):
    """Over all that has a density, cut where the function has kinks, and finely: mpmath does not look for them."""
    first, last = ends(pieces)[0], ends(pieces)[-1]
    every = sorted({cut for cut in (*ends(pieces), *middles(pieces), *cuts) if first <= cut <= last})
    fine = [low + (high - low) * k / 4 for low, high in itertools.pairwise(every) for k in range(4)] + [last]
    return mp.quad(lambda x: density(pieces, x) * function(x), fine)


PAIRS = [
    ("uniform", "uniform"),
    ("narrow", "histogram"),
    ("uniform", "mixture"),
    ("gaussian", "histogram"),
    ("truncated", "histogram"),
    ("truncated", "mixture"),
    ("uniform", "histogram"),
    ("uniform", "truncated"),
]


def asked(condition, models, numbers=None):
    kinds = {name: type(model) for name, model in models.items()}
    group = group_of((condition,) if isinstance(condition, Polynomial) else condition, kinds)
    rows = max(len(model) for model in models.values())
    return group, group.prepare(RowValues(models, numbers or {}, rows)).exact()[0]


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_products_against_mpmath(one, other):
    """``x y > 0.1``: ``y`` above ``0.1 / x``, or below it where ``x`` is negative."""
    (x, of_x), (y, of_y) = LAWS[one], LAWS[other]
    limit = mp.mpf("0.1")
    cuts = [limit / end for end in (*ends(of_y), *middles(of_y)) if end != 0] + [mp.mpf(0)]

    def chance(place):
        if place == 0:
            return mp.mpf(0)
        below = cdf(of_y, limit / place)
        return 1 - below if place > 0 else below

    group, found = asked(polynomial({}, {("x", "y"): 1.0}, low=0.1), {"x": x, "y": y})
    assert group.method == NESTED
    assert found[0] == pytest.approx(float(integral(chance, of_x, cuts)), abs=1e-10)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_discs_against_mpmath(one, other):
    """``x^2 + y^2 <= 0.8``."""
    (x, of_x), (y, of_y) = LAWS[one], LAWS[other]
    size = mp.mpf("0.8")
    cuts = [sign * mp.sqrt(size - end**2) for end in ends(of_y) if end**2 < size for sign in (-1, 1)]
    cuts += [-mp.sqrt(size), mp.sqrt(size)]

    def chance(place):
        inside = size - place**2
        return cdf(of_y, mp.sqrt(inside)) - cdf(of_y, -mp.sqrt(inside)) if inside > 0 else mp.mpf(0)

    _, found = asked(polynomial({}, {("x", "x"): 1.0, ("y", "y"): 1.0}, high=0.8), {"x": x, "y": y})
    assert found[0] == pytest.approx(float(integral(chance, of_x, cuts)), abs=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("three", [("uniform", "truncated", "histogram"), ("uniform", "uniform", "histogram")])
def test_sums_and_circles_of_three_against_mpmath(three):
    """``x + y + z > 0.5``, and ``x < y < z < x + 1``, whose two integrals are done one inside the other."""
    (x, of_x), (y, of_y), (z, of_z) = (LAWS[name] for name in three)
    models = {"x": x, "y": y, "z": z}
    with mp.workdps(15):

        def above(place):
            cuts = [mp.mpf("0.5") - place - end for end in ends(of_z)]
            return integral(lambda t: 1 - cdf(of_z, mp.mpf("0.5") - place - t), of_y, cuts)

        _, found = asked(polynomial({"x": 1.0, "y": 1.0, "z": 1.0}, low=0.5), models)
        sums = [mp.mpf("0.5") - one - other for one in ends(of_y) for other in ends(of_z)]
        assert found[0] == pytest.approx(float(integral(above, of_x, sums)), abs=1e-10)

        def around(place):
            cuts = [place, place + 1, *ends(of_z)]
            return integral(
                lambda t: cdf(of_z, place + 1) - cdf(of_z, t) if place < t < place + 1 else mp.mpf(0), of_y, cuts
            )

        circle = (
            polynomial({"x": 1.0, "y": -1.0}, high=0.0),
            polynomial({"y": 1.0, "z": -1.0}, high=0.0),
            polynomial({"z": 1.0, "x": -1.0}, high=1.0),
        )
        _, found = asked(circle, models)
        cuts = [end - shift for end in (*ends(of_y), *ends(of_z)) for shift in (0, 1)]
        assert found[0] == pytest.approx(float(integral(around, of_x, cuts)), abs=1e-10)


@pytest.mark.long(keep=15)
@pytest.mark.parametrize("seed", range(150))
def test_points_are_enumerated(seed):
    """Any polynomials of points: sums, products, squares, several ranges, limits that are columns."""
    rng = np.random.default_rng(seed)
    names = "abcd"[: int(rng.integers(2, 5))]
    rows = 3
    points = {name: rng.integers(-4, 5, (rows, int(rng.integers(1, 5)))) / 2 for name in names}
    weights = {name: rng.integers(1, 5, points[name].shape).astype(float) for name in names}
    weights = {name: of / of.sum(axis=1, keepdims=True) for name, of in weights.items()}
    models = {name: Samples(points[name], weights[name]) for name in names}
    limit = rng.integers(-3, 4, rows) / 2
    conditions, tests = [], []
    for _ in range(int(rng.integers(1, 4))):
        linear = {name: float(rng.integers(-2, 3)) for name in names}
        pairs = {pair: float(rng.integers(-1, 2)) for pair in itertools.combinations_with_replacement(names, 2)}
        pairs = {pair: factor for pair, factor in pairs.items() if rng.random() < 0.4}
        closed = bool(rng.random() < 0.5)
        made = polynomial(linear, pairs, high="limit", high_closed=closed)
        conditions.append(made)

        def holds(world, k, linear=linear, pairs=pairs, closed=closed):
            total = sum(factor * world[name] for name, factor in linear.items())
            total += sum(factor * world[one] * world[two] for (one, two), factor in pairs.items())
            return total <= limit[k] if closed else total < limit[k]

        tests.append(holds)
    wanted = np.zeros(rows)
    for k in range(rows):
        for chosen in itertools.product(*(range(points[name].shape[1]) for name in names)):
            world = {name: points[name][k, at] for name, at in zip(names, chosen, strict=True)}
            if all(test(world, k) for test in tests):
                wanted[k] += np.prod([weights[name][k, at] for name, at in zip(names, chosen, strict=True)])
    kinds = tuple((name, Samples) for name in names)
    found, _ = Nested(AllOf(tuple(conditions)), kinds, RowValues(models, {"limit": limit}, rows)).exact()
    assert found == pytest.approx(wanted, abs=1e-12)


def test_combinations_are_evaluated_as_they_are_written():
    """ANY of conditions that are known or not, ALL of none, ANY of none."""
    x, y = Uniform([0.0, 0.0], [1.0, 1.0]), Uniform([0.0, 0.0], [1.0, 1.0])
    product = polynomial({}, {("x", "y"): 1.0}, high=0.25)
    tree = AnyOf((AllOf((Sure("k"), AnyOf((product, AnyOf(()))))), AllOf((Sure("m"), AllOf(())))))
    batch = RowValues({"x": x, "y": y}, {"k": np.array([1.0, 1.0]), "m": np.array([0.0, 1.0])}, 2)
    found, _ = Nested(tree, (("x", Uniform), ("y", Uniform)), batch).exact()
    assert found == pytest.approx([0.25 * (1 + np.log(4.0)), 1.0], abs=1e-10)


def test_many_ranges_are_all_asked():
    """A product of two uniforms in every second of 450 steps: each has two borders."""
    steps = np.linspace(0.0, 1.0, 451)
    ranges = tuple(Range(low, high) for low, high in zip(steps[:-1:2], steps[1::2], strict=True))
    condition = Polynomial((), ((value("x"), value("y"), 1.0),), ranges)
    one = Uniform([0.0], [1.0])
    _, found = asked(condition, {"x": one, "y": one})

    def below(z):
        return z * (1.0 - np.log(z)) if z > 0.0 else 0.0

    assert found[0] == pytest.approx(sum(below(each.high) - below(each.low) for each in ranges), abs=1e-10)


def test_points_beside_other_laws():
    """Each point is a case of its own."""
    points, weights = [-1.0, 0.25, 0.5], [0.2, 0.3, 0.5]
    x, of_x = LAWS["uniform"]
    _, found = asked(
        polynomial({"x": 1.0}, {("x", "s"): 2.0}, low=0.1), {"s": Samples([points], [weights]), "x": x}
    )  # fmt: skip
    wanted = 0.0
    for point, weight in zip(points, weights, strict=True):
        factor = 1.0 + 2.0 * point
        below = float(cdf(of_x, mp.mpf(0.1) / factor))
        wanted += weight * (1.0 - below if factor > 0 else below)
    assert found[0] == pytest.approx(wanted, abs=1e-12)


def test_large_numbers_lose_no_digits():
    """Seconds since 1970, with errors of milliseconds."""
    start, width = 1.7e9, 2.0**-7
    x, y = Uniform([start], [start + width]), Uniform([start], [start + width])
    limit = np.array([width / 4])
    group, found = asked(
        polynomial({"x": 1.0, "y": -1.0}, high="limit"), {"x": x, "y": y}, {"limit": limit}
    )  # fmt: skip
    assert group.method == NESTED
    assert found[0] == pytest.approx(1.0 - 0.5 * 0.75**2, abs=1e-10)


def test_certain_values_are_points():
    _, found = asked(
        polynomial({}, {("x", "c"): 1.0}, high=0.5), {"x": LAWS["uniform"][0], "c": Certain([2.0])}
    )  # fmt: skip
    assert found[0] == pytest.approx(1.25 / 2.5, abs=1e-12)


def test_too_many_points_are_refused():
    many = Samples(np.arange(400.0)[None, :])
    models = dict.fromkeys("abcd", many)
    kinds = dict.fromkeys(models, Samples)
    condition = polynomial(dict.fromkeys("abcd", 1.0), high=10.0)
    selection = Selection.of([[condition]], kinds, Threshold(0.5))
    with pytest.raises(HaplyError, match="combinations"):
        selection.select(RowValues(models, {}, 1))


def test_too_many_laws_are_refused():
    names = [f"x{k}" for k in range(MOST_VALUES + 1)]
    for squares in ({}, {("x0", "x1"): 1.0}):
        with pytest.raises(HaplyError, match=r"cannot be computed together|squares several uncertain columns"):
            group_of((polynomial(dict.fromkeys(names, 1.0), squares, high=0.0),), dict.fromkeys(names, Uniform))


ANY_LAWS = {
    "uniform": lambda rng: Uniform([-0.7 - rng.random()], [0.5 + rng.random()]),
    "gaussian": lambda rng: Gaussian([rng.normal(0, 0.5)], [0.3 + rng.random()]),
    "histogram": lambda rng: Histogram([np.sort(rng.normal(0, 1, 4))], [[0.2, 0.5, 0.3]]),
    "truncated": lambda rng: TruncatedGaussian([rng.normal(0, 0.5)], [0.3 + rng.random()], [-0.8], [1.1]),
    "mixture": lambda rng: Mixture([[0.4, 0.6]], [rng.normal(0, 1, 2)], [0.2 + rng.random(2)]),
}


def draws(model, count, rng):
    """Values of a law of one row, by the inverse of its distribution function on a fine grid."""
    places = np.linspace(-12.0, 12.0, 200_001)
    below = model.cdf(places) if len(model) > 1 else model.take(np.zeros(len(places), np.int64)).cdf(places)
    return np.interp(rng.random(count), below, places)


def random_tree(rng, depth):
    """A combination of linear conditions, and a function of drawn values that says where it holds."""
    if depth == 0:
        factors = rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0], 3)
        if not factors.any():
            factors[0] = 1.0
        low, high = np.sort(rng.integers(-6, 7, 2) / 4)
        low, high = (-INF, high) if rng.random() < 0.4 else (low, INF) if rng.random() < 0.5 else (low, high + 0.25)
        leaf = polynomial({name: f for name, f in zip("abc", factors, strict=True) if f}, (), low, high)
        return leaf, lambda x: (factors @ x > low) & (factors @ x < high)
    parts = [random_tree(rng, depth - 1) for _ in range(int(rng.integers(2, 4)))]
    trees, holds = zip(*parts, strict=True)
    if rng.random() < 0.5:
        return AllOf(trees), lambda x: np.all([one(x) for one in holds], axis=0)
    return AnyOf(trees), lambda x: np.any([one(x) for one in holds], axis=0)


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("seed", range(60))
def test_trees_do_not_depend_on_the_order_of_integrals(seed):
    """Whichever value is last, kinks are found or halved away; what is skipped takes nothing from the value."""
    rng = np.random.default_rng(seed)
    tree, holds = random_tree(rng, int(rng.integers(1, 4)))
    chosen = rng.choice(list(ANY_LAWS), 3)
    models = {name: ANY_LAWS[law](rng) for name, law in zip("abc", chosen, strict=True)}
    found = []
    for order in itertools.permutations("abc"):
        # laws of one rank are integrated in the order in which they are named
        kinds = [(name, type(models[name])) for name in order]
        found.append(Nested(tree, kinds, RowValues(models, {}, 1)).exact()[0][0])
    assert found == pytest.approx([found[0]] * 6, abs=1e-10)
    count = 200_000
    share = holds(np.stack([draws(models[name], count, rng) for name in "abc"])).mean()
    assert abs(found[0] - share) <= 5 * np.sqrt(max(found[0] * (1 - found[0]), 1e-5) / count) + 1e-4


def test_many_regions_of_normals_become_one_integral():
    """Cases that are regions in three dimensions are integrated together; few are computed one by one."""
    rng = np.random.default_rng(3)
    models = {name: Gaussian([rng.normal(0, 0.5)], [0.3 + rng.random()]) for name in "abc"}
    kinds = dict.fromkeys(models, Gaussian)
    sums = [{"a": 1.0, "b": 0.5}, {"b": 1.0, "c": -0.5}, {"a": 1.0, "c": 2.0}, {"a": 1.0, "b": 1.0, "c": 1.0},
            {"a": 0.5, "b": -1.0, "c": 1.0}, {"a": -1.0, "b": 1.0, "c": 2.0},
            {"a": 2.0, "b": 1.0}, {"b": 2.0, "c": 1.0}]  # fmt: skip
    for count, method in ((4, CASES), (8, NESTED)):
        leaves = [polynomial(terms, (), -0.5, 0.25 * k) for k, terms in enumerate(sums[:count])]
        either = Either(AnyOf(tuple(AllOf(pair) for pair in itertools.combinations(leaves, 3))), "three")
        group = group_of([either], kinds)
        found = group.prepare(RowValues(models, {}, 1)).exact()[0][0]
        assert group.method == method
        x = np.stack([draws(models[name], 400_000, rng) for name in "abc"])
        holds = np.zeros(x.shape[1], int)
        for k, terms in enumerate(sums[:count]):
            total = sum(factor * x["abc".index(name)] for name, factor in terms.items())
            holds += (total >= -0.5) & (total <= 0.25 * k)
        share = (holds >= 3).mean()
        assert abs(found - share) <= 5 * np.sqrt(share * (1 - share) / x.shape[1]) + 1e-5


# -- regions between the nodes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_small_ellipsoids_are_found_wherever_they_lie(seed):
    """In a box of uniform values: whole ellipsoids, halves around a point of a face, quarters around one of an edge."""
    random = np.random.default_rng(seed)
    ends, cut = random.uniform(1.0, 5.0, 3), int(random.integers(0, 3))
    turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
    radii = 10.0 ** random.uniform(-2.5, -0.7) * random.uniform(0.5, 1.0, 3)
    centre = random.uniform(-0.7, 0.7, 3) * ends
    faces = random.choice(3, cut, replace=False)
    centre[faces] = ends[faces] * random.choice([-1.0, 1.0], cut)
    if cut > 1:  # a quarter is one by symmetry only
        turn, radii = np.eye(3), random.permutation(radii)
    matrix = turn @ np.diag(radii**-2.0) @ turn.T
    names = [(name, None) for name in "xyz"]
    linear = tuple(zip(names, (-2.0 * matrix @ centre).tolist(), strict=True))
    squares = tuple(
        (names[i], names[j], float(matrix[i, j]) * (1.0 if i == j else 2.0)) for i in range(3) for j in range(i, 3)
    )
    inside = Polynomial(linear, squares, (Range(-INF, 1.0 - float(centre @ matrix @ centre)),), "ellipsoid")
    models = {name: Uniform([-end], [end]) for name, end in zip("xyz", ends, strict=True)}
    group = group_of((inside,), dict.fromkeys("xyz", Uniform))
    found, _ = group.prepare(RowValues(models, {}, 1)).exact()
    assert group.method == "nested"
    wanted = 4.0 / 3.0 * np.pi * radii.prod() / 2.0**cut / (2.0 * ends).prod()
    assert found[0] == pytest.approx(wanted, abs=1e-10)
