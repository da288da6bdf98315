"""The join of positions batch by batch against brute force: any order, windows and groups, old rows forgotten."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import oracle_position as oracle
from haply.errors import HaplyError
from haply.joins import PositionJoin, join_positions
from haply.joins.operators import batches
from haply.joins.operators.operator import RowBatch
from haply.joins.operators.position import match_positions
from haply.models import Certain, Gaussian, GaussianND, MixtureND, Samples, Uniform, sky_positions
from haply.models.columns import stacked
from haply.probability.multivariate import parts
from haply.probability.region import Distance
from haply.pruning.bounds.positions import PositionSide, limits, no_counts
from haply.pruning.bounds.positions.search import _cells
from haply.pruning.ownership import Places
from haply.pruning.threshold import Threshold

SIDES = ("left", "right")
HAIR = 1e-9
WINDOWS = (None, 0.0, 3.0, 20.0)


def correlated(rng, count, dim=2, box=4.0):
    """Gaussians with a full covariance: narrow, wide, and far too wide for any partner."""
    size = np.array([0.05, 0.3, 0.6, 9.0])[rng.integers(0, 4, count)]
    root = rng.normal(size=(count, dim, dim)) * size[:, None, None]
    return GaussianND(rng.uniform(0.0, box, (count, dim)), root @ root.transpose(0, 2, 1))


def mixtures(rng, count):
    weights, means, covs = [], [], []
    for _ in range(count):
        few = correlated(rng, int(rng.integers(1, 4)))
        weights.append(rng.dirichlet(np.ones(len(few))).tolist())
        means.append(few.mean().values.tolist())
        covs.append(few.cov.values.tolist())
    return MixtureND(weights, means, covs)


def crowd_on_the_sky(rng, count):
    """Sources around the place where right ascension begins again, close to the pole."""
    east, north = rng.uniform(-2.0, 2.0, (2, count))
    points = oracle.on_sphere(0.0, 89.999, east, north)
    ra = np.degrees(np.arctan2(points[:, 1], points[:, 0])) % 360.0
    dec = np.degrees(np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1])))
    return sky_positions(ra, dec, rng.uniform(0.0, 0.5, count), rng.uniform(0.1, 0.6, count), rng.uniform(-1, 1, count))


KINDS = {
    "gaussians": (correlated, correlated),
    "mixtures": (mixtures, correlated),
    "sky": (crowd_on_the_sky, crowd_on_the_sky),
    "points": (lambda rng, count: Samples(rng.uniform(0.0, 4.0, (count, 2)), dim=2), correlated),
    "clouds": (correlated, lambda rng, count: Samples(rng.uniform(0.0, 2.0, (count, 3, 2)))),
    "numbers": (
        lambda rng, count: Gaussian(rng.uniform(0, 9, count), rng.choice([0.1, 1.0], count)),
        lambda rng, count: Certain(rng.uniform(0, 9, count)),
    ),
}


def as_the_oracle_has_it(model):
    found = parts(model)
    covs = np.broadcast_to(found.cov, (len(found.mean), *found.cov.shape[1:]))
    some = [slice(begin, end) for begin, end in zip(found.start[:-1], found.start[1:], strict=True)]
    return [(found.weight[rows], found.mean[rows], covs[rows]) for rows in some]


class Case:
    """Two sides with times (many alike, some at the very end of a window) and groups, and every pair's probability."""

    def __init__(self, seed, kind, window, within=1.0, count=24):
        rng = np.random.default_rng(seed)
        self.rng, self.window, self.within, self.count = rng, window, within, count
        self.models = [make(rng, count) for make in KINDS[kind]]
        start = float(rng.choice([0.0, -1e6, 1e9]))
        self.times = [start + rng.integers(0, 60, count) for _ in SIDES]
        self.groups = [rng.integers(0, int(rng.choice([1, 3])), count).astype(float) for _ in SIDES]
        chance = oracle.near(*(as_the_oracle_has_it(model) for model in self.models), within)
        near = np.abs(self.times[0][:, None] - self.times[1]) <= (np.inf if window is None else window)
        self.chance = np.where(near & (self.groups[0][:, None] == self.groups[1]), chance, 0.0)

    def join(self, threshold, **options):
        return PositionJoin(self.within, threshold, window=self.window, **options)

    def push(self, join, side, rows):
        own = self.times[side][rows], self.groups[side][rows]
        return join.arrive(side, RowBatch.of(rows, self.models[side].take(rows), *own))

    def batches(self, in_order=False):
        """Both sides in batches of all sizes, any after any; in the order of time each side for itself."""
        order = [np.argsort(own, kind="stable") if in_order else self.rng.permutation(self.count) for own in self.times]
        cuts = [np.sort(self.rng.integers(0, self.count + 1, 9)) for _ in SIDES]
        waiting = [np.split(order[side], cuts[side])[::-1] for side in (0, 1)]
        while any(waiting):
            side = int(self.rng.integers(2)) if all(waiting) else int(not waiting[0])
            yield side, waiting[side].pop(), [self.times[k][rows] for k in (0, 1) for rows in waiting[k]]

    def check(self, found, threshold, strict=False, exact=True):
        columns = [np.concatenate([getattr(part, name) for part in found]) for name in ("left", "right", "probability")]
        pairs = list(zip(*(column.tolist() for column in columns), strict=True))
        assert max(Counter(pair[:2] for pair in pairs).values(), default=1) == 1, "doubled"
        got = np.zeros(self.chance.shape, bool)
        for i, j, p in pairs:
            got[i, j] = True
            assert abs(p - self.chance[i, j]) < HAIR if exact else np.isnan(p)
        wanted = self.chance > threshold if strict else self.chance >= threshold
        clear = np.abs(self.chance - threshold) > HAIR
        assert not (wanted & ~got & clear).any(), "missed"
        assert not (got & ~wanted & clear).any(), "invented"
        return len(pairs)


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", WINDOWS)
def test_batches_in_any_order(kind, window):
    kept = 0
    for seed, (threshold, strict, probability) in enumerate(
        [(0.2, False, "exact"), (0.6, True, "exact"), (0.4, False, "none"), (1e-6, False, "exact")]
    ):
        case = Case(seed, kind, window)
        join = case.join(threshold, strict=strict, probability=probability)
        found = [case.push(join, side, rows) for side, rows, _ in case.batches()]
        kept += case.check(found, threshold, strict, probability == "exact")
        assert join.funnel.kept == sum(len(part.left) for part in found)
        counted = no_counts()
        for part in found:
            counted.add(part.funnel)
        assert counted.flat() == join.funnel.flat()
    assert kept > 0


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("kind", ["gaussians", "mixtures", "sky", "points"])
@pytest.mark.parametrize("window", [0.0, 5.0])
def test_old_rows_are_forgotten_and_snapshots_change_nothing(kind, window, monkeypatch):
    """In the order of time, forgetting all that may be forgotten, put away and taken up in the middle."""
    monkeypatch.setattr(batches, "_FEW", 2)
    for seed in range(4):
        case = Case(10 + seed, kind, window)
        join, found = case.join(0.1), []
        for step, (side, rows, later) in enumerate(case.batches(in_order=True)):
            found.append(case.push(join, side, rows))
            oldest = min((own.min() for own in later if len(own)), default=np.inf)
            join.expire(oldest)
            alive = sum(int((own >= oldest - window - 1e-9 * abs(oldest)).sum()) for own in case.times)
            assert sum(len(join.ids(name)) for name in SIDES) <= 2 * alive
            if step % 5 == 4:
                join = PositionJoin.restore(join.snapshot())
        case.check(found, 0.1)
        assert join.funnel.kept == sum(len(part.left) for part in found)
        assert not len(join.ids("left"))
        assert join.stored_bytes == 0


def test_batches_of_a_side_may_differ_in_kind():
    """Gaussians, mixtures, samples and points by turns, as long as all have two coordinates."""
    rng = np.random.default_rng(3)
    sides = [[correlated(rng, 12), mixtures(rng, 12), Samples(rng.uniform(0, 4, (12, 2)), dim=2)] for _ in SIDES]
    join, found = PositionJoin(1.0, 0.2), []
    for k in range(3):
        for side, name in enumerate(SIDES):
            found.append(join.push(name, {"id": np.arange(12 * k, 12 * k + 12), "pos": sides[side][k]}))
    lefts, rights = ([row for model in side for row in as_the_oracle_has_it(model)] for side in sides)
    chance = oracle.near(lefts, rights, 1.0)
    got = {(int(i), int(j)) for part in found for i, j in zip(part.left, part.right, strict=True)}
    assert got == {tuple(pair) for pair in np.argwhere(chance >= 0.2).tolist()}
    assert sum(len(part.left) for part in found) == len(got) > 20


def test_one_row_at_a_time(monkeypatch):
    """Hundreds of pushes leave a few parts, whose rows are met as those of one batch."""
    monkeypatch.setattr(batches, "_FEW", 0)
    case = Case(5, "gaussians", 20.0, count=120)
    join = case.join(0.2)
    found = [case.push(join, side, np.array([k])) for k in range(120) for side in (0, 1)]
    assert case.check(found, 0.2) > 50
    assert len(join._stored["left"]) <= 8
    whole = case.join(0.2)
    kept = [len(case.push(whole, side, np.arange(120)).left) for side in (0, 1)]
    assert kept == [0, sum(len(part.left) for part in found)]
    assert join.funnel.candidates <= whole.funnel.candidates


def test_rows_that_are_seen_in_several_cells_are_paired_once():
    """Of a pair the row of the larger order must be at home."""
    case = Case(8, "gaussians", 20.0)
    order = [case.rng.integers(0, 3, case.count).astype(float) for _ in SIDES]
    found = []
    for cell in (0.0, 1.0, 2.0):
        join = case.join(0.2)
        for side in (0, 1):
            rows, home = np.arange(case.count), order[side] == cell
            own = case.times[side], case.groups[side], order[side], home
            join = PositionJoin.restore(join.snapshot())
            found.append(join.arrive(side, RowBatch(rows, case.models[side], *own)))
    assert case.check(found, 0.2) > 5


def test_rows_without_any_chance_are_not_kept():
    join = PositionJoin(1.0, 0.5)
    wide = GaussianND([[0.0, 0.0], [0.0, 0.0]], [[900.0, 0.0, 0.0, 900.0], [0.1, 0.0, 0.0, 0.1]])
    join.push("left", {"id": [1, 2], "pos": wide})
    assert join.ids("left").tolist() == [2]
    assert join.push("right", {"id": [7], "pos": [[0.0, 0.0]]}).left.tolist() == [2]
    join.close("left")
    join.push("right", {"id": [8], "pos": [[0.0, 0.0]]})
    assert join.ids("right").tolist() == []


def test_what_is_far_in_time_or_place_is_no_candidate():
    """All rows at one place, but few in a window; and in one window, but at few places."""
    n = 3000
    for step, window, box in ((1.0, 2.0, 0.0), (0.0, 2.0, 1e4)):
        mean = np.random.default_rng(4).uniform(0.0, box, (n, 2)) if box else np.zeros((n, 2))
        fixes = GaussianND(mean, np.tile(0.01 * np.eye(2), (n, 1, 1)))
        join = PositionJoin(1.0, 0.5, window=window)
        for name in SIDES:
            join.push(name, {"id": np.arange(n), "time": step * np.arange(n), "pos": fixes})
        assert n <= join.funnel.kept <= join.funnel.candidates < 10 * n


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("box", [8.0, 1e9])
def test_groups_have_cells_of_their_own(box):
    """Where there are numbers for so many cells, and where not: then rows of other groups are passed one by one."""
    rng, n = np.random.default_rng(6), 60
    models = [GaussianND(rng.uniform(0, 8.0, (n, 3)), np.tile(0.05 * np.eye(3), (n, 1, 1))) for _ in SIDES]
    corners = GaussianND([[0.0] * 3, [box] * 3], np.zeros((2, 3, 3)))
    models = [stacked([model, corners]) for model in models]
    groups = [rng.integers(0, 40, n + 2) for _ in SIDES]
    where = [Places(np.zeros(n + 2), np.ones(n + 2, bool), group) for group in groups]
    found = match_positions(*models, Distance("", "", 2.0), Threshold(0.1), True, tuple(where))
    chance = oracle.near(*(as_the_oracle_has_it(model) for model in models), 2.0)
    wanted = np.argwhere((chance >= 0.1) & (groups[0][:, None] == groups[1])).tolist()
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == sorted(map(tuple, wanted))
    sides = [
        PositionSide(parts(model), limits(2.0, Threshold(0.1), True, 3), False, own)
        for model, own in zip(models, where, strict=True)
    ]
    rows = np.arange(n + 2)
    left, right, offsets = _cells(sides[0], rows, sides[1], rows, 2.0)
    steps = np.unique((offsets[:, None] + np.array([-1, 0, 1])).ravel())
    neighbours = np.isin(right[None, :] - left[:, None], steps)
    apart = groups[0][:, None] != groups[1]
    assert neighbours[apart].any() == (box > 8.0)


def test_ids_keep_their_type():
    for ids in (np.array([2**63 + 1, 2**63 + 3], np.uint64), np.array(["a", "b"])):
        join = PositionJoin(1.0, 0.5, window=1.0)
        join.push("left", {"id": ids[:1], "pos": [[0.0, 0.0]], "time": [0]})
        join.push("left", {"id": ids[1:], "pos": [[0.0, 0.0]], "time": [100]})
        found = join.push("right", {"id": ids[1:], "pos": [[0.0, 0.0]], "time": [0]})
        assert (found.left.tolist(), found.right.tolist()) == ([ids[0]], [ids[1]])
        assert found.left.dtype == join.ids("left").dtype == ids.dtype
        assert found.decided_by.tolist() == ["inside"]


def test_strict_keeps_nothing_at_one():
    still = GaussianND([[0.0, 0.0]], [[0.0] * 4])
    for strict, kept in ((True, 0), (False, 1)):
        join = PositionJoin(1.0, 1.0, strict=strict)
        join.push("left", {"id": [1], "pos": still})
        assert len(join.push("right", {"id": [1], "pos": still}).left) == kept


def test_the_same_pairs_as_in_one_go():
    rng = np.random.default_rng(9)
    one, other = correlated(rng, 500, box=30.0), correlated(rng, 400, box=30.0)
    whole = join_positions(one, other, 1.0, 0.05)
    join = PositionJoin(1.0, 0.05)
    found = []
    for begin in range(0, 500, 100):
        rows, others = np.arange(begin, begin + 100), np.arange(begin // 100 * 80, begin // 100 * 80 + 80)
        found.append(join.push("left", {"id": rows, "pos": one.take(rows)}))
        found.append(join.push("right", {"id": others, "pos": other.take(others)}))
    got = {(i, j): p for part in found for i, j, p in zip(part.left, part.right, part.probability, strict=True)}
    assert got == dict(zip(zip(whole.left, whole.right, strict=True), whole.probability, strict=True))


def test_refusals():
    with pytest.raises(HaplyError, match="Without a threshold every pair is possible"):
        PositionJoin(1.0, None)
    with pytest.raises(HaplyError, match="no length of time"):
        PositionJoin(1.0, 0.5, window=-1.0)
    with pytest.raises(HaplyError, match="choice of probability"):
        PositionJoin(1.0, 0.5, probability="maybe")
    with pytest.raises(HaplyError, match="can never be that small"):
        PositionJoin(-1.0, 0.5)
    join = PositionJoin(1.0, 0.5, window=1.0)
    join.push("left", {"id": [1], "pos": [[0.0, 0.0]], "time": [0]})
    for batch, text in (
        ({"id": [1], "time": [0]}, "no column 'pos'"),
        ({"id": [1], "pos": [[0.0, 0.0]]}, "no column 'time'"),
        ({"id": [1, 2], "pos": [[0.0, 0.0]], "time": [0, 0]}, "Expected 2 values"),
        ({"id": [1], "pos": [[0.0, np.nan]], "time": [0]}, "holds no points"),
        ({"id": [1], "pos": Uniform(0, 1), "time": [0]}, "no normal positions"),
        ({"id": [1], "pos": [[0.0, 0.0, 0.0]], "time": [0]}, "Points differ in dimension.*dim = 2"),
    ):
        with pytest.raises(HaplyError, match=text):
            join.push("right", batch)
    with pytest.raises(HaplyError, match="differ in dimension"):
        PositionJoin.restore(join.snapshot()).push("left", {"id": [1], "pos": [0.0], "time": [0]})
    with pytest.raises(HaplyError, match="side"):
        join.push("middle", {"id": [1], "pos": [[0.0, 0.0]], "time": [0]})
    join.close("right")
    with pytest.raises(HaplyError, match="closed"):
        join.push("right", {"id": [1], "pos": [[0.0, 0.0]], "time": [0]})
