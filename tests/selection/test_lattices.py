"""Means over lattices whose points may miss what is rare: against products of probabilities of single values.

In the trees here no value stands twice, so that the parts of a tree are independent and its probability follows from
those of its leaves, which the referee knows.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import oracle
from engine import model_of
from haply.numerics.integration.lattices import RARE
from haply.probability import box_estimate
from haply.selection.cases import AllOf, AnyOf
from haply.selection.conditions import Polynomial, Range, RowValues
from haply.selection.group import LATTICE
from haply.selection.methods.nested import Nested

INF = math.inf
ERROR = 1e-3
"""What the planner says of these means."""


def rare_law(random):
    """A value of some law, often with a part of a small weight far from the rest."""
    share, far = float(10.0 ** random.uniform(-3.2, -1.0)), float(random.choice([-6.0, 6.0]))
    match int(random.integers(0, 4)):
        case 0:
            return oracle.NormalMixture([1.0 - share, share], [0.0, far], [1.0, 0.1])
        case 1:
            return oracle.Hist([-7.0, -6.5, 1.0, 1.5, 7.0], [share, 0.5, 0.5 - 2 * share, share])
        case 2:
            return oracle.Uniform(-1.0, float(random.uniform(0.0, 3.0)))
        case _:
            return oracle.Normal(float(random.normal()), float(random.uniform(0.5, 2.0)))


def leaf(value, name, random):
    """A condition that a value lies in a range with one end, and its probability, which is often small."""
    end = float(oracle.quantile(value, min(0.95, float(10.0 ** random.uniform(-2.5, 0.0))), digits=20)) + 1e-9
    chance = float(oracle.cdf(value, end, digits=20))
    if random.random() < 0.5:
        return Polynomial((((name, None), 1.0),), (), (Range(-INF, end),)), chance
    return Polynomial((((name, None), 1.0),), (), (Range(end, INF),)), 1.0 - chance


def tree(parts, random):
    """Combine conditions with independent probabilities in any order until one is left."""
    parts = list(parts)
    while len(parts) > 1:
        random.shuffle(parts)
        (one, p), (two, q) = parts.pop(), parts.pop()
        parts.append((AllOf((one, two)), p * q) if random.random() < 0.6 else (AnyOf((one, two)), p + q - p * q))
    return parts[0]


def mean_of(whole, values):
    models = {name: model_of([value]) for name, value in values.items()}
    kinds = [(name, type(model)) for name, model in models.items()]
    found, _ = Nested(whole, kinds, RowValues(models, {}, 1), LATTICE).exact()
    return float(found[0])


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("seed", range(40))
def test_means_meet_what_is_rare(seed):
    """Whatever is more likely than ``RARE`` is met by a point, and no mean is further off than it may be."""
    random = np.random.default_rng(seed)
    values = {f"x{k}": rare_law(random) for k in range(int(random.integers(4, 10)))}
    whole, wanted = tree([leaf(value, name, random) for name, value in values.items()], random)
    found = mean_of(whole, values)
    assert found == pytest.approx(wanted, abs=ERROR)
    if wanted > RARE:
        assert found > 0.0
    if wanted < 1.0 - RARE:
        assert found < 1.0


def first_points(dims):
    """The points that every mean begins with, written down once more."""
    primes = [n for n in range(2, 200) if all(n % p for p in range(2, n))][:dims]
    shifts = np.random.default_rng(20110829).random((12, dims))
    places = np.arange(1, 513)[None, :, None] * np.sqrt(primes) + shifts[:, None]
    return np.abs(2.0 * (places - np.floor(places)) - 1.0).reshape(-1, dims)


def missed_boxes(dims, random, tried=4000, kept=4):
    """Of random boxes in the cube those that no first point meets and that are the largest: dimensions and ends."""
    points, found = first_points(dims), []
    for _ in range(tried):
        chance, count = float(10.0 ** random.uniform(-3.4, -2.5)), int(random.integers(1, 6))
        chosen = random.choice(dims, min(count, dims), replace=False)
        sides = np.exp(math.log(chance) * random.dirichlet(np.ones(len(chosen))))
        begins = random.uniform(0.0, 1.0 - sides)
        if not ((points[:, chosen] >= begins) & (points[:, chosen] <= begins + sides)).all(axis=1).any():
            found.append((chance, chosen, begins, sides))
    return sorted(found, key=lambda box: -box[0])[:kept]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dims", [4, 8, 16])
def test_boxes_that_the_first_points_miss_are_met(dims):
    """The first points all say 0, or 1 of what is outside; further ones find out."""
    names = [f"x{k}" for k in range(dims + 1)]
    values = dict.fromkeys(names, oracle.Uniform(0.0, 1.0))
    last = Polynomial((((names[-1], None), 1.0),), (), (Range(-INF, 2.0),))
    for chance, chosen, begins, sides in missed_boxes(dims, np.random.default_rng(dims)):
        assert chance > RARE
        inside, outside = [last], []
        for k, begin, side in zip(chosen, begins, sides, strict=True):
            begin, end, value = float(begin), float(begin + side), (((names[k], None), 1.0),)
            inside.append(Polynomial(value, (), (Range(begin, end),)))
            outside.append(Polynomial(value, (), (Range(-INF, begin), Range(end, INF))))
        others = [Polynomial((((name, None), 1.0),), (), (Range(-INF, 2.0),)) for name in names]
        found = mean_of(AllOf((*inside, *others)), values)
        assert found > 0.0
        assert found == pytest.approx(chance, abs=RARE)
        found = mean_of(AllOf((AnyOf(tuple(outside)), *others)), values)
        assert found < 1.0
        assert found == pytest.approx(1.0 - chance, abs=RARE)


def test_what_holds_for_all_values_takes_no_points():
    """Bounds show it: the answer is 1 or 0 and not near it."""
    names = "abcde"
    values = dict.fromkeys(names, oracle.Uniform(0.0, 1.0))
    total = tuple(((name, None), 1.0) for name in names)
    products = tuple(((one, None), (two, None), 1.0) for one, two in zip("abcd", "bcde", strict=True))
    assert mean_of(Polynomial(total, products, (Range(-INF, 9.0),)), values) == 1.0
    assert mean_of(Polynomial(total, products, (Range(-INF, -0.5),)), values) == 0.0


def test_boxes_that_few_points_meet_say_what_they_may_have_missed():
    """Nearly one direction, which no point meets: the error is never smaller than what is missed."""
    random = np.random.default_rng(4)
    nodes, weights = np.polynomial.legendre.leggauss(500)
    erf = np.vectorize(math.erf)
    for _ in range(30):
        # four values share one normal z, but for little: the box says z is between its bounds, with soft ends
        soft, begins = float(10.0 ** random.uniform(-3.0, -1.0)), random.uniform(-1.5, 1.5, 4)
        ends = begins.max() + random.uniform(0.0, 0.05) + random.uniform(0.0, 2.0, 4)
        cov = np.ones((4, 4)) + soft**2 * np.eye(4)
        found = box_estimate(np.zeros(4), cov, begins, ends)
        low, high = begins.max() - 9 * soft, ends.min() + 9 * soft
        z = 0.5 * (low + high) + 0.5 * (high - low) * nodes
        inside = np.ones_like(z)
        for begin, end in zip(begins, ends, strict=True):
            inside *= 0.5 * (erf((end - z) / soft / math.sqrt(2)) - erf((begin - z) / soft / math.sqrt(2)))
        wanted = 0.5 * (high - low) * np.dot(weights, inside * np.exp(-0.5 * z * z)) / math.sqrt(2 * math.pi)
        assert abs(found.value[0] - wanted) <= max(found.error[0], 1e-9)
