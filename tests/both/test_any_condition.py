"""Any combination of conditions: random trees against exact enumeration of samples, and against drawn values.

Trees are made here as text and as a function of plain numbers at once; nothing of the package evaluates them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp
from amounts import fewer
from trees_kit import KINDS, is_asked, law, with_columns
from trees_kit import NUMBERS as COLUMNS


def frame_of(engine, columns):
    return hp.Table(engine, pa.table(columns))


class Trees:
    """Makes random conditions; ``sums`` may be asked of normal values and of samples only in differences."""

    def __init__(self, seed, *, sums=True, equalities=False):
        self.random = np.random.default_rng(seed)
        self.sums, self.equalities = sums, equalities

    def number(self):
        return float(self.random.integers(-6, 7)) / 4

    def column(self):
        name = str(self.random.choice(COLUMNS))
        return name, lambda row: row[name]

    def value(self):
        text, of = self.column()
        if self.random.random() < 0.5:
            return text, of
        other, of_other = self.column()
        if other == text:
            return text, of
        if self.sums and self.random.random() < 0.4:
            factor = float(self.random.choice([0.5, 2.0, 1.0]))
            return f"{text} + {factor} * {other}", lambda row: of(row) + factor * of_other(row)
        return f"{text} - {other}", lambda row: of(row) - of_other(row)

    def leaf(self):
        text, of = self.value()
        k, m = sorted((self.number(), self.number()))
        kind = int(self.random.integers(0, 9 if self.sums else 6))
        if kind == 0:
            return f"{text} BETWEEN {k} AND {m}", lambda row: (of(row) >= k) & (of(row) <= m)
        if kind == 1:
            return f"abs({text}) > {abs(m)}", lambda row: np.abs(of(row)) > abs(m)
        if kind == 2:
            return "sure > 0", lambda row: row["sure"] > 0
        if kind == 3 and self.equalities:
            return f"{text} IN ({k}, {m})", lambda row: (of(row) == k) | (of(row) == m)
        if kind == 4:
            return f"{text} < {k}", lambda row: of(row) < k
        if kind in (6, 7, 8):
            other, of_other = self.column()
            name = ("greatest", "least", "abs")[kind - 6]
            if name == "abs":
                return (
                    f"abs({text}) + abs({other}) < {abs(m)}",
                    lambda row: np.abs(of(row)) + np.abs(of_other(row)) < abs(m),
                )
            chosen = np.maximum if name == "greatest" else np.minimum
            return f"{name}({text}, {other}) >= {k}", lambda row: chosen(of(row), of_other(row)) >= k
        return f"{text} >= {k}", lambda row: of(row) >= k

    def tree(self, depth):
        if depth == 0 or self.random.random() < 0.15:
            return self.leaf()
        kind = int(self.random.integers(0, 5))
        one, holds = self.tree(depth - 1)
        if kind == 0:
            return f"NOT ({one})", lambda row: ~holds(row)
        other, also = self.tree(depth - 1)
        if kind == 1:
            return f"({one}) XOR ({other})", lambda row: holds(row) ^ also(row)
        if kind == 2 and depth > 1:
            third, else_holds = self.tree(depth - 2)
            return (
                f"CASE WHEN {one} THEN {other} ELSE {third} END",
                lambda row: np.where(holds(row), also(row), else_holds(row)).astype(bool),
            )
        if kind == 3:
            return f"({one}) AND ({other})", lambda row: holds(row) & also(row)
        return f"({one}) OR ({other})", lambda row: holds(row) | also(row)


ROWS = 4


def _leave_to_local(engine, seed, most=300):
    """Ask Spark, which takes a second for each, for the first trees only."""
    if engine.name == "spark" and seed >= most:
        pytest.skip("left to the local engine")


def of_samples(seed):
    """Make a condition, its function, and a table with three samples in each row; None if it asks of numbers only."""
    make = Trees(seed, equalities=True)
    text, holds = make.tree(int(make.random.integers(1, 4)))
    if not is_asked(text):
        return None
    random = np.random.default_rng(1000 + seed)
    points = {name: (random.integers(-6, 7, (ROWS, 3)) / 4).tolist() for name in COLUMNS}
    columns = {"id": list(range(ROWS)), **points, "sure": random.integers(-1, 2, ROWS).tolist()}
    return with_columns(text, {name: f"samples({name})" for name in COLUMNS}), holds, columns


def of_normal_values(seed):
    """Make a condition, its function, and a table of means and sds."""
    make = Trees(5000 + seed)
    text, holds = make.tree(int(make.random.integers(1, 4)))
    if not is_asked(text):
        return None
    random = np.random.default_rng(seed)
    means, sds = random.normal(0, 1, (3, ROWS)), random.uniform(0.2, 1.2, (3, ROWS))
    columns = {"id": list(range(ROWS)), "sure": random.integers(-1, 2, ROWS).tolist()}
    for name, mean, sd in zip(COLUMNS, means, sds, strict=True):
        columns |= {f"{name}_mean": mean.tolist(), f"{name}_sd": sd.tolist()}
    return with_columns(text, {name: f"gaussian({name}_mean, {name}_sd)" for name in COLUMNS}), holds, columns


def of_any_laws(seed):
    """Make a condition whose columns have laws of several kinds, its function, and a table of two rows."""
    make = Trees(9000 + seed)
    text, holds = make.tree(int(make.random.integers(1, 5)))
    if not is_asked(text):
        return None
    written = {name: law_of(seed, k)[1] for k, name in enumerate(COLUMNS)}
    return with_columns(text, written), holds, {"id": [1, -1], "sure": [1, -1]}


def law_of(seed, k):
    return law(np.random.default_rng([seed, k]), KINDS)


def answered(engine, asked, columns):
    found = hp.where(frame_of(engine, columns), asked, 1e-9).collect()
    return {row["id"]: row["probability"] for row in found}


def assert_agrees_with_drawn(p, truth, count, case):
    share = float(np.mean(np.broadcast_to(truth, count)))
    assert abs(p - share) <= 5 * math.sqrt(max(p * (1 - p), 1e-5) / count) + 1e-9, case


@pytest.mark.long(keep=25)
@pytest.mark.parametrize("seed", range(1000))
def test_trees_of_samples_are_enumerated(engine, seed):
    _leave_to_local(engine, seed)
    made = of_samples(seed)
    if made is None:
        return
    asked, holds, columns = made
    wanted = {}
    for k in range(ROWS):
        worlds = np.array(list(itertools.product(*(columns[name][k] for name in COLUMNS)))).T
        row = dict(zip(COLUMNS, worlds, strict=True)) | {"sure": np.full(worlds.shape[1], columns["sure"][k])}
        wanted[k] = float(np.mean(np.broadcast_to(holds(row), worlds.shape[1:])))
    found = answered(engine, asked, columns)
    assert found == pytest.approx({k: p for k, p in wanted.items() if p > 1e-9}, abs=1e-12), asked


@pytest.mark.long(keep=10)
@pytest.mark.parametrize("seed", range(1000))
def test_trees_of_normal_values_against_drawing(engine, seed):
    _leave_to_local(engine, seed)
    made = of_normal_values(seed)
    if made is None:
        return
    (asked, holds, columns), count, random = made, 200_000, np.random.default_rng([seed, 1])
    found = answered(engine, asked, columns)
    for k in range(ROWS):
        row = {name: random.normal(columns[f"{name}_mean"][k], columns[f"{name}_sd"][k], count) for name in COLUMNS}
        truth = holds(row | {"sure": np.full(count, columns["sure"][k])})
        assert_agrees_with_drawn(found.get(k, 0.0), truth, count, (asked, k))


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("seed", range(2000))
def test_trees_of_any_laws_against_drawing(engine, seed):
    _leave_to_local(engine, seed)
    made = of_any_laws(seed)
    if made is None:
        return
    (asked, holds, columns), count = made, 1_000_000
    found = answered(engine, asked, columns)
    drawn = {name: law_of(seed, k)[2](count) for k, name in enumerate(COLUMNS)}
    for sure in (1, -1):
        truth = holds(drawn | {"sure": np.full(count, sure)})
        assert_agrees_with_drawn(found.get(sure, 0.0), truth, count, (asked, sure))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(("made_of", "first"), [
    *((of_samples, first) for first in range(0, 1000, 25)),
    *((of_normal_values, first) for first in range(0, 1000, 25)),
    *((of_any_laws, first) for first in range(0, 2000, 25)),
])  # fmt: skip
def test_spark_answers_as_the_local_engine_does(spark, made_of, first):
    """All trees above, many in one job."""
    cases = [made for made in map(made_of, range(first, first + fewer(25))) if made is not None]
    hp.check_spark_agrees(spark, [(asked, pa.table(columns)) for asked, _, columns in cases])


def test_what_was_refused(engine):
    """The conditions that the issue names, against formulas."""
    table = frame_of(engine, {"id": [1, 2], "x": [0.3, -0.5], "y": [0.2, 0.9], "kind": ["a", None]})

    def normal(mean, sd, limit):
        return 0.5 * math.erfc((mean - limit) / (sd * math.sqrt(2)))

    def asked(text):
        text = text.replace("X", "gaussian(x, 0.5)").replace("Y", "gaussian(y, 0.3)")
        return {row["id"]: row["probability"] for row in hp.where(table, text, 1e-9).collect()}

    p = {1: normal(0.3, 0.5, 0.0), 2: normal(-0.5, 0.5, 0.0)}
    q = {1: 1 - normal(0.2, 0.3, 0.5), 2: 1 - normal(0.9, 0.3, 0.5)}
    r = {1: normal(0.2, 0.3, 0.0), 2: normal(0.9, 0.3, 0.0)}
    assert asked("X < 0 OR Y > 0.5") == pytest.approx({k: 1 - (1 - p[k]) * (1 - q[k]) for k in p}, abs=1e-14)
    assert asked("NOT (X < 0 AND Y < 0)") == pytest.approx({k: 1 - p[k] * r[k] for k in p}, abs=1e-14)
    assert asked("X < 0 OR kind = 'a'") == pytest.approx({1: 1.0, 2: p[2]}, abs=1e-14)
    assert asked("X < 0 OR NOT kind = 'a'") == pytest.approx(p, abs=1e-14)  # what is unknown does not hold
    assert asked("X < 0 OR id % 3 = 2") == pytest.approx({1: p[1], 2: 1.0}, abs=1e-14)
    assert asked("X < 0 AND id % 3 IN (1, 5)") == pytest.approx({1: p[1]}, abs=1e-14)
    assert asked("X < 0 OR kind IS NULL") == pytest.approx({1: p[1], 2: 1.0}, abs=1e-14)
    assert asked("(X < 0) = (Y > 0.5)") == pytest.approx(
        {k: p[k] * q[k] + (1 - p[k]) * (1 - q[k]) for k in p}, abs=1e-14
    )


def test_a_null_column_does_not_hold_and_others_may(engine):
    table = frame_of(
        engine, {"id": [1, 2, 3], "x": [0.0, None, None], "y": [None, 0.0, None], "limit": [1.0, 0.0, None]}
    )
    both = "gaussian(x, 1.0) < 0 OR gaussian(y, 1.0) < 0"
    assert {row["id"]: row["probability"] for row in hp.where(table, both, 0.1).collect()} == {1: 0.5, 2: 0.5}
    text = "gaussian(x, 1.0) < limit OR gaussian(y, 1.0) < 0 OR id = 3"
    found = {row["id"]: row["probability"] for row in hp.where(table, text, 0.1).collect()}
    assert found == pytest.approx({1: 0.5 * math.erfc(-1 / math.sqrt(2)), 2: 0.5, 3: 1.0}, abs=1e-14)


def test_pairs_by_any_condition(engine):
    random = np.random.default_rng(4)
    sides = [random.normal(0, 1, (2, 6)) for _ in range(2)]
    frames = [
        frame_of(engine, {"id": list(range(6)), "x": side[0].tolist(), "y": side[1].tolist(), "k": [0, 1] * 3})
        for side in sides
    ]
    x, y = (f"gaussian(left.{n}, 0.5) - gaussian(right.{n}, 0.4)" for n in "xy")
    on = f"abs({x}) < 0.5 OR abs({y}) < 0.3 OR left.k < right.k"
    found = {(row["id_left"], row["id_right"]): row["probability"] for row in hp.join(*frames, on, 0.3).collect()}
    sd = math.hypot(0.5, 0.4) * math.sqrt(2)

    def within(difference, limit):
        return 0.5 * (math.erf((limit - difference) / sd) + math.erf((limit + difference) / sd))

    wanted = {}
    for i, j in itertools.product(range(6), repeat=2):
        near = [within(sides[0][n][i] - sides[1][n][j], limit) for n, limit in enumerate((0.5, 0.3))]
        p = 1.0 if i % 2 < j % 2 else 1 - (1 - near[0]) * (1 - near[1])
        if p >= 0.3:
            wanted[i, j] = p
    assert found == pytest.approx(wanted, abs=1e-12)
    assert 9 < len(wanted) < 36


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("seed", range(40))
def test_alternatives_find_all_pairs_without_looking_at_all(engine, seed):
    """Candidates of each alternative, at a share of the threshold: none is missed, also where columns are null."""
    random = np.random.default_rng(seed)
    rows, share = 60, float(random.choice([0.05, 0.3, 0.7]))
    sides = []
    for _ in range(2):
        side = random.uniform(0, 100, (2, rows))
        side[random.random((2, rows)) < 0.1] = np.nan
        sides.append(side)

    def known(numbers):
        return pa.array(numbers, mask=np.isnan(numbers))

    kinds = random.integers(0, 40, (2, rows))
    frames = [
        frame_of(engine, {"id": list(range(rows)), "x": known(side[0]), "y": known(side[1]), "k": kind.tolist()})
        for side, kind in zip(sides, kinds, strict=True)
    ]
    x, y = (f"gaussian(left.{n}, 0.6) - gaussian(right.{n}, 0.8)" for n in "xy")
    both = bool(seed % 2)
    on = f"(abs({x}) < 1.5 OR abs({y}) < 0.5 OR left.k = right.k)" + (" AND left.id != right.id" if both else "")
    funnel = hp.Funnel()
    found = hp.join(*frames, on, share, funnel=funnel).collect()
    found = {(row["id_left"], row["id_right"]): row["probability"] for row in found}

    def within(difference, limit):
        chances = np.vectorize(
            lambda d: 0.5 * (math.erf((limit - d) / math.sqrt(2)) + math.erf((limit + d) / math.sqrt(2)))
        )
        return np.nan_to_num(chances(difference))

    near = [within(sides[0][n][:, None] - sides[1][n][None, :], limit) for n, limit in enumerate((1.5, 0.5))]
    chance = np.where(kinds[0][:, None] == kinds[1][None, :], 1.0, 1 - (1 - near[0]) * (1 - near[1]))
    if both:
        np.fill_diagonal(chance, 0.0)
    wanted = {(int(i), int(j)): chance[i, j] for i, j in np.argwhere(chance >= share)}
    assert found == pytest.approx(wanted, abs=1e-12)
    assert len(wanted) <= funnel.to_dict()["candidates"] < rows * rows / 4


def test_combinations_in_windows_by_any_condition(engine):
    """What a window join cannot compute as it goes is selected among its combinations."""
    random = np.random.default_rng(3)
    tables, values = {}, {}
    for name in "ABC":
        values[name] = [
            {"time": float(t), "x": (random.integers(-4, 5, 3) / 2).tolist(), "k": int(random.integers(0, 2))}
            for t in np.sort(random.uniform(0, 12, 5))
        ]
        columns = {key: [row[key] for row in values[name]] for key in ("time", "x", "k")}
        tables[name] = frame_of(engine, {"id": list(range(5)), **columns})
    x = {name: f"samples({name}.x)" for name in "ABC"}
    on = f"({x['A']} - {x['B']} > 1 OR {x['B']} * {x['C']} > 0.5) AND A.k = B.k"
    windows = {("A", "B"): 4, ("B", "C"): 4}
    found = {
        tuple(row[f"{name}_id"] for name in "ABC"): row["probability"]
        for row in hp.window_join(tables, windows, on=on, threshold=0.3).collect()
    }
    wanted = {}
    for i, j, k in itertools.product(range(5), repeat=3):
        a, b, c = values["A"][i], values["B"][j], values["C"][k]
        if abs(a["time"] - b["time"]) > 4 or abs(b["time"] - c["time"]) > 4 or a["k"] != b["k"]:
            continue
        p = np.mean([u - v > 1 or v * w > 0.5 for u, v, w in itertools.product(a["x"], b["x"], c["x"])])
        if p >= 0.3:
            wanted[i, j, k] = p
    assert len(wanted) > 3
    assert found == pytest.approx(wanted, abs=1e-12)


def test_three_tables(engine):
    frame = frame_of(engine, {"id": [1, 2], "x": [0.0, 1.0]})
    text = (
        "SELECT A.id AS a, B.id AS b, C.id AS c, PROB() AS p FROM A, B, C "
        "WHERE GAUSSIAN(A.x, 0.5) - GAUSSIAN(B.x, 0.4) > 1 OR GAUSSIAN(B.x, 0.4) - GAUSSIAN(C.x, 0.3) > 1 "
        "WITH THRESHOLD 0.2"
    )
    found = {(row["a"], row["b"], row["c"]): row["p"] for row in hp.sql(text, A=frame, B=frame, C=frame).collect()}
    random = np.random.default_rng(1)
    count = 400_000
    for key in itertools.product((1, 2), repeat=3):
        a, b, c = (random.normal(k - 1.0, sd, count) for k, sd in zip(key, (0.5, 0.4, 0.3), strict=True))
        share = float(((a - b > 1) | (b - c > 1)).mean())
        assert abs(found.get(key, 0.0) - share) < 5 * math.sqrt(0.25 / count) or (share < 0.201 and key not in found)


def test_too_many_cases_are_refused(engine):
    table = frame_of(engine, {"id": [1], "y": [0.0], **{f"x{k}": [0.0] for k in range(30)}})
    odd = " XOR ".join(f"gaussian(x{k}, 1.0) < gaussian(y, 1.0)" for k in range(30))
    with pytest.raises(hp.HaplyError, match=r"more than 4,096 cases that exclude one another.*Hint: ask for parts"):
        hp.where(table, odd, 0.5)


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("seed", range(120))
def test_chains_of_xor_are_enumerated(engine, seed):
    """Parts that share columns or not, inside other combinations, with certain ones that may be unknown."""
    random = np.random.default_rng(seed)
    names = [f"x{k}" for k in range(7)]
    points = {name: [(random.integers(-4, 5, 2) / 2).tolist() for _ in range(ROWS)] for name in names}
    if seed % 3 == 0:
        points["x0"][1] = None
    sure = [1, 0, None, 1]
    table = frame_of(engine, {"id": list(range(ROWS)), **points, "sure": sure})

    def leaf():
        """Texts, and what they are: true, false, or unknown (nan)."""
        kind = int(random.integers(0, 6))
        one, other = random.choice(names, 2, replace=False)
        limit = float(random.integers(-3, 4)) / 2
        if kind == 0:
            return "sure = 1", lambda row: np.where(np.isnan(row["sure"]), np.nan, row["sure"] == 1)
        if kind == 1:
            text, of = f"samples({one}) - samples({other}) < {limit}", lambda row: row[one] - row[other]
        else:
            text, of = f"samples({one}) < {limit}", lambda row: row[one]
        return text, lambda row: np.where(np.isnan(of(row)), np.nan, of(row) < limit)

    def tree(depth):
        if depth == 0:
            return leaf()
        parts = [tree(0 if random.random() < 0.6 else depth - 1) for _ in range(int(random.integers(2, 6)))]
        word = str(random.choice(["XOR", "XOR", "XOR", "AND", "OR", "="]))
        parts = parts[:2] if word == "=" else parts
        text = f" {word} ".join(f"({one})" for one, _ in parts)
        holds = [of for _, of in parts]
        combine = {
            "XOR": lambda a, b: np.abs(a - b), "=": lambda a, b: 1 - np.abs(a - b),
            "AND": lambda a, b: np.where((a == 0) | (b == 0), 0.0, a * b),
            "OR": lambda a, b: np.where((a == 1) | (b == 1), 1.0, a + b),
        }[word]  # fmt: skip

        def of(row):
            found = holds[0](row)
            for other in holds[1:]:
                found = combine(found, other(row))
            return found

        if random.random() < 0.2:
            return f"NOT ({text})", lambda row: 1 - of(row)
        return text, of

    text, holds = tree(2)
    if "samples" not in text:
        return
    found = {row["id"]: row["probability"] for row in hp.where(table, text, 1e-9).collect()}
    wanted = {}
    for k in range(ROWS):
        of_row = [points[name][k] or [np.nan] for name in names]
        worlds = np.array(list(itertools.product(*of_row))).T
        row = dict(zip(names, worlds, strict=True))
        row["sure"] = np.full(worlds.shape[1], np.nan if sure[k] is None else sure[k])
        p = float(np.mean(np.broadcast_to(holds(row) == 1, worlds.shape[1:])))
        if p > 0:
            wanted[k] = p
    assert found == pytest.approx(wanted, abs=1e-12), text


def test_a_long_chain_of_xor_has_a_closed_form(engine):
    """``(1 - (1 - 2 p)(1 - 2 q)...) / 2``, of thirty values."""
    random = np.random.default_rng(8)
    means = random.normal(0.8, 1.0, (30, 2))
    table = frame_of(engine, {"id": [0, 1], **{f"x{k}": means[k].tolist() for k in range(30)}})
    found = hp.where(table, " XOR ".join(f"gaussian(x{k}, 0.5) > 0" for k in range(30)), 0.01).collect()
    for row in found:
        rest = math.prod(math.erfc(means[k, row["id"]] / (0.5 * math.sqrt(2))) - 1 for k in range(30))
        assert row["probability"] == pytest.approx(0.5 * (1 - rest), abs=1e-13)
    assert len(found) == 2


def test_explain_shows_what_was_rewritten(engine):
    table = frame_of(engine, {"id": [1], "x": [0.0], "y": [0.0]})
    text = hp.plan_where(table, "gaussian(x, 1.0) < 0 OR gaussian(y, 1.0) > 1", 0.5).explain(verbose=True)
    assert "2 cases that exclude one another" in text
    text = hp.plan_where(table, "greatest(gaussian(x, 1.0), gaussian(y, 1.0)) > 1", 0.5).explain(verbose=True)
    assert "spelled out" in text
    assert "gaussian(x, 1.0) > 1 OR gaussian(y, 1.0) > 1" in text


def test_explain_states_the_error_of_what_is_integrated(engine):
    table = frame_of(engine, {"id": [1], "x": [0.0], "y": [0.0], "z": [0.0]})

    def said(text):
        made = {name: f"gaussian({name}, 1.0)" for name in "xyz"}
        return hp.plan_where(table, with_columns(text, made), 0.5).explain()

    assert "error" not in said("x < 0 OR y > 1")
    assert "(error below 1e-8)" in said("x * x + y * y + z * z < 2 AND x * y > 0.1")
    assert "(error below 2e-8)" in said("x * x + y * y + z * z < 2 AND (x * y > 0.1 OR y * z > 0.2)")
    assert "(error below 1e-10)" in said("x * uniform(0, 1) + y < 2")


# -- sums of two values of any law -------------------------------------------------------------------------------------

SCALED = {
    "uniform": "uniform({f} * {a}, {f} * {b})",
    "gaussian": "gaussian({f} * {a}, abs({f}) * s)",
    "truncated": "truncated_gaussian({f} * {a}, abs({f}) * s, {f} * ({a} - 1), {f} * {b})",
    "asymmetric": "asymmetric({f} * {a}, abs({f}) * s, abs({f}) * 2 * s)",
    "histogram": "histogram(array({f} * {a}, {f} * ({a} + 0.5), {f} * {b}), array(0.25, 0.75))",
    "samples": "samples(array({f} * {a}, {f} * {b}, {f} * 4))",
}
"""Values times a positive number. Those that are negated are written out below."""
NEGATED = SCALED | {
    "uniform": "uniform({f} * {b}, {f} * {a})",
    "truncated": "truncated_gaussian({f} * {a}, abs({f}) * s, {f} * {b}, {f} * ({a} - 1))",
    "asymmetric": "asymmetric({f} * {a}, abs({f}) * 2 * s, abs({f}) * s)",
    "histogram": "histogram(array({f} * {b}, {f} * ({a} + 0.5), {f} * {a}), array(0.75, 0.25))",
}


@pytest.mark.parametrize("limit", ["< 2.3", "BETWEEN -0.4 AND 1.7"])
@pytest.mark.parametrize(("one_factor", "other_factor"), [(1, 1), (2, -0.5), (-1, -3)])
@pytest.mark.parametrize(("one", "other"), list(itertools.combinations_with_replacement(SCALED, 2)))
@pytest.mark.long(keep=15)
def test_sums_are_differences_of_scaled_values(engine, one, other, one_factor, other_factor, limit):
    """``2 x + y`` is the difference of ``2 x`` and ``-y``, which the constructors can make as well."""
    columns = {"id": [1, 2], "a": [0.0, 1.0], "b": [1.5, 3.0], "s": [0.4, 0.7]}
    columns |= {"a2": [0.2, 0.7], "b2": [0.9, 4.0]}  # another value, also of the same law
    table = frame_of(engine, columns)

    def written(kind, factor, forms, second):
        names = {"a": "a2", "b": "b2"} if second else {"a": "a", "b": "b"}
        return (forms if factor > 0 else NEGATED)[kind].format(f=factor, **names)

    one_plain, other_plain = written(one, 1, SCALED, False), written(other, 1, SCALED, True)
    asked = f"{one_factor} * {one_plain} + {other_factor} * {other_plain} {limit}"
    scaled = f"{written(one, one_factor, SCALED, False)} - {written(other, -other_factor, SCALED, True)} {limit}"
    found, wanted = (
        {row["id"]: row["probability"] for row in hp.where(table, text, 1e-9).collect()} for text in (asked, scaled)
    )
    assert found == pytest.approx(wanted, abs=1e-12)


def test_sums_that_share_values_of_any_law(engine):
    """Two sums that share a value, and a condition on the value itself, against all worlds."""
    points = {"a": [0.0, 1.0, 2.5], "b": [0.5, 1.5], "c": [-1.0, 0.25, 3.0]}
    table = frame_of(engine, {"id": [1], **{name: [values] for name, values in points.items()}})
    text = "2 * samples(a) + samples(b) < 3 AND samples(b) + 0.5 * samples(c) > 0.6 AND samples(b) < 1"
    (row,) = hp.where(table, text, 1e-9).collect()
    worlds = list(itertools.product(*points.values()))
    holds = [2 * a + b < 3 and b + 0.5 * c > 0.6 and b < 1 for a, b, c in worlds]
    assert row["probability"] == pytest.approx(sum(holds) / len(worlds), abs=1e-15)


def test_distance_from_a_fixed_point(engine):
    """An array in a condition is a point: of numbers, or of certain columns; in joins and SQL as well."""
    columns = {"id": [1, 2], "x": [0.0, 1.0], "m": [[1.0, 2.0], [3.0, 2.0]]}
    table = hp.sql("SELECT id, x, gaussian_nd(m, array(1.0, 1.0)) AS pos FROM t", t=frame_of(engine, columns))

    def within(centre, point, radius):
        # of two normal coordinates with sd 1: a sum over the noncentral chi squared distribution
        half = sum((a - b) ** 2 for a, b in zip(centre, point, strict=True)) / 2
        poisson = [math.exp(-half) * half**k / math.factorial(k) for k in range(60)]
        rest = [math.exp(-(radius**2) / 2) * (radius**2 / 2) ** k / math.factorial(k) for k in range(60)]
        return sum(weight * (1 - sum(rest[: k + 1])) for k, weight in enumerate(poisson))

    def chances(found):
        return {row["id"]: row["probability"] for row in found.collect()}

    centres = dict(zip(columns["id"], columns["m"], strict=True))
    wanted = {k: within(centre, (1.0, 2.0), 1.0) for k, centre in centres.items()}
    assert chances(hp.where(table, "distance(pos, array(1, 2)) < 1", 0.001)) == pytest.approx(wanted, abs=1e-10)
    assert chances(hp.where(table, "distance(array(1, 2), pos) < 1", 0.001)) == pytest.approx(wanted, abs=1e-10)
    beyond = {k: 1 - within(centre, (x, 2.0), 1.0) for (k, centre), x in zip(centres.items(), (0, 1), strict=True)}
    assert chances(hp.where(table, "distance(pos, array(x, 2)) > 1", 0.001)) == pytest.approx(beyond, abs=1e-10)
    query = "SELECT id, PROB() AS probability FROM t WHERE DISTANCE(pos, array(1, 2)) < 1 WITH THRESHOLD 0.001"
    assert chances(hp.sql(query, t=table)) == pytest.approx(wanted, abs=1e-10)
    on = "left.id < right.id AND distance(left.pos, array(1, 2)) < 1 AND distance(right.pos, array(3, 2)) < 1"
    (pair,) = hp.join(table, table, on, 0.01).collect()
    assert pair["probability"] == pytest.approx(within((1, 2), (1, 2), 1.0) ** 2, abs=1e-10)
    with pytest.raises(hp.HaplyError, match="which is uncertain"):
        hp.where(table, "distance(pos, array(gaussian(x, 1), 2)) < 1", 0.1)
