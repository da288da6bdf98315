"""``TimingJoin`` against the oracle: every pair once, whatever the order of arrival."""

from __future__ import annotations

import numpy as np
import pytest

import oracle_time as oracle
from haply.errors import HaplyError
from haply.joins import TimingJoin
from haply.joins.operators.timing import join as join_module
from haply.joins.operators.timing import stored as stored_module
from haply.joins.operators.timing import tables as tables_module
from haply.models import Certain, Gaussian, Histogram, Samples, TruncatedGaussian, Uniform
from haply.probability import equal_within
from haply.pruning.threshold import Threshold

PHI_1 = oracle.histogram((0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6"))
PHI_2 = oracle.histogram((0, 10, "0.15"), (10, 20, "0.3"), (20, 30, "0.4"), (30, 40, "0.15"))
SIDES = {"A": "left", "B": "right"}


def model_of(histograms):
    return Histogram(
        [[float(e) for e in h.edges] for h in histograms], [[float(p) for p in h.probs] for h in histograms]
    )


def run(join, arrivals, at_once, rng):
    """Push events in their order, some together; returns the pairs with their probabilities, each once."""
    found = {}
    kinds = [(side, oracle.length(h) == 0) for side, _, h in arrivals]
    k = 0
    while k < len(arrivals):
        stop, most = k + 1, int(rng.integers(1, at_once + 1))
        while stop < len(arrivals) and kinds[stop] == kinds[k] and stop - k < most:
            stop += 1
        side, is_point = kinds[k]
        ids, times = np.array([event[1] for event in arrivals[k:stop]]), [event[2] for event in arrivals[k:stop]]
        model = Certain([float(oracle.last(h)) for h in times]) if is_point else model_of(times)
        result = join.push(SIDES[side], {"id": ids, "time": model})
        assert not len(result.late)
        for i, j, p in zip(result.left.tolist(), result.right.tolist(), result.probability, strict=True):
            assert (i, j) not in found, "a pair was doubled"
            found[i, j] = p
        k = stop
    return found


def assert_same(found, lefts, rights, d, delta, strict, exact):
    wanted = oracle.timing_pairs(lefts, rights, d, delta, strict)
    unsure = {pair for pair, p in wanted.items() if oracle.borderline(p, delta, strict)}
    for pair in found.keys() ^ wanted.keys():
        p = oracle.band(dict(lefts)[pair[0]], dict(rights)[pair[1]], d)
        assert pair in unsure or oracle.borderline(p, delta, strict), (pair, float(p))
    if exact:
        for pair, p in found.items():
            assert p == pytest.approx(float(oracle.band(dict(lefts)[pair[0]], dict(rights)[pair[1]], d)), abs=1e-12)
    return len(wanted)


# -- equality ----------------------------------------------------------------------------------------------------------


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_each_pair_once_in_any_order(seed, given, monkeypatch):
    """Late events, stalls, points and empty buckets, any window, tables early or never."""
    rng = np.random.default_rng(1000 * given + seed)
    hot = int(rng.choice([0, 3, 10**6]))
    for module in (join_module, tables_module):
        monkeypatch.setattr(module, "HOT", hot)
    templates = {side: [oracle.random_template(rng) for _ in range(int(rng.integers(1, 5)))] for side in "AB"}
    events = {side: oracle.random_events(rng, side, templates[side], 40) for side in "AB"}
    delay = int(rng.choice([0, 3, 25]))
    d = float(rng.choice([0, 2, 10, 30, 60]))
    delta = [0.05, 0.3, 0.5, 0.8, 0.95, 1.0, None][int(rng.integers(7))]
    strict, exact = bool(rng.random() < 0.3) and delta is not None, bool(rng.random() < 0.6)
    order = oracle.arrivals(rng, events["A"] + events["B"], delay, stall=int(rng.choice([0, 50])))
    whole = {side: [t for t in templates[side] if oracle.length(t) > 0] for side in "AB"}
    shapes = {SIDES[side]: model_of(whole[side]) for side in "AB" if whole[side]}
    join = TimingJoin(
        d, delta, max_delay=delay, strict=strict, probability="exact" if exact else "none",
        partitions="tight" if rng.random() < 0.7 else "free", templates=shapes if given and len(shapes) == 2 else None,
    )  # fmt: skip
    found = run(join, order, int(rng.choice([1, 5, 40])), rng)
    lefts, rights = ([(k, h) for _, k, h in events[side]] for side in "AB")
    assert_same(found, lefts, rights, d, delta, strict, exact)


def test_the_cases_have_pairs():
    """What the test above relies on."""
    rng = np.random.default_rng(0)
    templates = [oracle.random_template(rng) for _ in range(4)]
    lefts, rights = ([(k, h) for _, k, h in oracle.random_events(rng, side, templates, 40)] for side in "AB")
    assert len(oracle.timing_pairs(lefts, rights, 10, 0.3)) > 30


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("right", [Gaussian, Uniform, TruncatedGaussian, Samples, Certain])
@pytest.mark.parametrize("left", [Histogram, Gaussian])
def test_every_kind_of_time(left, right):
    rng = np.random.default_rng(7)
    made = {
        Histogram: lambda t: Histogram(np.stack([t - 9.0, t - 3.0, t], axis=1), np.tile([0.25, 0.75], (len(t), 1))),
        Gaussian: lambda t: Gaussian(t - 5.0, rng.uniform(0.2, 3.0, len(t))),
        Uniform: lambda t: Uniform(t - rng.uniform(0.5, 4.0, len(t)), t),
        TruncatedGaussian: lambda t: TruncatedGaussian(t - 3.0, np.full(len(t), 2.0), t - 6.0, t),
        Samples: lambda t: Samples(np.stack([t - 4.0, t - 1.0, t], axis=1)[:, :, None].reshape(len(t), 3)),
        Certain: Certain,
    }
    sides = [made[kind](np.sort(rng.uniform(0.0, 200.0, 150))) for kind in (left, right)]
    join = TimingJoin(4.0, 0.4, max_delay=1e6)
    join.push("left", {"id": np.arange(150), "time": sides[0]})
    found = join.push("right", {"id": np.arange(150), "time": sides[1]})
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(150), np.arange(150), indexing="ij"))
    wanted = equal_within(sides[0].take(i), sides[1].take(j), 4.0)
    kept = Threshold(0.4).keep(wanted, counts=False)
    assert 50 < kept.sum() < 3000
    probabilities = dict(zip(zip(i[kept].tolist(), j[kept].tolist(), strict=True), wanted[kept], strict=True))
    assert set(zip(found.left.tolist(), found.right.tolist(), strict=True)) == probabilities.keys()
    for pair, p in zip(zip(found.left.tolist(), found.right.tolist(), strict=True), found.probability, strict=True):
        assert p == pytest.approx(probabilities[pair], abs=1e-12)


# -- goldens of the notes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift_1", "shift_2", "d", "wanted"),
    [(20, 70, 40, 387 / 800), (20, 70, 50, 123 / 160), (170, 70, 100, 37 / 160), (170, 70, 98, 939 / 5000)],
)
def test_golden_6(shift_1, shift_2, d, wanted):
    join = TimingJoin(d, 0.01)
    join.push("left", {"id": [0], "time": model_of([oracle.shifted(PHI_1, shift_1)])})
    found = join.push("right", {"id": [0], "time": model_of([oracle.shifted(PHI_2, shift_2)])})
    assert found.probability == pytest.approx([wanted], abs=1e-14)


def test_golden_8_tight_and_free_ranges():
    both = model_of([PHI_1, PHI_2])
    tight = TimingJoin(50, 0.8, templates=both, probability="none")._tables.ranges("left")
    found = [210.0 + float(bounds[0]) for bounds in tight[:4]]
    assert found == pytest.approx([168.7695793116, 258.5907854728, 180.1114839714, 251.2304206884], abs=1e-6)
    free = TimingJoin(50, 0.8, templates=both, probability="none", partitions="free")._tables.ranges("left")
    assert [210.0 + float(bounds[0]) for bounds in free[:4]] == [120.0, 300.0, 200.0, 220.0]


def test_golden_12_what_is_forgotten():
    """low = -48.5907854728 both ways: what lies further behind the newest is gone, what is nearer is kept."""
    for side, other in (("left", "right"), ("right", "left")):
        join = TimingJoin(50, 0.8, templates=model_of([PHI_1, PHI_2]))
        for at in (51.40, 51.42):
            join.push(other, {"id": [0], "time": model_of([oracle.detected(PHI_1, at)])})
        join.push(side, {"id": [0], "time": model_of([oracle.detected(PHI_2, 100)])})
        assert join.stored == {side: 1, other: 1}


def test_golden_14_occurrence_times_join_where_detections_do_not():
    detected = Certain([60.0]), Certain([110.0])
    occurred = Certain([60.0 - 20.0]), Certain([110.0 - 40.0])
    for times, pairs in ((detected, 0), (occurred, 1)):
        join = TimingJoin(40, 0.5)
        join.push("left", {"id": [0], "time": times[0]})
        assert len(join.push("right", {"id": [0], "time": times[1]})) == pairs


# -- what is lost, kept and told ---------------------------------------------------------------------------------------


def test_late_events_are_reported():
    join = TimingJoin(10, 0.5, max_delay=5)
    join.push("left", {"id": [0, 1], "time": [100.0, 95.0]})
    result = join.push("left", {"id": [2, 3, 4], "time": [94.9, 95.0, 200.0]})
    assert result.late.tolist() == [2]
    assert join.late == {"left": 1, "right": 0}
    found = join.push("right", {"id": [7, 8], "time": [97.0, 196.0]})
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [(0, 7), (1, 7), (3, 7), (4, 8)]


def test_events_that_reach_back_too_far_are_reported():
    join = TimingJoin(1, 0.3)
    for at in np.arange(0.0, 100.0):
        for side in ("left", "right"):
            assert not len(join.push(side, {"id": [int(at)], "time": Uniform([at], [at + 1.0])}).cut_short)
    assert max(join.stored.values()) < 10
    # most of it lies where events have been forgotten
    found = join.push("left", {"id": [500], "time": Histogram([[20.0, 21.0, 101.0]], [[0.9, 0.1]])})
    assert found.cut_short.tolist() == [500]


def test_memory_is_flat_and_a_stall_keeps_all():
    rng = np.random.default_rng(5)
    templates = [PHI_1, PHI_2]
    join = TimingJoin(50, 0.8, templates=model_of(templates), max_delay=10)
    most = 0
    for k in range(300):
        for side in ("left", "right"):
            if side == "right" and 100 <= k < 200:
                continue
            times = [oracle.detected(templates[int(rng.integers(2))], 10 * k + int(rng.integers(10))) for _ in range(3)]
            join.push(side, {"id": np.arange(3), "time": model_of(times)})
        most = max(most, sum(join.stored.values())) if k < 100 else most
        if k == 199:
            assert join.stored["left"] > 3 * 100, "all that the stalled side may still meet"
    assert sum(join.stored.values()) <= most <= 60
    join.expire(5000.0)
    assert join.stored == {"left": 0, "right": 0}


def test_snapshot_and_restore():
    rng = np.random.default_rng(9)
    templates = [PHI_1, PHI_2]
    events = [event for side in "AB" for event in oracle.random_events(rng, side, templates, 60)]
    order = oracle.arrivals(rng, events, 5)
    plain, stopped = (TimingJoin(30, 0.5, max_delay=5) for _ in range(2))
    wanted = run(plain, order, 1, rng)
    found = run(stopped, order[:50], 1, rng)
    restored = TimingJoin.restore(stopped.snapshot())
    assert restored.stored == stopped.stored
    found |= run(restored, order[50:], 1, rng)
    assert found == pytest.approx(wanted, abs=1e-13)
    assert len(found) > 50
    assert restored.funnel.kept == plain.funnel.kept == len(found)
    closed = TimingJoin.restore(restored.snapshot())
    closed.close("left")
    assert closed.stored["right"] == 0


def test_the_funnel_adds_up():
    rng = np.random.default_rng(3)
    at = np.sort(rng.integers(0, 3000, (2, 2000)), axis=1).astype(float)
    sides = [model_of([oracle.detected(PHI_1 if k % 2 else PHI_2, int(t)) for k, t in enumerate(side)]) for side in at]
    for mode in ("exact", "none"):
        join = TimingJoin(50, 0.8, probability=mode)
        join.push("left", {"id": np.arange(2000), "time": sides[0]})
        result = join.push("right", {"id": np.arange(2000), "time": sides[1]})
        funnel = join.funnel
        decided = sum(funnel.rejected.values()) + sum(funnel.accepted.values())
        assert funnel.candidates == funnel.evaluated + decided
        assert funnel.kept == len(result) > 10_000
        assert join.shapes == {"left": 2, "right": 2}
        assert set(result.decided_by) <= {"exact value", "shift", "core"}
        if mode == "none":
            assert funnel.evaluated < 0.5 * funnel.kept, "most are decided by their shift alone"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"window": -1, "threshold": 0.5}, "window is no length"),
        ({"window": None, "threshold": 0.5}, "window is no length of time.*Found None"),
        ({"window": "40 seconds", "threshold": 0.5}, "window is no length of time.*Found '40 seconds'"),
        ({"window": 1, "threshold": 0.5, "max_delay": (0, 2)}, "max_delay is no length of time"),
        ({"window": True, "threshold": 0.5}, "window is no length of time"),
        ({"window": 1, "threshold": 1.5}, "threshold is not a probability"),
        ({"window": 1, "threshold": 0}, "threshold is not a probability"),
        ({"window": 1, "threshold": 0.5, "max_delay": -2}, "max_delay is no length"),
        ({"window": 1, "threshold": 0.5, "probability": "maybe"}, "maybe"),
        ({"window": 1, "threshold": 0.5, "partitions": "loose"}, "loose"),
        ({"window": 1, "threshold": 0.5, "templates": {"middle": Certain([0.0])}}, "middle"),
        ({"window": 1, "threshold": 0.5, "templates": [1, 2]}, "no model"),
        ({"window": 1, "threshold": 0.5, "templates": Gaussian([0.0], [1.0])}, "cannot be tabulated"),
    ],
)
def test_errors_when_it_is_built(arguments, text):
    with pytest.raises(HaplyError, match=text):
        TimingJoin(**arguments)


def test_errors_when_pushed():
    join = TimingJoin(1, None)
    with pytest.raises(HaplyError, match="Without a threshold"):
        join.push("left", {"id": [1], "time": Gaussian([0.0], [1.0])})
    with pytest.raises(HaplyError, match="side"):
        join.push("up", {"id": [1], "time": [0.0]})
    with pytest.raises(HaplyError, match="disagrees in length"):
        join.push("left", {"id": [1, 2], "time": [0.0]})
    with pytest.raises(HaplyError, match="edges not increasing"):
        Histogram([[0.0, 2.0, 1.0]], [[0.5, 0.5]])
    join.close("left")
    with pytest.raises(HaplyError, match="closed"):
        join.push("left", {"id": [1], "time": [0.0]})


def test_only_equal_keys_meet():
    rng = np.random.default_rng(31)
    at = rng.integers(0, 300, (2, 200)).astype(float)
    keys = rng.integers(0, 7, (2, 200))
    models = [Uniform(side - 4.0, side) for side in at]
    join = TimingJoin(5, 0.5, max_delay=1000)
    found = []
    for part in np.array_split(rng.permutation(200), 6):
        for k, side in enumerate(("left", "right")):
            batch = {"id": part, "time": models[k].take(part), "key": keys[k][part]}
            result = join.push(side, batch)
            found += zip(result.left.tolist(), result.right.tolist(), strict=True)
        join = TimingJoin.restore(join.snapshot())
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(200), np.arange(200), indexing="ij"))
    near = equal_within(models[0].take(i), models[1].take(j), 5.0) >= 0.5
    kept = near & (keys[0][i] == keys[1][j])
    assert 50 < kept.sum() < near.sum() / 4
    assert sorted(found) == sorted(zip(i[kept].tolist(), j[kept].tolist(), strict=True))


def own_shapes(rng, places):
    """Histograms of which no two are alike, in the order of their ends."""
    rows = []
    for place in places:
        widths = rng.uniform(0.5, 8.0, int(rng.integers(1, 5)))
        weights = rng.uniform(0.1, 1.0, len(widths))
        edges = place - np.append(np.cumsum(widths[::-1])[::-1], 0.0)
        rows.append((edges.tolist(), (weights / weights.sum()).tolist()))
    return rows


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("most", "kind"), [(1024, "int"), (5, "int"), (5, "text")])
def test_pushes_of_one_row_find_what_one_batch_finds(monkeypatch, seed, most, kind):
    """Shapes of their own, more than have numbers or fewer; events of points among them; a restart in the middle."""
    for module in (join_module, stored_module, tables_module):
        monkeypatch.setattr(module, "MOST_SHAPES", most)
    monkeypatch.setattr(stored_module, "_SMALL_CHUNK", 16)
    rng = np.random.default_rng(seed)
    places = [np.sort(rng.uniform(0.0, 300.0, 150)) for _ in range(2)]
    rows = [own_shapes(rng, own) for own in places]
    points = [rng.random(150) < 0.2 for _ in range(2)]
    ids = [np.array([f"{side}{k}" for k in range(150)]) if kind == "text" else np.arange(150) for side in "lr"]

    def model(side, k):
        return Samples([rows[side][k][0]]) if points[side][k] else Histogram([rows[side][k][0]], [rows[side][k][1]])

    def pairs(result):
        return list(
            zip(result.left.tolist(), result.right.tolist(), result.probability, result.decided_by, strict=True)
        )

    whole, wanted = TimingJoin(6.0, 0.3, max_delay=1e6), []
    for side, name in enumerate(("left", "right")):
        for chosen in (points[side], ~points[side]):
            picked = np.flatnonzero(chosen)
            edges, probs = zip(*(rows[side][k] for k in picked), strict=True)
            column = Samples(list(edges)) if chosen is points[side] else Histogram(list(edges), list(probs))
            wanted += pairs(whole.push(name, {"id": ids[side][picked], "time": column}))
    order = [(float(place), side, k) for side in range(2) for k, place in enumerate(places[side])]
    order.sort(key=lambda each: each[0] + rng.uniform(0.0, 20.0))
    join, found = TimingJoin(6.0, 0.3, max_delay=20.0), []
    for step, (_, side, k) in enumerate(order):
        if step in (80, 200):
            stored = join.stored
            join = TimingJoin.restore(join.snapshot())
            assert join.stored == stored
        result = join.push(("left", "right")[side], {"id": ids[side][k : k + 1], "time": model(side, k)})
        assert not len(result.late)
        found += pairs(result)
    assert len(wanted) > 200
    assert [each[:2] for each in sorted(found)] == [each[:2] for each in sorted(wanted)], "lost, invented or doubled"
    for one, other in zip(sorted(found), sorted(wanted), strict=True):
        assert abs(one[2] - other[2]) < 1e-12
    assert max(join.stored.values()) < 60, "events are forgotten"
    assert all(own.shapes.unshared <= 2 * 60 + 16 + 1 for own in join._sides.values()), "and their shapes with them"


def test_events_that_come_in_any_order_need_no_kernels_of_their_own() -> None:
    """Arrays that are laid out otherwise in memory would have all kernels compiled once more."""
    times = Histogram([[5.0, 6.0], [1.0, 2.0], [3.0, 4.0]], [[1.0]] * 3)
    batch = TimingJoin(1.0, 0.5)._sides["left"].describe(times)
    assert batch.row.tolist() == [1, 2, 0]
    assert all(fact.flags.c_contiguous for fact in (batch.facts, *batch.events))
