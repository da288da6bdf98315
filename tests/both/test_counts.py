"""``hp.count_matches`` against the counts of the oracle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import both_kit as hp
import oracle_answers as referee
from haply.errors import HaplyError
from join_kit import frame, values

BAND = "abs(left.x - right.x) <= 0.8"
C1 = {
    "left": [([0.0, 1.0, 3.0], [0.25, 0.75])],
    "right": [([0.5, 2.0, 4.0], [0.6, 0.4]), ([2.0, 3.0], [1.0]), ([-1.0, 0.0, 1.5], [0.5, 0.5])],
}
HISTOGRAM = "id long, x struct<edges:array<double>,probs:array<double>>"
SAMPLES = "id long, xy struct<points:array<double>,probs:array<double>,dim:int>"
WINDOWS = {
    BAND: referee.within(0.8),
    "left.x > right.x": referee.above(0),
    "left.x - right.x <= 0.5": referee.below(0.5, closed=True),
}


@pytest.mark.parametrize("kinds", [("normal", "normal"), ("hist", "uniform"), ("discrete", "discrete")])
@pytest.mark.parametrize("on", WINDOWS)
def test_counts_of_every_row(engine, kinds, on):
    lefts, rights = values(kinds[0], 7, 1, (-2, 2)), values(kinds[1], 9, 2, (-2, 2))
    lefts[2] = rights[3] = None
    if engine.name == "spark" and kinds[0] != "hist":
        pytest.skip("one pair of kinds is enough to see that engines agree")
    found = hp.count_matches(
        frame(engine, lefts), frame(engine, rights), on, distribution=True, quantiles=[0.05, 0.5, 0.975]
    )  # fmt: skip
    assert found.columns == [
        "id", "x", "expected_matches", "sd_matches", "p_any", "matches_q05", "matches_q50", "matches_q97_5",
        "matches_distribution",
    ]  # fmt: skip
    rows = {row["id"]: row for row in found.collect()}
    assert set(rows) == set(range(7))
    for i, x in enumerate(lefts):
        wanted = referee.count_distribution_float(x, rights, WINDOWS[on])
        row = rows[i]
        assert row["expected_matches"] == pytest.approx(float(wanted.mean), abs=1e-8)
        assert row["sd_matches"] == pytest.approx(math.sqrt(max(0.0, float(wanted.variance))), abs=1e-7)
        assert row["p_any"] == pytest.approx(float(wanted.p_any), abs=1e-8)
        for n, p in enumerate(wanted.pmf):
            got = row["matches_distribution"][n] if n < len(row["matches_distribution"]) else 0.0
            assert got == pytest.approx(float(p), abs=1e-8)
        for q, name in ((0.05, "05"), (0.5, "50"), (0.975, "97_5")):
            low, high = (sum(map(float, wanted.pmf[: int(row[f"matches_q{name}"]) + more])) for more in (0, 1))
            assert low <= q + 1e-9
            assert high >= q - 1e-9


def test_golden_c1(engine):
    left, right = (
        engine.createDataFrame([(k, value) for k, value in enumerate(C1[side])], HISTOGRAM) for side in C1
    )  # fmt: skip
    (row,) = hp.count_matches(left, right, "abs(left.x - right.x) <= 0.5", distribution=True).collect()
    assert row["p_any"] == pytest.approx(14581 / 23040, rel=1e-14)
    assert row["expected_matches"] == pytest.approx(181 / 240, rel=1e-14)
    assert row["sd_matches"] == pytest.approx(math.sqrt(2751 / 6400), rel=1e-13)
    assert row["matches_distribution"] == pytest.approx([8459 / 23040, 11807 / 23040, 2753 / 23040, 7 / 7680])


def test_golden_c2(engine):
    types = "id long, x struct<mean:double,sd:double>"
    left = engine.createDataFrame([(0, (0.0, 1.0))], types)
    right = engine.createDataFrame([(0, (0.5, 0.5)), (1, (-0.8, 0.3)), (2, (1.5, 1.0))], types)
    (row,) = hp.count_matches(left, right, "abs(left.x - right.x) <= 0.5").collect()
    assert row["p_any"] == pytest.approx(0.638593740321674938, rel=1e-13)
    assert row["expected_matches"] == pytest.approx(0.755942885649348874, rel=1e-13)
    assert row["sd_matches"] == pytest.approx(math.sqrt(0.426116792490438261), rel=1e-12)


def test_golden_c3_of_points(engine):
    left = engine.createDataFrame([(0, ([0.0, 0.0, 1.0, 0.0, 0.0, 2.0], None, 2))], SAMPLES)
    right = engine.createDataFrame(
        [(0, ([0.5, 0.0, 3.0, 3.0], None, 2)), (1, ([0.0, 1.0, 1.0, 0.0, 5.0, 5.0], None, 2))], SAMPLES
    )
    (row,) = hp.count_matches(left, right, "distance(left.xy, right.xy) <= 1", distribution=True).collect()
    assert row["p_any"] == pytest.approx(11 / 18)
    assert row["expected_matches"] == pytest.approx(7 / 9)
    assert row["sd_matches"] == pytest.approx(math.sqrt(41 / 81))
    assert row["matches_distribution"] == pytest.approx([7 / 18, 4 / 9, 1 / 6])


def test_golden_c4_of_groups(engine):
    types = "id long, kind string, x struct<points:array<double>,probs:array<double>,dim:int>"
    left = engine.createDataFrame(
        [(0, "a", ([0.0, 1.0], None, 1)), (1, "a", ([1.0, 2.0], None, 1)), (2, None, ([50.0], None, 1))], types
    )
    right = engine.createDataFrame([(0, "b", ([0.0, 3.0], None, 1)), (1, "b", ([2.0, 4.0], None, 1))], types)
    found = hp.count_matches(left, right, "abs(left.x - right.x) <= 1", by="kind")
    assert found.columns == ["kind", "expected_matches", "sd_matches"]
    rows = {row["kind"]: row for row in found.collect()}
    assert rows["a"]["expected_matches"] == pytest.approx(7 / 4)
    assert rows["a"]["sd_matches"] == pytest.approx(math.sqrt(19 / 16))
    assert rows[None]["expected_matches"] == rows[None]["sd_matches"] == 0.0


def test_certain_conditions_keys_and_a_threshold(engine):
    lefts, rights = values("normal", 12, 5, (-2, 2)), values("normal", 15, 6, (-2, 2))
    left, right = (table.withColumn("key", "id % 3") for table in (frame(engine, lefts), frame(engine, rights)))
    on = f"{BAND} AND left.key = right.key AND left.id < right.id"
    found = {row["id"]: row for row in hp.count_matches(left, right, on).collect()}
    for i, x in enumerate(lefts):
        partners = [y for j, y in enumerate(rights) if i % 3 == j % 3 and i < j]
        wanted = referee.count_distribution_float(x, partners, referee.within(0.8))
        assert found[i]["p_any"] == pytest.approx(float(wanted.p_any), abs=1e-8)
    likely = hp.count_matches(left, right, on, threshold=0.5, columns=["id"])
    assert likely.columns == ["id", "expected_matches", "sd_matches", "p_any"]
    assert {row["id"] for row in likely.collect()} == {i for i, row in found.items() if row["p_any"] >= 0.5}
    plain = hp.count_matches(left, right, "left.key = right.key AND left.id < right.id", quantiles=[0.5]).collect()
    for row in plain:
        count = sum(row["id"] % 3 == j % 3 and row["id"] < j for j in range(15))
        assert (row["expected_matches"], row["sd_matches"], row["matches_q50"]) == (count, 0.0, count)
        assert row["p_any"] == (count > 0)


SAMPLED = ", ".join(
    ["id long, k long", *(f"{x} struct<points:array<double>,probs:array<double>,dim:int>" for x in "xy")]
)


def sampled(rng, count):
    """Rows with two columns of a few samples each, in whole numbers."""

    def value():
        size = int(rng.integers(1, 3))
        shares = rng.integers(1, 4, size)
        return rng.integers(0, 5, size).astype(float).tolist(), (shares / shares.sum()).tolist(), 1

    return [(k, int(rng.integers(0, 2)), value(), value()) for k in range(count)]


def all_worlds(rows):
    """What all rows may be at once: weights, and a list of the values of each row."""
    parts = [list(zip(points, probs, strict=True)) for row in rows for points, probs, _ in row[2:]]
    for world in itertools.product(*parts):
        values = [value for value, _ in world]
        yield math.prod(p for _, p in world), list(zip(values[::2], values[1::2], strict=True))


SEVERAL = [
    ("abs(left.x - right.x) <= 1 AND left.y > right.y", lambda a, b, i, j: abs(a[0] - b[0]) <= 1 and a[1] > b[1]),
    ("abs(left.x - right.x) <= 1 AND left.y <= right.x", lambda a, b, i, j: abs(a[0] - b[0]) <= 1 and a[1] <= b[0]),
    (
        "left.x + left.y >= right.x + 2 AND left.k = right.k",
        lambda a, b, i, j: a[0] + a[1] >= b[0] + 2 and i[1] == j[1],
    ),
    (
        "abs(left.x - right.x) <= right.k + 1 AND left.x > right.y + left.k",
        lambda a, b, i, j: abs(a[0] - b[0]) <= j[1] + 1 and a[0] > b[1] + i[1],
    ),
]


@pytest.mark.parametrize(("on", "holds"), SEVERAL)
def test_several_conditions_are_those_of_all_worlds(engine, on, holds):
    """Conditions that share values, of either side, and certain numbers of both."""
    rng = np.random.default_rng(4)
    for _ in range(2 if engine.name == "local" else 1):
        left, right = sampled(rng, 2), sampled(rng, 3)
        tables = engine.createDataFrame(left, SAMPLED), engine.createDataFrame(right, SAMPLED)
        chances, totals = np.zeros((2, 4)), np.zeros(7)
        for one, mine in all_worlds(left):
            for other, theirs in all_worlds(right):
                counts = [
                    sum(holds(a, b, i, j) for b, j in zip(theirs, right, strict=True))
                    for a, i in zip(mine, left, strict=True)
                ]
                for row, count in enumerate(counts):
                    chances[row, count] += one * other
                totals[sum(counts)] += one * other
        found = hp.count_matches(*tables, on, distribution=True, quantiles=[0.5], columns=["id"]).collect()
        assert len(found) == 2
        for row in found:
            wanted = chances[row["id"]]
            mean = wanted @ np.arange(4)
            shares = [*row["matches_distribution"], 0.0, 0.0, 0.0, 0.0][:4]
            assert shares == pytest.approx(wanted.tolist(), abs=1e-9)
            assert row["expected_matches"] == pytest.approx(mean, abs=1e-9)
            assert row["sd_matches"] ** 2 == pytest.approx(wanted @ (np.arange(4) - mean) ** 2, abs=1e-8)
            assert row["p_any"] == pytest.approx(1 - wanted[0], abs=1e-9)
            assert row["matches_q50"] == np.flatnonzero(np.cumsum(wanted) >= 0.5 - 1e-12)[0]
        grouped = [(row[0], 7, *row[2:]) for row in left] if "left.k" not in on else left
        if len({row[1] for row in grouped}) == 1:
            (whole,) = hp.count_matches(engine.createDataFrame(grouped, SAMPLED), tables[1], on, by="k").collect()
            mean = totals @ np.arange(7)
            assert whole["expected_matches"] == pytest.approx(mean, abs=1e-9)
            assert whole["sd_matches"] ** 2 == pytest.approx(totals @ (np.arange(7) - mean) ** 2, abs=1e-8)


NORMALS = "id long, k long, x struct<mean:double,sd:double>, y struct<mean:double,sd:double>"
PHI = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2.0)))


def normal_rows(rng, count, width):
    return [
        (k, k % 2, *((float(rng.uniform(-1, 1)), float(rng.uniform(0.2, width))) for _ in "xy")) for k in range(count)
    ]


def on_a_grid(mine, theirs, windows):
    """The mean over a grid of one row's values, and each partner's chance there: windows are ``a x + b y`` in order."""
    axes = [np.linspace(m - 9 * s, m + 9 * s, 361) for m, s in mine]
    weights = [np.exp(-0.5 * ((axis - m) / s) ** 2) for axis, (m, s) in zip(axes, mine, strict=True)]
    weight = np.multiply.outer(*(one / one.sum() for one in weights))
    chances = np.ones((len(theirs), *weight.shape))
    for chance, row in zip(chances, theirs, strict=True):
        for of, a, to, b, low, high in windows:
            values = axes[of]
            centre, sd = a * values + b * row[to][0], abs(b) * row[to][1]
            share = PHI((high - centre) / sd) - PHI((low - centre) / sd)
            chance *= share[:, None] if of == 0 else share[None, :]
    return weight, chances


@pytest.mark.parametrize(
    ("on", "windows"),
    [
        ("abs(left.x - right.x) <= 0.8 AND left.x > right.y", [(0, 1, 0, -1, -0.8, 0.8), (0, 1, 1, -1, 0, math.inf)]),
        ("abs(left.x - right.x) <= 0.8 AND left.y + 2 * right.y <= 1",
         [(0, 1, 0, -1, -0.8, 0.8), (1, 1, 1, 2, -math.inf, 1)]),
    ],
)  # fmt: skip
def test_several_conditions_of_normal_values_are_integrals_over_them(engine, on, windows):
    """One left value in both conditions, and two of them."""
    rng = np.random.default_rng(8)
    left, right = normal_rows(rng, 3, 1.0), normal_rows(rng, 4, 1.2)
    tables = engine.createDataFrame(left, NORMALS), engine.createDataFrame(right, NORMALS)
    for row in hp.count_matches(*tables, on, distribution=True, columns=["id"]).collect():
        weight, chances = on_a_grid(left[row["id"]][2:], [one[2:] for one in right], windows)
        shares = np.zeros((5, *weight.shape))
        shares[0] = 1.0
        for chance in chances:
            shares[1:] += chance * (shares[:-1] - shares[1:])
            shares[0] *= 1.0 - chance
        wanted = (weight * shares).sum(axis=(1, 2))
        mean = wanted @ np.arange(5)
        assert row["matches_distribution"] == pytest.approx(wanted.tolist(), abs=2e-9)
        assert row["p_any"] == pytest.approx(1 - wanted[0], abs=2e-9)
        assert row["expected_matches"] == pytest.approx(mean, abs=4e-9)
        assert row["sd_matches"] ** 2 == pytest.approx(wanted @ (np.arange(5) - mean) ** 2, abs=4e-8)


def test_groups_of_normal_values_with_several_conditions(engine):
    """From the right side each left value must be in one condition alone."""
    rng = np.random.default_rng(9)
    left, right = normal_rows(rng, 4, 1.0), normal_rows(rng, 3, 1.2)
    tables = engine.createDataFrame(left, NORMALS), engine.createDataFrame(right, NORMALS)
    on = "abs(left.x - right.x) <= 0.8 AND left.y <= right.y"
    draws = 200_000
    mine, theirs = ([rng.normal(*one, draws) for row in rows for one in row[2:]] for rows in (left, right))
    for row in hp.count_matches(*tables, on, by="k").collect():
        total = np.zeros(draws)
        for i in range(row["k"], 4, 2):
            for j in range(3):
                total += (abs(mine[2 * i] - theirs[2 * j]) <= 0.8) & (mine[2 * i + 1] <= theirs[2 * j + 1])
        assert row["expected_matches"] == pytest.approx(total.mean(), abs=5 * total.std() / math.sqrt(draws))
        assert row["sd_matches"] == pytest.approx(total.std(), rel=0.01)
    with pytest.raises(HaplyError, match="and no left one"):
        hp.count_matches(*tables, "abs(left.x - right.x) <= 0.8 AND left.x <= right.y", by="k")


def test_values_far_wider_than_their_partners_are_refused(engine):
    left = engine.createDataFrame([(0, 0, (0.0, 100.0), (0.0, 1.0))], NORMALS)
    right = engine.createDataFrame([(0, 0, (0.0, 0.1), (0.0, 1.0))], NORMALS)
    with pytest.raises(engine.failure, match="much wider than those of its partners"):
        hp.count_matches(left, right, "abs(left.x - right.x) <= 0.8 AND left.y <= right.y").collect()


def test_several_conditions_of_certain_rows_with_any_laws(engine):
    """Partners are then independent, with the probabilities of the join."""
    left = engine.createDataFrame([(k, float(k), 0.5 * k) for k in range(4)], "id long, x double, y double")
    types = "id long, x struct<mean:double,sd:double>, y struct<lo:double,hi:double>"
    right = engine.createDataFrame([(k, (0.7 * k, 0.5), (0.3 * k, 2.0)) for k in range(6)], types)
    on = "abs(left.x - right.x) <= 1 AND left.y > right.y"
    chances = {}
    for row in hp.join(left, right, on, 1e-9).collect():
        chances.setdefault(row["id_left"], []).append(row["probability"])
    for row in hp.count_matches(left, right, on).collect():
        p = np.array(chances.get(row["id"], []))
        assert row["expected_matches"] == pytest.approx(p.sum(), abs=1e-7)
        assert row["sd_matches"] == pytest.approx(math.sqrt((p * (1 - p)).sum()), abs=1e-7)
        assert row["p_any"] == pytest.approx(1 - (1 - p).prod(), abs=1e-7)
    assert sum(map(len, chances.values())) > 5


def test_chances_do_not_multiply(engine):
    """All partners look at one value: the product of their chances is too high here, and too low there."""
    left = engine.createDataFrame([(0, ([0.0, 1.0], [1.0]))], HISTOGRAM)
    near = engine.createDataFrame([(k, 0.25) for k in range(10)], "id long, y double")
    apart = engine.createDataFrame([(0, 0.25), (1, 0.75)], "id long, y double")
    on = "abs(left.x - right.y) <= 0.25"
    assert hp.count_matches(left, near, on).first()["p_any"] == pytest.approx(0.5)
    assert hp.count_matches(left, apart, on).first()["p_any"] == pytest.approx(1.0)


def test_words_of_errors(engine):
    left, right = frame(engine, values("normal", 3, 1)), frame(engine, values("normal", 3, 2))
    two = f"{BAND} AND left.x + right.x > 0"
    for on, options, words in (
        (two, {}, "Matches are counted for several uncertain conditions where the left table has samples"),
        (two, {}, "its probabilities add up to the expected number of matches"),
        (two.replace(" AND ", " OR "), {}, "Matches are counted for conditions that all hold"),
        (BAND, {"quantiles": [2]}, "A quantile is not a probability"),
        (BAND, {"by": "id", "threshold": 0.5}, "threshold is about rows, and by= asks about groups"),
        (BAND, {"by": "kind"}, "no column in the left table called 'kind'"),
    ):
        with pytest.raises(HaplyError) as caught:
            hp.count_matches(left, right, on, **options)
        assert words in str(caught.value)


def test_bad_rows(engine):
    types = "id long, x struct<mean:double,sd:double>"
    left = engine.createDataFrame([(0, (0.0, 0.1)), (1, (0.0, -1.0)), (2, None)], types)
    right = engine.createDataFrame([(0, (0.0, 0.1))], types)
    found = hp.count_matches(left, right, BAND, invalid="drop").collect()
    assert {row["id"]: row["p_any"] > 0 for row in found} == {0: True, 2: False}
    with pytest.raises(engine.failure, match="not a distribution"):
        hp.count_matches(left, right, BAND).collect()
