"""The event nearest to an uncertain time: all outcomes, integrals, drawn worlds, and what is left out."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import oracle
import oracle_answers as referee
from engine import model_of
from haply.models import Certain, Gaussian, Histogram, Mixture, Uniform
from haply.probability.events.nearest import nearest_candidates, nearest_events
from laws_kit import KINDS, draw, model_of_laws, random_law


def all_of(left, right, **options):
    """With all right rows as candidates of all left rows."""
    start = np.arange(len(left) + 1) * len(right)
    return nearest_events(left, right, start, np.tile(np.arange(len(right)), len(left)), **options)


@pytest.mark.parametrize("within", [None, 0, 1, 2])
def test_samples_are_sums_over_all_worlds(within):
    """In whole numbers, so that many events are at one time, or at one distance on both sides."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        count = int(rng.integers(1, 5))

        def value():
            points = [Fraction(int(x)) for x in rng.integers(0, 6, rng.integers(1, 4))]
            shares = [Fraction(int(x)) for x in rng.integers(1, 5, len(points))]
            return oracle.Discrete(tuple(points), tuple(share / sum(shares) for share in shares))

        asked, events, rank = value(), [value() for _ in range(count)], rng.permutation(count)
        wanted = referee.nearest_by_worlds(asked, events, within, rank.tolist())
        found = all_of(model_of([asked]), model_of(events), rank=rank, lookback=within)
        assert found.probability == pytest.approx([float(p) for p in wanted.p], abs=3e-15)
        assert found.none[0] == pytest.approx(float(wanted.none), abs=3e-15)


def values(rng, kind, count):
    means, sds = rng.uniform(-2, 2, count), rng.uniform(0.2, 1.5, count)
    if kind == "normal":
        return [oracle.Normal(m, s) for m, s in zip(means, sds, strict=True)]
    if kind == "uniform":
        return [oracle.Uniform(m, m + s) for m, s in zip(means, sds, strict=True)]
    if kind == "hist":
        return [oracle.Hist((m, m + s / 2, m + 2 * s), (0.3, 0.7)) for m, s in zip(means, sds, strict=True)]
    return [oracle.Point(m) for m in means]


@pytest.mark.parametrize("within", [None, 0.7])
@pytest.mark.parametrize(
    ("asked", "events"),
    [
        ("point", "normal"), ("point", "uniform"), ("uniform", "point"), ("normal", "point"), ("uniform", "uniform"),
        ("hist", "hist"), ("normal", "uniform"), ("uniform", "normal"), ("normal", "normal"), ("hist", "normal"),
    ],
)  # fmt: skip
@pytest.mark.long(keep=5)
def test_integrals_are_those_of_the_oracle(asked, events, within):
    rng = np.random.default_rng(3)
    for count in (1, 3):
        time, others = values(rng, asked, 1), values(rng, events, count)
        wanted = referee.nearest_float(time[0], others, within)
        found = all_of(model_of(time), model_of(others), lookback=within)
        assert found.probability == pytest.approx(wanted.p, abs=2e-11)
        assert found.none[0] == pytest.approx(wanted.none, abs=2e-11)


def test_exact_values_of_uniform_times():
    """Between points the nearest one changes in the middle; T - S is a trapezoid."""
    found = all_of(Uniform(0, 10), Certain([2, 6, 7]))
    assert found.probability == pytest.approx([0.4, 0.25, 0.35], abs=1e-14)
    near = all_of(Uniform(0, 10), Certain([2, 6, 7]), lookback=1.0)
    assert near.probability == pytest.approx([0.2, 0.15, 0.15], abs=1e-14)
    assert near.none == pytest.approx([0.5], abs=1e-14)
    # T = 0, S1 uniform on [-1, 1], S2 uniform on [0, 2]: P(|S1| < S2) = 3/4
    assert all_of(Certain(0), Uniform([-1, 0], [1, 2])).probability == pytest.approx([0.75, 0.25], abs=1e-15)


def test_one_event_far_narrower_than_the_time():
    """Where the order changes, it does so within a thousandth of the time."""
    found = all_of(Gaussian(0, 1000), Gaussian([-300, 500], [0.1, 0.2]))
    below = 0.5 * (1 + math.erf(100 / 1000 / math.sqrt(2)))
    assert found.probability == pytest.approx([below, 1 - below], abs=1e-9)


@pytest.mark.parametrize("within", [None, 0.6])
def test_many_normal_events_of_very_different_widths(within):
    """Against many short panels in the distance, of which none looks where events move."""
    rng = np.random.default_rng(4)
    count, time = 12, 0.3
    mean, sd = rng.uniform(-1.0, 1.5, count), 10.0 ** rng.uniform(-2.0, 0.5, count)
    far = min((abs(mean - time) + 9.0 * sd).min(), math.inf if within is None else within)
    node, weight = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(0.0, far, 400)
    half = 0.5 * np.diff(edges)
    r = ((edges[:-1] + half)[:, None] + half[:, None] * node).ravel()
    cdf = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2.0)))

    def shares(r):
        up, down = (time + r - mean[:, None]) / sd[:, None], (time - r - mean[:, None]) / sd[:, None]
        density = (np.exp(-0.5 * up**2) + np.exp(-0.5 * down**2)) / (sd[:, None] * math.sqrt(2.0 * math.pi))
        return density, cdf(-up) + cdf(down)

    density, farther = shares(r)
    wanted = [
        ((half[:, None] * weight).ravel() * density[j] * np.delete(farther, j, axis=0).prod(axis=0)).sum()
        for j in range(count)
    ]
    found = all_of(Certain([time]), Gaussian(mean, sd), lookback=within)
    assert found.probability == pytest.approx(wanted, abs=1e-13)
    none = 0.0 if within is None else float(shares(np.array([within]))[1].prod())
    assert found.none[0] == pytest.approx(none, abs=1e-13)


def test_rows_among_normal_events_and_rows_among_others_are_computed_together():
    left = Gaussian([0.0, 0.2, 0.4], [0.5, 0.5, 0.5])
    mixed = Mixture([[1.0], [1.0], [0.5, 0.5]], [[0.1], [0.9], [0.2, 0.8]], [[0.4], [0.3], [0.0, 0.5]])  # one point
    start, candidates = np.array([0, 2, 4, 6]), np.array([0, 1, 0, 2, 1, 0])
    whole = nearest_events(left, mixed, start, candidates)
    for i in range(3):
        own = slice(start[i], start[i + 1])
        alone = nearest_events(left.take(np.array([i])), mixed, [0, 2], candidates[own])
        assert whole.probability[own] == pytest.approx(alone.probability, abs=1e-15)
        assert whole.none[i] == pytest.approx(alone.none[0], abs=1e-15)


@pytest.mark.parametrize("case", range(24))
@pytest.mark.long(keep=6)
def test_any_kinds_are_those_of_drawn_worlds(case):
    rng = np.random.default_rng(case)
    count = int(rng.integers(2, 5))
    time = random_law(rng, KINDS[case % len(KINDS)], 1.0, 0.5)
    events = [random_law(rng, str(rng.choice(KINDS)), 1.0, 0.5) for _ in range(count)]
    within = [None, 0.75][case % 2]
    found = all_of(model_of_laws([time]), model_of_laws(events), lookback=within)
    assert found.probability.sum() + found.none[0] == pytest.approx(1.0, abs=1e-9)
    size = 40_000
    t, s = draw(rng, time, size), np.array([draw(rng, one, size) for one in events])
    distance = np.abs(s - t)
    # of one distance the earlier, of one time the last
    order = np.lexsort((-np.arange(count)[:, None] + 0 * s, s, distance), axis=0)[0]
    none = distance.min(axis=0) > (math.inf if within is None else within)
    shares = [float(((order == j) & ~none).mean()) for j in range(count)]
    for p, share in zip([*found.probability, found.none[0]], [*shares, float(none.mean())], strict=True):
        assert abs(p - share) <= 5 * math.sqrt(max(p * (1 - p), 1e-4) / size)


@pytest.mark.parametrize("within", [None, 0.8])
def test_what_is_left_out_is_less_than_the_tolerance(within):
    """Candidates have all but the tolerance of the probability; and of certain times just the nearest is one."""
    rng = np.random.default_rng(5)
    left = Gaussian(rng.uniform(0, 12, 5), 0.3)
    means, sds = rng.uniform(0, 12, 16), rng.uniform(0.1, 0.5, 16)
    keys, asked = rng.integers(0, 2, 16), rng.integers(0, 2, 5)
    for right in (Gaussian(means, sds), Uniform(means, means + sds), Certain(means)):
        for tolerance in (1e-9, 1e-3):
            start, found = nearest_candidates(
                left, right, tolerance=tolerance, lookback=within, left_key=asked, right_key=keys
            )
            chances = nearest_events(left, right, start, found, lookback=within)
            for i in range(5):
                mine = found[start[i] : start[i + 1]]
                assert set(keys[mine]) <= {asked[i]}
                every = np.flatnonzero(keys == asked[i])
                row = left.take(np.array([i]))
                whole = nearest_events(row, right, [0, len(every)], every, lookback=within)
                of = dict(zip(every.tolist(), whole.probability.tolist(), strict=True))
                assert sum(p for j, p in of.items() if j not in set(mine.tolist())) <= tolerance
                for j, p in zip(mine.tolist(), chances.probability[start[i] : start[i + 1]], strict=True):
                    assert p == pytest.approx(of[j], abs=tolerance + 1e-10)
        assert len(found) < 5 * 8
    start, found = nearest_candidates(Certain(means[:9]), Certain(means))
    assert np.diff(start).tolist() == [1] * 9
    assert found.tolist() == list(range(9))


def test_two_points_at_one_distance():
    """The earlier one, as pandas takes it; none is left out."""
    for times, wanted in (([3.0, 7.0], [1.0, 0.0]), ([7.0, 3.0], [0.0, 1.0]), ([0.1, 0.5], [0.0, 1.0])):
        start, found = nearest_candidates(Certain(5.0), Certain(times))
        chances = dict(zip(found.tolist(), nearest_events(Certain(5.0), Certain(times), start, found)[0], strict=True))
        assert [chances.get(j, 0.0) for j in range(2)] == wanted
    edges = Histogram([[2.0, 3.0]], [[1.0]])
    assert all_of(edges, Certain([1.0, 4.0])).probability == pytest.approx([0.5, 0.5], abs=1e-15)
