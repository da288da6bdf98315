"""``hp.window_join``: tables and streams give the oracle's combinations, each once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
import oracle_time as oracle
from haply.errors import HaplyError
from stream_kit import read_stream, running, settings, write_file

PATH = {("a", "b"): 6.0, ("b", "c"): 10.0}
NAMES = ("a", "b", "c")


def rows_of(rng, names, count, until, keys):
    """Streams as the oracle has them: id, time, key."""
    return {
        name: [
            (k, float(t), int(key))
            for k, (t, key) in enumerate(
                zip(np.sort(rng.integers(0, until, count)), rng.integers(0, keys, count), strict=True)
            )
        ]
        for name in names
    }


def table_of(rows, stamps=False):
    ids, times, keys = (list(column) for column in zip(*rows, strict=True))
    time = pa.array([int(1e6 * t) for t in times], pa.timestamp("us", "UTC")) if stamps else pa.array(times)
    return pa.table({"id": pa.array(ids, pa.int64()), "time": time, "plate": pa.array([f"car {k}" for k in keys])})


def collect(result, names=NAMES):
    rows = [tuple(row) for row in result.select(*(f"{name}_id" for name in names)).collect()]
    assert len(set(rows)) == len(rows), "a combination was doubled"
    return set(rows)


@pytest.fixture(scope="module")
def streams():
    rows = rows_of(np.random.default_rng(4), NAMES, 60, 200, 3)
    wanted = set(oracle.window_combinations(rows, PATH))
    assert 100 < len(wanted) < 3000
    return rows, wanted


@pytest.mark.parametrize(("cells", "algorithm", "policy"), [(1, "forward", "local"), (7, "auto", "exact")])
def test_tables(spark, streams, cells, algorithm, policy):
    rows, wanted = streams
    frames = {name: spark.createDataFrame(table_of(own)) for name, own in rows.items()}
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=cells):
        found = hp.window_join(frames, PATH, key="plate", algorithm=algorithm, windows_policy=policy, funnel=funnel)
        assert found.columns == [f"{name}_{column}" for name in NAMES for column in ("id", "time", "plate")] + [
            "probability"
        ]
        assert collect(found) == wanted
    counts = funnel.to_dict()
    assert counts["kept"] == len(wanted)
    assert (counts["rows_a"], counts["rows_c"], counts["pairs_possible"]) == (60, 60, 60**3)
    assert {row["probability"] for row in found.limit(5).collect()} == {1.0}


def test_without_a_key_and_with_conditions(spark):
    """A clique of four, times as timestamps, and a condition over all."""
    names = ("a", "b", "c", "d")
    rows = rows_of(np.random.default_rng(9), names, 14, 60, 4)
    windows = {("a", "b"): 4, ("a", "c"): 7, ("a", "d"): 9, ("b", "c"): 5, ("b", "d"): 5, ("c", "d"): 3}
    frames = {name: spark.createDataFrame(table_of(own, stamps=True)) for name, own in rows.items()}
    spelled = {pair: f"{window} seconds" for pair, window in windows.items()}
    wanted = set(
        oracle.window_combinations(
            rows, windows, lambda chosen: chosen["a"][0] < chosen["d"][0] and chosen["b"][2] != chosen["c"][2]
        )
    )
    assert len(wanted) > 20
    with settings(spark, spark__haply__cells=3):
        found = hp.window_join(frames, spelled, on="a.id < d.id AND b.plate <> c.plate")
        assert collect(found, names) == wanted


def test_keys_and_times_of_other_names_and_nulls(spark):
    a = spark.createDataFrame([(1, 0.0, "x"), (2, 1.0, None), (3, None, "x")], "id long, t double, k string")
    b = spark.createDataFrame([(5, 1.0, "x"), (6, 2.0, None)], "id long, s double, plate string")
    found = hp.window_join({"a": a, "b": b}, {("a", "b"): 3}, key={"a": "k", "b": "plate"}, time={"a": "t", "b": "s"})
    assert collect(found, ("a", "b")) == {(1, 5)}


@pytest.mark.parametrize(("cells", "shuffled"), [(1, False), (5, True)])
def test_streams_give_the_combinations_of_tables(spark, tmp_path, streams, cells, shuffled):
    rows, wanted = streams
    rng = np.random.default_rng(2)
    for name, own in rows.items():
        arrival = [t + (rng.uniform(0.0, 8.0) if shuffled else 0.0) for _, t, _ in own]
        for k, part in enumerate(np.array_split(np.argsort(arrival, kind="stable"), 3)):
            write_file(tmp_path / name, k, table_of([own[i] for i in part]))
    frames = {name: read_stream(spark, tmp_path / name) for name in NAMES}
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=cells):
        result = hp.window_join(frames, PATH, key="plate", max_delay=8 if shuffled else 0, funnel=funnel)
        with running(result, tmp_path, f"many{cells}") as query:
            query.processAllAvailable()
            found = collect(spark.table(f"many{cells}"))
            held = [progress["stateOperators"][0]["numRowsTotal"] for progress in query.recentProgress]
    assert found == wanted
    assert max(held) < 2 * held[0], "what is past is forgotten, batch by batch"


def test_errors_when_it_is_built(spark):
    table = spark.createDataFrame([(1, 0.0, (0.0, 1.0))], "id long, time double, x struct<mean:double,sd:double>")
    three = {"a": table, "b": table, "c": table}
    for streams, windows, options, text in (
        (three, {("a", "b"): 1}, {}, "do not connect stream 'c'"),
        ({**three, "d": table}, {("a", "b"): 1, ("c", "d"): 1}, {}, "connect|reach"),
        (three, {("a", "b"): -1, ("b", "c"): 1}, {}, "window is no length"),
        (three, {("a", "b"): 1, ("b", "z"): 1}, {}, "'z'"),
        (three, PATH, {"algorithm": "sideways"}, "sideways"),
        (three, PATH, {"windows_policy": "lax"}, "lax"),
        (three, PATH, {"threshold": 2}, "threshold is not a probability"),
        (three, PATH, {"threshold": 0}, "threshold is not a probability"),
        (three, PATH, {"key": "plate"}, "called 'plate'"),
        (three, PATH, {"time": "when"}, "called 'when'"),
        (three, PATH, {"max_delay": {"z": 1}}, "'z'"),
        (three, PATH, {"max_delay": -1}, "max_delay is no length"),
        (three, PATH, {"on": "abs(a.x - b.x) <= 1"}, "is uncertain"),
        (three, PATH, {"on": "a.id < z.id"}, "'z'"),
        (three, PATH, {"key": {"a": "id"}}, "other streams than there are"),
    ):
        with pytest.raises(HaplyError, match=text):
            hp.window_join(streams, windows, **options)
