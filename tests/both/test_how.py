"""``how=``: rows without a partner. The pairs themselves are tested elsewhere: here the laws that tie them to rows."""

from __future__ import annotations

from collections import Counter

import pytest

import both_kit as hp
from answers_kit import BAND, CONDITIONS, NEAR, SHOWN, bag, numbered, sides
from haply.errors import HaplyError


def check_laws(engine, left, right, on, threshold, **options):
    """Compare every ``how`` with the pairs of numbered rows."""
    mine, theirs = numbered(engine, left), numbered(engine, right)
    pairs = hp.join(mine, theirs, on, threshold, **options).collect()
    matched = {row["row_left"] for row in pairs}, {row["row_right"] for row in pairs}
    inner = bag(hp.join(left, right, on, threshold, **options))
    assert sum(inner.values()) == len(pairs)
    columns = hp.join(left, right, on, threshold, **options).columns
    width = len(left.columns)
    alone = []
    for table, seen, before, after in (
        (left, matched[0], 0, len(columns) - width),
        (right, matched[1], width, len(columns) - 2 * width),
    ):
        rows = [tuple(map(repr, row)) for row in table.collect()]
        none = (repr(None),)
        alone.append(Counter(none * before + row + none * after for k, row in enumerate(rows) if k not in seen))
    expected = {
        "inner": inner, "left": inner + alone[0], "right": inner + alone[1], "outer": inner + alone[0] + alone[1],
    }  # fmt: skip
    for how, wanted in expected.items():
        found = hp.join(left, right, on, threshold, how=how, **options)
        assert found.columns == columns
        assert bag(found) == wanted, how
    whole = bag(left)
    semi = hp.join(left, right, on, threshold, how="semi", **options)
    anti = hp.join(left, right, on, threshold, how="anti", **options)
    assert semi.columns == anti.columns == left.columns
    rows = [tuple(map(repr, row)) for row in left.collect()]
    assert bag(semi) == Counter(row for k, row in enumerate(rows) if k in matched[0])
    assert bag(semi) + bag(anti) == whole
    return len(pairs), sum(alone[0].values()), sum(alone[1].values())


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("on", CONDITIONS.values(), ids=CONDITIONS)
def test_laws(engine, on, seed):
    found = check_laws(engine, *sides(engine, 10 * seed), on, 0.4)
    assert all(found), "the test has pairs, and rows without one"


def test_laws_in_a_window(engine):
    left, right = sides(engine, 77)
    for on in (BAND, NEAR, None):
        threshold = None if on is None else 0.4
        assert all(check_laws(engine, left, right, on, threshold, time="t", window=4 if on else 0))


def test_laws_without_a_threshold_and_with_a_strict_one(engine):
    left, right = sides(engine, 55)
    on = "abs(left.u - right.u) <= 0.5"
    assert all(check_laws(engine, left, right, on, None))
    assert all(check_laws(engine, left, right, on, 1.0))
    assert check_laws(engine, left, right, on, 1.0, strict=True)[0] == 0


def test_laws_of_broadcast_and_strategies(engine):
    left, right = sides(engine, 66)
    check_laws(engine, left, right, BAND, 0.4, broadcast="right")
    check_laws(engine, left, right, BAND, 0.4, strategy="moments")


def test_empty_tables(engine):
    left, right = sides(engine, 33)
    nobody = right.where("n < 0")
    for on in (BAND, CONDITIONS["greater"], CONDITIONS["several"], CONDITIONS["certain"]):
        assert check_laws(engine, left, nobody, on, 0.4) == (0, left.count(), 0)
        assert check_laws(engine, nobody, right, on, 0.4) == (0, 0, right.count())


def test_a_larger_threshold_leaves_more_rows_alone(engine):
    left, right = sides(engine, 44)
    for how, grows in (("inner", -1), ("semi", -1), ("anti", 1)):
        low, high = (bag(hp.join(left, right, BAND, p, how=how)) for p in (0.2, 0.7))
        assert low != high
        assert not (low - high if grows > 0 else high - low)


def test_right_rows_in_two_parts(engine):
    left, right = sides(engine, 88)
    one, other = right.where("n < 4"), right.where("n >= 4 OR n IS NULL")
    whole = hp.join(left, right, BAND, 0.4, how="anti")
    part = hp.join(left, one, BAND, 0.4, how="anti")
    assert bag(hp.join(part, other, BAND, 0.4, how="anti")) == bag(whole)


def test_a_right_join_is_a_left_join_of_swapped_tables(engine):
    left, right = sides(engine, 99)
    one = hp.join(left, right, f"{BAND} AND left.kind = 'a'", 0.4, how="right", columns=SHOWN)

    swap = {"name_left": "name_right", "n_left": "n_right", "t_left": "t_right"}
    swap |= {there: here for here, there in swap.items()}
    mirrored = [swap[name] for name in SHOWN]
    two = hp.join(right, left, f"{BAND} AND right.kind = 'a'", 0.4, how="left", columns=mirrored)
    assert bag(one) == bag(two)


def test_a_row_and_itself(engine):
    left, _ = sides(engine, 22)
    table = numbered(engine, left)
    anti = hp.join(table, table, BAND, 0.95, self_key="row", how="anti")
    assert {row["x"] for row in anti.collect()} == {None}
    plan = hp.plan_join(table, table, BAND, 0.95, self_key="row", how="anti")
    assert "every row is its own partner" in plan.explain()
    others = hp.plan_join(table, table, f"{BAND} AND left.row != right.row", 0.95, self_key="row", how="anti")
    assert "its own partner" not in others.explain()
    assert others.run().count() > anti.count()


def test_semi_asks_for_one_likely_partner_not_for_several_unlikely_ones(engine):
    types = "name string, x struct<lo:double,hi:double>"
    left = engine.createDataFrame([("one", (0.0, 10.0))], types)
    right = engine.createDataFrame([(str(k), (2.0 + 3 * k, 2.0 + 3 * k)) for k in range(3)], types)
    on = "abs(left.x - right.x) <= 1.5"
    assert [row["probability"] for row in hp.join(left, right, on, 0.3).collect()] == pytest.approx([0.3] * 3)
    assert not hp.join(left, right, on, 0.5, how="semi").count()
    assert hp.join(left, right, on, 0.5, how="anti").count() == 1


def test_bad_rows_are_in_no_answer(engine):
    types = "id long, x struct<mean:double,sd:double>"
    left = engine.createDataFrame([(1, (0.0, 0.1)), (2, (0.0, -1.0)), (3, (9.0, 0.1)), (4, None)], types)
    right = engine.createDataFrame([(7, (0.0, 0.1)), (8, (0.0, float("nan"))), (9, (50.0, 0.1))], types)
    for how, wanted in (("left", [1, 3, 4]), ("outer", [1, 3, 4, None]), ("semi", [1]), ("anti", [3, 4])):
        found = hp.join(left, right, BAND, 0.5, how=how, invalid="drop").collect()
        assert sorted((row[0] for row in found), key=str) == sorted(wanted, key=str)
    for how in ("left", "right", "outer", "semi", "anti"):
        with pytest.raises(engine.failure, match="not a distribution"):
            hp.join(left, right, BAND, 0.5, how=how).collect()


def test_the_funnel_counts_rows_without_a_partner(engine):
    left, right = sides(engine, 11)
    funnel = hp.Funnel()
    found = hp.join(left, right, BAND, 0.4, how="outer", funnel=funnel).collect()
    counts = funnel.to_dict()
    assert counts["unmatched_left"] == sum(row["t_right"] is None for row in found) > 0
    assert counts["unmatched_right"] == sum(row["t_left"] is None for row in found) > 0
    assert counts["kept"] == len(found) - counts["unmatched_left"] - counts["unmatched_right"]


def test_chosen_columns(engine):
    left, right = sides(engine, 12)
    found = hp.join(left, right, BAND, 0.4, how="left", columns=SHOWN)
    assert found.columns == [*SHOWN, "probability"]
    whole = hp.join(left, right, BAND, 0.4, how="left")
    assert Counter(tuple(map(repr, (row[name] for name in found.columns))) for row in whole.collect()) == bag(found)
    few = hp.join(left, right, BAND, 0.4, how="anti", columns=["n", "name"])
    assert few.columns == ["n", "name"]
    assert few.count() == hp.join(left, right, BAND, 0.4, how="anti").count()
    bare = hp.join(left, right, BAND, 0.4, how="left", probability="none")
    assert bare.columns == whole.columns[:-1]
    assert bare.count() == whole.count()


def test_words_of_errors(engine):
    left, right = sides(engine, 13, 4, 4)
    for options, words in (
        ({"how": "semi", "columns": ["n_right"]}, "how='semi' returns left columns only; columns= names n_right"),
        ({"how": "full"}, "no choice of how 'full'"),
        ({"k": 3}, "k=3 needs keep='best_left' or 'best_right'"),
        ({"keep": "best_left", "k": 0}, "k is not a number of rows"),
        ({"keep": "best"}, "no choice of keep 'best'"),
        ({"ties": "all"}, "keep='all' does not choose by it"),
    ):
        with pytest.raises(HaplyError, match=words.replace("(", r"\(")):
            hp.join(left, right, BAND, 0.4, **options)


# -- SQL ---------------------------------------------------------------------------------------------------------------

SQL_BAND = "abs(a.x - b.x) <= 0.8"


@pytest.mark.parametrize(
    ("words", "how"),
    [("LEFT", "left"), ("RIGHT OUTER", "right"), ("FULL", "outer"), ("LEFT SEMI", "semi"), ("ANTI", "anti")],
)
def test_sql_joins_mean_how(engine, words, how):
    left, right = sides(engine, 21)
    on = "{0} AND {1}.kind = 'a' AND {1}.n < {2}.n"
    query = f"SELECT * FROM a {words} JOIN b ON {on.format(SQL_BAND, 'a', 'b')} WITH THRESHOLD 0.4"
    found = hp.sql(query, a=left, b=right)
    wanted = hp.join(left, right, on.format(BAND, "left", "right"), 0.4, how=how)
    assert bag(found) == bag(wanted)
    assert found.count()


def test_sql_where_acts_after_an_outer_join(engine):
    left, right = sides(engine, 22)
    query = f"SELECT a.n AS mine, b.n AS theirs, PROB() AS p FROM a LEFT JOIN b ON {SQL_BAND} {{}} WITH THRESHOLD 0.4"
    whole = hp.sql(query.format(""), a=left, b=right).collect()
    alone = hp.sql(query.format("WHERE b.t IS NULL AND a.n > 2"), a=left, b=right).collect()
    wanted = [row for row in whole if row["p"] is None and (row["mine"] or 0) > 2]
    assert Counter(map(repr, alone)) == Counter(map(repr, wanted))
    assert wanted


def test_sql_selects_and_orders_what_a_join_returns(engine):
    left, right = sides(engine, 23)
    query = (
        f"SELECT a.n * 2 AS twice, b.x.mean AS m FROM a LEFT JOIN b ON {SQL_BAND} WITH THRESHOLD 0.4 ORDER BY m LIMIT 7"
    )
    found = hp.sql(query, a=left, b=right).collect()
    whole = hp.join(left, right, BAND, 0.4, how="left").collect()
    means = [None if row["x_right"] is None else row["x_right"]["mean"] for row in whole]
    assert [row["m"] for row in found] == sorted(means, key=lambda value: (value is not None, value or 0))[:7]


def test_sql_keep(engine):
    left, right = sides(engine, 24)
    query = f"SELECT * FROM a LEFT JOIN b ON {SQL_BAND} WITH THRESHOLD 0.3 KEEP {{}}"
    for text, options in (
        ("BEST PER a", {"keep": "best_left"}),
        ("BEST 2 PER b WITH TIES", {"keep": "best_right", "k": 2, "ties": "all"}),
        ("MUTUAL", {"keep": "mutual"}),
        ("BEST PER a ORDER BY PROB() DESC, b.t", {"keep": "best_left", "order_by": "t"}),
    ):
        wanted = hp.join(left, right, BAND, 0.3, how="left", **options)
        found = hp.sql(query.format(text), a=left, b=right)
        assert found.count() == wanted.count()
        if "order_by" not in options:  # which does not tell all rows apart
            assert bag(found) == bag(wanted)


def test_words_of_sql_errors(engine):
    left, right = sides(engine, 25, 4, 4)
    for query, words in (
        (f"SELECT b.n FROM a LEFT SEMI JOIN b ON {SQL_BAND}", "a LEFT SEMI JOIN returns columns of a only. Found b.n"),
        (f"SELECT PROB() FROM a ANTI JOIN b ON {SQL_BAND}", "returns columns of a only. Found PROB"),
        (f"SELECT a.n FROM a LEFT JOIN b ON {SQL_BAND} WHERE a.x > 3", "WHERE acts on the rows that the join returns"),
        (f"SELECT a.n FROM a LEFT JOIN b ON {SQL_BAND}, a AS c", "a LEFT JOIN is between two tables. Found 3 tables"),
        ("SELECT a.n FROM a NATURAL JOIN b", "a NATURAL JOIN is not part of a query"),
        (f"SELECT a.n FROM a JOIN b ON {SQL_BAND} WITH THRESHOLD 0.5 KEEP FEW", "KEEP does not say which pairs"),
        (f"SELECT a.n FROM a JOIN b ON {SQL_BAND} WITH THRESHOLD 0.5 KEEP BEST PER d", "no table 'd'"),
        ("SELECT a.n FROM a WHERE a.x > 3 WITH THRESHOLD 0.5 KEEP MUTUAL", "KEEP is for a join of two tables"),
    ):
        with pytest.raises(HaplyError) as caught:
            hp.sql(query, a=left, b=right)
        assert words in str(caught.value)
