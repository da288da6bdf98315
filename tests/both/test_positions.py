"""``hp.join`` on distances of Gaussian positions: every pair once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import both_kit as hp
import oracle_position as oracle
from haply.errors import HaplyError

GAUSSIAN = "struct<mean:array<double>,cov:array<double>>"
MIXTURE = "struct<weights:array<double>,means:array<double>,covs:array<double>>"
ON = "distance(left.pos, right.pos) <= 1.0"


def normals(rng, count, dim, parts=1, box=9.0):
    out = []
    for k in range(count):
        root = rng.normal(size=(parts, dim, dim)) * 0.3 * np.exp(rng.normal(size=(parts, 1, 1)))
        root *= (0.0, 1.0, 1.0, 8.0)[k % 4]
        mean = rng.uniform(0.0, box, (1, dim)) + rng.normal(size=(parts, dim))
        out.append((rng.dirichlet(np.ones(parts)), mean, root @ root.transpose(0, 2, 1)))
    return out


def frame(engine, these, kind):
    rows = []
    for i, (w, m, s) in enumerate(these):
        value = {
            GAUSSIAN: (m.ravel().tolist(), s.ravel().tolist()),
            MIXTURE: (w.tolist(), m.ravel().tolist(), s.ravel().tolist()),
            "array<double>": m.ravel().tolist(),
        }[kind]
        rows.append((i, i % 3, value))
    return engine.createDataFrame(rows, f"id long, band long, pos {kind}")


def collect(result):
    known = "probability" in result.columns
    rows = [(row["id_left"], row["id_right"], row["probability"] if known else None) for row in result.collect()]
    counts = Counter((i, j) for i, j, _ in rows)
    assert not counts or max(counts.values()) == 1, "a pair was doubled"
    return {(i, j): p for i, j, p in rows}


def check(found, chance, threshold, error=1e-8):
    wanted = {(i, j) for i, j in np.argwhere(chance >= threshold).tolist()}
    odd = {(i, j) for i, j in np.argwhere(np.abs(chance - threshold) < error).tolist()}
    assert set(found) - odd == wanted - odd
    for (i, j), p in found.items():
        assert p is None or abs(p - chance[i, j]) < error
    return len(wanted)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    ("left", "right", "dim", "cells"),
    [
        (GAUSSIAN, GAUSSIAN, 2, 5),
        (GAUSSIAN, GAUSSIAN, 3, None),
        (GAUSSIAN, "array<double>", 2, 4),
        (MIXTURE, GAUSSIAN, 2, None),
    ],
)
def test_against_brute_force(engine, left, right, dim, cells):
    rng = np.random.default_rng(dim + 10 * (cells or 0))
    sides = []
    for kind in (left, right):
        these = normals(rng, 50, dim, parts=2 if kind == MIXTURE else 1)
        sides.append([(w, m, s if kind != "array<double>" else np.zeros_like(s)) for w, m, s in these])
    with engine.settings(**({"cells": cells} if cells else {})):
        chance = oracle.near(sides[0], sides[1], 1.0)
        a, b = frame(engine, sides[0], left), frame(engine, sides[1], right)
        funnel = hp.Funnel()
        kept = check(collect(hp.join(a, b, on=ON, threshold=0.05, funnel=funnel)), chance, 0.05)
        assert kept > 10
        counts = funnel.to_dict()
        assert counts["kept"] == kept
        assert counts["candidates"] >= counts["evaluated"] > 0
        if (left, right) in ((MIXTURE, GAUSSIAN), (GAUSSIAN, "array<double>")):
            some = hp.join(a, b, on=f"{ON} AND left.band = right.band", threshold=0.6, probability="none")
            alike = np.arange(50)[:, None] % 3 == np.arange(50) % 3
            check(collect(some), np.where(alike, chance, 0.0), 0.6)


def test_a_table_with_itself_and_an_explanation(engine):
    these = normals(np.random.default_rng(3), 30, 2)
    a = frame(engine, these, GAUSSIAN)
    chance = oracle.near(these, these, 1.0)
    np.fill_diagonal(chance, 1.0)
    plan = hp.plan_join(a, a, on=ON, threshold=0.2, self_key="id")
    check(collect(plan.run()), chance, 0.2)
    text = plan.explain(verbose=True)
    assert "distance(left.pos (gaussian_nd), right.pos (gaussian_nd)) <= 1" in text
    assert "reach -> slab -> spread (reject) -> exact mass of the disc" in text


def test_refusals(engine):
    these = normals(np.random.default_rng(3), 4, 2)
    a = frame(engine, these, GAUSSIAN)
    with pytest.raises(HaplyError, match="Without a threshold every pair is possible"):
        hp.join(a, a, on=ON)
    solid = frame(engine, normals(np.random.default_rng(3), 4, 3), GAUSSIAN)
    with pytest.raises(engine.failure, match="Points differ in dimension"):
        hp.join(a, solid, on="distance(left.pos, right.pos) <= 100", threshold=1e-6).collect()
    bad = engine.createDataFrame([(0, 0, ([0.0, 0.0], [1.0, 2.0, 2.0, 1.0]))], f"id long, band long, pos {GAUSSIAN}")
    with pytest.raises(engine.failure, match="not symmetric positive semidefinite"):
        hp.join(a, bad, on=ON, threshold=0.5).collect()


# -- the sky ----------------------------------------------------------------------------------------------------------
