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


@pytest.mark.long(keep=1)
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


@pytest.mark.long
def test_streams_give_the_combinations_of_tables(spark, tmp_path, streams):
    """Shuffled. Streams in order are below, and any number of cells in ``test_time_cells.py``."""
    rows, wanted = streams
    rng = np.random.default_rng(2)
    for name, own in rows.items():
        arrival = [t + rng.uniform(0.0, 8.0) for _, t, _ in own]
        for k, part in enumerate(np.array_split(np.argsort(arrival, kind="stable"), 3)):
            write_file(tmp_path / name, k, table_of([own[i] for i in part]))
    frames = {name: read_stream(spark, tmp_path / name) for name in NAMES}
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=5):
        result = hp.window_join(frames, PATH, key="plate", max_delay=8, funnel=funnel)
        with running(result, tmp_path, "many") as query:
            query.processAllAvailable()
            found = collect(spark.table("many"))
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
        (three, PATH, {"on": "a.x * b.x * c.x < 1"}, "more than two uncertain columns"),
        (three, PATH, {"on": "a.x = 1 OR b.x < 1"}, "equals any other value with probability 0"),
        (three, PATH, {"on": "a.id < z.id"}, "'z'"),
        (three, PATH, {"key": {"a": "id"}}, "other streams than there are"),
    ):
        with pytest.raises(HaplyError, match=text):
            hp.window_join(streams, windows, **options)


def uncertain_rows(rng, names, count, until):
    return {
        name: [
            (k, float(t), float(np.round(rng.normal(0, 2), 2)), float(np.round(rng.uniform(0.2, 1.5), 2)))
            for k, t in enumerate(np.sort(rng.integers(0, until, count)))
        ]
        for name in names
    }


SAMPLES = pa.struct([("points", pa.list_(pa.float64())), ("probs", pa.list_(pa.float64())), ("dim", pa.int32())])


def uncertain_table(rows, kind):
    ids, times, means, sds = (list(column) for column in zip(*rows, strict=True))
    laws = list(zip(means, sds, strict=True))
    if kind == "gaussian":
        values = pa.array([{"mean": mean, "sd": sd} for mean, sd in laws])
    else:
        values = pa.array([{"points": points_of(*law), "probs": None, "dim": 1} for law in laws], SAMPLES)
    return pa.table({"id": pa.array(ids, pa.int64()), "time": pa.array(times), "x": values})


def points_of(mean, sd):
    return [round(mean + sd * z, 1) for z in (-1.5, -0.5, 0.0, 0.5, 1.5)]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["gaussian", "samples"])
def test_uncertain_conditions_have_their_joint_probability(spark, tmp_path, kind):
    """``a`` and ``c`` are both near ``b``: the two conditions share it."""
    rows = uncertain_rows(np.random.default_rng(8), NAMES, 14, 40)
    frames = {name: spark.createDataFrame(uncertain_table(own, kind)) for name, own in rows.items()}
    links = [("a", "b", -1.0, 1.0), ("b", "c", -1.0, 1.0)]
    wanted = {}
    for chosen in oracle.window_combinations(
        {name: [(*row[:2], 0) for row in own] for name, own in rows.items()}, PATH
    ):
        own = dict(zip(NAMES, (rows[name][k][2:] for name, k in zip(NAMES, chosen, strict=True)), strict=True))
        if kind == "gaussian":
            if max(abs(own[one][0] - own["b"][0]) for one in "ac") > 3.5:
                continue  # it takes the oracle long, and is far from likely
            value = oracle.joint_gaussians({name: oracle.Normal(*law) for name, law in own.items()}, links)
        else:
            laws = {name: oracle.Discrete(tuple(points_of(*law))) for name, law in own.items()}
            value = float(oracle.joint_samples(laws, links))
        if value >= 0.3 - 1e-12:
            wanted[chosen] = value
    assert 5 < len(wanted) < 300
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=3):
        found = hp.window_join(
            frames, PATH, on="abs(a.x - b.x) <= 1 and c.x - b.x between -1 and 1", threshold=0.3, funnel=funnel
        ).collect()
    assert {tuple(row[f"{name}_id"] for name in NAMES): row["probability"] for row in found} == pytest.approx(
        wanted, abs=1e-11
    )
    assert funnel.to_dict()["kept"] == len(wanted)
    assert funnel.to_dict()["candidates"] > len(wanted)
    if kind == "samples":  # and as streams
        for name, own in rows.items():
            for k, part in enumerate(np.array_split(np.arange(len(own)), 2)):
                write_file(tmp_path / name, k, uncertain_table([own[i] for i in part], kind))
        streams = {name: read_stream(spark, tmp_path / name) for name in NAMES}
        with settings(spark, spark__haply__cells=3):
            result = hp.window_join(streams, PATH, on="abs(a.x - b.x) <= 1 and abs(c.x - b.x) <= 1", threshold=0.3)
            with running(result, tmp_path, "joint") as query:
                query.processAllAvailable()
                assert collect(spark.table("joint")) == set(wanted)
