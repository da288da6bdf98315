"""``hp.join`` on a distance, static tables, against the oracle of clouds: every pair once, with its probability."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

import both_kit as hp
from distance_kit import ON, SAMPLES, check, collect, frame, random_clouds, struct
from haply.errors import HaplyError
from oracle_distance import Cloud, all_pairs, cloud


def points(engine, these: Sequence[Cloud], kind: str = "array<double>"):
    """Ids and a column ``pos`` of certain points, the only sample of each."""
    whole = "int" in kind
    rows = [(i, [int(x) if whole else float(x) for x in each.points[0]]) for i, each in enumerate(these)]
    return engine.createDataFrame(rows, f"id long, pos {kind}")


@pytest.mark.parametrize("weighted", [False, True])
def test_samples_against_samples(engine, weighted):
    """Threshold, strict threshold and none; equal weights, and weighted ones against equal ones."""
    lefts, rights = random_clouds(1, 60, weighted=weighted), random_clouds(2, 50)
    left, right = frame(engine, lefts), frame(engine, rights)
    if weighted:
        check(collect(hp.join(left, right, ON, 0.25)), lefts, rights, 1.5, 0.25)
        check(collect(hp.join(left, right, ON)), lefts, rights, 1.5, None)
    else:
        check(collect(hp.join(left, right, ON, 0.5, strict=True)), lefts, rights, 1.5, 0.5, strict=True)


def test_other_dimensions_and_the_constructor(engine):
    """Five dimensions, on the left from nested points with ``hp.samples``."""
    lefts, rights = random_clouds(3, 30, 5, spread=3.0), random_clouds(4, 30, 5, spread=3.0)
    nested = [(i, each.points.tolist()) for i, each in enumerate(lefts)]
    left = engine.createDataFrame(nested, "id long, at array<array<double>>").select(
        "id", hp.samples("at").alias("pos")
    )
    on = hp.distance(hp.left.pos, hp.right.pos) <= 4
    check(collect(hp.join(left, frame(engine, rights), on, 0.5)), lefts, rights, 4.0, 0.5)


def test_ways_to_write_a_distance(engine):
    """On a lattice ``<`` and ``<=`` differ; a limit may stand on either side; text and Python are one."""
    rng = np.random.default_rng(5)
    lefts, rights = ([cloud(rng.integers(-3, 4, (2, 2)) + rng.integers(-4, 5, 2)) for _ in range(40)] for _ in range(2))
    left, right = frame(engine, lefts), frame(engine, rights)
    closed = collect(hp.join(left, right, "5 >= DISTANCE(right.pos, left.pos)", 0.5))
    check(closed, lefts, rights, 5.0, 0.5)
    open_end = collect(hp.join(left, right, hp.distance(hp.left.pos, hp.right.pos) < 2 + 3, 0.5))
    check(open_end, lefts, rights, math.nextafter(5.0, 0.0), 0.5)
    assert len(open_end) < len(closed)


def test_certain_points(engine):
    """Arrays of numbers are points, against samples and against each other, of whole numbers as well."""
    rng = np.random.default_rng(6)
    certain = [cloud(rng.integers(-5, 6, (1, 2))) for _ in range(40)]
    uncertain = random_clouds(7, 40, weighted=True)
    check(collect(hp.join(points(engine, certain), frame(engine, uncertain), ON, 0.3)), certain, uncertain, 1.5, 0.3)
    found = collect(hp.join(points(engine, certain), points(engine, certain, "array<int>"), ON))
    check(found, certain, certain, 1.5, None)
    assert set(found.values()) == {1.0}


def test_plain_numbers(engine):
    """A number is a point of one dimension: doubles against samples, and against whole numbers."""
    rng = np.random.default_rng(8)
    numbers = [cloud([float(x)]) for x in rng.integers(-10, 11, 40)]
    uncertain = random_clouds(9, 30, dim=1)
    schema = "id long, pos double"
    left = engine.createDataFrame([(i, each.points[0, 0].item()) for i, each in enumerate(numbers)], schema)
    check(collect(hp.join(left, frame(engine, uncertain), ON, 0.5)), numbers, uncertain, 1.5, 0.5)
    whole = left.withColumn("pos", "CAST(pos AS int)")
    check(collect(hp.join(left, whole, ON, 1.0)), numbers, numbers, 1.5, 1.0)


def test_probability_none_and_the_funnel(engine):
    lefts, rights = random_clouds(10, 60), [*random_clouds(11, 40), None]
    left, right = frame(engine, lefts), frame(engine, rights)
    counts = {}
    for way in ("exact", "none"):
        funnel = hp.Funnel()
        result = hp.join(left, right, ON, 0.3, probability=way, funnel=funnel)
        assert ("probability" in result.columns) == (way == "exact")
        found = collect(result)
        check(found, lefts, rights[:-1], 1.5, 0.3)
        counts[way] = funnel.to_dict()
        assert counts[way]["kept"] == len(found)
        assert counts[way]["pairs_possible"] == 60 * 41
        assert counts[way]["null_right"] == 1
        assert counts[way]["invalid_left"] == counts[way]["invalid_right"] == 0
        rules = {"balls", "core", "spheres", "moments", "line", "shell", "rows"}
        assert set(counts[way]["accepted"]) == rules
        assert set(counts[way]["rejected"]) == {*rules, "beaten"}
        assert counts[way]["rejected"]["beaten"] == 0  # a rule where only the best pairs are wanted
        decided = sum(counts[way]["rejected"].values()) + sum(counts[way]["accepted"].values())
        assert counts[way]["candidates"] == decided + counts[way]["evaluated"]
        assert counts[way]["rejected"]["core"] > 0
        assert counts[way]["evaluated"] > 0
        assert "kept" in str(funnel)
    accepted = {way: {name for name, n in counts[way]["accepted"].items() if n} for way in counts}
    assert accepted["exact"] <= {"balls"} < accepted["none"]
    assert counts["none"]["evaluated"] < counts["exact"]["evaluated"]


def test_certain_conditions_beside_the_distance(engine):
    """Equal keys, with nulls and of two types, a condition of each side, and one over both."""
    rng = np.random.default_rng(12)
    these = random_clouds(13, 90, spread=2.0)
    site = [str(each) if each != "-" else None for each in rng.choice(["a", "b", "-"], 90)]
    k = rng.integers(0, 3, 90).tolist()
    rows = [(i, struct(each), site[i], k[i]) for i, each in enumerate(these)]
    table = engine.createDataFrame(rows, f"id long, pos {SAMPLES}, site string, k int")
    text = f"{ON} AND left.site = right.site AND left.k = right.id % 3 AND left.k > 0 AND right.k < 2"
    text += " AND left.id < right.id"
    found = collect(hp.join(table, table, text, 0.3))
    near = all_pairs(these, these, [0] * 90, [0] * 90, window=None, eps=1.5, threshold=0.3)
    wanted = {
        (i, j): float(p)
        for (i, j), p in near.items()
        if site[i] is not None and site[i] == site[j] and k[i] == j % 3 and k[i] > 0 and k[j] < 2 and i < j
    }
    assert found == pytest.approx(wanted, abs=1e-12)
    assert 5 < len(wanted) < 0.2 * len(near)


def test_a_table_with_itself(engine):
    """The same row on both sides is the same point, at no distance from itself."""
    these = [cloud([(0, 0), (100, 0)]), *random_clouds(14, 30)]
    table = frame(engine, these)
    found = collect(hp.join(table, table, ON, 0.6, self_key="id"))
    unaware = all_pairs(these, these, [0] * 31, [0] * 31, window=None, eps=1.5, threshold=0.6)
    assert (0, 0) not in unaware
    wanted = {**{pair: float(p) for pair, p in unaware.items()}, **{(i, i): 1.0 for i in range(31)}}
    assert found == pytest.approx(wanted, abs=1e-12)
    assert len(wanted) > 35


def test_nulls_and_nobody(engine):
    """A null struct, null points, a null number among them: none matches, none is bad."""
    rows = [(0, None), (1, (None, None, 2)), (2, ([0.0, None], None, 2)), (3, ([0.0, 0.0], None, None))]
    rows += [(4, ([0.0, 0.0], None, 2)), (5, ([0.0, 1.0, 9.0, 9.0], [0.75, 0.25], 2))]
    left = engine.createDataFrame(rows, f"id long, pos {SAMPLES}")
    right = engine.createDataFrame([(0, [0.0, 0.5]), (1, None), (2, [0.0, None])], "id long, pos array<double>")
    funnel = hp.Funnel()
    assert collect(hp.join(left, right, ON, 0.5, funnel=funnel)) == {(4, 0): 1.0, (5, 0): 0.75}
    counts = funnel.to_dict()
    assert (counts["null_left"], counts["null_right"], counts["invalid_left"], counts["invalid_right"]) == (4, 2, 0, 0)
    nobody = left.where("id > 100")
    assert collect(hp.join(nobody, right, ON, 0.5)) == {}


BAD = {
    "points is empty": ([], None, 2),
    "points is NaN or infinite": ([0.0, math.nan], None, 2),
    "probs not summing to 1": ([0.0, 0.0, 1.0, 1.0], [0.5, 0.6], 2),
    "lengths disagree": ([0.0, 0.0, 1.0], None, 2),
}


def test_bad_rows(engine):
    """Raised with column, reason and example; dropped and counted; bad certain points as well."""
    rows = [*enumerate(BAD.values()), (100, ([0.0, 1.0], None, 2)), (101, None)]
    table = engine.createDataFrame(rows, f"id long, pos {SAMPLES}")
    certain = [(0, []), (1, [math.inf, 0.0]), (2, [0.0, 0.0])]
    arrays = engine.createDataFrame(certain, "id long, pos array<double>")
    with pytest.raises(engine.failure) as caught:
        hp.join(arrays.where("id = 2"), table.where("id = 2 OR id = 100"), ON, 0.5).collect()
    assert "Column 'pos' of the right table has a row that is not a distribution" in str(caught.value)
    assert "probs not summing to 1" in str(caught.value)
    funnel = hp.Funnel()
    assert collect(hp.join(table, arrays, ON, 0.5, invalid="drop", funnel=funnel)) == {(100, 2): 1.0}
    counts = funnel.to_dict()
    assert (counts["invalid_left"], counts["null_left"], counts["invalid_right"]) == (len(BAD), 1, 2)
    listed = {row["id"]: row["reason"] for row in hp.check(table, "pos").collect()}
    assert listed == dict(enumerate(BAD))


def test_every_possible_pair_without_threshold(engine):
    """Strict or not, a pair of probability 1e-14 is possible."""
    left, right = (
        engine.createDataFrame([(0, ([0.0, far], [1e-7, 1 - 1e-7], 1))], f"id long, pos {SAMPLES}")
        for far in (100.0, -100.0)
    )
    assert collect(hp.join(left, right, ON, strict=True)) == {(0, 0): pytest.approx(1e-14, rel=1e-9)}


def test_explain(engine):
    left, right = frame(engine, random_clouds(18, 20)), points(engine, random_clouds(19, 10))
    plan = hp.plan_join(
        left, right, "distance(left.pos, right.pos) < 2.5 AND left.id <> right.id", 0.7, strategy="grid"
    )
    text = plan.explain(verbose=True)
    for part in (
        "distance(left.pos (samples), right.pos (samples)) < 2.5",
        "P >= 0.7",
        "cores",
        "balls (OP)",
        "moments (Cantelli) -> line -> shell",
        "cells",
        "candidate pairs",
        "left.id != right.id",
    ):
        assert part in text


def test_errors_before_any_data_is_read(engine):
    table = frame(engine, random_clouds(20, 2)).select(
        "id", "pos", "'a' AS name", hp.uniform(0.0, 1.0).alias("x"), "array('a') AS words"
    )
    ok = "distance(left.pos, right.pos) <= 1"
    for on, options, text in (
        ("distance(left.name, right.pos) <= 1", {}, "Column 'name' of the left table holds no points.*Found string"),
        ("distance(left.pos, right.x) <= 1", {}, "Column 'x' of the right table holds no points"),
        ("distance(left.pos, right.words) <= 1", {}, "Column 'words' of the right table holds no points"),
        ("distance(left.pos, right.poss) <= 1", {}, "did you mean 'pos'"),
        ("distance(left.pos, right.pos) <= -1", {}, "never be that small"),
        (f"{ok} AND abs(left.x - right.x) <= 1", {"self_key": "id"}, "does not go with self_key"),
        (ok, {"strategy": "pti"}, "Strategy 'pti' does not fit this join.*auto, grid"),
        (ok, {"strategy": "sweep"}, "Strategy 'sweep' does not fit this join"),
        (ok, {"strategy": "gird"}, "did you mean 'grid'"),
        (ok, {"threshold": 1.5}, "threshold is not a probability"),
        (ok, {"self_key": "idd"}, "did you mean 'id'"),
    ):
        with pytest.raises(HaplyError, match=text):
            hp.join(table, table, on, **{"threshold": 0.5, **options})
