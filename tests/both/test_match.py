"""``hp.match`` against the formulas of the oracle, simulated worlds, and the laws of ``how`` and ``keep``."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp
import haply
import oracle_answers as referee
from answers_kit import bag
from haply.errors import HaplyError
from join_kit import frame, values

GAUSSIAN = "id long, x struct<mean:double,sd:double>"
PLACE = "id long, kind string, xy struct<mean:array<double>,cov:array<double>>"
FIELD = {"density": 0.3, "completeness": 0.7}
D2_COVARIANCES = [0.25, 0.1, 0.1, 0.16], [0.04, 0.0, 0.0, 0.09]


def weights_of(lefts, rights, density=0.3, completeness=0.7):
    return [
        [referee.match_odds(float(referee.difference_density(x, y)), density, completeness) for y in rights]
        for x in lefts
    ]


def check(engine, lefts, rights):
    """Compare all probabilities with those of brute force."""
    known = [[value for value in side if value is not None] for side in (lefts, rights)]
    ids = [[k for k, value in enumerate(side) if value is not None] for side in (lefts, rights)]
    expected = referee.match_rows(weights_of(*known))
    found = hp.match(frame(engine, lefts), frame(engine, rights), "x", how="left", **FIELD).collect()
    pairs = {(row["id_left"], row["id_right"]): row for row in found if row["id_right"] is not None}
    assert len(pairs) == sum(row["id_right"] is not None for row in found)
    some = {row["id_left"]: row["p_any"] for row in found}
    assert set(some) == set(range(len(lefts)))
    for i, row in zip(ids[0], expected, strict=True):
        assert some[i] == pytest.approx(float(row.p_any), abs=3e-9)
        for j, p in zip(ids[1], row.p_match, strict=True):
            got = pairs[i, j]["p_match"] if (i, j) in pairs else 0.0
            assert got == pytest.approx(float(p), abs=3e-9)
            if (i, j) in pairs:
                assert pairs[i, j]["p_any"] == some[i]
                weight = pairs[i, j]["bayes_factor"] * 0.7 / 0.3
                assert got == pytest.approx(weight / (1.0 + sum(weights_of([lefts[i]], known[1])[0])), rel=1e-6)
    return pairs


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("normal", "normal"), ("uniform", "normal"), ("hist", "mixture"), ("truncated", "uniform"), ("point", "normal"),
        ("truncated", "truncated"), ("hist", "hist"), ("discrete", "mixture"), ("mixture", "mixture"),
    ],
)  # fmt: skip
def test_numbers_of_every_kind(engine, left, right):
    lefts, rights = values(left, 9, 1), values(right, 11, 2)
    lefts[3] = rights[4] = None
    assert check(engine, lefts, rights)


def places(engine, rows):
    return engine.createDataFrame(
        [(k, kind, (list(mean), list(cov))) for k, (kind, mean, cov) in enumerate(rows)], PLACE
    )


def d2(engine):
    left = places(engine, [("a", (0.0, 0.0), D2_COVARIANCES[0])])
    deltas = ((0.3, 0.2), (-0.8, 0.5), (1.5, 1.0))
    rights = [(kind, (-x, -y), D2_COVARIANCES[1]) for kind, (x, y) in zip("abb", deltas, strict=True)]
    return left, places(engine, rights)


def test_golden_d2_and_d3(engine):
    left, right = d2(engine)
    found = hp.match(left, right, "xy", density=0.05, completeness=0.6).collect()
    by_id = {row["id_right"]: row for row in found}
    assert [by_id[k]["p_match"] for k in range(3)] == pytest.approx(
        [0.85120360578325013, 0.08338357559811038, 0.0122246127100053563], rel=1e-14
    )
    assert by_id[0]["p_any"] == pytest.approx(0.946811794091365866, rel=1e-14)
    classed = hp.match(left, right, "xy", density=0.05, completeness=0.6, by_category={"kind": (0.9, 0.1)}).collect()
    first = next(row for row in classed if row["id_right"] == 0)
    assert first["p_match"] == pytest.approx(0.991739251714682069, rel=1e-14)


def test_golden_d1_on_the_sky(engine):
    """The printed digits are those of NWAY's rounded separations: 1e-10 of them are real (see the oracle's tests)."""

    def rows(given):
        shift = math.cos(math.radians(2))
        return [(k, 150 + x / 3600 / shift, 2 + y / 3600, error) for k, (x, y, error) in enumerate(given)]

    left = rows([(0, 0, 0.5), (100, 0, 1), (200, 50, 0.8), (300, -40, 2)])
    right = rows(
        [(0.6, 0.3, 0.4), (-1.5, 2, 0.3), (101, -0.5, 0.2), (98, 3, 0.5), (203, 52, 0.6), (150, 20, 0.3), (306, -40, 1)]
    )
    types = "id long, ra double, dec double, error double"
    tables = [
        engine.createDataFrame(side, types).withColumn("pos", "SKY(ra, dec, error, error)") for side in (left, right)
    ]
    found = hp.match(*tables, "pos", density=8 / 129600, completeness=0.7, columns=["id_left", "id_right"]).collect()
    some = {row["id_left"]: row["p_any"] for row in found}
    golden = [0.9998820601356875, 0.9996874212080464, 0.9004527511037778, 0.9704793692858759]
    assert [some[k] for k in range(4)] == pytest.approx(golden, rel=1e-10)


def test_several_attributes_multiply(engine):
    lefts, rights = values("normal", 6, 5, (-2, 2)), values("normal", 7, 6, (-2, 2))
    more = values("uniform", 6, 7, (-2, 2)), values("normal", 7, 8, (-2, 2))
    tables = []
    for side, other in zip((lefts, rights), more, strict=True):
        table, second = frame(engine, side), frame(engine, other)
        tables.append(hp.Table(engine, table.arrow.append_column("m", second.arrow["x"])))
    found = hp.match(*tables, ["x", ("m", "m", 0.125)], **FIELD).collect()
    weights = weights_of(lefts, rights)
    for i, x in enumerate(more[0]):
        for j, y in enumerate(more[1]):
            weights[i][j] *= float(referee.difference_density(x, y)) / 0.125
    expected = referee.match_rows(weights)
    got = {(row["id_left"], row["id_right"]): row["p_match"] for row in found}
    for i, row in enumerate(expected):
        for j, p in enumerate(row.p_match):
            assert got.get((i, j), 0.0) == pytest.approx(p, abs=3e-9)


def test_one_to_one_worlds(engine):
    lefts, rights = values("normal", 6, 11, (-2, 2)), values("normal", 6, 12, (-2, 2))
    weights = weights_of(lefts, rights)
    expected = referee.matchings(weights, exact=False)
    tables = frame(engine, lefts), frame(engine, rights)
    found = hp.match(*tables, "x", exclusive=True, **FIELD).collect()
    got = {(row["id_left"], row["id_right"]): row for row in found}
    for i in range(6):
        for j in range(6):
            assert (got[i, j]["p_match"] if (i, j) in got else 0.0) == pytest.approx(
                float(expected.marginals[i][j]), abs=1e-8
            )
    for row in found:
        assert row["p_low"] <= row["p_match"] <= row["p_high"]
        assert row["p_any"] == pytest.approx(1 - float(expected.unmatched_left[row["id_left"]]), abs=1e-8)
    best = hp.match(*tables, "x", keep="one_to_one", **FIELD).collect()
    assert {(row["id_left"], row["id_right"]) for row in best} in [set(world) for world in expected.best_worlds]


def test_density_of_a_column_and_of_an_area(engine):
    lefts, rights = values("normal", 5, 21, (-2, 2)), values("normal", 8, 22, (-2, 2))
    left, right = frame(engine, lefts).withColumn("field", "0.3 + id * 0.1"), frame(engine, rights)
    found = hp.match(left, right, "x", density="field", completeness=0.7).collect()
    for row in found:
        own = weights_of([lefts[row["id_left"]]], rights, 0.3 + row["id_left"] * 0.1)
        assert row["p_match"] == pytest.approx(referee.match_rows(own)[0].p_match[row["id_right"]], abs=3e-9)
    area = hp.match(left, right, "x", density=hp.density(area=20), completeness=0.7)
    number = hp.match(left, right, "x", density=8 / 20, completeness=0.7)
    assert bag(area) == bag(number)
    worlds = hp.match(left, right, "x", density=hp.density(area=20), completeness=0.7, exclusive=True)
    background = hp.match(left, right, "x", density=(8 - 0.7 * 5) / 20, completeness=0.7, exclusive=True)
    assert bag(worlds) == bag(background)


def test_how_keep_and_threshold(engine):
    lefts, rights = values("normal", 12, 31, (-3, 3)), values("normal", 14, 32, (-3, 3))
    tables = frame(engine, lefts), frame(engine, rights)
    whole = hp.match(*tables, "x", **FIELD).collect()
    likely = {(row["id_left"], row["id_right"]) for row in whole if row["p_match"] >= 0.3}
    kept = hp.match(*tables, "x", threshold=0.3, **FIELD).collect()
    assert {(row["id_left"], row["id_right"]) for row in kept} == likely
    outer = hp.match(*tables, "x", threshold=0.3, how="outer", **FIELD).collect()
    assert {row["id_left"] for row in outer if row["id_right"] is None} == set(range(12)) - {i for i, _ in likely}
    assert {row["id_right"] for row in outer if row["id_left"] is None} == set(range(14)) - {j for _, j in likely}
    some = {row["id_left"]: row["p_any"] for row in whole}
    for row in outer:
        if row["id_right"] is None:
            assert row["p_any"] == pytest.approx(some.get(row["id_left"], 0.0), abs=1e-12)
            assert row["p_match"] is row["bayes_factor"] is None
        elif row["id_left"] is None:
            assert row["p_any"] is None
    best = hp.match(*tables, "x", threshold=0.1, keep="best_left", **FIELD).collect()
    for row in best:
        assert row["p_match"] == max(one["p_match"] for one in whole if one["id_left"] == row["id_left"])
    anti = hp.match(*tables, "x", threshold=0.3, how="anti", **FIELD)
    assert anti.columns == ["id", "x"]
    assert {row["id"] for row in anti.collect()} == set(range(12)) - {i for i, _ in likely}


@pytest.mark.parametrize("keep", ["all", "best_left", "mutual", "one_to_one"])
def test_rows_that_a_certain_condition_leaves_out(engine, keep):
    """The numbers of the rows that are left are not those of the table: each pair still has the right columns."""
    lefts, rights = values("normal", 14, 41, (-3, 3)), values("normal", 16, 42, (-3, 3))
    on = "left.id % 3 <> 0 AND right.id >= 2"
    rows, others = [i for i in range(14) if i % 3], list(range(2, 16))
    odds = weights_of([lefts[i] for i in rows], [rights[j] for j in others])
    share = [[float(p) for p in row.p_match] for row in referee.match_rows(odds)]
    likely = {(i, j): p for i, row in zip(rows, share, strict=True) for j, p in zip(others, row, strict=True)}
    found = hp.match(frame(engine, lefts), frame(engine, rights), "x", on=on, keep=keep, how="left", **FIELD).collect()
    pairs = {(row["id_left"], row["id_right"]): row for row in found if row["id_right"] is not None}
    for (i, j), row in pairs.items():
        assert row["p_match"] == pytest.approx(likely[i, j], abs=3e-9)
        assert row["x_left"]["mean"] == lefts[i].mean
        assert row["x_right"]["mean"] == rights[j].mean
        if keep in ("best_left", "mutual"):
            assert row["p_match"] == pytest.approx(max(p for (k, _), p in likely.items() if k == i), abs=3e-9)
        if keep == "mutual":
            assert row["p_match"] == pytest.approx(max(p for (_, k), p in likely.items() if k == j), abs=3e-9)
    if keep == "all":
        assert set(pairs) >= {pair for pair, p in likely.items() if p > 1e-6}
    if keep == "best_left":
        assert {i for i, _ in pairs} == set(rows)
    alone = [row["id_left"] for row in found if row["id_right"] is None]
    assert sorted(alone) == sorted(set(range(14)) - {i for i, _ in pairs})


def test_samples_within_a_distance(engine):
    types = "id long, xy struct<points:array<double>,probs:array<double>,dim:int>"
    left = engine.createDataFrame([(0, ([0.0, 0.0, 1.0, 0.0], None, 2)), (1, ([9.0, 9.0], None, 2))], types)
    right = engine.createDataFrame([(0, ([0.5, 0.0, 3.0, 3.0], None, 2)), (1, ([0.0, 0.2], None, 2))], types)
    found = hp.match(left, right, "xy", within=0.6, density=0.1, completeness=0.5, how="left").collect()
    chances = {(0, 0): 0.5, (0, 1): 0.5}
    weights = {pair: p / (math.pi * 0.36) / 0.1 for pair, p in chances.items()}
    total = sum(weights.values())
    for row in found:
        if row["id_left"] == 0:
            assert row["p_match"] == pytest.approx(weights[0, row["id_right"]] / (1 + total))
            assert row["p_any"] == pytest.approx(total / (1 + total))
        else:
            assert (row["id_right"], row["p_any"]) == (None, 0.0)
    with pytest.raises(HaplyError, match=r"samples have no density: add within=\.\.\., a distance"):
        hp.match(left, right, "xy", density=0.1, completeness=0.5)


def test_columns_as_expressions_and_constructors(engine):
    types = "id long, m double, sd double"
    left = engine.createDataFrame([(0, 0.0, 0.1), (1, 5.0, 0.2)], types)
    right = engine.createDataFrame([(0, 0.1, 0.1)], types)
    made = [table.withColumn("x", "GAUSSIAN(m, sd)") for table in (left, right)]
    wanted = hp.match(*made, "x", columns=["id_left"], **FIELD)
    for same in (
        "gaussian(left.m, left.sd) = gaussian(right.m, right.sd)",
        hp.gaussian(hp.left.m, hp.left.sd) == hp.gaussian(hp.right.m, hp.right.sd),
    ):
        assert bag(hp.match(left, right, same, columns=["id_left"], **FIELD)) == bag(wanted)
    assert bag(hp.match(*made, hp.left.x == hp.right.x, columns=["id_left"], **FIELD)) == bag(wanted)
    assert wanted.count() == 1


def test_words_of_errors(engine):
    left, right = d2(engine)
    shares = {"kind": (1, 2)}
    for options, words in (
        ({"completeness": 0.5}, "hp.match needs a density: right rows per unit area that are unrelated to a left row"),
        (
            {"density": 0.1, "completeness": 1.0},
            "completeness is 1.0. Expected a number between 0 and 1",
        ),
        ({"density": -1, "completeness": 0.5}, "The density is not a positive number"),
        ({"density": 0.1, "completeness": 0.5, "k": 2}, "k=2 needs keep='best_left' or 'best_right'"),
        ({"density": "kind", "completeness": 0.5}, "The density 'kind' is not a column of numbers"),
        (
            {"density": 0.1, "completeness": 0.5, "by_category": shares},
            "by_category of 'kind' needs two shares",
        ),
        ({"density": 0.1, "completeness": 0.5, "within": 2.0}, "'xy' has a density: within is for samples"),
    ):
        with pytest.raises(HaplyError) as caught:
            hp.match(left, right, "xy", **options)
        assert words in str(caught.value)
    for same, words in (
        (["xy", "id"], "'id' is the second attribute, and its density among unrelated rows is not known"),
        ("kind", "Column 'kind' of the left table is not a measurement"),
        ("xz", "no column in the left table called 'xz'"),
        ("left.xy < right.xy", "What is the same of two rows cannot be read"),
        ("id", "neither side has a density"),
    ):
        with pytest.raises(HaplyError) as caught:
            hp.match(left, right, same, **FIELD)
        assert words in str(caught.value)


def test_bad_rows(engine):
    left = engine.createDataFrame([(0, (0.0, 0.1)), (1, (0.0, -0.1)), (2, None)], GAUSSIAN)
    right = engine.createDataFrame([(0, (0.0, 0.1))], GAUSSIAN)
    found = hp.match(left, right, "x", how="left", invalid="drop", **FIELD).collect()
    assert sorted(row["id_left"] for row in found) == [0, 2]
    with pytest.raises(engine.failure, match="not a distribution"):
        hp.match(left, right, "x", how="left", **FIELD).collect()


def test_explain(engine):
    left, right = d2(engine)
    said = hp.plan_match(left, right, "xy", density=0.05, completeness=0.6, how="left").explain()
    for words in ("Match", "0.05 unrelated right rows per unit", "0.6, each left row alone", "Pairs with a density"):
        assert words in said


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("seed", "background", "completeness"), [(1, 0.02, 0.6), (2, 0.1, 0.6), (3, 0.15, 0.9)]
)  # fmt: skip
def test_probabilities_are_right_in_simulated_worlds(engine, seed, background, completeness):
    """In every bin of ``p_match``, and of ``p_any``, as many are true as it says: within 3 sd."""
    if engine.name != "local":
        pytest.skip("the same numbers as on the local engine")
    side = 300.0
    world = referee.simulate_world(
        seed, left_count=6000, side=side, completeness=completeness, background=background, left_sds=(0.3, 1.0),
        right_sds=(0.2, 0.8), margin=12.0,
    )  # fmt: skip

    def table(means, sds):
        cov = np.zeros((len(sds), 4))
        cov[:, 0] = cov[:, 3] = sds**2
        structs = pa.StructArray.from_arrays([pa.array(means.tolist()), pa.array(cov.tolist())], ["mean", "cov"])
        return pa.table({"id": np.arange(len(sds)), "xy": structs})

    found = haply.match(
        table(world.left, world.left_sds), table(world.right, world.right_sds), "xy", density=world.field,
        completeness=completeness, how="left", columns=["id_left", "id_right"],
    )  # fmt: skip
    pairs = found.filter(found["id_right"].is_valid())
    i, j, p = (pairs[name].to_numpy() for name in ("id_left", "id_right", "p_match"))
    check_bins(p, world.truth[i] == j)
    first = np.unique(found["id_left"].to_numpy(), return_index=True)[1]
    check_bins(found["p_any"].to_numpy()[first], world.truth[found["id_left"].to_numpy()[first]] >= 0)


def check_bins(p, true):
    edges = [0.0, 0.01, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 0.99, 1.0 + 1e-12]
    checked = 0
    for low, high in itertools.pairwise(edges):
        inside = (p >= low) & (p < high)
        sd = math.sqrt(float((p[inside] * (1 - p[inside])).sum()))
        if sd >= 2.0:
            checked += 1
            assert abs(float(true[inside].sum() - p[inside].sum())) <= 3.0 * sd, (low, high)
    assert checked >= 4


def test_a_further_value_is_an_expression_with_its_density():
    one = pa.table({"x": [0.0, 5.0], "e": [0.3, 0.3], "m": [1.0, 2.0], "me": [0.1, 0.1]})
    other = pa.table({"x": [0.2, 0.4], "e": [0.2, 0.2], "m": [1.05, 3.0], "me": [0.1, 0.1]})
    x, m = ([hp.gaussian(getattr(t, name), getattr(t, error)) for t in (hp.left, hp.right)] for name, error in
            (("x", "e"), ("m", "me")))  # fmt: skip
    options = {"density": 0.5, "completeness": 0.8}
    found = hp.match(one, other, [x[0] == x[1], (m[0] == m[1], 0.25)], **options)

    def made(table):
        def column(mean, sd):
            pairs = zip(table[mean].to_pylist(), table[sd].to_pylist(), strict=True)
            return [{"mean": a, "sd": b} for a, b in pairs]

        return pa.table({"x": column("x", "e"), "m": column("m", "me")})

    wanted = hp.match(made(one), made(other), ["x", ("m", "m", 0.25)], **options)
    assert found["p_match"].to_pylist() == wanted["p_match"].to_pylist()
    assert found.num_rows >= 1
    with pytest.raises(hp.HaplyError, match="its density among unrelated rows is not known"):
        hp.match(one, other, [x[0] == x[1], m[0] == m[1]], **options)
