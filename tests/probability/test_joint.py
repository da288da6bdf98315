"""The probability of conditions that share values: sums over all outcomes, and integrals, by the oracle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import oracle_time as oracle
from amounts import fewer
from haply.errors import HaplyError
from haply.models import (
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.probability import Difference, Distance, Region, joint_probability, region_probability
from haply.probability.joint import ZERO, Joint
from haply.probability.region import Linear

NAMES = "abcdef"


def random_tree(rng, count):
    """Links between names, each with a region that is now and then unbounded or an outside."""
    links = []
    for i in range(1, count):
        ends = [NAMES[i], NAMES[rng.integers(0, i)]]
        rng.shuffle(ends)
        low = rng.normal(-1.0, 1.0)
        links.append((*ends, low, math.inf if rng.random() < 0.2 else low + rng.exponential(2.0) + 0.1))
    return links


def conditions(links):
    return [Difference(one, other, Region(low, high)) for one, other, low, high in links]


def test_gaussians_are_those_of_the_oracle():
    rng = np.random.default_rng(1)
    for count in (3, 3, 4, 4, 4):
        laws = {name: (rng.normal(0.0, 2.0), 10.0 ** rng.uniform(-2, 1)) for name in NAMES[:count]}
        links = random_tree(rng, count)
        found = joint_probability({name: Gaussian([m], [s]) for name, (m, s) in laws.items()}, conditions(links))
        wanted = oracle.joint_gaussians({name: oracle.Normal(m, s) for name, (m, s) in laws.items()}, links)
        assert found[0] == pytest.approx(wanted, abs=2e-12)


def test_samples_are_those_of_the_oracle():
    """In whole numbers, so that many differences are at the ends of a region."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        count = rng.integers(3, 6)
        sizes = rng.integers(1, 7, count)
        points = {name: rng.integers(0, 6, size).astype(float) for name, size in zip(NAMES, sizes, strict=False)}
        weights = {name: rng.random(len(own)) + 0.1 for name, own in points.items()}
        links = [
            (a, b, round(low), math.inf if high == math.inf else round(high))
            for a, b, low, high in random_tree(rng, count)
        ]
        for weighted in (False, True):
            probs = {name: own / own.sum() if weighted else None for name, own in weights.items()}
            values = {
                name: Samples([own], None if probs[name] is None else [probs[name]]) for name, own in points.items()
            }
            laws = {
                name: oracle.Discrete(tuple(own), None if probs[name] is None else tuple(probs[name]))
                for name, own in points.items()
            }
            wanted = float(oracle.joint_samples(laws, links))
            assert joint_probability(values, conditions(links))[0] == pytest.approx(wanted, abs=1e-14)
            if not weighted:
                assert joint_probability(values, conditions(links))[0] == wanted


def law_of(rng, kind, size=4000):
    """A law of this kind, and a fine set of samples that stands for it: the middles of pieces of equal mass."""
    low, spread = rng.normal(0.0, 1.5), rng.uniform(0.3, 2.0)
    model = {
        "uniform": lambda: Uniform([low], [low + 2 * spread]),
        "gaussian": lambda: Gaussian([low], [spread]),
        "truncated": lambda: TruncatedGaussian([low], [spread], [low - 0.5 * spread], [low + 2 * spread]),
        "mixture": lambda: Mixture([[0.3, 0.7]], [[low, low + 3 * spread]], [[spread, 0.2 * spread]]),
        "histogram": lambda: Histogram([[low, low + 0.2, low + 1.0, low + 2.5]], [[0.5, 0.0, 0.5]]),
        "samples": lambda: Samples([np.round(rng.normal(low, spread, 5), 1)]),
        "certain": lambda: Certain([low]),
    }[kind]()
    levels = (np.arange(size) + 0.5) / size
    return model, model.take(np.zeros(size, dtype=int)).quantile(levels)


def by_grid(grids, links):
    """The same by message passing over the fine samples, written out with sorted arrays."""
    left = {name: np.ones(len(grid)) / len(grid) for name, grid in grids.items()}
    # random_tree hangs name i on one before it: take the last first
    for one, other, low, high in reversed(links):
        child, parent = (one, other) if NAMES.index(one) > NAMES.index(other) else (other, one)
        if parent != one:
            low, high = -high, -low
        order = np.argsort(grids[child])
        held = np.concatenate([[0.0], np.cumsum(left[child][order])])
        upto = np.searchsorted(grids[child][order], grids[parent] - low, side="right")
        before = np.searchsorted(grids[child][order], grids[parent] - high, side="left")
        left[parent] = left[parent] * (held[upto] - held[before])
    return left[NAMES[0]].sum()


KINDS = ("uniform", "gaussian", "truncated", "mixture", "histogram", "samples", "certain")


def test_any_laws_together():
    rng = np.random.default_rng(3)
    for _ in range(fewer(40)):
        count = rng.integers(3, 6)
        laws = {name: law_of(rng, rng.choice(KINDS)) for name in NAMES[:count]}
        links = random_tree(rng, count)
        found = joint_probability({name: model for name, (model, _) in laws.items()}, conditions(links))[0]
        assert found == pytest.approx(by_grid({name: grid for name, (_, grid) in laws.items()}, links), abs=4e-3)


def test_two_exact_ways_agree_for_laws_that_are_not_normal():
    """``a`` near ``b`` and ``b`` near ``c``: given ``b``, the two are independent, so ``b``'s law is integrated."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    for low in (0.3, 1e5 + 0.3):
        middle = Histogram([[low, low + 1.0, low + 4.0]], [[0.75, 0.25]])
        a, c = TruncatedGaussian([low], [1.0], [low - 1.0], [low + 3.0]), Uniform([low + 0.5], [low + 2.5])
        region, total = Region(-0.7, 0.9), 0.0
        corners = np.unique(
            [low, low + 1, low + 4, *(low + e + s for e in (-1, 3, 0.5, 2.5) for s in (-0.9, 0.7, -0.7, 0.9))]
        )
        for begin, end in itertools.pairwise(corners):
            if low <= begin and end <= low + 4:
                x = begin + 0.5 * (end - begin) * (1 + nodes)
                density = np.where(x < low + 1, 0.75, 0.25 / 3)
                both = region_probability(a, Certain(x), region) * region_probability(Certain(x), c, region)
                total += 0.5 * (end - begin) * (weights * density * both).sum()
        values = {"a": a, "b": middle, "c": c}
        found = joint_probability(values, [Difference("a", "b", region), Difference("b", "c", region)])[0]
        assert found == pytest.approx(total, abs=1e-13 if low < 1 else 1e-10)


def test_gaussians_in_a_circle():
    rng = np.random.default_rng(9)
    for case in range(8):
        laws = {name: (rng.normal(0.0, 1.0), rng.uniform(0.1, 2.0)) for name in "abc"}
        links = [("a", "b", -1.0, 1.5), ("b", "c", -2.0, 1.0), ("c", "a", -1.0, math.inf if case % 2 else 2.0)]
        values = {name: Gaussian([m], [s]) for name, (m, s) in laws.items()}
        found = joint_probability(values, conditions(links))
        wanted = oracle.joint_gaussians({name: oracle.Normal(m, s) for name, (m, s) in laws.items()}, links)
        assert found[0] == pytest.approx(wanted, abs=1e-11)
        # far apart is all but near
        far = [*conditions(links[:2]), Difference("c", "a", Region(links[2][2], 2.0, outside=True))]
        near = joint_probability(values, [*conditions(links[:2]), Difference("c", "a", Region(links[2][2], 2.0))])
        assert joint_probability(values, far) + near == pytest.approx(
            joint_probability(values, conditions(links[:2])), abs=1e-11
        )


def test_sums_of_gaussians():
    """``a + b - 2 c`` and ``a`` by itself are jointly normal; alone, a sum is an interval of a normal."""
    values = {"a": Gaussian([1.0], [0.5]), "b": Gaussian([0.0], [1.0]), "c": Gaussian([0.5], [0.25])}
    total = Linear((("a", 1.0), ("b", 1.0), ("c", -2.0)), Region(-1.0, math.inf))
    alone = joint_probability(values, [total])[0]
    assert alone == pytest.approx(0.5 * math.erfc(-1.0 / math.sqrt(2 * (0.25 + 1.0 + 0.25))), abs=1e-14)
    rng = np.random.default_rng(1)
    drawn = {
        name: law.mean()[0] + np.sqrt(law.variance()[0]) * rng.normal(size=1_000_000) for name, law in values.items()
    }
    both = joint_probability(values, [total, Difference("a", ZERO, Region(1.2, math.inf))])[0]
    seen = (drawn["a"] + drawn["b"] - 2 * drawn["c"] >= -1) & (drawn["a"] >= 1.2)
    assert both == pytest.approx(seen.mean(), abs=4 * math.sqrt(0.25 / 1e6))
    assert both > alone * joint_probability(values, [Difference("a", ZERO, Region(1.2, math.inf))])[0] + 0.005


def test_a_number_ties_nothing():
    values = {"a": Samples([[0, 4]]), "b": Samples([[0, 4]])}
    one = [Difference("a", "b", Region(-1, 1)), Difference("a", ZERO, Region(2, math.inf))]
    assert joint_probability(values, one)[0] == 0.25
    assert joint_probability(values, one[1:])[0] == 0.5


def test_distances_of_gaussians_alone():
    values = {"a": GaussianND([[0, 0]], [[1, 0, 0, 1]]), "b": GaussianND([[2, 1]], [[0.5, 0.2, 0.2, 0.8]])}
    assert joint_probability(values, [Distance("a", "b", 2.0)])[0] == pytest.approx(0.309870286582174042, abs=1e-12)


def test_it_is_no_product():
    """Beside a value that is either here or there, both others have to be where it is."""
    values = {"a": Samples([[0, 4]]), "b": Samples([[0, 4]]), "c": Samples([[0, 4]])}
    near = Region(-1, 1)
    assert joint_probability(values, [Difference("a", "b", near), Difference("b", "c", near)])[0] == 0.25
    wide = {"a": Gaussian([0], [1]), "b": Gaussian([0], [3]), "c": Gaussian([0], [1])}
    two = [Difference("a", "b", near), Difference("c", "b", near)]
    alone = region_probability(wide["a"], wide["b"], near)[0]
    assert joint_probability(wide, two)[0] > 1.5 * alone * alone


def test_a_certain_value_ties_nothing():
    """Conditions that share a certain value are independent, also where they go round in a circle over it."""
    values = {"a": Gaussian([0, 1], [1, 2]), "b": Certain([0.5, 0.5]), "c": Uniform([0, 0], [1, 3])}
    near = Region(-1, 1)
    links = [Difference("a", "b", near), Difference("b", "c", near)]
    parts = [region_probability(values[one.left], values[one.right], near) for one in links]
    assert np.allclose(joint_probability(values, links), parts[0] * parts[1], rtol=1e-14)
    circle = [*links, Difference("a", "c", near)]
    some = joint_probability(values, circle)
    levels = (np.arange(3000) + 0.5) / 3000
    for row in range(2):
        a, c = (values[name].take(np.full(3000, row)).quantile(levels) for name in "ac")
        a, c = a[np.abs(a - 0.5) <= 1], c[np.abs(c - 0.5) <= 1]
        near_pairs = (np.searchsorted(c, a + 1, "right") - np.searchsorted(c, a - 1, "left")).sum()
        assert some[row] == pytest.approx(near_pairs / 3000**2, abs=2e-3)


def test_distances_and_differences_of_samples():
    rng = np.random.default_rng(5)
    points = {name: rng.integers(0, 4, (7, 6, 2)).astype(float) for name in "abc"}
    numbers = rng.integers(0, 4, (7, 5)).astype(float)
    values = {**{name: Samples(own) for name, own in points.items()}}
    links = [Distance("a", "b", 2.0), Distance("c", "b", 1.0, closed=False)]
    found = joint_probability(values, links)
    ab = np.sqrt(((points["a"][:, :, None] - points["b"][:, None]) ** 2).sum(-1)) <= 2.0
    cb = np.sqrt(((points["c"][:, :, None] - points["b"][:, None]) ** 2).sum(-1)) < 1.0
    assert np.array_equal(found, (ab.sum(1) * cb.sum(1)).sum(1) / 6**3)
    # a group of its own multiplies; a single row serves for all
    values.update(x=Samples(numbers), y=Samples([[1.0, 2.0]]))
    both = joint_probability(values, [*links, Difference("x", "y", Region(0, math.inf))])
    above = (numbers[:, :, None] >= np.array([1.0, 2.0])).mean((1, 2))
    assert np.allclose(both, found * above, rtol=1e-15)


def test_many_rows_and_none():
    rng = np.random.default_rng(6)
    values = {name: Gaussian(rng.normal(0, 1, 50), rng.uniform(0.1, 2, 50)) for name in "abc"}
    links = [Difference("a", "b", Region(-1, 1)), Difference("c", "b", Region(-2, 2))]
    all_rows = joint_probability(values, links)
    for row in (0, 17, 49):
        one = {name: model.take(np.array([row])) for name, model in values.items()}
        assert joint_probability(one, links)[0] == pytest.approx(all_rows[row], abs=1e-15)
    none = {name: model.take(np.array([], dtype=int)) for name, model in values.items()}
    assert len(joint_probability(none, links)) == 0


def test_likely_rows_are_those_above_and_no_other_is_lost():
    """Conditions by themselves bound all together: whatever is rejected is not above the level."""
    rng = np.random.default_rng(11)
    near = Region(-1, 1)
    for laws in ((Gaussian,) * 4, (Uniform, Gaussian, Uniform, Gaussian)):
        values = {
            name: law(rng.normal(0, 1.5, 200), rng.normal(0, 1.5, 200) ** 2 + 0.05)
            if law is Gaussian
            else law(low := rng.normal(0, 1.5, 200), low + rng.uniform(0.1, 2, 200))
            for name, law in zip("abcd", laws, strict=True)
        }
        links = [Difference("a", "b", near), Difference("c", "b", near), Difference("d", ZERO, Region(0, math.inf))]
        joint = Joint.of(links, {name: type(model) for name, model in values.items()})
        every, _ = joint.probability(values)
        for level in (np.zeros(200), np.full(200, 0.3), rng.uniform(0, 0.5, 200)):
            rows, probability, _ = joint.likely(values, level)
            assert np.allclose(probability, every[rows], atol=1e-15)
            rejected = np.setdiff1d(np.arange(200), rows)
            assert (every[rejected] <= level[rejected] + 1e-12).all()
            assert len(rejected) > 10 or not level.any()


def test_errors():
    g, s, p = Gaussian([0], [1]), Samples([[1.0, 2.0]]), GaussianND([[0, 0]], [[1, 0, 0, 1]])
    near = Region(-1, 1)
    circle = [Difference("a", "b", near), Difference("b", "c", near), Difference("a", "c", near)]
    for values, links, text in (
        ({"a": g, "b": g, "c": s}, circle, "circle"),
        (dict.fromkeys("abcd", g), [*circle[:2], Difference("c", "d", near), Difference("d", "a", near)], "circle"),
        ({"a": s, "b": s}, [Difference("a", "b", near), Difference("b", "a", near)], "circle"),
        ({"a": Uniform([0], [1]), "b": s}, [Distance("a", "b", 1.0)], "distance is asked of 'a'"),
        ({"a": p, "b": s}, [Difference("a", "b", near)], "difference is asked of 'a'"),
        ({"a": s, "b": s, "c": g}, [Distance("a", "b", 1.0), Difference("b", "c", near)], "tied to 'c'"),
        ({"a": s}, [Difference("a", "a", near)], "with itself"),
        ({"a": g, "b": g, "c": s}, [Linear((("a", 1.0), ("b", 1.0), ("c", 1.0)), near)], "'c', Samples"),
        ({"a": Gaussian([0, 0], [1, 1]), "b": Gaussian([0] * 3, [1] * 3), "c": g}, circle[:2], "differ in length"),
        (
            {"a": Samples([[[1.0, 2.0]]]), "b": Samples([[[1.0, 2.0, 3.0]]]), "c": s},
            [Distance("a", "b", 1.0), Distance("b", "c", 1.0)],
            "dimension",
        ),
    ):
        with pytest.raises(HaplyError, match=text):
            joint_probability(values, links)
