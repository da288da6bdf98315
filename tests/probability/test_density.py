"""Densities of differences at 0: golden values, quadrature in many digits, and what must hold whatever the values."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import goldens
import oracle
from engine import model_of
from haply.errors import HaplyError
from haply.models import (
    Asymmetric,
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    MixtureND,
    Samples,
    Sky,
    SkyEllipse,
    TruncatedGaussian,
    Uniform,
)
from haply.numerics.multivariate.sphere import ARCSECONDS
from haply.probability.density import PairDensity, no_density, peak_density

ATOMS = ("point", "discrete")
PAIRS = [(a, b) for a, b in product(oracle.KINDS, oracle.KINDS) if not (a in ATOMS and b in ATOMS)]
IDS = [f"{a}-{b}" for a, b in PAIRS]


def row_by_row(a, b, logs=False):
    """The density of each row of one model with the same row of another."""
    pairs, rows = PairDensity(a, b), np.arange(max(len(a), len(b)))
    left, right = (rows if len(model) == len(rows) else np.zeros_like(rows) for model in (a, b))
    return pairs.log_density(left, right) if logs else pairs.evaluate(left, right)


# -- the referee: quadrature in 30 digits -----------------------------------------------------------------------------


def pieces(value):
    """The parts of a value with their weights: ``(weight, low, high, mean, sd)``; a uniform has no mean."""

    def part(one):
        if isinstance(one, oracle.Point):
            return mpf(one.v), mpf(one.v), None, None
        if isinstance(one, oracle.Uniform):
            return mpf(one.lo), mpf(one.hi), None, None
        if isinstance(one, oracle.Normal):
            if one.sd == 0:
                return mpf(one.mean), mpf(one.mean), None, None
            return -mp.inf, mp.inf, mpf(one.mean), mpf(one.sd)
        if one.sd == 0 or one.lo == one.hi:
            at = min(max(one.mean, one.lo), one.hi)
            return mpf(at), mpf(at), None, None
        return mpf(one.lo), mpf(one.hi), mpf(one.mean), mpf(one.sd)

    if isinstance(value, oracle.NormalMixture):
        parts = [oracle.Normal(m, s) for m, s in zip(value.means, value.sds, strict=True)]
        weights = value.weights
    elif isinstance(value, oracle.Hist):
        parts, weights = [oracle.Uniform(u, v) for u, v in pairwise(value.edges)], value.probs
    elif isinstance(value, oracle.Discrete):
        parts, weights = [oracle.Point(v) for v in value.points], value.probs or [1.0] * len(value.points)
    else:
        parts, weights = [value], [1.0]
    total = mp.fsum(mpf(w) for w in weights)
    return [(mpf(w) / total, *part(one)) for w, one in zip(weights, parts, strict=True) if w > 0]


def log_height(low, high, mean, sd):
    """The logarithm of what a density is divided by: a width, or the mass of a cut normal and its constant."""
    if mean is None:
        return mp.log(high - low)
    u, v = (low - mean) / sd, (high - mean) / sd
    mass = mp.ncdf(-u) - mp.ncdf(-v) if u > 0 else mp.ncdf(v) - mp.ncdf(u)
    return mp.log(mass) + mp.log(sd * mp.sqrt(2 * mp.pi))


def log_of_pieces(a, b):
    """The logarithm of the integral of the product of two densities, at least one of which is none of an atom."""
    (a_low, a_high, *a_shape), (b_low, b_high, *b_shape) = a, b
    low, high = max(a_low, b_low), min(a_high, b_high)
    normals = [(mean, sd) for mean, sd in (a_shape, b_shape) if mean is not None]

    def exponent(x):
        return -mp.fsum((x - mean) ** 2 / (2 * sd**2) for mean, sd in normals)

    if a_low == a_high or b_low == b_high:
        if low > high:
            return -mp.inf
        return exponent(low) - log_height(*(b if a_low == a_high else a))
    if low >= high:
        return -mp.inf
    scale = log_height(*a) + log_height(*b)
    if not normals:
        return mp.log(high - low) - scale
    precision = mp.fsum(1 / sd**2 for _, sd in normals)
    top = min(max(mp.fsum(mean / sd**2 for mean, sd in normals) / precision, low), high)
    slope = abs(mp.fsum((top - mean) / sd**2 for mean, sd in normals))
    step = min(1 / mp.sqrt(precision), 1 / slope if slope else mp.inf)
    # in units of the step: the quadrature takes what is small for converged
    least, most, peak = (low - top) / step, (high - top) / step, exponent(top)
    ladder = sorted({min(max(sign * mpf(k), least), most) for k in (0, 1, 2, 4, 7, 11, 17, 30, 70) for sign in (-1, 1)})
    area = step * mp.fsum(mp.quad(lambda u: mp.exp(exponent(top + step * u) - peak), ends) for ends in pairwise(ladder))
    return peak + mp.log(area) - scale


def log_density(a, b):
    """The referee's logarithm of the density at 0 of the difference of two values."""
    with mp.workdps(30):
        terms = [
            mp.log(v) + mp.log(w) + log_of_pieces(one, other)
            for (v, *one), (w, *other) in product(pieces(a), pieces(b))
        ]
        top = max(terms)
        return float(top if top == -mp.inf else top + mp.log(mp.fsum(mp.exp(term - top) for term in terms)))


def assert_log_density(a, b):
    """Compare with the referee: an exponent of ``e`` is known to some units in its last place."""
    wanted, found = log_density(a, b), row_by_row(model_of([a]), model_of([b]), logs=True)[0]
    if wanted == -math.inf:
        assert found == -math.inf
    else:
        assert abs(found - wanted) <= 2e-14 + 4e-15 * abs(wanted), (a, b, found, wanted)
    value = row_by_row(model_of([a]), model_of([b]))[0]
    with np.errstate(over="ignore", under="ignore"):
        assert value == pytest.approx(np.exp(found), rel=1e-12 + 1e-15 * abs(found), abs=1e-306)


# -- golden values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "a", "b", "wanted"),
    [
        ("D4 normals", goldens.NORMAL_A, goldens.NORMAL_B, 0.174007393477258597),
        ("D4 uniforms", goldens.U05, goldens.U313, 0.04),
        ("D4 uniform and normal", goldens.U04, goldens.N32, 0.156163815001288759),
        ("D5 histograms", goldens.HIST_A, goldens.HIST_B, 0.275),
        ("D5 cut normals", goldens.TRUNCATED_A, goldens.TRUNCATED_B, 0.18010551688429933),
        ("D5 mixtures", goldens.MIXTURE_A, goldens.MIXTURE_B, 0.107460319248821339),
    ],
)
def test_golden_values_on_a_line(name, a, b, wanted):
    for one, other in ((a, b), (b, a)):
        found = row_by_row(model_of([one]), model_of([other]), logs=False)[0]
        assert found == pytest.approx(wanted, rel=5e-16, abs=0.0), name


D2_LEFT = GaussianND([[0.0, 0.0]], [[[0.25, 0.1], [0.1, 0.16]]])
D2_RIGHT = GaussianND([[0.3, 0.2], [-0.8, 0.5], [1.5, 1.0]], [[[0.04, 0.0], [0.0, 0.09]]] * 3)


def test_golden_positions():
    found = row_by_row(D2_LEFT, D2_RIGHT)
    assert found == pytest.approx([0.533453855819987821, 0.0522569331387396788, 0.00766123021771944722], rel=2e-15)
    weight = found / 0.05 * 0.6 / 0.4
    p_match = weight / (1 + weight.sum())
    assert p_match == pytest.approx([0.85120360578325013, 0.08338357559811038, 0.0122246127100053563], rel=2e-15)
    assert weight.sum() / (1 + weight.sum()) == pytest.approx(0.946811794091365866, rel=1e-15)
    weight *= [9.0, 1 / 9, 1 / 9]  # D3: a class that agrees for the first, m = .9, u = .1
    assert weight[0] / (1 + weight.sum()) == pytest.approx(0.991739251714682069, rel=1e-15)


def test_golden_bayes_factor_on_the_sky():
    one, other = Sky(0.0, 0.0, 0.5, 0.5), Sky(0.7 / 3600, 0.0, 0.4, 0.4)
    whole_sky = 4 * math.pi * ARCSECONDS**2
    assert math.log10(whole_sky * row_by_row(one, other)[0]) == pytest.approx(11.05757897098912, rel=1e-15)


LEFT = np.array([(0, 0, 0.5), (100, 0, 1), (200, 50, 0.8), (300, -40, 2)])
RIGHT = np.array(
    [(0.6, 0.3, 0.4), (-1.5, 2, 0.3), (101, -0.5, 0.2), (98, 3, 0.5), (203, 52, 0.6), (150, 20, 0.3), (306, -40, 1)]
)


def catalogue(table):
    x, y, error = table.T
    return Sky(150 + x / 3600 / math.cos(math.radians(2)), 2 + y / 3600, error, error)


@pytest.mark.parametrize(
    ("odds", "golden", "referee"),
    [
        (1.0, (0.9997248502514362, 0.9992709533314775, 0.7949405571088262, 0.9337270859625741), None),
        (0.7, (0.9996069752766177, 0.9989588300713114, 0.7307227302621909, 0.9079391822303612), None),
        (
            7 / 3,
            (0.9998820601356875, 0.9996874212080464, 0.9004527511037778, 0.9704793692858759),
            (0.9998820601356765, 0.99968742120805794, 0.90045275111140936, 0.97047936928466406),
        ),
    ],
)
def test_golden_catalogues(odds, golden, referee):
    """D1: NWAY's p_any, and ours. The goldens carry the rounding of NWAY's separations, some 1e-11.

    ``referee`` is the same formula in 40 digits, of the coordinates as doubles.
    """
    rows, columns = np.divmod(np.arange(28), 7)
    density = PairDensity(catalogue(LEFT), catalogue(RIGHT)).evaluate(rows, columns)
    weight = (odds * density / (8 / 129600)).reshape(4, 7).sum(axis=1)
    assert weight / (1 + weight) == pytest.approx(golden, abs=2e-11)
    if referee is not None:
        assert weight / (1 + weight) == pytest.approx(referee, rel=4e-16, abs=0.0)


# -- a line -----------------------------------------------------------------------------------------------------------


@pytest.mark.long(keep=12)
@pytest.mark.parametrize(("left", "right"), PAIRS, ids=IDS)
def test_against_quadrature(left, right):
    rng = np.random.default_rng([oracle.KINDS.index(left), oracle.KINDS.index(right), 11])
    for _ in range(1 if {left, right} & {"mixture", "hist"} else 3):
        a, b = (oracle.random_value(rng, kind, center_range=(-2.0, 2.0)) for kind in (left, right))
        assert_log_density(a, b)


def touching(a, b):
    """Whether an atom of one value is at an edge of the other: there a density has two values, and atoms meet atoms."""
    found = [
        {end for _, low, high, mean, _ in pieces(one) if mean is None for end in (low, high)} for one in (a, b)
    ]  # fmt: skip
    return bool(found[0] & found[1])


@pytest.mark.long(keep=10)
@pytest.mark.parametrize(("left", "right"), PAIRS, ids=IDS)
def test_nasty_values_against_quadrature(left, right):
    """Tiny widths, outliers, atoms in disguise, buckets of probability 0, normals cut far from their means."""
    rng = np.random.default_rng([oracle.KINDS.index(left), oracle.KINDS.index(right), 12])
    done = 0
    while done < 3:
        a = oracle.random_value(rng, left, scale=float(10.0 ** rng.integers(-3, 4)), nasty=True)
        b = oracle.random_value(rng, right, scale=float(10.0 ** rng.integers(-3, 4)), nasty=bool(rng.integers(2)))
        if touching(a, b):
            continue
        done += 1
        assert_log_density(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (oracle.Normal(0.0, 0.6), oracle.Normal(40.0, 0.8)),
        (oracle.Uniform(40.0, 41.0), oracle.Normal(0.0, 1.0)),
        (oracle.Uniform(-41.0, -40.0), oracle.Normal(0.0, 1.0)),
        (oracle.Point(-40.0), oracle.Normal(0.0, 1.0)),
        (oracle.Truncated(0.0, 1.0, 40.0, 42.0), oracle.Truncated(100.0, 1.0, 40.5, 41.0)),
        (oracle.Truncated(0.0, 1.0, 40.0, 42.0), oracle.Normal(80.0, 1.0)),
        (oracle.Truncated(0.0, 1.0, -5.0, 1.0), oracle.Truncated(40.0, 1.0, 0.5, 60.0)),
        (oracle.Truncated(0.0, 1.0, 1e3, 1e3 + 1e-4), oracle.Uniform(1e3 + 2e-5, 1e3 + 5e-5)),
        (oracle.Truncated(0.0, 1.0, 1e3, 1e3 + 1e-4), oracle.Point(1e3 + 5e-5)),
        (oracle.Truncated(500.0, 1e-12, 499.0, 501.0), oracle.Truncated(500.0 + 2e-12, 1.0, 499.5, 500.5)),
        (oracle.Truncated(500.0, 1e-12, 500.0, 501.0), oracle.Normal(500.0 + 3e-12, 2e-12)),
        (oracle.Normal(500.0, 1e-12), oracle.Uniform(500.0 + 1e-12, 500.0 + 3e-12)),
        (oracle.Uniform(500.0, 500.0 + 1e-12), oracle.Normal(0.0, 1e3)),
        (oracle.Normal(0.0, 1e-150), oracle.Normal(1e-150, 3e-150)),
        (oracle.Normal(0.0, 1e150), oracle.Normal(3e150, 1e149)),
        (oracle.Normal(0.0, 1e-150), oracle.Normal(1.0, 1e150)),
        (oracle.Truncated(0.0, 1e-150, 1e-151, 1e-149), oracle.Truncated(1e-150, 2e-150, -1e-150, 4e-150)),
        (oracle.Truncated(0.0, 1e150, 1e149, 1e151), oracle.Uniform(-1e150, 2e150)),
        (oracle.Uniform(0.0, 1e-150), oracle.Uniform(5e-151, 1e150)),
        (oracle.Hist((0.0, 1e-150, 1e150), (0.5, 0.5)), oracle.NormalMixture((0.5, 0.5), (0, 0), (1e-150, 1e150))),
    ],
    ids=str,
)
def test_extremes_against_quadrature(a, b):
    assert_log_density(a, b)
    assert_log_density(b, a)


def test_densities_below_the_least_double_have_logarithms():
    near, far = Gaussian(0.0, 1.0), Gaussian([60.0, 100.0], 1.0)
    assert row_by_row(near, far)[1] == 0.0
    wanted = -(np.array([60.0, 100.0]) ** 2) / 4 - 0.5 * math.log(4 * math.pi)
    assert row_by_row(near, far, logs=True) == pytest.approx(wanted, rel=1e-15)
    assert row_by_row(Uniform(0, 1), Uniform(2, 3), logs=True)[0] == -math.inf


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(PAIRS), st.integers(0, 2**32 - 1), st.integers(-300, 300))
def test_symmetry_scale_and_peaks(kinds, seed, power):
    """Sides may be swapped, a change of unit by ``2**k`` divides by it, and no density is above either side's peak."""
    rng = np.random.default_rng(seed)
    a, b = (model_of([oracle.random_value(rng, kind, nasty=bool(rng.integers(2)))]) for kind in kinds)
    found, log_found = row_by_row(a, b)[0], row_by_row(a, b, logs=True)[0]
    if found == math.inf:
        assert row_by_row(b, a)[0] == log_found == math.inf
        return
    slack = 1e-13 + 1e-14 * (abs(log_found) if log_found > -math.inf else 0.0)
    assert row_by_row(b, a, logs=True)[0] == pytest.approx(log_found, abs=slack)
    scaled = row_by_row(a.scaled(power), b.scaled(power), logs=True)[0]
    assert scaled == pytest.approx(log_found + power * math.log(2), abs=slack + 1e-12)
    assert found <= min(peak_density(a)[0], peak_density(b)[0])


def test_points_on_edges():
    """At an end the density inside counts, on an edge between two buckets the larger one: never above the peak."""
    steps = Histogram([[0.0, 1.0, 3.0, 4.0]] * 6, [[0.25, 0.75, 0.0]] * 6)
    at = [0.0, 0.5, 1.0, 2.0, 3.0, 3.5]
    wanted = [0.25, 0.25, 0.375, 0.375, 0.375, 0.0]
    for point in (Certain(at), Uniform(at, at), Gaussian(at, 0.0), TruncatedGaussian(at, 0.0, -9.0, 9.0)):
        assert row_by_row(steps, point).tolist() == row_by_row(point, steps).tolist() == wanted
    assert row_by_row(Samples([[1.0, 2.0]], [[0.5, 0.5]]), steps.take(np.arange(1)))[0] == 0.375
    assert row_by_row(Uniform(0, 2), Certain([0, 1, 2, 3])).tolist() == [0.5, 0.5, 0.5, 0.0]
    cut = TruncatedGaussian(0.0, 1.0, -1.0, 1.0)
    assert row_by_row(cut, Certain([-1.0, 1.0]))[0] == row_by_row(cut, Certain([-1.0, 1.0]))[1] > 0.0


def test_samples_beside_what_has_a_density():
    points, probs = [-1.0, 0.5, 2.0], [0.2, 0.5, 0.3]
    found = row_by_row(Samples([points], [probs]), Gaussian(0.3, 0.8))[0]
    densities = np.exp(-0.5 * ((np.array(points) - 0.3) / 0.8) ** 2) / (0.8 * math.sqrt(2 * math.pi))
    assert found == pytest.approx(np.dot(probs, densities), rel=1e-15)


def test_split_normals():
    """Two halves of normals against a uniform that covers the whole, and against the plain normal."""
    model = Asymmetric(1.0, 0.5, 2.0)
    assert row_by_row(model, Uniform(-100.0, 100.0))[0] == pytest.approx(1 / 200, rel=1e-14)
    x = np.linspace(-10.0, 20.0, 300_001)
    density = np.exp(-0.5 * ((x - 1.0) / np.where(x < 1.0, 0.5, 2.0)) ** 2) * math.sqrt(2 / math.pi) / 2.5
    other = np.exp(-0.5 * (x - 2.0) ** 2) / math.sqrt(2 * math.pi)
    assert row_by_row(model, Gaussian(2.0, 1.0))[0] == pytest.approx(np.sum(density * other) * 1e-4, rel=1e-9)
    assert row_by_row(Asymmetric(0.0, 1.5, 1.5), Gaussian(2.0, 1.0))[0] == pytest.approx(
        row_by_row(Gaussian(0.0, 1.5), Gaussian(2.0, 1.0))[0], rel=1e-14
    )


def test_limits_of_narrow_windows():
    """``P(|X - Y| <= c) / 2c`` tends to the density, for every pair of kinds without atoms."""
    rng = np.random.default_rng(5)
    smooth = [kind for kind in oracle.KINDS if kind not in ATOMS]
    for left, right in product(smooth, smooth):
        a, b = (oracle.random_value(rng, kind, center_range=(-1.0, 1.0)) for kind in (left, right))
        window = Fraction(1, 10**5)
        wanted = float(oracle.probability_float(a, b, -float(window), float(window))) / (2 * float(window))
        assert row_by_row(model_of([a]), model_of([b]))[0] == pytest.approx(wanted, rel=1e-4, abs=1e-6)


# -- what has a density -----------------------------------------------------------------------------------------------


def test_which_kinds_have_densities():
    line = [Certain, Samples, Uniform, Gaussian, TruncatedGaussian, Mixture, Histogram, Asymmetric]
    for left, right in product(line, line):
        atoms = left in (Certain, Samples) and right in (Certain, Samples)
        assert (no_density(left, right) is not None) == atoms
    for kind in (GaussianND, MixtureND):
        for other in (GaussianND, MixtureND, Samples, Certain, Gaussian, Mixture):
            assert no_density(kind, other) is no_density(other, kind) is None
        assert "beside uniform" in str(no_density(kind, Uniform))
        assert "on the sky" in str(no_density(Sky, kind))
    assert no_density(Sky, SkyEllipse) is None
    assert no_density(Samples, Samples) == "neither side has a density: both are certain values or samples"


def test_without_a_density():
    pairs = PairDensity(Samples([[0.0, 1.0]]), Certain(1.0))
    assert not pairs.exists
    with pytest.raises(HaplyError, match="within="):
        pairs.evaluate(np.zeros(1, np.int64), np.zeros(1, np.int64))
    with pytest.raises(HaplyError, match="dim = 2"):
        PairDensity(D2_LEFT, GaussianND([[0.0]], [[1.0]]))
    with pytest.raises(HaplyError, match="dim = 1"):
        PairDensity(Uniform(0, 1), Samples([[[0.0, 1.0]]]))


def test_two_atoms_have_none():
    """0, or infinite where they are equal; also as parts of mixtures."""
    assert row_by_row(Gaussian(1.0, 0.0), Gaussian([1.0, 2.0], 0.0)).tolist() == [math.inf, 0.0]
    assert row_by_row(Uniform(1, 1), Gaussian([1.0, 2.0], 0.0), logs=True).tolist() == [math.inf, -math.inf]
    mixture = Mixture([[0.5, 0.5]], [[0.0, 1.0]], [[1.0, 0.0]])
    assert row_by_row(mixture, Gaussian(1.0, 0.0))[0] == math.inf
    assert row_by_row(mixture, Gaussian(0.0, 0.0))[0] == pytest.approx(0.5 / math.sqrt(2 * math.pi), rel=1e-15)


def test_no_pairs_and_no_rows():
    nothing = np.zeros(0, np.int64)
    for model in (Gaussian([], []), Gaussian(0.0, 1.0), Histogram([[0, 1]], [[1]]), D2_LEFT, Sky(0.0, 0.0, 1.0, 1.0)):
        assert len(PairDensity(model, model).evaluate(nothing, nothing)) == 0


# -- positions --------------------------------------------------------------------------------------------------------


def random_covariances(rng, count, dim):
    root = rng.normal(size=(count, dim, dim))
    return root @ root.swapaxes(1, 2) + 0.01 * np.eye(dim)


def normal_density(apart, cov):
    """In 50 digits."""
    with mp.workdps(50):
        matrix, vector = mp.matrix(cov.tolist()), mp.matrix(apart.tolist())
        square = (vector.T * mp.lu_solve(matrix, vector))[0]
        return mp.exp(-square / 2) / mp.sqrt((2 * mp.pi) ** len(apart) * mp.det(matrix))


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 6])
def test_positions_against_determinants(dim):
    rng = np.random.default_rng(dim)
    means, covs = rng.normal(size=(2, 8, dim)), [random_covariances(rng, 8, dim) for _ in range(2)]
    a, b = GaussianND(means[0], covs[0]), GaussianND(means[1], covs[1])
    wanted = [float(normal_density(p - q, v + w)) for p, q, v, w in zip(*means, *covs, strict=True)]
    assert row_by_row(a, b) == pytest.approx(wanted, rel=1e-12)
    assert row_by_row(b, a) == pytest.approx(wanted, rel=1e-12)
    points = Samples(means[1][:, None, :], dim=dim)
    wanted = [float(normal_density(p - q, v)) for p, q, v in zip(*means, covs[0], strict=True)]
    assert row_by_row(a, points) == pytest.approx(wanted, rel=1e-11)
    assert row_by_row(points, a) == pytest.approx(wanted, rel=1e-11)
    peaks = [float(normal_density(np.zeros(dim), v)) for v in covs[0]]
    assert peak_density(a) == pytest.approx(peaks, rel=1e-11)
    assert (row_by_row(a, b) <= np.minimum(peak_density(a), peak_density(b))).all()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_mixtures_are_sums_of_their_parts(dim):
    rng = np.random.default_rng(10 + dim)
    weights, others = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2))
    means, covs = rng.normal(size=(3, dim)), random_covariances(rng, 3, dim)
    other_means, other_covs = rng.normal(size=(2, dim)), random_covariances(rng, 2, dim)
    a = MixtureND([weights], [means.ravel()], [covs.ravel()])
    b = MixtureND([others], [other_means.ravel()], [other_covs.ravel()])
    wanted = sum(
        v * w * float(normal_density(p - q, s + t))
        for (v, p, s), (w, q, t) in product(
            zip(weights, means, covs, strict=True), zip(others, other_means, other_covs, strict=True)
        )
    )
    assert row_by_row(a, b)[0] == pytest.approx(wanted, rel=1e-12)
    assert row_by_row(a, b, logs=True)[0] == pytest.approx(math.log(wanted), abs=1e-12)
    assert wanted <= min(peak_density(a)[0], peak_density(b)[0])
    if dim == 1:
        line = Mixture([others], [other_means.ravel()], [np.sqrt(other_covs.ravel())])
        assert row_by_row(a, line)[0] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_positions_at_every_scale(dim):
    rng = np.random.default_rng(20 + dim)
    mean, cov, powers = rng.normal(size=dim), random_covariances(rng, 1, dim)[0], np.array([0, -498, -60, 60, 498])
    a = GaussianND(np.outer(2.0**powers, mean), 4.0 ** powers[:, None, None] * cov)
    b = GaussianND(np.zeros((5, dim)), 4.0 ** powers[:, None, None] * np.eye(dim))
    found = row_by_row(a, b, logs=True)
    assert found == pytest.approx(found[0] - dim * powers * math.log(2), rel=1e-13)


def test_positions_forty_sds_apart():
    apart = GaussianND([[40.0, 0.0], [0.0, 60.0]], [np.eye(2).ravel()] * 2)
    point = Samples([[[0.0, 0.0]]])
    logs = row_by_row(apart, point, logs=True)
    assert logs == pytest.approx([-800 - math.log(2 * math.pi), -1800 - math.log(2 * math.pi)], rel=1e-15)
    assert row_by_row(apart, point)[1] == 0.0


def test_positions_without_spread():
    """Infinite on the line that a position is confined to, 0 beside it; a spread across it gives a density."""
    line = GaussianND([[0.0, 0.0]], [[1.0, 1.0, 1.0, 1.0]])
    places = GaussianND([[2.0, 2.0], [2.0, 2.5]], [[0.0] * 4] * 2)
    assert row_by_row(line, places).tolist() == [math.inf, 0.0]
    assert peak_density(line).tolist() == [math.inf]
    assert peak_density(Samples([[[0.0, 1.0]]])).tolist() == [math.inf]
    across = GaussianND([[0.0, 1.0]], [[1.0, -1.0, -1.0, 1.0]])
    wanted = float(normal_density(np.array([0.0, 1.0]), np.array([[2.0, 0.0], [0.0, 2.0]])))
    assert row_by_row(line, across)[0] == pytest.approx(wanted, rel=1e-15)
    flat = GaussianND([[0.0, 0.0, 0.0]], [[1, 0, 0, 0, 0, 0, 0, 0, 2]])
    beside = GaussianND([[1.0, 0.0, 1.0], [1.0, 0.1, 1.0]], [np.zeros(9)] * 2)
    assert row_by_row(flat, beside).tolist() == [math.inf, 0.0]


# -- the sky ----------------------------------------------------------------------------------------------------------


def test_error_ellipses_on_the_sky():
    """Axes 2 and .5 plus a circle of .5: Bayes factors against the whole sky, and the flat formula."""
    ellipse = SkyEllipse(0.0, 0.0, 2.0, 0.5, 90.0)  # the long axis to the east
    x, y = np.array([1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])
    circle = Sky(x / 3600, y / 3600, 0.5, 0.5)
    found = row_by_row(ellipse, circle)
    wanted = [float(normal_density(np.array(at), np.diag([4.25, 0.5]))) for at in zip(x, y, strict=True)]
    assert found == pytest.approx(wanted, rel=1e-9)
    assert 4 * math.pi * ARCSECONDS**2 * found == pytest.approx([5.189e10, 2.147e10, 1.909e10], rel=2e-4)
    correlated = Sky(0.0, 0.0, 1.0, 0.5, 0.6)
    wanted = [float(normal_density(np.array(at), np.array([[1.25, 0.3], [0.3, 0.5]]))) for at in zip(x, y, strict=True)]
    assert row_by_row(correlated, circle) == pytest.approx(wanted, rel=1e-9)


def frame(ra, dec):
    """The directions from the centre to a place, and there to the east and north; angles in degrees."""
    ra, dec = math.radians(ra), math.radians(dec)
    place = np.array([math.cos(dec) * math.cos(ra), math.cos(dec) * math.sin(ra), math.sin(dec)])
    east = np.array([-math.sin(ra), math.cos(ra), 0.0])
    return place, east, np.cross(place, east)


def moved(rotation, ra, dec, angle):
    """A position and the angle of an ellipse's axis from north to east, after a rotation of the sphere."""
    place, east, north = frame(ra, dec)
    angle = math.radians(angle)
    place, axis = rotation @ place, rotation @ (math.cos(angle) * north + math.sin(angle) * east)
    ra, dec = (
        math.degrees(math.atan2(place[1], place[0])),
        math.degrees(math.atan2(place[2], math.hypot(place[0], place[1]))),
    )
    _, east, north = frame(ra, dec)
    return ra, dec, math.degrees(math.atan2(axis @ east, axis @ north))


def rotation_onto(place, aim, rng):
    """A random rotation that takes one direction to another."""
    first, second = (np.column_stack([v, *rng.normal(size=(2, 3))]) for v in (place, aim))
    first, second = (np.linalg.qr(one)[0] * np.sign(np.linalg.qr(one)[1][0, 0]) for one in (first, second))
    if np.linalg.det(first) * np.linalg.det(second) < 0:
        second[:, 2] *= -1
    return second @ first.T


@pytest.mark.parametrize("seed", range(12))
def test_ellipses_do_not_depend_on_where_the_poles_are(seed):
    """Turned over the sphere, also onto a pole and across the beginning of right ascension."""
    rng = np.random.default_rng(seed)
    one, other = (10.0, 20.0, 30.0), (10.2, 20.1, -50.0)  # some 13 arcminutes apart
    aim = (np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0]), rng.normal(size=3))[seed % 3]
    rotation = rotation_onto(frame(*one[:2] if seed % 2 else (10.1, 20.05))[0], aim / np.linalg.norm(aim), rng)
    sizes = ((400.0, 90.0), (300.0, 200.0))
    before = [SkyEllipse(ra, dec, *size, angle) for (ra, dec, angle), size in zip((one, other), sizes, strict=True)]
    after = [
        SkyEllipse(ra, dec, *size, angle)
        for (ra, dec, angle), size in zip((moved(rotation, *one), moved(rotation, *other)), sizes, strict=True)
    ]
    wanted = row_by_row(*before)[0]
    assert row_by_row(*after)[0] == pytest.approx(wanted, rel=1e-9)
    assert row_by_row(*reversed(after))[0] == pytest.approx(wanted, rel=1e-9)
    assert wanted <= min(peak_density(model)[0] for model in before)


def test_the_beginning_of_right_ascension_and_the_poles():
    a = Sky([359.9999, 0.0, 720.00005], [10.0, 90.0, 10.0], 1.0, 1.0)
    b = Sky([0.0001, 180.0, 0.0], [10.0, 90.0, 10.0], 1.0, 1.0)
    step = 3600 * math.cos(math.radians(10.0))
    apart = np.array([0.0002 * step, 0.0, 0.00005 * step])
    assert row_by_row(a, b) == pytest.approx(np.exp(-(apart**2) / 4) / (4 * math.pi), rel=1e-9)


@pytest.mark.parametrize("dec", [0.0, 60.0, -89.7])
def test_circles_near_and_far_on_the_sky(dec):
    """Equal errors have no direction: only the arc matters, on both sides of where short series end."""
    rng = np.random.default_rng(3)
    size = np.degrees(1e-3) * np.concatenate([rng.uniform(0.0, 3.0, 40), 10.0 ** rng.uniform(-9, 0, 40)])
    side = rng.uniform(0.0, 2.0 * np.pi, len(size))
    ra, height = 30.0 + size * np.sin(side) / np.cos(np.radians(dec)), dec + size * np.cos(side)
    found = row_by_row(Sky(30.0, dec, 150.0, 150.0), Sky(ra, height, 200.0, 200.0), logs=True)
    with mp.workdps(40):
        for got, a, d in zip(found, ra.tolist(), height.tolist(), strict=True):
            first, turn, second = (mp.radians(mpf(angle)) for angle in (dec, a - 30.0, d))
            chord = mp.sin((second - first) / 2) ** 2 + mp.cos(first) * mp.cos(second) * mp.sin(turn / 2) ** 2
            arc = 2 * mp.asin(mp.sqrt(chord)) * 180 * 3600 / mp.pi
            wanted = -(arc**2) / (2 * mpf(62500)) - mp.log(2 * mp.pi * 62500)
            assert got == pytest.approx(float(wanted), rel=1e-13)


def test_plain_positions_on_the_sky():
    """A catalogue without errors has the density of the other at its places."""
    found = row_by_row(Sky(0.0, 0.0, 0.5, 0.5), Sky([0.0, 0.5 / 3600], 0.0, 0.0, 0.0))
    assert found == pytest.approx(np.exp([0.0, -0.5]) / (2 * math.pi * 0.25), rel=1e-9)
    assert row_by_row(Sky(0.0, 0.0, 0.0, 0.0), Sky([0.0, 1.0], 0.0, 0.0, 0.0)).tolist() == [math.inf, 0.0]
    assert peak_density(Sky(0.0, 0.0, [0.5, 0.0], 0.5)) == pytest.approx([1 / (2 * math.pi * 0.25), math.inf])


def test_the_flat_formula_beside_the_sphere():
    """Fisher's distribution on the sphere (Budavari and Szalay 2008), two errors of each size apart.

    The flat form is low by ``psi**2/8 + psi**4/(192 error**2)``: 1.4e-11 at one arcsecond, 5e-8 at one arcminute.
    """
    for error, missing in ((1.0, 1.371e-11), (60.0, 4.936e-8)):
        with mp.workdps(60):
            width = mpf(error) / (180 * 3600) * mp.pi
            weight = 1 / width**2
            both = 2 * weight * mp.cos(width)
            exact = weight * weight / mp.sinh(weight) ** 2 * mp.sinh(both) / both
        other = Sky(2 * error / 3600, 0, error, error)
        found = 4 * math.pi * ARCSECONDS**2 * row_by_row(Sky(0, 0, error, error), other)[0]
        assert float(1 - found / exact) == pytest.approx(missing, rel=1e-3)
