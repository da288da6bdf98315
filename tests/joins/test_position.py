"""Joins of uncertain positions against brute force: no pair missed, none doubled, probabilities exact."""

from __future__ import annotations

import numpy as np
import pytest

import oracle_position as oracle
from haply.errors import HaplyError
from haply.joins import join_positions
from haply.models import Gaussian, GaussianND, Mixture, MixtureND, Samples, Uniform

THRESHOLDS = (1e-6, 0.01, 0.3, 0.5, 0.7, 0.95, 1.0)
ERROR = {1: 1e-12, 2: 1e-10, 3: 1e-9, 4: 1e-6}
"""What the oracle may be wrong by, by dimension."""


def normals(rng, count, dim, box=6.0, adversarial=True):
    """Positions with errors of all sizes: tiny and huge, singular, none at all; some means coincide."""
    out = []
    for k in range(count):
        root = rng.normal(size=(dim, dim)) * 0.3 * np.exp(rng.normal(size=(1, dim)))
        mean = rng.uniform(0.0, box, dim)
        kind = k % 8 if adversarial else 0
        if kind == 1:
            root *= 0.0
        elif kind == 2:
            root[:, 1:] = 0.0
        elif kind == 3:
            root *= 1e-6
        elif kind == 4:
            root *= 30.0
        elif kind == 5:
            mean = np.round(mean)
        elif kind == 6:
            mean, root = np.round(mean), root * 0.0
        elif kind == 7:
            root[-1] = 0.0
        out.append((np.ones(1), mean[None], (root @ root.T)[None]))
    return out


def gaussians(these):
    return GaussianND(np.array([m[0] for _, m, _ in these]), np.array([s[0] for _, _, s in these]))


def mixed(rng, count, dim):
    """Mixtures of one to three parts."""
    out = []
    for _ in range(count):
        parts = int(rng.integers(1, 4))
        some = normals(rng, parts, dim, adversarial=False)
        weights = rng.dirichlet(np.ones(parts))
        out.append((weights, np.concatenate([m for _, m, _ in some]), np.concatenate([s for _, _, s in some])))
    return out


def mixtures(these):
    return MixtureND(
        [list(w) for w, _, _ in these], [list(m.ravel()) for _, m, _ in these], [list(s.ravel()) for _, _, s in these]
    )


def check(found, chance, threshold, error, exact=True, strict=False):
    """The pairs of the oracle, but for those within its error of the threshold, and its probabilities."""
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "a pair was doubled"
    got = np.zeros(chance.shape, bool)
    got[found.left, found.right] = True
    clear = np.abs(chance - threshold) > error
    if threshold == 1.0 or error < 1e-11:
        clear = np.abs(chance - threshold) > 2e-12 + (0.0 if threshold == 1.0 else error)
    wanted = chance > threshold if strict else chance >= threshold
    assert not (wanted & clear & ~got).any(), "a pair was missed"
    assert not (~wanted & clear & got).any(), "a pair is too much"
    if exact:
        assert np.abs(found.probability - chance[found.left, found.right]).max(initial=0.0) < error
    else:
        assert np.isnan(found.probability).all()
    return int(got.sum())


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_gaussians_of_all_sizes(dim):
    rng = np.random.default_rng(dim)
    count = 40 if dim < 4 else 24
    lefts, rights = normals(rng, count, dim), normals(rng, count + 3, dim)
    chance = oracle.near(lefts, rights, 1.0)
    kept = 0
    for threshold in THRESHOLDS:
        for probability in ("exact", "none"):
            found = join_positions(gaussians(lefts), gaussians(rights), 1.0, threshold, probability=probability)
            kept += check(found, chance, threshold, ERROR[dim], probability == "exact")
            flat = found.funnel.flat()
            decided = sum(count for name, count in flat.items() if name.startswith(("rejected", "accepted")))
            assert flat["candidates"] == decided + flat["evaluated"]
            assert flat["kept"] == len(found.left)
    assert kept > 100


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_mixtures_with_each_other_and_with_gaussians_and_points(dim):
    rng = np.random.default_rng(10 + dim)
    lefts, rights = mixed(rng, 18, dim), mixed(rng, 20, dim)
    ones = normals(rng, 22, dim)
    points = [(np.ones(1), m, np.zeros_like(s)) for _, m, s in ones]
    plain = np.concatenate([m for _, m, _ in points])
    sides = ((rights, mixtures(rights)), (ones, gaussians(ones)), (points, plain))
    for others, model in sides:
        chance = oracle.near(lefts, others, 1.2)
        for threshold in (1e-6, 0.05, 0.5, 0.9):
            for probability in ("exact", "none"):
                found = join_positions(mixtures(lefts), model, 1.2, threshold, probability=probability)
                check(found, chance, threshold, 10 * ERROR[dim], probability == "exact")
                turned = join_positions(model, mixtures(lefts), 1.2, threshold, probability=probability)
                check(turned, chance.T, threshold, 10 * ERROR[dim], probability == "exact")


def test_points_on_the_edge_count_and_strict_does_not_keep_the_threshold():
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    still = GaussianND(grid, np.zeros((25, 2, 2)))
    found = join_positions(still, grid, 1.0, 1.0)
    assert len(found.left) == 25 + 2 * 2 * 5 * 4
    assert (found.probability == 1.0).all()
    assert len(join_positions(still, grid, 1.0, 1.0, strict=True).left) == 0
    # the mean on the edge of a half-line: exactly one half
    half = join_positions(Gaussian([0.0], [1.0]), np.array([1e8]), 1e8, 0.5)
    assert half.probability == pytest.approx([0.5], abs=1e-12)
    assert len(join_positions(Gaussian([0.0], [1.0]), np.array([1e8]), 1e8, 0.5, strict=True).left) == 0


def test_nothing_wide_is_needed_for_a_few_wide_errors():
    """One huge error must not make every pair a candidate."""
    rng = np.random.default_rng(5)
    mean = rng.uniform(0.0, 1000.0, (3000, 2))
    cov = np.tile(0.01 * np.eye(2), (3000, 1, 1))
    cov[7] *= 1e8
    found = join_positions(GaussianND(mean, cov), GaussianND(mean[::-1], cov), 1.0, 1e-6)
    assert found.funnel.candidates < 200_000
    expected = [(k, 2999 - k) for k in range(3000) if k != 7 and 2999 - k != 7]
    assert set(expected) <= set(zip(found.left.tolist(), found.right.tolist(), strict=True))


def test_rows_without_partner_on_the_other_side():
    empty = GaussianND.from_arrow(GaussianND([[0.0, 0.0]], [[1, 0, 0, 1]]).to_arrow()[:0])
    assert len(join_positions(empty, [[0.0, 0.0]], 1.0, 0.5).left) == 0
    assert len(join_positions([[0.0, 0.0]], empty, 1.0, 0.5).left) == 0


def test_samples_and_mixtures_of_numbers_do_as_well():
    found = join_positions(Mixture([[0.5, 0.5]], [[0.0, 9.0]], [[1.0, 1.0]]), np.array([0.0]), 1.0, 0.3)
    assert found.probability == pytest.approx([0.5 * 0.6826894921370859], abs=1e-12)
    found = join_positions(Samples([[0.0, 0.0, 9.0, 9.0]], dim=2), GaussianND([[0.0, 0.0]], [[1, 0, 0, 1]]), 1.0, 0.1)
    assert found.probability == pytest.approx([0.5 * (1.0 - np.exp(-0.5))], abs=1e-12)


def test_what_decided_is_told():
    far_inside = join_positions(GaussianND([[0.0, 0.0]], [[1e-4, 0, 0, 1e-4]]), [[0.0, 0.1]], 1.0, 0.5)
    assert far_inside.decided_by.tolist() == ["inside"]
    assert far_inside.probability.tolist() == [1.0]
    near_the_edge = join_positions(GaussianND([[0.0, 0.0]], [[1, 0, 0, 1]]), [[0.0, 0.1]], 1.0, 0.3)
    assert near_the_edge.decided_by.tolist() == ["exact value"]


def test_refusals():
    one = GaussianND([[0.0, 0.0]], [[1, 0, 0, 1]])
    with pytest.raises(HaplyError, match="Points differ in dimension"):
        join_positions(one, [[0.0, 0.0, 0.0]], 1.0, 0.5)
    with pytest.raises(HaplyError, match="Without a threshold every pair is possible"):
        join_positions(one, one, 1.0, None)
    with pytest.raises(HaplyError, match="no normal positions"):
        join_positions(Uniform(0, 1), one, 1.0, 0.5)
    with pytest.raises(HaplyError, match="holds no points"):
        join_positions([[np.nan, 0.0]], one, 1.0, 0.5)
    with pytest.raises(HaplyError, match="can never be that small"):
        join_positions(one, one, -1.0, 0.5)
    with pytest.raises(HaplyError, match="choice of probability"):
        join_positions(one, one, 1.0, 0.5, probability="maybe")


def test_a_wide_part_counts_beside_a_narrow_one():
    """The narrow part alone has 0.4, and the wide one, which could not do it alone, makes it 0.517."""
    mixed = MixtureND([[0.4, 0.6]], [[0.0, 0.0, 0.0, 0.0]], [[1e-4, 0.0, 0.0, 1e-4, 2.3, 0.0, 0.0, 2.3]])
    found = join_positions(mixed, [[0.0, 0.0]], within=1.0, threshold=0.5)
    assert found.left.tolist() == [0]
    assert found.probability[0] == pytest.approx(0.4 + 0.6 * (1.0 - np.exp(-1.0 / 4.6)), abs=1e-12)
