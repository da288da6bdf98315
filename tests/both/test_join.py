"""``hp.join`` against brute force, on plain and on difficult data."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import both_kit as hp
import oracle
from haply.errors import HaplyError
from join_kit import REGIONS, answer, check, collect, frame, values

BAND, GREATER, APART = "abs(left.x - right.x) <= 0.8", "left.x > right.x", "abs(left.x - right.x) >= 3"


@pytest.mark.parametrize("on", [on for on in REGIONS if on != "left.x >= right.x"])
def test_every_condition_on_gaussians(engine, on):
    check(engine, values("normal", 60, 1), values("normal", 50, 2), on, 0.6)


@pytest.mark.parametrize(
    ("left", "right", "on", "threshold"),
    [
        ("point", "normal", BAND, 0.3),
        ("truncated", "hist", BAND, 0.3),
        ("mixture", "discrete", BAND, 0.3),
        ("hist", "uniform", GREATER, 0.75),
    ],
)
def test_kinds_and_mixed_kinds(engine, left, right, on, threshold):
    """Every kind once; all pairs of kinds under all conditions are in ``tests/joins/test_match.py``."""
    check(engine, values(left, 25, 3), values(right, 25, 4), on, threshold)


def test_strict_and_missing_threshold(engine):
    lefts, rights = values("discrete", 15, 9), values("discrete", 15, 10)
    check(engine, lefts, rights, BAND, 0.25, strict=True)
    check(engine, lefts, rights, "abs(left.x - right.x) > 0.8", None)
    assert check(engine, lefts, rights, "left.x < right.x", 1.0)
    assert not collect(hp.join(frame(engine, lefts), frame(engine, rights), "left.x < right.x", 1.0, strict=True))


def test_empty_sides_one_row_and_nulls(engine):
    some = values("normal", 10, 11)
    gaps = [value if i % 3 else None for i, value in enumerate(some)]
    full, nobody = frame(engine, some), frame(engine, some).where("id < 0")
    assert not collect(hp.join(nobody, full, BAND, 0.5))
    assert not collect(hp.join(full, nobody, GREATER, 0.5))
    assert not collect(hp.join(nobody, nobody, BAND, 0.5))
    assert check(engine, some[1:2], gaps, BAND, 0.2)
    check(engine, gaps, some, GREATER, 0.2)


def test_probability_none_gives_the_same_pairs(engine):
    for kind, on in (("normal", BAND), ("hist", GREATER), ("uniform", "abs(left.x - right.x) > 0.8")):
        funnel = hp.Funnel()
        found = check(
            engine, values(kind, 40, 13), values(kind, 40, 14), on, 0.6, probability="none", funnel=funnel
        )  # fmt: skip
        assert set(found.values()) == {None}
        counts = funnel.to_dict()
        assert counts["candidates"] == counts["evaluated"] + sum(counts["rejected"].values()) + sum(
            counts["accepted"].values()
        )
        assert sum(counts["accepted"].values()) > 0


def test_funnel_counts(engine):
    lefts = [*values("normal", 30, 15), None, oracle.Normal(0.0, 500.0)]
    funnel = hp.Funnel()
    result = hp.join(
        frame(engine, lefts),
        frame(engine, values("normal", 20, 16)),
        "abs(left.x - right.x) <= 0.8",
        0.5,
        funnel=funnel,
    )
    assert ("empty" in str(funnel)) == engine.lazy
    kept = result.count()
    counts = funnel.to_dict()
    assert counts["kept"] == kept
    assert counts["pairs_possible"] == 32 * 20
    assert counts["null_left"] == 1
    assert counts["hopeless_left"] >= 1
    assert counts["invalid_left"] == counts["invalid_right"] == counts["pages_read"] == counts["pages_total"] == 0
    assert counts["candidates"] == counts["evaluated"] + sum(counts["rejected"].values())
    assert "kept" in str(funnel)


def test_certain_conditions_are_pushed_down(engine):
    rng = np.random.default_rng(17)
    n = 80
    data = pd.DataFrame(
        {
            "id": range(n),
            "site": rng.choice(["a", "b", "c", None], n),
            "m": rng.normal(0, 2, n),
            "k": rng.integers(0, 3, n),
        }
    )
    rows = data.astype(object).where(data.notna(), None).to_numpy().tolist()
    table = engine.createDataFrame(rows, "id long, site string, m double, k int")
    table = table.withColumn("x", hp.gaussian("m", 0.5))
    gaussians = [oracle.Normal(float(m), 0.5) for m in data.m]
    for on, region in (
        (BAND, REGIONS[BAND]),
        (GREATER, REGIONS[GREATER]),
    ):
        text = f"{on} AND left.site = right.site AND left.id < right.id AND left.k > 0"
        text += " AND right.k + 0 <= 1 AND left.k = right.id % 3"
        found = collect(hp.join(table, table, text, 0.6))
        everything = oracle.brute_force_join(
            gaussians, gaussians, region.low, region.high, region.low_closed, region.high_closed, region.outside, 0.6
        )
        wanted = {
            (i, j)
            for i, j in everything
            if data.site[i] is not None
            and data.site[i] == data.site[j]
            and i < j
            and data.k[i] > 0
            and data.k[j] <= 1
            and data.k[i] == j % 3
        }
        assert set(found) == wanted
        assert wanted


def test_python_and_text_conditions_are_one(engine):
    left, right = frame(engine, values("normal", 20, 18)), frame(engine, values("normal", 20, 19))
    by_text = collect(hp.join(left, right, "ABS(Left.x - RIGHT.x) <= 0.8 and left.id <> right.id", 0.4))
    by_python = collect(hp.join(left, right, (abs(hp.left.x - hp.right.x) <= 0.8) & (hp.left.id != hp.right.id), 0.4))
    assert by_text == by_python


def test_certain_band_join_needs_no_threshold(engine):
    left = engine.range(50).select("id", "id * 0.5D AS t")
    right = engine.range(50).select("id", "id * 0.7D AS t")
    found = collect(hp.join(left, right, "abs(left.t - right.t) <= 1"))
    assert set(found) == {(i, j) for i in range(50) for j in range(50) if abs(i * 0.5 - j * 0.7) <= 1}
    assert set(found.values()) == {1.0}
    named = hp.join(left, right, "left.id = right.id + 1")
    assert collect(named) == {(i + 1, i): 1.0 for i in range(49)}


def test_self_join_sees_a_row_as_itself(engine):
    rows = [*values("normal", 20, 20), oracle.Normal(0.0, 100.0)]
    for on, itself in ((BAND, 1.0), (GREATER, None), ("left.x >= right.x", 1.0)):
        _, unaware, _ = answer(rows, rows, on, 0.8)
        assert (20, 20) not in unaware
        found = check(engine, rows, rows, on, 0.8, same=lambda i, j: i == j, self_key="id")
        assert found.get((20, 20)) == itself


def test_output_columns(engine):
    left = engine.createDataFrame([(1, 2.0, "a")], "id int, x double, only_left string")
    right = engine.createDataFrame([(7, 2.5, 0.5)], "id int, x double, probability double")
    result = hp.join(left, right, "abs(left.x - right.x) <= 1", suffixes=("_l", "_r"))
    assert result.columns == ["id_l", "x_l", "only_left", "id_r", "x_r", "probability_r", "probability"]
    assert result.collect()[0].asDict() == {
        "id_l": 1, "x_l": 2.0, "only_left": "a", "id_r": 7, "x_r": 2.5, "probability_r": 0.5, "probability": 1.0,
    }  # fmt: skip
    with pytest.raises(HaplyError, match="would have one name"):
        hp.join(left, right, "abs(left.x - right.x) <= 1", suffixes=("", ""))


BAD = {
    "gaussian": (
        "struct<mean:double,sd:double>",
        [(0.0, -1.0, "sd < 0"), (math.nan, 1.0, "mean is NaN or infinite"), (0.0, math.inf, "sd is NaN or infinite")],
        (0.0, 1.0),
    ),
    "uniform": (
        "struct<lo:double,hi:double>",
        [(2.0, 1.0, "lo > hi"), (-math.inf, 1.0, "lo is NaN or infinite")],
        (0.0, 1.0),
    ),
    "truncated": (
        "struct<mean:double,sd:double,lo:double,hi:double>",
        [(0.0, 1.0, 2.0, 1.0, "lo > hi"), (0.0, -1.0, 0.0, 1.0, "sd < 0")],
        (0.0, 1.0, -1.0, 1.0),
    ),
    "mixture": (
        "struct<weights:array<double>,means:array<double>,sds:array<double>>",
        [
            ([0.5, 0.6], [0.0, 1.0], [1.0, 1.0], "weights not summing to 1"),
            ([1.5, -0.5], [0.0, 1.0], [1.0, 1.0], "weights negative"),
            ([1.0], [0.0, 1.0], [1.0], "lengths disagree"),
            ([1.0], [0.0], [-1.0], "sds negative"),
            ([1.0], [math.nan], [1.0], "means is NaN or infinite"),
        ],
        ([1.0], [0.0], [1.0]),
    ),
    "histogram": (
        "struct<edges:array<double>,probs:array<double>>",
        [
            ([0.0, 0.0], [1.0], "edges not increasing"),
            ([0.0, 1.0], [0.9], "probs not summing to 1"),
            ([0.0, 1.0, 2.0], [1.0], "lengths disagree"),
            ([0.0, 1.0, 2.0], [1.5, -0.5], "probs negative"),
        ],
        ([0.0, 1.0], [1.0]),
    ),
    "samples": (
        "struct<points:array<double>,probs:array<double>,dim:int>",
        [
            ([1.0, 2.0], [1.0], 1, "lengths disagree"),
            ([], None, 1, "points is empty"),
            ([1.0, 2.0], [0.9, 0.2], 1, "probs not summing to 1"),
        ],
        ([1.0, 2.0], None, 1),
    ),
    "certain": ("double", [(math.nan, "values is NaN or infinite"), (math.inf, "values is NaN or infinite")], (0.5,)),
}


def bad_table(engine, kind):
    """The bad rows of a kind, a good one of id 100 and a null."""
    schema, bad, good = BAD[kind]
    single = kind == "certain"
    rows = [(i, row[0] if single else row[:-1]) for i, row in enumerate(bad)]
    rows += [(100, good[0] if single else good), (101, None)]
    return engine.createDataFrame(rows, f"id long, value {schema}")


def test_bad_rows_are_listed(engine):
    """Of every kind, with the reason. Nulls are not bad."""
    found = [
        (kind, row["id"], row["reason"]) for kind in BAD for row in hp.check(bad_table(engine, kind), "value").collect()
    ]
    assert sorted(found) == sorted((kind, i, row[-1]) for kind in BAD for i, row in enumerate(BAD[kind][1]))


@pytest.mark.parametrize(
    ("kinds", "side"),
    [
        (("gaussian", "histogram"), "right"),
        (("uniform", "samples"), "left"),
        (("certain", "mixture"), "left"),
        (("truncated", "gaussian"), "right"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, tuple) else given,
)
def test_bad_rows(engine, kinds, side):
    """Raised with column, reason and example; dropped and counted. Every kind, by Spark's arithmetic and by models."""
    tables = [bad_table(engine, kind) for kind in kinds]
    spoilt = [
        table.where("id = 0 OR id = 100" if name == side else "id = 100")
        for table, name in zip(tables, ("left", "right"), strict=True)
    ]
    with pytest.raises(engine.failure) as caught:
        hp.join(*spoilt, "abs(left.value - right.value) <= 2", 0.1).collect()
    assert f"Column 'value' of the {side} table has a row that is not a distribution" in str(caught.value)
    assert BAD[kinds[side == "right"]][1][0][-1] in str(caught.value)
    funnel = hp.Funnel()
    result = hp.join(*tables, "abs(left.value - right.value) <= 3", 0.01, invalid="drop", funnel=funnel)
    assert [(row["id_left"], row["id_right"]) for row in result.collect()] == [(100, 100)]
    counts = funnel.to_dict()
    assert [counts["invalid_left"], counts["invalid_right"]] == [len(BAD[kind][1]) for kind in kinds]
    assert (counts["null_left"], counts["null_right"]) == (1, 1)


def test_errors_before_any_data_is_read(engine):
    left = frame(engine, values("normal", 2, 22)).withColumn("name", "'a'")
    ok = "abs(left.x - right.x) <= 1"
    for call, text in (
        (lambda: hp.join(left, left, "abs(left.y - right.x) <= 1", 0.5), "no column in the left table called 'y'"),
        (lambda: hp.join(left, left, "abs(left.nme - right.x) <= 1", 0.5), "did you mean 'name'"),
        (lambda: hp.join(left, left, "abs(x - right.x) <= 1", 0.5), "left"),
        (lambda: hp.join(left, left, ok, 1.5), "threshold is not a probability"),
        (lambda: hp.join(left, left, ok, 0.0), "threshold is not a probability"),
        (lambda: hp.join(left, left, ok), "give threshold="),
        (lambda: hp.join(left, left, None, 0.5), "no condition"),
        (lambda: hp.join(left, left, ok, 0.5, probability="exakt"), "did you mean 'exact'"),
        (lambda: hp.join(left, left, ok, 0.5, invalid="ignore"), "no choice of invalid 'ignore'"),
        (lambda: hp.join(left, left, ok, 0.5, strategy="swep"), "did you mean 'sweep'"),
        (lambda: hp.join(left, left, ok, 0.5, strategy="grid"), "does not fit"),
        (lambda: hp.join(left, left, ok, 0.5, self_key="idd"), "did you mean 'id'"),
        (lambda: hp.join(left, left, "abs(left.x - right.x) <= -1", 0.5), "negative"),
        (lambda: hp.join(left, left, "abs(left.x - right.x) <=", 0.5), "line 1"),
        (lambda: hp.join(left, left, "abs(left.name - right.x) <= 1", 0.5), "name"),
        (lambda: hp.check(left, "idx"), "did you mean 'id'"),
        (lambda: hp.check(left, "name"), "holds no uncertain values"),
    ):
        with pytest.raises(HaplyError, match=text):
            call()
        with pytest.raises(ValueError, match=text):
            call()


def test_explain_tells_the_plan(engine):
    lefts, rights = values("normal", 40, 23), values("uniform", 30, 24)
    left, right = frame(engine, lefts), frame(engine, rights)
    text = hp.plan_join(left, right, f"{BAND} AND left.id < right.id", 0.7).explain(verbose=True)
    for part in (
        "gaussian",
        "uniform",
        "P >= 0.7",
        "core regions",
        "cascade",
        "cells",
        "candidate pairs",
        "left.id < right.id",
    ):
        assert part in text
    plan = hp.plan_join(left, right, GREATER, 0.7)
    assert "sure" in plan.explain(verbose=True)
    _, wanted, hairline = answer(lefts, rights, GREATER, 0.7)
    assert set(collect(plan.run())) - hairline == wanted - hairline


@pytest.mark.parametrize(
    ("strategy", "how"),
    [("sweep", "core sweep, a sweep over core regions"), ("pages", "pages of rows with x-bounds"),
     ("pti", "PTI, a tree of rows with x-bounds"), ("moments", "GJ, an index of means and variances")],
)  # fmt: skip
def test_explain_names_what_finds_the_candidates(engine, strategy, how):
    left, right = frame(engine, values("normal", 4, 23)), frame(engine, values("normal", 3, 24))
    near, above = (
        next(
            line
            for line in hp.plan_join(left, right, on, 0.7, strategy=strategy).explain(verbose=True).splitlines()
            if "candidates" in line
        )
        for on in ("abs(left.x - right.x) <= 1", "left.x > right.x")
    )
    assert near.removeprefix("  candidates    ").startswith(how)
    assert how in above or (strategy == "sweep" and "the rest by a sweep" in above)
    assert ("sweep" in near + above) == (strategy == "sweep")
