"""No best pair is missed where others are passed over by their bounds: against brute force, for every kind of value."""

from __future__ import annotations

import numpy as np
import pytest

import both_kit as hp
import oracle
import oracle_distance
import oracle_position

COUNT = 45


def gaussians(rng):
    def value():
        return float(rng.uniform(-4, 4)), float(rng.choice([0.05, 0.3, 0.3, 1.0]) * rng.uniform(0.8, 1.0))

    rows = [[value() for _ in range(COUNT)] for _ in range(2)]
    return "struct<mean:double,sd:double>", rows, on_line([[oracle.Normal(*v) for v in side] for side in rows])


def intervals(rng):
    def value():
        low = float(rng.uniform(-4, 4))
        return low, low + float(rng.uniform(0.3, 4))

    rows = [[value() for _ in range(COUNT)] for _ in range(2)]
    return "struct<lo:double,hi:double>", rows, on_line([[oracle.Uniform(*v) for v in side] for side in rows])


def mixtures(rng):
    def value():
        share = float(rng.uniform(0.1, 0.9))
        return [share, 1.0 - share], rng.uniform(-4, 4, 2).tolist(), rng.uniform(0.1, 1.5, 2).tolist()

    rows = [[value() for _ in range(COUNT)] for _ in range(2)]
    kind = "struct<weights:array<double>,means:array<double>,sds:array<double>>"
    return kind, rows, on_line([[oracle.NormalMixture(*map(tuple, v)) for v in side] for side in rows])


def on_line(sides):
    return "abs(left.x - right.x) <= 0.9", np.array(
        [[oracle.probability_float(one, other, -0.9, 0.9) for other in sides[1]] for one in sides[0]]
    )


def covariance(rng):
    root = rng.normal(size=(2, 2)) * rng.choice([0.1, 0.5, 0.5])
    return root @ root.T + 0.01 * np.eye(2)


def positions(rng):
    sides = [[(rng.uniform(-2.5, 2.5, 2), covariance(rng)) for _ in range(COUNT)] for _ in range(2)]
    rows = [[(mean.tolist(), cov.ravel().tolist()) for mean, cov in side] for side in sides]
    normals = [[(np.ones(1), mean[None], cov[None]) for mean, cov in side] for side in sides]
    chance = oracle_position.near(*normals, 0.9)
    return "struct<mean:array<double>,cov:array<double>>", rows, ("distance(left.x, right.x) <= 0.9", chance)


def mixed_positions(rng):
    sides = [
        [(rng.uniform(-2.5, 2.5, (2, 2)), np.array([covariance(rng), covariance(rng)])) for _ in range(COUNT)]
        for _ in range(2)
    ]
    rows = [[([0.3, 0.7], mean.ravel().tolist(), cov.ravel().tolist()) for mean, cov in side] for side in sides]
    normals = [[(np.array([0.3, 0.7]), mean, cov) for mean, cov in side] for side in sides]
    chance = oracle_position.near(*normals, 0.9)
    kind = "struct<weights:array<double>,means:array<double>,covs:array<double>>"
    return kind, rows, ("distance(left.x, right.x) <= 0.9", chance)


def sky(rng):
    """A patch on the equator, which is flat as far as a few arcseconds tell."""
    sides = [[(rng.uniform(-2.5, 2.5, 2), rng.choice([0.1, 0.4, 0.4, 1.0], 2)) for _ in range(COUNT)] for _ in range(2)]
    rows = [[(*(at / 3600 % 360).tolist()[:1], at[1] / 3600, *sd.tolist(), 0.2) for at, sd in side] for side in sides]
    normals = [
        [(np.ones(1), at[None], np.array([[[a * a, 0.2 * a * b], [0.2 * a * b, b * b]]])) for at, (a, b) in side]
        for side in sides
    ]
    chance = oracle_position.near(*normals, 0.9)
    kind = "struct<ra:double,dec:double,ra_error:double,dec_error:double,corr:double>"
    return kind, rows, ("distance(left.x, right.x) <= 0.9", chance)


def samples(rng):
    sides = [[rng.uniform(-2.5, 2.5, 2) + rng.normal(size=(7, 2)) * 0.6 for _ in range(COUNT)] for _ in range(2)]
    rows = [[(points.ravel().tolist(), None, 2) for points in side] for side in sides]
    clouds = [[oracle_distance.cloud(points) for points in side] for side in sides]
    chance = np.array([[float(oracle_distance.probability(a, b, 0.9)) for b in clouds[1]] for a in clouds[0]])
    kind = "struct<points:array<double>,probs:array<double>,dim:int>"
    return kind, rows, ("distance(left.x, right.x) <= 0.9", chance)


KINDS = (gaussians, intervals, mixtures, positions, mixed_positions, sky, samples)


@pytest.fixture(autouse=True)
def small_cells(monkeypatch):
    """Several cells, with rows in more than one."""
    from haply.engines.local import pairs

    monkeypatch.setattr(pairs, "_ROWS_PER_CELL", 16)


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("threshold", [0.02, 0.6])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_best_pairs_are_those_of_brute_force(engine, kind, threshold):
    text, rows, (on, chance) = kind(np.random.default_rng([7, int(100 * threshold)]))
    tables = [engine.createDataFrame(list(enumerate(side)), f"id long, x {text}") for side in rows]
    apart = 1e-5 if kind is sky else 1e-10
    clear = np.abs(chance - threshold) > apart
    assert clear.all()
    kept = np.where(chance > threshold, chance, -1.0)
    asked = [("best_left", 1), ("best_left", 3), ("best_right", 1), ("best_right", 3)]
    for keep, k in asked if engine.name == "local" else asked[1:3]:
        found = hp.join(*tables, on, threshold, keep=keep, k=k).collect()
        of = kept if keep == "best_left" else kept.T
        pairs = [(row["id_left"], row["id_right"]) for row in found]
        got = [sorted((chance[pair] for pair in pairs if pair[keep == "best_right"] == row), reverse=True)
               for row in range(COUNT)]  # fmt: skip
        for row in range(COUNT):
            wanted = [p for p in sorted(of[row], reverse=True) if p > 0.0][:k]
            assert got[row] == pytest.approx(wanted, abs=apart)
        assert sum(map(len, got)) == len(found) > 0


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_pairs_that_are_the_best_of_both_rows(engine, kind):
    text, rows, (on, chance) = kind(np.random.default_rng(9))
    tables = [engine.createDataFrame(list(enumerate(side)), f"id long, x {text}") for side in rows]
    found = {(row["id_left"], row["id_right"]) for row in hp.join(*tables, on, 0.1, keep="mutual").collect()}
    apart = 1e-5 if kind is sky else 1e-10
    most = np.minimum(chance.max(axis=1)[:, None], chance.max(axis=0))
    assert all(chance[pair] >= max(chance[pair[0]].max(), chance[:, pair[1]].max()) - apart for pair in found)
    for i, j in zip(*np.nonzero(chance >= np.maximum(most, 0.1 + apart)), strict=True):
        others = np.concatenate([np.delete(chance[i], j), np.delete(chance[:, j], i)])
        if chance[i, j] > others.max() + apart:
            assert (i, j) in found


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("kind", [gaussians, positions, mixed_positions, sky], ids=lambda kind: kind.__name__)
def test_fewer_pairs_are_evaluated(engine, kind):
    from haply.report.funnel import Funnel

    if engine.name != "local":
        pytest.skip("cells have the same methods on Spark, but more of them")
    text, rows, (on, _) = kind(np.random.default_rng(11))
    tables = [engine.createDataFrame(list(enumerate(side)), f"id long, x {text}") for side in rows]
    evaluated = {}
    for keep in ("all", "best_left", "best_right"):
        funnel = Funnel()
        hp.join(*tables, on, 0.05, keep=keep, funnel=funnel).collect()
        counts = funnel.to_dict()
        evaluated[keep] = counts["evaluated"]
        if keep != "all":
            assert counts["rejected"]["beaten"] > 0
    assert evaluated["best_left"] < 0.7 * evaluated["all"]
    assert evaluated["best_right"] < 0.7 * evaluated["all"]
