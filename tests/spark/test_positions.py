"""``hp.join`` on distances of Gaussian positions, and ``hp.sky``: every pair once, as without Spark."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from pyspark.errors import PySparkException

import haply as hp
import oracle_position as oracle
from haply.errors import HaplyError
from haply.models import sky_ellipses, sky_positions

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


def frame(spark, these, kind):
    rows = []
    for i, (w, m, s) in enumerate(these):
        value = {
            GAUSSIAN: (m.ravel().tolist(), s.ravel().tolist()),
            MIXTURE: (w.tolist(), m.ravel().tolist(), s.ravel().tolist()),
            "array<double>": m.ravel().tolist(),
        }[kind]
        rows.append((i, i % 3, value))
    return spark.createDataFrame(rows, f"id long, band long, pos {kind}")


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


@pytest.mark.parametrize(
    ("left", "right", "dim", "cells"),
    [
        (GAUSSIAN, GAUSSIAN, 2, 5),
        (GAUSSIAN, GAUSSIAN, 3, None),
        (GAUSSIAN, "array<double>", 2, 4),
        (MIXTURE, GAUSSIAN, 2, None),
    ],
)
def test_against_brute_force(spark, left, right, dim, cells):
    rng = np.random.default_rng(dim + 10 * (cells or 0))
    sides = []
    for kind in (left, right):
        these = normals(rng, 50, dim, parts=2 if kind == MIXTURE else 1)
        sides.append([(w, m, s if kind != "array<double>" else np.zeros_like(s)) for w, m, s in these])
    if cells:
        spark.conf.set("spark.haply.cells", str(cells))
    try:
        chance = oracle.near(sides[0], sides[1], 1.0)
        a, b = frame(spark, sides[0], left), frame(spark, sides[1], right)
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
    finally:
        spark.conf.unset("spark.haply.cells")


def test_a_table_with_itself_and_an_explanation(spark):
    these = normals(np.random.default_rng(3), 30, 2)
    a = frame(spark, these, GAUSSIAN)
    chance = oracle.near(these, these, 1.0)
    np.fill_diagonal(chance, 1.0)
    plan = hp.plan_join(a, a, on=ON, threshold=0.2, self_key="id")
    check(collect(plan.run()), chance, 0.2)
    text = plan.explain(verbose=True)
    assert "distance(left.pos (gaussian_nd), right.pos (gaussian_nd)) <= 1" in text
    assert "reach -> slab -> spread (reject) -> exact mass of the disc" in text


def test_refusals(spark):
    these = normals(np.random.default_rng(3), 4, 2)
    a = frame(spark, these, GAUSSIAN)
    with pytest.raises(HaplyError, match="Without a threshold every pair is possible"):
        hp.join(a, a, on=ON)
    solid = frame(spark, normals(np.random.default_rng(3), 4, 3), GAUSSIAN)
    with pytest.raises(PySparkException, match="Points differ in dimension"):
        hp.join(a, solid, on="distance(left.pos, right.pos) <= 100", threshold=1e-6).collect()
    bad = spark.createDataFrame([(0, 0, ([0.0, 0.0], [1.0, 2.0, 2.0, 1.0]))], f"id long, band long, pos {GAUSSIAN}")
    with pytest.raises(PySparkException, match="not symmetric positive semidefinite"):
        hp.join(a, bad, on=ON, threshold=0.5).collect()


# -- the sky ----------------------------------------------------------------------------------------------------------

PLACES = [(0.0, 0.0), (359.9999, 12.0), (123.4, -60.0), (45.0, 89.9999), (300.0, -90.0), (0.0, 90.0)]


def test_columns_hold_what_arrays_do(spark):
    rows = [(ra, dec, 0.2, 0.1, 0.5, 30.0) for ra, dec in PLACES]
    sources = spark.createDataFrame(rows, "ra double, dec double, a double, b double, rho double, angle double")
    made = sources.select(
        hp.sky.position("ra", "dec", "a", "b", "rho", errors_in="mas").alias("p"),
        hp.sky.ellipse("ra", "dec", "a", "b", "angle").alias("e"),
    ).collect()
    ra, dec = (np.array(each) for each in zip(*PLACES, strict=True))
    for name, model in (
        ("p", sky_positions(ra, dec, 0.2, 0.1, 0.5, errors_in="mas")),
        ("e", sky_ellipses(ra, dec, 0.2, 0.1, 30.0)),
    ):
        for k, row in enumerate(made):
            assert row[name].asDict() == pytest.approx(model.show(k), rel=1e-14)


def test_bad_sources_are_bad_rows(spark):
    rows = [(0.0, 0.0, 0.1, 0.0), (0.0, 91.0, 0.1, 0.0), (0.0, 0.0, -0.1, 0.0), (math.nan, 0.0, 0.1, 0.0)]
    rows += [(0.0, 0.0, 0.1, 1.5), (None, 0.0, 0.1, 0.0)]
    sources = spark.createDataFrame(rows, "ra double, dec double, error double, rho double")
    made = sources.select("dec", "error", hp.sky.position("ra", "dec", "error", "error", "rho").alias("pos"))
    reasons = {row["reason"] for row in hp.check(made, "pos").collect()}
    assert reasons == {"dec beyond the poles", "ra_error < 0", "ra is NaN or infinite", "corr beyond -1 and 1"}
    with pytest.raises(PySparkException, match="has a row that is not a distribution"):
        hp.join(made, made, on=ON, threshold=0.5).collect()
    funnel = hp.Funnel()
    assert hp.join(made, made, on=ON, threshold=0.5, invalid="drop", funnel=funnel).count() == 1
    assert funnel.to_dict()["invalid_left"] == 4
    turned = sources.select(hp.sky.ellipse("ra", "dec", "error", "error", "rho").alias("pos"))
    assert hp.check(turned, "pos").count() == 3


def test_other_columns_of_the_same_type_keep_their_nulls(spark):
    """Positions travel field by field; a column that only looks like one must come back as it was."""
    rows = [(0, 10.0, None), (1, 50.0, 1.0)]
    sources = spark.createDataFrame(rows, "id long, ra double, other double")
    made = sources.select(
        hp.sky.position("other", 0.0, 0.1, 0.1).alias("spare"),
        "id",
        hp.sky.position("ra", 0.0, 0.1, 0.1).alias("pos"),
    )
    swapped = made.select("pos", "id", "spare")
    for one, other in ((made, made), (made, swapped), (swapped, made)):
        found = hp.join(one, other, on=ON, threshold=0.5, suffixes=("", "_2")).orderBy("id").collect()
        assert [(row["id"], row["id_2"]) for row in found] == [(0, 0), (1, 1)]
        for name in ("spare", "spare_2"):
            assert [row[name] is None for row in found] == [True, False]
            assert found[1][name]["ra"] == 1.0
        assert [row["pos_2"]["ra"] for row in found] == [10.0, 50.0]


def test_a_match_across_the_pole_and_where_right_ascension_begins_again(spark):
    near_pole = [(0.0, 89.9999), (120.0, 89.9999), (240.0, 89.9999), (0.00005, 0.0), (359.99995, 0.0), (180.0, 0.0)]
    rows = [(k, ra, dec) for k, (ra, dec) in enumerate(near_pole)]
    sources = spark.createDataFrame(rows, "id long, ra double, dec double").select(
        "id", hp.sky.position("ra", "dec", 0.1, 0.1).alias("pos")
    )
    found = collect(hp.join(sources, sources, on="distance(left.pos, right.pos) <= 1.0", threshold=0.5))
    groups = ({0, 1, 2}, {3, 4}, {5})
    # 0.36 arcseconds from the pole, 120 degrees apart: 0.62 arcseconds; and 0.36 across right ascension 0
    assert set(found) == {(i, j) for group in groups for i in group for j in group}
