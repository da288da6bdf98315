"""The last event before an uncertain time: golden values, sums over all outcomes, integrals, and what is left out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Histogram, Mixture, Samples, TruncatedGaussian, Uniform
from haply.probability import region_probability
from haply.probability.events.last import event_candidates, last_events
from haply.probability.region import Region
from laws_kit import KINDS, draw, last_reference, law_of_row, model_of_laws, random_law


def all_of(left, right, **options):
    """With all right rows as candidates of all left rows."""
    start = np.arange(len(left) + 1) * len(right)
    return last_events(left, right, start, np.tile(np.arange(len(right)), len(left)), **options)


def sums(found, start):
    """The probabilities of each left row together."""
    ends = np.append(0.0, np.cumsum(found.probability))
    return ends[start[1:]] - ends[start[:-1]] + found.none


# -- golden values ---------------------------------------------------------------------------------------------------

EVENTS = Uniform([0, 2, 5], [3, 5, 7])
NORMALS = Gaussian([0, 0.5, 2], [1, 0.5, 1])


@pytest.mark.parametrize(
    ("left", "right", "lookback", "wanted", "none"),
    [
        (Uniform(4, 6), EVENTS, None, [19 / 144, 107 / 144, 1 / 8], 0.0),
        (Uniform(4, 6), EVENTS, 2.0, [1 / 27, 14 / 27, 1 / 8], 23 / 72),
        (
            Histogram([[0, 1, 3]], [[0.25, 0.75]]),
            Histogram([[0.5, 2, 4], [0, 2]], [[0.6, 0.4], [1]]),
            None,
            [287 / 960, 11 / 24],
            233 / 960,
        ),
        (Certain(5), Uniform([0, 1], [4, 6]), None, [17 / 40, 23 / 40], 0.0),
        (Certain(1), NORMALS, None, [0.279100930168334, 0.60528772876963, 0.0944334405363106], 0.0211779005257253),
        (
            Gaussian(1, 0.5),
            NORMALS,
            None,
            [0.300154855760868, 0.509105046749934, 0.121921410562428],
            0.068818686926767,
        ),
    ],
)
def test_golden_values(left, right, lookback, wanted, none):
    found = all_of(left, right, lookback=lookback)
    assert found.probability == pytest.approx(wanted, abs=2e-15)
    assert found.none == pytest.approx([none], abs=2e-15)


# -- against sums and integrals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookback", [None, 0.0, 1.0, 2.0])
def test_samples_are_sums_over_all_worlds(lookback):
    """In whole numbers, so that many events are at one time, or at an end."""
    rng = np.random.default_rng(1)
    back = math.inf if lookback is None else lookback
    for case in range(60):
        count = int(rng.integers(1, 5))
        times, *events = [rng.integers(0, 5, rng.integers(1, 4)).astype(float) for _ in range(count + 1)]
        weights = [rng.dirichlet(np.ones(len(one))) for one in (times, *events)]
        rank = rng.integers(0, 2, count) if case % 2 else rng.permutation(count)
        wanted, none = np.zeros(count), 0.0
        for world in itertools.product(*(range(len(one)) for one in (times, *events))):
            chance = np.prod([weight[k] for weight, k in zip(weights, world, strict=True)])
            t, s = times[world[0]], [one[k] for one, k in zip(events, world[1:], strict=True)]
            there = [(s[j], rank[j], j) for j in range(count) if s[j] <= t and t - s[j] <= back]
            if there:
                wanted[max(there)[2]] += chance
            else:
                none += chance
        found = all_of(Samples([times], weights[:1]), Samples(events, weights[1:]), rank=rank, lookback=lookback)
        assert found.probability == pytest.approx(wanted, abs=3e-15)
        assert found.none[0] == pytest.approx(none, abs=3e-15)


@pytest.mark.long(keep=12)
@pytest.mark.parametrize("case", range(60))
def test_any_kinds_are_those_of_many_nodes(case):
    """Points and the lower ends of uniforms are multiples of 1/2, the lookback too: there are ties of all sorts."""
    rng = np.random.default_rng(case)
    kind, count = KINDS[case % len(KINDS)], int(rng.integers(1, 4))
    kinds = [kind if rng.random() < 0.5 else str(rng.choice(KINDS)) for _ in range(count)]
    events = [random_law(rng, one, 1.0, 0.5) for one in kinds]
    time, rank = random_law(rng, kind, 1.0, 0.5), rng.integers(0, 3, count)
    lookback = [math.inf, 0.5, 1.5][case % 3]
    found = all_of(
        model_of_laws([time]), model_of_laws(events), rank=rank, lookback=None if case % 3 == 0 else lookback
    )
    wanted, none = last_reference(time, events, rank, lookback)
    assert found.probability == pytest.approx(wanted, abs=1e-13)
    assert found.none[0] == pytest.approx(none, abs=1e-13)
    assert found.probability.sum() + found.none[0] == pytest.approx(1.0, abs=1e-14)


def models_of_many_kinds(rng, size):
    """Points are multiples of 1/8, so that there are ties."""
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
    ]


def laws_of(model):
    return model_of_laws([law_of_row(model, row) for row in range(len(model))])


@pytest.mark.parametrize("lookback", [None, 0.375, 1.1])
def test_models_in_order_are_those_that_are_not(lookback):
    """Histograms and samples are walked along; the same laws without an order are not."""
    rng = np.random.default_rng(3)
    for left, right in itertools.product(models_of_many_kinds(rng, 3), models_of_many_kinds(rng, 5)):
        found, plain = (all_of(*side, lookback=lookback) for side in ((left, right), (laws_of(left), laws_of(right))))
        assert found.probability == pytest.approx(plain.probability, abs=1e-14)
        assert found.none == pytest.approx(plain.none, abs=1e-14)
        assert sums(found, np.arange(4) * 5) == pytest.approx(np.ones(3), abs=1e-14)


def test_one_event_is_before_or_not():
    rng = np.random.default_rng(4)
    for left, right in itertools.product(models_of_many_kinds(rng, 4), models_of_many_kinds(rng, 4)):
        for lookback in (None, 0.5):
            region = Region(0.0, math.inf if lookback is None else lookback)
            found = last_events(left, right, np.arange(5), np.arange(4), lookback=lookback)
            assert found.probability == pytest.approx(region_probability(left, right, region), abs=1e-14)


@pytest.mark.parametrize("seed", range(6))
def test_draws_agree(seed):
    rng = np.random.default_rng(seed)
    count, size = 5, 200_000
    events = [random_law(rng, str(rng.choice(KINDS)), 1.0, 0.5) for _ in range(count)]
    time, back = random_law(rng, KINDS[seed + 1], 1.0, 0.5), 1.5 if seed % 2 else math.inf
    found = all_of(model_of_laws([time]), model_of_laws(events), lookback=None if math.isinf(back) else back)
    t, s = draw(rng, time, size), np.array([draw(rng, law, size) for law in events])
    there = np.where((s <= t) & (t - s <= back), s, -math.inf)
    best = count - 1 - np.argmax(there[::-1], axis=0)  # of equal times that of the largest row
    best[np.isinf(there.max(axis=0))] = count
    for k, share in enumerate([*found.probability, found.none[0]]):
        assert np.mean(best == k) == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / size) + 5 / size)


def test_probabilities_sum_to_one():
    rng = np.random.default_rng(5)
    for case in range(150):
        count = int(rng.integers(1, 12))
        laws = [random_law(rng, str(rng.choice(KINDS)), 2.0, 0.25) for _ in range(count)]
        found = all_of(
            model_of_laws([random_law(rng, KINDS[case % len(KINDS)], 1.0, 0.25)]), model_of_laws(laws),
            lookback=[None, 0.25, 1.0, 3.3][case % 4],
        )  # fmt: skip
        assert found.probability.sum() + found.none[0] == pytest.approx(1.0, abs=1e-13)
        assert (found.probability >= 0.0).all()


# -- the other way, and certain times --------------------------------------------------------------------------------


def negative(model):
    """The rows of ``-X``."""
    laws = []
    for row in range(len(model)):
        laws.append([])
        for weight, kind, *numbers in law_of_row(model, row):
            if kind in ("point", "uniform"):
                laws[-1].append((weight, kind, *(-number for number in reversed(numbers))))
            else:
                laws[-1].append((weight, kind, -numbers[0], numbers[1], *(-number for number in reversed(numbers[2:]))))
    return model_of_laws(laws)


@pytest.mark.parametrize("lookback", [None, 0.75])
def test_forward_is_backward_of_negative_times(lookback):
    rng = np.random.default_rng(6)
    for left, right in itertools.product(models_of_many_kinds(rng, 2), models_of_many_kinds(rng, 4)):
        found = all_of(left, right, lookback=lookback, direction="forward")
        wanted = all_of(negative(left), negative(right), lookback=lookback)
        assert found.probability == pytest.approx(wanted.probability, abs=1e-14)
        assert found.none == pytest.approx(wanted.none, abs=1e-14)


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("lookback", [None, 3.0])
def test_certain_times_are_those_of_pandas(direction, lookback):
    rng = np.random.default_rng(7)
    times, events = np.sort(rng.integers(0, 60, 40)).astype(float), np.sort(rng.integers(0, 60, 30)).astype(float)
    keys, event_keys = rng.integers(0, 3, 40), rng.integers(0, 3, 30)
    start, rows = event_candidates(
        Certain(times), Certain(events), lookback=lookback, direction=direction, left_key=keys, right_key=event_keys
    )
    rank = rows if direction == "backward" else -rows
    found = last_events(
        Certain(times), Certain(events), start, rows, rank=rank, lookback=lookback, direction=direction
    )  # fmt: skip
    wanted = pd.merge_asof(
        pd.DataFrame({"t": times, "key": keys}), pd.DataFrame({"t": events, "key": event_keys, "row": range(30)}),
        on="t", by="key", direction=direction, tolerance=lookback,
    )["row"]  # fmt: skip
    for i in range(40):
        mine = rows[start[i] : start[i + 1]][found.probability[start[i] : start[i + 1]] == 1.0].tolist()
        assert mine == ([] if math.isnan(wanted[i]) else [int(wanted[i])])
        assert found.none[i] == float(math.isnan(wanted[i]))


# -- which events matter ---------------------------------------------------------------------------------------------


def crowd(rng, size, kind):
    """Events all over 0 to 40, some of them much longer than others."""
    place, length = rng.uniform(0.0, 40.0, size), 10.0 ** rng.uniform(-1.0, 0.8, size)
    if kind == "certain":
        return Certain(np.round(place))
    if kind == "uniform":
        return Uniform(place, place + length)
    if kind == "gaussian":
        return Gaussian(place, 0.3 * length)
    if kind == "samples":
        return Samples(place[:, None] + length[:, None] * rng.uniform(0.0, 1.0, (size, 4)))
    edges = place[:, None] + length[:, None] * np.array([0.0, 0.2, 1.0])
    return Histogram(edges, np.tile([0.7, 0.3], (size, 1)))


@pytest.mark.long(keep=10)
@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("lookback", [None, 2.0])
@pytest.mark.parametrize("kind", ["certain", "uniform", "gaussian", "samples", "histogram"])
def test_what_is_left_out_is_less_than_the_tolerance(kind, lookback, direction):
    rng = np.random.default_rng(8)
    left, right = crowd(rng, 12, kind), crowd(rng, 60, kind)
    whole = all_of(left, right, lookback=lookback, direction=direction)
    kept = []
    for tolerance in (1e-9, 1e-2, 0.3):
        start, rows = event_candidates(left, right, tolerance=tolerance, lookback=lookback, direction=direction)
        found = last_events(left, right, start, rows, lookback=lookback, direction=direction)
        kept.append(len(rows))
        for i in range(12):
            mine = rows[start[i] : start[i + 1]]
            assert len(set(mine.tolist())) == len(mine)
            before, after = whole.probability[60 * i : 60 * i + 60], found.probability[start[i] : start[i + 1]]
            assert before.sum() - before[mine].sum() <= tolerance
            assert (np.abs(after - before[mine]) <= tolerance + 1e-13).all()
            assert abs(found.none[i] - whole.none[i]) <= tolerance + 1e-13
    assert kept[0] < 0.6 * 12 * 60
    assert kept[0] >= kept[1] >= kept[2]


def test_a_sure_event_ends_the_walk():
    events = Uniform(np.arange(1000.0), np.arange(1000.0) + 1.5)
    _, rows = event_candidates(Uniform([500.0], [501.0]), events)
    assert set(rows.tolist()) <= {497, 498, 499, 500, 501}  # that at 498 is over at 499.5: those before 497 are earlier
    _, rows = event_candidates(Certain([500.5]), Certain(np.repeat(np.arange(1000.0), 3)))
    assert sorted(rows.tolist()) == [1500, 1501, 1502]
    assert event_candidates(Certain([-1.0]), events)[1].tolist() == []


def test_keys_keep_events_apart():
    rng = np.random.default_rng(10)
    left, right = crowd(rng, 9, "uniform"), crowd(rng, 40, "uniform")
    left_key, right_key = rng.integers(0, 4, 9), rng.integers(0, 3, 40)
    start, rows = event_candidates(left, right, left_key=left_key, right_key=right_key)
    for i in range(9):
        mine, same = rows[start[i] : start[i + 1]], np.flatnonzero(right_key == left_key[i])
        alone = event_candidates(left.take(np.array([i])), right.take(same))[1]
        assert set(mine.tolist()) == set(same[alone].tolist())


# -- extremes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookback", [None, 0.75])
@pytest.mark.parametrize("power", [-1000, -500, -60, 60, 500, 1000])
def test_probabilities_do_not_depend_on_the_unit(power, lookback):
    rng = np.random.default_rng(11)
    left, right = (
        [random_law(rng, kind, 1.0, 0.25) for kind in KINDS],
        [random_law(rng, kind, 1.0, 0.25) for kind in KINDS],
    )
    scale = 2.0**power

    def scaled(laws):
        return model_of_laws([[(w, kind, *(scale * n for n in numbers)) for w, kind, *numbers in law] for law in laws])

    here = all_of(model_of_laws(left), model_of_laws(right), lookback=lookback)
    there = all_of(scaled(left), scaled(right), lookback=None if lookback is None else scale * lookback)
    assert there.probability == pytest.approx(here.probability, abs=1e-14)
    assert there.none == pytest.approx(here.none, abs=1e-14)


def test_narrow_times_keep_their_digits():
    """Near zero while the left time is far, and far from zero themselves."""
    tiny = all_of(Uniform(1000.0, 1001.0), Uniform([0.0, 0.0], [1e-12, 1e-12]))
    assert tiny.probability == pytest.approx([0.5, 0.5], abs=1e-14)
    unit, far = 2.0**-40, 1024.0
    wanted = all_of(Uniform(4.0, 6.0), EVENTS).probability
    moved = all_of(
        Uniform(far + 4 * unit, far + 6 * unit),
        Uniform(far + unit * np.array([0.0, 2.0, 5.0]), far + unit * np.array([3.0, 5.0, 7.0])),
    )
    assert moved.probability == pytest.approx(wanted, abs=1e-14)
    near = all_of(Gaussian(far + unit, 0.5 * unit), Gaussian(far + unit * np.array([0, 0.5, 2]), unit * NORMALS.sd))
    assert near.probability == pytest.approx(all_of(Gaussian(1, 0.5), NORMALS).probability, abs=1e-14)


@pytest.mark.parametrize("kind", ["uniform", "normal", "samples", "histogram", "mixed"])
def test_thirty_events_and_equal_ones(kind):
    rng = np.random.default_rng(12)
    laws = [random_law(rng, kind, 2.0, 0.25) for _ in range(30)]
    time = model_of_laws([random_law(rng, "normal", 1.0)])
    found = all_of(time, model_of_laws(laws))
    assert found.probability.sum() + found.none[0] == pytest.approx(1.0, abs=1e-13)
    twins = all_of(time, model_of_laws([laws[0]] * 6))
    continuous = all(part[1] != "point" for part in laws[0])
    if continuous:  # equal events are equally likely, but for ties
        assert twins.probability == pytest.approx(np.full(6, twins.probability[0]), abs=1e-13)
    assert twins.probability.sum() + twins.none[0] == pytest.approx(1.0, abs=1e-13)


def test_ranks_decide_ties():
    for rank, wanted in (([2, 1, 0], [1.0, 0.0, 0.0]), ([0, 5, 5], [0.0, 0.0, 1.0]), (None, [0.0, 0.0, 1.0])):
        found = all_of(Uniform(3.0, 4.0), Certain([1.0, 1.0, 1.0]), rank=rank)
        assert found.probability == pytest.approx(wanted, abs=1e-15)


def test_rows_without_events():
    found = last_events(Uniform([0.0, 5.0], [1.0, 6.0]), Uniform(2.0, 3.0), [0, 0, 1], [0])
    assert found.none.tolist() == [1.0, 0.0]
    assert all_of(Uniform(0.0, 1.0), Uniform(2.0, 3.0)).none.tolist() == [1.0]
    assert len(last_events(Uniform([], []), EVENTS, [0], []).none) == 0


def test_mistakes_are_told():
    with pytest.raises(HaplyError, match="direction"):
        all_of(Certain(1.0), EVENTS, direction="nearest")
    with pytest.raises(HaplyError, match="lookback"):
        all_of(Certain(1.0), EVENTS, lookback=-1.0)
    with pytest.raises(HaplyError, match="Ranks"):
        all_of(Certain(1.0), EVENTS, rank=[1])
