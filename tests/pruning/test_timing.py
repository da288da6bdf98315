"""Shapes, and the probability of two shapes as a function of their shift, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import oracle_time as oracle
from haply.models import Certain, Gaussian, Histogram, Samples, Uniform
from haply.numerics.jit import kernel
from haply.pruning.bounds.timing.shapes import NO_SHAPE, ShapeList
from haply.pruning.bounds.timing.shifts import Tables, look_up, near, super_level

PHI_1 = oracle.histogram((0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6"))
PHI_2 = oracle.histogram((0, 10, "0.15"), (10, 20, "0.3"), (20, 30, "0.4"), (30, 40, "0.15"))


def model_of(histograms):
    """The oracle's histograms as a model; one without width becomes a sample."""
    if all(oracle.length(h) == 0 for h in histograms):
        return Samples([[float(oracle.last(h))] for h in histograms])
    return Histogram(
        [[float(e) for e in h.edges] for h in histograms], [[float(p) for p in h.probs] for h in histograms]
    )


def shapes_of(*histograms):
    """Each histogram's shape, numbered as they come."""
    found = ShapeList()
    numbers = [int(found.number(model_of([h]), 64)[0][0]) for h in histograms]
    assert numbers == list(range(len(histograms)))
    return found.shapes


def random_pairs(count, seed, **options):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng, oracle.random_template(rng, **options), oracle.random_template(rng, **options)


# -- numbers for shapes ------------------------------------------------------------------------------------------------


def test_shifts_of_a_shape_have_one_number():
    rng = np.random.default_rng(1)
    templates = [([0.0, 1.0, 5.0], [0.25, 0.75]), ([0.0, 4.0, 5.0], [0.25, 0.75]), ([0.0, 1.0, 5.0], [0.75, 0.25])]
    chosen, shift = rng.integers(0, 3, 500), rng.integers(-1000, 1000, 500) / 8
    model = Histogram(
        [list(np.add(templates[c][0], s)) for c, s in zip(chosen, shift, strict=True)],
        [templates[c][1] for c in chosen],
    )
    found = ShapeList()
    numbers, at = found.number(model, 10)
    assert found.count == 3
    assert (at == shift + 5.0).all()
    for c in range(3):
        assert len(set(numbers[chosen == c])) == 1
    again, _ = found.number(model, 10)
    assert (again == numbers).all()
    assert found.count == 3


def test_decimal_times_of_today_share_shapes():
    """Seconds since 1970 and latencies in tenths: neither is a double, their differences are the same all the same."""
    rng = np.random.default_rng(2)
    at = 1.7e9 + np.round(rng.uniform(0, 1e6, 2000), 3)
    model = Histogram(np.stack([at - 0.7, at - 0.3, at - 0.1], axis=1), np.tile([0.4, 0.6], (2000, 1)))
    found = ShapeList()
    found.number(model, 100)
    assert found.count == 1


def test_what_has_no_shape():
    found = ShapeList()
    assert (found.number(Gaussian([0.0, 1.0], [1.0, 1.0]), 10)[0] == NO_SHAPE).all()
    numbers, _ = found.number(Uniform(np.zeros(50), np.arange(1.0, 51.0)), 20)
    assert (numbers[:20] == np.arange(20)).all()
    assert (numbers[20:] == NO_SHAPE).all(), "no room"
    numbers, _ = found.number(Certain(np.arange(7.0)), 20)
    assert (numbers == 20).all()
    assert found.shapes.points[20]
    assert not found.shapes.points[:20].any()


def test_many_shapes_are_told_apart():
    lengths = np.arange(1.0, 3001.0)
    found = ShapeList()
    for begin in range(0, 3000, 700):
        part = lengths[begin : begin + 700]
        numbers, _ = found.number(Uniform(np.zeros(len(part)), part), 5000)
        assert (numbers == np.arange(begin, begin + len(part))).all()
    numbers, _ = found.number(Uniform(np.full(3000, 4.0), 4.0 + lengths), 5000)
    assert (numbers == np.arange(3000)).all()


# -- J ---------------------------------------------------------------------------------------------------------------


def test_near_is_the_oracles():
    for rng, u, v in random_pairs(150, 3, inner_atoms=False):
        x, y = shapes_of(u), shapes_of(v)
        d = float(rng.choice([0.0, 0.5, 3.0, 20.0, 60.0]))
        for s in [*rng.integers(-120, 120, 6).tolist(), *(rng.integers(-960, 960, 6) / 8).tolist()]:
            assert near(x, 0, y, 0, float(s), d) == pytest.approx(float(oracle.band_at(u, v, d, s)), abs=1e-14)


@pytest.mark.parametrize(
    ("d", "delta", "wanted"),
    [
        (5, 0.2, (-1.9900525497, 21.7646212198)),
        (10, 0.5, (2.6402516841, 17.1242996869)),
        (10, 0.3, (-5.8321855065, 25.7566948593)),
        (20, 0.8, (1.2803458278, 18.5456012055)),
        (50, 0.8, (-29.8885160286, 48.5907854728)),
    ],
)
def test_golden_9(d, delta, wanted):
    x, y = shapes_of(PHI_1), shapes_of(PHI_2)
    assert super_level(x, 0, y, 0, float(d), delta) == pytest.approx(wanted, abs=1e-10)


def test_golden_11():
    u = oracle.histogram((0, 1, "0.5"), (1, 9, 0), (9, 10, "0.5"))
    x, y = shapes_of(u), shapes_of(oracle.histogram((0, 1, 1)))
    two = (-9.6324555320, -8.3675444680, -0.6324555320, 0.6324555320)
    assert super_level(x, 0, y, 0, 1.0, 0.4) == pytest.approx(two, abs=1e-10)
    assert super_level(x, 0, y, 0, 9.0, 0.4) == pytest.approx((-17.6324555320, 8.6324555320), abs=1e-10)
    assert len(super_level(x, 0, y, 0, 1.0, 0.6)) == 0


def test_super_level_sets_are_the_oracles():
    """Any window, points and empty buckets: the same intervals, among them sets of none and of several."""
    sizes = set()
    for rng, u, v in random_pairs(250, 4):
        x, y = shapes_of(u), shapes_of(v)
        d, delta = float(rng.choice([0, 1, 5, 20, 50])), float(rng.choice([0.05, 0.25, 0.5, 0.75, 0.9]))
        wanted = oracle.super_level(u, v, d, delta)
        found = super_level(x, 0, y, 0, d, delta)
        # a level that is reached at one place or along a plateau may be missed by rounding: look from a hair below
        if len(found) != 2 * len(wanted):
            assert len(super_level(x, 0, y, 0, d, delta - 1e-13)) == 2 * len(oracle.super_level(u, v, d, delta - 1e-13))
            continue
        assert found == pytest.approx(np.array(wanted).ravel(), abs=1e-6)
        sizes.add(len(wanted))
    assert sizes >= {0, 1, 2}


def test_tables_give_what_the_formula_gives():
    """Everywhere within the hull, at its ends and at the breaks; outside of it nothing reaches the level."""
    looked_up = 0
    for rng, u, v in random_pairs(120, 5, atoms=False):
        x, y = shapes_of(u), shapes_of(v)
        d, delta = float(rng.choice([0, 1, 5, 20, 50])), float(rng.choice([0.05, 0.25, 0.5, 0.75, 0.9]))
        tables = Tables.none()._replace(table_of=np.zeros((1, 1), np.int64))
        tables = tables.with_more(x, np.zeros(1, int), y, np.zeros(1, int), d, delta, delta + 1e-12)
        hull = tables.hull[0, :4]
        if hull[1] < hull[0]:
            assert not oracle.super_level(u, v, d, delta + 1e-9)
            continue
        places = [*rng.uniform(hull[0], hull[1], 40), *tables.cells[:-1, 0], hull[0], hull[1], *hull[2:]]
        for s in places:
            if not hull[0] <= s <= hull[1]:
                continue
            value = LOOK_UP(tables, 0, s)
            assert value == pytest.approx(near(x, 0, y, 0, s, d), abs=2e-14)
            if hull[2] <= s <= hull[3]:
                assert value >= delta
            looked_up += 1
        beyond = hull[1] - hull[0] + 1.0
        for s in (*rng.uniform(hull[0] - beyond, hull[0], 10), *rng.uniform(hull[1], hull[1] + beyond, 10)):
            assert near(x, 0, y, 0, s, d) < delta
    assert looked_up > 2000


@kernel
def LOOK_UP(tables, r, shift):  # noqa: N802 - a constant: the kernel's inner function
    return look_up(tables, r, shift)
