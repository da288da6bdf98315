"""``keep=``: the best pairs of each row, against an order that is written out here."""

from __future__ import annotations

import numpy as np
import pytest

import both_kit as hp
from answers_kit import BAND, CONDITIONS, bag, numbered, sides
from haply.errors import HaplyError

KINDS = ("band", "greater", "positions", "keys", "residual", "own left", "several", "certain")


def spread(row, on):
    """The expected squared difference of a pair's values."""
    if "distance" in on:
        one, other = row["xy_left"], row["xy_right"]
        apart = sum((a - b) ** 2 for a, b in zip(one["mean"], other["mean"], strict=True))
        return apart + one["cov"][0] + one["cov"][3] + other["cov"][0] + other["cov"][3]
    if "left.u > right.u" in on:
        one, other = row["u_left"], row["u_right"]
        middle = [0.5 * (value["lo"] + value["hi"]) for value in (one, other)]
        return (middle[0] - middle[1]) ** 2 + sum((value["hi"] - value["lo"]) ** 2 / 12 for value in (one, other))
    one, other = row["x_left"], row["x_right"]
    return (one["mean"] - other["mean"]) ** 2 + one["sd"] ** 2 + other["sd"] ** 2


def order(row, on, side, columns):
    """What a pair is ordered by, for the row of one side."""
    other = "right" if side == "left" else "left"
    values = tuple(row[f"{name}_{other}"] for name in columns)
    second = spread(row, on) if on.startswith((BAND, "distance", "left.u")) and "left.u -" not in on else 0.0
    return (-round(row["probability"], 12), round(second, 9), *((value is None, value or "") for value in values))


def best(pairs, on, side, k, columns=("name", "key", "kind", "n", "t")):
    """The ids of the k best pairs of each row; of equal rows any may be chosen, so rows without their ids."""
    groups = {}
    for row in pairs:
        groups.setdefault(row[f"row_{side}"], []).append(row)
    kept = []
    for rows in groups.values():
        kept += sorted(rows, key=lambda row: order(row, on, side, columns))[:k]
    return kept


def without_ids(rows, columns):
    return hp_bag(tuple(repr(row[name]) for name in columns) for row in rows)


def hp_bag(rows):
    found = {}
    for row in rows:
        found[row] = found.get(row, 0) + 1
    return found


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_best_of_each_row(engine, kind, k):
    on = CONDITIONS[kind]
    left, right = (numbered(engine, table) for table in sides(engine, 3))
    pairs = hp.join(left, right, on, 0.3).collect()
    columns = hp.join(left, right, on, 0.3).columns
    shown = [name for name in columns if not name.startswith("row_")]
    for side, keep in (("left", "best_left"), ("right", "best_right")):
        wanted = best(pairs, on, side, k)
        assert 0 < len(wanted) <= len(pairs) - (k == 1)
        found = hp.join(left, right, on, 0.3, keep=keep, k=k, order_by=["name", "key", "kind", "n", "t"])
        assert found.columns == columns
        rows = found.collect()
        assert without_ids(rows, shown) == without_ids(wanted, shown)
        of_row = hp_bag(row[f"row_{side}"] for row in rows)
        assert of_row == hp_bag(row[f"row_{side}"] for row in wanted)


def test_mutual_is_both(engine):
    left, right = (numbered(engine, table) for table in sides(engine, 5))
    ids = ["row_left", "row_right"]
    options = {"columns": ids, "order_by": "row"}
    found = {
        keep: {
            (row["row_left"], row["row_right"])
            for row in hp.join(left, right, BAND, 0.3, keep=keep, **options).collect()
        }
        for keep in ("best_left", "best_right", "mutual")
    }
    assert found["mutual"] == found["best_left"] & found["best_right"]
    assert found["mutual"] != found["best_left"]


def test_probabilities_that_are_all_one_are_told_apart_by_distance(engine):
    types = "id long, x struct<mean:double,sd:double>"
    left = engine.createDataFrame([(0, (0.0, 0.1))], types)
    right = engine.createDataFrame([(3, (3.0, 0.1)), (1, (1.0, 0.1)), (0, (0.0, 0.1)), (2, (2.0, 0.1))], types)
    on = "abs(left.x - right.x) <= 5"
    assert {row["probability"] for row in hp.join(left, right, on, 0.5).collect()} == {1.0}
    found = hp.join(left, right, on, 0.5, keep="best_left", k=2).collect()
    assert sorted(row["id_right"] for row in found) == [0, 1]


def test_ties(engine):
    types = "id long, x struct<mean:double,sd:double>"
    left = engine.createDataFrame([(0, (0.0, 0.1))], types)
    right = engine.createDataFrame([(7, (1.0, 0.1)), (5, (-1.0, 0.1)), (None, (1.0, 0.1)), (6, (1.5, 0.1))], types)
    on = "abs(left.x - right.x) <= 2"
    found = {
        (k, ties): sorted(
            (row["id_right"] for row in hp.join(left, right, on, 0.5, keep="best_left", k=k, ties=ties).collect()),
            key=str,
        )
        for k in (1, 2, 4)
        for ties in ("first", "all")
    }
    assert found[1, "first"] == [5]
    assert found[2, "first"] == [5, 7]
    assert found[1, "all"] == found[2, "all"] == [5, 7, None]
    assert found[4, "first"] == found[4, "all"] == [5, 6, 7, None]


def test_how_acts_after_keep(engine):
    """Rows that lost their pairs to others are without a pair, each of two equal rows by itself."""
    left, right = sides(engine, 6)
    for keep in ("best_right", "mutual"):
        kept = hp.join(left, right, BAND, 0.3, keep=keep)
        ids = {row["row"] for row in hp.join(numbered(engine, left), right, BAND, 0.3, keep=keep).collect()}
        alone = hp.join(left, right, BAND, 0.3, keep=keep, how="left")
        assert alone.count() == kept.count() + left.count() - len(ids)
        assert bag(hp.join(left, right, BAND, 0.3, keep=keep, how="semi")) + bag(
            hp.join(left, right, BAND, 0.3, keep=keep, how="anti")
        ) == bag(left)
        assert hp.join(left, right, BAND, 0.3, keep=keep, how="semi").count() == len(ids)


def test_chosen_columns_and_no_probability(engine):
    left, right = sides(engine, 7)
    whole = hp.join(left, right, BAND, 0.3, keep="best_left")
    few = hp.join(left, right, BAND, 0.3, keep="best_left", columns=["t_left", "name_right"])
    assert few.columns == ["t_left", "name_right", "probability"]
    assert hp_bag(tuple(row[name] for name in few.columns) for row in whole.collect()) == hp_bag(
        map(tuple, few.collect())
    )
    bare = hp.join(left, right, BAND, 0.3, keep="best_left", probability="none")
    assert bare.columns == whole.columns[:-1]
    assert bare.count() == whole.count()


def test_keep_in_a_window_and_with_uncertain_times(engine):
    left, right = (numbered(engine, table) for table in sides(engine, 8))
    for options in ({"time": "t", "window": 6}, {"time": "u", "window": 1}):
        pairs = hp.join(left, right, BAND, 0.2, **options).collect()
        kept = hp.join(left, right, BAND, 0.2, keep="best_left", **options).collect()
        assert len(kept) == len({row["row_left"] for row in pairs}) < len(pairs)
        most = {}
        for row in pairs:
            most[row["row_left"]] = max(most.get(row["row_left"], 0.0), row["probability"])
        assert all(row["probability"] == pytest.approx(most[row["row_left"]], abs=1e-12) for row in kept)


def test_order_by_must_be_a_column_of_the_other_table(engine):
    left, right = sides(engine, 9, 4, 4)
    with pytest.raises(HaplyError, match="no column in the right table called 'nam'"):
        hp.join(left, right, BAND, 0.3, keep="best_left", order_by="nam")


def test_explain_says_what_is_kept(engine):
    left, right = sides(engine, 9, 4, 4)
    said = hp.plan_join(left, right, BAND, 0.3, keep="best_left", k=2, how="left").explain()
    assert "the 2 best pairs of each left row" in said
    assert "left rows without a pair are returned with nulls" in said


def test_many_pairs_are_chosen_some_at_a_time(engine, monkeypatch):
    if engine.name != "local":
        pytest.skip("Spark ranks all pairs at once")
    from haply.engines.local.answers import join as answers

    rng = np.random.default_rng(1)
    types = "id long, x struct<mean:double,sd:double>"
    tables = [
        engine.createDataFrame([(k, (float(rng.uniform(0, 40)), 0.2)) for k in range(300)], types) for _ in range(2)
    ]
    whole = bag(hp.join(*tables, BAND, 0.3, keep="best_left"))
    monkeypatch.setattr(answers, "_HELD_PAIRS", 50)
    assert bag(hp.join(*tables, BAND, 0.3, keep="best_left")) == whole


def test_the_best_without_a_threshold(engine):
    """However unlikely: candidates far away, and rows whose chances are all the same to 12 decimals."""
    rng = np.random.default_rng(3)
    types = "id long, x struct<mean:double,sd:double>, xy struct<mean:array<double>,cov:array<double>>"

    def table(count):
        rows = []
        for k in range(count):
            sd, place = float(rng.uniform(0.05, 1.5)), rng.uniform(-9, 9, 2).tolist()
            rows.append((k, (float(rng.uniform(-40, 40)), sd), (place, [sd**2, 0.0, 0.0, sd**2])))
        return engine.createDataFrame(rows, types)

    left, right = table(60), table(40)
    for on, columns in ((BAND, "x"), ("distance(left.xy, right.xy) <= 0.8", "xy")):
        for keep, side, other in (("best_left", "left", "right"), ("best_right", "right", "left")):
            if engine.name == "spark" and (columns, side) != ("xy", "left"):
                continue  # seven joins of Spark each
            found = hp.join(left, right, on, keep=keep, k=2).collect()
            one, two = (left, right) if side == "left" else (right, left)
            got = {}
            for row in found:
                got.setdefault(row[f"id_{side}"], []).append(row[f"id_{other}"])
            for mine in one.collect():
                ranked = []
                for theirs in two.collect():
                    p, square = chance_and_square(mine[columns], theirs[columns])
                    if p > 0.0:
                        ranked.append((-round(p, 12), square, theirs["id"]))
                assert sorted(got.get(mine["id"], [])) == sorted(k for *_, k in sorted(ranked)[:2])
            assert len(found) > 60


def chance_and_square(mine, theirs):
    """The probability that two Gaussians, or round positions, are within 0.8, and their expected squared distance."""
    from scipy.stats import ncx2, norm

    if "sd" in mine.__fields__:
        apart, sd = mine["mean"] - theirs["mean"], np.hypot(mine["sd"], theirs["sd"])
        near, far = (0.8 - abs(apart)) / sd, (-0.8 - abs(apart)) / sd
        return norm.cdf(near) - norm.cdf(far), apart**2 + sd**2
    apart = sum((a - b) ** 2 for a, b in zip(mine["mean"], theirs["mean"], strict=True))
    variance = mine["cov"][0] + theirs["cov"][0]
    return float(ncx2.cdf(0.64 / variance, 2, apart / variance)), apart + 2 * variance
