"""``hp.sky`` on Spark. Distances of Gaussian positions are in ``tests/both``."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from pyspark.errors import PySparkException

import haply as hp
from haply.models import sky_ellipses, sky_positions

ON = "distance(left.pos, right.pos) <= 1.0"


def collect(result):
    known = "probability" in result.columns
    rows = [(row["id_left"], row["id_right"], row["probability"] if known else None) for row in result.collect()]
    counts = Counter((i, j) for i, j, _ in rows)
    assert not counts or max(counts.values()) == 1, "a pair was doubled"
    return {(i, j): p for i, j, p in rows}


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


@pytest.mark.long
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


@pytest.mark.long
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
