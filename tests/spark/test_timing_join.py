"""``hp.join`` with uncertain times on Spark: streams give the pairs of tables, which are in ``tests/both``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
from haply.models import Gaussian
from haply.probability import equal_within
from stream_kit import read_stream, running, settings, write_file
from timing_kit import DELAY, THRESHOLD, WINDOW, assert_same, collect, random_sides, tables


@pytest.fixture(scope="module")
def events():
    return random_sides()


# -- tables ------------------------------------------------------------------------------------------------------------


def with_values(events):
    """Each pair's probability by time times that by value."""
    wanted = {}
    for i in range(60):
        p = equal_within(
            Gaussian(np.full(60, events.values[0][i]), np.full(60, 2.0)),
            Gaussian(events.values[1], np.full(60, 2.0)),
            3.0,
        )
        in_time = equal_within(events.models[0].take(np.full(60, i)), events.models[1], WINDOW)
        for j in np.flatnonzero((p * in_time >= THRESHOLD) & (events.keys[0][i] == events.keys[1])):
            wanted[i, int(j)] = (p * in_time)[j]
    return wanted


def test_latency(spark):
    """Examples 1 and 2 of the paper: the detections are too far apart, what happened is not."""
    seismic = spark.createDataFrame([(1, 60.0)], "id long, at double")
    acoustic = spark.createDataFrame([(2, 110.0)], "id long, at double")
    seismic = seismic.withColumn("t", hp.latency("at", [0, 10, 20, 40], [0.6, 0.3, 0.1]))
    acoustic = acoustic.withColumn("t", hp.latency("at", [0, 10, 20, 30, 40], [0.15, 0.4, 0.3, 0.15]))
    assert not hp.join(seismic, acoustic, time="at", window=40).count()
    found = hp.join(seismic, acoustic, time="t", window=40, threshold=0.4).collect()
    assert [row["probability"] for row in found] == pytest.approx([387 / 800])


# -- streams -----------------------------------------------------------------------------------------------------------


def write_streams(folder, events, files, shuffled, seed=3):
    rng = np.random.default_rng(seed)
    for side, table, model in zip("lr", tables(events), events.models, strict=True):
        latest = model.support()[1]
        arrival = latest + (rng.uniform(0.0, DELAY, len(latest)) if shuffled else 0.0)
        for k, rows in enumerate(np.array_split(np.argsort(arrival, kind="stable"), files)):
            write_file(folder / side, k, table.take(pa.array(rows)))


@pytest.mark.long
@pytest.mark.parametrize(("cells", "shuffled", "valued"), [(1, False, True), (5, True, False)])
def test_streams_give_the_pairs_of_tables(spark, tmp_path, events, cells, shuffled, valued):
    write_streams(tmp_path, events, 3, shuffled)
    streams = [read_stream(spark, tmp_path / side) for side in "lr"]
    on = "abs(left.x - right.x) <= 3 AND left.k = right.k" if valued else None
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=cells):
        result = hp.join(
            *streams, on, THRESHOLD, time="t", window=WINDOW, max_delay=DELAY if shuffled else 0, funnel=funnel
        )
        with running(result, tmp_path, f"timed{cells}{shuffled}") as query:
            query.processAllAvailable()
            found = collect(spark.table(f"timed{cells}{shuffled}"))
    assert_same(found, with_values(events) if valued else events.wanted)


@pytest.mark.long
def test_certain_times_and_uncertain_values_on_streams(spark, tmp_path):
    """Band and comparison of values in a window of certain times."""
    rng = np.random.default_rng(6)
    times = np.sort(rng.integers(0, 200, (2, 40)), axis=1).astype(float)
    values = rng.uniform(0.0, 10.0, (2, 40))
    for k, side in enumerate("lr"):
        x = Gaussian(values[k], np.full(40, 1.0))
        table = pa.table({"id": np.arange(40), "t": times[k], "x": x.to_arrow()})
        for part in range(3):
            write_file(tmp_path / side, part, table.slice(14 * part, 14))
    streams = [read_stream(spark, tmp_path / side) for side in "lr"]
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(40), np.arange(40), indexing="ij"))
    p = hp.probability.greater(Gaussian(values[0][i], np.full(1600, 1.0)), Gaussian(values[1][j], np.full(1600, 1.0)))
    kept = (p >= 0.8) & (np.abs(times[0][i] - times[1][j]) <= 10.0)
    wanted = {(int(a), int(b)): q for a, b, q in zip(i[kept], j[kept], p[kept], strict=True)}
    result = hp.join(*streams, "left.x > right.x", 0.8, time="t", window=10)
    with settings(spark, spark__haply__cells=3), running(result, tmp_path, "certain_times") as query:
        query.processAllAvailable()
        assert_same(collect(spark.table("certain_times")), wanted)
    assert len(wanted) > 20
    tables = [spark.read.parquet(str(tmp_path / side)) for side in "lr"]
    far = 1.0 - hp.probability.equal_within(
        Gaussian(values[0][i], np.full(1600, 1.0)), Gaussian(values[1][j], np.full(1600, 1.0)), 3.0
    )
    kept = (far >= 0.8) & (np.abs(times[0][i] - times[1][j]) <= 10.0)
    apart = {(int(a), int(b)): q for a, b, q in zip(i[kept], j[kept], far[kept], strict=True)}
    for on, answer in (("left.x > right.x", wanted), ("abs(left.x - right.x) > 3", apart)):
        assert_same(collect(hp.join(*tables, on, 0.8, time="t", window=10)), answer)


def test_latency_in_a_fresh_plan(spark):
    """A table made just now, and read by both halves of the plan: Spark's optimizer has lost its column there."""
    table = spark.createDataFrame([("s1", 100.0), ("s2", 107.0)], ["event", "seen"])
    times = table.select("event", hp.latency("seen", [0.0, 0.5, 1.0], [0.8, 0.2]).alias("time"))
    found = hp.join(times, times, on=abs(hp.left.time - hp.right.time) <= 1, threshold=0.1)
    assert sorted((row[0], row[2]) for row in found.collect()) == [("s1", "s1"), ("s2", "s2")]
    null = table.selectExpr("event", "CAST(NULL AS DOUBLE) AS seen").select(
        hp.latency("seen", [0.0, 0.5, 1.0], [0.8, 0.2]).alias("time")
    )
    assert not hp.join(null, null, on=abs(hp.left.time - hp.right.time) <= 1, threshold=0.1).count()
