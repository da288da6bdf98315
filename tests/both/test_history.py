"""History: queries on the results of queries, and rows of one table that meet, against enumeration of all worlds.

The oracle knows rows as dicts of certain values and variables, and conditions as functions of a world.
"""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp

ROWS, POINTS = 4, 3


# -- the oracle --------------------------------------------------------------------------------------------------------


class Derived:
    """Rows with their columns, and what each row has passed: functions of a world, with the variables that they need.

    A variable is a row of the one table there is, by its id, and a column. A world is a value for each.
    """

    def __init__(self, rows, passed):
        self.rows, self.passed = rows, passed


def base(values):
    rows = [{"id": k, "x": ("x", k), "y": ("y", k)} for k in range(len(values["x"]))]
    return Derived(rows, [[] for _ in rows])


def chance(passed, values):
    used = sorted({variable for names, _ in passed for variable in names})
    worlds = itertools.product(*(values[column][k] for column, k in used))
    held = []
    for world in worlds:
        known = dict(zip(used, world, strict=True))
        held.append(all(holds(*(known[name] for name in names)) for names, holds in passed))
    return float(np.mean(held))


def selected(table, condition, values, threshold):
    columns, holds = condition
    found = Derived([], [])
    for row, passed in zip(table.rows, table.passed, strict=True):
        every = [*passed, (tuple(row[column] for column in columns), holds)]
        p = chance(every, values)
        if p >= threshold - 1e-12:
            found.rows.append(row | {"probability": p})
            found.passed.append(every)
    return found


def joined(left, right, condition, values, threshold):
    columns, holds = condition
    found = Derived([], [])
    for (one, mine), (other, theirs) in itertools.product(
        zip(left.rows, left.passed, strict=True), zip(right.rows, right.passed, strict=True)
    ):
        both = {f"{name}_left" if name in other else name: value for name, value in one.items()}
        both |= {f"{name}_right" if name in one else name: value for name, value in other.items()}
        every = [*mine, *theirs, (tuple(both[column] for column in columns), holds)]
        p = chance(every, values)
        if p >= threshold - 1e-12:
            found.rows.append(both | {"probability": p})
            found.passed.append(every)
    return found


def answers(rows):
    """Ids of each row with its probability; no combination of ids is there twice."""
    found = {}
    for row in rows:
        ids = tuple((name, row[name]) for name in sorted(row) if name.startswith("id"))
        assert ids not in found
        found[ids] = row["probability"]
    return found


def plain(table):
    return [row.asDict() for row in table.collect()]


class Making:
    """Makes values, and conditions as text and as functions at once."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.values = {
            column: [(self.random.integers(-4, 5, POINTS) / 2).tolist() for _ in range(ROWS)] for column in "xy"
        }

    def table(self, engine):
        columns = {"id": list(range(ROWS)), **self.values}
        return hp.sql(
            "SELECT id, samples(x) AS x, samples(y) AS y FROM t", t=hp.Table(engine, pa.table(columns))
        )  # fmt: skip

    def number(self):
        return float(self.random.integers(-3, 4)) / 2

    def of_one(self, *columns):
        """A condition on one column."""
        column, k = str(self.random.choice(columns)), self.number()
        if self.random.random() < 0.3:
            return f"abs({column}) >= {abs(k)}", ((column,), lambda value: abs(value) >= abs(k))
        return f"{column} < {k}", ((column,), lambda value: value < k)

    def of_two(self, one, other):
        """A condition on two columns."""
        k, m = abs(self.number()) + 0.5, self.number()
        match int(self.random.integers(0, 4)):
            case 0:
                return f"abs({one} - {other}) <= {k}", ((one, other), lambda a, b: abs(a - b) <= k)
            case 1:
                return f"{one} < {other} + {m}", ((one, other), lambda a, b: a < b + m)
            case 2:
                return f"{one} < {m} OR {other} > {k}", ((one, other), lambda a, b: a < m or b > k)
        return f"{one} + {other} > {m}", ((one, other), lambda a, b: a + b > m)


def sides(text, columns):
    """The condition of a join: columns of the result named by their sides."""
    for column in columns:
        name, _, side = column.rpartition("_")
        text = text.replace(column, f"{side}.{name}")
    return text


# -- one query after the other -----------------------------------------------------------------------------------------


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("seed", range(60))
def test_selections_one_after_the_other(engine, seed):
    make = Making(seed)
    found, wanted = make.table(engine), base(make.values)
    for _ in range(3):
        text, condition = make.of_two("x", "y") if make.random.random() < 0.4 else make.of_one("x", "y")
        threshold = float(make.random.choice([0.05, 0.2]))
        found = hp.where(found, text, threshold)
        wanted = selected(wanted, condition, make.values, threshold)
        assert answers(plain(found)) == pytest.approx(answers(wanted.rows), abs=1e-12), text


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("seed", range(120))
def test_rows_of_a_table_with_a_key_meet_in_joins_and_results(engine, seed):
    """Selections on the table, joins of what they give, and selections on the pairs: as one query."""
    make = Making(1000 + seed)
    table, whole = hp.table(make.table(engine), key="id"), base(make.values)
    found, wanted = [], []
    for _ in range(2):
        text, condition = make.of_one("x", "y")
        found.append(hp.where(table, text, 0.05, probability="none") if make.random.random() < 0.7 else table)
        kept = selected(whole, condition, make.values, 0.05) if found[-1] is not table else whole
        wanted.append(Derived([{k: v for k, v in row.items() if k != "probability"} for row in kept.rows], kept.passed))
    columns = str(make.random.choice(["x_left", "y_left"])), str(make.random.choice(["x_right", "y_right"]))
    text, condition = make.of_two(*columns)
    pairs = hp.join(*found, on=sides(text, columns), threshold=0.1)
    wanted_pairs = joined(*wanted, condition, make.values, 0.1)
    assert answers(plain(pairs)) == pytest.approx(answers(wanted_pairs.rows), abs=1e-12), text
    text, condition = make.of_one("x_left", "y_right", "y_left")
    again = hp.where(pairs, text, 0.05)
    wanted_again = selected(wanted_pairs, condition, make.values, 0.05)
    assert answers(plain(again)) == pytest.approx(answers(wanted_again.rows), abs=1e-12), text


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("seed", range(60))
def test_sql_with_keys(engine, seed):
    """Two and three times the same table in one query."""
    make = Making(2000 + seed)
    given, whole = make.table(engine), base(make.values)
    count = int(make.random.integers(2, 4))
    names = "abc"[:count]
    texts, passed = [], []
    for one, other in itertools.pairwise(names):
        text, condition = make.of_two(f"{one}.x", f"{other}.x" if make.random.random() < 0.6 else f"{other}.y")
        texts.append(f"({text})")
        passed.append(condition)
    asked = f"SELECT {', '.join(f'{n}.id AS id_{n}' for n in names)}, PROB() AS probability FROM "
    asked += ", ".join(f"t KEY id AS {n}" for n in names) + f" WHERE {' AND '.join(texts)} WITH THRESHOLD 0.2"
    wanted = {}
    for rows in itertools.product(whole.rows, repeat=count):
        of = dict(zip(names, rows, strict=True))
        every = [
            (tuple(of[name.partition(".")[0]][name.partition(".")[2]] for name in columns), holds)
            for columns, holds in passed
        ]
        p = chance(every, make.values)
        if p >= 0.2 - 1e-12:
            wanted[tuple((f"id_{n}", of[n]["id"]) for n in names)] = p
    assert answers(plain(hp.sql(asked, t=given))) == pytest.approx(wanted, abs=1e-12), asked


# -- what is written in the notes and in the docs ----------------------------------------------------------------------


def test_a_value_beside_itself(engine):
    """Today's SQL said 0.2763 for a value within half a standard deviation of itself."""
    t = hp.Table(engine, pa.table({"id": [1], "m": [0.0]}))
    query = "SELECT PROB() AS p FROM t {} a, t {} b WHERE abs(gaussian(a.m, 1) - gaussian(b.m, 1)) <= 0.5"
    query += " WITH THRESHOLD 0.1"
    with pytest.warns(hp.HaplyWarning, match="KEY id"):
        assert hp.sql(query.format("", ""), t=t).first()["p"] == pytest.approx(0.27632639016823707)
    assert hp.sql(query.format("KEY id", "KEY id"), t=t).first()["p"] == 1.0


def test_components_of_one_row(engine):
    """Different components of a position of one row are as they lie together."""
    rows = {"id": [1, 2], "m": [[0.0, 0.0], [0.0, 0.0]], "c": [[1.0, 0.9, 0.9, 1.0], [1.0, 0.9, 0.9, 1.0]]}
    t = hp.sql("SELECT id, gaussian_nd(m, NULL, NULL, c) AS pos FROM t", t=hp.Table(engine, pa.table(rows)))
    t = hp.table(t, key="id")
    found = hp.join(t, t, on="abs(left.pos[0] - right.pos[1]) <= 0.3", threshold=0.01)
    chances = {(row["id_left"], row["id_right"]): row["probability"] for row in found.collect()}
    from math import erf, sqrt

    same, other = erf(0.3 / sqrt(2 * 0.2)), erf(0.3 / sqrt(2 * 2.0))
    assert chances == pytest.approx({(1, 1): same, (2, 2): same, (1, 2): other, (2, 1): other}, abs=1e-10)


def test_a_value_cannot_be_near_two_places_at_once(engine):
    a = hp.Table(engine, pa.table({"a": ["A"], "x": [0.0]}))
    b = hp.sql("SELECT 'B' AS b, samples(array(0.0, 10.0)) AS x FROM t", t=hp.Table(engine, pa.table({"k": [1]})))
    c = hp.Table(engine, pa.table({"c": ["C"], "x": [10.0]}))
    first = hp.join(a, b, on="abs(left.x - right.x) <= 1", threshold=0.5)
    assert hp.join(first, c, on="abs(left.x_right - right.x) <= 1", threshold=0.01).count() == 0
    near = hp.Table(engine, pa.table({"c": ["near"], "x": [0.5]}))
    assert hp.join(first, near, on="abs(left.x_right - right.x) <= 1", threshold=0.01).first()["probability"] == 0.5


def test_best_and_outer_joins_of_rows_that_meet_themselves(engine):
    t = hp.table(hp.Table(engine, pa.table({"id": [1, 2, 3], "m": [0.0, 0.1, 9.0]})), key="id")
    near = "abs(gaussian(left.m, 1) - gaussian(right.m, 1)) <= 0.5"
    best = hp.join(t, t, on=near, threshold=0.1, keep="best_left")
    assert {(r["id_left"], r["id_right"]): r["probability"] for r in best.collect()} == {(k, k): 1.0 for k in (1, 2, 3)}
    others = hp.join(t, t, on=f"{near} AND left.id != right.id", threshold=0.1, how="anti")
    assert [row["id"] for row in others.collect()] == [3]


# -- what is known, and what is not ------------------------------------------------------------------------------------


def test_explain_tells_of_earlier_conditions_and_of_what_is_gone(engine):
    t = hp.Table(engine, pa.table({"id": [1, 2], "m": [0.0, 1.0], "n": [0.0, 1.0]}))
    first = hp.where(t, "gaussian(m, 1) > 0", 0.2)
    plan = hp.plan_where(first, "gaussian(n, 1) > 0", 0.1)
    assert (
        "history       gaussian(m, 1) > 0, a condition of an earlier query: part of this probability" in plan.explain()
    )
    assert [row["probability"] for row in plan.run().collect()] == pytest.approx([0.25, 0.841344746068543**2])
    less = hp.sql("SELECT id, n FROM t", t=first)
    cut = hp.plan_where(less, "gaussian(n, 1) > 0", 0.1)
    assert "earlier condition" not in cut.explain()  # nothing is left that could tell
    some = hp.sql("SELECT id, n, probability AS p FROM t", t=first)
    text = hp.plan_where(some, "gaussian(n, 1) > 0", 0.1).explain()
    assert "history       cut: columns that 1 earlier condition used are missing" in text
    outer = hp.join(first, t, on="left.id = right.id AND gaussian(left.n, 1) < right.m", threshold=0.9, how="left")
    text = hp.plan_where(outer, "gaussian(n_left, 1) > 0", 0.1, probability="none").explain()
    assert "history       cut: it was joined with how='left'" in text


def test_history_can_be_forgotten(engine):
    t = hp.Table(engine, pa.table({"id": [1], "m": [0.0]}))
    first = hp.where(t, "gaussian(m, 1) > 0", 0.2)
    again = hp.sql("SELECT id, m FROM t", t=hp.table(first))
    assert hp.where(again, "gaussian(m, 1) < 1", 0.1).first()["probability"] == pytest.approx(0.841344746068543)
    kept = hp.sql("SELECT id, m FROM t", t=first)
    assert hp.where(kept, "gaussian(m, 1) < 1", 0.1).first()["probability"] == pytest.approx(0.3413447460685429)


def test_null_keys_are_not_equal(engine):
    t = hp.Table(engine, pa.table({"id": pa.array([1, None], pa.int64()), "m": [0.0, 0.0]}))
    t = hp.table(t, key="id")
    found = hp.join(t, t, on="abs(gaussian(left.m, 1) - gaussian(right.m, 1)) <= 0.5", threshold=0.1).collect()
    assert sorted(round(row["probability"], 4) for row in found) == [0.2763, 0.2763, 0.2763, 1.0]


def test_several_columns_are_a_key(engine):
    t = hp.Table(engine, pa.table({"id": [1, 1], "day": [1, 2], "m": [0.0, 0.0]}))
    near = "abs(gaussian(left.m, 1) - gaussian(right.m, 1)) <= 0.5"
    found = hp.join(hp.table(t, key=["id", "day"]), hp.table(t, key=["id", "day"]), on=near, threshold=0.1).collect()
    assert sorted(round(row["probability"], 4) for row in found) == [0.2763, 0.2763, 1.0, 1.0]
    query = "SELECT PROB() AS p FROM t KEY (id, day) a JOIN t KEY (id, day) b ON "
    found = hp.sql(query + "abs(gaussian(a.m, 1) - gaussian(b.m, 1)) <= 0.5 WITH THRESHOLD 0.1", t=t).collect()
    assert sorted(round(row["p"], 4) for row in found) == [0.2763, 0.2763, 1.0, 1.0]


def test_a_query_in_parentheses_counts_into_the_probability(engine):
    t = hp.Table(engine, pa.table({"id": [1, 2], "m": [0.0, 1.0]}))
    query = "SELECT id, PROB() AS p FROM (SELECT id, m FROM t WHERE gaussian(m, 1) > 0) a WHERE gaussian(m, 1) < 1 "
    query += "WITH THRESHOLD 0.1"
    found = {row["id"]: row["p"] for row in hp.sql(query, t=t).collect()}
    assert found == pytest.approx({1: 0.3413447460685429, 2: 0.3413447460685429})
    with pytest.raises(hp.HaplyError, match="add m to the inner SELECT"):
        hp.sql(query.replace("id, m FROM", "id FROM").replace("gaussian(m, 1) < 1 WITH", "id < 2 WITH"), t=t)


@pytest.mark.parametrize(("key", "words"), [("nope", "nope"), ("x", "cannot be a key"), ([], "no column")])
def test_what_is_no_key(engine, key, words):
    t = hp.sql("SELECT id, gaussian(1.0, 1.0) AS x FROM t", t=hp.Table(engine, pa.table({"id": [1]})))
    with pytest.raises(hp.HaplyError, match=words):
        hp.table(t, key=key)


def test_parts_that_never_hold_have_no_rows(engine):
    """Of ``a < b < c`` no row is its own neighbour, and ``c`` cannot be ``a``."""
    t = hp.Table(engine, pa.table({"id": [1, 2, 3], "m": [0.0, 0.5, 1.0]}))
    text = "SELECT a.id AS i, b.id AS j, c.id AS k, PROB() AS p FROM t {0} a, t {0} b, t {0} c WHERE "
    text += "gaussian(a.m, 0.5) < gaussian(b.m, 0.5) AND gaussian(b.m, 0.5) < gaussian(c.m, 0.5) {1}WITH THRESHOLD 0.01"
    keyed = {(row["i"], row["j"], row["k"]): row["p"] for row in hp.sql(text.format("KEY id", ""), t=t).collect()}
    apart = "AND a.id != b.id AND b.id != c.id AND a.id != c.id "
    other = {(row["i"], row["j"], row["k"]): row["p"] for row in hp.sql(text.format("", apart), t=t).collect()}
    assert keyed == pytest.approx(other, abs=1e-12)
    assert len(keyed) == 6


def test_other_questions_take_rows_as_they_are(engine):
    t = hp.Table(engine, pa.table({"id": [1, 2], "m": [0.0, 1.0]}))
    first = hp.where(t, "gaussian(m, 1) > 0", 0.2, probability="none")
    plan = hp.plan_match(
        first, t, "gaussian(left.m, 1) = gaussian(right.m, 1)", density=0.1, completeness=0.9, threshold=0.1
    )
    assert "note          These numbers ignore that the rows have passed `gaussian(m, 1) > 0`" in plan.explain()


def test_windows_of_certain_times_keep_history_and_others_cut_it(engine):
    columns = {"id": [1, 2], "m": [0.0, 0.1], "t": [0.0, 1.0]}
    t = hp.Table(engine, pa.table(columns))
    near = "abs(gaussian(left.m, 1) - gaussian(right.m, 1)) <= 2"
    pairs = hp.join(t, t, on=f"{near} AND left.id < right.id", threshold=0.1, time="t", window=2.0)
    text = hp.plan_where(pairs, "gaussian(m_left, 1) > 0", 0.1).explain()
    assert "a condition of an earlier query" in text
    unsure = hp.sql("SELECT id, m, gaussian(t, 0.1) AS t FROM t", t=t)
    pairs = hp.join(unsure, unsure, on=f"{near} AND left.id < right.id", threshold=0.1, time="t", window=2.0)
    text = hp.plan_where(pairs, "gaussian(m_left, 1) > 0", 0.1, probability="none").explain()
    assert "cut: it was joined in a window of uncertain times" in text
