"""How many rows match: golden values, sums over all outcomes, and integrals with many nodes."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import oracle_answers as referee
from amounts import fewer
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
    TruncatedGaussian,
    Uniform,
)
from haply.probability import Region, region_probability, within_distance
from haply.probability.count_positions import position_counts, position_misfit
from haply.probability.counts import match_counts
from laws_kit import KINDS, count_reference, law_of_row, model_of_laws, random_law
from oracle import Normal

NEAR = Region(-0.5, 0.5)
REGIONS = [
    NEAR,
    Region(-0.25, 1.5, low_closed=False),
    Region(0.0, math.inf, low_closed=False),
    Region(-math.inf, 0.25),
    Region(-0.5, 0.5, high_closed=False),
    Region(-0.5, 0.5, outside=True),
    Region(-0.5, 0.5, low_closed=False, high_closed=False, outside=True),
]


def all_of(left, right, region, **options):
    """Count with all right rows as candidates of all left rows."""
    start = np.arange(len(left) + 1) * len(right)
    return match_counts(left, right, region, start, np.tile(np.arange(len(right)), len(left)), **options)


def agrees(found, row, shares, probability, error=1e-13):
    """Whether a row has this distribution and these probabilities of its candidates, and what follows from them."""
    numbers = np.arange(len(shares))
    mean = shares @ numbers
    mine = np.zeros(len(shares))
    mine[: found.distribution.lengths[row]] = found.distribution.row(row)
    count = len(probability)
    assert mine == pytest.approx(shares, abs=error)
    assert found.p_any[row] == pytest.approx(1.0 - shares[0], abs=error)
    assert found.expected[row] == pytest.approx(mean, abs=count * error)
    assert found.variance[row] == pytest.approx(shares @ (numbers - mean) ** 2, abs=count**2 * error)
    assert found.probability[row * count : (row + 1) * count] == pytest.approx(probability, abs=error)


# -- golden values ----------------------------------------------------------------------------------------------------


def test_histograms_are_rational():
    left = Histogram([[0, 1, 3]], [[0.25, 0.75]])
    right = Histogram([[0.5, 2, 4], [2, 3], [-1, 0, 1.5]], [[0.6, 0.4], [1], [0.5, 0.5]])
    found = all_of(left, right, NEAR, distribution=True)
    agrees(
        found, 0, np.array([8459, 11807, 2753, 21]) / 23040, np.array([11 / 40, 21 / 64, 29 / 192]), error=1e-14
    )  # fmt: skip
    assert found.p_any[0] == pytest.approx(14581 / 23040, abs=1e-14)
    assert found.expected[0] == pytest.approx(181 / 240, abs=1e-14)
    assert found.variance[0] == pytest.approx(2751 / 6400, abs=1e-14)
    assert 1.0 - np.prod(1.0 - found.probability) == pytest.approx(0.586464, abs=1e-6)


def test_gaussians_to_all_digits():
    found = all_of(Gaussian(0, 1), Gaussian([0.5, -0.8, 1.5], [0.5, 0.3, 1]), NEAR)
    assert found.probability == pytest.approx(
        [0.314453315238651213, 0.280389112842363495, 0.161100457568334166], abs=1e-15
    )
    assert found.p_any[0] == pytest.approx(0.638593740321674938, abs=1e-15)
    assert found.expected[0] == pytest.approx(0.755942885649348874, abs=2e-15)
    assert found.variance[0] == pytest.approx(0.426116792490438261, abs=2e-15)
    assert 1.0 - np.prod(1.0 - found.probability) == pytest.approx(0.586148324546922, abs=1e-14)


def test_samples_in_the_plane():
    left = Samples([[[0, 0], [1, 0], [0, 2]]])
    right = Samples([[0.5, 0, 3, 3], [0, 1, 1, 0, 5, 5]], dim=2)
    found, error = position_counts(left, right, 1.0, [0, 2], [0, 1], distribution=True)
    agrees(found, 0, np.array([7 / 18, 4 / 9, 1 / 6]), np.array([1 / 3, 4 / 9]), error=1e-15)
    assert found.variance[0] == pytest.approx(41 / 81, abs=1e-15)
    assert error.tolist() == [0.0]


def test_the_variance_of_all_pairs():
    left, right, region = Samples([[0, 1], [1, 2]]), Samples([[0, 3], [2, 4]]), Region(-1, 1)
    found = all_of(left, right, region)
    assert found.probability.tolist() == [1 / 2, 1 / 4, 1 / 2, 1 / 2]
    assert found.variance == pytest.approx([7 / 16, 1 / 2], abs=1e-15)
    mirrored = all_of(right, left, region)
    assert mirrored.variance == pytest.approx([1 / 2, 11 / 16], abs=1e-15)


def test_the_product_of_chances_is_no_bound():
    same = all_of(Uniform(0, 1), Certain([0.25] * 10), Region(-0.25, 0.25), distribution=True)
    agrees(same, 0, np.array([0.5, *[0.0] * 9, 0.5]), np.full(10, 0.5), error=1e-15)
    apart = all_of(Uniform(0, 1), Certain([0.25, 0.75]), Region(-0.25, 0.25))
    assert apart.p_any[0] == pytest.approx(1.0, abs=1e-15)


# -- against integrals and sums ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_any_kinds_are_those_of_many_nodes(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for case in range(fewer(28)):
        count = int(rng.integers(1, 8))
        kinds = [kind if rng.random() < 0.5 else str(rng.choice(KINDS)) for _ in range(count)]
        rights = [random_law(rng, one, 1.5, 0.25) for one in kinds]
        left, region = random_law(rng, kind, 1.0, 0.25), REGIONS[case % len(REGIONS)]
        found = all_of(model_of_laws([left]), model_of_laws(rights), region, distribution=True)
        agrees(found, 0, *count_reference(left, rights, region))


def models_of_many_kinds(rng, size):
    """Points are multiples of 1/8, so that differences are exact."""
    mean, sd = rng.normal(0.0, 1.0, size), rng.uniform(0.1, 1.5, size)
    edges = np.cumsum(np.column_stack([mean, rng.uniform(0.05, 1.0, (size, 4))]), axis=1)
    return [
        Certain(np.round(8 * mean) / 8),
        Uniform(mean, mean + np.where(sd < 0.3, 0.0, sd)),
        Gaussian(mean, np.where(sd < 0.2, 0.0, sd)),
        TruncatedGaussian(mean, sd, mean - 0.7 * sd, mean + 1.2 * sd),
        Mixture(rng.dirichlet([1, 1], size), np.column_stack([mean, -mean]), np.column_stack([sd, 0.3 * sd])),
        Histogram(edges, rng.dirichlet(np.ones(4), size)),
        Samples(np.round(rng.normal(0.0, 8.0, (size, 6))) / 8, rng.dirichlet(np.ones(6), size)),
        Asymmetric(mean, sd, 0.4 * sd),
    ]


@pytest.mark.parametrize("left_kind", range(8))
def test_models_are_those_of_many_nodes(left_kind):
    """Histograms and samples are walked along; other rows are not in order."""
    rng = np.random.default_rng(left_kind)
    left = models_of_many_kinds(rng, 3)[left_kind]
    for number, right in enumerate(models_of_many_kinds(rng, 5)):
        region = REGIONS[(number + left_kind) % len(REGIONS)]
        found = all_of(left, right, region, distribution=True)
        rights = [law_of_row(right, row) for row in range(5)]
        for row in range(3):
            agrees(found, row, *count_reference(law_of_row(left, row), rights, region))


def test_samples_are_sums_over_all_worlds():
    rng = np.random.default_rng(4)
    for case in range(60):
        count, region = int(rng.integers(1, 4)), REGIONS[case % len(REGIONS)]
        left = rng.integers(-4, 5, rng.integers(1, 5)) / 4
        rights = [rng.integers(-4, 5, rng.integers(1, 4)) / 4 for _ in range(count)]
        shares = np.zeros(count + 1)
        worlds = list(itertools.product(left, *rights))
        for x, *ys in worlds:
            shares[sum(region.contains(x - y) for y in ys)] += 1.0 / len(worlds)
        chances = [np.mean([region.contains(x - y) for x in left for y in right]) for right in rights]
        found = all_of(Samples([left]), Samples(rights), region, distribution=True)
        agrees(found, 0, shares, np.array(chances), error=2e-15)


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_sample_positions_are_sums_over_all_worlds(dim):
    rng = np.random.default_rng(dim)
    for case in range(12):
        count, within = int(rng.integers(1, 4)), [1.0, math.sqrt(2.0), 2.0][case % 3]
        left = rng.integers(-1, 2, (rng.integers(1, 4), dim)).astype(float)
        rights = [rng.integers(-1, 2, (rng.integers(1, 4), dim)).astype(float) for _ in range(count)]
        weights = [rng.dirichlet(np.ones(len(points))) if case % 2 else None for points in [left, *rights]]
        shares, chances = np.zeros(count + 1), np.zeros(count)
        for world in itertools.product(*(range(len(points)) for points in [left, *rights])):
            sizes = [len(points) for points in [left, *rights]]
            weight = np.prod([1 / n if w is None else w[k] for w, n, k in zip(weights, sizes, world, strict=True)])
            near = [np.linalg.norm(left[world[0]] - rights[j][world[j + 1]]) <= within for j in range(count)]
            shares[sum(near)] += weight
            chances += weight * np.array(near)
        given = (None, None) if case % 2 == 0 else ([weights[0]], weights[1:])
        one = Samples([left.ravel()], given[0], dim=dim)
        others = Samples([points.ravel() for points in rights], given[1], dim=dim)
        found, _ = position_counts(one, others, within, [0, count], np.arange(count), distribution=True)
        agrees(found, 0, shares, chances, error=1e-14)


def test_pairs_have_the_probability_of_a_join():
    rng = np.random.default_rng(9)
    for left, right in itertools.product(models_of_many_kinds(rng, 4), models_of_many_kinds(rng, 4)):
        for region in (NEAR, Region(-math.inf, 0.1), Region(-0.3, 0.4, outside=True)):
            found = match_counts(left, right, region, np.arange(5), np.arange(4))
            assert found.probability == pytest.approx(region_probability(left, right, region), abs=1e-14)
            assert found.p_any == pytest.approx(found.probability, abs=1e-14)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("width", [0.003, 0.6, 2.0, 7.3])
@pytest.mark.parametrize("far", [0.0, 2.0**31])
def test_rows_that_share_a_grid_are_those_of_their_own_nodes(width, far):
    """Without distributions normal rows share nodes; more candidates than are remembered, in any order."""
    rng = np.random.default_rng(17)
    count, spread = 700, 120.0
    mean, sd = np.round(rng.uniform(0.0, spread, (2, count)), 3), rng.uniform(0.05, 1.5, (2, count))
    mean = far + np.round(mean * 1024) / 1024
    left, right = Gaussian(mean[0], sd[0]), Gaussian(mean[1], sd[1])
    near = np.abs(mean[0][:, None] - mean[1]) < 3.0 + 0.5 * width
    start, rows = np.append(0, np.cumsum(near.sum(axis=1))), np.nonzero(near)[1]
    region = Region(-0.25 * width, 0.75 * width)
    found = match_counts(left, right, region, start, rows)
    wanted = match_counts(left, right, region, start, rows, distribution=True)
    assert found.p_any == pytest.approx(wanted.p_any, abs=2e-14)
    assert found.expected == pytest.approx(wanted.expected, abs=1e-13)
    assert found.variance == pytest.approx(wanted.variance, abs=2e-12)
    assert found.probability == pytest.approx(wanted.probability, abs=1e-14)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("tolerance", [0.05, 1e-3, 1e-6, 1e-9])
def test_candidates_that_are_left_out_change_no_number_by_more_than_the_tolerance(tolerance):
    rng = np.random.default_rng(23)
    sd = rng.uniform(0.1, 1.0, (2, 60))
    left, right = Gaussian(rng.uniform(0.0, 1.0, 60), sd[0]), Gaussian(rng.uniform(-9.0, 9.0, 60), sd[1])
    found = all_of(left, right, NEAR, tolerance=tolerance, singly=False)
    left_out = 0
    for i in range(0, 60, 60 // fewer(10)):
        x = Normal(left.values["mean"][i], left.values["sd"][i])
        ys = [Normal(*each) for each in zip(right.values["mean"], right.values["sd"], strict=True)]
        wanted = referee.count_distribution_float(x, ys, referee.within(0.5))
        changed = [
            abs(found.p_any[i] - float(wanted.p_any)), abs(found.expected[i] - float(wanted.mean)),
            abs(found.variance[i] - float(wanted.variance)) / (2 * 60),
        ]  # fmt: skip
        assert max(changed) <= tolerance
        left_out += changed[1] > 1e-12
    assert left_out


# -- extremes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [2.0**-1000, 1e-300, 1e-150, 1e-20, 1e20, 1e150, 1e300])
def test_counts_do_not_depend_on_the_unit(scale):
    rng = np.random.default_rng(2)
    laws = [random_law(rng, kind, 1.0, 0.25) for kind in KINDS for _ in range(2)]

    def scaled(law):
        return [(weight, kind, *(scale * number for number in numbers)) for weight, kind, *numbers in law]

    region = Region(-0.5, 0.75)
    there = Region(scale * -0.5, scale * 0.75)
    here = all_of(model_of_laws(laws), model_of_laws(laws), region)
    found = all_of(model_of_laws([scaled(law) for law in laws]), model_of_laws([scaled(law) for law in laws]), there)
    # points that are on an end of the region are not, once they are multiplied by what is no power of two
    clear = np.array([all(part[1] != "point" for part in law) for law in laws])
    rows = np.ones(len(laws), bool) if math.frexp(scale)[0] == 0.5 else clear
    if rows.all() or clear.any():
        both = np.outer(rows, rows).ravel()
        assert found.probability[both] == pytest.approx(here.probability[both], abs=1e-13)
    if rows.all():
        assert found.p_any == pytest.approx(here.p_any, abs=1e-13)
        assert found.variance == pytest.approx(here.variance, abs=1e-11)


def test_narrow_values_far_from_zero_keep_their_digits():
    """Multiples of 2**-40 beside 1024: all differences are exact."""
    unit, far = 2.0**-40, 1024.0
    for left, right in (
        (Uniform(0.0, 3.0), Uniform([0.0, 1.0, 2.0], [1.0, 4.0, 7.0])),
        (Gaussian(1.0, 2.0), Gaussian([0.0, 2.0, 4.0], [1.0, 0.5, 3.0])),
        (Gaussian(1.0, 2.0), Uniform([0.0, 1.0, 2.0], [1.0, 4.0, 7.0])),
        (Uniform(0.0, 3.0), Gaussian([0.0, 2.0, 4.0], [1.0, 0.5, 3.0])),
    ):

        def moved(model):
            places = {name: unit * column for name, column in model.values.items()}
            for name in ("lo", "hi", "mean"):
                if name in places:
                    places[name] = far + places[name]
            return type(model)(**places)

        here = all_of(left, right, Region(-1.0, 1.0))
        found = all_of(moved(left), moved(right), Region(-unit, unit))
        assert found.p_any == pytest.approx(here.p_any, abs=1e-14)
        assert found.variance == pytest.approx(here.variance, abs=1e-13)


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("kind", ["normal", "uniform", "histogram", "mixed", "cut"])
def test_thirty_candidates(kind):
    rng = np.random.default_rng(30)
    for left_kind in ("normal", "uniform", "mixed"):
        rights = [random_law(rng, kind, 1.0, 0.25) for _ in range(30)]
        left = random_law(rng, left_kind, 1.0, 0.25)
        found = all_of(model_of_laws([left]), model_of_laws(rights), NEAR, distribution=True)
        agrees(found, 0, *count_reference(left, rights, NEAR), error=3e-13)


def test_three_hundred_lines():
    """More than nodes can be exact for: the panel is cut, and the error is none."""
    rng = np.random.default_rng(300)
    low = rng.uniform(-1.0, 1.0, 300)
    found = all_of(Uniform(0.0, 0.2), Uniform(low - 1.0, low + 1.0), Region(-0.1, 0.1), distribution=True)
    rights = [[(1.0, "uniform", one - 1.0, one + 1.0)] for one in low]
    agrees(found, 0, *count_reference([(1.0, "uniform", 0.0, 0.2)], rights, Region(-0.1, 0.1)), error=3e-13)


def test_rows_that_are_equal_are_different_rows():
    twice = all_of(Gaussian(0, 1), Gaussian([0.3, 0.3], [0.5, 0.5]), NEAR, distribution=True)
    law = [(1.0, "normal", 0.3, 0.5)]
    agrees(twice, 0, *count_reference([(1.0, "normal", 0.0, 1.0)], [law, law], NEAR))
    again = match_counts(Gaussian(0, 1), Gaussian(0.3, 0.5), NEAR, [0, 2], [0, 0])
    assert again.p_any == pytest.approx(twice.p_any, abs=1e-15)


def test_sharp_candidates_and_far_cuts():
    rng = np.random.default_rng(8)
    for case in range(fewer(40)):
        sharp = [[(1.0, "normal", rng.normal(), 10.0 ** rng.uniform(-7, 0))] for _ in range(1 + case % 6)]
        low = rng.uniform(2.0, 30.0)
        cut = [[(1.0, "cut", -low * 0.3, 0.3, rng.normal(0, 0.1), 2.0)] for _ in range(1 + case % 3)]
        for rights in (sharp, cut, sharp + cut):
            for left in ([(1.0, "normal", 0.0, 1.0)], [(1.0, "uniform", -1.0, 2.0)], cut[0]):
                found = all_of(model_of_laws([left]), model_of_laws(rights), NEAR, distribution=True)
                agrees(found, 0, *count_reference(left, rights, NEAR), error=2e-13)


def test_rows_without_candidates_and_certain_matches():
    left, right = Gaussian([0.0, 1.0, 2.0], [1.0, 0.0, 1.0]), Uniform([-9.0, 50.0], [9.0, 60.0])
    found = match_counts(left, right, Region(-100, 100), [0, 0, 2, 2], [0, 1], distribution=True)
    assert found.p_any.tolist() == [0.0, 1.0, 0.0]
    assert found.expected.tolist() == [0.0, 2.0, 0.0]
    assert found.variance.tolist() == [0.0, 0.0, 0.0]
    assert [found.distribution.row(row).tolist() for row in range(3)] == [[1.0], [0.0, 0.0, 1.0], [1.0]]
    never = match_counts(Uniform(0, 1), Uniform([5, 8], [6, 9]), NEAR, [0, 2], [0, 1], distribution=True)
    assert never.probability.tolist() == [0.0, 0.0]
    assert never.distribution.values.tolist() == [1.0]
    nothing = match_counts(Gaussian([], []), right, NEAR, [0], [], distribution=True)
    assert len(nothing.p_any) == len(nothing.distribution) == 0


@pytest.mark.parametrize(("start", "rows"), [([0, 1], [0, 1]), ([0, 2], [0, 5]), ([0, 1, 2], [0, 1]), ([1, 2], [0, 1])])
def test_lists_that_do_not_fit_are_refused(start, rows):
    with pytest.raises(HaplyError, match="candidate"):
        match_counts(Gaussian(0, 1), Gaussian([0.3, 0.3], [0.5, 0.5]), NEAR, start, rows)


def test_distributions_are_rational_for_uniforms():
    """The integral of a product of two lines, in fractions."""
    found = all_of(Uniform(0, 1), Uniform([0, 0], [2, 4]), Region(0, math.inf), distribution=True)
    both = Fraction(1, 8) * Fraction(1, 3)
    single = Fraction(1, 4) + Fraction(1, 8) - 2 * both
    wanted = [float(1 - both - single), float(single), float(both)]
    assert found.distribution.values == pytest.approx(wanted, abs=1e-15)


# -- positions --------------------------------------------------------------------------------------------------------


def gaussians(rng, count, dim, size):
    factors = rng.normal(size=(count, dim, dim))
    covs = size**2 * (factors @ factors.transpose(0, 2, 1) / dim + 0.3 * np.eye(dim))
    return GaussianND(rng.normal(0.0, 1.0, (count, dim)), covs)


def draws(rng, model, row, size):
    mean, dim = model.mean().row(row), len(model.mean().row(row))
    return rng.multivariate_normal(mean, model.cov.row(row).reshape(dim, dim), size)


@pytest.mark.parametrize(("dim", "coarse", "fine"), [(1, 1e-7, 1e-12), (2, 1e-7, 1e-11), (3, 1e-3, 1e-5)])
def test_gaussian_positions_keep_the_stated_error(dim, coarse, fine):
    rng = np.random.default_rng(dim)
    count = {1: 5, 2: 4, 3: 2}[dim]
    rows = 6 if dim < 3 else 1
    left, right = gaussians(rng, rows, dim, 0.5), gaussians(rng, 12, dim, 0.7)
    start, mine = np.arange(rows + 1) * count, rng.integers(0, 12, rows * count)
    rough = position_counts(left, right, 1.0, start, mine, tolerance=coarse)
    found = position_counts(left, right, 1.0, start, mine, tolerance=fine, distribution=True)
    assert (rough.error < 2 * coarse).all()
    assert (np.abs(rough.counts.p_any - found.counts.p_any) < rough.error + found.error).all()
    assert (np.abs(rough.counts.variance - found.counts.variance) < count**2 * (rough.error + found.error)).all()
    owner = np.repeat(np.arange(rows), count)
    exact = within_distance(left.take(owner), right.take(mine), 1.0)
    assert np.abs(exact - found.counts.probability).max() < max(1e-12, fine)
    size = 100_000
    x = draws(rng, left, 0, size)
    number = sum((np.linalg.norm(x - draws(rng, right, j, size), axis=1) <= 1.0).astype(int) for j in mine[:count])
    for k, share in enumerate(found.counts.distribution.row(0)):
        assert np.mean(number == k) == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / size) + 5 / size)


def test_sample_positions_among_gaussians_and_mixtures():
    rng = np.random.default_rng(21)
    for dim in (2, 3):
        points, weights = rng.normal(size=(3, dim)), np.array([0.2, 0.3, 0.5])
        left = Samples([points.ravel()], [weights], dim=dim)
        one = gaussians(rng, 2, dim, 0.6)
        mixed = MixtureND([[0.4, 0.6]], [one.mean().values], [one.cov.values])
        for right, rows in ((one, [0, 1]), (mixed, [0])):
            found, error = position_counts(left, right, 1.2, [0, len(rows)], rows, distribution=True)
            single = Samples(list(points), dim=dim)
            q = [[within_distance(single.take(np.array([k])), right.take(np.array([j])), 1.2)[0] for j in rows]
                 for k in range(3)]  # fmt: skip
            some = weights @ [1.0 - np.prod(1.0 - np.array(row)) for row in q]
            assert found.p_any[0] == pytest.approx(some, abs=1e-12)
            assert found.probability == pytest.approx(weights @ np.array(q), abs=1e-12)
            assert error[0] == 0.0


def test_mixtures_and_flat_gaussians_on_the_left():
    rng = np.random.default_rng(22)
    one, right = gaussians(rng, 2, 2, 0.6), gaussians(rng, 3, 2, 0.6)
    mixed = MixtureND([[0.25, 0.75]], [one.mean().values], [one.cov.values])
    parts = position_counts(one, right, 1.0, [0, 3, 6], [0, 1, 2] * 2).counts
    whole = position_counts(mixed, right, 1.0, [0, 3], [0, 1, 2]).counts
    assert whole.p_any[0] == pytest.approx(parts.p_any @ [0.25, 0.75], abs=1e-9)
    # along a line, and not at all, the integral has fewer dimensions
    for cov in ([[0.36, 0.18], [0.18, 0.09]], [[0.0, 0.0], [0.0, 0.0]]):
        thin = GaussianND([[0.1, 0.2]], [cov])
        near = GaussianND([[0.1, 0.2]], [np.array(cov) + 1e-9 * np.eye(2)])
        found, close = (position_counts(side, right, 1.0, [0, 3], [0, 1, 2]).counts.p_any[0] for side in (thin, near))
        assert found == pytest.approx(close, abs=1e-7)


def test_positions_on_the_sky():
    left = Sky([150.0, 150.0], [2.0, 2.0], [0.5, 0.8], [0.4, 0.5])
    right = Sky(
        150.0 + np.array([0.6, -0.4, 1.0]) / 3600, 2.0 + np.array([0.3, 0.2, -0.5]) / 3600, 0.4, [0.5, 0.3, 0.6]
    )
    found, error = position_counts(left, right, 1.0, [0, 3, 6], [0, 1, 2] * 2)
    owner, rows = np.repeat([0, 1], 3), np.tile([0, 1, 2], 2)
    assert found.probability == pytest.approx(within_distance(left.take(owner), right.take(rows), 1.0), abs=2e-9)
    assert (error < 2e-9).all()
    # the same in the plane that touches the sphere
    flat = [
        GaussianND(np.zeros((2, 2)), [np.diag([0.25, 0.16]), np.diag([0.64, 0.25])]),
        GaussianND(
            [[0.6 * math.cos(math.radians(2)), 0.3], [-0.4 * math.cos(math.radians(2)), 0.2],
             [math.cos(math.radians(2)), -0.5]],
            [np.diag([0.16, 0.25]), np.diag([0.16, 0.09]), np.diag([0.16, 0.36])],
        ),
    ]  # fmt: skip
    plane, _ = position_counts(*flat, 1.0, [0, 3, 6], [0, 1, 2] * 2)
    assert found.p_any == pytest.approx(plane.p_any, abs=1e-7)


def test_an_error_that_cannot_be_kept_is_stated():
    left, right = GaussianND([[0.0, 0.0]], [np.eye(2)]), GaussianND([[0.3, 0.0]], [1e-12 * np.eye(2)])
    found, error = position_counts(left, right, 1.0, [0, 1], [0])
    assert error[0] == 1.0
    assert found.p_any[0] == pytest.approx(within_distance(left, right, 1.0)[0], abs=0.02)


@pytest.mark.parametrize("scale", [2.0**-400, 2.0**-60, 2.0**60, 2.0**400])
def test_positions_do_not_depend_on_the_unit(scale):
    rng = np.random.default_rng(5)
    left, right = gaussians(rng, 2, 2, 0.6), gaussians(rng, 3, 2, 0.6)
    power = -round(math.log2(scale))
    for one in (left, Samples([left.mean().values, left.mean().values], dim=2)):
        here = position_counts(one, right, 1.0, [0, 3, 6], [0, 1, 2] * 2).counts
        there = position_counts(one.scaled(power), right.scaled(power), scale, [0, 3, 6], [0, 1, 2] * 2).counts
        assert there.p_any == pytest.approx(here.p_any, abs=1e-12)


def test_what_cannot_be_counted_has_a_reason():
    four = GaussianND([[0.0] * 4], [np.eye(4)])
    plane, points = GaussianND([[0.0, 0.0]], [np.eye(2)]), Samples([[[0.0, 0.0], [1.0, 0.0]]])
    assert "4 dimensions" in position_misfit(four, four)
    assert "2 dimensions, right points 4" in position_misfit(plane, four)
    assert "have edges" in position_misfit(plane, points)
    assert "Uniform is no position" in position_misfit(plane, Uniform(0, 1))
    assert position_misfit(Samples([[[0.0] * 4]]), four) == ""
    assert position_misfit(Uniform(0, 1), Histogram([[0, 1]], [[1]])) == ""
    with pytest.raises(HaplyError, match="give samples"):
        position_counts(four, four, 1.0, [0, 1], [0])


def test_a_distance_that_is_tiny_beside_the_points():
    points = Samples([[[0.0, 0.0], [1.0, 0.0]]])
    found, _ = position_counts(points, points, 1e-200, [0, 2], [0, 0])
    assert found.probability.tolist() == [0.5, 0.5]
    assert found.p_any.tolist() == [0.75]
    among, _ = position_counts(points, GaussianND([[0.0, 0.0]], [np.eye(2)]), 1e-200, [0, 1], [0])
    assert among.p_any[0] == pytest.approx(0.0, abs=1e-300)


def test_positions_on_a_line_are_differences():
    left, right = Uniform([0.0, 1.0], [2.0, 2.5]), Gaussian([0.5, 2.0], [0.3, 0.6])
    found, error = position_counts(left, right, 0.5, [0, 2, 4], [0, 1, 0, 1])
    assert found.p_any.tolist() == all_of(left, right, NEAR).p_any.tolist()
    assert error.tolist() == [0.0, 0.0]
