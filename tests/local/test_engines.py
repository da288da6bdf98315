"""Both engines give the same answers: rows, probabilities, columns, what the funnel counts, and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
import query_kit

pytestmark = pytest.mark.filterwarnings("ignore::haply.HaplyWarning")

_ROWS = 24


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    return query_kit.table(np.random.default_rng(1), _ROWS), query_kit.table(np.random.default_rng(2), _ROWS)


@pytest.fixture(scope="module")
def frames(spark: Any, tables: tuple[pa.Table, pa.Table]) -> tuple[Any, Any]:
    left, right = (spark.createDataFrame(table).coalesce(1) for table in tables)
    return left, right


def answer(ask: Callable[[], Any]) -> Any:
    """Rows in an order of their own, or the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hp.HaplyWarning)
            found = ask()
            table = found if isinstance(found, pa.Table) else found.toArrow()
    except hp.HaplyError as refusal:
        return str(refusal)
    rows = [tuple(_plain(value) for value in row.values()) for row in table.to_pylist()]
    return table.column_names, sorted(rows, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _plain(part)) for name, part in sorted(value.items()))
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def same(here: Any, there: Any) -> None:
    """Equal, but for the last digits of probabilities."""
    if isinstance(here, str) or isinstance(there, str):
        assert here == there
        return
    assert here[0] == there[0]
    assert len(here[1]) == len(there[1])
    if here[0] and here[0][-1] in ("probability", "p"):
        order = [sorted(rows, key=lambda row: repr(row[:-1])) for rows in (here[1], there[1])]
        assert [row[:-1] for row in order[0]] == [row[:-1] for row in order[1]]
        mine, theirs = ([row[-1] for row in rows] for rows in order)
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    else:
        assert here[1] == there[1]


def counted(funnel: hp.Funnel) -> dict[str, Any]:
    """What does not depend on how rows are dealt out."""
    return {
        name: value
        for name, value in funnel.to_dict().items()
        if name in ("pairs_possible", "kept", "invalid_left", "invalid_right", "null_left", "null_right")
    }


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(160))
def test_random_joins(seed: int, tables: tuple[pa.Table, pa.Table], frames: tuple[Any, Any]) -> None:
    query = query_kit.join_query(np.random.default_rng(seed))
    mine, theirs = hp.Funnel(), hp.Funnel()
    itself = "self_key" in query.options
    here = answer(lambda: hp.join(tables[0], tables[0 if itself else 1], query.on, funnel=mine, **query.options))
    there = answer(lambda: hp.join(frames[0], frames[0 if itself else 1], query.on, funnel=theirs, **query.options))
    same(here, there)
    if not isinstance(here, str):
        assert counted(mine) == counted(theirs)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(60))
def test_random_selections(seed: int, tables: tuple[pa.Table, pa.Table], frames: tuple[Any, Any]) -> None:
    condition, options = query_kit.where_query(np.random.default_rng(seed))
    mine, theirs = hp.Funnel(), hp.Funnel()
    here = answer(lambda: hp.where(tables[0], condition, funnel=mine, **options))
    same(here, answer(lambda: hp.where(frames[0], condition, funnel=theirs, **options)))
    if not isinstance(here, str):
        assert mine.to_dict() == theirs.to_dict()


@pytest.fixture(scope="module")
def three(spark: Any) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """Three small tables, in this process and on Spark."""
    here = {name: query_kit.table(np.random.default_rng(seed), 12) for name, seed in (("a", 5), ("b", 6), ("c", 7))}
    return here, {name: on_spark(spark, table) for name, table in here.items()}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(60))
def test_random_window_joins(seed: int, three: tuple[dict[str, pa.Table], dict[str, Any]]) -> None:
    query = query_kit.window_query(np.random.default_rng(seed))
    answers = [
        answer(
            lambda tables=tables: hp.window_join(
                {name: tables[name] for name in query.tables}, query.windows, **query.options
            )
        )
        for tables in three
    ]
    same(*answers)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("seed", range(80))
def test_random_statements(seed: int, three: tuple[dict[str, pa.Table], dict[str, Any]]) -> None:
    query = query_kit.sql_query(np.random.default_rng(seed))
    same(*(answer(lambda tables=tables: hp.sql(query, time="t", **tables)) for tables in three))


def uncertain_times(rng: np.random.Generator, rows: int) -> pa.Table:
    """Events whose times are histograms, with values."""
    seen = rng.uniform(0, 40, rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "when": pa.array([{"edges": [t - 3, t - 1, t], "probs": [0.25, 0.75]} for t in seen]),
            "at": np.round(seen, 2),
            "x": pa.array([{"mean": float(v), "sd": 0.3} for v in rng.uniform(0, 3, rows)]),
        }
    )


def stamped(rng: np.random.Generator, rows: int, zone: str | None) -> pa.Table:
    micro = 1_700_000_000_000_000 + rng.integers(0, 30_000_000, rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "time": pa.array(micro, pa.timestamp("us", tz=zone)),
            "x": pa.array([{"lo": float(v), "hi": float(v) + 0.5} for v in rng.uniform(0, 3, rows)]),
        }
    )


QUESTIONS: dict[str, tuple[Callable[[], dict[str, pa.Table]], Callable[[dict[str, Any]], Any]]] = {}


def question(make: Callable[[], dict[str, pa.Table]]) -> Callable[[Callable[[dict[str, Any]], Any]], Any]:
    def add(ask: Callable[[dict[str, Any]], Any]) -> Any:
        QUESTIONS[ask.__name__] = make, ask
        return ask

    return add


def plain() -> dict[str, pa.Table]:
    return {name: query_kit.table(np.random.default_rng(seed), 16) for name, seed in (("a", 1), ("b", 2), ("c", 3))}


def timed() -> dict[str, pa.Table]:
    return {name: uncertain_times(np.random.default_rng(seed), 20) for name, seed in (("a", 1), ("b", 2))}


def zoned() -> dict[str, pa.Table]:
    return {name: stamped(np.random.default_rng(seed), 20, "UTC") for name, seed in (("a", 1), ("b", 2))}


def unzoned() -> dict[str, pa.Table]:
    return {name: stamped(np.random.default_rng(seed), 20, None) for name, seed in (("a", 1), ("b", 2))}


def spoilt() -> dict[str, pa.Table]:
    bad = pa.table({"id": [1, 2, 3], "x": pa.array([{"mean": 1.0, "sd": 0.1}, {"mean": 2.0, "sd": -0.1}, None])})
    return {"a": bad, "b": bad.slice(0)}


NEAR = "abs(left.x - right.x) <= 0.7"


@question(timed)
def uncertain_times_alone(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], time="when", window=2.0, threshold=0.4)


@question(timed)
def uncertain_times_and_values(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], NEAR, 0.2, time="when", window=2.0)


@question(timed)
def an_uncertain_time_beside_a_certain_one(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "left.x < right.x", 0.2, time=("when", "at"), window=3.0)


@question(timed)
def a_table_in_time_with_itself(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["a"], NEAR, 0.2, time="at", window=3.0, self_key="id")


@question(zoned)
def stamps(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], NEAR, 0.2, time="time", window="2 seconds")


@question(unzoned)
def stamps_without_a_zone(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], time="time", window="2500 milliseconds")


@question(zoned)
def certain_conditions_alone(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "left.id = right.id + 1", 0.2, time="time", window="20 seconds")


def late() -> dict[str, pa.Table]:
    return {name: pa.table({"id": [1, 2], "t": [1_700_000_000_000_000_000, 5], "x": [1.0, 2.0]}) for name in "ab"}


@question(late)
def times_that_are_too_large(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs(gaussian(left.x, 0.1) - right.x) <= 1", 0.2, time="t", window=1)


@question(plain)
def a_product(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "left.id < 3 AND right.id > 13", columns=["id_left", "id_right"])


@question(plain)
def chosen_columns(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs(left.g - right.g) <= 0.3", 0.3, columns=["name_right", "id_left"])


@question(plain)
def two_columns_of_a_side(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs((left.g - left.m) - right.g) < 2 AND left.g > 1", 0.3, suffixes=("_1", "_2"))


@question(plain)
def a_circle(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "power(left.p[0] - right.p[0], 2) + power(left.p[1] - right.p[1], 2) < 1", 0.3)


@question(plain)
def a_number_of_both_sides(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs(left.g - right.g) <= left.n - right.n AND left.u < 3", 0.3)


@question(plain)
def three_tables(t: dict[str, Any]) -> Any:
    query = """SELECT a.id, b.id, c.id, PROB() AS p FROM a, b, c
               WHERE abs(a.g - b.g) <= 0.5 AND abs(b.g - c.g) <= 0.5 AND a.k = c.k WITH THRESHOLD 0.3"""
    return hp.sql(query, **t)


@question(plain)
def a_selection_with_everything(t: dict[str, Any]) -> Any:
    query = """SELECT id, upper(name) AS name, g.mean * 2 AS m, UNIFORM(n, n + 1) AS made, PROB() AS p FROM
               (SELECT *, GAUSSIAN(n, 0.3) AS y FROM a WHERE k >= 1) s WHERE y > 1 AND g < 3 AND name IS NOT NULL
               ORDER BY id DESC LIMIT 5 WITH THRESHOLD 0.2"""
    return hp.sql(query, a=t["a"])


@question(plain)
def windows_of_three(t: dict[str, Any]) -> Any:
    return hp.window_join(t, {("a", "b"): 2, ("b", "c"): 3}, time="t", key="k", on="abs(a.g - c.g) <= 1", threshold=0.3)


@question(plain)
def windows_by_the_papers(t: dict[str, Any]) -> Any:
    two = {name: t[name] for name in "ab"}
    return hp.window_join(two, {("a", "b"): 1}, time="t", algorithm="forward", windows_policy="local", on="a.id < b.id")


@question(plain)
def windows_with_constructors(t: dict[str, Any]) -> Any:
    near = "abs(gaussian(a.n, 0.3) - gaussian(b.n, 0.1 + b.n / 10)) <= 0.5 AND a.id < b.id"
    two = {name: t[name] for name in "ab"}
    return hp.window_join(two, {("a", "b"): 3}, time="t", on=near, threshold=0.3)


@question(plain)
def rings(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs(left.g - right.g) BETWEEN 0.5 AND 1", 0.3)


@question(plain)
def either_of_two_ranges(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "left.u < right.u OR left.u > right.u + 2", 0.6)


@question(plain)
def between_itself(t: dict[str, Any]) -> Any:
    return hp.where(t["a"], "g BETWEEN 0.5 AND 2 * g - 1", 0.4)


def skies() -> dict[str, pa.Table]:
    rng = np.random.default_rng(4)
    found = {}
    for name in "ab":
        ra, dec = rng.normal(0.0, 1e-4, 20) % 360.0, 60.0 + rng.normal(0.0, 1e-4, 20)
        error, other = rng.uniform(0.05, 0.4, 20), rng.uniform(0.05, 0.4, 20)
        found[name] = pa.table({"id": np.arange(20), "ra": ra, "dec": dec, "e": error, "f": other})
    return found


@question(skies)
def the_sky(t: dict[str, Any]) -> Any:
    one = hp.sky.position(hp.left.ra, hp.left.dec, hp.left.e, hp.left.f, 0.3)
    other = hp.sky.ellipse(hp.right.ra, hp.right.dec, 1000 * hp.right.e, 1000 * hp.right.f, 30, errors_in="mas")
    return hp.join(t["a"], t["b"], hp.distance(one, other) <= 0.3, 0.2)


@question(spoilt)
def bad_rows(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], NEAR, 0.2)


@question(spoilt)
def bad_rows_left_out(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], NEAR, 0.2, invalid="drop")


@question(spoilt)
def bad_rows_of_a_selection(t: dict[str, Any]) -> Any:
    return hp.where(t["a"], "x > 0", 0.2)


@question(plain)
def unknown_columns(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs(left.gg - right.g) <= 1", 0.3)


@question(plain)
def equal_values(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "left.g = right.g", 0.3)


@question(plain)
def no_numbers(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs(left.name - right.g) <= 1", 0.3)


@question(plain)
def no_threshold(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs(left.g - right.u) <= 1")


@question(plain)
def a_strategy_that_does_not_fit(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "distance(left.p, right.p) <= 1", 0.3, strategy="pti")


@question(plain)
def a_misspelt_query(t: dict[str, Any]) -> Any:
    return hp.sql("SELECT a.id FROM a, b WHERE abs(a.g - b.gg) <= 1 WITH THRESHOLD 0.3", **t)


@question(plain)
def no_time(t: dict[str, Any]) -> Any:
    return hp.join(t["a"], t["b"], "abs(left.g - right.g) <= 1", 0.3, time="name", window=3)


def on_spark(spark: Any, table: pa.Table) -> Any:
    """The same table; Spark takes times without a zone for others."""
    frame = spark.createDataFrame(table).coalesce(1)
    for field in table.schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            frame = frame.withColumn(field.name, frame[field.name].cast("timestamp_ntz"))
    return frame


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("name", QUESTIONS)
def test_questions(name: str, spark: Any) -> None:
    make, ask = QUESTIONS[name]
    here = make()
    there = {each: on_spark(spark, table) for each, table in here.items()}
    same(answer(lambda: ask(here)), answer(lambda: ask(there)))


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("strategy", ["sweep", "pages", "pti", "moments"])
def test_strategies(strategy: str, tables: tuple[pa.Table, pa.Table], frames: tuple[Any, Any]) -> None:
    on, options = "abs(left.g - right.h) <= 0.4 AND left.k = right.k", {"threshold": 0.4, "strategy": strategy}
    here = answer(lambda: hp.join(*tables, on, **options))
    assert here[1]
    same(here, answer(lambda: hp.join(*frames, on, **options)))
