"""Joins with several uncertain conditions, or conditions on several columns, against all pairs computed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp

import both_kit as hp
import oracle_region as oracle
import oracle_select as referee
from haply.errors import HaplyError
from oracle import Normal
from oracle_select import Ask

COLUMNS = ("u", "g", "r", "x", "y")
COLOURS = "abs((left.u - left.g) - (right.u - right.g)) < 0.3 AND abs((left.g - left.r) - (right.g - right.r)) < 0.3"
RANGES = " OR ".join(f"left.u - K*right.u BETWEEN {n} AND {n + 1}" for n in range(0, 10, 2))
MANY_RANGES = " AND ".join(f"({RANGES})".replace("K", str(k)) for k in range(1, 4))
PLACES = "(left.x - right.x)*(left.x - right.x) + power(left.y - right.y, 2) < 4"


def table(engine, rows, seed):
    """Gaussians, some of them certain, and a group that pairs must share."""
    random = np.random.default_rng(seed)
    found = []
    for k in range(rows):
        sds = np.where(random.random(5) < 0.1, 0.0, random.uniform(0.02, 0.3, 5))
        means = random.normal(0.0, [0.4, 0.4, 0.4, 1.5, 1.5])
        found.append((k, k % 2, *({"mean": float(m), "sd": float(s)} for m, s in zip(means, sds, strict=True))))
    fields = ", ".join(f"{name} struct<mean:double, sd:double>" for name in COLUMNS)
    return engine.createDataFrame(found, f"id long, parity long, {fields}"), found


def values(row):
    return {name: (row[2 + k]["mean"], row[2 + k]["sd"]) for k, name in enumerate(COLUMNS)}


def colours(a, b):
    """Both colours agree: a box of two sums that share g."""
    mean = [a["u"][0] - a["g"][0] - b["u"][0] + b["g"][0], a["g"][0] - a["r"][0] - b["g"][0] + b["r"][0]]
    u, g, r = (a[name][1] ** 2 + b[name][1] ** 2 for name in "ugr")
    with mp.workdps(16):  # as many digits as the tests look at, and more
        return float(oracle.box2(mean, [[u + g, -g], [-g, g + r]], [-0.3, -0.3], [0.3, 0.3]))


def draws(a, b, count=200_000):
    random = np.random.default_rng(1)
    near = sum((a[n][0] - b[n][0] + np.hypot(a[n][1], b[n][1]) * random.normal(size=count)) ** 2 for n in "xy")
    return float((near < 4.0).mean())


@pytest.fixture(scope="module")
def tables(engine):
    return table(engine, 9, 1), table(engine, 9, 2)


@pytest.fixture(scope="module")
def every(tables):
    """The probability that both colours agree, for all pairs."""
    (_, mine), (_, theirs) = tables
    return {(a[0], b[0]): colours(values(a), values(b)) for a in mine for b in theirs}


def assert_adds_up(funnel, kept):
    counts = funnel.to_dict()
    assert counts["kept"] == kept
    assert counts["candidates"] == counts["evaluated"] + sum(counts["rejected"].values()) + sum(
        counts["accepted"].values()
    )
    return counts


def test_two_colours_are_joint(tables, every):
    (left, _), (right, _) = tables
    funnel = hp.Funnel()
    found = hp.join(left, right, f"{COLOURS} AND left.parity = right.parity", 0.2, funnel=funnel)
    rows = {(row.id_left, row.id_right): row for row in found.collect()}
    wanted = {(i, j): chance for (i, j), chance in every.items() if chance >= 0.2 and i % 2 == j % 2}
    assert rows.keys() == wanted.keys()
    assert 3 < len(wanted) < len(every) / 2
    for pair, chance in wanted.items():
        assert rows[pair].probability == pytest.approx(chance, abs=1e-9)
    counts = assert_adds_up(funnel, len(wanted))
    assert (counts["rows_left"], counts["rows_right"]) == (9, 9)


def test_colours_and_places_multiply(tables, every):
    (left, mine), (right, theirs) = tables
    found = hp.join(left, right, f"{COLOURS} AND {PLACES}", 0.1).collect()
    rows = {(row.id_left, row.id_right): row.probability for row in found}
    for a in mine:
        for b in theirs:
            chance = every[a[0], b[0]] * draws(values(a), values(b))
            if abs(chance - 0.1) > 0.005:
                assert ((a[0], b[0]) in rows) == (chance > 0.1)
            if (a[0], b[0]) in rows:
                assert rows[a[0], b[0]] == pytest.approx(chance, abs=0.01)
    assert rows


def test_conditions_that_share_a_column_are_no_product(engine):
    left = engine.createDataFrame([(1, {"mean": 0.0, "sd": 1.0})], "id long, x struct<mean:double, sd:double>")
    right = engine.createDataFrame(
        [(7, {"mean": 0.0, "sd": 1.0}, {"mean": 0.0, "sd": 1.0})],
        "id long, y struct<mean:double, sd:double>, z struct<mean:double, sd:double>",
    )
    (row,) = hp.join(left, right, "left.x > right.y AND left.x > right.z", 0.1).collect()
    assert row.probability == pytest.approx(1.0 / 3.0, abs=1e-12)  # the largest of three, not 1/4


def test_other_ways_to_candidates(tables):
    """One-sided conditions, no condition between the tables, certain numbers of one side and of both."""
    (left, mine), (right, theirs) = tables
    cases = {
        "left.u + left.g > right.u AND left.u > right.r": lambda a, b: None,
        "left.u*left.u + left.g*left.g < 1 AND right.u > 0": lambda a, b: None,
        "abs((left.u - left.g) - (right.u - right.g)) < 0.1 * left.id": lambda a, b: None,
        "abs((left.u - left.g) - (right.u - right.g)) < 0.05 * (left.id + right.id)": lambda a, b: None,
    }
    random = np.random.default_rng(3)
    for on in cases:
        rows = {(row.id_left, row.id_right): row.probability for row in hp.join(left, right, on, 0.3).collect()}
        for a in mine:
            for b in theirs:
                one = {n: m + s * random.normal(size=4_000) for n, (m, s) in values(a).items()}
                two = {n: m + s * random.normal(size=4_000) for n, (m, s) in values(b).items()}
                colour = np.abs((one["u"] - one["g"]) - (two["u"] - two["g"]))
                holds = {
                    0: (one["u"] + one["g"] > two["u"]) & (one["u"] > two["r"]),
                    1: (one["u"] ** 2 + one["g"] ** 2 < 1) & (two["u"] > 0),
                    2: colour < 0.1 * a[0],
                    3: colour < 0.05 * (a[0] + b[0]),
                }[list(cases).index(on)]
                chance = holds.mean()
                if abs(chance - 0.3) > 0.05:
                    assert ((a[0], b[0]) in rows) == (chance > 0.3), (on, a[0], b[0], chance)
                if (a[0], b[0]) in rows:
                    assert rows[a[0], b[0]] == pytest.approx(chance, abs=0.05)
        assert rows


def test_bad_rows_are_not_lost_from_sight_and_pairs_come_without_probabilities(engine, tables, every):
    (left, _), (right, _) = tables
    fields = ", ".join(f"{name} struct<mean:double, sd:double>" for name in COLUMNS)
    bad = engine.createDataFrame(
        [(99, 0, *({"mean": 500.0, "sd": -1.0} for _ in COLUMNS))], f"id long, parity long, {fields}"
    )
    nearby = "abs(left.g - right.g) < 1 AND left.u > right.u"
    beyond = "left.g > right.g AND left.u > 1"
    for on, broadcast in ((COLOURS, None), (COLOURS, "right"), (nearby, "left"), (beyond, None)):
        with pytest.raises(Exception, match=r"Column '[ugr]' of the left table has a row that is not a distribution"):
            hp.join(left.unionByName(bad), right, on, 0.2, broadcast=broadcast).collect()
    funnel = hp.Funnel()
    found = hp.join(
        left.unionByName(bad), right, COLOURS, 0.2, probability="none", invalid="drop", funnel=funnel
    )  # fmt: skip
    assert "probability" not in found.columns
    wanted = [pair for pair, chance in every.items() if chance >= 0.2]
    assert sorted((row.id_left, row.id_right) for row in found.collect()) == sorted(wanted)
    assert assert_adds_up(funnel, len(wanted))["invalid_left"] == 1


def test_plan_and_refusals(tables):
    (left, _), (right, _) = tables
    text = hp.plan_join(left, right, f"{COLOURS} AND left.id < right.id", 0.5).explain(verbose=True)
    assert "candidates by one, all by a selection" in text
    assert "box in 2 dimensions" in text
    assert "left.u" in text
    assert "left_2" not in text
    for on, options, message in (
        (COLOURS, {"threshold": None}, "Without a threshold every pair is possible"),
        (COLOURS, {"self_key": "id"}, "does not go with self_key"),
        (COLOURS, {"strategy": "sweep"}, "does not go with strategy='sweep'"),
        (MANY_RANGES, {}, "share uncertain columns.*left.u.*at most 64"),
    ):
        with pytest.raises(HaplyError, match=message):
            hp.join(left, right, on, **{"threshold": 0.5, **options})


def test_squares_beside_a_condition_on_the_same_columns(tables):
    """Near in the plane, and one to the right of the other: half a disc, not its probability times the other's."""
    (left, mine), (right, theirs) = tables
    found = hp.join(left, right, f"{PLACES} AND left.x > right.x", 0.2).collect()
    rows = {(row.id_left, row.id_right): row.probability for row in found}
    pairs = [(a[0], b[0], values(a), values(b)) for a in mine for b in theirs]
    columns = {
        name: [Normal(a[name][0] - b[name][0], float(np.hypot(a[name][1], b[name][1]))) for _, _, a, b in pairs]
        for name in "xy"
    }
    x, y = ("x", None), ("y", None)
    near = Ask((), ((x, x, 1.0), (y, y, 1.0)), ((-np.inf, 4.0, True, False),))
    chance = referee.normals(columns, [near, Ask(((x, 1.0),), (), ((0.0, np.inf, False, True),))])
    wanted = {(i, j): p for (i, j, _, _), p in zip(pairs, chance, strict=True) if p >= 0.2}
    assert rows.keys() == wanted.keys()
    assert 10 < len(wanted) < len(pairs) / 2
    assert rows == pytest.approx(wanted, abs=1e-11)


def test_places_in_the_plane_and_another_condition(engine):
    """A distance of Gaussian positions finds the candidates; the other condition multiplies."""
    random = np.random.default_rng(8)

    def places():
        rows = []
        for k in range(12):
            place = {"mean": random.normal(0, 2, 2).tolist(), "cov": [0.3, 0.1, 0.1, 0.2]}
            rows.append((k, place, {"mean": float(random.normal()), "sd": 0.4}))
        fields = "id long, pos struct<mean:array<double>, cov:array<double>>, m struct<mean:double, sd:double>"
        return engine.createDataFrame(rows, fields), rows

    (left, mine), (right, theirs) = places(), places()
    found = hp.join(left, right, "distance(left.pos, right.pos) < 2 AND left.m > right.m", 0.25).collect()
    rows = {(row.id_left, row.id_right): row.probability for row in found}
    z = random.multivariate_normal([0, 0], 2 * np.array([[0.3, 0.1], [0.1, 0.2]]), 100_000)
    for a in mine:
        for b in theirs:
            apart = np.array(a[1]["mean"]) - b[1]["mean"]
            near = ((z + apart) ** 2).sum(axis=1) < 4.0
            more = a[2]["mean"] - b[2]["mean"] + np.hypot(0.4, 0.4) * random.normal(size=100_000) > 0
            chance = near.mean() * more.mean()
            if abs(chance - 0.25) > 0.01:
                assert ((a[0], b[0]) in rows) == (chance > 0.25)
            if (a[0], b[0]) in rows:
                assert rows[a[0], b[0]] == pytest.approx(chance, abs=0.012)
    assert 5 < len(rows) < 140
